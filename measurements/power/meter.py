"""Power meters that speak SCPI, such as a Yokogawa WT, through PyVISA.

A meter is only asked, never told: its ranges, items and integration stay as they were set on it.
Of a WT the numeric items are looked through for the power P; of any other meter an option says
what to ask.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from measurements.power.source import Channel, Reading, SensorError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from pyvisa import ResourceManager
    from pyvisa.resources import MessageBasedResource

    from measurements.power.source import SourceSettings


# An instrument that is asked through PyVISA, with its faults in plain words.


# SCPI's words for infinity and for no number are the numbers 9.9E37 and 9.91E37.
NO_FIGURE = 9.89e37


class Instrument:
    """A VISA resource that answers questions.

    Parameters
    ----------
    resource : str
        VISA name, such as ``TCPIP0::10.0.0.5::5025::SOCKET``.
    backend : str
        Of PyVISA, such as ``@py``.
    timeout_s : float
        For connecting and for each answer.

    Raises
    ------
    SensorError
        When there is no such back-end or resource.
    """

    def __init__(self, resource: str, backend: str, timeout_s: float) -> None:
        self.name = f"meter at {resource}"
        self._resource = resource
        self._backend = backend
        self._timeout_s = timeout_s
        self._visa = _pyvisa()
        self._manager: ResourceManager | None = _manager(self._visa, backend)
        self._device: MessageBasedResource | None = None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def ask(self, query: str) -> str:
        """Ask a question; the answer without its header and blanks."""
        answer = self._tried(lambda device: device.query(query), query)
        # Such as ":RATE 500.0E-03" of a meter that repeats the question.
        text: str = re.sub(r"^:[\w:]+ +", "", answer.strip())
        if not text:
            raise SensorError(f"{self.name}: answers nothing to {query}: check its name and cable")
        if not text.isprintable():
            raise self._no_text(query)
        return text

    def ask_numbers(self, query: str, binary: bool) -> list[float]:
        """Ask for numbers; NaN for those that the meter does not have."""
        if binary:
            return [_figure(number) for number in self._tried(_block(query), query)]
        text = self.ask(query)
        try:
            return [_figure(float(field)) for field in text.split(",")]
        except ValueError:
            raise SensorError(
                f"{self.name}: answers {text[:60]!r} to {query} instead of numbers: is it a meter "
                f"of this kind? query=... names another question"
            ) from None

    def hurry(self, limit_s: float) -> None:
        """Wait no longer than this from now on."""
        self._timeout_s = min(self._timeout_s, limit_s)
        if self._device:
            self._device.timeout = 1000 * self._timeout_s

    def reopen(self) -> None:
        """Connect again, so that no late answer is taken for the next one."""
        self._close_device()
        self._open()
        # Buses that are not connections keep old answers; not every one can be cleared.
        with contextlib.suppress(self._visa.Error, OSError, NotImplementedError):
            if self._device:
                self._device.clear()

    def close(self) -> None:
        """Let go of the resource, and of PyVISA where nobody else uses it."""
        self._close_device()
        # Managers of one back-end are one and the same, and closing it closes all it opened.
        if self._manager and not self._manager.list_opened_resources():
            self._manager.close()
        self._manager = None

    def _open(self) -> None:
        if self._manager is None:
            raise SensorError(f"{self.name}: is closed")
        if self._backend.endswith("@py"):
            _check_host(self.name, self._visa, self._resource)
        limit_ms = int(1000 * self._timeout_s)
        try:
            device = cast(
                "MessageBasedResource",
                self._manager.open_resource(self._resource, open_timeout=limit_ms),
            )
            device.timeout = limit_ms
            device.write_termination = "\n"
            # Other buses mark the end of an answer themselves.
            if re.search(r"^ASRL|SOCKET$", self._resource, re.IGNORECASE):
                device.read_termination = "\n"
        # PyVISA-py lets through whatever its transports raise, some of it as a bare Exception.
        except Exception as error:
            raise SensorError(
                f"{self.name}: cannot be opened: {_reason(error)}: check that the name is as the "
                f"meter shows it, that its interface is on and that nobody else uses it"
            ) from None
        self._device = device

    def _tried(self, ask: Callable[[MessageBasedResource], Any], query: str) -> Any:
        if self._device is None:
            raise SensorError(f"{self.name}: is closed")
        try:
            return ask(self._device)
        except UnicodeDecodeError:
            raise self._no_text(query) from None
        except Exception as error:
            late = getattr(error, "error_code", None) == self._visa.constants.VI_ERROR_TMO
            reason = f"no answer within {self._timeout_s:g} s" if late else _reason(error)
            raise SensorError(
                f"{self.name}: {reason} to {query}: check its cable and network, and that it is on"
            ) from None

    def _no_text(self, query: str) -> SensorError:
        return SensorError(
            f"{self.name}: answers {query} with bytes that are no text: check the baud rate or the "
            "port"
        )

    def _close_device(self) -> None:
        device, self._device = self._device, None
        if device is not None:
            # What has broken off cannot be ended properly.
            with contextlib.suppress(Exception):
                device.close()


def _figure(number: float) -> float:
    return number if abs(number) < NO_FIGURE else math.nan


def _block(query: str) -> Callable[[MessageBasedResource], Sequence[float]]:
    return lambda device: device.query_binary_values(query, datatype="f", is_big_endian=True)


def _check_host(name: str, visa: ModuleType, resource: str) -> None:
    """Look the host up before PyVISA-py does, which forgets to close a socket then."""
    with contextlib.suppress(visa.rname.InvalidResourceName):
        host = getattr(visa.rname.parse_resource_name(resource), "host_address", None)
        try:
            if host:
                socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            raise SensorError(f"{name}: no host is called {host}: check the name") from None


def _manager(visa: ModuleType, backend: str) -> ResourceManager:
    try:
        manager: ResourceManager = visa.ResourceManager(backend)
    except Exception as error:
        raise SensorError(
            f"meter: PyVISA has no back-end {backend!r}: {_reason(error)}: pip install "
            f"'perf-per-watt[measure]' for @py, or name another with backend=..."
        ) from None
    return manager


def _pyvisa() -> ModuleType:
    try:
        import pyvisa
    except ImportError:
        raise SensorError(
            "meter needs the library PyVISA: pip install 'perf-per-watt[measure]'"
        ) from None
    return pyvisa


def _reason(error: Exception) -> str:
    """Say in one line what went wrong."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0].rstrip(".: ") if lines else type(error).__name__


