"""First pass over a block trace: its extent, streams, request sizes and alignment.

The second pass needs them before it counts: the space that the states divide, the sizes that are
common enough for a class of their own, the length of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fitting.compiled.hashing import EMPTY, HashTable, ensure_room, find, new_table, sorted_items
from fitting.compiled.loops import Array, ArrayLike, FloatArray, IntArray, jit_uncounted
from fitting.errors import FittingError
from fitting.storage.diagram import piece_blocks

BLOCK = 512
RESIDUES = 256
_STREAM_SHIFT = 31
# So large a share of requests keeps the alignment.
_ALIGNED_SHARE = 0.9


@dataclass(frozen=True)
class SizeClasses:
    """Request sizes by class: common sizes alone, the others together by power of two."""

    sizes: tuple[IntArray, ...]  # by class, the sizes (bytes) in it
    counts: tuple[IntArray, ...]  # number of requests of each

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True)
class Survey:
    """Result of a first pass."""

    requests: int
    first_s: float  # arrival of the first request
    last_s: float
    low_lbn: int  # first block accessed
    high_lbn: int  # block after the last one accessed
    streams: IntArray  # streams of the trace, each a pair of stream and device, in rising order
    devices: IntArray
    stream_counts: IntArray  # requests by stream
    sizes: IntArray  # distinct request sizes (bytes), most frequent first
    size_counts: IntArray
    alignment: int  # requests start at the offset (blocks) modulo the alignment (blocks)
    alignment_offset: int
    tick_s: float  # smallest positive inter-arrival time: the resolution of the clock

    @property
    def duration_s(self) -> float:
        """Time (s) from the first arrival to the last, and one mean gap more."""
        return (self.last_s - self.first_s) * self.requests / (self.requests - 1)

    @property
    def device_of_stream(self) -> IntArray:
        """Index of the device of every stream, from 0."""
        return np.unique(self.devices, return_inverse=True)[1].astype(np.int64)

    @property
    def piece(self) -> int:
        """Length (blocks) of the pieces that sizes and reuse are counted in."""
        return piece_blocks(float(self.sizes @ self.size_counts) / self.requests)

    def size_classes(self, alone: int = 12) -> SizeClasses:
        """Put the ``alone`` most frequent sizes in classes of their own, others by power of two."""
        members = list(np.arange(min(alone, len(self.sizes)))[:, None])
        rest = np.arange(len(members), len(self.sizes))
        power = np.frexp(np.maximum(self.sizes[rest], 1).astype(np.float64))[1]
        members += [rest[power == p] for p in np.unique(power)]
        return SizeClasses(
            tuple(self.sizes[m] for m in members), tuple(self.size_counts[m] for m in members)
        )


class _Extent(NamedTuple):
    times: FloatArray  # first, latest, tick
    numbers: IntArray  # requests, lowest block, block after the last
    residues: IntArray  # requests by their block modulo `RESIDUES`


class Surveyor:
    """Takes a trace batch by batch, sorted by arrival."""

    def __init__(self) -> None:
        self._extent = _Extent(
            np.array([np.nan, -np.inf, np.inf]),
            np.array([0, np.iinfo(np.int64).max, -1], dtype=np.int64),
            np.zeros(RESIDUES, np.int64),
        )
        # Number of requests by stream and by size.
        self._streams, self._sizes = new_table(64), new_table(1024)

    def add(self, *columns: Array) -> None:
        """Survey the next requests: time (s), stream, device, block and size (bytes) of each.

        Raises `FittingError` for one before the one ahead of it.
        """
        start = 0
        while start < len(columns[0]):
            self._streams, self._sizes = ensure_room(self._streams, 1), ensure_room(self._sizes, 1)
            start = _survey_requests(start, columns, self._extent, self._streams, self._sizes)
            if start < 0:
                request, time = int(self._extent.numbers[0]), columns[0][-start - 1]
                raise FittingError(
                    f"request {request}: it cannot be (time_s {time!r} before the "
                    "one ahead of it or missing, or a negative stream, device, "
                    "address or size): sort the trace by time_s, and remove such "
                    "requests"
                )

    def survey(self) -> Survey:
        """Return the survey. Raises `FittingError` for fewer than two requests or one instant."""
        first, last, tick = self._extent.times.tolist()
        n, low, high = self._extent.numbers.tolist()
        if n < 2 or last <= first:
            raise FittingError(
                f"{n} request{'s' * (n != 1)} within "
                f"{max(0.0, last - first) if n else 0.0:g} s are too few for a "
                "model: give a trace of at least two requests at different times"
            )
        keys, counts = sorted_items(self._streams)
        sizes, size_counts = sorted_items(self._sizes)
        order = np.lexsort((sizes, -size_counts))
        alignment, offset = alignment_of(self._extent.residues)
        streams, devices = keys >> _STREAM_SHIFT, keys & ((1 << _STREAM_SHIFT) - 1)
        extent = n, first, last, low, high
        by_size = sizes[order], size_counts[order]
        return Survey(*extent, streams, devices, counts, *by_size, alignment, offset, tick)


def alignment_of(residues: ArrayLike) -> tuple[int, int]:
    """Find the largest alignment (blocks) that nine requests in ten keep, and its offset."""
    counts = np.asarray(residues)
    alignment = len(counts)
    while alignment > 1:
        folded = counts.reshape(-1, alignment).sum(axis=0)
        if folded.max() >= _ALIGNED_SHARE * counts.sum():
            return alignment, int(folded.argmax())
        alignment //= 2
    return 1, 0


@jit_uncounted
def _survey_requests(
    start: int, columns: tuple[Any, ...], extent: _Extent, streams: HashTable, sizes: HashTable
) -> int:
    """Survey requests until a table is half full; return where to go on, −1 − row for a bad one."""
    # One loop with its sums in registers: several loops would read memory several times.
    time_s, stream, device, lbn, size_bytes = columns
    first, latest, tick = extent.times[0], extent.times[1], extent.times[2]
    requests, low, high = extent.numbers[0], extent.numbers[1], extent.numbers[2]
    at, bad = start, False
    most_streams, most_sizes = len(streams.keys) // 2, len(sizes.keys) // 2
    while at < len(time_s) and streams.used[0] < most_streams and sizes.used[0] < most_sizes:
        t, a, size = time_s[at], lbn[at], size_bytes[at]
        bad = not latest <= t < np.inf or (stream[at] | device[at] | a | size) < 0
        if bad:
            break
        first = t if requests == 0 else first
        gap = t - latest
        tick = gap if 0 < gap < tick else tick
        latest = t
        requests += 1
        low = min(low, a)
        high = max(high, a + max(1, size // BLOCK))
        extent.residues[a & (RESIDUES - 1)] += 1
        # Two int32 in one number.
        key = (np.int64(stream[at]) << _STREAM_SHIFT) | np.int64(device[at])
        _count_key(streams, int(key))
        _count_key(sizes, size)
        at += 1
    extent.times[0], extent.times[1], extent.times[2] = first, latest, tick
    extent.numbers[0], extent.numbers[1], extent.numbers[2] = requests, low, high
    return -1 - at if bad else at


@jit_uncounted
def _count_key(table: HashTable, key: int) -> None:
    """Add one to the count of a key in a hash table."""
    slot = find(table.keys, key)
    table.used[0] += table.keys[slot] == EMPTY
    table.keys[slot] = key
    table.values[slot] += 1
