"""Gaps between arrivals that follow each other: a Markov chain over eighths of their law."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fitting.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

CLASSES = 8


def chain_of(gaps_s: FloatArray) -> FloatArray:
    """Probability, by eighth of a gap, that the next one is in each eighth or below it."""
    counts = np.full((CLASSES, CLASSES), 1e-9)
    n = len(gaps_s)
    # Equal gaps are in no order.
    order = np.random.default_rng(0).permutation(n)
    order = order[np.argsort(gaps_s[order], kind="stable")]
    eighth = np.empty(n, dtype=np.int64)
    eighth[order] = np.arange(n) * CLASSES // n
    np.add.at(counts, (eighth[:-1], eighth[1:]), 1.0)
    return np.asarray(np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True))


def chained(chain: FloatArray, number: int, rng: np.random.Generator) -> FloatArray:
    """Probabilities, of the law of all gaps, that follow each other as the gaps did."""
    at = rng.random(number)
    _follow(chain, rng.random(number), at)
    return at


@compiled
def _follow(chain: FloatArray, chance: FloatArray, at: FloatArray) -> None:
    """Move probabilities into the eighth that the one before leads to."""
    if not len(at):
        return
    eighth = int(chance[0] * CLASSES)
    for k in range(len(at)):
        if k:
            row, eighth = chain[eighth], 0
            while eighth < CLASSES - 1 and chance[k] >= row[eighth]:
                eighth += 1
        at[k] = (eighth + at[k]) / CLASSES
