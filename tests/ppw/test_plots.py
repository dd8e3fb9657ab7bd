"""Plots: axes in, axes out; what is drawn is what was measured and projected."""

import io
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from made_up import answered, any_interval, sweep

import ppw
from ppw.errors import PpwError
from ppw.projection.answers import FitOptions
from ppw.projection.plots import drawable_groups, group_curves
from ppw.runs.metrics import METRICS
from ppw.runs.prepare import prepare

RUNS = sweep(noise=0.02)


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def named(axes):
    return [text.get_text() for text in axes.texts]


def line(axes, label):
    (found,) = [x for x in axes.lines if x.get_label() == label]
    return found.get_xydata()


@any_interval
@pytest.mark.parametrize("freq", [0.8e9, 1.5e9, 3.0e9])
def test_points_and_curve_are_drawn_and_the_answer_on_either_side(freq, interval):
    points = [(1.2e9, 1.6), (2.0e9, 2.0)]
    answer = answered(ppw.project_points, points, freq=freq, interval=interval)
    axes = answer.plot()
    band = ["interval"] * (interval == "bayes")
    assert labels(axes) == [*band, "fitted", "measured", "projected"]
    np.testing.assert_allclose(line(axes, "measured"), [(1.2, 1.6), (2.0, 2.0)])
    np.testing.assert_allclose(line(axes, "projected"), [(freq / 1e9, float(answer.cpi))])
    curve = line(axes, "fitted")
    assert curve[0, 0] <= freq / 1e9 <= curve[-1, 0]
    assert axes.get_xlabel() == "core frequency (GHz)"
    assert axes.get_ylabel() == "cycles per instruction"


@pytest.mark.parametrize(
    ("interval", "freq"), [("bayes", 3e9), ("conformal", 2.4e9), ("t", 3e9), ("none", 3e9)]
)
def test_runs_projection_draws_up_to_ten_groups(interval, freq):
    many = pd.concat([sweep(host=f"node{i:02}", seed=i) for i in range(4)])
    axes = answered(ppw.project, many, freq=freq, metric="time", interval=interval).plot()
    assert len(axes.texts) == 10
    assert "node00, grep" in named(axes)
    assert axes.get_ylabel() == "time (s)"


def test_runs_projection_draws_the_answers_of_the_metric_asked_for():
    result = answered(ppw.project, RUNS, freq=["2.2GHz", "3GHz"], metric=["time", "power"])
    axes = result.plot(metric="power")
    projected = [x.get_xydata() for x in axes.lines if x.get_marker() == "D"]
    power = result.table[result.table["metric"] == "power"]
    expected = [part[["freq_hz", "projected"]] for _, part in power.groupby("workload", sort=False)]
    for found, (ghz, value) in zip(projected, (e.to_numpy().T for e in expected), strict=True):
        np.testing.assert_allclose(found, np.column_stack([ghz / 1e9, value]), rtol=2e-3)
    heights = sorted(text.get_position()[1] for text in axes.texts)
    assert (np.diff(heights) >= 0.05 * axes.get_ylim()[1]).all()
    with pytest.raises(PpwError, match="metric 'cost' is not one of time, power"):
        result.plot(metric="cost")


def test_any_workload_name_is_drawn_as_it_is():
    names = [r"$\bad$", "$a^2$ and $b", "</text><script>", "a & b", "Ωm"]
    sort = RUNS[RUNS["workload"] == "sort"]
    runs = pd.concat(sort.assign(workload=name) for name in names)
    axes, sink = answered(ppw.project, runs, freq=3e9, metric="time").plot(), io.StringIO()
    axes.figure.savefig(sink, format="svg")
    assert {text.replace("\\$", "$") for text in named(axes)} == {*names}
    assert "<script>" not in sink.getvalue()


def test_validation_draws_a_point_a_projection_twice_alike():
    result = answered(ppw.validate, RUNS)
    first, again = (
        np.concatenate([x.get_ydata() for x in axes.lines if x.get_marker() == "."])
        for axes in (result.plot(), result.plot())
    )
    expected = result.groups["projected"] / result.groups["measured"]
    np.testing.assert_allclose(np.sort(first), np.sort(expected))
    np.testing.assert_array_equal(first, again)
    ticks = [t.get_text() for t in result.plot().get_xticklabels()]
    assert ticks == list(result.summary_by_metric)


def test_parameters_as_shares_of_their_median():
    for drawn in answered(ppw.fit, RUNS).plot().lines:
        assert np.median(drawn.get_ydata()) == pytest.approx(1)


def test_no_window_and_no_state_is_left_behind():
    before = dict(mpl.rcParams)
    answered(ppw.project, RUNS, freq=3e9).plot()
    assert dict(mpl.rcParams) == before
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


class TestCurve:
    prepared = prepare(RUNS, by=None, metric=["time", "perf_per_watt"])

    @any_interval
    def test_it_goes_from_the_lowest_frequency_to_the_target(self, interval):
        options = FitOptions(interval=interval)
        curves = group_curves(self.prepared, options, METRICS["time"], [1, 2], 3e9, 0.9)
        points, curve = curves[1]
        assert len(points) == 8
        assert (curve["freq_hz"].iloc[0], curve["freq_hz"].iloc[-1]) == (1.2e9, 3e9)
        asked = {"freq": 3e9, "metric": "time", "interval": interval}
        row = answered(ppw.project, RUNS, **asked).table.iloc[1]
        last = curve.iloc[-1]
        assert [last["value"], last["lower"], last["upper"]] == pytest.approx(
            [row["projected"], row["lower"], row["upper"]], rel=1e-9, nan_ok=True
        )

    def test_groups_without_a_curve_are_not_drawn(self):
        short = RUNS[(RUNS["workload"] != "grep") | (RUNS["freq_ghz"] == 1.2)]
        prepared = prepare(short, by=None, metric=["time"])
        assert drawable_groups(prepared, METRICS["time"], 9) == {1: "sort", 2: "wc"}
        assert drawable_groups(prepared, METRICS["time"], 1) == {1: "sort"}
