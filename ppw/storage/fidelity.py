"""`validate_trace`: a synthetic trace compared with its original, figure by figure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fitting.storage.cascade import dispersion_band, index_of_dispersion
from measurements.table.units import size_text
from ppw.errors import PpwError
from ppw.results.arguments import as_positive
from ppw.results.axes import CURVE, MEASURED, PROJECTED, new_axes
from ppw.results.result import Table, numbers_digest, rows_of, warn_caveats
from ppw.results.text import shown
from ppw.storage.features import CACHES, OCTANTS, Space, TraceFeatures, distance, features
from ppw.storage.fitted_devices import parse_device, time_text
from ppw.storage.trace_source import TraceResult, WithoutLocality, open_trace, open_traces, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    from matplotlib.axes import Axes

    from ppw.results.result import Row
    from ppw.storage.fitted_devices import Latencies
    from ppw.storage.trace_source import Batches

    Measure = Callable[[TraceFeatures], float]

PASSED, FAILED, NOT_JUDGED = "pass", "fail", "–"
# A share may be off by so much, even where that is more than the relative tolerance.
POINTS = 0.005
_VARIATION, _MEAN_PERFORMANCE, _REPEATS = 0.15, 0.034, 0.01
_TOP_SIZES, _TOP_STREAMS = 5, 5
# A window length is judged where its windows hold so many arrivals, and there are so many.
_LEAST_COUNT, _LEAST_WINDOWS = 20, 20
_MORE_SEEDS = (
    "One trace may be off by chance: make some with other seeds (ppw trace generate --seed) and "
    "give all of them, whose mean is judged."
)
# Cache sizes that the curve is drawn at, as shares of the footprint.
_CURVE = np.geomspace(0.001, 1.0, 31)


class _Figure(NamedTuple):
    """One row of the table; a figure without a tolerance is not judged."""

    group: str
    figure: str
    unit: str
    original: float
    synthetic: float
    off: float
    kind: str
    tolerance: float = np.nan
    lower: float = np.nan
    upper: float = np.nan
    verdict: str = NOT_JUDGED

    def judge(self, passed: bool | None = None) -> _Figure:
        """Judge by the tolerance, where no verdict is given."""
        passed = abs(self.off) <= self.tolerance if passed is None else passed
        return self._replace(verdict=PASSED if passed else FAILED)


def _points(group: str, figure: str, a: float, b: float, tolerance: float = np.nan) -> _Figure:
    """Compare two shares by their difference."""
    return _Figure(group, figure, "share", a, b, b - a, "points", tolerance)


def _relative(
    group: str, figure: str, unit: str, a: float, b: float, tolerance: float = np.nan
) -> _Figure:
    """Compare two figures by their ratio; nothing is as far from nothing as can be."""
    off = b / a - 1 if a else 0.0 if b == a else np.inf
    return _Figure(group, figure, unit, a, b, off, "relative", tolerance)


def _distance(group: str, figure: str, share: float) -> _Figure:
    """Compare two distributions by the share that would have to move."""
    return _Figure(group, figure, "1", np.nan, np.nan, share, "moved")


class _Comparison(NamedTuple):
    """Features of an original and of the synthetic traces that stand for it."""

    ours: TraceFeatures
    theirs: Sequence[TraceFeatures]

    def pair(self, of: Measure) -> tuple[float, float]:
        """Return a figure of the original and its mean over the synthetic traces."""
        return of(self.ours), float(np.mean([of(one) for one in self.theirs]))

    def all_recorded(self) -> bool:
        """Whether each trace has the latency of most of its requests."""
        return all(f.recorded.requests > f.requests / 2 for f in (self.ours, *self.theirs))

    def requests(self, tolerance: float) -> Iterator[_Figure]:
        """Rows of the published table: what the requests are, and how fast they come."""
        ours, group = self.ours, "features"

        def share(figure: str, of: Measure) -> _Figure:
            a, b = self.pair(of)
            return _points(group, figure, a, b, max(tolerance * a, POINTS)).judge()

        yield share("reads", lambda f: f.read_share)
        yield share("random requests", lambda f: f.random_share)
        for size in sorted(ours.sizes, key=lambda size: (-ours.sizes[size], size))[:_TOP_SIZES]:
            figure = f"requests of {size_text(size)}"
            yield share(figure, lambda f, s=size: f.sizes.get(s, 0.0))  # type: ignore[misc]
        sizes = sorted(set().union(*(one.sizes for one in (ours, *self.theirs))))
        a, *others = (
            np.array([one.sizes.get(size, 0.0) for size in sizes]) for one in (ours, *self.theirs)
        )
        off = distance(a, np.mean(others, axis=0))
        yield _distance(group, "requests of another size", off)
        for k in range(OCTANTS):
            yield share(f"octant {k + 1} of the space", lambda f, k=k: float(f.octants[k]))  # type: ignore[misc]
        for name in ours.streams["stream"].head(_TOP_STREAMS) if len(ours.streams) > 1 else ():
            yield share(f"weight of {name}", lambda f, n=name: _weight(f.streams, n))  # type: ignore[misc]

    def rates(self, tolerance: float) -> Iterator[_Figure]:
        """Rows of arrival rates, and how far they are spread over several synthetic traces."""
        group = "features"
        measures: tuple[tuple[str, str, Measure], ...] = (
            ("mean inter-arrival time", "s", lambda f: f.gap_mean_s),
            ("requests a second", "1", lambda f: f.rate),
            ("throughput", "B/s", lambda f: f.bytes_s),
        )
        for figure, unit, of in measures:
            yield _relative(group, figure, unit, *self.pair(of), tolerance).judge()
        if len(self.theirs) > 1:
            rate = np.array([one.rate for one in self.theirs])
            mean, off = float(rate.mean()), float(rate.std(ddof=1) / rate.mean())
            figure = f"spread of requests a second over {len(rate)} repeats"
            yield _Figure(group, figure, "1", np.nan, mean, off, "relative", _REPEATS).judge()

    def performance(self, tolerance: float) -> Iterator[_Figure]:
        """Rows of throughput and latency, of a model where the traces do not record it."""
        group, recorded = "performance", self.all_recorded()

        def latencies(f: TraceFeatures) -> Latencies:
            return f.recorded if recorded else f.storage.latencies

        measures: tuple[tuple[str, str, Measure], ...] = (
            ("completed a second, modelled", "1", lambda f: f.storage.iops),
            ("device time a request, modelled", "s", lambda f: f.storage.busy_s / f.requests),
            (
                f"mean latency, {'recorded' if recorded else 'modelled'}",
                "s",
                lambda f: latencies(f).mean_s,
            ),
        )
        rows = [
            _relative(group, figure, unit, *self.pair(of), tolerance).judge()
            for figure, unit, of in measures
        ]
        yield from rows
        off = float(np.mean([abs(row.off) for row in rows]))
        limit = min(_MEAN_PERFORMANCE, tolerance)
        figure = "mean of these three"
        yield _Figure(group, figure, "1", np.nan, np.nan, off, "relative", limit).judge()
        slow = self.pair(lambda f: latencies(f).quantile_s(0.99))
        yield _relative(group, "99th percentile of latency", "s", *slow)

    def places(self, tolerance: float) -> Iterator[_Figure]:
        """Rows of where requests go and how soon they come back, and of what caches make of it."""
        group, ours = "spatial", self.ours
        bins = np.mean([one.bins for one in self.theirs], axis=0)
        reuse = np.mean([one.reuse.distances() for one in self.theirs], axis=0)
        off = distance(ours.reuse.distances(), reuse)
        yield _distance(group, "requests in another 64th of the space", distance(ours.bins, bins))
        yield _distance(group, "the same of the original's halves", ours.drift)
        yield _distance(group, "accesses at another reuse distance", off)
        for cache in CACHES:
            pair = self.pair(partial(TraceFeatures.hit_ratio, cache=cache, of=ours))
            figure = f"LRU hits, cache of {cache:.0%} of the footprint"
            yield _points(group, figure, *pair, tolerance).judge()

    def times(self, seed: int) -> Iterator[_Figure]:
        """Rows of how inter-arrival times vary, and of bursts by the length of windows."""
        group = "temporal"
        a, b = self.pair(lambda f: f.gap_variation)
        row = _relative(group, "variation of inter-arrival times", "1", a, b, _VARIATION)
        # So little is that of a clock's last digit.
        yield row.judge(abs(b - a) <= max(_VARIATION * a, POINTS))
        a, b = self.pair(lambda f: f.gap_correlation)
        yield _Figure(group, "correlation of neighbouring gaps", "1", a, b, b - a, "difference")
        for width, counts in self.ours.counts.items():
            if len(counts) < _LEAST_WINDOWS or counts.mean() < _LEAST_COUNT:
                continue
            # A synthetic trace may be too short to have two such windows.
            others = [f.counts[width] for f in self.theirs if len(f.counts.get(width, ())) >= 2]
            low, high = dispersion_band(counts, seed=seed)
            a = index_of_dispersion(counts)
            b = float(np.mean([*map(index_of_dispersion, others)])) if others else np.nan
            row = _relative(group, f"dispersion over {width:g} s", "1", a, b)
            yield row._replace(lower=low, upper=high).judge(low <= b <= high)

    def types(self) -> Iterator[_Figure]:
        """Row of the share of requests whose thread keeps its type."""
        types = dict(zip(self.ours.streams["stream"], self.ours.streams["type"], strict=True))

        def alike(f: TraceFeatures) -> float:
            pairs = zip(f.streams["stream"], f.streams["type"], strict=True)
            same = np.array([types.get(name) == type_ for name, type_ in pairs])
            return float(f.streams["share"].to_numpy()[same].sum())

        figure = "requests of threads that keep their type"
        yield _points("threads", figure, 1.0, self.pair(alike)[1])

    def ablation(self, ablated: TraceFeatures | None) -> Iterator[_Figure]:
        """Rows of what caches make of the original when its places are uniform."""
        if ablated is None:
            return
        for cache in CACHES:
            a, b = (one.hit_ratio(cache, self.ours) for one in (self.ours, ablated))
            figure = f"uniform places: LRU hits, cache of {cache:.0%} of the footprint"
            yield _points("ablation", figure, a, b)


def _weight(streams: pd.DataFrame, name: str) -> float:
    """Share of the requests that the first stream of a name has."""
    names = streams["stream"].tolist()
    return float(streams["share"].iloc[names.index(name)]) if name in names else 0.0


def _value_text(value: float, unit: str) -> str:
    if np.isnan(value):
        return "–"
    if unit == "share":
        return f"{value:.2%}"
    if unit == "s":
        return time_text(value)
    return f"{shown(value, 'B')}/s" if unit == "B/s" else shown(value, unit)


def _off_text(row: Row) -> str:
    off = row["off"]
    if np.isnan(off):
        return "–"
    return {
        "relative": f"{off:+.2%}",
        "points": f"{100 * off:+.2f} points",
        "moved": f"{off:.2%}",
        "difference": f"{off:+.3f}",
    }[row["kind"]]


def _tolerance_text(row: Row) -> str:
    if np.isfinite(row["lower"]):
        return f"{shown(row['lower'])} to {shown(row['upper'])}"
    if np.isnan(row["tolerance"]):
        return "–"
    return f"{100 * row['tolerance']:.3g} {'points' if row['kind'] == 'points' else '%'}"


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceFidelity(TraceResult):
    """How near a synthetic trace comes to its original.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a figure.
    streams : pandas.DataFrame
        One row a thread, of either trace; beside the columns below, shares of reads and of random
        requests and the mean size (B).
    curve : pandas.DataFrame
        Hit ratio of LRU caches: ``cache_share`` of the original's footprint, ``original``,
        ``synthetic``, ``ablation`` (NaN where it was not asked for).
    synthetic_traces : float
        Number of synthetic traces.
    device : str
        Model that latency and completed requests are of.
    """

    kind: ClassVar[str] = "trace_fidelity"
    tables: ClassVar[tuple[Table, ...]] = (
        Table(
            "table",
            """
            group     | text  |           | features, performance, spatial, temporal, ablation
            figure    | text  | figure    | figure that is compared
            unit      | text  |           | unit of its values
            original  | unit  | original  | value of the original
            synthetic | unit  | synthetic | mean over the synthetic traces
            off       | 1     | off       | how far the synthetic value is off
            kind      | text  |           | relative; points, for shares; moved, the share that \
