"""Open a block trace of any format, and write one: as Parquet, which reads back exactly, or CSV."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from measurements.errors import MeasurementError
from measurements.table.writing import replace_whole
from measurements.traces import blktrace, formats, requests as base, tables
from measurements.traces.requests import SCHEMA, Trace, TraceReader

# The most telling first: a CSV with a header is what is left.
READERS: tuple[type[TraceReader], ...] = (
    blktrace.Blktrace,
    formats.Iolog2,
    formats.Iolog3,
    tables.OwnParquet,
    tables.ParquetTable,
    formats.Etw,
    formats.Msr,
    formats.Spc,
    blktrace.Blkparse,
    formats.MqSim,
    formats.Vscsi1,
    formats.Vscsi2,
    tables.CsvTable,
)
FORMATS = {reader.name: reader for reader in READERS}


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    batch_requests: int = 1_000_000,
) -> Trace:
    """Open a block trace; nothing but its beginning is read before its batches are asked for.

    Parameters
    ----------
    path : path
        File, .gz or not; of blktrace's files one a CPU: their base name, folder, or any of them.
    format : str, optional
        msr, spc, blkparse, blkparse:FORMAT (as given to ``blkparse -f``), blktrace, iolog-2,
        iolog-3, vscsi-1, vscsi-2, mqsim, etw, csv, parquet or ppw; by default what the file looks
        like, which `Trace.format` says.
    mapping : mapping of str to str, optional
        For csv and parquet: ``time_s``, ``lbn`` or ``offset_bytes``, ``size_bytes`` or ``blocks``,
        ``op``, ``latency_s``, ``stream``, ``device``, ``file`` to the column's header, whose unit
        suffix counts. Where operations are numbers, ``op`` is ``COLUMN:READ/WRITE`` with the codes.
    batch_requests : int
        Requests a batch at most.

    Raises
    ------
    MeasurementError
        When the file cannot be read, or looks like no trace.
    """
    if batch_requests < 1:
        raise MeasurementError(f"batch_requests is {batch_requests}: at least 1 is needed")
    source, options = Path(path), {}
    if format and format.startswith("blkparse:"):
        format, _, options["layout"] = format.partition(":")
        # Refuses a layout that is none.
        blktrace.pattern(options["layout"])
    kind = _reader_of(source, format, mapping)
    if mapping and not kind.maps:
        raise MeasurementError(
            f"{source}: is read as {kind.described}, which does not use --map: "
            "leave it out, or give --trace-format csv"
        )
    return Trace(lambda: kind(source, mapping, **options), batch_requests)


def _reader_of(
    path: Path, format: str | None, mapping: Mapping[str, str] | None
) -> type[TraceReader]:
    """Choose the reader by the format that is asked for, the mapping, or the content."""
    if format is not None:
        if format not in FORMATS:
            raise MeasurementError(
                f"no trace format {format!r}: choose one of {', '.join(FORMATS)}, or "
                "blkparse:FORMAT with what was given to blkparse -f"
            )
        return FORMATS[format]
    if mapping:
        # A mapping is for a table, whatever its first lines look like.
        is_parquet = tables.ParquetTable.recognises(base.head(path, 4))
        return tables.ParquetTable if is_parquet else tables.CsvTable
    return _recognise(path)


def _recognise(path: Path) -> type[TraceReader]:
    """Choose the reader by the first bytes of a file."""
    files = blktrace.per_cpu_files(path)
    # A CPU that saw nothing leaves an empty file.
    first = next((file for file in files if base.head(file, 1)), files[0])
    begin = base.head(first)
    if not begin.strip():
        raise MeasurementError(f"{first}: is empty")
    for reader in READERS:
        if reader.recognises(begin):
            is_own = reader is tables.ParquetTable and tables.is_own(path)
            return tables.OwnParquet if is_own else reader
    raise MeasurementError(
        f"{path}: does not look like a block trace; give its format with "
        f"--trace-format: {', '.join(FORMATS)}"
    )


class NamedRequests(Protocol):
    """Requests and the names of their codes, as `Trace` has them."""

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Names of ``stream``, ``device`` and ``file``."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in order of arrival; every call begins anew."""


class WrittenTrace(NamedTuple):
    """Number of requests written, and arrival (s) of the last, NaN where it has none."""

    requests: int
    last_s: float


