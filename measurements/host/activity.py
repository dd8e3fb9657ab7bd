"""What a host did since its start, and the memory and CPU time that its control groups allow.

CPU time is that of /proc/stat and of the scheduler. Control groups tell the CPU time that they
allow, and how long they made a process wait. A `Snapshot` holds the counts of one moment.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.host import files
from measurements.host.files import Value, read_field, read_lines, read_number, read_text

Pairs = Mapping[str, tuple[int, int]]

# In the order of /proc/stat. Guests are in user and nice already.
COLUMNS = ("user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s")
# Version of /proc/schedstat from which times are in ns, and the field of the time that tasks ran.
_SCHEDSTAT_IN_NS = 15
_SCHEDSTAT_RUN = 7
# Fields of /proc/diskstats, and of /proc/net/dev behind the interface's name.
_SECTORS_READ, _SECTORS_WRITTEN = 5, 9
_BYTES_SENT = 8


def host_cpu_s(procfs: Path) -> dict[str, float]:
    """Read the host's CPU time since its start (s), summed over CPUs, by column."""
    ticks = float(os.sysconf("SC_CLK_TCK"))
    for line in read_lines(procfs / "stat"):
        name, *figures = line.split()
        if name == "cpu" and all(figure.isdecimal() for figure in figures):
            return {c: int(f) / ticks for c, f in zip(COLUMNS, figures, strict=False)}
    return {}


def scheduled_s(procfs: Path, sysfs: Path) -> float | None:
    """Read the time that tasks ran since the host's start (s) by the scheduler, else None.

    From the root control group (version 1) or /proc/schedstat; None where the kernel keeps
    neither. The root group of version 2 shows the ticks of /proc/stat, so it is not used.
    """
    for name in ("cpuacct", "cpu,cpuacct"):
        folder = sysfs / "fs/cgroup" / name
        # In a container the folder is the container's own group, which has no such file.
        if (folder / "release_agent").exists():
            return read_number(folder / "cpuacct.usage", 1e-9)
    version, *lines = read_lines(procfs / "schedstat") or [""]
    number = version.removeprefix("version ")
    if not number.isdecimal() or int(number) < _SCHEDSTAT_IN_NS:
        return None
    cpus = [line.split() for line in lines if line.startswith("cpu")]
    times = [fields[_SCHEDSTAT_RUN] for fields in cpus if len(fields) > _SCHEDSTAT_RUN]
    if not times or len(times) < len(cpus) or not all(map(str.isdecimal, times)):
        return None
    return sum(map(int, times)) * 1e-9


def control_groups(
    sysfs: Path, procfs: Path, controller: str, pid: int | None = None
) -> Iterator[Path]:
    """Find the folders of a process's control groups (version 1 or 2), innermost first."""
    for line in read_lines(procfs / ("self" if pid is None else str(pid)) / "cgroup"):
        number, controllers, group = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            mounts = ["", "unified"]
        elif controller in controllers.split(","):
            mounts = [controllers, controller]
        else:
            continue
        # Inside a container the listed path may not exist: the top of the mount is then its own.
        parts = [part for part in group.split("/") if part not in ("", "..")]
        for mount in mounts:
            for depth in range(len(parts), -1, -1):
                folder = (sysfs / "fs/cgroup" / mount).joinpath(*parts[:depth])
                if folder.is_dir():
                    yield folder


