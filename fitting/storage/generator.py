"""Generate requests: passages of a trace, arranged anew, at addresses that follow from each other.

Spans of the trace change places within their activity windows, so every seed gives another load
profile with the bursts of the original. Who requests what, and when, is as the passage of a span
has it. Where is decided when a request is made: see `fitting.storage.references`. As all requests
of a span are made once, shares of streams, operations, sizes, sequential requests and states are
those of the trace whatever the seed, where the passages have all of it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fitting.compiled.loops import FloatArray, IntArray
from fitting.errors import FittingError
from fitting.storage import interarrival, references
from fitting.storage.passages import Passages
from fitting.storage.survey import SizeClasses, Survey
from fitting.storage.transitions import OPERATIONS, TransitionCounts

Rng = np.random.Generator
ENTRIES = ("arrivals", "occupancy")
# Requests made at once; a span of more makes its batch longer.
_AT_ONCE = 2**18
# Keys of transitions that a table has, and buckets a transition where a search begins.
_MOST_KEYS, _BUCKETS = 2**20, 4


class GeneratedRequests(NamedTuple):
    """Requests in the order in which they arrive."""

    time_s: FloatArray
    stream: IntArray  # index of the stream in the survey
    lbn: IntArray
    size_bytes: IntArray
    op: IntArray
    sequential: IntArray  # whether a request goes on where the last one of its stream ended


class Generator:
    """Generates requests batch by batch, without an end.

    ``expected`` is the number of requests to come, over those of the trace. With ``entry``
    "occupancy" a fresh address is in any state of its stream, by the share of requests there.
    ``repeat`` draws blocks of spans with replacement; ``in_order`` keeps the order of the trace.
    """

    def __init__(
        self,
        counts: TransitionCounts,
        survey: Survey,
        passages: Passages,
        *,
        expected: float,
        rng: Rng,
        entry: str = ENTRIES[0],
        in_order: bool = False,
        repeat: bool = False,
    ) -> None:
        if entry not in ENTRIES:
            raise FittingError(f"no way of entry {entry!r}: give {' or '.join(ENTRIES)}")
        self._passages, self._duration_s, self._rng = passages, survey.duration_s, rng
        self._order = {"in_order": in_order, "repeat": repeat}
        states, row = np.unique(counts.state, return_inverse=True)
        low, high = np.full(len(states), counts.highest.max()), np.zeros(len(states), np.int64)
        np.minimum.at(low, row, counts.lowest)
        np.maximum.at(high, row, counts.highest)
        self._space = references.new_space(
            survey, (low, high), expected, room=passages.reuse and not passages.is_whole
        )
        requests = passages.requests
        state = np.searchsorted(states, requests.state)
        if entry == "occupancy":
            state = _states_by_occupancy(counts, row, requests.stream, rng)
        self._state = state
        self._extents = passages.extents(survey.device_of_stream)

    def batches(self) -> Iterator[GeneratedRequests]:
        """Yield requests; after the last span another day like this one begins."""
        begin_s, passages = 0.0, self._passages
        length_s = np.diff(passages.begin_s)
        while True:
            self._place_extents()
            spans = passages.arrange_spans(self._rng, **self._order)
            starts = begin_s + np.cumsum(length_s[spans]) - length_s[spans]
            batch = (np.cumsum(passages.number[spans]) - 1) // _AT_ONCE
            for some in np.split(np.arange(len(spans)), np.flatnonzero(np.diff(batch)) + 1):
                yield self._make(spans[some], starts[some])
            begin_s += float(length_s[spans].sum())

    def _place_extents(self) -> None:
        """Place the extents of a day anew, where all of the trace is recorded."""
        requests = self._passages.requests
        fresh = np.flatnonzero(requests.age == references.FRESH)
        self._placed = np.full(len(requests.age), -1)
        if self._passages.is_whole and self._passages.reuse:
            columns = requests.stream, self._state, requests.place, *self._extents
            self._placed = references.pack_extents(self._space, fresh, columns, self._rng)

    def _make(self, spans: IntArray, starts_s: FloatArray) -> GeneratedRequests:
        """Make the requests of spans that begin at some times (s)."""
        played = [self._passages.play_span(span, self._rng) for span in spans]
        rows = np.concatenate([row for row, _ in played])
        time_s = np.concatenate([s + t for s, (_, t) in zip(starts_s, played, strict=True)])
        time_s = np.maximum.accumulate(time_s)
        # Addresses are chosen in the order of the trace, where what is referred to comes first.
        number = [len(row) for row, _ in played]
        order = np.argsort(np.repeat(spans, number), kind="stable")
        requests, made = self._passages.requests, rows[order]
        columns = requests.stream, requests.size_bytes, self._state, requests.age, requests.place
        lbn, found = np.empty((2, len(rows)), dtype=np.int64)
        given = tuple(column[made] for column in (*columns, *self._extents, self._placed))
        references.choose_addresses(self._space, given, found, self._rng)
        lbn[order] = found
        stream, size, op = (column[rows] for column in (*columns[:2], requests.op))
        on = requests.age[rows] == references.SEQUENTIAL
        return GeneratedRequests(time_s, stream, lbn, size, op, on)


def _states_by_occupancy(
    counts: TransitionCounts, row: IntArray, stream: IntArray, rng: Rng
) -> IntArray:
    """Draw a state for each request by the share of its stream's requests there."""
    # States are in the order of their streams.
    reached = np.append(0, np.cumsum(counts.occupancy))
    low, high = (
        np.searchsorted(counts.stream_of_state, stream, side) for side in ("left", "right")
    )
    wanted = reached[low] + rng.random(len(stream)) * (reached[high] - reached[low])
    return np.asarray(row[np.searchsorted(reached, wanted, side="right") - 1])


