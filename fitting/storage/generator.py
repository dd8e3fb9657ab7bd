"""Requests of a fitted state diagram, one after another: a walk of every stream at once.

Each stream walks its own chain by its own clock; the stream whose next request is due first gives
the next one. A request that goes on where the last one ended does so wherever that is; any other
starts where its device has been touched before, by the law of reuse, or at a fresh place in its
state. Addresses are chosen when a request is made, in the order of all streams.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled.loops import inlined, side_by_side, uncounted
from fitting.compiled.random import randomness, uniform
from fitting.storage.addresses import (
    Addresses,
    Pending,
    choose_address,
    emptied,
    holds_more,
    memory_of,
    stretches_of,
)
from fitting.storage.diagram import KINDS
from fitting.storage.interarrival import KNOTS
from fitting.storage.last_access import MOST_CLOCK, roomier
from fitting.storage.quotas import Course, Deals, Moves, Strata, draw_next, new_strata, new_tour
from fitting.storage.run_lengths import run_lengths
from fitting.storage.stratified import Batches, Features, new_decks
from fitting.storage.survey import BLOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.compiled.random import Randomness
    from fitting.storage.chain import Chain
    from fitting.storage.interarrival import GapLaws
    from fitting.storage.run_lengths import Runs
    from fitting.storage.survey import SizeClasses
    from fitting.storage.transitions import TransitionCounts

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]
    _Out = tuple[FloatArray, NDArray[np.int32], IntArray, IntArray, IntArray]


# Streams that are looked through; of more there is a heap.
_FEW = 8


class Requests(NamedTuple):
    """Requests in the order of the streams' own clocks.

    Parameters
    ----------
    due_s : array
        When a request is due by the laws of gaps alone (s).
    stream, transition : array
        Indices into the streams and transitions of the model.
    lbn, size_bytes, op : array
    """

    due_s: FloatArray
    stream: NDArray[np.int32]
    transition: IntArray
    lbn: IntArray
    size_bytes: IntArray
    op: NDArray[np.uint8]


class Learnt(NamedTuple):
    """What a walk goes by.

    Parameters
    ----------
    counts : TransitionCounts
    kinds : array
        Kind of the request of every transition.
    chain : Chain
    runs : Runs
    laws : GapLaws
    classes : SizeClasses
    addresses : Addresses
    pace : array
        Factor of every stream's gaps.
    """

    counts: TransitionCounts
    kinds: IntArray
    chain: Chain
    runs: Runs
    laws: GapLaws
    classes: SizeClasses
    addresses: Addresses
    pace: FloatArray


class Walk:
    """A walk that goes on where it stopped.

    Parameters
    ----------
    learnt : Learnt
    expected : float
        Requests to come over requests counted, which sizes batches and memory.
    rng : numpy.random.Generator
    stratified : bool
        Whether draws come in batches or independently.
    """

    def __init__(
        self,
        learnt: Learnt,
        *,
        expected: float,
        rng: np.random.Generator,
        stratified: bool = True,
    ) -> None:
        counts, streams = learnt.counts, len(learnt.pace)
        share = expected if stratified else 0.0
        self._random, self._op = randomness(rng), counts.op.astype(np.uint8)
        self._course = _course(learnt, expected, share, rng)
        self._share = _shares(counts, streams, share)
        pending = self._course.p
        pending.first[:] = _first_states(counts, streams)
        pending.left[:] = self._share
        begins = _start(self._course, counts.occupancy, rng)
        _walk(self._course, _nothing(streams), begins, self._random)

    def take(self, number: int) -> Requests:
        """Return the next requests."""
        due, stream, transition, lbn, size = found = _nothing(number)
        none = np.zeros(0, dtype=np.bool_)
        done = 0
        while done < number:
            pending = self._course.p
            pending.order[:] = np.argsort(pending.due, kind="stable")
            out = due[done:], stream[done:], transition[done:], lbn[done:], size[done:]
            done += _walk(self._course, out, none, self._random)
            if done < number and pending.due.min() < np.inf:
                self._have_room()
            elif done < number:
                self._begin_again()
        return Requests(*found[:5], self._op[transition])

    def _have_room(self) -> None:
        """Have room in memory; after some billions of requests it begins anew."""
        course = self._course
        if course.m.clock.max() >= MOST_CLOCK:
            course.p.made[:] = -1
            self._course = course._replace(m=emptied(course.m))
        else:
            marks = roomier(course.m.marks, course.m.clock)
            self._course = course._replace(m=course.m._replace(marks=marks))

    def _begin_again(self) -> None:
        """Let the streams go on, as all have made their share."""
        pending = self._course.p
        pending.left[:] = self._share
        pending.due[:] = pending.resumes


def _course(learnt: Learnt, expected: float, share: float, rng: np.random.Generator) -> Course:
    """Lay out all that a walk needs."""
    counts, chain, runs, streams = learnt.counts, learnt.chain, learnt.runs, len(learnt.pace)
    started = runs.started()
    course = Course(
        stretches_of(counts, runs, learnt.addresses, streams),
        Moves(
            *(chain.leave, chain.node, chain.follows, chain.order, chain.first, chain.keep),
            *(chain.other, chain.low, chain.high, chain.level, chain.entered, chain.target),
            *(_only(chain), counts.size_class, learnt.kinds),
            _further(counts, chain, learnt.classes),
        ),
        _features(learnt.laws, learnt.classes, learnt.pace),
        run_lengths(runs, counts.state_origin),
        new_strata(counts, chain, started.ravel(), share, rng),
        new_decks(chain.order, counts.count[chain.order], chain.first, share),
        memory_of(counts, started.sum(axis=1), learnt.addresses, expected, share, rng),
        _pending(streams),
        new_tour(counts, chain, started.ravel(), streams, closed=share >= 1.0),
    )
    return _by_transition(_by_state(course))


def _by_transition(c: Course) -> Course:
    """Lay what is known of a transition side by side."""
    moves = {n: getattr(c.w, n) for n in ("low", "high", "target", "level", "kind", "size_class")}
    laws = {n: getattr(c.f, n) for n in ("mean", "shape", "law")}
    held = side_by_side(*moves.values(), *laws.values())
    w = c.w._replace(**dict(zip(moves, held, strict=False)))
    return c._replace(w=w, f=c.f._replace(**dict(zip(laws, held[len(moves) :], strict=True))))


def _by_state(c: Course) -> Course:
    """Lay what is used of a touched state side by side, of a run from there, and of a node."""
    random, sequential, strata = c.tour.random, c.tour.sequential, c.strata
    leave, node, follows, further, *rest = side_by_side(
        *(c.w.leave, c.w.node, c.w.follows, c.w.further),
        *(*random, *sequential, *strata.leave, *c.m.draws),
    )
    made, length, bits, key, all_, left = side_by_side(*strata.run, c.tour.runs, c.tour.runs_left)
    deals, draws = (
        [Deals(*rest[k : k + 3]) for k in (0, 3)],
        [Batches(*rest[k : k + 4]) for k in (6, 10)],
    )
    batches = draws[0], Batches(made, length, bits, key), Batches(*side_by_side(*strata.node))
    return c._replace(
        w=c.w._replace(leave=leave, node=node, follows=follows, further=further),
        strata=Strata(*batches, Batches(*side_by_side(*strata.entry))),
        m=c.m._replace(draws=draws[1]),
        tour=c.tour._replace(random=deals[0], sequential=deals[1], runs=all_, runs_left=left),
    )


def _only(chain: Chain) -> NDArray[np.int32]:
    """Transition of every node that has one."""
    return np.where(np.diff(chain.first) == 1, chain.order[chain.first[:-1]], -1).astype(np.int32)


def _further(counts: TransitionCounts, chain: Chain, classes: SizeClasses) -> FloatArray:
    """Mean blocks of the requests that go on from every touched state."""
    pairs = zip(classes.sizes, classes.counts, strict=True)
    mean = np.array([float(s @ c) / c.sum() / BLOCK for s, c in pairs])
    node = np.repeat(np.arange(len(chain.first) - 1), np.diff(chain.first))
    number = counts.count[chain.order]
    blocks = np.bincount(node, mean[counts.size_class[chain.order]] * number)
    by_node = blocks / np.bincount(node, number)
    return np.where(chain.follows >= 0, by_node[chain.follows], 0.0)


def _pending(streams: int) -> Pending:
    whole = {name: np.full(streams, -1, dtype=np.int64) for name in Pending._fields}
    times = {"due": np.full(streams, np.nan), "resumes": np.full(streams, np.inf)}
    times["gap"] = np.zeros(streams)
    return Pending(**{**whole, **times})


def _first_states(counts: TransitionCounts, streams: int) -> IntArray:
    """Touched state that each stream began in: left once more than entered; −1 for none."""
    surplus = counts.departures.sum(axis=1) - counts.arrivals.sum(axis=1)
    begun = np.flatnonzero(surplus > 0)
    first = np.full(streams, -1, dtype=np.int64)
    first[counts.stream_of_state[begun]] = begun
    return first


def _shares(counts: TransitionCounts, streams: int, expected: float) -> IntArray:
    """Requests that each stream makes before those that are done begin again."""
    if expected == 0:
        return np.full(streams, np.iinfo(np.int64).max)
    made = np.bincount(counts.stream_of_state, counts.occupancy, streams)
    return np.maximum(np.round(made * min(1.0, expected)), 1).astype(np.int64)


def _features(laws: GapLaws, classes: SizeClasses, pace: FloatArray) -> Features:
    number = np.array([len(s) for s in classes.sizes])
    shares = [np.cumsum(c) / c.sum() for c in classes.counts]
    return Features(
        np.concatenate([[0], np.cumsum(number)]),
        np.concatenate(classes.sizes),
        np.concatenate(shares),
        laws.law,
        laws.mean_s,
        laws.shape,
        laws.quantiles if len(laws.quantiles) else np.ones((1, len(KNOTS))),
        KNOTS,
        pace,
    )


def _nothing(number: int) -> _Out:
    """Room for requests."""
    whole = [np.empty(number, dtype=np.int64) for _ in range(3)]
    return np.empty(number), np.empty(number, dtype=np.int32), whole[0], whole[1], whole[2]


def _start(c: Course, occupancy: IntArray, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Put every stream where it began, or in a state by its occupancy; return which began there."""
    d, p, follows, random = c.d, c.p, c.w.follows, c.tour.random.all
    begins = np.zeros(len(p.due), dtype=np.bool_)
    for s, (a, b) in enumerate(itertools.pairwise(d.origin_start[::KINDS].tolist())):
        v, on = int(p.first[s]), a + np.flatnonzero(follows[a:b] >= 0)
        p.due[s], p.kind[s], p.run[s], p.end[s] = 0.0, 0, 0, -1
        if not len(on) and not random[a:b].any():
            # A single request makes no transition.
            p.due[s] = np.inf
            continue
        begins[s] = v >= 0 and (follows[v] >= 0 or random[v] > 0)
        if v < 0 or follows[v] < 0:
            p.first[s] = on[0] if len(on) else -1
        visited = occupancy[a:b]
        p.state[s] = v if begins[s] else a + rng.choice(b - a, p=visited / visited.sum())
    return begins


