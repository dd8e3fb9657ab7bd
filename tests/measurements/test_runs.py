"""The runs table: read from files as the world writes them, checked, tidied and written."""

import csv
import gzip
import hashlib
import io
import json
import os
import pickle
import stat
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import refusals
from hypothesis import given, strategies as st
from pandas.testing import assert_frame_equal

import measurements as ms
import ppw
from measurements.table.checks import as_numbers
from measurements.table.schema import COLUMNS
from measurements.table.writing import csv_text

FORMATS = ["csv", "csv.gz", "jsonl", "ndjson", "json", "jsonl.gz", "parquet", "PARQUET"]
TEXT = "host,freq_mhz,time_ms\na,2000,1500\nb,3000,1000\n"
FRAME = pd.read_csv(io.StringIO(TEXT))
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10"
CONTENTS = {
    "csv": TEXT.encode(),
    "csv.gz": gzip.compress(TEXT.encode(), mtime=0),
    "jsonl": FRAME.to_json(orient="records", lines=True).encode(),
    "parquet": FRAME.to_parquet(),
}


@pytest.fixture
def file(tmp_path):
    def write(content, name="runs.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def read(file):
    return lambda content, name="runs.csv", **options: ms.read_runs(file(content, name), **options)


def refusal(source, **options):
    named = "standard input" if source == "-" else str(source)
    return refusals.refusal(lambda: ms.read_runs(source, **options), named)


def assert_text_was_read(runs):
    # Where blank lines stand between rows, a column says where each row stood.
    assert {*runs.columns} - {"source_row"} == {"host", "freq_hz", "time_s"}
    assert runs["host"].tolist() == ["a", "b"]
    assert runs["freq_hz"].tolist() == [2e9, 3e9]
    assert runs["time_s"].tolist() == [1.5, 1.0]


class TestCsv:
    def test_csv_in_any_dialect_reads_the_same(self, read):
        for text in (
            *(TEXT.replace(",", mark) for mark in ",;\t"),
            *(TEXT.replace("\n", end) for end in ("\r\n", "\r")),
            *(before + TEXT for before in ("\ufeff", "\n \n", "\ufeff\r\n")),
            TEXT.replace("\nb", "\n\n  \nb") + "\n\n",
            TEXT.rstrip("\n"),
            # A delimiter at the end of every line, of every row, of the header.
            *(TEXT.replace(end, f"{end[:-1]},\n") for end in ("\n", "0\n", "ms\n")),
            '"host","freq_mhz","time_ms"\n"a","2000","1500"\n"b",3000,"1000"\n',
            " host , Freq (MHz) , Time [ms] \na,2000, 1500 \nb,3000,1000\n",
            '"host","Freq\n(MHz)","Time\r\n[ms]"\na,2000,1500\nb,3000,1000\n',
            # Comments before the header are no rows.
            *(f"{said}{TEXT}" for said in ("# lab 3, night run\n", "# a\n#\n\n# b, c\n", "#x;y\n")),
        ):
            assert_text_was_read(read(text))
            assert_text_was_read(read(gzip.compress(text.encode())))

    def test_a_header_may_begin_with_a_hash_and_quoted_cells_hold_anything(self, read):
        runs = read("#note,freq_ghz,time_s\nx,1.2,5\ny,1.8,4\n")
        assert list(runs.columns) == ["#note", "freq_hz", "time_s"]
        runs = read('host,time_s,note\n"rack 1, left",1,"say ""hi"""\n"a\nb",2,"x;y"\n')
        assert runs["host"].tolist() == ["rack 1, left", "a\nb"]
        assert runs["note"].tolist() == ['say "hi"', "x;y"]

    @pytest.mark.parametrize("name", ["NA", "null", "007", "nan", "None", "1e5", "True", "<NA>"])
    def test_a_name_stays_text(self, read, name):
        for column in ("host", "machine", "workload", "power_source", "family", "started_at"):
            runs = read(f"{column},time_s\n{name},1\n{name},2\n")
            assert runs[{"machine": "host"}.get(column, column)].tolist() == [name, name]
        assert read("host,time_s\n,1\n").host.isna().all()

    def test_what_was_not_measured_is_missing_and_never_0(self, read):
        for cell in (
            *("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None"),
            *("<not counted>", "<not supported>"),
        ):
            lines = f'{{"cycles":"{cell}","time_ms":"{cell}"}}\n{{"cycles":5,"time_ms":5}}\n'
            tables = [read(f"host,cycles,time_ms\na,{cell},{cell}\nb,5,5\n")]
            tables += [read(lines, "runs.jsonl")] if cell else []
            for table in tables:
                np.testing.assert_array_equal(table["cycles"], [np.nan, 5.0])
                np.testing.assert_array_equal(table["time_s"], [np.nan, 0.005])

    def test_unknown_and_unnamed_columns_are_kept_untouched_in_their_place(self, read):
        runs = read("site,time_s,nsamples,power_now\nnorth,1,58,7.5\nsouth,2,59,\n")
        assert list(runs.columns) == ["site", "time_s", "nsamples", "power_now"]
        assert runs["site"].tolist() == ["north", "south"]
        assert runs["nsamples"].tolist() == [58, 59]
        np.testing.assert_array_equal(runs["power_now"], [7.5, np.nan])
        runs = read(",time_s,\nx,1,\ny,2,\n")
        assert list(runs.columns) == ["unnamed 0", "time_s"]
        assert runs["unnamed 0"].tolist() == ["x", "y"]

    def test_thousandths_are_exact(self, read):
        cells = [f"{i / 10:.1f}" for i in range(1, 2000)]
        runs = read("time_ms\n" + "\n".join(cells))
        assert runs["time_s"].tolist() == [float(cell) / 1000 for cell in cells]


class TestCells:
    @pytest.mark.parametrize("header", ["frequency", "freq_mhz", "Clock (MHz)", "freq_ghz"])
    def test_a_cell_with_a_unit_is_in_that_one(self, read, header):
        runs = read(f"{header},watts,time\n1.8GHz,87.6 W,104.84 s\n1800 MHz,0.0876kW,2min\n")
        assert runs["freq_hz"].tolist() == [1.8e9, 1.8e9]
        assert runs["power_w"].tolist() == pytest.approx([87.6, 87.6])
        assert runs["time_s"].tolist() == [104.84, 120.0]
        runs = read("data size,time\n1 MiB,5ms\n1MB,\n")
        assert runs["data_bytes"].tolist() == [1_048_576, 1_000_000]
        np.testing.assert_array_equal(runs["time_s"], [0.005, np.nan])

    def test_all_columns_without_a_unit_are_named_at_once_with_one_that_fits(self, file):
        for clock, column in (("1.8", "ghz"), ("1800", "mhz"), ("1800000", "khz"), ("1.8e9", "hz")):
            path = file(f"host,frequency,time,watts\na,{clock},10,90\n")
            message = refusal(path)
            assert "columns 'frequency', 'time' have no unit" in message
            maps = {f"freq_{column}": "frequency", "time_s": "time"}
            assert " ".join(f"--map {c}={h}" for c, h in maps.items()) in message
            assert ms.read_runs(path, columns=maps)["freq_hz"].tolist() == pytest.approx([1.8e9])

    def test_decimal_commas_are_those_of_the_same_table_with_points(self, read):
        wanted = read("host;freq_ghz;time_s\na;1.8;10.5\nb;2;900\n")
        for delimiter in ";\t":
            commas = "host;freq_ghz;time_s\na;1,8;10,5\nb;2;900\n".replace(";", delimiter)
            for encoding in ("utf-8", "utf-8-sig", "utf-16"):
                assert read(commas.encode(encoding))[wanted.columns].equals(wanted)
        # Beside a unit and with an exponent.
        runs = read("frequency;time_s;power_w\n1,8GHz;1,05e1;\n900 MHz;7;n/a\n")
        assert runs["freq_hz"].tolist() == [1.8e9, 9e8]
        assert runs["time_s"].tolist() == [10.5, 7.0]
        assert runs["power_w"].isna().all()
        runs = read("host;workload;note;time_s\na;sort 1,5;2,5;1.5\n")
        assert runs.iloc[0].tolist() == ["a", "sort 1,5", "2,5", 1.5]

    def test_a_cell_that_may_be_another_number_or_is_no_quantity_is_refused(self, file):
        for text, said in (
            *(
                (f"freq_ghz;time_s\n1,8;{cell}\n2,4;700\n", f"column 'time_s' has {cell!r}")
                for cell in ("1.100", "1.5")
            ),
            ("freq_ghz;time_s\n1,8;1.100\n2,4;700\n", "decimal comma"),
            ("host,freq_ghz,time_s\na,1,8,10\n", "line 2 has 4 fields"),
            ("watts\n5 s\n", "column watts: '5 s' is not a number"),
            (
                "freq_mhz\n2400000\n2400000\n",
                "lines 2-3, column freq_mhz: 2.4e+06 is over 20 GHz: is",
            ),
            ("Frequency (kHz)\n2.4\n", "line 2, column Frequency (kHz): 2.4 is under 10 MHz"),
            *(
                (f"host,time_s\na,1\na,{cell}\na,2\n", "line 3, column time_s: ")
                for cell in ("-1", "0", "inf", "-inf", "soon", "True", "1_000", "0x10")
            ),
            *(
                ("clock,frequency\nx,2.4GHz\nx,2400\n", said)
                for said in ("column 'frequency' has no unit (line 3)", "--map freq_mhz=frequency")
            ),
            ("frequency\n2.4GHz\nfast\n", "line 3, column frequency: "),
            ('{"frequency":"2.4GHz"}\n{"frequency":[1]}\n', "row 2, column frequency: "),
        ):
            assert said in refusal(file(text))

    def test_a_map_the_wrong_way_round_or_two_in_one_are_told_apart(self, file):
        message = refusal(file("frequency\n1800\n"), columns={"frequency": "freq_mhz"})
        assert "write the header second, --map freq_mhz=frequency" in message
        message = refusal(file("clock,t\n1,2\n"), columns={"freq_ghz": "clock,time_s=t"})
        assert "give --map again for each column" in message

    def test_thousands_separators_are_named_with_what_to_write(self, file):
        for cell, plain in (
            *(("1,200", "1200"), ("216,408.4", "216408.4"), ("1'200'000", "1200000")),
            *(("1 200", "1200"), ("1,20", ""), ("12,34,567", ""), ("1,2000", ""), ("a,200", "")),
        ):
            message = refusal(file(f'freq_ghz,time_s\n1.2,"{cell}"\n1.8,70\n'))
            said = f": it has thousands separators: write {plain}" if plain else ""
            assert f"line 2, column time_s: {cell!r} is not a number{said} (1 bad value" in message

    @pytest.mark.cases(
        "cells, doubted",
        *((("1.100", "770", "600"), True), (("1.100", "0.770", "600"), False)),
        *((("1.100", "1.770", "1.600"), False), (("1.1", "2.770", "600"), False)),
    )
    def test_points_that_may_part_thousands_are_a_caveat(self, read, cells, doubted):
        rows = [f"{ghz};{cell};a\n" for ghz, cell in zip((1, 2, 3), cells, strict=True)]
        runs = read("freq_ghz;time_s;workload\n" + "".join(rows))
        with pytest.warns(ppw.CaveatWarning):
            found = ppw.project(runs, freq="4GHz", keep_all=True).caveats
        said = [c for c in found if "column 'time_s': 1.100 is read as 1.1, but may mean 1100" in c]
        assert len(said) == doubted

    def test_a_table_with_categories_is_written_for_spreadsheets(self):
        names = pd.Categorical(["a", "=b", "a\rb"])
        text = csv_text(pd.DataFrame({"clock": names, "cpio": [1.0, 2.0, 3.0]}))
        assert text == '"clock","cpio"\n"a",1.0\n"\'=b",2.0\n"a\rb",3.0\n'
        assert csv_text(pd.DataFrame({"clock": pd.Categorical(["nominal"])})) == "clock\nnominal\n"


class TestOtherFormats:
    def test_json_lines(self, read):
        lines = (
            '{"host": "a", "freq_mhz": 2000, "time_ms": 1500}\n\n'
            '{"time_ms": 1000.0, "host": "b", "freq_mhz": 3000}'
        )
        for content in (lines, "\ufeff" + lines, gzip.compress(lines.encode())):
            assert_text_was_read(read(content, "runs.jsonl"))
        # What an object does not have is missing.
        runs = read('{"host":"a","power_w":null}\n{"power_w":5}\n{"time_s":1}', "r.jsonl")
        np.testing.assert_array_equal(runs["power_w"], [np.nan, 5.0, np.nan])
        assert runs["host"].isna().tolist() == [False, True, True]

    def test_a_bad_json_line_is_named_by_its_number(self, file):
        for line, reason in (
            *(("{oops}", ": Expecting property name"), ('{"a": 1', ": Expecting ',' delimiter")),
            *(("[1]", ""), ("7", ""), ('{"a":' + "[" * 200_000, ": too large or too deep")),
            ('{"a":1' + "0" * 5_000 + "}", ": too large or too deep"),
        ):
            message = refusal(file('{"time_s":1}\n\n' + line + '\n{"time_s":1}\n', "runs.jsonl"))
            assert f"line 3 is not a JSON object{reason}" in message

    def test_parquet_with_dictionary_columns_or_a_named_index(self, read):
        for index in (["host"], ["host", "freq_mhz"]):
            runs = read(FRAME.set_index(index).to_parquet(), "runs.parquet")
            assert_text_was_read(runs[["host", "freq_hz", "time_s"]])
            assert runs.index.tolist() == [0, 1]
        table = FRAME.astype({"host": "category", "freq_mhz": "category"})
        table["host"] = table["host"].cat.add_categories("unused")
        runs = read(table.assign(power_w=[5.0, np.nan]).to_parquet(), "runs.parquet")
        assert_text_was_read(runs.drop(columns="power_w"))
        assert runs["freq_hz"].dtype == np.float64
        assert ms.identity_columns(runs) == ["host"]
        assert ms.check_runs(runs, needed=["power_w"])["power_w"].notna().tolist() == [True, False]

    def test_parquet_whose_metadata_are_damaged_is_refused(self, file):
        table = pa.table({"time_s": [1.0]}).replace_schema_metadata(
            {"pandas": '{"index_columns": [{"start": 0}], "columns": [], "column_indexes": []}'}
        )
        stream = io.BytesIO()
        pq.write_table(table, stream)
        assert "broken Parquet: 'kind'" in refusal(file(stream.getvalue(), "runs.parquet"))

    @pytest.mark.parametrize("format_", CONTENTS)
    def test_the_content_counts_also_of_standard_input(self, file, monkeypatch, format_):
        assert_text_was_read(ms.read_runs(str(file(CONTENTS[format_], "runs.txt"))))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CONTENTS[format_])))
        runs = ms.read_runs("-")
        assert_text_was_read(runs)
        assert runs.attrs["source"] == "standard input"

    def test_source_and_digest_are_kept_with_the_table(self, file):
        path = file(TEXT)
        digest = hashlib.sha256(TEXT.encode()).hexdigest()
        assert ms.read_runs(path).attrs == {
            "source": str(path),
            "digest": f"sha256:{digest}",
            "headers": {"freq_mhz": ("freq_hz", 1e6, False), "time_ms": ("time_s", 1e-3, False)},
            "header_lines": {str(path): 1},
        }
        assert_frame_equal(ms.read_runs([path]), ms.read_runs(path))

    def test_unchecked_reading_leaves_bad_values_and_short_rows_to_the_check(self, file):
        path = file("time_ms,power_w\n5,1\n-5,x\nsoon\n")
        runs = ms.read_runs(path, check=False)
        assert runs["time_s"].tolist() == [0.005, -0.005, "soon"]
        problems = bad_values(runs, needed=["power_w"]).problems
        found = problems[["row", "column"]].to_numpy().tolist()
        assert found == [[2, "power_w"], [2, "time_s"], [3, "power_w"], [3, "time_s"]]
        assert problems["reason"].tolist()[2] == "missing"
        assert set(problems["file"]) == {str(path)}

    def test_the_clock_is_named_as_in_the_file(self, read):
        runs = read("Clock (MHz),time_s\n2400,5\n2400,4\n")
        with pytest.raises(ppw.PpwError, match=r"\(Clock \(MHz\) in the file: 2.4 GHz\)"):
            ppw.project(runs, freq="3GHz")


