"""Power meters that speak SCPI, such as a Yokogawa WT, through PyVISA.

A meter is only asked, never told: its ranges, items and integration stay as they were set on it.
Of a WT the numeric items are looked through for the power P; of any other meter an option says
what to ask.
"""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from measurements.power.protocol import Channel, Reading, SensorError
from measurements.power.visa_instrument import NO_FIGURE, Instrument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from measurements.power.protocol import SourceSettings

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
