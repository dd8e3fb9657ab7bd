"""Reading a time series: which format it is, and what of it is wanted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.errors import MeasurementError
from measurements.table.headers import nearest
from measurements.timeseries import collectl, own, pcp, perf, sadf, sadf_json
from measurements.timeseries.log import (
    Log,
    Options,
    Selection,
    Source,
    check_zone,
    open_source,
    tidy,
)
from measurements.timeseries.series import TimeSeries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray


# Several logs of one recording, side by side.


def join(logs: Sequence[Log]) -> Log:
    """Join logs by their times; of a column that several have, the first one's is kept.

    Raises
    ------
    MeasurementError
        When they are of several hosts, or their times cannot be joined.
    """
    first = logs[0]
    for log in logs[1:]:
        _refuse_others(first, log)
        same = np.array_equal(first.times_s, log.times_s)
        times = first.times_s if same else np.union1d(first.times_s, log.times_s)
        if not same:
            _spread(first, times)
            _spread(log, times)
        first.columns = {**log.columns, **first.columns}
        for mark, rows in log.marks.items():
            first.marks[mark] = first.marks.get(mark, False) | rows
        first.cpus = first.cpus or log.cpus
        first.hz = first.hz or log.hz
        known = {finding.text for finding in first.findings}
        first.findings += [finding for finding in log.findings if finding.text not in known]
        first.source = f"{first.source} {log.source}"
    return first


def _refuse_others(first: Log, log: Log) -> None:
    if first.host and log.host and first.host != log.host:
        raise MeasurementError(
            f"{log.source}: is of host {log.host!r} and {first.source} of {first.host!r}: "
            "read one host at a time"
        )
    if first.per_interval != log.per_interval:
        raise MeasurementError(
            f"{log.source}: rates a second and amounts an interval do not go together with "
            f"{first.source}"
        )


def _spread(log: Log, times_s: NDArray[np.float64]) -> None:
    """Lay the rows of a log out over the times of all."""
    rows = np.searchsorted(times_s, log.times_s)
    if len(np.unique(log.times_s)) < len(log.times_s) or bool((np.diff(log.times_s) < 0).any()):
        raise MeasurementError(
            f"{log.source}: its clock went back or stood still, so that it cannot be joined with "
            "others by time: read it alone"
        )

    def laid_out(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        spread = np.full(len(times_s), np.nan)
        spread[rows] = numbers
        return spread

    log.columns = {name: laid_out(numbers) for name, numbers in log.columns.items()}
    if log.intervals_s is not None:
        log.intervals_s = laid_out(log.intervals_s)
    for name, flags in log.marks.items():
        log.marks[name] = laid_out(flags.astype(float)) == 1
    if log.restarts is not None:
        log.restarts = laid_out(log.restarts.astype(float)) == 1
    log.times_s = times_s


# Bytes of a log: from a file or standard input, gzip or plain, by pieces.


class _Format(NamedTuple):
    recognises: Callable[[bytes], bool]
    read: Callable[[Source, Options], Log]


# In the order in which they are tried.
FORMATS = {
    collectl.FORMAT: _Format(collectl.recognises, collectl.read),
    sadf_json.FORMAT: _Format(sadf_json.recognises, sadf_json.read),
    sadf.FORMAT: _Format(sadf.recognises, sadf.read),
    pcp.FORMAT: _Format(pcp.recognises, pcp.read),
    perf.FORMAT: _Format(perf.recognises, perf.read),
}

# What is often given instead, by how it begins, and what to do.
_ELSE = (
    (b"\x96\xd5", "a binary file of sar: convert it with sadf -j FILE -- -A"),
    (b"\xd5\x96", "a binary file of sar: convert it with sadf -j FILE -- -A"),
    (b"Linux ", "text of sar: take sadf -j of the binary file instead"),
    (b"<?xml", "XML: take sadf -j instead of sadf -x"),
    (b"PK", "a ZIP archive: unpack it"),
)


def read_time_series(
    source: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,
    columns: Collection[str] | None = None,
    cpus: float | None = None,
    host: str | None = None,
    timezone: str | None = None,
    disks: Sequence[str] | None = None,
) -> TimeSeries:
    """Read a log of a host's counters into one tidy time series.

    Parameters
    ----------
    source : path, "-" or several of them
        Plain or gzip; "-" is standard input. Several are logs of one recording, such as the files
        that collectl writes beside each other, joined by their times.
    format : {"collectl", "sadf-json", "sadf-csv", "pcp", "perf", "ppw"}, optional
        By default by content.
    columns : collection of str, optional
        Columns to keep, of `measurements.timeseries.series`; a name without a device stands for
        all of them. What is not needed for them is not parsed.
    cpus : float, optional
        Logical CPUs, where the log does not say: ``sadf -d``, collectl on the terminal. What a
        log says of itself wins.
    host : str, optional
        Name of the host, instead of the log's.
    timezone : str, optional
        Of the log's clock, ``+0200`` or ``Europe/Berlin``, where its times are local.
    disks : sequence of str, optional
        Disks whose transfers are the host's. By default the physical ones: no partition, loop,
        RAM disk, dm or md.

    Returns
    -------
    TimeSeries

    Raises
    ------
    MeasurementError
        When it is no such log, or one that cannot be read.
    """
    selection = Selection(columns)
    check_zone(timezone)
    if cpus is not None and not 0 < cpus < float("inf"):
        raise MeasurementError(f"cpus is {cpus!r}: give the number of logical CPUs")
    if format is not None and format not in (*FORMATS, own.FORMAT):
        known = [*FORMATS, own.FORMAT]
        raise MeasurementError(
            f"no format is called {format!r}{nearest(format, known)}: one of {', '.join(known)}"
        )
    options = Options(selection, cpus, host, timezone)
    paths = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise MeasurementError("no log was named")
    read = [_read(path, format, options) for path in paths]
    logs = [item for item in read if isinstance(item, Log)]
    if len(logs) < len(read):
        if len(read) > 1:
            raise MeasurementError(f"{paths[0]}: a series of ppw's own is read alone")
        if disks is not None:
            raise MeasurementError(
                f"{paths[0]}: its totals are of the disks that it was recorded with: name them "
                "when sampling, ppw sample --disk"
            )
        return next(item for item in read if isinstance(item, TimeSeries))
    joined = join(_of_one_count(paths, logs, format, options))
    joined.cpus = joined.cpus or cpus
    return tidy(joined, selection, disks)


def _of_one_count(
    paths: Sequence[str | Path], logs: list[Log], format_: str | None, options: Options
) -> list[Log]:
    """Read again what took the caller's CPUs, where another log of the host says how many."""
    said = next((log.cpus for log in logs if log.cpus), None)
    if said is None or options.cpus in (None, said):
        return logs
    told = replace(options, cpus=said)
    again = [
        log if log.cpus else _read(path, log.format, told)
        for path, log in zip(paths, logs, strict=True)
    ]
    return [log for log in again if isinstance(log, Log)]


