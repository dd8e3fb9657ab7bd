"""Passages of a trace: who requests what, when, and from where on, in the order of the original.

A block bootstrap (Künsch 1989) keeps what laws of single requests lose: bursts at every scale up to
its blocks, and that large writes come in bursts while reads wait. The trace is divided into spans
of equal numbers of requests. The first requests of each span are its passage: all of them where the
trace is short. Of each request a passage has the time since the one before it, stream, operation,
size, and how its address follows from earlier ones, but not the address itself:

=========  =====================================================================================
age        start of the request
=========  =====================================================================================
−1         where the last request of its stream ended
k ≥ 1      a distance from the start of the request that its device had k requests earlier: the
           last one that accessed this piece of the space or ended at this block, or else the
           request just before it, if that is near
0          a fresh address in its finest state
=========  =====================================================================================

So the generator comes back to addresses when the original did, without knowing them, and goes to
fresh ones in the states where it did.

References
----------
H. R. Künsch: The jackknife and the bootstrap for general stationary observations. Annals of
Statistics 17(3), 1989. doi:10.1214/aos/1176347265
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fitting.compiled.loops import Array, FloatArray, IntArray
from fitting.storage import references
from fitting.storage.references import FRESH, SEQUENTIAL, AddressFinder
from fitting.storage.survey import Diagram, Survey
from fitting.storage.transitions import Seen

Rng = np.random.Generator
# Requests and spans that are kept, at most, and requests of a span, at least.
MOST_KEPT, _MOST_SPANS, _LEAST_SPAN = 2**17, 512, 32
# Places where a window may begin that are enough, and speeds of the server that finds them.
_LEAST_CUTS, _SPEEDS = 8, (1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
# Gaps of a passage are this much longer or shorter, at most, where it stands for its span.
_STRETCH, _ROUNDING = 2.0, 1e-9


class RecordedRequests(NamedTuple):
    """Recorded requests, one an element."""

    gap: IntArray  # time since the request before it in the trace, in ticks
    stream: IntArray  # index of the stream in the survey
    op: IntArray
    size_bytes: IntArray
    state: IntArray  # finest state
    age: IntArray  # as the table of this module says
    place: IntArray  # distance (blocks) from the request referred to; if fresh, blocks into a piece


@dataclass(frozen=True)
class Passages:
    """Requests of all passages, one after another."""

    requests: RecordedRequests
    start: IntArray  # first request of every passage, and the end of the last
    number: IntArray  # requests of the trace that each passage stands for
    begin_s: FloatArray  # when each span begins (s from the first arrival), and the end of the last
    window_s: float  # spans stay in their activity windows of this length
    tick_s: float
    reuse: bool  # whether ages were looked for

    @property
    def is_whole(self) -> bool:
        """Whether all requests of the trace are recorded."""
        return len(self.requests.age) == int(self.number.sum())

    def coarser(self, fan_out: int) -> Passages:
        """Return the passages for a diagram with one level less."""
        requests = self.requests._replace(state=self.requests.state // fan_out)
        return replace(self, requests=requests)

    def extents(self, devices: IntArray) -> tuple[IntArray, IntArray]:
        """Return by request the blocks before and after its start that others lead to.

        ``devices`` has the device of each stream.
        """
        requests = self.requests
        passage = np.repeat(np.arange(len(self.number)), np.diff(self.start))
        # Where all of the trace is recorded, passages follow each other.
        passage = passage * (not self.is_whole)
        columns = requests.stream, requests.size_bytes, requests.age, requests.place
        return references.measure_extents(columns, devices, passage)

    def join_extents(self, lbn: IntArray, devices: IntArray) -> None:
        """Let extents that meet follow from the first of them, in place, by the requests' blocks.

        So a run from one of them into another one goes on there when it is generated.
        """
        age, place, device = self.requests.age, self.requests.place, devices[self.requests.stream]
        before, after = self.extents(devices)
        for g in np.unique(device):
            mine = np.flatnonzero(device == g)
            clock = np.flatnonzero(age[mine] == FRESH)
            low, high = (lbn[mine[clock]] + side[mine[clock]] for side in (-before, after))
            order = np.argsort(low, kind="stable")
            apart = low[order][1:] > np.maximum.accumulate(high[order])[:-1]
            group, begins = np.cumsum(np.r_[0, apart]), np.flatnonzero(np.r_[True, apart])
            clock = clock[order]
            first = np.minimum.reduceat(clock, begins)[group]
            later = clock > first
            rows, root = mine[clock[later]], mine[first[later]]
            age[rows], place[rows] = (clock - first)[later], lbn[rows] - lbn[root]

    def arrange_spans(self, rng: Rng, *, in_order: bool = False, repeat: bool = False) -> IntArray:
        """Return spans in an order like the original's.

        Each activity window begins somewhere else in its cycle, where a queue would be empty: load
        that builds up stays together, and so do accesses to the same addresses. ``repeat`` draws
        parts between such places with replacement, ``in_order`` keeps all. The last stays last.
        """
        spans = np.arange(len(self.number))
        if in_order:
            return spans
        blocks = np.split(spans, self._quiet_cuts())
        window = self.begin_s[[block[0] for block in blocks]] // self.window_s
        found = []
        for inside in np.split(np.arange(len(blocks)), np.flatnonzero(np.diff(window)) + 1):
            # A queue may be left at the end of the trace: nothing comes after it.
            free = inside[inside < len(blocks) - 1]
            turned = np.roll(free, rng.integers(max(1, len(free))))
            chosen = rng.choice(free, len(free)) if repeat else turned
            found += [blocks[k] for k in chosen]
        found.append(blocks[-1])
        return np.concatenate(found)

    def _quiet_cuts(self) -> IntArray:
        """Return the spans that begin new blocks: where a slow server has nothing left to do.

        It serves so many times the requests that arrive on average: as few as give enough blocks.
        """
        length_s, cuts = np.diff(self.begin_s), np.zeros(0, dtype=np.int64)
        served = length_s * (self.number.sum() / length_s.sum())
        for speed in _SPEEDS:
            waiting = np.cumsum(self.number - speed * served)
            least = np.minimum.accumulate(np.append(0.0, waiting[:-1]))
            cuts = np.flatnonzero(waiting[:-1] <= least[:-1]) + 1
            if len(cuts) >= _LEAST_CUTS:
                break
        return cuts

    def play_span(self, span: int, rng: Rng) -> tuple[IntArray, FloatArray]:
        """Return rows of the requests that a span makes, and their times (s) from its begin."""
        first, kept = int(self.start[span]), int(self.start[span + 1] - self.start[span])
        number, duration_s = int(self.number[span]), float(np.diff(self.begin_s)[span])
        rows = first + np.arange(number) % kept
        gaps = np.multiply(self.requests.gap[rows], self.tick_s, dtype=np.float64)
        gaps[0] = 0.0
        if number > kept:
            gaps[1:] = _fill_duration(gaps[1:], duration_s * (number - 1) / number, rng)
        return rows, np.minimum(np.cumsum(gaps), duration_s)


def _fill_duration(gaps_s: FloatArray, duration_s: float, rng: Rng) -> FloatArray:
    """Make gaps fill a duration: all a little longer or shorter, then by a pause or the longest."""
    total = float(gaps_s.sum())
    gaps_s = gaps_s * np.clip(duration_s / max(total, 1e-300), 1 / _STRETCH, _STRETCH)
    missing = duration_s - float(gaps_s.sum())
    if missing >= -_ROUNDING * duration_s:
        gaps_s[rng.integers(len(gaps_s))] += max(missing, 0.0)
        return gaps_s
    # The longest gaps are cut to one length, the others stay.
    rising = np.sort(gaps_s)
    below = np.cumsum(rising) - rising
    longest = (duration_s - below) / np.arange(len(rising), 0, -1)
    return np.minimum(gaps_s, longest[np.argmax(rising >= longest)])


class PassageRecorder:
    """Takes a surveyed trace batch by batch, and records its passages."""

    def __init__(
        self, diagram: Diagram, survey: Survey, *, window_s: float = 1800.0, reuse: bool = True
    ) -> None:
        self._diagram, self._survey, self._window_s = diagram, survey, window_s
        self._spacing, self._length = span_lengths(survey.requests)
        self._finder = AddressFinder(survey) if reuse else None
        self._done, self._last_s = 0, survey.first_s
        self._parts: list[tuple[Array, ...]] = []

    def add(self, seen: Seen, *columns: Array) -> None:
        """Record requests by columns: time (s), block, size (bytes), operation."""
        time_s, lbn, size_bytes, op = columns
        age = np.where(seen.sequential, SEQUENTIAL, FRESH)
        place = lbn % self._survey.piece
        if self._finder is not None:
            self._finder.find(seen, lbn, size_bytes, age, place)
        number = self._done + np.arange(len(lbn))
        kept = np.flatnonzero(number % self._spacing < self._length)
        gap_s = np.diff(time_s, prepend=self._last_s)
        columns = number, time_s, gap_s, seen.stream, op, size_bytes, lbn, age, place
        self._parts.append(tuple(column[kept] for column in columns))
        self._done += len(lbn)
        self._last_s = float(time_s[-1]) if len(time_s) else self._last_s

    def passages(self) -> Passages:
        """Return the passages of all requests."""
        columns = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        layout = self._diagram, self._survey, self._window_s
        return build_passages(*layout, *columns, reuse=self._finder is not None)


def span_lengths(requests: int) -> tuple[int, int]:
    """Return how many requests a span has, and how many of them are recorded."""
    spans = max(1, min(_MOST_SPANS, requests // _LEAST_SPAN))
    spacing = -(-requests // spans)
    return spacing, min(spacing, MOST_KEPT // spans)


def build_passages(
    diagram: Diagram, survey: Survey, window_s: float, *columns: Array, reuse: bool
) -> Passages:
    """Build passages of recorded requests, in their order.

    Columns are the number of the request in the trace, time (s), gap (s) before it, stream,
    operation, size (bytes), block, and age and place as `RecordedRequests` has them.
    """
    number, time_s, gap_s, stream, op, size_bytes, lbn, age, place = columns
    spacing, _ = span_lengths(survey.requests)
    start = np.append(np.flatnonzero(number % spacing == 0), len(number))
    begins = number[start[:-1]]
    # A decimal that the clock can tell apart.
    tick_s = 10.0 ** np.floor(np.log10(max(survey.tick_s, 1e-9)) + 1e-9)
    state = np.clip((lbn - diagram.first_lbn) // diagram.state_blocks, 0, diagram.states - 1)
    # Times are rounded, not gaps: errors do not add up.
    gap = np.rint(time_s / tick_s) - np.rint((time_s - gap_s) / tick_s)
    whole = (gap, stream, op, size_bytes, state, age, place)
    passages = Passages(
        RecordedRequests(*(column.astype(np.int64) for column in whole)),
        start,
        np.diff(begins, append=survey.requests),
        np.append(time_s[start[:-1]] - survey.first_s, survey.duration_s),
        window_s,
        float(tick_s),
        reuse,
    )
    if reuse and passages.is_whole:
        passages.join_extents(lbn, survey.device_of_stream)
    return passages
