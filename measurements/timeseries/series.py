"""The columns of a time series, the marks of its rows, the table that holds both, and its files.

One row is one interval of the whole host. The column of a device has its name in brackets:
``disk_read_bytes[sda]``. What was not recorded is absent or NaN, never 0. Files are CSV, Parquet or
JSON lines, which can be written as the rows are recorded.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast

from measurements.errors import MeasurementError, require_pyarrow
from measurements.host import files
from measurements.table import headers, memory_budget, writing

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["fact", "amount", "level", "share", "text"]

SECTOR_BYTES = 512
# Line rates are in Mbit/s.
MEGABIT_BYTES = 1e6 / 8
# No counter of a host grows by more in a second; a broken one may show 2**64.
LARGEST = 1e18


class TimeColumn(NamedTuple):
    """One column of a time series."""

    unit: str
    kind: Kind  # fact: of the host; amount, share: of the interval; level: at its end or over it
    meaning: str
    capacity: str = ""  # column that limits this one (an amount per second)
    per_device: str = ""  # what the names in brackets are: "disk" or "interface"


# Name, unit, kind and meaning, and the column that limits it. Those of CPU time down to `iowait_s`
# add up to the capacity; the three behind them repeat parts of it.
_COLUMNS = """
time_s | s | fact | end of the interval of the row, in seconds since 1970-01-01 UTC
interval_s | s | fact | length of the interval of the row
host | | text | name of the host
cpus | 1 | fact | logical CPUs of the host
hz | 1/s | fact | clock ticks per second, if CPU time was counted in ticks
cpu_accounting | | text | how CPU time of tasks was counted: by `tick` or by the `scheduler`
user_s | s | amount | CPU time of programs in user mode, with the time of guests | cpus
nice_s | s | amount | CPU time of programs in user mode at low priority | cpus
system_s | s | amount | CPU time of the kernel | cpus
irq_s | s | amount | CPU time of interrupts | cpus
softirq_s | s | amount | CPU time of soft interrupts | cpus
steal_s | s | amount | CPU time that the hypervisor took | cpus
idle_s | s | amount | idle CPU time, without `iowait_s` | cpus
iowait_s | s | amount | idle CPU time while an I/O was outstanding | cpus
guest_s | s | amount | CPU time of virtual guests, which is a part of `user_s` | cpus
scheduled_s | s | amount | CPU time of tasks (user, nice and system), counted by the scheduler \
| cpus
tick_busy_s | s | amount | CPU time of tasks, counted by ticks, for comparison | cpus
command_cpu_s | s | fact | CPU time of the recorded command and its children, in the row of its end
cpu_waiting_s | s | amount | time in which a task waited for a CPU (pressure stall, some)
io_waiting_s | s | amount | time in which a task waited for I/O (pressure stall, some)
io_stalled_s | s | amount | time in which all tasks waited for I/O (pressure stall, full)
memory_waiting_s | s | amount | time in which a task waited for memory (pressure stall, some)
memory_stalled_s | s | amount | time in which all tasks waited for memory (pressure stall, full)
context_switches | 1 | amount | context switches
run_queue | 1 | level | tasks that run or are ready to run
blocked | 1 | level | tasks that wait for I/O
memory_total_bytes | B | level | total memory of the host
memory_free_bytes | B | level | unused memory | memory_total_bytes
memory_available_bytes | B | level | memory that programs can get without swapping \
| memory_total_bytes
memory_cached_bytes | B | level | page cache | memory_total_bytes
memory_buffers_bytes | B | level | memory of block-device buffers | memory_total_bytes
memory_inactive_bytes | B | level | memory not used recently | memory_total_bytes
memory_read_bytes | B | amount | bytes that the memory controllers read
memory_written_bytes | B | amount | bytes that the memory controllers wrote
swap_used_bytes | B | level | swap space in use
swap_in_bytes | B | amount | bytes swapped in from disk
swap_out_bytes | B | amount | bytes swapped out to disk
major_faults | 1 | amount | page faults that needed I/O
sectors_read | 512 B | amount | sectors read from all physical disks
sectors_written | 512 B | amount | sectors written to all physical disks
ios | 1 | amount | I/Os of all physical disks
ios_read | 1 | amount | read I/Os of all physical disks
ios_written | 1 | amount | write I/Os of all physical disks
disk_read_bytes | B | amount | bytes read from the disk
disk_written_bytes | B | amount | bytes written to the disk
disk_ios | 1 | amount | I/Os of the disk
disk_ios_read | 1 | amount | read I/Os of the disk
disk_ios_written | 1 | amount | write I/Os of the disk
disk_busy_share | 1 | share | share of the interval in which the disk had an I/O in progress
disk_queue | 1 | level | mean number of I/Os in progress on the disk
disk_wait_s | s | level | mean time from request to end of an I/O
network_rx_bytes | B | amount | bytes received | network_speed_bytes_s
network_tx_bytes | B | amount | bytes sent | network_speed_bytes_s
network_rx_packets | 1 | amount | packets received
network_tx_packets | 1 | amount | packets sent
network_rx_drops | 1 | amount | packets dropped on receipt
network_tx_drops | 1 | amount | packets dropped on sending
network_errors | 1 | amount | packets with errors, received and sent
network_speed_bytes_s | B/s | fact | line rate in each direction
marks | | text | marks of an unusual row (list below), separated by `; `
"""


def _column_of(line: str) -> tuple[str, TimeColumn]:
    name, unit, kind, meaning, *capacity = (part.strip() for part in line.split("|"))
    device = {"disk": "disk", "network": "interface"}.get(name.partition("_")[0], "")
    if device == "interface" and kind == "amount":
        meaning += ": all physical interfaces together, and each interface by its name"
    return name, TimeColumn(unit, cast("Kind", kind), meaning, "".join(capacity), device)


COLUMNS: dict[str, TimeColumn] = dict(map(_column_of, _COLUMNS.strip().splitlines()))

CPU_COLUMNS = tuple(name for name, column in COLUMNS.items() if column.capacity == "cpus")[:8]
# Ticks and the scheduler both count this time of tasks; the rest belongs to no task.
TASK_COLUMNS = ("user_s", "nice_s", "system_s")
NETWORK_COLUMNS = tuple(
    name
    for name, column in COLUMNS.items()
    if name.startswith("network_") and column.kind == "amount"
)
# Pressure Stall Information: "some" and "full" of the kernel.
PRESSURES = tuple(name for name in COLUMNS if name.endswith(("_waiting_s", "_stalled_s")))

# Columns that every series has, whichever the caller selects.
KEYS = ("time_s", "interval_s", "host", "cpus", "marks")

# Columns of the host as sums over its disks: the disk's column, and the factor to the total.
DISK_TOTALS = {
    "sectors_read": ("disk_read_bytes", 1 / SECTOR_BYTES),
    "sectors_written": ("disk_written_bytes", 1 / SECTOR_BYTES),
    "ios": ("disk_ios", 1.0),
    "ios_read": ("disk_ios_read", 1.0),
    "ios_written": ("disk_ios_written", 1.0),
}

MARKS = {
    "gap": "the interval of the row is more than 1.5 times as long as the usual interval",
    "restart": "the row is the first after a restart of the host or the recording",
    "clock back": "the clock went back; amounts are missing unless the log has interval lengths",
    "time repeats": "the row has the same time as the row before, so its amounts are missing",
    "over capacity": "a value of the row is above the capacity of the host",
    "counter back": "a counter of the kernel went back, so the amount of this counter is missing",
    "negative": "the log has a value below 0, which was left out",
    "not a number": "a field that is no number, or not possible for a counter, was left out",
    "device new": "a disk or network interface appeared",
    "device gone": "a disk or network interface disappeared",
    "container": "the recording was made in a container that sees the counters of its host",
}

# Caveats that the readers of several formats share.
CPUS_UNKNOWN = (
    "CPU time is left out, as the log does not say how many CPUs its shares are of: give their "
    "number (--cpus)"
)
CPUS_TAKEN = "the log does not say how many CPUs its shares are of"
LOCAL_TIMES = "times are read as UTC, as the log does not say its time zone: give it (--timezone)"


def split_device(column: str) -> tuple[str, str]:
    """Split a column's name into the name in `COLUMNS` and the device, or "".

    >>> split_device("disk_read_bytes[sda]")
    ('disk_read_bytes', 'sda')
    """
    base, bracket, device = column.partition("[")
    return base, device.removesuffix("]") if bracket else ""


def of_device(column: str, device: str) -> str:
    """Name the column of one device.

    >>> of_device("disk_read_bytes", "sda")
    'disk_read_bytes[sda]'
    """
    return f"{column}[{device}]"


def is_column(name: str) -> bool:
    """Check whether a series may have a column of this name.

    >>> is_column("disk_read_bytes[sda]"), is_column("user_s[sda]"), is_column("disk_read_bytes")
    (True, False, False)
    """
    base, device = split_device(name)
    if base not in COLUMNS or name != (of_device(base, device) if device else base):
        return False
    return base in NETWORK_COLUMNS or bool(device) == bool(COLUMNS[base].per_device)


def unknown_column(name: str) -> MeasurementError:
    """Make the error for a name that no column has."""
    return MeasurementError(
        f"no column of a time series is called {name!r}{headers.nearest(name, list(COLUMNS))}"
    )


# Ticks that show less of the scheduler's time than this miss a part that matters.
_LEAST_SEEN = 0.95


class Finding(NamedTuple):
    """Something about a series that its reader should know.

    Attributes
    ----------
    mark : str
        Mark of the rows concerned, of `MARKS`; "" for a finding about the whole log.
    rows : int
        Number of rows concerned.
    text : str
    """

    mark: str
    rows: int
    text: str


def cpus_taken(cpus: float | None) -> str:
    """Say that shares were taken to be of as many CPUs as the caller named."""
    return f"{CPUS_TAKEN}: ppw takes the {cpus:g} CPUs that were given (--cpus)"


def reading_caveats(skipped: int, cut: bool) -> list[str]:
    """Say that lines could not be read, and that a log breaks off."""
    texts = [f"{skipped} lines are no rows of the log and are left out"] if skipped else []
    if cut:
        texts.append("the log breaks off, and its unfinished last row is left out")
    return texts


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """A host over time, one row an interval.

    Attributes
    ----------
    frame : pandas.DataFrame
        Sorted by ``time_s``; columns of `measurements.timeseries.series`.
    format : str
        Format of the source.
    source : str
        Name of the file, or of the host that was sampled.
    findings : tuple of Finding
        What was marked, left out or not known.
    """

    frame: pd.DataFrame
    format: str
    source: str
    findings: tuple[Finding, ...] = ()

    @property
    def seconds(self) -> float:
        """Time that the intervals cover (s)."""
        return float(self.frame["interval_s"].sum())

    def between(self, start_s: float, end_s: float) -> TimeSeries:
        """Keep the intervals that lie wholly within a window (s since 1970 UTC)."""
        ends = self.frame["time_s"]
        # A log's time stamps are rounded, usually to whole seconds.
        kept = (ends - self.frame["interval_s"] >= start_s - 1e-3) & (ends <= end_s + 1e-3)
        return replace(self, frame=self.frame[kept].reset_index(drop=True))

    def devices(self, column: str) -> dict[str, str]:
        """Map each device to the name of its column, for a column of devices."""
        if column not in COLUMNS:
            raise unknown_column(column)
        parts = ((name, *split_device(name)) for name in self.frame.columns)
        return {device: name for name, base, device in parts if base == column and device}

    def tick_shortfall(self) -> float | None:
        """Share of the scheduler's CPU time that ticks missed; None where either was not kept."""
        if not {"scheduled_s", "tick_busy_s"} <= set(self.frame.columns):
            return None
        both = self.frame[["scheduled_s", "tick_busy_s"]].dropna()
        ran = float(both["scheduled_s"].sum())
        return 1.0 - float(both["tick_busy_s"].sum()) / ran if ran > 0 else None

    def summary(self) -> str:
        """Summarize the series and its findings in a few lines."""
        frame = self.frame
        lines = [f"{self.source}: {self.format}, {len(frame)} intervals, {self.seconds:.6g} s"]
        tasks = [name for name in TASK_COLUMNS if name in frame]
        if tasks and self.seconds > 0:
            busy_s = float(frame[tasks].sum().sum())
            by = set(frame["cpu_accounting"]) if "cpu_accounting" in frame else {"tick"}
            lines.append(f"{busy_s:.6g} CPU seconds of tasks, by {', '.join(sorted(by))}")
        shortfall = self.tick_shortfall()
        if shortfall is not None:
            missed = 1 - shortfall < _LEAST_SEEN
            note = ": ticks miss too much, use the scheduler's" if missed else ""
            lines.append(f"ticks show {1 - shortfall:.1%} of the scheduler's CPU time{note}")
        for finding in self.findings:
            rows = f" ({finding.rows} rows)" if finding.rows > 1 else ""
            lines.append(f"{finding.text}{rows}")
        return "\n".join(lines)


