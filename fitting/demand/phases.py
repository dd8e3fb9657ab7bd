"""Phases of a run: stretches between changes of the mean of several series at once.

Change points minimise the squared deviation from each stretch's mean plus a penalty for each change
(R. Killick, P. Fearnhead, I. Eckley: Optimal Detection of Changepoints With a Linear Computational
Cost, JASA 107, 2012: PELT, which finds the exact optimum), searched by skchange. The penalty is
the bound of B. Laurent and P. Massart (Annals of Statistics 28, 2000, lemma 1) on the gain that
noise alone gives, at a chance of 1/n² for one split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fitting.errors import FittingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fitting.regression.lines import FloatArray

# A change smaller than this share of a series' scale is never one on its own.
NOISE_FLOOR = 0.1
# The search costs up to the square of the number of points: longer series are averaged first.
_MOST_POINTS = 1000
_MAD_TO_SIGMA = 1.4826


def change_points(signals: ArrayLike, *, shortest: int = 2) -> list[int]:
    """First points of the second and later phases: where the joint mean of some series changes.

    ``signals`` is a (points, series) table, each series in shares of what counts as much for it, so
    that 1 is a great change; NaN is taken as no change from the value before. ``shortest`` is the
    number of points of the shortest phase, at least 2.

    >>> change_points([[0.0]] * 5 + [[1.0]] * 5)
    [5]
    """
    table = np.asarray(signals, dtype=float)
    if table.ndim != 2:
        raise FittingError(f"signals of shape {table.shape}: give one row per point")
    if shortest < 2:
        raise FittingError(f"the shortest phase is {shortest} points: give at least 2")
    table = _fill_missing(table)
    if len(table) < 2 * shortest or not table.shape[1]:
        return []
    width = -(-len(table) // _MOST_POINTS)
    averages = _average(table, width)
    noise = _noise(averages)
    coarse = _search(averages / noise, max(2, -(-shortest // width)))
    if width == 1:
        return coarse
    return _refine_points(table / noise, [width * point for point in coarse], width, shortest)


def _search(scaled: FloatArray, shortest: int) -> list[int]:
    from skchange.detectors import PELT
    from skchange.interval_scorers import L2Cost

    if len(scaled) < 2 * shortest:
        return []
    pelt = PELT(L2Cost(), penalty=penalty(*scaled.shape), min_segment_length=shortest)
    return [int(point) for point in pelt.fit(scaled).predict(scaled)]


def penalty(points: int, series: int) -> float:
    """Gain in squared deviations, in units of the noise, that noise reaches by a chance of 1/n²."""
    tail = 2 * np.log(points)
    return float(series + 2 * np.sqrt(series * tail) + 2 * tail)


def _noise(table: FloatArray) -> FloatArray:
    """Standard deviation from point to point, which changes of the mean hardly move.

    Of few points it is uncertain: two standard errors, of about 1/√n each, are added.
    """
    steps = np.diff(table, axis=0)
    spread = np.median(np.abs(steps - np.median(steps, axis=0)), axis=0)
    sigma = _MAD_TO_SIGMA * spread / np.sqrt(2) * (1 + 2 / np.sqrt(len(table)))
    limited: FloatArray = np.maximum(sigma, NOISE_FLOOR)
    return limited


def _fill_missing(table: FloatArray) -> FloatArray:
    """Replace what is not known by the last known value; leave out series without any."""
    import pandas as pd

    frame = pd.DataFrame(np.where(np.isfinite(table), table, np.nan)).dropna(axis=1, how="all")
    return np.array(frame.ffill().bfill(), dtype=float)


def _average(table: FloatArray, width: int) -> FloatArray:
    starts = np.arange(0, len(table), width)
    counts = np.diff(np.append(starts, len(table)))
    return np.add.reduceat(table, starts, axis=0) / counts[:, None]


def _refine_points(table: FloatArray, points: list[int], width: int, shortest: int) -> list[int]:
    """Move change points of averages to the point where the two sides fit best.

    An average that lies across a change may be a phase of its own: its two ends become one.
    """
    moved: list[int] = []
    for place, point in enumerate(points):
        before = moved[-1] if moved else 0
        after = points[place + 1] if place + 1 < len(points) else len(table)
        start, end = max(before, point - 2 * width), min(after + width, point + 2 * width)
        found = start + _best_split(table[start:end])
        if min(found, len(table) - found) >= shortest and found - before >= max(shortest, width):
            moved.append(found)
    return moved


def _best_split(part: FloatArray) -> int:
    """Length of the first part of a split in two with the least squared deviation."""
    counts = np.arange(1, len(part))
    sums = np.cumsum(part, axis=0)
    left = (sums[:-1] ** 2).sum(axis=1) / counts
    right = ((sums[-1] - sums[:-1]) ** 2).sum(axis=1) / (len(part) - counts)
    return 1 + int(np.argmax(left + right))
