"""A against B: against exact ratios of log-normals, ties worked by hand, and what is refused."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from made_up import answered, only, sweep
from scipy.stats import norm

import ppw
import ppw.cli
from measurements.errors import MeasurementError
from ppw.comparison import Comparison, compare
from ppw.duels import Drawn, Duel, Side
from ppw.errors import PpwError
from ppw.objectives import Rates
from ppw.sides import scope_of
from ppw.ties import crossing, electricity_tie, price_tie, tie_of

GHZ = 1e9
NO_RATES = Rates()
A, B = {"host": "rack1"}, {"host": "rack2"}


def both(*, faster=1.25, watts=1.6, noise=0.005, **more):
    """Runs of two hosts: the second takes 1/``faster`` the time and ``watts`` times the power."""
    one = sweep(noise=noise, seed=1, host="rack1", **more)
    other = sweep(noise=noise, seed=2, host="rack2", **more)
    other["time_s"] /= faster
    other["power_w"] *= watts
    return pd.concat([one, other.assign(price=5000.0)], ignore_index=True)


def answer(runs, a=A, b=B, **options):
    return answered(compare, runs, a, b, **options)


def row_of(result, metric, workload="sort"):
    table = result.table
    return table[(table["workload"] == workload) & (table["metric"] == metric)].iloc[0]


def tie_of_cost(result, what, workload="sort"):
    table = result.break_even
    return table[(table["workload"] == workload) & (table["what"] == what)].iloc[0]


def duel(a, b, *, rates=NO_RATES, prices=(1.0, 1.0), lifetime=None, level=0.9, grid=()):
    sides = [
        Side(n, i, 2e9, p, Drawn({"time": x[0], "performance": x[0]}, x[1]))
        for i, (n, p, x) in enumerate(zip("AB", prices, (a, b), strict=True))
    ]
    return Duel(
        *sides, np.array(grid), sides[0].drawn, rates, lifetime, level, {"A": True, "B": False}
    )


class TestExactRatiosOfLogNormals:
    rng = np.random.default_rng(8)
    mean = np.array([[0.3, 4.0], [0.1, 4.3]])
    spread = np.array([[0.05, 0.02], [0.03, 0.12]])
    draws = mean[..., None] + spread[..., None] * rng.standard_normal((2, 2, 40_000))

    @pytest.mark.parametrize(
        ("metric", "sums", "less"),
        [
            ("time", (1, 0), True),
            ("power", (0, 1), True),
            ("energy", (1, 1), True),
            ("perf_per_watt", (-1, -1), False),
            ("perf_per_dollar", (-1, 0), False),
        ],
    )
    def test_ratio_interval_and_probability(self, metric, sums, less):
        row = duel(*self.draws).ratio(metric)
        middle = (self.mean[0] - self.mean[1]) @ sums
        sigma = np.sqrt((self.spread**2).sum(axis=0) @ np.square(sums))
        exact = norm(middle, sigma)
        assert np.log(row["ratio"]) == pytest.approx(middle, abs=0.03 * sigma)
        assert np.log(row["lower"]) == pytest.approx(exact.ppf(0.05), abs=0.04 * sigma)
        assert np.log(row["upper"]) == pytest.approx(exact.ppf(0.95), abs=0.04 * sigma)
        wins = exact.cdf(0) if less else exact.sf(0)
        assert row["p_a_better"] == pytest.approx(wins, abs=0.01)

    def test_what_to_measure_next_has_the_largest_variance(self):
        row = duel(*self.draws).ratio("energy")
        share = 0.12**2 / (self.spread**2).sum()
        assert row["better"] == "undecided"
        assert row["measure_next"] == f"power of B at 2 GHz ({share:.0%} of the variance)"
        assert (
            duel(*self.draws[::-1])
            .ratio("energy")["measure_next"]
            .startswith("power of A at 2 GHz again (")
        )
        assert duel(*self.draws).measure_next("time").startswith("time of A at 2 GHz again (7")

    def test_a_decided_one_names_nothing(self):
        apart = self.draws.copy()
        apart[0] += 2
        row = duel(*apart).ratio("energy")
        assert (row["better"], row["measure_next"], row["p_a_better"]) == ("B", "", 0.0)


class TestTiesByHand:
    def test_electricity(self):
        # A: 20 s, 1000 J, price 900; B: 10 s, 1200 J, price 2400; lifetime 1e6 s. A saves
        # (24000 − 18000)/1e6 = 6 mc by its price but takes 200 J less: never a tie.
        def tie(energy_a):
            pair = np.array([20.0]), np.array([10.0])
            energies = np.array([energy_a]), np.array([1200.0])
            return electricity_tie(pair, energies, (900.0, 2400.0), 1e6)[0]

        assert np.isnan(tie(1000.0))
        assert np.isnan(tie(1200.0))
        # With 1500 J, 300 J more: 0.006/300 = 2e-5 a J, and the costs are then the same.
        assert tie(1500.0) == pytest.approx(2e-5)
        costs = [900 * 20 / 1e6 + 2e-5 * 1500, 2400 * 10 / 1e6 + 2e-5 * 1200]
        assert costs[0] == pytest.approx(costs[1])

    def test_price(self):
        times = np.array([20.0]), np.array([10.0])
        energies = np.array([1500.0]), np.array([1200.0])
        assert price_tie(times, None, 2400.0, 0.0) == pytest.approx([1200.0])
        # L·e = 1e6·2e-5 = 20 a W: (24000 − 20·300)/20 = 900.
        assert price_tie(times, energies, 2400.0, 20.0) == pytest.approx([900.0])
        assert np.isnan(price_tie(times, energies, 2400.0, 100.0)[0])

    def test_frequency_of_a_straight_difference_in_ln_f(self):
        f = np.array([1.0, 2.0, 4.0]) * GHZ
        slope = np.log(f / 1.7e9)[None]
        assert crossing(f, slope, 3e9) == pytest.approx([1.7e9])
        assert np.isnan(crossing(f, slope + 9, 3e9)[0])

    @pytest.mark.parametrize(("near", "found"), [(1.2e9, 1.5e9), (3.9e9, 3e9)])
    def test_of_several_the_nearest_counts(self, near, found):
        f = np.geomspace(1e9, 4e9, 4001)
        apart = (f - 1.5e9) * (f - 3e9) / GHZ**2
        assert crossing(f, apart[None], near) == pytest.approx([found], rel=1e-3)

    def test_fewer_than_half_is_no_tie(self):
        assert np.isnan(tie_of(np.array([1.0, np.nan, np.nan]), 0.9).value)
        tie = tie_of(np.array([1.0, 2.0, 3.0, np.nan]), 0.9)
        assert (tie.value, tie.p_tie) == (2.0, 0.75)

    def test_rows_of_a_duel(self):
        a, b = (np.log([[t] * 5, [p] * 5]) for t, p in ((20.0, 75.0), (10.0, 120.0)))
        rates = Rates.checked(2e-5 * 3.6e6, 1e6 / 3600)
        rows = duel(a, b, rates=rates, prices=(900.0, 2400.0), lifetime=1e6 / 3600).break_even()
        assert [(r["what"], r["unit"]) for r in rows] == [
            ("price of A", "currency"),
            ("electricity", "currency per kWh"),
        ]
        assert [r["value"] for r in rows] == pytest.approx([900.0, 2e-5 * 3.6e6])
        unknown = duel(a, b, prices=(np.nan, np.nan)).break_even()
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
            assert row["ratio"] == pytest.approx(ratio, rel=0.02)
            assert row["better"] == better
            assert (row["a_hz"], row["b_hz"]) == (2.4e9, 2.4e9)

    def test_work_per_price(self, compared):
        row = row_of(compared, "perf_per_dollar")
        a = 2500 / 30000 / 3600 + 0.3 / 3.6e6 * 56
        b = (5000 / 30000 / 3600 + 0.3 / 3.6e6 * 56 * 1.6) / 1.25
        assert row["ratio"] == pytest.approx(b / a, rel=0.02)
        assert row["unit"] == "1 per price"

    def test_the_price_at_which_they_tie(self, compared):
        row = tie_of_cost(compared, "price of A")
        paid = 30000 * 0.3 / 1000
        expected = 5000 / 1.25 + paid * 56 * (1.6 / 1.25 - 1)
        assert row["value"] == pytest.approx(expected, rel=0.02)
        assert row["lower"] < row["value"] < row["upper"]

    def test_a_is_cheaper_at_any_price_of_electricity(self, compared):
        row = tie_of_cost(compared, "electricity")
        assert row["p_tie"] == 0
        assert np.isnan(row["value"])

    def test_comes_back_from_json(self, compared):
        again = Comparison.from_json(compared.to_json())
        assert again.to_json() == compared.to_json()
        assert again.summary() == compared.summary()

    def test_draws(self, compared):
        assert compared.plot().get_xscale() == "log"


class TestWhereTheyTie:
    def test_the_frequency_by_hand(self):
        # B at 1.6 GHz does sort in 9 + 60/1.6 = 46.5 s; A in as much at 60/(46.5/0.8 − 9) GHz.
        result = answer(both(faster=0.8, watts=1.0), freq_b="1.6GHz")
        row = row_of(result, "time")
        assert row["b_hz"] == 1.6e9
        assert row["ratio"] == pytest.approx((9 + 60 / 2.4) / (46.5 / 0.8), rel=0.02)
        assert row["tie_hz"] == pytest.approx(60e9 / (46.5 / 0.8 - 9), rel=0.02)
        assert row["tie_lower_hz"] < row["tie_hz"] < row["tie_upper_hz"]

    def test_beyond_the_steps_there_is_none(self):
        row = row_of(answer(both(faster=3.0)), "time")
        assert np.isnan(row["tie_hz"])
        assert row["p_tie"] == 0

    def test_electricity(self):
        # B saves energy and costs more: B is 1.25 times as fast at 0.8 times the power.
        result = answer(both(watts=0.8), lifetime_hours=20000)
        row = tie_of_cost(result, "electricity")
        saved = 56 * (1 - 0.8 / 1.25)
        assert row["value"] == pytest.approx(1000 * (5000 / 1.25 - 2500) / 20000 / saved, rel=0.05)
        assert row["lower"] < row["value"] < row["upper"]


class TestTheSides:
    def test_one_host_at_two_frequencies_is_one_curve(self):
        runs = sweep()
        result = answer(runs, A, A, freq_a=2.4e9, freq_b=1.6e9)
        row = row_of(result, "time")
        assert row["ratio"] == pytest.approx((9 + 60 / 2.4) / (9 + 60 / 1.6), rel=0.03)
        assert row["better"] == "A"
        assert row["tie_hz"] == pytest.approx(1.6e9, rel=1e-3)

    def test_a_host_of_one_frequency(self):
        runs = both()
        runs = runs[(runs["host"] == "rack2") | (runs["freq_ghz"] == 2.0)]
        result = answer(runs)
        row = row_of(result, "time")
        assert (row["a_hz"], row["b_hz"]) == (2e9, 2.4e9)
        assert row["ratio"] == pytest.approx((9 + 30) / (9 + 25) * 1.25, rel=0.03)
        assert np.isnan(row["tie_hz"])
        with pytest.raises(PpwError, match="measured at 2 GHz only: no curve leads to"):
            compare(runs, A, B, freq_a="2.4GHz")

    def test_what_describes_the_sides_is_said_and_does_not_count(self):
        runs = both()
        second = runs["host"] == "rack2"
        runs["cores"] = np.where(second, 8, 4)
        runs["family"] = np.where(second, "Zen 3", "Zen 4")
        result = answer(runs)
        assert result.by == ("workload",)
        only(result.caveats, "A and B also differ in cores: 4 against 8")

    def test_by_any_column(self):
        runs = sweep().assign(governor="performance")
        slow = runs.assign(governor="powersave", time_s=2 * runs["time_s"])
        result = answer(
            pd.concat([runs, slow]), {"governor": "powersave"}, {"governor": "performance"}
        )
        assert row_of(result, "time")["ratio"] == pytest.approx(2, rel=0.03)

    def test_by_a_number(self):
        runs = sweep()
        more = runs.assign(cores=8, time_s=runs["time_s"] / 2)
        result = answer(pd.concat([runs, more]), {"cores": "8"}, {"cores": 4})
        assert row_of(result, "time")["ratio"] == pytest.approx(0.5, rel=0.03)

    def test_what_only_one_side_ran_is_left_out(self):
        runs = both()
        runs = runs[(runs["host"] == "rack1") | (runs["workload"] != "wc")]
        result = answer(runs, metric="time")
        assert result.table["workload"].tolist() == ["grep", "sort"]
        only(result.caveats, "groups without their like left out: 1 of A")

    @pytest.mark.parametrize(
        ("a", "b", "options", "said"),
        [
            ({"host": "rack9"}, B, {}, "no run has host 'rack9'.*there are rack1, rack2"),
            ({"hots": "rack1"}, B, {}, "no column 'hots'"),
            ({}, {}, {"freq_a": 1e9}, "nothing tells A from B"),
            (A, A, {}, "A and B are the same"),
            (A, B, {"metric": "cpi"}, "cpi is not comparable"),
            (A, B, {"metric": "speed"}, "no metric 'speed'"),
            (A, B, {"electricity": 0.3}, "go together"),
            (A, B, {"lifetime_hours": -1}, "lifetime .hours. -1 must be greater than 0"),
            (A, B, {"price_a": 0}, "price of A 0 must be greater than 0"),
            (A, B, {"level": 0}, "interval level 0"),
            (A, {"workload": "grep"}, {}, "A is several groups.*which differ in workload"),
            ({"host": "rack1", "workload": "wc"}, {"host": "rack2", "cores": 9}, {}, "no run has"),
        ],
    )
    def test_what_is_refused(self, a, b, options, said):
        with pytest.raises((PpwError, MeasurementError), match=said):
            compare(both(), a, b, **options)

    def test_no_work_in_common(self):
        runs = both(workloads=("grep", "sort", "wc"))
        second = runs["host"] == "rack2"
        runs = runs[(runs["workload"] == "wc") == second]
        runs.loc[len(runs) + 99] = runs[runs["workload"] == "wc"].iloc[0].to_dict() | {
            "workload": "awk"
        }
        with pytest.raises(PpwError, match="workload is grep, sort in A and awk, wc in B"):
            compare(runs, A, B)

    def test_work_per_price_takes_prices(self):
        runs = both().drop(columns="price")
        with pytest.raises(PpwError, match="no price of A"):
            compare(runs, A, B, metric="perf_per_dollar", price_b=100)
        result = answer(runs, metric="perf_per_dollar", price_a=100, price_b=200)
        assert row_of(result, "perf_per_dollar")["ratio"] == pytest.approx(2 / 1.25, rel=0.02)


class TestScope:
    @pytest.mark.parametrize(
        ("source", "scope"),
        [
            ("rapl:package", "package"),
            ("RAPL", "package"),
            ("rapl:dram", "memory"),
            ("meter:wt310", "wall"),
            ("ipmi:dcmi", "wall"),
            ("redfish:power", "wall"),
            ("unknown", None),
            ("published", None),
            (np.nan, None),
        ],
    )
    def test_of_a_source(self, source, scope):
        assert scope_of(source) == scope

    def test_package_against_wall_is_refused(self):
        runs = both()
        runs["power_source"] = np.where(runs["host"] == "rack1", "rapl:package", "meter:wt310")
        said = r"A are of package \(rapl:package\), those of B of wall \(meter:wt310\): not compar"
        with pytest.raises(PpwError, match=said):
            compare(runs, A, B)
        result = answer(runs, mixed_scope=True)
        only(result.caveats, "mixed scope, as asked for")
        assert answer(runs, metric="time").table["metric"].unique().tolist() == ["time"]

    def test_wall_against_wall_is_not(self):
        runs = both()
        runs["power_source"] = np.where(runs["host"] == "rack1", "ipmi:dcmi", "meter:wt310")
        assert not any("mixed scope" in c for c in answer(runs).caveats)


class TestProperties:
    # Shrinking would take minutes: the smallest failing case says no more than any other.
    @settings(max_examples=4, phases=[Phase.explicit, Phase.generate])
    @given(st.floats(0.5, 2), st.floats(0.5, 2), st.integers(0, 99))
    def test_swapping_the_sides_inverts_the_ratio(self, faster, watts, seed):
        runs = both(faster=faster, watts=watts, workloads=("wc",), steps=(1.2, 2.4))
        one = answer(runs, seed=seed, draws=500, lifetime_hours=1000).table
        other = answer(runs, B, A, seed=seed, draws=500, lifetime_hours=1000).table
        assert one["ratio"].to_numpy() == pytest.approx(1 / other["ratio"].to_numpy())
        assert one["lower"].to_numpy() == pytest.approx(1 / other["upper"].to_numpy())
        assert one["p_a_better"].to_numpy() == pytest.approx(1 - other["p_a_better"].to_numpy())
        assert ((one["lower"] <= one["ratio"]) & (one["ratio"] <= one["upper"])).all()

    def test_the_order_of_rows_does_not_matter(self):
        runs = both(workloads=("wc",))
        one, other = (answer(r).table for r in (runs, runs.sample(frac=1, random_state=1)))
        pd.testing.assert_frame_equal(one, other)

    def test_alike_is_undecided(self):
        result = answer(both(faster=1.0, watts=1.0, noise=0.03))
        undecided = result.table[result.table["better"] == "undecided"]
        assert len(undecided) > 3
        assert undecided["measure_next"].str.contains(" at 2.4 GHz again").all()
        assert "undecided: sort, time: measure time of " in result.summary()


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `ppw compare` inside this process, beside runs.csv."""
    monkeypatch.chdir(tmp_path)
    both().to_csv("runs.csv", index=False)

    def run(*arguments):
        files = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
        monkeypatch.setattr(sys, "argv", ["ppw", "compare", "runs.csv", *arguments])
        with redirect_stdout(files[0]), redirect_stderr(files[1]), pytest.raises(SystemExit) as end:
            ppw.cli.console()
        return *(f.detach().getvalue().decode() for f in files), end.value.code

    return run


