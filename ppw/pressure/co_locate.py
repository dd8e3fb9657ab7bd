"""`co_locate`: what breaks first when recorded workloads share a host, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fitting.demand.co_location import agreement, load_of
from ppw.errors import PpwError
from ppw.pressure.capacity import DEFAULTS, Capacity, capacity_of
from ppw.pressure.demand import (
    BREAKS,
    FITS,
    FULL,
    NAMES,
    NO_CAPACITY,
    NOT_MEASURED,
    RESOURCES,
    TIGHT,
    about_cpus,
    amount,
    amounts,
    as_recordings,
    as_series,
    capacities,
    capacity_for,
    demands,
    own_capacity,
    own_clock,
    percent,
    within,
)
from ppw.results import caveats as cv
from ppw.results.arguments import known_choice
from ppw.results.axes import CURVE, PROJECTED, new_axes
from ppw.results.result import TabledResult, frame_digest, numbers_digest, rows_of
from ppw.results.text import plot_label, shown, summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from measurements.timeseries.series import TimeSeries
    from ppw.catalogue.hosts import Host

    FloatArray = NDArray[np.float64]


# The resources that workloads are placed by: demand, the host's capacity, and their columns.


# Workloads that share a host, as a result.


SHARED_COLUMNS = (
    *("resource", "finding", "value", "unit", "mean", "peak", "capacity", "capacity_source"),
    *("share", "threshold", "protected", "excess", "over", "longest_s", "breaks_at", "column"),
    *("confidence", "not_measured"),
)
PART_COLUMNS = ("resource", "workload", "value", "mean", "of_sum", "latency_critical")
TIMELINE_COLUMNS = ("resource", "time_s", "share")


@dataclass(frozen=True, kw_only=True, eq=False)
class CoLocation(TabledResult):
    """What breaks first when workloads share a host.

    Attributes
    ----------
    resources : pandas.DataFrame
        One row a resource, of all workloads together: ``finding`` ("breaks", "tight", "fits",
        "not measured" or "capacity not known"); ``value``, the sum that is not exceeded for
        ``quantile`` of the time, with ``mean`` and ``peak``, in ``unit``; ``capacity`` and who
        says so; ``share`` of it; ``threshold``, the share that may be used, lower where
        ``protected``; ``excess``, by how much the peak is above that; ``over``, the share of the
        time above; ``longest_s``, the longest stretch of that; ``breaks_at``, how many times this
        load it takes (NaN where unused); ``column`` of the log; ``confidence``, the share of
        resampled recordings with the same finding; ``not_measured``.
    parts : pandas.DataFrame
        One row a resource and workload: ``value``, ``mean``, ``of_sum`` (share of the mean) and
        ``latency_critical``.
    timeline : pandas.DataFrame
        ``resource``, ``time_s`` (since the start) and the highest ``share`` of the capacity in
        each stretch of time; empty where workloads meet at any moment.
    align : str
    seconds : float
        Judged together; 0 where workloads meet at any moment.
    quantile : float
    caveats : tuple of str
    """

    kind: ClassVar[str] = "co_location"

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
        return not (self.resources["finding"] == BREAKS).any()

    def to_frame(self) -> pd.DataFrame:
        """One row a resource."""
        return self.resources

    def verdict(self) -> list[str]:
        """Say what breaks first, by how much and how often, in sentences."""
        rows = sorted(rows_of(self.resources), key=lambda row: _last_if_unknown(row["breaks_at"]))
        judged = [row for row in rows if row["finding"] in (BREAKS, TIGHT, FITS)]
        said = [self._sentence(row, first=not place) for place, row in enumerate(judged)]
        if not judged:
            said.append("no resource has both its demand and its capacity: nothing can be judged")
        guarded = [row for row in rows if row["protected"]]
        if guarded:
            names = ", ".join(row["resource"] for row in guarded)
            critical = self.parts.loc[self.parts["latency_critical"], "workload"].unique()
            said.append(
                f"{', '.join(critical)} must not wait: {names} may be used to "
                f"{percent(guarded[0]['threshold'])}"
            )
        for why in (NOT_MEASURED, NO_CAPACITY):
            names = ", ".join(row["resource"] for row in rows if row["finding"] == why)
            said += [f"{names}: {why}"] if names else []
        return said

    def summary(self) -> str:
        """Text: the sentences, the evidence and the caveats."""
        lines = [*self.verdict(), text_table(self.header(), self.cells())]
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [
            *("resource", "finding", "value", "capacity", "share", "threshold", "time over"),
            *("most over by", "confidence", "column", "not measured"),
        ]

    def cells(self) -> list[list[str]]:
        """The resources as they are printed."""
        return [
            [
                row["resource"],
                row["finding"],
                amount(row["value"], row["unit"]),
                amount(row["capacity"], row["unit"]),
                percent(row["share"]),
                percent(row["threshold"]),
                percent(row["over"]),
                amount(row["excess"], row["unit"]),
                percent(row["confidence"]),
                row["column"],
                row["not_measured"] or "–",
            ]
            for row in rows_of(self.resources)
        ]

    def evidence(self) -> list[list[str]]:
        """Column of the log, who says the capacity, and what was not measured, by resource."""
        return [
            [row[c] or "–" for c in ("resource", "column", "capacity_source", "not_measured")]
            for row in rows_of(self.resources)
        ]

    def part_header(self) -> list[str]:
        """Name the columns of `part_cells`."""
        return ["resource", "workload", "value", "mean", "of the sum"]

    def part_cells(self) -> list[list[str]]:
        """Who asks for what, as it is printed."""
        units = dict(zip(self.resources["resource"], self.resources["unit"], strict=True))
        return [
            [
                row["resource"],
                row["workload"],
                amount(row["value"], units[row["resource"]]),
                amount(row["mean"], units[row["resource"]]),
                percent(row["of_sum"]),
            ]
            for row in rows_of(self.parts)
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of each capacity over time, or as bars where no time is common."""
        return plot_co_location(self, ax)

    def _sentence(self, row: dict[str, Any], *, first: bool) -> str:
        used = (
            f"{amount(row['value'], row['unit'])} of {amount(row['capacity'], row['unit'])} for "
            f"{self.quantile:.0%} of the time ({row['share']:.0%})"
        )
        most = self._most(row["resource"])
        if row["finding"] == BREAKS:
            how = "breaks first" if first else "breaks too"
            excess = amount(row["excess"], row["unit"])
            return (
                f"{row['resource']} {how}: {used}, above {row['threshold']:.0%} for "
                f"{row['over']:.0%} of the time, by up to {excess}{most}"
            )
        known = row["breaks_at"] == row["breaks_at"]
        room = f"room for {shown(row['breaks_at'])} times this load" if known else "not used"
        if first:
            return f"nothing breaks; {row['resource']} is the nearest: {used}, {room}{most}"
        return f"{row['resource']}: {row['finding']}, {used}, {room}"

    def _most(self, resource: str) -> str:
        parts = self.parts[self.parts["resource"] == resource]
        known = [row for row in rows_of(parts) if row["of_sum"] == row["of_sum"]]
        if not known:
            return ""
        top = max(known, key=lambda row: float(row["of_sum"]))
        return f"; {top['of_sum']:.0%} of it is of {top['workload']}"


