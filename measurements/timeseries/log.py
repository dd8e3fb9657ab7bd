"""What every reader makes of its log, and how that becomes a time series."""

from __future__ import annotations

import gzip
import io
import re
import sys
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements.errors import MeasurementError
from measurements.table.headers import nearest, shown
from measurements.timeseries.delimited import leave_out_absurd
from measurements.timeseries.series import (
    COLUMNS,
    CPU_COLUMNS,
    KEYS,
    NETWORK_COLUMNS,
    SECTOR_BYTES,
    Finding,
    Marks,
    TimeSeries,
    mark_values,
    of_device,
    split_device,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    from collections.abc import Iterable

    Values = dict[str, NDArray[np.float64]]

    import pyarrow as pa


# How long each interval of a log was, and where its clock was not to be trusted.


# An interval that much longer than the usual one has rows missing.
_GAP = 1.5


def find_intervals(
    times_s: Numbers,
    recorded_s: Numbers | None,
    usual_s: float | None,
    restarts: NDArray[np.bool_] | None,
    marks: Marks,
) -> Numbers:
    """Lengths of the intervals, in the order of the log (s); NaN where it is not known.

    Parameters
    ----------
    times_s : array
        Ends of the intervals.
    recorded_s : array or None
        What the log itself says.
    usual_s : float or None
        What the recording was started with; by default the median step.
    restarts : array of bool or None
        Rows before which nothing was recorded: their interval is the usual one.
    marks : Marks
        Gets what is odd.
    """
    steps = np.diff(times_s, prepend=np.nan)
    fresh = np.zeros(len(times_s), bool) if restarts is None else restarts.copy()
    fresh[0] = True
    usual = _usual(steps[~fresh], recorded_s) if usual_s is None else usual_s
    marks.add("restart", fresh & (np.arange(len(fresh)) > 0))
    marks.add("clock back", steps < 0)
    if recorded_s is not None and np.isfinite(recorded_s).any():
        known = np.where(recorded_s > 0, recorded_s, np.nan)
        marks.add("gap", ~fresh & (steps > _GAP * known))
        return known
    # Stamps in whole seconds say nothing about shorter intervals.
    if usual < 1 and bool((steps == 0).any()):
        return np.full(len(times_s), usual)
    marks.add("time repeats", ~fresh & (steps == 0))
    marks.add("gap", ~fresh & (steps > _GAP * usual))
    found = np.where(steps > 0, steps, np.nan)
    found[fresh] = usual
    return found


def _usual(steps: Numbers, recorded_s: Numbers | None) -> float:
    known = steps[steps > 0] if recorded_s is None else recorded_s[recorded_s > 0]
    return float(np.median(known)) if len(known) else np.nan


# Which disks and interfaces of a log are devices of their own, told by their names.
#
# A log does not say what lies on what. Stacked block devices (dm, md, loop, zram, partitions) move
# the same bytes as the disks below them, and bridges, bonds and tunnels those of the interfaces.


_STACKED_DISK = re.compile(r"(loop|z?ram|dm-|md|sr|fd|nbd|drbd|bcache|psv)\d")
_STACKED_INTERFACE = re.compile(
    r"lo$|.*\.|(ifb|dummy|bond|team|tun|tap|vxlan|vlan|wg|br|virbr|docker|gre|sit|ip6tnl)\d*$"
    r"|(veth|br-|cali|cni|flannel|lxc|vnet|vmnet|macvlan|tailscale|docker_)"
)
_PARTITION = re.compile(r"(?P<disk>.+?)(?:(?<=\d)p)?\d+")


def physical_disks(names: Iterable[str]) -> tuple[str, ...]:
    """Choose the whole disks among the names of a log, each transfer once.

    >>> physical_disks(["sda", "sda1", "dm-0", "nvme0n1", "nvme0n1p2", "loop3"])
    ('sda', 'nvme0n1')
    """
    known = dict.fromkeys(names)
    return tuple(n for n in known if not _STACKED_DISK.match(n) and not _is_partition(n, known))


def physical_interfaces(names: Iterable[str]) -> tuple[str, ...]:
    """Choose the interfaces with a wire or an antenna among the names of a log.

    >>> physical_interfaces(["lo", "eth0", "eth0.5", "br0", "docker0", "wlp0s20f3"])
    ('eth0', 'wlp0s20f3')
    """
    return tuple(name for name in dict.fromkeys(names) if not _STACKED_INTERFACE.match(name))


def _is_partition(name: str, known: Iterable[str]) -> bool:
    match = _PARTITION.fullmatch(name)
    return match is not None and match["disk"] in known


# The host's transfers from those of its disks and interfaces, each counted once.


_OF_DISKS = {
    "sectors_read": ("disk_read_bytes", 1 / SECTOR_BYTES),
    "sectors_written": ("disk_written_bytes", 1 / SECTOR_BYTES),
    "ios": ("disk_ios", 1.0),
    "ios_read": ("disk_ios_read", 1.0),
    "ios_written": ("disk_ios_written", 1.0),
}


def add_totals(values: Values, disks: Sequence[str] | None, source: str) -> list[Finding]:
    """Add the columns of the host that can be made of its devices'.

    A total that the log has itself stays where it has no devices.

    Raises
    ------
    MeasurementError
        When a disk that was named is not there.
    """
    _add_ios(values)
    known = _devices(values, "disk")
    if disks is not None and (missing := [disk for disk in disks if disk not in known]):
        raise MeasurementError(
            f"{source}: has no disk {shown(missing)}; its disks are {shown(known) or 'not named'}"
        )
    chosen = physical_disks(known) if disks is None else tuple(disks)
    for total, (detail, factor) in _OF_DISKS.items():
        _add_sum(values, total, detail, chosen, factor)
    interfaces = physical_interfaces(_devices(values, "interface"))
    for column in NETWORK_COLUMNS:
        _add_sum(values, column, column, interfaces, 1.0)
    if "ios" not in values and {"ios_read", "ios_written"} <= values.keys():
        values["ios"] = values["ios_read"] + values["ios_written"]
    if known and not chosen and "sectors_read" not in values:
        return [Finding("", 0, _none_physical(known))]
    return []


def _none_physical(known: Sequence[str]) -> str:
    return (
        f"no disk of the log is known to be a physical one ({shown(known)}), so that the host's "
        "transfers are not known: name the disks to count"
    )


def _devices(values: Values, sort: str) -> list[str]:
    found: dict[str, None] = {}
    for column in values:
        base, device = split_device(column)
        own = COLUMNS[base].per_device or ("interface" if base in NETWORK_COLUMNS else "")
        if device and own == sort:
            found[device] = None
    return list(found)


def _add_ios(values: Values) -> None:
    for device in _devices(values, "disk"):
        both = [of_device(name, device) for name in ("disk_ios_read", "disk_ios_written")]
        total = of_device("disk_ios", device)
        if total not in values and all(name in values for name in both):
            values[total] = values[both[0]] + values[both[1]]


def _add_sum(
    values: Values, total: str, detail: str, devices: Sequence[str], factor: float
) -> None:
    names = [of_device(detail, device) for device in devices]
    parts = [values[name] for name in names if name in values]
    if not parts:
        return
    summed = np.zeros(len(parts[0]))
    unknown = np.ones(len(parts[0]), bool)
    for part in parts:
        there = ~np.isnan(part)
        summed[there] += part[there] * factor
        unknown &= ~there
    summed[unknown] = np.nan
    values[total] = summed


# What a total is made of, where the log has it by device only.
_MADE_OF = {
    "sectors_read": "disk_read_bytes",
    "sectors_written": "disk_written_bytes",
    "ios": "disk_ios",
    "ios_read": "disk_ios_read",
    "ios_written": "disk_ios_written",
}


class Selection:
    """The columns asked for; all of them where none were named.

    Raises
    ------
    MeasurementError
        For a name that is no column.
    """

    def __init__(self, columns: Collection[str] | None = None) -> None:
        self._asked = None if columns is None else set(columns)
        for name in self._asked or ():
            if split_device(name)[0] not in COLUMNS:
                raise MeasurementError(
                    f"no column of a time series is called {name!r}{nearest(name, list(COLUMNS))}"
                )
        bases = {split_device(name)[0] for name in self._asked or ()}
        bases |= {_MADE_OF[name] for name in bases & _MADE_OF.keys()}
        if "disk_queue" in bases:
            bases.add("disk_busy_share")
        if bases & {"ios", "disk_ios"}:
            bases |= {"ios_read", "ios_written", "disk_ios_read", "disk_ios_written"}
        self._needed = bases

    def needs(self, base: str) -> bool:
        """Whether a column, or a total of it, was asked for."""
        return self._asked is None or base in self._needed or base in KEYS

    def keeps(self, column: str) -> bool:
        """Whether a column was asked for, by its own name or for all devices."""
        asked = self._asked
        return asked is None or column in asked or split_device(column)[0] in (*asked, *KEYS)


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
    host : str
    cpus, hz : float or None
        As the log says them.
    intervals_s : array or None
        Where the log gives them; NaN where it does not.
    usual_s : float or None
        The interval that the log says it was recorded with.
    restarts : array of bool or None
        Rows that are the first after the recording or the host started anew.
    marks : mapping of mark to array of bool
    findings : list of Finding
    """

    source: str
    format: str
    times_s: Numbers
    columns: dict[str, Numbers]
    host: str = ""
    cpus: float | None = None
    hz: float | None = None
    intervals_s: Numbers | None = None
    usual_s: float | None = None
    restarts: NDArray[np.bool_] | None = None
    per_interval: bool = False
    marks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def refuse_another_host(source: str, hosts: Iterable[str | None]) -> None:
    """Raise `MeasurementError` for a log that names two hosts, one behind the other."""
    named = list(dict.fromkeys(host for host in hosts if host))
    if len(named) > 1:
        raise MeasurementError(
            f"{source}: is of host {named[0]!r} and then of {named[1]!r}: split it, and read one "
            "host at a time"
        )


def tidy(log: Log, selection: Selection, disks: Sequence[str] | None = None) -> TimeSeries:
    """Make the time series of a log.

    Parameters
    ----------
    log : Log
        Its columns are changed in place.
    selection : Selection
    disks : sequence of str, optional
        The disks whose transfers are the host's; by default the physical ones, by their names.

    Raises
    ------
    MeasurementError
        When it has no row, or a disk that was named is not there.
    """
    if not len(log.times_s):
        raise MeasurementError(f"{log.source}: holds no interval ({log.format})")
    marks = Marks(len(log.times_s))
    for mark, rows in log.marks.items():
        marks.add(mark, rows)
    intervals = find_intervals(log.times_s, log.intervals_s, log.usual_s, log.restarts, marks)
    marks.add("not a number", leave_out_absurd(intervals))
    findings = [*log.findings, *add_totals(log.columns, disks, log.source)]
    for column, values in log.columns.items():
        if COLUMNS[split_device(column)[0]].kind == "amount" and not log.per_interval:
            # What overflows is left out, as what no counter can show.
            with np.errstate(over="ignore"):
                values *= intervals
        marks.add("not a number", leave_out_absurd(values), column)
    mark_values(log.columns, intervals, log.cpus, marks)
    frame = _frame(log, intervals, marks, selection)
    return TimeSeries(frame, log.format, log.source, (*findings, *marks.findings()))


def _frame(log: Log, intervals: Numbers, marks: Marks, selection: Selection) -> pd.DataFrame:
    rows = len(log.times_s)
    text = pd.Series(marks.text(), dtype="str")
    columns: dict[str, object] = {"time_s": log.times_s, "interval_s": intervals}
    if log.host:
        columns["host"] = _repeated(log.host, rows)
    if log.cpus is not None:
        columns["cpus"] = np.full(rows, float(log.cpus))
    if log.hz is not None and selection.needs("hz"):
        columns["hz"] = np.full(rows, float(log.hz))
    if any(name in log.columns for name in CPU_COLUMNS) and selection.needs("cpu_accounting"):
        columns["cpu_accounting"] = _repeated("tick", rows)
    for column in sorted(log.columns, key=_place):
        if selection.keeps(column):
            columns[column] = log.columns[column]
    columns["marks"] = text
    # Without a copy, the columns are not laid side by side anew.
    frame = pd.DataFrame(columns, copy=False)
    if bool((np.diff(log.times_s) < 0).any()):
        frame = frame.iloc[np.argsort(log.times_s, kind="stable")].reset_index(drop=True)
    return frame


def _repeated(text: str, rows: int) -> pd.Categorical[Any]:
    return pd.Categorical.from_codes([0] * rows, pd.Index([text]))


_ORDER = {name: place for place, name in enumerate(COLUMNS)}


def _place(column: str) -> tuple[bool, int, str]:
    base, device = split_device(column)
    return bool(device), _ORDER[base], device


# Stamps of logs to seconds since 1970 UTC.


_OFFSET = re.compile(r"(?P<sign>[-+])(?P<hours>\d{2}):?(?P<minutes>\d{2})")


def check_zone(zone: str | None) -> None:
    """Refuse a time zone that is neither an offset nor a name.

    Raises
    ------
    MeasurementError
    """
    if zone is not None:
        to_utc(np.zeros(1), zone)


def stamps(texts: pa.ChunkedArray | pa.Array, form: str) -> Numbers:
    """Clock times of text as seconds since 1970 of that clock; NaN for what is no time.

    Parameters
    ----------
    texts : pyarrow array of strings
    form : str
        As of strptime.
    """
    import pyarrow.compute as pc

    found = pc.strptime(texts, format=form, unit="s", error_is_null=True)
    return np.array(found.cast("int64").cast("float64").fill_null(np.nan), dtype=float)


def to_utc(local_s: Numbers, zone: str) -> Numbers:
    """Seconds since 1970 of a clock of some zone, in UTC.

    The hour that comes twice in autumn is read as the first one; the second then shows as a clock
    that went back.

    Parameters
    ----------
    local_s : array
    zone : str
        An offset such as ``+0200``, or a name such as ``Europe/Berlin``.

    Raises
    ------
    MeasurementError
        When there is no such zone.
    """
    if match := _OFFSET.fullmatch(zone):
        seconds = int(match["hours"]) * 3600 + int(match["minutes"]) * 60
        return local_s - (seconds if match["sign"] == "+" else -seconds)
    return _by_name(local_s, zone)


def _by_name(local_s: Numbers, zone: str) -> Numbers:
    import pandas as pd

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
        Whether a gzip file broke off; so far as it was read.
    """

    def __init__(self, name: str, stream: io.BufferedIOBase) -> None:
        self.name = name
        self.truncated = False
        self._stream = stream
        self.head = self._read(_HEAD_BYTES)
        self._given = False

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[bytes]:
        """All bytes, once, by pieces of about ``size``."""
        if self._given:
            raise MeasurementError(f"{self.name}: can be read only once")
        self._given = True
        piece = self.head + self._read(max(0, size - len(self.head)))
        while piece:
            yield piece
            piece = self._read(size)

    def lines(self, size: int = PIECE_BYTES) -> Iterator[bytes]:
        """All bytes, by pieces that end at a line's end; the last may not."""
        rest = b""
        for piece in self.pieces(size):
            end = piece.rfind(b"\n") + 1
            if not end:
                rest += piece
                self._refuse_long(rest)
                continue
            yield rest + piece[:end]
            rest = piece[end:]
        if rest:
            yield rest

    def _refuse_long(self, line: bytes) -> None:
        if len(line) > 8 * PIECE_BYTES:
            raise MeasurementError(f"{self.name}: has a line of over {len(line) >> 20} MiB: no log")

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


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller wants, and knows better than the log."""

    selection: Selection
    cpus: float | None = None
    host: str | None = None
    timezone: str | None = None
