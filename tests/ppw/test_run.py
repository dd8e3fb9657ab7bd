"""`ppw run`: real memcached and fio through the command line, and nothing left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from peers.synthetic_host import SyntheticHost
from processes import environment, ppw_process, refused

import ppw
from measurements.counters import PerfCounters
from measurements.host.snapshot import Snapshot
from measurements.machine import Machine
from measurements.sampling import Sampling
from measurements.session import Session
from measurements.workloads.memcached.servers import Servers, free_ports
from measurements.workloads.reaper import Reaper
from measurements.workloads.service_run import (
    MARGINS_S,
    CutShortError,
    ServiceOptions,
    ServiceRuns,
    ServiceStep,
)

QUICK = ["--window", "1s", "--repeats", "1", "--idle", "0", "--settle", "0.1s"]
NEEDS_TWO = pytest.mark.skipif(os.cpu_count() < 2, reason="servers and clients need a CPU each")


@pytest.fixture
def run(tmp_path):
    """Run `ppw run` in an empty folder."""
    return partial(ppw_process, "run", cwd=tmp_path)


def marked_processes():
    """Processes that a reaper would end."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                content = (entry / "environ").read_bytes()
            except OSError:
                continue
            marks = [v for v in content.split(b"\0") if v.startswith(b"PPW_WORKLOAD=")]
            found += [(int(entry.name), mark) for mark in marks]
    return found


def wait_for(condition, seconds=30.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.02)


# Stands for memtier_benchmark, which Debian 12 has not: takes its options, asks a real server for
# the keys that they name as fast or as slowly as they say, and reports in its JSON.
MEMTIER = r"""#!@PYTHON@
import json, random, socket, sys, time
given = dict(a.removeprefix("--").split("=", 1) for a in sys.argv if "=" in a)
short = dict(zip(sys.argv[1:], sys.argv[2:]))
connections = int(short["-t"]) * int(short["-c"])
pause = connections and 1 / (connections * float(given.get("rate-limiting", 1e9)))
s = socket.create_connection((short["-s"], int(short["-p"])))
first, last = int(given["key-minimum"]), int(given["key-maximum"])
times, begin = [], time.monotonic()
while (now := time.monotonic()) < begin + int(given["test-time"]):
    key = given["key-prefix"] + str(random.randint(first, last))
    s.sendall(f"get {key}\r\n".encode())
    while not s.recv(65536).endswith(b"END\r\n"):
        pass
    times.append(time.monotonic() - now)
    time.sleep(max(0, begin + len(times) * pause - time.monotonic()))
times = sorted(1000 * t for t in times)
gets = {"Count": len(times), "Average Latency": sum(times) / len(times), "Max Latency": times[-1]}
at = {"p50.00": times[len(times) // 2], "p99.00": times[len(times) * 99 // 100]}
sets = {"Count": 0, "Average Latency": 0.0, "Max Latency": 0.0}
totals = {**gets, "Percentile Latencies": at}
with open(given["json-out-file"], "w") as file:
    json.dump({"ALL STATS": {"Sets": sets, "Gets": gets, "Totals": totals}}, file)
"""


