"""Draws of the curves of a runs table: what depends on several frequencies at once is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fitting.bayes.draws import CurvePosterior, curve_posteriors
from fitting.bayes.posterior import SAME_STEP
from ppw.errors import PpwError
from ppw.projection.answers import POWER, Answers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fitting.regression.lines import FloatArray

FEWEST_DRAWS = 100


@dataclass(frozen=True)
class CurveDraws:
    """Posterior curves of all groups, ready to be drawn.

    Attributes
    ----------
    known : mapping of str to mapping of int to CurvePosterior
        By what is fitted ("time", "throughput", "performance", "power") and group.
    draws, seed : int
        The same group has the same draws whenever it is asked for the same frequencies.
    """

    known: Mapping[str, Mapping[int, CurvePosterior]]
    draws: int
    seed: int

    @classmethod
    def of(
        cls,
        answers: Answers,
        lowest: FloatArray,
        highest: FloatArray,
        *,
        draws: int,
        seed: int,
    ) -> CurveDraws:
        """Prepare all that was fitted.

        Parameters
        ----------
        answers : Answers
        lowest, highest : (groups,) float array
            Range of frequencies (Hz) that each group will be asked for; NaN for a group that will
            not be asked.
        draws : int
            Curves a group, 100 or more.
        seed : int
        """
        if draws < FEWEST_DRAWS:
            raise PpwError(f"{draws} draws are too few to count: ask for {FEWEST_DRAWS} or more")
        made = {
            name: _posteriors(answers, name, lowest, highest) for name in answers.posteriors.steps
        }
        return cls(made, draws, seed)

    def has(self, name: str, group: int) -> bool:
        """Tell whether a group can be drawn."""
        return group in self.known[name]

    def is_curve(self, name: str, group: int) -> bool:
        """Tell whether a group has two steps or more, and so more than its one frequency."""
        return self.has(name, group) and self.steps(name, group).size > 1

    def steps(self, name: str, group: int) -> FloatArray:
        """Measured frequencies (Hz) of a group, rising."""
        measured: FloatArray = self.known[name][group].sweep.frequency[0]
        return measured

    def log_time(self, name: str, group: int, frequencies: FloatArray) -> FloatArray:
        """Draw ln(seconds per unit of work), the reciprocal of a rate: (draws, frequencies)."""
        return self._draw(name, group, frequencies, 0)

    def log_power(self, group: int, frequencies: FloatArray) -> FloatArray:
        """Draw ln(power in W): (draws, frequencies)."""
        return self._draw(POWER, group, frequencies, 1)

    def _draw(self, name: str, group: int, frequencies: FloatArray, stream: int) -> FloatArray:
        known = self.known[name][group]
        asked = np.asarray(frequencies, dtype=float)
        if len(known.sweep.frequency[0]) == 1:
            asked = _at_the_only_step(asked, known)
        # One stream for all that is a time, so that a rate and its reciprocal are one curve.
        return known.draw(asked, self.draws, np.random.default_rng((self.seed, group, stream)))


def _at_the_only_step(asked: FloatArray, known: CurvePosterior) -> FloatArray:
    only = known.sweep.frequency[0, 0]
    if (np.abs(asked / only - 1) > SAME_STEP).any():
        raise PpwError(
            f"measured at {only / 1e9:.4g} GHz only: no curve leads to "
            f"{asked[np.argmax(np.abs(asked - only))] / 1e9:.4g} GHz; measure at a second frequency"
        )
    return np.full_like(asked, only)


def _posteriors(
    answers: Answers, name: str, lowest: FloatArray, highest: FloatArray
) -> dict[int, CurvePosterior]:
    """Posterior of the curve of each group, of several steps or of one."""
    posteriors = answers.posteriors
    steps, neighbours = posteriors.steps[name], posteriors.neighbours
    made: dict[int, CurvePosterior] = {}
    for curve, mask in posteriors.laws(name, lowest, highest):
        able = np.flatnonzero(mask & (steps.count > 1))
        made |= curve_posteriors(curve, steps, neighbours, able)
    # A host without frequency scaling has one step: nothing of it informs the others.
    alone = posteriors.power if name == POWER else posteriors.time
    for group in np.flatnonzero(steps.count == 1):
        made |= curve_posteriors(alone, steps, neighbours, np.array([group]))
    return made
