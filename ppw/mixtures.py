"""Columns that ppw does not know and that tell runs of one group apart: a host by another name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from measurements.schema import COLUMNS, FILE_COLUMN, ROW_COLUMN
from ppw.condensed import is_condensed_table
from ppw.metrics import values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from fitting.regression.lines import FloatArray, IntArray
    from ppw.caveats import Mask
    from ppw.grouping import Groups
    from ppw.metrics import Metric

# More values than this name runs, not kinds of runs.
_MOST_VALUES = 20
_MOST_ROWS = 200_000
# Of what is left of the runs after the clock: the share that the column has to explain, how far
# apart it sets its values, and how improbable that is by chance.
_LEAST_SHARE, _LEAST_RATIO, _CHANCE = 0.5, 1.03, 1e-3


class Mixed(NamedTuple):
    """A column, the metric that differs most by it, and the largest ratio between its values."""

    column: str
    metric: str
    ratio: float


def mixed_by(
    runs: pd.DataFrame, groups: Groups, metrics: Sequence[Metric], rows: Mask | None = None
) -> list[Mixed]:
    """Find columns that are neither ppw's nor in ``groups``, and by which one group's runs differ.

    What counts is what a straight line through logarithms of metric and frequency leaves: a column
    counts where its values were each measured at several frequencies and explain most of the rest.
    """
    if len(runs) > _MOST_ROWS or is_condensed_table(runs) or "freq_hz" not in runs:
        return []
    taken = slice(None) if rows is None else rows
    runs, codes = runs[taken], groups.codes[taken]
    known = {*COLUMNS, *groups.by, FILE_COLUMN, ROW_COLUMN}
    others = [c for c in map(str, runs.columns) if c not in known and _is_kind(runs[c])]
    if not others:
        return []
    left = {m.name: _residuals(runs, codes, m) for m in metrics if not m.factors}
    found = [max(_tried(runs, codes, c, left), key=lambda m: m.ratio, default=None) for c in others]
    return [mixed for mixed in found if mixed]


def _is_kind(column: pd.Series[Any]) -> bool:
    """Whether a column may name kinds of runs: texts or whole numbers, few of them."""
    if column.dtype.kind in "fcmM":
        return False
    try:
        return 2 <= column.nunique() <= _MOST_VALUES
    except TypeError:
        return False


def _residuals(runs: pd.DataFrame, codes: IntArray, metric: Metric) -> FloatArray:
    """Logarithm of a metric less the group's line against that of frequency; NaN without one."""
    amount = np.asarray(values(metric, runs), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.where(amount > 0, np.log(amount), np.nan)
    x = np.log(runs["freq_hz"].to_numpy(dtype=np.float64))
    x = np.where(np.isnan(y), np.nan, x)
    x, y = x - _means(codes, x)[codes], y - _means(codes, y)[codes]
    spread = _sums(codes, x * x)
    slope = np.divide(_sums(codes, x * y), spread, out=np.zeros_like(spread), where=spread > 0)
    made: FloatArray = y - slope[codes] * x
    return made


def _sums(codes: IntArray, amounts: FloatArray) -> FloatArray:
    return np.bincount(codes, np.nan_to_num(amounts)).astype(np.float64)


def _means(codes: IntArray, amounts: FloatArray) -> FloatArray:
    count = _sums(codes, (~np.isnan(amounts)).astype(np.float64))
    made: FloatArray = _sums(codes, amounts) / np.maximum(count, 1)
    return made


def _tried(
    runs: pd.DataFrame, codes: IntArray, column: str, left: dict[str, FloatArray]
) -> Iterator[Mixed]:
    import pandas as pd

    frame = pd.DataFrame({"group": codes, "hz": runs["freq_hz"].to_numpy()})
    frame["value"] = pd.factorize(runs[column])[0]
    for name, residual in left.items():
        known = frame.assign(left=residual)[(frame["value"] >= 0).to_numpy() & ~np.isnan(residual)]
        cells = known.groupby(["group", "value"])
        swept = cells["hz"].transform("nunique") > 1
        several = known[swept].groupby("group")["value"].transform("nunique") > 1
        if (ratio := _ratio(known[swept][several])) > _LEAST_RATIO:
            yield Mixed(column, name, ratio)


def _ratio(rows: pd.DataFrame) -> float:
    """Largest ratio between values of a column within a group; 1 where chance may have made it."""
    from scipy.special import fdtrc

    if rows.empty:
        return 1.0
    cells = rows.groupby(["group", "value"])["left"]
    means = cells.mean()
    groups = rows["group"].nunique()
    whole = float((rows["left"] ** 2).sum())
    within = float(((rows["left"] - cells.transform("mean")) ** 2).sum())
    more, rest = len(means) - groups, len(rows) - len(means) - groups
    if rest < 1 or whole - within < _LEAST_SHARE * whole:
        return 1.0
    f = (whole - within) / more / max(within / rest, np.finfo(float).tiny)
    if fdtrc(more, rest, f) > _CHANCE:
        return 1.0
    apart = means.groupby("group").agg(np.ptp)
    return float(np.exp(apart.max()))
