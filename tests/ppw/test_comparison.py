"""A against B: against exact ratios of log-normals, ties worked by hand, and what is refused."""

import functools
import io
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings, strategies as st
from made_up import GHZ, answered, few_examples, only, sweep
from processes import ppw_inside, printed
from scipy.stats import norm

import ppw
from measurements.errors import MeasurementError
from ppw.decision import ratios
from ppw.decision.compare import Comparison, compare, scope_of
from ppw.decision.objectives import Rates
from ppw.decision.ratios import crossing, electricity_tie, price_tie, tie_of
from ppw.errors import PpwError

NO_RATES = Rates()
A, B = {"host": "rack1"}, {"host": "rack2"}


def both(*, faster=1.25, watts=1.6, noise=0.005, workloads=("sort",), **more):
    """Runs of two hosts: the second takes 1/``faster`` the time and ``watts`` times the power."""
    one = sweep(noise=noise, seed=1, host="rack1", workloads=workloads, **more)
    other = sweep(noise=noise, seed=2, host="rack2", workloads=workloads, **more)
    other["time_s"] /= faster
    other["power_w"] *= watts
    return pd.concat([one, other.assign(price=5000.0)], ignore_index=True)


def answer(runs, a=A, b=B, **options):
    return answered(compare, runs, a, b, **{"draws": 1000, **options})


def where_host(runs, one, other):
    """Column of ``one`` where host A ran, and of ``other`` where B did."""
    return np.where(runs["host"] == "rack1", one, other)


def row_of(result, metric):
    (row,) = result.table.query("metric == @metric").to_dict(orient="records")
    return row


def tie_of_cost(result, what):
    (row,) = result.break_even.query("what == @what").to_dict(orient="records")
    return row


def pair(a, b, *, rates=NO_RATES, prices=(1.0, 1.0), lifetime=None, level=0.9, grid=()):
    draws = [{"time": x[0], "performance": x[0], "power": x[1]} for x in (a, b)]
    sides = [ratios.Side("AB"[i], i, 2e9, prices[i], draws[i], i == 0) for i in range(2)]
    terms = ratios.Terms(rates, lifetime, level)
    return ratios.PairwiseComparison(*sides, np.array(grid), draws[0], terms)


class TestExactRatiosOfLogNormals:
    rng = np.random.default_rng(8)
    mean = np.array([[0.3, 4.0], [0.1, 4.3]])
    spread = np.array([[0.05, 0.02], [0.03, 0.12]])
    draws = mean[..., None] + spread[..., None] * rng.standard_normal((2, 2, 40_000))

    @pytest.mark.cases(
        "metric, sums, less",
        *(("time", (1, 0), True), ("power", (0, 1), True), ("energy", (1, 1), True)),
        *(("perf_per_watt", (-1, -1), False), ("perf_per_dollar", (-1, 0), False)),
    )
    def test_ratio_interval_and_probability(self, metric, sums, less):
        row = pair(*self.draws).ratio(metric)
        middle = (self.mean[0] - self.mean[1]) @ sums
        sigma = np.sqrt((self.spread**2).sum(axis=0) @ np.square(sums))
        exact = norm(middle, sigma)
        assert np.log(row["ratio"]) == pytest.approx(middle, abs=0.03 * sigma)
        assert np.log(row["lower"]) == pytest.approx(exact.ppf(0.05), abs=0.04 * sigma)
        assert np.log(row["upper"]) == pytest.approx(exact.ppf(0.95), abs=0.04 * sigma)
        wins = exact.cdf(0) if less else exact.sf(0)
        assert row["p_a_better"] == pytest.approx(wins, abs=0.01)

    def test_what_to_measure_next_has_the_largest_variance(self):
        row = pair(*self.draws).ratio("energy")
        share = 0.12**2 / (self.spread**2).sum()
        assert row["better"] == "undecided"
        assert row["measure_next"] == f"power of B at 2 GHz ({share:.0%} of the variance)"
        turned = pair(*self.draws[::-1]).ratio("energy")["measure_next"]
        assert turned.startswith("power of A at 2 GHz again (")
        assert pair(*self.draws).measure_next("time").startswith("time of A at 2 GHz again (7")

        # A decided one names nothing.
        apart = self.draws.copy()
        apart[0] += 2
        row = pair(*apart).ratio("energy")
        assert (row["better"], row["measure_next"], row["p_a_better"]) == ("B", "", 0.0)


