"""Generate requests of a fitted state diagram, one after another, for all streams at once.

Each stream goes through its own chain at its own pace; the stream whose next request is due first
gives the next one. A request that goes on where the last one ended does so wherever that is; any
other starts where its device has been accessed before, by the law of reuse, or at a fresh address
in its state. Addresses are chosen when a request is made, in the order of all streams.

A stream makes a run of sequential requests as long as its law says, which goes where its addresses
lead; where it ends, a random transition says where the next one starts. From a finest state that
transition is drawn in two steps: the level at which it parts, in the proportions found for that
state, and one of the random transitions recorded there. The position inside the state that it leads
to follows the random requests that came into that state at that level. Leaving and entering so,
runs start in every state as often as in the trace; with ``entry="occupancy"`` a stream leaves a
coarse state from anywhere in it alike and enters one by its own occupancy, as the hierarchy alone
has it, and the time in a state is off by as much as that loses.

A generator that makes as many requests as its trace has samples transitions and runs without
replacement, so that shares of requests are the trace's own whatever the seed. Where nothing is left
to leave a state by, it goes on from the next state that has something left.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from fitting.compiled import loops, random
from fitting.compiled.loops import Array, BoolArray, FloatArray, IntArray, jit_inner_inline
from fitting.compiled.random import DrawBatches, Randomness
from fitting.errors import FittingError
from fitting.storage import addresses, interarrival, run_lengths
from fitting.storage.reuse_distance import AGAIN, FRESH
from fitting.storage.survey import BLOCK, KINDS, Pairs, SizeClasses
from fitting.storage.transitions import TransitionCounts

# Streams that are looked through; of more there is a heap.
_FEW, _LONGEST_BATCH = 8, 2**20
ENTRIES = ("arrivals", "occupancy")


class Chain(NamedTuple):
    """Tables that lead a generator over the accessed states of every stream."""

    # A node holds the transitions that leave a state of some level at that level.
    levels: int
    departures: IntArray  # by accessed state, random transitions out of it
    leave: FloatArray  # by accessed state, cumulated share that parts at each level or above
    node: IntArray  # by accessed state and level, node of the random transitions, −1 for none
    follows: IntArray  # by accessed state, node of the sequential transitions, −1 for none
    order: IntArray  # transitions of node i are order[first[i]:first[i + 1]]
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


@loops.jit
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


@loops.jit
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
        for k in range(smalls):
            keep[small[k]] = 1.0
        for k in range(larges):
            keep[large[k]] = 1.0


class GeneratedRequests(NamedTuple):
    """Requests in the order in which the streams' own times are due."""

    due_s: FloatArray  # when a request is due (s) by the laws of inter-arrival times alone
    stream: Array
    transition: IntArray  # index into the transitions of the model
    lbn: IntArray
    size_bytes: IntArray
    op: Array


class Learnt(NamedTuple):
    """Parts of a model that a generator needs."""

    counts: TransitionCounts
    kinds: IntArray  # kind of the request of every transition
    chain: Chain
    runs: run_lengths.Runs
    laws: interarrival.GapLaws
    classes: SizeClasses
    addresses: addresses.Addresses
    pace: FloatArray  # by stream, factor of its inter-arrival times


class Features(NamedTuple):
    """Kinds, sizes and inter-arrival laws of transitions, and lengths of runs that follow."""

    kind: IntArray  # of the request that a transition makes
    size_class: IntArray
    laws: interarrival.GapLaws
    only: Array  # by node, its transition where it has one, else −1
    further: FloatArray  # by accessed state, mean blocks of the requests that go on from there
    pace: FloatArray  # by stream, factor of its inter-arrival times
    sizes: random.DiscreteLaws  # by class


class Quota(NamedTuple):
    """Transitions out of every accessed state that a generator is to make."""

    all: IntArray
    left: IntArray
    ahead: IntArray  # a later state before which none has any left


class Quotas(NamedTuple):
    """Transitions and runs left of as many as the trace has, where each is made once."""

    random: Quota
    sequential: Quota
    starts: IntArray  # by stream, all random transitions
    left: IntArray  # by stream, those left
    runs: IntArray  # by row of the accessed states, as `fit_run_lengths` has them
    runs_left: IntArray
    closed: BoolArray  # without a dimension: whether each is made once