class LawTimes:
    """Times of requests by the inter-arrival laws of their transitions, and nothing else.

    A request has the law of one of the transitions of its stream, operation, size class and order,
    chosen by their counts. Times between all requests are those of streams over their number.
    """

    def __init__(
        self,
        counts: TransitionCounts,
        laws: interarrival.GapLaws,
        classes: SizeClasses,
        factor: FloatArray,
        rng: Rng,
    ) -> None:
        self._laws, self._factor, self._rng = laws, factor, rng
        self._time_s, self._first = 0.0, True
        sizes, class_ = np.concatenate(classes.sizes), np.arange(len(classes))
        order = np.argsort(sizes)
        self._sizes = sizes[order]
        self._class = np.repeat(class_, [len(size) for size in classes.sizes])[order]
        key = self._key(counts.stream, counts.op, counts.sequential, counts.size_class)
        self._by_key = np.argsort(key, kind="stable")
        self._keys = key[self._by_key]
        self._reached = np.append(0, np.cumsum(counts.count[self._by_key]))
        # Transitions of all numbers that are keys, where these are not too many, and where the
        # search for a count begins: both in place of a binary search.
        self._bounds: tuple[IntArray, IntArray] | None = None
        most = OPERATIONS * 2 * len(self._sizes) * len(factor)
        if most <= _MOST_KEYS:
            self._bounds = self._search_keys(np.arange(most))
        buckets = _BUCKETS * len(self._by_key)
        self._scale = buckets / self._reached[-1]
        begins = np.arange(buckets + 1) / self._scale
        self._begin = np.searchsorted(self._reached, begins, side="right") - 1

    def _key(self, stream: IntArray, op: IntArray, *features: IntArray) -> IntArray:
        """Return one number for stream, operation, order and size class."""
        sequential, class_ = features
        kind = stream * OPERATIONS + np.minimum(op, OPERATIONS - 1)
        return (2 * kind + sequential) * len(self._sizes) + class_

    def _search_keys(self, key: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first transition of each key, and the one after its last."""
        low, high = (np.searchsorted(self._keys, key, side) for side in ("left", "right"))
        return low, high

    def _search_counts(self, wanted: FloatArray) -> IntArray:
        """Return the transition that each count falls into: an indexed search."""
        at = self._begin[(wanted * self._scale).astype(np.int64)]
        # A rounded bucket may begin one too late.
        at -= self._reached[at] > wanted
        behind = np.flatnonzero(self._reached[at + 1] <= wanted)
        while len(behind):
            at[behind] += 1
            behind = behind[self._reached[at[behind] + 1] <= wanted[behind]]
        return at

    def times(self, made: GeneratedRequests) -> FloatArray:
        """Return the times (s) of the next requests."""
        class_ = self._class[np.searchsorted(self._sizes, made.size_bytes)]
        key = self._key(made.stream, made.op, made.sequential, class_)
        low, high = (
            self._search_keys(key) if self._bounds is None else (b[key] for b in self._bounds)
        )
        # What a stream did but once has no time since the one before: it takes any.
        none = high == low
        low[none], high[none] = 0, len(self._keys)
        first, end = self._reached[low], self._reached[high]
        wanted = first + self._rng.random(len(key)) * (end - first)
        which = self._by_key[self._search_counts(wanted)]
        gaps = self._laws.draw(which, self._rng) * self._factor[made.stream]
        if self._first and len(gaps):
            gaps[0], self._first = 0.0, False
        found = self._time_s + np.cumsum(gaps)
        self._time_s = float(found[-1]) if len(found) else self._time_s
        return np.asarray(found)
