"""Power meters that speak SCPI, such as a Yokogawa WT, through PyVISA.

A meter is only asked, never set: its ranges, items and integration stay as they are. The numeric
items of a WT are searched for the power P; for any other meter an option names the question.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from measurements.errors import install_command, on_error
from measurements.power import source

OPTIONS = ("backend", "energy", "item", "name", "query")
VALUES = ":NUMERIC:NORMAL:VALUE?"
MOST_ITEMS = 255
JOULES_PER_WH = 3600.0
# SCPI writes infinity and "no number" as 9.9E37 and 9.91E37.
NO_FIGURE = 9.89e37
# A running meter answers at once. PyVISA-py waits for an ended connection by spinning, so that a
# long limit would heat the very host that is measured.
QUICK_S = 2.0


def open_source(where: str | None, settings: source.SourceSettings) -> MeterSource:
    """Open a meter by its VISA resource name, such as ``TCPIP0::10.0.0.5::5025::SOCKET``.

    Options: ``item`` (position, from 1, of the power in the answer), ``energy`` (``yes`` adds the
    energy of a running integration), ``query`` (question for the power of another kind of meter,
    such as ``MEAS:POW?``), ``name`` (for the label instead of the model), ``backend`` (of PyVISA;
    ``@py`` by default).
    """
    options = settings.options
    _check_meter_options(options)
    if not where:
        raise source.SensorError("meter needs a VISA name: meter@TCPIP0::HOST::5025::SOCKET")
    instrument = Instrument(where, options.get("backend", "@py"), settings.timeout_s)
    with on_error(instrument.close):
        return MeterSource(instrument, options)


def _check_meter_options(options: Mapping[str, str]) -> None:
    source.check_options("meter", options, OPTIONS, yes_or_no=("energy",))
    item, query = options.get("item", "1"), options.get("query", VALUES)
    if not (item.isascii() and item.isdigit() and 1 <= int(item) <= MOST_ITEMS):
        raise source.SensorError(f"meter: item={item}: write a position from 1 to {MOST_ITEMS}")
    if "?" not in query or ";" in query:
        raise source.SensorError(
            f"meter: query={query}: write one question, with its question mark. "
            "ppw changes no setting of a meter"
        )
    if "query" in options and options.get("energy") == "yes":
        raise source.SensorError(
            "meter: energy=yes works only with a Yokogawa WT, and query=... only "
            "with other meters: give one of them"
        )


class _Question(NamedTuple):
    """The question of every reading, and the positions of the figures in the answer."""

    query: str
    binary: bool
    power: int
    energy: int | None = None
    window_s: float = 0.0


class MeterSource:
    """The power of one meter, and the energy that it integrates if asked for."""

    def __init__(self, instrument: Instrument, options: Mapping[str, str]) -> None:
        self._instrument = instrument
        label = f"meter:{options.get('name') or _model(instrument.ask('*IDN?'))}"
        find_question = _own_question if "query" in options else _wt_question
        question = find_question(instrument, options)
        self._question = question
        self.period_s = question.window_s
        power = source.Channel(label, "power", "wall", window_s=question.window_s)
        self.channels: Sequence[source.Channel] = (power,)
        if question.energy is not None:
            # The meter integrates without gaps, so that its energy contains the power.
            counter = source.Channel(f"{label}-energy", "energy", "wall")
            self.channels = (replace(power, inside=counter.label), counter)
        instrument.hurry(QUICK_S + question.window_s)
        watts = self._ask_figures()[0][question.power]
        if watts < 0:
            raise instrument.error(
                f"reads {watts:g} W: swap its two current leads, or its two voltage leads"
            )

    def read(self) -> list[source.Reading]:
        """Ask for all figures at once, over a new connection if the first one fails."""
        try:
            figures, at_s = self._ask_figures()
        except source.SensorError:
            self._instrument.reopen()
            figures, at_s = self._ask_figures()
        watts = figures[self._question.power]
        # A running host draws power: 0 or less means that the meter's input is elsewhere.
        values = [watts if watts > 0 else math.nan]
        if self._question.energy is not None:
            values.append(figures[self._question.energy] * JOULES_PER_WH)
        return [
            source.Reading(channel.label, at_s, value)
            for channel, value in zip(self.channels, values, strict=True)
        ]

    def close(self) -> None:
        """Release the meter; a second call does nothing."""
        self._instrument.close()

    def _ask_figures(self) -> tuple[list[float], float]:
        query, binary, power, energy, _ = self._question
        figures, at_s = source.time_call(lambda: self._instrument.ask_numbers(query, binary))
        wanted = max(power, energy or 0) + 1
        if len(figures) < wanted:
            raise self._instrument.error(
                f"answers {len(figures)} numbers to {query}, but not item "
                f"{wanted}: choose another with item=N"
            )
        return figures, at_s


def _model(identity: str) -> str:
    """Read the model from the answer to *IDN?: maker, model, serial number and firmware."""
    fields = [field.strip() for field in identity.split(",")]
    name = fields[1] if len(fields) > 1 else fields[0]
    return re.sub(r"[^\w.-]+", "-", name).strip("-").lower() or "scpi"


def _own_question(instrument: Instrument, options: Mapping[str, str]) -> _Question:
    """Make the question that the option ``query`` names."""
    query = options["query"]
    count = len(instrument.ask_numbers(query, binary=False))
    if count > 1 and "item" not in options:
        raise instrument.error(f"answers {count} numbers to {query}: write item=N for the power")
    return _Question(query, binary=False, power=int(options.get("item", "1")) - 1)


def _wt_question(instrument: Instrument, options: Mapping[str, str]) -> _Question:
    """Make the question for the numeric items of a Yokogawa WT."""
    binary = instrument.ask(":NUMERIC:FORMAT?").upper().startswith("FLO")
    wants_energy = options.get("energy") == "yes"
    items = _items(instrument) if wants_energy or "item" not in options else []
    power = int(options.get("item", "0")) - 1
    if power < 0:
        power = _position(instrument, items, ("P",), "item=N")
    energy = None
    if wants_energy:
        energy = _position(instrument, items, ("WH", "WP"), "energy=no")
        state = instrument.ask(":INTEGRATE:STATE?").upper()
        if not state.startswith("STAR"):
            raise instrument.error(
                f"integration is not running (state {state}): start it on the "
                f"meter, or write energy=no"
            )
    return _Question(VALUES, binary, power, energy, _update_s(instrument))


def _items(instrument: Instrument) -> list[str]:
    """List functions and elements of the numeric items, such as "P,1"; none if it does not tell."""
    count = instrument.ask(":NUMERIC:NORMAL:NUMBER?")
    if not count.isdigit():
        return []
    # No meter has a thousand, and Python refuses numbers of thousands of digits.
    numbers = range(1, min(int(count[:9]), MOST_ITEMS) + 1)
    return [instrument.ask(f":NUMERIC:NORMAL:ITEM{number}?").upper() for number in numbers]


def _position(
    instrument: Instrument, items: Sequence[str], functions: Sequence[str], otherwise: str
) -> int:
    """Find the one item with one of these functions; else an error that advises ``otherwise``."""
    found = [n for n, item in enumerate(items) if item.partition(",")[0].strip() in functions]
    if len(found) == 1:
        return found[0]
    seen = ", ".join(f"{n} {item}" for n, item in enumerate(items, 1)) or "unknown"
    wrong = f"{len(found)} of its items are" if found else "none of its items is"
    raise instrument.error(
        f"{wrong} {' or '.join(functions)} (the items are: {seen}): set that on "
        f"the meter, or write {otherwise}"
    )


def _update_s(instrument: Instrument) -> float:
    """Time between two updates of the figures (s); 0 if the meter does not tell."""
    answer = instrument.ask(":RATE?")
    try:
        rate_s = float(answer)
    except ValueError:
        return 0.0
    return rate_s if 0 < rate_s < NO_FIGURE else 0.0


class Instrument:
    """A VISA resource that answers questions. ``timeout_s`` limits connecting and each answer."""

    def __init__(self, resource: str, backend: str, timeout_s: float) -> None:
        pyvisa = source.import_library("meter", "pyvisa", "PyVISA")
        self.name = f"meter at {resource}"
        self._resource, self._backend, self._timeout_s = resource, backend, timeout_s
        self._visa = pyvisa
        try:
            self._manager = pyvisa.ResourceManager(backend)
        except Exception as error:
            raise source.SensorError(
                f"meter: PyVISA has no back-end {backend!r}: {_one_line(error)}: "
                f"{install_command('pyvisa_py')} for @py, or name another with backend=..."
            ) from None
        self._device: Any = None
        with on_error(self.close):
            self._open_device()

    def error(self, reason: str) -> source.SensorError:
        """Make the error of this resource."""
        return source.SensorError(f"{self.name}: {reason}")

    def ask(self, query: str) -> str:
        """Ask a question; return the answer without its header and blanks."""
        answer = self._call_device(lambda device: device.query(query), query)
        # A meter may repeat the question, as in ":RATE 500.0E-03".
        text: str = re.sub(r"^:[\w:]+ +", "", answer.strip())
        if not text:
            raise self.error(f"answers nothing to {query}: check its name and cable")
        if not text.isprintable():
            raise self._no_text_error(query)
        return text

    def ask_numbers(self, query: str, binary: bool) -> list[float]:
        """Ask for numbers; NaN for those that the meter does not have."""
        if binary:
            numbers = self._call_device(
                lambda device: device.query_binary_values(query, datatype="f", is_big_endian=True),
                query,
            )
        else:
            text = self.ask(query)
            try:
                numbers = [float(field) for field in text.split(",")]
            except ValueError:
                raise self.error(
                    f"answers {text[:60]!r} to {query} instead of numbers: is it a "
                    f"meter of this kind? query=... names another question"
                ) from None
        return [number if abs(number) < NO_FIGURE else math.nan for number in numbers]

    def hurry(self, limit_s: float) -> None:
        """Wait at most this long from now on."""
        self._timeout_s = min(self._timeout_s, limit_s)
        if self._device:
            self._device.timeout = 1000 * self._timeout_s

    def reopen(self) -> None:
        """Connect again, so that no late answer passes for the next one."""
        self._close_device()
        self._open_device()
        # Some buses keep old answers, and not every one can be cleared.
        with contextlib.suppress(self._visa.Error, OSError, NotImplementedError):
            if self._device:
                self._device.clear()

    def close(self) -> None:
        """Release the resource, and PyVISA unless somebody else uses it."""
        self._close_device()
        # Managers of one back-end are one and the same, and closing it closes all it opened.
        if self._manager and not self._manager.list_opened_resources():
            self._manager.close()
        self._manager = None

    def _open_device(self) -> None:
        if self._manager is None:
            raise self.error("is closed")
        if self._backend.endswith("@py"):
            self._check_host()
        limit_ms = int(1000 * self._timeout_s)
        try:
            device = self._manager.open_resource(self._resource, open_timeout=limit_ms)
            device.timeout = limit_ms
            device.write_termination = "\n"
            # Other buses mark the end of an answer themselves.
            if re.search(r"^ASRL|SOCKET$", self._resource, re.IGNORECASE):
                device.read_termination = "\n"
        # PyVISA-py lets through whatever its transports raise, even a bare Exception.
        except Exception as error:
            raise self.error(
                f"cannot be opened: {_one_line(error)}: check that the name is as the meter shows "
                "it, that its interface is on, and that no other program uses it"
            ) from None
        self._device = device

    def _check_host(self) -> None:
        """Look the host up before PyVISA-py does, which would leak a socket on failure."""
        names = self._visa.rname
        with contextlib.suppress(names.InvalidResourceName):
            host = getattr(names.parse_resource_name(self._resource), "host_address", None)
            try:
                if host:
                    socket.getaddrinfo(host, None)
            except (OSError, UnicodeError):
                raise self.error(f"no host is called {host}: check the name") from None

    def _call_device(self, ask: Callable[[Any], Any], query: str) -> Any:
        if self._device is None:
            raise self.error("is closed")
        try:
            return ask(self._device)
        except UnicodeDecodeError:
            raise self._no_text_error(query) from None
        except Exception as error:
            is_late = getattr(error, "error_code", None) == self._visa.constants.VI_ERROR_TMO
            reason = f"no answer within {self._timeout_s:g} s" if is_late else _one_line(error)
            raise self.error(
                f"{reason} to {query}: check its cable and network, and that it is on"
            ) from None

    def _no_text_error(self, query: str) -> source.SensorError:
        return self.error(
            f"answers {query} with bytes that are no text: check the baud rate or the port"
        )

    def _close_device(self) -> None:
        device, self._device = self._device, None
        if device is not None:
            # A broken connection cannot be closed properly.
            with contextlib.suppress(Exception):
                device.close()


def _one_line(error: Exception) -> str:
    """Reduce an error to one line."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0].rstrip(".: ") if lines else type(error).__name__
