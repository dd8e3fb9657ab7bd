"""Prediction of a pooled posterior at a frequency: its distribution, the parts of its width.

And the interval that the misses of other groups call for in its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.bayes.pooling import posterior_cells
from fitting.bayes.posterior import loops_for
from fitting.errors import FittingError
from fitting.regression.lines import FloatArray, IntArray

if TYPE_CHECKING:
    from fitting.bayes.pooling import Curve, Neighbours
    from fitting.bayes.posterior import FrequencyTarget, MeasuredSteps, Parts

# A quantile is found to about this share of the mixture's standard deviation. After a step of the
# second share, the next would be less than that: they converge with their third power.
PRECISION, LAST_STEP, MOST_STEPS = 1e-9, 1e-4, 100
# A weight that has no digits.
EMPTY = 1e-200
# Neighbouring shapes that are made one normal distribution: the predictions of three of them
# differ by far less than their own width.
JOINED = 3
# Components that quantiles are taken from, and that are kept for sums with other metrics.
SOUGHT = 64
KEPT = 24
# Correlation of the errors of ln T and ln P of a program: where it waits more than projected, time
# is longer and power less. The standardised errors of 11 programs of a server have -0.38 and -0.44,
# those of small chips hardly any.
TIME_AND_POWER = -0.35


class Mixture(NamedTuple):
    """Mixtures of normals: (groups, components) arrays; weights of a group sum to 1."""

    mean: FloatArray
    variance: FloatArray
    weight: FloatArray

    def take(self, groups: IntArray) -> Mixture:
        """Select some groups."""
        return Mixture(*(part[groups] for part in self))

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each mixture."""
        middle = np.einsum("gc,gc->g", self.weight, self.mean)
        apart = (self.mean - middle[:, None]) ** 2
        return middle, np.einsum("gc,gc->g", self.weight, self.variance + apart)

    def plus(self, other: Mixture, correlation: float = 0.0) -> Mixture:
        """Distribution of a correlated sum, in the shape of a sum of independent values."""
        groups = len(self.mean)
        pairs = (
            self.mean[:, :, None] + other.mean[:, None, :],
            self.variance[:, :, None] + other.variance[:, None, :],
            self.weight[:, :, None] * other.weight[:, None, :],
        )
        total = Mixture(*(part.reshape(groups, -1) for part in pairs))
        if correlation == 0:
            return total
        (first, one), (second, two) = self.moments(), other.moments()
        narrower = np.sqrt(1 + 2 * correlation * np.sqrt(one * two) / (one + two))[:, None]
        middle = (first + second)[:, None]
        mean = middle + narrower * (total.mean - middle)
        return Mixture(mean, total.variance * narrower**2, total.weight)

    def trim(self, most: int) -> Mixture:
        """Keep the ``most`` weighty components; the rest become one with their moments."""
        if self.mean.shape[1] <= most + 1:
            return self
        groups, components = self.weight.shape
        kept = np.argpartition(-self.weight, most, axis=1)[:, :most]
        kept += components * np.arange(groups)[:, None]
        rest = self.weight.copy()
        rest.ravel()[kept] = 0.0
        mass = rest.sum(axis=1)
        rest /= np.maximum(mass, 1e-300)[:, None]
        mean, variance = self._replace(weight=rest).moments()
        # Without mass there are no moments to keep.
        variance[mass <= EMPTY] = 1.0
        ends = (mean, variance, mass)
        parts = (np.column_stack([a.ravel()[kept], e]) for a, e in zip(self, ends, strict=True))
        return Mixture(*parts)

    def quantiles(self, probabilities: Sequence[float]) -> FloatArray:
        """Quantiles (probabilities, groups) to a billionth of a deviation; NaN where not known."""
        from scipy.special import ndtri

        made = np.full((len(probabilities), len(self.mean)), np.nan)
        known = ~np.isnan(self.mean).any(axis=1)
        mixture = self if known.all() else self.take(np.flatnonzero(known))
        middle, variance = mixture.moments()
        scale = np.sqrt(variance)
        for row, p in zip(made, probabilities, strict=True):
            # All but a share p of a distribution lies within sqrt(1/p − 1) deviations of its mean
            # (Cantelli's inequality).
            low = middle - scale * np.sqrt(1 / p - 1)
            high = middle + scale * np.sqrt(1 / (1 - p) - 1)
            start = np.clip(middle + scale * ndtri(p), low, high)
            row[known] = _solve_quantile(p, mixture, scale, (low, high, start))
        return made


