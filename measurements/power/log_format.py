"""Columns, units and times of a CSV log of power or energy."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal, NamedTuple

from measurements.errors import MeasurementError
from measurements.power.source import SensorError
from measurements.table import units
from measurements.table.headers import list_names, nearest

Quantity = Literal["energy", "power"]

DELIMITERS = (",", ";", "\t", "|")
# Loggers put at most so many lines of their own before the header.
MOST_LINES_BEFORE = 50
UNIT_NAMES = ("W", "mW", "kW", "J", "kJ", "Wh", "kWh")
_QUANTITIES: dict[str, Quantity] = {"w": "power", "j": "energy"}

_TIMES = {"time", "timestamp", "datetime", "dateandtime", "epoch", "epochtime", "unixtime", "ts"}
# Column names that are a unit, and names that leave it open.
_UNIT_WORDS = {"w", "watt", "watts", "mw", "kw", "j", "joule", "joules", "wh", "kwh"}
_OPEN_WORDS: dict[str, Quantity] = {
    **dict.fromkeys(("power", "activepower", "realpower", "powerconsumption"), "power"),
    "energy": "energy",
}
_BRACKETS = re.compile(r"[(\[].*?[)\]]")
_ZONE = re.compile(r"(?<![A-Za-z])(UTC|GMT)(?![A-Za-z])", re.IGNORECASE)


class ColumnOptions(NamedTuple):
    """Options of the user about the columns; None for those not given."""

    time: str | None = None
    value: str | None = None
    unit: str | None = None
    quantity: str | None = None


@dataclass(frozen=True, slots=True)
class LogLayout:
    """How to read a row."""

    delimiter: str
    # Cells of the header; None for a log without one.
    header: Sequence[str] | None
    # Columns that make the time, joined with a blank.
    time: Sequence[int]
    value: int
    unit: units.Unit

    @property
    def quantity(self) -> Quantity:
        """What the value measures."""
        return _QUANTITIES[self.unit.si]

    @property
    def is_universal(self) -> bool:
        """Whether the header says that times are UTC."""
        names = " ".join(self.header[index] for index in self.time) if self.header else ""
        return _ZONE.search(names) is not None

    def is_header(self, line: str) -> bool:
        """Check whether a line is the header, which some loggers repeat."""
        return self.header is not None and _cut(line.lstrip("# "), self.delimiter) == self.header

    def cells(self, line: str) -> list[str]:
        """Split a line into cells; none for an empty line, a comment or a repeated header."""
        if line.lstrip().startswith("#") or self.is_header(line):
            return []
        cells = _cut(line, self.delimiter)
        return cells if any(cells) else []

    def time_of(self, cells: Sequence[str]) -> str:
        """Return the text of the time; empty if the row is too short."""
        is_short = len(cells) <= max(self.time)
        return "" if is_short else " ".join(cells[index] for index in self.time)

    def value_of(self, cells: Sequence[str]) -> float:
        """Return the figure (W or J); NaN if there is none or the power is not above 0."""
        text = cells[self.value] if len(cells) > self.value else ""
        if self.delimiter != ",":
            text = text.replace(",", ".")
        try:
            value = float(text) * self.unit.factor
        except ValueError:
            try:
                value = units.parse_quantity(text, self.unit.si)
            except MeasurementError:
                return math.nan
        is_usable = value > 0 if self.quantity == "power" else value >= 0
        return value if is_usable and math.isfinite(value) else math.nan


def find_layout(lines: Sequence[str], wanted: ColumnOptions, source: str) -> LogLayout:
    """Find the header among the first lines of a log, and the columns in it.

    ``source`` names the log in messages. Raises `SensorError` if a column is missing or ambiguous,
    or its unit unknown.
    """
    try:
        return _find_layout(lines, wanted, _wanted_quantity(wanted))
    except SensorError as error:
        raise SensorError(f"{source}: {error}") from None


def _wanted_quantity(wanted: ColumnOptions) -> str | None:
    if wanted.unit not in (None, *UNIT_NAMES):
        raise SensorError(f"unit={wanted.unit}: write one of {', '.join(UNIT_NAMES)}")
    if wanted.quantity not in (None, *_QUANTITIES.values()):
        raise SensorError(f"quantity={wanted.quantity}: write power or energy")
    if wanted.unit is None:
        return wanted.quantity
    quantity = _QUANTITIES[units.UNITS[wanted.unit.lower()].si]
    if wanted.quantity not in (None, quantity):
        raise SensorError(
            f"quantity={wanted.quantity} is not what unit={wanted.unit} measures: drop one of the "
            "two"
        )
    return quantity


def _find_layout(lines: Sequence[str], wanted: ColumnOptions, quantity: str | None) -> LogLayout:
    rows = [
        (delimiter, cells)
        for line in lines[:MOST_LINES_BEFORE]
        for delimiter in DELIMITERS
        if len(cells := _cut(line.lstrip("# "), delimiter)) > 1
    ]
    if not rows:
        raise SensorError(
            "no line has two columns: start the logger first, and let it write CSV with a header"
        )
    # The header is the first line with all that is wanted, else the one with the most columns.
    rows.sort(key=lambda row: -len(row[1]))
    refusals = []
    for delimiter, cells in rows:
        try:
            return _layout(delimiter, cells, wanted, quantity)
        except SensorError as error:
            refusals.append(error)
    raise refusals[0]


def _layout(
    delimiter: str, cells: Sequence[str], wanted: ColumnOptions, quantity: str | None
) -> LogLayout:
    time = _time_columns(cells, wanted.time)
    if wanted.value is not None:
        value = _column(cells, wanted.value, "value")
    else:
        others = ((index, cell) for index, cell in enumerate(cells) if index not in time)
        found = [n for n, cell in others if (q := _quantity_of(cell)) and quantity in (None, q)]
        value = _only(cells, found, quantity or "power or energy", "value")
    header = None if _is_number(cells[value]) else cells
    unit = units.UNITS[wanted.unit.lower()] if wanted.unit else _unit_of(cells[value])
    if unit is None:
        raise SensorError(
            f"column {cells[value]!r} names no unit: write unit=W, or another of "
            f"{', '.join(UNIT_NAMES)}"
        )
    layout = LogLayout(delimiter, header, time, value, unit)
    if wanted.quantity not in (None, layout.quantity):
        raise SensorError(
            f"column {cells[value]!r} is of {layout.quantity}: choose another with "
            f"value=COLUMN, or drop quantity={wanted.quantity}"
        )
    return layout


def _time_columns(cells: Sequence[str], wanted: str | None) -> tuple[int, ...]:
    if wanted is not None:
        names = [wanted] if wanted in cells else wanted.split("+")
        return tuple(_column(cells, name, "time") for name in names)
    plain = [_plain(units.split_unit(cell)[0]) for cell in cells]
    found = [index for index, name in enumerate(plain) if name in _TIMES]
    dates = [index for index, name in enumerate(plain) if name == "date"]
    if len(dates) == 1 and len(found) <= 1:
        return (*dates, *found)
    return (_only(cells, found, "the time", "time"),)


def _only(cells: Sequence[str], found: Sequence[int], what: str, option: str) -> int:
    if len(found) == 1:
        return found[0]
    names = list_names([cells[index] for index in found] or cells)
    raise SensorError(
        f"{'several columns' if found else 'no column'} can be {what}, by name: choose with "
        f"{option}=COLUMN among {names}"
    )


def _column(cells: Sequence[str], name: str, option: str) -> int:
    """Find a column by its name, in any case, or by its number from 1."""
    for fits in (str, str.lower):
        found = [index for index, cell in enumerate(cells) if fits(cell) == fits(name.strip())]
        if len(found) == 1:
            return found[0]
        if found:
            raise SensorError(
                f"{len(found)} columns are called {name!r}: give the number of one: "
                f"{option}={found[0] + 1}"
            )
    if name.isascii() and name.isdigit() and 1 <= int(name) <= len(cells):
        return int(name) - 1
    raise SensorError(
        f"{option}={name}: no such column{nearest(name, cells)}; "
        f"the columns are {list_names(cells)}"
    )


def _quantity_of(name: str) -> Quantity | None:
    unit = _unit_of(name)
    return _QUANTITIES[unit.si] if unit else _OPEN_WORDS.get(_plain(name))


def _unit_of(name: str) -> units.Unit | None:
    unit = units.split_unit(name)[1]
    if unit and unit.si in _QUANTITIES:
        return unit
    word = _plain(name)
    return units.named_unit(word) if word in _UNIT_WORDS else None


def _plain(name: str) -> str:
    """Reduce a name to letters and digits, without brackets and without a time zone."""
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


# From here on, seconds, milliseconds, ... since 1970 differ by their size.
EARLIEST_S = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
LATEST_S = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
SCALES = (1.0, 1e-3, 1e-6, 1e-9)

_CLOCK_TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d*)?)? ?(Z|[AP]M|[+-]\d{2}:?\d{2})?", re.I)
_DATE_WITH_SLASHES = re.compile(r"^(\d{4})/(\d{2})/(\d{2})")
_UNIVERSAL = re.compile(r" ?(UTC|GMT)$")
_SPACED_ZONE = re.compile(r" (?=[+-]\d{2}:?\d{2}$)")


class BadTimeError(ValueError):
    """A text is no time; the message tells the remedy."""


class TimeReader:
    """Read the times of one log, whose first number settles the unit of all.

    ``offset_s`` is added to a time (s) before it is judged, but not to the result, so that a log
    can count from its own start. ``universal`` takes times without a zone for UTC, else for local
    time, and then sets `local`.
    """

    def __init__(self, offset_s: float = 0.0, universal: bool = False) -> None:
        self.local = False
        self._universal = universal
        self._offset_s = offset_s
        self._scales: tuple[float, ...] = SCALES

    def read(self, text: str) -> float:
        """Parse a time as seconds since 1970 by the log's clock; raise `BadTimeError`."""
        text = text.strip()
        try:
            number = float(text)
        except ValueError:
            return self._date(text)
        for scale in self._scales:
            if EARLIEST_S <= number * scale + self._offset_s < LATEST_S:
                self._scales = (scale,)
                return number * scale
        raise BadTimeError(
            f"{text!r} is no time since 1970 in s, ms, µs or ns: let the logger write that or ISO "
            f"8601, or give offset=SECONDS of the log's start since 1970 if it counts from there"
        )

    def _date(self, text: str) -> float:
        if _CLOCK_TIME.fullmatch(text):
            raise BadTimeError(
                f"{text!r} has no date: name the column of the date too (time=Date+Time), "
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
                f"{text!r} is no time: let the logger write ISO 8601 "
                f"(2026-03-01T12:00:00+01:00) or seconds since 1970"
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
