"""`ppw.check_quality` and `ppw check`: bad rows are named, good ones are left in peace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import answered, only, sweep

import ppw
from measurements.errors import BadRunsError
from ppw.checks.digits import all_digits, recorded_step
from ppw.errors import PpwError, UnknownColumnError
from ppw.grouping import group_runs
from ppw.quality import CHECKS, find_suspects

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("golden") / "check.txt"
# 13 steps, as of the Xeon of the Nornir sweeps.
CLOCKS = np.round(np.arange(1.2, 2.45, 0.1), 1)


def check(runs, **options):
    return answered(ppw.check_quality, runs, **options)


def named(runs, name=None, **options):
    """Positions of the rows that a check names, or any check."""
    table = check(runs, **options).to_frame()
    chosen = table if name is None else table[table["check"] == name]
    return sorted(set(chosen["position"]))


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


class TestFrequencyNotApplied:
    NAME = "frequency_not_applied"

    def stale(self, at=4, **columns):
        runs = clean(**columns)
        runs.loc[at + 1, ["time_s", "power_w"]] = runs.loc[at, ["time_s", "power_w"]]
        return runs

    def test_both_rows_are_named_with_the_digits(self):
        result = check(self.stale())
        assert list(result.table["position"]) == [4, 5]
        time, watts = self.stale().loc[4, ["time_s", "power_w"]]
        expected = f"the same {time} s and {watts} W, to every digit, at 1.6 GHz and 1.7 GHz"
        assert set(result.table["evidence"]) == {expected}

    def test_three_in_a_row(self):
        runs = self.stale()
        runs.loc[6, ["time_s", "power_w"]] = runs.loc[4, ["time_s", "power_w"]]
        result = check(runs)
        assert list(result.table["position"]) == [4, 5, 6]
        assert result.table["evidence"][0].endswith("at 3 frequencies between 1.6 GHz and 1.8 GHz")

    def test_throughput_does_as_well_as_time(self):
        runs = self.stale().rename(columns={"time_s": "throughput_ops_s"})
        runs["throughput_ops_s"] = (1e5 / runs["throughput_ops_s"]).round(2)
        assert named(runs) == [4, 5]
        assert "operations/s and " in check(runs).table["evidence"][0]

    @pytest.mark.parametrize("digits", [0, 1])
    def test_coarse_records_agree_by_chance(self, digits):
        flat = pd.concat(
            clean(fixed=30.0, work=0.0, digits=digits, seed=i, workload=f"w{i}") for i in range(40)
        )
        assert flat.duplicated(["time_s", "workload"]).sum() > 100
        assert named(flat, self.NAME) == []

    def test_watts_that_never_vary_say_nothing(self):
        runs = self.stale()
        assert named(runs.assign(power_w=95.0)) == []
        assert named(runs.drop(columns="power_w")) == []

    def test_time_alone_takes_many_digits(self):
        runs = self.stale(digits=7).drop(columns="power_w")
        assert named(runs) == [4, 5]

    def test_watts_at_a_cap_say_nothing(self):
        capped = self.stale(fixed=23.0, work=0.0)
        assert named(capped) == [4, 5]
        capped.loc[3:, "power_w"] = 44.123
        assert named(capped) == []

    def test_a_fixed_duration_says_nothing(self):
        assert named(frame(60.0001234, throughput_ops_s=1e3 * CLOCKS)) == []
        assert named(frame(60.0001234)) == []

    def test_other_watts_or_cycles_make_two_runs(self):
        runs = self.stale()
        assert named(runs.assign(cycles=np.arange(13) + 1e9)) == []
        assert named(runs.assign(cycles=1e9)) == [4, 5]
        runs.loc[5, "power_w"] += 0.001
        assert named(runs) == []

    def test_repeats_of_one_step_are_no_two_steps(self):
        runs = clean()
        assert named(pd.concat([runs, runs])) == []

    def test_groups_are_kept_apart(self):
        runs = clean()
        other = clean(seed=2)
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
        assert named(runs) == ([] if (at, factor) == (0, 2.0) else [at])

    def test_evidence(self):
        runs = frame(np.where(CLOCKS == 2.4, 40.0, 20 + 20 / CLOCKS).round(3))
        result = check(runs)
        assert list(result.table["evidence"]) == [
            "at 2.4 GHz 40 s, at 2.3 GHz 28.7 s: 39 % slower at the faster clock"
        ]

    def test_throughput(self):
        runs = clean().rename(columns={"time_s": "throughput_ops_s"})
        runs["throughput_ops_s"] = (1e5 / runs["throughput_ops_s"]).round(2)
        runs.loc[8, "throughput_ops_s"] /= 2
        assert named(runs) == [8]
        assert "operations/s at" not in check(runs).table["evidence"][0]
        assert check(runs).table["evidence"][0].startswith("at 2 GHz ")
        # A service runs for a fixed time: its throughput counts.
        assert named(runs.assign(time_s=60.0)) == [8]

    def test_several_throttled_steps(self):
        runs = clean(fixed=20.0, work=20.0)
        runs.loc[10:, "time_s"] = [45.1, 46.3, 47.2]
        assert named(runs) == [10, 11, 12]

    def test_of_two_steps_both(self):
        assert named(frame([10.0, 15.03], clocks=[1.2, 2.4])) == [0, 1]
        assert named(frame([10.0, 12.03], clocks=[1.2, 2.4])) == []

    def test_of_three_the_one_that_contradicts_both(self):
        assert named(frame([100.3, 150.2, 80.1], clocks=[1.0, 1.5, 2.0])) == [1]
        assert named(frame([60.2, 100.3, 95.1], clocks=[1.0, 1.5, 2.0])) == [0]

    def test_repeats_judge_the_noise(self):
        clocks = [1.2, 1.2, 1.2, 2.4, 2.4, 2.4]
        assert named(frame([10.01, 10.04, 9.97, 11.52, 11.47, 11.55], clocks=clocks)) == [*range(6)]
        assert named(frame([10.01, 10.04, 9.97, 10.52, 10.47, 10.55], clocks=clocks)) == []
        assert named(frame([9.01, 11.04, 9.97, 11.52, 9.47, 14.55], clocks=clocks)) == []

    def test_a_noisy_sweep_is_left_in_peace(self):
        noisy = [97.97, 98.11, 87.12, 81.22, 89.55, 92.75, 66.88, 88.55, 71.06, 59.34, 55.7, 55.2]
        assert named(frame([*noisy, 50.03])) == []

    def test_a_noisy_table_is_left_in_peace(self):
        random = np.random.default_rng(3)
        names = np.repeat([f"w{i}" for i in range(60)], 2)
        time = np.exp(random.normal(0, 0.2, 120)).round(4)
        runs = frame(time, clocks=np.tile([1.2, 2.4], 60), workload=names)
        assert len(named(runs, self.NAME)) <= 2

    def test_whole_seconds(self):
        assert named(frame([1, 2, 1, 2, 2, 1, 2, 1, 2, 1, 1, 2, 2])) == []

    def test_other_settings_are_not_compared(self):
        slow, fast = clean(), clean(work=20.0)
        both = pd.concat([slow.iloc[5:], fast.iloc[:5]])
        assert len(named(both)) > 0
        setting = ["big"] * 8 + ["little"] * 5
        assert named(both.assign(cluster=setting)) == []
        assert named(both.assign(load=[1.0] * 8 + [0.5] * 5)) == []
        assert named(both.assign(cores=[1] * 8 + [4] * 5), by=[]) == []

    def test_a_column_that_goes_with_the_frequency_is_no_setting(self):
        runs = clean(fixed=20.0, work=20.0)
        runs.loc[6, "time_s"] *= 2
        assert named(runs.assign(governor=[f"at {c}" for c in CLOCKS])) == [6]


class TestExactMultiple:
    NAME = "exact_multiple"

    def pair(self, factor=6.0, digits=3, names=("a", "b"), **columns):
        runs = clean(digits=digits, host="rack1", **columns)
        copy = runs.assign(time_s=runs["time_s"] * factor)
        return pd.concat([runs.assign(workload=names[0]), copy.assign(workload=names[1])])

    def test_the_larger_is_the_copy(self):
        result = check(self.pair())
        assert set(result.table["workload"]) == {"b"}
        assert len(result.table) == 13
        assert set(result.table["evidence"]) == {
            "exactly 6 times those of a at all 13 settings that both have, with the same watts"
        }
        assert set(check(self.pair(1 / 6)).table["workload"]) == {"a"}

    def test_the_same_under_two_names(self):
        assert set(check(self.pair(1.0)).table["workload"]) == {"b"}
        assert set(check(self.pair(1.0, names=("b", "a"))).table["workload"]) == {"b"}
        assert check(self.pair(1.0)).table["evidence"][0].startswith("the same times as a at all")

    def test_rounded_to_the_recorded_digits(self):
        assert len(named(self.pair(1.7).round({"time_s": 3}), self.NAME)) == 13

    def test_only_what_both_have(self):
        pair = self.pair()
        assert len(named(pair.iloc[3:-2], self.NAME)) == 8
        assert named(pair.iloc[:18], self.NAME) == []

    def test_copies_of_copies(self):
        pair = self.pair()
        third = pair.iloc[:13].assign(workload="c", time_s=lambda r: r["time_s"] * 2.5)
        result = check(pd.concat([pair, third]))
        assert result.table.groupby("workload").size().to_dict() == {"b": 13, "c": 13}

    def test_throughput(self):
        pair = self.pair().rename(columns={"time_s": "throughput_ops_s"})
        assert set(check(pair).table.query("check == @self.NAME")["workload"]) == {"a"}

    def test_other_watts_make_two_workloads(self):
        pair = self.pair()
        pair["power_w"] *= np.repeat([1.0, 1.01], 13)
        assert named(pair, self.NAME) == []

    def test_two_hosts_may_be_alike(self):
        pair = self.pair().assign(host=["a"] * 13 + ["b"] * 13)
        assert named(pair, self.NAME) == []

    def test_programs_that_only_the_clock_decides_on(self):
        one, two = (frame((w / CLOCKS).round(3), workload=f"w{w:g}") for w in (100.0, 250.0))
        bare = pd.concat([one, two]).drop(columns="power_w")
        assert named(bare, self.NAME) == []
        nameplate = bare.assign(power_w=95.0)
        assert named(nameplate, self.NAME) == []
        coarse = pd.concat([one, two]).round({"power_w": 0})
        assert named(coarse, self.NAME) == []

    def test_without_watts_it_takes_times_finer_than_any_repeat(self):
        assert named(self.pair().drop(columns="power_w"), self.NAME) == []
        fine = self.pair(digits=9).drop(columns="power_w")
        assert len(named(fine, self.NAME)) == 13

    def test_one_row_that_differs_makes_two_workloads(self):
        pair = self.pair().reset_index(drop=True)
        pair.loc[20, "time_s"] *= 1.01
        assert named(pair, self.NAME) == []

    def test_repeats_are_averaged(self):
        runs = pd.concat([self.pair(seed=1), self.pair(seed=2)])
        assert len(named(runs, self.NAME)) == 26


class TestEnergy:
    NAME = "energy_is_not_power_times_time"

    def off(self, factor, **columns):
        runs = clean(**columns)
        return runs.assign(energy_j=runs["power_w"] * runs["time_s"] * factor)

    @pytest.mark.parametrize("factor", [0.4, 0.98, 1.0, 1.3, 2.5])
    def test_what_a_window_explains(self, factor):
        assert named(self.off(factor)) == []

    @pytest.mark.parametrize(
        ("factor", "said"),
        [
            (0.01, "near 100, a power of ten"),
            (1000.0, "near 1000, a power of ten"),
            (1 / 3600, "near 3600, as between J and Wh"),
            (3.6e6, "near 3,600,000, as between J and kWh"),
            (60.0, "near 60, as between s and min"),
            (1 / 95.0, "near 100, a power of ten"),
        ],
    )
    def test_a_slip_of_the_unit_is_suggested(self, factor, said):
        result = check(self.off(factor))
        assert len(result.table) == 13
        assert set(result.table["check"]) == {self.NAME}
        assert all(words.endswith(f"; {said}") for words in result.table["evidence"])

    def test_no_slip_that_is_not_near(self):
        assert ";" not in check(self.off(30.0)).table["evidence"][0]

    def test_no_energy(self):
        runs = frame([5.0, 4.0], [50.0, 60.0], clocks=[1.2, 2.4], energy_j=[0.0, 240.0])
        result = check(runs)
        assert list(result.table["evidence"]) == ["energy of 0 J, but 50 W over 5 s is 250 J"]

    def test_idle_power_may_be_in_one_of_them(self):
        runs = clean(idle_power_w=0.4)
        net = runs.assign(power_w=runs["power_w"] / 1000)
        gross = net.assign(energy_j=(net["power_w"] + 0.4) * net["time_s"])
        assert named(gross, self.NAME) == []
        assert len(named(gross.drop(columns="idle_power_w"), self.NAME)) == 13

    def test_missing_is_missing(self):
        runs = self.off(0.01)
        runs.loc[3, "energy_j"] = np.nan
        assert len(named(runs)) == 12


class TestSlipOfAUnit:
    NAME = "slip_of_a_unit"

    def said(self, watts, **columns):
        """Evidence by position, for watts at steps of a short sweep."""
        clocks = [1.0, 1.5, 2.0, 2.4, 2.8, 3.2][: len(watts)]
        table = check(frame(60 / np.array(clocks), watts, clocks=clocks, **columns)).table
        table = table[table["check"] == self.NAME]
        return dict(zip(table["position"], table["evidence"], strict=True))

    @pytest.mark.parametrize(
        ("watts", "said"),
        [
            ([10, 11000, 12, 13], "11000 W at 1.5 GHz, 10 to 13 W around it: milliwatts?"),
            ([10, 11e6, 12, 13], "11000000 W at 1.5 GHz, 10 to 13 W around it: microwatts?"),
            ([10, 0.011, 12, 13], "0.011 W at 1.5 GHz, 10 to 13 W around it: kilowatts?"),
            ([10, 1.1e-5, 12, 13], "0.000011 W at 1.5 GHz, 10 to 13 W around it: megawatts?"),
            ([12, 15000], "15000 W at 1.5 GHz, 12 W around it: milliwatts?"),
        ],
    )
    def test_one_row(self, watts, said):
        assert self.said(watts) == {1: said}

    def test_where_most_are_wrong_no_machine_draws_them(self):
        assert self.said([12000, 15000, 17]) == {
            0: "12000 W at 1 GHz, 17 W around it: milliwatts?",
            1: "15000 W at 1.5 GHz, 17 W around it: milliwatts?",
        }

    def test_where_nobody_can_know_both_sides_are_named(self):
        assert self.said([0.9, 1200]) == {
            0: "0.9 W at 1 GHz, 1200 W around it: kilowatts?",
            1: "1200 W at 1.5 GHz, 0.9 W around it: milliwatts?",
        }
        # The many against what a machine can draw.
        assert list(self.said([12000, 13000, 14000, 15000, 17])) == [0, 1, 2, 3, 4]

    def test_slips_of_several_kinds(self):
        said = self.said([10, 11000, 0.012, 13, 14e6, 15])
        assert [words.rpartition(" ")[2] for words in said.values()] == [
            "milliwatts?",
            "kilowatts?",
            "microwatts?",
        ]
        assert list(said) == [1, 2, 4]

    @pytest.mark.parametrize("factor", [30, 100, 30_000, 1e8])
    def test_factors_of_no_unit(self, factor):
        assert self.said([10, 11 * factor, 12, 13]) == {}

    def test_one_repeat_of_a_step(self):
        runs = pd.concat([clean(seed=i) for i in range(3)], ignore_index=True)
        runs.loc[20, "power_w"] *= 1000
        assert named(runs, self.NAME) == [20]

    def test_groups_and_settings_are_not_compared(self):
        small = clean(seed=2)
        small["power_w"] /= 1000
        both = pd.concat([clean().assign(host="server"), small.assign(host="sensor")])
        assert named(both) == []
        assert named(both, by=[]) == []

    def test_joules(self):
        runs = clean().assign(energy_j=lambda r: r["power_w"] * r["time_s"])
        runs = runs.drop(columns="power_w")
        assert named(runs) == []
        runs.loc[4, "energy_j"] *= 1000
        (row,) = check(runs).table.to_dict(orient="records")
        assert row["position"] == 4
        assert row["evidence"].endswith(" J around it: millijoules?")
        untimed = runs.assign(throughput_ops_s=1 / runs["time_s"]).drop(columns="time_s")
        assert named(untimed, self.NAME) == [4]

    def test_a_longer_run_takes_more_joules(self):
        runs = clean()
        runs.loc[4, "time_s"] *= 1000
        runs["energy_j"] = runs["power_w"] * runs["time_s"]
        assert named(runs, self.NAME) == []
        assert named(runs.drop(columns="power_w"), self.NAME) == []

    def test_watts_are_named_before_joules(self):
        runs = clean()
        runs.loc[4, "power_w"] *= 1000
        runs["energy_j"] = runs["power_w"] * runs["time_s"]
        (row,) = check(runs).table.to_dict(orient="records")
        assert row["evidence"].endswith(" W around it: milliwatts?")

    def test_missing_and_negative_watts_are_no_slips(self):
        assert self.said([10, np.nan, 12, 13]) == {}
        assert self.said([10, 0, -12, 13]) == {}

    def test_a_slip_takes_no_part(self):
        runs = frame([60.0, 40.0, 30.0, 25.0], [10, 0.011, 12, 13], clocks=[1.0, 1.5, 2.0, 2.4])
        left_out = answered(ppw.project_runs, runs, freq="1.5 GHz", metric="energy").left_out
        assert list(left_out["check"]) == [self.NAME]

    @settings(max_examples=60)
    @given(
        st.floats(0.05, 3000),
        st.floats(0, 3),
        st.integers(4, 13),
        st.integers(0, 12),
        st.sampled_from([1e3, 1e6, 1e-3, 1e-6]),
        st.integers(0, 99),
    )
    def test_a_row_of_a_sound_sweep_scaled(self, least, power, steps, at, factor, seed):
        noise = np.exp(np.random.default_rng(seed).normal(0, 0.05, steps))
        clocks = CLOCKS[:steps]
        watts = least * (clocks / clocks[0]) ** power * noise
        runs = frame(60 / clocks, watts, clocks=clocks)
        assert named(runs, self.NAME) == []
        runs.loc[at % steps, "power_w"] *= factor
        assert named(runs, self.NAME) == [at % steps]


class TestIdle:
    NAME = "power_at_or_below_idle"

    def test_no_watts(self):
        runs = clean()
        runs.loc[[2, 5], "power_w"] = [0.0, -0.0007143]
        result = check(runs)
        assert list(result.table["position"]) == [2, 5]
        assert list(result.table["evidence"]) == [
            "power of 0 W, which nothing runs on",
            "power of -714.3 µW, which nothing runs on",
        ]

    def test_below_idle(self):
        runs = clean(idle_power_w=35.0)
        runs.loc[6, "power_w"] = 30.0
        result = check(runs)
        assert list(result.table["position"]) == [6]
        expected = "power of 30 W while the idle machine draws 35 W"
        assert list(result.table["evidence"]) == [expected]

    def test_idle_figures_scatter(self):
        runs = clean(idle_power_w=35.0)
        runs.loc[6, "power_w"] = 34.9
        assert named(runs) == []

    def test_watts_of_another_scope_are_a_caveat(self):
        runs = clean(idle_power_w=50.0)
        result = check(runs)
        assert result.passed.all()
        below = int((runs["power_w"] <= 49).sum())
        assert only(result.caveats, "too many of their host's").startswith(
            f"power_w is below idle_power_w in {below} rows"
        )
        assert check(runs, metric="time").caveats == ()
        other = clean(idle_power_w=10.0, seed=5).assign(host="b")
        other.loc[3, "power_w"] = 5.0
        assert named(pd.concat([runs.assign(host="a"), other]), self.NAME) == [16]


def test_achieved_frequency():
    runs = clean().assign(freq_achieved_ghz=CLOCKS * 1.019)
    assert named(runs) == []
    runs.loc[[1, 7], "freq_achieved_ghz"] = [1.2, 2.4]
    result = check(runs)
    assert list(result.table["position"]) == [1, 7]
    assert list(result.table["evidence"]) == [
        "asked for 1.3 GHz, achieved 1.2 GHz (-7.7 %)",
        "asked for 1.9 GHz, achieved 2.4 GHz (+26.3 %)",
    ]


def spoilt():
    """Three workloads: one row below zero watts, one stale pair, one step far too slow."""
    # Four digits, so that the golden text does not depend on the last bit.
    runs = sweep(repeats=1, noise=0.003, steps=tuple(CLOCKS)).round(
        {"time_s": 4, "power_w": 3, "cycles": -6}
    )
    runs.loc[3, "power_w"] = -1.5
    same = ["time_s", "power_w", "cycles"]
    runs.loc[18, same] = runs.loc[17, same]
    runs.loc[36, "time_s"] *= 2
    return runs


class TestResult:
    def test_verdict_counts_and_passed(self):
        result = check(spoilt())
        assert result.verdict() == "4 of 39 rows are suspect: what they say cannot be right."
        assert [i for i, good in enumerate(result.passed) if not good] == [3, 17, 18, 36]
        assert result.counts == {
            "frequency_not_applied": 2,
            "slower_when_faster": 1,
            "exact_multiple": 0,
            "slip_of_a_unit": 0,
            "time_of_another_unit": 0,
            "power_at_or_below_idle": 1,
        }
        assert result.not_made == {
            "energy_is_not_power_times_time": "energy_j",
            "achieved_off": "freq_achieved_hz",
        }
        assert check(sweep()).verdict() == "None of 24 rows is suspect."
        one = spoilt().drop(index=[17, 18, 36])
        assert check(one).verdict().startswith("1 of 36 rows is suspect")

    @pytest.mark.parametrize("runs", [spoilt(), sweep()], ids=["spoilt", "clean"])
    def test_comes_back_from_json(self, runs):
        result = check(runs)
        again = ppw.Quality.from_json(result.to_json())
        assert again.to_json() == result.to_json()
        assert again.summary() == result.summary()
        assert (again.passed == result.passed).all()
        assert list(again.to_frame().columns) == list(result.to_frame().columns)
        with pytest.raises(PpwError, match="not a 'quality'"):
            ppw.Quality.from_json('{"schema_version": 1, "kind": "parameters"}')

    def test_draws(self):
        for result in (check(spoilt()), check(sweep())):
            axes = result.plot()
            assert axes.has_data()
            assert axes.get_xlabel() == f"suspect rows, of {result.rows}"
            assert axes.get_ylabel()

    def test_page(self):
        from ppw.report.pages import quality_page

        page = quality_page(check(spoilt()))
        assert page.verdict[0].startswith("4 of 39 rows")
        assert "What to do: repeat the step" in page.verdict[2]
        assert [t.title for t in page.tables] == ["Checks", "Suspect rows"]
        assert "<svg" in page.render()
        clean_page = quality_page(check(sweep()))
        assert (len(clean_page.verdict), len(clean_page.tables), clean_page.figures) == (1, 1, [])

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
        assert f"{files[1]}:37" in two.summary()

    def test_summary_is_cut_and_says_so(self):
        runs = sweep().assign(power_w=0.0)
        assert "more rows" not in check(runs).summary()
        many = pd.concat([runs.assign(host=f"node{i}") for i in range(3)])
        assert "… 32 more rows: use --format csv" in check(many).summary()

    def test_metric_makes_only_what_matters(self):
        assert named(spoilt(), metric="time") == [17, 18, 36]
        assert "power_at_or_below_idle" not in check(spoilt(), metric=["time", "cpi"]).counts
        assert "power_at_or_below_idle" in check(spoilt(), metric="perf_per_watt").counts
        with pytest.raises(UnknownColumnError, match="did you mean 'time'"):
            ppw.check_quality(spoilt(), metric="tiem")

    def test_every_check_says_what_to_do(self):
        assert list(CHECKS) == [c.name for c in CHECKS.values()]
        assert all(c.meaning and c.remedy and c.needs and c.spoils for c in CHECKS.values())


class TestRefusals:
    def test_values_that_cannot_be_are_errors_still(self):
        runs = sweep()
        with pytest.raises(BadRunsError, match="time_s: -1 must be greater than 0"):
            ppw.check_quality(runs.assign(time_s=-1.0))
        with pytest.raises(BadRunsError, match="'fast' is not a number"):
            ppw.check_quality(runs.assign(time_s="fast"))
        with pytest.raises(BadRunsError, match="freq_ghz: missing"):
            ppw.check_quality(runs.assign(freq_ghz=[np.nan, *runs["freq_ghz"][1:]]))

    def test_nothing_to_check(self):
        bare = pd.DataFrame({"workload": ["a"], "freq_ghz": [1.2]})
        with pytest.raises(UnknownColumnError, match="nothing to check: no time_s"):
            ppw.check_quality(bare)

    @pytest.mark.parametrize("column", ["check", "row", "site"])
    def test_columns_that_cannot_be_keys(self, column):
        runs = sweep() if column == "site" else sweep().assign(**{column: 1})
        with pytest.raises(UnknownColumnError, match=f"cannot group by '{column}'"):
            ppw.check_quality(runs, by=[column])

    def test_what_is_no_table(self):
        with pytest.raises(PpwError, match="not a DataFrame"):
            ppw.check_quality([1, 2])


class TestDigits:
    @pytest.mark.parametrize(
        ("value", "step"),
        [
            (237.788, 1e-3),
            (376.0, 1.0),
            (3.4e9, 1e8),
            (0.0024541, 1e-7),
            (-12.5, 0.1),
            (94.553 / 60 * 60, 1e-3),
            (1 / 3, 1e-12),
            (0.0, 1.0),
        ],
    )
    def test_last_digit(self, value, step):
        assert recorded_step(np.array([value]))[0] == pytest.approx(step, rel=1e-9)

    @given(st.integers(1, 10**9), st.integers(-8, 8))
    def test_any_decimal(self, digits, exponent):
        step = 10.0**exponent
        found = recorded_step(np.array([digits * step]))[0]
        zeros = len(str(digits)) - len(str(digits).rstrip("0"))
        assert found == pytest.approx(step * 10**zeros, rel=1e-9)

    def test_words(self):
        assert all_digits(23.4153) == "23.4153"
        assert all_digits(94.553 / 60 * 60) == "94.553"


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
            runs.loc[at, "time_s"] *= draw(st.sampled_from([0.5, 2.0]))
        for at in draw(st.lists(st.integers(0, 12), max_size=1)):
            runs.loc[at, "power_w"] = 0.0
        sweeps.append(runs)
    if draw(st.booleans()):
        sweeps.append(sweeps[0].assign(workload="copy", time_s=lambda r: r["time_s"] * 4))
    return pd.concat(sweeps, ignore_index=True)


def suspects(runs):
    """What is named, as (check, row of the index that the runs had)."""
    table = check(runs).table
    return set(zip(table["check"], runs.index[table["position"]], strict=True))


class TestProperties:
    @settings(max_examples=60)
    @given(dirty_tables(), st.randoms(use_true_random=False))
    def test_order_of_the_rows_does_not_matter(self, runs, random):
        order = list(range(len(runs)))
        random.shuffle(order)
        assert suspects(runs.iloc[order]) == suspects(runs)

    @settings(max_examples=60)
    @given(
        dirty_tables(), st.sampled_from([("time_ms", 1e3), ("time_us", 1e6), ("time_min", 1 / 60)])
    )
    def test_unit_of_time_does_not_matter(self, runs, unit):
        name, factor = unit
        scaled = runs.assign(**{name: runs["time_s"] * factor}).drop(columns="time_s")
        assert suspects(scaled) == suspects(runs)

    @settings(max_examples=60)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from([1e9, 1.5e9, 2e9, 1.99e10]),
                st.floats(min_value=5e-324, allow_infinity=False),
                st.floats(allow_nan=True, allow_infinity=False),
                st.floats(allow_nan=True, allow_infinity=False),
            ),
            min_size=1,
            max_size=12,
        )
    )
    def test_whatever_can_be_read_can_be_checked(self, rows):
        columns = ["freq_hz", "time_s", "power_w", "energy_j"]
        runs = pd.DataFrame(rows, columns=columns).assign(workload="w", idle_power_w=1.0)
        result = check(runs)
        assert len(result.passed) == len(runs)
        assert ppw.Quality.from_json(result.to_json()).summary() == result.summary()


def test_primitive_gives_positions_and_words():
    from measurements import check_runs, tidy_runs

    runs = check_runs(tidy_runs(spoilt()))
    found = {s.check.name: s for s in find_suspects(runs, group_runs(runs))}
    assert list(found["frequency_not_applied"].rows) == [17, 18]
    assert len(found["frequency_not_applied"].evidence()) == 2
    assert list(found["exact_multiple"].rows) == []
    assert found["exact_multiple"].evidence() == []


class TestCommand:
    @pytest.fixture
    def process(self, tmp_path):
        spoilt().to_csv(tmp_path / "runs.csv", index=False)

        def process(*arguments):
            kept = {k: v for k, v in os.environ.items() if not k.startswith(("PPW_", "PYTHONIO"))}
            return subprocess.run(
                [sys.executable, "-W", "error", "-m", "ppw", "check", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                cwd=tmp_path,
                env={**kept, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
                check=False,
            )

        return process

    def test_golden(self, process):
        done = process("runs.csv")
        text = f"$ ppw check runs.csv\n{done.stdout}"
        if "PPW_WRITE_GOLDEN" in os.environ:
            GOLDEN.write_text(text, encoding="utf-8")
        assert text == GOLDEN.read_text(encoding="utf-8")
        assert (done.stderr, done.returncode) == ("", 0)

    def test_strict(self, process, tmp_path):
        done = process("runs.csv", "--strict")
        assert done.returncode == 3
        assert done.stdout == process("runs.csv").stdout
        assert done.stderr == (
            "ppw: check failed: 4 of 39 rows are suspect: what they say cannot be right.\n"
        )
        sweep().to_csv(tmp_path / "good.csv", index=False)
        good = process("good.csv", "--strict")
        assert (good.stderr, good.returncode) == ("", 0)
        assert good.stdout.startswith("None of 24 rows is suspect.\n")

    def test_formats(self, process, tmp_path):
        document = json.loads(process("runs.csv", "--format", "json").stdout)
        assert (document["kind"], len(document["suspects"])) == ("quality", 4)
        rows = process("runs.csv", "--format", "csv").stdout.splitlines()
        assert rows[0].endswith("freq_hz,check,evidence,file,row,position")
        assert len(rows) == 5
        done = process("runs.csv", "--format", "html", "-o", "page.html")
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
        assert "4 of 39 rows" in (tmp_path / "page.html").read_text(encoding="utf-8")

    def test_bad_data(self, process, tmp_path):
        (tmp_path / "bad.csv").write_text("freq_ghz,time_s\n1.2,fast\n1.6,4\n")
        done = process("bad.csv")
        assert (done.stdout, done.returncode) == ("", 1)
        assert done.stderr.startswith("ppw: error: bad.csv: row 1, column time_s: 'fast' is not")

    def test_options(self, process):
        done = process("runs.csv", "--by", "workload", "--metric", "time", "--format", "json")
        document = json.loads(done.stdout)
        assert document["by"] == ["workload"]
        assert [s["row"] for s in document["suspects"]] == [18, 19, 37]


@pytest.fixture(scope="module")
def nornir(data_dir):
    return ppw.read_runs(data_dir / "nornir-repara" / "tidy.csv", check=False)


@pytest.mark.thirdparty
class TestMeasured:
    """Known bad rows of published measurements are named, and their good rows are not."""

    def test_stale_rows_of_blackscholes(self, nornir):
        result = check(nornir[nornir["workload"] == "blackscholes"])
        stale = result.table[result.table["check"] == "frequency_not_applied"]
        # 70 of 276 neighbouring rows of a sweep are the same, says the README.
        assert len(stale) == 140
        swept = result.table[result.table["check"] == "slower_when_faster"]
        # The first row of twelve sweeps is the last of the sweep before; 1.4 GHz is stale.
        assert len(swept) == 13
        assert (swept["freq_hz"] == 1.2e9).sum() == 12

    def test_rescaled_videoprocessing(self, nornir):
        result = check(nornir)
        copies = result.table[result.table["check"] == "exact_multiple"]
        assert set(copies["workload"]) == {"videoprocessing"}
        assert len(copies) == 286
        assert set(copies["evidence"]) == {
            "exactly 6 times those of videoprocessing_480 at all 286 settings that both have, "
            "with the same watts"
        }
        bad = {"blackscholes", "videoprocessing"}
        assert set(result.table["workload"]) == bad

    @pytest.mark.parametrize(
        "workload",
        [
            *("canneal", "pbzip2", "simple_mandelbrot"),
            *("videoprocessing_480", "videoprocessing_960", "videoprocessing_phases"),
        ],
    )
    def test_the_other_workloads(self, workload, nornir):
        assert check(nornir[nornir["workload"] == workload]).passed.all()

    @pytest.mark.parametrize("name", ["tidy_runs.csv", "tidy.csv"])
    def test_odroid(self, name, data_dir):
        runs = ppw.read_runs(data_dir / "xu3-cbench" / name, check=False)
        assert check(runs).passed.all()

    def test_phones(self, data_dir):
        result = check(ppw.read_runs(data_dir / "freqbench" / "tidy.csv", check=False))
        (row,) = result.table.to_dict(orient="records")
        assert (row["check"], row["row"]) == ("power_at_or_below_idle", 47)
        assert row["host"].startswith("exynos7904")
        assert row["evidence"] == "power of -714.3 µW, which nothing runs on"

    def test_phones_whose_clusters_are_a_column_of_their_own(self, data_dir):
        files = sorted((data_dir / "freqbench" / "raw").glob("*/*/results.csv"))
        result = check(ppw.read_runs(files, check=False))
        assert list(result.table["check"]) == ["power_at_or_below_idle"]

    @pytest.mark.parametrize(
        ("board", "zero", "slips"),
        [
            *(("amd", 0, 0), ("i7", 2, 0), ("pi3", 0, 0), ("tx2/static/all_cores", 0, 0)),
            *(("tx2/static/big_cores", 0, 12), ("tx2/static/little_cores", 0, 24)),
        ],
    )
    def test_energies(self, board, zero, slips, data_dir):
        files = sorted((data_dir / "loghin-multicores" / "raw" / board).glob("data-*.csv"))
        runs = ppw.read_runs(files, columns={"energy_j": "Energy[J]"}, check=False)
        table = check(runs).table
        assert set(table["check"]) <= {"energy_is_not_power_times_time"}
        assert table["evidence"].str.startswith("energy of 0 J").sum() == zero
        assert table["evidence"].str.endswith("near 100, a power of ten").sum() == slips
        assert len(table) == zero + slips
