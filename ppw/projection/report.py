"""Results as pages: the verdict in sentences, the figures and tables behind it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.bayes.prediction import TIME_AND_POWER
from fitting.regression.lines import FloatArray, IntArray
from ppw.projection import plots, validation
from ppw.projection.answers import Answers, TargetCells
from ppw.projection.path_length import PathLengths
from ppw.projection.runs import WIDTH_FROM, FittedParameters, RunsProjection
from ppw.projection.time import TimeProjection
from ppw.results.axes import Axes
from ppw.results.page import MOST_ROWS, Figure, Page, Sliders, Table, draw, nearest, stops
from ppw.results.result import rows_of
from ppw.results.text import key_texts, shown, shown_interval, telling_keys
from ppw.runs.groups import Mask
from ppw.runs.metrics import METRICS, PERFORMANCE, Metric
from ppw.runs.prepare import Prepared

if TYPE_CHECKING:
    import pandas as pd

# Groups whose curves are drawn, and groups in the sliders.
_MOST_DRAWN, MOST_GROUPS = 4, 12
# By measurement, the best frequency of a curve may be this little short of the best measured.
_CLEARLY_WORSE = 0.95


def validation_page(result: validation.Validation) -> Page:
    """Report of `ppw.validate`."""
    figures = [Figure(draw(result.plot), "Projected over measured; bars are medians.")]
    for metric in (name for name, s in result.summary_by_metric.items() if s["n"]):
        rows = result.groups[result.groups["metric"] == metric]
        figures.append(
            Figure(
                draw(partial(validation.plot_projected_against_measured, rows=rows, metric=metric)),
                f"{metric.replace('_', ' ')}: projected against measured, one point a group, with "
                "intervals where there are any.",
            )
        )
    return Page.of(
        result,
        title="Projected against measured",
        subtitle=result.scheme,
        verdict=_validation_verdict(result),
        figures=figures,
    )


def parameters_page(result: FittedParameters) -> Page:
    """Report of `ppw.fit`."""
    return Page.of(result, title="Fitted curves")


def _validation_verdict(result: validation.Validation) -> list[str]:
    """Say the errors and the coverage of each metric in sentences."""
    sentences = []
    for name, s in result.summary_by_metric.items():
        if not s["n"]:
            sentences.append(f"{name}: no projection could be made.")
            continue
        naive, coverage = s["baselines"]["inverse_frequency"], "There are no intervals."
        if s["coverage"] is not None:
            coverage = (
                f"The {result.level:.0%} intervals cover {s['coverage']:.0%} of "
                f"{s['with_interval']} measurements."
            )
        sentences.append(
            f"{name.replace('_', ' ')}: half of {s['n']} projections are within "
            f"{s['median_ape']:.2g} % of the measurement and nine in ten within "
            f"{s['p90_ape']:.2g} % (scaling by the frequency alone: {naive['median_ape']:.2g} and "
            f"{naive['p90_ape']:.2g} %). {coverage}"
        )
    return sentences


# The page of `ppw.project`: what a frequency brings, the curves, and sliders for the rest.


def projection_page(result: RunsProjection) -> Page:
    """Report of `ppw.project`."""
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
    """Say for each frequency asked how metrics change from the highest measured one."""
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
            sentences.append(_metric_sentence(result, metric, chosen, last))
    return sentences


def _headline(result: RunsProjection, rows: pd.DataFrame, last: pd.DataFrame) -> str:
    """Say the median change of each metric (%) from the highest measured frequency."""
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


def _metric_sentence(
    result: RunsProjection, metric: str, rows: pd.DataFrame, last: pd.DataFrame
) -> str:
    """Say a metric's projection beside its measurement, or the ratios over many groups."""
    at, unit = float(rows["freq_hz"].iloc[0]), METRICS[metric].unit
    words = metric.replace("_", " ")
    both = _beside(rows, last, result.by)
    # One group has its figures said, many their distribution.
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
    """Join projections with their group's last measurement, at ``freq_hz_last``."""
    if not by:
        return rows.merge(last, how="cross", suffixes=("", "_last"))
    return rows.merge(last, on=list(by), suffixes=("", "_last"))


