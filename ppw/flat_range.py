"""The range of data sizes in which throughput does not depend on them.

Inside it the work per byte is constant, and one run tells of all others; below it start-up shows,
above it caches, memory or disks do. Published as Figures 3 and 4 of Issa & Figueira (2012),
https://doi.org/10.1186/2192-113X-1-10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from measurements.checks import identity_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.regression.lines import FloatArray

FLAT_COLUMNS = (
    *("sizes", "flat_sizes", "flat_from_bytes", "flat_to_bytes"),
    *("throughput", "throughput_unit", "spread"),
)


class FlatRange(NamedTuple):
    """Neighbouring data sizes with nearly one throughput.

    Attributes
    ----------
    first, last : int
        Places of the smallest and the largest of them among all sizes.
    spread : float
        Highest less lowest throughput, as a share of the lowest.
    """

    first: int
    last: int
    spread: float


def widest_flat_range(
    sizes: FloatArray, throughput: FloatArray, *, tolerance: float
) -> FlatRange | None:
    """Find the neighbouring sizes that reach furthest with throughputs within a tolerance.

    Parameters
    ----------
    sizes : (points,) float array
        Ascending, above 0.
    throughput : (points,) float array
        At each size, above 0.
    tolerance : float
        Highest over lowest throughput less 1, at most.

    Returns
    -------
    FlatRange or None
        That with the greatest ratio of its sizes; None where no two neighbours agree.
    """
    best: FlatRange | None = None
    reach = 0.0
    for first in range(len(sizes)):
        for last in range(first + 1, len(sizes)):
            part = throughput[first : last + 1]
            spread = float(part.max() / part.min() - 1)
            # Of two that reach as far the larger data: there start-up shows least.
            if spread <= tolerance and sizes[last] / sizes[first] >= reach:
                best, reach = FlatRange(first, last, spread), float(sizes[last] / sizes[first])
    return best


def flat_ranges(runs: pd.DataFrame, *, tolerance: float) -> pd.DataFrame:
    """Find the flat range of each group of a runs table that differs in its data size alone.

    Parameters
    ----------
    runs : pandas.DataFrame
        Canonical columns. Throughput is ``throughput_ops_s`` where measured, else bytes a second.
        Runs of a service at less than full load take no part.
    tolerance : float

    Returns
    -------
    pandas.DataFrame
        Key columns and `FLAT_COLUMNS`; a row for each group with two data sizes or more. The flat
        columns are missing where no two neighbouring sizes agree.
    """
    keys = [c for c in (*identity_columns(runs), "freq_hz") if c in runs and c != "data_bytes"]
    if "data_bytes" not in runs:
        return pd.DataFrame(columns=[*keys, *FLAT_COLUMNS])
    points = _points(runs)
    rows: list[dict[str, Any]] = []
    groups = points.groupby(keys, dropna=False, sort=True) if keys else [((), points)]
    for key, part in groups:
        unit = "1/s" if part["service"].any() else "B/s"
        alike = part[part["service"] == part["service"].any()]
        means = alike.groupby("data_bytes")["rate"].mean().sort_index()
        if len(means) < 2:
            continue
        found = widest_flat_range(
            means.index.to_numpy(dtype=np.float64),
            means.to_numpy(dtype=np.float64),
            tolerance=tolerance,
        )
        names = dict(zip(keys, key, strict=True))
        rows.append({**names, "sizes": len(means), "throughput_unit": unit, **_said(means, found)})
    return pd.DataFrame(rows, columns=[*keys, *FLAT_COLUMNS])


def _points(runs: pd.DataFrame) -> pd.DataFrame:
    """Rows with a data size and a throughput, at full load."""
    missing = pd.Series(np.nan, index=runs.index)
    rate = runs.get("throughput_ops_s", missing)
    by_time = runs["data_bytes"] / runs.get("time_s", missing)
    load = runs.get("load", missing)
    table = runs.assign(service=rate.notna(), rate=rate.where(rate.notna(), by_time))
    # Where the full load is marked, rows without a mark are of a client that was too small.
    unmarked = load.isna() & ~(table["service"] & bool(load.notna().any()))
    full = unmarked | (load - 1.0).abs().le(1e-9)
    return table.loc[full & table["rate"].gt(0) & table["data_bytes"].gt(0)]


def _said(means: pd.Series[Any], found: FlatRange | None) -> dict[str, Any]:
    if found is None:
        return {}
    inside = means.iloc[found.first : found.last + 1]
    return {
        "flat_sizes": len(inside),
        "flat_from_bytes": float(inside.index[0]),
        "flat_to_bytes": float(inside.index[-1]),
        "throughput": float(inside.mean()),
        "spread": found.spread,
    }


def flat_sentence(row: dict[str, Any], by: Sequence[str]) -> str:
    """Say a row of `flat_ranges` in words."""
    from ppw.estimate import key_texts, shown

    name = " ".join(key_texts(by, row)) or "runs"
    if row["flat_sizes"] != row["flat_sizes"]:
        return f"{name}: throughput changes from each of {row['sizes']} data sizes to the next"
    unit = row["throughput_unit"]
    rate = shown(row["throughput"], unit if unit != "B/s" else "") + " B/s" * (unit == "B/s")
    return (
        f"{name}: throughput is flat from {shown(row['flat_from_bytes'], 'B')} to "
        f"{shown(row['flat_to_bytes'], 'B')}, {rate} within {row['spread']:.1%} "
        f"({row['flat_sizes']:.0f} of {row['sizes']} sizes)"
    )
