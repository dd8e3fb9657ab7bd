"""Laws of frequency and of cores: transforms, limits, intervals, published figures, brute force."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import curve_fit
from scipy.stats import t as student
from sklearn.base import clone
from strategies import GHZ, frequencies

from fitting import CmosPower, FittingError, LogPathLength, OutOfRangeError, ReciprocalRegression
from fitting.laws import frequency as fq
from fitting.laws.execution_time import LogCores, execution_time, positive_up_to
from fitting.laws.power import CmosExponent, CmosVoltage, FreeExponent, PowerLine, best_exponent
from fitting.regression.lines import FREE, Asymptote, LineFit, ModelFit, Moments, fit, fit_table

TABLE = {f * GHZ: 0.6 + 0.15 * f for f in (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)}

# Each law with intercept and slope of a plausible line in it.
LAWS = {
    fq.AmdahlTime(): (40.0, 9e10),
    fq.AmdahlRate(): (1e-4, 2e6),
    fq.AmdahlCpi(): (0.8, 4e-10),
    fq.ReciprocalCpi(): (0.5, -4e8),
    fq.ReciprocalRate(): (2e-6, -800.0),
    fq.ReciprocalTime(): (2e-11, -5e-3),
    PowerLine(): (20.0, 1.5e-8),
    CmosExponent(exponent=2.4): (20.0, 1.5),
    LogCores(): (7e4, 1e4),
}
STEPS = np.array([1.2, 1.6, 2.0, 2.7, 3.4]) * GHZ

laws = pytest.mark.parametrize("model", LAWS, ids=lambda m: type(m).__name__)


def known(model, intercept, slope):
    """A law of given coefficients, one group each, without points behind it."""
    intercept, slope = np.atleast_1d(intercept).astype(float), np.atleast_1d(slope).astype(float)
    none = np.full_like(intercept, np.nan)
    moments = Moments(np.zeros(len(none), dtype=int), none, none, none, none, none)
    bound = np.full(len(none), FREE, dtype=np.int8)
    line = LineFit(moments, intercept, slope, bound, np.zeros(len(none), int), none)
    return ModelFit(model, line)


def one(model, f, metric):
    f = np.asarray(f, dtype=float)
    return fit(model, np.zeros(len(f), dtype=int), f, np.asarray(metric, dtype=float), 1)


def measured(model):
    wobble = 1 + 0.01 * np.array([1.0, -0.8, 0.3, 0.6, -0.9])
    return known(model, *LAWS[model]).predict(STEPS) * wobble


def noisy(model):
    return one(model, STEPS, measured(model))


def finite(values):
    assert np.isfinite(values).all()
    return np.asarray(values)


@laws
class TestEveryLaw:
    @given(frequencies(), st.floats(0.1, 10), st.floats(0.1, 10))
    def test_points_of_a_law_give_its_parameters_back(self, model, f, a, b):
        intercept, slope = LAWS[model]
        truth = known(model, a * intercept, b * slope)
        # Clear of the pole, where a metric of 1e15 says nothing about the rest.
        f = f[truth.line.value(model.abscissa(f)) > 1e-3 * abs(a * intercept)]
        if len(f) < 2:
            return
        metric = truth.predict(f)
        again = one(model, f, metric)
        at = 1.3 * f.max()
        np.testing.assert_allclose(again.predict(f), metric, rtol=1e-10)
        np.testing.assert_allclose(again.predict(at), truth.predict(at), rtol=1e-8)
        # A coefficient is known as well as the smaller of the two terms is of the sum.
        for name, (value, _) in again.parameters().items():
            np.testing.assert_allclose(value, truth.parameters()[name][0], rtol=1e-5)

    def test_a_table_fits_as_its_rows_do(self, model):
        metric = finite(known(model, *LAWS[model]).predict(STEPS)) * np.array([[1.0], [1.2], [3.0]])
        metric = metric * (1 + 0.01 * np.random.default_rng(3).normal(size=metric.shape))
        table = fit_table(model, STEPS, metric)
        rows = fit(model, np.repeat(np.arange(3), 5), np.tile(STEPS, 3), metric.ravel(), 3)
        np.testing.assert_allclose(finite(table.predict(3e9)), rows.predict(3e9), rtol=1e-12)
        np.testing.assert_allclose(finite(table.interval(3e9)), rows.interval(3e9), rtol=1e-9)
        taken = table.take(np.array([2]))
        np.testing.assert_array_equal(taken.predict(3e9), table.predict(3e9)[2:])

    def test_parameters_and_errors_share_their_names_and_reproduce_the_law(self, model):
        fitted = noisy(model)
        assert (*fitted.parameters(),) == model.parameters
        a, b = (value[0] for value, _ in fitted.parameters().values())
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

    def test_interval_is_the_set_of_metrics_whose_ordinate_is_in_the_lines_interval(self, model):
        fitted = noisy(model)
        at = np.asarray(3.9e9)
        low, high = fitted.line.interval(model.abscissa(at))
        lower, upper = fitted.interval(at)
        metrics = finite(np.linspace(0.5 * lower[0], 1.5 * upper[0], 3001))
        ordinate = model.ordinate(metrics, at)
        inside = (low <= ordinate) & (ordinate <= high)
        np.testing.assert_array_equal(inside, (lower <= metrics) & (metrics <= upper))
        assert 0 < np.count_nonzero(inside) < metrics.size

    @pytest.mark.parametrize("at", [0.9e9, 2e9, 4.4e9])
    def test_noise_gain_and_relative_error_are_the_propagated_noise_of_the_points(self, model, at):
        fitted = noisy(model)
        assert fitted.line.bound[0] == FREE
        x, line = model.abscissa(STEPS), fitted.line
        y = model.ordinate(measured(model), STEPS)
        here = model.abscissa(np.asarray(at))
        # A least-squares line is linear in its points: shift them one by one.
        line_of = np.polynomial.Polynomial.fit
        base = line_of(x, y, 1)(here)
        moved = [line_of(x, y + y.mean() * step, 1)(here) - base for step in np.eye(5)]
        gain = np.linalg.norm(moved) / line.value(here)
        np.testing.assert_allclose(fitted.noise_gain(at), np.abs(gain), rtol=1e-8)
        spread = np.linalg.norm(np.divide(moved, y.mean())) ** 2 * line.variance + line.variance / 3
        expected = np.sqrt(spread) / line.value(here)
        np.testing.assert_allclose(fitted.relative_error(at, repeats=3), expected, rtol=1e-8)


def test_scalars_arrays_and_missing_predictors_are_answered_in_shape():
    fitted = noisy(fq.AmdahlTime())
    value = fitted.predict(3e9)
    assert value.shape == (1,)
    np.testing.assert_array_equal(fitted.predict(np.array([3e9, 3e9])), [*value, *value])
    np.testing.assert_array_equal(fitted.predict(3_000_000_000), value)
    assert np.isnan(fitted.predict(np.nan))
    assert np.isnan(fitted.interval(np.array([np.nan, 3e9]))[0]).tolist() == [True, False]
    assert fitted.predict(np.array([])).shape == (0,)


@pytest.mark.cases(
    "model, worst",
    *((fq.AmdahlRate(nonnegative=False), np.inf), (fq.ReciprocalTime(), np.inf)),
    *((fq.ReciprocalCpi(), np.inf), (fq.ReciprocalRate(), 0.0), (fq.AmdahlTime(), 0.0)),
    (PowerLine(), 0.0),
    ids=lambda m: type(m).__name__,
)
def test_an_end_that_the_line_puts_below_zero_is_the_end_of_what_a_metric_can_be(model, worst):
    exact = known(model, *LAWS[type(model)()]).predict(STEPS)
    fitted = one(model, STEPS, exact * np.array([1.9, 0.4, 1.7, 0.5, 1.4]))
    lower, upper = fitted.interval(STEPS[2], level=0.999)
    ends = (upper[0], lower[0]) if worst else (lower[0], upper[0])
    assert ends[0] == worst
    assert 0 < ends[1] < np.inf


@pytest.mark.parametrize("model", [fq.AmdahlTime(nonnegative=False), PowerLine(), LogCores()])
def test_where_a_law_has_no_positive_answer_there_is_neither_value_nor_interval(model):
    x = np.array([1.0, 2.0, 3.0, 4.0])
    metric = {fq.AmdahlTime: 12 / x - 2, PowerLine: 5 - x, LogCores: 2 - np.log(x)}[type(model)]
    fitted = one(model, x, metric + np.array([0.01, -0.01, -0.01, 0.01]))
    beyond = 1e3
    assert np.isnan(fitted.predict(beyond))
    assert np.isnan(fitted.interval(beyond)).all()
    assert np.isfinite(fitted.interval(2.5)).all()
    assert np.isnan(fitted.limit())


# Intercept, slope and limit.
ENDINGS = [
    (fq.AmdahlTime(), [(40, 9e10, 40), (0, 9e10, 0), (40, 0, 40), (np.nan, np.nan, np.nan)]),
    (fq.AmdahlTime(nonnegative=False), [(-3, 9e10, np.nan)]),
    (fq.AmdahlRate(), [(0.01, 9e6, 100), (0, 9e6, np.inf)]),
    (fq.AmdahlRate(nonnegative=False), [(-0.01, 9e10, np.nan)]),
    (fq.AmdahlCpi(), [(0.8, 4e-10, np.inf), (0.8, 0, 0.8)]),
    (fq.AmdahlCpi(nonnegative=False), [(0.8, -1e-11, np.nan)]),
    (fq.ReciprocalCpi(), [(0.5, -4e8, 2), (-0.1, 4e9, np.nan)]),
    (fq.ReciprocalRate(), [(0.5, -4e8, np.inf), (-0.1, 4e9, np.nan)]),
    (fq.ReciprocalTime(), [(0.5, -4e8, 0), (-0.1, 4e9, np.nan)]),
    (PowerLine(), [(20, 1.5e-8, np.inf), (20, 0, 20), (20, -1e-9, np.nan)]),
    (CmosExponent(exponent=2.4), [(20, 1.5, np.inf), (20, 0, 20), (20, -1, np.nan)]),
    (LogCores(), [(7e4, 0, 7e4), (7e4, 1e4, np.inf), (7e4, -3e4, np.nan)]),
    (CmosVoltage(voltages=TABLE), [(20, 1.5, np.nan)]),
]
ENDS = [(model, *ends) for model, rows in ENDINGS for ends in rows]


@pytest.mark.parametrize(("model", "intercept", "slope", "limit"), ENDS)
def test_limits_by_the_signs_of_coefficients_and_asymptotes(model, intercept, slope, limit):
    curve, far = known(model, intercept, slope), 1e40
    np.testing.assert_allclose(curve.limit(), [limit], rtol=1e-14)
    if not isinstance(model, CmosVoltage | LogCores):
        asymptote = curve.model.asymptote(curve.line)
        expected = asymptote.coefficient * far**asymptote.exponent
        np.testing.assert_allclose(curve.predict(far), expected, rtol=1e-12)


def test_limits_by_hand():
    asymptote = Asymptote(np.array([3.0, 3.0, 3.0, np.nan]), np.array([0.0, 2.0, -1.0, 1.0]))
    np.testing.assert_array_equal(asymptote.limit(), [3, np.inf, 0, np.nan])


JOULES = {"e_fixed_j": 30, "e_clock_j_hz": -12e9}


@pytest.mark.cases(
    "model, metric, parameters, at_3_ghz, limit",
    # 10 s fixed and 60e9 cycles: 60 s at 1.2 GHz, 40 s at 2 GHz.
    (fq.AmdahlTime(), (60, 40), {"t_fixed_s": 10, "work_cycles": 60e9}, 30, 10),
    (fq.AmdahlRate(), (1 / 60, 1 / 40), {"t_fixed_s": 10, "work_cycles": 60e9}, 1 / 30, 0.1),
    # One cycle of the core and half a nanosecond of stall an instruction.
    (fq.AmdahlCpi(), (1.6, 2), {"cpi_core": 1, "stall_s_per_instruction": 5e-10}, 2.5, np.inf),
    # 30 J less 12e9 J·Hz over the clock: 20 J at 1.2 GHz, 24 J at 2 GHz.
    (fq.AmdahlEfficiency(), (0.05, 1 / 24), JOULES, 1 / 26, None),
    ids=["time", "rate", "cpi", "work per joule"],
)
def test_amdahls_law_by_hand(model, metric, parameters, at_3_ghz, limit):
    fitted = one(model, [1.2e9, 2e9], metric)
    found = {name: value[0] for name, (value, _) in fitted.parameters().items()}
    assert found == pytest.approx(parameters, rel=1e-13, abs=0)
    np.testing.assert_allclose(fitted.predict(3e9), [at_3_ghz], rtol=1e-13)
    if limit:
        np.testing.assert_allclose(fitted.limit(), [limit], rtol=1e-13)


@pytest.mark.parametrize("model", [fq.AmdahlTime, fq.AmdahlRate, fq.AmdahlCpi])
def test_what_a_core_alone_cannot_do_is_held_at_the_bound_or_told(model):
    f = np.array([1.0, 1.5, 2.0, 3.0]) * GHZ
    impossible = {fq.AmdahlTime: f**-1.5, fq.AmdahlRate: f**1.5, fq.AmdahlCpi: f**-0.5}[model]
    held, free = one(model(), f, impossible), one(model(nonnegative=False), f, impossible)
    assert min(v[0] for v, _ in held.parameters().values()) == 0
    assert min(v[0] for v, _ in free.parameters().values()) < 0
    # Time per unit of work ends at a finite clock, where no rate or time is left to answer.
    assert np.isnan([free.predict(1e12), free.limit()]).all()
    assert held.predict(1e12)[0] > 0


# The published curve 1/CPI = c − k/f: Issa & Figueira (2012), fig. 13.

# c, k (MHz), {f (GHz): CPI}, bound of CPI, pole (MHz).
PUBLISHED = {
    "Atom": (0.304, 250, {1.66: 6.519, 1.80: 6.057, 3.0: 4.532}, 3.289, 822.4),
    "Westmere": (0.505, 402, {2.27: 3.050, 3.0: 2.695}, 1.980, 796.0),
}


@pytest.mark.parametrize("host", PUBLISHED)
def test_published_curve_gives_the_published_figures_and_none_at_or_below_its_pole(host):
    c, k_mhz, figures, bound, pole_mhz = PUBLISHED[host]
    curve = ReciprocalRegression.from_coefficients(c=c, k_hz=k_mhz * 1e6)
    cpi = curve.predict(np.array([*figures]) * GHZ)
    np.testing.assert_allclose(cpi, [*figures.values()], atol=0.0005)
    np.testing.assert_allclose(curve.limit_, bound, atol=0.001)
    np.testing.assert_allclose(curve.pole_hz_ / 1e6, pole_mhz, atol=0.05)
    assert "faster than 1/f" in curve.caveats_[0]
    message = r"^1/CPI.* cannot be computed at .* pole .*; ask above it"
    for share in (1.0, 0.999, 0.5):
        with pytest.raises(OutOfRangeError, match=message):
            curve.predict([3e9, share * curve.pole_hz_])
    assert curve.predict([1.001 * curve.pole_hz_])[0] > 100


def test_poles_of_curves_that_end_going_up_or_slow_with_the_clock():
    # 1/CPI = −0.2 + 1.2 GHz/f: nothing from 6 GHz on.
    curve = ReciprocalRegression().fit([1e9, 2e9], [1, 2.5])
    np.testing.assert_allclose(curve.pole_hz_, 6e9, rtol=1e-12)
    assert np.isnan(curve.limit_)
    assert curve.caveats_ == ()
    assert curve.predict([5.9e9])[0] > 100
    with pytest.raises(OutOfRangeError, match="ask below it"):
        curve.predict([6.1e9])
    curve = ReciprocalRegression().fit([1e9, 2e9], [1.0, 1.25])
    assert (curve.pole_hz_, curve.caveats_) == (0, ())
    np.testing.assert_allclose(curve.limit_, 1 / 0.6, rtol=1e-12)


@pytest.mark.parametrize("metric", ["time", "throughput"])
def test_refusal_prints_the_equation_of_its_metric(metric):
    f = np.array([1e9, 2e9])
    rate = 0.5e-9 * f - 0.3
    curve = ReciprocalRegression(metric=metric).fit(f, rate if metric == "throughput" else 1 / rate)
    np.testing.assert_allclose(curve.pole_hz_, 0.6e9, rtol=1e-12)
    message = r"= c·f − k cannot be computed at 0\.5 GHz.* 0\.6 GHz"
    with pytest.raises(OutOfRangeError, match=message):
        curve.predict([0.5e9])


EIGHT = np.array([1.2, 1.5, 1.8, 2.1, 2.4, 2.7, 3.0, 3.4]) * GHZ
NOISE = np.array([0.5, -0.4, 0.2, -0.3, 0.6, -0.5, 0.1, -0.2])
VOLTAGES = {1e9: 0.8, 2e9: 1.0, 3e9: 1.3}


def cmos(f, p0, c, gamma):
    return p0 + c * (f / GHZ) ** gamma


def test_given_exponents():
    # 12 W and 2 W at 1 GHz, cubed: 28 W at 2 GHz, 66 W at 3 GHz.
    model = CmosPower().fit([1e9, 2e9], [14, 28])
    assert model.exponent_ == 3
    assert np.isnan(model.exponent_error_)
    expected = {"p0_w": 12, "c_w_per_ghz_to_gamma": 2}
    assert model.parameters_ == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(model.predict([3e9]), [66], rtol=1e-13)
    for exponent in (1.0, 5.0):
        assert CmosExponent(exponent=exponent).abscissa(np.array([2e9])) == [2**exponent]


def test_impossible_coefficients_exponents_and_tables_are_refused():
    for c in (np.nan, np.inf):
        with pytest.raises(FittingError, match=r"1/CPI\(f\) = c − k/f needs finite coefficients"):
            ReciprocalRegression.from_coefficients(c=c, k_hz=1e8)
    for exponent in (0.99, 5.01, np.nan, -3):
        with pytest.raises(FittingError, match=r"^power exponent \S+ is not between 1 and 5$"):
            CmosPower(exponent=exponent).fit(EIGHT, EIGHT)
    for voltages in ({}, {1e9: 0.0}, {-1e9: 1.0}, {1e9: np.nan}, {np.inf: 1.0}, {0.0: 1.0}):
        with pytest.raises(FittingError, match=r"V-f table needs positive frequencies \(Hz\)"):
            CmosPower(voltages=voltages).fit(EIGHT, EIGHT)


@given(frequencies(4), st.floats(1.05, 4.95), st.floats(1, 100), st.floats(0.5, 10))
def test_exponent_is_recovered_from_points_without_noise(f, gamma, p0, c):
    if np.ptp(f) < 1e9:
        return
    power = cmos(f, p0, c, gamma)
    model = CmosPower(exponent=None).fit(f, power)
    np.testing.assert_allclose(model.exponent_, gamma, rtol=1e-4)
    np.testing.assert_allclose(model.predict(f), power, atol=1e-7 * power.max())


@pytest.mark.parametrize("gamma", [1.5, 2.4, 3.6])
def test_fitted_exponent_has_the_curve_errors_and_intervals_of_curve_fit(gamma):
    power = cmos(EIGHT, 20, 4, gamma) + NOISE
    model = CmosPower(exponent=None).fit(EIGHT, power)
    (p0, c, fitted), covariance = curve_fit(
        cmos, EIGHT, power, p0=(15, 3, gamma), ftol=1e-15, xtol=1e-15, gtol=1e-15
    )
    np.testing.assert_allclose(model.exponent_, fitted, rtol=1e-6)
    np.testing.assert_allclose([*model.parameters_.values()], [p0, c], rtol=1e-5)
    errors = [*model.standard_errors_.values(), model.exponent_error_]
    np.testing.assert_allclose(errors, np.sqrt(np.diag(covariance)), rtol=1e-4)
    assert model.degrees_of_freedom_ == 5
    residual = power - cmos(EIGHT, p0, c, fitted)
    variance = residual @ residual / 5
    np.testing.assert_allclose(model.model_fit_.line.variance, variance, rtol=1e-8)
    for at, repeats in ((3.9e9, 1), (2.2e9, 4), (3.9e9, np.inf)):
        ghz = at / GHZ
        gradient = np.array([1, ghz**fitted, c * ghz**fitted * np.log(ghz)])
        half = student(5).ppf(0.95) * np.sqrt(gradient @ covariance @ gradient + variance / repeats)
        expected = cmos(at, p0, c, fitted) + np.array([-half, half])
        ends = np.ravel(model.predict_interval([at], repeats=repeats))
        np.testing.assert_allclose(ends, expected, rtol=1e-5)


def test_fitted_exponent_is_the_best_of_a_grid():
    rng = np.random.default_rng(11)
    grid = np.linspace(1, 5, 101)
    for noise in np.repeat([0.002, 0.05, 0.5], 8):
        f = np.sort(rng.uniform(0.8, 4.0, rng.integers(3, 8))) * GHZ
        power = cmos(f, rng.uniform(0, 90), rng.uniform(0.1, 5), rng.uniform(1, 5))
        power *= np.exp(rng.normal(0, noise, len(f)))
        best = best_exponent(f, power)
        squares = []
        for gamma in (best, *grid):
            design = np.column_stack([np.ones_like(f), (f / GHZ) ** gamma])
            left = power - design @ np.linalg.lstsq(design, power)[0]
            squares.append(left @ left)
        assert 1 <= best <= 5
        assert squares[0] <= min(squares[1:]) * (1 + 1e-9) + 1e-18 * (power @ power)


@pytest.mark.parametrize(("truth", "held"), [(0.5, 1.0), (7.0, 5.0)])
def test_an_exponent_at_its_end_costs_its_degree_of_freedom_and_has_no_error(truth, held):
    power = cmos(EIGHT, 20, 4, truth) + 0.01 * NOISE
    model = CmosPower(exponent=None).fit(EIGHT, power)
    assert (model.exponent_, model.degrees_of_freedom_) == (held, 5)
    assert np.isnan(model.exponent_error_)
    given_exponent = CmosPower(exponent=held).fit(EIGHT, power)
    np.testing.assert_array_equal(model.predict([4e9]), given_exponent.predict([4e9]))
    wide, narrow = (np.ptp(m.predict_interval([4e9])) for m in (model, given_exponent))
    assert wide > narrow
    free = FreeExponent.of(given_exponent.model_fit_, EIGHT)
    assert free.fit.line.degrees_of_freedom[0] == 5
    variance = given_exponent.model_fit_.line.variance
    np.testing.assert_allclose(free.fit.line.variance * 5, variance * 6)
    np.testing.assert_allclose(free.interval(np.array([4e9])), model.predict_interval([4e9]))


def test_a_fitted_exponent_keeps_to_its_units_and_to_its_fit():
    power = cmos(EIGHT, 20, 4, 2.6) + NOISE
    hertz = CmosPower(exponent=None).fit(EIGHT, power)
    gigahertz = CmosPower(exponent=None).fit(EIGHT / GHZ, power)
    before = hertz.predict_interval([4e9])
    np.testing.assert_allclose(gigahertz.exponent_, hertz.exponent_, rtol=1e-6)
    np.testing.assert_allclose(gigahertz.predict_interval([4.0]), before, rtol=1e-5)
    # A parameter that is set afterwards changes nothing.
    hertz.set_params(exponent=2.0)
    np.testing.assert_array_equal(hertz.predict_interval([4e9]), before)


def test_few_frequencies_flat_power_and_none_below_zero_watts():
    f = np.array([1e9, 2e9, 3e9])
    model = CmosPower(exponent=None).fit(f, cmos(f, 10, 2, 2.5))
    np.testing.assert_allclose(model.exponent_, 2.5, rtol=1e-7)
    assert model.degrees_of_freedom_ == 0
    assert np.isnan(model.predict_interval([4e9])).all()
    assert np.isnan([*model.standard_errors_.values(), model.exponent_error_]).all()
    with pytest.raises(FittingError, match="needs three different frequencies: measure"):
        CmosPower(exponent=None).fit([1e9, 2e9, 2e9], [10, 20, 21])
    flat = CmosPower(exponent=None).fit(EIGHT, np.full(8, 35.0))
    np.testing.assert_allclose(flat.predict([9e9]), [35], rtol=1e-10)
    assert np.isfinite(flat.predict_interval([9e9])).all()
    power = cmos(EIGHT, 1, 0.05, 3) + np.abs(NOISE) * np.resize([1, 30], 8)
    lower, upper = CmosPower(exponent=None).fit(EIGHT, power).predict_interval([9e9])
    assert lower[0] == 0 < upper[0]


def test_voltages_by_hand():
    # 10 W and 5 W/(GHz·V²): at 1.5 GHz the table reads 0.9 V, so 10 + 5·1.5·0.81.
    table = dict(VOLTAGES)
    power = 10 + 5 * np.array([0.64, 2.0, 5.07])
    model = CmosPower(voltages=table).fit([*table], power)
    table[3e9] = 9.0  # A table that changes after the fit does not change the fit.
    assert model.exponent_ is None
    np.testing.assert_allclose(model.predict([1.5e9]), [16.075], rtol=1e-12)
    np.testing.assert_allclose([*model.parameters_.values()], [10, 5], rtol=1e-11)
    assert np.isnan(model.limit_)
    # It takes the exponent's place, in any order.
    shuffled = dict(sorted(VOLTAGES.items(), reverse=True))
    for exponent in (None, 1.0):
        other = CmosPower(exponent=exponent, voltages=shuffled).fit([*VOLTAGES], power)
        ends = [fitted.predict_interval([2.5e9]) for fitted in (model, other)]
        np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("at", [0.9e9, 3.1e9])
def test_outside_the_table_there_is_no_voltage(at):
    model = CmosPower(voltages=VOLTAGES).fit([*VOLTAGES], [14, 22, 37])
    message = rf"no voltage is known at {at / GHZ:g} GHz: .* 1 to 3 GHz; add that frequency"
    for ask in (model.predict, model.predict_interval, lambda f: clone(model).fit(f, [14, 22])):
        with pytest.raises(OutOfRangeError, match=message):
            ask([2e9, at])
    # Its ends are inside in spite of rounding.
    table = CmosVoltage(voltages={0.1 + 0.2: 1.0, 1.0: 1.0})
    np.testing.assert_allclose(table.abscissa(np.array([0.3, 1.0])), [3e-10, 1e-9], rtol=1e-12)


# Path length against cores: the published figures of Wordcount.

WORDCOUNT = {1: 70702, 2: 48868, 4: 27034, 8: 5200, 9: 1489}


def wordcount(**options):
    options = {"a": -31500, "b": 70702, "cores": (1, 9), "workload": "wordcount"} | options
    return LogPathLength.from_coefficients(**options)


def test_wordcount_has_the_published_figures():
    model = wordcount()
    np.testing.assert_array_equal(np.round(model.predict([*WORDCOUNT])), [*WORDCOUNT.values()])
    assert [round(model.at(n, workload="wordcount")) for n in WORDCOUNT] == [*WORDCOUNT.values()]
    np.testing.assert_allclose(model.positive_up_to_, 9.436, atol=0.0005)
    assert model.cores_ == (1, 9)
    assert np.isnan(model.limit_)
    n = np.array([1, 2, 4, 8])
    again = LogPathLength(workload="wordcount").fit(n, 70702 - 31500 * np.log(n))
    assert again.parameters_ == pytest.approx({"a": -31500, "b": 70702}, rel=1e-12)
    np.testing.assert_allclose(again.positive_up_to_, np.exp(70702 / 31500), rtol=1e-12)
    assert again.cores_ == (1.0, 8.0)
    # Past its root there is none.
    assert model.at(9.43) > 0
    message = r"positive at \S+ cores: .* 9\.436; predict below"
    for cores in (9.44, 10, 64):
        with pytest.raises(OutOfRangeError, match=message):
            model.at(cores)


def test_impossible_path_lengths_are_refused():
    with pytest.raises(FittingError, match="belongs to workload 'wordcount', not 'terasort'"):
        wordcount().at(4, workload="terasort")
    assert wordcount(workload=None).at(4, workload="terasort") == wordcount().at(4)
    with pytest.raises(OutOfRangeError, match="predict at more cores"):
        wordcount(a=100, b=-50).at(1)


def test_roots_and_limits_by_hand():
    assert positive_up_to(-2.0, 4.0) == pytest.approx(np.exp(2), rel=1e-14)
    assert positive_up_to(-0.5, 4.0) == pytest.approx(np.exp(8), rel=1e-14)
    assert positive_up_to(2.0, 4.0) == positive_up_to(0.0, 4.0) == np.inf
    # A nearly level path length reaches zero at no finite count.
    assert positive_up_to(-1e-9, 1e5) == np.inf
    model = LogPathLength().fit([1, 2, 4], [70702.0, 70702.0 - 1e-6, 70702.0])
    assert model.parameters_["a"] <= 0
    assert model.positive_up_to_ == np.inf
    for a, limit in ((0, 700.0), (2.0, np.inf), (-0.5, np.nan)):
        np.testing.assert_array_equal(wordcount(a=a, b=700.0).limit_, limit)


# Execution time: eq. 2 of Issa & Figueira (2012).

# 1000 units of data at 70702 instructions each and 6.519 cycles an instruction, 1.66 GHz.
RUN = {"data": 1000, "cpi": 6.519, "path_length": 70702, "frequency_hz": 1.66e9}
NAMES = [*RUN, "cores", "efficiency"]


def test_execution_time_by_hand():
    np.testing.assert_allclose(execution_time(**RUN), 0.2776544205, rtol=1e-9)
    # Two cores halve it, an overhead of a quarter lengthens it.
    assert execution_time(**RUN, cores=2) == pytest.approx(execution_time(**RUN) / 2)
    assert execution_time(**RUN, efficiency=1.25) == pytest.approx(execution_time(**RUN) * 1.25)
    # Integers do not overflow.
    big = np.array([10**13])
    whole = {"data": big, "cpi": np.array([2]), "path_length": big, "frequency_hz": 10**9}
    np.testing.assert_allclose(execution_time(**whole), [2e17], rtol=1e-14)


@pytest.mark.parametrize("name", NAMES[:5])
def test_each_argument_may_be_an_array_a_series_or_whole_numbers(name):
    values = [1, 2, 5]
    others = {"data": 3, "cpi": 2, "path_length": 7, "frequency_hz": 11, "cores": 13}
    expected = [execution_time(**others | {name: float(value)}) for value in values]
    for kind in (np.array, pd.Series):
        time = execution_time(**others | {name: kind(values)})
        assert isinstance(time, pd.Series if kind is pd.Series else np.ndarray)
        np.testing.assert_allclose(time, expected, rtol=1e-14)
    assert execution_time(**others | {name: np.array([])}).shape == (0,)
    missing = execution_time(**others | {name: np.array([np.nan, 2.0])})
    assert np.isnan(missing).tolist() == [True, False]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [0, -2098.0, np.array([1.0, np.nan, -3.0]), pd.Series([4, 0])])
def test_arguments_that_are_not_positive_are_named(name, bad):
    least = float(np.nanmin(bad))
    with pytest.raises(FittingError, match=rf"^{name} must be positive, but {least:g} was given"):
        execution_time(**RUN | {name: bad})
