"""The saved state of a fleet; the oracle is one pass over all runs at once."""

import fcntl
import json
import multiprocessing
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from fleet_peers import OTHERS_WARNINGS, ask, engine, saved, sockets_closed  # noqa: F401
from made_up import ignore_caveats

from ppw import fleet
from ppw.errors import PpwError
from ppw.fleet.moments import prepare_cells, read_cells
from ppw.fleet.run_files import open_runs
from ppw.fleet.state import FleetState, state_cells, update_state
from ppw.projection.answers import FitOptions
from ppw.projection.runs import fit_prepared, project_prepared

pytestmark = [*OTHERS_WARNINGS, ignore_caveats]


def made(seed, rows=200):
    """Runs of some hosts and workloads at some frequencies, with missing values."""
    rng = np.random.default_rng(seed)
    freq = rng.choice([1.0e9, 1.5e9, 2.0e9, 2.6e9], rows)
    work = rng.choice([1.0, 3.0], rows)
    time = (2.0 + 4e9 * work / freq) * (1 + 0.01 * rng.standard_normal(rows))
    power = (20 + 15 * freq / 1e9) * (1 + 0.01 * rng.standard_normal(rows))
    hosts = {"host": rng.choice(["a", "b"], rows)}
    hosts["workload"] = np.where(work == 1.0, "sort", "join")
    measured = {"time_s": time, "power_w": np.where(rng.random(rows) < 0.1, np.nan, power)}
    return pd.DataFrame(hosts | {"freq_hz": freq} | measured).assign(started_at="2026-03-01T12:00Z")


def saved_parts(frame, folder, seed=0, parts=5):
    """Files of random parts of a frame."""
    folder.mkdir()
    part = np.random.default_rng(seed).integers(0, parts, len(frame))
    pieces = (frame[part == k].reset_index(drop=True) for k in range(parts))
    return [saved(f, folder / f"{k}.parquet") for k, f in enumerate(pieces) if len(f)]


def check_same_answers(state, whole, connection, by=None):
    """Parameters and projections of a state are those of one pass over the files."""
    direct = read_cells(open_runs(whole, engine=connection), by=by, metric=None)
    kept = state_cells(state=state, connection=connection, by=by)
    options = FitOptions()
    answers = []
    for read in (kept, direct):
        prepared, *_ = prepare_cells(read.frame, read.layout, keep_all=True)
        fitted = fit_prepared(prepared, options).to_frame()
        answers.append((fitted, project_prepared(prepared, [3.2e9], options, 0.9).to_frame()))
    for found, wanted in zip(*answers, strict=True):
        pd.testing.assert_frame_equal(found, wanted, rtol=1e-9, check_dtype=False)


def update(folder, files):
    """Take files into a state, by an engine that all tests share."""
    return update_state(folder, files, engine=engine("duckdb"))


