"""Real loads on this machine, each recorded by collectl and by the live sampler at once."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

from measurements.timeseries import read_time_series, sample

SECONDS = 6
CPUS = os.cpu_count()
BURNER = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
HOG = """\
import time
import numpy as np
end = time.monotonic() + {seconds}
a, b = np.ones(25_000_000), np.ones(25_000_000)
while time.monotonic() < end:
    np.add(a, b, out=a)
"""
# Sends to itself: all that passes goes through loopback.
TALKER = """\
import socket, threading, time
end = time.monotonic() + {seconds}
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


def needed(*programs):
    for program in programs:
        assert shutil.which(program), f"{program} is missing: see .ci/run"


def python(code, seconds=SECONDS, copies=1):
    """Command that runs so many copies of some code."""
    text = code.format(seconds=seconds)
    if copies == 1:
        return [sys.executable, "-c", text]
    start = (
        "import subprocess, sys\n"
        f"running = [subprocess.Popen([sys.executable, '-c', {text!r}]) for _ in range({copies})]\n"
        "sys.exit(max(p.wait() for p in running))"
    )
    return [sys.executable, "-c", start]


def fio(folder, seconds=SECONDS):
    """Random reads past the page cache."""
    return [
        "fio", "--name=load", f"--filename={folder / 'fio.dat'}", "--size=256M", "--rw=randread",
        "--bs=4k", "--ioengine=libaio", "--iodepth=32", "--direct=1", "--time_based",
        f"--runtime={seconds}", "--output=/dev/null",
    ]  # fmt: skip


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def running(command, port):
    """A server, until it is no longer needed."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def recorded(command, folder):
    """Series of a command by the live sampler and by collectl, over the same seconds."""
    needed("collectl")
    plot = folder / "plot.txt"
    with plot.open("wb") as out:
        collectl = subprocess.Popen(
            ["collectl", "-i1", "-scdnmDN", "-P", "-oUm2"], stdout=out, stderr=subprocess.DEVNULL
        )
        try:
            time.sleep(1.5)
            live = sample(command=command, interval_s=1.0)
            time.sleep(1.5)
        finally:
            collectl.terminate()
            collectl.wait(30)
    # The last interval of the live series is what was left, and may be short.
    whole = live.frame["interval_s"] > 0.5
    start = float((live.frame["time_s"] - live.frame["interval_s"]).iloc[0])
    end = float(live.frame["time_s"][whole].iloc[-1])
    return {
        "live": live.between(start, end),
        "collectl": read_time_series(plot, cpus=CPUS).between(start - 0.5, end + 0.5),
    }
