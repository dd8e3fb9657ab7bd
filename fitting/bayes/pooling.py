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

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from fitting.bayes import posterior
from fitting.bayes.posterior import Evidence, FrequencyTarget, Grid, MeasuredSteps, ShapeLaw
from fitting.bayes.priors import DynamicShare, DynamicSharePrior, StalledShare, StalledSharePrior
from fitting.regression.lines import FloatArray, IntArray

if TYPE_CHECKING:
    from types import ModuleType

# Groups that stand for the others of a large table, and the most of a cluster that are one.
_CHUNK = 512
# Groups whose grids are in memory together, or a cluster: enough for calls to cost little, and few
# enough for the cache.
_TOGETHER = 384
# Log-likelihood ratios further down than this are as good as impossible; a broken neighbour must
# not veto a cell alone.
_VETO = 25.0


class Neighbours(NamedTuple):
    """Cluster of each group (on one machine), its place on the core-count axis, and its machine."""

    cluster: IntArray
    position: FloatArray  # ln(cores)
    machine: IntArray


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """How strongly groups inform each other; weights are in groups' worth."""

    reach: float = 0.8  # standard deviation, in ln(cores), of the weight of a cluster's groups
    shipped: float = 0.3  # weight of the shipped prior
    other: float = 0.09  # weight of one group of another cluster
    others: float = 1.3  # the most that all of these have together
    # Likelihood that a cluster gives to one of its groups: about the noise of time, and about the
    # static power and the voltage slope.
    cluster_evidence: float = 2.0
    # Standard deviation of a group's static power about its cluster's, as a share of the most that
    # it can be.
    static_spread: float = 0.05
    rounds: int = 2  # how often posteriors are turned into priors; 0 switches pooling off


TIME_POOLING = Pooling()
POWER_POOLING = Pooling(shipped=0.15, other=0.005, others=2.0, cluster_evidence=6.0, rounds=4)
NO_POOLING = Pooling(rounds=0)


@cache
def _stalled_share(prior: StalledSharePrior) -> StalledShare:
    """Law of no group: its grid is that of all groups."""
    return StalledShare(np.empty(0), prior)


@dataclass(frozen=True, kw_only=True)
class TimeCurve:
    """Time, or the reciprocal of a rate, by its memory-bound fraction; see `StalledShare`."""

    prior: StalledSharePrior = field(default_factory=StalledSharePrior)
    pooling: Pooling = TIME_POOLING

    def law(self, steps: MeasuredSteps, neighbours: Neighbours, groups: IntArray) -> StalledShare:
        """Law of groups at their highest frequencies."""
        law = copy(_stalled_share(self.prior))
        law.reference = steps.highest(groups)[0]
        return law

    def of_cluster(self, grid: Grid, found: Evidence, cluster: IntArray) -> FloatArray:
        """What the rest of a group's cluster says of its noise: broadcasts over the cells."""
        shapes = np.broadcast_to(grid.shape_weight, found.likelihood.shape[:2])
        of_noise = np.einsum("gts,gt->gs", found.likelihood, shapes)
        return _evidence_of_cluster(of_noise, cluster, self.pooling)[:, None, :]


