"""Laws of random numbers against those of scipy, by the test of Kolmogorov and Smirnov."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fitting.compiled import uncounted
from fitting.random_numbers import (
    random_bits,
    randomness,
    standard_exponential,
    standard_gamma,
    standard_normal,
    uniform,
)

NUMBER = 20_000


@uncounted
def uniforms(r, out):
    for i in range(len(out)):
        out[i] = uniform(r)


@uncounted
def exponentials(r, out):
    for i in range(len(out)):
        out[i] = standard_exponential(r)


@uncounted
def normals(r, out):
    for i in range(len(out)):
        out[i] = standard_normal(r)


@uncounted
def gammas(r, shape, out):
    for i in range(len(out)):
        out[i] = standard_gamma(r, shape)


@uncounted
def bits(r, out):
    for i in range(len(out)):
        out[i] = random_bits(r)


def begun(seed=0):
    return randomness(np.random.default_rng(seed))


def drawn(draw, *how, seed=0):
    out = np.empty(NUMBER)
    draw(begun(seed), *how, out)
    return out


def test_bits_are_those_of_the_published_sequence():
    """The first numbers from the state 1234567, as the reference code of SplitMix64 prints them."""
    out = np.empty(3, dtype=np.uint64)
    bits(np.array([1234567], dtype=np.uint64), out)
    assert out.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(
    ("draw", "law"),
    [(uniforms, stats.uniform), (exponentials, stats.expon), (normals, stats.norm)],
)
def test_laws_without_a_shape(draw, law):
    assert stats.kstest(drawn(draw), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("shape", [0.05, 0.4, 1.0, 1.7, 60.0])
def test_gamma_law(shape):
    assert stats.kstest(drawn(gammas, shape, seed=1), stats.gamma(shape).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("draw", "law", "edge"),
    [
        (exponentials, stats.expon, 5.0),
        (normals, stats.norm, 2.2),
    ],
)
def test_tails(draw, law, edge):
    """Beyond an edge the law is the tail's own, through the layers and beyond the lowest."""
    out = np.concatenate([drawn(draw, seed=k) for k in range(2, 12)])
    tail = out[out > edge]
    chance = law.sf(edge)
    assert abs(len(tail) - len(out) * chance) < 4 * np.sqrt(len(out) * chance)
    assert stats.kstest(1 - law.sf(tail) / chance, "uniform").pvalue > 1e-3


def test_the_same_seed_gives_the_same_numbers():
    assert np.array_equal(drawn(uniforms), drawn(uniforms))
    assert (drawn(uniforms) != drawn(uniforms, seed=1)).all()
