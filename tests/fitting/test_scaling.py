"""Core-count scaling against independent solutions, published predictions and real sweeps."""

from __future__ import annotations

import json
import pickle
import traceback
import warnings

import mpmath
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import curve_fit, nnls
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn_checks import OF_OTHER_COLUMNS

import fitting.scaling
from fitting.errors import FittingError, OutOfRangeError
from fitting.scaling import AmdahlScaling, ErnestScaling, UniversalScalability

CORES = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0])
SIZES = np.array([1.0, 3.0, 0.5, 2.0, 1.0, 4.0, 2.0, 8.0])
TABLE = np.column_stack([CORES, SIZES])
MODELS = (AmdahlScaling, UniversalScalability, ErnestScaling)


def usl(n, one, sigma, kappa):
    return one * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


def runs_for(model):
    """Noisy runs whose best fit has no parameter on a bound."""
    noise = 1 + 0.02 * np.array([1.0, -1.0, 0.5, -0.3, 0.8, -0.7, 0.4, -0.2])
    if isinstance(model, ErnestScaling):
        clean = 5 + 40 * SIZES / CORES + 2 * np.log(CORES) + 0.5 * CORES
        return TABLE, clean * (1 + 0.1 * (noise - 1))
    if isinstance(model, UniversalScalability):
        return CORES[:, None], usl(CORES, 250.0, 0.05, 0.004) * noise
    return CORES[:, None], (8 + 100 / CORES) * noise


def learned(model):
    return np.array([*model.theta_, *model.predict(TABLE[:, : model.n_features_in_])])


# Noise-free recovery: the oracle is the parameters themselves.


@given(st.floats(0.0, 1e3), st.floats(1e-2, 1e4), st.booleans())
def test_amdahl_recovers_its_parameters(serial, parallel, bounded):
    model = AmdahlScaling(bounded=bounded).fit(CORES, serial + parallel / CORES)
    tolerance = 1e-11 * (serial + parallel)
    assert model.t_serial_ == pytest.approx(serial, rel=1e-10, abs=tolerance)
    assert model.t_parallel_ == pytest.approx(parallel, rel=1e-10, abs=tolerance)
    assert model.serial_fraction_ == pytest.approx(serial / (serial + parallel), abs=1e-10)
    assert model.limit_ == model.t_serial_


@given(
    st.floats(1e-3, 1e6),
    st.one_of(st.just(0.0), st.floats(1e-6, 1.0)),
    st.one_of(st.just(0.0), st.floats(1e-7, 0.2)),
)
def test_usl_recovers_its_parameters(one, sigma, kappa):
    model = UniversalScalability().fit(CORES, usl(CORES, one, sigma, kappa))
    assert model.throughput_one_ == pytest.approx(one, rel=1e-10)
    assert model.contention_ == pytest.approx(sigma, abs=1e-9)
    assert model.coherency_ == pytest.approx(kappa, abs=1e-10)


@given(st.tuples(*[st.floats(1e-2, 1e3)] * 4))
def test_ernest_recovers_its_parameters(theta):
    terms = np.column_stack([np.ones(8), SIZES / CORES, np.log(CORES), CORES])
    model = ErnestScaling().fit(TABLE, terms @ theta)
    np.testing.assert_allclose(model.theta_, theta, rtol=1e-8, atol=1e-9 * max(theta))
    assert model.rank_ == 4


# Amdahl against statsmodels and against the normal equations in extended precision.


def noisy_times(seed=3, count=24):
    rng = np.random.default_rng(seed)
    cores = rng.integers(1, 49, count).astype(float)
    return cores, (12 + 300 / cores) * rng.uniform(0.97, 1.03, count)


