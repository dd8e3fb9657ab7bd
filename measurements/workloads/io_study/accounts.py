"""Whose the CPU time of a run was, and whether the kernel's accounts of it agree."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from measurements.timeseries.schema import SECTOR_BYTES
from measurements.workloads.io_study.cpu_clocks import KernelThreads, process_cpu_s
from measurements.workloads.io_study.window import Own

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from measurements.workloads.io_study.bandwidth import BandwidthLoad, Told
    from measurements.workloads.io_study.instances import Instances


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
