"""Results as pages: the verdict in sentences, the figures and tables behind it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ppw.projection.plots import drawable_groups, group_curves, mark_best, plot_curve
from ppw.projection.runs import WIDTH_FROM
from ppw.projection.sliders import projection_sliders
from ppw.projection.validation import plot_projected_against_measured
from ppw.results.page import MOST_ROWS, Figure, Page, Table, draw
from ppw.results.text import shown, shown_interval
from ppw.runs.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    from ppw.projection.parameters import FittedParameters
    from ppw.projection.path_length import PathLengths
    from ppw.projection.runs import RunsProjection
    from ppw.projection.time import TimeProjection
    from ppw.projection.validation import Validation
    from ppw.runs.metrics import Metric


def validation_page(result: Validation) -> Page:
    """Report of `ppw.validate`."""
    figures = [Figure(draw(result.plot), "Projected over measured; bars are medians.")]
    answered = [name for name, s in result.summary_by_metric.items() if s["n"]]
    figures += [_metric_figure(result, name) for name in answered]
    return Page.of(
        result,
        title="Projected against measured",
        subtitle=result.scheme,
        verdict=_validation_verdict(result),
        figures=figures,
    )


def parameters_page(result: FittedParameters) -> Page:
    """Report of `ppw.fit_runs`."""
    return Page.of(result, title="Fitted curves")


def _metric_figure(result: Validation, metric: str) -> Figure:
    rows = result.groups[result.groups["metric"] == metric]
    words = metric.replace("_", " ")
    return Figure(
        draw(lambda ax: plot_projected_against_measured(ax, rows, metric)),
        f"{words}: projected against measured, one point a group, with intervals where there are "
        "any.",
    )


def _validation_verdict(result: Validation) -> list[str]:
    sentences = []
    for name, s in result.summary_by_metric.items():
        if not s["n"]:
            sentences.append(f"{name}: no projection could be made.")
            continue
        naive = s["baselines"]["inverse_frequency"]
        sentences.append(
            f"{name.replace('_', ' ')}: half of {s['n']} projections are within "
            f"{s['median_ape']:.2g} % of the measurement and nine in ten within "
            f"{s['p90_ape']:.2g} % (scaling by the clock alone: {naive['median_ape']:.2g} and "
            f"{naive['p90_ape']:.2g} %). {_coverage(s['coverage'], s['with_interval'], result)}"
        )
    return sentences


def _coverage(coverage: float | None, count: int, result: Validation) -> str:
    if coverage is None:
        return "There are no intervals."
    return f"The {result.level:.0%} intervals cover {coverage:.0%} of {count} measurements."


# The page of `ppw.project_runs`: what a frequency brings, the curves, and sliders for the rest.


_MOST_GROUPS = 4
# By measurement, the best frequency of a curve may be this little short of the best measured.
_CLEARLY_WORSE = 0.95


def projection_page(result: RunsProjection) -> Page:
    """Report of `ppw.project_runs`."""
    targets = ", ".join(shown(f, "Hz") for f in dict.fromkeys(result.table["freq_hz"]))
    figures, best = _curve_figures(result)
    projections, *left_out = result.printed_tables(MOST_ROWS)
    return Page.of(
        result,
        title=f"Projected to {targets}",
        subtitle=str(result.prepared.runs.attrs.get("source", "")) if result.prepared else "",
        verdict=[*_projection_verdict(result), *best],
        figures=figures,
        tables=[projections, *_budget_tables(result), *left_out],
        sliders=projection_sliders(result),
    )


def _projection_verdict(result: RunsProjection) -> list[str]:
    """Say what happens between the highest measured frequency and the one asked for."""
    if result.prepared is None:
        return []
    measured = result.prepared.measured_means()
    top = measured.sort_values("freq_hz").groupby(list(result.by) or (lambda _: 0), dropna=False)
    last = top.last().reset_index()
    sentences = []
    for frequency in dict.fromkeys(result.table["freq_hz"]):
        rows = result.table[result.table["freq_hz"] == frequency]
        sentences.append(_headline(result, rows, last))
        for metric in dict.fromkeys(rows["metric"]):
            chosen = rows[rows["metric"] == metric]
            sentences.append(_metric_verdict(result, metric, chosen, last))
    return sentences


def _headline(result: RunsProjection, rows: pd.DataFrame, last: pd.DataFrame) -> str:
    changes = []
    for metric in dict.fromkeys(rows["metric"]):
        both = _beside(rows[rows["metric"] == metric], last, result.by)
        change = 100 * (both["projected"] / both[metric] - 1).median()
        if np.isfinite(change):
            # No change is +0.0, never -0.0.
            changes.append(f"{metric.replace('_', ' ')} by {round(change, 1) + 0.0:+.1f} %")
    if not changes:
        return "No projection could be made."
    one = not rows.duplicated("metric").any()
    median = "" if one else " (median over the groups)"
    target = shown(float(rows["freq_hz"].iloc[0]), "Hz")
    return (
        f"Going from the highest measured frequency to {target} is projected to change "
        f"{', '.join(changes)}{median}."
    )


def _metric_verdict(
    result: RunsProjection, metric: str, rows: pd.DataFrame, last: pd.DataFrame
) -> str:
    at, unit = float(rows["freq_hz"].iloc[0]), METRICS[metric].unit
    words = metric.replace("_", " ")
    both = _beside(rows, last, result.by)
    if len(both) == 1:
        row = both.iloc[0]
        ends = shown_interval(row["projected"], row["lower"], row["upper"], unit)
        interval = "no interval" if ends == "–" else f"{result.level:.0%} interval {ends}"
        return (
            f"{words} at {shown(at, 'Hz')}: {shown(row['projected'], unit)} ({interval}), against "
            f"{shown(row[metric], unit)} measured at {shown(row['freq_hz_last'], 'Hz')}."
        )
    ratio = (both["projected"] / both[metric]).dropna()
    if ratio.empty:
        return f"{words} at {shown(at, 'Hz')}: no projection could be made."
    low, middle, high = np.percentile(ratio, [10, 50, 90])
    return (
        f"{words} at {shown(at, 'Hz')}, over {len(ratio)} groups: {middle:.3g} times what was "
        f"measured at each group's highest frequency (median; {low:.3g} to {high:.3g} for the "
        "middle 80 %)."
    )


def _beside(rows: pd.DataFrame, last: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Projections beside what their group measured last, at ``freq_hz_last``."""
    if not by:
        return rows.merge(last, how="cross", suffixes=("", "_last"))
    return rows.merge(last, on=list(by), suffixes=("", "_last"))


