"""`right_size`: what a recorded workload needs of each resource, and which hosts have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from fitting.demand.co_location import agreement, load_of
from ppw import caveats as cv
from ppw.errors import PpwError
from ppw.pressure.demand import as_series, demand_of
from ppw.pressure.thresholds import Thresholds
from ppw.provisioning.candidates import fitting_hosts
from ppw.provisioning.resources import (
    NO_CAPACITY,
    NOT_MEASURED,
    RESOURCES,
    about_cpus,
    amounts,
    capacities,
    capacity_for,
    demands,
    own_capacity,
    own_clock,
    within,
)
from ppw.provisioning.right_sizing_result import BUY, ENOUGH, IDLE, RESOURCE_COLUMNS, RightSizing
from ppw.result import frame_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from measurements.timeseries.series import TimeSeries
    from ppw.host import Host
    from ppw.pressure.capacity import Capacity
    from ppw.provisioning.resources import Resource

# From this share of the capacity on a recording shows what the host gave, not what was wanted.
FULL = 0.95
# Columns of `demand_of` that would show a resource saturated.
_EVIDENCE = {
    "CPU": ("run_queue", "iowait_share", "steal_share"),
    "memory": ("swap_bytes_s", "major_faults_s"),
    "disk bandwidth": ("disk_queue", "disk_wait_s"),
    "disk I/Os": ("disk_queue", "disk_wait_s"),
    "network in": ("network_drops_s",),
    "network out": ("network_drops_s",),
}
_ONE_CORE = (0.9, 1.05)


def right_size(
    series: TimeSeries,
    *,
    capacity: Capacity | Mapping[str, float] | None = None,
    host: Host | None = None,
    headroom: float | None = None,
    thresholds: Thresholds | None = None,
    quantile: float = 0.95,
    hosts: Mapping[str, Host] | None = None,
    disks: Sequence[str] | None = None,
) -> RightSizing:
    """Say for each resource what to buy more of, what is idle, and by how much.

    Parameters
    ----------
    series : TimeSeries
        Recording of the workload on a host of its own.
    capacity : Capacity or mapping of str to float, optional
        What that host can do; a mapping adds to what the log says.
    host : Host, optional
        Entry of the catalogue that the recording is of, for its cores and memory bandwidth.
    headroom : float, optional
        Share of each resource to keep free, inside (0, 1); by default what is above its high
        threshold.
    thresholds : Thresholds, optional
        Shares of the capacity: a resource is idle below medium.
    quantile : float
        Share of the time for which the resource must suffice.
    hosts : mapping of str to Host, optional
        Candidates; by default the whole catalogue.
    disks : sequence of str, optional
        Disks that count; by default the physical ones.

    Returns
    -------
    RightSizing
        What to buy more of, what is idle, and by how much.

    Raises
    ------
    PpwError
        For shares that cannot be, what is no time series, or one without an interval.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    if headroom is not None and not 0 < headroom < 1:
        raise PpwError(f"headroom {headroom!r} is not a share between 0 and 1; try 0.3")
    within("quantile", quantile)
    if not len(as_series(series).frame):
        raise PpwError(f"{series.source}: no interval was recorded")
    limits = capacity_for(series, capacity, host)
    asked = demands(series, disks=disks)
    evidence = demand_of(series, disks=disks)
    lines = [_lines(resource, thresholds or Thresholds(), headroom) for resource in RESOURCES]
    table = _resources(asked, evidence, limits, lines, quantile)
    candidates = fitting_hosts(table, hosts)
    caveats = _caveats(series, table, asked, limits)
    cv.warn(caveats)
    return RightSizing(
        resources=table,
        candidates=candidates,
        source=series.source,
        seconds=series.seconds,
        intervals=float(len(series.frame)),
        quantile=float(quantile),
        caveats=tuple(caveats),
        input_digest=frame_digest(series.frame),
    )


class _Lines(NamedTuple):
    """Shares of the capacity between idle, enough and too little."""

    idle: float
    most: float


def _lines(resource: Resource, thresholds: Thresholds, headroom: float | None) -> _Lines:
    threshold = thresholds[resource.measure]
    most = threshold.high if headroom is None else 1 - headroom
    return _Lines(min(threshold.medium, most), most)


