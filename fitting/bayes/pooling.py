"""Partial pooling: what the other groups of a table say about a group that has few points.

Empirical Bayes that leaves the group itself out. Groups of one *cluster* are one workload on one
host at several core counts; the rest of the table are the *others*.

- Time: within a cluster the noise is one, so the likelihoods of the groups multiply there. Each
  cell's prior then is a mixture of that, of the posteriors of the cluster's groups, weighted by
  their distance in core count, and of the others' mean posterior.
- Power: within a cluster the static watts and the voltage slope are one, so the likelihoods of the
  groups multiply, tempered to a few groups' worth because a wrong form is common to them all.
  Across clusters only the noise is shared: a shared error of the voltage curve is one error, and
  as many would make intervals too short.

Sources: Efron (2010), *Large-Scale Inference*, ch. 1 (empirical Bayes); Ibrahim & Chen (2000),
https://doi.org/10.1214/ss/1009212673 (tempered likelihoods of related data as a prior).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from fitting.bayes.posterior import Evidence, Grid, Law, Target, evidence
from fitting.bayes.priors import DynamicShare, DynamicSharePrior, StalledShare, StalledSharePrior

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fitting.bayes.steps import Steps
    from fitting.regression.lines import FloatArray, IntArray

# Groups that stand for the others of a table, and groups whose grids are in memory together.
_SAMPLE = 512
_CHUNK = 512
# Log-likelihood ratios further down than this are as good as impossible; a broken neighbour must
# not veto a cell alone.
_VETO = 25.0


class Neighbours(NamedTuple):
    """Cluster number of each group, and its position on the core-count axis."""

    cluster: IntArray
    position: FloatArray  # ln(cores)

    def take(self, groups: IntArray) -> Neighbours:
        """Select some groups."""
        return Neighbours(self.cluster[groups], self.position[groups])


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """How strongly groups inform each other; weights are in groups' worth."""

    reach: float = 0.8  # standard deviation, in ln(cores), of the weight of a cluster's groups
    shipped: float = 0.3  # weight of the shipped prior
    other: float = 0.1  # weight of one group of another cluster
    others: float = 4.0  # the most that all of these have together
    # Likelihood that a cluster gives to one of its groups: about the noise of time, and about the
    # static power and the voltage slope.
    cluster_evidence: float = 2.0
    rounds: int = 2  # how often posteriors are turned into priors; 0 switches pooling off


TIME_POOLING = Pooling()
POWER_POOLING = Pooling(shipped=0.15, other=0.005, others=2.0, cluster_evidence=6.0, rounds=4)
NO_POOLING = Pooling(rounds=0)


@dataclass(frozen=True, kw_only=True)
class TimeCurve:
    """Time, or the reciprocal of a rate, by its memory-bound fraction; see `StalledShare`."""

    prior: StalledSharePrior = field(default_factory=StalledSharePrior)
    pooling: Pooling = TIME_POOLING

    def law(self, steps: Steps, neighbours: Neighbours, groups: IntArray) -> StalledShare:
        """Law of groups at their highest frequencies."""
        return StalledShare(steps.highest(groups)[0], self.prior)

    def of_cluster(self, grid: Grid, found: Evidence, cluster: IntArray) -> FloatArray:
        """What the rest of a group's cluster says of its noise: broadcasts over the cells."""
        shapes = np.broadcast_to(grid.shape_weight, found.likelihood.shape[:2])
        of_noise = np.einsum("gts,gt->gs", found.likelihood, shapes)
        return _said_by_the_rest(of_noise, cluster, self.pooling)[:, None, :]

    def shared(self, weight: FloatArray) -> FloatArray:
        """Part of the posterior that is passed on: all of it, β, overlap and noise together."""
        return weight

    def pooled(self, start: FloatArray, mixed: FloatArray) -> FloatArray:
        """Prior ``start`` with ``mixed`` in place of its shared part."""
        return mixed


