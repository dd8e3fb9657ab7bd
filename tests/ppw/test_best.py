"""The best step: against the closed form, brute force over steps, and what must hold for any."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from made_up import GHZ, answered, only, sweep
from processes import ppw_inside, printed
from scipy.optimize import minimize_scalar, nnls

import ppw
from measurements.errors import MeasurementError
from ppw.decision.best import BestFrequency, Choice, best
from ppw.decision.objectives import OBJECTIVES, Rates, add_listed_steps, as_steps
from ppw.errors import PpwError

STEPS = np.round(np.arange(0.8, 3.21, 0.2), 3)


def lines(
    *, fixed=10.0, work=20.0, p0=30.0, slope=15.0, repeats=3, noise=0.002, steps=STEPS, **more
):
    """Runs along straight lines: T = fixed + work/f, P = p0 + slope·f, f in GHz.

    Energy is least at sqrt(20·30/(10·15)) = 2 GHz, EDP at 4 GHz, ED²P at 6 GHz.
    """
    rng = np.random.default_rng(11)
    f = np.repeat(steps, repeats)
    wobble = np.exp(noise * rng.standard_normal((2, len(f))))
    time, watts = (fixed + work / f) * wobble[0], (p0 + slope * f) * wobble[1]
    columns = {"host": "rack1", "workload": "sort", "freq_ghz": f, "time_s": time}
    return pd.DataFrame({**columns, "power_w": watts, "power_source": "meter:wall", **more})


def cost(f, delays, fixed=10.0, work=20.0, p0=30.0, slope=15.0):
    return (p0 + slope * f) * (fixed + work / f) ** delays


def answer(runs, **options):
    return answered(best, runs, **options)


def answered_row(runs, **options):
    (row,) = answer(runs, **options).table.to_dict(orient="records")
    return row


@pytest.fixture(scope="module")
def least():
    return answer(lines())


class TestAgainstTheClosedForm:
    def test_least_energy_worked_by_hand(self, least):
        row = least.table.iloc[0]
        assert row["linear_hz"] == pytest.approx(2e9, rel=0.03)
        assert row["lower_hz"] <= 2e9 <= row["upper_hz"]
        assert row["best_hz"] == pytest.approx(2e9, abs=0.2e9)
        assert row["value"] == pytest.approx(cost(2.0, 1), rel=0.01)
        assert row["lower"] < row["value"] < row["upper"]
        assert row["expected_loss"] < 0.003

    @pytest.mark.cases(
        "objective, delays, fixed, best", ("edp", 2, 20.0, 2.5616), ("ed2p", 3, 40.0, 2.3028)
    )
    def test_the_products(self, objective, delays, fixed, best):
        row = answered_row(lines(fixed=fixed), objective=objective)
        assert row["linear_hz"] == pytest.approx(best * GHZ, rel=0.03)
        brute = STEPS[np.argmin(cost(STEPS, delays, fixed=fixed))]
        assert row["best_hz"] == pytest.approx(brute * GHZ, abs=0.21e9)
        assert row["lower_hz"] <= brute * GHZ <= row["upper_hz"]

    def test_idle_power_takes_the_place_of_the_static(self, least):
        # sqrt(20·(30 − 22.5)/(10·15)) = 1 GHz.
        row = answered_row(lines(), idle_power="22.5W")
        assert row["linear_hz"] == pytest.approx(1e9, rel=0.05)
        assert row["best_hz"] == pytest.approx(1e9, abs=0.21e9)
        # Half a watt, over 20 s.
        little = answered_row(lines(), idle_power=0.5)
        assert least.table["value"].iloc[0] - little["value"] == pytest.approx(10, rel=0.05)

    def test_a_race_to_idle_is_counted_to_the_deadline(self):
        # The run at 1 GHz takes 30 s and 45 W, then the host idles for 10 s at 22.5 W.
        given = answered_row(lines(), idle_power="22.5W", deadline=40, steps="1GHz,2GHz")
        assert (given["best_hz"], given["value"]) == (1e9, pytest.approx(45 * 30 + 225, rel=0.01))
        of_column = answer(lines(idle_power_w=22.5), deadline=40, steps="1GHz,2GHz")
        assert of_column.table["value"].iloc[0] == pytest.approx(given["value"], rel=1e-12)
        assert of_column.idle_power_w == 22.5
        said = "Least energy of run and idle time within 40 s: best at 1 GHz"
        assert of_column.verdict().startswith(said)
        # Without a deadline idle power is no part of the energy of a run.
        assert answer(lines(idle_power_w=22.5)).idle_power_w is None

    def test_price_of_a_host_is_like_static_power(self):
        # 90 W at 0.36 a kWh cost 9e-6 a second: sqrt(20·(30 + 90)/(10·15)) = 4 GHz, clamped.
        paid = {"electricity": 0.36, "lifetime_hours": 1000.0, "objective": "perf_per_dollar"}
        row = answered_row(lines(), price=9e-6 * 3.6e6, **paid)
        assert row["linear_hz"] == row["best_hz"] == 3.2e9
        # 7.5 W: sqrt(20·37.5/150) = 2.236 GHz.
        row = answered_row(lines(), price=7.5e-7 * 3.6e6, **paid)
        assert row["linear_hz"] == pytest.approx(5**0.5 * GHZ, rel=0.03)
        energy = cost(2.2, 1) + 7.5 * (10 + 20 / 2.2)
        assert row["value"] == pytest.approx(1 / (energy * 0.36 / 3.6e6), rel=0.01)
        assert row["unit"] == "1 per price"

    ENDS = ({"fixed": 0.0}, 3.2e9), ({"p0": 0.001}, 0.8e9), ({"slope": 0}, 3.2e9)

    @pytest.mark.cases("changed, best", *ENDS)
    def test_at_an_end(self, changed, best):
        result = answer(lines(noise=0.0005, **changed))
        row = result.table.iloc[0]
        assert row["best_hz"] == best
        assert "outside" not in " ".join(result.caveats)
        assert row["linear_hz"] == pytest.approx(best, rel=0.05)


class TestAgainstBruteForceOverTheDraws:
    rng = np.random.default_rng(4)
    draws = rng.normal(size=(500, 4)) * 0.1 + np.array([0.1, 0.0, 0.02, 0.3])
    at = np.array([1.0, 1.5, 2.0, 2.5]) * GHZ
    choice = Choice(0, at, np.zeros(4, dtype=int), draws, draws, np.nan)

    def test_probabilities(self):
        count = [sum(int(min(row) == row[i]) for row in self.draws) for i in range(4)]
        assert self.choice.p_best() == pytest.approx(np.array(count) / 500)
        rises = [np.mean([row[i + 1] < row[i] for row in self.draws]) for i in range(3)]
        assert self.choice.p_rises()[:3] == pytest.approx(rises)
        assert np.isnan(self.choice.p_rises()[3])

    def test_losses(self):
        more = [np.mean([np.exp(r[i]) / np.exp(min(r)) - 1 for r in self.draws]) for i in range(4)]
        less = [np.mean([1 - np.exp(min(r)) / np.exp(r[i]) for r in self.draws]) for i in range(4)]
        assert self.choice.expected_loss(False) == pytest.approx(more)
        assert self.choice.expected_loss(True) == pytest.approx(less)

    def test_interval_and_value(self):
        best = sorted(self.at[np.argmin(row)] for row in self.draws)
        row, steps = self.choice.tables(True, 0.9)
        assert [row["lower_hz"], row["upper_hz"]] == [best[24], best[474]]
        assert steps["value"].tolist() == pytest.approx(np.median(np.exp(-self.draws), axis=0))
        assert (steps["lower"] < steps["value"]).all()

    def test_where_perf_per_watt_stops_rising(self):
        def rises_to(log_energy):
            choice = self.choice._replace(log_energy=log_energy)
            return choice.tables(False, 0.9)[0]["rises_to_hz"]

        assert rises_to(self.draws) == 1.5e9
        assert [rises_to(s * np.arange(4.0)[None]) for s in (-1, 1)] == [2.5e9, 1e9]
        assert np.isnan(rises_to(None))


class TestSteps:
    @pytest.mark.cases(
        "asked, steps",
        ("1.8GHz, 1200MHz", [1.2e9, 1.8e9]),
        ("1.2GHz:1.75GHz:200MHz", [1.2e9, 1.4e9, 1.6e9]),
        ([2.4e9, "1.2GHz", 2.4e9], [1.2e9, 2.4e9]),
    )
    def test_as_asked(self, asked, steps):
        assert as_steps(asked) == pytest.approx(steps)

    @pytest.mark.cases(
        "asked, said",
        ("1.2GHz:1.8GHz", "are not LOWEST:HIGHEST:STEP"),
        ("1.8GHz:1.2GHz:0.1GHz", "the lowest frequency is above the highest"),
        ("1GHz:2GHz:0GHz", "step 0.0 must be greater than 0"),
        ("1GHz:2GHz:1MHz", "give 1000 at most"),
        ("1.2GHz", "give two or more"),
        ([2e9, 2e9], "give two or more"),
        ("fast,slow", "'fast' is not a quantity in Hz"),
        ("1.2GHz:fast:0.2GHz", "'fast' is not a quantity in Hz"),
    )
    def test_what_are_none(self, asked, said):
        with pytest.raises((PpwError, MeasurementError), match=said):
            as_steps(asked)

    @given(st.integers(5, 30), st.integers(1, 20), st.sampled_from([0.05, 0.1, 0.2]))
    def test_a_range_has_its_ends(self, low, count, step):
        text = f"{low / 10}GHz:{low / 10 + count * step:.2f}GHz:{step}GHz"
        made = as_steps(text)
        assert (len(made), made[-1]) == (count + 1, pytest.approx((low / 10 + count * step) * GHZ))

    def test_a_host_of_the_catalogue_adds_its_own(self):
        runs = lines(steps=[1.6, 2.4, 2.93], host="Xeon X5670")
        result = answer(runs)
        assert len(result.steps) == 11
        measured = result.steps.loc[result.steps["runs"] > 0, "freq_hz"]
        assert measured.tolist() == [1.6e9, 2.4e9, 2.93e9]
        # Measured steps win over listed ones.
        known = add_listed_steps(np.array([1e9, 2.93e9]), (1.5e9, 2.9333e9))
        assert known.tolist() == [1e9, 1.5e9, 2.93e9]

    def test_one_outside_the_measured_range_is_said(self):
        result = answer(lines(fixed=1.0, steps=[0.8, 1.2]), steps="0.8GHz:2.4GHz:0.8GHz")
        assert result.table["best_hz"].iloc[0] > 1.2e9
        only(result.caveats, "the best step is outside the measured")
        # Steps between measured ones are not outside.
        between = answer(lines(steps=[0.9, 2.3, 3.1]), steps="1.0GHz:3.0GHz:0.5GHz")
        assert "outside" not in " ".join(between.caveats)


PRICED = {"objective": "perf_per_dollar"}


class TestPriceAndPower:
    def test_without_electricity_or_watts_the_highest_step_has_the_most_work_per_price(self):
        runs = lines(price=1000.0)
        result = answer(runs, **PRICED)
        row = result.table.iloc[0]
        assert row["best_hz"] == row["linear_hz"] == 3.2e9
        assert row["value"] == pytest.approx(1 / (10 + 20 / 3.2) / 1000, rel=0.01)
        assert result.steps["p_rises"].iloc[0] > 0.9
        assert result.steps["p_rises"].iloc[-2] < 0.1
        without = answer(runs.drop(columns=["power_w", "power_source"]), **PRICED)
        assert without.table["best_hz"].iloc[0] == 3.2e9
        assert without.steps["p_rises"].isna().all()
        assert BestFrequency.from_json(without.to_json()).summary() == without.summary()

    def test_throughput_stands_for_time(self):
        runs = lines()
        rate = runs.assign(throughput_ops_s=1000 / runs.pop("time_s"))
        row = answered_row(rate)
        assert row["best_hz"] == pytest.approx(2e9, abs=0.21e9)
        assert row["value"] == pytest.approx(cost(2.0, 1) / 1000, rel=0.01)

    @pytest.mark.cases(
        "changed, options, said",
        ({}, {"objective": "speed"}, "objective 'speed' is not one of energy, edp"),
        ({}, {"level": 1.0}, "interval level 1.0"),
        ({}, {"idle_power": "90W"}, "idle power 90 W is not below the least measured power 4"),
        ({}, {"idle_power": -1}, "idle power -1 is negative"),
        ({}, {"price": 5.0}, "does not change energy"),
        ({}, {"electricity": 0.3}, "does not change energy"),
        ({}, PRICED, "takes a column price"),
        ({}, {**PRICED, "price": 0}, "price 0 must be greater than 0"),
        ({}, {**PRICED, "electricity": 0.3, "price": 1}, "must be given together"),
        ({}, {**PRICED, "lifetime_hours": 3, "price": 1}, "must be given together"),
        ({"price": np.nan}, PRICED, "price nan of rack1, sort"),
        ({}, {"draws": 10}, "10 draws are too few"),
        ({"steps": [2.0]}, {}, "only one distinct frequency"),
        ({}, {"deadline": 1, "power_cap": 40}, "no step stays within 1 s and 40 W"),
        ({}, {"deadline": 0}, "must be greater than 0"),
        ({}, {"power_cap": "-5W"}, "power cap -5.0 must be greater than 0"),
    )
    def test_what_is_refused(self, changed, options, said):
        with pytest.raises((PpwError, MeasurementError), match=said):
            best(lines(**changed), **options)

    def test_what_was_not_measured_is_refused_by_its_own_name(self):
        bare = lines().drop(columns="power_w")
        with pytest.raises(PpwError, match=r"^runs: energy needs energy_j"):
            best(bare)
        with pytest.raises(PpwError, match="a power cap needs power_w"):
            best(bare, objective="time", power_cap=100)
        rates = lines().rename(columns={"time_s": "throughput_ops_s"})
        with pytest.raises(PpwError, match="a deadline applies to the time of a run"):
            best(rates, deadline=10)


class TestProperties:
    @settings(max_examples=max(4, settings.default.max_examples // 3))
    @given(st.sampled_from([*OBJECTIVES]), st.integers(0, 50), st.floats(0.5, 0.99))
    def test_of_any_objective(self, objective, seed, level):
        runs = lines(repeats=1, noise=0.02, steps=[1.0, 1.6, 2.2, 2.8], price=10.0)
        result = answer(runs, objective=objective, seed=seed, level=level, draws=200)
        steps, row = result.steps, result.table.iloc[0]
        assert steps["p_best"].sum() == pytest.approx(1)
        assert (steps["expected_loss"] >= 0).all()
        assert row["expected_loss"] == steps["expected_loss"].min()
        assert row["lower_hz"] <= row["upper_hz"]
        assert {row["lower_hz"], row["upper_hz"], row["best_hz"]} <= set(steps["freq_hz"])
        least = steps.set_index("freq_hz")["expected_loss"]
        assert least[row["least_loss_hz"]] == least.min()
        assert steps["freq_hz"].min() <= row["linear_hz"] <= steps["freq_hz"].max()

    def test_energy_and_perf_per_watt_agree(self, least):
        energy, merit = least.steps, answer(lines(), objective="perf_per_watt").steps
        assert (energy["p_best"] == merit["p_best"]).all()
        np.testing.assert_allclose(energy["value"] * merit["value"], 1, rtol=1e-3)

    def test_neither_the_order_of_rows_nor_another_unit_matters_but_the_seed_does(self, least):
        runs = lines()
        shuffled = runs.sample(frac=1, random_state=3)
        mhz = runs.assign(freq_mhz=1000 * runs["freq_ghz"]).drop(columns="freq_ghz")
        pd.testing.assert_frame_equal(answer(shuffled).table, least.table)
        pd.testing.assert_frame_equal(answer(mhz).table, least.table, rtol=1e-6)
        one, other, third = (answer(runs, seed=n, draws=200).to_json() for n in (5, 5, 6))
        assert one == other != third

    def test_more_noise_makes_it_less_sure(self):
        sure, unsure = (
            row["upper_hz"] - row["lower_hz"]
            for row in (answered_row(lines(noise=n, repeats=4)) for n in (0.001, 0.05))
        )
        assert sure < unsure


class TestAgainstTheProjection:
    def test_beyond_the_highest_step_the_medians_are_the_same(self):
        runs = sweep(noise=0.01)
        projected = answered(ppw.project, runs, freq=3.0e9, metric="energy").table
        steps = answer(runs, steps=[2.4e9, 3.0e9], draws=8000).steps
        here = steps[steps["freq_hz"] == 3e9]
        wanted = projected["projected"].to_numpy()
        assert here["value"].to_numpy() == pytest.approx(wanted, rel=0.01)
        # Without the noise of new runs the interval is the narrower one.
        width, wider = (t["upper"].to_numpy() / t["lower"].to_numpy() for t in (here, projected))
        assert (width < wider).all()

    def test_voltages_are_used_where_they_cover_all_steps(self):
        volts = {f * GHZ: 0.7 + 0.1 * f for f in (0.8, 3.2)}
        runs = lines(steps=[1.0, 1.6], noise=0.01)
        asked = {"steps": "1GHz:3GHz:1GHz", "draws": 500}
        known, unknown = (answer(runs, voltages=v, **asked).steps for v in (volts, {}))
        width = [(s["upper"] / s["lower"]).iloc[-1] for s in (known, unknown)]
        assert width[0] < width[1]
        short = answer(runs, voltages={1e9: 0.8, 2e9: 0.9}, **asked).steps
        pd.testing.assert_frame_equal(short, unknown)


class TestManyGroups:
    def test_one_row_each_and_who_is_left_out_is_said(self):
        single = sweep(steps=(2.0,), workloads=("wc",))
        runs = pd.concat([sweep(workloads=("grep", "sort")), single], ignore_index=True)
        result = answer(runs)
        assert (result.table["workload"].tolist(), len(result.caveats)) == (["grep", "sort"], 2)
        assert all("measured at only one frequency" in c for c in result.caveats)
        assert len(result.to_frame()) == len(result.steps) == 8
        assert result.to_frame().groupby("workload")["best_hz"].nunique().tolist() == [1, 1]
        assert "best at 2.4 GHz, more likely than not in 2 of 2 groups" in result.verdict()

    def test_all_rows_as_one_group(self):
        result = answer(sweep(workloads=("wc",)).drop(columns="host"), by=[])
        assert len(result.table) == 1
        assert "best_hz" in result.to_frame()
        assert result.plot().get_legend_handles_labels()[1] == ["all runs"]

    def test_suspect_rows_are_left_out_unless_kept(self):
        runs = lines()
        runs.loc[4, "power_w"] = 1e-9 - 5
        result = answer(runs)
        only(result.caveats, "left out")
        with pytest.raises(MeasurementError, match="power_w"):
            best(runs, keep_all=True)


class TestLittleIsKnown:
    """Far below the measured frequencies every step may be the best one, each little so."""

    TEN, N = np.arange(0.6, 2.5, 0.2), 400

    def hosts(self):
        """Energy (hosts, steps) by Amdahl's law and P0 + c·f^γ, and runs with 2 % noise."""
        rng = np.random.default_rng(1)
        share, gamma, static = rng.uniform([[0], [1], [0.2]], [[0.6], [3], [0.8]], (3, self.N))

        def measures(f):
            time = 100 * (share[:, None] + (1 - share[:, None]) * 2 / f)
            return time, 100 * (static[:, None] + (1 - static[:, None]) * (f / 2) ** gamma[:, None])

        f = np.repeat([1.6, 2.0, 2.4], 3)
        time, power = (m * np.exp(0.02 * rng.standard_normal(m.shape)) for m in measures(f))
        host = np.repeat([f"h{i:03}" for i in range(self.N)], len(f))
        runs = pd.DataFrame({"host": host, "freq_ghz": np.tile(f, self.N)})
        runs = runs.assign(time_s=time.ravel(), power_w=power.ravel(), power_source="meter:a")
        return np.multiply(*measures(self.TEN)), runs, time, power, f

    def known_law(self, time, power, f):
        """Step of least energy (a number) by the law itself, fitted by least squares."""

        def line(x, y):
            return nnls(np.column_stack([np.ones_like(x), x]) / y[:, None], np.ones_like(y))

        fixed, work = line(1 / f, time)[0]
        g = minimize_scalar(lambda g: line(f**g, power)[1], bounds=(1, 3), method="bounded").x
        p0, c = line(f**g, power)[0]
        return np.argmin((fixed + work / self.TEN) * (p0 + c * self.TEN**g))

    @pytest.mark.slow
    def test_the_step_of_the_least_expected_loss_costs_half_as_much_as_the_likeliest(self):
        energy, runs, time, power, f = self.hosts()
        table = answer(runs, steps=self.TEN * GHZ).table
        lost = energy / energy.min(axis=1, keepdims=True) - 1
        steps = [
            np.abs(table[[column]].to_numpy() / GHZ - self.TEN).argmin(axis=1)
            for column in ("best_hz", "most_probable_hz")
        ]
        steps.append([self.known_law(t, p, f) for t, p in zip(time, power, strict=True)])
        chosen, likeliest, known = (lost[np.arange(self.N), step].mean() for step in steps)
        assert chosen < 0.5 * likeliest
        assert chosen < 1.2 * known

    def test_what_cannot_be_told_apart_is_in_the_first_line(self):
        result = answer(lines(noise=0.03, repeats=2))
        row = result.table.iloc[0]
        alike = result.steps["freq_hz"][result.steps["p_worse"] < 0.9]
        assert len(alike) == 6
        assert (
            f"{row['p_best']:.0%} and expected loss {row['expected_loss']:.1%}, but 5 steps "
            in (result.verdict())
        )
        said = result.verdict()
        assert " cannot be told apart from it at 90%: more runs at " in said
        assert said.endswith(" would decide it.")


