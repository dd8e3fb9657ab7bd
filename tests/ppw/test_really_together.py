"""Pairs of programs recorded alone and really together: first bottleneck and demand as predicted.

What is expected was written down before the pairs first ran together. CPU time and disk traffic of
a recording are those of its own programs, as the kernel counts them for each process, so that what
else the machine does is in none of them.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import psutil
import pytest

from fitting.co_location import load_of
from measurements.timeseries import LiveSampler, TimeSeries
from ppw.errors import CaveatWarning
from ppw.provisioning.co_location import co_locate
from ppw.provisioning.resources import NAMES, capacities, capacity_for, demands

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(f"ignore::{CaveatWarning.__module__}.{CaveatWarning.__name__}"),
]

INTERVAL_S, INTERVALS, SETTLE_S = 0.25, 12, 1.5
TRIES = 6
# Differences of demand that are none.
NOTHING = {"CPU": 0.01, "disk bandwidth": 2e6, "disk I/Os": 10.0}
# Before all else that the machine does: a demand is steady only where it is met.
FIRST = ("nice", "-n", "-20")
FIO = ("fio", "--name=read", "--direct=1", "--thread", "--time_based", "--runtime=60", "--minimal")

# So much CPU time a second on each of some processes, however busy the machine is; 1 never sleeps.
BURNER = """
import multiprocessing, sys, time
def burn(share):
    start, spent = time.perf_counter(), time.process_time()
    while True:
        while share == 1 or time.process_time() - spent < share * (time.perf_counter() - start):
            pass
        time.sleep(0.01)
share, processes = float(sys.argv[1]), int(sys.argv[2])
for _ in range(processes - 1):
    multiprocessing.Process(target=burn, args=(share,), daemon=True).start()
burn(share)
"""
# Gets of one object, so many every 10 ms; 0 is as many as can be.
CLIENT = """
import socket, sys, time
server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
server.sendall(b"set k 0 0 1000\\r\\n" + b"x" * 1000 + b"\\r\\n"); server.recv(64)
each, due = int(sys.argv[2]), time.perf_counter()
while True:
    for _ in range(each or 100):
        server.sendall(b"get k\\r\\n"); left = 1000
        while left > 0: left -= len(server.recv(4096))
    due += 0.01
    if each: time.sleep(max(0.0, due - time.perf_counter()))
"""

# Random direct reads of 4 KiB, so many every 10 ms.
READER = """
import mmap, os, random, sys, time
file, each = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), int(sys.argv[2])
buffer, blocks, due = mmap.mmap(-1, 4096), os.fstat(file).st_size // 4096, time.perf_counter()
while True:
    for _ in range(each): os.preadv(file, [buffer], 4096 * random.randrange(blocks))
    due += 0.01
    time.sleep(max(0.0, due - time.perf_counter()))
