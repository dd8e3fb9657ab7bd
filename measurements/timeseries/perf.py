"""JSON of ``perf stat -j -I MS``: one line an event and interval.

What perf adds to the other logs is memory bandwidth, where the memory controllers can be counted.
Its task clock is not read: with ``-a`` it is the time of all CPUs, busy or not.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from measurements.errors import MeasurementError
from measurements.timeseries.log import Log, to_utc
from measurements.timeseries.series import LOCAL_TIMES, Finding, left_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from measurements.timeseries.log import Options, Source

    Numbers = NDArray[np.float64]

FORMAT = "perf"
_LINE = re.compile(rb'(?:\s*#[^\n]*\n|\s*\n)*\s*\{"interval"\s*:')
_STARTED = re.compile(r"# started on \w+ (\w+ +\d+ \d+:\d+:\d+ \d{4})")
_LINE_BYTES = 64.0
_MIB = 2.0**20
# Transfers of the memory controllers: of Intel in cache lines or scaled to MiB, of AMD in lines.
_READS = re.compile(r"cas_count[._](rd|read)|imc[^/]*/data_reads|umc_cas_cmd\.rd", re.IGNORECASE)
_WRITES = re.compile(r"cas_count[._](wr|write)|imc[^/]*/data_writes|umc_cas_cmd\.wr", re.IGNORECASE)
_COUNTS = {"context-switches": "context_switches", "cs": "context_switches"} | {
    "major-faults": "major_faults"
}
UNKNOWN_SCOPE = (
    "perf does not say what it counted: context switches and faults are the host's only with -a"
)
UNKNOWN_START = "times count from the start of perf, which the log does not say: record with -o"


class _Reading(NamedTuple):
    time_s: float
    column: str
    amount: float


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is of ``perf stat -j -I``."""
    return _LINE.match(head) is not None


def read(source: Source, options: Options) -> Log:
    """Read what ``perf stat -j -I`` wrote.

    Raises
    ------
    MeasurementError
        When no event of it is of use.
    """
    data = b"".join(source.pieces())
    cut = source.truncated or not data.endswith(b"\n")
    text = data[: data.rfind(b"\n") + 1].decode("utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    objects = [_object(line) for line in lines]
    readings = [r for o in objects if o is not None and (r := _reading(o)) is not None]
    wanted = [r for r in readings if options.selection.needs(r.column)]
    times = np.unique([o["interval"] for o in objects if o is not None])
    if not readings:
        raise MeasurementError(
            f"{source.name}: counts nothing of the host that is of use ({FORMAT}): record memory "
            "controllers, such as -e unc_m_cas_count.rd,unc_m_cas_count.wr, or context-switches"
        )
    start_s, said = _start(text, options)
    log = Log(
        source=source.name,
        format=FORMAT,
        times_s=start_s + times,
        columns=_summed(wanted, times),
        host=options.host or "",
        intervals_s=np.diff(times, prepend=0.0),
        per_interval=True,
    )
    log.findings += [Finding("", 0, text) for text in said]
    if {r.column for r in readings} & set(_COUNTS.values()):
        log.findings.append(Finding("", 0, UNKNOWN_SCOPE))
    log.findings += left_out(sum(o is None for o in objects), cut)
    return log


def _object(line: str) -> dict[str, Any] | None:
    """One line as an object with a time; None for any other."""
    try:
        found = json.loads(line)
        found["interval"] = float(found["interval"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if 0 < found["interval"] < 1e12 else None


def _reading(line: dict[str, Any]) -> _Reading | None:
    """What one line counted; None where that is of no use or was not counted."""
    event = str(line.get("event", ""))
    column, factor = _meaning(event, str(line.get("unit", "")))
    try:
        count = float(line.get("counter-value", "nan"))
    except (ValueError, TypeError):
        return None
    if not column or not 0 <= count < 1e18:
        return None
    return _Reading(line["interval"], column, count * factor)


def _meaning(event: str, unit: str) -> tuple[str, float]:
    scale = _MIB if unit == "MiB" else _LINE_BYTES
    if _READS.search(event):
        return "memory_read_bytes", scale
    if _WRITES.search(event):
        return "memory_written_bytes", scale
    return _COUNTS.get(event.partition(":")[0], ""), 1.0


def _summed(readings: list[_Reading], times: Numbers) -> dict[str, Numbers]:
    """Add up the lines of CPUs, sockets and controllers."""
    columns: dict[str, Numbers] = {}
    for column in dict.fromkeys(r.column for r in readings):
        rows = np.searchsorted(times, [r.time_s for r in readings if r.column == column])
        amounts = np.array([r.amount for r in readings if r.column == column])
        columns[column] = np.full(len(times), np.nan)
        columns[column][np.unique(rows)] = np.bincount(rows, amounts)[np.unique(rows)]
    return columns


def _start(text: str, options: Options) -> tuple[float, list[str]]:
    """When perf was started, and what is not known of that."""
    match = _STARTED.search(text[:1000])
    try:
        stamp = " ".join(match[1].split()) if match else ""
        local = datetime.strptime(stamp, "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return 0.0, [UNKNOWN_START]
    seconds = to_utc(np.array([local.timestamp()]), options.timezone or "+0000")
    return float(seconds[0]), [] if options.timezone else [LOCAL_TIMES]
