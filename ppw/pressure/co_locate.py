"""`co_locate` and `pair_workloads`: what breaks first when recorded workloads share a host."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.demand.utilisation import agreement, summarise_shares
from measurements.timeseries.series import TimeSeries
from ppw.catalogue.hosts import Host
from ppw.errors import CaveatWarning, PpwError
from ppw.pressure import capacity as cap, demand as dem
from ppw.results import result as res
from ppw.results.axes import CURVE, PROJECTED, Axes, new_axes
from ppw.results.result import PrintedTable, Result, Table, rows_of, warn_caveats
from ppw.results.text import check_choice, plot_label, shown

_LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True, kw_only=True, eq=False)
class CoLocation(Result):
    """What breaks first when workloads share a host.

    Attributes
    ----------
    resources : pandas.DataFrame
        One row per resource, of all workloads together.
    parts : pandas.DataFrame
        One row per resource and workload.
    timeline : pandas.DataFrame
        One row per resource and stretch of time; empty where workloads meet at any moment.
    align : str
    seconds : float
        Time that was judged (s); 0 where workloads meet at any moment.
    quantile : float
        Share of the time for which a resource must suffice.
    """

    kind = "co_location"
    tables = (
        Table(
            "resources",
            """
            resource        | text  | resource     | name of the resource
            finding         | text  | finding      | "breaks", "tight", "fits", or why not judged
            value           | unit  | value        | sum not exceeded for `quantile` of the time
            unit            | text  |              | unit of the amounts
            mean            | unit  |              | mean of the sum
            peak            | unit  |              | highest sum
            capacity        | unit  | capacity     | capacity of the host
            capacity_source | text  |              | who says the capacity
            share           | share | share        | `value` as a share of the capacity
            threshold       | share | threshold    | share of the capacity that may be used
            protected       | flag  |              | whether a latency-critical workload lowers that
            over            | share | time over    | share of the time above the threshold
            excess          | unit  | most over by | by how much the peak is above the threshold
            longest_s       | s     |              | longest stretch of time above the threshold
            breaks_at       | 1     |              | times this load that it takes, NaN where unused
            confidence      | share | confidence   | resampled recordings with the same finding
            column          | text  | column       | columns of the log
            not_measured    | text  | not measured | demands and capacities that are not known
            """,
            title="Together",
            show={n: partial(dem.cell_amount_text, n) for n in ("value", "capacity", "excess")},
        ),
        Table(
            "parts",
            """
            resource         | text  | resource   | name of the resource
            workload         | text  | workload   | name of the workload
            value            | 1     | value      | demand not exceeded for `quantile` of the time
            mean             | 1     | mean       | mean demand
            of_sum           | share | of the sum | share of the mean of all workloads
            latency_critical | flag  |            | whether its answers must not wait
            """,
            title="Who asks for what",
            most=0,
            show={name: partial(dem.cell_amount_text, name) for name in ("value", "mean")},
        ),
        Table(
            "timeline",
            """
            resource | text  | | name of the resource
            time_s   | s     | | end of the stretch since the start
            share    | share | | highest share of the capacity in the stretch
            """,
        ),
    )

    resources: pd.DataFrame
    parts: pd.DataFrame
    timeline: pd.DataFrame
    align: str
    seconds: float
    quantile: float

    @property
    def first(self) -> str:
        """Resource that breaks first as the load grows; "" where none can be judged."""
        at = self.resources["breaks_at"].to_numpy(dtype=np.float64)
        return "" if np.isnan(at).all() else str(self.resources["resource"].iloc[np.nanargmin(at)])

    @property
    def fits(self) -> bool:
        """Whether no resource breaks."""
        return not (self.resources["finding"] == dem.BREAKS).any()

    def verdict(self) -> list[str]:
        """Say what breaks first, by how much and how often, in sentences."""
        rows = rows_of(self.resources.sort_values("breaks_at", kind="stable"))
        judged = [row for row in rows if row["finding"] in (dem.BREAKS, dem.TIGHT, dem.FITS)]
        texts = [self._resource_sentence(row, first=not place) for place, row in enumerate(judged)]
        if not judged:
            texts.append(dem.NOTHING_JUDGED)
        if guarded := [row for row in rows if row["protected"]]:
            names = ", ".join(row["resource"] for row in guarded)
            critical = self.parts.loc[self.parts["latency_critical"], "workload"].unique()
            texts.append(
                f"{', '.join(critical)} must not wait: {names} may be used to "
                f"{guarded[0]['threshold']:.0%}"
            )
        for why in (dem.NOT_MEASURED, dem.NO_CAPACITY):
            names = ", ".join(row["resource"] for row in rows if row["finding"] == why)
            texts += [f"{names}: {why}"] if names else []
        return texts

    def _resource_sentence(self, row: dict[str, Any], *, first: bool) -> str:
        """Say how far a resource is above its threshold, or for how many such loads it has room."""
        name, used = row["resource"], dem.use_text(row, self.quantile)
        if row["finding"] == dem.BREAKS:
            return (
                f"{name} {'breaks first' if first else 'breaks too'}: {used}, above "
                f"{row['threshold']:.0%} for {row['over']:.0%} of the time, by up to "
                f"{dem.cell_amount_text('excess', row)}{self._largest(name)}"
            )
        known = row["breaks_at"] == row["breaks_at"]
        room = f"room for {shown(row['breaks_at'])} times this load" if known else "not used"
        if first:
            return f"nothing breaks; {name} is the nearest: {used}, {room}{self._largest(name)}"
        return f"{name}: {row['finding']}, {used}, {room}"

    def _largest(self, resource: str) -> str:
        """Name the workload with the largest part of a resource; "" where none is known."""
        parts = self.parts[(self.parts["resource"] == resource) & self.parts["of_sum"].notna()]
        if parts.empty:
            return ""
        top = parts.iloc[int(np.argmax(parts["of_sum"]))]
        return f"; {top['of_sum']:.0%} of it is of {top['workload']}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of each capacity over time, or as bars where no time is common."""
        known = self.resources[self.resources["share"].notna()]
        colours = [PROJECTED if f == dem.BREAKS else CURVE for f in known["finding"]]
        if not len(self.timeline):
            axes = dem.draw_shares(ax, known["resource"], known["share"], colours)
            axes.axvline(100, color="0.3", lw=1, ls=":")
            axes.set_xlabel("sum of demands (% of capacity)")
            return axes
        axes, of_resource = new_axes(ax), dict(zip(known["resource"], colours, strict=True))
        for number, (name, part) in enumerate(self.timeline.groupby("resource", sort=False)):
            (line,) = axes.plot(part["time_s"], 100 * part["share"], lw=1.2)
            line.set(color=of_resource[str(name)], ls=_LINES[number % len(_LINES)])
            line.set_label(plot_label(name))
        axes.set_xlabel("time together (s)")
        axes.set_ylabel("sum of demands (% of capacity)")
        axes.axhline(100, color="0.3", lw=1, ls=":")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return axes


