"""`ppw.check` and `ppw check`: bad rows are named, good ones are left in peace."""

import functools
import json

import numpy as np
import pandas as pd
import pytest
from golden_runs import golden
from hypothesis import given, settings, strategies as st
from made_up import answered, only, sweep
from processes import ppw_inside, printed

import ppw
from ppw.errors import PpwError, UnknownColumnError
from ppw.runs.checks import CHECKS
from ppw.runs.groups import recorded_step
from ppw.runs.report import quality_page

# 13 steps, as of the Xeon of the Nornir sweeps.
CLOCKS = np.round(np.arange(1.2, 2.45, 0.1), 1)
ROWS, SEEDS = st.integers(0, 12), st.integers(0, 99)


def check(runs, **options):
    return answered(ppw.check, runs, **options)


def told(runs, name=None, **options):
    """Evidence by position of the rows that a check names, or any check."""
    table = check(runs, **options).to_frame()
    chosen = table if name is None else table[table["check"] == name]
    return dict(zip(chosen["position"], chosen["evidence"], strict=True))


def named(runs, name=None, **options):
    return sorted(told(runs, name, **options))


def frame(time, watts=None, *, clocks=CLOCKS, **columns):
    """Runs of one sweep; by default with watts that go with the clock."""
    ghz = np.asarray(clocks)
    watts = 20.0 + 15.137 * ghz if watts is None else watts
    return pd.DataFrame({"freq_ghz": ghz, "time_s": time, "power_w": watts, **columns})


def clean(*, fixed=3.0, work=60.0, noise=0.003, seed=1, digits=3, **columns):
    """One sweep with noise, recorded to so many decimals."""
    random = np.random.default_rng(seed)
    noises = np.exp(random.normal(0, noise, (2, len(CLOCKS))))
    time = (fixed + work / CLOCKS) * noises[0]
    watts = (20 + 15 * CLOCKS) * noises[1]
    return frame(time.round(digits), watts.round(digits), **columns)


def as_rates(runs):
    """The same runs with a throughput in place of their time."""
    rates = (1e5 / runs["time_s"]).round(2)
    return runs.assign(throughput_ops_s=rates).drop(columns="time_s")


def with_energy(runs, factor=1.0):
    return runs.assign(energy_j=runs["power_w"] * runs["time_s"] * factor)


class TestFrequencyNotApplied:
    NAME = "frequency_not_applied"

    def stale(self, *copies, **columns):
        runs = clean(**columns)
        for at in copies or (5,):
            runs.loc[at, ["time_s", "power_w"]] = runs.loc[4, ["time_s", "power_w"]]
        return runs

    def test_all_rows_are_named_with_the_digits(self):
        time, watts = self.stale().loc[4, ["time_s", "power_w"]]
        two = f"the same {time} s and {watts} W, to every digit, at 1.6 GHz and 1.7 GHz"
        assert told(self.stale()) == {4: two, 5: two}
        three = told(self.stale(5, 6))
        assert list(three) == [4, 5, 6]
        assert three[4].endswith("at 3 frequencies between 1.6 GHz and 1.8 GHz")
        rates = told(as_rates(self.stale()))
        assert list(rates) == [4, 5]
        assert "operations/s and " in rates[4]

    @pytest.mark.parametrize("digits", [0, 1])
    def test_coarse_records_agree_by_chance(self, digits):
        flat = pd.concat(
            clean(fixed=30.0, work=0.0, digits=digits, seed=i, workload=f"w{i}") for i in range(40)
        )
        assert flat.duplicated(["time_s", "workload"]).sum() > 100
        assert named(flat, self.NAME) == []

    def test_watts_that_never_vary_and_fixed_durations_say_nothing(self):
        runs = self.stale()
        assert named(runs.assign(power_w=95.0)) == named(runs.drop(columns="power_w")) == []
        # Time alone takes many digits.
        assert named(self.stale(digits=7).drop(columns="power_w")) == [4, 5]
        capped = self.stale(fixed=23.0, work=0.0)
        assert named(capped) == [4, 5]
        capped.loc[3:, "power_w"] = 44.123
        assert named(capped) == named(frame(60.0001234)) == []
        assert named(frame(60.0001234, throughput_ops_s=1e3 * CLOCKS)) == []

    def test_other_watts_or_cycles_or_repeats_make_two_runs(self):
        runs = self.stale()
        assert named(runs.assign(cycles=np.arange(13) + 1e9)) == []
        assert named(runs.assign(cycles=1e9)) == [4, 5]
        runs.loc[5, "power_w"] += 0.001
        assert named(runs) == named(pd.concat([clean(), clean()])) == []

    def test_groups_are_kept_apart(self):
        runs, other = clean(), clean(seed=2)
        other.loc[5, ["time_s", "power_w"]] = runs.loc[4, ["time_s", "power_w"]]
        both = pd.concat([runs.assign(cores=1), other.assign(cores=2)])
        assert named(both, self.NAME) == []
        assert named(both, self.NAME, by=[]) == [4, 18]


