"""MSR Cambridge traces: CSV, as published without a header, times in Windows filetime.

Source: Narayanan, Donnelly, Rowstron, "Write off-loading: practical power management for
enterprise storage", FAST 2008; the traces' own README.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measurements.traces.requests import (
    BLOCK_BYTES,
    DISCARD,
    FLUSH,
    READ,
    WRITE,
    Array,
    BadRequestError,
    Reader,
    Requests,
    head,
)
from measurements.traces.text_lines import (
    NUMBER,
    TEXT,
    WHOLE,
    Field,
    FieldReader,
    Form,
    Lines,
    combined,
    extracted,
    first_line,
    lines,
    matches,
    read_or_write,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


# 1601-01-01 to 1970-01-01, in seconds.
_FILETIME_TO_UNIX_S = 11_644_473_600

_MSR_FIELDS = (
    Field("Timestamp", WHOLE),
    Field("Hostname", TEXT),
    Field("DiskNumber", TEXT),
    Field("Type", TEXT),
    Field("Offset", WHOLE),
    Field("Size", WHOLE),
    Field("ResponseTime", WHOLE),
)
_MSR_LINE = re.compile(rb"\d{15,19},[^,]*,\d+,(?:read|write),\d+,\d+,\d+", re.IGNORECASE)
# Copies on data sites often have the README's names as their first line.
_HEADER = re.compile(
    rb"\s*(?:\xef\xbb\xbf)?" + rb"\s*,\s*".join(f.name.encode() for f in _MSR_FIELDS) + rb"\s*?\n",
    re.IGNORECASE,
)


class Msr(FieldReader):
    """Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime; ticks of 100 ns; bytes."""

    name: ClassVar[str] = "msr"
    described: ClassVar[str] = "MSR Cambridge CSV"
    form = Form(_MSR_FIELDS)
    ticks_per_s = 10**7
    epoch_ns = -_FILETIME_TO_UNIX_S * 10**9

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        header = _HEADER.match(head)
        return _MSR_LINE.match(head[header.end() if header else 0 :].lstrip()) is not None

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        codes = {"read": READ, "write": WRITE}
        if _HEADER.match(head(self.path)):
            self.form = self.form._replace(header_lines=1)
        for row, table in self.blocks_of_fields():
            number, pairs = combined(table["Hostname"], table["DiskNumber"])
            yield Requests.of(
                row,
                table["Timestamp"].to_numpy(),
                self.blocks(table["Offset"].to_numpy()),
                table["Size"].to_numpy(),
                read_or_write(table["Type"], row, codes, "Type"),
                stream=self._codes("stream", [host for host, _ in pairs])[number],
                # As the traces' files are called: hm_0.
                device=self._codes("device", [f"{host}_{disk}" for host, disk in pairs])[number],
                latency_s=table["ResponseTime"].to_numpy() / self.ticks_per_s,
            )

    def _codes(self, name: str, words: list[str]) -> Array:
        return np.asarray([self.names[name].code(word) for word in words], np.int32)


# SPC traces: CSV without a header, times in seconds.
#
# Source: Storage Performance Council, "SPC Trace File Format Specification", revision 1.0.1; as
# the UMass Trace Repository's Financial and WebSearch traces.


_SPC_FIELDS = (
    Field("ASU", TEXT),
    Field("LBA", WHOLE),
    Field("Size", WHOLE),
    Field("Opcode", TEXT),
    Field("Timestamp", NUMBER),
)
_SPC_LINE = re.compile(rb"\d+,\s*\d+,\s*\d+,\s*[rw],\s*[\d.]+(?:[eE][-+]?\d+)?\s*$", re.I | re.M)


class Spc(FieldReader):
    """ASU,LBA,Size,Opcode,Timestamp; blocks of 512 bytes, size in bytes; a device is an ASU."""

    name: ClassVar[str] = "spc"
    described: ClassVar[str] = "SPC (ASU,LBA,Size,Opcode,Timestamp)"
    form = Form(_SPC_FIELDS)

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        return _SPC_LINE.match(head.lstrip()) is not None

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        for row, table in self.blocks_of_fields():
            unit = self.names["device"].codes(table["ASU"])
            yield Requests.of(
                row,
                table["Timestamp"].to_numpy(),
                table["LBA"].to_numpy(),
                table["Size"].to_numpy(),
                read_or_write(table["Opcode"], row, {"r": READ, "w": WRITE}, "Opcode"),
                device=unit,
            )


# MQSim's ASCII traces: nanoseconds, and 1 is a read.
#
# Source: Tavakkol and others, "MQSim: A Framework for Enabling Realistic Studies of Modern
# Multi-Queue SSD Devices", FAST 2018; the columns are those of DiskSim's ASCII format.


_MQSIM_FIELDS = (
    Field("arrival (ns)", WHOLE),
    Field("device", TEXT),
    Field("start LBA", WHOLE),
    Field("sectors", WHOLE),
    Field("type", TEXT),
)
_MQSIM_LINE = re.compile(rb"\d+[ \t]+\d+[ \t]+\d+[ \t]+\d+[ \t]+[01][ \t]*\r?$", re.M)
_MOST_SECTORS = 2**54


class MqSim(FieldReader):
    """Arrival (ns), device, start LBA, sectors of 512 bytes, type (1 read, 0 write)."""

    name: ClassVar[str] = "mqsim"
    described: ClassVar[str] = "MQSim ASCII (type 1 is a read)"
    form = Form(_MQSIM_FIELDS, delimiter=" ")
    ticks_per_s = 10**9

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        return _MQSIM_LINE.match(head.lstrip()) is not None

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        for row, table in self.blocks_of_fields():
            device = self.names["device"].codes(table["device"])
            sectors = table["sectors"].to_numpy()
            if (huge := sectors >= _MOST_SECTORS).any():
                at = int(huge.argmax())
                raise BadRequestError(int(row[at]), f"{sectors[at]} sectors are beyond 2^63 bytes")
            yield Requests.of(
                row,
                table["arrival (ns)"].to_numpy(),
                table["start LBA"].to_numpy(),
                sectors * BLOCK_BYTES,
                read_or_write(table["type"], row, {"1": READ, "0": WRITE}, "type"),
                device=device,
            )


# fio's iologs, versions 2 and 3.
#
# Version 3 begins each line with microseconds since the start. Version 2 has no times but ``wait``
# lines, which fio replays as milliseconds since the start of the job (fio 3.33 does; its manual
# says microseconds since the previous wait).
#
# Source: fio's manual, "Trace file format", and its iolog.c.


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
