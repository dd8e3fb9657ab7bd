"""`ppw.validate`: errors worked by hand, what may be learnt from, measured third-party tables.

What holds for any interval is asked of each; a posterior's own intervals are in test_intervals.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import answered, any_interval, ols_interval, only, sweep

import ppw
from ppw.errors import PpwError

# Learnt at 1 and 2 GHz: a is 10 + 20/f, b 4 + 36/f, c 11 + 1/f, d 5 + 5/f. At 4 GHz that makes
# 15, 13, 11.25 and 6.25 s.
BY_HAND = pd.DataFrame(
    [
        *(("a", 1, 30), ("a", 2, 20), ("a", 4, 16)),
        *(("b", 1, 40), ("b", 2, 22), ("b", 4, 10.4)),
        *(("c", 1, 12), ("c", 2, 11.5), ("c", 4, 11.25)),
        *(("d", 1, 10), ("d", 2, 7.5), ("d", 4, 6)),
    ],
    columns=["workload", "freq_ghz", "time_s"],
)
RUNS = sweep(repeats=3)
LEARN, TEST = ["1.2GHz", "1.6GHz", "2.0GHz"], "2.4GHz"


def validate(runs=RUNS, **options):
    return answered(ppw.validate, runs, **options)


def straight(runs=RUNS, **options):
    """Validate the least-squares curves, with Student's t."""
    return validate(runs, interval="t", **options)


class TestWorkedByHand:
    @pytest.fixture
    def result(self):
        return straight(BY_HAND, train=["1GHz", "2GHz"], test="4GHz")

    def test_groups(self, result):
        frame = result.to_frame()
        assert list(frame["workload"]) == ["a", "b", "c", "d"]
        assert list(frame["projected"]) == pytest.approx([15, 13, 11.25, 6.25], rel=1e-12)
        assert list(frame["measured"]) == [16, 10.4, 11.25, 6]
        errors = [-6.25, 25, 0, 100 * 0.25 / 6]
        assert list(frame["error_pct"]) == pytest.approx(errors, abs=1e-9)
        assert list(frame["inverse_frequency"]) == [10, 11, 5.75, 3.75]
        assert list(frame["unscaled"]) == [20, 22, 11.5, 7.5]

    def test_summary_numbers(self, result):
        summary = result.summary_by_metric["time"]
        small = 100 * 0.25 / 6
        expected = {
            "n": 4,
            "median_ape": (small + 6.25) / 2,
            "p90_ape": 6.25 + 0.7 * (25 - 6.25),
            "mean_ape": (6.25 + 25 + 0 + small) / 4,
            "max_ape": 25,
            "bias_pct": (-6.25 + 25 + 0 + small) / 4,
            "within_10pct": 0.75,
        }
        assert {k: summary[k] for k in expected} == pytest.approx(expected, rel=1e-9)
        assert summary["p90_ape"] == pytest.approx(np.percentile([6.25, 25, 0, small], 90))
        assert summary["coverage"] is None
        assert summary["with_interval"] == 0

    def test_naive_baselines(self, result):
        baselines = result.summary_by_metric["time"]["baselines"]
        by_clock, unscaled = baselines["inverse_frequency"], baselines["unscaled"]
        # Off by these percents; a time of 22 s at 2 GHz becomes 11 s, or stays, against 10.4 s.
        clock_errors = [-37.5, 100 * (11 / 10.4 - 1), 100 * (5.75 / 11.25 - 1), -37.5]
        stall_errors = [25, 100 * (22 / 10.4 - 1), 100 * (11.5 / 11.25 - 1), 25]
        assert by_clock["median_ape"] == pytest.approx(37.5)
        assert by_clock["bias_pct"] == pytest.approx(sum(clock_errors) / 4)
        assert by_clock["within_10pct"] == 0.25
        assert unscaled["median_ape"] == pytest.approx(25)
        assert unscaled["max_ape"] == pytest.approx(max(stall_errors))
        assert unscaled["within_10pct"] == 0.25

    def test_json_shape(self, result):
        document = json.loads(result.to_json())
        assert document["schema_version"] == 1
        group = document["groups"][0]
        assert {"workload", "metric", "unit", "freq_hz", "projected", "measured"} <= set(group)
        assert {"error_pct", "lower", "upper", "covered"} <= set(group)
        assert [group[k] for k in ("metric", "lower", "upper", "covered")] == [
            *("time", None, None, None)
        ]
        keys = ["n", "median_ape", "p90_ape", "mean_ape", "max_ape", "bias_pct"]
        assert set(document["summary"]["time"]) >= {*keys, "within_10pct", "coverage"}

    def test_worst_error(self, result):
        assert result.worst_error_pct() == pytest.approx(25)

    @pytest.mark.parametrize(
        ("metric", "by_clock", "by_stall"),
        [("power", 2.0, 1.0), ("cpi", 1.0, 2.0), ("throughput", 2.0, 1.0), ("time", 0.5, 1.0)],
    )
    def test_baselines_of_each_metric(self, metric, by_clock, by_stall):
        column = {"power": "power_w", "time": "time_s", "throughput": "throughput_ops_s"}
        runs = pd.DataFrame({"freq_ghz": [1, 2, 4], column.get(metric, "cpi"): [10, 11, 12]})
        frame = validate(runs, metric=metric).to_frame()
        assert frame["inverse_frequency"].item() == pytest.approx(11 * by_clock)
        assert frame["unscaled"].item() == pytest.approx(11 * by_stall)

    def test_baselines_start_from_the_nearest_frequency_learnt(self):
        down = validate(BY_HAND, train=["2GHz", "4GHz"], test="1GHz").to_frame()
        assert list(down["inverse_frequency"]) == [40, 44, 23, 15]


