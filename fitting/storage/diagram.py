"""Hierarchical state diagrams over logical block numbers.

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

from fitting.compiled.loops import ArrayLike, IntArray, jit, jit_inline, log2_bin
from fitting.errors import FittingError

# Kinds of requests: reads and others, each in three sizes. What a request does depends on the one
# before it: large reads follow large reads. So the chain of a state diagram has the kind of the
# last request beside its state; published counts by pair of states are sums over kinds.
KINDS = 6
# Codes of pairs are int64 and share their bits with other features of a request.
_MOST_STATES = 4**12
# Pieces that a request accesses on average, at most, and 512-byte blocks of the smallest piece.
_MOST_PIECES = 16
_LEAST_PIECE = 8


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


@jit_inline
def pair_code(before: int, after: int, levels: int, fan_out: int) -> tuple[int, int]:
    """Return the code of a transition between finest states, and the level where they part."""
    if fan_out == 4:
        return _pair_code_fan_out_4(before, after, levels)
    a, b, level = before, after, levels
    while level > 1 and a // fan_out != b // fan_out:
        a //= fan_out
        b //= fan_out
        level -= 1
    square = fan_out * fan_out
    first = square * (fan_out ** (level - 1) - 1) // (fan_out - 1)
    return first + (a // fan_out) * square + (a % fan_out) * fan_out + b % fan_out, level


@jit_inline
def _pair_code_fan_out_4(before: int, after: int, levels: int) -> tuple[int, int]:
    """Return the same as `pair_code` for a fan-out of 4, several times as fast by bits."""
    digit = log2_bin((before ^ after) | 1, 0) & ~1
    level = levels - digit // 2
    a, b = before >> digit, after >> digit
    first = 16 * ((1 << 2 * (level - 1)) - 1) // 3
    return first + ((a >> 2) << 4) + ((a & 3) << 2) + (b & 3), level


def piece_blocks(mean_size_bytes: float) -> int:
    """Choose the length (512-byte blocks) of pieces by the mean request size: a power of two."""
    piece = _LEAST_PIECE
    while mean_size_bytes / (512 * piece) > _MOST_PIECES:
        piece *= 2
    return piece


@jit
def request_kind(op: int, size_bytes: int, piece: int) -> int:
    """Return the kind of a request, 0 to 5: read or not, times below 2, below 8, or more pieces."""
    pieces = size_bytes // (512 * piece)
    return 3 * min(op, 1) + (0 if pieces < 2 else 1 if pieces < 8 else 2)
