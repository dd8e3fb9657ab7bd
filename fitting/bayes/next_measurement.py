"""Which frequency to measure next: how far an interval is expected to shrink before one runs it.

Pre-posterior analysis: a candidate (a frequency and a number of runs there) is judged by drawing
outcomes from what the points so far predict, adding each to the points, and computing the posterior
again. The mean half width over the outcomes is what the candidate is expected to leave. All
candidates have common random numbers, so that their differences are theirs. The prior that the
table's other groups gave to a group stays as it is: one more run of one group hardly moves it.

Sources: Raiffa & Schlaifer, *Applied Statistical Decision Theory* (1961), ch. 4 and 5; Chaloner &
Verdinelli (1995), https://doi.org/10.1214/ss/1177009939 (Bayesian design of experiments).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import chdtri, ndtri

from fitting.bayes import posterior
from fitting.bayes.machine import SHARED_MISS
from fitting.bayes.pooling import posterior_cells
from fitting.bayes.posterior import MANY_RUNS, SAME_STEP, FrequencyTarget, SweepSteps
from fitting.bayes.prediction import TIME_AND_POWER, Mixture
from fitting.errors import FittingError
from fitting.regression.lines import FloatArray, IntArray

if TYPE_CHECKING:
    from fitting.bayes.pooling import Curve, Neighbours
    from fitting.bayes.posterior import MeasuredSteps

# Components of an answer, by weight, that quantiles are taken from: of one quantity alone and of
# each factor of a product; and the same for simulated outcomes, of which there are hundreds.
COMPONENTS, _KEPT = 96, 24
_FEW_ALONE, _FEW = 48, 18
# A cell this unlikely stays so: its prior, weight over likelihood, has lost its digits.
_IMPOSSIBLE = 1e-200
# Half widths closer than this share are alike: the draws do not tell them apart.
_ALIKE = 0.01


class Candidate(NamedTuple):
    """A measurement that could be made: so many runs at a frequency (Hz)."""

    frequency: float
    runs: int


class CommonNumbers(NamedTuple):
    """Common random numbers in (0, 1) of simulated outcomes, one a draw: stratified, shuffled."""

    cell: FloatArray
    value: FloatArray
    scatter: FloatArray

    @classmethod
    def of(cls, draws: int, seed: int | Sequence[int]) -> CommonNumbers:
        """Make the numbers of ``draws`` outcomes."""
        if draws < 1:
            raise FittingError(f"{draws} posterior draws are too few: give at least 1")
        random = np.random.default_rng(seed)
        middle = (np.arange(draws) + 0.5) / draws
        return cls(*(random.permutation(middle) for _ in range(3)))


class GroupPosterior(NamedTuple):
    """What is known of one quantity of one group."""

    law: posterior.ShapeLaw
    row: int  # number of the group in the law
    prior: FloatArray  # (1, shapes, scales): prior of the cells, pooled, up to a constant
    weight: FloatArray  # (shapes · scales,): posterior of the cells
    # Points of the group; or several rows of them that differ in their values only.
    sweep: SweepSteps
    target: FrequencyTarget  # the one frequency to predict

    def answer(self, sweep: SweepSteps | None = None, components: int = COMPONENTS) -> Mixture:
        """Distribution of ln y at the target after these points, or after those there are."""
        found, weight = self._posterior(self.sweep if sweep is None else sweep)
        parts = (found.mean, found.variance[found.design], weight)
        return Mixture(*(part.reshape(len(weight), -1) for part in parts)).trim(components)

    def parts(self) -> tuple[float, float]:
        """Posterior means of the variances of the model error and of the target runs' noise."""
        found, weight = self._posterior(self.sweep)
        form, noise = ((weight * part[found.design]).sum() for part in (found.form, found.noise))
        return float(form) / len(weight), float(noise) / len(weight)

    def with_sweep(self, sweep: SweepSteps) -> GroupPosterior:
        """Return the same quantity with other points."""
        weight = self._posterior(sweep)[1].mean(axis=0).ravel()
        return self._replace(weight=weight, sweep=sweep)

    def _posterior(self, sweep: SweepSteps) -> tuple[posterior.Evidence, FloatArray]:
        """Evidence of any points of this group for the target, and the weight of each cell."""
        rows = np.zeros(len(sweep.frequency), dtype=np.int64)
        target = FrequencyTarget._make(part[rows] for part in self.target)
        found = posterior.evidence(self.law, sweep, target, rows + self.row)
        return found, found.posterior(self.prior)


