"""Random numbers for compiled loops, a few nanoseconds each; the state is one number in an array.

SplitMix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195) makes the bits, the ziggurat
(Marsaglia & Tsang 2000, doi:10.18637/jss.v005.i08) the exponential and the normal law, and
rejection from a cubed normal law (Marsaglia & Tsang 2000, doi:10.1145/358407.358414) the gamma law.
All laws are exact.

A share is drawn from a batch of n: one from each of n equal parts of the unit interval, in random
order. Where n is the number of times that something was counted, a batch gives exactly what was
counted, far more closely than independent draws; the order stays random.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitting.compiled import loops
from fitting.compiled.hashing import scramble
from fitting.compiled.loops import FloatArray, IntArray, ShortArray, jit_uncounted

Randomness = loops.WordArray
_WEYL = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LAYERS = 256
_UNIT = 2.0**-53
# Members of a population, at most, that are sampled without replacement: more take more memory
# than an alias table does.
LARGEST = 4096
_NORMAL_FROM = 100.0


def _ziggurat(
    edge: float, area: float, density: loops.RealFunction, at: loops.RealFunction
) -> tuple[FloatArray, FloatArray]:
    """Return widths and heights of equal-area layers under a density; the lowest has the tail."""
    x = [area / density(edge), edge]
    while len(x) < _LAYERS:
        x.append(at(area / x[-1] + density(x[-1])))
    widths = np.array([*x, 0.0])
    heights = np.array([density(width) for width in widths])
    # The lowest layer has no curve above it but its tail.
    heights[0] = 0.0
    return widths, heights


_EXPONENTIAL_EDGE, _NORMAL_EDGE = 7.69711747013104972, 3.6541528853610088
_EXPONENTIAL_X, _EXPONENTIAL_Y = _ziggurat(
    _EXPONENTIAL_EDGE,
    (_EXPONENTIAL_EDGE + 1) * math.exp(-_EXPONENTIAL_EDGE),
    lambda x: math.exp(-x),
    lambda y: -math.log(y),
)
_NORMAL_X, _NORMAL_Y = _ziggurat(
    _NORMAL_EDGE,
    _NORMAL_EDGE * math.exp(-(_NORMAL_EDGE**2) / 2)
    + math.sqrt(math.pi / 2) * math.erfc(_NORMAL_EDGE / math.sqrt(2)),
    lambda x: math.exp(-x * x / 2),
    lambda y: math.sqrt(-2 * math.log(y)),
)


def new_randomness(rng: np.random.Generator) -> Randomness:
    """Make the state of a random sequence for compiled loops, seeded by a draw of ``rng``."""
    return rng.integers(2**64, size=1, dtype=np.uint64)


@jit_uncounted
def random_bits(r: Randomness) -> int:
    """Draw 64 random bits as an unsigned integer."""
    r[0] += _WEYL
    z = r[0]
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


@jit_uncounted
def uniform(r: Randomness) -> float:
    """Draw from the uniform law on [0, 1)."""
    return np.float64(random_bits(r) >> np.uint64(11)) * _UNIT


@jit_uncounted
def standard_exponential(r: Randomness) -> float:
    """Draw from the exponential law of mean 1."""
    beyond = 0.0
    while True:
        bits = random_bits(r)
        layer = np.int64(bits & np.uint64(_LAYERS - 1))
        x = np.float64(bits >> np.uint64(11)) * _UNIT * _EXPONENTIAL_X[layer]
        if x < _EXPONENTIAL_X[layer + 1]:
            return beyond + x
        low, high = _EXPONENTIAL_Y[layer], _EXPONENTIAL_Y[layer + 1]
        if layer == 0:
            # The law has no memory: beyond the edge it begins anew.
            beyond += _EXPONENTIAL_EDGE
        elif low + uniform(r) * (high - low) < np.exp(-x):
            return beyond + x


@jit_uncounted
def standard_normal(r: Randomness) -> float:
    """Draw from the normal law of mean 0 and variance 1."""
    while True:
        bits = random_bits(r)
        layer = np.int64(bits & np.uint64(_LAYERS - 1))
        x = np.float64(bits >> np.uint64(11)) * _UNIT * _NORMAL_X[layer]
        sign = 1.0 - 2.0 * np.float64((bits >> np.uint64(8)) & np.uint64(1))
        if x < _NORMAL_X[layer + 1]:
            return sign * x
        low, high = _NORMAL_Y[layer], _NORMAL_Y[layer + 1]
        if layer == 0:
            further = standard_exponential(r) / _NORMAL_EDGE
            if 2 * standard_exponential(r) > further * further:
                return sign * (_NORMAL_EDGE + further)
        elif low + uniform(r) * (high - low) < np.exp(-x * x / 2):
            return sign * x


@jit_uncounted
def standard_gamma(r: Randomness, shape: float) -> float:
    """Draw from the gamma law of scale 1 and a shape above 0."""
    # One less than 1 is that of one more, times a power of a uniform draw.
    d = (shape if shape >= 1 else shape + 1) - 1 / 3
    c = 1 / np.sqrt(9 * d)
    while True:
        x = standard_normal(r)
        v = 1 + c * x
        if v <= 0:
            continue
        v = v * v * v
        u = uniform(r)
        square = x * x
        # The first tells most draws without a logarithm, which alone would decide.
        if u < 1 - 0.0331 * square * square or np.log(u) < 0.5 * square + d * (1 - v + np.log(v)):
            break
    return d * v if shape >= 1 else d * v * np.exp(-standard_exponential(r) / shape)


@jit_uncounted
def draw_poisson(mean: float, rng: Randomness) -> float:
    """Draw a count of Poisson's law; of a mean above 100 from the rounded normal law."""
    if mean > _NORMAL_FROM:
        return max(0.0, np.floor(mean + np.sqrt(mean) * standard_normal(rng) + 0.5))
    count, left = 0.0, mean - standard_exponential(rng)
    while left > 0:
        left -= standard_exponential(rng)
        count += 1
    return count