def test_amdahl_matches_statsmodels_ols_to_ten_digits():
    cores, times = noisy_times()
    model = AmdahlScaling().fit(cores, times)
    oracle = sm.OLS(times, sm.add_constant(1 / cores)).fit()
    np.testing.assert_allclose(model.theta_, oracle.params, rtol=1e-10)
    np.testing.assert_allclose(list(model.standard_errors_.values()), oracle.bse, rtol=1e-10)
    np.testing.assert_allclose(model.covariance_, oracle.cov_params(), rtol=1e-10)
    new = np.array([1.0, 5.0, 64.0])
    frame = oracle.get_prediction(sm.add_constant(1 / new)).summary_frame(alpha=0.2)
    lower, upper = model.predict_interval(new, level=0.8)
    np.testing.assert_allclose(lower, frame["obs_ci_lower"], rtol=1e-10)
    np.testing.assert_allclose(upper, frame["obs_ci_upper"], rtol=1e-10)
    assert model.degrees_of_freedom_ == oracle.df_resid
    assert model.residual_variance_ == pytest.approx(oracle.mse_resid, rel=1e-10)


def test_amdahl_matches_the_line_in_longdouble():
    cores, times = (a.astype(np.longdouble) for a in noisy_times(seed=9))
    model = AmdahlScaling(bounded=False).fit(cores.astype(float), times.astype(float))
    x = 1 / cores
    slope = ((x - x.mean()) * (times - times.mean())).sum() / ((x - x.mean()) ** 2).sum()
    assert model.t_parallel_ == pytest.approx(float(slope), rel=1e-12)
    assert model.t_serial_ == pytest.approx(float(times.mean() - slope * x.mean()), rel=1e-11)


def test_interval_of_a_mean_of_many_runs_is_the_confidence_interval_of_the_line():
    cores, times = noisy_times()
    lower, upper = AmdahlScaling().fit(cores, times).predict_interval([10.0], repeats=10**12)
    oracle = sm.OLS(times, sm.add_constant(1 / cores)).fit()
    low, high = oracle.get_prediction([[1.0, 0.1]]).conf_int(alpha=0.1)[0]
    assert (lower[0], upper[0]) == pytest.approx((low, high), rel=1e-8)


def test_amdahl_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(11)
    draws = rng.normal(20 + 100 / CORES, 1.0, (1500, 8))
    new = rng.normal(20 + 100 / 32, 1.0 / np.sqrt(3), 1500)
    inside = 0
    for times, value in zip(draws, new, strict=True):
        lower, upper = AmdahlScaling().fit(CORES, times).predict_interval([32], repeats=3)
        inside += lower[0] <= value <= upper[0]
    assert inside / 1500 == pytest.approx(0.90, abs=0.025)


@pytest.mark.parametrize(
    ("times", "bound"),
    [(100 / CORES**1.2, "t_serial"), (10 + 0.1 * CORES, "t_parallel"), (9 + 5 / CORES, None)],
)
def test_amdahl_bounds_match_nnls_and_are_flagged(times, bound):
    model = AmdahlScaling().fit(CORES, times)
    oracle = nnls(np.column_stack([np.ones(8), 1 / CORES]), times)[0]
    np.testing.assert_allclose(model.theta_, oracle, rtol=1e-12)
    assert model.bound_ == bound
    assert model.degrees_of_freedom_ == (6 if bound is None else 7)
    assert [name for name, se in model.standard_errors_.items() if np.isnan(se)] == (
        [] if bound is None else [bound]
    )


def test_amdahl_on_its_bound_infers_as_the_line_through_the_origin():
    times = 100 / CORES**1.2
    model = AmdahlScaling().fit(CORES, times)
    oracle = sm.OLS(times, 1 / CORES).fit()
    frame = oracle.get_prediction([[1 / 24]]).summary_frame(alpha=0.1)
    lower, upper = model.predict_interval([24])
    assert model.standard_errors_["t_parallel"] == pytest.approx(oracle.bse[0], rel=1e-10)
    assert lower[0] == pytest.approx(frame["obs_ci_lower"][0], rel=1e-10)
    assert upper[0] == pytest.approx(frame["obs_ci_upper"][0], rel=1e-10)


def test_unbounded_amdahl_refuses_where_time_is_not_positive():
    model = AmdahlScaling(bounded=False).fit(CORES, -2 + 100 / CORES)
    assert model.limit_ == pytest.approx(-2)
    assert model.bound_ is None
    assert model.predict([49]) == pytest.approx(-2 + 100 / 49)
    for ask in (model.predict, model.predict_interval):
        with pytest.raises(OutOfRangeError, match=r"impossible time .* row 1 .*core count 64"):
            ask([8, 64])


