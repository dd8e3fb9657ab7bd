"""Second pass over a block trace: transitions counted, with the moments of their gaps.

A transition is what one request of a stream does after the one before it: a pair of states, the
operation, whether it starts where the other ended, and the class of its size. Everything that a
law of its inter-arrival times needs is a sum, so that batches and threads can be added.

Batches are taken in short parts, and each part in compiled loops that do one thing each. What one
hands to the next stays in the processor's cache, and a short loop has many requests to memory
under way at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fitting.compiled import hashing, loops
from fitting.compiled.loops import Array, Columns, CountArray, FloatArray, IntArray, ShortArray
from fitting.storage import survey as sv
from fitting.storage.survey import BLOCK, KINDS, Diagram, SizeClasses, Survey

OPERATIONS = 4
# Sums over the gaps g of a transition, in columns.
GAPS, SUM, SQUARES, LOGS, LOG_SQUARES, G_LOGS, SMALLEST, LARGEST = range(8)
SUMS = 8
# Histograms of gaps: classes an octave, and the exponent of the first.
PER_OCTAVE = 4
LOWEST_OCTAVE, _OCTAVES = -30, 50
HISTOGRAM_CLASSES = PER_OCTAVE * _OCTAVES
# Bounds (s) of the classes.
INTERARRIVAL_BOUNDS = np.exp2(np.arange(HISTOGRAM_CLASSES + 1) / PER_OCTAVE + LOWEST_OCTAVE)
# A transition's gaps are kept in classes from here on, and those of so many transitions at most.
HISTOGRAM_FROM = 32
MOST_HISTOGRAMS = 65_536
# Requests in a part.
_PART = 1 << 14
_NONE = -1
# Beyond all addresses.
_END = 2**62
_PER_NATURAL = 1 / np.log(2)
_KIND_BITS, _PRIOR = 2, 0.5


@dataclass(frozen=True)
class TransitionCounts:
    """Transitions of a trace, one an element, in the order of origin and pair."""

    diagram: Diagram
    origin: IntArray  # stream and kind of the request before: stream · kinds + kind
    pair: IntArray  # code of the pair of states
    op: IntArray
    sequential: IntArray  # whether it starts where the request before it ended
    size_class: IntArray
    sums: FloatArray  # of gaps: number, Σg, Σg², Σln g, Σln² g, Σg·ln g, least, largest
    histogram: CountArray  # by classes of ln g; 0 where there were too few gaps to keep
    # From here on of the accessed states, in the order of origin and state.
    state_origin: IntArray
    state: IntArray  # finest state
    occupancy: IntArray  # requests
    lowest: IntArray  # first and last block at which one started
    highest: IntArray
    departures: IntArray  # by level, transitions out of the state that part at it
    arrivals: IntArray  # by level, transitions into the state

    @property
    def stream(self) -> IntArray:
        """Index of the stream of every transition."""
        return self.origin // KINDS

    @property
    def stream_of_state(self) -> IntArray:
        """Index of the stream of every accessed state."""
        return self.state_origin // KINDS

    @property
    def count(self) -> IntArray:
        """How many times each transition was counted."""
        return self.sums[:, GAPS].astype(np.int64)

    def coarser(self) -> TransitionCounts:
        """Return the counts of the same trace for a diagram with one level less."""
        diagram, k = self.diagram.coarser(), self.diagram.fan_out
        levels = np.arange(diagram.levels)
        pair = self.diagram.coarser_codes(self.pair)
        keys = (self.origin, pair, self.op, self.sequential, self.size_class)
        group, first = _number_groups(*keys)
        origin, pair, op, sequential, size_class = (key[first] for key in keys)
        states = _number_groups(self.state_origin, self.state // k)
        sums = reduce_groups(np.add, self.sums, group, first)
        for column, which in ((SMALLEST, np.minimum), (LARGEST, np.maximum)):
            sums[:, column] = reduce_groups(which, self.sums[:, column], group, first)
        # The finest level and the one above it become one.
        departures, arrivals = (
            np.add.reduceat(reduce_groups(np.add, by_level, *states), levels, axis=1)
            for by_level in (self.departures, self.arrivals)
        )
        return TransitionCounts(
            diagram,
            *(origin, pair, op, sequential, size_class),
            *(sums, reduce_groups(np.add, self.histogram, group, first)),
            *(self.state_origin[states[1]], self.state[states[1]] // k),
            reduce_groups(np.add, self.occupancy, *states),
            reduce_groups(np.minimum, self.lowest, *states),
            reduce_groups(np.maximum, self.highest, *states),
            *(departures, arrivals),
        )


def _number_groups(*keys: IntArray) -> tuple[IntArray, IntArray]:
    """Number rows by their sorted keys; return group numbers and each group's first row."""
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), dtype=bool)
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(new)
    return group, order[np.flatnonzero(np.r_[True, new[1:]])]