def _curve_figures(result: RunsProjection) -> tuple[list[Figure], list[str]]:
    """Curves of the first groups, metric by metric; and where perf/W is best."""
    if result.prepared is None:
        return [], []
    target = float(result.table["freq_hz"].max())
    figures, verdict = [], []
    for metric in result.prepared.metrics:
        chosen = drawable_groups(result.prepared, metric, _MOST_GROUPS)
        curves = group_curves(
            result.prepared, result.options, metric, [*chosen], target, result.level
        )
        for group, label in chosen.items():
            points, curve = curves[group]
            curve_of = (metric, points, curve, target)
            words = metric.name.replace("_", " ")
            caption = f"{words}: {label}{_of_how_many(chosen, result)}"
            figures.append(Figure(draw(partial(_plot_group, *curve_of)), caption))
            if metric.name == "perf_per_watt" and curve["value"].notna().any():
                verdict.append(_best_sentence(label, points, curve))
    return figures, verdict


def _plot_group(
    metric: Metric, points: pd.DataFrame, curve: pd.DataFrame, target: float, ax: Axes
) -> None:
    plot_curve(ax, metric, points, curve, target)
    efficiency = metric.name == "perf_per_watt" and curve["value"].notna().any()
    if efficiency and _contradicting_best(points, curve) is None:
        mark_best(ax, curve)
    ax.legend(frameon=False)


