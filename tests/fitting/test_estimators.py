"""The estimators: statsmodels as oracle, every kind of input, scikit-learn."""

import pickle
import subprocess
import sys
import traceback
import warnings
from functools import partial
from inspect import signature
from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import fitting
from fitting import (
    AmdahlRegression,
    CmosPower,
    FittingError,
    LinearPower,
    LogPathLength,
    OutOfRangeError,
    ReciprocalRegression,
)
from fitting.laws.cores import AmdahlScaling, ErnestScaling, UniversalScalability

STEPS = np.array([1.2, 1.5, 1.8, 2.1, 2.6, 3.3]) * 1e9
WOBBLE = 1 + 0.01 * np.array([1.0, -0.6, 0.3, 0.9, -1.1, -0.4])
IPC = 0.304 - 250e6 / STEPS
CORES = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0])
SIZES = np.array([1.0, 3.0, 0.5, 2.0, 1.0, 4.0])

# An estimator, and what it measures at STEPS.
LINES = {
    "time": (AmdahlRegression(), 40 + 9e10 / STEPS),
    "cpi": (AmdahlRegression(metric="cpi"), 0.9 + 0.4e-9 * STEPS),
    "throughput": (AmdahlRegression(metric="throughput"), 1 / (40 + 9e10 / STEPS)),
    "unbounded": (AmdahlRegression(bounded=False), 9e10 / STEPS - 10),
    "reciprocal cpi": (ReciprocalRegression(), 1 / IPC),
    "reciprocal time": (ReciprocalRegression(metric="time"), 1e12 / IPC / STEPS),
    "reciprocal rate": (ReciprocalRegression(metric="throughput"), IPC * STEPS),
    "power": (LinearPower(), 20 + 15e-9 * STEPS),
    "cmos": (CmosPower(), 20 + 2 * (STEPS / 1e9) ** 3),
    "free exponent": (CmosPower(exponent=None), 20 + 2 * (STEPS / 1e9) ** 2.5),
    "voltages": (CmosPower(voltages={1e9: 0.8, 4e9: 1.2}), 20 + 9e-9 * STEPS),
    "path length": (LogPathLength(), 70702 - 2000 * np.log(STEPS)),
}
CASES = {name: (model, STEPS[:, None], metric * WOBBLE) for name, (model, metric) in LINES.items()}
USL = 250 * CORES / (1 + 0.05 * (CORES - 1) + 0.004 * CORES * (CORES - 1))
ERNEST = 5 + 40 * SIZES / CORES + 2 * np.log(CORES) + 0.5 * CORES
SCALINGS = {
    "amdahl scaling": (AmdahlScaling(), CORES[:, None], (8 + 100 / CORES) * WOBBLE),
    "usl": (UniversalScalability(), CORES[:, None], USL * WOBBLE),
    "ernest": (ErnestScaling(), np.column_stack([CORES, SIZES]), ERNEST * WOBBLE**0.1),
}
CASES |= SCALINGS
cases = pytest.mark.parametrize("name", CASES)
# Abscissa and ordinate of those that are a line.
AXES = {
    "time": (1 / STEPS, lambda y: y),
    "cpi": (STEPS, lambda y: y),
    "throughput": (1 / STEPS, lambda y: 1 / y),
    "unbounded": (1 / STEPS, lambda y: y),
    "reciprocal cpi": (-1 / STEPS, lambda y: 1 / y),
    "reciprocal time": (-1 / STEPS, lambda y: 1 / y / STEPS),
    "reciprocal rate": (-1 / STEPS, lambda y: y / STEPS),
    "power": (STEPS, lambda y: y),
    "cmos": ((STEPS / 1e9) ** 3, lambda y: y),
    "voltages": (STEPS / 1e9 * (0.8 + 0.4 * (STEPS - 1e9) / 3e9) ** 2, lambda y: y),
    "path length": (np.log(STEPS), lambda y: y),
}


def case(name):
    estimator, X, y = CASES[name]
    return clone(estimator), X.copy(), y.copy()


def fitted(name):
    estimator, X, y = case(name)
    return estimator.fit(X, y)


