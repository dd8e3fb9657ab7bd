"""Calibration lines: York's published table, direct minimisation, statsmodels, coverage."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize
from scipy.stats import linregress, t as student
from statsmodels.api import OLS, WLS, add_constant

from fitting.errors import FittingError, OutOfRangeError
from fitting.regression.errors_in_both import CalibrationLine, calibrate_sensor, york_line

# Pearson's points with York's weights: York (1966), tables I and II; results to these digits in
# York et al. (2004), https://doi.org/10.1119/1.1632486, and the standard errors with them.
PEARSON_X = np.array([0.0, 0.9, 1.8, 2.6, 3.3, 4.4, 5.2, 6.1, 6.5, 7.4])
PEARSON_Y = np.array([5.9, 5.4, 4.4, 4.6, 3.5, 3.7, 2.8, 2.8, 2.4, 1.5])
WEIGHT_X = np.array([1000, 1000, 500, 800, 200, 80, 60, 20, 1.8, 1.0])
WEIGHT_Y = np.array([1, 1.8, 4, 8, 20, 20, 70, 70, 100, 500.0])


def intercept_error(line):
    return np.hypot(line.mean_error, line.mean_x * line.slope_error)


class TestYork:
    def test_the_published_line_of_pearsons_data(self):
        line = york_line(PEARSON_X, PEARSON_Y, 1 / WEIGHT_X, 1 / WEIGHT_Y)
        found = line.intercept, line.slope
        assert found == pytest.approx((5.47991022403, -0.48053340745), abs=1e-10)
        found = intercept_error(line), line.slope_error, line.chi_square / 8
        assert found == pytest.approx((0.294970735, 0.0579850090, 1.483294149), abs=1e-9)

    def test_correlated_errors_have_the_least_misfit_of_all_lines(self):
        rng = np.random.default_rng(3)
        root = rng.normal(size=(12, 2, 2))
        covariance = root @ root.transpose(0, 2, 1)
        true = np.linspace(-20, 20, 12)
        noise = np.einsum("nij,nj->ni", root, rng.normal(size=(12, 2)))
        x, y = true + noise[:, 0], 3 + 1.7 * true + noise[:, 1]
        errors = covariance[:, 0, 0], covariance[:, 1, 1], covariance[:, 0, 1]

        def misfit(line):
            variance = errors[1] + line[1] ** 2 * errors[0] - 2 * line[1] * errors[2]
            return ((y - line[0] - line[1] * x) ** 2 / variance).sum()

        found = minimize(misfit, [0.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-9})
        line = york_line(x, y, *errors)
        assert [line.intercept, line.slope] == pytest.approx(found.x, abs=1e-5)
        assert line.chi_square == pytest.approx(found.fun, rel=1e-9)

    def test_without_errors_in_x_it_is_statsmodels_weighted_line(self):
        fitted = WLS(PEARSON_Y, add_constant(PEARSON_X), weights=WEIGHT_Y).fit()
        line = york_line(PEARSON_X, PEARSON_Y, 0.0, 1 / WEIGHT_Y)
        assert [line.intercept, line.slope] == pytest.approx(fitted.params, rel=1e-12)
        errors = np.sqrt(np.diag(fitted.normalized_cov_params))
        assert [intercept_error(line), line.slope_error] == pytest.approx(errors, rel=1e-12)

    def test_points_in_a_cloud_still_get_the_least_misfit(self):
        # On one in seven of these York's iteration from the least-squares slope goes back and
        # forth, and on one in twenty-five it ends in another minimum.
        slopes = np.tan(np.linspace(-1.57, 1.57, 20001))[:, None]
        answered = 0
        for seed in range(60):
            rng = np.random.default_rng(seed)
            x, y = rng.normal(size=(2, 6))
            var_x, var_y = 10 ** rng.uniform(-3, 1, size=(2, 6))
            try:
                line = york_line(x, y, var_x, var_y)
            except FittingError as error:
                assert "above one another" in str(error)  # noqa: PT017
                continue
            weight = 1 / (var_y + slopes**2 * var_x)
            off = y - slopes * x
            off -= ((weight * off).sum(axis=1) / weight.sum(axis=1))[:, None]
            least = (weight * off**2).sum(axis=1).min()
            assert line.chi_square <= 1.0001 * least
            answered += 1
        assert answered > 54

    @pytest.mark.parametrize("lean", [1e-6, 0.0, -1e-6])
    def test_corners_of_an_upright_rectangle_show_no_slope(self, lean):
        with pytest.raises(FittingError, match="above one another"):
            york_line([0.0, 1.0, 0.0, 1.0], [0.0, lean, 10.0, 10.0 + lean], 1.0, 1.0)

    def test_points_with_errors_along_the_line_pin_it(self):
        # One number is added to both co-ordinates of the first three: y = x + 2 stays as it is.
        line = york_line([0, 1, 3, 2], [2, 3, 5, 4], 1.0, 1.0, [1, 1, 1, 0])
        assert (line.slope, line.intercept) == pytest.approx((1.0, 2.0))
        assert 0 < line.mean_error < 1e-5
        assert line.chi_square == pytest.approx(0.0, abs=1e-9)

    @pytest.mark.cases(
        "points, message",
        (([1.0], [2.0], 1, 1), "two different x"),
        (([1.0, 1.0], [2.0, 3.0], 1, 1), "different x"),
        (([1.0, 2.0], [2.0], 1, 1), "equal length"),
        (([1.0, np.nan], [2.0, 3.0], 1, 1), "finite"),
        (([1.0, 2.0], [2.0, 3.0], -1, 1), "variance is negative"),
        (([1.0, 2.0], [2.0, 3.0], 0, 0), "both of a point are 0"),
        (([1.0, 2.0], [2.0, 3.0], 1, 1, 1.1), "covariance"),
        (([0, 1, 2], [1, 3, 5], 1, 4, 2), "does not depend on the slope"),
    )
    def test_refusals(self, points, message):
        with pytest.raises(FittingError, match=message):
            york_line(*points)


OFFSET, SLOPE = 35.0, 1.15


def measured(rng, *, levels=6, repeats=4, sensor=1.0, meter=1.0, scatter=2.0, drift=0.0):
    """Runs of a simulated host: what the meter sees beside the sensor differs between levels."""
    codes = np.repeat(np.arange(levels), repeats)
    load = np.linspace(40, 120, levels)
    beside = scatter * rng.standard_normal(levels)
    true = load[codes] + drift * rng.standard_normal(len(codes))
    x = true + sensor * rng.standard_normal(len(codes))
    y = OFFSET + SLOPE * true + beside[codes] + meter * rng.standard_normal(len(codes))
    return codes, x, y


FEW = settings(max_examples=max(4, settings.default.max_examples // 4))
# How runs are measured, by what is notable of them.
SETTINGS = {
    "noisy sensor": {"levels": 10, "repeats": 2, "sensor": 2.0, "scatter": 3.0},
    "no repeats": {"levels": 8, "repeats": 1},
    "drift between repeats": {"drift": 3.0},
    "few levels": {"levels": 4, "repeats": 3, "sensor": 0.3, "scatter": 1.0},
    "no scatter": {"scatter": 0.0},
}


class TestCoverage:
    @pytest.mark.parametrize("name", SETTINGS)
    def test_ninety_percent_intervals_hold_that_or_little_more(self, name):
        """Shares of intervals that hold the offset, the slope, and a new run's reference."""
        rng, trials, setting = np.random.default_rng(3), 150, SETTINGS[name]
        least, most = (0.88, 1.01) if name == "no scatter" else (0.85, 0.99)
        held = np.zeros(3)
        for _ in range(trials):
            line = calibrate_sensor(*measured(rng, **setting)).line
            _, x, y = measured(rng, **{**setting, "levels": 1 + rng.integers(8), "repeats": 1})
            new = line.predict(x[-1])
            held += [
                line.offset_interval()[0] < OFFSET < line.offset_interval()[1],
                line.slope_interval()[0] < SLOPE < line.slope_interval()[1],
                new.lower < y[-1] < new.upper,
            ]
        # Three standard errors of 150 trials are 7.3 %.
        assert ((least < held / trials) & (held / trials < most)).all(), held

    def test_repeats_are_no_points_of_their_own(self):
        # Taken for points, 60 runs of 3 levels would make an interval of the slope that is
        # several times too narrow.
        rng = np.random.default_rng(5)
        codes, x, y = measured(rng, levels=3, repeats=20, scatter=3.0)
        line = calibrate_sensor(codes, x, y).line
        naive = linregress(x, y)
        lower, upper = line.slope_interval()
        assert (upper - lower) / 2 > 4 * naive.stderr * student.ppf(0.95, 58)
        assert line.degrees_of_freedom == 1


