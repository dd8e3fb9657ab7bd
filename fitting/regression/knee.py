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

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from fitting.errors import FittingError
from fitting.regression.lines import BoolArray, FloatArray, IntArray

Scale = Literal["linear", "log"]
# Each line needs two levels, and the knee must lie between them.
FEWEST_LEVELS = 4
_PARAMETERS = 4
# Sums of squares below this share of the whole are rounding.
_ROUNDING = 1e-13


@dataclass(frozen=True, slots=True)
class Knees:
    """The knee of each group; NaN where a group has fewer than four levels."""

    # Whether the two lines are straight in x and y, or in their logarithms, where a slope is an
    # exponent: 1 is in proportion, 0 is flat.
    scale: Scale
    knee: FloatArray  # where the lines meet
    # Interval of the knee. Without an end inside the measured range ``lower`` is −inf (0 in the
    # logarithm) or ``upper`` inf; both NaN without degrees of freedom.
    lower: FloatArray
    upper: FloatArray
    value: FloatArray  # height of the lines where they meet
    slope_before: FloatArray
    slope_after: FloatArray
    p_value: FloatArray  # of one straight line without a knee
    lack_of_fit: FloatArray  # p value of the lines against the scatter of repeats; NaN without
    residual: FloatArray  # standard deviation of points about the lines; NaN without freedom
    levels: IntArray  # different x
    points: IntArray

    def at(self, x: ArrayLike) -> FloatArray:
        """Height of each group's lines at ``x``: one for all groups, or one per group."""
        at, knee = np.asarray(x, dtype=np.float64), self.knee
        if self.scale == "log":
            at, knee = np.log(at), np.log(knee)
        slope = np.where(at < knee, self.slope_before, self.slope_after)
        rise: FloatArray = slope * (at - knee)
        return self.value * np.exp(rise) if self.scale == "log" else self.value + rise


def fit_knees(
    group: ArrayLike, x: ArrayLike, y: ArrayLike, *, scale: Scale = "log", level: float = 0.90
) -> Knees:
    """Fit two lines that meet to each group of points; points of one x are repeats.

    ``group`` numbers the groups from 0 on without holes. The scale ``"log"`` takes errors as
    relative, and what grows by a power as straight; x and y are then positive. ``level`` is that of
    the interval, inside (0, 1).
    """
    code, at, height = _check_points(group, x, y, scale, level)
    if scale == "log":
        at, height = np.log(at), np.log(height)
    levels = _Levels.of(code, at, height)
    enough = levels.size >= FEWEST_LEVELS
    whole = {}
    for name, part in _fit_two_lines(levels.take(enough), level).items():
        whole[name] = np.full(len(enough), np.nan)
        whole[name][enough] = part
    if scale == "log":
        whole |= {name: np.exp(whole[name]) for name in ("knee", "lower", "upper", "value")}
    return Knees(scale=scale, levels=levels.size, points=levels.points, **whole)


