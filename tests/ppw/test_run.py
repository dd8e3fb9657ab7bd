"""`ppw run`: real memcached, fio and I/O studies by the command line, and nothing left of them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from peers.synthetic_host import SyntheticHost
from peers.waiting import FakeClock, processes, wait_for
from processes import environment, ppw_inside, ppw_process, refused, started, worked

import ppw
from measurements.counters.command import PerfCounters
from measurements.power.sampler import Sampling
from measurements.processes.cleanup_process import CleanupProcess
from measurements.sweep.loop import Machine
from measurements.sweep.session import Session
from measurements.workloads import service
from measurements.workloads.memcached.servers import Servers, free_ports

QUICK = ["--window", "1s", "--repeats", "1", "--idle", "0", "--settle", "0.1s"]
PACED = ("memcached", "--client", "paced", "--objects", "500", "-o", "runs.csv")
with_fio, with_memcached = pytest.mark.peer("fio"), pytest.mark.peer("memcached")
# Of short windows little can be said.
without_caveats = pytest.mark.filterwarnings("ignore::ppw.CaveatWarning")


@pytest.fixture
def ask(tmp_path):
    """Run ppw in an empty folder; what goes well has its runs table."""

    def ask(*given, table=None, **more):
        done = worked(ppw_process(*given, cwd=tmp_path, timeout=500, **more))
        return done if table is None else (done, ppw.read_runs(tmp_path / table))

    return ask


@pytest.fixture
def inside(tmp_path):
    """Run `ppw run` in this process, where programs are there by name only."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("memcached", "memcaslap", "fio"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)

    def inside(*given, **more):
        more = {"PATH": f"{folder}:{os.environ['PATH']}", **more}
        return ppw_inside("run", *given, cwd=tmp_path, **more)

    yield inside
    assert {path.name for path in tmp_path.iterdir()} <= {"bin", "disk"}


@pytest.fixture
def disk():
    """A folder on the disk of this checkout: that of temporary files may be in memory."""
    folder = Path.cwd() / f".ppw-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
    folder.rmdir()


