"""Runs condensed to steps: pandas' groupby as the oracle."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting.line import Repeats
from fitting.steps import SAME_STEP, Steps, step_counts

PARTS = ("first", "count", "frequency", "log_value", "runs", "scatter", "scatter_df")


@st.composite
def tables(draw: st.DrawFn) -> tuple[pd.DataFrame, int]:
    """Rows of some of the groups, at clocks 100 MHz apart that counters round a little."""
    groups, rows = draw(st.integers(1, 6)), draw(st.integers(0, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    nominal = rng.integers(8, 14, rows)
    jitter = draw(st.sampled_from([0.0, 0.3])) * SAME_STEP * rng.uniform(-1, 1, rows)
    table = pd.DataFrame(
        {
            "group": rng.integers(0, groups, rows),
            "nominal": nominal,
            "frequency": nominal * 1e8 * (1 + jitter),
            "log_value": rng.normal(3, 1, rows),
        }
    )
    return table, groups


def steps_of(table: pd.DataFrame, groups: int) -> Steps:
    columns = (table[c].to_numpy() for c in ("group", "frequency", "log_value"))
    return Steps.of(*columns, groups)


def check_equal(one: Steps, other: Steps):
    for part in PARTS:
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))


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


@given(tables(), st.integers(0, 99))
def test_order_of_rows_is_of_no_account(made, seed):
    table, groups = made
    check_equal(steps_of(table.sample(frac=1, random_state=seed), groups), steps_of(table, groups))


@given(tables())
def test_sweeps_hold_each_group_once_with_its_rising_steps(made):
    table, groups = made
    steps = steps_of(table, groups)
    able = np.flatnonzero(steps.count > 0)[::-1]
    seen = []
    for where, sweep in steps.by_count(able):
        seen += where.tolist()
        for row, group in enumerate(able[where]):
            at = slice(steps.first[group], steps.first[group] + steps.count[group])
            np.testing.assert_array_equal(sweep.frequency[row], steps.frequency[at])
            np.testing.assert_array_equal(sweep.log_value[row], steps.log_value[at])
            np.testing.assert_array_equal(sweep.runs[row], steps.runs[at])
            assert sweep.scatter[row] == steps.scatter[group]
            assert sweep.scatter_df[row] == steps.scatter_df[group]
            assert (np.diff(sweep.frequency[row]) > 0).all()
            highest = table.loc[table["group"] == group, "frequency"].max()
            np.testing.assert_allclose(sweep.highest[row], highest, rtol=SAME_STEP)
    assert sorted(seen) == list(range(len(able)))


def test_worked_by_hand():
    codes = np.array([2, 0, 0, 2, 0, 0])
    frequency = np.array([2e9, 3e9, 1e9, 2e9, 1e9, 1e9])
    log_value = np.array([5.0, 7.0, 1.0, 6.0, 2.0, 6.0])
    steps = Steps.of(codes, frequency, log_value, 4)
    np.testing.assert_array_equal(steps.first, [0, 2, 2, 3])
    np.testing.assert_array_equal(steps.count, [2, 0, 1, 0])
    np.testing.assert_array_equal(steps.frequency, [1e9, 3e9, 2e9])
    np.testing.assert_array_equal(steps.log_value, [3.0, 7.0, 5.5])
    np.testing.assert_array_equal(steps.runs, [3, 1, 2])
    # (1 − 3)² + (2 − 3)² + (6 − 3)² = 14, and 0.5² twice.
    np.testing.assert_array_equal(steps.scatter, [14.0, 0.0, 0.5, 0.0])
    np.testing.assert_array_equal(steps.scatter_df, [2.0, 0.0, 1.0, 0.0])
    top = steps.highest(np.array([0, 2]))
    np.testing.assert_array_equal(top, [[3e9, 2e9], [7.0, 5.5]])


@pytest.mark.parametrize(("ratio", "steps"), [(0.0, 1), (0.9, 1), (1.1, 2), (50.0, 2)])
def test_clocks_a_thousandth_apart_are_one_step(ratio, steps):
    frequency = 2e9 * np.array([1.0, 1 + ratio * SAME_STEP])
    made = Steps.of(np.zeros(2, dtype=int), frequency, np.array([0.3, 0.5]), 1)
    np.testing.assert_array_equal(made.count, [steps])
    if steps == 1:
        np.testing.assert_allclose(made.frequency, [frequency.mean()])
        np.testing.assert_allclose(made.log_value, [0.4])
        np.testing.assert_allclose(made.scatter, [0.02])


def test_equal_clocks_of_different_groups_are_different_steps():
    made = Steps.of(np.array([0, 1, 1]), np.full(3, 2e9), np.array([0.1, 0.2, 0.4]), 2)
    np.testing.assert_array_equal(made.count, [1, 1])
    np.testing.assert_allclose(made.log_value, [0.1, 0.3])


@pytest.mark.parametrize("groups", [0, 3])
def test_no_rows_are_groups_without_steps(groups):
    nothing = np.empty(0)
    made = Steps.of(nothing.astype(int), nothing, nothing, groups)
    for part in ("first", "count", "scatter", "scatter_df"):
        np.testing.assert_array_equal(getattr(made, part), np.zeros(groups))
    for part in ("frequency", "log_value", "runs"):
        assert getattr(made, part).shape == (0,)
    assert list(made.by_count(np.empty(0, dtype=int))) == []


@given(tables())
def test_runs_condensed_by_clock_have_the_steps_of_all_runs(made):
    table, groups = made
    whole = steps_of(table, groups)
    points = table.groupby(["group", "frequency"], as_index=False)["log_value"].agg(
        ["size", "mean", lambda values: ((values - values.mean()) ** 2).sum()]
    )
    points.columns = ["group", "frequency", "runs", "mean", "squares"]
    repeats = Repeats(*(points[c].to_numpy() for c in ("runs", "mean", "squares")))
    codes, frequency = points["group"].to_numpy(), points["frequency"].to_numpy()
    found = Steps.of_repeats(codes, frequency, repeats, groups)
    for part in PARTS:
        expected = getattr(whole, part)
        np.testing.assert_allclose(getattr(found, part), expected, rtol=1e-9, atol=1e-9)
    assert step_counts(codes, frequency, groups).tolist() == whole.count.tolist()
