"""Workloads that are another one's runs, multiplied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from measurements import identity_columns
from ppw.checks.check import ALL_METRICS, Check, Found, nothing, numbers
from ppw.checks.digits import recorded_step
from ppw.condensed import (
    finest_column,
    is_condensed,
    is_condensed_table,
    key_columns,
    run_counts,
)
from ppw.grouping import Groups, group_runs

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray

_SETTINGS, _TIMES = 6, 4
# With the same watts to a thousandth in every run, a time that is as fine is enough. Without
# watts the times must be finer than any machine repeats: two programs that the clock alone
# decides on are multiples of each other to a ten-thousandth.
_FINE = 1e-3
_FINER_THAN_ANY_REPEAT = 1e-6
# What binary numbers lose beyond the recorded digits.
_BINARY = 1e-9
# So many steps from setting to setting in common make two workloads worth comparing.
_WORTH = 3


def find(runs: pd.DataFrame, groups: Groups) -> Found:
    """Find workloads whose times are an exact multiple of another's on the same host.

    Two workloads are held against each other over the settings that both have (cores, threads,
    data size, whatever else is in ``by``, frequency; means where there are repeats): at least
    six, with at least four different times. The ratio must be the same at all of them to the
    recorded digits. The watts, where both have them, must be the same, vary, and like the times
    be recorded to a thousandth or finer; without watts the times must be to a millionth. The
    workload with the larger time is named, at a ratio of 1 the one whose name comes last.
    """
    if runs["workload"].nunique(dropna=False) < 2:
        return nothing()
    rows = _rows(runs, groups)
    if rows.empty:
        return nothing()
    cells = _cells(rows)
    pairs = _candidates(cells)
    if pairs.empty:
        return nothing()
    return _described(_copies(pairs, cells), rows)


def _rows(runs: pd.DataFrame, groups: Groups) -> pd.DataFrame:
    """Rows of series long enough, a series being a workload on a host; with their position."""
    whose = [c for c in ("host", "family") if c in runs.columns]
    each = pd.Series(run_counts(runs), index=runs.index)
    size = each.groupby([runs[c] for c in (*whose, "workload")], dropna=False).transform("sum")
    position = np.flatnonzero(size >= _SETTINGS)
    if not position.size:
        return pd.DataFrame()
    runs = runs.iloc[position]
    series = group_runs(runs, [*whose, "workload"]).codes
    identity = dict.fromkeys([*_identity(runs), *groups.by, "freq_hz"])
    setting = group_runs(runs, [c for c in identity if c not in (*whose, "workload")]).codes
    time, rate = numbers(runs, "time_s"), numbers(runs, "throughput_ops_s")
    frame = pd.DataFrame(
        {
            "position": position,
            "host": group_runs(runs, whose).codes,
            "workload": runs["workload"].to_numpy(),
            "series": series,
            "setting": setting,
            "time": np.where(np.isnan(time), 1 / rate, time),
            "power": numbers(runs, "power_w"),
            "runs": run_counts(runs),
        }
    )
    finest = np.where(np.isnan(time), _finest(runs, "throughput_ops_s"), _finest(runs, "time_s"))
    frame["time_step"] = finest / np.where(np.isnan(time), rate * rate, 1.0)
    frame["power_step"] = _finest(runs, "power_w")
    return frame[frame["time"].notna()]


def _identity(runs: pd.DataFrame) -> list[str]:
    return identity_columns(runs[key_columns(runs)] if is_condensed_table(runs) else runs)


def _finest(runs: pd.DataFrame, column: str) -> FloatArray:
    """Decimal step that each row's values are recorded to."""
    if is_condensed(runs, column):
        return numbers(runs, finest_column(column))
    return recorded_step(np.nan_to_num(numbers(runs, column)))


