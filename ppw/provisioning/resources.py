"""The resources that workloads are placed by: demand, the host's capacity, and their columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from fitting.demand.co_location import on_clock
from measurements.timeseries.shortcomings import CPUS_TAKEN
from ppw.errors import PpwError
from ppw.pressure.capacity import Capacity, capacity_of
from ppw.pressure.demand import demand_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from measurements.timeseries.series import TimeSeries
    from ppw.host import Host


class Resource(NamedTuple):
    """One resource.

    ``columns`` of `ppw.pressure.demand.demand_of` are added up; ``capacity`` is a figure of
    `ppw.pressure.capacity.Capacity`; ``measure`` names its thresholds in
    `ppw.pressure.thresholds`; ``log`` names the columns of the log; ``more`` is what to buy more
    of, ``tune`` what makes a test use more of it.
    """

    name: str
    columns: tuple[str, ...]
    capacity: str
    unit: str
    measure: str
    log: str
    more: str
    tune: str


RESOURCES = (
    Resource(
        *("CPU", ("cpu_cores",), "cores", "cores", "cpu_utilisation"),
        *("user_s + system_s + …", "cores"),
        "more clients, threads or instances, or a higher rate",
    ),
    Resource(
        *("memory", ("memory_bytes",), "memory_bytes", "B", "memory_utilisation"),
        *("memory_total_bytes − memory_available_bytes", "memory"),
        "a larger data set or heap, or more objects",
    ),
    Resource(
        *("memory bandwidth", ("memory_bandwidth_bytes_s",), "memory_bandwidth_bytes_s", "B/s"),
        *("memory_bandwidth", "memory_read_bytes + memory_written_bytes", "memory bandwidth"),
        "a working set larger than the caches, on more threads",
    ),
    Resource(
        *("disk bandwidth", ("disk_read_bytes_s", "disk_written_bytes_s")),
        *("disk_bandwidth_bytes_s", "B/s", "disk_bandwidth"),
        *("sectors_read + sectors_written", "disk bandwidth"),
        "data larger than the page cache, or larger requests",
    ),
    Resource(
        *("disk I/Os", ("disk_iops",), "disk_iops", "1/s", "disk_iops", "ios", "disk I/Os"),
        "a deeper queue, or small requests to data larger than the page cache",
    ),
    Resource(
        *("network in", ("network_rx_bytes_s",), "network_bytes_s_each_way", "B/s"),
        *("network_utilisation", "network_rx_bytes", "network bandwidth"),
        "larger objects, from clients on other hosts",
    ),
    Resource(
        *("network out", ("network_tx_bytes_s",), "network_bytes_s_each_way", "B/s"),
        *("network_utilisation", "network_tx_bytes", "network bandwidth"),
        "larger objects, to clients on other hosts",
    ),
)
NAMES = tuple(resource.name for resource in RESOURCES)
UNITS = {resource.name: resource.unit for resource in RESOURCES}
NOT_MEASURED, NO_CAPACITY = "not measured", "capacity not known"


def demands(series: TimeSeries, *, disks: Sequence[str] | None = None) -> pd.DataFrame:
    """Make the demand on each resource of a time series, one row an interval.

    Returns
    -------
    pandas.DataFrame
        ``time_s``, ``interval_s``, and a column for each of `RESOURCES`; NaN is not measured.
    """
    raw = demand_of(series, disks=disks)
    # Of columns that are added up, all must be known.
    summed = {r.name: raw[list(r.columns)].sum(axis=1, skipna=False) for r in RESOURCES}
    return pd.DataFrame({"time_s": raw["time_s"], "interval_s": raw["interval_s"], **summed})


def amounts(asked: pd.DataFrame, start_s: float, step_s: float, n: int) -> np.ndarray:
    """Bring demands to the cells of a clock: (cells, resources), NaN where not known."""
    rates = asked[list(NAMES)].to_numpy(dtype=np.float64)
    return on_clock(asked["time_s"], asked["interval_s"], rates, start_s, step_s, n)


def own_clock(asked: pd.DataFrame) -> tuple[float, float, int]:
    """Start, step and cells of a clock that has the recording's own usual interval."""
    step = float(asked["interval_s"].median())
    start = float(asked["time_s"].iloc[0] - asked["interval_s"].iloc[0])
    span = float(asked["time_s"].iloc[-1]) - start
    return start, step, max(1, round(span / step))


def capacities(capacity: Capacity) -> np.ndarray:
    """Capacity of each resource, NaN where not known."""
    figures = capacity.figures()
    return np.array([figures[resource.capacity] for resource in RESOURCES])


def with_host(capacity: Capacity, host: Host) -> Capacity:
    """Take cores and memory bandwidth from a host of the catalogue, where it states them."""
    stated = {
        "cores": host.threads or host.cores,
        "memory_bandwidth_bytes_s": host.memory_bandwidth_bytes_s,
    }
    known = {name: float(value) for name, value in stated.items() if value is not None}
    sources = {**capacity.sources, **dict.fromkeys(known, f"catalogue: {host.name}")}
    return replace(capacity, **known, sources=sources)


def capacity_for(
    series: TimeSeries, given: Capacity | Mapping[str, float] | None, host: Host | None = None
) -> Capacity:
    """Capacity to hold demand against: what is given, else what the log and a host say."""
    if isinstance(given, Capacity):
        return given
    found = capacity_of(series)
    if host is not None:
        found = with_host(found, host)
    if not given:
        return found
    checked = capacity_of(series, given)
    sources = {**found.sources, **{name: checked.sources[name] for name in given}}
    return replace(found, **{n: float(v) for n, v in given.items()}, sources=sources)


def own_capacity(series: TimeSeries, limits: Capacity) -> Capacity:
    """Capacity of the host that was recorded: what its log says, else what is judged by."""
    logged = capacity_of(series).figures()
    known = {name: value for name, value in logged.items() if not np.isnan(value)}
    sources = {**limits.sources, **dict.fromkeys(known, "the log")}
    return replace(limits, **known, sources=sources)


def about_cpus(series: TimeSeries) -> list[str]:
    """Say of a log that does not tell its CPUs how many it was taken to have."""
    texts = [finding.text for finding in series.findings]
    return [f"{series.source}: {text}" for text in texts if text.startswith(CPUS_TAKEN)]


def within(name: str, value: float) -> float:
    """Refuse a share that is not above 0 and at most 1. Raises `PpwError`."""
    if not 0 < value <= 1:
        raise PpwError(f"{name} {value!r} is not a share above 0 and at most 1")
    return float(value)
