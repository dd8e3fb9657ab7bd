"""A host sampled as it runs: one row an interval, until a command, a time or the user ends it."""

from __future__ import annotations

import os
import select
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.cpu_time import COLUMNS as STAT_COLUMNS
from measurements.host.cpu_time import group_state, scheduled_s
from measurements.host.disks_network import interface_bytes, physical_disks
from measurements.host.files import read_number
from measurements.host.processor import container
from measurements.table.headers import shown
from measurements.timeseries.series import (
    CPU_COLUMNS,
    NETWORK_COLUMNS,
    SECTOR_BYTES,
    TASK_COLUMNS,
    of_device,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Row = dict[str, Any]
    from collections.abc import Callable, Iterator, Sequence

    from measurements.timeseries.series import TimeSeries


# One row of a series: what happened between two readings of the kernel's counts.


_MS = 1e-3
# Counts of an interface in the order of `counts`: what they add to.
_INTERFACE = (
    *("network_rx_bytes", "network_rx_packets", "network_errors", "network_rx_drops"),
    *("network_tx_bytes", "network_tx_packets", "network_errors", "network_tx_drops"),
)
_DISK_TOTALS = {
    "sectors_read": ("disk_read_bytes", 1 / SECTOR_BYTES),
    "sectors_written": ("disk_written_bytes", 1 / SECTOR_BYTES),
    "ios": ("disk_ios", 1.0),
    "ios_read": ("disk_ios_read", 1.0),
    "ios_written": ("disk_ios_written", 1.0),
}


def make_row(before: Counts, after: Counts, counters: Counters, host: str) -> tuple[Row, list[str]]:
    """Columns of the interval between two readings, and its marks; None where it is not known."""
    interval_s = after.at_s - before.at_s
    marks: dict[str, None] = {}
    if after.time_s < before.time_s:
        marks["clock back"] = None
    row: Row = {
        "time_s": after.time_s,
        "interval_s": interval_s,
        "host": host,
        "cpus": after.cpus,
        "hz": counters.ticks_per_s,
    }
    row |= _cpu(before, after, counters.ticks_per_s, marks)
    row |= _numbers(before, after, counters.page_bytes, marks)
    row |= after.memory
    row |= _disks(before, after, interval_s, marks)
    row |= _interfaces(before, after, counters, marks)
    return row, list(marks)


def _grown(before: int | None, after: int | None, marks: dict[str, None]) -> int | None:
    if before is None or after is None:
        return None
    if after < before:
        marks["counter back"] = None
        return None
    return after - before


def _cpu(before: Counts, after: Counts, ticks_per_s: float, marks: dict[str, None]) -> Row:
    row: Row = {}
    for column in (*CPU_COLUMNS, "guest_s"):
        grown = _grown(before.ticks.get(column), after.ticks.get(column), marks)
        row[column] = None if grown is None else grown / ticks_per_s
    known = [row[column] for column in TASK_COLUMNS]
    tick_busy_s = None if None in known else sum(known)
    scheduled_s = None
    if before.scheduled_s is not None and after.scheduled_s is not None:
        scheduled_s = after.scheduled_s - before.scheduled_s
        if scheduled_s < 0:
            marks["counter back"] = None
            scheduled_s = None
    row["cpu_accounting"] = "tick" if scheduled_s is None else "scheduler"
    if scheduled_s is not None:
        capacity_s = after.cpus * (after.at_s - before.at_s)
        row |= _by_scheduler(row, scheduled_s, tick_busy_s, capacity_s)
    return row | {"scheduled_s": scheduled_s, "tick_busy_s": tick_busy_s}


def _by_scheduler(
    row: Row, scheduled_s: float, tick_busy_s: float | None, capacity_s: float
) -> Row:
    """CPU time of tasks as the scheduler counted it, split as the ticks are.

    The kernel splits the time of a process in the same way (cputime_adjust): without a tick in
    it, all is the user's. What tasks, interrupts and the hypervisor leave is idle or iowait.
    """
    found: Row = {}
    if tick_busy_s:
        found = {column: row[column] * scheduled_s / tick_busy_s for column in TASK_COLUMNS}
        if row["guest_s"] is not None:
            found["guest_s"] = row["guest_s"] * scheduled_s / tick_busy_s
    elif tick_busy_s == 0:
        found = {"user_s": scheduled_s, "nice_s": 0.0, "system_s": 0.0}
    if row["idle_s"] is None or row["iowait_s"] is None:
        return found
    taken_s = scheduled_s + sum(row[c] or 0.0 for c in ("irq_s", "softirq_s", "steal_s"))
    left_s, idle_s = max(0.0, capacity_s - taken_s), row["idle_s"] + row["iowait_s"]
    waiting_share = row["iowait_s"] / idle_s if idle_s else 0.0
    return found | {"idle_s": left_s * (1 - waiting_share), "iowait_s": left_s * waiting_share}


def _numbers(before: Counts, after: Counts, page_bytes: float, marks: dict[str, None]) -> Row:
    row: Row = {}
    for column, name, factor in (
        ("context_switches", "ctxt", 1.0),
        ("swap_in_bytes", "pswpin", page_bytes),
        ("swap_out_bytes", "pswpout", page_bytes),
        ("major_faults", "pgmajfault", 1.0),
    ):
        grown = _grown(before.numbers.get(name), after.numbers.get(name), marks)
        row[column] = None if grown is None else grown * factor
    # The sampler itself is one of the tasks that run.
    running = after.numbers.get("procs_running")
    row["run_queue"] = None if running is None else max(0, running - 1)
    row["blocked"] = after.numbers.get("procs_blocked")
    return row


def _disks(before: Counts, after: Counts, interval_s: float, marks: dict[str, None]) -> Row:
    _mark_changes(before.disks, after.disks, marks)
    each: Row = {}
    for disk, counts in after.disks.items():
        # What a new one did, it did since the reading before.
        earlier = before.disks.get(disk, (0,) * len(counts))
        grown = [_grown(a, b, marks) for a, b in zip(earlier, counts, strict=True)]
        each |= {of_device(c, disk): v for c, v in _one_disk(grown, interval_s).items()}
    totals: Row = {}
    for total, (column, factor) in _DISK_TOTALS.items():
        totals[total] = _summed((each[of_device(column, disk)] for disk in after.disks), factor)
    return totals | each


def _one_disk(grown: list[int | None], interval_s: float) -> Row:
    reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms, queue_ms = grown
    ios = _summed((reads, writes), 1.0)
    spent_s = _summed((read_ms, write_ms), _MS)
    return {
        "disk_read_bytes": _summed((sectors_read,), SECTOR_BYTES),
        "disk_written_bytes": _summed((sectors_written,), SECTOR_BYTES),
        "disk_ios": ios,
        "disk_ios_read": reads,
        "disk_ios_written": writes,
        "disk_busy_share": _summed((busy_ms,), _MS / interval_s),
        "disk_queue": _summed((queue_ms,), _MS / interval_s),
        "disk_wait_s": spent_s / ios if ios and spent_s is not None else None,
    }


def _interfaces(before: Counts, after: Counts, counters: Counters, marks: dict[str, None]) -> Row:
    _mark_changes(before.interfaces, after.interfaces, marks)
    each: Row = {}
    for name, counts in after.interfaces.items():
        earlier = before.interfaces.get(name, (0,) * len(counts))
        grown = [_grown(a, b, marks) for a, b in zip(earlier, counts, strict=True)]
        for column in NETWORK_COLUMNS:
            parts = [g for g, part in zip(grown, _INTERFACE, strict=True) if part == column]
            each[of_device(column, name)] = _summed(parts, 1.0)
    totals = {
        column: _summed(
            (each[of_device(column, n)] for n in after.interfaces if n in counters.host_interfaces),
            1.0,
        )
        for column in NETWORK_COLUMNS
    }
    speeds = {of_device("network_speed_bytes_s", n): rate for n, rate in counters.speeds.items()}
    return totals | each | speeds


def _summed(parts: Iterable[float | None], factor: float) -> float | None:
    """Sum, None where a part is not known or there is none."""
    known = list(parts)
    if not known or any(part is None for part in known):
        return None
    return sum(part for part in known if part is not None) * factor


def _mark_changes(
    before: Mapping[str, object], after: Mapping[str, object], marks: dict[str, None]
) -> None:
    if after.keys() - before.keys():
        marks["device new"] = None
    if before.keys() - after.keys():
        marks["device gone"] = None


# The kernel's counts of the whole host at one moment.


# Fields of /proc/diskstats behind the name: I/Os, sectors and milliseconds of reads, of writes;
# milliseconds that any was in progress, and summed over those in progress.
_DISK_FIELDS = (3, 5, 6, 7, 9, 10, 12, 13)
# Fields of /proc/net/dev: bytes, packets, errors and drops, received and sent.
_NETWORK_FIELDS = (0, 1, 2, 3, 8, 9, 10, 11)
_MEMORY = {
    "MemTotal": "memory_total_bytes",
    "MemFree": "memory_free_bytes",
    "MemAvailable": "memory_available_bytes",
    "Cached": "memory_cached_bytes",
    "Buffers": "memory_buffers_bytes",
    "Inactive": "memory_inactive_bytes",
}
_GUESTS = (9, 10)
_MEGABIT_BYTES = 1e6 / 8


@dataclass(frozen=True, slots=True)
class Counts:
    """What the kernel had counted since its start.

    Attributes
    ----------
    at_s : float
        When, by `time.monotonic`.
    time_s : float
        When, since 1970 UTC.
    ticks : mapping of column to int
        CPU time of /proc/stat, in clock ticks.
    numbers : mapping of name to int
        Single counts of /proc/stat and /proc/vmstat.
    memory : mapping of column to float
    scheduled_s : float or None
        CPU time of tasks by the scheduler.
    disks, interfaces : mapping of name to counts
    cpus : int
    """

    at_s: float
    time_s: float
    ticks: dict[str, int]
    numbers: dict[str, int]
    memory: dict[str, float]
    scheduled_s: float | None
    disks: dict[str, tuple[int, ...]]
    interfaces: dict[str, tuple[int, ...]]
    cpus: int


class Counters:
    """Reads the counts, from the same host again and again.

    Parameters
    ----------
    procfs, sysfs : Path
    disks : sequence of str, optional
        By default the physical ones.
    clock : callable, optional
        Seconds of a clock that never goes back.

    Attributes
    ----------
    ticks_per_s, page_bytes : float
        As the C library tells; never assumed.
    """

    def __init__(
        self,
        procfs: Path,
        sysfs: Path,
        disks: Sequence[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ticks_per_s = float(os.sysconf("SC_CLK_TCK"))
        self.page_bytes = float(os.sysconf("SC_PAGE_SIZE"))
        self.host_interfaces: frozenset[str] = frozenset()
        self.speeds: dict[str, float] = {}
        self._procfs, self._sysfs, self._clock = procfs, sysfs, clock
        self._wanted_disks = None if disks is None else frozenset(disks)
        self._disk_names: frozenset[str] = frozenset()
        self._disks: frozenset[str] = frozenset()
        self._interface_names: frozenset[str] = frozenset()
        if self._wanted_disks is not None:
            self._refuse_unknown(self._wanted_disks)

    def read(self) -> Counts:
        """Read all now.

        Raises
        ------
        MeasurementError
            When there is no /proc/stat of Linux.
        """
        at_s, time_s = self._clock(), time.time()
        ticks, numbers, cpus = self._stat()
        return Counts(
            at_s,
            time_s,
            ticks,
            numbers | self._vmstat(),
            self._memory(),
            scheduled_s(self._procfs, self._sysfs),
            self._read_disks(),
            self._read_interfaces(),
            cpus,
        )

    def _lines(self, name: str) -> list[str]:
        try:
            return (self._procfs / name).read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            return []

    def _stat(self) -> tuple[dict[str, int], dict[str, int], int]:
        ticks: dict[str, int] = {}
        numbers = {}
        cpus = 0
        for line in self._lines("stat"):
            if line.startswith("cpu "):
                fields = line.split()
                ticks = {c: int(f) for c, f in zip(STAT_COLUMNS, fields[1:], strict=False)}
                if len(fields) > _GUESTS[-1]:
                    ticks["guest_s"] = sum(int(fields[n]) for n in _GUESTS)
            elif line.startswith("cpu"):
                cpus += 1
            elif line.startswith(("ctxt ", "procs_")):
                name, _, number = line.partition(" ")
                numbers[name] = int(number)
        if not ticks or not cpus:
            raise MeasurementError(
                f"{self._procfs / 'stat'}: has no CPU times: a host with Linux can be sampled"
            )
        return ticks, numbers, cpus

    def _vmstat(self) -> dict[str, int]:
        names = ("pswpin ", "pswpout ", "pgmajfault ")
        pairs = (line.split() for line in self._lines("vmstat") if line.startswith(names))
        return {name: int(number) for name, number in pairs}

    def _memory(self) -> dict[str, float]:
        sizes = {}
        for line in self._lines("meminfo"):
            name, _, rest = line.partition(":")
            if name in _MEMORY or name.startswith("Swap"):
                sizes[name] = int(rest.split()[0]) * 1024.0
        found = {column: sizes[name] for name, column in _MEMORY.items() if name in sizes}
        if {"SwapTotal", "SwapFree"} <= sizes.keys():
            found["swap_used_bytes"] = sizes["SwapTotal"] - sizes["SwapFree"]
        return found

    def _read_disks(self) -> dict[str, tuple[int, ...]]:
        rows = [line.split() for line in self._lines("diskstats")]
        rows = [row for row in rows if len(row) > _DISK_FIELDS[-1]]
        names = frozenset(row[2] for row in rows)
        # Which of them are physical is looked up as they come and go only.
        if names != self._disk_names:
            self._disk_names = names
            self._disks = self._choose(names)
        return {
            row[2]: tuple(int(row[n]) for n in _DISK_FIELDS)
            for row in rows
            if row[2] in self._disks
        }

    def _choose(self, names: frozenset[str]) -> frozenset[str]:
        if self._wanted_disks is not None:
            return self._wanted_disks
        physical = physical_disks(self._sysfs)
        # sysfs cannot have the slash of names such as cciss/c0d0.
        return frozenset(name for name in names if name.replace("/", "!") in physical)

    def _refuse_unknown(self, wanted: frozenset[str]) -> None:
        rows = [line.split() for line in self._lines("diskstats")]
        known = [row[2] for row in rows if len(row) > 2]
        if missing := sorted(wanted - set(known)):
            raise MeasurementError(
                f"{self._procfs / 'diskstats'}: has no disk {shown(missing)}; its disks are "
                f"{shown(known)}"
            )

    def _read_interfaces(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for line in self._lines("net/dev")[2:]:
            name, _, figures = line.rpartition(":")
            fields = figures.split()
            if len(fields) > _NETWORK_FIELDS[-1]:
                found[name.strip()] = tuple(int(fields[n]) for n in _NETWORK_FIELDS)
        if found.keys() != self._interface_names:
            self._interface_names = frozenset(found)
            self.host_interfaces = frozenset(interface_bytes(self._procfs, self._sysfs))
            self.speeds = self._line_rates()
        # What goes over the loopback costs CPU time, though no wire.
        kept = self.host_interfaces | {"lo"}
        return {name: counts for name, counts in found.items() if name in kept}

    def _line_rates(self) -> dict[str, float]:
        folder = self._sysfs / "class/net"
        rates = {name: read_number(folder / name / "speed") for name in self.host_interfaces}
        return {name: rate * _MEGABIT_BYTES for name, rate in rates.items() if rate and rate > 0}


# A reading that much later than due leaves a gap.
_GAP = 1.5
# Rates over a shorter interval are noise.
_SHORTEST_S = 0.02
_END_S = 5.0


class LiveSampler:
    """Samples this host from the kernel's counts.

    Parameters
    ----------
    interval_s : float
    disks : sequence of str, optional
        Disks whose transfers are the host's; by default the physical ones, each transfer once.
    host : str, optional
        By default this host's name.
    procfs, sysfs, root : Path
        Where the kernel's trees and the root folder are; other folders for tests.
    clock, wait : callable
        Seconds of a clock that never goes back, and a wait of so many; others for tests.

    Attributes
    ----------
    caveats : tuple of str
        What could mislead: a container that sees its host's counters, CPU time by ticks only.

    Raises
    ------
    MeasurementError
        Without /proc/stat, or for a disk that is not there.
    """

    def __init__(
        self,
        *,
        interval_s: float = 1.0,
        disks: Sequence[str] | None = None,
        host: str | None = None,
        procfs: Path = Path("/proc"),
        sysfs: Path = Path("/sys"),
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        if not 0.01 <= interval_s < float("inf"):
            raise MeasurementError(f"an interval of {interval_s:g} s: give 10 ms or more")
        self.interval_s = interval_s
        self._host = host or os.uname().nodename
        self._clock, self._wait = clock, wait
        self._counters = Counters(procfs, sysfs, disks, clock)
        self._last = self._counters.read()
        foreign = _foreign_counters(procfs, sysfs, root)
        self._marks = ["container"] if foreign else []
        by_ticks = "" if self._last.scheduled_s is not None else _ONLY_TICKS
        self.caveats = tuple(text for text in (foreign, by_ticks) if text)

    def row(self) -> dict[str, Any]:
        """Columns of the time since the row before, or since the start; None is not known."""
        now = self._counters.read()
        row, marks = make_row(self._last, now, self._counters, self._host)
        if row["interval_s"] > _GAP * self.interval_s:
            marks.append("gap")
        self._last = now
        return row | {"marks": "; ".join([*marks, *self._marks])}

    def rows(self, ended: Callable[[float], bool]) -> Iterator[dict[str, Any]]:
        """Rows at every interval, and one for what is left when it ends.

        Parameters
        ----------
        ended : callable
            Waits so many seconds at most and says whether it is time to end. An interrupt
            (KeyboardInterrupt) ends it as well.
        """
        start_s, due = self._last.at_s, 1
        over = False
        while not over:
            wait_s = start_s + due * self.interval_s - self._clock()
            try:
                over = ended(max(0.0, wait_s))
            except KeyboardInterrupt:
                over = True
            if over:
                # What is left counts, however short; but rates over too short a time are noise.
                self._wait(max(0.0, self._last.at_s + _SHORTEST_S - self._clock()))
            now_s = self._clock()
            yield self.row()
            # Those that were missed are not made up for.
            due = int((now_s - start_s) / self.interval_s + 1e-3) + 1


class Ended(NamedTuple):
    """How a sampled command ended.

    Attributes
    ----------
    exit_code : int
        Negative for the signal that ended it.
    user_s, system_s : float
        CPU time of the command and of all that it waited for.
    """

    exit_code: int
    user_s: float
    system_s: float


class Command:
    """A command that runs while its host is sampled.

    Raises
    ------
    MeasurementError
        When it cannot be started.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(arguments)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise MeasurementError(
                f"{arguments[0] if arguments else ''}: cannot be started: {reason}: give the "
                "command after --, with its path where it is not on PATH"
            ) from error
        self.ended: Ended | None = None

    def wait(self, timeout_s: float) -> bool:
        """Wait so long at most; whether it has ended."""
        if self.ended is None:
            with _descriptor(self._process.pid) as descriptor:
                select.select([descriptor], [], [], timeout_s)
            self._reap(os.WNOHANG)
        return self.ended is not None

    def end(self) -> Ended:
        """End it, kindly at first, where it still runs."""
        for stop in (self._process.terminate, self._process.kill):
            if self.ended is None:
                stop()
                self.wait(_END_S)
        return self.ended or self._reap(0)

    def _reap(self, options: int) -> Ended:
        pid, status, usage = os.wait4(self._process.pid, options)
        found = Ended(os.waitstatus_to_exitcode(status), usage.ru_utime, usage.ru_stime)
        if pid:
            self._process.returncode = found.exit_code
            self.ended = found
        return found


def sample(
    *,
    seconds: float | None = None,
    command: Sequence[str] | None = None,
    interval_s: float = 1.0,
    disks: Sequence[str] | None = None,
    host: str | None = None,
) -> TimeSeries:
    """Sample this host while a command runs, or for some seconds.

    Parameters
    ----------
    seconds : float, optional
    command : sequence of str, optional
        Its arguments; one of the two is needed. The command's output goes where ours does.
    interval_s, disks, host
        As of `LiveSampler`.

    Returns
    -------
    TimeSeries

    Raises
    ------
    MeasurementError
        When the host cannot be sampled, or the command not be started.
    """
    from measurements.timeseries.own import series_of

    if (seconds is None) == (command is None):
        raise MeasurementError("give sample() either seconds or a command")
    sampler = LiveSampler(interval_s=interval_s, disks=disks, host=host)
    if command is None:
        rows = list(sampler.rows(for_seconds(seconds or 0.0)))
    else:
        running = Command(command)
        try:
            rows = list(sampler.rows(running.wait))
        finally:
            running.end()
    return series_of(rows, f"{os.uname().nodename} (live)", sampler.caveats)


def for_seconds(
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Callable[[float], bool]:
    """Ending of a recording after so many seconds, for `LiveSampler.rows`."""
    end_s = clock() + seconds

    def ended(timeout_s: float) -> bool:
        wait(max(0.0, min(timeout_s, end_s - clock())))
        # Its last row may be due just before it ends.
        return clock() >= end_s - _SHORTEST_S

    return ended


@contextmanager
def _descriptor(pid: int) -> Iterator[int]:
    """Descriptor of a process, that is readable once it has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        with suppress(OSError):
            os.close(descriptor)


# Fixed numbers of the kernel for those that it starts with.
_HOST_NAMESPACES = {"cgroup": "cgroup:[4026531835]", "pid": "pid:[4026531836]"}
_ONLY_TICKS = (
    "CPU time is by ticks only: this kernel keeps no scheduler time of the whole host, so that "
    "what wakes and sleeps between ticks may be missed"
)


def _foreign_counters(procfs: Path, sysfs: Path, root: Path) -> str:
    """Say that this is a container that sees its host's counters; "" where it is not."""
    kind = container(root, procfs)
    contained = _has_own_namespace(procfs)
    if contained is None:
        contained = kind not in (None, "none")
    if not contained or _has_own_stat(procfs):
        return ""
    quota = group_state(sysfs, procfs).get("cpu_quota_cpus")
    limit = f", of which {quota:g} CPUs are allowed to it" if quota is not None else ""
    return (
        f"this is a container ({_kind(kind)}): CPU time, memory and disks are those of its whole "
        f"host{limit}, with whatever else runs there"
    )


def _kind(kind: str | None) -> str:
    return kind if kind and kind != "none" else "of an unknown kind"


def _has_own_namespace(procfs: Path) -> bool | None:
    """Whether processes or control groups are others than the host's; None where nothing tells.

    An image of a container that was started as a machine has its marks, though not its namespaces.
    """
    try:
        names = [str((procfs / "self/ns" / name).readlink()) for name in _HOST_NAMESPACES]
    except OSError:
        return None
    return any(n != own for n, own in zip(names, _HOST_NAMESPACES.values(), strict=True))


def _has_own_stat(procfs: Path) -> bool:
    """Whether something shows the container its own counters (lxcfs)."""
    try:
        mounts = (procfs / "self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(line.split()[4:5] == ["/proc/stat"] for line in mounts.splitlines())
