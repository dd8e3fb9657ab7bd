"""Logs on their way to a time series: bytes, the caller's options, time stamps, gathered rows."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from measurements.errors import LateModule, MeasurementError
from measurements.table import memory_budget
from measurements.timeseries import series

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv
else:  # ppw's own series need no Arrow.
    pa, pc, csv = map(LateModule, ("pyarrow", "pyarrow.compute", "pyarrow.csv"))

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Columns = dict[str, Numbers]

PIECE_BYTES = 8 << 20
_GZIP = b"\x1f\x8b"
# First bytes of the binary files of sar, in both byte orders.
SADC = (b"\x96\xd5", b"\xd5\x96")
_HEAD_BYTES = 1 << 16
# A header stands above many rows: more of them than this, and one in so many bytes, is no log.
_MOST_HEADERS, _BYTES_PER_HEADER = 1000, 1 << 14


class Source:
    """One log as a stream of bytes; its ``head`` tells the format."""

    def __init__(self, name: str, stream: io.BufferedIOBase) -> None:
        self.name = name
        self.truncated = False  # whether it breaks off within a gzip file or a line, so far
        self._stream, self._size = stream, 0
        # Of a pipe nothing is known.
        packed = None
        if isinstance(stream, gzip.GzipFile):
            with suppress(OSError):
                packed = os.fstat(stream.fileno()).st_size
        self._most = memory_budget.most_bytes(packed or None)
        self.head = self._read_unpacked(_HEAD_BYTES)
        self._given = False

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield all bytes, once, in pieces of about ``size``."""
        if self._given:
            raise MeasurementError(
                f"{self.name}: was already read, and can be read only once: open it again"
            )
        self._given = True
        piece = self.head + self._read_unpacked(max(0, size - len(self.head)))
        while piece:
            yield piece
            piece = self._read_unpacked(size)

    def lines(self) -> Iterator[bytes]:
        """Yield all whole lines in large pieces; a last line without an end is left out."""
        rest = b""
        for piece in self.pieces():
            end = piece.rfind(b"\n") + 1
            if end:
                yield rest + piece[:end]
                rest = b""
            rest += piece[end:]
            if len(rest) > 8 * PIECE_BYTES:
                size = len(rest) >> 20
                raise MeasurementError(f"{self.name}: has a line of over {size} MiB: no log")
        self.truncated |= bool(rest)

    def check_table(self, rows: int, columns: int) -> None:
        """Raise `MeasurementError` where a table of what was read would exceed the budget."""
        memory_budget.check_table(rows, columns, self._size, self.name)

    def check_headers(self, count: int) -> None:
        """Raise `MeasurementError` where what was read is made of headers."""
        if count > _MOST_HEADERS + self._size // _BYTES_PER_HEADER:
            raise MeasurementError(
                f"{self.name}: names its columns {count} times within {self._size} bytes: no log, "
                "or split it"
            )

    def _read_unpacked(self, size: int) -> bytes:
        parts, missing = [], size
        while missing > 0 and not self.truncated:
            try:
                # A plain read would lose what came before a gzip file breaks off.
                part = self._stream.read1(missing)
            except EOFError:
                self.truncated = True
                break
            except (OSError, zlib.error) as error:
                raise MeasurementError(f"{self.name}: cannot be read: {error}") from error
            if not part:
                break
            parts.append(part)
            missing -= len(part)
            self._size += len(part)
            memory_budget.check_size(self._size, self._most, self.name)
        return b"".join(parts)


@contextmanager
def open_source(path: str | Path) -> Iterator[Source]:
    """Open a log; ``-`` is standard input, and gzip is known by its first bytes."""
    if str(path) == "-":
        yield _open_stream("standard input", sys.stdin.buffer)
        return
    try:
        with Path(path).open("rb") as file:
            if file.read(2) in SADC:
                yield from _open_binary(str(path))
                return
            file.seek(0)
            yield _open_stream(str(path), file)
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be read: {error.strerror or error}") from error


def _open_binary(path: str) -> Iterator[Source]:
    """Open a binary file of sadc as what sadf makes of it."""
    with tempfile.TemporaryFile() as file:
        command = ["sadf", "-j", path, "--", "-A"]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, check=False
            )
        except FileNotFoundError:
            raise MeasurementError(
                f"{path}: is a binary file of sar, which sadf reads: install sysstat"
            ) from None
        if done.returncode or not file.tell():
            said = " ".join(done.stderr.decode(errors="replace").split())[:200]
            raise MeasurementError(
                f"{path}: sadf cannot read this binary file of sar: {said}: try sadf -c"
            )
        file.seek(0)
        yield _open_stream(path, file)