class TestLine:
    def test_a_noisy_sensor_does_not_flatten_the_slope(self):
        rng = np.random.default_rng(8)
        slopes, flat = [], []
        for _ in range(60):
            codes, x, y = measured(rng, levels=30, repeats=2, sensor=10.0)
            slopes.append(calibrate_sensor(codes, x, y).line.slope)
            means = [np.bincount(codes, v) / 2 for v in (x, y)]
            flat.append(linregress(*means).slope)
        assert np.median(slopes) == pytest.approx(SLOPE, rel=0.02)
        assert np.median(flat) < 0.95 * SLOPE

    def test_exact_readings_give_the_exact_line(self):
        codes, x, _ = measured(np.random.default_rng(1), sensor=0.0)
        found = calibrate_sensor(codes, x, OFFSET + SLOPE * x)
        assert found.line.offset == pytest.approx(OFFSET, rel=1e-9)
        assert found.line.slope == pytest.approx(SLOPE, rel=1e-9)
        assert np.ptp(found.line.slope_interval()) < 1e-6
        assert found.line.run_error < 1e-6
        assert not found.outlier.any()

    def test_single_runs_without_resolutions_are_ordinary_least_squares(self):
        codes, x, y = measured(np.random.default_rng(2), repeats=1)
        fitted = OLS(y, add_constant(x)).fit()
        line = calibrate_sensor(codes, x, y).line
        assert [line.offset, line.slope] == pytest.approx(fitted.params, rel=1e-6)
        assert line.offset_interval() == pytest.approx(fitted.conf_int(0.1)[0], rel=1e-5)
        assert line.slope_interval() == pytest.approx(fitted.conf_int(0.1)[1], rel=1e-5)
        at = np.array([[1.0, 66.0]])
        frame = fitted.get_prediction(at).summary_frame(alpha=0.1)
        new = line.predict([66.0])
        assert new.lower == pytest.approx(frame["obs_ci_lower"].to_numpy(), rel=1e-5)
        assert new.upper == pytest.approx(frame["obs_ci_upper"].to_numpy(), rel=1e-5)

    def test_a_mean_is_no_better_known_than_a_step_tells(self):
        # Evenly anywhere within a step: a variance of its square by twelve.
        x = np.array([50.0, 100.0, 150.0])
        options = {"sensor_resolution": 3.0, "reference_resolution": 6.0}
        levels = calibrate_sensor(np.arange(3), x, 2 * x, **options).levels
        assert levels.var_sensor == pytest.approx(np.full(3, 0.75), rel=1e-6)
        assert levels.var_reference == pytest.approx(np.full(3, 3.0), rel=1e-6)
        # And a coarse reference widens the prediction.
        codes, x, _ = measured(np.random.default_rng(1), sensor=0.0)
        whole = np.round(OFFSET + SLOPE * x)
        coarse = calibrate_sensor(codes, x, whole, reference_resolution=1.0)
        assert coarse.line.run_error == pytest.approx(1 / np.sqrt(12), rel=1e-6)

    @FEW
    @given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
    def test_units_do_not_matter(self, a, b):
        codes, x, y = measured(np.random.default_rng(6))
        plain, scaled = (
            calibrate_sensor(codes, s * x, r * y, sensor_resolution=0.5 * s).line
            for s, r in ((1.0, 1.0), (a, b))
        )
        assert scaled.slope == pytest.approx(plain.slope * b / a, rel=1e-6)
        ends = np.multiply(b, plain.offset_interval())
        assert scaled.offset_interval() == pytest.approx(ends, rel=1e-5)
        assert scaled.scatter == pytest.approx(b * plain.scatter, rel=1e-5)
        assert scaled.lowest == pytest.approx(a * plain.lowest, rel=1e-12)


