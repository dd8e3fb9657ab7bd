"""Sectors that physical disks read and wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.host.files import read_lines

if TYPE_CHECKING:
    from pathlib import Path

_SECTORS_READ, _SECTORS_WRITTEN = 5, 9


def disk_sectors(procfs: Path, sysfs: Path) -> dict[str, tuple[int, int]]:
    """Sectors of 512 B read and written since the host's start, by physical disk.

    Partitions, and whatever lies on other disks (dm, md, loop, zram, NVMe multipath heads), are
    left out, so that each transfer is there once.
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
    """Names of whole disks that are devices of their own."""
    try:
        disks = list((sysfs / "block").iterdir())
    except OSError:
        return frozenset()
    return frozenset(disk.name for disk in disks if "virtual" not in disk.resolve().parts)
