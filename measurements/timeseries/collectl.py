"""Plot logs of collectl (``collectl -P``): columns by name, whatever ``-s`` and version.

Space or another separator (``--sep``), all forms of date and time (``-o``), details of CPUs, disks
and interfaces in the same file or in files of their own, headers that come again as columns change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from measurements.errors import LateModule, MeasurementError
from measurements.timeseries import log as logs, series

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:  # ppw's own series need no Arrow.
    pc = LateModule("pyarrow.compute")

_TIME_DIGITS = 8
_FIELD = re.compile(r"\[(?P<group>[A-Z]+)(?::(?P<device>[^\]]+))?\](?P<name>.+)")
_FACTS = {
    "host": re.compile(r"^# Host:\s+(\S+)", re.MULTILINE),
    "cpus": re.compile(r"\bNumCPUs:\s*(\d{1,5})\b"),
    "hz": re.compile(r"^# HZ:\s+(\d{1,6})\b", re.MULTILINE),
    "interval": re.compile(r"\bInterval:\s*(\d{1,6}(?:\.\d{1,6})?)"),
    "offset": re.compile(r"\bTZ:\s*([-+]\d{4})\b"),
    "year": re.compile(r"^# Date:\s+(\d{4})\d{4}-\d{6}", re.MULTILINE),
    "networks": re.compile(r"\bNetNames:(.*)$", re.MULTILINE),
}
_CPU_TIMES = {*series.CPU_COLUMNS, "guest_s"}
# Fields of the log by their names, with the columns that they become. Those of single devices have
# a colon, as in [DSK:sda]Reads. Swapping is the one pair of memory in bytes. A sector is 512 bytes,
# so two are a KB of collectl's. QueLen is that while the disk is busy, and the mean over the
# interval is made of both. Guest% of single CPUs holds interrupts (collectl 4.3): it is not read.
_FIELDS = logs.Field.table("""
    %    [CPU]   User%=user_s Nice%=nice_s Sys%=system_s Wait%=iowait_s Irq%=irq_s Soft%=softirq_s
    %    [CPU]   Steal%=steal_s Idle%=idle_s Guest%=guest_s
    1    [CPU]   Ctx=context_switches RunTot=run_queue BlkTot=blocked
    KiB  [MEM]   Tot=memory_total_bytes Free=memory_free_bytes Buf=memory_buffers_bytes
    KiB  [MEM]   Cached=memory_cached_bytes Inactive=memory_inactive_bytes SwapUsed=swap_used_bytes
    1    [MEM]   SwapIn=swap_in_bytes SwapOut=swap_out_bytes PageMajFaults=major_faults
    1    [NET]   RxPktTot=network_rx_packets TxPktTot=network_tx_packets
    KiB  [NET]   RxKBTot=network_rx_bytes TxKBTot=network_tx_bytes
    1    [DSK]   ReadTot=ios_read WriteTot=ios_written
    2    [DSK]   ReadKBTot=sectors_read WriteKBTot=sectors_written
    %    [CPU:]  User%=user_s Nice%=nice_s Sys%=system_s Wait%=iowait_s Irq%=irq_s Soft%=softirq_s
    %    [CPU:]  Steal%=steal_s Idle%=idle_s
    1    [DSK:]  Reads=disk_ios_read Writes=disk_ios_written QueLen=disk_queue
    KiB  [DSK:]  RKBytes=disk_read_bytes WKBytes=disk_written_bytes
    %    [DSK:]  Util=disk_busy_share
    ms   [DSK:]  Wait=disk_wait_s
    1    [NET:]  RxPkt=network_rx_packets TxPkt=network_tx_packets RxDrp=network_rx_drops
    1    [NET:]  TxDrp=network_tx_drops RxErr=network_errors TxErr=network_errors
    KiB  [NET:]  RxKB=network_rx_bytes TxKB=network_tx_bytes