class TestRange:
    RUNS = measured(np.random.default_rng(7))
    LINE = calibrate_sensor(*RUNS).line

    def test_readings_a_twentieth_outside_are_flagged_or_refused_and_their_intervals_wider(self):
        line, x = self.LINE, self.RUNS[1]
        assert line.lowest == pytest.approx(x.min() - 0.05 * np.ptp(x))
        assert line.highest == pytest.approx(x.max() + 0.05 * np.ptp(x))
        made = line.predict(np.array([80.0, line.highest, line.highest + 0.1, 300.0, np.nan]))
        assert made.extrapolated.tolist() == [False, False, True, True, False]
        width = made.upper - made.lower
        assert width[3] > 1.5 * width[0]
        assert np.isnan(made.value[4])
        with pytest.raises(OutOfRangeError, match=r"the sensor read 300, and was calibrated from"):
            line.predict([80.0, 300.0], extrapolate=False)
        inside = line.predict(80.0, extrapolate=False)
        assert inside.value == pytest.approx(line.offset + 80 * line.slope)

    def test_a_level_of_confidence_is_a_share_and_the_line_is_plain_numbers(self):
        with pytest.raises(FittingError, match="not a share"):
            self.LINE.predict(80.0, level=90)
        narrow, wide = (self.LINE.predict(80.0, level=p) for p in (0.5, 0.99))
        assert wide.upper - wide.lower > 3 * (narrow.upper - narrow.lower)
        fields = {f: getattr(self.LINE, f) for f in self.LINE.__slots__}
        assert CalibrationLine(**fields) == self.LINE
        assert {type(value) for value in fields.values()} == {float, int}