@dataclass(frozen=True, kw_only=True)
class CmosPowerCurve:
    """Power by its dynamic power fraction and voltage slope; see `DynamicShare`.

    A known ``exponent`` γ makes the dynamic part φ^γ; ``voltage``, a function of (groups, k)
    frequencies (Hz) and the numbers of the groups, makes it φ·V².
    """

    prior: DynamicSharePrior = field(default_factory=DynamicSharePrior)
    pooling: Pooling = POWER_POOLING
    exponent: float | None = None
    voltage: Callable[[FloatArray, IntArray], FloatArray] | None = None

    def law(self, steps: MeasuredSteps, neighbours: Neighbours, groups: IntArray) -> DynamicShare:
        """Law of whole clusters of groups, whose static fraction is at most their least power."""
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
        # Mean over the noise, a product of matrices.
        average = np.eye(len(noise))[:, None] * noise[:, :, None]
        of_shape = found.likelihood @ average.reshape(-1, len(noise))
        # Static power is alike within a cluster, not the same: each group's own lies about it.
        away = np.subtract.outer(static := self.prior.static_nodes(), static)
        alike = np.exp(-0.5 * (away / self.pooling.static_spread) ** 2)
        alike /= alike.sum(axis=1, keepdims=True)
        by_static = (len(of_shape), -1, len(static), len(noise))
        of_static = alike @ of_shape.reshape(by_static)
        weight = alike @ _evidence_of_cluster(of_static, cluster, self.pooling)
        return np.repeat(weight.reshape(of_shape.shape), self.prior.scales, axis=2)

    def marginal(self, cells: FloatArray) -> FloatArray:
        """Sum up the posterior of the noise, which other groups learn from: (groups, scales)."""
        return self._by_noise(cells.sum(axis=1)).sum(axis=1)

    def with_marginal(self, cells: FloatArray, old: FloatArray, new: FloatArray) -> FloatArray:
        """Replace the noise of a posterior; all else given the noise stays."""
        ratio = np.divide(new, old, out=np.zeros_like(new), where=old > 0)
        return cells * np.tile(ratio, len(self.prior.wander))[:, None, :]

    def _by_noise(self, cells: FloatArray) -> FloatArray:
        return cells.reshape(*cells.shape[:-1], len(self.prior.wander), self.prior.scales)


Curve: TypeAlias = TimeCurve | CmosPowerCurve


class CellPosteriors(NamedTuple):
    """Posterior of a chunk of groups, cell by cell."""

    groups: IntArray
    grid: Grid
    evidence: Evidence
    weight: FloatArray  # (groups, shapes, scales)
    shipped: FloatArray  # (groups or 1, shapes, scales): prior that no other group has a part in


def posterior_cells(
    curve: Curve,
    steps: MeasuredSteps,
    target: FrequencyTarget,
    neighbours: Neighbours,
    groups: IntArray,
) -> Iterator[CellPosteriors]:
    """Yield the pooled posterior of all groups, some hundreds at a time.

    ``target`` and ``neighbours`` have one element for each of *all* groups of ``steps``; the
    ``groups`` that take part have two steps or more each.
    """
    if not len(groups):
        return
    cluster, position, _ = neighbours
    ordered = groups[np.lexsort((groups, position[groups], cluster[groups]))]
    table = (curve, steps, target, neighbours, posterior.loops_for(len(groups)))
    if len(groups) <= _CHUNK:
        # A small table is one chunk, and that is its own sample.
        chunks: Iterable[_Chunk] = [sample := _start(*table, ordered)]
    else:
        sample = _start(*table, _sample_clusters(ordered, cluster))
        chunks = (_start(*table, part) for part in _split_chunks(ordered, cluster))
    others = _shared_by_others(curve.pooling, sample)
    for chunk in chunks:
        shared = chunk.shared
        for before_round in others:
            shipped = curve.pooling.shipped / chunk.mass
            shared = chunk.pool(curve.pooling, shared, before_round, len(groups), shipped)
        # Of time all cells are shared, and of power the noise alone.
        weight = shared
        if isinstance(curve, CmosPowerCurve):
            weight = curve.with_marginal(chunk.weight, chunk.shared, shared)
        yield CellPosteriors(chunk.groups, chunk.grid, chunk.evidence, weight, chunk.shipped)


