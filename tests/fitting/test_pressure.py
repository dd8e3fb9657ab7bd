"""Use over time and its level: by hand, against numpy, and properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting.errors import FittingError
from fitting.pressure import LEVELS, grade, summarise, worst

SHARES = st.floats(0, 1)
INTERVALS = st.lists(st.tuples(SHARES, st.integers(1, 5)), min_size=1, max_size=30)


def test_by_hand():
    use = summarise([0.1, 0.9, np.nan, 0.5], [2.0, 1.0, 4.0, 1.0], high=0.5)
    assert use.mean == pytest.approx((0.2 + 0.9 + 0.5) / 4)
    assert use.median == 0.1
    assert use.p95 == 0.9
    assert use.share_high == 0.5
    assert use.measured_s == 4.0


@given(INTERVALS)
def test_against_repeated_seconds(intervals):
    """An interval of n seconds is n intervals of one."""
    values, seconds = map(np.array, zip(*intervals, strict=True))
    each = np.repeat(values, seconds)
    use = summarise(values, seconds, high=0.7)
    assert use.mean == pytest.approx(each.mean())
    assert use.median == np.quantile(each, 0.5, method="inverted_cdf")
    assert use.p95 == np.quantile(each, 0.95, method="inverted_cdf")
    assert use.share_high == pytest.approx((each >= 0.7).mean())


@given(INTERVALS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(intervals, rng):
    before = summarise(*zip(*intervals, strict=True))
    rng.shuffle(intervals)
    assert summarise(*zip(*intervals, strict=True)) == pytest.approx(before)


@pytest.mark.parametrize(
    ("values", "seconds"), [([], []), ([np.nan], [1.0]), ([1.0], [np.nan]), ([1.0], [0.0])]
)
def test_nothing_measured(values, seconds):
    use = summarise(values, seconds)
    assert use.measured_s == 0
    assert np.isnan(use[:4]).all()


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_a_higher_value_has_no_lower_level(a, b):
    low, high = (LEVELS.index(grade(x, 0.3, 0.7)) for x in sorted((a, b)))
    assert low <= high


def test_worst():
    assert worst([]) == ""
    assert worst(["", "low"]) == "low"
    assert worst(["high", "medium", "low"]) == "high"


def test_a_share_that_is_just_reached_is_not_exceeded():
    use = summarise(np.arange(1.0, 21.0), np.full(20, 0.1))
    assert (use.median, use.p95) == (10.0, 19.0)


@pytest.mark.parametrize(
    ("value", "level"),
    [(0.29, "low"), (0.3, "medium"), (0.69, "medium"), (0.7, "high"), (np.nan, "")],
)
def test_levels_begin_at_their_thresholds(value, level):
    assert grade(value, 0.3, 0.7) == level


def test_tables_are_refused():
    with pytest.raises(FittingError, match="do not go with"):
        summarise([[1.0]], [[1.0]])


def test_refused():
    with pytest.raises(FittingError, match="do not go with"):
        summarise([1.0], [1.0, 2.0])
    with pytest.raises(FittingError, match="negative length"):
        summarise([1.0], [-1.0])
    with pytest.raises(FittingError, match="is above"):
        grade(0.5, 0.7, 0.3)
