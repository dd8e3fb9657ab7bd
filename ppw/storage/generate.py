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

`jobs_of`: the same load as jobs of a load generator, one a transition, or one a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fitting.compiled.loops import FloatArray, IntArray
from fitting.storage import generator, interarrival, reuse_distance as rd
from fitting.storage.addresses import Addresses
from fitting.storage.survey import BLOCK, KINDS, request_kind
from measurements.loads.load_files import AddressZone, LoadJob
from measurements.traces.requests import OPERATIONS, SCHEMA
from ppw.errors import PpwError
from ppw.results.text import as_positive, check_choice

if TYPE_CHECKING:
    from ppw.storage.trace_model import TraceModel

MODES = ("walk", "round_robin")
ARRIVALS = ("cascade", "windows", "laws")
_WRITE = 1
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
        self._chain = generator.make_chain(counts, kinds)
        self._done, self._due = 0, 0.0
        self._end = np.full(len(counts.pair), -1, dtype=np.int64)

    def take(self, number: int) -> generator.GeneratedRequests:
        """Return the next requests."""
        counts, transition = self._model.counts, self._order(number)
        size = self._sizes(transition)
        lbn = self._addresses(transition, size)
        due = self._due + np.cumsum(self._inter_arrival_times(transition))
        self._due = float(due[-1])
        stream = counts.stream[transition].astype(np.int32)
        op = counts.op[transition].astype(np.uint8)
        return generator.GeneratedRequests(due, stream, transition, lbn, size, op)

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
        """Draw a size (B) of the class of each transition."""
        classes, class_ = self._model.classes, self._model.counts.size_class[transition]
        sizes = np.empty(len(transition), dtype=np.int64)
        for c in np.unique(class_):
            here, counts = class_ == c, classes.counts[c]
            sizes[here] = self._rng.choice(classes.sizes[c], here.sum(), p=counts / counts.sum())
        return sizes

    def _addresses(self, transition: IntArray, size: IntArray) -> IntArray:
        """Addresses: sequential threads go on from their last end, thread by thread."""
        survey, order = self._model.survey, np.argsort(transition, kind="stable")
        lbn, found = self._random_addresses(transition)[order], np.empty_like(transition)
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
                yield self._record_batch(requests, time_s, fits)
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

    def _record_batch(
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
        How a coarse state is entered; see `fitting.storage.generator`.

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
            "outstanding requests must be 1 or more, and have no inter-arrival times: give a "
            "count, but no duration or time scale"
        )
    if count is not None and count < 1:
        raise PpwError(f"count {count} is not a number of requests")
    end = np.inf if duration_s is None else as_positive("duration (s)", duration_s) / scale
    # A duration alone sets no bound on the number of requests.
    most = model.survey.requests if duration_s is None else 2**62
    requests = most if count is None else int(count)
    caveats = tuple(_generation_caveats(model, locality, scale, outstanding))
    times = float(end), scale, arrivals, outstanding
    how = locality, draws == "stratified", entry
    return GeneratedTrace(model, mode, int(seed), requests, *times, *how, caveats)


def _generation_caveats(
    model: TraceModel, locality: bool, scale: float, outstanding: int | None
) -> Iterator[str]:
    if outstanding is not None:
        yield (
            f"closed loop: requests have no arrival times; replay them with {outstanding} in flight"
        )
    if not locality:
        yield (
            "without locality, addresses are uniform, so the trace cannot show the effect of a "
            "cache"
        )
    elif model.reuse is None:
        yield "the model has no law of reuse, so a cache has fewer hits than with the original"
    if scale != 1:
        yield (
            "times are scaled in an open loop: requests arrive on time even if the device falls "
            "behind; use --outstanding for a closed loop"
        )