def _curve_figures(result: RunsProjection) -> tuple[list[Figure], list[str]]:
    """Figures of the first groups' curves by metric, and sentences on the best perf/W."""
    if result.prepared is None:
        return [], []
    target = float(result.table["freq_hz"].max())
    figures, verdict = [], []
    answers = Answers.of(result.prepared, result.options.for_curves())
    drawn = result.prepared, result.options
    for metric in result.prepared.metrics:
        chosen = plots.drawable_groups(result.prepared, metric, _MOST_DRAWN)
        curves = plots.group_curves(*drawn, metric, [*chosen], target, result.level, answers)
        for group, label in chosen.items():
            points, curve = curves[group]
            curve_of = (metric, points, curve, target)
            words = metric.name.replace("_", " ")
            total = len(result.prepared.groups)
            most = f" (the first {len(chosen)} of {total} groups are drawn)"
            caption = f"{words}: {label}{most * (total > len(chosen))}"
            figures.append(Figure(draw(partial(_plot_group_curve, *curve_of)), caption))
            if metric.name == "perf_per_watt" and curve["value"].notna().any():
                verdict.append(_best_sentence(label, points, curve))
    return figures, verdict


def _plot_group_curve(
    metric: Metric, points: pd.DataFrame, curve: pd.DataFrame, target: float, ax: Axes
) -> None:
    plots.plot_curve(ax, metric, points, curve, target)
    efficiency = metric.name == "perf_per_watt" and curve["value"].notna().any()
    if efficiency and _contradicting_best(points, curve) is None:
        plots.mark_best(ax, curve)
    ax.legend(frameon=False)


def _contradicting_best(points: pd.DataFrame, curve: pd.DataFrame) -> float | None:
    """Frequency (Hz) measured best, if the curve's best was measured clearly worse; else None."""
    means = points.groupby("freq_hz")["value"].mean()
    at, measured = means.index.to_numpy(dtype=np.float64), means.to_numpy()
    # Beyond the measurements the nearest of them speaks.
    near = measured[np.argmin(np.abs(at - _frequency_of_highest(curve)))]
    best = float(at[np.argmax(measured)])
    return best if near < _CLEARLY_WORSE * measured.max() else None


def _frequency_of_highest(curve: pd.DataFrame) -> float:
    """Frequency (Hz) at which a curve has its highest value."""
    return float(curve["freq_hz"].iloc[int(np.nanargmax(curve["value"].to_numpy()))])


# Where measurements contradict the curve, no frequency is called the best.
def _best_sentence(label: str, points: pd.DataFrame, curve: pd.DataFrame) -> str:
    best = _frequency_of_highest(curve)
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
    """Table of the sources of interval width by metric (median shares); none without them."""
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
    return [Table("Causes of the interval's width", ["metric", "frequency", *names], rows, 2, note)]


# Sliders of a projection: what its script needs to answer at other frequencies and costs.
#
# A group's answers are laid out over a grid of frequencies by the code that answers everywhere else
# (`ppw.projection.answers`). What follows from power alone is exact in the page: the interval of a
# total cost is that of the power, taken through. Work per cost is a quotient of two independent
# answers, as in `ppw.projection.answers.Posteriors`; for it both come as equally probable values.

# Frequencies that are computed, fewer of a long table, and that a slider stops at.
_GRID, _GRID_OF_MANY, _STOPS = 32, 16, 150
_MANY = 300
_NEAR = 1.06
# More measured frequencies than these are readings, not steps.
_MOST_STEPS = 16
# Equally probable values that stand for a distribution.
PROBABILITIES = (np.arange(32) + 0.5) / 32
_DIGITS, _DIGITS_OF_LIKELY = 12, 6
_WORK = {"time", "throughput", "energy", "perf_per_watt", "perf_per_dollar"}
_WATTS = {"power", "energy", "perf_per_watt"}
_DEAREST = 20_000.0


def projection_sliders(result: RunsProjection) -> Sliders | None:
    """Sliders for the first groups; None where the runs behind the answers are not known."""
    if result.prepared is None or not (groups := _slider_groups(result, result.prepared)):
        return None
    shared = {"level": result.level, "correlation": TIME_AND_POWER}
    data = {**shared, "sliders": _common_sliders(), "groups": groups}
    return Sliders(
        title="Other frequencies and costs",
        note=" ".join(_notes(result, groups, len(result.prepared.groups))),
        header=["figure", "value", f"{result.level:.0%} interval"],
        script="projection.js",
        data=json.dumps(data, separators=(",", ":"), allow_nan=False),
    )


