"""Which gaps follow which: eighths by hand, and chains in which one draw decides."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.gap_chain import _follow, chain_of, chained

ANY = np.arange(1, 9) / 8


def certain(*eighths):
    """Rows of a chain in which one eighth follows."""
    return (np.arange(8) >= np.array(eighths)[:, None]).astype(float)


@pytest.mark.parametrize("number", [0, 1])
def test_of_no_gap_that_follows_another_nothing_is_known(number):
    assert chain_of(np.ones(number)) == pytest.approx(np.tile(ANY, (8, 1)))


def test_each_gap_is_followed_by_a_longer_one():
    found = chain_of(np.arange(1.0, 9.0))
    assert found[:7] == pytest.approx(certain(*range(1, 8)), abs=1e-7)
    # What never came is not ruled out: a billionth.
    assert found[0, 0] == pytest.approx(1e-9)
    # After the longest nothing comes.
    assert found[7] == pytest.approx(ANY)


def test_eighths_of_twelve_gaps_are_of_one_or_two():
    # By length, gaps are of the eighths 0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 6 and 7.
    found = chain_of(np.array([1, 3, 2, 4, 5, 12, 6, 7, 8, 9, 10, 11]))
    expected = np.zeros((8, 8))
    for eighth, following in zip(
        [0, 1, 0, 2, 2, 7, 3, 4, 4, 5, 6], [1, 0, 2, 2, 7, 3, 4, 4, 5, 6, 6], strict=True
    ):
        expected[eighth, following] += 1
    expected = np.cumsum(expected, axis=1) / expected.sum(axis=1, keepdims=True)
    assert found == pytest.approx(expected, abs=1e-7)


def test_equal_gaps_are_in_no_order():
    order = np.random.default_rng(0).permutation(16)
    lengths = np.empty(16)
    lengths[order] = np.arange(16)
    np.testing.assert_array_equal(chain_of(np.ones(16)), chain_of(lengths))


@pytest.mark.parametrize(
    ("chance", "eighth"),
    [(0.0, 0), (0.09, 0), (0.1, 2), (0.59, 2), (0.6, 4), (0.9, 7), (0.99, 7)],
)
def test_the_next_eighth_is_that_which_a_draw_falls_on(chance, eighth):
    chain = np.tile([0.1, 0.1, 0.6, 0.6, 0.9, 0.9, 0.9, 0.95], (8, 1))
    at = np.array([0.25, 0.5])
    # The first is drawn from all: 0.7 is in the sixth eighth.
    _follow(chain, np.array([0.7, chance]), at)
    assert at.tolist() == [5.25 / 8, (eighth + 0.5) / 8]


def test_each_is_led_to_by_the_one_before():
    at = np.full(4, 0.5)
    _follow(certain(3, 7, 4, 2, 0, 6, 5, 1), np.array([0.01, 0.2, 0.4, 0.6]), at)
    assert at.tolist() == [0.5 / 8, 3.5 / 8, 2.5 / 8, 4.5 / 8]


def test_places_within_eighths_are_drawn_before_the_eighths():
    rng = np.random.default_rng(4)
    within, chance = rng.random(50), rng.random(50)
    found = chained(np.tile(ANY, (8, 1)), 50, np.random.default_rng(4))
    # All eighths are as likely.
    assert found == pytest.approx((np.floor(8 * chance) + within) / 8)


def test_no_gaps_follow_each_other():
    assert not len(chained(np.tile(ANY, (8, 1)), 0, np.random.default_rng(4)))
