"""Folders of files: headers, units, text, and whatever is wrong with a file, named."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from fleet_peers import OTHERS_WARNINGS, assert_same, engine, quiet, sockets_closed  # noqa: F401

import ppw
from ppw import fleet
from ppw.errors import CaveatWarning, PpwError

pytestmark = OTHERS_WARNINGS
ENGINES = ("duckdb", pytest.param("spark", marks=pytest.mark.slow))


def runs(seed=0, rows=60, host="rack1"):
    random = np.random.default_rng(seed)
    ghz = random.choice([1.2, 1.8, 2.4], rows)
    time = (3 + 10 / ghz) * np.exp(random.normal(0, 0.01, rows))
    return pd.DataFrame({"host": host, "freq_ghz": ghz, "time_s": time})


@pytest.fixture
def folder(tmp_path):
    """A thousand small files."""
    for number in range(1000):
        host = f"rack{number % 4}"
        runs(number, rows=4, host=host).to_parquet(tmp_path / f"{number:04}.parquet")
    return tmp_path


class TestFormats:
    @pytest.mark.parametrize("name", ENGINES)
    def test_csv_in_other_units_and_words(self, tmp_path, name):
        table = runs()
        foreign = pd.DataFrame(
            {
                "Machine": table["host"],
                "Frequency (MHz)": table["freq_ghz"] * 1e3,
                "Elapsed": [f"{t * 1e3!r} ms" for t in table["time_s"]],
            }
        )
        path = tmp_path / "runs.csv"
        foreign.to_csv(path, index=False, sep=";")
        answer = quiet(fleet.project, path, freq="3GHz", engine=engine(name))
        assert_same(answer.to_frame(), quiet(ppw.project_runs, table, freq="3GHz").to_frame())

    @pytest.mark.parametrize("header", ["load", "load_pct"])
    def test_a_load_in_percent(self, tmp_path, header):
        """Only those at full load tell how fast a host is; one that cannot be is a fault."""
        table = runs()
        cells = ["100%", "50%"] * (len(table) // 2)
        cells = [c if header == "load" else c.rstrip("%") for c in cells]
        path = tmp_path / "runs.csv"
        table.assign(**{header: cells}).to_csv(path, index=False)
        good = table.assign(load=[1.0, 0.5] * (len(table) // 2))
        expected = quiet(ppw.fit_runs, good).to_frame()
        assert_same(quiet(fleet.fit, path).to_frame(), expected)
        assert_same(quiet(ppw.fit_runs, ppw.read_runs(path)).to_frame(), expected)
        table.assign(load=100.0).to_csv(path, index=False)
        with pytest.raises(PpwError, match="no run that can be used"):
            fleet.fit(path)

    @pytest.mark.parametrize("name", ENGINES)
    @pytest.mark.parametrize("ending", [".jsonl", ".ndjson.gz"])
    def test_json_lines(self, tmp_path, name, ending):
        """A key that only later lines have, a missing figure, and text that is a number."""
        rows = runs().to_dict(orient="records")
        rows[5]["time_s"] = None
        rows[9]["time_s"] = str(rows[9]["time_s"])
        rows[11:] = [{**row, "workload": "sort"} for row in rows[11:]]
        text = "\n".join(json.dumps(row) for row in rows)
        path = tmp_path / f"runs{ending}"
        path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
        answer = quiet(fleet.fit, tmp_path, engine=engine(name))
        good = ppw.read_runs(path, check=False).dropna(subset="time_s")
        assert_same(answer.to_frame(), quiet(ppw.fit_runs, good).to_frame())
        assert answer.origin.runs == len(rows)

    def test_a_line_that_is_no_object_is_named(self, tmp_path):
        (tmp_path / "a.jsonl").write_text('{"freq_ghz": 1, "time_s": 2}\n\n[1]\n')
        with pytest.raises(PpwError, match=r"a\.jsonl: line 3 is not a JSON object: correct it"):
            fleet.fit(tmp_path)

    def test_missing_words_are_missing_and_text_is_a_fault(self, tmp_path):
        path = tmp_path / "runs.csv"
        table = runs().astype({"time_s": object})
        table.loc[3, "time_s"], table.loc[5, "time_s"] = "n/a", "fast"
        table.to_csv(path, index=False)
        answer = quiet(fleet.fit, path)
        good = table.drop(index=[3, 5]).astype({"time_s": float})
        assert_same(answer.to_frame(), quiet(ppw.fit_runs, good).to_frame())
        assert [str(f) for f in answer.faults] == [
            f"{path}: time_s that cannot be in 1 runs: left out; correct or drop them",
            f"{path}: time is missing in 1 runs of 1 groups that have others, such as host=rack1: "
            "these runs take no part",
        ]

    def test_a_table_of_the_engine_and_a_written_answer(self, tmp_path):
        import ibis

        table = ibis.memtable(runs())
        answer = quiet(fleet.fit, engine("duckdb").create_view("runs_here", table, overwrite=True))
        answer.write(tmp_path / "laws.parquet")
        assert_same(pd.read_parquet(tmp_path / "laws.parquet"), answer.to_frame())
        assert answer.to_table().count().to_pyarrow().as_py() == len(answer.to_frame())


class TestFaults:
    def test_a_thousand_files_are_one_table(self, folder):
        answer = quiet(fleet.fit, folder)
        assert (answer.origin.files, answer.origin.runs) == (1000, 4000)
        whole = ppw.read_runs(sorted(folder.iterdir()))
        assert_same(answer.to_frame(), quiet(ppw.fit_runs, whole).to_frame())

    def test_a_corrupt_file_among_them_is_named_and_the_rest_done(self, folder):
        broken = folder / "0500.parquet"
        broken.write_bytes(broken.read_bytes()[:-20])
        with pytest.warns(CaveatWarning, match="0500.parquet: broken Parquet"):
            answer = fleet.fit(folder)
        assert [f.file for f in answer.faults] == [str(broken)]
        assert answer.origin.runs == 3996

    @pytest.mark.parametrize("name", ENGINES)
    def test_corrupt_pages_that_only_reading_shows(self, tmp_path, name):
        for number in range(5):
            runs(number, host=f"r{number}").to_parquet(
                tmp_path / f"{number}.parquet", compression="snappy"
            )
        broken = tmp_path / "3.parquet"
        content = bytearray(broken.read_bytes())
        content[4:400] = bytes(255 for _ in range(396))
        broken.write_bytes(content)
        answer = quiet(fleet.fit, tmp_path, engine=engine(name))
        assert [f.file for f in answer.faults] == [str(broken)]
        assert set(answer.to_frame()["host"]) == {"r0", "r1", "r2", "r4"}

    def test_other_columns_over_time(self, tmp_path):
        runs(0).to_parquet(tmp_path / "a.parquet")
        runs(1).rename(columns={"time_s": "elapsed_ms"}).assign(
            elapsed_ms=lambda t: t["elapsed_ms"] * 1e3
        ).to_parquet(tmp_path / "b.parquet")
        runs(2).rename(columns={"time_s": "how_long"}).to_parquet(tmp_path / "c.parquet")
        answer = quiet(fleet.fit, tmp_path)
        both = pd.concat([runs(0), runs(1)], ignore_index=True)
        assert_same(answer.to_frame(), quiet(ppw.fit_runs, both).to_frame())
        (fault,) = answer.faults
        assert fault.file == str(tmp_path / "c.parquet")
        assert "its columns are others: no time_s" in fault.what

    def test_values_that_cannot_be_are_named_by_file(self, tmp_path, monkeypatch):
        runs(0).to_parquet(tmp_path / "a.parquet")
        bad = runs(1)
        bad.loc[:2, "time_s"] = -1.0
        bad.to_parquet(tmp_path / "b.parquet")
        monkeypatch.chdir(tmp_path)
        for source in (tmp_path, "."):
            (fault,) = quiet(fleet.fit, source).faults
            assert fault == (
                "b.parquet" if source == "." else str(tmp_path / "b.parquet"),
                "time_s that cannot be in 3 runs: left out; correct or drop them",
            )

    def test_a_worker_that_fails_once(self, tmp_path, monkeypatch):
        import duckdb

        runs(0).to_parquet(tmp_path / "a.parquet")
        runs(1).to_parquet(tmp_path / "b.parquet")
        connection = fleet.connect("duckdb", threads=1)
        read, failures = connection.to_pyarrow, [duckdb.IOException("a worker died")]

        def failing(expression, **options):
            if failures:
                raise failures.pop()
            return read(expression, **options)

        monkeypatch.setattr(connection, "to_pyarrow", failing)
        answer = quiet(fleet.fit, tmp_path, engine=connection)
        assert (answer.faults, answer.origin.files) == ((), 2)

    def test_no_file_that_can_be_read(self, tmp_path):
        (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing")
        with pytest.raises(PpwError, match=r"a\.parquet: broken Parquet"):
            fleet.fit(tmp_path)
        with pytest.raises(PpwError, match="elsewhere: is not there"):
            fleet.fit(tmp_path / "elsewhere")
        (tmp_path / "empty").mkdir()
        with pytest.raises(PpwError, match="empty: no file there ends in"):
            fleet.fit(tmp_path / "empty")


class TestConnection:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"engine": "sqlite"}, "engine 'sqlite' is not one of duckdb, spark"),
            ({"memory_limit": "4 frogs"}, "is not a quantity in B"),
            ({"temporary": "/no/such"}, "temporary folder /no/such: is no folder"),
        ],
    )
    def test_what_is_refused(self, options, message):
        with pytest.raises((PpwError, ppw.MeasurementError), match=message):
            fleet.connect(**options)
