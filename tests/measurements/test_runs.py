"""Runs tables in files: read, tidied, written; and what each kind of broken file says."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import stat
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from runs_strategies import runs_tables

from measurements import (
    BadRunsError,
    MeasurementError,
    check_runs,
    identity_columns,
    read_runs,
    tidy_runs,
    write_runs,
)

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ["csv", "csv.gz", "jsonl", "ndjson", "json", "jsonl.gz", "parquet", "PARQUET"]
TEXT = "host,freq_mhz,time_ms\na,2000,1500\nb,3000,1000\n"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10"


@pytest.fixture
def file(tmp_path: Path):
    """Write bytes or text to a file and name it."""

    def write(content: bytes | str, name: str = "runs.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refusal(source: object, **options: object) -> str:
    with pytest.raises(MeasurementError) as refused:
        read_runs(source, **options)
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith("standard input" if source == "-" else str(source))
    return message


def assert_text_was_read(runs: pd.DataFrame) -> None:
    assert list(runs.columns) == ["host", "freq_hz", "time_s"]
    assert runs["host"].tolist() == ["a", "b"]
    assert runs["freq_hz"].tolist() == [2e9, 3e9]
    assert runs["time_s"].tolist() == [1.5, 1.0]


# ---- CSV as the world writes it


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace(",", ";"),
        TEXT.replace(",", "\t"),
        "\ufeff" + TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("\n", "\r"),
        TEXT.rstrip("\n"),
        "\n \n" + TEXT,
        "\ufeff\r\n" + TEXT,
        TEXT.replace("\nb", "\n\n  \nb") + "\n\n",
        TEXT.replace("\n", ",\n"),
        TEXT.replace("0\n", "0,\n"),
        TEXT.replace("ms\n", "ms,\n"),
        '"host","freq_mhz","time_ms"\n"a","2000","1500"\n"b",3000,"1000"\n',
        " host , Freq (MHz) , Time [ms] \na,2000, 1500 \nb,3000,1000\n",
        '"host","Freq\n(MHz)","Time\r\n[ms]"\na,2000,1500\nb,3000,1000\n',
    ],
    ids=[
        *("comma", "semicolon", "tab", "bom", "crlf", "cr", "no_last_newline", "leading_blank"),
        *("bom_and_blank", "blank_lines", "trailing_delimiter", "trailing_delimiter_in_rows"),
        *("trailing_delimiter_in_header", "quotes", "spaces", "header_of_two_lines"),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_csv_in_any_dialect_reads_the_same(file, text: str, compressed: bool) -> None:
    content = gzip.compress(text.encode()) if compressed else text
    assert_text_was_read(read_runs(file(content)))


def test_quoted_cells_may_hold_delimiters_quotes_and_line_breaks(file) -> None:
    path = file('host,time_s,note\n"rack 1, left",1,"say ""hi"""\n"a\nb",2,"x;y"\n')
    runs = read_runs(path)
    assert runs["host"].tolist() == ["rack 1, left", "a\nb"]
    assert runs["note"].tolist() == ['say "hi"', "x;y"]


@pytest.mark.parametrize("name", ["NA", "null", "007", "nan", "None", "1e5", "True", "<NA>"])
@pytest.mark.parametrize("column", ["host", "machine", "workload", "power_source"])
def test_a_name_stays_text(file, name: str, column: str) -> None:
    runs = read_runs(file(f"{column},time_s\n{name},1\n{name},2\n"))
    assert runs[{"machine": "host"}.get(column, column)].tolist() == [name, name]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_name_that_looks_like_something_else_survives_every_format(
    tmp_path: Path, format_: str
) -> None:
    runs = pd.DataFrame({"host": ["NA", "null", "007", "ü\u2028x"], "time_s": 1.0})
    path = tmp_path / f"runs.{format_}"
    write_runs(runs, path)
    assert read_runs(path)["host"].tolist() == runs["host"].tolist()


@pytest.mark.parametrize(
    "cell",
    [
        *("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None"),
        *("<not counted>", "<not supported>"),
    ],
)
def test_what_was_not_measured_is_missing_and_never_0(file, cell: str) -> None:
    table = read_runs(file(f"host,cycles,time_ms\na,{cell},{cell}\nb,5,5\n"))
    np.testing.assert_array_equal(table["cycles"], [np.nan, 5.0])
    np.testing.assert_array_equal(table["time_s"], [np.nan, 0.005])
    lines = f'{{"cycles":"{cell}","time_ms":"{cell}"}}\n{{"cycles":5,"time_ms":5}}\n'
    if cell:
        table = read_runs(file(lines, "runs.jsonl"))
        np.testing.assert_array_equal(table["cycles"], [np.nan, 5.0])
        np.testing.assert_array_equal(table["time_s"], [np.nan, 0.005])


