"""What blkparse prints: its default lines, or those of a ``-f`` format.

Arrivals are Q events, completions C events; the summary at the end is left out.

Source: the manual of blkparse, "OUTPUT DESCRIPTION AND FORMATTING".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measurements.errors import MeasurementError
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
from measurements.traces.text_lines import Lines, extracted, first_line, lines, matches, whole

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


# Latency of the block layer's requests: each arrival (Q) with the completion (C) that ends it.
#
# An arrival is over when the request that holds its last block completes: one completion answers
# all arrivals that were merged into it, and of an arrival that was split the last part counts.


class Events(NamedTuple):
    """Arrivals and completions in order of time (ns)."""

    row: Array
    time: Array
    is_arrival: Array
    stream: Array
    device: Array
    lbn: Array
    size_bytes: Array
    op: Array

    def take(self, chosen: Array) -> Events:
        """Choose events by a mask or their numbers."""
        return Events(*(column[chosen] for column in self))


def with_latency(chunks: Iterable[Events], notes: Counter[str]) -> Iterator[Requests]:
    """Yield the arrivals; a completion is looked for in the arrival's chunk and the next one."""
    waiting: Requests | None = None
    for events in chunks:
        completions = events.take(~events.is_arrival)
        arrivals = _requests(events.take(events.is_arrival))
        if waiting is not None:
            yield _noted(_completed(waiting, completions), notes)
        waiting = _completed(arrivals, completions)
    if waiting is not None:
        yield _noted(waiting, notes)


def _requests(arrivals: Events) -> Requests:
    return Requests.of(
        arrivals.row,
        arrivals.time,
        arrivals.lbn,
        arrivals.size_bytes,
        arrivals.op,
        stream=arrivals.stream,
        device=arrivals.device,
    )


def _noted(requests: Requests, notes: Counter[str]) -> Requests:
    transfers = requests.op != FLUSH
    if lost := int((np.isnan(requests.latency_s) & transfers).sum()):
        notes["{n} requests have no completion in the trace: their latency is missing"] += lost
    return requests


def _completed(requests: Requests, completions: Events) -> Requests:
    """Fill in the latency of those that the completions end."""
    if not requests.rows() or not len(completions.row):
        return requests
    latency = requests.latency_s.copy()
    open_ = np.isnan(latency) & (requests.op != FLUSH)
    kinds = requests.device.astype(np.int64) * 4 + requests.op
    ended = completions.device.astype(np.int64) * 4 + completions.op
    for kind in np.unique(kinds[open_]):
        chosen = np.flatnonzero(open_ & (kinds == kind))
        latency[chosen] = _first_after(requests.take(chosen), completions.take(ended == kind))
    return requests._replace(latency_s=latency)


def _first_after(requests: Requests, completions: Events) -> Array:
    """Seconds to the first completion, not before the arrival, that holds its last block."""
    last = requests.lbn.astype(np.int64) + _blocks(requests.size_bytes) - 1
    targets, target = np.unique(last, return_inverse=True)
    begin = completions.lbn.astype(np.int64)
    low = np.searchsorted(targets, begin)
    held = np.searchsorted(targets, begin + _blocks(completions.size_bytes)) - low
    # One line for each completion and target that it holds, in order of target, then time.
    which = np.repeat(np.arange(len(begin)), held)
    within = np.arange(len(which)) - np.repeat(np.cumsum(held) - held, held)
    reached = low[which] + within
    order = np.lexsort((completions.time[which], reached))
    reached, at = reached[order], completions.time[which][order]
    found = _search(reached, at, target, requests.time)
    answered = found < len(at)
    index = np.minimum(found, max(len(at) - 1, 0))
    if len(at):
        answered &= reached[index] == target
    seconds = np.full(len(last), np.nan)
    seconds[answered] = (at[index[answered]] - requests.time[answered]) / 1e9
    return seconds


def _search(reached: Array, at: Array, target: Array, time: Array) -> Array:
    """Place of each (target, time) in the pairs (reached, at), which are sorted."""
    # Both together in order; of equal ones the arrival comes first.
    number = np.concatenate([target, reached])
    when = np.concatenate([time, at])
    is_pair = np.repeat([0, 1], [len(target), len(reached)])
    order = np.lexsort((is_pair, when, number))
    before = np.cumsum(is_pair[order])
    place = np.empty(len(order), np.int64)
    place[order] = before
    return place[: len(target)]


