"""The chain of a fitted state diagram, as tables that a generator draws from in constant time.

A run of sequential requests goes where its addresses lead; where it ends, the chain says where the
next one starts. From a finest state that transition is drawn in two steps: the level at which it
parts, in the proportions found for that state, and one of the random transitions recorded there.
The position inside the state that it leads to follows the random requests that came into that
state at that level. Leaving and entering so, runs start in every state as often as in the trace;
with ``entry="occupancy"`` the chain leaves a coarse state from anywhere in it alike and enters
one by its own occupancy, as the hierarchy alone has it, and the time in a state is off by as much
as that loses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fitting.compiled.loops import FloatArray, IntArray, jit
from fitting.errors import FittingError
from fitting.storage.diagram import KINDS, Pairs
from fitting.storage.transitions import TransitionCounts

ENTRIES = ("arrivals", "occupancy")


class Chain(NamedTuple):
    """Tables that lead a generator over the accessed states of every stream.

    A node holds the transitions that leave a state of some level at that level, the sequential
    ones apart from the random ones. Transitions of node i are ``order[first[i]:first[i + 1]]``.
    """

    levels: int
    departures: IntArray  # by accessed state, random transitions out of it
    leave: FloatArray  # by accessed state, cumulated share that parts at each level or above
    node: IntArray  # by accessed state and level, node of the random transitions, −1 for none
    follows: IntArray  # by accessed state, node of the sequential transitions, −1 for none
    order: IntArray
    first: IntArray
    keep: FloatArray  # in that order, alias tables of the nodes (Walker 1977)
    other: IntArray
    low: IntArray  # by transition, accessed states that it may lead to: from low up to high
    high: IntArray
    entered: FloatArray  # by level, random arrivals cumulated over the accessed states, from 0
    level: IntArray  # by transition, the level it is recorded at
    target: IntArray  # by transition, number of the range of states that it may lead to


def make_chain(counts: TransitionCounts, kinds: IntArray, entry: str = "arrivals") -> Chain:
    """Lay out a generator's tables of transitions; ``kinds`` has a request kind for each."""
    if entry not in ENTRIES:
        raise FittingError(f"no way of entry {entry!r}: give {' or '.join(ENTRIES)}")
    levels, pairs = counts.diagram.levels, counts.diagram.pairs(counts.pair)
    low, high = _state_range(counts, counts.stream * KINDS + kinds, pairs.level, pairs.target)
    # A run leaves from the last part of a coarse state and comes into the first part of the next.
    departures, arrivals = counts.departures.copy(), counts.arrivals.copy()
    on = np.flatnonzero(counts.sequential == 1)
    source = _state_range(counts, counts.origin[on], pairs.level[on], pairs.source[on])
    _subtract_from_ranges(departures, pairs.level[on], counts.count[on], *source, -1)
    _subtract_from_ranges(arrivals, pairs.level[on], counts.count[on], low[on], high[on], 1)
    order, first, node, follows = _group_into_nodes(counts, pairs)
    weight = counts.count[order]
    keep, other = np.empty(len(weight)), np.empty(len(weight), dtype=np.int64)
    _fill_aliases(first, weight.astype(np.float64), keep, other)
    if entry == "occupancy":
        by_level = _pool_departures(counts, departures)
        arrivals = np.broadcast_to(counts.occupancy[:, None], arrivals.shape)
    else:
        by_level = departures.astype(np.float64)
    total = by_level.sum(axis=1, keepdims=True)
    leave = np.cumsum(by_level, axis=1) / np.where(total > 0, total, 1)
    leave[total[:, 0] > 0, -1] = 1.0
    entered = np.zeros((levels, len(counts.state) + 1))
    entered[:, 1:] = np.cumsum(arrivals, axis=0).T
    target = np.unique(low * (levels + 1) + pairs.level, return_inverse=True)[1].astype(np.int64)
    return Chain(
        *(levels, departures.sum(axis=1), leave, node, follows, order, first, keep, other),
        *(low, high, entered, pairs.level, target),
    )


