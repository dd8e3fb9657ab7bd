"""Pressure of made-up hosts cell by cell, phases, the command line, and a published matrix."""

import json
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from golden_runs import golden
from hypothesis import given, settings, strategies as st
from pressure_series import CPUS, MEMORY, START_S, host, series
from processes import ROOT, ppw_inside, refused
from published_pressure import APPLICATIONS, WORDS, published_matrix

from measurements.timeseries import write_time_series
from measurements.timeseries.series import COLUMNS, TimeSeries
from ppw.errors import CaveatWarning, PpwError
from ppw.pressure import capacity as cap
from ppw.pressure.capacity import DEFAULTS, RESOURCES
from ppw.pressure.demand import LOG_COLUMNS, demand_of
from ppw.pressure.matrix import find_phases, pressure_matrix

QUIET = dict.fromkeys(RESOURCES, "low") | {"memory_bandwidth": "not measured"}


def judged(recording, **options):
    expected = pytest.warns(CaveatWarning) if options.pop("warns", False) else nullcontext()
    with expected:
        return pressure_matrix({"app": recording}, **options)


def levels(result, phase="all"):
    return {resource: result.level("app", resource, phase) for resource in RESOURCES}


def evidence(result, measure):
    return result.evidence[result.evidence["measure"] == measure].iloc[0]


class TestDemand:
    def test_by_hand(self):
        recording = host(
            2, user_s=1.0, nice_s=0.5, system_s=0.25, softirq_s=0.25, iowait_s=1.0, steal_s=0.2,
            sectors_read=2000.0, sectors_written=1000.0,
        )  # fmt: skip
        recording.frame["interval_s"] = [1.0, 2.0]
        demand = demand_of(series=recording)
        assert list(demand["cpu_cores"]) == pytest.approx([2.2, 1.1])
        assert list(demand["user_share"]) == pytest.approx([1.5 / 4, 0.75 / 4])
        assert list(demand["system_share"]) == pytest.approx([0.5 / 4, 0.25 / 4])
        assert list(demand["iowait_share"]) == pytest.approx([0.25, 0.125])
        assert list(demand["disk_read_bytes_s"]) == [1_024_000, 512_000]
        assert list(demand["disk_written_bytes_s"]) == [512_000, 256_000]

    @pytest.mark.cases(
        "shares, used",
        ({"free": 0.01, "cached": 0.9}, 0.09),
        # The kernel's estimate comes first.
        ({"available": 0.3}, 0.7),
        # Inactive page cache is not counted again.
        ({"free": 0.0, "cached": 0.6, "inactive": 0.5}, 0.4),
    )
    def test_page_cache_is_no_demand(self, shares, used):
        columns = {f"memory_{name}_bytes": share * MEMORY for name, share in shares.items()}
        found = demand_of(host(**columns))["memory_bytes"]
        assert list(found) == pytest.approx([used * MEMORY] * 10)

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
        assert (demand["disk_busy_share"][0], demand["disk_queue"][0]) == (0.6, 3.0)
        # One I/O of 10 ms and nine of 20 ms.
        assert demand["disk_wait_s"][0] == pytest.approx(0.019)
        assert demand_of(recording, disks=["sda"])["disk_busy_share"][0] == 0.0
        # A disk whose wait is not known counts for nothing.
        recording.frame["disk_wait_s[sda]"] = np.nan
        assert demand_of(recording)["disk_wait_s"][0] == pytest.approx(0.020)

    def test_time_of_the_scheduler_has_interrupts_in_it(self):
        demand = demand_of(host(user_s=CPUS, softirq_s=0.5))
        assert demand["cpu_cores"].max() == CPUS

    def test_every_column_of_the_log_is_one(self):
        assert set(LOG_COLUMNS) <= set(COLUMNS)


class TestCapacity:
    def test_of_the_log_and_the_user(self):
        capacity = cap.capacity_of(host(), {"cores": 64, "disk_iops": 1000.0})
        assert (capacity.cores, capacity.memory_bytes) == (64, MEMORY)
        assert capacity.network_bytes_s_each_way == 1.25e9
        assert capacity.source("cores") == "stated by the user"
        assert cap.capacity_of(host(cpus=1.0)).cores == 1
        assert capacity.source("memory_bytes") == "the log"
        assert capacity.source("memory_bandwidth_bytes_s") == ""
        # An interface may be without a speed.
        assert np.isnan(cap.capacity_of(host(network_rx_bytes__eth1=5.0)).network_bytes_s_each_way)

    def test_refused(self):
        with pytest.raises(PpwError, match="no capacity is called 'coers'"):
            cap.capacity_of(host(), {"coers": 4})
        for value in (0.0, -1.0, float("inf")):
            with pytest.raises(PpwError, match="positive"):
                cap.Capacity(cores=value)


