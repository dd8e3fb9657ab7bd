"""Which columns of a CSV log are the time and the watts or joules, and in which unit."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from measurements.errors import MeasurementError
from measurements.power.source import SensorError
from measurements.table.headers import nearest, shown
from measurements.table.units import parse_quantity, split_unit

if TYPE_CHECKING:
    from collections.abc import Sequence


Quantity = Literal["energy", "power"]

DELIMITERS = (",", ";", "\t", "|")
# Loggers put at most so many lines of their own before the header.
MOST_LINES_BEFORE = 50


class Unit(NamedTuple):
    """What a column measures, and what turns its numbers into W or J."""

    quantity: Quantity
    factor: float


UNITS: dict[str, Unit] = {
    "W": Unit("power", 1.0),
    "mW": Unit("power", 1e-3),
    "kW": Unit("power", 1e3),
    "J": Unit("energy", 1.0),
    "kJ": Unit("energy", 1e3),
    "Wh": Unit("energy", 3600.0),
    "kWh": Unit("energy", 3.6e6),
}
_QUANTITIES: dict[str, Quantity] = {"w": "power", "j": "energy"}
_SI = {"power": "w", "energy": "j"}

_TIMES = {"time", "timestamp", "datetime", "dateandtime", "epoch", "epochtime", "unixtime", "ts"}
# Names that are a unit, and names that leave it open.
_UNIT_WORDS = {
    **dict.fromkeys(("w", "watt", "watts"), UNITS["W"]),
    **dict.fromkeys(("j", "joule", "joules"), UNITS["J"]),
    "mw": UNITS["mW"],
    "kw": UNITS["kW"],
    "wh": UNITS["Wh"],
    "kwh": UNITS["kWh"],
}
_OPEN_WORDS: dict[str, Quantity] = {
    **dict.fromkeys(("power", "activepower", "realpower", "powerconsumption"), "power"),
    "energy": "energy",
}

_BRACKETS = re.compile(r"[(\[].*?[)\]]")
_ZONE = re.compile(r"(?<![A-Za-z])(UTC|GMT)(?![A-Za-z])", re.IGNORECASE)


class Wanted(NamedTuple):
    """What the user said of the columns; None where nothing."""

    time: str | None = None
    value: str | None = None
    unit: str | None = None
    quantity: str | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """How a row is read.

    Attributes
    ----------
    header : sequence of str or None
        Its cells; None for a log without one.
    time : sequence of int
        Columns that make the time, joined with a blank.
    value : int
        Column of the figure.
    """

    delimiter: str
    header: Sequence[str] | None
    time: Sequence[int]
    value: int
    unit: Unit

    @property
    def is_universal(self) -> bool:
        """Whether the header says that times are UTC."""
        names = " ".join(self.header[index] for index in self.time) if self.header else ""
        return _ZONE.search(names) is not None

    def is_header(self, line: str) -> bool:
        """Whether a line is the header, which some loggers write again and again."""
        return self.header is not None and _cut(line.lstrip("# "), self.delimiter) == self.header

    def cells(self, line: str) -> list[str]:
        """Cut a line into its cells; none for an empty line, a remark or the header again."""
        if line.lstrip().startswith("#") or self.is_header(line):
            return []
        cells = _cut(line, self.delimiter)
        return cells if any(cells) else []

    def time_of(self, cells: Sequence[str]) -> str:
        """Text of the time; empty where the row is too short."""
        if len(cells) <= max(self.time):
            return ""
        return " ".join(cells[index] for index in self.time)

    def value_of(self, cells: Sequence[str]) -> float:
        """Figure in W or J; NaN where there is none, and for watts that are not above 0."""
        text = cells[self.value] if len(cells) > self.value else ""
        if self.delimiter != ",":
            text = text.replace(",", ".")
        try:
            value = float(text) * self.unit.factor
        except ValueError:
            try:
                value = parse_quantity(text, _SI[self.unit.quantity])
            except MeasurementError:
                return math.nan
        usable = value > 0 if self.unit.quantity == "power" else value >= 0
        return value if usable and math.isfinite(value) else math.nan


def find_layout(lines: Sequence[str], wanted: Wanted, source: str) -> Layout:
    """Find the header among the first lines of a log, and the columns in it.

    Parameters
    ----------
    lines : sequence of str
        The beginning of the log.
    wanted : Wanted
        Columns by name or number (from 1), and their unit.
    source : str
        For messages.

    Raises
    ------
    SensorError
        Where a column is missing or ambiguous, or nobody knows its unit; it names the columns.
    """
    _check(wanted, source)
    rows = [
        (delimiter, cells)
        for line in lines[:MOST_LINES_BEFORE]
        for delimiter in DELIMITERS
        if len(cells := _cut(line.lstrip("# "), delimiter)) > 1
    ]
    if not rows:
        raise SensorError(
            f"{source}: no line has two columns: start the logger first, and let it write CSV with "
            f"a header"
        )
    # The header is the first line with all that is wanted, else that with the most columns.
    rows.sort(key=lambda row: -len(row[1]))
    refusals = []
    for delimiter, cells in rows:
        try:
            return _layout(delimiter, cells, wanted, source)
        except SensorError as error:
            refusals.append(error)
    raise refusals[0]


def _check(wanted: Wanted, source: str) -> None:
    if wanted.unit is not None and wanted.unit not in UNITS:
        raise SensorError(f"{source}: unit={wanted.unit}: write one of {', '.join(UNITS)}")
    if wanted.quantity not in (None, *_SI):
        raise SensorError(f"{source}: quantity={wanted.quantity}: write power or energy")
    if wanted.unit and wanted.quantity not in (None, UNITS[wanted.unit].quantity):
        raise SensorError(
            f"{source}: quantity={wanted.quantity} is not what unit={wanted.unit} measures: drop "
            f"one of the two"
        )


def _layout(delimiter: str, cells: Sequence[str], wanted: Wanted, source: str) -> Layout:
    time = _time_columns(cells, wanted.time, source)
    value = _value_column(cells, time, wanted, source)
    header = None if _is_number(cells[value]) else cells
    unit = UNITS[wanted.unit] if wanted.unit else _unit_of(cells[value])
    if unit is None:
        raise SensorError(
            f"{source}: column {cells[value]!r} names no unit: write unit=W, or another of "
            f"{', '.join(UNITS)}"
        )
    if wanted.quantity not in (None, unit.quantity):
        raise SensorError(
            f"{source}: column {cells[value]!r} is of {unit.quantity}: choose another with "
            f"value=COLUMN, or drop quantity={wanted.quantity}"
        )
    return Layout(delimiter, header, time, value, unit)


def _time_columns(cells: Sequence[str], wanted: str | None, source: str) -> tuple[int, ...]:
    if wanted is not None:
        if wanted in cells or "+" not in wanted:
            return (_named(cells, wanted, "time", source),)
        return tuple(_named(cells, part, "time", source) for part in wanted.split("+"))
    plain = [_plain(split_unit(cell)[0]) for cell in cells]
    found = [index for index, name in enumerate(plain) if name in _TIMES]
    dates = [index for index, name in enumerate(plain) if name == "date"]
    if len(dates) == 1 and len(found) <= 1:
        return (*dates, *found)
    if len(found) != 1:
        raise _choose(cells, found, "the time", "time", source)
    return (found[0],)


def _value_column(cells: Sequence[str], time: Sequence[int], wanted: Wanted, source: str) -> int:
    if wanted.value is not None:
        return _named(cells, wanted.value, "value", source)
    quantity = UNITS[wanted.unit].quantity if wanted.unit else wanted.quantity
    found = [
        index
        for index, cell in enumerate(cells)
        if index not in time and (said := _quantity_of(cell)) and quantity in (None, said)
    ]
    if len(found) != 1:
        raise _choose(cells, found, quantity or "power or energy", "value", source)
    return found[0]


def _choose(
    cells: Sequence[str], found: Sequence[int], what: str, option: str, source: str
) -> SensorError:
    names = shown([cells[index] for index in found] or cells)
    return SensorError(
        f"{source}: {'several columns' if found else 'no column'} can be {what}, by name: choose "
        f"with {option}=COLUMN among {names}"
    )


def _named(cells: Sequence[str], name: str, option: str, source: str) -> int:
    """Find a column by its name, in any case, or by its number from 1."""
    for fits in (str, str.lower):
        found = [index for index, cell in enumerate(cells) if fits(cell) == fits(name.strip())]
        if len(found) == 1:
            return found[0]
        if found:
            raise SensorError(
                f"{source}: {len(found)} columns are called {name!r}: give the number of one: "
                f"{option}={found[0] + 1}"
            )
    if name.isascii() and name.isdigit() and 1 <= int(name) <= len(cells):
        return int(name) - 1
    raise SensorError(
        f"{source}: {option}={name}: no such column{nearest(name, cells)}; the columns are "
        f"{shown(cells)}"
    )


def _quantity_of(name: str) -> Quantity | None:
    unit = _unit_of(name)
    return unit.quantity if unit else _OPEN_WORDS.get(_plain(name))


def _unit_of(name: str) -> Unit | None:
    unit = split_unit(name)[1]
    if unit and unit.si in _QUANTITIES:
        return Unit(_QUANTITIES[unit.si], unit.factor)
    return _UNIT_WORDS.get(_plain(name))


def _plain(name: str) -> str:
    """Letters and digits of a name, without remarks in brackets and without a zone."""
    bare = _ZONE.sub("", _BRACKETS.sub("", name.replace("_", " ")))
    return "".join(c for c in bare.lower() if c.isalnum())


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _cut(line: str, delimiter: str) -> list[str]:
    try:
        cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]


# Times as loggers write them, in seconds since 1970.


# From here on a number of seconds, milliseconds, ... can be told apart by its size.
EARLIEST_S = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
LATEST_S = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
SCALES = (1.0, 1e-3, 1e-6, 1e-9)

_CLOCK_TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d*)?)? ?(Z|[AP]M|[+-]\d{2}:?\d{2})?", re.I)
_DATE_WITH_SLASHES = re.compile(r"^(\d{4})/(\d{2})/(\d{2})")
_UNIVERSAL = re.compile(r" ?(UTC|GMT)$")
_SPACED_ZONE = re.compile(r" (?=[+-]\d{2}:?\d{2}$)")


class BadTimeError(ValueError):
    """A text that is no time; says why, and what to do."""


class TimeReader:
    """Reads the times of one log, whose first one settles the unit of all.

    Parameters
    ----------
    offset_s : float
        What is added to the log's times before they are judged, so that seconds since the start
        of a log can be read with the offset of that start. It is not part of the result.
    universal : bool
        Whether times without a zone are UTC; else they are local time of this host.

    Attributes
    ----------
    local : bool
        Whether a time was taken for local time.
    """

    def __init__(self, offset_s: float = 0.0, universal: bool = False) -> None:
        self.local = False
        self._universal = universal
        self._offset_s = offset_s
        self._scale: float | None = None

    def read(self, text: str) -> float:
        """Read seconds since 1970 by the log's own clock.

        Raises
        ------
        BadTimeError
            With the remedy.
        """
        text = text.strip()
        try:
            number = float(text)
        except ValueError:
            return self._date(text)
        return self._number(number, text)

    def _number(self, number: float, text: str) -> float:
        scales = SCALES if self._scale is None else (self._scale,)
        for scale in scales:
            if EARLIEST_S <= number * scale + self._offset_s < LATEST_S:
                self._scale = scale
                return number * scale
        raise BadTimeError(
            f"{text!r} is no time since 1970 in s, ms, µs or ns: let the logger write that or ISO "
            f"8601, or give offset=SECONDS of the log's start since 1970 if it counts from there"
        )

    def _date(self, text: str) -> float:
        if _CLOCK_TIME.fullmatch(text):
            raise BadTimeError(
                f"{text!r} has no date: name the column of the date too, such as time=Date+Time, "
                f"or let the logger write ISO 8601"
            )
        iso = _DATE_WITH_SLASHES.sub(r"\1-\2-\3", text)
        iso = _SPACED_ZONE.sub("", _UNIVERSAL.sub("+00:00", iso))
        try:
            moment = datetime.fromisoformat(iso)
        except ValueError:
            moment = None
        if moment is None or _is_whole_day(iso):
            raise BadTimeError(
                f"{text!r} is no time: let the logger write ISO 8601, such as "
                f"2026-03-01T12:00:00+01:00, or seconds since 1970"
            )
        if moment.tzinfo is None and self._universal:
            moment = moment.replace(tzinfo=UTC)
        self.local |= moment.tzinfo is None
        return moment.timestamp()


def _is_whole_day(iso: str) -> bool:
    try:
        date.fromisoformat(iso)
    except ValueError:
        return False
    return True
