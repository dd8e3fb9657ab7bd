"""Whose the CPU time of a run was, and whether the kernel's accounts of it agree."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from measurements.errors import MeasurementError
from measurements.host.files import read_lines, read_number, read_text
from measurements.processes.settings_guard import Guard, not_restored
from measurements.timeseries.series import CPU_COLUMNS, SECTOR_BYTES, TASK_COLUMNS
from measurements.workloads.service import CutShortError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from measurements.processes.cleanup_process import Reaper

    Row = Mapping[str, Any]

    from measurements.workloads.io_study.bandwidth import BandwidthLoad, Told
    from measurements.workloads.io_study.loads import Instances


# CPU time that the scheduler counted for single processes and for a control group of one's own.


# Field of /proc/PID/stat with the flags, counted behind the name; and the flag of kernel threads.
_FLAGS_FIELD, _KERNEL_THREAD = 6, 0x00200000
# clockid_t of a process's CPU time as the kernel packs it: CPUCLOCK_SCHED.
_SCHEDULER_CLOCK = 2


def process_cpu_s(pid: int) -> float:
    """CPU time of a process with all its threads so far (s), to the ns; 0 where it has ended."""
    with suppress(OSError):
        return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)
    return 0.0


class KernelThreads:
    """Threads of the kernel, which do part of the I/O: workers of loop devices, of file systems."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._before = {pid: process_cpu_s(pid) for pid in _kernel_threads(procfs)}
        self._procfs = procfs

    def used_s(self) -> float:
        """CPU time since this was made (s); of those that ended meanwhile it is not known."""
        now = ((pid, process_cpu_s(pid)) for pid in _kernel_threads(self._procfs))
        return sum(max(used - self._before.get(pid, 0.0), 0.0) for pid, used in now)


def _kernel_threads(procfs: Path) -> Iterator[int]:
    for entry in os.listdir(procfs):  # noqa: PTH208  # a Path a process costs as much as reading it
        if entry.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                fields = (procfs / entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[_FLAGS_FIELD]) & _KERNEL_THREAD:
                    yield int(entry)


class ControlGroup(NamedTuple):
    """A control group of one's own, whose CPU time the kernel adds up.

    Attributes
    ----------
    folder : Path
    version : int
        1 (`cpuacct.usage`) or 2 (`cpu.stat`).
    """

    folder: Path
    version: int

    @classmethod
    def make(cls, reaper: Reaper, name: str, sysfs: Path, procfs: Path) -> ControlGroup | None:
        """Make one below this process's; None where that is not allowed."""
        for parent, version in _parents(sysfs, procfs):
            folder = reaper.will_group(name, parent)
            group = cls(folder, version)
            with suppress(OSError):
                folder.mkdir()
                if group.cpu_s() is not None and os.access(folder / "cgroup.procs", os.W_OK):
                    return group
                folder.rmdir()
        return None

    def cpu_s(self) -> float | None:
        """CPU time of all that was in it so far (s); None where it is not told."""
        if self.version == 1:
            return read_number(self.folder / "cpuacct.usage", 1e-9)
        usage = self._figures("cpu.stat").get("usage_usec")
        return None if usage is None else usage * 1e-6

    def user_and_system(self) -> tuple[float, float]:
        """CPU time by mode so far, as the ticks fell; in what unit depends on the version."""
        file, end = ("cpuacct.stat", "") if self.version == 1 else ("cpu.stat", "_usec")
        figures = self._figures(file)
        return figures.get(f"user{end}", 0), figures.get(f"system{end}", 0)

    def _figures(self, file: str) -> dict[str, int]:
        pairs = (line.split() for line in read_lines(self.folder / file))
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _parents(sysfs: Path, procfs: Path) -> Iterator[tuple[Path, int]]:
    """Control groups of this process that keep CPU time; the ones of version 1 are to the ns."""
    top = sysfs / "fs/cgroup"
    groups = [line.split(":", 2) for line in read_lines(procfs / "self/cgroup")]
    for number, controllers, path in sorted(groups, key=lambda g: g[0] == "0"):
        if "cpuacct" in controllers.split(","):
            yield from _there([top / controllers, top / "cpuacct"], path, "cpuacct.usage", 1)
        elif number == "0":
            yield from _there([top, top / "unified"], path, "cpu.stat", 2)


def _there(tops: Iterable[Path], path: str, file: str, version: int) -> Iterator[tuple[Path, int]]:
    for top in tops:
        # A container may see its own group as the top, under the name it has outside.
        for folder in (top / path.lstrip("/"), top):
            if (folder / file).exists() and (folder / "cgroup.procs").exists():
                yield folder, version
                return


# What the accounts of CPU time in a study's table say of each other.