def reduce_groups(which: np.ufunc, rows: Array, group: IntArray, first: IntArray) -> Array:
    """Reduce the rows of each group to one by a ufunc (add, minimum, maximum)."""
    reduced: Array = rows[first]
    others = np.delete(np.arange(len(rows)), first)
    which.at(reduced, group[others], rows[others])
    return reduced


class Seen(NamedTuple):
    """Stream and accessed state of requests, and whether they go on where the last one ended."""

    stream: ShortArray
    row: IntArray  # of the accessed state
    sequential: loops.BoolArray


class _Space(NamedTuple):
    """Numbers of a diagram and a survey that the loops need."""

    levels: int
    fan_out: int
    first_lbn: int
    state_blocks: int
    states: int
    pair_codes: int
    size_classes: int
    devices: int
    size_unit: int


class _Steps(NamedTuple):
    """Requests of a part, and their transitions, which are at most as many."""

    state: ShortArray
    origin: ShortArray
    feature: ShortArray  # operation and class of size
    before: ShortArray  # row of the accessed state before, −1 for none
    level: ShortArray  # at which the two states part
    code: IntArray  # of the transition
    gap: FloatArray


class _Tally(NamedTuple):
    sums: FloatArray  # by transition, over its gaps
    row: ShortArray  # by transition, row of its histogram; row 0 is that of all others
    histogram: CountArray
    used: IntArray  # one number: rows of the histograms in use


