"""Memory traffic of a run: a stand-in perf counts made-up controllers, since none are here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from measurements.memory_traffic import MemoryTraffic

ROOT = Path(__file__).resolve().parents[2]

# Counts 300 MiB read and 100 MiB written by each of two controllers a second.
PERF = """#!{python} -IS
import json, os, subprocess, sys, time
arguments = sys.argv[1:]
if arguments[:2] == ["stat", "-h"]:
    print("Usage: perf stat [<options>]\\n -j, --json-output  print counts in JSON format")
    sys.exit(129)
into = arguments[arguments.index("-o") + 1]
start = time.monotonic()
done = subprocess.run(arguments[arguments.index("--") + 1:])
seconds = time.monotonic() - start
with open(into, "w") as file:
    for event in arguments[arguments.index("-e") + 1].split(","):
        value = (300 if "read" in event else 100) * seconds
        lost = "{lost}" and "{lost}" in event
        record = {{"counter-value": "<not counted>" if lost else "%f" % value, "unit": "MiB"}}
        record |= {{"event": event, "event-runtime": 10**9, "pcnt-running": 100.0}}
        file.write(json.dumps(record) + "\\n")
sys.exit(done.returncode)
"""


def controllers(sysfs, count=2):
    for number in range(count):
        events = sysfs / f"bus/event_source/devices/uncore_imc_{number}/events"
        events.mkdir(parents=True)
        for direction in ("read", "write"):
            (events / f"cas_count_{direction}").write_text("event=0x04\n")
            (events / f"cas_count_{direction}.scale").write_text("6.103515625e-5\n")
            (events / f"cas_count_{direction}.unit").write_text("MiB\n")


@pytest.fixture
def perf(tmp_path, monkeypatch):
    def make(lost=""):
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / "perf"
        program.write_text(PERF.format(python=sys.executable, lost=lost))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return make


def test_bytes_a_second_of_all_controllers(perf, tmp_path):
    perf()
    controllers(tmp_path)
    traffic = MemoryTraffic.find(tmp_path, Path("/proc"))
    assert traffic is not None
    assert len(traffic.events) == 4
    for run in range(2):
        traffic.start(tmp_path / f"{run}.txt")
        time.sleep(0.5)
        moved = traffic.stop()
        # perf starts while the clock already runs.
        assert moved["memory_read_bytes_s"] == pytest.approx(2 * 300 * 2**20, rel=0.2)
        assert moved["memory_write_bytes_s"] == pytest.approx(2 * 100 * 2**20, rel=0.2)
    assert traffic.stop() == {}


def test_a_direction_that_one_controller_did_not_count_is_missing(perf, tmp_path):
    perf(lost="imc_1/cas_count_write")
    controllers(tmp_path)
    traffic = MemoryTraffic.find(tmp_path, Path("/proc"))
    traffic.start(tmp_path / "counts.txt")
    time.sleep(0.3)
    assert set(traffic.stop()) == {"memory_read_bytes_s"}


def test_here_there_are_none():
    assert MemoryTraffic.find(Path("/sys"), Path("/proc")) is None


def test_it_ends_with_whoever_started_it(perf, tmp_path):
    perf()
    controllers(tmp_path)
    script = (
        "import sys, time; from pathlib import Path\n"
        "from measurements.memory_traffic import MemoryTraffic\n"
        f"traffic = MemoryTraffic.find(Path({str(tmp_path)!r}), Path('/proc'))\n"
        f"traffic.start(Path({str(tmp_path / 'counts.txt')!r}))\n"
        "print(traffic._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as parent:
        pid = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while running(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not running(pid)


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
