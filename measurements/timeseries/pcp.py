"""CSV of Performance Co-Pilot (``pmrep -o csv``, ``pcp2csv``), in the native units of its metrics.

Counters are rates, as pmrep prints them unless told otherwise; options that scale (``-b``, ``-q``,
``-y``) or leave counters raw (``-r``) are not shown in the file and must not be used.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pyarrow as pa

from measurements.errors import MeasurementError
from measurements.timeseries import log as logs, series

FORMAT = "pcp"
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


def recognises(head: bytes) -> bool:
    """Check whether a file that begins so is CSV of pmrep."""
    match = _HEADER.match(head)
    return match is not None and re.match(rb'"\w+\.', head[match.end() :]) is not None


def read(source: logs.Source, options: logs.Options) -> logs.Log:
    """Read what ``pmrep -o csv`` wrote; refuse a log without a row that has a time."""
    data = b"".join(source.lines())
    log = logs.Log(source.name, FORMAT, options.host or "")
    # A header comes again where columns change.
    starts = [match.start() for match in _HEADER.finditer(data)]
    for start, end in itertools.pairwise([*starts, len(data)]):
        header, _, rows = data[start:end].partition(b"\n")
        _add_rows(log, _Layout(header, options), rows, options)
    if not log.rows:
        raise MeasurementError(f"{log.source}: holds no interval ({FORMAT})")
    return log.finish()


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


def _add_rows(log: logs.Log, layout: _Layout, rows: bytes, options: logs.Options) -> None:
    """Add the rows below a header."""
    extended = layout.time == _EXTENDED_TIME
    texts = [layout.time, *([_HOST] if extended else [])]
    numbers = [*layout.wanted, *([_INTERVAL] if extended else [])]
    if layout.cpus is not None:
        numbers.append(layout.cpus)
    block = logs.read_block(rows, layout.separator, layout.width, texts, numbers)
    log.skipped += block.skipped
    if not block.rows:
        return
    times_s = _utc_seconds(log, block.texts[layout.time], options.timezone)
    columns = layout.columns(block)
    if extended:
        log.name_host(block.texts[_HOST].unique().to_pylist(), options)
    if layout.cpus is not None and not log.cpus:
        log.cpus = next((float(count) for count in block.numbers[layout.cpus] if count > 0), None)
    # The first row of a log has no rates: it is no interval.
    first = not log.rows and np.isfinite(times_s[0]) and layout.lacks_rates(columns)
    kept = slice(int(first), None)
    lengths_s = block.numbers[_INTERVAL][kept] if extended else np.zeros(0)
    log.add(
        times_s[kept],
        {name: numbers[kept] for name, numbers in columns.items()},
        block.odd[kept],
        lengths_s if np.isfinite(lengths_s).any() else None,
    )


def _utc_seconds(log: logs.Log, stamps: pa.ChunkedArray, timezone: str | None) -> logs.Numbers:
    parts = stamps.to_pandas().astype("str").str.extract(_STAMP).astype("object")
    clock = pa.array((parts[0] + " " + parts[1]).to_numpy(), pa.string(), from_pandas=True)
    found = logs.stamps(clock, "%Y-%m-%d %H:%M:%S")
    found += np.array(("0" + parts[2].fillna("")).astype(float), dtype=float)
    zones = parts[3].fillna("").to_numpy()
    for zone in dict.fromkeys(zones):
        rows = zones == zone
        if not zone and not timezone:
            log.caveats = [series.LOCAL_TIMES]
        found[rows] = logs.to_utc(found[rows], "+0000" if zone == "Z" else zone or timezone)
    return found
