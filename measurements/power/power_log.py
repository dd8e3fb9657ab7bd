"""A CSV log of watts or joules that another program writes, followed as it grows.

Times of the log are brought to `time.monotonic` by the difference of this host's two clocks at the
moment of opening. The log of another host needs ``offset``, which with ``auto``
`measurements.sweep.rows` estimates from the runs that are seen in the log.
"""

from __future__ import annotations

import math
import os
import stat
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast, get_args

from measurements.power.log_format import (
    MOST_LINES_BEFORE,
    BadTimeError,
    TimeReader,
    Wanted,
    find_layout,
)
from measurements.power.source import Channel, Domain, Reading, SensorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from measurements.power.log_format import Layout
    from measurements.power.source import SourceSettings


# Follow a text file that another program appends to, replaces or writes anew.


BLOCK_BYTES = 1 << 20
HEAD_BYTES = 1 << 16
MOST_LINE_BYTES = 1 << 16
# Enough of what was read last to notice that other text stands there now.
MARK_BYTES = 64


class Lines(NamedTuple):
    """Whole lines without their ends; ``first`` where they are the beginning of a file."""

    lines: list[str]
    first: bool


class Tail:
    """Whole lines of a file, each given once.

    A last line is held back until its end is written. When another file takes the name, as log
    rotation does, the rest of the old one comes first. When the file is cut off or written anew in
    place, it is read from its beginning. Nothing else is read twice.

    Raises
    ------
    SensorError
        When there is no such file, or no plain one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _opened(path)
        self._begin()

    def head(self) -> list[str]:
        """Look at the whole lines at the beginning; `poll` gives them all the same."""
        text = os.pread(self._file, HEAD_BYTES, 0)
        if text.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise SensorError(
                f"{self._path}: is UTF-16: let the logger write UTF-8, or convert it with iconv"
            )
        return _decoded(text.split(b"\n")[:-1], first=True)

    def skip(self, but_bytes: int) -> None:
        """Leave out all whole lines but those in the last so many bytes."""
        start = os.fstat(self._file).st_size - but_bytes
        if start <= 0:
            return
        # From the byte before, so that a line that begins exactly here is kept.
        end = os.pread(self._file, MOST_LINE_BYTES, start - 1).find(b"\n")
        if end < 0:
            raise self._no_lines()
        self._position = start + end
        self._mark = os.pread(self._file, MARK_BYTES, max(self._position - MARK_BYTES, 0))
        self._mark = self._mark[: self._position]
        self._first = False

    def poll(self) -> list[Lines]:
        """Take what is new since the last time, one item a file."""
        if self._was_rewritten():
            self._begin()
        found = [self._new_lines()]
        if self._was_replaced():
            # What was written between the look at the file and the look at its name.
            found.append(self._new_lines())
            self.close()
            self._file = _opened(self._path)
            self._begin()
            found.append(self._new_lines())
        return [lines for lines in found if lines.lines]

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self) -> None:
        self._position = 0
        self._mark = self._rest = b""
        self._first = True

    def _was_rewritten(self) -> bool:
        size = os.fstat(self._file).st_size
        at = self._position - len(self._mark)
        return size < self._position or os.pread(self._file, len(self._mark), at) != self._mark

    def _was_replaced(self) -> bool:
        """Whether another file has the name, and says something already.

        Until it does, the logger may still be writing to the old one.
        """
        own = os.fstat(self._file)
        try:
            named = self._path.stat()
        except OSError:
            return False
        return (own.st_dev, own.st_ino) != (named.st_dev, named.st_ino) and named.st_size > 0

    def _new_lines(self) -> Lines:
        lines: list[str] = []
        first = self._first
        while block := os.pread(self._file, BLOCK_BYTES, self._position):
            self._position += len(block)
            self._mark = (self._mark + block)[-MARK_BYTES:]
            *whole, self._rest = (self._rest + block).split(b"\n")
            lines += _decoded(whole, self._first)
            self._first &= not whole
            if len(self._rest) > MOST_LINE_BYTES:
                raise self._no_lines()
        return Lines(lines, first)

    def _no_lines(self) -> SensorError:
        return SensorError(
            f"{self._path}: has a line of more than {MOST_LINE_BYTES >> 10} KiB: is it a CSV file?"
        )


def _opened(path: Path) -> int:
    try:
        # Not to wait for whoever may open the other end of a pipe.
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


def _decoded(lines: list[bytes], first: bool) -> list[str]:
    texts = [line.rstrip(b"\r").decode("utf-8", "replace") for line in lines]
    if first and texts:
        texts[0] = texts[0].removeprefix("\ufeff")
    return texts


OPTIONS = ("domain", "name", "offset", "past", "quantity", "time", "unit", "value")

# Offset that is estimated from runs.
AUTO = "auto"
# What is looked at to learn how often rows come.
RECENT_BYTES = 1 << 16
# So many rows in a row without a time are no accident.
MOST_BAD_ROWS = 3
# A counter may be set back now and then; energy per row falls half the time.
MOST_FALLS = 0.1


def open_source(where: str | None, settings: SourceSettings) -> PowerLog:
    """Open a log.

    Parameters
    ----------
    where : str
        The file.
    settings : SourceSettings
        Options: ``time`` and ``value`` (columns by name, or by number from 1; ``Date+Time`` joins
        two), ``unit`` (W, mW, kW, J, kJ, Wh or kWh), ``quantity`` (``power`` or ``energy``, a
        counter that only grows), ``offset`` (seconds added to the log's times, or ``auto``: by
        the runs that it shows), ``past`` (``yes`` gives the rows from before the opening too),
        ``domain`` (what the log covers, such as ``wall``), ``name`` (for the label instead of the
        file's).

    Raises
    ------
    SensorError
        When there is no such file or columns, or their times cannot be read.
    """
    options = _checked(settings.options)
    if not where:
        raise SensorError("log needs a file: log@FILE")
    tail = Tail(Path(where).expanduser())
    try:
        return PowerLog(where, tail, options)
    except BaseException:
        tail.close()
        raise


class _Row(NamedTuple):
    source_at_s: float
    value: float


class PowerLog:
    """The rows of one log, each given once.

    `read` returns all rows that are new since the last one, each with its own time. The figure is
    taken for the mean over the time since the row before.
    """

    def __init__(self, where: str, tail: Tail, options: Mapping[str, str]) -> None:
        self._where = where
        self._tail = tail
        self._wanted = Wanted(*(options.get(o) for o in ("time", "value", "unit", "quantity")))
        self._estimated = options.get("offset") == AUTO
        self._offset_s = 0.0 if self._estimated else float(options.get("offset", "0"))
        self._wall_minus_monotonic_s = time.time() - time.monotonic()
        self._held: list[str] = []
        self._bad_rows = 0
        head = tail.head()
        self._layout = find_layout(head, self._wanted, where)
        self._times = TimeReader(self._offset_s, self._layout.is_universal)
        if options.get("past") == "yes":
            known = self._rows(Lines(head, first=True), most_bad=1)
        else:
            tail.skip(but_bytes=RECENT_BYTES)
            known = [row for lines in tail.poll() for row in self._rows(lines, most_bad=1)]
        self._check_counter(known)
        self.period_s = _period_s(known)
        self.channels: Sequence[Channel] = (self._channel(options),)

    def read(self) -> list[Reading]:
        """Give all new rows, in the order of the log; NaN for those without a figure."""
        label = self.channels[0].label
        shift_s = self._offset_s - self._wall_minus_monotonic_s
        return [
            Reading(label, row.source_at_s + shift_s, row.value, row.source_at_s)
            for lines in self._tail.poll()
            for row in self._rows(lines)
        ]

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        self._tail.close()

    def _rows(self, lines: Lines, most_bad: int = MOST_BAD_ROWS) -> list[_Row]:
        rows = []
        bad = None
        for line in self._below_header(lines):
            cells = self._layout.cells(line)
            if not cells:
                continue
            try:
                source_at_s = self._times.read(self._layout.time_of(cells))
            except BadTimeError as error:
                bad = error
                self._bad_rows += 1
                continue
            self._bad_rows = 0
            rows.append(_Row(source_at_s, self._layout.value_of(cells)))
        if bad and not rows and self._bad_rows >= most_bad:
            self._bad_rows = 0
            raise SensorError(f"{self._where}: {bad}")
        return rows

    def _below_header(self, lines: Lines) -> list[str]:
        """Leave out what stands above the data, where a file begins."""
        if not lines.first and not self._held:
            return lines.lines
        texts, self._held = self._held + lines.lines, []
        # A logger whose file was emptied under its hands goes on without a header.
        if self._is_data(texts[0]):
            return texts
        try:
            layout = find_layout(texts, self._wanted, self._where)
        except SensorError:
            if len(texts) >= MOST_LINES_BEFORE:
                raise
            self._held = texts
            return []
        self._take(layout)
        at = next((n for n, text in enumerate(texts) if layout.is_header(text)), -1)
        return texts[at + 1 :]

    def _is_data(self, line: str) -> bool:
        cells = self._layout.cells(line)
        try:
            self._times.read(self._layout.time_of(cells))
        except BadTimeError:
            return False
        return bool(cells)

    def _take(self, layout: Layout) -> None:
        if layout.unit.quantity != self._layout.unit.quantity:
            raise SensorError(
                f"{self._where}: was begun anew with {layout.unit.quantity} instead of "
                f"{self._layout.unit.quantity}: choose the column with value=COLUMN"
            )
        if layout != self._layout:
            self._layout = layout
            self._times = TimeReader(self._offset_s, layout.is_universal)

    def _check_counter(self, rows: Sequence[_Row]) -> None:
        if self._layout.unit.quantity != "energy":
            return
        falls = sum(later.value < row.value for row, later in pairwise(rows))
        if falls > max(1, MOST_FALLS * len(rows)):
            raise SensorError(
                f"{self._where}: the energy falls {falls} times in {len(rows)} rows, so that it is "
                f"no counter: choose a column of power, or of energy since the start"
            )

    def _channel(self, options: Mapping[str, str]) -> Channel:
        quantity = self._layout.unit.quantity
        notes = (
            "times without a zone are taken for local time" if self._times.local else "",
            f"clock offset {self._offset_s:+g} s" if self._offset_s else "",
            "clock offset by the runs" if self._estimated else "",
        )
        return Channel(
            f"log:{options.get('name') or Path(self._where).stem}",
            quantity,
            cast("Domain", options.get("domain", "other")),
            window_s=self.period_s if quantity == "power" else 0.0,
            note="; ".join(note for note in notes if note),
            other_clock=self._estimated,
        )


def _checked(options: Mapping[str, str]) -> Mapping[str, str]:
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise SensorError(f"log has no option {', '.join(unknown)}: it has {', '.join(OPTIONS)}")
    if options.get("past", "no") not in ("yes", "no"):
        raise SensorError(f"log: past={options['past']}: write yes or no")
    if options.get("domain", "other") not in get_args(Domain):
        raise SensorError(
            f"log: domain={options['domain']}: write one of {', '.join(get_args(Domain))}"
        )
    try:
        usable = options.get("offset") == AUTO or math.isfinite(float(options.get("offset", "0")))
    except ValueError:
        usable = False
    if not usable:
        raise SensorError(f"log: offset={options['offset']}: write a number of seconds, or {AUTO}")
    return options


def _period_s(rows: Sequence[_Row]) -> float:
    """Seconds from row to row, the usual ones; 0 where there are none to tell."""
    steps = [later.source_at_s - row.source_at_s for row, later in pairwise(rows)]
    forward = [step for step in steps if step > 0]
    return statistics.median(forward) if forward else 0.0
