"""Two hosts of one family without RAPL and cpufreq, measured as found, projected and compared."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import answered
from peers.old_host import OldHost, OldLaws

import ppw
from fitting import LogPathLength

ROOT = Path(__file__).resolve().parents[2]
FAMILY = "Atom D"
CLOCKS = {"d510": 1.66e9, "d525": 1.80e9}
PRICES = {"d510": 80.0, "d525": 90.0}
ASKED_HZ = 2.13e9


def measured(host, name, cores, folder):
    """Run `ppw measure --as-found` on a host; the runs table that it left."""
    host.cores = cores
    output = folder / f"{name}-{cores}.parquet"
    login = {"PPW_IPMI_USER": host.bmc.login.user, "PPW_IPMI_PASSWORD": host.bmc.login.password}
    done = subprocess.run(
        [
            # Before whatever else the machine does: times are held against laws.
            *("nice", "-n", "-15", sys.executable, "-W", "error", "-m", "ppw", "measure"),
            "--as-found",
            *("--clock", f"{host.clock_hz / 1e9}GHz", "--cores", str(cores), "--repeats", "3"),
            *("--power", f"ipmi@{host.bmc.where}", "--settle", "1.5s", "--idle", "3s"),
            *("--host", name, "--family", FAMILY, "--workload", "wordcount"),
            *("--price", str(PRICES[name]), "--data", f"{host.laws.data_bytes:.0f}"),
            *("-o", str(output), "--", *host.workload()),
        ],
        env={**os.environ, **login, "PYTHONPATH": str(ROOT)}
        | {"PATH": f"{host.root / 'bin'}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert host.bmc.login.password not in done.stdout + done.stderr
    return ppw.read_runs(output)


@pytest.fixture(scope="module")
def laws():
    return OldLaws()


@pytest.fixture(scope="module")
def runs(tmp_path_factory, laws):
    def sweep(name):
        root = tmp_path_factory.mktemp(name)
        with OldHost(root / "host", CLOCKS[name], laws) as host:
            return [measured(host, name, cores, root) for cores in (1, 2)]

    # Their commands sleep: the two hosts do not disturb each other.
    with ThreadPoolExecutor() as both:
        tables = [table for host in both.map(sweep, CLOCKS) for table in host]
    return pd.concat(tables, ignore_index=True)


def test_the_rows_say_what_was_measured(runs, laws):
    assert len(runs) == 12
    assert set(runs["power_source"]) == {"ipmi:dcmi"}
    assert set(runs["family"]) == {FAMILY}
    assert set(runs["freq_source"]) == {"stated"}
    for (name, cores), part in runs.groupby(["host", "cores"]):
        clock_hz = CLOCKS[name]
        assert part["cpi"].median() == pytest.approx(laws.cpi(clock_hz), rel=1e-6)
        assert part["time_s"].median() == pytest.approx(laws.time_s(clock_hz, cores), rel=0.03)
        assert part["power_w"].median() == pytest.approx(laws.power_w(clock_hz, cores), rel=0.04)
        assert part["instructions"].median() == pytest.approx(laws.instructions(cores), rel=1e-6)
        assert part["idle_power_w"].median() == pytest.approx(laws.idle_w, abs=1)


@pytest.fixture(scope="module")
def projection(runs, laws):
    per_byte = runs["instructions"] / runs["data_bytes"]
    path_length = LogPathLength().fit(runs[["cores"]].to_numpy(), per_byte.to_numpy())
    both = runs[runs["cores"] == 2]
    return answered(
        ppw.project,
        list(zip(both["freq_hz"], both["cpi"], strict=True)),
        power_pts=list(zip(both["freq_hz"], both["power_w"], strict=True)),
        freq=ASKED_HZ,
        cores=2,
        data_bytes=laws.data_bytes,
        path_length=path_length,
        price=95.0,
        power_source="ipmi:dcmi",
        family=FAMILY,
    )


@pytest.mark.parametrize("quantity", ["time_s", "power_w", "perf_per_watt", "perf_per_dollar"])
def test_what_another_clock_will_do_comes_back_within_its_interval(projection, laws, quantity):
    time_s, power_w = laws.time_s(ASKED_HZ, 2), laws.power_w(ASKED_HZ, 2)
    truth = {
        "time_s": time_s,
        "power_w": power_w,
        "perf_per_watt": 1 / (time_s * power_w),
        "perf_per_dollar": 1 / (time_s * 95.0),
    }[quantity]
    estimate = getattr(projection, quantity)
    assert estimate.lower < truth < estimate.upper
    if "watt" not in quantity and "power" not in quantity:
        # A BMC's whole watts at two near clocks say little of a third; counted cycles do.
        assert abs(np.log(estimate / truth)) < 0.03


def test_the_two_hosts_compared(runs, laws):
    """The older host loses in time, and wins or loses per dollar by the ratio of the laws."""
    two = runs[runs["cores"] == 2]
    result = answered(
        ppw.compare, two, {"host": "d510"}, {"host": "d525"}, metric=["time"], **_clocks()
    )
    row = result.table.iloc[0]
    truth = laws.time_s(CLOCKS["d510"], 2) / laws.time_s(CLOCKS["d525"], 2)
    assert row["lower"] < truth < row["upper"]


def _clocks():
    return {"freq_a": CLOCKS["d510"], "freq_b": CLOCKS["d525"]}
