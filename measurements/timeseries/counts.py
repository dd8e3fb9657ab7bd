"""The kernel's counts of the whole host at one moment."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.headers import shown
from measurements.host.cpu_time import COLUMNS as STAT_COLUMNS
from measurements.host.cpu_time import scheduled_s
from measurements.host.disks import physical_disks
from measurements.host.files import read_number
from measurements.host.network import interface_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

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