class TestSlowerWhenFaster:
    NAME = "slower_when_faster"

    @pytest.mark.parametrize("at", [0, 3, 11])
    @pytest.mark.parametrize("factor", [0.5, 2.0])
    def test_the_step_that_fits_least_is_named(self, at, factor):
        runs = clean(fixed=20.0, work=20.0)
        runs.loc[at, "time_s"] *= factor
        # Too slow at the lowest step, too fast at the highest, is what a clock may do.
        found = [] if (at, factor) == (0, 2.0) else [at]
        # A column that goes with the frequency is no setting.
        tied = runs.assign(governor=[f"at {c}" for c in CLOCKS])
        assert named(runs, self.NAME) == named(tied, self.NAME) == found

    def test_evidence_of_time_and_of_throughput(self):
        runs = frame(np.where(CLOCKS == 2.4, 40.0, 20 + 20 / CLOCKS).round(3))
        said = "at 2.4 GHz 40 s, at 2.3 GHz 28.7 s: 39 % slower at the higher frequency"
        assert told(runs) == {12: said}
        rates = as_rates(clean())
        rates.loc[8, "throughput_ops_s"] /= 2
        # A service runs for a fixed time: its throughput counts.
        assert told(rates) == told(rates.assign(time_s=60.0))
        assert told(rates)[8].startswith("at 2 GHz ")
        assert len(told(rates)) == 1

    def test_several_throttled_steps(self):
        runs = clean(fixed=20.0, work=20.0)
        runs.loc[10:, "time_s"] = [45.1, 46.3, 47.2]
        assert named(runs) == [10, 11, 12]

    @pytest.mark.cases(
        "clocks, times, found",
        # Of two steps both, if they are far apart; of three the one that contradicts both.
        ([1.2, 2.4], [10.0, 15.03], [0, 1]),
        ([1.2, 2.4], [10.0, 12.03], []),
        ([1.0, 1.5, 2.0], [100.3, 150.2, 80.1], [1]),
        ([1.0, 1.5, 2.0], [60.2, 100.3, 95.1], [0]),
        # The first is far too slow, as it may be: the one that contradicts it and another.
        ([1.0, 1.5, 2.0, 2.5], [500.2, 40.03, 60.02, 33.01], [1]),
        # Repeats judge the noise.
        ([1.2] * 3 + [2.4] * 3, [10.01, 10.04, 9.97, 11.52, 11.47, 11.55], [*range(6)]),
        ([1.2] * 3 + [2.4] * 3, [10.01, 10.04, 9.97, 10.52, 10.47, 10.55], []),
        ([1.2] * 3 + [2.4] * 3, [9.01, 11.04, 9.97, 11.52, 9.47, 14.55], []),
        # Whole seconds.
        (CLOCKS, [1, 2, 1, 2, 2, 1, 2, 1, 2, 1, 1, 2, 2], []),
    )
    def test_of_few_steps_and_of_noise(self, clocks, times, found):
        assert named(frame(times, clocks=clocks)) == found

    def test_what_is_noisy_is_left_in_peace(self):
        noisy = [97.97, 98.11, 87.12, 81.22, 89.55, 92.75, 66.88, 88.55, 71.06, 59.34, 55.7, 55.2]
        assert named(frame([*noisy, 50.03])) == []
        random = np.random.default_rng(3)
        names = np.repeat([f"w{i}" for i in range(60)], 2)
        time = np.exp(random.normal(0, 0.2, 120)).round(4)
        runs = frame(time, clocks=np.tile([1.2, 2.4], 60), workload=names)
        assert len(named(runs, self.NAME)) <= 2

    def test_other_settings_are_not_compared(self):
        both = pd.concat([clean().iloc[5:], clean(work=20.0).iloc[:5]])
        assert len(named(both)) > 0
        assert named(both.assign(cluster=["big"] * 8 + ["little"] * 5)) == []
        assert named(both.assign(load=[1.0] * 8 + [0.5] * 5)) == []
        assert named(both.assign(cores=[1] * 8 + [4] * 5), by=[]) == []


