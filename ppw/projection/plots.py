"""Plots of results: axes in, axes out; the axes carry units."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.regression.models import Prediction
from ppw.errors import PpwError
from ppw.projection.answers import Answers, Cells
from ppw.projection.curves import FitOptions
from ppw.results.axes import BAND, BEST, CURVE, MEASURED, PROJECTED, new_axes
from ppw.results.result import rows_of
from ppw.results.text import plot_label, shown, shown_name
from ppw.runs.metrics import METRICS, Metric, values
from ppw.runs.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from ppw.projection.parameters import FittedParameters
    from ppw.projection.points import Projection
    from ppw.projection.runs import RunsProjection
    from ppw.projection.validation import Validation
    from ppw.runs.prepare import Prepared

_STEPS = 200
# A posterior costs more than a line, and its curves are as smooth.
_CURVE_STEPS = 33
_LABELS = {
    "time": "time (s)",
    "cpi": "cycles per instruction",
    "throughput": "throughput (1/s)",
    "power": "power (W)",
    "energy": "energy (J a run)",
    "perf_per_watt": "performance per watt (1/J)",
    "perf_per_dollar": "performance per price (1/s)",
}


def plot_curve(
    ax: Axes, metric: Metric, measured: pd.DataFrame, curve: pd.DataFrame, target_hz: float
) -> Axes:
    """Draw measured points, the fitted curve with its interval band, and the projection.

    ``measured`` has ``freq_hz`` and ``value``; ``curve`` has ``freq_hz``, ``value``, ``lower``
    and ``upper``, and reaches ``target_hz``.
    """
    ghz = curve["freq_hz"] / 1e9
    band = curve["lower"].notna()
    if band.any():
        ax.fill_between(
            ghz[band], curve["lower"][band], curve["upper"][band], color=BAND, label="interval"
        )
    ax.plot(ghz, curve["value"], color=CURVE, label="fitted")
    ax.plot(
        measured["freq_hz"] / 1e9, measured["value"], "o", color=MEASURED, ms=4, label="measured"
    )
    at = float(np.interp(target_hz, curve["freq_hz"], curve["value"]))
    ax.plot(target_hz / 1e9, at, "D", color=PROJECTED, ms=6, label="projected")
    ax.set_xlabel("core frequency (GHz)")
    ax.set_ylabel(_LABELS.get(metric.name, metric.name))
    ax.set_ylim(0, 1.06 * ax.get_ylim()[1])
    return ax


def mark_best(ax: Axes, curve: pd.DataFrame) -> float:
    """Mark the highest point of a curve among the frequencies drawn; returns its frequency (Hz)."""
    at = int(np.nanargmax(curve["value"].to_numpy()))
    best, value = float(curve["freq_hz"].iloc[at]), float(curve["value"].iloc[at])
    ax.plot(best / 1e9, value, "^", color=BEST, ms=8, label=f"best: {shown(best, 'Hz')}")
    return best


def group_curves(
    prepared: Prepared,
    options: FitOptions,
    metric: Metric,
    groups: Sequence[int],
    to_hz: float,
    level: float,
) -> dict[int, tuple[pd.DataFrame, pd.DataFrame]]:
    """Measured points and curve of some groups, each over its frequencies and ``to_hz``."""
    # Misses to be calibrated with are known at the frequency asked for only.
    drawn = replace(options, interval="bayes") if options.interval == "conformal" else options
    answers = Answers.of(replace(prepared, metrics=[metric]), drawn)
    steps = _CURVE_STEPS if drawn.has_posterior(metric) else _STEPS
    frequency, measured = prepared.runs["freq_hz"].to_numpy(), values(metric, prepared.runs)
    points = {
        g: pd.DataFrame({"freq_hz": frequency[rows], "value": measured[rows]}).dropna()
        for g in groups
        for rows in [prepared.groups.codes == g]
    }
    at = {
        g: np.linspace(min(p["freq_hz"].min(), to_hz), max(p["freq_hz"].max(), to_hz), steps)
        for g, p in points.items()
    }
    asked = Cells(
        np.repeat(groups, steps), np.concatenate([*at.values()]), np.ones(steps * len(at))
    )
    made = answers.at(metric, asked, level).prediction
    return {
        g: (
            points[g],
            curve_frame(at[g], Prediction._make(part[i * steps :][:steps] for part in made)),
        )
        for i, g in enumerate(groups)
    }


def curve_frame(at: np.ndarray[Any, np.dtype[np.float64]], p: Prediction) -> pd.DataFrame:
    """Frame of a curve as `plot_curve` takes it; an unbounded end leaves the band open."""
    upper = np.where(np.isfinite(p.upper), p.upper, np.nan)
    lower = np.where(np.isnan(upper), np.nan, p.lower)
    return pd.DataFrame({"freq_hz": at, "value": p.value, "lower": lower, "upper": upper})


def plot_projection(result: Projection, ax: Axes | None = None) -> Axes:
    """Draw the CPI of a `Projection`."""
    runs = pd.DataFrame(result.cpi_points, columns=["freq_hz", "cpi"])
    prepared = prepare(runs, by=[], metric="cpi")
    options = FitOptions(form=result.form, interval=result.interval)
    metric, at = METRICS["cpi"], result.freq_hz
    points, curve = group_curves(prepared, options, metric, [0], at, result.level)[0]
    axes = plot_curve(new_axes(ax), METRICS["cpi"], points, curve, result.freq_hz)
    axes.legend(frameon=False)
    return axes


def plot_runs_projection(result: RunsProjection, ax: Axes | None = None) -> Axes:
    """Draw the first metric of up to ten groups, measured and projected."""
    if result.prepared is None:
        raise PpwError("a projection read from JSON has no runs to draw: project them again")
    axes, metric = new_axes(ax), result.prepared.metrics[0]
    target = float(result.table["freq_hz"].max())
    labels = drawable_groups(result.prepared, metric, 10)
    curves = group_curves(result.prepared, result.options, metric, [*labels], target, result.level)
    for group, label in labels.items():
        points, curve = curves[group]
        (line,) = axes.plot(curve["freq_hz"] / 1e9, curve["value"], label=plot_label(label))
        axes.plot(points["freq_hz"] / 1e9, points["value"], "o", ms=4, color=line.get_color())
    axes.set_xlabel("core frequency (GHz)")
    axes.set_ylabel(_LABELS[metric.name])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")
    return axes


def plot_validation(result: Validation, ax: Axes | None = None) -> Axes:
    """Draw projected over measured against each group's measured value, metric by metric."""
    axes = new_axes(ax)
    axes.axhspan(0.9, 1.1, color="#eef2f6", label="within 10 %")
    axes.axhline(1.0, color=MEASURED, lw=0.8)
    names = list(result.summary_by_metric)
    rng = np.random.default_rng(0)
    for place, name in enumerate(names):
        rows = result.groups[result.groups["metric"] == name]
        ratio = (rows["projected"] / rows["measured"]).dropna().to_numpy()
        if not ratio.size:
            continue
        spread = place + rng.uniform(-0.28, 0.28, len(ratio))
        axes.plot(spread, ratio, ".", color=CURVE, alpha=0.6)
        axes.hlines(np.median(ratio), place - 0.35, place + 0.35, color=PROJECTED, lw=2)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("projected / measured")
    axes.legend(frameon=False)
    return axes