def group_posteriors(
    curve: Curve,
    steps: MeasuredSteps,
    target: FrequencyTarget,
    neighbours: Neighbours,
    groups: IntArray,
) -> Iterator[tuple[int, GroupPosterior]]:
    """Yield each group's number and what is known of it; arguments as of `posterior_cells`."""
    for cells in posterior_cells(curve, steps, target, neighbours, groups):
        law = curve.law(steps, neighbours, cells.groups)
        weight, likelihood = cells.weight, cells.evidence.likelihood
        # The prior that pooling gave a cell is its posterior over its likelihood.
        possible = likelihood > _IMPOSSIBLE
        prior = np.divide(weight, likelihood, out=np.zeros_like(weight), where=possible)
        for row, group in enumerate(cells.groups):
            one = np.array([group])
            asked = FrequencyTarget._make(part[one] for part in target)
            of_group = (law, row, prior[[row]], weight[row].ravel(), steps.sweep(one), asked)
            yield int(group), GroupPosterior(*of_group)


class Outcomes(NamedTuple):
    """What each candidate is expected to leave."""

    candidates: Sequence[Candidate]
    half_width: FloatArray  # (candidates, draws): in each simulated outcome
    # For each quantity and candidate the points in each outcome, one row a draw.
    points: Sequence[Sequence[SweepSteps]]

    @property
    def mean_half_width(self) -> FloatArray:
        """Mean half width after each candidate."""
        return self.half_width.mean(axis=1)

    def typical(self, candidate: int) -> list[SweepSteps]:
        """Points of each quantity in the outcome whose half width is nearest the expected."""
        widths = self.half_width[candidate]
        draw = int(np.argmin(np.abs(widths - widths.mean())))
        outcomes = [of_quantity[candidate] for of_quantity in self.points]
        return [SweepSteps._make(part[[draw]] for part in points) for points in outcomes]


def judge_candidates(
    quantities: Sequence[GroupPosterior],
    candidates: Sequence[Candidate],
    level: float,
    chances: Sequence[CommonNumbers],
) -> Outcomes:
    """Judge candidates by the half width expected of the product of the ``quantities``."""
    answers, points = [], []
    frequency = list(dict.fromkeys(c.frequency for c in candidates))
    for known, numbers in zip(quantities, chances, strict=True):
        cell = posterior.pick_cells(known.weight, numbers.cell)
        predictive = _Predictive.of(known, known.sweep, frequency, cell)
        made = [
            _simulate(known.sweep, c, predictive, frequency.index(c.frequency), numbers)
            for c in candidates
        ]
        points.append(made)
        answers.append(_answers(known, made, _FEW_ALONE if len(quantities) == 1 else _FEW))
    widths = half_width(answers, level).reshape(len(candidates), -1)
    return Outcomes(candidates, widths, points)


def attainable(
    quantities: Sequence[GroupPosterior],
    candidates: Sequence[Candidate],
    level: float,
    chances: Sequence[CommonNumbers],
) -> tuple[FloatArray, float, float]:
    """Half width of each draw once *all* candidates were measured, and the `shares` then."""
    done = []
    for known, numbers in zip(quantities, chances, strict=True):
        cell, sweep = posterior.pick_cells(known.weight, numbers.cell), known.sweep
        for i, candidate in enumerate(candidates):
            fresh = CommonNumbers(*(np.roll(part, i * (j + 1)) for j, part in enumerate(numbers)))
            predictive = _Predictive.of(known, sweep, [candidate.frequency], cell)
            sweep = _simulate(sweep, candidate, predictive, 0, fresh)
        done.append(known.with_sweep(sweep))
    return present(done, level), *shares(done)


class Stage(NamedTuple):
    """One measurement of a plan, and the half width it is expected to leave."""

    candidate: Candidate
    half_width: float


def half_width_by_others(
    quantities: Sequence[GroupPosterior], level: float, chances: Sequence[CommonNumbers], at: int
) -> float:
    """Mean half width once another program of the machine was run at the target.

    ``at`` is the place, among the ``quantities``, of the one that it stands in for
    (`fitting.bayes.machine`): its miss there is as likely as this program's own.
    """
    done = []
    for place, (known, numbers) in enumerate(zip(quantities, chances, strict=True)):
        rows = np.zeros(len(numbers.value), dtype=np.int64)
        sweep = SweepSteps._make(part[rows] for part in known.sweep)
        if place == at:
            (mean,), (variance,) = known.answer().moments()
            frequency = float(known.target.frequency[0])
            step = int(np.searchsorted(sweep.frequency[0], frequency))
            left = variance * (1 / SHARED_MISS**2 - 1)
            value = mean + ndtri(numbers.value) * np.sqrt(variance)
            sweep = sweep._replace(
                frequency=np.insert(sweep.frequency, step, frequency, axis=1),
                log_value=np.insert(sweep.log_value, step, value, axis=1),
                runs=np.insert(sweep.runs, step, MANY_RUNS, axis=1),
                borrowed=np.insert(sweep.borrowed, step, left, axis=1),
            )
        done.append(known._replace(sweep=sweep))
    return float(present(done, level).mean())


