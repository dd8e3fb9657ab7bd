"""`right_size`: what a recorded workload needs of each resource, and which hosts have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fitting.demand.utilisation import agreement, summarise_shares
from measurements.timeseries.series import TimeSeries
from ppw.catalogue.hosts import Host
from ppw.errors import PpwError
from ppw.pressure import capacity as cap, demand as dem
from ppw.results.axes import CURVE, PROJECTED, Axes
from ppw.results.result import Result, Table, frame_digest, rows_of, warn_caveats
from ppw.results.text import shown

BUY, ENOUGH, IDLE = "buy more", "enough", "idle"
_BANDWIDTH = "memory_bandwidth_bytes_s"
_MOST_HOSTS = 5
_OF = {resource.name: resource for resource in dem.RESOURCES}


@dataclass(frozen=True, kw_only=True, eq=False)
class RightSizing(Result):
    """What to buy more of, what is idle, and by how much.

    Attributes
    ----------
    resources : pandas.DataFrame
        One row per resource.
    candidates : pandas.DataFrame
        Hosts of the catalogue, those that fit first, smallest first.
    source : str
    seconds, intervals : float
        Length of the recording (s) and number of its intervals.
    quantile : float
        Share of the time for which a resource must suffice.
    """

    kind = "right_sizing"
    tables = (
        Table(
            "resources",
            """
            resource        | text  | resource     | name of the resource
            finding         | text  | finding      | "buy more", "enough", "idle", or why not judged
            value           | unit  | value        | demand not exceeded for `quantile` of the time
            unit            | text  |              | unit of the amounts
            capacity        | unit  | capacity     | capacity of the host
            capacity_source | text  |              | who says the capacity
            share           | share | share        | `value` as a share of the capacity
            threshold       | share | threshold    | the threshold of the share that decided
            medium          | share |              | threshold below which it is idle
            high            | share |              | threshold above which there is too little
            needed          | unit  | needed       | demand with its headroom
            spare           | unit  |              | capacity less `needed`; below 0 it is missing
            at_least        | flag  |              | the host was full: the workload may want more
            confidence      | share | confidence   | resampled recordings with the same finding
            column          | text  | column       | columns of the log
            not_measured    | text  | not measured | evidence that the log lacks
            """,
            title="Resources",
            show={n: partial(dem.cell_amount_text, n) for n in ("value", "capacity", "needed")},
        ),
        Table(
            "candidates",
            """
            host        | text  | host           | name in the catalogue
            fits        | flag  | fits           | whether it suffices by what both sides know
            cores       | 1     | cores          | physical cores: a thread is less than a core
            cores_share | share | of them needed | cores needed as a share of its own
            memory_bandwidth_bytes_s | B/s   | memory bandwidth | peak memory bandwidth
            memory_bandwidth_share   | share |                  | bandwidth needed as a share of it
            tdp_w            | W    | TDP        | thermal design power
            launch_price_usd | USD  |            | price at launch
            not_stated       | text | not stated | what is needed and the catalogue does not state
            """,
            title="Hosts of the catalogue",
            note="Cores are physical and taken to be as fast as those of the recording.",
            most=0,
            show={_BANDWIDTH: lambda row: dem.amount_text(row[_BANDWIDTH], "B/s")},
        ),
    )

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

    def verdict(self) -> list[str]:
        """Say what to buy, what is idle and what is not known, in sentences."""
        rows = rows_of(self.resources)
        texts = [] if self.stresses_the_host else [_no_stress_text(rows)]
        texts += [self._row_sentence(row) for row in rows if row["finding"] in (BUY, ENOUGH, IDLE)]
        for why in (dem.NOT_MEASURED, dem.NO_CAPACITY):
            names = [row["resource"] for row in rows if row["finding"] == why]
            if names:
                given = dict.fromkeys(cap.WORDS[_OF[name].capacity][1] for name in names)
                tell = f": give {', '.join(given)}" * (why == dem.NO_CAPACITY)
                texts.append(f"{', '.join(names)}: {why}{tell}")
        return [*texts, *self._hosts_sentence()]

    def _row_sentence(self, row: dict[str, Any]) -> str:
        used = f"{row['resource']}: {dem.use_text(row, self.quantile)}"
        gap = dem.amount_text(abs(row["spare"]), row["unit"])
        kept = f" with {1 - row['high']:.0%} headroom"
        if row["finding"] == BUY:
            least = "at least " if row["at_least"] else ""
            of = _OF[row["resource"]].more
            return f"{used}: buy {least}{gap} more{f' of {of}' * (of != row['unit'])}{kept}"
        return f"{used}: {row['finding']}, {gap} to spare{kept}"

    def _hosts_sentence(self) -> list[str]:
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

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of each resource that is used, and the thresholds."""
        table = self.resources
        colours = [PROJECTED if finding == BUY else CURVE for finding in table["finding"]]
        axes = dem.draw_shares(ax, table["resource"], table["share"].fillna(0.0), colours)
        for at, row in zip(range(len(table) - 1, -1, -1), rows_of(table), strict=True):
            if np.isnan(row["share"]):
                axes.text(1, at, row["finding"], va="center", fontsize=7)
                continue
            for threshold in (row["medium"], row["high"]):
                axes.plot([100 * threshold] * 2, [at - 0.4, at + 0.4], color="0.4", lw=1)
        axes.set_xlabel("used (% of capacity)")
        axes.set_xlim(0, max(100.0, 105 * float(np.nanmax([1.0, *table["share"]]))))
        return axes