def _cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Means by series and setting; the steps of the record are the finest of the series."""
    finest = rows.groupby("series")[["time_step", "power_step"]].transform("min")
    cells = rows.assign(**finest).groupby(["series", "setting"], sort=True, as_index=False)
    columns = {c: (c, "first") for c in ("host", "workload", "time_step", "power_step")}
    made = cells.agg(time=("time", "mean"), power=("power", "mean"), **columns)
    if (rows["runs"] == 1).all():
        return made
    weighted = rows.assign(time=rows["time"] * rows["runs"], power=rows["power"] * rows["runs"])
    sums = weighted.groupby(["series", "setting"], sort=True, as_index=False)
    total = sums[["time", "power", "runs"]].sum(min_count=1)
    return made.assign(time=total["time"] / total["runs"], power=total["power"] / total["runs"])


def _candidates(cells: pd.DataFrame) -> pd.DataFrame:
    """Pairs of series worth comparing: ``base`` and the ``series`` that may be its multiple.

    Series whose times go from one setting to the next by the same ratio, and have the same watts
    at both, meet in one bucket, so that no two others are ever compared.
    """
    before, after = cells.iloc[:-1].reset_index(drop=True), cells.iloc[1:].reset_index(drop=True)
    steps = before[["host", "series", "time", "setting"]].assign(
        next=after["setting"],
        ratio=np.log(after["time"] / before["time"]),
        # To seven digits: the mean of repeats depends on their order in the last.
        watts=before["power"].astype(np.float32),
        next_watts=after["power"].astype(np.float32),
    )[before["series"] == after["series"]]
    steps = steps.sort_values(["time", "series"])
    fine = np.where(steps["watts"].isna(), _FINER_THAN_ANY_REPEAT, _FINE)
    met = []
    # Two grids, so that no two ratios that are near are apart in both.
    for offset in (0.0, 0.5):
        steps["bucket"] = np.floor(steps["ratio"] / (4 * fine) + offset)
        keys = ["host", "setting", "next", "bucket", "watts", "next_watts"]
        base = steps.groupby(keys, dropna=False)["series"].transform("first")
        met.append(steps[["series"]].assign(base=base)[base != steps["series"]])
    pairs = pd.concat(met).groupby(["series", "base"], as_index=False).size()
    return pairs[pairs["size"] >= _WORTH]


def _copies(pairs: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """One row a copy and setting: ``series``, ``setting``, whose copy, and how many times it."""
    both = pairs[["series", "base"]].merge(cells, on="series")
    both = both.merge(
        cells.drop(columns="host"),
        left_on=["base", "setting"],
        right_on=["series", "setting"],
        suffixes=("", "_base"),
    )
    both["ratio"] = np.log(both["time"] / both["time_base"])
    by_pair = both.groupby(["series", "base"])
    ratio = by_pair["ratio"].transform("mean")
    step = both["time_step"] / both["time"] + both["time_step_base"] / both["time_base"] + _BINARY
    watts = by_pair["power"].transform("count") * by_pair["power_base"].transform("count") > 0
    good = (both["ratio"] - ratio).abs() <= step
    good &= step <= np.where(watts, _FINE, _FINER_THAN_ANY_REPEAT) + _BINARY
    good &= ~watts | _same_watts(both)
    counts = by_pair[["time", "power"]].transform("nunique")
    enough = (by_pair["ratio"].transform("size") >= _SETTINGS) & (counts["time"] >= _TIMES)
    enough &= ~watts | (counts["power"] >= _TIMES)
    copy = enough & good.groupby([both["series"], both["base"]]).transform("all")
    found = both.assign(ratio=np.exp(ratio), watts=watts)[copy]
    # A copy of a copy is named once, by the one that is first by name.
    return found.sort_values("base").drop_duplicates(["series", "setting"])


def _same_watts(both: pd.DataFrame) -> pd.Series[bool]:
    power, other = both["power"], both["power_base"]
    same = (power - other).abs() <= _BINARY * power.abs()
    return same & (both["power_step"] <= _FINE * power.abs())


def _described(copies: pd.DataFrame, rows: pd.DataFrame) -> Found:
    columns = ["series", "setting", "base", "workload_base", "ratio", "watts"]
    named = rows.drop(columns="workload").merge(copies[columns], on=["series", "setting"])
    named = named.sort_values("position")
    settings = named.groupby(["series", "base"])["setting"].transform("nunique")
    figures = {
        "workload": named["workload_base"].to_numpy(),
        "ratio": named["ratio"].to_numpy(),
        "settings": settings.to_numpy(),
        "watts": named["watts"].to_numpy(),
    }
    return Found(named["position"].to_numpy(dtype=np.int64), figures)


def _say(workload: str, ratio: float, settings: int, watts: bool) -> str:
    times = "the same times as" if abs(ratio - 1) < _FINE else f"exactly {ratio:.6g} times"
    with_watts = ", with the same watts" if watts else ""
    those = workload if times.startswith("the same") else f"those of {workload}"
    return f"{times} {those} at all {settings} settings that both have{with_watts}"


EXACT_MULTIPLE = Check(
    name="exact_multiple",
    meaning="the times of a workload are an exact multiple of another's on the same host: one "
    "measurement under two names",
    remedy="leave one of the two workloads out, or measure it",
    needs=(("workload",), ("time_s", "throughput_ops_s")),
    spoils=ALL_METRICS,
    find=find,
    say=_say,
)