class Tables(NamedTuple):
    """All that a generator needs to go on."""

    chain: Chain
    features: Features
    runs: random.DiscreteLaws  # of run lengths
    leave_draws: DrawBatches  # by accessed state, of levels
    run_draws: DrawBatches  # by law of run lengths
    node_draws: DrawBatches
    entry_draws: DrawBatches  # by range of states that is entered
    samples: random.Samples
    memory: addresses.AddressMemory
    pending: addresses.Pending
    quotas: Quotas


class Generator:
    """Generates the next requests, on from where it stopped; ``expected`` sizes its batches."""

    def __init__(
        self, learnt: Learnt, *, expected: float, rng: np.random.Generator, stratified: bool = True
    ) -> None:
        counts, streams = learnt.counts, len(learnt.pace)
        share = expected if stratified else 0.0
        self._random, self._op = random.new_randomness(rng), counts.op.astype(np.uint8)
        self._tables = _interleave_tables(_make_tables(learnt, expected, share, rng))
        # Requests that each stream makes before those that are done begin again.
        self._share = np.full(streams, np.iinfo(np.int64).max)
        if share > 0:
            made = np.bincount(counts.stream_of_state, counts.occupancy, streams)
            self._share = np.maximum(np.round(made * min(1.0, share)), 1).astype(np.int64)
        self._tables.pending.left[:] = self._share
        begins = _place_streams(self._tables, counts.occupancy, rng)
        _fill_requests(self._tables, _empty_columns(streams), begins, self._random)

    def take(self, number: int) -> GeneratedRequests:
        """Generate the next ``number`` requests."""
        due, stream, transition, lbn, size = found = _empty_columns(number)
        none, done = np.zeros(0, dtype=np.bool_), 0
        while done < number:
            pending = self._tables.pending
            pending.order[:] = np.argsort(pending.due, kind="stable")
            rest = tuple(column[done:] for column in found)
            done += _fill_requests(self._tables, rest, none, self._random)
            if done < number and pending.due.min() < np.inf:
                self._make_room()
            elif done < number:
                # All streams have made their share: they go on.
                pending.left[:], pending.due[:] = self._share, pending.resumes
        return GeneratedRequests(due, stream, transition, lbn, size, self._op[transition])

    def _make_room(self) -> None:
        """Enlarge the memory of accesses; one whose clock is at its limit is emptied."""
        memory = self._tables.memory
        if memory.clock.max() >= addresses.MOST_CLOCK:
            self._tables.pending.made[:] = -1
            for part in (memory.begins.used, memory.ends.used, memory.clock, memory.pieces_met):
                part[:] = 0
            accesses = memory.accesses
            accesses = addresses.new_last_access(1 << accesses.bits, accesses.devices)
        else:
            accesses = addresses.make_room_for_rows(memory.accesses, memory.clock)
        self._tables = self._tables._replace(memory=memory._replace(accesses=accesses))


def _make_tables(learnt: Learnt, expected: float, share: float, rng: np.random.Generator) -> Tables:
    """Lay out all tables that a generator draws from."""
    counts, chain, runs, streams = learnt.counts, learnt.chain, learnt.runs, len(learnt.pace)
    started, most = runs.numbers(), min(1.0, share)
    nodes = np.add.reduceat(counts.count[chain.order], chain.first[:-1])
    entered = np.bincount(chain.target, counts.count * (counts.sequential == 0))
    # Batches are as long as what was counted, or the share of it that is to come.
    visited = (chain.departures, started.ravel(), nodes, entered)
    of = (random.new_batches(np.minimum(n * most, _LONGEST_BATCH), rng) for n in visited)
    by_state, by_run, by_node, by_range = of
    draws = random.new_batches(most * started.sum(axis=1), rng)
    return Tables(
        *(chain, _build_features(learnt), run_lengths.fit_run_lengths(runs, counts.state_origin)),
        *(by_state, by_run, by_node, by_range),
        random.new_samples(chain.order, counts.count[chain.order], chain.first, share),
        addresses.new_memory(counts, runs, learnt.addresses, expected, draws),
        _new_pending(counts, streams),
        _full_quotas(counts, chain, started.ravel(), streams, closed=share >= 1.0),
    )