class TestCells:
    def test_a_quiet_host_and_nothing_measured(self):
        result = judged(host())
        assert levels(result) == QUIET
        assert list(result.runs["activity"]) == ["idle"]
        assert set(levels(judged(series())).values()) == {"not measured"}

    @pytest.mark.cases(
        "asked, resource, level, measure",
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
        ({"network_rx_drops": 1.5}, "network", "medium", "network_drops"),
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

    def test_waiting_is_not_working(self):
        result = judged(host(user_s=0.4, iowait_s=2.0))
        assert levels(result)["cpu"] == "low"
        assert levels(result)["disk"] == "high"
        assert list(result.runs["activity"]) == ["waiting"]
        assert list(judged(host(user_s=0.4, iowait_s=0.2)).runs["activity"]) == ["working"]

    def test_a_single_threaded_service(self):
        assert levels(judged(host(user_s=0.8)))["cpu"] == "low"
        alone = judged(host(user_s=0.8), capacity={"process_cores": 1.0})
        assert levels(alone)["cpu"] == "high"
        assert evidence(alone, "process_utilisation")["value"] == pytest.approx(0.81)
        # All of one core is its own.
        whole = host(8, user_s=1.0, system_s=0.0)
        assert judged(whole, capacity={"process_cores": 1.0}).caveats == ()
        more = judged(host(user_s=1.9), capacity={"process_cores": 1.0}, warns=True)
        assert "1.91 CPUs are busy, but the workload can use 1" in more.caveats[0]

    def test_a_burst_is_no_queue(self):
        result = judged(host(20, disk_queue__sda=400.0 * (np.arange(20) == 3)))
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
        assert "5 network errors per second" in result.caveats[0]

    def test_artificial_load(self):
        recording = host(context_switches=100_000.0)
        result = judged(recording, operations_s={"app": 10_000.0}, warns=True)
        assert evidence(result, "switches_per_operation")["value"] == 10
        assert "10 context switches per operation" in result.caveats[0]
        assert levels(result) == QUIET
        fair = judged(recording, operations_s={"app": 200_000.0})
        assert evidence(fair, "switches_per_operation")["level"] == "low"

    def test_a_mean_is_over_time(self):
        recording = host(2, user_s=[0.0, 3.9 * 9])
        recording.frame["interval_s"] = [1.0, 9.0]
        row = evidence(judged(recording, warns=True), "cpu_utilisation")
        assert row["value"] == pytest.approx((0.01 + 3.9 * 9 + 0.01) / 40)
        # A tenth of the time is not yet a part that it hides.
        assert judged(host(user_s=3.9 * (np.arange(10) == 3))).caveats == ()

    @settings(max_examples=max(5, settings.default.max_examples // 4))
    @given(st.floats(0, 3.9), st.floats(0, 3.9))
    def test_more_demand_is_never_less_pressure(self, a, b):
        order = ["low", "medium", "high"]
        low, high = (order.index(levels(judged(host(user_s=x)))["cpu"]) for x in sorted((a, b)))
        assert low <= high


class TestSeveralRecordings:
    def test_perf_beside_another_log(self):
        frame = {"time_s": [1.0, 2.0], "interval_s": 1.0}
        frame |= {"memory_read_bytes": [10e9, 20e9], "memory_written_bytes": 5e9}
        perf, capacity = pd.DataFrame(frame), {"memory_bandwidth_bytes_s": 40e9}
        result = judged([host(), TimeSeries(perf, "perf", "perf")], capacity=capacity)
        assert evidence(result, "memory_bandwidth")["value"] == pytest.approx(0.5)
        assert levels(result) == QUIET | {"memory_bandwidth": "medium"}
        # Where the clocks meet, the bandwidth of a second is of that second.
        met = TimeSeries(perf.assign(time_s=START_S + perf["time_s"]), "perf", "perf")
        result = judged([host(2), met], capacity=capacity, warns=True)
        assert evidence(result, "memory_bandwidth")["p95"] == pytest.approx(25 / 40)

    @pytest.mark.cases(
        "recordings, options, said",
        ({}, {}, "no recording"),
        ({"app": "db7.json"}, {}, "app is a str, not a TimeSeries: read a log with"),
        ({"app": ["db7.json"]}, {}, "app is a str, not a TimeSeries: read a log with"),
        ("db7.json", {}, "recordings is a str, not a mapping"),
        ({"app": []}, {}, "app: no recording"),
        ({"app": host(2, interval_s=np.nan)}, {}, "no interval of known length"),
        ({"app": host()}, {"operations_s": {"app": 0.0}}, "operations per second"),
        ({"app": host()}, {"shortest": 1}, "at least 2"),
    )
    def test_refused(self, recordings, options, said):
        with pytest.raises(PpwError, match=said):
            pressure_matrix(recordings, **options)


def stages():
    """CPU, disk, idle, network, each of 5 s."""
    rng = np.random.default_rng(3)

    def stage(number, value):
        at = np.repeat(np.arange(4) == number, 5) * value
        return np.abs(at * (1 + rng.normal(0, 0.02, 20)))

    return host(
        20,
        user_s=stage(0, 3.8) + 0.05,
        iowait_s=stage(1, 2.0),
        sectors_read=stage(1, 400e6 / 512),
        disk_busy_share__sda=stage(1, 0.95),
        network_tx_bytes=stage(3, 1.1e9),
    )


@pytest.fixture(scope="module")
def staged():
    return judged(stages(), phases=True)


class TestPhases:
    def test_known_stages_have_a_row_each_and_a_text_for_each_cell(self, staged):
        names = ["all", "phase 1", "phase 2", "phase 3", "phase 4"]
        assert list(staged.to_frame()["phase"]) == list(staged.runs["phase"]) == names
        assert set(RESOURCES) <= set(staged.to_frame())
        assert len(staged.plot().texts) == 5 * len(RESOURCES)
        runs = staged.runs[1:]
        assert (list(runs["start_s"]), list(runs["end_s"])) == ([0, 5, 10, 15], [5, 10, 15, 20])
        assert list(runs["activity"]) == ["working", "waiting", "idle", "idle"]
        assert levels(staged, "phase 1") == QUIET | {"cpu": "high"}
        assert levels(staged, "phase 2") == QUIET | {"disk": "high"}
        assert levels(staged, "phase 3") == QUIET
        assert levels(staged, "phase 4") == QUIET | {"network": "high"}

    @pytest.mark.cases(
        "bytes_s, columns, phases",
        (300e6, {"user_s": 1.0, "system_s": 0.0}, [(0, 8), (8, 16), (16, 24)]),
        # A trickle is no phase.
        (400e3, {}, [(0, 24)]),
    )
    def test_transfers_without_a_capacity(self, bytes_s, columns, phases):
        read = np.repeat([1.0, bytes_s, 1.0], 8) / 512
        recording = series(24, sectors_read=read, sectors_written=0.0, **columns)
        assert find_phases(demand_of(recording)) == phases

    def test_too_short_for_two(self):
        assert find_phases(demand_of(host(5))) == [(0, 5)]
        assert list(judged(host(5), phases=True).runs["phase"]) == ["all"]


class TestThresholds:
    def test_replaced_in_one_place(self, tmp_path):
        path = tmp_path / "own.toml"
        path.write_text(
            "[cpu_utilisation]\nmedium = 0.1\nhigh = 0.2\n[disk_busy]\nhigh = 0.9\n"
            "[iowait]\nmedium = '7%'\nhigh = '25 %'\n[run_queue]\nhigh = 50"
        )
        thresholds = cap.read_thresholds(path)
        assert (thresholds["disk_busy"][:2], thresholds["iowait"][:2]) == ((0.3, 0.9), (0.07, 0.25))
        assert thresholds["run_queue"].high == 50
        result = judged(host(user_s=1.0), thresholds=thresholds)
        assert levels(result)["cpu"] == "high"
        row = evidence(result, "cpu_utilisation")
        assert (row["medium"], row["high"]) == (0.1, 0.2)
        assert result.thresholds_source == str(path)

    @pytest.mark.cases(
        "text, what",
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
        ("[iowait", "not TOML"),
    )
    def test_refused(self, tmp_path, text, what):
        path = tmp_path / "own.toml"
        path.write_text(text)
        with pytest.raises(PpwError, match=what) as error:
            cap.read_thresholds(path)
        assert "\n" not in str(error.value)

    def test_the_docs_table_is_the_thresholds(self):
        text = (ROOT / "docs/generated/pressure_thresholds.md").read_text(encoding="utf-8")
        for name, threshold in DEFAULTS.items():
            row = f"| `{name}` | {threshold.medium:g} | {threshold.high:g} | {threshold.unit} |"
            assert row in text, row


def test_the_verdict_and_the_order_of_applications():
    result = pressure_matrix({"b": host(), "a": host(user_s=3.8)})
    assert list(dict.fromkeys(result.cells["application"])) == ["b", "a"]
    assert [result.level(name, "cpu") for name in ("b", "a", "c")] == ["low", "high", ""]
    assert judged(host(user_s=3.8)).verdict() == [
        "app puts pressure on CPU (high); not judged: memory bandwidth. Its CPUs are working."
    ]


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path):
        write_time_series(stages(), tmp_path / "run.csv")
        write_time_series(host(network_tx_bytes__lo=200e6), tmp_path / "cache.csv")
        return tmp_path

    def test_golden(self, folder):
        golden("pressure job=run.csv memcached=cache.csv", folder)

    def test_options_reach_the_answer(self, folder):
        words = ["run.csv", "--phases", "--cpus", "8", "--network", "100Gbit/s"]
        done = ppw_inside("pressure", *words, "--format", "json", cwd=folder)
        stated = {"cores": 8, "network_bytes_s_each_way": 12.5e9}
        again = judged(stages(), phases=True, capacity=stated)
        document = json.loads(done.stdout)
        assert [row["level"] for row in document["cells"]] == list(again.cells["level"])
        assert {row["phase"] for row in document["cells"]} == set(again.cells["phase"])

    def test_logs_of_one_run(self, folder):
        line = '{{"interval" : {0}.0, "counter-value" : "4e8", "unit" : "", "event" : "{1}"}}\n'
        events = ("UNC_M_CAS_COUNT.RD", "UNC_M_CAS_COUNT.WR")
        lines = [line.format(n, event) for n in (1, 2) for event in events]
        (folder / "perf.json").write_text("".join(lines))
        words = "pressure", "job=perf.json,run.csv", "--memory-bandwidth", "102.4GB/s"
        done = ppw_inside(*words, cwd=folder)
        # 2 · 4e8 lines of 64 B in a second.
        assert "job: memory bandwidth medium: memory bandwidth 50 % of 102.4 GB/s" in done.stdout
        assert "job: disk medium" in done.stdout

    @pytest.mark.cases(
        "words, code, what",
        (["none.csv"], 1, "No such file"),
        (["a=run.csv", "a=run.csv"], 2, "two logs are called 'a'"),
        (["a="], 2, "names no log"),
        (["a=run.csv", "b=cache.csv", "--operations", "5"], 2, "of one workload"),
        (["run.csv", "--cpus", "0"], 2, "range x>0"),
        (["run.csv", "--thresholds", "none.toml"], 1, "none.toml: cannot be read"),
    )
    def test_refused(self, folder, words, code, what):
        refused(ppw_inside("pressure", *words, cwd=folder), what, code=code)


# Awasthi et al. (2015): the matrix from figures typed from the text, words apart.

# What the paper concludes: where each application presses.
POINTS = {"Memcache": {"memory", "network"}, "Cassandra": {"disk"}, "Redis": {"network"}}
POINTS |= {"Nutch": {"cpu", "disk"}, "Data analytics": {"cpu"}}


def cells(basis):
    table = published_matrix()
    rows = table[table["basis"] == basis].set_index(["application", "resource"])
    return rows["level"].to_dict()


def test_cells_with_a_figure():
    assert cells("figure") == {
        ("Memcache", "memory_bandwidth"): "low",
        ("Memcache", "network"): "high",
        ("Redis", "memory_bandwidth"): "low",
        ("Cassandra", "disk"): "high",
        ("Cassandra", "network"): "low",
        ("Nutch", "cpu"): "high",
        ("Nutch", "disk"): "high",
        ("Data analytics", "memory_bandwidth"): "low",
    }


def test_figures_and_words_give_the_published_points():
    found = {name: set() for name in APPLICATIONS}
    for (application, resource), level in {**cells("figure"), **cells("word")}.items():
        assert level in ("low", "high")
        if level == "high":
            found[application].add(resource)
    assert found == POINTS
    assert set(cells("word")) == {(w.application, w.resource) for w in WORDS}
    others = list(cells("not measured").values())
    assert others == ["not measured"] * (len(APPLICATIONS) * len(RESOURCES) - 8 - len(WORDS))


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_no_figure_is_near_a_threshold(factor):
    """Thresholds a tenth off either way give the same levels: they were not fitted."""
    moved = {n: {"medium": t.medium * factor, "high": t.high * factor} for n, t in DEFAULTS.items()}
    table = published_matrix(cap.Thresholds().with_others(moved, "moved"))
    assert list(table["level"]) == list(published_matrix()["level"])


KINDS = ("CoLocation", "Pairing", "PressureMatrix", "RightSizing", "SweepKnees")


@pytest.mark.parametrize("kind", KINDS)
def test_documents_without_types_of_columns_are_read(kind, results):
    result = results(kind)
    document = json.loads(result.to_json())
    del document["columns"]
    again = type(result).from_json(json.dumps(document))
    assert again.summary() == result.summary()
    pd.testing.assert_frame_equal(again.to_frame(), result.to_frame(), check_dtype=False)
