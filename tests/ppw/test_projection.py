"""`ppw.project_points`: published points, worked examples, inference against statsmodels, refusals.

What holds for any interval is asked of each; a posterior's own intervals are in test_intervals.
"""

import copy
import math
import pickle

import made_up
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from made_up import ATOM, GHZ, answered, any_interval, ols_interval, only, sweep
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
PATH = LogPathLength.from_coefficients(a=100, b=50, cores=(1, 8), workload="sort")


def project(points, **options):
    return answered(ppw.project_points, points, **{"freq": 3.0e9, **options})


def straight(points, **options):
    """Project by the least-squares curve, with Student's t."""
    return project(points, interval="t", **options)


def values(estimate):
    return [float(estimate), estimate.lower, estimate.upper]


class TestInputs:
    @pytest.mark.cases(
        "points",
        dict(LINE),
        np.array(LINE),
        [list(p) for p in LINE],
        list(reversed(LINE)),
        pd.DataFrame(LINE, columns=["freq_hz", "cpi"]),
        pd.DataFrame({"freq_ghz": [2.0, 1.2], "cpi": [2.0, 1.6]}),
        pd.DataFrame({"freq_mhz": [1200, 2000], "cycles": [16, 30], "instructions": [10, 15]}),
        ids=["mapping", "array", "lists", "reversed", "table", "ghz", "counters"],
    )
    def test_every_kind_of_points_gives_the_answer_of_the_pairs(self, points):
        both = [project(p, freq=f) for p, f in ((points, "3000 MHz"), (LINE, 3e9))]
        assert both[0].to_json() == both[1].to_json()

    WATTS = {"power_w": [30, 40], "power_source": "bmc"}  # noqa: RUF012
    JOULES = {"energy_j": [300, 200], "time_s": [10, 5]}  # noqa: RUF012

    @pytest.mark.parametrize("measured", [WATTS, JOULES], ids=["watts", "joules"])
    def test_a_runs_table_brings_its_power(self, measured):
        runs = pd.DataFrame({"freq_ghz": [1.0, 2.0], "cpi": [1.5, 2.0], **measured})
        assert float(straight(runs).power_w) == pytest.approx(50)
        given_ = straight(runs, power_pts=[(1e9, 10), (2e9, 20)])
        assert float(given_.power_w) == pytest.approx(30)
        # A column without any watt is no power.
        assert project(runs.assign(power_w=np.nan, energy_j=np.nan)).power_w is None

    def test_times_that_are_read_as_cpi_are_doubted(self):
        times = {"1.2GHz": 84.1, "1.8GHz": 57.3}
        assert 'give metric="time"' in only(straight(times).caveats, "and one is 84.1")
        assert not [c for c in straight(LINE).caveats if "without a metric" in c]


