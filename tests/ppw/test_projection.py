"""`ppw.project`: published points, worked examples, inference against statsmodels, refusals.

What holds for any interval is asked of each; a posterior's own intervals are in test_intervals.
"""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import ATOM, GHZ, POINT_INTERVALS, answered, any_interval, ols_interval, only, sweep
from scipy.stats import t as student

import ppw
from fitting import FittingError, LogPathLength
from fitting.errors import OutOfRangeError
from ppw.errors import CaveatWarning, PpwError

F = np.array([1.2, 1.5, 1.8, 2.1, 2.4]) * GHZ
CPI = np.array([1.31, 1.37, 1.46, 1.50, 1.58])
WATTS = np.array([38.2, 42.9, 46.6, 52.0, 55.7])
POINTS = list(zip(F, CPI, strict=True))
POWER = list(zip(F, WATTS, strict=True))
# One cycle of the core and half a nanosecond of stall an instruction; 20 W and 10 W/GHz.
LINE = [(1.2e9, 1.6), (2.0e9, 2.0)]
WATT_LINE = [(1.0e9, 30.0), (2.0e9, 40.0)]


def project(points, **options):
    return answered(ppw.project, points, **{"freq": 3.0e9, **options})


def straight(points, **options):
    """Project by the least-squares curve, with Student's t."""
    return project(points, interval="t", **options)


class TestInputs:
    @any_interval
    @pytest.mark.parametrize(
        "points",
        [
            dict(LINE),
            np.array(LINE),
            [list(p) for p in LINE],
            list(reversed(LINE)),
            pd.DataFrame(LINE, columns=["freq_hz", "cpi"]),
            pd.DataFrame({"freq_ghz": [2.0, 1.2], "cpi": [2.0, 1.6]}),
            pd.DataFrame({"freq_mhz": [1200, 2000], "cycles": [16, 30], "instructions": [10, 15]}),
        ],
        ids=["mapping", "array", "lists", "reversed", "table", "ghz", "counters"],
    )
    def test_every_kind_of_points_gives_the_answer_of_the_pairs(self, points, interval):
        both = [project(p, interval=interval) for p in (points, LINE)]
        assert both[0].to_json() == both[1].to_json()

    def test_repeats_are_points_of_their_own(self):
        twice = straight([*LINE, *LINE])
        assert float(twice.cpi) == pytest.approx(2.5, rel=1e-12)
        assert twice.cpi.lower == pytest.approx(2.5, rel=1e-9)

    def test_a_runs_table_brings_its_power(self):
        runs = pd.DataFrame(
            {"freq_ghz": [1.0, 2.0], "cpi": [1.5, 2.0], "power_w": [30, 40], "power_source": "bmc"}
        )
        assert float(straight(runs).power_w) == pytest.approx(50)

    def test_a_runs_table_brings_its_power_as_energy_too(self):
        runs = pd.DataFrame(
            {"freq_ghz": [1.0, 2.0], "cpi": [1.5, 2], "energy_j": [300, 200], "time_s": [10, 5]}
        )
        assert float(straight(runs).power_w) == pytest.approx(50)

    def test_a_column_without_any_watt_is_no_power(self):
        runs = pd.DataFrame({"freq_ghz": [1.0, 2.0], "cpi": [1.5, 2], "power_w": [np.nan, np.nan]})
        assert project(runs).power_w is None

    def test_points_given_take_the_place_of_the_tables_power(self):
        runs = pd.DataFrame({"freq_ghz": [1.0, 2.0], "cpi": [1.5, 2.0], "power_w": [30, 40]})
        assert float(straight(runs, power_pts=[(1e9, 10), (2e9, 20)]).power_w) == pytest.approx(30)

    @any_interval
    def test_frequency_takes_a_unit(self, interval):
        answers = [project(LINE, freq=f, interval=interval) for f in ("3000 MHz", 3e9)]
        assert answers[0] == answers[1]


