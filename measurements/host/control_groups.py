"""How much CPU time the control groups of a process allow it, and how long they made it wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.host.files import read_lines, read_number, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from measurements.host.value import Value


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
