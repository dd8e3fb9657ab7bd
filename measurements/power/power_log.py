"""A CSV log of power or energy that another program writes, followed as it grows.

Times of the log become `time.monotonic` by the difference of this host's two clocks at the moment
of opening. The log of another host needs ``offset``; with ``auto``, `measurements.sweep.session`
estimates it from the runs that the log shows.
"""

from __future__ import annotations

import csv
import math
import os
import re
import stat
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

from measurements.errors import MeasurementError, on_error
from measurements.power import source
from measurements.power.source import Channel, Reading, SensorError
from measurements.table import headers, units

OPTIONS = ("domain", "name", "offset", "past", "quantity", "time", "unit", "value")

# Value of the option for an offset estimated from runs.
AUTO = "auto"
# End of the log that is read to learn how often rows come (bytes).
RECENT_BYTES = 1 << 16
BLOCK_BYTES, HEAD_BYTES, MOST_LINE_BYTES = 1 << 20, 1 << 16, 1 << 16
# Enough of the last bytes read to notice that the file was rewritten.
MARK_BYTES = 64
# More consecutive rows without a time are no accident.
MOST_BAD_ROWS = 3
# A counter may be reset now and then; energy per row falls half the time.
MOST_FALLS = 0.1


def open_source(where: str | None, settings: source.SourceSettings) -> PowerLog:
    """Open the log in the file ``where``.

    Options: ``time`` and ``value`` (columns by name, or by number from 1; ``Date+Time`` joins two),
    ``unit`` (W, mW, kW, J, kJ, Wh or kWh), ``quantity`` (``power``, or ``energy`` of a counter that
    only grows), ``offset`` (seconds added to the log's times, or ``auto``: by the runs that it
    shows), ``past`` (``yes`` gives the rows from before the opening, too), ``domain`` (what the log
    covers, such as ``wall``), ``name`` (for the label instead of the file's).
    """
    options = _check_log_options(settings.options)
    if not where:
        raise SensorError("log needs a file: log@FILE")
    tail = Tail(Path(where).expanduser())
    with on_error(tail.close):
        return PowerLog(where, tail, options)


class _Row(NamedTuple):
    source_at_s: float
    value: float