class TestIntervals:
    @pytest.mark.parametrize("repeats", [1, 2, 3])
    def test_mean_of_repeats_against_statsmodels(self, repeats):
        runs = RUNS[RUNS["workload"] == "sort"].assign(repeat=[0, 1, 2] * 4)
        runs = runs[(runs["freq_ghz"] < 2.4) | (runs["repeat"] < repeats)]
        (row,) = straight(runs, metric="time", level=0.8).to_frame().to_dict(orient="records")
        learnt, tested = runs[runs["freq_ghz"] < 2.4], runs[runs["freq_ghz"] == 2.4]
        expected = ols_interval(
            1 / learnt["freq_ghz"].to_numpy(),
            learnt["time_s"].to_numpy(),
            1 / 2.4,
            level=0.8,
            repeats=repeats,
        )
        got = [row["projected"], row["lower"], row["upper"]]
        assert got == pytest.approx(expected, rel=1e-10)
        assert row["measured"] == pytest.approx(tested["time_s"].mean(), rel=1e-14)
        assert row["runs"] == repeats
        assert row["covered"] == (row["lower"] <= row["measured"] <= row["upper"])

    @pytest.mark.parametrize("interval", ["bayes", "t"])
    def test_coverage_counts_the_covered(self, interval):
        result = validate(metric=["time", "power", "cpi"], level=0.5, interval=interval)
        for name, summary in result.summary_by_metric.items():
            rows = result.groups[result.groups["metric"] == name]
            inside = (rows["lower"] <= rows["measured"]) & (rows["measured"] <= rows["upper"])
            assert summary["coverage"] == pytest.approx(inside.mean())
            assert summary["with_interval"] == 3

    def test_coverage_of_many_made_up_hosts_is_its_level(self):
        runs = pd.concat([sweep(host=f"n{i}", seed=i, repeats=3) for i in range(40)])
        summary = straight(runs, metric=["power", "energy"], level=0.8).summary_by_metric
        # Of 120 independent projections at 80 %, three standard errors are 11 %.
        assert summary["power"]["coverage"] == pytest.approx(0.8, abs=0.11)
        assert summary["energy"]["coverage"] == pytest.approx(0.8, abs=0.11)