"""


def python(script, *arguments):
    return [sys.executable, "-c", script, *map(str, arguments)]


def burner(share, processes=1):
    return [python(BURNER, share, processes)]


def random_reads(file, each):
    return [python(READER, file, each)]


def scan(file, rate=None):
    limit = [] if rate is None else [f"--rate={rate}"]
    deep = ("--ioengine=libaio", "--iodepth=8")
    return [[*FIO, *deep, f"--filename={file}", "--rw=read", "--bs=1M", *limit]]


def cache(each):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1"]
    return [server, python(CLIENT, port, each)]


class Running:
    """Programs that run, and what they and their children used."""

    def __init__(self, commands):
        self.processes = []
        for command in commands:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self.processes.append(subprocess.Popen([*FIRST, *command], **quiet))
            # A client needs its server.
            time.sleep(0.3)

    def used(self):
        """CPU seconds by the scheduler, bytes from disks, and reads."""
        found = np.zeros(3)
        for process in self.processes:
            assert process.poll() is None, process.args
            for one in (psutil.Process(process.pid), *self._children(process)):
                moved = one.io_counters()
                found += (_scheduled_s(one.pid), moved.read_bytes, moved.read_count)
        return found

    def end(self):
        for process in self.processes:
            for one in (*self._children(process), process):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        for process in self.processes:
            process.wait()

    def _children(self, process):
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(process.pid).children(recursive=True)
        return []


def _scheduled_s(process):
    found = 0.0
    for task in Path(f"/proc/{process}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            found += int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


def record(*workloads):
    """Record programs that run together."""
    running = Running([command for workload in workloads for command in workload])
    try:
        time.sleep(SETTLE_S)
        sampler, used, rows = LiveSampler(interval_s=INTERVAL_S), [running.used()], []
        for _ in range(INTERVALS):
            time.sleep(INTERVAL_S)
            rows.append(sampler.row())
            used.append(running.used())
    finally:
        running.end()
    cpu_s, read, reads = np.diff(np.array(used), axis=0).T
    nothing = ("nice_s", "system_s", "irq_s", "softirq_s", "steal_s", "sectors_written")
    # Reads of sockets move nothing from a disk; direct ones move 4 KiB or more.
    ios = np.minimum(reads, read / 4096)
    own = {"user_s": cpu_s, "sectors_read": read / 512, "ios": ios}
    frame = pd.DataFrame(rows).assign(**own, **dict.fromkeys(nothing, 0.0))
    frame = frame.drop(columns=["scheduled_s", "tick_busy_s"], errors="ignore")
    return TimeSeries(frame, "ppw", "live")


def record_steady(*workloads):
    """Record until both halves agree: what was held up at its start catches up with its rate."""
    for _ in range(TRIES):
        series = record(*workloads)
        asked = demands(series)[list(NOTHING)].to_numpy()
        first, second = asked.reshape(2, INTERVALS // 2, -1).mean(axis=1)
        if (abs(first - second) <= 0.1 * np.maximum(first, second) + [*NOTHING.values()]).all():
            return series
    pytest.fail("demand was never steady: is this machine overloaded?")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two files to read, on the disk that pytest's folder is on."""
    folder = tmp_path_factory.mktemp("disk")
    made = [folder / name for name in ("a", "b")]
    for file in made:
        command = [*FIO[:2], f"--filename={file}", "--rw=write", "--bs=1M", "--size=512M"]
        subprocess.run([*command, "--end_fsync=1", "--minimal"], check=True, capture_output=True)
    yield made
    for file in made:
        file.unlink()


@pytest.fixture(scope="module")
def disk(files):
    """What the disk can do: measured, by the same recorder."""
    few = record(scan(files[0]))
    small = ("--rw=randread", "--bs=4k", "--numjobs=4")
    many = record([[*FIO, f"--filename={files[0]}", *small]])
    asked = [
        demands(series)[name].max()
        for series, name in ((few, "disk bandwidth"), (many, "disk I/Os"))
    ]
    return {"disk_bandwidth_bytes_s": float(asked[0]), "disk_iops": float(asked[1])}


class Pair(NamedTuple):
    """Two workloads at a steady and at their full demand, and what is to break first."""

    steady: tuple
    full: tuple
    breaks: str
    compared: tuple


def pairs(a, b):
    return {
        "burner and random reads": Pair(
            (burner(0.15), random_reads(a, 5)),
            (burner(1, 2), random_reads(a, 20)),
            "CPU",
            ("CPU", "disk I/Os"),
        ),
        "scan and scan": Pair(
            (scan(a, "150m"), scan(b, "100m")),
            (scan(a), scan(b)),
            "disk bandwidth",
            ("disk bandwidth",),
        ),
        "cache and burner": Pair(
            (cache(5), burner(0.15)), (cache(0), burner(1, 2)), "CPU", ("CPU",)
        ),
    }


PAIRS = tuple(pairs("a", "b"))


@pytest.fixture(params=PAIRS)
def pair(request, files):
    return pairs(*files)[request.param]


def test_demand_together_is_within_a_tenth_of_the_sum(pair, disk):
    alone = {str(place): record_steady(one) for place, one in enumerate(pair.steady)}
    predicted = co_locate(alone, capacity=disk)
    together = demands(record_steady(*pair.steady))[list(NAMES)].mean()
    assert predicted.fits
    mean = predicted.resources.set_index("resource")["mean"]
    for resource in pair.compared:
        assert together[resource] == pytest.approx(mean[resource], rel=0.10), resource


def test_first_bottleneck_is_the_predicted_one(pair, disk):
    alone = {str(place): record(one) for place, one in enumerate(pair.full)}
    predicted = co_locate(alone, capacity=disk)
    together = record(*pair.full)
    limits = capacities(capacity_for(together, disk))
    share = pd.Series(load_of(demands(together)[list(NAMES)].to_numpy() / limits).mean, NAMES)
    assert predicted.first == pair.breaks
    assert share.idxmax() == pair.breaks
