"""blktrace's binary files, of either byte order, one a CPU or merged by ``blkparse -d``.

A record is a header of 48 bytes and a payload. Arrivals are Q events, completions C events.

Source: the kernel's include/uapi/linux/blktrace_api.h.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from measurements.errors import MeasurementError
from measurements.traces.blkparse import Events, process_name, with_latency
from measurements.traces.requests import (
    DISCARD,
    FLUSH,
    READ,
    WRITE,
    Array,
    BadRequestError,
    Reader,
    Requests,
    head,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_MAGIC = 0x65617400
VERSION = 7
MAGIC = _MAGIC | VERSION

_FIELDS = (
    ("magic", "u4"),
    ("sequence", "u4"),
    ("time", "u8"),
    ("sector", "u8"),
    ("bytes", "u4"),
    ("action", "u4"),
    ("pid", "u4"),
    ("device", "u4"),
    ("cpu", "u4"),
    ("error", "u2"),
    ("payload", "u2"),
)
LITTLE = np.dtype([(name, f"<{kind}") for name, kind in _FIELDS])
BIG = LITTLE.newbyteorder(">")
HEADER_BYTES = LITTLE.itemsize

QUEUE, COMPLETE = 1, 8
# A bit beside the action says that a cgroup follows in the payload.
_ACTION = 0xFF
DIRECTIONS = {"write": 1 << 17, "flush": 1 << 18, "command": 1 << 25, "discard": 1 << 29}
READS = 1 << 16
NOTIFY = 1 << 26
PROCESS_NOTE, TIME_NOTE = 0, 1

_PAYLOAD_AT = (46, 47)

_AT_ONCE = 1 << 23
_PER_CPU = re.compile(r"(.+\.blktrace\.)\d+(\.gz)?")
_RECORD_BITS = 48


class _Note(NamedTuple):
    """What blktrace says beside the events; ``word`` is its u4 in the file's byte order."""

    kind: int
    pid: int
    time: int
    payload: bytes
    word: np.dtype[np.void]


class _Records(NamedTuple):
    """Records of one file: their headers and numbers, and the notes among them."""

    header: Array
    row: Array
    notes: list[_Note]


class Blktrace(Reader):
    """Nanoseconds; sectors of 512 bytes; bytes; a stream is a process, a device major,minor."""

    name: ClassVar[str] = "blktrace"
    described: ClassVar[str] = "blktrace binary"
    unit: ClassVar[str] = "record"
    ticks_per_s = 10**9

    def __init__(self, path: Path, mapping: Mapping[str, str] | None = None) -> None:
        super().__init__(path, mapping)
        self._files = per_cpu_files(path)
        self._commands: dict[int, str] = {}

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        return _order(head) is not None

    def where(self, row: int) -> str:
        """Say where a row is."""
        if row < 0:
            return "its records"
        file, record = row >> _RECORD_BITS, row & ((1 << _RECORD_BITS) - 1)
        name = f" of {self._files[file].name}" if len(self._files) > 1 else ""
        return f"record {record}{name}"

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        if len(self._files) > 1 and _PER_CPU.fullmatch(self.path.name):
            self.notes["{n} files, one a CPU, are merged: all of its base name"] += len(self._files)
        arrivals = False
        for requests in with_latency(self._events(), self.notes):
            arrivals |= bool(requests.rows())
            yield requests
        if not arrivals:
            raise BadRequestError(-1, "none is an arrival (Q): trace with the queue events")

    def _events(self) -> Iterator[Events]:
        for records in _merged([self._records(n) for n in range(len(self._files))]):
            for note in records.notes:
                self._note(note)
            yield self._io(records)

    def _records(self, number: int) -> Iterator[_Records]:
        return _records(self._files[number], number << _RECORD_BITS)

    def _note(self, note: _Note) -> None:
        if note.kind == PROCESS_NOTE:
            name = note.payload.split(b"\0")[0].decode(errors="replace")
            self._commands.setdefault(note.pid, name)
        elif note.kind == TIME_NOTE and len(note.payload) >= 8 and self.epoch_ns is None:
            seconds, nanoseconds = np.frombuffer(note.payload[:8], note.word)
            self.epoch_ns = int(seconds) * 10**9 + int(nanoseconds) - note.time

    def _io(self, records: _Records) -> Events:
        action = records.header["action"] & _ACTION
        is_arrival = action == QUEUE
        kept = (is_arrival | (action == COMPLETE)) & (records.header["action"] & NOTIFY == 0)
        op = operations(records.header["action"], records.header["bytes"])
        if others := int((kept & is_arrival & (op == _OTHER)).sum()):
            self.notes["{n} events of commands that move no data are left out"] += others
        kept &= op != _OTHER
        header = records.header[kept]
        return Events(
            records.row[kept],
            header["time"].astype(np.int64),
            is_arrival[kept],
            self._streams(header["pid"], is_arrival[kept]),
            self._devices(header["device"]),
            header["sector"].astype(np.uint64),
            header["bytes"].astype(np.int64),
            op[kept],
        )

    def _streams(self, pid: Array, is_arrival: Array) -> Array:
        """Number processes by their arrivals; completions run in anybody's name."""
        codes = np.zeros(len(pid), np.int32)
        pids = pa.array(pid[is_arrival]).dictionary_encode()
        known = [self.names["stream"].code(self._process(p)) for p in pids.dictionary.to_pylist()]
        if known:
            codes[is_arrival] = np.asarray(known, np.int32)[pids.indices.to_numpy()]
        return codes

    def _process(self, pid: int) -> str:
        return process_name(self._commands.get(pid, ""), pid)

    def _devices(self, device: Array) -> Array:
        numbers, inverse = np.unique(device, return_inverse=True)
        codes = [self.names["device"].code(f"{n >> 20},{n & 0xFFFFF}") for n in numbers.tolist()]
        return np.asarray(codes, np.int32)[inverse]