class TestPublishedAtom:
    def test_bounded_form_holds_the_slope_at_zero(self):
        answer = straight(ATOM)
        assert float(answer.cpi) == pytest.approx((6.519 + 6.057) / 2, rel=1e-12)
        assert answer.parameters["stall_s_per_instruction"] == 0
        assert answer.standard_errors["stall_s_per_instruction"] is None
        assert answer.cpi.limit == pytest.approx(6.288)
        assert answer.cpi.limit_share == 1
        assert "the bounded curve is a constant CPI" in only(
            answer.caveats, "falls as frequency rises"
        )

    @any_interval
    def test_other_form_is_shown_beside_it(self, interval):
        # c and k of the line through the two points: 1/CPI = c − k/f.
        k = (1 / 6.519 - 1 / 6.057) / (1 / 1.80e9 - 1 / 1.66e9)
        c = 1 / 6.519 + k / 1.66e9
        answer = project(ATOM, interval=interval)
        assert float(answer.other_form_cpi) == pytest.approx(1 / (c - k / 3e9), rel=1e-10)
        assert float(answer.other_form_cpi) == pytest.approx(4.53, abs=5e-3)
        assert answer.other_form_cpi.limit == pytest.approx(1 / c, rel=1e-10)

    def test_reciprocal_form_reproduces_the_curve_with_a_caveat(self):
        answer = straight(ATOM, form="reciprocal")
        assert float(answer.cpi) == pytest.approx(4.53, abs=5e-3)
        assert answer.parameters["c"] == pytest.approx(0.304, abs=5e-4)
        assert answer.parameters["k_hz"] == pytest.approx(250e6, rel=2e-3)
        assert float(answer.other_form_cpi) == pytest.approx(6.288)
        assert only(answer.caveats, "gains more than the clock does")

    @pytest.mark.parametrize("share", [0.2, 0.9, 1 - 1e-9])
    def test_reciprocal_form_refuses_at_and_below_its_pole(self, share):
        fitted = project(ATOM, form="reciprocal").parameters
        pole = fitted["k_hz"] / fitted["c"]
        with pytest.raises(OutOfRangeError, match=r"pole is at 82\d\.\d MHz"):
            ppw.project(ATOM, freq=pole * share, form="reciprocal")
        above = project(ATOM, freq=pole * 1.01, form="reciprocal")
        assert float(above.cpi) > 100

    def test_unbounded_form_answers_and_says_what_it_is(self):
        answer = project(ATOM, form="unbounded")
        slope = (6.057 - 6.519) / 0.14e9
        assert float(answer.cpi) == pytest.approx(6.057 + slope * 1.2e9)
        assert float(answer.other_form_cpi) == pytest.approx(4.53, abs=5e-3)
        assert only(answer.caveats, "no bound was asked for")

    def test_a_curve_that_the_clock_explains_has_no_other_form(self):
        answer = project(LINE)
        assert answer.other_form_cpi is None
        assert not [c for c in answer.caveats if "faster" in c]