# From this share of its ceiling on a resource is tight.
_TIGHT = 0.8
# A workload uses a resource when it takes this share of it.
_USED = 0.01
# Stretches of time of the drawing.
_BINS = 120


def co_locate(
    recordings: Mapping[str, TimeSeries],
    *,
    capacity: cap.Capacity | Mapping[str, float] | None = None,
    host: Host | None = None,
    latency_critical: Sequence[str] = (),
    align: str = "start",
    idle: TimeSeries | None = None,
    ceiling: float = 1.0,
    latency_ceiling: float = 0.70,
    quantile: float = 0.95,
    disks: Sequence[str] | None = None,
    seed: int = 0,
) -> CoLocation:
    """Add the demands of workloads and compare the sum with a host.

    Parameters
    ----------
    recordings : mapping of str to TimeSeries
        Each workload on a host of its own.
    capacity : Capacity or mapping of str to float, optional
        The host to share; a mapping adds to what the first recording says of its own.
    host : Host, optional
        Entry of the catalogue to share, for its cores and memory bandwidth.
    latency_critical : sequence of str
        Workloads whose answers must not wait: what they use is held to ``latency_ceiling``.
    align : {"start", "clock", "day", "any"}
        All start together, as long as all run; as they were recorded at the same time; by the time
        of the day in UTC; or any moment of one with any of the other.
    idle : TimeSeries, optional
        The host without a workload: its demand is in every recording, and is counted once.
    ceiling : float
        Share of a capacity that may be used.
    latency_ceiling : float
        The same where a latency-critical workload queues: at 70 % one server in M/M/1 lets a
        request wait 2.3 service times on average, at 90 % nine.
    quantile : float
        Share of the time for which a resource must suffice.
    disks : sequence of str, optional
    seed : int
        Of the moments drawn for ``align="any"``, and of the resamples.

    Returns
    -------
    CoLocation

    Raises
    ------
    PpwError
        For fewer than two workloads, what is no time series, names that are none, shares that
        cannot be, or recordings that never met on the clock.
    """
    dem.check_workloads(recordings, latency_critical, "share a host")
    if idle is not None:
        dem.as_series(idle, "idle")
    for name, share in (("ceiling", ceiling), ("latency_ceiling", latency_ceiling)):
        dem.check_share(name, share)
    dem.check_share("quantile", quantile)
    limits = dem.capacity_for(next(iter(recordings.values())), capacity, host)
    aligned = _align(recordings, align, idle=idle, disks=disks, seed=seed)
    # Where a latency-critical workload queues, the others must leave it room. Waiting for memory
    # does not grow with its use; it is there or it is not.
    can_queue = np.array([name != "memory" for name in dem.NAMES])
    ceilings = np.full(len(dem.NAMES), ceiling)
    for name, used in zip(aligned.names, aligned.demand / dem.capacity_array(limits), strict=True):
        if name in latency_critical:
            queues = can_queue & (summarise_shares(used).mean > _USED)
            ceilings = np.where(queues, np.minimum(ceilings, latency_ceiling), ceilings)
    caveats = _co_location_caveats(recordings, aligned, limits, idle, align)
    warn_caveats(caveats)
    return CoLocation(
        resources=_resource_table(aligned, limits, ceilings, ceiling, quantile, seed),
        parts=_workload_part_table(aligned, quantile, latency_critical),
        timeline=_timeline_table(aligned, dem.capacity_array(limits)),
        align=align,
        seconds=aligned.demand.shape[1] * aligned.step_s if aligned.in_order else 0.0,
        quantile=float(quantile),
        caveats=tuple(caveats),
        input_digest=recordings_digest(recordings),
    )