_OTHER = 255


def operations(action: Array, size: Array) -> Array:
    """Operation of each record, by its action's category bits; 255 for what moves no data."""
    op = np.full(len(action), _OTHER, np.uint8)
    op[(action & READS) != 0] = READ
    op[(action & DIRECTIONS["write"]) != 0] = WRITE
    op[((action & DIRECTIONS["flush"]) != 0) & (size == 0)] = FLUSH
    op[(action & DIRECTIONS["discard"]) != 0] = DISCARD
    op[(action & DIRECTIONS["command"]) != 0] = _OTHER
    # A write of nothing, as a barrier is, is a flush.
    op[(op == WRITE) & (size == 0)] = FLUSH
    return op


def per_cpu_files(path: Path) -> list[Path]:
    """Files of a trace: the one named, those of its other CPUs, or all of a folder or base name."""
    if match := _PER_CPU.fullmatch(path.name):
        found = [p for p in path.parent.glob("*") if _base(p) == match[1]]
    elif path.is_dir():
        found = [p for p in path.iterdir() if _base(p)]
        if len(bases := {_base(p) for p in found}) > 1:
            names = ", ".join(sorted(base.removesuffix(".blktrace.") for base in bases))
            raise MeasurementError(f"{path}: holds traces of {names}: name one, as {path}/NAME")
    elif path.exists():
        return [path]
    else:
        found = [p for p in path.parent.glob("*") if _base(p) == f"{path.name}.blktrace."]
    return sorted(found) or [path]


def _base(path: Path) -> str:
    match = _PER_CPU.fullmatch(path.name)
    return match[1] if match else ""


def _order(begin: bytes) -> np.dtype[np.void] | None:
    """Layout of records that begin so, or None where they are no such records."""
    for layout in (LITTLE, BIG):
        magic = np.frombuffer(begin[:4].ljust(4, b"\0"), layout["magic"])[0]
        if magic & 0xFFFFFF00 == _MAGIC:
            return layout
    return None


def _records(path: Path, base: int) -> Iterator[_Records]:
    """Yield the records of a file, many at a time."""
    begin = head(path, HEADER_BYTES)
    if not begin:
        return
    layout = _order(begin)
    if layout is None:
        raise MeasurementError(f"{path}: does not begin as a blktrace file: is it one?")
    version = int(np.frombuffer(begin[:4], layout["magic"])[0]) & 0xFF
    if version != VERSION:
        raise MeasurementError(
            f"{path}: is of version {version} of blktrace's records; version {VERSION} is read: "
            "give what blkparse prints of it"
        )
    with opened(path) as file:
        done, rest = 0, b""
        while block := file.read(_AT_ONCE):
            data = rest + block
            starts, used = _boundaries(data, layout, base + done)
            header = _headers(data, starts, layout)
            row = base + done + 1 + np.arange(len(starts))
            yield _Records(header, row, _notes(header, starts, data, layout["magic"]))
            done, rest = done + len(starts), data[used:]
        if rest:
            raise MeasurementError(
                f"{path}: record {done + 1} is cut short, {len(rest)} bytes are left of it: let "
                "blktrace end by itself, or cut the file to whole records"
            )


