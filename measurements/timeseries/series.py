"""What a reader or the sampler hands back: the frame, and all that was found wanting in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from measurements.errors import MeasurementError
from measurements.table.headers import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]


# The columns of a time series: names, units, meaning and capacity; and the marks of its rows.
#
# One row is one interval of the whole host. Columns of a device carry its name in brackets:
# ``disk_read_bytes[sda]``. What was not recorded is absent, or NaN, and never 0.


Kind = Literal["fact", "amount", "level", "share", "text"]

SECTOR_BYTES = 512


class TimeColumn(NamedTuple):
    """One column of a time series.

    Attributes
    ----------
    unit : str
    kind : {"fact", "amount", "level", "share", "text"}
        A fact of the host, an amount over the interval, a level at its end or over it, a share of
        the interval, or text.
    meaning : str
    capacity : str
        Column of what it cannot exceed; for an amount, that is per second. "" where there is none.
    per_device : str
        What the names in brackets are: "disk" or "interface"; "" for a column of the host.
    """

    unit: str
    kind: Kind
    meaning: str
    capacity: str = ""
    per_device: str = ""


_CPU = {
    "user_s": "CPU time, user, guests included",
    "nice_s": "CPU time, user at low priority",
    "system_s": "CPU time, kernel",
    "irq_s": "CPU time, interrupts",
    "softirq_s": "CPU time, soft interrupts",
    "steal_s": "CPU time, taken by the hypervisor",
    "idle_s": "CPU time, idle",
    "iowait_s": "CPU time, idle while an I/O was outstanding",
}
_NETWORK = {
    "network_rx_bytes": ("B", "received"),
    "network_tx_bytes": ("B", "sent"),
    "network_rx_packets": ("1", "packets received"),
    "network_tx_packets": ("1", "packets sent"),
    "network_rx_drops": ("1", "packets dropped on receipt"),
    "network_tx_drops": ("1", "packets dropped on sending"),
    "network_errors": ("1", "errors, both ways"),
}
_SPEED = "network_speed_bytes_s"

CPU_COLUMNS = tuple(_CPU)
# By ticks and by the scheduler these are the time that tasks ran; the rest is not a task's.
TASK_COLUMNS = ("user_s", "nice_s", "system_s")
NETWORK_COLUMNS = tuple(_NETWORK)

COLUMNS: dict[str, TimeColumn] = {
    "time_s": TimeColumn("s", "fact", "end of the interval, since 1970-01-01 UTC"),
    "interval_s": TimeColumn("s", "fact", "length of the interval"),
    "host": TimeColumn("", "text", "machine"),
    "cpus": TimeColumn("1", "fact", "logical CPUs of the host"),
    "hz": TimeColumn("1/s", "fact", "clock ticks a second, where CPU time was counted in them"),
    "cpu_accounting": TimeColumn(
        "", "text", "how task time was counted: by `tick` or by the `scheduler`"
    ),
    **{name: TimeColumn("s", "amount", meaning, "cpus") for name, meaning in _CPU.items()},
    "guest_s": TimeColumn("s", "amount", "CPU time, guests: part of user_s", "cpus"),
    "scheduled_s": TimeColumn(
        "s", "amount", "CPU time of tasks by the scheduler: user, nice and system", "cpus"
    ),
    "tick_busy_s": TimeColumn("s", "amount", "CPU time of tasks by ticks, for comparison", "cpus"),
    "context_switches": TimeColumn("1", "amount", "context switches"),
    "run_queue": TimeColumn("1", "level", "tasks that run or are ready to"),
    "blocked": TimeColumn("1", "level", "tasks that wait for I/O"),
    "memory_total_bytes": TimeColumn("B", "level", "memory"),
    "memory_free_bytes": TimeColumn("B", "level", "unused memory", "memory_total_bytes"),
    "memory_available_bytes": TimeColumn(
        "B", "level", "memory that programs can get without swapping", "memory_total_bytes"
    ),
    "memory_cached_bytes": TimeColumn("B", "level", "page cache", "memory_total_bytes"),
    "memory_buffers_bytes": TimeColumn("B", "level", "buffers", "memory_total_bytes"),
    "memory_inactive_bytes": TimeColumn(
        "B", "level", "memory not used of late", "memory_total_bytes"
    ),
    "memory_read_bytes": TimeColumn("B", "amount", "read from memory, by its controllers"),
    "memory_written_bytes": TimeColumn("B", "amount", "written to memory, by its controllers"),
    "swap_used_bytes": TimeColumn("B", "level", "swap in use"),
    "swap_in_bytes": TimeColumn("B", "amount", "swapped in"),
    "swap_out_bytes": TimeColumn("B", "amount", "swapped out"),
    "major_faults": TimeColumn("1", "amount", "page faults that needed I/O"),
    "sectors_read": TimeColumn("512 B", "amount", "read from physical disks"),
    "sectors_written": TimeColumn("512 B", "amount", "written to physical disks"),
    "ios": TimeColumn("1", "amount", "I/Os of physical disks"),
    "ios_read": TimeColumn("1", "amount", "reads of physical disks"),
    "ios_written": TimeColumn("1", "amount", "writes of physical disks"),
    "disk_read_bytes": TimeColumn("B", "amount", "read", per_device="disk"),
    "disk_written_bytes": TimeColumn("B", "amount", "written", per_device="disk"),
    "disk_ios": TimeColumn("1", "amount", "I/Os", per_device="disk"),
    "disk_ios_read": TimeColumn("1", "amount", "reads", per_device="disk"),
    "disk_ios_written": TimeColumn("1", "amount", "writes", per_device="disk"),
    "disk_busy_share": TimeColumn(
        "1", "share", "share of the interval with an I/O in progress", per_device="disk"
    ),
    "disk_queue": TimeColumn("1", "level", "mean number of I/Os in progress", per_device="disk"),
    "disk_wait_s": TimeColumn("s", "level", "mean time from request to end", per_device="disk"),
    **{
        name: TimeColumn(unit, "amount", f"{meaning}: physical interfaces, and each by its name")
        for name, (unit, meaning) in _NETWORK.items()
    },
    _SPEED: TimeColumn("B/s", "fact", "line rate, each way", per_device="interface"),
    "marks": TimeColumn("", "text", "what is odd about the row; several are separated by `; `"),
}
for _name in ("network_rx_bytes", "network_tx_bytes"):
    COLUMNS[_name] = COLUMNS[_name]._replace(capacity=_SPEED)

# Always there, whatever columns are asked for.
KEYS = ("time_s", "interval_s", "host", "cpus", "marks")

MARKS = {
    "gap": "the interval is over one and a half times the usual one",
    "restart": "the first interval after the host or the recording started anew",
    "clock back": "the clock went back: amounts are not known unless the log gives the interval",
    "time repeats": "the same time as the row before: amounts are not known",
    "over capacity": "a value is above what the host can do",
    "counter back": "a counter went back: what it counted is not known",
    "negative": "a value below 0 was left out",
    "not a number": "a field that is no number, or one that no counter can show, was left out",
    "device new": "a disk or interface appeared",
    "device gone": "a disk or interface disappeared",
    "container": "recorded in a container that sees the host's counters",
}


def split_device(column: str) -> tuple[str, str]:
    """Split a column's name into the name in `COLUMNS` and the device, or "".

    >>> split_device("disk_read_bytes[sda]")
    ('disk_read_bytes', 'sda')
    """
    base, bracket, device = column.partition("[")
    return base, device.removesuffix("]") if bracket else ""


def is_column(name: str) -> bool:
    """Whether a series may have a column of this name.

    >>> is_column("disk_read_bytes[sda]"), is_column("user_s[sda]"), is_column("disk_read_bytes")
    (True, False, False)
    """
    base, device = split_device(name)
    if base not in COLUMNS or name != (of_device(base, device) if device else base):
        return False
    if base in NETWORK_COLUMNS:
        return True
    return bool(device) == bool(COLUMNS[base].per_device)


def of_device(column: str, device: str) -> str:
    """Name the column of one device.

    >>> of_device("disk_read_bytes", "sda")
    'disk_read_bytes[sda]'
    """
    return f"{column}[{device}]"


# Ticks that show less of the scheduler's time than this miss a part that matters.
_LEAST_SEEN = 0.95


class Finding(NamedTuple):
    """Something about a series that its reader should know.

    Attributes
    ----------
    mark : str
        The mark of the rows concerned, of `schema.MARKS`; "" where it is about the whole log.
    rows : int
        How many rows.
    text : str
    """

    mark: str
    rows: int
    text: str


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """A host over time, one row an interval.

    Attributes
    ----------
    frame : pandas.DataFrame
        Sorted by ``time_s``; columns of `measurements.timeseries.series`.
    format : str
        What the source was read as.
    source : str
    findings : tuple of Finding
        What was marked, left out or not known.
    """

    frame: pd.DataFrame
    format: str
    source: str
    findings: tuple[Finding, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """Time that the intervals cover (s)."""
        return float(self.frame["interval_s"].sum())

    def between(self, start_s: float, end_s: float) -> TimeSeries:
        """Keep the intervals that lie wholly within a window, in seconds since 1970 UTC."""
        ends = self.frame["time_s"]
        # A log's stamps are rounded to its seconds.
        kept = (ends - self.frame["interval_s"] >= start_s - 1e-3) & (ends <= end_s + 1e-3)
        return TimeSeries(
            self.frame[kept].reset_index(drop=True), self.format, self.source, self.findings
        )

    def devices(self, column: str) -> dict[str, str]:
        """Map each device to its column, for a column that is kept by device."""
        if column not in COLUMNS:
            raise MeasurementError(
                f"no column of a time series is called {column!r}{nearest(column, list(COLUMNS))}"
            )
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
        """Say in a few lines what it holds."""
        frame = self.frame
        lines = [
            f"{self.source}: {self.format}, {len(frame)} intervals, {self.seconds:.6g} s",
            *_cpu_line(frame),
        ]
        shortfall = self.tick_shortfall()
        if shortfall is not None:
            note = ": ticks miss too much, use the scheduler's" if _missed(shortfall) else ""
            lines.append(f"ticks show {1 - shortfall:.1%} of the scheduler's CPU time{note}")
        lines += [f"{finding.text}{_rows(finding)}" for finding in self.findings]
        return "\n".join(lines)


def _missed(shortfall: float) -> bool:
    return 1 - shortfall < _LEAST_SEEN


def _rows(finding: Finding) -> str:
    return f" ({finding.rows} rows)" if finding.rows > 1 else ""


def _cpu_line(frame: pd.DataFrame) -> list[str]:
    known: Sequence[Any] = [name for name in TASK_COLUMNS if name in frame]
    if not known or not frame["interval_s"].sum() > 0:
        return []
    busy = float(frame[known].sum().sum())
    how = ", ".join(sorted(set(frame["cpu_accounting"]))) if "cpu_accounting" in frame else "tick"
    return [f"{busy:.6g} CPU seconds of tasks, by {how}"]


# What is odd about the rows of a series: marked, never mended.


# Percentages are rounded, and stamps are; ticks come in whole ones.
_ROUNDING = 1.05
_TICKS_S = 0.02


class Marks:
    """The marks of the rows of a series that is being made."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._marked: dict[str, NDArray[np.bool_]] = {}
        self._where: dict[str, list[str]] = {}

    def add(self, mark: str, rows: NDArray[np.bool_], column: str = "") -> None:
        """Mark rows; ``column`` says of what."""
        if not rows.any():
            return
        self._marked[mark] = self._marked.get(mark, False) | rows
        if column:
            self._where.setdefault(mark, []).append(column)

    def text(self) -> NDArray[np.object_]:
        """Marks of each row, "" for none."""
        said = np.full(self._rows, "", object)
        for mark in MARKS:
            if mark in self._marked:
                for row in np.flatnonzero(self._marked[mark]):
                    said[row] = f"{said[row]}; {mark}" if said[row] else mark
        return said

    def findings(self) -> list[Finding]:
        """One a mark, with the columns that it is about."""
        return [
            Finding(mark, int(rows.sum()), f"{mark}: {MARKS[mark]}{self._about(mark)}")
            for mark, rows in self._marked.items()
        ]

    def _about(self, mark: str) -> str:
        columns = list(dict.fromkeys(self._where.get(mark, ())))
        more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
        return f" [{', '.join(columns[:3])}{more}]" if columns else ""