def _interleave_tables(c: Tables) -> Tables:
    """Copy columns that are used together to neighbouring memory, to save cache misses."""
    chain, f, q = c.chain, c.features, c.quotas
    low, high, target, level, kind, size_class, mean, shape, law = loops.interleave(
        *(chain.low, chain.high, chain.target, chain.level, f.kind, f.size_class),
        *(f.laws.mean_s, f.laws.shape, f.laws.law),
    )
    leave, node, follows, further, *rest = loops.interleave(
        *(chain.leave, chain.node, chain.follows, f.further),
        *(*q.random, *q.sequential, *c.leave_draws, *c.memory.draws),
    )
    *run, runs, runs_left = loops.interleave(*c.run_draws, q.runs, q.runs_left)
    nodes, ranges = loops.interleave(*c.node_draws), loops.interleave(*c.entry_draws)
    columns = rest[6:10], run, nodes, ranges, rest[10:]
    by_state, by_run, by_node, by_range, of_reuse = map(DrawBatches._make, columns)
    random, sequential = Quota(*rest[:3]), Quota(*rest[3:6])
    laws = interarrival.GapLaws(law, mean, shape, f.laws.quantiles)
    chain = chain._replace(leave=leave, node=node, follows=follows)
    return c._replace(
        chain=chain._replace(low=low, high=high, target=target, level=level),
        features=f._replace(kind=kind, size_class=size_class, laws=laws, further=further),
        leave_draws=by_state,
        run_draws=by_run,
        node_draws=by_node,
        entry_draws=by_range,
        memory=c.memory._replace(draws=of_reuse),
        quotas=Quotas(random, sequential, q.starts, q.left, runs, runs_left, q.closed),
    )


def _build_features(learnt: Learnt) -> Features:
    """Lay out what each transition makes, and the mean blocks of a state's sequential requests."""
    counts, chain, classes = learnt.counts, learnt.chain, learnt.classes
    only = np.where(np.diff(chain.first) == 1, chain.order[chain.first[:-1]], -1)
    pairs = zip(classes.sizes, classes.counts, strict=True)
    mean = np.array([float(s @ c) / c.sum() / BLOCK for s, c in pairs])
    node = np.repeat(np.arange(len(chain.first) - 1), np.diff(chain.first))
    number = counts.count[chain.order]
    blocks = np.bincount(node, mean[counts.size_class[chain.order]] * number)
    by_node = blocks / np.bincount(node, number)
    further = np.where(chain.follows >= 0, by_node[chain.follows], 0.0)
    shares = np.concatenate([np.cumsum(c) / c.sum() for c in classes.counts])
    start, sizes = np.cumsum([0, *map(len, classes.sizes)]), np.concatenate(classes.sizes)
    return Features(
        *(learnt.kinds, counts.size_class, learnt.laws, only.astype(np.int32), further),
        *(learnt.pace, random.DiscreteLaws(start, shares, sizes)),
    )


def _full_quotas(
    counts: TransitionCounts, chain: Chain, runs: IntArray, streams: int, *, closed: bool
) -> Quotas:
    """Lay out how many transitions and runs are left: at the start, all that were counted."""
    starts = np.bincount(counts.stream_of_state, chain.departures, streams).astype(np.int64)
    sequential = counts.departures.sum(axis=1) - chain.departures
    sequential[chain.follows < 0] = 0
    ahead = np.arange(1, len(sequential) + 1)
    random, on = (Quota(n, n.copy(), ahead.copy()) for n in (chain.departures, sequential))
    return Quotas(random, on, starts, starts.copy(), runs, runs.copy(), np.asarray(closed))


def _new_pending(counts: TransitionCounts, streams: int) -> addresses.Pending:
    """Lay out the streams' next requests, none of which is drawn yet."""
    whole = {name: np.full(streams, -1, dtype=np.int64) for name in addresses.Pending._fields}
    # The state that a stream began in was left once more than entered.
    surplus = counts.departures.sum(axis=1) - counts.arrivals.sum(axis=1)
    begun = np.flatnonzero(surplus > 0)
    whole["first"][counts.stream_of_state[begun]] = begun
    times = {"due": np.full(streams, np.nan), "resumes": np.full(streams, np.inf)}
    return addresses.Pending(**{**whole, **times, "gap": np.zeros(streams)})


def _empty_columns(number: int) -> tuple[Any, ...]:
    """Make uninitialised columns of requests: due (s), stream, transition, block, size (bytes)."""
    types = (np.float64, np.int32, np.int64, np.int64, np.int64)
    return tuple(np.empty(number, dtype=dtype) for dtype in types)


def _place_streams(c: Tables, occupancy: IntArray, rng: np.random.Generator) -> BoolArray:
    """Put each stream where it began, or in a drawn state; return which are where they began."""
    p, follows, random = c.pending, c.chain.follows, c.quotas.random.all
    begins = np.zeros(len(p.due), dtype=np.bool_)
    for s, (a, b) in enumerate(itertools.pairwise(c.memory.space.origin_start[::KINDS].tolist())):
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