def recordings_digest(recordings: Mapping[str, TimeSeries]) -> str:
    """Digest of the content of all recordings."""
    return res.numbers_digest(*[res.frame_digest(series.frame) for series in recordings.values()])


# Moments drawn where workloads may meet at any.
_MOMENTS = 20_000
_DAY_S = 86_400.0


class _AlignedDemand(NamedTuple):
    """Demand of each workload on cells of one clock, or at moments drawn from the recordings."""

    names: list[str]
    demand: dem.FloatArray  # (workloads, cells, resources)
    step_s: float
    in_order: bool
    # Cells of the shortest recording: moments drawn from it are no more evidence than that.
    recorded: int


def _align(
    recordings: Mapping[str, TimeSeries],
    how: str,
    *,
    idle: TimeSeries | None,
    disks: Sequence[str] | None,
    seed: int,
) -> _AlignedDemand:
    """Bring demands to one clock by the way chosen; idle demand is taken off all but the first."""
    check_choice("align", how, ("start", "clock", "day", "any"))
    for series in recordings.values():
        if not len(series.frame):
            raise PpwError(f"{series.source}: no interval was recorded")
    tables = [dem.demands(series, disks=disks) for series in recordings.values()]
    clocks = [dem.own_clock(table) for table in tables]
    step = max(clock[1] for clock in clocks)
    if how == "any":
        # Each workload is drawn by itself, so that any moment can meet any other.
        rng = np.random.default_rng(seed)
        own = [dem.demand_on_clock(t, *clock) for t, clock in zip(tables, clocks, strict=True)]
        parts = [cells[rng.integers(0, len(cells), _MOMENTS)] for cells in own]
    elif how == "day":
        parts = [_by_day(t, clock[0], step) for t, clock in zip(tables, clocks, strict=True)]
    else:
        starts = [clock[0] for clock in clocks]
        spans = [clock[1] * clock[2] for clock in clocks]
        # All start together and last as long as all do, or only the time that they share counts.
        cells = max(1, int(min(spans) / step + 1e-6))
        if how == "clock":
            end = min(start + span for start, span in zip(starts, spans, strict=True))
            starts = [max(starts)] * len(starts)
            cells = int((end - starts[0]) / step + 1e-6)
        if cells < 1:
            raise PpwError(
                f"{' and '.join(recordings)} were not recorded at the same time: use --align "
                "start, --align day or --align any"
            )
        both = zip(tables, starts, strict=True)
        parts = [dem.demand_on_clock(table, start, step, cells) for table, start in both]
    demand = np.stack(parts)
    if idle is not None:
        own_mean = dem.demands(idle, disks=disks)[list(dem.NAMES)].mean().fillna(0.0).to_numpy()
        demand[1:] = np.maximum(demand[1:] - own_mean, 0.0)
    recorded = min(clock[2] for clock in clocks)
    return _AlignedDemand(list(recordings), demand, step, how != "any", recorded)


