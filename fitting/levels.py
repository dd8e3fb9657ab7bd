"""The levels of sweeps: means of repeated points, one row a group, padded to the longest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]
    BoolArray = NDArray[np.bool_]


class Line(NamedTuple):
    """Weighted straight line of each group, and what it leaves."""

    mean_y: FloatArray
    slope: FloatArray
    sxx: FloatArray
    residual: FloatArray
    squares: FloatArray
    explained: FloatArray


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels of each group in order of x; padding has the highest x and no weight.

    Attributes
    ----------
    x, y, weight : (groups, levels) float arrays
        Level, mean of its points, and how many they are.
    pure : (groups,) float array
        Squares of the points about the means of their levels.
    count, points : (groups,) int arrays
        Levels and points.
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray
    pure: FloatArray
    count: IntArray
    points: IntArray

    @classmethod
    def of(cls, group: IntArray, x: FloatArray, y: FloatArray) -> Levels:
        """Put points in order, whatever theirs was."""
        order = np.lexsort((y, x, group))
        group, x, y = group[order], x[order], y[order]
        groups = int(group[-1]) + 1
        new_group = np.diff(group, prepend=-1) > 0
        new = new_group | (np.diff(x, prepend=np.nan) != 0)
        level = np.cumsum(new) - 1
        weight = np.bincount(level, np.ones(len(level)))
        mean = np.bincount(level, y) / weight
        squares = (y - mean[level]) ** 2
        pure: FloatArray = np.bincount(group, squares, groups).astype(np.float64)
        count = np.bincount(group[new], minlength=groups)
        place = np.arange(len(weight)) - np.repeat(np.cumsum(count) - count, count)
        table = np.zeros((3, groups, int(count.max())))
        table[:, group[new], place] = x[new], mean, weight
        padding = np.arange(table.shape[2]) >= count[:, None]
        highest = np.maximum(count - 1, 0)[:, None]
        table[0] = np.where(padding, np.take_along_axis(table[0], highest, axis=1), table[0])
        return cls(table[0], table[1], table[2], pure, count, np.bincount(group, minlength=groups))

    def take(self, chosen: BoolArray) -> Levels:
        """Levels of some groups."""
        return Levels(
            self.x[chosen],
            self.y[chosen],
            self.weight[chosen],
            self.pure[chosen],
            self.count[chosen],
            self.points[chosen],
        )

    def mean_x(self) -> FloatArray:
        """Mean of each group's points."""
        mean: FloatArray = (self.weight * self.x).sum(axis=1) / self.points
        return mean

    def range_x(self) -> FloatArray:
        """Highest less lowest level."""
        span: FloatArray = self.x.max(axis=1, initial=-np.inf) - self.x.min(axis=1, initial=np.inf)
        return span

    def moved(self, middle: FloatArray, width: FloatArray) -> Levels:
        """Levels in other units: less ``middle``, by ``width``."""
        return replace(self, x=(self.x - middle[:, None]) / width[:, None])

    def line(self) -> Line:
        """Straight line through levels that are about their mean."""
        w = self.weight
        mean_y = (w * self.y).sum(axis=1) / self.points
        above = self.y - mean_y[:, None]
        sxx = (w * self.x**2).sum(axis=1)
        slope = (w * self.x * above).sum(axis=1) / sxx
        residual = above - slope[:, None] * self.x
        squares = (w * residual**2).sum(axis=1)
        return Line(mean_y, slope, sxx, residual, squares, slope**2 * sxx)