@loops.jit_uncounted
def _fill_requests(c: Tables, out: tuple[Any, ...], begins: BoolArray, rng: Randomness) -> int:
    """Write requests in order of due time to ``out``; return how many there was room for."""
    due, stream, transition, lbn, size = out
    p, first = c.pending, len(begins) > 0
    for i in range(len(due)):
        s = i if first else _first_due_stream(p.order, p.due)
        if p.due[s] == np.inf:
            if first:
                continue
            return i
        if not first:
            if not addresses.has_room_for(c.memory, c.memory.space.device[s], p.size[s]):
                return i
            t = p.transition[s]
            due[i], stream[i], transition[i], size[i] = p.due[s], s, t, p.size[s]
            lbn[i] = addresses.choose_address(c.memory, p, s, c.features.kind[t], rng)
        _draw_next(c, s, first and begins[s], rng)
        if first:
            p.due[s] = random.uniform(rng) * p.gap[s]
            continue
        p.due[s] += p.gap[s]
        p.left[s] -= 1
        if p.left[s] == 0:
            p.resumes[s] = p.due[s]
            p.due[s] = np.inf
        if len(p.due) > _FEW:
            _sift_down(p.order, p.due)
    return len(due)


@jit_inner_inline
def _first_due_stream(heap: IntArray, due: FloatArray) -> int:
    """Return the stream whose next request is due first: the top of the heap, if many."""
    if len(due) > _FEW:
        return heap[0]
    found, least = 0, due[0]
    for s in range(1, len(due)):
        found = s if due[s] < least else found
        least = min(least, due[s])
    return found


@loops.jit_inline
def _sift_down(heap: IntArray, due: FloatArray) -> None:
    """Move the first stream of a heap down to its place by due time."""
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


@jit_inner_inline
def _draw_next(c: Tables, s: int, first: bool, rng: Randomness) -> None:
    """Draw a stream's next request but for its address; ``first`` goes on where it began."""
    p, follows, quotas = c.pending, c.chain.follows, c.quotas
    if quotas.closed[()] and not first:
        _adjust_run(quotas, p, s, c.memory.space.end_lbn)
    goes_on, left = p.run[s] > 0, p.state[s]
    if not first:
        left = _leave_state(c, quotas.sequential if goes_on else quotas.random, s)
    if not (first or goes_on):
        quotas.left[s] = (quotas.left[s] if quotas.left[s] > 0 else quotas.starts[s]) - 1
    if left < 0:
        node = -1 if goes_on else follows[p.first[s]]
    elif goes_on or (first and follows[left] >= 0):
        node = follows[left]
    else:
        node = _draw_node(c, left, rng)
    t = _draw_transition(c, node, rng) if node >= 0 else p.transition[s]
    if goes_on:
        to = _state_reached(c, s, t)
    elif first:
        to = left
    else:
        to = _draw_entered_state(c, t, rng) if left >= 0 else p.first[s]
    if not goes_on:
        _begin_run(c, s, to, rng)
    p.sequential[s] = goes_on
    _draw_size_and_interarrival(c, s, t, to, rng)


@jit_inner_inline
def _adjust_run(quotas: Quotas, p: addresses.Pending, s: int, end_lbn: int) -> None:
    """End or prolong a stream's sequential run, so that it makes all its random transitions."""
    to_come = p.left[s] - 1
    at_end = quotas.left[s] > 0 and p.end[s] >= end_lbn
    if p.run[s] > 0 and (at_end or quotas.left[s] >= to_come):
        p.run[s] = 0
    elif p.run[s] == 0 and quotas.left[s] == 0 and quotas.starts[s] > 0:
        p.run[s] = max(0, to_come)


@jit_inner_inline
def _leave_state(c: Tables, quota: Quota, s: int) -> int:
    """Return the state that a stream leaves, taken off its quota: its own, the next, or −1."""
    v = c.pending.state[s]
    a, b = c.memory.space.origin_start[s * KINDS], c.memory.space.origin_start[(s + 1) * KINDS]
    if not c.quotas.closed[()]:
        looked = 0
        while quota.all[v] == 0 and looked < b - a:
            v = v + 1 if v < b - 1 else a
            looked += 1
        return v if quota.all[v] > 0 else -1
    if quota.left[v] == 0:
        v = _next_state_left(quota, v, a, b)
    if v >= 0:
        quota.left[v] -= 1
    return v


