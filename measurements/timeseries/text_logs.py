"""Rows of texts: ``sadf -d``, and ``sar``, ``iostat -t`` and ``vmstat -t``, read in its form.

It has one block an activity, one line a sample and CPU, disk or interface.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from measurements.errors import LateModule, MeasurementError, first_line
from measurements.timeseries import log as logs, series
from measurements.timeseries.sadf import (
    CPU,
    DISK,
    DISK_BEFORE,
    HOST,
    INTERFACE,
    INTERFACE_ERRORS,
    INTERRUPTS_IN_SYSTEM,
)

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:  # ppw's own series need no Arrow.
    pc = LateModule("pyarrow.compute")

_HEADER = re.compile(rb"#? ?hostname;interval;timestamp;")
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
# Fields of the texts of sar, iostat and vmstat alone.
_BY_ITEM["DEV"] |= logs.Field.table("""
    1       r/s=disk_ios_read w/s=disk_ios_written
    KiB     kB_read/s=disk_read_bytes kB_wrtn/s=disk_written_bytes
    MiB     rMB/s=disk_read_bytes wMB/s=disk_written_bytes
    MiB     MB_read/s=disk_read_bytes MB_wrtn/s=disk_written_bytes
    sector  rsec/s=disk_read_bytes wsec/s=disk_written_bytes
    sector  Blk_read/s=disk_read_bytes Blk_wrtn/s=disk_written_bytes
""")
_OF_HOST |= logs.Field.table("""
    1    rtps=ios_read bread/s=sectors_read wtps=ios_written bwrtn/s=sectors_written
    KiB  si=swap_in_bytes so=swap_out_bytes
    2    bi=sectors_read bo=sectors_written
    %    %scpu=cpu_waiting_s %sio=io_waiting_s %fio=io_stalled_s
    %    %smem=memory_waiting_s %fmem=memory_stalled_s
