"""Power curves: the published formula, scipy's curve_fit, a grid of exponents, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import curve_fit
from scipy.stats import t as student
from strategies import GHZ, frequencies, sizes

from fitting import CmosPower, FittingError, LinearPower, OutOfRangeError
from fitting.power import CmosExponent, CmosVoltage, FreeExponent, best_exponent

STEPS = np.array([1.2, 1.5, 1.8, 2.1, 2.4, 2.7, 3.0, 3.4]) * GHZ
NOISE = np.array([0.5, -0.4, 0.2, -0.3, 0.6, -0.5, 0.1, -0.2])
TABLE = {1e9: 0.8, 2e9: 1.0, 3e9: 1.3}


def cmos(f, p0, c, gamma):
    return p0 + c * (f / GHZ) ** gamma


# The straight line.


@given(frequencies(2, 2), sizes(1, 1e3), sizes(1, 1e3))
def test_linear_power_is_the_published_formula(f, p1, p2):
    f1, f2 = f
    p0 = (p2 * f1 - p1 * f2) / (f1 - f2)
    model = LinearPower().fit(f, [p1, p2])
    size = abs(p0) + abs(p1 - p0)
    np.testing.assert_allclose(model.parameters_["p0_w"], p0, rtol=1e-12, atol=1e-12 * size)
    at = np.array([f1, f2])
    np.testing.assert_allclose(model.predict(at), p0 + (p1 - p0) * at / f1, rtol=1e-9)
    np.testing.assert_allclose(model.predict(at), [p1, p2], rtol=1e-10)


def test_linear_power_worked_by_hand():
    model = LinearPower().fit([1.5e9, 2.5e9], [50, 70])
    np.testing.assert_allclose(model.parameters_["p0_w"], 20, rtol=1e-13)
    np.testing.assert_allclose(model.parameters_["slope_w_per_hz"], 20e-9, rtol=1e-13)
    np.testing.assert_allclose(model.predict([3.5e9]), [90], rtol=1e-13)
    assert model.limit_ == np.inf


def test_negative_power_is_no_answer():
    model = LinearPower().fit([1e9, 2e9], [10, 30])
    with pytest.raises(OutOfRangeError, match=r"LinearPower .* no positive answer at 4e\+08"):
        model.predict([0.4e9])


# A given exponent.


def test_cmos_power_worked_by_hand():
    # 12 W and 2 W at 1 GHz, cubed: 28 W at 2 GHz, 66 W at 3 GHz.
    model = CmosPower().fit([1e9, 2e9], [14, 28])
    assert model.exponent_ == 3
    assert np.isnan(model.exponent_error_)
    np.testing.assert_allclose(model.parameters_["p0_w"], 12, rtol=1e-13)
    np.testing.assert_allclose(model.parameters_["c_w_per_ghz_to_gamma"], 2, rtol=1e-13)
    np.testing.assert_allclose(model.predict([3e9]), [66], rtol=1e-13)


@given(frequencies(), st.floats(1, 5), sizes(1, 100), sizes(0.1, 10))
def test_given_exponent_gives_its_parameters_back(f, gamma, p0, c):
    model = CmosPower(exponent=gamma).fit(f, cmos(f, p0, c, gamma))
    np.testing.assert_allclose(model.predict(f), cmos(f, p0, c, gamma), rtol=1e-11)
    np.testing.assert_allclose(model.parameters_["c_w_per_ghz_to_gamma"], c, rtol=1e-8)


@pytest.mark.parametrize("exponent", [1.0, 5.0])
def test_exponents_of_one_and_of_five_are_taken(exponent):
    assert CmosExponent(exponent=exponent).abscissa(np.array([2e9])) == [2.0**exponent]


def test_exponent_one_is_the_straight_line():
    power = cmos(STEPS, 20, 8, 1.4) + NOISE
    line, curve = LinearPower().fit(STEPS, power), CmosPower(exponent=1).fit(STEPS, power)
    np.testing.assert_allclose(
        curve.predict_interval([4e9]), line.predict_interval([4e9]), rtol=1e-11
    )


@pytest.mark.parametrize("exponent", [0.99, 5.01, np.nan, -3])
def test_exponents_outside_one_to_five_are_refused(exponent):
    with pytest.raises(FittingError, match=r"^power exponent \S+ is outside 1 to 5$"):
        CmosPower(exponent=exponent).fit(STEPS, STEPS)


# A fitted exponent.


@given(frequencies(4), st.floats(1.05, 4.95), sizes(1, 100), sizes(0.5, 10))
def test_exponent_is_recovered_from_points_without_noise(f, gamma, p0, c):
    if np.ptp(f) < 1e9:
        return
    model = CmosPower(exponent=None).fit(f, cmos(f, p0, c, gamma))
    np.testing.assert_allclose(model.exponent_, gamma, rtol=1e-4)
    power = cmos(f, p0, c, gamma)
    np.testing.assert_allclose(model.predict(f), power, atol=1e-7 * power.max())


@pytest.mark.parametrize("gamma", [1.5, 2.4, 3.6])
def test_fitted_exponent_has_the_curve_errors_and_intervals_of_curve_fit(gamma):
    power = cmos(STEPS, 20, 4, gamma) + NOISE
    model = CmosPower(exponent=None).fit(STEPS, power)
    (p0, c, fitted), covariance = curve_fit(
        cmos, STEPS, power, p0=(15, 3, gamma), ftol=1e-15, xtol=1e-15, gtol=1e-15
    )
    np.testing.assert_allclose(model.exponent_, fitted, rtol=1e-6)
    np.testing.assert_allclose([*model.parameters_.values()], [p0, c], rtol=1e-5)
    errors = [*model.standard_errors_.values(), model.exponent_error_]
    np.testing.assert_allclose(errors, np.sqrt(np.diag(covariance)), rtol=1e-4)
    assert model.degrees_of_freedom_ == 5
    residual = power - cmos(STEPS, p0, c, fitted)
    variance = residual @ residual / 5
    np.testing.assert_allclose(model.model_fit_.line.variance, variance, rtol=1e-8)

    for at, repeats in ((3.9e9, 1), (2.2e9, 4), (3.9e9, np.inf)):
        ghz = at / GHZ
        gradient = np.array([1, ghz**fitted, c * ghz**fitted * np.log(ghz)])
        half = student(5).ppf(0.95) * np.sqrt(gradient @ covariance @ gradient + variance / repeats)
        np.testing.assert_allclose(
            np.ravel(model.predict_interval([at], repeats=repeats)),
            cmos(at, p0, c, fitted) + np.array([-half, half]),
            rtol=1e-5,
        )


def test_fitted_exponent_is_the_best_of_a_grid():
    rng = np.random.default_rng(11)
    for noise in (0.002, 0.05, 0.5):
        for _ in range(15):
            f = np.sort(rng.uniform(0.8, 4.0, rng.integers(3, 8))) * GHZ
            power = cmos(f, rng.uniform(0, 90), rng.uniform(0.1, 5), rng.uniform(1, 5))
            power *= np.exp(rng.normal(0, noise, len(f)))

            def squares(gamma, f=f, power=power):
                design = np.column_stack([np.ones_like(f), (f / GHZ) ** gamma])
                left = power - design @ np.linalg.lstsq(design, power)[0]
                return left @ left

            least = min(squares(gamma) for gamma in np.linspace(1, 5, 201))
            best = best_exponent(f, power)
            assert 1 <= best <= 5
            assert squares(best) <= least * (1 + 1e-9) + 1e-18 * (power @ power)


@pytest.mark.parametrize(("truth", "held"), [(0.5, 1.0), (7.0, 5.0)])
def test_an_exponent_at_its_end_costs_its_degree_of_freedom_and_has_no_error(truth, held):
    power = cmos(STEPS, 20, 4, truth) + 0.01 * NOISE
    model = CmosPower(exponent=None).fit(STEPS, power)
    assert model.exponent_ == held
    assert model.degrees_of_freedom_ == 5
    assert np.isnan(model.exponent_error_)
    given_exponent = CmosPower(exponent=held).fit(STEPS, power)
    np.testing.assert_array_equal(model.predict([4e9]), given_exponent.predict([4e9]))
    wide, narrow = (np.ptp(m.predict_interval([4e9])) for m in (model, given_exponent))
    assert wide > narrow


def test_units_of_frequency_do_not_change_the_fitted_curve():
    power = cmos(STEPS, 20, 4, 2.6) + NOISE
    hertz = CmosPower(exponent=None).fit(STEPS, power)
    gigahertz = CmosPower(exponent=None).fit(STEPS / GHZ, power)
    np.testing.assert_allclose(gigahertz.exponent_, hertz.exponent_, rtol=1e-6)
    np.testing.assert_allclose(
        gigahertz.predict_interval([4.0]), hertz.predict_interval([4e9]), rtol=1e-5
    )


def test_three_frequencies_give_a_curve_without_interval():
    f = np.array([1e9, 2e9, 3e9])
    model = CmosPower(exponent=None).fit(f, cmos(f, 10, 2, 2.5))
    np.testing.assert_allclose(model.exponent_, 2.5, rtol=1e-7)
    assert model.degrees_of_freedom_ == 0
    assert np.isnan(model.predict_interval([4e9])).all()
    assert np.isnan([*model.standard_errors_.values(), model.exponent_error_]).all()


def test_two_frequencies_cannot_give_an_exponent():
    with pytest.raises(FittingError, match="takes three different frequencies: give exponent="):
        CmosPower(exponent=None).fit([1e9, 2e9, 2e9], [10, 20, 21])


def test_power_that_does_not_change_has_a_flat_curve():
    model = CmosPower(exponent=None).fit(STEPS, np.full(8, 35.0))
    np.testing.assert_allclose(model.predict([9e9]), [35], rtol=1e-10)
    assert np.isfinite(model.predict_interval([9e9])).all()


def test_an_interval_never_goes_below_zero_watts():
    power = cmos(STEPS, 1, 0.05, 3) + np.abs(NOISE) * np.resize([1, 30], 8)
    lower, upper = CmosPower(exponent=None).fit(STEPS, power).predict_interval([9e9])
    assert lower[0] == 0 < upper[0]


def test_fitted_exponent_keeps_its_inference_when_a_parameter_is_set_afterwards():
    model = CmosPower(exponent=None).fit(STEPS, cmos(STEPS, 20, 4, 2.6) + NOISE)
    before = model.predict_interval([4e9])
    model.set_params(exponent=2.0)
    np.testing.assert_array_equal(model.predict_interval([4e9]), before)


def test_free_exponent_charges_the_fit_one_degree_of_freedom():
    model = CmosPower(exponent=2.0).fit(STEPS, cmos(STEPS, 20, 4, 2.0) + NOISE)
    free = FreeExponent.of(model.model_fit_, STEPS)
    assert free.fit.line.degrees_of_freedom[0] == model.degrees_of_freedom_ - 1
    np.testing.assert_allclose(free.fit.line.variance * 5, model.model_fit_.line.variance * 6)


# A table of voltages.


def test_voltages_worked_by_hand():
    # 10 W and 5 W/(GHz·V²): at 1.5 GHz the table reads 0.9 V, so 10 + 5·1.5·0.81.
    f = np.array([1e9, 2e9, 3e9])
    power = 10 + 5 * np.array([0.64, 2.0, 5.07])
    model = CmosPower(voltages=TABLE).fit(f, power)
    assert model.exponent_ is None
    np.testing.assert_allclose(model.predict([1.5e9]), [16.075], rtol=1e-12)
    np.testing.assert_allclose([*model.parameters_.values()], [10, 5], rtol=1e-11)
    assert np.isnan(model.limit_)


def test_a_table_takes_the_exponents_place_and_any_order():
    power = [14, 22, 37]
    expected = CmosPower(voltages=TABLE).fit([*TABLE], power)
    shuffled = dict(sorted(TABLE.items(), reverse=True))
    for exponent in (None, 1.0):
        other = CmosPower(exponent=exponent, voltages=shuffled).fit([*TABLE], power)
        np.testing.assert_array_equal(other.predict([2.5e9]), expected.predict([2.5e9]))
        np.testing.assert_array_equal(
            other.predict_interval([2.5e9]), expected.predict_interval([2.5e9])
        )


def test_a_table_that_changes_after_the_fit_does_not_change_the_fit():
    table = dict(TABLE)
    model = CmosPower(voltages=table).fit([*TABLE], [14, 22, 37])
    before = model.predict([2.5e9])
    table[3e9] = 9.0
    np.testing.assert_array_equal(model.predict([2.5e9]), before)


@pytest.mark.parametrize("at", [0.9e9, 3.1e9])
def test_outside_the_table_there_is_no_voltage(at):
    model = CmosPower(voltages=TABLE).fit([*TABLE], [14, 22, 37])
    message = rf"no voltage is known at {at / GHZ:g} GHz: .* 1 to 3 GHz; add that step"
    for ask in (model.predict, model.predict_interval):
        with pytest.raises(OutOfRangeError, match=message):
            ask([2e9, at])
    with pytest.raises(OutOfRangeError, match=message):
        CmosPower(voltages=TABLE).fit([1e9, at], [14, 22])


def test_the_ends_of_the_table_are_inside_in_spite_of_rounding():
    table = CmosVoltage(voltages={0.1 + 0.2: 1.0, 1.0: 1.0})
    np.testing.assert_allclose(table.abscissa(np.array([0.3, 1.0])), [3e-10, 1e-9], rtol=1e-12)


@pytest.mark.parametrize(
    "voltages", [{}, {1e9: 0.0}, {-1e9: 1.0}, {1e9: np.nan}, {np.inf: 1.0}, {0.0: 1.0}]
)
def test_tables_that_cannot_be_are_refused(voltages):
    with pytest.raises(FittingError, match=r"V-f table needs positive frequencies \(Hz\)"):
        CmosPower(voltages=voltages).fit(STEPS, STEPS)


def test_abscissa_is_in_gigahertz():
    np.testing.assert_allclose(CmosExponent(exponent=2).abscissa(np.array([3e9])), [9], rtol=1e-14)
