"""Read a time series of any format: `read_time_series`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from measurements.errors import MeasurementError
from measurements.table.headers import nearest
from measurements.timeseries import collectl, own, pcp, perf, sadf, sadf_json
from measurements.timeseries.log import Log, Options, Source, open_source
from measurements.timeseries.series import TimeSeries, reading_caveats
from measurements.timeseries.tidy import join, tidy

# In the order in which they are tried.
FORMATS = {reader.FORMAT: reader for reader in (collectl, sadf_json, sadf, pcp, perf)}

# What is often given instead, by how it begins, and what to do.
_OTHER_KINDS = (
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
    selected = None if columns is None else tuple(columns)
    options = Options(selected, cpus, host, timezone)
    known = [*FORMATS, own.FORMAT]
    if format is not None and format not in known:
        raise MeasurementError(
            f"no format is called {format!r}{nearest(format, known)}: one of {', '.join(known)}"
        )
    paths = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise MeasurementError("no log was named")
    read = [_read(path, format, options) for path in paths]
    own_series = next((item for item in read if isinstance(item, TimeSeries)), None)
    if own_series is not None:
        if len(paths) > 1:
            raise MeasurementError(f"{paths[0]}: a series of ppw's own is read alone")
        if disks is not None:
            raise MeasurementError(
                f"{paths[0]}: its totals are of the disks that it was recorded with: name them "
                "when sampling, ppw sample --disk"
            )
        return own_series
    logs = [item for item in read if isinstance(item, Log)]
    # A number of CPUs that any of the logs tells is better than the caller's.
    joined = join(_with_logged_cpus(paths, logs, options))
    joined.cpus = joined.cpus or cpus
    return tidy(joined, options, disks)


def _with_logged_cpus(
    paths: Sequence[str | Path], logs: Sequence[Log], options: Options
) -> Sequence[Log]:
    """Read again what took the caller's CPUs, where another log of the host says how many."""
    cpus = next((log.cpus for log in logs if log.cpus), None)
    if cpus is None or options.cpus in (None, cpus):
        return logs
    corrected = replace(options, cpus=cpus)
    pairs = zip(paths, logs, strict=True)
    again = (log if log.cpus else _read(path, log.format, corrected) for path, log in pairs)
    return [log for log in again if isinstance(log, Log)]


def _read(path: str | Path, format_: str | None, options: Options) -> Log | TimeSeries:
    with open_source(path) as source:
        chosen = format_ or _guess(source)
        if chosen == own.FORMAT:
            return own.read(source, options)
        log: Log = FORMATS[chosen].read(source, options)
        log.caveats += reading_caveats(log.skipped, source.truncated)
        return log


def is_log(path: str | Path) -> bool:
    """Check whether a file begins as a log, or as samples of ppw in CSV; False if unreadable.

    Samples in Parquet or JSON lines are not told from a runs table here.
    """
    try:
        with open_source(path) as source:
            return own.recognises_samples(source.head) or _foreign_format(source.head) is not None
    except MeasurementError:
        return False


def _foreign_format(head: bytes) -> str | None:
    return next((name for name, reader in FORMATS.items() if reader.recognises(head)), None)


def _guess(source: Source) -> str:
    head = source.head
    if found := own.FORMAT if own.recognises(head) else _foreign_format(head):
        return found
    what = next((text for start, text in _OTHER_KINDS if head.startswith(start)), None)
    if what is None and b"\nRECORD" not in head and head.startswith(b"##") and b">>> " in head:
        what = "a raw file of collectl: play it back with collectl -p FILE -P"
    raise MeasurementError(
        f"{source.name}: is {what}"
        if what
        else f"{source.name}: is no log that is known: make one by "
        "collectl -P, sadf -j, sadf -d, pmrep -o csv, perf stat -j -I or ppw sample"
    )
