"""``sadf -d``: one block an activity, one line a sample and CPU, disk or interface."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from measurements.errors import MeasurementError
from measurements.timeseries import log as logs, series

KIB = 1024.0

# What the activities of sar become, by their names in ``sadf -j``. Several fields of one column
# are added up. `usr` is user without guests (-u ALL), `user` with them; `system` has the
# interrupts in it, `sys` has not.
CPU = logs.Field.table("""
    %  user=user_s usr=user_s nice=nice_s system=system_s sys=system_s iowait=iowait_s
    %  steal=steal_s irq=irq_s soft=softirq_s idle=idle_s guest=guest_s gnice=guest_s
""")
HOST = {
    "process-and-context-switch": logs.Field.table("1 cswch=context_switches"),
    "paging": logs.Field.table("1 majflt=major_faults"),
    "memory": logs.Field.table("""
        KiB  memfree=memory_free_bytes avail=memory_available_bytes buffers=memory_buffers_bytes
        KiB  cached=memory_cached_bytes inactive=memory_inactive_bytes swpused=swap_used_bytes
    """),
    "queue": logs.Field.table("1 runq-sz=run_queue blocked=blocked"),
}
# Totals of the physical disks (-b); those of -d take their place where they are there.
IO = {
    "io-reads": logs.Field.table("1 rtps=ios_read bread=sectors_read"),
    "io-writes": logs.Field.table("1 wtps=ios_written bwrtn=sectors_written"),
}
DISK = logs.Field.table("""
    1    tps=disk_ios aqu-sz=disk_queue
    KiB  rkB=disk_read_bytes wkB=disk_written_bytes
    ms   await=disk_wait_s
    %    util-percent=disk_busy_share
""")
# Older names of the same; used where the newer ones are not there.
DISK_BEFORE = logs.Field.table("""
    sector  rd_sec=disk_read_bytes wr_sec=disk_written_bytes
    1       avgqu-sz=disk_queue
""")
INTERFACE = logs.Field.table("""
    1    rxpck=network_rx_packets txpck=network_tx_packets
    KiB  rxkB=network_rx_bytes txkB=network_tx_bytes
""")
INTERFACE_ERRORS = logs.Field.table("""
    1  rxerr=network_errors txerr=network_errors
    1  rxdrop=network_rx_drops txdrop=network_tx_drops