def test_rates_by_hand():
    rates = Rates.of(0.36, 1000.0)
    assert rates.per_joule == pytest.approx(1e-7)
    assert rates.per_second(3600.0) == pytest.approx(1e-3)
    # A curve that falls below idle keeps a millionth of its watts.
    for paid, counted in ((Rates(), [40.0, 60.0]), (Rates(idle_w=50.0), [4e-5, 10.0])):
        assert np.exp(paid.net(np.log([40.0, 60.0]))) == pytest.approx(counted)
    with pytest.raises(PpwError, match="electricity -1 must be 0 or more"):
        Rates.of(-1, 1000.0)


def test_every_format_of_the_command(tmp_path):
    lines().to_csv(tmp_path / "runs.csv", index=False)

    def ask(words):
        return printed(ppw_inside("best", "runs.csv", *words.split(), cwd=tmp_path))

    assert ask("").startswith("Least energy: best at 2 GHz, with probability ")
    asked = "--objective edp --deadline 40s --power-cap 70W --seed 3"
    result = BestFrequency.from_json(ask(f"--format json {asked}"))
    assert (result.objective, result.seed) == ("edp", 3)
    assert (result.deadline_s, result.power_cap_w) == (40.0, 70.0)
    table = ask("--format csv --steps 1GHz:2GHz:0.5GHz")
    assert pd.read_csv(io.StringIO(table))["freq_hz"].tolist() == [1e9, 1.5e9, 2e9]
    page = ask("--format html --idle-power 20W")
    assert "Performance per watt probably rises with every step up to" in page