class TestHalfOrThirdFrequency:
    NAME = "half_or_third_frequency"
    WHERE = "where the other steps give {}: it probably ran at {} of its frequency, {}"

    def sweep(self, at, part, *, fixed=12.0, work=60.0, repeats=1, noise=0.003, clocks=CLOCKS):
        """Runs of one sweep, of which one step ran at a part of its frequency."""
        random = np.random.default_rng(at)
        parts = np.where(np.arange(len(clocks)) == at, part, 1)
        time = np.tile(fixed + work * parts / clocks, repeats)
        scatter = random.lognormal(0, noise, (2, len(time)))
        runs = {"clocks": np.tile(clocks, repeats), "watts": scatter[1] * 50}
        return frame((time * scatter[0]).round(3), **runs)

    @pytest.mark.cases(
        "clocks, times, said",
        # T = 10 s + 60 G/f: 70, 50, 40, and 30 s; at 500 MHz 130 s.
        ([1, 1.5, 2, 3], [130.0, 50, 40, 30], {0: WHERE.format("70 s", "a half", "500 MHz")}),
        # T = 60 G/f; at a third of 3 GHz 60 s.
        ([1, 1.5, 2, 3], [60.0, 40, 30, 60], {3: WHERE.format("20 s", "a third", "1 GHz")}),
        # Neighbours far apart: none is slower than a lower step.
        ([1, 2, 3], [60.0, 60, 20], {1: WHERE.format("30 s", "a half", "1 GHz")}),
        # Of two steps nobody can say; a knee is no contradiction; half as slow is neither.
        ([1, 2], [120.0, 30], {}),
        ([0.5, 1, 2, 3], [120.0, 60, 60, 60], {}),
        ([1, 1.5, 2, 3], [90.0, 40, 30, 20], {}),
        # Two of four may be either half.
        ([1, 1.5, 2, 3], [120.0, 80, 30, 20], {}),
        # Whole seconds.
        ([1, 1.5, 2, 3], [4.0, 2, 1, 1], {}),
    )
    def test_worked_by_hand(self, clocks, times, said):
        found = told(frame(times, clocks=clocks), self.NAME)
        assert {at: words.partition(" s, ")[2] for at, words in found.items()} == said

    @pytest.mark.parametrize("repeats", [1, 3])
    def test_every_step_of_times_and_rates_and_repeats(self, repeats):
        cases = [(at, part) for part in (1, 2, 3) for at in range(7)]
        sweeps = [self.sweep(*case, repeats=repeats, clocks=CLOCKS[::2]) for case in cases]
        named_sweeps = [runs.assign(workload=f"w{n:02}") for n, runs in enumerate(sweeps)]
        runs = pd.concat(named_sweeps, ignore_index=True)
        places = enumerate(cases[7:], 7)
        found = [7 * (n * repeats + i) + at for n, (at, _) in places for i in range(repeats)]
        rates = told(as_rates(runs), self.NAME)
        assert named(runs, self.NAME) == sorted(rates) == found
        assert all(" operations/s, where the other steps give " in said for said in rates.values())
        assert named(runs[: 49 * repeats]) == []

    def test_a_table_is_its_groups_one_by_one(self):
        each = [self.sweep(at, 2 + at % 2).assign(workload=f"w{at}") for at in range(13)]
        assert [named(runs, self.NAME) for runs in each] == [[at] for at in range(13)]
        table = pd.concat(each, ignore_index=True).sample(frac=1, random_state=1)
        assert sorted(table.index[named(table, self.NAME)]) == [14 * at for at in range(13)]

    def test_it_takes_no_part_but_is_tested(self):
        runs = self.sweep(0, 2)
        left_out = answered(ppw.project, runs, freq="2 GHz", metric="power").left_out
        assert list(left_out["check"]) == [self.NAME]
        # To turn down what is slower than expected would flatter the result.
        validation = answered(ppw.validate, runs, test="1.2 GHz", metric="time")
        assert list(validation.to_frame()["freq_hz"]) == [1.2e9]

    CURVES = st.tuples(st.floats(0, 50), st.floats(1, 200), st.floats(0, 150))
    STEPS = st.lists(st.integers(4, 50), min_size=2, max_size=9, unique=True)

    @given(CURVES, STEPS, st.sampled_from([0.0, 0.005, 0.02]), st.integers(1, 3), SEEDS)
    def test_no_good_sweep_has_one(self, curve, steps, noise, repeats, seed):
        ghz = np.repeat(np.array(sorted(steps)) / 10, repeats)
        fixed, work, least = curve
        scatter = np.random.default_rng(seed).lognormal(0, noise, len(ghz))
        time = np.maximum(fixed + work / ghz, least) * scatter
        assert named(frame(time.round(4), clocks=ghz), self.NAME) == []


class TestExactMultiple:
    NAME = "exact_multiple"

    def pair(self, factor=6.0, names=("a", "b"), **columns):
        runs = clean(**{"host": "rack1", **columns})
        copy = runs.assign(time_s=runs["time_s"] * factor)
        both = [runs.assign(workload=names[0]), copy.assign(workload=names[1])]
        return pd.concat(both, ignore_index=True)

    def test_the_larger_is_the_copy(self):
        said = "exactly 6 times those of a at all 13 settings that both have, with the same power"
        assert told(self.pair()) == dict.fromkeys(range(13, 26), said)
        assert named(self.pair(1 / 6)) == [*range(13)]
        # Of two that are the same, the later name.
        assert named(self.pair(1.0, names=("b", "a"))) == [*range(13)]
        assert told(self.pair(1.0))[13].startswith("the same times as a at all")
        # A copy may have lost its name.
        assert named(self.pair(names=("a", None))) == [*range(13, 26)]

    def test_only_what_both_have_to_the_recorded_digits(self):
        assert len(named(self.pair(1.7).round({"time_s": 3}), self.NAME)) == 13
        assert len(named(self.pair().iloc[3:-2], self.NAME)) == 8
        assert named(self.pair().iloc[:18], self.NAME) == []

    def test_copies_of_copies_throughput_and_repeats(self):
        third = self.pair(2.5).iloc[13:].assign(workload="c")
        assert named(pd.concat([self.pair(), third])) == [*range(13, 39)]
        rates = self.pair().rename(columns={"time_s": "throughput_ops_s"})
        assert named(rates, self.NAME) == [*range(13)]
        repeats = pd.concat([self.pair(seed=1), self.pair(seed=2)])
        assert len(named(repeats, self.NAME)) == 26

    def test_other_watts_another_host_or_one_row_that_differs_make_two_workloads(self):
        watts = self.pair()
        watts["power_w"] *= np.repeat([1.0, 1.01], 13)
        one = self.pair()
        one.loc[20, "time_s"] *= 1.01
        for pair in (watts, one, self.pair().assign(host=["a"] * 13 + ["b"] * 13)):
            assert named(pair, self.NAME) == []

    def test_programs_that_only_the_clock_decides_on(self):
        one, two = (frame((w / CLOCKS).round(3), workload=f"w{w:g}") for w in (100.0, 250.0))
        both = pd.concat([one, two])
        bare = both.drop(columns="power_w")
        for runs in (bare, bare.assign(power_w=95.0), both.round({"power_w": 0})):
            assert named(runs, self.NAME) == []

    def test_without_watts_it_takes_times_finer_than_any_repeat(self):
        assert named(self.pair().drop(columns="power_w"), self.NAME) == []
        assert len(named(self.pair(digits=9).drop(columns="power_w"), self.NAME)) == 13