class TestUpdates:
    @pytest.mark.parametrize(("seed", "by"), [(0, None), (1, ["workload"])])
    def test_a_state_answers_as_all_its_files_do(self, tmp_path, seed, by):
        files = saved_parts(made(seed), tmp_path / "runs", seed, parts=3)
        state = tmp_path / "state"
        order = np.random.default_rng(seed).permutation(len(files))
        for one in order:
            update(state, files[one])
        # Again, under another name, and all at once.
        twin = tmp_path / "twin.parquet"
        twin.write_bytes(files[0].read_bytes())
        before = {p: p.read_bytes() for p in state.rglob("*") if p.is_file()}
        update(state, [files[0], files[0]])
        again = update(state, [twin, tmp_path / "runs"])
        assert {p: p.read_bytes() for p in state.rglob("*") if p.is_file()} == before
        assert (len(again.known), again.added, again.runs) == (len(files) + 1, (), 0)
        assert again.state.runs == 200
        check_same_answers(FleetState.open(state), tmp_path / "runs", engine("duckdb"), by=by)

    @pytest.mark.peer("spark")
    def test_spark_keeps_the_state_that_duckdb_keeps(self, tmp_path):
        files = saved_parts(made(7), tmp_path / "runs", parts=2)
        saved(made(4, 5).assign(started_at="2126-03-01"), tmp_path / "ahead.parquet")
        for state, by in (("a", engine("duckdb")), ("b", engine("spark"))):
            update_state(tmp_path / state, files[0], engine=by)
            offered = [tmp_path / "runs", tmp_path / "ahead.parquet"]
            done = update_state(tmp_path / state, offered, engine=by)
            assert [Path(f.file).name for f in done.faults] == ["ahead.parquet"]
            assert (done.state.runs, len(done.known)) == (200, 1)
        mine, theirs = (found_cells(tmp_path / state)[1] for state in "ba")
        pd.testing.assert_frame_equal(mine, theirs, rtol=1e-12, check_dtype=False)

    def test_columns_that_appear_later_are_taken_in(self, tmp_path):
        """Yesterday no watts and MHz, today watts, threads and Hz; tomorrow yesterday's again."""
        whole = made(2, 300).assign(power_w=lambda f: f.power_w.fillna(50.0))
        old = whole[:100].drop(columns="power_w")
        old = old.assign(freq_mhz=old.freq_hz / 1e6).drop(columns="freq_hz")
        new = whole[100:200].assign(threads=4.0, power_source="rapl:package")
        (tmp_path / "runs").mkdir()
        days = [old, new, whole[200:].drop(columns="power_w")]
        files = [saved(f, tmp_path / "runs" / f"{k}.parquet") for k, f in enumerate(days)]
        for file in files:
            update(tmp_path / "s", file)
        check_same_answers(FleetState.open(tmp_path / "s"), tmp_path / "runs", engine("duckdb"))

    def test_files_at_fault_are_named_and_the_rest_is_done(self, tmp_path):
        files = saved_parts(made(3), tmp_path / "runs", parts=8)
        good = {str(f) for f in files}
        whole = files[0].read_bytes()
        (tmp_path / "runs" / "torn.parquet").write_bytes(whole[: len(whole) // 2])
        page = bytearray(whole)
        page[200:400] = bytes(200)
        (tmp_path / "runs" / "page.parquet").write_bytes(page)
        saved(pd.DataFrame({"host": ["a"], "clock": [1e9]}), tmp_path / "runs" / "other.parquet")
        ahead = made(4, 5).assign(started_at="2126-03-01T12:00:00Z")
        saved(ahead, tmp_path / "runs" / "ahead.parquet")
        (tmp_path / "runs" / "none.csv").write_text("")
        done = update(tmp_path / "s", tmp_path / "runs")
        assert (set(done.added), done.state.runs) == (good, 200)
        told = {Path(fault.file).name.partition(".")[0]: fault.what for fault in done.faults}
        assert set(told) == {"torn", "page", "other", "ahead", "none"}
        wrong = "in the future of this machine's clock: the clock of their host was wrong"
        assert wrong in told["ahead"]
        assert "broken Parquet" in told["torn"]
        # Repaired, it is taken in.
        saved(ahead.assign(started_at="2026-03-02"), tmp_path / "runs" / "ahead.parquet")
        again = update(tmp_path / "s", tmp_path / "runs")
        assert (again.runs, len(again.known), len(again.faults)) == (5, len(good), 4)

    def test_bad_files_that_are_offered_daily_are_faults_each_time(self, tmp_path):
        good = saved(made(1), tmp_path / "a.parquet")
        other = saved(pd.DataFrame({"host": ["a"], "clock": [1e9]}), tmp_path / "other.parquet")
        torn = tmp_path / "torn.parquet"
        torn.write_bytes(good.read_bytes()[:-20])
        with pytest.raises(PpwError, match="none of 2 files can be used; the first"):
            update(tmp_path / "s", [other, torn])
        update(tmp_path / "s", [good, other, torn])
        for offered in ([good, other, torn], [good, other], [torn]):
            again = update(tmp_path / "s", offered)
            assert {fault.file for fault in again.faults} == {str(f) for f in offered} - {str(good)}
            assert (again.added, again.state.runs) == ((), 200)

    def test_runs_that_cannot_be_are_named_by_file_and_counted_apart(self, tmp_path):
        files = [saved(made(k, 40), tmp_path / f"{k}.parquet") for k in range(3)]
        odd = made(3, 40)
        odd.loc[:1, "time_s"] = [-1.0, np.inf]
        files.append(saved(odd, tmp_path / "3.parquet"))
        first = update(tmp_path / "s", files[:2])
        assert (first.partly, first.state.unusable_runs()) == ((), 0)
        done = update(tmp_path / "s", files)
        assert (done.faults, done.runs, done.state.unusable_runs()) == ((), 78, 2)
        (fault,) = done.partly
        what = "time_s with impossible values in 2 runs: left out; correct or drop them"
        assert (fault.file, fault.what) == (str(files[3]), what)
        assert str(fault) in done.summary()
        # What is in the state already is told once.
        assert not update(tmp_path / "s", files).partly


class TestRefusals:
    def test_what_a_state_cannot_answer(self, tmp_path):
        file = saved(made(1), tmp_path / "a.parquet")
        update(tmp_path / "s", file)
        with pytest.raises(PpwError, match="s: a saved state has no single runs, and checks need"):
            fleet.check(tmp_path / "s", engine=engine("duckdb"))
        with pytest.raises(PpwError, match="s: is a saved state, which cannot be combined"):
            fleet.fit([tmp_path / "s", file], engine=engine("duckdb"))
        fitted = fleet.fit(tmp_path / "s", engine=engine("duckdb"))
        assert "ppw could not leave out wrong runs" in fitted.caveats[-1]
        projected = fleet.project(tmp_path / "s", freq="3GHz", engine=engine("duckdb"))
        assert "ppw could not leave out wrong runs" in projected.caveats[-1]
        kept = fleet.project(tmp_path / "s", freq="3GHz", engine=engine("duckdb"), keep_all=True)
        assert kept.caveats == projected.caveats[:-1]

    def test_the_command_says_what_happened_and_refuses_other_groups(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        saved(made(5, 40), "a.parquet")
        Path("b.parquet").write_bytes(b"PAR1 no more")
        done = ask("update", "s", "a.parquet", "b.parquet", "--by", "workload")
        assert done.return_value == 1
        assert done.stderr.startswith("ppw: fault: b.parquet: broken Parquet: ")
        assert done.stdout.startswith(
            "1 files with 40 runs added, 0 files already in the state\ns: 40 runs of 1 files\n"
            "1 files could not be used and are left out:\nb.parquet: "
        )
        assert ask("update", "s", "a.parquet", "b.parquet", "--keep-going").return_value != 1
        refused = ask("update", "s", "a.parquet", "--by", "host")
        assert isinstance(refused.exception, PpwError)
        assert "groups of this state are by workload, not by host" in str(refused.exception)

    def test_two_updates_at_once_and_a_damaged_state_are_refused(self, tmp_path):
        file = saved(made(1), tmp_path / "a.parquet")
        (tmp_path / "s").mkdir()
        with (tmp_path / "s" / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("4711")
            lock.flush()
            with pytest.raises(PpwError, match="is being updated by process 4711: wait"):
                update(tmp_path / "s", file)
        state = update(tmp_path / "s", file).state
        manifest = tmp_path / "s" / "manifest.json"
        said = json.loads(manifest.read_text())
        for wrong in ({"generation": "../runs-1"}, {"previous": "../runs-1"}):
            manifest.write_text(json.dumps(said | wrong))
            with pytest.raises(PpwError, match=r"damaged .*no generations are called"):
                FleetState.open(tmp_path / "s")
        manifest.write_text(json.dumps(said))
        (state.folder / state.generation / "cells.parquet").write_bytes(b"PAR1")
        with pytest.raises(PpwError, match="the state is damaged"):
            update(tmp_path / "s", saved(made(2), tmp_path / "b.parquet"))

    def test_a_file_that_changes_while_read_is_not_taken_in(self, tmp_path, monkeypatch):
        from ppw.fleet import run_files

        file = saved(made(1), tmp_path / "a.parquet")
        update(tmp_path / "s", saved(made(2), tmp_path / "b.parquet"))
        opened = run_files.open_runs

        def written_to(*arguments, **options):
            saved(made(3), file)
            return opened(*arguments, **options)

        monkeypatch.setattr(run_files, "open_runs", written_to)
        with pytest.raises(PpwError, match=r"a\.parquet: was written to while it was read"):
            update(tmp_path / "s", file)
        assert FleetState.open(tmp_path / "s").runs == 200

    @pytest.mark.parametrize("content", ["{", '{"schema_version": 99}', "[]"])
    def test_what_is_no_state_is_refused(self, tmp_path, content):
        file = saved(made(1), tmp_path / "a.parquet")
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "manifest.json").write_text(content)
        with pytest.raises(PpwError, match="manifest"):
            update(tmp_path / "s", file)
        with pytest.raises(PpwError, match=r"does not hold a fleet state, but a\.parquet"):
            update(tmp_path, file)


def found_cells(state):
    """What a reader finds: number of files, and all moments."""
    opened = FleetState.open(state)
    if not opened.generation:
        return 0, None
    folder = state / opened.generation
    assert pq.read_table(folder / "files.parquet").num_rows == opened.files
    cells = pq.read_table(folder / "cells.parquet").to_pandas()
    assert cells["runs"].sum() == opened.runs
    return opened.files, cells


@pytest.fixture
def updated():
    """Update a state and kill the update after some seconds; return exit code and duration."""
    context = multiprocessing.get_context("forkserver")
    # Imported once, so that a kill does not meet the start of Python.
    context.set_forkserver_preload(["ppw.fleet.state", "ibis.backends.duckdb"])

    def updated(state, file, seconds):
        process = context.Process(target=update_state, args=(state, file), kwargs={"threads": 1})
        start = time.monotonic()
        process.start()
        process.join(seconds)
        process.kill()
        process.join()
        return process.exitcode, time.monotonic() - start

    return updated


@pytest.mark.peer("kill")
def test_killed_at_any_moment_the_state_is_the_old_or_the_new_one(updated, tmp_path):
    """Fifty kills, at moments drawn over the length of an update and beyond."""
    files = saved_parts(made(6, 2000), tmp_path / "runs", parts=50)
    for file in files[:3]:
        code, length = updated(tmp_path / "unhurt", file, 120.0)
        assert code == 0
    state, rng, taken, ends, seen = tmp_path / "state", np.random.default_rng(20), 0, [], {}
    for _ in range(50):
        # Twice its length at most, since the machine may be busier than it was.
        code, _ = updated(state, files[taken], length * rng.uniform(0.0, 2.0))
        assert code in (0, -signal.SIGKILL)
        number, cells = found_cells(state)
        assert number in (taken, taken + 1)
        seen.setdefault(number, []).append(cells)
        ends.append(number > taken)
        taken = number
    # Enough of both, or the moments said nothing.
    assert min(ends.count(True), ends.count(False)) >= 5
    for number, file in enumerate(files[:taken], start=1):
        update_state(tmp_path / "whole", file, threads=1)
        for cells in seen[number]:
            pd.testing.assert_frame_equal(cells, found_cells(tmp_path / "whole")[1], rtol=1e-12)
    update_state(state, tmp_path / "runs")
    assert len([path for path in state.iterdir() if path.is_dir()]) <= 2
    assert FleetState.open(state).runs == 2000
