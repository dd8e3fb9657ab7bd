"""Second pass over a block trace: transitions counted, with the moments of their gaps.

Batches are taken in short parts, and each part in compiled loops that do one thing each: what one
hands to the next stays in the processor's cache, and a loop that is short has many requests under
way at once, so that it waits for the memory of all of them together.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.compiled import inlined, uncounted
from fitting.lookups import (
    Lookup,
    Numbering,
    Numbers,
    longer,
    looked_up,
    lookup_of,
    numbered,
)
from fitting.request_kinds import KINDS, kind
from fitting.state_diagram import Diagram, pair_code
from fitting.trace_survey import BLOCK, Survey
from fitting.transition_counts import (
    G_LOGS,
    GAPS,
    HISTOGRAM_CLASSES,
    LARGEST,
    LOG_SQUARES,
    LOGS,
    LOWEST_OCTAVE,
    OPERATIONS,
    PER_OCTAVE,
    SMALLEST,
    SQUARES,
    SUM,
    SUMS,
    TransitionCounts,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.trace_survey import SizeClasses

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

# A transition's gaps are kept in classes from here on, and those of so many transitions at most.
_HISTOGRAM_FROM = 32
_MOST_HISTOGRAMS = 65_536
# Requests in a part.
_PART = 1 << 14
_NONE = -1
# Beyond all addresses.
_END = 2**62
_PER_NATURAL = 1 / np.log(2)
_KIND_BITS = 2


class Seen(NamedTuple):
    """Requests as they were counted: stream, row of the touched state, whether sequential."""

    stream: NDArray[np.int32]
    row: IntArray
    sequential: NDArray[np.bool_]


class _Space(NamedTuple):
    """What of a diagram and a survey the loops need."""

    levels: int
    fan_out: int
    first_lbn: int
    state_blocks: int
    states: int
    pair_codes: int
    size_classes: int
    devices: int
    size_unit: int


class _Known(NamedTuple):
    """Index by stream and device, class and kind by size, rows by state."""

    stream: Lookup
    size: Lookup
    states: Numbering


class _Steps(NamedTuple):
    """Requests of a part: state, origin, operation and class; what they follow, and at what level.

    And their transitions: code and gap.
    """

    state: NDArray[np.int32]
    origin: NDArray[np.int32]
    feature: NDArray[np.int32]
    before: NDArray[np.int32]
    level: NDArray[np.int32]
    code: IntArray
    gap: FloatArray


class _Last(NamedTuple):
    """Last request of every stream: row of its touched state, state, end, origin; its time."""

    request: IntArray
    time_s: FloatArray


class _Tally(NamedTuple):
    """By transition, sums over gaps and the row of its histogram; row 0 is that of all others."""

    sums: FloatArray
    row: NDArray[np.int32]
    histogram: NDArray[np.uint32]


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
        self._stream = lookup_of(survey.streams * devices + survey.devices, np.arange(streams))
        self._size = _classes_and_kinds(survey, classes, unit)
        # A gap of 0 has no logarithm: below the clock's resolution it counts as half a tick.
        self._least_gap = survey.tick_s / 2
        self._last = _Last(np.full((streams, 4), _NONE, dtype=np.int64), np.zeros(streams))
        origins = streams * KINDS
        self._states = Numbers(origins * diagram.states)
        self._transitions = Numbers(origins * diagram.pair_codes * OPERATIONS * 2 * len(classes))
        # By touched state: first requests of streams, how far its ends are from the far ends of
        # any space, partings by level out and in.
        self._touched = np.zeros((0, 3 + 2 * levels), dtype=np.int64)
        self._tally = _Tally(
            np.zeros((0, SUMS)),
            np.zeros(0, dtype=np.int32),
            np.zeros((1, HISTOGRAM_CLASSES), dtype=np.uint32),
        )
        self._histograms = np.ones(1, dtype=np.int64)
        short = np.zeros((5, _PART), dtype=np.int32)
        self._steps = _Steps(
            *(short[0], short[1], short[2], short[3], short[4]),
            *(np.zeros(_PART, dtype=np.int64), np.zeros(_PART)),
        )

    def add(
        self,
        time_s: FloatArray,
        stream: NDArray[np.int32],
        device: NDArray[np.int32],
        lbn: IntArray,
        size_bytes: IntArray,
        op: NDArray[np.uint8],
    ) -> Seen:
        """Take the next requests."""
        n = len(time_s)
        seen = Seen(np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.bool_))
        columns = (time_s, stream, device, lbn, size_bytes, op)
        for start in range(0, n, _PART):
            part = slice(start, start + _PART)
            self._add_part(
                tuple(column[part] for column in columns),
                Seen(seen.stream[part], seen.row[part], seen.sequential[part]),
            )
        return seen

    def _add_part(self, columns: tuple[Any, ...], seen: Seen) -> None:
        n = len(seen.row)
        self._make_room(n)
        known = _Known(self._stream, self._size, self._states.numbering)
        steps = self._steps
        time_s, _, _, lbn, size_bytes, _ = columns
        _locate(columns[1:], self._space, known, seen, steps)
        found = _follow(time_s, lbn, size_bytes, self._space, seen, steps, self._last)
        _touch(lbn, seen.row, self._space.levels, steps, self._touched)
        transition, gap = np.empty(found, dtype=np.int64), steps.gap
        _number(steps.code, self._transitions.numbering, transition)
        logs = np.log(np.maximum(gap[:found], self._least_gap))
        _add_up(transition, gap, logs, self._tally, self._histograms)
        _count_classes(transition, logs, self._tally.histogram)

    def _make_room(self, more: int) -> None:
        """Have room for so many requests, whatever they are."""
        self._states.make_room(more)
        self._transitions.make_room(more)
        states, transitions = len(self._states), len(self._transitions)
        histograms = int(self._histograms[0])
        tally = self._tally
        self._touched = longer(self._touched, states, more)
        self._tally = _Tally(
            longer(tally.sums, transitions, more),
            longer(tally.row, transitions, more),
            longer(tally.histogram, histograms, min(more, 1 + _MOST_HISTOGRAMS - histograms)),
        )

    def rows(self) -> IntArray:
        """Rows of the touched states, as `Seen` has them, in the order of the counts."""
        return self._states.in_order()[1]

    def counts(self) -> TransitionCounts:
        """Return what was counted."""
        key, transition = self._transitions.in_order()
        rest, size_class = np.divmod(key, self._classes)
        rest, sequential = np.divmod(rest, 2)
        rest, op = np.divmod(rest, OPERATIONS)
        origin, pair = np.divmod(rest, self.diagram.pair_codes)
        row = self._tally.row[transition]
        kept = np.flatnonzero(row)
        histogram = np.zeros((len(row), HISTOGRAM_CLASSES), dtype=np.uint32)
        histogram[kept] = self._tally.histogram[row[kept]]
        cell, state_row = self._states.in_order()
        state_origin, state = np.divmod(cell, self.diagram.states)
        touched = self._touched[state_row]
        departures, arrivals = np.split(touched[:, 3:], 2, axis=1)
        return TransitionCounts(
            self.diagram,
            origin,
            pair,
            op,
            sequential,
            size_class,
            self._tally.sums[transition],
            histogram,
            state_origin,
            state,
            occupancy=touched[:, 0] + arrivals.sum(axis=1),
            lowest=_END - touched[:, 1],
            highest=touched[:, 2] - 1,
            departures=departures,
            arrivals=arrivals,
        )


def _classes_and_kinds(survey: Survey, classes: SizeClasses, unit: int) -> Lookup:
    """Class and kind of every size, in one number."""
    sizes = np.concatenate(classes.sizes)
    class_ = np.repeat(np.arange(len(classes)), [len(s) for s in classes.sizes])
    kinds = np.array([kind(0, int(size), survey.piece) for size in sizes])
    return lookup_of(sizes // unit, class_ << _KIND_BITS | kinds)


@inlined
def _state(offset: int, width: int, by_width: float, states: int) -> int:
    """Divide by a product, several times as fast; it is off by one at most."""
    state = int(offset * by_width)
    left = offset - state * width
    state += (1 if left >= width else 0) - (1 if left < 0 else 0)
    return min(max(state, 0), states - 1)


@uncounted
def _locate(
    columns: tuple[Any, ...], space: _Space, known: _Known, seen: Seen, steps: _Steps
) -> None:
    """Find stream, state and kind of every request."""
    stream, device, lbn, size_bytes, op = columns
    by_width = 1.0 / space.state_blocks
    shift = 9 if space.size_unit > 1 else 0
    for i in range(len(lbn)):
        s = looked_up(known.stream, np.int64(stream[i]) * space.devices + device[i])
        size = looked_up(known.size, size_bytes[i] >> shift)
        state = _state(lbn[i] - space.first_lbn, space.state_blocks, by_width, space.states)
        origin = np.int64(s) * KINDS + (size & 3) + (3 if op[i] else 0)
        seen.stream[i] = s
        seen.row[i] = numbered(known.states, int(origin * space.states + state))
        steps.state[i], steps.origin[i] = state, origin
        steps.feature[i] = 2 * space.size_classes * min(op[i], OPERATIONS - 1) + (
            size >> _KIND_BITS
        )


@uncounted
def _follow(
    time_s: FloatArray,
    lbn: IntArray,
    size_bytes: IntArray,
    space: _Space,
    seen: Seen,
    steps: _Steps,
    last: _Last,
) -> int:
    """Find the transition that every request makes; return how many there are.

    A stream's first request makes none.
    """
    features = 2 * OPERATIONS * space.size_classes
    found = 0
    for i in range(len(lbn)):
        s, state = np.uint64(seen.stream[i]), int(steps.state[i])
        before = last.request[s]
        goes_on = False
        steps.before[i] = before[0]
        if before[0] != _NONE:
            goes_on = lbn[i] == before[2]
            pair, level = pair_code(before[1], state, space.levels, space.fan_out)
            steps.level[i] = level
            key = (before[3] * space.pair_codes + pair) * features + steps.feature[i]
            at = np.uint64(found)
            steps.code[at] = key + (space.size_classes if goes_on else 0)
            steps.gap[at] = time_s[i] - last.time_s[s]
            found += 1
        seen.sequential[i] = goes_on
        before[0], before[1] = seen.row[i], state
        before[2], before[3] = lbn[i] + size_bytes[i] // BLOCK, steps.origin[i]
        last.time_s[s] = time_s[i]
    return found


@uncounted
def _touch(lbn: IntArray, row: IntArray, levels: int, steps: _Steps, touched: IntArray) -> None:
    """Note what of the states was touched, and where transitions part."""
    for i in range(len(lbn)):
        here, before, level = touched[np.uint64(row[i])], steps.before[i], steps.level[i]
        here[1] = max(here[1], _END - lbn[i])
        here[2] = max(here[2], lbn[i] + 1)
        if before != _NONE:
            touched[np.uint64(before), np.uint64(2 + level)] += 1
            here[np.uint64(2 + levels + level)] += 1
        else:
            here[0] += 1


@uncounted
def _number(code: IntArray, transitions: Numbering, transition: IntArray) -> None:
    """Number the transitions."""
    for i in range(len(transition)):
        transition[i] = numbered(transitions, code[i])


@uncounted
def _add_up(
    transition: IntArray, gap: FloatArray, logs: FloatArray, tally: _Tally, histograms: IntArray
) -> None:
    """Add the gaps to their transitions, and put in the place of these their histograms' rows."""
    for i in range(len(logs)):
        at, g, log = np.uint64(transition[i]), gap[i], logs[i]
        total = tally.sums[at]
        if total[GAPS] == 0:
            total[SMALLEST] = g
        total[GAPS] += 1
        total[SUM] += g
        total[SQUARES] += g * g
        total[LOGS] += log
        total[LOG_SQUARES] += log * log
        total[G_LOGS] += g * log
        total[SMALLEST] = min(total[SMALLEST], g)
        total[LARGEST] = max(total[LARGEST], g)
        if total[GAPS] == _HISTOGRAM_FROM and histograms[0] <= _MOST_HISTOGRAMS:
            tally.row[at] = histograms[0]
            histograms[0] += 1
        transition[i] = tally.row[at]


@uncounted
def _count_classes(row: IntArray, logs: FloatArray, histogram: NDArray[np.uint32]) -> None:
    """Count the gaps in the histograms."""
    for i in range(len(logs)):
        octave = (logs[i] * _PER_NATURAL - LOWEST_OCTAVE) * PER_OCTAVE
        class_ = np.uint64(min(max(octave, 0), HISTOGRAM_CLASSES - 1))
        histogram[np.uint64(row[i]), class_] += 1
