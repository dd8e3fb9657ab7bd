"""`validate_trace`: a synthetic trace held against its original, figure by figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fitting.storage.cascade import dispersion_band, index_of_dispersion
from measurements.table.units import size_text
from ppw.errors import PpwError
from ppw.results import caveats as cv
from ppw.results.arguments import as_positive
from ppw.results.axes import CURVE, MEASURED, PROJECTED, new_axes
from ppw.results.result import TabledResult, numbers_digest, rows_of
from ppw.results.text import shown, summary_text, text_table
from ppw.storage.features import OCTANTS, Space, distance, features
from ppw.storage.fitted_devices import ASSUMED, described, parse_device, reaching, time_text
from ppw.storage.trace_source import WithoutLocality, opened, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matplotlib.axes import Axes

    from ppw.storage.features import TraceFeatures
    from ppw.storage.trace_source import Batches

    FloatArray = np.ndarray[Any, np.dtype[np.float64]]
    from collections.abc import Iterable
    from os import PathLike


# Figures of an original trace beside those of synthetic ones, with a verdict for each.


PASSED, FAILED, NOT_JUDGED = "pass", "fail", "–"
# A share may be off by so much, even where that is more than the relative tolerance.
POINTS = 0.005
_VARIATION, _MEAN_PERFORMANCE, _REPEATS = 0.15, 0.034, 0.01
_CACHES = (0.01, 0.05, 0.20)
_TOP_SIZES, _TOP_STREAMS = 5, 5
# A window length is judged where its windows hold so many arrivals, and there are so many.
_LEAST_COUNT, _LEAST_WINDOWS = 20, 20


class Tolerances(NamedTuple):
    """How far figures may be off: relative for features and performance."""

    features: float
    performance: float
    hit_ratio: float


class _Row(NamedTuple):
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


def compare_features(
    ours: TraceFeatures,
    theirs: Sequence[TraceFeatures],
    ablated: TraceFeatures | None,
    limits: Tolerances,
    seed: int,
) -> pd.DataFrame:
    """Judge every figure."""
    rows = [
        *_published(ours, theirs, limits),
        *_performance(ours, theirs, limits),
        *_spatial(ours, theirs, limits),
        *_temporal(ours, theirs, seed),
        *_characterisation(ours, theirs),
    ]
    if ablated is not None:
        rows += _ablation(ours, ablated)
    return pd.DataFrame(rows, columns=_Row._fields)


def _mean(theirs: Sequence[TraceFeatures], of: Callable[[TraceFeatures], float]) -> float:
    return float(np.mean([of(one) for one in theirs]))


def _verdict(passed: bool) -> str:
    return PASSED if passed else FAILED


def _share(group: str, figure: str, a: float, b: float, relative: float) -> _Row:
    limit = max(relative * a, POINTS)
    return _Row(
        group, figure, "share", a, b, b - a, "points", limit, verdict=_verdict(abs(b - a) <= limit)
    )


def _relative(group: str, figure: str, unit: str, a: float, b: float, limit: float) -> _Row:
    off = _relative_difference(a, b)
    return _Row(
        group, figure, unit, a, b, off, "relative", limit, verdict=_verdict(abs(off) <= limit)
    )


def _relative_difference(a: float, b: float) -> float:
    """How far b is from a, relative to it; nothing is as far from nothing as can be."""
    return b / a - 1 if a else 0.0 if b == a else np.inf


def _published(
    ours: TraceFeatures, theirs: Sequence[TraceFeatures], limits: Tolerances
) -> Iterator[_Row]:
    """Rows of the published table: what the requests are, and how fast they come."""
    group, t = "features", limits.features

    def share(figure: str, of: Callable[[TraceFeatures], float]) -> _Row:
        return _share(group, figure, of(ours), _mean(theirs, of), t)

    yield share("reads", lambda f: f.read_share)
    yield share("random requests", lambda f: f.random_share)
    top = sorted(ours.sizes.items(), key=lambda one: (-one[1], one[0]))[:_TOP_SIZES]
    for size, _ in top:
        yield share(f"requests of {size_text(size)}", lambda f, s=size: f.sizes.get(s, 0.0))  # type: ignore[misc]
    yield _sizedistance(ours, theirs)
    for k in range(OCTANTS):
        yield share(f"octant {k + 1} of the space", lambda f, k=k: float(f.octants[k]))  # type: ignore[misc]
    for name in ours.streams.name[:_TOP_STREAMS] if len(ours.streams.name) > 1 else ():
        yield share(f"weight of {name}", lambda f, n=name: _weight(f, n))  # type: ignore[misc]
    for figure, unit, of in _SPEEDS:
        yield _relative(group, figure, unit, of(ours), _mean(theirs, of), t)
    if len(theirs) > 1:
        yield _repeats(theirs)


_SPEEDS: tuple[tuple[str, str, Callable[[TraceFeatures], float]], ...] = (
    ("mean inter-arrival time", "s", lambda f: f.gap_mean_s),
    ("requests a second", "1", lambda f: f.rate),
    ("throughput", "B/s", lambda f: f.bytes_s),
)


def _weight(found: TraceFeatures, name: str) -> float:
    streams = found.streams
    return float(streams.share[streams.name.index(name)]) if name in streams.name else 0.0


def _sizedistance(ours: TraceFeatures, theirs: Sequence[TraceFeatures]) -> _Row:
    sizes = sorted(set(ours.sizes).union(*(one.sizes for one in theirs)))
    a = np.array([ours.sizes.get(s, 0.0) for s in sizes])
    b = np.mean([[one.sizes.get(s, 0.0) for s in sizes] for one in theirs], axis=0)
    off = distance(a, b)
    return _Row("features", "requests of another size", "1", np.nan, np.nan, off, "moved")


def _repeats(theirs: Sequence[TraceFeatures]) -> _Row:
    rate = np.array([one.rate for one in theirs])
    off = float(rate.std(ddof=1) / rate.mean())
    return _Row(
        "features",
        f"spread of requests a second over {len(theirs)} repeats",
        "1",
        np.nan,
        float(rate.mean()),
        off,
        "relative",
        _REPEATS,
        verdict=_verdict(off <= _REPEATS),
    )


def _performance(
    ours: TraceFeatures, theirs: Sequence[TraceFeatures], limits: Tolerances
) -> Iterator[_Row]:
    group, t = "performance", limits.performance
    recorded = all(f.recorded.requests > f.requests / 2 for f in (ours, *theirs))

    def latency(f: TraceFeatures) -> float:
        return f.recorded.mean_s if recorded else f.storage.latencies.mean_s

    def slow(f: TraceFeatures) -> float:
        return (f.recorded if recorded else f.storage.latencies).quantile_s(0.99)

    rows = [
        _relative(group, figure, unit, of(ours), _mean(theirs, of), t)
        for figure, unit, of in (
            ("completed a second, modelled", "1", lambda f: f.storage.iops),
            ("device time a request, modelled", "s", lambda f: f.storage.busy_s / f.requests),
            (f"mean latency, {'recorded' if recorded else 'modelled'}", "s", latency),
        )
    ]
    yield from rows
    mean = float(np.mean([abs(row.off) for row in rows]))
    limit = min(_MEAN_PERFORMANCE, t)
    yield _Row(
        group,
        "mean of these three",
        "1",
        np.nan,
        np.nan,
        mean,
        "relative",
        limit,
        verdict=_verdict(mean <= limit),
    )
    a, b = slow(ours), _mean(theirs, slow)
    yield _Row(group, "99th percentile of latency", "s", a, b, b / a - 1, "relative")


def _spatial(
    ours: TraceFeatures, theirs: Sequence[TraceFeatures], limits: Tolerances
) -> Iterator[_Row]:
    bins = np.mean([one.bins for one in theirs], axis=0)
    off = distance(ours.bins, bins)
    name = "requests in another 64th of the space"
    yield _Row("spatial", name, "1", np.nan, np.nan, off, "moved")
    name = "the same of the original's halves"
    yield _Row("spatial", name, "1", np.nan, np.nan, ours.drift, "moved")
    reuse = np.mean([one.reuse.distances() for one in theirs], axis=0)
    off = distance(ours.reuse.distances(), reuse)
    name = "accesses at another reuse distance"
    yield _Row("spatial", name, "1", np.nan, np.nan, off, "moved")
    for cache in _CACHES:
        a, b = _hits(ours, ours, cache), float(np.mean([_hits(ours, f, cache) for f in theirs]))
        yield _Row(
            "spatial",
            f"LRU hits, cache of {cache:.0%} of the footprint",
            "share",
            a,
            b,
            b - a,
            "points",
            limits.hit_ratio,
            verdict=_verdict(abs(b - a) <= limits.hit_ratio),
        )


def _hits(ours: TraceFeatures, found: TraceFeatures, cache: float) -> float:
    """Hit ratio of a cache of a share of the original's footprint."""
    blocks = max(1, round(cache * ours.reuse.footprint))
    return float(found.reuse.hit_ratio(blocks))


