"""Logs on their way to a time series: bytes, the caller's options, time stamps, gathered rows."""

from __future__ import annotations

import gzip
import io
import re
import sys
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from measurements.errors import MeasurementError
from measurements.timeseries import series

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]

PIECE_BYTES = 8 << 20
_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 1 << 16


class Source:
    """One log as a stream of bytes.

    Attributes
    ----------
    name : str
        For messages.
    head : bytes
        The first 64 KiB, which tell the format.
    truncated : bool
        Whether the log breaks off, as far as it was read: a gzip file, or a line of text.
    """

    def __init__(self, name: str, stream: io.BufferedIOBase) -> None:
        self.name = name
        self.truncated = False
        self._stream = stream
        self.head = self._read(_HEAD_BYTES)
        self._given = False

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield all bytes, once, in pieces of about ``size``."""
        if self._given:
            raise MeasurementError(f"{self.name}: can be read only once")
        self._given = True
        piece = self.head + self._read(max(0, size - len(self.head)))
        while piece:
            yield piece
            piece = self._read(size)

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

    def _read(self, size: int) -> bytes:
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
        return b"".join(parts)


@contextmanager
def open_source(path: str | Path) -> Iterator[Source]:
    """Open a log; ``-`` is standard input, and gzip is known by its first bytes.

    Raises
    ------
    MeasurementError
        When it cannot be opened, or is empty.
    """
    if str(path) == "-":
        yield _source("standard input", sys.stdin.buffer)
        return
    try:
        with Path(path).open("rb") as file:
            yield _source(str(path), file)
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be read: {error.strerror or error}") from error


def _source(name: str, stream: IO[bytes]) -> Source:
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
    """What the caller wants of a log, and knows better than the log.

    Attributes
    ----------
    columns : collection of str or None
        Columns to keep; None for all.
    cpus : float or None
        Logical CPUs, for a log that does not say.
    host : str or None
        Name of the host, instead of the log's.
    timezone : str or None
        Zone of the log's clock, where its times are local.

    Raises
    ------
    MeasurementError
        For an unknown column or time zone, or a number of CPUs that no host has.
    """

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
        return self.columns is None or base in self._needed or base in series.KEYS

    def keeps(self, column: str) -> bool:
        """Check whether a column was selected, by its own name or for all devices."""
        if self.columns is None or column in self.columns:
            return True
        return series.split_device(column)[0] in (*self.columns, *series.KEYS)

    @cached_property
    def _needed(self) -> set[str]:
        names = {series.split_device(name)[0] for name in self.columns or ()}
        names |= {series.DISK_TOTALS[name][0] for name in names & series.DISK_TOTALS.keys()}
        if "disk_queue" in names:
            names.add("disk_busy_share")
        if names & {"ios", "disk_ios"}:
            names |= {"ios_read", "ios_written", "disk_ios_read", "disk_ios_written"}
        return names


class Field(NamedTuple):
    """What a field of a log becomes: a column, and the factor to its unit."""

    column: str
    factor: float = 1.0


@dataclass(slots=True)
class Log:
    """A log as it was read: rows in the order of the file, amounts still per second.

    Attributes
    ----------
    source, format : str
    times_s : array
        Ends of the intervals, seconds since 1970 UTC.
    columns : mapping of name to array
        Amounts per second (CPU time over all CPUs), or per interval where ``per_interval``;
        levels and shares as they are.
    intervals_s : array or None
        Lengths of the intervals where the log gives them; NaN where it does not.
    odd : array of bool or None
        Rows with a field that is no number.
    skipped : int
        Number of lines that are no rows.
    host : str
    cpus, hz : float or None
        As the log says them.
    usual_s : float or None
        Interval with which the log says it was recorded.
    restarts : list of int
        Rows that are the first after the recording or the host started anew.
    caveats : list of str
    """

    source: str
    format: str
    times_s: Numbers
    columns: dict[str, Numbers]
    intervals_s: Numbers | None = None
    odd: Flags | None = None
    skipped: int = 0
    host: str = ""
    cpus: float | None = None
    hz: float | None = None
    usual_s: float | None = None
    restarts: list[int] = field(default_factory=list)
    per_interval: bool = False
    caveats: list[str] = field(default_factory=list)


class Rows:
    """Rows of a log, gathered block by block; a column that a block lacks is NaN there."""

    def __init__(self) -> None:
        self.count = 0
        self.skipped = 0
        self._blocks: dict[str, list[tuple[int, Numbers]]] = {}

    def add(
        self,
        times_s: Numbers,
        columns: Mapping[str, Numbers],
        odd: Flags,
        intervals_s: Numbers | None = None,
    ) -> None:
        """Add a block of rows, without those whose time is not known."""
        known = np.isfinite(times_s)
        block = {"time_s": times_s, "odd": odd.astype(float), **columns}
        if intervals_s is not None:
            block["interval_s"] = intervals_s
        for name, numbers in block.items():
            self._blocks.setdefault(name, []).append((self.count, numbers[known]))
        self.count += int(known.sum())
        self.skipped += int((~known).sum())

    def log(self, source: str, format_: str) -> Log:
        """Make a log of all rows; afterwards none are left here."""
        columns = {}
        # One column after the other, so that blocks and columns are not both there at once.
        while self._blocks:
            name, blocks = self._blocks.popitem()
            column = np.full(self.count, np.nan)
            for start, numbers in blocks:
                column[start : start + len(numbers)] = numbers
            columns[name] = column
        columns = dict(reversed(columns.items()))
        return Log(
            source,
            format_,
            columns.pop("time_s", np.zeros(0)),
            odd=columns.pop("odd", np.zeros(0)) == 1,
            intervals_s=columns.pop("interval_s", None),
            columns=columns,
            skipped=self.skipped,
        )


# No counter of a host grows by more in a second; a broken one may show 2**64.
_LARGEST = 1e18


def leave_out_absurd(numbers: Numbers) -> Flags:
    """Make NaN of what no counter can show, in place, and say where it was."""
    absurd: Flags = np.abs(numbers) > _LARGEST
    numbers[absurd] = np.nan
    return absurd


def one_host(source: str, names: Iterable[str | None], options: Options) -> str:
    """Name of a log's host; the caller's name wins, and "" stands for none.

    Raises
    ------
    MeasurementError
        When the log names two hosts, one behind the other.
    """
    if options.host:
        return options.host
    named = list(dict.fromkeys(name for name in names if name))
    if len(named) > 1:
        raise MeasurementError(
            f"{source}: is of host {named[0]!r} and then of {named[1]!r}: split it, and read one "
            "host at a time"
        )
    return named[0] if named else ""


_OFFSET = re.compile(r"(?P<sign>[-+])(?P<hours>\d{2}):?(?P<minutes>\d{2})")


def stamps(texts: pa.ChunkedArray | pa.Array, form: str) -> Numbers:
    """Read clock times in a format of strptime (s since 1970 of that clock); NaN for no time."""
    found = pc.strptime(texts, format=form, unit="s", error_is_null=True)
    return np.array(found.cast("int64").cast("float64").fill_null(np.nan), dtype=float)


def to_utc(local_s: Numbers, zone: str | None) -> Numbers:
    """Turn seconds since 1970 of a zone's clock into those of UTC.

    The hour that comes twice in autumn is read as the first one; the second then shows as a clock
    that went back.

    Parameters
    ----------
    local_s : array
    zone : str or None
        An offset such as ``+0200``, or a name such as ``Europe/Berlin``; None for UTC.

    Raises
    ------
    MeasurementError
        When there is no such zone.
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
            f"{zone!r} is no time zone: write one such as +0200 or Europe/Berlin"
        ) from error
    seconds = np.asarray(utc.tz_convert(None).to_numpy().astype("datetime64[s]").astype("int64"))
    shifted: Numbers = seconds + (local_s - whole)
    return shifted


# A log does not say what lies on what. Stacked block devices (dm, md, loop, zram, partitions) move
# the same bytes as the disks below them, and bridges, bonds and tunnels those of the interfaces.
_STACKED_DISK = re.compile(r"(loop|z?ram|dm-|md|sr|fd|nbd|drbd|bcache|psv)\d")
_STACKED_INTERFACE = re.compile(
    r"lo$|.*\.|(ifb|dummy|bond|team|tun|tap|vxlan|vlan|wg|br|virbr|docker|gre|sit|ip6tnl)\d*$"
    r"|(veth|br-|cali|cni|flannel|lxc|vnet|vmnet|macvlan|tailscale|docker_)"
)
_PARTITION = re.compile(r"(?P<disk>.+?)(?:(?<=\d)p)?\d+")


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
