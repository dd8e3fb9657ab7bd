"""First pass over a block trace, and the hierarchical state diagram over its addresses.

The second pass needs the extent, streams, request sizes and alignment before it counts: the space
that the states divide, the sizes that are common enough for a class of their own.

The space is divided into ``fan_out`` equal ranges, each of these into ``fan_out`` again, ``levels``
times. Two consecutive requests make one transition. It is recorded at the coarsest level at which
their states part, or at the finest level where both are in one state. With four states a level
that leaves at level l

    16·4^(l−1) + Σ_{i<l} 12·4^(i−1)

possible transitions: 16, 76, 316, 1276, 5116 at levels 1 to 5.

References
----------
C. Delimitrou, S. Sankar, K. Vaid, C. Kozyrakis: Decoupling datacenter studies from access to
large-scale applications: a modeling approach for storage workloads. IEEE International Symposium
on Workload Characterization (IISWC), 2011.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fitting.compiled import hashing, loops
from fitting.compiled.loops import Array, ArrayLike, IntArray
from fitting.errors import FittingError

BLOCK = 512
RESIDUES = 256
_STREAM_SHIFT, _PART = 31, 2**14
# So large a share of requests keeps the alignment.
_ALIGNED_SHARE = 0.9
# Kinds of requests: reads and others, each in three sizes. What a request does depends on the one
# before it: large reads follow large reads. So the chain of a state diagram has the kind of the
# last request beside its state; published counts by pair of states are sums over kinds.
KINDS = 6
# Codes of pairs are int64 and share their bits with other features of a request.
_MOST_STATES = 4**12
# Pieces that a request accesses on average, at most, and 512-byte blocks of the smallest piece.
_MOST_PIECES, _LEAST_PIECE = 16, 8


class Pairs(NamedTuple):
    """Level of each transition, from 1, and the states of that level that it joins."""

    level: IntArray
    source: IntArray
    target: IntArray


@dataclass(frozen=True)
class Diagram:
    """Ranges of logical block numbers, level under level; lengths are in 512-byte blocks."""

    levels: int
    fan_out: int = 4  # states that each state is divided into; published: 4
    first_lbn: int = 0
    blocks: int = 1  # of the space; the last state is shorter where it does not divide evenly

    def __post_init__(self) -> None:
        if self.levels < 1 or self.fan_out < 2 or self.blocks < 1:
            raise FittingError(
                f"a diagram of {self.levels} levels of {self.fan_out} states over {self.blocks} "
                "blocks: give at least one level, two states and one block"
            )
        if self.states > _MOST_STATES:
            raise FittingError(
                f"{self.levels} levels of {self.fan_out} states are more than {_MOST_STATES} "
                "states: give fewer levels"
            )

    @classmethod
    def over(cls, first_lbn: int, end_lbn: int, levels: int, fan_out: int = 4) -> Diagram:
        """Divide a space into states of equal length; its end moves up to make them equal."""
        states = fan_out**levels
        return cls(levels, fan_out, first_lbn, -(-max(1, end_lbn - first_lbn) // states) * states)

    @property
    def states(self) -> int:
        """Number of states at the finest level."""
        return int(self.fan_out**self.levels)

    @property
    def state_blocks(self) -> int:
        """Length of a finest state in blocks."""
        return -(-self.blocks // self.states)

    @property
    def transitions(self) -> int:
        """Number of pairs of states that the diagram can record."""
        k = self.fan_out
        return int(k ** (self.levels + 1) + k**self.levels - k)

    @property
    def pair_codes(self) -> int:
        """Number of pair codes: all are below it."""
        return _first_code(self.levels + 1, self.fan_out)

    def pairs(self, codes: ArrayLike) -> Pairs:
        """Decode pair codes to levels and pairs of states."""
        code, k = np.asarray(codes, dtype=np.int64), self.fan_out
        first = np.array([_first_code(level, k) for level in range(1, self.levels + 2)])
        level = np.searchsorted(first, code, side="right").astype(np.int64)
        parent, digits = np.divmod(code - first[level - 1], k * k)
        return Pairs(level, parent * k + digits // k, parent * k + digits % k)

    def coarser(self) -> Diagram:
        """Make the diagram of the same space with one level less."""
        return replace(self, levels=self.levels - 1)

    def coarser_codes(self, codes: ArrayLike) -> IntArray:
        """Convert pair codes to those of the diagram with one level less."""
        code, k = np.array(codes, dtype=np.int64), self.fan_out
        level, source, _ = self.pairs(code)
        finest = level == self.levels
        within = source[finest] // k
        first = _first_code(self.levels - 1, k)
        code[finest] = first + within // k * k * k + within % k * (k + 1)
        return code


def _first_code(level: int, fan_out: int) -> int:
    """Return the lowest pair code of a level; those of coarser levels are lower."""
    return int(fan_out**2 * (fan_out ** (level - 1) - 1) // (fan_out - 1))


@loops.jit_uncounted
def pair_code(before: int, after: int, levels: int, fan_out: int) -> tuple[int, int]:
    """Return the code of a transition between finest states, and the level where they part."""
    if fan_out == 4:
        # The same by bits, several times as fast.
        digit = loops.log2_bin((before ^ after) | 1, 0) & ~1
        level = levels - digit // 2
        a, b = before >> digit, after >> digit
        first = 16 * ((1 << 2 * (level - 1)) - 1) // 3
        return first + ((a >> 2) << 4) + ((a & 3) << 2) + (b & 3), level
    a, b, level, square, first = before, after, levels, fan_out * fan_out, 0
    while level > 1 and a // fan_out != b // fan_out:
        a //= fan_out
        b //= fan_out
        level -= 1
    for _ in range(1, level):
        first = first * fan_out + square
    return first + (a // fan_out) * square + (a % fan_out) * fan_out + b % fan_out, level


def piece_blocks(mean_size_bytes: float) -> int:
    """Choose the length (512-byte blocks) of pieces by the mean request size: a power of two."""
    piece = _LEAST_PIECE
    while mean_size_bytes / (512 * piece) > _MOST_PIECES:
        piece *= 2
    return piece


def request_kind(op: ArrayLike, size_bytes: ArrayLike, piece: int) -> IntArray:
    """Return the kind of a request, 0 to 5: read or not, times below 2, below 8, or more pieces."""
    return 3 * np.minimum(op, 1) + np.digitize(np.floor_divide(size_bytes, 512 * piece), (2, 8))


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


class Surveyor:
    """Takes a trace batch by batch, sorted by arrival."""

    def __init__(self) -> None:
        self._requests, self._first_s, self._last_s, self._tick_s = 0, np.nan, -np.inf, np.inf
        self._low, self._high = np.iinfo(np.int64).max, -1
        # Requests by their block modulo `RESIDUES`, by stream and by size.
        self._residues = np.zeros(RESIDUES, np.int64)
        self._streams, self._sizes = hashing.new_table(64), hashing.new_table(1024)

    def add(self, *columns: Array) -> None:
        """Survey the next requests: time (s), stream, device, block and size (bytes) of each."""
        # What is computed of a part stays in the processor's cache.
        for start in range(0, len(columns[0]), _PART):
            self._add_part(*(column[start : start + _PART] for column in columns))

    def _add_part(
        self, time_s: Array, stream: Array, device: Array, lbn: Array, size_bytes: Array
    ) -> None:
        gap = np.diff(time_s, prepend=self._last_s)
        least, low = gap.min(), lbn.min()
        is_negative = min(stream.min(), device.min(), low, size_bytes.min()) < 0
        # A time that is missing makes the least of them missing.
        if is_negative or not least >= 0 or time_s[-1] == np.inf:
            wrong = ~(gap >= 0) | (time_s == np.inf) | ((stream | device | lbn | size_bytes) < 0)
            row = int(wrong.argmax())
            raise FittingError(
                f"request {self._requests + row}: it cannot be (time_s {time_s[row]!r} before the "
                "one ahead of it or missing, or a negative stream, device, address or size): sort "
                "the trace by time_s, and remove such requests"
            )
        if not self._requests:
            self._first_s = float(time_s[0])
        self._requests += len(time_s)
        self._last_s = float(time_s[-1])
        positive = gap if least > 0 else gap[gap > 0]
        self._tick_s = min(self._tick_s, float(positive.min(initial=np.inf)))
        self._low = min(self._low, int(low))
        end = lbn + np.maximum(size_bytes // BLOCK, 1)
        self._high = max(self._high, int(end.max()))
        self._residues += np.bincount(lbn & (RESIDUES - 1), minlength=RESIDUES)
        # Two int32 in one number.
        key = (stream.astype(np.int64) << _STREAM_SHIFT) | device
        self._streams = hashing.count_keys(self._streams, key)
        self._sizes = hashing.count_keys(self._sizes, size_bytes)

    def survey(self) -> Survey:
        """Return the survey. Raises `FittingError` for fewer than two requests or one instant."""
        n, first, last = self._requests, self._first_s, self._last_s
        if n < 2 or last <= first:
            raise FittingError(
                f"{n} request{'s' * (n != 1)} within {max(0.0, last - first) if n else 0.0:g} s "
                "are too few for a model: give a trace of at least two requests at different times"
            )
        keys, counts = hashing.sorted_items(self._streams)
        sizes, size_counts = hashing.sorted_items(self._sizes)
        order = np.lexsort((sizes, -size_counts))
        alignment, offset = alignment_of(self._residues)
        streams, devices = keys >> _STREAM_SHIFT, keys & ((1 << _STREAM_SHIFT) - 1)
        extent = n, first, last, self._low, self._high
        by_size = sizes[order], size_counts[order]
        return Survey(*extent, streams, devices, counts, *by_size, alignment, offset, self._tick_s)


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