def learned(name, estimator):
    """Parameters, their errors, and answers at two points."""
    at = CASES[name][1][[1, 3]]
    parameters = estimator.theta_ if name in SCALINGS else [*estimator.parameters_.values()]
    answers = [estimator.predict(at), *estimator.predict_interval(at)]
    return np.concatenate([parameters, [*estimator.standard_errors_.values()], *answers])


@pytest.mark.parametrize("name", AXES)
def test_lines_are_those_of_statsmodels_and_given_out_by_name(name):
    estimator, X, metric = case(name)
    estimator.fit(X, metric)
    assert estimator.bound_ is None
    abscissa, ordinate = AXES[name]
    x = np.column_stack([np.ones(6), abscissa])
    ols = sm.OLS(ordinate(metric), x).fit()
    results = estimator.statsmodels_results()
    assert [*results.params.index] == [*estimator.parameters_]
    for found in (results.params, pd.Series(estimator.parameters_)):
        np.testing.assert_allclose(found, ols.params, rtol=1e-10)
    for found in (results.bse, pd.Series(estimator.standard_errors_)):
        np.testing.assert_allclose(found, ols.bse, rtol=1e-10)
    assert estimator.degrees_of_freedom_ == ols.df_resid
    frame = ols.get_prediction(x).summary_frame(alpha=0.1)
    for repeats, of in ((1, "obs"), (np.inf, "mean")):
        ends = ordinate(np.array(estimator.predict_interval(X, repeats=repeats)))
        expected = frame[[f"{of}_ci_lower", f"{of}_ci_upper"]].T
        np.testing.assert_allclose(np.sort(ends, axis=0), expected, rtol=1e-10)
    assert results.get_influence().hat_matrix_diag.sum() == pytest.approx(2)
    robust = results.get_robustcov_results("HC3")
    np.testing.assert_allclose(robust.params, ols.params, rtol=1e-10)


def test_statsmodels_results_take_the_fitted_exponent_as_known():
    estimator = fitted("free exponent")
    results = estimator.statsmodels_results()
    np.testing.assert_allclose(results.params, [*estimator.parameters_.values()], rtol=1e-10)
    assert results.df_resid == estimator.degrees_of_freedom_ + 1
    assert (results.bse < [*estimator.standard_errors_.values()]).all()


@pytest.mark.parametrize(("power", "held"), [(-1.3, "t_fixed_s"), (0.2, "work_cycles")])
def test_a_parameter_on_its_bound_is_named_and_left_out_of_the_inference(power, held):
    estimator = AmdahlRegression().fit(STEPS, 60 * (STEPS / 1e9) ** power * WOBBLE)
    assert estimator.bound_ == held
    assert estimator.parameters_[held] == 0
    assert np.isnan(estimator.standard_errors_[held])
    results = estimator.statsmodels_results()
    (kept,) = set(estimator.parameters_) - {held}
    assert [*results.params.index] == [kept]
    np.testing.assert_allclose(results.params[kept], estimator.parameters_[kept], rtol=1e-10)
    np.testing.assert_allclose(results.bse[kept], estimator.standard_errors_[kept], rtol=1e-10)
    assert results.df_resid == estimator.degrees_of_freedom_ == 5
    assert estimator.limit_ == (0 if held == "t_fixed_s" else estimator.parameters_["t_fixed_s"])


@pytest.mark.parametrize("name", AXES)
def test_two_points_give_values_without_errors(name):
    estimator, X, metric = case(name)
    estimator.fit(X[:2], metric[:2])
    assert np.isfinite(estimator.predict(X[:3])).all()
    if estimator.bound_ is None:
        assert estimator.degrees_of_freedom_ == 0
        assert np.isnan(estimator.predict_interval(X)).all()
        assert np.isnan([*estimator.standard_errors_.values()]).all()


