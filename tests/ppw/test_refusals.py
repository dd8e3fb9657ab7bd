"""Questions that have no answer are refused in one line, which says what to do instead."""

from __future__ import annotations

import click
import numpy as np
import pandas as pd
import pytest
from cpio_studies import run, study
from made_traces import busy, trace
from made_up import answered, sweep
from procurement_scenarios import asked, scenario, server
from recordings import recording

import ppw
from ppw.cli.numbers import Counts, Share, Shares
from ppw.cli.quantities import ByteRate, Seconds, Sizes, Watts
from ppw.cpio.projection import project_cpio
from ppw.traces.jobs import jobs_of

POINTS = [(1.6e9, 6.5), (1.8e9, 6.0)]
WATTS = [(1.6e9, 9.0), (1.8e9, 10.0)]
RUNS = sweep(noise=0.02)
BY_THREADS = pd.DataFrame({"threads": [1, 2, 4, 8], "throughput_ops_s": [1e5, 2e5, 4e5, 4.1e5]})
PAIRED = RUNS.assign(meter_power_w=30 + 1.1 * RUNS["power_w"])
LOADS = pd.DataFrame({"load": [0.5, 1.0], "power_w": [80.0, 120.0], "throughput_ops_s": [50, 100]})
# Runs of two programs, of which one was run on each host.
APART = pd.concat(
    [
        sweep(workloads=("grep",), host="rack1").assign(cores=4),
        sweep(workloads=("grep",), host="rack2").assign(cores=8),
    ]
)


def refused(message, function, *arguments, **options):
    with pytest.raises(ppw.PpwError) as error:
        function(*arguments, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "ask",
    [
        lambda level: ppw.cycles_per_io(study(), level=level),
        lambda level: ppw.size_servers(
            study(), data_bytes=1e15, time_s=86400.0, cores=16, server_power_w=300.0, level=level
        ),
        lambda level: ppw.project(POINTS, freq=2e9, level=level),
        lambda level: ppw.project(
            POINTS, freq=2e9, power_pts=WATTS, power_source="meter", level=level
        ),
        lambda level: ppw.PowerLoadCurve.of_levels([0, 0.5, 1], [60, 80, 120]).forecast(
            [0.7], level=level
        ),
        lambda level: ppw.power_loads(LOADS, level=level),
    ],
    ids=["cpio", "servers", "project", "energy", "curve", "power loads"],
)
@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_the_level_of_an_interval_is_a_share(ask, level):
    refused("is not a share between 0 and 1; try 0.90", ask, level)


class TestColumns:
    def test_of_answers_are_no_keys_of_groups(self):
        clash = RUNS.assign(caveats="none")
        refused("rename it", ppw.project_runs, clash, freq=3e9, by=["workload", "caveats"])

    def test_of_a_calibration_are_no_keys_of_its_levels(self):
        options = {"sensor": "rapl:package", "reference": "meter", "by": ["runs"]}
        refused("cannot tell levels apart by 'runs'", ppw.calibrate, PAIRED, **options)

    def test_of_which_no_run_has_both(self):
        empty = LOADS.assign(power_w=[np.nan, 80.0], load=[1.0, np.nan])
        refused("no run has both its load and power_w", ppw.power_loads, empty)
        knees = BY_THREADS.assign(throughput_ops_s=np.nan)
        refused(
            "no run has both threads above 0 and throughput",
            *(ppw.find_knees, knees),
            over="threads",
            of="throughput",
        )


class TestCurves:
    def test_a_straight_line_has_no_exponent(self):
        options = {"freq": 3e9, "power_form": "linear", "exponent": 2.0}
        refused("an exponent takes --power-form cmos", ppw.project_runs, RUNS, **options)


class TestSides:
    def test_each_value_is_there_but_not_together(self):
        sides = {"host": "rack1", "cores": 8}, {"host": "rack2"}
        refused("no run has all of host=rack1, cores=8", ppw.compare, APART, *sides)

    def test_nothing_is_left_to_compare(self):
        bare = APART.drop(columns=["time_s", "power_w", "power_source", "price"])
        sides = {"host": "rack1"}, {"host": "rack2"}
        refused("no time_s, throughput_ops_s or power_w in the runs", ppw.compare, bare, *sides)


class TestPlan:
    def test_a_host_of_the_catalogue_without_steps(self):
        unknown = RUNS.assign(host="no such host")
        refused("give the frequencies it offers with --steps", ppw.plan, unknown, metric="time")


class TestProcurement:
    def test_no_candidate_is_quick_enough(self):
        known = {"rate": [20.0, 100.0], "p99": ["2ms", "5ms"]}
        table = scenario(server("slow", latency=known), workload={"latency_p99": "1ms"})
        refused("no candidate can serve the demand: slow is left out", asked, table)


class TestCoLocation:
    def test_an_empty_recording(self):
        pair = {"a": recording(cores=1.0, seconds=0, name="empty.csv"), "b": recording(cores=1.0)}
        refused("empty.csv: no interval was recorded", ppw.co_locate, pair)


class TestCyclesPerIo:
    def test_a_scenario_that_is_not_one_row(self):
        projected = answered(project_cpio, study(noise=0.02), cores=16)
        refused("rows of full, today", projected.value, "full", "today", workload="no such")

    def test_no_run_did_any_io(self):
        idle = pd.DataFrame([run(cores=n) for n in (1, 2)]).assign(
            sectors_read=0.0, sectors_written=0.0
        )
        refused("did any I/O: measure some to project", project_cpio, idle, cores=16)


class TestTraces:
    def test_no_trace(self):
        refused("no trace was given", ppw.trace_what_if, [], cache_bytes=2**20)

    def test_streams_of_one_request_each(self):
        single = trace(lbn=[0, 8], stream=[0, 1], device=[0, 0])
        refused("there is nothing to learn", ppw.fit_trace, single)

    def test_one_level_to_choose_from(self):
        refused("give 2 or more", ppw.choose_level, busy(200), levels=1)

    def test_the_only_level_has_none_coarser(self):
        model = answered(ppw.fit_trace, busy(200), levels=1)
        refused("down to one level", model.coarser)

    def test_a_replay_of_one_request(self, tmp_path):
        scratch = str(tmp_path / "scratch")
        refused("takes two requests at least", ppw.replay_trace, busy(50), scratch, count=1)

    def test_a_space_shorter_than_two_requests(self):
        model = answered(ppw.fit_trace, busy(200), levels=2)
        refused("is too short for requests of 8192 B", jobs_of, model, space_bytes=4096.0)


class TestOptionTypes:
    @pytest.mark.parametrize(
        ("kind", "text", "said"),
        [
            (Sizes(), "4KiB,0", "has a size of nothing"),
            (Counts(), "1,two", "is not whole numbers of at least 1, such as 1,2,5"),
            (Counts(), "0", "is not whole numbers of at least 1, such as 1,2,5"),
            (Share(), "inf", "is not a share such as 0.7 or 70%"),
            (Share(0, 1), "120%", "1.2 is not in the range"),
            (Shares(0, 1), "50%,-1", "-1.0 is not in the range"),
            (Watts(), "-3W", "is negative"),
            (Seconds(positive=True), "0s", "must be more than 0"),
            (ByteRate(), "10Gb", "may be bits or bytes: write 10Gbit/s or 10GB/s"),
        ],
        ids=lambda value: value if isinstance(value, str) else type(value).__name__,
    )
    def test_a_value_that_cannot_be(self, kind, text, said):
        with pytest.raises(click.BadParameter) as error:
            kind.convert(text, None, None)
        assert said in error.value.message
