"""Hierarchical state diagrams over logical block numbers.

The space is cut in ``fan_out`` equal ranges, each of these in ``fan_out`` again, ``levels`` times.
Two consecutive requests make one transition, recorded at the coarsest level at which their states
part, and at the finest level where they share the state above it. With four states a level that
leaves at level l

    16·4^(l−1) + Σ_{i<l} 12·4^(i−1)

possible transitions: 16, 76, 316, 1276, 5116 at levels 1 to 5.

References
----------
C. Delimitrou, S. Sankar, K. Vaid, C. Kozyrakis: Decoupling datacenter studies from access to
large-scale applications: a modeling approach for storage workloads. IEEE International Symposium
on Workload Characterization (IISWC), 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled.loops import compiled, inlined, octave_part
from fitting.errors import FittingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    IntArray = NDArray[np.int64]


# Codes of pairs are int64 and share their bits with other features of a request.
_MOST_STATES = 4**12


class Pairs(NamedTuple):
    """Where transitions are recorded: level (from 1), and the states of that level they join."""

    level: IntArray
    source: IntArray
    target: IntArray


@dataclass(frozen=True)
class Diagram:
    """Ranges of logical block numbers, level under level.

    Parameters
    ----------
    levels : int
        From 1 up.
    fan_out : int
        States that each state is cut in, from 2 up; published: 4.
    first_lbn : int
        Start of the space, a number of 512-byte blocks.
    blocks : int
        Length of the space in blocks; the last state is shorter where it does not divide evenly.
    """

    levels: int
    fan_out: int = 4
    first_lbn: int = 0
    blocks: int = 1

    def __post_init__(self) -> None:
        if self.levels < 1 or self.fan_out < 2 or self.blocks < 1:
            raise FittingError(
                f"a diagram of {self.levels} levels of {self.fan_out} states over {self.blocks} "
                "blocks: give at least one level, two states and one block"
            )
        if self.fan_out**self.levels > _MOST_STATES:
            raise FittingError(
                f"{self.levels} levels of {self.fan_out} states are more than {_MOST_STATES} "
                "states: give fewer levels"
            )

    @classmethod
    def over(cls, first_lbn: int, end_lbn: int, levels: int, fan_out: int = 4) -> Diagram:
        """Divide a space evenly, its end moved up to the next block that allows it."""
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
        k, levels = self.fan_out, self.levels
        return int(k * k * k ** (levels - 1) + sum(k * (k - 1) * k**i for i in range(levels - 1)))

    @property
    def pair_codes(self) -> int:
        """Codes of pairs are below this."""
        return int(sum(self.fan_out**2 * self.fan_out**i for i in range(self.levels)))

    def state(self, lbn: ArrayLike) -> IntArray:
        """Finest states of logical block numbers; those outside belong to the state at the end."""
        offset = np.asarray(lbn, dtype=np.int64) - self.first_lbn
        return np.clip(offset // self.state_blocks, 0, self.states - 1)

    def pair_code(self, before: ArrayLike, after: ArrayLike) -> IntArray:
        """Code of the transition between finest states."""
        a, b = np.broadcast_arrays(np.asarray(before, np.int64), np.asarray(after, np.int64))
        flat = [
            pair_code(int(x), int(y), self.levels, self.fan_out)[0]
            for x, y in zip(a.flat, b.flat, strict=True)
        ]
        return np.array(flat, dtype=np.int64).reshape(a.shape)

    def pairs(self, codes: ArrayLike) -> Pairs:
        """Level and states of pair codes."""
        code, k = np.asarray(codes, dtype=np.int64), self.fan_out
        first = np.array([k * k * (k**i - 1) // (k - 1) for i in range(self.levels + 1)])
        level = np.searchsorted(first, code, side="right").astype(np.int64)
        parent, digits = np.divmod(code - first[level - 1], k * k)
        return Pairs(level, parent * k + digits // k, parent * k + digits % k)

    def coarser(self) -> Diagram:
        """Same space with one level less."""
        return Diagram(self.levels - 1, self.fan_out, self.first_lbn, self.blocks)

    def coarser_codes(self, codes: ArrayLike) -> IntArray:
        """Codes that the pairs have one level up: what parted at the finest level stays within."""
        code, k = np.array(codes, dtype=np.int64), self.fan_out
        level, source, _ = self.pairs(code)
        finest = level == self.levels
        within = source[finest] // k
        first = k * k * (k ** (self.levels - 2) - 1) // (k - 1)
        code[finest] = first + within // k * k * k + within % k * (k + 1)
        return code


@inlined
def pair_code(before: int, after: int, levels: int, fan_out: int) -> tuple[int, int]:
    """Code and level of one transition: pairs of a level follow those of the level above it."""
    if fan_out == 4:
        return _pair_code_of_four(before, after, levels)
    a, b, level = before, after, levels
    while level > 1 and a // fan_out != b // fan_out:
        a //= fan_out
        b //= fan_out
        level -= 1
    square = fan_out * fan_out
    first = square * (fan_out ** (level - 1) - 1) // (fan_out - 1)
    return first + (a // fan_out) * square + (a % fan_out) * fan_out + b % fan_out, level


@inlined
def _pair_code_of_four(before: int, after: int, levels: int) -> tuple[int, int]:
    """Do the same by bits, several times as fast: the first digit that differs says the level."""
    digit = octave_part((before ^ after) | 1, 0) & ~1
    level = levels - digit // 2
    a, b = before >> digit, after >> digit
    first = 16 * ((1 << 2 * (level - 1)) - 1) // 3
    return first + ((a >> 2) << 4) + ((a & 3) << 2) + (b & 3), level


# Kinds of requests: reads and others, each in three sizes.
#
# What a request does depends on the one before it: large reads go on with large reads. The chain of
# a state diagram therefore remembers, beside its state, the kind of the last request; published
# counts by pair of states are sums over kinds.


KINDS = 6
# Pieces that a request touches on average, at most, and 512-byte blocks of the least piece.
_MOST_PIECES = 16
_LEAST_PIECE = 8


def piece_blocks(mean_size_bytes: float) -> int:
    """Length in 512-byte blocks of the pieces that sizes are counted in: a power of two."""
    piece = _LEAST_PIECE
    while mean_size_bytes / (512 * piece) > _MOST_PIECES:
        piece *= 2
    return piece


@compiled
def kind(op: int, size_bytes: int, piece: int) -> int:
    """Kind of a request: of under two, under eight, or more pieces."""
    pieces = size_bytes // (512 * piece)
    return 3 * min(op, 1) + (0 if pieces < 2 else 1 if pieces < 8 else 2)
