"""Candidates of a procurement scenario from runs tables: figures, services, sensors' scope."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from made_up import GHZ, WORK, only, sweep
from procurement_scenarios import asked, inputs_of, row_of, scenario, server

import ppw
from ppw.errors import PpwError


def two_hosts():
    one = sweep(noise=0.01, seed=1, host="rack1")
    other = sweep(noise=0.01, seed=2, host="rack2").assign(price=5000.0)
    other["time_s"] /= 1.6
    return pd.concat([one, other]).assign(idle_power_w=15.0, power_source="meter:wt310")


def measured(tmp_path, frame, *candidates, workloads=("sort",), **parts):
    """Scenario of runs in a file beside it."""
    frame.to_csv(tmp_path / "runs.csv", index=False)
    table = scenario(*candidates, **parts)
    table["workload"] = [{"name": w, "unit": "jobs", "rate": 5.0} for w in workloads]
    for candidate in table["candidate"]:
        candidate["runs"] = str(tmp_path / "runs.csv")
    return table


def rack(name, **more):
    return {"name": name, "where": {"host": name.split()[0]}, **more}


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    table = measured(
        tmp_path_factory.mktemp("runs"),
        two_hosts(),
        rack("rack1"),
        rack("rack1 at 3.0 GHz", freq="3.0GHz"),
        rack("rack2"),
        workloads=("sort", "wc"),
    )
    return asked(table, draws=1000)


class TestCandidatesFromRuns:
    @pytest.mark.parametrize(
        ("name", "ghz", "faster"),
        [("rack1", 2.4, 1), ("rack1 at 3.0 GHz", 3.0, 1), ("rack2", 2.4, 1.6)],
    )
    def test_rates_and_watts_are_those_that_were_put_in(self, answer, name, ghz, faster):
        figures = inputs_of(answer)
        for workload in ("sort", "wc"):
            fixed, work = WORK[workload]
            rate = figures.loc[f"candidate.{name}.workload.{workload}.rate"]
            watts = figures.loc[f"candidate.{name}.workload.{workload}.power"]
            true = faster / (fixed + work / (ghz * GHZ))
            assert rate["low"] < true < rate["high"]
            assert rate["value"] == pytest.approx(true, rel=0.03)
            assert watts["low"] < 20 + 15 * ghz < watts["high"]

    def test_each_figure_says_who_says_so(self, answer):
        figures = inputs_of(answer)
        labels = {
            "candidate.rack1.workload.sort.rate": "measured",
            "candidate.rack1 at 3.0 GHz.workload.sort.rate": "projected",
            "candidate.rack1.idle_power": "measured",
            "candidate.rack1.price": "given",
            "site.electricity": "given",
            "costs.discount_rate": "default",
        }
        assert figures.loc[list(labels), "label"].to_dict() == labels
        source = figures.loc["candidate.rack1 at 3.0 GHz.workload.sort.rate", "source"]
        assert source == "runs.csv: host rack1, sort at 3 GHz"
        assert any("rack1 at 3.0 GHz: what its runs say is projected" in c for c in answer.caveats)
        assert figures.loc["candidate.rack2.price", "value"] == 5000
        rates = [figures.loc[f"candidate.rack2.workload.{w}.rate", "value"] for w in ("sort", "wc")]
        expected = np.ceil(5 / rates[0] + 5 / rates[1])
        row = answer.candidates.set_index("candidate").loc["rack2"]
        assert row["servers"] == expected
        assert row["servers_lower"] <= expected <= row["servers_upper"]

    def test_a_row_a_candidate_for_the_spreadsheet(self, answer):
        frame = answer.to_frame()
        assert frame["candidate"].tolist() == ["rack1", "rack1 at 3.0 GHz", "rack2"]
        assert not frame.columns.duplicated().any()
        parts = [c for c in frame if c.startswith("cost_") and c != "cost_tco"]
        assert frame[parts].sum(axis=1).round(2).tolist() == frame["cost_tco"].tolist()
        assert {"tco", "tco_lower", "p_best_tco", "perf_per_watt", "servers"} <= set(frame)

    def test_one_group_at_one_clock_twice_is_one_curve(self, tmp_path):
        table = measured(tmp_path, two_hosts(), rack("rack1"), rack("rack1 again"))
        table["candidate"][1]["where"] = {"host": "rack1"}
        result = asked(table)
        assert [result.figure(n, "tco")["p_best"] for n in ("rack1", "rack1 again")] == [0.5, 0.5]

    def test_copies_of_a_core(self, tmp_path):
        one, many = (
            asked(measured(tmp_path, two_hosts(), rack("rack1", copies=n, price=900.0)))
            for n in (1, 4)
        )
        for figure in ("workload.sort.rate", "workload.sort.power", "idle_power"):
            key = f"candidate.rack1.{figure}"
            ratio = inputs_of(many).loc[key, "value"] / inputs_of(one).loc[key, "value"]
            assert ratio == pytest.approx(4)
        assert any("taken 4 times, as if the copies did not slow" in c for c in many.caveats)

    def test_a_typed_candidate_may_stand_before_those_of_runs(self, tmp_path):
        frame = two_hosts()
        frame["family"] = frame["host"].map({"rack1": "Zen 4"})
        table = measured(tmp_path, frame, rack("rack1"), rack("rack2"))
        typed = server("typed") | {"workload": {"sort": {"rate": 1.0, "power": 300.0}}}
        figures = inputs_of(asked(table | {"candidate": [typed, *table["candidate"]]}))
        assert figures.loc["candidate.typed.workload.sort.rate", "value"] == 1.0
        # Nor does it matter that what the one is, is not said of the other.
        for name in ("rack1", "rack2"):
            assert figures.loc[f"candidate.{name}.idle_power", "value"] == 15.0

    def test_typed_figures_take_the_place_of_measured_ones(self, tmp_path):
        typed = rack("rack1", workload={"sort": {"rate": 1.0}}, price=77.0)
        figures = inputs_of(asked(measured(tmp_path, two_hosts(), typed)))
        key = "candidate.rack1.workload.sort"
        assert figures.loc[f"{key}.rate", ["value", "label"]].tolist() == [1.0, "given"]
        assert figures.loc[f"{key}.power", "label"] == "measured"
        assert figures.loc["candidate.rack1.price", "value"] == 77


def rate_limited(**more):
    """Runs at full load and at rates below, as of a service: watts and latency against load."""
    rows = []
    for host, full, watts in (("small", 1000.0, (40.0, 80.0)), ("large", 8000.0, (90.0, 240.0))):
        for load in (0.2, 0.4, 0.6, 0.8, 1.0):
            for repeat in range(2):
                level = load if load == 1 else load * (1 + 0.001 * repeat)
                power = watts[0] + (watts[1] - watts[0]) * np.sqrt(load)
                rows.append((host, 2.4, full * level, power, level, 2e-4 / (1.05 - load)))
        # Too few clients: neither full load nor a rate that was asked for.
        rows.append((host, 2.4, 0.5 * full, watts[1], np.nan, 2e-4))
    columns = ["host", "freq_ghz", "throughput_ops_s", "power_w", "load", "latency_p99_s"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["idle_power_w"] = frame["host"].map({"small": 40.0, "large": 90.0})
    return frame.assign(workload="cache", price=1000.0, power_source="ipmi:dcmi", **more)


def service(tmp_path, frame=None, **workload):
    """Scenario of a service on two hosts, of runs."""
    runs = rate_limited() if frame is None else frame
    table = measured(tmp_path, runs, rack("small"), rack("large"))
    table["workload"] = [{"name": "cache", "unit": "gets", "rate": 10_000.0, **workload}]
    return table


class TestServicesFromRuns:
    def test_full_load_and_power_and_latency_at_a_load_are_taken_from_the_runs(self, tmp_path):
        result = asked(service(tmp_path, latency_p99="0.8ms"))
        figures = inputs_of(result)["value"]
        assert figures["candidate.small.workload.cache.rate"] == pytest.approx(1000, rel=0.02)
        assert figures["candidate.large.workload.cache.power"] == pytest.approx(240, rel=0.02)
        servers = row_of(result, "candidates", "small")["servers"]
        watts = servers * (40 + 40 * np.sqrt(10_000 / (servers * 1000)))
        kwh = row_of(result, "energy", "small")["servers_kwh"]
        assert kwh == pytest.approx(watts * 8.76, rel=0.02)
        # 2e-4/(1.05 − load): 8e-4 at a load of 0.8, the next point is above.
        assert servers == pytest.approx(10_000 / (0.8 * 1000), abs=1)
        assert not any("straight" in c or "not compared" in c for c in result.caveats)

    def test_full_load_alone_makes_a_straight_line(self, tmp_path):
        frame = rate_limited()
        result = asked(service(tmp_path, frame[frame["load"] == 1]))
        assert only(result.caveats, "straight").startswith("the power of small, large is taken")

    def test_latency_is_against_the_rate_where_no_load_is_known(self, tmp_path):
        unknown = rate_limited().assign(load=np.nan)
        result = asked(service(tmp_path, unknown, latency_p99="0.8ms"))
        assert not [c for c in result.caveats if "not compared" in c]

    def test_a_load_never_reached_says_how_to_measure_it(self, tmp_path):
        frame = rate_limited()
        with pytest.raises(PpwError, match="every run is below full load: add runs at load 1"):
            asked(service(tmp_path, frame[frame["load"] < 1]))

    def test_latency_that_was_not_measured_is_none(self, tmp_path):
        unknown = rate_limited().assign(latency_p99_s=np.nan)
        limited = asked(service(tmp_path, unknown, latency_p99="0.8ms", latency_p50="0.8ms"))
        assert not [name for name in inputs_of(limited).index if "latency" in name]
        for name in ("p50", "p99"):
            assert only(limited.caveats, f"small: the limit on latency {name} of cache is not")

    @pytest.mark.parametrize(
        ("limited", "named"), [(True, ["small, cache", "large, cache"]), ("False", [])]
    )
    def test_a_client_that_limits_is_said(self, limited, named, tmp_path):
        result = asked(service(tmp_path, rate_limited(client_limited=limited)))
        assert [c.partition(":")[0] for c in result.caveats if "client" in c] == named

    def test_set_ups_that_are_mixed_up_are_said(self, tmp_path):
        frame = pd.concat([rate_limited(threads_used=1), rate_limited(threads_used=4)])
        frame.loc[frame["threads_used"] == 4, "throughput_ops_s"] *= 3
        table = service(tmp_path, frame)
        assert any("up to 3 times apart, as of several set-ups" in c for c in asked(table).caveats)
        for candidate in table["candidate"]:
            candidate["where"]["threads_used"] = 4
        result = asked(table)
        assert not [c for c in result.caveats if "set-ups" in c]
        rate = inputs_of(result).loc["candidate.small.workload.cache.rate", "value"]
        assert rate == pytest.approx(3000, rel=0.02)


def two_sensors(tmp_path, other="meter:wt310", **more):
    """Scenario of two hosts, each with its sensor."""
    frame = two_hosts()
    frame["power_source"] = frame["host"].map({"rack1": "rapl:package", "rack2": other})
    return measured(tmp_path, frame, rack("rack1", **more), rack("rack2"))


class TestWattsOfDifferentScope:
    def test_are_refused_unless_asked_for_or_made_whole(self, tmp_path):
        table = two_sensors(tmp_path)
        with pytest.raises(PpwError, match=r"not of one scope \(rack1: package, rack2: wall\)"):
            asked(table)
        bare = asked(table | {"mixed_scope": True})
        said = "mixed scope, as asked for: the power is of rack1: package, rack2: wall"
        assert only(bare.caveats, "mixed scope") == said
        whole = asked(two_sensors(tmp_path, beside_power="30W"))
        assert not [c for c in whole.caveats if "scope" in c]
        more = whole.energy["servers_kwh"][0] - bare.energy["servers_kwh"][0]
        servers = whole.candidates["servers"][0]
        assert more == pytest.approx(servers * 30 * 8.76, abs=0.2)

    def test_typed_watts_are_not_of_the_sensor(self, tmp_path):
        typed = {"workload": {"sort": {"power": 70.0}}, "idle_power": 30.0, "power_scope": "wall"}
        assert not [c for c in asked(two_sensors(tmp_path, **typed)).caveats if "scope" in c]

    def test_package_watts_are_no_bill(self, tmp_path):
        result = asked(two_sensors(tmp_path, other="rapl:package"))
        assert only(result.caveats, "add beside_power").startswith("all power is of the pac")

    def test_typed_ones_say_theirs(self):
        silent = server("one")
        del silent["power_scope"]
        said = only(asked(scenario(silent, server("two"))).caveats, "give power_scope")
        assert said.startswith("the scope of the power of one is")
        package = server("three", power_scope="package")
        with pytest.raises(PpwError, match="two: wall, three: package"):
            asked(scenario(server("two"), package))


@pytest.mark.parametrize(
    ("workload", "more", "said"),
    [
        ("sort", {"where": {"host": "rack9"}}, "candidate 'rack1': no run has host 'rack9' (did y"),
        ("sort", {"where": {"hots": "rack1"}}, "candidate 'rack1': "),
        ("sort", {"where": {"family": "Zen 4"}}, "are 2 groups, which differ in host: name one of"),
        ("sort", {"freq": "3.0"}, "is it in GHz or MHz?"),
        ("wcc", {}, "no run of workload 'wcc' (did you mean 'wc'?)"),
    ],
)
def test_runs_that_do_not_answer(workload, more, said, tmp_path):
    table = measured(tmp_path, two_hosts(), rack("rack1") | more, workloads=[workload])
    with pytest.raises((PpwError, ppw.MeasurementError)) as caught:
        asked(table)
    assert said in str(caught.value)


def test_a_host_of_one_clock_has_no_other(tmp_path):
    frame = two_hosts()
    frame = frame[frame["freq_ghz"] == 2.0]
    assert asked(measured(tmp_path, frame, rack("rack1"))).cheapest == "rack1"
    with pytest.raises(PpwError, match=r"candidate 'rack1': measured at 2 GHz only"):
        asked(measured(tmp_path, frame, rack("rack1", freq="2.4GHz")))
