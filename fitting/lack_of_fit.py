"""Does a third frequency lie on the line through the others? Lack of fit of T = t_fixed + w/f.

The scatter of the steps about the weighted line is compared with that of repeated runs. Few
repeats say little of their own scatter, so it is moderated towards a usual one, as if that had
been seen in a few runs already. Sources: Draper & Smith, *Applied Regression Analysis*, 3rd ed.,
ch. 2 (lack of fit against pure error); Smyth (2004), https://doi.org/10.2202/1544-6115.1027
(moderated variances).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fitting.line import FloatArray, IntArray
    from fitting.steps import Steps

# Degrees of freedom that the usual scatter counts for.
_USUAL_DF = 4.0


class LackOfFit(NamedTuple):
    """Test of the straight line; one element a group, NaN below three steps.

    ``p_value`` is that of the F test; ``at_top`` the residual at the highest step as a share of
    the measured time: above 0 the highest clock gains less than the line says, below 0 more.
    """

    p_value: FloatArray
    at_top: FloatArray


def lack_of_fit(steps: Steps, *, usual: float) -> LackOfFit:
    """Test each group's steps against the line in 1/f.

    Parameters
    ----------
    steps : Steps
        Of ln(time), or of another time-like logarithm.
    usual : float
        Usual standard deviation of ln(time) from run to run.
    """
    from scipy.special import fdtrc

    groups = len(steps.count)
    group = np.repeat(np.arange(groups), steps.count)
    value = np.exp(steps.log_value - _mean(group, steps.log_value, groups)[group])
    # Errors are relative, so each step weighs as its runs over its square.
    weight = steps.runs / value**2
    x = 1 / steps.frequency
    x = x / _mean(group, x, groups)[group]
    total = np.bincount(group, weight, groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_x, mean_y = (np.bincount(group, weight * a, groups) / total for a in (x, value))
        dx, dy = x - mean_x[group], value - mean_y[group]
        sxy, sxx = (np.bincount(group, weight * dx * d, groups) for d in (dy, dx))
        slope = sxy / sxx
        residual = (dy - slope[group] * dx) / value
        squares = np.bincount(group, steps.runs * residual**2, groups)
        free = steps.count - 2.0
        spread = (steps.scatter + _USUAL_DF * usual**2) / (steps.scatter_df + _USUAL_DF)
        p_value = fdtrc(free, steps.scatter_df + _USUAL_DF, squares / free / spread)
    enough = steps.count > 2
    at_top = np.full(groups, np.nan)
    last = steps.first[enough] + steps.count[enough] - 1
    at_top[enough] = residual[last]
    return LackOfFit(np.where(enough, p_value, np.nan), at_top)


def _mean(group: IntArray, values: FloatArray, groups: int) -> FloatArray:
    with np.errstate(invalid="ignore"):
        mean: FloatArray = np.bincount(group, values, groups) / np.bincount(group, minlength=groups)
    return mean
