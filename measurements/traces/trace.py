"""A block trace: requests in order of arrival, streamed in bounded memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from measurements.errors import MeasurementError
from measurements.traces.arrivals import InOrder
from measurements.traces.checks import check
from measurements.traces.requests import NAMED, SCHEMA, BadRequestError, Requests
from measurements.traces.tables import METADATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from measurements.traces.reader import Reader


class _Facts(NamedTuple):
    """What a whole pass has shown."""

    names: dict[str, tuple[str, ...]]
    findings: tuple[str, ...]
    start_unix_ns: int | None


class Trace:
    """Requests of a block trace, as Arrow record batches.

    Columns, in this order: ``time_s`` float64 (arrival, seconds from the trace's first request),
    ``stream`` int32 (thread, process or host), ``device`` int32, ``lbn`` int64 (block of 512
    bytes), ``size_bytes`` int64, ``op`` uint8 (0 read, 1 write, 2 discard, 3 flush), ``latency_s``
    float64 (NaN where not recorded), ``file`` int32 (-1 where not recorded). ``stream``,
    ``device`` and ``file`` are places in `names`.

    Made by `measurements.traces.read_trace`.

    Attributes
    ----------
    format : str
        Name of the format, as ``read_trace`` takes it.
    described : str
        The format in words.
    source : str
        File.
    """

    def __init__(self, new_reader: Callable[[], Reader], batch_requests: int) -> None:
        self._new_reader = new_reader
        self._batch_requests = batch_requests
        self._facts: _Facts | None = None
        first = new_reader()
        self.format = first.name
        self.described = first.described
        self.source = str(first.path)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in order of arrival; every call begins anew.

        Raises
        ------
        MeasurementError
            When the file is no trace of this format, or holds what cannot be: names the line.
        """
        reader, order = self._new_reader(), InOrder()
        try:
            chunks = (check(chunk) for chunk in reader.chunks())
            for requests in _regrouped(order.sort(chunks), self._batch_requests):
                yield _batch(requests, reader, order.first or 0)
        except BadRequestError as error:
            where = reader.where(error.row)
            raise MeasurementError(
                f"{self.source}: {where}, read as {self.described}: {error.reason}"
            ) from None
        if order.first is None:
            raise MeasurementError(f"{self.source}: {self.described}: holds no request")
        self._facts = _facts(reader, order)

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Names of ``stream``, ``device`` and ``file``; asked for before a pass, makes one."""
        return self._known().names

    @property
    def findings(self) -> tuple[str, ...]:
        """What is odd about the trace, in sentences; asked for before a pass, makes one."""
        return self._known().findings

    @property
    def start_unix_ns(self) -> int | None:
        """When the first request arrived, Unix time in ns; None where the format does not say."""
        return self._known().start_unix_ns

    def to_table(self) -> pa.Table:
        """Read all of it, with names and start in the schema's metadata (``ppw.trace``, JSON)."""
        table = pa.Table.from_batches(list(self.batches()), SCHEMA)
        return table.replace_schema_metadata({METADATA: self.metadata()})

    def metadata(self) -> bytes:
        """Format, source, start and names, as JSON."""
        known = self._known()
        said = {
            "schema_version": 1,
            "format": self.format,
            "source": self.source,
            "start_unix_ns": known.start_unix_ns,
            "names": known.names,
        }
        return json.dumps(said).encode()

    def _known(self) -> _Facts:
        if self._facts is None:
            for _ in self.batches():
                pass
        if self._facts is None:
            raise MeasurementError(f"{self.source}: cannot be read to its end")
        return self._facts


def _facts(reader: Reader, order: InOrder) -> _Facts:
    names = {name: reader.names[name].all() for name in NAMED}
    for one in () if reader.numbered else ("stream", "device"):
        # Where the format records none, all requests are of one.
        names[one] = names[one] or ("all",)
    found = [*reader.doubts(), *(note.format(n=n) for note, n in reader.notes.items() if n)]
    if order.late:
        by = order.latest / reader.ticks_per_s
        found.append(f"{order.late} requests were out of order, by up to {by:.6g} s; now sorted")
    start = None
    if reader.epoch_ns is not None and order.first is not None:
        ticks = order.first if reader.rebased else 0
        start = reader.epoch_ns + int(ticks) * (10**9 // reader.ticks_per_s)
    return _Facts(names, tuple(found), start)


def _regrouped(chunks: Iterable[Requests], size: int) -> Iterator[Requests]:
    """Cut chunks to a size; each but the last has it, where a chunk is not smaller."""
    for chunk in chunks:
        for begin in range(0, chunk.rows(), size):
            yield chunk.take(slice(begin, begin + size))


def _batch(requests: Requests, reader: Reader, first: float) -> pa.RecordBatch:
    time = requests.time
    if reader.rebased:
        time = (time - first) / reader.ticks_per_s
    columns = [
        time,
        requests.stream,
        requests.device,
        requests.lbn,
        requests.size_bytes,
        requests.op,
        requests.latency_s,
        requests.file,
    ]
    arrays = [
        pa.array(np.ascontiguousarray(column, field.type.to_pandas_dtype()), field.type)
        for column, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
