"""`ppw.fit_runs`: parameters and standard errors of every curve."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from made_up import answered, only, sweep

import ppw
from ppw.errors import PpwError

RUNS = sweep()


def fit_runs(runs=RUNS, **options):
    return answered(ppw.fit_runs, runs, **options)


def values(result, **key):
    rows = result.to_frame()
    for column, value in key.items():
        rows = rows[rows[column] == value]
    return dict(zip(rows["parameter"], rows["value"], strict=True))


def test_parameters_without_noise_are_those_the_runs_were_made_with():
    result = fit_runs(sweep(noise=0))
    assert values(result, workload="sort", metric="time") == pytest.approx(
        {"t_fixed_s": 9.0, "work_cycles": 60e9}
    )
    assert values(result, workload="grep", metric="power") == pytest.approx(
        {"p0_w": 20.0, "slope_w_per_hz": 15e-9}
    )
    assert values(result, workload="wc", metric="cpi") == pytest.approx(
        {"cpi_core": 90e9 / 5e10, "stall_s_per_instruction": 6.0 / 5e10}
    )


def test_values_and_errors_against_statsmodels():
    from statsmodels.api import OLS

    runs = RUNS[RUNS["workload"] == "sort"]
    rows = fit_runs(runs, metric="power").to_frame()
    design = np.column_stack([np.ones(len(runs)), runs["freq_ghz"]])
    oracle = OLS(runs["power_w"].to_numpy(), design).fit()
    scale = np.array([1, 1e-9])
    np.testing.assert_allclose(rows["value"], oracle.params * scale, rtol=1e-10)
    np.testing.assert_allclose(rows["standard_error"], oracle.bse * scale, rtol=1e-10)
    assert set(rows["points"]) == {8}
    assert set(rows["degrees_of_freedom"]) == {6}


def test_a_parameter_held_at_its_bound():
    fast = RUNS.assign(time_s=RUNS["freq_ghz"] ** -1.5)
    result = fit_runs(fast, metric="time")
    held = result.to_frame().query("held")
    assert set(held["parameter"]) == {"t_fixed_s"}
    assert (held["value"] == 0).all()
    assert held["standard_error"].isna().all()
    assert only(result.caveats, "the form 'unbounded' lifts it").startswith("time (3 of 3 groups)")
    assert "held at 0" in result.summary()
    lifted = fit_runs(fast, metric="time", form="unbounded")
    assert not lifted.to_frame()["held"].any()
    assert lifted.caveats == ()


def test_two_frequencies_leave_no_standard_error():
    two = sweep(steps=(1.2, 2.4), repeats=1)
    frame = fit_runs(two, metric="time").to_frame()
    assert frame["standard_error"].isna().all()
    assert (frame["degrees_of_freedom"] == 0).all()


@pytest.mark.parametrize(
    ("options", "equation"),
    [
        ({"metric": "time"}, "T(f) = t_fixed + w/f"),
        ({"metric": "cpi"}, "CPI(f) = cpi_core + m·f"),
        ({"metric": "cpi", "form": "reciprocal"}, "1/CPI(f) = c − k/f"),
        ({"metric": "power"}, "P(f) = P0 + s·f"),
        ({"metric": "power", "power_form": "cmos"}, "P(f) = P0 + c·(f/GHz)^γ"),
        (
            {
                "metric": "power",
                "power_form": "cmos",
                "voltages": {1.2e9: 0.9, 2.4e9: 1.1},
            },
            "P(f) = P0 + c·(f/GHz)·V(f)²",
        ),
        ({"metric": "perf_per_watt", "via": "ratio"}, "1/perf_per_watt(f) = e_fixed + e_clock/f"),
    ],
)
def test_the_law_is_named(options, equation):
    assert set(fit_runs(**options).to_frame()["equation"]) == {equation}
    assert equation in fit_runs(**options).summary()


def test_a_product_gives_the_parameters_of_its_factors():
    assert set(fit_runs(metric="energy").to_frame()["metric"]) == {"time", "power"}


def test_groups_left_out_are_said():
    short = RUNS[(RUNS["workload"] != "grep") | (RUNS["freq_ghz"] == 1.2)]
    result = fit_runs(short, metric="time")
    assert set(result.to_frame()["workload"]) == {"sort", "wc"}
    assert only(result.caveats, "1 of 3 groups left out: only one distinct frequency")
    with pytest.raises(PpwError, match="only one distinct frequency in every group"):
        ppw.fit_runs(RUNS[RUNS["freq_ghz"] == 1.2])


def test_json_comes_back():
    for result in (fit_runs(), fit_runs(sweep(steps=(1.2, 2.4), repeats=1))):
        again = ppw.FittedParameters.from_json(result.to_json())
        assert again.to_json() == result.to_json()
        assert again.summary() == result.summary()
    document = json.loads(result.to_json())
    assert (document["schema_version"], document["kind"]) == (1, "parameters")
    with pytest.raises(PpwError, match="lacks 'parameters'"):
        ppw.FittedParameters.from_json('{"schema_version": 1, "kind": "parameters"}')


def test_summary_says_what_it_cut():
    many = pd.concat([sweep(host=f"node{i}", seed=i) for i in range(11)])
    assert "… 6 more rows" in fit_runs(many, metric="time").summary()


def test_order_of_the_rows_changes_no_digit():
    shuffled = RUNS.sample(frac=1, random_state=1)
    assert fit_runs(shuffled).to_json() == fit_runs().to_json()