class TestSeveralFiles:
    def test_several_files_become_one_table_that_tells_them_apart(self, file):
        first = file("cores,time_s,power_w\n1,1,5\n2,2,6\n", "a.csv")
        second = file('{"cores":1,"time_ms":3000,"note":"x"}\n', "b.jsonl")
        runs = ms.read_runs([first, str(second)])
        assert runs["time_s"].tolist() == [1.0, 2.0, 3.0]
        np.testing.assert_array_equal(runs["power_w"], [5.0, 6.0, np.nan])
        assert runs["source_file"].tolist() == [str(first), str(first), str(second)]
        assert runs["note"].isna().tolist() == [True, True, False]
        assert runs.index.tolist() == [0, 1, 2]
        assert ms.identity_columns(runs) == ["source_file", "cores"]
        assert runs.attrs["source"] == f"{first} {second}"
        both = first.read_bytes() + second.read_bytes()
        assert runs.attrs["digest"] == f"sha256:{hashlib.sha256(both).hexdigest()}"
        # Files that name their host are one table of hosts.
        paths = [file("host,time_s\na,1\n", "a.csv"), file("machine,time_s\nb,1\n", "b.csv")]
        assert ms.identity_columns(ms.read_runs(paths)) == ["host"]

    def test_bad_rows_of_several_files_are_named_in_one_error(self, file, monkeypatch):
        path = file("time_s\n1\n-1\n", "a.csv")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"time_s\n0\n1\n")))
        with pytest.raises(ms.BadRunsError) as refused:
            ms.read_runs([path, "-"])
        assert f"{path}: line 3, column time_s: -1 must" in str(refused.value)
        assert "standard input: line 2, column time_s: 0 must" in str(refused.value)
        assert refused.value.problems["row"].tolist() == [2, 1]

    def test_the_bad_file_is_the_one_named_and_no_file_is_refused(self, file, tmp_path):
        assert "No such file or directory" in refusal(tmp_path / "none.csv")
        assert "Is a directory" in refusal(tmp_path)
        empty = file("", "b.csv")
        with pytest.raises(ms.MeasurementError, match="is empty") as refused:
            ms.read_runs([file(TEXT), empty])
        assert str(refused.value).startswith(str(empty))
        with pytest.raises(ms.MeasurementError, match="no runs table was named"):
            ms.read_runs([])