def _by_day(table: pd.DataFrame, start_s: float, step: float) -> dem.FloatArray:
    """Mean demand at each time of the day, over all days recorded; NaN where none is known."""
    cells = max(1, round(_DAY_S / step))
    first = np.floor(start_s / _DAY_S) * _DAY_S
    days = int(np.ceil((float(table["time_s"].iloc[-1]) - first) / _DAY_S))
    whole = dem.demand_on_clock(table, first, _DAY_S / cells, days * cells).reshape(days, cells, -1)
    known = np.isfinite(whole)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, whole, 0.0).sum(axis=0) / known.sum(axis=0))


def _resource_table(
    aligned: _AlignedDemand,
    limits: cap.Capacity,
    ceilings: dem.FloatArray,
    ceiling: float,
    quantile: float,
    seed: int,
) -> pd.DataFrame:
    total = aligned.demand.sum(axis=0)
    capacity = dem.capacity_array(limits)
    held = total / (capacity * ceilings)
    value, load = summarise_shares(total, quantile), summarise_shares(held, quantile)
    # Demands near the smallest number break at infinity.
    with np.errstate(over="ignore"):
        breaks_at = 1 / np.where(load.high > 0, load.high, np.nan)
    # The first of these that holds is the finding.
    judged = [np.isnan(value.high), np.isnan(load.high), load.high > 1, load.high > _TIGHT]
    findings = [dem.NOT_MEASURED, dem.NO_CAPACITY, dem.BREAKS, dem.TIGHT]
    # Moments that were drawn are no more evidence than the cells that were recorded.
    recorded = held[: aligned.recorded].T
    return pd.DataFrame(
        {
            "resource": dem.NAMES,
            "finding": np.select(judged, findings, dem.FITS).tolist(),
            "value": value.high,
            "unit": list(dem.UNITS.values()),
            "mean": value.mean,
            "peak": value.peak,
            "capacity": capacity,
            "capacity_source": [limits.source(one.capacity) for one in dem.RESOURCES],
            "share": value.high / capacity,
            "threshold": np.where(np.isnan(load.high), np.nan, ceilings),
            "protected": ceilings < ceiling,
            "excess": np.where(load.peak > 1, value.peak - capacity * ceilings, np.nan),
            "over": load.over,
            "longest_s": load.longest * aligned.step_s if aligned.in_order else np.nan,
            "breaks_at": breaks_at,
            "column": [resource.log for resource in dem.RESOURCES],
            "confidence": [agreement(cells, 1.0, quantile, seed) for cells in recorded],
            "not_measured": _not_measured_texts(aligned, capacity),
        }
    )


def _not_measured_texts(aligned: _AlignedDemand, capacity: dem.FloatArray) -> list[str]:
    """Name by resource the workloads whose demand is missing, and a missing capacity."""
    lost = np.asarray(np.isnan(aligned.demand).all(axis=1))
    texts = []
    for place, limit in enumerate(capacity):
        names = [name for name, missing in zip(aligned.names, lost, strict=True) if missing[place]]
        lacks = [f"demand of {', '.join(names)}"] if names else []
        texts.append("; ".join([*lacks, *(["capacity"] if np.isnan(limit) else [])]))
    return texts


def _workload_part_table(
    aligned: _AlignedDemand, quantile: float, latency_critical: Sequence[str]
) -> pd.DataFrame:
    loads = [summarise_shares(demand, quantile) for demand in aligned.demand]
    means = np.stack([load.mean for load in loads])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = means / means.sum(axis=0)
    rows = [
        (resource, name, loads[w].high[r], means[w, r], shares[w, r], name in latency_critical)
        for r, resource in enumerate(dem.NAMES)
        for w, name in enumerate(aligned.names)
        if not np.isnan(means[w, r])
    ]
    return pd.DataFrame(rows, columns=CoLocation.tables[1].names)