class TestPublishedAtom:
    def test_bounded_form_holds_the_slope_at_zero(self):
        answer = straight(ATOM)
        assert float(answer.cpi) == pytest.approx((6.519 + 6.057) / 2, rel=1e-12)
        assert answer.parameters["stall_s_per_instruction"] == 0
        assert answer.standard_errors["stall_s_per_instruction"] is None
        assert (answer.cpi.limit, answer.cpi.limit_share) == (pytest.approx(6.288), 1)
        said = only(answer.caveats, "falls as frequency rises")
        assert "the bounded curve is a constant CPI" in said

    @any_interval
    def test_other_form_is_shown_beside_it(self, interval):
        # c and k of the line through the two points: 1/CPI = c − k/f.
        k = (1 / 6.519 - 1 / 6.057) / (1 / 1.80e9 - 1 / 1.66e9)
        c = 1 / 6.519 + k / 1.66e9
        answer = project(ATOM, interval=interval)
        assert float(answer.other_form_cpi) == pytest.approx(1 / (c - k / 3e9), rel=1e-10)
        assert float(answer.other_form_cpi) == pytest.approx(4.53, abs=5e-3)
        assert answer.other_form_cpi.limit == pytest.approx(1 / c, rel=1e-10)
        assert answer.summary().startswith("Projected to 3 GHz on 1 core, form amdahl\n")
        assert "cpi, reciprocal" in answer.summary()

    def test_reciprocal_form_reproduces_the_curve_with_a_caveat(self):
        answer = straight(ATOM, form="reciprocal")
        assert float(answer.cpi) == pytest.approx(4.53, abs=5e-3)
        assert answer.parameters["c"] == pytest.approx(0.304, abs=5e-4)
        assert answer.parameters["k_hz"] == pytest.approx(250e6, rel=2e-3)
        assert float(answer.other_form_cpi) == pytest.approx(6.288)
        assert only(answer.caveats, "gains more than the frequency")
        with pytest.raises(OutOfRangeError, match=r"pole is at 82\d\.\d MHz"):
            ppw.project_points(ATOM, freq=0.8e9, form="reciprocal")

    def test_other_forms_where_there_is_no_bound_and_where_none_is_needed(self):
        answer = project(ATOM, form="unbounded")
        slope = (6.057 - 6.519) / 0.14e9
        assert float(answer.cpi) == pytest.approx(6.057 + slope * 1.2e9)
        assert float(answer.other_form_cpi) == pytest.approx(4.53, abs=5e-3)
        assert only(answer.caveats, "unbounded sets no bound")
        assert project(LINE).other_form_cpi is None


class TestWorkedByHand:
    def test_cpi_rate_and_time(self):
        answer = straight(LINE, cores=4)
        assert float(answer.cpi) == pytest.approx(2.5, rel=1e-12)
        assert float(answer.instructions_per_s) == pytest.approx(4 * 3e9 / 2.5, rel=1e-12)
        assert answer.performance == answer.instructions_per_s
        assert answer.performance.unit == "instructions/s"
        assert answer.time_s is answer.power_w is answer.perf_per_dollar is None
        timed = straight(LINE, cores=4, instructions=4e12, efficiency=1.25)
        assert float(timed.time_s) == pytest.approx(4e12 * 2.5 * 1.25 / (3e9 * 4), rel=1e-12)
        assert float(timed.performance) == pytest.approx(1 / timed.time_s, rel=1e-12)
        assert timed.performance.unit == "runs/s"

    def test_time_by_the_path_length(self):
        # T = D·CPI·PL(n)·efficiency/(f·n), with PL(4) = 100·ln 4 + 50.
        asked = {"data_bytes": 1e10, "path_length": PATH, "workload": "sort"}
        answer = straight(LINE, cores=4, efficiency=1.1, **asked)
        expected = 1e10 * 2.5 * (100 * math.log(4) + 50) * 1.1 / (3e9 * 4)
        assert float(answer.time_s) == pytest.approx(expected, rel=1e-12)

    def test_power_energy_and_both_efficiencies(self):
        answer = straight(LINE, instructions=4e12, power_pts=WATT_LINE, price=500.0)
        time = 4e12 * 2.5 / 3e9
        assert float(answer.power_w) == pytest.approx(50, rel=1e-12)
        assert float(answer.energy_j) == pytest.approx(50 * time, rel=1e-12)
        assert float(answer.perf_per_watt) == pytest.approx(1 / (50 * time), rel=1e-12)
        assert float(answer.perf_per_dollar) == pytest.approx(1 / (500 * time), rel=1e-12)
        assert (answer.perf_per_watt.unit, answer.energy_j.unit) == ("runs/J", "J/run")
        untimed = straight(LINE, power_pts=WATT_LINE)
        assert untimed.energy_j is None
        assert untimed.perf_per_watt.unit == "instructions/J"
        assert float(untimed.perf_per_watt) == pytest.approx(3e9 / 2.5 / 50, rel=1e-12)

    def test_cmos_power(self):
        answer = straight(LINE, power_pts=[(1e9, 22.0), (2e9, 36.0)], power_form="cmos")
        assert float(answer.power_w) == pytest.approx(20 + 2 * 27, rel=1e-12)
        volts = {1e9: 1.0, 2e9: 1.0, 3e9: 1.2}
        points = [(1e9, 30.0), (2e9, 60.0)]
        answer = straight(LINE, power_pts=points, power_form="cmos", voltages=volts)
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
        assert (answer.power_w.limit, answer.perf_per_watt.limit) == (math.inf, 0)


