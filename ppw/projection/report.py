"""Results as pages: the verdict in sentences, the figures and tables behind it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from fitting.bayes.prediction import TIME_AND_POWER
from fitting.regression.lines import FloatArray, IntArray
from ppw.projection import plots, validation
from ppw.projection.answers import Answers, TargetCells
from ppw.projection.path_length import PathLengths
from ppw.projection.runs import WIDTH_FROM, FittedParameters, RunsProjection
from ppw.projection.time import TimeProjection
from ppw.results import page as pg
from ppw.results.page import Figure, KeyFigure, Page, Sliders, Table, draw, stops
from ppw.results.result import rows_of
from ppw.results.text import key_texts, shown, shown_interval, telling_keys
from ppw.runs.metrics import METRICS, PERFORMANCE, values
from ppw.runs.prepare import PreparedRuns

# Groups whose best frequency is named.
_MOST_NAMED = 4
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
    projections, *left_out = result.printed_tables(pg.MOST_ROWS)
    answers = _page_answers(result)
    return Page.of(
        result,
        title=f"Projected to {targets}",
        subtitle=_source_text(result.prepared),
        verdict=[*_projection_verdict(result), *_best_sentences(result, answers)],
        tables=[projections, *_budget_tables(result), *left_out],
        key_figures=_key_figures(result),
        sliders=projection_sliders(result, answers),
    )


def _source_text(prepared: PreparedRuns | None) -> str:
    """Name the file of the runs, and the days on which they were measured, where known."""
    if prepared is None:
        return ""
    started = prepared.runs.get("started_at", pd.Series(dtype=str)).dropna().astype(str)
    days = sorted(started[started.str.match(r"\d{4}-\d\d-\d\d")].str[:10])
    measured = f"measured {' to '.join(dict.fromkeys([days[0], days[-1]]))}" if days else ""
    file = PurePath(str(prepared.runs.attrs.get("source", ""))).name
    return " · ".join(part for part in (file, measured) if part)


def _key_figures(result: RunsProjection) -> list[KeyFigure]:
    """First three metrics at the first frequency asked: of one group, or their median change."""
    rows = result.table[result.table["freq_hz"] == result.table["freq_hz"].iloc[0]]
    if rows.duplicated("metric").any():
        changes = _median_changes(result, rows) if result.prepared else {}
        return [
            KeyFigure(name, f"{x:+.3g} %", "median of the groups")
            for name, x in [*changes.items()][:3]
        ]
    figures = []
    for row in rows_of(rows.dropna(subset=["projected"]).head(3)):
        label = f"{row['metric'].replace('_', ' ')} at {shown(row['freq_hz'], 'Hz')}"
        ends = row["projected"], row["lower"], row["upper"]
        figures.append(KeyFigure.of(label, *ends, METRICS[row["metric"]].unit))
    return figures


def _projection_verdict(result: RunsProjection) -> list[str]:
    """Say for each frequency asked how metrics change from the highest measured one."""
    if result.prepared is None:
        return []
    sentences, last = [], _last_means(result)
    for frequency in dict.fromkeys(result.table["freq_hz"]):
        rows = result.table[result.table["freq_hz"] == frequency]
        sentences.append(_headline(result, rows))
        for metric in dict.fromkeys(rows["metric"]):
            chosen = rows[rows["metric"] == metric]
            sentences.append(_metric_sentence(result, metric, chosen, last))
    return sentences


def _headline(result: RunsProjection, rows: pd.DataFrame) -> str:
    """Say the median change of each metric (%) from the highest measured frequency."""
    changes = [f"{name} by {x:+.1f} %" for name, x in _median_changes(result, rows).items()]
    if not changes:
        return "No projection could be made."
    one = not rows.duplicated("metric").any()
    median = "" if one else " (median over the groups)"
    whose = "the" if one else "each group's"
    target = shown(float(rows["freq_hz"].iloc[0]), "Hz")
    return (
        f"Going from {whose} highest measured frequency to {target} is projected to change "
        f"{', '.join(changes)}{median}."
    )


def _median_changes(result: RunsProjection, rows: pd.DataFrame) -> dict[str, float]:
    """Median change (%) of each metric from a group's highest measured frequency."""
    changes, last = {}, _last_means(result)
    for metric in dict.fromkeys(rows["metric"]):
        both = _beside(rows[rows["metric"] == metric], last, result.by)
        change = 100 * (both["projected"] / both[metric] - 1).dropna().median()
        if np.isfinite(change):
            # No change is +0.0, never -0.0.
            changes[metric.replace("_", " ")] = round(change, 1) + 0.0
    return changes


