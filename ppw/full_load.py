"""Which runs show what a host can do: some were held at a share of the load that it can take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from measurements.checks import as_numbers

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from fitting.regression.lines import IntArray

    Mask = NDArray[np.bool_]

# Share of the highest throughput from which a run is at full load.
FULL_LOAD = 0.995


def at_full_load(runs: pd.DataFrame, group: IntArray | None = None) -> Mask:
    """Tell the runs at full load, group by group.

    Where the column ``load`` says that some runs of a group are at full load, only these are:
    others were held at a rate, or had too few clients. Where it says so of none, those are of
    which it says nothing.

    Parameters
    ----------
    runs : pandas.DataFrame
    group : (runs,) int array, optional
        Number of each run's group; by default all are one group.
    """
    if "load" not in runs.columns or not len(runs):
        return np.ones(len(runs), dtype=bool)
    load = as_numbers(runs["load"]).to_numpy()
    group = np.zeros(len(runs), dtype=np.int64) if group is None else group
    full = load >= FULL_LOAD
    some = np.bincount(group, full) > 0
    found: Mask = np.where(some[group], full, np.isnan(load))
    return found
