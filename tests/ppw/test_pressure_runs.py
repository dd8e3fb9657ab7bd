"""Real loads on this machine: their pressure, and pairs that run really together.

Others may use the machine at the same time. Of pressure, only what a load itself must show is
written down, and collectl and the live sampler must agree on all. Of pairs, what is expected was
written down before they first ran together; CPU time and disk traffic are those of their own
programs, as the kernel counts them for each process.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from made_up import ignore_caveats, quiet
from peers.waiting import wait_for

from fitting.demand.utilisation import summarise_shares
from measurements.timeseries import LiveSampler, TimeSeries, read_time_series, sample
from measurements.workloads.memcached.servers import free_ports
from ppw.pressure.capacity import RESOURCES
from ppw.pressure.co_locate import co_locate
from ppw.pressure.demand import NAMES, capacity_array, capacity_for, demand_of, demands
from ppw.pressure.matrix import find_phases, pressure_matrix

pytestmark = pytest.mark.peer("pressure")
SECONDS = 5
CPUS = os.cpu_count()
# Before all else that the machine does: a demand is seen, and steady, only where it is met.
FIRST = ("nice", "-n", "-20")
# Runs code in so many processes.
COPIES = """
import subprocess, sys
code, count, *given = sys.argv[1:]
running = [subprocess.Popen([sys.executable, "-c", code, *given]) for _ in range(int(count))]
sys.exit(max(p.wait() for p in running))
"""
BURNER = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\n"
BURNER += "while time.monotonic() < end: pass"
HOG = """
import sys, time
import numpy as np
end = time.monotonic() + float(sys.argv[1])
a, b = np.ones(25_000_000), np.ones(25_000_000)
while time.monotonic() < end:
    np.add(a, b, out=a)
"""
# Sends to itself: all that passes goes through loopback.
TALKER = """
import socket, sys, threading, time
end = time.monotonic() + float(sys.argv[1])
server = socket.create_server(("127.0.0.1", 0))
def drain():
    peer = server.accept()[0]
    while peer.recv(1 << 20): pass
thread = threading.Thread(target=drain)
thread.start()
with socket.create_connection(server.getsockname()) as out:
    while time.monotonic() < end: out.sendall(bytes(1 << 18)); time.sleep(0.001)