@cases
class TestEveryEstimator:
    def test_any_array_like_gives_the_same_fit(self, name):
        estimator, X, y = case(name)
        whole = learned(name, estimator.fit(X, y))
        kinds = [X.tolist(), X.astype(object), X.astype(np.float32), np.asfortranarray(X), X.copy()]
        kinds[-1].flags.writeable = False
        if X.shape[1] == 1:
            line = X[:, 0]
            kinds += [line, line.tolist(), line.astype(np.int64), line.astype(np.int64).tolist()]
            kinds += [pd.Series(line), pd.Series(line, index=range(9, 3, -1)), line.astype(object)]
        for kind in kinds:
            found = learned(name, clone(estimator).fit(kind, pd.Series(y)))
            np.testing.assert_allclose(found, whole, rtol=1e-9)
            np.testing.assert_allclose(estimator.predict(kind), estimator.predict(X), rtol=1e-13)
            ends = estimator.predict_interval(kind), estimator.predict_interval(X)
            np.testing.assert_allclose(*ends, rtol=1e-13)
        integers = np.ceil(y * 1000 / y.min()).astype(np.int64)
        expected = learned(name, clone(estimator).fit(X, integers.astype(float)))
        for kind in (integers, integers.tolist()):
            np.testing.assert_array_equal(learned(name, clone(estimator).fit(X, kind)), expected)

    def test_a_frame_keeps_the_names_of_its_columns_and_a_column_of_metrics_warns(self, name):
        estimator, X, y = case(name)
        names = ["first", "second"][: X.shape[1]]
        frame = pd.DataFrame(X, columns=names)
        estimator.fit(frame, y)
        assert estimator.feature_names_in_.tolist() == names
        np.testing.assert_array_equal(estimator.predict(frame), fitted(name).predict(X))
        with pytest.raises(FittingError, match=r"(?s)feature names should match .*- speed"):
            estimator.predict(frame.rename(columns={"first": "speed"}))
        with pytest.warns(DataConversionWarning):
            model = clone(estimator).fit(X, y[:, None])
        np.testing.assert_array_equal(learned(name, model), learned(name, estimator.fit(X, y)))

    def test_impossible_metrics_are_named(self, name):
        message = r"row 3 .*above 0|contains"
        for bad in BAD:
            estimator, X, y = case(name)
            y[3] = bad
            with pytest.raises(FittingError, match=message):
                estimator.fit(X, y)

    def test_impossible_levels_and_repeats_are_refused(self, name):
        said = "give a level between 0 and 1" if name in SCALINGS else "^(interval level|repeats)"
        wrong = [{"level": 90}, {"level": 0.0}, {"level": 1.0}, {"level": np.nan}, {"repeats": 0}]
        for options in [*wrong, {"repeats": 1.5}] if name in SCALINGS else wrong:
            with pytest.raises(FittingError, match=said):
                fitted(name).predict_interval(CASES[name][1], **options)

    def test_unfitted_estimators_say_so(self, name):
        estimator, X, _ = case(name)
        for ask in (estimator.predict, estimator.predict_interval):
            with pytest.raises(NotFittedError):
                ask(X)
        if name in LINES:
            with pytest.raises(NotFittedError):
                estimator.statsmodels_results()

    def test_scikit_learn_habits_hold_on_valid_input(self, name):
        estimator, X, y = case(name)
        before = estimator.get_params()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert estimator.fit(X, y) is estimator
        assert estimator.get_params() == before
        assert estimator.n_features_in_ == X.shape[1]
        state = {key: repr(value) for key, value in vars(estimator).items()}
        expected = learned(name, estimator)
        assert 0.9 < estimator.score(X, y) <= 1
        assert {key: repr(value) for key, value in vars(estimator).items()} == state
        again = pickle.loads(pickle.dumps(estimator)), estimator.fit(X, y)
        for model in again:
            np.testing.assert_array_equal(learned(name, model), expected)
        order = np.array([3, 0, 5, 1, 4, 2])
        for rows in (order, [*order, *order]):
            shuffled = clone(estimator).fit(X[rows], y[rows])
            np.testing.assert_allclose(shuffled.predict(X), estimator.predict(X), rtol=1e-6)
        np.testing.assert_array_equal(estimator.predict(X[order]), estimator.predict(X)[order])
        new = set(vars(estimator)) - set(estimator.get_params())
        assert all(key.startswith("_") or key.endswith("_") for key in new)
        numbers = [value for value in vars(estimator).values() if np.isscalar(value)]
        numbers += estimator.standard_errors_.values()
        numbers += getattr(estimator, "parameters_", {}).values()
        assert not any(isinstance(number, np.generic) for number in numbers)


