"""Sample this host as it runs, one row an interval, until a command, a time or the user ends it."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.host import activity, files, processor
from measurements.processes import programs
from measurements.table.headers import list_names
from measurements.timeseries import series

Row = dict[str, Any]

# A reading that much later than due leaves a gap.
_GAP = 1.5
# Rates over a shorter interval are noise.
_SHORTEST_S = 0.02
# Time that a command has to end after a signal.
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
        self._kernel = _Kernel(procfs, sysfs, disks, clock)
        self._last = self._kernel.read()
        foreign = _foreign_counters(procfs, sysfs, root)
        self._marks = ["container"] if foreign else []
        by_ticks = "" if self._last.scheduled_s is not None else _ONLY_TICKS
        self.caveats = tuple(text for text in (foreign, by_ticks) if text)

    def row(self) -> dict[str, Any]:
        """Read the columns of the time since the row before, or since the start.

        A value that is not known is None.
        """
        before, self._last = self._last, self._kernel.read()
        interval = _Interval(before, self._last, self._kernel)
        row = interval.row(self._host)
        late = ["gap"] if interval.seconds > _GAP * self.interval_s else []
        return row | {"marks": "; ".join([*interval.marks, *late, *self._marks])}

    def rows(self, ended: Callable[[float], bool]) -> Iterator[dict[str, Any]]:
        """Yield a row at every interval, and one for what is left when it ends.

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


def sample(
    *,
    seconds: float | None = None,
    command: Sequence[str] | None = None,
    interval_s: float = 1.0,
    disks: Sequence[str] | None = None,
    host: str | None = None,
) -> series.TimeSeries:
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
    if (seconds is None) == (command is None):
        raise MeasurementError("give sample() either seconds or a command")
    sampler = LiveSampler(interval_s=interval_s, disks=disks, host=host)
    if command is None:
        rows = list(sampler.rows(for_seconds(seconds or 0.0)))
    else:
        running = Command(command)
        try:
            rows = list(running.rows(sampler))
        finally:
            running.end()
    return series.series_of(rows, f"{os.uname().nodename} (live)", sampler.caveats)