OPTIONS = ("backend", "energy", "item", "name", "query")
BACKEND = "@py"

VALUES = ":NUMERIC:NORMAL:VALUE?"
MOST_ITEMS = 255
JOULES_PER_WH = 3600.0

# A meter that runs answers at once. PyVISA-py waits for a connection that has ended by spinning,
# so that to wait long would heat the very host that is measured.
QUICK_S = 2.0


def open_source(where: str | None, settings: SourceSettings) -> MeterSource:
    """Open a meter by its VISA resource name.

    Parameters
    ----------
    where : str
        Such as ``TCPIP0::10.0.0.5::inst0::INSTR`` or ``TCPIP0::10.0.0.5::5025::SOCKET``.
    settings : SourceSettings
        Options: ``item`` (position, from 1, of the watts in the answer), ``energy`` (``yes`` adds
        the energy of a running integration), ``query`` (what another kind of meter is asked for
        its watts, such as ``MEAS:POW?``), ``name`` (for the label instead of the model),
        ``backend`` (of PyVISA; ``@py`` unless told).

    Raises
    ------
    SensorError
        When the meter cannot be reached, or does not say which of its numbers are watts.
    """
    options = _checked(settings.options)
    if not where:
        raise SensorError("meter needs a VISA name: meter@TCPIP0::HOST::5025::SOCKET")
    instrument = Instrument(where, options.get("backend", BACKEND), settings.timeout_s)
    try:
        return MeterSource(instrument, options)
    except BaseException:
        instrument.close()
        raise


class _Question(NamedTuple):
    """What is asked at every reading, and where in the answer the figures stand."""

    query: str
    binary: bool
    power: int
    energy: int | None
    window_s: float


class MeterSource:
    """The watts of one meter, and the energy that it integrates if that was asked for."""

    def __init__(self, instrument: Instrument, options: Mapping[str, str]) -> None:
        self._instrument = instrument
        name = options.get("name") or _model(instrument.ask("*IDN?"))
        question = _generic(instrument, options) if "query" in options else _wt(instrument, options)
        self._question = question
        self.period_s = question.window_s
        self.channels = _channels(f"meter:{name}", question)
        instrument.hurry(QUICK_S + question.window_s)
        self._check_wiring()

    def read(self) -> list[Reading]:
        """Ask for all figures at once; over a new connection where the first one fails."""
        try:
            at_s, figures = self._ask()
        except SensorError:
            self._instrument.reopen()
            at_s, figures = self._ask()
        power = figures[self._question.power]
        # A host that is on draws some: 0 or less is a meter whose input is elsewhere.
        values = [power if power > 0 else math.nan]
        if self._question.energy is not None:
            values.append(figures[self._question.energy] * JOULES_PER_WH)
        return [
            Reading(channel.label, at_s, value)
            for channel, value in zip(self.channels, values, strict=True)
        ]

    def close(self) -> None:
        """Let go of the meter; a second call does nothing."""
        self._instrument.close()

    def _ask(self) -> tuple[float, list[float]]:
        asked_s = time.monotonic()
        question = self._question
        figures = self._instrument.ask_numbers(question.query, question.binary)
        at_s = (asked_s + time.monotonic()) / 2
        wanted = max(question.power, question.energy or 0) + 1
        if len(figures) < wanted:
            raise SensorError(
                f"{self._instrument.name}: answers {len(figures)} numbers to {question.query}, and "
                f"item {wanted} is wanted: choose another with item=N"
            )
        return at_s, figures

    def _check_wiring(self) -> None:
        power = self._ask()[1][self._question.power]
        if power < 0:
            raise SensorError(
                f"{self._instrument.name}: reads {power:g} W: swap its two current leads, or its "
                f"two voltage leads"
            )


