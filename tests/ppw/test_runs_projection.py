"""`ppw.project`: many groups at once equal each alone, invariances, what is left out.

What holds for any interval is asked of each; a posterior's own intervals are in test_intervals.
"""

import json

import made_up
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from made_up import ATOM, GHZ, WORK, answered, any_interval, ols_interval, only, sweep

import ppw
from fitting.bayes import posterior
from ppw.errors import PpwError, UnknownColumnError
from ppw.projection.answers import FitOptions, Posteriors, TargetCells
from ppw.projection.caveats import _GAINS_LESS, _GAINS_MORE, bend_findings, improbable
from ppw.runs.groups import group_runs
from ppw.runs.metrics import METRICS
from ppw.runs.prepare import PreparedRuns

RUNS = sweep()
ANSWERS = ["projected", "lower", "upper", "limit", "limit_share"]
# A posterior's quantiles are found to a small share of their distance.
PRECISION = {"bayes": 1e-4, "t": 1e-9, "none": 1e-9}


def project_runs(runs=RUNS, **options):
    return answered(ppw.project, runs, **{"freq": "3.0GHz", **options})


def straight(runs=RUNS, **options):
    """Project by the least-squares curves, with Student's t."""
    return project_runs(runs, interval="t", **options)


def one(result, **key):
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
            alone = answered(ppw.project_points, runs, freq=3e9, interval=interval)
            estimate = alone.cpi if metric == "cpi" else alone.power_w
            row = one(together, workload=workload)
            expected = np.array([estimate, estimate.lower, estimate.upper], dtype=float)
            found = [row["projected"], row["lower"], row["upper"]]
            np.testing.assert_allclose(found, expected, rtol=PRECISION[interval])
            assert row["limit"] == pytest.approx(estimate.limit, rel=1e-12)

    @pytest.mark.parametrize(
        ("via", "interval"), [("fits", "bayes"), ("fits", "t"), ("ratio", "t"), ("ratio", "none")]
    )
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

    def test_interval_of_time_against_statsmodels(self):
        runs = RUNS[RUNS["workload"] == "sort"]
        row = one(straight(runs, metric="time", level=0.95))
        x, y = 1 / runs["freq_ghz"].to_numpy(), runs["time_s"].to_numpy()
        expected = ols_interval(x, y, 1 / 3.0, level=0.95)
        assert [row["projected"], row["lower"], row["upper"]] == pytest.approx(expected, rel=1e-10)

    def test_perf_per_watt_of_a_posterior_is_the_reciprocal_of_its_energy(self):
        runs = RUNS.assign(freq_hz=RUNS["freq_ghz"] * GHZ)
        groups = group_runs(runs, ["workload"])
        asked = TargetCells(np.arange(3), np.full(3, 3e9), np.ones(3))
        metrics = [METRICS["energy"], METRICS["perf_per_watt"]]
        posteriors = Posteriors.of(PreparedRuns(runs, groups, metrics), FitOptions())
        energy, ratio = (posteriors.at(FitOptions().fit_powers(m), asked, 0.9) for m in metrics)
        ends = [1 / ratio.value, 1 / ratio.upper, 1 / ratio.lower]
        np.testing.assert_allclose(ends, [energy.value, energy.lower, energy.upper], rtol=1e-4)


class TestWorkedByHand:
    # Without noise: T = 9 s + 60e9/f and P = 20 W + 15 W/GHz·f; at 3 GHz 29 s and 65 W.
    RUNS = sweep(noise=0.0, workloads=("sort",))

    def test_every_metric(self):
        expected = {"time": 29.0, "power": 65.0, "energy": 29.0 * 65.0, "cpi": 29.0 * 3e9 / 5e10}
        expected |= {"perf_per_watt": 1 / 29.0 / 65.0, "perf_per_dollar": 1 / 29.0 / 2500.0}
        frame = straight(self.RUNS).to_frame().set_index("metric")
        assert dict(frame["projected"]) == pytest.approx(expected, rel=1e-12)
        assert dict(frame["unit"]) == {name: METRICS[name].unit for name in expected}
        assert set(frame["points"]) == {8}
        assert frame.loc["time", ["limit", "limit_share"]].tolist() == pytest.approx([9, 9 / 29])

    def test_throughput(self):
        result = straight(self.RUNS.assign(throughput_ops_s=1e6 / self.RUNS["time_s"]))
        row = one(result, metric="throughput")
        assert row["projected"] == pytest.approx(1e6 / 29, rel=1e-12)
        assert row["limit"] == pytest.approx(1e6 / 9, rel=1e-12)
        # Where a rate is measured, it is the performance.
        assert one(result, metric="perf_per_watt")["projected"] == pytest.approx(1e6 / 29 / 65)

    def test_cmos_power(self):
        runs = self.RUNS.assign(power_w=30 + 2 * self.RUNS["freq_ghz"] ** 3)
        asked = {"metric": "power", "power_form": "cmos"}
        assert one(straight(runs, **asked))["projected"] == pytest.approx(30 + 2 * 27, rel=1e-10)
        assert one(straight(runs, **asked, exponent=2.0))["projected"] < 80

    @made_up.ignore_caveats
    def test_fitted_parameters_of_the_posterior_give_its_answers_at_both_ends(self):
        runs = sweep()
        found = ppw.fit(runs).table
        ends = runs["freq_ghz"].min() * 1e9, runs["freq_ghz"].max() * 1e9
        laws = {"time": lambda a, b, f: a + b / f, "power": lambda a, b, f: a + b * f}
        for metric, law in laws.items():
            answers = ppw.project(runs, freq=ends, metric=metric).table
            for workload in WORK:
                chosen = found[(found["metric"] == metric) & (found["workload"] == workload)]
                projected = answers[answers["workload"] == workload].set_index("freq_hz")
                for f, value in projected["projected"].items():
                    assert law(*chosen["posterior"], f) == pytest.approx(value, rel=1e-9)