class TestEnergy:
    NAME = "energy_is_not_power_times_time"

    @pytest.mark.cases(
        "factor, said",
        (0.01, "near 100, a power of ten"),
        (1000.0, "near 1000, a power of ten"),
        (1 / 3600, "near 3600, as between J and Wh"),
        (3.6e6, "near 3,600,000, as between J and kWh"),
        (60.0, "near 60, as between s and min"),
        (1 / 95.0, "near 100, a power of ten"),
        (30.0, None),
    )
    def test_a_slip_of_the_unit_is_suggested_where_it_is_near(self, factor, said):
        runs = with_energy(clean(), factor)
        runs.loc[3, "energy_j"] = np.nan
        found = told(runs)
        assert named(runs, self.NAME) == list(found) == [*range(3), *range(4, 13)]
        assert {words.partition("; ")[2] or None for words in found.values()} == {said}

    def test_none_at_all_is_named_and_what_a_window_or_idle_power_explains_is_not(self):
        runs = frame([5.0, 4.0], [50.0, 60.0], clocks=[1.2, 2.4], energy_j=[0.0, 240.0])
        assert told(runs) == {0: "energy of 0 J, but 50 W over 5 s is 250 J"}
        for factor in (0.4, 0.98, 1.0, 1.3, 2.5):
            assert named(with_energy(clean(), factor)) == []
        # Neither are joules of a small sensor.
        assert named(with_energy(clean().assign(power_w=CLOCKS / 1e4)), self.NAME) == []
        net = clean(idle_power_w=0.4)
        net["power_w"] /= 1000
        gross = net.assign(energy_j=(net["power_w"] + 0.4) * net["time_s"])
        assert named(gross, self.NAME) == []
        assert len(named(gross.drop(columns="idle_power_w"), self.NAME)) == 13


KILOWATTS = dict.fromkeys((0, 2), "1100 W around it: kilowatts?")


class TestSlipOfAUnit:
    NAME = "slip_of_a_unit"

    def said(self, watts):
        """Evidence by position, for watts at steps of a short sweep."""
        clocks = np.array([1.0, 1.5, 2.0, 2.4, 2.8, 3.2][: len(watts)])
        return told(frame(60 / clocks, watts, clocks=clocks), self.NAME)

    @pytest.mark.cases(
        "watts, said",
        ([10, 11000, 12, 13], {1: "10 to 13 W around it: milliwatts?"}),
        ([10, 11e6, 12, 13], {1: "10 to 13 W around it: microwatts?"}),
        ([10, 0.011, 12, 13], {1: "10 to 13 W around it: kilowatts?"}),
        ([10, 1.1e-5, 12, 13], {1: "10 to 13 W around it: megawatts?"}),
        ([12, 15000], {1: "12 W around it: milliwatts?"}),
        # Where most are wrong, no machine draws them.
        ([12000, 15000, 17], dict.fromkeys((0, 1), "17 W around it: milliwatts?")),
        # Where nobody can know, both sides are named.
        ([0.9, 1200], {0: "1200 W around it: kilowatts?", 1: "0.9 W around it: milliwatts?"}),
        ([1, 1100, 1.2], KILOWATTS | {1: "1 to 1.2 W around it: milliwatts?"}),
        # Factors of no unit; missing and negative watts.
        *(([10, 11 * factor, 12, 13], {}) for factor in (30, 100, 30_000, 1e8)),
        ([10, np.nan, 12, 13], {}),
        ([10, 0, -12, 13], {}),
    )
    def test_rows_of_a_short_sweep(self, watts, said):
        found = {at: words.split(", ") for at, words in self.said(watts).items()}
        assert {at: around for at, (_, around) in found.items()} == said
        for at, (row, _) in found.items():
            assert float(row.removesuffix(f" W at {1 + at / 2:g} GHz")) == watts[at]

    def test_several_rows(self):
        said = self.said([10, 11e3, 0.012, 13, 14e6, 15])
        units = {position: words.rpartition(" ")[2] for position, words in said.items()}
        assert units == {1: "milliwatts?", 2: "kilowatts?", 4: "microwatts?"}
        # The many against what a machine can draw.
        assert list(self.said([12000, 13000, 14000, 15000, 17])) == [0, 1, 2, 3, 4]
        # Each is compared with its own sweep.
        clocks = [1.0, 1.5, 2.0]
        sweeps = [([10, 11e3, 12], "a"), ([30, 31e3, 32], "b")]
        two = pd.concat(frame(9.0, w, clocks=clocks, workload=name) for w, name in sweeps)
        around = [words.split(", ")[1] for words in told(two, self.NAME).values()]
        assert [words.partition(" W ")[0] for words in around] == ["10 to 12", "30 to 32"]
        repeats = pd.concat([clean(seed=i) for i in range(3)], ignore_index=True)
        repeats.loc[20, "power_w"] *= 1000
        assert named(repeats, self.NAME) == [20]

    def test_groups_and_settings_are_not_compared(self):
        small = clean(seed=2, host="sensor")
        small["power_w"] /= 1000
        both = pd.concat([clean(host="server"), small])
        assert named(both) == named(both, by=[]) == []

    def test_joules(self):
        runs = with_energy(clean()).drop(columns="power_w")
        assert named(runs) == []
        runs.loc[4, "energy_j"] *= 1000
        assert told(runs)[4].endswith(" J around it: millijoules?")
        assert named(runs) == named(as_rates(runs), self.NAME) == [4]
        # Watts are named before joules.
        watts = clean()
        watts.loc[4, "power_w"] *= 1000
        assert told(with_energy(watts))[4].endswith(" W around it: milliwatts?")
        # A longer run takes more joules.
        long = clean()
        long.loc[4, "time_s"] *= 1000
        long = with_energy(long)
        assert named(long, self.NAME) == named(long.drop(columns="power_w"), self.NAME) == []

    def test_a_slip_takes_no_part(self):
        runs = frame([60.0, 40.0, 30.0, 25.0], [10, 0.011, 12, 13], clocks=[1.0, 1.5, 2.0, 2.4])
        left_out = answered(ppw.project, runs, freq="1.5 GHz", metric="energy").left_out
        assert list(left_out["check"]) == [self.NAME]

    SLIPS = st.sampled_from([1e3, 1e6, 1e-3, 1e-6])

    @given(st.floats(0.05, 3000), st.floats(0, 3), st.integers(4, 13), ROWS, SLIPS, SEEDS)
    def test_a_row_of_a_sound_sweep_scaled(self, least, power, steps, at, factor, seed):
        noise = np.exp(np.random.default_rng(seed).normal(0, 0.05, steps))
        clocks = CLOCKS[:steps]
        watts = least * (clocks / clocks[0]) ** power * noise
        runs = frame(60 / clocks, watts, clocks=clocks)
        assert named(runs, self.NAME) == []
        runs.loc[at % steps, "power_w"] *= factor
        assert named(runs, self.NAME) == [at % steps]


