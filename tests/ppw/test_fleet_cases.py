"""Over a fleet: checks by readings, engines as they are set up, saved states, what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fleet_peers import OTHERS_WARNINGS, assert_same, engine, quiet
from made_up import sweep

import ppw
from ppw import fleet
from ppw.fleet import coincidences, progress
from ppw.fleet.connection import _local_session
from ppw.fleet.state import FleetState
from ppw.fleet.telemetry_files import open_samples, write_runs

pytestmark = OTHERS_WARNINGS
RUNS = sweep(noise=0.02, repeats=3)


def table(frame, path):
    """Table of the engine."""
    return engine("duckdb").read_parquet(saved(frame, path))


def saved(frame, path):
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    return path


@pytest.fixture
def state(tmp_path):
    """Folder of a state that holds all runs, and the file they came from."""
    path = saved(RUNS, tmp_path / "runs.parquet")
    fleet.update_state(tmp_path / "state", path, engine=engine("duckdb"))
    return tmp_path / "state"


class TestChecksOfReadings:
    """In memory is the oracle: the engine's expressions name as many runs, by the same checks."""

    def counts(self, **columns):
        runs = RUNS.assign(**columns)
        expected = quiet(ppw.check_quality, runs)
        found = quiet(fleet.check, runs, engine=engine("duckdb")).answer
        assert found.counts == expected.counts
        assert (found.rows, found.suspects) == (expected.rows, expected.suspects)
        return expected.counts

    def energy(self, idle=0.0):
        energy = (RUNS["power_w"] - idle) * RUNS["time_s"]
        energy[4] *= 1000
        return energy

    def test_energy_of_another_unit(self):
        assert self.counts(energy_j=self.energy())["energy_is_not_power_times_time"] == 1

    def test_energy_without_the_idle_power(self):
        found = self.counts(energy_j=self.energy(idle=12.0), idle_power_w=12.0)
        assert found["energy_is_not_power_times_time"] == 1

    def test_a_clock_that_was_not_reached(self):
        achieved = RUNS["freq_ghz"] * 1e9
        achieved[[3, 7]] *= 0.5
        assert sum(self.counts(freq_achieved_hz=achieved).values()) == 2

    def test_power_below_idle(self):
        idle = np.where(np.arange(len(RUNS)) == 5, 500.0, 12.0)
        assert self.counts(idle_power_w=idle)["power_at_or_below_idle"] == 1


class SparkBuilder:
    """Takes down what a Spark session would be made with."""

    def __init__(self):
        self.settings, self.address = {}, None
        self.sparkContext = self

    def master(self, address):
        self.address = address
        return self

    def config(self, name, value):
        self.settings[name] = value
        return self

    def appName(self, name):  # noqa: N802
        return self

    def getOrCreate(self):  # noqa: N802
        return self

    def setLogLevel(self, level):  # noqa: N802
        assert level == "ERROR"


class TestEngine:
    def test_is_set_up_as_asked(self, tmp_path):
        connection = fleet.connect(memory_limit="64MiB", temporary=tmp_path, threads=1)
        names = ("memory_limit", "temp_directory", "threads")
        said = ", ".join(f"current_setting('{name}')" for name in names)
        found = connection.con.execute(f"select {said}").fetchone()
        assert found == ("64.0 MiB", str(tmp_path), 1)

    def test_answers_of_others_are_refused(self):
        answer = quiet(fleet.fit, RUNS, engine=engine("duckdb"))
        other = answer.to_json().replace('"kind": "parameters"', '"kind": "sonnet"')
        assert other != answer.to_json()
        with pytest.raises(ppw.PpwError, match="this fleet document holds a 'sonnet'"):
            fleet.FleetAnswer.from_json(other)

    def test_suspects_are_named_by_cell(self):
        answer = quiet(fleet.check, RUNS, engine=engine("duckdb"))
        with pytest.raises(ppw.PpwError, match="a fleet's suspects are named by cell"):
            _ = answer.answer.passed

    def test_less_than_a_mebibyte_is_refused(self):
        with pytest.raises(ppw.PpwError, match="'5kB' is less than a MiB: write 4GiB"):
            fleet.connect(memory_limit="5kB")

    def test_one_of_the_users_is_not_set_up(self):
        with pytest.raises(ppw.PpwError, match="set them where you make it"):
            fleet.connect(engine("duckdb"), threads=1)

    @pytest.mark.parametrize("submitted", [False, True])
    def test_spark_is_set_up_as_asked_and_under_spark_submit_as_that_was(
        self, submitted, tmp_path, monkeypatch
    ):
        if submitted:
            monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4040")
        else:
            monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
        builder = SparkBuilder()
        assert _local_session(builder, 4 << 30, str(tmp_path), 3) is builder
        assert builder.settings["spark.driver.memory"] == "4096m"
        assert builder.settings["spark.local.dir"] == str(tmp_path)
        assert builder.settings["spark.sql.shuffle.partitions"] == 6
        assert builder.address == (None if submitted else "local[3]")
        assert ("spark.driver.host" in builder.settings) == (not submitted)

    def test_too_little_memory_says_what_to_do(self):
        numbers = np.arange(200_000)
        many = pd.DataFrame(
            {"workload": numbers.astype(str), "freq_ghz": 1.0 + numbers % 3, "time_s": 1.0}
        )
        small = fleet.connect(memory_limit="4MiB", threads=1)
        with pytest.raises(ppw.PpwError, match="limit: raise --memory-limit, or name a folder"):
            quiet(fleet.fit, many, engine=small)

    def test_says_how_far_it_is(self, monkeypatch):
        monkeypatch.setattr(progress, "_EVERY_S", 1e-3)
        shares = []
        quiet(fleet.fit, RUNS, engine=engine("duckdb"), progress=shares.append)
        assert len(shares) > 1
        assert shares[-1] == 1.0
        assert all(0 <= share <= 1 for share in shares)


