"""Traces to files: Parquet, which reads back exactly, and CSV."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from measurements.errors import MeasurementError
from measurements.traces.requests import METADATA, NAMED, OPERATIONS, SCHEMA, STORED, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Arrivals hardly get shorter: zstd takes a tenth off them and three times as long to read.
_TIMES = "snappy"
# They are in order: those that are equal are neighbours, which a dictionary would take apart.
_LOOKED_UP = [name for name in SCHEMA.names if name != "time_s"]


class NamedRequests(Protocol):
    """Requests and the names of what they number, as `Trace` has them."""

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Of ``stream``, ``device`` and ``file``."""

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
    plain = target.name.lower().removesuffix(".gz")
    if not plain.endswith((".parquet", ".csv")) or target.name.lower().endswith(".parquet.gz"):
        raise MeasurementError(f"{target}: a trace is written as .parquet, .csv or .csv.gz")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as folder:
            scratch = Path(folder, target.name)
            passed = _Passed(trace)
            (_parquet if plain.endswith(".parquet") else _csv)(passed, scratch)
            scratch.replace(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasurementError(f"{target}: cannot be written: {reason}") from error
    return WrittenTrace(passed.requests, passed.last_s)


class _Passed:
    """Requests with names, and what has passed of them."""

    def __init__(self, trace: NamedRequests | Iterable[pa.RecordBatch]) -> None:
        self._trace = trace
        self.requests, self.last_s = 0, float("nan")

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        return {} if isinstance(self._trace, Iterable) else self._trace.names

    def batches(self) -> Iterator[pa.RecordBatch]:
        whole = self._trace if isinstance(self._trace, Iterable) else self._trace.batches()
        for batch in whole:
            self.requests += batch.num_rows
            if batch.num_rows:
                self.last_s = batch["time_s"][-1].as_py()
            yield batch

    def metadata(self) -> bytes:
        if isinstance(self._trace, Trace):
            return self._trace.metadata()
        return json.dumps({"schema_version": 1, "names": dict(self.names)}).encode()


def _parquet(trace: _Passed, path: Path) -> None:
    compression = dict.fromkeys(SCHEMA.names, "zstd") | {"time_s": _TIMES}
    options = {"compression": compression, "use_dictionary": _LOOKED_UP}
    with pq.ParquetWriter(path, STORED, **options) as writer:
        for batch in trace.batches():
            writer.write_table(_whole(batch).cast(STORED))
        # The names are all known when the last request is.
        writer.add_key_value_metadata({METADATA: trace.metadata()})


def _whole(batch: pa.RecordBatch) -> pa.Table:
    """Refuse requests that lack something: missing latencies are NaN, missing files -1."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count:
            raise MeasurementError(
                f"{name} is missing in {column.null_count} requests: leave them out, or say what "
                "it is"
            )
    return pa.Table.from_batches([batch], SCHEMA)


def _csv(trace: _Passed, path: Path) -> None:
    # A first pass finds the names.
    names = trace.names
    schema = _worded(SCHEMA.empty_table(), names).schema
    packed = path.name.lower().endswith(".gz")
    with gzip.open(path, "wb") if packed else path.open("wb") as file:
        options = csv.WriteOptions(quoting_style="needed")
        with csv.CSVWriter(file, schema, write_options=options) as writer:
            for batch in trace.batches():
                writer.write_table(_worded(pa.Table.from_batches([batch]), names))


def _worded(table: pa.Table, names: Mapping[str, tuple[str, ...]]) -> pa.Table:
    """Put words in the place of numbers, and nothing where a latency or file is missing."""
    import pyarrow.compute as pc

    columns = {name: table[name] for name in SCHEMA.names}
    columns["op"] = pa.array(OPERATIONS).take(table["op"].cast(pa.int32()))
    for name in NAMED:
        columns[name] = _named(table[name], pa.array(names.get(name, ()), pa.string()))
    latency = columns["latency_s"]
    columns["latency_s"] = pc.if_else(pc.is_nan(latency), pa.scalar(None, pa.float64()), latency)
    return pa.table(columns)


def _named(numbers: pa.ChunkedArray, words: pa.StringArray) -> pa.ChunkedArray:
    """Put words in the place of numbers; a number without one stays, and -1 is nothing."""
    import pyarrow.compute as pc

    nothing = pa.scalar(None, pa.int32())
    there = pc.if_else(pc.greater_equal(numbers, 0), numbers, nothing)
    within = pc.if_else(pc.less(there, len(words)), there, nothing)
    named = words.take(within)
    if named.null_count == there.null_count:
        return named
    return pc.coalesce(named, there.cast(pa.string()))
