"""`ppw measure` on hosts whose laws are known, on simulated cores, and when things go wrong."""

import contextlib
import io
import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from made_up import answered
from peers.cpufreq import zen
from peers.riscv import WORK, build, marked
from peers.synthetic_host import Laws, SyntheticHost
from peers.waiting import FakeClock, is_running, wait_for
from processes import environment, ppw_inside, ppw_process, printed, refused, started, worked

import ppw
from measurements.host.cpu_placement import Execution
from measurements.sweep.loop import SweepOptions, order_of
from measurements.sweep.measure import HostOptions, set_up
from measurements.sweep.session import lock_session
from ppw.catalogue.datasets import simulated_sweep
from ppw.cli import announce_compilation
from ppw.cli.fleet import progress_bar
from ppw.cli.measuring import Progress
from ppw.cli.run import show_progress

BRIEF = ("--warm-ups", "0", "--idle", "0")
AT_ONCE = (*BRIEF, "--settle", "0", "--metric", "time")
QUICK = (*BRIEF, "--settle", "0.05s", "--metric", "time")
for_measuring = pytest.mark.peer("measure")


@pytest.fixture
def measure(tmp_path):
    """Run `ppw measure` as a process in an empty folder, before whatever else the machine does."""

    def measure(*given, **more):
        before = ("nice", "-n", "-15")
        return ppw_process("measure", *given, cwd=tmp_path, before=before, **more)

    return measure


@pytest.fixture
def inside(tmp_path):
    """Run `ppw measure` inside this process."""

    def inside(*given, **more):
        return ppw_inside("measure", *given, cwd=tmp_path, **more)

    return inside


@pytest.fixture
def host(tmp_path):
    with SyntheticHost(tmp_path / "host") as host:
        yield host


WHAT = {"command": ("true",), "workload": "true", "host": "h", "repeats": 2}
WHAT |= {"frequencies": (1.5e9, 1.8e9, 2.2e9)}


