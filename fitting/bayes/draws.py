"""Curves drawn from the pooled posterior: one value of ln y a frequency, jointly over frequencies.

`fitting.bayes.prediction` answers at one frequency. What depends on several at once, such as which
of them is best or where two curves cross, is counted over draws of whole curves. A cell of the grid
is drawn by its weight (systematic resampling: Kitagawa 1996,
https://doi.org/10.1080/10618600.1996.10474692), and inside the cell level and model error come from
their Gaussian posterior by Matheron's rule: a draw of the prior is corrected by what the points say
of it, so that no cell needs a factorisation of its own (Wilson et al. 2020,
https://proceedings.mlr.press/v119/wilson20a.html).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.bayes.pooling import posterior_cells
from fitting.bayes.posterior import FrequencyTarget, error_covariance, noise_share, pick_cells
from fitting.errors import FittingError
from fitting.regression.lines import FloatArray, IntArray

if TYPE_CHECKING:
    from numpy.random import Generator

    from fitting.bayes.pooling import Curve, Neighbours
    from fitting.bayes.posterior import MeasuredSteps, ShapeLaw, SweepSteps


class CurvePosterior(NamedTuple):
    """Posterior of one group's curve, its model error anchored at the highest measured step."""

    law: ShapeLaw
    number: int  # of the group in the law
    sweep: SweepSteps  # of this group alone
    weight: FloatArray  # (shapes, scales): probability of each cell

    def draw(
        self, frequencies: FloatArray, draws: int, rng: Generator, *, runs: float | None = None
    ) -> FloatArray:
        """Draw curves of ln y at some frequencies (Hz), in any order: (draws, frequencies).

        ``runs`` adds the noise of the mean of so many new runs at each frequency; by default none,
        which is the curve itself.
        """
        shape, scale = _systematic(self.weight, draws, rng)
        noise, borrowed = self.law.grid.noise[scale], self.sweep.borrowed[0]
        curves = np.empty((draws, len(frequencies)))
        # A variance that is not the noise's makes each noise level a design of its own.
        for level in np.unique(noise) if borrowed.any() else noise[:1]:
            at = np.flatnonzero(noise == level) if borrowed.any() else slice(None)
            share = noise_share(self.sweep.runs[0]) + borrowed / level**2
            curves[at] = self._draw_cells(frequencies, shape[at], scale[at], share, rng)
        own = self.sweep.log_value[0, borrowed == 0]
        if self.law.direction and (np.diff(self.law.direction * own) >= 0).all():
            curves = _monotone(curves, frequencies, self.law.direction)
        if runs is not None:
            new = np.sqrt(noise_share(np.asarray(float(runs))))
            curves += noise[:, None] * new * rng.standard_normal(curves.shape)
        return curves

    def _draw_cells(
        self,
        frequencies: FloatArray,
        shape: IntArray,
        scale: IntArray,
        share: FloatArray,
        rng: Generator,
    ) -> FloatArray:
        """Draw a curve from each cell; ``share`` is each step's variance in units of a run's."""
        drift, noise = self.law.grid.drift[shape, scale], self.law.grid.noise[scale]
        measured = self.sweep.frequency[0]
        n, every = len(measured), np.append(measured, frequencies)
        u, lowest = (np.log(f / self.sweep.anchor[0]) for f in (every, self.sweep.lowest[0]))
        grid = self.law.grid
        kernel = error_covariance(u[:, None], u, grid.beyond, grid.below, lowest)
        # Whitened by the noise of their step, points are alike, and the kernel of all cells has
        # the same eigenvectors.
        root = 1 / np.sqrt(share)
        eigenvalue, basis = np.linalg.eigh(kernel[:n, :n] * root[:, None] * root)
        one = basis.T @ root
        weight = 1 / (np.maximum(eigenvalue, 0.0) * drift[:, None] ** 2 + noise[:, None] ** 2)
        drawn = self._shapes(every, shape, weight, one, basis * root[:, None], rng)
        error = rng.standard_normal((len(shape), len(u))) @ _root(kernel).T
        error *= drift[:, None]
        residual = self.sweep.log_value[0] - drawn[:, :n] - error[:, :n]
        residual *= root
        residual -= noise[:, None] * rng.standard_normal(residual.shape)
        apart = residual @ basis
        level = (weight * apart) @ one / (weight @ one**2)
        pull = weight * (apart - level[:, None] * one) * drift[:, None] ** 2
        cross = basis.T @ (kernel[:n, n:] * root[:, None])
        return drawn[:, n:] + level[:, None] + error[:, n:] + pull @ cross

    def _shapes(
        self,
        every: FloatArray,
        shape: IntArray,
        weight: FloatArray,
        one: FloatArray,
        whiten: FloatArray,
        rng: Generator,
    ) -> FloatArray:
        """Draw shapes with their parameter about its node, level and error left out: (draws, k)."""
        asked = every[None], np.array([self.number])
        drawn: FloatArray = self.law.log_shape(*asked)[0][:, shape].T
        spread = self.law.log_spread(*asked)
        if spread is None:
            return drawn
        n, by_draw = len(one), spread[0][:, shape].T
        bend = by_draw[:, :n] @ whiten
        # What is left of the parameter's effect once the level has followed it.
        bend -= ((weight * bend) @ one / (weight @ one**2))[:, None] * one
        precision = 1 + (weight * bend**2).sum(axis=1)
        residual = (self.sweep.log_value[0] - drawn[:, :n]) @ whiten
        deviation = (weight * bend * residual).sum(axis=1) / precision
        deviation += rng.standard_normal(len(shape)) / np.sqrt(precision)
        drawn += deviation[:, None] * by_draw
        return drawn