@pytest.fixture
def killed(tmp_path):
    """Send a signal to `ppw run` once some programs run; nothing of it may be left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def running():
        return processes(f"TMPDIR={scratch}\0", "environ")

    def killed(how, *given, programs, ready=lambda: True):
        def runs(name):
            return any(Path(line.split(" ")[0]).name == name for line in running())

        with started("run", *given, cwd=tmp_path, TMPDIR=str(scratch)) as process:
            wait_for(lambda: (all(map(runs, programs)) and ready()) or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            process.send_signal(how)
            assert process.wait(60) == {signal.SIGINT: 130}.get(how, -how)
            wait_for(lambda: not running())
            assert "Traceback" not in process.stderr.read()
        wait_for(lambda: list(scratch.iterdir()) == [])

    return killed


@with_memcached
class TestMemcached:
    def test_one_and_two_threads(self, ask, tmp_path):
        asked = ("--threads", "1,2", "--object-size", "1024", *QUICK)
        where = ("--server-cpus", "0", "--client-cpus", "1", "-o", "runs.csv")
        done, runs = ask("run", "memcached", *asked, *where, table="runs.csv")
        cells = {(row.threads, row.data_bytes) for row in runs.itertuples()}
        assert cells == {(1, 1024), (2, 1024)}
        for column, value in (
            *(("workload", "memcached get"), ("cores", 1), ("hit_rate", 1)),
            *(("server_cpus", 0), ("client_cpus", 1)),
        ):
            assert set(runs[column]) == {value}, column
        assert runs["throughput_ops_s"].gt(1000).all()
        assert runs["throughput_per_core_ops_s"].equals(runs["throughput_ops_s"])
        assert runs["window_s"].ge(1).all()
        assert "time_s" not in runs
        assert (runs["client_user_s"] + runs["client_system_s"]).gt(0.02).all()
        assert runs["latency_p50_s"].le(runs["latency_p99_s"]).all()
        for name in ("p50", "p99"):
            least, figure, most = (runs[f"latency_{name}{x}_s"] for x in ("_least", "", "_most"))
            assert least.le(figure).all()
            assert figure.le(most).all()
            assert most.le(2.001 * least).all()
        # Bytes of the values alone are less than what the server wrote.
        moved = runs["throughput_ops_s"] * runs["data_bytes"]
        assert runs["server_written_bytes_s"].gt(moved).all()
        assert runs[["limited_by", "client_step_ops_s"]].notna().all(axis=None)
        assert "the clients run on the host that is measured" in done.stderr
        assert done.stdout.splitlines()[0].split()[:3] == ["workload", "threads", "object"]
        assert len(done.stdout.splitlines()) == 4
        assert {path.name for path in tmp_path.iterdir()} == {"runs.csv", "runs.samples"}

    def test_rates_partitions_and_mixed_requests(self, ask):
        asked = ("--partitions", "2", "--gets", "90%", "--keys-per-request", "4", *QUICK)
        rates = ("--load", "20%", "--rate", "2000", "--connections", "4", "-o", "runs.jsonl")
        _, runs = ask("run", "memcached", *asked, *rates, table="runs.jsonl")
        assert set(runs["workload"]) == {"memcached 90:10 4 keys on 2 servers"}
        assert set(runs["threads"]) == {2}
        full = runs[runs["asked_ops_s"].isna()].iloc[0]
        paced = runs[runs["asked_ops_s"].notna()]
        assert list(paced["client"]) == ["paced", "paced"]
        assert (full["client"], full["load"]) == ("memcaslap", 1)
        low = paced[paced["asked_ops_s"] == 2000].iloc[0]
        # Some 540 requests of 3.7 operations: four standard deviations are a fifth.
        assert low["throughput_ops_s"] == pytest.approx(2000, rel=0.25)
        assert low["load"] == pytest.approx(low["throughput_ops_s"] / full["throughput_ops_s"])
        assert (paced["asked_ops_s"] - 0.2 * full["throughput_ops_s"]).abs().min() < 1
        assert paced["sent_late_p99_s"].notna().all()

    def test_a_named_server_is_driven_and_left_as_it_is(self, ask, tmp_path):
        with CleanupProcess() as reaper:
            size = {"partitions": 1, "threads": 2, "memory_bytes": 256 << 20, "connections": 64}
            with Servers.start(**size, cpus={0}, reaper=reaper, log=tmp_path / "log") as servers:
                named = ("--server", servers.addresses[0])
                done, runs = ask("run", *PACED, *named, *QUICK, table="runs.csv")
                assert servers.processes[0].poll() is None
                assert servers.controls[0].stats()["curr_items"] == "500"
        row = runs.iloc[0]
        assert row["threads"] == 2
        assert row["server_user_s"] + row["server_system_s"] > 0
        assert "cores" not in row
        assert "objects stay in the servers that were named" in done.stderr

    def test_a_sweep_goes_on_where_it_was_and_refuses_another(self, ask, tmp_path):
        asked = ("run", *PACED, *QUICK, "--connections")
        _, first = ask(*asked, "2,4", table="runs.csv")
        records = tmp_path / "runs.samples" / "runs.jsonl"
        lines = records.read_text().splitlines(keepends=True)
        assert len(lines) == 3
        records.write_text(lines[0] + lines[1][: len(lines[1]) // 2])
        _, again = ask(*asked, "2,4", "--resume", table="runs.csv")
        assert records.read_text().splitlines(keepends=True)[0] == lines[0]
        assert sorted(again["connections"]) == sorted(first["connections"]) == [2, 4]
        refused(ppw_inside(*asked, "8", "--resume", cwd=tmp_path), "runs of another workload")
        refused(ppw_inside(*asked, "2,4", cwd=tmp_path), "exists already", "--resume")

    @without_caveats
    def test_watts_are_of_the_window(self, ask, tmp_path):
        with SyntheticHost(tmp_path / "host") as host:
            watts = ("--sysfs", host.sysfs, "--power", "rapl", "--metric", "power", "--idle", "1s")
            watts += ("--settle", "0.1s")
            clocks = ("--freq", "1.5GHz,2.2GHz", "--price", "400", "--family", "Zen 4")
            _, runs = ask("run", *PACED, *QUICK[:4], *watts, *clocks, table="runs.csv")
        assert set(runs["power_source"]) == {"rapl:package"}
        assert set(runs["freq_hz"]) == {1.5e9, 2.2e9}
        # Its counter knows nothing of this load: the host idles by its law.
        for column in ("power_w", "idle_power_w"):
            assert runs[column].to_numpy() == pytest.approx(host.laws.idle_w, rel=0.05)
        assert np.allclose(runs["energy_j"], runs["power_w"] * runs["window_s"], rtol=1e-9)
        assert set(runs["family"]) == {"Zen 4"}
        # At idle power, which is below that of the idle machine as often as not.
        metric = ["throughput", "perf_per_watt"]
        found = ppw.project(runs, freq="1.8GHz", metric=metric, keep_all=True)
        assert found.to_frame()["projected"].gt(0).all()

    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
    def test_killed_nothing_is_left(self, killed, how):
        asked = ("--client", "memcaslap", "--window", "60s", "--idle", "0", "-o", "runs.csv")
        killed(how, "memcached", *asked, programs=("memcached", "memcaslap"))


CPIO = ("cpio", "--power", "none", "-o", "a.csv", "--folder")


@pytest.mark.cases(
    "given, said, code",
    (["memcached"], "Missing option '-o'", 2),
    (["memcached", "-o", "-"], "-o needs a file", 2),
    (["memcached", "--gets", "10%,20%", "-o", "a.csv"], "takes a single share", 2),
    (["memcached", "--load", "much", "-o", "a.csv"], "is not a share", 2),
    (["memcached", "--server-cpus", "x", "-o", "a.csv"], "is not a list of CPUs", 2),
    (["memcached", "--object-size", "2MiB", "-o", "a.csv"], "there may be 1 to", 1),
    (["memcached", "--server-cpus", "4095", "-o", "a.csv"], "CPU 4095 may not be", 1),
    (["memcached", "-o", "/proc/a.csv"], "/proc/a.csv: cannot be written", 1),
    (["fio", "--folder", "none", "-o", "a.csv"], "none: is no folder", 1),
    (["count", "--method", "cpu-time", "--", "true"], "needs core frequency and CPI", 1),
    ([*CPIO, "/nowhere"], "/nowhere: is no folder", 1),
    ([*CPIO, "/", "--cores", "4096"], "4096 physical cores are not available", 1),
    ([*CPIO, "/", "--pattern", "trim"], "pattern 'trim': there are randread", 1),
)
def test_wrong_usage(inside, given, said, code):
    refused(inside(*given), said, code=code)


def test_a_missing_program_or_server_is_one_line(inside, tmp_path):
    server = f"127.0.0.1:{free_ports(1)[0]}"
    done = inside("memcached", "--server", server, *QUICK, "-o", "runs.csv")
    refused(done, f"memcached at {server}: no connection: ")
    (tmp_path / "bin" / "memcached").unlink()
    asked = ("memcached", *QUICK, "--power", "none", "-o", "a.csv")
    done = inside(*asked, PATH=str(tmp_path / "bin"))
    refused(done, "memcached is not there: apt install memcached")
    assert len(done.stderr.splitlines()) == 1


@with_fio
class TestFio:
    def test_patterns_and_depths(self, ask, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        what = ("--folder", disk, "--size", "32MiB", "--depth", "1,8", *QUICK, "--clock", "2GHz")
        with SyntheticHost(tmp_path / "host") as host:
            which = ("--pattern", "randread,write:64KiB", "--sysfs", host.sysfs, "--power", "rapl")
            done, runs = ask("run", "fio", *what, *which, "-o", "disk.csv", table="disk.csv")
        cells = {(r.pattern, r.data_bytes, r.queue_depth) for r in runs.itertuples()}
        patterns = (("randread", 4096), ("write", 65536))
        assert cells == {(*pattern, depth) for pattern in patterns for depth in (1, 8)}
        moved = runs["throughput_ops_s"] * runs["data_bytes"]
        assert runs["bandwidth_bytes_s"].to_numpy() == pytest.approx(moved.to_numpy(), rel=0.01)
        watts = runs["power_w"].to_numpy()
        assert watts == pytest.approx(host.laws.idle_w, rel=0.05)
        assert np.allclose(runs["iops_per_w"], runs["throughput_ops_s"] / watts)
        assert runs["direct"].all()
        # Little's law: requests in flight are throughput times latency.
        in_flight = runs["throughput_ops_s"] * runs["latency_mean_s"]
        assert (in_flight / runs["queue_depth"]).between(0.4, 1.1).all()
        assert list(disk.iterdir()) == []
        assert len(done.stdout.splitlines()) == 2 + 4
        assert "IOPS/W" in done.stdout

    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
    def test_killed_its_file_is_gone(self, killed, disk, how):
        asked = ("--folder", disk, "--size", "16MiB", "--window", "60s", "--idle", "0")
        asked += ("-o", "disk.csv")
        killed(how, "fio", *asked, programs=("fio",), ready=lambda: [*disk.glob("*/data")])


NO_REPEATS = ("--power", "none", "--idle", "0", "-o", "runs.csv")
STUDY = (*NO_REPEATS, "--repeats", "1")
WORKQUEUE = Path("/sys/devices/virtual/workqueue/cpumask")


def leftovers():
    """Mounts, loop devices and control groups of a study."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    files = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    groups = [*Path("/sys/fs/cgroup").glob("ppw-*"), *Path("/sys/fs/cgroup").glob("*/ppw-*")]
    return [*(line for line in (*mounts, *files) if "/ppw-" in line), *groups]