def test_the_order_is_the_seeds():
    first, again, other = (order_of(SweepOptions(**WHAT, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    clocks = [1.5e9, 1.5e9, 1.8e9, 1.8e9, 2.2e9, 2.2e9]
    assert [step.freq_hz for step in sorted(first)] == clocks
    assert (sorted(first), len(set(first))) == (sorted(other), 6)


@for_measuring
class TestSyntheticHost:
    def test_measured_and_projected_the_true_laws_come_back(self, measure, tmp_path):
        # Long enough for the start of a shell on a busy machine to be a small part of it.
        laws = Laws(t_fixed=0.5, work=1.5e9)
        with SyntheticHost(tmp_path / "host", laws=laws) as host:
            before = host.kernel.state()
            what = ("--sysfs", host.sysfs, "--freq", "1.5GHz,1.8GHz", "--repeats", 3)
            how = ("--metric", "time,power", "--settle", "0.1s", "--idle", "1s")
            worked(measure(*what, *how, "-o", "runs.parquet", "--", *host.workload()))
            assert host.kernel.state() == before
        runs = ppw.read_runs(tmp_path / "runs.parquet")
        assert (len(runs), set(runs["power_source"])) == (6, {"rapl:package"})
        assert set(runs["power_label"]) == {"measured"}
        for freq_hz, part in runs.groupby("freq_hz"):
            assert part["time_s"].median() == pytest.approx(laws.time_s(freq_hz), rel=0.05)
            assert part["power_w"].median() == pytest.approx(laws.power_w(freq_hz), rel=0.05)
        assert runs["idle_power_w"].median() == pytest.approx(laws.idle_w, rel=0.05)
        assert np.allclose(runs["energy_j"], runs["power_w"] * runs["time_s"], rtol=1e-9)
        own = runs["command_user_s"] + runs["command_system_s"]
        share = own / (own + runs["other_cpu_s"])
        above_w = share * (runs["power_w"] - runs["idle_power_w"])
        whole_w = runs["idle_power_w"] + above_w.fillna(0.0)
        assert np.allclose(runs["own_energy_estimate_j"], whole_w * runs["time_s"], rtol=1e-9)
        answer = answered(ppw.project, runs, freq="2.2GHz", metric=["time", "power"])
        projected = answer.to_frame().set_index("metric")
        for metric, truth in (("time", laws.time_s(2.2e9)), ("power", laws.power_w(2.2e9))):
            assert projected.loc[metric, "lower"] < truth < projected.loc[metric, "upper"]

    def test_runs_are_shuffled_by_the_seed_and_waited_for_as_asked(
        self, host, tmp_path, monkeypatch
    ):
        clock, told = FakeClock(), []

        def execute(commands, *, output, **_):
            clock.now_s += 0.5 * len(commands)
            return Execution(clock.now_s - 0.5 * len(commands), clock.now_s, 0, 0.1, 0.1)

        monkeypatch.setattr("measurements.sweep.loop.cpu_placement.execute", execute)
        options = SweepOptions(**WHAT, idle_s=3.0, at_least_s=30.0, counters=False)
        sensed = HostOptions(sysfs=str(host.sysfs), power="rapl", metrics=("time",))
        before = host.kernel.state()
        with set_up(options, sensed, tmp_path / "runs.csv", tell=told.append) as measuring:
            measuring.sweep.clock, measuring.sweep.wait = clock, clock.wait
            rows = list(measuring.rows())
        assert host.kernel.state() == before
        order = order_of(options)
        measured = [(row["freq_hz"], row["repeat"]) for row in rows]
        assert measured == [(step.freq_hz, step.repeat) for step in order]
        # Settled before idling; then at the clock that is quickest, and after each change.
        clocks = [2.2e9, *(step.freq_hz for step in order)]
        changes = sum(a != b for a, b in pairwise(clocks))
        assert clock.waits_s == [2.0, 3.0, 2.0, *[2.0] * changes]
        assert any("it is executed 60 times per run, and its mean is reported" in t for t in told)
        assert [row["time_s"] for row in rows] == pytest.approx([0.5] * 6)

    def test_turbo_is_set_and_put_back(self, inside, host):
        boost = host.kernel.cpu / "cpufreq" / "boost"
        assert boost.read_text().strip() == "1"
        what = ("--sysfs", host.sysfs, "--freq", "1.8GHz", "--turbo", "off", "--repeats", 1)
        seen = f"cat {boost} > {host.root}/seen"
        worked(inside(*what, "-o", "runs.csv", *AT_ONCE, "--", "sh", "-c", seen))
        assert (host.root / "seen").read_text().strip() == "0"
        assert boost.read_text().strip() == "1"

    def test_a_dry_run_says_what_it_would_write_and_writes_nothing(self, inside, host, tmp_path):
        before = host.kernel.state()
        what = ("--sysfs", host.sysfs, "--freq", "1.5GHz,1.8GHz", "--repeats", 1, "--dry-run")
        done = worked(inside(*what, "--turbo", "off", "--", "false"))
        assert done.stdout.startswith(f"write 0 to {host.kernel.cpu}/cpufreq/boost\n")
        lines = done.stdout.splitlines()
        assert [line for line in lines if line.startswith("run ")]
        assert any("scaling_max_freq" in line and "1800000" in line for line in lines)
        assert (host.kernel.state(), host.kernel.writes()) == (before, [])
        assert not list(tmp_path.glob("*.samples"))

    def test_a_clock_that_cannot_be_fixed_is_refused_before_any_run(self, inside, host):
        what = ("--sysfs", host.sysfs, "--freq", "1.5GHz,1.7GHz", "-o", "runs.csv", *AT_ONCE)
        refused(inside(*what, "--", *host.workload()), "1.7 GHz")
        assert host.finished() == 0

    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
    def test_ended_from_outside_it_keeps_its_runs_and_puts_all_back(self, how, host, tmp_path):
        before, pid = host.kernel.state(), tmp_path / "pid"
        # The third run goes on, and so does what it started.
        third = f"[ $(wc -c < {pid}.n) -ge 2 ] || {{ printf x >> {pid}.n; exit; }}"
        command = f"touch {pid}.n; {third}; (setsid sleep 600 & echo $! > {pid}); sleep 600"
        what = ("--sysfs", host.sysfs, "--freq", "1.5GHz,1.8GHz", "-o", "runs.csv", *QUICK)
        with started("measure", *what, "--", "sh", "-c", command, cwd=tmp_path) as process:
            wait_for(lambda: pid.exists() and pid.read_text().strip())
            process.send_signal(how)
            assert process.wait(60) == (130 if how is signal.SIGINT else -how)
            assert "Traceback" not in process.stderr.read()
        wait_for(lambda: not is_running(pid.read_text().strip()))
        wait_for(lambda: host.kernel.state() == before)
        assert len(pd.read_csv(tmp_path / "runs.csv")) == 2


# Imports once and forks at each line of its input, so that a kill costs no start of Python.
ZYGOTE = """
import os, sys, pandas, pyarrow.parquet
import measurements.sweep.measure, ppw.cli, ppw.cli.measuring
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1), os.dup2(log, 2)
        sys.argv = ["ppw", *eval(line)]
        ppw.cli.console()
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("ended", flush=True)
"""


@pytest.mark.peer("kill")
def test_killed_at_any_moment_no_run_is_lost_and_the_host_is_as_it_was(tmp_path):
    """Kill with SIGKILL at random moments of a sweep that goes on each time."""
    rng, kills = random.Random(20120101), 15
    laws = Laws(t_fixed=0.01, work=0.02e9)
    with SyntheticHost(tmp_path / "host", laws=laws, spec=zen()) as host:
        before = host.kernel.state()
        output = tmp_path / "runs.parquet"
        what = ("measure", "--sysfs", str(host.sysfs), "--freq", "1.5GHz,1.8GHz,2.2GHz")
        asked = (*what, "--repeats", "2000", "-o", str(output), *AT_ONCE)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        zygote = subprocess.Popen(
            [sys.executable, "-c", ZYGOTE], cwd=tmp_path, env=environment(), text=True, **pipes
        )
        with zygote:
            rows = 0
            for kill in range(kills):
                resume = ["--resume"] if (tmp_path / "runs.samples/plan.json").exists() else []
                zygote.stdin.write(repr([*asked, *resume, "--", *host.workload()]) + "\n")
                zygote.stdin.flush()
                pid = int(zygote.stdout.readline())
                time.sleep(rng.uniform(0.0, 1.2))
                os.kill(pid, signal.SIGKILL)
                assert zygote.stdout.readline() == "ended\n"
                # The command in hand is ended: nobody measures it.
                wait_for(lambda: host.kernel.state() == before and not host.busy())
                if output.exists():
                    table = pd.read_parquet(output)
                    assert len(table) >= rows, f"kill {kill}"
                    rows = len(table)
                    assert not table[["freq_hz", "repeat"]].duplicated().any()
                # Each kill costs the run in hand at most.
                assert rows >= host.finished() - (kill + 1)
            zygote.stdin.close()
        log = (tmp_path / "log.txt").read_text()
        # On a busy machine few runs fit between two kills.
        assert rows > kills / 10, log
        assert pd.read_parquet(output)["time_s"].gt(0).all()
    assert "Traceback" not in log
    assert "error" not in log


class TestBareHost:
    """A host without RAPL, counters and cpufreq."""

    @pytest.fixture
    def bare(self, inside, tmp_path):
        """Run it where few programs are, and nothing is in sysfs."""
        programs = tmp_path / "bin"
        programs.mkdir()
        for name in ("true", "sleep", "touch", "sh"):
            (programs / name).symlink_to(shutil.which(name))
        cpus = tmp_path / "sys/devices/system/cpu"
        cpus.mkdir(parents=True)
        (cpus / "online").write_text(",".join(map(str, sorted(os.sched_getaffinity(0)))))

        def bare(*given, **more):
            return inside("--sysfs", tmp_path / "sys", *given, PATH=str(programs), **more)

        return bare

    def test_time_alone_as_found(self, bare, tmp_path):
        what = ("--as-found", "--repeats", 2, *AT_ONCE, "-o", "runs.csv", "--clock", "1.66GHz")
        done = worked(bare(*what, "--family", "Atom D", "--", "sleep", "0.1"))
        runs = ppw.read_runs(tmp_path / "runs.csv")
        assert len(runs) == 2
        assert runs["time_s"].min() >= 0.1
        assert not {"power_w", "instructions"} & set(runs)
        told = set(zip(runs["freq_hz"], runs["freq_source"], runs["family"], strict=True))
        assert told == {(1.66e9, "stated", "Atom D")}
        assert "not measured here: cpi: " in done.stderr
        assert "not measured here: power: " in done.stderr
        assert "sleep" in done.stdout

    def test_a_host_that_is_busy_with_other_work_is_told(self, bare, tmp_path):
        asked = ("--as-found", "--clock", "2GHz", "--repeats", 1, *AT_ONCE, "-o", "runs.csv")
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop:
            done = worked(bare(*asked, "--", "sleep", "0.3"))
            loop.kill()
        assert "of the CPU time during a run" in done.stderr
        (row,) = pd.read_csv(tmp_path / "runs.csv").to_dict("records")
        assert row["other_cpu_share"] > 0.05
        assert row["other_cpu_s"] > 0.05 * row["time_s"]

    def test_a_source_that_says_0_w_throughout_is_no_power(self, bare, tmp_path):
        rows = [f"{time.time() + at},0" for at in range(-10, 60)]
        (tmp_path / "zero.csv").write_text("\n".join(["time,power_w", *rows]))
        asked = ("--as-found", "--clock", "2GHz", "--repeats", 1, *BRIEF, "-o", "runs.csv")
        power = ("--settle", 0, "--metric", "time,power", "--power", "log@zero.csv")
        refused(bare(*asked, *power, "--", "sleep", "0.1"), "error: no run has power: log:zero: ")
        assert "power_source" not in pd.read_csv(tmp_path / "runs.csv")

    def test_a_sweep_that_is_done_is_replayed_and_gone_on_with(self, bare, tmp_path):
        asked = ("--as-found", "--clock", "2GHz", "--repeats", 3, *AT_ONCE, "-o", "runs.csv")
        done = worked(bare(*asked, "--", "true"))
        first = (tmp_path / "runs.csv").read_text()
        # From raw readings the table is the same.
        again = bare("--replay", "runs.samples", "-o", "again.csv")
        assert (again.returncode, again.stdout) == (0, done.stdout)
        assert (tmp_path / "again.csv").read_text() == first
        # Without a file it is summed up; as text it can be passed on.
        assert bare("--replay", "runs.samples").stdout == done.stdout
        assert bare("--replay", "runs.samples", "-o", "-").stdout == first
        refused(bare(*asked, "--", "true"), "exists already", "--resume")
        other = bare(*asked, "--resume", "--", "echo", "1")
        refused(other, "command was true and is echo 1 now")
        with lock_session(tmp_path / "runs.samples"):
            refused(bare("--resume", "-o", "runs.csv"), f"process {os.getpid()} measures into it")
        # Nothing but its raw readings is needed.
        (tmp_path / "runs.csv").unlink()
        assert bare("--resume", "-o", "runs.csv").returncode == 0
        assert (tmp_path / "runs.csv").read_text() == first
        plan = tmp_path / "runs.samples" / "plan.json"
        plan.write_text(json.dumps(json.loads(plan.read_text()) | {"channels": [{}]}))
        refused(bare("--resume", "-o", "runs.csv"), "measured with other power sources")

    def test_a_command_gets_no_logins_and_its_output_is_private(self, bare, tmp_path):
        secrets = {"PPW_IPMI_USER": "root", "PPW_IPMI_PASSWORD": "hunter2", "KEPT": "kept"}
        asked = ("--as-found", "--clock", "2GHz", "--repeats", 1, *AT_ONCE, "-o", "runs.csv")
        worked(bare(*asked, "--", "sh", "-c", "set", **secrets))
        output = next((tmp_path / "runs.samples/output").iterdir())
        assert "kept" in output.read_text()
        assert "hunter2" not in output.read_text()
        assert output.stat().st_mode & 0o777 == 0o600

    def test_a_command_that_fails_ends_the_sweep_and_can_be_gone_on_with(self, bare, tmp_path):
        flag = tmp_path / "fixed"
        command = ["--", "sh", "-c", f"echo trouble; test -e {flag} || exit 7"]
        asked = ("--as-found", "--clock", "2GHz", "--repeats", 2, "-o", "runs.csv")
        refused(bare(*asked, *AT_ONCE, *command), "sh ended with exit code 7", "--resume")
        output = next((tmp_path / "runs.samples" / "output").iterdir())
        assert output.read_text() == "trouble\n"
        refused(bare("--replay", "runs.samples"), "the folder holds no successful run")
        flag.touch()
        worked(bare(*asked, *AT_ONCE, "--resume", *command))
        assert len(pd.read_csv(tmp_path / "runs.csv")) == 2

    @pytest.mark.cases(
        "given, said, code",
        ("--as-found -o a.csv -- touch ran", "cpi cannot be measured here", 1),
        ("--freq 1.2GHz --metric time -o a.csv -- touch ran", "--as-found", 1),
        ("--as-found --metric time --cores 4096 -o a.csv -- touch ran", "4096", 1),
        ("--as-found --metric time --power raple -o a.csv -- touch ran", "power source", 1),
        ("--as-found --power rapl --metric power -o a.csv -- touch ran", "powercap", 1),
        ("--as-found --power none --metric power -o a.csv -- touch ran", "out of --metric", 1),
        ("--as-found --metric time -o /proc/a -- touch ran", "/proc/a: cannot be written", 1),
        ("--as-found --metric time -o a.csv -- no-such", "no-such: cannot be started", 1),
        ("--as-found -o a.csv", "no COMMAND", 2),
        ("-o a.csv -- touch ran", "no core frequency", 2),
        ("--as-found --freq 1GHz -o a.csv -- touch ran", "give one", 2),
        ("--as-found -- touch ran", "no -o FILE", 2),
        ("--as-found -o - -- touch ran", "rewrites the table after every run", 2),
        ("--freq 1GHz --clock 2GHz -- touch ran", "but --freq sets one", 2),
    )
    def test_what_cannot_be_is_refused_before_a_run(self, bare, tmp_path, given, said, code):
        refused(bare(*BRIEF, "--settle", "0", *given.split()), said, code=code)
        assert not (tmp_path / "ran").exists()

    @for_measuring
    def test_a_disk_that_is_full(self, inside, tmp_path):
        full, ran = tmp_path / "full", tmp_path / "ran"
        full.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", full], check=True)
        try:
            asked = ("-o", full / "runs.csv", "--as-found", *QUICK)
            refused(inside(*asked, "--", "touch", ran), str(full))
        finally:
            subprocess.run(["umount", full], check=True)
        assert not ran.exists()

    @for_measuring
    def test_memory_is_probed_first_and_what_it_lacks_is_said(self, bare, tmp_path):
        asked = ("--as-found", "--probe-memory", "--repeats", 2, *QUICK, "-o", "runs.csv")
        done = worked(bare(*asked, "--", "true"))
        assert "latency is not measured, and bandwidth is measured with numpy" in done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv")
        # One probe, for all runs.
        assert len(set(runs["memory_bandwidth_bytes_s"])) == 1
        assert runs["memory_bandwidth_bytes_s"].min() > 1e8
        assert runs["memory_latency_s"].isna().all()

    @for_measuring
    def test_cores_are_swept_by_affinity(self, inside, tmp_path):
        seen = tmp_path / "seen"
        asked = ("--as-found", "--power", "none", "--cores", "1,2", "--repeats", 1, *QUICK)
        worked(inside(*asked, "-o", "runs.csv", "--", "sh", "-c", f"nproc >> {seen}"))
        assert sorted(seen.read_text().split()) == ["1", "2"]
        assert sorted(pd.read_csv(tmp_path / "runs.csv")["cores"]) == [1, 2]


class TestSimulated:
    def asked(self, *words):
        return ("--simulate", *words, "-o", "runs.csv")

    @pytest.mark.peer("simulated")
    def test_programs_of_a_user(self, measure, tmp_path):
        build(tmp_path / "mine.elf", marked())
        build(tmp_path / "plain.elf", f"{WORK} return 0;")
        asked = self.asked("inorder,o3", "--freq", "1GHz,2GHz", "--data", "32KiB")
        done = worked(measure(*asked, "mine.elf", "plain.elf"))
        table = pd.read_csv(tmp_path / "runs.csv")
        assert (len(table), set(table["power_source"])) == (8, {"simulated"})
        assert set(table["data_bytes"]) == {32768}
        regions = set(zip(table["workload"], table["region"], strict=True))
        assert regions == {("mine", "marked"), ("plain", "whole program")}
        assert "ppw: 8 of 8: plain on o3, 2 GHz" in done.stderr
        assert "ppw: caveat: simulated, not hardware" in done.stderr
        assert "ppw: caveat: plain: the program marks no measured region" in done.stderr
        assert len(done.stdout.splitlines()) == 10

    @pytest.mark.peer("simulated")
    def test_a_cell_of_the_shipped_sweep_made_anew_is_the_same_to_a_cycle(self, measure, tmp_path):
        done = worked(measure(*self.asked("inorder", "--freq", "1.2GHz,2.4GHz"), "pointer_chase"))
        assert "pointer_chase" in done.stdout
        sweep = simulated_sweep()
        same = (sweep["workload"] == "pointer_chase") & (sweep["host"] == "simulated-inorder")
        shipped = sweep[same & sweep["freq_hz"].isin([1.2e9, 2.4e9])]
        anew = ppw.read_runs(tmp_path / "runs.csv")
        assert (len(anew), anew.to_dict("records")) == (2, shipped.to_dict("records"))

    @pytest.mark.cases(
        "words, said",
        ("o4 --freq 1GHz -o r.csv kmeans", "'o4' is not one of inorder, o3"),
        ("o3 --freq 1GHz -o r.csv", "no program: give one of word_count, sort,"),
        ("o3 --repeats 3 -o r.csv kmeans", "--repeats has no effect on a sim"),
    )
    def test_wrong_usage(self, inside, words, said):
        refused(inside("--simulate", *words.split()), said, code=2)

    def test_without_rvsim_one_line_says_what_to_install(self, inside, monkeypatch):
        monkeypatch.setitem(sys.modules, "rvsim", None)
        done = inside(*self.asked("o3", "--freq", "1GHz"), "kmeans")
        refused(done, "pip install 'perf-per-watt[simulate]'")

    @pytest.mark.peer("simulated")
    @pytest.mark.cases(
        "words, more, said",
        ("--freq 1GHz kmens", {}, "mean 'kmeans'?"),
        ("--freq 20GHz sort", {}, "from 100 MHz to 10"),
        ("--freq 1GHz kmeans", {"PATH": "/"}, "apt install gcc-riscv64-unknown-elf"),
    )
    def test_what_cannot_be_simulated(self, inside, tmp_path, words, more, said):
        refused(inside(*self.asked("o3", *words.split()), **more), said)
        assert not (tmp_path / "runs.csv").exists()

    def test_a_newcomer_compares_the_two_simulated_hosts(self, tmp_path):
        done = ppw_inside("demo", "--runs", "runs.csv", cwd=tmp_path)
        assert (done.stdout, done.returncode) == ("", 0)
        assert done.stderr.startswith("ppw: caveat: simulated, not hardware")
        sides = ("--a", "host=simulated-o3", "--b", "host=simulated-inorder", "--freq", "3.2GHz")
        page = ("--format", "html", "-o", "report.html")
        assert printed(ppw_inside("compare", "runs.csv", *sides, *page, cwd=tmp_path)) == ""
        written = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "all runs are simulated, not hardware" in written


class Terminal(io.StringIO):
    def isatty(self):
        return True


@contextlib.contextmanager
def stderr(stream):
    """Text that standard error is given, without its colours."""
    with mock.patch("sys.stderr", made := stream()):
        yield lambda: re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", made.getvalue())


@pytest.mark.parametrize("stream", [Terminal, io.StringIO], ids=["terminal", "elsewhere"])
class TestProgress:
    """On a terminal what is done and what is left; elsewhere lines alone."""

    def test_of_a_sweep(self, stream, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        row = {"freq_hz": 1.5e9, "cores": 2, "repeat": 1, "time_s": 12.5, "power_w": 40.0}
        with stderr(stream) as shown, Progress() as progress:
            progress.expect(3)
            progress.tell("the clock\nis  set")
            progress.show(row)
            progress.show(row | {"repeat": 2, "time_s": 13.5})
        if stream is Terminal:
            parts = ("ppw: the clock is set", "2 of 3 runs", "1.5 GHz", "12.5", "13.5", "40")
            assert [part for part in parts if part not in shown()] == []
        else:
            assert shown() == "ppw: the clock is set\n"

    def test_of_a_fleet(self, stream):
        with stderr(stream) as shown, progress_bar() as report:
            assert (report is None) == (stream is io.StringIO)
            if report is not None:
                report(0.25)
                report(1.0)
        assert ("reading runs" in shown()) == ("100%" in shown()) == (stream is Terminal)

    def test_of_a_service(self, stream):
        with stderr(stream) as shown:
            show_progress(1, 2, "evil\x1b[2Jname")
            show_progress(2, 2, "law")
        lines = ["1 of 2 runs: evil\\x1b[2Jname", "2 of 2 runs: law\n"]
        assert shown().split("\r")[1:] == (lines if stream is Terminal else [])

    def test_of_compiling(self, stream):
        compiling = logging.Logger("fitting.compiled.loops")
        with stderr(stream) as shown:
            with mock.patch.object(logging, "getLogger", return_value=compiling):
                announce_compilation()
                announce_compilation()
            compiling.info("compiling loops")
        assert shown() == "ppw: compiling loops\n" * (stream is Terminal)