NO_TABLES = {
    "is empty": [b"", b" \n\t\r\n ", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)],
    "holds no runs, only a header": [b"host,time_s\n", b"host,time_s"],
    "is a JSON array": [b'[\n {"time_s": 1}\n]\n'],
    "holds no runs": [FRAME.head(0).to_parquet()],
    "is binary (zero byte at offset 8)": [PNG],
    "is binary (zero byte at offset 0)": [bytes(range(256)) * 20],
    "line 2 is not text in UTF-8 (byte 0x80)": [bytes(range(1, 256)) * 20],
    "line 2 is not text in UTF-8 (byte 0xe4)": ["host,time_s\nä,1\n".encode("latin-1")],
    "line 300002 is not text in UTF-8 (byte 0xb5)": [b"time_s\n" + b"1\n" * 300_000 + b"\xb5"],
    "line 2 is not text in UTF-8 (byte 0xb5)": [b'{"time_s":1}\n{"host":"\xb5"}\n'],
    "broken Parquet": [
        *(CONTENTS["parquet"][:-20], CONTENTS["parquet"][:100]),
        *(b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1"),
    ],
    "broken gzip": [
        *(CONTENTS["csv.gz"][:-6], CONTENTS["csv.gz"][:20], CONTENTS["csv.gz"] + b"more"),
        CONTENTS["csv.gz"][:10] + b"\xff" * 30,
    ],
    "no header: field larger": [b"x" * 200_000],
    "the header has 10000 columns": [
        *(f"{mark.join(f'c{i}' for i in range(10_000))}\n1\n" for mark in ",;\t"),
        json.dumps({f"c{i}": i for i in range(10_000)}),
    ],
}


