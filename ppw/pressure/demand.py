"""What a host's workload asked of each resource, interval by interval, and what it is judged by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fitting.demand.utilisation import mean_on_clock
from measurements.timeseries.log import physical_disks
from measurements.timeseries.series import CPUS_TAKEN, SECTOR_BYTES, TimeSeries, of_device
from ppw.catalogue.hosts import Host
from ppw.errors import PpwError
from ppw.pressure.capacity import STATED, Capacity, capacity_of, logged_figures
from ppw.results import axes as drawing, text as tx
from ppw.results.axes import Axes
from ppw.runs import groups as gr

FloatArray = NDArray[np.float64]

# Time of tasks; what else keeps a CPU busy may not have been recorded.
_USER, _KERNEL = ("user_s", "nice_s"), ("system_s", "irq_s", "softirq_s")

# Columns of a time series that `demand_of` reads.
LOG_COLUMNS = tuple(
    f"""
    {" ".join((*_USER, *_KERNEL))} steal_s idle_s iowait_s scheduled_s tick_busy_s
    context_switches run_queue blocked
    memory_total_bytes memory_free_bytes memory_available_bytes memory_cached_bytes
    memory_buffers_bytes memory_inactive_bytes memory_read_bytes memory_written_bytes
    swap_used_bytes swap_in_bytes swap_out_bytes major_faults
    sectors_read sectors_written ios disk_ios disk_busy_share disk_queue disk_wait_s
    network_rx_bytes network_tx_bytes network_rx_drops network_tx_drops network_errors
    network_speed_bytes_s
    """.split()
)


def demand_of(series: TimeSeries, *, disks: Sequence[str] | None = None) -> pd.DataFrame:
    """Make demand of a time series of one host: one row an interval, NaN where not measured.

    The queue, wait and busy share are of ``disks``, by default the physical ones.

    Columns say their unit: ``_s`` behind a quantity is per second, ``_bytes`` B, ``_share`` a share
    of the time of all CPUs, where interrupts are system time. ``time_s`` and ``interval_s`` are end
    and length of the interval (s). ``cpu_cores`` are busy CPUs, all but idle and iowait,
    ``run_queue`` tasks that run or are ready to, ``blocked`` those that wait for I/O, and
    ``memory_bytes`` is without the page cache. Disk rates are of all disks, ``disk_busy_share`` and
    ``disk_queue`` of the busiest one, and ``disk_wait_s`` is the mean over I/Os. Network rates are
    of physical interfaces; ``loopback_bytes_s`` stays within the host, where no wire limits it.
    """
    frame = series.frame
    hosts = frame["host"].dropna().unique().tolist() if "host" in frame else []
    if len(hosts) > 1:
        raise PpwError(
            f"{series.source}: is of host {hosts[0]!r} and of {hosts[1]!r}: read one host at a time"
        )
    chosen = physical_disks(series.devices("disk_busy_share")) if disks is None else tuple(disks)
    cpus = gr.numbers(frame, "cpus")
    # The scheduler's time of a task can have the interrupts in it that are counted beside it.
    parts = _sum_rates(frame, (*_USER, *_KERNEL, "steal_s"), needed=("user_s", "system_s"))
    busy = np.where(np.isnan(parts), _rate(frame, "scheduled_s"), parts)
    columns = {
        "time_s": gr.numbers(frame, "time_s"),
        "interval_s": gr.numbers(frame, "interval_s"),
        "cpu_cores": np.where(np.isnan(busy), np.nan, np.fmin(busy, cpus)),
        "user_share": _sum_rates(frame, _USER, needed=("user_s",)) / cpus,
        "system_share": _sum_rates(frame, _KERNEL, needed=("system_s",)) / cpus,
        "iowait_share": _rate(frame, "iowait_s") / cpus,
        "steal_share": _rate(frame, "steal_s") / cpus,
        "run_queue": gr.numbers(frame, "run_queue"),
        "blocked": gr.numbers(frame, "blocked"),
        "context_switches_s": _rate(frame, "context_switches"),
        "memory_bytes": _used_memory(frame),
        "memory_inactive_bytes": gr.numbers(frame, "memory_inactive_bytes"),
        "memory_bandwidth_bytes_s": _rate(frame, "memory_read_bytes", "memory_written_bytes"),
        "swap_bytes_s": _rate(frame, "swap_in_bytes", "swap_out_bytes"),
        "swap_used_bytes": gr.numbers(frame, "swap_used_bytes"),
        "major_faults_s": _rate(frame, "major_faults"),
        "disk_read_bytes_s": _rate(frame, "sectors_read") * SECTOR_BYTES,
        "disk_written_bytes_s": _rate(frame, "sectors_written") * SECTOR_BYTES,
        "disk_iops": _rate(frame, "ios"),
        "disk_busy_share": _largest_over_disks(frame, "disk_busy_share", chosen),
        "disk_queue": _largest_over_disks(frame, "disk_queue", chosen),
        "disk_wait_s": _mean_wait(frame, chosen),
        "network_rx_bytes_s": _rate(frame, "network_rx_bytes"),
        "network_tx_bytes_s": _rate(frame, "network_tx_bytes"),
        "loopback_bytes_s": _rate(frame, of_device("network_tx_bytes", "lo")),
        "network_drops_s": _rate(frame, "network_rx_drops", "network_tx_drops"),
        "network_errors_s": _rate(frame, "network_errors"),
    }
    return pd.DataFrame(columns)


def _used_memory(frame: pd.DataFrame) -> FloatArray:
    """Memory that programs cannot get without swapping: by the kernel, else by its parts."""
    # Since Linux 5.9 fresh anonymous pages count as inactive until used again, so that inactive
    # memory outside the page cache is demand.
    total = gr.numbers(frame, "memory_total_bytes")
    by_kernel = total - gr.numbers(frame, "memory_available_bytes")
    buffers = np.nan_to_num(gr.numbers(frame, "memory_buffers_bytes"))
    cache = gr.numbers(frame, "memory_cached_bytes") + buffers
    by_parts = total - gr.numbers(frame, "memory_free_bytes") - cache
    return np.maximum(np.where(np.isnan(by_kernel), by_parts, by_kernel), 0.0)


def _largest_over_disks(frame: pd.DataFrame, column: str, disks: Sequence[str]) -> FloatArray:
    values = [gr.numbers(frame, of_device(column, disk)) for disk in disks]
    return np.asarray(np.fmax.reduce([np.full(len(frame), np.nan), *values]))


def _mean_wait(frame: pd.DataFrame, disks: Sequence[str]) -> FloatArray:
    """Mean wait (s) over the I/Os of all disks, weighted by their number; NaN without I/Os."""
    if not disks:
        return np.full(len(frame), np.nan)
    waits = np.array([gr.numbers(frame, of_device("disk_wait_s", disk)) for disk in disks])
    ios = np.array([gr.numbers(frame, of_device("disk_ios", disk)) for disk in disks])
    ios = np.where(np.isnan(waits), 0.0, np.nan_to_num(ios))
    with np.errstate(invalid="ignore"):
        return np.asarray((np.nan_to_num(waits) * ios).sum(axis=0) / ios.sum(axis=0))


def _rate(frame: pd.DataFrame, *names: str) -> FloatArray:
    """Sum of columns over the interval's length (per second); NaN where one is missing."""
    return _sum_rates(frame, names, needed=names)


