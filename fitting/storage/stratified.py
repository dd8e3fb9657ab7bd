"""Draws of a generator: stratified shares, inter-arrival times, and samples without replacement.

A share is drawn from a batch of n: one from each of n equal parts of the unit interval, in random
order. Where n is the number of times that something was counted, a batch gives exactly what was
counted. So a generator that makes as many requests as its trace has is in every state about as
often as the trace was, far more closely than by independent draws; the order stays random.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fitting.compiled import hashing, loops, random
from fitting.compiled.loops import FloatArray, IntArray, ShortArray, TinyArray, jit_uncounted
from fitting.compiled.random import Randomness, uniform
from fitting.storage import interarrival as laws
from fitting.storage.last_access import first_above

# Transitions of a node, at most, that are sampled without replacement: more take more memory than
# an alias table does.
LARGEST = 4096
_NORMAL_FROM = 100.0


class DrawBatches(NamedTuple):
    """Batches of stratified draws, one an element."""

    made: IntArray  # draws made
    length: IntArray
    bits: IntArray  # of the length
    key: IntArray  # of the order


class Features(NamedTuple):
    """Sizes by class, and laws of inter-arrival times by transition."""

    size_start: IntArray  # by class, its first row in the two that follow
    size: IntArray
    size_share: FloatArray  # cumulated
    law: TinyArray
    mean: FloatArray
    shape: FloatArray
    quantiles: FloatArray
    knots: FloatArray
    pace: FloatArray  # by stream, factor of its inter-arrival times


def new_batches(length: FloatArray, rng: np.random.Generator) -> DrawBatches:
    """Make batches of stratified draws of these lengths, rounded; one of 1 is a plain draw."""
    whole = np.maximum(np.round(length), 1).astype(np.int64)
    bits = np.ceil(np.log2(whole)).astype(np.int64)
    return DrawBatches(np.zeros_like(whole), whole, bits, rng.integers(2**62, size=len(whole)))


@jit_uncounted
def _permute(k: int, bits: int, key: int) -> int:
    """Return the place of k in a permutation of 0 … 2^bits − 1 that ``key`` chooses."""
    mask = (1 << bits) - 1
    half = (bits + 1) >> 1
    x = (k + key) & mask
    x = (x * ((key >> 20) | 1)) & mask
    x ^= x >> half
    x = (x * 0x5851F42D4C957F2D) & mask
    x ^= x >> half
    x = (x * 0x14057B7EF767814F + (key >> 40)) & mask
    return x ^ (x >> half)


@loops.jit_inline
def draw(b: DrawBatches, at: int, rng: Randomness) -> float:
    """Draw from [0, 1): the next stratified draw of a batch, which starts anew at its end."""
    n = b.length[at]
    if n == 1:
        return uniform(rng)
    k = b.made[at]
    if k == n:
        k = 0
        b.key[at] = hashing.scramble(b.key[at] + 1)
    b.made[at] = k + 1
    rank = _permute(k, b.bits[at], b.key[at])
    while rank >= n:
        rank = _permute(rank, b.bits[at], b.key[at])
    return (rank + uniform(rng)) / n


@jit_uncounted
def draw_poisson(mean: float, rng: Randomness) -> float:
    """Draw a count of Poisson's law; of a mean above 100 from the rounded normal law."""
    if mean > _NORMAL_FROM:
        return max(0.0, np.floor(mean + np.sqrt(mean) * random.standard_normal(rng) + 0.5))
    count, left = 0.0, mean - random.standard_exponential(rng)
    while left > 0:
        left -= random.standard_exponential(rng)
        count += 1
    return count


@loops.jit_inline
def draw_interarrival(f: Features, t: int, rng: Randomness) -> float:
    """Draw an inter-arrival time (s) from the law of transition ``t``."""
    law, mean, shape = f.law[t], f.mean[t], f.shape[t]
    if law == laws.CONSTANT:
        return mean
    if law == laws.EXPONENTIAL:
        return mean * random.standard_exponential(rng)
    if law == laws.NORMAL:
        return mean * max(0.0, 1 + shape * random.standard_normal(rng))
    if law == laws.GAMMA:
        return mean / shape * random.standard_gamma(rng, shape)
    if law == laws.LOGNORMAL:
        return mean * np.exp(shape * random.standard_normal(rng) - shape * shape / 2)
    if law == laws.EMPIRICAL:
        u, k = uniform(rng), 0
        while u >= f.knots[k + 1]:
            k += 1
        row = f.quantiles[int(shape)]
        share = (u - f.knots[k]) / (f.knots[k + 1] - f.knots[k])
        return mean * (row[k] + share * (row[k + 1] - row[k]))
    return shape * draw_poisson(mean / shape, rng)


@loops.jit_inline
def index_at_share(cumulated: FloatArray, low: int, high: int, u: float) -> int:
    """Return the index in [low, high) where the cumulated weight there reaches a share u."""
    wanted = cumulated[low] + u * (cumulated[high] - cumulated[low])
    return first_above(cumulated, low + 1, high, wanted) - 1


class Samples(NamedTuple):
    """Samples without replacement: shuffled rounds of a population, one population an element.

    A round has every member of its population once. Where rounds are to be shorter, each of n
    equal parts of the population gives one member to a round of n; those of one are independent.
    """

    member: IntArray  # population i has ``member[first[i]:first[i + 1]]``
    copies: IntArray  # how many times each is in its population
    first: IntArray
    drawn: ShortArray  # members of the rounds, shuffled: of round i from ``start[i]`` on
    start: IntArray
    number: ShortArray  # members of a round; 0 where there are too many to sample so
    size: ShortArray  # members of the population
    done: ShortArray  # members of the round that have been given


def new_samples(member: IntArray, copies: IntArray, first: IntArray, share: float) -> Samples:
    """Prepare sampling without replacement, in rounds of a share of each population."""
    size = np.add.reduceat(copies, first[:-1])
    size = np.where(size > LARGEST, 0, size).astype(np.int32)
    number = np.minimum(np.maximum(np.round(size * share), 1), size).astype(np.int32)
    start = np.cumsum(number, dtype=np.int64) - number
    drawn = np.empty(int(number.sum()), dtype=np.int32)
    return Samples(member, copies, first, drawn, *loops.interleave(start, number, size, number))


@jit_uncounted
def next_sample(d: Samples, population: int, rng: Randomness) -> int:
    """Return the next member of a population's round; a new round is drawn after the last."""
    if d.done[population] == d.number[population]:
        _draw_round(d, population, rng)
        d.done[population] = 0
    at = d.done[population]
    d.done[population] = at + 1
    return np.int64(d.drawn[d.start[population] + at])


@jit_uncounted
def _draw_round(d: Samples, population: int, rng: Randomness) -> None:
    """Draw the members of a population's next round, in random order (Fisher and Yates)."""
    n, size, start = int(d.number[population]), int(d.size[population]), d.start[population]
    done, passed = 0, 0
    wanted = int(uniform(rng) * size / n) if n < size else 0
    for k in range(d.first[population], d.first[population + 1]):
        passed += d.copies[k]
        # What is wanted after the last member of a round is beyond the population.
        while wanted < passed:
            d.drawn[start + done] = d.member[k]
            done += 1
            wanted = int((done + uniform(rng)) * size / n) if n < size else done
    for k in range(start + n - 1, start, -1):
        other = start + int(uniform(rng) * (k - start + 1))
        d.drawn[k], d.drawn[other] = d.drawn[other], d.drawn[k]