class TestInvariance:
    def test_neither_index_nor_repeated_nor_bare_options_change_a_digit(self):
        before, expected = RUNS.copy(), project_runs().to_json()
        assert project_runs(RUNS.set_index("time_s", drop=False)).to_json() == expected
        assert project_runs(freq=[3e9, "3GHz"]).to_json() == expected
        several = project_runs(metric=["time"], by=["workload"], freq=[3e9])
        bare = project_runs(metric="time", by="workload", freq=np.int64(3_000_000_000))
        assert bare.to_json() == several.to_json()
        pd.testing.assert_frame_equal(RUNS, before)

    @any_interval
    def test_units_do_not_matter(self, interval):
        renamed = {"freq_mhz": RUNS["freq_ghz"] * 1e3, "time_ms": RUNS["time_s"] * 1e3}
        renamed |= {"power_mw": RUNS["power_w"] * 1e3}
        other = RUNS.drop(columns=["freq_ghz", "time_s", "power_w"]).assign(**renamed)
        both = [project_runs(runs, interval=interval).to_frame() for runs in (RUNS, other)]
        np.testing.assert_allclose(both[0][ANSWERS], both[1][ANSWERS], rtol=PRECISION[interval])


def test_a_result_prints_its_summary_and_names_itself_in_one_line():
    result = project_runs(metric="time")
    assert str(result) == result.summary()
    assert repr(result) == "<RunsProjection: 3 rows>"
    assert repr(answered(ppw.check, RUNS)) == "<Quality: None of 24 rows is flagged.>"
    assert ppw.__version__ == json.loads(result.to_json())["ppw_version"]


class TestLeftOut:
    def test_a_group_with_one_frequency_is_left_out_and_said(self):
        short = RUNS[(RUNS["workload"] != "grep") | (RUNS["freq_ghz"] == 1.2)]
        result = project_runs(short, metric="time")
        assert list(result.to_frame()["workload"]) == ["sort", "wc"]
        assert only(result.caveats, "left out") == (
            "time: 1 of 3 groups left out: measured at only one frequency, and a curve needs two"
        )
        assert project_runs(metric="time").caveats == ()
        with pytest.raises(PpwError, match="only one distinct frequency in every group by host, f"):
            ppw.project(RUNS[RUNS["freq_ghz"] == 1.6], freq=3e9)

    def test_a_group_without_watts_keeps_its_time(self):
        result = project_runs(RUNS.assign(power_w=RUNS["power_w"].where(RUNS["workload"] != "wc")))
        frame = result.to_frame()
        assert list(frame.loc[frame["metric"] == "power", "workload"]) == ["grep", "sort"]
        assert list(frame.loc[frame["metric"] == "time", "workload"]) == ["grep", "sort", "wc"]
        said = "power: 1 of 3 groups left out: not measured there"
        assert only(result.caveats, "left out") == said

    def test_runs_below_full_load_are_left_out_and_said(self):
        held = RUNS.assign(load=0.5, time_s=RUNS["time_s"] * 2)
        both = pd.concat([RUNS.assign(load=1.0), held], ignore_index=True)
        full, alone, every, low = (
            project_runs(runs, metric="time", keep_all=keep)
            for runs, keep in ((both, False), (RUNS, False), (both, True), (held, False))
        )
        assert only(full.caveats, "below full load").startswith(f"{len(RUNS)} runs below")
        assert list(full.table["projected"]) == list(alone.table["projected"])
        assert list(every.table["projected"]) != list(alone.table["projected"])
        # A load that no run exceeds is their own.
        assert not any("below full load" in caveat for caveat in low.caveats)