class TestRepeatFarOff:
    NAME = "repeat_far_off"

    # The other repeats are 37.26 and 36.75 s; the median of three is one of them.
    @pytest.mark.cases(
        "time, median",
        (312.5, "37.26"),
        (74.5, "37.26"),
        (3.74, "36.75"),
        (48.0, None),  # within 1.5 times
    )
    def test_worked_by_hand(self, time, median):
        runs = pd.DataFrame(
            {
                "host": "a",
                "workload": "sort",
                "freq_hz": np.repeat([1.6e9, 2.0e9, 2.4e9], 3),
                "time_s": [50.45, 50.99, 51.43, 41.83, 42.13, 42.63, 37.26, 36.75, time],
                "Notes": [*[None] * 8, "backup ran?"],
            }
        )
        words = f"time_s: {time:g} s, and {median} s is the median of the 3 repeats"
        assert told(runs, self.NAME) == ({8: words} if median else {})

    def test_scattered_repeats_are_noise(self):
        times = 40 * np.random.default_rng(2611).lognormal(0, 0.4, 60)
        runs = pd.DataFrame({"host": "a", "workload": "sort", "freq_hz": 2e9, "time_s": times})
        assert times.max() / np.median(times) > 2
        assert told(runs, self.NAME) == {}

    def test_two_thirds_apart_name_nobody(self):
        runs = pd.DataFrame({"freq_hz": np.repeat([1e9, 2e9, 3e9], 3), "workload": "sort"})
        runs["time_s"] = [60, 60.1, 60.2, 30, 30.1, 30.2, 10, 20, 40]
        assert told(runs.assign(host="a"), self.NAME) == {}


class TestTimeOfAnotherUnit:
    NAME = "time_of_another_unit"

    def sweep(self, clocks=(1.2, 1.6, 2.0, 2.4), fixed=12.0, work=115.2, seed=1, **columns):
        ghz = np.repeat(clocks, 3)
        scatter = np.random.default_rng(seed).lognormal(0, 0.004, len(ghz))
        table = {"freq_hz": 1e9 * ghz, "time_s": (fixed + work / ghz) * scatter}
        return pd.DataFrame({"host": "a", "workload": "sort", **table, **columns})

    # Factors, and the units that a row and the others are then in; by others it was held up.
    SLIPS = ((60, "s", "min"), (1 / 60, "min", "s"), (3600, "s", "h"), (1 / 3600, "h", "s"))
    SLIPS += ((1e3, "ms", "s"), (1e-3, "s", "ms"), (1e6, "µs", "s"), (1e-6, "s", "µs"))

    @pytest.mark.parametrize("row", [0, 5, 11])
    def test_a_slip_is_found_wherever_it_is(self, row):
        factors = [*(factor for factor, *_ in self.SLIPS), 5.0, 7.5, 11.0, 40_000.0]
        runs = pd.concat([self.sweep(workload=f"{f:g}") for f in factors], ignore_index=True)
        runs.loc[row::12, "time_s"] *= factors
        assert {
            at: words.partition(" sweep. ")[2] for at, words in told(runs, self.NAME).items()
        } == {
            12 * n + row: f"Check whether it is in {mine}, and the others in {others}"
            for n, (_, mine, others) in enumerate(self.SLIPS)
        }

    def test_worked_by_hand(self):
        # 100, 60, 50 s; the fourth, of 55 s, was written in ms: the lower middle of four is 60 s.
        runs = frame([100.0, 60.0, 50.0, 55e3], clocks=[1, 2, 3, 2.5])
        said = "5.5e+04 s at 2.5 GHz, and 60 s in the middle of its sweep. "
        assert told(runs, self.NAME) == {3: said + "Check whether it is in ms, and the others in s"}

    def test_up_to_a_third_of_a_sweep_and_no_more(self):
        for many, found in ((4, [0, 1, 2, 3]), (5, [])):
            runs = self.sweep()
            runs.loc[: many - 1, "time_s"] *= 1000
            assert named(runs, self.NAME) == found

    def test_jobs_of_other_lengths_are_no_slips(self):
        short, long = self.sweep(work=0.1, fixed=0.02), self.sweep(work=100.0, fixed=20.0)
        for column, *values in (("workload", "sort", "wc"), ("data_bytes", 1e6, 1e9)):
            both = [r.assign(**{column: v}) for r, v in zip((short, long), values, strict=True)]
            assert named(pd.concat(both), self.NAME) == []

    STEPS = st.lists(st.floats(0.3, 5), min_size=2, max_size=8, unique=True)

    @given(fixed=st.floats(0, 50), work=st.floats(1, 200), clocks=STEPS, seed=SEEDS)
    def test_no_sweep_by_the_law_has_one(self, fixed, work, clocks, seed):
        assert named(self.sweep(clocks, fixed=fixed, work=work, seed=seed), self.NAME) == []