def _temporal(ours: TraceFeatures, theirs: Sequence[TraceFeatures], seed: int) -> Iterator[_Row]:
    a, b = ours.gap_variation, _mean(theirs, lambda f: f.gap_variation)
    yield _Row(
        "temporal",
        "variation of inter-arrival times",
        "1",
        a,
        b,
        _relative_difference(a, b),
        "relative",
        _VARIATION,
        # So little is that of a clock's last digit.
        verdict=_verdict(abs(b - a) <= max(_VARIATION * a, POINTS)),
    )
    a, b = ours.gap_correlation, _mean(theirs, lambda f: f.gap_correlation)
    yield _Row("temporal", "correlation of neighbouring gaps", "1", a, b, b - a, "difference")
    for width, counts in ours.counts.items():
        if len(counts) < _LEAST_WINDOWS or counts.mean() < _LEAST_COUNT:
            continue
        found = [
            index_of_dispersion(f.counts[width])
            for f in theirs
            if len(f.counts.get(width, ())) >= 2
        ]
        low, high = dispersion_band(counts, seed=seed)
        a, b = index_of_dispersion(counts), float(np.mean(found)) if found else np.nan
        yield _Row(
            "temporal",
            f"dispersion over {width:g} s",
            "1",
            a,
            b,
            _relative_difference(a, b),
            "relative",
            lower=low,
            upper=high,
            verdict=_verdict(low <= b <= high),
        )


