"""The points of sweeps: what was set, what came of it, and what failed, from a runs table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from measurements import check_runs, identity_columns
from measurements.checks import as_numbers
from measurements.headers import column_meant, nearest, shown
from measurements.runs import renamed_headers
from measurements.schema import COLUMNS
from ppw.errors import PpwError, UnknownColumnError
from ppw.estimate import shown as amount
from ppw.full_load import FULL_LOAD
from ppw.grouping import group_runs
from ppw.prepare import canonical
from ppw.tabled_result import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# Names that people use, and the columns that hold them.
SETTINGS = {
    "object_size": "data_bytes",
    "data_size": "data_bytes",
    "data": "data_bytes",
}
MEASURES = {
    "throughput": "throughput_ops_s",
    "latency": "latency_p99_s",
    "time": "time_s",
}
FAILURE = "failure"
# What else tells set-ups apart, beside identity: the settings of the workloads that ppw runs.
_SETUP = (
    *("freq_hz", "instances", "partitions", "connections", "keys_per_request", "get_share"),
    *("client", "pattern", "queue_depth"),
)
_PERFORMANCE = "throughput_ops_s"


class Sweeps(NamedTuple):
    """Points of sweeps, and what they are called.

    ``points`` has a row a run: ``sweep`` (its number), ``x``, ``y`` (NaN where it failed),
    ``failed``, ``failure``, ``performance`` and ``power_w``. ``names`` and ``keys`` have an
    element a sweep; ``held_back`` counts the runs at less than full load, which take no part.
    """

    points: pd.DataFrame
    names: list[str]
    keys: pd.DataFrame
    over: str
    of: str
    of_unit: str
    held_back: int


def sweep_points(
    runs: pd.DataFrame, *, over: str, of: str, by: Sequence[str] | None = None
) -> Sweeps:
    """Take the points of sweeps from a runs table.

    A run failed whose column ``failure`` says why, or that has neither time nor throughput nor
    ``of``: missing values alone are no failure.

    Parameters
    ----------
    runs : pandas.DataFrame
    over : str
        Column that was set, or one of `SETTINGS`; a hyphen is as good as an underscore.
    of : str
        Column that came of it, or one of `MEASURES`. Throughput of runs that have only a time is
        data by time.
    by : sequence of str, optional
        Columns that tell sweeps apart; by default those that identify set-ups, but for those that
        go with ``over``.

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        Where a column is not there, or nothing was measured.
    """
    table = check_runs(canonical(runs), by=[])
    source = str(runs.attrs.get("source", "runs"))
    setting = _column(table, over, SETTINGS, source)
    table = _with_throughput(table, of)
    measure = _column(table, of, MEASURES, source)
    load = as_numbers(table["load"]) if "load" in table else pd.Series(np.nan, table.index)
    held_back = load.lt(FULL_LOAD)
    table = table[~held_back]
    x = as_numbers(table[setting])
    known = x.notna() & x.gt(0)
    table, x = table[known], x[known]
    keys = _keys(table, setting, x) if by is None else list(by)
    y = as_numbers(table[measure]).where(lambda v: v > 0)
    if not y.notna().any():
        raise PpwError(f"{source}: no run has both {setting} above 0 and {measure}")
    failure = _failures(table, y)
    told = y.notna() | failure.ne("")
    table, x, y, failure = table[told], x[told], y[told].mask(failure.ne("")), failure[told]
    groups = group_runs(table, keys)
    points = pd.DataFrame(
        {
            "sweep": groups.codes,
            "x": x.to_numpy(),
            "y": y.to_numpy(),
            "failed": failure.ne("").to_numpy(),
            FAILURE: failure.to_numpy(),
            "performance": _performance(table, setting, y if measure == _PERFORMANCE else None),
            "power_w": _numbers(table, "power_w"),
        }
    )
    names = [_name(row, keys) for row in rows_of(groups.keys)]
    by_time = measure == _PERFORMANCE and _PERFORMANCE not in canonical(runs)
    unit = "B/s" if by_time else column_unit(measure)
    # One order, so that sums do not depend on that of the rows.
    points = points.sort_values(["sweep", "x", "y"], ignore_index=True)
    return Sweeps(points, names, groups.keys, setting, measure, unit, int(held_back.sum()))


def _column(table: pd.DataFrame, name: str, known: dict[str, str], source: str) -> str:
    columns = [str(c) for c in table.columns]
    plain = name.replace("-", "_")
    column = _same_but_for_case((name, plain), columns) or known.get(plain.lower(), plain)
    if column not in columns and (meant := _by_header(table, (name, plain), columns)):
        column = meant
    if column not in columns:
        raise UnknownColumnError(
            f"{source}: no column {column}{nearest(column, list(table.columns))}; the columns are "
            f"{shown(list(table.columns))}"
        )
    return column


def _same_but_for_case(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """Column of one of the names, in the case as it is typed where there are several."""
    for name in names:
        if name in columns:
            return name
    for name in names:
        if len(same := [c for c in columns if c.lower() == name.lower()]) == 1:
            return same[0]
    return None


def _by_header(table: pd.DataFrame, names: Sequence[str], columns: Sequence[str]) -> str | None:
    """Column that a header of the file's own became, or would have become."""
    headers = renamed_headers(table)
    for name in names:
        own = _same_but_for_case((name,), list(headers))
        if meant := column_meant(own or name, columns, headers):
            return meant.canonical
    return None


