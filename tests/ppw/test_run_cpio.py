"""`ppw run cpio`: real studies on a disk and in memory, their answers, and nothing left of them."""

from __future__ import annotations

import os
import signal
import warnings
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from processes import ppw_process, refused
from test_run import Watched, wait_for

import ppw

QUICK = ["--power", "none", "--idle", "0", "--repeats", "1"]
WORKQUEUE = Path("/sys/devices/virtual/workqueue/cpumask")
NEEDS_TWO = pytest.mark.skipif(os.cpu_count() < 2, reason="scaling needs two cores")


@pytest.fixture
def disk():
    """A folder on the disk of this checkout: that of temporary files may be in memory."""
    folder = Path.cwd() / f".ppw-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
    folder.rmdir()


@pytest.fixture
def ask(tmp_path):
    """Run ppw in an empty folder."""
    return partial(ppw_process, cwd=tmp_path, timeout=500)


def leftovers():
    """Mounts, loop devices and control groups of a study."""
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if "/ppw-" in line]
    loops = Path("/sys/block").glob("loop*/loop/backing_file")
    files = [path.read_text() for path in loops]
    groups = [*Path("/sys/fs/cgroup").glob("ppw-*"), *Path("/sys/fs/cgroup").glob("*/ppw-*")]
    return [*mounts, *(f for f in files if "/ppw-" in f), *groups]


def agree(runs):
    """Check that the accounts of CPU time of each run agree with each other."""
    assert set(runs["cpu_accounting"]) == {"scheduler"}
    # What a kernel's account of a group of processes may be off from that of each of them.
    long = runs[runs["rusage_s"] > 0.2]
    assert len(long) > len(runs) / 2
    assert long["group_s"].to_numpy() == pytest.approx(long["rusage_s"].to_numpy(), rel=0.02)
    # All tasks of the host: those of the run, and others.
    known = runs["processes_s"] + runs["kernel_threads_s"]
    assert (runs["scheduled_s"] + 0.01 >= 0.98 * known).all()
    total = known + runs["other_programs_s"]
    assert total.to_numpy() == pytest.approx(runs["scheduled_s"].to_numpy(), abs=0.01, rel=0.02)


def study_is_sound(ask, folder, done, patterns):
    assert done.returncode == 0, done.stderr
    assert "control group and rusage of the programs agree within" in done.stderr
    assert "of the scheduler's CPU time" in done.stderr
    runs = ppw.read_runs(folder / "study.csv")
    cells = {(r.workload, r.device_kind, r.cores) for r in runs.itertuples()}
    assert cells == {(p, d, n) for p in patterns for d in ("disk", "memory") for n in (1, 2)}
    agree(runs)
    assert runs["direct"].all()
    assert set(runs["scope"]) == {"own"}
    assert (runs["intervals"] == 8).all()
    # The kernel counted in 512 bytes what fio counted in requests, over windows of their own.
    ios = (runs["sectors_read"] + runs["sectors_written"]) / runs["time_s"]
    assert (ios * 512 / runs["bandwidth_bytes_s"]).between(0.5, 2.0).all()
    reads = runs["pattern"].str.contains("read")
    assert runs.loc[reads, "sectors_read"].gt(runs.loc[reads, "sectors_written"]).all()
    assert runs.loc[~reads, "sectors_written"].gt(runs.loc[~reads, "sectors_read"]).all()
    # All CPU time is that of the cores used, so that the I/O rate follows from its parts.
    parts = ["user_s", "nice_s", "system_s", "irq_s", "softirq_s", "steal_s", "idle_s", "iowait_s"]
    cpus = runs[parts].sum(axis=1) / runs["time_s"]
    assert (cpus >= 0.9 * runs["cores"]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ppw.CaveatWarning)
        found = ppw.cycles_per_io(runs)
    assert found.points["cpio"].between(10, 1e6).all()
    assert len(found.devices) == 2 * len(patterns)
    for arguments in (
        ("cpio", "study.csv"),
        ("cpio", "project", "study.csv", "--cores", "16"),
        ("cpio", "compare", "study.csv", "--roof", "study.csv"),
    ):
        answer = ask(*arguments)
        assert answer.returncode == 0, answer.stderr
        assert all(pattern in answer.stdout for pattern in patterns)
    assert leftovers() == []