""")


def knows(header: Sequence[str]) -> bool:
    """Check whether an activity with these columns, its item first, has one of a time series."""
    fields = _BY_ITEM.get(header[0], _OF_HOST) if header else {}
    return not fields.keys().isdisjoint(header)


class SadfCsv(logs.LogReader):
    """Reads what ``sadf -d`` wrote, activity by activity."""

    format = "sadf-csv"
    begins = _HEADER
    interrupts: ClassVar[str] = INTERRUPTS_IN_SYSTEM

    def __init__(self, source: logs.Source, options: logs.Options) -> None:
        super().__init__(source, options)
        self._guests_apart = False
        self._pieces: list[tuple[str, logs.Numbers, logs.Numbers]] = []
        self._times: list[logs.Numbers] = []
        self._lengths: list[logs.Numbers] = []

    def read(self) -> logs.Log:
        """Read the log; refuse one without a row."""
        for header, body in self._activities(b"".join(self._source.lines())):
            self._add_activity(header, body)
        if not self._times:
            raise MeasurementError(f"{self._log.source}: holds no interval ({self.format})")
        # Each activity has a line for each sample: the rows of the log are the times of all.
        times_s, first = np.unique(np.concatenate(self._times), return_index=True)
        self._source.check_table(len(times_s), len({name for name, *_ in self._pieces}))
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
        lengths_s = np.concatenate(self._lengths)[first]
        known_s = lengths_s if np.isfinite(lengths_s).any() else None
        self._log.add(times_s, columns, intervals_s=known_s)
        return self._log.finish(self._source)

    def _activities(self, data: bytes) -> Iterator[tuple[list[str], bytes]]:
        """Yield the header and the rows of each activity."""
        blocks = re.split(rb"(?m)^(?=#? ?hostname;)", data)
        self._source.check_headers(len(blocks))
        for block in blocks:
            line, _, rows = block.partition(b"\n")
            header = line.decode("utf-8", errors="replace").strip()
            if _HEADER.match(header.encode()):
                yield header.lstrip("# ").split(_SEPARATOR), rows

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
        if not len(block.odd):
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
            self._caveats[self.interrupts] = None
        if bool((np.diff(times_s[known]) < 0).any()):
            self._caveats[
                "the clock went back: of rows with the same time, ppw keeps the later ones"
            ] = None

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
            if cpus := self._cpus_of_shares(self._log.cpus):
                yield None, all_cpus, cpus
            return
        each = dict.fromkeys(names[known])
        self._source.check_table(len(names), len(each))
        if item == "CPU":
            self._log.cpus = max(self._log.cpus or 0.0, float(len(each))) or None
        for name in each:
            yield None if item == "CPU" else str(name), known & (names == name), 1.0


_FIRST = re.compile(r"Linux \S+ \((?P<host>[^)]*)\)\s+(?P<date>\S+)\s.*\((?P<cpus>\d{1,6}) CPU\)")
_CLOCK = re.compile(r"(?P<clock>\d\d:\d\d:\d\d)(?P<half> [AP]M)?(?P<zone>[-+]\d{4})?(?:\s+|$)")
_DATED = re.compile(rf"(?P<date>\d+[-/.]\d+[-/.]\d+)[ T]{_CLOCK.pattern}")
_ITEMS = ("CPU", "DEV", "IFACE")
_MEMORY_IN_KIB = "memory is read in KiB, as vmstat does not say whether it ran with -S"
# Columns of vmstat by the names that sar has for them.
_VMSTAT_CPU = {"us": "%user", "sy": "%system", "id": "%idle", "wa": "%iowait", "st": "%steal"}
_VMSTAT_HOST = {
    "r": "runq-sz",
    "b": "blocked",
    "swpd": "kbswpused",
    "free": "kbmemfree",
    "buff": "kbbuffers",
    "cache": "kbcached",
    "inact": "kbinact",
    "cs": "cswch/s",
    **{name: name for name in ("si", "so", "bi", "bo")},
}

# Columns of an activity with the item first; time, interval and cells of one row.
_Row = tuple[tuple[str, ...], str, str, Sequence[str]]


class _TextLog(SadfCsv):
    """Reads rows of a text; subclasses find them."""

    remedy: ClassVar[str] = ""

    def _rows(self, lines: Sequence[str]) -> Iterator[_Row]:
        raise NotImplementedError

    def _activities(self, data: bytes) -> Iterator[tuple[list[str], bytes]]:
        found: dict[tuple[str, ...], list[str]] = defaultdict(list)
        text = data.decode("utf-8", errors="replace").replace(";", " ")
        try:
            for header, stamp, interval, cells in self._rows(text.splitlines()):
                joined = ";".join("-1" if cell == "all" else cell for cell in cells)
                # Languages with decimal commas have them here.
                values = joined.replace(",", ".")
                found[header].append(f"{self._log.host};{interval};{stamp};{values}\n")
        except MeasurementError:
            raise
        except (ValueError, OverflowError) as error:
            raise MeasurementError(
                f"{self._log.source}: has a time that is none ({self.format}): {first_line(error)}"
            ) from error
        self._source.check_headers(len(found))
        if not found:
            raise MeasurementError(f"{self._log.source}: holds no rows with times{self.remedy}")
        for header, rows in found.items():
            yield ["hostname", "interval", "timestamp", *header], "".join(rows).encode()

    def _read_first(self, match: re.Match[str]) -> None:
        """Take host and number of CPUs from the first line of sysstat."""
        self._log.name_host([match["host"]], self._options)
        self._log.cpus = float(match["cpus"]) or None

    def _day(self, text: str, half: str | None) -> datetime:
        """Read a date in the order of its language."""
        first, second, third = map(int, re.split(r"[-/.]", text))
        if first > 31:
            return datetime(first, second, third)
        if "." not in text and first <= 12:
            first, second = second, first
            if first <= 12 and first != second and not half:
                self._caveats[f"the date {text} is read as month, day and year"] = None
        return datetime(third + 2000 * (third < 100), second, first)


class SarText(_TextLog):
    """Reads what ``sar`` printed, of any activities, live or of a file."""

    format = "sar"
    begins = re.compile(rb"Linux [^\n]*CPU\)\s*\n\s*\d\d:\d\d:\d\d[^\n]*[A-Za-z]")

    def _rows(self, lines: Sequence[str]) -> Iterator[_Row]:
        header: tuple[str, ...] = ()
        date, is_header = "1970-01-01", True
        ends: dict[tuple[str, ...], datetime] = {}
        for line in lines:
            if first := _FIRST.match(line):
                self._read_first(first)
                date, ends = first["date"], {}
            elif clock := _CLOCK.match(line):
                cells = line[clock.end() :].split()
                if is_header and cells[:1] != ["LINUX"]:
                    # --pretty puts the item last. A header shows when its first interval began.
                    turn = int(bool(cells) and cells[-1] in _ITEMS)
                    header = tuple(cells[-turn:] + cells[:-turn] if turn else cells)
                    last = start = day = self._day(date, clock["half"]) + _since_midnight(clock)
                elif knows(header):
                    end = day.replace(hour=0, minute=0, second=0) + _since_midnight(clock)
                    while end < ends.get(header, day) - timedelta(hours=12):
                        end += timedelta(days=1)
                    if end != last:
                        start, last = last, end
                    ends[header] = end
                    seconds = (end - start).total_seconds() % 86400
                    cells = cells[-turn:] + cells[:-turn] if turn else cells
                    yield header, str(end), f"{seconds:g}", cells
            is_header = not line.strip()


class Iostat(_TextLog):
    """Reads what ``iostat -t`` printed, without its first report: that may count from the boot."""

    format = "iostat"
    remedy = ": record with iostat -t, for two intervals or more"
    interrupts = "system_s has the interrupts in it, as iostat does not tell them apart"
    begins = re.compile(
        rb"Linux [^\n]*CPU\)\s*\n\s*(?:[^\n]*\d\d:\d\d:\d\d[^\n]*\n)?(?:avg-cpu|Device)"
    )

    def _rows(self, lines: Sequence[str]) -> Iterator[_Row]:
        header: tuple[str, ...] = ()
        at, reports = "", 0
        for line in lines:
            cells = line.split()
            if first := _FIRST.match(line):
                self._read_first(first)
            elif stamp := _DATED.match(line):
                at, reports = self._time(stamp), reports + 1
            elif line.startswith(("avg-cpu:", "Device")):
                header = ("CPU" if line[0] == "a" else "DEV", *cells[1:])
            elif cells and reports > 1 and knows(header):
                yield header, at, "", ["-1", *cells] if header[0] == "CPU" else cells

    def _time(self, stamp: re.Match[str]) -> str:
        end = self._day(stamp["date"], stamp["half"]) + _since_midnight(stamp)
        if zone := stamp["zone"]:
            ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:]))
            return f"{end - ahead if zone[0] == '+' else end + ahead} UTC"
        return str(end)


class Vmstat(_TextLog):
    """Reads what ``vmstat -t`` printed, without its first row, which counts from the boot."""

    format = "vmstat"
    remedy = ": record with vmstat -t, for two intervals or more"
    interrupts = (
        "system_s has the interrupts in it, and user_s the time at low priority, as vmstat does "
        "not tell them apart"
    )
    begins = re.compile(rb"(?:--)?procs(?:--)? -+memory-+")

    def _rows(self, lines: Sequence[str]) -> Iterator[_Row]:
        names: list[str] = []
        is_first = True
        for line in lines:
            cells = line.split()
            if cells[:2] == ["r", "b"]:
                names = cells
            elif (stamp := _DATED.search(line)) and len(cells) == len(names) + 1:
                zone = " UTC" if names[-1] in ("UTC", "GMT") else ""
                at = f"{stamp['date']} {stamp['clock']}{zone}"
                row = dict(zip(names, cells, strict=False))
                for item, known in (("CPU", _VMSTAT_CPU), ("", _VMSTAT_HOST)):
                    kept = [name for name in names if name in known]
                    header = [*filter(None, [item]), *(known[name] for name in kept)]
                    values = [*(["-1"] if item else []), *(row[name] for name in kept)]
                    if not is_first:
                        yield tuple(header), at, "", values
                is_first = False
                self._caveats[_MEMORY_IN_KIB] = None


def _since_midnight(match: re.Match[str]) -> timedelta:
    hours, minutes, seconds = map(int, match["clock"].split(":"))
    if half := match["half"]:
        hours = hours % 12 + 12 * (half == " PM")
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)
