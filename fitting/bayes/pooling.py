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
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fitting.bayes.posterior import Evidence, Target, evidence
from fitting.bayes.priors import DynamicShare, DynamicSharePrior, StalledShare, StalledSharePrior

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fitting.bayes.posterior import Grid, Law
    from fitting.bayes.steps import Steps
    from fitting.regression.lines import FloatArray, IntArray


# Groups that stand for the others of a table, and groups whose grids are in memory together.
_SAMPLE = 512
_CHUNK = 512


class Cells(NamedTuple):
    """Posterior of a chunk of groups, cell by cell: all (groups, shapes, scales) but ``grid``."""

    groups: IntArray
    grid: Grid
    evidence: Evidence
    weight: FloatArray


class _Others(NamedTuple):
    """Mean shared posterior of a sample of the table, and what each cluster adds to it."""

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


def posterior_cells(
    curve: Curve, steps: Steps, target: Target, neighbours: Neighbours, groups: IntArray
) -> Iterator[Cells]:
    """Yield the pooled posterior of all groups, some hundreds at a time.

    Parameters
    ----------
    curve : TimeCurve or PowerCurve
    steps : Steps
    target : Target
        A frequency for each of *all* groups of ``steps``.
    neighbours : Neighbours
        Likewise.
    groups : int array
        Groups to take part: each with two steps or more.
    """
    if not len(groups):
        return
    order = np.lexsort((groups, neighbours.position[groups], neighbours.cluster[groups]))
    chunks = _chunks(groups[order], neighbours.cluster)
    others = _sample(curve, steps, target, neighbours, chunks) if curve.pooling.rounds else []
    for chunk in chunks:
        yield _pooled_chunk(curve, steps, target, neighbours, chunk, others, len(groups))