def _of_how_many(drawn: dict[int, str], result: RunsProjection) -> str:
    total = len(result.prepared.groups) if result.prepared else len(drawn)
    return f" (the first {len(drawn)} of {total} groups are drawn)" if total > len(drawn) else ""


def _contradicting_best(points: pd.DataFrame, curve: pd.DataFrame) -> float | None:
    """Frequency measured best, where the best of the curve is clearly worse by measurement."""
    means = points.groupby("freq_hz")["value"].mean()
    at, measured = means.index.to_numpy(dtype=np.float64), means.to_numpy()
    # Beyond the measurements the nearest of them speaks.
    near = measured[np.argmin(np.abs(at - _best_hz(curve)))]
    best = float(at[np.argmax(measured)])
    return best if near < _CLEARLY_WORSE * measured.max() else None


def _best_hz(curve: pd.DataFrame) -> float:
    return float(curve["freq_hz"].iloc[int(np.nanargmax(curve["value"].to_numpy()))])


def _best_sentence(label: str, points: pd.DataFrame, curve: pd.DataFrame) -> str:
    best = _best_hz(curve)
    measured_best = _contradicting_best(points, curve)
    if measured_best is not None:
        return (
            f"Performance per watt of {label} was measured best at {shown(measured_best, 'Hz')}; "
            "the fitted curves do not follow it there, so no best frequency is marked."
        )
    ends = {float(curve["freq_hz"].iloc[0]): "lowest", float(curve["freq_hz"].iloc[-1]): "highest"}
    where = f", the {ends[best]} frequency drawn" if best in ends else ""
    return f"Performance per watt of {label} is best at {shown(best, 'Hz')}{where}."


def _budget_tables(result: RunsProjection) -> list[Table]:
    """Where the intervals' width comes from: medians over the groups, metric by metric."""
    columns = [c for c in result.table if str(c).startswith(WIDTH_FROM)]
    if not columns:
        return []
    middle = result.table.groupby(["metric", "freq_hz"], sort=False)[columns].median()
    rows = [
        [str(metric), shown(at, "Hz"), *("–" if np.isnan(v) else f"{v:.0%}" for v in shares)]
        for (metric, at), shares in zip(middle.index, middle.to_numpy(), strict=True)
    ]
    names = [str(c).removeprefix(WIDTH_FROM).replace("_", " ") for c in columns]
    note = (
        "Shares of the variance of the logarithm, medians over the groups. fit: which curve of the "
        "family it is; form: how far the family may be off; repeats: noise of the run asked for."
    )
    return [Table("Where the width comes from", ["metric", "frequency", *names], rows, 2, note)]


# The page of `ppw.project_data_size` and `ppw.project_core_count`.


def time_projection_page(result: TimeProjection) -> Page:
    """Report of a projection to another data size or core count."""
    caption = "Fitted without runs at the target; the bar is the interval, the point their mean."
    return Page.of(result, title=result.title(), figures=[Figure(draw(result.plot), caption)])


# The report page of path lengths, and its plot.


def path_length_page(result: PathLengths) -> Page:
    """Report of `ppw.path_lengths`."""
    caption = "Instructions per byte as counted, and the curves fitted to them."
    return Page.of(
        result,
        title="Path length",
        subtitle="instructions per byte",
        verdict=[*result.verdict(), *result.flat_sentences()] or ["nothing could be fitted"],
        figures=[Figure(draw(result.plot), caption)],
    )


PAGES = {
    "validation": validation_page,
    "parameters": parameters_page,
    "runs_projection": projection_page,
    "core-count-projection": time_projection_page,
    "data-size-projection": time_projection_page,
    "path_lengths": path_length_page,
}