""")


def _is_header(line: str) -> bool:
    """Check whether a comment line names the columns."""
    return line.startswith(("#Date", "#UTC"))


def _decode(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


class _Layout:
    """The columns of one stretch of a log, by the line that names them."""

    def __init__(self, header: str, options: logs.Options) -> None:
        separator = header[5:6] if header.startswith("#Date") else header[4:5]
        if not (separator.isascii() and separator.isprintable() and separator):
            separator = "\t" if separator == "\t" else " "
        self.separator = separator
        self.names = header[1:].rstrip(f"\r\n{separator}").split(separator)
        # Time stamps are seconds since 1970 (-oU).
        self.epoch = self.names[0] == "UTC"
        # Amounts were written as they are (-on) and not per second.
        self.per_interval = any(name.endswith("/int") for name in self.names)
        self.listed_cpus = sum(n.startswith("[CPU:") and n.endswith("]User%") for n in self.names)
        # The CPUs one by one are of use only where they are not there together.
        summed = "[CPU]User%" in self.names
        self.wanted: dict[int, tuple[logs.Field, str]] = {}
        for position, name in enumerate(self.names):
            match = _FIELD.fullmatch(name)
            if match is None:
                continue
            device = match["device"] or ""
            field = match["name"].removesuffix("/sec").removesuffix("/int")
            found = _FIELDS.get(f"[{match['group']}{':' * bool(device)}]{field}")
            is_single_cpu = bool(device) and match["group"] == "CPU"
            if found and options.needs(found.column) and not (is_single_cpu and summed):
                self.wanted[position] = (found, device)


class Collectl(logs.LogReader):
    """Reads a plot log, stretch by stretch between headers."""

    format = "collectl"

    def __init__(self, source: logs.Source, options: logs.Options) -> None:
        super().__init__(source, options)
        self._facts: dict[str, str] = {}
        self._layout: _Layout | None = None
        self._comments: list[str] = []
        self._headers = 0

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Check whether a file that begins so is a plot log."""
        return any(_is_header(line) and "[" in line for line in _decode(head).splitlines())

    def read(self) -> logs.Log:
        """Read the log; refuse one without a header of columns, or with dates without a year."""
        for lines in self._source.lines():
            self._read_lines(lines)
        log = self._log
        if self._layout is None:
            raise MeasurementError(
                f"{log.source}: has no header that names its columns (#Date Time …): "
                "record with collectl -P"
            )
        log.finish(self._source)
        if self._options.needs("network_speed_bytes_s"):
            # Line rates are there as in "eth0:1000 lo:?? wlan0:-1".
            for entry in self._facts.get("networks", "").split():
                name, _, megabits = entry.rpartition(":")
                is_known = megabits.isdecimal() and len(megabits) < 10 and int(megabits)
                if is_known and series.of_device("network_rx_bytes", name) in self._log.columns:
                    column = series.of_device("network_speed_bytes_s", name)
                    speed = int(megabits) * series.MEGABIT_BYTES
                    self._log.columns[column] = np.full(self._log.rows, speed)
        log.caveats = list(self._all_caveats(self._layout))
        log.cpus = log.cpus or self._layout.listed_cpus or None
        return log

    def _read_lines(self, lines: bytes) -> None:
        start = 0
        while start < len(lines):
            if lines.startswith(b"#", start):
                end = lines.find(b"\n", start) + 1
                self._read_comment(_decode(lines[start:end]).rstrip("\r\n"))
            else:
                end = (lines.find(b"\n#", start) + 1) or len(lines)
                # What comes before the first header is collectl's talk to the terminal.
                if self._layout is not None:
                    self._add_rows(lines[start:end], self._layout)
            start = end

    def _read_comment(self, line: str) -> None:
        if not _is_header(line):
            self._comments.append(line)
            return
        if any(comment.startswith("# Collectl:") for comment in self._comments):
            self._start_anew("\n".join(self._comments))
        self._comments.clear()
        self._headers += 1
        self._source.check_headers(self._headers)
        layout = _Layout(line, self._options)
        if self._layout is not None and layout.per_interval != self._layout.per_interval:
            raise MeasurementError(
                f"{self._log.source}: one log has both rates per second and "
                "amounts per interval (-on): split it where the header changes"
            )
        self._layout = layout
        self._log.per_interval = layout.per_interval

    def _start_anew(self, comments: str) -> None:
        """Read the comments at the top of a recording."""
        matches = {name: pattern.search(comments) for name, pattern in _FACTS.items()}
        self._facts = {name: match[1].strip() for name, match in matches.items() if match}
        self._log.name_host([self._facts.get("host")], self._options)
        self._log.cpus = self._positive_fact("cpus")
        self._log.hz = self._positive_fact("hz")
        self._log.usual_s = self._positive_fact("interval")
        self._log.restarts.append(self._log.rows)

    def _positive_fact(self, fact: str) -> float | None:
        number = float(self._facts.get(fact, 0))
        return number if number > 0 else None

    def _add_rows(self, data: bytes, layout: _Layout) -> None:
        stamps = (0,) if layout.epoch else (0, 1)
        block = logs.read_block(data, layout.separator, len(layout.names), stamps, [*layout.wanted])
        self._log.skipped += block.skipped
        if len(block.odd):
            self._log.add(self._utc_seconds(block, layout), self._columns(block, layout), block.odd)

    def _utc_seconds(self, block: logs.Block, layout: _Layout) -> logs.Numbers:
        if layout.epoch:
            return np.array(pd.to_numeric(block.texts[0].to_pandas(), errors="coerce"), float)
        dates, times = block.texts[0], block.texts[1]
        if pc.any(pc.match_substring(dates, "/")).as_py():
            if "year" not in self._facts:
                raise MeasurementError(
                    f"{self._log.source}: neither its dates (-od) nor its header "
                    "have a year: record with -oD, or into a file with -f"
                )
            month_days = pc.replace_substring(dates, "/", "")
            dates = pc.binary_join_element_wise(self._facts["year"], month_days, "")
        whole = pc.utf8_slice_codeunits(times, 0, _TIME_DIGITS)
        found = logs.stamps(pc.binary_join_element_wise(dates, whole, " "), "%Y%m%d %H:%M:%S")
        fraction = pc.utf8_slice_codeunits(times, _TIME_DIGITS)
        if pc.any(pc.not_equal(fraction, "")).as_py():
            found = found + pd.to_numeric("0" + fraction.to_pandas(), errors="coerce").to_numpy()
        return logs.to_utc(found, self._options.timezone or self._facts.get("offset"))

    def _columns(self, block: logs.Block, layout: _Layout) -> logs.Columns:
        columns: logs.Columns = {}
        for position, (part, device) in layout.wanted.items():
            numbers = block.numbers.pop(position)
            factor = self._factor(part, device, layout)
            if np.isnan(factor):
                self._caveats[series.CPUS_UNKNOWN] = None
                continue
            if factor != 1.0:
                numbers *= factor
            is_of_host = not device or part.column in _CPU_TIMES
            name = part.column if is_of_host else series.of_device(part.column, device)
            if name in columns:
                columns[name] += numbers
            else:
                columns[name] = numbers
        _mean_queues(columns)
        return columns

    def _factor(self, part: logs.Field, device: str, layout: _Layout) -> float:
        """Factor from a field to its column; NaN for CPU time of an unknown number of CPUs."""
        if part.column not in _CPU_TIMES:
            return part.factor
        if layout.per_interval:
            # Without rates these are ticks.
            return 1 / self._log.hz if self._log.hz else np.nan
        if device:
            return part.factor
        cpus = self._cpus_of_shares(self._log.cpus or layout.listed_cpus)
        return part.factor * (cpus or np.nan)

    def _all_caveats(self, layout: _Layout) -> Iterator[str]:
        yield from self._caveats
        if not (layout.epoch or self._options.timezone or "offset" in self._facts):
            yield series.LOCAL_TIMES
        cpus, idle_s = self._log.cpus, self._log.columns.get("idle_s")
        if cpus and idle_s is not None:
            percents = idle_s[:1000] * (100 / cpus)
            if bool((np.abs(percents - np.rint(percents)) < 1e-6).all()):
                yield (
                    "CPU shares are whole percents, so that each CPU time is known to within "
                    f"{cpus * 0.005:g} CPUs: record with -o2 for more digits"
                )


def _mean_queues(columns: logs.Columns) -> None:
    """Make the queue while busy the mean queue of the interval, or leave it out."""
    for name in [name for name in columns if name.startswith("disk_queue[")]:
        share = columns.get(name.replace("disk_queue", "disk_busy_share", 1))
        if share is None:
            del columns[name]
        else:
            columns[name] *= share