class TestTestRowsAreNotSeen:
    @any_interval
    @pytest.mark.parametrize("via", ["fits", "ratio"])
    @pytest.mark.parametrize("scheme", [{}, {"train": LEARN, "test": TEST}, {"train": LEARN}])
    def test_other_measurements_there_leave_every_projection_as_it_was(self, scheme, via, interval):
        there = RUNS["freq_ghz"] == 2.4
        factor = np.where(there, np.linspace(0.2, 5, len(RUNS)), 1.0)
        changed = RUNS.assign(
            time_s=RUNS["time_s"] * factor,
            power_w=RUNS["power_w"] / factor**3,
            cycles=RUNS["cycles"] * factor**2,
        )
        options = {"via": via, "interval": interval, **scheme}
        frames = [validate(r, **options).to_frame() for r in (RUNS, changed)]
        seen = ["projected", "lower", "upper", "inverse_frequency", "unscaled"]
        pd.testing.assert_frame_equal(frames[0][seen], frames[1][seen], check_exact=True)
        assert (frames[0]["measured"] != frames[1]["measured"]).all()

    @any_interval
    def test_a_step_that_was_rounded_is_one_step(self, interval):
        # 2.4 GHz by one counter and 2.3992 GHz by another: the second run must not be learnt from.
        rounded = RUNS["freq_ghz"].where((RUNS["freq_ghz"] < 2.4) | (RUNS.index % 2 == 0), 2.3992)
        jittered = RUNS.assign(freq_ghz=rounded)
        changed = jittered.assign(
            time_s=jittered["time_s"].where(jittered["freq_ghz"] < 2.3, 100.0)
        )
        options = {"metric": "time", "interval": interval}
        frames = [validate(r, **options).to_frame() for r in (jittered, changed)]
        assert set(frames[0]["freq_hz"]) == {2.4e9, 2.3992e9}
        assert list(frames[0]["projected"]) == list(frames[1]["projected"])

    def test_repeats_there_sharpen_the_measurement_only(self):
        few = RUNS[(RUNS["freq_ghz"] < 2.4) | ~RUNS.duplicated(["workload", "freq_ghz"])]
        one, three = (straight(r, metric="time").to_frame() for r in (few, RUNS))
        assert list(one["projected"]) == list(three["projected"])
        assert (three["upper"] < one["upper"]).all()