def _checked(options: Mapping[str, str]) -> Mapping[str, str]:
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise SensorError(f"meter has no option {', '.join(unknown)}: it has {', '.join(OPTIONS)}")
    if options.get("energy", "no") not in ("yes", "no"):
        raise SensorError(f"meter: energy={options['energy']}: write yes or no")
    item = options.get("item", "1")
    if not (item.isascii() and item.isdigit() and 1 <= int(item) <= MOST_ITEMS):
        raise SensorError(f"meter: item={item}: write a position from 1 to {MOST_ITEMS}")
    query = options.get("query", VALUES)
    if "?" not in query or ";" in query:
        raise SensorError(
            f"meter: query={query}: write one question, with its question mark: nothing is set on "
            f"a meter"
        )
    if "query" in options and options.get("energy") == "yes":
        raise SensorError("meter: energy=yes is for a Yokogawa WT, which query=... is not asked of")
    return options


def _channels(label: str, question: _Question) -> Sequence[Channel]:
    if question.energy is None:
        return (Channel(label, "power", "wall", window_s=question.window_s),)
    counter = f"{label}-energy"
    # The same watts twice: the meter integrates without gaps, so that its energy is the whole.
    return (
        Channel(label, "power", "wall", window_s=question.window_s, inside=counter),
        Channel(counter, "energy", "wall"),
    )


def _generic(instrument: Instrument, options: Mapping[str, str]) -> _Question:
    query = options["query"]
    count = len(instrument.ask_numbers(query, binary=False))
    if count > 1 and "item" not in options:
        raise SensorError(
            f"{instrument.name}: answers {count} numbers to {query}: write item=N for the watts"
        )
    return _Question(query, False, int(options.get("item", "1")) - 1, None, 0.0)


def _wt(instrument: Instrument, options: Mapping[str, str]) -> _Question:
    binary = instrument.ask(":NUMERIC:FORMAT?").upper().startswith("FLO")
    wants_energy = options.get("energy") == "yes"
    items = _items(instrument) if wants_energy or "item" not in options else []
    if "item" in options:
        power = int(options["item"]) - 1
    else:
        power = _position(instrument, items, ("P",), "item=N")
    energy = None
    if wants_energy:
        energy = _position(instrument, items, ("WH", "WP"), "energy=no")
        _check_integration(instrument)
    return _Question(VALUES, binary, power, energy, _update_s(instrument))


def _items(instrument: Instrument) -> list[str]:
    """Functions and elements of the numeric items, such as "P,1"; none if it does not say."""
    count = instrument.ask(":NUMERIC:NORMAL:NUMBER?")
    if not count.isdigit():
        return []
    numbers = range(1, min(int(count), MOST_ITEMS) + 1)
    return [instrument.ask(f":NUMERIC:NORMAL:ITEM{number}?").upper() for number in numbers]


def _position(
    instrument: Instrument, items: Sequence[str], functions: Sequence[str], otherwise: str
) -> int:
    found = [n for n, item in enumerate(items) if item.partition(",")[0].strip() in functions]
    if len(found) == 1:
        return found[0]
    seen = ", ".join(f"{n} {item}" for n, item in enumerate(items, 1)) or "unknown"
    wrong = f"{len(found)} of its items are" if found else "none of its items is"
    raise SensorError(
        f"{instrument.name}: {wrong} {' or '.join(functions)} (the items are: {seen}): set that on "
        f"the meter, or write {otherwise}"
    )


def _check_integration(instrument: Instrument) -> None:
    state = instrument.ask(":INTEGRATE:STATE?").upper()
    if not state.startswith("STAR"):
        raise SensorError(
            f"{instrument.name}: integration is not running (state {state}): start it on the "
            f"meter, or write energy=no"
        )


def _update_s(instrument: Instrument) -> float:
    """Seconds from one update of the figures to the next; 0 where the meter does not say."""
    answer = instrument.ask(":RATE?")
    try:
        rate_s = float(answer)
    except ValueError:
        return 0.0
    return rate_s if 0 < rate_s < NO_FIGURE else 0.0


def _model(identity: str) -> str:
    """Model by the answer to *IDN?, which is maker, model, serial number and firmware."""
    fields = [field.strip() for field in identity.split(",")]
    name = fields[1] if len(fields) > 1 else fields[0]
    return re.sub(r"[^\w.-]+", "-", name).strip("-").lower() or "scpi"
