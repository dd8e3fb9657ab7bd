"""Sliders of a projection: what its script needs to answer at other frequencies and costs.

A group's answers are laid out over a grid of frequencies by the code that answers everywhere else
(`ppw.projection.answers`). What follows from watts alone is exact in the page: the interval of a
total cost is that of the watts, taken through. Work per cost is a quotient of two independent
answers, as in `ppw.projection.answers.Posteriors`; for it both come as equally probable
values.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ppw.projection.answers import Answers, TargetCells
from ppw.results.page import Sliders, nearest, stops
from ppw.results.result import rows_of
from ppw.results.text import key_texts, telling_keys
from ppw.runs.metrics import METRICS, PERFORMANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray, IntArray
    from ppw.projection.answers import CellAnswers
    from ppw.projection.runs import RunsProjection
    from ppw.runs.metrics import Metric
    from ppw.runs.prepare import Prepared

    Mask = NDArray[np.bool_]

MOST_GROUPS = 12
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
    if result.prepared is None or not (groups := _groups(result, result.prepared)):
        return None
    data = {
        "level": result.level,
        "sliders": _sliders(),
        "groups": [group.data() for group in groups],
    }
    return Sliders(
        title="Other frequencies and costs",
        note=" ".join(_notes(result, groups, len(result.prepared.groups))),
        header=["figure", "value", f"{result.level:.0%} interval"],
        script="projection.js",
        data=json.dumps(data, separators=(",", ":"), allow_nan=False),
    )


class _GridMetric(NamedTuple):
    """A metric of one group over its grid.

    Attributes
    ----------
    ends : (3, grid) float array
        Value, lower and upper.
    likely : (grid, probabilities) float array
        Equally probable ones; none where there is no distribution or nothing is made of it.
    """

    ends: FloatArray
    likely: FloatArray


@dataclass(frozen=True, eq=False)
class _Group:
    """One group: its grid (Hz), where its slider starts, and its metrics by name.

    Groups of one ``family`` differ in their cores alone.
    """

    name: str
    family: int
    cores: float | None
    grid: list[float]
    start: float
    price: float | None
    idle_w: float | None
    metrics: Mapping[str, _GridMetric]

    def data(self) -> dict[str, Any]:
        """As the script reads it."""
        frequencies = stops(self.grid[0], self.grid[-1], self.grid, most=_STOPS)
        price = self.price or 0.0
        prices = stops(0.0, 3 * price or _DEAREST, [price])
        return {
            "name": self.name,
            "family": self.family,
            "cores": self.cores,
            "grid": self.grid,
            "frequency": {"stops": frequencies, "start": nearest(frequencies, self.start)},
            "price": {"stops": prices, "start": nearest(prices, price)},
            "idle_w": self.idle_w,
            "metrics": {name: _data(name, laid) for name, laid in self.metrics.items()},
        }


def _data(name: str, laid: _GridMetric) -> dict[str, Any]:
    value, lower, upper = (_plain(row, _DIGITS) for row in laid.ends)
    return {
        "unit": METRICS.get(name, PERFORMANCE).unit,
        "value": value,
        "lower": lower,
        "upper": upper,
        "likely": [_plain(row, _DIGITS_OF_LIKELY) for row in laid.likely],
    }


def _plain(values: Iterable[float], digits: int) -> list[float | None]:
    return [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values]


def _sliders() -> list[dict[str, Any]]:
    """Sliders that are no group's own; they begin where they change nothing."""
    made = [
        ("tariff", "electricity", "a kWh", stops(0.0, 1.0), 0.0),
        ("pue", "power usage effectiveness", "1", stops(1.0, 3.0), 1.0),
        ("utilisation", "utilisation", "%", stops(1.0, 100.0), 100.0),
        ("years", "years kept", "1", [float(n) for n in range(1, 11)], 1.0),
    ]
    return [
        {"key": key, "label": label, "unit": unit, "stops": at, "start": nearest(at, start)}
        for key, label, unit, at, start in made
    ]


def _notes(result: RunsProjection, groups: Sequence[_Group], total: int) -> Iterator[str]:
    if total > len(groups):
        yield f"{len(groups)} of {total} groups are here, the first that have all their curves."
    if any(len(group.grid) > 2 for group in groups):
        moved = max(_moved_by_interpolation(group) for group in groups)
        yield (
            "Between the frequencies that were computed, figures are interpolated: to "
            f"{math.ceil(1e4 * moved) / 100:g} % or better, as leaving out every other one shows."
        )
    if result.interval == "conformal":
        yield "Intervals are the posterior's; those of the table are as wide as misses call for."
    if not any("power" in group.metrics for group in groups):
        return
    yield (
        "Price, electricity, PUE, utilisation and years are yours to set: the price begins at that "
        "of the runs where they have one, the others where they change nothing. The total cost is "
        "the price of one host and its electricity; money is not discounted."
    )
    if any(group.idle_w is None for group in groups):
        yield "What a host draws while idle is not in the runs, and not counted."


def _moved_by_interpolation(group: _Group) -> float:
    """Largest share by which the script would miss every other figure from those beside it."""
    frequency = np.log(group.grid)
    with np.errstate(invalid="ignore", divide="ignore"):
        known = np.log(np.concatenate([laid.ends for laid in group.metrics.values()]))
    before, at, after = frequency[:-2:2], frequency[1:-1:2], frequency[2::2]
    part = (at - before) / (after - before)
    made = known[:, :-2:2] * (1 - part) + known[:, 2::2] * part
    missed = np.abs(np.expm1(made - known[:, 1:-1:2]))
    return float(np.max(missed[np.isfinite(missed)], initial=0.0))


