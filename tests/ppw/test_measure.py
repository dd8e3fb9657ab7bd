"""`ppw measure` on hosts whose laws are known, on this machine, and when things go wrong."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import answered
from peers.cpufreq import zen
from peers.synthetic_host import Laws, SyntheticHost
from processes import environment, ppw_process, refused

import ppw

BRIEF = ["--warm-ups", "0", "--idle", "0"]
AT_ONCE = [*BRIEF, "--settle", "0", "--metric", "time"]
QUICK = [*BRIEF, "--settle", "0.05s", "--metric", "time"]


@pytest.fixture
def measure(tmp_path):
    """Run `ppw measure` in an empty folder."""

    def run(*arguments, **more):
        # Before whatever else the machine does: times are held against laws.
        first = ("nice", "-n", "-15")
        return ppw_process("measure", *arguments, cwd=tmp_path, before=first, **more)

    return run


@pytest.fixture
def host(tmp_path):
    with SyntheticHost(tmp_path / "host") as host:
        yield host


class TestSyntheticHost:
    def test_measured_and_projected_the_true_laws_come_back(self, measure, tmp_path):
        # Long enough for the start of a shell on a busy machine to be a small part of it.
        laws = Laws(t_fixed=0.5, work=1.5e9)
        with SyntheticHost(tmp_path / "host", laws=laws) as host:
            before = host.kernel.state()
            done = measure(
                *("--sysfs", host.sysfs, "--freq", "1.5GHz,1.8GHz", "--repeats", 3),
                *("--metric", "time,power", "--settle", "0.1s", "--idle", "1s"),
                *("--host", "synthetic", "--workload", "law", "-o", "runs.parquet", "--"),
                *host.workload(),
            )
            assert done.returncode == 0, done.stderr
            assert host.kernel.state() == before
        runs = ppw.read_runs(tmp_path / "runs.parquet")
        assert len(runs) == 6
        assert set(runs["power_source"]) == {"rapl:package"}
        assert set(runs["power_label"]) == {"measured"}
        for freq_hz, part in runs.groupby("freq_hz"):
            assert part["time_s"].median() == pytest.approx(laws.time_s(freq_hz), rel=0.05)
            assert part["power_w"].median() == pytest.approx(laws.power_w(freq_hz), rel=0.05)
        assert runs["idle_power_w"].median() == pytest.approx(laws.idle_w, rel=0.05)
        assert np.allclose(runs["energy_j"], runs["power_w"] * runs["time_s"], rtol=1e-9)
        answer = answered(ppw.project_runs, runs, freq="2.2GHz", metric=["time", "power"])
        projected = answer.to_frame().set_index("metric")
        for metric, truth in (("time", laws.time_s(2.2e9)), ("power", laws.power_w(2.2e9))):
            assert projected.loc[metric, "lower"] < truth < projected.loc[metric, "upper"]

    def test_runs_are_in_the_order_of_the_seed(self, measure, host, tmp_path):
        orders = []
        for seed in (1, 1, 2):
            output = tmp_path / f"runs-{len(orders)}.csv"
            done = measure(
                *("--sysfs", host.sysfs, "--freq", "1.5GHz,1.8GHz,2.2GHz", "--repeats", 2),
                *("--seed", seed, "-o", output, *QUICK, "--", "true"),
            )
            assert done.returncode == 0, done.stderr
            runs = pd.read_csv(output)
            orders.append(list(zip(runs["freq_hz"], runs["repeat"], strict=True)))
        assert orders[0] == orders[1]
        assert orders[0] != orders[2]
        assert (
            sorted(orders[0])
            == sorted(orders[2])
            == [(f, r) for f in (1.5e9, 1.8e9, 2.2e9) for r in (0, 1)]
        )

    def test_turbo_is_set_and_put_back(self, measure, host):
        boost = host.kernel.cpu / "cpufreq" / "boost"
        assert boost.read_text().strip() == "1"
        seen = f"cat {boost} > {host.root}/seen"
        done = measure(
            *("--sysfs", host.sysfs, "--freq", "1.8GHz", "--turbo", "off", "--repeats", 1),
            *("-o", "runs.csv", *QUICK, "--", "sh", "-c", seen),
        )
        assert done.returncode == 0, done.stderr
        assert (host.root / "seen").read_text().strip() == "0"
        assert boost.read_text().strip() == "1"

    def test_a_dry_run_says_what_it_would_write_and_writes_nothing(self, measure, host, tmp_path):
        before = host.kernel.state()
        done = measure(
            *("--sysfs", host.sysfs, "--freq", "1.5GHz,1.8GHz", "--repeats", 1, "--dry-run"),
            *("--", "false"),
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert [line for line in lines if line.startswith("run ")]
        assert any("scaling_max_freq" in line and "1800000" in line for line in lines)
        assert host.kernel.state() == before
        assert host.kernel.writes() == []
        assert not list(tmp_path.glob("*.samples"))

    def test_a_clock_that_cannot_be_fixed_is_refused_before_any_run(self, measure, host):
        done = measure(
            *("--sysfs", host.sysfs, "--freq", "1.5GHz,1.7GHz", "-o", "runs.csv", *QUICK),
            *("--", *host.workload()),
        )
        refused(done, "1.7 GHz")
        assert host.finished() == 0

    def test_replayed_from_raw_readings_the_table_is_the_same(self, measure, host, tmp_path):
        done = measure(
            *("--sysfs", host.sysfs, "--freq", "1.5GHz,2.2GHz", "--repeats", 2, *QUICK[:-2]),
            *("--metric", "time,power", "-o", "runs.csv", "--", *host.workload()),
        )
        assert done.returncode == 0, done.stderr
        again = measure("--replay", "runs.samples", "-o", "again.csv")
        assert again.returncode == 0, again.stderr
        assert again.stdout == done.stdout
        first, second = ((tmp_path / name).read_text() for name in ("runs.csv", "again.csv"))
        assert first == second
        # Without a file it is summed up; as text it can be passed on.
        assert measure("--replay", "runs.samples").stdout == done.stdout
        assert measure("--replay", "runs.samples", "-o", "-").stdout == first

    def test_a_command_that_fails_ends_the_sweep_and_can_be_gone_on_with(
        self, measure, host, tmp_path
    ):
        flag = tmp_path / "fixed"
        command = ["sh", "-c", f"echo trouble; test -e {flag} || exit 7"]
        asked = ["--sysfs", host.sysfs, "--freq", "1.8GHz", "--repeats", 2, "-o", "runs.csv"]
        failed = measure(*asked, *QUICK, "--", *command)
        refused(failed, "sh ended with exit code 7", "--resume")
        output = next((tmp_path / "runs.samples" / "output").iterdir())
        assert output.read_text() == "trouble\n"
        refused(measure("--replay", "runs.samples"), "no run that went well is in there")
        flag.touch()
        done = measure(*asked, *QUICK, "--resume", "--", *command)
        assert done.returncode == 0, done.stderr
        assert len(pd.read_csv(tmp_path / "runs.csv")) == 2

    def test_another_sweep_is_not_gone_on_with(self, measure, host):
        asked = ["--sysfs", host.sysfs, "--freq", "1.8GHz", "--repeats", 1, *QUICK]
        assert measure(*asked, "-o", "runs.csv", "--", "true").returncode == 0
        refused(measure(*asked, "-o", "runs.csv", "--", "true"), "is there already", "--resume")
        other = measure(*asked, "-o", "runs.csv", "--resume", "--", "echo", "1")
        refused(other, "command was true and is echo 1 now")

    def test_nor_with_other_power_sources_than_it_began_with(self, measure, host, tmp_path):
        asked = ["--sysfs", host.sysfs, "--freq", "1.8GHz", "--repeats", 1, *QUICK]
        assert measure(*asked, "-o", "runs.csv", "--", "true").returncode == 0
        plan = tmp_path / "runs.samples" / "plan.json"
        plan.write_text(json.dumps(json.loads(plan.read_text()) | {"channels": []}))
        refused(measure("--resume", "-o", "runs.csv"), "measured with other power sources")

    def test_a_resumed_sweep_needs_nothing_but_its_table(self, measure, host, tmp_path):
        asked = ["--sysfs", host.sysfs, "--freq", "1.8GHz", "--repeats", 3, *QUICK]
        assert measure(*asked, "-o", "runs.csv", "--", "true").returncode == 0
        (tmp_path / "runs.csv").unlink()
        done = measure("--resume", "-o", "runs.csv")
        assert done.returncode == 0, done.stderr
        assert len(pd.read_csv(tmp_path / "runs.csv")) == 3

    def test_cores_are_swept_by_affinity(self, measure, tmp_path):
        seen = tmp_path / "seen"
        done = measure(
            *("--as-found", "--power", "none", "--cores", "1,2", "--repeats", 1, *QUICK),
            *("-o", "runs.csv", "--", "sh", "-c", f"nproc >> {seen}"),
        )
        assert done.returncode == 0, done.stderr
        assert sorted(seen.read_text().split()) == ["1", "2"]
        assert sorted(pd.read_csv(tmp_path / "runs.csv")["cores"]) == [1, 2]
        refused(
            measure("--as-found", "--cores", "4096", *QUICK, "-o", "b.csv", "--", "true"), "4096"
        )

    def test_sigint_keeps_what_was_measured_and_puts_all_back(self, host, tmp_path):
        before = host.kernel.state()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ppw", "measure", "--sysfs", str(host.sysfs)),
                *("--freq", "1.5GHz,1.8GHz", "--repeats", "50", "-o", "runs.csv", *QUICK),
                *("--", *host.workload()),
            ],
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.PIPE,
        )
        with process:
            wait_for(lambda: host.finished() >= 3)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert b"Traceback" not in process.stderr.read()
        assert host.kernel.state() == before
        assert len(pd.read_csv(tmp_path / "runs.csv")) >= 2

    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
    def test_ended_from_outside_it_ends_the_command_and_puts_all_back(self, how, host, tmp_path):
        before, pid = host.kernel.state(), tmp_path / "pid"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ppw", "measure", "--sysfs", str(host.sysfs)),
                *("--freq", "1.5GHz,1.8GHz", "-o", "runs.csv", *QUICK),
                *("--", "sh", "-c", f"(setsid sleep 300 & echo $! > {pid}); sleep 300"),
            ],
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.PIPE,
        )
        with process:
            wait_for(lambda: pid.exists() and pid.read_text().strip())
            process.send_signal(how)
            assert process.wait(30) == -how
            assert b"Traceback" not in process.stderr.read()
        left = int(pid.read_text())
        wait_for(lambda: not runs(left))
        wait_for(lambda: host.kernel.state() == before)


def runs(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_for(condition, seconds=30.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.01)


# Imports once and forks at each line of its input, so that a kill costs no start of Python.
ZYGOTE = """
import os, sys, pandas, pyarrow.parquet
import measurements.run_rows, ppw.measuring, ppw.cli, ppw.cli.measure
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


