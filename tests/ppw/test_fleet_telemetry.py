"""Watts of runs joined from telemetry; the oracle is the in-memory integration of single runs."""

from pathlib import Path

import ibis
import numpy as np
import pandas as pd
import pytest
from fleet_peers import OTHERS_WARNINGS, ask, saved, sockets_closed  # noqa: F401
from hypothesis import settings

from measurements.power.energy import Stream, channel_energy
from measurements.power.source import Channel
from ppw.errors import PpwError
from ppw.fleet.engine import connect
from ppw.fleet.telemetry import Sensor, contradicting_hosts, join_power

pytestmark = OTHERS_WARNINGS

EPOCH = 1_700_000_000.0


class Engine:
    """A connection that is given frames as Parquet files."""

    def __init__(self, con, folder):
        self.con, self.folder, self.files = con, folder, 0

    def table(self, frame):
        self.files += 1
        return self.con.read_parquet(saved(frame, self.folder / f"{self.files}.parquet"))


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory):
    return Engine(ibis.duckdb.connect(), tmp_path_factory.mktemp("duckdb"))


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    return Engine(connect("spark", threads=2), tmp_path_factory.mktemp("spark"))


def joined(engine, runs, samples, sensor, **options):
    table = join_power(engine.table(runs), engine.table(samples), sensor, **options)
    order = ["host", "started_at", "time_s"]
    return table.to_pyarrow().to_pandas().sort_values(order, ignore_index=True)


def stream_of(part, sensor):
    """Readings of one channel as the measurement layer holds them."""
    value = part.value.to_numpy(dtype=float)
    usable = (value > 0 if sensor.quantity == "power" else value >= 0) & np.isfinite(value)
    part = part[usable]
    own = part.own if "own" in part else pd.Series(np.nan, index=part.index)
    rows = sorted(zip(part["at"], part.value, own, strict=True))
    return Stream(*np.array(rows, dtype=float).reshape(-1, 3).T)


def expected(runs, samples, sensor):
    """What `channel_energy` says of every run, one at a time; channels of a host added.

    A fleet does not look for counters that stand still, so theirs is a domain that may.
    """
    channels = samples.groupby(["host", "label"])
    streams = [(*key, stream_of(part, sensor)) for key, part in channels]
    how, rows = {"window_s": sensor.window_s, "range_j": sensor.range_j}, []
    for run in runs.itertuples():
        span = run.started_at, run.started_at + run.time_s
        parts = [
            channel_energy(Channel(label, sensor.quantity, "other", **how), stream, *span)
            for host, label, stream in streams
            if host == run.host and len(stream.at_s)
        ]
        watts = sum(p.power_w for p in parts) if parts else np.nan
        rows.append((watts, watts * run.time_s, min((p.readings for p in parts), default=0)))
    return np.array(rows, dtype=float).reshape(-1, 3)


def check_equal(engine, runs, samples, sensor):
    runs = runs.sort_values(["host", "started_at", "time_s"], ignore_index=True)
    found = joined(engine, runs, samples, sensor)
    wanted = expected(runs, samples, sensor)
    np.testing.assert_allclose(found.power_w, wanted[:, 0], rtol=1e-9)
    np.testing.assert_allclose(found.energy_j, wanted[:, 1], rtol=1e-9)
    assert np.array_equal(found.power_readings, wanted[:, 2])
    assert (found.power_w.isna() <= found.notes.notna()).all()
    assert ((found.power_label == "measured") == found.power_w.notna()).all()


SENSORS = {"moments": Sensor(), **dict.fromkeys(("windows", "own"), Sensor(window_s=4.0))}
SENSORS |= {"counter": Sensor("energy"), "wrapping": Sensor("energy", range_j=5e4)}


