"""Pressure of made-up hosts, cell by cell; the command line; phases of a made-up run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pressure_series import CPUS, MEMORY, START_S, host, series

from measurements.timeseries import write_time_series
from measurements.timeseries.series import TimeSeries
from ppw.errors import CaveatWarning, PpwError
from ppw.pressure.capacity import Capacity, capacity_of
from ppw.pressure.demand import LOG_COLUMNS, demand_of
from ppw.pressure.matrix import pressure_matrix
from ppw.pressure.measures import MEASURES, RESOURCES
from ppw.pressure.phases import find_phases
from ppw.pressure.result import PressureMatrix
from ppw.pressure.thresholds import DEFAULTS, read_thresholds

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("golden")
QUIET = dict.fromkeys(("cpu", "memory", "disk", "network"), "low") | {
    "memory_bandwidth": "not measured"
}


def judged(recording, **options):
    expected = pytest.warns(CaveatWarning) if options.pop("warns", False) else nullcontext()
    with expected:
        return pressure_matrix({"app": recording}, **options)


def levels(result, phase="all"):
    return {resource: result.level("app", resource, phase) for resource in RESOURCES}


def evidence(result, measure):
    rows = result.evidence[result.evidence["measure"] == measure]
    return rows.iloc[0]


class TestDemand:
    def test_by_hand(self):
        recording = host(
            2, user_s=1.0, nice_s=0.5, system_s=0.25, softirq_s=0.25, iowait_s=1.0, steal_s=0.2,
            sectors_read=2000.0, sectors_written=1000.0,
        )  # fmt: skip
        recording.frame["interval_s"] = [1.0, 2.0]
        demand = demand_of(recording)
        assert list(demand["cpu_cores"]) == pytest.approx([2.2, 1.1])
        assert list(demand["user_share"]) == pytest.approx([1.5 / 4, 0.75 / 4])
        assert list(demand["system_share"]) == pytest.approx([0.5 / 4, 0.25 / 4])
        assert list(demand["iowait_share"]) == pytest.approx([0.25, 0.125])
        assert list(demand["disk_read_bytes_s"]) == [1_024_000, 512_000]
        assert list(demand["disk_written_bytes_s"]) == [512_000, 256_000]

    def test_page_cache_is_no_demand(self):
        full = host(memory_free_bytes=0.01 * MEMORY, memory_cached_bytes=0.9 * MEMORY)
        assert list(demand_of(full)["memory_bytes"]) == pytest.approx([0.09 * MEMORY] * 10)
        assert levels(judged(full))["memory"] == "low"

    def test_the_kernels_estimate_comes_first(self):
        recording = host(memory_available_bytes=0.3 * MEMORY)
        assert list(demand_of(recording)["memory_bytes"]) == pytest.approx([0.7 * MEMORY] * 10)

    def test_inactive_page_cache_is_not_counted_again(self):
        full = host(
            memory_free_bytes=0.0,
            memory_cached_bytes=0.6 * MEMORY,
            memory_inactive_bytes=0.5 * MEMORY,
        )
        assert list(demand_of(full)["memory_bytes"]) == pytest.approx([0.4 * MEMORY] * 10)

    def test_what_was_not_measured_is_not_known(self):
        demand = demand_of(series(3))
        known = [c for c in demand if demand[c].notna().any()]
        assert known == ["time_s", "interval_s"]

    def test_disks_of_the_host(self):
        recording = host(
            disk_busy_share__dm_0=0.0, disk_queue__sdb=3.0, disk_ios__sdb=9.0,
            disk_busy_share__sdb=0.6, disk_wait_s__sda=0.010, disk_wait_s__sdb=0.020,
        )  # fmt: skip
        demand = demand_of(recording)
        assert demand["disk_busy_share"][0] == 0.6
        assert demand["disk_queue"][0] == 3.0
        # One I/O of 10 ms and nine of 20 ms.
        assert demand["disk_wait_s"][0] == pytest.approx(0.019)
        assert demand_of(recording, disks=["sda"])["disk_busy_share"][0] == 0.0

    def test_time_of_the_scheduler_has_interrupts_in_it(self):
        demand = demand_of(host(user_s=CPUS, softirq_s=0.5))
        assert demand["cpu_cores"].max() == CPUS

    def test_every_column_of_the_log_is_one(self):
        from measurements.timeseries.schema import COLUMNS

        assert set(LOG_COLUMNS) <= set(COLUMNS)


class TestCapacity:
    def test_of_the_log_and_the_user(self):
        capacity = capacity_of(host(), {"cores": 64, "disk_iops": 1000.0})
        assert capacity.cores == 64
        assert capacity.memory_bytes == MEMORY
        assert capacity.network_bytes_s_each_way == 1.25e9
        assert capacity.source("cores") == "stated by the user"
        assert capacity.source("memory_bytes") == "the log"
        assert capacity.source("memory_bandwidth_bytes_s") == ""

    def test_an_interface_without_a_speed(self):
        capacity = capacity_of(host(network_rx_bytes__eth1=5.0))
        assert np.isnan(capacity.network_bytes_s_each_way)

    def test_refused(self):
        with pytest.raises(PpwError, match="no capacity is called 'coers'"):
            capacity_of(host(), {"coers": 4})
        for value in (0.0, -1.0, float("inf")):
            with pytest.raises(PpwError, match="positive"):
                Capacity(cores=value)


class TestCells:
    def test_a_quiet_host(self):
        result = judged(host())
        assert levels(result) == QUIET
        assert list(result.runs["activity"]) == ["idle"]

    @pytest.mark.parametrize(
        ("asked", "resource", "level", "measure"),
        [
            ({"user_s": 3.0}, "cpu", "high", "cpu_utilisation"),
            ({"user_s": 1.5}, "cpu", "medium", "cpu_utilisation"),
            ({"run_queue": 12.0}, "cpu", "high", "run_queue"),
            ({"steal_s": 0.3}, "cpu", "medium", "steal"),
            ({"memory_free_bytes": 0.3 * MEMORY}, "memory", "medium", "memory_utilisation"),
            ({"swap_in_bytes": 20e6}, "memory", "high", "swap_rate"),
            ({"major_faults": 500.0}, "memory", "medium", "major_faults"),
            ({"disk_busy_share__sda": 0.9}, "disk", "high", "disk_busy"),
            ({"disk_queue__sda": 4.0}, "disk", "medium", "disk_queue"),
            ({"disk_wait_s__sda": 0.2}, "disk", "high", "disk_wait"),
            ({"iowait_s": 2.0}, "disk", "high", "iowait"),
            ({"network_tx_bytes": 1e9}, "network", "high", "network_utilisation"),
            ({"network_rx_bytes": 0.5e9}, "network", "medium", "network_utilisation"),
            ({"network_rx_drops": 200.0}, "network", "high", "network_drops"),
        ],
    )
    def test_each_measure(self, asked, resource, level, measure):
        result = judged(host(**asked), warns="disk_busy_share__sda" in asked)
        assert levels(result) == QUIET | {resource: level}
        cells = result.cells
        assert list(cells[cells["resource"] == resource]["because"]) == [measure]
        row = evidence(result, measure)
        threshold = DEFAULTS[measure]
        assert (row["medium"], row["high"], row["unit"]) == threshold[:3]
        assert row["level"] == level

    def test_memory_bandwidth_where_it_was_counted(self):
        recording = host(memory_read_bytes=30e9, memory_written_bytes=10e9)
        assert levels(judged(recording))["memory_bandwidth"] == "no capacity"
        stated = judged(recording, capacity={"memory_bandwidth_bytes_s": 50e9})
        assert levels(stated)["memory_bandwidth"] == "high"
        assert evidence(stated, "memory_bandwidth")["value"] == pytest.approx(0.8)

    def test_nothing_measured(self):
        assert set(levels(judged(series())).values()) == {"not measured"}

    def test_waiting_is_not_working(self):
        result = judged(host(user_s=0.4, iowait_s=2.0))
        assert levels(result)["cpu"] == "low"
        assert levels(result)["disk"] == "high"
        assert list(result.runs["activity"]) == ["waiting"]
        assert list(judged(host(user_s=0.4, iowait_s=0.2)).runs["activity"]) == ["working"]

    def test_a_single_threaded_service(self):
        recording = host(user_s=0.8)
        assert levels(judged(recording))["cpu"] == "low"
        alone = judged(recording, capacity={"process_cores": 1.0})
        assert levels(alone)["cpu"] == "high"
        assert evidence(alone, "process_utilisation")["value"] == pytest.approx(0.81)

    def test_more_than_a_process_can_use(self):
        result = judged(host(user_s=1.9), capacity={"process_cores": 1.0}, warns=True)
        assert "1.91 CPUs are busy, but the workload can use 1" in result.caveats[0]

    def test_a_burst_is_no_queue(self):
        queue = np.zeros(20)
        queue[3] = 400.0
        result = judged(host(20, disk_queue__sda=queue))
        assert levels(result)["disk"] == "low"
        assert evidence(result, "disk_queue")["value"] == 0

    def test_loopback_has_no_capacity(self):
        result = judged(host(network_tx_bytes__lo=200e6))
        assert levels(result)["network"] == "no capacity"
        assert "loopback has no line rate; loopback 200 MB/s" in result.summary()
        # What goes through a wire as well is judged by that.
        both = judged(host(network_tx_bytes__lo=200e6, network_tx_bytes=1e9))
        assert levels(both)["network"] == "high"

    def test_plain_rate_counts_where_nothing_better_is_known(self):
        recording = series(sectors_read=200e6 / 512, sectors_written=0.0)
        assert levels(judged(recording))["disk"] == "high"
        stated = judged(recording, capacity={"disk_bandwidth_bytes_s": 2e9})
        assert levels(stated)["disk"] == "low"
        assert "disk_rate" not in set(stated.evidence["measure"])

    def test_errors_are_no_pressure(self):
        result = judged(host(network_errors=5.0), warns=True)
        assert levels(result) == QUIET
        assert "5 network errors a second" in result.caveats[0]

    def test_artificial_load(self):
        recording = host(context_switches=100_000.0)
        result = judged(recording, operations_s={"app": 10_000.0}, warns=True)
        assert evidence(result, "switches_per_operation")["value"] == 10
        assert "10 context switches an operation" in result.caveats[0]
        assert levels(result) == QUIET
        fair = judged(recording, operations_s={"app": 200_000.0})
        assert evidence(fair, "switches_per_operation")["level"] == "low"

    def test_a_mean_is_over_time(self):
        recording = host(2, user_s=[0.0, 3.9 * 9])
        recording.frame["interval_s"] = [1.0, 9.0]
        row = evidence(judged(recording, warns=True), "cpu_utilisation")
        assert row["value"] == pytest.approx((0.01 + 3.9 * 9 + 0.01) / 40)

    @settings(max_examples=25)
    @given(st.floats(0, 3.9), st.floats(0, 3.9))
    def test_more_demand_is_never_less_pressure(self, a, b):
        order = ["low", "medium", "high"]
        low, high = (order.index(levels(judged(host(user_s=x)))["cpu"]) for x in sorted((a, b)))
        assert low <= high

    def test_every_measure_has_a_threshold(self):
        assert {m.name for m in MEASURES} <= set(DEFAULTS)
        assert {m.resource for m in MEASURES} == set(RESOURCES)


class TestSeveralRecordings:
    def test_perf_beside_another_log(self):
        perf = TimeSeries(
            pd.DataFrame(
                {
                    "time_s": [1.0, 2.0],
                    "interval_s": [1.0, 1.0],
                    "memory_read_bytes": [10e9, 20e9],
                    "memory_written_bytes": [5e9, 5e9],
                }
            ),
            "perf",
            "perf",
        )
        result = judged([host(), perf], capacity={"memory_bandwidth_bytes_s": 40e9})
        assert evidence(result, "memory_bandwidth")["value"] == pytest.approx(0.5)
        assert levels(result) == QUIET | {"memory_bandwidth": "medium"}
        # Where the clocks meet, the bandwidth of a second is of that second.
        perf.frame["time_s"] += START_S
        met = judged([host(2), perf], capacity={"memory_bandwidth_bytes_s": 40e9}, warns=True)
        assert evidence(met, "memory_bandwidth")["p95"] == pytest.approx(25 / 40)

    def test_refused(self):
        with pytest.raises(PpwError, match="no recording"):
            pressure_matrix({})
        for wrong in ({"app": "db7.json"}, {"app": ["db7.json"]}):
            with pytest.raises(PpwError, match="app is a str, not a TimeSeries: read a log with"):
                pressure_matrix(wrong)
        with pytest.raises(PpwError, match="recordings is a str, not a mapping"):
            pressure_matrix("db7.json")
        with pytest.raises(PpwError, match="app: no recording"):
            pressure_matrix({"app": []})
        recording = host(2)
        recording.frame["interval_s"] = np.nan
        with pytest.raises(PpwError, match="no interval of known length"):
            pressure_matrix({"app": recording})
        with pytest.raises(PpwError, match="operations a second"):
            pressure_matrix({"app": host()}, operations_s={"app": 0.0})
        with pytest.raises(PpwError, match="at least 2"):
            pressure_matrix({"app": host()}, shortest=1)


def stages(seconds, noise=0.02):
    """CPU, disk, idle, network, each so long."""
    rng = np.random.default_rng(3)
    count = 4 * seconds

    def stage(number, value):
        at = np.zeros(count)
        at[number * seconds : (number + 1) * seconds] = value
        return np.abs(at * (1 + rng.normal(0, noise, count)))

    return host(
        count,
        user_s=stage(0, 3.8) + 0.05,
        iowait_s=stage(1, 2.0),
        sectors_read=stage(1, 400e6 / 512),
        disk_busy_share__sda=stage(1, 0.95),
        network_tx_bytes=stage(3, 1.1e9),
    )


class TestPhases:
    @pytest.mark.parametrize("seconds", [5, 10])
    def test_known_stages(self, seconds):
        result = judged(stages(seconds), phases=True)
        runs = result.runs[result.runs["phase"] != "all"]
        assert list(runs["start_s"]) == [n * seconds for n in range(4)]
        assert list(runs["end_s"]) == [(n + 1) * seconds for n in range(4)]
        assert list(runs["activity"]) == ["working", "waiting", "idle", "idle"]
        assert levels(result, "phase 1") == QUIET | {"cpu": "high"}
        assert levels(result, "phase 2") == QUIET | {"disk": "high"}
        assert levels(result, "phase 3") == QUIET
        assert levels(result, "phase 4") == QUIET | {"network": "high"}

    def test_a_flat_run_is_one_phase(self):
        rng = np.random.default_rng(4)
        recording = host(60, user_s=np.clip(rng.normal(3.4, 0.2, 60), 0, 3.9))
        result = judged(recording, phases=True)
        assert list(result.runs["phase"]) == ["all"]

    def test_transfers_without_a_capacity(self):
        rate = np.repeat([1.0, 300e6, 1.0], 8)
        recording = series(24, sectors_read=rate / 512, sectors_written=0.0, user_s=1.0,
                           system_s=0.0)  # fmt: skip
        assert find_phases(demand_of(recording)) == [(0, 8), (8, 16), (16, 24)]

    def test_a_trickle_is_no_phase(self):
        rate = np.repeat([1.0, 400e3, 1.0], 8)
        recording = series(24, sectors_read=rate / 512, sectors_written=0.0)
        assert find_phases(demand_of(recording)) == [(0, 24)]

    def test_too_short_for_two(self):
        assert find_phases(demand_of(host(5))) == [(0, 5)]


class TestThresholds:
    def test_replaced_in_one_place(self, tmp_path):
        path = tmp_path / "own.toml"
        path.write_text("[cpu_utilisation]\nmedium = 0.1\nhigh = 0.2\n[disk_busy]\nhigh = 0.9\n")
        thresholds = read_thresholds(path)
        assert thresholds["cpu_utilisation"][:2] == (0.1, 0.2)
        assert thresholds["disk_busy"][:2] == (0.3, 0.9)
        result = judged(host(user_s=1.0), thresholds=thresholds)
        assert levels(result)["cpu"] == "high"
        assert evidence(result, "cpu_utilisation")["high"] == 0.2
        assert result.thresholds_source == str(path)

    def test_shares_may_be_percent(self, tmp_path):
        path = tmp_path / "own.toml"
        path.write_text("[iowait]\nmedium = '7%'\nhigh = '25 %'\n[run_queue]\nhigh = 50")
        thresholds = read_thresholds(path)
        assert thresholds["iowait"][:2] == (0.07, 0.25)
        assert thresholds["run_queue"].high == 50

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("[cpu_utilization]\nhigh = 1", "did you mean 'cpu_utilisation'"),
            ("[iowait]\nhihg = 1", "give medium and high"),
            ("iowait = 1", "give medium and high"),
            ("[iowait]\nmedium = 0.9", "in order"),
            ("[iowait]\nmedium = 50", "iowait: 50 must be at most 1: write 50% or 0.5"),
            ("[iowait]\nhigh = '150%'", "iowait: 150% is more than the whole"),
            ("[iowait]\nhigh = 'x%'", "iowait: 'x%' is not a quantity in %"),
            ("[iowait]\nmedium = -1", "positive"),
            ("[iowait]\nmedium = true", "positive"),
            ("[iowait]\nhigh = inf", "positive"),
            ("[iowait]\nhigh = '1'", "positive"),
            ("[iowait", "is no TOML"),
        ],
    )
    def test_refused(self, tmp_path, text, what):
        path = tmp_path / "own.toml"
        path.write_text(text)
        with pytest.raises(PpwError, match=what) as error:
            read_thresholds(path)
        assert "\n" not in str(error.value)

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(PpwError, match="cannot be read"):
            read_thresholds(tmp_path / "none.toml")

    def test_the_docs_table_is_the_thresholds(self):
        text = (ROOT / "docs/pressure.md").read_text(encoding="utf-8")
        for name, threshold in DEFAULTS.items():
            row = f"| `{name}` | {threshold.medium:g} | {threshold.high:g} | {threshold.unit} |"
            assert row in text, row


class TestResult:
    def result(self):
        return judged(stages(5), phases=True)

    def test_json_comes_back(self):
        result = self.result()
        again = PressureMatrix.from_json(result.to_json())
        assert again.to_json() == result.to_json()
        pd.testing.assert_frame_equal(again.to_frame(), result.to_frame())
        assert json.loads(result.to_json())["kind"] == "pressure_matrix"

    def test_one_row_an_application_and_phase(self):
        frame = self.result().to_frame()
        assert list(frame["phase"]) == ["all", "phase 1", "phase 2", "phase 3", "phase 4"]
        assert set(RESOURCES) <= set(frame)

    def test_the_verdict(self):
        result = judged(host(user_s=3.8), warns=False)
        assert result.verdict() == [
            "app leans on CPU (high); not judged: memory bandwidth. Its CPUs are working."
        ]

    def test_the_plot_has_every_cell(self):
        axes = self.result().plot()
        assert len(axes.texts) == 5 * len(RESOURCES)
        assert axes.has_data()
        assert axes.get_ylabel() == "application"

    def test_the_order_of_applications_is_kept(self):
        result = pressure_matrix({"b": host(), "a": host(user_s=3.8)})
        assert list(dict.fromkeys(result.cells["application"])) == ["b", "a"]
        assert result.level("a", "cpu") == "high"
        assert result.level("c", "cpu") == ""


class TestCommand:
    def run(self, folder, *arguments):
        code = "from ppw.cli import console; console()"
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", code, "pressure", *arguments],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
            check=False,
        )

    @pytest.fixture
    def folder(self, tmp_path):
        write_time_series(stages(5), tmp_path / "run.csv")
        write_time_series(host(network_tx_bytes__lo=200e6), tmp_path / "cache.csv")
        return tmp_path

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("pressure", ["job=run.csv", "memcached=cache.csv"]),
            ("pressure-phases", ["run.csv", "--phases", "--cpus", "8", "--network", "100Gbit/s"]),
            ("pressure-csv", ["job=run.csv", "--format", "csv"]),
        ],
    )
    def test_golden(self, folder, name, arguments):
        done = self.run(folder, *arguments)
        assert done.returncode == 0, done.stderr
        text = f"{done.stdout}--- stderr\n{done.stderr}"
        golden = GOLDEN / f"{name}.txt"
        if os.environ.get("PPW_WRITE_GOLDEN"):
            golden.write_text(text, encoding="utf-8")
        assert text == golden.read_text(encoding="utf-8")

    def test_logs_of_one_run(self, folder):
        line = '{{"interval" : {0}.0, "counter-value" : "4e8", "unit" : "", "event" : "{1}"}}\n'
        events = ("UNC_M_CAS_COUNT.RD", "UNC_M_CAS_COUNT.WR")
        (folder / "perf.json").write_text(
            "".join(line.format(n, event) for n in (1, 2) for event in events)
        )
        done = self.run(folder, "job=perf.json,run.csv", "--memory-bandwidth", "102.4GB/s")
        # 2 · 4e8 lines of 64 B in a second.
        assert "job: memory bandwidth medium: memory bandwidth 50 % of 102.4 GB/s" in done.stdout
        assert "job: disk medium" in done.stdout

    def test_html_and_json(self, folder):
        page = self.run(folder, "run.csv", "--format", "html").stdout
        assert page.startswith("<!DOCTYPE html>")
        assert "http://" not in page.replace("http://www.w3.org", "")
        document = json.loads(self.run(folder, "run.csv", "--format", "json").stdout)
        assert {row["resource"] for row in document["cells"]} == set(RESOURCES)

    @pytest.mark.parametrize(
        ("arguments", "code", "what"),
        [
            (["none.csv"], 1, "No such file"),
            (["a=run.csv", "a=run.csv"], 2, "two logs are called 'a'"),
            (["a="], 2, "names no log"),
            (["a=run.csv", "b=cache.csv", "--operations", "5"], 2, "of one workload"),
            (["run.csv", "--network", "fast"], 2, "fast"),
            (["run.csv", "--cpus", "0"], 2, "range x>0"),
            (["run.csv", "--thresholds", "none.toml"], 1, "none.toml: cannot be read"),
            ([], 2, "Missing argument"),
        ],
    )
    def test_refused(self, folder, arguments, code, what):
        done = self.run(folder, *arguments)
        assert done.returncode == code, done.stderr
        assert what in done.stderr
        assert done.stdout == ""

    @pytest.mark.parametrize(
        ("text", "bytes_s"),
        [
            ("10Gbit/s", 1.25e9),
            ("100Mbit/s", 12.5e6),
            ("1.25GB/s", 1.25e9),
            ("102.4GB", 102.4e9),
            ("1e9", 1e9),
        ],
    )
    def test_rates(self, text, bytes_s):
        from ppw.cli.quantities import ByteRate

        assert ByteRate().convert(text, None, None) == pytest.approx(bytes_s)