def _sum_rates(frame: pd.DataFrame, names: Sequence[str], needed: Sequence[str]) -> FloatArray:
    """Sum of columns per second; NaN where a needed one is missing, 0 for the others."""
    total, interval = np.zeros(len(frame)), gr.numbers(frame, "interval_s")
    for name in names:
        rate = gr.numbers(frame, name) / interval
        total += rate if name in needed else np.nan_to_num(rate)
    return total


def as_series(given: object, name: str = "series") -> TimeSeries:
    """Return a time series as it is. Raises `PpwError` for any other type."""
    if isinstance(given, TimeSeries):
        return given
    raise PpwError(
        f"{name} is a {type(given).__name__}, not a TimeSeries: read a log with "
        "measurements.timeseries.read_time_series"
    )


def as_recordings(given: object) -> Mapping[str, Any]:
    """Return a mapping of recordings as it is. Raises `PpwError` for any other type."""
    if isinstance(given, Mapping):
        return given
    raise PpwError(
        f"recordings is a {type(given).__name__}, not a mapping: give each its name, "
        "{'name': series}"
    )


def check_workloads(recordings: Mapping[str, Any], critical: Sequence[str], what: str) -> None:
    """Raise `PpwError` for fewer than two recordings, or a critical workload without one."""
    if len(as_recordings(recordings)) < 2:
        raise PpwError(f"{len(recordings)} workload was given: two or more {what}")
    for name, series in recordings.items():
        as_series(series, name)
    if unknown := [name for name in critical if name not in recordings]:
        raise PpwError(f"no workload is called {unknown[0]!r}: one of {', '.join(recordings)}")


