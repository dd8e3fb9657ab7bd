"""Times of another unit among those of their sweep: every slip found, honest sweeps left alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppw import check_quality


def sweep(clocks=(1.2, 1.6, 2.0, 2.4), repeats=3, fixed_s=12.0, work=115.2, seed=1, **columns):
    ghz = np.repeat(clocks, repeats)
    scatter = np.random.default_rng(seed).lognormal(0, 0.004, len(ghz))
    table = {"freq_hz": 1e9 * ghz, "time_s": (fixed_s + work / ghz) * scatter}
    return pd.DataFrame({"host": "a", "workload": "sort", **table, **columns})


def slips(runs):
    table = check_quality(runs).table
    return table[table["check"] == "time_of_another_unit"]


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (60, "seconds among minutes"),
        (1e3, "ms among s"),
        (3600, "seconds among hours"),
        (1e6, "µs among s"),
        (1 / 60, "minutes among seconds"),
        (1e-3, "s among ms"),
        (1 / 3600, "hours among seconds"),
        (1e-6, "s among µs"),
    ],
)
@pytest.mark.parametrize("row", [0, 5, 11])
def test_a_slip_is_found_wherever_it_is(factor, said, row):
    runs = sweep()
    runs.loc[row, "time_s"] *= factor
    found = slips(runs)
    assert list(found["row"]) == [row + 1]
    assert found["evidence"].iloc[0].endswith(f": {said}?")


def test_worked_by_hand():
    # 100, 60, 50 s; the fourth, of 55 s, was written in ms. The lower middle one of four is 60 s.
    runs = pd.DataFrame({"freq_hz": [1e9, 2e9, 3e9, 2.5e9], "time_s": [100.0, 60.0, 50.0, 55e3]})
    found = slips(runs.assign(workload="sort"))
    said = "5.5e+04 s at 2.5 GHz, and 60 s in the middle of its sweep: ms among s?"
    assert list(found["evidence"]) == [said]


def test_up_to_a_third_of_a_sweep_and_no_more():
    for many, found in ((4, 4), (5, 0)):
        runs = sweep()
        runs.loc[: many - 1, "time_s"] *= 1000
        assert len(slips(runs)) == found


@pytest.mark.parametrize("factor", [5.0, 7.5, 11.0, 40_000.0])
def test_a_run_that_was_merely_held_up_is_of_no_other_unit(factor):
    runs = sweep()
    runs.loc[11, "time_s"] *= factor
    assert slips(runs).empty


def test_jobs_of_other_lengths_are_no_slips():
    short, long = sweep(work=0.1, fixed_s=0.02), sweep(work=100.0, fixed_s=20.0)
    assert slips(pd.concat([short, long.assign(workload="other")])).empty
    by_size = [short.assign(data_bytes=1e6), long.assign(data_bytes=1e9)]
    assert slips(pd.concat(by_size)).empty


@given(
    fixed_s=st.floats(0, 50),
    work=st.floats(1, 200),
    clocks=st.lists(st.floats(0.3, 5), min_size=2, max_size=8, unique=True),
    seed=st.integers(0, 99),
)
def test_no_sweep_by_the_law_has_one(fixed_s, work, clocks, seed):
    assert slips(sweep(clocks, fixed_s=fixed_s, work=work, seed=seed)).empty


def test_order_of_rows_says_nothing():
    runs = sweep()
    runs.loc[7, "time_s"] *= 1000
    mixed = runs.sample(frac=1, random_state=3).reset_index(drop=True)
    (row,) = slips(mixed)["row"]
    assert mixed.loc[row - 1, "time_s"] > 1000
