"""Straight lines of many groups against statsmodels, mpmath at 50 digits, and scipy's nnls."""

import itertools

import mpmath
import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import nnls
from scipy.stats import t as student

from fitting.errors import FittingError
from fitting.regression import lines as rl

STEPS = np.array([1.2, 1.5, 1.8, 2.1, 2.6, 3.3]) * 1e9
LOG_CORES = np.log([1, 2, 3, 4, 6, 8])
WOBBLE = np.array([1.0, -0.6, 0.3, 0.9, -1.1, -0.4])

# Abscissas and ordinates at the sizes that the laws give them: 1/f, f, ln n, f^γ; and metrics
# from nanoseconds to operations per second.
SCALES = {
    "time over 1/f": (1 / STEPS, 40 + 9e10 / STEPS + WOBBLE),
    "cpi over f": (STEPS, 0.9 + 0.4e-9 * STEPS + 0.01 * WOBBLE),
    "nanoseconds": (1 / STEPS, (40 + 9e10 / STEPS + WOBBLE) * 1e-9),
    "rates": (STEPS, (40 + 9e-9 * STEPS + WOBBLE) * 1e12),
    "path length": (LOG_CORES, 70702 - 31500 * LOG_CORES + WOBBLE),
    "fifth power": ((STEPS / 1e9) ** 5, 20 + 0.1 * (STEPS / 1e9) ** 5 + WOBBLE),
}


def one(x, y, *, nonnegative=False):
    return rl.fit_groups(np.zeros(len(x), dtype=int), x, y, 1, nonnegative=nonnegative)


def learned(fit):
    return np.array([fit.intercept, fit.slope, fit.bound, fit.degrees_of_freedom, fit.variance])