thread.join()
"""


def python(script, *arguments):
    return [sys.executable, "-c", script, *map(str, arguments)]


def random_fio(folder, seconds=SECONDS):
    """Random reads past the page cache, more at once than any disk serves."""
    file = ("fio", "--name=load", f"--filename={folder / 'fio.dat'}", "--size=256M", "--bs=64k")
    how = ("--rw=randread", "--ioengine=libaio", "--iodepth=256", "--direct=1", "--numjobs=2")
    return [*file, *how, "--time_based", f"--runtime={seconds}", "--output=/dev/null"]


def recorded(command, folder):
    """Series of a command by the live sampler and by collectl, over the same seconds."""
    plot = folder / "plot.txt"
    with plot.open("wb") as out:
        asked = ["collectl", "-i1", "-scdnmDN", "-P", "-oUm2"]
        collectl = subprocess.Popen(asked, stdout=out, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: plot.stat().st_size)
            live = sample(command=[*FIRST, *command], interval_s=1.0)
            time.sleep(1.5)
        finally:
            collectl.terminate()
            collectl.wait(60)
    # The last interval of the live series is what was left, and may be short.
    whole = live.frame["interval_s"] > 0.5
    start = float((live.frame["time_s"] - live.frame["interval_s"]).iloc[0])
    end = float(live.frame["time_s"][whole].iloc[-1])
    told = read_time_series(plot, cpus=CPUS).between(start - 0.5, end + 0.5)
    return {"live": live.between(start, end), "collectl": told}


def check(both, expected, **options):
    """What was written down is what both recordings give, and they agree on the rest."""
    result = quiet(pressure_matrix, both, **options)
    for recorder in both:
        found = {resource: result.level(recorder, resource) for resource in expected}
        assert found == expected, (recorder, result.summary())
    for resource in RESOURCES:
        live, collectl = (result.level(name, resource) for name in ("live", "collectl"))
        if live != collectl:
            # But where the two means lie about a threshold and next to each other.
            rows = result.evidence[result.evidence["resource"] == resource]
            by = {"index": "measure", "columns": "application", "aggfunc": "first"}
            table = rows.pivot_table(values=["level", "value", "high"], **by)
            apart = table.index[table["level", "live"] != table["level", "collectl"]]
            values = table.loc[apart]
            near = (values["value", "live"] - values["value", "collectl"]).abs()
            assert len(apart)
            assert (near < 0.25 * values["high", "live"]).all(), result.summary()
    return result


@contextlib.contextmanager
def running(*commands, port=None):
    """Programs, until they are no longer needed; tells what they and their children used.

    It begins when somebody listens at the port.
    """
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = []

    def used():
        """CPU seconds by the scheduler, bytes from disks, and reads."""
        found = np.zeros(3)
        for process in processes:
            assert process.poll() is None, process.args
            for one in (process, *process.children(recursive=True)):
                moved = one.io_counters()
                found[1:] += (moved.read_bytes, moved.read_count)
                for task in Path(f"/proc/{one.pid}/task").iterdir():
                    # A thread may end meanwhile.
                    with contextlib.suppress(OSError):
                        found[0] += int((task / "schedstat").read_text().split()[0]) / 1e9
        return found

    try:
        processes.extend(psutil.Popen([*FIRST, *command], **quiet) for command in commands)
        if port is not None:
            with socket.socket() as probe:
                wait_for(lambda: probe.connect_ex(("127.0.0.1", port)) == 0)
        yield used
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                for one in (*process.children(recursive=True), process):
                    one.kill()
            process.wait()


def memcached(port, *more):
    return ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-U", "0", *more]


class TestPressure:
    @pytest.mark.parametrize("code", [BURNER, HOG], ids=["CPU burner", "memory hog"])
    def test_of_a_burner_and_a_hog(self, tmp_path, code):
        both = recorded(python(COPIES, code, CPUS, SECONDS), tmp_path)
        check(both, {"cpu": "high", "memory_bandwidth": "not measured"})

    def test_of_random_reads(self, tmp_path):
        # The file is laid out beforehand.
        subprocess.run(random_fio(tmp_path, 1), check=True)
        both = recorded(random_fio(tmp_path), tmp_path)
        check(both, {"disk": "high", "memory_bandwidth": "not measured"})

    def test_of_memcached_over_loopback(self, tmp_path):
        (port,) = free_ports(1)
        load = ["memcaslap", "-s", f"127.0.0.1:{port}", "-t", f"{SECONDS}s", "-T", "1", "-c", "16"]
        with running(memcached(port, "-m", "128"), port=port):
            both = recorded(load, tmp_path)
        result = check(both, {"cpu": "high", "network": "no capacity"})
        cells = result.cells[result.cells["resource"] == "network"]
        assert set(cells["because"]) == {"loopback has no line rate"}
        # Requests and replies alike are counted by both.
        live, collectl = result.runs["loopback_bytes_s"]
        assert live == pytest.approx(collectl, rel=0.25)

    def test_of_redis(self, tmp_path):
        (port,) = free_ports(1)
        here = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path))
        load = ["redis-benchmark", "-p", str(port), "-l", "-q", "-t", "set,get", "-d", "1000"]
        with running(["redis-server", *here], port=port):
            both = recorded(["timeout", "--preserve-status", str(SECONDS), *load], tmp_path)
        # It has one thread: CPU is judged against one core.
        expected = {"cpu": "high", "network": "no capacity"}
        result = check(both, expected, capacity={"process_cores": 1.0})
        rows = result.evidence[result.evidence["measure"] == "process_utilisation"]
        assert (rows["value"] > 0.7).all()

    @pytest.mark.slow
    def test_of_stages_of_a_script(self, tmp_path):
        """10 s each of CPU, disk, nothing and network: each change is found within one sample.

        What others on the machine begin and end meanwhile may be found as well.
        """
        # The file is laid out beforehand.
        subprocess.run(random_fio(tmp_path, 1), check=True)
        burn, disk = python(COPIES, BURNER, CPUS, 10), random_fio(tmp_path, 10)
        stages = [burn, disk, ["sleep", "10"], python(TALKER, 10)]
        times = tmp_path / "times.txt"
        script = (
            "import subprocess, time\n"
            f"for stage in {stages!r}:\n"
            "    subprocess.run(stage, check=True)\n"
            f"    print(time.time(), file=open({str(times)!r}, 'a'))"
        )
        both = recorded(python(script), tmp_path)
        ends = np.array([float(line) for line in times.read_text().split()])[:-1]
        for series in both.values():
            demand = demand_of(series)
            starts = [first for first, _ in find_phases(demand)][1:]
            at = (demand["time_s"] - demand["interval_s"]).to_numpy()[starts]
            missed = np.abs(at[:, None] - ends).min(axis=0)
            assert missed.max() <= 1.0, (missed, demand.to_string())


INTERVAL_S, INTERVALS, SETTLE_S = 0.25, 12, 1.5
TRIES = 6
# Differences of demand that are none.
NOTHING = {"CPU": 0.01, "disk bandwidth": 2e6, "disk I/Os": 10.0}
FIO = ("fio", "--name=read", "--direct=1", "--thread", "--time_based", "--runtime=60", "--minimal")

# So much CPU time a second, however busy the machine is; 1 never sleeps.
SHARE = """
import sys, time
share, start, spent = float(sys.argv[1]), time.perf_counter(), time.process_time()
while True:
    while share == 1 or time.process_time() - spent < share * (time.perf_counter() - start):
        pass
    time.sleep(0.01)
