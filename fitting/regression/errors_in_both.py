"""Straight lines through points with errors in both co-ordinates, and sensors calibrated by them.

A calibration compares one power sensor with another: reference = offset + slope·sensor. Runs come
in levels, such as a workload at a frequency: at each the true powers stay what they are and only
noise differs between repeats. Levels are the points of the line, so that many repeats of few levels
do not count as many points. The scatter of repeats, and the steps in which the sensors count, give
each point its errors and their covariance. The scatter of the points about the line beyond that
(the reference also sees disks, fans and losses that the sensor does not) is estimated by Paule and
Mandel's moment equation and widens every interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fitting.errors import FittingError, OutOfRangeError
from fitting.regression.lines import BoolArray, FloatArray, IntArray, student_quantile

FEWEST_LEVELS = 3

_ITERATIONS = 300
_PRECISION = 1e-14
# Directions, from straight down to straight up, among which the slope is sought first.
_DIRECTIONS = 180
# Spread of adjusted abscissas, as a share of that of the measured ones, that counts as none.
_NO_SPREAD = 1e-9
# Nothing is measured more exactly than this share of its range; keeps weights finite.
_EXACT = 1e-9
# Means of two levels that differ by less than so many standard errors may be one level.
_APART = 2.0
# The line holds outside the measured range by this share of it.
_MARGIN = 0.05
# Family-wise chance that a level of a good calibration is called an outlier.
_OUTLIER = 0.05


class YorkLine(NamedTuple):
    """Line through points with errors in x and y; its own errors follow from these."""

    intercept: float
    slope: float
    mean_x: float  # abscissa at which the line is known best
    mean_error: float  # standard error of the line there
    slope_error: float  # standard error of the slope
    chi_square: float  # weighted sum of squared residuals
    weight: FloatArray  # 1 / variance of the residual of each point


def york_line(
    x: ArrayLike, y: ArrayLike, var_x: ArrayLike, var_y: ArrayLike, cov_xy: ArrayLike = 0.0
) -> YorkLine:
    """Fit a line to points with errors in x and y (unified equations of York et al. 2004).

    One of a point's variances may be 0, with no covariance; not both. `FittingError` also where the
    points show no direction, or where all errors are perfectly correlated along the line.

    References
    ----------
    York, Evensen, López Martínez & De Basabe Delgado (2004), American Journal of Physics 72,
    367-375, https://doi.org/10.1119/1.1632486
    """
    points = _Points.of(x, y, var_x, var_y, cov_xy)
    slope = points.best_slope()
    weight = points.weight(slope)
    total = weight.sum()
    mean_x, mean_y = weight @ points.x / total, weight @ points.y / total
    intercept = mean_y - slope * mean_x
    dx = points.x - mean_x
    adjusted = mean_x + points.adjustment(slope, weight, dx, points.y - mean_y)
    middle = weight @ adjusted / total
    information = weight @ (adjusted - middle) ** 2
    if not information > _NO_SPREAD**2 * (weight @ dx**2):
        raise FittingError("the errors lie along the line, so χ² does not depend on the slope")
    return YorkLine(
        intercept=float(intercept),
        slope=float(slope),
        mean_x=float(middle),
        mean_error=float(1 / np.sqrt(total)),
        slope_error=float(1 / np.sqrt(information)),
        chi_square=float(weight @ (points.y - intercept - slope * points.x) ** 2),
        weight=weight,
    )


class _Points(NamedTuple):
    """Points with the variances and covariances of their errors."""

    x: FloatArray
    y: FloatArray
    var_x: FloatArray
    var_y: FloatArray
    cov_xy: FloatArray

    @classmethod
    def of(cls, x: ArrayLike, y: ArrayLike, *errors: ArrayLike) -> _Points:
        """Check points and their errors, and make arrays of them."""
        x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        if x.ndim != 1 or x.shape != y.shape:
            raise FittingError(f"x {x.shape} and y {y.shape} are not two lists of equal length")
        made = cls(x, y, *(np.broadcast_to(np.asarray(e, dtype=float), x.shape) for e in errors))
        _, _, var_x, var_y, cov_xy = made
        if not all(np.isfinite(part).all() for part in made):
            raise FittingError("points and their errors must be finite: leave out missing points")
        if len(x) < 2 or not np.ptp(x) > 0:
            raise FittingError("all points have the same x, and a line needs two different x")
        if (var_x < 0).any() or (var_y < 0).any() or not (var_x + var_y > 0).all():
            raise FittingError(
                "a variance is negative, or both of a point are 0: give variances of 0 or more, "
                "one above 0"
            )
        if (cov_xy**2 > var_x * var_y * (1 + 1e-9)).any():
            raise FittingError(
                "a covariance is larger than the two variances of its point allow: correct it"
            )
        return made

    def weight(self, slope: FloatArray | float) -> FloatArray:
        """Return 1 / variance of each point's residual about a line of this slope."""
        variance = self.var_y + slope * (slope * self.var_x - 2 * self.cov_xy)
        # Errors that lie along the line say nothing across it.
        return 1 / np.maximum(variance, 1e-12 * (self.var_y + slope**2 * self.var_x))

    def adjustment(
        self, slope: float, weight: FloatArray, dx: FloatArray, dy: FloatArray
    ) -> FloatArray:
        """Return abscissas moved along the errors onto the line, less the mean (York's β)."""
        moved = dx * self.var_y + slope * dy * self.var_x - (slope * dx + dy) * self.cov_xy
        return weight * moved

    def misfit(self, slopes: FloatArray) -> FloatArray:
        """Return the least χ² that a line can have, for each of these slopes."""
        b = slopes[:, None]
        weight = self.weight(b)
        off = self.y - b * self.x
        mean = (weight * off).sum(axis=1) / weight.sum(axis=1)
        return (weight * (off - mean[:, None]) ** 2).sum(axis=1)

    def best_slope(self) -> float:
        """Find the slope of least χ² by York's iteration, or near the best direction instead."""
        scale = float(np.ptp(self.y) / np.ptp(self.x)) or 1.0
        angles = np.linspace(-np.pi / 2, np.pi / 2, _DIRECTIONS + 2)[1:-1]
        misfits = self.misfit(scale * np.tan(angles))
        best = int(np.argmin(misfits))
        start = scale * float(np.tan(angles[best]))
        slope = self._iterate_slope(start)
        if np.isfinite(slope) and self.misfit(np.array([slope]))[0] <= misfits[best]:
            return slope
        if best in (0, len(angles) - 1):
            raise FittingError(
                "the points lie above one another, so no slope can be fitted: measure at other x"
            )
        return self._search_slope(start, scale, (angles[best - 1], angles[best + 1]))

    def _iterate_slope(self, slope: float) -> float:
        """Iterate York's equation for the slope; NaN where it does not converge."""
        for _ in range(_ITERATIONS):
            before, weight = slope, self.weight(slope)
            total = weight.sum()
            dx, dy = self.x - weight @ self.x / total, self.y - weight @ self.y / total
            pull = weight * self.adjustment(slope, weight, dx, dy)
            with np.errstate(divide="ignore", invalid="ignore"):
                slope = float((pull @ dy) / (pull @ dx))
            if abs(slope - before) <= _PRECISION * abs(slope):
                return slope
        return np.nan

    def _search_slope(self, start: float, scale: float, angles: tuple[float, float]) -> float:
        """Search the slope of least χ² between two angles; ``start`` where none is better."""
        from scipy.optimize import minimize_scalar

        found = minimize_scalar(
            lambda angle: float(self.misfit(np.array([scale * np.tan(angle)]))[0]),
            bounds=(float(angles[0]), float(angles[1])),
            method="bounded",
            options={"xatol": 1e-12},
        )
        slope = scale * float(np.tan(found.x))
        both = self.misfit(np.array([slope, start]))
        return slope if both[0] <= both[1] else start


