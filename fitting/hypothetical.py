"""Measurements that were not made: what the points so far predict of them, drawn at random.

What is drawn comes from the same model that will judge it: the posterior's cells, and given one
cell the long-run means with their model error (a Gaussian process) and the noise of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.errors import FittingError
from fitting.posterior import SHARED_NOISE, Sweep, anchors, integrated_wiener, noise_share
from fitting.steps import SAME_STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.known import Known
    from fitting.line import FloatArray, IntArray


class Candidate(NamedTuple):
    """A measurement that could be made: so many runs at a frequency (Hz)."""

    frequency: float
    runs: int


class Chances(NamedTuple):
    """Random numbers in (0, 1) behind hypothetical outcomes, one a draw: stratified, shuffled."""

    cell: FloatArray
    value: FloatArray
    scatter: FloatArray

    @classmethod
    def of(cls, draws: int, seed: int | Sequence[int]) -> Chances:
        """Make the numbers of ``draws`` outcomes."""
        if draws < 1:
            raise FittingError(f"{draws} draws: an expectation takes at least one")
        random = np.random.default_rng(seed)
        middle = (np.arange(draws) + 0.5) / draws
        return cls(*(random.permutation(middle) for _ in range(3)))


def step_of(sweep: Sweep, frequency: float) -> int | None:
    """Column of the step that a frequency (Hz) belongs to; None for a new one."""
    near = np.flatnonzero(np.abs(sweep.frequency[0] / frequency - 1) < SAME_STEP)
    return int(near[0]) if near.size else None


class Predictive(NamedTuple):
    """Long-run mean at some frequencies given one cell a draw.

    ``mean`` and ``variance`` are (frequencies, draws), ``noise`` the variance of a run (draws,).
    """

    mean: FloatArray
    variance: FloatArray
    noise: FloatArray

    @classmethod
    def of(
        cls, known: Known, sweep: Sweep, frequency: Sequence[float], cell: IntArray
    ) -> Predictive:
        """Predict as `evidence` does, but with the anchor of the target at every frequency.

        What is drawn must come from the same model that judges it.
        """
        grid, steps = known.law.grid, sweep.frequency[0]
        shape, scale = np.divmod(cell, len(grid.noise))
        noise, drift = grid.noise[scale] ** 2, grid.drift[shape, scale] ** 2
        every = np.append(steps, frequency)
        log_shape = known.law.log_shape(every[None], np.array([known.row]))[0][:, shape].T
        covariance = _covariance(known, sweep, every, noise, drift)
        residual = sweep.log_value - log_shape[:, : len(steps)]
        mean, variance = _kriging(covariance, residual)
        return cls((log_shape[:, len(steps) :] + mean).T, variance.T, noise)


def _covariance(
    known: Known, sweep: Sweep, every: FloatArray, noise: FloatArray, drift: FloatArray
) -> FloatArray:
    """Covariance of the steps' means and of long-run means: (draws, all, all)."""
    steps = len(sweep.frequency[0])
    u = np.log(every / anchors(sweep.frequency[:1], known.target.frequency))
    # Runs at one step share a part of their noise, those to come with those that are there.
    alike = SHARED_NOISE * (np.abs(every[:, None] / every - 1) < SAME_STEP)
    at = np.arange(steps)
    alike[at, at] = noise_share(sweep.runs[0])
    made: FloatArray = drift[:, None, None] * integrated_wiener(u[:, None], u)
    return made + noise[:, None, None] * alike


def _kriging(covariance: FloatArray, residual: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of what follows the points, whose common level is unknown.

    Rasmussen & Williams (2006), eq. 2.42 with a flat prior of the level.
    """
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


def drawn_cells(known: Known, chances: Chances) -> IntArray:
    """Cell of each draw, by the posterior."""
    total = np.cumsum(known.weight)
    # Rounding must not draw a cell beyond the last.
    drawn: IntArray = np.searchsorted(total[:-1], chances.cell * total[-1])
    return drawn


def measured(
    sweep: Sweep, candidate: Candidate, predictive: Predictive, at: int, chances: Chances
) -> Sweep:
    """Points with the hypothetical outcomes of a candidate added, one row a draw.

    ``at`` is the candidate's frequency in the predictive.
    """
    from scipy.special import chdtri, ndtri

    within = (1 - SHARED_NOISE) * predictive.noise
    runs = candidate.runs
    deviation = np.sqrt(predictive.variance[at] + within / runs)
    value = predictive.mean[at] + ndtri(chances.value) * deviation
    scatter = within * chdtri(runs - 1, chances.scatter) if runs > 1 else np.zeros_like(value)
    every = sweep.take(np.zeros(len(value), dtype=np.int64)) if len(sweep.runs) == 1 else sweep
    return _with_step(every, step_of(sweep, candidate.frequency), candidate, value, scatter)


def _with_step(
    sweep: Sweep, at: int | None, candidate: Candidate, value: FloatArray, scatter: FloatArray
) -> Sweep:
    """Points with runs of a mean and a scatter added, to a step or as a new one."""
    frequency, runs = candidate
    spread, freedom = sweep.scatter + scatter, sweep.scatter_df + runs - 1
    if at is None:
        place = int(np.searchsorted(sweep.frequency[0], frequency))
        return Sweep(
            np.insert(sweep.frequency, place, frequency, axis=1),
            np.insert(sweep.log_value, place, value, axis=1),
            np.insert(sweep.runs, place, float(runs), axis=1),
            spread,
            freedom,
        )
    before = sweep.runs[:, at]
    share = runs / (before + runs)
    apart = value - sweep.log_value[:, at]
    log_value, count = sweep.log_value.copy(), sweep.runs.copy()
    log_value[:, at] += share * apart
    count[:, at] += runs
    spread = spread + before * share * apart**2
    return Sweep(sweep.frequency, log_value, count, spread, freedom + 1)
