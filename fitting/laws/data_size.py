"""Time against the extent of a job, and how far from that line one that was not measured may lie.

    T(x) = start + x/rate,    start ≥ 0, rate > 0

The extent x is what a job has to get through, its data. Times scatter in proportion, so the line is
fitted to the time per extent, T/x = 1/rate + start/x. Runs repeated at one extent share what is
peculiar to it: waves of tasks, layout, a cache outgrown. They say little of how far the next extent
lies from the line, however many they are, so what is fitted and judged is one mean an extent. Few
extents say little of it either, so their misses are moderated towards usual ones, as if these had
been seen in a few extents already.

References
----------
N. R. Draper, H. Smith: *Applied Regression Analysis*, 3rd ed., Wiley 1998, ch. 1 and 9.
G. K. Smyth: Linear models and empirical Bayes methods for assessing differential expression in
microarray experiments. Statistical Applications in Genetics and Molecular Biology 3(1), 2004.
doi:10.2202/1544-6115.1027 (moderated variances)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.regression.lines import (
    FloatArray,
    LineFit,
    Number,
    fit_groups,
    student_quantile,
    variance_of_mean,
)

if TYPE_CHECKING:
    from fitting.bayes.posterior import MeasuredSteps


class UsualMiss(NamedTuple):
    """How far extents usually lie from their line."""

    share: float  # of the time
    degrees_of_freedom: int  # for which it counts beside those of the extents measured


# Set on the Spark jobs of C3O, where 3 % is about the median miss and one in ten is 4 times that.
USUAL_MISS = UsualMiss(0.03, 3)


class ExtentLine(NamedTuple):
    """The line of each group, in shares of a target extent.

    The line is of time per extent, times the target (s), over the target's share of the extent: the
    intercept is ``target``/rate, the slope ``start``; both are held at zero or above.
    """

    target: float  # extent that all else refers to
    line: LineFit
    scatter: FloatArray  # variance of ln(time) between runs at one extent; 0 without repeats
    runs: FloatArray  # harmonic mean of the runs at an extent

    @property
    def target_time(self) -> FloatArray:
        """Time at the target (s); NaN for groups with one extent."""
        return self.line.value(1.0)

    def interval(
        self, *, level: float = 0.90, repeats: Number = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Prediction interval (s) of the mean of ``repeats`` runs at the target."""
        line, middle, usual = self.line, self.target_time, USUAL_MISS
        seen = line.degrees_of_freedom
        learnt = seen * np.where(seen > 0, line.variance, 0.0)
        freedom = seen + usual.degrees_of_freedom
        miss = (learnt + usual.degrees_of_freedom * (usual.share * middle) ** 2) / freedom
        # The means that the misses are of have the scatter of their own runs in them already.
        fewer = np.maximum(variance_of_mean(repeats) - 1 / self.runs, 0.0)
        with np.errstate(invalid="ignore"):
            leverage = line.leverage(1.0)
        variance = miss * (leverage + 1.0) + self.scatter * middle**2 * fewer
        half = student_quantile(freedom, level) * np.sqrt(variance)
        return np.maximum(middle - half, 0.0), middle + half


def fit_sizes(steps: MeasuredSteps, target: float) -> ExtentLine:
    """Fit T(D) = t_fixed + D/rate of each group to the means of its data sizes D (B).

    ``steps`` are of ln(time in s), over 1/D in place of a frequency; ``start`` is t_fixed.
    """
    groups = len(steps.count)
    codes = np.repeat(np.arange(groups), steps.count)
    share = target * steps.frequency
    line = fit_groups(codes, share, np.exp(steps.log_value) * share, groups, nonnegative=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        scatter = np.where(steps.scatter_df > 0, steps.scatter / steps.scatter_df, 0.0)
        runs = steps.count / np.bincount(codes, 1 / steps.runs, groups)
    return ExtentLine(target, line, scatter, runs)