class TestNoTables:
    @pytest.mark.parametrize("reason", NO_TABLES)
    def test_what_is_no_table_is_refused_with_its_name_and_place(self, file, reason):
        for content in NO_TABLES[reason]:
            assert reason in refusal(file(content))

    def test_a_row_longer_than_the_header_is_named(self, file):
        for rows, reason in (
            *(("1,a,9\n2,b\n", "line 2 has 3 fields"), ("1,a\n2,b,9\n", "line 3 has 3 fields")),
            *(("1,a\n2,b,,\n", "line 3 has 4 fields"), ("1,a,\n2,b,9\n", "line 3 has 3 fields")),
            *(("1,a,8\n2,b,9\n", "line 2 has 3 fields"), ("1,a,8,9\n", "line 2 has 4 fields")),
            ('"1\n",a\n\n2,b,9\n', "line 5 has 3 fields"),
            ("1,a\n2,b,\n", "Expected 2 fields in line 3, saw 3"),
            ('1,"a\n2,b\n', "EOF inside string"),
            ('"1,a\n2,b\n', "EOF inside string"),
        ):
            message = refusal(file("time_s,host\n" + rows))
            assert "not a table of 2 columns: " in message
            assert reason in message


GOOD = {"freq_hz": 2e9, "freq_achieved_hz": 1.9e9, "load": 0.35, "other_cpu_share": 0.1}
NUMBERS = {name: column.kind for name, column in COLUMNS.items() if column.kind != "text"}


def table(**columns):
    return pd.DataFrame(columns)


