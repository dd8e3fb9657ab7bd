"""Block traces of blktrace: its binary files, and the text that blkparse prints of them.

Arrivals are Q events, completions C events.

Source: the kernel's include/uapi/linux/blktrace_api.h; the manual of blkparse, "OUTPUT DESCRIPTION
AND FORMATTING".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measurements.errors import MeasurementError
from measurements.traces import requests as base, text_lines as text
from measurements.traces.requests import Array, Op, Requests

_OTHERS = "{n} events of commands that move no data are left out"
# Arrivals and completions in order of time (ns), and which of them are arrivals.
Events = tuple[Requests, Array]


class _EventReader(base.TraceReader):
    """A reader of events, which gives each arrival the latency to its completion.

    An arrival is over when the request that holds its last block completes: one completion answers
    all arrivals that were merged into it, and of an arrival that was split the last part counts.
    """

    ticks_per_s = 10**9
    no_arrival: ClassVar[str]  # message for a file without arrivals

    def __iter__(self) -> Iterator[Requests]:
        """Yield the arrivals; a completion is looked for in the arrival's chunk and the next."""
        waiting, count = None, 0
        for events, is_arrival in self._read_events():
            arrivals, completions = events.take(is_arrival), events.take(~is_arrival)
            if waiting is not None:
                yield self._note_missing(_fill_latencies(waiting, completions))
            waiting = _fill_latencies(arrivals, completions)
            count += arrivals.rows()
        if waiting is not None:
            yield self._note_missing(waiting)
        if not count:
            raise MeasurementError(f"{self.path}: {self.no_arrival}")

    def _read_events(self) -> Iterator[Events]:
        raise NotImplementedError

    def _note_missing(self, requests: Requests) -> Requests:
        """Count the requests whose completion is not in the trace."""
        missing = np.isnan(requests.latency_s) & (requests.op != Op.FLUSH)
        self.note("{n} requests have no completion in the trace: their latency is missing", missing)
        return requests


def _fill_latencies(requests: Requests, completions: Requests) -> Requests:
    """Fill in the latency of those that the completions end."""
    if not requests.rows() or not completions.rows():
        return requests
    latency = requests.latency_s.copy()
    # A completion ends requests of its own device and operation.
    open_ = np.isnan(latency) & (requests.op != Op.FLUSH)
    kinds = requests.device.astype(np.int64) * 4 + requests.op
    ended = completions.device.astype(np.int64) * 4 + completions.op
    for kind in np.unique(kinds[open_]):
        chosen = np.flatnonzero(open_ & (kinds == kind))
        latency[chosen] = _seconds_to_end(requests.take(chosen), completions.take(ended == kind))
    return requests._replace(latency_s=latency)


