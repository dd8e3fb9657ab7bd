"""One application's demand on its host, from one or several recordings of the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.demand.utilisation import summarise
from ppw.errors import PpwError
from ppw.pressure.capacity import Capacity, capacity_of
from ppw.pressure.demand import as_series, demand_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from measurements.timeseries.series import TimeSeries


@dataclass(frozen=True)
class Run:
    """One application's demand on its host.

    Attributes
    ----------
    name : str
    demand : pandas.DataFrame
        As of `ppw.pressure.demand.demand_of`.
    capacity : Capacity
    series : tuple of TimeSeries
    operations_s : float or None
        Operations a second, where stated.
    """

    name: str
    demand: pd.DataFrame
    capacity: Capacity
    series: tuple[TimeSeries, ...]
    operations_s: float | None = None

    @property
    def began_s(self) -> float:
        """When the first interval began, in seconds since 1970 UTC."""
        first = self.demand.iloc[0]
        return float(first["time_s"] - np.nan_to_num(first["interval_s"]))


def run_of(
    name: str,
    given: TimeSeries | Sequence[TimeSeries],
    *,
    stated: Mapping[str, float] | None = None,
    disks: Sequence[str] | None = None,
    operations_s: float | None = None,
) -> Run:
    """Make a run of recordings.

    Raises
    ------
    PpwError
        When there is none, or none with an interval of known length; for what is no time series,
        and an operation rate or a capacity that is not positive.
    """
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    series = tuple(as_series(one, name) for one in several)
    if not series:
        raise PpwError(f"{name}: no recording was given")
    if operations_s is not None and not operations_s > 0:
        raise PpwError(f"{name}: {operations_s!r} operations a second: give more than 0")
    demands = [demand_of(one, disks=disks) for one in series]
    demand = demands[0]
    for other in demands[1:]:
        demand = _beside(demand, other)
    if not demand["interval_s"].sum() > 0:
        raise PpwError(f"{name}: holds no interval of known length: give a longer log")
    capacity = capacity_of(series[0], stated)
    return Run(name, demand, capacity, series, operations_s)


def _beside(demand: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Fill columns that were not measured from another recording of the same run.

    Its intervals are others, and it may not know when it began: each row gets the mean of what
    the other recorded meanwhile, or over all of it where the times do not meet.
    """
    missing = [str(c) for c in demand if demand[c].isna().all() and other[c].notna().any()]
    at = demand["time_s"].to_numpy()
    met = other["time_s"].between(at[0] - demand["interval_s"].iloc[0], at[-1])
    filled: dict[str, Any] = {}
    for column in missing:
        known = other[met & other[column].notna()]
        if len(known) >= 2:
            filled[column] = np.interp(at, known["time_s"], known[column])
        else:
            filled[column] = np.full(len(at), summarise(other[column], other["interval_s"]).mean)
    return demand.assign(**filled)
