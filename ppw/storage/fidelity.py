"""`validate_trace`: a synthetic trace compared with its original, figure by figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fitting.compiled.loops import FloatArray
from fitting.storage import dispersion, reuse_distance as rd, survey as sv
from measurements.table.units import size_text
from ppw.errors import PpwError
from ppw.results import axes, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.storage import fitted_devices as fd, trace_source as ts
from ppw.storage.scaling import AS_IT_IS, Scale
from ppw.storage.trace_source import Batches

Measure = Callable[["TraceFeatures"], float]
_Measures = tuple[tuple[str, str, Measure], ...]
_Names = Mapping[str, tuple[str, ...]]

# Sizes of LRU caches, as shares of the footprint, and their block (bytes).
CACHES = (0.01, 0.05, 0.20)
_CACHE_BLOCK = 4096
# Parts of the space by which places are compared: shares of eighths are judged, 64ths are shown.
OCTANTS, BINS = 8, 64
# Lengths of the windows (s) that arrivals are counted in.
WINDOWS_S = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 60.0, 600.0)
_MOST_WINDOWS = 2**22
# Windows of the whole trace by which the load of a stream fluctuates.
_SPELLS = 60
# A thread whose requests are alike in so large a share has a type.
_MOSTLY, _HALF = 0.9, 0.5
PASSED, FAILED, NOT_JUDGED = "pass", "fail", "–"
# Tolerances of features and of performance (relative, published), and of hit ratios.
TOLERANCES = 0.05, 0.067, 0.03
# A share may be off by so much, even where that is more than the relative tolerance.
POINTS = 0.005
# Relative tolerances of the variation of inter-arrival times, of the mean of the three figures of
# performance (published: 3.4 %), and of the spread over repeats.
_VARIATION, _MEAN_PERFORMANCE, _REPEATS = 0.15, 0.034, 0.01
# Relative tolerances of latency and queue by load: mean, 95th and 99th percentile, queue.
_QUEUE_TOLERANCES = {
    1.0: (0.07, 0.15, 0.15, 0.07),
    1.5: (0.15, 0.25, 0.25, 0.15),
    2.0: (0.15, 0.25, 0.25, 0.15),
}
# A device that is busy for more of the time has a queue that chance alone decides.
_BUSY = 0.9
# Reuse distances may be off for this part of the accesses to blocks that were accessed before.
_OF_REUSE = 0.2
# Correlations may be off by so much, and dispersion by this factor, however wide its band is.
_CORRELATION, _MOST_DISPERSION = 0.1, 2.0
# Sizes and streams that are judged one by one, the most frequent.
_TOP_SIZES, _TOP_STREAMS = 5, 5
# Gaps that vary less (relative) are all alike.
_LEAST_VARIATION = 1e-6
# A window length is judged where its windows hold so many arrivals, and there are so many.
_LEAST_COUNT, _LEAST_WINDOWS = 20, 20
_MORE_SEEDS = (
    "One trace may be off by chance: generate several with other seeds (ppw trace generate "
    "--seed) and give all of them. ppw then judges their mean."
)
# Cache sizes that the curve is drawn at, as shares of the footprint.
_CURVE = np.geomspace(0.001, 1.0, 31)

# Figures of a trace, by which a synthetic one is compared with its original.


class TraceFeatures:
    """Figures of a trace, gathered in bounded memory; shares are of its requests, flushes aside.

    ``space`` is the survey of the original, whose blocks are divided evenly to see where requests
    go; ``names`` are its names, for a synthetic trace that numbers its streams like it.
    """

    def __init__(
        self,
        trace: Batches,
        known: sv.Survey,
        space: sv.Survey,
        device: fd.Device,
        names: _Names | None = None,
    ) -> None:
        # A modelled device serves the trace, whose own latencies may be missing.
        reuse, self.storage, self.recorded = rd.ReuseSample(), fd.Storage(device), fd.Latencies()
        tally, self.queues = _Tally(known, space), fd.QueuedLatencies(known)
        for batch in ts.columns(trace):
            tally.add(batch)
            reuse.add(rd.accessed_blocks(batch.lbn, batch.size_bytes, _CACHE_BLOCK)[0])
            self.storage.take(batch)
            self.queues.take(batch)
            self.recorded.add(batch.latency_s)
        n = self.requests = known.requests
        self.duration_s = known.duration_s
        # Requests and bytes per second, as they arrive.
        self.rate = n / known.duration_s
        self.bytes_s = float(known.sizes @ known.size_counts) / known.duration_s
        self.read_share = float(tally.reads.sum() / n)
        # Of requests that do not start where the last one of their stream ended.
        self.random_share = float(tally.random.sum() / n)
        # Shares of request sizes (bytes).
        self.sizes = dict(zip(known.sizes.tolist(), (known.size_counts / n).tolist(), strict=True))
        # Places are counted by half of the requests: together they are shares by eighths and by
        # 64ths of the space, apart a distance of the halves.
        halves = tally.bins
        self.octants = halves.sum(axis=0).reshape(OCTANTS, -1).sum(axis=1) / n
        self.bins = halves.sum(axis=0) / n
        self.drift = distance(*(halves / halves.sum(axis=1, keepdims=True)))
        # Inter-arrival times: their coefficient of variation, and correlation with the next one.
        self.gap_variation, self.gap_correlation = tally.time_moments()
        # Arrivals of each window by its length (s); the last window is cut short.
        self.counts = {width: counts[:-1] for width, counts in tally.windows.items()}
        # Of blocks of 4 KiB.
        self.reuse = reuse.curve()
        # One row a stream, the busiest first.
        self.streams = tally.streams(_stream_labels(known, trace.names, names or {}))

    def hit_ratio(self, cache: float, of: TraceFeatures) -> float:
        """Hit ratio of an LRU cache of a share of the footprint of another trace."""
        return float(self.reuse.hit_ratio(max(1, round(cache * of.reuse.footprint))))


def distance(a: FloatArray, b: FloatArray) -> float:
    """Total variation of two laws: the share of the requests that would have to move."""
    return float(np.abs(a - b).sum() / 2)


def _stream_labels(known: sv.Survey, own: _Names, original: _Names) -> list[str]:
    """Name each stream and its device; a trace without names has those of the original."""
    nameless, labels = ((), ("all",)), []
    for what, codes in (("stream", known.streams), ("device", known.devices)):
        names = original.get(what, ()) if own.get(what, ()) in nameless else own[what]
        labels.append([names[c] if 0 <= c < len(names) else str(c) for c in codes.tolist()])
    return [f"{stream} on {device}" for stream, device in zip(*labels, strict=True)]


class _Tally:
    """Counts of requests by stream, by place and by time."""

    def __init__(self, known: sv.Survey, space: sv.Survey) -> None:
        self._known, self._space = known, space
        keys = known.streams.astype(np.int64) << 32 | known.devices
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        self.number, self.reads, self.random = np.zeros((3, len(keys)), dtype=np.int64)
        self.bytes_ = np.zeros(len(keys))
        self.spells = np.zeros((len(keys), _SPELLS), dtype=np.int64)
        # By half of the requests.
        self.bins = np.zeros((2, BINS), dtype=np.int64)
        self.ends = fd.LastEnds()
        # The last two times, and sums over inter-arrival times and over pairs of them.
        self._last, self._sums = np.empty(0), np.zeros(5)
        self.windows = {
            width: np.zeros(int(known.duration_s / width) + 1, dtype=np.int64)
            for width in WINDOWS_S
            if 1 <= known.duration_s / width <= _MOST_WINDOWS
        }

    def add(self, batch: ts.RequestColumns) -> None:
        """Take the next requests."""
        if not len(batch.time_s):
            return
        # A stream is a pair of stream and device: one number, found among the sorted ones.
        key = batch.stream.astype(np.int64) << 32 | batch.device
        stream, k = self._order[np.searchsorted(self._keys, key)], len(self._keys)
        random = self.ends.before(stream.astype(np.int32), batch.lbn, batch.size_bytes) != batch.lbn
        self.number += np.bincount(stream, minlength=k)
        self.reads += np.bincount(stream[batch.op == 0], minlength=k)
        self.random += np.bincount(stream[random], minlength=k)
        self.bytes_ += np.bincount(stream, batch.size_bytes, minlength=k)
        self._add_times(batch.time_s)
        left = max(0, self._known.requests // 2 - int(self.bins.sum()))
        space = self._space
        blocks = max(1, space.high_lbn - space.low_lbn)
        for half, places in zip(self.bins, (batch.lbn[:left], batch.lbn[left:]), strict=True):
            # Blocks outside belong to the nearest part of the space.
            part = np.clip((places - space.low_lbn) * BINS // blocks, 0, BINS - 1)
            half += np.bincount(part, minlength=BINS)
        since = batch.time_s - self._known.first_s
        spell = np.minimum((since * (_SPELLS / self._known.duration_s)).astype(int), _SPELLS - 1)
        self.spells += np.bincount(stream * _SPELLS + spell, minlength=k * _SPELLS).reshape(k, -1)
        # Arrivals are in order, so a batch fills a few windows that follow one another.
        for width, counts in self.windows.items():
            window = np.minimum((since / width).astype(np.int64), len(counts) - 1)
            here = np.bincount(window - window[0])
            counts[window[0] : window[0] + len(here)] += here

    def _add_times(self, time_s: FloatArray) -> None:
        """Add up the moments of inter-arrival times, and of each with the next one."""
        times = np.concatenate([self._last, time_s])
        gap = np.diff(times)
        # The gap before the first new one was taken already; its pair with it was not.
        new = gap[max(0, len(self._last) - 1) :]
        first, second = gap[:-1], gap[1:]
        self._sums += [len(new), new.sum(), (new**2).sum(), len(first), (first * second).sum()]
        self._last = times[-2:]

    def time_moments(self) -> tuple[float, float]:
        """Coefficient of variation of inter-arrival times; correlation of each with the next."""
        n, total, squares, pairs, products = self._sums
        mean = total / n
        variance = squares / n - mean**2
        # About the mean of all, which is nearly that of the first and of the second of each pair.
        # So little variance is that of rounded sums.
        varies = pairs and variance > (_LEAST_VARIATION * mean) ** 2
        correlation = (products / pairs - mean**2) / variance if varies else 0.0
        return float(np.sqrt(max(variance, 0)) / mean), float(correlation)

    def streams(self, labels: list[str]) -> pd.DataFrame:
        """Streams, the busiest first, with what nine in ten of their requests do."""
        n, mean = np.maximum(self.number, 1), np.maximum(self.spells.mean(axis=1), 1e-300)
        table = pd.DataFrame(
            {
                "stream": labels,
                "share": self.number / self.number.sum(),
                "rate": self.number / self._known.duration_s,
                "fluctuation": self.spells.std(axis=1) / mean,
                "read_share": self.reads / n,
                "random_share": self.random / n,
                "mean_size": self.bytes_ / n,
            }
        )
        table["type"] = list(map(_thread_type, table["read_share"], table["random_share"]))
        return table.iloc[np.argsort(-self.number, kind="stable")].reset_index(drop=True)


def _thread_type(read_share: float, random_share: float) -> str:
    """Name a thread by its operations and its places: a log is written in sequence."""
    reads, writes = read_share >= _MOSTLY, 1 - read_share >= _MOSTLY
    if random_share <= _HALF:
        return "scan" if reads else "log" if writes else "sequential mix"
    return "random reads" if reads else "random writes" if writes else "random mix"


# TraceComparison of an original with its synthetic traces, figure by figure.


class FigureRow(NamedTuple):
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

    def judge(self, passed: bool | None = None) -> FigureRow:
        """Judge by the tolerance, where no verdict is given."""
        passed = abs(self.off) <= self.tolerance if passed is None else passed
        return self._replace(verdict=PASSED if passed else FAILED)


def _points(group: str, figure: str, a: float, b: float, tolerance: float = np.nan) -> FigureRow:
    """Compare two shares by their difference."""
    return FigureRow(group, figure, "share", a, b, b - a, "points", tolerance)


def _relative(
    group: str, figure: str, unit: str, a: float, b: float, tolerance: float = np.nan
) -> FigureRow:
    """Compare two figures by their ratio; nothing is as far from nothing as can be."""
    off = b / a - 1 if a else 0.0 if b == a else np.inf
    return FigureRow(group, figure, unit, a, b, off, "relative", tolerance)


def _distance(group: str, figure: str, share: float) -> FigureRow:
    """Compare two distributions by the share that would have to move."""
    return FigureRow(group, figure, "1", np.nan, np.nan, share, "moved")


class TraceComparison(NamedTuple):
    """Features of an original and of the synthetic traces that stand for it."""

    ours: TraceFeatures
    theirs: Sequence[TraceFeatures]

    def pair(self, of: Measure) -> tuple[float, float]:
        """Return a figure of the original and its mean over the synthetic traces."""
        return of(self.ours), float(np.mean([of(one) for one in self.theirs]))

    def all_recorded(self) -> bool:
        """Whether each trace has the latency of most of its requests."""
        return all(f.recorded.requests > f.requests / 2 for f in (self.ours, *self.theirs))

    def figures(
        self, seed: int, tolerances: tuple[float, float, float] = TOLERANCES
    ) -> Iterator[FigureRow]:
        """Rows of all figures that are judged; tolerances as `TOLERANCES` has them."""
        for_features, for_performance, for_hits = tolerances
        yield from self.requests(for_features)
        yield from self.rates(for_features)
        yield from self.performance(for_performance)
        yield from self.queue_rows(seed)
        yield from self.places(for_hits)
        yield from self.times(seed)
        yield from self.types()

    def requests(self, tolerance: float) -> Iterator[FigureRow]:
        """Rows of the published table: what the requests are, and how fast they come."""
        ours, group = self.ours, "features"

        def share(figure: str, of: Measure) -> FigureRow:
            a, b = self.pair(of)
            return _points(group, figure, a, b, max(tolerance * a, POINTS)).judge()

        yield share("reads", lambda f: f.read_share)
        yield share("random requests", lambda f: f.random_share)
        for size in sorted(ours.sizes, key=lambda size: (-ours.sizes[size], size))[:_TOP_SIZES]:
            figure = f"requests of {size_text(size)}"
            yield share(figure, lambda f, s=size: f.sizes.get(s, 0.0))  # type: ignore[misc]
        shares = pd.DataFrame([one.sizes for one in (ours, *self.theirs)]).fillna(0.0)
        a, *others = shares.sort_index(axis=1).to_numpy()
        yield _distance(group, "requests of another size", distance(a, np.mean(others, axis=0)))
        for k in range(OCTANTS):
            yield share(f"octant {k + 1} of the space", lambda f, k=k: float(f.octants[k]))  # type: ignore[misc]
        for name in ours.streams["stream"].head(_TOP_STREAMS) if len(ours.streams) > 1 else ():
            yield share(f"weight of {name}", partial(_weight, name=name))

    def rates(self, tolerance: float) -> Iterator[FigureRow]:
        """Rows of arrival rates, and how far they are spread over several synthetic traces."""
        group = "features"
        measures: _Measures = (
            ("mean inter-arrival time", "s", lambda f: f.duration_s / f.requests),
            ("requests a second", "1", lambda f: f.rate),
            ("throughput", "B/s", lambda f: f.bytes_s),
        )
        for figure, unit, of in measures:
            yield _relative(group, figure, unit, *self.pair(of), tolerance).judge()
        if len(self.theirs) > 1:
            rate = np.array([one.rate for one in self.theirs])
            mean, off = float(rate.mean()), float(rate.std(ddof=1) / rate.mean())
            figure = f"spread of requests per second over {len(rate)} repeats"
            yield FigureRow(group, figure, "1", np.nan, mean, off, "relative", _REPEATS).judge()

    def performance(self, tolerance: float) -> Iterator[FigureRow]:
        """Rows of throughput and latency, of a model where the traces do not record it."""
        group, recorded = "performance", self.all_recorded()

        def latencies(f: TraceFeatures) -> fd.Latencies:
            return f.recorded if recorded else f.storage.latencies

        mean_latency = f"mean latency, {'recorded' if recorded else 'modelled'}"
        measures: _Measures = (
            ("completed per second, modelled", "1", lambda f: f.storage.iops),
            ("device time per request, modelled", "s", lambda f: f.storage.busy_s / f.requests),
            (mean_latency, "s", lambda f: latencies(f).mean_s),
        )
        rows = [
            _relative(group, figure, unit, *self.pair(of), tolerance).judge()
            for figure, unit, of in measures
        ]
        yield from rows
        off = float(np.mean([abs(row.off) for row in rows]))
        limit = min(_MEAN_PERFORMANCE, tolerance)
        figure = "mean of the three figures above"
        yield FigureRow(group, figure, "1", np.nan, np.nan, off, "relative", limit).judge()
        slow = self.pair(lambda f: latencies(f).quantile_s(0.99))
        yield _relative(group, "99th percentile of latency", "s", *slow)

    def queue_rows(self, seed: int) -> Iterator[FigureRow]:
        """Rows of the latencies on three devices at three loads, where these keep up.

        A figure may be off by its tolerance, or as far as a block bootstrap of the original moves
        it, but by three tolerances at most.
        """
        for key, storage in self.ours.queues.storages.items():
            ours = self.ours.queues.figures(key)[0]
            theirs = np.mean([one.queues.figures(key)[0] for one in self.theirs], axis=0)
            limit = np.array(_QUEUE_TOLERANCES[key[1]])
            allowed = np.clip(self.ours.queues.bootstrap_variation(key, seed), limit, 3 * limit)
            keeps_up = storage.utilisation < _BUSY
            for k, figure in enumerate(fd.QUEUE_FIGURES):
                name, unit = f"{key[0]} at load ×{key[1]:g}: {figure}", "1" if k == 3 else "s"
                pair = float(ours[k]), float(theirs[k])
                row = _relative("queues", name, unit, *pair, float(allowed[k]))
                yield row.judge() if keeps_up else row._replace(tolerance=np.nan)

    def places(self, tolerance: float) -> Iterator[FigureRow]:
        """Rows of where requests go and how soon they come back, and of what caches make of it."""
        group, ours = "spatial", self.ours
        bins = np.mean([one.bins for one in self.theirs], axis=0)
        reuse = np.mean([one.reuse.distances() for one in self.theirs], axis=0)
        off = distance(ours.reuse.distances(), reuse)
        yield _distance(group, "requests in another 64th of the space", distance(ours.bins, bins))
        yield _distance(
            group, "requests in another 64th, between halves of the original", ours.drift
        )
        again = 1 - float(ours.reuse.distances()[-1])
        row = _distance(group, "accesses at another reuse distance", off)
        yield row._replace(tolerance=max(POINTS, _OF_REUSE * again)).judge()
        for cache in CACHES:
            pair = self.pair(partial(TraceFeatures.hit_ratio, cache=cache, of=ours))
            yield _points(group, hits_figure(cache), *pair, tolerance).judge()

    def times(self, seed: int) -> Iterator[FigureRow]:
        """Rows of how inter-arrival times vary, and of bursts by the length of windows."""
        group = "temporal"
        a, b = self.pair(lambda f: f.gap_variation)
        row = _relative(group, "variation of inter-arrival times", "1", a, b, _VARIATION)
        # So little is that of a clock's last digit.
        yield row.judge(abs(b - a) <= max(_VARIATION * a, POINTS))
        a, b = self.pair(lambda f: f.gap_correlation)
        row = FigureRow(group, "correlation of neighbouring gaps", "1", a, b, b - a, "difference")
        yield row._replace(tolerance=_CORRELATION).judge()
        for width, counts in self.ours.counts.items():
            if len(counts) < _LEAST_WINDOWS or counts.mean() < _LEAST_COUNT:
                continue
            # A synthetic trace may be too short to have two such windows.
            others = [f.counts[width] for f in self.theirs if len(f.counts.get(width, ())) >= 2]
            low, high = dispersion.dispersion_band(counts, level=0.99, seed=seed)
            a = dispersion.index_of_dispersion(counts)
            b = float(np.mean([*map(dispersion.index_of_dispersion, others)])) if others else np.nan
            # Where a few bursts are all, resamples without them would let anything pass.
            low, high = max(low, a / _MOST_DISPERSION), min(high, a * _MOST_DISPERSION)
            row = _relative(group, f"dispersion over {width:g} s", "1", a, b)
            yield row._replace(lower=low, upper=high).judge(low <= b <= high)

    def types(self) -> Iterator[FigureRow]:
        """Row of the share of requests whose thread keeps its type."""
        types = dict(zip(self.ours.streams["stream"], self.ours.streams["type"], strict=True))

        def alike(f: TraceFeatures) -> float:
            same = f.streams["stream"].map(types) == f.streams["type"]
            return float(f.streams["share"].to_numpy()[same].sum())

        figure = "requests of threads that keep their type"
        yield _points("threads", figure, 1.0, self.pair(alike)[1])

    def ablation(self, ablated: TraceFeatures | None) -> Iterator[FigureRow]:
        """Rows of what caches make of the original when its places are uniform."""
        if ablated is None:
            return
        for cache in CACHES:
            a, b = (one.hit_ratio(cache, self.ours) for one in (self.ours, ablated))
            yield _points("ablation", f"uniform places: {hits_figure(cache)}", a, b)


def hits_figure(cache: float) -> str:
    """Name the hit ratio of a cache of a share of the footprint."""
    return f"LRU hits, cache of {cache:.0%} of the footprint"


def _weight(one: TraceFeatures, name: str) -> float:
    """Share of the requests that the first stream of a name has."""
    return float(one.streams["share"][one.streams["stream"] == name].head(1).sum())


def figure_text(value: float, unit: str) -> str:
    """Write the value of a figure by its unit."""
    if np.isnan(value):
        return "–"
    if unit == "share":
        return f"{value:.2%}"
    if unit == "s":
        return fd.time_text(value)
    return f"{tx.shown(value, 'B')}/s" if unit == "B/s" else tx.shown(value, unit)


def off_text(row: rs.Row) -> str:
    """Write how far a figure is off, with the unit of its kind."""
    off = row["off"]
    if np.isnan(off):
        return "–"
    return {
        "relative": f"{off:+.2%}",
        "points": f"{100 * off:+.2f} points",
        "moved": f"{off:.2%}",
        "difference": f"{off:+.3f}",
    }[row["kind"]]


def tolerance_text(row: rs.Row) -> str:
    """Write the tolerance or the band of a figure."""
    if np.isfinite(row["lower"]):
        return f"{tx.shown(row['lower'])} to {tx.shown(row['upper'])}"
    if np.isnan(row["tolerance"]):
        return "–"
    if row["kind"] == "difference":
        return f"{row['tolerance']:.3g}"
    return f"{100 * row['tolerance']:.3g} {'points' if row['kind'] == 'points' else '%'}"


SHOW = {
    "original": lambda row: figure_text(row["original"], row["unit"]),
    "synthetic": lambda row: figure_text(row["synthetic"], row["unit"]),
    "off": off_text,
    "tolerance": tolerance_text,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceFidelity(ts.TraceResult):
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
    tables: ClassVar[tuple[rs.Table, ...]] = (
        rs.Table(
            "table",
            """
            group     | text  |           | features, performance, queues, spatial, temporal, \