class LevelMeans(NamedTuple):
    """Means of the runs of each level, with the variances of the errors of these means."""

    label: NDArray[Any]  # as given, ascending
    runs: IntArray
    sensor: FloatArray
    reference: FloatArray
    var_sensor: FloatArray
    var_reference: FloatArray
    covariance: FloatArray


class CalibratedReadings(NamedTuple):
    """Readings brought to the reference."""

    value: FloatArray  # what the reference would read
    lower: FloatArray  # ends of its prediction interval
    upper: FloatArray
    extrapolated: BoolArray  # True outside the range of the calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationLine:
    """Fitted line reference = offset + slope·sensor, and how sure it is."""

    offset: float  # in the unit of the reference
    slope: float
    mean_sensor: float  # reading of the sensor at which the line is known best
    mean_error: float  # standard error of the line there
    slope_error: float
    scatter: float  # of a level's reference about the line beyond the errors of its mean
    run_error: float  # standard deviation of a run's reference about its level's, given its sensor
    degrees_of_freedom: int
    lowest: float  # range of the sensor in which the line holds
    highest: float

    def offset_interval(self, level: float = 0.90) -> tuple[float, float]:
        """Confidence interval of the offset."""
        error = float(np.hypot(self.mean_error, self.mean_sensor * self.slope_error))
        return self._interval_about(self.offset, error, level)

    def slope_interval(self, level: float = 0.90) -> tuple[float, float]:
        """Confidence interval of the slope."""
        return self._interval_about(self.slope, self.slope_error, level)

    def predict(
        self, sensor: ArrayLike, *, level: float = 0.90, extrapolate: bool = True
    ) -> CalibratedReadings:
        """Predict what the reference reads in new runs, whose levels may be new too.

        ``sensor`` is the mean over each run; NaN gives NaN. Without ``extrapolate``, readings
        outside ``lowest`` to ``highest`` raise `OutOfRangeError`.
        """
        x = np.asarray(sensor, dtype=float)
        with np.errstate(invalid="ignore"):
            outside = (x < self.lowest) | (x > self.highest)
        if outside.any() and not extrapolate:
            raise OutOfRangeError(
                f"the sensor read {x[outside].flat[0]:g}, and was calibrated from "
                f"{self.lowest:g} to {self.highest:g}: calibrate at such a load too"
            )
        value = self.offset + self.slope * x
        apart = (x - self.mean_sensor) * self.slope_error
        half = self._student_quantile(level) * np.sqrt(
            self.mean_error**2 + apart**2 + self.scatter**2 + self.run_error**2
        )
        return CalibratedReadings(value, value - half, value + half, outside)

    def _interval_about(self, value: float, error: float, level: float) -> tuple[float, float]:
        half = self._student_quantile(level) * error
        return value - half, value + half

    def _student_quantile(self, level: float) -> float:
        """Student's t quantile of the line's degrees of freedom."""
        return float(student_quantile(np.array([self.degrees_of_freedom]), level)[0])


