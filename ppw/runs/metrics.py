"""The metrics a projection can answer: their columns, units and the laws that carry them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from fitting.regression.lines import FloatArray
from measurements.table import headers, schema
from ppw.errors import PpwError, UnknownColumnError
from ppw.results.text import as_names
from ppw.runs import groups as gr

if TYPE_CHECKING:
    import pandas as pd

Form = Literal["amdahl", "unbounded", "reciprocal"]
PowerForm = Literal["linear", "cmos"]
FORMS, POWER_FORMS = get_args(Form), get_args(PowerForm)


class Metric(NamedTuple):
    """One metric."""

    name: str
    unit: str
    columns: tuple[tuple[str, ...], ...]  # ways to get it from a runs table, best first
    # Metrics whose product it is, with their power, where it is not fitted itself.
    factors: Mapping[str, int] | None
    # Exponents in frequency of the two naive baselines: the core clock is all that counts, or
    # nothing.
    clock_power: int
    stalled_power: int


_POWER = (("power_w",), ("energy_j", "time_s"))
_ENERGY = (("energy_j", "time_s"), ("power_w", "time_s"))
_PERFORMANCE = (("throughput_ops_s",), ("time_s",))
_PER_WATT = tuple((*p, *w) for p in _PERFORMANCE for w in _POWER)
_PER_PRICE = tuple((*p, "price") for p in _PERFORMANCE)

METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("time", "s", (("time_s",),), None, -1, 0),
        Metric("cpi", "1", (("cpi",), ("cycles", "instructions")), None, 0, 1),
        Metric("throughput", "1/s", (("throughput_ops_s",),), None, 1, 0),
        Metric("power", "W", _POWER, None, 1, 0),
        Metric("energy", "J/run", _ENERGY, {"time": 1, "power": 1}, 0, 0),
        Metric("perf_per_watt", "1/J", _PER_WATT, {"performance": 1, "power": -1}, 0, 0),
        Metric("perf_per_dollar", "1/s per price", _PER_PRICE, None, 1, 0),
    )
}

# Fitted for perf_per_watt only: throughput where it was measured, else runs per second.
PERFORMANCE = Metric("performance", "1/s", _PERFORMANCE, None, 1, 0)


def parse_metrics(names: str | Iterable[str]) -> list[Metric]:
    """Look metrics up by name. Raises `UnknownColumnError` with the nearest name."""
    if not (names := as_names(names)):
        raise PpwError(f"no metric was given; the metrics are {', '.join(METRICS)}")
    for name in names:
        if name not in METRICS:
            raise UnknownColumnError(
                f"no metric {name!r}{headers.nearest(name, list(METRICS))}; "
                f"the metrics are {', '.join(METRICS)}"
            )
    return [METRICS[name] for name in names]


def answerable(runs: pd.DataFrame) -> list[Metric]:
    """List the metrics that the table's columns can answer. Raises where there is none."""
    found = [m for m in METRICS.values() if columns_for(m, runs)]
    if not found:
        raise UnknownColumnError(
            f"{runs.attrs.get('source', 'runs')}: nothing to project: no time_s, cpi, "
            "throughput_ops_s or power_w among the columns "
            f"{headers.list_names(list(runs.columns))}: rename a column, or use --map time_s=COLUMN"
        )
    return found


def columns_for(metric: Metric, runs: pd.DataFrame) -> tuple[str, ...] | None:
    """Columns that a metric is taken from; None where the table lacks them or has them empty."""
    for columns in metric.columns:
        if all(c in runs.columns and runs[c].notna().any() for c in columns):
            return columns
    return None


def needed_columns(metrics: Iterable[Metric], runs: pd.DataFrame) -> list[str]:
    """List the columns that the metrics need from this table, the frequency first."""
    needed = {"freq_hz": None}
    for metric in metrics:
        columns = columns_for(metric, runs) or _nearest_columns(metric, runs)
        needed |= dict.fromkeys(columns)
    return list(needed)


