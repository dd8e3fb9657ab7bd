"""Phases of one recording: stretches in which it asks the same of its host."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from fitting.demand.phases import change_points

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

SHORTEST = 3
# Changes count by what the run reached, and by this where it reached less: a little of a large host
# can be a phase, a trickle cannot.
_LEAST_RATE = 20e6
_LEAST_CORES = 1.0
_LEAST_SHARE = 0.1
_REACHED = 0.95


def find_phases(demand: pd.DataFrame, *, shortest: int = SHORTEST) -> list[tuple[int, int]]:
    """Divide demand into phases by changes of CPU time, iowait, memory traffic, disk and network.

    Memory in use is left out: it grows without end in many a phase.

    Parameters
    ----------
    demand : pandas.DataFrame
        As of `ppw.pressure.demand.demand_of`.
    shortest : int
        Intervals of the shortest phase, at least 2.

    Returns
    -------
    list of (int, int)
        First row of each phase, and the row after its last; one phase where nothing changes.

    Raises
    ------
    FittingError
        When ``shortest`` is below 2.
    """
    ends = [0, *change_points(_signals(demand), shortest=shortest), len(demand)]
    return list(itertools.pairwise(ends))


def _signals(demand: pd.DataFrame) -> Numbers:
    """Series in shares of what the run reached."""
    disk = demand["disk_read_bytes_s"] + demand["disk_written_bytes_s"]
    network = demand[["network_rx_bytes_s", "network_tx_bytes_s"]].max(axis=1)
    least = [
        (demand["cpu_cores"], _LEAST_CORES),
        (demand["iowait_share"], _LEAST_SHARE),
        (demand["memory_bandwidth_bytes_s"], _LEAST_RATE),
        (disk, _LEAST_RATE),
        (network, _LEAST_RATE),
        (demand["loopback_bytes_s"], _LEAST_RATE),
    ]
    # What is reached for a moment alone counts no more than what is reached for long.
    shares = [np.minimum(rate / _scale(rate, most), 1.0) for rate, most in least]
    return np.column_stack(shares)


def _scale(rate: pd.Series[float], least: float) -> float:
    reached = float(rate.quantile(_REACHED)) if rate.notna().any() else 0.0
    return max(reached, least)
