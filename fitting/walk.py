"""Requests of a fitted state diagram, one after another: a walk of every stream at once.

Each stream walks its own chain by its own clock; the stream whose next request is due first gives
the next one. A request that goes on where the last one ended does so wherever that is; any other
starts where its device has been touched before, by the law of reuse, or at a fresh place in its
state. Addresses are chosen when a request is made, in the order of all streams.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled import uncounted
from fitting.interarrival import KNOTS
from fitting.places import (
    Addresses,
    Memory,
    Pending,
    Stretches,
    anywhere,
    choose_address,
    memory_of,
    stretches_of,
)
from fitting.request_kinds import KINDS
from fitting.tour import (
    MOST_AHEAD,
    Ahead,
    Moves,
    Strata,
    Tour,
    draw_next,
    new_ahead,
    new_strata,
    new_tour,
    run_blocks,
)
from fitting.trace_survey import BLOCK
from fitting.walk_draws import Features

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.chain import Chain
    from fitting.interarrival import GapLaws
    from fitting.trace_survey import SizeClasses
    from fitting.transition_counts import TransitionCounts

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]


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


class Walk:
    """A walk that goes on where it stopped.

    Parameters
    ----------
    counts : TransitionCounts
    kinds : array
        Kind of the request of every transition.
    chain : Chain
    laws : GapLaws
    classes : SizeClasses
    addresses : Addresses
    pace : array
        Factor of every stream's gaps.
    expected : float
        Requests to come over requests counted, which sizes batches and memory.
    rng : numpy.random.Generator
    stratified : bool
        Whether draws come in batches or independently.
    """

    def __init__(
        self,
        counts: TransitionCounts,
        kinds: IntArray,
        chain: Chain,
        laws: GapLaws,
        classes: SizeClasses,
        addresses: Addresses,
        *,
        pace: FloatArray,
        expected: float,
        rng: np.random.Generator,
        stratified: bool = True,
    ) -> None:
        streams = len(pace)
        self._rng, self._op = rng, counts.op.astype(np.uint8)
        self._diagram = stretches_of(counts, addresses, streams)
        self._moves = Moves(
            *(chain.leave, chain.node, chain.first, chain.keep, chain.other, chain.low),
            *(chain.high, chain.level, chain.entered, chain.target, chain.deck_start, chain.deck),
            *(counts.sequential, counts.op, counts.size_class, kinds),
        )
        self._features = _features(laws, classes, pace)
        self._strata = new_strata(counts, chain, expected if stratified else 0.0, rng)
        self._memory = memory_of(counts, addresses, expected)
        self._pending = _pending(streams)
        self._pending.first[:] = _first_states(counts, streams)
        self._ahead = new_ahead(streams)
        self._tour = new_tour(counts, chain, expected if stratified else 0.0, streams)
        self._share = _shares(counts, streams, expected if stratified else np.inf)
        self._pending.left[:] = self._share
        _start(
            self._diagram,
            self._moves,
            self._features,
            self._strata,
            self._pending,
            self._ahead,
            self._tour,
            counts.occupancy,
            rng,
        )

    def take(self, number: int) -> Requests:
        """Return the next requests."""
        due, lbn = np.empty(number), np.empty(number, dtype=np.int64)
        size, transition = np.empty(number, np.int64), np.empty(number, np.int64)
        stream = np.empty(number, dtype=np.int32)
        done = 0
        while done < number:
            self._pending.order[:] = np.argsort(self._pending.due, kind="stable")
            done += _walk(
                self._diagram,
                self._moves,
                self._features,
                self._strata,
                self._memory,
                self._pending,
                self._ahead,
                self._tour,
                (due[done:], stream[done:], transition[done:], lbn[done:], size[done:]),
                self._rng,
            )
            if done < number:
                self._begin_again()
        return Requests(due, stream, transition, lbn, size, self._op[transition])

    def _begin_again(self) -> None:
        """Let the streams go on, as all have made their share."""
        self._pending.left[:] = self._share
        self._pending.due[:] = self._pending.resumes


def _pending(streams: int) -> Pending:
    whole = {name: np.full(streams, -1, dtype=np.int64) for name in Pending._fields}
    times = {"due": np.full(streams, np.nan), "resumes": np.full(streams, np.inf)}
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
    if np.isinf(expected):
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


@uncounted
def _start(
    d: Stretches,
    w: Moves,
    f: Features,
    strata: Strata,
    p: Pending,
    ahead: Ahead,
    tour: Tour,
    occupancy: IntArray,
    rng: np.random.Generator,
) -> None:
    """Put every stream where it began, or in a state by its occupancy; draw its first request."""
    for s in range(len(p.due)):
        a, b = d.origin_start[s * KINDS], d.origin_start[(s + 1) * KINDS]
        total = 0
        for v in range(a, b):
            total += occupancy[v]
        u = rng.random() * total
        v = a
        while v < b - 1 and u >= occupancy[v]:
            u -= occupancy[v]
            v += 1
        if p.first[s] >= 0:
            v = p.first[s]
        p.state[s], p.due[s], p.kind[s] = v, 0.0, 0
        moves = False
        for other in range(a, b):
            moves = moves or w.leave[other, d.levels - 1] > 0
        if not moves:
            # A single request makes no transition.
            p.due[s] = np.inf
            continue
        p.end[s] = anywhere(d, v, rng)
        ahead.reach[s] = p.end[s]
        tour.begun[s] = int(rng.random() * (b - a))
        draw_next(d, w, f, strata, p, ahead, tour, s, rng)
        p.due[s] = rng.random() * ahead.gap[s, 0]


@uncounted
def _walk(
    d: Stretches,
    w: Moves,
    f: Features,
    strata: Strata,
    m: Memory,
    p: Pending,
    ahead: Ahead,
    tour: Tour,
    out: tuple[FloatArray, NDArray[np.int32], IntArray, IntArray, IntArray],
    rng: np.random.Generator,
) -> int:
    """Give the request that is due first, over and over, while there is one; return how many."""
    due, stream, transition, lbn, size = out
    streams, remembers = len(p.due), len(m.law) > 0
    heap = p.order
    for i in range(len(due)):
        s = heap[0]
        if p.due[s] == np.inf:
            return i
        at = ahead.first[s]
        t = ahead.transition[s, at]
        due[i], stream[i], transition[i], size[i] = p.due[s], s, t, ahead.size[s, at]
        goes_on, stopped = ahead.sequential[s, at], p.end[s]
        blocks, last = size[i] // BLOCK, goes_on
        if remembers and not goes_on:
            # The whole run, as far as the ring reaches, so that it finds room.
            while ahead.number[s] < MOST_AHEAD and (ahead.number[s] == 1 or last):
                draw_next(d, w, f, strata, p, ahead, tour, s, rng)
                last = ahead.sequential[s, (at + ahead.number[s] - 1) % MOST_AHEAD]
            blocks = run_blocks(ahead, s)
        lbn[i] = choose_address(
            d, m, p, s, ahead.state[s, at], size[i], blocks, goes_on, w.kind[t], rng
        )
        if lbn[i] != stopped:
            whole = ahead.number[s] == 1 or last
            ahead.reach[s] = lbn[i] + run_blocks(ahead, s) if whole else -1
        ahead.first[s] = (at + 1) % MOST_AHEAD
        ahead.number[s] -= 1
        if ahead.number[s] == 0:
            draw_next(d, w, f, strata, p, ahead, tour, s, rng)
        p.due[s] += ahead.gap[s, ahead.first[s]]
        p.left[s] -= 1
        if p.left[s] == 0:
            p.resumes[s] = p.due[s]
            p.due[s] = np.inf
        at = 0
        while 2 * at + 1 < streams:
            child = 2 * at + 1
            if child + 1 < streams and p.due[heap[child + 1]] < p.due[heap[child]]:
                child += 1
            if p.due[heap[child]] >= p.due[s]:
                break
            heap[at] = heap[child]
            at = child
        heap[at] = s
    return len(due)
