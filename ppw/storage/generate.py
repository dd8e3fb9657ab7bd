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
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fitting.storage.addresses import Addresses
from fitting.storage.chain import make_chain
from fitting.storage.diagram import KINDS, kind
from fitting.storage.generator import Learnt, Requests, Walk
from fitting.storage.reuse_distance import MET, PIECES, reuse_law
from fitting.storage.survey import BLOCK
from measurements.traces.requests import SCHEMA
from ppw.errors import PpwError
from ppw.results.arguments import as_positive, known_choice

if TYPE_CHECKING:
    from ppw.storage.trace_model import TraceModel

    FloatArray = np.ndarray[Any, np.dtype[np.float64]]
    from collections.abc import Iterator

    from fitting.storage.generator import IntArray


# The published scheduler: a thread a transition, each with its share of the requests.


class RoundRobin:
    """Requests of all threads, each thread's at even distances over the whole.

    The j-th request of a thread with share w is number (j + φ)/w of all, with φ drawn once a
    thread; so after any number of requests each thread is within one of its share. A sequential
    thread goes on where it stopped itself; others start in the state that they lead to.
    """

    def __init__(
        self,
        model: TraceModel,
        kinds: IntArray,
        rng: np.random.Generator,
    ) -> None:
        self._model, self._rng = model, rng
        counts = model.counts
        self._share = counts.count / counts.count.sum()
        self._phase = rng.random(len(counts.pair))
        self._chain = make_chain(counts, kinds)
        self._done, self._due = 0, 0.0
        self._end = np.full(len(counts.pair), -1, dtype=np.int64)

    def take(self, number: int) -> Requests:
        """Return the next requests."""
        transition = self._order(number)
        size = self._sizes(transition)
        lbn = self._addresses(transition, size)
        due = self._due + np.cumsum(self._gaps(transition))
        self._due = float(due[-1])
        stream = self._model.counts.stream[transition].astype(np.int32)
        op = self._model.counts.op[transition].astype(np.uint8)
        return Requests(due, stream, transition, lbn, size, op)

    def _order(self, number: int) -> IntArray:
        """Threads of the next requests: those whose turns come first."""
        first = np.ceil(self._done * self._share - self._phase).astype(np.int64)
        first = np.maximum(first, 0)
        last = np.ceil((self._done + number) * self._share - self._phase).astype(np.int64)
        turns = np.maximum(last - first, 0)
        transition = np.repeat(np.arange(len(turns)), turns)
        within = np.arange(len(transition)) - np.repeat(np.cumsum(turns) - turns, turns)
        turn = (first[transition] + within + self._phase[transition]) / self._share[transition]
        order = transition[np.argsort(turn, kind="stable")]
        self._done += number
        # Turns that fall into these requests are one more or less at times.
        spare = max(0, number - len(order))
        more = self._rng.choice(len(turns), spare, p=self._share)
        return np.concatenate([order[:number], more])

    def _gaps(self, transition: IntArray) -> FloatArray:
        """Gaps of the merged requests: a stream's own, over how many streams there are."""
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
        counts, survey = self._model.counts, self._model.survey
        lbn = self._anywhere(transition)
        order = np.argsort(transition, kind="stable")
        thread, blocks = transition[order], size[order] // BLOCK
        new = np.r_[True, thread[1:] != thread[:-1]]
        starts = np.flatnonzero(new)
        before = np.cumsum(blocks) - blocks
        before -= np.repeat(before[starts], np.diff(np.append(starts, len(thread))))
        at = np.where(self._end[thread[starts]] >= 0, self._end[thread[starts]], lbn[order][starts])
        run = np.repeat(at, np.diff(np.append(starts, len(thread)))) + before
        span = survey.high_lbn - survey.low_lbn
        run = survey.low_lbn + (run - survey.low_lbn) % span
        on = counts.sequential[thread] == 1
        placed = np.where(on, run, lbn[order])
        ends = np.append(starts[1:], len(thread)) - 1
        self._end[thread[ends]] = placed[ends] + blocks[ends]
        found = np.empty_like(lbn)
        found[order] = placed
        return found

    def _anywhere(self, transition: IntArray) -> IntArray:
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


MODES = ("walk", "round_robin")
ARRIVALS = ("cascade", "windows", "laws")
# Requests made at once; a window of more makes its batch longer.
_AT_ONCE = 2**18
_LEAST_SEEN = 16
# Decimals of a time (s), where the original's clock told no more.
_DIGITS = 9


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
                requests = requests._replace(lbn=_uniform(self.model, len(time_s), places))
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

    def _batch(self, requests: Requests, time_s: FloatArray, n: int) -> pa.RecordBatch:
        survey, stream = self.model.survey, requests.stream[:n]
        # Closed loop: a request is made when another completes, whenever that is.
        time = np.full(n, np.nan) if self.outstanding else time_s[:n] * self.time_scale
        own = survey.streams[stream] if self.mode == "walk" else requests.transition[:n]
        missing = np.full(n, np.nan), np.full(n, -1, dtype=np.int32)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(time),
                pa.array(own.astype(np.int32)),
                pa.array(survey.devices[stream].astype(np.int32)),
                pa.array(requests.lbn[:n]),
                pa.array(requests.size_bytes[:n]),
                pa.array(requests.op[:n]),
                *map(pa.array, missing),
            ],
            schema=SCHEMA,
        )


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
    known_choice("mode", mode, MODES)
    known_choice("arrivals", arrivals, ARRIVALS)
    known_choice("draws", draws, ("stratified", "independent"))
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


