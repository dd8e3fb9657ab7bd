"""A block trace: requests in order of arrival, streamed in bounded memory."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from measurements.errors import MeasurementError

Array = npt.NDArray[Any]

METADATA = b"ppw.trace"
_COLUMNS = """
    time_s float64, stream int32, device int32, lbn int64, size_bytes int64, op uint8,
    latency_s float64, file int32
"""
SCHEMA = pa.schema([tuple(column.split()) for column in _COLUMNS.split(",")])
# Files of ppw have required columns: Parquet marks every optional value as present or missing,
# and a column without these marks is read in two thirds of the time.
STORED = pa.schema([field.with_nullable(False) for field in SCHEMA])
NAMED = ("stream", "device", "file")

BLOCK_BYTES = 512
NO_FILE = -1
OPERATIONS = ("read", "write", "discard", "flush")
# Bytes of text to read at once: few enough for a cache, enough that the cost of a block is small.
BLOCK = 1 << 22
# Distance, in requests, that a late arrival may be moved back; traces merged from several sources
# need no more. Takes 90 MB.
WINDOW = 1 << 20

# Offsets in bytes end here on every system with a 64-bit off_t.
_LAST_BLOCK = 2**63 // BLOCK_BYTES
_GZIP = b"\x1f\x8b"
_LONGEST_LINE = 1 << 16


class Op(IntEnum):
    """Code of an operation; `OTHER` never leaves a reader."""

    READ = 0
    WRITE = 1
    DISCARD = 2
    FLUSH = 3
    OTHER = 255


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

    def __init__(self, new_reader: Callable[[], TraceReader], batch_requests: int) -> None:
        self._new_reader, self._batch_requests = new_reader, batch_requests
        # Reader and order of the last whole pass.
        self._last_pass: tuple[TraceReader, InOrder] | None = None
        first = new_reader()
        self.format, self.described, self.source = first.name, first.described, str(first.path)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in order of arrival; every call begins anew.

        Raises
        ------
        MeasurementError
            When the file is no trace of this format, or holds what cannot be: names the line.
        """
        reader, order, size = self._new_reader(), InOrder(), self._batch_requests
        try:
            for chunk in order.sort(check(chunk) for chunk in reader):
                for begin in range(0, chunk.rows(), size):
                    yield _batch(chunk.take(slice(begin, begin + size)), reader, order.first or 0)
        except BadRequestError as error:
            where = f"{self.source}: {reader.where(error.row)}, read as {self.described}"
            raise MeasurementError(f"{where}: {error.reason}") from None
        if order.first is None:
            raise MeasurementError(f"{self.source}: {self.described}: holds no request")
        self._last_pass = reader, order

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Names of ``stream``, ``device`` and ``file``; asked for before a pass, makes one."""
        reader, _ = self._read_once()
        # Where a format records no streams or devices, all requests belong to one.
        whole = () if reader.numbered else ("stream", "device")
        return {name: reader.names[name].all() or ("all",) * (name in whole) for name in NAMED}

    @property
    def findings(self) -> tuple[str, ...]:
        """Findings about the trace, in sentences; asked for before a pass, makes one."""
        reader, order = self._read_once()
        findings = [*reader.doubts(), *(note.format(n=n) for note, n in reader.notes.items() if n)]
        if order.late:
            by = f"by up to {order.latest / reader.ticks_per_s:.6g} s"
            findings.append(f"{order.late} requests were out of order, {by}; ppw sorted them")
        return tuple(findings)

    @property
    def start_unix_ns(self) -> int | None:
        """Arrival of the first request, Unix time in ns; None where the format does not say."""
        reader, order = self._read_once()
        if reader.epoch_ns is None:
            return None
        ticks = int(order.first or 0) if reader.rebased else 0
        return reader.epoch_ns + ticks * (10**9 // reader.ticks_per_s)

    def to_table(self) -> pa.Table:
        """Read all of it, with names and start in the schema's metadata (``ppw.trace``, JSON)."""
        table = pa.Table.from_batches(list(self.batches()), SCHEMA)
        return table.replace_schema_metadata({METADATA: self.metadata()})

    def metadata(self) -> bytes:
        """Format, source, start and names, as JSON."""
        content = {"schema_version": 1, "format": self.format, "source": self.source}
        content |= {"start_unix_ns": self.start_unix_ns, "names": self.names}
        return json.dumps(content).encode()

    def _read_once(self) -> tuple[TraceReader, InOrder]:
        if self._last_pass is None:
            deque(self.batches(), maxlen=0)
        return cast("tuple[TraceReader, InOrder]", self._last_pass)


