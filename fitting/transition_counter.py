"""Second pass over a block trace: transitions counted, with the moments of their gaps.

Batches are taken in short parts, and each part in compiled loops of one step each: where requests
are, what follows what in each stream, which transition that is, and the sums. All but the second
have no chain of dependences, so that the processor waits for many places of its large tables at
once.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.compiled import inlined, uncounted
from fitting.hash_table import Numbers, find, table_of
from fitting.request_kinds import KINDS, kind
from fitting.state_diagram import Diagram, pair_code
from fitting.trace_survey import BLOCK, Survey, stream_key
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
# Requests in a part: what the loops hand on stays in the processor's cache.
_PART = 1 << 13
_NONE = -1
_PER_NATURAL = 1 / np.log(2)


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
    streams: int


class _Lookups(NamedTuple):
    """Hash tables of what the survey found; a size leads to its class and kind."""

    stream_keys: IntArray
    stream: IntArray
    size_keys: IntArray
    size_class: IntArray
    size_kind: IntArray


class _Places(NamedTuple):
    """Where requests are: stream and kind together, state, both together; and their size class."""

    origin: IntArray
    state: IntArray
    cell: IntArray
    size_class: IntArray


class _Last(NamedTuple):
    """Last request of every stream: row of its touched state, state, end, origin; its time."""

    request: IntArray
    time_s: FloatArray


class _Tally(NamedTuple):
    """By transition, sums over gaps and the row of its histogram; row 0 is that of all others."""

    sums: FloatArray
    row: IntArray
    histogram: NDArray[np.uint32]


class TransitionCounter:
    """Takes a surveyed trace batch by batch, sorted by arrival."""

    def __init__(self, diagram: Diagram, survey: Survey, classes: SizeClasses) -> None:
        streams, levels = len(survey.streams), diagram.levels
        self.diagram, self._classes = diagram, len(classes)
        self._space = _Space(
            *(levels, diagram.fan_out, diagram.first_lbn, diagram.state_blocks),
            *(diagram.states, diagram.pair_codes, len(classes), streams),
        )
        self._lookups = _lookups(survey, classes)
        # A gap of 0 has no logarithm: below the clock's resolution it counts as half a tick.
        self._least_gap = survey.tick_s / 2
        self._last = _Last(np.full((streams, 4), _NONE, dtype=np.int64), np.zeros(streams))
        self._states, self._transitions = Numbers(), Numbers()
        # By touched state: occupancy, lowest and highest block, partings by level out and in.
        self._touched = np.zeros((0, 3 + 2 * levels), dtype=np.int64)
        self._tally = _Tally(
            np.zeros((0, SUMS)),
            np.zeros(0, dtype=np.int64),
            np.zeros((0, HISTOGRAM_CLASSES), dtype=np.uint32),
        )
        self._histograms = np.ones(1, dtype=np.int64)

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
        places = _Places(*(np.empty(n, dtype=np.int64) for _ in _Places._fields))
        _place(columns, self._space, self._lookups, seen.stream, places)
        self._states.take(places.cell, seen.row)
        self._touched = _longer(self._touched, len(self._states))
        key, gap = np.empty(n, dtype=np.int64), np.empty(n)
        followed = _follow(columns, self._space, places, seen, self._last, self._touched, key, gap)
        self._add_gaps(key[:followed], gap[:followed])

    def _add_gaps(self, key: IntArray, gap: FloatArray) -> None:
        transition = np.empty_like(key)
        self._transitions.take(key, transition)
        tally, found = self._tally, len(self._transitions)
        histograms = min(int(self._histograms[0]) + len(key), 1 + _MOST_HISTOGRAMS)
        self._tally = _Tally(
            _longer(tally.sums, found),
            _longer(tally.row, found),
            _longer(tally.histogram, histograms),
        )
        logs = np.log(np.maximum(gap, self._least_gap))
        _add_up(transition, gap, logs, self._tally, self._histograms)

    def rows(self) -> IntArray:
        """Rows of the touched states, as `Seen` has them, in the order of the counts."""
        return self._states.in_order()[1]

    def counts(self) -> TransitionCounts:
        """Return what was counted."""
        levels = self.diagram.levels
        key, transition = self._transitions.in_order()
        rest, size_class = np.divmod(key, self._classes)
        rest, sequential = np.divmod(rest, 2)
        rest, op = np.divmod(rest, OPERATIONS)
        origin, pair = np.divmod(rest, self.diagram.pair_codes)
        histogram_row = self._tally.row[transition]
        histogram = self._tally.histogram[histogram_row]
        histogram[histogram_row == 0] = 0
        cell, state_row = self._states.in_order()
        state_origin, state = np.divmod(cell, self.diagram.states)
        touched = self._touched[state_row]
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
            occupancy=touched[:, 0],
            lowest=touched[:, 1],
            highest=touched[:, 2],
            departures=touched[:, 3 : 3 + levels],
            arrivals=touched[:, 3 + levels :],
        )


def _lookups(survey: Survey, classes: SizeClasses) -> _Lookups:
    sizes = np.concatenate(classes.sizes)
    class_ = np.repeat(np.arange(len(classes)), [len(s) for s in classes.sizes])
    kinds = np.array([kind(0, int(size), survey.piece) for size in sizes])
    pairs = zip(survey.streams, survey.devices, strict=True)
    keys = np.array([stream_key(*pair) for pair in pairs], dtype=np.int64)
    return _Lookups(
        *table_of(keys, np.arange(len(keys))),
        *table_of(sizes, class_),
        table_of(sizes, kinds)[1],
    )


def _longer(rows: NDArray[Any], needed: int) -> NDArray[Any]:
    """Rows and as many more of zeros where too few are there."""
    if needed <= len(rows):
        return rows
    # Memory of zeros takes no place before it is written to.
    longer = np.zeros((2 * needed, *rows.shape[1:]), dtype=rows.dtype)
    longer[: len(rows)] = rows
    return longer


@uncounted
def _place(
    columns: tuple[Any, ...],
    space: _Space,
    lookups: _Lookups,
    stream: NDArray[np.int32],
    places: _Places,
) -> None:
    """Find the stream, kind, state and size class of every request."""
    _, stream_, device, lbn, size_bytes, op = columns
    by_width = 1.0 / space.state_blocks
    for i in range(len(lbn)):
        s = 0
        if space.streams > 1:
            s = lookups.stream[find(lookups.stream_keys, stream_key(stream_[i], device[i]))]
        at = find(lookups.size_keys, size_bytes[i])
        state = _state(lbn[i] - space.first_lbn, space.state_blocks, by_width, space.states)
        origin = s * KINDS + lookups.size_kind[at] + (3 if op[i] else 0)
        stream[i] = s
        places.origin[i], places.state[i] = origin, state
        places.cell[i] = origin * space.states + state
        places.size_class[i] = lookups.size_class[at]


@inlined
def _state(offset: int, width: int, by_width: float, states: int) -> int:
    """Divide by a product, several times as fast; it is off by one at most."""
    state = int(offset * by_width)
    left = offset - state * width
    state += (1 if left >= width else 0) - (1 if left < 0 else 0)
    return min(max(state, 0), states - 1)


@uncounted
def _follow(
    columns: tuple[Any, ...],
    space: _Space,
    places: _Places,
    seen: Seen,
    last: _Last,
    touched: IntArray,
    key: IntArray,
    gap: FloatArray,
) -> int:
    """Find the key and gap of every transition; return how many there are.

    A stream's first request makes none.
    """
    # One loop, as every step needs what the stream's last request left.
    time_s, _, _, lbn, size_bytes, op = columns
    found = 0
    for i in range(len(lbn)):
        s, here, begin = seen.stream[i], seen.row[i], lbn[i]
        _touch(touched, here, begin)
        before = last.request[s]
        goes_on = before[0] != _NONE and begin == before[2]
        seen.sequential[i] = goes_on
        if before[0] != _NONE:
            pair, level = pair_code(before[1], places.state[i], space.levels, space.fan_out)
            touched[before[0], 2 + level] += 1
            touched[here, 2 + space.levels + level] += 1
            code = (before[3] * space.pair_codes + pair) * OPERATIONS + op[i]
            code = 2 * code + (1 if goes_on else 0)
            key[found] = code * space.size_classes + places.size_class[i]
            gap[found] = time_s[i] - last.time_s[s]
            found += 1
        before[0], before[1] = here, places.state[i]
        before[2], before[3] = begin + size_bytes[i] // BLOCK, places.origin[i]
        last.time_s[s] = time_s[i]
    return found


@inlined
def _touch(touched: IntArray, row: int, lbn: int) -> None:
    """Count a request in its state, and widen what it touched."""
    if touched[row, 0] == 0:
        touched[row, 1] = lbn
        touched[row, 2] = lbn
    touched[row, 0] += 1
    touched[row, 1] = min(touched[row, 1], lbn)
    touched[row, 2] = max(touched[row, 2], lbn)


@uncounted
def _add_up(
    transition: IntArray, gap: FloatArray, logs: FloatArray, tally: _Tally, histograms: IntArray
) -> None:
    """Add the gaps to their transitions."""
    for i in range(len(transition)):
        at, g, log = transition[i], gap[i], logs[i]
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
        octave = (log * _PER_NATURAL - LOWEST_OCTAVE) * PER_OCTAVE
        tally.histogram[tally.row[at], int(min(max(octave, 0), HISTOGRAM_CLASSES - 1))] += 1