def plot_projected_against_measured(ax: Axes, rows: pd.DataFrame, metric: str) -> Axes:
    """Draw one metric of a validation, projected (with intervals) against measured."""
    x, y = rows["measured"].to_numpy(), rows["projected"].to_numpy()
    ends = np.array([np.nanmin([x, y]) * 0.85, np.nanmax([x, y]) * 1.15])
    ax.fill_between(ends, ends * 0.9, ends * 1.1, color="#eef2f6", label="within 10 %")
    ax.plot(ends, ends, color=MEASURED, lw=0.8)
    with_interval = rows["lower"].notna() & np.isfinite(rows["upper"])
    inside = rows[with_interval]
    ax.vlines(inside["measured"], inside["lower"], inside["upper"], color=BAND, lw=2)
    ax.plot(x, y, ".", color=CURVE, alpha=0.7)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    if ends[1] < 30 * ends[0]:
        _name_few_ticks(ax, ends)
    ax.set_xlabel(f"measured {_LABELS.get(metric, metric)}")
    ax.set_ylabel("projected")
    ax.legend(frameon=False)
    return ax


def _name_few_ticks(ax: Axes, ends: np.ndarray) -> None:
    """Label logarithmic axes of about a decade by plain numbers that leave each other room."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    for axis in (ax.xaxis, ax.yaxis):
        few = MaxNLocator(4) if ends[1] < 5 * ends[0] else LogLocator(subs=(1.0, 2.0, 5.0))
        axis.set_major_locator(few)
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())


def plot_parameters(result: FittedParameters, ax: Axes | None = None) -> Axes:
    """Draw the parameters of each group, as shares of their median over the groups."""
    axes = new_axes(ax)
    names = list(dict.fromkeys(result.table["parameter"]))
    for place, name in enumerate(names):
        value = result.table.loc[result.table["parameter"] == name, "value"].to_numpy()
        middle = np.median(value)
        if middle:
            axes.plot(np.full(len(value), place), value / middle, ".", color=CURVE, alpha=0.5)
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
    axes.set_ylabel("share of the median")
    return axes


def drawable_groups(prepared: Prepared, metric: Metric, most: int) -> dict[int, str]:
    """Find the first groups that have a curve, and label them by what tells them apart."""
    frame = pd.DataFrame(
        {
            "group": prepared.groups.codes,
            "freq_hz": prepared.runs["freq_hz"].to_numpy(),
            "value": values(metric, prepared.runs),
        }
    ).dropna()
    steps = frame.groupby("group")["freq_hz"].nunique()
    chosen = steps.index[steps > 1].to_numpy(dtype=np.int64)[:most]
    keys = prepared.groups.keys
    # What tells all groups apart, not only those drawn; a lone group is named in full.
    telling = [c for c in keys.columns if not keys[c].duplicated().iloc[1:].all()]
    names = telling if telling and len(keys) > 1 else list(keys.columns)
    labels = [_label(row, names) for row in rows_of(keys.take(chosen))]
    return dict(zip(chosen.tolist(), labels, strict=True))


def _label(row: Mapping[Any, Any], columns: list[str]) -> str:
    parts = [
        f"{c} {shown(row[c])}" if isinstance(row[c], float) else shown_name(row[c]) for c in columns
    ]
    return ", ".join(parts) or "all runs"
