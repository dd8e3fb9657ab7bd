"""`fit_trace_in`: the state diagram of a trace of any size, counted by an engine.

The same counts as `ppw.fit_trace` makes in one process, as window functions and sums: each request
is set beside the one before it in its stream, in order of time, and what the two make is counted.
Counts add up, so an engine makes them wherever the rows are, and only they come back. Laws of
inter-arrival times, bursts and reuse are fitted to them by the code that fits a trace in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fitting.compiled.loops import IntArray
from fitting.storage import passages as pg, references as rf, survey as sv, transitions as tr
from fitting.storage.survey import BLOCK, KINDS, RESIDUES, Diagram, Survey
from measurements.errors import MeasurementError
from measurements.traces.requests import has_columns
from measurements.traces.trace_files import own_metadata
from ppw.errors import PpwError
from ppw.fleet.engine import BaseBackend, connect, ibis, is_spark
from ppw.fleet.run_files import register_table
from ppw.results.text import as_positive
from ppw.storage import trace_model, trace_source
from ppw.storage.trace_model import TraceModel

# Where a request stands among those of one time: its file, and its row there.
PLACE = ("file_name", "file_row")
_COLUMNS = ("time_s", "stream", "device", "lbn", "size_bytes", "op")
_CODED = ("stream", "device")
_LAST = 2**63 // BLOCK
# Requests that are sorted together to find the resolution of the clock.
_TOGETHER = 100_000
_PER_NATURAL = float(1 / np.log(2))
# Logarithms of engines differ in their last digits: gaps so near to a bound of a class are put in
# their class here.
_NEAR_BOUND = 1e-9
_SUMS = ("gaps", "total", "squares", "logs", "log_squares", "g_logs", "smallest", "largest")
_BEGINS, _ENDS = 0, 1
# Columns of a located request that its pieces, and its start and end, have too.
_SHARED = ("g", "clock", "lbn")


def fit_trace_in(
    trace: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    engine: str | BaseBackend = "duckdb",
    memory_limit: str | None = None,
    temporary: str | PathLike[str] | None = None,
    levels: int = 4,
    fan_out: int = 4,
    space_bytes: float | None = None,
    window_s: float = 1800.0,
    laws: str = "likelihood",
    reuse: bool = True,
) -> TraceModel:
    """Fit a hierarchical state diagram to a block trace by DuckDB or Spark.

    The model is that of `ppw.fit_trace`: counts are equal, laws as far as sums of floating-point
    numbers in another order are. Where a trace touches more than eight million different pieces
    of 4 KiB, `ppw.fit_trace` forgets the oldest of them and this function none. Requests need not
    be sorted; those at one time stay in the order of their file.

    Parameters
    ----------
    trace : path or sequence of paths
        Parquet as `ppw trace convert` writes it; several files, or a folder of them, are one
        trace, whose streams and devices are told apart by their names.
    engine : {"duckdb", "spark"} or ibis connection
    memory_limit, temporary
        As `ppw.fleet.engine.connect` takes them.
    levels, fan_out, space_bytes, window_s, laws, reuse
        As `ppw.fit_trace` takes them.

    Returns
    -------
    TraceModel

    Raises
    ------
    MeasurementError
        Where a file is no trace that ppw wrote.
    PpwError
        For requests that cannot be, a trace too short, or a space that does not hold it.
    """
    folder = None if temporary is None else str(temporary)
    connection = connect(engine, memory_limit=memory_limit, temporary=folder)
    source = open_requests(trace, connection)
    found = survey_of(source)
    known, classes = found.survey, found.survey.size_classes()
    diagram = trace_model.diagram_of(known, levels, fan_out, space_bytes)
    window = as_positive("window (s)", window_s)
    # Sorting is most of the work: once, for all that is counted of it.
    with hold_table(locate_requests(source, known, classes, diagram), connection) as requests:
        counts = counts_of(requests, known, classes, diagram)
        rows = _record_passages(requests, known, reuse=reuse)
    return trace_model.assemble_model(
        found,
        counts,
        laws,
        passages=pg.build_passages(diagram, known, window, *rows, reuse=reuse),
        names=source.names,
    )


def locate_requests(
    source: EngineTrace, survey: Survey, classes: sv.SizeClasses, diagram: Diagram
) -> ibis.Table:
    """Add to each request its state, size class and run, and the request before it in its stream.

    Columns: ``time_s``, its `PLACE`, ``s`` and ``g`` (numbers of the stream and of its device),
    ``clock`` (which of the device's requests it is, from 1), ``lbn``, ``end`` (block after it),
    ``touched`` (state with origin), ``op``, ``size_bytes``, ``size_class``; of the one before, null
    for the first, ``before_s``, ``before_touched``, ``goes_on`` (whether it starts where that one
    ended); of the device's one before, ``device_lbn`` and ``device_end``; and of all requests,
    ``number`` (from 0) and ``gap_s`` (since the one before).
    """
    table = _add_stream_numbers(source.kept, survey)
    # Class and kind of every size.
    size = np.concatenate(classes.sizes)
    numbers = np.repeat(np.arange(len(classes)), [len(s) for s in classes.sizes])
    kinds = sv.request_kind(0, size, survey.piece)
    sizes = pa.table({"size_bytes": size, "size_class": numbers, "size_kind": kinds})
    table = table.join(register_table(table.get_backend(), sizes), "size_bytes")
    state = (table.lbn - diagram.first_lbn) // diagram.state_blocks
    state = ibis.greatest(ibis.least(state, diagram.states - 1), 0)
    origin = table.s * KINDS + table.size_kind + (table["op"] > 0).ifelse(3, 0)
    table = table.select(
        *("time_s", *PLACE, "s", "g", "lbn", "op", "size_bytes", "size_class"),
        end=table.lbn + table.size_bytes // BLOCK,
        touched=origin * diagram.states + state,
    )
    order = {"order_by": ["time_s", *PLACE]}
    stream = ibis.window(group_by="s", **order)
    device, all_ = ibis.window(group_by="g", **order), ibis.window(**order)
    return table.mutate(
        clock=ibis.row_number().over(device) + 1,
        before_s=table.time_s.lag().over(stream),
        before_touched=table.touched.lag().over(stream),
        goes_on=(table.lbn == table.end.lag().over(stream)).fill_null(False),
        device_lbn=table.lbn.lag().over(device),
        device_end=table.end.lag().over(device),
        number=ibis.row_number().over(all_),
        gap_s=(table.time_s - table.time_s.lag().over(all_)).fill_null(0.0),
    )


def _add_stream_numbers(table: ibis.Table, survey: Survey) -> ibis.Table:
    """Add the numbers that the survey gives each request's stream (s) and device (g)."""
    if len(survey.streams) == 1:
        return table.mutate(s=ibis.literal(0, "int64"), g=ibis.literal(0, "int64"))
    stream, device = survey.streams.astype(np.int32), survey.devices.astype(np.int32)
    numbers = {"s": np.arange(len(stream)), "g": survey.device_of_stream}
    streams = pa.table({"stream": stream, "device": device, **numbers})
    return table.join(register_table(table.get_backend(), streams), ["stream", "device"])


def counts_of(
    requests: ibis.Table, survey: Survey, classes: sv.SizeClasses, diagram: Diagram
) -> tr.TransitionCounts:
    """Count the transitions of located requests."""
    steps = _transitions(requests, survey, len(classes), diagram)
    key, sums, histogram = _sum_transitions(steps, survey.tick_s / 2)
    origins = len(survey.streams) * KINDS
    parts = (origins, diagram.pair_codes, tr.OPERATIONS, 2, len(classes))
    origin, pair, op, sequential, size_class = np.unravel_index(key, parts)
    # States in order: requests, first and last block at which one started.
    states = requests.group_by("touched").agg(
        occupancy=requests.count(), lowest=requests.lbn.min(), highest=requests.lbn.max()
    )
    found = arrays(states.order_by("touched"))
    touched = found.pop("touched")
    state_origin, state = np.divmod(touched, diagram.states)
    return tr.TransitionCounts(
        diagram,
        *(origin, pair, op, sequential, size_class, sums, histogram, state_origin, state),
        **found,
        departures=_by_level(steps, "before_touched", touched, diagram.levels),
        arrivals=_by_level(steps, "touched", touched, diagram.levels),
    )


def _transitions(
    requests: ibis.Table, survey: Survey, classes: int, diagram: Diagram
) -> ibis.Table:
    """Code, level and inter-arrival time (s) of the step from each request to the next."""
    steps = requests.filter(requests.before_s.notnull())
    before_origin = steps.before_touched // diagram.states
    before, after = (code % diagram.states for code in (steps.before_touched, steps.touched))
    pair, level = _pair_codes(before, after, diagram)
    code = (before_origin * diagram.pair_codes + pair) * tr.OPERATIONS + steps["op"].cast("int64")
    gap = steps.time_s - steps.before_s
    return steps.select(
        *("time_s", *PLACE, "touched", "before_touched"),
        key=(2 * code + steps.goes_on.cast("int64")) * classes + steps.size_class,
        level=level,
        gap=gap,
        # A gap of 0 has no logarithm: below the clock's resolution it counts as half a tick.
        log=ibis.greatest(gap, survey.tick_s / 2).ln(),
    )


def _pair_codes(before: Any, after: Any, diagram: Diagram) -> tuple[Any, Any]:
    """Code and level of a transition between two states, as `pair_code` of the diagram has them."""
    k, levels = diagram.fan_out, diagram.levels
    codes, numbers = [], []
    for level in range(levels, 0, -1):
        a, b = (state // k ** (levels - level) for state in (before, after))
        first = k * k * (k ** (level - 1) - 1) // (k - 1)
        parted = (a // k == b // k) if level > 1 else ibis.literal(True)
        codes.append((parted, first + (a // k) * (k * k) + (a % k) * k + b % k))
        numbers.append((parted, ibis.literal(level, "int64")))
    return ibis.cases(*codes), ibis.cases(*numbers)


def _sum_transitions(steps: ibis.Table, least_gap: float) -> tuple[IntArray, Any, Any]:
    """Sums and histograms of inter-arrival times by transition, sorted by transition key."""
    order = ibis.window(group_by="key", order_by=["time_s", *PLACE])
    ranked = steps.mutate(
        rank=ibis.row_number().over(order),
        octave=(steps.log * _PER_NATURAL - tr.LOWEST_OCTAVE) * tr.PER_OCTAVE,
    )
    classed = ranked.rank >= tr.HISTOGRAM_FROM - 1
    near = classed & ((ranked.octave - ranked.octave.round()).abs() < _NEAR_BOUND)
    class_ = classed.ifelse(ranked.octave.floor(), -1.0).clip(-1, tr.HISTOGRAM_CLASSES - 1)
    bound = near.ifelse(ranked.log, ibis.null("float64"))
    groups = ranked.group_by("key", gap_class=class_, bound=bound, classed=classed)
    gap, log = ranked.gap, ranked.log
    products = (gap * gap).sum(), log.sum(), (log * log).sum(), (gap * log).sum()
    values = ranked.count(), gap.sum(), *products, gap.min(), gap.max()
    reached_s = ranked.time_s.min(where=classed)
    sums = groups.agg(reached_s=reached_s, **dict(zip(_SUMS, values, strict=True)))
    return _merge_interarrival_groups(arrays(sums), least_gap)


def _merge_interarrival_groups(
    found: dict[str, Any], least_gap: float
) -> tuple[IntArray, Any, Any]:
    """Merge the groups of each transition into its sums and its histogram of times."""
    key, row = np.unique(found["key"], return_inverse=True)
    sums = np.zeros((len(key), tr.SUMS))
    sums[:, tr.SMALLEST] = np.inf
    for column, name in enumerate(_SUMS):
        add = {tr.SMALLEST: np.minimum, tr.LARGEST: np.maximum}.get(column, np.add)
        add.at(sums[:, column], row, found[name])
    classed, class_ = found["classed"], found["gap_class"].copy()
    bound = np.flatnonzero(~np.isnan(found["bound"]))
    # The largest gap of a group whose logarithm is the bound is, to a digit, all of them.
    at_bound = np.log(np.maximum(found["largest"][bound], least_gap)) * _PER_NATURAL
    class_[bound] = np.floor((at_bound - tr.LOWEST_OCTAVE) * tr.PER_OCTAVE)
    histogram = np.zeros((len(key), tr.HISTOGRAM_CLASSES), dtype=np.uint32)
    place = np.clip(class_[classed], 0, tr.HISTOGRAM_CLASSES - 1).astype(np.int64)
    np.add.at(histogram, (row[classed], place), found["gaps"][classed].astype(np.uint32))
    reached = np.full(len(key), np.inf)
    np.minimum.at(reached, row[classed], found["reached_s"][classed])
    histogram[np.argsort(reached, kind="stable")[tr.MOST_HISTOGRAMS :]] = 0
    return key, sums, histogram


def _by_level(steps: ibis.Table, column: str, touched: IntArray, levels: int) -> IntArray:
    """Count the transitions of each state by the level at which the two states part."""
    found = arrays(steps.group_by(state=steps[column], level=steps.level).agg(n=steps.count()))
    table = np.zeros((len(touched), levels), dtype=np.int64)
    table[np.searchsorted(touched, found["state"]), found["level"] - 1] = found["n"]
    return table


def _record_passages(requests: ibis.Table, survey: Survey, *, reuse: bool) -> list[Any]:
    """Return the columns of the recorded requests, as `build_passages` takes them, in order."""
    spacing, length = pg.span_lengths(survey.requests)
    kept = requests.filter(requests.number % spacing < length)
    age = kept.goes_on.ifelse(rf.SEQUENTIAL, rf.FRESH)
    place = kept.lbn % survey.piece
    if reuse:
        near = ibis.literal(rf.near_blocks(survey))
        accessed, ended = _accessed_before(requests, survey.piece), _ended_before(requests)
        earlier = accessed.join(ended, ["g", "clock"])
        kept = kept.left_join(earlier, ["g", "clock"])
        # The later of the two requests that may be meant.
        ends_last = kept.ended.fill_null(0) > kept.accessed.fill_null(0)
        since = kept.clock - ibis.greatest(kept.ended.fill_null(0), kept.accessed.fill_null(0))
        is_known = ~kept.goes_on & (since < kept.clock) & (since <= rf.MOST_AGE)
        is_near = ((kept.lbn - kept.device_end).abs() <= near).fill_null(False)
        is_near = ~kept.goes_on & ~is_known & is_near
        other = is_known.ifelse(since, is_near.ifelse(rf.NEAR, rf.FRESH))
        age = kept.goes_on.ifelse(rf.SEQUENTIAL, other)
        origin = ends_last.ifelse(kept.ended_lbn, kept.accessed_lbn)
        place = ibis.cases(
            (is_known, kept.lbn - origin),
            (is_near, kept.lbn - kept.device_lbn),
            else_=kept.lbn % survey.piece,
        )
    columns = ("number", "time_s", "gap_s", "s", "op", "size_bytes", "lbn")
    found = arrays(kept.select(*columns, age=age, place=place))
    order = np.argsort(found["number"])
    return [found[name][order] for name in (*columns, "age", "place")]


def _ended_before(requests: ibis.Table) -> ibis.Table:
    """Clock and block of the last request that ended where each one starts."""
    begins = requests.select(*_SHARED, block=requests.lbn, what=ibis.literal(_BEGINS))
    ends = requests.select(*_SHARED, block=requests.end, what=ibis.literal(_ENDS))
    events = begins.union(ends)
    order = ibis.window(group_by=["g", "block"], order_by=["clock", "what"])
    # A request that started here since has accessed the piece: that is what counts then.
    events = events.mutate(
        before=events.what.lag().over(order),
        since=events.clock.lag().over(order),
        since_lbn=events.lbn.lag().over(order),
    )
    chosen = events.filter(events.what == _BEGINS)
    ended = (chosen.before == _ENDS).ifelse(chosen.since, ibis.null("int64"))
    return chosen.select("g", "clock", ended=ended, ended_lbn=chosen.since_lbn)


def _accessed_before(requests: ibis.Table, piece: int) -> ibis.Table:
    """Clock and block of the last request that accessed the piece where each one starts."""
    first = requests.lbn // piece
    # The last block of a request without length is the one before its start.
    last = ibis.greatest((requests.end - 1) // piece, first)
    pieces = requests.select(*_SHARED, first=first, piece=ibis.range(first, last + 1).unnest())
    order = ibis.window(group_by=["g", "piece"], order_by="clock")
    clock, lbn = pieces.clock.lag().over(order), pieces.lbn.lag().over(order)
    pieces = pieces.mutate(accessed=clock, accessed_lbn=lbn)
    starts = pieces.filter(pieces.piece == pieces.first)
    return starts.select("g", "clock", "accessed", "accessed_lbn")


# The trace as a table of an engine, and a first pass over it. The survey is what
# `fitting.storage.survey` finds, from grouped sums.
class EngineTrace(NamedTuple):
    """Requests as `_COLUMNS` and `PLACE`, and the names of streams and devices by code."""

    requests: ibis.Table
    kept: ibis.Table  # the requests without the flushes, which have no address
    names: dict[str, tuple[str, ...]]


def open_requests(
    trace: str | PathLike[str] | Sequence[str | PathLike[str]], connection: BaseBackend
) -> EngineTrace:
    """Open trace files of ppw's; names and times are made common to all of them."""
    groups: dict[Any, list[str]] = {}
    for file in _list_trace_files(trace):
        groups.setdefault(_read_trace_metadata(file), []).append(str(file))
    names = [tuple(dict.fromkeys(name for own, _ in groups for name in own[i])) for i in (0, 1)]
    starts = [start for _, start in groups]
    # Files that do not all say when they began are on one clock already.
    first = None if None in starts else min(starts)
    parts = []
    for (own, start), files in groups.items():
        late_s = 0.0 if first is None else (start - first) / 1e9
        parts.append(_renumber(_read(connection, files), own, names, late_s))
    requests = ibis.union(*parts)
    kept = requests.filter(requests["op"] != trace_source.FLUSH)
    return EngineTrace(requests, kept, dict(zip(_CODED, names, strict=True)))


def _list_trace_files(trace: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[Path]:
    paths = [Path(one) for one in ([trace] if isinstance(trace, (str, PathLike)) else trace)]
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise PpwError(
            f"{' '.join(map(str, paths))}: no Parquet file is there: give the file or folder of "
            "the trace"
        )
    return files


def _read_trace_metadata(path: Path) -> tuple[tuple[tuple[str, ...], ...], Any]:
    """Names by `_CODED` and code, and the start (ns since 1970, or None) of a file of ppw's."""
    try:
        with pq.ParquetFile(path) as file:
            metadata = own_metadata(file) if has_columns(file.schema_arrow) else None
    except (OSError, pa.ArrowException) as error:
        first = " ".join(str(error).split())[:120]
        raise MeasurementError(f"{path}: cannot be read as Parquet: {first}") from error
    if metadata is None:
        raise MeasurementError(
            f"{path}: is no trace that ppw wrote, which engines read: make one of it with "
            "`ppw trace convert`"
        )
    names = tuple(tuple(metadata["names"].get(what, ())) for what in _CODED)
    return names, metadata.get("start_unix_ns")


def _read(connection: Any, files: list[str]) -> ibis.Table:
    """Columns of trace files, with the file name and row number of each request."""
    if is_spark(connection):
        frame = connection._session.read.parquet(*files).selectExpr(
            *_COLUMNS, "_metadata.file_path AS filename", "_metadata.row_index AS file_row_number"
        )
        view = ibis.util.gen_name("ppw_trace")
        frame.createOrReplaceTempView(view)
        table = connection.table(view)
    else:
        table = connection.read_parquet(files, filename=True, file_row_number=True)
    # The name of a single file is not worth its bytes in every row.
    name = table.filename if len(files) > 1 else ibis.literal("")
    return table.select(*_COLUMNS, file_name=name, file_row=table.file_row_number)


def _renumber(
    table: ibis.Table, own: Sequence[Any], names: Sequence[tuple[str, ...]], late_s: float
) -> ibis.Table:
    """Replace a file's codes and start time by those common to all files."""
    changed = {}
    for what, mine, common in zip(_CODED, own, names, strict=True):
        if mine and mine != common[: len(mine)]:
            numbers = [common.index(name) for name in mine]
            changed[what] = table[what].cases(*enumerate(numbers), else_=-1).cast("int32")
    if late_s > 0:
        changed["time_s"] = table.time_s + late_s
    return table.mutate(**changed) if changed else table


@contextmanager
def hold_table(table: ibis.Table, connection: BaseBackend) -> Iterator[ibis.Table]:
    """Compute a table once and keep it inside the block, for several queries."""
    if is_spark(connection):
        with table.cache() as cached:
            yield cached
        return
    name = ibis.util.gen_name("ppw")
    try:
        yield connection.create_table(name, table, temp=True)
    finally:
        connection.raw_sql(f'DROP TABLE IF EXISTS "{name}"')


def arrays(table: ibis.Table) -> dict[str, Any]:
    """Compute a table, and return its columns as arrays by name."""
    found = table.to_pyarrow()
    return {name: found[name].to_numpy() for name in found.column_names}


def survey_of(source: EngineTrace) -> trace_source.TraceSurvey:
    """Survey a trace without its flushes: extent, streams, sizes, alignment and resolution."""
    kept = source.kept
    extent, flushes = _measure_extent(source.requests)
    streams = kept.group_by("stream", "device").agg(n=kept.count()).order_by("stream", "device")
    by_stream = arrays(streams)
    sizes = kept.group_by("size_bytes").agg(n=kept.count())
    by_size = arrays(sizes.order_by(ibis.desc("n"), "size_bytes"))
    residues = arrays(kept.group_by(residue=kept.lbn % RESIDUES).agg(n=kept.count()))
    by_residue = np.bincount(residues["residue"], residues["n"], RESIDUES)
    alignment, offset = sv.alignment_of(by_residue)
    survey = Survey(
        **extent,
        streams=by_stream["stream"].astype(np.int64),
        devices=by_stream["device"].astype(np.int64),
        stream_counts=by_stream["n"],
        sizes=by_size["size_bytes"],
        size_counts=by_size["n"],
        alignment=alignment,
        alignment_offset=offset,
        tick_s=_clock_resolution(kept, extent),
    )
    # The digest is of what the survey found, which no order of rows changes.
    found = b"".join(np.ascontiguousarray(value).tobytes() for value in vars(survey).values())
    digest = f"sha256:{hashlib.sha256(found).hexdigest()}"
    return trace_source.TraceSurvey(survey, flushes, False, digest, None)


def _measure_extent(table: ibis.Table) -> tuple[dict[str, Any], int]:
    """Measure time and address extent of the requests without flushes, and count these."""
    kept = table["op"] != trace_source.FLUSH
    end = table.lbn + ibis.greatest(table.size_bytes // BLOCK, 1)
    found = table.agg(
        requests=kept.cast("int64").sum(),
        flushes=(~kept).cast("int64").sum(),
        first_s=table.time_s.min(where=kept),
        last_s=table.time_s.max(where=kept),
        low_lbn=table.lbn.min(where=kept),
        high_lbn=end.max(where=kept),
        bad=_impossible_mask(table).cast("int64").sum(),
    )
    extent: dict[str, Any] = found.to_pyarrow().to_pylist()[0]
    n, impossible = extent["requests"] or 0, extent.pop("bad")
    if impossible:
        raise PpwError(
            f"{impossible} requests are impossible (a number is missing or negative, no size, or "
            "an end beyond 2^63 bytes): leave them out"
        )
    if n < 2 or extent["last_s"] <= extent["first_s"]:
        span = extent["last_s"] - extent["first_s"] if n else 0.0
        raise PpwError(
            f"{n} request{'s' * (n != 1)} within {span:g} s are too few for a "
            "model: give a trace of at least two requests at different times"
        )
    return extent, extent.pop("flushes")


def _impossible_mask(table: ibis.Table) -> Any:
    """Mark requests with a missing, negative or impossible number."""
    time, lbn, size, op = table.time_s, table.lbn, table.size_bytes, table["op"]
    bad = time.isnan() | time.isinf() | (time < 0) | (table.stream < 0) | (table.device < 0)
    bad = bad | (lbn < 0) | (size < 0) | (lbn > _LAST - size // BLOCK)
    bad = bad | op.isnull() | ((size == 0) & (op != trace_source.FLUSH))
    # Where a number is missing, so is the answer of its comparison.
    return bad.fill_null(True)


def _clock_resolution(kept: ibis.Table, extent: dict[str, Any]) -> float:
    """Smallest positive time (s) between two successive arrivals."""
    parts = max(1, extent["requests"] // _TOGETHER)
    rate = parts / (extent["last_s"] - extent["first_s"])
    stretch = ((kept.time_s - extent["first_s"]) * rate).floor().cast("int64")
    times = kept.select("time_s", stretch=stretch)
    order = ibis.window(group_by="stretch", order_by="time_s")
    times = times.mutate(apart=times.time_s - times.time_s.lag().over(order))
    by_stretch = times.group_by("stretch").agg(
        least=times.apart.min(where=times.apart > 0),
        low=times.time_s.min(),
        high=times.time_s.max(),
    )
    found = by_stretch.order_by("stretch").to_pyarrow()
    between = found["low"].to_numpy()[1:] - found["high"].to_numpy()[:-1]
    within = found["least"].drop_null().to_numpy()
    return float(np.concatenate([within, between[between > 0]]).min())
