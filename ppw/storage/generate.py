"""`generate_trace`: requests of a fitted model, as many as wanted, in bounded memory.

Requests come in passages of the trace, in another order (`fitting.storage.generator`). In the
published scheduler every transition is a thread that requests its share at even distances. It is
left to load generators (`jobs_of`, by transition): such requests have no bursts, and their
addresses do not follow from each other.

Arrival times:

``cascade``
    Those of the passages: load that builds up stays together, and its blocks change places.
``windows``
    The same, with the passages in the order of the trace.
``laws``
    The published way: the inter-arrival law of each transition and nothing else.

`jobs_of`: the same load as jobs of a load generator, one a transition, or one a stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fitting.compiled.loops import IntArray
from fitting.storage import generator, interarrival
from fitting.storage.references import SEQUENTIAL
from fitting.storage.survey import BLOCK
from measurements.loads import load_files
from measurements.loads.load_files import AddressZone, LoadJob
from measurements.table.units import size_text
from measurements.traces.requests import OPERATIONS, SCHEMA
from ppw.errors import PpwError
from ppw.results.text import as_positive, check_choice
from ppw.storage import trace_source as ts
from ppw.storage.scaling import AS_IT_IS, Scale, space_note

if TYPE_CHECKING:
    from ppw.storage.trace_model import TraceModel

MODES = ("walk",)
ARRIVALS = ("cascade", "windows", "laws")
_WRITE = 1
# More streams than this are short-lived processes, which a number at their end tells apart.
_MANY_STREAMS, _NUMBER = 64, re.compile(r"[\s:_(-]*\d+\)?$")
_REMOVED = (
    "mode 'round_robin' was removed: threads that take turns keep neither bursts nor the order of "
    "addresses, and their traces fail ppw trace validate. Leave the mode out; for the published "
    "threads as a load, use: ppw trace convert MODEL --jobs transition"
)


def _process_names(model: TraceModel) -> list[str]:
    """Name the process of each stream: its name without a number at the end."""
    known = model.names.get("stream", ())
    names = [known[c] if c < len(known) else str(c) for c in model.survey.streams.tolist()]
    return [_NUMBER.sub("", name) or name for name in names]


def stream_groups(model: TraceModel) -> IntArray:
    """Number the streams; where there are many, those of one process name have one number."""
    if len(model.survey.streams) <= _MANY_STREAMS:
        return np.arange(len(model.survey.streams))
    return np.unique(_process_names(model), return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class GeneratedTrace:
    """A trace to be: the same requests whenever it is read; what `read_trace` gives, it has too.

    Made by `generate_trace`.
    """

    model: TraceModel
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
    scale: Scale = AS_IT_IS

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Names of streams and devices: those of the original, and of its copies."""
        return self._scale_load().names if self.scale.streams > 1 else self.model.names

    @property
    def findings(self) -> tuple[str, ...]:
        """What could mislead."""
        return self.caveats

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in order of arrival; every call begins anew."""
        if self.scale == AS_IT_IS:
            yield from self._batches_of_one()
            return
        left = self.count
        for batch in self._scale_load().batches():
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return

    def _scale_load(self) -> ts.Batches:
        """Scale the trace: each copy of the load has its part of the requests."""
        each = -(-self.count // self.scale.streams)
        one = replace(self, scale=AS_IT_IS, count=each)
        # A space alone needs no pass over the trace.
        survey = ts.survey(one).survey if self.scale.streams > 1 else self.model.survey
        return self.scale.apply(one, survey)

    def _batches_of_one(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests of the load as it is in the model's space."""
        survey, left = self.model.survey, self.count
        places, law_rng = (np.random.default_rng([self.seed, k]) for k in (1, 2))
        parts = self.model.counts, self.model.laws, self.model.classes
        laws = generator.LawTimes(*parts, self.model.paces() * self.model.weights, law_rng)
        for made in self._generator().batches():
            requests = made
            if self.arrivals == "laws":
                requests = requests._replace(time_s=laws.times(made))
            if not self.locality:
                slots = max(1, (survey.high_lbn - survey.low_lbn) // survey.alignment)
                slot = places.integers(slots, size=len(requests.lbn))
                requests = requests._replace(lbn=survey.low_lbn + slot * survey.alignment)
            fits = min(left, int(np.searchsorted(requests.time_s, self.duration_s, side="right")))
            if fits:
                yield self._record_batch(requests, fits)
            left -= fits
            if left <= 0 or fits < len(made.time_s):
                return

    def to_table(self) -> pa.Table:
        """All requests as one table."""
        return pa.Table.from_batches(list(self.batches()), SCHEMA)

    def _generator(self) -> generator.Generator:
        """Make the source of the requests."""
        model = self.model
        requests = min(self.count, self.duration_s * model.rate)
        return generator.Generator(
            *(model.counts, model.survey, model.passages),
            expected=float(requests) / model.survey.requests,
            rng=np.random.default_rng([self.seed, 0]),
            entry=self.entry,
            in_order=self.arrivals == "windows",
            repeat=not self.stratified,
        )

    def _record_batch(self, requests: generator.GeneratedRequests, n: int) -> pa.RecordBatch:
        survey, stream = self.model.survey, requests.stream[:n]
        # Closed loop: a request is made when another completes, whenever that is.
        time = np.full(n, np.nan) if self.outstanding else requests.time_s[:n] * self.time_scale
        own, device = survey.streams[stream], survey.devices[stream]
        asked = requests.lbn[:n], requests.size_bytes[:n], requests.op[:n].astype(np.uint8)
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
    size_bytes: float | None = None,
    streams: int = 1,
) -> GeneratedTrace:
    """Generate requests of a model.

    Parameters
    ----------
    model : TraceModel
    mode : {"walk"}
        How requests follow each other; "round_robin" is refused with what to do instead.
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
    size_bytes : float, optional
        Length (B) to which a longer space is scaled down.
    streams : int
        So many times the streams: copies of the load on top of each other.

    Returns
    -------
    GeneratedTrace

    Raises
    ------
    PpwError
        For arguments that cannot be.
    """
    if mode == "round_robin":
        raise PpwError(_REMOVED)
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
    most = model.survey.requests * streams if duration_s is None else 2**62
    requests = most if count is None else int(count)
    scaled = Scale(size_bytes, streams=streams).check()
    caveats = (
        *_generation_caveats(model, locality, scale, outstanding),
        *scaled.notes(model.survey),
    )
    times = float(end), scale, arrivals, outstanding
    how = locality, draws == "stratified", entry
    return GeneratedTrace(model, int(seed), requests, *times, *how, caveats, scaled)


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
    elif not model.passages.reuse:
        yield "the model has no law of reuse, so a cache has fewer hits than with the original"
    if scale != 1:
        yield (
            "times are scaled in an open loop: requests arrive on time even if the device falls "
            "behind; use --outstanding for a closed loop"
        )