class _Chunk(NamedTuple):
    """Groups whose grids are in memory together, cluster by cluster, before they are pooled."""

    groups: IntArray
    near: Neighbours
    begin: IntArray  # (groups,): where the cluster of each group begins
    size: IntArray  # (groups,): of that cluster
    grid: Grid
    evidence: Evidence
    weight: FloatArray  # (groups, shapes, scales): posterior without the other clusters
    shipped: FloatArray  # (groups or 1, shapes, scales): prior without the cluster
    mass: FloatArray  # (groups or 1,): sum of its prior
    prior: FloatArray  # (groups or 1, …): shared part of that
    likelihood: FloatArray  # (groups, …): of what is shared, up to a factor
    shared: FloatArray  # (groups, …): shared part of the posterior
    loops: ModuleType | None  # see `fitting.bayes.posterior.loops_for`

    def pool(
        self, pooling: Pooling, shared: FloatArray, others: _Others, table: int, shipped: FloatArray
    ) -> FloatArray:
        """Mix each group's prior, its cluster and the others to a prior, and make a posterior."""
        cluster = self.near.cluster
        # Row of each group's cluster in the sample, −1 outside, and the weight of one other group.
        row = np.searchsorted(others.cluster, cluster)
        row = np.where(np.append(others.cluster, -1)[row] == cluster, row, -1)
        count = others.groups - others.size[row]
        worth = np.minimum(pooling.other * (table - self.size), pooling.others)
        worth = np.where(count > 0, worth / np.maximum(count, 1), 0.0)
        shipped = shipped * np.ones(len(row))
        of_group = (self.near.position, self.begin, self.size, row, worth, shipped)
        cells = (self.prior, self.likelihood, shared, others.total[None], others.by_cluster)
        mix = _mix_posteriors if self.loops is None else self.loops.mix_posteriors
        return mix(pooling.reach, of_group, cells)


def _start(
    curve: Curve,
    steps: MeasuredSteps,
    target: FrequencyTarget,
    neighbours: Neighbours,
    loops: ModuleType | None,
    groups: IntArray,
) -> _Chunk:
    """Compute the evidence of a chunk, and its prior with what its clusters say."""
    law = curve.law(steps, neighbours, groups)
    found = own = _evidence_of(law, steps, target, groups, loops)
    if steps.borrowed.any():
        # What others stand in for is no evidence of the group's own, to be passed on.
        own = _evidence_of(law, steps.choose(steps.borrowed == 0), target, groups, loops)
    near = Neighbours._make(part[groups] for part in neighbours)
    begin = np.flatnonzero(np.diff(near.cluster, prepend=-1))
    size = np.diff(np.append(begin, len(groups)))
    begin, size = np.repeat(begin, size), np.repeat(size, size)
    prior = alone = law.grid.shape_weight[:, :, None] * law.grid.noise_weight
    if curve.pooling.rounds and (size > 1).any():
        prior = prior * curve.of_cluster(law.grid, own, near.cluster)
    shared = weight = found.posterior(prior)
    mass, likelihood = prior.sum(axis=(1, 2)), found.likelihood
    if isinstance(curve, CmosPowerCurve):
        prior, shared = curve.marginal(prior), curve.marginal(weight)
        likelihood = shared / prior
    parts = (law.grid, found, weight, alone, mass, prior, likelihood, shared, loops)
    return _Chunk(groups, near, begin, size, *parts)


def _evidence_of(
    law: ShapeLaw,
    steps: MeasuredSteps,
    target: FrequencyTarget,
    groups: IntArray,
    loops: ModuleType | None,
) -> Evidence:
    """Compute the evidence of groups with any numbers of steps."""
    counts, parts = steps.count[groups], []
    for count in np.unique(counts):
        where = np.flatnonzero(counts == count)
        of_count = groups[where]
        asked = FrequencyTarget._make(part[of_count] for part in target)
        sweep = steps.sweep(of_count)
        parts.append((where, posterior.evidence(law, sweep, asked, where, loops=loops)))
    return parts[0][1] if len(parts) == 1 else _join_evidence(parts, len(groups))


class _Others(NamedTuple):
    """Summed shared posteriors of a sample of the table, and what each cluster adds to them."""

    total: FloatArray  # (…)
    groups: int
    cluster: IntArray  # numbers of the sampled clusters, rising
    by_cluster: FloatArray  # (clusters + 1, …): nothing in the last row
    size: IntArray  # (clusters + 1,)


