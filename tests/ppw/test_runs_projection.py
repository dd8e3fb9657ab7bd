"""`ppw.project_runs`: many groups at once equal each alone, invariances, what is left out.

What holds for any interval is asked of each; a posterior's own intervals are in test_intervals.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import GHZ, STEPS, WORK, answered, any_interval, ols_interval, only, sweep

import ppw
from ppw.errors import PpwError, UnknownColumnError
from ppw.metrics import METRICS

RUNS = sweep()
ANSWERS = ["projected", "lower", "upper", "limit", "limit_share"]
# A posterior's quantiles are found to a small share of their distance.
PRECISION = {"bayes": 1e-4, "t": 1e-9, "none": 1e-9}


def project_runs(runs=RUNS, **options):
    return answered(ppw.project_runs, runs, **{"freq": "3.0GHz", **options})


def straight(runs=RUNS, **options):
    """Project by the least-squares curves, with Student's t."""
    return project_runs(runs, interval="t", **options)


def one(result, **key):
    """Find the one row of a result that a key names."""
    rows = result.to_frame()
    for column, value in key.items():
        rows = rows[rows[column] == value]
    (row,) = rows.to_dict(orient="records")
    return row


class TestGroupByGroup:
    @any_interval
    @pytest.mark.parametrize("metric", ["cpi", "power"])
    def test_equals_project_of_each_group(self, metric, interval):
        together = project_runs(metric=metric, interval=interval, pool=False)
        for workload in WORK:
            runs = RUNS[RUNS["workload"] == workload]
            alone = answered(ppw.project, runs, freq=3e9, interval=interval)
            estimate = alone.cpi if metric == "cpi" else alone.power_w
            row = one(together, workload=workload)
            rtol = PRECISION[interval]
            assert row["projected"] == pytest.approx(estimate, rel=rtol)
            ends = np.array([estimate.lower, estimate.upper], dtype=float)
            assert [row["lower"], row["upper"]] == pytest.approx(ends, rel=rtol, nan_ok=True)
            assert row["limit"] == pytest.approx(estimate.limit, rel=1e-12)

    @any_interval
    @pytest.mark.parametrize("via", ["fits", "ratio"])
    def test_equals_each_group_alone_in_every_metric(self, via, interval):
        options = {"via": via, "freq": ["1.0GHz", "3.0GHz"], "interval": interval, "pool": False}
        together = project_runs(**options).to_frame()
        for workload in WORK:
            alone = project_runs(RUNS[RUNS["workload"] == workload], **options).to_frame()
            rows = together[together["workload"] == workload]
            assert list(rows["metric"]) == list(alone["metric"])
            np.testing.assert_allclose(rows[ANSWERS], alone[ANSWERS], rtol=PRECISION[interval])

    def test_all_metrics_that_the_columns_allow(self):
        metrics = ["time", "cpi", "power", "energy", "perf_per_watt", "perf_per_dollar"]
        assert list(project_runs().to_frame()["metric"].unique()) == metrics
        bare = RUNS[["workload", "freq_ghz", "power_w"]]
        assert list(project_runs(bare).to_frame()["metric"].unique()) == ["power"]