# Jobs of a load generator.

BY = ("transition", "stream")
# Requests that fio issues to check a job file, in all and of each job at least.
_MOST_CHECKED, _LEAST_CHECKED = 40_000, 1000
_LAYOUT = ["stream", "op", "sequential", "size_class", "level", "target"]


def jobs_of(
    model: TraceModel, *, by: str = "stream", space_bytes: float | None = None
) -> tuple[tuple[LoadJob, ...], tuple[str, ...]]:
    """Turn a model into jobs, the busiest first, and say in sentences what they leave out.

    By "stream" each has one operation of a stream, or of all short-lived processes of one name,
    with mixed sizes and zones; by "transition" one range, operation, size class and order.
    Transitions from several states to one end are one job: a generator thread knows no state
    before. The space is shrunk in proportion to ``space_bytes`` (B) where given.
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
        notes.append(space_note(scale))
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
        """Yield a job for each operation of each stream, of all its requests."""
        rows = _recorded_rows(self.model)
        rows = rows[rows["op"] <= _WRITE]
        for key, members in rows.groupby(["stream", "op"], sort=True):
            stream, op = map(int, key)  # type: ignore[arg-type]
            weight = members["count"] / rows["count"].sum()
            random = members["sequential"] == 0
            shares = weight.groupby(members["size_bytes"].clip(lower=BLOCK)).sum() / weight.sum()
            places = weight[random] if random.any() else weight
            yield LoadJob(
                name=f"stream {stream} {OPERATIONS[op]}",
                rate=self.model.rate * float(members["count"].sum() / self.model.survey.requests),
                share=float(weight.sum()),
                read_share=float(op != _WRITE),
                random_share=float(weight[random].sum() / weight.sum()),
                sizes=tuple(zip(shares.index.tolist(), shares.tolist(), strict=True)),
                zones=self._zones(places.groupby(members["state"]).sum()),
                arrivals="poisson",
                alignment_bytes=self.alignment_bytes,
            )

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

    def _size(self, class_: int) -> int:
        """Size that stands for a class: its mean, in whole blocks."""
        sizes, counts = self.model.classes.sizes[class_], self.model.classes.counts[class_]
        if len(sizes) == 1:
            return max(BLOCK, int(sizes[0]))
        return max(1, round(float(sizes @ counts) / float(counts.sum()) / BLOCK)) * BLOCK

    def _zones(self, weight: pd.Series) -> tuple[AddressZone, ...]:
        """Zones of finest states, by their weights in order of the states."""
        shares = (weight / weight.sum()).items()
        levels = self.model.diagram.levels
        zones = [self._zone(levels, int(str(state)), 0, share) for state, share in shares]
        return _join_short(zones, int(self.model.survey.sizes.max()))

    def _zone(self, level: int, state: int, least: int, share: float = 1.0) -> AddressZone:
        """Bytes of a state, in the space of the target."""
        diagram, step = self.model.diagram, self.alignment_bytes
        width = diagram.state_blocks * diagram.fan_out ** (diagram.levels - level)
        first = state * width
        end = max(min(first + width, diagram.blocks), first + 1)
        start, stop = (int(at * BLOCK * self.scale) // step * step for at in (first, end))
        return AddressZone(start, max(stop, start + max(step, least)), share)


def check_jobs(jobs: Sequence[LoadJob], path: str | PathLike[str]) -> pd.DataFrame:
    """Compare what fio issues for the jobs of a file with the jobs: one row a feature.

    Columns are ``feature``, and the share of the requests that it has in the ``model`` and as
    ``issued``. Random requests do not go on where the last one of their job ended.
    """
    numbers = [max(_LEAST_CHECKED, round(_MOST_CHECKED * job.share)) for job in jobs]
    tables = load_files.issued_requests(str(path), numbers)
    rows: dict[str, tuple[float, float]] = {}
    reach = max(job.space[1] for job in jobs) / 8
    for job, table in zip(jobs, tables, strict=True):
        lbn, size, op = (table[name].to_numpy() for name in ("lbn", "size_bytes", "op"))
        random = lbn != np.append(-1, (lbn + size // BLOCK)[:-1])
        wanted = {"reads": job.read_share, "random requests": job.random_share}
        issued = {"reads": np.mean(op == 0), "random requests": np.mean(random)}
        for bytes_, share in job.sizes:
            wanted[f"requests of {size_text(bytes_)}"] = share
            issued[f"requests of {size_text(bytes_)}"] = np.mean(size == bytes_)
        for k in range(8):
            zones = (_overlap(zone, k * reach, (k + 1) * reach) for zone in job.zones)
            wanted[f"eighth {k + 1} of the space, random requests"] = sum(zones)
            here = (lbn * BLOCK // reach).astype(np.int64) == k
            issued[f"eighth {k + 1} of the space, random requests"] = np.mean(here[random])
        for feature, share in wanted.items():
            before = rows.get(feature, (0.0, 0.0))
            both = (share, float(issued[feature]))
            rows[feature] = tuple(a + job.share * b for a, b in zip(before, both, strict=True))  # type: ignore[assignment]
    return pd.DataFrame([(k, *v) for k, v in rows.items()], columns=["feature", "model", "issued"])


def _overlap(zone: AddressZone, low: float, high: float) -> float:
    """Share of requests that go to the part of a zone between two bytes."""
    inside = min(zone.end_byte, high) - max(zone.first_byte, low)
    return zone.share * max(0.0, inside) / (zone.end_byte - zone.first_byte)


def _recorded_rows(model: TraceModel) -> pd.DataFrame:
    """Recorded requests, one a row; ``count`` is how many of the trace each stands for."""
    passages, requests = model.passages, model.passages.requests
    kept = np.diff(passages.start)
    return pd.DataFrame(
        {
            "stream": stream_groups(model)[requests.stream],
            "op": requests.op,
            "size_bytes": requests.size_bytes,
            "sequential": requests.age == SEQUENTIAL,
            "state": requests.state,
            "count": np.repeat(passages.number / kept, kept),
        }
    )


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