def _round(values: Iterable[float], digits: int) -> list[float | None]:
    """Round to significant digits; None for NaN and infinities, which JSON lacks."""
    return [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values]


def _slider(at: list[float], start: float) -> dict[str, Any]:
    """Stops of a slider, and the position of the stop where it starts."""
    return {"stops": at, "start": nearest(at, start)}


def _common_sliders() -> list[dict[str, Any]]:
    """Sliders for electricity, PUE, utilisation and years, which start without effect."""
    made = [
        ("tariff", "electricity", "a kWh", stops(0.0, 1.0), 0.0),
        ("pue", "power usage effectiveness", "1", stops(1.0, 3.0), 1.0),
        ("utilisation", "utilisation", "%", stops(1.0, 100.0), 100.0),
        ("years", "years kept", "1", [float(n) for n in range(1, 11)], 1.0),
    ]
    return [
        {"key": key, "label": label, "unit": unit, **_slider(at, start)}
        for key, label, unit, at, start in made
    ]


def _notes(result: RunsProjection, groups: Sequence[dict[str, Any]], total: int) -> Iterator[str]:
    """Yield notes on the sliders: groups left out, interpolation, intervals and defaults."""
    if total > len(groups):
        yield f"{len(groups)} of {total} groups are here, the first that have all their curves."
    if any(len(group["grid"]) > 2 for group in groups):
        moved = max(_interpolation_error(group) for group in groups)
        yield (
            "Between the frequencies that were computed, figures are interpolated: to "
            f"{math.ceil(1e4 * moved) / 100:g} % or better, as leaving out every other one shows."
        )
    if result.interval == "conformal":
        yield "Intervals are the posterior's; those of the table are as wide as misses call for."
    if not any("power" in group["metrics"] for group in groups):
        return
    yield (
        "Price, electricity, PUE, utilisation and years can be set here. The price starts at "
        "that of the runs, if they have one; the others start at values that change nothing. The "
        "total cost is the price of one host and its electricity; money is not discounted."
    )
    if any(group["idle_w"] is None for group in groups):
        yield "The runs have no idle power of the host, so the figures do not include it."


def _interpolation_error(group: dict[str, Any]) -> float:
    """Largest relative error of interpolating every other grid value from its neighbours."""
    frequency = np.log(group["grid"])
    figures = [of[end] for of in group["metrics"].values() for end in ("value", "lower", "upper")]
    with np.errstate(invalid="ignore", divide="ignore"):
        known = np.log(np.array(figures, dtype=np.float64))
    before, at, after = frequency[:-2:2], frequency[1:-1:2], frequency[2::2]
    part = (at - before) / (after - before)
    made = known[:, :-2:2] * (1 - part) + known[:, 2::2] * part
    missed = np.abs(np.expm1(made - known[:, 1:-1:2]))
    return float(np.max(missed[np.isfinite(missed)], initial=0.0))


def _slider_groups(result: RunsProjection, prepared: Prepared) -> list[dict[str, Any]]:
    """Data of the first groups with all curves, for the page's script; [] for none."""
    answers, runs = _answers_of_sliders(result, prepared), prepared.runs
    fitted = [~np.isnan(c.fit.line.slope) for c in answers.curves.values()]
    chosen = np.flatnonzero(np.logical_and.reduce(fitted))[:MOST_GROUPS]
    if not len(chosen):
        return []
    asked, rows = result.table["freq_hz"].unique(), [prepared.groups.codes == g for g in chosen]
    most = _GRID if len(prepared.groups) <= _MANY else _GRID_OF_MANY
    grids = [_frequency_grid(runs["freq_hz"][of_group], asked, most) for of_group in rows]
    keys = prepared.groups.keys.take(chosen).reset_index(drop=True)
    # Groups of one family differ in their cores alone, which have a slider.
    others = [name for name in prepared.groups.by if name != "cores"]
    family = keys.groupby(others, sort=False, dropna=False).ngroup() if others else [0] * len(keys)
    metrics = _metrics_on_grids(answers, chosen, grids, result.level)
    made = []
    for label, number, of_group, grid, laid in zip(
        _group_labels(keys, others), family, rows, grids, metrics, strict=True
    ):
        price = _mean_of(runs, "price", of_group) or 0.0
        frequencies = stops(grid[0], grid[-1], grid, most=_STOPS)
        made.append(
            {
                "name": label,
                "family": int(number),
                "cores": _mean_of(runs, "cores", of_group) if "cores" in keys else None,
                "grid": grid,
                "frequency": _slider(frequencies, float(asked.max())),
                "price": _slider(stops(0.0, 3 * price or _DEAREST, [price]), price),
                "idle_w": _mean_of(runs, "idle_power_w", of_group),
                "metrics": laid,
            }
        )
    return made