def _group_into_nodes(counts: TransitionCounts, pairs: Pairs) -> tuple[IntArray, ...]:
    """Group transitions into nodes: their order and first rows, and the nodes of each state."""
    keys = np.stack([counts.origin, pairs.level, pairs.source, counts.sequential])
    order = np.lexsort(keys[::-1])
    keys = keys[:, order]
    new = np.r_[True, np.any(np.diff(keys, axis=1) != 0, axis=0)]
    first = np.append(np.flatnonzero(new), len(new))
    levels = range(1, counts.diagram.levels + 1)
    random = np.stack([_find_nodes(counts, keys[:, new], i, 0) for i in levels], axis=1)
    # A run that goes on mostly stays in its state: the finest level at which any does.
    follows = np.full(len(counts.state), -1)
    for i in levels:
        finer = _find_nodes(counts, keys[:, new], i, 1)
        follows = np.where(finer >= 0, finer, follows)
    return order, first, random, follows


def _find_nodes(counts: TransitionCounts, nodes: IntArray, level: int, sequential: int) -> IntArray:
    """Return by accessed state its node at a level; −1 where no transition leaves it there."""
    here = np.flatnonzero((nodes[1] == level) & (nodes[3] == sequential))
    if not len(here):
        return np.full(len(counts.state), -1)
    states = counts.diagram.states
    coarse = counts.state // counts.diagram.fan_out ** (counts.diagram.levels - level)
    held = nodes[0, here] * states + nodes[2, here]
    wanted = counts.state_origin * states + coarse
    at = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    return np.where(held[at] == wanted, here[at], -1)


@jit
def _subtract_from_ranges(
    partings: IntArray, level: IntArray, number: IntArray, low: IntArray, high: IntArray, step: int
) -> None:
    """Subtract numbers from ranges of states in place, from the first (step 1) or last (−1) on."""
    for i in range(len(number)):
        left = number[i]
        v = low[i] if step > 0 else high[i] - 1
        while left > 0 and low[i] <= v < high[i]:
            taken = min(left, partings[v, level[i] - 1])
            partings[v, level[i] - 1] -= taken
            left -= taken
            v += step


def _state_range(
    counts: TransitionCounts, origin: IntArray, level: IntArray, state: IntArray
) -> tuple[IntArray, IntArray]:
    """Return first and end index of the accessed states of an origin inside a coarse state."""
    size = counts.diagram.fan_out ** (counts.diagram.levels - level)
    accessed = counts.state_origin * counts.diagram.states + counts.state
    start = origin * counts.diagram.states + state * size
    return np.searchsorted(accessed, start), np.searchsorted(accessed, start + size)


def _pool_departures(counts: TransitionCounts, departures: IntArray) -> FloatArray:
    """Return departures by level as shares, if coarse states are left alike from all inside."""
    levels, k = counts.diagram.levels, counts.diagram.fan_out
    remaining = np.ones(len(counts.state))
    shares = np.zeros((len(counts.state), levels))
    for i in range(levels):
        state = counts.state // k ** (levels - 1 - i)
        _, group = np.unique(np.stack([counts.state_origin, state]), axis=1, return_inverse=True)
        here = np.bincount(group, weights=departures[:, i])[group]
        deeper = np.bincount(group, weights=departures[:, i:].sum(axis=1))[group]
        share = np.where(deeper > 0, here / np.where(deeper > 0, deeper, 1), 0)
        shares[:, i] = remaining * share
        remaining = remaining * (1 - share)
    return shares


@jit
def _fill_aliases(first: IntArray, weight: FloatArray, keep: FloatArray, other: IntArray) -> None:
    """Fill in the alias table of every node, in place (Vose 1991)."""
    for node in range(len(first) - 1):
        a, b = first[node], first[node + 1]
        total = weight[a:b].sum()
        small, large = np.empty(b - a, dtype=np.int64), np.empty(b - a, dtype=np.int64)
        smalls, larges = 0, 0
        for t in range(a, b):
            keep[t] = weight[t] * (b - a) / total
            other[t] = t
            if keep[t] < 1.0:
                small[smalls] = t
                smalls += 1
            else:
                large[larges] = t
                larges += 1
        while smalls and larges:
            smalls -= 1
            less, more = small[smalls], large[larges - 1]
            other[less] = more
            keep[more] -= 1.0 - keep[less]
            if keep[more] < 1.0:
                larges -= 1
                small[smalls] = more
                smalls += 1
        keep[small[:smalls]] = 1.0
        keep[large[:larges]] = 1.0
