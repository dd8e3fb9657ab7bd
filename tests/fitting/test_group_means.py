"""Means of the runs at a frequency, and their lack of fit: pandas and statsmodels as oracles."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from scipy.stats import f as f_distribution
from statsmodels.api import WLS

from fitting.bayes.posterior import SAME_STEP, MeasuredSteps, lack_of_fit, step_counts
from fitting.regression.lines import Repeats

PARTS = ("first", "count", "frequency", "log_value", "runs", "scatter", "scatter_df")


@st.composite
def tables(draw):
    """Rows of some of the groups, at frequencies 100 MHz apart that counters round a little."""
    groups, rows = draw(st.integers(1, 6)), draw(st.integers(0, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    nominal = rng.integers(8, 14, rows)
    jitter = draw(st.sampled_from([0.0, 0.3])) * SAME_STEP * rng.uniform(-1, 1, rows)
    columns = {
        "group": rng.integers(0, groups, rows),
        "nominal": nominal,
        "frequency": nominal * 1e8 * (1 + jitter),
        "log_value": rng.normal(3, 1, rows),
    }
    return pd.DataFrame(columns), groups


def steps_of(table, groups):
    columns = table[["group", "frequency", "log_value"]]
    return MeasuredSteps.of(*(columns[c].to_numpy() for c in columns), groups)


@given(tables())
def test_steps_are_those_of_pandas(made):
    table, groups = made
    steps = steps_of(table, groups)
    by_step = table.groupby(["group", "nominal"])
    runs = by_step.size()
    count = runs.groupby("group").size().reindex(range(groups), fill_value=0)
    np.testing.assert_array_equal(steps.count, count)
    np.testing.assert_array_equal(steps.first, np.cumsum(count) - count)
    np.testing.assert_array_equal(steps.runs, runs)
    np.testing.assert_allclose(steps.frequency, by_step["frequency"].mean(), rtol=1e-13)
    np.testing.assert_allclose(steps.log_value, by_step["log_value"].mean(), rtol=1e-12, atol=1e-12)
    apart = (table["log_value"] - by_step["log_value"].transform("mean")) ** 2
    scatter = apart.groupby(table["group"]).sum().reindex(range(groups), fill_value=0.0)
    np.testing.assert_allclose(steps.scatter, scatter, rtol=1e-9, atol=1e-12)
    rows = table.groupby("group").size().reindex(range(groups), fill_value=0)
    np.testing.assert_array_equal(steps.scatter_df, rows - count)
    shuffled = steps_of(table.sample(frac=1, random_state=1), groups)
    for part in PARTS:
        np.testing.assert_array_equal(getattr(shuffled, part), getattr(steps, part))


@given(tables())
def test_sweeps_hold_each_group_once_with_its_rising_steps(made):
    table, groups = made
    steps = steps_of(table, groups)
    able = np.flatnonzero(steps.count > 0)[::-1]
    seen = []
    for count in np.unique(steps.count[able]):
        where = np.flatnonzero(steps.count[able] == count)
        sweep = steps.sweep(able[where])
        seen += where.tolist()
        for row, group in enumerate(able[where]):
            at = slice(steps.first[group], steps.first[group] + steps.count[group])
            for part in ("frequency", "log_value", "runs"):
                np.testing.assert_array_equal(getattr(sweep, part)[row], getattr(steps, part)[at])
            for part in ("scatter", "scatter_df"):
                assert getattr(sweep, part)[row] == getattr(steps, part)[group]
            assert (np.diff(sweep.frequency[row]) > 0).all()
            highest = table.loc[table["group"] == group, "frequency"].max()
            np.testing.assert_allclose(sweep.frequency[row, -1], highest, rtol=SAME_STEP)
            top = steps.highest(np.array([group]))
            assert [*np.ravel(top)] == [sweep.frequency[row, -1], sweep.log_value[row, -1]]
    assert sorted(seen) == list(range(len(able)))


@pytest.mark.parametrize(("ratio", "steps"), [(0.0, 1), (0.9, 1), (1.1, 2), (50.0, 2)])
def test_frequencies_a_thousandth_apart_are_one_step(ratio, steps):
    frequency = 2e9 * np.array([1.0, 1 + ratio * SAME_STEP])
    made = MeasuredSteps.of(np.zeros(2, dtype=int), frequency, np.array([0.3, 0.5]), 1)
    np.testing.assert_array_equal(made.count, [steps])
    if steps == 1:
        np.testing.assert_allclose(made.frequency, [frequency.mean()])
        np.testing.assert_allclose(made.log_value, [0.4])
        np.testing.assert_allclose(made.scatter, [0.02])


@pytest.mark.parametrize("groups", [0, 3])
def test_no_rows_are_groups_without_steps(groups):
    nothing, whole = np.empty(0), np.empty(0, dtype=int)
    made = MeasuredSteps.of(whole, nothing, nothing, groups)
    for part in PARTS:
        of_group = part in ("first", "count", "scatter", "scatter_df")
        np.testing.assert_array_equal(getattr(made, part), np.zeros(groups * of_group))


@given(tables())
def test_runs_condensed_by_frequency_have_the_steps_of_all_runs(made):
    table, groups = made
    whole = steps_of(table, groups)
    points = table.groupby(["group", "frequency"], as_index=False)["log_value"].agg(
        ["size", "mean", lambda values: ((values - values.mean()) ** 2).sum()]
    )
    codes, frequency, *repeats = (points[c].to_numpy() for c in points)
    found = MeasuredSteps.of(codes, frequency, Repeats(*repeats), groups)
    for part in PARTS:
        expected = getattr(whole, part)
        np.testing.assert_allclose(getattr(found, part), expected, rtol=1e-9, atol=1e-9)
    assert step_counts(codes, frequency, groups).tolist() == whole.count.tolist()


F = np.array([1.2e9, 1.6e9, 2.0e9, 2.4e9])


def bend(times, frequency=F, usual=0.02):
    """Lack of fit of one group a row of times."""
    times = np.atleast_2d(times)
    groups, count = times.shape
    codes = np.repeat(np.arange(groups), count)
    steps = MeasuredSteps.of(codes, np.tile(frequency, groups), np.log(times).ravel(), groups)
    return lack_of_fit(steps, usual=usual)


ONCE, TWICE = [10.0, 8.1, 6.7, 6.2], [10, 10.1, 8, 8.1, 7, 7.1]


@pytest.mark.parametrize(("times", "repeats"), [(ONCE, 1), (TWICE, 2)])
def test_a_bend_is_that_of_statsmodels_weighted_line_and_its_f_test(times, repeats):
    frequency = np.repeat(np.linspace(1.2e9, 2.4e9, len(times) // repeats), repeats)
    made = bend(times, frequency)
    logs = np.log(times).reshape(-1, repeats)
    means = np.exp(logs.mean(axis=1))
    design = np.column_stack([np.ones(len(means)), 1e9 / frequency[::repeats]])
    fitted = WLS(means, design, weights=repeats / means**2).fit()
    relative = (means - fitted.fittedvalues) / means
    # The usual scatter counts as four degrees of freedom beside that of the repeats.
    scatter = ((logs - logs.mean(axis=1, keepdims=True)) ** 2).sum()
    freedom = logs.size - len(means) + 4
    spread = (scatter + 4 * 0.02**2) / freedom
    ratio = repeats * (relative**2).sum() / (len(means) - 2) / spread
    expected = f_distribution.sf(ratio, len(means) - 2, freedom)
    assert made.p_value[0] == pytest.approx(expected, rel=1e-9)
    assert made.at_top[0] == pytest.approx(relative[-1], rel=1e-9)


def test_two_steps_and_none_have_no_test():
    codes, f = np.array([0, 0]), np.array([1e9, 2e9])
    made = lack_of_fit(MeasuredSteps.of(codes, f, np.zeros(2), 2), usual=0.02)
    assert np.isnan([*made.p_value, *made.at_top]).all()