def test_an_empty_name_is_missing(file) -> None:
    assert read_runs(file("host,time_s\n,1\n")).host.isna().all()


def test_unknown_columns_are_kept_untouched_in_their_place(file) -> None:
    path = file("site,time_s,nsamples,power_now\nnorth,1,58,7.5\nsouth,2,59,\n")
    runs = read_runs(path)
    assert list(runs.columns) == ["site", "time_s", "nsamples", "power_now"]
    assert runs["site"].tolist() == ["north", "south"]
    assert runs["nsamples"].tolist() == [58, 59]
    np.testing.assert_array_equal(runs["power_now"], [7.5, np.nan])


def test_an_unnamed_column_with_values_is_kept_and_an_empty_one_is_not(file) -> None:
    runs = read_runs(file(",time_s,\nx,1,\ny,2,\n"))
    assert list(runs.columns) == ["unnamed 0", "time_s"]
    assert runs["unnamed 0"].tolist() == ["x", "y"]


def test_a_synonym_with_the_unit_in_each_cell_is_converted(file) -> None:
    runs = read_runs(file("frequency,data size,time\n2.10GHz,1 MiB,5ms\n900 MHz,1MB,\n"))
    assert runs["freq_hz"].tolist() == [2.1e9, 9e8]
    assert runs["data_bytes"].tolist() == [1_048_576, 1_000_000]
    np.testing.assert_array_equal(runs["time_s"], [0.005, np.nan])


@pytest.mark.parametrize("cells", ["2400\n2400", "2.4GHz\n2400", "1.5\n"])
def test_a_synonym_without_a_unit_is_refused_with_the_way_out(file, cells: str) -> None:
    message = refusal(file(f"clock,frequency\nx,{cells.replace(chr(10), chr(10) + 'y,')}\n"))
    row = 2 if cells.startswith("2.4GHz") else 1
    assert f"column 'frequency' has no unit (row {row})" in message
    unit = "ghz" if cells == "1.5\n" else "mhz"
    assert f"such as freq_{unit}, or --map freq_{unit}=frequency" in message


@pytest.mark.parametrize(
    "lines",
    ["frequency\n2.4GHz\nfast\n", '{"frequency":"2.4GHz"}\n{"frequency":[1]}\n'],
    ids=["csv", "jsonl"],
)
def test_a_cell_that_is_no_quantity_is_named_by_its_row(file, lines: str) -> None:
    assert "row 2, column frequency: " in refusal(file(lines))


def test_thousandths_are_exact(file) -> None:
    cells = [f"{i / 10:.1f}" for i in range(1, 2000)]
    runs = read_runs(file("time_ms\n" + "\n".join(cells)))
    assert runs["time_s"].tolist() == [float(cell) / 1000 for cell in cells]


def test_a_million_rows(file) -> None:
    rows = 1_000_000
    cores = np.arange(rows) % 16 + 1
    cycles = np.arange(rows) * 12_345.0 + 1
    table = pd.DataFrame({"host": "a", "cores": cores, "freq_mhz": 2000, "cycles": cycles})
    runs = read_runs(file(table.to_csv(index=False)))
    assert len(runs) == rows
    np.testing.assert_array_equal(runs["cores"], cores)
    np.testing.assert_array_equal(runs["cycles"], cycles)
    assert (runs["freq_hz"] == 2e9).all()
    assert (runs["host"] == "a").all()


# ---- the other formats, and where they come from


def test_json_lines(file) -> None:
    lines = (
        '{"host": "a", "freq_mhz": 2000, "time_ms": 1500}\n\n'
        '{"time_ms": 1000.0, "host": "b", "freq_mhz": 3000}'
    )
    assert_text_was_read(read_runs(file(lines, "runs.jsonl")))
    assert_text_was_read(read_runs(file("\ufeff" + lines, "bom.jsonl")))
    assert_text_was_read(read_runs(file(gzip.compress(lines.encode()), "runs.jsonl.gz")))


