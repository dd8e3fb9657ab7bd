"""Read a time series of any format: `read_time_series`. Logs are joined, and their rows marked."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from measurements.errors import DAMAGE, MeasurementError
from measurements.table.headers import list_names, nearest
from measurements.timeseries import collectl, log as logs, pcp_perf, sadf, series, text_logs

# In the order in which they are tried.
READERS: tuple[type[logs.LogReader], ...] = (
    collectl.Collectl,
    sadf.SadfJson,
    text_logs.SadfCsv,
    pcp_perf.Pcp,
    pcp_perf.Perf,
    text_logs.SarText,
    text_logs.Iostat,
    text_logs.Vmstat,
)
FORMATS = {reader.format: reader for reader in READERS}

# What is often given instead, by how it begins, and what to do.
_OTHER_KINDS = (
    (logs.SADC, "a binary file of sar: convert it with sadf -j FILE -- -A"),
    (b"Linux ", "text of sar: give the output of sadf -j of the binary file instead"),
    (b"<?xml", "XML: use sadf -j instead of sadf -x"),
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
) -> series.TimeSeries:
    """Read a log of a host's counters into one tidy time series.

    Parameters
    ----------
    source : path, "-" or several of them
        Plain or gzip; "-" is standard input. Several are logs of one recording, such as the files
        that collectl writes beside each other, joined by their times.
    format : {"collectl", "sadf-json", "sadf-csv", "pcp", "perf", "sar", "iostat", "vmstat", "ppw"}
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
    options = logs.Options(None if columns is None else tuple(columns), cpus, host, timezone)
    known = [*FORMATS, series.OWN_FORMAT]
    if format is not None and format not in known:
        raise MeasurementError(
            f"no format is called {format!r}{nearest(format, known)}: one of {', '.join(known)}"
        )
    paths = [source] if isinstance(source, (str, Path)) else list(source)
    if not paths:
        raise MeasurementError("no log was named")
    read = [_read_log(path, format, options) for path in paths]
    own_series = next((item for item in read if isinstance(item, series.TimeSeries)), None)
    if own_series is not None:
        if len(paths) > 1:
            raise MeasurementError(f"{paths[0]}: a series of ppw's own is read alone")
        if disks is not None:
            raise MeasurementError(
                f"{paths[0]}: its totals are fixed to the disks of the recording: "
                "choose disks when you record, with ppw sample --disk"
            )
        return own_series
    found_logs = [item for item in read if isinstance(item, logs.Log)]
    # A number of CPUs that any of the logs tells is better than the caller's.
    joined = join(_with_logged_cpus(paths, found_logs, options))
    joined.cpus = joined.cpus or cpus
    return tidy(joined, options, disks)


def _with_logged_cpus(
    paths: Sequence[str | Path], found_logs: Sequence[logs.Log], options: logs.Options
) -> Sequence[logs.Log]:
    """Read logs again that took the caller's number of CPUs, where another log tells it."""
    cpus = next((log.cpus for log in found_logs if log.cpus), None)
    if cpus is None or options.cpus in (None, cpus):
        return found_logs
    corrected = replace(options, cpus=cpus)
    pairs = zip(paths, found_logs, strict=True)
    again = (log if log.cpus else _read_log(path, log.format, corrected) for path, log in pairs)
    return [log for log in again if isinstance(log, logs.Log)]


def _read_log(
    path: str | Path, format_: str | None, options: logs.Options
) -> logs.Log | series.TimeSeries:
    with logs.open_source(path) as source:
        chosen = format_ or _recognise_format(source)
        if chosen == series.OWN_FORMAT:
            return _read_own(source, options)
        log = FORMATS[chosen](source, options).read()
        log.caveats += series.reading_caveats(log.skipped, source.truncated)
        return log


