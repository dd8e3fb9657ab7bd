"""What a trace is like: the figures by which a synthetic one is held against its original."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.storage.reuse_distance import ReuseSample, touched_blocks
from fitting.storage.survey import BLOCK
from ppw.storage.fitted_devices import Latencies, Storage
from ppw.storage.trace_source import columns, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fitting.storage.reuse_distance import SampledCurve
    from fitting.storage.survey import Survey
    from ppw.storage.fitted_devices import Device
    from ppw.storage.trace_source import Batches, Columns, Surveyed

    FloatArray = np.ndarray[Any, np.dtype[np.float64]]
    IntArray = np.ndarray[Any, np.dtype[np.int64]]

CACHE_BLOCK = 4096
OCTANTS, BINS = 8, 64
# Lengths of the windows (s) that arrivals are counted in.
WINDOWS_S = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 60.0, 600.0)
_MOST_WINDOWS = 2**22
# Windows that a stream's load is looked at in.
_SPELLS = 60


class Space(NamedTuple):
    """Blocks from a first to an end, divided evenly to see where requests go."""

    low_lbn: int
    high_lbn: int

    def bins(self, lbn: IntArray, number: int) -> IntArray:
        """Number of the part that a block lies in; those outside belong to the nearest."""
        width = max(1, self.high_lbn - self.low_lbn)
        place = (lbn - self.low_lbn) * number // width
        return np.asarray(np.clip(place, 0, number - 1))


@dataclass(frozen=True)
class StreamLoad:
    """Streams of a trace, one an element, the busiest first."""

    name: tuple[str, ...]
    share: FloatArray
    read_share: FloatArray
    random_share: FloatArray
    mean_size: FloatArray
    rate: FloatArray
    fluctuation: FloatArray

    def types(self) -> tuple[str, ...]:
        """Kind of thread: what nine requests in ten do, or "mixed"."""
        return tuple(map(_thread_type, self.read_share, self.random_share))


@dataclass(frozen=True)
class TraceFeatures:
    """Figures of a trace; shares are of its requests, flushes aside.

    Attributes
    ----------
    requests : int
    duration_s : float
    read_share, random_share : float
        A request is random where it does not start where the last one of its stream ended.
    sizes : mapping of int to float
        Shares of request sizes (bytes).
    octants, bins : array
        Shares by eighths and by 64ths of the original's space.
    drift : float
        Distance in 64ths of the space between the first and the second half of the requests.
    gap_mean_s, gap_variation, gap_correlation : float
        Inter-arrival times: mean, coefficient of variation, autocorrelation of neighbours.
    counts : mapping of float to array
        Arrivals of each whole window, by its length (s).
    rate, bytes_s : float
        Requests and bytes a second, as they arrive.
    reuse : SampledCurve
        Of blocks of 4 KiB.
    latencies : Latencies
        Recorded, or of the device model.
    storage : Storage
    streams : StreamLoad
    """

    requests: int
    duration_s: float
    read_share: float
    random_share: float
    sizes: Mapping[int, float]
    octants: FloatArray
    bins: FloatArray
    drift: float
    gap_mean_s: float
    gap_variation: float
    gap_correlation: float
    counts: Mapping[float, IntArray]
    rate: float
    bytes_s: float
    reuse: SampledCurve
    recorded: Latencies
    storage: Storage
    streams: StreamLoad


def features(
    trace: Batches,
    found: Surveyed,
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
        reuse.add(touched_blocks(batch.lbn, batch.size_bytes, CACHE_BLOCK)[0])
        storage.take(batch)
        recorded.add(batch.latency_s)
    n = known.requests
    return TraceFeatures(
        requests=n,
        duration_s=known.duration_s,
        read_share=float(tally.reads.sum() / n),
        random_share=float(tally.random.sum() / n),
        sizes=dict(zip(known.sizes.tolist(), (known.size_counts / n).tolist(), strict=True)),
        octants=tally.bins.sum(axis=0).reshape(OCTANTS, -1).sum(axis=1) / n,
        bins=tally.bins.sum(axis=0) / n,
        drift=distance(*(tally.bins / tally.bins.sum(axis=1, keepdims=True))),
        gap_mean_s=known.duration_s / n,
        gap_variation=tally.gaps.variation(),
        gap_correlation=tally.gaps.correlation(),
        counts=tally.whole_windows(),
        rate=n / known.duration_s,
        bytes_s=float(known.sizes @ known.size_counts) / known.duration_s,
        reuse=reuse.curve(),
        recorded=recorded,
        storage=storage,
        streams=tally.streams(_known_names(trace.names, names or {})),
    )


def distance(a: FloatArray, b: FloatArray) -> float:
    """Total variation of two laws: the share of the requests that would have to move."""
    return float(np.abs(a - b).sum() / 2)


def _known_names(
    own: Mapping[str, tuple[str, ...]], original: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Names of the trace, or of the original where it has none."""
    nameless = ((), ("all",))
    return {
        what: original.get(what, ()) if own.get(what, ()) in nameless else own[what]
        for what in ("stream", "device")
    }