def test_unbounded_amdahl_has_no_serial_fraction_of_no_time():
    assert np.isnan(AmdahlScaling(bounded=False).fit([2, 4], [1.0, 1.5]).serial_fraction_)


# Gunther's law against a root of the normal equations at 40 digits, and curve_fit.


def usl_in_high_precision(cores, throughput, start):
    """Root of the gradient of the sum of squares in (λ, σ, κ)."""

    def gradient(one, sigma, kappa):
        total = [mpmath.mpf(0)] * 3
        for n, x in zip(cores, throughput, strict=True):
            q = 1 + sigma * (n - 1) + kappa * n * (n - 1)
            miss = one * n / q - x
            slope = -one * n * (n - 1) / q**2
            parts = (n / q, slope, slope * n)
            total = [a + miss * part for a, part in zip(total, parts, strict=True)]
        return total

    with mpmath.workdps(40):
        return [float(v) for v in mpmath.findroot(gradient, list(map(mpmath.mpf, start)))]


@pytest.mark.parametrize("noise", [0.001, 0.02, 0.1])
def test_usl_matches_a_forty_digit_solution(noise):
    rng = np.random.default_rng(4)
    throughput = usl(CORES, 900.0, 0.04, 0.005) * rng.uniform(1 - noise, 1 + noise, 8)
    model = UniversalScalability().fit(CORES, throughput)
    oracle = usl_in_high_precision(CORES.tolist(), throughput.tolist(), model.theta_.tolist())
    assert model.bound_ is None
    np.testing.assert_allclose(model.theta_, oracle, rtol=1e-10)


def test_usl_matches_curve_fit_and_its_covariance():
    X, throughput = runs_for(UniversalScalability())
    model = UniversalScalability().fit(X, throughput)
    # An exact slope: the default one by differences spoils the covariance from the 6th digit.
    oracle, covariance = curve_fit(
        usl, CORES, throughput, p0=[250, 0.05, 0.004], jac=usl_slope, xtol=1e-14, ftol=1e-14
    )
    np.testing.assert_allclose(model.theta_, oracle, rtol=1e-7)
    np.testing.assert_allclose(model.covariance_, covariance, rtol=1e-6)
    slope = usl_slope(np.array([24.0]), *oracle)[0]
    s2 = np.sum((usl(CORES, *oracle) - throughput) ** 2) / 5
    half = student.ppf(0.975, 5) * np.sqrt(s2 / 4 + slope @ covariance @ slope)
    lower, upper = model.predict_interval([24], level=0.95, repeats=4)
    assert upper[0] - lower[0] == pytest.approx(2 * half, rel=1e-6)
    assert (lower[0] + upper[0]) / 2 == pytest.approx(usl(24, *oracle), rel=1e-7)


def usl_slope(n, one, sigma, kappa):
    q = 1 + sigma * (n - 1) + kappa * n * (n - 1)
    return np.column_stack([n / q, -one * n * (n - 1) / q**2, -one * n**2 * (n - 1) / q**2])


@pytest.mark.parametrize(
    ("sigma", "kappa", "limit", "peak", "best", "bound"),
    [
        (0.1, 0.01, 0.0, np.sqrt(90), usl(np.sqrt(90), 50, 0.1, 0.01), None),
        (0.1, 0.0, 500.0, np.inf, 500.0, "coherency"),
        (0.0, 0.0, np.inf, np.inf, np.inf, "contention, coherency"),
        (0.0, 0.01, 0.0, 10.0, usl(10, 50, 0, 0.01), "contention"),
        (1.0, 0.02, 0.0, 0.0, 50.0, "contention"),
        (1.0, 0.0, 50.0, np.inf, 50.0, "contention, coherency"),
    ],
)
def test_usl_peak_and_limit(sigma, kappa, limit, peak, best, bound):
    model = UniversalScalability().fit(CORES, usl(CORES, 50.0, sigma, kappa))
    assert model.limit_ == pytest.approx(limit, rel=1e-9)
    assert model.peak_cores_ == pytest.approx(peak, rel=1e-9, abs=1e-4)
    assert model.peak_throughput_ == pytest.approx(best, rel=1e-9)
    assert model.bound_ == bound