class TestWorkedByHand:
    def test_cpi_and_rate(self):
        answer = straight(LINE, cores=4)
        assert float(answer.cpi) == pytest.approx(2.5, rel=1e-12)
        assert float(answer.instructions_per_s) == pytest.approx(4 * 3e9 / 2.5, rel=1e-12)
        assert answer.performance == answer.instructions_per_s
        assert answer.performance.unit == "instructions/s"
        assert answer.time_s is answer.power_w is answer.perf_per_dollar is None

    def test_time_from_instructions(self):
        answer = straight(LINE, cores=4, instructions=4e12, efficiency=1.25)
        assert float(answer.time_s) == pytest.approx(4e12 * 2.5 * 1.25 / (3e9 * 4), rel=1e-12)
        assert float(answer.performance) == pytest.approx(1 / answer.time_s, rel=1e-12)
        assert answer.performance.unit == "runs/s"

    def test_time_by_the_path_length(self):
        # T = D·CPI·PL(n)·efficiency/(f·n), with PL(4) = 100·ln 4 + 50.
        path = LogPathLength.from_coefficients(a=100, b=50, cores=(1, 8), workload="sort")
        answer = straight(
            LINE, cores=4, data_bytes=1e10, path_length=path, efficiency=1.1, workload="sort"
        )
        expected = 1e10 * 2.5 * (100 * math.log(4) + 50) * 1.1 / (3e9 * 4)
        assert float(answer.time_s) == pytest.approx(expected, rel=1e-12)

    def test_power_energy_and_both_efficiencies(self):
        answer = straight(
            LINE, instructions=4e12, power_pts=WATT_LINE, power_source="meter", price=500.0
        )
        time = 4e12 * 2.5 / 3e9
        assert float(answer.power_w) == pytest.approx(50, rel=1e-12)
        assert float(answer.energy_j) == pytest.approx(50 * time, rel=1e-12)
        assert float(answer.perf_per_watt) == pytest.approx(1 / (50 * time), rel=1e-12)
        assert float(answer.perf_per_dollar) == pytest.approx(1 / (500 * time), rel=1e-12)
        assert (answer.perf_per_watt.unit, answer.energy_j.unit) == ("runs/J", "J/run")

    def test_without_a_time_there_is_no_energy_of_a_run(self):
        answer = straight(LINE, power_pts=WATT_LINE)
        assert answer.energy_j is None
        assert answer.perf_per_watt.unit == "instructions/J"
        assert float(answer.perf_per_watt) == pytest.approx(3e9 / 2.5 / 50, rel=1e-12)

    def test_cmos_power(self):
        answer = straight(LINE, power_pts=[(1e9, 22.0), (2e9, 36.0)], power_form="cmos")
        assert float(answer.power_w) == pytest.approx(20 + 2 * 27, rel=1e-12)
        answer = straight(
            LINE,
            power_pts=[(1e9, 30.0), (2e9, 60.0)],
            power_form="cmos",
            voltages={1e9: 1.0, 2e9: 1.0, 3e9: 1.2},
        )
        assert float(answer.power_w) == pytest.approx(30 * 3 * 1.44, rel=1e-12)

    def test_a_power_that_would_not_be_positive_is_no_answer(self):
        answer = straight(LINE, power_pts=[(1e9, 40.0), (2e9, 20.0)], power_source="meter")
        assert answer.power_w is answer.perf_per_watt is answer.energy_j is None
        assert "is not positive there" in only(answer.caveats, "power: no answer at 3 GHz")

    def test_limits_and_shares(self):
        # An instruction takes 0.5 ns of stall at any clock; at 3 GHz it takes 2.5/3 ns.
        answer = straight(LINE, cores=2, instructions=1e9, power_pts=WATT_LINE, price=10)
        assert answer.cpi.limit == math.inf
        assert answer.cpi.limit_share is None
        assert answer.time_s.limit == pytest.approx(0.25)
        assert answer.time_s.limit_share == pytest.approx(0.6)
        assert answer.instructions_per_s.limit == pytest.approx(4e9)
        assert answer.performance.limit_share == pytest.approx(0.6)
        assert answer.perf_per_dollar.limit == pytest.approx(0.4)
        assert answer.power_w.limit == math.inf
        assert answer.perf_per_watt.limit == 0