def made(seed, sensor, *, own=False):
    """Hosts with one or two channels; unsorted, with ties, gaps, nulls, zeros and stale figures."""
    rng = np.random.default_rng(seed)
    samples, runs = [], []
    for host in ("a", "b", "c")[: rng.integers(1, 4)]:
        for label in ("s0", "s1")[: rng.integers(1, 3)]:
            n = int(rng.integers(0, 60))
            step = rng.choice([0.0, 0.1, 0.5, 1.0, 1.0, 1.0, 1.3, 9.0], n)
            at = EPOCH + np.cumsum(step) + rng.choice([0.0, 0.25])
            watts = rng.choice([100.0, 101.0, 150.0, 0.0, np.nan, 80.5], n)
            value = watts
            if sensor.quantity == "energy":
                used = np.cumsum(np.nan_to_num(watts) * np.maximum(step, 0.1))
                value = used % sensor.range_j if sensor.range_j else used
                value = np.where(np.isnan(watts), np.nan, value)
            part = pd.DataFrame({"host": host, "label": label, "at": at, "value": value})
            samples.append(part.assign(own=np.floor(at / 2) * 2) if own else part)
        n = int(rng.integers(1, 9))
        start = EPOCH + rng.choice(np.arange(0, 60, 0.5), n) + rng.choice([0, 0.1, -0.2])
        took = rng.choice([0.5, 1.0, 3.0, 8.0, 20.0, 8.25], n)
        runs.append(pd.DataFrame({"host": host, "started_at": start, "time_s": took}))
    shuffled = pd.concat(samples).sample(frac=1, random_state=seed)
    return pd.concat(runs).drop_duplicates(), shuffled


@pytest.mark.parametrize("name", ["duckdb", pytest.param("spark", marks=pytest.mark.peer("spark"))])
@pytest.mark.parametrize("kind", SENSORS)
def test_every_run_is_what_it_is_in_memory(request, name, kind):
    """Many cases at once, each with hosts of its own."""
    count = 100 if name == "spark" else settings.default.max_examples
    cases = [made(i, SENSORS[kind], own=kind == "own") for i in range(count)]
    runs, samples = (
        pd.concat([f.assign(host=f.host + str(n)) for n, f in enumerate(frames)])
        for frames in zip(*cases, strict=True)
    )
    check_equal(request.getfixturevalue(name), runs, samples, SENSORS[kind])


@pytest.mark.peer("spark")
def test_spark_reads_times_and_zones(spark):
    case = TestTwoSamplesByHand()
    case.test_offset_is_added_to_the_samples(spark, {"a": -0.5, "b": 7.0})
    case.test_time_with_a_zone(spark)