def _batch(requests: Requests, reader: TraceReader, first: float) -> pa.RecordBatch:
    time = (requests.time - first) / reader.ticks_per_s if reader.rebased else requests.time
    # After the row number and the time, the columns of a chunk are those of the schema.
    arrays = [
        pa.array(np.ascontiguousarray(column, field.type.to_pandas_dtype()), field.type)
        for column, field in zip([time, *requests[2:]], SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class TraceReader:
    """One pass over a trace of one format."""

    name: ClassVar[str]
    described: ClassVar[str]
    begins: ClassVar[re.Pattern[bytes]]  # what the first bytes of a file of this format match
    unit: ClassVar[str] = "line"
    ticks_per_s: int = 1
    # Unix time (ns) of tick 0 of the format's clock, where the format says it.
    epoch_ns: int | None = None
    rebased: ClassVar[bool] = True  # whether times are to count from the first request
    maps: ClassVar[bool] = False  # whether --map means anything to it
    numbered: ClassVar[bool] = False  # whether streams and devices may be numbers without names

    def __init__(self, path: Path, mapping: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.mapping = dict(mapping or {})
        self.names = {column: NameCodes() for column in NAMED}
        # Sentences with a {n}, and how often each holds.
        self.notes: Counter[str] = Counter()

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether the first bytes of a file, unpacked, look like this format."""
        return cls.begins.match(head) is not None

    def __iter__(self) -> Iterator[Requests]:
        """Yield the requests in the order of the file; raises BadRequestError."""
        raise NotImplementedError

    def doubts(self) -> Iterator[str]:
        """Yield, after the last chunk, sentences about what makes the reading doubtful."""
        yield from ()

    def where(self, row: int) -> str:
        """Say where a row is."""
        return f"{self.unit} {row}"

    def note(self, sentence: str, times: Any) -> None:
        """Count a finding, by a number or a mask of requests."""
        if count := int(np.sum(times)):
            self.notes[sentence] += count

    def blocks(self, offset: Array) -> Array:
        """Convert offsets (bytes) to blocks; notes offsets inside a block."""
        inside = (offset & (BLOCK_BYTES - 1)) != 0
        self.note("{n} requests begin inside a block of 512 bytes; lbn is that block", inside)
        return offset >> 9


def record_layout(declared: str) -> np.dtype[np.void]:
    """Layout of a record of little-endian numbers, whose fields are declared as ``NAME TYPE``."""
    fields = (field.split() for field in declared.split(","))
    return np.dtype([(name, f"<{kind}") for name, kind in fields])


class BadRequestError(Exception):
    """An impossible request: its row, as the reader counts, and the reason."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row, self.reason = row, reason


def refuse_first(bad: Array, row: Array, reason: Callable[[int], str]) -> None:
    """Raise BadRequestError for the first request of a mask; ``reason`` takes its index."""
    if bad.any():
        at = int(bad.argmax())
        raise BadRequestError(int(row[at]), reason(at))


class Requests(NamedTuple):
    """Requests in the order of the file, one array per column."""

    row: Array  # where the reader found each
    time: Array  # ticks of the format's clock, int64 where whole: it may have begun centuries ago
    stream: Array
    device: Array
    lbn: Array  # may be uint64 until it is checked
    size_bytes: Array
    op: Array
    latency_s: Array
    file: Array

    @classmethod
    def of(
        cls, row: Array, time: Array, lbn: Array, size_bytes: Array, op: Array, **recorded: Any
    ) -> Requests:
        """Fill what is not recorded, or None, of stream, device, latency_s and file."""
        missing = {"stream": 0, "device": 0, "latency_s": np.nan, "file": NO_FILE}
        filled = {}
        for name, default in missing.items():
            column = default if recorded.get(name) is None else recorded[name]
            of_type = np.asarray(column, SCHEMA.field(name).type.to_pandas_dtype())
            filled[name] = np.broadcast_to(of_type, row.shape)
        return cls(row=row, time=time, lbn=lbn, size_bytes=size_bytes, op=op, **filled)

    def drop_others(self) -> Requests:
        """Leave out commands that are no operation of a trace."""
        other = self.op == Op.OTHER
        return self.take(~other) if other.any() else self

    def rows(self) -> int:
        """Count the requests; ``len`` counts columns."""
        return len(self.row)

    def take(self, chosen: Array | slice) -> Requests:
        """Choose requests by a mask, their numbers or a slice."""
        return Requests(*(column[chosen] for column in self))


def concatenate(parts: Sequence[Requests]) -> Requests:
    """Join chunks, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Requests(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class NameCodes:
    """The names of one column, numbered in the order in which they appear."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._codes = {name: code for code, name in enumerate(names)}

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Array:
        """Number each string of a column by its name; new names get the next numbers."""
        return self.codes_at(*encode(column))

    def codes_at(self, index: Array, names: Iterable[str]) -> Array:
        """Number each entry of ``index`` by the name that it points to; add new names."""
        known = self._codes
        codes = [known.setdefault(name, len(known)) for name in names]
        return np.asarray(codes or [0], np.int32)[index]

    def all(self) -> tuple[str, ...]:
        """List the names by their numbers."""
        return tuple(self._codes)


def encode(column: pa.Array | pa.ChunkedArray) -> tuple[Array, list[str]]:
    """Dictionary-encode a column of strings: the index of each in a list, and the list."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_string(column.type) and (word := _only_word(column)) is not None:
        return np.broadcast_to(np.int32(0), len(column)), [word]
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    # What is no UTF-8 is no reason to refuse a name.
    words = [
        (word or b"").decode(errors="replace")
        for word in column.dictionary.cast(pa.binary()).to_pylist()
    ]
    return column.indices.to_numpy(zero_copy_only=False), words


def _only_word(column: pa.StringArray) -> str | None:
    """Find the word that fills a whole column; None where words differ or one is missing."""
    if not len(column) or column.null_count:
        return None
    _, ends, data = column.buffers()
    word = bytes(column[0].as_buffer())
    length = len(word)
    end = np.frombuffer(ends, np.int32, len(column) + 1, column.offset * 4)
    if end[-1] - end[0] != length * len(column) or (np.diff(end) != length).any():
        return None
    if length:
        letters = np.frombuffer(data, np.uint8, end[-1] - end[0], end[0]).reshape(-1, length)
        if (letters != letters[0]).any():
            return None
    return word.decode(errors="replace")


def operations(column: pa.Array | pa.ChunkedArray, codes: Mapping[str, int]) -> Array:
    """Operation of each word of a column, by words in lower case; `Op.OTHER` for the rest."""
    index, words = encode(column)
    found = [codes.get(word.strip().lower(), Op.OTHER) for word in words]
    return cast("Array", np.asarray(found or [0], np.uint8)[index])


def has_columns(schema: pa.Schema) -> bool:
    """Whether these are the columns of a trace, in their order, optional or not."""
    return bool(pa.schema([field.with_nullable(False) for field in schema]).equals(STORED))


def check(requests: Requests) -> Requests:
    """Refuse the first impossible request by BadRequestError; return ``lbn`` as int64."""
    if requests.rows() and not _extremes_are_possible(requests):
        _refuse_impossible(requests)
    return requests._replace(lbn=requests.lbn.astype(np.int64, copy=False))


def _extremes_are_possible(requests: Requests) -> bool:
    """Whether the extremes of the columns prove that nothing is wrong: several times as fast."""
    time, lbn, size = requests.time, requests.lbn, requests.size_bytes
    largest = int(size.max())
    return bool(
        size.min() > 0
        and lbn.min() >= 0
        and int(lbn.max()) <= _LAST_BLOCK - largest // BLOCK_BYTES
        and time.min() >= 0
        and time.max() < np.inf
        and requests.op.max() <= Op.FLUSH
        and not (requests.latency_s < 0).any()
    )


def _refuse_impossible(requests: Requests) -> None:
    """Name the first request that cannot be, and why."""
    time, lbn, size, op = requests.time, requests.lbn, requests.size_bytes, requests.op
    # A flush moves nothing.
    empty = (size < 0) | ((size == 0) & (op != Op.FLUSH))
    # The end of the request in blocks, without a sum that may overflow.
    far = lbn > _LAST_BLOCK - size // BLOCK_BYTES
    faults = [
        (empty, "a {op} of {size} bytes: every request moves at least one; remove it"),
        (far, "lbn {lbn} with {size} bytes ends beyond 2^63 bytes: no device reaches that far"),
        (lbn < 0, "lbn {lbn} is negative"),
        (~np.isfinite(time), "its time is no number"),
        (time < 0, "its time {time} is negative"),
        (requests.latency_s < 0, "its latency {latency} s is negative"),
        (op > Op.FLUSH, "operation {code} is none of 0 (read) to 3 (flush)"),
    ]
    found = [(int(np.argmax(bad)), reason) for bad, reason in faults if bad.any()]
    if not found:
        return
    at, reason = min(found, key=lambda fault: fault[0])
    code = int(op[at])
    name = OPERATIONS[code] if code < len(OPERATIONS) else f"operation {code}"
    values = {"op": name, "code": code, "size": int(size[at]), "lbn": int(lbn[at])}
    values |= {"time": time[at], "latency": requests.latency_s[at]}
    raise BadRequestError(int(requests.row[at]), reason.format(**values))


class InOrder:
    """Sorts arrivals that come late, up to ``window`` requests back."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._last_yielded: float | None = None
        # Number of requests that came after a later one, and by how much at most (ticks).
        self.late = 0
        self.latest: float = 0
        # Time of the first request (ticks), once it is known.
        self.first: float | None = None

    def sort(self, chunks: Iterable[Requests]) -> Iterator[Requests]:
        """Yield the requests in order; BadRequestError for one later than the window reaches."""
        held: deque[Requests] = deque()
        count = 0
        for chunk in chunks:
            if not chunk.rows():
                continue
            count += chunk.rows()
            late = self._count_late(chunk.time, held[-1].time[-1] if held else None)
            held.append(chunk)
            if late:
                both = concatenate(list(held))
                held = deque([both.take(np.argsort(both.time, kind="stable"))])
            while count - held[0].rows() >= self._window:
                count -= held[0].rows()
                yield self._release_in_order(held.popleft())
            if count >= 2 * self._window:
                # Sorting has made one chunk that is longer than the window.
                ready = count - self._window
                yield self._release_in_order(held[0].take(slice(0, ready)))
                held[0] = held[0].take(slice(ready, None))
                count = self._window
        yield from map(self._release_in_order, held)

    def _count_late(self, time: Array, last: float | None) -> int:
        """Count the requests that are earlier than one before them."""
        last = time[0] if last is None else last
        if last <= time[0] and bool(np.all(time[1:] >= time[:-1])):
            return 0
        highest = np.maximum(np.maximum.accumulate(time), last)
        late = int((time < highest).sum())
        self.late += late
        self.latest = max(self.latest, (highest - time).max())
        return late

    def _release_in_order(self, ready: Requests) -> Requests:
        """Return sorted requests; refuse them where they arrive before the last ones."""
        start = ready.time[0]
        if self._last_yielded is not None and start < self._last_yielded:
            raise BadRequestError(
                int(ready.row[0]),
                f"arrives before a request that is more than {self._window} requests earlier in "
                "the file: sort the trace by arrival first",
            )
        self.first = start if self.first is None else self.first
        self._last_yielded = ready.time[-1]
        return ready


@contextmanager
def open_unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, unpacked; turns errors of reading into MeasurementError."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise MeasurementError(f"{path}: broken gzip: {error}: copy it again") from error
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be read: {error.strerror or error}") from error


def head(path: Path, size: int = 1 << 16) -> bytes:
    """Read the first bytes of a file, unpacked."""
    with open_unpacked(path) as file:
        return file.read(size)


def line_blocks(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield whole lines, many at a time: number of the first, from 1, how many, their bytes."""
    with open_unpacked(path) as file:
        first, rest = 1, b""
        while block := file.read(BLOCK):
            end = block.rfind(b"\n") + 1
            if not end:
                rest += block
            else:
                text = _valid_utf8(b"".join((rest, memoryview(block)[:end])))
                # bytes.count stops at every line end: slower.
                lines = int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))
                yield first, lines, text
                first, rest = first + lines, block[end:]
            if len(rest) > _LONGEST_LINE:
                raise MeasurementError(
                    f"{path}: line {first} is longer than {_LONGEST_LINE} bytes: is this a trace?"
                )
        if rest:
            yield first, 1, _valid_utf8(rest)


def _valid_utf8(block: bytes) -> bytes:
    return block if block.isascii() else block.decode(errors="replace").encode()