class TestIntervals:
    @pytest.mark.parametrize("level", [0.5, 0.90, 0.99])
    def test_cpi_what_scales_with_it_and_power_against_statsmodels(self, level):
        answer = straight(POINTS, level=level, instructions=7e11, cores=2, power_pts=POWER)
        value, lower, upper = ols_interval(F / GHZ, CPI, 3.0, level=level)
        assert values(answer.cpi) == pytest.approx([value, lower, upper], rel=1e-10)
        expected = np.array([value, lower, upper]) * 7e11 / (3e9 * 2)
        assert values(answer.time_s) == pytest.approx(expected, rel=1e-10)
        rates = [6e9 / value, 6e9 / upper, 6e9 / lower]
        assert values(answer.instructions_per_s) == pytest.approx(rates, rel=1e-10)
        watts = ols_interval(F / GHZ, WATTS, 3.0, level=level)
        assert values(answer.power_w) == pytest.approx(watts, rel=1e-10)

    def test_a_slope_held_at_zero_leaves_the_spread_of_a_mean(self):
        answer = straight(list(zip(F, CPI[::-1], strict=True)))
        mean, half = CPI.mean(), student.ppf(0.95, 4) * CPI.std(ddof=1) * math.sqrt(1 + 1 / 5)
        assert values(answer.cpi) == pytest.approx([mean, mean - half, mean + half], rel=1e-10)

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
        ends = [ratio * math.exp(-spread), ratio * math.exp(spread)]
        assert values(ratio)[1:] == pytest.approx(ends, rel=1e-10)

    def test_two_points_have_none_and_say_so(self):
        answer = straight(LINE, instructions=1e9, power_pts=POWER)
        for estimate in (answer.cpi, answer.time_s, answer.perf_per_watt):
            assert values(estimate)[1:] == [None, None]
        assert answer.power_w.lower is not None
        assert only(answer.caveats, "no interval").startswith("cpi: ")

    def test_an_end_that_would_be_negative_is_zero_and_of_its_reciprocal_unbounded(self):
        answer = straight([(1e9, 1.0), (2e9, 1.5), (3e9, 1.0)])
        for one in (answer, ppw.Projection.from_json(answer.to_json())):
            assert (one.cpi.lower, one.instructions_per_s.upper) == (0, math.inf)
            assert one == answer

    def test_an_error_beyond_all_bounds_stays_a_number(self):
        # Power falls to almost nothing at the target, so its relative error explodes.
        power = [(1e9, 10.0), (1.5e9, 6.0), (2e9, 5.4)]
        answer = straight(POINTS, freq=3.05e9, power_pts=power, level=0.999)
        assert 0 < answer.power_w < 0.01
        assert values(answer.perf_per_watt)[1:] == [0, math.inf]


