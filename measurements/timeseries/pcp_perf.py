"""Logs of Performance Co-Pilot and of perf: CSV of ``pmrep -o csv``, JSON of ``perf stat -j -I``.

Metrics of Performance Co-Pilot are in their native units. Counters are rates, as pmrep prints them
unless told otherwise; options that scale (``-b``, ``-q``, ``-y``) or leave counters raw (``-r``)
are not shown in the file and must not be used.

What perf adds to the other logs is memory bandwidth, where the memory controllers can be counted.
Its task clock is not read: with ``-a`` it is the time of all CPUs, busy or not.
"""

from __future__ import annotations

import itertools
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements.errors import DAMAGE, LateModule, MeasurementError
from measurements.timeseries import log as logs, series

if TYPE_CHECKING:
    import pyarrow as pa
else:  # ppw's own series need no Arrow.
    pa = LateModule("pyarrow")

_HEADER = re.compile(rb'(?m)^(?:Host([,;|\t])Interval\1Time\1|Time[,;|\t])(?=")')
_STAMP = r"^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+)?(Z|[-+]\d\d:?\d\d)?$"
_MOST_COLUMNS = 20_000
# Positions in the extended form of a row, whose time is the third field.
_HOST, _INTERVAL, _EXTENDED_TIME = range(3)

_CPUS = "hinv.ncpu"
# CPU times and those of disks come as ms/s; `user` has the guests in it.
_COUNTERS = logs.Field.table("""
    ms   kernel.all.cpu.     user=user_s nice=nice_s sys=system_s irq.hard=irq_s irq.soft=softirq_s
    ms   kernel.all.cpu.     steal=steal_s idle=idle_s wait.total=iowait_s guest=guest_s
    1    kernel.all.         pswitch=context_switches
    1    mem.vmstat.         pgmajfault=major_faults
    KiB  disk.dev.           read_bytes=disk_read_bytes write_bytes=disk_written_bytes
    1    disk.dev.           total=disk_ios read=disk_ios_read write=disk_ios_written
    ms   disk.dev.           avactive=disk_busy_share aveq=disk_queue
    1    network.interface.  in.bytes=network_rx_bytes out.bytes=network_tx_bytes
    1    network.interface.  in.packets=network_rx_packets out.packets=network_tx_packets
    1    network.interface.  in.drops=network_rx_drops out.drops=network_tx_drops
    1    network.interface.  in.errors=network_errors out.errors=network_errors
""")
_LEVELS = logs.Field.table("""
    1    kernel.all.         runnable=run_queue blocked=blocked
    KiB  mem.                physmem=memory_total_bytes util.free=memory_free_bytes
    KiB  mem.util.           available=memory_available_bytes cached=memory_cached_bytes
    KiB  mem.util.           bufmem=memory_buffers_bytes inactive=memory_inactive_bytes
    1    swap.               used=swap_used_bytes
    ms   disk.dev.           await=disk_wait_s
    1    network.interface.  baudrate=network_speed_bytes_s
""")
METRICS = _COUNTERS | _LEVELS


class Pcp(logs.LogReader):
    """Reads CSV that pmrep or pcp2csv wrote: blocks of rows, each below a header."""

    format = "pcp"
    begins = re.compile(_HEADER.pattern + rb'"\w+\.')

    def read(self) -> logs.Log:
        """Read the log; refuse one without a row that has a time."""
        data = b"".join(self._source.lines())
        # A header comes again where columns change.
        starts = [match.start() for match in _HEADER.finditer(data)]
        self._source.check_headers(len(starts))
        for start, end in itertools.pairwise([*starts, len(data)]):
            header, _, rows = data[start:end].partition(b"\n")
            self._add_rows(_Layout(header, self._options), rows)
        if not self._log.rows:
            raise MeasurementError(f"{self._log.source}: holds no interval ({self.format})")
        return self._log.finish(self._source)

    def _add_rows(self, layout: _Layout, rows: bytes) -> None:
        """Add the rows below a header."""
        log, extended = self._log, layout.time == _EXTENDED_TIME
        texts = [layout.time, *([_HOST] if extended else [])]
        numbers = [*layout.wanted, *([_INTERVAL] if extended else [])]
        if layout.cpus is not None:
            numbers.append(layout.cpus)
        block = logs.read_block(rows, layout.separator, layout.width, texts, numbers)
        log.skipped += block.skipped
        if not len(block.odd):
            return
        times_s = self._utc_seconds(block.texts[layout.time])
        columns = layout.columns(block)
        if extended:
            log.name_host(block.texts[_HOST].unique().to_pylist(), self._options)
        if layout.cpus is not None and not log.cpus:
            counts = block.numbers[layout.cpus]
            log.cpus = next((float(count) for count in counts if count > 0), None)
        # The first row of a log has no rates: it is no interval.
        first = not log.rows and np.isfinite(times_s[0]) and layout.lacks_rates(columns)
        kept = slice(int(first), None)
        lengths_s = block.numbers[_INTERVAL][kept] if extended else np.zeros(0)
        columns = {name: numbers[kept] for name, numbers in columns.items()}
        intervals_s = lengths_s if np.isfinite(lengths_s).any() else None
        log.add(times_s[kept], columns, block.odd[kept], intervals_s)

    def _utc_seconds(self, stamps: pa.ChunkedArray) -> logs.Numbers:
        timezone = self._options.timezone
        parts = stamps.to_pandas().astype("str").str.extract(_STAMP).astype("object")
        clock = pa.array((parts[0] + " " + parts[1]).to_numpy(), pa.string(), from_pandas=True)
        found = logs.stamps(clock, "%Y-%m-%d %H:%M:%S")
        found += np.array(("0" + parts[2].fillna("")).astype(float), dtype=float)
        zones = parts[3].fillna("").to_numpy()
        for zone in dict.fromkeys(zones):
            rows = zones == zone
            if not zone and not timezone:
                self._log.caveats = [series.LOCAL_TIMES]
            found[rows] = logs.to_utc(found[rows], "+0000" if zone == "Z" else zone or timezone)
        return found