def random_groups(groups, points, seed):
    """Positive groups around flat, proportional and mixed lines, so that every bound is met."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.2, 1.0, (groups, points)) * 1e-9
    mixed = rng.choice([0.0, 0.5, 1.0], (groups, 1))
    y = mixed + (1 - mixed) * x * 1e9 + 0.05
    return x, y * np.exp(rng.normal(0, 0.15, (groups, points)))


def check_intervals(fit, at, expected, level):
    """Those of new points and of the line itself, against a frame of statsmodels."""
    for repeats, of in ((1, "obs"), (np.inf, "mean")):
        ends = [expected[f"{of}_ci_{end}"] for end in ("lower", "upper")]
        found = fit.interval(at, level=level, repeats=repeats)
        np.testing.assert_allclose(found, ends, rtol=1e-10)


@pytest.mark.parametrize("name", SCALES)
def test_intervals_are_those_of_statsmodels(name):
    x, y = SCALES[name]
    fit = one(x, y)
    ols = sm.OLS(y, sm.add_constant(x)).fit()
    assert fit.degrees_of_freedom[0] == ols.df_resid == 4
    at = np.array([0.5 * x.min(), x.mean(), 2.5 * x.max()])
    expected = ols.get_prediction(np.column_stack([np.ones(3), at])).summary_frame(alpha=0.2)
    check_intervals(fit, at, expected, level=0.8)
    error = np.sqrt(fit.variance * fit.leverage(at))
    np.testing.assert_allclose(error, expected.mean_se, rtol=1e-10)
    # A prediction is of one new point unless said.
    np.testing.assert_array_equal(fit.interval(at), fit.interval(at, repeats=1))
    np.testing.assert_array_equal(fit.prediction_error(at), fit.prediction_error(at, 1))


def exact_line(x, y):
    """Intercept, slope, their standard errors and the variance, at 50 digits."""
    with mpmath.workdps(50):
        xs, ys = [mpmath.mpf(float(v)) for v in x], [mpmath.mpf(float(v)) for v in y]
        n = len(xs)
        mx, my = mpmath.fsum(xs) / n, mpmath.fsum(ys) / n
        sxx = mpmath.fsum((a - mx) ** 2 for a in xs)
        slope = mpmath.fsum((a - mx) * (b - my) for a, b in zip(xs, ys, strict=True)) / sxx
        intercept = my - slope * mx
        squares = mpmath.fsum((b - intercept - slope * a) ** 2 for a, b in zip(xs, ys, strict=True))
        variance = squares / (n - 2)
        parts = mpmath.mpf(1) / n + mx**2 / sxx, 1 / sxx
        errors = (mpmath.sqrt(variance * part) for part in parts)
        return [float(v) for v in (intercept, slope, *errors, variance)]


NEAR = np.array([0.0, 1.0, 2.0, 4.0])
LEANT = 7 + 3 * NEAR + np.array([0.2, -0.1, 0.3, -0.2])


@pytest.mark.cases(
    "x, y, digits",
    *((*points, 1e-11) for points in SCALES.values()),
    # Nearly equal abscissas lose only the digits that rounding them costs.
    *((2e9 * (1 + apart * NEAR), LEANT, 1e-13 / apart) for apart in (1e-3, 1e-5, 1e-7)),
)
def test_lines_have_the_digits_of_mpmath(x, y, digits):
    for fit in (one(x, y), rl.fit_points(x[None], y[None])):
        got = [fit.intercept, fit.slope, *fit.standard_errors(), fit.variance]
        np.testing.assert_allclose(np.ravel(got), exact_line(x, y), rtol=digits)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_runs_condensed_by_abscissa_have_the_line_of_all_runs(nonnegative):
    rng = np.random.default_rng(8)
    at, groups = np.array([1.0, 2.0, 3.0, 5.0]), 30
    runs = rng.integers(1, 5, (groups, len(at)))
    codes = np.repeat(np.arange(groups), runs.sum(axis=1))
    x = np.repeat(np.tile(at, groups), runs.ravel())
    y = 3 + rng.normal(0, 1, groups)[codes] * x + rng.random(len(x))
    y += 1 - min(0.0, y.min())
    point = np.repeat(np.arange(groups * len(at)), runs.ravel())
    mean = np.bincount(point, y) / runs.ravel()
    squares = np.bincount(point, (y - mean[point]) ** 2)
    of = np.repeat(np.arange(groups), len(at))
    condensed = rl.Repeats(runs.ravel(), mean, squares)
    place = np.tile(at, groups)
    found = rl.fit_repeats(of, place, condensed, groups, nonnegative=nonnegative)
    whole = rl.fit_groups(codes, x, y, groups, nonnegative=nonnegative)
    assert learned(found) == pytest.approx(learned(whole), rel=1e-9, abs=1e-9)
    for part, expected in zip(found.moments, whole.moments, strict=True):
        assert part == pytest.approx(expected, rel=1e-9, abs=1e-9)
    halved = rl.fit_repeats(of[::2], place[::2], condensed.take(np.s_[::2]).scaled(3.0), groups)
    kept = np.isin(point, np.arange(0, len(of), 2))
    thrice = rl.fit_groups(codes[kept], x[kept], 3 * y[kept], groups)
    assert learned(halved) == pytest.approx(learned(thrice), rel=1e-8, abs=1e-8, nan_ok=True)


def test_lines_taken_away_are_those_of_a_single_abscissa():
    x, y = random_groups(3, 4, 1)
    found = rl.fit_points(x, y).without(np.array([False, True, False]))
    x[1] = x[1, 0]
    assert learned(found) == pytest.approx(learned(rl.fit_points(x, y)), nan_ok=True)


@pytest.mark.parametrize("points", [2, 3, 4])
def test_bounded_lines_are_those_of_scipy(points):
    x, y = random_groups(200, points, seed=5)
    fit = rl.fit_points(x, y, nonnegative=True)
    assert set(fit.bound) == {rl.FREE, rl.INTERCEPT_AT_ZERO, rl.SLOPE_AT_ZERO}
    for row in range(len(x)):
        design = np.column_stack([np.ones(points), x[row] * 1e9])
        expected, distance = nnls(design, y[row])
        got = np.array([fit.intercept[row], fit.slope[row] / 1e9])
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-13)
        np.testing.assert_array_equal(got == 0, expected == 0)
        left = points - np.count_nonzero(expected)
        variance = distance**2 / left if left else np.nan
        np.testing.assert_allclose(fit.variance[row], variance, rtol=1e-10)


def test_a_line_that_is_at_zero_by_itself_is_not_held_there():
    x = np.tile([1.0, 2.0, 3.0], (2, 1))
    fit = rl.fit_points(x, np.array([[2.0, 4.0, 6.0], [5.0, 5.0, 5.0]]), nonnegative=True)
    assert (fit.intercept.tolist(), fit.slope.tolist()) == ([0.0, 5.0], [2.0, 0.0])
    assert list(fit.bound) == [rl.FREE, rl.FREE]
    assert list(fit.degrees_of_freedom) == [1, 1]


@pytest.mark.parametrize("held", [rl.INTERCEPT_AT_ZERO, rl.SLOPE_AT_ZERO])
def test_inference_on_a_bound_is_that_of_the_regression_without_the_coefficient(held):
    x = 1 / STEPS
    y = 2e9 * x**1.4 * 1e4 if held == rl.INTERCEPT_AT_ZERO else 5 - 2e8 * x + 0.05 * WOBBLE
    fit = one(x, y, nonnegative=True)
    assert fit.bound[0] == held
    kept = slice(1, 2) if held == rl.INTERCEPT_AT_ZERO else slice(0, 1)
    ols = sm.OLS(y, sm.add_constant(x)[:, kept]).fit()
    assert fit.degrees_of_freedom[0] == ols.df_resid == 5
    errors = np.ravel(fit.standard_errors())
    np.testing.assert_allclose(errors[kept], ols.bse, rtol=1e-10)
    assert np.isnan(errors[held - 1])
    at = np.array([2e-10, 9e-10])
    expected = ols.get_prediction(np.column_stack([np.ones(2), at])[:, kept])
    check_intervals(fit, at, expected.summary_frame(alpha=0.1), level=0.9)
    np.testing.assert_array_equal(fit.interval(at), fit.interval(at, level=0.9))


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("groups", [1, 16_384, 16_385, 40_000])
def test_points_rows_and_moments_give_the_same_lines(groups, nonnegative):
    x, y = random_groups(groups, 4, seed=groups)
    order = np.random.default_rng(7).permutation(x.size)
    rows = np.repeat(np.arange(groups), 4)[order], x.ravel()[order], y.ravel()[order], groups
    points = rl.fit_points(x, y, nonnegative=nonnegative)
    of_rows = rl.fit_groups(*rows, nonnegative=nonnegative)
    for other in (of_rows, rl.fit_moments(of_rows.moments, nonnegative=nonnegative)):
        np.testing.assert_array_equal(other.bound, points.bound)
        np.testing.assert_array_equal(other.degrees_of_freedom, points.degrees_of_freedom)
        np.testing.assert_allclose(other.intercept, points.intercept, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(other.slope, points.slope, rtol=1e-9, atol=1e-4)
        np.testing.assert_allclose(other.variance, points.variance, rtol=1e-7, atol=1e-15)
    # One row of abscissas serves all groups.
    shared = rl.fit_points(x[0], y, nonnegative=nonnegative)
    repeated = rl.fit_points(np.tile(x[0], (groups, 1)), y, nonnegative=nonnegative)
    np.testing.assert_array_equal(learned(shared), learned(repeated))


def test_a_large_group_with_one_abscissa_is_not_a_line():
    rows = 1_000_000
    fit = one(np.full(rows, 1 / 2.3e9), np.linspace(1, 2, rows))
    assert np.isnan(fit.slope[0])


def test_groups_are_taken_in_order_and_repeatedly_and_may_have_repeats_of_their_own():
    x, y = random_groups(50, 4, seed=8)
    fit = rl.fit_points(x, y, nonnegative=True)
    chosen = np.array([7, 3, 3, 49])
    taken = rl.ModelFit(rl.LineModel(), fit).take(chosen).line
    np.testing.assert_array_equal(learned(taken), learned(fit)[:, chosen])
    np.testing.assert_array_equal(taken.interval(2e-10), np.array(fit.interval(2e-10))[:, chosen])
    repeats = np.array([1, 2, 9, 1])
    together = np.array(taken.interval(2e-10, repeats=repeats))
    for group, count in enumerate(repeats):
        alone = np.array(taken.interval(2e-10, repeats=int(count)))
        np.testing.assert_array_equal(together[:, group], alone[:, group])


def test_quantiles_are_those_of_scipy_and_missing_without_freedom():
    df = np.array([5, 0, 1, 2, 1_000_000, -1, 5])
    expected = np.where(df > 0, student(np.where(df > 0, df, 1)).ppf(0.95), np.nan)
    np.testing.assert_allclose(rl.student_quantile(df, 0.9), expected, rtol=1e-12)
    assert rl.student_quantile(np.array([], dtype=int), 0.9).shape == (0,)


def test_levels_that_are_no_share_and_repeats_below_one_are_refused():
    for level in (0, 1, -0.5, 90, np.nan):
        with pytest.raises(FittingError, match=r"not a share between 0 and 1; try 0\.90$"):
            one(STEPS, STEPS).interval(1.0, level=level)
    for repeats in (0, -1, 0.5, np.nan, np.array([2, 0])):
        with pytest.raises(FittingError, match=r"^repeats is \S+: a mean needs 1 new point or"):
            rl.variance_of_mean(repeats)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_groups_without_a_line_are_missing_and_disturb_nobody(nonnegative):
    # Group 0 is whole, 1 has no row, 2 one row, 3 one abscissa, 4 one missing ordinate.
    codes = np.array([0, 0, 0, 2, 3, 3, 4, 4, 4])
    x = np.array([1.0, 2, 3, 1, 2, 2, 1, 2, 3])
    y = np.array([2.0, 3, 5, 1, 2, 3, 1, np.nan, 3])
    fit = rl.fit_groups(codes, x, y, 6, nonnegative=nonnegative)
    assert np.isfinite(fit.intercept).tolist() == [True, False, False, False, False, False]
    np.testing.assert_array_equal(np.isnan(fit.slope), np.isnan(fit.intercept))
    np.testing.assert_array_equal(fit.degrees_of_freedom, [1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(fit.moments.points, [3, 0, 1, 2, 3, 0])
    for values in (fit.value(1.5), *fit.interval(1.5), *fit.standard_errors()):
        np.testing.assert_array_equal(np.isnan(values), [0, 1, 1, 1, 1, 1])
    assert np.isnan(fit.variance[1:]).all()
    whole = one(x[:3], y[:3], nonnegative=nonnegative)
    np.testing.assert_array_equal(learned(fit)[:, :1], learned(whole))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 1)])
def test_empty_and_one_point_tables_give_missing_lines(shape):
    fit = rl.fit_points(np.ones(shape), np.ones(shape))
    assert fit.slope.shape == (shape[0],)
    for values in (fit.slope, fit.leverage(1.0) * fit.variance, *fit.interval(1.0)):
        assert values.shape == (shape[0],)
        assert np.isnan(values).all()
    no_rows = rl.fit_groups(np.array([], dtype=int), np.array([]), np.array([]), 2)
    assert np.isnan(no_rows.slope).tolist() == [True, True]


def test_integers_fit_as_floats():
    x, y = np.array([[1, 2, 4]]), np.array([[3, 5, 6]])
    expected = learned(rl.fit_points(x.astype(float), y.astype(float)))
    np.testing.assert_array_equal(learned(rl.fit_points(x, y)), expected)
    np.testing.assert_allclose(learned(one(x[0], y[0])), expected, rtol=1e-12)


@pytest.mark.cases("x, y", ((3,), (3,)), ((2, 3), (3, 3)), ((2,), (3, 3)), ((1, 3, 3), (3, 3)))
def test_shapes_that_do_not_match_are_named(x, y):
    with pytest.raises(FittingError) as caught:
        rl.fit_points(np.ones(x), np.ones(y))
    assert str(x) in str(caught.value)
    assert str(y) in str(caught.value)


def test_moments_alone_keep_a_perfect_line_free_of_negative_variance():
    x, y = np.array([1.0, 2.0, 3.0]) * 1e9, np.array([0.1, 0.2, 0.3])
    fits = [
        rl.fit_moments(rl.fit_groups(np.zeros(3, dtype=int), x, y * k, 1).moments)
        for k in (1, 3, 7, 1e6)
    ]
    assert all(fit.variance[0] >= 0 for fit in fits)
    for a, b in itertools.pairwise(fits):
        assert a.slope[0] < b.slope[0]
