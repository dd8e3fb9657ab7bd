"""A block trace: requests in order of arrival, streamed in bounded memory."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter, deque
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

# What every reader makes of its format: chunks of requests, column by column.

METADATA = b"ppw.trace"
BLOCK_BYTES = 512

READ, WRITE, DISCARD, FLUSH = range(4)
OPERATIONS = ("read", "write", "discard", "flush")

NO_FILE = -1

SCHEMA = pa.schema(
    [
        ("time_s", pa.float64()),
        ("stream", pa.int32()),
        ("device", pa.int32()),
        ("lbn", pa.int64()),
        ("size_bytes", pa.int64()),
        ("op", pa.uint8()),
        ("latency_s", pa.float64()),
        ("file", pa.int32()),
    ]
)
# As our own files have them: Parquet says for every optional value whether it is there, and what
# is never missing is read in two thirds of the time.
STORED = pa.schema([field.with_nullable(False) for field in SCHEMA])
NAMED = ("stream", "device", "file")

Array = npt.NDArray[Any]


def has_columns(schema: pa.Schema) -> bool:
    """Whether these are the columns of a trace, in their order, optional or not."""
    return bool(pa.schema([field.with_nullable(False) for field in schema]).equals(STORED))


class BadRequestError(Exception):
    """A request that cannot be: its row, as the reader counts, and why."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


class Requests(NamedTuple):
    """Requests in the order of the file, one array a column.

    ``time`` is in ticks of the format's clock, int64 where it is a whole number of them, so that
    a clock that began centuries ago loses nothing. ``row`` is where the reader found each.
    ``lbn`` may be uint64 until it is checked.
    """

    row: Array
    time: Array
    stream: Array
    device: Array
    lbn: Array
    size_bytes: Array
    op: Array
    latency_s: Array
    file: Array

    @classmethod
    def of(
        cls,
        row: Array,
        time: Array,
        lbn: Array,
        size_bytes: Array,
        op: Array,
        *,
        stream: Array | int = 0,
        device: Array | int = 0,
        latency_s: Array | float = np.nan,
        file: Array | int = NO_FILE,
    ) -> Requests:
        """Fill the columns that a format does not record."""

        def whole(column: Array | float, kind: type) -> Array:
            return np.broadcast_to(np.asarray(column, kind), row.shape)

        return cls(
            row,
            time,
            whole(stream, np.int32),
            whole(device, np.int32),
            lbn,
            size_bytes,
            op,
            whole(latency_s, np.float64),
            whole(file, np.int32),
        )

    def rows(self) -> int:
        """Count the requests; ``len`` counts columns."""
        return len(self.row)

    def take(self, chosen: Array | slice) -> Requests:
        """Choose requests by a mask, their numbers or a slice."""
        return Requests(*(column[chosen] for column in self))


