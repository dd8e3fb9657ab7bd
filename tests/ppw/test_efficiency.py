"""Performance per watt and per dollar, and the frequency of least energy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppw.efficiency import (
    break_even_price_ratio,
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