@pytest.mark.parametrize(
    ("power", "bound", "free"),
    [(1.3, "contention, coherency", 1), (0.7, "coherency", 2), (-0.2, "contention", 2)],
)
def test_usl_on_a_bound_has_no_standard_error_there(power, bound, free):
    model = UniversalScalability().fit(CORES, 10 * CORES**power)
    assert model.bound_ == bound
    assert model.degrees_of_freedom_ == 8 - free
    held = [name for name, se in model.standard_errors_.items() if np.isnan(se)]
    assert ", ".join(held) == bound
    assert np.all(np.isfinite(model.predict_interval(CORES)))


def test_usl_bound_is_the_best_feasible_point():
    throughput = 10 * CORES**0.7
    model = UniversalScalability().fit(CORES, throughput)
    (one, sigma), _ = curve_fit(
        lambda n, one, sigma: usl(n, one, sigma, 0.0), CORES, throughput, p0=[10, 0.1], xtol=1e-12
    )
    # curve_fit stops within 1e-8 of the least sum of squares.
    assert (model.throughput_one_, model.contention_) == pytest.approx((one, sigma), rel=1e-5)
    least = np.sum((model.predict(CORES) - throughput) ** 2)
    for kappa in (1e-6, 1e-4, 1e-2):
        (a, b), _ = curve_fit(
            lambda n, a, b, k=kappa: usl(n, a, b, k), CORES, throughput, p0=[10, 0.1]
        )
        assert np.sum((usl(CORES, a, b, kappa) - throughput) ** 2) > least


@given(st.lists(st.floats(1e-3, 1e3), min_size=8, max_size=8))
def test_usl_answers_any_positive_throughput_within_its_ranges(throughput):
    model = UniversalScalability()
    try:
        model.fit(CORES, throughput)
    except FittingError as error:
        assert "measure at one core" in str(error)  # noqa: PT017 - either outcome is right
        return
    assert model.throughput_one_ > 0
    assert 0 <= model.contention_ <= 1
    assert model.coherency_ >= 0
    assert np.all(model.predict(np.arange(1, 200)) <= model.peak_throughput_ * (1 + 1e-9))


def test_usl_fits_where_the_starting_point_would_divide_by_zero():
    # The start leaves one core no time at all, so its throughput there is infinite.
    model = UniversalScalability().fit([1, 2, 4, 8], [1e-9, 1, 1 / 3, 1 / 7])
    assert model.bound_ == "contention"
    assert 0 < model.throughput_one_ < 1


def test_usl_refuses_a_fall_too_steep_for_any_first_core():
    with pytest.raises(FittingError, match=r"falls too fast .* measure at one core too"):
        UniversalScalability().fit([2, 3, 4, 8], [10, 2, 0.5, 0.1])


# Ernest against its authors' tool.


@pytest.mark.thirdparty
def test_ernest_matches_nnls_by_hand_and_the_predictions_its_authors_print(data_dir):
    raw = data_dir / "ernest-example" / "raw"
    cores, size, times = np.loadtxt(raw / "rcv1-parsed.csv", delimiter=",").T
    model = ErnestScaling().fit(np.column_stack([cores, size]), times)
    terms = np.column_stack([np.ones_like(cores), size / cores, np.log(cores), cores])
    theta, norm = nnls(terms, times)
    np.testing.assert_allclose(model.theta_, theta, rtol=1e-10)
    assert model.bound_ == "theta3"
    assert model.residual_variance_ == pytest.approx(norm**2 / 4, rel=1e-9)
    text = (raw / "mllib_rcv1.md").read_text().split("Machines, Predicted Time\n")[1]
    rows = [line.split() for line in text.split("...")[0].splitlines()]
    machines, printed = np.array(rows, dtype=float).T
    asked = np.column_stack([machines, np.ones_like(machines)])
    np.testing.assert_allclose(model.predict(asked), printed, rtol=1e-11)