def _headers(data: bytes, starts: Array, layout: np.dtype[np.void]) -> Array:
    """Copy the headers out, in this machine's byte order."""
    raw = np.frombuffer(data, np.uint8)
    if len(starts) and len(data) == len(starts) * HEADER_BYTES:
        header = raw.view(layout)
    else:
        header = raw[starts[:, None] + np.arange(HEADER_BYTES)].reshape(-1).view(layout)
    return header.astype(LITTLE, copy=False)


def _notes(header: Array, starts: Array, data: bytes, word: np.dtype[np.void]) -> list[_Note]:
    notes = []
    for at in np.flatnonzero(header["action"] & NOTIFY):
        action, pid, time, size = header[["action", "pid", "time", "payload"]][at].item()
        begin = int(starts[at]) + HEADER_BYTES
        notes.append(_Note(action & _ACTION, pid, time, data[begin : begin + size], word))
    return notes


def _boundaries(data: bytes, layout: np.dtype[np.void], done: int) -> tuple[Array, int]:
    """Where the whole records begin, and where they end.

    Every place with the magic number is a candidate; one inside a payload is none.
    """
    candidates = _magic_places(data, layout)
    candidates = candidates[candidates <= len(data) - HEADER_BYTES]
    payload = np.frombuffer(data, np.uint8)[candidates[:, None] + _PAYLOAD_AT]
    following = candidates + HEADER_BYTES + payload.view(layout["payload"])[:, 0]
    breaks = np.append(np.flatnonzero(following[:-1] != candidates[1:]), len(candidates) - 1)
    runs, expected, at = [np.zeros(0, np.int64)], 0, 0
    while at < len(candidates) and candidates[at] == expected:
        end = int(breaks[np.searchsorted(breaks, at)]) + 1
        runs.append(candidates[at:end])
        expected = int(following[end - 1])
        at = int(np.searchsorted(candidates, expected))
    starts = np.concatenate(runs)
    if expected > len(data):
        # The last one's payload is still to come.
        return starts[:-1], int(starts[-1])
    if len(data) - expected >= HEADER_BYTES:
        raise BadRequestError(
            done + len(starts) + 1, "does not begin as a record: the file is damaged, or mixed"
        )
    return starts, expected


def _magic_places(data: bytes, layout: np.dtype[np.void]) -> Array:
    places = [np.zeros(0, np.int64)]
    for shift in range(min(4, len(data))):
        words = np.frombuffer(data, layout["magic"], (len(data) - shift) // 4, shift)
        places.append(shift + 4 * np.flatnonzero(words == MAGIC))
    return np.sort(np.concatenate(places))


def _merged(sources: list[Iterator[_Records]]) -> Iterator[_Records]:
    """Merge the files in order of time, each of which is in order but for a few."""
    held: list[_Records | None] = [next(source, None) for source in sources]
    while any(part is not None for part in held):
        parts = [part for part in held if part is not None]
        ends = [_end(part) for part in parts]
        until = min(ends)
        yield _in_time([_before(part, until) for part in parts])
        for number, part in enumerate(held):
            if part is not None:
                after = _after(part, until)
                held[number] = after if len(after.header) else next(sources[number], None)


def _end(part: _Records) -> int:
    return int(part.header["time"].max()) if len(part.header) else 0


def _before(part: _Records, until: int) -> _Records:
    chosen = part.header["time"] <= until
    return _Records(part.header[chosen], part.row[chosen], part.notes)


def _after(part: _Records, until: int) -> _Records:
    chosen = part.header["time"] > until
    return _Records(part.header[chosen], part.row[chosen], [])


def _in_time(parts: list[_Records]) -> _Records:
    header = np.concatenate([part.header for part in parts])
    row = np.concatenate([part.row for part in parts])
    order = np.argsort(header["time"], kind="stable")
    return _Records(header[order], row[order], [note for part in parts for note in part.notes])