class SensorCalibration(NamedTuple):
    """A fitted calibration with what speaks for and against it."""

    line: CalibrationLine
    levels: LevelMeans
    residual: FloatArray  # reference less the line at each level
    # Levels too far off the others' line: less than 5 % of good calibrations have one. None with
    # fewer than four levels; none is left out of the fit.
    outlier: BoolArray
    # Coefficient of the sensor's square beside the line and the P-value of its absence; NaN with
    # fewer than four levels.
    curvature: float
    curvature_p: float


def calibrate_sensor(
    level: ArrayLike,
    sensor: ArrayLike,
    reference: ArrayLike,
    *,
    sensor_resolution: float = 0.0,
    reference_resolution: float = 0.0,
) -> SensorCalibration:
    """Fit reference = offset + slope·sensor to the means of runs that both sensors saw.

    Runs with the same ``level`` are repeats of each other. The resolutions are the steps in which
    the two sensors count; a mean of repeats is no finer, since a steady load is rounded the same
    way every time.
    """
    labels, x, y = np.asarray(level), np.asarray(sensor, float), np.asarray(reference, float)
    if x.ndim != 1 or not labels.shape == x.shape == y.shape:
        raise FittingError(
            f"level {labels.shape}, sensor {x.shape} and reference {y.shape} are not three lists "
            "of equal length"
        )
    if not x.size:
        raise FittingError("no runs: a calibration needs runs that both sensors measured")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise FittingError("a reading is missing or infinite: leave out runs that lack one")
    steps = [float(sensor_resolution), float(reference_resolution)]
    for step in steps:
        if not (step >= 0 and np.isfinite(step)):
            raise FittingError(f"a resolution of {step:g} is none: give 0 or more, 0 if not known")
    levels, run_covariance = _average_levels(labels, x, y, steps)
    _refuse_too_few(levels, sensor_resolution)
    scatter_square, line = _fit_with_scatter(levels)
    rounding = np.diag([step**2 / 12 for step in steps])
    across = np.array([-line.slope, 1.0])
    margin = _MARGIN * np.ptp(x)
    residual = levels.reference - line.intercept - line.slope * levels.sensor
    curvature, curvature_p = _fit_curvature(levels.sensor, residual, line)
    made = CalibrationLine(
        offset=line.intercept,
        slope=line.slope,
        mean_sensor=line.mean_x,
        mean_error=line.mean_error,
        slope_error=line.slope_error,
        scatter=float(np.sqrt(scatter_square)),
        run_error=float(np.sqrt(max(0.0, across @ (run_covariance + rounding) @ across))),
        degrees_of_freedom=len(levels.runs) - 2,
        lowest=float(x.min() - margin),
        highest=float(x.max() + margin),
    )
    outlier = _flag_outliers(levels.sensor, residual, line)
    return SensorCalibration(made, levels, residual, outlier, curvature, curvature_p)