def _timeline_table(aligned: _AlignedDemand, capacity: dem.FloatArray) -> pd.DataFrame:
    """Highest share of each capacity in stretches of time; empty if drawn at random."""
    rows: list[tuple[str, float, float]] = []
    if aligned.in_order:
        share = aligned.demand.sum(axis=0) / capacity
        edges = np.linspace(0, len(share), min(len(share), _BINS) + 1).astype(int)
        ends = aligned.step_s * edges[1:]
        # Each stretch begins where the one before ends, so that none is empty.
        highest = np.fmax.reduceat(share, edges[:-1], axis=0)
        for name, of_one in zip(dem.NAMES, highest.T, strict=True):
            if np.isfinite(of_one).any():
                rows += [(name, end, value) for end, value in zip(ends, of_one, strict=True)]
    return pd.DataFrame(rows, columns=CoLocation.tables[2].names)


def _co_location_caveats(
    recordings: Mapping[str, TimeSeries],
    aligned: _AlignedDemand,
    limits: cap.Capacity,
    idle: TimeSeries | None,
    align: str,
) -> list[str]:
    said = []
    if idle is None:
        said.append(
            f"the host's own demand is in each recording and is counted {len(recordings)} times: "
            "give a recording of the idle host"
        )
    cores = {cap.capacity_of(series).cores for series in recordings.values()}
    if len({value for value in cores if value == value}) > 1:
        said.append(
            "the recordings are from different hosts: one core of one host may do more work than "
            "one core of another"
        )
    medium = np.array([cap.DEFAULTS[resource.measure].medium for resource in dem.RESOURCES])
    for demand, (name, series) in zip(aligned.demand, recordings.items(), strict=True):
        said += dem.assumed_cpus_texts(series)
        share = summarise_shares(demand / dem.own_capacities(series, limits)).high
        full = [dem.NAMES[r] for r in np.flatnonzero(share >= dem.FULL)]
        if full:
            said.append(
                f"{name} filled {', '.join(full)} when recorded: alone it may need more of that; "
                "with less of it, it uses less of the rest"
            )
        if np.isfinite(share).any() and not (share >= medium).any():
            said.append(f"{name} does not load its host: no resource is above its medium threshold")
    spans = [series.seconds for series in recordings.values()]
    if align == "start" and max(spans) > 1.5 * min(spans):
        said.append(
            f"only the first {min(spans):.6g} s are judged, in which all were recorded: --align "
            "any combines any moment of one with any moment of another"
        )
    return said


