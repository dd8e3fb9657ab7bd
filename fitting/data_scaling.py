"""Time against data size: T(D) = t_fixed + D/rate, and how far from that line a new size may lie.

Times scatter in proportion, so the line is fitted to the time per byte, T/D = 1/rate + t_fixed/D.
Runs repeated at one size share what is peculiar to it: waves of tasks, layout, a cache outgrown.
They say little of how far the next size lies from the line, however many they are, so what is
fitted and judged is one mean a size. Few sizes say little of it either, so their misses are
moderated towards usual ones, as if these had been seen in a few sizes already.

References
----------
N. R. Draper, H. Smith: *Applied Regression Analysis*, 3rd ed., Wiley 1998, ch. 1 and 9.
G. K. Smyth: Linear models and empirical Bayes methods for assessing differential expression in
microarray experiments. Statistical Applications in Genetics and Molecular Biology 3(1), 2004.
doi:10.2202/1544-6115.1027 (moderated variances)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fitting.line import LineFit, fit_groups, student_quantile, variance_of_mean

if TYPE_CHECKING:
    from fitting.line import FloatArray
    from fitting.steps import Steps

# Usual miss of a size's mean, as a share of its time, and the degrees of freedom it counts for:
# set on the Spark jobs of C3O, where 3 % is about the median miss and one in ten is 4 times that.
USUAL_MISS = 0.03
USUAL_DF = 3


@dataclass(frozen=True, slots=True)
class SizeLine:
    """The line of each group, in shares of a target size.

    Attributes
    ----------
    target : float
        Data size (B) that all else refers to.
    line : LineFit
        Time per byte, times the target (s), over the target's share of the size: the intercept
        is ``target``/rate, the slope t_fixed; both are held at zero or above.
    scatter : (groups,) float array
        Variance of ln(time) from run to run at one size; 0 where no size was repeated.
    runs : (groups,) float array
        Harmonic mean of the runs a size.
    """

    target: float
    line: LineFit
    scatter: FloatArray
    runs: FloatArray

    @property
    def projected(self) -> FloatArray:
        """Time at the target (s); NaN for groups with one size."""
        return self.line.value(1.0)

    def interval(
        self, *, level: float = 0.90, repeats: float | FloatArray = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Prediction interval (s) of the mean of ``repeats`` runs at the target.

        Raises
        ------
        FittingError
            For a level outside (0, 1) and for less than 1 repeat.
        """
        line, middle = self.line, self.projected
        learnt = np.where(line.degrees_of_freedom > 0, line.variance, 0.0)
        learnt = learnt * line.degrees_of_freedom
        freedom = line.degrees_of_freedom + USUAL_DF
        miss = (learnt + USUAL_DF * (USUAL_MISS * middle) ** 2) / freedom
        # The means that the misses are of have the scatter of their own runs in them already.
        fewer = np.maximum(variance_of_mean(repeats) - 1 / self.runs, 0.0)
        variance = miss * (line.leverage(1.0) + 1.0) + self.scatter * middle**2 * fewer
        half = student_quantile(freedom, level) * np.sqrt(variance)
        return np.maximum(middle - half, 0.0), middle + half


def fit_sizes(steps: Steps, target: float) -> SizeLine:
    """Fit the line of each group to the means of its sizes.

    Parameters
    ----------
    steps : Steps
        Of ln(time in s), over 1/size (1/B) in place of a frequency.
    target : float
        Data size (B), above 0.
    """
    groups = len(steps.count)
    codes = np.repeat(np.arange(groups), steps.count)
    share = target * steps.frequency
    line = fit_groups(codes, share, np.exp(steps.log_value) * share, groups, nonnegative=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        scatter = np.where(steps.scatter_df > 0, steps.scatter / steps.scatter_df, 0.0)
        runs = steps.count / np.bincount(codes, 1 / steps.runs, groups)
    return SizeLine(target, line, scatter, runs)