def _blocks(size_bytes: Array) -> Array:
    count: Array = -(-size_bytes.astype(np.int64) // BLOCK_BYTES)
    return np.maximum(count, 1)


_ACTION = "[A-Z][A-Za-z]?"
_FIELDS = {
    "a": rf"(?P<action>{_ACTION})",
    "c": r"\d+",
    "C": r"(?P<command>.*?)",
    "d": r"(?P<rwbs>[A-Z]+)",
    "D": r"(?P<device>\d+,\s*\d+)",
    "e": r"-?\d+",
    "m": r"(?P<minor>\d+)",
    "M": r"(?P<major>\d+)",
    "n": r"(?P<sectors>\d+)",
    "N": r"(?P<bytes>\d+)",
    "p": r"(?P<pid>\d+)",
    "s": r"\d+",
    "S": r"(?P<sector>\d+)",
    "t": r"(?P<nanoseconds>\d+)",
    "T": r"(?P<seconds>\d+)",
    "u": r"\d+",
    "U": r"\d+",
}
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
COMMON = (
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
_NEEDED = ("T", "t", "a", "d", "S")


class Blkparse(Reader):
    """Seconds.nanoseconds since the trace began; sectors of 512 bytes; a stream is a process."""

    name: ClassVar[str] = "blkparse"
    described: ClassVar[str] = "blkparse text"
    ticks_per_s = 10**9

    def __init__(
        self, path: Path, mapping: Mapping[str, str] | None = None, layout: str | None = None
    ) -> None:
        super().__init__(path, mapping)
        begin = head(path)
        if layout is None and not _begins(begin):
            layout = next((form for form in COMMON if _fits(form, begin)), None)
        self._layout = layout
        self._commands: dict[str, str] = {}
        self._pattern = _TRANSFER if layout is None else pattern(layout)

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        return _begins(head) or any(_fits(form, head) for form in COMMON)

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        if self._layout is not None:
            self.notes[f"read as blkparse -f {self._layout!r}"] += 1
        arrivals = False
        for requests in with_latency(self._events(), self.notes):
            arrivals |= bool(requests.rows())
            yield requests
        if not arrivals:
            raise MeasurementError(
                f"{self.path}: no line is an arrival (Q): let blkparse print the queue events"
            )

    def _events(self) -> Iterator[Events]:
        for found in lines(self.path):
            text = found.take(~matches(found, r"\s*$"))
            summary = matches(text, _SUMMARY)
            ended = bool(summary.any())
            if ended:
                text = text.take(np.arange(len(text.row)) < int(np.argmax(summary)))
            if len(text.row):
                yield self._io(text)
            if ended:
                return

    def _io(self, text: Lines) -> Events:
        matched, parts = extracted(text, self._pattern)
        if not matched.all():
            self._refuse_junk(text, ~matched)
        row = text.row[matched]
        column = {field.name: parts.field(field.name) for field in parts.type}
        action = column["action"]
        wanted = pc.is_in(action, pa.array(["Q", "C"])).to_numpy(zero_copy_only=False)
        if not wanted.all():
            row = row[wanted]
            column = {name: values.filter(pa.array(wanted)) for name, values in column.items()}
        return self._of(row, column)

    def _of(self, row: Array, column: dict[str, pa.Array]) -> Events:
        is_arrival = pc.equal(column["action"], "Q").to_numpy(zero_copy_only=False)
        size = _size(row, column)
        op = _operations(column["rwbs"], size)
        seconds = whole(column["seconds"], row, "seconds")
        if (far := seconds > 2**63 // 10**9 - 1).any():
            raise BadRequestError(int(row[int(far.argmax())]), "its time is beyond 2^63 ns")
        events = Events(
            row,
            seconds * 10**9 + whole(column["nanoseconds"], row, "nanoseconds"),
            is_arrival,
            self._streams(column, row, is_arrival),
            self._devices(column, len(row)),
            whole(_or_zero(column["sector"]), row, "sector"),
            size,
            op,
        )
        if others := int(((op == _OTHER) & is_arrival).sum()):
            self.notes["{n} events of commands that move no data are left out"] += others
        return events.take(op != _OTHER) if (op == _OTHER).any() else events

    def _refuse_junk(self, text: Lines, unmatched: Array) -> None:
        rest = text.take(unmatched)
        if self._layout is None:
            other = matches(rest, _ANY) & ~matches(rest, _EVENT + r"(?:Q|C)\s")
            known = other | matches(rest, _PAYLOAD)
        else:
            known = np.zeros(len(rest.row), bool)
        if not known.all():
            row, line = first_line(rest, ~known)
            raise BadRequestError(row, f"no event as blkparse prints it: {line}")

    def _streams(self, column: dict[str, pa.Array], row: Array, is_arrival: Array) -> Array:
        """Number processes by their arrivals; completions run in anybody's name."""
        codes = np.zeros(len(row), np.int32)
        pid, command = column.get("pid"), column.get("command")
        if pid is not None and is_arrival.any():
            chosen = pa.array(is_arrival)
            encoded = pid.filter(chosen).dictionary_encode()
            numbers = encoded.indices.to_numpy(zero_copy_only=False)
            _, first = np.unique(numbers, return_index=True)
            named = command.filter(chosen) if command is not None else None
            names = [
                process_name(_command(named, int(at)), int(number))
                for number, at in zip(encoded.dictionary.to_pylist(), first, strict=True)
            ]
            known = [
                self._known(number, name)
                for number, name in zip(encoded.dictionary.to_pylist(), names, strict=True)
            ]
            codes[is_arrival] = np.asarray(known, np.int32)[numbers]
        return codes

    def _known(self, pid: str, name: str) -> int:
        """Keep the first name of a process, whatever it runs later."""
        return self.names["stream"].code(self._commands.setdefault(pid, name))

    def _devices(self, column: dict[str, pa.Array], count: int) -> Array:
        if "device" in column:
            return self.names["device"].codes(pc.replace_substring(column["device"], " ", ""))
        if "major" in column and "minor" in column:
            joined = pc.binary_join_element_wise(column["major"], column["minor"], ",")
            return self.names["device"].codes(joined)
        return np.zeros(count, np.int32)


_OTHER = 255


def pattern(layout: str) -> str:
    """Regular expression of a ``-f`` format.

    Raises
    ------
    MeasurementError
        When it names a field that does not exist, or leaves out one that is needed.
    """
    parts = re.split(r"%-?\d*([A-Za-z])", layout.strip().removesuffix(r"\n").strip())
    fields = parts[1::2]
    if unknown := [field for field in fields if field not in _FIELDS]:
        raise MeasurementError(f"format blkparse:{layout}: %{unknown[0]} is not read: leave it out")
    if missing := [field for field in _NEEDED if field not in fields]:
        raise MeasurementError(
            f"format blkparse:{layout}: %{missing[0]} is needed: print at least %T.%t %a %d %S %n"
        )
    if not {"n", "N"} & set(fields):
        raise MeasurementError(f"format blkparse:{layout}: give sizes too, %n or %N")
    texts = [re.sub(r"\\?\s+", r"\\s+", re.escape(text)) for text in parts[0::2]]
    pieces = [texts[0]]
    for field, text in zip(fields, texts[1:], strict=True):
        pieces += [r"\s*", _FIELDS[field], text]
    return "".join(pieces)


def _begins(begin: bytes) -> bool:
    line = begin.lstrip(b"\n").partition(b"\n")[0].decode(errors="replace")
    return re.match(_ANY, line) is not None


def _fits(layout: str, begin: bytes) -> bool:
    first = begin.strip().partition(b"\n")[0].decode(errors="replace")
    return re.fullmatch(pattern(layout) + r"\s*", first) is not None


def _command(named: pa.Array | None, at: int) -> str:
    text = "" if named is None else str(named[at].as_py())
    return "" if text == "(null)" else text


def _size(row: Array, column: dict[str, pa.Array]) -> Array:
    if "bytes" in column:
        return whole(_or_zero(column["bytes"]), row, "bytes")
    sectors = whole(_or_zero(column["sectors"]), row, "blocks")
    if (far := sectors >= 2**54).any():
        at = int(far.argmax())
        raise BadRequestError(int(row[at]), f"{sectors[at]} blocks are beyond 2^63 bytes")
    return sectors * BLOCK_BYTES


def _operations(rwbs: pa.Array, size: Array) -> Array:
    """Operation by the letters of RWBS; 255 for what moves no data."""
    words = rwbs.dictionary_encode()
    codes = [_operation(word) for word in words.dictionary.to_pylist()]
    op: Array = np.asarray(codes, np.uint8)[words.indices.to_numpy(zero_copy_only=False)]
    op[(op == WRITE) & (size == 0)] = FLUSH
    return op


def _operation(letters: str) -> int:
    # A leading F asks for a flush before the data, which the next letter names.
    kind = letters[1:2] if letters[:1] == "F" and letters[1:2] in ("W", "D", "R") else letters[:1]
    return {"R": READ, "W": WRITE, "D": DISCARD, "F": FLUSH}.get(kind, _OTHER)


def _or_zero(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(column, ""), "0", column)


def process_name(command: str, pid: int) -> str:
    """Name a process as the kernel's tracers do: command-pid."""
    return f"{command or 'process'}-{pid}"