def request_kinds(model: TraceModel) -> IntArray:
    """Kind of the request of every transition."""
    piece = model.survey.piece
    by_class = np.array(
        [[kind(op, int(s[0]), piece) for s in model.classes.sizes] for op in (0, 1)]
    )
    return by_class[np.minimum(model.counts.op, 1), model.counts.size_class]


def _source(trace: GeneratedTrace) -> Walk | RoundRobin:
    model, rng = trace.model, np.random.default_rng([trace.seed, 0])
    if trace.mode == "round_robin":
        return RoundRobin(model, request_kinds(model), rng)
    kinds, survey = request_kinds(model), model.survey
    reuse = _reuse_law(model) if trace.locality else None
    addresses = Addresses(
        survey.alignment,
        survey.alignment_offset,
        survey.high_lbn,
        reuse,
        survey.piece,
        survey.device_of_stream,
        _share_met(model),
    )
    learnt = Learnt(
        counts=model.counts,
        kinds=kinds,
        chain=make_chain(model.counts, kinds, trace.entry),
        runs=model.runs,
        laws=model.laws,
        classes=model.classes,
        addresses=addresses,
        pace=model.paces(),
    )
    expected = _expected(trace) / survey.requests
    return Walk(learnt, expected=expected, rng=rng, stratified=trace.stratified)


def _uniform(model: TraceModel, number: int, rng: np.random.Generator) -> IntArray:
    """Aligned addresses anywhere in the touched space."""
    survey = model.survey
    slots = max(1, (survey.high_lbn - survey.low_lbn) // survey.alignment)
    return np.asarray(survey.low_lbn + rng.integers(slots, size=number) * survey.alignment)


def _expected(trace: GeneratedTrace) -> float:
    """Requests to come, about."""
    return float(min(trace.count, trace.duration_s * trace.model.rate))


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
    return reuse_law(counts, requests[device[origin // KINDS]])


def _share_met(model: TraceModel) -> FloatArray:
    """Share of what runs went on to from fresh places that was touched before, by device."""
    device = model.survey.device_of_stream
    if model.reuse is None:
        return np.zeros(int(device.max()) + 1)
    of_state = device[model.counts.state_origin // KINDS]
    pieces, met = (np.bincount(of_state, model.reuse[:, k]) for k in (PIECES, MET))
    return np.asarray(met / np.maximum(pieces, 1))


def _times_by_law(
    trace: GeneratedTrace, source: Walk | RoundRobin, rng: np.random.Generator
) -> Iterator[tuple[Requests, FloatArray]]:
    left, first = trace.count, None
    while left > 0:
        requests = source.take(min(left, _AT_ONCE))
        first = requests.due_s[0] if first is None else first
        yield requests, requests.due_s - first
        left -= len(requests.due_s)


def _to_the_nanosecond(time_s: FloatArray, tick_s: float) -> FloatArray:
    """Times without errors of rounding, by which one at a window's edge is in the one before."""
    return np.round(time_s, _DIGITS) if tick_s >= 10.0**-_DIGITS else time_s


def _times_by_windows(
    trace: GeneratedTrace, source: Walk | RoundRobin, rng: np.random.Generator
) -> Iterator[tuple[Requests, FloatArray]]:
    cascade, alone = trace.model.cascade, len(trace.model.survey.streams) == 1
    duration, due, first = cascade.windows.duration_s, 0.0, None
    in_order = trace.arrivals == "windows"
    while True:
        course = cascade.course(rng, in_order=in_order)
        ends, width = np.cumsum(cascade.counts[course]), duration / len(course)
        start = 0
        while start < len(course):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + _AT_ONCE, side="right")))
            number = int(ends[stop - 1] - before)
            if number:
                requests = source.take(number)
                if alone:
                    gaps = cascade.ordered_gaps(np.diff(requests.due_s, prepend=due), rng)
                    due = float(requests.due_s[-1])
                else:
                    # Streams that walk alone do not make room for each other as they did.
                    gaps = cascade.draw_gaps(number, rng)
                windows = course[start:stop]
                times = cascade.place(windows, start * width, gaps, rng, in_order=in_order)
                first = times[0] if first is None else first
                yield requests, _to_the_nanosecond(times - first, trace.model.survey.tick_s)
            start = stop
        # The next day is like this one.
        first = (first or 0.0) - duration
