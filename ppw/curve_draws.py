"""Draws of the curves of a runs table: what depends on several frequencies at once is counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fitting.bayes.draws import CurvePosterior, curve_posteriors
from fitting.bayes.steps import SAME_STEP
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fitting.bayes.pooling import Curve
    from fitting.regression.lines import FloatArray, IntArray
    from ppw.answers import Answers
    from ppw.posteriors import Posteriors
POWER = "power"
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
            name: _posteriors(answers.posteriors, name, lowest, highest)
            for name in answers.posteriors.steps
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
        """Draw ln(seconds a unit of work), the reciprocal of a rate: (draws, frequencies)."""
        return self._draw(name, group, frequencies, 0)

    def log_power(self, group: int, frequencies: FloatArray) -> FloatArray:
        """Draw ln(watts): (draws, frequencies)."""
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
    posteriors: Posteriors, name: str, lowest: FloatArray, highest: FloatArray
) -> dict[int, CurvePosterior]:
    steps, neighbours = posteriors.steps[name], posteriors.neighbours
    made: dict[int, CurvePosterior] = {}
    for curve, groups in _laws(posteriors, name, lowest, highest):
        made |= curve_posteriors(curve, steps, neighbours, groups)
    # A host without frequency scaling has one step: nothing of it informs the others.
    alone: Curve = posteriors.power if name == POWER else posteriors.time
    for group in np.flatnonzero(steps.count == 1):
        made |= curve_posteriors(alone, steps, neighbours, np.array([group]))
    return made


def _laws(
    posteriors: Posteriors, name: str, lowest: FloatArray, highest: FloatArray
) -> list[tuple[Curve, IntArray]]:
    """Curves with the groups that they hold for: power by a V-f table where it covers all asked."""
    steps = posteriors.steps[name]
    able = steps.count > 1
    if name != POWER:
        return [(posteriors.time, np.flatnonzero(able))]
    voltage = posteriors.voltage
    covered = voltage.covers(steps, lowest) & voltage.covers(steps, highest)
    with_table = replace(posteriors.power, voltage=voltage.at)
    both = [(with_table, able & covered), (posteriors.power, able & ~covered)]
    return [(curve, np.flatnonzero(mask)) for curve, mask in both if mask.any()]