class TestWorkedByHand:
    # Without noise: T = 9 s + 60e9/f and P = 20 W + 15 W/GHz·f; at 3 GHz 29 s and 65 W.
    RUNS = sweep(noise=0.0, workloads=("sort",))

    @pytest.mark.parametrize(
        ("metric", "value"),
        [
            ("time", 29.0),
            ("power", 65.0),
            ("energy", 29.0 * 65.0),
            ("perf_per_watt", 1 / (29.0 * 65.0)),
            ("perf_per_dollar", 1 / (29.0 * 2500.0)),
            ("cpi", 29.0 * 3e9 / 5e10),
        ],
    )
    def test_value(self, metric, value):
        row = one(straight(self.RUNS, metric=metric))
        assert row["projected"] == pytest.approx(value, rel=1e-12)
        assert (row["unit"], row["points"]) == (METRICS[metric].unit, 8)

    def test_throughput(self):
        runs = self.RUNS.assign(throughput_ops_s=1e6 / self.RUNS["time_s"])
        result = straight(runs)
        row = one(result, metric="throughput")
        assert row["projected"] == pytest.approx(1e6 / 29, rel=1e-12)
        assert row["limit"] == pytest.approx(1e6 / 9, rel=1e-12)
        # Where a rate is measured, it is the performance.
        assert one(result, metric="perf_per_watt")["projected"] == pytest.approx(1e6 / 29 / 65)

    def test_limit_and_share(self):
        row = one(straight(self.RUNS, metric="time"))
        assert row["limit"] == pytest.approx(9, rel=1e-12)
        assert row["limit_share"] == pytest.approx(9 / 29, rel=1e-12)

    def test_ratio_is_one_regression_on_the_quotient(self):
        # P·T = 20·9 + 15·60 + 15·9·f + 20·60/f is no line in 1/f, so the two ways differ.
        f = np.array(STEPS * 2)
        energy = (9 + 60 / f) * (20 + 15 * f)
        slope, intercept = np.polyfit(1 / f, energy, 1)
        row = one(straight(self.RUNS, metric="perf_per_watt", via="ratio"))
        assert row["projected"] == pytest.approx(1 / (intercept + slope / 3), rel=1e-9)

    def test_energy_from_joules_and_from_watts_agree(self):
        joules = self.RUNS.assign(energy_j=self.RUNS["power_w"] * self.RUNS["time_s"])
        only_joules = straight(joules.drop(columns="power_w"), metric="energy")
        assert one(only_joules)["projected"] == pytest.approx(29 * 65, rel=1e-12)

    def test_cmos_power(self):
        runs = self.RUNS.assign(power_w=30 + 2 * self.RUNS["freq_ghz"] ** 3)
        row = one(straight(runs, metric="power", power_form="cmos"))
        assert row["projected"] == pytest.approx(30 + 2 * 27, rel=1e-10)
        row = one(straight(runs, metric="power", power_form="cmos", exponent=2.0))
        assert row["projected"] < 80


def test_interval_of_time_against_statsmodels():
    runs = RUNS[RUNS["workload"] == "sort"]
    row = one(straight(runs, metric="time", level=0.95))
    x, y = 1 / runs["freq_ghz"].to_numpy(), runs["time_s"].to_numpy()
    expected = ols_interval(x, y, 1 / 3.0, level=0.95)
    assert [row["projected"], row["lower"], row["upper"]] == pytest.approx(expected, rel=1e-10)


class TestInvariance:
    @any_interval
    @pytest.mark.parametrize("by", [None, ["workload"], ["host"]], ids=str)
    def test_no_digit_depends_on_the_order_of_the_rows(self, by, interval):
        expected = project_runs(by=by, interval=interval).to_json()
        for seed in range(3):
            shuffled = RUNS.sample(frac=1, random_state=seed)
            assert project_runs(shuffled, by=by, interval=interval).to_json() == expected

    @any_interval
    def test_nor_on_the_index_of_the_frame(self, interval):
        indexed = RUNS.set_index("time_s", drop=False)
        both = [project_runs(runs, interval=interval) for runs in (indexed, RUNS)]
        assert both[0].to_json() == both[1].to_json()

    def test_every_row_twice_gives_the_same_projections(self):
        twice = straight(pd.concat([RUNS, RUNS])).to_frame()
        once = straight().to_frame()
        np.testing.assert_allclose(twice["projected"], once["projected"], rtol=1e-12)
        assert (twice["points"] == 2 * once["points"]).all()

    @any_interval
    def test_units_do_not_matter(self, interval):
        renamed = {"freq_mhz": RUNS["freq_ghz"] * 1e3, "time_ms": RUNS["time_s"] * 1e3}
        renamed |= {"power_mw": RUNS["power_w"] * 1e3}
        other = RUNS.drop(columns=["freq_ghz", "time_s", "power_w"]).assign(**renamed)
        both = [project_runs(runs, interval=interval).to_frame() for runs in (RUNS, other)]
        np.testing.assert_allclose(both[0][ANSWERS], both[1][ANSWERS], rtol=PRECISION[interval])

    def test_the_frame_given_is_left_as_it_was(self):
        before = RUNS.copy()
        project_runs()
        pd.testing.assert_frame_equal(RUNS, before)

    def test_a_frequency_asked_twice_is_answered_once(self):
        assert project_runs(freq=[3e9, "3GHz"]).to_json() == project_runs().to_json()


