"""Random numbers for compiled loops, a few nanoseconds each; the state is one number in an array.

SplitMix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195) makes the bits, the ziggurat
(Marsaglia & Tsang 2000, doi:10.18637/jss.v005.i08) the exponential and the normal law, and
rejection from a cubed normal law (Marsaglia & Tsang 2000, doi:10.1145/358407.358414) the gamma law.
All laws are exact.
"""

from __future__ import annotations

import math

import numpy as np

from fitting.compiled.loops import FloatArray, RealFunction, WordArray, jit_uncounted

Randomness = WordArray
_WEYL = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LAYERS = 256
_UNIT = 2.0**-53


def _ziggurat(
    edge: float, area: float, density: RealFunction, at: RealFunction
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
