"""Kinds of curves by how groups lean on each other: `TimeCurve` and `PowerCurve`.

A kind has its law, what the likelihoods of a cluster say before posteriors become priors, and the
part of a posterior that is passed on; `fitting.pooling` does the rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fitting.dynamic_share import DynamicShare, DynamicSharePrior
from fitting.stalled_share import StalledShare, StalledSharePrior

if TYPE_CHECKING:
    from collections.abc import Callable

    from fitting.line import FloatArray, IntArray
    from fitting.posterior import Evidence, Grid, Law
    from fitting.steps import Steps

# Log-likelihood ratios further down than this are as good as impossible; a broken neighbour must
# not veto a cell alone.
_VETO = 25.0


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """How strongly groups lean on each other; weights are in groups' worth.

    Attributes
    ----------
    reach : float
        Standard deviation, in ln(core count), of the weight of a cluster's groups.
    shipped : float
        Weight of the shipped prior.
    other, others : float
        Weight of one group of another cluster, and the most that all of them have.
    cluster_evidence : float
        Groups' worth of likelihood that a cluster gives to one of its groups: about the noise of
        time, and about the static watts and the voltage slope.
    rounds : int
        How often posteriors are turned into priors; 0 switches pooling off.
    """

    reach: float = 0.8
    shipped: float = 0.3
    other: float = 0.1
    others: float = 4.0
    cluster_evidence: float = 2.0
    rounds: int = 2


TIME_POOLING = Pooling()
POWER_POOLING = Pooling(shipped=0.15, other=0.005, others=2.0, cluster_evidence=6.0, rounds=4)
NO_POOLING = Pooling(rounds=0)


class Neighbours(NamedTuple):
    """Cluster number of each group, and its position on the core-count axis (ln cores)."""

    cluster: IntArray
    position: FloatArray


class Curve(Protocol):
    """A kind of law with its own way of pooling: `TimeCurve` or `PowerCurve`."""

    @property
    def pooling(self) -> Pooling:
        """How strongly groups lean on each other."""
        ...

    def law(self, steps: Steps, neighbours: Neighbours, groups: IntArray) -> Law:
        """Law of a chunk of groups that holds whole clusters."""
        ...

    def start(self, grid: Grid, evidence: Evidence, cluster: IntArray) -> FloatArray:
        """Prior before posteriors are turned into priors: broadcasts over the cells."""
        ...

    def shared(self, weight: FloatArray) -> FloatArray:
        """Part of the posterior that is passed on, the group first."""
        ...

    def pooled(self, start: FloatArray, mixed: FloatArray) -> FloatArray:
        """Prior ``start`` with ``mixed`` in place of its shared part."""
        ...


@dataclass(frozen=True, kw_only=True)
class TimeCurve:
    """Time, or the reciprocal of a rate, by the share that the clock leaves."""

    prior: StalledSharePrior = field(default_factory=StalledSharePrior)
    pooling: Pooling = TIME_POOLING

    def law(self, steps: Steps, neighbours: Neighbours, groups: IntArray) -> StalledShare:
        """Law at the groups' highest frequencies."""
        return StalledShare(steps.highest(groups)[0], self.prior)

    def start(self, grid: Grid, evidence: Evidence, cluster: IntArray) -> FloatArray:
        """Shipped prior, its noise as the rest of the cluster has it."""
        prior = grid.prior()
        if not self.pooling.rounds or _all_alone(cluster):
            return prior
        shapes = np.broadcast_to(grid.shape_weight, evidence.likelihood.shape[:2])
        of_noise = np.einsum("gts,gt->gs", evidence.likelihood, shapes)
        return prior * _said_by_the_rest(of_noise, cluster, self.pooling)[:, None, :]

    def shared(self, weight: FloatArray) -> FloatArray:
        """Whole posterior: β, overlap and noise together."""
        return weight

    def pooled(self, start: FloatArray, mixed: FloatArray) -> FloatArray:
        """Mixture itself."""
        return mixed