def test_a_json_object_without_a_key_is_missing_there(file) -> None:
    runs = read_runs(file('{"host":"a","power_w":null}\n{"power_w":5}\n{"time_s":1}', "r.jsonl"))
    np.testing.assert_array_equal(runs["power_w"], [np.nan, 5.0, np.nan])
    assert runs["host"].isna().tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{oops}", "line 3 is not a JSON object: Expecting property name"),
        ("[1]", "line 3 is not a JSON object"),
        ("7", "line 3 is not a JSON object"),
        ('{"a": 1', "line 3 is not a JSON object: Expecting ',' delimiter"),
        ('{"a":' + "[" * 200_000, "line 3 is not a JSON object: too large or too deep"),
        ('{"a":1' + "0" * 5_000 + "}", "line 3 is not a JSON object: too large or too deep"),
    ],
)
def test_a_bad_json_line_is_named_by_its_number(file, line: str, reason: str) -> None:
    assert reason in refusal(file('{"time_s":1}\n\n' + line + '\n{"time_s":1}\n', "runs.jsonl"))


def test_a_json_array_is_told_from_json_lines(file) -> None:
    assert "is a JSON array" in refusal(file('[\n {"time_s": 1}\n]\n', "runs.json"))


def parquet(frame: pd.DataFrame) -> bytes:
    stream = io.BytesIO()
    frame.to_parquet(stream)
    return stream.getvalue()


def frame_of_text() -> pd.DataFrame:
    return pd.read_csv(io.StringIO(TEXT))


def test_parquet_with_dictionary_columns(file) -> None:
    table = frame_of_text().astype({"host": "category", "freq_mhz": "category"})
    runs = read_runs(file(parquet(table), "runs.parquet"))
    assert_text_was_read(runs)
    assert runs["freq_hz"].dtype == np.float64


def test_parquet_whose_metadata_are_damaged_is_refused(file) -> None:
    table = pa.table({"time_s": [1.0]}).replace_schema_metadata(
        {"pandas": '{"index_columns": [{"start": 0}], "columns": [], "column_indexes": []}'}
    )
    stream = io.BytesIO()
    pq.write_table(table, stream)
    assert "broken Parquet: 'kind'" in refusal(file(stream.getvalue(), "runs.parquet"))


def test_dictionary_keys_group_runs_like_text(file) -> None:
    table = pd.DataFrame({"host": ["a", "a", "b"], "freq_hz": 1e9, "power_w": [5.0, 6.0, np.nan]})
    table["host"] = table["host"].astype("category").cat.set_categories(["a", "b", "unused"])
    runs = read_runs(file(parquet(table), "runs.parquet"))
    assert identity_columns(runs) == ["host"]
    assert check_runs(runs, needed=["power_w"])["power_w"].notna().tolist() == [True, True, False]


@pytest.mark.parametrize("index", [["host"], ["host", "freq_mhz"]])
def test_what_parquet_keeps_in_a_named_index_is_a_column(file, index: list[str]) -> None:
    runs = read_runs(file(parquet(frame_of_text().set_index(index)), "runs.parquet"))
    assert_text_was_read(runs[["host", "freq_hz", "time_s"]])
    assert runs.index.tolist() == [0, 1]


CONTENTS = {
    "csv": TEXT.encode(),
    "csv.gz": gzip.compress(TEXT.encode(), mtime=0),
    "jsonl": frame_of_text().to_json(orient="records", lines=True).encode(),
    "parquet": parquet(frame_of_text()),
}


@pytest.mark.parametrize("format_", CONTENTS)
def test_standard_input_is_known_by_its_first_bytes(
    monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CONTENTS[format_])))
    runs = read_runs("-")
    assert_text_was_read(runs)
    assert runs.attrs["source"] == "standard input"


@pytest.mark.parametrize("format_", CONTENTS)
def test_the_content_counts_and_not_the_name(file, format_: str) -> None:
    assert_text_was_read(read_runs(str(file(CONTENTS[format_], "runs.txt"))))


def test_source_and_digest_are_kept_with_the_table(file) -> None:
    path = file(TEXT)
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    assert read_runs(path).attrs == {
        "source": str(path),
        "digest": f"sha256:{digest}",
        "headers": {"freq_mhz": ("freq_hz", 1e6, False), "time_ms": ("time_s", 1e-3, False)},
    }