class TestIntervals:
    @pytest.mark.parametrize("level", [0.5, 0.90, 0.99])
    def test_cpi_and_what_scales_with_it_against_statsmodels(self, level):
        answer = straight(POINTS, level=level, instructions=7e11, cores=2)
        value, lower, upper = ols_interval(F / GHZ, CPI, 3.0, level=level)
        assert [float(answer.cpi), answer.cpi.lower, answer.cpi.upper] == pytest.approx(
            [value, lower, upper], rel=1e-10
        )
        seconds = 7e11 / (3e9 * 2)
        assert [answer.time_s.lower, answer.time_s.upper] == pytest.approx(
            [lower * seconds, upper * seconds], rel=1e-10
        )
        assert [answer.instructions_per_s.lower, answer.instructions_per_s.upper] == pytest.approx(
            [6e9 / upper, 6e9 / lower], rel=1e-10
        )

    def test_power_against_statsmodels(self):
        answer = straight(POINTS, power_pts=POWER)
        expected = ols_interval(F / GHZ, WATTS, 3.0)
        watts = answer.power_w
        assert [float(watts), watts.lower, watts.upper] == pytest.approx(expected, rel=1e-10)

    def test_reciprocal_form_against_statsmodels(self):
        falling = [(f, 1 / (0.3 - 0.25e9 / f + e)) for f, e in zip(F, CPI % 0.01, strict=True)]
        answer = straight(falling, form="reciprocal")
        _, lower, upper = ols_interval(GHZ / F, 1 / np.array([c for _, c in falling]), 1 / 3.0)
        assert [answer.cpi.lower, answer.cpi.upper] == pytest.approx(
            [1 / upper, 1 / lower], rel=1e-10
        )

    def test_a_slope_held_at_zero_leaves_the_spread_of_a_mean(self):
        points = [(f, c) for f, c in zip(F, CPI[::-1], strict=True)]
        answer = straight(points)
        half = student.ppf(0.95, 4) * CPI.std(ddof=1) * math.sqrt(1 + 1 / 5)
        assert [answer.cpi.lower, answer.cpi.upper] == pytest.approx(
            [CPI.mean() - half, CPI.mean() + half], rel=1e-10
        )

    def test_performance_per_watt_adds_relative_variances(self):
        answer = straight(POINTS, power_pts=POWER)
        variance, weighted = 0.0, 0.0
        for y in (CPI, WATTS):
            value, lower, upper = ols_interval(F / GHZ, y, 3.0)
            share = ((upper - lower) / 2 / student.ppf(0.95, 3) / value) ** 2
            variance += share
            weighted += share**2 / 3
        spread = student.ppf(0.95, variance**2 / weighted) * math.sqrt(variance)
        ratio = answer.perf_per_watt
        assert [ratio.lower, ratio.upper] == pytest.approx(
            [ratio * math.exp(-spread), ratio * math.exp(spread)], rel=1e-10
        )

    def test_two_points_have_none_and_say_so(self):
        answer = straight(LINE, instructions=1e9, power_pts=POWER)
        for estimate in (answer.cpi, answer.time_s, answer.perf_per_watt):
            assert estimate.lower is None
            assert estimate.upper is None
        assert answer.power_w.lower is not None
        assert only(answer.caveats, "no interval").startswith("cpi: ")

    def test_an_end_that_would_be_negative_is_zero_and_of_its_reciprocal_unbounded(self):
        answer = straight([(1e9, 1.0), (2e9, 1.5), (3e9, 1.0)])
        assert answer.cpi.lower == 0
        assert answer.instructions_per_s.upper == math.inf

    def test_an_error_beyond_all_bounds_stays_a_number(self):
        # Power falls to almost nothing at the target, so its relative error explodes.
        power = [(1e9, 10.0), (1.5e9, 6.0), (2e9, 5.4)]
        answer = straight(POINTS, freq=3.05e9, power_pts=power, level=0.999)
        assert 0 < answer.power_w < 0.01
        assert answer.perf_per_watt.lower == 0
        assert answer.perf_per_watt.upper == math.inf


