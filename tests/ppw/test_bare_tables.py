"""Tables with the least that a question takes, and with more than one: what is said, and is not."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from cpio_studies import run, study
from made_up import answered, only, sweep
from recordings import recording

import ppw
from ppw.cpio.projection import project_cpio
from ppw.estimate import shown
from ppw.report.best_page import best_page
from ppw.report.plan_page import plan_page

ONE = sweep(workloads=("grep",), noise=0.02)
TWO = pd.concat([ONE, sweep(workloads=("grep",), noise=0.02, seed=8, host="rack2")])
SIDES = {"host": "rack1"}, {"host": "rack2"}
LOADS = pd.DataFrame(
    {
        "load": [0.25, 0.5, 0.75, 1.0],
        "power_w": [70.0, 85.0, 101.0, 120.0],
        "throughput_ops_s": [25.0, 50.0, 75.0, 100.0],
    }
)


class TestChecks:
    @pytest.mark.parametrize("left_out", ["workload", "time_s", "power_w"])
    def test_a_column_that_a_check_needs_is_not_there(self, left_out):
        bare = ONE.drop(columns=[left_out, "cycles", "instructions"])
        assert answered(ppw.check_quality, bare).suspects == 0


class TestEmptyColumns:
    def test_runs_of_no_simulator_are_measured(self):
        for column in ("simulator", "power_label", "price"):
            table = answered(ppw.project_runs, ONE.assign(**{column: None}), freq=3e9)
            bare = ONE.drop(columns=[column], errors="ignore")
            assert table.caveats == answered(ppw.project_runs, bare, freq=3e9).caveats


class TestOneGroup:
    def test_is_compared_in_a_sentence_of_its_own(self):
        result = answered(ppw.compare, TWO, *SIDES, draws=200)
        ratio = result.table.set_index("metric")["ratio"]["time"]
        (said,) = [line for line in result.verdict() if line.startswith("time: ")]
        assert "geometric mean" not in said
        assert shown(ratio) in said

    def test_prices_given_with_the_question_tell_performance_per_dollar(self):
        bare = TWO.drop(columns=["price"])
        prices = {"price_a": 100.0, "price_b": 400.0}
        result = answered(ppw.compare, bare, *SIDES, draws=200, **prices)
        by_metric = result.table.set_index("metric")["ratio"]
        assert by_metric["perf_per_dollar"] == pytest.approx(4 / by_metric["time"], rel=0.02)

    def test_is_planned_in_a_sentence_of_its_own(self):
        result = answered(ppw.plan, ONE, metric="time", steps="1.2GHz,1.8GHz")
        (said,) = plan_page(result).verdict
        assert said.lower() == result.groups["advice"].iloc[0].lower()

    def test_without_watts_has_no_best_of_performance_per_watt(self):
        result = answered(ppw.best_frequency, ONE, draws=200)
        blind = replace(result, table=result.table.assign(rises_to_hz=np.nan))
        assert "There are no watts, so perf/W is not known." in best_page(blind).render()


class TestCyclesPerIo:
    def test_runs_of_one_set_up_are_all_runs(self):
        runs = pd.DataFrame([run() for _ in range(3)]).drop(columns="workload")
        result = answered(ppw.cycles_per_io, runs)
        assert [name for name, _ in result.groups()] == ["all runs"]
        assert result.verdict()[0].startswith("all runs: 10,000 cycles per I/O of 512 B on 1 core")

    def test_runs_of_one_core_count_prefer_no_law(self):
        runs = pd.DataFrame([run() for _ in range(4)]).drop(columns="workload")
        result = answered(project_cpio, runs, cores=16)
        assert [name for name, _ in result.applications()] == ["all runs"]
        assert result.laws.empty
        assert "preferred" not in result.summary()

    def test_each_bandwidth_a_workload_was_left_is_a_column_and_a_sentence(self):
        rows = [
            run(cost, bandwidth_per_core_bytes_s=bandwidth)
            for bandwidth, cost in ((8e9, 1000), (4e9, 1050), (2e9, 1250), (1e9, 1600))
            for cost in (0.995 * cost, 1.005 * cost)
        ]
        result = answered(ppw.cycles_per_io, pd.DataFrame(rows))
        assert "bandwidth_per_core_bytes_s" in result.to_frame()
        said = only(result.verdict(), "cpio has risen by 25% at 2 GB/s a core (")
        low, high = said.rpartition("(")[2].rstrip(")").split(" to ")
        assert float(low) < 2 < float(high)

    def test_one_bandwidth_alone_tells_no_rise(self):
        result = answered(
            ppw.cycles_per_io, pd.DataFrame([run(bandwidth_per_core_bytes_s=4e9)] * 2)
        )
        assert result.bandwidth.empty

    def test_settings_beyond_cores_have_columns(self):
        runs = pd.DataFrame([run(cores=2), run(cores=2, hardware_threads=4)])
        assert "hardware_threads" in answered(ppw.cycles_per_io, runs).to_frame()
        assert any("thread" in name for name in answered(ppw.cycles_per_io, runs).header())

    def test_a_workload_without_io_is_said(self):
        idle = run(workload="idle", sectors_read=0.0, sectors_written=0.0)
        result = answered(ppw.cycles_per_io, pd.DataFrame([run(), run(), idle, idle]))
        assert "idle: no I/O" in result.verdict()


class TestServersOfTypedFigures:
    TYPED: ClassVar = {"cpio": 1e4, "freq": 2e9, "data_bytes": 1e15, "time_s": 86400.0}

    def sized(self, **more):
        return answered(ppw.size_servers, cores=16, server_power_w=300.0, **self.TYPED, **more)

    def test_the_network_is_what_is_typed_or_assumed(self):
        assumed, half = self.sized(), self.sized(network_share=0.5)
        only(assumed.caveats, "each byte read or written is assumed to cross the network once")
        assert not [c for c in half.caveats if "cross the network" in c]
        ratio = half.applications["network_bytes_s"] / assumed.applications["network_bytes_s"]
        assert ratio.tolist() == pytest.approx([0.5] * len(ratio))

    def test_at_full_utilisation_none_is_left_to_gain(self):
        asked = {"data_bytes": 1e15, "time_s": 86400.0, "cores": 16, "server_power_w": 300.0}
        for base, gain in ((("full", "today"), False), (("measured", "today"), True)):
            levers = answered(ppw.size_servers, study(), base=base, **asked).levers["lever"]
            assert ("utilisation to 100 %" in levers.tolist()) == gain


class TestPowerLoads:
    def test_without_a_run_at_full_load_the_curve_ends_where_runs_do(self):
        result = answered(ppw.power_loads, LOADS[LOADS["load"] < 1], at=[1.0])
        assert result.levels["load"].max() == 0.75
        assert result.forecasts["label"].tolist() == ["extrapolated"]
        only(result.caveats, "watts at 100 % load are extrapolated")

    def test_levels_that_are_held_out_show_how_far_the_forecast_is_off(self):
        whole = answered(ppw.power_loads, LOADS, at=[0.5])
        part = answered(ppw.power_loads, LOADS, at=[0.5], levels=[0.25, 1.0])
        assert whole.forecasts["power_w"].tolist() == [85.0]
        assert part.forecasts["power_w"][0] == pytest.approx(70 + (120 - 70) / 3, rel=0.05)
        assert set(part.levels["load"]) == {0.25, 1.0}

    def test_idle_that_differs_between_runs_is_said(self):
        result = answered(ppw.power_loads, LOADS.assign(idle_power_w=[40.0, 60.0, 41.0, 40.0]))
        only(result.caveats, "idle watts differ from 40 to 60 between runs")


class TestCoLocation:
    def test_without_a_capacity_nothing_is_judged(self):
        bare = {"without": ("memory_total_bytes", "network_speed_bytes_s[eth0]", "cpus")}
        pair = {name: recording(cores=1.0, **bare) for name in ("a", "b")}
        result = answered(ppw.co_locate, pair)
        assert result.first == ""
        unjudged = "no resource has both its demand and its capacity: nothing can be judged"
        assert unjudged in result.verdict()

    def test_the_shorter_recording_is_what_is_judged(self):
        pair = {"long": recording(cores=1.0, seconds=60), "short": recording(cores=1.0, seconds=20)}
        result = answered(ppw.co_locate, pair)
        only(result.caveats, "only the first 20 s are judged")


class TestRightSizing:
    def test_a_container_sees_its_hosts_counters(self):
        series = recording(cores=6.0)
        series.frame["marks"] = "container"
        result = answered(ppw.right_size, series)
        only(result.caveats, "demand is the host's")


class TestKnees:
    RATES = (1e5, 2e5, 4e5, 4.1e5, 4.2e5)

    def test_other_programs_took_the_cpu_time(self):
        runs = pd.DataFrame({"threads": [1, 2, 4, 8, 16], "throughput_ops_s": self.RATES})
        runs["limited_by"] = ["", "others", "", "", ""]
        asked = {"over": "threads", "of": "throughput"}
        only(answered(ppw.find_knees, runs, **asked).caveats, "in 1 of 5 runs other programs took")

    def test_names_stand_on_a_figure_of_a_few_sweeps_alone(self):
        runs = pd.DataFrame({"threads": [1, 2, 4, 8, 16], "throughput_ops_s": self.RATES})
        few = pd.concat([runs.assign(host=f"h{k}") for k in range(2)])
        many = pd.concat([runs.assign(host=f"h{k}") for k in range(9)])
        asked = {"over": "threads", "of": "throughput"}
        assert answered(ppw.find_knees, few, **asked).plot().get_legend() is not None
        assert answered(ppw.find_knees, many, **asked).plot().get_legend() is None