def mark_values(
    values: dict[str, Numbers], intervals_s: Numbers, cpus: float | None, marks: Marks
) -> None:
    """Leave out values below 0; mark those above capacity and devices that come and go.

    Parameters
    ----------
    values : mapping of column to array
        Amounts over the interval; changed in place.
    intervals_s : array
    cpus : float or None
    marks : Marks
    """
    for column, numbers in values.items():
        negative = numbers < 0
        if negative.any():
            marks.add("negative", negative, column)
            numbers[negative] = np.nan
    _mark_cpu(values, intervals_s, cpus, marks)
    for column, numbers in values.items():
        most = _most(column, values, intervals_s)
        if most is not None:
            marks.add("over capacity", numbers > most * _ROUNDING, column)
    for device, there in _presence(values).items():
        _mark_coming_and_going(device, there, marks)


def _mark_cpu(
    values: Mapping[str, Numbers], intervals_s: Numbers, cpus: float | None, marks: Marks
) -> None:
    parts = [values[name] for name in CPU_COLUMNS if name in values]
    if parts and cpus:
        total = np.nansum(parts, axis=0)
        most = cpus * (_ROUNDING * intervals_s + _TICKS_S)
        marks.add("over capacity", total > most, "CPU time")


def _most(column: str, values: Mapping[str, Numbers], intervals_s: Numbers) -> Numbers | None:
    """What a column cannot exceed; None where that is not known."""
    base, device = split_device(column)
    described = COLUMNS[base]
    if described.kind == "share":
        return np.ones(len(intervals_s))
    capacity = of_device(described.capacity, device) if device else described.capacity
    if not described.capacity or capacity not in values:
        return None
    return values[capacity] * intervals_s if described.kind == "amount" else values[capacity]


