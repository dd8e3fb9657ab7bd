"""Where a slider stops: round numbers along its way, and the values that must be met exactly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable


def stops(low: float, high: float, exact: Iterable[float] = (), *, most: int = 120) -> list[float]:
    """Stops from ``low`` to ``high``, rising.

    Parameters
    ----------
    low, high : float
        Ends, which are stops.
    exact : iterable of float
        Further stops between them.
    most : int
        Of the round ones, which are multiples of 1, 2 or 5 times a power of ten.
    """
    step = _round_step((high - low) / most) if high > low else 1.0
    first, last = math.ceil(low / step), math.floor(high / step)
    # Multiplied out, 3 · 0.1 is not the 0.3 that people mean.
    round_ones = (float(f"{n * step:.12g}") for n in range(first, last + 1))
    return sorted({low, high, *(x for x in (*round_ones, *exact) if low <= x <= high)})


def _round_step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least))
    return float(next(m * size for m in (1, 2, 5, 10) if m * size >= least * (1 - 1e-9)))


def nearest(values: list[float], wanted: float) -> int:
    """Place of the value nearest to a wanted one."""
    return int(np.argmin(np.abs(np.asarray(values) - wanted)))