class PowerLog:
    """Read the new rows of one log, each with its own time, as means since the row before."""

    def __init__(self, where: str, tail: Tail, options: Mapping[str, str]) -> None:
        self._where, self._tail = where, tail
        names = ("time", "value", "unit", "quantity")
        self._wanted = ColumnOptions(*(options.get(name) for name in names))
        self._estimated = options.get("offset") == AUTO
        self._offset_s = 0.0 if self._estimated else float(options.get("offset", "0"))
        self._wall_minus_monotonic_s = time.time() - time.monotonic()
        self._held, self._bad_rows = list[str](), 0
        head = tail.head()
        self._layout = find_layout(head, self._wanted, where)
        self._times = TimeReader(self._offset_s, self._layout.is_universal)
        if options.get("past") == "yes":
            known = self._parse_rows(FileLines(head, first=True), most_bad=1)
        else:
            tail.skip(but_bytes=RECENT_BYTES)
            known = [row for lines in tail.poll() for row in self._parse_rows(lines, most_bad=1)]
        self._refuse_falling_counter(known)
        # The median time between rows; 0 if unknown.
        steps = (later.source_at_s - row.source_at_s for row, later in pairwise(known))
        self.period_s = statistics.median([step for step in steps if step > 0] or [0.0])
        self.channels: Sequence[Channel] = (self._make_channel(options),)

    def read(self) -> list[Reading]:
        """Return all new rows in the order of the log; NaN for those without a figure."""
        label = self.channels[0].label
        shift_s = self._offset_s - self._wall_minus_monotonic_s
        return [
            Reading(label, row.source_at_s + shift_s, row.value, row.source_at_s)
            for lines in self._tail.poll()
            for row in self._parse_rows(lines)
        ]

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._tail.close()

    def _parse_rows(self, lines: FileLines, most_bad: int = MOST_BAD_ROWS) -> list[_Row]:
        rows = []
        bad = None
        for cells in filter(None, map(self._layout.cells, self._below_header(lines))):
            try:
                source_at_s = self._times.read(self._layout.time_of(cells))
            except BadTimeError as error:
                bad = error
                self._bad_rows += 1
            else:
                self._bad_rows = 0
                rows.append(_Row(source_at_s, self._layout.value_of(cells)))
        if bad and not rows and self._bad_rows >= most_bad:
            self._bad_rows = 0
            raise SensorError(f"{self._where}: {bad}")
        return rows

    def _below_header(self, lines: FileLines) -> list[str]:
        """Drop the lines above the data at the beginning of a file."""
        if not lines.first and not self._held:
            return lines.lines
        texts, self._held = self._held + lines.lines, []
        # A logger whose file was truncated goes on without a header.
        if self._is_data_row(texts[0]):
            return texts
        try:
            layout = find_layout(texts, self._wanted, self._where)
        except SensorError:
            if len(texts) >= MOST_LINES_BEFORE:
                raise
            self._held = texts
            return []
        if layout.quantity != self._layout.quantity:
            raise SensorError(
                f"{self._where}: was started again with {layout.quantity} instead "
                f"of {self._layout.quantity}: choose the column with value=COLUMN"
            )
        if layout != self._layout:
            self._layout = layout
            self._times = TimeReader(self._offset_s, layout.is_universal)
        at = next((n for n, text in enumerate(texts) if layout.is_header(text)), -1)
        return texts[at + 1 :]

    def _is_data_row(self, line: str) -> bool:
        cells = self._layout.cells(line)
        try:
            self._times.read(self._layout.time_of(cells))
        except BadTimeError:
            return False
        return bool(cells)

    def _refuse_falling_counter(self, rows: Sequence[_Row]) -> None:
        if self._layout.quantity != "energy":
            return
        falls = sum(later.value < row.value for row, later in pairwise(rows))
        if falls > max(1, MOST_FALLS * len(rows)):
            raise SensorError(
                f"{self._where}: the energy falls {falls} times in {len(rows)} rows, so it is not "
                "a counter: choose a column with power, or with energy since the start"
            )

    def _make_channel(self, options: Mapping[str, str]) -> Channel:
        quantity = self._layout.quantity
        note = source.join_notes(
            "times without a time zone are taken as local time" if self._times.local else "",
            f"clock offset {self._offset_s:+g} s" if self._offset_s else "",
            "clock offset by the runs" if self._estimated else "",
        )
        return Channel(
            f"log:{options.get('name') or Path(self._where).stem}",
            quantity,
            cast("source.Domain", options.get("domain", "other")),
            window_s=self.period_s if quantity == "power" else 0.0,
            note=note,
            other_clock=self._estimated,
        )


def _check_log_options(options: Mapping[str, str]) -> Mapping[str, str]:
    source.check_options("log", options, OPTIONS, yes_or_no=("past",))
    if options.get("domain", "other") not in get_args(source.Domain):
        raise SensorError(
            f"log: domain={options['domain']}: write one of {', '.join(get_args(source.Domain))}"
        )
    try:
        usable = options.get("offset") == AUTO or math.isfinite(float(options.get("offset", "0")))
    except ValueError:
        usable = False
    if not usable:
        raise SensorError(f"log: offset={options['offset']}: write a number of seconds, or {AUTO}")
    return options


class FileLines(NamedTuple):
    """Whole lines without their ends; ``first`` if they are the beginning of a file."""

    lines: list[str]
    first: bool