def _open_stream(name: str, stream: IO[bytes]) -> Source:
    # Standard input may be of a kind that cannot be looked at ahead.
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]
    zipped = buffered.peek(2)[:2] == _GZIP
    source = Source(name, gzip.GzipFile(fileobj=buffered) if zipped else buffered)
    if not source.head:
        how = "is a gzip file that breaks off at once" if source.truncated else "is empty"
        raise MeasurementError(f"{name}: {how}: no log")
    return source


@dataclass(frozen=True)
class Options:
    """What the caller wants of a log, and knows better; see `read_time_series`."""

    columns: Collection[str] | None = None
    cpus: float | None = None
    host: str | None = None
    timezone: str | None = None

    def __post_init__(self) -> None:
        for name in self.columns or ():
            if series.split_device(name)[0] not in series.COLUMNS:
                raise series.unknown_column(name)
        if self.timezone is not None:
            to_utc(np.zeros(1), self.timezone)
        if self.cpus is not None and not 0 < self.cpus < float("inf"):
            raise MeasurementError(f"cpus is {self.cpus!r}: give the number of logical CPUs")

    def needs(self, base: str) -> bool:
        """Check whether a column was selected, or a total that is made of it."""
        return self.columns is None or base in self._needed_columns or base in series.KEYS

    def keeps(self, column: str) -> bool:
        """Check whether a column was selected, by its own name or for all devices."""
        if self.columns is None or column in self.columns:
            return True
        return series.split_device(column)[0] in (*self.columns, *series.KEYS)

    @cached_property
    def _needed_columns(self) -> set[str]:
        """Columns that were selected, and those that they are computed from."""
        names = {series.split_device(name)[0] for name in self.columns or ()}
        names |= {series.DISK_TOTALS[name][0] for name in names & series.DISK_TOTALS.keys()}
        if "disk_queue" in names:
            names.add("disk_busy_share")
        if names & {"ios", "disk_ios"}:
            names |= {"ios_read", "ios_written", "disk_ios_read", "disk_ios_written"}
        return names


# Factors to the units of the columns.
_FACTORS = {"1": 1.0, "2": 2.0, "%": 0.01, "ms": 1e-3, "KiB": 1024.0, "sector": 512.0}
_FACTORS["MiB"] = 2.0**20


class Field(NamedTuple):
    """What a field of a log becomes: a column, and the factor to its unit."""

    column: str
    factor: float = 1.0

    @classmethod
    def table(cls, text: str) -> dict[str, Field]:
        """Read fields by their names in the log, a unit, a prefix if any, and names on each line.

        >>> Field.table("ms disk. await=disk_wait_s")
        {'disk.await': Field(column='disk_wait_s', factor=0.001)}
        """
        fields: dict[str, Field] = {}
        for line in text.strip().splitlines():
            unit, *words = line.split()
            prefix = "" if "=" in words[0] else words.pop(0)
            pairs = (word.split("=") for word in words)
            fields |= {prefix + name: cls(column, _FACTORS[unit]) for name, column in pairs}
        return fields


@dataclass(slots=True)
class Log:
    """A log as it is read: rows in the order of the file, amounts still per second."""

    source: str
    format: str
    host: str = ""
    cpus: float | None = None  # CPU time is over all of them
    hz: float | None = None
    usual_s: float | None = None  # interval of the recording, by the log itself
    restarts: list[int] = field(default_factory=list)  # rows that are the first after a new start
    per_interval: bool = False
    caveats: list[str] = field(default_factory=list)
    rows: int = 0
    skipped: int = 0  # number of lines that are no rows
    # Arrays are there from `finish` on; times are the ends of intervals (s since 1970 UTC).
    times_s: Numbers = field(default_factory=lambda: np.zeros(0))
    intervals_s: Numbers | None = None  # NaN or None where the log gives none
    # Rows with a field that is no number.
    odd: Flags = field(default_factory=lambda: np.zeros(0, bool))
    columns: Columns = field(default_factory=dict)
    _blocks: dict[str, list[tuple[int, Numbers]]] = field(default_factory=dict)

    def name_host(self, names: Iterable[str | None], options: Options) -> None:
        """Take the host's name, unless the caller has one; refuse a second host in the log."""
        named = list(dict.fromkeys(name for name in (self.host, *names) if name))
        if len(named) > 1 and not options.host:
            raise MeasurementError(
                f"{self.source}: is of host {named[0]!r} and then of {named[1]!r}: split it, and "
                "read one host at a time"
            )
        self.host = options.host or (*named, "")[0]

    def add(
        self,
        times_s: Numbers,
        columns: Mapping[str, Numbers],
        odd: Flags | None = None,
        intervals_s: Numbers | None = None,
    ) -> None:
        """Add a block of rows, without those whose time is not known."""
        known = np.isfinite(times_s)
        block = {"time_s": times_s, **columns}
        if odd is not None:
            block["odd"] = odd.astype(float)
        if intervals_s is not None:
            block["interval_s"] = intervals_s
        for name, numbers in block.items():
            self._blocks.setdefault(name, []).append((self.rows, numbers[known]))
        self.rows += int(known.sum())
        self.skipped += int((~known).sum())

    def finish(self, source: Source) -> Self:
        """Lay the blocks one below the other; a column that a block lacks is NaN there."""
        source.check_table(self.rows, len(self._blocks))
        columns = {}
        # One column after the other, so that blocks and columns are not both there at once.
        while self._blocks:
            name, blocks = self._blocks.popitem()
            column = np.full(self.rows, np.nan)
            for start, numbers in blocks:
                column[start : start + len(numbers)] = numbers
            columns[name] = column
        self.columns = dict(reversed(columns.items()))
        self.times_s = self.columns.pop("time_s", self.times_s)
        self.intervals_s = self.columns.pop("interval_s", None)
        self.odd = self.columns.pop("odd", np.zeros(self.rows)) == 1
        return self


