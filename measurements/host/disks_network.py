"""Sectors of the disks and bytes of the network, and what the host did between two moments."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measurements.host.cpu_time import host_cpu_s, scheduled_s
from measurements.host.files import read_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    Pairs = Mapping[str, tuple[int, int]]

# Fields of /proc/diskstats, and of /proc/net/dev behind the interface's name.
_SECTORS_READ, _SECTORS_WRITTEN = 5, 9
_BYTES_SENT = 8


def disk_sectors(procfs: Path, sysfs: Path) -> dict[str, tuple[int, int]]:
    """Read the sectors of 512 B read and written since the host's start, by physical disk.

    Partitions, and disks that lie on others (dm, md, loop, zram, NVMe multipath heads), are left
    out, so that each transfer counts once.
    """
    physical = physical_disks(sysfs)
    sectors = {}
    for line in read_lines(procfs / "diskstats"):
        fields = line.split()
        # sysfs cannot have the slash of names such as cciss/c0d0.
        if len(fields) <= _SECTORS_WRITTEN or fields[2].replace("/", "!") not in physical:
            continue
        read, written = fields[_SECTORS_READ], fields[_SECTORS_WRITTEN]
        if read.isdecimal() and written.isdecimal():
            sectors[fields[2]] = int(read), int(written)
    return sectors


def physical_disks(sysfs: Path) -> frozenset[str]:
    """List the whole disks that are devices of their own."""
    try:
        disks = list((sysfs / "block").iterdir())
    except OSError:
        return frozenset()
    return frozenset(disk.name for disk in disks if "virtual" not in disk.resolve().parts)


def interface_bytes(procfs: Path, sysfs: Path) -> dict[str, tuple[int, int]]:
    """Read the bytes received and sent since the host's start, by interface.

    The physical interfaces where there are any: what bridges, bonds and tunnels carry passes
    them. In a container, which has none, all but the loopback and those on top of others.
    """
    found = {}
    for line in read_lines(procfs / "net/dev")[2:]:
        name, _, figures = line.rpartition(":")
        fields = figures.split()
        if len(fields) > _BYTES_SENT and fields[0].isdecimal() and fields[_BYTES_SENT].isdecimal():
            found[name.strip()] = int(fields[0]), int(fields[_BYTES_SENT])
    folder = sysfs / "class/net"
    physical = {name for name in found if (folder / name / "device").exists()}
    others = {name for name in found if name != "lo" and not any((folder / name).glob("lower_*"))}
    return {name: found[name] for name in sorted(physical or others)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The host's counts at one moment (s by `time.monotonic`), all since its start.

    CPU times in s; sectors of 512 B read and written by disk; bytes received and sent by interface.
    """

    at_s: float
    cpu_s: Mapping[str, float]
    scheduled_s: float | None
    sectors: Pairs
    bytes_moved: Pairs

    @classmethod
    def take(cls, procfs: Path = Path("/proc"), sysfs: Path = Path("/sys")) -> Snapshot:
        """Read all counts now. What cannot be read is left out."""
        return cls(
            time.monotonic(),
            host_cpu_s(procfs),
            scheduled_s(procfs, sysfs),
            disk_sectors(procfs, sysfs),
            interface_bytes(procfs, sysfs),
        )

    def until(self, later: Snapshot) -> dict[str, float]:
        """Make the columns of the runs table for the time until a later snapshot.

        A column is left out where a count fell, or a disk or interface went away meanwhile.
        """
        columns = {
            column: later.cpu_s[column] - before
            for column, before in self.cpu_s.items()
            if later.cpu_s.get(column, -1.0) >= before
        }
        ran_s = (later.scheduled_s or 0.0) - (self.scheduled_s or 0.0)
        if self.scheduled_s is not None and later.scheduled_s is not None and ran_s >= 0:
            columns["scheduled_s"] = ran_s
        columns |= _growth(("sectors_read", "sectors_written"), self.sectors, later.sectors)
        names = ("network_rx_bytes", "network_tx_bytes")
        return columns | _growth(names, self.bytes_moved, later.bytes_moved)


def _growth(names: tuple[str, str], before: Pairs, after: Pairs) -> dict[str, float]:
    if not before or not before.keys() <= after.keys():
        return {}
    # A new device did all its transfers since the first snapshot.
    moved = {
        name: [pair[side] - before.get(key, (0, 0))[side] for key, pair in after.items()]
        for side, name in enumerate(names)
    }
    return {name: float(sum(growth)) for name, growth in moved.items() if min(growth) >= 0}
