"""What comes after what in a walk: transitions dealt out as they were counted.

A walk that is as long as its trace is a tour: it leaves every state as often as the trace did and
makes each transition as often, so that shares of requests are the trace's own whatever the seed.
Chance alone would bring it too early to the state that the trace ended in; there it goes on in a
state that it has yet to leave, and no state is left for good before all its transitions to itself
are made.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled import inlined
from fitting.places import Pending, Stretches, state_at
from fitting.request_kinds import KINDS
from fitting.trace_survey import BLOCK
from fitting.walk_draws import Batches, Features, between, draw, draw_gap, new_batches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.chain import Chain
    from fitting.transition_counts import TransitionCounts

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

_LONGEST_BATCH = 2**20
# Requests of a run that are drawn before the first of them has its place, at most.
MOST_AHEAD = 64
# Requests of which one may begin anew what is left of a state far from where its stream is.
_ANEW = 1000


class Moves(NamedTuple):
    """What may come after what; as `chain.Chain` has it."""

    leave: FloatArray
    node: IntArray
    first: IntArray
    keep: FloatArray
    other: IntArray
    low: IntArray
    high: IntArray
    level: IntArray
    entered: FloatArray
    target: IntArray
    deck_start: IntArray
    deck: NDArray[np.int32]
    sequential: IntArray
    op: IntArray
    size_class: IntArray
    kind: IntArray


class Strata(NamedTuple):
    """Batches by touched state, by node of the chain, and by range of states that is entered."""

    leave: Batches
    node: Batches
    entry: Batches


class Tour(NamedTuple):
    """What is left to be dealt out: a walk as long as its trace makes every transition of it.

    Where a stream has come to its last state too early, it goes on in a state that it has yet to
    leave. A state is not left for good before all its transitions to itself are made.

    Parameters
    ----------
    departures, left : array
        By touched state: how often it was left, and how often it is to be left still.
    exits, exits_left : array
        By touched state: how often it was left for another one, and is to be still.
    last_exit, last_to : array
        By touched state: transition that leaves it for good, where it was drawn too early, or −1;
        and the state that it leads to.
    begun, looked : array
        By stream: state, counted from its first, from which on states were looked through, and
        how many were.
    drawn, anew : array
        By stream: requests, and those of them that were to go on from a far place and began anew.
    closed : array
        Whether the walk is that long, of no dimension.
    """

    departures: IntArray
    left: IntArray
    exits: IntArray
    exits_left: IntArray
    last_exit: IntArray
    last_to: IntArray
    begun: IntArray
    looked: IntArray
    drawn: IntArray
    anew: IntArray
    closed: NDArray[np.bool_]


class Ahead(NamedTuple):
    """Requests drawn of each stream but not made yet: rings of rows, from ``first`` on.

    ``sequential`` is as it was drawn but for runs that begin anew elsewhere; ``reach`` is the block
    after the last of them, −1 while its run has no place yet.
    """

    first: IntArray
    number: IntArray
    transition: IntArray
    state: IntArray
    size: IntArray
    sequential: IntArray
    gap: FloatArray
    reach: IntArray


def new_strata(
    counts: TransitionCounts, chain: Chain, expected: float, rng: np.random.Generator
) -> Strata:
    """Make batches as long as what was counted, or as what is to come where that is less."""
    share = min(1.0, expected)
    nodes = np.add.reduceat(counts.count, chain.first[:-1])
    entered = np.bincount(chain.target, counts.count)
    visited = (counts.departures.sum(axis=1), nodes, entered)
    return Strata(*(new_batches(np.minimum(n * share, _LONGEST_BATCH), rng) for n in visited))


def new_tour(counts: TransitionCounts, chain: Chain, expected: float, streams: int) -> Tour:
    """Begin a tour, of which so many times the requests counted are expected."""
    departures = counts.departures.sum(axis=1)
    exits = departures - _returns(counts, chain)
    nothing = np.full_like(exits, -1)
    by_stream = np.zeros((4, streams), dtype=np.int64)
    closed = np.asarray(expected >= 1.0)
    return Tour(
        *(departures, departures.copy(), exits, exits.copy(), nothing, nothing.copy()),
        *(*by_stream, closed),
    )


def _returns(counts: TransitionCounts, chain: Chain) -> IntArray:
    """Transitions of each touched state to itself."""
    pairs = counts.diagram.pairs(counts.pair)
    states, finest = counts.diagram.states, counts.diagram.levels
    alone = np.flatnonzero((pairs.level == finest) & (chain.high == chain.low + 1))
    to = chain.low[alone]
    back = counts.origin[alone] * states + pairs.source[alone] == (
        counts.state_origin[to] * states + counts.state[to]
    )
    found = np.bincount(to[back], counts.count[alone[back]], len(counts.state))
    return np.asarray(found.astype(np.int64))


def new_ahead(streams: int) -> Ahead:
    """Make empty rings."""
    first, number = np.zeros((2, streams), dtype=np.int64)
    transition, state, size, sequential = np.zeros((4, streams, MOST_AHEAD), dtype=np.int64)
    gap, reach = np.zeros((streams, MOST_AHEAD)), np.full(streams, -1, dtype=np.int64)
    return Ahead(first, number, transition, state, size, sequential, gap, reach)


@inlined
def _dealt(w: Moves, node: int, u: float) -> int:
    """Transition that a share u falls on: of the node's deck, or by its alias table."""
    cards = w.deck_start[node + 1] - w.deck_start[node]
    if cards > 0:
        return w.deck[w.deck_start[node] + int(u * cards)]
    first, number = w.first[node], w.first[node + 1] - w.first[node]
    t = first + int(u * number)
    if u * number - int(u * number) >= w.keep[t]:
        t = w.other[t]
    return t