""")
INTERRUPTS_IN_SYSTEM = (
    "system_s has the interrupts in it, as sadf was run without -u ALL: irq_s and softirq_s are "
    "not known"
)

FORMAT = "sadf-csv"
_HEADER = re.compile(r"#? ?hostname;interval;timestamp;")
_SEPARATOR = ";"
_HOST, _INTERVAL, _STAMP, _ITEM = range(4)

# The names of ``sadf -d`` have units: a kB or % in front, or /s behind.
_RENAMED = {
    **{name: f"{name}/s" for name in ("cswch", "majflt", "rkB", "wkB", "rd_sec", "wr_sec")},
    **{name: f"{name}/s" for name in INTERFACE | INTERFACE_ERRORS},
    **{name: f"%{name}" for name in CPU},
    **{name: f"kb{name}" for name in HOST["memory"]},
    "inactive": "kbinact",
    "util-percent": "%util",
}


def _fields_by_csv_name(*tables: Mapping[str, logs.Field]) -> dict[str, logs.Field]:
    return {_RENAMED.get(name, name): field for table in tables for name, field in table.items()}


_BY_ITEM = {
    "CPU": _fields_by_csv_name(CPU),
    "DEV": _fields_by_csv_name(DISK, DISK_BEFORE),
    "IFACE": _fields_by_csv_name(INTERFACE, INTERFACE_ERRORS),
}
_OF_HOST = _fields_by_csv_name(*HOST.values())


def recognises(head: bytes) -> bool:
    """Check whether a file that begins so is of ``sadf -d``."""
    return _HEADER.match(head[:100].decode("utf-8", errors="replace")) is not None


def read(source: logs.Source, options: logs.Options) -> logs.Log:
    """Read what ``sadf -d`` wrote; refuse a log without a row."""
    return _Reader(options, logs.Log(source.name, FORMAT)).read(b"".join(source.lines()))


class _Reader:
    def __init__(self, options: logs.Options, log: logs.Log) -> None:
        self._options, self._log = options, log
        self._guests_apart = False
        self._caveats: dict[str, None] = {}
        self._pieces: list[tuple[str, logs.Numbers, logs.Numbers]] = []
        self._times: list[logs.Numbers] = []
        self._lengths: list[logs.Numbers] = []

    def read(self, data: bytes) -> logs.Log:
        for block in re.split(rb"(?m)^(?=#? ?hostname;)", data):
            line, _, rows = block.partition(b"\n")
            header = line.decode("utf-8", errors="replace").strip()
            if _HEADER.match(header):
                self._add_activity(header.lstrip("# ").split(_SEPARATOR), rows)
        if not self._times:
            raise MeasurementError(f"{self._log.source}: holds no interval ({FORMAT})")
        # Each activity has a line for each sample: the rows of the log are the times of all.
        times_s, first = np.unique(np.concatenate(self._times), return_index=True)
        columns: logs.Columns = {}
        for name, ends_s, numbers in self._pieces:
            known = ~np.isnan(numbers)
            rows = np.searchsorted(times_s, ends_s[known])
            column = columns.setdefault(name, np.full(len(times_s), np.nan))
            # Guests come as two fields, errors too.
            column[rows] = np.nan_to_num(column[rows]) + numbers[known]
        if self._guests_apart and {"user_s", "guest_s"} <= columns.keys():
            columns["user_s"] += np.nan_to_num(columns["guest_s"])
        self._log.caveats = list(self._caveats)
        self._log.add(times_s, columns, intervals_s=np.concatenate(self._lengths)[first])
        return self._log.finish()

    def _add_activity(self, header: list[str], rows: bytes) -> None:
        """Read one activity."""
        item = header[_ITEM] if len(header) > _ITEM and header[_ITEM] in _BY_ITEM else ""
        fields = _BY_ITEM.get(item, _OF_HOST)
        wanted = {
            position: fields[name]
            for position, name in enumerate(header)
            if name in fields and self._options.needs(fields[name].column)
        }
        texts = [_HOST, _STAMP, *([_ITEM] if item else [])]
        block = logs.read_block(rows, _SEPARATOR, len(header), texts, [_INTERVAL, *wanted])
        self._log.skipped += block.skipped
        if not block.rows:
            return
        self._log.name_host(block.texts[_HOST].unique().to_pylist(), self._options)
        times_s = self._utc_seconds(block)
        known = np.isfinite(times_s)
        self._log.skipped += int((~known).sum())
        self._times.append(times_s[known])
        self._lengths.append(block.numbers[_INTERVAL][known])
        parts = list(self._rows_and_factors(block, item, known)) if wanted else []
        for position, field in wanted.items():
            numbers = block.numbers[position] * field.factor
            for device, part, factor in parts:
                name = field.column if device is None else series.of_device(field.column, device)
                self._pieces.append((name, times_s[part], numbers[part] * factor))
        self._guests_apart |= "%usr" in header
        if "%system" in header:
            self._caveats[INTERRUPTS_IN_SYSTEM] = None
        if bool((np.diff(times_s[known]) < 0).any()):
            self._caveats["the clock went back: rows of the same time are the later ones"] = None

    def _utc_seconds(self, block: logs.Block) -> logs.Numbers:
        texts = block.texts[_STAMP]
        epochs = np.array(pd.to_numeric(texts.to_pandas(), errors="coerce"), dtype=float)
        if np.isfinite(epochs).all():
            return epochs
        clock = logs.stamps(pc.utf8_slice_codeunits(texts, 0, 19), "%Y-%m-%d %H:%M:%S")
        if pc.all(pc.match_substring(texts, "UTC")).as_py():
            return clock
        if not self._options.timezone:
            self._caveats[series.LOCAL_TIMES] = None
        return logs.to_utc(clock, self._options.timezone)

    def _rows_and_factors(
        self, block: logs.Block, item: str, known: logs.Flags
    ) -> Iterator[tuple[str | None, logs.Flags, float]]:
        """Yield the rows of the host or of each device, and what to multiply them by."""
        if not item:
            yield None, known, 1.0
            return
        names = np.array(block.texts[_ITEM].to_pylist(), dtype=object)
        all_cpus = known & (names == "-1")
        if item == "CPU" and all_cpus.any():
            # The row of all CPUs is a mean share.
            cpus = self._options.cpus
            self._caveats[series.cpus_taken(cpus) if cpus else series.CPUS_UNKNOWN] = None
            if cpus:
                yield None, all_cpus, cpus
            return
        each = dict.fromkeys(names[known])
        if item == "CPU":
            self._log.cpus = max(self._log.cpus or 0.0, float(len(each))) or None
        for name in each:
            yield None if item == "CPU" else str(name), known & (names == name), 1.0
