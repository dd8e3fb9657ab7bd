"""Groups of runs: codes and keys against pandas, missing values, columns that vary inside."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppw.errors import UnknownColumnError
from ppw.grouping import group_runs, varies, varying_identity

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
    assert groups.keys.to_dict(orient="list") == {
        "host": ["a", "a", "a", "b"],
        "workload": ["x", "x", "y", "x"],
        "cores": [2, 8, 2, 4],
    }
    assert list(groups.codes) == [3, 2, 0, 3, 1]


def test_any_column_can_be_asked_for():
    groups = group_runs(RUNS, ["note"])
    assert list(groups.keys["note"]) == ["p", "q"]
    assert list(groups.codes) == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("runs", [RUNS, RUNS[["freq_hz", "note"]]])
def test_no_column_is_one_group(runs):
    groups = group_runs(runs, [] if "host" in runs else None)
    assert len(groups) == 1
    assert (groups.codes == 0).all()


def test_a_missing_value_is_a_value_of_its_own():
    runs = RUNS.assign(workload=["x", None, "x", None, None], host="a")
    groups = group_runs(runs, ["host", "workload"])
    assert len(groups) == 2
    assert groups.keys["workload"].isna().sum() == 1
    named = groups.codes[[0, 2]]
    assert named[0] == named[1] != groups.codes[1]


def test_a_column_that_is_not_there():
    with pytest.raises(UnknownColumnError, match=r"'hots' \(did you mean 'host'\?\); the columns"):
        group_runs(RUNS, ["hots"])


def test_columns_that_vary_inside_a_group():
    groups = group_runs(RUNS, ["host"])
    assert varying_identity(RUNS, groups) == ["workload", "cores"]
    assert varying_identity(RUNS, group_runs(RUNS)) == []
    assert list(varies(RUNS["cores"], groups)) == [True, False]
    assert list(varies(RUNS["cores"].where(RUNS["host"] == "a"), groups)) == [True, False]


keys = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.sampled_from([None, "x", "y"])),
    min_size=1,
    max_size=40,
)


@given(keys)
def test_groups_are_those_of_pandas(rows):
    frame = pd.DataFrame(rows, columns=["host", "cores", "workload"])
    groups = group_runs(frame, ["host", "cores", "workload"])
    expected = frame.groupby(["host", "cores", "workload"], dropna=False).ngroup()
    # The same rows together, whatever the numbers.
    pairs = set(zip(groups.codes.tolist(), expected, strict=True))
    assert len(pairs) == len(groups) == expected.nunique()
    assert set(groups.codes) == set(range(len(groups)))
    own = groups.keys.take(groups.codes).reset_index(drop=True)
    pd.testing.assert_frame_equal(own.fillna("none"), frame.fillna("none"), check_dtype=False)


@given(keys, st.randoms(use_true_random=False))
def test_group_numbers_do_not_depend_on_the_order_of_the_rows(rows, random):
    frame = pd.DataFrame(rows, columns=["host", "cores", "workload"])
    order = random.sample(range(len(frame)), len(frame))
    by = ["host", "cores"]
    one, other = group_runs(frame, by), group_runs(frame.iloc[order].reset_index(drop=True), by)
    np.testing.assert_array_equal(one.codes[order], other.codes)
    pd.testing.assert_frame_equal(one.keys, other.keys)
