"""CSV of Performance Co-Pilot (``pmrep -o csv``, ``pcp2csv``), in the native units of its metrics.

Counters are rates, as pmrep prints them unless told otherwise; options that scale (``-b``, ``-q``,
``-y``) or leave counters raw (``-r``) are not shown in the file and must not be used.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.errors import MeasurementError
from measurements.timeseries.delimited import Block, Gathering, read_block
from measurements.timeseries.log import Log, refuse_another_host, stamps, to_utc
from measurements.timeseries.series import LOCAL_TIMES, Finding, is_column, left_out, of_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from measurements.timeseries.log import Options, Source

    Numbers = NDArray[np.float64]

FORMAT = "pcp"
_HEADER = re.compile(rb'(?m)^(?:Host.Interval.)?Time[,;|\t]"')
_STAMP = r"^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+)?(Z|[-+]\d\d:?\d\d)?$"
_KIB, _MS = 1024.0, 1e-3
_MOST_COLUMNS = 20_000


class _Field(NamedTuple):
    """A column and the factor to its unit; several metrics of one column are added up."""

    column: str
    factor: float = 1.0
    rate: bool = True


def _level(column: str, factor: float = 1.0) -> _Field:
    return _Field(column, factor, rate=False)


_CPUS = "hinv.ncpu"
# CPU times and those of disks come as ms/s; `user` has the guests in it.
METRICS = {
    "kernel.all.cpu.user": _Field("user_s", _MS),
    "kernel.all.cpu.nice": _Field("nice_s", _MS),
    "kernel.all.cpu.sys": _Field("system_s", _MS),
    "kernel.all.cpu.irq.hard": _Field("irq_s", _MS),
    "kernel.all.cpu.irq.soft": _Field("softirq_s", _MS),
    "kernel.all.cpu.steal": _Field("steal_s", _MS),
    "kernel.all.cpu.idle": _Field("idle_s", _MS),
    "kernel.all.cpu.wait.total": _Field("iowait_s", _MS),
    "kernel.all.cpu.guest": _Field("guest_s", _MS),
    "kernel.all.pswitch": _Field("context_switches"),
    "kernel.all.runnable": _level("run_queue"),
    "kernel.all.blocked": _level("blocked"),
    "mem.physmem": _level("memory_total_bytes", _KIB),
    "mem.util.free": _level("memory_free_bytes", _KIB),
    "mem.util.available": _level("memory_available_bytes", _KIB),
    "mem.util.cached": _level("memory_cached_bytes", _KIB),
    "mem.util.bufmem": _level("memory_buffers_bytes", _KIB),
    "mem.util.inactive": _level("memory_inactive_bytes", _KIB),
    "mem.vmstat.pgmajfault": _Field("major_faults"),
    "swap.used": _level("swap_used_bytes"),
    "disk.dev.read_bytes": _Field("disk_read_bytes", _KIB),
    "disk.dev.write_bytes": _Field("disk_written_bytes", _KIB),
    "disk.dev.total": _Field("disk_ios"),
    "disk.dev.read": _Field("disk_ios_read"),
    "disk.dev.write": _Field("disk_ios_written"),
    "disk.dev.avactive": _Field("disk_busy_share", _MS),
    "disk.dev.aveq": _Field("disk_queue", _MS),
    "disk.dev.await": _level("disk_wait_s", _MS),
    "network.interface.in.bytes": _Field("network_rx_bytes"),
    "network.interface.out.bytes": _Field("network_tx_bytes"),
    "network.interface.in.packets": _Field("network_rx_packets"),
    "network.interface.out.packets": _Field("network_tx_packets"),
    "network.interface.in.drops": _Field("network_rx_drops"),
    "network.interface.out.drops": _Field("network_tx_drops"),
    "network.interface.in.errors": _Field("network_errors"),
    "network.interface.out.errors": _Field("network_errors"),
    "network.interface.baudrate": _level("network_speed_bytes_s"),
}


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is CSV of pmrep."""
    match = _HEADER.match(head)
    return match is not None and re.match(rb'"\w+\.', head[match.end() - 1 :]) is not None


def read(source: Source, options: Options) -> Log:
    """Read what ``pmrep -o csv`` wrote.

    Raises
    ------
    MeasurementError
        When it has no header, or no time in it can be read.
    """
    data = b"".join(source.pieces())
    cut = source.truncated or not data.endswith(b"\n")
    data = data[: data.rfind(b"\n") + 1]
    reader = _Reader(source.name, options)
    for layout, rows in _stretches(data, options):
        reader.feed(layout, rows)
    return reader.finish(cut=cut)


class _Layout:
    """What is in which place of a row, as a header says."""

    def __init__(self, line: bytes, options: Options) -> None:
        text = line.decode("utf-8", errors="replace").rstrip("\r\n")
        start = text.index("Time") + len("Time")
        self.separator = text[start : start + 1]
        # Names have the separator replaced in them.
        names = [name.strip('"') for name in text.split(self.separator)][:_MOST_COLUMNS]
        self.width = len(names)
        self.time = names.index("Time")
        self.cpus: int | None = None
        self.wanted: dict[int, tuple[_Field, str]] = {}
        for place, name in enumerate(names):
            metric, _, instance = name.partition("-")
            field = METRICS.get(metric)
            if metric == _CPUS:
                self.cpus = place
            elif field is not None and options.selection.needs(field.column):
                self.wanted[place] = (field, instance)


