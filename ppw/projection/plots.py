"""Plots of results: axes in, axes out; the axes carry units."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ppw.projection.answers import Answers, FitOptions, TargetCells
from ppw.results.axes import BAND, CURVE, MEASURED, PROJECTED, Axes
from ppw.results.result import rows_of
from ppw.results.text import shown, shown_name
from ppw.runs.metrics import Metric, values
from ppw.runs.prepare import PreparedRuns

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
    """Draw measured points, the fitted curve with its interval band, and the projection."""
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


def group_curves(
    prepared: PreparedRuns,
    options: FitOptions,
    metric: Metric,
    groups: Sequence[int],
    to_hz: float,
    level: float,
    answers: Answers | None = None,
) -> dict[int, tuple[pd.DataFrame, pd.DataFrame]]:
    """Measured points and fitted curve of each group, over its frequencies and ``to_hz``.

    ``answers`` are those of a page, whose metrics share time and power.
    """
    drawn = options.for_curves()
    answers = answers or Answers.of(replace(prepared, metrics=[metric]), drawn)
    steps = _CURVE_STEPS if drawn.has_posterior(drawn.fit_powers(metric)) else _STEPS
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
    asked = TargetCells(
        np.repeat(groups, steps), np.concatenate([*at.values()]), np.ones(steps * len(at))
    )
    made = answers.at(metric, asked, level).prediction
    # An unbounded end leaves the band open.
    upper = np.where(np.isfinite(made.upper), made.upper, np.nan)
    ends = {"lower": np.where(np.isnan(upper), np.nan, made.lower), "upper": upper}
    curve = pd.DataFrame({"freq_hz": asked.frequency, "value": made.value, **ends})
    each = (curve[i * steps :][:steps].reset_index(drop=True) for i in range(len(groups)))
    return {g: (points[g], part) for g, part in zip(groups, each, strict=True)}


def drawable_groups(prepared: PreparedRuns, metric: Metric, most: int) -> dict[int, str]:
    """First groups measured at two frequencies or more, each with a label."""
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
    labels = [_group_label(row, names) for row in rows_of(keys.take(chosen))]
    return dict(zip(chosen.tolist(), labels, strict=True))


def _group_label(row: Mapping[Any, Any], columns: list[str]) -> str:
    """Label a group by its values in some columns; "all runs" without columns."""
    parts = [
        f"{c} {shown(row[c])}" if isinstance(row[c], float) else shown_name(row[c]) for c in columns
    ]
    return ", ".join(parts) or "all runs"