class Resource(NamedTuple):
    """One resource by which workloads are placed."""

    name: str
    columns: tuple[str, ...]  # of `demand_of`: they are added up
    # Figure of `ppw.pressure.capacity.Capacity`, and its unit.
    capacity: str
    unit: str
    measure: str  # threshold of `ppw.pressure.capacity`
    log: str  # columns of the log
    more: str  # what to buy more of
    tune: str  # what makes a test use more of it


# Resources, one field after another; an indented line goes on with the resource above.
_RESOURCES = """
CPU | cpu_cores | cores | cores | cpu_utilisation | user_s + system_s + … | cores
    | more clients, threads or instances, or a higher rate
memory | memory_bytes | memory_bytes | B | memory_utilisation
    | memory_total_bytes − memory_available_bytes | memory
    | a larger data set or heap, or more objects
memory bandwidth | memory_bandwidth_bytes_s | memory_bandwidth_bytes_s | B/s | memory_bandwidth
    | memory_read_bytes + memory_written_bytes | memory bandwidth
    | a working set larger than the caches, on more threads
disk bandwidth | disk_read_bytes_s disk_written_bytes_s | disk_bandwidth_bytes_s | B/s
    | disk_bandwidth | sectors_read + sectors_written | disk bandwidth
    | data larger than the page cache, or larger requests
disk I/Os | disk_iops | disk_iops | 1/s | disk_iops | ios | disk I/Os
    | a deeper queue, or small requests to data larger than the page cache
network in | network_rx_bytes_s | network_bytes_s_each_way | B/s | network_utilisation
    | network_rx_bytes | network bandwidth | larger objects, from clients on other hosts
network out | network_tx_bytes_s | network_bytes_s_each_way | B/s | network_utilisation
    | network_tx_bytes | network bandwidth | larger objects, to clients on other hosts
"""


def _parse_resource_line(line: str) -> Resource:
    name, columns, *others = (part.strip() for part in line.split("|"))
    return Resource(name, tuple(columns.split()), *others)


RESOURCES = tuple(map(_parse_resource_line, _RESOURCES.strip().replace("\n ", " ").splitlines()))
NAMES = tuple(resource.name for resource in RESOURCES)
UNITS = {resource.name: resource.unit for resource in RESOURCES}
# Findings about a resource.
NOT_MEASURED, NO_CAPACITY = "not measured", "capacity not known"
BREAKS, TIGHT, FITS = "breaks", "tight", "fits"
NOTHING_JUDGED = "no resource has both a known demand and a known capacity, so ppw can judge none"
# From this share of the capacity on, a recording shows what the host gave, not what was wanted.
FULL = 0.95
# Cells of a clock, beside 100 for each interval of the log.
_MOST_CELLS = 2**18


def demands(series: TimeSeries, *, disks: Sequence[str] | None = None) -> pd.DataFrame:
    """Make the demand on each of `RESOURCES` by interval; NaN unless all its parts are known."""
    raw = demand_of(series, disks=disks)
    summed = {r.name: raw[list(r.columns)].sum(axis=1, skipna=False) for r in RESOURCES}
    raw.attrs["source"] = series.source
    return raw[["time_s", "interval_s"]].assign(**summed)


def demand_on_clock(demand: pd.DataFrame, start_s: float, step_s: float, n: int) -> FloatArray:
    """Mean demand in each cell of a clock: (cells, resources), NaN where not known."""
    # A wrong time must not make a clock of as many cells as memory holds.
    if n > _MOST_CELLS + 100 * len(demand):
        raise PpwError(
            f"{demand.attrs['source']}: {len(demand)} intervals lie in {n} of {step_s:g} s: one "
            "of their times is wrong, or cut the log"
        )
    # NaN in a rate leaves its time out of the cells, so that missing time is not zero.
    rates = demand[list(NAMES)].to_numpy(dtype=np.float64)
    return mean_on_clock(demand["time_s"], demand["interval_s"], rates, start_s, step_s, n)


