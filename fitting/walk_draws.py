"""Draws of a walk: stratified shares, gaps by their laws, and places among cumulated weights.

A share is drawn from a batch of n: one from each of n equal parts of the unit interval, in random
order. Where n is the number of times that something was counted, a batch deals out exactly what was
counted; so a walk as long as its trace is in every state about as often as the trace was, far more
closely than by independent draws, while what follows what stays a matter of chance.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled import inlined, uncounted
from fitting.hash_table import hashed
from fitting.interarrival import CONSTANT, EMPIRICAL, EXPONENTIAL, GAMMA, LOGNORMAL, NORMAL
from fitting.random_numbers import standard_exponential, standard_gamma, standard_normal, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.random_numbers import Randomness

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

_NORMAL_FROM = 100.0


class Batches(NamedTuple):
    """Batches of draws, one an element: draws made, length, its bits, key of the order."""

    made: IntArray
    length: IntArray
    bits: IntArray
    key: IntArray


class Features(NamedTuple):
    """Sizes by class, and laws of gaps by transition."""

    size_start: IntArray
    size: IntArray
    size_share: FloatArray
    law: NDArray[np.int8]
    mean: FloatArray
    shape: FloatArray
    quantiles: FloatArray
    knots: FloatArray
    pace: FloatArray


def new_batches(length: FloatArray, rng: np.random.Generator) -> Batches:
    """Make batches of about such lengths; those of one are independent draws."""
    whole = np.maximum(np.round(length), 1).astype(np.int64)
    bits = np.ceil(np.log2(whole)).astype(np.int64)
    return Batches(np.zeros_like(whole), whole, bits, rng.integers(2**62, size=len(whole)))


@uncounted
def _permuted(k: int, bits: int, key: int) -> int:
    """Place of k in an order of 0 … 2^bits − 1 that a key chooses."""
    mask = (1 << bits) - 1
    half = (bits + 1) >> 1
    x = (k + key) & mask
    x = (x * ((key >> 20) | 1)) & mask
    x ^= x >> half
    x = (x * 0x5851F42D4C957F2D) & mask
    x ^= x >> half
    x = (x * 0x14057B7EF767814F + (key >> 40)) & mask
    return x ^ (x >> half)


@inlined
def draw(b: Batches, at: int, rng: Randomness) -> float:
    """Draw from [0, 1): the next of a batch."""
    n = b.length[at]
    if n == 1:
        return uniform(rng)
    k = b.made[at]
    if k == n:
        k = 0
        b.key[at] = hashed(b.key[at] + 1)
    b.made[at] = k + 1
    place = _permuted(k, b.bits[at], b.key[at])
    while place >= n:
        place = _permuted(place, b.bits[at], b.key[at])
    return (place + uniform(rng)) / n


@uncounted
def poisson(mean: float, rng: Randomness) -> float:
    """Count of Poisson's law; rounded from the normal law of its moments where that is as good."""
    if mean > _NORMAL_FROM:
        return max(0.0, np.floor(mean + np.sqrt(mean) * standard_normal(rng) + 0.5))
    count, left = 0.0, mean - standard_exponential(rng)
    while left > 0:
        left -= standard_exponential(rng)
        count += 1
    return count


@inlined
def draw_gap(f: Features, t: int, rng: Randomness) -> float:
    """Draw a gap (s) by the law of a transition."""
    law, mean, shape = f.law[t], f.mean[t], f.shape[t]
    if law == CONSTANT:
        return mean
    if law == EXPONENTIAL:
        return mean * standard_exponential(rng)
    if law == NORMAL:
        return mean * max(0.0, 1 + shape * standard_normal(rng))
    if law == GAMMA:
        return mean / shape * standard_gamma(rng, shape)
    if law == LOGNORMAL:
        return mean * np.exp(shape * standard_normal(rng) - shape * shape / 2)
    if law == EMPIRICAL:
        u, k = uniform(rng), 0
        while u >= f.knots[k + 1]:
            k += 1
        row = f.quantiles[int(shape)]
        share = (u - f.knots[k]) / (f.knots[k + 1] - f.knots[k])
        return mean * (row[k] + share * (row[k + 1] - row[k]))
    return shape * poisson(mean / shape, rng)


@inlined
def between(cumulated: FloatArray, low: int, high: int, u: float) -> int:
    """Index in [low, high) that a share u of what is cumulated falls on."""
    wanted = cumulated[low] + u * (cumulated[high] - cumulated[low])
    while high - low > 1:
        middle = (low + high) >> 1
        if cumulated[middle] <= wanted:
            low = middle
        else:
            high = middle
    return low