def _seconds_to_end(requests: Requests, completions: Requests) -> Array:
    """Seconds to the first completion, not before the arrival, that holds its last block."""
    last = requests.lbn.astype(np.int64) + _sizes_in_blocks(requests.size_bytes) - 1
    targets, target = np.unique(last, return_inverse=True)
    begin = completions.lbn.astype(np.int64)
    low = np.searchsorted(targets, begin)
    held = np.searchsorted(targets, begin + _sizes_in_blocks(completions.size_bytes)) - low
    # One entry for each completion and target that it holds.
    which = np.repeat(np.arange(len(begin)), held)
    reached = low[which] + np.arange(len(which)) - np.repeat(np.cumsum(held) - held, held)
    times = np.concatenate([requests.time, completions.time[which]])
    times, rank = np.unique(times, return_inverse=True)
    asked, ended = target * len(times), reached * len(times)
    # Target and rank of the time as one whole number; the last pair is of no target.
    pairs = np.append(np.sort(ended + rank[len(last) :]), len(targets) * len(times))
    found = pairs[np.searchsorted(pairs, asked + rank[: len(last)])]
    seconds = (times[found % len(times)] - requests.time) / 1e9
    return np.where(found // len(times) == target, seconds, np.nan)


def _sizes_in_blocks(size_bytes: Array) -> Array:
    """Size of requests in blocks, at least one."""
    count: Array = -(-size_bytes.astype(np.int64) // base.BLOCK_BYTES)
    return np.maximum(count, 1)


def _process_name(command: str, pid: int | str) -> str:
    """Name a process as the kernel's tracers do: command-pid."""
    return f"{command or 'process'}-{pid}"


VERSION = 7
MAGIC = 0x65617400 | VERSION
# A record is a header of these fields and a payload.
LITTLE = base.record_layout(
    "magic u4, sequence u4, time u8, sector u8, bytes u4, action u4, pid u4, device u4, cpu u4,"
    "error u2, payload u2"
)
BIG = LITTLE.newbyteorder(">")
HEADER_BYTES = LITTLE.itemsize
_PAYLOAD_AT = (46, 47)

_QUEUE, _COMPLETE = 1, 8
# A bit beside the action says that a cgroup follows in the payload.
_ACTION = 0xFF
_READ, _WRITE, _FLUSH, _COMMAND, _DISCARD = 1 << 16, 1 << 17, 1 << 18, 1 << 25, 1 << 29
NOTIFY = 1 << 26
PROCESS_NOTE, TIME_NOTE = 0, 1

_AT_ONCE = 1 << 23
_PER_CPU = re.compile(r"(.+\.blktrace\.)\d+(\.gz)?")
_RECORD_BITS = 48


class _Records(NamedTuple):
    """Headers and numbers of records."""

    header: Array
    row: Array

    def take(self, chosen: Array) -> _Records:
        """Choose records by a mask or their numbers."""
        return _Records(self.header[chosen], self.row[chosen])


class Blktrace(_EventReader):
    """Binary files of either byte order, one a CPU or merged by ``blkparse -d``.

    Nanoseconds; sectors of 512 bytes; bytes; a stream is a process, a device major,minor.
    """

    name = "blktrace"
    described = "blktrace binary"
    # The magic number in either byte order, beside the version.
    begins = re.compile(rb"(?s:.tae|eat.)")
    no_arrival = (
        f"none of its records, read as {described}, is an arrival (Q): trace the queue events too"
    )

    def __init__(self, path: Path, mapping: Mapping[str, str] | None = None) -> None:
        super().__init__(path, mapping)
        self._files = per_cpu_files(path)
        self._commands: dict[int, str] = {}

    def where(self, row: int) -> str:
        """Say where a row is."""
        file, record = row >> _RECORD_BITS, row & ((1 << _RECORD_BITS) - 1)
        name = f" of {self._files[file].name}" if len(self._files) > 1 else ""
        return f"record {record}{name}"

    def _read_events(self) -> Iterator[Events]:
        if len(self._files) > 1 and _PER_CPU.fullmatch(self.path.name):
            self.note(
                "{n} files, one per CPU, are merged: all that have this base name", len(self._files)
            )
        files = [self._read_file(file, k << _RECORD_BITS) for k, file in enumerate(self._files)]
        yield from map(self._select_transfers, _merge_by_time(files))

    def _read_file(self, path: Path, number: int) -> Iterator[_Records]:
        """Yield the records of a file, many at a time; they are numbered after a first number."""
        begin = base.head(path, HEADER_BYTES)
        if not begin:
            return
        layout = _check_version(path, begin)
        with base.open_unpacked(path) as file:
            done, rest = 0, b""
            while block := file.read(_AT_ONCE):
                data = rest + block
                starts, used = _record_boundaries(data, layout, number + done)
                header = _copy_headers(data, starts, layout)
                self._take_notes(header, starts, data, layout["magic"])
                yield _Records(header, number + done + 1 + np.arange(len(starts)))
                done, rest = done + len(starts), data[used:]
            if rest:
                raise MeasurementError(
                    f"{path}: record {done + 1} is cut short, {len(rest)} bytes are left of it: "
                    "let blktrace end by itself, or cut the file to whole records"
                )

    def _take_notes(
        self, header: Array, starts: Array, data: bytes, word: np.dtype[np.void]
    ) -> None:
        """Take names of processes and the wall clock, in words of the file's byte order."""
        for at in np.flatnonzero(header["action"] & NOTIFY):
            action, pid, time, size = header[["action", "pid", "time", "payload"]][at].item()
            begin = int(starts[at]) + HEADER_BYTES
            kind, payload = action & _ACTION, data[begin : begin + size]
            if kind == PROCESS_NOTE:
                name = payload.split(b"\0")[0].decode(errors="replace")
                self._commands.setdefault(pid, name)
            elif kind == TIME_NOTE and len(payload) >= 8 and self.epoch_ns is None:
                seconds, nanoseconds = np.frombuffer(payload[:8], word)
                self.epoch_ns = int(seconds) * 10**9 + int(nanoseconds) - time

    def _select_transfers(self, records: _Records) -> Events:
        """Keep arrivals and completions of requests, with a mask of the arrivals."""
        action = records.header["action"]
        is_arrival = action & _ACTION == _QUEUE
        kept = (is_arrival | (action & _ACTION == _COMPLETE)) & (action & NOTIFY == 0)
        op = _operations(action, records.header["bytes"])
        self.note(_OTHERS, kept & is_arrival & (op == Op.OTHER))
        kept &= op != Op.OTHER
        header, is_arrival = records.header[kept], is_arrival[kept]
        devices, device = np.unique(header["device"], return_inverse=True)
        names = [f"{number >> 20},{number & 0xFFFFF}" for number in devices.tolist()]
        events = Requests.of(
            records.row[kept],
            header["time"].astype(np.int64),
            header["sector"].astype(np.uint64),
            header["bytes"].astype(np.int64),
            op[kept],
            stream=self._process_numbers(header["pid"], is_arrival),
            device=self.names["device"].codes_at(device, names),
        )
        return events, is_arrival

    def _process_numbers(self, pid: Array, is_arrival: Array) -> Array:
        """Number processes by their arrivals; completions run in anybody's name."""
        codes = np.zeros(len(pid), np.int32)
        pids = pa.array(pid[is_arrival]).dictionary_encode()
        names = [_process_name(self._commands.get(p, ""), p) for p in pids.dictionary.to_pylist()]
        codes[is_arrival] = self.names["stream"].codes_at(pids.indices.to_numpy(), names)
        return codes


def _operations(action: Array, size: Array) -> Array:
    """Operation of each record, by its action's category bits."""
    op = np.full(len(action), Op.OTHER, np.uint8)
    op[(action & _READ) != 0] = Op.READ
    op[(action & _WRITE) != 0] = Op.WRITE
    op[((action & _FLUSH) != 0) & (size == 0)] = Op.FLUSH
    op[(action & _DISCARD) != 0] = Op.DISCARD
    op[(action & _COMMAND) != 0] = Op.OTHER
    # A write of nothing, as a barrier is, is a flush.
    op[(op == Op.WRITE) & (size == 0)] = Op.FLUSH
    return op


def per_cpu_files(path: Path) -> list[Path]:
    """Files of a trace: the one named, those of its other CPUs, or all of a folder or base name."""
    if match := _PER_CPU.fullmatch(path.name):
        found = [p for p in path.parent.glob("*") if _base_name(p) == match[1]]
    elif path.is_dir():
        found = [p for p in path.iterdir() if _base_name(p)]
        if len(bases := {_base_name(p) for p in found}) > 1:
            names = ", ".join(sorted(name.removesuffix(".blktrace.") for name in bases))
            raise MeasurementError(f"{path}: holds traces of {names}: name one, as {path}/NAME")
    elif path.exists():
        return [path]
    else:
        found = [p for p in path.parent.glob("*") if _base_name(p) == f"{path.name}.blktrace."]
    return sorted(found) or [path]


def _base_name(path: Path) -> str:
    """Part of a file name ahead of its CPU; empty for other files."""
    match = _PER_CPU.fullmatch(path.name)
    return match[1] if match else ""


def _check_version(path: Path, begin: bytes) -> np.dtype[np.void]:
    """Check a file's version by its first record; return the layout of its records."""
    if not Blktrace.recognises(begin):
        raise MeasurementError(f"{path}: does not begin as a file of blktrace does: give one")
    layout = BIG if begin.startswith(b"eat") else LITTLE
    version = begin[3 if layout is BIG else 0]
    if version != VERSION:
        raise MeasurementError(
            f"{path}: its records have blktrace version {version}, but ppw reads version "
            f"{VERSION}: give the output of blkparse for it"
        )
    return layout


def _copy_headers(data: bytes, starts: Array, layout: np.dtype[np.void]) -> Array:
    """Copy the headers out, in this machine's byte order."""
    raw = np.frombuffer(data, np.uint8)
    if len(starts) and len(data) == len(starts) * HEADER_BYTES:
        header = raw.view(layout)
    else:
        header = raw[starts[:, None] + np.arange(HEADER_BYTES)].reshape(-1).view(layout)
    return header.astype(LITTLE, copy=False)


def _record_boundaries(data: bytes, layout: np.dtype[np.void], done: int) -> tuple[Array, int]:
    """Find the starts of whole records, and the end of the last."""
    # Every place with the magic number is a candidate; one inside a payload is none.
    places = [np.zeros(0, np.int64)]
    for shift in range(min(4, len(data))):
        words = np.frombuffer(data, layout["magic"], (len(data) - shift) // 4, shift)
        places.append(shift + 4 * np.flatnonzero(words == MAGIC))
    candidates = np.sort(np.concatenate(places))
    candidates = candidates[candidates <= len(data) - HEADER_BYTES]
    payload = np.frombuffer(data, np.uint8)[candidates[:, None] + _PAYLOAD_AT]
    following = candidates + HEADER_BYTES + payload.view(layout["payload"])[:, 0]
    # Runs of candidates in which each record ends where the next one begins.
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
        raise base.BadRequestError(
            done + len(starts) + 1,
            "is not the start of a record: the file is damaged, or other output is in it",
        )
    return starts, expected


def _merge_by_time(sources: list[Iterator[_Records]]) -> Iterator[_Records]:
    """Merge the files in order of time, each of which is in order but for a few."""
    held = [next(source, None) for source in sources]
    while parts := [part for part in held if part is not None]:
        until = min(int(part.header["time"].max(initial=0)) for part in parts)
        due = [part.take(part.header["time"] <= until) for part in parts]
        merged = _Records(*map(np.concatenate, zip(*due, strict=True)))
        yield merged.take(np.argsort(merged.header["time"], kind="stable"))
        for number, part in enumerate(held):
            if part is not None:
                rest = part.take(part.header["time"] > until)
                held[number] = rest if len(rest.row) else next(sources[number], None)


# Letters of the fields that are numbers, and what they tell.
_NUMBERS = "m minor, M major, n sectors, N bytes, p pid, S sector, t nanoseconds, T seconds"
_TEXT_FIELDS = {
    "a": r"(?P<action>[A-Z][A-Za-z]?)",
    "C": r"(?P<command>.*?)",
    "d": r"(?P<rwbs>[A-Z]+)",
    "D": r"(?P<device>\d+,\s*\d+)",
    "e": r"-?\d+",
    **{letter: rf"(?P<{name}>\d+)" for letter, name in map(str.split, _NUMBERS.split(","))},
    **dict.fromkeys("csuU", r"\d+"),
}
_NEEDED = ("T", "t", "a", "d", "S")
_LETTERS = {"R": Op.READ, "W": Op.WRITE, "D": Op.DISCARD, "F": Op.FLUSH}
_EVENT = (
    r"\s*(?P<device>\d+,\s*\d+)\s+\d+\s+\d+\s+"
    r"(?P<seconds>\d+)\.(?P<nanoseconds>\d{9})\s+(?P<pid>\d+)\s+"
)
_TRANSFER = (
    _EVENT + r"(?P<action>Q|C)\s+(?P<rwbs>[A-Z]+)\s+"
    r"(?:(?P<sector>\d+)(?: \+ (?P<sectors>\d+))?\s*)?(?:\(\s*\d+\)\s*)?(?:\[(?P<command>.*)\])?"
)
# A payload, of a command that is no read or write.
_PAYLOAD = _EVENT + r"(?:Q|C)\s+[A-Z]+\s+(?:\d+\s+)?\([0-9a-f. ]*\).*"
_ANY = _EVENT + r"(?:[A-Z][A-Za-z]?|m)\s+.*"
_SUMMARY = r"(?:CPU\s*\d+ \(|Total \(|Throughput \(|Events \(|Input file |Skips: )"
# What people give to -f, apart from the default.
_COMMON = (
    "%D %2c %8s %5T.%9t %5p %2a %3d %S + %n [%C]",
    "%M,%m %c %s %T.%t %p %a %d %S %n",
    "%T.%t %p %a %d %S %n %C",
    "%T.%t %p %a %d %S %n",
    "%T.%t %a %d %S %n",
    "%T.%t,%p,%a,%d,%S,%n",
    "%T.%t,%a,%d,%S,%n",
    "%T.%t %p %a %d %S %N",
    "%T.%t,%a,%d,%S,%N",
)


class Blkparse(_EventReader):
    """Text that blkparse prints: its default lines, or those of a ``-f`` layout; no summary.

    Seconds.nanoseconds since the trace began; sectors of 512 bytes; a stream is a process.
    """

    name = "blkparse"
    described = "blkparse text"
    no_arrival = "no line is an arrival (Q): let blkparse print the queue events"

    def __init__(
        self, path: Path, mapping: Mapping[str, str] | None = None, layout: str | None = None
    ) -> None:
        super().__init__(path, mapping)
        self._layout = _common_layout(base.head(path)) if layout is None else layout
        self._pattern = _TRANSFER if self._layout is None else pattern(self._layout)
        self._processes: dict[str, str] = {}

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether the first line is of the default layout, or of a common one."""
        return _is_default(head) or _common_layout(head) is not None

    def _read_events(self) -> Iterator[Events]:
        if self._layout is not None:
            self.notes[f"read as blkparse -f {self._layout!r}"] += 1
        for lines in text.filled_lines(self.path):
            summary = lines.matches(_SUMMARY)
            # The summary is the end.
            events = lines.take(np.cumsum(summary) == 0)
            if len(events.row):
                yield self._select_transfers(events)
            if summary.any():
                return

    def _select_transfers(self, lines: text.TextLines) -> Events:
        """Keep arrivals and completions of requests, with a mask of the arrivals."""
        matched, parts = lines.extract(self._pattern)
        if not matched.all():
            self._refuse_junk(lines.take(~matched))
        row = lines.row[matched]
        column = {field.name: parts.field(field.name) for field in parts.type}
        wanted = pc.is_in(column["action"], pa.array(["Q", "C"])).to_numpy(zero_copy_only=False)
        if not wanted.all():
            row = row[wanted]
            column = {name: values.filter(pa.array(wanted)) for name, values in column.items()}
        is_arrival = pc.equal(column["action"], "Q").to_numpy(zero_copy_only=False)
        size = _sizes_bytes(row, column)
        op = _rwbs_operations(column["rwbs"], size)
        events = Requests.of(
            row,
            _times_ns(row, column),
            text.whole(column["sector"], row, "sector"),
            size,
            op,
            stream=self._named_processes(column, is_arrival),
            device=self._device_numbers(column),
        )
        other = op == Op.OTHER
        self.note(_OTHERS, other & is_arrival)
        return events.drop_others(), is_arrival[~other]

    def _refuse_junk(self, rest: text.TextLines) -> None:
        """Refuse a line that is no event; of the default layout, other events are known."""
        known = np.zeros(len(rest.row), bool)
        if self._layout is None:
            other = rest.matches(_ANY) & ~rest.matches(_EVENT + r"(?:Q|C)\s")
            known = other | rest.matches(_PAYLOAD)
        rest.refuse_first(~known, "no event as blkparse prints it")

    def _named_processes(self, column: dict[str, pa.Array], is_arrival: Array) -> Array | None:
        """Number processes by their arrivals; completions run in anybody's name."""
        if "pid" not in column or not is_arrival.any():
            return None
        chosen = pa.array(is_arrival)
        index, pids = base.encode(column["pid"].filter(chosen))
        commands = column["command"].filter(chosen) if "command" in column else None
        for pid, at in zip(pids, np.unique(index, return_index=True)[1], strict=True):
            # A process keeps its first name, whatever it runs later.
            command = "" if commands is None else str(commands[int(at)].as_py())
            name = _process_name("" if command == "(null)" else command, pid.lstrip("0") or "0")
            self._processes.setdefault(pid, name)
        codes = np.zeros(len(is_arrival), np.int32)
        names = [self._processes[pid] for pid in pids]
        codes[is_arrival] = self.names["stream"].codes_at(index, names)
        return codes

    def _device_numbers(self, column: dict[str, pa.Array]) -> Array | None:
        """Number devices by the names "major,minor"; None where the lines tell none."""
        if "major" in column and "minor" in column:
            name = pc.binary_join_element_wise(column["major"], column["minor"], ",")
        else:
            name = column.get("device")
        if name is None:
            return None
        return self.names["device"].codes(pc.replace_substring(name, " ", ""))


def pattern(layout: str) -> str:
    """Regular expression of a ``-f`` layout."""
    parts = re.split(r"%-?\d*([A-Za-z])", layout.strip().removesuffix(r"\n").strip())
    fields = parts[1::2]
    if unknown := [field for field in fields if field not in _TEXT_FIELDS]:
        raise MeasurementError(f"format blkparse:{layout}: %{unknown[0]} is not read: leave it out")
    if missing := [field for field in _NEEDED if field not in fields]:
        raise MeasurementError(
            f"format blkparse:{layout}: %{missing[0]} is needed: print at least %T.%t %a %d %S %n"
        )
    if not {"n", "N"} & set(fields):
        raise MeasurementError(f"format blkparse:{layout}: give sizes too, %n or %N")
    texts = [re.sub(r"\\?\s+", r"\\s+", re.escape(between)) for between in parts[0::2]]
    pieces = [texts[0]]
    for field, between in zip(fields, texts[1:], strict=True):
        pieces += [r"\s*", _TEXT_FIELDS[field], between]
    return "".join(pieces)


def _common_layout(begin: bytes) -> str | None:
    """Layout of a first line, None for the default one or one that nobody knows."""
    if _is_default(begin):
        return None
    line = begin.strip().partition(b"\n")[0].decode(errors="replace")
    fitting = (one for one in _COMMON if re.fullmatch(pattern(one) + r"\s*", line))
    return next(fitting, None)


def _is_default(begin: bytes) -> bool:
    """Whether the first line has the default layout of blkparse."""
    line = begin.lstrip(b"\n").partition(b"\n")[0].decode(errors="replace")
    return re.match(_ANY, line) is not None


def _times_ns(row: Array, column: dict[str, pa.Array]) -> Array:
    seconds = text.whole(column["seconds"], row, "seconds")
    far = seconds > 2**63 // 10**9 - 1
    base.refuse_first(far, row, lambda _: "its time is beyond 2^63 ns")
    return seconds * 10**9 + text.whole(column["nanoseconds"], row, "nanoseconds")


def _sizes_bytes(row: Array, column: dict[str, pa.Array]) -> Array:
    if "bytes" in column:
        return text.whole(column["bytes"], row, "bytes")
    sectors = text.whole(column["sectors"], row, "blocks")
    far = sectors >= 2**54
    base.refuse_first(far, row, lambda at: f"{sectors[at]} blocks are beyond 2^63 bytes")
    return sectors * base.BLOCK_BYTES


def _rwbs_operations(rwbs: pa.Array, size: Array) -> Array:
    """Operation of each RWBS word."""
    index, words = base.encode(rwbs)
    # A leading F asks for a flush before the data, which the next letter names.
    codes = [_LETTERS.get(re.sub("^F(?=[WDR])", "", word)[:1], Op.OTHER) for word in words]
    op: Array = np.asarray(codes or [Op.OTHER], np.uint8)[index]
    op[(op == Op.WRITE) & (size == 0)] = Op.FLUSH
    return op