def _nearest_columns(metric: Metric, runs: pd.DataFrame) -> tuple[str, ...]:
    """Columns of the way to a metric that lacks fewest, whether there or not."""
    lacking = {w: [c for c in dict.fromkeys(w) if c not in runs.columns] for w in metric.columns}
    way = min(lacking, key=lambda w: len(lacking[w]))
    fewest = len(lacking[way])
    parts = dict.fromkeys(c for way in metric.columns for c in way)
    has = [c for c in parts if c in runs.columns and runs[c].notna().any()]
    if fewest and (has or fewest > 1) and "freq_hz" in runs.columns:
        wanted = [names for names in lacking.values() if len(names) == fewest]
        raise UnknownColumnError(_lacking_columns_text(metric, wanted, has, runs))
    return way


def _lacking_columns_text(
    metric: Metric, wanted: Sequence[Sequence[str]], has: Sequence[str], runs: pd.DataFrame
) -> str:
    """Say which columns a metric needs, each way to get it, and what the table has of them."""
    first, *others = dict.fromkeys(" and ".join(names) for names in wanted)
    choice = f"{first} (or {', or '.join(others)})" if others else first
    watts = all(set(names) <= {"power_w", "energy_j"} for names in wanted)
    column = wanted[0][0]
    meant = headers.nearest(column, [c for c in runs.columns if c not in schema.COLUMNS])
    pasted = headers.map_to_paste(column, list(map(str, runs.columns)))
    there = f"the columns are {headers.list_names(list(runs.columns))}"
    if has:
        there = f"this table has {' and '.join(has)} but no {'power' if watts else column}"
    return (
        f"{runs.attrs.get('source', 'runs')}: {metric.name} needs {choice}: {there}{meant}: "
        f"measure it, or use {pasted or f'--map {column}=COLUMN'}"
    )


def values(metric: Metric, runs: pd.DataFrame) -> FloatArray:
    """Measured values of a metric, one a row, or means of cells; NaN where not measured."""
    if gr.is_aggregated(runs, metric.name):
        return runs[gr.mean_column(metric.name)].to_numpy(dtype=np.float64)
    array = {c: runs[c].to_numpy(dtype=np.float64) for c in source_columns(metric, runs)}
    with np.errstate(divide="ignore", invalid="ignore"):
        computed: FloatArray = quantity(metric, array)
    return computed


def quantity(metric: Metric, columns: Mapping[str, gr.Values]) -> gr.Values:
    """Compute a metric of its columns, which may be arrays or an engine's."""
    performance = _performance(columns) if metric.name in _OF_PERFORMANCE else None
    if metric.name not in _VALUES:
        return next(iter(columns.values()))
    return _VALUES[metric.name](columns, performance)


def source_columns(metric: Metric, runs: pd.DataFrame) -> list[str]:
    """List the columns that `quantity` takes for a metric of this table."""
    columns = [*(columns_for(metric, runs) or metric.columns[0])]
    if metric.name in _OF_PERFORMANCE:
        columns += [c for (c,) in _PERFORMANCE if c in runs.columns]
    return list(dict.fromkeys(columns))


def _performance(c: Mapping[str, gr.Values]) -> gr.Values:
    """Work per second: throughput, or runs per second for rows without."""
    if "time_s" not in c:
        return c["throughput_ops_s"]
    per_run = 1 / c["time_s"]
    return gr.first_given(c["throughput_ops_s"], per_run) if "throughput_ops_s" in c else per_run


def _power_of_columns(c: Mapping[str, gr.Values], _: gr.Values = None) -> gr.Values:
    return c["power_w"] if "power_w" in c else c["energy_j"] / c["time_s"]


_OF_PERFORMANCE = frozenset({"performance", "perf_per_watt", "perf_per_dollar"})
# By metric its value, of its columns and of the performance; others are their only column.
_VALUES: dict[str, Callable[[Mapping[str, gr.Values], gr.Values], gr.Values]] = {
    "cpi": lambda c, _: c["cpi"] if "cpi" in c else c["cycles"] / c["instructions"],
    "power": _power_of_columns,
    "energy": lambda c, _: c["energy_j"] if "energy_j" in c else c["power_w"] * c["time_s"],
    "performance": lambda _, performance: performance,
    "perf_per_watt": lambda c, performance: performance / _power_of_columns(c),
    "perf_per_dollar": lambda c, performance: performance / c["price"],
}