def _characterisation(ours: TraceFeatures, theirs: Sequence[TraceFeatures]) -> Iterator[_Row]:
    """Share of the requests whose thread is of the same type in the synthetic trace."""
    kinds = dict(zip(ours.streams.name, ours.streams.types(), strict=True))

    def alike(found: TraceFeatures) -> float:
        streams = found.streams
        same = [kinds.get(n) == k for n, k in zip(streams.name, streams.types(), strict=True)]
        return float(streams.share[np.array(same)].sum())

    b = _mean(theirs, alike)
    yield _Row(
        "threads", "requests of threads that keep their type", "share", 1.0, b, b - 1, "points"
    )


def _ablation(ours: TraceFeatures, ablated: TraceFeatures) -> Iterator[_Row]:
    for cache in _CACHES:
        a, b = _hits(ours, ours, cache), _hits(ours, ablated, cache)
        figure = f"uniform places: LRU hits, cache of {cache:.0%} of the footprint"
        yield _Row("ablation", figure, "share", a, b, b - a, "points")


_MOST_STREAMS = 20
_MORE_SEEDS = (
    "One trace may be off by chance: make some with other seeds (ppw trace generate --seed) and "
    "give all of them, whose mean is judged."
)
# Cache sizes that the curve is drawn at, as shares of the footprint.
_CURVE = np.geomspace(0.001, 1.0, 31)


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceFidelity(TabledResult):
    """How near a synthetic trace comes to its original.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a figure: ``group`` (features, performance, spatial, temporal, ablation),
        ``figure``, ``unit``, ``original``, ``synthetic`` (mean over the synthetic traces),
        ``off``, ``kind`` of it (relative; points, for shares; moved, the share that would have to
        move to make two distributions one; difference), ``tolerance``,
        ``lower`` and ``upper`` (band of the original, where that is the tolerance), ``verdict``
        (pass, fail, or "–" where there is no tolerance).
    streams : pandas.DataFrame
        One row a thread, of either trace: share, rate, fluctuation (coefficient of variation of
        its load over 60 spells), type.
    curve : pandas.DataFrame
        Hit ratio of LRU caches: ``cache_share`` of the original's footprint, ``original``,
        ``synthetic``, ``ablation`` (NaN where it was not asked for).
    synthetic_traces : float
        Their number.
    device : str
        Model that latency and completed requests are of.
    """

    kind: ClassVar[str] = "trace_fidelity"

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
        return said + self._not_judged() + self._ablation()

    def _not_judged(self) -> list[str]:
        table = self.table
        judged = (table["verdict"] != NOT_JUDGED) | table["off"].isna()
        # Figures of the original by itself, for comparison.
        alone = (table["group"] == "ablation") | table["figure"].str.contains("original's halves")
        rows = rows_of(table[~judged & ~alone])
        figures = (f"{row['figure']} ({_off_text(row['off'], row['kind'])})" for row in rows)
        return [f"Not judged: {'; '.join(figures)}."] if rows else []

    def _ablation(self) -> list[str]:
        rows = self.table[self.table["group"] == "ablation"]
        if rows.empty:
            return []
        worst = rows_of(rows.sort_values("off", key=abs, ascending=False, kind="stable"))[0]
        return [
            f"With uniform places, {worst['figure'].partition(': ')[2]} are "
            f"{worst['synthetic']:.1%} instead of "
            f"{worst['original']:.1%}: the effect of a cache is in the places, which the synthetic "
            "trace has to keep."
        ]

    def to_frame(self) -> pd.DataFrame:
        """One row a figure."""
        return self.table

    def summary(self) -> str:
        """Text: the verdict, the figures, the threads and the caveats."""
        lines = [*self.verdict(), "", text_table(self.header(), self.cells()), ""]
        lines += [text_table(self.stream_header(), self.stream_cells())]
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return ["figure", "original", "synthetic", "off", "tolerance", "verdict"]

    def cells(self) -> list[list[str]]:
        """The figures as they are printed."""
        return [
            [
                row["figure"],
                _value(row["original"], row["unit"]),
                _value(row["synthetic"], row["unit"]),
                _off_text(row["off"], row["kind"]),
                _tolerance(row),
                row["verdict"],
            ]
            for row in rows_of(self.table)
        ]

    def stream_header(self) -> list[str]:
        """Name the columns of `stream_cells`."""
        return [
            *("thread", "share", "requests/s", "fluctuation", "type"),
            *("synthetic share", "synthetic type"),
        ]

    def stream_cells(self) -> list[list[str]]:
        """The threads of the original, and beside them share and type in the synthetic trace."""
        return [
            [
                row["stream"],
                _value(row["original_share"], "share"),
                shown(row["original_rate"]),
                shown(row["original_fluctuation"]),
                row["original_type"] or "–",
                _value(row["synthetic_share"], "share"),
                row["synthetic_type"] or "–",
            ]
            for row in rows_of(self.streams.head(_MOST_STREAMS))
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the hit ratio curves."""
        return plot_hit_ratios(self, ax)


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
    """Hold synthetic traces against the original they stand for.

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
        Of the ablation and of the resamples that bands rest on.

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
    limits = Tolerances(
        features=as_positive("tolerance of features", features_tolerance),
        performance=as_positive("tolerance of performance", performance_tolerance),
        hit_ratio=as_positive("tolerance of hit ratios", hit_ratio_tolerance),
    )
    name, model = parse_device(device)
    first = opened(original)
    known = survey(first)
    model = reaching(model, known.survey.high_lbn)
    space = Space(known.survey.low_lbn, known.survey.high_lbn)
    ours = features(first, known, space, model, first.names)
    theirs, digests = [], [known.digest]
    for one in _several(synthetic):
        found = survey(one)
        digests.append(found.digest)
        theirs.append(features(one, found, space, model, first.names))
    ablated = None
    if no_locality:
        without = WithoutLocality(first, known.survey, seed)
        ablated = features(without, survey(without), space, model)
    table = compare_features(ours, theirs, ablated, limits, seed)
    caveats = tuple(_caveats(ours, theirs, f"{name}: {described(model)}", name))
    cv.warn(caveats)
    return TraceFidelity(
        table=table,
        streams=_streams(ours, theirs[0]),
        curve=_curve(ours, theirs, ablated),
        synthetic_traces=float(len(theirs)),
        device=f"{name}: {described(model)}",
        caveats=caveats,
        input_digest=numbers_digest(*digests),
    )


def _several(synthetic: Any) -> list[Batches]:
    single = isinstance(synthetic, str) or hasattr(synthetic, "__fspath__")
    traces = [synthetic] if single or hasattr(synthetic, "batches") else list(synthetic)
    if not traces:
        raise PpwError("no synthetic trace was given")
    return [opened(one) for one in traces]


def _caveats(
    ours: TraceFeatures, theirs: Sequence[TraceFeatures], said: str, name: str
) -> Iterable[str]:
    if not _both_recorded(ours, theirs):
        yield ASSUMED.format(name=name, said=said.partition(": ")[2])
    if ours.reuse.halvings or any(one.reuse.halvings for one in theirs):
        yield (
            "hit ratios are of a sample of the blocks: they are off by about a point at small "
            "caches"
        )
    by_chance = _share_by_chance(ours)
    if by_chance > POINTS:
        yield (
            f"requests start anew {ours.random_share * ours.requests:.0f} times: chance alone "
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


def _share_by_chance(ours: TraceFeatures) -> float:
    """Standard error of the share of an even eighth: a run goes where its start leads."""
    starts = max(1.0, ours.random_share * ours.requests)
    return float(np.sqrt((1 - 1 / OCTANTS) / OCTANTS / starts))


def _both_recorded(ours: TraceFeatures, theirs: Sequence[TraceFeatures]) -> bool:
    return all(f.recorded.requests > f.requests / 2 for f in (ours, *theirs))


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


def _streams(ours: TraceFeatures, theirs: TraceFeatures) -> pd.DataFrame:
    tables = []
    for which, found in (("original", ours.streams), ("synthetic", theirs.streams)):
        tables.append(
            pd.DataFrame(
                {
                    "stream": found.name,
                    f"{which}_share": found.share,
                    f"{which}_rate": found.rate,
                    f"{which}_fluctuation": found.fluctuation,
                    f"{which}_read_share": found.read_share,
                    f"{which}_random_share": found.random_share,
                    f"{which}_mean_size": found.mean_size,
                    f"{which}_type": found.types(),
                }
            )
        )
    both = tables[0].merge(tables[1], on="stream", how="outer", sort=False)
    both = both.sort_values("original_share", ascending=False, kind="stable", ignore_index=True)
    text = ["original_type", "synthetic_type"]
    return both.assign(**{c: both[c].astype(object).where(both[c].notna(), "") for c in text})


def _value(value: float, unit: str) -> str:
    if np.isnan(value):
        return "–"
    if unit == "share":
        return f"{value:.2%}"
    if unit == "s":
        return time_text(value)
    return f"{shown(value, 'B')}/s" if unit == "B/s" else shown(value, unit)


def _off_text(value: float, kind: str) -> str:
    if np.isnan(value):
        return "–"
    return {
        "relative": f"{value:+.2%}",
        "points": f"{100 * value:+.2f} points",
        "moved": f"{value:.2%}",
        "difference": f"{value:+.3f}",
    }[kind]


def _tolerance(row: dict[str, Any]) -> str:
    if np.isfinite(row["lower"]):
        return f"{shown(row['lower'])} to {shown(row['upper'])}"
    if np.isnan(row["tolerance"]):
        return "–"
    points = row["kind"] == "points"
    return f"{100 * row['tolerance']:.3g}{' points' if points else ' %'}"


def plot_hit_ratios(result: TraceFidelity, ax: Axes | None = None) -> Axes:
    """Draw hit ratio over cache size."""
    axes, curve = new_axes(ax), result.curve
    percent = 100 * curve["cache_share"]
    axes.plot(percent, 100 * curve["original"], color=MEASURED, label="original")
    axes.plot(percent, 100 * curve["synthetic"], "--", color=CURVE, label="synthetic")
    if curve["ablation"].notna().any():
        axes.plot(percent, 100 * curve["ablation"], ":", color=PROJECTED, label="no locality")
    axes.set_xscale("log")
    axes.set_xlabel("cache (% of the original's footprint)")
    axes.set_ylabel("hits (%)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return axes
