"""Lack of fit: a worked regression, statsmodels' weighted line, false alarms, invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import f as f_distribution
from statsmodels.api import WLS

from fitting.lack_of_fit import lack_of_fit
from fitting.steps import Steps

F = np.array([1.2e9, 1.6e9, 2.0e9, 2.4e9])


def steps_of(times, frequency=F):
    """One group a row of times, one run a step."""
    times = np.atleast_2d(times)
    groups, count = times.shape
    codes = np.repeat(np.arange(groups), count)
    return Steps.of(codes, np.tile(frequency, groups), np.log(times).ravel(), groups)


def test_statsmodels_weighted_line_and_its_f_test():
    times = np.array([10.0, 8.1, 6.7, 6.2])
    made = lack_of_fit(steps_of(times), usual=0.02)
    design = np.column_stack([np.ones(4), 1e9 / F])
    fitted = WLS(times, design, weights=1 / times**2).fit()
    relative = (times - fitted.fittedvalues) / times
    ratio = (relative**2).sum() / 2 / 0.02**2
    assert made.p_value[0] == pytest.approx(f_distribution.sf(ratio, 2, 4), rel=1e-9)
    assert made.at_top[0] == pytest.approx(relative[-1], rel=1e-9)


def test_repeats_judge_the_scatter():
    rows = np.array([[10, 10.1, 8, 8.1, 7, 7.1]])
    frequency = np.array([1.2e9, 1.2e9, 1.8e9, 1.8e9, 2.4e9, 2.4e9])
    made = lack_of_fit(steps_of(rows, frequency), usual=0.02)
    logs = np.log(rows[0]).reshape(3, 2)
    scatter = ((logs - logs.mean(axis=1, keepdims=True)) ** 2).sum()
    spread = (scatter + 4 * 0.02**2) / (3 + 4)
    means = np.exp(logs.mean(axis=1))
    design = np.column_stack([np.ones(3), 1e9 / frequency[::2]])
    fitted = WLS(means, design, weights=2 / means**2).fit()
    squares = 2 * (((means - fitted.fittedvalues) / means) ** 2).sum()
    assert made.p_value[0] == pytest.approx(f_distribution.sf(squares / spread, 1, 7), rel=1e-9)


@pytest.mark.parametrize(("top", "sign"), [(1.25, 1), (0.8, -1)], ids=["gains less", "gains more"])
def test_a_bend_at_the_top_is_found_with_its_direction(top, sign):
    times = 2 + 12e9 / F
    times[-1] *= top
    made = lack_of_fit(steps_of(times), usual=0.02)
    assert made.p_value[0] < 1e-2
    assert np.sign(made.at_top[0]) == sign


def test_noise_of_the_usual_size_is_no_bend():
    rng = np.random.default_rng(1)
    times = (2 + 12e9 / F) * np.exp(0.02 * rng.standard_normal((4000, 4)))
    share = (lack_of_fit(steps_of(times), usual=0.02).p_value < 0.05).mean()
    # The usual scatter counts as four degrees of freedom, so the test is a careful one.
    assert share < 0.05


def test_two_steps_and_none_have_no_test():
    codes, f = np.array([0, 0]), np.array([1e9, 2e9])
    made = lack_of_fit(Steps.of(codes, f, np.zeros(2), 2), usual=0.02)
    assert np.isnan(made.p_value).all()
    assert np.isnan(made.at_top).all()


@given(st.floats(1e-3, 1e6), st.floats(0.1, 10))
def test_units_do_not_matter(seconds, hertz):
    times = np.array([10.0, 8.1, 6.7, 6.2])
    plain = lack_of_fit(steps_of(times), usual=0.02)
    scaled = lack_of_fit(steps_of(times * seconds, F * hertz), usual=0.02)
    np.testing.assert_allclose(scaled.p_value, plain.p_value, rtol=1e-6)
    np.testing.assert_allclose(scaled.at_top, plain.at_top, rtol=1e-6, atol=1e-12)