def _chunks(groups: IntArray, cluster: IntArray) -> list[IntArray]:
    """Runs of whole clusters; one that is larger than a chunk is cut between core counts."""
    starts = np.flatnonzero(np.diff(cluster[groups], prepend=-1))
    # A cluster goes into the chunk that its first group falls into; a long one spills over.
    sizes = np.diff(np.append(starts, len(groups)))
    within = np.arange(len(groups)) - np.repeat(starts, sizes)
    chunk = np.repeat(starts // _CHUNK, sizes) + within // _CHUNK
    return np.split(groups, np.flatnonzero(np.diff(chunk)) + 1)


def _chunk_evidence(
    curve: Curve, steps: Steps, target: Target, neighbours: Neighbours, groups: IntArray
) -> tuple[Grid, Evidence]:
    law = curve.law(steps, neighbours, groups)
    parts = [
        (where, evidence(law, sweep, target.take(groups[where]), where))
        for where, sweep in steps.by_count(groups)
    ]
    return law.grid, parts[0][1] if len(parts) == 1 else _joined(parts, len(groups))


def _joined(parts: list[tuple[IntArray, Evidence]], groups: int) -> Evidence:
    """Evidence of groups with different numbers of steps, in the groups' order."""
    cells = (groups, *parts[0][1].mean.shape[1:])
    likelihood, mean = np.empty(cells), np.empty(cells)
    design, before = np.empty(groups, dtype=np.int64), 0
    for where, part in parts:
        likelihood[where], mean[where] = part.likelihood, part.mean
        design[where] = part.design + before
        before += len(part.variance)
    return Evidence(
        likelihood,
        mean,
        np.concatenate([p.variance for _, p in parts]),
        np.concatenate([p.form for _, p in parts]),
        np.concatenate([p.noise for _, p in parts]),
        design,
    )


def _start(curve: Curve, grid: Grid, found: Evidence, cluster: IntArray) -> FloatArray:
    """Prior of each group before posteriors are turned into priors, summing to 1."""
    start = curve.start(grid, found, cluster)
    return start / start.sum(axis=(1, 2), keepdims=True)


def _sample(
    curve: Curve,
    steps: Steps,
    target: Target,
    neighbours: Neighbours,
    chunks: list[IntArray],
) -> list[_Others]:
    """What the others say before each round, from chunks spread evenly over the table."""
    taken = _spread(chunks, neighbours.cluster)
    parts = [_chunk_evidence(curve, steps, target, neighbours, g) for g in taken]
    clusters = [neighbours.cluster[g] for g in taken]
    starts = [curve.start(grid, found, c) for (grid, found), c in zip(parts, clusters, strict=True)]
    weights = [found.posterior(s) for (_, found), s in zip(parts, starts, strict=True)]
    said = []
    for _ in range(curve.pooling.rounds):
        shared = [curve.shared(w) for w in weights]
        others = _Others.of(np.concatenate(shared), np.concatenate(clusters))
        said.append(others)
        for i, (_, found) in enumerate(parts):
            mixed = _mixed(curve, starts[i], shared[i], neighbours, taken[i], others, others.groups)
            weights[i] = found.posterior(curve.pooled(starts[i], mixed))
    return said


def _spread(chunks: list[IntArray], cluster: IntArray) -> list[IntArray]:
    """Whole clusters, evenly spread over the table, of about `_SAMPLE` groups in all."""
    groups = np.concatenate(chunks)
    if len(groups) <= _SAMPLE:
        return chunks
    starts = np.flatnonzero(np.diff(cluster[groups], prepend=-1))
    clusters = max(1, _SAMPLE * len(starts) // len(groups))
    chosen = np.linspace(0, len(starts) - 1, clusters).astype(np.int64)
    ends = np.append(starts[1:], len(groups))
    parts = [groups[starts[i] : ends[i]][:_CHUNK] for i in chosen]
    return [np.concatenate(parts)]


def _mixed(
    curve: Curve,
    start: FloatArray,
    shared: FloatArray,
    neighbours: Neighbours,
    groups: IntArray,
    others: _Others,
    table: int,
) -> FloatArray:
    """Prior of the shared part: its own start, cluster and others, by their weights."""
    p = curve.pooling
    mixed = np.broadcast_to(p.shipped * curve.shared(start), shared.shape).copy()
    cluster, position = neighbours.cluster[groups], neighbours.position[groups]
    begins = np.flatnonzero(np.diff(cluster, prepend=-1))
    for begin, end in zip(begins, np.append(begins[1:], len(groups)), strict=True):
        part = slice(begin, end)
        if end - begin > 1:
            apart = position[part, None] - position[None, part]
            kernel = np.exp(-0.5 * (apart / p.reach) ** 2)
            np.fill_diagonal(kernel, 0.0)
            flat = shared[part].reshape(end - begin, -1)
            mixed[part] += (kernel @ flat).reshape(shared[part].shape)
        total, count = others.without(int(cluster[begin]))
        if count:
            mixed[part] += min(p.other * (table - (end - begin)), p.others) / count * total
    axes = tuple(range(1, mixed.ndim))
    mixed /= mixed.sum(axis=axes, keepdims=True)
    return mixed


def _pooled_chunk(
    curve: Curve,
    steps: Steps,
    target: Target,
    neighbours: Neighbours,
    groups: IntArray,
    others: list[_Others],
    table: int,
) -> Cells:
    grid, found = _chunk_evidence(curve, steps, target, neighbours, groups)
    start = _start(curve, grid, found, neighbours.cluster[groups])
    weight = found.posterior(start)
    for said in others:
        mixed = _mixed(curve, start, curve.shared(weight), neighbours, groups, said, table)
        weight = found.posterior(curve.pooled(start, mixed))
    return Cells(groups, grid, found, weight)


# Kinds of curves by how groups lean on each other: `TimeCurve` and `PowerCurve`.
#
# A kind has its law, what the likelihoods of a cluster say before posteriors become priors, and the
# part of a posterior that is passed on; `fitting.bayes.pooling` does the rounds.


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
            return (frequency / reference[chosen, None]) ** exponent

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
        return prior * np.repeat(weight, self.prior.scales, axis=2)

    def _by_noise(self, cells: FloatArray) -> FloatArray:
        return cells.reshape(*cells.shape[:-1], len(self.prior.wander), self.prior.scales)

    def shared(self, weight: FloatArray) -> FloatArray:
        """Noise: (groups, scales)."""
        return self._by_noise(weight.sum(axis=1)).sum(axis=1)

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
    return np.exp(log_weight - log_weight.max(axis=axes, keepdims=True))
