"""Reuse distances of block accesses, and hit ratios of LRU caches.

The reuse distance of an access is the number of distinct blocks accessed since the last access to
its block. A cache of c blocks that drops the least recently used one hits exactly the accesses
whose distance is below c, so one pass answers for all sizes (Mattson et al. 1970).

For traces of any length a sample of the blocks is taken, by a hash of the block number, so all
accesses to a block are in it or none. Among one block in 2^k, a reuse distance is 2^k times shorter
than among all. Where the sample has more or fewer accesses than its share, they are of hot blocks,
and count at distance 0 (SHARDS-adj, Waldspurger et al. 2015).

References
----------
R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger: Evaluation techniques for storage
hierarchies. IBM Systems Journal 9(2), 1970. doi:10.1147/sj.92.0078
C. A. Waldspurger, N. Park, A. Garthwaite, I. Ahmad: Efficient MRC construction with SHARDS.
USENIX Conference on File and Storage Technologies (FAST), 2015.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fitting.compiled import hashing, loops
from fitting.compiled.hashing import EMPTY, find, scramble_keys
from fitting.compiled.loops import ArrayLike, BoolArray, FloatArray, IntArray
from fitting.errors import FittingError

# Accesses of a sample.
_MOST_KEPT = 2**22
_SECTOR = 512
# Numba compiles a function anew for each constant of Python.
_MORE: Any = np.int64(1)
_LESS: Any = np.int64(-1)


def is_followed(blocks: IntArray, halvings: int) -> BoolArray:
    """Tell for each address whether it is still in the sample after so many halvings."""
    return np.asarray((scramble_keys(blocks) >> 40) & ((1 << halvings) - 1) == 0)


@dataclass(frozen=True)
class HitRatioCurve:
    """Hits of LRU caches by size, from one block in 2^``halvings``; all of them for 0."""

    accesses: int  # of a block
    blocks: int  # distinct blocks sampled
    hits: IntArray  # accesses whose reuse distance is the index
    halvings: int = 0

    @property
    def footprint(self) -> int:
        """Number of distinct blocks of the trace, estimated where blocks were sampled."""
        return self.blocks << self.halvings

    def hit_ratio(self, blocks: ArrayLike) -> FloatArray:
        """Return the hit ratio of caches of so many blocks; first accesses are misses."""
        reached = np.concatenate([[0], np.cumsum(self.hits)])
        size = -(-np.asarray(blocks, dtype=np.int64) // (1 << self.halvings))
        return np.asarray(reached[np.clip(size, 0, len(self.hits))] / self.accesses)

    def distances(self) -> FloatArray:
        """Return shares of accesses by log2 bin of reuse distance, then that of first accesses."""
        log2 = np.frexp(np.arange(len(self.hits)) * 2.0**self.halvings)[1]
        shares = np.bincount(log2, np.maximum(self.hits, 0), minlength=64) / self.accesses
        return np.append(shares, self.blocks / self.accesses)


def hit_ratio_curve(blocks: ArrayLike) -> HitRatioCurve:
    """Compute the LRU hit ratio curve of accesses to block numbers of 0 or more."""
    distances = reuse_distances(blocks)
    hits = np.bincount(distances[distances >= 0], minlength=1)
    return HitRatioCurve(len(distances), int((distances < 0).sum()), hits)


def reuse_distances(blocks: ArrayLike) -> IntArray:
    """Count distinct blocks since the last access to the same block; −1 for a first access."""
    accessed = np.ascontiguousarray(blocks, dtype=np.int64)
    if not len(accessed) or accessed.min() < 0:
        raise FittingError(
            "there is no block number, or a negative one: give at least one, each 0 or more"
        )
    found, tree = np.empty_like(accessed), np.zeros(len(accessed) + 1, dtype=np.int64)
    _fill_distances(accessed, *hashing.new_table(2 * len(accessed))[:2], tree, found)
    return found


def accessed_blocks(
    lbn: ArrayLike, size_bytes: ArrayLike, block_bytes: int = 4096
) -> tuple[IntArray, IntArray]:
    """List all blocks that requests access, in order, and the index of each one's request."""
    first = np.asarray(lbn, dtype=np.int64) * _SECTOR // block_bytes
    end = np.asarray(lbn, dtype=np.int64) * _SECTOR + np.asarray(size_bytes, dtype=np.int64)
    number = np.maximum((end - 1) // block_bytes - first + 1, 0)
    request = np.repeat(np.arange(len(first)), number)
    before = np.cumsum(number) - number
    return first[request] + np.arange(len(request)) - before[request], request


@loops.jit_uncounted
def _fill_distances(
    accessed: IntArray, keys: IntArray, last: IntArray, tree: IntArray, distances: IntArray
) -> None:
    """Fill in reuse distances by a Fenwick tree; ``keys`` and ``last`` are a hash table."""
    live = 0
    for i in range(len(accessed)):
        place = find(keys, accessed[i])
        if keys[place] == EMPTY:
            keys[place] = accessed[i]
            distances[i] = -1
            live += 1
        else:
            older, k = 0, last[place] + 1
            while k > 0:
                older += tree[k]
                k -= k & -k
            distances[i] = live - older
            _add_to_tree(tree, last[place] + 1, _LESS)
        last[place] = i
        _add_to_tree(tree, i + 1, _MORE)


@loops.jit_inner
def _add_to_tree(tree: IntArray, k: int, number: int) -> None:
    """Add a number at place k, from 1, of a Fenwick tree."""
    while k < len(tree):
        tree[k] += number
        k += k & -k


class ReuseSample:
    """Takes block accesses batch by batch, and keeps those of as many blocks as there is room."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most, self._halvings, self._accesses = most, 0, 0
        self._parts: list[IntArray] = []

    def add(self, blocks: IntArray) -> None:
        """Take the next accesses; past the limit, every other block is dropped."""
        self._accesses += len(blocks)
        halvings = self._halvings
        self._parts.append(blocks[is_followed(blocks, halvings)] if halvings else blocks.copy())
        while sum(map(len, self._parts)) > self._most:
            self._halvings += 1
            self._parts = [part[is_followed(part, self._halvings)] for part in self._parts]

    def curve(self) -> HitRatioCurve:
        """Return the hit ratio curve of the accesses. Raises `FittingError` if there are none."""
        if not sum(map(len, self._parts)):
            raise FittingError("no block was accessed: there is no hit ratio")
        found = hit_ratio_curve(np.concatenate(self._parts))
        due = self._accesses >> self._halvings
        found.hits[0] += due - found.accesses
        return replace(found, accesses=due, halvings=self._halvings)