def _stretches(data: bytes, options: Options) -> Iterator[tuple[_Layout, bytes]]:
    """Headers, which may come again with other columns, each with the lines below it."""
    starts = [match.start() for match in _HEADER.finditer(data)]
    for start, end in itertools.pairwise([*starts, len(data)]):
        line, _, rows = data[start:end].partition(b"\n")
        if data[start:end].count(b"\n"):
            yield _Layout(line, options), rows


class _Reader:
    def __init__(self, name: str, options: Options) -> None:
        self._name, self._options = name, options
        self._host = self._options_host = options.host or ""
        self._cpus: float | None = None
        self._gathered = Gathering()
        self._times: list[Numbers] = []
        self._lengths: list[Numbers] = []
        self._odd: list[NDArray[np.bool_]] = []
        self._skipped = 0
        self._local = False

    def feed(self, layout: _Layout, rows: bytes) -> None:
        extended = layout.time == 2
        numbers = [*layout.wanted, *([layout.cpus] if layout.cpus is not None else [])]
        block = read_block(
            rows,
            layout.separator,
            layout.width,
            [layout.time, *([0] if extended else [])],
            [*numbers, *([1] if extended else [])],
        )
        self._skipped += block.skipped
        if not block.rows:
            return
        times = self._seconds(block, layout.time)
        known = np.isfinite(times)
        self._skipped += int((~known).sum())
        columns = _columns(block, layout)
        known &= ~_before_the_first_rate(columns, layout, block.rows, self._gathered.rows)
        self._learn(block, layout, extended=extended)
        self._gathered.add(int(known.sum()), {n: c[known] for n, c in columns.items()})
        self._times.append(times[known])
        lengths = block.numbers[1] if extended else np.full(block.rows, np.nan)
        self._lengths.append(lengths[known])
        self._odd.append(block.odd[known])

    def _learn(self, block: Block, layout: _Layout, *, extended: bool) -> None:
        """Take the host's name and CPUs from a block that says them."""
        if extended and not self._options_host:
            named = [str(host) for host in block.texts[0].unique().to_pylist() if host]
            refuse_another_host(self._name, [self._host, *named])
            self._host = self._host or (*named, "")[0]
        if layout.cpus is not None and not self._cpus:
            counts = block.numbers[layout.cpus]
            counts = counts[counts > 0]
            self._cpus = float(counts[0]) if len(counts) else None

    def _seconds(self, block: Block, place: int) -> Numbers:
        import pyarrow as pa

        texts = block.texts[place].to_pandas().astype("str")
        parts = texts.str.extract(_STAMP).astype("object")
        clock = (parts[0] + " " + parts[1]).to_numpy()
        found = stamps(pa.array(clock, pa.string(), from_pandas=True), "%Y-%m-%d %H:%M:%S")
        found += np.array(("0" + parts[2].fillna("")).astype(float), dtype=float)
        zones = parts[3].fillna("").to_numpy()
        for zone in dict.fromkeys(zones):
            rows = zones == zone
            found[rows] = to_utc(found[rows], self._zone(zone))
        return found

    def _zone(self, zone: str) -> str:
        if zone:
            return "+0000" if zone == "Z" else zone
        self._local |= not self._options.timezone
        return self._options.timezone or "+0000"

    def finish(self, *, cut: bool) -> Log:
        if not self._gathered.rows:
            raise MeasurementError(f"{self._name}: holds no interval ({FORMAT})")
        lengths = np.concatenate(self._lengths)
        log = Log(
            source=self._name,
            format=FORMAT,
            times_s=np.concatenate(self._times),
            columns=self._gathered.columns(),
            host=self._host,
            cpus=self._cpus,
            intervals_s=lengths if np.isfinite(lengths).any() else None,
            marks={"not a number": np.concatenate(self._odd)},
        )
        if self._local:
            log.findings.append(Finding("", 0, LOCAL_TIMES))
        log.findings += left_out(self._skipped, cut)
        return log


def _columns(block: Block, layout: _Layout) -> dict[str, Numbers]:
    columns: dict[str, Numbers] = {}
    for place, (field, instance) in layout.wanted.items():
        name = of_device(field.column, instance) if instance else field.column
        numbers = block.numbers[place] * field.factor
        columns[name] = columns[name] + numbers if name in columns else numbers
    return {name: numbers for name, numbers in columns.items() if is_column(name)}


def _before_the_first_rate(
    columns: dict[str, Numbers], layout: _Layout, rows: int, rows_before: int
) -> NDArray[np.bool_]:
    """Mark the first row of a log, where no counter has a rate yet."""
    rates = {field.column for field, _ in layout.wanted.values() if field.rate}
    first = np.zeros(rows, bool)
    known = [c[0] for name, c in columns.items() if name.partition("[")[0] in rates]
    first[:1] = rows_before == 0 and bool(known) and bool(np.isnan(known).all())
    return first