def test_ernest_matches_statsmodels_on_the_terms_off_their_bound():
    X, times = runs_for(ErnestScaling())
    model = ErnestScaling().fit(X, times)
    terms = np.column_stack([np.ones(8), SIZES / CORES, np.log(CORES), CORES])
    oracle = sm.OLS(times, terms).fit()
    assert model.bound_ is None
    np.testing.assert_allclose(model.theta_, oracle.params, rtol=1e-10)
    np.testing.assert_allclose(list(model.standard_errors_.values()), oracle.bse, rtol=1e-9)
    frame = oracle.get_prediction(terms[:2]).summary_frame(alpha=0.1)
    np.testing.assert_allclose(model.predict_interval(X[:2])[0], frame["obs_ci_lower"], rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_ernest_with_two_core_counts_answers_but_claims_no_precision(unit):
    X = np.array([[2, 1.0], [2, 2.0], [4, 1.0], [4, 3.0], [4, 2.0]]) * [1, unit]
    model = ErnestScaling().fit(X, [10.0, 18.1, 6.1, 14.0, 10.1])
    assert model.rank_ == 3
    assert np.all(np.isnan(list(model.standard_errors_.values())))
    assert np.all(np.isnan(model.predict_interval(X)))
    np.testing.assert_allclose(model.predict(X), [10.0, 18.1, 6.1, 14.0, 10.1], rtol=0.02)


def test_ernest_on_one_core_is_a_line_in_the_data():
    X = np.column_stack([np.ones(4), [1.0, 2.0, 3.0, 5.0]])
    times = np.array([3.1, 4.9, 7.2, 10.8])
    model = ErnestScaling().fit(X, times)
    line = np.polynomial.Polynomial.fit(X[:, 1], times, 1)
    np.testing.assert_allclose(model.predict([[1, 4.0], [1, 8.0]]), line(np.array([4.0, 8.0])))
    # The term of the cores is the constant's, and their logarithm is 0.
    assert model.rank_ == 2


# Real sweeps.


@pytest.mark.thirdparty
@pytest.mark.parametrize("app", ["bs", "bt", "ep", "km", "lv", "pf", "sp"])
def test_a_real_sweep_projects_monotone_and_bounded(app, data_dir):
    path = data_dir / "loghin-multicores" / "raw" / "amd" / f"data-{app}.csv"
    runs = pd.read_csv(path, sep=";")
    cores, times = runs["Cores"].to_numpy(), runs["Time[s]"].to_numpy()
    early, ahead = cores <= 12, np.arange(1, 1000)
    amdahl = AmdahlScaling().fit(cores[early], times[early])
    projected = amdahl.predict(ahead)
    assert np.all(np.diff(projected) <= 0)
    assert np.all(projected >= amdahl.limit_)
    law = UniversalScalability().fit(cores, 1 / times)
    assert np.all(law.predict(ahead) <= law.peak_throughput_ * (1 + 1e-12))
    assert law.score(cores[:, None], 1 / times) > (0.0 if app == "pf" else 0.9)


# Invariance of the point estimates.


@pytest.mark.parametrize("kind", MODELS)
def test_row_order_and_whole_duplication_change_nothing(kind):
    X, y = runs_for(kind())
    reference = learned(kind().fit(X, y))
    order = np.random.default_rng(0).permutation(len(y))
    np.testing.assert_allclose(learned(kind().fit(X[order], y[order])), reference, rtol=1e-9)
    twice = kind().fit(np.vstack([X, X]), np.tile(y, 2))
    np.testing.assert_allclose(learned(twice), reference, rtol=1e-9)


@given(st.floats(1e-12, 1e12))
def test_the_unit_of_the_response_only_scales(unit):
    for kind in MODELS:
        X, y = runs_for(kind())
        plain, scaled = kind().fit(X, y), kind().fit(X, y * unit)
        np.testing.assert_allclose(scaled.predict(X), plain.predict(X) * unit, rtol=1e-9)
        bounds, wider = plain.predict_interval(X), scaled.predict_interval(X)
        np.testing.assert_allclose(np.array(wider), np.array(bounds) * unit, rtol=1e-8)
        assert plain.bound_ == scaled.bound_


@given(st.floats(1e-12, 1e12))
def test_the_unit_of_data_only_scales_its_coefficient(unit):
    X, y = runs_for(ErnestScaling())
    scaled = ErnestScaling().fit(X * [1, unit], y)
    expected = ErnestScaling().fit(X, y).theta_ / [1, unit, 1, 1]
    np.testing.assert_allclose(scaled.theta_, expected, rtol=1e-9)


# Degrees of freedom.


@pytest.mark.parametrize("kind", MODELS)
def test_without_degrees_of_freedom_there_is_an_estimate_but_no_interval(kind):
    X, _ = runs_for(kind())
    few = {AmdahlScaling: 2, UniversalScalability: 3, ErnestScaling: 4}[kind]
    model = kind().fit(X[:few], runs_through(kind, X[:few]))
    assert model.degrees_of_freedom_ == 0
    assert np.isnan(model.residual_variance_)
    assert np.all(np.isnan(list(model.standard_errors_.values())))
    assert np.all(np.isnan(model.predict_interval(X)))
    assert np.all(np.isfinite(model.predict(X)))


def runs_through(kind, X):
    """Runs exactly on a curve with no parameter on a bound."""
    n = X[:, 0]
    if kind is ErnestScaling:
        return 5 + 40 * X[:, 1] / n + 2 * np.log(n) + 0.5 * n
    return usl(n, 250, 0.05, 0.02) if kind is UniversalScalability else 8 + 100 / n


# Refusals.


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("bad", [0.5, 0.0, -1.0, np.nan, np.inf, -np.inf])
def test_core_counts_that_cannot_be_are_refused_in_fit_and_predict(kind, bad):
    X, y = runs_for(kind())
    model = kind().fit(X, y)
    wrong = X.copy()
    wrong[2, 0] = bad
    for ask in (lambda: kind().fit(wrong, y), lambda: model.predict(wrong)):
        with pytest.raises(FittingError, match=r"Negative values|row 2 \(1 of 8 rows .*1 or more"):
            ask()
    with pytest.raises(FittingError, match=r"predict_interval"):
        model.predict_interval(wrong)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_data_sizes_that_cannot_be_are_refused(bad):
    X, y = runs_for(ErnestScaling())
    X = X.copy()
    X[3, 1] = bad
    with pytest.raises(FittingError, match=r"Negative values|data size D\).* row 3 .*above 0"):
        ErnestScaling().fit(X, y)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_responses_that_cannot_be_are_refused(kind, bad):
    X, y = runs_for(kind())
    y = y.copy()
    y[1] = bad
    with pytest.raises(FittingError, match=r"row 1 .*above 0|contains NaN|contains infinity"):
        kind().fit(X, y)


@pytest.mark.parametrize(
    ("kind", "X"),
    [
        (AmdahlScaling, [4, 4, 4]),
        (UniversalScalability, [1, 2, 2, 1]),
        (ErnestScaling, [[2, 1], [2, 1]]),
    ],
)
def test_too_few_distinct_points_are_refused(kind, X):
    with pytest.raises(FittingError, match=r"distinct .* but needs [23]: measure at more"):
        kind().fit(X, np.arange(1.0, len(X) + 1))


@pytest.mark.parametrize(
    "options", [{"level": 0.0}, {"level": 1.0}, {"level": np.nan}, {"repeats": 0}, {"repeats": 1.5}]
)
def test_levels_and_repeats_that_cannot_be_are_refused(options):
    model = AmdahlScaling().fit(CORES, 8 + 100 / CORES)
    with pytest.raises(FittingError, match="give a share between 0 and 1"):
        model.predict_interval([4], **options)


@pytest.mark.parametrize("kind", MODELS)
def test_malformed_input_is_refused_in_the_packages_own_error(kind):
    X, y = runs_for(kind())
    with pytest.raises(FittingError, match="inconsistent numbers of samples"):
        kind().fit(X, y[:-1])
    with pytest.raises(FittingError, match=r"dim <= 2|Expected 2D array"):
        kind().fit(X[None], y)
    with pytest.raises(FittingError, match="n_features = 5"):
        kind().fit(np.ones((8, 5)), y)
    with pytest.raises(FittingError, match=r"is expecting . features"):
        kind().fit(X, y).predict(np.ones((8, 5)))
    with pytest.raises(FittingError, match="0 sample"):
        kind().fit(X[:0], [])
    with pytest.raises(NotFittedError):
        kind().predict(X)


# What the skipped checks of scikit-learn would have covered.


@pytest.mark.parametrize("kind", MODELS)
def test_scikit_learn_habits_hold_on_valid_input(kind):
    X, y = runs_for(kind())
    model = clone(kind())
    assert model.fit(X, y) is model
    assert model.n_features_in_ == X.shape[1]
    before = {name: repr(value) for name, value in vars(model).items()}
    expected = model.predict(X)
    model.predict_interval(X)
    assert {name: repr(value) for name, value in vars(model).items()} == before
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), expected)
    np.testing.assert_array_equal(model.fit(X, y).predict(X), expected)
    one_by_one = np.concatenate([model.predict(X[[row]]) for row in range(len(X))])
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-14)
    assert 0.9 < model.score(X, y) <= 1
    assert all(name.endswith("_") for name in set(vars(model)) - set(model.get_params()))