# What a file of ppw itself begins with.
OWN_FORMAT = "ppw"
_PARQUET = b"PAR1"
CSV_START = b"time_s,interval_s,"
_LINES = b'{"time_s":'
_ENDINGS = (".csv", ".parquet", ".jsonl")


def is_own(head: bytes) -> bool:
    """Check whether a file that begins so was written by ppw."""
    return head.startswith((_PARQUET, CSV_START, _LINES))


def series_of(rows: Sequence[Mapping[str, Any]], source: str, caveats: Iterable[str]) -> TimeSeries:
    """Make a series of sampled rows; refuse none."""
    if not rows:
        raise MeasurementError(f"{source}: ended before the first interval")
    frame = convert_types(list(rows))
    findings = [*(Finding("", 0, text) for text in caveats), *mark_findings(frame)]
    return TimeSeries(frame, "live", source, tuple(findings))


def write_time_series(series: TimeSeries, path: str | Path) -> None:
    """Write a series to .csv, .parquet or .jsonl, whole or not at all.

    Raises
    ------
    MeasurementError
        For another ending, or a file that cannot be written.
    """
    target = _check_ending(path)
    # A reader never sees half a file.
    with writing.replace_whole(target) as scratch:
        if target.suffix == ".parquet":
            require_pyarrow()
            series.frame.to_parquet(scratch, index=False)
        elif target.suffix == ".csv":
            series.frame.to_csv(scratch, index=False)
        else:
            series.frame.to_json(scratch, orient="records", lines=True)