class TestSavedState:
    @pytest.mark.parametrize("form", [str, FleetState.open, lambda path: [path]])
    def test_answers_as_its_files_do(self, state, form):
        asked = {"freq": 3e9, "metric": ["time"], "engine": engine("duckdb")}
        found = quiet(fleet.project, form(state), **asked)
        assert_same(
            found.to_frame(), quiet(ppw.project_runs, RUNS, freq=3e9, metric=["time"]).to_frame()
        )

    def test_is_validated_across_hosts(self, tmp_path):
        both = pd.concat([RUNS, sweep(noise=0.02, repeats=3, seed=8, host="rack2")])
        path = saved(both, tmp_path / "runs.parquet")
        fleet.update_state(tmp_path / "state", path, engine=engine("duckdb"))
        asked = {"metric": ["time"], "scheme": "host"}
        found = quiet(fleet.validate, tmp_path / "state", engine=engine("duckdb"), **asked)
        assert_same(found.to_frame(), quiet(ppw.validate, both, **asked).to_frame())

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"columns": {"time_s": "seconds"}}, "has its columns: leave the mapping"),
            ({"metric": ["throughput"]}, "do not tell throughput, only"),
            ({"by": ["rack"]}, "not told apart by rack"),
        ],
    )
    def test_what_it_does_not_keep_is_refused(self, state, options, said):
        with pytest.raises(ppw.PpwError, match=said):
            quiet(fleet.fit, state, engine=engine("duckdb"), **options)

    def test_without_runs_has_no_answer(self, tmp_path):
        empty = FleetState(tmp_path / "state")
        for ask in (lambda: empty.cells(engine("duckdb")), empty.layout_by):
            with pytest.raises(ppw.PpwError, match="holds no runs yet: add some"):
                ask()

    def test_is_a_folder_and_of_this_machine(self, tmp_path):
        path = saved(RUNS, tmp_path / "runs.parquet")
        with pytest.raises(ppw.PpwError, match="is a file: name a folder for the state"):
            fleet.update_state(path, path, engine=engine("duckdb"))
        with pytest.raises(ppw.PpwError, match="a state takes files of this machine"):
            fleet.update_state(tmp_path / "state", "https://example.org/runs.parquet")


