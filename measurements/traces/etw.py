"""Disk events of Windows: what ``xperf -a dumper`` writes of a trace, such as DiskSpd's ``-e``.

A line is written when its request completes: it arrived ElapsedTime microseconds before.

Source: the header that the dumper writes; SNIA IOTTA's Microsoft Production Server traces.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measurements.errors import MeasurementError
from measurements.traces.requests import (
    FLUSH,
    READ,
    WRITE,
    Array,
    BadRequestError,
    Reader,
    Requests,
    head,
)
from measurements.traces.text_lines import Lines, extracted, first_line, lines, matches, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIELDS = {
    "TimeStamp": r"(?P<time>\d+)",
    "Process Name ( PID)": r"(?P<process>[^,]*\(\s*\d+\))",
    "ByteOffset": r"(?P<offset>0x[0-9a-fA-F]+)",
    "IOSize": r"(?P<size>0x[0-9a-fA-F]+)",
    "ElapsedTime": r"(?P<elapsed>\d+)",
    "DiskNum": r"(?P<disk>\d+)",
    "FileName": r"(?P<file>\"[^\"]*\"|[^,]*?)",
}
_NEEDED = ("TimeStamp", "ByteOffset", "IOSize", "ElapsedTime")
_HEADER = re.compile(rb"^\s*DiskRead,(.*TimeStamp.*ByteOffset.*)$", re.MULTILINE)
_FLUSH_HEADER = re.compile(rb"^\s*DiskFlush,(.*TimeStamp.*)$", re.MULTILINE)
_END = re.compile(rb"^\s*EndHeader[^\n]*\n?", re.MULTILINE)
_EVENT = r"\s*[A-Za-z][\w/ .:()-]*,"
_OPERATIONS = {"Read": READ, "Write": WRITE, "Flush": FLUSH}


class Etw(Reader):
    """DiskRead, DiskWrite and DiskFlush lines; microseconds; offset and size in hexadecimal."""

    name: ClassVar[str] = "etw"
    described: ClassVar[str] = "ETW CSV (xperf's dumper)"
    ticks_per_s = 10**6

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        return _HEADER.search(head) is not None

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        begin = head(self.path)
        transfer, flush = self._patterns(begin)
        end = _END.search(begin)
        skipped = begin.count(b"\n", 0, end.end()) if end else 0
        for found in lines(self.path):
            yield from self._block(found.take(found.row > skipped), transfer, flush)

    def _patterns(self, begin: bytes) -> tuple[str, str]:
        header, flush = _HEADER.search(begin), _FLUSH_HEADER.search(begin)
        names = _columns(header[1]) if header else []
        if missing := [name for name in _NEEDED if name not in names]:
            raise MeasurementError(
                f"{self.path}: its header has no DiskRead line with {', '.join(missing)}: dump it "
                "with xperf -i FILE.etl -a dumper"
            )
        others = _columns(flush[1]) if flush else []
        if twice := [name for one in (names, others) for name in _FIELDS if one.count(name) > 1]:
            raise MeasurementError(
                f"{self.path}: its header names {twice[0]} twice: keep one of them, and dump the "
                "trace again"
            )
        return _pattern("Read|Write", names), _pattern("Flush", others)

    def _block(self, found: Lines, transfer: str, flush: str) -> Iterator[Requests]:
        kept = found.take(~matches(found, r"\s*$"))
        if (junk := ~matches(kept, _EVENT)).any():
            row, text = first_line(kept, junk)
            raise BadRequestError(row, f"no event of a dumper: {text}")
        # The header's own lines name their columns.
        events = kept.take(
            matches(kept, r"\s*Disk(Read|Write|Flush),") & ~matches(kept, r"\s*\w+,\s*TimeStamp,")
        )
        self.notes["{n} lines of other events are left out"] += len(kept.row) - len(events.row)
        is_transfer, parts = extracted(events, transfer)
        is_flush, flushes = extracted(events, flush)
        if (bad := ~(is_transfer | is_flush)).any():
            row, text = first_line(events, bad)
            raise BadRequestError(row, f"its fields are not those of the header: {text}")
        together = [
            self._requests(events.row[is_transfer], parts),
            self._requests(events.row[is_flush & ~is_transfer], flushes),
        ]
        both = Requests(*(np.concatenate(columns) for columns in zip(*together, strict=True)))
        yield both.take(np.argsort(both.row, kind="stable"))

    def _requests(self, row: Array, parts: pa.StructArray) -> Requests:
        column = {field.name: parts.field(field.name) for field in parts.type}
        count = len(row)
        elapsed = _whole(column.get("elapsed"), row, "ElapsedTime")
        done = _whole(column.get("time"), row, "TimeStamp")
        arrival = done - elapsed
        if (early := arrival < 0).any():
            # Begun before the trace was.
            self.notes["{n} requests began before the trace; taken as its start"] += int(
                early.sum()
            )
        kinds = column["kind"].dictionary_encode() if count else None
        return Requests.of(
            row,
            np.maximum(arrival, 0),
            self.blocks(_hexadecimal(column.get("offset"), row, "ByteOffset")),
            _hexadecimal(column.get("size"), row, "IOSize"),
            _operations(kinds),
            stream=self._codes("stream", column.get("process"), count),
            device=self._codes("device", column.get("disk"), count),
            latency_s=elapsed / 1e6,
            file=self._codes("file", column.get("file"), count) if "file" in column else -1,
        )

    def _codes(self, name: str, column: pa.Array | None, count: int) -> Array:
        if column is None or not count:
            return np.zeros(count, np.int32)
        text = pc.utf8_trim(column, ' "')
        return self.names[name].codes(pc.replace_substring_regex(text, r"\s+\(\s*", " ("))


def _columns(header: bytes) -> list[str]:
    return [name.strip() for name in header.decode(errors="replace").split(",")]


def _pattern(kinds: str, names: list[str]) -> str:
    fields = [_FIELDS.get(name, r"[^,]*?") for name in names]
    return rf"\s*Disk(?P<kind>{kinds})," + ",".join(rf"\s*{field}\s*" for field in fields)


def _whole(column: pa.Array | None, row: Array, name: str) -> Array:
    return np.zeros(len(row), np.int64) if column is None else whole(column, row, name)


def _hexadecimal(column: pa.Array | None, row: Array, name: str) -> Array:
    if column is None:
        return np.zeros(len(row), np.int64)
    try:
        # Arrow reads 0x and up to 16 digits.
        numbers: Array = column.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        sizes = pc.utf8_length(column).to_numpy(zero_copy_only=False)
        at = int(np.argmax(sizes))
        raise BadRequestError(int(row[at]), f"{name} {column[at]} is beyond 2^63") from None
    if (far := numbers >= 2**63).any():
        at = int(far.argmax())
        raise BadRequestError(int(row[at]), f"{name} {column[at]} is beyond 2^63")
    return numbers.astype(np.int64)


def _operations(kinds: pa.DictionaryArray | None) -> Array:
    if kinds is None:
        return np.zeros(0, np.uint8)
    codes = [_OPERATIONS[word] for word in kinds.dictionary.to_pylist()]
    op: Array = np.asarray(codes, np.uint8)[kinds.indices.to_numpy(zero_copy_only=False)]
    return op