class Writer:
    """Writes a series row by row; whatever ends it, the rows so far can be read.

    The file is .csv, .parquet or .jsonl, or ``-`` for CSV on standard output. CSV has the columns
    of its first row: what appears later is in its totals only. Parquet cannot be read before it is
    whole, so its rows are JSON lines beside it, ``FILE.part.jsonl``, until the writer is closed. An
    old file stays as it is until there is a row.
    """

    def __init__(self, path: str | Path) -> None:
        self._columns: list[str] = []
        self._begun = False
        self._target = None if str(path) == "-" else _check_ending(path)
        # Rows of Parquet go to another file first.
        self._part: Path | None = None
        self._file: IO[str] = sys.stdout
        if self._target is None:
            return
        rows = self._target
        if rows.suffix == ".parquet":
            rows = self._part = rows.with_name(f"{rows.name}.part.jsonl")
        try:
            # A link that this user made stays one: what it points to is written.
            if rows.is_symlink() and rows.lstat().st_uid in (0, os.geteuid()):
                rows = rows.resolve()
            self._file = files.open_for_writing(rows, "a", pipe=True, encoding="utf-8", newline="")
        except OSError as error:
            raise _not_written_error(rows, error) from error
        self._path = rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, row: Mapping[str, Any]) -> None:
        """Write one row through to the file; raise `MeasurementError` where it has no room."""
        try:
            if not self._begun and self._target is not None and self._file.seekable():
                self._file.truncate(0)
            self._begun = True
            if self._target is None or self._target.suffix == ".csv":
                writer = csv.writer(self._file, lineterminator="\n")
                if not self._columns:
                    self._columns = list(row)
                    writer.writerow(self._columns)
                writer.writerow([row.get(column, "") for column in self._columns])
            else:
                self._file.write(json.dumps(dict(row), allow_nan=False) + "\n")
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _not_written_error(self._target or "standard output", error) from error

    def close(self) -> None:
        """Finish the file."""
        if self._target is None or self._file.closed:
            return
        try:
            self._file.close()
        except OSError as error:
            # What could not be written is tried once more.
            raise _not_written_error(self._target, error) from error
        if not self._begun and self._path.is_file() and not self._path.stat().st_size:
            self._path.unlink()
        elif self._begun and self._part is not None:
            frame, _ = parse_frame(self._part.read_bytes())
            try:
                write_time_series(TimeSeries(frame, OWN_FORMAT, str(self._part)), self._target)
            except MeasurementError as error:
                raise MeasurementError(f"{error}: its rows are in {self._part}") from error
            self._part.unlink()


