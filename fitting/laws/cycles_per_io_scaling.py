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

from typing import Any, NamedTuple

import numpy as np

from fitting.errors import FittingError
from fitting.regression import lines
from fitting.regression.lines import BoolArray, FloatArray, IntArray

# A first line may be near nothing at few cores; no run weighs more than a hundredfold for it.
_LEAST_EXPECTED = 0.1


class Centre(NamedTuple):
    """Centre of the draws of one quantity; one element per group."""

    value: FloatArray
    error: FloatArray  # standard error
    degrees_of_freedom: IntArray


class IoScaling(NamedTuple):
    """Lines of cycles per I/O and of utilisation against cores, one of each a group."""

    cpio: lines.LineFit
    utilisation: lines.LineFit
    scatter: FloatArray  # standard deviation of a run's cpio about the line, as a share of it
    fewest: FloatArray  # core counts measured
    most: FloatArray
    cpio_fewest: FloatArray  # means of the runs at these core counts
    cpio_most: FloatArray
    utilisation_most: FloatArray
    runs_fewest: FloatArray
    runs_most: FloatArray
    correlation: FloatArray  # of the residuals of the two lines; 0 where it cannot be known

    @property
    def falls(self) -> BoolArray:
        """True for groups whose cpio would fall with cores, so that its line is held level."""
        return np.asarray(self.cpio.bound == lines.SLOPE_AT_ZERO)

    def cpio_centres(self, cores: float, *, repeats: float = 1) -> dict[str, Centre]:
        """Estimate cycles per I/O on fewest cores (desired), on most (today), and at ``cores``."""
        line, at = self.cpio, float(cores)

        def centre(value: FloatArray, variance: FloatArray) -> Centre:
            """Centre of the cpio of new runs where its mean is known with a variance."""
            new = (self.scatter * value) ** 2 * lines.variance_of_mean(repeats)
            return Centre(value, np.sqrt(variance + new), line.degrees_of_freedom)

        def centre_of_runs(mean: FloatArray, runs: FloatArray) -> Centre:
            return centre(mean, (self.scatter * mean) ** 2 * (1.0 / runs))

        return {
            "desired": centre_of_runs(self.cpio_fewest, self.runs_fewest),
            "today": centre_of_runs(self.cpio_most, self.runs_most),
            "projected": centre(line.value(at), line.variance * line.leverage(at)),
        }

    def utilisation_centres(self, cores: float, *, repeats: float = 1) -> dict[str, Centre]:
        """Estimate utilisation as measured on most cores, and projected to ``cores``, unclamped."""
        line, at = self.utilisation, float(cores)
        error = np.sqrt(line.variance * (1.0 / self.runs_most + lines.variance_of_mean(repeats)))
        df = line.degrees_of_freedom
        return {
            "measured": Centre(self.utilisation_most, error, df),
            "projected": Centre(line.value(at), line.prediction_error(at, repeats), df),
        }

    def normals(self, draws: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """Draw standard normals (groups, draws) for cpio and utilisation, correlated by group."""
        rng = np.random.default_rng(seed)
        first, other = rng.standard_normal((2, len(self.correlation), draws))
        rho = self.correlation[:, None]
        return first, rho * first + np.sqrt(1.0 - rho**2) * other


def fit_scaling(
    codes: IntArray, cores: FloatArray, cpio: FloatArray, utilisation: FloatArray, groups: int
) -> IoScaling:
    """Fit lines of cpio and utilisation (0 to 1) against cores to the runs of each group."""
    _refuse_bad_runs(cores, cpio, utilisation)
    cost, scatter = _fit_in_proportion(codes, cores, cpio, groups)
    busy = lines.fit_groups(codes, cores, utilisation, groups)
    fewest, most = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(fewest, codes, cores)
    np.maximum.at(most, codes, cores)
    at_fewest, at_most = cores == fewest[codes], cores == most[codes]
    runs_fewest = np.bincount(codes, at_fewest, groups)
    runs_most = np.bincount(codes, at_most, groups)
    with np.errstate(invalid="ignore"):
        cost_off = cpio / (cost.intercept[codes] + cost.slope[codes] * cores) - 1.0
        busy_off = utilisation - busy.intercept[codes] - busy.slope[codes] * cores
        return IoScaling(
            cpio=cost,
            utilisation=busy,
            scatter=scatter,
            fewest=fewest,
            most=most,
            cpio_fewest=np.bincount(codes, at_fewest * cpio, groups) / runs_fewest,
            cpio_most=np.bincount(codes, at_most * cpio, groups) / runs_most,
            utilisation_most=np.bincount(codes, at_most * utilisation, groups) / runs_most,
            runs_fewest=runs_fewest.astype(np.float64),
            runs_most=runs_most.astype(np.float64),
            correlation=_correlate_residuals(codes, cost_off, busy_off, groups),
        )


def student_draws(centre: Centre, normals: FloatArray) -> FloatArray:
    """Turn normal draws into Student's t about a centre, (groups, draws); NaN without freedom."""
    from scipy.special import ndtr, stdtrit

    df = np.where(centre.degrees_of_freedom > 0, centre.degrees_of_freedom, np.nan)[:, None]
    away: FloatArray = centre.error[:, None] * stdtrit(df, ndtr(normals))
    return centre.value[:, None] + away


def _refuse_bad_runs(cores: FloatArray, cpio: FloatArray, utilisation: FloatArray) -> None:
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


def _fit_in_proportion(
    codes: IntArray, cores: FloatArray, cpio: FloatArray, groups: int
) -> tuple[lines.LineFit, FloatArray]:
    """Fit a line to each group, with errors in proportion to it; return lines and error shares."""
    first = lines.fit_groups(codes, cores, cpio, groups)
    mean = first.moments.mean_y[codes]
    # Of a line that falls, or is none, the mean will be taken.
    rises = first.slope[codes] >= 0
    expected = np.where(rises, first.intercept[codes] + first.slope[codes] * cores, mean)
    weight = 1.0 / np.maximum(expected, _LEAST_EXPECTED * mean) ** 2
    # Of mean weight 1, so that the sums of a line without weights serve.
    unit = first.moments.points / np.bincount(codes, weight, groups)
    moments = _weighted_moments(codes, cores, cpio, weight * unit[codes], groups)
    free, held = lines.fit_moments(moments), lines.fit_moments(moments, nonnegative=True)
    # A line that falls is held level; one that rises keeps its intercept, even below zero.
    columns: zip[Any] = zip(held[1:], free[1:], strict=True)
    line = lines.LineFit(free.moments, *(np.where(free.slope < 0, h, f) for h, f in columns))
    return line, np.sqrt(line.variance / unit)


def _weighted_moments(
    codes: IntArray, x: FloatArray, y: FloatArray, weight: FloatArray, groups: int
) -> lines.Moments:
    def sum_up(values: FloatArray) -> FloatArray:
        return np.bincount(codes, weight * values, groups).astype(np.float64, copy=False)

    # About the means, because plain sums of squares lose digits.
    points = np.bincount(codes, minlength=groups)
    mean_x, mean_y = sum_up(x) / points, sum_up(y) / points
    dx, dy = x - mean_x[codes], y - mean_y[codes]
    return lines.Moments(points, mean_x, mean_y, sum_up(dx * dx), sum_up(dx * dy), sum_up(dy * dy))


def _correlate_residuals(codes: IntArray, a: FloatArray, b: FloatArray, groups: int) -> FloatArray:
    """Return the correlation of two residuals in each group; 0 where it is not known."""
    aa, bb, ab = (np.bincount(codes, part, groups) for part in (a * a, b * b, a * b))
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = ab / np.sqrt(aa * bb)
    return np.where(np.isfinite(rho), np.clip(rho, -1.0, 1.0), 0.0)
