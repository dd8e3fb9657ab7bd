"""Knees: where a sweep's line bends, for many sweeps at once, each with an interval.

Two straight lines that meet are fitted by least squares, y = a + b·x + c·max(x − knee, 0), in x and
y or in their logarithms. For a knee between two given levels the least sum of squares is that of
the straight line less a gain, (A − k·B)²/(C − 2k·D + k²·E), whose constants are sums over the
levels above. Its maximum is in closed form, and so is where it crosses a threshold: no search, no
starting values.

The interval has every knee that an F test at the level does not reject (the profile of the sum of
squares). It may be lopsided, and has no end where the measured range does not tell: an error of a
knee that is symmetric, as from a Wald interval, is far too short on few levels.

References
----------
D. J. Hudson: Fitting segmented curves whose join points have to be estimated. Journal of the
American Statistical Association 61(316), 1966. doi:10.1080/01621459.1966.10482198
D. V. Hinkley: Inference about the intersection in two-phase regression. Biometrika 56(3), 1969.
doi:10.1093/biomet/56.3.495
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from fitting.errors import FittingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]
    BoolArray = NDArray[np.bool_]
    from numpy.typing import ArrayLike, NDArray


# The levels of sweeps: means of repeated points, one row a group, padded to the longest.


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
        return (self.weight * self.x).sum(axis=1) / self.points

    def range_x(self) -> FloatArray:
        """Highest less lowest level."""
        return self.x.max(axis=1, initial=-np.inf) - self.x.min(axis=1, initial=np.inf)

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


Scale = Literal["linear", "log"]
# Each line needs two levels, and the knee must lie between them.
FEWEST_LEVELS = 4
_PARAMETERS = 4
# Sums of squares below this share of the whole are rounding.
_ROUNDING = 1e-13


@dataclass(frozen=True, slots=True)
class Knees:
    """The knee of each group; NaN where a group has fewer than four levels.

    Attributes
    ----------
    scale : {"linear", "log"}
        Whether the two lines are straight in x and y, or in their logarithms, where a slope is an
        exponent: 1 is in proportion, 0 is flat.
    knee, lower, upper : (groups,) float arrays
        Where the lines meet, and its interval. Without an end inside the measured range ``lower``
        is −inf (0 in the logarithm) or ``upper`` inf; both NaN without degrees of freedom.
    value : (groups,) float array
        Height of the lines where they meet.
    slope_before, slope_after : (groups,) float arrays
    p_value : (groups,) float array
        Of one straight line without a knee.
    lack_of_fit : (groups,) float array
        p value of the two lines against the scatter of repeated points; NaN without repeats.
    residual : (groups,) float array
        Standard deviation of points about the lines; NaN without degrees of freedom.
    levels, points : (groups,) int arrays
        Different x, and points.
    """

    scale: Scale
    knee: FloatArray
    lower: FloatArray
    upper: FloatArray
    value: FloatArray
    slope_before: FloatArray
    slope_after: FloatArray
    p_value: FloatArray
    lack_of_fit: FloatArray
    residual: FloatArray
    levels: NDArray[np.int64]
    points: NDArray[np.int64]

    def at(self, x: ArrayLike) -> FloatArray:
        """Height of each group's lines at ``x``: one for all groups, or one a group."""
        at, knee = np.asarray(x, dtype=np.float64), self.knee
        if self.scale == "log":
            at, knee = np.log(at), np.log(knee)
        slope = np.where(at < knee, self.slope_before, self.slope_after)
        rise: FloatArray = slope * (at - knee)
        return self.value * np.exp(rise) if self.scale == "log" else self.value + rise


def fit_knees(
    group: ArrayLike, x: ArrayLike, y: ArrayLike, *, scale: Scale = "log", level: float = 0.90
) -> Knees:
    """Fit two lines that meet to each group of points.

    Parameters
    ----------
    group : (points,) array of int
        Number of each point's group, from 0 on without holes.
    x, y : (points,) arrays
        Finite, and positive for ``scale="log"``. Points of one x are repeats.
    scale : {"log", "linear"}
        ``"log"`` holds errors for relative, and straight what grows by a power.
    level : float
        Of the interval, inside (0, 1).

    Raises
    ------
    FittingError
        For arrays of unlike length, values that are not finite, or not positive for ``"log"``.
    """
    code, at, height = _checked(group, x, y, scale, level)
    if scale == "log":
        at, height = np.log(at), np.log(height)
    levels = Levels.of(code, at, height)
    enough = levels.count >= FEWEST_LEVELS
    found = _fit(levels.take(enough), level) if enough.any() else _NONE
    back = np.exp if scale == "log" else np.asarray
    whole = {name: _spread(enough, part) for name, part in found._asdict().items()}
    for name in ("knee", "lower", "upper", "value"):
        whole[name] = back(whole[name])
    return Knees(scale=scale, levels=levels.count, points=levels.points, **whole)