def _read(path: str | Path, format_: str | None, options: Options) -> Log | TimeSeries:
    with open_source(path) as source:
        chosen = format_ or _guess(source)
        if chosen == own.FORMAT:
            return own.read(source, options.selection)
        return FORMATS[chosen].read(source, options)


def is_log(path: str | Path) -> bool:
    """Whether a file begins as a log, or as samples of ppw in CSV; False where it cannot be read.

    Samples in Parquet or JSON lines are not told from a runs table here.
    """
    try:
        with open_source(path) as source:
            head = source.head
            return own.begins_as_samples(head) or _foreign(head) is not None
    except MeasurementError:
        return False


def _foreign(head: bytes) -> str | None:
    return next((name for name, format_ in FORMATS.items() if format_.recognises(head)), None)


def _guess(source: Source) -> str:
    head = source.head
    if own.recognises(head):
        return own.FORMAT
    if found := _foreign(head):
        return found
    what = next((text for start, text in _ELSE if head.startswith(start)), None)
    if what is None and b"\nRECORD" not in head and head.startswith(b"##") and b">>> " in head:
        what = "a raw file of collectl: play it back with collectl -p FILE -P"
    raise MeasurementError(
        f"{source.name}: is {what}"
        if what
        else f"{source.name}: is no log that is known: make one by "
        "collectl -P, sadf -j, sadf -d, pmrep -o csv, perf stat -j -I or ppw sample"
    )
