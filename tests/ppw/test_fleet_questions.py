"""Over a fleet: files and formats, faults, engines as they are set up, states, commands."""

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from fleet_peers import OTHERS_WARNINGS, ask, assert_same, engine, every_engine, saved
from made_up import quiet, sweep
from processes import ROOT

import ppw
from ppw import fleet
from ppw.errors import CaveatWarning, PpwError
from ppw.fleet import FleetAnswer, engine as progress, moments
from ppw.fleet.engine import Fault, _local_session
from ppw.fleet.run_files import canonical
from ppw.fleet.state import FleetState
from ppw.fleet.telemetry import open_samples, write_runs

pytestmark = OTHERS_WARNINGS


def runs(seed=0, rows=60, host="rack1"):
    random = np.random.default_rng(seed)
    ghz = random.choice([1.2, 1.8, 2.4], rows)
    time = (3 + 10 / ghz) * np.exp(random.normal(0, 0.01, rows))
    return pd.DataFrame({"host": host, "freq_ghz": ghz, "time_s": time})


class TestFormats:
    @every_engine
    def test_csv_in_other_units_and_words(self, tmp_path, name):
        table = runs()
        foreign = pd.DataFrame({"Machine": table["host"], "Shelf": "2,5"})
        foreign["Frequency (MHz)"] = table["freq_ghz"] * 1e3
        foreign["Elapsed"] = [f"{t * 1e3!r} ms" for t in table["time_s"]]
        path = tmp_path / "runs.csv"
        foreign.to_csv(path, index=False, sep=";")
        answer = quiet(fleet.project, path, freq="3GHz", engine=engine(name))
        assert_same(answer.to_frame(), quiet(ppw.project, table, freq="3GHz").to_frame())

    @pytest.mark.parametrize("header", ["load", "load_pct"])
    def test_a_load_in_percent(self, tmp_path, header):
        """Only those at full load tell how fast a host is; one that cannot be is a fault."""
        table = runs()
        cells = ["100%", "50%"] * (len(table) // 2)
        cells = [c if header == "load" else c.rstrip("%") for c in cells]
        path = tmp_path / "runs.csv"
        table.assign(**{header: cells}).to_csv(path, index=False)
        good = table.assign(load=[1.0, 0.5] * (len(table) // 2))
        expected = quiet(ppw.fit, good).to_frame()
        assert_same(quiet(fleet.fit, path).to_frame(), expected)
        assert_same(quiet(ppw.fit, ppw.read_runs(path)).to_frame(), expected)
        table.assign(load=100.0).to_csv(path, index=False)
        with pytest.raises(PpwError, match="no run that can be used"):
            fleet.fit(path)

    @every_engine
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
        assert_same(answer.to_frame(), quiet(ppw.fit, good).to_frame())
        assert answer.origin.runs == len(rows)

    def test_missing_words_are_missing_and_text_is_a_fault(self, tmp_path):
        path = tmp_path / "runs.csv"
        table = runs().astype({"time_s": object})
        table.loc[3, "time_s"], table.loc[5, "time_s"] = "n/a", "fast"
        table.to_csv(path, index=False)
        answer = quiet(fleet.fit, path)
        good = table.drop(index=[3, 5]).astype({"time_s": float})
        assert_same(answer.to_frame(), quiet(ppw.fit, good).to_frame())
        assert [str(f) for f in answer.faults] == [
            f"{path}: time_s with impossible values in 1 runs: left out; correct or drop them",
            f"{path}: time is missing in 1 runs of 1 groups that have others "
            "(the first: host=rack1): these runs take no part",
        ]

    def test_a_table_of_the_engine_and_a_written_answer(self, tmp_path):
        import ibis

        table = ibis.memtable(runs())
        answer = quiet(fleet.fit, engine("duckdb").create_view("runs_here", table, overwrite=True))
        answer.write(tmp_path / "laws.parquet")
        assert_same(pd.read_parquet(tmp_path / "laws.parquet"), answer.to_frame())
        assert answer.to_table().count().to_pyarrow().as_py() == len(answer.to_frame())


class TestFaults:
    def test_a_hundred_files_are_one_table_and_a_corrupt_one_is_named(self, tmp_path):
        for number in range(100):
            part = runs(number, rows=4, host=f"rack{number % 4}")
            part.to_parquet(tmp_path / f"{number:04}.parquet")
        answer = quiet(fleet.fit, tmp_path)
        assert (answer.origin.files, answer.origin.runs) == (100, 400)
        whole = ppw.read_runs(sorted(tmp_path.iterdir()))
        assert_same(answer.to_frame(), quiet(ppw.fit, whole).to_frame())
        broken = tmp_path / "0050.parquet"
        broken.write_bytes(broken.read_bytes()[:-20])
        with pytest.warns(CaveatWarning, match="0050.parquet: broken Parquet"):
            answer = fleet.fit(tmp_path)
        assert [f.file for f in answer.faults] == [str(broken)]
        assert answer.origin.runs == 396

    @every_engine
    def test_corrupt_pages_that_only_reading_shows(self, tmp_path, name):
        for number in range(5):
            part = runs(number, host=f"r{number}")
            part.to_parquet(tmp_path / f"{number}.parquet", compression="snappy")
        broken = tmp_path / "3.parquet"
        content = bytearray(broken.read_bytes())
        content[4:400] = bytes([255] * 396)
        broken.write_bytes(content)
        answer = quiet(fleet.fit, tmp_path, engine=engine(name))
        assert [f.file for f in answer.faults] == [str(broken)]
        assert set(answer.to_frame()["host"]) == {"r0", "r1", "r2", "r4"}

    def test_other_columns_over_time(self, tmp_path):
        runs(0).to_parquet(tmp_path / "a.parquet")
        other = runs(1).assign(elapsed_ms=lambda t: t["time_s"] * 1e3).drop(columns="time_s")
        other.to_parquet(tmp_path / "b.parquet")
        runs(2).rename(columns={"time_s": "how_long"}).to_parquet(tmp_path / "c.parquet")
        answer = quiet(fleet.fit, tmp_path)
        both = pd.concat([runs(0), runs(1)], ignore_index=True)
        assert_same(answer.to_frame(), quiet(ppw.fit, both).to_frame())
        (fault,) = answer.faults
        assert fault.file == str(tmp_path / "c.parquet")
        assert "it has no column time_s" in fault.what

    def test_values_that_cannot_be_are_named_by_file(self, tmp_path, monkeypatch):
        runs(0).to_parquet(tmp_path / "a.parquet")
        bad = runs(1)
        bad.loc[:2, "time_s"] = -1.0
        bad.to_parquet(tmp_path / "b.parquet")
        monkeypatch.chdir(tmp_path)
        what = "time_s with impossible values in 3 runs: left out; correct or drop them"
        for source, name in ((tmp_path, str(tmp_path / "b.parquet")), (".", "b.parquet")):
            answer = quiet(fleet.fit, source)
            assert (answer.faults, answer.origin.unusable) == (((name, what),), 3)

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
        # Of a long message the beginning of the first line is told.
        failures += [duckdb.IOException("died" * 99 + "\nhere")] * 4
        told = f"cannot be read: {'died' * 75}: write"
        first = rf"none of 2 files .* the first: {tmp_path}/a\.parquet: {told}"
        with pytest.raises(PpwError, match=first):
            fleet.fit(tmp_path, engine=connection)

    def test_no_file_that_can_be_read(self, tmp_path):
        (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing")
        with pytest.raises(PpwError, match=r"a\.parquet: broken Parquet"):
            fleet.fit(tmp_path)
        with pytest.raises(PpwError, match="elsewhere: is not there"):
            fleet.fit(tmp_path / "elsewhere")
        (tmp_path / "empty").mkdir()
        with pytest.raises(PpwError, match="empty: no file there ends in"):
            fleet.fit(tmp_path / "empty")
        for wrong in ("[1]", '{"freq_ghz": '):
            (tmp_path / "a.jsonl").write_text(f'{{"freq_ghz": 1, "time_s": 2}}\n\n{wrong}\n')
            with pytest.raises(PpwError, match=r"a\.jsonl: line 3 is not a JSON object: correct"):
                fleet.fit(tmp_path / "a.jsonl")


@pytest.mark.cases(
    "options, message",
    ({"engine": "sqlite"}, "engine 'sqlite' is not one of duckdb, spark"),
    ({"memory_limit": "4 frogs"}, "is not a quantity in B"),
    ({"memory_limit": "5kB"}, "'5kB' is less than 1 MiB: write it with a unit"),
    ({"temporary": "/no/such"}, "temporary folder /no/such: is no folder"),
)
def test_connections_that_are_refused(options, message):
    with pytest.raises((PpwError, ppw.MeasurementError), match=message):
        fleet.connect(**options)


def test_units_in_cells_are_read_as_in_memory(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(
        "Freq,time_s,energy_j,load\n1.0 GHz,5.5 s,5 MJ,100%\n2.0 GHz,3100 ms,4000 kJ,0.25\n"
        "2.4GHz,3,4200000 mJ,50%\n"
    )
    known = ppw.read_runs(path)
    read = fleet.open_runs(str(path)).table.to_pandas()
    for column in ("time_s", "energy_j", "load"):
        assert read[column].tolist() == pytest.approx(known[column].tolist())


def test_booleans_and_moments_are_no_numbers():
    import ibis

    for value in (True, pd.Timestamp("2026-03-01")):
        made = ibis.memtable(pd.DataFrame({"freq_hz": [1e9], "time_s": [value]}))
        assert canonical(made).to_pandas()["time_s"].tolist() == [float("-inf")]


def test_decimal_commas_are_a_fault_that_says_what_reads_them(tmp_path):
    path = tmp_path / "g.csv"
    path.write_text("host;freq_ghz;time_s\na;1,0;5,5\na;2,0;3,1\n")
    done = ask("fit", path)
    assert isinstance(done.exception, PpwError)
    said = "g.csv: has decimal commas (1,0), but ppw fleet reads only decimal points"
    assert said in str(done.exception) + done.output


def test_values_that_cannot_be_and_a_fault_told_once_where_keys_have_no_point(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("host,freq_ghz,time_s\na,1.0,x\na,2.0,3.1\na,2.4,y\n")
    done = ask("project", path, "--freq", "3GHz", "--metric", "time")
    assert isinstance(done.exception, PpwError)
    assert "fault:" in done.output
    assert "time_s with impossible values in 2 runs" in done.output
    path.write_text("host,cores,freq_ghz,time_s\na,4,1.0,5\na,4,2.0,3.1\na,4,2.4,\n")
    done = ask("project", path, "--freq", "3GHz", "--metric", "time")
    assert done.output.count("(the first: host=a, cores=4): these runs") == 1


def test_a_fleet_of_one_group_names_no_columns_of_the_engine(tmp_path):
    ghz = [1.0, 2.0, 3.0] * 20
    table = pd.DataFrame({"freq_ghz": ghz, "time_s": [1 + 2 / f for f in ghz]})
    table.to_parquet(tmp_path / "runs.parquet")
    done = ask("project", tmp_path, "--freq", "4GHz")
    assert done.return_value == 0
    (said,) = [line for line in done.stdout.splitlines() if "one group" in line]
    assert said.endswith("all rows are one group; see --by and --map")


@pytest.fixture
def racks(tmp_path):
    for host in ("rack1", "rack2"):
        runs(3, rows=12, host=host).to_parquet(tmp_path / f"{host}.parquet")
    return tmp_path


class TestAnswers:
    def test_projection_in_words(self, racks):
        done = ask("project", racks, "--freq", "3GHz", "--metric", "time")
        assert (done.return_value, done.stderr) == (0, "")
        whole = ppw.read_runs(sorted(racks.iterdir()))
        in_memory = quiet(ppw.project, whole, freq="3GHz", metric="time")
        assert done.stdout.startswith(in_memory.summary().split("\ncaveat")[0])
        assert "From 24 runs in 2 files, condensed to 6 cells by duckdb." in done.stdout

    def test_parquet_by_the_ending_of_output_with_its_caveats_told(self, racks):
        assert ask("validate", racks, "-o", racks / "out.parquet").return_value == 0
        whole = ppw.read_runs([racks / "rack1.parquet", racks / "rack2.parquet"])
        written = pd.read_parquet(racks / "out.parquet")
        in_memory = quiet(ppw.validate, whole).to_frame()
        assert_same(written.astype({"covered": object}), in_memory)
        (racks / "out.parquet").unlink()
        done = ask("project", racks, "--freq", "9GHz", "-o", racks / "out.parquet")
        assert done.return_value == 0
        assert done.stderr.startswith("ppw: caveat: ")
        assert len(pd.read_parquet(racks / "out.parquet")) == 2

    @pytest.mark.parametrize("form", ["html", "json"])
    def test_other_formats(self, racks, form):
        done = ask("project", racks, "--freq", "3GHz", "--format", form)
        assert done.return_value == 0
        assert "rack2" in done.stdout
        if form == "json":
            assert FleetAnswer.from_json(done.stdout).origin.engine == "duckdb"

    def test_check_names_what_cannot_be_right(self, racks):
        odd = runs(3, rows=12, host="rack3")
        slow = odd["freq_ghz"] == 2.4
        odd.loc[slow, "time_s"] *= 3
        odd.to_parquet(racks / "rack3.parquet")
        done = ask("check", racks, "--strict")
        assert done.return_value == 3
        assert f"{slow.sum()} of 36 rows cannot be right" in done.stdout
        assert "slower at the higher frequency" in done.stdout

    def test_a_check_asked_for(self, racks):
        done = ask("validate", racks, "--max-error", "0.001")
        assert done.return_value == 3
        assert "ppw: check failed: largest error" in done.stderr

    def test_a_fault_is_named_and_the_rest_is_done(self, racks):
        broken = racks / "rack3.parquet"
        broken.write_bytes(b"PAR1")
        done = ask("fit", racks)
        assert done.return_value == 1
        assert "rack2" in done.stdout
        assert done.stderr.startswith(f"ppw: fault: {broken}: broken Parquet")
        assert "1 faults: the answer leaves these out; with --keep-going ppw exits 0" in done.stderr
        kept = ask("fit", racks, "--keep-going")
        assert (kept.return_value, kept.stdout) == (0, done.stdout)
        # A fault comes before a check.
        done = ask("check", racks, "--strict")
        assert done.return_value == 1
        assert "check failed" not in done.stderr


@pytest.mark.peer("spark")
def test_the_walk_of_the_guide_to_spark_submit(racks):
    """Its job and its first command, word for word but for where the runs are."""
    import pyspark

    page = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
    (job,) = re.findall(r"^```python\n(# job\.py\n.*?)^```", page, re.DOTALL | re.MULTILINE)
    (walk,) = re.findall(r"^```sh\n(spark-submit .*)", page, re.MULTILINE)
    where = racks / "cluster"
    where.mkdir()
    job = job.replace("hdfs:///runs/*.parquet", f"{racks}/rack*.parquet")
    (where / "job.py").write_text(job, encoding="utf-8")
    path = f"{Path(pyspark.__file__).parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    known = {"PATH": path, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    how = {"capture_output": True, "text": True, "timeout": 300, "check": False}
    words = shlex.split(walk, comments=True)
    done = subprocess.run(words, cwd=where, env={**os.environ, **known}, **how)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "From 24 runs in 2 files, condensed to 6 cells by pyspark." in done.stdout
    whole = ppw.read_runs([racks / "rack1.parquet", racks / "rack2.parquet"])
    in_memory = quiet(ppw.project, whole, freq="3GHz", metric="time").to_frame()
    assert_same(pd.read_parquet(where / "projected.parquet"), in_memory)
    # No spark-warehouse, no metastore_db.
    assert sorted(p.name for p in where.iterdir()) == ["job.py", "projected.parquet"]


RUNS = sweep(noise=0.02, repeats=3)
NET = (RUNS["power_w"] - 12.0) * RUNS["time_s"]
# Many digits, which differ but in the first and the last run of the last group.
AGREEING = np.append(np.random.default_rng(1).random(35) / 100, 0.0)
AGREEING[35] = AGREEING[24]
EQUAL = {"power_w": 50 + AGREEING, "cycles": 2e10}
ODD = RUNS.index % 2 == 1
SLOWER = ODD & (RUNS["freq_ghz"] == 2.4)
SLOWED = RUNS["freq_ghz"] * (1e9 - 0.5e9 * (RUNS.index == 35))


def table(frame, path):
    return engine("duckdb").read_parquet(saved(frame, path))


def at(*rows):
    return RUNS.index.isin(rows)


# What is wrong with the runs of a host, and how many of them are named.
ODDITIES = {
    "another unit": ({"energy_j": (NET + 12.0 * RUNS["time_s"]) * (1 + 999 * at(4))}, 1),
    "less the idle power": ({"energy_j": NET * (1 + 999 * at(4)), "idle_power_w": 12.0}, 1),
    "a clock not reached": ({"freq_achieved_hz": RUNS["freq_ghz"] * (1e9 - 5e8 * at(3, 7))}, 2),
    "power below idle": ({"idle_power_w": 12.0 + 488.0 * at(5)}, 1),
    "two of the last group that agree": (
        {"time_s": 7 + AGREEING, "freq_achieved_hz": SLOWED} | EQUAL,
        2,
    ),
    "two rates that agree": ({"throughput_ops_s": 7 + AGREEING, "time_s": np.nan} | EQUAL, 2),
    "slower at the fastest clock in one mode": (
        {"mode": np.where(ODD, "y", "x"), "time_s": RUNS["time_s"] * (1 + 2 * SLOWER)},
        6,
    ),
    "time at a half of the frequency": ({"time_s": RUNS["time_s"] + 50.0 * at(12, 13, 14)}, 3),
    "rate at a half of the frequency": (
        {"throughput_ops_s": 1 / (RUNS["time_s"] + 50.0 * at(12, 13, 14)), "time_s": np.nan},
        3,
    ),
}


def test_checks_of_readings_count_as_in_memory():
    hosts = [RUNS.assign(host=host, **columns) for host, (columns, _) in ODDITIES.items()]
    runs = pd.concat(hosts, ignore_index=True)
    expected = quiet(ppw.check, runs)
    named = expected.table.drop_duplicates("position")["host"].value_counts()
    assert named.to_dict() == {host: found for host, (_, found) in ODDITIES.items()}
    answered = quiet(fleet.check, runs, engine=engine("duckdb"))
    answer = answered.answer
    assert (answer.counts, answered.faults) == (expected.counts, ())
    assert (answer.rows, answer.suspects) == (expected.rows, expected.suspects)


class TestEngine:
    def test_is_set_up_as_asked(self, tmp_path):
        connection = fleet.connect(memory_limit="64MiB", temporary=tmp_path, threads=1)
        names = ("memory_limit", "temp_directory", "threads", "disabled_optimizers")
        said = ", ".join(f"current_setting('{name}')" for name in names)
        found = connection.con.execute(f"select {said}").fetchone()
        assert found == ("64.0 MiB", str(tmp_path), 1, "in_clause")

    def test_answers_of_others_and_suspects_one_by_one_are_refused(self):
        answer = quiet(fleet.fit, RUNS, engine=engine("duckdb"))
        other = answer.to_json().replace('"kind": "parameters"', '"kind": "sonnet"')
        assert other != answer.to_json()
        with pytest.raises(ppw.PpwError, match="this fleet document holds a 'sonnet'"):
            fleet.FleetAnswer.from_json(other)
        few, many = (replace(answer, faults=(Fault("a", "torn"),) * n).summary() for n in (20, 21))
        assert (few.count("fault: "), many) == (20, f"{few}\n… 1 more faults: use --format json")
        with pytest.raises(PpwError, match="read from JSON and has no engine: use to_frame"):
            FleetAnswer.from_json(answer.to_json()).to_table()
        answer = quiet(fleet.check, RUNS, engine=engine("duckdb"))
        with pytest.raises(ppw.PpwError, match="a fleet's flagged rows are named by cell"):
            _ = answer.answer.passed
        with pytest.raises(ppw.PpwError, match="set them where you make it"):
            fleet.connect(engine("duckdb"), threads=1)

    @pytest.mark.parametrize("submitted", [False, True])
    def test_spark_is_set_up_as_asked_and_under_spark_submit_as_that_was(
        self, submitted, tmp_path, monkeypatch
    ):
        known = {"PYSPARK_GATEWAY_PORT": "4040"} if submitted else {}
        monkeypatch.setattr(os, "environ", known)
        builder = mock.MagicMock()
        for step in ("master", "config", "appName", "getOrCreate"):
            getattr(builder, step).return_value = builder
        assert _local_session(builder, 4 << 30, str(tmp_path), 3) is builder
        settings = dict(call.args for call in builder.config.call_args_list)
        assert settings["spark.driver.memory"] == "4096m"
        assert settings["spark.local.dir"] == str(tmp_path)
        assert settings["spark.sql.shuffle.partitions"] == 6
        assert ("spark.driver.host" in settings) == (not submitted)
        assert builder.master.call_args_list == [mock.call("local[3]")] * (not submitted)
        assert known.get("PYSPARK_PYTHON") == (None if submitted else sys.executable)

    def test_too_little_memory_says_what_to_do(self):
        numbers = np.arange(200_000)
        many = pd.DataFrame({"workload": numbers.astype(str), "freq_ghz": 1.0 + numbers % 3})
        small = fleet.connect(memory_limit="4MiB", threads=1)
        with pytest.raises(ppw.PpwError, match="limit: raise --memory-limit, or name a folder"):
            quiet(fleet.fit, many.assign(time_s=1.0), engine=small)

    def test_says_how_far_it_is(self, monkeypatch):
        monkeypatch.setattr(progress, "_EVERY_S", 1e-3)
        shares = []
        quiet(fleet.fit, RUNS, engine=engine("duckdb"), progress=shares.append)
        assert len(shares) > 1
        assert shares[-1] == 1.0
        assert all(0 <= share <= 1 for share in shares)


class TestSavedState:
    BOTH = pd.concat([RUNS, sweep(noise=0.02, repeats=3, seed=8, host="rack2")])

    @pytest.fixture(scope="class")
    def state(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("saved")
        path = saved(self.BOTH, folder / "runs.parquet")
        fleet.update_state(folder / "state", path, engine=engine("duckdb"))
        return folder / "state"

    def test_answers_as_its_files_do_across_hosts_too(self, state):
        asked = {"freq": 3e9, "metric": ["time"]}
        expected = quiet(ppw.project, self.BOTH, **asked).to_frame()
        for named in (str(state), FleetState.open(state), [state]):
            found = quiet(fleet.project, source=named, engine=engine("duckdb"), **asked)
            assert_same(found.to_frame(), expected)
        asked = {"scheme": "host", "metric": ["time"]}
        found = quiet(fleet.validate, state, engine=engine("duckdb"), **asked)
        assert_same(found.to_frame(), quiet(ppw.validate, self.BOTH, **asked).to_frame())

    @pytest.mark.cases(
        "options, said",
        ({"columns": {"time_s": "seconds"}}, "has its columns: leave the mapping"),
        ({"metric": ["throughput"]}, "do not have throughput, only"),
        ({"by": ["rack"]}, "not grouped by rack"),
    )
    def test_what_it_does_not_keep_is_refused(self, state, options, said):
        with pytest.raises(ppw.PpwError, match=said):
            quiet(fleet.fit, state, engine=engine("duckdb"), **options)

    def test_without_runs_has_no_answer_and_is_a_folder_of_this_machine(self, tmp_path):
        empty = FleetState(tmp_path / "state")
        for question in (lambda: empty.cells(engine("duckdb")), empty.layout_by):
            with pytest.raises(ppw.PpwError, match="holds no runs yet: add some"):
                question()
        path = saved(RUNS, tmp_path / "runs.parquet")
        with pytest.raises(ppw.PpwError, match="is a file: name a folder for the state"):
            fleet.update_state(path, path, engine=engine("duckdb"))
        with pytest.raises(ppw.PpwError, match="a state takes only files of this machine"):
            fleet.update_state(tmp_path / "state", "https://example.org/runs.parquet")


class TestRuns:
    def test_none_of_which_can_be_used(self):
        with pytest.raises(ppw.PpwError, match="runs is a int: give files"):
            fleet.fit(7)
        wrong = RUNS.assign(time_s=-1.0)
        with pytest.raises(ppw.PpwError, match=r"no run that can be used \(36 cannot\)"):
            quiet(fleet.fit, wrong, engine=engine("duckdb"))

    def test_all_of_which_are_suspect(self):
        halved = RUNS.assign(freq_achieved_hz=0.5e9 * RUNS["freq_ghz"])
        with pytest.raises(ppw.PpwError, match="every run is flagged, so no run is left"):
            quiet(fleet.project, halved, freq=3e9, engine=engine("duckdb"))
        kept = quiet(fleet.project, halved, freq=3e9, keep_all=True, engine=engine("duckdb"))
        assert len(kept.answer.table)

    def test_of_a_pattern_without_a_clock_are_named(self, tmp_path):
        for k in range(2):
            part = RUNS[RUNS.index % 2 == k]
            clock = part["freq_ghz"] if k == 0 else np.nan
            saved(part.assign(freq_ghz=clock), tmp_path / f"{k}.parquet")
        found = quiet(fleet.fit, tmp_path / "[0-9].parquet", engine=engine("duckdb"))
        assert (found.origin.files, found.origin.runs) == (2, len(RUNS))
        (fault,) = found.faults
        assert fault.file.endswith("1.parquet")
        assert fault.what.startswith("no freq_hz in 18 runs: left out")

    def test_so_many_that_agree_are_not_kept_one_by_one(self, monkeypatch):
        monkeypatch.setattr(moments, "_MOST_RUNS", 3)
        coarse = RUNS[["host", "workload", "freq_ghz"]].assign(time_s=7.0)
        with pytest.raises(ppw.PpwError, match="record times to more digits, or use the runs"):
            quiet(fleet.check, coarse, engine=engine("duckdb"))

    def test_that_are_suspect_are_held_against_projections_as_in_memory(self):
        odd = RUNS.assign(time_s=RUNS["time_s"] * (1 + 2 * (RUNS["freq_ghz"] == 2.4)))
        found = quiet(fleet.validate, odd, engine=engine("duckdb"))
        assert_same(found.to_frame(), quiet(ppw.validate, odd).to_frame())

    def test_of_watts_alone(self):
        watts = RUNS[["host", "workload", "freq_ghz", "power_w"]]
        found = quiet(fleet.fit, watts, engine=engine("duckdb"))
        assert_same(found.to_frame(), quiet(ppw.fit, watts).to_frame())
        checked = quiet(fleet.check, watts, engine=engine("duckdb")).answer
        assert checked.counts == quiet(ppw.check, watts).counts

    def test_of_one_frequency_at_a_known_voltage(self):
        """Several frequencies too, each at its own voltage, also on hosts without a name."""
        volts = RUNS.assign(voltage_v=0.7 + 0.1 * RUNS["freq_ghz"])
        volts = pd.concat([volts, volts.assign(host=None, voltage_v=volts["voltage_v"] + 0.1)])
        asked = {"metric": "power", "power_form": "cmos"}
        found = quiet(fleet.fit, volts, engine=engine("duckdb"), **asked)
        assert_same(found.to_frame(), quiet(ppw.fit, volts, **asked).to_frame())
        once = RUNS[RUNS["freq_ghz"] == RUNS["freq_ghz"].min()].assign(voltage_v=0.9)
        checked = quiet(fleet.check, once, engine=engine("duckdb")).answer
        assert checked.counts == quiet(ppw.check, once).counts


class TestSamples:
    @pytest.mark.cases(
        "options, said",
        ({"quantity": "volts"}, "quantity is 'volts': give power or energy"),
        ({"window_s": -1.0}, "the window is -1: give 0 s or more"),
        ({"window_s": np.inf}, "the window is inf: give 0 s or more"),
        ({"most_w": 0.0}, "the highest power .W. and the range .J. must be above 0"),
        ({"quantity": "energy", "range_j": 0.0}, "power .W. and the range .J. must be above 0"),
    )
    def test_of_a_sensor_that_cannot_be(self, options, said):
        with pytest.raises(ppw.PpwError, match=said):
            fleet.Sensor(**options)

    def test_of_the_labels_asked_for_and_written_as_parquet(self, tmp_path):
        at = 1.7e9 + np.arange(11.0)
        pdu = pd.DataFrame({"host": "a", "at": at, "value": 50.0, "label": "pdu"})
        samples = pd.concat([pdu, pdu.assign(value=20.0, label="fan")], ignore_index=True)
        runs = pd.DataFrame({"host": ["a"], "started_at": [at[0]], "time_s": [10.0]})
        tables = table(runs, tmp_path / "runs"), table(samples, tmp_path / "samples")
        joined = fleet.join_power(*tables, offset_s={}, labels=["pdu"])
        assert joined.to_pandas()["energy_j"].tolist() == pytest.approx([500.0])
        for _ in range(2):
            assert write_runs(joined, tmp_path / "j.parquet").endswith("1 of 1 runs have power")
        with pytest.raises(ppw.PpwError, match=r"give a name that ends in \.parquet"):
            write_runs(tables[0], tmp_path / "joined.csv")

    def test_columns_are_of_samples(self, tmp_path):
        with pytest.raises(ppw.PpwError, match="samples have no column watts: map host, at, value"):
            open_samples(tmp_path, engine("duckdb"), {"watts": "w"})
        lacking = table(pd.DataFrame({"host": ["a"]}), tmp_path / "lacking")
        with pytest.raises(ppw.PpwError, match="runs: no column started_at, time_s; the columns"):
            fleet.join_power(lacking, lacking)