class TestCommand:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        case = TestTwoSamplesByHand
        later = case.RUNS.assign(started_at="2026-03-01T13:00:00Z", host="b")
        runs = pd.concat([case.RUNS, later]).assign(freq_ghz=2.0)
        runs.to_csv("runs.csv", index=False)
        samples = pd.concat([case.SAMPLES, case.SAMPLES.assign(host="b")])
        saved(samples.rename(columns={"host": "instance", "at": "timestamp"}), "watts.parquet")

    NAMES = ("--map", "host=instance", "--map", "at=timestamp", "--source", "ipmi:dcmi")

    def test_names_hosts_whose_clocks_disagree_and_does_the_rest(self):
        done = ask("join", "runs.csv", "watts.parquet", *self.NAMES, "-o", "out.parquet")
        assert (done.return_value, done.stdout) == (1, "out.parquet: 1 of 2 runs have power\n")
        assert done.stderr.startswith("ppw: fault: host b: its runs are from 2026-03-01T13:00:00Z")
        found = pd.read_parquet("out.parquet").sort_values("host")
        assert (found.freq_hz.tolist(), found.energy_j[0]) == ([2e9, 2e9], 800.0)
        assert found.notes[1] == "ipmi:dcmi: read 0 times during the run"
        kept = ("-o", "o.parquet", "--keep-going")
        assert ask("join", "runs.csv", "watts.parquet", *self.NAMES, *kept).return_value == 0

    @pytest.mark.peer("spark")
    def test_spark_writes_a_folder(self, spark, tmp_path):
        read = tmp_path / "runs.csv", tmp_path / "watts.parquet"
        named = (*self.NAMES, "--engine", "spark", "-o", "out.parquet", "--offset", "b=3600")
        done = ask("join", *read, *named)
        assert done.exception is None
        assert done.stdout == "out.parquet: 2 of 2 runs have power\n"
        assert pd.read_parquet("out.parquet")["power_w"].tolist() == [160.0, 160.0]
        again = ask("join", *read, *named)
        assert "out.parquet: exists already, and Spark writes a folder" in str(again.exception)

    def test_offsets_by_host(self):
        late = ("--offset", "b=3600", "--offset", "a=0")
        done = ask("join", "runs.csv", "watts.parquet", *self.NAMES, *late, "-o", "out.parquet")
        assert (done.return_value, done.stderr) == (0, "")
        assert done.stdout == "out.parquet: 2 of 2 runs have power\n"

    @pytest.mark.cases(
        "more, said",
        ("--offset b=3600 --offset 7", "give one for all hosts, or one per host"),
        ("--offset b=soon", "'b=soon' is not [HOST=]SECONDS"),
        ("--map value=watts", "no column watts; the columns are instance"),
    )
    def test_offsets_and_headers_that_say_nothing(self, more, said):
        asked = ("runs.csv", "watts.parquet", *self.NAMES, *more.split(), "-o", "o.parquet")
        assert said in str(ask("join", *asked).exception)
        assert not Path("o.parquet").exists()

    def test_files_at_fault_are_named_and_the_rest_is_done(self):
        Path("watts").mkdir()
        Path("watts.parquet").rename("watts/1.parquet")
        Path("watts/2.parquet").write_bytes(b"PAR1 no more")
        rows = "instance,timestamp,value\nb,2026-03-01T13:00:01Z,90\nb,1772370003.0,90\n"
        Path("watts/3.csv").write_text(rows)
        done = ask("join", "runs.csv", "watts", *self.NAMES, "-o", "out.parquet")
        assert done.return_value == 1
        assert done.stderr.startswith("ppw: fault: watts/2.parquet: broken Parquet: ")
        assert done.stdout == "out.parquet: 2 of 2 runs have power\n"
        assert sorted(pd.read_parquet("out.parquet")["power_w"]) == [90.0, 160.0]


class TestTwoSamplesByHand:
    """100 W at second 1 and 200 W at second 3 of a run of 5 s: 100·1 + 150·2 + 200·2 = 800 J."""

    RUNS = pd.DataFrame({"host": ["a"], "started_at": ["2026-03-01T12:00:00Z"], "time_s": [5.0]})
    AT = pd.Timestamp("2026-03-01T12:00:00") + pd.to_timedelta([1.0, 3.0, 5.5], unit="s")
    SAMPLES = pd.DataFrame({"host": "a", "at": AT.as_unit("us"), "value": [100.0, 200.0, 50.0]})

    def test_level_ends_and_no_reading_from_outside(self, duckdb):
        found = joined(duckdb, self.RUNS, self.SAMPLES, Sensor(source="meter:wt310")).iloc[0]
        assert (found.energy_j, found.power_w) == (800.0, 160.0)
        assert (found.power_readings, found.power_gap_s) == (2, 2.0)
        assert (found.power_source, found.power_label) == ("meter:wt310", "measured")
        assert pd.isna(found.notes)
        # Means over the second before each: nothing is known of the last two seconds.
        found = joined(duckdb, self.RUNS, self.SAMPLES, Sensor(window_s=1.0)).iloc[0]
        assert (found.power_w, found.power_readings, found.power_gap_s) == (150.0, 2, 2.0)

    @pytest.mark.parametrize("offset", [-0.5, {"a": -0.5, "b": 7.0}])
    def test_offset_is_added_to_the_samples(self, duckdb, offset):
        found = joined(duckdb, self.RUNS, self.SAMPLES, None, offset_s=offset).iloc[0]
        # At 0.5, 2.5 and 5.0 s: 50 + 300 + 125·2.5.
        assert found.energy_j == 50 + 300 + 312.5

    def test_several_executions_are_one_run(self, duckdb):
        runs = self.RUNS.assign(time_s=2.5, executions=2, notes="noisy", start_s=7.0, end_s=9.0)
        found = joined(duckdb, runs, self.SAMPLES, None).iloc[0]
        assert (found.energy_j, found.power_w, found.notes) == (400.0, 160.0, "noisy")
        assert (found.start_s, found.end_s) == (7.0, 9.0)

    def test_time_with_a_zone(self, duckdb):
        runs = self.RUNS.assign(started_at="2026-03-01T13:00:00+01:00")
        assert joined(duckdb, runs, self.SAMPLES, None).energy_j[0] == 800.0


