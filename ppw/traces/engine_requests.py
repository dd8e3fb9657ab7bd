"""A block trace in Parquet files as a table of an engine, in the order of its files."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from measurements.errors import MeasurementError
from measurements.traces.requests import has_columns
from measurements.traces.tables import own_metadata
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import ibis
    from ibis.backends import BaseBackend

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