@pytest.mark.thirdparty
def test_the_best_step_of_a_server_that_was_measured_at_all(data_dir):
    """From half of the steps: the step held best loses little by the measurements of all."""
    runs = ppw.read_runs(data_dir / "nornir-repara" / "tidy.csv", check=False)
    runs = runs[runs["workload"].isin(["pbzip2", "simple_mandelbrot"])]
    every = np.sort(runs["freq_hz"].unique())
    learnt = runs[runs["freq_hz"].isin(every[::3])]
    with pytest.warns(ppw.CaveatWarning):
        result = best(learnt, steps=every, draws=500)
    keys = ["workload", "threads", "freq_hz"]
    energy = runs.assign(energy=runs["time_s"] * runs["power_w"]).set_index(keys)["energy"]
    rows = result.table.to_dict(orient="records")
    each = [(energy[row["workload"], row["threads"]], row["best_hz"]) for row in rows]
    lost = [own[best] / own.min() - 1 for own, best in each]
    assert len(lost) > 30
    assert np.median(lost) < 0.01
    assert np.quantile(lost, 0.9) < 0.05


class TestLimits:
    """Steps by T = 10 + 20/f and P = 30 + 15 f, f in GHz, within a deadline or a power cap."""

    def test_least_energy_by_a_deadline_is_at_the_lowest_step_in_time(self):
        # Energy is least at 2 GHz, where a run takes 20 s; 16.8 s takes 3 GHz.
        assert answered_row(lines(), deadline=24.0)["best_hz"] == 2 * GHZ
        result = answer(lines(), deadline="0.28min")
        assert result.table["best_hz"].tolist() == [3 * GHZ]
        assert result.steps["freq_hz"].tolist() == pytest.approx([3 * GHZ, 3.2 * GHZ])
        assert "within 16.8 s" in result.verdict()

    def test_least_time_is_at_the_highest_step_below_a_power_cap(self):
        # 63 W are drawn at 2.2 GHz.
        row = answered_row(lines(), objective="time", power_cap="64W")
        assert (row["best_hz"], row["value"]) == pytest.approx((2.2e9, 10 + 20 / 2.2), rel=0.01)
        assert row["unit"] == "s/run"
        runs = lines().drop(columns=["power_w", "power_source"])
        assert answered_row(runs, objective="time")["best_hz"] == 3.2e9

    def test_both_limits_leave_the_steps_between(self):
        # 2.0 GHz takes 20 s, 2.6 GHz draws 69 W.
        result = answer(lines(), deadline="20.5s", power_cap="70W")
        assert result.steps["freq_hz"].tolist() == pytest.approx([2e9, 2.2e9, 2.4e9, 2.6e9])

    def test_least_energy_at_most_so_much_slower_than_the_fastest(self):
        # A run takes 16.25 s at 3.2 GHz, and 17.7 s at 2.6 GHz; energy is least at 2 GHz.
        result = answer(lines(), max_slowdown=0.1)
        assert result.table["best_hz"].tolist() == [2.6e9]
        assert result.verdict().startswith("Least energy at most 10% slower than the fastest: ")
        assert BestFrequency.from_json(result.to_json()).summary() == result.summary()
        both = answered_row(lines(), max_slowdown=0.1, deadline=16.8)
        assert both["best_hz"] == 3 * GHZ

    def test_a_step_has_to_keep_to_it_with_the_level(self):
        # At 2 GHz a run takes 20 s: as often as not within 20 s.
        strict = answered_row(lines(noise=0.01), deadline=20.0, level=0.99)
        assert strict["best_hz"] > 2 * GHZ

    def test_a_group_that_cannot_is_left_out_and_said(self):
        runs = pd.concat([lines(), lines(fixed=100.0, workload="index")], ignore_index=True)
        result = answer(runs, deadline="25s")
        assert result.table["workload"].tolist() == ["sort"]
        caveat = only(result.caveats, "left out: rack1, index: no step stays within 25 s")
        assert "3.2 GHz comes nearest" in caveat

    @pytest.mark.cases(
        "groups, end",
        (3, "%"),
        (4, "; and 1 more group with the same problem"),
        (6, "; and 3 more groups with the same problem"),
    )
    def test_of_many_that_cannot_the_rest_is_counted(self, groups, end):
        runs = [lines(fixed=10.0 + n, workload=f"w{n}", repeats=1) for n in range(groups)]
        with pytest.raises(PpwError) as refused:
            best(pd.concat(runs, ignore_index=True), deadline=1, draws=200)
        assert str(refused.value).count("no step stays") == 3
        assert str(refused.value).endswith(end)

    def test_the_document_has_the_limits_and_one_without_is_read(self):
        result = answer(lines(), deadline=24.0)
        older = json.loads(result.to_json())
        assert (older["deadline_s"], older["power_cap_w"]) == (24.0, None)
        del older["deadline_s"], older["power_cap_w"]
        assert BestFrequency.from_json(json.dumps(older)).deadline_s is None