def for_seconds(
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Callable[[float], bool]:
    """End a recording after so many seconds; for `LiveSampler.rows`."""
    end_s = clock() + seconds

    def wait_for_end(timeout_s: float) -> bool:
        wait(max(0.0, min(timeout_s, end_s - clock())))
        # Its last row may be due just before it ends.
        return clock() >= end_s - _SHORTEST_S

    return wait_for_end


class CommandEnd(NamedTuple):
    """Exit code of a command (negative for a signal), and its CPU time with its children."""

    exit_code: int
    user_s: float
    system_s: float


class Command:
    """A command that runs while its host is sampled."""

    def __init__(self, arguments: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(arguments, env=programs.environment_without_secrets())  # nosec B603  # the user's own command
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise MeasurementError(
                f"{arguments[0] if arguments else ''}: cannot be started: {reason}: give the "
                "command after --, with its path where it is not on PATH"
            ) from error
        self.ended: CommandEnd | None = None

    def wait(self, timeout_s: float) -> bool:
        """Wait so long at most; return whether it has ended."""
        if self.ended is None:
            # A descriptor of a process can be read once that has ended.
            descriptor = os.pidfd_open(self._process.pid)
            try:
                select.select([descriptor], [], [], timeout_s)
            finally:
                with suppress(OSError):
                    os.close(descriptor)
            self._wait_for_exit(os.WNOHANG)
        return self.ended is not None

    def rows(self, sampler: LiveSampler) -> Iterator[Row]:
        """Yield rows until the command has ended; the last one has its CPU time."""
        for row in sampler.rows(self.wait):
            own_s = None if self.ended is None else self.ended.user_s + self.ended.system_s
            yield row | {"command_cpu_s": own_s}

    def end(self) -> CommandEnd:
        """Terminate it where it still runs, and kill it where that does not help."""
        for stop in (self._process.terminate, self._process.kill):
            if self.ended is None:
                stop()
                self.wait(_END_S)
        return self.ended or self._wait_for_exit(0)

    def _wait_for_exit(self, options: int) -> CommandEnd:
        """Call `os.wait4` with ``options``; keep and return how the command ended, if it has."""
        pid, status, usage = os.wait4(self._process.pid, options)
        found = CommandEnd(os.waitstatus_to_exitcode(status), usage.ru_utime, usage.ru_stime)
        if pid:
            self._process.returncode = found.exit_code
            self.ended = found
        return found


class _Counts(NamedTuple):
    """What the kernel had counted since its start."""

    at_s: float  # by `time.monotonic`
    time_s: float
    ticks: dict[str, int]  # CPU times of /proc/stat by column
    numbers: dict[str, int]  # single counts of /proc/stat and /proc/vmstat
    memory: dict[str, float]
    scheduled_s: float | None
    disks: dict[str, tuple[int, ...]]  # counts of their fields below, as of interfaces
    interfaces: dict[str, tuple[int, ...]]
    cpus: int


# Fields of /proc/diskstats: I/Os, sectors and milliseconds of reads, of writes; milliseconds that
# any was in progress, and summed over those in progress.
_DISK_FIELDS = (3, 5, 6, 7, 9, 10, 12, 13)
# Fields of /proc/net/dev behind the name, and which of these a column is the sum of.
_NETWORK_FIELDS = (0, 1, 2, 3, 8, 9, 10, 11)
_NETWORK = {
    "network_rx_bytes": (0,),
    "network_tx_bytes": (4,),
    "network_rx_packets": (1,),
    "network_tx_packets": (5,),
    "network_rx_drops": (3,),
    "network_tx_drops": (7,),
    "network_errors": (2, 6),
}
_MEMORY = {
    "MemTotal": "memory_total_bytes",
    "MemFree": "memory_free_bytes",
    "MemAvailable": "memory_available_bytes",
    "Cached": "memory_cached_bytes",
    "Buffers": "memory_buffers_bytes",
    "Inactive": "memory_inactive_bytes",
}
_VMSTAT = {"pswpin": "swap_in_bytes", "pswpout": "swap_out_bytes", "pgmajfault": "major_faults"}
_PRESSURE_KINDS = {"some": "waiting", "full": "stalled"}
# Fields of CPU times in /proc/stat with the guests'.
_WITH_GUESTS = 10


class _Kernel:
    """Reads the kernel's counts of one host, again and again."""

    def __init__(
        self, procfs: Path, sysfs: Path, disks: Sequence[str] | None, clock: Callable[[], float]
    ) -> None:
        self.ticks_per_s = float(os.sysconf("SC_CLK_TCK"))
        self.page_bytes = float(os.sysconf("SC_PAGE_SIZE"))
        self.speeds: dict[str, float] = {}
        self._procfs, self._sysfs, self._clock = procfs, sysfs, clock
        self._wanted_disks = None if disks is None else frozenset(disks)
        # Names at the reading before, and which of them count for the host.
        self._disk_names = self._disks = frozenset[str]()
        self._interface_names = self.host_interfaces = frozenset[str]()
        known = [row[2] for row in self._read_diskstats_rows()]
        if missing := sorted((self._wanted_disks or frozenset()) - set(known)):
            raise MeasurementError(
                f"{procfs / 'diskstats'}: has no disk {list_names(missing)}; its disks are "
                f"{list_names(known)}"
            )

    def read(self) -> _Counts:
        """Read all now; refuse a host without /proc/stat of Linux."""
        at_s, time_s = self._clock(), time.time()
        ticks, numbers, cpus = self._read_ticks_numbers_cpus()
        sizes = {}
        for name, rest in files.read_pairs(self._procfs / "meminfo"):
            if name in _MEMORY or name.startswith("Swap"):
                sizes[name] = int(rest.split()[0]) * 1024.0
        memory = {column: sizes[name] for name, column in _MEMORY.items() if name in sizes}
        if {"SwapTotal", "SwapFree"} <= sizes.keys():
            memory["swap_used_bytes"] = sizes["SwapTotal"] - sizes["SwapFree"]
        scheduled_s = activity.scheduled_s(self._procfs, self._sysfs)
        devices = self._read_disk_counts(), self._read_interface_counts()
        return _Counts(at_s, time_s, ticks, numbers, memory, scheduled_s, *devices, cpus)

    def _read_ticks_numbers_cpus(self) -> tuple[dict[str, int], dict[str, int], int]:
        ticks: dict[str, int] = {}
        numbers = {}
        cpus = 0
        for line in files.read_lines(self._procfs / "stat"):
            name, _, figures = line.partition(" ")
            if name == "cpu":
                fields = [int(field) for field in figures.split()]
                ticks = dict(zip(activity.COLUMNS, fields, strict=False))
                if len(fields) >= _WITH_GUESTS:
                    ticks["guest_s"] = sum(fields[_WITH_GUESTS - 2 : _WITH_GUESTS])
            elif name.startswith("cpu"):
                cpus += 1
            elif name == "ctxt" or name.startswith("procs_"):
                numbers[name] = int(figures)
        if not ticks or not cpus:
            raise MeasurementError(
                f"{self._procfs / 'stat'}: has no CPU times: only a Linux host can be sampled"
            )
        for line in files.read_lines(self._procfs / "vmstat"):
            name, _, figures = line.partition(" ")
            if name in _VMSTAT:
                numbers[name] = int(figures)
        for resource in ("cpu", "io", "memory"):
            for line in files.read_lines(self._procfs / "pressure" / resource):
                kind, _, figures = line.partition(" ")
                column = f"{resource}_{_PRESSURE_KINDS.get(kind)}_s"
                if column in series.PRESSURES:
                    numbers[column] = int(figures.rpartition("total=")[2])
        return ticks, numbers, cpus

    def _read_diskstats_rows(self) -> list[list[str]]:
        rows = [line.split() for line in files.read_lines(self._procfs / "diskstats")]
        return [row for row in rows if len(row) > _DISK_FIELDS[-1]]

    def _read_disk_counts(self) -> dict[str, tuple[int, ...]]:
        rows = self._read_diskstats_rows()
        names = frozenset(row[2] for row in rows)
        # Which of them are physical is looked up as they come and go only.
        if names != self._disk_names and self._wanted_disks is None:
            self._disk_names = names
            physical = activity.physical_disks(self._sysfs)
            # sysfs cannot have the slash of names such as cciss/c0d0.
            self._disks = frozenset(name for name in names if name.replace("/", "!") in physical)
        kept = self._disks if self._wanted_disks is None else self._wanted_disks
        return {row[2]: tuple(int(row[n]) for n in _DISK_FIELDS) for row in rows if row[2] in kept}

    def _read_interface_counts(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for line in files.read_lines(self._procfs / "net/dev")[2:]:
            name, _, figures = line.rpartition(":")
            fields = figures.split()
            if len(fields) > _NETWORK_FIELDS[-1]:
                found[name.strip()] = tuple(int(fields[n]) for n in _NETWORK_FIELDS)
        if found.keys() != self._interface_names:
            self._interface_names = frozenset(found)
            self.host_interfaces = frozenset(activity.interface_bytes(self._procfs, self._sysfs))
            folder = self._sysfs / "class/net"
            rates = {n: files.read_number(folder / n / "speed") for n in self.host_interfaces}
            self.speeds = {
                series.of_device("network_speed_bytes_s", name): rate * series.MEGABIT_BYTES
                for name, rate in rates.items()
                if rate and rate > 0
            }
        # What goes over the loopback costs CPU time, though no wire.
        kept = self.host_interfaces | {"lo"}
        return {name: counts for name, counts in found.items() if name in kept}


class _Interval:
    """What happened between two readings of the kernel's counts."""

    def __init__(self, before: _Counts, after: _Counts, kernel: _Kernel) -> None:
        self._before, self._after, self._kernel = before, after, kernel
        self.seconds = after.at_s - before.at_s
        # In the order in which they were found.
        self.marks: dict[str, None] = {}

    def row(self, host: str) -> Row:
        """Make the columns of the interval, and find its marks; None where it is not known."""
        if self._after.time_s < self._before.time_s:
            self.marks["clock back"] = None
        return {
            "time_s": self._after.time_s,
            "interval_s": self.seconds,
            "host": host,
            "cpus": self._after.cpus,
            "hz": self._kernel.ticks_per_s,
            **self._cpu_columns(),
            **self._system_columns(),
            **self._after.memory,
            **self._all_disk_columns(),
            **self._interface_columns(),
        }

    def _growth(self, before: Any, after: Any) -> Any:
        """Difference of two counts; None where one is not known or the count went back."""
        if before is None or after is None:
            return None
        if after < before:
            self.marks["counter back"] = None
            return None
        return after - before

    def _cpu_columns(self) -> Row:
        before, after = self._before, self._after
        row: Row = {}
        for column in (*series.CPU_COLUMNS, "guest_s"):
            grown = self._growth(before.ticks.get(column), after.ticks.get(column))
            row[column] = None if grown is None else grown / self._kernel.ticks_per_s
        tick_busy_s = _scaled_sum([row[column] for column in series.TASK_COLUMNS])
        scheduled_s = self._growth(before.scheduled_s, after.scheduled_s)
        row["cpu_accounting"] = "tick" if scheduled_s is None else "scheduler"
        if scheduled_s is not None:
            row |= _by_scheduler(row, scheduled_s, tick_busy_s, after.cpus * self.seconds)
        return row | {"scheduled_s": scheduled_s, "tick_busy_s": tick_busy_s}

    def _system_columns(self) -> Row:
        row: Row = {}
        for name, column in {"ctxt": "context_switches", **_VMSTAT}.items():
            grown = self._growth(self._before.numbers.get(name), self._after.numbers.get(name))
            factor = self._kernel.page_bytes if name.startswith("pswp") else 1.0
            row[column] = None if grown is None else grown * factor
        for column in series.PRESSURES:
            grown = self._growth(self._before.numbers.get(column), self._after.numbers.get(column))
            row[column] = None if grown is None else grown / 1e6
        # The sampler itself is one of the tasks that run.
        running = self._after.numbers.get("procs_running")
        row["run_queue"] = None if running is None else max(0, running - 1)
        row["blocked"] = self._after.numbers.get("procs_blocked")
        return row

    def _all_disk_columns(self) -> Row:
        grown = self._device_growth(self._before.disks, self._after.disks)
        each = {
            series.of_device(column, disk): value
            for disk, counts in grown.items()
            for column, value in _disk_columns(counts, self.seconds).items()
        }
        totals = {
            total: _scaled_sum([each[series.of_device(column, disk)] for disk in grown], factor)
            for total, (column, factor) in series.DISK_TOTALS.items()
        }
        return totals | each

    def _interface_columns(self) -> Row:
        grown = self._device_growth(self._before.interfaces, self._after.interfaces)
        each = {
            series.of_device(column, name): _scaled_sum([counts[n] for n in fields], 1.0)
            for name, counts in grown.items()
            for column, fields in _NETWORK.items()
        }
        counted = [name for name in grown if name in self._kernel.host_interfaces]
        totals = {
            column: _scaled_sum([each[series.of_device(column, name)] for name in counted], 1.0)
            for column in _NETWORK
        }
        return totals | each | self._kernel.speeds

    def _device_growth(
        self, before: Mapping[str, Sequence[int]], after: Mapping[str, Sequence[int]]
    ) -> dict[str, list[int | None]]:
        """Differences of the counts of each device; mark those that came and went."""
        if after.keys() - before.keys():
            self.marks["device new"] = None
        if before.keys() - after.keys():
            self.marks["device gone"] = None
        # What a new one did, it did since the reading before.
        pairs = {name: (before.get(name, [0] * len(c)), c) for name, c in after.items()}
        return {n: [self._growth(a, b) for a, b in zip(*p, strict=True)] for n, p in pairs.items()}


def _scaled_sum(parts: Sequence[Any], factor: float = 1) -> float | None:
    """Sum times a factor; None where a part is not known or there is none."""
    return None if not parts or None in parts else sum(parts) * factor


def _by_scheduler(row: Row, scheduled_s: float, tick_busy_s: float | None, limit_s: float) -> Row:
    """CPU time of tasks as the scheduler counted it, split as the ticks are.

    The kernel splits the time of a process in the same way (cputime_adjust): without a tick in
    it, all is the user's. What tasks, interrupts and the hypervisor leave is idle or iowait.
    """
    found: Row = {}
    if tick_busy_s:
        split = (*series.TASK_COLUMNS, *(["guest_s"] if row["guest_s"] is not None else []))
        found = {column: row[column] * scheduled_s / tick_busy_s for column in split}
    elif tick_busy_s == 0:
        found = {"user_s": scheduled_s, "nice_s": 0.0, "system_s": 0.0}
    if row["idle_s"] is None or row["iowait_s"] is None:
        return found
    taken_s = scheduled_s + sum(row[c] or 0.0 for c in ("irq_s", "softirq_s", "steal_s"))
    return found | split_idle(row, max(0.0, limit_s - taken_s))


def split_idle(row: Mapping[str, Any], left_s: float) -> Row:
    """Split what CPUs have left (s) into idle and iowait, in proportion to those of a row."""
    idle_s = row["idle_s"] + row["iowait_s"]
    waiting_share = row["iowait_s"] / idle_s if idle_s else 0.0
    return {"idle_s": left_s * (1 - waiting_share), "iowait_s": left_s * waiting_share}


def _disk_columns(grown: Sequence[int | None], interval_s: float) -> Row:
    reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms, queue_ms = grown
    ios = _scaled_sum((reads, writes), 1.0)
    spent_s = _scaled_sum((read_ms, write_ms), 1e-3)
    return {
        "disk_read_bytes": _scaled_sum((sectors_read,), series.SECTOR_BYTES),
        "disk_written_bytes": _scaled_sum((sectors_written,), series.SECTOR_BYTES),
        "disk_ios": ios,
        "disk_ios_read": reads,
        "disk_ios_written": writes,
        "disk_busy_share": _scaled_sum((busy_ms,), 1e-3 / interval_s),
        "disk_queue": _scaled_sum((queue_ms,), 1e-3 / interval_s),
        "disk_wait_s": spent_s / ios if ios and spent_s is not None else None,
    }


# Fixed numbers of the kernel for the namespaces that it starts with.
_HOST_NAMESPACES = {"cgroup": "cgroup:[4026531835]", "pid": "pid:[4026531836]"}
_ONLY_TICKS = (
    "CPU time is counted by clock ticks, because this kernel keeps no scheduler time of the "
    "whole host: tasks that wake and sleep between ticks may be missed"
)


def _foreign_counters(procfs: Path, sysfs: Path, root: Path) -> str:
    """Say that this is a container that sees its host's counters; "" where it is not."""
    kind = processor.container(root, procfs)
    kind = None if kind == "none" else kind
    contained = _has_own_namespace(procfs)
    if contained is None:
        contained = kind is not None
    # A file system such as lxcfs shows the container its own counters.
    mounts = files.read_field(procfs / "self/mountinfo").splitlines()
    has_own_stat = any(line.split()[4:5] == ["/proc/stat"] for line in mounts)
    if has_own_stat or not contained:
        return ""
    quota = activity.group_state(sysfs, procfs).get("cpu_quota_cpus")
    limit = f", of which {quota:g} CPUs are allowed to it" if quota is not None else ""
    return (
        f"this is a container ({kind or 'of an unknown kind'}): CPU time, memory and "
        f"disks are those of its whole host{limit}, with whatever else runs there"
    )


def _has_own_namespace(procfs: Path) -> bool | None:
    """Check whether processes or control groups are others than the host's; None if unknown.

    An image of a container that was started as a machine has its marks, though not its namespaces.
    """
    try:
        names = {str((procfs / "self/ns" / name).readlink()) for name in _HOST_NAMESPACES}
    except OSError:
        return None
    return names != set(_HOST_NAMESPACES.values())