BAD = (0.0, np.nan, np.inf, -1.0, -np.inf)
CELLS = [(name, 0, bad) for name in CASES for bad in BAD]
CELLS += [*((name, 0, 0.5) for name in SCALINGS), *(("ernest", 1, bad) for bad in BAD)]


@pytest.mark.parametrize(("name", "column", "bad"), CELLS)
def test_impossible_predictors_are_named(name, column, bad):
    (estimator, X, y), model = case(name), fitted(name)
    X[2, column] = bad
    least = "1 or more" if name in SCALINGS and not column else "above 0"
    rule = rf"is {bad:g} in row 2 \(1 of 6 rows are bad\): it must be {least}"
    if bad < 0:
        rule = "^Negative values in data passed to "
    for ask in (partial(estimator.fit, y=y), model.predict, model.predict_interval):
        with pytest.raises(FittingError, match=rule):
            ask(X)


SHAPES = {
    "empty": ([], [], "0 sample"),
    "one run": ([2e9], [1.0], "1 sample"),
    "one number": (2e9, [1.0, 2.0], "Expected 2D array, got scalar array"),
    "lengths": ([1e9, 2e9, 3e9], [1.0, 2.0], "inconsistent numbers of samples"),
    "two columns": ([[1e9, 2.0], [2e9, 2.0]], [1.0, 2.0], "n_features = 2: pass predictor only"),
    "three axes": (np.ones((2, 1, 1)), [1.0, 2.0], "dim 3"),
    "words": (["fast", "slow"], [1.0, 2.0], "could not convert string to float"),
    "no metric": ([1e9, 2e9], None, "but the target y is None"),
    "one predictor": ([2e9, 2e9, 2e9], [1.0, 2.0, 3.0], r"all 3 given are 2e\+09: measure at"),
    "rounding apart": ([2e9, 2e9 * (1 + 1e-15)], [1.0, 2.0], "two different predictor values"),
}