def _checked(
    group: ArrayLike, x: ArrayLike, y: ArrayLike, scale: Scale, level: float
) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
    code = np.asarray(group, dtype=np.int64)
    at, height = (np.asarray(a, dtype=np.float64) for a in (x, y))
    if not (code.shape == at.shape == height.shape and code.ndim == 1 and code.size):
        raise FittingError(
            f"group, x and y have shapes {code.shape}, {at.shape} and {height.shape}: give one "
            "number each a point"
        )
    if scale not in get_args(Scale):
        raise FittingError(f"no scale {scale!r}: linear or log")
    if not 0 < level < 1:
        raise FittingError(f"level {level!r} is not a share between 0 and 1; try 0.90")
    fine = np.isfinite(at) & np.isfinite(height)
    if scale == "log":
        fine &= (at > 0) & (height > 0)
    if not fine.all():
        wrong = int(np.flatnonzero(~fine)[0])
        raise FittingError(
            f"point {wrong}: x = {at[wrong]:g}, y = {height[wrong]:g}: must be finite"
            + (" and positive for the log scale" if scale == "log" else "")
        )
    return code, at, height


class _Found(NamedTuple):
    knee: FloatArray
    lower: FloatArray
    upper: FloatArray
    value: FloatArray
    slope_before: FloatArray
    slope_after: FloatArray
    p_value: FloatArray
    lack_of_fit: FloatArray
    residual: FloatArray


_NONE = _Found(*[np.zeros(0)] * len(_Found._fields))


