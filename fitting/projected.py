"""What a pooled posterior answers at a frequency: its distribution and where the width is from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.errors import FittingError
from fitting.mixture import Mixture
from fitting.pooling import posterior_cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.line import FloatArray, IntArray
    from fitting.pooled_curves import Curve, Neighbours
    from fitting.pooling import Cells
    from fitting.posterior import Target
    from fitting.steps import Steps

# Neighbouring shapes that are made one normal distribution: the predictions of three of them
# differ by far less than their own width.
_MERGED = 3
# Components that quantiles are taken from, and that are kept for sums with other metrics.
_SOUGHT = 64
_KEPT = 24


class Projected(NamedTuple):
    """Answers for all groups, in logarithms; NaN for a group without two steps or a target.

    Attributes
    ----------
    mixture : Mixture
        Distribution of ln y, the mean of the target's runs, in a few components.
    quantiles : (probabilities, groups) float array
        Of ln y, from more components than ``mixture`` has.
    fit, form, noise : (groups,) float arrays
        Parts of the variance of ln y: which curve of the family it is and how noise moved its
        points, how far the family itself may be off, and the noise of the runs asked for.
    pulled : (groups,) float array
        How far the table's other groups moved the expected ln y.
    """

    mixture: Mixture
    quantiles: FloatArray
    fit: FloatArray
    form: FloatArray
    noise: FloatArray
    pulled: FloatArray


def project_curve(
    curve: Curve,
    steps: Steps,
    target: Target,
    neighbours: Neighbours,
    probabilities: Sequence[float],
) -> Projected:
    """Project every group to its target.

    Parameters
    ----------
    curve : TimeCurve or PowerCurve
    steps : Steps
    target : Target
        One frequency (Hz) a group; NaN for none.
    neighbours : Neighbours
        One cluster and position a group.
    probabilities : sequence of float
        Of the quantiles, each inside (0, 1).

    Raises
    ------
    FittingError
        For probabilities outside (0, 1) and for arrays of other lengths than the groups.
    """
    groups = len(steps.count)
    lengths = {len(part) for part in (*target, *neighbours)}
    if lengths != {groups}:
        raise FittingError(f"{groups} groups, but targets or neighbours for {sorted(lengths)}")
    if not all(0 < p < 1 for p in probabilities):
        raise FittingError(f"probabilities {list(probabilities)} are not inside 0 to 1")
    unknown = np.full((len(probabilities), groups), np.nan)
    parts = (np.full(groups, np.nan) for _ in range(4))
    made = Projected(Mixture.unknown(groups, _KEPT), unknown, *parts)
    able = np.flatnonzero((steps.count > 1) & ~np.isnan(target.frequency))
    for cells in posterior_cells(curve, steps, target, neighbours, able):
        _answer(cells, probabilities, made)
    return made


def _answer(cells: Cells, probabilities: Sequence[float], made: Projected) -> None:
    at, found, weight = cells.groups, cells.evidence, cells.weight
    mixture = _merged(cells).trimmed(_SOUGHT)
    made.quantiles[:, at] = mixture.quantiles(probabilities)
    kept = mixture.trimmed(_KEPT - 1)
    # A small grid has fewer components than are kept: the others have no weight.
    for whole, part, filler in zip(made.mixture, kept, (0.0, 1.0, 0.0), strict=True):
        whole[at] = filler
        whole[at, : part.shape[1]] = part
    expected = _expected(weight, found.mean)
    form, noise = (_expected(weight, part, found.design) for part in (found.form, found.noise))
    made.form[at], made.noise[at] = form, noise
    made.fit[at] = mixture.moments()[1] - form - noise
    made.pulled[at] = expected - _expected_alone(cells)


def _expected(weight: FloatArray, value: FloatArray, design: IntArray | None = None) -> FloatArray:
    """Posterior mean of a value a cell, or of one a cell and design."""
    if design is None:
        mean: FloatArray = np.einsum("gts,gts->g", weight, value)
        return mean
    made = np.empty(len(weight))
    for number, of_design in enumerate(value):
        same = design == number
        made[same] = np.einsum("gts,ts->g", weight[same], of_design)
    return made


def _expected_alone(cells: Cells) -> FloatArray:
    """Posterior mean of ln y under the shipped prior."""
    likelihood, grid = cells.evidence.likelihood, cells.grid
    shapes = np.broadcast_to(grid.shape_weight, likelihood.shape[:2])
    mass = np.einsum("gt,gt->g", likelihood @ grid.noise_weight, shapes)
    total = np.einsum("gt,gt->g", (likelihood * cells.evidence.mean) @ grid.noise_weight, shapes)
    mean: FloatArray = total / mass
    return mean


def _merged(cells: Cells) -> Mixture:
    """Components of the posterior, neighbouring shapes made one."""
    found, weight = cells.evidence, cells.weight
    groups, shapes, _ = weight.shape
    begin = np.arange(0, shapes, _MERGED)
    mass = np.add.reduceat(weight, begin, axis=1)
    # A component without mass has no mean; one of denormal mass has no digits.
    empty = mass <= 1e-200
    filled = np.where(empty, 1.0, mass)
    # About the group's own mean, so that the difference of squares keeps its digits.
    centre = _expected(weight, found.mean)[:, None, None]
    apart = found.mean - centre
    shift = np.add.reduceat(weight * apart, begin, axis=1) / filled
    apart *= apart
    apart += found.variance[found.design]
    apart *= weight
    variance = np.add.reduceat(apart, begin, axis=1) / filled - shift**2
    mean = shift + centre
    variance[empty], mass[empty] = 1.0, 0.0
    return Mixture(*(part.reshape(groups, -1) for part in (mean, variance, mass)))