class TransitionCounter:
    """Takes a surveyed trace batch by batch, sorted by arrival."""

    def __init__(self, diagram: Diagram, survey: Survey, classes: SizeClasses) -> None:
        streams, levels = len(survey.streams), diagram.levels
        self.diagram, self._classes = diagram, len(classes)
        unit = BLOCK if not (survey.sizes % BLOCK).any() else 1
        devices = int(survey.devices.max()) + 1
        self._space = _Space(
            *(levels, diagram.fan_out, diagram.first_lbn, diagram.state_blocks),
            *(diagram.states, diagram.pair_codes, len(classes), devices, unit),
        )
        keys = survey.streams * devices + survey.devices
        self._stream = hashing.build_table(keys, np.arange(streams))
        self._size = _classes_and_kinds(survey, classes, unit)
        # A gap of 0 has no logarithm: below the clock's resolution it counts as half a tick.
        self._least_gap = survey.tick_s / 2
        # Last request of every stream: row of its accessed state, state, end, origin; and its time.
        self._last = np.full((streams, 4), _NONE, dtype=np.int64), np.zeros(streams)
        origins = streams * KINDS
        self._states = hashing.new_codes(origins * diagram.states)
        features = OPERATIONS * 2 * len(classes)
        self._transitions = hashing.new_codes(origins * diagram.pair_codes * features)
        # By accessed state: first requests of streams, how far its ends are from the far ends of
        # any space, partings by level out and in.
        self._accessed = np.zeros((0, 3 + 2 * levels), dtype=np.int64)
        histogram, used = np.zeros((1, HISTOGRAM_CLASSES), np.uint32), np.ones(1, np.int64)
        self._tally = _Tally(np.zeros((0, SUMS)), np.zeros(0, np.int32), histogram, used)
        state, origin, feature, before, level = np.zeros((5, _PART), np.int32)
        code, gap = np.zeros(_PART, np.int64), np.zeros(_PART)
        self._steps = _Steps(state, origin, feature, before, level, code, gap)

    def add(self, *columns: Array) -> Seen:
        """Count requests by columns: time (s), stream, device, block, size (bytes), operation."""
        n, columns = len(columns[0]), loops.read_only(*columns)
        seen = Seen(np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.bool_))
        for start in range(0, n, _PART):
            part = slice(start, start + _PART)
            here = Seen(seen.stream[part], seen.row[part], seen.sequential[part])
            self._count_part([column[part] for column in columns], here)
        return seen

    def _count_part(self, columns: list[Array], seen: Seen) -> None:
        """Count at most `_PART` requests, and fill in what was seen of them."""
        self._make_room(len(seen.row))
        codes = self._stream, self._size, self._states
        steps, (time_s, _, _, lbn, size_bytes, _) = self._steps, columns
        _locate(tuple(columns[1:]), self._space, codes, seen, steps)
        found = _follow((time_s, lbn, size_bytes), self._space, seen, steps, self._last)
        visits = lbn, seen.row, steps.before, steps.level
        _note_states(visits, self._space.levels, self._accessed)
        transition = np.empty(found, dtype=np.int64)
        _give_codes(steps.code, self._transitions, transition)
        logs = np.log(np.maximum(steps.gap[:found], self._least_gap))
        sums, row, histogram, used = self._tally
        _add_interarrivals(transition, steps.gap, logs, (sums, row, used))
        _count_log_interarrivals(transition, logs, histogram)

    def _make_room(self, more: int) -> None:
        """Enlarge the tables for ``more`` requests, whatever they are."""
        self._states = hashing.ensure_room(self._states, more)
        self._transitions = hashing.ensure_room(self._transitions, more)
        self._accessed = hashing.grow_rows(self._accessed, int(self._states.used[0]), more)
        transitions, (histogram, used) = int(self._transitions.used[0]), self._tally[2:]
        sums, row = (hashing.grow_rows(column, transitions, more) for column in self._tally[:2])
        most = min(more, 1 + MOST_HISTOGRAMS - int(used[0]))
        histogram = hashing.grow_rows(histogram, int(used[0]), most)
        self._tally = _Tally(sums, row, histogram, used)

    def rows(self) -> IntArray:
        """Rows of the accessed states, as `Seen` has them, in the order of the counts."""
        return hashing.sorted_items(self._states)[1] - 1

    def counts(self) -> TransitionCounts:
        """Return the transitions and states that were counted."""
        key, transition = hashing.sorted_items(self._transitions)
        rest, size_class = np.divmod(key, self._classes)
        rest, sequential = np.divmod(rest, 2)
        rest, op = np.divmod(rest, OPERATIONS)
        origin, pair = np.divmod(rest, self.diagram.pair_codes)
        row = self._tally.row[transition - 1]
        kept = np.flatnonzero(row)
        histogram = np.zeros((len(row), HISTOGRAM_CLASSES), dtype=np.uint32)
        histogram[kept] = self._tally.histogram[row[kept]]
        cell, state_row = hashing.sorted_items(self._states)
        state_origin, state = np.divmod(cell, self.diagram.states)
        accessed = self._accessed[state_row - 1]
        departures, arrivals = np.split(accessed[:, 3:], 2, axis=1)
        return TransitionCounts(
            self.diagram,
            *(origin, pair, op, sequential, size_class),
            *(self._tally.sums[transition - 1], histogram, state_origin, state),
            occupancy=accessed[:, 0] + arrivals.sum(axis=1),
            lowest=_END - accessed[:, 1],
            highest=accessed[:, 2] - 1,
            departures=departures,
            arrivals=arrivals,
        )