class _Gaps(NamedTuple):
    """Gain of a knee k in each gap between neighbouring levels: (A − kB)²/(C − 2kD + k²E)."""

    low: FloatArray
    high: FloatArray
    A: FloatArray
    B: FloatArray
    C: FloatArray
    D: FloatArray
    E: FloatArray
    inside: BoolArray

    def take(self, place: NDArray[np.int64]) -> _Gaps:
        """One gap of each group."""
        parts: list[Any] = [np.take_along_axis(part, place[:, None], axis=1) for part in self]
        return _Gaps(*parts)

    def gain(self, k: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = self.height(k) ** 2 * self.spread(k)
        return np.where(self.inside, np.nan_to_num(found, posinf=0.0), -np.inf)

    def height(self, k: FloatArray) -> FloatArray:
        """Change of slope at the knee."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return (self.A - k * self.B) / self.spread(k)

    def spread(self, k: FloatArray) -> FloatArray:
        return self.C - 2 * k * self.D + k**2 * self.E

    def best(self) -> FloatArray:
        """Where the gain is stationary; the lower level where that is outside the gap."""
        with np.errstate(divide="ignore", invalid="ignore"):
            k = (self.B * self.C - self.A * self.D) / (self.B * self.D - self.A * self.E)
        return np.where((k > self.low) & (k < self.high), k, self.low)

    def crossings(self, threshold: FloatArray) -> FloatArray:
        """Both knees at which the gain is the threshold, (2, groups, gaps); NaN where never."""
        t = threshold[:, None]
        a = self.B**2 - t * self.E
        b = self.A * self.B - t * self.D
        c = self.A**2 - t * self.C
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(b**2 - a * c)
            # The form that does not subtract near equals.
            far = b + np.copysign(root, b)
            return np.stack([far / a, c / far])


def _fit(levels: Levels, level: float) -> _Found:
    """Fit in the co-ordinates in which the lines are straight."""
    from scipy.special import fdtrc, fdtri

    # Unit range about the mean keeps the digits of sums of squares.
    middle, width = levels.mean_x(), levels.range_x()
    scaled = levels.moved(middle, width)
    line = scaled.line()
    gaps = _gaps(scaled, line.residual, line.sxx)
    knee, place = _best_knee(gaps)
    chosen = gaps.take(place)
    gain = chosen.gain(knee[:, None])[:, 0]
    bend = chosen.height(knee[:, None])[:, 0]
    left = np.maximum(line.squares - gain, _ROUNDING * (line.squares + line.explained))
    freedom = levels.points - _PARAMETERS
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(freedom > 0, (left + levels.pure) / freedom, np.nan)
        p_value = np.asarray(fdtrc(2, freedom, gain / 2 / variance), dtype=np.float64)
        allowed = variance * fdtri(1, freedom, level)
    lower, upper = _profile_interval(gaps, gain - allowed)
    before, value = _first_line(scaled, line.mean_y, line.slope, knee, bend)
    return _Found(
        knee=middle + width * knee,
        lower=middle + width * lower,
        upper=middle + width * upper,
        value=value,
        slope_before=before / width,
        slope_after=(before + bend) / width,
        p_value=p_value,
        lack_of_fit=_lack_of_fit(levels, left),
        residual=np.sqrt(variance),
    )


def _gaps(levels: Levels, residual: FloatArray, sxx: FloatArray) -> _Gaps:
    """Sums over the levels above each gap, from the highest down."""

    def above(values: FloatArray) -> FloatArray:
        return np.cumsum(values[:, ::-1], axis=1)[:, ::-1][:, 1:]

    x, w = levels.x, levels.weight
    total, sxx = w.sum(axis=1)[:, None], sxx[:, None]
    p0, p1, p2 = above(w), above(w * x), above(w * x**2)
    # x is about its mean: its products with x are those with the line's slope.
    q0, q1 = p1, p2
    last = levels.count[:, None] - 1
    gap = np.arange(x.shape[1] - 1)
    return _Gaps(
        low=x[:, :-1],
        high=x[:, 1:],
        A=above(w * residual * x),
        B=above(w * residual),
        C=p2 - p1**2 / total - q1**2 / sxx,
        D=p1 - p1 * p0 / total - q1 * q0 / sxx,
        E=p0 - p0**2 / total - q0**2 / sxx,
        # In the first and the last gap a line would go through one level, whatever the knee.
        inside=(gap >= 1) & (gap < last - 1),
    )


def _best_knee(gaps: _Gaps) -> tuple[FloatArray, NDArray[np.int64]]:
    tried = np.stack([gaps.best(), gaps.low, gaps.high])
    gain = np.stack([gaps.gain(k) for k in tried])
    groups, size = gain.shape[1], gain.shape[2]
    place = gain.transpose(1, 0, 2).reshape(groups, -1).argmax(axis=1)
    knees = tried.transpose(1, 0, 2).reshape(groups, -1)
    return np.take_along_axis(knees, place[:, None], axis=1)[:, 0], place % size


def _profile_interval(gaps: _Gaps, threshold: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends of the set of knees whose gain is the threshold or more."""
    crossed = gaps.crossings(threshold)
    inside = (crossed > gaps.low) & (crossed < gaps.high) & gaps.inside
    ends = np.stack([gaps.low, gaps.high])
    held = np.stack([gaps.gain(k) >= threshold[:, None] for k in ends])
    points = np.concatenate([crossed, ends])
    accepted = np.concatenate([inside, held])
    lower = np.where(accepted, points, np.inf).min(axis=(0, 2), initial=np.inf)
    upper = np.where(accepted, points, -np.inf).max(axis=(0, 2), initial=-np.inf)
    first, last = (
        np.where(gaps.inside, e, w) for e, w in ((gaps.low, np.inf), (gaps.high, -np.inf))
    )
    unknown = np.isnan(threshold)
    # A knee at the outermost level that can be told is as good as any beyond it.
    lower = np.where(lower <= first.min(axis=1, initial=np.inf), -np.inf, lower)
    upper = np.where(upper >= last.max(axis=1, initial=-np.inf), np.inf, upper)
    return np.where(unknown, np.nan, lower), np.where(unknown, np.nan, upper)


def _first_line(
    levels: Levels, mean_y: FloatArray, slope: FloatArray, knee: FloatArray, bend: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Slope of the first line, and its height at the knee."""
    over = np.maximum(levels.x - knee[:, None], 0.0) * levels.weight
    sxx = (levels.weight * levels.x**2).sum(axis=1)
    before = slope - bend * (over * levels.x).sum(axis=1) / sxx
    middle = mean_y - bend * over.sum(axis=1) / levels.weight.sum(axis=1)
    return before, middle + before * knee


def _lack_of_fit(levels: Levels, left: FloatArray) -> FloatArray:
    from scipy.special import fdtrc

    free, repeated = levels.count - _PARAMETERS, levels.points - levels.count
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (left / free) / (levels.pure / repeated)
        p_value = fdtrc(free, repeated, ratio)
    return np.where((free > 0) & (repeated > 0), p_value, np.nan)


def _spread(chosen: BoolArray, part: FloatArray) -> FloatArray:
    whole = np.full(len(chosen), np.nan)
    whole[chosen] = part
    return whole