def _solve_quantile(p: float, mixture: Mixture, scale: FloatArray, ends: Parts) -> FloatArray:
    """Solve for a quantile in a bracket: the parabola through value, density and its slope.

    A step that leaves the bracket, or is more than half of the last, is a bisection instead.
    Source: Press et al., *Numerical Recipes*, 3rd ed., ch. 9.4 (a safe Newton's method).
    """
    from scipy.special import ndtr

    x: FloatArray
    (low, high, x), (mean, variance, weight) = ends, mixture
    last, unit = high - low, 1 / np.sqrt(variance)
    for _ in range(MOST_STEPS):
        z = (x[:, None] - mean) * unit
        excess = np.einsum("gc,gc->g", weight, ndtr(z)) - p
        low, high = np.where(excess > 0, low, x), np.where(excess > 0, x, high)
        part = weight * unit * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        density, slope = part.sum(axis=1), -np.einsum("gc,gc,gc->g", part, z, unit)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            root = np.sqrt(np.maximum(density**2 - 2 * excess * slope, 0.0))
            guess = x - 2 * excess / (density + root)
            is_safe = (guess >= low) & (guess <= high)
            is_safe &= np.abs(guess - x) <= np.maximum(last / 2, LAST_STEP * scale)
        guess = np.where(is_safe, guess, (low + high) / 2)
        last, x = np.abs(guess - x), guess
        if (last <= np.where(is_safe, LAST_STEP, PRECISION) * scale).all():
            break
    return x


class CurveProjection(NamedTuple):
    """Predictions for all groups, in logarithms; NaN for a group without two steps or a target."""

    mixture: Mixture  # distribution of ln y, the mean of the target's runs, in a few components
    quantiles: FloatArray  # (probabilities, groups): of ln y, from more components
    # Parts of the variance of ln y: which curve of the family it is and how noise moved its points,
    # how far the family itself may be off, and the noise of the runs to predict.
    fit: FloatArray
    form: FloatArray
    noise: FloatArray
    pulled: FloatArray  # how far the table's other groups moved the expected ln y


def project_curve(
    curve: Curve,
    steps: MeasuredSteps,
    target: FrequencyTarget,
    neighbours: Neighbours,
    probabilities: Sequence[float],
) -> CurveProjection:
    """Project every group to its target, with quantiles; a frequency of NaN is none."""
    groups = len(steps.count)
    lengths = {len(part) for part in (*target, *neighbours)}
    if lengths != {groups}:
        raise FittingError(
            f"{groups} groups, but {sorted(lengths)} targets or neighbours: give one per group"
        )
    if not all(0 < p < 1 for p in probabilities):
        raise FittingError(f"probabilities {list(probabilities)} are not all between 0 and 1")
    nothing = (np.full(groups, np.nan) for _ in range(4))
    mixture = Mixture(*(np.full((groups, KEPT), np.nan) for _ in range(3)))
    projected = CurveProjection(mixture, np.full((len(probabilities), groups), np.nan), *nothing)
    able = np.flatnonzero((steps.count > 1) & ~np.isnan(target.frequency))
    loops = loops_for(len(able))
    summarise = _summarise if loops is None else loops.summarise_cells
    for cells in posterior_cells(curve, steps, target, neighbours, able):
        at, found = cells.groups, cells.evidence
        parts = (found.mean, found.likelihood, cells.shipped, found.variance, found.form)
        every = (cells.weight, *parts, found.noise)
        quantiles, kept, of_variance = summarise(every, found.design, probabilities)
        projected.quantiles[:, at] = quantiles
        pairs = zip((*projected.mixture, *projected[2:]), (*kept, *of_variance), strict=True)
        for whole, part in pairs:
            whole[at] = part
    return projected


