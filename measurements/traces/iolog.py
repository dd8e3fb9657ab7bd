"""fio's iologs, versions 2 and 3.

Version 3 begins each line with microseconds since the start. Version 2 has no times but ``wait``
lines, which fio replays as milliseconds since the start of the job (fio 3.33 does; its manual
says microseconds since the previous wait).

Source: fio's manual, "Trace file format", and its iolog.c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measurements.traces.reader import Reader
from measurements.traces.requests import (
    DISCARD,
    FLUSH,
    READ,
    WRITE,
    Array,
    BadRequestError,
    Requests,
)
from measurements.traces.text_lines import Lines, extracted, first_line, lines, matches, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPERATIONS = {
    "read": READ,
    "write": WRITE,
    "trim": DISCARD,
    "sync": FLUSH,
    "datasync": FLUSH,
    "sync_file_range": FLUSH,
}
_FILE_ACTION = r"\S+[ \t]+(?:add|open|close|unlink)\s*$"
_REQUEST = (
    r"(?P<file>\S+)[ \t]+(?P<action>read|write|trim|sync|datasync|sync_file_range|wait)"
    r"(?:[ \t]+(?P<offset>\d+)(?:[ \t]+(?P<length>\d+))?)?"
)
_TIME = r"(?P<time>\d+)[ \t]+"


class Iolog2(Reader):
    """``file action offset length``; bytes; times only from ``wait`` lines."""

    name: ClassVar[str] = "iolog-2"
    described: ClassVar[str] = "fio iolog version 2"
    header: ClassVar[bytes] = b"fio version 2 iolog"
    prefix: ClassVar[str] = ""
    # Milliseconds.
    ticks_per_s = 1000
    _waited = 0

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        return head.startswith(cls.header)

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        for found in lines(self.path):
            kept = found.take(np.asarray(found.row > 1) & ~matches(found, r"\s*$"))
            kept = kept.take(~matches(kept, self._file_action()))
            matched, parts = extracted(kept, self.prefix + _REQUEST)
            if not matched.all():
                row, text = first_line(kept, ~matched)
                raise BadRequestError(row, f"no line of a {self.described}: {text}")
            if len(kept.row):
                yield self._requests(kept, parts)

    def _file_action(self) -> str:
        return (r"\d+[ \t]+" if self.prefix else "") + _FILE_ACTION

    def _requests(self, found: Lines, parts: pa.StructArray) -> Requests:
        action = parts.field("action").dictionary_encode()
        op = self._operations(action)
        row = found.row
        offset = whole(_or_zero(parts.field("offset")), row, "offset")
        length = whole(_or_zero(parts.field("length")), row, "length")
        time = self._times(parts, row, offset, op)
        name = self.names["file"].codes(parts.field("file"))
        requests = Requests.of(row, time, self.blocks(offset), length, op, device=name, file=name)
        self.names["device"] = self.names["file"]
        return requests.take(op != _WAIT) if (op == _WAIT).any() else requests

    def _operations(self, action: pa.DictionaryArray) -> Array:
        codes = [_OPERATIONS.get(word, _WAIT) for word in action.dictionary.to_pylist()]
        op: Array = np.asarray(codes, np.uint8)[action.indices.to_numpy(zero_copy_only=False)]
        return op

    def _times(self, parts: pa.StructArray, row: Array, offset: Array, op: Array) -> Array:
        """Time of each request: the longest wait before it, since fio waits until then."""
        until = np.where(op == _WAIT, offset, 0)
        until[0] = max(until[0], self._waited)
        time = np.maximum.accumulate(until)
        self._waited = int(time[-1])
        waits = int((op == _WAIT).sum())
        self.notes["{n} waits are read as fio replays them: milliseconds since the start"] += waits
        return time


class Iolog3(Iolog2):
    """``time file action offset length``; microseconds; bytes."""

    name: ClassVar[str] = "iolog-3"
    described: ClassVar[str] = "fio iolog version 3"
    header: ClassVar[bytes] = b"fio version 3 iolog"
    prefix: ClassVar[str] = _TIME
    ticks_per_s = 10**6

    def _times(self, parts: pa.StructArray, row: Array, offset: Array, op: Array) -> Array:
        if (waits := op == _WAIT).any():
            raise BadRequestError(
                int(row[int(waits.argmax())]), "version 3 has no wait lines: are two logs mixed?"
            )
        return whole(parts.field("time"), row, "time")


_WAIT = 255


def _or_zero(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(column, ""), "0", column)