class TestSchemes:
    @any_interval
    def test_highest_is_the_default(self, interval):
        given_ = validate(train=LEARN, test=TEST, interval=interval)
        left_out = validate(interval=interval)
        assert left_out.scheme == "each group's highest frequency left out"
        pd.testing.assert_frame_equal(left_out.groups, given_.groups)
        assert given_.scheme == "learnt at 1.2 GHz, 1.6 GHz, 2 GHz, tested at 2.4 GHz"

    def test_highest_is_each_groups_own(self):
        runs = RUNS[(RUNS["workload"] != "wc") | (RUNS["freq_ghz"] < 2.4)]
        frame = validate(runs, metric="time").to_frame()
        assert dict(zip(frame["workload"], frame["freq_hz"], strict=True)) == {
            "grep": 2.4e9,
            "sort": 2.4e9,
            "wc": 2.0e9,
        }

    @any_interval
    def test_each_frequency_in_turn(self, interval):
        options = {"metric": "time", "interval": interval}
        result = validate(scheme="frequency", **options)
        frame = result.to_frame()
        assert len(frame) == 12
        assert not frame.duplicated(["workload", "freq_hz"]).any()
        one = frame[frame["freq_hz"] == 1.6e9]
        alone = validate(train=["1.2GHz", "2GHz", "2.4GHz"], test="1.6GHz", **options)
        np.testing.assert_allclose(one["projected"], alone.groups["projected"], rtol=1e-12)

    def test_one_side_alone_means_all_the_rest(self):
        assert len(validate(train=["1.2GHz", "1.6GHz"], metric="time").groups) == 6
        assert len(validate(test=["1.2GHz", "1.6GHz"], metric="time").groups) == 6

    def test_an_iterator_of_frequencies_is_read_once(self):
        result = validate(train=iter(LEARN), test=iter([TEST]))
        assert result.to_json() == validate(train=LEARN, test=TEST).to_json()

    def test_from_one_host_to_another(self):
        # The second host takes exactly 1.25 times as long.
        slow = RUNS.assign(host="rack2", time_s=RUNS["time_s"] * 1.25)
        both = pd.concat([RUNS, slow])
        result = straight(both, train_host="rack1", test_host="rack2", metric="time")
        assert result.by == ("family", "workload", "cores")
        assert result.scheme == "learnt on rack1, tested on rack2"
        asked = {"freq": ["1.2GHz", "2.4GHz"], "metric": "time", "interval": "t"}
        alone = answered(ppw.project_runs, RUNS, **asked).table
        frame = result.to_frame()
        for freq in (1.2e9, 2.4e9):
            np.testing.assert_allclose(
                frame.loc[frame["freq_hz"] == freq, "projected"],
                alone.loc[alone["freq_hz"] == freq, "projected"],
                rtol=1e-12,
            )
        # The curve is of one host, so nothing of another is in it.
        assert result.caveats == ()
        narrow = straight(
            both, train_host="rack1", test_host="rack2", train=LEARN, test=TEST, metric="time"
        )
        assert len(narrow.groups) == 3
        assert narrow.groups["error_pct"].median() == pytest.approx(-20, abs=2)

    def test_from_one_family_to_another_is_a_caveat(self):
        both = pd.concat([RUNS, RUNS.assign(host="rack2", family="Zen 5")])
        result = validate(
            both, train_host="rack1", test_host="rack2", by=["workload"], metric="time"
        )
        assert only(result.caveats, "family mismatch")

    def test_each_host_in_turn(self):
        hosts = [sweep(host=f"rack{i}", seed=i) for i in range(3)]
        result = straight(pd.concat(hosts), scheme="host", metric="time")
        assert len(result.groups) == 3 * 3 * 4
        learnt = answered(
            ppw.project_runs,
            pd.concat(hosts[1:]),
            freq="1.2GHz",
            metric="time",
            by=["family", "workload", "cores"],
            interval="t",
        )
        first = result.groups.iloc[:12]
        np.testing.assert_allclose(
            first.loc[first["freq_hz"] == 1.2e9, "projected"],
            learnt.table["projected"],
            rtol=1e-12,
        )
        assert only(result.caveats, "one baseline goes through several hosts")

    def test_a_metric_that_was_not_measured_at_the_test_frequency(self):
        # Group b was never measured in watts, and group a never at 3 GHz.
        runs = pd.DataFrame(
            {
                "workload": list("aaabbb"),
                "freq_ghz": [1, 2, 2.5, 1, 2, 3],
                "time_s": [9, 5, 4.2, 9, 5, 4],
                "power_w": [10, 20, 25, None, None, None],
            }
        )
        result = validate(runs, train=["1GHz", "2GHz"], test="3GHz")
        assert list(result.summary_by_metric) == ["time"]


class TestViaRatio:
    def test_one_regression_on_the_quotient(self):
        runs = sweep(noise=0, workloads=("sort",))
        f = np.array([1.2, 1.6, 2.0])
        slope, intercept = np.polyfit(1 / f, (9 + 60 / f) * (20 + 15 * f), 1)
        frame = straight(runs, metric="perf_per_watt", via="ratio").to_frame()
        assert frame["projected"].item() == pytest.approx(1 / (intercept + slope / 2.4), rel=1e-9)
        product = straight(runs, metric="perf_per_watt").to_frame()
        assert product["error_pct"].item() == pytest.approx(0, abs=1e-9)