@pytest.mark.parametrize("kind", MODELS)
def test_any_array_like_gives_the_same_fit(kind):
    X, y = runs_for(kind())
    expected = learned(kind().fit(X, y))
    read_only = X.copy()
    read_only.flags.writeable = False
    for given_X in (X.tolist(), np.asfortranarray(X), X.astype(object), read_only):
        np.testing.assert_allclose(learned(kind().fit(given_X, pd.Series(y))), expected, rtol=1e-12)
    np.testing.assert_allclose(
        learned(kind().fit(X.astype(np.float32), y.tolist())), expected, rtol=1e-9
    )
    names = ["cores", "data_bytes"][: X.shape[1]]
    framed = kind().fit(pd.DataFrame(X, columns=names), y)
    assert framed.feature_names_in_.tolist() == names
    np.testing.assert_array_equal(framed.theta_, expected[: framed.theta_.size])


@pytest.mark.parametrize("kind", [AmdahlScaling, UniversalScalability])
def test_one_dimension_is_one_column(kind):
    X, y = runs_for(kind())
    model = kind().fit(X[:, 0], y)
    np.testing.assert_array_equal(model.theta_, kind().fit(X, y).theta_)
    np.testing.assert_array_equal(model.predict(range(1, 5)), model.predict([[1], [2], [3], [4]]))
    assert model.predict(pd.Series([2, 4])).shape == (2,)


