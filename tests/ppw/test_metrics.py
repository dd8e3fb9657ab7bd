"""Metrics: the registry, estimates as people read them, efficiency, and parameters of curves."""

import copy
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from made_up import answered, only, sweep
from scipy.optimize import minimize_scalar

import ppw
from measurements.table.schema import COLUMNS
from ppw.cli.options import METRIC_NAMES
from ppw.decision import objectives as obj
from ppw.errors import PpwError, UnknownColumnError
from ppw.projection.answers import FitOptions
from ppw.projection.plots import _LABELS
from ppw.results.result import Estimate
from ppw.results.text import shown, telling_keys
from ppw.runs import metrics as rm
from ppw.runs.metrics import FORMS, METRICS, answerable, columns_for, needed_columns, parse_metrics


def parts(estimate):
    names = ("unit", "lower", "upper", "limit", "limit_share")
    return float(estimate), *(getattr(estimate, name) for name in names)


def through_json(estimate):
    text = json.dumps(estimate.to_dict(), allow_nan=False)
    return Estimate.from_dict(json.loads(text))


class TestEstimate:
    def test_it_is_a_float_whose_missing_parts_are_none(self):
        watts = Estimate(50.0, "W", lower=45.0)
        assert watts == 50
        assert type(watts / 2) is float
        assert f"{watts:.1f}" == "50.0"
        assert parts(Estimate(3.0)) == (3.0, "1", None, None, None, None)
        assert Estimate(3.0, lower=math.nan, limit_share=math.nan).lower is None
        half = Estimate(4.0, "1/s", lower=2.0, upper=math.inf, limit=8.0, limit_share=0.5)
        assert parts(half.scaled(0.5, "x")) == (2.0, "x", 1.0, math.inf, 4.0, 0.5)

    @pytest.mark.parametrize(
        "twin", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e)), through_json]
    )
    def test_copies_keep_all_parts(self, twin):
        full = Estimate(1.5, "s", lower=1.0, upper=math.inf, limit=0.5, limit_share=1 / 3)
        for estimate in (full, Estimate(1.5, "s")):
            assert parts(twin(estimate)) == parts(estimate)

    @pytest.mark.cases(
        "value, unit, text",
        *((3.0e9, "Hz", "3 GHz"), (0.0251, "W", "25.1 mW"), (2.5e-9, "J", "2.5e-09 J")),
        *((-250e6, "Hz", "-250 MHz"), (0.0, "W", "0 W"), (3.2e13, "1/s", "3.2e+13 1/s")),
        *((1.0, "1", "1"), (1234567.8, "1", "1,234,568"), (6.288, "", "6.288")),
        *((9999.4, "s", "9999 s"), (9999.6, "s", "10,000 s")),
        *((math.inf, "s", "∞"), (math.nan, "s", "–"), (None, "s", "–")),
    )
    def test_shown(self, value, unit, text):
        assert shown(value, unit) == text

    @given(st.floats(1e-9, 1e15), st.sampled_from(["Hz", "W", "s", "1"]))
    def test_shown_keeps_four_digits(self, value, unit):
        prefixes = {"G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "µ": 1e-6}
        number, _, rest = shown(value, unit).partition(" ")
        factor = prefixes.get(rest[:1], 1.0) if rest != unit else 1.0
        assert float(number.replace(",", "")) * factor == pytest.approx(value, rel=5.1e-4)

    def test_the_fewest_keys_that_tell_rows_apart(self):
        keys = ["host", "workload", "cores", "data_bytes"]
        told = [("sort", 1, 1e6), ("sort", 2, 1e6), ("wc", 1, 2e6), ("wc", 2, 2e6)]
        rows = [dict(zip(keys, ("a", *row), strict=True)) for row in told]
        assert telling_keys(keys, rows) == ["workload", "cores"]
        assert telling_keys(keys, rows[:1]) == ["host"]
        assert telling_keys(keys, rows[::2]) == ["workload"]
        assert telling_keys([], rows) == []


MEASURED = pd.DataFrame(
    {
        "time_s": [10.0, 5.0],
        "power_w": [20.0, 30.0],
        "energy_j": [210.0, 160.0],
        "cycles": [3e9, 4e9],
        "instructions": [2e9, 2e9],
        "throughput_ops_s": [100.0, np.nan],
        "price": [500.0, 500.0],
    }
)
TIMED, WATTS = {"time_s": [1.0]}, {"power_w": [3.0]}
NO_WATTS = "needs power_w (or energy_j): this table has time_s but no power: "


class TestRegistry:
    def test_every_metric_comes_from_columns_of_the_runs_table(self):
        for metric in (*METRICS.values(), rm.PERFORMANCE):
            for way in metric.columns:
                assert set(way) <= set(COLUMNS)
            for name in metric.factors or {metric.name: 1}:
                assert FitOptions().model(name).equation
        assert tuple(METRICS) == METRIC_NAMES
        assert set(METRICS) <= set(_LABELS)

    @pytest.mark.cases(
        "metric, changed, expected",
        ("time", {}, [10, 5]),
        ("cpi", {}, [1.5, 2]),
        ("cpi", {"cpi": [3.0, 4.0]}, [3, 4]),
        ("power", {}, [20, 30]),
        ("power", {"power_w": np.nan}, [21, 32]),
        ("energy", {}, [210, 160]),
        ("energy", {"energy_j": np.nan}, [200, 150]),
        ("throughput", {}, [100, np.nan]),
        ("perf_per_watt", {}, [5, 1 / 150]),
        ("perf_per_dollar", {}, [0.2, 1 / 2500]),
    )
    def test_values(self, metric, changed, expected):
        found = rm.values(METRICS[metric], MEASURED.assign(**changed))
        np.testing.assert_allclose(found, expected, rtol=1e-14)

    def test_answerable_and_needed(self):
        joules = columns_for(METRICS["power"], MEASURED.drop(columns="power_w"))
        assert joules == ("energy_j", "time_s")
        assert columns_for(METRICS["throughput"], MEASURED.assign(throughput_ops_s=np.nan)) is None
        runs = pd.DataFrame({"freq_hz": [1e9], "time_s": [1.0], "energy_j": [3.0]})
        found = answerable(runs)
        assert [m.name for m in found] == ["time", "power", "energy", "perf_per_watt"]
        assert needed_columns(found, runs) == ["freq_hz", "time_s", "energy_j"]
        # A metric of one column needs that column.
        assert needed_columns([METRICS["throughput"]], runs) == ["freq_hz", "throughput_ops_s"]
        assert needed_columns([METRICS["cpi"]], runs) == ["freq_hz", "cpi"]
        with pytest.raises(UnknownColumnError, match="nothing to project: no time_s"):
            answerable(pd.DataFrame({"freq_hz": [1e9]}))

    @pytest.mark.cases(
        "metric, columns, said",
        ("perf_per_watt", TIMED, NO_WATTS + "measure it, or use --map power_w=COLUMN"),
        ("energy", TIMED, "needs energy_j (or power_w): this table has time_s but no power: "),
        ("power", TIMED, NO_WATTS),
        ("energy", WATTS, "needs time_s: this table has power_w but no time_s: "),
        ("perf_per_watt", {"energy_j": [3.0]}, "needs time_s: this table has energy_j but no "),
        ("perf_per_watt", {"cpi": [1.0]}, "needs throughput_ops_s and power_w (or time_s and "),
        ("cpi", {"cycles": [2.0]}, "needs cpi (or instructions): this table has cycles but no"),
        ("perf_per_dollar", TIMED, "needs price: this table has time_s but no price: "),
        ("power", {**TIMED, "powerw": [3.0]}, "but no power (did you mean 'powerw'?): "),
        ("power", {**TIMED, "power_source": ["rapl"]}, "but no power: "),
    )
    def test_what_a_metric_needs_and_what_is_missing(self, metric, columns, said):
        runs = pd.DataFrame({"freq_hz": [1e9], **columns})
        with pytest.raises(UnknownColumnError) as refused:
            needed_columns([METRICS[metric]], runs)
        assert str(refused.value).startswith(f"runs: {metric} needs ")
        assert said in str(refused.value)

    def test_known_metrics(self):
        assert [m.name for m in parse_metrics(["power", "time", "power"])] == ["power", "time"]
        assert [m.name for m in parse_metrics("cpi")] == ["cpi"]
        with pytest.raises(UnknownColumnError, match=r"no metric 'Time' \(did you mean 'time'\?\)"):
            parse_metrics(["Time"])

    def test_forms(self):
        for name in ("time", "cpi", "throughput", "performance", "perf_per_dollar"):
            bounded, free, reciprocal = (FitOptions(form=form).model(name) for form in FORMS)
            nonnegative = [m.nonnegative for m in (bounded, free, reciprocal)]
            assert nonnegative == [True, False, False]
            assert bounded.equation == free.equation != reciprocal.equation


STEPS = {"lowest_hz": 0.8e9, "highest_hz": 3.0e9}
LOGS = np.log([*STEPS.values()])
CURVE = {"t_fixed_s": 10, "work_cycles": 20e9, "p0_w": 30, "slope_w_per_hz": 15e-9}
every_product = pytest.mark.parametrize("delays", [0, 1, 2])


def product(f, delays, *, t_fixed_s, work_cycles, p0_w, slope_w_per_hz):
    return (p0_w + slope_w_per_hz * f) * (t_fixed_s + work_cycles / f) ** (1 + delays)


class TestEfficiency:
    def test_ratios_must_be_positive(self):
        with pytest.raises(PpwError, match="power ratio 0 must be greater than 0"):
            obj.per_watt_ratio(2, 0)
        with pytest.raises(PpwError, match="cost ratio -1 must be greater than 0"):
            obj.per_dollar_ratio(2, -1)
        with pytest.raises(PpwError, match="speed-up nan is not a finite number"):
            obj.break_even_price_ratio(math.nan)

    def test_worked_by_hand(self):
        # w·s = 300, s·t·w·P0 = 90000: sqrt(20·30/(10·15)), (300 + sqrt(90000 + 8·90000))/300 and
        # (300 + sqrt(4·90000))/150.
        wide = {"lowest_hz": 1e8, "highest_hz": 1e10}
        found = [obj.least_product_frequency(delays, **CURVE, **wide) for delays in range(3)]
        assert found == pytest.approx([2e9, 4e9, 6e9], rel=1e-12)
        # P = s·f: EDP is s·f·(t + w/f)², least at w/t; ED²P at 2·w/t.
        bare = CURVE | {"p0_w": 0, "work_cycles": 12e9}
        found = [obj.least_product_frequency(delays, **bare, **STEPS) for delays in range(3)]
        assert found == pytest.approx([0.8e9, 1.2e9, 2.4e9])

    @pytest.mark.cases(
        "changed, best",
        *(({"slope_w_per_hz": -1e-9}, 3.0e9), ({"p0_w": 0}, 0.8e9), ({"p0_w": -5}, 0.8e9)),
        *(({"work_cycles": 1e12}, 3.0e9), ({"work_cycles": 1e9}, 0.8e9)),
    )
    def test_least_energy_at_an_end(self, changed, best):
        assert obj.least_product_frequency(0, **(CURVE | changed), **STEPS) == best

    @every_product
    def test_the_products_fall_all_the_way_up(self, delays):
        for changed in ({"t_fixed_s": 0}, {"slope_w_per_hz": 0}, {"t_fixed_s": -1}):
            assert obj.least_product_frequency(delays, **(CURVE | changed), **STEPS) == 3.0e9

    @every_product
    @given(st.floats(0.1, 100), st.floats(1e9, 1e11), st.floats(0, 200), st.floats(1e-9, 1e-7))
    def test_against_scipy_minimisation(self, delays, fixed, work, p0, slope):
        curve = {"t_fixed_s": fixed, "work_cycles": work, "p0_w": p0, "slope_w_per_hz": slope}
        how = {"method": "bounded", "options": {"xatol": 1e-10}, "bounds": LOGS}
        found = minimize_scalar(lambda x: np.log(product(np.exp(x), delays, **curve)), **how)
        best = obj.least_product_frequency(delays, **curve, **STEPS)
        assert product(best, delays, **curve) <= np.exp(found.fun) * (1 + 1e-9)
        if 0.801e9 < np.exp(found.x) < 2.999e9:
            assert best == pytest.approx(np.exp(found.x), rel=1e-3)

    @every_product
    @given(st.floats(-30, 30), st.floats(0.1, 100), st.floats(1e9, 1e11))
    def test_any_static_power_against_a_fine_grid(self, delays, p0, fixed, work):
        curve = {"t_fixed_s": fixed, "work_cycles": work, "p0_w": p0, "slope_w_per_hz": 40e-9}
        f = np.linspace(*STEPS.values(), 4001)
        value = product(obj.least_product_frequency(delays, **curve, **STEPS), delays, **curve)
        least = product(f, delays, **curve).min()
        assert value <= least + 1e-6 * abs(least)


RUNS = sweep()
CMOS = {"metric": "power", "power_form": "cmos"}
RATIO = {"metric": "perf_per_watt", "via": "ratio"}


def fit_runs(runs=RUNS, **options):
    return answered(ppw.fit, runs, **options)


class TestParameters:
    def test_without_noise_they_are_those_the_runs_were_made_with(self):
        frame = fit_runs(sweep(noise=0)).to_frame()
        found = frame.set_index(["workload", "metric", "parameter"])["value"]
        assert dict(found["sort"]["time"]) == pytest.approx({"t_fixed_s": 9.0, "work_cycles": 60e9})
        power = {"p0_w": 20.0, "slope_w_per_hz": 15e-9}
        assert dict(found["grep"]["power"]) == pytest.approx(power)
        cpi = {"cpi_core": 90e9 / 5e10, "stall_s_per_instruction": 6.0 / 5e10}
        assert dict(found["wc"]["cpi"]) == pytest.approx(cpi)

    def test_values_and_errors_against_statsmodels(self):
        from statsmodels.api import OLS

        runs = RUNS[RUNS["workload"] == "sort"]
        rows = fit_runs(runs, metric="power").to_frame()
        design = np.column_stack([np.ones(len(runs)), runs["freq_ghz"]])
        oracle = OLS(runs["power_w"].to_numpy(), design).fit()
        scale = np.array([1, 1e-9])
        np.testing.assert_allclose(rows["value"], oracle.params * scale, rtol=1e-10)
        np.testing.assert_allclose(rows["standard_error"], oracle.bse * scale, rtol=1e-10)
        assert (set(rows["points"]), set(rows["degrees_of_freedom"])) == ({8}, {6})

    def test_one_held_at_its_bound(self):
        fast = RUNS.assign(time_s=RUNS["freq_ghz"] ** -1.5)
        result = fit_runs(fast, metric="time")
        held = result.to_frame().query("held")
        assert set(held["parameter"]) == {"t_fixed_s"}
        assert (held["value"] == 0).all()
        assert held["standard_error"].isna().all()
        said = only(result.caveats, "--form unbounded removes the bound")
        assert said.startswith("time (3 of 3 groups)")
        assert "held at 0" in result.summary()
        lifted = fit_runs(fast, metric="time", form="unbounded")
        assert not lifted.to_frame()["held"].any()
        assert lifted.caveats == ()

    def test_two_frequencies_leave_no_standard_error(self):
        result = fit_runs(sweep(steps=(1.2, 2.4), repeats=1), metric="energy")
        # A product gives the parameters of its factors.
        assert set(result.to_frame()["metric"]) == {"time", "power"}
        assert result.to_frame()["standard_error"].isna().all()
        assert (result.to_frame()["degrees_of_freedom"] == 0).all()

    def test_a_group_without_watts_is_left_out_as_not_measured(self):
        runs = RUNS.assign(power_w=RUNS["power_w"].where(RUNS["workload"] != "wc"))
        said = only(answered(ppw.fit, runs, metric="power").caveats, "left out")
        assert said == "power: 1 of 3 groups left out: not measured there"

    @pytest.mark.cases(
        "options, equation",
        ({"metric": "time"}, "T(f) = t_fixed + w/f"),
        ({"metric": "cpi"}, "CPI(f) = cpi_core + m·f"),
        ({"metric": "cpi", "form": "reciprocal"}, "1/CPI(f) = c − k/f"),
        ({"metric": "power"}, "P(f) = P0 + s·f"),
        (CMOS, "P(f) = P0 + c·(f/GHz)^γ"),
        (CMOS | {"voltages": {1.2e9: 0.9, 2.4e9: 1.1}}, "P(f) = P0 + c·(f/GHz)·V(f)²"),
        (RATIO, "1/perf_per_watt(f) = e_fixed + e_clock/f"),
    )
    def test_the_law_is_named(self, options, equation):
        result = fit_runs(**options)
        assert set(result.to_frame()["equation"]) == {equation}
        assert equation in result.summary()

    def test_summary_says_what_it_cut_and_no_order_of_rows_matters(self):
        many = pd.concat([sweep(host=f"node{i}", seed=i) for i in range(11)])
        result = fit_runs(many, metric="time")
        assert "… 6 more rows" in result.summary()
        shuffled = fit_runs(many.sample(frac=1, random_state=1), metric="time")
        assert shuffled.to_json() == result.to_json()