would have to move to make two distributions one; difference
            tolerance | 1     | tolerance | how far it may be off
            lower     | 1     |           | band of the original, where that is the tolerance
            upper     | 1     |           | its upper end
            verdict   | text  | verdict   | pass, fail, or "–" where there is no tolerance
            """,
            "Figures",
            most=1000,
            show={
                "original": lambda row: _value_text(row["original"], row["unit"]),
                "synthetic": lambda row: _value_text(row["synthetic"], row["unit"]),
                "off": _off_text,
                "tolerance": _tolerance_text,
            },
        ),
        Table(
            "streams",
            """
            stream                 | text      | thread          | thread, of either trace
            original_share         | share .2% | share           | share of the requests
            original_rate          | 1         | requests/s      | requests per second
            original_fluctuation   | 1         | fluctuation     | variation of load by 60 spells
            original_type          | text      | type            | what most requests do
            synthetic_share        | share .2% | synthetic share | share in the synthetic trace
            synthetic_type         | text      | synthetic type  | what most requests do
            """,
            "Threads",
            most=20,
        ),
    )

    table: pd.DataFrame
    streams: pd.DataFrame
    curve: pd.DataFrame
    synthetic_traces: float
    device: str

    @property
    def passed(self) -> bool:
        """Whether no figure is out of its tolerance."""
        return not (self.table["verdict"] == FAILED).any()

    def verdict(self) -> list[str]:
        """Say whether it passed, and what is worst, in sentences."""
        judged = self.table[self.table["verdict"] != NOT_JUDGED]
        failed = judged[judged["verdict"] == FAILED]
        n = len(judged)
        if failed.empty:
            said = [f"The synthetic trace passes: all {n} figures are within their tolerances."]
        else:
            names = ", ".join(failed["figure"])
            said = [f"The synthetic trace fails: {len(failed)} of {n} figures are off: {names}."]
            if self.synthetic_traces == 1:
                said.append(_MORE_SEEDS)
        return [*said, *self._unjudged_text(), *self._ablation_text()]

    def _unjudged_text(self) -> Iterator[str]:
        table = self.table
        judged = (table["verdict"] != NOT_JUDGED) | table["off"].isna()
        # Figures of the original by itself, for comparison.
        alone = (table["group"] == "ablation") | table["figure"].str.contains("original's halves")
        rows = rows_of(table[~judged & ~alone])
        if rows:
            figures = (f"{row['figure']} ({_off_text(row)})" for row in rows)
            yield f"Not judged: {'; '.join(figures)}."

    def _ablation_text(self) -> Iterator[str]:
        rows = self.table[self.table["group"] == "ablation"]
        for worst in rows_of(rows.sort_values("off", key=abs, ascending=False, kind="stable"))[:1]:
            yield (
                f"With uniform places, {worst['figure'].partition(': ')[2]} are "
                f"{worst['synthetic']:.1%} instead of {worst['original']:.1%}: the effect of a "
                "cache is in the places, which the synthetic trace has to keep."
            )

    def stream_header(self) -> list[str]:
        """Name the columns of `stream_cells`."""
        return [*self.printed_tables()[1].header]

    def stream_cells(self) -> list[list[str]]:
        """The threads of the original, and beside them share and type in the synthetic trace."""
        return [[*row] for row in self.printed_tables()[1].rows]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the hit ratio curves over cache size."""
        axes, percent = new_axes(ax), 100 * self.curve["cache_share"]
        lines = {
            "original": ("-", MEASURED, "original"),
            "synthetic": ("--", CURVE, "synthetic"),
            "ablation": (":", PROJECTED, "no locality"),
        }
        for column, (style, color, label) in lines.items():
            if self.curve[column].notna().any():
                axes.plot(percent, 100 * self.curve[column], style, color=color, label=label)
        axes.set_xscale("log")
        axes.set_xlabel("cache (% of the original's footprint)")
        axes.set_ylabel("hits (%)")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
        return axes


