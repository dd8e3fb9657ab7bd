"""Mixtures of normals and conformal factors: scipy's root finder, Monte Carlo, and sorting."""

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import kstest, norm
from strategies import cdf

from fitting.bayes.prediction import Mixture, conformal_factor, fewest_scores

PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)


def random_mixture(seed, groups, components):
    rng = np.random.default_rng(seed)
    size = (groups, components)
    weight = rng.dirichlet(np.full(components, 0.5), groups)
    return Mixture(rng.normal(0, 1, size), 10 ** rng.uniform(-3, 0, size), weight)


@st.composite
def mixtures(draw):
    """Any number of components, some of them of no weight."""
    groups, components = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    made = random_mixture(draw(st.integers(0, 2**32)), groups, components)
    centre, width = draw(st.floats(-30, 30)), draw(st.sampled_from([1e-4, 1.0, 50.0]))
    weight = np.where(made.weight < draw(st.sampled_from([0.0, 0.01])), 0.0, made.weight)
    weight /= weight.sum(axis=1, keepdims=True)
    return Mixture(centre + width * made.mean, width**2 * made.variance, weight)


def exact_quantile(mixture, group, p):
    mean, deviation = mixture.mean[group], np.sqrt(mixture.variance[group])
    # No mixture's quantile lies outside its components' own.
    ends = norm.ppf(p, mean, deviation)
    low, high = ends.min() - 1e-9, ends.max() + 1e-9
    weight = mixture.weight[group]
    return brentq(lambda x: weight @ ndtr((x - mean) / deviation) - p, low, high, xtol=1e-13)


@given(mixtures())
@example(random_mixture(7, 50, 2))
@example(random_mixture(7, 50, 5))
@example(random_mixture(7, 50, 60))
def test_quantiles_are_those_of_brentq(mixture):
    found = mixture.quantiles(PROBABILITIES)
    spread = np.sqrt(mixture.moments()[1])
    for p, row in zip(PROBABILITIES, found, strict=True):
        expected = np.array([exact_quantile(mixture, g, p) for g in range(len(row))])
        missed = np.abs(row - expected) / spread
        # In a gap between components a quantile is anywhere, but its probability is the one.
        in_gap = np.abs(cdf(mixture, row) - p)
        assert ((missed < 1e-8) | (in_gap < 1e-12)).all()
    assert (np.diff(found, axis=0) >= -1e-8 * spread).all()


def test_quantiles_of_one_normal_and_of_far_components():
    one = Mixture(np.array([[1.5], [-2.0]]), np.array([[4.0], [0.01]]), np.ones((2, 1)))
    expected = norm.ppf(np.array(PROBABILITIES)[:, None], [1.5, -2.0], [2.0, 0.1])
    np.testing.assert_allclose(one.quantiles(PROBABILITIES), expected, rtol=1e-9)
    # Three quarters of the weight lie far above: the median is the third of the upper one.
    mixture = Mixture(np.array([[0.0, 100.0]]), np.ones((1, 2)), np.array([[0.25, 0.75]]))
    np.testing.assert_allclose(mixture.quantiles([0.5]), [[100 + norm.ppf(1 / 3)]], atol=0.05)
    # Of a quarter there, the last 0.0004 are the last 0.0001 of all.
    mixture = mixture._replace(weight=np.array([[0.75, 0.25]]))
    np.testing.assert_allclose(mixture.quantiles([0.9999]), [[100 + norm.ppf(0.9996)]], atol=0.05)


def test_moments_worked_by_hand():
    # Mean 1/4·2 + 3/4·6 = 5; variance 1/4·(1 + 9) + 3/4·(4 + 1) = 6.25.
    mixture = Mixture(np.array([[2.0, 6.0]]), np.array([[1.0, 4.0]]), np.array([[0.25, 0.75]]))
    np.testing.assert_allclose(mixture.moments(), [[5.0], [6.25]], rtol=1e-14)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6))
def test_moments_of_a_sum_are_the_sums_of_the_moments(seed, few, many):
    one, other = random_mixture(seed, 3, few), random_mixture(seed + 1, 3, many)
    total = one.plus(other)
    np.testing.assert_allclose(total.weight.sum(axis=1), 1, rtol=1e-12)
    expected = np.add(one.moments(), other.moments())
    np.testing.assert_allclose(total.moments(), expected, rtol=1e-11, atol=1e-11)


@given(st.integers(0, 2**32), st.floats(-0.99, 0.99))
def test_a_sum_of_correlated_values_has_their_variance_and_the_shape_of_others(seed, correlation):
    one, other = random_mixture(seed, 3, 4), random_mixture(seed + 1, 3, 5)
    total, apart = one.plus(other, correlation), one.plus(other)
    (first, one), (second, two) = one.moments(), other.moments()
    both = one + two + 2 * correlation * np.sqrt(one * two)
    np.testing.assert_allclose(total.moments(), [first + second, both], rtol=1e-9, atol=1e-9)
    share = np.sqrt(both) / np.sqrt(one + two)
    expected = (apart.quantiles([0.1]) - first - second) * share
    found = total.quantiles([0.1]) - first - second
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.sqrt(both).max())