def _check_points(
    group: ArrayLike, x: ArrayLike, y: ArrayLike, scale: Scale, level: float
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Convert points to arrays. Raises `FittingError` for those that cannot be fitted."""
    code = np.asarray(group, dtype=np.int64)
    at, height = (np.asarray(a, dtype=np.float64) for a in (x, y))
    if not (code.shape == at.shape == height.shape and code.ndim == 1 and code.size):
        raise FittingError(
            f"group, x and y have shapes {code.shape}, {at.shape} and "
            f"{height.shape}: give one number of each per point"
        )
    if scale not in get_args(Scale):
        raise FittingError(f"unknown scale {scale!r}: linear or log")
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


class _Levels(NamedTuple):
    """Means of repeated points, one row per group, in order of x; padded with the highest x."""

    x: FloatArray
    y: FloatArray
    weight: FloatArray  # points of each level; 0 for padding
    pure: FloatArray  # squares of each group's points about the means of their levels
    size: IntArray  # levels of each group
    points: IntArray

    @classmethod
    def of(cls, group: IntArray, x: FloatArray, y: FloatArray) -> _Levels:
        """Average each group's points of equal x to one level, whatever the order of the points."""
        order = np.lexsort((y, x, group))
        group, x, y = group[order], x[order], y[order]
        groups = int(group[-1]) + 1
        new_group = np.diff(group, prepend=-1) > 0
        new = new_group | (np.diff(x, prepend=np.nan) != 0)
        level = np.cumsum(new) - 1
        weight = np.bincount(level, np.ones(len(level)))
        mean = np.bincount(level, y) / weight
        pure = np.bincount(group, (y - mean[level]) ** 2, groups).astype(np.float64)
        size = np.bincount(group[new], minlength=groups)
        place = np.arange(len(weight)) - np.repeat(np.cumsum(size) - size, size)
        table = np.zeros((3, groups, max(int(size.max()), FEWEST_LEVELS)))
        table[:, group[new], place] = x[new], mean, weight
        padding = np.arange(table.shape[2]) >= size[:, None]
        highest = np.maximum(size - 1, 0)[:, None]
        table[0] = np.where(padding, np.take_along_axis(table[0], highest, axis=1), table[0])
        return cls(table[0], table[1], table[2], pure, size, np.bincount(group, minlength=groups))

    def take(self, groups: BoolArray) -> _Levels:
        """Select the groups that are marked."""
        return _Levels._make(part[groups] for part in self)

    def normalise(self) -> tuple[_Levels, FloatArray, FloatArray]:
        """Return levels with x centred and scaled to unit range, the mean of x, and its range."""
        middle = (self.weight * self.x).sum(axis=1) / self.points
        width = self.x.max(axis=1) - self.x.min(axis=1)
        scaled = (self.x - middle[:, None]) / width[:, None]
        return self._replace(x=scaled), middle, width

    def fit_line(self) -> _Line:
        """Fit a straight line to each group's levels, whose x are centred."""
        w = self.weight
        mean_y = (w * self.y).sum(axis=1) / self.points
        above = self.y - mean_y[:, None]
        sxx = (w * self.x**2).sum(axis=1)
        slope = (w * self.x * above).sum(axis=1) / sxx
        residual = above - slope[:, None] * self.x
        return _Line(mean_y, slope, sxx, residual, (w * residual**2).sum(axis=1))


class _Line(NamedTuple):
    """Weighted straight line of each group without a knee."""

    mean_y: FloatArray
    slope: FloatArray
    sxx: FloatArray
    residual: FloatArray
    squares: FloatArray  # of the residuals


class _BetweenLevels(NamedTuple):
    """Gain of a knee k between each two neighbouring levels: (A − kB)²/(C − 2kD + k²E)."""

    low: FloatArray
    high: FloatArray
    A: FloatArray
    B: FloatArray
    C: FloatArray
    D: FloatArray
    E: FloatArray
    inside: BoolArray

    @classmethod
    def of(cls, levels: _Levels, line: _Line) -> _BetweenLevels:
        """Compute the coefficients of the gain from sums over the levels above each knee."""

        def sum_above(values: FloatArray) -> FloatArray:
            return np.cumsum(values[:, ::-1], axis=1)[:, ::-1][:, 1:]

        x, w, residual = levels.x, levels.weight, line.residual
        total, sxx = w.sum(axis=1)[:, None], line.sxx[:, None]
        p0, p1, p2 = sum_above(w), sum_above(w * x), sum_above(w * x**2)
        last = levels.size[:, None] - 1
        below = np.arange(x.shape[1] - 1)
        # x is about its mean: its products with x are those with the line's slope.
        return cls(
            low=x[:, :-1],
            high=x[:, 1:],
            A=sum_above(w * residual * x),
            B=sum_above(w * residual),
            C=p2 - p1**2 / total - p2**2 / sxx,
            D=p1 - p1 * p0 / total - p2 * p1 / sxx,
            E=p0 - p0**2 / total - p1**2 / sxx,
            # Between the first or the last two levels a line would go through one level alone.
            inside=(below >= 1) & (below < last - 1),
        )

    def take(self, place: IntArray) -> _BetweenLevels:
        """Select one pair of neighbouring levels of each group, by index."""
        at = place[:, None]
        return _BetweenLevels._make(np.take_along_axis(part, at, axis=1) for part in self)

    def gain(self, k: FloatArray) -> FloatArray:
        """Squares that a knee at k takes off the residuals; −inf where none may lie."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = self.slope_change(k) ** 2 * self.squared_norm(k)
        return np.where(self.inside, np.nan_to_num(found, posinf=0.0), -np.inf)

    def slope_change(self, k: FloatArray) -> FloatArray:
        """Change of slope at a knee k."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return (self.A - k * self.B) / self.squared_norm(k)

    def squared_norm(self, k: FloatArray) -> FloatArray:
        """Denominator of the gain of a knee k."""
        return self.C - 2 * k * self.D + k**2 * self.E

    def stationary_knee(self) -> FloatArray:
        """Return the knee where the gain is stationary; the lower level if that is not between."""
        with np.errstate(divide="ignore", invalid="ignore"):
            k = (self.B * self.C - self.A * self.D) / (self.B * self.D - self.A * self.E)
        return np.where((k > self.low) & (k < self.high), k, self.low)

    def best_knee(self) -> tuple[FloatArray, IntArray]:
        """Return each group's knee with the most gain, and the index of the level below it."""
        tried = np.stack([self.stationary_knee(), self.low, self.high])
        gain = np.stack([self.gain(k) for k in tried])
        _, groups, size = gain.shape
        place = gain.transpose(1, 0, 2).reshape(groups, 3 * size).argmax(axis=1)
        knees = tried.transpose(1, 0, 2).reshape(groups, 3 * size)
        return np.take_along_axis(knees, place[:, None], axis=1)[:, 0], place % size

    def crossings(self, threshold: FloatArray) -> FloatArray:
        """Return the two knees where the gain equals the threshold, as (2, groups, levels − 1)."""
        t = threshold[:, None]
        a = self.B**2 - t * self.E
        b = self.A * self.B - t * self.D
        c = self.A**2 - t * self.C
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(b**2 - a * c)
            # The form that does not subtract near equals.
            far = b + np.copysign(root, b)
            return np.stack([far / a, c / far])

    def accept_range(self, threshold: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ends of the set of knees whose gain is the threshold or more."""
        crossed = self.crossings(threshold)
        inside = (crossed > self.low) & (crossed < self.high) & self.inside
        ends = np.stack([self.low, self.high])
        held = np.stack([self.gain(k) >= threshold[:, None] for k in ends])
        points = np.concatenate([crossed, ends])
        accepted = np.concatenate([inside, held])
        lower = np.where(accepted, points, np.inf).min(axis=(0, 2), initial=np.inf)
        upper = np.where(accepted, points, -np.inf).max(axis=(0, 2), initial=-np.inf)
        # A knee at the outermost level that can be told is as good as any beyond it.
        first = np.where(self.inside, self.low, np.inf).min(axis=1, initial=np.inf)
        last = np.where(self.inside, self.high, -np.inf).max(axis=1, initial=-np.inf)
        lower = np.where(lower <= first, -np.inf, lower)
        upper = np.where(upper >= last, np.inf, upper)
        unknown = np.isnan(threshold)
        return np.where(unknown, np.nan, lower), np.where(unknown, np.nan, upper)


def _fit_two_lines(levels: _Levels, level: float) -> dict[str, FloatArray]:
    """Fit the two lines of each group, which are straight here; return columns of `Knees`."""
    from scipy.special import fdtrc, fdtri

    # Unit range about the mean keeps the digits of sums of squares.
    scaled, middle, width = levels.normalise()
    line = scaled.fit_line()
    between = _BetweenLevels.of(scaled, line)
    knee, place = between.best_knee()
    chosen = between.take(place)
    gain = chosen.gain(knee[:, None])[:, 0]
    bend = chosen.slope_change(knee[:, None])[:, 0]
    whole = line.squares + line.slope**2 * line.sxx
    left = np.maximum(line.squares - gain, _ROUNDING * whole)
    freedom = levels.points - _PARAMETERS
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(freedom > 0, (left + levels.pure) / freedom, np.nan)
        p_value = np.asarray(fdtrc(2, freedom, gain / 2 / variance), dtype=np.float64)
        allowed = variance * fdtri(1, freedom, level)
    lower, upper = between.accept_range(gain - allowed)
    before, value = _first_line(scaled, line, knee, bend)
    return {
        "knee": middle + width * knee,
        "lower": middle + width * lower,
        "upper": middle + width * upper,
        "value": value,
        "slope_before": before / width,
        "slope_after": (before + bend) / width,
        "p_value": p_value,
        "lack_of_fit": _lack_of_fit(levels, left),
        "residual": np.sqrt(variance),
    }


def _first_line(
    levels: _Levels, line: _Line, knee: FloatArray, bend: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the slope of the line below the knee, and its height at the knee."""
    over = np.maximum(levels.x - knee[:, None], 0.0) * levels.weight
    before = line.slope - bend * (over * levels.x).sum(axis=1) / line.sxx
    middle = line.mean_y - bend * over.sum(axis=1) / levels.weight.sum(axis=1)
    return before, middle + before * knee


def _lack_of_fit(levels: _Levels, left: FloatArray) -> FloatArray:
    """Return the P-value of the two lines against the scatter of repeats; NaN without any."""
    from scipy.special import fdtrc

    free, repeated = levels.size - _PARAMETERS, levels.points - levels.size
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (left / free) / (levels.pure / repeated)
        p_value = fdtrc(free, repeated, ratio)
    return np.where((free > 0) & (repeated > 0), p_value, np.nan)
