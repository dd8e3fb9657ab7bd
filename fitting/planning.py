"""Which frequency to measure next: how far an interval is expected to shrink before one runs it.

Pre-posterior analysis: a candidate (a frequency and a number of runs there) is judged by drawing
outcomes from what the points so far predict, adding each to the points, and asking the posterior
again. The mean half width over the outcomes is what the candidate is expected to leave. All
candidates meet the same random numbers, so that their differences are theirs. The prior that the
table's other groups gave to a group stays as it is: one more run of one group hardly moves it.

Sources: Raiffa & Schlaifer, *Applied Statistical Decision Theory* (1961), ch. 4 and 5; Chaloner &
Verdinelli (1995), https://doi.org/10.1214/ss/1177009939 (Bayesian design of experiments).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.errors import FittingError
from fitting.hypothetical import Chances, Predictive, drawn_cells, measured
from fitting.known import COMPONENTS
from fitting.mixture import Mixture
from fitting.posterior import Sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.hypothetical import Candidate
    from fitting.known import Known
    from fitting.line import FloatArray

# Weightiest components that quantiles are taken from: of each factor of a product; and for
# hypothetical outcomes, of which there are hundreds, of a factor and of one quantity alone.
_KEPT = 24
_FEW, _FEW_ALONE = 18, 48
# Half widths closer than this share are alike: the draws do not tell them apart.
_ALIKE = 0.01


def half_width(answers: Sequence[Mixture], level: float) -> FloatArray:
    """Half the width of the interval of a sum of independent ln y, one a row."""
    if not 0 < level < 1:
        raise FittingError(f"interval level {level!r} is not inside 0 to 1; try 0.90")
    total = answers[0]
    for other in answers[1:]:
        total = total.plus(other)
    lower, upper = total.quantiles((0.5 - level / 2, 0.5 + level / 2))
    made: FloatArray = (upper - lower) / 2
    return made


def present(quantities: Sequence[Known], level: float) -> FloatArray:
    """Half width of the product of quantities as they are known, one a row of their points."""
    components = COMPONENTS if len(quantities) == 1 else _KEPT
    return half_width([known.answer(components=components) for known in quantities], level)


def shares(quantities: Sequence[Known]) -> tuple[float, float]:
    """Shares of the variance at the target that form and noise make up, over all quantities."""
    form, noise = zip(*(known.parts() for known in quantities), strict=True)
    total = sum(float(known.answer().moments()[1].mean()) for known in quantities)
    return sum(form) / total, sum(noise) / total


@dataclass(frozen=True, slots=True)
class Outlook:
    """What each candidate is expected to leave.

    Attributes
    ----------
    candidates : sequence of Candidate
    half_width : (candidates, draws) float array
        Half width in each hypothetical outcome.
    points : sequence (a quantity) of sequences (a candidate) of Sweep
        The points in each outcome, one row a draw.
    """

    candidates: Sequence[Candidate]
    half_width: FloatArray
    points: Sequence[Sequence[Sweep]]

    @property
    def expected(self) -> FloatArray:
        """Mean half width after each candidate."""
        mean: FloatArray = self.half_width.mean(axis=1)
        return mean

    def typical(self, candidate: int) -> list[Sweep]:
        """Points of each quantity in the outcome whose half width is nearest the expected."""
        widths = self.half_width[candidate]
        draw = int(np.argmin(np.abs(widths - widths.mean())))
        return [of_quantity[candidate].take([draw]) for of_quantity in self.points]


def outlook(
    quantities: Sequence[Known],
    candidates: Sequence[Candidate],
    level: float,
    chances: Sequence[Chances],
) -> Outlook:
    """Judge candidates by what they are expected to leave.

    Parameters
    ----------
    quantities : sequence of Known
        What the metric is the product of, such as time and power; each run measures all of them.
    candidates : sequence of Candidate
    level : float
        Of the interval, inside (0, 1).
    chances : sequence of Chances
        One a quantity.
    """
    answers, points = [], []
    for known, numbers in zip(quantities, chances, strict=True):
        made = _outcomes(known, candidates, numbers)
        points.append(made)
        answers.append(_answers(known, made, _FEW_ALONE if len(quantities) == 1 else _FEW))
    widths = half_width(answers, level).reshape(len(candidates), -1)
    return Outlook(candidates, widths, points)


def _outcomes(known: Known, candidates: Sequence[Candidate], chances: Chances) -> list[Sweep]:
    frequency = list(dict.fromkeys(c.frequency for c in candidates))
    cell = drawn_cells(known, chances)
    predictive = Predictive.of(known, known.sweep, frequency, cell)
    return [
        measured(known.sweep, c, predictive, frequency.index(c.frequency), chances)
        for c in candidates
    ]


def _answers(known: Known, points: Sequence[Sweep], components: int) -> Mixture:
    """Answers after all candidates' outcomes, in their order; those of as many steps at once."""
    draws = len(points[0].frequency)
    steps = np.array([sweep.frequency.shape[1] for sweep in points])
    rows, parts = [], []
    for count in np.unique(steps):
        chosen = np.flatnonzero(steps == count)
        together = Sweep(*map(np.concatenate, zip(*(points[int(i)] for i in chosen), strict=True)))
        rows.append((draws * chosen[:, None] + np.arange(draws)).ravel())
        parts.append(known.answer(together, components))
    joined = Mixture(*map(np.concatenate, zip(*parts, strict=True)))
    return joined.take(np.argsort(np.concatenate(rows)))


