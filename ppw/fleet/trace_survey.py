"""Block traces in Parquet files as tables of an engine, and a first pass over them.

The survey is what `fitting.storage.survey` finds, from grouped sums.
"""

from __future__ import annotations

import hashlib
import uuid
from contextlib import contextmanager
from functools import reduce
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

# Where a request stands among those of one time: its file, and its row there.
PLACE = ("file_name", "file_row")
_COLUMNS = ("time_s", "stream", "device", "lbn", "size_bytes", "op")
_CODED = ("stream", "device")
_RESIDUES = 256
_LAST = 2**63 // BLOCK
# Requests that are sorted together to find the resolution of the clock.
_TOGETHER = 100_000


class EngineTrace(NamedTuple):
    """Requests as `_COLUMNS` and `PLACE`, and the names of streams and devices by code."""

    requests: ibis.Table
    names: dict[str, tuple[str, ...]]

    def without_flushes(self) -> ibis.Table:
        """Return the requests without the flushes, which have no address."""
        return self.requests.filter(self.requests["op"] != FLUSH)


class _Notes(NamedTuple):
    """Metadata that ppw wrote beside the columns of a file."""

    names: tuple[tuple[str, ...], ...]  # by `_CODED` and code
    start_unix_ns: int | None


def open_requests(
    trace: str | PathLike[str] | Sequence[str | PathLike[str]], connection: BaseBackend
) -> EngineTrace:
    """Open files that ppw wrote; codes and times get one meaning in all of them.

    Raises
    ------
    MeasurementError
        For a file that is no trace of ppw's, named.
    """
    groups: dict[_Notes, list[str]] = {}
    for file in _files(trace):
        groups.setdefault(_read_notes(file), []).append(str(file))
    names = tuple(
        tuple(dict.fromkeys(name for notes in groups for name in notes.names[i]))
        for i in range(len(_CODED))
    )
    starts = [notes.start_unix_ns for notes in groups]
    present = [start for start in starts if start is not None]
    # Files that do not all say when they began are on one clock already.
    first = min(present) if len(present) == len(starts) else None
    parts = [
        _renumber(_read(connection, files), notes, names, first) for notes, files in groups.items()
    ]
    requests = reduce(lambda table, part: table.union(part), parts)
    return EngineTrace(requests, dict(zip(_CODED, names, strict=True)))


