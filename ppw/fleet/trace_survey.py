"""Survey of a trace by an engine: what `fitting.storage.survey` finds, from grouped sums."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fitting.storage.survey import BLOCK, Survey, alignment_of
from measurements.errors import MeasurementError
from measurements.traces.requests import has_columns
from measurements.traces.tables import own_metadata
from ppw.errors import PpwError
from ppw.storage.trace_source import FLUSH, TraceSurvey

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import ibis
    from ibis.backends import BaseBackend


_RESIDUES = 256
_LAST = 2**63 // BLOCK
# Requests that are sorted together to find the resolution of the clock.
_TOGETHER = 100_000


def survey_of(source: EngineTrace) -> TraceSurvey:
    """Survey a trace without its flushes; latencies and files are not looked at.

    Raises
    ------
    PpwError
        For requests that cannot be, or too few of them.
    """
    kept = requests_of(source)
    extent = _extent(source.requests)
    _check(extent)
    streams = kept.group_by("stream", "device").agg(n=kept.count())
    by_stream = streams.order_by("stream", "device").to_pyarrow()
    sizes = kept.group_by("size_bytes").agg(n=kept.count()).to_pyarrow()
    size, number = sizes["size_bytes"].to_numpy(), sizes["n"].to_numpy()
    order = np.lexsort((size, -number))
    residues = kept.group_by(residue=kept.lbn % _RESIDUES).agg(n=kept.count()).to_pyarrow()
    counted = np.zeros(_RESIDUES, dtype=np.int64)
    counted[residues["residue"].to_numpy()] = residues["n"].to_numpy()
    alignment, offset = alignment_of(counted)
    survey = Survey(
        requests=extent["requests"],
        first_s=extent["first_s"],
        last_s=extent["last_s"],
        low_lbn=extent["low_lbn"],
        high_lbn=extent["high_lbn"],
        streams=by_stream["stream"].to_numpy().astype(np.int64),
        devices=by_stream["device"].to_numpy().astype(np.int64),
        stream_counts=by_stream["n"].to_numpy(),
        sizes=size[order],
        size_counts=number[order],
        alignment=alignment,
        alignment_offset=offset,
        tick_s=_tick(kept, extent),
    )
    return TraceSurvey(survey, extent["flushes"], False, _digest(survey), None)


def requests_of(source: EngineTrace) -> ibis.Table:
    """Requests without the flushes, which have no address."""
    return source.requests.filter(source.requests["op"] != FLUSH)


def _extent(table: ibis.Table) -> dict[str, Any]:
    """Extent of all but the flushes, and the number of requests that cannot be."""
    import ibis

    kept = table["op"] != FLUSH
    end = table.lbn + ibis.greatest(table.size_bytes // BLOCK, 1)
    found = table.agg(
        requests=kept.cast("int64").sum(),
        flushes=(~kept).cast("int64").sum(),
        first_s=table.time_s.min(where=kept),
        last_s=table.time_s.max(where=kept),
        low_lbn=table.lbn.min(where=kept),
        high_lbn=end.max(where=kept),
        bad=_cannot_be(table).cast("int64").sum(),
    )
    row: dict[str, Any] = found.to_pyarrow().to_pylist()[0]
    return row


def _cannot_be(table: ibis.Table) -> Any:
    """Requests that `measurements.traces.requests` refuses, and those with a number missing."""
    time, lbn, size = table.time_s, table.lbn, table.size_bytes
    bad = time.isnull() | time.isnan() | time.isinf() | (time < 0) | (lbn < 0)
    bad = bad | (size < 0) | ((size == 0) & (table["op"] != FLUSH)) | (lbn > _LAST - size // BLOCK)
    for name in ("stream", "device"):
        bad = bad | (table[name] < 0) | table[name].isnull()
    for name in ("lbn", "size_bytes", "op"):
        bad = bad | table[name].isnull()
    return bad.fill_null(True)


def _check(extent: dict[str, Any]) -> None:
    n = extent["requests"] or 0
    if extent["bad"]:
        raise PpwError(
            f"{extent['bad']} requests cannot be (a number is missing or negative, no size, or "
            "an end beyond 2^63 bytes): leave them out"
        )
    if n < 2 or extent["last_s"] <= extent["first_s"]:
        span = extent["last_s"] - extent["first_s"] if n else 0.0
        raise PpwError(
            f"{n} request{'s' * (n != 1)} within {span:g} s make no model: give a trace of "
            "at least two requests at different times"
        )


def _tick(kept: ibis.Table, extent: dict[str, Any]) -> float:
    """Smallest time between two arrivals that are apart: in stretches of time, and between them."""
    import ibis

    parts = max(1, extent["requests"] // _TOGETHER)
    rate = parts / (extent["last_s"] - extent["first_s"])
    stretch = ((kept.time_s - extent["first_s"]) * rate).floor().cast("int64")
    times = kept.select("time_s", stretch=stretch)
    order = ibis.window(group_by="stretch", order_by="time_s")
    times = times.mutate(apart=times.time_s - times.time_s.lag().over(order))
    found = (
        times.group_by("stretch")
        .agg(
            least=times.apart.min(where=times.apart > 0),
            low=times.time_s.min(),
            high=times.time_s.max(),
        )
        .order_by("stretch")
        .to_pyarrow()
    )
    between = found["low"].to_numpy()[1:] - found["high"].to_numpy()[:-1]
    within = found["least"].drop_null().to_numpy()
    return float(np.concatenate([within, between[between > 0]]).min())


def _digest(survey: Survey) -> str:
    """Digest of what a survey found, which no order of rows changes."""
    digest = hashlib.sha256()
    for value in vars(survey).values():
        digest.update(np.ascontiguousarray(value).tobytes())
    return f"sha256:{digest.hexdigest()}"


# A block trace in Parquet files as a table of an engine, in the order of its files.


_COLUMNS = ("time_s", "stream", "device", "lbn", "size_bytes", "op")
_CODED = ("stream", "device")
# Where a request stands among those of one time: its file, and its row there.
PLACE = ("file_name", "file_row")


class EngineTrace(NamedTuple):
    """Requests as `_COLUMNS` and `PLACE`, and the names of streams and devices by code."""

    requests: ibis.Table
    names: dict[str, tuple[str, ...]]


class _Said(NamedTuple):
    """What ppw wrote beside the columns of a file: names by code, and when it began."""

    names: tuple[tuple[str, ...], ...]
    start_unix_ns: int | None


def open_requests(
    trace: str | PathLike[str] | Sequence[str | PathLike[str]], connection: BaseBackend
) -> EngineTrace:
    """Open files that ppw wrote, those with other names and starts brought to one numbering.

    Raises
    ------
    MeasurementError
        For a file that is no trace of ppw's, named.
    """
    files = _files(trace)
    groups: dict[_Said, list[str]] = {}
    for file in files:
        groups.setdefault(_said(file), []).append(str(file))
    names = tuple(_together(said.names[i] for said in groups) for i in range(len(_CODED)))
    starts = [said.start_unix_ns for said in groups]
    known = [start for start in starts if start is not None]
    # Files that do not all say when they began are on one clock already.
    first = min(known) if len(known) == len(starts) else None
    parts = [
        _renumbered(_read(connection, group), said, names, first) for said, group in groups.items()
    ]
    requests = parts[0]
    for part in parts[1:]:
        requests = requests.union(part)
    return EngineTrace(requests, dict(zip(_CODED, names, strict=True)))


def _files(trace: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[Path]:
    named = [trace] if isinstance(trace, (str, PathLike)) else list(trace)
    files: list[Path] = []
    for path in map(Path, named):
        files += sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise PpwError(f"{' '.join(map(str, named))}: no Parquet file is there: name the trace")
    return files


def _said(path: Path) -> _Said:
    try:
        with pq.ParquetFile(path) as file:
            said = own_metadata(file)
            own = said is not None and has_columns(file.schema_arrow)
    except (OSError, pa.ArrowException) as error:
        first = " ".join(str(error).split())[:120]
        raise MeasurementError(f"{path}: cannot be read as Parquet: {first}") from error
    if said is None or not own:
        raise MeasurementError(
            f"{path}: is no trace that ppw wrote, which engines read: make one of it with "
            "`ppw trace convert`"
        )
    names: dict[str, list[str]] = said["names"]
    start = said.get("start_unix_ns")
    return _Said(
        tuple(tuple(names.get(what, ())) for what in _CODED), None if start is None else int(start)
    )


def _together(names: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in names for name in part))


def _read(connection: BaseBackend, files: list[str]) -> ibis.Table:
    """Columns of files, with the place of each row."""
    if connection.name != "pyspark":
        table = connection.read_parquet(files, filename=True, file_row_number=True)
        return _placed(table, files, table.filename, table.file_row_number)
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    frame = session.read.parquet(*files).selectExpr(
        *_COLUMNS, "_metadata.file_path AS filename", "_metadata.row_index AS file_row_number"
    )
    view = f"ppw_trace_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(view)
    table = connection.table(view)
    return _placed(table, files, table.filename, table.file_row_number)


def _placed(table: ibis.Table, files: list[str], name: Any, row: Any) -> ibis.Table:
    """Columns with `PLACE`; the name of a single file is not worth its bytes in every row."""
    import ibis

    return table.select(
        *_COLUMNS, file_name=name if len(files) > 1 else ibis.literal(""), file_row=row
    )


def _renumbered(
    table: ibis.Table, said: _Said, names: tuple[tuple[str, ...], ...], first: int | None
) -> ibis.Table:
    """Give codes and times the meaning that they have in all files together."""
    changed = {}
    for what, own, common in zip(_CODED, said.names, names, strict=True):
        if own and own != common[: len(own)]:
            numbers = [common.index(name) for name in own]
            changed[what] = table[what].cases(*enumerate(numbers), else_=-1).cast("int32")
    if first is not None and said.start_unix_ns is not None and said.start_unix_ns > first:
        changed["time_s"] = table.time_s + (said.start_unix_ns - first) / 1e9
    return table.mutate(**changed) if changed else table


@contextmanager
def held(table: ibis.Table, connection: BaseBackend) -> Iterator[ibis.Table]:
    """Compute a table once, for all that is asked of it, and let go of it."""
    if connection.name == "pyspark":
        with table.cache() as cached:
            yield cached
        return
    name = f"ppw_{uuid.uuid4().hex}"
    try:
        yield connection.create_table(name, table, temp=True)
    finally:
        connection.raw_sql(f'DROP TABLE IF EXISTS "{name}"')


# `fit_trace_in`: the state diagram of a trace of any size, counted by an engine.
#
# The same counts as `ppw.fit_trace` makes in one process, as window functions and sums: each
# request is set beside the one before it in its stream, in order of time, and what the two make is
# counted. Counts add up, so an engine makes them wherever the rows are, and only they come back.
# Laws of gaps, bursts and reuse are fitted to them by the code that fits a trace in memory.