@NEEDS_TWO
def test_fio_on_one_and_two_cores_on_disk_and_in_memory(ask, tmp_path, disk):
    mask = WORKQUEUE.read_text()
    done = ask(
        *("run", "cpio", "--folder", disk, "--size", "32MiB", "--cores", "1,2", "--depth", "8"),
        *("--pattern", "randread,write:128KiB", "--without-device", "--confine-kernel"),
        *("--scope", "own", "--window", "0.5s", *QUICK, "-o", "study.csv"),
    )
    study_is_sound(ask, tmp_path, done, ["fio randread 4 KiB", "fio write 128 KiB"])
    assert WORKQUEUE.read_text() == mask


@pytest.mark.slow
@pytest.mark.timeout(7200)
@NEEDS_TWO
def test_the_whole_study(ask, tmp_path, disk):
    done = ask(
        *("run", "cpio", "--folder", disk, "--size", "256MiB", "--cores", "1,2"),
        *("--without-device", "--confine-kernel", "--scope", "own", "--window", "1s"),
        *("--power", "none", "--idle", "0", "--repeats", "2", "-o", "study.csv"),
    )
    patterns = ("randread 4 KiB", "randwrite 4 KiB", "read 128 KiB", "write 128 KiB")
    study_is_sound(ask, tmp_path, done, [f"fio {pattern}" for pattern in patterns])


def test_a_command_is_counted_to_the_sector(ask, tmp_path, disk):
    """40 MiB that are read, once each instance; of the loop device nobody else reads."""
    done = ask(
        *("run", "cpio", "--folder", disk, "--size", "128MiB", "--cores", "1"),
        *("--instances", "1,2", "--without-device", "--workload", "cat", *QUICK, "-o", "runs.csv"),
        *("--prepare", "head -c 41943040 /dev/urandom > in", "--"),
        *("sh", "-c", "cat {folder}/in > /dev/null; cat {folder}/in | wc -c"),
    )
    assert done.returncode == 0, done.stderr
    runs = ppw.read_runs(tmp_path / "runs.csv").set_index(["device_kind", "instances"])
    assert set(runs["workload"]) == {"cat"}
    for instances in (1, 2):
        memory = runs.loc[("memory", instances)]
        # Each is read once more from the page cache, which no sector tells.
        assert memory["sectors_read"] == pytest.approx(instances * 81920, abs=128)
        assert runs.loc[("disk", instances)]["sectors_read"] >= instances * 81920
    outputs = (tmp_path / "runs.samples" / "output").iterdir()
    assert {path.read_text() for path in outputs} == {"41943040\n"}
    assert leftovers() == []


def test_a_run_without_io_is_named_and_never_divided_by(ask, tmp_path, disk):
    done = ask(
        *("run", "cpio", "--folder", disk, "--cores", "1", "--without-device", *QUICK),
        *("--size", "16MiB", "--clock", "2GHz", "-o", "runs.csv", "--", "sleep", "1.2"),
    )
    assert done.returncode == 0, done.stderr
    runs = ppw.read_runs(tmp_path / "runs.csv")
    quiet = runs[runs["device_kind"] == "memory"].iloc[0]
    assert (quiet["sectors_read"], quiet["sectors_written"]) == (0, 0)
    assert quiet["intervals_without_io"] == quiet["intervals"] == 3
    assert "no sector was read or written: there are no cycles per I/O" in done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ppw.CaveatWarning)
        both = pd.concat([runs, runs.assign(sectors_read=8.0)])
        points = ppw.cycles_per_io(both, by=["device_kind"]).points
    assert "no I/O" in points.set_index("device_kind").loc["memory", "why_not"]
    assert "inf" not in done.stdout