ablation
            figure    | text  | figure    | figure that is compared
            unit      | text  |           | unit of its values
            original  | unit  | original  | value of the original
            synthetic | unit  | synthetic | mean over the synthetic traces
            off       | 1     | off       | difference of the synthetic value from the original
            kind      | text  |           | relative; points, for shares; moved, the share that \
would have to move to make two distributions one; difference
            tolerance | 1     | tolerance | largest allowed `off`
            lower     | 1     |           | band of the original, where that is the tolerance
            upper     | 1     |           | its upper end
            verdict   | text  | verdict   | pass, fail, or "–" where there is no tolerance
            """,
            "Figures",
            most=1000,
            show=SHOW,
        ),
        rs.Table(
            "streams",
            """
            stream                 | text      | thread          | thread, of either trace
            original_share         | share .2% | share           | share of the requests
            original_rate          | 1         | requests/s      | requests per second
            original_fluctuation   | 1         | fluctuation     | variation of load by 60 spells
            original_type          | text      | type            | most frequent type of request
            synthetic_share        | share .2% | synthetic share | share in the synthetic trace
            synthetic_type         | text      | synthetic type  | most frequent type of request
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
        halves = table["figure"].str.contains("halves of the original")
        rows = rs.rows_of(table[~judged & ~halves & (table["group"] != "ablation")])
        if rows:
            figures = (f"{row['figure']} ({off_text(row)})" for row in rows)
            yield f"Not judged: {'; '.join(figures)}."

    def _ablation_text(self) -> Iterator[str]:
        rows = self.table[self.table["group"] == "ablation"]
        for worst in rs.rows_of(rows.sort_values("off", key=abs, ascending=False, kind="stable"))[
            :1
        ]:
            yield (
                f"With uniform addresses, {worst['figure'].partition(': ')[2]} are "
                f"{worst['synthetic']:.1%} instead of {worst['original']:.1%}. The effect of a "
                "cache depends on the addresses, so the synthetic trace must keep their order."
            )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the hit ratio curves over cache size."""
        ax, percent = axes.new_axes(ax), 100 * self.curve["cache_share"]
        lines = {
            "original": ("-", axes.MEASURED, "original"),
            "synthetic": ("--", axes.CURVE, "synthetic"),
            "ablation": (":", axes.PROJECTED, "no locality"),
        }
        for column, (style, color, label) in lines.items():
            if self.curve[column].notna().any():
                ax.plot(percent, 100 * self.curve[column], style, color=color, label=label)
        ax.set(xscale="log", xlabel="cache (% of the original's footprint)", ylabel="hits (%)")
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False)
        return ax


def validate_trace(
    original: Batches | str | PathLike[str],
    synthetic: Batches | str | PathLike[str] | Sequence[Batches | str | PathLike[str]],
    *,
    device: str = "ssd",
    features_tolerance: float = TOLERANCES[0],
    performance_tolerance: float = TOLERANCES[1],
    hit_ratio_tolerance: float = TOLERANCES[2],
    no_locality: bool = False,
    size_bytes: float | None = None,
    time_scale: float = 1.0,
    streams: int = 1,
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
    size_bytes, time_scale, streams
        Scale the original first, as `ppw.generate_trace` scales what it generates.
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
    """
    for_features = tx.as_positive("tolerance of features", features_tolerance)
    for_performance = tx.as_positive("tolerance of performance", performance_tolerance)
    for_hits = tx.as_positive("tolerance of hit ratios", hit_ratio_tolerance)
    drive, first = fd.parse_device(device), ts.open_trace(original)
    known = ts.survey(first)
    scale = Scale(size_bytes, time_scale, streams)
    if scale != AS_IT_IS:
        first = scale.apply(first, known.survey)
        known = ts.survey(first)
    drive = drive.reaching(known.survey.high_lbn)
    space = known.survey
    ours = TraceFeatures(first, space, space, drive.model, first.names)
    others = [(one, ts.survey(one)) for one in ts.open_traces(synthetic)]
    if not others:
        raise PpwError("no synthetic trace was given")
    theirs = [
        TraceFeatures(one, found.survey, space, drive.model, first.names) for one, found in others
    ]
    ablated = None
    if no_locality:
        without = ts.without_locality(first, space, seed)
        ablated = TraceFeatures(without, ts.survey(without).survey, space, drive.model)
    both = TraceComparison(ours, theirs)
    tolerances = for_features, for_performance, for_hits
    rows = [*both.figures(seed, tolerances), *both.ablation(ablated)]
    remarks = tuple(_comparison_caveats(both, drive.caveat))
    rs.warn_caveats(remarks)
    return TraceFidelity(
        table=pd.DataFrame(rows, columns=FigureRow._fields),
        streams=_merge_streams(ours.streams, theirs[0].streams),
        curve=_hit_ratio_curves(ours, theirs, ablated),
        synthetic_traces=float(len(theirs)),
        device=drive.text,
        caveats=remarks,
        input_digest=rs.numbers_digest(known.digest, *(found.digest for _, found in others)),
    )