class DrawBatches(NamedTuple):
    """Batches of stratified draws, one an element."""

    made: IntArray  # draws made
    length: IntArray
    bits: IntArray  # of the length
    key: IntArray  # of the order


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
        b.key[at] = scramble(b.key[at] + 1)
    b.made[at] = k + 1
    rank = _permute(k, b.bits[at], b.key[at])
    while rank >= n:
        rank = _permute(rank, b.bits[at], b.key[at])
    return (rank + uniform(rng)) / n


class DiscreteLaws(NamedTuple):
    """Discrete laws: law i has the values and shares from row ``start[i]`` to ``start[i + 1]``."""

    start: IntArray
    share: FloatArray  # cumulated
    value: loops.Array


def pack_laws(share: FloatArray, value: loops.Array, used: loops.BoolArray) -> DiscreteLaws:
    """Pack laws given by row, with cumulated shares, into those of the values that are used."""
    start = np.append(0, np.cumsum(np.count_nonzero(used, axis=1)))
    return DiscreteLaws(start, share[used], value[used])


@jit_uncounted
def first_above(values: loops.Array, low: int, high: int, wanted: float) -> int:
    """Return the first index in [low, high) of a rising array with a greater value; else high."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= wanted:
            low = middle + 1
        else:
            high = middle
    return low


@loops.jit_inline
def index_at_share(cumulated: FloatArray, low: int, high: int, u: float) -> int:
    """Return the index in [low, high) where the cumulated weight there reaches a share u."""
    wanted = cumulated[low] + u * (cumulated[high] - cumulated[low])
    return first_above(cumulated, low + 1, high, wanted) - 1


@loops.jit_inline
def row_at_share(laws: DiscreteLaws, law: int, u: float) -> int:
    """Return the row of a law that has a share u, in [0, 1)."""
    return first_above(laws.share, laws.start[law], laws.start[law + 1] - 1, u)


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
