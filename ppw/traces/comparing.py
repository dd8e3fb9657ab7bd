"""Figures of an original trace beside those of synthetic ones, with a verdict for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.storage.cascade import dispersion_band, index_of_dispersion
from measurements.quantities import size_text
from ppw.traces.features import OCTANTS, distance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ppw.traces.features import TraceFeatures

    FloatArray = np.ndarray[Any, np.dtype[np.float64]]

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
    off = _off(a, b)
    return _Row(
        group, figure, unit, a, b, off, "relative", limit, verdict=_verdict(abs(off) <= limit)
    )


def _off(a: float, b: float) -> float:
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
        _off(a, b),
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
            _off(a, b),
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
