"""Results as pages: the verdict in sentences, the figures and tables behind it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ppw.projection.plots import drawable_groups, group_curves, mark_best, plot_curve
from ppw.projection.runs import WIDTH_FROM
from ppw.projection.sliders import projection_sliders
from ppw.projection.validation import plot_projected_against_measured
from ppw.results.page import MOST_ROWS, Figure, Page, Table, draw, rows_cut
from ppw.results.text import key_texts, shown, shown_interval
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
    from ppw.runs.quality import Quality


def validation_page(result: Validation) -> Page:
    """Report of `ppw.validate`."""
    figures = [Figure(draw(result.plot), "Projected over measured; bars are medians.")]
    answered = [name for name, s in result.summary_by_metric.items() if s["n"]]
    figures += [_metric_figure(result, name) for name in answered]
    return Page(
        title="Projected against measured",
        subtitle=f"{result.scheme}; input {result.input_digest}",
        verdict=_validation_verdict(result),
        figures=figures,
        tables=[_summary_table(result), _groups_table(result)],
        caveats=result.caveats,
        document=result.to_json(),
    )


def parameters_page(result: FittedParameters) -> Page:
    """Report of `ppw.fit_runs`."""
    laws = dict.fromkeys(zip(result.table["metric"], result.table["equation"], strict=True))
    header = [*result.by, "metric", "parameter", "value", "standard error", "degrees of freedom"]
    rows = [
        [
            *key_texts(result.by, row),
            row["metric"],
            row["parameter"],
            shown(row["value"]),
            "held at 0" if row["held"] else shown(row["standard_error"]),
            str(row["degrees_of_freedom"]),
        ]
        for row in result.table.head(MOST_ROWS).to_dict(orient="records")
    ]
    table = Table("Parameters", header, rows, len(result.by) + 2, rows_cut(len(result.table)))
    return Page(
        title="Fitted curves",
        subtitle=f"input {result.input_digest}",
        verdict=[f"{metric}: {equation}" for metric, equation in laws],
        figures=[],
        tables=[table],
        caveats=result.caveats,
        document=result.to_json(),
    )


def quality_page(result: Quality) -> Page:
    """Report of `ppw.check_quality`."""
    figures = (
        [Figure(draw(result.plot), "Rows that each check names.")] if len(result.table) else []
    )
    return Page(
        title="Rows that cannot be right",
        subtitle=f"input {result.input_digest}",
        verdict=[result.verdict(), *_remedies(result)],
        figures=figures,
        tables=_quality_tables(result),
        caveats=result.caveats,
        document=result.to_json(),
    )


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


def _summary_table(result: Validation) -> Table:
    header = ["metric", "n", "median", "p90", "mean", "max", "bias", "within 10 %", "coverage"]
    header += ["1/f: median", "1/f: p90", "unscaled: median", "unscaled: p90"]
    rows = []
    for name, s in result.summary_by_metric.items():
        if not s["n"]:
            rows.append([name, "0", *["–"] * 11])
            continue
        errors = [f"{s[k]:.2f}" for k in ("median_ape", "p90_ape", "mean_ape", "max_ape")]
        covered = "–" if s["coverage"] is None else f"{s['coverage']:.0%}"
        naive = [f"{b[k]:.2f}" for b in s["baselines"].values() for k in ("median_ape", "p90_ape")]
        rest = [f"{s['bias_pct']:+.2f}", f"{s['within_10pct']:.0%}", covered]
        rows.append([name, str(s["n"]), *errors, *rest, *naive])
    return Table(
        "Errors in percent",
        header,
        rows,
        1,
        "1/f: the clock is all that counts, so time scales with 1/f, throughput and power with f. "
        "unscaled: time does not change. Both from the nearest frequency learnt from.",
    )


def _remedies(result: Quality) -> list[str]:
    from ppw.runs.quality import CHECKS

    return [
        f"{name.replace('_', ' ')}, {count} row{'s' if count > 1 else ''}: "
        f"{CHECKS[name].meaning}. What to do: {CHECKS[name].remedy}."
        for name, count in result.counts.items()
        if count
    ]


def _quality_tables(result: Quality) -> list[Table]:
    made = [[name, str(count)] for name, count in result.counts.items()]
    made += [[name, "not made"] for name in result.not_made]
    lacks = "; ".join(f"{name} needs {columns}" for name, columns in result.not_made.items())
    tables = [Table("Checks", ["check", "suspect rows"], made, 1, lacks)]
    if len(result.table):
        header, cells = result.header(), result.cells(MOST_ROWS)
        note = rows_cut(len(result.table))
        tables.append(Table("Suspect rows", header, cells, len(header), note))
    return tables


def _groups_table(result: Validation) -> Table:
    header = [*result.by, "metric", "frequency", "projected", "measured", "error %"]
    header += ["interval", "covered"]
    ordered = result.groups.reindex(
        result.groups["error_pct"].abs().sort_values(ascending=False, kind="stable").index
    )
    rows = [
        [
            *key_texts(result.by, row),
            row["metric"],
            shown(row["freq_hz"], "Hz"),
            shown(row["projected"], row["unit"]),
            shown(row["measured"], row["unit"]),
            "–" if np.isnan(row["error_pct"]) else f"{row['error_pct']:+.2f}",
            shown_interval(row["projected"], row["lower"], row["upper"], row["unit"]),
            "–" if row["covered"] is None else ("yes" if row["covered"] else "no"),
        ]
        for row in ordered.head(MOST_ROWS).to_dict(orient="records")
    ]
    keys = len(result.by) + 1
    return Table("Groups, largest error first", header, rows, keys, rows_cut(len(ordered)))


# The page of `ppw.project_runs`: what a frequency brings, the curves, and sliders for the rest.


_MOST_GROUPS = 4
# By measurement, the best frequency of a curve may be this little short of the best measured.
_CLEARLY_WORSE = 0.95


def projection_page(result: RunsProjection) -> Page:
    """Report of `ppw.project_runs`."""
    targets = ", ".join(shown(f, "Hz") for f in dict.fromkeys(result.table["freq_hz"]))
    figures, best = _curve_figures(result)
    return Page(
        title=f"Projected to {targets}",
        subtitle=_source(result.prepared.runs if result.prepared else None, result.input_digest),
        verdict=[*_projection_verdict(result), *best],
        figures=figures,
        tables=[_projection_table(result), *_budget_tables(result), *_left_out_tables(result)],
        caveats=result.caveats,
        document=result.to_json(),
        sliders=projection_sliders(result),
    )


def _source(runs: pd.DataFrame | None, digest: str | None) -> str:
    name = runs.attrs.get("source", "") if runs is not None else ""
    return " · ".join(part for part in (str(name), f"input {digest}") if part)


def _projection_verdict(result: RunsProjection) -> list[str]:
    """Say what happens between the highest measured frequency and the one asked for."""
    if result.prepared is None:
        return []
    measured = result.prepared.measured()
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
    if efficiency and _contradicted(points, curve) is None:
        mark_best(ax, curve)
    ax.legend(frameon=False)


def _of_how_many(drawn: dict[int, str], result: RunsProjection) -> str:
    total = len(result.prepared.groups) if result.prepared else len(drawn)
    return f" (the first {len(drawn)} of {total} groups are drawn)" if total > len(drawn) else ""


def _contradicted(points: pd.DataFrame, curve: pd.DataFrame) -> float | None:
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
    measured_best = _contradicted(points, curve)
    if measured_best is not None:
        return (
            f"Performance per watt of {label} was measured best at {shown(measured_best, 'Hz')}; "
            "the fitted curves do not follow it there, so no best frequency is marked."
        )
    ends = {float(curve["freq_hz"].iloc[0]): "lowest", float(curve["freq_hz"].iloc[-1]): "highest"}
    where = f", the {ends[best]} frequency drawn" if best in ends else ""
    return f"Performance per watt of {label} is best at {shown(best, 'Hz')}{where}."


def _projection_table(result: RunsProjection) -> Table:
    header = [*result.by, "metric", "frequency", "projected", f"{result.level:.0%} interval"]
    header += ["limit", "reached"]
    header += ["other form"] if "other_form" in result.table else []
    rows = [
        [
            *key_texts(result.by, row),
            row["metric"],
            shown(row["freq_hz"], "Hz"),
            shown(row["projected"], row["unit"]),
            shown_interval(row["projected"], row["lower"], row["upper"], row["unit"]),
            shown(row["limit"]),
            "–" if np.isnan(row["limit_share"]) else f"{row['limit_share']:.0%}",
            *([shown(row["other_form"], row["unit"])] if "other_form" in row else []),
        ]
        for row in result.table.head(MOST_ROWS).to_dict(orient="records")
    ]
    return Table("Projections", header, rows, len(result.by) + 1, rows_cut(len(result.table)))


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


def _left_out_tables(result: RunsProjection) -> list[Table]:
    """Rows that took no part."""
    rows = result.left_out
    if rows.empty:
        return []
    header = ["file", "row", "frequency", "check", "evidence"]
    cells = [
        [str(r["file"]), str(r["row"]), shown(r["freq_hz"], "Hz"), r["check"], r["evidence"]]
        for r in rows.head(MOST_ROWS).to_dict(orient="records")
    ]
    return [Table("Rows left out", header, cells, 5, rows_cut(len(rows)))]


# The page of `ppw.project_data_size` and `ppw.project_core_count`.


def time_projection_page(result: TimeProjection) -> Page:
    """Report of a projection to another data size or core count."""
    header, rows = result.cells()
    caption = "Fitted without runs at the target; the bar is the interval, the point their mean."
    return Page(
        title=result.title(),
        subtitle=f"input {result.input_digest[:19]}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[Table("Projected times", header, rows, len(result.telling_keys()))],
        caveats=result.caveats,
        document=result.to_json(),
    )


# The report page of path lengths, and its plot.


def path_length_page(result: PathLengths) -> Page:
    """Report of `ppw.path_lengths`."""
    caption = "Instructions per byte as counted, and the curves fitted to them."
    return Page(
        title="Path length",
        subtitle=f"instructions per byte · input {result.input_digest}",
        verdict=[*result.verdict(), *result.flat_sentences()] or ["nothing could be fitted"],
        figures=[Figure(draw(result.plot), caption)],
        tables=[Table("Counts", result.header(), result.cells(), 3)],
        caveats=result.caveats,
        document=result.to_json(),
    )