def _last_if_unknown(number: float) -> float:
    return np.inf if np.isnan(number) else number


# Recordings of several workloads brought to one clock.


ALIGNMENTS = ("start", "clock", "day", "any")
_DAY_S = 86_400.0
# Moments drawn where workloads may meet at any.
_MOMENTS = 20_000


class Aligned(NamedTuple):
    """Demand of each workload, (workloads, cells, resources), on cells of ``step_s`` seconds.

    ``recorded`` is how many cells the shortest recording has: moments drawn from it are no more
    evidence than that.
    """

    names: list[str]
    demand: FloatArray
    step_s: float
    in_order: bool
    recorded: int


def align_recordings(
    recordings: Mapping[str, TimeSeries],
    how: str,
    *,
    idle: TimeSeries | None = None,
    disks: Sequence[str] | None = None,
    seed: int = 0,
) -> Aligned:
    """Bring recordings to one clock.

    Parameters
    ----------
    recordings : mapping of str to TimeSeries
    how : {"start", "clock", "day", "any"}
        All start together, as long as all run; as they were recorded at the same time; by the time
        of the day in UTC; or any moment of one with any of the other.
    idle : TimeSeries, optional
        Recording of the idle host: it is taken off each recording, and counted once.
    disks : sequence of str, optional
    seed : int
        Of the moments drawn for ``"any"``.

    Raises
    ------
    PpwError
        For an unknown way, an empty recording, or recordings that never met on the clock.
    """
    known_choice("align", how, ALIGNMENTS)
    asked = {}
    for name, series in recordings.items():
        if not len(series.frame):
            raise PpwError(f"{series.source}: no interval was recorded")
        asked[name] = demands(series, disks=disks)
    clocks = [own_clock(table) for table in asked.values()]
    step = max(clock[1] for clock in clocks)
    spans = [clock[1] * clock[2] for clock in clocks]
    if how == "any":
        demand = _any(list(asked.values()), seed)
    elif how == "day":
        demand = np.stack(
            [_by_day(t, c, step) for t, c in zip(asked.values(), clocks, strict=True)]
        )
    elif how == "clock":
        demand = _by_clock(asked, clocks, spans, step)
    else:
        cells = max(1, int(min(spans) / step + 1e-6))
        parts = zip(asked.values(), clocks, strict=True)
        demand = np.stack([amounts(table, c[0], step, cells) for table, c in parts])
    recorded = min(clock[2] for clock in clocks)
    return Aligned(list(asked), _idle_once(demand, idle, disks), step, how != "any", recorded)


