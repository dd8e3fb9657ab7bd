"""Groups of runs against pandas, and columns that tell runs apart but do not group them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from made_up import answered, only, sweep

import ppw
from ppw.errors import UnknownColumnError
from ppw.runs.groups import group_runs, varies, varying_identity

RUNS = pd.DataFrame(
    {
        "host": ["b", "a", "a", "b", "a"],
        "workload": ["x", "y", "x", "x", "x"],
        "cores": [4.0, 2.0, 2.0, 4.0, 8.0],
        "freq_hz": [1e9, 1e9, 2e9, 2e9, 1e9],
        "note": ["p", "q", "p", "q", "p"],
    }
)


def test_identity_columns_are_the_default():
    groups = group_runs(RUNS)
    assert groups.by == ["host", "workload", "cores"]
    keys = [("a", "x", 2), ("a", "x", 8), ("a", "y", 2), ("b", "x", 4)]
    assert list(groups.keys.itertuples(index=False, name=None)) == keys
    assert list(groups.codes) == [3, 2, 0, 3, 1]
    assert list(group_runs(RUNS, ["note"]).codes) == [0, 1, 0, 1, 0]
    with pytest.raises(UnknownColumnError, match=r"'hots' \(did you mean 'host'\?\); the columns"):
        group_runs(RUNS, ["hots"])


@pytest.mark.parametrize(("runs", "by"), [(RUNS, []), (RUNS[["freq_hz", "note"]], None)])
def test_no_column_is_one_group(runs, by):
    groups = group_runs(runs, by)
    assert len(groups) == 1
    assert (groups.codes == 0).all()


def test_columns_that_vary_inside_a_group():
    groups = group_runs(RUNS, ["host"])
    assert varying_identity(RUNS, groups) == ["workload", "cores"]
    assert varying_identity(RUNS, group_runs(RUNS)) == []
    assert list(varies(RUNS["cores"], groups)) == [True, False]
    assert list(varies(RUNS["cores"].where(RUNS["host"] == "a"), groups)) == [True, False]


KEYS = st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.sampled_from([None, "x", "y"]))


@given(st.lists(KEYS, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_groups_are_those_of_pandas_and_their_numbers_know_no_order_of_rows(rows, random):
    by = ["host", "cores", "workload"]
    frame = pd.DataFrame(rows, columns=by)
    groups = group_runs(frame, by)
    expected = frame.groupby(by, dropna=False).ngroup()
    # The same rows together, whatever the numbers; a missing value is a value of its own.
    pairs = set(zip(groups.codes.tolist(), expected, strict=True))
    assert len(pairs) == len(groups) == expected.nunique()
    assert set(groups.codes) == set(range(len(groups)))
    own = groups.keys.take(groups.codes).reset_index(drop=True)
    pd.testing.assert_frame_equal(own.fillna("none"), frame.fillna("none"), check_dtype=False)
    order = random.sample(range(len(frame)), len(frame))
    other = group_runs(frame.iloc[order].reset_index(drop=True), by)
    np.testing.assert_array_equal(groups.codes[order], other.codes)
    pd.testing.assert_frame_equal(groups.keys, other.keys)


STEPS = (1.2, 1.6, 2.0, 2.4, 2.8)


def unknown_columns(runs, **options):
    asked = {"freq": 3e9, "metric": "time", "interval": "t", **options}
    result = answered(ppw.project, runs, **asked)
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
    runs = twice(1.4, input=values)
    (caveat,) = unknown_columns(runs)
    assert "differ in 'input'" in caveat
    ratio = float(caveat.partition("by up to ")[2].partition("%")[0])
    assert ratio == pytest.approx(40, abs=1.5)
    assert unknown_columns(runs, by=["host", "workload", "input"]) == []


def test_hosts_of_another_name_at_steps_of_their_own_are_found():
    # No frequency in common, as two machines have it.
    runs = twice(1.3, rack_unit=("u1", "u2"))
    runs.loc[runs["rack_unit"] == "u2", "freq_ghz"] *= 0.93
    assert len(unknown_columns(runs)) == 1


@pytest.mark.parametrize("ratio", [1.0, 1.02])
def test_a_column_that_changes_next_to_nothing_is_not(ratio):
    assert unknown_columns(twice(ratio, shift=("day", "night"))) == []


def test_names_of_runs_and_of_steps_and_measured_numbers_are_no_kinds():
    runs = sweep(steps=STEPS, repeats=4)
    runs = runs.assign(
        run_name=[f"run-{i}" for i in range(len(runs))],
        p_state=["P" + str(step) for step in runs["freq_ghz"]],
        inlet=np.random.default_rng(1).normal(25, 1, len(runs)),
        note=None,
    )
    assert unknown_columns(runs) == []


def test_rows_that_repeat_are_a_caveat():
    times = {"host": "a", "freq_hz": [1e9, 2e9, 2e9, 2e9], "time_s": [2.0, 1.0, 1.0, 1.1]}
    runs, said = pd.DataFrame(times), "rows repeat another one in every column"
    assert only(answered(ppw.fit, runs, metric="time").caveats, said).startswith("1 of 4 ")
    once = answered(ppw.fit, runs.drop(index=2), metric="time").caveats
    assert not any(said in caveat for caveat in once)
    # A column of this name is the user's own.
    assert ppw.check(runs.assign(runs=5)).rows == 4
