"""Use of a capacity over time, in a few figures, and its level.

Resources are judged as by B. Gregg's method of utilisation, saturation and errors (Thinking
Methodically about Performance, ACM Queue 10(12), 2012), with levels of low, medium and high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.errors import FittingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fitting.regression.lines import FloatArray

LEVELS = ("low", "medium", "high")


class Use(NamedTuple):
    """Use over intervals of different length; NaN where nothing was measured."""

    mean: float  # over time
    median: float
    p95: float  # exceeded in 5 % of the time
    share_high: float  # share of the time at or above the high threshold, in [0, 1]
    measured_s: float  # time in which it was measured (s)


def summarise(values: ArrayLike, seconds: ArrayLike, high: float = np.inf) -> Use:
    """Summarise intervals by time.

    ``values`` are NaN where not measured; an interval of NaN or 0 ``seconds`` is left out.

    >>> summarise([0.25, 0.75], [3.0, 1.0], high=0.7)
    Use(mean=0.375, median=0.25, p95=0.75, share_high=0.25, measured_s=4.0)
    """
    at, weight = np.asarray(values, dtype=float), np.asarray(seconds, dtype=float)
    if at.shape != weight.shape or at.ndim != 1:
        raise FittingError(f"{at.shape} values do not go with {weight.shape} lengths of time")
    if (weight < 0).any():
        raise FittingError("an interval has a negative length")
    known = np.isfinite(at) & (weight > 0) & np.isfinite(weight)
    at, weight = at[known], weight[known]
    total = float(weight.sum())
    if not total > 0:
        return Use(np.nan, np.nan, np.nan, np.nan, 0.0)
    mean = float(at @ (weight / total))
    above = float(weight[at >= high].sum()) / total
    median, p95 = (_quantile(at, weight, share) for share in (0.5, 0.95))
    return Use(mean, median, p95, above, total)


def _quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    """Smallest value that is not exceeded in ``share`` of the weight."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    # Sums of the same weights in another order differ in the last digits.
    place = np.searchsorted(reached, share * reached[-1] * (1 - 1e-12))
    return float(values[order][min(int(place), len(order) - 1)])


def grade(value: float, medium: float, high: float) -> str:
    """Level of a value by two thresholds; "" where it is not known.

    >>> grade(0.3, 0.3, 0.7), grade(0.7, 0.3, 0.7), grade(0.1, 0.3, 0.7), grade(np.nan, 0.3, 0.7)
    ('medium', 'high', 'low', '')
    """
    if not medium <= high:
        raise FittingError(f"the medium threshold {medium!r} is above the high one, {high!r}")
    if np.isnan(value):
        return ""
    return LEVELS[int(value >= medium) + int(value >= high)]


def worst(levels: list[str]) -> str:
    """Highest of some levels; "" where none is known.

    >>> worst(["low", "", "medium"]), worst(["", ""])
    ('medium', '')
    """
    known = [level for level in levels if level]
    return max(known, key=LEVELS.index) if known else ""