@uncounted
def _walk(c: Course, out: _Out, begins: NDArray[np.bool_], rng: Randomness) -> int:
    """Give the request that is due first, over and over, while there is one; return how many.

    Where memory has no room for another, it stops, too. Given which streams begin, it draws their
    first requests instead.
    """
    due, stream, transition, lbn, size = out
    p, first = c.p, len(begins) > 0
    for i in range(len(due)):
        s = i if first else _soonest(p.order, p.due)
        if p.due[s] == np.inf:
            if first:
                continue
            return i
        if not first:
            if not holds_more(c.m, c.d.device[s], p.size[s]):
                return i
            t = p.transition[s]
            due[i], stream[i], transition[i], size[i] = p.due[s], s, t, p.size[s]
            lbn[i] = choose_address(c.d, c.m, p, s, c.w.kind[t], rng)
        draw_next(c, s, first and begins[s], rng)
        if first:
            p.due[s] = uniform(rng) * p.gap[s]
            continue
        p.due[s] += p.gap[s]
        p.left[s] -= 1
        if p.left[s] == 0:
            p.resumes[s] = p.due[s]
            p.due[s] = np.inf
        if len(p.due) > _FEW:
            _sift(p.order, p.due)
    return len(due)


@inlined
def _soonest(heap: IntArray, due: FloatArray) -> int:
    """Stream that is due first: of few that which a look at all finds, without a branch."""
    if len(due) > _FEW:
        return heap[0]
    found, least = 0, due[0]
    for s in range(1, len(due)):
        found = s if due[s] < least else found
        least = min(least, due[s])
    return found


@inlined
def _sift(heap: IntArray, due: FloatArray) -> None:
    """Move the first stream of a heap down to where it is due."""
    s, streams, at = heap[0], len(heap), 0
    while 2 * at + 1 < streams:
        child = 2 * at + 1
        if child + 1 < streams and due[heap[child + 1]] < due[heap[child]]:
            child += 1
        if due[heap[child]] >= due[s]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = s