class TestChecks:
    def test_a_bend_is_that_of_statsmodels(self):
        codes, x, y = measured(np.random.default_rng(10), repeats=1, levels=9)
        made = calibrate_sensor(codes, x, y)
        fitted = OLS(y, np.column_stack([np.ones(9), x, x**2])).fit()
        assert made.curvature_p == pytest.approx(fitted.pvalues[2], rel=1e-6)
        assert made.curvature == pytest.approx(fitted.params[2], rel=1e-6)
        # Three levels leave nothing to test.
        made = calibrate_sensor(*measured(np.random.default_rng(13), levels=3))
        assert np.isnan([made.curvature, made.curvature_p]).all()
        assert not made.outlier.any()

    def test_straight_lines_are_seldom_called_bent_or_said_to_have_outliers(self):
        rng = np.random.default_rng(11)
        made = [calibrate_sensor(*measured(rng, levels=8)) for _ in range(150)]
        assert np.mean([m.curvature_p < 0.05 for m in made]) < 0.1
        assert np.mean([m.outlier.any() for m in made]) < 0.1

    def test_a_level_that_one_sensor_missed_is_an_outlier(self):
        codes, x, y = measured(np.random.default_rng(12), levels=8, scatter=0.5)
        y[codes == 5] -= 25
        made = calibrate_sensor(codes, x, y)
        assert made.outlier.tolist() == [False] * 5 + [True] + [False] * 2
        assert made.residual[5] < -15


class TestRefusals:
    @pytest.mark.cases(
        "watts, message",
        ([50.0, 50.0, 100.0, 100.0], "2 levels that the sensor tells apart"),
        ([50.0, 50.0, 50.0, 50.0], "1 level that the sensor tells apart"),
        ([50.0, 50.4, 100.0, 150.0], None),
        ([50.0, 50.4, 100.0, 100.4], r"2 levels .* \(it read 50 to 100.4\)"),
    )
    def test_levels_closer_than_a_step_of_the_sensor_are_one(self, watts, message):
        with pytest.raises(FittingError, match=message) if message else nullcontext():
            calibrate_sensor(np.arange(4), watts, 10 + 2 * np.array(watts), sensor_resolution=1.0)

    def test_levels_within_the_noise_are_one(self):
        x, noise = np.random.default_rng(14).normal([[50], [0]], 1, (2, 15))
        with pytest.raises(FittingError, match="tells apart"):
            calibrate_sensor(np.repeat(np.arange(5), 3), x, 2 * x + noise)

    @pytest.mark.cases(
        "codes, x, options, message",
        ([], [], {}, "no runs"),
        ([0, 1], [1.0, 2.0, 3.0], {}, "three lists"),
        ([0, 1, 2], [1.0, np.nan, 3.0], {}, "finite"),
        ([0, 1, 2], [1.0, 2.0, 3.0], {"sensor_resolution": -1}, "resolution of -1"),
        ([0, 1, 2], [1.0, 2.0, 3.0], {"reference_resolution": np.nan}, "resolution of nan"),
    )
    def test_what_is_no_calibration(self, codes, x, options, message):
        with pytest.raises(FittingError, match=message):
            calibrate_sensor(codes, x, np.arange(1.0, len(x) + 1), **options)
