"""CPU time: of the whole host by /proc/stat and by the scheduler, and of one run's processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from measurements.host.files import read_lines, read_number, read_text

if TYPE_CHECKING:
    import resource
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from measurements.host.files import Value


# In the order of /proc/stat. Guests are in user and nice already.
COLUMNS = (
    *("user_s", "nice_s", "system_s", "idle_s"),
    *("iowait_s", "irq_s", "softirq_s", "steal_s"),
)
_TASKS = ("user_s", "nice_s", "system_s")
# Where ticks show less of the scheduler's time than this, they miss it.
_LEAST_SEEN = 0.95
# Shorter than this, ticks cannot tell.
_ENOUGH_S = 1.0
# Version of /proc/schedstat from which times are in ns, and the field of the time that tasks ran.
_SCHEDSTAT_IN_NS = 15
_SCHEDSTAT_RUN = 7


def host_cpu_s(procfs: Path, ticks_per_s: float | None = None) -> dict[str, float]:
    """CPU time of the host since its start (s), summed over CPUs, by column of the runs table.

    Parameters
    ----------
    procfs : Path
    ticks_per_s : float, optional
        USER_HZ; by default this host's.
    """
    ticks = float(os.sysconf("SC_CLK_TCK")) if ticks_per_s is None else ticks_per_s
    for line in read_lines(procfs / "stat"):
        name, *figures = line.split()
        if name == "cpu" and all(figure.isdecimal() for figure in figures):
            return {c: int(f) / ticks for c, f in zip(COLUMNS, figures, strict=False)}
    return {}


def scheduled_s(procfs: Path, sysfs: Path) -> float | None:
    """Time that tasks ran since the host's start (s), as the scheduler counts it, to the ns.

    From the root control group (version 1) or /proc/schedstat; None where the kernel keeps
    neither. The root group of version 2 shows the ticks of /proc/stat, so it is not used.
    """
    for name in ("cpuacct", "cpu,cpuacct"):
        folder = sysfs / "fs/cgroup" / name
        # In a container the folder is the container's own group, which has no such file.
        if (folder / "release_agent").exists():
            return read_number(folder / "cpuacct.usage", 1e-9)
    return _by_schedstat(procfs)


def _by_schedstat(procfs: Path) -> float | None:
    version, *lines = read_lines(procfs / "schedstat") or [""]
    number = version.removeprefix("version ")
    if not number.isdecimal() or int(number) < _SCHEDSTAT_IN_NS:
        return None
    cpus = [line.split() for line in lines if line.startswith("cpu")]
    times = [fields[_SCHEDSTAT_RUN] for fields in cpus if len(fields) > _SCHEDSTAT_RUN]
    if not times or len(times) < len(cpus) or not all(map(str.isdecimal, times)):
        return None
    return sum(map(int, times)) * 1e-9


def tree_columns(usage: resource.struct_rusage) -> dict[str, float]:
    """Columns of what one run's processes used, from `os.wait4`.

    Parameters
    ----------
    usage : resource.struct_rusage
        Of the command and of all that it and its children waited for.

    Returns
    -------
    dict of column to float
        CPU time (s) that the scheduler counted, split into user and system by ticks; the largest
        resident set of any one process (B); faults and switches.
    """
    return {
        "tree_user_s": usage.ru_utime,
        "tree_system_s": usage.ru_stime,
        "tree_peak_rss_bytes": usage.ru_maxrss * 1024.0,
        "tree_major_faults": float(usage.ru_majflt),
        "tree_voluntary_switches": float(usage.ru_nvcsw),
        "tree_involuntary_switches": float(usage.ru_nivcsw),
    }


def tick_caveat(columns: Mapping[str, float]) -> str | None:
    """Say that /proc/stat missed CPU time, where a run's other columns prove it.

    A kernel that accounts by ticks charges a whole tick to whom it finds running, and misses what
    wakes and sleeps between two ticks.

    Parameters
    ----------
    columns : mapping of column to float
        Of a run: those of /proc/stat, with ``scheduled_s`` or the ``tree_`` columns.
    """
    if not all(column in columns for column in _TASKS):
        return None
    seen = sum(columns[column] for column in _TASKS)
    ran = columns.get("scheduled_s")
    if ran is None:
        ran = columns.get("tree_user_s", 0.0) + columns.get("tree_system_s", 0.0)
    if ran < _ENOUGH_S or seen >= _LEAST_SEEN * ran:
        return None
    return (
        f"/proc/stat shows {seen / ran:.0%} of the CPU time that the scheduler counted: this "
        "kernel accounts by ticks, so take scheduled_s or the tree_ columns for CPU time"
    )


# How much CPU time the control groups of a process allow it, and how long they made it wait.


def group_state(sysfs: Path, procfs: Path, pid: int | None = None) -> dict[str, Value]:
    """CPUs that the tightest quota is worth, and seconds that it held the process back so far.

    Parameters
    ----------
    sysfs, procfs : Path
    pid : int, optional
        By default this process.
    """
    quotas, waits = [], []
    for folder in _folders(sysfs, procfs / ("self" if pid is None else str(pid))):
        quotas.append(_quota_cpus(folder))
        waits.append(_throttled_s(folder))
    state: dict[str, Value] = {}
    if limits := [quota for quota in quotas if quota is not None]:
        state["cpu_quota_cpus"] = min(limits)
    if known := [wait for wait in waits if wait is not None]:
        state["quota_throttled_s"] = max(known)
    return state


def _folders(sysfs: Path, process: Path) -> Iterator[Path]:
    """Folders of the groups with a say over CPU time, from the innermost to the root."""
    for line in read_lines(process / "cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            names = ["", "unified"]
        elif "cpu" in controllers.split(","):
            names = [controllers, "cpu"]
        else:
            continue
        for name in names:
            top = sysfs / "fs/cgroup" / name
            # A container may see its own group as the top, under the name it has outside.
            inner = [part for part in group.split("/") if part and part != ".."]
            for depth in range(len(inner), -1, -1):
                folder = top.joinpath(*inner[:depth])
                if (folder / "cpu.stat").exists():
                    yield folder


def _quota_cpus(folder: Path) -> float | None:
    quota, _, period = (read_text(folder / "cpu.max") or "").partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    quota_us = read_number(folder / "cpu.cfs_quota_us")
    period_us = read_number(folder / "cpu.cfs_period_us")
    if quota_us is None or not period_us or quota_us <= 0:
        return None
    return quota_us / period_us


def _throttled_s(folder: Path) -> float | None:
    pairs = (line.split() for line in read_lines(folder / "cpu.stat"))
    figures = {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
    for name, scale in (("throttled_usec", 1e-6), ("throttled_time", 1e-9)):
        if name in figures:
            return int(figures[name]) * scale
    return None