def own_clock(demand: pd.DataFrame) -> tuple[float, float, int]:
    """Start (s), step (s) and number of cells of a clock with the recording's usual interval."""
    step = float(demand["interval_s"].dropna().median())
    if not step > 0:
        raise PpwError(
            f"{demand.attrs['source']}: holds no interval of known length: give a longer log"
        )
    start = float(demand["time_s"].iloc[0] - demand["interval_s"].fillna(step).iloc[0])
    span = float(demand["time_s"].iloc[-1]) - start
    return start, step, max(1, round(span / step))


def capacity_array(capacity: Capacity) -> FloatArray:
    """Capacity of each resource in the order of `RESOURCES`, NaN where not known."""
    figures = capacity.figures()
    return np.array([figures[resource.capacity] for resource in RESOURCES])


def capacity_for(
    series: TimeSeries, given: Capacity | Mapping[str, float] | None, host: Host | None = None
) -> Capacity:
    """Capacity to compare demand with: what is given, else what a host and the log say."""
    if isinstance(given, Capacity):
        return given
    found = capacity_of(series)
    if host is not None:
        bandwidth = "memory_bandwidth_bytes_s"
        figures = {"cores": host.threads or host.cores, bandwidth: host.memory_bandwidth_bytes_s}
        known = {name: float(value) for name, value in figures.items() if value is not None}
        found = found.with_figures(known, f"catalogue: {host.name}")
    return found.with_figures(given or {}, STATED)


def own_capacities(series: TimeSeries, limits: Capacity) -> FloatArray:
    """Capacity of each resource of the recorded host: by its log, else by ``limits``."""
    return capacity_array(limits.with_figures(logged_figures(series), "the log"))


def assumed_cpus_texts(series: TimeSeries) -> list[str]:
    """Texts on the number of CPUs that was assumed for a log that does not tell it."""
    texts = [finding.text for finding in series.findings]
    return [f"{series.source}: {text}" for text in texts if text.startswith(CPUS_TAKEN)]


def check_share(name: str, value: float) -> float:
    """Check a share above 0 and at most 1. Raises `PpwError`."""
    if not 0 < value <= 1:
        raise PpwError(f"{name} {value!r} is not a share above 0 and at most 1")
    return float(value)


def amount_text(value: float, unit: str, *, at_least: bool = False) -> str:
    """Write a demand or a capacity; "≥" where it is a lower bound, "–" where not known."""
    if value != value:
        return "–"
    number = tx.shown(value, {"B/s": "B", "1/s": ""}.get(unit, unit))
    per_second = "/s" if unit in ("B/s", "1/s") else ""
    return f"{'≥ ' if at_least else ''}{number}{per_second}"


def cell_amount_text(column: str, row: Mapping[Any, Any]) -> str:
    """Write the amount in a row's column, in the unit of the row's resource."""
    unit = row["unit"] if "unit" in row else UNITS[row["resource"]]
    # Of a host that was full the demand is a lower bound.
    at_least = column in ("value", "needed") and bool(row.get("at_least"))
    return amount_text(row[column], unit, at_least=at_least)


def use_text(row: Mapping[Any, Any], quantile: float) -> str:
    """Write how much of its capacity a resource uses at most for a quantile of the time."""
    return (
        f"{cell_amount_text('value', row)} of {cell_amount_text('capacity', row)} "
        f"for {quantile:.0%} of the time ({row['share']:.0%})"
    )


def draw_shares(
    ax: Axes | None, names: Iterable[str], shares: pd.Series[float], colours: Sequence[str]
) -> Axes:
    """Draw the share of each capacity that is used as a bar, the first resource on top."""
    axes, place = drawing.new_axes(ax), np.arange(len(shares))[::-1]
    axes.barh(place, 100 * shares, color=colours, height=0.6)
    axes.set_yticks(place, [tx.plot_label(name) for name in names])
    axes.set_ylabel("resource")
    return axes
