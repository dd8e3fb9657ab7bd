"""What one host did in one workload: the measures of a characterisation, from its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.bayes.steps import SAME_STEP
from measurements.memory_counters import llc_misses_per_byte
from ppw.errors import PpwError
from ppw.estimate import shown
from ppw.full_load import at_full_load
from ppw.sides import scope_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray

    Mask = NDArray[np.bool_]


class Measure(NamedTuple):
    """One measure: its name, unit and printed table."""

    name: str
    unit: str
    table: str


class Measured(NamedTuple):
    """One host in one workload.

    Attributes
    ----------
    key : tuple of str
        The workload, to be looked up by.
    keys : tuple
        The same as values of the table.
    host : str
    freq_hz : float
        NaN where not known.
    runs : int
    measures : mapping of str to float
        Mean of each measure over the runs; NaN where not measured.
    price : float
    scope : str
        Of its watts; empty where not known.
    """

    key: tuple[str, ...]
    keys: tuple[Any, ...]
    host: str
    freq_hz: float
    runs: int
    measures: Mapping[str, float]
    price: float
    scope: str


class _Columns(dict[str, "FloatArray"]):
    """Columns of some runs as numbers; one that the table lacks is NaN."""

    def __init__(self, rows: pd.DataFrame) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, column: str) -> FloatArray:
        if column not in self._rows:
            return np.full(len(self._rows), np.nan)
        return self._rows[column].to_numpy(dtype=np.float64)


def _column(name: str) -> Callable[[Mapping[str, FloatArray]], FloatArray]:
    return lambda runs: runs[name]


def _first(*found: FloatArray) -> FloatArray:
    """Take the first of several ways that gives a value, run by run."""
    made = found[0]
    for other in found[1:]:
        made = np.where(np.isnan(made), other, made)
    return made


def _performance(runs: Mapping[str, FloatArray]) -> FloatArray:
    return _first(runs["throughput_ops_s"], 1 / runs["time_s"])


def _power(runs: Mapping[str, FloatArray]) -> FloatArray:
    return _first(runs["power_w"], runs["energy_j"] / runs["time_s"])


def _energy(runs: Mapping[str, FloatArray]) -> FloatArray:
    return _first(runs["energy_j"], runs["power_w"] * runs["time_s"])


def _cpi(runs: Mapping[str, FloatArray]) -> FloatArray:
    return _first(runs["cpi"], runs["cycles"] / runs["instructions"])


def _misses_per_byte(runs: Mapping[str, FloatArray]) -> FloatArray:
    pairs = zip(runs["llc_misses"], runs["data_bytes"], strict=True)
    return np.array([llc_misses_per_byte(float(m), float(b)) for m, b in pairs])


_MEASURED, RATIOS = "Time, throughput and power", "Ratios to the reference"
_WORTH, _INSIDE = "Performance per watt and per price", "Processor and memory"
_LATENCY = "Latency"
# Printed tables in their order; that of the ratios has no measure of its own.
TABLES = (_MEASURED, RATIOS, _WORTH, _INSIDE, _LATENCY)

_OF_RUNS: dict[Measure, Callable[[Mapping[str, FloatArray]], FloatArray]] = {
    Measure("time", "s", _MEASURED): _column("time_s"),
    Measure("throughput", "1/s", _MEASURED): _column("throughput_ops_s"),
    Measure("power", "W", _MEASURED): _power,
    Measure("energy", "J/run", _MEASURED): _energy,
    Measure("perf/W", "1/J", _WORTH): lambda runs: _performance(runs) / _power(runs),
    Measure("perf/$", "1/s per price", _WORTH): lambda runs: _performance(runs) / runs["price"],
    Measure("CPI", "1", _INSIDE): _cpi,
    Measure("memory bandwidth", "B/s", _INSIDE): _column("memory_bandwidth_bytes_s"),
    Measure("memory latency", "s", _INSIDE): _column("memory_latency_s"),
    Measure("cache misses per byte", "1/B", _INSIDE): _misses_per_byte,
    Measure("median latency", "s", _LATENCY): _column("latency_p50_s"),
    Measure("99th percentile latency", "s", _LATENCY): _column("latency_p99_s"),
}
MEASURES = tuple(_OF_RUNS)


def measure_rows(
    runs: pd.DataFrame, keys: Sequence[str], prices: Mapping[str, float], freq: float | None
) -> list[Measured]:
    """Measure every host in every workload.

    Parameters
    ----------
    runs : pandas.DataFrame
        Checked, in canonical columns.
    keys : sequence of str
        Columns that tell workloads apart.
    prices : mapping of str to float
        By host, in place of the column ``price``.
    freq : float or None
        Hz; None takes the highest of each host and workload.
    """
    made = []
    grouped = runs.groupby([*keys, "host"], sort=True, dropna=False)
    for key, rows in grouped:
        values = key if isinstance(key, tuple) else (key,)
        chosen, at = _at_frequency(rows, freq)
        if len(chosen):
            made.append(_measured(values[:-1], str(values[-1]), chosen, at, prices))
    if not made:
        raise PpwError(f"no host was measured at {shown(freq, 'Hz')}: leave freq out, or measure")
    return made


def _at_frequency(rows: pd.DataFrame, freq: float | None) -> tuple[pd.DataFrame, float]:
    """Runs of one frequency, at full load."""
    rows = rows[at_full_load(rows)]
    if "freq_hz" not in rows or rows["freq_hz"].isna().all():
        return rows, float("nan")
    at = float(rows["freq_hz"].max()) if freq is None else freq
    return rows[(rows["freq_hz"] / at - 1).abs() <= SAME_STEP], at


def _measured(
    keys: tuple[Any, ...],
    host: str,
    rows: pd.DataFrame,
    at: float,
    prices: Mapping[str, float],
) -> Measured:
    columns = _Columns(rows)
    if host in prices:
        columns["price"] = np.full(len(rows), prices[host])
    with np.errstate(divide="ignore", invalid="ignore"):
        measures = {m.name: _mean(of_runs(columns)) for m, of_runs in _OF_RUNS.items()}
    return Measured(
        key=tuple(map(str, keys)),
        keys=keys,
        host=host,
        freq_hz=at,
        runs=len(rows),
        measures=measures,
        price=_mean(columns["price"]),
        scope=_scope(rows),
    )


def speed_up(one: Measured, other: Measured) -> float:
    """Speed-up of one host over another, of what both were measured in; NaN for neither."""
    rates = one.measures["throughput"] / other.measures["throughput"]
    times = other.measures["time"] / one.measures["time"]
    return times if np.isnan(rates) else rates


def _mean(values: FloatArray) -> float:
    """Mean of the runs that have it; NaN where none has, or what has none cannot be."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _scope(rows: pd.DataFrame) -> str:
    if "power_source" not in rows:
        return ""
    scopes = {scope_of(source) for source in rows["power_source"].dropna().unique()}
    return " and ".join(sorted(scope for scope in scopes if scope))