def _no_stress_text(rows: list[dict[str, Any]]) -> str:
    known = [row for row in rows if row["share"] == row["share"]]
    if not known:
        return dem.NOTHING_JUDGED
    top = max(known, key=lambda row: row["share"] / row["medium"])
    tuned = "; ".join(f"{row['resource']}: {_OF[row['resource']].tune}" for row in known)
    return (
        f"this test does not stress this host: the most used resource is {top['resource']} at "
        f"{top['share']:.0%}, and medium begins at {top['medium']:.0%}; to tune: {tuned}"
    )


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
    capacity: cap.Capacity | Mapping[str, float] | None = None,
    host: Host | None = None,
    headroom: float | None = None,
    thresholds: cap.Thresholds | None = None,
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

    Raises
    ------
    PpwError
        For shares that cannot be, what is no time series, or one without an interval.
    """
    if headroom is not None and not 0 < headroom < 1:
        raise PpwError(f"headroom {headroom!r} is not a share between 0 and 1; try 0.3")
    dem.check_share("quantile", quantile)
    if not len(dem.as_series(series).frame):
        raise PpwError(f"{series.source}: no interval was recorded")
    limits = dem.capacity_for(series, capacity, host)
    demands = dem.demands(series, disks=disks)
    evidence = dem.demand_of(series, disks=disks)
    # Shares of the capacity between idle, enough and too little.
    shares = []
    for resource in dem.RESOURCES:
        threshold = (thresholds or cap.Thresholds())[resource.measure]
        most = threshold.high if headroom is None else 1 - headroom
        shares.append((min(threshold.medium, most), most))
    table = _resource_table(demands, evidence, limits, shares, quantile)
    caveats = [*_right_size_caveats(series, table, demands, limits)]
    warn_caveats(caveats)
    return RightSizing(
        resources=table,
        candidates=_candidate_table(table, hosts),
        source=series.source,
        seconds=series.seconds,
        intervals=float(len(series.frame)),
        quantile=float(quantile),
        caveats=tuple(caveats),
        input_digest=frame_digest(series.frame),
    )


def _resource_table(
    demands: pd.DataFrame,
    evidence: pd.DataFrame,
    limits: cap.Capacity,
    shares: Sequence[tuple[float, float]],
    quantile: float,
) -> pd.DataFrame:
    amounts = dem.demand_on_clock(demands, *dem.own_clock(demands))
    high = summarise_shares(amounts, quantile).high.tolist()
    capacity = dem.capacity_array(limits).tolist()
    rows = []
    for place, (resource, (idle, most)) in enumerate(zip(dem.RESOURCES, shares, strict=True)):
        value, limit = high[place], capacity[place]
        finding, decided = _judge(value, limit, idle, most)
        # A finding between two thresholds is as sure as the nearer of them.
        sure = [agreement(amounts[:, place] / limit, share, quantile) for share in decided]
        missing = [resource.name] if np.isnan(value) else []
        missing += ["capacity"] if np.isnan(limit) else []
        missing += [c for c in _EVIDENCE.get(resource.name, ()) if evidence[c].isna().all()]
        rows.append(
            {
                "resource": resource.name,
                "finding": finding,
                "value": value,
                "unit": resource.unit,
                "capacity": limit,
                "capacity_source": limits.source(resource.capacity),
                "share": value / limit,
                "threshold": decided[0] if decided else np.nan,
                "medium": idle,
                "high": most,
                "needed": value / most,
                "spare": limit - value / most,
                "at_least": value / limit >= dem.FULL,
                "column": resource.log,
                "confidence": min(sure, default=np.nan),
                "not_measured": ", ".join(missing),
            }
        )
    return pd.DataFrame(rows)


def _judge(value: float, limit: float, idle: float, most: float) -> tuple[str, tuple[float, ...]]:
    """Finding for the use of a resource (buy, enough, idle), and the thresholds that decided it."""
    if np.isnan(value):
        return dem.NOT_MEASURED, ()
    if np.isnan(limit):
        return dem.NO_CAPACITY, ()
    if value / limit > most:
        return BUY, (most,)
    return (ENOUGH, (most, idle)) if value / limit >= idle else (IDLE, (idle,))


def _candidate_table(resources: pd.DataFrame, hosts: Mapping[str, Host] | None) -> pd.DataFrame:
    """Compare hosts with the cores and memory bandwidth needed; those that fit come first."""
    from ppw.catalogue.hosts import load_hosts

    needed = dict(zip(resources["resource"], resources["needed"], strict=True))
    known = load_hosts() if hosts is None else hosts
    rows = [_host_row(host, needed["CPU"], needed["memory bandwidth"]) for host in known.values()]
    table = pd.DataFrame(rows, columns=RightSizing.tables[1].names)
    order = ["fits", "cores", "tdp_w", "host"]
    return table.sort_values(order, ascending=[False, True, True, True], ignore_index=True)


def _host_row(host: Host, cores: float, bandwidth: float) -> dict[str, Any]:
    """Row of a host: whether it has the cores and bandwidth (B/s) needed; what is not stated."""
    figures = (host.cores, host.memory_bandwidth_bytes_s, host.tdp_w, host.launch_price_usd)
    known = [np.nan if figure is None else float(figure) for figure in figures]
    has_cores, has_bandwidth, tdp_w, launch_price_usd = known
    shares = cores / has_cores, bandwidth / has_bandwidth
    both = ("cores", cores, has_cores), ("memory bandwidth", bandwidth, has_bandwidth)
    missing = [name for name, need, has in both if np.isnan(has) and not np.isnan(need)]
    return {
        "host": host.name,
        # What is not needed rules nothing out; the table says what is not stated. What is needed is
        # a quotient: 7 cores at 70 % need 10 cores, and not the last digit more.
        "fits": not missing and not any(round(share, 9) > 1 for share in shares),
        "cores": has_cores,
        "cores_share": shares[0],
        "memory_bandwidth_bytes_s": has_bandwidth,
        "memory_bandwidth_share": shares[1],
        "tdp_w": tdp_w,
        "launch_price_usd": launch_price_usd,
        "not_stated": ", ".join(missing),
    }


def _right_size_caveats(
    series: TimeSeries, table: pd.DataFrame, demands: pd.DataFrame, limits: cap.Capacity
) -> Iterator[str]:
    for row in rows_of(table[table["at_least"]]):
        yield (
            f"{row['resource']} was at {row['share']:.0%} of its capacity: the host gave no more, "
            "and the workload may need more"
        )
    # The recording's own host may be smaller than the one that is judged.
    home = table.assign(own=table["value"] / dem.own_capacities(series, limits))
    for row in rows_of(home[(home["own"] >= dem.FULL) & ~home["at_least"]]):
        yield (
            f"{row['resource']} was at {row['own']:.0%} of what the host of the recording had: it "
            "gave no more, and the workload may need more"
        )
    yield from dem.assumed_cpus_texts(series)
    cores, (low, high) = demands["CPU"], _ONE_CORE
    # A steady core among several is the sign of one thread.
    if limits.cores > 1 and low <= cores.mean() and cores.quantile(0.95) <= high:
        yield (
            f"steadily {cores.mean():.2f} of {limits.cores:g} cores: if that is one thread, more "
            "cores do not help it, but faster cores or more instances do"
        )
    if len(series.frame) < 10:
        yield (
            f"{len(series.frame)} intervals are too few to tell the confidence of a finding: "
            "record at least ten"
        )
    if "container" in str(series.frame.get("marks", pd.Series(dtype=str)).unique()):
        yield "recorded in a container that sees its host's counters: demand is the host's"