class TestCaveats:
    @any_interval
    def test_none_for_clean_points_of_a_known_sensor(self, interval):
        known = {"power_pts": POWER, "power_source": "rapl:package", "family": "Zen 4"}
        assert project(POINTS, interval=interval, **known).caveats == ()

    def test_long_lever(self):
        near = straight([(1.2e9, 1.31), (1.3e9, 1.33), (1.25e9, 1.32)], freq=2.4e9)
        assert "percent" not in only(near.caveats, "long lever")
        assert "at 2.4 GHz; measure nearer" in only(near.caveats, "long lever")
        far = straight([(1.2e9, 1.31), (1.8e9, 1.43), (1.5e9, 1.38)], freq=2.4e9)
        assert not [c for c in far.caveats if "long lever" in c]

    @any_interval
    def test_far_from_what_was_measured(self, interval):
        trust = ": the law is taken on trust there"
        asked = {"power_pts": POWER, "power_source": "rapl:package", "interval": interval}
        for freq, said in {
            "15GHz": "15 GHz is 6.2 times the highest clock measured (2.4 GHz)",
            "0.3GHz": "the lowest clock measured (1.2 GHz) is 4 times 300 MHz",
        }.items():
            found = only(project(POINTS, **asked, freq=freq).caveats, "taken on trust")
            assert found == f"cpi, power: {said}{trust}"
        for freq in ("4.8GHz", "0.6GHz"):
            caveats = project(POINTS, **asked, freq=freq).caveats
            assert not [c for c in caveats if "taken on trust" in c]

    @pytest.mark.parametrize(
        ("source", "said"), [(None, True), ("unknown", True), ("", True), ("meter:wt310", False)]
    )
    def test_watts_of_unknown_source(self, source, said):
        caveats = project(POINTS, power_pts=POWER, power_source=source).caveats
        assert ["unknown source" in c for c in caveats] == [True] * said

    @pytest.mark.parametrize(
        ("column", "said"), [("unknown", True), (None, True), ("ipmi:dcmi", False)]
    )
    def test_watts_of_a_table_without_their_source(self, column, said):
        runs = pd.DataFrame({"freq_hz": F, "cpi": CPI, "power_w": WATTS, "power_source": column})
        caveats = project(runs).caveats
        assert ["unknown source" in c for c in caveats] == [True] * said

    def test_no_watts_need_no_source(self):
        assert project(POINTS).caveats == ()

    @pytest.mark.parametrize(("onto", "said"), [("Nehalem", True), ("Bonnell", False)])
    def test_family_mismatch(self, onto, said):
        runs = pd.DataFrame({"freq_hz": F, "cpi": CPI, "family": "Bonnell"})
        caveats = project(runs, family=onto).caveats
        assert [
            "family mismatch: points of Bonnell projected onto Nehalem" in c for c in caveats
        ] == [True] * said

    @pytest.mark.parametrize(("cores", "said"), [(1, False), (8, False), (9, True)])
    def test_path_length_outside_its_range(self, cores, said):
        path = LogPathLength.from_coefficients(a=100, b=50, cores=(1, 8))
        caveats = project(POINTS, cores=cores, data_bytes=1e9, path_length=path).caveats
        text = "path length outside its range: measured at 1 to 8 cores, used at 9"
        assert list(caveats) == [text] * said

    def test_the_warning_points_at_the_caller(self):
        with pytest.warns(CaveatWarning) as caught:
            ppw.project(ATOM, freq=3e9)
        assert {w.filename for w in caught} == {__file__}


