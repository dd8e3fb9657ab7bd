"""How a window's arrivals divide over its halves: laws counted at one depth of a cascade.

Few arrivals have a law for their number, more of them one an octave: quantiles of the share of the
first half.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fitting.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

# Splits of fewer arrivals than this have a law for their number, others one an octave.
_SMALL, _OCTAVES = 8, 40
_QUANTILES = 17
# Laws of a depth: number by number, and octaves by quantiles.
SMALL_SHAPE, LARGE_SHAPE = (_SMALL, _SMALL), (_OCTAVES, _QUANTILES)
_AT = np.linspace(0, 1, _QUANTILES)
# A law rests on so many splits at least, those of similar numbers at the same depth.
_LEAST_SPLITS = 32
# Splits by which the law of an octave is known well enough.
_MOST_SPLITS = 20_000


def split_laws(halves: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Windows twice as long, and laws of the first half's arrivals.

    Each split counts as its mirror image too.
    """
    n, found = np.empty(len(halves) // 2, dtype=halves.dtype), np.zeros(SMALL_SHAPE)
    octave, share = np.empty(len(n), dtype=np.int8), np.empty(len(n))
    held = _count_splits(halves, n, found, octave, share)
    small = np.ones(SMALL_SHAPE)
    small[0] = 0.0
    for number in range(1, _SMALL):
        chance = found[number, : number + 1] + found[number, number::-1]
        chance += 0 if chance.any() else 1
        small[number, : number + 1] = np.cumsum(chance) / chance.sum()
    return n, small, _share_laws(octave[:held], share[:held])


def _share_laws(octaves: NDArray[np.int8], shares: FloatArray) -> FloatArray:
    """Quantiles of the share of the first half, by octave of the arrivals that are divided."""
    large = np.full(LARGE_SHAPE, 0.5)
    present = np.flatnonzero(np.bincount(octaves))
    by_octave = {k: np.flatnonzero(octaves == k) for k in present}
    for k in present:
        pooled: list[IntArray] = []
        for near in present[np.argsort(np.abs(present - k), kind="stable")]:
            pooled.append(by_octave[near])
            if sum(map(len, pooled)) >= _LEAST_SPLITS:
                break
        chosen = np.concatenate(pooled) if len(pooled) > 1 else pooled[0]
        found = shares[chosen[:: -(-len(chosen) // _MOST_SPLITS)]]
        large[k] = np.quantile(np.concatenate([found, 1 - found]), _AT)
    if len(present):
        nearest = np.abs(np.arange(len(large))[:, None] - present).argmin(axis=1)
        large = large[present[nearest]]
    return large


@compiled
def drawn_split(
    n: int, depth: int, small: FloatArray, large: FloatArray, rng: np.random.Generator
) -> int:
    """Draw how many of n arrivals are in the first half of their window."""
    u = rng.random()
    if n < _SMALL:
        first = 0
        while first < n and u >= small[depth, n, first]:
            first += 1
        return first
    octave = _octave(n)
    at = int(u * (_QUANTILES - 1))
    low, high = large[depth, octave, at], large[depth, octave, at + 1]
    share = low + (u * (_QUANTILES - 1) - at) * (high - low)
    return min(n, int(n * share + rng.random()))


@compiled
def _count_splits(
    halves: IntArray,
    n: IntArray,
    found: FloatArray,
    octave: NDArray[np.int8],
    share: FloatArray,
) -> int:
    """Add halves up, and note how each sum splits: few arrivals by number, others one by one.

    Returns how many of them there are.
    """
    held = 0
    for i in range(len(n)):
        first, total = halves[2 * i], halves[2 * i] + halves[2 * i + 1]
        n[i] = total
        if total >= _SMALL:
            octave[held] = _octave(total)
            share[held] = first / total
            held += 1
        elif total > 0:
            found[total, first] += 1
    return held


@compiled
def _octave(n: int) -> int:
    """Octave of a number of arrivals from 8 up."""
    octave = 0
    while (n >> (octave + 4)) > 0:
        octave += 1
    return octave