def _files(trace: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[Path]:
    paths = [Path(one) for one in ([trace] if isinstance(trace, (str, PathLike)) else trace)]
    files = [
        file
        for path in paths
        for file in (sorted(path.glob("*.parquet")) if path.is_dir() else [path])
    ]
    if not files:
        raise PpwError(f"{' '.join(map(str, paths))}: no Parquet file is there: name the trace")
    return files


def _read_notes(path: Path) -> _Notes:
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
    start = metadata.get("start_unix_ns")
    names = tuple(tuple(metadata["names"].get(what, ())) for what in _CODED)
    return _Notes(names, None if start is None else int(start))


def _read(connection: BaseBackend, files: list[str]) -> ibis.Table:
    """Columns of files, with the place of each row."""
    import ibis

    if connection.name == "pyspark":
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        assert session is not None
        frame = session.read.parquet(*files).selectExpr(
            *_COLUMNS, "_metadata.file_path AS filename", "_metadata.row_index AS file_row_number"
        )
        view = f"ppw_trace_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(view)
        table = connection.table(view)
    else:
        table = connection.read_parquet(files, filename=True, file_row_number=True)
    # The name of a single file is not worth its bytes in every row.
    name = table.filename if len(files) > 1 else ibis.literal("")
    return table.select(*_COLUMNS, file_name=name, file_row=table.file_row_number)


def _renumber(
    table: ibis.Table, notes: _Notes, names: tuple[tuple[str, ...], ...], first: int | None
) -> ibis.Table:
    """Give codes and times the meaning that they have in all files together."""
    changed = {}
    for what, own, common in zip(_CODED, notes.names, names, strict=True):
        if own and own != common[: len(own)]:
            numbers = [common.index(name) for name in own]
            changed[what] = table[what].cases(*enumerate(numbers), else_=-1).cast("int32")
    if first is not None and notes.start_unix_ns is not None and notes.start_unix_ns > first:
        changed["time_s"] = table.time_s + (notes.start_unix_ns - first) / 1e9
    return table.mutate(**changed) if changed else table


@contextmanager
def hold(table: ibis.Table, connection: BaseBackend) -> Iterator[ibis.Table]:
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


def arrays(table: ibis.Table) -> dict[str, Any]:
    """Compute a table; return its columns as arrays."""
    found = table.to_pyarrow()
    return {name: found[name].to_numpy() for name in found.column_names}


def survey_of(source: EngineTrace) -> TraceSurvey:
    """Survey a trace without its flushes; latencies and files are not looked at.

    Raises
    ------
    PpwError
        For requests that cannot be, or too few of them.
    """
    kept = source.without_flushes()
    extent = _extent(source.requests)
    flushes, impossible = extent.pop("flushes"), extent.pop("bad")
    _check(extent, impossible)
    streams = kept.group_by("stream", "device").agg(n=kept.count()).order_by("stream", "device")
    by_stream = arrays(streams)
    sizes = arrays(kept.group_by("size_bytes").agg(n=kept.count()))
    order = np.lexsort((sizes["size_bytes"], -sizes["n"]))
    residues = arrays(kept.group_by(residue=kept.lbn % _RESIDUES).agg(n=kept.count()))
    by_residue = np.zeros(_RESIDUES, dtype=np.int64)
    by_residue[residues["residue"]] = residues["n"]
    alignment, offset = alignment_of(by_residue)
    survey = Survey(
        **extent,
        streams=by_stream["stream"].astype(np.int64),
        devices=by_stream["device"].astype(np.int64),
        stream_counts=by_stream["n"],
        sizes=sizes["size_bytes"][order],
        size_counts=sizes["n"][order],
        alignment=alignment,
        alignment_offset=offset,
        tick_s=_tick(kept, extent),
    )
    # The digest is of what the survey found, which no order of rows changes.
    digest = hashlib.sha256()
    for value in vars(survey).values():
        digest.update(np.ascontiguousarray(value).tobytes())
    return TraceSurvey(survey, flushes, False, f"sha256:{digest.hexdigest()}", None)


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
        bad=_impossible_mask(table).cast("int64").sum(),
    )
    row: dict[str, Any] = found.to_pyarrow().to_pylist()[0]
    return row


def _impossible_mask(table: ibis.Table) -> Any:
    """Requests that `measurements.traces.requests` refuses, and those with a number missing."""
    time, lbn, size = table.time_s, table.lbn, table.size_bytes
    bad = time.isnull() | time.isnan() | time.isinf() | (time < 0) | (lbn < 0)
    bad = bad | (size < 0) | ((size == 0) & (table["op"] != FLUSH)) | (lbn > _LAST - size // BLOCK)
    bad = bad | (table.stream < 0) | (table.device < 0)
    for name in ("stream", "device", "lbn", "size_bytes", "op"):
        bad = bad | table[name].isnull()
    return bad.fill_null(True)


def _check(extent: dict[str, Any], impossible: int) -> None:
    n = extent["requests"] or 0
    if impossible:
        raise PpwError(
            f"{impossible} requests cannot be (a number is missing or negative, no size, or "
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
    by_stretch = times.group_by("stretch").agg(
        least=times.apart.min(where=times.apart > 0),
        low=times.time_s.min(),
        high=times.time_s.max(),
    )
    found = by_stretch.order_by("stretch").to_pyarrow()
    between = found["low"].to_numpy()[1:] - found["high"].to_numpy()[:-1]
    within = found["least"].drop_null().to_numpy()
    return float(np.concatenate([within, between[between > 0]]).min())