def _last_means(result: RunsProjection) -> pd.DataFrame:
    """Means of each group at the highest frequency at which it was measured."""
    assert result.prepared is not None
    measured = result.prepared.measured_means()
    top = measured.sort_values("freq_hz").groupby(list(result.by) or (lambda _: 0), dropna=False)
    return top.last().reset_index()


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


def _best_sentences(result: RunsProjection, answers: Answers | None) -> list[str]:
    """Say where the performance per watt of the first groups is best."""
    metric = METRICS["perf_per_watt"]
    if answers is None or result.prepared is None or metric not in result.prepared.metrics:
        return []
    chosen = plots.drawable_groups(result.prepared, metric, _MOST_NAMED)
    drawn = result.prepared, result.options, metric, [*chosen], float(result.table["freq_hz"].max())
    curves = plots.group_curves(*drawn, result.level, answers)
    return [
        _best_sentence(label, *curves[group])
        for group, label in chosen.items()
        if curves[group][1]["value"].notna().any()
    ]


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
_GRID, _STOPS = 32, 150
# Numbers of frequencies by the most groups that have them; of more groups nothing is fitted anew.
_GRIDS = {12: _GRID, 60: 16, 300: 8}
_MANY = max(_GRIDS)
# Groups for whose quotients the page has distributions.
_MOST_QUOTIENTS = 60
_NEAR = 1.06
# More measured frequencies than these are readings, not steps.
_MOST_STEPS = 16
# Equally probable values that stand for a distribution.
PROBABILITIES = (np.arange(32) + 0.5) / 32
_DIGITS, _DIGITS_OF_LIKELY = 12, 6
_MEANS = ("price", "cores", "idle_power_w")
_WORK = {"time", "throughput", "energy", "perf_per_watt", "perf_per_dollar"}
_WATTS = {"power", "energy", "perf_per_watt"}
_DEAREST = 20_000.0


def projection_sliders(result: RunsProjection, answers: Answers | None = None) -> Sliders | None:
    """Sliders for all groups; None where the runs behind the answers are not known."""
    if result.prepared is None:
        return None
    answers = answers or _page_answers(result)
    if not (groups := _slider_groups(result, result.prepared, answers)):
        return None
    shared = {"level": result.level, "correlation": TIME_AND_POWER}
    # Groups share their frequencies and stops: each list is laid out once, and named by its place.
    lists: dict[tuple[float, ...], int] = {}
    placed = [_place_lists(group, lists) for group in groups]
    data = {**shared, "sliders": _common_sliders(), "lists": [*lists], "groups": placed}
    return Sliders(
        title="Other frequencies and costs",
        note=" ".join(_notes(result, groups)),
        header=["figure", "value", f"{result.level:.0%} interval"],
        script="projection.js",
        data=json.dumps(data, separators=(",", ":"), allow_nan=False),
    )


def _place_lists(group: dict[str, Any], lists: dict[tuple[float, ...], int]) -> dict[str, Any]:
    """Put the places of a group's lists of frequencies and stops in the place of the lists."""

    def place(numbers: list[float]) -> int:
        return lists.setdefault(tuple(numbers), len(lists))

    sliders = {
        name: {**group[name], "stops": place(group[name]["stops"])}
        for name in ("frequency", "price")
    }
    points = {**group["points"], "at": place(group["points"]["at"])}
    return {**group, **sliders, "grid": place(group["grid"]), "points": points}