def _resources(
    asked: pd.DataFrame,
    evidence: pd.DataFrame,
    limits: Capacity,
    lines: Sequence[_Lines],
    quantile: float,
) -> pd.DataFrame:
    capacity = capacities(limits)
    amount = amounts(asked, *own_clock(asked))
    high = load_of(amount, quantile).high
    rows = []
    for place, (resource, line) in enumerate(zip(RESOURCES, lines, strict=True)):
        value, limit = float(high[place]), float(capacity[place])
        share = value / limit
        finding, decided = _finding(value, limit, line)
        rows.append(
            {
                "resource": resource.name,
                "finding": finding,
                "value": value,
                "unit": resource.unit,
                "capacity": limit,
                "capacity_source": limits.source(resource.capacity),
                "share": share,
                "threshold": line.most if len(decided) > 1 else (*decided, np.nan)[0],
                "medium": line.idle,
                "high": line.most,
                "needed": value / line.most,
                "spare": limit - value / line.most,
                "at_least": bool(share >= FULL),
                "column": resource.log,
                "confidence": min(
                    (agreement(amount[:, place] / limit, t, quantile) for t in decided),
                    default=np.nan,
                ),
                "not_measured": _not_measured(resource, value, limit, evidence),
            }
        )
    return pd.DataFrame(rows, columns=list(RESOURCE_COLUMNS))


def _finding(value: float, limit: float, line: _Lines) -> tuple[str, tuple[float, ...]]:
    """Finding, and the thresholds of the share that decided it."""
    if np.isnan(value):
        return NOT_MEASURED, ()
    if np.isnan(limit):
        return NO_CAPACITY, ()
    if value / limit > line.most:
        return BUY, (line.most,)
    if value / limit >= line.idle:
        return ENOUGH, (line.most, line.idle)
    return IDLE, (line.idle,)


def _not_measured(resource: Resource, value: float, limit: float, evidence: pd.DataFrame) -> str:
    missing = [resource.name] if np.isnan(value) else []
    missing += ["capacity"] if np.isnan(limit) else []
    columns = _EVIDENCE.get(resource.name, ())
    return ", ".join([*missing, *(c for c in columns if evidence[c].isna().all())])


def _caveats(
    series: TimeSeries, table: pd.DataFrame, asked: pd.DataFrame, limits: Capacity
) -> list[str]:
    said = [
        f"{row['resource']} was at {row['share']:.0%} of its capacity: this is what the host gave, "
        "and the workload may want more"
        for row in table.to_dict(orient="records")
        if row["at_least"]
    ]
    said += _full_at_home(series, table, limits)
    said += about_cpus(series)
    said += _one_core(asked["CPU"], limits)
    if len(series.frame) < 10:
        said.append(
            f"{len(series.frame)} intervals say nothing of how sure a finding is: record at least "
            "ten"
        )
    if "container" in str(series.frame.get("marks", pd.Series(dtype=str)).unique()):
        said.append("recorded in a container that sees its host's counters: demand is the host's")
    return said


def _full_at_home(series: TimeSeries, table: pd.DataFrame, limits: Capacity) -> list[str]:
    """Name what the recording's own host, smaller than the one that is judged, had no more of."""
    own = capacities(own_capacity(series, limits))
    filled = (table["value"] / own >= FULL) & ~table["at_least"]
    return [
        f"{name} was at {value / limit:.0%} of what the host of the recording had: this is what it "
        "gave, and the workload may want more"
        for name, value, limit in zip(
            table["resource"][filled], table["value"][filled], own[filled], strict=True
        )
    ]


def _one_core(cores: pd.Series[float], limits: Capacity) -> list[str]:
    low, high = _ONE_CORE
    # A steady core among several is the sign of one thread.
    if limits.cores > 1 and low <= cores.mean() and cores.quantile(0.95) <= high:
        return [
            f"steadily {cores.mean():.2f} of {limits.cores:g} cores: if that is one thread, more "
            "cores are of no use to it; faster cores or more instances are"
        ]
    return []
