"""The registry of metrics: where each comes from, what carries it, what it is called."""

from __future__ import annotations

import typing

import numpy as np
import pandas as pd
import pytest

from measurements.schema import COLUMNS
from ppw.cli.options import METRIC_NAMES
from ppw.errors import PpwError, UnknownColumnError
from ppw.metrics import (
    FORMS,
    METRICS,
    PERFORMANCE,
    POWER_FORMS,
    Form,
    PowerForm,
    answerable,
    columns_for,
    known_metrics,
    model_for,
    needed_columns,
    values,
)
from ppw.plots import _LABELS

RUNS = pd.DataFrame(
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


@pytest.mark.parametrize("metric", [*METRICS.values(), PERFORMANCE], ids=lambda m: m.name)
def test_every_metric_comes_from_columns_of_the_runs_table(metric):
    for way in metric.columns:
        assert set(way) <= set(COLUMNS)
    fitted = metric.factors or {metric.name: 1}
    for name in fitted:
        assert model_for(name).equation


def test_names_are_the_same_everywhere():
    assert tuple(METRICS) == METRIC_NAMES
    assert set(METRICS) <= set(_LABELS)
    assert typing.get_args(Form) == FORMS
    assert typing.get_args(PowerForm) == POWER_FORMS


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("time", [10, 5]),
        ("cpi", [1.5, 2]),
        ("power", [20, 30]),
        ("energy", [210, 160]),
        ("throughput", [100, np.nan]),
        ("perf_per_watt", [5, 1 / 150]),
        ("perf_per_dollar", [0.2, 1 / 2500]),
    ],
)
def test_values(metric, expected):
    np.testing.assert_allclose(values(METRICS[metric], RUNS), expected, rtol=1e-14)


def test_values_from_second_best_columns():
    runs = RUNS.drop(columns="power_w")
    np.testing.assert_allclose(values(METRICS["power"], runs), [21, 32])
    runs = RUNS.drop(columns="energy_j")
    np.testing.assert_allclose(values(METRICS["energy"], runs), [200, 150])
    np.testing.assert_allclose(values(METRICS["cpi"], RUNS.assign(cpi=[3.0, 4.0])), [3, 4])


def test_a_column_that_is_all_missing_is_not_there():
    runs = RUNS.assign(power_w=np.nan)
    assert columns_for(METRICS["power"], runs) == ("energy_j", "time_s")
    assert columns_for(METRICS["throughput"], RUNS.assign(throughput_ops_s=np.nan)) is None


def test_answerable_and_needed():
    runs = pd.DataFrame({"freq_hz": [1e9], "time_s": [1.0], "energy_j": [3.0]})
    found = answerable(runs)
    assert [m.name for m in found] == ["time", "power", "energy", "perf_per_watt"]
    assert needed_columns(found, runs) == ["freq_hz", "time_s", "energy_j"]
    with pytest.raises(UnknownColumnError, match="nothing to project: no time_s"):
        answerable(pd.DataFrame({"freq_hz": [1e9]}))


TIMED, WATTS = {"time_s": [1.0]}, {"power_w": [3.0]}


@pytest.mark.parametrize(
    ("metric", "columns", "said"),
    [
        (
            "perf_per_watt",
            TIMED,
            "needs power_w (or energy_j): this table has time_s but no watts: measure it too, or "
            "use --map power_w=COLUMN",
        ),
        ("energy", TIMED, "needs energy_j (or power_w): this table has time_s but no watts: "),
        ("power", TIMED, "needs power_w (or energy_j): this table has time_s but no watts: "),
        ("energy", WATTS, "needs time_s: this table has power_w but no time_s: "),
        ("perf_per_watt", {"energy_j": [3.0]}, "needs time_s: this table has energy_j but no time"),
        ("perf_per_watt", {"cpi": [1.0]}, "needs throughput_ops_s and power_w (or time_s and "),
        ("cpi", {"cycles": [2.0]}, "needs cpi (or instructions): this table has cycles but no cpi"),
        ("perf_per_dollar", TIMED, "needs price: this table has time_s but no price: "),
        (
            "power",
            {**TIMED, "power_source": ["rapl"], "powerw": [3.0]},
            "but no watts (did you mean 'powerw'?): ",
        ),
        ("power", {**TIMED, "power_source": ["rapl"]}, "but no watts: "),
    ],
)
def test_what_a_metric_needs_and_what_is_missing(metric, columns, said):
    runs = pd.DataFrame({"freq_hz": [1e9], **columns})
    with pytest.raises(UnknownColumnError) as refused:
        needed_columns([METRICS[metric]], runs)
    assert str(refused.value).startswith(f"runs: {metric} needs ")
    assert said in str(refused.value)


def test_a_metric_of_one_column_needs_that_column():
    runs = pd.DataFrame({"freq_hz": [1e9], **TIMED})
    assert needed_columns([METRICS["throughput"]], runs) == ["freq_hz", "throughput_ops_s"]
    assert needed_columns([METRICS["cpi"]], runs) == ["freq_hz", "cpi"]


def test_known_metrics():
    assert [m.name for m in known_metrics(["power", "time", "power"])] == ["power", "time"]
    assert [m.name for m in known_metrics("cpi")] == ["cpi"]
    with pytest.raises(UnknownColumnError, match=r"no metric 'Time' \(did you mean 'time'\?\)"):
        known_metrics(["Time"])
    with pytest.raises(PpwError, match="no metric was given"):
        known_metrics([])


@pytest.mark.parametrize("name", ["time", "cpi", "throughput", "performance", "perf_per_dollar"])
def test_forms(name):
    bounded, free, reciprocal = (model_for(name, form=form) for form in FORMS)
    assert (bounded.nonnegative, free.nonnegative, reciprocal.nonnegative) == (True, False, False)
    assert bounded.equation == free.equation != reciprocal.equation


def test_unknown_forms():
    with pytest.raises(PpwError, match="form 'x' is not one of amdahl, unbounded, reciprocal"):
        model_for("time", form="x")
    with pytest.raises(PpwError, match="power form 'x' is not one of linear, cmos"):
        model_for("time", power_form="x")
