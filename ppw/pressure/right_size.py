"""`right_size`: what a recorded workload needs of each resource, and which hosts have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fitting.demand.co_location import agreement, load_of
from ppw.errors import PpwError
from ppw.pressure.capacity import Thresholds
from ppw.pressure.demand import (
    FULL,
    NO_CAPACITY,
    NOT_MEASURED,
    RESOURCES,
    about_cpus,
    amount,
    amounts,
    as_series,
    capacities,
    capacity_for,
    demand_of,
    demands,
    own_capacity,
    own_clock,
    percent,
    within,
)
from ppw.results import caveats as cv
from ppw.results.axes import CURVE, PROJECTED, new_axes
from ppw.results.result import TabledResult, frame_digest, rows_of
from ppw.results.text import plot_label, shown, summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from measurements.timeseries.series import TimeSeries
    from ppw.catalogue.hosts import Host
    from ppw.pressure.capacity import Capacity
    from ppw.pressure.demand import Resource


# What a workload needs of each resource, as a result.


BUY, ENOUGH, IDLE = "buy more", "enough", "idle"
RESOURCE_COLUMNS = (
    *("resource", "finding", "value", "unit", "capacity", "capacity_source", "share"),
    *(
        "threshold",
        "medium",
        "high",
        "needed",
        "spare",
        "at_least",
        "column",
        "confidence",
        "not_measured",
    ),
)
EVIDENCE = ("resource", "column of the log", "capacity from", "not measured")
_MOST_HOSTS = 5
_OF = {resource.name: resource for resource in RESOURCES}
# What states a capacity, by its figure.
_OPTIONS = {
    "cores": "--cpus",
    "memory_bytes": "--memory",
    "memory_bandwidth_bytes_s": "--memory-bandwidth",
    "disk_bandwidth_bytes_s": "--disk-bandwidth",
    "disk_iops": "--disk-iops",
    "network_bytes_s_each_way": "--network",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class RightSizing(TabledResult):
    """What to buy more of, what is idle, and by how much.

    Attributes
    ----------
    resources : pandas.DataFrame
        One row a resource: ``finding`` ("buy more", "enough", "idle", "not measured" or "capacity
        not known"); ``value``, the demand that was not exceeded for ``quantile`` of the time, in
        ``unit``; ``capacity`` and who says so; ``share`` of it; the ``threshold`` of the share
        that decided, with those of ``medium`` and ``high``; ``needed``, the demand with its
        headroom; ``spare``, capacity less that (below 0: what is missing); ``at_least``, where the
        host was full, so that the workload may want more; ``column`` of the log; ``confidence``,
        the share of resampled recordings with the same finding (NaN below ten intervals);
        ``not_measured``, evidence that the log lacks.
    candidates : pandas.DataFrame
        Hosts of the catalogue, those that fit first, as `ppw.pressure.right_size`.
    source : str
    seconds, intervals : float
        Of the recording.
    quantile : float
    caveats : tuple of str
    """

    kind: ClassVar[str] = "right_sizing"

    resources: pd.DataFrame
    candidates: pd.DataFrame
    source: str
    seconds: float
    intervals: float
    quantile: float

    @property
    def stresses_the_host(self) -> bool:
        """Whether any resource passes the medium threshold."""
        return bool((self.resources["share"] >= self.resources["medium"]).any())

    def to_frame(self) -> pd.DataFrame:
        """One row a resource."""
        return self.resources

    def verdict(self) -> list[str]:
        """Say what to buy, what is idle and what is not known, in sentences."""
        rows = rows_of(self.resources)
        said = [] if self.stresses_the_host else self._unstressed(rows)
        said += [self._sentence(row) for row in rows if row["finding"] in (BUY, ENOUGH, IDLE)]
        for why in (NOT_MEASURED, NO_CAPACITY):
            names = [row["resource"] for row in rows if row["finding"] == why]
            if names:
                given = list(dict.fromkeys(_OPTIONS[_OF[name].capacity] for name in names))
                tell = f": give {', '.join(given)}" * (why == NO_CAPACITY)
                said.append(f"{', '.join(names)}: {why}{tell}")
        return [*said, *self._hosts()]

    def summary(self) -> str:
        """Text: the sentences, the evidence and the caveats."""
        lines = [*self.verdict(), text_table(self.header(), self.cells())]
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [
            *("resource", "finding", "value", "capacity", "share", "threshold", "needed"),
            *("confidence", "column", "not measured"),
        ]

    def evidence(self) -> list[list[str]]:
        """Column of the log, who says the capacity, and what was not measured, by resource."""
        return [
            [row[c] or "–" for c in ("resource", "column", "capacity_source", "not_measured")]
            for row in rows_of(self.resources)
        ]

    def cells(self) -> list[list[str]]:
        """The resources as they are printed."""
        return [
            [
                row["resource"],
                row["finding"],
                amount(row["value"], row["unit"], at_least=row["at_least"]),
                amount(row["capacity"], row["unit"]),
                percent(row["share"]),
                percent(row["threshold"]),
                amount(row["needed"], row["unit"], at_least=row["at_least"]),
                percent(row["confidence"]),
                row["column"],
                row["not_measured"] or "–",
            ]
            for row in rows_of(self.resources)
        ]

    def candidate_header(self) -> list[str]:
        """Name the columns of `candidate_cells`."""
        return ["host", "fits", "cores", "of them needed", "memory bandwidth", "TDP", "not stated"]

    def candidate_cells(self) -> list[list[str]]:
        """The hosts as they are printed."""
        return [
            [
                row["host"],
                "yes" if row["fits"] else "no",
                shown(row["cores"]),
                percent(row["cores_share"]),
                amount(row["memory_bandwidth_bytes_s"], "B/s"),
                shown(row["tdp_w"], "W"),
                row["not_stated"] or "–",
            ]
            for row in rows_of(self.candidates)
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of each resource that is used, and the thresholds."""
        return plot_right_sizing(self, ax)

    def _unstressed(self, rows: list[dict[str, Any]]) -> list[str]:
        known = [row for row in rows if row["share"] == row["share"]]
        if not known:
            return ["no resource has both its demand and its capacity: nothing can be judged"]
        top = max(known, key=lambda row: row["share"] / row["medium"])
        tuned = "; ".join(f"{row['resource']}: {_OF[row['resource']].tune}" for row in known)
        return [
            f"this test does not stress this host: the most used resource is {top['resource']} at "
            f"{top['share']:.0%}, and medium begins at {top['medium']:.0%}; to tune: {tuned}"
        ]

    def _sentence(self, row: dict[str, Any]) -> str:
        used = (
            f"{row['resource']}: {amount(row['value'], row['unit'], at_least=row['at_least'])} of "
            f"{amount(row['capacity'], row['unit'])} for {self.quantile:.0%} of the time "
            f"({row['share']:.0%})"
        )
        gap = amount(abs(row["spare"]), row["unit"])
        kept = f" with {1 - row['high']:.0%} headroom"
        if row["finding"] == BUY:
            least = "at least " if row["at_least"] else ""
            of = _OF[row["resource"]].more
            return f"{used}: buy {least}{gap} more{f' {of}' * (of != row['unit'])}{kept}"
        return f"{used}: {row['finding']}, {gap} to spare{kept}"

    def _hosts(self) -> list[str]:
        fits = self.candidates.loc[self.candidates["fits"], "host"]
        (need,) = self.resources.loc[self.resources["resource"] == "CPU", "needed"]
        if need != need:
            return []
        cores = f"{shown(need)} cores"
        if not len(fits):
            return [f"no host of the catalogue has {cores} in one package"]
        names = ", ".join(fits.head(_MOST_HOSTS))
        more = f" and {len(fits) - _MOST_HOSTS} more" if len(fits) > _MOST_HOSTS else ""
        return [
            f"hosts with {cores}, if theirs are as fast, smallest first: {names}{more}; the "
            "catalogue states no memory size, disks or network"
        ]


# Hosts of the catalogue that have what a workload needs.


CANDIDATE_COLUMNS = (
    *("host", "fits", "cores", "cores_share", "memory_bandwidth_bytes_s"),
    *("memory_bandwidth_share", "tdp_w", "launch_price_usd", "not_stated"),
)


def fitting_hosts(resources: pd.DataFrame, hosts: Mapping[str, Host] | None) -> pd.DataFrame:
    """Hold the cores and memory bandwidth that are needed against hosts, smallest first.

    Parameters
    ----------
    resources : pandas.DataFrame
        ``resource`` and ``needed``, as in `RightSizing.resources`.
    hosts : mapping of str to Host, optional
        By default the whole catalogue.

    Returns
    -------
    pandas.DataFrame
        `CANDIDATE_COLUMNS`: ``fits`` by what both sides know, shares of need by what the host
        states, and what it does not state. Physical cores are counted: a second hardware thread
        is less than a core.
    """
    from ppw.catalogue.hosts import load_hosts

    needed = dict(zip(resources["resource"], resources["needed"], strict=True))
    known = load_hosts() if hosts is None else hosts
    rows = [_row(host, needed["CPU"], needed["memory bandwidth"]) for host in known.values()]
    table = pd.DataFrame(rows, columns=list(CANDIDATE_COLUMNS))
    order = ["fits", "cores", "tdp_w", "host"]
    return table.sort_values(order, ascending=[False, True, True, True], ignore_index=True)


def _row(host: Host, cores: float, bandwidth: float) -> dict[str, Any]:
    has_cores, has_bandwidth = _number(host.cores), _number(host.memory_bandwidth_bytes_s)
    shares = cores / has_cores, bandwidth / has_bandwidth
    # What is not known on either side rules nothing out; the table says that it is not known.
    missing = [
        name
        for name, need, has in (
            ("cores", cores, has_cores),
            ("memory bandwidth", bandwidth, has_bandwidth),
        )
        if np.isnan(has) and not np.isnan(need)
    ]
    return {
        "host": host.name,
        "fits": bool(not missing and not any(share > 1 for share in shares)),
        "cores": has_cores,
        "cores_share": shares[0],
        "memory_bandwidth_bytes_s": has_bandwidth,
        "memory_bandwidth_share": shares[1],
        "tdp_w": _number(host.tdp_w),
        "launch_price_usd": _number(host.launch_price_usd),
        "not_stated": ", ".join(missing),
    }


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


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


def plot_right_sizing(result: RightSizing, ax: Axes | None = None) -> Axes:
    """Draw the share of each capacity that is used."""
    axes = new_axes(ax)
    table = result.resources
    place = np.arange(len(table))[::-1]
    colours = [PROJECTED if finding == BUY else CURVE for finding in table["finding"]]
    axes.barh(place, 100 * table["share"].fillna(0.0), color=colours, height=0.6)
    for at, row in zip(place, table.to_dict(orient="records"), strict=True):
        if np.isnan(row["share"]):
            axes.text(1, at, row["finding"], va="center", fontsize=7)
            continue
        for threshold in (row["medium"], row["high"]):
            axes.plot([100 * threshold] * 2, [at - 0.4, at + 0.4], color="0.4", lw=1)
    axes.set_yticks(place, [plot_label(name) for name in table["resource"]])
    axes.set_ylabel("resource")
    axes.set_xlabel("used (% of capacity)")
    axes.set_xlim(0, max(100.0, 105 * float(np.nanmax([1.0, *table["share"]]))))
    return axes