def test_unchecked_reading_leaves_bad_values_to_the_check(file) -> None:
    path = file("time_ms,power_w\n5,1\n-5,x\nsoon,1\n")
    runs = read_runs(path, check=False)
    assert runs["time_s"].tolist() == [0.005, -0.005, "soon"]
    with pytest.raises(BadRunsError) as refused:
        check_runs(runs)
    problems = refused.value.problems
    assert problems[["row", "column"]].to_numpy().tolist() == [
        *([2, "power_w"], [2, "time_s"], [3, "time_s"])
    ]
    assert set(problems["file"]) == {str(path)}


# ---- several files


def test_several_files_become_one_table_that_tells_them_apart(file) -> None:
    first = file("cores,time_s,power_w\n1,1,5\n2,2,6\n", "a.csv")
    second = file('{"cores":1,"time_ms":3000,"note":"x"}\n', "b.jsonl")
    runs = read_runs([first, str(second)])
    assert runs["time_s"].tolist() == [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(runs["power_w"], [5.0, 6.0, np.nan])
    assert runs["source_file"].tolist() == [str(first), str(first), str(second)]
    assert runs["note"].isna().tolist() == [True, True, False]
    assert runs.index.tolist() == [0, 1, 2]
    assert identity_columns(runs) == ["source_file", "cores"]
    assert runs.attrs["source"] == f"{first} {second}"
    both = first.read_bytes() + second.read_bytes()
    assert runs.attrs["digest"] == f"sha256:{hashlib.sha256(both).hexdigest()}"


def test_files_that_name_their_host_are_one_table_of_hosts(file) -> None:
    paths = [file("host,time_s\na,1\n", "a.csv"), file("machine,time_s\nb,1\n", "b.csv")]
    assert identity_columns(read_runs(paths)) == ["host"]


def test_one_file_in_a_list_is_like_one_file(file) -> None:
    path = file(TEXT)
    assert_frame_equal(read_runs([path]), read_runs(path))


def test_bad_rows_of_several_files_are_named_in_one_error(
    file, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file("time_s\n1\n-1\n", "a.csv")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"time_s\n0\n1\n")))
    with pytest.raises(BadRunsError) as refused:
        read_runs([path, "-"])
    assert f"{path}: row 2, column time_s: -1 must" in str(refused.value)
    assert "standard input: row 1, column time_s: 0 must" in str(refused.value)
    assert refused.value.problems["row"].tolist() == [2, 1]


def test_a_bad_file_among_several_is_the_one_named(file) -> None:
    empty = file("", "b.csv")
    with pytest.raises(MeasurementError, match="is empty") as refused:
        read_runs([file(TEXT), empty])
    assert str(refused.value).startswith(str(empty))


def test_no_file_at_all_is_refused() -> None:
    with pytest.raises(MeasurementError, match="no runs table was named"):
        read_runs([])


# ---- files that are no runs tables


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b" \n\t\r\n ", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"host,time_s\n", "holds no runs, only a header"),
        (b"host,time_s", "holds no runs, only a header"),
        (parquet(frame_of_text().head(0)), "holds no runs"),
        (PNG, "is binary (zero byte at offset 8)"),
        (bytes(range(1, 256)) * 20, "line 2 is not text in UTF-8 (byte 0x80)"),
        (bytes(range(256)) * 20, "is binary (zero byte at offset 0)"),
        ("host,time_s\nä,1\n".encode("latin-1"), "line 2 is not text in UTF-8 (byte 0xe4)"),
        (b"time_s\n" + b"1\n" * 300_000 + b"\xb5", "line 300002 is not text in UTF-8 (byte 0xb5)"),
        (b'{"time_s":1}\n{"host":"\xb5"}\n', "line 2 is not text in UTF-8 (byte 0xb5)"),
        (CONTENTS["parquet"][:-20], "broken Parquet"),
        (CONTENTS["parquet"][:100], "broken Parquet"),
        (b"PAR1", "broken Parquet"),
        (b"PAR1" + b"\0" * 100 + b"PAR1", "broken Parquet"),
        (CONTENTS["csv.gz"][:-6], "broken gzip"),
        (CONTENTS["csv.gz"][:20], "broken gzip"),
        (CONTENTS["csv.gz"][:10] + b"\xff" * 30, "broken gzip"),
        (CONTENTS["csv.gz"] + b"more", "broken gzip"),
        (b"x" * 200_000, "no header: field larger"),
    ],
)
def test_what_is_no_table_is_refused_with_its_name_and_place(
    file, content: bytes, reason: str
) -> None:
    assert reason in refusal(file(content))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("1,a,9\n2,b\n", "line 2 has 3 fields"),
        ("1,a\n2,b,9\n", "line 3 has 3 fields"),
        ("1,a\n2,b,,\n", "line 3 has 4 fields"),
        ("1,a,\n2,b,9\n", "line 3 has 3 fields"),
        ("1,a,8\n2,b,9\n", "line 2 has 3 fields"),
        ("1,a,8,9\n", "line 2 has 4 fields"),
        ('"1\n",a\n\n2,b,9\n', "line 5 has 3 fields"),
        ("1,a\n2,b,\n", "Expected 2 fields in line 3, saw 3"),
        ('1,"a\n2,b\n', "EOF inside string"),
        ('"1,a\n2,b\n', "EOF inside string"),
    ],
)
def test_a_row_longer_than_the_header_is_named(file, rows: str, reason: str) -> None:
    message = refusal(file("time_s,host\n" + rows))
    assert "not a table of 2 columns: " in message
    assert reason in message