def test_in_a_container_the_counters_are_said_to_be_the_hosts(ask, tmp_path, disk):
    made = ["unshare", "--pid", "--cgroup", "--mount-proc", "--fork"]
    done = ask(
        *("run", "cpio", "--folder", disk, "--cores", "1", *QUICK, "-o", "runs.csv", "--"),
        *("dd", "if=/dev/zero", "of={folder}/out", "bs=1M", "count=16", "status=none"),
        before=made,
    )
    assert done.returncode == 0, done.stderr
    assert "ppw: this is a container" in done.stderr
    runs = ppw.read_runs(tmp_path / "runs.csv")
    assert runs["io_notes"].str.contains("this is a container").all()
    # What it wrote was on the device before the window closed.
    assert runs["sectors_written"].ge(32768).all()


@NEEDS_TWO
def test_memory_bandwidth_is_taken(ask, tmp_path, disk):
    asked = (
        *("run", "cpio", "--folder", disk, "--size", "16MiB", "--cores", "1", "--power", "none"),
        *("--pattern", "randread", "--take-bandwidth", "50%", "--window", "0.5s"),
        *("--idle", "0", "--repeats", "2", "-o", "runs.csv"),
    )
    done = ask(*asked)
    assert done.returncode == 0, done.stderr
    runs = ppw.read_runs(tmp_path / "runs.csv")
    assert list(runs["bandwidth_taken"]) == [0.5, 0.5]
    first, second = runs["bandwidth_per_core_bytes_s"]
    assert first == second > 1e8
    assert runs["bandwidth_taken_bytes_s"].gt(1e8).all()
    # Going on, a level keeps the figure by which its runs are told.
    records = tmp_path / "runs.samples" / "runs.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text(lines[0])
    again = ask(*asked, "--resume")
    assert again.returncode == 0, again.stderr
    more = ppw.read_runs(tmp_path / "runs.csv")
    assert list(more["bandwidth_per_core_bytes_s"]) == list(runs["bandwidth_per_core_bytes_s"])
    assert len(records.read_text().splitlines()) == 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_nothing_is_left_running_mounted_or_attached(tmp_path, disk, how):
    mask = WORKQUEUE.read_text()
    watched = Watched(
        tmp_path,
        *("cpio", "--folder", disk, "--size", "16MiB", "--cores", "1", "--window", "20s"),
        *("--without-device", "--confine-kernel", *QUICK, "-o", tmp_path / "runs.csv"),
    )
    with watched.process as process:
        watched.wait_until_it_runs("fio")
        assert leftovers()
        process.send_signal(how)
        code = process.wait(30)
        assert code == {signal.SIGINT: 130}.get(how, -how)
        wait_for(watched.all_gone, 15)
    wait_for(lambda: leftovers() == [] and list(disk.iterdir()) == [], 15)
    wait_for(lambda: WORKQUEUE.read_text() == mask, 15)


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["--folder", "/nowhere"], "/nowhere: is no folder", 1),
        (["--folder", "/", "--cores", "4096"], "4096 physical cores are not to be had", 1),
        (["--folder", "/", "--pattern", "trim"], "pattern 'trim': there are randread", 1),
        (["--folder", "/", "--cores", "x"], "is not whole numbers of at least 1", 2),
        (["--folder", "/", "--take-bandwidth", "much"], "is not a share", 2),
        (["--folder", "/", "--size", "1MiB", "--", "no-such-program"], "not found", 1),
        (["--folder", "/", "--size", "1MiB", "--prepare", "false", "--", "true"], "--prepare", 1),
    ],
)
def test_wrong_usage(ask, tmp_path, arguments, said, code):
    refused(ask("run", "cpio", "--power", "none", "-o", "runs.csv", *arguments), said, code=code)
    assert not (tmp_path / "runs.csv").exists()


def test_all_cores_leave_none_to_take_bandwidth_from(ask):
    most = str(os.cpu_count())
    done = ask(
        *("run", "cpio", "--folder", "/", "--size", "1MiB", "--power", "none", "-o", "runs.csv"),
        *("--cores", most, "--take-bandwidth", "50%"),
    )
    refused(done, "memory bandwidth is taken from cores beside the workload's")