# Ticks may miss, accounts differ and others take so much before it matters.
_MISSED, _APART, _OTHERS = 0.05, 0.02, 0.05
# Shorter than this, what starting a program costs tells in the comparison (s).
_ENOUGH_S = 0.2
# As long as a hundred ticks of the usual length (s).
_TICKS_TELL_S = 1.0


class Shortfall(NamedTuple):
    """Share of the scheduler's CPU time that the clock tick missed: of all runs, and at most.

    The most is that of runs long enough for ticks to tell; NaN where there is none.
    """

    all_runs: float
    worst: float


def tick_shortfall(table: pd.DataFrame) -> Shortfall | None:
    """Compare the two accounts of the host's CPU time; None where they were not both kept."""
    if not {"scheduled_s", "tick_busy_s"} <= set(table.columns):
        return None
    both = table[["scheduled_s", "tick_busy_s"]].dropna()
    ran = float(both["scheduled_s"].sum())
    if not ran > 0:
        return None
    long = both[both["scheduled_s"] >= _TICKS_TELL_S]
    worst = float((1.0 - long["tick_busy_s"] / long["scheduled_s"]).max())
    return Shortfall(1.0 - float(both["tick_busy_s"].sum()) / ran, worst)


def accounts_apart(table: pd.DataFrame) -> float | None:
    """Largest difference of the programs' control group from what `os.wait4` told, as a share."""
    if not {"group_s", "rusage_s"} <= set(table.columns):
        return None
    both = table[["group_s", "rusage_s"]].dropna()
    both = both[both["rusage_s"] > _ENOUGH_S]
    return float((both["group_s"] / both["rusage_s"] - 1.0).abs().max()) if len(both) else None


def findings(table: pd.DataFrame) -> Iterator[str]:
    """Say how CPU time was counted, and warn where an account is not to be trusted."""
    missed = tick_shortfall(table)
    if missed is None:
        yield (
            "warning: CPU time is by clock ticks: this kernel keeps no scheduler time of the host"
        )
    else:
        warns = "warning: " if missed.all_runs > _MISSED or missed.worst > _MISSED else ""
        worst = f", {missed.worst:.0%} in one run" if missed.worst > missed.all_runs else ""
        yield (
            f"{warns}the clock tick missed {missed.all_runs:.1%} of the scheduler's CPU time{worst}"
        )
    apart = accounts_apart(table)
    if apart is not None:
        warns = "warning: " if apart > _APART else ""
        yield f"{warns}control group and rusage of the programs agree within {apart:.1%}"
    if "other_programs_s" in table and "host" in set(table["scope"]):
        share = float((table["other_programs_s"] / table["scheduled_s"]).max())
        if share > _OTHERS:
            yield (
                f"warning: other programs took up to {share:.0%} of the host's CPU time, which is "
                "counted to the I/Os: leave the host to the study, or count with --scope own"
            )
    yield from _io_of_others(table)


def _io_of_others(table: pd.DataFrame) -> Iterator[str]:
    if "process_sectors" not in table or "direct" not in table:
        return
    of_host = table[(table["scope"] == "host") & table["direct"].eq(True)]
    ios = of_host["sectors_read"] + of_host["sectors_written"]
    share = float((1.0 - of_host["process_sectors"] / ios.where(ios > 0)).max())
    if share > _OTHERS:
        yield (
            f"warning: up to {share:.0%} of the sectors were not fio's: other programs use the "
            "disks; leave them to the study, or count with --scope own"
        )


# The kernel's unbound workers kept on the cores of a run: they do part of the I/O.
#
# Loop devices, file systems and encryption hand work to kernel threads that run wherever a CPU is
# free, so that a workload on one core has the help of others. The kernel lets no user place these
# threads, but it has one mask for all of them.


class KernelWorkers:
    """Confines them to some CPUs until left; then, or when ppw dies, all is as it was.

    Raises
    ------
    MeasurementError
        Where the kernel has no such mask, or another ppw has changed it.
    """

    def __init__(self, sysfs: Path) -> None:
        self._mask = sysfs / "devices/virtual/workqueue/cpumask"
        was = read_text(self._mask)
        if was is None:
            raise MeasurementError(
                f"{self._mask}: cannot be read: this kernel's workers cannot be kept on some "
                "cores: leave --confine-kernel out"
            )
        self._guard = Guard(lock=self._mask.parent)
        self._guard.learn([(self._mask, was)])

    def confine(self, cpus: Collection[int]) -> None:
        """Keep them on these CPUs from now on. Raises `MeasurementError` where it is refused."""
        self._guard.change(self._mask, cpu_mask(cpus))

    def close(self) -> None:
        """Put the mask back. Raises `MeasurementError` where it could not be."""
        if unrestored := self._guard.release():
            raise MeasurementError(not_restored(unrestored))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cpu_mask(cpus: Collection[int]) -> str:
    """Write CPUs as the kernel's masks are: groups of 32 bits, the highest first.

    >>> cpu_mask([0, 1, 33])
    '2,00000003'
    """
    bits = sum(1 << cpu for cpu in set(cpus))
    groups: list[str] = []
    while bits or not groups:
        groups.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    groups[-1] = groups[-1].lstrip("0") or "0"
    return ",".join(reversed(groups))