# Which of several workloads can share a host, two by two.
_ORDER = {dem.FITS: 0, dem.TIGHT: 1, dem.BREAKS: 2, "": 3}
_OF_FIRST = (
    *("value", "unit", "capacity", "share", "threshold", "over", "breaks_at", "column"),
    "confidence",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairing(Result):
    """Pairs of workloads, the best first.

    Attributes
    ----------
    pairs : pandas.DataFrame
        One row per pair, with the resource that breaks first or is nearest to it.
    workloads : tuple of str
    """

    kind = "pairing"
    tables = (
        Table(
            "pairs",
            """
            workload     | text  | workload   | one of the pair
            with         | text  | with       | the other one
            finding      | text  | finding    | "breaks", "tight", "fits"; "" where none is judged
            first        | text  | first      | resource that breaks first or is nearest to it
            column       | text  | column     | columns of the log for it
            value        | unit  | value      | sum of its demands, as for `co_locate`
            unit         | text  |            | unit of the amounts
            capacity     | unit  | capacity   | its capacity
            share        | share | share      | `value` as a share of the capacity
            threshold    | share | threshold  | share of the capacity that may be used
            over         | share | time over  | share of the time above the threshold
            breaks_at    | 1     |            | times this load that it takes, NaN where unused
            confidence   | share | confidence | share of resampled recordings with the same finding
            not_measured | text  | not judged | resources that were not judged
            """,
            title="Pairs, best first",
            most=500,
            show={name: partial(dem.cell_amount_text, name) for name in ("value", "capacity")},
        ),
    )

    pairs: pd.DataFrame
    workloads: tuple[str, ...]

    def verdict(self) -> list[str]:
        """Say which pair is the best and which cannot be."""
        rows = rows_of(self.pairs)
        best, said = rows[0], ["no two of these workloads can share this host"]
        if best["finding"] in (dem.FITS, dem.TIGHT):
            used, limit = (dem.cell_amount_text(name, best) for name in ("value", "capacity"))
            said = [
                f"{best['workload']} and {best['with']} go together best: {best['first']} is the "
                f"fullest, {used} of {limit} ({res.value_text(best['share'], 'share')})"
            ]
        broken = [
            f"{row['workload']} + {row['with']} ({row['first']})"
            for row in rows
            if row["finding"] == dem.BREAKS
        ]
        return [*said, f"not together: {', '.join(broken)}"] if broken else said

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return each workload against each other, then the pairs."""
        note = "What breaks first and its share of the capacity; ! above what may be used."
        matrix = PrintedTable("Matrix", ["", *self.workloads], self.matrix(), 1, note)
        return [matrix, *super().printed_tables(most)]

    def matrix(self) -> list[list[str]]:
        """Rows of texts: fullest resource and its share, each workload against each other."""
        cells = {}
        for row in rows_of(self.pairs):
            mark = "!" if row["finding"] == dem.BREAKS else ""
            said = f"{row['first']} {res.value_text(row['share'], 'share')}{mark}"
            cells[row["workload"], row["with"]] = cells[row["with"], row["workload"]] = said
        return [[a, *(cells.get((a, b), "·") for b in self.workloads)] for a in self.workloads]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the matrix: the darker, the fuller."""
        axes = new_axes(ax)
        names = list(self.workloads)
        used = np.full((len(names), len(names)), np.nan)
        for row in rows_of(self.pairs):
            a, b = names.index(row["workload"]), names.index(row["with"])
            used[a, b] = used[b, a] = 100 * row["share"] / row["threshold"]
        axes.imshow(used, cmap="Blues", vmin=0, vmax=150)
        for (a, b), value in np.ndenumerate(used):
            if np.isfinite(value):
                colour = "white" if value > 90 else "black"
                axes.text(b, a, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=8)
        labels = list(map(plot_label, names))
        axes.set_xticks(range(len(names)), labels, rotation=30, ha="right")
        axes.set_yticks(range(len(names)), labels)
        axes.set_ylabel("workload")
        return axes


def pair_workloads(recordings: Mapping[str, TimeSeries], **options: Any) -> Pairing:
    """Compare every two of a set of workloads with a host.

    Parameters
    ----------
    recordings : mapping of str to TimeSeries
    **options
        As for `co_locate`; ``latency_critical`` names count in the pairs that they are in.

    Returns
    -------
    Pairing

    Raises
    ------
    PpwError
        As for `co_locate`.
    """
    critical = options.pop("latency_critical", ())
    dem.check_workloads(recordings, critical, "make pairs")
    if options.get("capacity") is None and options.get("host") is None:
        # One host for all pairs: that of the first recording.
        options["capacity"] = cap.capacity_of(next(iter(recordings.values())))
    rows, caveats = [], list[str]()
    for pair in combinations(recordings, 2):
        both = {name: recordings[name] for name in pair}
        own = [name for name in critical if name in pair]
        with warnings.catch_warnings(action="ignore", category=CaveatWarning):
            found = co_locate(both, latency_critical=own, **options)
        rows.append(_pair_row(*pair, found))
        caveats += found.caveats
    table = pd.DataFrame(rows)
    table = table.assign(order=table["finding"].map(_ORDER)).sort_values(
        ["order", "breaks_at", "workload", "with"], ascending=[True, False, True, True]
    )
    said = list(dict.fromkeys(caveats))
    warn_caveats(said)
    return Pairing(
        pairs=table.drop(columns="order").reset_index(drop=True),
        workloads=tuple(recordings),
        caveats=tuple(said),
        input_digest=recordings_digest(recordings),
    )


def _pair_row(one: str, other: str, found: CoLocation) -> dict[str, Any]:
    resources = found.resources.set_index("resource")
    of: dict[Any, Any] = dict.fromkeys(_OF_FIRST, np.nan)
    of |= {"finding": "", "unit": "", "column": ""}
    if found.first:
        of = resources.loc[found.first].to_dict()
    unjudged = resources.index[resources["threshold"].isna()]
    return {
        "workload": one,
        "with": other,
        "finding": of["finding"],
        "first": found.first,
        **{name: of[name] for name in _OF_FIRST},
        "not_measured": ", ".join(unjudged),
    }
