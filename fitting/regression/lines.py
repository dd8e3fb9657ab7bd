"""Least-squares straight lines through many groups of points at once, and the laws they carry.

A law of two parameters that becomes the straight line y = a + b·x after a change of co-ordinates is
a `LineModel`: one small class whose docstring is the equation and its source. `fit` and `ModelFit`
do the rest for all of them, for any number of groups at once. A group is one line; a single fit is
the one-group case. All arrays of a `Moments` or a `LineFit` have one element per group.

The intervals are the textbook ones (Draper & Smith, *Applied Regression Analysis*, 3rd ed.,
ch. 1 and 3): independent errors of equal variance within a group. They say nothing of a wrong
model, and where no degree of freedom is left they are NaN rather than a guess.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fitting.errors import FittingError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Number = float | FloatArray

# Which coefficient the bound of a non-negative fit holds at zero.
FREE, INTERCEPT_AT_ZERO, SLOPE_AT_ZERO = 0, 1, 2

# Abscissas closer together than this share of their size are one abscissa: real frequency steps
# differ by a thousandth or more, rounding by 1e-16.
_SAME_ABSCISSA = 1e-9
# Groups whose points fit a core's cache together; larger blocks only cost memory.
_BLOCK = 16_384
# A quantile table of more counts would take memory by the runs of the largest group.
_MOST_TABLED = 1 << 20


class Moments(NamedTuple):
    """Number, means and centred second moments of points (plain sums would lose nine digits)."""

    points: IntArray
    mean_x: FloatArray
    mean_y: FloatArray
    sxx: FloatArray  # Σ(x − mean_x)²
    sxy: FloatArray
    syy: FloatArray


class Repeats(NamedTuple):
    """Values of several runs at each of many points, aggregated."""

    runs: IntArray
    mean: FloatArray
    squares: FloatArray  # Σ(value − mean)²

    @classmethod
    def single(cls, values: FloatArray) -> Repeats:
        """Make repeats of one run at each point."""
        return cls(np.ones(len(values), dtype=np.int64), values, np.zeros(len(values)))

    def take(self, points: BoolArray | IntArray) -> Repeats:
        """Select some points."""
        return Repeats._make(part[points] for part in self)

    def scaled(self, factor: Number) -> Repeats:
        """Return the repeats with their values multiplied by a factor, one for all or one each."""
        return Repeats(self.runs, self.mean * factor, self.squares * factor**2)


class LineFit(NamedTuple):
    """The line y = intercept + slope·x of each group; NaN where its points share one abscissa."""

    moments: Moments  # of the points that the lines were fitted to
    intercept: FloatArray
    slope: FloatArray
    bound: NDArray[np.int8]  # FREE, INTERCEPT_AT_ZERO or SLOPE_AT_ZERO
    degrees_of_freedom: IntArray  # points less free coefficients
    variance: FloatArray  # of the residuals; NaN without degrees of freedom

    def without(self, groups: BoolArray) -> LineFit:
        """Return the fit with the marked groups' lines replaced by NaN."""
        nothing: tuple[Any, ...] = (np.nan, np.nan, np.int8(FREE), 0, np.nan)
        columns: tuple[Any, ...] = self[1:]
        parts = (np.where(groups, no, a) for no, a in zip(nothing, columns, strict=True))
        return LineFit(self.moments, *parts)

    def value(self, x: Number) -> FloatArray:
        """Return the ordinate of each group's line at ``x`` (one for all, or one per group)."""
        return self.intercept + self.slope * x

    def leverage(self, x: Number) -> FloatArray:
        """Variance of the fitted line at ``x``, in units of one point's variance."""
        m = self.moments
        with np.errstate(divide="ignore", invalid="ignore"):
            free = 1 / m.points + (x - m.mean_x) ** 2 / m.sxx
            through_origin = x**2 / (m.sxx + m.points * m.mean_x**2)
            flat = 1 / m.points
        held = [self.bound == INTERCEPT_AT_ZERO, self.bound == SLOPE_AT_ZERO]
        return np.select(held, [through_origin, flat], free)

    def standard_errors(self) -> tuple[FloatArray, FloatArray]:
        """Standard errors of intercept and slope; NaN where held at zero or unknown."""
        m = self.moments
        through_origin = m.sxx + m.points * m.mean_x**2
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(self.bound == INTERCEPT_AT_ZERO, 1 / through_origin, 1 / m.sxx)
        slope[self.bound == SLOPE_AT_ZERO] = np.nan
        intercept = self.leverage(0.0)
        intercept[self.bound == INTERCEPT_AT_ZERO] = np.nan
        return np.sqrt(self.variance * intercept), np.sqrt(self.variance * slope)

    def prediction_error(self, x: Number, repeats: Number = 1) -> FloatArray:
        """Standard error of the mean of ``repeats`` new points at ``x`` about the line."""
        return np.sqrt(self.variance * (self.leverage(x) + variance_of_mean(repeats)))

    def interval(
        self, x: Number, *, level: float = 0.90, repeats: Number = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Prediction interval for the mean of ``repeats`` new points at ``x``.

        ``repeats=inf`` gives the confidence interval of the line itself. NaN where a group has
        no degrees of freedom: two points determine a line and leave nothing to judge it by.
        """
        half = student_quantile(self.degrees_of_freedom, level) * self.prediction_error(x, repeats)
        middle = self.value(x)
        return middle - half, middle + half


def student_quantile(degrees_of_freedom: IntArray, level: float) -> FloatArray:
    """Two-sided Student t quantile at ``level``, inside (0, 1), for each count; NaN for none."""
    from scipy.special import stdtrit

    if not 0 < level < 1:
        raise FittingError(f"interval level {level!r} is not a share between 0 and 1; try 0.90")
    df = np.maximum(np.asarray(degrees_of_freedom), 0)
    # Few different counts serve millions of groups, and a quantile costs a microsecond.
    tabled = np.minimum(df, _MOST_TABLED)
    present = np.flatnonzero(np.bincount(tabled))
    table = np.full(present[-1] + 1 if present.size else 1, np.nan)
    present = present[present > 0]
    table[present] = stdtrit(present, (1 + level) / 2)
    quantile: FloatArray = table[tabled]
    many = df > _MOST_TABLED
    quantile[many] = stdtrit(df[many], (1 + level) / 2)
    return quantile


def variance_of_mean(repeats: Number) -> FloatArray:
    """Variance of the mean of ``repeats`` new points, 1 or more, in units of one point's."""
    points = np.asarray(repeats, dtype=float)
    few = ~(points >= 1)
    if few.any():
        raise FittingError(f"repeats is {points[few].flat[0]:g}: a mean needs 1 new point or more")
    return 1 / points


def fit_groups(
    codes: IntArray, x: FloatArray, y: FloatArray, groups: int, *, nonnegative: bool = False
) -> LineFit:
    """Fit one line per group to rows labelled by group, 0 … ``groups`` − 1.

    ``nonnegative`` holds intercept and slope at or above zero (the constrained least-squares
    solution). All ``x`` and ``y`` are then positive, as times, rates and frequencies are.
    """
    return fit_repeats(codes, x, Repeats.single(y), groups, nonnegative=nonnegative)


def fit_repeats(
    codes: IntArray, x: FloatArray, y: Repeats, groups: int, *, nonnegative: bool = False
) -> LineFit:
    """Fit one line per group to runs aggregated by abscissa, as `fit_groups` does to the runs."""
    weight = y.runs.astype(np.float64)
    total = _sum_by_group(codes, weight, groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_x = _sum_by_group(codes, weight * x, groups) / total
        mean_y = _sum_by_group(codes, weight * y.mean, groups) / total
    dx, dy = x - mean_x[codes], y.mean - mean_y[codes]
    sxx, sxy = (_sum_by_group(codes, weight * dx * d, groups) for d in (dx, dy))
    syy = _sum_by_group(codes, weight * dy * dy + y.squares, groups)
    moments = Moments(total.astype(np.int64), mean_x, mean_y, sxx, sxy, syy)
    line = _solve_moments(moments, nonnegative)
    # The scatter of the repeats and the misses of their means add up, so that no digits are lost
    # where the points lie very close to the line.
    residual = y.mean - line.intercept[codes] - line.slope[codes] * x
    squares = _sum_by_group(codes, y.runs * residual * residual + y.squares, groups)
    df = line.degrees_of_freedom
    return line._replace(variance=np.divide(squares, df, out=line.variance, where=df > 0))


def fit_points(x: FloatArray, y: FloatArray, *, nonnegative: bool = False) -> LineFit:
    """Fit one line to each row of (groups, points) arrays; ``x`` may be one row for all."""
    if y.ndim != 2 or x.shape not in (y.shape, y.shape[1:]):
        raise FittingError(
            f"x {x.shape} and y {y.shape} are not (groups, points) arrays of one shape"
        )
    x = np.broadcast_to(x, y.shape)
    blocks = (slice(at, at + _BLOCK) for at in range(0, max(len(y), 1), _BLOCK))
    fits = [_fit_block(x[block], y[block], nonnegative) for block in blocks]
    if len(fits) == 1:
        return fits[0]
    moments, *parts = zip(*fits, strict=True)
    joined = Moments(*map(np.concatenate, zip(*moments, strict=True)))
    return LineFit(joined, *map(np.concatenate, parts))


def fit_moments(moments: Moments, *, nonnegative: bool = False) -> LineFit:
    """Fit one line per group to moments alone, where the points are no longer at hand.

    The residual variance then comes from a difference of moments and has fewer exact digits
    than `fit_groups` gives when the points lie very close to the line.
    """
    line, m = _solve_moments(moments, nonnegative), moments
    miss = m.mean_y - line.intercept - line.slope * m.mean_x
    squares = m.syy - line.slope * (2 * m.sxy - line.slope * m.sxx) + m.points * miss**2
    squares, df = np.maximum(squares, 0), line.degrees_of_freedom
    return line._replace(variance=np.divide(squares, df, out=line.variance, where=df > 0))


def _sum_by_group(codes: IntArray, values: FloatArray, groups: int) -> FloatArray:
    """Sum up values by group."""
    # Without a row numpy counts in integers.
    return np.bincount(codes, values, groups).astype(np.float64, copy=False)


def _fit_block(x: FloatArray, y: FloatArray, nonnegative: bool) -> LineFit:
    """Fit one line to each row of arrays that are small enough for a core's cache."""
    # Points first: numpy sums over a long last axis many times faster than over a short one.
    x, y = x.T.copy(), y.T.copy()
    points, groups = x.shape
    count = np.full(groups, points)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_x, mean_y = x.sum(axis=0) / count, y.sum(axis=0) / count
    dx, dy = x - mean_x, y - mean_y
    sums = (np.einsum("ij,ij->j", a, b) for a, b in ((dx, dx), (dx, dy), (dy, dy)))
    line = _solve_moments(Moments(count, mean_x, mean_y, *sums), nonnegative)
    residual = y - line.intercept - line.slope * x
    squares, df = np.einsum("ij,ij->j", residual, residual), line.degrees_of_freedom
    return line._replace(variance=np.divide(squares, df, out=line.variance, where=df > 0))


def _solve_moments(m: Moments, nonnegative: bool) -> LineFit:
    """Fit lines to moments; their residual variance is left NaN."""
    # A line takes at least two different x.
    two = m.sxx > m.points * (_SAME_ABSCISSA * m.mean_x) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(two, m.sxy / m.sxx, np.nan)
    intercept = m.mean_y - slope * m.mean_x
    bound = np.full(len(slope), FREE, dtype=np.int8)
    if nonnegative:
        # x and y are positive here, so at most one coefficient of the free line is negative, and
        # the convex constrained optimum lies on that coefficient's edge.
        at = intercept < 0
        sum_xy = m.sxy[at] + m.points[at] * m.mean_x[at] * m.mean_y[at]
        slope[at] = sum_xy / (m.sxx[at] + m.points[at] * m.mean_x[at] ** 2)
        intercept[at], bound[at] = 0.0, INTERCEPT_AT_ZERO
        at = slope < 0
        slope[at], intercept[at], bound[at] = 0.0, m.mean_y[at], SLOPE_AT_ZERO
    free = np.where(bound == FREE, 2, 1)
    df = np.where(np.isnan(slope), 0, np.maximum(m.points - free, 0))
    return LineFit(m, intercept, slope, bound, df, np.full_like(slope, np.nan))


# Laws that are a line once transformed.


class Asymptote(NamedTuple):
    """A metric far out, coefficient·x^exponent; NaN where the law ends. One element per group."""

    coefficient: FloatArray
    exponent: FloatArray

    def limit(self) -> FloatArray:
        """Return the limit of the metric as x grows: 0, the coefficient, inf or NaN."""
        limit = np.select(
            [self.exponent > 0, self.exponent < 0, self.exponent == 0],
            [np.inf, 0.0, self.coefficient],
            np.nan,
        )
        return np.where(np.isnan(self.coefficient), np.nan, limit)


class LineModel:
    """A law of a metric in one predictor; by default the metric or its reciprocal is a line."""

    equation: ClassVar[str]  # as printed to users
    parameters: ClassVar[tuple[str, str]]  # names of intercept and slope, with their units
    nonnegative: bool = False  # hold both at or above zero
    reciprocal: ClassVar[bool] = False  # ordinate in proportion to the metric's reciprocal
    slope_sign: ClassVar[int] = 1  # of the second parameter, beside the line's slope

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """Convert a predictor to the abscissa of the line; by default itself."""
        return predictor

    def ordinate(self, metric: FloatArray, predictor: FloatArray) -> FloatArray:
        """Convert a measured metric to the ordinate of the line."""
        return 1 / metric if self.reciprocal else metric

    def metric(self, ordinate: FloatArray, predictor: FloatArray) -> FloatArray:
        """Convert an ordinate back to the metric: the inverse of `ordinate`."""
        return 1 / ordinate if self.reciprocal else ordinate

    def asymptote(self, line: LineFit) -> Asymptote:
        """Return coefficient·x^exponent, what the metric tends to; NaN where it ends at zero."""
        kinds = [line.slope > 0, line.slope == 0]
        coefficient = np.select(kinds, [line.slope, line.intercept], np.nan)
        return Asymptote(coefficient, np.where(kinds[0], 1.0, 0.0))


class Prediction(NamedTuple):
    """A metric at a predictor that was not measured; one element per group."""

    value: FloatArray  # NaN where the law has no answer (a metric that would not be positive)
    lower: FloatArray  # NaN where there is no interval
    upper: FloatArray
    limit: FloatArray
    limit_share: FloatArray  # limit/value of a falling metric, value/limit of a rising one


class ModelFit(NamedTuple):
    """A law fitted to each group: the model and its lines."""

    model: LineModel
    line: LineFit

    def predict(self, predictor: Number) -> FloatArray:
        """Metric at ``predictor``; NaN where the law would make it zero or negative."""
        at = np.asarray(predictor, dtype=float)
        ordinate = self.line.value(self.model.abscissa(at))
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.model.metric(np.where(ordinate > 0, ordinate, np.nan), at)

    def interval(
        self, predictor: Number, *, level: float = 0.90, repeats: Number = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Prediction interval for the mean of ``repeats`` runs at ``predictor``.

        A metric is positive, so an end that the line puts at or below zero becomes 0, or inf
        where the ordinate is the metric's reciprocal.
        """
        at = np.asarray(predictor, dtype=float)
        ends = self.line.interval(self.model.abscissa(at), level=level, repeats=repeats)
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b = (self.model.metric(np.maximum(end, 0.0), at) for end in ends)
        unanswered = np.isnan(self.predict(at))
        lower, upper = np.minimum(a, b), np.maximum(a, b)
        return np.where(unanswered, np.nan, lower), np.where(unanswered, np.nan, upper)

    def limit(self) -> FloatArray:
        """Return what the metric tends to as the predictor grows without bound."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.model.asymptote(self.line).limit()

    def relative_error(self, predictor: Number, *, repeats: Number = 1) -> FloatArray:
        """Standard error of the mean of ``repeats`` new runs, as a share of the prediction."""
        x = self.model.abscissa(np.asarray(predictor, dtype=float))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.abs(self.line.prediction_error(x, repeats) / self.line.value(x))

    def take(self, groups: IntArray) -> ModelFit:
        """Select the fits of some groups, in the order given and possibly several times."""
        moments = Moments._make(part[groups] for part in self.line.moments)
        columns: tuple[Any, ...] = self.line[1:]
        return self._replace(line=LineFit(moments, *(part[groups] for part in columns)))

    def noise_gain(self, predictor: Number) -> FloatArray:
        """Percent of error at ``predictor`` for each percent of noise in the points."""
        x = self.model.abscissa(np.asarray(predictor, dtype=float))
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.abs(self.line.moments.mean_y / self.line.value(x))
            return np.sqrt(self.line.leverage(x)) * size

    def parameters(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Values and standard errors by parameter (with unit); NaN for those held at a bound."""
        values = self.line.intercept, self.model.slope_sign * self.line.slope
        both = zip(values, self.line.standard_errors(), strict=True)
        return dict(zip(self.model.parameters, both, strict=True))


def published_line(model: LineModel, *, intercept: float, slope: float) -> ModelFit:
    """Make a fit of published coefficients, which has no points and so no inference."""
    if not np.isfinite([intercept, slope]).all():
        raise FittingError(f"{model.equation} needs finite coefficients")
    # No points leave no degree of freedom, so that errors and intervals come out NaN.
    unknown, none = np.array([np.nan]), np.array([0])
    at, rise = np.array([[intercept], [slope]], dtype=np.float64)
    moments = Moments(none, *[unknown] * 5)
    free = np.array([FREE], dtype=np.int8)
    return ModelFit(model, LineFit(moments, at, rise, free, none, unknown))


def fit(
    model: LineModel,
    codes: IntArray,
    predictor: FloatArray,
    metric: FloatArray | Repeats,
    groups: int,
) -> ModelFit:
    """Fit ``model`` to each group of labelled rows; arguments as `fit_groups`.

    Repeats are of the metric, or of its reciprocal where the model is ``reciprocal``.
    """
    if isinstance(metric, np.ndarray):
        y = Repeats.single(model.ordinate(metric, predictor))
    else:
        # The ordinate is linear in either at one predictor: this is its factor.
        y = metric.scaled(model.ordinate(np.ones_like(predictor), predictor))
    x = model.abscissa(predictor)
    return ModelFit(model, fit_repeats(codes, x, y, groups, nonnegative=model.nonnegative))


def fit_table(model: LineModel, predictor: FloatArray, metric: FloatArray) -> ModelFit:
    """Fit ``model`` to each row of ``(groups, points)`` arrays; one predictor row may serve all."""
    x, y = model.abscissa(predictor), model.ordinate(metric, predictor)
    return ModelFit(model, fit_points(x, y, nonnegative=model.nonnegative))
