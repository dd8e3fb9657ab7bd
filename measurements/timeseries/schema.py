"""The columns of a time series: names, units, meaning and capacity; and the marks of its rows.

One row is one interval of the whole host. Columns of a device carry its name in brackets:
``disk_read_bytes[sda]``. What was not recorded is absent, or NaN, and never 0.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

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