class TestIdle:
    NAME = "power_at_or_below_idle"

    def test_no_watts_or_less_than_idle(self):
        runs = clean()
        runs.loc[[2, 5], "power_w"] = [0.0, -0.0007143]
        assert told(runs) == {
            2: "power of 0 W, which is impossible",
            5: "power of -714.3 µW, which is impossible",
        }
        runs = clean(idle_power_w=35.0)
        for watts, said in ((30.0, "30 W"), (0.5, "500 mW")):
            runs.loc[6, "power_w"] = watts
            assert told(runs) == {6: f"power of {said} while the idle machine draws 35 W"}
        # Up to a quarter of a host's rows are mistakes of their own.
        runs = runs.drop(index=0)
        runs.loc[[1, 7], "power_w"] = 30.0
        assert named(runs) == [0, 5, 6]
        # Idle figures scatter.
        runs.loc[[1, 6, 7], "power_w"] = 34.9
        assert named(runs) == []

    def test_watts_of_another_scope_are_a_caveat(self):
        runs = clean(idle_power_w=50.0, host="a")
        result = check(runs)
        assert result.passed.all()
        said = f"power_w is below idle_power_w in {(runs['power_w'] <= 49).sum()} rows"
        assert only(result.caveats, "too many of their host's").startswith(said)
        assert check(runs, metric="time").caveats == ()
        other = clean(idle_power_w=10.0, seed=5, host="b")
        other.loc[3, "power_w"] = 5.0
        # A host without a name is another.
        for second in (other, other.drop(columns="host")):
            assert named(pd.concat([runs, second]), self.NAME) == [16]


def test_more_power_than_one_host_or_its_limit_allows():
    caps = {"power_cap_long_w": 125.0, "power_cap_short_w": 150.0, "sockets": 2}
    runs = clean(power_source="rapl:package", **caps)
    assert named(runs, "impossible_power") == []
    runs.loc[[1, 4, 6], "power_w"] = [99_962.0, 601.0, 599.0]
    limited = "W while the processors are limited to 300 W"
    said = told(runs, "impossible_power")
    assert said == {1: f"power of 99.96 k{limited}", 4: f"power of 601 {limited}"}
    # A host draws more than its processors.
    runs["power_source"] = "ipmi:dcmi"
    runs.loc[2, "power_w"] = 160e3
    powers = {1: 99.96, 2: 160}
    said = {at: f"power of {kw} kW, which no single host draws" for at, kw in powers.items()}
    assert told(runs, "impossible_power") == said


def test_achieved_frequency():
    runs = clean().assign(freq_achieved_ghz=CLOCKS * 1.019)
    assert named(runs) == []
    runs.loc[[1, 7], "freq_achieved_ghz"] = [1.2, 2.4]
    assert told(runs) == {
        1: "asked for 1.3 GHz, achieved 1.2 GHz (-7.7 %)",
        7: "asked for 1.9 GHz, achieved 2.4 GHz (+26.3 %)",
    }


def test_other_work_is_named_and_leaves_no_row_out():
    runs = clean().assign(other_cpu_share=0.04)
    runs.loc[3, "other_cpu_share"] = 0.5
    assert told(runs, "other_work") == {3: "other work took 50.0% of the CPU time"}
    assert check(runs).verdict() == "Other work ran beside 1 of 13 rows."
    answer = answered(ppw.project, runs, freq="2.6GHz", metric="power")
    assert any("more than 5% of the CPU time in 1 of 13 runs" in c for c in answer.caveats)
    assert not any("left out" in caveat for caveat in answer.caveats)


def spoilt():
    """Three workloads: one row below zero watts, one stale pair, one step far too slow."""
    # Four digits, so that the golden text does not depend on the last bit.
    runs = sweep(repeats=1, noise=0.003, steps=tuple(CLOCKS))
    runs = runs.round({"time_s": 4, "power_w": 3, "cycles": -6})
    runs.loc[3, "power_w"] = -1.5
    same = ["time_s", "power_w", "cycles"]
    runs.loc[18, same] = runs.loc[17, same]
    runs.loc[36, "time_s"] *= 2
    return runs


