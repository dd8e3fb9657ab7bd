"""How large the caches are, and how much memory and how many CPUs this process may use."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.files import read_field

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_SIZE = re.compile(r"^(\d+)([KMG]?)$")
_FACTOR = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_LINE_BYTES = 64


class LastLevelCache(NamedTuple):
    """Caches of the highest level that some CPUs have.

    Attributes
    ----------
    total_bytes : int
        All of them together; 0 where the kernel does not say.
    largest_bytes : int
        The largest single one: what one core has before memory.
    line_bytes : int
        Of one line; 64 where the kernel does not say.
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
    sizes = [size for (level, _), (size, _) in found.items() if level == last]
    line = max(line for (level, _), (_, line) in found.items() if level == last)
    return LastLevelCache(sum(sizes), max(sizes), line or _LINE_BYTES)


def available_memory(procfs: Path, sysfs: Path) -> int:
    """Memory (bytes) that this process can take without swapping or being killed.

    What the kernel has to give (``MemAvailable``), or what the limits of this process's control
    groups leave, whichever is less.

    Raises
    ------
    MeasurementError
        When ``meminfo`` cannot be read.
    """
    path = procfs / "meminfo"
    match = re.search(r"^MemAvailable:\s+(\d+) kB", read_field(path), re.MULTILINE)
    if match is None:
        raise MeasurementError(
            f"{path}: no line MemAvailable: is procfs mounted there? Mount it, or name its folder"
        )
    return min([1024 * int(match[1]), *_left_by_control_groups(procfs, sysfs)])


def cpu_quota(procfs: Path, sysfs: Path) -> float:
    """CPUs' worth of time that the control groups allow; inf where they set no limit."""
    quotas = [math.inf]
    for folder in _control_groups(procfs, sysfs, "cpu"):
        second = read_field(folder / "cpu.max").split()
        first = [read_field(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        for quota, period in (w for w in (second, first) if len(w) == 2):
            if quota.isdigit() and period.isdigit() and int(period):
                quotas.append(int(quota) / int(period))
    return min(quotas)


def _left_by_control_groups(procfs: Path, sysfs: Path) -> Iterator[int]:
    for folder in _control_groups(procfs, sysfs, "memory"):
        for limit, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, taken = read_field(folder / limit), read_field(folder / used)
            if most.isdigit() and taken.isdigit():
                # File pages that nobody uses make room when asked to.
                match = re.search(
                    rf"^{cached} (\d+)$", read_field(folder / "memory.stat"), re.MULTILINE
                )
                spare = int(match[1]) if match else 0
                yield max(0, int(most) - max(0, int(taken) - spare))


def _control_groups(procfs: Path, sysfs: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control group and those above it, of version 1 or 2.

    Inside a container the listed path may not exist there; the root of the mount then is its own.
    """
    root = sysfs / "fs/cgroup"
    for line in read_field(procfs / "self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        steps = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(steps), -1, -1):
            yield base.joinpath(*steps[:depth])


def _bytes(text: str) -> int:
    match = _SIZE.match(text)
    return int(match[1]) * _FACTOR[match[2]] if match else 0
