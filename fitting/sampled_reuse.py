"""Hit ratio curves of traces of any length: reuse distances of a sample of the blocks.

A block is in the sample by a hash of its number, so all of its accesses are or none. Among one
block in 2^k, a reuse distance is 2^k times shorter than among all. Where the sample has more or
fewer accesses than its share, they are of hot blocks, and count at distance 0 (SHARDS-adj).

References
----------
C. A. Waldspurger, N. Park, A. Garthwaite, I. Ahmad: Efficient MRC construction with SHARDS. USENIX
Conference on File and Storage Technologies (FAST), 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fitting.compiled import compiled
from fitting.errors import FittingError
from fitting.lru import HitRatioCurve, hit_ratio_curve
from fitting.reuse import followed

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

_MOST_KEPT = 2**22


@dataclass(frozen=True)
class SampledCurve:
    """Hit ratio of LRU caches by size, from one block in 2^``halvings``; all of them for 0.

    Parameters
    ----------
    curve : HitRatioCurve
        Of the sampled blocks.
    halvings : int
    """

    curve: HitRatioCurve
    halvings: int

    @property
    def footprint(self) -> int:
        """Distinct blocks of the trace, estimated where blocks were sampled."""
        return self.curve.footprint << self.halvings

    def hit_ratio(self, blocks: ArrayLike) -> FloatArray:
        """Hit ratio of caches of so many blocks, cold misses included."""
        size = np.asarray(blocks, dtype=np.int64)
        return self.curve.hit_ratio(-(-size // (1 << self.halvings)))

    def distances(self) -> FloatArray:
        """Shares of the accesses by octave of the reuse distance, and of first accesses last."""
        distance = np.arange(len(self.curve.hits)) * 2.0**self.halvings
        octave = np.frexp(distance)[1]
        hits = np.maximum(self.curve.hits, 0)
        shares = np.bincount(octave, hits, minlength=64) / self.curve.accesses
        return np.append(shares, self.curve.footprint / self.curve.accesses)


class ReuseSample:
    """Takes block accesses batch by batch, and keeps those of as many blocks as there is room."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most, self._halvings, self._kept, self._accesses = most, 0, 0, 0
        self._parts: list[IntArray] = []

    def add(self, blocks: IntArray) -> None:
        """Take the next accesses."""
        self._accesses += len(blocks)
        self._take(blocks)
        while self._kept > self._most:
            self._halvings += 1
            parts, self._parts, self._kept = self._parts, [], 0
            for part in parts:
                self._take(part)

    def _take(self, blocks: IntArray) -> None:
        part = blocks[_in_sample(blocks, self._halvings)] if self._halvings else blocks.copy()
        self._parts.append(part)
        self._kept += len(part)

    def curve(self) -> SampledCurve:
        """Hit ratio curve of what was taken. Raises `FittingError` where that is nothing."""
        if not self._kept:
            raise FittingError("no block was accessed: there is no hit ratio")
        found = hit_ratio_curve(np.concatenate(self._parts))
        due = self._accesses >> self._halvings
        hits = found.hits.copy()
        hits[0] += due - found.accesses
        return SampledCurve(replace(found, accesses=due, hits=hits), self._halvings)


@compiled
def _in_sample(blocks: IntArray, halvings: int) -> NDArray[np.bool_]:
    chosen = np.empty(len(blocks), dtype=np.bool_)
    for i in range(len(blocks)):
        chosen[i] = followed(blocks[i], halvings)
    return chosen