def _answers_of_sliders(result: RunsProjection, prepared: Prepared) -> Answers:
    """Fit the metrics shown, and performance and power where others are made of them."""
    names = {metric.name for metric in prepared.metrics}
    metrics = [m for m in prepared.metrics if m.name != "perf_per_dollar"]
    metrics += [PERFORMANCE] if names & _WORK else []
    metrics += [METRICS["power"]] if names & _WATTS and "power" not in names else []
    return Answers.of(replace(prepared, metrics=metrics), result.options.for_curves())


def _frequency_grid(measured: pd.Series[float], asked: FloatArray, most: int) -> list[float]:
    """Frequencies (Hz) to answer a group at: round, measured and asked-for ones."""
    steps = measured.unique()
    ends = [*steps, *asked]
    low, high, top = float(min(ends)), float(max(ends)), steps.max()
    exact = [*asked, *(steps if len(steps) <= _MOST_STEPS else [])]
    # Just above the highest measurement intervals widen fastest.
    exact += [f for f in stops(low, high, most=_STOPS) if top < f < _NEAR * top]
    return stops(low, high, map(float, exact), most=most)


def _metrics_on_grids(
    answers: Answers, chosen: IntArray, grids: Sequence[list[float]], level: float
) -> list[dict[str, Any]]:
    """Answers of every metric over each group's grid, as JSON data for the script."""
    sizes = [len(grid) for grid in grids]
    cells = TargetCells(np.repeat(chosen, sizes), np.concatenate(grids), np.ones(sum(sizes)))
    made: list[dict[str, Any]] = [{} for _ in chosen]
    for metric in answers.prepared.metrics:
        answer = answers.at(metric, cells, level)
        figures = {"value": answer.prediction.value, "lower": answer.prediction.lower}
        figures["upper"] = answer.prediction.upper
        likely: list[list[float | None]] = [[] for _ in cells.group]
        # Quotients of performance and power are made in the page, of both as distributions.
        if answer.distribution is not None and metric.name in ("performance", "power"):
            quantiles = answer.distribution.mixture.quantiles(PROBABILITIES.tolist())
            likely = [_round(row, _DIGITS_OF_LIKELY) for row in np.exp(quantiles).T]
        for laid, end, size in zip(made, np.cumsum(sizes), sizes, strict=True):
            part = slice(end - size, end)
            rounded = {name: _round(values[part], _DIGITS) for name, values in figures.items()}
            laid[metric.name] = {"unit": metric.unit, **rounded, "likely": likely[part]}
    return made


def _mean_of(runs: pd.DataFrame, column: str, rows: Mask) -> float | None:
    """Mean of a column over some rows; None without the column or a value."""
    if column not in runs.columns:
        return None
    mean = float(runs[column][rows].mean())
    return mean if np.isfinite(mean) else None


def _group_labels(keys: pd.DataFrame, others: Sequence[str]) -> list[str]:
    """Labels that tell groups apart without their cores; "all runs" where nothing does."""
    rows = rows_of(keys)
    telling, labels = telling_keys(others, rows), []
    for row in rows:
        named = zip(telling, key_texts(telling, row), strict=True)
        texts = [f"{name} {text}" if isinstance(row[name], float) else text for name, text in named]
        labels.append(", ".join(texts) or "all runs")
    return labels


# The page of `ppw.project` and `ppw.project`.


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