def _presence(values: Mapping[str, Numbers]) -> dict[str, NDArray[np.bool_]]:
    """Rows in which anything is known of a device, by its name."""
    found: dict[str, NDArray[np.bool_]] = {}
    for column, numbers in values.items():
        base, device = split_device(column)
        if device and COLUMNS[base].kind != "fact":
            found[device] = found.get(device, False) | ~np.isnan(numbers)
    return found


def _mark_coming_and_going(device: str, there: NDArray[np.bool_], marks: Marks) -> None:
    if there.all() or not there.any():
        return
    first = int(there.argmax())
    last = len(there) - 1 - int(there[::-1].argmax())
    rows = np.arange(len(there))
    marks.add("device new", (rows == first) & (first > 0), device)
    marks.add("device gone", (rows == last + 1) & (last + 1 < len(there)), device)


# What logs of any format leave open, in the same words.


CPUS_UNKNOWN = (
    "CPU time is left out, as the log does not say how many CPUs its shares are of: give their "
    "number (--cpus)"
)
CPUS_TAKEN = "the log does not say how many CPUs its shares are of"
LOCAL_TIMES = "times are read as UTC, as the log does not say its time zone: give it (--timezone)"
INTERRUPTS_IN_SYSTEM = (
    "system_s has the interrupts in it, as sadf was run without -u ALL: irq_s and softirq_s are "
    "not known"
)


def cpus_taken(cpus: float | None) -> str:
    """Say that shares were taken to be of as many CPUs as the caller named."""
    return f"{CPUS_TAKEN}: they are taken to be of the {cpus:g} that were given (--cpus)"


def left_out(skipped: int, cut: bool) -> list[Finding]:
    """Findings of lines that could not be read, and of a log that breaks off."""
    found = []
    if skipped:
        found.append(Finding("", 0, f"{skipped} lines are no rows of the log and are left out"))
    if cut:
        found.append(Finding("", 0, "the log breaks off, and what was not finished is left out"))
    return found