class _Layout:
    """Positions of the fields of a row, by a header."""

    def __init__(self, header: bytes, options: logs.Options) -> None:
        text = header.decode("utf-8", errors="replace").rstrip("\r\n")
        start = text.index("Time") + len("Time")
        self.separator = text[start : start + 1]
        # Names have the separator replaced in them.
        names = [name.strip('"') for name in text.split(self.separator)][:_MOST_COLUMNS]
        self.width = len(names)
        self.time = names.index("Time")
        self.cpus: int | None = None
        self.wanted: dict[int, tuple[str, str]] = {}
        for position, name in enumerate(names):
            metric, _, instance = name.partition("-")
            if metric == _CPUS:
                self.cpus = position
            elif metric in METRICS and options.needs(METRICS[metric].column):
                self.wanted[position] = (metric, instance)

    def columns(self, block: logs.Block) -> logs.Columns:
        """Make the columns of a block; several metrics of one column are added up."""
        columns: logs.Columns = {}
        for position, (metric, instance) in self.wanted.items():
            column, factor = METRICS[metric]
            name = series.of_device(column, instance) if instance else column
            numbers = block.numbers[position] * factor
            columns[name] = columns[name] + numbers if name in columns else numbers
        return {name: numbers for name, numbers in columns.items() if series.is_column(name)}

    def lacks_rates(self, columns: logs.Columns) -> bool:
        """Check whether no counter has a rate in the first row, as in that of a whole log."""
        counters = {METRICS[metric].column for metric, _ in self.wanted.values()} & _RATES
        rates = [c[0] for name, c in columns.items() if series.split_device(name)[0] in counters]
        return bool(rates) and bool(np.isnan(rates).all())


_RATES = {field.column for field in _COUNTERS.values()}

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


class Perf(logs.LogReader):
    """Reads JSON that ``perf stat -j -I MS`` wrote: one line an event and interval."""

    format = "perf"
    begins = re.compile(rb'(?:\s|#[^\n]*\n)*\{"interval"\s*:')

    def read(self) -> logs.Log:
        """Read the log; refuse one without an event of use."""
        log = self._log
        text = b"".join(self._source.lines()).decode("utf-8", errors="replace")
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        counts = [count for line in lines if (count := _parse_count(line)) is not None]
        readings: dict[str, list[tuple[float, float]]] = {}
        for count in counts:
            column, amount = _column_and_amount(count)
            if column:
                readings.setdefault(column, []).append((count["interval"], amount))
        if not readings:
            raise MeasurementError(
                f"{log.source}: has no counter of the host that ppw can use "
                f"({self.format}): record memory controllers (-e "
                "unc_m_cas_count.rd,unc_m_cas_count.wr) or context-switches"
            )
        times = np.unique([count["interval"] for count in counts])
        start_s, log.caveats = _start_time(text, self._options)
        if readings.keys() & set(_COUNTS.values()):
            log.caveats.append(UNKNOWN_SCOPE)
        log.per_interval, log.skipped = True, len(lines) - len(counts)
        kept = filter(self._options.needs, readings)
        columns = {column: _sum_at_times(readings[column], times) for column in kept}
        log.add(start_s + times, columns, intervals_s=np.diff(times, prepend=0.0))
        return log.finish(self._source)


def _parse_count(line: str) -> dict[str, Any] | None:
    """One line as an object with a time; None for any other."""
    try:
        found = json.loads(line)
        found["interval"] = float(found["interval"])
    except DAMAGE:
        return None
    return found if 0 < found["interval"] < 1e12 else None


def _column_and_amount(count: dict[str, Any]) -> tuple[str, float]:
    """Column and amount of a count; ("", NaN) where it is of no use or was not counted."""
    event = str(count.get("event", ""))
    try:
        value = float(count.get("counter-value", "nan"))
    except DAMAGE:
        return "", np.nan
    if not 0 <= value < 1e18:
        return "", np.nan
    for column, pattern in _TRANSFERS.items():
        if re.search(pattern, event, re.IGNORECASE):
            return column, value * (_MIB if str(count.get("unit", "")) == "MiB" else _LINE_BYTES)
    return _COUNTS.get(event.partition(":")[0], ""), value


def _sum_at_times(readings: list[tuple[float, float]], times: logs.Numbers) -> logs.Numbers:
    """Sum the lines of CPUs, sockets and controllers at each time; NaN at times without any."""
    ends, amounts = np.array(readings).T
    rows = np.searchsorted(times, ends)
    summed = np.full(len(times), np.nan)
    summed[rows] = np.bincount(rows, amounts)[rows]
    return summed


def _start_time(text: str, options: logs.Options) -> tuple[float, list[str]]:
    """When perf was started (s since 1970 UTC), and a caveat where the log does not say."""
    match = _STARTED.search(text[:1000])
    try:
        stamp = " ".join(match[1].split()) if match else ""
        local = datetime.strptime(stamp, "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return 0.0, [UNKNOWN_START]
    seconds = logs.to_utc(np.array([local.timestamp()]), options.timezone)
    return float(seconds[0]), [] if options.timezone else [series.LOCAL_TIMES]
