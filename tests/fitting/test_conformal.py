"""Split conformal calibration: worked by hand, and its coverage on exchangeable misses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from fitting.conformal import conformal_factor, fewest_scores


def alone(score, level):
    """Factor of a group whose cluster has no score."""
    score = np.asarray(score, dtype=float)
    return conformal_factor(score, np.arange(len(score)), np.array([-1]), level)[0]


@pytest.mark.parametrize(("scores", "rank"), [(9, 9), (10, 10), (18, 18), (19, 18), (29, 27)])
def test_ranks_at_ninety_percent_worked_by_hand(scores, rank):
    # ⌈(n + 1)·0.9⌉: 9, 9.9, 17.1, 18 and 27.
    score = np.random.default_rng(scores).permutation(np.arange(1.0, scores + 1))
    assert alone(score, 0.9) == rank


def test_eight_scores_are_too_few_for_ninety_percent():
    assert np.isnan(alone(np.arange(8), 0.9))
    assert alone(np.arange(9), 0.9) == 8
    assert fewest_scores(0.9) == 9


@pytest.mark.parametrize(
    ("level", "least"),
    [(0.5, 1), (0.6, 2), (2 / 3, 2), (0.8, 4), (0.95, 19), (0.98, 49), (0.99, 99)],
)
def test_fewest_scores_are_the_first_with_an_answer(level, least):
    assert fewest_scores(level) == least
    assert not np.isnan(alone(np.ones(least), level))
    assert np.isnan(alone(np.ones(least - 1), level))


@given(st.integers(1, 60), st.integers(1, 99), st.integers(0, 99))
def test_factor_is_the_smallest_score_that_enough_do_not_exceed(scores, percent, seed):
    score = np.random.default_rng(seed).exponential(size=scores)
    found = alone(score, percent / 100)
    # In whole numbers, so that no last bit decides.
    rank = math.ceil((scores + 1) * percent / 100 - 1e-9)
    assert rank == -(-(scores + 1) * percent // 100)
    if rank > scores:
        assert np.isnan(found)
    else:
        assert found == np.sort(score)[rank - 1]


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("scores", [12, 19])
def test_coverage_is_the_rank_over_one_more_than_the_scores(level, scores):
    # Exchangeable: scores of one table have a scale in common, and any distribution.
    rng = np.random.default_rng(1000 * scores + int(100 * level))
    tables, covered = 3000, 0
    for _ in range(tables):
        score = rng.exponential() * np.abs(rng.standard_t(2, scores + 1))
        covered += score[-1] <= alone(score[:-1], level)
    expected = math.ceil(round((scores + 1) * level, 9)) / (scores + 1)
    assert level <= expected <= level + 1 / (scores + 1)
    assert binomtest(covered, tables, expected).pvalue > 0.001


def test_a_group_is_not_calibrated_by_its_own_cluster():
    # Ten clusters of two: the own two are left out of what each is asked for.
    score = np.arange(20.0)
    cluster = np.arange(20) // 2
    found = conformal_factor(score, cluster, cluster, 0.5)
    for group in range(20):
        others = np.delete(score, [2 * (group // 2), 2 * (group // 2) + 1])
        assert found[group] == np.sort(others)[9]
    # Own scores are of no account, however large.
    wild = np.where(cluster == 4, 1e6, score)
    np.testing.assert_array_equal(conformal_factor(wild, cluster, np.array([4]), 0.5), found[8])


def test_one_cluster_alone_has_no_answer():
    assert np.isnan(conformal_factor(np.ones(50), np.zeros(50), np.zeros(2), 0.5)).all()


def test_unknown_scores_take_no_part():
    score = np.array([3.0, np.nan, 1.0, 2.0, np.nan])
    assert alone(score, 0.75) == 3
    assert np.isnan(alone(score, 0.76))
    assert np.isnan(alone(np.full(99, np.nan), 0.5))


@given(st.integers(2, 40), st.integers(0, 99))
def test_order_is_of_no_account(scores, seed):
    rng = np.random.default_rng(seed)
    score, cluster = rng.exponential(size=scores), rng.integers(0, 5, scores)
    asked = rng.integers(0, 6, 7)
    order, of = rng.permutation(scores), rng.permutation(7)
    one = conformal_factor(score, cluster, asked, 0.7)
    np.testing.assert_array_equal(
        conformal_factor(score[order], cluster[order], asked[of], 0.7), one[of]
    )


def test_nothing_asked_is_nothing_answered():
    assert conformal_factor(np.ones(9), np.arange(9), np.empty(0, dtype=int), 0.9).shape == (0,)