class TestTiesByHand:
    def test_electricity(self):
        # A: 20 s, 1000 J, price 900; B: 10 s, 1200 J, price 2400; lifetime 1e6 s. A saves
        # (24000 − 18000)/1e6 = 6 mc by its price but takes 200 J less: never a tie.
        def tie(energy_a):
            times = np.array([20.0]), np.array([10.0])
            energies = np.array([energy_a]), np.array([1200.0])
            return electricity_tie(times, energies, (900.0, 2400.0), 1e6)[0]

        assert np.isnan(tie(1000.0))
        assert np.isnan(tie(1200.0))
        # With 1500 J, 300 J more: 0.006/300 = 2e-5 a J, and the costs are then the same.
        assert tie(1500.0) == pytest.approx(2e-5)
        costs = [900 * 20 / 1e6 + 2e-5 * 1500, 2400 * 10 / 1e6 + 2e-5 * 1200]
        assert costs[0] == pytest.approx(costs[1])

    def test_price(self):
        times = np.array([20.0]), np.array([10.0])
        energies = np.array([1500.0]), np.array([1200.0])
        assert price_tie(times, (), 2400.0, 0.0) == pytest.approx([1200.0])
        # L·e = 1e6·2e-5 = 20 a W: (24000 − 20·300)/20 = 900.
        assert price_tie(times, energies, 2400.0, 20.0) == pytest.approx([900.0])
        assert np.isnan(price_tie(times, energies, 2400.0, 100.0)[0])

    def test_frequency_of_a_straight_difference_in_ln_f(self):
        f = np.array([1.0, 2.0, 4.0]) * GHZ
        slope = np.log(f / 1.7e9)[None]
        assert crossing(f, slope, 3e9) == pytest.approx([1.7e9])
        assert np.isnan(crossing(f, slope + 9, 3e9)[0])

        # Of several the nearest counts.
        f = np.geomspace(1e9, 4e9, 4001)
        apart = (f - 1.5e9) * (f - 3e9) / GHZ**2
        assert crossing(f, apart[None], 1.2e9) == pytest.approx([1.5e9], rel=1e-3)
        assert crossing(f, apart[None], 3.9e9) == pytest.approx([3e9], rel=1e-3)

    def test_fewer_than_half_is_no_tie(self):
        assert np.isnan(tie_of(np.array([1.0, np.nan, np.nan]), 0.9).value)
        tie = tie_of(np.array([1.0, 2.0, 3.0, np.nan]), 0.9)
        assert (tie.value, tie.p_tie) == (2.0, 0.75)

    def test_rows_of_a_pair(self):
        a, b = (np.log([[t] * 5, [p] * 5]) for t, p in ((20.0, 75.0), (10.0, 120.0)))
        rates = Rates.of(2e-5 * 3.6e6, 1e6 / 3600)
        rows = pair(a, b, rates=rates, prices=(900.0, 2400.0), lifetime=1e6 / 3600).break_even()
        assert [(r["what"], r["unit"]) for r in rows] == [
            ("price of A", "currency"),
            ("electricity", "currency per kWh"),
        ]
        assert [r["value"] for r in rows] == pytest.approx([900.0, 2e-5 * 3.6e6])
        unknown = pair(a, b, prices=(np.nan, np.nan)).break_even()
        assert [(r["unit"], r["value"]) for r in unknown] == [("prices of B", pytest.approx(0.5))]


@pytest.fixture(scope="module")
def compared():
    return answer(both(), lifetime_hours=30000, electricity=0.3)


