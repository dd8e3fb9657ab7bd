"""The estimators: statsmodels and the batch fits as oracles, every kind of input, scikit-learn."""

from __future__ import annotations

import pickle
import subprocess
import sys
import traceback
import warnings
from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn_checks import OF_OTHER_COLUMNS
from strategies import sweeps

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
from fitting.models import fit

STEPS = np.array([1.2, 1.5, 1.8, 2.1, 2.6, 3.3]) * 1e9
WOBBLE = 1 + 0.01 * np.array([1.0, -0.6, 0.3, 0.9, -1.1, -0.4])
IPC = 0.304 - 250e6 / STEPS

# An estimator, what it measures at STEPS, and its line: ordinate against abscissa.
CASES = {
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
LINES = {
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
cases = pytest.mark.parametrize("name", CASES)


def case(name):
    estimator, metric = CASES[name]
    return clone(estimator), metric * WOBBLE


def fitted(name):
    estimator, metric = case(name)
    return estimator.fit(STEPS, metric)


def learned(estimator) -> np.ndarray:
    at = STEPS[[1, 3]]
    return np.concatenate(
        [
            [*estimator.parameters_.values()],
            [*estimator.standard_errors_.values()],
            estimator.predict(at),
            *estimator.predict_interval(at),
        ]
    )


# Oracles.


@pytest.mark.parametrize("name", LINES)
def test_coefficients_errors_and_confidence_are_those_of_statsmodels(name):
    estimator, metric = case(name)
    estimator.fit(STEPS, metric)
    assert estimator.bound_ is None
    abscissa, ordinate = LINES[name]
    x = np.column_stack([np.ones(6), abscissa])
    ols = sm.OLS(ordinate(metric), x).fit()
    np.testing.assert_allclose([*estimator.parameters_.values()], ols.params, rtol=1e-10)
    np.testing.assert_allclose([*estimator.standard_errors_.values()], ols.bse, rtol=1e-10)
    assert estimator.degrees_of_freedom_ == ols.df_resid
    frame = ols.get_prediction(x).summary_frame(alpha=0.1)
    ends = np.sort(ordinate(np.array(estimator.predict_interval(STEPS))), axis=0)
    np.testing.assert_allclose(ends, [frame.obs_ci_lower, frame.obs_ci_upper], rtol=1e-10)
    ends = np.sort(ordinate(np.array(estimator.predict_interval(STEPS, repeats=np.inf))), axis=0)
    np.testing.assert_allclose(ends, [frame.mean_ci_lower, frame.mean_ci_upper], rtol=1e-10)


@pytest.mark.parametrize("name", LINES)
def test_statsmodels_results_are_the_same_regression_by_name(name):
    estimator = fitted(name)
    results = estimator.statsmodels_results()
    parameters = estimator.parameters_
    assert [*results.params.index] == [*parameters]
    np.testing.assert_allclose(results.params, [*parameters.values()], rtol=1e-10)
    np.testing.assert_allclose(results.bse, [*estimator.standard_errors_.values()], rtol=1e-10)
    assert results.get_influence().hat_matrix_diag.sum() == pytest.approx(2)
    robust = results.get_robustcov_results("HC3")
    np.testing.assert_allclose(robust.params, [*parameters.values()], rtol=1e-10)


def test_statsmodels_results_take_the_fitted_exponent_as_known():
    estimator = fitted("free exponent")
    results = estimator.statsmodels_results()
    np.testing.assert_allclose(results.params, [*estimator.parameters_.values()], rtol=1e-10)
    assert results.df_resid == estimator.degrees_of_freedom_ + 1
    assert (results.bse < [*estimator.standard_errors_.values()]).all()


@pytest.mark.parametrize(("power", "held"), [(-1.3, "t_fixed_s"), (0.2, "work_cycles")])
def test_a_parameter_on_its_bound_is_named_and_left_out_of_the_inference(power, held):
    time = 60 * (STEPS / 1e9) ** power * WOBBLE
    estimator = AmdahlRegression().fit(STEPS, time)
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


@given(sweeps(least=3))
def test_estimator_is_the_one_group_case_of_the_batch_fit(sweep):
    f, time = sweep
    estimator = AmdahlRegression().fit(f, time)
    batch = fit(
        estimator.model_fit_.model,
        np.repeat([0, 1], len(f)),
        np.tile(f, 2),
        np.concatenate([2 * time, time]),
        2,
    )
    at = 1.2 * f.max()
    np.testing.assert_allclose(estimator.predict([at])[0], batch.predict(at)[1], rtol=1e-12)
    np.testing.assert_allclose(
        np.ravel(estimator.predict_interval([at])), np.array(batch.interval(at))[:, 1], rtol=1e-9
    )


def test_score_is_the_share_of_variance_explained():
    estimator, metric = case("time")
    value = estimator.fit(STEPS, metric).predict(STEPS)
    assert len(estimator.model_fit_.line.slope) == 1
    expected = 1 - ((metric - value) ** 2).sum() / ((metric - metric.mean()) ** 2).sum()
    np.testing.assert_allclose(estimator.score(STEPS[:, None], metric), expected, rtol=1e-12)


# What is asked of every estimator.


@pytest.mark.parametrize("name", LINES)
def test_two_points_give_values_without_errors(name):
    estimator, metric = case(name)
    estimator.fit(STEPS[:2], metric[:2])
    assert np.isfinite(estimator.predict(STEPS[:3])).all()
    if estimator.bound_ is None:
        assert estimator.degrees_of_freedom_ == 0
        assert np.isnan(estimator.predict_interval(STEPS)).all()
        assert np.isnan([*estimator.standard_errors_.values()]).all()


@cases
def test_any_array_like_gives_the_same_fit(name):
    estimator, metric = case(name)
    expected = learned(clone(estimator).fit(STEPS, metric))
    whole = STEPS.astype(np.int64)
    read_only = STEPS[:, None].copy()
    read_only.flags.writeable = False
    for X in (
        STEPS[:, None],
        STEPS.tolist(),
        whole,
        whole.tolist(),
        read_only,
        pd.Series(STEPS),
        pd.Series(STEPS, index=range(9, 3, -1)),
        STEPS.astype(object),
    ):
        np.testing.assert_allclose(
            learned(clone(estimator).fit(X, pd.Series(metric))), expected, rtol=1e-13
        )
        model = clone(estimator).fit(STEPS, metric.tolist())
        np.testing.assert_array_equal(model.predict(X), model.predict(STEPS))
        np.testing.assert_array_equal(model.predict_interval(X), model.predict_interval(STEPS))


@cases
def test_a_frame_of_one_named_column_keeps_its_name(name):
    estimator, metric = case(name)
    frame = pd.DataFrame({"freq_hz": STEPS})
    estimator.fit(frame, metric)
    assert estimator.feature_names_in_.tolist() == ["freq_hz"]
    np.testing.assert_array_equal(estimator.predict(frame), fitted(name).predict(STEPS))
    with pytest.raises(FittingError, match=r"feature names should match .* - speed"):
        estimator.predict(frame.rename(columns={"freq_hz": "speed"}))


@cases
def test_whole_number_metrics_fit_as_floats(name):
    estimator, metric = case(name)
    whole = np.ceil(metric * 1000 / metric.min()).astype(np.int64)
    expected = clone(estimator).fit(STEPS, whole.astype(float))
    np.testing.assert_array_equal(learned(clone(estimator).fit(STEPS, whole)), learned(expected))


@cases
@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_predictors_that_cannot_be_are_named(name, bad):
    estimator, metric = case(name)
    wrong = STEPS.copy()
    wrong[2] = bad
    model = fitted(name)
    for ask in (
        lambda: estimator.fit(wrong, metric),
        lambda: model.predict(wrong),
        lambda: model.predict_interval(wrong),
    ):
        with pytest.raises(FittingError, match=rf"^X must be .*; element 2 is {bad:g}: .*$"):
            ask()
    with pytest.raises(FittingError, match=r"^Negative values in data passed to \w+ as X$"):
        estimator.fit(-STEPS, metric)


@cases
@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_metrics_that_cannot_be_are_named(name, bad):
    estimator, metric = case(name)
    metric[3] = bad
    with pytest.raises(FittingError, match=r"^\w*.*(y must be .* element 3|y contains).*$"):
        estimator.fit(STEPS, metric)


SHAPES = {
    "empty": ([], [], "0 sample"),
    "one run": ([2e9], [1.0], "1 sample"),
    "one number": (2e9, [1.0, 2.0], "Expected 2D array, got scalar array"),
    "lengths": ([1e9, 2e9, 3e9], [1.0, 2.0], "inconsistent numbers of samples"),
    "two columns": ([[1e9, 2.0], [2e9, 2.0]], [1.0, 2.0], "one column of predictors, not 2"),
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


@cases
def test_points_to_predict_are_checked_as_those_to_fit(name):
    model = fitted(name)
    for X, message in (
        ([], "0 sample"),
        (2e9, "got scalar array"),
        ([[2e9, 1.0]], "X has 2 features"),
        ([None], "element 0 is nan"),
    ):
        with pytest.raises(FittingError, match=message) as caught:
            model.predict(X)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [AmdahlRegression, ReciprocalRegression])
def test_an_unknown_metric_is_refused_with_the_known_ones(kind):
    with pytest.raises(FittingError, match=r"^metric 'speed' is not one of time, cpi, throughput$"):
        kind(metric="speed").fit(STEPS, STEPS)


@cases
@pytest.mark.parametrize("options", [{"level": 90}, {"level": 0.0}, {"repeats": 0}])
def test_levels_and_repeats_that_cannot_be_are_refused(name, options):
    with pytest.raises(FittingError, match=r"^(interval level|repeats is)"):
        fitted(name).predict_interval([2e9], **options)


@cases
def test_unfitted_estimators_say_so(name):
    estimator = case(name)[0]
    for ask in (estimator.predict, estimator.predict_interval):
        with pytest.raises(NotFittedError):
            ask(STEPS)
    with pytest.raises(NotFittedError):
        estimator.statsmodels_results()


@pytest.mark.parametrize(
    "published",
    [
        ReciprocalRegression.from_coefficients(c=0.304, k_hz=250e6),
        LogPathLength.from_coefficients(a=-31500, b=70702, cores=(1, 9)),
    ],
)
def test_published_coefficients_have_values_but_no_inference(published):
    assert published.degrees_of_freedom_ == 0
    assert np.isnan([*published.standard_errors_.values()]).all()
    assert np.isnan(published.predict_interval([3.0])).all()
    assert published.bound_ is None
    with pytest.raises(FittingError, match="has coefficients but no runs: fit it"):
        published.statsmodels_results()


def test_an_unbounded_time_that_would_be_negative_is_refused():
    model = AmdahlRegression(bounded=False).fit([1e9, 2e9], [10, 4])
    np.testing.assert_allclose(model.parameters_["t_fixed_s"], -2, rtol=1e-12)
    assert np.isnan(model.limit_)
    with pytest.raises(
        OutOfRangeError, match=r"AmdahlRegression .*no positive answer at 6\.5e\+09"
    ):
        model.predict([3e9, 6.5e9])
    assert np.isnan(model.predict_interval([6.5e9])).all()


# scikit-learn's habits that its own checks cannot see on one positive column.


@cases
def test_scikit_learn_habits_hold_on_valid_input(name):
    estimator, metric = case(name)
    before = estimator.get_params()
    assert estimator.fit(STEPS, metric) is estimator
    assert estimator.get_params() == before
    assert estimator.n_features_in_ == 1
    state = {key: repr(value) for key, value in vars(estimator).items()}
    expected = learned(estimator)
    estimator.score(STEPS[:, None], metric)
    assert {key: repr(value) for key, value in vars(estimator).items()} == state
    np.testing.assert_array_equal(learned(pickle.loads(pickle.dumps(estimator))), expected)
    np.testing.assert_array_equal(learned(estimator.fit(STEPS, metric)), expected)
    order = np.array([3, 0, 5, 1, 4, 2])
    shuffled = clone(estimator).fit(STEPS[order], metric[order])
    np.testing.assert_allclose(learned(shuffled), expected, rtol=1e-6)
    np.testing.assert_array_equal(estimator.predict(STEPS[order]), estimator.predict(STEPS)[order])
    new = set(vars(estimator)) - set(estimator.get_params())
    assert all(key.startswith("_") or key.endswith("_") for key in new)


def test_cross_validation_runs():
    estimator, metric = case("time")
    scores = cross_val_score(estimator, STEPS[:, None], metric, cv=3)
    assert (scores > 0.8).all()


def test_a_column_of_metrics_warns_and_fits():
    estimator, metric = case("time")
    with pytest.warns(DataConversionWarning):
        model = clone(estimator).fit(STEPS, metric[:, None])
    np.testing.assert_array_equal(learned(model), learned(estimator.fit(STEPS, metric)))


@cases
def test_learned_scalars_are_plain_numbers(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator = fitted(name)
    numbers = [*estimator.parameters_.values(), *estimator.standard_errors_.values()]
    assert {type(number) for number in [*numbers, estimator.limit_]} == {float}
    assert type(estimator.degrees_of_freedom_) is int


# The package.


def test_all_is_sorted_and_resolves():
    assert fitting.__all__ == sorted(fitting.__all__)
    for name in fitting.__all__:
        value = getattr(fitting, name)
        assert callable(value)
        assert value.__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fitting.nonsense


def test_errors_are_one_tree_of_value_errors():
    assert issubclass(OutOfRangeError, FittingError)
    assert issubclass(FittingError, ValueError)


@pytest.mark.parametrize("first", ["import fitting.execution_time", "import fitting"])
def test_a_function_is_not_hidden_by_its_module_and_sklearn_waits(first):
    code = (
        f"{first}\nfrom fitting import execution_time, FittingError\nimport sys\n"
        "assert callable(execution_time) and callable(sys.modules['fitting'].execution_time)\n"
        "assert not {'sklearn', 'scipy', 'statsmodels', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


# scikit-learn's own checks.

EXPECTED_FAILURES = dict.fromkeys(
    OF_OTHER_COLUMNS, "passes a table of several columns; X here is one column"
) | {
    "check_fit1d": "expects one dimension to be refused; here it is the one column",
    "check_fit2d_1feature": "passes a zero, which is refused as a predictor, not for its shape",
}


@parametrize_with_checks(
    [AmdahlRegression(), ReciprocalRegression(), LinearPower(), CmosPower(), LogPathLength()],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
    xfail_strict=True,
)
def test_scikit_learn_checks(estimator, check):
    try:
        check(estimator)
    except SkipTest:
        raise
    except Exception:
        # pytest's own tracebacks parse scikit-learn's source anew, 0.2 s for each failure.
        pytest.fail(traceback.format_exc(), pytrace=False)
