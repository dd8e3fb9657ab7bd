"""What every reader makes of its format: chunks of requests, column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

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
