"""CPU time that the scheduler counted for single processes and for a control group of one's own."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.host.files import read_lines, read_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from measurements.workloads.reaper import Reaper

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