POINT = (1.2e9, 1.3)
REFUSED = {
    "one frequency": ({"cpi_pts": [POINT, POINT, POINT]}, "3 at one distinct frequency"),
    "no points": ({"cpi_pts": []}, "shape (0,)"),
    "three columns": ({"cpi_pts": [(1, 2, 3)]}, "shape (1, 3)"),
    "text": ({"cpi_pts": [(1.2e9, "fast"), POINT]}, "are not numbers"),
    "ragged": ({"cpi_pts": [(1.2e9,), POINT]}, "are not numbers"),
    "nan": ({"cpi_pts": [POINT, (1.8e9, math.nan)]}, "point 2 is (1.8e+09 Hz, nan)"),
    "inf": ({"cpi_pts": [POINT, (1.8e9, math.inf)]}, "positive and finite"),
    "zero": ({"cpi_pts": [(1.8e9, 0), POINT]}, "cpi point 1 is"),
    "negative": ({"power_pts": [POINT, (1.8e9, -3)]}, "power point 2 is"),
    "points in GHz": ({"cpi_pts": [(1.2, 1.3), (1.8, 1.4)]}, "is it in GHz or MHz?"),
    "power at one frequency": ({"power_pts": [POINT]}, "power points: 1 at one distinct"),
    "frequency in GHz": ({"freq": 3.0}, "is it in GHz or MHz?"),
    "frequency in kHz": ({"freq": 3e12}, "is over 20 GHz"),
    "no frequency": ({"freq": None}, "frequency None is not a finite number"),
    "nan frequency": ({"freq": math.nan}, "frequency nan is not a finite number"),
    "negative frequency": ({"freq": -1e9}, "must be greater than 0"),
    "text frequency": ({"freq": "fast"}, "'fast' is not a quantity in Hz"),
    "frequency in watts": ({"freq": "95W"}, "'95W' is not a quantity in Hz"),
    "form": ({"form": "amdal"}, "'amdal' is not one of amdahl, unbounded, reciprocal"),
    "power form": (
        {"power_form": "cubic", "power_pts": POWER},
        "'cubic' is not one of linear, cmos",
    ),
    "exponent": ({"power_form": "cmos", "exponent": 7, "power_pts": POWER}, "outside 1 to 5"),
    "voltages": (
        {"power_form": "cmos", "voltages": {1e9: 1.0, 2.5e9: 1.1}, "power_pts": POWER},
        "no voltage is known at 3 GHz",
    ),
    "level": ({"level": 90}, "level 90 is not a share between 0 and 1"),
    "level 0": ({"level": 0}, "level 0 is not a share"),
    "cores": ({"cores": 0}, "cores 0 must be greater than 0"),
    "cores as text": ({"cores": "4"}, "cores '4' is not a finite number"),
    "instructions": ({"instructions": -1}, "instructions -1 must be greater than 0"),
    "data": ({"data_bytes": math.inf}, "data_bytes inf is not a finite number"),
    "efficiency": ({"efficiency": 0, "instructions": 1}, "efficiency 0 must be greater than 0"),
    "nan efficiency": ({"efficiency": math.nan}, "efficiency nan is not a finite number"),
    "price": ({"price": 0}, "price 0 must be greater than 0"),
    "two times": (
        {"instructions": 1, "path_length": LogPathLength.from_coefficients(a=1, b=1, cores=(1, 2))},
        "give instructions or path_length, not both",
    ),
    "no data": (
        {"path_length": LogPathLength.from_coefficients(a=1, b=1, cores=(1, 2))},
        "give data_bytes with it",
    ),
    "another workload": (
        {
            "path_length": LogPathLength.from_coefficients(a=1, b=1, cores=(1, 2), workload="sort"),
            "data_bytes": 1,
            "workload": "grep",
        },
        "belongs to workload 'sort', not 'grep'",
    ),
    "past the path length": (
        {
            "path_length": LogPathLength.from_coefficients(a=-31500, b=70702, cores=(1, 9)),
            "data_bytes": 1,
            "cores": 10,
        },
        "reaches zero at 9.436",
    ),
    "unbounded below zero": (
        {"cpi_pts": [(1e9, 3.0), (2e9, 1.0)], "form": "unbounded"},
        "no positive answer at 3 GHz",
    ),
    "several groups": ({"cpi_pts": sweep()}, "holds 3 groups"),
    "table without cpi": (
        {"cpi_pts": pd.DataFrame({"freq_ghz": [1, 2], "cp": [1, 2]})},
        "no column cpi",
    ),
    "bad cell": (
        {"cpi_pts": pd.DataFrame({"freq_ghz": [1, 2], "cpi": [1, -2]})},
        "row 2, column cpi: -2 must be greater than 0",
    ),
}


@pytest.mark.parametrize(("wrong", "said"), REFUSED.values(), ids=REFUSED)
def test_every_bad_argument_is_refused_in_one_line(wrong, said):
    with pytest.raises((PpwError, FittingError, ppw.MeasurementError)) as refused:
        ppw.project(**{"cpi_pts": POINTS, "freq": 3e9, **wrong})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