class TestRuns:
    def test_a_pattern_names_files(self, tmp_path):
        for k in range(3):
            saved(RUNS[RUNS.index % 3 == k], tmp_path / f"{k}.parquet")
        found = quiet(fleet.fit, tmp_path / "[0-9].parquet", engine=engine("duckdb"))
        assert (found.origin.files, found.origin.runs) == (3, len(RUNS))
        assert_same(found.to_frame(), quiet(ppw.fit_runs, RUNS).to_frame())

    def test_what_names_no_runs_is_refused(self):
        with pytest.raises(ppw.PpwError, match="runs is a int: give files"):
            fleet.fit(7)

    def test_none_of_which_can_be_used(self):
        wrong = RUNS.assign(time_s=-1.0)
        with pytest.raises(ppw.PpwError, match=r"no run that can be used \(36 cannot\)"):
            quiet(fleet.fit, wrong, engine=engine("duckdb"))

    def test_all_of_which_are_suspect(self):
        halved = RUNS.assign(freq_achieved_hz=0.5e9 * RUNS["freq_ghz"])
        with pytest.raises(ppw.PpwError, match="every run is suspect, so nothing is left"):
            quiet(fleet.project, halved, freq=3e9, engine=engine("duckdb"))
        kept = quiet(fleet.project, halved, freq=3e9, keep_all=True, engine=engine("duckdb"))
        assert len(kept.answer.table)

    def test_without_a_clock_are_named(self, tmp_path):
        for k in range(2):
            part = RUNS[RUNS.index % 2 == k]
            clock = part["freq_ghz"] if k == 0 else np.nan
            saved(part.assign(freq_ghz=clock), tmp_path / f"{k}.parquet")
        found = quiet(fleet.fit, tmp_path / "*.parquet", engine=engine("duckdb"))
        (fault,) = found.faults
        assert fault.file.endswith("1.parquet")
        assert fault.what.startswith("no freq_hz in 18 runs: left out")

    def test_so_many_that_agree_are_not_kept_one_by_one(self, monkeypatch):
        monkeypatch.setattr(coincidences, "_MOST_RUNS", 3)
        coarse = RUNS[["host", "workload", "freq_ghz"]].assign(time_s=7.0)
        with pytest.raises(ppw.PpwError, match="record times to more digits, or use the runs"):
            quiet(fleet.check, coarse, engine=engine("duckdb"))

    def test_of_watts_alone(self):
        watts = RUNS[["host", "workload", "freq_ghz", "power_w"]]
        found = quiet(fleet.fit, watts, engine=engine("duckdb"))
        assert_same(found.to_frame(), quiet(ppw.fit_runs, watts).to_frame())
        checked = quiet(fleet.check, watts, engine=engine("duckdb")).answer
        assert checked.counts == quiet(ppw.check_quality, watts).counts

    def test_below_full_load_take_no_part_in_a_curve(self):
        part = RUNS.assign(load=np.where(RUNS.index % 5 == 0, 0.5, 1.0))
        found = quiet(fleet.fit, part, engine=engine("duckdb"))
        assert_same(found.to_frame(), quiet(ppw.fit_runs, part).to_frame())


class TestSamples:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"quantity": "volts"}, "quantity is 'volts': give power or energy"),
            ({"window_s": -1.0}, "the window is -1: give 0 s or more"),
            ({"window_s": np.inf}, "the window is inf: give 0 s or more"),
            ({"most_w": 0.0}, "the most watts and the range .J. must be above 0"),
            ({"quantity": "energy", "range_j": 0.0}, "the most watts and the range .J. must"),
        ],
    )
    def test_of_a_sensor_that_cannot_be(self, options, said):
        with pytest.raises(ppw.PpwError, match=said):
            fleet.Sensor(**options)

    def test_of_the_labels_asked_for(self, tmp_path):
        at = 1.7e9 + np.arange(11.0)
        pdu = pd.DataFrame({"host": "a", "at": at, "value": 50.0, "label": "pdu"})
        samples = pd.concat([pdu, pdu.assign(value=20.0, label="fan")], ignore_index=True)
        runs = pd.DataFrame({"host": ["a"], "started_at": [at[0]], "time_s": [10.0]})
        tables = table(runs, tmp_path / "runs"), table(samples, tmp_path / "samples")
        joined = fleet.join_power(*tables, offset_s={}, labels=["pdu"]).to_pandas()
        assert joined["energy_j"].tolist() == pytest.approx([500.0])

    def test_columns_are_of_samples(self, tmp_path):
        with pytest.raises(ppw.PpwError, match="samples have no column watts: map host, at, value"):
            open_samples(tmp_path, engine("duckdb"), {"watts": "w"})
        lacking = table(pd.DataFrame({"host": ["a"]}), tmp_path / "lacking")
        with pytest.raises(ppw.PpwError, match="runs: no column started_at, time_s; the columns"):
            fleet.join_power(lacking, lacking)

    def test_joined_runs_are_written_as_parquet(self, tmp_path):
        joined = table(pd.DataFrame({"host": ["a"]}), tmp_path / "runs")
        with pytest.raises(ppw.PpwError, match=r"give a name that ends in \.parquet"):
            write_runs(joined, tmp_path / "joined.csv")
