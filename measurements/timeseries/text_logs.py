"""Texts of ``sar``, ``iostat -t`` and ``vmstat -t``, read as the activities of ``sadf -d``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import ClassVar

from measurements.errors import MeasurementError, first_line
from measurements.timeseries import sadf

_FIRST = re.compile(r"Linux \S+ \((?P<host>[^)]*)\)\s+(?P<date>\S+)\s.*\((?P<cpus>\d{1,6}) CPU\)")
_CLOCK = re.compile(r"(?P<clock>\d\d:\d\d:\d\d)(?P<half> [AP]M)?(?P<zone>[-+]\d{4})?(?:\s+|$)")
_STAMP = re.compile(rf"(?P<date>\d+[-/.]\d+[-/.]\d+)[ T]{_CLOCK.pattern}")
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


class _TextLog(sadf.SadfCsv):
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
                elif sadf.knows(header):
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
            elif stamp := _STAMP.match(line):
                at, reports = self._time(stamp), reports + 1
            elif line.startswith(("avg-cpu:", "Device")):
                header = ("CPU" if line[0] == "a" else "DEV", *cells[1:])
            elif cells and reports > 1 and sadf.knows(header):
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
            elif (stamp := _STAMP.search(line)) and len(cells) == len(names) + 1:
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