class TestCaveats:
    def test_bound_counts_its_groups_and_shows_the_other_form(self):
        fast = sweep(workloads=("wc",), noise=0).assign(time_s=lambda d: d["freq_ghz"] ** -1.5)
        runs = pd.concat([sweep(workloads=("grep", "sort"), noise=0.001), fast])
        result = project_runs(runs, metric="time", freq=["2.8GHz", "3.0GHz"])
        assert "the bounded curve is 1/f" in only(result.caveats, "time (1 of 3 groups): faster")
        row = one(result, workload="wc", freq_hz=3e9)
        assert "t_fixed_s=0" in row["caveats"]
        other = project_runs(runs, metric="time", form="reciprocal")
        expected = one(other, workload="wc")["projected"]
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
        assert "at 4 GHz" in only(result.caveats, "far extrapolation")
        assert "(3 of 3 groups)" in only(result.caveats, "far extrapolation")

    @any_interval
    def test_far_from_what_was_measured(self, interval):
        # Of three groups, one was measured up to 1.6 GHz only, so 3.3 GHz is far from it alone.
        runs = RUNS[(RUNS["workload"] != "grep") | (RUNS["freq_ghz"] < 1.7)]
        asked = {"metric": "time", "interval": interval}
        near = project_runs(runs, freq=["3GHz", "0.6GHz"], **asked)
        assert not [c for c in near.caveats if "no measurement near it supports" in c]
        far = project_runs(runs, freq=["3.3GHz", "4.5GHz", "0.3GHz"], **asked)
        assert [
            c.partition(": no measurement")[0]
            for c in far.caveats
            if "no measurement near it supports" in c
        ] == [
            "time (1 of 3 groups): 4.5 GHz is 2.8 times the highest frequency measured (1.6 GHz)",
            "time (3 of 3 groups): the lowest frequency measured (1.2 GHz) is 4 times 300 MHz",
        ]
        named = far.to_frame()["caveats"].astype(str).str.contains("far_above")
        assert far.to_frame()["freq_hz"][named].tolist() == [3.3e9, 4.5e9]

    def test_several_sources_of_the_watts_of_one_curve(self):
        mixed = RUNS.assign(power_source=["rapl:package", "meter"] * (len(RUNS) // 2))
        assert only(project_runs(mixed).caveats, "comes from several sources")
        own = RUNS.assign(power_source=RUNS["workload"])
        (differs,) = project_runs(own).caveats
        assert differs.startswith("power (3 of 3 groups): the least-squares law answers up to 2.9%")

    def test_least_squares_stand_beside_where_they_differ_by_more_than_noise(self):
        frame = project_runs(metric=["time", "power"]).to_frame()
        law = project_runs(metric=["time", "power"], interval="none").to_frame()
        apart = frame["least_squares"].notna()
        assert apart.tolist() == [metric == "power" for metric in frame["metric"]]
        np.testing.assert_allclose(frame["least_squares"][apart], law["projected"][apart])
        assert set(frame["caveats"][apart]) == {"least_squares"}

    @pytest.mark.parametrize("source", [None, "unknown", "Unknown "])
    def test_watts_of_unknown_source(self, source):
        runs = RUNS.assign(power_source=source)
        assert only(straight(runs, metric="power").caveats, "power of unknown source")
        assert straight(runs, metric="time").caveats == ()

    def test_energy_that_is_not_power_times_time_and_achieved_frequency(self):
        energy, ghz = RUNS["power_w"] * RUNS["time_s"], RUNS["freq_ghz"]
        close = RUNS.assign(energy_j=1.01 * energy, freq_achieved_ghz=1.01 * ghz)
        assert straight(close).caveats == ()
        caveats = straight(RUNS.assign(energy_j=1.05 * energy)).caveats
        assert "differ by more than 2% in 24 of 24 rows" in only(caveats, "energy_j and power_w")
        throttled = RUNS.assign(freq_achieved_ghz=ghz.clip(upper=2.1))
        caveats = straight(throttled, keep_all=True).caveats
        assert "more than 2% off freq_hz in 6 of 24 rows" in only(caveats, "achieved")

    def test_columns_left_out_of_the_grouping(self):
        caveats = straight(by=["host"]).caveats
        assert only(caveats, "runs of one group differ in workload, which is not in --by")


class TestSeveralHosts:
    ATOMS = pd.DataFrame(ATOM, columns=["freq_hz", "cpi"]).assign(
        host=["D510", "D525"], family="Bonnell", workload="memcached", cores=2
    )
    BY = ("family", "workload", "cores")

    def test_host_and_frequency_confounded_whatever_another_group(self):
        caveats = straight(self.ATOMS, by=self.BY).caveats
        assert only(caveats, "host and frequency are confounded")
        assert not [c for c in caveats if "fitted as one curve" in c]
        swept = pd.concat([self.ATOMS.assign(host="D410", workload="web"), self.ATOMS])
        assert only(straight(swept, by=self.BY).caveats, "confounded")
        alone = swept[swept["workload"] == "web"]
        assert not [c for c in straight(alone, by=self.BY).caveats if "confounded" in c]

    def test_hosts_that_were_both_swept(self):
        both = pd.concat([RUNS, sweep(host="rack2", seed=8)])
        said = "runs of several hosts are fitted as one curve, which includes their differences"
        assert straight(both, by=self.BY).caveats == (said,)
        assert straight(both).caveats == ()
        other = both.assign(family=both["host"])
        assert only(straight(other, by=["workload"]).caveats, "family mismatch")

    def test_each_host_alone_has_one_frequency(self):
        with pytest.raises(PpwError, match="only one distinct frequency") as refused:
            ppw.project(self.ATOMS, freq=3e9)
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
    "interval": ({"interval": "beyes"}, "'beyes' is not one of bayes, conformal, t, none"),
    "conformal level": ({"level": 90, "interval": "conformal"}, "level 90 is not a share"),
    "a path": ({"points": "runs.csv"}, "runs is a str, not a DataFrame: read a file with"),
    "no runs": ({"points": RUNS.iloc[:0]}, "holds no runs"),
    "no frequencies": ({"points": RUNS.drop(columns="freq_ghz")}, "no column freq_hz"),
    "nothing measured": ({"points": RUNS[["freq_ghz", "host"]]}, "nothing to project"),
}


@pytest.mark.parametrize(("wrong", "said"), REFUSED.values(), ids=REFUSED)
def test_every_bad_argument_is_refused_in_one_line(wrong, said):
    with pytest.raises((PpwError, ppw.MeasurementError)) as refused:
        ppw.project(**{"points": RUNS, "freq": 3e9, **wrong})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, UnknownColumnError) or "by" not in wrong


