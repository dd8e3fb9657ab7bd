"""Knees against curves that are known, brute force with another least squares, and simulation."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import f as f_distribution

from fitting.errors import FittingError
from fitting.knee import fit_knees
from fitting.levels import Levels

LEVELS = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0])
LINEAR = np.arange(1.0, 9.0)


def one(x, y, **options):
    """Fit one group."""
    return fit_knees(np.zeros(len(x), dtype=int), x, y, **options)


def hinge(x, knee, before, after, height=10.0):
    return height + np.where(x < knee, before, after) * (x - knee)


def least_squares(x, y, knee):
    """Two lines that meet at a knee, by statsmodels."""
    design = np.column_stack([np.ones_like(x), x - knee, np.maximum(x - knee, 0.0)])
    return sm.OLS(y, design).fit()


# Curves that are known.


@given(
    st.floats(2.0, 12.0),
    st.floats(0.5, 1.5),
    st.floats(-1.0, 0.3),
    st.floats(1e-3, 1e6),
)
def test_a_power_law_that_bends_comes_back(knee, before, after, height):
    rate = height * (LEVELS / knee) ** np.where(knee > LEVELS, before, after)
    found = one(LEVELS, rate)
    assert found.knee[0] == pytest.approx(knee, rel=1e-6)
    assert found.value[0] == pytest.approx(height, rel=1e-6)
    assert found.slope_before[0] == pytest.approx(before, abs=1e-6)
    assert found.slope_after[0] == pytest.approx(after, abs=1e-6)
    assert found.at(LEVELS)[None][0] == pytest.approx(rate, rel=1e-5)
    assert found.p_value[0] < 1e-6


def test_a_group_with_fewer_levels_is_fitted_as_if_it_were_alone():
    short, long = LINEAR[:5] + 20, LINEAR + 40
    group = np.repeat([0, 1], [len(short), len(long)])
    x = np.concatenate([short, long])
    y = np.concatenate([hinge(short, 23.0, 2.0, 0.5), hinge(long, 44.0, 2.0, 0.1)])
    together = fit_knees(group, x, y, scale="linear")
    for number, knee in enumerate([23.0, 44.0]):
        rows = group == number
        alone = one(x[rows], y[rows], scale="linear")
        assert together.knee[number] == pytest.approx(knee)
        assert together.slope_after[number] == pytest.approx(alone.slope_after[0])
        assert together.value[number] == pytest.approx(alone.value[0])


def test_linear_speed_up_to_a_ceiling_is_a_slope_of_one_and_of_nought():
    found = one(LEVELS, np.minimum(25_000 * LEVELS, 120_000.0))
    assert found.knee[0] == pytest.approx(4.8)
    assert (found.slope_before[0], found.slope_after[0]) == pytest.approx((1.0, 0.0), abs=1e-9)


def test_the_linear_scale_has_slopes_in_units():
    found = one(LINEAR, hinge(LINEAR, 4.25, 2.0, -0.5), scale="linear")
    assert found.knee[0] == pytest.approx(4.25)
    assert (found.slope_before[0], found.slope_after[0]) == pytest.approx((2.0, -0.5))
    assert found.value[0] == pytest.approx(10.0)


def test_levels_and_their_line_by_hand():
    group, x = np.array([1, 0, 0, 0, 1, 0]), np.array([9.0, 4.0, 1.0, 2.0, 5.0, 4.0])
    levels = Levels.of(group, x, np.array([2.0, 5.0, 1.0, 4.0, 3.0, 7.0]))
    # One pair of repeats, 5 and 7; the shorter group goes on at its highest level without weight.
    assert levels.x.tolist() == [[1.0, 2.0, 4.0], [5.0, 9.0, 9.0]]
    assert levels.y.tolist() == [[1.0, 4.0, 6.0], [3.0, 2.0, 0.0]]
    assert levels.weight.tolist() == [[1.0, 1.0, 2.0], [1.0, 1.0, 0.0]]
    assert (levels.pure.tolist(), levels.count.tolist()) == ([2.0, 0.0], [3, 2])
    # About 2.75 and 7: sums of squares 6.75 and 8, of products 10.25 and -2.
    line = levels.moved(levels.mean_x(), np.ones(2)).line()
    assert line.slope == pytest.approx([10.25 / 6.75, -0.25])
    assert line.explained == pytest.approx([10.25**2 / 6.75, 0.5])
    assert line.squares == pytest.approx([16.75 - 10.25**2 / 6.75, 0.0])


# Brute force: every knee of a fine grid, each fitted by statsmodels.


@pytest.mark.parametrize("seed", range(8))
def test_knee_and_interval_are_those_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 10, rng.integers(7, 12)))
    y = hinge(x, 5.0, 1.0, 0.2) + rng.normal(0, 0.4, len(x))
    found = one(x, y, scale="linear", level=0.9)
    grid = np.linspace(x[1], x[-2], 1500)
    squares = np.array([least_squares(x, y, knee).ssr for knee in grid])
    own = least_squares(x, y, found.knee[0])
    assert own.ssr <= squares.min() * (1 + 1e-9)
    assert own.params == pytest.approx(
        [found.value[0], found.slope_before[0], found.slope_after[0] - found.slope_before[0]]
    )
    freedom = len(x) - 4
    held = grid[squares <= own.ssr * (1 + f_distribution.ppf(0.9, 1, freedom) / freedom)]
    step = grid[1] - grid[0]
    lower = held[0] if held[0] > grid[0] else -np.inf
    upper = held[-1] if held[-1] < grid[-1] else np.inf
    assert found.lower[0] == pytest.approx(lower, abs=step)
    assert found.upper[0] == pytest.approx(upper, abs=step)
    assert found.residual[0] == pytest.approx(np.sqrt(own.ssr / freedom))


def test_no_knee_is_judged_as_by_statsmodels():
    rng = np.random.default_rng(5)
    x = np.repeat(LINEAR, 3)
    y = hinge(x, 4.0, 1.0, 0.7) + rng.normal(0, 0.3, len(x))
    found = one(x, y, scale="linear")
    two = least_squares(x, y, found.knee[0])
    line = sm.OLS(y, sm.add_constant(x)).fit()
    ratio = (line.ssr - two.ssr) / 2 / (two.ssr / (len(x) - 4))
    assert found.p_value[0] == pytest.approx(f_distribution.sf(ratio, 2, len(x) - 4))


# Simulation: the interval holds the knee as often as it says.


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
@pytest.mark.parametrize(
    ("noise", "repeats", "short"), [(0.1, 1, 0.03), (0.1, 3, 0.03), (0.3, 1, 0.08), (0.3, 3, 0.05)]
)
def test_intervals_hold_the_knee_as_often_as_they_say(level, noise, repeats, short):
    # A step before the knee is 1: at a noise of 0.3, one run a level tells little.
    sweeps = 3000
    rng = np.random.default_rng(11)
    x = np.tile(np.repeat(LINEAR, repeats), (sweeps, 1))
    y = hinge(x, 4.4, 1.0, 0.1) + rng.normal(0, noise, x.shape)
    group = np.repeat(np.arange(sweeps), x.shape[1])
    found = fit_knees(group, x.ravel(), y.ravel(), scale="linear", level=level)
    held = np.mean((found.lower <= 4.4) & (found.upper >= 4.4))
    assert level - short < held < level + 0.03


@pytest.mark.parametrize("repeats", [1, 3])
def test_straight_lines_seldom_have_a_knee(repeats):
    sweeps = 3000
    rng = np.random.default_rng(12)
    x = np.tile(np.repeat(LINEAR, repeats), (sweeps, 1))
    y = 3 * x + rng.normal(0, 0.5, x.shape)
    group = np.repeat(np.arange(sweeps), x.shape[1])
    found = fit_knees(group, x.ravel(), y.ravel(), scale="linear")
    assert 0.02 < np.mean(found.p_value < 0.05) < 0.08


def test_a_curve_that_bends_gradually_is_told_from_two_lines():
    rng = np.random.default_rng(13)
    x = np.repeat(LEVELS, 4)
    gradual = 100 * x / (1 + 0.15 * (x - 1) + 0.01 * x * (x - 1))
    sharp = np.minimum(100 * x, 450.0)
    noise = rng.normal(1, 0.005, len(x))
    assert one(x, gradual * noise).lack_of_fit[0] < 1e-6
    assert one(x, sharp * noise).lack_of_fit[0] > 0.01


# What the range does not tell.


def test_an_interval_without_an_end_is_open():
    rng = np.random.default_rng(14)
    x = np.repeat(LINEAR, 2)
    found = one(x, 3 * x + rng.normal(0, 1.0, len(x)), scale="linear")
    assert (found.lower[0], found.upper[0]) == (-np.inf, np.inf)


def test_four_levels_have_a_knee_without_an_interval():
    x = LINEAR[:4]
    found = one(x, hinge(x, 2.5, 1.0, 0.0), scale="linear")
    assert found.knee[0] == pytest.approx(2.5)
    assert np.isnan([found.lower[0], found.upper[0], found.residual[0]]).all()


def test_fewer_levels_have_none():
    found = one(np.repeat([1.0, 2.0, 4.0], 5), np.arange(1.0, 16.0))
    assert np.isnan([found.knee[0], found.value[0], found.p_value[0]]).all()
    assert (found.levels[0], found.points[0]) == (3, 15)


# Many groups are as many fits; order and units do not matter.


def three_groups():
    rng = np.random.default_rng(15)
    sizes = (8, 3, 12)
    group = np.repeat([0, 1, 2], sizes)
    x = np.concatenate([LEVELS, [1.0, 2.0, 3.0], np.arange(1.0, 13.0)])
    y = np.minimum(x, 5.0) * rng.normal(1, 0.05, len(x))
    return group, x, y


def test_groups_do_not_touch_each_other():
    group, x, y = three_groups()
    together = fit_knees(group, x, y)
    for number in range(3):
        alone = one(x[group == number], y[group == number])
        for name in ("knee", "lower", "upper", "p_value", "slope_after"):
            joint = getattr(together, name)[number]
            assert joint == pytest.approx(getattr(alone, name)[0], rel=1e-9, nan_ok=True)


def test_order_does_not_matter():
    group, x, y = three_groups()
    order = np.random.default_rng(16).permutation(len(x))
    there, here = fit_knees(group, x, y), fit_knees(group[order], x[order], y[order])
    np.testing.assert_array_equal(there.knee, here.knee)
    np.testing.assert_array_equal(there.upper, here.upper)


@given(st.floats(1e-6, 1e9), st.floats(1e-6, 1e9))
def test_units_do_not_matter(of_x, of_y):
    _, x, y = three_groups()
    x, y = x[:8], y[:8]
    there, here = one(x, y), one(of_x * x, of_y * y)
    assert here.knee[0] == pytest.approx(of_x * there.knee[0], rel=1e-6)
    assert here.slope_after[0] == pytest.approx(there.slope_after[0], abs=1e-6)
    assert here.value[0] == pytest.approx(of_y * there.value[0], rel=1e-6)


@pytest.mark.parametrize(
    ("x", "y", "options", "said"),
    [
        ([1.0, 2.0], [1.0], {}, "shapes"),
        ([], [], {}, "shapes"),
        ([1.0, np.nan], [1.0, 2.0], {}, "point 1"),
        ([1.0, 2.0], [1.0, 0.0], {}, "positive for the log scale"),
        ([1.0, 2.0], [1.0, 2.0], {"scale": "cubic"}, "linear or log"),
        ([1.0, 2.0], [1.0, 2.0], {"level": 1.0}, "level"),
        ([1.0, 2.0], [1.0, 2.0], {"level": 0.0}, "level"),
        ([np.nan, np.nan], [1.0, 2.0], {}, "point 0"),
    ],
)
def test_what_cannot_be_is_refused(x, y, options, said):
    with pytest.raises(FittingError, match=said):
        one(np.array(x), np.array(y), **options)
