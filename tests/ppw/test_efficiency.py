"""Performance per watt and per dollar, and the frequency of least energy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from ppw.efficiency import (
    break_even_price_ratio,
    least_ed2p_frequency,
    least_edp_frequency,
    least_energy_frequency,
    per_dollar_ratio,
    per_watt_ratio,
)
from ppw.errors import PpwError

STEPS = {"lowest_hz": 0.8e9, "highest_hz": 3.0e9}


def test_published_comparison():
    # Westmere to Atom: 14.79 times the work on 5.9 times the power.
    assert per_watt_ratio(14.79, 5.9) == pytest.approx(2.5068, abs=1e-4)
    assert per_dollar_ratio(14.79, 10) == pytest.approx(1.479)
    assert per_dollar_ratio(14.79, break_even_price_ratio(14.79)) == 1


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (per_watt_ratio, (2, 0), "power ratio 0 is not positive"),
        (per_dollar_ratio, (2, -1), "cost ratio -1 is not positive"),
        (break_even_price_ratio, (math.nan,), "speed-up nan is not positive"),
    ],
)
def test_ratios_must_be_positive(function, arguments, said):
    with pytest.raises(PpwError, match=said):
        function(*arguments)


def test_least_energy_worked_by_hand():
    # T = 10 s + 20e9/f, P = 30 W + 15 W/GHz·f: f* = sqrt(20·30/(10·15)) = 2 GHz.
    best = least_energy_frequency(
        t_fixed_s=10, work_cycles=20e9, p0_w=30, slope_w_per_hz=15e-9, **STEPS
    )
    assert best == pytest.approx(2e9, rel=1e-12)


@pytest.mark.parametrize(
    ("changed", "best"),
    [
        ({"t_fixed_s": 0}, 3.0e9),
        ({"slope_w_per_hz": 0}, 3.0e9),
        ({"slope_w_per_hz": -1e-9}, 3.0e9),
        ({"p0_w": 0}, 0.8e9),
        ({"p0_w": -5}, 0.8e9),
        ({"work_cycles": 1e12}, 3.0e9),
        ({"work_cycles": 1e9}, 0.8e9),
    ],
)
def test_least_energy_at_an_end(changed, best):
    curve = {"t_fixed_s": 10, "work_cycles": 20e9, "p0_w": 30, "slope_w_per_hz": 15e-9}
    assert least_energy_frequency(**(curve | changed), **STEPS) == best


@given(st.floats(0.01, 100), st.floats(1e8, 1e12), st.floats(0.1, 200), st.floats(1e-10, 1e-7))
def test_no_frequency_of_a_fine_grid_needs_less_energy(fixed, work, p0, slope):
    f = np.linspace(0.8e9, 3.0e9, 2001)
    energy = (fixed + work / f) * (p0 + slope * f)
    best = least_energy_frequency(
        t_fixed_s=fixed, work_cycles=work, p0_w=p0, slope_w_per_hz=slope, **STEPS
    )
    assert (fixed + work / best) * (p0 + slope * best) <= energy.min() * (1 + 1e-12)


PRODUCTS = {least_energy_frequency: 1, least_edp_frequency: 2, least_ed2p_frequency: 3}
CURVE = {"t_fixed_s": 10, "work_cycles": 20e9, "p0_w": 30, "slope_w_per_hz": 15e-9}


def product(f, delays, *, t_fixed_s, work_cycles, p0_w, slope_w_per_hz):
    return (p0_w + slope_w_per_hz * f) * (t_fixed_s + work_cycles / f) ** delays


def test_the_products_worked_by_hand():
    # w·s = 300, s·t·w·P0 = 90000: (300 + sqrt(90000 + 8·90000))/300 and (300 + sqrt(4·90000))/150.
    wide = {"lowest_hz": 1e8, "highest_hz": 1e10}
    assert least_edp_frequency(**CURVE, **wide) == pytest.approx(4e9, rel=1e-12)
    assert least_ed2p_frequency(**CURVE, **wide) == pytest.approx(6e9, rel=1e-12)


@pytest.mark.parametrize("function", PRODUCTS, ids=lambda f: f.__name__)
@given(st.floats(0.1, 100), st.floats(1e9, 1e11), st.floats(0, 200), st.floats(1e-9, 1e-7))
def test_against_scipy_minimisation(function, fixed, work, p0, slope):
    curve = {"t_fixed_s": fixed, "work_cycles": work, "p0_w": p0, "slope_w_per_hz": slope}
    delays = PRODUCTS[function]
    found = minimize_scalar(
        lambda x: np.log(product(np.exp(x), delays, **curve)),
        bounds=np.log([*STEPS.values()]),
        method="bounded",
        options={"xatol": 1e-10},
    )
    best = function(**curve, **STEPS)
    assert product(best, delays, **curve) <= np.exp(found.fun) * (1 + 1e-9)
    if 0.801e9 < np.exp(found.x) < 2.999e9:
        assert best == pytest.approx(np.exp(found.x), rel=1e-3)


@pytest.mark.parametrize("function", PRODUCTS, ids=lambda f: f.__name__)
@given(st.floats(-30, 0), st.floats(0.1, 100), st.floats(1e9, 1e11))
def test_negative_static_power_against_a_fine_grid(function, p0, fixed, work):
    curve = {"t_fixed_s": fixed, "work_cycles": work, "p0_w": p0, "slope_w_per_hz": 40e-9}
    f = np.linspace(*STEPS.values(), 4001)
    best = function(**curve, **STEPS)
    value = product(best, PRODUCTS[function], **curve)
    least = product(f, PRODUCTS[function], **curve).min()
    assert value <= least + 1e-6 * abs(least)


@pytest.mark.parametrize("function", PRODUCTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("changed", [{"t_fixed_s": 0}, {"slope_w_per_hz": 0}, {"t_fixed_s": -1}])
def test_the_products_fall_all_the_way_up(function, changed):
    assert function(**(CURVE | changed), **STEPS) == 3.0e9


def test_without_static_power_delay_still_counts():
    # P = s·f: EDP is s·f·(t + w/f)², least at w/t; ED²P at 2·w/t.
    curve = CURVE | {"p0_w": 0, "work_cycles": 12e9}
    assert least_energy_frequency(**curve, **STEPS) == 0.8e9
    assert least_edp_frequency(**curve, **STEPS) == pytest.approx(1.2e9)
    assert least_ed2p_frequency(**curve, **STEPS) == pytest.approx(2.4e9)