class TestCaveats:
    def test_far_from_what_was_measured(self):
        known = {"power_pts": POWER, "power_source": "rapl:package"}
        assert only(project(POINTS, freq="15GHz", **known).caveats, "supports") == (
            "cpi, power: 15 GHz is 6.2 times the highest frequency measured (2.4 GHz): "
            "no measurement near it supports the law"
        )

    @pytest.mark.parametrize("freq", [0.9e9, 2.4e9, 3e9])
    def test_printed_parameters_give_the_answer(self, freq):
        answer = project(POINTS, freq=freq, power_pts=POWER, power_source="ipmi:dcmi")
        found = answer.parameters
        stalled = found["stall_s_per_instruction"] * freq
        assert found["cpi_core"] + stalled == pytest.approx(answer.cpi)
        assert found["p0_w"] + found["slope_w_per_hz"] * freq == pytest.approx(answer.power_w)
        law = project(POINTS, freq=freq, power_pts=POWER, interval="none").parameters
        assert answer.least_squares == pytest.approx(law)

    def test_watts_of_unknown_source(self):
        runs = pd.DataFrame({"freq_hz": F, "cpi": CPI, "power_w": WATTS})
        for source, said in ((None, 1), ("unknown", 1), ("", 1), ("ipmi:dcmi", 0)):
            answer = project(POINTS, power_pts=POWER, power_source=source)
            assert ["unknown source" in c for c in answer.caveats] == [True] * said + [False]
            assert "the least-squares law answers up to" in answer.caveats[-1]
            assert project(runs.assign(power_source=source)).caveats == answer.caveats
        assert project(POINTS).caveats == ()

    def test_family_mismatch(self):
        runs = pd.DataFrame({"freq_hz": F, "cpi": CPI, "family": "Bonnell"})
        text = "family mismatch: points of Bonnell projected onto Nehalem"
        assert only(project(runs, family="Nehalem").caveats, "family").startswith(text)
        assert project(runs, family="Bonnell").caveats == ()

    def test_path_length_outside_its_range(self):
        text = "path length outside its range: measured at 1 to 8 cores, used at 9"
        for cores, said in ((1, ()), (8, ()), (9, (text,))):
            answer = project(POINTS, cores=cores, data_bytes=1e9, path_length=PATH)
            assert answer.caveats == said

    def test_the_warning_points_at_the_caller(self):
        with pytest.warns(CaveatWarning) as caught:
            ppw.project_points(ATOM, freq=3e9)
        assert {w.filename for w in caught} == {__file__}


POINT = (1.2e9, 1.3)
REFUSED = {
    "one frequency": ({"cpi_pts": [POINT, POINT, POINT]}, "3 at one distinct frequency"),
    "one by two counters": ({"cpi_pts": [(2.4e9, 1), (2.3992e9, 1)]}, "one distinct frequency"),
    "no points": ({"cpi_pts": []}, "shape (0,)"),
    "text": ({"cpi_pts": [(1.2e9, "fast"), POINT]}, "are not numbers"),
    "ragged": ({"cpi_pts": [(1.2e9,), POINT]}, "are not numbers"),
    "nan": ({"cpi_pts": [POINT, (1.8e9, math.nan)]}, "point 2 is (1.8e+09 Hz, nan)"),
    "zero": ({"cpi_pts": [(1.8e9, 0), POINT]}, "cpi point 1 is"),
    "negative": ({"power_pts": [POINT, (1.8e9, -3)]}, "power point 2 is"),
    "points in GHz": ({"cpi_pts": [(1.2, 1.3), (1.8, 1.4)]}, "is it in GHz or MHz?"),
    "power at one frequency": ({"power_pts": [POINT]}, "power points: 1 at one distinct"),
    "frequency in GHz": ({"freq": 3.0}, "is it in GHz or MHz?"),
    "frequency in kHz": ({"freq": 3e12}, "is over 20 GHz"),
    "no frequency": ({"freq": None}, "frequency None is not a finite number"),
    "frequency in watts": ({"freq": "95W"}, "'95W' is not a quantity in Hz"),
    "form": ({"form": "amdal"}, "'amdal' is not one of amdahl, unbounded, reciprocal"),
    "power form": ({"power_form": "cubic", "power_pts": POWER}, "'cubic' is not one of linear"),
    "interval": ({"interval": "conformal"}, "'conformal' is not one of bayes, t, none"),
    "level": ({"level": 90}, "level 90 is not a share between 0 and 1"),
    "cores": ({"cores": 0}, "cores 0 must be greater than 0"),
    "cores as text": ({"cores": "4"}, "cores '4' is not a finite number"),
    "instructions": ({"instructions": -1}, "instructions -1 must be greater than 0"),
    "data": ({"data_bytes": math.inf}, "data_bytes inf is not a finite number"),
    "efficiency": ({"efficiency": 0, "instructions": 1}, "efficiency 0 must be greater than 0"),
    "price": ({"price": 0}, "price 0 must be greater than 0"),
    "two times": ({"instructions": 1, "path_length": PATH}, "give instructions or path_length"),
    "no data": ({"path_length": PATH}, "give data_bytes with it"),
    "another workload": (
        {"path_length": PATH, "data_bytes": 1, "workload": "grep"},
        "belongs to workload 'sort', not 'grep'",
    ),
    "below zero": ({"cpi_pts": [(1e9, 3), (2e9, 1)], "form": "unbounded"}, "no positive answer"),
    "several groups": ({"cpi_pts": sweep()}, "holds 3 groups"),
    "table without cpi": ({"cpi_pts": pd.DataFrame({"freq_ghz": [1, 2]})}, "no column cpi"),
    "bad cell": ({"cpi_pts": pd.DataFrame({"freq_ghz": [1, 2], "cpi": [1, -2]})}, "row 2, column"),
}


