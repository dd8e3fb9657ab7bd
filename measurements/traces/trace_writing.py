"""Traces to files: Parquet, which reads back exactly, and CSV."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from measurements.errors import MeasurementError
from measurements.traces.requests import METADATA, NAMED, OPERATIONS, SCHEMA, STORED, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class NamedRequests(Protocol):
    """Requests and the names of what they number, as `Trace` has them."""

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Names of ``stream``, ``device`` and ``file``."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in order of arrival; every call begins anew."""


class WrittenTrace(NamedTuple):
    """How many requests were written, and when the last arrived (s; NaN where it is not said)."""

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
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as folder:
            scratch = Path(folder, target.name)
            written = write(trace, scratch)
            scratch.replace(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasurementError(f"{target}: cannot be written: {reason}") from error
    return written


def _write_parquet(trace: NamedRequests | Iterable[pa.RecordBatch], path: Path) -> WrittenTrace:
    # Arrivals hardly get shorter: zstd takes a tenth off them and three times as long to read.
    # They are in order: equal ones are neighbours, which a dictionary would take apart.
    others = [name for name in SCHEMA.names if name != "time_s"]
    compression = {"time_s": "snappy", **dict.fromkeys(others, "zstd")}
    with pq.ParquetWriter(path, STORED, compression=compression, use_dictionary=others) as writer:
        written = _write_batches(trace, lambda batch: writer.write_table(_stored(batch)))
        # All names are known after the last request.
        metadata = (
            trace.metadata()
            if isinstance(trace, Trace)
            else json.dumps({"schema_version": 1, "names": dict(_names(trace))}).encode()
        )
        writer.add_key_value_metadata({METADATA: metadata})
    return written


def _write_csv(trace: NamedRequests | Iterable[pa.RecordBatch], path: Path) -> WrittenTrace:
    # A first pass finds the names.
    names = _names(trace)
    schema = _as_words(SCHEMA.empty_table(), names).schema
    packed = path.name.lower().endswith(".gz")
    options = csv.WriteOptions(quoting_style="needed")
    with (
        gzip.open(path, "wb") if packed else path.open("wb") as file,
        csv.CSVWriter(file, schema, write_options=options) as writer,
    ):
        return _write_batches(
            trace,
            lambda batch: writer.write_table(_as_words(pa.Table.from_batches([batch]), names)),
        )


def _names(trace: NamedRequests | Iterable[pa.RecordBatch]) -> Mapping[str, tuple[str, ...]]:
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


def _stored(batch: pa.RecordBatch) -> pa.Table:
    """Refuse requests that lack something: missing latencies are NaN, missing files -1."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count:
            raise MeasurementError(
                f"{name} is missing in {column.null_count} requests: leave them out, or say what "
                "it is"
            )
    return pa.Table.from_batches([batch], SCHEMA).cast(STORED)


def _as_words(table: pa.Table, names: Mapping[str, tuple[str, ...]]) -> pa.Table:
    """Replace numbers by words, and a missing latency or file by nothing."""
    columns = {name: table[name] for name in SCHEMA.names}
    columns["op"] = pa.array(OPERATIONS).take(table["op"].cast(pa.int32()))
    for name in NAMED:
        columns[name] = _named(table[name], pa.array(names.get(name, ()), pa.string()))
    latency = columns["latency_s"]
    columns["latency_s"] = pc.if_else(pc.is_nan(latency), pa.scalar(None, pa.float64()), latency)
    return pa.table(columns)


def _named(numbers: pa.ChunkedArray, words: pa.StringArray) -> pa.ChunkedArray:
    """Replace numbers by their words; a number without one stays, and -1 becomes nothing."""
    nothing = pa.scalar(None, pa.int32())
    there = pc.if_else(pc.greater_equal(numbers, 0), numbers, nothing)
    named = words.take(pc.if_else(pc.less(there, len(words)), there, nothing))
    if named.null_count == there.null_count:
        return named
    return pc.coalesce(named, there.cast(pa.string()))