def curve_posteriors(
    curve: Curve, steps: MeasuredSteps, neighbours: Neighbours, groups: IntArray
) -> dict[int, CurvePosterior]:
    """Pooled posterior of each group that takes part, to draw curves from.

    ``neighbours`` are those of *all* groups of ``steps``. A group with a single step can be drawn
    at that step; elsewhere it only repeats the prior.
    """
    without = groups[steps.count[groups] == 0]
    if without.size:
        raise FittingError(
            f"group {int(without[0])} was not measured: predict only measured groups"
        )
    highest = np.full(len(steps.count), np.nan)
    highest[groups] = steps.highest(groups)[0]
    target = FrequencyTarget(highest, np.ones(len(highest)))
    made: dict[int, CurvePosterior] = {}
    for cells in posterior_cells(curve, steps, target, neighbours, groups):
        law = curve.law(steps, neighbours, cells.groups)
        for i, group in enumerate(cells.groups):
            sweep = steps.sweep(cells.groups[[i]])
            made[int(group)] = CurvePosterior(law, i, sweep, cells.weight[i])
    return made


def pair_draws(
    drawn: FloatArray, beside: FloatArray, correlation: float, rng: Generator
) -> FloatArray:
    """Reorder drawn curves so that they correlate with the curves ``beside`` them.

    Curves are ranked by how high they lie on the whole. Source: Iman & Conover (1982),
    https://doi.org/10.1080/03610918208812265 (a rank correlation induced by reordering).
    """
    own, other = (np.argsort(_height(curves)) for curves in (drawn, beside))
    noise = rng.standard_normal(len(drawn))
    wanted = correlation * np.sort(rng.standard_normal(len(drawn)))
    wanted += np.sqrt(1 - correlation**2) * noise
    paired = np.empty_like(drawn)
    paired[other[np.argsort(wanted)]] = drawn[own]
    return paired


def _height(curves: FloatArray) -> FloatArray:
    """Mean height of each curve, in standard deviations of all curves at a frequency."""
    spread = curves.std(axis=0)
    return ((curves - curves.mean(axis=0)) / np.where(spread > 0, spread, 1)).mean(1)


def _systematic(weight: FloatArray, draws: int, rng: Generator) -> tuple[IntArray, IntArray]:
    """Draw cells in proportion to their weight, to within one each, in random order."""
    share = (rng.random() + np.arange(draws)) / draws
    # Shuffled, because draws of two curves are paired as they come.
    cell = rng.permutation(pick_cells(weight, share))
    shape, scale = np.divmod(cell, weight.shape[1])
    return shape, scale


def _monotone(curves: FloatArray, frequencies: FloatArray, direction: int) -> FloatArray:
    """Make curves that rise with the frequency (``direction`` 1), or fall (−1), and nothing else.

    The mean of the least such curve above the drawn one, and the greatest below it.
    """
    order = np.argsort(direction * frequencies, kind="stable")
    rising = curves[:, order]
    above = np.maximum.accumulate(rising, axis=1)
    below = np.minimum.accumulate(rising[:, ::-1], axis=1)[:, ::-1]
    return ((above + below) / 2)[:, np.argsort(order)]


def _root(kernel: FloatArray) -> FloatArray:
    """Square root of a covariance that may be singular, as it is at the anchor."""
    eigenvalue, basis = np.linalg.eigh(kernel)
    return basis * np.sqrt(np.maximum(eigenvalue, 0.0))
