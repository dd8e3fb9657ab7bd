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

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.posterior import Evidence, Target, evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fitting.line import FloatArray, IntArray
    from fitting.pooled_curves import Curve, Neighbours
    from fitting.posterior import Grid
    from fitting.steps import Steps

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
    normal: FloatArray = start / start.sum(axis=(1, 2), keepdims=True)
    return normal


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