class Watched:
    """A `ppw run` that is looked at while it is under way."""

    def __init__(self, tmp_path, *arguments):
        self.scratch = tmp_path / "scratch"
        self.scratch.mkdir(exist_ok=True)
        self.before = marked_processes()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ppw", "run", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment(TMPDIR=str(self.scratch)),
        )

    def own(self):
        """What it has started and is still there."""
        names = []
        for pid, _ in marked_processes():
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
                name, rest = stat.partition("(")[2].rpartition(")")[::2]
                parents = self.ancestors(pid)
            except OSError:
                continue
            if rest.split()[0] != "Z" and (self.process.pid in parents or self.is_ours(pid)):
                names.append(name)
        return names

    def ancestors(self, pid):
        found = []
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            found.append(pid)
        return found

    def is_ours(self, pid):
        try:
            content = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        except (ProcessLookupError, FileNotFoundError):
            # It ended after it was listed.
            return False
        return f"TMPDIR={self.scratch}\0" in content

    def wait_until_it_runs(self, *names):
        wait_for(lambda: set(names) <= set(self.own()) or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()

    def all_gone(self):
        return self.own() == [] and list(self.scratch.iterdir()) == []


class TestMemcached:
    @NEEDS_TWO
    @pytest.mark.parametrize(
        "sizes", [[1024], pytest.param([64, 1024, 16384], marks=pytest.mark.slow)]
    )
    def test_one_and_two_threads_at_each_size(self, run, tmp_path, sizes):
        asked = ",".join(map(str, sizes))
        done = run(
            *("memcached", "--threads", "1,2", "--object-size", asked, *QUICK),
            *("--server-cpus", "0", "--client-cpus", "1", "-o", "runs.csv"),
        )
        assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv")
        cells = {(row.threads, row.data_bytes) for row in runs.itertuples()}
        assert cells == {(t, s) for t in (1, 2) for s in sizes}
        assert set(runs["workload"]) == {"memcached get"}
        assert set(runs["cores"]) == {1}
        assert (set(runs["server_cpus"]), set(runs["client_cpus"])) == ({0}, {1})
        assert runs["throughput_ops_s"].gt(1000).all()
        assert runs["throughput_per_core_ops_s"].equals(runs["throughput_ops_s"])
        assert runs["window_s"].between(1, 1.2).all()
        assert "time_s" not in runs
        assert runs["hit_rate"].eq(1).all()
        assert runs["client_user_s"].gt(0).any()
        assert (runs["client_user_s"] + runs["client_system_s"]).gt(0.02).all()
        assert runs["latency_p50_s"].le(runs["latency_p99_s"]).all()
        for name in ("p50", "p99"):
            figure, least, most = (
                runs[f"latency_{name}{end}_s"] for end in ("", "_least", "_most")
            )
            assert least.le(figure).all()
            assert figure.le(most).all()
            assert most.le(2.001 * least).all()
        # Bytes of the values alone are less than what the server wrote.
        assert (
            runs["server_written_bytes_s"].gt(runs["throughput_ops_s"] * runs["data_bytes"]).all()
        )
        assert runs["limited_by"].notna().all()
        assert runs["client_step_ops_s"].notna().all()
        assert "the clients run on the host that is measured" in done.stderr
        assert done.stdout.splitlines()[0].split()[:3] == ["workload", "threads", "object"]
        assert len(done.stdout.splitlines()) == 2 + 2 * len(sizes)
        assert {path.name for path in tmp_path.iterdir()} == {"runs.csv", "runs.samples"}

    def test_rates_partitions_and_mixed_requests(self, run, tmp_path):
        done = run(
            *("memcached", "--partitions", "2", "--gets", "90%", "--keys-per-request", "4"),
            *("--load", "20%", "--rate", "2000", "--connections", "4", *QUICK, "-o", "runs.jsonl"),
        )
        assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.jsonl")
        assert set(runs["workload"]) == {"memcached 90:10 4 keys on 2 servers"}
        assert set(runs["threads"]) == {2}
        full = runs[runs["asked_ops_s"].isna()].iloc[0]
        paced = runs[runs["asked_ops_s"].notna()].sort_values("asked_ops_s")
        assert list(paced["client"]) == ["paced", "paced"]
        assert full["client"] == "memcaslap"
        assert full["load"] == 1
        low = paced[paced["asked_ops_s"] == 2000].iloc[0]
        # Some 540 requests of 3.7 operations: four standard deviations are a fifth.
        assert low["throughput_ops_s"] == pytest.approx(2000, rel=0.25)
        assert low["load"] == pytest.approx(low["throughput_ops_s"] / full["throughput_ops_s"])
        asked = sorted(paced["asked_ops_s"])
        assert min(abs(a - 0.2 * full["throughput_ops_s"]) for a in asked) < 1
        assert paced["sent_late_p99_s"].notna().all()

    def test_memtier_is_used_where_a_user_has_it(self, run, tmp_path):
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / "memtier_benchmark"
        program.write_text(MEMTIER.replace("@PYTHON@", sys.executable))
        program.chmod(0o755)
        done = run(
            *("memcached", "--client", "memtier", "--connections", "2", "--objects", "300"),
            *("--rate", "200", *QUICK, "-o", "runs.csv"),
            PATH=f"{folder}:{os.environ['PATH']}",
        )
        assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv")
        assert list(runs["client"]) == ["memtier", "memtier"]
        assert runs["hit_rate"].eq(1).all()
        paced = runs[runs["asked_ops_s"] == 200].iloc[0]
        assert paced["throughput_ops_s"] == pytest.approx(200, rel=0.15)
        assert paced["limited_by"] == "rate"
        assert runs["latency_p50_s"].between(1e-6, 1).all()

    @NEEDS_TWO
    def test_a_named_server_is_driven_and_left_as_it_is(self, run, tmp_path):
        with Reaper() as reaper:
            servers = Servers.start(
                partitions=1,
                threads=2,
                memory_bytes=256 << 20,
                connections=64,
                cpus={0},
                reaper=reaper,
                log=tmp_path / "log",
            )
            with servers:
                done = run(
                    *("memcached", "--server", servers.addresses[0], "--client", "paced"),
                    *("--objects", "500", *QUICK, "-o", "runs.csv"),
                )
                assert done.returncode == 0, done.stderr
                assert servers.processes[0].poll() is None
                assert servers.controls[0].stats()["curr_items"] == "500"
        row = pd.read_csv(tmp_path / "runs.csv").iloc[0]
        assert row["threads"] == 2
        assert row["server_user_s"] + row["server_system_s"] > 0
        assert "cores" not in row
        assert "objects stay in the servers that were named" in done.stderr

    def test_a_sweep_goes_on_where_it_was_and_refuses_another(self, run, tmp_path):
        asked = ["memcached", "--client", "paced", "--objects", "500", "-o", "runs.csv"]
        quick = [*QUICK[:-4], "--idle", "0"]
        assert run(*asked, "--connections", "2,4", *quick).returncode == 0
        first = (tmp_path / "runs.csv").read_text()
        records = tmp_path / "runs.samples" / "runs.jsonl"
        lines = records.read_text().splitlines(keepends=True)
        assert len(lines) == 3
        records.write_text(lines[0] + lines[1][: len(lines[1]) // 2])
        done = run(*asked, "--connections", "2,4", *quick, "--resume")
        assert done.returncode == 0, done.stderr
        assert records.read_text().splitlines(keepends=True)[0] == lines[0]
        table = pd.read_csv(tmp_path / "runs.csv")
        assert sorted(table["connections"]) == [2, 4]
        assert len(first.splitlines()) == len(table) + 1
        refused(run(*asked, "--connections", "8", *quick, "--resume"), "another workload was asked")
        refused(run(*asked, "--connections", "2,4", *quick), "is there already", "--resume")

    def test_watts_are_of_the_window(self, run, tmp_path):
        with SyntheticHost(tmp_path / "host") as host:
            done = run(
                *("memcached", "--client", "paced", "--objects", "500", *QUICK[:4]),
                *("--idle", "1s", "--sysfs", host.sysfs, "--power", "rapl", "--metric", "power"),
                *("--freq", "1.5GHz,2.2GHz", "--settle", "0.1s", "--price", "400"),
                *("--family", "Zen 4", "-o", "runs.csv"),
            )
            assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv")
        assert set(runs["power_source"]) == {"rapl:package"}
        assert set(runs["freq_hz"]) == {1.5e9, 2.2e9}
        # Its counter knows nothing of this load: the host idles by its law.
        assert runs["power_w"].to_numpy() == pytest.approx(host.laws.idle_w, rel=0.05)
        assert runs["idle_power_w"].to_numpy() == pytest.approx(host.laws.idle_w, rel=0.05)
        assert np.allclose(runs["energy_j"], runs["power_w"] * runs["window_s"], rtol=1e-9)
        assert set(runs["family"]) == {"Zen 4"}
        with warnings.catch_warnings():
            # Of two windows of a second little can be said.
            warnings.simplefilter("ignore", ppw.CaveatWarning)
            # At idle power, which is below that of the idle machine as often as not.
            found = ppw.project_runs(
                runs, freq="1.8GHz", metric=["throughput", "perf_per_watt"], keep_all=True
            )
        assert found.to_frame()["projected"].gt(0).all()

    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    def test_killed_at_any_time_nothing_is_left(self, tmp_path, how):
        watched = Watched(
            tmp_path,
            *("memcached", "--client", "memcaslap", "--window", "20s", "--idle", "0"),
            *("-o", tmp_path / "runs.csv"),
        )
        with watched.process as process:
            watched.wait_until_it_runs("memcached", "memcaslap")
            process.send_signal(how)
            code = process.wait(30)
            assert code == {signal.SIGINT: 130}.get(how, -how)
            wait_for(watched.all_gone, 15)
            assert "Traceback" not in process.stderr.read()

    @pytest.mark.parametrize(
        ("missing", "arguments", "said"),
        [
            ("memcached", [], "memcached is not there: apt install memcached"),
            ("memcaslap", [], "no load generator is there: apt install libmemcached-tools"),
            ("cc", ["--client", "paced"], "no C compiler on this host: apt install gcc"),
        ],
    )
    def test_a_missing_program_is_one_line(self, run, tmp_path, missing, arguments, said):
        folder = tmp_path / "bin"
        folder.mkdir()
        for name in ("memcached", "memcaslap"):
            if name != missing:
                (folder / name).symlink_to(f"/usr/bin/{name}")
        done = run("memcached", *arguments, *QUICK, "-o", "runs.csv", PATH=str(folder))
        refused(done, said)
        assert len(done.stderr.splitlines()) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["bin"]

    def test_a_server_that_is_not_there(self, run, tmp_path):
        port = free_ports(1)[0]
        done = run("memcached", "--server", f"127.0.0.1:{port}", *QUICK, "-o", "runs.csv")
        refused(done, f"memcached at 127.0.0.1:{port}: no connection: ")
        # Nothing is in the way of another try.
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("arguments", "said", "code"),
        [
            (["memcached"], "Missing option '-o'", 2),
            (["memcached", "-o", "-"], "-o takes a file", 2),
            (["memcached", "--gets", "10%,20%", "-o", "a.csv"], "one share", 2),
            (["memcached", "--load", "much", "-o", "a.csv"], "is not a share", 2),
            (["memcached", "--server-cpus", "x", "-o", "a.csv"], "is no list of CPUs", 2),
            (["memcached", "--object-size", "2MiB", "-o", "a.csv"], "there may be 1 to", 1),
            (["memcached", "--server-cpus", "4095", "-o", "a.csv"], "CPU 4095 may not be", 1),
            (["memcached", "-o", "/proc/a.csv"], "/proc/a.csv: cannot be written", 1),
            (["memcache", "-o", "a.csv"], "no workload 'memcache' (did you mean 'memcached'?)", 2),
        ],
    )
    def test_wrong_usage(self, run, arguments, said, code):
        refused(run(*arguments), said, code=code)


class TestFio:
    def test_patterns_and_depths(self, run, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        with SyntheticHost(tmp_path / "host") as host:
            done = run(
                *("fio", "--folder", disk, "--size", "32MiB", "--depth", "1,8"),
                *("--pattern", "randread,write:64KiB", *QUICK, "--clock", "2GHz"),
                *("--sysfs", host.sysfs, "--power", "rapl", "-o", "disk.csv"),
            )
            assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "disk.csv")
        cells = {(r.pattern, r.data_bytes, r.queue_depth) for r in runs.itertuples()}
        assert cells == {
            (p, s, d) for p, s in (("randread", 4096), ("write", 65536)) for d in (1, 8)
        }
        moved = runs["throughput_ops_s"] * runs["data_bytes"]
        assert runs["bandwidth_bytes_s"].to_numpy() == pytest.approx(moved.to_numpy(), rel=0.01)
        watts = runs["power_w"].to_numpy()
        assert watts == pytest.approx(host.laws.idle_w, rel=0.05)
        assert np.allclose(runs["iops_per_w"], runs["throughput_ops_s"] / watts)
        assert runs["direct"].all()
        assert runs["fio_seconds"].ge(2).all()
        # Little's law: requests in flight are throughput times latency.
        in_flight = runs["throughput_ops_s"] * runs["latency_mean_s"]
        assert in_flight.le(1.1 * runs["queue_depth"]).all()
        assert in_flight.ge(0.4 * runs["queue_depth"]).all()
        assert list(disk.iterdir()) == []
        assert len(done.stdout.splitlines()) == 2 + 4
        assert "IOPS/W" in done.stdout

    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
    def test_killed_its_file_is_gone(self, tmp_path, how):
        disk = tmp_path / "disk"
        disk.mkdir()
        watched = Watched(
            tmp_path,
            *("fio", "--folder", disk, "--size", "16MiB", "--window", "20s", "--idle", "0"),
            *("-o", tmp_path / "disk.csv"),
        )
        with watched.process as process:
            wait_for(lambda: list(disk.glob("*/data")) or process.poll() is not None)
            watched.wait_until_it_runs("fio")
            process.send_signal(how)
            process.wait(30)
            wait_for(lambda: watched.all_gone() and not list(disk.iterdir()), 15)

    def test_without_fio(self, run, tmp_path):
        done = run("fio", "--folder", tmp_path, *QUICK, "-o", "disk.csv", PATH=str(tmp_path))
        refused(done, "the program fio is not there: apt install fio")
        refused(run("fio", "--folder", "none", *QUICK, "-o", "a.csv"), "none: is no folder")


class TestCount:
    def test_counts_become_a_table_with_path_lengths(self, run, tmp_path):
        for size in (100_000, 200_000, 400_000):
            (tmp_path / "words").write_bytes(b"word " * (size // 5))
            done = run(
                *("count", "--method", "callgrind", "--data", size, "--workload", "wc"),
                *("-o", "counts.csv", "--", "wc", "-w", "words"),
            )
            assert done.returncode == 0, done.stderr
            assert "emulated by callgrind (user)" in done.stdout
        runs = ppw.read_runs(tmp_path / "counts.csv")
        assert list(runs["data_bytes"]) == [100_000, 200_000, 400_000]
        assert set(runs["instructions_label"]) == {"emulated"}
        per_byte = np.diff(runs["instructions"]) / np.diff(runs["data_bytes"])
        # A loop over bytes takes the same instructions for each of them.
        assert per_byte[0] == pytest.approx(per_byte[1], rel=0.02)
        assert 1 < per_byte[0] < 200

    def test_what_cannot_be_counted(self, run):
        refused(run("count", "--method", "cpu-time", "--", "true"), "needs the clock and the CPI")
        refused(run("count", "--", "false"), "false ended with exit code 1")
        refused(run("count"), "Missing argument", code=2)


class Spinning:
    """A process that is busy; stands for a service."""

    cores, is_local = 1, True

    def __init__(self):
        self.process = None

    @property
    def pids(self):
        return [self.process.pid]

    def start(self, output):
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def wait_steady(self):
        time.sleep(0.2)

    def observe(self):
        return time.monotonic()

    def finish(self):
        self.stop()

    def stop(self):
        self.process.kill()
        self.process.wait()

    def columns(self, seen):
        assert len(seen) == 9
        return {"slices": len(seen) - 1, "unknown": None, "nothing": float("nan")}


class TestServiceRuns:
    @pytest.fixture
    def runs(self, tmp_path):
        plan = {"host": "here", "family": None, "workload": None, "data_bytes": None}
        plan |= {"price": None, "channels": []}
        session = Session.create(tmp_path / "runs.samples", plan)
        machine = Machine.open(counters=False)
        sampling = Sampling.open([])
        options = ServiceOptions(host="here", seconds=0.8, idle_s=0.0, clock_hz=2e9)
        with Reaper() as reaper:
            yield ServiceRuns(options, session, machine, sampling, reaper, tell=print)
        sampling.close()

    def test_perf_counts_the_processes_of_a_service_for_the_window(self, runs):
        runs.machine.perf = PerfCounters(events=("task-clock", "duration_time"))
        runs.begin()
        load = Spinning()
        before = Snapshot.take()
        row = runs.measure(ServiceStep("run", {"n": 1}, None, 0), lambda _: load, workload="spin")
        assert Snapshot.take().at_s - before.at_s < 10
        # A CPU or what other programs leave of it, of 0.8 s; never more than the window.
        assert 0.05 < row["task_clock_s"] <= 1.15 * row["window_s"]
        assert row["window_s"] == pytest.approx(0.8, abs=0.2)
        assert (row["workload"], row["freq_hz"], row["freq_source"]) == ("spin", 2e9, "stated")
        assert row["slices"] == 8
        assert not {"unknown", "nothing", "time_s", "executions"} & set(row)
        assert not Path(f"/proc/{load.process.pid}").exists()

    def test_a_step_that_is_done_is_not_done_again(self, runs, tmp_path):
        step = ServiceStep("run", {"b": 1, "a": 2.0}, None, 0)
        runs.begin()
        assert runs.done(step) is None
        row = runs.measure(step, lambda _: Spinning(), workload="spin")
        again = ServiceRuns(
            *(runs.options, Session.open(tmp_path / "runs.samples"), runs.machine),
            *(runs.sampling, runs.reaper, print),
        )
        again.begin()
        assert again.done(step._replace(setup={"a": 2.0, "b": 1})) == row
        assert again.done(step._replace(repeat=1)) is None

    def test_a_load_that_fails_is_ended_and_no_record(self, runs):
        class Failing(Spinning):
            def wait_steady(self):
                raise ppw.MeasurementError("it would not run")

        load = Failing()
        runs.begin()
        with pytest.raises(ppw.MeasurementError, match="it would not run"):
            runs.measure(ServiceStep("run", {}, None, 0), lambda _: load, workload="spin")
        assert not Path(f"/proc/{load.process.pid}").exists()
        assert runs.session.records() == []

    def test_clients_that_end_too_early_are_given_longer(self, runs):
        asked = []

        class Short(Spinning):
            def finish(self):
                self.stop()
                if len(asked) < 3:
                    raise CutShortError("client")

        def make(margin_s):
            asked.append(margin_s)
            return Short()

        runs.begin()
        row = runs.measure(ServiceStep("run", {}, None, 0), make, workload="spin")
        assert row["slices"] == 8
        assert asked == list(MARGINS_S)
        assert len(runs.session.records()) == 1


def test_the_workloads_are_listed_without_importing_them():
    code = (
        "import sys, click.testing\n"
        "from ppw.cli.run import command\n"
        "done = click.testing.CliRunner().invoke(command, ['--help'])\n"
        "assert done.exit_code == 0, done.output\n"
        "loaded = sorted(m for m in sys.modules if m.startswith('ppw.cli.run_'))\n"
        "print(loaded, 'fio' in done.output)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout == "[] True\n"


def test_the_key_of_a_step_is_plain_json():
    step = ServiceStep("run", {"b": 1, "a": (1, 2)}, None, 0)
    assert json.loads(step.key) == ["run", {"a": [1, 2], "b": 1}, None, 0]