def bad_values(runs, **options):
    with pytest.raises(ms.BadRunsError) as caught:
        ms.check_runs(runs, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def places(error):
    found = error.problems[["file", "row", "column"]]
    return [tuple(place) for place in found.to_numpy().tolist()]


def refused_columns(value):
    """Columns of numbers in which a value cannot be."""
    error = bad_values(table(**{column: [value] for column in NUMBERS}))
    return {column for _, _, column in places(error)}


class TestChecks:
    def test_every_column_accepts_what_its_kind_can_be(self):
        ms.check_runs(table(**{column: [GOOD.get(column, 3.5), np.nan] for column in NUMBERS}))
        positive = {column for column, kind in NUMBERS.items() if kind == "positive"}
        below_zero = {column for column, kind in NUMBERS.items() if kind in ("net", "any")}
        assert refused_columns(-1.0) == NUMBERS.keys() - below_zero
        assert refused_columns(0.0) == positive
        for never in (np.inf, -np.inf, "many", True, pd.Timestamp("2024-01-01")):
            assert refused_columns(never) == NUMBERS.keys()

    @pytest.mark.parametrize("column", ["power_w", "energy_j"])
    @pytest.mark.parametrize("value", [-0.25, 0.0])
    def test_watts_below_the_idle_ones_can_be_read_but_not_used(self, column, value):
        runs = table(**{column: [5.0, value]})
        assert ms.check_runs(runs)[column].tolist() == [5.0, value]
        error = bad_values(runs, needed=[column])
        assert places(error) == [("runs", 2, column)]
        assert f"{value:g} must be greater than 0" in str(error)

    def test_a_frequency_of_no_core_is_refused_with_a_hint(self):
        for value, hint in (
            (2.4, "2.4 is under 10 MHz: is it in GHz or MHz? Write the unit"),
            (2.4e12, "2.4e+12 is over 20 GHz: is the unit too large?"),
            (0.0, "0 must be greater than 0"),
        ):
            for column in ("freq_hz", "freq_achieved_hz"):
                error = bad_values(table(**{column: [2e9, value]}))
                assert places(error) == [("runs", 2, column)]
                assert f"runs: row 2, column {column}: {hint} (1 bad value" in str(error)

    def test_a_bad_value_in_a_needed_column_is_named(self):
        for value, reason in (
            *((value, "missing") for value in (np.nan, None, "<not counted>", "n/a")),
            *(("soon", "'soon' is not a number"), (-1.0, "-1 must be greater than 0")),
            *((1e26, "more than any run has (1e+10 s)"), (5e-324, "less than any run has (1e-12")),
            *((0.0, "0 must be greater than 0"), (np.inf, "inf is not finite")),
            *((-np.inf, "-inf is not finite"), ([1.0], "[1.0] is not a number")),
            *(({"s": 1}, "{'s': 1} is not a number"), (10**400, "is not a number")),
        ):
            runs = table(freq_hz=[1e9, 2e9], time_s=pd.Series([1.0, value], dtype=object))
            error = bad_values(runs, needed=["freq_hz", "time_s"])
            assert places(error) == [("runs", 2, "time_s")]
            assert "runs: row 2, column time_s: " in str(error)
            assert reason in str(error)
        # What only pandas takes for a number.
        for value in (pd.Timedelta(seconds=1), True, 1j):
            assert "is not a number" in str(bad_values(table(time_s=[value])))

    @pytest.mark.parametrize("percent", [[10, 50, 90], [0, 50, 100], [0.1, 0.2, 100]])
    def test_a_load_in_percent_is_refused_with_what_to_write(self, percent):
        error = bad_values(table(load=percent))
        assert places(error) == [("runs", n, "load") for n, x in enumerate(percent, 1) if x > 1]
        assert "write 50% in the cells, or name the column load_pct" in str(error)
        # What was measured may be a little more than full load.
        ms.check_runs(table(load=[0.5, 1.02, 1.2]))

    @pytest.mark.parametrize(
        "times", [[True, True, False], [10.0, True, 7.0], True, pd.array([True] * 3, "boolean")]
    )
    def test_booleans_are_no_numbers(self, times, tmp_path):
        runs = pd.DataFrame({"freq_hz": [1.2e9, 1.8e9, 2.4e9], "time_s": times})
        runs.to_json(tmp_path / "r.jsonl", orient="records", lines=True)
        asks = [lambda: ppw.project(runs, freq="3GHz"), lambda: ms.read_runs(tmp_path / "r.jsonl")]
        if runs["time_s"].dtype != object:
            runs.to_parquet(tmp_path / "r.parquet")
            asks.append(lambda: ms.read_runs(tmp_path / "r.parquet"))
        for ask in asks:
            with pytest.raises(ms.BadRunsError, match="column time_s: True is not a number"):
                ask()

    def test_numbers_of_any_type_become_float64_and_what_is_missing_stays_so(self):
        for values in (
            *(pd.Series(two) for two in ([1, 2], ["1", " 2 "])),
            *(pd.Series(two, dtype="category") for two in (["1", "2"], [1.0, 2.0])),
            *(pd.Series([1, 2], dtype=d) for d in ("Int64", "Float64", "float32", "int8[pyarrow]")),
            pd.Series([1, "2"], dtype=object),
            *(
                pd.Series([1, None], dtype=d)
                for d in ("Int64", "Float64", "double[pyarrow]", object)
            ),
        ):
            wanted = [1.0, np.nan if values.isna()[1] else 2.0]
            checked = ms.check_runs(table(time_s=values))["time_s"]
            assert checked.dtype == np.float64
            for numbers in (checked, as_numbers(values)):
                np.testing.assert_array_equal(numbers, wanted)

    def test_every_bad_value_is_listed_once_in_order(self):
        runs = table(
            freq_hz=[2.4, 1e9, -1.0, np.nan],
            time_s=[1.0, "x", np.inf, -np.inf],
            power_w=[-1.0, 1.0, np.nan, 1.0],
            note=["any", "-1", None, "inf"],
        )
        error = bad_values(runs, needed=["freq_hz", "time_s", "power_w"])
        assert [place[1:] for place in places(error)] == [
            *((1, "freq_hz"), (1, "power_w"), (2, "time_s")),
            *((3, "freq_hz"), (3, "power_w"), (3, "time_s"), (4, "freq_hz"), (4, "time_s")),
        ]
        assert error.problems["value"].tolist()[:3] == [2.4, -1.0, "x"]
        assert error.problems["reason"].tolist()[4] == "missing"
        assert "(8 bad values; rows are counted below the header)" in str(error)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is ms.BadRunsError
        assert str(again) == str(error)
        assert_frame_equal(again.problems, error.problems)

    def test_the_message_stays_readable_however_many_values_are_bad(self):
        time_s = np.ones(12)
        time_s[[0, 3, 4, 5, 9, 11]] = -1.0
        error = bad_values(table(time_s=time_s))
        assert "rows 1, 4-6, 10, 12, column time_s: -1 must be" in str(error)
        time_s = np.ones(10_000)
        time_s[::2] = -np.arange(5_000.0)
        error = bad_values(table(time_s=time_s))
        assert error.problems["row"].tolist() == list(range(1, 10_000, 2))
        assert "37, 39 and 4980 more, column time_s" in str(error)
        assert "5000 bad values" in str(error)
        assert len(str(error)) < 300
        files = [f"{i}.csv" for i in range(100)]
        error = bad_values(table(time_s=[-1.0] * 100, source_file=files))
        assert places(error) == [(file, 1, "time_s") for file in files]
        assert "; and 80 more (100 bad values" in str(error)

    def test_rows_are_counted_by_place_in_their_own_file(self):
        files = ["a.csv", "a.csv", "b.csv", "b.csv"]
        runs = table(time_s=[1.0, -1.0, 1.0, -1.0], source_file=files)
        error = bad_values(runs)
        assert places(error) == [("a.csv", 2, "time_s"), ("b.csv", 2, "time_s")]
        assert "a.csv: row 2, column time_s" in str(error)
        assert "b.csv: row 2, column time_s" in str(error)
        runs = table(host="a", freq_hz=1e9, time_s=[1.0, np.nan, -2.0]).set_axis([9, 0, 0])
        runs.attrs["source"] = "lab.csv"
        error = bad_values(runs, needed=["time_s"])
        assert places(error) == [("lab.csv", 2, "time_s"), ("lab.csv", 3, "time_s")]
        assert str(error).startswith("lab.csv: row 2, column time_s")

    def test_a_column_that_is_not_there_is_named_with_the_nearest_and_the_way_out(self):
        said = r"^runs: no column time_s \(did you mean 'tme_s'\?\); the columns are freq_hz, tme_s"
        with pytest.raises(ms.MeasurementError, match=rf"{said}.*--map time_s=tme_s"):
            ms.check_runs(table(freq_hz=[1e9], tme_s=[1.0]), needed=["freq_hz", "time_s"])
        # A known column was not meant to be another.
        said = "no column power_w; the columns are freq_hz, power"
        with pytest.raises(ms.MeasurementError, match=said):
            ms.check_runs(table(freq_hz=[1e9], power_source=["rapl"]), needed=["power_w"])

    def test_a_column_may_be_missing_in_whole_groups(self):
        for hosts, power_w, rows in (
            # A group that lacks the whole column was not measured there; part of one is refused.
            (["a", "a", "b", "b"], [5.0, 6.0, np.nan, np.nan], []),
            (["a", "a", "b", "b"], [5.0, np.nan, np.nan, np.nan], [2]),
            (["a", "b"], [np.nan, np.nan], [1, 2]),
            # A group whose name is missing is a group too.
            (["a", None, None], [5.0, np.nan, 6.0], [2]),
            # Text in its only value is no missing column.
            (["a", "b"], [5.0, "high"], [2]),
        ):
            runs = table(host=hosts, freq_hz=1e9, power_w=power_w)
            if rows:
                error = bad_values(runs, needed=["freq_hz", "power_w"])
                assert places(error) == [("runs", row, "power_w") for row in rows]
            else:
                checked = ms.check_runs(runs, needed=["freq_hz", "power_w"])
                np.testing.assert_array_equal(checked["power_w"], power_w)

    def test_a_frequency_is_needed_in_every_group_and_by_says_what_a_group_is(self):
        runs = table(host=["a", "b"], freq_hz=[1e9, np.nan], time_s=1.0)
        assert places(bad_values(runs, needed=["freq_hz"])) == [("runs", 2, "freq_hz")]
        runs = table(host=["a", "a"], site=["x", "y"], freq_hz=1e9, power_w=[5.0, np.nan])
        assert places(bad_values(runs, needed=["power_w"])) == [("runs", 2, "power_w")]
        assert ms.check_runs(runs, needed=["power_w"], by=["site"])["power_w"].notna().sum() == 1

    def test_a_missing_value_is_refused_where_it_must_be_complete(self):
        known = {"freq_hz": [1.2e9, 1.8e9, 2.4e9], "power_w": [50.0, 60, 72]}
        runs = table(**known, time_s=[10.0, None, 7.0])
        said = set()
        for question in (
            lambda: ms.check_runs(ms.tidy_runs(runs), needed=["time_s"]),
            lambda: ms.check_runs(ms.tidy_runs(runs), complete=["time_s"]),
        ):
            with pytest.raises(ms.BadRunsError) as refused:
                question()
            said.add(str(refused.value))
        (message,) = said
        assert "row 2, column time_s: missing (1 bad value" in message
        remedy = ": fill in what is missing, delete these rows, or choose others with --where"
        assert message.endswith(remedy)

    def test_keys_of_whole_numbers_have_no_point_where_a_group_is_left_out(self):
        runs = table(freq_hz=[1.2e9, 1.8e9, 2.4e9], time_s=[10.0, 8.0, 7.0], power_w=[50.0, 60, 72])
        with pytest.raises(ppw.PpwError, match=r"^xeon, 4: no step stays"):
            ppw.best(runs.assign(host="xeon", cores=4.0), deadline="1s")

    def test_the_callers_frame_is_never_modified_and_its_attributes_are_kept(self):
        runs = table(host=["a", "b"], time_s=["1", "2"], cores=[1, 2], freq_hz=[1e9, 2e9])
        runs.attrs = {"source": "lab.csv", "digest": "sha256:0"}
        runs.index = [7, 7]
        before = runs.copy(deep=True)
        checked = ms.check_runs(runs, needed=["time_s", "freq_hz"])
        assert checked is not runs
        assert checked.attrs == runs.attrs
        assert checked.index.tolist() == [7, 7]
        assert_frame_equal(ms.check_runs(checked), checked)
        checked["time_s"] = 0.0
        checked.loc[:, "freq_hz"] = 0.0
        bad_values(runs.assign(time_s=["1", "x"]))
        assert_frame_equal(runs, before)
        assert runs.attrs == before.attrs

    def test_identity_columns(self):
        for columns, expected in (
            ({"host": ["a"], "cores": [1], "site": ["x"]}, ["host", "cores"]),
            ({"threads": [1], "workload": ["w"]}, ["workload", "threads"]),
            *(({"host": [None], "cores": [1]}, ["cores"]), ({"time_s": [1.0]}, [])),
            ({"source_file": ["a.csv"], "cores": [1]}, ["source_file", "cores"]),
            ({"source_file": ["a.csv"], "host": ["h"]}, ["host"]),
            ({"source_file": ["a.csv"], "host": [None]}, ["source_file"]),
        ):
            assert ms.identity_columns(pd.DataFrame(columns)) == expected


class TestTidyRuns:
    def test_tidy_runs_converts_a_frame_as_reading_does_with_what_its_index_names(self):
        frame = FRAME.copy()
        tidy = ms.tidy_runs(frame)
        assert_text_was_read(tidy)
        tidy["time_s"] = 0.0
        tidy.loc[:, "host"] = "z"
        assert_frame_equal(frame, FRAME)
        checked = ms.check_runs(ms.tidy_runs(frame))
        assert_frame_equal(ms.tidy_runs(checked), checked)
        assert_text_was_read(ms.tidy_runs(FRAME.set_index("host")))
        frame = FRAME.set_index(pd.Index([5, 5]))
        assert ms.tidy_runs(frame).index.tolist() == [0, 1]
        assert frame.index.tolist() == [5, 5]

    def test_tidy_runs_takes_a_mapping(self):
        frame = pd.DataFrame({"Clock (kHz)": [2e6], "P": [5_000], 3: ["x"]})
        tidy = ms.tidy_runs(frame, columns={"freq_hz": "Clock (kHz)", "power_mw": "P", "rack": "3"})
        assert tidy.to_dict("records") == [{"freq_hz": 2e9, "power_w": 5.0, "rack": "x"}]

    def test_tidy_runs_leaves_bad_values_to_the_check_and_refuses_an_empty_frame(self):
        tidy = ms.tidy_runs(pd.DataFrame({"time_ms": ["5", "x", None]}))
        assert tidy["time_s"].tolist()[:2] == [0.005, "x"]
        said = "runs: row 2, column time_ms: 'x' is not a number"
        with pytest.raises(ms.BadRunsError, match=said):
            ms.check_runs(tidy)
        with pytest.raises(ms.MeasurementError, match="holds no runs"):
            ms.tidy_runs(pd.DataFrame({"time_s": []}))

    def test_a_table_that_was_read_stays_as_read_beside_the_columns_map_left_alone(self, read):
        text = "freq_ghz,Energy[Wh],Energy[J]\n1.2,9,40\n1.8,9,50\n"
        again = ms.tidy_runs(read(text, columns={"energy_j": "Energy[J]"}))
        assert again["energy_j"].tolist() == [40, 50]
        assert again["Energy[Wh]"].tolist() == [9, 9]


# Any text but what no text file can hold, and the blank cell, which is missing.
NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12
).filter(lambda name: name.strip() == name)


