"""Figures of a trace, by which a synthetic one is compared with its original."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from fitting.storage.reuse_distance import ReuseSample, accessed_blocks
from ppw.storage.fitted_devices import LastEnds, Latencies, Storage
from ppw.storage.trace_source import columns, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fitting.compiled.loops import FloatArray, IntArray
    from fitting.storage.reuse_distance import HitRatioCurve
    from fitting.storage.survey import Survey
    from ppw.storage.fitted_devices import Device
    from ppw.storage.trace_source import Batches, RequestColumns, TraceSurvey

# Sizes of LRU caches, as shares of the footprint, and their block (bytes).
CACHES = (0.01, 0.05, 0.20)
_CACHE_BLOCK = 4096
OCTANTS, BINS = 8, 64
# Lengths of the windows (s) that arrivals are counted in.
WINDOWS_S = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 60.0, 600.0)
_MOST_WINDOWS = 2**22
# Windows of the whole trace by which the load of a stream fluctuates.
_SPELLS = 60
# A thread whose requests are alike in so large a share has a type.
_MOSTLY, _HALF = 0.9, 0.5


class Space(NamedTuple):
    """Blocks from a first to an end, divided evenly to see where requests go."""

    low_lbn: int
    high_lbn: int

    def bins(self, lbn: IntArray) -> IntArray:
        """Number of the part that a block lies in; those outside belong to the nearest."""
        width = max(1, self.high_lbn - self.low_lbn)
        return np.asarray(np.clip((lbn - self.low_lbn) * BINS // width, 0, BINS - 1))


@dataclass(frozen=True)
class TraceFeatures:
    """Figures of a trace; shares are of its requests, flushes aside."""

    requests: int
    duration_s: float
    read_share: float
    random_share: float  # of requests that do not start where the last one of their stream ended
    sizes: Mapping[int, float]  # shares of request sizes (bytes)
    octants: FloatArray  # shares by eighths and by 64ths of the original's space
    bins: FloatArray
    drift: float  # distance in 64ths of the space between both halves of the requests
    gap_mean_s: float  # of inter-arrival times
    gap_variation: float  # their coefficient of variation
    gap_correlation: float  # of an inter-arrival time with the next one
    counts: Mapping[float, IntArray]  # arrivals of each whole window, by its length (s)
    rate: float  # requests and bytes per second, as they arrive
    bytes_s: float
    reuse: HitRatioCurve  # of blocks of 4 KiB
    recorded: Latencies
    storage: Storage  # a modelled device, after it served the trace
    streams: pd.DataFrame  # one row a stream, the busiest first

    def hit_ratio(self, cache: float, of: TraceFeatures) -> float:
        """Hit ratio of an LRU cache of a share of the footprint of another trace."""
        return float(self.reuse.hit_ratio(max(1, round(cache * of.reuse.footprint))))


def features(
    trace: Batches,
    found: TraceSurvey,
    space: Space,
    device: Device,
    names: Mapping[str, tuple[str, ...]] | None = None,
) -> TraceFeatures:
    """Pass over a trace and gather its figures, in bounded memory.

    ``names`` are those of the original, for a synthetic trace that numbers its streams like it.
    """
    known = found.survey
    tally = _Tally(known, space)
    reuse, storage, recorded = ReuseSample(), Storage(device), Latencies()
    for batch in columns(trace):
        tally.add(batch)
        reuse.add(accessed_blocks(batch.lbn, batch.size_bytes, _CACHE_BLOCK)[0])
        storage.take(batch)
        recorded.add(batch.latency_s)
    # Places are counted by half of the requests: together they are shares, apart a drift.
    n, halves = known.requests, tally.bins
    return TraceFeatures(
        requests=n,
        duration_s=known.duration_s,
        read_share=float(tally.reads.sum() / n),
        random_share=float(tally.random.sum() / n),
        sizes=dict(zip(known.sizes.tolist(), (known.size_counts / n).tolist(), strict=True)),
        octants=halves.sum(axis=0).reshape(OCTANTS, -1).sum(axis=1) / n,
        bins=halves.sum(axis=0) / n,
        drift=distance(*(halves / halves.sum(axis=1, keepdims=True))),
        gap_mean_s=known.duration_s / n,
        gap_variation=tally.arrivals.variation(),
        gap_correlation=tally.arrivals.correlation(),
        # The last window is cut short.
        counts={width: counts[:-1] for width, counts in tally.windows.items()},
        rate=n / known.duration_s,
        bytes_s=float(known.sizes @ known.size_counts) / known.duration_s,
        reuse=reuse.curve(),
        recorded=recorded,
        storage=storage,
        streams=tally.streams(_stream_names(trace.names, names or {})),
    )


def distance(a: FloatArray, b: FloatArray) -> float:
    """Total variation of two laws: the share of the requests that would have to move."""
    return float(np.abs(a - b).sum() / 2)


def _stream_names(
    own: Mapping[str, tuple[str, ...]], original: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Names of the trace, or of the original where it has none."""
    nameless = ((), ("all",))
    return {
        what: original.get(what, ()) if own.get(what, ()) in nameless else own[what]
        for what in ("stream", "device")
    }