@with_fio
@without_caveats
class TestStudies:
    def test_fio_on_one_and_two_cores_on_disk_and_in_memory(self, ask, disk):
        mask = WORKQUEUE.read_text()
        what = ("--pattern", "randread,write:128KiB", "--size", "32MiB", "--depth", "8", *STUDY)
        scope = ("--without-device", "--confine-kernel", "--scope", "own", "--cores", "1,2")
        asked = (*what, *scope, "--window", "0.5s")
        done, runs = ask("run", "cpio", "--folder", disk, *asked, table="runs.csv")
        assert WORKQUEUE.read_text() == mask
        assert "control group and rusage of the programs agree within" in done.stderr
        assert "of the scheduler's CPU time" in done.stderr
        names = ["fio randread 4 KiB", "fio write 128 KiB"]
        cells = {(r.workload, r.device_kind, r.cores) for r in runs.itertuples()}
        assert cells == {(p, d, n) for p in names for d in ("disk", "memory") for n in (1, 2)}
        told = {"cpu_accounting": "scheduler", "direct": True, "scope": "own", "intervals": 8}
        for column, value in told.items():
            assert set(runs[column]) == {value}, column
        # What a kernel's account of a group of processes may be off from that of each of them.
        long = runs[runs["rusage_s"] > 0.2]
        assert len(long) > len(runs) / 2
        assert long["group_s"].to_numpy() == pytest.approx(long["rusage_s"].to_numpy(), rel=0.02)
        # All tasks of the host: those of the run, and others.
        known = runs["processes_s"] + runs["kernel_threads_s"]
        assert (runs["scheduled_s"] + 0.01 >= 0.98 * known).all()
        total = (known + runs["other_programs_s"]).to_numpy()
        assert total == pytest.approx(runs["scheduled_s"].to_numpy(), abs=0.01, rel=0.02)
        # The kernel counted in 512 bytes what fio counted in requests, over windows of their own.
        ios = (runs["sectors_read"] + runs["sectors_written"]) / runs["time_s"]
        assert (ios * 512 / runs["bandwidth_bytes_s"]).between(0.5, 2.0).all()
        more_read = runs["sectors_read"] > runs["sectors_written"]
        assert (more_read == runs["pattern"].str.contains("read")).all()
        # All CPU time is that of the cores used, so that the I/O rate follows from its parts.
        kinds = ("user", "nice", "system", "irq", "softirq", "steal", "idle", "iowait")
        cpus = runs[[f"{kind}_s" for kind in kinds]].sum(axis=1) / runs["time_s"]
        assert (cpus >= 0.9 * runs["cores"]).all()
        found = ppw.cycles_per_io(runs)
        assert found.points["cpio"].between(10, 1e6).all()
        assert len(found.devices) == 4
        for given in ("", "project --cores 16", "compare --roof runs.csv"):
            answer = ask("cpio", *given.split(), "runs.csv")
            assert all(name in answer.stdout for name in names)
        assert leftovers() == []

    def test_a_command_is_counted_to_the_sector(self, ask, tmp_path, disk):
        """40 MiB that are read, once each instance; of the loop device nobody else reads."""
        where = ("--folder", disk, "--size", "128MiB", "--cores", "1", "--without-device")
        what = ("--instances", "1,2", "--workload", "cat", *STUDY)
        fill = ("--prepare", "head -c 41943040 /dev/urandom > in", "--")
        cat = ("sh", "-c", "cat {folder}/in > /dev/null; cat {folder}/in | wc -c")
        _, table = ask("run", "cpio", *where, *what, *fill, *cat, table="runs.csv")
        runs = table.set_index(["device_kind", "instances"])
        assert set(runs["workload"]) == {"cat"}
        for instances in (1, 2):
            # Each is read once more from the page cache, which no sector tells.
            read = runs.loc[("memory", instances)]["sectors_read"]
            assert read == pytest.approx(instances * 81920, abs=128)
            assert runs.loc[("disk", instances)]["sectors_read"] >= instances * 81920
        outputs = (tmp_path / "runs.samples" / "output").iterdir()
        assert {path.read_text() for path in outputs} == {"41943040\n"}
        assert leftovers() == []

    def test_a_run_without_io_is_named_and_never_divided_by(self, ask, disk):
        where = ("--folder", disk, "--size", "16MiB", "--cores", "1", "--without-device")
        what = ("--clock", "2GHz", *STUDY, "--", "sleep", "1.2")
        done, runs = ask("run", "cpio", *where, *what, table="runs.csv")
        quiet = runs[runs["device_kind"] == "memory"].iloc[0]
        assert (quiet["sectors_read"], quiet["sectors_written"]) == (0, 0)
        assert quiet["intervals_without_io"] == quiet["intervals"] == 3
        assert "no sector was read or written: there are no cycles per I/O" in done.stderr
        both = pd.concat([runs, runs.assign(sectors_read=8.0)])
        points = ppw.cycles_per_io(both, by=["device_kind"]).points
        assert "no I/O" in points.set_index("device_kind").loc["memory", "why_not"]
        assert "inf" not in done.stdout

    def test_in_a_container_the_counters_are_said_to_be_the_hosts(self, ask, disk):
        made = ["unshare", "--pid", "--cgroup", "--mount-proc", "--fork"]
        copy = ("dd", "if=/dev/zero", "of={folder}/out", "bs=1M", "count=16", "status=none")
        asked = ("run", "cpio", "--folder", disk, "--cores", "1", *STUDY, "--", *copy)
        done, runs = ask(*asked, before=made, table="runs.csv")
        assert "ppw: this is a container" in done.stderr
        assert runs["io_notes"].str.contains("this is a container").all()
        # What it wrote was on the device before the window closed.
        assert runs["sectors_written"].ge(32768).all()

    def test_memory_bandwidth_is_taken(self, ask, tmp_path, disk):
        where = ("--folder", disk, "--size", "16MiB", "--cores", "1", "--pattern", "randread")
        taken = ("--take-bandwidth", "50%", "--window", "0.5s", *NO_REPEATS, "--repeats", "2")
        _, runs = ask("run", "cpio", *where, *taken, table="runs.csv")
        assert list(runs["bandwidth_taken"]) == [0.5, 0.5]
        first, second = runs["bandwidth_per_core_bytes_s"]
        assert first == second > 1e8
        assert runs["bandwidth_taken_bytes_s"].gt(1e8).all()
        # Going on, a level keeps the figure by which its runs are told.
        records = tmp_path / "runs.samples" / "runs.jsonl"
        records.write_text(records.read_text().splitlines(keepends=True)[0])
        _, more = ask("run", "cpio", *where, *taken, "--resume", table="runs.csv")
        assert list(more["bandwidth_per_core_bytes_s"]) == [first, second]
        assert len(records.read_text().splitlines()) == 2

    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
    def test_killed_nothing_is_left_running_mounted_or_attached(self, killed, disk, how):
        mask = WORKQUEUE.read_text()
        where = ("--folder", disk, "--size", "16MiB", "--cores", "1", "--without-device")
        asked = (*where, "--confine-kernel", *STUDY, "--window", "60s")
        killed(how, "cpio", *asked, programs=("fio",), ready=leftovers)
        wait_for(lambda: leftovers() == [] and list(disk.iterdir()) == [])
        wait_for(lambda: WORKQUEUE.read_text() == mask)

    def test_what_cannot_be_measured(self, tmp_path):
        all_cores = ["--cores", str(os.cpu_count()), "--take-bandwidth", "50%"]
        for given, said in (
            (["--", "no-such-program"], "not found"),
            (["--prepare", "false", "--", "true"], "--prepare"),
            (all_cores, "memory-bandwidth antagonist needs cores of its own"),
        ):
            asked = ("run", "cpio", "--folder", "/", "--size", "1MiB", *STUDY, *given)
            refused(ppw_inside(*asked, cwd=tmp_path), said)
            assert not (tmp_path / "runs.csv").exists()