@dataclass(frozen=True, kw_only=True)
class PowerCurve:
    """Power by its dynamic share and voltage slope; see `DynamicShare`.

    A known ``exponent`` γ makes the dynamic part φ^γ; ``voltage``, a function of (groups, k)
    frequencies (Hz) and the numbers of the groups, makes it φ·V².
    """

    prior: DynamicSharePrior = field(default_factory=DynamicSharePrior)
    pooling: Pooling = POWER_POOLING
    exponent: float | None = None
    voltage: Callable[[FloatArray, IntArray], FloatArray] | None = None

    def law(self, steps: Steps, neighbours: Neighbours, groups: IntArray) -> DynamicShare:
        """Law whose static share runs up to the least power of each cluster."""
        reference, log_power = steps.highest(groups)
        static = np.ones(len(groups))
        if self.pooling.rounds:
            _, cluster = np.unique(neighbours.cluster[groups], return_inverse=True)
            least = np.full(cluster.max() + 1, np.inf)
            np.minimum.at(least, cluster, log_power)
            static = np.exp(least[cluster] - log_power)
        return DynamicShare(reference, static, self.prior, self._clock_power(reference, groups))

    def _clock_power(
        self, reference: FloatArray, groups: IntArray
    ) -> Callable[[FloatArray, IntArray], FloatArray] | None:
        """φ·u² by the known voltages or φ^γ by the known exponent; None to find out."""
        if self.voltage is not None:
            voltage = self.voltage
            at_reference = voltage(reference[:, None], groups)

            def by_voltage(frequency: FloatArray, chosen: IntArray) -> FloatArray:
                relative = voltage(frequency, groups[chosen]) / at_reference[chosen]
                return frequency / reference[chosen, None] * relative**2

            return by_voltage
        if self.exponent is None:
            return None
        exponent = self.exponent

        def by_exponent(frequency: FloatArray, chosen: IntArray) -> FloatArray:
            made: FloatArray = (frequency / reference[chosen, None]) ** exponent
            return made

        return by_exponent

    def start(self, grid: Grid, evidence: Evidence, cluster: IntArray) -> FloatArray:
        """Shipped prior times the tempered likelihood of the rest of the cluster."""
        prior = grid.prior()
        if not self.pooling.rounds or _all_alone(cluster):
            return prior
        noise = self._by_noise(grid.noise_weight)
        noise = noise / noise.sum(axis=1, keepdims=True)
        of_shape = np.einsum("gtws,ws->gtw", self._by_noise(evidence.likelihood), noise)
        weight = _said_by_the_rest(of_shape, cluster, self.pooling)
        made: FloatArray = prior * np.repeat(weight, self.prior.scales, axis=2)
        return made

    def _by_noise(self, cells: FloatArray) -> FloatArray:
        return cells.reshape(*cells.shape[:-1], len(self.prior.wander), self.prior.scales)

    def shared(self, weight: FloatArray) -> FloatArray:
        """Noise: (groups, scales)."""
        noise: FloatArray = self._by_noise(weight.sum(axis=1)).sum(axis=1)
        return noise

    def pooled(self, start: FloatArray, mixed: FloatArray) -> FloatArray:
        """Exchange the prior of the noise for the mixture."""
        ratio = np.tile(mixed / self.shared(start), len(self.prior.wander))
        return start * ratio[:, None, :]


def _all_alone(cluster: IntArray) -> bool:
    return len(np.unique(cluster)) == len(cluster)


def _said_by_the_rest(likelihood: FloatArray, cluster: IntArray, pooling: Pooling) -> FloatArray:
    """Tempered product of the likelihoods of the cluster's other groups, 1 at its best cell.

    ``likelihood`` is (groups, …) and may have any scale a group.
    """
    axes = tuple(range(1, likelihood.ndim))
    with np.errstate(divide="ignore"):
        said = np.log(likelihood)
    said -= said.max(axis=axes, keepdims=True)
    said = np.maximum(said, -_VETO)
    _, number, size = np.unique(cluster, return_inverse=True, return_counts=True)
    total = np.zeros((len(size), *said.shape[1:]))
    np.add.at(total, number, said)
    rest = size[number] - 1
    share = np.minimum(1.0, pooling.cluster_evidence / np.maximum(rest, 1))
    share[rest == 0] = 0.0
    log_weight = share.reshape(-1, *(1 for _ in axes)) * (total[number] - said)
    weight: FloatArray = np.exp(log_weight - log_weight.max(axis=axes, keepdims=True))
    return weight