@jit_inner_inline
def _next_state_left(quota: Quota, v: int, low: int, high: int) -> int:
    """Return the next state from v on, in a cycle, with transitions left; −1 for none."""
    for attempt in range(4):
        if attempt == 2:
            for again in range(low, high):
                quota.left[again], quota.ahead[again] = quota.all[again], again + 1
        found = _first_state_left(quota, low if attempt % 2 else v, high)
        if found < high:
            return found
    return -1


@jit_inner_inline
def _first_state_left(quota: Quota, v: int, end: int) -> int:
    """Return the first state in [v, end) with transitions left, or the end."""
    found = v
    while found < end and quota.left[found] == 0:
        found = quota.ahead[found]
    # The states that were passed point to it from now on.
    while v < found:
        further = quota.ahead[v]
        quota.ahead[v] = found
        v = further
    return found


@jit_inner_inline
def _draw_node(c: Tables, v: int, rng: Randomness) -> int:
    """Draw the level at which state v is left; return the node of its random transitions there."""
    w, level = c.chain, 0
    if w.leave[v, 0] < 1.0:
        u = random.draw(c.leave_draws, v, rng)
        while level < c.memory.space.levels - 1 and u >= w.leave[v, level]:
            level += 1
    return w.node[v, level]


@jit_inner_inline
def _draw_transition(c: Tables, node: int, rng: Randomness) -> int:
    """Draw a transition of a node: without replacement, or by its alias table."""
    w, only = c.chain, c.features.only[node]
    if only >= 0:
        return np.int64(only)
    if c.samples.number[node] > 0:
        return random.next_sample(c.samples, node, rng)
    first, number = w.first[node], w.first[node + 1] - w.first[node]
    u = random.draw(c.node_draws, node, rng) * number
    at = first + int(u)
    if u - int(u) >= w.keep[at]:
        at = w.other[at]
    return w.order[at]


@jit_inner_inline
def _state_reached(c: Tables, s: int, t: int) -> int:
    """Return the state in which stream ``s``'s run ended, for a request with features ``t``."""
    d, v, end = c.memory.space, c.pending.state[s], c.pending.end[s]
    origin = s * KINDS + c.features.kind[t]
    inside = end - d.first_lbn - d.state[v] * d.state_blocks
    if d.origin_start[origin] <= v < d.origin_start[origin + 1] and 0 <= inside < d.state_blocks:
        return v
    return addresses.state_at(d, origin, end)


@jit_inner_inline
def _draw_entered_state(c: Tables, t: int, rng: Randomness) -> int:
    """Draw the accessed state that a random transition leads to."""
    w = c.chain
    to = w.low[t]
    if w.high[t] - to > 1:
        u = random.draw(c.entry_draws, w.target[t], rng)
        to = random.index_at_share(w.entered[w.level[t] - 1], w.low[t], w.high[t], u)
    return to


@jit_inner_inline
def _begin_run(c: Tables, s: int, v: int, rng: Randomness) -> None:
    """Draw the reuse class of a stream's new run in state v, and its length."""
    p = c.pending
    p.reuse[s] = addresses.draw_class(c.memory, v, rng)
    row = 2 * v + (1 if AGAIN <= p.reuse[s] < FRESH else 0)
    if c.quotas.closed[()]:
        left, all_, other = c.quotas.runs_left, c.quotas.runs, row ^ 1
        if left[row] == 0 and left[other] == 0:
            left[row], left[other] = all_[row], all_[other]
        # The other sort of runs of its state where none is left.
        if left[row] == 0 and left[other] > 0:
            row = other
        left[row] = max(0, left[row] - 1)
    p.run[s] = run_lengths.draw_length(c.runs, row, random.draw(c.run_draws, row, rng))


@jit_inner_inline
def _draw_size_and_interarrival(c: Tables, s: int, t: int, v: int, rng: Randomness) -> None:
    """Draw the size and the inter-arrival time of the request that transition t makes."""
    p, f, class_ = c.pending, c.features, c.features.size_class[t]
    p.run[s] -= 1
    at = f.sizes.start[class_]
    if f.sizes.start[class_ + 1] - at > 1:
        at = random.row_at_share(f.sizes, class_, random.uniform(rng))
    size = f.sizes.value[at]
    p.transition[s], p.state[s], p.size[s] = t, v, size
    p.gap[s] = f.pace[s] * interarrival.draw_interarrival(f.laws, t, rng)
    if p.sequential[s] == 0:
        p.blocks[s] = size // BLOCK + int(p.run[s] * c.features.further[v])
