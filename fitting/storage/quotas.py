"""What comes after what in a walk: transitions and runs dealt out as they were counted.

A stream makes a run of sequential requests as long as its law says, which goes where its addresses
lead; then a random transition of the state that it is in says where the next run starts. A walk
that is as long as its trace is a tour: it makes each random transition as often as the trace did,
so that shares of requests are the trace's own whatever the seed. Where nothing is left to leave a
state by, it goes on from the next state that has something left.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled.loops import inlined
from fitting.compiled.random import uniform
from fitting.storage.addresses import Memory, Pending, Stretches, drawn_class, state_at
from fitting.storage.diagram import KINDS
from fitting.storage.reuse_distance import AGAIN, FRESH
from fitting.storage.run_lengths import RunLengths, drawn_length
from fitting.storage.stratified import (
    Batches,
    Decks,
    Features,
    between,
    card,
    draw,
    draw_gap,
    new_batches,
)
from fitting.storage.survey import BLOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.compiled.random import Randomness
    from fitting.storage.chain import Chain
    from fitting.storage.transitions import TransitionCounts

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

_LONGEST_BATCH = 2**20


class Moves(NamedTuple):
    """What may come after what, as `chain.Chain` has it.

    ``only`` has by node its transition where it has one, or −1.
    ``further`` has by touched state the mean blocks of the requests that go on from there.
    """

    leave: FloatArray
    node: IntArray
    follows: IntArray
    order: IntArray
    first: IntArray
    keep: FloatArray
    other: IntArray
    low: IntArray
    high: IntArray
    level: IntArray
    entered: FloatArray
    target: IntArray
    only: NDArray[np.int32]
    size_class: IntArray
    kind: IntArray
    further: FloatArray


class Strata(NamedTuple):
    """Batches of draws.

    By touched state of levels and of runs; by node; by range of states that is entered.
    """

    leave: Batches
    run: Batches
    node: Batches
    entry: Batches


class Deals(NamedTuple):
    """Transitions out of every touched state that are to be dealt out.

    Parameters
    ----------
    all, left : array
        By touched state: all of them, and those that are to be made still.
    ahead : array
        By touched state, a later one before which there is none with any left.
    """

    all: IntArray
    left: IntArray
    ahead: IntArray


class Tour(NamedTuple):
    """What is left of a walk as long as its trace, which makes every transition of it.

    ``starts`` and ``left`` have by stream all random transitions and those left, ``runs`` and
    ``runs_left`` runs by row of the touched states, as `RunLengths` has them; ``closed`` says
    whether the walk is that long, and has no dimension.
    """

    random: Deals
    sequential: Deals
    starts: IntArray
    left: IntArray
    runs: IntArray
    runs_left: IntArray
    closed: NDArray[np.bool_]


class Course(NamedTuple):
    """All that a walk needs to go on."""

    d: Stretches
    w: Moves
    f: Features
    runs: RunLengths
    strata: Strata
    decks: Decks
    m: Memory
    p: Pending
    tour: Tour


def new_strata(
    counts: TransitionCounts, chain: Chain, runs: IntArray, share: float, rng: np.random.Generator
) -> Strata:
    """Make batches as long as what was counted, or a share of it that is to come."""
    nodes = np.add.reduceat(counts.count[chain.order], chain.first[:-1])
    entered = np.bincount(chain.target, counts.count * (counts.sequential == 0))
    visited = (chain.departures, runs, nodes, entered)
    share = min(1.0, share)
    return Strata(*(new_batches(np.minimum(n * share, _LONGEST_BATCH), rng) for n in visited))


def new_tour(
    counts: TransitionCounts, chain: Chain, runs: IntArray, streams: int, *, closed: bool
) -> Tour:
    """Begin a tour."""
    starts = np.bincount(counts.stream_of_state, chain.departures, streams).astype(np.int64)
    sequential = counts.departures.sum(axis=1) - chain.departures
    sequential[chain.follows < 0] = 0
    deals = _deals(chain.departures), _deals(sequential)
    return Tour(*deals, starts, starts.copy(), runs, runs.copy(), np.asarray(closed))


def _deals(number: IntArray) -> Deals:
    return Deals(number, number.copy(), np.arange(1, len(number) + 1))


@inlined
def _dealt(c: Course, node: int, rng: Randomness) -> int:
    """Draw a transition of a node: of its deck, or by its alias table."""
    w = c.w
    if w.only[node] >= 0:
        return np.int64(w.only[node])
    if c.decks.number[node] > 0:
        return card(c.decks, node, rng)
    first, number = w.first[node], w.first[node + 1] - w.first[node]
    u = draw(c.strata.node, node, rng) * number
    at = first + int(u)
    if u - int(u) >= w.keep[at]:
        at = w.other[at]
    return w.order[at]


@inlined
def _left_ahead(deals: Deals, v: int, end: int) -> int:
    """First touched state from v on that has transitions left, or the end."""
    found = v
    while found < end and deals.left[found] == 0:
        found = deals.ahead[found]
    while v < found:
        further = deals.ahead[v]
        deals.ahead[v] = found
        v = further
    return found


@inlined
def _next_left(deals: Deals, v: int, low: int, high: int) -> int:
    """Touched state from v on, round a range of them, that has transitions left.

    Where none has they are dealt anew; −1 where there are none at all.
    """
    found = _left_ahead(deals, v, high)
    if found == high:
        found = _left_ahead(deals, low, high)
    if found == high:
        for again in range(low, high):
            deals.left[again], deals.ahead[again] = deals.all[again], again + 1
        found = _left_ahead(deals, v, high)
    if found == high:
        found = _left_ahead(deals, low, high)
    return found if found < high else -1


@inlined
def _leaves(c: Course, deals: Deals, s: int) -> int:
    """State that a stream leaves: the one it is in, or the next one that something leaves."""
    v = c.p.state[s]
    a, b = c.d.origin_start[s * KINDS], c.d.origin_start[(s + 1) * KINDS]
    if not c.tour.closed[()]:
        looked = 0
        while deals.all[v] == 0 and looked < b - a:
            v = v + 1 if v < b - 1 else a
            looked += 1
        return v if deals.all[v] > 0 else -1
    if deals.left[v] == 0:
        v = _next_left(deals, v, a, b)
    if v >= 0:
        deals.left[v] -= 1
    return v


@inlined
def _parting(c: Course, v: int, rng: Randomness) -> int:
    """Draw the level at which a state is left; return the node of what leaves it there."""
    w, level = c.w, 0
    if w.leave[v, 0] < 1.0:
        u = draw(c.strata.leave, v, rng)
        while level < c.d.levels - 1 and u >= w.leave[v, level]:
            level += 1
    return w.node[v, level]


@inlined
def _entered(c: Course, t: int, rng: Randomness) -> int:
    """Draw the state that a random transition leads to."""
    w = c.w
    to = w.low[t]
    if w.high[t] - to > 1:
        u = draw(c.strata.entry, w.target[t], rng)
        to = between(w.entered[w.level[t] - 1], w.low[t], w.high[t], u)
    return to


@inlined
def _drawn_size(f: Features, c: int, rng: Randomness) -> int:
    """Draw a size of a class."""
    a, b = f.size_start[c], f.size_start[c + 1]
    if b - a > 1:
        u = uniform(rng)
        while f.size_share[a] <= u:
            a += 1
    return f.size[a]


@inlined
def _come_to(c: Course, s: int, t: int) -> int:
    """State that a run has come to."""
    d, v, end = c.d, c.p.state[s], c.p.end[s]
    origin = s * KINDS + c.w.kind[t]
    inside = end - d.first_lbn - d.state[v] * d.state_blocks
    if d.origin_start[origin] <= v < d.origin_start[origin + 1] and 0 <= inside < d.state_blocks:
        return v
    return state_at(d, origin, end)


@inlined
def _keep_share(tour: Tour, p: Pending, s: int, end_lbn: int) -> None:
    """End the run of a stream, or let it go on, where its random share leaves no other way.

    Runs end at the end of the space, too.
    """
    to_come = p.left[s] - 1
    at_end = tour.left[s] > 0 and p.end[s] >= end_lbn
    if p.run[s] > 0 and (at_end or tour.left[s] >= to_come):
        p.run[s] = 0
    elif p.run[s] == 0 and tour.left[s] == 0 and tour.starts[s] > 0:
        p.run[s] = max(0, to_come)


@inlined
def draw_next(c: Course, s: int, first: bool, rng: Randomness) -> None:
    """Draw the next request of a stream, but for its address.

    The first one of a stream that began in a state does what goes on there.
    """
    p, w = c.p, c.w
    if c.tour.closed[()] and not first:
        _keep_share(c.tour, p, s, c.d.end_lbn)
    goes_on, left = p.run[s] > 0, p.state[s]
    if not first:
        left = _leaves(c, c.tour.sequential if goes_on else c.tour.random, s)
    if not (first or goes_on):
        c.tour.left[s] = (c.tour.left[s] if c.tour.left[s] > 0 else c.tour.starts[s]) - 1
    if left < 0:
        node = -1 if goes_on else w.follows[p.first[s]]
    elif goes_on or (first and w.follows[left] >= 0):
        node = w.follows[left]
    else:
        node = _parting(c, left, rng)
    t = _dealt(c, node, rng) if node >= 0 else p.transition[s]
    if goes_on:
        to = _come_to(c, s, t)
    elif first:
        to = left
    else:
        to = _entered(c, t, rng) if left >= 0 else p.first[s]
    if not goes_on:
        _begin_run(c, s, to, rng)
    p.sequential[s] = goes_on
    _make_due(c, s, t, to, rng)


@inlined
def _row_left(tour: Tour, row: int) -> int:
    """Row of run lengths, or that of the other sort of runs of its state where none is left."""
    left, other = tour.runs_left, row ^ 1
    if left[row] == 0 and left[other] == 0:
        left[row], left[other] = tour.runs[row], tour.runs[other]
    if left[row] == 0 and left[other] > 0:
        row = other
    left[row] = max(0, left[row] - 1)
    return row


@inlined
def _begin_run(c: Course, s: int, v: int, rng: Randomness) -> None:
    """Draw how a run comes to its place, and its length."""
    p = c.p
    p.reuse[s] = drawn_class(c.m, v, rng)
    row = 2 * v + (1 if AGAIN <= p.reuse[s] < FRESH else 0)
    if c.tour.closed[()]:
        row = _row_left(c.tour, row)
    p.run[s] = drawn_length(c.runs, row, draw(c.strata.run, row, rng))


@inlined
def _make_due(c: Course, s: int, t: int, v: int, rng: Randomness) -> None:
    """Draw size and gap of the request that a transition makes."""
    p = c.p
    p.run[s] -= 1
    size = _drawn_size(c.f, c.w.size_class[t], rng)
    p.transition[s], p.state[s], p.size[s] = t, v, size
    p.gap[s] = c.f.pace[s] * draw_gap(c.f, t, rng)
    if p.sequential[s] == 0:
        p.blocks[s] = size // BLOCK + int(p.run[s] * c.w.further[v])