# Columns of a run from the intervals that it was sampled in: CPU time, sectors, what was odd.


_SECTORS = ("sectors_read", "sectors_written")
_NEEDED = (*TASK_COLUMNS, "idle_s", *_SECTORS)
_NAMED = {
    "device new": "a disk appeared: what it did since is counted",
    "device gone": "a disk disappeared: what it did last is not counted",
    "gap": "an interval was far longer than the others",
    "clock back": "the host's clock went back: intervals are by one that does not",
}


class Own(NamedTuple):
    """What a workload and the kernel's threads did, without other programs.

    CPU times in seconds; sectors of 512 B, None where those of the devices have to do.
    """

    user_s: float
    system_s: float
    sectors_read: float | None = None
    sectors_written: float | None = None

    def columns(self) -> dict[str, float]:
        """Columns that they take the place of."""
        known = {name: value for name, value in self._asdict().items() if value is not None}
        return {**known, "nice_s": 0.0}


class LostCountError(CutShortError):
    """A count that a run needs went back, or went away, so that the run tells nothing."""

    def __init__(self, lost: Sequence[str]) -> None:
        # Another message than that of a load that was cut short; what is done is the same.
        super(CutShortError, self).__init__(
            f"counters behind {', '.join(lost)} went back or away during the run: a disk or the "
            "kernel's statistics were set anew; nothing is computed from them",
        )


def window_columns(
    rows: Sequence[Row], *, cpus: int, taken_s: float = 0.0, own: Own | None = None
) -> dict[str, Any]:
    """Add up the intervals of a run.

    Parameters
    ----------
    rows : sequence of mapping
        Of `measurements.timeseries.LiveSampler`.
    cpus : int
        Logical CPUs that the workload may use. Idle time is what they have left when all CPU
        time of the host is taken off, wherever it was spent.
    taken_s : float
        CPU time (s), in user mode, of a load beside the workload on CPUs of its own.
    own : Own, optional
        Stands for what the host did, where others than the workload run there too.

    Returns
    -------
    dict of column to value
        ``sampled_s`` (s), CPU times (s), sectors (512 B), ``cpu_accounting``, ``scope`` (of the
        "host", or "own"), ``scheduled_s`` and ``tick_busy_s`` of the host where they are
        known, ``intervals`` and ``intervals_without_io``, and ``io_notes`` where something was odd.

    Raises
    ------
    LostCountError
        When a count went back or away: nothing is guessed.
    """
    lost = [name for name in _NEEDED if any(row.get(name) is None for row in rows)]
    if lost:
        raise LostCountError(lost)
    seconds = sum(row["interval_s"] for row in rows)
    columns: dict[str, Any] = {"sampled_s": seconds}
    columns |= {name: _sum(rows, name) for name in (*CPU_COLUMNS, *_SECTORS)}
    columns["user_s"] = max(columns["user_s"] - taken_s, 0.0)
    if own is not None:
        columns |= own.columns()
    columns |= _unused(columns, cpus * seconds)
    by_scheduler = all(row["cpu_accounting"] == "scheduler" for row in rows)
    quiet = sum(not any(row[name] for name in _SECTORS) for row in rows)
    return columns | {
        "cpu_accounting": "scheduler" if by_scheduler or own is not None else "tick",
        "scope": "host" if own is None else "own",
        "scheduled_s": _sum(rows, "scheduled_s") if by_scheduler else None,
        "tick_busy_s": _sum(rows, "tick_busy_s"),
        "intervals": len(rows),
        "intervals_without_io": quiet,
        "io_notes": "; ".join(_notes(rows, quiet)) or None,
    }


def _sum(rows: Iterable[Row], name: str) -> float | None:
    """Sum of a column; None where the kernel does not count it, or it is not known throughout."""
    values = [row.get(name) for row in rows]
    return None if None in values else float(sum(value for value in values if value is not None))


def _unused(columns: Row, capacity_s: float) -> dict[str, float | None]:
    """Idle time of the CPUs used, and how much of it was spent waiting for I/O."""
    unused = ("idle_s", "iowait_s")
    taken_s = sum(columns[name] or 0.0 for name in CPU_COLUMNS if name not in unused)
    left_s = max(0.0, capacity_s - taken_s)
    if columns["iowait_s"] is None:
        return {"idle_s": left_s}
    host_s = columns["idle_s"] + columns["iowait_s"]
    waiting = columns["iowait_s"] / host_s if host_s else 0.0
    return {"idle_s": left_s * (1 - waiting), "iowait_s": left_s * waiting}


