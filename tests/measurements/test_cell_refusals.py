"""What stands in the cells of a runs table and is no number, and what is said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

import ppw
from measurements import BadRunsError, read_runs, tidy_runs
from measurements.checks import as_numbers, check_runs

if TYPE_CHECKING:
    from pathlib import Path


def _runs(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"freq_hz": [1.2e9, 1.8e9, 2.4e9], "time_s": [10.0, 8.0, 7.0], **columns})


@pytest.mark.parametrize("times", [[True, True, False], [10.0, True, 7.0], True])
def test_booleans_are_no_numbers(times: object, tmp_path: Path) -> None:
    runs = _runs(time_s=times)
    with pytest.raises(BadRunsError, match="column time_s: True is not a number"):
        ppw.project_runs(runs, freq="3GHz")
    runs.to_json(tmp_path / "r.jsonl", orient="records", lines=True)
    with pytest.raises(BadRunsError, match="column time_s: True is not a number"):
        read_runs(tmp_path / "r.jsonl")
    if not isinstance(times, list) or 10.0 not in times:
        runs.to_parquet(tmp_path / "r.parquet")
        with pytest.raises(BadRunsError, match="column time_s: True is not a number"):
            read_runs(tmp_path / "r.parquet")


def test_objects_that_are_numbers_stay_numbers() -> None:
    assert as_numbers(pd.Series([1, 2.5, "3"], dtype=object)).tolist() == [1.0, 2.5, 3.0]


@pytest.mark.parametrize(
    ("cell", "plain"),
    [("1,200", "1200"), ("216,408.4", "216408.4"), ("1'200'000", "1200000"), ("1 200", "1200")],
)
def test_thousands_separators_are_named_with_what_to_write(
    cell: str, plain: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f'freq_ghz,time_s\n1.2,"{cell}"\n1.8,70\n')
    with pytest.raises(BadRunsError) as refused:
        read_runs(path)
    said = f"row 1, column time_s: {cell!r} is not a number: it has thousands separators: write "
    assert f"{said}{plain} (1 bad value" in str(refused.value)


@pytest.mark.parametrize("cell", ["1,20", "12,34,567", "1,2000", "a,200"])
def test_other_commas_are_not_taken_for_thousands_separators(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f'freq_ghz,time_s\n1.2,"{cell}"\n1.8,70\n')
    with pytest.raises(BadRunsError, match="is not a number ") as refused:
        read_runs(path)
    assert "thousands" not in str(refused.value)


def test_a_missing_value_is_refused_alike_by_all_questions() -> None:
    runs = _runs().assign(power_w=[50.0, 60.0, 72.0], time_s=[10.0, None, 7.0])
    questions = (
        lambda: ppw.project_runs(runs, freq="3GHz", metric="time"),
        lambda: ppw.best_frequency(runs),
        lambda: ppw.check_quality(runs, metric="time"),
        lambda: check_runs(tidy_runs(runs), complete=["time_s"]),
    )
    said = set()
    for question in questions:
        with pytest.raises(BadRunsError) as refused:
            question()
        said.add(str(refused.value))
    (message,) = said
    assert "row 2, column time_s: missing (1 bad value" in message
    assert message.endswith(
        ": fill in what is missing, delete these rows, or choose others with --where"
    )


@pytest.mark.parametrize("comment", ["# lab 3, night run\n", "# a\n#\n\n# b, c, d\n", "#x;y\n"])
def test_comments_before_the_header_are_no_rows(comment: str, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"{comment}freq_ghz,time_s,workload,cores,note\n1.2,5,a,1,x\n1.8,4,b,1,y\n")
    assert read_runs(path)["time_s"].tolist() == [5.0, 4.0]


def test_a_header_that_begins_with_a_hash_is_the_header(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("#note,freq_ghz,time_s\nx,1.2,5\ny,1.8,4\n")
    assert list(read_runs(path).columns) == ["#note", "freq_hz", "time_s"]


def test_the_clock_is_named_as_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("Clock (MHz),time_s\n2400,5\n2400,4\n")
    with pytest.raises(ppw.PpwError, match=r"\(Clock \(MHz\) in the file: 2.4 GHz\)"):
        ppw.project_runs(read_runs(path), freq="3GHz")


@pytest.mark.parametrize(
    ("cells", "doubted"),
    [
        (("1.100", "770", "600"), True),
        (("1.100", "0.770", "600"), False),
        (("1.100", "1.770", "1.600"), False),
        (("1.1", "2.770", "600"), False),
    ],
)
def test_points_that_may_part_thousands_are_a_caveat(
    cells: tuple[str, ...], doubted: bool, tmp_path: Path
) -> None:
    path = tmp_path / "r.csv"
    rows = [f"{ghz};{cell};a" for ghz, cell in zip((1, 2, 3), cells, strict=True)]
    path.write_text("\n".join(["freq_ghz;time_s;workload", *rows, ""]))
    with pytest.warns(ppw.CaveatWarning):
        found = ppw.project_runs(read_runs(path), freq="4GHz", keep_all=True).caveats
    said = [c for c in found if "column 'time_s': 1.100 is read as 1.1, and may be 1100" in c]
    assert len(said) == doubted


def test_keys_of_whole_numbers_have_no_point_where_a_group_is_left_out() -> None:
    runs = _runs(power_w=[50.0, 60.0, 72.0]).assign(host="xeon", cores=4.0)
    with pytest.raises(ppw.PpwError, match=r"^xeon, 4: no step stays"):
        ppw.best_frequency(runs, deadline="1s")