def _classes_and_kinds(survey: Survey, classes: SizeClasses, unit: int) -> hashing.HashTable:
    """Map every size, in units, to its class and kind, packed in one number."""
    sizes = np.concatenate(classes.sizes)
    class_ = np.repeat(np.arange(len(classes)), [len(s) for s in classes.sizes])
    kinds = sv.request_kind(0, sizes, survey.piece)
    return hashing.build_table(sizes // unit, class_ << _KIND_BITS | kinds)


@loops.jit_uncounted
def _locate(columns: Columns, space: _Space, codes: Columns, seen: Seen, steps: _Steps) -> None:
    """Fill in stream, accessed state, kind and size class of every request."""
    stream, device, lbn, size_bytes, op = columns
    streams, sizes, states = codes  # index by stream and device, class and kind by size, rows
    by_width = 1.0 / space.state_blocks
    shift = 9 if space.size_unit > 1 else 0
    for i in range(len(lbn)):
        s = hashing.value_of(streams, np.int64(stream[i]) * space.devices + device[i])
        size = hashing.value_of(sizes, size_bytes[i] >> shift)
        # A product is several times as fast as a division, and off by one at most.
        state: Any = np.int64((lbn[i] - space.first_lbn) * by_width)
        left = lbn[i] - space.first_lbn - state * space.state_blocks
        state += (1 if left >= space.state_blocks else 0) - (1 if left < 0 else 0)
        if state < 0 or state >= space.states:
            state = 0 if state < 0 else space.states - 1
        origin = np.int64(s) * KINDS + (size & 3) + (3 if op[i] else 0)
        seen.stream[i] = s
        seen.row[i] = hashing.code_of(states, origin * space.states + state)
        steps.state[i], steps.origin[i] = state, origin
        kind = op[i] if op[i] < OPERATIONS else OPERATIONS - 1
        steps.feature[i] = 2 * space.size_classes * kind + (size >> _KIND_BITS)


@loops.jit_uncounted
def _follow(columns: Columns, space: _Space, seen: Seen, steps: _Steps, last: Columns) -> int:
    """Fill in the transition of every request but a stream's first; return their number."""
    time_s, lbn, size_bytes = columns
    last_request, last_s = last
    features = 2 * OPERATIONS * space.size_classes
    found = 0
    for i in range(len(lbn)):
        s, state = np.uint64(seen.stream[i]), steps.state[i]
        row = last_request[s, 0]
        goes_on = False
        steps.before[i] = row
        if row != _NONE:
            goes_on = lbn[i] == last_request[s, 2]
            pair, level = sv.pair_code(last_request[s, 1], state, space.levels, space.fan_out)
            steps.level[i] = level
            key = (last_request[s, 3] * space.pair_codes + pair) * features + steps.feature[i]
            at = np.uint64(found)
            steps.code[at] = key + (space.size_classes if goes_on else 0)
            steps.gap[at] = time_s[i] - last_s[s]
            found += 1
        seen.sequential[i] = goes_on
        last_request[s, 0], last_request[s, 1] = seen.row[i], state
        last_request[s, 2] = lbn[i] + size_bytes[i] // BLOCK
        last_request[s, 3] = steps.origin[i]
        last_s[s] = time_s[i]
    return found


@loops.jit_uncounted
def _note_states(columns: Columns, levels: int, accessed: IntArray) -> None:
    """Record what was accessed of each state, and at which level transitions part."""
    lbn, row, before, level = columns
    for i in range(len(lbn)):
        here, start = np.uint64(row[i]), lbn[i]
        if _END - start > accessed[here, 1]:
            accessed[here, 1] = _END - start
        if start >= accessed[here, 2]:
            accessed[here, 2] = start + 1
        if before[i] != _NONE:
            accessed[np.uint64(before[i]), np.uint64(2 + level[i])] += 1
            accessed[here, np.uint64(2 + levels + level[i])] += 1
        else:
            accessed[here, 0] += 1


@loops.jit_uncounted
def _give_codes(code: IntArray, transitions: hashing.HashTable, transition: IntArray) -> None:
    """Fill in the integer code of each transition."""
    for i in range(len(transition)):
        transition[i] = hashing.code_of(transitions, code[i])


@loops.jit_uncounted
def _add_interarrivals(
    transition: IntArray, gap: FloatArray, logs: FloatArray, tally: Columns
) -> None:
    """Add gaps to their transitions' sums; replace transitions by their histograms' rows."""
    sums, row, used = tally
    for i in range(len(logs)):
        at, g, log = np.uint64(transition[i]), gap[i], logs[i]
        number = sums[at, GAPS] + 1
        sums[at, GAPS] = number
        sums[at, SUM] += g
        sums[at, SQUARES] += g * g
        sums[at, LOGS] += log
        sums[at, LOG_SQUARES] += log * log
        sums[at, G_LOGS] += g * log
        if number == 1 or g < sums[at, SMALLEST]:
            sums[at, SMALLEST] = g
        if g > sums[at, LARGEST]:
            sums[at, LARGEST] = g
        if number == HISTOGRAM_FROM and used[0] <= MOST_HISTOGRAMS:
            row[at] = used[0]
            used[0] += 1
        transition[i] = row[at]


@loops.jit_uncounted
def _count_log_interarrivals(row: IntArray, logs: FloatArray, histogram: CountArray) -> None:
    """Count logarithms of gaps in their histograms' classes."""
    for i in range(len(logs)):
        log2 = (logs[i] * _PER_NATURAL - LOWEST_OCTAVE) * PER_OCTAVE
        class_ = 0.0 if log2 < 0 else log2 if log2 < HISTOGRAM_CLASSES else HISTOGRAM_CLASSES - 1.0
        histogram[np.uint64(row[i]), np.uint64(class_)] += 1


def log_likelihood(fitted: TransitionCounts, seen: TransitionCounts) -> float:
    """Mean log-likelihood (nats per request, per block) of transitions under another's counts.

    The likelihood of a request's address is that of its transition, of the finest state entered,
    and of one of the addresses in that state. Counts are raised by a half (Jeffreys), so that
    what was never seen stays possible. Both are over the same diagram and streams.
    """
    diagram, k = fitted.diagram, fitted.diagram.fan_out
    keys, pairs = (of.stream * diagram.pair_codes + of.pair for of in (fitted, seen))
    pairs, place = np.unique(pairs, return_inverse=True)
    number = np.bincount(place, seen.count)
    level, source, _ = diagram.pairs(pairs % diagram.pair_codes)
    wanted = pairs // diagram.pair_codes * diagram.states + source
    made, entered, left = np.zeros(len(pairs)), 0.0, fitted.departures.sum(axis=1)
    finest = _state_keys(fitted, diagram.levels), _state_keys(seen, diagram.levels)
    inside = _sum_weights(finest[0], fitted.occupancy, finest[1]) + _PRIOR
    for i in range(1, diagram.levels + 1):
        coarse, here = _state_keys(fitted, i), level == i
        # Transitions out of the sources, at whatever level they part.
        made[here] = _sum_weights(coarse, left, wanted[here])
        # The finest state entered, given the coarse one.
        total = _sum_weights(coarse, fitted.occupancy, _state_keys(seen, i))
        total += _PRIOR * k ** (diagram.levels - i)
        entered += float(seen.arrivals[:, i - 1] @ np.log(inside / total))
    # A state can go to its siblings at every level, and at the finest to itself.
    ways = (k - 1) * diagram.levels + 1
    found = _sum_weights(keys, fitted.count, pairs)
    moved = number @ np.log((found + _PRIOR) / (made + _PRIOR * ways))
    return float((moved + entered) / number.sum() - np.log(diagram.state_blocks))


def _state_keys(counts: TransitionCounts, level: int) -> IntArray:
    """Return a number for stream and state, at a level, of every accessed state."""
    diagram = counts.diagram
    coarse = counts.state // diagram.fan_out ** (diagram.levels - level)
    return np.asarray(counts.stream_of_state * diagram.states + coarse)


def _sum_weights(keys: IntArray, weight: IntArray, wanted: IntArray) -> FloatArray:
    """Sum the weights of each key that is wanted; 0 for one without any."""
    unique, place = np.unique(keys, return_inverse=True)
    total = np.bincount(place, weight)
    at = np.minimum(np.searchsorted(unique, wanted), len(unique) - 1)
    return np.where(unique[at] == wanted, total[at], 0.0)