@st.composite
def runs_tables(draw):
    """One to six runs with every kind of column, some of their values missing."""
    size = draw(st.integers(min_value=1, max_value=6))

    def column(values, dtype="float64"):
        return pd.Series(draw(st.lists(values, min_size=size, max_size=size)), dtype=dtype)

    positive, net = st.floats(min_value=1e-12, max_value=1e10), st.floats(-1e12, 1e12)
    return pd.DataFrame(
        {
            "host": column(NAMES, "str"),
            "freq_hz": column(st.floats(min_value=1e7, max_value=2e10)),
            "time_s": column(positive | st.none()),
            "power_w": column(net | st.none()),
            "site": column(NAMES.map("site {}".format), "str"),
        }
    )


class Unwritable:
    """A value that no format has a form for."""

    def __str__(self):
        raise ValueError("no form\nat all")


@pytest.mark.parametrize("format_", FORMATS)
class TestEveryEnding:
    @pytest.fixture
    def path(self, tmp_path, format_):
        return tmp_path / f"runs.{format_}"

    def test_it_chooses_the_format_and_names_survive(self, path, format_):
        frame = FRAME.copy()
        ms.write_runs(frame, path)
        assert_frame_equal(frame, FRAME)
        content = path.read_bytes()
        assert (content[:2] == b"\x1f\x8b") == format_.endswith(".gz")
        plain = gzip.decompress(content) if format_.endswith(".gz") else content
        start = {"c": b"host", "j": b'{"ho', "n": b'{"ho', "p": b"PAR1"}[format_[0].lower()]
        assert plain[:4] == start
        assert_text_was_read(ms.read_runs(path))
        names = ["NA", "null", "007", "ü\u2028x"]
        ms.write_runs(table(host=names, time_s=1.0), path)
        assert ms.read_runs(path)["host"].tolist() == names
        # A new file has the permissions of any other.
        other = path.with_name("other")
        other.touch()
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)

    def test_a_failed_write_leaves_what_was_there_and_nothing_else(self, path, format_):
        runs = table(time_s=[1.0, 2.0], thing=[1, Unwritable()])
        for before in (None, b"as before"):
            if before:
                path.write_bytes(before)
            message = refusals.refusal(partial(ms.write_runs, runs, path), str(path))
            assert "cannot be written" in message
            left = [(p, p.read_bytes()) for p in path.parent.iterdir()]
            assert left == ([(path, before)] if before else [])