def test_what_a_short_row_lacks_is_missing(file) -> None:
    path = file("host,freq_hz,time_s\na,1e9,1\na,1e9\na\n")
    with pytest.raises(BadRunsError) as refused:
        check_runs(read_runs(path, check=False), needed=["freq_hz", "time_s"])
    problems = refused.value.problems
    assert problems[["row", "column"]].to_numpy().tolist() == [
        *([2, "time_s"], [3, "freq_hz"], [3, "time_s"])
    ]
    assert set(problems["reason"]) == {"missing"}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_header_of_very_many_columns_is_refused(file, delimiter: str) -> None:
    header = delimiter.join(f"c{i}" for i in range(100_000))
    assert "the header has 100000 columns" in refusal(file(header + "\n1\n"))


def test_a_json_object_of_very_many_keys_is_refused(file) -> None:
    line = json.dumps({f"c{i}": i for i in range(10_000)})
    assert "the header has 10000 columns" in refusal(file(line, "runs.jsonl"))


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    assert "No such file or directory" in refusal(tmp_path / "none.csv")
    assert "Is a directory" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("header", "cell", "hint"),
    [
        ("freq_hz", "2.4", "2.4 is under 10 MHz: is it in GHz or MHz? Write the unit"),
        ("freq_mhz", "2.4", "2.4 is under 10 MHz: is it in GHz or MHz? Write the unit"),
        ("freq_mhz", "2400000", "2.4e+06 is over 20 GHz: is the unit too large?"),
        ("Frequency (kHz)", "2.4", "2.4 is under 10 MHz"),
    ],
)
def test_a_frequency_in_the_wrong_unit_is_refused_with_a_hint(
    file, header: str, cell: str, hint: str
) -> None:
    message = refusal(file(f"host,{header}\na,{cell}\na,{cell}\n"))
    assert f"rows 1-2, column {header}: {hint}" in message


@pytest.mark.parametrize("cell", ["-1", "0", "inf", "-inf", "soon", "True", "1_000", "0x10"])
def test_a_time_that_cannot_be_is_named_by_file_row_and_column(file, cell: str) -> None:
    path = file(f"host,time_s\na,1\na,{cell}\na,2\n")
    assert f"{path}: row 2, column time_s: " in refusal(path)


@pytest.mark.parametrize("format_", [f for f in CONTENTS if f != "csv.gz"])
@given(data=st.data())
def test_any_damage_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, format_: str, data: st.DataObject
) -> None:
    content = bytearray(CONTENTS[format_])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / f"damaged.{format_}"
    path.write_bytes(content)
    message = ""
    try:
        assert len(read_runs(path)) > 0
    except MeasurementError as error:
        message = str(error)
    assert "\n" not in message


# ---- frames of the caller's


def test_tidy_runs_converts_a_frame_as_reading_does() -> None:
    table = frame_of_text()
    before = table.copy(deep=True)
    tidy = tidy_runs(table)
    assert_text_was_read(tidy)
    tidy["time_s"] = 0.0
    tidy.loc[:, "host"] = "z"
    assert_frame_equal(table, before)


def test_tidy_runs_takes_a_mapping() -> None:
    table = pd.DataFrame({"Clock (kHz)": [2e6], "P": [5_000], 3: ["x"]})
    tidy = tidy_runs(table, columns={"freq_hz": "Clock (kHz)", "power_mw": "P", "rack": "3"})
    assert tidy.to_dict("records") == [{"freq_hz": 2e9, "power_w": 5.0, "rack": "x"}]