def _average_levels(
    labels: NDArray[Any], x: FloatArray, y: FloatArray, steps: list[float]
) -> tuple[LevelMeans, FloatArray]:
    """Average each level's runs; return these means, and the pooled covariance of single runs."""
    label, codes, runs = np.unique(labels, return_inverse=True, return_counts=True)
    mean_x, mean_y = np.bincount(codes, x) / runs, np.bincount(codes, y) / runs
    off = np.stack([x - mean_x[codes], y - mean_y[codes]])
    spare = len(x) - len(runs)
    covariance = off @ off.T / spare if spare else np.zeros((2, 2))
    least = [
        step**2 / 12 + (_EXACT * np.ptp(v)) ** 2 for v, step in zip((x, y), steps, strict=True)
    ]
    levels = LevelMeans(
        label=label,
        runs=runs,
        sensor=mean_x,
        reference=mean_y,
        var_sensor=covariance[0, 0] / runs + least[0],
        var_reference=covariance[1, 1] / runs + least[1],
        covariance=covariance[0, 1] / runs,
    )
    return levels, covariance


def _refuse_too_few(levels: LevelMeans, resolution: float) -> None:
    """Raise `FittingError` where the sensor tells fewer than `FEWEST_LEVELS` levels apart."""
    order = np.argsort(levels.sensor)
    at, variance = levels.sensor[order], levels.var_sensor[order]
    count, last = 1, 0
    for i in range(1, len(at)):
        # A mean counts that is clearly above the one counted before.
        error = np.sqrt(variance[i] + variance[last])
        if at[i] - at[last] > max(resolution, _APART * error):
            count, last = count + 1, i
    if count < FEWEST_LEVELS:
        raise FittingError(
            f"{count} level{'s' * (count != 1)} that the sensor tells apart (it "
            f"read {at[0]:.4g} to {at[-1]:.4g}): a calibration needs "
            f"{FEWEST_LEVELS} or more (idle, half load, full load)"
        )


def _fit_with_scatter(levels: LevelMeans) -> tuple[float, YorkLine]:
    """Fit the line with the extra scatter² (0 or more) at which χ² equals its degrees of freedom.

    Paule & Mandel (1982), https://doi.org/10.6028/jres.087.022, with a line in the mean's place.
    """
    from scipy.optimize import brentq

    x, y, expected = levels.sensor, levels.reference, len(levels.runs) - 2

    def fit_line(scatter_square: float) -> YorkLine:
        errors = levels.var_sensor, levels.var_reference + scatter_square, levels.covariance
        return york_line(x, y, *errors)

    alone = fit_line(0.0)
    if alone.chi_square <= expected:
        return 0.0, alone
    flat = np.polynomial.polynomial.Polynomial.fit(x, y, 1)
    # With all scatter in the reference and no other error χ² is what is expected.
    most = float(((y - flat(x)) ** 2).sum() / expected)
    found = brentq(lambda s: fit_line(s).chi_square - expected, 0.0, 2 * most, rtol=1e-10)
    return float(found), fit_line(float(found))


def _fit_curvature(x: FloatArray, residual: FloatArray, line: YorkLine) -> tuple[float, float]:
    """Return the coefficient of x² beside the line and its P-value (Student's t), or NaN."""
    from scipy.special import stdtr

    spare = len(x) - 3
    if spare < 1:
        return np.nan, np.nan
    half = np.ptp(x) / 2
    u, root = (x - x.mean()) / half, np.sqrt(line.weight)
    design = np.stack([np.ones_like(u), u, u**2], axis=1) * root[:, None]
    found, _, rank, _ = np.linalg.lstsq(design, residual * root, rcond=None)
    if rank < 3:
        return np.nan, np.nan
    left = residual * root - design @ found
    variance = left @ left / spare * np.linalg.inv(design.T @ design)[2, 2]
    if not variance > 0:
        return float(found[2] / half**2), np.nan
    return float(found[2] / half**2), float(2 * stdtr(spare, -abs(found[2]) / np.sqrt(variance)))


def _flag_outliers(x: FloatArray, residual: FloatArray, line: YorkLine) -> BoolArray:
    """Mark levels whose studentised residual is too large, by Bonferroni's bound; none of few."""
    from scipy.special import stdtr

    count, w = len(x), line.weight
    spare = count - 3
    if spare < 1:
        return np.zeros(count, dtype=bool)
    u = x - w @ x / w.sum()
    lever = w / w.sum() + w * u**2 / (w @ u**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        internal = w * residual**2 / (1 - lever) / (w @ residual**2 / (count - 2))
        external = np.sqrt(internal * spare / np.maximum(count - 2 - internal, 0.0))
    return count * 2 * stdtr(spare, -external) < _OUTLIER