def _source(trace: GeneratedTrace) -> generator.Generator | RoundRobin:
    """Source of the requests, without their times."""
    model, rng = trace.model, np.random.default_rng([trace.seed, 0])
    counts, survey = model.counts, model.survey
    # Kind of the request of every transition: by operation and size class.
    sizes = [int(size[0]) for size in model.classes.sizes]
    by_op = np.array([[request_kind(op, size, survey.piece) for size in sizes] for op in (0, 1)])
    kinds = by_op[np.minimum(counts.op, 1), counts.size_class]
    if trace.mode == "round_robin":
        return RoundRobin(model, kinds, rng)
    addresses = Addresses(
        *(survey.alignment, survey.alignment_offset, survey.high_lbn),
        _reuse_law(model) if trace.locality else None,
        *(survey.piece, survey.device_of_stream, _accessed_share(model)),
    )
    chain = generator.make_chain(counts, kinds, trace.entry)
    parts = (model.runs, model.laws, model.classes, addresses, model.paces())
    learnt = generator.Learnt(counts, kinds, chain, *parts)
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
    return rd.reuse_law(counts, requests[device[origin // KINDS]])


def _accessed_share(model: TraceModel) -> FloatArray:
    """Share of what runs went on to from fresh places that was touched before, by device."""
    device = model.survey.device_of_stream
    if model.reuse is None:
        return np.zeros(int(device.max()) + 1)
    of_state = device[model.counts.state_origin // KINDS]
    columns = model.reuse.T[[rd.PIECES, rd.MET]]
    pieces, touched = (np.bincount(of_state, column) for column in columns)
    return np.asarray(touched / np.maximum(pieces, 1))


def _times_by_law(
    trace: GeneratedTrace, source: generator.Generator | RoundRobin, rng: np.random.Generator
) -> Iterator[tuple[generator.GeneratedRequests, FloatArray]]:
    """Yield requests at the times of the laws of their transitions."""
    first = None
    for left in range(trace.count, 0, -_AT_ONCE):
        requests = source.take(min(left, _AT_ONCE))
        first = requests.due_s[0] if first is None else first
        yield requests, requests.due_s - first


def _times_by_windows(
    trace: GeneratedTrace, source: generator.Generator | RoundRobin, rng: np.random.Generator
) -> Iterator[tuple[generator.GeneratedRequests, FloatArray]]:
    """Yield requests at times within windows whose counts the cascade draws."""
    cascade, alone = trace.model.cascade, len(trace.model.survey.streams) == 1
    duration, due, first = cascade.windows.duration_s, 0.0, None
    in_order = trace.arrivals == "windows"
    while True:
        profile = cascade.load_profile(rng, in_order=in_order)
        ends, width = np.cumsum(cascade.counts[profile]), duration / len(profile)
        for start, stop, number in _window_batches(ends):
            requests = source.take(number)
            if alone:
                gaps = cascade.ordered_interarrivals(np.diff(requests.due_s, prepend=due), rng)
                due = float(requests.due_s[-1])
            else:
                # Streams that walk alone do not make room for each other as they did.
                gaps = cascade.draw_interarrivals(number, rng)
            windows = profile[start:stop]
            times = cascade.place(windows, start * width, gaps, rng, in_order=in_order)
            first = times[0] if first is None else first
            times = times - first
            if trace.model.survey.tick_s >= 10.0**-_DIGITS:
                # Errors of rounding would put a time at a window's edge into the one before.
                times = np.round(times, _DIGITS)
            yield requests, times
        # The next day is like this one.
        first = (first or 0.0) - duration


def _window_batches(ends: IntArray) -> Iterator[tuple[int, int, int]]:
    """Yield first window, end and requests of batches of whole windows, by requests so far."""
    start, before = 0, 0
    while start < len(ends):
        stop = max(start + 1, int(np.searchsorted(ends, before + _AT_ONCE, side="right")))
        if number := int(ends[stop - 1] - before):
            yield start, stop, number
        start, before = stop, int(ends[stop - 1])


# Jobs of a load generator.

BY = ("transition", "stream")
_LAYOUT = ["stream", "op", "sequential", "size_class", "level", "target"]


def jobs_of(
    model: TraceModel, *, by: str = "stream", space_bytes: float | None = None
) -> tuple[tuple[LoadJob, ...], tuple[str, ...]]:
    """Turn a model into jobs, the busiest first, and say in sentences what they leave out.

    By "stream" they have mixed sizes and zones; by "transition" one range, operation, size class
    and order each. Transitions from several states to one end are one job: a generator thread knows
    no state before. The space is shrunk in proportion to ``space_bytes`` (B) where given.
    """
    check_choice("by", by, BY)
    counts, pairs = model.counts, model.diagram.pairs(model.counts.pair)
    columns = {name: getattr(counts, name) for name in ("stream", "op", "sequential", "size_class")}
    numbers = {"level": pairs.level, "target": pairs.target, "count": counts.count}
    rows = pd.DataFrame({**columns, **numbers, "law": model.laws.law})
    moves = rows["op"] <= _WRITE
    left = float(rows.loc[~moves, "count"].sum() / rows["count"].sum())
    if not moves.any():
        raise PpwError("the model has no reads and writes, so ppw cannot make a load")
    largest = int(model.survey.sizes.max())
    if space_bytes is not None and space_bytes < 2 * largest:
        raise PpwError(f"a space of {space_bytes:g} B is too short for requests of {largest} B")
    # A target that is longer than the modelled space is used from its start on.
    reach = model.diagram.blocks * BLOCK
    scale = 1.0 if space_bytes is None else min(1.0, space_bytes / reach)
    notes = [f"discards, {left:.2%} of the requests, are left out"] if left else []
    if scale < 1:
        notes.append(
            f"the space is {1 / scale:.3g} times smaller than the trace's, so requests are closer "
            "to each other than in the trace"
        )
    maker = _JobMaker(model, rows[moves], scale, int(model.survey.alignment) * BLOCK)
    jobs = maker.by_transition() if by == "transition" else maker.by_stream()
    return tuple(sorted(jobs, key=lambda job: (-job.share, job.name))), tuple(notes)


@dataclass(frozen=True)
class _JobMaker:
    """Transitions of reads and writes, and the factor by which the space is shrunk."""

    model: TraceModel
    rows: pd.DataFrame
    scale: float
    alignment_bytes: int  # requests begin at multiples of it; an offset of their grid is left out

    def by_transition(self) -> Iterator[LoadJob]:
        """Yield a job for each range, operation, size class and order of a stream."""
        for key, members in self.rows.groupby(_LAYOUT, sort=True):
            stream, op, sequential, size_class, level, target = map(int, key)  # type: ignore[arg-type]
            size, order = self._size(size_class), "seq" if sequential else "rand"
            name = f"s{stream} {OPERATIONS[op]} {order} {size} L{level} S{target}"
            constant = members.loc[members["law"] == interarrival.CONSTANT, "count"].sum()
            arrivals = "constant" if constant > members["count"].sum() / 2 else "poisson"
            zone = self._zone(level, target, size)
            yield self._make_job(name, members, ((size, 1.0),), (zone,), arrivals)

    def by_stream(self) -> Iterator[LoadJob]:
        """Yield a job for each stream, with mixed sizes and zones."""
        for stream, members in self.rows.groupby("stream", sort=True):
            sizes, zones = self._sizes(members), self._zones(int(str(stream)))
            yield self._make_job(f"stream {stream}", members, sizes, zones, "poisson")

    def _make_job(
        self, name: str, members: pd.DataFrame, sizes: Any, zones: Any, arrivals: str
    ) -> LoadJob:
        weight = members["count"].to_numpy(dtype=float)
        count = float(weight.sum())
        return LoadJob(
            name=name,
            rate=self.model.rate * count / float(self.model.counts.count.sum()),
            share=count / float(self.rows["count"].sum()),
            read_share=float(weight[members["op"] == 0].sum() / count),
            random_share=float(weight[members["sequential"] == 0].sum() / count),
            sizes=sizes,
            zones=zones,
            arrivals=arrivals,
            alignment_bytes=self.alignment_bytes,
        )

    def _sizes(self, members: pd.DataFrame) -> tuple[tuple[int, float], ...]:
        """Sizes with their shares; classes of one size are joined."""
        shares = members.groupby("size_class")["count"].sum()
        sizes = [self._size(int(str(class_))) for class_ in shares.index]
        joined = (shares / shares.sum()).groupby(sizes).sum()
        return tuple(zip(joined.index.tolist(), joined.tolist(), strict=True))

    def _size(self, class_: int) -> int:
        """Size that stands for a class: its mean, in whole blocks."""
        sizes, counts = self.model.classes.sizes[class_], self.model.classes.counts[class_]
        if len(sizes) == 1:
            return max(BLOCK, int(sizes[0]))
        return max(1, round(float(sizes @ counts) / float(counts.sum()) / BLOCK)) * BLOCK

    def _zones(self, stream: int) -> tuple[AddressZone, ...]:
        """Finest states that a stream accesses, by their share of its requests."""
        counts, levels = self.model.counts, self.model.diagram.levels
        mine = counts.stream_of_state == stream
        states, row = np.unique(counts.state[mine], return_inverse=True)
        arrivals = np.bincount(row, counts.occupancy[mine])
        shares = zip(states.tolist(), (arrivals / arrivals.sum()).tolist(), strict=True)
        zones = [self._zone(levels, state, 0, share) for state, share in shares]
        return _join_short(zones, int(self.model.survey.sizes.max()))

    def _zone(self, level: int, state: int, least: int, share: float = 1.0) -> AddressZone:
        """Bytes of a state, in the space of the target."""
        diagram, step = self.model.diagram, self.alignment_bytes
        width = diagram.state_blocks * diagram.fan_out ** (diagram.levels - level)
        first = state * width
        end = max(min(first + width, diagram.blocks), first + 1)
        start, stop = (int(at * BLOCK * self.scale) // step * step for at in (first, end))
        return AddressZone(start, max(stop, start + max(step, least)), share)


def _join_short(zones: list[AddressZone], largest: int) -> tuple[AddressZone, ...]:
    """Zones in order, joined where they would be shorter than a request."""
    joined: list[AddressZone] = []
    for zone in zones:
        last = joined[-1] if joined else None
        # A generator cannot place a request in a zone that is shorter.
        if last and (last.end_byte - last.first_byte < largest or zone.first_byte < last.end_byte):
            end = max(last.end_byte, zone.end_byte)
            joined[-1] = AddressZone(last.first_byte, end, last.share + zone.share)
        else:
            joined.append(zone)
    tail = joined[-1]
    end = max(tail.end_byte, tail.first_byte + largest)
    return (*joined[:-1], AddressZone(tail.first_byte, end, tail.share))