def _summarise(cells: Parts, design: IntArray, probabilities: Sequence[float]) -> Parts:
    """Summarise posteriors: quantiles, kept components, and the parts of `CurveProjection`."""
    weight, mean, likelihood, prior, variance, form, noise = cells
    middle = np.einsum("gts,gts->g", weight, mean)
    mixture = _components(weight, mean - middle[:, None, None], variance[design]).trim(SOUGHT)
    by_form, by_noise = (np.einsum("gts,gts->g", weight, part[design]) for part in (form, noise))
    fit = mixture.moments()[1] - by_form - by_noise
    # What pooling moved is told against the posterior mean under the shipped prior.
    alone = likelihood * prior
    total = np.einsum("gts,gts->g", alone, mean)
    moved = middle - total / alone.sum(axis=(1, 2))
    # From here on about the origin.
    mixture = mixture._replace(mean=mixture.mean + middle[:, None])
    kept = np.broadcast_to(np.array([0.0, 1.0, 0.0])[:, None, None], (3, len(mean), KEPT)).copy()
    # A small grid has fewer components than are kept: the others have no weight.
    for whole, part in zip(kept, mixture.trim(KEPT - 1), strict=True):
        whole[:, : part.shape[1]] = part
    return mixture.quantiles(probabilities), kept, (fit, by_form, by_noise, moved)


def _components(weight: FloatArray, mean: FloatArray, variance: FloatArray) -> Mixture:
    """Components of the posterior, neighbouring shapes joined to one.

    Means are about the group's own, so that the difference of squares keeps its digits.
    """
    first = np.arange(0, weight.shape[1], JOINED)
    moments = (weight, weight * mean, weight * (variance + mean**2))
    mass, shift, square = (np.add.reduceat(part, first, axis=1) for part in moments)
    # A component without mass has no mean; one of denormal mass has no digits.
    empty = mass <= EMPTY
    filled = np.where(empty, 1.0, mass)
    shift /= filled
    square = square / filled - shift**2
    square[empty], mass[empty] = 1.0, 0.0
    return Mixture(*(part.reshape(len(weight), -1) for part in (shift, square, mass)))


# Split conformal calibration: how wide an interval must be, learnt from other groups' misses.
#
# A projection of a group that was measured at the target has a score, |ln measured − ln projected|
# in units of the posterior's standard deviation. The interval of another group reaches as far as
# the score that the wanted share of them does not exceed. It holds whatever the distribution, as
# far as the groups are exchangeable; the group's own cluster takes no part in its calibration.
#
# Source: Vovk, Gammerman & Shafer (2005), *Algorithmic Learning in a Random World*; Lei et al.
# (2018), https://doi.org/10.1080/01621459.2017.1307116 (normalised scores).


def fewest_scores(level: float) -> int:
    """Number of scores that an interval at ``level`` takes: 9 at 0.90."""
    return math.ceil(round(level / (1 - level), 9))


def conformal_factor(
    score: FloatArray, cluster: IntArray, asked: IntArray, level: float
) -> FloatArray:
    """Half width of the interval (standard deviations) for groups of the clusters ``asked``.

    ``score`` and ``cluster`` are those of the groups measured at the target; a score of NaN takes
    no part. The half width is the ⌈(n + 1)·level⌉-th smallest of the n scores of other clusters;
    NaN where n is less than `fewest_scores`.
    """
    known = ~np.isnan(score)
    order = np.argsort(score[known], kind="stable")
    ascending, of = score[known][order], cluster[known][order]
    made = np.full(len(asked), np.nan)
    for number in np.unique(asked):
        others = ascending[of != number]
        # Rounded, because 10·0.9 must not become the tenth by its last bit.
        rank = math.ceil(round((len(others) + 1) * level, 9))
        if rank <= len(others):
            made[asked == number] = others[rank - 1]
    return made
