"""Sums against a ceiling: hand-worked examples, independent integrals, and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting.co_location import agreement, load_of, on_clock
from fitting.errors import FittingError

ENDS = np.array([1.0, 2.0, 3.0, 5.0, 6.0])
RATES = np.array([[1.0], [2.0], [3.0], [5.0], [np.nan]])


class TestOnClock:
    """Worked by hand: intervals of one second, none between 3 and 4, and one not measured."""

    def test_its_own_clock_changes_nothing(self):
        found = on_clock(ENDS, np.ones(5), RATES, 0.0, 1.0, 7)
        np.testing.assert_allclose(found.ravel(), [1, 2, 3, np.nan, 5, np.nan, np.nan])

    def test_a_shifted_clock_has_means(self):
        found = on_clock(ENDS, np.ones(5), RATES, 0.5, 1.0, 3)
        np.testing.assert_allclose(found.ravel(), [1.5, 2.5, 3.0])

    def test_a_coarse_clock_has_means_of_what_is_known(self):
        found = on_clock(ENDS, np.ones(5), RATES, 0.0, 2.0, 3)
        np.testing.assert_allclose(found.ravel(), [1.5, 3.0, 5.0])

    def test_intervals_that_overlap_count_once(self):
        found = on_clock([1.0, 2.0], [1.0, 1.8], [[4.0], [8.0]], 0.0, 1.0, 2)
        np.testing.assert_allclose(found.ravel(), [4.0, 8.0])

    def test_an_interval_within_the_one_above_it_adds_nothing(self):
        found = on_clock([2.0, 1.5], [2.0, 1.0], [[4.0], [8.0]], 0.0, 1.0, 2)
        np.testing.assert_allclose(found.ravel(), [4.0, 4.0])

    @given(st.lists(st.tuples(st.floats(0.1, 3.0), st.floats(0.0, 1e6)), min_size=1, max_size=30))
    def test_what_was_used_stays_the_same(self, intervals):
        lengths, rates = np.array(intervals).T
        ends = np.cumsum(lengths)
        step = ends[-1] / 7
        found = on_clock(ends, lengths, rates[:, None], 0.0, step, 7)
        assert (found * step).sum() == pytest.approx((rates * lengths).sum(), rel=1e-9, abs=1e-9)

    def test_shapes_are_checked(self):
        with pytest.raises(FittingError, match="lengths"):
            on_clock([1.0, 2.0], [1.0], [[1.0]], 0.0, 1.0, 1)


class TestLoad:
    SHARES = np.array([[0.5, 0.1], [1.2, np.nan], [1.3, 0.2], [0.2, 0.3], [1.1, np.nan]])

    def test_by_hand(self):
        load = load_of(self.SHARES, 0.6)
        np.testing.assert_allclose(load.high, [1.1, 0.2])
        np.testing.assert_allclose(load.mean, [0.86, 0.2])
        np.testing.assert_allclose(load.peak, [1.3, 0.3])
        np.testing.assert_allclose(load.over, [0.6, 0.0])
        np.testing.assert_allclose(load.longest, [2, 0])
        assert load.first == 0

    def test_what_was_never_measured_is_not_nought(self):
        load = load_of(np.full((3, 2), np.nan))
        assert load.first is None
        assert np.isnan(load).all()

    @given(
        st.lists(st.floats(0, 2), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.95, 1.0])
    )
    def test_high_is_above_one_just_when_the_rest_of_time_is(self, shares, quantile):
        load = load_of(np.array(shares)[:, None], quantile)
        below = sum(share <= 1 for share in shares)
        assert (load.high[0] > 1) == (below < quantile * len(shares) - 1e-9)

    @pytest.mark.parametrize("quantile", [0.0, 1.1])
    def test_quantiles_that_cannot_be(self, quantile):
        with pytest.raises(FittingError, match="quantile"):
            load_of(np.ones((3, 1)), quantile)

    def test_shapes_are_checked(self):
        with pytest.raises(FittingError, match="intervals by resources"):
            load_of(np.ones(3))


class TestAgreement:
    def test_what_never_changes_is_sure(self):
        assert agreement(np.full(100, 0.2), 0.7) == 1.0
        assert agreement(np.full(100, 0.9), 0.7) == 1.0

    def test_what_is_on_the_threshold_is_not(self):
        shares = np.where(np.arange(200) % 19 == 0, 1.0, 0.2)
        assert 0.3 < agreement(shares, 0.7) < 0.8

    def test_a_share_of_just_the_threshold_is_not_above_it(self):
        shares = np.where(np.arange(200) % 19 == 0, 0.7, 0.2)
        assert agreement(shares, 0.7) == 1.0

    def test_few_intervals_say_nothing(self):
        assert np.isnan(agreement(np.ones(9), 0.5))
        assert agreement(np.concatenate([np.ones(10), [np.nan]]), 0.5) == 1.0

    def test_it_is_how_often_another_recording_agrees(self):
        # Independent intervals, 6 % above: the chance that over 5 % are, from the binomial law.
        from scipy.stats import binom

        rng = np.random.default_rng(1)
        found, seen = [], []
        for _ in range(200):
            shares = (rng.random(1000) < 0.06).astype(float)
            above = shares.mean() > 0.05
            found.append(agreement(shares, 0.5) if above else 1 - agreement(shares, 0.5))
            seen.append(above)
        assert np.mean(seen) == pytest.approx(1 - binom.cdf(50, 1000, 0.06), abs=0.05)
        assert np.mean(found) == pytest.approx(np.mean(seen), abs=0.12)

    def test_order_of_draws_is_fixed(self):
        shares = np.random.default_rng(2).random(50)
        assert agreement(shares, 0.9) == agreement(shares, 0.9)