def look_ahead(
    quantities: Sequence[GroupPosterior],
    first: Outcomes,
    later: Sequence[Candidate],
    goal: float,
    level: float,
    chances: Sequence[CommonNumbers],
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
        best = choose(now, made.mean_half_width, runs, goal)
        now = float(made.mean_half_width[best])
        stages.append(Stage(made.candidates[best], now))
        most_runs -= runs[best]
        left = [c for c in later if c.runs <= most_runs]
        if not left or now <= goal or len(stages) == most_stages:
            break
        moved = zip(quantities, made.typical(best), strict=True)
        quantities = [known.with_sweep(sweep) for known, sweep in moved]
        made = judge_candidates(quantities, left, level, chances)
    return stages


def choose(now: float, expected: FloatArray, runs: FloatArray, goal: float) -> int:
    """Number of the best candidate: the cheapest that reaches the goal, else the best a run."""
    reach = np.flatnonzero(expected <= goal)
    if reach.size:
        cheapest = reach[runs[reach] == runs[reach].min()]
        return int(cheapest[np.argmin(expected[cheapest])])
    gain = (now - expected) / runs
    if gain.max() <= _ALIKE * now / runs.max():
        # None gains by itself: the one that leaves least opens the way.
        return int(np.argmin(expected))
    return int(np.argmax(gain))


def present(quantities: Sequence[GroupPosterior], level: float) -> FloatArray:
    """Half width of the product of quantities as they are known, one a row of their points."""
    components = COMPONENTS if len(quantities) == 1 else _KEPT
    return half_width([known.answer(components=components) for known in quantities], level)


def shares(quantities: Sequence[GroupPosterior]) -> tuple[float, float]:
    """Shares of the variance at the target that form and noise make up, over all quantities."""
    form, noise = zip(*(known.parts() for known in quantities), strict=True)
    total = sum(float(known.answer().moments()[1].mean()) for known in quantities)
    return sum(form) / total, sum(noise) / total


def half_width(answers: Sequence[Mixture], level: float) -> FloatArray:
    """Half the width of the interval of ln y, or of the sum of ln T and ln P, one a row."""
    if not 0 < level < 1:
        raise FittingError(f"interval level {level!r} is not inside 0 to 1; try 0.90")
    total = answers[0]
    for other in answers[1:]:
        total = total.plus(other, TIME_AND_POWER)
    lower, upper = total.quantiles((0.5 - level / 2, 0.5 + level / 2))
    return (upper - lower) / 2


def _answers(known: GroupPosterior, points: Sequence[SweepSteps], components: int) -> Mixture:
    """Answers after all candidates' outcomes, in their order."""
    draws = len(points[0].frequency)
    steps = np.array([sweep.frequency.shape[1] for sweep in points])
    rows, parts = [], []
    # Outcomes with the same number of steps are computed at once.
    for count in np.unique(steps):
        chosen = np.flatnonzero(steps == count)
        alike = zip(*(points[int(i)] for i in chosen), strict=True)
        together = SweepSteps(*map(np.concatenate, alike))
        rows.append((draws * chosen[:, None] + np.arange(draws)).ravel())
        parts.append(known.answer(together, components))
    joined = Mixture(*map(np.concatenate, zip(*parts, strict=True)))
    return joined.take(np.argsort(np.concatenate(rows)))


class _Predictive(NamedTuple):
    """Long-run mean at some frequencies given one cell a draw."""

    mean: FloatArray  # (frequencies, draws)
    variance: FloatArray  # (frequencies, draws)
    noise: FloatArray  # (draws,): variance of a run

    @classmethod
    def of(
        cls, known: GroupPosterior, sweep: SweepSteps, frequency: Sequence[float], cell: IntArray
    ) -> _Predictive:
        """Predict as `evidence` does: what is drawn must come from the model that judges it."""
        grid, steps = known.law.grid, sweep.frequency[0]
        shape, scale = np.divmod(cell, len(grid.noise))
        noise, drift = grid.noise[scale] ** 2, grid.drift[shape, scale] ** 2
        every = np.append(steps, frequency)
        asked = every[None], np.array([known.row])
        log_shape = known.law.log_shape(*asked)[0][:, shape].T
        # A new highest step becomes the anchor, so what begins above the present one is not drawn;
        # nor what begins below the lowest one.
        outside = (grid.beyond, grid.below) if sweep.borrowed.any() else (0.0, 0.0)
        covariance = _covariance(sweep, every, noise, drift, outside)
        spread = known.law.log_spread(*asked)
        if spread is not None:
            by_draw = spread[0][:, shape].T
            covariance += by_draw[:, :, None] * by_draw[:, None, :]
        residual = sweep.log_value - log_shape[:, : len(steps)]
        mean, variance = _kriging(covariance, residual)
        return cls((log_shape[:, len(steps) :] + mean).T, variance.T, noise)


def _covariance(
    sweep: SweepSteps,
    every: FloatArray,
    noise: FloatArray,
    drift: FloatArray,
    outside: tuple[float, float],
) -> FloatArray:
    """Covariance of the steps' means and of long-run means: (draws, all, all)."""
    steps = len(sweep.frequency[0])
    u, lowest = (np.log(f / sweep.anchor[0]) for f in (every, sweep.lowest[0]))
    # Runs at one step share a part of their noise, those to come with those that are there.
    alike = posterior.SHARED_NOISE * (np.abs(every[:, None] / every - 1) < SAME_STEP)
    at = np.arange(steps)
    alike[at, at] = posterior.noise_share(sweep.runs[0])
    made: FloatArray = drift[:, None, None] * posterior.error_covariance(
        u[:, None], u, *outside, lowest
    )
    made += noise[:, None, None] * alike
    made[:, at, at] += sweep.borrowed[0]
    return made


def _kriging(covariance: FloatArray, residual: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance beyond points of unknown level; Rasmussen & Williams (2006), eq. 2.42."""
    steps = residual.shape[1]
    between, there = covariance[:, :steps, steps:], covariance[:, steps:, steps:]
    draws = len(covariance)
    right = (
        np.ones((draws, steps, 1)),
        np.broadcast_to(residual, (draws, steps))[:, :, None],
        between,
    )
    solved = np.linalg.solve(covariance[:, :steps, :steps], np.concatenate(right, axis=2))
    one = solved[:, :, 0]
    precision = one.sum(axis=1)
    level = ((one * residual).sum(axis=1) / precision)[:, None]
    mean = level + np.einsum("dsf,ds->df", between, solved[:, :, 1] - level * one)
    to_level = 1 - np.einsum("dsf,ds->df", between, one)
    variance = np.einsum("dff->df", there) - np.einsum("dsf,dsf->df", between, solved[:, :, 2:])
    variance += to_level**2 / precision[:, None]
    return mean, np.maximum(variance, 0.0)


def _simulate(
    sweep: SweepSteps,
    candidate: Candidate,
    predictive: _Predictive,
    at: int,
    chances: CommonNumbers,
) -> SweepSteps:
    """Points with the simulated outcomes of a candidate added, one row a draw."""
    within = (1 - posterior.SHARED_NOISE) * predictive.noise
    runs = candidate.runs
    deviation = np.sqrt(predictive.variance[at] + within / runs)
    value = predictive.mean[at] + ndtri(chances.value) * deviation
    scatter = within * chdtri(runs - 1, chances.scatter) if runs > 1 else np.zeros_like(value)
    if len(sweep.runs) == 1:
        rows = np.zeros(len(value), dtype=np.int64)
        sweep = SweepSteps._make(part[rows] for part in sweep)
    return _add_runs(sweep, candidate, value, scatter)


def _add_runs(
    sweep: SweepSteps, candidate: Candidate, value: FloatArray, scatter: FloatArray
) -> SweepSteps:
    """Points with runs of a mean and a scatter added, to a step or as a new one."""
    frequency, log_value, count, spread, freedom, borrowed = sweep
    at = step_of(sweep, candidate.frequency)
    if at is not None and borrowed[0, at]:
        # A run of the group's own takes the place of what others stood in for.
        own = (np.delete(part, at, axis=1) for part in (frequency, log_value, count, borrowed))
        frequency, log_value, count, borrowed = own
        at = None
    if at is None:
        at = int(np.searchsorted(frequency[0], candidate.frequency))
        frequency = np.insert(frequency, at, candidate.frequency, axis=1)
        # A step without runs; its mean takes a degree of freedom.
        new = (np.insert(part, at, 0.0, axis=1) for part in (log_value, count, borrowed))
        log_value, count, borrowed = new
        freedom = freedom - 1
    before, runs = count[:, at], candidate.runs
    share = runs / (before + runs)
    apart = value - log_value[:, at]
    spread = spread + scatter + before * share * apart**2
    log_value, count = log_value.copy(), count.copy()
    log_value[:, at] += share * apart
    count[:, at] += runs
    return SweepSteps(frequency, log_value, count, spread, freedom + runs, borrowed)


def step_of(sweep: SweepSteps, frequency: float) -> int | None:
    """Column of the step that a frequency (Hz) belongs to; None for a new one."""
    near = np.flatnonzero(np.abs(sweep.frequency[0] / frequency - 1) < SAME_STEP)
    return int(near[0]) if near.size else None