def test_tidy_runs_makes_columns_of_a_named_index_and_drops_another() -> None:
    assert_text_was_read(tidy_runs(frame_of_text().set_index("host")))
    table = frame_of_text().set_index(pd.Index([5, 5]))
    tidy = tidy_runs(table)
    assert_text_was_read(tidy)
    assert tidy.index.tolist() == [0, 1]
    assert table.index.tolist() == [5, 5]


def test_tidy_runs_leaves_bad_values_to_the_check() -> None:
    tidy = tidy_runs(pd.DataFrame({"time_ms": ["5", "x", None]}))
    assert tidy["time_s"].tolist()[:2] == [0.005, "x"]
    with pytest.raises(BadRunsError, match="runs: row 2, column time_ms: 'x' is not a number"):
        check_runs(tidy)


def test_tidy_runs_of_a_tidy_frame_changes_nothing() -> None:
    tidy = check_runs(tidy_runs(frame_of_text()))
    assert_frame_equal(tidy_runs(tidy), tidy)


def test_tidy_runs_refuses_an_empty_frame() -> None:
    with pytest.raises(MeasurementError, match="holds no runs"):
        tidy_runs(pd.DataFrame({"time_s": []}))


# ---- writing


@pytest.mark.parametrize("format_", ["csv", "jsonl", "parquet"])
@settings(max_examples=50)
@given(runs=runs_tables())
def test_every_bit_survives_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, format_: str, runs: pd.DataFrame
) -> None:
    path = tmp_path_factory.getbasetemp() / f"round.{format_}"
    write_runs(runs, path)
    again = read_runs(path)
    assert list(again.columns) == list(runs.columns)
    for column in ("freq_hz", "time_s", "power_w"):
        np.testing.assert_array_equal(again[column], runs[column])
        assert np.signbit(again[column]).equals(np.signbit(runs[column]))
    for column in ("host", "site"):
        assert again[column].tolist() == runs[column].tolist()


@pytest.mark.parametrize("format_", FORMATS)
def test_the_ending_chooses_the_format(tmp_path: Path, format_: str) -> None:
    path = tmp_path / f"runs.{format_}"
    write_runs(frame_of_text(), path)
    content = path.read_bytes()
    assert (content[:2] == b"\x1f\x8b") == format_.endswith(".gz")
    plain = gzip.decompress(content) if format_.endswith(".gz") else content
    start = {"c": b"host", "j": b'{"ho', "n": b'{"ho', "p": b"PAR1"}[format_[0].lower()]
    assert plain[:4] == start
    assert_text_was_read(read_runs(path))


def test_writing_does_not_modify_the_table(tmp_path: Path) -> None:
    runs = frame_of_text()
    for format_ in FORMATS:
        write_runs(runs, tmp_path / f"runs.{format_}")
    assert_frame_equal(runs, frame_of_text())


def test_a_dash_writes_csv_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(frame_of_text(), "-")
    assert capsys.readouterr().out == TEXT


