"""Knees against curves that are known, brute force with another least squares, and simulation."""

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, strategies as st
from scipy.stats import f as f_distribution

from fitting.errors import FittingError
from fitting.regression.knee import fit_knees

LEVELS = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0])
LINEAR = np.arange(1.0, 9.0)


def one(x, y, **options):
    return fit_knees(np.zeros(len(x), dtype=int), x, y, **options)


def hinge(x, knee, before, after, height=10.0):
    return height + np.where(x < knee, before, after) * (x - knee)


def least_squares(x, y, knee):
    """Two lines that meet at a knee, by statsmodels."""
    design = np.column_stack([np.ones_like(x), x - knee, np.maximum(x - knee, 0.0)])
    return sm.OLS(y, design).fit()


@given(st.floats(2, 12), st.floats(0.5, 1.5), st.floats(-1, 0.3), st.floats(1e-3, 1e6))
def test_a_power_law_that_bends_comes_back(knee, before, after, height):
    rate = height * (LEVELS / knee) ** np.where(knee > LEVELS, before, after)
    found = one(LEVELS, rate)
    assert (found.knee[0], found.value[0]) == pytest.approx((knee, height), rel=1e-6)
    slopes = found.slope_before[0], found.slope_after[0]
    assert slopes == pytest.approx((before, after), abs=1e-6)
    assert found.at(LEVELS)[None][0] == pytest.approx(rate, rel=1e-5)
    assert found.p_value[0] < 1e-6


@pytest.mark.cases(
    "x, y, scale, knee, slopes",
    # Linear speed-up to a ceiling.
    (LEVELS, np.minimum(25_000 * LEVELS, 120_000.0), "log", 4.8, (1.0, 0.0)),
    (LINEAR, hinge(LINEAR, 4.25, 2.0, -0.5), "linear", 4.25, (2.0, -0.5)),
    (LEVELS, hinge(LEVELS, 5.0, 2.0, 0.5), "linear", 5.0, (2.0, 0.5)),
)
def test_two_exact_lines_come_back(x, y, scale, knee, slopes):
    found = one(x, y, scale=scale)
    assert found.knee[0] == pytest.approx(knee)
    assert (found.slope_before[0], found.slope_after[0]) == pytest.approx(slopes, abs=1e-9)
    assert found.value[0] == pytest.approx(10.0 if scale == "linear" else 120_000)
    asked = np.array([3.0, 7.0])
    assert scale == "log" or found.at(asked) == pytest.approx(hinge(asked, knee, *slopes))


# Brute force: every knee of a fine grid, fitted by pseudo-inverses and at the best by statsmodels.


@pytest.mark.parametrize("seed", range(5))
def test_knee_and_interval_are_those_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 10, rng.integers(7, 12)))
    y = hinge(x, 5.0, 1.0, 0.2) + rng.normal(0, 0.4, len(x))
    found = one(x, y, scale="linear", level=0.9)
    grid = np.linspace(x[1], x[-2], 1500)
    before = x - grid[:, None]
    design = np.stack([np.ones_like(before), before, np.maximum(before, 0.0)], axis=2)
    at = design @ (np.linalg.pinv(design) @ y)[:, :, None]
    squares = ((y - at[:, :, 0]) ** 2).sum(axis=1)
    own = least_squares(x, y, found.knee[0])
    assert own.ssr <= squares.min() * (1 + 1e-9)
    slopes = found.slope_before[0], found.slope_after[0]
    assert own.params == pytest.approx([found.value[0], slopes[0], slopes[1] - slopes[0]])
    freedom = len(x) - 4
    held = grid[squares <= own.ssr * (1 + f_distribution.ppf(0.9, 1, freedom) / freedom)]
    step = grid[1] - grid[0]
    lower = held[0] if held[0] > grid[0] else -np.inf
    upper = held[-1] if held[-1] < grid[-1] else np.inf
    assert (found.lower[0], found.upper[0]) == pytest.approx((lower, upper), abs=step)
    assert found.residual[0] == pytest.approx(np.sqrt(own.ssr / freedom))


def test_no_knee_and_lack_of_fit_are_judged_as_by_statsmodels():
    rng = np.random.default_rng(5)
    x = np.repeat(LINEAR, 3)
    y = hinge(x, 4.0, 1.0, 0.7) + rng.normal(0, 0.3, len(x))
    found = one(x, y, scale="linear")
    two = least_squares(x, y, found.knee[0])
    line = sm.OLS(y, sm.add_constant(x)).fit()
    ratio = (line.ssr - two.ssr) / 2 / (two.ssr / (len(x) - 4))
    assert found.p_value[0] == pytest.approx(f_distribution.sf(ratio, 2, len(x) - 4))
    # Against the scatter of repeats, as where each of the 8 levels has a mean of its own.
    means = sm.OLS(y, x[:, None] == LINEAR).fit()
    ratio = (two.ssr - means.ssr) / (8 - 4) / means.mse_resid
    assert found.lack_of_fit[0] == pytest.approx(f_distribution.sf(ratio, 8 - 4, len(x) - 8))


