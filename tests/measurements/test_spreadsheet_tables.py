"""Tables as spreadsheets and people write them: decimal commas, UTF-16, units in the cells."""

from __future__ import annotations

import pandas as pd
import pytest

from measurements import MeasurementError, read_runs
from measurements.spreadsheets import csv_text

POINTS = "host;freq_ghz;time_s\na;1.8;10.5\nb;2;900\n"
COMMAS = "host;freq_ghz;time_s\na;1,8;10,5\nb;2;900\n"


@pytest.fixture
def read(tmp_path):
    def read_text(text, encoding="utf-8", **options):
        path = tmp_path / "runs.csv"
        path.write_bytes(text.encode(encoding))
        return read_runs(path, **options)

    return read_text


def refusal(read, text, **options):
    with pytest.raises(MeasurementError) as refused:
        read(text, **options)
    return str(refused.value)


@pytest.mark.parametrize("delimiter", [";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_decimal_commas_are_those_of_the_same_table_with_points(read, delimiter, encoding):
    wanted = read(POINTS)
    runs = read(COMMAS.replace(";", delimiter), encoding)
    assert runs[wanted.columns].equals(wanted)


def test_a_decimal_comma_beside_a_unit_and_with_an_exponent(read):
    runs = read("frequency;time_s;power_w\n1,8GHz;1,05e1;\n900 MHz;7;n/a\n")
    assert runs["freq_hz"].tolist() == [1.8e9, 9e8]
    assert runs["time_s"].tolist() == [10.5, 7.0]
    assert runs["power_w"].isna().all()


def test_texts_with_commas_stay_and_are_no_decimals(read):
    runs = read("host;workload;note;time_s\na;sort 1,5;2,5;1.5\n")
    assert runs.iloc[0].tolist() == ["a", "sort 1,5", "2,5", 1.5]


@pytest.mark.parametrize("cell", ["1.100", "1.100,5", "1.5"])
def test_points_among_decimal_commas_may_be_thousands_and_are_refused(read, cell):
    message = refusal(read, f"freq_ghz;time_s\n1,8;{cell}\n2,4;700\n")
    assert f"column 'time_s' has {cell!r}" in message
    assert "decimal comma" in message


def test_commas_between_columns_are_no_decimal_ones(read):
    assert "line 2 has 4 fields" in refusal(read, "host,freq_ghz,time_s\na,1,8,10\n")


@pytest.mark.parametrize("header", ["freq_mhz", "Clock (MHz)", "freq_ghz"])
def test_a_cell_with_a_unit_is_in_that_one(read, header):
    runs = read(f"{header},watts,time_s\n1.8GHz,87.6 W,104.84 s\n1800 MHz,0.0876kW,2min\n")
    assert runs["freq_hz"].tolist() == [1.8e9, 1.8e9]
    assert runs["power_w"].tolist() == pytest.approx([87.6, 87.6])
    assert runs["time_s"].tolist() == [104.84, 120.0]


def test_a_unit_of_something_else_is_no_number(read):
    assert "column watts: '5 s' is not a number" in refusal(read, "watts\n5 s\n")


@pytest.mark.parametrize(
    ("clock", "column"), [("1.8", "ghz"), ("1800", "mhz"), ("1800000", "khz"), ("1.8e9", "hz")]
)
def test_all_columns_without_a_unit_are_named_at_once_with_one_that_fits(read, clock, column):
    text = f"host,frequency,time,watts\na,{clock},10,90\n"
    message = refusal(read, text)
    assert "columns 'frequency', 'time' have no unit" in message
    maps = {f"freq_{column}": "frequency", "time_s": "time"}
    assert " ".join(f"--map {c}={h}" for c, h in maps.items()) in message
    assert read(text, columns=maps)["freq_hz"].tolist() == pytest.approx([1.8e9])


def test_a_map_the_wrong_way_round_is_turned(read):
    message = refusal(read, "frequency\n1800\n", columns={"frequency": "freq_mhz"})
    assert "the header comes second, --map freq_mhz=frequency" in message


def test_two_maps_in_one_are_told_apart(read):
    message = refusal(read, "clock,t\n1,2\n", columns={"freq_ghz": "clock,time_s=t"})
    assert "give --map again for each column" in message


def test_a_table_with_categories_is_written(read):
    names = pd.Categorical(["a", "=b", "a\rb"])
    text = csv_text(pd.DataFrame({"clock": names, "cpio": [1.0, 2.0, 3.0]}))
    assert text == '"clock","cpio"\n"a",1.0\n"\'=b",2.0\n"a\rb",3.0\n'
    assert csv_text(pd.DataFrame({"clock": pd.Categorical(["nominal"])})) == "clock\nnominal\n"