def _any(tables: list[pd.DataFrame], seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    own = [amounts(table, *own_clock(table)) for table in tables]
    return np.stack([cells[rng.integers(0, len(cells), _MOMENTS)] for cells in own])


def _by_day(table: pd.DataFrame, clock: tuple[float, float, int], step: float) -> FloatArray:
    """Mean of all days at each time of the day."""
    cells = round(_DAY_S / step)
    first = np.floor(clock[0] / _DAY_S) * _DAY_S
    days = int(np.ceil((float(table["time_s"].iloc[-1]) - first) / _DAY_S))
    whole = amounts(table, first, _DAY_S / cells, days * cells).reshape(days, cells, -1)
    known = np.isfinite(whole)
    with np.errstate(invalid="ignore"):
        mean: FloatArray = np.where(known, whole, 0.0).sum(axis=0) / known.sum(axis=0)
    return mean


def _by_clock(
    asked: Mapping[str, pd.DataFrame],
    clocks: Sequence[tuple[float, float, int]],
    spans: Sequence[float],
    step: float,
) -> FloatArray:
    start = max(clock[0] for clock in clocks)
    end = min(clock[0] + span for clock, span in zip(clocks, spans, strict=True))
    cells = int((end - start) / step + 1e-6)
    if cells < 1:
        raise PpwError(
            f"{' and '.join(asked)} were not recorded at the same time: align them by start, day "
            "or any"
        )
    return np.stack([amounts(table, start, step, cells) for table in asked.values()])


def _idle_once(
    demand: FloatArray, idle: TimeSeries | None, disks: Sequence[str] | None
) -> FloatArray:
    """Leave the host's own demand in the first workload alone."""
    if idle is None:
        return demand
    own = demands(idle, disks=disks)[list(NAMES)].mean().fillna(0.0).to_numpy()
    rest = np.maximum(demand[1:] - own, 0.0)
    return np.concatenate([demand[:1], rest])


# From this share of its ceiling on a resource is tight.
_TIGHT = 0.8
# A workload uses a resource when it takes this share of it.
_USED = 0.01
# Waiting for memory does not grow with its use; it is there or it is not.
_WITHOUT_QUEUE = ("memory",)
_BINS = 120


def co_locate(
    recordings: Mapping[str, TimeSeries],
    *,
    capacity: Capacity | Mapping[str, float] | None = None,
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
    """Add the demands of workloads and hold the sum against a host.

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
        See `ppw.pressure.co_locate.align_recordings`.
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
        What breaks first when workloads share a host.

    Raises
    ------
    PpwError
        For fewer than two workloads, what is no time series, names that are none, or shares that
        cannot be.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    _check(recordings, latency_critical)
    if idle is not None:
        as_series(idle, "idle")
    for name, share in (
        ("ceiling", ceiling),
        ("latency_ceiling", latency_ceiling),
        ("quantile", quantile),
    ):
        within(name, share)
    first = next(iter(recordings.values()))
    limits = capacity_for(first, capacity, host)
    aligned = align_recordings(recordings, align, idle=idle, disks=disks, seed=seed)
    ceilings = _ceilings(aligned, capacities(limits), latency_critical, ceiling, latency_ceiling)
    caveats = _caveats(recordings, aligned, limits, idle, align)
    result = CoLocation(
        resources=_resources(aligned, limits, ceilings, ceiling, quantile, seed),
        parts=_parts(aligned, quantile, latency_critical),
        timeline=_timeline(aligned, capacities(limits)),
        align=align,
        seconds=aligned.demand.shape[1] * aligned.step_s if aligned.in_order else 0.0,
        quantile=float(quantile),
        caveats=tuple(caveats),
        input_digest=numbers_digest(
            *[frame_digest(series.frame) for series in recordings.values()]
        ),
    )
    cv.warn(caveats)
    return result


def _check(recordings: Mapping[str, TimeSeries], latency_critical: Sequence[str]) -> None:
    if len(as_recordings(recordings)) < 2:
        raise PpwError(f"{len(recordings)} workload was given: two or more share a host")
    for name, series in recordings.items():
        as_series(series, name)
    unknown = [name for name in latency_critical if name not in recordings]
    if unknown:
        raise PpwError(f"no workload is called {unknown[0]!r}: one of {', '.join(recordings)}")


def _ceilings(
    aligned: Aligned,
    capacity: FloatArray,
    latency_critical: Sequence[str],
    ceiling: float,
    latency_ceiling: float,
) -> FloatArray:
    """Ceiling of each resource: lower where a latency-critical workload queues for it."""
    found = np.full(len(NAMES), ceiling)
    for place, name in enumerate(aligned.names):
        if name in latency_critical:
            used = load_of(aligned.demand[place] / capacity).mean > _USED
            queues = np.array([resource not in _WITHOUT_QUEUE for resource in NAMES])
            found = np.where(used & queues, np.minimum(found, latency_ceiling), found)
    return found


def _resources(
    aligned: Aligned,
    limits: Capacity,
    ceilings: FloatArray,
    ceiling: float,
    quantile: float,
    seed: int,
) -> pd.DataFrame:
    total = aligned.demand.sum(axis=0)
    capacity = capacities(limits)
    held = total / (capacity * ceilings)
    amount, load = load_of(total, quantile), load_of(held, quantile)
    table = pd.DataFrame(
        {
            "resource": NAMES,
            "finding": [_finding(*both) for both in zip(amount.high, load.high, strict=True)],
            "value": amount.high,
            "unit": [resource.unit for resource in RESOURCES],
            "mean": amount.mean,
            "peak": amount.peak,
            "capacity": capacity,
            "capacity_source": [limits.source(resource.capacity) for resource in RESOURCES],
            "share": amount.high / capacity,
            "threshold": np.where(np.isnan(load.high), np.nan, ceilings),
            "protected": ceilings < ceiling,
            "excess": np.where(load.peak > 1, amount.peak - capacity * ceilings, np.nan),
            "over": load.over,
            "longest_s": load.longest * aligned.step_s if aligned.in_order else np.nan,
            "breaks_at": _breaks_at(load.high),
            "column": [resource.log for resource in RESOURCES],
            "confidence": [
                agreement(cells, 1.0, quantile, seed) for cells in held[: aligned.recorded].T
            ],
            "not_measured": _not_measured(aligned, capacity),
        }
    )
    return table[list(SHARED_COLUMNS)]


def _breaks_at(share: FloatArray) -> FloatArray:
    """How many times the demand the capacity is; infinite for demands near the smallest number."""
    with np.errstate(over="ignore"):
        return 1 / np.where(share > 0, share, np.nan)


def _finding(amount: float, load: float) -> str:
    if np.isnan(amount):
        return NOT_MEASURED
    if np.isnan(load):
        return NO_CAPACITY
    if load > 1:
        return BREAKS
    return TIGHT if load > _TIGHT else FITS


def _not_measured(aligned: Aligned, capacity: FloatArray) -> list[str]:
    missing = np.asarray(np.isnan(aligned.demand).all(axis=1))
    said = []
    for place, none in enumerate(missing.T):
        of = [name for name, lost in zip(aligned.names, none, strict=True) if lost]
        lacks = [f"demand of {', '.join(of)}"] if of else []
        said.append("; ".join([*lacks, *(["capacity"] if np.isnan(capacity[place]) else [])]))
    return said


def _parts(aligned: Aligned, quantile: float, latency_critical: Sequence[str]) -> pd.DataFrame:
    loads = [load_of(demand, quantile) for demand in aligned.demand]
    means = np.stack([load.mean for load in loads])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = means / means.sum(axis=0)
    rows = [
        (NAMES[r], name, loads[w].high[r], means[w, r], shares[w, r], name in latency_critical)
        for r in range(len(NAMES))
        for w, name in enumerate(aligned.names)
        if not np.isnan(means[w, r])
    ]
    return pd.DataFrame(rows, columns=list(PART_COLUMNS))


def _timeline(aligned: Aligned, capacity: FloatArray) -> pd.DataFrame:
    """Highest share in each of some stretches of time, for drawing."""
    if not aligned.in_order:
        return pd.DataFrame([], columns=list(TIMELINE_COLUMNS))
    share = aligned.demand.sum(axis=0) / capacity
    bins = min(len(share), _BINS)
    edges = np.linspace(0, len(share), bins + 1).astype(int)
    ends = aligned.step_s * edges[1:]
    # Each stretch begins where the one before ends, so that none is empty.
    highest = np.fmax.reduceat(share, edges[:-1], axis=0)
    known = [place for place in range(len(NAMES)) if np.isfinite(highest[:, place]).any()]
    rows = [
        (NAMES[place], end, value)
        for place in known
        for end, value in zip(ends, highest[:, place], strict=True)
    ]
    return pd.DataFrame(rows, columns=list(TIMELINE_COLUMNS))


def _caveats(
    recordings: Mapping[str, TimeSeries],
    aligned: Aligned,
    limits: Capacity,
    idle: TimeSeries | None,
    align: str,
) -> list[str]:
    said = []
    if idle is None:
        said.append(
            f"the host's own demand is in each recording and is counted {len(recordings)} times: "
            "give a recording of the idle host"
        )
    cores = {name: capacity_of(series).cores for name, series in recordings.items()}
    known = {value for value in cores.values() if value == value}
    if len(known) > 1:
        said.append(
            "recorded on unlike hosts: a core of one need not do what a core of another does"
        )
    for place, (name, series) in enumerate(recordings.items()):
        said += about_cpus(series)
        own = capacities(own_capacity(series, limits))
        share = load_of(aligned.demand[place] / own).high
        full = [NAMES[r] for r in np.flatnonzero(share >= FULL)]
        if full:
            said.append(
                f"{name} filled {', '.join(full)} when recorded: it may want more of that, and "
                "takes less of the rest when it gets less"
            )
        medium = np.array([DEFAULTS[resource.measure].medium for resource in RESOURCES])
        if np.isfinite(share).any() and not (share >= medium).any():
            said.append(f"{name} does not stress its host: no resource passes its medium threshold")
    spans = [series.seconds for series in recordings.values()]
    if align == "start" and max(spans) > 1.5 * min(spans):
        said.append(
            f"only the first {min(spans):.6g} s are judged, in which all were recorded: "
            "--align any lets any moment of one meet any of the other"
        )
    return said


_LINES = ("-", "--", "-.", ":")


def plot_co_location(result: CoLocation, ax: Axes | None = None) -> Axes:
    """Draw the share of each capacity over time, or as bars where no time is common."""
    axes = new_axes(ax)
    known = result.resources[result.resources["share"].notna()]
    broken = set(known.loc[known["finding"] == BREAKS, "resource"])
    if len(result.timeline):
        for number, (name, part) in enumerate(result.timeline.groupby("resource", sort=False)):
            colour = PROJECTED if name in broken else CURVE
            style = _LINES[number % len(_LINES)]
            axes.plot(
                part["time_s"],
                100 * part["share"],
                style,
                color=colour,
                lw=1.2,
                label=plot_label(name),
            )
        axes.set_xlabel("time together (s)")
        axes.set_ylabel("sum of demands (% of capacity)")
        axes.axhline(100, color="0.3", lw=1, ls=":")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return axes
    place = np.arange(len(known))[::-1]
    colours = [PROJECTED if name in broken else CURVE for name in known["resource"]]
    axes.barh(place, 100 * known["share"], color=colours, height=0.6)
    axes.axvline(100, color="0.3", lw=1, ls=":")
    axes.set_yticks(place, [plot_label(name) for name in known["resource"]])
    axes.set_ylabel("resource")
    axes.set_xlabel("sum of demands (% of capacity)")
    return axes