def _groups(result: RunsProjection, prepared: Prepared) -> list[_Group]:
    answers = _answers(result, prepared)
    chosen = _with_all_curves(answers)[:MOST_GROUPS]
    if not len(chosen):
        return []
    asked = result.table["freq_hz"].unique()
    rows = [prepared.groups.codes == group for group in chosen]
    most = _GRID if len(prepared.groups) <= _MANY else _GRID_OF_MANY
    grids = [_grid(prepared.runs["freq_hz"][of_group], asked, most) for of_group in rows]
    laid = _laid_out(answers, chosen, grids, result.level)
    others = [name for name in prepared.groups.by if name != "cores"]
    keys = prepared.groups.keys.take(chosen).reset_index(drop=True)
    cores = "cores" in keys
    return [
        _Group(
            name=label,
            family=family,
            cores=_mean_of(prepared.runs, "cores", of_group) if cores else None,
            grid=grid,
            start=float(asked.max()),
            price=_mean_of(prepared.runs, "price", of_group),
            idle_w=_mean_of(prepared.runs, "idle_power_w", of_group),
            metrics=metrics,
        )
        for label, family, of_group, grid, metrics in zip(
            *(_labels(keys, others), _families(keys, others), rows, grids, laid), strict=True
        )
    ]


def _answers(result: RunsProjection, prepared: Prepared) -> Answers:
    """Answers of the metrics shown, and of performance and power for what is made of them."""
    names = {metric.name for metric in prepared.metrics}
    metrics = [m for m in prepared.metrics if m.name != "perf_per_dollar"]
    metrics += [PERFORMANCE] if names & _WORK else []
    metrics += [METRICS["power"]] if names & _WATTS and "power" not in names else []
    # Misses to be calibrated with are known at the frequency asked for only.
    conformal = result.options.interval == "conformal"
    options = replace(result.options, interval="bayes") if conformal else result.options
    return Answers.of(replace(prepared, metrics=metrics), options)


def _with_all_curves(answers: Answers) -> IntArray:
    fitted = [~np.isnan(c.fit.line.slope) for c in answers.curves.values()]
    return np.flatnonzero(np.logical_and.reduce(fitted))


def _grid(measured: pd.Series[float], asked: FloatArray, most: int) -> list[float]:
    """Frequencies (Hz) that a group is answered at: round ones, those measured and asked for."""
    steps = measured.unique()
    ends = [*steps, *asked]
    low, high, top = float(min(ends)), float(max(ends)), steps.max()
    exact = [*asked, *(steps if len(steps) <= _MOST_STEPS else [])]
    # Just above the highest measurement intervals widen fastest.
    exact += [f for f in stops(low, high, most=_STOPS) if top < f < _NEAR * top]
    return stops(low, high, map(float, exact), most=most)


def _laid_out(
    answers: Answers, chosen: IntArray, grids: Sequence[list[float]], level: float
) -> list[dict[str, _GridMetric]]:
    """Every metric of the chosen groups over their grids."""
    sizes = [len(grid) for grid in grids]
    cells = TargetCells(np.repeat(chosen, sizes), np.concatenate(grids), np.ones(sum(sizes)))
    places = np.cumsum([0, *sizes])
    made: list[dict[str, _GridMetric]] = [{} for _ in chosen]
    for metric in answers.prepared.metrics:
        answer = answers.at(metric, cells, level)
        ends, likely = np.array(answer.prediction[:3]), _likely(answer, metric)
        for laid, start, end in zip(made, places, places[1:], strict=False):
            laid[metric.name] = _GridMetric(ends[:, start:end], likely[start:end])
    return made


def _likely(answer: CellAnswers, metric: Metric) -> FloatArray:
    if answer.distribution is None or metric.name not in ("performance", "power"):
        return np.empty((len(answer.cells.group), 0))
    quantiles = answer.distribution.mixture.quantiles(PROBABILITIES.tolist())
    made: FloatArray = np.exp(quantiles).T
    return made


def _mean_of(runs: pd.DataFrame, column: str, rows: Mask) -> float | None:
    """Mean of a column of a group; None where it is not known."""
    if column not in runs.columns:
        return None
    mean = float(runs[column][rows].mean())
    return mean if np.isfinite(mean) else None


def _families(keys: pd.DataFrame, others: Sequence[str]) -> list[int]:
    """Number that groups share which differ in their cores alone."""
    if not others:
        return [0] * len(keys)
    return [int(n) for n in keys.groupby([*others], sort=False, dropna=False).ngroup()]


def _labels(keys: pd.DataFrame, others: Sequence[str]) -> list[str]:
    """What tells groups apart beside their cores, which have a slider."""
    rows = rows_of(keys)
    telling = telling_keys(others, rows)
    return [", ".join(_texts(telling, row)) or "all runs" for row in rows]


def _texts(names: Sequence[str], row: Mapping[Any, Any]) -> list[str]:
    return [
        f"{name} {text}" if isinstance(row[name], float) else text
        for name, text in zip(names, key_texts(names, row), strict=True)
    ]
