"""What a host's workload asked of each resource, interval by interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements.timeseries.devices import physical_disks
from measurements.timeseries.schema import SECTOR_BYTES, of_device
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from measurements.timeseries.series import TimeSeries

    Numbers = NDArray[np.float64]

# Time of tasks; what else keeps a CPU busy may not have been recorded.
_USER, _KERNEL = ("user_s", "nice_s"), ("system_s", "irq_s", "softirq_s")
_NEEDED = ("user_s", "system_s")

# Columns of a time series that `demand_of` reads.
LOG_COLUMNS = (
    *_USER,
    *_KERNEL,
    "steal_s",
    "idle_s",
    "iowait_s",
    "scheduled_s",
    "tick_busy_s",
    "context_switches",
    "run_queue",
    "blocked",
    "memory_total_bytes",
    "memory_free_bytes",
    "memory_available_bytes",
    "memory_cached_bytes",
    "memory_buffers_bytes",
    "memory_inactive_bytes",
    "memory_read_bytes",
    "memory_written_bytes",
    "swap_used_bytes",
    "swap_in_bytes",
    "swap_out_bytes",
    "major_faults",
    "sectors_read",
    "sectors_written",
    "ios",
    "disk_ios",
    "disk_busy_share",
    "disk_queue",
    "disk_wait_s",
    "network_rx_bytes",
    "network_tx_bytes",
    "network_rx_drops",
    "network_tx_drops",
    "network_errors",
    "network_speed_bytes_s",
)


def demand_of(series: TimeSeries, *, disks: Sequence[str] | None = None) -> pd.DataFrame:
    """Make demand of a time series: one row an interval, NaN where it was not measured.

    Parameters
    ----------
    series : TimeSeries
    disks : sequence of str, optional
        Disks whose queue, wait and busy share count; by default the physical ones.

    Returns
    -------
    pandas.DataFrame
        - ``time_s``, ``interval_s``: end and length of the interval (s);
        - ``cpu_cores``: busy CPUs, all but idle and iowait;
        - ``user_share``, ``system_share``, ``iowait_share``, ``steal_share``: of the time of all
          CPUs; interrupts are system time;
        - ``run_queue``, ``blocked``: tasks that run or are ready to, and that wait for I/O;
        - ``context_switches_s``: context switches (1/s);
        - ``memory_bytes``: used, without the page cache (B);
        - ``memory_inactive_bytes``: not used of late, most of it page cache (B);
        - ``memory_bandwidth_bytes_s``: memory reads and writes (B/s);
        - ``swap_bytes_s``: swapped in and out (B/s); ``swap_used_bytes`` (B);
        - ``major_faults_s``: page faults that needed I/O (1/s);
        - ``disk_read_bytes_s``, ``disk_written_bytes_s`` (B/s), ``disk_iops`` (1/s): of all disks;
        - ``disk_busy_share``, ``disk_queue``: of the busiest disk; ``disk_wait_s``: mean over I/Os;
        - ``network_rx_bytes_s``, ``network_tx_bytes_s``: of physical interfaces (B/s);
        - ``loopback_bytes_s``: within the host, which no wire limits (B/s);
        - ``network_drops_s``, ``network_errors_s`` (1/s).

    Raises
    ------
    PpwError
        For a series of several hosts.
    """
    frame = series.frame
    _refuse_several_hosts(series)
    chosen = physical_disks(series.devices("disk_busy_share")) if disks is None else tuple(disks)
    columns = {
        "time_s": _column(frame, "time_s"),
        "interval_s": _column(frame, "interval_s"),
        **_cpu(frame),
        **_memory(frame),
        **_disk(frame, chosen),
        **_network(frame),
    }
    return pd.DataFrame(columns)


def as_series(given: object, name: str = "series") -> TimeSeries:
    """Take a time series. Raises `PpwError` for what is none, with what to do."""
    from measurements.timeseries.series import TimeSeries

    if isinstance(given, TimeSeries):
        return given
    raise PpwError(
        f"{name} is a {type(given).__name__}, not a TimeSeries: read a log with "
        "measurements.timeseries.read_time_series"
    )


def as_recordings(given: object) -> Mapping[str, Any]:
    """Take recordings by name. Raises `PpwError` for what is no mapping, with what to do."""
    if isinstance(given, Mapping):
        return given
    raise PpwError(
        f"recordings is a {type(given).__name__}, not a mapping: give each its name, "
        "{'name': series}"
    )


def _refuse_several_hosts(series: TimeSeries) -> None:
    hosts = [] if "host" not in series.frame else series.frame["host"].dropna().unique().tolist()
    if len(hosts) > 1:
        raise PpwError(
            f"{series.source}: is of host {hosts[0]!r} and of {hosts[1]!r}: read one host at a time"
        )


def _cpu(frame: pd.DataFrame) -> dict[str, Numbers]:
    cpus = _column(frame, "cpus")
    kernel = _sum(frame, _KERNEL, needed=("system_s",))
    return {
        "cpu_cores": _busy_cores(frame),
        "user_share": _sum(frame, _USER, needed=("user_s",)) / cpus,
        "system_share": kernel / cpus,
        "iowait_share": _rate(frame, "iowait_s") / cpus,
        "steal_share": _rate(frame, "steal_s") / cpus,
        "run_queue": _column(frame, "run_queue"),
        "blocked": _column(frame, "blocked"),
        "context_switches_s": _rate(frame, "context_switches"),
    }


def _busy_cores(frame: pd.DataFrame) -> Numbers:
    """Busy CPUs by their parts; by the scheduler's total where there are none.

    The scheduler's time of a task can have the interrupts in it that are counted beside it.
    """
    parts = _sum(frame, (*_USER, *_KERNEL, "steal_s"), needed=_NEEDED)
    busy = np.where(np.isnan(parts), _rate(frame, "scheduled_s"), parts)
    return np.where(np.isnan(busy), np.nan, np.fmin(busy, _column(frame, "cpus")))


def _memory(frame: pd.DataFrame) -> dict[str, Numbers]:
    return {
        "memory_bytes": _used_memory(frame),
        "memory_inactive_bytes": _column(frame, "memory_inactive_bytes"),
        "memory_bandwidth_bytes_s": _rate(frame, "memory_read_bytes")
        + _rate(frame, "memory_written_bytes"),
        "swap_bytes_s": _rate(frame, "swap_in_bytes") + _rate(frame, "swap_out_bytes"),
        "swap_used_bytes": _column(frame, "swap_used_bytes"),
        "major_faults_s": _rate(frame, "major_faults"),
    }


def _used_memory(frame: pd.DataFrame) -> Numbers:
    """Memory that programs cannot get without swapping.

    The kernel's own estimate where it was recorded; otherwise what is neither free nor page cache.
    Since Linux 5.9 fresh anonymous pages count as inactive until used again, so that inactive
    memory outside the page cache is demand.
    """
    total = _column(frame, "memory_total_bytes")
    by_kernel = total - _column(frame, "memory_available_bytes")
    cache = _column(frame, "memory_cached_bytes") + np.nan_to_num(
        _column(frame, "memory_buffers_bytes")
    )
    by_parts = total - _column(frame, "memory_free_bytes") - cache
    return np.maximum(np.where(np.isnan(by_kernel), by_parts, by_kernel), 0.0)


def _disk(frame: pd.DataFrame, disks: Sequence[str]) -> dict[str, Numbers]:
    return {
        "disk_read_bytes_s": _rate(frame, "sectors_read") * SECTOR_BYTES,
        "disk_written_bytes_s": _rate(frame, "sectors_written") * SECTOR_BYTES,
        "disk_iops": _rate(frame, "ios"),
        "disk_busy_share": _largest(frame, "disk_busy_share", disks),
        "disk_queue": _largest(frame, "disk_queue", disks),
        "disk_wait_s": _mean_wait(frame, disks),
    }


def _mean_wait(frame: pd.DataFrame, disks: Sequence[str]) -> Numbers:
    """Mean wait of all I/Os; a disk without I/Os has none."""
    if not disks:
        return np.full(len(frame), np.nan)
    waits = np.array([_column(frame, of_device("disk_wait_s", disk)) for disk in disks])
    ios = np.array([_column(frame, of_device("disk_ios", disk)) for disk in disks])
    ios = np.where(np.isnan(waits), 0.0, np.nan_to_num(ios))
    with np.errstate(invalid="ignore"):
        mean: Numbers = (np.nan_to_num(waits) * ios).sum(axis=0) / ios.sum(axis=0)
    return mean


def _network(frame: pd.DataFrame) -> dict[str, Numbers]:
    return {
        "network_rx_bytes_s": _rate(frame, "network_rx_bytes"),
        "network_tx_bytes_s": _rate(frame, "network_tx_bytes"),
        "loopback_bytes_s": _rate(frame, of_device("network_tx_bytes", "lo")),
        "network_drops_s": _rate(frame, "network_rx_drops") + _rate(frame, "network_tx_drops"),
        "network_errors_s": _rate(frame, "network_errors"),
    }


def _column(frame: pd.DataFrame, name: str) -> Numbers:
    if name not in frame:
        return np.full(len(frame), np.nan)
    return frame[name].to_numpy(dtype=float)


def _rate(frame: pd.DataFrame, name: str) -> Numbers:
    rate: Numbers = _column(frame, name) / _column(frame, "interval_s")
    return rate


def _sum(frame: pd.DataFrame, names: Sequence[str], needed: Sequence[str]) -> Numbers:
    """Sum of rates of which only some must have been recorded."""
    total = np.zeros(len(frame))
    for name in names:
        rate = _rate(frame, name)
        total += rate if name in needed else np.nan_to_num(rate)
    return total


def _largest(frame: pd.DataFrame, column: str, disks: Sequence[str]) -> Numbers:
    found = np.full(len(frame), np.nan)
    for disk in disks:
        found = np.fmax(found, _column(frame, of_device(column, disk)))
    return found