class TestLeftOut:
    def test_a_group_with_one_frequency_is_left_out_and_said(self):
        short = RUNS[(RUNS["workload"] != "grep") | (RUNS["freq_ghz"] == 1.2)]
        result = project_runs(short, metric="time")
        assert list(result.to_frame()["workload"]) == ["sort", "wc"]
        assert only(result.caveats, "left out") == (
            "time: 1 of 3 groups left out: only one distinct frequency, and a curve takes two"
        )

    def test_a_group_without_watts_keeps_its_time(self):
        result = project_runs(RUNS.assign(power_w=RUNS["power_w"].where(RUNS["workload"] != "wc")))
        frame = result.to_frame()
        assert list(frame.loc[frame["metric"] == "power", "workload"]) == ["grep", "sort"]
        assert list(frame.loc[frame["metric"] == "time", "workload"]) == ["grep", "sort", "wc"]
        assert only(result.caveats, "not measured there") == (
            "power: 1 of 3 groups left out: not measured there"
        )

    def test_runs_below_full_load_are_left_out_and_said(self):
        held = RUNS.assign(load=0.5, time_s=RUNS["time_s"] * 2)
        both = pd.concat([RUNS.assign(load=1.0), held], ignore_index=True)
        result = project_runs(both, metric="time")
        assert only(result.caveats, "below full load").startswith(f"{len(RUNS)} runs below")
        alone = project_runs(RUNS, metric="time")
        assert list(result.to_frame()["projected"]) == list(alone.to_frame()["projected"])
        every = project_runs(both, metric="time", keep_all=True)
        assert list(every.to_frame()["projected"]) != list(alone.to_frame()["projected"])

    def test_a_load_that_no_run_exceeds_is_their_own(self):
        result = project_runs(RUNS.assign(load=0.5), metric="time")
        assert not any("below full load" in caveat for caveat in result.caveats)

    def test_all_groups_left_out_is_an_error_that_says_why(self):
        with pytest.raises(PpwError, match="only one distinct frequency in every group by host, f"):
            ppw.project_runs(RUNS[RUNS["freq_ghz"] == 1.6], freq=3e9)

    def test_whole_groups_have_no_such_caveat(self):
        assert project_runs().caveats == ()


