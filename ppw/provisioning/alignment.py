"""Recordings of several workloads brought to one clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppw.arguments import known_choice
from ppw.errors import PpwError
from ppw.provisioning.resources import NAMES, amounts, demands, own_clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from measurements.timeseries.series import TimeSeries

    FloatArray = NDArray[np.float64]

ALIGNMENTS = ("start", "clock", "day", "any")
_DAY_S = 86_400.0
# Moments drawn where workloads may meet at any.
_MOMENTS = 20_000


class Aligned(NamedTuple):
    """Demand of each workload, (workloads, cells, resources), on cells of ``step_s`` seconds.

    ``recorded`` is how many cells the shortest recording has: moments drawn from it are no more
    evidence than that.
    """

    names: list[str]
    demand: FloatArray
    step_s: float
    in_order: bool
    recorded: int


def align_recordings(
    recordings: Mapping[str, TimeSeries],
    how: str,
    *,
    idle: TimeSeries | None = None,
    disks: Sequence[str] | None = None,
    seed: int = 0,
) -> Aligned:
    """Bring recordings to one clock.

    Parameters
    ----------
    recordings : mapping of str to TimeSeries
    how : {"start", "clock", "day", "any"}
        All start together, as long as all run; as they were recorded at the same time; by the time
        of the day in UTC; or any moment of one with any of the other.
    idle : TimeSeries, optional
        Recording of the idle host: it is taken off each recording, and counted once.
    disks : sequence of str, optional
    seed : int
        Of the moments drawn for ``"any"``.

    Raises
    ------
    PpwError
        For an unknown way, an empty recording, or recordings that never met on the clock.
    """
    known_choice("align", how, ALIGNMENTS)
    asked = {}
    for name, series in recordings.items():
        if not len(series.frame):
            raise PpwError(f"{series.source}: no interval was recorded")
        asked[name] = demands(series, disks=disks)
    clocks = [own_clock(table) for table in asked.values()]
    step = max(clock[1] for clock in clocks)
    spans = [clock[1] * clock[2] for clock in clocks]
    if how == "any":
        demand = _any(list(asked.values()), seed)
    elif how == "day":
        demand = np.stack(
            [_by_day(t, c, step) for t, c in zip(asked.values(), clocks, strict=True)]
        )
    elif how == "clock":
        demand = _by_clock(asked, clocks, spans, step)
    else:
        cells = max(1, int(min(spans) / step + 1e-6))
        parts = zip(asked.values(), clocks, strict=True)
        demand = np.stack([amounts(table, c[0], step, cells) for table, c in parts])
    recorded = min(clock[2] for clock in clocks)
    return Aligned(list(asked), _idle_once(demand, idle, disks), step, how != "any", recorded)


def _any(tables: list[pd.DataFrame], seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    own = [amounts(table, *own_clock(table)) for table in tables]
    return np.stack([cells[rng.integers(0, len(cells), _MOMENTS)] for cells in own])


def _by_day(table: pd.DataFrame, clock: tuple[float, float, int], step: float) -> FloatArray:
    """Mean of all days at each time of the day."""
    cells = round(_DAY_S / step)
    first = np.floor(clock[0] / _DAY_S) * _DAY_S
    days = int(np.ceil((float(table["time_s"].iloc[-1]) - first) / _DAY_S))
    whole = amounts(table, first, _DAY_S / cells, days * cells).reshape(days, cells, -1)
    known = np.isfinite(whole)
    with np.errstate(invalid="ignore"):
        mean: FloatArray = np.where(known, whole, 0.0).sum(axis=0) / known.sum(axis=0)
    return mean


def _by_clock(
    asked: Mapping[str, pd.DataFrame],
    clocks: Sequence[tuple[float, float, int]],
    spans: Sequence[float],
    step: float,
) -> FloatArray:
    start = max(clock[0] for clock in clocks)
    end = min(clock[0] + span for clock, span in zip(clocks, spans, strict=True))
    cells = int((end - start) / step + 1e-6)
    if cells < 1:
        raise PpwError(
            f"{' and '.join(asked)} were not recorded at the same time: align them by start, day "
            "or any"
        )
    return np.stack([amounts(table, start, step, cells) for table in asked.values()])


def _idle_once(
    demand: FloatArray, idle: TimeSeries | None, disks: Sequence[str] | None
) -> FloatArray:
    """Leave the host's own demand in the first workload alone."""
    if idle is None:
        return demand
    own = demands(idle, disks=disks)[list(NAMES)].mean().fillna(0.0).to_numpy()
    rest = np.maximum(demand[1:] - own, 0.0)
    return np.concatenate([demand[:1], rest])
