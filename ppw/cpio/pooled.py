"""Rates of several runs together: ratios of their sums, and how sure the cycles per I/O are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import cycles_per_io
from ppw.cpio.runs import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from pandas.core.groupby import DataFrameGroupBy

    from fitting.regression.lines import FloatArray

_SUMMED = (
    *("time_s", "busy_s", "unused_s", "all_user_s", "all_system_s", "waited_s", "ios"),
    *("user_cycles", "system_cycles", "idle_cycles", "sectors_read", "sectors_written"),
)


def pooled_rates(table: pd.DataFrame, cells: DataFrameGroupBy[Any, Any]) -> pd.DataFrame:
    """Ratios of the sums over the runs of each cell.

    A mean of ratios would let a run, or a window of a log, that did next to no I/O decide the
    cycles per I/O of all, and would not go with the I/O rate and the utilisation beside it. Runs
    without I/O are in no sum, unless the cell has no other.
    """
    by, good = cells.ngroup(), _counted(table)
    kept = good | ~good.groupby(by).transform("any")
    sums = table.assign(waited_s=column(table, "iowait_s").fillna(0.0))[[*_SUMMED]].where(kept)
    total = sums.groupby(by).sum(min_count=1).set_axis(cells.size().index)
    busy = total["user_cycles"] + total["system_cycles"]
    ios, seconds = total["ios"], (total["busy_s"] + total["unused_s"]).where(lambda s: s > 0)
    idle_s = total["unused_s"] - total["waited_s"]
    return pd.DataFrame(
        {
            "cpio": cycles_per_io(busy, ios),
            "user_cpio": cycles_per_io(total["user_cycles"], ios),
            "system_cpio": cycles_per_io(total["system_cycles"], ios),
            "cpio_with_idle": cycles_per_io(busy + total["idle_cycles"], ios),
            "utilisation": total["busy_s"] / seconds,
            "iops": ios / total["time_s"],
            "clock_hz": _clock(table, busy, total, by),
            "user_share": total["all_user_s"] / seconds,
            "system_share": total["all_system_s"] / seconds,
            "idle_share": idle_s / seconds,
            "iowait_share": total["waited_s"] / seconds,
            "time_s": total["time_s"],
            "user_s": total["all_user_s"],
            "system_s": total["all_system_s"],
            "idle_s": idle_s,
            "iowait_s": total["waited_s"],
            "sectors_read": total["sectors_read"],
            "sectors_written": total["sectors_written"],
        },
        index=total.index,
    )


def _clock(
    table: pd.DataFrame, busy: pd.Series[Any], total: pd.DataFrame, by: pd.Series[Any]
) -> pd.Series[Any]:
    """Cycles over busy time; where nothing was busy, the mean of the runs' clocks."""
    plain = table["clock_hz"].groupby(by).mean().set_axis(total.index)
    worked = total["busy_s"].where(total["busy_s"] > 0)
    return (busy / worked).fillna(plain)


def log_half_widths(
    table: pd.DataFrame,
    points: pd.DataFrame,
    codes: NDArray[np.integer[Any]],
    keys: Sequence[str],
    level: float,
) -> FloatArray:
    """Half widths of the intervals of ln R, with R = sum of cycles/sum of I/Os of each point.

    The variance is the jackknife's, of R with each of the n runs left out, about R; relative to
    R², to first order that of ln R. With y the cycles and x the I/Os of a run, it is s²/n with s²
    the sum of d² over n - 1, d = (y/R - x)/mean(x)·(1 - 1/n)/(1 - x/sum(x)). Runs of unlike size
    need the last factor: R leans to the largest (R. M. Royall, W. G. Cumberland, "An Empirical
    Study of the Ratio Estimator and Estimators of its Variance", JASA 76, 1981). s² is pooled over
    the points of a group (``keys``). On the logarithmic scale an interval of what is positive stays
    so. ``codes`` numbers the point of each run.
    """
    from fitting.regression.lines import student_quantile

    good, size = _counted(table).to_numpy(), len(points)
    at, ios = codes[good], table["ios"].to_numpy()[good]
    cycles = (table["user_cycles"] + table["system_cycles"]).to_numpy()[good]
    runs = np.bincount(at, minlength=size)
    total, n = np.bincount(at, ios, size)[at], runs[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        away = (cycles / points["cpio"].to_numpy()[at] - ios) * (n - 1) / (total - ios)
    away = np.where(n > 1, away, 0.0)
    code = points.groupby([*keys], dropna=False).ngroup() if keys else pd.Series(0, points.index)
    group = code.to_numpy()
    squares = np.bincount(group[at], away**2, group.max() + 1)
    df = np.bincount(group, runs - (runs > 0)).astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        scatter = student_quantile(df, level) * np.sqrt(np.where(df > 0, squares / df, np.nan))
        return np.asarray(scatter[group] / np.sqrt(runs))


def _counted(table: pd.DataFrame) -> pd.Series[bool]:
    """Runs that did I/O, at a clock that is known."""
    return (table["ios"] > 0) & table["clock_hz"].notna()