def test_dates_and_lists_are_written_to_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    started = pd.to_datetime(["2024-01-02T03:04:05Z", None])
    tags = [np.array([1, 2]), "x"]
    write_runs(pd.DataFrame({"started_at": started, "tags": tags}), path)
    assert list(map(json.loads, path.read_text().splitlines())) == [
        {"started_at": "2024-01-02T03:04:05+00:00", "tags": [1, 2]},
        {"started_at": None, "tags": "x"},
    ]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path, format_: str) -> None:
    other = tmp_path / "other"
    other.touch()
    path = tmp_path / f"runs.{format_}"
    write_runs(frame_of_text(), path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


class Unwritable:
    """A value that no format has a form for."""

    def __str__(self) -> str:
        raise ValueError("no form\nat all")


@pytest.mark.parametrize("format_", FORMATS)
def test_a_failed_write_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, format_: str
) -> None:
    path = tmp_path / f"runs.{format_}"
    runs = pd.DataFrame({"time_s": [1.0, 2.0], "thing": [1, Unwritable()]})
    with pytest.raises(MeasurementError, match="cannot be written") as refused:
        write_runs(runs, path)
    assert list(tmp_path.iterdir()) == []
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)
    path.write_bytes(b"as before")
    with pytest.raises(MeasurementError, match="cannot be written"):
        write_runs(runs, path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"as before"


def test_an_interrupted_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: pd.DataFrame, target: io.TextIOBase, **options: object) -> None:
        target.write("host,")
        raise KeyboardInterrupt

    monkeypatch.setattr(pd.DataFrame, "to_csv", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_runs(frame_of_text(), tmp_path / "runs.csv")
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written_the_target_is_named(tmp_path: Path) -> None:
    for target, reason in (
        (tmp_path / "none" / "runs.csv", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(MeasurementError) as refused:
            write_runs(frame_of_text(), target)
        assert str(refused.value) == f"{target}: cannot be written: {reason}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_runs(frame_of_text(), pipe)
        assert os.read(reader, 4096).decode() == TEXT
    finally:
        os.close(reader)
    assert pipe.is_fifo()


# ---- measured data of others


@pytest.mark.thirdparty
def test_nornir_frequency_sweeps(data_dir: Path) -> None:
    path = data_dir / "nornir-repara" / "tidy.csv"
    runs = read_runs(path)
    raw = list(csv.DictReader(path.read_text().splitlines()))
    assert len(runs) == len(raw) == 2314
    for row in (0, len(raw) // 2, len(raw) - 1):
        assert runs["host"][row] == raw[row]["machine"]
        assert runs["freq_hz"][row] == float(raw[row]["freq_mhz"]) * 1e6
        for column in ("threads", "time_s", "power_w"):
            assert runs[column][row] == float(raw[row][column])
    assert runs["throughput_ops_s"].isna().all()
    assert sorted(runs["freq_hz"].unique()) == [f * 1e8 for f in range(12, 25)]
    check_runs(runs, needed=["freq_hz", "time_s", "power_w"])


@pytest.mark.thirdparty
def test_xu3_counters_and_voltages(data_dir: Path) -> None:
    path = data_dir / "xu3-cbench" / "tidy_runs.csv"
    runs = read_runs(path)
    raw = list(csv.DictReader(path.read_text().splitlines()))
    assert len(runs) == len(raw) == 180
    for row in (0, 90, 179):
        assert runs["host"][row] == raw[row]["machine"]
        assert runs["repeat"][row] == float(raw[row]["run"])
        assert runs["freq_hz"][row] == float(raw[row]["freq_mhz"]) * 1e6
        for column in ("cycles", "instructions", "voltage_v", "time_s", "power_w", "nsamples"):
            assert runs[column][row] == float(raw[row][column])
    assert identity_columns(runs) == ["host", "workload", "threads"]


@pytest.mark.thirdparty
def test_freqbench_results_through_a_mapping(data_dir: Path) -> None:
    paths = sorted((data_dir / "freqbench" / "raw").glob("*/*/results.csv"))
    mapping = {
        "freq_hz": "Frequency (kHz)",
        "power_w": "Power (mW)",
        "throughput_ops_s": "CoreMarks (iter/s)",
        "time_s": "Time (s)",
        "workload": "CPU",
    }
    runs = read_runs(paths, columns=mapping)
    assert runs["source_file"].nunique() == len(paths) == 30
    assert identity_columns(runs) == ["source_file", "workload"]
    for path in paths:
        raw = list(csv.DictReader(path.read_text().splitlines()))
        table = runs[runs["source_file"] == str(path)]
        assert len(table) == len(raw)
        written, read = raw[-1], table.iloc[-1]
        assert read["workload"] == written["CPU"]
        assert read["freq_hz"] == float(written["Frequency (kHz)"]) * 1e3
        assert read["power_w"] == float(written["Power (mW)"]) / 1e3
        assert read["throughput_ops_s"] == float(written["CoreMarks (iter/s)"])
        assert read["time_s"] == float(written["Time (s)"])
        assert read["energy_j"] == float(written["Energy (J)"])
        assert read["CoreMarks/MHz"] == float(written["CoreMarks/MHz"])


def test_a_table_that_was_read_stays_as_read_beside_the_columns_map_left_alone(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("freq_ghz,Energy[Wh],Energy[J]\n1.2,9,40\n1.8,9,50\n")
    runs = read_runs(path, columns={"energy_j": "Energy[J]"})
    again = tidy_runs(runs)
    assert again["energy_j"].tolist() == [40, 50]
    assert again["Energy[Wh]"].tolist() == [9, 9]