class _Arrivals:
    """Moments of inter-arrival times, and of each with the next one."""

    def __init__(self) -> None:
        self._last: FloatArray = np.empty(0)
        self._sums = np.zeros(5)

    def add(self, time_s: FloatArray) -> None:
        """Take the next arrivals."""
        times = np.concatenate([self._last, time_s])
        gap = np.diff(times)
        # The gap before the first new one was taken already; its pair with it was not.
        new = gap[max(0, len(self._last) - 1) :]
        first, second = gap[:-1], gap[1:]
        self._sums += [len(new), new.sum(), (new**2).sum(), len(first), (first * second).sum()]
        self._last = times[-2:]

    def variation(self) -> float:
        """Coefficient of variation."""
        n, total, squares = self._sums[:3]
        mean = total / n
        return float(np.sqrt(max(squares / n - mean**2, 0)) / mean)

    def correlation(self) -> float:
        """Correlation of an inter-arrival time with the next one, about the mean of all."""
        n, total, squares, pairs, products = self._sums
        mean = total / n
        spread = squares / n - mean**2
        return float((products / pairs - mean**2) / spread) if pairs and spread > 0 else 0.0


class _Tally:
    """Counts of requests by stream, by place and by time."""

    def __init__(self, known: Survey, space: Space) -> None:
        self._known, self._space = known, space
        keys = known.streams.astype(np.int64) << 32 | known.devices
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        self.number, self.reads, self.random = np.zeros((3, len(keys)), dtype=np.int64)
        self.bytes_ = np.zeros(len(keys))
        self.spells = np.zeros((len(keys), _SPELLS), dtype=np.int64)
        # By half of the requests.
        self.bins = np.zeros((2, BINS), dtype=np.int64)
        self.arrivals, self.ends = _Arrivals(), LastEnds()
        self.windows = {
            width: np.zeros(int(known.duration_s / width) + 1, dtype=np.int64)
            for width in WINDOWS_S
            if 1 <= known.duration_s / width <= _MOST_WINDOWS
        }

    def add(self, batch: RequestColumns) -> None:
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
        self.arrivals.add(batch.time_s)
        left = max(0, self._known.requests // 2 - int(self.bins.sum()))
        for half, places in zip(self.bins, (batch.lbn[:left], batch.lbn[left:]), strict=True):
            half += np.bincount(self._space.bins(places), minlength=BINS)
        since = batch.time_s - self._known.first_s
        spell = np.minimum((since * (_SPELLS / self._known.duration_s)).astype(int), _SPELLS - 1)
        self.spells += np.bincount(stream * _SPELLS + spell, minlength=k * _SPELLS).reshape(k, -1)
        # Arrivals are in order, so a batch fills a few windows that follow one another.
        for width, counts in self.windows.items():
            window = np.minimum((since / width).astype(np.int64), len(counts) - 1)
            here = np.bincount(window - window[0])
            counts[window[0] : window[0] + len(here)] += here

    def streams(self, names: dict[str, tuple[str, ...]]) -> pd.DataFrame:
        """Streams, the busiest first, with what nine in ten of their requests do."""
        known, n = self._known, np.maximum(self.number, 1)
        pairs = zip(known.streams.tolist(), known.devices.tolist(), strict=True)
        table = pd.DataFrame(
            {
                "stream": [
                    f"{name_of(names, 'stream', s)} on {name_of(names, 'device', d)}"
                    for s, d in pairs
                ],
                "share": self.number / self.number.sum(),
                "rate": self.number / known.duration_s,
                "fluctuation": self.spells.std(axis=1)
                / np.maximum(self.spells.mean(axis=1), 1e-300),
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