"""
# Gets of one object, so many every 10 ms; 0 is as many as can be.
CLIENT = """
import socket, sys, time
server = socket.socket()
while server.connect_ex(("127.0.0.1", int(sys.argv[1]))): pass
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


def burner(share, copies=1):
    return [python(COPIES, SHARE, copies, share)]


def random_reads(file, each):
    return [python(READER, file, each)]


def scan(file, rate=None):
    how = ("--ioengine=libaio", "--iodepth=8", "--rw=read", "--bs=1M")
    return [[*FIO, *how, f"--filename={file}", *([f"--rate={rate}"] if rate else [])]]


def cache(each):
    (port,) = free_ports(1)
    return [memcached(port, "-t", "1"), python(CLIENT, port, each)]


def record(*workloads):
    """Record programs that run together."""
    with running(*(command for workload in workloads for command in workload)) as used:
        time.sleep(SETTLE_S)
        sampler, amounts, rows = LiveSampler(interval_s=INTERVAL_S), [used()], []
        for _ in range(INTERVALS):
            time.sleep(INTERVAL_S)
            rows.append(sampler.row())
            amounts.append(used())
    cpu_s, read, reads = np.diff(np.array(amounts), axis=0).T
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
    few = demands(record(scan(files[0])))
    small = ("--rw=randread", "--bs=4k", "--numjobs=4")
    many = demands(record([[*FIO, f"--filename={files[0]}", *small]]))
    return {
        "disk_bandwidth_bytes_s": float(few["disk bandwidth"].max()),
        "disk_iops": float(many["disk I/Os"].max()),
    }


# Two workloads at a steady and at their full demand, what is to break first, what is compared.
PAIRS = {
    "burner and random reads": lambda a, b: (
        *((burner(0.15), random_reads(a, 5)), (burner(1, 2), random_reads(a, 20))),
        *("CPU", ("CPU", "disk I/Os")),
    ),
    "scan and scan": lambda a, b: (
        *((scan(a, "150m"), scan(b, "100m")), (scan(a), scan(b))),
        *("disk bandwidth", ("disk bandwidth",)),
    ),
    "cache and burner": lambda a, b: (
        *((cache(5), burner(0.15)), (cache(0), burner(1, 2))),
        *("CPU", ("CPU",)),
    ),
}


@pytest.mark.slow
@ignore_caveats
@pytest.mark.parametrize("name", PAIRS)
class TestPairs:
    def test_demand_together_is_within_a_tenth_of_the_sum(self, name, files, disk):
        steady, *_, compared = PAIRS[name](*files)
        alone = {str(place): record_steady(one) for place, one in enumerate(steady)}
        predicted = co_locate(alone, capacity=disk)
        together = demands(record_steady(*steady))[list(NAMES)].mean()
        assert predicted.fits
        mean = predicted.resources.set_index("resource")["mean"]
        for resource in compared:
            assert together[resource] == pytest.approx(mean[resource], rel=0.10), resource

    def test_first_bottleneck_is_the_predicted_one(self, name, files, disk):
        _, full, breaks, _ = PAIRS[name](*files)
        alone = {str(place): record(one) for place, one in enumerate(full)}
        predicted = co_locate(alone, capacity=disk)
        together = record(*full)
        limits = capacity_array(capacity_for(together, disk))
        share = summarise_shares(demands(together)[list(NAMES)].to_numpy() / limits).mean
        assert predicted.first == breaks
        assert pd.Series(share, NAMES).idxmax() == breaks