class TestTwoHosts:
    def test_the_ratios_that_were_put_in(self, compared):
        for metric, ratio, better in (
            ("time", 1.25, "B"),
            ("power", 1 / 1.6, "A"),
            ("energy", 1.25 / 1.6, "A"),
            ("perf_per_watt", 1.6 / 1.25, "A"),
        ):
            row = row_of(compared, metric)
            assert row["lower"] < ratio < row["upper"]
            assert (row["ratio"], row["better"]) == (pytest.approx(ratio, rel=0.02), better)
            assert (row["a_hz"], row["b_hz"]) == (2.4e9, 2.4e9)

        row = row_of(compared, "perf_per_dollar")
        a = 2500 / 30000 / 3600 + 0.3 / 3.6e6 * 56
        b = (5000 / 30000 / 3600 + 0.3 / 3.6e6 * 56 * 1.6) / 1.25
        assert (row["ratio"], row["unit"]) == (pytest.approx(b / a, rel=0.02), "1 per price")

    def test_the_price_at_which_they_tie(self, compared):
        row = tie_of_cost(compared, "price of A")
        paid = 30000 * 0.3 / 1000
        expected = 5000 / 1.25 + paid * 56 * (1.6 / 1.25 - 1)
        assert row["value"] == pytest.approx(expected, rel=0.02)
        assert row["lower"] < row["value"] < row["upper"]

        # A is cheaper at any price of electricity.
        row = tie_of_cost(compared, "electricity")
        assert row["p_tie"] == 0
        assert np.isnan(row["value"])

    def test_the_frequency_at_which_they_tie(self):
        # B at 1.6 GHz does sort in 9 + 60/1.6 = 46.5 s; A in as much at 60/(46.5/0.8 − 9) GHz.
        row = row_of(answer(both(faster=0.8, watts=1.0), freq_b="1.6GHz"), "time")
        assert row["b_hz"] == 1.6e9
        assert row["ratio"] == pytest.approx((9 + 60 / 2.4) / (46.5 / 0.8), rel=0.02)
        assert row["tie_hz"] == pytest.approx(60e9 / (46.5 / 0.8 - 9), rel=0.02)
        assert row["tie_lower_hz"] < row["tie_hz"] < row["tie_upper_hz"]

        # Beyond the steps there is none.
        row = row_of(answer(both(faster=3.0), metric="time"), "time")
        assert np.isnan(row["tie_hz"])
        assert row["p_tie"] == 0

    def test_the_price_of_electricity_at_which_they_tie(self):
        # B saves energy and costs more: B is 1.25 times as fast at 0.8 times the power.
        row = tie_of_cost(answer(both(watts=0.8), lifetime_hours=20000), "electricity")
        saved = 56 * (1 - 0.8 / 1.25)
        assert row["value"] == pytest.approx(1000 * (5000 / 1.25 - 2500) / 20000 / saved, rel=0.05)
        assert row["lower"] < row["value"] < row["upper"]