class TestResult:
    def test_verdict_counts_and_passed(self):
        result = check(spoilt())
        assert result.verdict() == "4 of 39 rows cannot be right."
        assert np.flatnonzero(~result.passed).tolist() == [3, 17, 18, 36]
        known = {"frequency_not_applied": 2, "slower_when_faster": 1, "power_at_or_below_idle": 1}
        assert {name: count for name, count in result.counts.items() if count} == known
        lacking = {"energy_is_not_power_times_time": "energy_j", "achieved_off": "freq_achieved_hz"}
        lacking["other_work"] = "other_cpu_share"
        assert result.not_made == lacking
        assert {*result.counts, *lacking} == {*CHECKS} - {"unusable_value"}
        one = check(spoilt().drop(index=[17, 18, 36]))
        assert one.verdict().startswith("1 of 36 rows cannot be")
        assert "What to do: measure this frequency again" in quality_page(result).verdict[2]

    def test_good_rows_are_drawn_and_their_page_has_a_verdict_alone(self):
        good = check(sweep())
        page = quality_page(good)
        assert good.plot().has_data()
        assert page.verdict == ["None of 24 rows is flagged."]
        assert (len(page.tables), page.figures) == (1, [])

    def test_rows_are_named_by_their_file(self, tmp_path):
        files = [tmp_path / f"{name}.csv" for name in "ab"]
        for file, host in zip(files, "ab", strict=True):
            spoilt().assign(host=host).to_csv(file, index=False)
        one = check(ppw.read_runs(files[0], check=False))
        assert set(one.table["file"]) == {str(files[0])}
        assert list(one.table["row"]) == [4, 18, 19, 37]
        two = check(ppw.read_runs(files, check=False))
        assert list(two.table["row"]) == [4, 18, 19, 37] * 2
        assert list(two.table["position"]) == [3, 17, 18, 36, 42, 56, 57, 75]
        assert f"{files[1]}:38" in two.summary()

    def test_summary_is_cut_and_says_so(self):
        runs = sweep().assign(power_w=0.0)
        assert "more rows" not in check(runs).summary()
        many = pd.concat([runs.assign(host=f"node{i}") for i in range(3)])
        assert "… 32 more rows: use --format csv" in check(many).summary()

    def test_metric_makes_only_what_matters(self):
        assert named(spoilt(), metric="time") == [17, 18, 36]
        assert "power_at_or_below_idle" not in check(spoilt(), metric=["time", "cpi"]).counts
        assert "power_at_or_below_idle" in check(spoilt(), metric="perf_per_watt").counts


@pytest.mark.cases(
    "runs, options, error, said",
    (frame(1)[["freq_ghz"]], {}, UnknownColumnError, "nothing to check: no time_s"),
    ([1, 2], {}, PpwError, "not a DataFrame"),
    (sweep().assign(row=1), {"by": ["row"]}, UnknownColumnError, "cannot group by 'row'"),
    (sweep(), {"by": ["site"]}, UnknownColumnError, "cannot group by 'site'"),
    (sweep(), {"metric": "tiem"}, UnknownColumnError, "did you mean 'time'"),
)
def test_what_cannot_be_checked_is_refused(runs, options, error, said):
    with pytest.raises(error, match=said):
        ppw.check(runs, **options)


class TestDigits:
    def test_last_digit(self):
        values = np.array([-12.5, 94.553 / 60 * 60, 1 / 3, 0.0, 0.0024541])
        assert recorded_step(values) == pytest.approx([0.1, 1e-3, 1e-12, 1.0, 1e-7], rel=1e-9)

    @given(st.integers(1, 10**9), st.integers(-8, 8))
    def test_any_decimal(self, digits, exponent):
        found = recorded_step(np.array([digits * 10.0**exponent]))[0]
        zeros = len(str(digits)) - len(str(digits).rstrip("0"))
        assert found == pytest.approx(10.0 ** (exponent + zeros), rel=1e-9)


@st.composite
def dirty_tables(draw):
    """A few sweeps with noise, some rows copied, scaled or without watts."""
    sweeps = []
    for i in range(draw(st.integers(1, 4))):
        runs = clean(
            fixed=draw(st.floats(0, 30)),
            work=draw(st.floats(1, 90)),
            noise=draw(st.sampled_from([0.0, 0.003, 0.1])),
            seed=draw(st.integers(0, 99)),
            digits=draw(st.integers(1, 6)),
            host="rack1",
            workload=f"w{i}",
        )
        for at in draw(st.lists(st.integers(0, 11), max_size=3)):
            columns = ["time_s", "power_w"]
            runs.loc[at + 1, columns] = runs.loc[at, columns]
        for at in draw(st.lists(st.integers(0, 12), max_size=2)):
            runs.loc[at, "time_s"] *= draw(st.sampled_from([0.5, 2.0, 1e3]))
        for at in draw(st.lists(st.integers(0, 12), max_size=1)):
            runs.loc[at, "power_w"] *= draw(st.sampled_from([0.0, 1e3]))
        sweeps.append(runs)
    if draw(st.booleans()):
        sweeps.append(sweeps[0].assign(workload="copy", time_s=lambda r: r["time_s"] * 4))
    return pd.concat(sweeps, ignore_index=True)


def suspects(runs):
    """What is named, as (check, row of the index that the runs had)."""
    table = check(runs).table
    return set(zip(table["check"], runs.index[table["position"]], strict=True))


