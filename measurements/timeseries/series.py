"""The columns of a time series, the marks of its rows, and the table that holds both.

One row is one interval of the whole host. The column of a device has its name in brackets:
``disk_read_bytes[sda]``. What was not recorded is absent or NaN, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from measurements.errors import MeasurementError
from measurements.table.headers import nearest

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["fact", "amount", "level", "share", "text"]

SECTOR_BYTES = 512
# Line rates are in Mbit/s.
MEGABIT_BYTES = 1e6 / 8


class TimeColumn(NamedTuple):
    """One column of a time series.

    A fact is one of the host, an amount is over the interval, a level at its end or over it, and a
    share of the interval. ``capacity`` is the column that limits this one (an amount per second),
    ``per_device`` what the names in brackets are, "disk" or "interface"; "" where there is none.
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
    # The columns above add up to the capacity; those below repeat parts of it.
    "guest_s": "CPU time, guests: part of user_s",
    "scheduled_s": "CPU time of tasks, counted by the scheduler: user, nice and system",
    "tick_busy_s": "CPU time of tasks, counted by ticks, for comparison",
}
_MEMORY = {
    "memory_free_bytes": "unused memory",
    "memory_available_bytes": "memory that programs can get without swapping",
    "memory_cached_bytes": "page cache",
    "memory_buffers_bytes": "buffers",
    "memory_inactive_bytes": "memory not used recently",
}
_SPEED = "network_speed_bytes_s"
_NETWORK = {
    "network_rx_bytes": ("B", "received", _SPEED),
    "network_tx_bytes": ("B", "sent", _SPEED),
    "network_rx_packets": ("1", "packets received", ""),
    "network_tx_packets": ("1", "packets sent", ""),
    "network_rx_drops": ("1", "packets dropped on receipt", ""),
    "network_tx_drops": ("1", "packets dropped on sending", ""),
    "network_errors": ("1", "errors, both ways", ""),
}

_PHYSICAL = "physical interfaces, and each by its name"

CPU_COLUMNS = tuple(_CPU)[:8]
# Ticks and the scheduler both count this time of tasks; the rest belongs to no task.
TASK_COLUMNS = ("user_s", "nice_s", "system_s")
NETWORK_COLUMNS = tuple(_NETWORK)

COLUMNS: dict[str, TimeColumn] = {
    "time_s": TimeColumn("s", "fact", "end of the interval, since 1970-01-01 UTC"),
    "interval_s": TimeColumn("s", "fact", "length of the interval"),
    "host": TimeColumn("", "text", "machine"),
    "cpus": TimeColumn("1", "fact", "logical CPUs of the host"),
    "hz": TimeColumn("1/s", "fact", "clock ticks per second, if CPU time was counted in ticks"),
    "cpu_accounting": TimeColumn(
        "", "text", "how CPU time of tasks was counted: by `tick` or by the `scheduler`"
    ),
    **{name: TimeColumn("s", "amount", meaning, "cpus") for name, meaning in _CPU.items()},
    "context_switches": TimeColumn("1", "amount", "context switches"),
    "run_queue": TimeColumn("1", "level", "tasks that run or are ready to run"),
    "blocked": TimeColumn("1", "level", "tasks that wait for I/O"),
    "memory_total_bytes": TimeColumn("B", "level", "memory"),
    **{name: TimeColumn("B", "level", m, "memory_total_bytes") for name, m in _MEMORY.items()},
    "memory_read_bytes": TimeColumn("B", "amount", "bytes that the memory controllers read"),
    "memory_written_bytes": TimeColumn("B", "amount", "bytes that the memory controllers wrote"),
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
        name: TimeColumn(unit, "amount", f"{m}: {_PHYSICAL}", limit, "interface")
        for name, (unit, m, limit) in _NETWORK.items()
    },
    _SPEED: TimeColumn("B/s", "fact", "line rate, each way", per_device="interface"),
    "marks": TimeColumn("", "text", "names of what is unusual in the row, separated by `; `"),
}

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
    "gap": "the interval is more than 1.5 times as long as usual",
    "restart": "the first interval after a restart of the host or the recording",
    "clock back": "the clock went back: amounts are missing unless the log gives the interval",
    "time repeats": "the same time as the row before: amounts are missing",
    "over capacity": "a value is above the capacity of the host",
    "counter back": "a counter went back: its amount is missing",
    "negative": "a value below 0 was left out",
    "not a number": "a field that is not a number, or impossible for a counter, was left out",
    "device new": "a disk or interface appeared",
    "device gone": "a disk or interface disappeared",
    "container": "recorded in a container that sees the counters of its host",
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
        f"no column of a time series is called {name!r}{nearest(name, list(COLUMNS))}"
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
    return f"{CPUS_TAKEN}: they are taken to be of the {cpus:g} that were given (--cpus)"


def reading_caveats(skipped: int, cut: bool) -> list[str]:
    """Say that lines could not be read, and that a log breaks off."""
    texts = [f"{skipped} lines are no rows of the log and are left out"] if skipped else []
    if cut:
        texts.append("the log breaks off, and what was not finished is left out")
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