class TestTheSides:
    def test_one_host_at_two_frequencies_is_one_curve(self):
        one = sweep(workloads=("sort",))
        row = row_of(answer(one, A, A, freq_a=2.4e9, freq_b=1.6e9, metric="time"), "time")
        # --freq is of the side that names none.
        same = answer(one, A, A, freq="2.4GHz", freq_b=1.6e9, metric="time")
        assert row_of(same, "time")["ratio"] == row["ratio"]
        assert row["ratio"] == pytest.approx((9 + 60 / 2.4) / (9 + 60 / 1.6), rel=0.03)
        assert (row["better"], row["tie_hz"]) == ("A", pytest.approx(1.6e9, rel=1e-3))

    def test_a_host_of_one_frequency(self):
        runs = both()
        runs = runs[(runs["host"] == "rack2") | (runs["freq_ghz"] == 2.0)]
        row = row_of(answer(runs, metric="time"), "time")
        assert (row["a_hz"], row["b_hz"]) == (2e9, 2.4e9)
        assert row["ratio"] == pytest.approx((9 + 30) / (9 + 25) * 1.25, rel=0.03)
        assert np.isnan(row["tie_hz"])
        with pytest.raises(
            PpwError, match="measured at 2 GHz only: one frequency does not determine a curve to"
        ):
            compare(runs, A, B, freq_a="2.4GHz")

    def test_what_describes_the_sides_is_said_and_does_not_count(self):
        runs = both()
        runs["cores"] = where_host(runs, 4, 8)
        runs["family"] = where_host(runs, "Zen 4", "Zen 3")
        result = answer(runs, metric="time")
        assert result.by == ("workload",)
        only(result.caveats, "A and B also differ in cores: 4 against 8")

    @pytest.mark.parametrize(
        ("a", "b"),
        [({"governor": "powersave"}, {"governor": "performance"}), ({"cores": "8"}, {"cores": 4})],
    )
    def test_by_any_column(self, a, b):
        runs = sweep(workloads=("sort",)).assign(governor="performance")
        slow = runs.assign(governor="powersave", cores=8, time_s=2 * runs["time_s"])
        found = answer(pd.concat([runs, slow]), a, b, metric="time", by=["workload"])
        assert row_of(found, "time")["ratio"] == pytest.approx(2, rel=0.03)

    def test_what_only_one_side_ran_is_left_out(self):
        runs = both(workloads=("sort", "wc"))
        runs = runs[(runs["host"] == "rack1") | (runs["workload"] != "wc")]
        result = answer(runs, metric="time")
        assert result.table["workload"].tolist() == ["sort"]
        only(result.caveats, "the other side has no such group: 1 of A")

    @pytest.mark.cases(
        "a, b, options, said",
        ({"host": "rack9"}, B, {}, "no run has host 'rack9'.*there are rack1, rack2"),
        ({"hots": "rack1"}, B, {}, "no column 'hots'"),
        ({}, {}, {"freq_a": 1e9}, "no column tells A from B"),
        (A, A, {}, "A and B are the same"),
        (A, B, {"metric": "cpi"}, "cpi is not comparable"),
        (A, B, {"metric": "speed"}, "no metric 'speed'"),
        (A, B, {"electricity": 0.3}, "must be given together"),
        (A, B, {"lifetime_hours": -1}, "lifetime .hours. -1 must be greater than 0"),
        (A, B, {"price_a": 0}, "price of A 0 must be greater than 0"),
        (A, B, {"level": 0}, "interval level 0"),
        (A, {"workload": "grep"}, {}, "A is several groups.*which differ in workload"),
        (A, "rack2", {}, r"side b 'rack2': say by a column, as in \{'host': 'rack2'\}"),
        (A, "host=old", {}, r"side b 'host=old': say by a column, as in \{'host': 'old'\}"),
    )
    def test_what_is_refused(self, a, b, options, said):
        with pytest.raises((PpwError, MeasurementError), match=said):
            compare(both(workloads=("grep", "wc")), a, b, **options)

    def test_no_work_in_common(self):
        runs = pd.concat([both().assign(workload=name) for name in "abcdewxyz"])
        runs = runs[(runs["workload"] < "f") == (runs["host"] == "rack1")]
        # The first four are named.
        with pytest.raises(PpwError, match="workload is a, b, c, d in A and w, x, y, z in B"):
            compare(runs, A, B)

    def test_work_per_price_takes_prices(self):
        runs = both().drop(columns="price")
        with pytest.raises(PpwError, match="no price of A"):
            compare(runs, A, B, metric="perf_per_dollar", price_b=100)
        result = answer(runs, metric="perf_per_dollar", price_a=100, price_b=200)
        assert row_of(result, "perf_per_dollar")["ratio"] == pytest.approx(2 / 1.25, rel=0.02)


class TestScope:
    def test_of_a_source(self):
        scopes = {"rapl:package": "package", "RAPL": "package", "rapl:dram": "memory"}
        scopes |= dict.fromkeys(("meter:wt310", "ipmi:dcmi", "redfish:power"), "wall")
        scopes |= dict.fromkeys(("unknown", "published", np.nan), None)
        assert {source: scope_of(source) for source in scopes} == scopes

    def test_package_against_wall_is_refused(self):
        runs = both()
        runs["power_source"] = where_host(runs, "rapl:package", "meter:wt310")
        said = r"A is of package \(rapl:package\), that of B of wall \(meter:wt310\), so the two "
        with pytest.raises(PpwError, match=said):
            compare(runs, A, B)
        result = answer(runs, mixed_scope=True, metric="power")
        only(result.caveats, "power of different scope is compared")
        assert answer(runs, metric="time").table["metric"].unique().tolist() == ["time"]
        # Wall against wall is not.
        runs["power_source"] = where_host(runs, "ipmi:dcmi", "meter:wt310")
        assert "different scope" not in " ".join(answer(runs, metric="power").caveats)


