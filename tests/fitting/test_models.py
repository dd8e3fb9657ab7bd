"""Every law that is a line: its transforms, limits and intervals, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import GHZ, frequencies, sizes, sweeps

from fitting.amdahl import AmdahlCpi, AmdahlRate, AmdahlTime
from fitting.line import FREE, LineFit, Moments
from fitting.models import Asymptote, ModelFit, fit, fit_table, share_of_limit
from fitting.path_length import LogCores
from fitting.power import CmosExponent, CmosVoltage, PowerLine
from fitting.reciprocal import ReciprocalCpi, ReciprocalRate, ReciprocalTime

TABLE = {f * GHZ: 0.6 + 0.15 * f for f in (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)}

# Each law with intercept and slope of a plausible line in it.
LAWS = {
    AmdahlTime(): (40.0, 9e10),
    AmdahlRate(): (1e-4, 2e6),
    AmdahlCpi(): (0.8, 4e-10),
    ReciprocalCpi(): (0.5, -4e8),
    ReciprocalRate(): (2e-6, -800.0),
    ReciprocalTime(): (2e-11, -5e-3),
    PowerLine(): (20.0, 1.5e-8),
    CmosExponent(exponent=2.4): (20.0, 1.5),
    LogCores(): (7e4, 1e4),
}
STEPS = np.array([1.2, 1.6, 2.0, 2.7, 3.4]) * GHZ

laws = pytest.mark.parametrize("model", LAWS, ids=lambda m: type(m).__name__)


def known(model, intercept, slope) -> ModelFit:
    """A law of given coefficients, one group each, without points behind it."""
    intercept, slope = np.atleast_1d(intercept).astype(float), np.atleast_1d(slope).astype(float)
    none = np.full_like(intercept, np.nan)
    moments = Moments(np.zeros(len(none), dtype=int), none, none, none, none, none)
    bound = np.full(len(none), FREE, dtype=np.int8)
    return ModelFit(
        model, LineFit(moments, intercept, slope, bound, np.zeros(len(none), int), none)
    )


def measured(model, at=STEPS) -> np.ndarray:
    wobble = 1 + 0.01 * np.resize([1.0, -0.8, 0.3, 0.6, -0.9], len(at))
    return known(model, *LAWS[model]).predict(at) * wobble


def noisy(model, at=STEPS) -> ModelFit:
    return fit(model, np.zeros(len(at), dtype=int), at, measured(model, at), 1)


def finite(values) -> np.ndarray:
    assert np.isfinite(values).all()
    return np.asarray(values)


@laws
def test_metric_inverts_ordinate(model):
    y = np.array([0.3, 2.0, 1e6])
    back = model.metric(model.ordinate(y, STEPS[:3]), STEPS[:3])
    np.testing.assert_allclose(back, y, rtol=1e-14)


@laws
@given(frequencies(), st.floats(0.1, 10), st.floats(0.1, 10))
def test_points_of_a_law_give_its_parameters_back(model, f, a, b):
    intercept, slope = LAWS[model]
    truth = known(model, a * intercept, b * slope)
    # Clear of the pole, where a metric of 1e15 says nothing about the rest.
    f = f[truth.line.value(model.abscissa(f)) > 1e-3 * abs(a * intercept)]
    if len(f) < 2:
        return
    metric = truth.predict(f)
    again = fit(model, np.zeros(len(f), dtype=int), f, metric, 1)
    at = 1.3 * f.max()
    np.testing.assert_allclose(again.predict(f), metric, rtol=1e-10)
    np.testing.assert_allclose(again.predict(at), truth.predict(at), rtol=1e-8)
    # A coefficient is known as well as the smaller of the two terms is of the sum.
    for name, value in again.parameters().items():
        np.testing.assert_allclose(value, truth.parameters()[name], rtol=1e-5)


@laws
def test_a_table_fits_as_its_rows_do(model):
    metric = finite(known(model, *LAWS[model]).predict(STEPS)) * np.array([[1.0], [1.2], [3.0]])
    metric = metric * (1 + 0.01 * np.random.default_rng(3).normal(size=metric.shape))
    table = fit_table(model, STEPS, metric)
    rows = fit(model, np.repeat(np.arange(3), 5), np.tile(STEPS, 3), metric.ravel(), 3)
    np.testing.assert_allclose(finite(table.predict(3e9)), rows.predict(3e9), rtol=1e-12)
    np.testing.assert_allclose(finite(table.interval(3e9)), rows.interval(3e9), rtol=1e-9)
    one = table.take(np.array([2]))
    np.testing.assert_array_equal(one.predict(3e9), table.predict(3e9)[2:])


@laws
def test_prediction_gathers_what_the_single_questions_answer(model):
    fitted = noisy(model)
    answer = fitted.prediction(3.9e9, level=0.8, repeats=2)
    np.testing.assert_array_equal(answer.value, fitted.predict(3.9e9))
    np.testing.assert_array_equal(answer[1:3], fitted.interval(3.9e9, level=0.8, repeats=2))
    np.testing.assert_array_equal(answer.limit, fitted.limit())
    np.testing.assert_array_equal(answer.limit_share, share_of_limit(answer.value, answer.limit))
    assert answer.lower[0] < answer.value[0] < answer.upper[0]


# Intervals through a transform.


@laws
def test_interval_is_the_set_of_metrics_whose_ordinate_is_in_the_lines_interval(model):
    fitted = noisy(model)
    at = np.asarray(3.9e9)
    low, high = fitted.line.interval(model.abscissa(at))
    lower, upper = fitted.interval(at)
    metrics = finite(np.linspace(0.5 * lower[0], 1.5 * upper[0], 3001))
    ordinate = model.ordinate(metrics, at)
    inside = (low <= ordinate) & (ordinate <= high)
    np.testing.assert_array_equal(inside, (lower <= metrics) & (metrics <= upper))
    assert 0 < np.count_nonzero(inside) < metrics.size


@pytest.mark.parametrize(
    ("model", "worst"),
    [
        (AmdahlRate(nonnegative=False), np.inf),
        (ReciprocalTime(), np.inf),
        (ReciprocalCpi(), np.inf),
        (ReciprocalRate(), 0.0),
        (AmdahlTime(), 0.0),
        (PowerLine(), 0.0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_an_end_that_the_line_puts_below_zero_is_the_end_of_what_a_metric_can_be(model, worst):
    exact = known(model, *LAWS[type(model)()]).predict(STEPS)
    metric = exact * np.array([1.9, 0.4, 1.7, 0.5, 1.4])
    fitted = fit(model, np.zeros(5, dtype=int), STEPS, metric, 1)
    lower, upper = fitted.interval(STEPS[2], level=0.999)
    assert (upper if worst else lower)[0] == worst
    other = (lower if worst else upper)[0]
    assert 0 < other < np.inf


@pytest.mark.parametrize("model", [AmdahlTime(nonnegative=False), PowerLine(), LogCores()])
def test_where_a_law_has_no_positive_answer_there_is_neither_value_nor_interval(model):
    x = np.array([1.0, 2.0, 3.0, 4.0])
    metric = {AmdahlTime: 12 / x - 2, PowerLine: 5 - x, LogCores: 2 - np.log(x)}[type(model)]
    metric = metric + np.array([0.01, -0.01, -0.01, 0.01])
    fitted = fit(model, np.zeros(4, dtype=int), x, metric, 1)
    beyond = 1e3
    assert np.isnan(fitted.predict(beyond))
    assert np.isnan(fitted.interval(beyond)).all()
    assert np.isfinite(fitted.interval(2.5)).all()
    assert np.isnan(fitted.limit())


@laws
def test_two_points_answer_without_interval(model):
    fitted = noisy(model, at=STEPS[:2])
    finite(fitted.predict(3e9))
    if fitted.line.bound[0] == FREE:
        assert np.isnan(fitted.interval(3e9)).all()
        assert np.isnan([*fitted.standard_errors().values()]).all()


# Limits.

ENDINGS = [
    (AmdahlTime(), 40, 9e10, 40),
    (AmdahlTime(), 0, 9e10, 0),
    (AmdahlTime(), 40, 0, 40),
    (AmdahlTime(nonnegative=False), -3, 9e10, np.nan),
    (AmdahlRate(), 0.01, 9e6, 100),
    (AmdahlRate(), 0, 9e6, np.inf),
    (AmdahlRate(nonnegative=False), -0.01, 9e10, np.nan),
    (AmdahlCpi(), 0.8, 4e-10, np.inf),
    (AmdahlCpi(), 0.8, 0, 0.8),
    (AmdahlCpi(nonnegative=False), 0.8, -1e-11, np.nan),
    (ReciprocalCpi(), 0.5, -4e8, 2),
    (ReciprocalCpi(), -0.1, 4e9, np.nan),
    (ReciprocalRate(), 0.5, -4e8, np.inf),
    (ReciprocalRate(), -0.1, 4e9, np.nan),
    (ReciprocalTime(), 0.5, -4e8, 0),
    (ReciprocalTime(), -0.1, 4e9, np.nan),
    (PowerLine(), 20, 1.5e-8, np.inf),
    (PowerLine(), 20, 0, 20),
    (PowerLine(), 20, -1e-9, np.nan),
    (CmosExponent(exponent=2.4), 20, 1.5, np.inf),
    (CmosExponent(exponent=2.4), 20, 0, 20),
    (CmosExponent(exponent=2.4), 20, -1, np.nan),
    (LogCores(), 7e4, 0, 7e4),
    (LogCores(), 7e4, 1e4, np.inf),
    (LogCores(), 7e4, -3e4, np.nan),
    (CmosVoltage(voltages=TABLE), 20, 1.5, np.nan),
    (AmdahlTime(), np.nan, np.nan, np.nan),
    (LogCores(), np.nan, np.nan, np.nan),
    (ReciprocalCpi(), np.nan, np.nan, np.nan),
]


@pytest.mark.parametrize(("model", "intercept", "slope", "limit"), ENDINGS)
def test_limits_by_the_signs_of_the_coefficients(model, intercept, slope, limit):
    np.testing.assert_allclose(known(model, intercept, slope).limit(), [limit], rtol=1e-14)


@pytest.mark.parametrize(
    ("model", "intercept", "slope", "limit"),
    [ending for ending in ENDINGS if not isinstance(ending[0], CmosVoltage | LogCores)],
)
def test_asymptote_is_what_the_law_predicts_far_out(model, intercept, slope, limit):
    curve = known(model, intercept, slope)
    far = 1e40
    asymptote = curve.asymptote()
    np.testing.assert_allclose(
        curve.predict(far), asymptote.coefficient * far**asymptote.exponent, rtol=1e-12
    )


def test_limit_of_an_asymptote_by_its_exponent():
    asymptote = Asymptote(np.array([3.0, 3.0, 3.0, np.nan]), np.array([0.0, 2.0, -1.0, 1.0]))
    np.testing.assert_array_equal(asymptote.limit(), [3, np.inf, 0, np.nan])


def test_share_of_limit_by_hand():
    value = np.array([50.0, 50.0, 7.0, 7.0, 7.0])
    limit = np.array([40.0, 100.0, 0.0, np.inf, np.nan])
    np.testing.assert_array_equal(share_of_limit(value, limit), [0.8, 0.5, 0, np.nan, np.nan])


# Error propagation.


@laws
@pytest.mark.parametrize("at", [0.9e9, 2e9, 4.4e9])
def test_noise_gain_and_relative_error_are_the_propagated_noise_of_the_points(model, at):
    fitted = noisy(model)
    assert fitted.line.bound[0] == FREE
    x, line = model.abscissa(STEPS), fitted.line
    y = model.ordinate(measured(model), STEPS)
    here = model.abscissa(np.asarray(at))
    # A least-squares line is linear in its points: shift them one by one.
    base = np.polynomial.Polynomial.fit(x, y, 1)(here)
    moved = [
        np.polynomial.Polynomial.fit(x, y + y.mean() * step, 1)(here) - base for step in np.eye(5)
    ]
    gain = np.linalg.norm(moved) / line.value(here)
    np.testing.assert_allclose(fitted.noise_gain(at), np.abs(gain), rtol=1e-8)
    spread = np.linalg.norm(np.divide(moved, y.mean())) ** 2 * line.variance + line.variance / 3
    np.testing.assert_allclose(
        fitted.relative_error(at, repeats=3), np.sqrt(spread) / line.value(here), rtol=1e-8
    )


@pytest.mark.parametrize(("fixed", "work", "percent"), [(40, 0, 8.5), (0, 9e10, 16.4)])
def test_two_adjacent_steps_make_a_long_lever(fixed, work, percent):
    f = np.array([1.2e9, 1.3e9])
    curve = fit(AmdahlTime(nonnegative=False), np.zeros(2, dtype=int), f, fixed + work / f, 1)
    np.testing.assert_allclose(curve.noise_gain(2.4e9), percent, rtol=0.005)


def test_published_coefficients_have_no_noise_to_propagate():
    curve = known(ReciprocalCpi(), 0.304, -250e6)
    assert np.isnan(curve.noise_gain(2e9))
    assert np.isnan(curve.relative_error(2e9))
    assert np.isnan(curve.interval(2e9)).all()
    assert np.isnan([*curve.standard_errors().values()]).all()


@laws
def test_parameters_and_errors_share_their_names_and_reproduce_the_law(model):
    fitted = noisy(model)
    names = [p.name for p in model.parameters]
    assert [*fitted.parameters()] == [*fitted.standard_errors()] == names
    a, b = (value[0] for value in fitted.parameters().values())
    f = 2.3e9
    by_equation = {
        "T(f) = t_fixed + w/f": a + b / f,
        "1/X(f) = t_fixed + w/f": 1 / (a + b / f),
        "CPI(f) = cpi_core + m·f": a + b * f,
        "1/CPI(f) = c − k/f": 1 / (a - b / f),
        "X(f) = c·f − k": a * f - b,
        "1/T(f) = c·f − k": 1 / (a * f - b),
        "P(f) = P0 + s·f": a + b * f,
        "P(f) = P0 + c·(f/GHz)^γ": a + b * 2.3**2.4,
        "PL(n) = a·ln(n) + b": a + b * np.log(f),
    }
    np.testing.assert_allclose(fitted.predict(f), by_equation[model.equation], rtol=1e-12)


# Units and odd input.


@given(sweeps(least=3), sizes(1e-3, 1e3))
@pytest.mark.parametrize("model", [AmdahlTime(), AmdahlRate(), AmdahlCpi(), PowerLine()], ids=repr)
def test_predictions_do_not_depend_on_units(model, sweep, unit):
    f, metric = sweep
    zeros = np.zeros(len(f), dtype=int)
    si = fit(model, zeros, f, metric, 1)
    other = fit(model, zeros, f / GHZ, metric * unit, 1)
    at = 1.2 * f.max()
    size = np.abs(metric).max()
    got, expected = other.predict(at / GHZ) / unit, si.predict(at)
    if np.isnan(expected) or expected < 1e-6 * size:
        return
    np.testing.assert_allclose(got, expected, rtol=1e-7)
    if si.line.bound[0] == other.line.bound[0]:
        np.testing.assert_allclose(
            np.divide(other.interval(at / GHZ), unit), si.interval(at), rtol=1e-5, atol=1e-9 * size
        )


def test_scalars_arrays_and_missing_predictors_are_answered_in_shape():
    fitted = noisy(AmdahlTime())
    one = fitted.predict(3e9)
    assert one.shape == (1,)
    np.testing.assert_array_equal(fitted.predict(np.array([3e9, 3e9])), [*one, *one])
    np.testing.assert_array_equal(fitted.predict(3_000_000_000), one)
    assert np.isnan(fitted.predict(np.nan))
    assert np.isnan(fitted.interval(np.array([np.nan, 3e9]))[0]).tolist() == [True, False]
    assert fitted.predict(np.array([])).shape == (0,)