def attainable(
    quantities: Sequence[Known],
    candidates: Sequence[Candidate],
    level: float,
    chances: Sequence[Chances],
) -> tuple[FloatArray, float, float]:
    """Half width of each draw once *all* candidates were measured, and the `shares` then.

    Each draw follows one cell from candidate to candidate.
    """
    done = []
    for known, numbers in zip(quantities, chances, strict=True):
        cell, sweep = drawn_cells(known, numbers), known.sweep
        for i, candidate in enumerate(candidates):
            fresh = Chances(*(np.roll(part, i * (j + 1)) for j, part in enumerate(numbers)))
            predictive = Predictive.of(known, sweep, [candidate.frequency], cell)
            sweep = measured(sweep, candidate, predictive, 0, fresh)
        done.append(known.with_sweep(sweep))
    return present(done, level), *shares(done)


class Stage(NamedTuple):
    """One measurement of a plan, and the half width it is expected to leave."""

    candidate: Candidate
    half_width: float


def choose(now: float, expected: FloatArray, runs: FloatArray, goal: float) -> int:
    """Number of the best candidate: the cheapest that reaches the goal, else the best a run.

    Parameters
    ----------
    now : float
        Half width at present.
    expected : (candidates,) float array
        Half widths to expect.
    runs : (candidates,) float array
        Cost, in runs or minutes.
    goal : float
    """
    reach = np.flatnonzero(expected <= goal)
    if reach.size:
        cheapest = reach[runs[reach] == runs[reach].min()]
        return int(cheapest[np.argmin(expected[cheapest])])
    gain = (now - expected) / runs
    if gain.max() <= _ALIKE * now / runs.max():
        # None gains by itself: the one that leaves least opens the way.
        return int(np.argmin(expected))
    return int(np.argmax(gain))


def look_ahead(
    quantities: Sequence[Known],
    first: Outlook,
    later: Sequence[Candidate],
    goal: float,
    level: float,
    chances: Sequence[Chances],
    most_runs: float,
    most_stages: int,
) -> list[Stage]:
    """Follow the best candidate again and again, each time along its typical outcome.

    Ends when the goal is reached, after ``most_stages`` measurements, or when no candidate is left
    within ``most_runs``; nothing at all where the goal is reached already. ``first`` is the outlook
    at present; later stages choose from ``later``, judged with ``chances``.
    """
    stages: list[Stage] = []
    now, made = float(present(quantities, level)[0]), first
    while now > goal and len(stages) < most_stages:
        runs = np.array([c.runs for c in made.candidates], dtype=float)
        best = choose(now, made.expected, runs, goal)
        now = float(made.expected[best])
        stages.append(Stage(made.candidates[best], now))
        most_runs -= runs[best]
        left = [c for c in later if c.runs <= most_runs]
        if not left or now <= goal or len(stages) == most_stages:
            break
        moved = zip(quantities, made.typical(best), strict=True)
        quantities = [known.with_sweep(sweep) for known, sweep in moved]
        made = outlook(quantities, left, level, chances)
    return stages