def concatenate(parts: Sequence[Requests]) -> Requests:
    """Put chunks behind one another."""
    if len(parts) == 1:
        return parts[0]
    return Requests(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Names:
    """The names of one column, numbered in the order in which they appear."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._codes = {name: code for code, name in enumerate(names)}

    def code(self, name: str) -> int:
        """Number of a name, which is new to it or known."""
        return self._codes.setdefault(name, len(self._codes))

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Array:
        """Numbers of a column of strings."""
        code, words = encoded(column)
        return np.asarray([self.code(word) for word in words] or [0], np.int32)[code]

    def all(self) -> tuple[str, ...]:
        """List the names by their numbers."""
        return tuple(self._codes)


def encoded(column: pa.Array | pa.ChunkedArray) -> tuple[Array, list[str]]:
    """Number the words of a column: the place of each in a list, and the list."""
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
    """Find the word that all of a column are, as a host's name is; several times the speed."""
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


# Requests that cannot be, found column by column.


# Where offsets, in bytes, end for every system that uses off_t.
LARGEST = 2**63
_LAST_BLOCK = LARGEST // BLOCK_BYTES


def check(requests: Requests) -> Requests:
    """Refuse the first request that cannot be; returns them with ``lbn`` as int64.

    Raises
    ------
    BadRequestError
    """
    if requests.rows() and not _can_all_be(requests):
        _refuse(requests)
    if requests.lbn.dtype != np.int64:
        return requests._replace(lbn=requests.lbn.astype(np.int64))
    return requests


def _can_all_be(requests: Requests) -> bool:
    """Whether extremes of the columns show already that nothing is wrong: several times as fast."""
    time, lbn, size = requests.time, requests.lbn, requests.size_bytes
    largest = int(size.max())
    return bool(
        size.min() > 0
        and lbn.min() >= 0
        and int(lbn.max()) <= _LAST_BLOCK - largest // BLOCK_BYTES
        and time.min() >= 0
        and time.max() < np.inf
        and requests.op.max() <= FLUSH
        and not (requests.latency_s < 0).any()
    )


def _refuse(requests: Requests) -> None:
    found = [
        (int(np.argmax(bad)), reason)
        for bad, reason in _complaints(requests)
        if bad is not None and bad.any()
    ]
    if found:
        at, reason = min(found, key=lambda one: one[0])
        raise BadRequestError(int(requests.row[at]), reason.format(**_shown(requests, at)))


def _complaints(requests: Requests) -> list[tuple[Array | None, str]]:
    time, lbn, size = requests.time, requests.lbn, requests.size_bytes
    empty = size <= 0
    if empty.any():
        # A flush moves nothing.
        empty = empty & ((requests.op != FLUSH) | (size < 0))
    # The end of the request in blocks, without adding what may overflow.
    far = lbn > _LAST_BLOCK - size // BLOCK_BYTES
    return [
        (empty, "a {op} of {size} bytes: every request moves at least one; remove it"),
        (far, "lbn {lbn} with {size} bytes ends beyond 2^63 bytes: no device reaches that far"),
        (lbn < 0 if lbn.dtype.kind == "i" else None, "lbn {lbn} is negative"),
        (None if time.dtype.kind == "i" else ~np.isfinite(time), "its time is no number"),
        (time < 0, "its time {time} is negative"),
        (requests.latency_s < 0, "its latency {latency} s is negative"),
        (requests.op > FLUSH, "operation {code} is none of 0 (read) to 3 (flush)"),
    ]


def _shown(requests: Requests, at: int) -> dict[str, object]:

    code = int(requests.op[at])
    return {
        "op": OPERATIONS[code] if code < len(OPERATIONS) else f"operation {code}",
        "code": code,
        "size": int(requests.size_bytes[at]),
        "lbn": int(requests.lbn[at]),
        "time": requests.time[at],
        "latency": requests.latency_s[at],
    }


# Arrivals in order of time, in bounded memory.


# As many requests may be late as traces merged from a few sources ever are; 90 MB.
WINDOW = 1 << 20


class InOrder:
    """Puts late arrivals in their places, up to ``window`` requests back.

    Attributes
    ----------
    late : int
        Requests that came after a later one.
    latest : int or float
        By how much at most (ticks).
    first : int or float, optional
        Time of the first request (ticks), once it is known.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._given: float | None = None
        self.late = 0
        self.latest: float = 0
        self.first: float | None = None

    def sort(self, chunks: Iterable[Requests]) -> Iterator[Requests]:
        """Yield the requests in order.

        Raises
        ------
        BadRequestError
            For one that belongs further back than the window reaches.
        """
        held: deque[Requests] = deque()
        count = 0
        for chunk in chunks:
            if not chunk.rows():
                continue
            count += chunk.rows()
            late = self._note_late(chunk.time, held[-1].time[-1] if held else None)
            held.append(chunk)
            if late:
                both = concatenate(list(held))
                held = deque([both.take(np.argsort(both.time, kind="stable"))])
            while count - held[0].rows() >= self._window:
                count -= held[0].rows()
                yield self._give(held.popleft())
            if count >= 2 * self._window:
                # One chunk, from sorting, that is longer than the window.
                ready = count - self._window
                yield self._give(held[0].take(slice(0, ready)))
                held[0] = held[0].take(slice(ready, None))
                count = self._window
        yield from map(self._give, held)

    def _note_late(self, time: Array, last: float | None) -> int:
        """Count the requests that are earlier than one before them."""
        if (last is None or last <= time[0]) and bool(np.all(time[1:] >= time[:-1])):
            return 0
        highest = np.maximum.accumulate(time)
        if last is not None:
            highest = np.maximum(highest, last)
        late = time < highest
        self.late += int(late.sum())
        self.latest = max(self.latest, (highest - time).max())
        return int(late.sum())

    def _give(self, ready: Requests) -> Requests:
        start = ready.time[0]
        if self._given is not None and start < self._given:
            raise BadRequestError(
                int(ready.row[0]),
                f"arrives before a request that is more than {self._window} requests earlier in "
                "the file: sort the trace by arrival first",
            )
        if self.first is None:
            self.first = start
        self._given = ready.time[-1]
        return ready


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


class Reader:
    """One pass over a trace of one format.

    Attributes
    ----------
    ticks_per_s : int
        Of the format's clock.
    epoch_ns : int, optional
        Unix time (ns) of its tick 0, where the format says it.
    rebased : bool
        Whether times are to count from the first request.
    names : dict of str to Names
        Of streams, devices and files; grows as it reads.
    notes : Counter of str
        What was found and how often: sentences with a ``{n}``.
    """

    name: ClassVar[str]
    described: ClassVar[str]
    unit: ClassVar[str] = "line"
    ticks_per_s: int = 1
    epoch_ns: int | None = None
    rebased: ClassVar[bool] = True
    # Whether --map means anything to it.
    maps: ClassVar[bool] = False
    # Whether streams and devices may be numbers without names.
    numbered: ClassVar[bool] = False

    def __init__(self, path: Path, mapping: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.mapping = dict(mapping or {})
        self.names = {column: Names() for column in NAMED}
        self.notes: Counter[str] = Counter()

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether the first bytes of a file, unpacked, look like this format."""
        raise NotImplementedError

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file.

        Raises
        ------
        BadRequestError
        MeasurementError
        """
        raise NotImplementedError

    def doubts(self) -> Iterator[str]:
        """Yield, after the last chunk, sentences about what makes the reading doubtful."""
        yield from ()

    def where(self, row: int) -> str:
        """Say where a row is."""
        return f"{self.unit} {row}"

    def blocks(self, offset: Array) -> Array:
        """Number of the block that each byte offset is in; notes offsets inside a block."""
        if inside := int(np.count_nonzero(offset & (BLOCK_BYTES - 1))):
            self.notes["{n} requests begin inside a block of 512 bytes; lbn is that block"] += (
                inside
            )
        return offset >> 9


# Small enough for a cache, large enough that what is done once a block costs nothing.
BLOCK = 1 << 22
_GZIP = b"\x1f\x8b"
_LONGEST_LINE = 1 << 16


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, unpacked; what the world does wrong is a MeasurementError."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            if packed:
                with gzip.open(file) as unpacked:
                    yield cast("IO[bytes]", unpacked)
            else:
                yield file
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise MeasurementError(f"{path}: broken gzip: {error}: copy it again") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasurementError(f"{path}: cannot be read: {reason}") from error


def head(path: Path, size: int = 1 << 16) -> bytes:
    """Read the first bytes of a file, unpacked."""
    with opened(path) as file:
        return file.read(size)


class LineBlock(NamedTuple):
    """Whole lines: the number of the first (1 is the file's first), how many, and their bytes."""

    first: int
    lines: int
    text: bytes


def line_blocks(path: Path) -> Iterator[LineBlock]:
    """Yield whole lines, many at a time; bytes that are no UTF-8 are replaced."""
    with opened(path) as file:
        first, rest = 1, b""
        while block := file.read(BLOCK):
            end = block.rfind(b"\n") + 1
            if not end:
                rest += block
            else:
                text = _text(b"".join((rest, memoryview(block)[:end])))
                lines = _line_ends(text)
                yield LineBlock(first, lines, text)
                first, rest = first + lines, block[end:]
            if len(rest) > _LONGEST_LINE:
                raise MeasurementError(
                    f"{path}: line {first} is longer than {_LONGEST_LINE} bytes: is this a trace?"
                )
        if rest:
            yield LineBlock(first, 1, _text(rest))


def _line_ends(block: bytes) -> int:
    # bytes.count stops at every one of them.
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))


def _text(block: bytes) -> bytes:
    if block.isascii():
        return block
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode(errors="replace").encode()
    return block
