"""Mixtures of normals: scipy's root finder, Monte Carlo, and moments that every step must keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from fitting.mixture import Mixture

PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)


def random_mixture(seed, groups, components) -> Mixture:
    rng = np.random.default_rng(seed)
    size = (groups, components)
    weight = rng.dirichlet(np.full(components, 0.5), groups)
    return Mixture(rng.normal(0, 1, size), 10 ** rng.uniform(-3, 0, size), weight)


@st.composite
def mixtures(draw: st.DrawFn, most: int = 40) -> Mixture:
    """Any number of components, some of them of no weight."""
    groups, components = draw(st.integers(1, 3)), draw(st.integers(1, most))
    made = random_mixture(draw(st.integers(0, 2**32)), groups, components)
    centre, width = draw(st.floats(-30, 30)), draw(st.sampled_from([1e-4, 1.0, 50.0]))
    weight = np.where(made.weight < draw(st.sampled_from([0.0, 0.01])), 0.0, made.weight)
    weight /= weight.sum(axis=1, keepdims=True)
    return Mixture(centre + width * made.mean, width**2 * made.variance, weight)


def exact_cdf(mixture: Mixture, group: int, x: float) -> float:
    mean, variance, weight = (part[group] for part in mixture)
    return float(weight @ norm.cdf(x, mean, np.sqrt(variance)))


def exact_quantile(mixture: Mixture, group: int, p: float) -> float:
    # No mixture's quantile lies outside its components' own.
    ends = norm.ppf(p, mixture.mean[group], np.sqrt(mixture.variance[group]))
    low, high = ends.min() - 1e-9, ends.max() + 1e-9
    return brentq(lambda x: exact_cdf(mixture, group, x) - p, low, high, xtol=1e-13)


def sampled(mixture: Mixture, draws: int, rng) -> np.ndarray:
    """Draws of the first group."""
    at = rng.choice(mixture.mean.shape[1], draws, p=mixture.weight[0])
    return rng.normal(mixture.mean[0, at], np.sqrt(mixture.variance[0, at]))


def check_same_moments(one: Mixture, other: Mixture):
    middle, variance = other.moments()
    scale = np.abs(other.mean).max() + np.sqrt(variance)
    np.testing.assert_allclose(one.weight.sum(axis=1), other.weight.sum(axis=1), rtol=1e-12)
    assert (np.abs(one.moments()[0] - middle) <= 1e-12 * scale).all()
    # The square of the mean's own digits is what a variance cannot be known better than.
    np.testing.assert_allclose(one.moments()[1], variance, rtol=1e-9, atol=1e-14)


# Distribution and quantiles.


@given(mixtures(), st.floats(-3, 3))
def test_cdf_is_the_weighted_sum_of_those_of_scipy(mixture, deviations):
    middle, variance = mixture.moments()
    x = middle + deviations * np.sqrt(variance)
    expected = [exact_cdf(mixture, group, at) for group, at in enumerate(x)]
    np.testing.assert_allclose(mixture.cdf(x), expected, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(mixture.cdf(x[0])[0], expected[0], rtol=1e-9, atol=1e-15)


def check_quantiles(mixture: Mixture):
    found = mixture.quantiles(PROBABILITIES)
    spread = np.sqrt(mixture.moments()[1])
    for p, row in zip(PROBABILITIES, found, strict=True):
        expected = np.array([exact_quantile(mixture, g, p) for g in range(len(row))])
        missed = np.abs(row - expected) / spread
        # In a gap between components a quantile is anywhere, but its probability is the one.
        said = np.abs(mixture.cdf(row) - p)
        assert ((missed < 2e-3) | (said < 3e-4)).all()
    assert (np.diff(found, axis=0) >= -2e-3 * spread).all()


@given(mixtures())
def test_quantiles_are_those_of_brentq(mixture):
    check_quantiles(mixture)


@pytest.mark.parametrize("components", [1, 2, 5, 60])
def test_quantiles_of_many_mixtures_at_once_are_those_of_brentq(components):
    check_quantiles(random_mixture(7, 100, components))


def test_quantiles_of_one_normal_are_those_of_scipy():
    one = Mixture(np.array([[1.5], [-2.0]]), np.array([[4.0], [0.01]]), np.ones((2, 1)))
    expected = norm.ppf(np.array(PROBABILITIES)[:, None], [1.5, -2.0], [2.0, 0.1])
    np.testing.assert_allclose(one.quantiles(PROBABILITIES), expected, rtol=1e-9)


def test_median_between_two_far_components_worked_by_hand():
    # Three quarters of the weight lie far above: the median is the third of the upper one.
    mixture = Mixture(np.array([[0.0, 100.0]]), np.ones((1, 2)), np.array([[0.25, 0.75]]))
    (median,) = mixture.quantiles([0.5])[0]
    np.testing.assert_allclose(median, 100 + norm.ppf(1 / 3), atol=0.05)


# Moments.


def test_moments_worked_by_hand():
    # Mean 1/4·2 + 3/4·6 = 5; variance 1/4·(1 + 9) + 3/4·(4 + 1) = 6.25.
    mixture = Mixture(np.array([[2.0, 6.0]]), np.array([[1.0, 4.0]]), np.array([[0.25, 0.75]]))
    np.testing.assert_allclose(mixture.moments(), [[5.0], [6.25]], rtol=1e-14)


def test_moments_are_those_of_draws():
    mixture = random_mixture(3, 1, 6)
    x = sampled(mixture, 200_000, np.random.default_rng(1))
    middle, variance = (part[0] for part in mixture.moments())
    assert abs(x.mean() - middle) < 4 * np.sqrt(variance / len(x))
    squares = (x - middle) ** 2
    assert abs(squares.mean() - variance) < 4 * squares.std() / np.sqrt(len(x))


# Sums, multiples, shifts.


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.01, 3), st.floats(0.01, 3))
def test_sum_of_two_normals_is_the_normal_sum(a, b, s, t):
    one, other = (
        Mixture(np.array([[m]]), np.array([[v**2]]), np.ones((1, 1))) for m, v in ((a, s), (b, t))
    )
    total = one.plus(other)
    np.testing.assert_allclose(total.mean, [[a + b]], rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(total.variance, [[s**2 + t**2]], rtol=1e-14)
    np.testing.assert_allclose(total.weight, [[1.0]])


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6))
def test_moments_of_a_sum_are_the_sums_of_the_moments(seed, few, many):
    one, other = random_mixture(seed, 3, few), random_mixture(seed + 1, 3, many)
    total = one.plus(other)
    np.testing.assert_allclose(total.weight.sum(axis=1), 1, rtol=1e-12)
    expected = np.add(one.moments(), other.moments())
    np.testing.assert_allclose(total.moments(), expected, rtol=1e-11, atol=1e-11)


def test_sum_is_distributed_as_the_sum_of_draws():
    one, other = random_mixture(11, 1, 4), random_mixture(12, 1, 3)
    rng = np.random.default_rng(13)
    drawn = sampled(one, 20_000, rng) + sampled(other, 20_000, rng)
    total = one.plus(other)
    assert kstest(drawn, np.vectorize(lambda x: total.cdf(x)[0])).pvalue > 0.001
    # The test can tell: a sum of fully dependent values is another one.
    twice = one.scaled(2.0)
    assert kstest(drawn, np.vectorize(lambda x: twice.cdf(x)[0])).pvalue < 0.001


@given(mixtures(), st.sampled_from([-1.0, -2.5, 0.3, 4.0]), st.floats(-2, 2))
def test_multiples_are_read_at_the_multiple(mixture, factor, deviations):
    middle, variance = mixture.moments()
    x = middle + deviations * np.sqrt(variance)
    below = mixture.cdf(x)
    expected = below if factor > 0 else 1 - below
    np.testing.assert_allclose(mixture.scaled(factor).cdf(x * factor), expected, atol=1e-9)


@given(mixtures(), st.floats(-20, 20), st.floats(-2, 2))
def test_shifts_are_read_at_the_shift(mixture, by, deviations):
    middle, variance = mixture.moments()
    x = middle + deviations * np.sqrt(variance)
    expected = mixture.cdf(x)
    np.testing.assert_allclose(mixture.shifted(by).cdf(x + by), expected, atol=1e-9)
    each = by * np.arange(len(x))
    np.testing.assert_allclose(mixture.shifted(each).cdf(x + each), expected, atol=1e-9)


# Fewer components.


@given(mixtures(), st.integers(1, 30))
def test_trimmed_keeps_weight_mean_and_variance(mixture, most):
    trimmed = mixture.trimmed(most)
    assert trimmed.mean.shape[1] <= most + 1
    check_same_moments(trimmed, mixture)


def test_trimmed_keeps_the_weightiest_as_they_are():
    mixture = random_mixture(5, 4, 30)
    trimmed = mixture.trimmed(10)
    for group in range(4):
        heavy = np.argsort(-mixture.weight[group])[:10]
        expected = np.sort(mixture.mean[group, heavy])
        np.testing.assert_array_equal(np.sort(trimmed.mean[group, :10]), expected)


# Mixtures of nothing.


def test_unknown_mixtures_give_nan():
    unknown = Mixture.unknown(3, 5)
    assert np.isnan(unknown.moments()).all()
    assert np.isnan(unknown.cdf(0.0)).all()
    assert np.isnan(unknown.quantiles(PROBABILITIES)).all()
    for made in (
        unknown.scaled(-1.0),
        unknown.shifted(2.0),
        unknown.plus(random_mixture(1, 3, 2)),
        unknown.trimmed(2),
    ):
        assert all(np.isnan(part).all() for part in made)


def test_unknown_mixtures_leave_the_others_alone():
    known = random_mixture(2, 4, 9)
    mixed = Mixture(*(np.where([[True], [False], [True], [False]], p, np.nan) for p in known))
    for change in (lambda m: m.trimmed(3), lambda m: m.plus(m)):
        here, alone = change(mixed), change(known.take(np.array([0, 2])))
        for part, expected in zip(here, alone, strict=True):
            np.testing.assert_array_equal(part[[0, 2]], expected)
            assert np.isnan(part[[1, 3]]).all()
    quantiles = mixed.quantiles([0.9])[0]
    assert np.isnan(quantiles).tolist() == [False, True, False, True]
    assert Mixture.unknown(0).quantiles([0.5]).shape == (1, 0)
    assert Mixture.unknown(0, 4).trimmed(2).mean.shape == (0, 3)