class TestResult:
    def test_an_unbounded_end_comes_back(self):
        runs = pd.DataFrame({"freq_ghz": [1.0, 2, 3], "throughput_ops_s": [1.0, 2.5, 1.6]})
        result = straight(runs, keep_all=True)
        assert result.to_frame()["upper"].item() == np.inf
        again = ppw.RunsProjection.from_json(result.to_json())
        assert again.to_frame()["upper"].item() == np.inf
        with pytest.raises(PpwError, match="project them again"):
            again.plot()
        # The frame is a copy.
        frame = result.to_frame()
        frame["upper"] = 0.0
        assert result.to_frame()["upper"].item() == np.inf

    def test_summary_says_what_it_cut(self):
        many = pd.concat([sweep(host=f"node{i}", seed=i) for i in range(15)])
        text = straight(many, metric="time").summary()
        assert "… 5 more rows" in text
        assert text.count("\nnode") == 40


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


@made_up.ignore_caveats
@any_interval
@made_up.few_examples
@given(runs=tables(), seed=st.integers(0, 2**32 - 1), by=st.sampled_from([None, []]))
def test_order_changes_no_digit_and_intervals_hold_their_projection(runs, seed, by, interval):
    shuffled = runs.sample(frac=1, random_state=seed)
    made, again = (
        ppw.project(table, freq=2.5 * GHZ, interval=interval, by=by, keep_all=True)
        for table in (runs, shuffled)
    )
    assert made.to_json() == again.to_json()
    frame = made.to_frame().dropna(subset="lower")
    assert (frame["lower"] <= frame["projected"]).all()
    assert (frame["projected"] <= frame["upper"]).all()


def test_a_pure_law_has_no_power_cap_that_begins_at_the_top():
    """Of 100 tables of 200 groups with 1 % noise at most 5 show any lack of fit."""
    rng, f = np.random.default_rng(5), np.repeat([1.2e9, 1.6e9, 2.0e9, 2.4e9], 3)
    codes, shown = np.repeat(np.arange(200), len(f)), 0
    law = np.log(rng.uniform(0, 1, (200, 1)) + 1e9 / f)
    for _ in range(100):
        logs = law + 0.01 * rng.standard_normal(law.shape)
        steps = posterior.MeasuredSteps.of(codes, np.tile(f, 200), logs.ravel(), 200)
        test = posterior.lack_of_fit(steps, usual=0.012)
        shown += any(found.groups.any() for found in bend_findings(test, np.arange(200)))
    assert shown <= 5
    # A bend stays one among as many groups, and alone.
    bent = np.append(np.full(199, 0.5), 1e-6)
    assert improbable(bent).nonzero()[0].tolist() == [199]
    assert improbable(np.array([0.009, np.nan])).tolist() == [True, False]
    assert all("may be" in text or "may begin" in text for text in (_GAINS_LESS, _GAINS_MORE))