def write_trace(trace: NamedRequests | Iterable[pa.RecordBatch], path: str | Path) -> WrittenTrace:
    """Write a trace: Parquet or CSV, by the file's ending; CSV also as ``.csv.gz``.

    The file appears whole or not at all.

    Parameters
    ----------
    trace : Trace, other requests with names, or iterable of pyarrow.RecordBatch
        Batches have the columns of `Trace`; by themselves, what they number has no names.
    path : path
        Ends in .parquet, .csv or .csv.gz.

    Returns
    -------
    WrittenTrace

    Raises
    ------
    MeasurementError
        When it cannot be written, or the trace not be read.
    """
    target = Path(path)
    name = target.name.lower()
    if not name.endswith((".parquet", ".csv", ".csv.gz")):
        raise MeasurementError(f"{target}: a trace is written as .parquet, .csv or .csv.gz")
    write = _write_parquet if name.endswith(".parquet") else _write_csv
    with replace_whole(target) as scratch:
        written = write(trace, scratch)
    # To type checkers, a with statement may swallow errors.
    return written  # noqa: RET504


def _write_parquet(trace: NamedRequests | Iterable[pa.RecordBatch], path: Path) -> WrittenTrace:
    # Arrivals hardly get shorter: zstd takes a tenth off them and three times as long to read.
    # They are in order: equal ones are neighbours, which a dictionary would take apart.
    others = [name for name in SCHEMA.names if name != "time_s"]
    compression = {"time_s": "snappy", **dict.fromkeys(others, "zstd")}
    with pq.ParquetWriter(
        path, base.STORED, compression=compression, use_dictionary=others
    ) as writer:
        written = _write_batches(trace, lambda batch: writer.write_table(_check_and_store(batch)))
        # All names are known after the last request.
        metadata = json.dumps({"schema_version": 1, "names": dict(_names_if_any(trace))}).encode()
        if isinstance(trace, Trace):
            metadata = trace.metadata()
        writer.add_key_value_metadata({base.METADATA: metadata})
    return written


def _write_csv(trace: NamedRequests | Iterable[pa.RecordBatch], path: Path) -> WrittenTrace:
    # A first pass finds the names.
    names = _names_if_any(trace)
    schema = _replace_all_codes(SCHEMA.empty_table(), names).schema
    packed = path.name.lower().endswith(".gz")
    options = csv.WriteOptions(quoting_style="needed")
    with (
        gzip.open(path, "wb") if packed else path.open("wb") as file,
        csv.CSVWriter(file, schema, write_options=options) as writer,
    ):

        def write(batch: pa.RecordBatch) -> None:
            writer.write_table(_replace_all_codes(pa.Table.from_batches([batch]), names))

        return _write_batches(trace, write)


def _names_if_any(trace: NamedRequests | Iterable[pa.RecordBatch]) -> Mapping[str, tuple[str, ...]]:
    return {} if isinstance(trace, Iterable) else trace.names


def _write_batches(
    trace: NamedRequests | Iterable[pa.RecordBatch], write: Callable[[pa.RecordBatch], None]
) -> WrittenTrace:
    requests, last_s = 0, float("nan")
    for batch in trace if isinstance(trace, Iterable) else trace.batches():
        write(batch)
        requests += batch.num_rows
        if batch.num_rows:
            last_s = batch["time_s"][-1].as_py()
    return WrittenTrace(requests, last_s)


def _check_and_store(batch: pa.RecordBatch) -> pa.Table:
    """Refuse requests that lack something: missing latencies are NaN, missing files -1."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count:
            raise MeasurementError(
                f"{name} is missing in {column.null_count} requests: leave them out, or say what "
                "it is"
            )
    return pa.Table.from_batches([batch], SCHEMA).cast(base.STORED)


def _replace_all_codes(table: pa.Table, names: Mapping[str, tuple[str, ...]]) -> pa.Table:
    """Replace numbers by words, and a missing latency or file by nothing."""
    columns = {name: table[name] for name in SCHEMA.names}
    columns["op"] = pa.array(base.OPERATIONS).take(table["op"].cast(pa.int32()))
    for name in base.NAMED:
        columns[name] = _replace_codes(table[name], pa.array(names.get(name, ()), pa.string()))
    latency = columns["latency_s"]
    columns["latency_s"] = pc.if_else(pc.is_nan(latency), pa.scalar(None, pa.float64()), latency)
    return pa.table(columns)


def _replace_codes(numbers: pa.ChunkedArray, words: pa.StringArray) -> pa.ChunkedArray:
    """Replace numbers by their words; a number without one stays, and -1 becomes nothing."""
    nothing = pa.scalar(None, pa.int32())
    there = pc.if_else(pc.greater_equal(numbers, 0), numbers, nothing)
    named = words.take(pc.if_else(pc.less(there, len(words)), there, nothing))
    if named.null_count == there.null_count:
        return named
    return pc.coalesce(named, there.cast(pa.string()))
