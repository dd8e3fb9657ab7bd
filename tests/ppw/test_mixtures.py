"""Columns that ppw does not know and that tell runs apart; oracles: made-up effects, and none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from made_up import answered, sweep

import ppw

STEPS = (1.2, 1.6, 2.0, 2.4, 2.8)


def said(runs, **options):
    result = answered(ppw.project_runs, runs, freq=3e9, metric="time", **options)
    return [caveat for caveat in result.caveats if "which ppw does not know" in caveat]


def twice(ratio, **columns):
    """Runs, and the same with other noise and ``ratio`` times the time."""
    slower = sweep(steps=STEPS, seed=8)
    slower["time_s"] *= ratio
    both = [sweep(steps=STEPS, seed=7), slower]
    marked = [runs.assign(**{c: v[k] for c, v in columns.items()}) for k, runs in enumerate(both)]
    return pd.concat(marked, ignore_index=True)


@pytest.mark.parametrize("values", [("small", "large"), (1, 2), (True, False)])
def test_an_input_that_changes_the_time_is_named_with_its_ratio(values):
    (caveat,) = said(twice(1.4, input=values))
    assert "differ in 'input'" in caveat
    ratio = float(caveat.partition("by up to ")[2].partition("%")[0])
    assert ratio == pytest.approx(40, abs=1.5)


def test_it_is_not_said_of_a_column_that_groups():
    runs = twice(1.4, input=("small", "large"))
    assert said(runs, by=["host", "workload", "input"]) == []


def test_hosts_of_another_name_at_steps_of_their_own_are_found():
    # No frequency in common, as two machines have it.
    runs = twice(1.3, rack_unit=("u1", "u2"))
    runs.loc[runs["rack_unit"] == "u2", "freq_hz" if "freq_hz" in runs else "freq_ghz"] *= 0.93
    assert len(said(runs)) == 1


@pytest.mark.parametrize("ratio", [1.0, 1.02])
def test_a_column_that_changes_next_to_nothing_is_not(ratio):
    assert said(twice(ratio, shift=("day", "night"))) == []


def test_names_of_runs_and_of_steps_and_measured_numbers_are_no_kinds():
    runs = sweep(steps=STEPS, repeats=4)
    steps = runs[next(c for c in runs if c.startswith("freq"))]
    rng = np.random.default_rng(1)
    runs = runs.assign(
        run_name=[f"run-{i}" for i in range(len(runs))],
        p_state=["P" + str(step) for step in steps],
        inlet=rng.normal(25, 1, len(runs)),
        note=None,
    )
    assert said(runs) == []
