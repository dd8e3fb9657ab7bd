"""Runs of many groups aggregated to steps, and whether a line in 1/f fits them.

A step is one mean per group and frequency, with the scatter of its repeats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.bayes.posterior import Sweep
from fitting.regression.lines import BoolArray, FloatArray, IntArray, Repeats

if TYPE_CHECKING:
    from collections.abc import Iterator

# Frequencies are one step when they agree to a thousandth: counters and kHz tables round.
SAME_STEP = 1e-3
# Degrees of freedom that the usual scatter counts for.
_USUAL_DF = 4.0


def step_starts(codes: IntArray, frequency: FloatArray) -> BoolArray:
    """True where a step begins, in rows sorted by group and then by frequency."""
    begins: BoolArray = np.diff(codes, prepend=-1) != 0
    begins |= np.diff(frequency, prepend=0.0) > SAME_STEP * frequency
    return begins


def step_counts(codes: IntArray, frequency: FloatArray, groups: int) -> IntArray:
    """How many steps the rows of each group are at, in any order."""
    order = np.lexsort((frequency, codes))
    codes = codes[order]
    return np.bincount(codes[step_starts(codes, frequency[order])], minlength=groups)


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of all groups, sorted by group and then by frequency."""

    first: IntArray  # where the steps of each group begin
    count: IntArray  # steps of each group; 0 without points
    frequency: FloatArray  # of each step (Hz)
    log_value: FloatArray  # mean of ln y at each step
    runs: FloatArray  # at each step
    scatter: FloatArray  # squares of each group's ln y about the steps' means
    scatter_df: FloatArray  # degrees of freedom of the scatter

    @classmethod
    def of(
        cls, codes: IntArray, frequency: FloatArray, log_value: FloatArray, groups: int
    ) -> Steps:
        """Aggregate rows labelled by group 0 … ``groups`` − 1; ``log_value`` has no NaN."""
        return cls.of_repeats(codes, frequency, Repeats.single(log_value), groups)

    @classmethod
    def of_repeats(
        cls, codes: IntArray, frequency: FloatArray, log_value: Repeats, groups: int
    ) -> Steps:
        """Aggregate points of one run or more each, as `of` does the runs."""
        order = np.lexsort((log_value.mean, frequency, codes))
        codes, frequency, log_value = codes[order], frequency[order], log_value.take(order)
        begin = np.flatnonzero(step_starts(codes, frequency))
        weight = log_value.runs.astype(np.float64)
        runs = np.add.reduceat(weight, begin)
        mean = np.add.reduceat(weight * log_value.mean, begin) / runs
        apart = log_value.mean - np.repeat(mean, np.diff(np.append(begin, len(codes))))
        count = np.bincount(codes[begin], minlength=groups)
        squares = np.bincount(codes, weight * apart**2 + log_value.squares, groups)
        return cls(
            first=np.cumsum(count) - count,
            count=count,
            frequency=np.add.reduceat(weight * frequency, begin) / runs,
            log_value=mean,
            runs=runs,
            # Without a point numpy counts in integers.
            scatter=squares.astype(np.float64, copy=False),
            scatter_df=(np.bincount(codes, weight, groups) - count).astype(np.float64, copy=False),
        )

    def sweep(self, groups: IntArray) -> Sweep:
        """Sweep of groups that all have the same number of steps."""
        at = self.first[groups][:, None] + np.arange(self.count[groups[0]])
        parts = (self.frequency[at], self.log_value[at], self.runs[at])
        return Sweep(*parts, self.scatter[groups], self.scatter_df[groups])

    def by_count(self, groups: IntArray) -> Iterator[tuple[IntArray, Sweep]]:
        """Yield (positions in ``groups``, sweep) for each number of steps that occurs."""
        counts = self.count[groups]
        for count in np.unique(counts):
            where = np.flatnonzero(counts == count)
            yield where, self.sweep(groups[where])

    def highest(self, groups: IntArray) -> tuple[FloatArray, FloatArray]:
        """Highest frequency (Hz) of groups that have a step, and ln y there."""
        last = self.first[groups] + self.count[groups] - 1
        return self.frequency[last], self.log_value[last]


class LackOfFit(NamedTuple):
    """Test of the straight line in 1/f; one element a group, NaN below three steps."""

    p_value: FloatArray  # of the F test
    # Residual at the highest step as a share of the measured time: above 0 the highest frequency
    # gains less than the line says, below 0 more.
    at_top: FloatArray


def lack_of_fit(steps: Steps, *, usual: float) -> LackOfFit:
    """Test whether the steps lie on the line T = t_fixed + w/f through them.

    The scatter of the steps about the weighted line is compared with that of repeated runs. Few
    repeats say little of their own scatter, so it is moderated towards the usual standard deviation
    of ln(time) from run to run, as if that had been seen in a few runs. Sources: Draper & Smith,
    *Applied Regression Analysis*, 3rd ed., ch. 2 (lack of fit against pure error); Smyth (2004),
    https://doi.org/10.2202/1544-6115.1027 (moderated variances).
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