@pytest.mark.parametrize("kind", MODELS)
def test_a_column_of_responses_warns_and_fits(kind):
    X, y = runs_for(kind())
    with pytest.warns(DataConversionWarning):
        model = kind().fit(X, y[:, None])
    np.testing.assert_array_equal(model.theta_, kind().fit(X, y).theta_)


def test_learned_numbers_are_plain():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = UniversalScalability().fit(*runs_for(UniversalScalability()))
    scalars = {k: v for k, v in vars(model).items() if not isinstance(v, np.ndarray)}
    assert json.loads(json.dumps(scalars)) == scalars


def test_all_is_sorted():
    assert fitting.scaling.__all__ == sorted(fitting.scaling.__all__)


# scikit-learn's own checks.

COLUMNS = "passes a random table; X here is {}, with core counts of 1 or more"


def expected_failures(model):
    if isinstance(model, ErnestScaling):
        return dict.fromkeys(OF_OTHER_COLUMNS, COLUMNS.format("core counts and data sizes"))
    reasons = dict.fromkeys(OF_OTHER_COLUMNS, COLUMNS.format("one column of core counts"))
    reasons["check_fit2d_1feature"] = (
        "passes zeros, which are refused as core counts, not for shape"
    )
    return reasons


@parametrize_with_checks(
    [kind() for kind in MODELS], expected_failed_checks=expected_failures, xfail_strict=True
)
def test_scikit_learn_checks(estimator, check):
    try:
        check(estimator)
    except Exception:
        # pytest's own tracebacks parse scikit-learn's source anew, 0.2 s for each failure.
        pytest.fail(traceback.format_exc(), pytrace=False)
