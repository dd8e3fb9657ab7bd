"""Size of the caches, and the memory and CPU time that this process may use."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.activity import control_groups, quota_cpus
from measurements.host.files import read_field

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_SIZE = re.compile(r"^(\d+)([KMG]?)$")
_FACTOR = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_LINE_BYTES = 64


class LastLevelCache(NamedTuple):
    """Caches of the highest level that some CPUs have (bytes; 0 where the kernel does not say).

    ``largest_bytes`` is the largest single cache: what one core has before memory. ``line_bytes``
    is 64 where the kernel does not say.
    """

    total_bytes: int
    largest_bytes: int
    line_bytes: int


def last_level_cache(sysfs: Path, cpus: Collection[int]) -> LastLevelCache:
    """Read the last-level caches of some CPUs from ``devices/system/cpu/cpu*/cache/index*``.

    A cache that several of the CPUs share counts once.
    """
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for cpu in cpus:
        for index in sorted((sysfs / f"devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            size = _bytes(read_field(index / "size"))
            if read_field(index / "type") in ("Data", "Unified") and size:
                level = int(read_field(index / "level") or 0)
                # Without the list of sharers each CPU's cache is taken for its own.
                sharers = read_field(index / "shared_cpu_list") or str(cpu)
                line = int(read_field(index / "coherency_line_size") or 0)
                found[level, sharers] = (size, line)
    if not found:
        return LastLevelCache(0, 0, _LINE_BYTES)
    last = max(level for level, _ in found)
    sizes, lines = zip(
        *(cache for (level, _), cache in found.items() if level == last), strict=True
    )
    return LastLevelCache(sum(sizes), max(sizes), max(lines) or _LINE_BYTES)


def _bytes(text: str) -> int:
    match = _SIZE.match(text)
    return int(match[1]) * _FACTOR[match[2]] if match else 0


def available_memory(procfs: Path, sysfs: Path) -> int:
    """Read how much memory (bytes) this process can take without swapping or being killed.

    The lesser of ``MemAvailable`` and what the limits of the control groups leave. Raises
    `MeasurementError` where ``meminfo`` cannot be read.
    """
    path = procfs / "meminfo"
    match = re.search(r"^MemAvailable:\s+(\d+) kB", read_field(path), re.MULTILINE)
    if match is None:
        raise MeasurementError(
            f"{path}: no line MemAvailable: is procfs mounted there? Mount it, or name its folder"
        )
    return min([1024 * int(match[1]), *_left_by_control_groups(procfs, sysfs)])


def _left_by_control_groups(procfs: Path, sysfs: Path) -> Iterator[int]:
    for folder in control_groups(sysfs, procfs, "memory"):
        for limit, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, taken = read_field(folder / limit), read_field(folder / used)
            if most.isdecimal() and taken.isdecimal():
                # The kernel gives back file pages that nobody uses.
                stat = read_field(folder / "memory.stat")
                match = re.search(rf"^{cached} (\d+)$", stat, re.MULTILINE)
                spare = int(match[1]) if match else 0
                yield max(0, int(most) - max(0, int(taken) - spare))


def cpu_quota(procfs: Path, sysfs: Path) -> float:
    """Read how many CPUs the control groups allow; inf where they set no limit."""
    quotas = map(quota_cpus, control_groups(sysfs, procfs, "cpu"))
    return min((quota for quota in quotas if quota is not None), default=math.inf)