class LogReader:
    """Reads one log of a format into a `Log`."""

    format: ClassVar[str]
    begins: ClassVar[re.Pattern[bytes]]  # what the first bytes of a log of this format match

    def __init__(self, source: Source, options: Options) -> None:
        self._source, self._options = source, options
        self._log = Log(source.name, self.format, options.host or "")
        self._caveats: dict[str, None] = {}

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Check whether a file that begins so is of this format."""
        return cls.begins.match(head) is not None

    def read(self) -> Log:
        """Read the log; refuse one that ppw cannot use."""
        raise NotImplementedError

    def _cpus_of_shares(self, logged: float | None) -> float | None:
        """Number of CPUs that shares are of: the log's, or else the caller's with a caveat."""
        cpus = logged or self._options.cpus
        if not logged:
            self._caveats[series.cpus_taken(cpus) if cpus else series.CPUS_UNKNOWN] = None
        return cpus


def drop_absurd(numbers: Numbers) -> Flags:
    """Replace numbers beyond what a counter can show by NaN, in place; return where that was."""
    absurd: Flags = np.abs(numbers) > series.LARGEST
    numbers[absurd] = np.nan
    return absurd


class Block(NamedTuple):
    """Some rows of a log, columns by position."""

    texts: dict[int, pa.ChunkedArray]
    numbers: dict[int, Numbers]  # NaN where a field is empty or no number
    odd: Flags  # rows with a field that is no number
    skipped: int  # number of rows with more or fewer fields than there are columns


def read_block(
    data: bytes, separator: str, width: int, texts: Collection[int], numbers: Collection[int]
) -> Block:
    """Read lines of ``width`` fields, those of ``texts`` and ``numbers``; count other lines."""
    if not data.isascii():
        data = data.decode("utf-8", errors="replace").encode()
    types = {str(position): pa.string() for position in texts}
    floats = {str(position): pa.float64() for position in numbers}
    strings = dict.fromkeys(floats, pa.string())
    try:
        table, skipped = _parse_and_count_skipped(data, separator, width, types | floats)
    except pa.ArrowException:
        # One field that is no number refuses the whole block; as text all can be read.
        try:
            table, skipped = _parse_and_count_skipped(data, separator, width, types | strings)
        except pa.ArrowException:
            return Block({}, {}, np.zeros(0, bool), data.count(b"\n"))
    odd = np.zeros(table.num_rows, bool)
    found = {}
    for position in numbers:
        found[position], bad = _floats_and_odd(table.column(str(position)))
        odd |= bad
    return Block({p: table.column(str(p)) for p in texts}, found, odd, skipped)


def _parse_and_count_skipped(
    data: bytes, separator: str, width: int, types: dict[str, pa.DataType]
) -> tuple[pa.Table, int]:
    # pyarrow refuses a table without rows.
    if not data.strip():
        return pa.table({name: pa.array([], type_) for name, type_ in types.items()}), 0
    skipped = []

    def skip(_: Any) -> str:
        skipped.append(1)
        return "skip"

    reading = csv.ReadOptions(column_names=[str(n) for n in range(width)])
    parsing = csv.ParseOptions(delimiter=separator, quote_char=False, invalid_row_handler=skip)
    columns = {"include_columns": list(types), "column_types": types}
    kept = csv.ConvertOptions(**columns, null_values=[""], check_utf8=False)
    return csv.read_csv(pa.BufferReader(data), reading, parsing, kept), len(skipped)


def _floats_and_odd(column: pa.ChunkedArray) -> tuple[Numbers, Flags]:
    """Numbers of a column, NaN for other text, and a mask of where that is."""
    if str(column.type) != "string":
        found = np.array(column.to_numpy(), dtype=float)
        # "nan" and "inf" are numbers to the parser.
        odd = ~np.isfinite(found)
        if column.null_count and odd.any():
            odd &= np.asarray(column.is_valid().to_numpy(), dtype=bool)
    else:
        texts = pd.Series(column.fill_null("").to_pylist(), dtype=object)
        found = np.array(pd.to_numeric(texts, errors="coerce"), dtype=float)
        odd = ~np.isfinite(found) & texts.ne("").to_numpy()
    found[odd] = np.nan
    odd |= drop_absurd(found)
    return found, odd


_OFFSET = re.compile(r"(?P<sign>[-+])(?P<hours>\d{2}):?(?P<minutes>\d{2})")


def stamps(texts: pa.ChunkedArray | pa.Array, form: str) -> Numbers:
    """Read clock times in a format of strptime (s since 1970 of that clock); NaN for no time."""
    found = pc.strptime(texts, format=form, unit="s", error_is_null=True)
    return np.array(found.cast("int64").cast("float64").fill_null(np.nan), dtype=float)


def to_utc(local_s: Numbers, zone: str | None) -> Numbers:
    """Turn seconds since 1970 of a zone's clock into those of UTC; None is UTC.

    A zone is an offset such as ``+0200``, or a name such as ``Europe/Berlin``. The hour that comes
    twice in autumn is read as the first one; the second then shows as a clock that went back.
    """
    if zone is None:
        return local_s
    if match := _OFFSET.fullmatch(zone):
        offset_s = int(match["hours"]) * 3600 + int(match["minutes"]) * 60
        return local_s - (offset_s if match["sign"] == "+" else -offset_s)
    whole = np.floor(np.nan_to_num(local_s))
    try:
        clock = pd.DatetimeIndex(whole.astype("int64").astype("datetime64[s]"))
        utc = clock.tz_localize(
            zone, ambiguous=np.ones(len(whole), bool), nonexistent="shift_forward"
        )
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise MeasurementError(
            f"{zone!r} is no time zone: write one like this: +0200 or Europe/Berlin"
        ) from error
    seconds = np.asarray(utc.tz_convert(None).to_numpy().astype("datetime64[s]").astype("int64"))
    return np.asarray(seconds + (local_s - whole))


# A log does not say what lies on what. Stacked block devices (dm, md, loop, zram, partitions) move
# the same bytes as the disks below them, and bridges, bonds and tunnels those of the interfaces.
_STACKED_DISK = re.compile(r"(loop|z?ram|dm-|md|sr|fd|nbd|drbd|bcache|psv)\d")
_STACKED_INTERFACE = re.compile(
    r"lo$|.*\.|(ifb|dummy|bond|team|tun|tap|vxlan|vlan|wg|br|virbr|docker|gre|sit|ip6tnl)\d*$"
    r"|(veth|br-|cali|cni|flannel|lxc|vnet|vmnet|macvlan|tailscale|docker_)"
)
_PARTITION = re.compile(r"(?P<disk>.{1,99}?)(?:(?<=\d)p)?\d{1,9}")


def physical_disks(names: Iterable[str]) -> tuple[str, ...]:
    """Choose the whole disks among the names of a log, so that each transfer counts once.

    >>> physical_disks(["sda", "sda1", "dm-0", "nvme0n1", "nvme0n1p2", "loop3"])
    ('sda', 'nvme0n1')
    """
    known = dict.fromkeys(names)

    def is_partition(name: str) -> bool:
        match = _PARTITION.fullmatch(name)
        return match is not None and match["disk"] in known

    return tuple(n for n in known if not _STACKED_DISK.match(n) and not is_partition(n))


def physical_interfaces(names: Iterable[str]) -> tuple[str, ...]:
    """Choose the interfaces with a wire or an antenna among the names of a log.

    >>> physical_interfaces(["lo", "eth0", "eth0.5", "br0", "docker0", "wlp0s20f3"])
    ('eth0', 'wlp0s20f3')
    """
    return tuple(name for name in dict.fromkeys(names) if not _STACKED_INTERFACE.match(name))