class Tail:
    """Follow the whole lines of a file that another program appends to, each given once.

    A last line is held back until its end is written. When another file takes the name, as in log
    rotation, the rest of the old one comes first. A file that is truncated or rewritten in place is
    read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open_regular_file(path)
        self._reset_position()

    def head(self) -> list[str]:
        """Return the whole lines at the beginning, without consuming them."""
        text = os.pread(self._file, HEAD_BYTES, 0)
        if text.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise SensorError(
                f"{self._path}: is UTF-16: let the logger write UTF-8, or convert it with iconv"
            )
        return _decode_lines(text.split(b"\n")[:-1], first=True)

    def skip(self, but_bytes: int) -> None:
        """Skip all whole lines except those in the last ``but_bytes`` bytes."""
        start = os.fstat(self._file).st_size - but_bytes
        if start <= 0:
            return
        # From the byte before, to keep a line that begins exactly here.
        end = os.pread(self._file, MOST_LINE_BYTES, start - 1).find(b"\n")
        if end < 0:
            raise self._too_long_line_error()
        self._position = start + end
        marked = min(MARK_BYTES, self._position)
        self._mark = os.pread(self._file, marked, self._position - marked)
        self._first = False

    def poll(self) -> list[FileLines]:
        """Return the new lines since the last call, one item per file."""
        # A file that was truncated or rewritten has other bytes before the position.
        seen = os.pread(self._file, len(self._mark), self._position - len(self._mark))
        if os.fstat(self._file).st_size < self._position or seen != self._mark:
            self._reset_position()
        found = [self._read_new_lines()]
        if self._was_replaced():
            # Lines that came between the look at the file and the look at its name.
            found.append(self._read_new_lines())
            self.close()
            self._file = _open_regular_file(self._path)
            self._reset_position()
            found.append(self._read_new_lines())
        return [lines for lines in found if lines.lines]

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _reset_position(self) -> None:
        self._position = 0
        self._mark = self._rest = b""
        self._first = True

    def _was_replaced(self) -> bool:
        """Check whether a file with content has taken the name; before, the old one may grow."""
        own = os.fstat(self._file)
        try:
            named = self._path.stat()
        except OSError:
            return False
        return (own.st_dev, own.st_ino) != (named.st_dev, named.st_ino) and named.st_size > 0

    def _read_new_lines(self) -> FileLines:
        lines: list[str] = []
        first = self._first
        while block := os.pread(self._file, BLOCK_BYTES, self._position):
            self._position += len(block)
            self._mark = (self._mark + block)[-MARK_BYTES:]
            *whole, self._rest = (self._rest + block).split(b"\n")
            lines += _decode_lines(whole, self._first)
            self._first &= not whole
            if len(self._rest) > MOST_LINE_BYTES:
                raise self._too_long_line_error()
        return FileLines(lines, first)

    def _too_long_line_error(self) -> SensorError:
        return SensorError(
            f"{self._path}: has a line of more than {MOST_LINE_BYTES >> 10} KiB: is it a CSV file?"
        )


def _open_regular_file(path: Path) -> int:
    try:
        # Without waiting for the other end of a pipe.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SensorError(
            f"{path}: cannot be read: {error.strerror}: start the logger first, and check the "
            f"name and its permissions"
        ) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise SensorError(f"{path}: is no file: name the CSV file that the logger writes")
    return file


def _decode_lines(lines: list[bytes], first: bool) -> list[str]:
    texts = [line.rstrip(b"\r").decode("utf-8", "replace") for line in lines]
    if first and texts:
        texts[0] = texts[0].removeprefix("\ufeff")
    return texts


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
_BRACKETS = re.compile(r"[(\[][^()\[\]]*[)\]]")
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
    header: Sequence[str] | None  # cells of the header; None for a log without one
    time: Sequence[int]  # columns that make the time, joined with a blank
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
        return (
            self.header is not None and _split_csv(line.lstrip("# "), self.delimiter) == self.header
        )

    def cells(self, line: str) -> list[str]:
        """Split a line into cells; none for an empty line, a comment or a repeated header."""
        if line.lstrip().startswith("#") or self.is_header(line):
            return []
        cells = _split_csv(line, self.delimiter)
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
        return _first_layout(lines, wanted, _quantity_by_options(wanted))
    except SensorError as error:
        raise SensorError(f"{source}: {error}") from None


def _quantity_by_options(wanted: ColumnOptions) -> str | None:
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


def _first_layout(lines: Sequence[str], wanted: ColumnOptions, quantity: str | None) -> LogLayout:
    rows = [
        (delimiter, cells)
        for line in lines[:MOST_LINES_BEFORE]
        for delimiter in DELIMITERS
        if len(cells := _split_csv(line.lstrip("# "), delimiter)) > 1
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
            return _make_layout(delimiter, cells, wanted, quantity)
        except SensorError as error:
            refusals.append(error)
    raise refusals[0]


def _make_layout(
    delimiter: str, cells: Sequence[str], wanted: ColumnOptions, quantity: str | None
) -> LogLayout:
    """Make the layout of a log whose header has these cells."""
    time = _find_time_columns(cells, wanted.time)
    if wanted.value is not None:
        value = _find_column(cells, wanted.value, "value")
    else:
        others = ((index, cell) for index, cell in enumerate(cells) if index not in time)
        found = [n for n, cell in others if (q := _quantity_in(cell)) and quantity in (None, q)]
        value = _only_column(cells, found, quantity or "power or energy", "value")
    header = None if _is_number(cells[value]) else cells
    unit = units.UNITS[wanted.unit.lower()] if wanted.unit else _unit_in_header(cells[value])
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


def _find_time_columns(cells: Sequence[str], wanted: str | None) -> tuple[int, ...]:
    if wanted is not None:
        names = [wanted] if wanted in cells else wanted.split("+")
        return tuple(_find_column(cells, name, "time") for name in names)
    plain = [_plain_letters(units.split_unit(cell)[0]) for cell in cells]
    found = [index for index, name in enumerate(plain) if name in _TIMES]
    dates = [index for index, name in enumerate(plain) if name == "date"]
    if len(dates) == 1 and len(found) <= 1:
        return (*dates, *found)
    return (_only_column(cells, found, "the time", "time"),)


def _only_column(cells: Sequence[str], found: Sequence[int], what: str, option: str) -> int:
    """Return the only column found; raise `SensorError` for none or several."""
    if len(found) == 1:
        return found[0]
    names = headers.list_names([cells[index] for index in found] or cells)
    raise SensorError(
        f"{'several columns' if found else 'no column'} can be {what}, by name: choose with "
        f"{option}=COLUMN among {names}"
    )


def _find_column(cells: Sequence[str], name: str, option: str) -> int:
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
        f"{option}={name}: no such column{headers.nearest(name, cells)}; "
        f"the columns are {headers.list_names(cells)}"
    )


def _quantity_in(name: str) -> Quantity | None:
    unit = _unit_in_header(name)
    return _QUANTITIES[unit.si] if unit else _OPEN_WORDS.get(_plain_letters(name))


def _unit_in_header(name: str) -> units.Unit | None:
    unit = units.split_unit(name)[1]
    if unit and unit.si in _QUANTITIES:
        return unit
    word = _plain_letters(name)
    return units.named_unit(word) if word in _UNIT_WORDS else None


def _plain_letters(name: str) -> str:
    """Reduce a name to letters and digits, without brackets and without a time zone."""
    bare = _ZONE.sub("", _BRACKETS.sub("", name.replace("_", " ")))
    return "".join(c for c in bare.lower() if c.isalnum())


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _split_csv(line: str, delimiter: str) -> list[str]:
    """Split a line of CSV into cells without blanks around them."""
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
            return self._parse_date(text)
        for scale in self._scales:
            if EARLIEST_S <= number * scale + self._offset_s < LATEST_S:
                self._scales = (scale,)
                return number * scale
        raise BadTimeError(
            f"{text!r} is no time since 1970 in s, ms, µs or ns: let the logger write that or ISO "
            f"8601, or give offset=SECONDS of the log's start since 1970 if it counts from there"
        )

    def _parse_date(self, text: str) -> float:
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
        with suppress(ValueError):
            # A date alone is no time.
            date.fromisoformat(iso)
            moment = None
        if moment is None:
            raise BadTimeError(
                f"{text!r} is no time: let the logger write ISO 8601 "
                f"(2026-03-01T12:00:00+01:00) or seconds since 1970"
            )
        if moment.tzinfo is None and self._universal:
            moment = moment.replace(tzinfo=UTC)
        self.local |= moment.tzinfo is None
        return moment.timestamp()