def test_a_sum_is_distributed_as_the_sum_of_draws():
    rng, drawn = np.random.default_rng(13), 0.0
    one, other = random_mixture(11, 1, 4), random_mixture(12, 1, 3)
    for mean, variance, weight in (one, other):
        at = rng.choice(mean.shape[1], 5_000, p=weight[0])
        drawn = drawn + rng.normal(mean[0, at], np.sqrt(variance[0, at]))
    mean, variance, (weight,) = one.plus(other)
    normals = norm(mean, np.sqrt(variance))
    assert kstest(drawn, lambda x: normals.cdf(x[:, None]) @ weight).pvalue > 0.001


@given(mixtures(), st.integers(1, 30))
def test_trimmed_keeps_weight_mean_and_variance_and_the_weightiest_components(mixture, most):
    trimmed = mixture.trim(most)
    assert trimmed.mean.shape[1] <= most + 1
    middle, variance = mixture.moments()
    scale = np.abs(mixture.mean).max() + np.sqrt(variance)
    np.testing.assert_allclose(trimmed.weight.sum(axis=1), mixture.weight.sum(axis=1), rtol=1e-12)
    assert (np.abs(trimmed.moments()[0] - middle) <= 1e-12 * scale).all()
    # The square of the mean's own digits is what a variance cannot be known better than.
    np.testing.assert_allclose(trimmed.moments()[1], variance, rtol=1e-9, atol=1e-14)
    for group, weight in enumerate(mixture.weight):
        heavy = [i for i in np.argsort(-weight)[:most] if weight[i] > 0]
        assert set(mixture.mean[group, heavy]) <= set(trimmed.mean[group])


def test_unknown_mixtures_give_nan_and_leave_the_others_alone():
    unknown = Mixture(*np.full((3, 3, 5), np.nan))
    assert np.isnan(unknown.moments()).all()
    for made in (unknown.plus(random_mixture(1, 3, 2)), unknown.trim(2)):
        assert all(np.isnan(part).all() for part in made)
    known = random_mixture(2, 4, 9)
    mixed = Mixture(*(np.where([[True], [False], [True], [False]], p, np.nan) for p in known))
    for change in (lambda m: m.trim(3), lambda m: m.plus(m)):
        here, alone = change(mixed), change(known.take(np.array([0, 2])))
        for part, expected in zip(here, alone, strict=True):
            np.testing.assert_array_equal(part[[0, 2]], expected)
            assert np.isnan(part[[1, 3]]).all()
    assert np.isnan(mixed.quantiles([0.9])[0]).tolist() == [False, True, False, True]
    assert Mixture(*np.full((3, 0, 1), np.nan)).quantiles([0.5]).shape == (1, 0)
    assert Mixture(*np.full((3, 0, 4), np.nan)).trim(2).mean.shape == (0, 3)


def alone(score, level):
    """Factor of a group whose cluster has no score."""
    score = np.asarray(score, dtype=float)
    return conformal_factor(score, np.arange(len(score)), np.array([-1]), level)[0]


@pytest.mark.parametrize(
    ("level", "least"),
    [(0.5, 1), (0.6, 2), (2 / 3, 2), (0.8, 4), (0.9, 9), (0.95, 19), (0.98, 49), (0.99, 99)],
)
def test_fewest_scores_are_the_first_with_an_answer(level, least):
    assert fewest_scores(level) == least
    assert alone(np.arange(least), level) == least - 1
    assert np.isnan(alone(np.ones(least - 1), level))


@given(st.integers(1, 60), st.integers(1, 99), st.integers(0, 99))
def test_factor_is_the_smallest_score_that_enough_do_not_exceed(scores, percent, seed):
    score = np.random.default_rng(seed).exponential(size=scores)
    # ⌈(n + 1)·level⌉ in whole numbers, so that no last bit decides: exchangeable scores are then
    # covered at the level.
    rank = -(-(scores + 1) * percent // 100)
    expected = np.sort(score)[rank - 1] if rank <= scores else np.nan
    np.testing.assert_equal(alone(score, percent / 100), expected)


@given(st.integers(2, 40), st.integers(0, 99))
def test_a_group_is_not_calibrated_by_its_own_cluster_and_order_is_of_no_account(scores, seed):
    rng = np.random.default_rng(seed)
    score, cluster = rng.exponential(size=scores), rng.integers(0, 5, scores)
    asked = rng.integers(0, 6, 7)
    found = conformal_factor(score, cluster, asked, 0.7)
    expected = [alone(score[cluster != own], 0.7) for own in asked]
    np.testing.assert_array_equal(found, expected)
    order = rng.permutation(scores)
    again = conformal_factor(score[order], cluster[order], asked[::-1], 0.7)
    np.testing.assert_array_equal(again, found[::-1])


def test_unknown_scores_and_nothing_asked_have_no_answer():
    score = np.array([3.0, np.nan, 1.0, 2.0, np.nan])
    assert alone(score, 0.75) == 3
    assert np.isnan(alone(score, 0.76))
    assert np.isnan(alone(np.full(99, np.nan), 0.5))
    assert np.isnan(conformal_factor(np.ones(50), np.zeros(50), np.zeros(2), 0.5)).all()
    assert conformal_factor(np.ones(9), np.arange(9), np.empty(0, dtype=int), 0.9).shape == (0,)