@dataclass(frozen=True, kw_only=True)
class PowerCurve:
    """Power by its dynamic power fraction and voltage slope; see `DynamicShare`.

    A known ``exponent`` γ makes the dynamic part φ^γ; ``voltage``, a function of (groups, k)
    frequencies (Hz) and the numbers of the groups, makes it φ·V².
    """

    prior: DynamicSharePrior = field(default_factory=DynamicSharePrior)
    pooling: Pooling = POWER_POOLING
    exponent: float | None = None
    voltage: Callable[[FloatArray, IntArray], FloatArray] | None = None

    def law(self, steps: Steps, neighbours: Neighbours, groups: IntArray) -> DynamicShare:
        """Law of groups whose static fraction runs up to the least power of each cluster.

        The groups hold whole clusters.
        """
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
        voltage, exponent = self.voltage, self.exponent
        if voltage is not None:
            at_reference = voltage(reference[:, None], groups)

            def by_voltage(frequency: FloatArray, chosen: IntArray) -> FloatArray:
                relative = voltage(frequency, groups[chosen]) / at_reference[chosen]
                return frequency / reference[chosen, None] * relative**2

            return by_voltage
        if exponent is None:
            return None
        return lambda frequency, chosen: (frequency / reference[chosen, None]) ** exponent

    def of_cluster(self, grid: Grid, found: Evidence, cluster: IntArray) -> FloatArray:
        """What the rest of a group's cluster says of static power and voltage slope."""
        noise = self._by_noise(grid.noise_weight)
        noise = noise / noise.sum(axis=1, keepdims=True)
        of_shape = np.einsum("gtws,ws->gtw", self._by_noise(found.likelihood), noise)
        weight = _said_by_the_rest(of_shape, cluster, self.pooling)
        return np.repeat(weight, self.prior.scales, axis=2)

    def shared(self, weight: FloatArray) -> FloatArray:
        """Part of the posterior that is passed on, that of the noise: (groups, scales)."""
        noise: FloatArray = self._by_noise(weight.sum(axis=1)).sum(axis=1)
        return noise

    def pooled(self, start: FloatArray, mixed: FloatArray) -> FloatArray:
        """Prior ``start`` with ``mixed`` in place of its shared part."""
        ratio = np.tile(mixed / self.shared(start), len(self.prior.wander))
        return start * ratio[:, None, :]

    def _by_noise(self, cells: FloatArray) -> FloatArray:
        return cells.reshape(*cells.shape[:-1], len(self.prior.wander), self.prior.scales)


Curve: TypeAlias = TimeCurve | PowerCurve


class Cells(NamedTuple):
    """Posterior of a chunk of groups, cell by cell."""

    groups: IntArray
    grid: Grid
    evidence: Evidence
    weight: FloatArray  # (groups, shapes, scales)


def posterior_cells(
    curve: Curve, steps: Steps, target: Target, neighbours: Neighbours, groups: IntArray
) -> Iterator[Cells]:
    """Yield the pooled posterior of all groups, some hundreds at a time.

    ``target`` and ``neighbours`` have one element for each of *all* groups of ``steps``; the
    ``groups`` that take part have two steps or more each.
    """
    if not len(groups):
        return
    table = _Table(curve, steps, target, neighbours)
    order = np.lexsort((groups, neighbours.position[groups], neighbours.cluster[groups]))
    chunks = _chunks(groups[order], neighbours.cluster)
    others = table.others(chunks) if curve.pooling.rounds else []
    for chunk in chunks:
        yield table.pool(chunk, others, len(groups))


class _Others(NamedTuple):
    """Summed shared posteriors of a sample of the table, and what each cluster adds to them."""

    total: FloatArray
    groups: int
    by_cluster: dict[int, tuple[FloatArray, int]]

    @classmethod
    def of(cls, shared: FloatArray, cluster: IntArray) -> _Others:
        parts = {
            int(c): (shared[cluster == c].sum(axis=0), int((cluster == c).sum()))
            for c in np.unique(cluster)
        }
        return cls(shared.sum(axis=0), len(shared), parts)

    def without(self, cluster: int) -> tuple[FloatArray, int]:
        """Sum and number of the groups that are not of a cluster."""
        own, count = self.by_cluster.get(cluster, (0.0, 0))
        return self.total - own, self.groups - count