def _read_own(source: logs.Source, options: logs.Options) -> series.TimeSeries:
    """Read a series that ppw wrote."""
    data = b"".join(source.pieces())
    try:
        frame, cut = series.parse_frame(data)
        names = [name for name in frame.columns if series.is_column(str(name))]
        unknown = len(frame.columns) - len(names)
        frame = series.convert_types(frame[[name for name in names if options.keeps(str(name))]])
    except (*DAMAGE, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise MeasurementError(f"{source.name}: is no series of ppw: {text}") from error
    frame = frame.sort_values("time_s", kind="stable", ignore_index=True)
    caveats = series.reading_caveats(0, cut or source.truncated)
    if unknown:
        caveats.append(f"{unknown} columns are not ppw's and are left out")
    about = (series.Finding("", 0, text) for text in caveats)
    findings = (*series.mark_findings(frame), *about)
    return series.TimeSeries(frame, series.OWN_FORMAT, source.name, findings)


def is_log(path: str | Path) -> bool:
    """Check whether a file begins as a log or ppw's samples in CSV; False if unreadable."""
    try:
        with logs.open_source(path) as source:
            head = source.head
            return head.startswith(series.CSV_START) or _format_by_head(head) is not None
    except MeasurementError:
        return False


def recognise_log(path: str | Path) -> str | None:
    """Name the format of a log of another program that a file begins as; None for other files."""
    try:
        with logs.open_source(path) as source:
            return _format_by_head(source.head)
    except MeasurementError:
        return None


def header_frequency(path: str | Path) -> float | None:
    """Read the core frequency (Hz) in the header of a log of collectl; None where it has none."""
    with logs.open_source(path) as source:
        speed = re.search(rb"\bSpeed\(MHz\):\s*(\d{1,6}(?:\.\d+)?)", source.head)
    return float(speed[1]) * 1e6 if speed else None


def _format_by_head(head: bytes) -> str | None:
    return next((name for name, reader in FORMATS.items() if reader.recognises(head)), None)


def _recognise_format(source: logs.Source) -> str:
    head = source.head
    if found := series.OWN_FORMAT if series.is_own(head) else _format_by_head(head):
        return found
    what = next((text for start, text in _OTHER_KINDS if head.startswith(start)), None)
    if what is None and b"\nRECORD" not in head and head.startswith(b"##") and b">>> " in head:
        what = "a raw file of collectl: play it back with collectl -p FILE -P"
    raise MeasurementError(
        f"{source.name}: is {what}"
        if what
        else f"{source.name}: is not a log that ppw reads: record one with collectl "
        "-P, sadf -j, sadf -d, pmrep -o csv, perf stat -j -I or ppw sample"
    )


# An interval that much longer than the usual one has rows missing.
_GAP = 1.5
# Percentages and time stamps are rounded; ticks come in whole ones.
_ROUNDING = 1.05
_TICKS_S = 0.02


def join(parts: Sequence[logs.Log]) -> logs.Log:
    """Join logs by their times, in place; of a column that several have, the first one is kept."""
    first = parts[0]
    for log in parts[1:]:
        _refuse_other_host_or_kind(first, log)
        if not np.array_equal(first.times_s, log.times_s):
            times_s = np.union1d(first.times_s, log.times_s)
            _align_rows(first, times_s)
            _align_rows(log, times_s)
        first.columns = {**log.columns, **first.columns}
        first.odd |= log.odd
        first.cpus = first.cpus or log.cpus
        first.hz = first.hz or log.hz
        first.caveats += [text for text in log.caveats if text not in first.caveats]
        first.source = f"{first.source} {log.source}"
    return first


def _refuse_other_host_or_kind(first: logs.Log, log: logs.Log) -> None:
    if first.host and log.host and first.host != log.host:
        raise MeasurementError(
            f"{log.source}: is of host {log.host!r} and {first.source} of {first.host!r}: "
            "read one host at a time"
        )
    if first.per_interval != log.per_interval:
        raise MeasurementError(
            f"{log.source}: rates per second cannot be joined with amounts per "
            f"interval of {first.source}"
        )


def _align_rows(log: logs.Log, times_s: logs.Numbers) -> None:
    """Lay the rows of a log out over the times of all."""
    if len(np.unique(log.times_s)) < len(log.times_s) or bool((np.diff(log.times_s) < 0).any()):
        raise MeasurementError(
            f"{log.source}: its clock went back or stood still, so ppw cannot "
            "join it with other logs by time: read it alone"
        )
    rows = np.searchsorted(times_s, log.times_s)

    def lay_out(numbers: logs.Numbers) -> logs.Numbers:
        spread = np.full(len(times_s), np.nan)
        spread[rows] = numbers
        return spread

    log.columns = {name: lay_out(numbers) for name, numbers in log.columns.items()}
    if log.intervals_s is not None:
        log.intervals_s = lay_out(log.intervals_s)
    log.odd = lay_out(log.odd.astype(float)) == 1
    log.restarts = [int(rows[row]) for row in log.restarts if row < len(rows)]
    log.times_s = times_s


def tidy(
    log: logs.Log, options: logs.Options, disks: Sequence[str] | None = None
) -> series.TimeSeries:
    """Make the series of a log, in place; ``disks`` are the host's, by default physical ones."""
    if not len(log.times_s):
        raise MeasurementError(f"{log.source}: holds no interval ({log.format})")
    marks = RowMarking(len(log.times_s))
    marks.add("not a number", log.odd)
    intervals_s = _find_intervals(log, marks)
    marks.add("not a number", logs.drop_absurd(intervals_s))
    _add_totals(log, disks)
    for column, values in log.columns.items():
        is_amount = series.COLUMNS[series.split_device(column)[0]].kind == "amount"
        if is_amount and not log.per_interval:
            # What overflows is left out, as what no counter can show.
            with np.errstate(over="ignore"):
                values *= intervals_s
        marks.add("not a number", logs.drop_absurd(values), column)
    _mark_values(log, intervals_s, marks)
    frame = _build_frame(log, intervals_s, marks, options)
    findings = [*(series.Finding("", 0, text) for text in log.caveats), *marks.findings()]
    return series.TimeSeries(frame, log.format, log.source, tuple(findings))


class RowMarking:
    """Marks of the rows of a series, and the columns that each mark is about."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._flags: dict[str, logs.Flags] = {}
        self._columns: dict[str, dict[str, None]] = {}

    def add(self, mark: str, rows: logs.Flags, column: str = "") -> None:
        """Mark rows, for a value of ``column``."""
        if rows.any():
            self._flags[mark] = self._flags.get(mark, False) | rows
            self._columns.setdefault(mark, {}).update({column: None} if column else {})

    def texts(self) -> list[str]:
        """Marks of each row in the order of `MARKS`; "" for none."""
        found: list[list[str]] = [[] for _ in range(self._rows)]
        for mark in series.MARKS:
            for row in np.flatnonzero(self._flags.get(mark, False)):
                found[row].append(mark)
        return ["; ".join(marks) for marks in found]

    def findings(self) -> list[series.Finding]:
        """Make a finding of each mark, with the columns that it is about."""
        found = []
        for mark, rows in self._flags.items():
            columns = list(self._columns[mark])
            more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
            about = f" [{', '.join(columns[:3])}{more}]" if columns else ""
            text = f"{mark}: {series.MARKS[mark]}{about}"
            found.append(series.Finding(mark, int(rows.sum()), text))
        return found


def _find_intervals(log: logs.Log, marks: RowMarking) -> logs.Numbers:
    """Lengths of the intervals in the order of the log (s); NaN where a length is not known."""
    steps = np.diff(log.times_s, prepend=np.nan)
    rows = np.arange(len(steps))
    # Before these rows nothing was recorded: their interval is the usual one.
    fresh = np.isin(rows, [0, *log.restarts])
    recorded, usual = log.intervals_s, log.usual_s
    if usual is None:
        known = steps[~fresh] if recorded is None else recorded
        known = known[known > 0]
        usual = float(np.median(known)) if len(known) else np.nan
    marks.add("restart", fresh & (rows > 0))
    marks.add("clock back", steps < 0)
    if recorded is not None and np.isfinite(recorded).any():
        recorded = np.where(recorded > 0, recorded, np.nan)
        marks.add("gap", ~fresh & (steps > _GAP * recorded))
        return recorded
    # Stamps in whole seconds say nothing about shorter intervals.
    if usual < 1 and bool((steps == 0).any()):
        return np.full(len(steps), usual)
    marks.add("time repeats", ~fresh & (steps == 0))
    marks.add("gap", ~fresh & (steps > _GAP * usual))
    found = np.where(steps > 0, steps, np.nan)
    found[fresh] = usual
    return found


def _add_totals(log: logs.Log, disks: Sequence[str] | None) -> None:
    """Add sums over devices; a total that the log has itself stays where it has no devices."""
    values = log.columns
    known = _device_names(values, "disk")
    for disk in known:
        names = ("disk_ios", "disk_ios_read", "disk_ios_written")
        _add_reads_and_writes(values, *(series.of_device(name, disk) for name in names))
    if disks is not None and (missing := [disk for disk in disks if disk not in known]):
        raise MeasurementError(
            f"{log.source}: has no disk {list_names(missing)}; its disks are "
            f"{list_names(known) or 'not named'}"
        )
    chosen = logs.physical_disks(known) if disks is None else tuple(disks)
    for total, (column, factor) in series.DISK_TOTALS.items():
        _add_sum(values, total, column, chosen, factor)
    interfaces = logs.physical_interfaces(_device_names(values, "interface"))
    for column in series.NETWORK_COLUMNS:
        _add_sum(values, column, column, interfaces, 1.0)
    _add_reads_and_writes(values, "ios", "ios_read", "ios_written")
    if known and not chosen and "sectors_read" not in values:
        log.caveats.append(
            f"no disk of the log is known to be a physical one ({list_names(known)}), so the "
            "host's transfers are not known: name the disks to count with --disk"
        )


def _device_names(values: logs.Columns, kind: str) -> list[str]:
    found: dict[str, None] = {}
    for column in values:
        base, device = series.split_device(column)
        if device and series.COLUMNS[base].per_device == kind:
            found[device] = None
    return list(found)


def _add_reads_and_writes(values: logs.Columns, total: str, reads: str, writes: str) -> None:
    if total not in values and {reads, writes} <= values.keys():
        values[total] = values[reads] + values[writes]


def _add_sum(
    values: logs.Columns, total: str, column: str, devices: Sequence[str], factor: float
) -> None:
    """Add the sum over devices; NaN where no device has a value."""
    names = [series.of_device(column, device) for device in devices]
    parts = np.array([values[name] for name in names if name in values])
    if len(parts):
        unknown = np.isnan(parts).all(axis=0)
        values[total] = np.where(unknown, np.nan, np.nansum(parts, axis=0) * factor)


def _mark_values(log: logs.Log, intervals_s: logs.Numbers, marks: RowMarking) -> None:
    """Leave out values below 0; mark those above capacity and devices that come and go."""
    values = log.columns
    # Counters that were set back give negative rates.
    for column, numbers in values.items():
        negative = numbers < 0
        if negative.any():
            marks.add("negative", negative, column)
            numbers[negative] = np.nan
    cpu_s = [values[name] for name in series.CPU_COLUMNS if name in values]
    if cpu_s and log.cpus:
        limit_s = log.cpus * (_ROUNDING * intervals_s + _TICKS_S)
        marks.add("over capacity", np.nansum(cpu_s, axis=0) > limit_s, "CPU time")
    present: dict[str, logs.Flags] = {}
    for column, numbers in values.items():
        limit = _bound(column, values, intervals_s)
        if limit is not None:
            marks.add("over capacity", numbers > limit * _ROUNDING, column)
        base, device = series.split_device(column)
        if device and series.COLUMNS[base].kind != "fact":
            present[device] = present.get(device, False) | ~np.isnan(numbers)
    for device, there in present.items():
        rows = np.flatnonzero(there)
        if len(rows):
            numbered = np.arange(len(there))
            marks.add("device new", (numbered == rows[0]) & (numbered > 0), device)
            marks.add("device gone", numbered == rows[-1] + 1, device)


def _bound(column: str, values: logs.Columns, intervals_s: logs.Numbers) -> logs.Numbers | None:
    """Upper bound of a column; None where it has none or that is not known."""
    base, device = series.split_device(column)
    about = series.COLUMNS[base]
    if about.kind == "share":
        return np.ones(len(intervals_s))
    capacity = series.of_device(about.capacity, device) if device else about.capacity
    if capacity not in values:
        return None
    return values[capacity] * intervals_s if about.kind == "amount" else values[capacity]


def _build_frame(
    log: logs.Log, intervals_s: logs.Numbers, marks: RowMarking, options: logs.Options
) -> pd.DataFrame:
    """Lay out the columns of a log as the table of a series, in time order."""
    rows = len(log.times_s)

    def repeat_text(text: str) -> object:
        return pd.Categorical.from_codes([0] * rows, pd.Index([text]))

    columns: dict[str, object] = {"time_s": log.times_s, "interval_s": intervals_s}
    if log.host:
        columns["host"] = repeat_text(log.host)
    if log.cpus is not None:
        columns["cpus"] = np.full(rows, float(log.cpus))
    if log.hz is not None and options.needs("hz"):
        columns["hz"] = np.full(rows, float(log.hz))
    if any(name in log.columns for name in series.CPU_COLUMNS) and options.needs("cpu_accounting"):
        columns["cpu_accounting"] = repeat_text("tick")
    kept = filter(options.keeps, log.columns)
    columns |= {name: log.columns[name] for name in sorted(kept, key=_column_order_key)}
    columns["marks"] = pd.Series(marks.texts(), dtype="str")
    # Without a copy, the columns are not laid side by side anew.
    frame = pd.DataFrame(columns, copy=False)
    if bool((np.diff(log.times_s) < 0).any()):
        frame = frame.iloc[np.argsort(log.times_s, kind="stable")].reset_index(drop=True)
    return frame


_ORDER = {name: position for position, name in enumerate(series.COLUMNS)}


def _column_order_key(column: str) -> tuple[bool, int, str]:
    base, device = series.split_device(column)
    return bool(device), _ORDER[base], device