def _round(numbers: Iterable[float], digits: int) -> list[float | None]:
    """Round to significant digits; None for NaN and infinities, which JSON lacks."""
    return [float(f"{x:.{digits}g}") if math.isfinite(x) else None for x in numbers]


def _slider(at: list[float], start: float) -> dict[str, Any]:
    """Stops of a slider, and the position of the stop where it starts."""
    return {"stops": at, "start": pg.nearest(at, start)}


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


def _notes(result: RunsProjection, groups: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield notes on the sliders: interpolation, intervals and defaults."""
    if len(groups) > _MANY:
        yield (
            "Figures at measured frequencies are the measured means, which have no interval; those "
            "at the frequencies asked for are projected."
        )
    elif any(len(group["grid"]) > 2 for group in groups):
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


def _slider_groups(
    result: RunsProjection, prepared: PreparedRuns, answers: Answers | None
) -> list[dict[str, Any]]:
    """Data of the groups with a curve, for the page's script; [] for none."""
    runs, asked = prepared.runs, result.table["freq_hz"].unique()
    places = runs.groupby(prepared.groups.codes).indices
    points = _measured_points(prepared, only_means=answers is None)
    if answers is None:
        most, chosen = 0, np.arange(len(prepared.groups))
        grids, metrics = _lay_out_table(result, prepared, points)
    else:
        fits = [~np.isnan(c.fit.line.slope) for c in answers.curves.values()]
        chosen = np.flatnonzero(np.logical_or.reduce(fits))
        most = next(size for limit, size in _GRIDS.items() if len(chosen) <= limit)
        measured = (runs["freq_hz"].to_numpy()[places[g]] for g in chosen)
        grids = [_frequency_grid(frequencies, asked, most) for frequencies in measured]
        metrics = _metrics_on_grids(answers, chosen, grids, result.level) if len(chosen) else []
    keys = prepared.groups.keys.take(chosen).reset_index(drop=True)
    # Groups of one family differ in their cores alone, which have a slider.
    others = [name for name in prepared.groups.by if name != "cores"]
    family = keys.groupby(others, sort=False, dropna=False).ngroup() if others else [0] * len(keys)
    means = {c: runs[c].to_numpy(dtype=np.float64) for c in _MEANS if c in runs}
    made = []
    for group, label, number, grid, laid in zip(
        chosen, _group_labels(keys, others), family, grids, metrics, strict=True
    ):
        of_group = places[group]
        own = {name: _mean(means[name][of_group]) if name in means else None for name in _MEANS}
        price = own["price"] or 0.0
        frequencies = stops(grid[0], grid[-1], grid, most=_STOPS) if most else grid
        made.append(
            {
                "name": label,
                "family": int(number),
                "cores": own["cores"] if "cores" in keys else None,
                "grid": grid,
                "frequency": _slider(frequencies, float(asked.max())),
                "price": _slider(stops(0.0, 3 * price or _DEAREST, [price]), price),
                "idle_w": own["idle_power_w"],
                "metrics": laid,
                "points": points[int(group)],
            }
        )
    return made


def _lay_out_table(
    result: RunsProjection, prepared: PreparedRuns, points: dict[int, dict[str, Any]]
) -> tuple[list[list[float]], list[dict[str, Any]]]:
    """Frequencies and metrics of each group: what was measured and projected, without a fit."""
    keys, table = prepared.groups.keys, result.table
    numbered = keys.assign(group=range(len(keys)))
    by = list(result.by)
    groups = table[by].merge(numbered, on=by, how="left")["group"] if by else [0] * len(table)
    columns = (table[name] for name in ("metric", "freq_hz", "projected", "lower", "upper"))
    projected: dict[Any, dict[float, tuple[float, ...]]] = {}
    for group, metric, frequency, *ends in zip(groups, *columns, strict=True):
        projected.setdefault((group, metric), {})[frequency] = (*ends,)
    asked = table["freq_hz"].unique().tolist()
    grids: list[list[float]] = []
    laid: list[dict[str, Any]] = []
    for group in range(len(keys)):
        grids.append(sorted({*points[group]["at"], *asked}))
        laid.append({})
        for metric in (m for m in prepared.metrics if m.name != "perf_per_dollar"):
            # Measured points are not laid out twice: the script takes them from these values.
            means = zip(points[group]["at"], points[group].pop(metric.name), strict=True)
            own: dict[float, tuple[float, ...]] = {
                f: (np.nan if y is None else y, np.nan, np.nan) for f, y in means
            }
            own.update(projected.get((group, metric.name), {}))
            value, lower, upper = (
                _round((own[f][end] if f in own else np.nan for f in grids[-1]), 5)
                for end in range(3)
            )
            # Most ends are not known: those that are have their place in front.
            sparse = {
                name: {i: x for i, x in enumerate(numbers) if x is not None}
                for name, numbers in (("lower", lower), ("upper", upper))
            }
            laid[-1][metric.name] = {"unit": metric.unit, "value": value, **sparse}
    return grids, laid


def _measured_points(prepared: PreparedRuns, only_means: bool) -> dict[int, dict[str, Any]]:
    """Frequencies and values of what was measured of each group, by metric."""
    columns = {m.name: values(m, prepared.runs) for m in prepared.metrics}
    frame = pd.DataFrame({"at": prepared.runs["freq_hz"].to_numpy(), **columns})
    frame.insert(0, "group", prepared.groups.codes)
    if only_means:
        frame = frame.groupby(["group", "at"], as_index=False).mean()
    parts = {}
    for group, part in frame.set_index("group").groupby(level=0):
        lists = {str(c): _round(part[c], 9 if c == "at" else 5) for c in part}
        parts[int(str(group))] = lists
    return parts


def _page_answers(result: RunsProjection) -> Answers | None:
    """Fit the metrics shown, and those that others are made of; None for too many groups."""
    prepared = result.prepared
    if prepared is None or len(prepared.groups) > _MANY:
        return None
    names = {metric.name for metric in prepared.metrics}
    metrics = [m for m in prepared.metrics if m.name != "perf_per_dollar"]
    metrics += [PERFORMANCE] if names & _WORK else []
    metrics += [METRICS["power"]] if names & _WATTS and "power" not in names else []
    return Answers.of(replace(prepared, metrics=metrics), result.options.for_curves())


def _frequency_grid(measured: FloatArray, asked: FloatArray, most: int) -> list[float]:
    """Frequencies (Hz) to answer a group at: round, measured and asked-for ones."""
    steps = np.unique(measured)
    ends = [*steps, *asked]
    low, high, top = float(min(ends)), float(max(ends)), steps.max()
    exact = [*asked, *(steps if len(steps) <= min(_MOST_STEPS, most) else [])]
    # Just above the highest measurement intervals widen fastest.
    near = stops(low, high, most=_STOPS) if most == _GRID else []
    exact += [f for f in near if top < f < _NEAR * top]
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
        is_factor = metric.name in ("performance", "power") and len(chosen) <= _MOST_QUOTIENTS
        if answer.distribution is not None and is_factor:
            quantiles = answer.distribution.mixture.quantiles(PROBABILITIES.tolist())
            likely = [_round(row, _DIGITS_OF_LIKELY) for row in np.exp(quantiles).T]
        for laid, end, size in zip(made, np.cumsum(sizes), sizes, strict=True):
            part = slice(end - size, end)
            if np.isnan(figures["value"][part]).all():
                continue
            rounded = {name: _round(array[part], _DIGITS) for name, array in figures.items()}
            laid[metric.name] = {"unit": metric.unit, **rounded}
            if is_factor:
                laid[metric.name]["likely"] = likely[part]
    return made


def _mean(array: FloatArray) -> float | None:
    """Mean of the values that are known; None without one."""
    known = array[np.isfinite(array)]
    return float(known.mean()) if len(known) else None


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