class TestProperties:
    # Shrinking would take minutes: the smallest failing case says no more than any other.
    @settings(few_examples, phases=[Phase.explicit, Phase.generate])
    @given(st.floats(0.5, 2), st.floats(0.5, 2), st.integers(0, 99))
    def test_swapping_the_sides_inverts_the_ratio(self, faster, watts, seed):
        runs = both(faster=faster, watts=watts, workloads=("wc",), steps=(1.2, 2.4))
        options = {"seed": seed, "draws": 300, "lifetime_hours": 1000}
        one, other = (answer(runs, *sides, **options).table for sides in ((A, B), (B, A)))
        assert one["ratio"].to_numpy() == pytest.approx(1 / other["ratio"].to_numpy())
        assert one["lower"].to_numpy() == pytest.approx(1 / other["upper"].to_numpy())
        assert one["p_a_better"].to_numpy() == pytest.approx(1 - other["p_a_better"].to_numpy())
        assert ((one["lower"] <= one["ratio"]) & (one["ratio"] <= one["upper"])).all()

    def test_the_order_of_rows_does_not_matter(self):
        runs = both(workloads=("wc",))
        one, other = (answer(r).table for r in (runs, runs.sample(frac=1, random_state=1)))
        pd.testing.assert_frame_equal(one, other)

    def test_alike_is_undecided(self):
        runs = both(faster=1.0, watts=1.0, noise=0.03, workloads=("sort", "wc"))
        result = answer(runs, metric=["time", "energy"])
        undecided = result.table[result.table["better"] == "undecided"]
        assert len(undecided) > 0
        assert undecided["measure_next"].str.contains(" at 2.4 GHz again").all()
        assert "undecided: sort, time: measure time of " in result.summary()
        many = replace(result, table=pd.concat([undecided] * 11))
        assert len(many.undecided()) == 10


@pytest.fixture
def run(tmp_path):
    both(workloads=("grep", "wc")).to_csv(tmp_path / "runs.csv", index=False)
    sides = "--a", "host=rack1", "--b", "host=rack2"
    return functools.partial(ppw_inside, "compare", "runs.csv", *sides, cwd=tmp_path)


class TestCommandLine:
    def test_text(self, run):
        text = printed(run("--metric", "time,power", "--freq", "2.0GHz"))
        answer, time, power, *_ = text.splitlines()
        assert answer == (
            "A is host=rack1, B is host=rack2, both at 2 GHz: A is better in power; B is better in "
            "time."
        )
        assert time.startswith("time: B is better in 2 of 2 groups; A needs 1.2")
        assert power.startswith("power: A is better in 2 of 2 groups; B needs 1.")
        assert power.endswith(" times the power of A (geometric mean).")
        assert "Break-even: the price at which a unit of work costs the same on A and on B" in text
        assert "price of A" in text

    def test_where_groups_disagree_they_are_counted_once(self, run, tmp_path):
        runs = both(workloads=("grep", "sort", "wc"))
        other = runs["host"].map({"rack1": "rack2", "rack2": "rack1"})
        runs = runs.assign(host=runs["host"].where(runs["workload"] != "grep", other))
        runs.to_csv(tmp_path / "runs.csv", index=False)
        done = run("--metric", "time", "--freq", "2.0GHz")
        answer, time, *_ = done.stdout.splitlines()
        assert answer.endswith(": which is better in time depends on the group.")
        assert time.startswith("time: A is better in 1, B in 2 of 3 groups; ")

    def test_other_formats(self, run):
        asked = "--freq-a", "1.8GHz", "--metric", "time", "--seed", "4", "--format"
        document, table, page = (run(*asked, form) for form in ("json", "csv", "html"))
        result = Comparison.from_json(document.stdout)
        assert (set(result.table["a_hz"]), result.seed) == ({1.8e9}, 4)
        assert "2 of 2 groups of A were not measured at the compared frequency" in table.stderr
        assert len(pd.read_csv(io.StringIO(table.stdout))) == 2
        assert "<h1>rack1 against rack2</h1>" in page.stdout