class _Table(NamedTuple):
    """All groups of a table, whose posteriors inform each other."""

    curve: Curve
    steps: Steps
    target: Target
    neighbours: Neighbours

    def others(self, chunks: list[IntArray]) -> list[_Others]:
        """What the others say before each round, from chunks spread evenly over the table."""
        curve = self.curve
        taken = _spread(chunks, self.neighbours.cluster)
        near = [self.neighbours.take(groups) for groups in taken]
        _, found, starts = zip(*(self._start(groups) for groups in taken), strict=True)
        weights = [part.posterior(start) for part, start in zip(found, starts, strict=True)]
        cluster = np.concatenate([own.cluster for own in near])
        said = []
        for _ in range(curve.pooling.rounds):
            shared = [curve.shared(weight) for weight in weights]
            others = _Others.of(np.concatenate(shared), cluster)
            said.append(others)
            for i, start in enumerate(starts):
                mixed = _mixed(curve, start, shared[i], near[i], others, others.groups)
                weights[i] = found[i].posterior(curve.pooled(start, mixed))
        return said

    def pool(self, groups: IntArray, others: list[_Others], table: int) -> Cells:
        """Posterior of a chunk of groups of a table of so many groups."""
        curve = self.curve
        grid, found, start = self._start(groups)
        start = start / start.sum(axis=(1, 2), keepdims=True)
        weight, near = found.posterior(start), self.neighbours.take(groups)
        for said in others:
            mixed = _mixed(curve, start, curve.shared(weight), near, said, table)
            weight = found.posterior(curve.pooled(start, mixed))
        return Cells(groups, grid, found, weight)

    def _start(self, groups: IntArray) -> tuple[Grid, Evidence, FloatArray]:
        """Evidence of a chunk, and its prior before posteriors are turned into priors."""
        law = self.curve.law(self.steps, self.neighbours, groups)
        grid, found = law.grid, self._evidence(law, groups)
        prior, cluster = grid.prior(), self.neighbours.cluster[groups]
        if self.curve.pooling.rounds and len(np.unique(cluster)) < len(cluster):
            prior = prior * self.curve.of_cluster(grid, found, cluster)
        return grid, found, prior

    def _evidence(self, law: Law, groups: IntArray) -> Evidence:
        parts = [
            (where, evidence(law, sweep, self.target.take(groups[where]), where))
            for where, sweep in self.steps.by_count(groups)
        ]
        return parts[0][1] if len(parts) == 1 else _joined(parts, len(groups))


def _chunks(groups: IntArray, cluster: IntArray) -> list[IntArray]:
    """Runs of whole clusters; one that is larger than a chunk is cut between core counts."""
    starts = np.flatnonzero(np.diff(cluster[groups], prepend=-1))
    # A cluster goes into the chunk that its first group falls into; a long one spills over.
    sizes = np.diff(np.append(starts, len(groups)))
    within = np.arange(len(groups)) - np.repeat(starts, sizes)
    chunk = np.repeat(starts // _CHUNK, sizes) + within // _CHUNK
    return np.split(groups, np.flatnonzero(np.diff(chunk)) + 1)


def _spread(chunks: list[IntArray], cluster: IntArray) -> list[IntArray]:
    """Whole clusters, evenly spread over the table, of about `_SAMPLE` groups in all."""
    groups = np.concatenate(chunks)
    if len(groups) <= _SAMPLE:
        return chunks
    starts = np.flatnonzero(np.diff(cluster[groups], prepend=-1))
    clusters = max(1, _SAMPLE * len(starts) // len(groups))
    chosen = np.linspace(0, len(starts) - 1, clusters).astype(np.int64)
    ends = np.append(starts[1:], len(groups))
    return [np.concatenate([groups[starts[i] : ends[i]][:_CHUNK] for i in chosen])]


def _joined(parts: list[tuple[IntArray, Evidence]], groups: int) -> Evidence:
    """Evidence of groups with different numbers of steps, in the groups' order."""
    cells = (groups, *parts[0][1].mean.shape[1:])
    likelihood, mean = np.empty(cells), np.empty(cells)
    design, before = np.empty(groups, dtype=np.int64), 0
    for where, part in parts:
        likelihood[where], mean[where] = part.likelihood, part.mean
        design[where] = part.design + before
        before += len(part.variance)
    designs = zip(*((p.variance, p.form, p.noise) for _, p in parts), strict=True)
    return Evidence(likelihood, mean, design, *map(np.concatenate, designs))


def _mixed(
    curve: Curve,
    start: FloatArray,
    shared: FloatArray,
    near: Neighbours,
    others: _Others,
    table: int,
) -> FloatArray:
    """Prior of the shared part: its own start, cluster and others, by their weights."""
    p = curve.pooling
    mixed = np.broadcast_to(p.shipped * curve.shared(start), shared.shape).copy()
    begins = np.flatnonzero(np.diff(near.cluster, prepend=-1))
    for begin, end in zip(begins, np.append(begins[1:], len(near.cluster)), strict=True):
        part = slice(begin, end)
        if end - begin > 1:
            apart = near.position[part, None] - near.position[None, part]
            kernel = np.exp(-0.5 * (apart / p.reach) ** 2)
            np.fill_diagonal(kernel, 0.0)
            flat = shared[part].reshape(end - begin, -1)
            mixed[part] += (kernel @ flat).reshape(shared[part].shape)
        total, count = others.without(int(near.cluster[begin]))
        if count:
            mixed[part] += min(p.other * (table - (end - begin)), p.others) / count * total
    axes = tuple(range(1, mixed.ndim))
    mixed /= mixed.sum(axis=axes, keepdims=True)
    return mixed


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
