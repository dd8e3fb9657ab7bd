"""`ppw.validate`: errors worked by hand, what may be learnt from, measured third-party tables.

What holds for any interval is asked of each; a posterior's own intervals are in test_intervals.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_up import answered, any_interval, ols_interval, only, sweep

import ppw
from ppw.errors import PpwError
from ppw.projection.validation import summarise

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


@pytest.fixture(scope="module")
def result():
    return straight(BY_HAND, train=["1GHz", "2GHz"], test="4GHz")


class TestWorkedByHand:
    def test_groups(self, result):
        frame = result.to_frame()
        assert list(frame["workload"]) == ["a", "b", "c", "d"]
        assert list(frame["projected"]) == pytest.approx([15, 13, 11.25, 6.25], rel=1e-12)
        assert list(frame["measured"]) == [16, 10.4, 11.25, 6]
        errors = [-6.25, 25, 0, 100 * 0.25 / 6]
        assert list(frame["error_pct"]) == pytest.approx(errors, abs=1e-9)
        assert list(frame["inverse_frequency"]) == [10, 11, 5.75, 3.75]
        assert list(frame["unscaled"]) == [20, 22, 11.5, 7.5]
        assert result.worst_error_pct() == pytest.approx(25)
        assert frame[["lower", "upper", "covered"]].isna().all(axis=None)
        assert "(4 of 4 projections)" in only(result.caveats, "no interval")
        text = result.summary()
        title = "Projected against measured, learnt at 1 GHz, 2 GHz, tested at 4 GHz"
        assert text.startswith(title)
        assert all(f"caveat: {c}" in text for c in result.caveats)

    def test_summary_numbers(self, result):
        summary = result.summary_by_metric["time"]
        small = 100 * 0.25 / 6
        expected = {
            "n": 4,
            "median_ape": (small + 6.25) / 2,
            "p90_ape": np.percentile([6.25, 25, 0, small], 90),
            "mean_ape": (6.25 + 25 + 0 + small) / 4,
            "max_ape": 25,
            "bias_pct": (-6.25 + 25 + 0 + small) / 4,
            "within_10pct": 0.75,
            "with_interval": 0,
        }
        assert {k: summary[k] for k in expected} == pytest.approx(expected, rel=1e-9)
        assert summary["coverage"] is None
        frame = result.to_frame()
        for share, off in ((1.0, 1.0999), (0.0, 1.1001)):
            other = frame.assign(measured=frame["projected"] / off)
            assert summarise(other)["time"]["within_10pct"] == share

    def test_naive_baselines(self, result):
        baselines = result.summary_by_metric["time"]["baselines"]
        # Off by these percents; a time of 22 s at 2 GHz becomes 11 s, or stays, against 10.4 s.
        clock = [-37.5, 100 * (11 / 10.4 - 1), 100 * (5.75 / 11.25 - 1), -37.5]
        stall = [25, 100 * (22 / 10.4 - 1), 100 * (11.5 / 11.25 - 1), 25]
        for name, errors, median in (("inverse_frequency", clock, 37.5), ("unscaled", stall, 25)):
            found = baselines[name]
            assert found["median_ape"] == pytest.approx(median)
            assert found["bias_pct"] == pytest.approx(sum(errors) / 4)
            assert found["max_ape"] == pytest.approx(max(map(abs, errors)))
            assert found["within_10pct"] == 0.25

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
        # They start from the nearest frequency learnt.
        down = validate(BY_HAND, train=["2GHz", "4GHz"], test="1GHz").to_frame()
        assert list(down["inverse_frequency"]) == [40, 44, 23, 15]


class TestIntervals:
    @pytest.mark.parametrize("repeats", [1, 2, 3])
    def test_mean_of_repeats_against_statsmodels(self, repeats):
        runs = RUNS[RUNS["workload"] == "sort"].assign(repeat=[0, 1, 2] * 4)
        runs = runs[(runs["freq_ghz"] < 2.4) | (runs["repeat"] < repeats)]
        (row,) = straight(runs, metric="time", level=0.8).to_frame().to_dict(orient="records")
        learnt, tested = runs[runs["freq_ghz"] < 2.4], runs[runs["freq_ghz"] == 2.4]
        x, y = 1 / learnt["freq_ghz"].to_numpy(), learnt["time_s"].to_numpy()
        expected = ols_interval(x, y, 1 / 2.4, level=0.8, repeats=repeats)
        got = [row["projected"], row["lower"], row["upper"]]
        assert got == pytest.approx(expected, rel=1e-10)
        assert row["measured"] == pytest.approx(tested["time_s"].mean(), rel=1e-14)
        assert row["runs"] == repeats
        assert row["covered"] == (row["lower"] <= row["measured"] <= row["upper"])

    def test_coverage_counts_the_covered(self):
        result = validate(metric=["time", "power", "cpi"], level=0.5)
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


@any_interval
def test_a_step_that_was_rounded_is_one_step(interval):
    # 2.4 GHz by one counter and 2.3992 GHz by another: the second run must not be learnt from.
    there = RUNS["freq_ghz"] == 2.4
    rounded = RUNS["freq_ghz"].mask(there & (RUNS.index % 2 == 1), 2.3992)
    runs = RUNS.assign(freq_ghz=rounded)
    changed = runs.assign(time_s=runs["time_s"].mask(there, 100.0))
    options = {"metric": "time", "interval": interval}
    frames = [validate(r, **options).to_frame() for r in (runs, changed)]
    assert set(frames[0]["freq_hz"]) == {2.4e9, 2.3992e9}
    assert list(frames[0]["projected"]) == list(frames[1]["projected"])


HOSTS = {"train_host": "rack1", "test_host": "rack2"}


def same_projections(result, table, *frequencies):
    """Compare the projections of a validation at some frequencies with those of a projection."""
    both = (result.groups, table)
    for freq in frequencies:
        found, wanted = (frame.loc[frame["freq_hz"] == freq, "projected"] for frame in both)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


class TestSchemes:
    def test_highest_of_each_group_is_the_default(self):
        given_, left_out = validate(train=LEARN, test=TEST), validate()
        assert left_out.scheme == "each group's highest frequency left out"
        pd.testing.assert_frame_equal(left_out.groups, given_.groups)
        assert given_.scheme == "learnt at 1.2 GHz, 1.6 GHz, 2 GHz, tested at 2.4 GHz"
        runs = RUNS[(RUNS["workload"] != "wc") | (RUNS["freq_ghz"] < 2.4)]
        frame = validate(runs, metric="time").to_frame()
        highest = {"grep": 2.4e9, "sort": 2.4e9, "wc": 2.0e9}
        assert dict(zip(frame["workload"], frame["freq_hz"], strict=True)) == highest

    @pytest.mark.parametrize("interval", ["bayes", "t"])
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

    @pytest.mark.parametrize("frequencies", [iter, ",".join])
    def test_frequencies_come_in_an_iterator_or_in_one_text(self, frequencies):
        result = straight(train=frequencies(LEARN), test=frequencies([TEST]), metric="time")
        assert result.to_json() == straight(train=LEARN, test=TEST, metric="time").to_json()

    def test_from_one_host_to_another(self):
        # The second host takes exactly 1.25 times as long.
        slow = RUNS.assign(host="rack2", time_s=RUNS["time_s"] * 1.25)
        both = pd.concat([RUNS, slow])
        result = straight(both, **HOSTS, metric="time")
        assert result.by == ("family", "workload", "cores")
        assert result.scheme == "learnt on rack1, tested on rack2"
        asked = {"freq": ["1.2GHz", "2.4GHz"], "metric": "time", "interval": "t"}
        alone = answered(ppw.project, RUNS, **asked).table
        same_projections(result, alone, 1.2e9, 2.4e9)
        # The curve is of one host, so nothing of another is in it.
        assert result.caveats == ()
        other = both.assign(family=both["host"])
        narrow = straight(other, **HOSTS, train=LEARN, test=TEST, by=["workload"], metric="time")
        assert len(narrow.groups) == 3
        assert narrow.groups["error_pct"].median() == pytest.approx(-20, abs=2)
        assert only(narrow.caveats, "family mismatch")

    def test_each_host_in_turn(self):
        hosts = [sweep(host=f"rack{i}", seed=i) for i in range(3)]
        result = straight(pd.concat(hosts), scheme="host", metric="time")
        assert len(result.groups) == 3 * 3 * 4
        options = {"metric": "time", "by": ["family", "workload", "cores"], "interval": "t"}
        rest = answered(ppw.project, pd.concat(hosts[1:]), freq="1.2GHz", **options)
        same_projections(replace(result, groups=result.groups[:12]), rest.table, 1.2e9)
        assert only(result.caveats, "runs of several hosts are fitted as one curve")

    def test_a_metric_that_was_not_measured_at_the_test_frequency(self):
        # Group b was never measured in watts, and group a never at 3 GHz.
        runs = pd.DataFrame({"workload": list("aaabbb"), "freq_ghz": [1, 2, 2.5, 1, 2, 3]})
        runs = runs.assign(time_s=[9, 5, 4.2, 9, 5, 4], power_w=[10, 20, 25, None, None, None])
        result = validate(runs, train=["1GHz", "2GHz"], test="3GHz")
        assert list(result.summary_by_metric) == ["time"]


def test_via_ratio_is_one_regression_on_the_quotient():
    runs = sweep(noise=0, workloads=("sort",))
    f = np.array([1.2, 1.6, 2.0])
    slope, intercept = np.polyfit(1 / f, (9 + 60 / f) * (20 + 15 * f), 1)
    asked = {"metric": "perf_per_watt", "via": "ratio", "interval": "t"}
    alone = answered(ppw.project, runs[runs["freq_ghz"] < 2.4], freq=2.4e9, **asked).table
    for found in (validate(runs, **asked).groups, alone):
        assert found["projected"].item() == pytest.approx(1 / (intercept + slope / 2.4), rel=1e-9)


def test_a_group_without_an_answer_is_counted_and_no_error():
    falling = pd.DataFrame({"freq_ghz": [1.0, 1.5, 2.5], "power_w": [10.0, 4.0, 0.5]})
    result = straight(falling, metric="power")
    summary = result.summary_by_metric["power"]
    assert (summary["n"], summary["without_answer"]) == (0, 1)
    assert np.isnan(result.worst_error_pct())
    assert only(result.caveats, "no answer at 2.5 GHz")
    assert json.loads(result.to_json())["groups"][0]["projected"] is None
    assert "power   0" in ppw.Validation.from_json(result.to_json()).summary()
    assert result.plot().lines


@pytest.mark.cases(
    "wrong, said",
    ({"test": "3.0GHz"}, "no run at 3 GHz; the nearest is at 2.4 GHz"),
    ({"train": [1.2e9, 2.4e9], "test": TEST}, "is in --train and in --test"),
    ({"scheme": "random"}, "'random' is not one of highest, frequency, host"),
    ({"scheme": "host", "test": TEST}, "not both"),
    ({"scheme": "host", "train_host": "rack1", "test_host": "rack1"}, "not both"),
    ({"train_host": "rack1"}, "give both the train host and the test host"),
    ({**HOSTS, "test_host": "rack9"}, "no host 'rack9'; the hosts are rack1"),
    ({"train_host": "rack1", "test_host": "rack1"}, "name two"),
    ({"scheme": "host"}, "needs two hosts; the table has only rack1"),
    ({"runs": BY_HAND, "scheme": "host"}, "no column host: rename the column"),
    ({"train": "1.2GHz", "test": TEST}, "nothing to test"),
    ({"train": 1.2}, "is it in GHz or MHz?"),
    ({"level": 0.0}, "interval level 0.0 is not a share"),
    ({"via": "fit"}, "via 'fit' is not one of fits, ratio"),
    ({"form": "cubic"}, "form 'cubic' is not one of"),
    ({"metric": "pwer"}, "did you mean 'power'?"),
    ({"by": "hots"}, "did you mean 'host'?"),
    ({"runs": "runs.csv", "scheme": "host"}, "runs is a str, not a DataFrame"),
    ({"runs": BY_HAND, "metric": "power"}, "power needs power_w (or energy_j): this table has"),
)
def test_every_bad_argument_is_refused_in_one_line(wrong, said):
    with pytest.raises((PpwError, ppw.MeasurementError)) as refused:
        ppw.validate(**{"runs": RUNS, **wrong})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("interval", ["bayes", "t"])
def test_order_of_the_rows_changes_no_digit(interval):
    options = {"scheme": "frequency", "interval": interval, "metric": "perf_per_watt"}
    shuffled = RUNS.sample(frac=1, random_state=1)
    assert validate(shuffled, **options).to_json() == validate(**options).to_json()


SPLIT = {"train": ["1.2GHz", "1.8GHz"], "test": "2.4GHz", "metric": ["time", "power"]}


@pytest.fixture(scope="module")
def server(data_dir):
    return ppw.read_runs(data_dir / "nornir-repara" / "tidy.csv")


@pytest.mark.thirdparty
class TestMeasuredElsewhere:
    """Frequency sweeps measured by others; see the README of each folder."""

    def test_server_without_its_dirty_workloads(self, server):
        # One is dirty and one a copy, as its README tells.
        clean = server[~server["workload"].isin(["blackscholes", "videoprocessing"])]
        result = straight(clean, keep_all=True, **SPLIT)
        assert only(result.caveats, "power of unknown source")
        summary = result.summary_by_metric
        assert (summary["time"]["n"], summary["power"]["n"]) == (133, 133)
        assert summary["time"]["baselines"]["inverse_frequency"]["median_ape"] > 1.2
        assert summary["time"]["median_ape"] <= 1.2
        assert summary["time"]["p90_ape"] <= 8
        assert summary["power"]["median_ape"] <= 3.3
        assert summary["power"]["p90_ape"] <= 5.2

    def test_cycles_per_instruction_of_a_phone_core(self, data_dir):
        runs = ppw.read_runs(data_dir / "xu3-cbench" / "tidy_runs.csv")
        split = {"train": ["1.0GHz", "1.5GHz"], "test": "2.0GHz", "metric": "cpi"}
        result = straight(runs, keep_all=True, **split)
        summary = result.summary_by_metric["cpi"]
        assert summary["n"] == summary["with_interval"] == 30
        assert summary["median_ape"] <= 0.8
        assert summary["p90_ape"] <= 3

    def test_each_frequency_in_turn_handles_a_dirty_table(self, server):
        dirty = server[(server["workload"] == "blackscholes") & (server["freq_hz"] < 1.55e9)]
        result = straight(dirty, scheme="frequency", metric=["time", "perf_per_watt"])
        assert {"time", "perf_per_watt"} == set(result.summary_by_metric)
        assert any("left out" in caveat for caveat in result.caveats)
        assert ppw.Validation.from_json(result.to_json()).to_json() == result.to_json()