class TestWriting:
    @given(runs=runs_tables())
    def test_every_bit_survives_checking_writing_and_reading(self, tmp_path_factory, runs):
        assert_frame_equal(ms.check_runs(runs), runs)
        for format_ in ("csv", "jsonl", "parquet"):
            path = tmp_path_factory.getbasetemp() / f"round.{format_}"
            ms.write_runs(runs, path)
            again = ms.read_runs(path)
            assert list(again.columns) == list(runs.columns)
            for column in ("freq_hz", "time_s", "power_w"):
                # pandas 2 reads the last bit of a text wrongly at times.
                bits = 0 if int(pd.__version__.partition(".")[0]) > 2 else 1
                np.testing.assert_array_max_ulp(again[column], runs[column], maxulp=bits)
                assert np.signbit(again[column]).equals(np.signbit(runs[column]))
            for column in ("host", "site"):
                assert again[column].tolist() == runs[column].tolist()

    def test_dates_and_lists_are_written_to_json_lines(self, tmp_path):
        path = tmp_path / "runs.jsonl"
        started = pd.to_datetime(["2024-01-02T03:04:05Z", None])
        tags = [np.array([1, 2]), "x"]
        ms.write_runs(pd.DataFrame({"started_at": started, "tags": tags}), path)
        assert list(map(json.loads, path.read_text().splitlines())) == [
            {"started_at": "2024-01-02T03:04:05+00:00", "tags": [1, 2]},
            {"started_at": None, "tags": "x"},
        ]

    def test_an_interrupted_write_leaves_nothing_behind(self, tmp_path, monkeypatch):
        def interrupt(self, target, **options):
            target.write("host,")
            raise KeyboardInterrupt

        monkeypatch.setattr(pd.DataFrame, "to_csv", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ms.write_runs(FRAME, tmp_path / "runs.csv")
        assert list(tmp_path.iterdir()) == []

    def test_where_nothing_can_be_written_the_target_is_named(self, tmp_path):
        for target in (tmp_path / "none" / "runs.csv", tmp_path):
            said = f"^{target}: cannot be written: (No such file or|Is a) directory$"
            with pytest.raises(ms.MeasurementError, match=said):
                ms.write_runs(FRAME, target)
        assert list(tmp_path.iterdir()) == []

    def test_a_pipe_is_not_replaced_and_a_dash_is_standard_output(self, tmp_path, capsys):
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            ms.write_runs(FRAME, pipe)
            assert os.read(reader, 4096).decode() == TEXT
        finally:
            os.close(reader)
        assert pipe.is_fifo()
        ms.write_runs(FRAME, "-")
        assert capsys.readouterr().out == TEXT


TIDY = [("host", "machine", None), ("freq_hz", "freq_mhz", 1e6), ("time_s", "time_s", 1)]
TIDY += [("power_w", "power_w", 1), ("threads", "threads", 1)]
XU3 = [*TIDY, ("repeat", "run", 1)]
XU3 += [(name, name, 1) for name in ("cycles", "instructions", "voltage_v", "nsamples")]
FREQBENCH = [
    *(("freq_hz", "Frequency (kHz)", 1e3), ("power_w", "Power (mW)", 1e-3)),
    *(("throughput_ops_s", "CoreMarks (iter/s)", 1), ("time_s", "Time (s)", 1)),
    *(("workload", "CPU", None), ("energy_j", "Energy (J)", 1)),
    ("CoreMarks/MHz", "CoreMarks/MHz", 1),
]


@pytest.mark.thirdparty
@pytest.mark.cases(
    "pattern, files, columns, identity",
    ("nornir-repara/tidy.csv", 1, TIDY, ["host", "workload", "threads"]),
    ("xu3-cbench/tidy_runs.csv", 1, XU3, ["host", "workload", "threads"]),
    ("freqbench/raw/*/*/results.csv", 30, FREQBENCH, ["source_file", "workload"]),
)
def test_every_value_of_others_is_read(data_dir, pattern, files, columns, identity):
    """Oracle: the files by Python's own reader, and the units by hand."""
    paths = sorted(data_dir.glob(pattern))
    assert len(paths) == files
    mapping = {column: header for column, header, _ in FREQBENCH[:5]} if files > 1 else None
    runs = ms.read_runs(paths, columns=mapping)
    raw = [row for path in paths for row in csv.DictReader(path.read_text().splitlines())]
    assert len(runs) == len(raw) > 100
    for column, header, factor in columns:
        cells = [row[header] for row in raw]
        if factor is None:
            assert runs[column].tolist() == cells
        else:
            wanted = np.array(cells, float) * factor
            np.testing.assert_allclose(runs[column], wanted, rtol=1e-15, err_msg=column)
    assert ms.identity_columns(runs) == identity
    ms.check_runs(runs, needed=["freq_hz", "time_s"])