def quota_cpus(folder: Path) -> float | None:
    """Read how many CPUs the quota of a control group is worth; None without a quota."""
    quota, _, period = (read_text(folder / "cpu.max") or "").partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    quota_us = read_number(folder / "cpu.cfs_quota_us")
    period_us = read_number(folder / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us and period_us and quota_us > 0 else None


def group_state(sysfs: Path, procfs: Path, pid: int | None = None) -> dict[str, Value]:
    """Read the tightest CPU quota of a process, and how long quotas held it back so far (s)."""
    folders = list(control_groups(sysfs, procfs, "cpu", pid))
    state: dict[str, Value] = {}
    if quotas := [q for folder in folders if (q := quota_cpus(folder)) is not None]:
        state["cpu_quota_cpus"] = min(quotas)
    if waits := [wait for folder in folders if (wait := _read_throttled_s(folder)) is not None]:
        state["quota_throttled_s"] = max(waits)
    return state


def _read_throttled_s(folder: Path) -> float | None:
    """Read how long a quota held a control group back so far (s); None where not told."""
    counts = files.read_counts(folder / "cpu.stat")
    scales = (("throttled_usec", 1e-6), ("throttled_time", 1e-9))
    return next((counts[name] * scale for name, scale in scales if name in counts), None)


def disk_sectors(procfs: Path, sysfs: Path) -> dict[str, tuple[int, int]]:
    """Read the 512 B sectors read and written since the host's start, by physical disk."""
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


def all_interface_bytes(procfs: Path) -> dict[str, tuple[int, int]]:
    """Read the bytes received and sent since the host's start, by interface of any kind."""
    found = {}
    for line in read_lines(procfs / "net/dev")[2:]:
        name, _, figures = line.rpartition(":")
        fields = figures.split()
        if len(fields) > _BYTES_SENT and fields[0].isdecimal() and fields[_BYTES_SENT].isdecimal():
            found[name.strip()] = int(fields[0]), int(fields[_BYTES_SENT])
    return found


def interface_bytes(procfs: Path, sysfs: Path) -> dict[str, tuple[int, int]]:
    """Read the bytes received and sent since the host's start, by interface.

    The physical interfaces where there are any: what bridges, bonds and tunnels carry passes
    them. In a container, which has none, all but the loopback and those on top of others.
    """
    found = all_interface_bytes(procfs)
    folder = sysfs / "class/net"
    physical = {name for name in found if (folder / name / "device").exists()}
    others = {name for name in found if name != "lo" and not any((folder / name).glob("lower_*"))}
    return {name: found[name] for name in sorted(physical or others)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts since the host's start: CPU times (s), 512 B sectors by disk, bytes by interface."""

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
        """Make the columns of the time until a later snapshot; leave out counts that fell."""
        columns = {
            column: later.cpu_s[column] - before
            for column, before in self.cpu_s.items()
            if later.cpu_s.get(column, -1.0) >= before
        }
        ran_s = (later.scheduled_s or 0.0) - (self.scheduled_s or 0.0)
        if self.scheduled_s is not None and later.scheduled_s is not None and ran_s >= 0:
            columns["scheduled_s"] = ran_s
        columns |= _sum_growth(("sectors_read", "sectors_written"), self.sectors, later.sectors)
        names = ("network_rx_bytes", "network_tx_bytes")
        return columns | _sum_growth(names, self.bytes_moved, later.bytes_moved)


# More other work than this share makes power and time of a run questionable.
MOST_OTHER_WORK = 0.05


def other_work(host: Mapping[str, Any], own_s: float, elapsed_s: float) -> dict[str, float]:
    """Make the columns of what ran beside a command, from the host's columns of the same time.

    ``own_s`` is the CPU time of the command (s). The share is of all CPU time that was taken, the
    hypervisor's included, and of one CPU at least: a command that sleeps leaves nothing to share.
    """
    tasks = [host[column] for column in COLUMNS[:3] if column in host]
    if not tasks and "scheduled_s" not in host:
        return {}
    # Ticks of /proc/stat miss tasks that sleep in between; the scheduler does not.
    other_s = max(0.0, host.get("scheduled_s", sum(tasks)) - own_s)
    foreign_s = other_s + host.get("steal_s", 0.0)
    share = foreign_s / max(own_s + foreign_s, elapsed_s)
    return {"other_cpu_s": other_s, "other_cpu_share": share}


def _sum_growth(names: tuple[str, str], before: Pairs, after: Pairs) -> dict[str, float]:
    """Sum two counts' growth over devices; {} where a device went, no count that fell."""
    if not before or not before.keys() <= after.keys():
        return {}
    # A new device did all its transfers since the first snapshot.
    moved = {
        name: [pair[side] - before.get(key, (0, 0))[side] for key, pair in after.items()]
        for side, name in enumerate(names)
    }
    return {name: float(sum(growth)) for name, growth in moved.items() if min(growth) >= 0}


_SIZE = re.compile(r"^(\d+)([KMG]?)$")
_FACTOR = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_LINE_BYTES = 64


class LastLevelCache(NamedTuple):
    """Caches of the highest level that some CPUs have (bytes; 0 where the kernel does not say)."""

    total_bytes: int
    largest_bytes: int  # the largest single cache: what one core has before memory
    line_bytes: int  # 64 where the kernel does not say


def last_level_cache(sysfs: Path, cpus: Collection[int]) -> LastLevelCache:
    """Read the last-level caches of some CPUs; one that several of them share counts once."""
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for cpu in cpus:
        for index in sorted((sysfs / f"devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            match = _SIZE.match(read_field(index / "size"))
            size = int(match[1]) * _FACTOR[match[2]] if match else 0
            if read_field(index / "type") in ("Data", "Unified") and size:
                level = int(read_field(index / "level") or 0)
                # Without the list of sharers each CPU's cache is taken for its own.
                sharers = read_field(index / "shared_cpu_list") or str(cpu)
                line = int(read_field(index / "coherency_line_size") or 0)
                found[level, sharers] = (size, line)
    if not found:
        return LastLevelCache(0, 0, _LINE_BYTES)
    top = max(level for level, _ in found)
    sizes, lines = zip(*(cache for (level, _), cache in found.items() if level == top), strict=True)
    return LastLevelCache(sum(sizes), max(sizes), max(lines) or _LINE_BYTES)


def available_memory(procfs: Path, sysfs: Path) -> int:
    """Read how much memory (bytes) this process can take without swapping or being killed."""
    available = files.memory_bytes(procfs, "MemAvailable")
    if available is None:
        raise MeasurementError(
            f"{procfs / 'meminfo'}: no line MemAvailable: is procfs mounted there? Mount it, or "
            "name its folder"
        )
    return min([int(available), *_bytes_left_by_memory_limits(procfs, sysfs)])


def _bytes_left_by_memory_limits(procfs: Path, sysfs: Path) -> Iterator[int]:
    """Yield the bytes left below each group's memory limit; idle file pages count as free."""
    for folder in control_groups(sysfs, procfs, "memory"):
        for limit, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, taken = read_field(folder / limit), read_field(folder / used)
            if most.isdecimal() and taken.isdecimal():
                # The kernel gives back file pages that nobody uses.
                spare = files.read_counts(folder / "memory.stat").get(cached, 0)
                yield max(0, int(most) - max(0, int(taken) - spare))


def cpu_quota(procfs: Path, sysfs: Path) -> float:
    """Read how many CPUs the control groups allow; inf where they set no limit."""
    quotas = map(quota_cpus, control_groups(sysfs, procfs, "cpu"))
    return min((quota for quota in quotas if quota is not None), default=math.inf)