@pytest.mark.parametrize(
    "kind", [AmdahlRegression, ReciprocalRegression, LinearPower, CmosPower, LogPathLength]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_malformed_input_is_refused_in_one_line(kind, shape):
    X, y, message = SHAPES[shape]
    with pytest.raises(FittingError, match=message) as caught:
        kind().fit(X, y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", SCALINGS)
def test_malformed_runs_of_core_counts_are_refused(name):
    estimator, X, y = case(name)
    for table, times, message in (
        (X, y[:-1], "inconsistent numbers of samples"),
        (X[None], y, r"dim <= 2|with dim 3|Expected 2D array"),
        (np.ones((6, 5)), y, "n_features = 5"),
        (X[:0], [], "0 sample"),
        (X[[3, 3, 3]], y[:3], r"distinct .* but needs [23]: measure at more"),
    ):
        with pytest.raises(FittingError, match=message):
            estimator.fit(table, times)
    with pytest.raises(FittingError, match=r"is expecting . features"):
        fitted(name).predict(np.ones((8, 5)))


@pytest.mark.parametrize("name", LINES)
def test_points_to_predict_are_checked_as_those_to_fit(name):
    model = fitted(name)
    for X, message in (
        *(([], "0 sample"), (2e9, "got scalar array")),
        *(([[2e9, 1.0]], "X has 2 features"), ([None], "is nan in row 0")),
    ):
        with pytest.raises(FittingError, match=message) as caught:
            model.predict(X)
        assert "\n" not in str(caught.value)


def test_an_unknown_metric_is_refused_with_the_known_ones():
    message = r"^metric 'speed' is not one of time, cpi, throughput$"
    for kind in (AmdahlRegression, ReciprocalRegression):
        with pytest.raises(FittingError, match=message):
            kind(metric="speed").fit(STEPS, STEPS)


def test_published_coefficients_have_values_but_no_inference():
    for published in (
        ReciprocalRegression.from_coefficients(c=0.304, k_hz=250e6),
        LogPathLength.from_coefficients(a=-31500, b=70702, cores=(1, 9)),
    ):
        assert (published.degrees_of_freedom_, published.bound_) == (0, None)
        assert np.isnan([*published.standard_errors_.values()]).all()
        assert np.isnan(published.predict_interval([3.0])).all()
        with pytest.raises(FittingError, match="has coefficients but no runs: call fit"):
            published.statsmodels_results()


def test_an_unbounded_time_that_would_be_negative_is_refused():
    model = AmdahlRegression(bounded=False).fit([1e9, 2e9], [10, 4])
    np.testing.assert_allclose(model.parameters_["t_fixed_s"], -2, rtol=1e-12)
    assert np.isnan(model.limit_)
    with pytest.raises(OutOfRangeError, match=r"AmdahlRegression .*is not positive at 6\.5e\+09"):
        model.predict([3e9, 6.5e9])
    assert np.isnan(model.predict_interval([6.5e9])).all()


def test_all_is_sorted_and_resolves():
    assert fitting.__all__ == sorted(fitting.__all__)
    for name in fitting.__all__:
        value = getattr(fitting, name)
        assert callable(value)
        assert value.__name__ == name
    with pytest.raises(AttributeError, match="attribute nonsense"):
        _ = fitting.nonsense
    assert issubclass(OutOfRangeError, FittingError)
    assert issubclass(FittingError, ValueError)


@pytest.mark.parametrize("first", ["import fitting.laws.execution_time", "import fitting"])
def test_a_function_is_not_hidden_by_its_module_and_sklearn_waits(first):
    code = (
        f"{first}\nfrom fitting import execution_time, FittingError\nimport sys\n"
        "assert callable(execution_time) and callable(sys.modules['fitting'].execution_time)\n"
        "assert not {'sklearn', 'scipy', 'statsmodels', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


# scikit-learn's own checks; these fit random tables of several columns.
OF_OTHER_COLUMNS = (
    *("check_array_api_input", "check_dict_unchanged", "check_dont_overwrite_parameters"),
    *("check_dtype_object", "check_estimators_dtypes", "check_estimators_fit_returns_self"),
    *("check_estimators_nan_inf", "check_estimators_overwrite_params", "check_estimators_pickle"),
    *("check_f_contiguous_array_estimator", "check_fit2d_predict1d", "check_fit_check_is_fitted"),
    *("check_fit_idempotent", "check_fit_score_takes_y", "check_methods_sample_order_invariance"),
    *("check_methods_subset_invariance", "check_n_features_in"),
    *("check_n_features_in_after_fitting", "check_pipeline_consistency"),
    *("check_readonly_memmap_input", "check_regressor_data_not_an_array", "check_regressors_int"),
    *("check_regressors_no_decision_function", "check_regressors_train", "check_supervised_y_2d"),
)


def expected_failures(estimator):
    failures = dict.fromkeys(OF_OTHER_COLUMNS, "passes a random table, which X here never is")
    if not isinstance(estimator, ErnestScaling):
        failures["check_fit2d_1feature"] = "passes zeros, which are refused, not for their shape"
    if not isinstance(estimator, AmdahlScaling | UniversalScalability | ErnestScaling):
        failures["check_fit1d"] = "expects one dimension to be refused; here it is the one column"
    return failures


@parametrize_with_checks(
    [
        *(AmdahlRegression(), ReciprocalRegression(), LinearPower(), CmosPower(), LogPathLength()),
        *(AmdahlScaling(), UniversalScalability(), ErnestScaling()),
    ],
    expected_failed_checks=expected_failures,
    # From scikit-learn 1.8 on.
    **{"xfail_strict": True}
    if "xfail_strict" in signature(parametrize_with_checks).parameters
    else {},
)
def test_scikit_learn_checks(estimator, check):
    try:
        check(estimator)
    except SkipTest:
        raise
    except Exception:
        # pytest's own tracebacks parse scikit-learn's source anew, 0.2 s for each failure.
        pytest.fail(traceback.format_exc(), pytrace=False)
