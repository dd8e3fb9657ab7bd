"""Percentiles of counted latencies: what a histogram's cells can tell, and how exactly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Cell(NamedTuple):
    """Requests that took more than ``over_s``, and ``upto_s`` at most (s), and how many."""

    over_s: float
    upto_s: float
    requests: int


class Percentile(NamedTuple):
    """A latency that a share of the requests did not exceed (s).

    Attributes
    ----------
    estimate_s : float
        Read off the cell as if its latencies were spread evenly in their logarithm.
    least_s, most_s : float
        Ends of the cell: the true percentile is between them.
    """

    estimate_s: float
    least_s: float
    most_s: float


class Histogram(NamedTuple):
    """Counts of latencies by size.

    Attributes
    ----------
    cells : tuple of Cell
        Ascending, those without a count left out.
    least_s, most_s : float
        Smallest and largest latency (s); NaN where not known.
    """

    cells: tuple[Cell, ...]
    least_s: float = math.nan
    most_s: float = math.nan

    @property
    def requests(self) -> int:
        """How many latencies were counted."""
        return sum(cell.requests for cell in self.cells)

    def percentile(self, share: float) -> Percentile:
        """Find the smallest latency that at least ``share`` of the requests did not exceed.

        Parameters
        ----------
        share : float
            Above 0, at most 1: 0.99 for the 99th percentile.

        Raises
        ------
        MeasurementError
            When nothing was counted.
        """
        rank, below = math.ceil(share * self.requests - 1e-9), 0
        for cell in self.cells:
            if below + cell.requests >= rank:
                least = max(cell.over_s, self.least_s) if self.least_s == self.least_s else None
                most = min(cell.upto_s, self.most_s) if self.most_s == self.most_s else None
                low = cell.over_s if least is None else least
                high = cell.upto_s if most is None else most
                return Percentile(_within(low, high, (rank - below) / cell.requests), low, high)
            below += cell.requests
        raise MeasurementError("no latency was counted, so there is no percentile of them")


def merged(parts: Sequence[Histogram]) -> Histogram:
    """Counts of several clients together."""
    counts: dict[tuple[float, float], int] = {}
    for part in parts:
        for over_s, upto_s, count in part.cells:
            counts[over_s, upto_s] = counts.get((over_s, upto_s), 0) + count
    cells = tuple(Cell(*ends, count) for ends, count in sorted(counts.items()) if count)
    return Histogram(
        cells,
        min((p.least_s for p in parts), default=math.nan),
        max((p.most_s for p in parts), default=math.nan),
    )


def power_of_two_cells(counts: Iterable[tuple[int, int]], unit_s: float) -> tuple[Cell, ...]:
    """Cells over 2^(i−1) up to 2^i units, by their index i; 0 holds those of at most one unit."""
    return tuple(
        Cell(0.0 if i == 0 else 2.0 ** (i - 1) * unit_s, 2.0**i * unit_s, count)
        for i, count in sorted(counts)
        if count
    )


def _within(low: float, high: float, share: float) -> float:
    if low <= 0 or high <= low:
        return low + (high - low) * share
    return float(low * (high / low) ** share)