class TestCaveats:
    def test_bound_counts_its_groups_and_shows_the_other_form(self):
        runs = pd.concat(
            [
                sweep(workloads=("grep", "sort"), noise=0.001),
                sweep(workloads=("wc",), noise=0).assign(time_s=lambda d: d["freq_ghz"] ** -1.5),
            ]
        )
        result = project_runs(runs, metric="time", freq=["2.8GHz", "3.0GHz"])
        assert "the bounded curve is 1/f" in only(result.caveats, "time (1 of 3 groups): faster")
        row = one(result, workload="wc", freq_hz=3e9)
        assert "t_fixed_s=0" in row["caveats"]
        other = answered(
            ppw.project_runs, runs, freq=3e9, metric="time", form="reciprocal"
        ).to_frame()
        expected = other.loc[other["workload"] == "wc", "projected"].item()
        assert row["other_form"] == pytest.approx(expected, rel=1e-12)
        assert np.isnan(one(result, workload="sort", freq_hz=3e9)["other_form"])
        assert "other form" in result.summary()

    @pytest.mark.parametrize("form", ["reciprocal", "unbounded"])
    def test_a_form_without_bounds_says_what_it_is(self, form):
        fast = RUNS.assign(time_s=RUNS["freq_ghz"] ** -1.5)
        result = project_runs(fast, metric="time", form=form)
        assert only(result.caveats, "faster than 1/f").startswith("time (3 of 3 groups): ")
        assert (result.to_frame()["caveats"] == "faster_than_clock").all()
        assert result.to_frame()["other_form"].notna().all()
        assert project_runs(metric="time", form="unbounded").caveats == ()

    def test_long_lever_tells_of_the_worst_frequency(self):
        near = sweep(steps=(1.2, 1.25, 1.3), noise=0.001)
        result = straight(near, metric="time", freq=["4.0GHz", "2.0GHz"])
        assert "at 4 GHz" in only(result.caveats, "long lever")
        assert "(3 of 3 groups)" in only(result.caveats, "long lever")

    @any_interval
    def test_far_from_what_was_measured(self, interval):
        """Of three groups, one was measured up to 1.6 GHz only, so 3.3 GHz is far from it alone."""
        low = (RUNS["workload"] == next(iter(WORK))) & (RUNS["freq_ghz"] > 1.7)
        runs = RUNS[~low]
        top = runs.groupby("workload")["freq_ghz"].max()
        assert sorted(top) == [1.6, 2.4, 2.4]
        asked = {"metric": "time", "interval": interval}
        near = project_runs(runs, freq=["3GHz", "0.6GHz"], **asked)
        assert not [c for c in near.caveats if "taken on trust" in c]
        far = project_runs(runs, freq=["3.3GHz", "4.5GHz", "0.3GHz"], **asked)
        above, below = [c for c in far.caveats if "taken on trust" in c]
        assert above == (
            "time (1 of 3 groups): 4.5 GHz is 2.8 times the highest clock measured (1.6 GHz): the "
            "law is taken on trust there"
        )
        assert below == (
            "time (3 of 3 groups): the lowest clock measured (1.2 GHz) is 4 times 300 MHz: the "
            "law is taken on trust there"
        )
        named = far.to_frame()["caveats"].astype(str).str.contains("far_above")
        assert far.to_frame()["freq_hz"][named].tolist() == [3.3e9, 4.5e9]

    def test_several_sources_of_the_watts_of_one_curve(self):
        mixed = RUNS.assign(power_source=["rapl:package", "meter"] * (len(RUNS) // 2))
        assert only(project_runs(mixed).caveats, "come from several sources")
        own = RUNS.assign(power_source=RUNS["workload"])
        assert project_runs(own).caveats == ()

    @pytest.mark.parametrize("source", [None, "unknown", "Unknown "])
    def test_watts_of_unknown_source(self, source):
        runs = RUNS.assign(power_source=source)
        assert only(project_runs(runs).caveats, "watts of unknown source")
        assert project_runs(runs, metric="time").caveats == ()

    def test_energy_that_is_not_power_times_time(self):
        energy = RUNS["power_w"] * RUNS["time_s"]
        assert project_runs(RUNS.assign(energy_j=1.01 * energy)).caveats == ()
        caveats = project_runs(RUNS.assign(energy_j=1.05 * energy)).caveats
        assert "differ by more than 2% in 24 of 24 rows" in only(caveats, "energy_j and power_w")

    def test_achieved_frequency(self):
        close = RUNS.assign(freq_achieved_ghz=RUNS["freq_ghz"] * 1.01)
        assert project_runs(close).caveats == ()
        throttled = RUNS.assign(freq_achieved_ghz=RUNS["freq_ghz"].clip(upper=2.1))
        caveats = project_runs(throttled, keep_all=True).caveats
        assert "more than 2% off the one asked for in 6 of 24 rows" in only(caveats, "achieved")

    def test_columns_left_out_of_the_grouping(self):
        caveats = project_runs(by=["host"]).caveats
        assert only(caveats, "runs of one group differ in workload, which is not in --by")


class TestSeveralHosts:
    ATOMS = pd.DataFrame(
        {
            "host": ["D510", "D525"],
            "family": "Bonnell",
            "workload": "memcached",
            "cores": 2,
            "freq_ghz": [1.66, 1.80],
            "cpi": [6.519, 6.057],
        }
    )
    BY = ("family", "workload", "cores")

    def test_host_and_frequency_confounded(self):
        caveats = project_runs(self.ATOMS, by=self.BY).caveats
        assert only(caveats, "host and frequency are confounded")
        assert not [c for c in caveats if "one baseline goes through several" in c]

    def test_another_group_does_not_hide_it(self):
        swept = pd.concat([self.ATOMS.assign(host="D410", workload="web"), self.ATOMS])
        assert only(project_runs(swept, by=self.BY).caveats, "confounded")
        alone = swept[swept["workload"] == "web"]
        assert not [c for c in project_runs(alone, by=self.BY).caveats if "confounded" in c]

    def test_hosts_that_were_both_swept(self):
        both = pd.concat([RUNS, sweep(host="rack2", seed=8)])
        caveats = project_runs(both, by=["family", "workload", "cores"]).caveats
        assert caveats == (
            "one baseline goes through several hosts: their difference is in the curve",
        )
        assert project_runs(both).caveats == ()

    def test_baseline_across_families(self):
        both = pd.concat([RUNS, sweep(host="rack2").assign(family="Zen 5")])
        assert only(project_runs(both, by=["workload"]).caveats, "family mismatch")

    def test_each_host_alone_has_one_frequency(self):
        with pytest.raises(PpwError, match="only one distinct frequency") as refused:
            ppw.project_runs(self.ATOMS, freq=3e9)
        assert "1.66 GHz, 1.8 GHz" in str(refused.value)


REFUSED = {
    "no such metric": ({"metric": "tme"}, "no metric 'tme' (did you mean 'time'?)"),
    "no metric": ({"metric": []}, "no metric was given"),
    "a metric not measured": ({"metric": "throughput"}, "no column throughput_ops_s"),
    "by": ({"by": ["worklod"]}, "cannot group by 'worklod' (did you mean 'workload'?)"),
    "no frequency": ({"freq": []}, "no frequency was given"),
    "frequency in GHz": ({"freq": [3.0]}, "is it in GHz or MHz?"),
    "frequency None": ({"freq": None}, "frequency None is not a finite number"),
    "form": ({"form": "x"}, "form 'x' is not one of"),
    "form of power alone": ({"form": "x", "metric": "power"}, "form 'x' is not one of"),
    "power form": ({"power_form": "x"}, "power form 'x' is not one of"),
    "via": ({"via": "x"}, "via 'x' is not one of fits, ratio"),
    "level": ({"level": 90}, "interval level 90 is not a share"),
    "level of a product": ({"level": 1.0, "metric": "energy"}, "interval level 1.0 is not a share"),
    "a path": ({"runs": "runs.csv"}, "runs is a str, not a DataFrame: read a file with"),
    "no runs": ({"runs": RUNS.iloc[:0]}, "holds no runs"),
    "no frequencies": ({"runs": RUNS.drop(columns="freq_ghz")}, "no column freq_hz"),
    "nothing measured": ({"runs": RUNS[["freq_ghz", "host"]]}, "nothing to project"),
}


@pytest.mark.parametrize(("wrong", "said"), REFUSED.values(), ids=REFUSED)
def test_every_bad_argument_is_refused_in_one_line(wrong, said):
    with pytest.raises((PpwError, ppw.MeasurementError)) as refused:
        ppw.project_runs(**{"runs": RUNS, "freq": 3e9, **wrong})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_names_may_be_given_bare():
    several = project_runs(metric=["time"], by=["workload"], freq=[3e9])
    bare = project_runs(metric="time", by="workload", freq=np.int64(3_000_000_000))
    assert bare.to_json() == several.to_json()


def test_an_unknown_column_has_its_own_error():
    with pytest.raises(UnknownColumnError):
        ppw.project_runs(RUNS, freq=3e9, by=["nowhere"])


class TestResult:
    @pytest.fixture
    def result(self):
        # A bound, an unbounded interval end, a group left out: all there is to carry over.
        runs = pd.concat([RUNS, sweep(workloads=("wc",), steps=(1.2,)).assign(cores=8)])
        return project_runs(runs.assign(time_s=runs["freq_ghz"] ** -1.1), freq=[2.8e9, 3e9])

    def test_json_comes_back(self, result):
        again = ppw.RunsProjection.from_json(result.to_json())
        assert again.to_json() == result.to_json()
        assert again.summary() == result.summary()
        assert again.input_digest == result.input_digest
        np.testing.assert_array_equal(again.to_frame()["upper"], result.to_frame()["upper"])

    def test_an_unbounded_end_comes_back(self):
        runs = pd.DataFrame({"freq_ghz": [1.0, 2, 3], "throughput_ops_s": [1.0, 2.5, 1.6]})
        result = straight(runs, keep_all=True)
        assert result.to_frame()["upper"].item() == np.inf
        again = ppw.RunsProjection.from_json(result.to_json())
        assert again.to_frame()["upper"].item() == np.inf
        assert again.summary() == result.summary()

    def test_json_says_what_it_is(self, result):
        document = json.loads(result.to_json())
        assert (document["schema_version"], document["kind"]) == (1, "runs_projection")
        assert len(document["groups"]) == len(result.to_frame())
        first = document["groups"][0]
        assert {"host", "workload", "metric", "unit", "freq_hz", "projected"} <= set(first)
        assert first["freq_hz"] == 2.8e9

    @pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 1, "kind": "runs_projection"}'])
    def test_any_other_json_is_refused(self, text):
        with pytest.raises(PpwError):
            ppw.RunsProjection.from_json(text)

    def test_the_frame_is_a_copy(self, result):
        frame = result.to_frame()
        frame["projected"] = 0.0
        assert (result.to_frame()["projected"] > 0).all()

    def test_summary_says_what_it_cut(self):
        many = pd.concat([sweep(host=f"node{i}", seed=i) for i in range(15)])
        text = project_runs(many, metric="time").summary()
        assert "… 5 more rows" in text
        assert text.count("\nnode") == 40

    def test_read_back_it_has_no_runs_to_draw(self, result):
        with pytest.raises(PpwError, match="project them again"):
            ppw.RunsProjection.from_json(result.to_json()).plot()


@st.composite
def tables(draw):
    steps = draw(st.lists(st.integers(8, 40), min_size=2, max_size=5, unique=True))
    groups = draw(st.integers(1, 3))
    rows = [
        (f"w{g}", s * 1e8, draw(st.floats(0.5, 50)), draw(st.floats(5, 200)))
        for g in range(groups)
        for s in steps
    ]
    return pd.DataFrame(rows, columns=["workload", "freq_hz", "time_s", "power_w"])


@pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")
@given(tables(), st.integers(8, 60), st.integers(8, 60))
def test_bounded_time_never_rises_and_never_outruns_the_clock(runs, one, other):
    low, high = sorted((one * 1e8, other * 1e8))
    straight_ = {"metric": "time", "interval": "t", "keep_all": True}
    slow, fast = (
        ppw.project_runs(runs, freq=f, **straight_).to_frame()["projected"] for f in (low, high)
    )
    ratio = slow / fast
    assert (ratio >= 1 - 1e-9).all()
    assert (ratio <= high / low * (1 + 1e-9)).all()


@pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")
@any_interval
@settings(max_examples=20)
@given(runs=tables(), seed=st.integers(0, 2**32 - 1))
def test_no_digit_depends_on_the_order_of_any_rows(runs, seed, interval):
    shuffled = runs.sample(frac=1, random_state=seed)
    texts = [
        ppw.project_runs(t, freq=2.5e9, interval=interval, keep_all=True).to_json()
        for t in (runs, shuffled)
    ]
    assert texts[0] == texts[1]


@pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")
@any_interval
@settings(max_examples=20)
@given(runs=tables())
def test_intervals_hold_their_projection(runs, interval):
    frame = ppw.project_runs(runs, freq=2.5 * GHZ, interval=interval, keep_all=True).to_frame()
    frame = frame.dropna(subset="lower")
    assert (frame["lower"] <= frame["projected"]).all()
    assert (frame["projected"] <= frame["upper"]).all()