def _check_ending(path: str | Path) -> Path:
    target = Path(path)
    if target.suffix not in _ENDINGS:
        raise MeasurementError(
            f"{path}: a time series is written to a file that ends in {', '.join(_ENDINGS)}"
        )
    return target


def _not_written_error(path: str | Path, error: OSError) -> MeasurementError:
    return MeasurementError(f"{path}: cannot be written: {error.strerror or error}")


def parse_frame(data: bytes) -> tuple[pd.DataFrame, bool]:
    """Read bytes as a frame, and whether its last line was cut off."""
    import pandas as pd

    if data.startswith(_PARQUET):
        require_pyarrow()
        memory_budget.check_parquet(data, "it")
        return pd.read_parquet(io.BytesIO(data)), False
    whole = data[: data.rfind(b"\n") + 1]
    cut = len(whole) < len(data)
    if data.startswith(CSV_START):
        # pandas would rename equal names, which takes the square of their number.
        names = next(csv.reader([whole[: whole.find(b"\n")].decode()]))
        if repeated := [name for name, count in Counter(names).items() if count > 1 and name]:
            raise ValueError(f"the header names {repeated[0]!r:.40} more than once")
        return pd.read_csv(io.BytesIO(whole), keep_default_na=False, na_values=[""]), cut
    rows = [json.loads(line) for line in whole.splitlines() if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a line is no object")
    memory_budget.check_table(len(rows), len(set().union(*rows)), len(data), "it")
    return pd.DataFrame(rows), cut


def convert_types(table: pd.DataFrame | list[Mapping[str, Any]]) -> pd.DataFrame:
    """Make numbers float64, and texts text; "" where there is no mark."""
    import pandas as pd

    frame = pd.DataFrame(table)
    if frame.empty or not {"time_s", "interval_s"} <= set(frame.columns):
        raise ValueError("holds no interval")
    columns: dict[str, Any] = {}
    for column in frame.columns:
        if COLUMNS[split_device(column)[0]].kind == "text":
            texts = frame[column].astype(object)
            columns[column] = texts.where(texts.notna(), "").astype("str")
        else:
            numbers = pd.to_numeric(frame[column], errors="coerce").astype("float64")
            columns[column] = numbers.where(numbers.abs() <= LARGEST)
    typed = pd.DataFrame(columns)
    # Neither are what a clock or a sampler gives: they would overflow where rates are made.
    typed["time_s"] = typed["time_s"].where(typed["time_s"].abs() < 1e12)
    if typed["time_s"].isna().any():
        raise ValueError(f"row {int(typed['time_s'].isna().argmax()) + 1} has no time")
    typed["interval_s"] = typed["interval_s"].where(typed["interval_s"] > 1e-9)
    return typed


def mark_findings(frame: pd.DataFrame) -> list[Finding]:
    """Make a finding of each mark in the rows of a series."""
    if "marks" not in frame:
        return []
    counts = frame["marks"].str.split("; ").explode().value_counts()
    marks = [(mark, text) for mark, text in MARKS.items() if mark in counts]
    return [Finding(mark, int(counts[mark]), f"{mark}: {text}") for mark, text in marks]