def _notes(rows: Sequence[Row], quiet: int) -> Iterable[str]:
    marks = {mark for row in rows for mark in row["marks"].split("; ")}
    yield from (said for mark, said in _NAMED.items() if mark in marks)
    if quiet == len(rows):
        yield "no sector was read or written: there are no cycles per I/O"
    elif quiet:
        yield f"{quiet} of {len(rows)} intervals had no I/O"


@dataclass
class Accounts:
    """CPU time of the programs of a run, of the kernel's threads, and of a load beside them.

    Made before the programs start; `open` and `look` are called at the ends of the window.
    """

    instances: Instances
    taking: BandwidthLoad | None
    procfs: Path

    processes_s: float = 0.0
    kernel_s: float = 0.0
    taken_s: float = 0.0
    """CPU times in the window so far (s): of the programs, the kernel's threads, the load."""
    moved_sectors: tuple[float, float] = (0.0, 0.0)
    """What the programs themselves, without children, read and wrote in the window (512 B)."""

    def __post_init__(self) -> None:
        self._group_before_s = self._group_s()
        self._told: Told | None = None

    def open(self) -> None:
        """Begin the window."""
        self._told = None if self.taking is None else self.taking.told()
        self._taken_at_s = self._taken_now_s()
        self._kernel = KernelThreads(self.procfs)
        self._modes_at = self._modes_now()
        self._bytes_at = moved_bytes(self.instances.pids, self.procfs)
        self._processes_at_s = self._processes_now_s()

    def look(self) -> None:
        """Bring the CPU times up to now."""
        self.processes_s = self._processes_now_s() - self._processes_at_s
        self.kernel_s = self._kernel.used_s()
        self.taken_s = self._taken_now_s() - self._taken_at_s
        self._modes = self._modes_now()
        now = moved_bytes(self.instances.pids, self.procfs)
        read, written = (n - at for n, at in zip(now, self._bytes_at, strict=True))
        self.moved_sectors = read / SECTOR_BYTES, written / SECTOR_BYTES

    def own(self, *, sectors: bool) -> Own:
        """What the programs and the kernel's threads did alone, in the window.

        ``sectors`` says whether what the programs moved went past the page cache, so that it
        went to the device at once, and whether they have no children.
        """
        user, system = (now - at for now, at in zip(self._modes, self._modes_at, strict=True))
        share = user / (user + system) if user + system > 0 else 1.0
        user_s = share * self.processes_s
        system_s = self.processes_s - user_s + self.kernel_s
        return Own(user_s, system_s, *self.moved_sectors) if sectors else Own(user_s, system_s)

    def columns(self, scheduled_s: float | None) -> dict[str, Any]:
        """Columns of the runs table, once the programs have ended.

        Parameters
        ----------
        scheduled_s : float or None
            CPU time of all tasks of the host in the window, by the scheduler.
        """
        group, known_s = self.instances.group, self.processes_s + self.kernel_s + self.taken_s
        columns: dict[str, Any] = {
            "processes_s": self.processes_s,
            "processes_by": "clocks" if group is None else f"control group v{group.version}",
            "kernel_threads_s": self.kernel_s,
            "rusage_s": self.instances.rusage_s,
        }
        if scheduled_s is not None:
            columns["other_programs_s"] = max(scheduled_s - known_s, 0.0)
        if self._group_before_s is not None:
            columns["group_s"] = (self._group_s() or 0.0) - self._group_before_s
        if self.taking is not None and self._told is not None:
            columns["bandwidth_taken_bytes_s"] = self.taking.rate_since(self._told)
        return columns

    def _modes_now(self) -> tuple[float, float]:
        group = self.instances.group
        return (0.0, 0.0) if group is None else group.user_and_system()

    def _group_s(self) -> float | None:
        return None if self.instances.group is None else self.instances.group.cpu_s()

    def _processes_now_s(self) -> float:
        """By the control group, which knows their children too, or by each one's clock."""
        used = self._group_s()
        return sum(map(process_cpu_s, self.instances.pids)) if used is None else used

    def _taken_now_s(self) -> float:
        return 0.0 if self.taking is None else self.taking.cpu_s()


def moved_bytes(pids: Iterable[int], procfs: Path) -> tuple[int, int]:
    """Bytes that processes caused to be read from and written to devices so far."""
    read = written = 0
    for pid in pids:
        with suppress(OSError, ValueError, KeyError):
            lines = (procfs / str(pid) / "io").read_text().splitlines()
            figures = dict(line.split(": ") for line in lines)
            read += int(figures["read_bytes"])
            written += int(figures["write_bytes"])
    return read, written
