"""Tables with the least that a question takes, rows left out, and more rows than a screen holds."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cpio_studies import run, study
from made_up import answered, only, sweep
from processes import ppw_inside
from recordings import recording

import ppw
from measurements.errors import BadRunsError
from ppw.decision.report import best_page, plan_page

ONE = sweep(workloads=("grep",), noise=0.02)
TWO = pd.concat([ONE, sweep(workloads=("grep",), noise=0.02, seed=8, host="rack2")])
LOADS = pd.DataFrame({"load": [0.25, 0.5, 0.75, 1.0], "power_w": [70.0, 85.0, 101.0, 120.0]})
LOADS["throughput_ops_s"] = 100 * LOADS["load"]
RATES = [1e5, 2e5, 4e5, 4.1e5, 4.2e5]
BY_THREADS = pd.DataFrame({"threads": [1, 2, 4, 8, 16], "throughput_ops_s": RATES})


def knees(runs=BY_THREADS):
    return answered(ppw.find_knees, runs, over="threads", of="throughput")


def cycles_per_io(*rows):
    return answered(ppw.cycles_per_io, pd.DataFrame(rows))


@pytest.mark.parametrize("left_out", ["workload", "time_s", "power_w"])
def test_a_column_that_a_check_needs_is_not_there(left_out):
    bare = ONE.drop(columns=[left_out, "cycles", "instructions"])
    assert answered(ppw.check, bare).suspects == 0


@pytest.mark.parametrize("column", ["simulator", "power_label", "price"])
def test_an_empty_column_is_as_none(column):
    tables = ONE.assign(**{column: None}), ONE.drop(columns=[column], errors="ignore")
    empty, bare = (answered(ppw.project, t, freq=3e9, interval="t") for t in tables)
    assert empty.caveats == bare.caveats


class TestOneGroup:
    def test_is_compared_in_a_sentence_of_its_own_by_prices_of_the_question(self):
        sides, prices = ({"host": "rack1"}, {"host": "rack2"}), {"price_a": 100.0, "price_b": 400.0}
        bare = TWO.drop(columns="price")
        compared = answered(ppw.compare, bare, *sides, draws=200, **prices)
        ratio = compared.table.set_index("metric")["ratio"]
        (said,) = [line for line in compared.verdict() if line.startswith("time: ")]
        assert "geometric mean" not in said
        assert f"A:B is {ratio['time']:.3g} " in said
        assert ratio["perf_per_dollar"] == pytest.approx(4 / ratio["time"], rel=0.02)

    def test_is_planned_in_a_sentence_of_its_own(self):
        planned = answered(ppw.plan, ONE, metric="time", steps="1.2GHz,1.8GHz")
        (said,) = plan_page(planned).verdict
        assert said.lower() == planned.groups["advice"].iloc[0].lower()

    def test_without_watts_has_no_best_of_performance_per_watt(self):
        best = answered(ppw.best, ONE, draws=200)
        blind = replace(best, table=best.table.assign(rises_to_hz=np.nan))
        assert "No power was measured, so perf/W is not known." in best_page(blind).render()


class TestCyclesPerIo:
    def test_runs_of_one_set_up_are_all_runs_and_prefer_no_law(self):
        runs = pd.DataFrame([run() for _ in range(4)]).drop(columns="workload")
        result = answered(ppw.cycles_per_io, runs)
        assert [name for name, _ in result.groups()] == ["all runs"]
        assert result.verdict()[0].startswith("all runs: 10,000 cycles per I/O of 512 B on 1 core,")
        projected = answered(ppw.project_cpio, runs, cores=16)
        assert [name for name, _ in projected.applications()] == ["all runs"]
        assert projected.laws.empty
        assert "preferred" not in projected.summary()

    def test_each_bandwidth_a_workload_was_left_is_a_column_and_a_sentence(self):
        result = cycles_per_io(
            *(
                run(cost * factor, bandwidth_per_core_bytes_s=bandwidth)
                for bandwidth, cost in ((8e9, 1000), (4e9, 1050), (2e9, 1250), (1e9, 1600))
                for factor in (0.995, 1.005)
            )
        )
        assert "bandwidth_per_core_bytes_s" in result.to_frame()
        said = only(result.verdict(), "cpio has risen by 25% at 2 GB/s per core (")
        low, high = said.rpartition("(")[2].rstrip(")").split(" to ")
        assert float(low) < 2 < float(high)
        # One bandwidth alone tells no rise.
        assert cycles_per_io(*[run(bandwidth_per_core_bytes_s=4e9)] * 2).bandwidth.empty

    def test_settings_beyond_cores_have_columns(self):
        result = cycles_per_io(run(cores=2), run(cores=2, hardware_threads=4))
        assert "hardware_threads" in result.to_frame()
        assert any("thread" in name for name in result.header())

    def test_a_workload_without_io_is_said(self):
        idle = run(workload="idle", sectors_read=0.0, sectors_written=0.0)
        assert "idle: no I/O" in cycles_per_io(run(), run(), idle, idle).verdict()


SERVERS = {"data_bytes": 1e15, "time_s": 86400.0, "cores": 16, "server_power_w": 300.0}


class TestServersOfTypedFigures:
    def test_the_network_is_what_is_typed_or_assumed(self):
        assumed, half = (
            answered(ppw.size_servers, cpio=1e4, freq=2e9, network_share=share, **SERVERS)
            for share in (None, 0.5)
        )
        only(assumed.caveats, "each byte read or written is assumed to cross the network once")
        assert not [c for c in half.caveats if "cross the network" in c]
        ratio = half.applications["network_bytes_s"] / assumed.applications["network_bytes_s"]
        assert ratio.tolist() == pytest.approx([0.5] * len(ratio))

    @pytest.mark.parametrize(("base", "gain"), [("full", False), ("measured", True)])
    def test_at_full_utilisation_none_is_left_to_gain(self, base, gain):
        sized = answered(ppw.size_servers, study(), base=(base, "today"), **SERVERS)
        assert ("utilisation to 100 %" in sized.levers["lever"].tolist()) == gain


class TestPowerLoads:
    def test_without_a_run_at_full_load_the_curve_ends_where_runs_do(self):
        result = answered(ppw.power_loads, LOADS[LOADS["load"] < 1], at=[1.0])
        assert result.levels["load"].max() == 0.75
        assert result.forecasts["label"].tolist() == ["extrapolated"]
        only(result.caveats, "power at 100 % load is extrapolated")

    def test_levels_that_are_held_out_show_how_far_the_forecast_is_off(self):
        whole, part = (
            answered(ppw.power_loads, LOADS, at=[0.5], levels=levels)
            for levels in (None, [0.25, 1.0])
        )
        assert whole.forecasts["power_w"].tolist() == [85.0]
        assert part.forecasts["power_w"][0] == pytest.approx(70 + (120 - 70) / 3, rel=0.05)
        assert set(part.levels["load"]) == {0.25, 1.0}

    def test_idle_that_differs_between_runs_is_said(self):
        result = answered(ppw.power_loads, LOADS.assign(idle_power_w=[40.0, 60.0, 41.0, 40.0]))
        only(result.caveats, "idle power differs from 40 to 60 between runs")


class TestRecordings:
    def test_without_a_capacity_nothing_is_judged(self):
        bare = {"without": ("memory_total_bytes", "network_speed_bytes_s[eth0]", "cpus")}
        result = answered(ppw.co_locate, {name: recording(cores=1.0, **bare) for name in "ab"})
        assert result.first == ""
        unjudged = "no resource has both a known demand and a known capacity, so ppw can judge none"
        assert unjudged in result.verdict()

    def test_the_shorter_recording_is_what_is_judged(self):
        pair = {name: recording(cores=1.0, seconds=n) for name, n in (("a", 60), ("b", 20))}
        only(answered(ppw.co_locate, pair).caveats, "only the first 20 s are judged")

    def test_a_container_sees_its_hosts_counters(self):
        series = recording(cores=6.0)
        series.frame["marks"] = "container"
        only(answered(ppw.right_size, series).caveats, "demand is the host's")


class TestKnees:
    def test_other_programs_took_the_cpu_time(self):
        runs = BY_THREADS.assign(limited_by=["", "others", "", "", ""])
        only(knees(runs).caveats, "in 1 of 5 runs other programs used")

    @pytest.mark.parametrize(("sweeps", "named"), [(2, True), (9, False)])
    def test_names_stand_on_a_figure_of_a_few_sweeps_alone(self, sweeps, named):
        runs = pd.concat([BY_THREADS.assign(host=f"h{k}") for k in range(sweeps)])
        assert (knees(runs).plot().get_legend() is not None) == named


class TestRowsLeftOut:
    """Only advice that helps is given."""

    RUNS = sweep(repeats=3)
    BOTH = pytest.mark.parametrize("answer", [ppw.best, ppw.validate])

    @BOTH
    def test_keeping_is_advised_where_it_helps(self, answer):
        achieved = self.RUNS["freq_ghz"].mask(self.RUNS.index == 5, 0.6)
        runs = self.RUNS.assign(freq_achieved_ghz=achieved)
        said = only(answered(answer, runs).caveats, "left out")
        assert said.endswith("--keep-all uses them")
        answered(answer, runs, keep_all=True)

    def test_watts_of_0_do_not_keep_from_what_takes_none(self):
        runs = self.RUNS.assign(freq_achieved_ghz=self.RUNS["freq_ghz"])
        runs.loc[5, "freq_achieved_ghz"], runs.loc[7, "power_w"] = 0.6, 0.0
        said = only(answered(ppw.validate, runs, metric="time").caveats, "left out")
        assert said.endswith("--keep-all uses them")
        answered(ppw.validate, runs, metric="time", keep_all=True)

    @BOTH
    def test_keeping_is_not_advised_where_it_only_fails(self, answer):
        runs = self.RUNS.assign(power_w=self.RUNS["power_w"].mask(self.RUNS.index == 5, -1e-4))
        assert only(answered(answer, runs).caveats, "left out").endswith(
            "correct or drop power of 0 and less, which --keep-all cannot use"
        )
        with pytest.raises(BadRunsError, match=r"row 6, column power_w: -0.0001 must be greater"):
            answer(runs, keep_all=True)

    def test_one_frequency_that_is_left_says_what_was_left_out(self):
        runs = self.RUNS.assign(freq_achieved_ghz=1.2)
        with pytest.raises(ppw.PpwError, match="only one distinct frequency") as refused:
            ppw.best(runs)
        told = "27 rows left out (achieved off); the first, row 4: asked for 1.6 GHz, achieved"
        assert told in str(refused.value)
        with pytest.raises(ppw.PpwError, match="only one distinct frequency") as refused:
            ppw.fit(runs[runs["freq_ghz"] == 1.2])
        assert told not in str(refused.value)

    def test_groups_at_other_frequencies_are_counted_with_what_to_do(self):
        ghz = self.RUNS["freq_ghz"]
        both = self.RUNS.assign(freq_ghz=ghz.where(self.RUNS["workload"] != "wc", ghz + 0.1))
        split = {"train": ("1.2GHz", "1.6GHz"), "test": "2.4GHz", "metric": "time"}
        said = only(answered(ppw.validate, both, interval="t", **split).caveats, "not tested")
        assert said.startswith("1 of 3 groups are not tested")
        assert "--scheme highest" in said
        with pytest.raises(ppw.PpwError, match=r"nothing to test .* --scheme highest, without --t"):
            ppw.validate(both, train=("1.2GHz", "1.3GHz"), test="2.4GHz", metric="time")


class TestLongAnswers:
    """They are cut, and say how much is missing and where it is."""

    @pytest.mark.cases(
        "kind, table, said",
        ("BestFrequency", "table", "… 5 more rows: use --format json or .table"),
        ("Calibration", "table", "… 5 more rows: use --format csv or to_frame()"),
        ("Comparison", "table", "… 5 more rows: use --format csv or to_frame()"),
        ("SweepKnees", "knees", "… 35 more sweeps: --format json or csv"),
        ("Plan", "groups", "… 5 more rows: use --format json or .groups"),
        ("PowerLoads", "figures", "… 5 more rows: use --format json or .figures"),
    )
    def test_the_text_says_how_much_more_there_is(self, kind, table, said, results):
        rows = pd.concat([getattr(results(kind), table).head(1)] * 45, ignore_index=True)
        lines = replace(results(kind), **{table: rows}).summary().splitlines()
        assert said in lines
        assert len(lines) < 130


class TestARowLeftOutDoesNotChangeTheQuestion:
    """Its frequency stays, projected and marked, in every answer that chooses frequencies."""

    RUNS = pd.DataFrame(
        {
            "host": np.repeat(["old", "new"], 3),
            "workload": "sort",
            "freq_ghz": [1.2, 1.8, 2.4] * 2,
            "time_s": [20.1, 14.2, 11240.0, 10.1, 7.2, 5.6],
        }
    )
    SAID = "no row is left of {} at 2.4 GHz: the frequency stays, and what is said of it is"

    def test_best_is_not_at_a_lower_frequency(self):
        found = answered(ppw.best, self.RUNS, objective="time")
        assert list(found.table["best_hz"]) == [2.4e9, 2.4e9]
        assert list(found.steps[found.steps["host"] == "old"]["runs"]) == [1, 1, 0]
        assert only(found.caveats, "no row is left").startswith(self.SAID.format("old, sort"))
        assert len([text for text in found.caveats if "1 row left out" in text]) == 1

    def test_hosts_are_compared_at_one_frequency(self):
        found = answered(ppw.compare, self.RUNS, {"host": "old"}, {"host": "new"})
        assert list(found.table[["a_hz", "b_hz"]].iloc[0]) == [2.4e9, 2.4e9]
        assert found.table["ratio"].iloc[0] == pytest.approx(2.0, rel=0.02)

    def test_the_speed_up_is_not_two_thousand(self):
        found = answered(ppw.characterise, self.RUNS)
        assert found.value("speed-up", "new") == pytest.approx(2.0, rel=0.02)
        own = found.table.set_index(["measure", "host"])
        assert own.loc[("time", "old"), "runs"] == 0
        assert only(found.caveats, "no row is left").startswith(self.SAID.format("sort, old"))
        kept = answered(ppw.characterise, self.RUNS, keep_all=True)
        assert kept.value("speed-up", "new") > 2000

    def test_fit_and_project_use_the_same_rows(self):
        fitted = answered(ppw.fit, self.RUNS)
        projected = answered(ppw.project, self.RUNS, freq=2.4e9)
        assert fitted.table["points"].tolist() == [3, 3, 2, 2]
        assert projected.table["points"].tolist() == [3, 2]
        assert {*projected.caveats} >= {t for t in fitted.caveats if "left" in t}

    def test_a_side_without_a_curve_is_left_out_and_no_other_frequency_taken(self):
        more = self.RUNS.assign(workload="grep")[self.RUNS["freq_ghz"] > 1.2]
        both = pd.concat([self.RUNS, more.replace({"time_s": {14.2: 14200.0, 11240.0: 11.2}})])
        found = answered(ppw.compare, both, {"host": "old"}, {"host": "new"})
        assert set(found.table["a_hz"]) == {2.4e9}


def test_an_idle_host_may_do_nothing():
    idle = pd.DataFrame({"load": 0.0, "power_w": [60.0], "throughput_ops_s": [0.0]})
    found = answered(ppw.power_loads, pd.concat([LOADS, idle]))
    assert found.levels["load"].min() == 0


@pytest.mark.parametrize("more", ["--interval none", "--exponent 2", "--no-pool", "--keep-all"])
def test_an_option_that_has_no_effect_is_not_swallowed(more, tmp_path):
    cores = [sweep(steps=(2.0,)).assign(cores=n, time_s=10 + 90 / n) for n in (1, 2, 4)]
    pd.concat(cores).to_csv(tmp_path / "runs.csv", index=False)
    refused = ppw_inside("project", "runs.csv", "--cores", "16", *more.split(), cwd=tmp_path)
    assert refused.returncode == 2
    assert "has no effect with --cores and --data" in refused.stderr


def test_servers_and_their_interval_are_whole():
    options = {"data_bytes": 1e15, "time_s": 86400.0, "cores": 16, "server_power_w": 300.0}
    sized = answered(ppw.size_servers, study(noise=0.02), **options)
    table, *_ = sized.printed_tables()
    at = table.header.index("servers")
    texts = [text for row in table.rows for text in row[at : at + 2]]
    assert len(texts) >= 2
    assert not any("." in text for text in texts)