def validate_trace(
    original: Batches | str | PathLike[str],
    synthetic: Batches | str | PathLike[str] | Sequence[Batches | str | PathLike[str]],
    *,
    device: str = "ssd",
    features_tolerance: float = 0.05,
    performance_tolerance: float = 0.067,
    hit_ratio_tolerance: float = 0.03,
    no_locality: bool = False,
    seed: int = 0,
) -> TraceFidelity:
    """Compare synthetic traces with the original they stand for.

    Both traces are read twice, in bounded memory. Hit ratios come from all blocks of 4 KiB up to
    four million accesses, and from a sample of the blocks beyond.

    Parameters
    ----------
    original : Trace or path
    synthetic : Trace, path, or a sequence of them
        Several are repeats with other seeds: their mean is judged, and their spread.
    device : str
        ``ssd`` or ``disk``, with parameters if need be, as ``disk,average_seek=9ms``: the model
        that latency is computed by, where either trace has no latencies of its own.
    features_tolerance, performance_tolerance : float
        Relative; published: 5 %, and 6.7 % for the worst and 3.4 % for the mean of performance.
    hit_ratio_tolerance : float
        Of LRU hit ratios at 1, 5 and 20 % of the footprint (difference of ratios).
    no_locality : bool
        Show beside it what becomes of the original when its places are uniform.
    seed : int
        Random seed of the ablation and of the resamples that bands rest on.

    Returns
    -------
    TraceFidelity

    Raises
    ------
    MeasurementError
        Where a trace cannot be read.
    PpwError
        For a trace without arrival times, or tolerances that cannot be.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    for_features = as_positive("tolerance of features", features_tolerance)
    for_performance = as_positive("tolerance of performance", performance_tolerance)
    for_hits = as_positive("tolerance of hit ratios", hit_ratio_tolerance)
    drive, first = parse_device(device), open_trace(original)
    known = survey(first)
    drive = drive.reaching(known.survey.high_lbn)
    space = Space(known.survey.low_lbn, known.survey.high_lbn)
    ours = features(first, known, space, drive.model, first.names)
    others = [(one, survey(one)) for one in open_traces(synthetic)]
    if not others:
        raise PpwError("no synthetic trace was given")
    theirs = [features(*one, space, drive.model, first.names) for one in others]
    ablated = None
    if no_locality:
        without = WithoutLocality(first, known.survey, seed)
        ablated = features(without, survey(without), space, drive.model)
    both = _Comparison(ours, theirs)
    rows = [
        *both.requests(for_features),
        *both.rates(for_features),
        *both.performance(for_performance),
        *both.places(for_hits),
        *both.times(seed),
        *both.types(),
        *both.ablation(ablated),
    ]
    caveats = tuple(_caveats(both, drive.caveat))
    warn_caveats(caveats)
    return TraceFidelity(
        table=pd.DataFrame(rows, columns=_Figure._fields),
        streams=_merge_streams(ours.streams, theirs[0].streams),
        curve=_curve(ours, theirs, ablated),
        synthetic_traces=float(len(theirs)),
        device=drive.text,
        caveats=caveats,
        input_digest=numbers_digest(known.digest, *(found.digest for _, found in others)),
    )


def _caveats(both: _Comparison, assumed: str) -> Iterator[str]:
    ours, theirs = both
    if not both.all_recorded():
        yield assumed
    if any(one.reuse.halvings for one in (ours, *theirs)):
        yield (
            "hit ratios are of a sample of the blocks: they are off by about a point at small "
            "caches"
        )
    # Standard error of the share of an even eighth: a run goes where its start leads.
    starts = ours.random_share * ours.requests
    by_chance = float(np.sqrt((1 - 1 / OCTANTS) / OCTANTS / max(1.0, starts)))
    if by_chance > POINTS:
        yield (
            f"requests start anew {starts:.0f} times: chance alone "
            f"moves the share of an eighth of the space by {100 * by_chance:.1f} points, so that "
            "this trace is too short to tell whether places are kept to their tolerance"
        )
    if any(abs(one.duration_s / ours.duration_s - 1) > 0.05 for one in theirs):
        yield (
            "the traces differ in length by more than 5 %: hit ratios and dispersion depend on it; "
            "without --count and --duration one is made as long as its original"
        )
    if max(f.storage.utilisation for f in (ours, *theirs)) > 0.99:
        yield (
            "a modelled device is busy all the time: latency is that of a queue that only grows, "
            "and says little"
        )


def _curve(
    ours: TraceFeatures, theirs: Sequence[TraceFeatures], ablated: TraceFeatures | None
) -> pd.DataFrame:
    blocks = np.maximum((_CURVE * ours.reuse.footprint).astype(np.int64), 1)
    return pd.DataFrame(
        {
            "cache_share": _CURVE,
            "original": ours.reuse.hit_ratio(blocks),
            "synthetic": np.mean([one.reuse.hit_ratio(blocks) for one in theirs], axis=0),
            "ablation": np.nan if ablated is None else ablated.reuse.hit_ratio(blocks),
        }
    )


def _merge_streams(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Put the threads of both traces side by side, the busiest of the original first."""
    # By name, since the codes of two traces need not agree; some threads are in one of them only.
    original, synthetic = (
        table.set_index("stream").add_prefix(f"{which}_").reset_index()
        for which, table in (("original", ours), ("synthetic", theirs))
    )
    both = original.merge(synthetic, on="stream", how="outer", sort=False)
    both = both.sort_values("original_share", ascending=False, kind="stable", ignore_index=True)
    text = ["original_type", "synthetic_type"]
    return both.assign(**{c: both[c].astype(object).where(both[c].notna(), "") for c in text})
