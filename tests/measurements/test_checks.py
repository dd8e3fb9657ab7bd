"""What the values of a runs table may be, and the one error that lists all that cannot be."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from pandas.testing import assert_frame_equal
from runs_strategies import runs_tables

from measurements import BadRunsError, MeasurementError, check_runs, identity_columns
from measurements.schema import COLUMNS

GOOD = {"freq_hz": 2e9, "freq_achieved_hz": 1.9e9, "load": 0.35}
NUMBERS = {name: column.kind for name, column in COLUMNS.items() if column.kind != "text"}
BELOW_ZERO = {
    **dict.fromkeys(("positive", "non-negative", "share", "count"), False),
    **dict.fromkeys(("net", "any"), True),
}
AT_ZERO = {kind: kind != "positive" for kind in BELOW_ZERO}


def table(**columns: object) -> pd.DataFrame:
    return pd.DataFrame(columns)


def refused(runs: pd.DataFrame, **options: object) -> BadRunsError:
    with pytest.raises(BadRunsError) as caught:
        check_runs(runs, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def places(error: BadRunsError) -> list[tuple[str, int, str]]:
    problems = error.problems
    return list(zip(problems["file"], problems["row"], problems["column"], strict=True))


def is_accepted(column: str, value: object) -> bool:
    try:
        check_runs(table(**{column: [value]}))
    except BadRunsError as error:
        assert places(error) == [("runs", 1, column)]  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize("column", NUMBERS)
def test_every_column_accepts_what_its_kind_can_be(column: str) -> None:
    kind = NUMBERS[column]
    assert is_accepted(column, GOOD.get(column, 3.5))
    assert is_accepted(column, np.nan)
    assert is_accepted(column, -1.0) == BELOW_ZERO[kind]
    assert is_accepted(column, 0.0) == AT_ZERO[kind]
    for never in (np.inf, -np.inf, "many", True, pd.Timestamp("2024-01-01")):
        assert not is_accepted(column, never)


@pytest.mark.parametrize("column", ["host", "family", "workload", "power_source", "started_at"])
def test_text_columns_may_hold_anything(column: str) -> None:
    values = ["NA", "-1", "inf", "007", None]
    assert check_runs(table(**{column: values}))[column].tolist()[:4] == values[:4]


@pytest.mark.parametrize("column", ["power_w", "energy_j"])
@pytest.mark.parametrize("value", [-0.25, 0.0])
def test_watts_below_the_idle_ones_can_be_read_but_not_used(column: str, value: float) -> None:
    runs = table(**{column: [5.0, value]})
    assert check_runs(runs)[column].tolist() == [5.0, value]
    error = refused(runs, needed=[column])
    assert places(error) == [("runs", 2, column)]
    assert f"{value:g} must be greater than 0" in str(error)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (2.4, "2.4 is under 10 MHz: is it in GHz or MHz? Write the unit"),
        (2400.0, "2400 is under 10 MHz: is it in GHz or MHz? Write the unit"),
        (2.4e12, "2.4e+12 is over 20 GHz: is the unit too large?"),
        (0.0, "0 must be greater than 0"),
        (-2e9, "-2e+09 must be greater than 0"),
        (np.inf, "inf is not finite"),
    ],
)
@pytest.mark.parametrize("column", ["freq_hz", "freq_achieved_hz"])
def test_a_frequency_of_no_core_is_refused_with_a_hint(
    column: str, value: float, hint: str
) -> None:
    error = refused(table(**{column: [2e9, value]}))
    assert places(error) == [("runs", 2, column)]
    assert f"runs: row 2, column {column}: {hint} (1 bad value" in str(error)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.nan, "missing"),
        (None, "missing"),
        ("<not counted>", "missing"),
        ("n/a", "missing"),
        ("soon", "'soon' is not a number"),
        (-1.0, "-1 must be greater than 0"),
        (0.0, "0 must be greater than 0"),
        (np.inf, "inf is not finite"),
        (-np.inf, "-inf is not finite"),
        ([1.0], "[1.0] is not a number"),
        ({"s": 1}, "{'s': 1} is not a number"),
        (10**400, "is not a number"),
    ],
)
def test_a_bad_value_in_a_needed_column_is_named(value: object, reason: str) -> None:
    runs = table(freq_hz=[1e9, 2e9], time_s=pd.Series([1.0, value], dtype=object))
    error = refused(runs, needed=["freq_hz", "time_s"])
    assert places(error) == [("runs", 2, "time_s")]
    assert "runs: row 2, column time_s: " in str(error)
    assert reason in str(error)


def test_every_bad_value_is_listed_once_in_order() -> None:
    runs = table(
        freq_hz=[2.4, 1e9, -1.0, np.nan],
        time_s=[1.0, "x", np.inf, -np.inf],
        power_w=[-1.0, 1.0, np.nan, 1.0],
        note=["any", "-1", None, "inf"],
    )
    error = refused(runs, needed=["freq_hz", "time_s", "power_w"])
    assert places(error) == [
        *(("runs", 1, "freq_hz"), ("runs", 1, "power_w"), ("runs", 2, "time_s")),
        *(("runs", 3, "freq_hz"), ("runs", 3, "power_w"), ("runs", 3, "time_s")),
        *(("runs", 4, "freq_hz"), ("runs", 4, "time_s")),
    ]
    assert error.problems["value"].tolist()[:3] == [2.4, -1.0, "x"]
    assert error.problems["reason"].tolist()[4] == "missing"
    assert "(8 bad values; rows are counted below the header)" in str(error)


def test_the_message_writes_neighbouring_rows_as_ranges() -> None:
    time_s = np.ones(12)
    time_s[[0, 3, 4, 5, 9, 11]] = -1.0
    assert "rows 1, 4-6, 10, 12, column time_s: -1 must be" in str(refused(table(time_s=time_s)))


def test_the_message_stays_readable_where_every_other_value_is_bad() -> None:
    time_s = np.ones(10_000)
    time_s[::2] = -np.arange(5_000.0)
    error = refused(table(time_s=time_s))
    assert len(error.problems) == 5_000
    assert error.problems["row"].tolist() == list(range(1, 10_000, 2))
    assert "37, 39 and 4980 more, column time_s" in str(error)
    assert "5000 bad values" in str(error)
    assert len(str(error)) < 300


def test_the_message_stays_readable_where_many_files_are_bad() -> None:
    files = [f"{i}.csv" for i in range(100)]
    error = refused(table(time_s=[-1.0] * 100, source_file=files))
    assert places(error) == [(file, 1, "time_s") for file in sorted(files, key=files.index)]
    assert "; and 80 more (100 bad values" in str(error)


def test_the_table_is_called_by_its_source() -> None:
    runs = table(time_s=[-1.0])
    runs.attrs["source"] = "lab.csv"
    assert str(refused(runs)).startswith("lab.csv: row 1, column time_s")


def test_rows_of_several_files_are_counted_in_their_own() -> None:
    runs = table(time_s=[1.0, -1.0, 1.0, -1.0], source_file=["a.csv", "a.csv", "b.csv", "b.csv"])
    error = refused(runs)
    assert places(error) == [("a.csv", 2, "time_s"), ("b.csv", 2, "time_s")]
    assert "a.csv: row 2, column time_s" in str(error)
    assert "b.csv: row 2, column time_s" in str(error)


def test_a_column_that_is_not_there_is_named_with_the_nearest_and_the_way_out() -> None:
    runs = table(freq_hz=[1e9], tme_s=[1.0])
    with pytest.raises(MeasurementError) as caught:
        check_runs(runs, needed=["freq_hz", "time_s"])
    message = str(caught.value)
    assert "runs: no column time_s (did you mean 'tme_s'?)" in message
    assert "the columns are freq_hz, tme_s" in message
    assert "--map time_s=COLUMN" in message


def test_a_known_column_was_not_meant_to_be_another() -> None:
    runs = table(freq_hz=[1e9], power_source=["rapl"])
    with pytest.raises(MeasurementError, match="no column power_w; the columns are freq_hz, power"):
        check_runs(runs, needed=["power_w"])


def test_a_group_that_lacks_a_whole_column_was_not_measured_there() -> None:
    runs = table(host=["a", "a", "b", "b"], freq_hz=1e9, power_w=[5.0, 6.0, np.nan, np.nan])
    checked = check_runs(runs, needed=["freq_hz", "power_w"])
    np.testing.assert_array_equal(checked["power_w"], [5.0, 6.0, np.nan, np.nan])


def test_a_group_that_lacks_part_of_a_column_is_refused() -> None:
    runs = table(host=["a", "a", "b", "b"], freq_hz=1e9, power_w=[5.0, np.nan, np.nan, np.nan])
    error = refused(runs, needed=["freq_hz", "power_w"])
    assert places(error) == [("runs", 2, "power_w")]


def test_a_column_that_is_missing_in_every_group_is_refused() -> None:
    runs = table(host=["a", "b"], freq_hz=1e9, power_w=np.nan)
    error = refused(runs, needed=["freq_hz", "power_w"])
    assert places(error) == [("runs", 1, "power_w"), ("runs", 2, "power_w")]


def test_a_frequency_is_needed_in_every_group() -> None:
    runs = table(host=["a", "b"], freq_hz=[1e9, np.nan], time_s=1.0)
    assert places(refused(runs, needed=["freq_hz"])) == [("runs", 2, "freq_hz")]


def test_by_says_what_a_group_is() -> None:
    runs = table(host=["a", "a"], site=["x", "y"], freq_hz=1e9, power_w=[5.0, np.nan])
    assert places(refused(runs, needed=["power_w"])) == [("runs", 2, "power_w")]
    assert check_runs(runs, needed=["power_w"], by=["site"])["power_w"].notna().sum() == 1


def test_a_group_whose_name_is_missing_is_a_group_too() -> None:
    runs = table(host=["a", None, None], freq_hz=1e9, power_w=[5.0, np.nan, 6.0])
    assert places(refused(runs, needed=["power_w"])) == [("runs", 2, "power_w")]


def test_text_in_the_only_value_of_a_group_is_no_missing_column() -> None:
    runs = table(host=["a", "b"], freq_hz=1e9, power_w=[5.0, "high"])
    assert places(refused(runs, needed=["power_w"])) == [("runs", 2, "power_w")]


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1, 2]),
        pd.Series(["1", " 2 "]),
        pd.Series(["1", "2"], dtype="category"),
        pd.Series([1.0, 2.0], dtype="category"),
        pd.Series([1, 2], dtype="Int64"),
        pd.Series([1, 2], dtype="Float64"),
        pd.Series([1, 2], dtype="float32"),
        pd.Series([1, 2], dtype="int64[pyarrow]"),
        pd.Series([1, "2"], dtype=object),
    ],
    ids=lambda values: str(values.dtype),
)
def test_numbers_of_any_type_become_float64(values: pd.Series) -> None:
    checked = check_runs(table(time_s=values))
    assert checked["time_s"].dtype == np.float64
    assert checked["time_s"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "double[pyarrow]", object])
def test_missing_stays_missing_in_any_type(dtype: str) -> None:
    checked = check_runs(table(time_s=pd.Series([1, None], dtype=dtype)))
    assert checked["time_s"].dtype == np.float64
    np.testing.assert_array_equal(checked["time_s"], [1.0, np.nan])


def test_what_perf_did_not_count_is_missing() -> None:
    checked = check_runs(table(cycles=["5", "<not counted>", "<not supported>"]))
    np.testing.assert_array_equal(checked["cycles"], [5.0, np.nan, np.nan])


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([pd.Timedelta(seconds=1)]),
        pd.Series([True]),
        pd.Series([True], dtype="boolean"),
        pd.Series([1j]),
    ],
    ids=lambda values: str(values.dtype),
)
def test_what_only_pandas_takes_for_a_number_is_refused(values: pd.Series) -> None:
    assert "is not a number" in str(refused(table(time_s=values)))


def test_the_callers_frame_is_never_modified() -> None:
    runs = table(host=["a", "b"], time_s=["1", "2"], cores=[1, 2], freq_hz=[1e9, 2e9])
    runs.attrs["source"] = "lab.csv"
    before = runs.copy(deep=True)
    checked = check_runs(runs, needed=["time_s", "freq_hz"])
    assert checked is not runs
    checked["time_s"] = 0.0
    checked.loc[:, "freq_hz"] = 0.0
    assert_frame_equal(runs, before)
    assert runs.attrs == before.attrs


def test_the_callers_frame_is_not_modified_by_a_refusal() -> None:
    runs = table(time_s=["1", "x"])
    before = runs.copy(deep=True)
    refused(runs)
    assert_frame_equal(runs, before)


def test_attributes_and_the_index_are_kept() -> None:
    runs = pd.DataFrame({"time_s": [1, 2]}, index=[7, 7])
    runs.attrs = {"source": "lab.csv", "digest": "sha256:0"}
    checked = check_runs(runs)
    assert checked.attrs == runs.attrs
    assert checked.index.tolist() == [7, 7]


def test_rows_are_counted_by_place_whatever_the_index() -> None:
    runs = pd.DataFrame(
        {"host": ["a", "a", "a"], "freq_hz": 1e9, "time_s": [1.0, np.nan, -2.0]}, index=[9, 0, 0]
    )
    error = refused(runs, needed=["time_s"])
    assert places(error) == [("runs", 2, "time_s"), ("runs", 3, "time_s")]


def test_the_error_can_be_pickled() -> None:
    error = refused(table(time_s=[-1.0, "x"]))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is BadRunsError
    assert str(again) == str(error)
    assert_frame_equal(again.problems, error.problems)


def test_a_checked_table_passes_again_unchanged() -> None:
    checked = check_runs(table(host=["a"], freq_hz=["2e9"], power_w=[-1]))
    assert_frame_equal(check_runs(checked), checked)


@settings(max_examples=50)
@given(runs_tables())
def test_any_good_table_passes_with_its_values(runs: pd.DataFrame) -> None:
    assert_frame_equal(check_runs(runs), runs)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"host": ["a"], "cores": [1], "site": ["x"]}, ["host", "cores"]),
        ({"threads": [1], "workload": ["w"]}, ["workload", "threads"]),
        ({"host": [None], "cores": [1]}, ["cores"]),
        ({"source_file": ["a.csv"], "cores": [1]}, ["source_file", "cores"]),
        ({"source_file": ["a.csv"], "host": ["h"]}, ["host"]),
        ({"source_file": ["a.csv"], "host": [None]}, ["source_file"]),
        ({"time_s": [1.0]}, []),
    ],
)
def test_identity_columns(columns: dict[str, list[object]], expected: list[str]) -> None:
    assert identity_columns(pd.DataFrame(columns)) == expected


@pytest.mark.parametrize("percent", [[10, 50, 90], [0, 50, 100], [0.1, 0.2, 100]])
def test_a_load_in_percent_is_refused_with_what_to_write(percent: list[float]) -> None:
    error = refused(table(load=percent))
    wrong = [("runs", n, "load") for n, x in enumerate(percent, start=1) if x > 1]
    assert places(error) == wrong
    assert "write 50% in the cells, or name the column load_pct" in str(error)
    # What was measured may be a little more than full load.
    check_runs(table(load=[0.5, 1.02, 1.2]))