class TestProperties:
    @settings(max_examples=max(4, settings.default.max_examples // 2))
    @given(
        dirty_tables(),
        st.sampled_from([("time_ms", 1e3), ("time_us", 1e6), ("time_min", 1 / 60)]),
        st.randoms(use_true_random=False),
    )
    def test_neither_order_of_the_rows_nor_unit_of_time_matters(self, runs, unit, random):
        order = list(range(len(runs)))
        random.shuffle(order)
        name, factor = unit
        scaled = runs.assign(**{name: runs["time_s"] * factor}).drop(columns="time_s")
        assert suspects(scaled.iloc[order]) == suspects(runs)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from([1e9, 1.5e9, 2e9, 1.99e10]),
                # Beyond these no run has a time; they are refused.
                st.floats(min_value=1e-9, max_value=1e10),
                st.floats(allow_nan=True, allow_infinity=False),
                st.floats(allow_nan=True, allow_infinity=False),
            ),
            min_size=1,
            max_size=12,
        )
    )
    def test_whatever_can_be_read_can_be_checked(self, rows):
        columns = ["freq_hz", "time_s", "power_w", "energy_j"]
        result = check(pd.DataFrame(rows, columns=columns).assign(workload="w", idle_power_w=1.0))
        assert len(result.passed) == len(rows)
        again = ppw.Quality.from_json(result.to_json())
        assert again.summary() == result.summary()
        assert (again.passed == result.passed).all()


class TestCommand:
    @pytest.fixture
    def run(self, tmp_path):
        spoilt().to_csv(tmp_path / "runs.csv", index=False)
        sweep().to_csv(tmp_path / "good.csv", index=False)
        return functools.partial(ppw_inside, "check", cwd=tmp_path)

    def test_golden_and_strict(self, run, tmp_path):
        golden("check runs.csv", tmp_path)
        done = run("runs.csv", "--strict")
        assert (done.returncode, done.stdout) == (3, run("runs.csv").stdout)
        said = "ppw: check failed: 4 of 39 rows cannot be right.\n"
        assert done.stderr == said
        assert printed(run("good.csv", "--strict")).startswith("None of 24 rows is flagged.\n")

    def test_formats_and_options(self, run, tmp_path):
        asked = "--by", "workload", "--metric", "time", "--format", "json"
        document = json.loads(run("runs.csv", *asked).stdout)
        assert (document["kind"], document["by"]) == ("quality", ["workload"])
        assert [s["row"] for s in document["suspects"]] == [18, 19, 37]
        header, *rows = run("runs.csv", "--format", "csv").stdout.splitlines()
        assert header.endswith("freq_hz,check,evidence,file,row,line,position")
        assert len(rows) == 4
        assert "4 of 39 rows" in run("runs.csv", "--format", "html").stdout
        (tmp_path / "bad.csv").write_text("freq_ghz,time_s\n1.2,fast\n1.6,4\n")
        assert "unusable_value  time_s: 'fast' is not a number" in printed(run("bad.csv"))


@pytest.fixture(scope="module")
def nornir(data_dir):
    return ppw.read_runs(data_dir / "nornir-repara" / "tidy.csv", check=False)


@pytest.mark.thirdparty
class TestMeasured:
    """Known bad rows of published measurements are named, and their good rows are not."""

    def test_a_server_with_stale_and_rescaled_rows(self, nornir):
        table = check(nornir).table
        assert set(table["workload"]) == {"blackscholes", "videoprocessing"}
        stale, swept, copies = (
            table[table["check"] == name]
            for name in ("frequency_not_applied", "slower_when_faster", "exact_multiple")
        )
        # 70 of 276 neighbouring rows of a sweep are the same, says the README.
        assert (set(stale["workload"]), len(stale)) == ({"blackscholes"}, 140)
        # The first row of twelve sweeps is the last of the sweep before; 1.4 GHz is stale.
        swept = swept[swept["workload"] == "blackscholes"]
        assert (len(swept), (swept["freq_hz"] == 1.2e9).sum()) == (13, 12)
        assert (set(copies["workload"]), len(copies)) == ({"videoprocessing"}, 286)
        assert set(copies["evidence"]) == {
            "exactly 6 times those of videoprocessing_480 at all 286 settings that both have, "
            "with the same power"
        }

    @pytest.mark.parametrize("name", ["tidy_runs.csv", "tidy.csv"])
    def test_odroid(self, name, data_dir):
        assert check(ppw.read_runs(data_dir / "xu3-cbench" / name, check=False)).passed.all()

    def test_phones(self, data_dir):
        result = check(ppw.read_runs(data_dir / "freqbench" / "tidy.csv", check=False))
        (row,) = result.table.to_dict(orient="records")
        assert (row["check"], row["row"]) == ("power_at_or_below_idle", 47)
        assert row["host"].startswith("exynos7904")
        assert row["evidence"] == "power of -714.3 µW, which is impossible"
        # Clusters are a column of their own.
        files = sorted((data_dir / "freqbench" / "raw").glob("*/*/results.csv"))
        result = check(ppw.read_runs(files, check=False))
        assert list(result.table["check"]) == ["power_at_or_below_idle"]

    @pytest.mark.cases(
        "board, zero, slips",
        *(("amd", 0, 0), ("i7", 2, 0), ("pi3", 0, 0), ("tx2/static/all_cores", 0, 0)),
        *(("tx2/static/big_cores", 0, 12), ("tx2/static/little_cores", 0, 24)),
    )
    def test_energies(self, board, zero, slips, data_dir):
        files = sorted((data_dir / "loghin-multicores" / "raw" / board).glob("data-*.csv"))
        runs = ppw.read_runs(files, columns={"energy_j": "Energy[J]"}, check=False)
        table = check(runs).table
        assert set(table["check"]) <= {"energy_is_not_power_times_time"}
        assert table["evidence"].str.startswith("energy of 0 J").sum() == zero
        assert table["evidence"].str.endswith("near 100, a power of ten").sum() == slips
        assert len(table) == zero + slips
