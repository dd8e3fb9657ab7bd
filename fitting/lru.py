"""Reuse distances and the hit ratio of LRU caches of every size at once.

The reuse distance of an access is the number of distinct blocks touched since the last access to
its block. A cache of c blocks that drops the least recently used one hits exactly the accesses
whose distance is below c, so one pass answers for all sizes.

References
----------
R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger: Evaluation techniques for storage
hierarchies. IBM Systems Journal 9(2), 1970. doi:10.1147/sj.92.0078
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fitting.compiled import compiled
from fitting.errors import FittingError
from fitting.hash_table import EMPTY, find, new_keys

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

_SECTOR = 512


@dataclass(frozen=True)
class HitRatioCurve:
    """Hits of LRU caches by size.

    Parameters
    ----------
    accesses : int
        Accesses of a block.
    footprint : int
        Distinct blocks.
    hits : array
        Accesses whose reuse distance is the index.
    """

    accesses: int
    footprint: int
    hits: IntArray

    def hit_ratio(self, blocks: ArrayLike) -> FloatArray:
        """Hit ratio of caches of so many blocks, cold misses included."""
        reached = np.concatenate([[0], np.cumsum(self.hits)])
        size = np.clip(np.asarray(blocks, dtype=np.int64), 0, len(self.hits))
        return np.asarray(reached[size] / self.accesses)


def hit_ratio_curve(blocks: ArrayLike) -> HitRatioCurve:
    """Hit ratio curve of a sequence of block numbers of 0 or more."""
    accessed = np.ascontiguousarray(blocks, dtype=np.int64)
    distances = reuse_distances(accessed)
    hits = np.bincount(distances[distances >= 0], minlength=1)
    return HitRatioCurve(len(accessed), int((distances < 0).sum()), hits)


def reuse_distances(blocks: ArrayLike) -> IntArray:
    """Distinct blocks touched since the last access to each block; −1 for a first access.

    Raises
    ------
    FittingError
        For no accesses or a negative block number.
    """
    accessed = np.ascontiguousarray(blocks, dtype=np.int64)
    if not len(accessed) or accessed.min() < 0:
        raise FittingError("give at least one block number, each 0 or more")
    distances = np.empty(len(accessed), dtype=np.int64)
    _distances(accessed, new_keys(2 * len(accessed)), distances)
    return distances


def touched_blocks(
    lbn: ArrayLike, size_bytes: ArrayLike, block_bytes: int = 4096
) -> tuple[IntArray, IntArray]:
    """List the blocks that requests touch, in order, and the request that touches each.

    A request that does not start on a block touches one block more than its size holds.
    """
    first = np.asarray(lbn, dtype=np.int64) * _SECTOR // block_bytes
    end = np.asarray(lbn, dtype=np.int64) * _SECTOR + np.asarray(size_bytes, dtype=np.int64)
    number = np.maximum((end - 1) // block_bytes - first + 1, 0)
    request = np.repeat(np.arange(len(first)), number)
    before = np.cumsum(number) - number
    return first[request] + np.arange(len(request)) - before[request], request


@compiled
def _distances(accessed: IntArray, keys: IntArray, distances: IntArray) -> None:
    """Count, in a Fenwick tree over accesses, the last accesses after a block's last one."""
    n = len(accessed)
    last = np.zeros(len(keys), dtype=np.int64)
    tree = np.zeros(n + 1, dtype=np.int64)
    live = 0
    for i in range(n):
        place = find(keys, accessed[i])
        if keys[place] == EMPTY:
            keys[place] = accessed[i]
            distances[i] = -1
            live += 1
        else:
            at = last[place] + 1
            older = 0
            k = at
            while k > 0:
                older += tree[k]
                k -= k & -k
            distances[i] = live - older
            k = at
            while k <= n:
                tree[k] -= 1
                k += k & -k
        last[place] = i
        k = i + 1
        while k <= n:
            tree[k] += 1
            k += k & -k
