"""The reaper: nothing that was started or made is left, whatever happens to who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from measurements.errors import MeasurementError
from measurements.workloads.reaper import Reaper

ROOT = Path(__file__).resolve().parents[2]

# Starts two generations of processes and a folder, says which, and waits.
OWNER = """
import subprocess, sys, time
from measurements.workloads.reaper import Reaper
reaper = Reaper()
folder = reaper.folder()
(folder / "data").write_text("x")
child = subprocess.Popen(
    ["sh", "-c", "sleep 1000 & echo $!; exec sleep 1000"],
    env=reaper.environment(), stdout=subprocess.PIPE, text=True, start_new_session=True,
)
print(child.pid, child.stdout.readline().strip(), folder, flush=True)
if sys.argv[1] == "raise":
    input()
    raise SystemExit(3)
time.sleep(1000)
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds=15.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.02)


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "SIGINT", "raise"])
def test_whatever_ends_the_owner_its_processes_end_and_its_folders_go(end):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, end],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with owner:
        child, grandchild, folder = owner.stdout.readline().split()
        assert alive(int(grandchild))
        assert (Path(folder) / "data").exists()
        if end == "raise":
            owner.stdin.write("\n")
            owner.stdin.flush()
        else:
            owner.send_signal(getattr(signal, end))
        owner.wait(10)
    wait_for(lambda: not (alive(int(child)) or alive(int(grandchild)) or Path(folder).exists()))


def test_closed_it_has_ended_all_and_does_nothing_twice(tmp_path):
    with Reaper() as reaper:
        folder = reaper.folder(tmp_path)
        process = subprocess.Popen(["sleep", "1000"], env=reaper.environment())
        other = subprocess.Popen(["sleep", "1000"])
        try:
            reaper.close()
            assert process.wait(5) == -signal.SIGKILL
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()
        assert not folder.exists()
        reaper.close()


def test_killed_itself_what_it_would_have_done_is_done_by_its_owner(tmp_path):
    reaper = Reaper()
    folder = reaper.folder(tmp_path)
    process = subprocess.Popen(["sleep", "1000"], env=reaper.environment())
    reaper._companion.process.kill()
    reaper._companion.process.wait()
    with pytest.raises(MeasurementError, match="process that cleans up is lost"):
        reaper.folder(tmp_path)
    reaper.close()
    assert process.wait(5) == -signal.SIGKILL
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_names_where(tmp_path):
    with (
        Reaper() as reaper,
        pytest.raises(MeasurementError, match="none: no folder can be made in it: No such file"),
    ):
        reaper.folder(tmp_path / "none")


def test_two_reapers_leave_each_other_alone():
    with Reaper() as one, Reaper() as other:
        process = subprocess.Popen(["sleep", "1000"], env=other.environment())
        one.close()
        assert process.poll() is None
        other.close()
        assert process.wait(5) == -signal.SIGKILL