class TestNoAnswer:
    @pytest.fixture
    def result(self):
        falling = pd.DataFrame({"freq_ghz": [1.0, 1.5, 2.5], "power_w": [10.0, 4.0, 0.5]})
        return straight(falling, metric="power")

    def test_it_is_counted_and_not_an_error(self, result):
        assert result.summary_by_metric["power"]["n"] == 0
        assert result.summary_by_metric["power"]["without_answer"] == 1
        assert math.isnan(result.worst_error_pct())
        assert only(result.caveats, "no answer at 2.5 GHz")
        assert json.loads(result.to_json())["groups"][0]["projected"] is None

    def test_it_can_be_shown(self, result):
        assert "power   0" in result.summary()
        assert result.plot().lines


REFUSED = {
    "no run there": ({"test": "3.0GHz"}, "no run at 3 GHz; the nearest is at 2.4 GHz"),
    "on both sides": ({"train": [1.2e9, 2.4e9], "test": TEST}, "is in --train and in --test"),
    "scheme": ({"scheme": "random"}, "'random' is not one of highest, frequency, host"),
    "scheme and frequencies": ({"scheme": "host", "test": TEST}, "not both"),
    "scheme and hosts": (
        {"scheme": "host", "train_host": "rack1", "test_host": "rack1"},
        "not both",
    ),
    "one host": ({"train_host": "rack1"}, "give both the train host and the test host"),
    "no such host": (
        {"train_host": "rack1", "test_host": "rack9"},
        "no host 'rack9'; the hosts are rack1",
    ),
    "the same host": ({"train_host": "rack1", "test_host": "rack1"}, "name two"),
    "one host only": ({"scheme": "host"}, "takes two hosts; the table has only rack1"),
    "no hosts": (
        {"runs": RUNS.drop(columns="host"), "scheme": "host"},
        "no column host: name it so",
    ),
    "one frequency to learn from": ({"train": "1.2GHz", "test": TEST}, "nothing to test"),
    "frequency in GHz": ({"train": 1.2}, "is it in GHz or MHz?"),
    "level": ({"level": 0.0}, "interval level 0.0 is not a share"),
    "via": ({"via": "fit"}, "via 'fit' is not one of fits, ratio"),
    "form": ({"form": "cubic"}, "form 'cubic' is not one of"),
    "metric": ({"metric": "pwer"}, "did you mean 'power'?"),
    "by": ({"by": "hots"}, "did you mean 'host'?"),
    "a path": ({"runs": "runs.csv", "scheme": "host"}, "runs is a str, not a DataFrame"),
    "no watts at all": (
        {"runs": BY_HAND, "metric": "power"},
        "power needs power_w (or energy_j): this table has time_s but no watts",
    ),
}


@pytest.mark.parametrize(("wrong", "said"), REFUSED.values(), ids=REFUSED)
def test_every_bad_argument_is_refused_in_one_line(wrong, said):
    with pytest.raises((PpwError, ppw.MeasurementError)) as refused:
        ppw.validate(**{"runs": RUNS, **wrong})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


class TestResult:
    @pytest.fixture
    def result(self):
        return straight(BY_HAND.assign(cores=2), train=["1GHz", "2GHz"], test="4GHz")

    def test_json_comes_back(self, result):
        for whole in (result, validate(), straight()):
            again = ppw.Validation.from_json(whole.to_json())
            assert again.to_json() == whole.to_json()
            assert again.summary() == whole.summary()
            assert again.worst_error_pct() == whole.worst_error_pct()

    @pytest.mark.parametrize("text", ["", "[1]", '{"schema_version": 1, "kind": "validation"}'])
    def test_any_other_json_is_refused(self, text):
        with pytest.raises(PpwError):
            ppw.Validation.from_json(text)

    def test_summary_tells_all(self, result):
        text = result.summary()
        assert text.startswith(
            "Projected against measured, learnt at 1 GHz, 2 GHz, tested at 4 GHz"
        )
        assert "no interval" in text
        assert all(f"caveat: {c}" in text for c in result.caveats)

    @any_interval
    @pytest.mark.parametrize("scheme", ["highest", "frequency"])
    def test_order_of_the_rows_changes_no_digit(self, scheme, interval):
        options = {"scheme": scheme, "interval": interval}
        expected = validate(**options).to_json()
        for seed in range(2):
            shuffled = RUNS.sample(frac=1, random_state=seed)
            assert validate(shuffled, **options).to_json() == expected

    def test_caveats_count_projections(self, result):
        assert "(4 of 4 projections)" in only(result.caveats, "no interval")


@pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")
@any_interval
@settings(max_examples=30)
@given(times=st.lists(st.floats(0.01, 100), min_size=3, max_size=3), factor=st.floats(0.1, 10))
def test_units_of_the_measurements_change_no_error(times, factor, interval):
    runs = pd.DataFrame({"freq_ghz": [1.0, 2.0, 3.0], "time_s": times})
    scaled = runs.assign(time_s=runs["time_s"] * factor)
    # In other units the times have other digits, by which copies are known.
    options = {"interval": interval, "keep_all": True}
    projected = [ppw.validate(r, **options).groups["projected"].item() for r in (runs, scaled)]
    # A posterior's median is found to a small share of its width.
    rel = 1e-3 if interval == "bayes" else 1e-6
    assert projected[1] == pytest.approx(projected[0] * factor, rel=rel)


SPLIT = {"train": ["1.2GHz", "1.8GHz"], "test": "2.4GHz", "metric": ["time", "power"]}
# One is dirty and one a copy, as its README tells.
TRAPS = ("blackscholes", "videoprocessing")


@pytest.fixture(scope="module")
def server(data_dir):
    return ppw.read_runs(data_dir / "nornir-repara" / "tidy.csv")


@pytest.mark.thirdparty
class TestMeasuredElsewhere:
    """Frequency sweeps measured by others; see the README of each folder."""

    def test_a_whole_server_table(self, server):
        result = straight(server, keep_all=True, **SPLIT)
        summary = result.summary_by_metric
        assert (summary["time"]["n"], summary["power"]["n"]) == (178, 178)
        assert (
            summary["time"]["median_ape"]
            < summary["time"]["baselines"]["inverse_frequency"]["median_ape"]
        )
        assert only(result.caveats, "watts of unknown source")

    def test_server_without_its_dirty_workloads(self, server):
        clean = server[~server["workload"].isin(TRAPS)]
        summary = straight(clean, keep_all=True, **SPLIT).summary_by_metric
        assert (summary["time"]["n"], summary["power"]["n"]) == (133, 133)
        assert summary["time"]["median_ape"] <= 1.2
        assert summary["time"]["p90_ape"] <= 8
        assert summary["power"]["median_ape"] <= 3.3
        assert summary["power"]["p90_ape"] <= 5.2

    def test_cycles_per_instruction_of_a_phone_core(self, data_dir):
        runs = ppw.read_runs(data_dir / "xu3-cbench" / "tidy_runs.csv")
        split = {"train": ["1.0GHz", "1.5GHz"], "test": "2.0GHz", "metric": "cpi"}
        result = straight(runs, keep_all=True, **split)
        summary = result.summary_by_metric["cpi"]
        assert summary["n"] == 30
        assert summary["median_ape"] <= 0.8
        assert summary["p90_ape"] <= 3
        assert summary["with_interval"] == 30

    @pytest.mark.parametrize("scheme", ["highest", "frequency"])
    def test_every_scheme_handles_a_whole_table(self, server, scheme):
        result = straight(server, scheme=scheme)
        assert {"time", "power", "energy", "perf_per_watt"} <= set(result.summary_by_metric)
        assert ppw.Validation.from_json(result.to_json()).to_json() == result.to_json()


def test_clocks_in_one_text_are_those_in_a_list():
    options = {"test": "2.4GHz", "metric": "time"}
    one, other = (
        answered(ppw.validate, sweep(), train=train, **options)
        for train in ("1.2GHz,1.6GHz", ["1.2GHz", "1.6GHz"])
    )
    pd.testing.assert_frame_equal(one.to_frame(), other.to_frame())