@pytest.mark.thirdparty
def test_thread_counts_of_a_server_at_a_frequency_left_out(data_dir):
    """16 threads against 4 at 2.4 GHz from runs below 2.1 GHz, against what was measured there."""
    runs = ppw.read_runs(data_dir / "nornir-repara" / "tidy.csv", check=False)
    learnt = runs[runs["freq_hz"] < 2.1e9]
    at = {"freq": "2.4GHz", "metric": ["time", "power"]}
    with pytest.warns(ppw.CaveatWarning):
        result = compare(learnt, {"threads": 16}, {"threads": 4}, **at)
    top = runs[runs["freq_hz"] == 2.4e9].set_index(["workload", "threads"])
    errors = []
    for row in result.table.to_dict(orient="records"):
        column = {"time": "time_s", "power": "power_w"}[row["metric"]]
        truth = top[column][row["workload"], 16] / top[column][row["workload"], 4]
        errors.append(abs(row["ratio"] / truth - 1))
        assert row["better"] == {"time": "A", "power": "B"}[row["metric"]]
    assert len(errors) == 14
    assert np.median(errors) < 0.025
    assert max(errors) < 0.2


def test_a_plot_names_what_tells_its_ratios_apart():
    result = answer(both(workloads=("sort", "grep")), metric="time")
    names = [text.get_text() for text in result.plot().get_yticklabels()]
    assert names == ["grep", "sort"]


class TestSeveralSides:
    """A baseline and any number of other sides, in one answer."""

    RUNS = pd.concat([both(), sweep(noise=0.005, seed=3, host="rack3", workloads=("sort",))])

    def test_each_other_host_is_compared_with_the_baseline_as_by_itself(self):
        found = answered(compare, self.RUNS, A, draws=200)
        assert found.by[0] == "host"
        assert found.b == {"host": ["rack2", "rack3"]}
        for host in found.b["host"]:
            alone = answer(self.RUNS, b={"host": host}, draws=200)
            rows = found.table[found.table["host"] == host].drop(columns="host")
            pd.testing.assert_frame_equal(rows.reset_index(drop=True), alone.table)
            assert set(alone.verdict()) <= set(found.verdict())
        assert Comparison.from_json(found.to_json()).verdict() == found.verdict()

    def test_a_side_without_common_work_does_not_stop_the_others(self):
        other = sweep(host="rack9", workloads=("grep", "wc"))
        found = answer(pd.concat([both(), other]), b=None, draws=200)
        assert found.b == {"host": ["rack2"]}
        assert any(text.startswith("host=rack9 is left out") for text in found.caveats)
        with pytest.raises(PpwError, match="name B as well"):
            compare(self.RUNS, {"host": "rack1", "workload": "sort"})
        with pytest.raises(
            PpwError, match="a price of side B holds for one side: for several, give a column price"
        ):
            compare(self.RUNS, A, price_b=100.0)

    def test_hosts_taken_together_are_one_side(self):
        found = answer(self.RUNS, a={"host": ["rack1", "rack3"]}, draws=200)
        assert found.a == {"host": "rack1 and rack3"}
        assert any("A is 2 values of host: one curve" in text for text in found.caveats)
        with pytest.raises(PpwError, match="A and B share host rack2"):
            compare(self.RUNS, {"host": ["rack1", "rack2"]}, B)


def test_a_verdict_has_the_probability_and_no_more_digits_than_the_interval():
    wide, narrow = (answer(both(noise=noise)).verdict()[1] for noise in (0.1, 0.001))
    assert re.search(r"A needs 1\.\d\d? times the time of B .*P\(B better\) = \d+%", wide)
    assert re.search(r"A needs 1\.2\d\d? times the time of B .*P\(B better\) = 100%", narrow)
    same = answer(both(faster=1.004, watts=0.996, noise=0.0002)).verdict()[1]
    assert same.endswith("; a difference below 1%.")