SIDES = ["--a", "host=rack1", "--b", "host=rack2"]


def test_a_side_that_is_no_mapping_says_how_to_name_one():
    with pytest.raises(
        PpwError, match=r"side b 'rack2': say by a column, as in \{'host': 'rack2'\}"
    ):
        compare(both(), A, "rack2")


class TestCommandLine:
    def test_text(self, run):
        out, err, code = run(*SIDES, "--metric", "time,power", "--freq", "2.0GHz")
        assert (err, code) == ("", 0)
        answer, time, power, *_ = out.splitlines()
        assert answer == (
            "A is host=rack1, B is host=rack2, both at 2 GHz: A is better in power; B is better in "
            "time."
        )
        assert time.startswith("time: B is better in 3 of 3 groups; A needs 1.2")
        assert power.startswith("power: A is better in 3 of 3 groups; B needs 1.")
        assert power.endswith(" times the watts of A (geometric mean).")
        assert "Where the same work costs the same on A and on B" in out
        assert "price of A" in out

    def test_where_groups_disagree_they_are_counted_once(self, run):
        runs = both()
        turned = runs["workload"] == runs["workload"].iloc[0]
        other = {"rack1": "rack2", "rack2": "rack1"}
        runs.loc[turned, "host"] = runs.loc[turned, "host"].map(other)
        runs.to_csv("runs.csv", index=False)
        answer, time, *_ = run(*SIDES, "--metric", "time", "--freq", "2.0GHz")[0].splitlines()
        assert answer.endswith(": which is better in time depends on the group.")
        assert time.startswith("time: A is better in 1, B in 2 of 3 groups; ")

    def test_json_comes_back(self, run):
        out, err, code = run(*SIDES, "--format", "json", "--freq-a", "1.8GHz", "--seed", "4")
        assert (err, code) == ("", 0)
        assert json.loads(out)["kind"] == "comparison"
        result = Comparison.from_json(out)
        assert set(result.table["a_hz"]) == {1.8e9}
        assert result.seed == 4

    def test_csv_says_its_caveats_elsewhere(self, run):
        out, err, code = run(*SIDES, "--format", "csv", "--freq-a", "1.8GHz")
        assert code == 0
        assert "3 of 3 groups of A were not measured at the frequency compared" in err
        assert len(pd.read_csv(io.StringIO(out))) == 15

    def test_html(self, run):
        out, err, code = run(*SIDES, "--format", "html")
        assert (err, code) == ("", 0)
        assert "<h1>A against B</h1>" in out
        assert "://" not in out.replace("http://www.w3.org", "")

    @pytest.mark.parametrize(
        ("arguments", "said", "code"),
        [
            (["--a", "host=rack1"], "Missing option '--b'", 2),
            (["--a", "rack1", "--b", "host=rack2"], "'rack1' is not COLUMN=VALUE", 2),
            ([*SIDES, "--freq", "2"], "is under 10 MHz", 2),
            ([*SIDES, "--electricity", "-1"], "is not in the range", 2),
            (["--a", "host=x", "--b", "host=rack2"], "ppw: error: no run has host 'x'", 1),
        ],
    )
    def test_what_fails(self, run, arguments, said, code):
        out, err, ended = run(*arguments)
        assert (out, ended) == ("", code)
        assert said in err
        assert "Traceback" not in err


@pytest.mark.thirdparty
def test_thread_counts_of_a_server_at_a_frequency_left_out(data_dir):
    """16 threads against 4 at 2.4 GHz from runs below 2.1 GHz, against what was measured there."""
    runs = ppw.read_runs(data_dir / "nornir-repara" / "tidy.csv", check=False)
    learnt = runs[runs["freq_hz"] < 2.1e9]
    at = {"freq_a": "2.4GHz", "freq_b": "2.4GHz", "metric": ["time", "power"]}
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
    assert np.median(errors) < 0.02
    assert max(errors) < 0.2
