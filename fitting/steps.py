"""Runs of many groups condensed to steps: one mean a group and frequency, with its repeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fitting.posterior import Sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fitting.line import FloatArray, IntArray, Repeats

# Frequencies are one step when they agree to a thousandth: counters and kHz tables round.
SAME_STEP = 1e-3


def step_starts(codes: IntArray, frequency: FloatArray) -> NDArray[np.bool_]:
    """True where a step begins, in rows sorted by group and then by frequency."""
    begins: NDArray[np.bool_] = np.diff(codes, prepend=-1) != 0
    begins |= np.diff(frequency, prepend=0.0) > SAME_STEP * frequency
    return begins


def step_counts(codes: IntArray, frequency: FloatArray, groups: int) -> IntArray:
    """How many steps the rows of each group are at, in any order."""
    order = np.lexsort((frequency, codes))
    codes = codes[order]
    return np.bincount(codes[step_starts(codes, frequency[order])], minlength=groups)


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of all groups, sorted by group and then by frequency.

    Attributes
    ----------
    first, count : (groups,) int arrays
        Where a group's steps begin, and how many it has (0 for a group without points).
    frequency, log_value, runs : (steps,) float arrays
        Hz, mean of ln y, and runs at each step.
    scatter, scatter_df : (groups,) float arrays
        Sum of squares of ln y about the steps' means, and its degrees of freedom.
    """

    first: IntArray
    count: IntArray
    frequency: FloatArray
    log_value: FloatArray
    runs: FloatArray
    scatter: FloatArray
    scatter_df: FloatArray

    @classmethod
    def of(
        cls, codes: IntArray, frequency: FloatArray, log_value: FloatArray, groups: int
    ) -> Steps:
        """Condense rows labelled by group 0 … ``groups`` − 1; ``log_value`` has no NaN."""
        order = np.lexsort((log_value, frequency, codes))
        codes, frequency, log_value = codes[order], frequency[order], log_value[order]
        begin = np.flatnonzero(step_starts(codes, frequency))
        if not begin.size:
            nothing = np.zeros(groups)
            return cls(*(nothing.astype(np.int64),) * 2, *(np.empty(0),) * 3, nothing, nothing)
        runs = np.diff(np.append(begin, len(codes))).astype(float)
        mean = np.add.reduceat(log_value, begin) / runs
        squares = (log_value - np.repeat(mean, runs.astype(np.int64))) ** 2
        count = np.bincount(codes[begin], minlength=groups)
        return cls(
            np.cumsum(count) - count,
            count,
            np.add.reduceat(frequency, begin) / runs,
            mean,
            runs,
            np.bincount(codes, squares, groups).astype(np.float64, copy=False),
            np.bincount(codes, minlength=groups) - count.astype(float),
        )

    @classmethod
    def of_repeats(
        cls, codes: IntArray, frequency: FloatArray, log_value: Repeats, groups: int
    ) -> Steps:
        """Condense runs that are condensed by frequency already, as `of` does the runs.

        ``codes`` and ``frequency`` have one element a point; each has one run or more.
        """
        order = np.lexsort((log_value.mean, frequency, codes))
        codes, frequency, log_value = codes[order], frequency[order], log_value.take(order)
        begin = np.flatnonzero(step_starts(codes, frequency))
        if not begin.size:
            return cls.of(codes, frequency, log_value.mean, groups)
        weight = log_value.runs.astype(np.float64)
        runs = np.add.reduceat(weight, begin)
        mean = np.add.reduceat(weight * log_value.mean, begin) / runs
        apart = log_value.mean - np.repeat(mean, np.diff(np.append(begin, len(codes))))
        count = np.bincount(codes[begin], minlength=groups)
        squares = np.bincount(codes, weight * apart**2 + log_value.squares, groups)
        return cls(
            np.cumsum(count) - count,
            count,
            np.add.reduceat(weight * frequency, begin) / runs,
            mean,
            runs,
            squares.astype(np.float64, copy=False),
            (np.bincount(codes, weight, groups) - count).astype(np.float64, copy=False),
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