def _with_throughput(table: pd.DataFrame, of: str) -> pd.DataFrame:
    wanted = MEASURES.get(of.lower(), of) == _PERFORMANCE
    if not wanted or _PERFORMANCE in table or not {"data_bytes", "time_s"} <= set(table.columns):
        return table
    return table.assign(**{_PERFORMANCE: table["data_bytes"] / table["time_s"]})


def _keys(table: pd.DataFrame, setting: str, x: pd.Series[float]) -> list[str]:
    """Columns of set-ups, but for one that is another name for the setting."""
    candidates = [*identity_columns(table), *(c for c in _SETUP if c in table)]
    kept = []
    for column in dict.fromkeys(candidates):
        values = table[column]
        if column == setting or not len(values.drop_duplicates()) > 1:
            continue
        if x.groupby(values, dropna=False).nunique().gt(1).any():
            kept.append(column)
    return kept


def _failures(table: pd.DataFrame, y: pd.Series[float]) -> pd.Series[str]:
    """Why each run failed; "" where it did not."""
    said = pd.Series("", index=table.index, dtype=object)
    if FAILURE in table:
        said = table[FAILURE].astype(object).where(table[FAILURE].notna(), "").map(str).str.strip()
    done = y.notna()
    for column in ("time_s", _PERFORMANCE):
        if column in table:
            done |= table[column].notna()
    return said.mask(~done & said.eq(""), "failed")


def _performance(table: pd.DataFrame, setting: str, own: pd.Series[float] | None) -> np.ndarray:
    """Work per second: throughput, or data or one job by time."""
    if own is not None:
        return own.to_numpy()
    rate, time = _numbers(table, _PERFORMANCE), _numbers(table, "time_s")
    work = table[setting].to_numpy(dtype=np.float64) if setting == "data_bytes" else 1.0
    return np.where(np.isnan(rate), work / time, rate)


def _numbers(table: pd.DataFrame, column: str) -> np.ndarray:
    if column not in table:
        return np.full(len(table), np.nan)
    return as_numbers(table[column]).to_numpy()


def _name(row: dict[str, Any], keys: Sequence[str]) -> str:
    return ", ".join(_said(c, row[c]) for c in keys if row[c] == row[c]) or "runs"


def column_unit(column: str) -> str:
    """Unit of a column: that of the schema, else what its name ends in; "" where it has none."""
    if column in COLUMNS:
        unit = COLUMNS[column].unit
        return "" if unit == "1" else unit
    ends = {"_bytes": "B", "_bytes_s": "B/s", "_ops_s": "1/s", "_s": "s", "_hz": "Hz", "_w": "W"}
    return next((unit for end, unit in ends.items() if column.endswith(end)), "")


def _said(column: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    unit = column_unit(column)
    return amount(float(value), unit) if unit in ("Hz", "B") else f"{column} {value:g}"
