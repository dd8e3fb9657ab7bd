"""`ppw measure --ssh`, over OpenSSH to a ppw on the other side of the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from peers.ssh_host import SshHost
from peers.synthetic_host import SyntheticHost

ROOT = Path(__file__).resolve().parents[2]
QUICK = ["--settle", "0.05s", "--warm-ups", "0", "--idle", "0", "--metric", "time"]


@pytest.fixture
def elsewhere(tmp_path):
    with SshHost(tmp_path / "ssh", ROOT) as host:
        yield host


@pytest.fixture
def synthetic(tmp_path):
    with SyntheticHost(tmp_path / "host") as host:
        yield host


def started(elsewhere, tmp_path, *arguments):
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "ppw", "measure", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": elsewhere.path},
    )


def run(elsewhere, tmp_path, *arguments):
    with started(elsewhere, tmp_path, *arguments) as process:
        output, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess([], process.returncode, output, errors)


def test_the_table_and_the_raw_readings_come_here(elsewhere, synthetic, tmp_path):
    done = run(
        *(elsewhere, tmp_path, "--ssh", "elsewhere", "--sysfs", synthetic.sysfs),
        *("--freq", "1.5GHz,2.2GHz", "--repeats", 2, *QUICK, "-o", "runs.parquet", "--"),
        *synthetic.workload(),
    )
    assert done.returncode == 0, done.stderr
    runs = pd.read_parquet(tmp_path / "runs.parquet")
    assert len(runs) == 4
    assert runs["power_w"].notna().all()
    samples = list((tmp_path / "runs.samples" / "samples").iterdir())
    assert len(samples) == 4
    # What was there is here, and so no longer there.
    assert not list(elsewhere.cache.glob("*"))
    assert "not measured here: cpi" in done.stderr


def test_a_command_with_spaces_arrives_as_it_is(elsewhere, tmp_path):
    seen = tmp_path / "seen"
    script = f"printf '%s|' \"$@\" > {seen}"
    done = run(
        *(elsewhere, tmp_path, "--ssh", "elsewhere", "--as-found", "--repeats", 1, *QUICK),
        *("-o", "runs.csv", "--", "sh", "-c", script, "sh", "a b", "$HOME"),
    )
    assert done.returncode == 0, done.stderr
    assert seen.read_text() == "a b|$HOME|"


def test_an_interrupt_here_ends_it_there_and_it_can_go_on(elsewhere, synthetic, tmp_path):
    before = synthetic.kernel.state()
    asked = [
        *("--ssh", "elsewhere", "--sysfs", synthetic.sysfs, "--freq", "1.5GHz", "--repeats", 8),
        *(*QUICK, "-o", "runs.csv"),
    ]
    with started(elsewhere, tmp_path, *asked, "--", *synthetic.workload()) as process:
        until = time.monotonic() + 30
        while synthetic.finished() < 3 and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 130
    until = time.monotonic() + 20
    while synthetic.kernel.state() != before and time.monotonic() < until:
        time.sleep(0.05)
    assert synthetic.kernel.state() == before
    finished = synthetic.finished()
    assert finished < 8
    # What is to be measured stands there in the sweep's plan.
    again = ("--ssh=elsewhere", "--resume", "--output=runs.csv")
    done = run(elsewhere, tmp_path, *again)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "runs.csv")) == 8
    assert synthetic.finished() <= 9


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda host: (host.folder / "user_key").unlink(), "ssh elsewhere: no connection"),
        (lambda host: (host.there / "ppw").unlink(), "elsewhere has no ppw"),
    ],
    ids=["no connection", "no ppw"],
)
def test_what_stands_in_the_way_is_said(elsewhere, tmp_path, break_it, said):
    break_it(elsewhere)
    done = run(
        *(elsewhere, tmp_path, "--ssh", "elsewhere", "--as-found", *QUICK, "-o", "runs.csv"),
        *("--", "true"),
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_other_ppw_refuses_is_refused_here(elsewhere, tmp_path):
    done = run(
        *(elsewhere, tmp_path, "--ssh", "elsewhere", "--freq", "1GHz", *QUICK, "-o", "runs.csv"),
        *("--", "true"),
    )
    assert done.returncode == 1
    assert "no frequency control" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_greeting_of_the_other_hosts_shell_is_no_run(elsewhere, tmp_path):
    program = elsewhere.there / "ppw"
    program.write_text(program.read_text().replace("\n", "\necho Welcome to elsewhere\n", 1))
    done = run(
        *(elsewhere, tmp_path, "--ssh", "elsewhere", "--as-found", "--repeats", 1, *QUICK),
        *("-o", "runs.csv", "--", "true"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "Welcome to elsewhere"
    assert len(pd.read_csv(tmp_path / "runs.csv")) == 1


def test_raw_readings_that_cannot_be_fetched_stay_there(elsewhere, tmp_path):
    tar = elsewhere.there / "tar"
    tar.write_text("#!/bin/sh\nexit 2\n")
    tar.chmod(0o755)
    done = run(
        *(elsewhere, tmp_path, "--ssh", "elsewhere", "--as-found", "--repeats", 1, *QUICK),
        *("-o", "runs.csv", "--", "true"),
    )
    assert done.returncode == 1
    said = "ppw: error: elsewhere: the raw readings could not be fetched: "
    assert done.stderr.splitlines()[-1].startswith(said)
    assert len(pd.read_csv(tmp_path / "runs.csv")) == 1
    assert list(elsewhere.cache.glob("*/runs.samples/plan.json"))


@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_the_table_needs_a_file_here(tmp_path, output):
    done = subprocess.run(
        [sys.executable, "-m", "ppw", "measure", "--ssh", "elsewhere", *output, "--", "true"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("ppw: error: --ssh needs -o FILE")