@inlined
def _leaves(
    d: Stretches, w: Moves, p: Pending, tour: Tour, s: int, rng: np.random.Generator
) -> int:
    """State that a stream leaves: the one it is in, or another where nothing is left to leave."""
    v = p.state[s]
    if not tour.closed[()]:
        # Nothing leaves here, as the trace ended here: begin again.
        return v if w.leave[v, d.levels - 1] > 0 else p.first[s]
    if tour.left[v] == 0:
        a, states = d.origin_start[s * KINDS], d.origin_start[(s + 1) * KINDS]
        states -= a
        v = a + (tour.begun[s] + tour.looked[s]) % states
        while tour.looked[s] < states and tour.left[v] == 0:
            tour.looked[s] += 1
            v = a + (tour.begun[s] + tour.looked[s]) % states
        if tour.looked[s] == states:
            _deal_again(tour, s, a, states, rng)
            v = p.first[s] if p.first[s] >= 0 else a
            while tour.left[v] == 0:
                v += 1
    tour.left[v] -= 1
    return v


@inlined
def _deal_again(tour: Tour, s: int, a: int, states: int, rng: np.random.Generator) -> None:
    """Begin the tour of a stream anew."""
    for v in range(a, a + states):
        tour.left[v] = tour.departures[v]
        tour.exits_left[v] = tour.exits[v]
    tour.begun[s], tour.looked[s] = int(rng.random() * states), 0


@inlined
def _parted(
    d: Stretches, w: Moves, strata: Strata, v: int, rng: np.random.Generator
) -> tuple[int, int]:
    """Draw a transition from a state, and the state that it leads to."""
    u = draw(strata.leave, v, rng)
    level = 0
    while level < d.levels - 1 and u >= w.leave[v, level]:
        level += 1
    node = w.node[v, level]
    t = _dealt(w, node, draw(strata.node, node, rng))
    to = w.low[t]
    if w.high[t] - to > 1:
        u = draw(strata.entry, w.target[t], rng)
        to = between(w.entered[w.level[t] - 1], w.low[t], w.high[t], u)
    return t, to


@inlined
def _dealt_out(
    d: Stretches, w: Moves, strata: Strata, tour: Tour, v: int, rng: np.random.Generator
) -> tuple[int, int]:
    """Draw as `_parted` does, but no last exit before it is time for it."""
    t, to = tour.last_exit[v], tour.last_to[v]
    if t >= 0 and tour.left[v] == 0:
        tour.last_exit[v] = -1
        return t, to
    t, to = _parted(d, w, strata, v, rng)
    if to != v and tour.closed[()]:
        tour.exits_left[v] -= 1
        if tour.exits_left[v] == 0 and tour.left[v] > 0:
            tour.last_exit[v], tour.last_to[v] = t, to
            t, to = _parted(d, w, strata, v, rng)
    return t, to


@inlined
def _drawn_size(f: Features, c: int, rng: np.random.Generator) -> int:
    """Draw a size of a class."""
    a, b = f.size_start[c], f.size_start[c + 1]
    if b - a > 1:
        u = rng.random()
        while f.size_share[a] <= u:
            a += 1
    return f.size[a]


@inlined
def draw_next(
    d: Stretches,
    w: Moves,
    f: Features,
    strata: Strata,
    p: Pending,
    ahead: Ahead,
    tour: Tour,
    s: int,
    rng: np.random.Generator,
) -> None:
    """Draw one more request of a stream, but for its address."""
    v = _leaves(d, w, p, tour, s, rng)
    t, to = _dealt_out(d, w, strata, tour, v, rng)
    size = _drawn_size(f, w.size_class[t], rng)
    at = (ahead.first[s] + ahead.number[s]) % MOST_AHEAD
    ahead.transition[s, at], ahead.state[s, at], ahead.size[s, at] = t, to, size
    ahead.gap[s, at] = f.pace[s] * draw_gap(f, t, rng)
    ahead.number[s] += 1
    tour.drawn[s] += 1
    sequential, reach = w.sequential[t], ahead.reach[s]
    strays = abs((reach - d.first_lbn) // d.state_blocks - d.state[to]) > d.astray
    if sequential and strays and 0 <= reach < d.end_lbn:
        if v != p.state[s] and _ANEW * tour.anew[s] < tour.drawn[s]:
            sequential = 0
            tour.anew[s] += 1
        else:
            to = state_at(d, s * KINDS + w.kind[t], reach)
    ahead.sequential[s, at] = sequential
    ahead.reach[s] = reach + size // BLOCK if sequential and reach >= 0 else -1
    p.state[s] = to


@inlined
def run_blocks(ahead: Ahead, s: int) -> int:
    """Blocks of the next request of a stream and of those drawn that go on from it."""
    total = 0
    for k in range(ahead.number[s]):
        at = (ahead.first[s] + k) % MOST_AHEAD
        if k > 0 and not ahead.sequential[s, at]:
            break
        total += ahead.size[s, at] // BLOCK
    return total
