"""One row of a series: what happened between two readings of the kernel's counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from measurements.timeseries.schema import (
    CPU_COLUMNS,
    NETWORK_COLUMNS,
    SECTOR_BYTES,
    TASK_COLUMNS,
    of_device,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from measurements.timeseries.counts import Counters, Counts

    Row = dict[str, Any]

_MS = 1e-3
# Counts of an interface in the order of `counts`: what they add to.
_INTERFACE = (
    *("network_rx_bytes", "network_rx_packets", "network_errors", "network_rx_drops"),
    *("network_tx_bytes", "network_tx_packets", "network_errors", "network_tx_drops"),
)
_DISK_TOTALS = {
    "sectors_read": ("disk_read_bytes", 1 / SECTOR_BYTES),
    "sectors_written": ("disk_written_bytes", 1 / SECTOR_BYTES),
    "ios": ("disk_ios", 1.0),
    "ios_read": ("disk_ios_read", 1.0),
    "ios_written": ("disk_ios_written", 1.0),
}


def make_row(before: Counts, after: Counts, counters: Counters, host: str) -> tuple[Row, list[str]]:
    """Columns of the interval between two readings, and its marks; None where it is not known."""
    interval_s = after.at_s - before.at_s
    marks: dict[str, None] = {}
    if after.time_s < before.time_s:
        marks["clock back"] = None
    row: Row = {
        "time_s": after.time_s,
        "interval_s": interval_s,
        "host": host,
        "cpus": after.cpus,
        "hz": counters.ticks_per_s,
    }
    row |= _cpu(before, after, counters.ticks_per_s, marks)
    row |= _numbers(before, after, counters.page_bytes, marks)
    row |= after.memory
    row |= _disks(before, after, interval_s, marks)
    row |= _interfaces(before, after, counters, marks)
    return row, list(marks)


def _grown(before: int | None, after: int | None, marks: dict[str, None]) -> int | None:
    if before is None or after is None:
        return None
    if after < before:
        marks["counter back"] = None
        return None
    return after - before


def _cpu(before: Counts, after: Counts, ticks_per_s: float, marks: dict[str, None]) -> Row:
    row: Row = {}
    for column in (*CPU_COLUMNS, "guest_s"):
        grown = _grown(before.ticks.get(column), after.ticks.get(column), marks)
        row[column] = None if grown is None else grown / ticks_per_s
    known = [row[column] for column in TASK_COLUMNS]
    tick_busy_s = None if None in known else sum(known)
    scheduled_s = None
    if before.scheduled_s is not None and after.scheduled_s is not None:
        scheduled_s = after.scheduled_s - before.scheduled_s
        if scheduled_s < 0:
            marks["counter back"] = None
            scheduled_s = None
    row["cpu_accounting"] = "tick" if scheduled_s is None else "scheduler"
    if scheduled_s is not None:
        capacity_s = after.cpus * (after.at_s - before.at_s)
        row |= _by_scheduler(row, scheduled_s, tick_busy_s, capacity_s)
    return row | {"scheduled_s": scheduled_s, "tick_busy_s": tick_busy_s}


def _by_scheduler(
    row: Row, scheduled_s: float, tick_busy_s: float | None, capacity_s: float
) -> Row:
    """CPU time of tasks as the scheduler counted it, split as the ticks are.

    The kernel splits the time of a process in the same way (cputime_adjust): without a tick in
    it, all is the user's. What tasks, interrupts and the hypervisor leave is idle or iowait.
    """
    found: Row = {}
    if tick_busy_s:
        found = {column: row[column] * scheduled_s / tick_busy_s for column in TASK_COLUMNS}
        if row["guest_s"] is not None:
            found["guest_s"] = row["guest_s"] * scheduled_s / tick_busy_s
    elif tick_busy_s == 0:
        found = {"user_s": scheduled_s, "nice_s": 0.0, "system_s": 0.0}
    if row["idle_s"] is None or row["iowait_s"] is None:
        return found
    taken_s = scheduled_s + sum(row[c] or 0.0 for c in ("irq_s", "softirq_s", "steal_s"))
    left_s, idle_s = max(0.0, capacity_s - taken_s), row["idle_s"] + row["iowait_s"]
    waiting_share = row["iowait_s"] / idle_s if idle_s else 0.0
    return found | {"idle_s": left_s * (1 - waiting_share), "iowait_s": left_s * waiting_share}


def _numbers(before: Counts, after: Counts, page_bytes: float, marks: dict[str, None]) -> Row:
    row: Row = {}
    for column, name, factor in (
        ("context_switches", "ctxt", 1.0),
        ("swap_in_bytes", "pswpin", page_bytes),
        ("swap_out_bytes", "pswpout", page_bytes),
        ("major_faults", "pgmajfault", 1.0),
    ):
        grown = _grown(before.numbers.get(name), after.numbers.get(name), marks)
        row[column] = None if grown is None else grown * factor
    # The sampler itself is one of the tasks that run.
    running = after.numbers.get("procs_running")
    row["run_queue"] = None if running is None else max(0, running - 1)
    row["blocked"] = after.numbers.get("procs_blocked")
    return row


def _disks(before: Counts, after: Counts, interval_s: float, marks: dict[str, None]) -> Row:
    _mark_changes(before.disks, after.disks, marks)
    each: Row = {}
    for disk, counts in after.disks.items():
        # What a new one did, it did since the reading before.
        earlier = before.disks.get(disk, (0,) * len(counts))
        grown = [_grown(a, b, marks) for a, b in zip(earlier, counts, strict=True)]
        each |= {of_device(c, disk): v for c, v in _one_disk(grown, interval_s).items()}
    totals: Row = {}
    for total, (column, factor) in _DISK_TOTALS.items():
        totals[total] = _summed((each[of_device(column, disk)] for disk in after.disks), factor)
    return totals | each


def _one_disk(grown: list[int | None], interval_s: float) -> Row:
    reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms, queue_ms = grown
    ios = _summed((reads, writes), 1.0)
    spent_s = _summed((read_ms, write_ms), _MS)
    return {
        "disk_read_bytes": _summed((sectors_read,), SECTOR_BYTES),
        "disk_written_bytes": _summed((sectors_written,), SECTOR_BYTES),
        "disk_ios": ios,
        "disk_ios_read": reads,
        "disk_ios_written": writes,
        "disk_busy_share": _summed((busy_ms,), _MS / interval_s),
        "disk_queue": _summed((queue_ms,), _MS / interval_s),
        "disk_wait_s": spent_s / ios if ios and spent_s is not None else None,
    }


def _interfaces(before: Counts, after: Counts, counters: Counters, marks: dict[str, None]) -> Row:
    _mark_changes(before.interfaces, after.interfaces, marks)
    each: Row = {}
    for name, counts in after.interfaces.items():
        earlier = before.interfaces.get(name, (0,) * len(counts))
        grown = [_grown(a, b, marks) for a, b in zip(earlier, counts, strict=True)]
        for column in NETWORK_COLUMNS:
            parts = [g for g, part in zip(grown, _INTERFACE, strict=True) if part == column]
            each[of_device(column, name)] = _summed(parts, 1.0)
    totals = {
        column: _summed(
            (each[of_device(column, n)] for n in after.interfaces if n in counters.host_interfaces),
            1.0,
        )
        for column in NETWORK_COLUMNS
    }
    speeds = {of_device("network_speed_bytes_s", n): rate for n, rate in counters.speeds.items()}
    return totals | each | speeds


def _summed(parts: Iterable[float | None], factor: float) -> float | None:
    """Sum, None where a part is not known or there is none."""
    known = list(parts)
    if not known or any(part is None for part in known):
        return None
    return sum(part for part in known if part is not None) * factor


def _mark_changes(
    before: Mapping[str, object], after: Mapping[str, object], marks: dict[str, None]
) -> None:
    if after.keys() - before.keys():
        marks["device new"] = None
    if before.keys() - after.keys():
        marks["device gone"] = None
