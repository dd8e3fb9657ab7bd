"""Real loads on this machine: what was expected of each, by collectl and by the live sampler.

Others may use the machine at the same time: only what a load itself must show is written down, and
the two recordings must agree on all.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from peers import hadoop as hadoop_peer
from pressure_loads import (
    BURNER,
    CPUS,
    HOG,
    TALKER,
    fio,
    free_port,
    needed,
    python,
    recorded,
    running,
)

from ppw.errors import CaveatWarning
from ppw.pressure.demand import demand_of
from ppw.pressure.matrix import pressure_matrix
from ppw.pressure.measures import RESOURCES
from ppw.pressure.phases import find_phases

ROOT = Path(__file__).resolve().parents[2]


def matrix(both, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaveatWarning)
        return pressure_matrix(both, **options)


def check(both, expected, **options):
    """What was written down is what both recordings give, and they agree on the rest."""
    result = matrix(both, **options)
    for recorder in both:
        found = {resource: result.level(recorder, resource) for resource in expected}
        assert found == expected, (recorder, result.summary())
    assert_same(result)
    return result


def assert_same(result):
    """Levels are the same, but where the two means lie about a threshold and next to each other."""
    for resource in RESOURCES:
        live, collectl = (result.level(name, resource) for name in ("live", "collectl"))
        if live != collectl:
            rows = result.evidence[result.evidence["resource"] == resource]
            # Those measures that the two put on different sides of a threshold.
            levels = rows.pivot(index="measure", columns="application", values="level")
            apart = levels.index[levels["live"] != levels["collectl"]]
            about = rows.pivot(index="measure", columns="application", values="value").loc[apart]
            limits = rows.drop_duplicates("measure").set_index("measure").loc[apart, "high"]
            assert len(apart)
            assert (np.abs(about["live"] - about["collectl"]) < 0.25 * limits).all(), (
                result.summary()
            )


def test_a_cpu_burner(tmp_path):
    both = recorded(python(BURNER, copies=CPUS), tmp_path)
    check(both, {"cpu": "high", "memory_bandwidth": "not measured"})


def test_a_memory_hog(tmp_path):
    both = recorded(python(HOG, copies=CPUS), tmp_path)
    check(both, {"cpu": "high", "memory_bandwidth": "not measured"})


def test_random_reads(tmp_path):
    needed("fio")
    both = recorded(fio(tmp_path), tmp_path)
    check(both, {"disk": "high", "memory_bandwidth": "not measured"})


def test_memcached_over_loopback(tmp_path):
    needed("memcached", "memcaslap")
    port = free_port()
    server = ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", "128"]
    load = ["memcaslap", "-s", f"127.0.0.1:{port}", "-t", "6s", "-T", "1", "-c", "16"]
    with running(server, port):
        both = recorded(load, tmp_path)
    result = check(both, {"cpu": "high", "network": "no capacity"})
    cells = result.cells[result.cells["resource"] == "network"]
    assert set(cells["because"]) == {"loopback has no line rate"}
    # Requests and replies alike are counted by both.
    live, collectl = result.runs["loopback_bytes_s"]
    assert live == pytest.approx(collectl, rel=0.25)


def test_redis(tmp_path):
    needed("redis-server", "redis-benchmark")
    port = free_port()
    server = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    load = ["redis-benchmark", "-p", str(port), "-l", "-q", "-t", "set,get", "-d", "1000"]
    with running([*server, "--dir", str(tmp_path)], port):
        both = recorded(["timeout", "--preserve-status", "6", *load], tmp_path)
    # It has one thread: CPU is judged against one core.
    expected = {"cpu": "high", "network": "no capacity"}
    result = check(both, expected, capacity={"process_cores": 1.0})
    rows = result.evidence[result.evidence["measure"] == "process_utilisation"]
    assert (rows["value"] > 0.7).all()


@pytest.mark.slow
def test_a_hadoop_job(tmp_path, monkeypatch):
    jars = hadoop_peer.jars()
    monkeypatch.setenv("PPW_CACHE_DIR", str(jars.parent))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    job = [
        sys.executable, "-m", "ppw", "run", "hadoop", "--workload", "wordcount", "--data", "64MB",
        "--warm-ups", "0", "--repeats", "1", "--power", "none", "--scratch", str(tmp_path / "jobs"),
        "-o", str(tmp_path / "runs.csv"),
    ]  # fmt: skip
    (tmp_path / "jobs").mkdir()
    both = recorded(job, tmp_path)
    check(both, {"cpu": "high", "memory_bandwidth": "not measured"})


@pytest.mark.slow
def test_stages_of_a_script(tmp_path):
    """10 s each of CPU, disk, nothing and network: each change is found within one sample.

    What others on the machine begin and end meanwhile may be found as well.
    """
    needed("fio")
    seconds = 10
    # The file is laid out beforehand.
    subprocess.run(fio(tmp_path, 1), check=True)
    stages = [python(BURNER, seconds, CPUS), fio(tmp_path, seconds), ["sleep", str(seconds)],
              python(TALKER, seconds)]  # fmt: skip
    times = tmp_path / "times.txt"
    script = (
        "import subprocess, time\n"
        f"for stage in {stages!r}:\n"
        f"    subprocess.run(stage, check=True); print(time.time(), file=open({str(times)!r}, 'a'))"
    )
    both = recorded([sys.executable, "-c", script], tmp_path)
    ends = np.array([float(line) for line in times.read_text().split()])[:-1]
    for series in both.values():
        demand = demand_of(series)
        starts = [first for first, _ in find_phases(demand)][1:]
        at = (demand["time_s"] - demand["interval_s"]).to_numpy()[starts]
        missed = np.abs(at[:, None] - ends).min(axis=0)
        assert missed.max() <= 1.0, (missed, demand.to_string())
