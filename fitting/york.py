"""Straight lines through points with errors in both co-ordinates, correlated or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.errors import FittingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fitting.line import FloatArray

_ITERATIONS = 300
_PRECISION = 1e-14
# Directions, from straight down to straight up, among which a line that went astray is sought.
_DIRECTIONS = 180
# Spread of adjusted abscissas, as a share of that of the measured ones, that counts as none.
_NO_SPREAD = 1e-9


class YorkLine(NamedTuple):
    """Straight line y = intercept + slope·x through points with errors in both co-ordinates.

    Attributes
    ----------
    intercept, slope : float
    mean_x : float
        Abscissa at which the line is known best.
    mean_error : float
        Standard error of the line there.
    slope_error : float
        Standard error of the slope; by the errors given, not by the scatter seen.
    chi_square : float
        Weighted sum of squared residuals.
    weight : (points,) float array
        1 / variance of each residual.
    """

    intercept: float
    slope: float
    mean_x: float
    mean_error: float
    slope_error: float
    chi_square: float
    weight: FloatArray

    @property
    def intercept_error(self) -> float:
        """Standard error of the intercept."""
        return float(np.hypot(self.mean_error, self.mean_x * self.slope_error))


def york_line(
    x: ArrayLike,
    y: ArrayLike,
    var_x: ArrayLike,
    var_y: ArrayLike,
    cov_xy: ArrayLike = 0.0,
) -> YorkLine:
    """Fit a line by the unified equations of York et al. (2004).

    Parameters
    ----------
    x, y : (points,) arrays
    var_x, var_y, cov_xy : (points,) arrays or numbers
        Variances of the errors of each point and their covariance. One of the variances may be
        0, with no covariance; not both.

    Raises
    ------
    FittingError
        For fewer than two points or without spread in x, values that are not finite, errors that
        cannot be, where the points show no direction, or where all errors are perfectly
        correlated along the line.

    References
    ----------
    York, Evensen, López Martínez & De Basabe Delgado (2004), American Journal of Physics 72,
    367-375, https://doi.org/10.1119/1.1632486
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    errors = [np.broadcast_to(np.asarray(v, dtype=float), x.shape) for v in (var_x, var_y, cov_xy)]
    _refuse(x, y, *errors)
    slope = _slope(x, y, *errors)
    weight = _weight(slope, *errors)
    total = weight.sum()
    mean_x, mean_y = weight @ x / total, weight @ y / total
    intercept = mean_y - slope * mean_x
    adjusted = mean_x + _adjustment(slope, weight, x - mean_x, y - mean_y, *errors)
    middle = weight @ adjusted / total
    information = weight @ (adjusted - middle) ** 2
    if not information > _NO_SPREAD**2 * (weight @ (x - mean_x) ** 2):
        raise FittingError("the errors lie along the line: χ² is the same whatever its slope")
    return YorkLine(
        intercept=float(intercept),
        slope=float(slope),
        mean_x=float(middle),
        mean_error=float(1 / np.sqrt(total)),
        slope_error=float(1 / np.sqrt(information)),
        chi_square=float(weight @ (y - intercept - slope * x) ** 2),
        weight=weight,
    )


def _refuse(x: FloatArray, y: FloatArray, *errors: FloatArray) -> None:
    var_x, var_y, cov_xy = errors
    if x.ndim != 1 or x.shape != y.shape:
        raise FittingError(f"x {x.shape} and y {y.shape} are not two lists of one length")
    if not all(np.isfinite(part).all() for part in (x, y, *errors)):
        raise FittingError("points and their errors must be finite: leave missing ones out")
    if len(x) < 2 or not np.ptp(x) > 0:
        raise FittingError("a line takes two points with different x")
    if (var_x < 0).any() or (var_y < 0).any() or not (var_x + var_y > 0).all():
        raise FittingError("variances are not negative, and no point is without any error")
    if (cov_xy**2 > var_x * var_y * (1 + 1e-9)).any():
        raise FittingError("a covariance is larger than the two variances allow")


def _slope(x: FloatArray, y: FloatArray, *errors: FloatArray) -> float:
    """Iterate York's equation for the slope from the best of many directions.

    Of points that hardly show a direction χ² has several minima, and the iteration may go back
    and forth; there the minimum nearest to the best direction is searched.
    """
    scale = float(np.ptp(y) / np.ptp(x)) or 1.0
    angles = np.linspace(-np.pi / 2, np.pi / 2, _DIRECTIONS + 2)[1:-1]
    misfits = _misfit(scale * np.tan(angles), x, y, *errors)
    best = int(np.argmin(misfits))
    slope = start = scale * float(np.tan(angles[best]))
    for _ in range(_ITERATIONS):
        before, slope = slope, _next_slope(slope, x, y, *errors)
        if abs(slope - before) <= _PRECISION * abs(slope):
            break
    else:
        slope = np.nan
    if np.isfinite(slope) and _misfit(np.array([slope]), x, y, *errors)[0] <= misfits[best]:
        return slope
    if best in (0, len(angles) - 1):
        raise FittingError("the points show no slope: they lie above one another")
    return _minimum(start, scale, angles[best - 1 : best + 2 : 2], x, y, *errors)


def _minimum(
    start: float, scale: float, between: FloatArray, x: FloatArray, y: FloatArray, *e: FloatArray
) -> float:
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda angle: float(_misfit(np.array([scale * np.tan(angle)]), x, y, *e)[0]),
        bounds=(float(between[0]), float(between[1])),
        method="bounded",
        options={"xatol": 1e-12},
    )
    slope = scale * float(np.tan(found.x))
    both = _misfit(np.array([slope, start]), x, y, *e)
    return slope if both[0] <= both[1] else start


def _misfit(slopes: FloatArray, x: FloatArray, y: FloatArray, *errors: FloatArray) -> FloatArray:
    """Least χ² of any line with each of these slopes."""
    b = slopes[:, None]
    weight = _weight(b, *errors)
    off = y - b * x
    mean = (weight * off).sum(axis=1) / weight.sum(axis=1)
    made: FloatArray = (weight * (off - mean[:, None]) ** 2).sum(axis=1)
    return made


def _next_slope(slope: float, x: FloatArray, y: FloatArray, *errors: FloatArray) -> float:
    weight = _weight(slope, *errors)
    total = weight.sum()
    dx, dy = x - weight @ x / total, y - weight @ y / total
    pull = weight * _adjustment(slope, weight, dx, dy, *errors)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float((pull @ dy) / (pull @ dx))


def _weight(
    slope: FloatArray | float, var_x: FloatArray, var_y: FloatArray, cov_xy: FloatArray
) -> FloatArray:
    variance = var_y + slope * (slope * var_x - 2 * cov_xy)
    # Errors that lie along the line say nothing across it.
    return 1 / np.maximum(variance, 1e-12 * (var_y + slope**2 * var_x))


def _adjustment(
    slope: float,
    weight: FloatArray,
    dx: FloatArray,
    dy: FloatArray,
    var_x: FloatArray,
    var_y: FloatArray,
    cov_xy: FloatArray,
) -> FloatArray:
    """Abscissas moved onto the line along their errors, less the mean abscissa (York's β)."""
    return weight * (dx * var_y + slope * dy * var_x - (slope * dx + dy) * cov_xy)