def test_what_is_missing_is_said(duckdb):
    runs = pd.DataFrame({"host": ["a", "a", "b"], "started_at": EPOCH + np.array([0, 40, 0])})
    runs["time_s"] = 10.0
    samples = pd.DataFrame({"host": "a", "at": EPOCH + np.arange(4.0), "value": 50.0})
    found = joined(duckdb, runs, samples, Sensor(source="log:pdu"))
    first, last = "no reading for 70% of the run", "no reading with a figure"
    said = (first, "read 0 times during the run", last)
    assert found.notes.tolist() == [f"log:pdu: {text}" for text in said]
    assert found.power_w.isna().tolist() == [False, True, True]
    counter = joined(duckdb, runs[:1], samples, Sensor("energy", source="x"))
    assert counter.notes[0] == "x: not read at both ends of the run"
    stuck = joined(duckdb, runs[:1].assign(time_s=2.0), samples, Sensor("energy", source="x"))
    assert stuck.notes[0] == "x: the counter did not move in the run"
    odd = joined(duckdb, runs[:1].assign(started_at="yesterday"), samples, None)
    assert odd.notes[0] == "started_at is no time"
    assert pd.isna(odd.power_w[0])
    empty = joined(duckdb, runs[:1].assign(time_s=0.0), samples, None)
    assert (empty.power_w.isna()[0], empty.power_readings[0]) == (True, 0)


def test_hosts_whose_clocks_disagree_are_named(duckdb):
    """Samples at the very end or start of a run are no such case."""
    runs = pd.DataFrame({"host": ["a", "b", "c"], "started_at": EPOCH, "time_s": 10.0})
    samples = runs[["host"]].assign(at=EPOCH + np.array([3600.0, 10.0, 0.0]), value=50.0)
    tables = duckdb.table(runs), duckdb.table(samples)
    assert contradicting_hosts(*tables) == {
        "a": "its runs are from 2023-11-14T22:13:20Z to 2023-11-14T22:13:30Z and its samples from "
        "2023-11-14T23:13:20Z to 2023-11-14T23:13:20Z: the clocks disagree, or the samples are "
        "from another time: give --offset, or the samples of these runs"
    }
    assert contradicting_hosts(*tables, offset_s={"a": -3600}) == {}


def test_watts_are_not_replaced(duckdb):
    runs = pd.DataFrame({"host": ["a"], "started_at": EPOCH, "time_s": 1.0, "power_w": 3.0})
    with pytest.raises(PpwError, match="power_w are there already"):
        joined(duckdb, runs, TestTwoSamplesByHand.SAMPLES, None)


def test_runs_far_apart_and_of_any_length(duckdb):
    """Buckets: a run of a day among runs of a second, samples with an hour between them."""
    at = EPOCH + np.concatenate([np.arange(0, 90_000, 3600.0), np.arange(40_000, 40_050.0)])
    value = 100 + 10 * np.sin(at)
    samples = pd.DataFrame({"host": "a", "label": "x", "at": at, "value": value})
    start = EPOCH + np.concatenate([[10.0], 40_000 + np.arange(0, 40, 2.0), [86_400 - 5.5]])
    took = np.concatenate([[86_000.0], np.full(20, 3.5), [60.0]])
    runs = pd.DataFrame({"host": "a", "started_at": start, "time_s": took})
    for sensor in (Sensor(), Sensor(window_s=0.5)):
        check_equal(duckdb, runs, samples, sensor)
    used = samples.sort_values("at").assign(value=lambda f: np.cumsum(f.value))
    check_equal(duckdb, runs, used, Sensor("energy"))