@pytest.mark.parametrize(("wrong", "said"), REFUSED.values(), ids=REFUSED)
def test_every_bad_argument_is_refused_in_one_line(wrong, said):
    with pytest.raises((PpwError, FittingError, ppw.MeasurementError)) as refused:
        ppw.project_points(**{"cpi_pts": POINTS, "freq": 3e9, **wrong})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


class TestResult:
    @pytest.mark.cases(
        "text, said",
        *(("{", "not JSON"), ("[]", "not a document of schema_version 1")),
        ('{"schema_version": 2}', "not a document of schema_version 1"),
        ('{"schema_version": 1, "kind": "validation"}', "a 'validation', not a 'projection'"),
        ('{"schema_version": 1, "kind": "projection"}', "lacks 'freq_hz'"),
    )
    def test_any_other_json_is_refused(self, text, said):
        with pytest.raises(PpwError, match=said):
            ppw.Projection.from_json(text)

    @any_interval
    def test_frame_and_copies_hold_every_known_quantity(self, interval):
        given_ = {"power_pts": [*POWER, *POWER], "instructions": 1e12, "price": 100.0, "cores": 2}
        answer = project(ATOM, interval=interval, **given_)
        frame = answer.to_frame()
        assert list(frame.columns) == ["value", "unit", "lower", "upper", "limit", "limit_share"]
        assert frame.loc["power_w", "value"] == float(answer.power_w)
        assert "time_s" in frame.index
        assert "time_s" not in project(LINE).to_frame().index
        assert all(f"caveat: {c}" in answer.summary() for c in answer.caveats)
        for twin in (copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
            assert (twin, twin.power_w.upper) == (answer, answer.power_w.upper)
        assert answer.input_digest != project(LINE).input_digest


@st.composite
def cpi_sweeps(draw):
    steps = draw(st.lists(st.integers(8, 40), min_size=2, max_size=6, unique=True))
    values = st.floats(0.2, 20)
    return [(s * 1e8, draw(values)) for s in steps]


# Some draws are long levers or sit at a bound; their caveats are the subject of other tests.


@made_up.ignore_caveats
@made_up.few_examples
@given(cpi_sweeps(), st.integers(8, 60), st.integers(8, 60))
def test_bounded_speed_never_falls_and_never_outruns_the_clock(points, one, other):
    low, high = sorted((one * 1e8, other * 1e8))
    slow, fast = (ppw.project_points(points, freq=f, interval="t") for f in (low, high))
    slow, fast = slow.instructions_per_s, fast.instructions_per_s
    assert 1 - 1e-9 <= fast / slow <= high / low * (1 + 1e-9)


@made_up.ignore_caveats
@any_interval
@made_up.few_examples
@given(points=cpi_sweeps(), random=st.randoms(use_true_random=False), factor=st.floats(0.1, 10))
def test_order_changes_no_digit_and_cpi_scales_through(points, random, factor, interval):
    asked = {"freq": 2.5e9, "interval": interval}
    plain = ppw.project_points(points, **asked)
    shuffled = random.sample(points, len(points))
    assert ppw.project_points(shuffled, **asked).to_json() == plain.to_json()
    scaled = ppw.project_points([(f, factor * c) for f, c in points], **asked)
    # A posterior's median is found to a small share of its width.
    rel = 1e-4 if interval == "bayes" else 1e-9
    assert float(scaled.cpi) == pytest.approx(factor * plain.cpi, rel=rel)
    assert float(scaled.performance) == pytest.approx(plain.performance / factor, rel=rel)
    if interval != "bayes":
        twice = ppw.project_points(points * 2, **asked)
        assert float(twice.cpi) == pytest.approx(plain.cpi, rel=1e-9)


@made_up.ignore_caveats
@any_interval
@made_up.few_examples
@given(points=cpi_sweeps(), level=st.floats(0.5, 0.95), more=st.floats(0.01, 0.04))
def test_intervals_hold_the_answer_and_widen_with_their_level(points, level, more, interval):
    narrow, wide = (
        ppw.project_points(points, freq=2.5e9, level=x, interval=interval).cpi
        for x in (level, level + more)
    )
    if narrow.lower is not None:
        assert wide.lower <= narrow.lower <= narrow <= narrow.upper <= wide.upper


class TestOneName:
    FORMS = {  # noqa: RUF012
        "texts": [(f"{f / 1e9}GHz", cpi) for f, cpi in POINTS],
        "lists": [[f, cpi] for f, cpi in POINTS],
        "mapping": {f"{f / 1e6} MHz": cpi for f, cpi in POINTS},
        "series": pd.Series(dict(POINTS)),
        "array": np.array(POINTS),
    }

    @pytest.mark.parametrize("form", FORMS)
    def test_points_in_any_form_are_one_answer(self, form):
        expected = ppw.project_points(POINTS, freq=3e9).to_json()
        assert ppw.project(self.FORMS[form], freq="3GHz").to_json() == expected
        pairs = zip(*zip(*POINTS, strict=True), strict=True)
        several = ppw.project(pairs, freq=["3GHz", 2.5e9])
        assert [answer.freq_hz for answer in several] == [3e9, 2.5e9]
        assert several[0].to_json() == expected

    @made_up.ignore_caveats
    def test_records_columns_and_points_of_a_metric_are_the_table_they_say(self):
        times = {"1.2GHz": 20.1, "1.8GHz": 14.2, "2.4GHz": 11.24}
        columns = {"freq": list(times), "time_s": list(times.values())}
        expected = ppw.project(pd.DataFrame(columns), freq="3GHz", metric="time").table
        records = [{"freq": f, "time_s": t} for f, t in times.items()]
        for form in (times, records, columns, pd.Series(times), list(times.items())):
            answer = ppw.project(form, freq="3GHz", metric="time")
            assert answer.table["projected"].tolist() == expected["projected"].tolist()
        with pytest.raises(ppw.PpwError, match="metric 'energy' is not one of"):
            ppw.project(times, freq="3GHz", metric="energy")

    @made_up.ignore_caveats
    def test_a_table_is_projected_to_one_kind_of_target(self):
        runs = pd.concat([made_up.sweep().assign(cores=n) for n in (1, 2, 4)])
        assert ppw.project(runs, freq=3e9).kind == "runs_projection"
        assert ppw.project(runs, cores=8).kind == "core-count-projection"
        for wrong in ({}, {"freq": 3e9, "cores": 8}):
            with pytest.raises(ppw.PpwError, match="give one of freq, cores, data_bytes"):
                ppw.project(runs, **wrong)
        with pytest.raises(ppw.PpwError, match="no target of the projection: give freq"):
            ppw.project(POINTS)

    def test_a_former_name_answers_and_warns(self):
        with pytest.warns(DeprecationWarning, match=r"ppw.check_quality is now ppw.check"):
            assert ppw.check_quality is ppw.check
        with pytest.warns(DeprecationWarning, match=r"ppw.project_runs is now ppw.project"):
            made = ppw.project_runs(made_up.sweep(), freq=3e9, metric="time")
        assert made.kind == "runs_projection"
