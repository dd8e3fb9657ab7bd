"""Time against data size: T(D) = t_fixed + D/rate, and how far from it a new size may lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fitting.extent_line import ExtentLine, UsualMiss, fit_extents

if TYPE_CHECKING:
    from fitting.steps import Steps

# Set on the Spark jobs of C3O, where 3 % is about the median miss and one in ten is 4 times that.
USUAL_MISS = UsualMiss(0.03, 3)


def fit_sizes(steps: Steps, target: float) -> ExtentLine:
    """Fit the line of each group to the means of its sizes; ``start`` is t_fixed.

    Parameters
    ----------
    steps : Steps
        Of ln(time in s), over 1/size (1/B) in place of a frequency.
    target : float
        Data size (B), above 0.
    """
    return fit_extents(steps, target, USUAL_MISS)