def _shared_by_others(pooling: Pooling, sample: _Chunk) -> list[_Others]:
    """Sum up what the sampled groups share before each round."""
    begin = np.unique(sample.begin)
    number, size = sample.near.cluster[begin], np.append(sample.size[begin], 0)
    shared, shipped, rounds = sample.shared, np.array(pooling.shipped), []
    for _ in range(pooling.rounds):
        by_cluster = np.add.reduceat(shared, begin)
        by_cluster = np.concatenate([by_cluster, np.zeros_like(by_cluster[:1])])
        rounds.append(_Others(shared.sum(axis=0), len(shared), number, by_cluster, size))
        shared = sample.pool(pooling, shared, rounds[-1], len(shared), shipped)
    return rounds


def _split_chunks(groups: IntArray, cluster: IntArray) -> list[IntArray]:
    """Runs of whole clusters; one that is longer than `_CHUNK` is cut between core counts."""
    starts = np.flatnonzero(np.diff(cluster[groups], prepend=-1))
    # A cluster goes into the part that its first group falls into; a long one spills over.
    sizes = np.diff(np.append(starts, len(groups)))
    within = np.arange(len(groups)) - np.repeat(starts, sizes)
    chunk = np.repeat(starts // _TOGETHER, sizes) + within // _CHUNK
    return np.split(groups, np.flatnonzero(np.diff(chunk)) + 1)


def _sample_clusters(groups: IntArray, cluster: IntArray) -> IntArray:
    """Choose whole clusters, evenly spread over a large table, of about `_CHUNK` groups in all."""
    starts = np.flatnonzero(np.diff(cluster[groups], prepend=-1))
    clusters = max(1, _CHUNK * len(starts) // len(groups))
    chosen = np.linspace(0, len(starts) - 1, clusters).astype(np.int64)
    ends = np.append(starts[1:], len(groups))
    return np.concatenate([groups[starts[i] : ends[i]][:_CHUNK] for i in chosen])


def _join_evidence(parts: list[tuple[IntArray, Evidence]], groups: int) -> Evidence:
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


def _mix_posteriors(reach: float, of_group: posterior.Parts, cells: posterior.Parts) -> FloatArray:
    """Mix own priors, clusters and others into posteriors; arguments of `_Chunk.pool`."""
    position, begin, size, row, worth, shipped = of_group
    prior, likelihood, shared, total, by_cluster = cells
    axes = tuple(range(1, shared.ndim))
    # A group's own cluster is not among its others.
    mixed: FloatArray = total - by_cluster[row]
    mixed *= np.expand_dims(worth, axes)
    mixed += np.expand_dims(shipped, axes) * prior
    for first in np.unique(begin[size > 1]):
        part = slice(first, first + size[first])
        apart = position[part, None] - position[None, part]
        kernel = np.exp(-0.5 * (apart / reach) ** 2)
        np.fill_diagonal(kernel, 0.0)
        mixed[part] += np.tensordot(kernel, shared[part], 1)
    mixed *= likelihood
    mixed /= mixed.sum(axis=axes, keepdims=True)
    return mixed


def _evidence_of_cluster(likelihood: FloatArray, cluster: IntArray, pooling: Pooling) -> FloatArray:
    """Tempered product of the likelihoods of the cluster's other groups, 1 at its best cell.

    ``cluster`` rises.
    """
    axes = tuple(range(1, likelihood.ndim))
    with np.errstate(divide="ignore"):
        log_ratio = np.log(likelihood)
    log_ratio -= log_ratio.max(axis=axes, keepdims=True)
    log_ratio = np.maximum(log_ratio, -_VETO)
    begins = np.diff(cluster, prepend=-1) != 0
    number = np.cumsum(begins) - 1
    total = np.add.reduceat(log_ratio, np.flatnonzero(begins))
    rest = np.bincount(number)[number] - 1
    share = np.minimum(1.0, pooling.cluster_evidence / np.maximum(rest, 1))
    share[rest == 0] = 0.0
    log_weight = share.reshape(-1, *(1 for _ in axes)) * (total[number] - log_ratio)
    return np.exp(log_weight - log_weight.max(axis=axes, keepdims=True))
