"""Whose the CPU time of a run was, and whether the kernel's accounts of it agree."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.host import activity, files
from measurements.processes import cleanup_process, settings_guard
from measurements.workloads.clients import io_counts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    import pandas as pd

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
    """CPU time of the kernel's threads, which do part of the I/O for loop devices and the like."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._before = {pid: process_cpu_s(pid) for pid in _kernel_thread_pids(procfs)}
        self._procfs = procfs

    def used_s(self) -> float:
        """CPU time since this was made (s), without that of threads that ended meanwhile."""
        now = ((pid, process_cpu_s(pid)) for pid in _kernel_thread_pids(self._procfs))
        return sum(max(used - self._before.get(pid, 0.0), 0.0) for pid, used in now)


def _kernel_thread_pids(procfs: Path) -> Iterator[int]:
    for entry in os.listdir(procfs):  # noqa: PTH208  # a Path a process costs as much as reading it
        if entry.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                fields = (procfs / entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[_FLAGS_FIELD]) & _KERNEL_THREAD:
                    yield int(entry)


class ControlGroup(NamedTuple):
    """A control group of one's own, whose CPU time the kernel adds up."""

    folder: Path
    version: int  # 1 (`cpuacct.usage`) or 2 (`cpu.stat`)

    @classmethod
    def make(
        cls, reaper: cleanup_process.CleanupProcess, name: str, sysfs: Path, procfs: Path
    ) -> ControlGroup | None:
        """Make one below that of this process; None where that is not allowed."""
        groups = list(activity.control_groups(sysfs, procfs, "cpuacct"))
        # Version 1, which counts to the nanosecond, comes first.
        names = (("cpuacct.usage", 1), ("cpu.stat", 2))
        for parent, version in [(g, v) for n, v in names for g in groups if (g / n).exists()]:
            folder = reaper.will_group(name, parent)
            group = cls(folder, version)
            with suppress(OSError):
                folder.mkdir()
                if group.cpu_s() is not None and os.access(folder / "cgroup.procs", os.W_OK):
                    return group
                folder.rmdir()
        return None

    def cpu_s(self) -> float | None:
        """CPU time of all that was in it so far (s); None where not known."""
        if self.version == 1:
            return files.read_number(self.folder / "cpuacct.usage", 1e-9)
        usage = files.read_counts(self.folder / "cpu.stat").get("usage_usec")
        return None if usage is None else usage * 1e-6

    def user_and_system(self) -> tuple[float, float]:
        """CPU time by mode so far, by clock ticks; the unit depends on the version."""
        file, end = ("cpuacct.stat", "") if self.version == 1 else ("cpu.stat", "_usec")
        counts = files.read_counts(self.folder / file)
        return counts.get(f"user{end}", 0), counts.get(f"system{end}", 0)


# Thresholds of the warnings: shares that ticks miss, accounts differ and other programs take.
_MISSED, _APART, _OTHERS = 0.05, 0.02, 0.05
# In shorter runs (s) the start of a program weighs in the comparison.
_ENOUGH_S = 0.2
# As long as a hundred ticks of the usual length (s).
_TICKS_TELL_S = 1.0


def tick_shortfall(table: pd.DataFrame) -> tuple[float, float] | None:
    """Share of CPU time that ticks missed, of all runs, and the largest of long ones; or None."""
    both = _complete_rows(table, "scheduled_s", "tick_busy_s")
    ran = float(both["scheduled_s"].sum()) if len(both) else 0.0
    if not ran > 0:
        return None
    long = both[both["scheduled_s"] >= _TICKS_TELL_S]
    worst = float((1.0 - long["tick_busy_s"] / long["scheduled_s"]).max())
    return 1.0 - float(both["tick_busy_s"].sum()) / ran, worst


def accounts_apart(table: pd.DataFrame) -> float | None:
    """Largest relative difference between the programs' control group and `os.wait4`."""
    both = _complete_rows(table, "group_s", "rusage_s")
    if len(both):
        both = both[both["rusage_s"] > _ENOUGH_S]
    return float((both["group_s"] / both["rusage_s"] - 1.0).abs().max()) if len(both) else None


def _complete_rows(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Rows in which all columns are known; none where a column is missing."""
    return table.reindex(columns=list(columns)).dropna()


def findings(table: pd.DataFrame) -> Iterator[str]:
    """Say how CPU time was counted, and warn where an account is not to be trusted."""
    missed = tick_shortfall(table)
    if missed is None:
        yield (
            "warning: CPU time is by clock ticks: this kernel keeps no scheduler time of the host"
        )
    else:
        share, most = missed
        warns = "warning: " if share > _MISSED or most > _MISSED else ""
        worst = f", {most:.0%} in one run" if most > share else ""
        yield f"{warns}the clock tick missed {share:.1%} of the scheduler's CPU time{worst}"
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
    if "process_sectors" in table and "direct" in table:
        of_host = table[(table["scope"] == "host") & table["direct"].eq(True)]
        ios = of_host["sectors_read"] + of_host["sectors_written"]
        share = float((1.0 - of_host["process_sectors"] / ios.where(ios > 0)).max())
        if share > _OTHERS:
            yield (
                f"warning: up to {share:.0%} of the sectors were not fio's: other programs use the "
                "disks; leave them to the study, or count with --scope own"
            )


class KernelWorkers:
    """Confine the kernel's unbound workers to some CPUs, until this is closed or ppw dies.

    Loop devices, file systems and encryption hand work to kernel threads that run wherever a CPU
    is free, so that a workload on one core has the help of others. The kernel lets no user place
    these threads, but it has one mask for all of them.
    """

    def __init__(self, sysfs: Path) -> None:
        self._mask = sysfs / "devices/virtual/workqueue/cpumask"
        was = files.read_text(self._mask)
        if was is None:
            raise MeasurementError(
                f"{self._mask}: cannot be read: ppw cannot bind the workers of "
                "this kernel to cores: leave --confine-kernel out"
            )
        self._guard = settings_guard.Guard(lock=self._mask.parent)
        self._guard.learn([(self._mask, was)])

    def confine(self, cpus: Collection[int]) -> None:
        """Keep them on these CPUs from now on. Raises `MeasurementError` where it is refused."""
        self._guard.change(self._mask, cpu_mask(cpus))

    def close(self) -> None:
        """Put the mask back. Raises `MeasurementError` where it could not be."""
        if unrestored := self._guard.release():
            raise MeasurementError(settings_guard.not_restored(unrestored))


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


def moved_bytes(pids: Iterable[int], procfs: Path) -> tuple[int, int]:
    """Bytes that processes caused to be read from and written to devices so far."""
    read = written = 0
    for pid in pids:
        with suppress(OSError, ValueError, KeyError):
            counts = io_counts(procfs / str(pid) / "io")
            read, written = read + counts["read_bytes"], written + counts["write_bytes"]
    return read, written
