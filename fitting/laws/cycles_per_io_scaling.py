"""How cycles per I/O and utilisation go on with the number of cores: two lines, drawn together.

Both are straight lines against cores, by least squares over the runs of a group
(`fitting.regression.lines`). Errors of cycles per I/O are a share of them, as run-to-run noise is,
so its line is weighed by the squares of a first one; those of a utilisation are of one size. A line
of cpio that falls is held level, since it would reach zero; a utilisation stays between a floor and
1 wherever it is asked for. The two are of the same runs, so their errors go together; the
correlation of their residuals joins their draws.

At a core count that was measured, the answer is the mean of its runs, and what is not known of it
is the scatter about the line: it has in it how badly a line fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.errors import FittingError
from fitting.regression.lines import (
    SLOPE_AT_ZERO,
    LineFit,
    Moments,
    fit_groups,
    fit_moments,
    variance_of_mean,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray, IntArray

    Mask = NDArray[np.bool_]


# A first line may be near nothing at few cores; no run weighs more than a hundredfold for it.
_LEAST_EXPECTED = 0.1


class Centre(NamedTuple):
    """What draws of one quantity lie about: value, standard error, degrees of freedom a group."""

    value: FloatArray
    error: FloatArray
    degrees_of_freedom: IntArray


@dataclass(frozen=True, slots=True)
class IoScaling:
    """Lines of cycles per I/O and of utilisation against cores, one of each a group.

    Attributes
    ----------
    cpio, utilisation : LineFit
    scatter : (groups,) float array
        Standard deviation of a run's cpio about the line, as a share of it.
    fewest, most : (groups,) float arrays
        Core counts measured.
    cpio_fewest, cpio_most, utilisation_most : (groups,) float arrays
        Means of the runs at these.
    runs_fewest, runs_most : (groups,) float arrays
    correlation : (groups,) float array
        Of the residuals of the two lines; 0 where it cannot be known.
    """

    cpio: LineFit
    utilisation: LineFit
    scatter: FloatArray
    fewest: FloatArray
    most: FloatArray
    cpio_fewest: FloatArray
    cpio_most: FloatArray
    utilisation_most: FloatArray
    runs_fewest: FloatArray
    runs_most: FloatArray
    correlation: FloatArray

    @property
    def falls(self) -> Mask:
        """True for groups whose cpio falls with cores, and is held level."""
        return np.asarray(self.cpio.bound == SLOPE_AT_ZERO)

    def cpio_centres(self, cores: float, *, repeats: float = 1) -> dict[str, Centre]:
        """Cycles per I/O as desired, today and projected to a core count."""
        line, at = self.cpio, float(cores)
        projected = line.value(at)
        ends = {
            "desired": (self.cpio_fewest, 1.0 / self.runs_fewest),
            "today": (self.cpio_most, 1.0 / self.runs_most),
        }
        found = {
            name: self._about(mean, (self.scatter * mean) ** 2 * share, repeats)
            for name, (mean, share) in ends.items()
        }
        found["projected"] = self._about(projected, line.variance * line.leverage(at), repeats)
        return found

    def _about(self, value: FloatArray, variance: FloatArray, repeats: float) -> Centre:
        """Centre of the cpio of new runs where its mean is known with a variance."""
        new = (self.scatter * value) ** 2 * variance_of_mean(repeats)
        return Centre(value, np.sqrt(variance + new), self.cpio.degrees_of_freedom)

    def utilisation_centres(self, cores: float, *, repeats: float = 1) -> dict[str, Centre]:
        """Utilisation as measured on most cores, and projected to a core count; not clamped."""
        line, at = self.utilisation, float(cores)
        error = np.sqrt(line.variance * (1.0 / self.runs_most + variance_of_mean(repeats)))
        df = line.degrees_of_freedom
        return {
            "measured": Centre(self.utilisation_most, error, df),
            "projected": Centre(line.value(at), line.prediction_error(at, repeats), df),
        }

    def normals(self, draws: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """Standard normal draws (groups, draws) for cpio and utilisation, correlated by group."""
        rng = np.random.default_rng(seed)
        first, other = rng.standard_normal((2, len(self.correlation), draws))
        rho = self.correlation[:, None]
        return first, rho * first + np.sqrt(1.0 - rho**2) * other


def fit_scaling(
    codes: IntArray, cores: FloatArray, cpio: FloatArray, utilisation: FloatArray, groups: int
) -> IoScaling:
    """Fit both lines of every group to labelled runs.

    Parameters
    ----------
    codes : (runs,) int array
        Group of each run, 0 … ``groups`` − 1.
    cores, cpio, utilisation : (runs,) float arrays
        Above 0; utilisation at most 1.
    groups : int

    Raises
    ------
    FittingError
        For values that are not finite and above 0, and utilisations above 1.
    """
    _refuse_impossible(cores, cpio, utilisation)
    cost, scatter = _fit_in_proportion(codes, cores, cpio, groups)
    busy = fit_groups(codes, cores, utilisation, groups)
    fewest, most = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(fewest, codes, cores)
    np.maximum.at(most, codes, cores)
    at_fewest, at_most = cores == fewest[codes], cores == most[codes]
    runs_fewest = np.bincount(codes, at_fewest, groups)
    runs_most = np.bincount(codes, at_most, groups)
    with np.errstate(invalid="ignore"):
        return IoScaling(
            cost,
            busy,
            scatter,
            fewest,
            most,
            np.bincount(codes, at_fewest * cpio, groups) / runs_fewest,
            np.bincount(codes, at_most * cpio, groups) / runs_most,
            np.bincount(codes, at_most * utilisation, groups) / runs_most,
            runs_fewest.astype(np.float64),
            runs_most.astype(np.float64),
            _correlation(
                codes,
                cpio / (cost.intercept[codes] + cost.slope[codes] * cores) - 1.0,
                utilisation - busy.intercept[codes] - busy.slope[codes] * cores,
                groups,
            ),
        )


def student_draws(centre: Centre, normals: FloatArray) -> FloatArray:
    """Draws (groups, draws) of Student's t about a centre, by the ranks of normal draws.

    NaN for a group without degrees of freedom.
    """
    from scipy.special import ndtr, stdtrit

    df = np.where(centre.degrees_of_freedom > 0, centre.degrees_of_freedom, np.nan)[:, None]
    away: FloatArray = centre.error[:, None] * stdtrit(df, ndtr(normals))
    return centre.value[:, None] + away


def _refuse_impossible(cores: FloatArray, cpio: FloatArray, utilisation: FloatArray) -> None:
    for name, values, most in (
        ("core count", cores, np.inf),
        ("cycles per I/O", cpio, np.inf),
        ("utilisation", utilisation, 1.0),
    ):
        bad = np.flatnonzero(~((values > 0) & (values <= most) & np.isfinite(values)))
        if bad.size:
            rule = "above 0" if most == np.inf else "above 0 and at most 1"
            raise FittingError(
                f"{name} of run {bad[0]} is {values[bad[0]]:g} ({bad.size} of {values.size} are "
                f"bad): it must be {rule}; leave such runs out"
            )


def _level_where_falling(free: LineFit, held: LineFit) -> LineFit:
    """Take the held line of each group whose free line falls."""
    level = free.slope < 0
    names = ("intercept", "slope", "bound", "degrees_of_freedom", "variance")
    parts = (np.where(level, getattr(held, n), getattr(free, n)) for n in names)
    return LineFit(free.moments, *parts)


def _fit_in_proportion(
    codes: IntArray, cores: FloatArray, cpio: FloatArray, groups: int
) -> tuple[LineFit, FloatArray]:
    """Line of each group with errors that are a share of it, and that share."""
    first = fit_groups(codes, cores, cpio, groups)
    mean = first.moments.mean_y[codes]
    # Of a line that falls, or is none, the mean will be taken.
    rises = first.slope[codes] >= 0
    expected = np.where(rises, first.intercept[codes] + first.slope[codes] * cores, mean)
    weight = 1.0 / np.maximum(expected, _LEAST_EXPECTED * mean) ** 2
    # Of mean weight 1, so that the sums of a line without weights serve.
    unit = first.moments.points / np.bincount(codes, weight, groups)
    moments = _weighted_moments(codes, cores, cpio, weight * unit[codes], groups)
    free, level = fit_moments(moments), fit_moments(moments, nonnegative=True)
    line = _level_where_falling(free, level)
    return line, np.sqrt(line.variance / unit)


def _weighted_moments(
    codes: IntArray, x: FloatArray, y: FloatArray, weight: FloatArray, groups: int
) -> Moments:
    def sums(values: FloatArray) -> FloatArray:
        return np.bincount(codes, weight * values, groups).astype(np.float64, copy=False)

    points = np.bincount(codes, minlength=groups)
    mean_x, mean_y = sums(x) / points, sums(y) / points
    dx, dy = x - mean_x[codes], y - mean_y[codes]
    return Moments(points, mean_x, mean_y, sums(dx * dx), sums(dx * dy), sums(dy * dy))


def _correlation(codes: IntArray, a: FloatArray, b: FloatArray, groups: int) -> FloatArray:
    aa, bb, ab = (np.bincount(codes, part, groups) for part in (a * a, b * b, a * b))
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = ab / np.sqrt(aa * bb)
    return np.where(np.isfinite(rho), np.clip(rho, -1.0, 1.0), 0.0)
