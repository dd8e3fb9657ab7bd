"""Levels of power against load from the runs of one set-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements import identity_columns
from ppw.errors import PpwError
from ppw.full_load import FULL_LOAD

if TYPE_CHECKING:
    import pandas as pd

    from fitting.regression.lines import FloatArray

# Loads of runs are put together to the nearest percent: repeats never reach quite the same one.
_DIGITS = 2
# By how much a load that was asked for may differ from the throughput that came of it.
_BEHIND = 0.05
# Full load as it was measured may come out this much above 1 by chance.
_ABOVE = 0.05


class RunLevels(NamedTuple):
    """Mean watts and throughput of the runs at each load."""

    load: FloatArray
    watts: FloatArray
    rate: FloatArray
    name: str
    caveats: tuple[str, ...]


def setup_columns(runs: pd.DataFrame) -> list[str]:
    """Columns that tell set-ups apart: those of identity, and the frequency."""
    columns = [*identity_columns(runs), *(["freq_hz"] if "freq_hz" in runs else [])]
    return [column for column in columns if column != "load"]


def levels_of_runs(runs: pd.DataFrame, name: str = "") -> RunLevels:
    """Levels of the runs of one set-up; see `ppw.power_load.PowerLoadCurve.from_runs`."""
    source = str(runs.attrs.get("source", "runs"))
    varying = [c for c in setup_columns(runs) if len(runs[c].drop_duplicates()) > 1]
    if varying:
        raise PpwError(
            f"{source}: these runs differ in {', '.join(varying)}: a curve is of one set-up"
        )
    if "power_w" not in runs:
        raise PpwError(f"{source}: no column power_w: measure with a power sensor")
    if not name and "host" in runs and runs["host"].notna().any():
        name = str(runs["host"].dropna().iloc[0])
    caveats: list[str] = []
    load = _loads(runs, source)
    rate = _column(runs, "throughput_ops_s")
    watts = _column(runs, "power_w")
    known = ~(np.isnan(load) | np.isnan(watts))
    if not known.any():
        raise PpwError(f"{source}: no run has both its load and power_w")
    caveats += _behind(load[known], rate[known])
    means = _means(load[known], watts[known], rate[known])
    caveats += _of_full(means, source)
    means, said_of_idle = _with_idle(means, _column(runs, "idle_power_w"))
    caveats += said_of_idle
    who = f"{name}: " if name else ""
    said = tuple(f"{who}{caveat}" for caveat in caveats)
    return RunLevels(means[0], means[1], means[2], name, said)


def _of_full(means: FloatArray, source: str) -> list[str]:
    """Make full load 1, in place: the mean of the runs that are; what is to be said of that."""
    top = float(means[0][-1])
    if top < FULL_LOAD:
        return []
    means[0] = np.minimum(means[0] / top, 1.0)
    if top <= 1 + _ABOVE:
        return []
    if np.isnan(means[2][-1]):
        raise PpwError(
            f"{source}: load {top:g} is more than full load, which is 1: give shares of full load, "
            "percent as 50% or in a column load_pct, or the rates as throughput_ops_s"
        )
    return [
        f"a load of {top:.4g} was reached, which is more than full load: it is taken for that, and "
        "the others for shares of it"
    ]


def _with_idle(means: FloatArray, idle: FloatArray) -> tuple[FloatArray, list[str]]:
    """Levels with that of idle, which runs at load 0 are too."""
    idle = idle[idle > 0]
    said = []
    if means[0][0] > 0:
        if idle.size:
            means = np.column_stack([[0.0, idle.mean(), 0.0], means])
        else:
            said = ["idle was not measured: no figure of energy proportionality is given"]
    if idle.size and np.ptp(idle) > 0.1 * idle.mean():
        said.append(f"idle watts differ from {idle.min():.4g} to {idle.max():.4g} between runs")
    return means, said


def _loads(runs: pd.DataFrame, source: str) -> FloatArray:
    load = _column(runs, "load")
    if not np.isnan(load).all():
        return load
    rate = _column(runs, "throughput_ops_s")
    if np.isnan(rate).all():
        raise PpwError(f"{source}: no column load, nor throughput_ops_s to take it from")
    shares: FloatArray = rate / np.nanmax(rate)
    return shares


def _column(runs: pd.DataFrame, name: str) -> FloatArray:
    if name not in runs:
        return np.full(len(runs), np.nan)
    return runs[name].to_numpy(dtype=np.float64)


def _means(load: FloatArray, watts: FloatArray, rate: FloatArray) -> FloatArray:
    """Means of load, watts and rate at each load to the nearest percent, rising."""
    _, level = np.unique(load.round(_DIGITS), return_inverse=True)
    count = np.bincount(level)
    rows = [np.bincount(level, values) / count for values in (load, watts, rate)]
    made: FloatArray = np.array(rows)
    return made


def _behind(load: FloatArray, rate: FloatArray) -> list[str]:
    full = rate[load >= FULL_LOAD]
    full = full[~np.isnan(full)]
    if not full.size:
        return []
    short = np.abs(rate / full.mean() - load) > _BEHIND
    if not short.any():
        return []
    return [
        f"{int(short.sum())} of {load.size} runs did not reach the rate that their load asks for: "
        "their watts are of another load than they say"
    ]