class TestKilled:
    @pytest.mark.parametrize("kills", [25, pytest.param(100, marks=pytest.mark.slow)])
    def test_at_any_moment_no_run_is_lost_and_the_host_is_as_it_was(self, tmp_path, kills):
        """Kill with SIGKILL at random moments of a sweep that goes on each time."""
        rng = random.Random(20120101)
        laws = Laws(t_fixed=0.01, work=0.02e9)
        with SyntheticHost(tmp_path / "host", laws=laws, spec=zen()) as host:
            before = host.kernel.state()
            output = tmp_path / "runs.parquet"
            arguments = ["measure", "--sysfs", str(host.sysfs), "--freq", "1.5GHz,1.8GHz,2.2GHz"]
            arguments += ["--repeats", "2000", "-o", str(output), *AT_ONCE]
            command = ["--", *host.workload()]
            zygote = subprocess.Popen(
                [sys.executable, "-c", ZYGOTE],
                cwd=tmp_path,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            with zygote:
                rows = 0
                for kill in range(kills):
                    resume = ["--resume"] if (tmp_path / "runs.samples/plan.json").exists() else []
                    zygote.stdin.write(repr([*arguments, *resume, *command]) + "\n")
                    zygote.stdin.flush()
                    pid = int(zygote.stdout.readline())
                    time.sleep(rng.uniform(0.0, 1.2))
                    os.kill(pid, signal.SIGKILL)
                    assert zygote.stdout.readline() == "ended\n"
                    wait_for(lambda: host.kernel.state() == before, 10)
                    # The command in hand is ended: nobody measures it.
                    wait_for(lambda: not host.busy(), 10)
                    if output.exists():
                        table = pd.read_parquet(output)
                        assert len(table) >= rows, f"kill {kill}"
                        rows = len(table)
                        keys = table[["freq_hz", "repeat"]]
                        assert not keys.duplicated().any()
                    # Each kill costs the run in hand at most.
                    assert rows >= host.finished() - (kill + 1)
                zygote.stdin.close()
            # On a busy machine few runs fit between two kills.
            assert rows > kills / 10, (tmp_path / "log.txt").read_text()
            last = pd.read_parquet(output)
            assert last["time_s"].gt(0).all()
        log = (tmp_path / "log.txt").read_text()
        assert "Traceback" not in log
        assert "error" not in log


class TestHere:
    """A machine like this one has no RAPL, no counters and no cpufreq."""

    def test_time_alone_as_found(self, measure, tmp_path):
        done = measure("--as-found", "--repeats", 2, *QUICK, "-o", "runs.csv", "--", "sleep", "0.1")
        assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv")
        assert len(runs) == 2
        assert runs["time_s"].min() >= 0.1
        assert "power_w" not in runs
        assert "instructions" not in runs
        assert "not measured here: cpi: " in done.stderr
        assert "not measured here: power: " in done.stderr
        assert "sleep" in done.stdout

    def test_what_cannot_be_measured_is_refused_unless_left_out(self, measure):
        done = measure("--as-found", "-o", "runs.csv", "--", "true")
        refused(done, "cpi cannot be measured here", "--metric time,power")

    def test_clocks_cannot_be_set_here(self, measure):
        done = measure("--freq", "1.2GHz", *QUICK, "-o", "runs.csv", "--", "true")
        refused(done, "--as-found")

    def test_a_clock_may_be_stated(self, measure, tmp_path):
        done = measure(
            *("--as-found", "--clock", "1.66GHz", "--family", "Atom D", "--repeats", 1, *QUICK),
            *("-o", "runs.jsonl", "--", "true"),
        )
        assert done.returncode == 0, done.stderr
        row = json.loads((tmp_path / "runs.jsonl").read_text())
        assert (row["freq_hz"], row["freq_source"], row["family"]) == (1.66e9, "stated", "Atom D")

    def test_memory_is_probed_first_and_what_it_lacks_is_said(self, measure, tmp_path):
        bare = tmp_path / "bin"
        bare.mkdir()
        for program in ("nice", "true"):
            (bare / program).symlink_to(shutil.which(program))
        done = measure(
            *("--as-found", "--probe-memory", "--repeats", 2, *QUICK, "-o", "runs.csv"),
            *("--", "true"),
            PATH=str(bare),
        )
        assert done.returncode == 0, done.stderr
        assert "memory latency is missing, bandwidth is numpy's: " in done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv")
        # One probe, for all runs.
        assert len(set(runs["memory_bandwidth_bytes_s"])) == 1
        assert runs["memory_bandwidth_bytes_s"].min() > 1e8
        assert runs["memory_latency_s"].isna().all()

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--as-found", "-o", "runs.csv"], "no COMMAND"),
            (["-o", "runs.csv", "--", "true"], "say which clocks"),
            (["--as-found", "--freq", "1GHz", "-o", "a.csv", "--", "true"], "give one"),
            (["--as-found", "--", "true"], "no -o FILE"),
            (["--as-found", "-o", "-", "--", "true"], "written anew after every run"),
            (["--freq", "1GHz", "--clock", "2GHz", "--", "true"], "with --freq it is set"),
        ],
    )
    def test_wrong_usage(self, measure, arguments, said):
        refused(measure(*arguments), said, code=2)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--power", "raple", "--metric", "time"], "no power source is called 'raple'"),
            (["--power", "rapl", "--metric", "time,power"], "powercap"),
            (["--power", "none", "--metric", "time,power"], "leave it out of --metric"),
        ],
    )
    def test_sources_that_cannot_be_had(self, measure, arguments, said):
        done = measure("--as-found", *BRIEF, *arguments, "-o", "runs.csv", "--", "true")
        refused(done, said)

    def test_outputs_that_cannot_be_written(self, measure, tmp_path):
        ran = tmp_path / "ran"
        command = ["--as-found", *QUICK, "--", "touch", ran]
        refused(measure("-o", "/proc/runs.csv", *command), "/proc/runs.csv: cannot be written")
        full = tmp_path / "full"
        full.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", full], check=True)
        try:
            refused(measure("-o", full / "runs.csv", *command), str(full))
        finally:
            subprocess.run(["umount", full], check=True)
        assert not ran.exists()

    def test_a_command_that_is_not_there(self, measure):
        done = measure("--as-found", *QUICK, "-o", "runs.csv", "--", "no-such-command")
        refused(done, "no-such-command: cannot be started", "after --")