def _comparison_caveats(both: TraceComparison, assumed: str) -> Iterator[str]:
    ours, theirs = both
    if not both.all_recorded():
        yield assumed
    if any(one.reuse.halvings for one in (ours, *theirs)):
        yield (
            "hit ratios are computed from a sample of the blocks: for small caches they are off "
            "by about one percentage point"
        )
    # Standard error of the share of an even eighth: a run goes where its start leads.
    starts = ours.random_share * ours.requests
    by_chance = float(np.sqrt((1 - 1 / OCTANTS) / OCTANTS / max(1.0, starts)))
    if by_chance > POINTS:
        yield (
            f"requests start anew {starts:.0f} times: chance alone moves the share of an eighth "
            f"of the space by {100 * by_chance:.1f} points, so this trace is too short to tell "
            "whether addresses are within their tolerance"
        )
    if any(abs(one.duration_s / ours.duration_s - 1) > 0.05 for one in theirs):
        yield (
            "the traces differ in length by more than 5 %: hit ratios and dispersion depend on "
            "the length; without --count and --duration, ppw trace generate keeps the length of "
            "the original"
        )
    if max(f.storage.utilisation for f in (ours, *theirs)) > 0.99:
        yield (
            "a modelled device is always busy, so its queue only grows and its latency means little"
        )


def _hit_ratio_curves(
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