class TestResult:
    @pytest.fixture(params=POINT_INTERVALS)
    def answer(self, request):
        given_ = {"power_pts": [*POWER, *POWER], "instructions": 1e12, "price": 100.0, "cores": 2}
        return project(ATOM, interval=request.param, **given_)

    def test_json_comes_back(self, answer):
        again = ppw.Projection.from_json(answer.to_json())
        assert again == answer
        assert again.to_json() == answer.to_json()
        assert again.summary() == answer.summary()

    def test_an_unbounded_end_comes_back(self):
        answer = straight([(1e9, 1.0), (2e9, 1.5), (3e9, 1.0)])
        again = ppw.Projection.from_json(answer.to_json())
        assert again.instructions_per_s.upper == math.inf
        assert again.summary() == answer.summary()

    def test_json_says_what_it_is(self, answer):
        document = json.loads(answer.to_json())
        assert (document["schema_version"], document["kind"]) == (1, "projection")
        assert document["ppw_version"]
        assert document["input_digest"].startswith("sha256:")
        assert document["time_s"]["value"] == float(answer.time_s)
        assert document["time_s"]["unit"] == "s"

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("{", "not JSON"),
            ("[]", "not a document of schema_version 1"),
            ('{"schema_version": 2}', "not a document of schema_version 1"),
            ('{"schema_version": 1, "kind": "validation"}', "a 'validation', not a 'projection'"),
            ('{"schema_version": 1, "kind": "projection"}', "lacks 'freq_hz'"),
        ],
    )
    def test_any_other_json_is_refused(self, text, said):
        with pytest.raises(PpwError, match=said):
            ppw.Projection.from_json(text)

    def test_frame_has_one_row_a_known_quantity(self, answer):
        frame = answer.to_frame()
        assert list(frame.columns) == ["value", "unit", "lower", "upper", "limit", "limit_share"]
        assert frame.loc["power_w", "value"] == float(answer.power_w)
        assert "time_s" not in project(LINE).to_frame().index

    def test_summary_tells_all(self, answer):
        text = answer.summary()
        assert text.startswith("Projected to 3 GHz on 2 core(s), amdahl\n")
        assert "cpi, reciprocal" in text
        assert all(f"caveat: {c}" in text for c in answer.caveats)

    def test_it_cannot_be_changed(self, answer):
        with pytest.raises(AttributeError):
            answer.level = 0.5

    def test_it_can_be_copied_and_pickled_whole(self, answer):
        for twin in (copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
            assert twin == answer
            assert twin.power_w.upper == answer.power_w.upper

    def test_the_digest_knows_the_points_and_not_their_order(self, answer):
        assert project(POINTS).input_digest == project(POINTS[::-1]).input_digest
        assert project(POINTS).input_digest != project(LINE).input_digest


@st.composite
def cpi_sweeps(draw):
    steps = draw(st.lists(st.integers(8, 40), min_size=2, max_size=6, unique=True))
    values = st.floats(0.2, 20)
    return [(s * 1e8, draw(values)) for s in steps]


# Some draws are long levers or sit at a bound; their caveats are the subject of other tests.
quiet = pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")


@quiet
@given(cpi_sweeps(), st.integers(8, 60), st.integers(8, 60))
def test_bounded_speed_never_falls_and_never_outruns_the_clock(points, one, other):
    low, high = sorted((one * 1e8, other * 1e8))
    slow, fast = (ppw.project(points, freq=f, interval="t").instructions_per_s for f in (low, high))
    assert 1 - 1e-9 <= fast / slow <= high / low * (1 + 1e-9)


@quiet
@any_interval
@settings(max_examples=30)
@given(points=cpi_sweeps(), random=st.randoms(use_true_random=False))
def test_no_digit_depends_on_the_order_of_the_points(points, random, interval):
    shuffled = random.sample(points, len(points))
    answers = [ppw.project(p, freq=2.5e9, interval=interval) for p in (points, shuffled)]
    assert answers[0].to_json() == answers[1].to_json()


@quiet
@any_interval
@settings(max_examples=30)
@given(points=cpi_sweeps(), factor=st.floats(0.1, 10))
def test_cpi_scales_through(points, factor, interval):
    plain = ppw.project(points, freq=2.5e9, interval=interval)
    scaled = ppw.project([(f, factor * c) for f, c in points], freq=2.5e9, interval=interval)
    # A posterior's median is found to a small share of its width.
    rel = 1e-4 if interval == "bayes" else 1e-9
    assert float(scaled.cpi) == pytest.approx(factor * plain.cpi, rel=rel)
    assert float(scaled.performance) == pytest.approx(plain.performance / factor, rel=rel)


@quiet
@given(cpi_sweeps())
def test_points_given_twice_have_the_same_curve(points):
    once, twice = (ppw.project(p, freq=2.5e9, interval="t") for p in (points, points * 2))
    assert float(twice.cpi) == pytest.approx(once.cpi, rel=1e-9)


@quiet
@any_interval
@settings(max_examples=30)
@given(points=cpi_sweeps(), level=st.floats(0.5, 0.95), more=st.floats(0.01, 0.04))
def test_intervals_hold_the_answer_and_widen_with_their_level(points, level, more, interval):
    narrow, wide = (
        ppw.project(points, freq=2.5e9, level=x, interval=interval).cpi
        for x in (level, level + more)
    )
    if narrow.lower is not None:
        assert wide.lower <= narrow.lower <= narrow <= narrow.upper <= wide.upper
