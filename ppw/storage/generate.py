"""`generate_trace`: requests of a fitted model, as many as wanted, in bounded memory.

Modes of the order of requests:

``walk``
    Every stream walks its chain of states.
``round_robin``
    The published scheduler: every transition is a thread of its own that asks for its share of the
    requests, at even distances; streams of the result are these threads.

Arrival times:

``cascade``
    The number of requests in dyadic windows as `fitting.storage.cascade` draws it.
``windows``
    The same, with the counts of the coarse windows as they were, in their order.
``laws``
    The published way: the inter-arrival law of each transition and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fitting.storage import generator, reuse_distance
from fitting.storage.addresses import Addresses
from fitting.storage.chain import make_chain
from fitting.storage.diagram import KINDS, kind
from fitting.storage.survey import BLOCK
from measurements.traces.requests import SCHEMA
from ppw.errors import PpwError
from ppw.results.arguments import as_positive, check_choice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fitting.compiled.loops import FloatArray, IntArray
    from ppw.storage.trace_model import TraceModel

MODES = ("walk", "round_robin")
ARRIVALS = ("cascade", "windows", "laws")
# Requests made at once; a window of more makes its batch longer.
_AT_ONCE = 2**18
# A state with fewer requests takes the law of reuse of its stream and kind.
_LEAST_SEEN = 16
# Decimals of a time (s), where the original's clock told no more.
_DIGITS = 9


class RoundRobin:
    """Requests of all threads, each thread's at even distances over the whole.

    The j-th request of a thread with share w is number (j + φ)/w of all, with φ drawn once a
    thread; so after any number of requests each thread is within one of its share. A sequential
    thread goes on where it stopped itself; others start in the state that they lead to.
    """

    def __init__(self, model: TraceModel, kinds: IntArray, rng: np.random.Generator) -> None:
        self._model, self._rng = model, rng
        counts = model.counts
        self._share = counts.count / counts.count.sum()
        self._phase = rng.random(len(counts.pair))
        self._chain = make_chain(counts, kinds)
        self._done, self._due = 0, 0.0
        self._end = np.full(len(counts.pair), -1, dtype=np.int64)

    def take(self, number: int) -> generator.GeneratedRequests:
        """Return the next requests."""
        counts = self._model.counts
        transition = self._order(number)
        size = self._sizes(transition)
        lbn = self._addresses(transition, size)
        due = self._due + np.cumsum(self._inter_arrival_times(transition))
        self._due = float(due[-1])
        stream, op = counts.stream[transition], counts.op[transition]
        return generator.GeneratedRequests(
            due, stream.astype(np.int32), transition, lbn, size, op.astype(np.uint8)
        )

    def _order(self, number: int) -> IntArray:
        """Threads of the next requests: those whose turns come first."""
        first, last = (
            np.maximum(np.ceil(done * self._share - self._phase).astype(np.int64), 0)
            for done in (self._done, self._done + number)
        )
        # The turns of a thread within these requests, then all threads in the order of turns.
        turns = last - first
        transition = np.repeat(np.arange(len(turns)), turns)
        within = np.arange(len(transition)) - np.repeat(np.cumsum(turns) - turns, turns)
        turn = (first[transition] + within + self._phase[transition]) / self._share[transition]
        order = transition[np.argsort(turn, kind="stable")]
        self._done += number
        # Turns that fall into these requests are one more or less at times.
        spare = max(0, number - len(order))
        more = self._rng.choice(len(turns), spare, p=self._share)
        return np.concatenate([order[:number], more])

    def _inter_arrival_times(self, transition: IntArray) -> FloatArray:
        """Times (s) between all requests: a stream's own, over how many streams there are."""
        model = self._model
        gaps = model.laws.draw(transition, self._rng)
        stream = model.counts.stream[transition]
        return np.asarray(gaps * model.paces()[stream] * model.weights[stream])

    def _sizes(self, transition: IntArray) -> IntArray:
        classes = self._model.classes
        class_ = self._model.counts.size_class[transition]
        sizes = np.empty(len(transition), dtype=np.int64)
        for c in np.unique(class_):
            here = np.flatnonzero(class_ == c)
            share = classes.counts[c] / classes.counts[c].sum()
            sizes[here] = self._rng.choice(classes.sizes[c], len(here), p=share)
        return sizes

    def _addresses(self, transition: IntArray, size: IntArray) -> IntArray:
        """Addresses: sequential threads go on from their last end, thread by thread."""
        survey, order = self._model.survey, np.argsort(transition, kind="stable")
        lbn = self._random_addresses(transition)[order]
        # Sorted by thread, the blocks before a request in its batch are one running sum.
        thread, blocks = transition[order], size[order] // BLOCK
        starts = np.flatnonzero(np.r_[True, thread[1:] != thread[:-1]])
        number = np.diff(np.append(starts, len(thread)))
        last = self._end[thread[starts]]
        begin = np.where(last >= 0, last, lbn[starts])
        before = np.cumsum(blocks) - blocks
        run = np.repeat(begin - before[starts], number) + before
        run = survey.low_lbn + (run - survey.low_lbn) % (survey.high_lbn - survey.low_lbn)
        placed = np.where(self._model.counts.sequential[thread] == 1, run, lbn)
        ends = starts + number - 1
        self._end[thread[ends]] = placed[ends] + blocks[ends]
        found = np.empty_like(lbn)
        found[order] = placed
        return found

    def _random_addresses(self, transition: IntArray) -> IntArray:
        """Aligned addresses in the states that transitions lead to."""
        counts, survey, chain = self._model.counts, self._model.survey, self._chain
        state = np.empty(len(transition), dtype=np.int64)
        for level in np.unique(chain.level):
            here = np.flatnonzero(chain.level[transition] == level)
            t, entered = transition[here], chain.entered[level - 1]
            low, high = entered[chain.low[t]], entered[chain.high[t]]
            wanted = low + self._rng.random(len(t)) * (high - low)
            found = np.searchsorted(entered, wanted, side="right") - 1
            # Where only runs pass, none enters at random.
            state[here] = np.where(high > low, found, chain.low[t])
        first = counts.lowest[state]
        first = first + (survey.alignment_offset - first) % survey.alignment
        places = np.maximum((counts.highest[state] - first) // survey.alignment + 1, 1)
        slot = (self._rng.random(len(state)) * places).astype(np.int64)
        return np.asarray(np.minimum(first + slot * survey.alignment, counts.highest[state]))


@dataclass(frozen=True)
class GeneratedTrace:
    """A trace to be: the same requests whenever it is read; what `read_trace` gives, it has too.

    Made by `generate_trace`.
    """

    model: TraceModel
    mode: str
    seed: int
    count: int
    duration_s: float
    time_scale: float
    arrivals: str
    outstanding: int | None
    locality: bool
    stratified: bool
    entry: str
    caveats: tuple[str, ...]

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Names of streams and devices, those of the original."""
        return self.model.names if self.mode == "walk" else {}

    @property
    def findings(self) -> tuple[str, ...]:
        """What could mislead."""
        return self.caveats

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in order of arrival; every call begins anew."""
        source = _source(self)
        rng, places = (np.random.default_rng([self.seed, k]) for k in (1, 2))
        left = self.count
        times = _times_by_law if self.arrivals == "laws" else _times_by_windows
        for requests, time_s in times(self, source, rng):
            fits = min(left, int(np.searchsorted(time_s, self.duration_s, side="right")))
            if not self.locality:
                survey = self.model.survey
                slots = max(1, (survey.high_lbn - survey.low_lbn) // survey.alignment)
                slot = places.integers(slots, size=len(time_s))
                requests = requests._replace(lbn=survey.low_lbn + slot * survey.alignment)
            if fits:
                yield self._batch(requests, time_s, fits)
            left -= fits
            if left <= 0 or fits < len(time_s):
                return

    def to_table(self) -> pa.Table:
        """All requests as one table."""
        return pa.Table.from_batches(list(self.batches()), SCHEMA)

    def transition_shares(self) -> FloatArray:
        """Share of the requests that each transition of the model has, in ``round_robin``."""
        counts = np.zeros(len(self.model.counts.pair))
        for batch in self.batches():
            counts += np.bincount(batch.column("stream").to_numpy(), minlength=len(counts))
        return np.asarray(counts / counts.sum())

    def _batch(
        self, requests: generator.GeneratedRequests, time_s: FloatArray, n: int
    ) -> pa.RecordBatch:
        survey, stream = self.model.survey, requests.stream[:n]
        # Closed loop: a request is made when another completes, whenever that is.
        time = np.full(n, np.nan) if self.outstanding else time_s[:n] * self.time_scale
        own = survey.streams[stream] if self.mode == "walk" else requests.transition[:n]
        device = survey.devices[stream]
        asked = requests.lbn[:n], requests.size_bytes[:n], requests.op[:n]
        no_latency, no_file = np.full(n, np.nan), np.full(n, -1, dtype=np.int32)
        columns = (time, own.astype(np.int32), device.astype(np.int32), *asked)
        arrays = [pa.array(column) for column in (*columns, no_latency, no_file)]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def generate_trace(
    model: TraceModel,
    *,
    mode: str = "walk",
    seed: int = 0,
    count: int | None = None,
    duration_s: float | None = None,
    time_scale: float = 1.0,
    arrivals: str = "cascade",
    outstanding: int | None = None,
    locality: bool = True,
    draws: str = "stratified",
    entry: str = "arrivals",
) -> GeneratedTrace:
    """Generate requests of a model.

    Parameters
    ----------
    model : TraceModel
    mode : {"walk", "round_robin"}
        How requests follow each other.
    seed : int
        Of everything that is drawn.
    count : int, optional
        Number of requests. Default: that of the original, or what the duration holds.
    duration_s : float, optional
        End (s) of the generated trace, on its own clock.
    time_scale : float
        Factor of all times: 2 is twice as slow. The model is open loop: on a device that cannot
        keep up, requests queue whatever the factor.
    arrivals : {"cascade", "windows", "laws"}
        Where times come from.
    outstanding : int, optional
        Keep so many requests in flight instead (closed loop): inter-arrival times are left out
        and ``time_s`` is missing.
    locality : bool
        False places every request anywhere in the touched space, as an ablation.
    draws : {"stratified", "independent"}
        Whether shares are met closely or as chance has it.
    entry : {"arrivals", "occupancy"}
        How a coarse state is entered; see `fitting.storage.chain`.

    Returns
    -------
    GeneratedTrace

    Raises
    ------
    PpwError
        For arguments that cannot be.
    """
    check_choice("mode", mode, MODES)
    check_choice("arrivals", arrivals, ARRIVALS)
    check_choice("draws", draws, ("stratified", "independent"))
    scale = as_positive("time scale", time_scale)
    if outstanding is not None and (outstanding < 1 or duration_s is not None or scale != 1):
        raise PpwError(
            "requests outstanding are 1 or more, and exclude inter-arrival times: give a count, "
            "and no duration or time scale"
        )
    if count is not None and count < 1:
        raise PpwError(f"count {count} is no number of requests")
    end = np.inf if duration_s is None else as_positive("duration (s)", duration_s) / scale
    number = count if count is not None else model.survey.requests
    if count is None and duration_s is not None:
        number = 2**62
    return GeneratedTrace(
        model=model,
        mode=mode,
        seed=int(seed),
        count=int(number),
        duration_s=float(end),
        time_scale=scale,
        arrivals=arrivals,
        outstanding=outstanding,
        locality=locality,
        stratified=draws == "stratified",
        entry=entry,
        caveats=tuple(_caveats(model, locality, scale, outstanding)),
    )


def _caveats(
    model: TraceModel, locality: bool, scale: float, outstanding: int | None
) -> Iterator[str]:
    if outstanding is not None:
        yield (
            f"closed loop: requests have no times of their own; replay them with {outstanding} in "
            "flight"
        )
    if not locality:
        yield "without locality addresses are uniform: no cache question can be answered"
    elif model.reuse is None:
        yield "the model has no law of reuse: a cache would hit less than with the original"
    if scale != 1:
        yield (
            "times are scaled open loop: requests arrive on time even where the device falls "
            "behind; use outstanding requests for a closed loop"
        )


def _source(trace: GeneratedTrace) -> generator.Generator | RoundRobin:
    """Source of the requests, without their times."""
    model, rng = trace.model, np.random.default_rng([trace.seed, 0])
    counts, survey = model.counts, model.survey
    # Kind of the request of every transition: by operation and size class.
    kinds = np.array(
        [[kind(op, int(s[0]), survey.piece) for s in model.classes.sizes] for op in (0, 1)]
    )[np.minimum(counts.op, 1), counts.size_class]
    if trace.mode == "round_robin":
        return RoundRobin(model, kinds, rng)
    learnt = generator.Learnt(
        counts=counts,
        kinds=kinds,
        chain=make_chain(counts, kinds, trace.entry),
        runs=model.runs,
        laws=model.laws,
        classes=model.classes,
        addresses=Addresses(
            survey.alignment,
            survey.alignment_offset,
            survey.high_lbn,
            _reuse_law(model) if trace.locality else None,
            survey.piece,
            survey.device_of_stream,
            _accessed_share(model),
        ),
        pace=model.paces(),
    )
    expected = float(min(trace.count, trace.duration_s * model.rate)) / survey.requests
    return generator.Generator(learnt, expected=expected, rng=rng, stratified=trace.stratified)


def _reuse_law(model: TraceModel) -> FloatArray | None:
    """Law of reuse by touched state: its own where it was seen, its stream's and kind's if not."""
    if model.reuse is None:
        return None
    origin = model.counts.state_origin
    # States are in the order of their origins.
    _, first, of_state = np.unique(origin, return_index=True, return_inverse=True)
    pooled = np.add.reduceat(model.reuse, first)
    seen = model.reuse.sum(axis=1) >= _LEAST_SEEN
    counts = np.where(seen[:, None], model.reuse, pooled[of_state])
    device = model.survey.device_of_stream
    requests = np.bincount(device, model.survey.stream_counts)
    return reuse_distance.reuse_law(counts, requests[device[origin // KINDS]])


def _accessed_share(model: TraceModel) -> FloatArray:
    """Share of what runs went on to from fresh places that was touched before, by device."""
    device = model.survey.device_of_stream
    if model.reuse is None:
        return np.zeros(int(device.max()) + 1)
    of_state = device[model.counts.state_origin // KINDS]
    pieces, touched = (
        np.bincount(of_state, model.reuse[:, column])
        for column in (reuse_distance.PIECES, reuse_distance.MET)
    )
    return np.asarray(touched / np.maximum(pieces, 1))


def _times_by_law(
    trace: GeneratedTrace, source: generator.Generator | RoundRobin, rng: np.random.Generator
) -> Iterator[tuple[generator.GeneratedRequests, FloatArray]]:
    left, first = trace.count, None
    while left > 0:
        requests = source.take(min(left, _AT_ONCE))
        first = requests.due_s[0] if first is None else first
        yield requests, requests.due_s - first
        left -= len(requests.due_s)


def _times_by_windows(
    trace: GeneratedTrace, source: generator.Generator | RoundRobin, rng: np.random.Generator
) -> Iterator[tuple[generator.GeneratedRequests, FloatArray]]:
    cascade, alone = trace.model.cascade, len(trace.model.survey.streams) == 1
    duration, due, first = cascade.windows.duration_s, 0.0, None
    in_order = trace.arrivals == "windows"
    while True:
        course = cascade.load_profile(rng, in_order=in_order)
        # Whole windows are placed together, as many as make a batch of requests.
        ends, width = np.cumsum(cascade.counts[course]), duration / len(course)
        start = 0
        while start < len(course):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + _AT_ONCE, side="right")))
            number = int(ends[stop - 1] - before)
            if number:
                requests = source.take(number)
                if alone:
                    gaps = cascade.ordered_interarrivals(np.diff(requests.due_s, prepend=due), rng)
                    due = float(requests.due_s[-1])
                else:
                    # Streams that walk alone do not make room for each other as they did.
                    gaps = cascade.draw_interarrivals(number, rng)
                windows = course[start:stop]
                times = cascade.place(windows, start * width, gaps, rng, in_order=in_order)
                first = times[0] if first is None else first
                times = times - first
                if trace.model.survey.tick_s >= 10.0**-_DIGITS:
                    # Errors of rounding would put a time at a window's edge into the one before.
                    times = np.round(times, _DIGITS)
                yield requests, times
            start = stop
        # The next day is like this one.
        first = (first or 0.0) - duration
