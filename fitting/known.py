"""What the points of one group say of one quantity, kept so that more points can be added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fitting.mixture import Mixture
from fitting.pooling import posterior_cells
from fitting.posterior import Evidence, Sweep, Target, evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fitting.line import FloatArray, IntArray
    from fitting.pooled_curves import Curve, Neighbours
    from fitting.pooling import Cells
    from fitting.posterior import Law
    from fitting.steps import Steps

# Weightiest components of an answer that quantiles are taken from.
COMPONENTS = 96
# A cell this unlikely stays so: its prior, weight over likelihood, has lost its digits.
_IMPOSSIBLE = 1e-200


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one quantity of one group.

    Attributes
    ----------
    law : Law
    row : int
        Number of the group in the law.
    prior : (1, shapes, scales) float array
        Prior of the cells, pooled, up to a constant.
    weight : (shapes · scales,) float array
        Posterior of the cells.
    sweep : Sweep
        The points of the group; or several rows of them that differ in their values only.
    target : Target
        The one frequency that is asked.
    """

    law: Law
    row: int
    prior: FloatArray
    weight: FloatArray
    sweep: Sweep
    target: Target

    def evidence(self, sweep: Sweep, target: Target) -> Evidence:
        """Evidence of any points of this group for a target."""
        rows = np.zeros(len(sweep.frequency), dtype=np.int64)
        return evidence(self.law, sweep, target.take(rows), rows + self.row)

    def answer(self, sweep: Sweep | None = None, components: int = COMPONENTS) -> Mixture:
        """Distribution of ln y at the target after these points, or after those there are."""
        found = self.evidence(self.sweep if sweep is None else sweep, self.target)
        weight = found.posterior(self.prior)
        parts = (found.mean, found.variance[found.design], weight)
        return Mixture(*(part.reshape(len(weight), -1) for part in parts)).trimmed(components)

    def parts(self) -> tuple[float, float]:
        """Posterior means of the variances of form and of the asked runs' noise."""
        found = self.evidence(self.sweep, self.target)
        weight = found.posterior(self.prior)
        form, noise = ((weight * part[found.design]).sum() for part in (found.form, found.noise))
        return float(form) / len(weight), float(noise) / len(weight)

    def with_sweep(self, sweep: Sweep) -> Known:
        """Return the same quantity with other points."""
        found = self.evidence(sweep, self.target)
        weight = found.posterior(self.prior).mean(axis=0).ravel()
        return Known(self.law, self.row, self.prior, weight, sweep, self.target)


def known_groups(
    curve: Curve, steps: Steps, target: Target, neighbours: Neighbours, groups: IntArray
) -> Iterator[tuple[int, Known]]:
    """Yield each group's number and what is known of it; arguments as of `posterior_cells`.

    A group with one step is known by its level and its prior.
    """
    for cells in posterior_cells(curve, steps, target, neighbours, groups):
        law = curve.law(steps, neighbours, cells.groups)
        for row, group in enumerate(cells.groups):
            one = np.array([group])
            weight = cells.weight[row].ravel()
            prior = _pooled_prior(cells, row)
            yield int(group), Known(law, row, prior, weight, steps.sweep(one), target.take(one))


def _pooled_prior(cells: Cells, row: int) -> FloatArray:
    """Prior that pooling gave a group's cells: their posterior over their likelihood."""
    weight, likelihood = cells.weight[row : row + 1], cells.evidence.likelihood[row : row + 1]
    possible = likelihood > _IMPOSSIBLE
    return np.divide(weight, likelihood, out=np.zeros_like(weight), where=possible)