# Simulation: the interval holds the knee as often as it says.


def swept(rng, clean, repeats, noise, sweeps=2000):
    """Groups of sweeps of one curve with different noise."""
    x = np.tile(np.repeat(LINEAR, repeats), (sweeps, 1))
    group = np.repeat(np.arange(sweeps), x.shape[1])
    return group, x.ravel(), (clean(x) + rng.normal(0, noise, x.shape)).ravel()


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
@pytest.mark.parametrize(
    ("noise", "repeats", "short"), [(0.1, 1, 0.03), (0.1, 3, 0.03), (0.3, 1, 0.08), (0.3, 3, 0.05)]
)
def test_intervals_hold_the_knee_as_often_as_they_say(level, noise, repeats, short):
    # A step before the knee is 1: at a noise of 0.3, one run a level tells little.
    rng = np.random.default_rng(11)
    runs = swept(rng, lambda x: hinge(x, 4.4, 1.0, 0.1), repeats, noise)
    found = fit_knees(*runs, scale="linear", level=level)
    held = np.mean((found.lower <= 4.4) & (found.upper >= 4.4))
    assert level - short < held < level + 0.03


def test_straight_lines_seldom_have_a_knee():
    for repeats in (1, 3):
        runs = swept(np.random.default_rng(12), lambda x: 3 * x, repeats, 0.5)
        assert 0.02 < np.mean(fit_knees(*runs, scale="linear").p_value < 0.05) < 0.08


def test_ranges_that_do_not_tell():
    # An interval without an end is open; four levels have a knee without one, fewer have no knee.
    x = np.repeat(LINEAR, 2)
    noise = np.random.default_rng(14).normal(0, 1.0, len(x))
    found = one(x, 3 * x + noise, scale="linear")
    assert (found.lower[0], found.upper[0]) == (-np.inf, np.inf)
    found = one(LINEAR[:4], hinge(LINEAR[:4], 2.5, 1.0, 0.0), scale="linear")
    assert found.knee[0] == pytest.approx(2.5)
    assert np.isnan([found.lower[0], found.upper[0], found.residual[0]]).all()
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


def test_groups_do_not_touch_each_other_and_order_does_not_matter():
    group, x, y = three_groups()
    together = fit_knees(group, x, y)
    order = np.random.default_rng(16).permutation(len(x))
    shuffled = fit_knees(group[order], x[order], y[order])
    for name in ("knee", "lower", "upper", "p_value", "slope_after"):
        joint = getattr(together, name)
        np.testing.assert_array_equal(getattr(shuffled, name), joint)
        for number in range(3):
            alone = getattr(one(x[group == number], y[group == number]), name)[0]
            assert joint[number] == pytest.approx(alone, rel=1e-9, nan_ok=True)


@given(st.floats(1e-6, 1e9), st.floats(1e-6, 1e9))
def test_units_do_not_matter(of_x, of_y):
    _, x, y = three_groups()
    x, y = x[:8], y[:8]
    there, here = one(x, y), one(of_x * x, of_y * y)
    assert here.knee[0] == pytest.approx(of_x * there.knee[0], rel=1e-6)
    assert here.slope_after[0] == pytest.approx(there.slope_after[0], abs=1e-6)
    assert here.value[0] == pytest.approx(of_y * there.value[0], rel=1e-6)


@pytest.mark.cases(
    "x, y, options, message",
    *(([1.0, 2.0], [1.0], {}, "shapes"), ([], [], {}, "shapes")),
    *(([x, np.nan], [1.0, 2.0], {}, f"point {n}") for x, n in ((1.0, 1), (np.nan, 0))),
    ([1.0, 2.0], [1.0, 0.0], {}, "positive for the log scale"),
    ([1.0, 2.0], [1.0, 2.0], {"scale": "cubic"}, "linear or log"),
    *(([1.0, 2.0], [1.0, 2.0], {"level": level}, "level") for level in (1.0, 0.0)),
)
def test_impossible_points_are_refused(x, y, options, message):
    with pytest.raises(FittingError, match=message):
        one(np.array(x), np.array(y), **options)