@pytest.mark.peer("instructions")
def test_counts_become_a_table_with_path_lengths(ask, tmp_path):
    for size in (100_000, 200_000, 400_000):
        (tmp_path / "words").write_bytes(b"word " * (size // 5))
        how = ("--method", "callgrind", "--data", size, "--workload", "wc", "-o", "counts.csv")
        done, runs = ask("run", "count", *how, "--", "wc", "-w", "words", table="counts.csv")
        assert "emulated by callgrind (user)" in done.stdout
    assert list(runs["data_bytes"]) == [100_000, 200_000, 400_000]
    assert set(runs["instructions_label"]) == {"emulated"}
    per_byte = np.diff(runs["instructions"]) / np.diff(runs["data_bytes"])
    # A loop over bytes takes the same instructions for each of them.
    assert per_byte[0] == pytest.approx(per_byte[1], rel=0.02)
    assert 1 < per_byte[0] < 200
    refused(ppw_inside("run", "count", "--", "false", cwd=tmp_path), "false ended with exit code 1")


class Load(service.Load):
    """A load by a clock that nobody waits for; ``fails`` are errors that it ends with."""

    cores, is_local, pids = 1, True, ()

    def __init__(self, clock, fails=()):
        self.clock, self.fails, self.calls = clock, list(fails), []

    def start(self, output):
        self.calls.append("start")

    def wait_steady(self):
        self.clock.wait(0.2)

    def observe(self):
        return self.clock()

    def finish(self):
        if self.fails:
            raise self.fails.pop()

    def stop(self):
        self.calls.append("stop")

    def columns(self, seen):
        assert np.diff(seen) == pytest.approx([0.1] * 8)
        return {"slices": len(seen) - 1, "unknown": None, "nothing": float("nan")}


class TestServiceRuns:
    STEP = service.ServiceStep("run", {"b": 1, "a": 2.0}, None, 0)

    @pytest.fixture
    def made(self, tmp_path):
        """Make runs of the session, which is taken up where it is there."""
        plan = {"host": "here", "family": None, "workload": None, "data_bytes": None}
        Session.create(tmp_path / "runs.samples", plan | {"price": None, "channels": []})
        options = service.ServiceOptions(host="here", seconds=0.8, idle_s=0.0, clock_hz=2e9)
        sampling, clock = Sampling.open([]), FakeClock()
        with CleanupProcess() as reaper:

            def made(**more):
                session = Session.open(tmp_path / "runs.samples")
                parts = (session, Machine.open(counters=False), sampling, print, options, reaper)
                runs = service.ServiceRuns(*parts, **{"clock": clock, "wait": clock.wait, **more})
                runs.begin()
                return runs

            yield made
        sampling.close()

    def test_a_step_is_a_row_and_not_done_again(self, made):
        runs = made()
        assert runs.done(self.STEP) is None
        load = Load(runs.clock)
        row = runs.measure(self.STEP, lambda _: load, workload="spin")
        assert row["window_s"] == pytest.approx(0.8)
        assert (row["workload"], row["freq_hz"], row["freq_source"]) == ("spin", 2e9, "stated")
        assert row["slices"] == 8
        assert not {"unknown", "nothing", "time_s", "executions"} & set(row)
        assert load.calls == ["start", "stop"]
        again = made()
        assert again.done(self.STEP._replace(setup={"a": 2.0, "b": 1})) == row
        assert again.done(self.STEP._replace(repeat=1)) is None
        key = service.ServiceStep("run", {"b": 1, "a": (1, 2)}, None, 0).key
        assert json.loads(key) == ["run", {"a": [1, 2], "b": 1}, None, 0]

    def test_a_load_that_fails_is_ended_and_no_record(self, made):
        runs = made()
        load = Load(runs.clock, [ppw.MeasurementError("it would not run")])
        with pytest.raises(ppw.MeasurementError, match="it would not run"):
            runs.measure(self.STEP, lambda _: load, workload="spin")
        assert load.calls == ["start", "stop"]
        assert runs.session.records() == []

    @pytest.mark.parametrize("short", [2, 3])
    def test_clients_that_end_too_early_are_given_longer(self, made, short):
        runs, asked = made(), []

        def make(margin_s):
            asked.append(margin_s)
            return Load(runs.clock, [service.CutShortError("client")] * (len(asked) <= short))

        if short == 3:
            with pytest.raises(service.CutShortError):
                runs.measure(self.STEP, make, workload="spin")
        else:
            assert runs.measure(self.STEP, make, workload="spin")["slices"] == 8
        assert asked == list(service.MARGINS_S)
        assert len(runs.session.records()) == (short == 2)

    @pytest.mark.peer("perf")
    def test_perf_counts_the_processes_of_a_service_for_the_window(self, made):
        runs = made(clock=time.monotonic, wait=time.sleep)
        runs.machine.perf = PerfCounters(events=("task-clock", "duration_time"))
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
            load = Load(FakeClock())
            load.pids, load.columns = [process.pid], lambda seen: {}
            row = runs.measure(self.STEP, lambda _: load, workload="spin")
            process.kill()
        # A CPU or what other programs leave of it, of 0.8 s; never more than the window.
        assert 0.05 < row["task_clock_s"] <= 1.15 * row["window_s"]
        assert row["window_s"] == pytest.approx(0.8, abs=0.2)


def test_the_workloads_are_listed_without_importing_them():
    code = "import sys, click.testing; from ppw.cli.run import run_command\n"
    code += "done = click.testing.CliRunner().invoke(run_command, ['--help'])\n"
    code += "print([m for m in sys.modules if m in ('pandas', 'scipy')], 'fio' in done.output)"
    said = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment())
    assert said == "[] True\n"
