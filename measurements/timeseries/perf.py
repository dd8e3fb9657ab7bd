"""JSON of ``perf stat -j -I MS``: one line an event and interval.

What perf adds to the other logs is memory bandwidth, where the memory controllers can be counted.
Its task clock is not read: with ``-a`` it is the time of all CPUs, busy or not.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import numpy as np

from measurements.errors import MeasurementError
from measurements.timeseries.log import Log, Numbers, Options, Source, to_utc
from measurements.timeseries.series import LOCAL_TIMES

FORMAT = "perf"
_LINE = re.compile(rb'(?:\s*#[^\n]*\n|\s*\n)*\s*\{"interval"\s*:')
_STARTED = re.compile(r"# started on \w+ (\w+ +\d+ \d+:\d+:\d+ \d{4})")
_LINE_BYTES, _MIB = 64.0, 2.0**20
# Transfers of the memory controllers: of Intel in cache lines or scaled to MiB, of AMD in lines.
_TRANSFERS = {
    "memory_read_bytes": r"cas_count[._](rd|read)|imc[^/]*/data_reads|umc_cas_cmd\.rd",
    "memory_written_bytes": r"cas_count[._](wr|write)|imc[^/]*/data_writes|umc_cas_cmd\.wr",
}
_COUNTS = {
    "context-switches": "context_switches",
    "cs": "context_switches",
    "major-faults": "major_faults",
}
UNKNOWN_SCOPE = (
    "perf does not say what it counted: context switches and faults are the host's only with -a"
)
UNKNOWN_START = "times count from the start of perf, which the log does not say: record with -o"


def recognises(head: bytes) -> bool:
    """Check whether a file that begins so is of ``perf stat -j -I``."""
    return _LINE.match(head) is not None


def read(source: Source, options: Options) -> Log:
    """Read what ``perf stat -j -I`` wrote; refuse a log without an event of use."""
    text = b"".join(source.lines()).decode("utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    counts = [count for line in lines if (count := _parse_count(line)) is not None]
    readings: dict[str, list[tuple[float, float]]] = {}
    for count in counts:
        column, amount = _column_and_amount(count)
        if column:
            readings.setdefault(column, []).append((count["interval"], amount))
    if not readings:
        raise MeasurementError(
            f"{source.name}: has no counter of the host that ppw can use "
            f"({FORMAT}): record memory controllers (-e "
            "unc_m_cas_count.rd,unc_m_cas_count.wr) or context-switches"
        )
    times = np.unique([count["interval"] for count in counts])
    start_s, caveats = _start_time(text, options)
    if readings.keys() & set(_COUNTS.values()):
        caveats.append(UNKNOWN_SCOPE)
    log = Log(source.name, FORMAT, options.host or "", per_interval=True, caveats=caveats)
    log.skipped = len(lines) - len(counts)
    columns = {c: _sum_at_times(found, times) for c, found in readings.items() if options.needs(c)}
    log.add(start_s + times, columns, intervals_s=np.diff(times, prepend=0.0))
    return log.finish()


def _parse_count(line: str) -> dict[str, Any] | None:
    """One line as an object with a time; None for any other."""
    try:
        found = json.loads(line)
        found["interval"] = float(found["interval"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if 0 < found["interval"] < 1e12 else None


def _column_and_amount(count: dict[str, Any]) -> tuple[str, float]:
    """Column and amount of a count; ("", NaN) where it is of no use or was not counted."""
    event = str(count.get("event", ""))
    try:
        value = float(count.get("counter-value", "nan"))
    except (ValueError, TypeError):
        return "", np.nan
    if not 0 <= value < 1e18:
        return "", np.nan
    for column, pattern in _TRANSFERS.items():
        if re.search(pattern, event, re.IGNORECASE):
            return column, value * (_MIB if str(count.get("unit", "")) == "MiB" else _LINE_BYTES)
    return _COUNTS.get(event.partition(":")[0], ""), value


def _sum_at_times(readings: list[tuple[float, float]], times: Numbers) -> Numbers:
    """Sum the lines of CPUs, sockets and controllers at each time; NaN at times without any."""
    ends, amounts = np.array(readings).T
    rows = np.searchsorted(times, ends)
    summed = np.full(len(times), np.nan)
    summed[rows] = np.bincount(rows, amounts)[rows]
    return summed


def _start_time(text: str, options: Options) -> tuple[float, list[str]]:
    """When perf was started (s since 1970 UTC), and a caveat where the log does not say."""
    match = _STARTED.search(text[:1000])
    try:
        stamp = " ".join(match[1].split()) if match else ""
        local = datetime.strptime(stamp, "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return 0.0, [UNKNOWN_START]
    seconds = to_utc(np.array([local.timestamp()]), options.timezone)
    return float(seconds[0]), [] if options.timezone else [LOCAL_TIMES]
