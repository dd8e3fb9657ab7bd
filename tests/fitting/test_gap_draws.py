"""Gaps drawn by each law against scipy's distributions, and shares of what is cumulated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fitting.compiled import uncounted
from fitting.interarrival import (
    CONSTANT,
    EMPIRICAL,
    EXPONENTIAL,
    GAMMA,
    LOGNORMAL,
    NORMAL,
    POISSON,
)
from fitting.random_numbers import randomness
from fitting.walk_draws import Features, between, draw_gap

MEAN = 0.02
KNOTS, QUANTILES = np.array([0.0, 0.5, 0.8, 1.0]), np.array([[9.0] * 4, [0.1, 0.5, 2.0, 5.0]])


@uncounted
def draw_all(features, out, rng):
    for i in range(len(out)):
        out[i] = draw_gap(features, 1, rng)


def drawn(law, shape, number=5000):
    """Gaps of the second of two transitions."""
    nothing = np.zeros(0)
    features = Features(
        *(nothing.astype(np.int64), nothing.astype(np.int64), nothing),
        *(np.array([CONSTANT, law], dtype=np.int8), np.array([9.0, MEAN]), np.array([9.0, shape])),
        *(QUANTILES, KNOTS, nothing),
    )
    out = np.empty(number)
    draw_all(features, out, randomness(np.random.default_rng(5)))
    return out


def test_a_constant_gap():
    assert (drawn(CONSTANT, np.nan, 10) == MEAN).all()


@pytest.mark.parametrize(
    ("law", "shape", "expected"),
    [
        (EXPONENTIAL, np.nan, stats.expon(scale=MEAN)),
        (NORMAL, 0.2, stats.norm(MEAN, 0.2 * MEAN)),
        (GAMMA, 0.4, stats.gamma(0.4, scale=MEAN / 0.4)),
        (LOGNORMAL, 1.1, stats.lognorm(1.1, scale=MEAN * np.exp(-(1.1**2) / 2))),
    ],
)
def test_gaps_are_of_their_distribution(law, shape, expected):
    assert stats.kstest(drawn(law, shape), expected.cdf).pvalue > 0.001


def test_no_gap_of_a_wide_normal_law_is_negative():
    found = drawn(NORMAL, 1.0)
    assert found.min() == 0.0
    assert np.mean(found == 0) == pytest.approx(stats.norm.cdf(-1), abs=0.02)


def test_an_empirical_law_is_straight_between_its_quantiles():
    found = drawn(EMPIRICAL, 1.0) / MEAN
    assert stats.kstest(found, lambda x: np.interp(x, QUANTILES[1], KNOTS)).pvalue > 0.001


@pytest.mark.parametrize("mean", [3.0, 400.0])
def test_gaps_of_a_coarse_clock_are_poisson_in_ticks(mean):
    tick = MEAN / mean
    ticks = drawn(POISSON, tick) / tick
    assert ticks == pytest.approx(np.round(ticks), abs=1e-9)
    counts = np.bincount(np.round(ticks).astype(int), minlength=int(2 * mean) + 2)
    expected = len(ticks) * stats.poisson(mean).pmf(np.arange(len(counts)))
    often = expected > 10
    squares = ((counts - expected)[often] ** 2 / expected[often]).sum()
    assert stats.chi2.sf(squares, often.sum() - 1) > 0.001


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=30).filter(any),
    st.integers(0, 10),
    st.floats(0, 1, exclude_max=True),
)
def test_a_share_falls_on_what_it_was_cumulated_from(weights, low, u):
    # Before and behind are others, of which nothing is drawn.
    others = [3] * low
    cumulated = np.cumsum([0, *others, *weights, *others]).astype(float)
    found = between(cumulated, low, low + len(weights), u)
    wanted = u * sum(weights)
    assert cumulated[found] - cumulated[low] <= wanted < cumulated[found + 1] - cumulated[low]
