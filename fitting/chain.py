"""The chain of a fitted state diagram, as tables that a walk can draw from in constant time.

From a finest state the next transition is drawn in two steps: the level at which it parts, in the
proportions found for that state, and one of the transitions recorded there. The position inside
the state that it leads to follows the requests that came into that state at that level. Leaving
and entering so, the chain is in every state as often as the trace was (up to its first and last
request); with ``entry="occupancy"`` it leaves a coarse state from anywhere in it alike and enters
one by its own occupancy, as the hierarchy alone has it, and the time in a state is off by as much
as that loses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fitting.compiled import compiled
from fitting.errors import FittingError
from fitting.request_kinds import KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.transition_counts import TransitionCounts

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

# Transitions of nodes with more are drawn by alias tables, which take less memory.
_LARGEST_DECK = 4096
ENTRIES = ("arrivals", "occupancy")


@dataclass(frozen=True)
class Chain:
    """Tables of a walk over the touched states of every stream.

    Parameters
    ----------
    levels : int
    leave : array
        Touched states by levels: cumulated share of transitions that part at each level or above.
    node : array
        Touched states by levels: row of `first`, −1 where nothing parts there.
    first : array
        Transitions of node i are those from ``first[i]`` up to ``first[i + 1]``.
    keep, other : array
        By transition, the alias tables of the nodes (Walker 1977).
    low, high : array
        By transition, touched states that it may lead to: from low up to high.
    entered : array
        Levels by touched states and one: cumulated arrivals, from 0.
    level : array
        By transition, the level it is recorded at.
    target : array
        By transition, the number of the range of touched states that it may lead to.
    deck_start, deck : array
        Transitions of node i, each as often as it was counted, are those of the deck from
        ``deck_start[i]`` up to ``deck_start[i + 1]``; none for nodes that have too many.
    """

    levels: int
    leave: FloatArray
    node: IntArray
    first: IntArray
    keep: FloatArray
    other: IntArray
    low: IntArray
    high: IntArray
    entered: FloatArray
    level: IntArray
    target: IntArray
    deck_start: IntArray
    deck: NDArray[np.int32]


def make_chain(counts: TransitionCounts, kinds: IntArray, entry: str = "arrivals") -> Chain:
    """Prepare a walk.

    Parameters
    ----------
    counts : TransitionCounts
    kinds : array
        Kind of the request of every transition.
    entry : str
        One of `ENTRIES`.

    Raises
    ------
    FittingError
        For an unknown way of entry.
    """
    if entry not in ENTRIES:
        raise FittingError(f"no way of entry {entry!r}: give {' or '.join(ENTRIES)}")
    diagram, levels, k = counts.diagram, counts.diagram.levels, counts.diagram.fan_out
    pairs = diagram.pairs(counts.pair)
    node_keys = np.stack([counts.origin, pairs.level, pairs.source])
    new = np.r_[True, np.any(np.diff(node_keys, axis=1) != 0, axis=0)]
    first = np.append(np.flatnonzero(new), len(new))
    node = np.stack(
        [
            _find_nodes(
                node_keys[:, new], counts.state_origin, i, counts.state // k ** (levels - i)
            )
            for i in range(1, levels + 1)
        ],
        axis=1,
    )
    keep, other = np.empty(len(new)), np.empty(len(new), dtype=np.int64)
    _alias(first, counts.count.astype(np.float64), keep, other)
    low, high = _target_ranges(counts, kinds, pairs.level, pairs.target)
    by_level = counts.arrivals if entry == "arrivals" else counts.occupancy[:, None]
    entered = np.zeros((levels, len(counts.state) + 1))
    entered[:, 1:] = np.cumsum(np.broadcast_to(by_level, counts.arrivals.shape), axis=0).T
    leave = _leaving(counts, pooled=entry == "occupancy")
    target = np.unique(low * (levels + 1) + pairs.level, return_inverse=True)[1].astype(np.int64)
    return Chain(
        *(levels, leave, node, first, keep, other, low, high, entered, pairs.level, target),
        *_decks(first, counts.count),
    )


def _decks(first: IntArray, count: IntArray) -> tuple[IntArray, NDArray[np.int32]]:
    """Deal the transitions of each node that has few enough."""
    node = np.repeat(np.arange(len(first) - 1), np.diff(first))
    cards = np.bincount(node, count).astype(np.int64)
    kept = cards <= _LARGEST_DECK
    start = np.cumsum(np.append(0, np.where(kept, cards, 0)))
    number = np.where(kept[node], count, 0)
    return start, np.repeat(np.arange(len(count), dtype=np.int32), number)


def _find_nodes(nodes: IntArray, stream: IntArray, level: int, state: IntArray) -> IntArray:
    """Rows of the nodes at a level, −1 for states that nothing leaves there."""
    here = np.flatnonzero(nodes[1] == level)
    span = int(max(state.max(initial=0), nodes[2, here].max(initial=0))) + 1
    known = nodes[0, here] * span + nodes[2, here]
    wanted = stream * span + state
    at = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
    if not len(known):
        return np.full(len(state), -1)
    return np.where(known[at] == wanted, here[at], -1)


def _target_ranges(
    counts: TransitionCounts, kinds: IntArray, level: IntArray, target: IntArray
) -> tuple[IntArray, IntArray]:
    diagram = counts.diagram
    size = diagram.fan_out ** (diagram.levels - level)
    touched = counts.state_origin * diagram.states + counts.state
    start = (counts.stream * KINDS + kinds) * diagram.states + target * size
    return np.searchsorted(touched, start), np.searchsorted(touched, start + size)


def _leaving(counts: TransitionCounts, *, pooled: bool) -> FloatArray:
    """Cumulated share of a state's transitions by the level at which they part."""
    departures = counts.departures.astype(np.float64)
    if pooled:
        departures = _pooled_departures(counts)
    total = departures.sum(axis=1, keepdims=True)
    leave = np.cumsum(departures, axis=1) / np.where(total > 0, total, 1)
    leave[total[:, 0] > 0, -1] = 1.0
    return np.asarray(leave)


def _pooled_departures(counts: TransitionCounts) -> FloatArray:
    """Share parted at each level when a coarse state is left from anywhere in it alike."""
    levels, k = counts.diagram.levels, counts.diagram.fan_out
    remaining = np.ones(len(counts.state))
    shares = np.zeros((len(counts.state), levels))
    for i in range(levels):
        state = counts.state // k ** (levels - 1 - i)
        _, group = np.unique(np.stack([counts.state_origin, state]), axis=1, return_inverse=True)
        here = np.bincount(group, weights=counts.departures[:, i])[group]
        deeper = np.bincount(group, weights=counts.departures[:, i:].sum(axis=1))[group]
        share = np.where(deeper > 0, here / np.where(deeper > 0, deeper, 1), 0)
        shares[:, i] = remaining * share
        remaining = remaining * (1 - share)
    return shares


@compiled
def _alias(first: IntArray, weight: FloatArray, keep: FloatArray, other: IntArray) -> None:
    """Build the alias table of every node, in place (Vose 1991)."""
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
        for i in range(smalls):
            keep[small[i]] = 1.0
        for i in range(larges):
            keep[large[i]] = 1.0