class _Gaps:
    """Moments of the gaps between arrivals, and of neighbouring gaps together."""

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
        self._sums += [
            len(new),
            new.sum(),
            (new**2).sum(),
            len(first),
            (first * second).sum(),
        ]
        self._last = times[-2:]

    def variation(self) -> float:
        n, total, squares = self._sums[:3]
        mean = total / n
        return float(np.sqrt(max(squares / n - mean**2, 0)) / mean)

    def correlation(self) -> float:
        """Of a gap with the next one, about the mean of all."""
        n, total, squares, pairs, products = self._sums[:5]
        mean = total / n
        spread = squares / n - mean**2
        return float((products / pairs - mean**2) / spread) if pairs and spread > 0 else 0.0


class _Tally:
    """What is counted on the way."""

    def __init__(self, known: Survey, space: Space) -> None:
        self._known, self._space = known, space
        keys = known.streams.astype(np.int64) << 32 | known.devices
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        k = len(keys)
        self.reads, self.random, self.number = (np.zeros(k, np.int64) for _ in range(3))
        self.bytes_ = np.zeros(k)
        self.spells = np.zeros((k, _SPELLS), dtype=np.int64)
        # By half of the requests.
        self.bins = np.zeros((2, BINS), dtype=np.int64)
        self.gaps = _Gaps()
        self._ends = np.full(k, -1, dtype=np.int64)
        self._windows = {
            w: np.zeros(int(known.duration_s / w) + 1, dtype=np.int64)
            for w in WINDOWS_S
            if 1 <= known.duration_s / w <= _MOST_WINDOWS
        }

    def add(self, batch: Columns) -> None:
        if not len(batch.time_s):
            return
        key = batch.stream.astype(np.int64) << 32 | batch.device
        stream = self._order[np.searchsorted(self._keys, key)]
        k = len(self._keys)
        self.number += np.bincount(stream, minlength=k)
        self.reads += np.bincount(stream, batch.op == 0, minlength=k).astype(np.int64)
        self.random += np.bincount(stream, self._is_random(stream, batch), k).astype(np.int64)
        self.bytes_ += np.bincount(stream, batch.size_bytes, minlength=k)
        left = max(0, self._known.requests // 2 - int(self.bins.sum()))
        for half, places in enumerate((batch.lbn[:left], batch.lbn[left:])):
            self.bins[half] += np.bincount(self._space.bins(places, BINS), minlength=BINS)
        self.gaps.add(batch.time_s)
        since = batch.time_s - self._known.first_s
        spell = np.minimum((since * (_SPELLS / self._known.duration_s)).astype(int), _SPELLS - 1)
        self.spells += np.bincount(stream * _SPELLS + spell, minlength=k * _SPELLS).reshape(k, -1)
        for width, counts in self._windows.items():
            place = np.minimum((since / width).astype(np.int64), len(counts) - 1)
            here = np.bincount(place - place[0])
            counts[place[0] : place[0] + len(here)] += here

    def _is_random(self, stream: IntArray, batch: Columns) -> IntArray:
        order = np.argsort(stream, kind="stable")
        s, lbn = stream[order], batch.lbn[order]
        end = lbn + batch.size_bytes[order] // BLOCK
        before = np.concatenate([[-1], end[:-1]])
        first = np.concatenate([[True], s[1:] != s[:-1]])
        before = np.where(first, self._ends[s], before)
        last = np.concatenate([first[1:], [True]])
        self._ends[s[last]] = end[last]
        found = np.empty(len(s), dtype=np.int64)
        found[order] = lbn != before
        return found

    def whole_windows(self) -> dict[float, IntArray]:
        """Counts without the last window, which is cut short."""
        return {width: counts[:-1] for width, counts in self._windows.items()}

    def streams(self, names: dict[str, tuple[str, ...]]) -> StreamLoad:
        known, n = self._known, np.maximum(self.number, 1)
        order = np.argsort(-self.number, kind="stable")
        mean = self.spells.mean(axis=1)
        fluctuation = self.spells.std(axis=1) / np.maximum(mean, 1e-300)
        places = zip(known.streams[order], known.devices[order], strict=True)
        return StreamLoad(
            tuple(
                f"{name_of(names, 'stream', int(s))} on {name_of(names, 'device', int(d))}"
                for s, d in places
            ),
            (self.number / self.number.sum())[order],
            (self.reads / n)[order],
            (self.random / n)[order],
            (self.bytes_ / n)[order],
            (self.number / known.duration_s)[order],
            fluctuation[order],
        )


_MOSTLY, _HALF = 0.9, 0.5


def _thread_type(read_share: float, random_share: float) -> str:
    """Name a thread by its operations and its places: a log is written in sequence."""
    reads, writes = read_share >= _MOSTLY, 1 - read_share >= _MOSTLY
    if random_share <= _HALF:
        return "scan" if reads else "log" if writes else "sequential mix"
    return "random reads" if reads else "random writes" if writes else "random mix"
