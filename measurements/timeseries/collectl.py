"""Plot logs of collectl (``collectl -P``): columns by name, whatever ``-s`` and version.

Space or another separator (``--sep``), all forms of date and time (``-o``), details of CPUs, disks
and interfaces in the same file or in files of their own, headers that come again as columns change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from measurements.errors import MeasurementError
from measurements.timeseries import log as logs
from measurements.timeseries import series
from measurements.timeseries.delimited import read_block
from measurements.timeseries.log import Field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measurements.timeseries.delimited import Block
    from measurements.timeseries.log import Log, Numbers, Options, Source

FORMAT = "collectl"
_KIB = 1024.0
_MS = 1e-3
_PERCENT = 0.01
# collectl writes line rates in Mb/s.
_MEGABIT_BYTES = 1e6 / 8
_TIME_DIGITS = 8
_FIELD = re.compile(r"\[(?P<group>[A-Z]+)(?::(?P<device>[^\]]+))?\](?P<name>.+)")
_FACTS = {
    "host": re.compile(r"^# Host:\s+(\S+)", re.MULTILINE),
    "cpus": re.compile(r"\bNumCPUs:\s*(\d{1,5})\b"),
    "hz": re.compile(r"^# HZ:\s+(\d{1,6})\b", re.MULTILINE),
    "interval": re.compile(r"\bInterval:\s*(\d{1,6}(?:\.\d{1,6})?)"),
    "offset": re.compile(r"\bTZ:\s*([-+]\d{4})\b"),
    "date": re.compile(r"^# Date:\s+(\d{4})\d{4}-\d{6}", re.MULTILINE),
    "networks": re.compile(r"\bNetNames:(.*)$", re.MULTILINE),
}
_CPU_TIMES = {*series.CPU_COLUMNS, "guest_s"}
_CPU = {
    "User%": Field("user_s", _PERCENT),
    "Nice%": Field("nice_s", _PERCENT),
    "Sys%": Field("system_s", _PERCENT),
    "Wait%": Field("iowait_s", _PERCENT),
    "Irq%": Field("irq_s", _PERCENT),
    "Soft%": Field("softirq_s", _PERCENT),
    "Steal%": Field("steal_s", _PERCENT),
    "Idle%": Field("idle_s", _PERCENT),
}
_OF_HOST = {
    "CPU": {
        **_CPU,
        "Guest%": Field("guest_s", _PERCENT),
        "Ctx": Field("context_switches"),
        "RunTot": Field("run_queue"),
        "BlkTot": Field("blocked"),
    },
    "MEM": {
        "Tot": Field("memory_total_bytes", _KIB),
        "Free": Field("memory_free_bytes", _KIB),
        "Buf": Field("memory_buffers_bytes", _KIB),
        "Cached": Field("memory_cached_bytes", _KIB),
        "Inactive": Field("memory_inactive_bytes", _KIB),
        "SwapUsed": Field("swap_used_bytes", _KIB),
        # The one pair that collectl writes in bytes.
        "SwapIn": Field("swap_in_bytes"),
        "SwapOut": Field("swap_out_bytes"),
        "PageMajFaults": Field("major_faults"),
    },
    "NET": {
        "RxPktTot": Field("network_rx_packets"),
        "TxPktTot": Field("network_tx_packets"),
        "RxKBTot": Field("network_rx_bytes", _KIB),
        "TxKBTot": Field("network_tx_bytes", _KIB),
    },
    "DSK": {
        "ReadTot": Field("ios_read"),
        "WriteTot": Field("ios_written"),
        # A sector is 512 bytes: two are a KB of collectl's.
        "ReadKBTot": Field("sectors_read", 2.0),
        "WriteKBTot": Field("sectors_written", 2.0),
    },
}
_OF_DEVICE = {
    # What is headed Guest% by CPU holds interrupts (collectl 4.3), so it is not read.
    "CPU": _CPU,
    "DSK": {
        "Reads": Field("disk_ios_read"),
        "Writes": Field("disk_ios_written"),
        "RKBytes": Field("disk_read_bytes", _KIB),
        "WKBytes": Field("disk_written_bytes", _KIB),
        "Util": Field("disk_busy_share", _PERCENT),
        # While the disk is busy; the mean over the interval is made of both.
        "QueLen": Field("disk_queue"),
        "Wait": Field("disk_wait_s", _MS),
    },
    "NET": {
        "RxPkt": Field("network_rx_packets"),
        "TxPkt": Field("network_tx_packets"),
        "RxKB": Field("network_rx_bytes", _KIB),
        "TxKB": Field("network_tx_bytes", _KIB),
        "RxDrp": Field("network_rx_drops"),
        "TxDrp": Field("network_tx_drops"),
        "RxErr": Field("network_errors"),
        "TxErr": Field("network_errors"),
    },
}


def recognises(head: bytes) -> bool:
    """Check whether a file that begins so is a plot log."""
    return any(_is_header(line) and "[" in line for line in _decoded(head).splitlines())


def read(source: Source, options: Options) -> Log:
    """Read a plot log.

    Raises
    ------
    MeasurementError
        When it has no header with columns, or its dates have no year.
    """
    reader = _Reader(source.name, options)
    for lines in source.lines():
        reader.feed(lines)
    return reader.finish()


def _is_header(line: str) -> bool:
    """Check whether a comment line names the columns."""
    return line.startswith(("#Date", "#UTC"))


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


@dataclass(slots=True)
class _Facts:
    """What the comments at the top of a log tell; None for what they do not."""

    host: str | None = None
    cpus: float | None = None
    hz: float | None = None
    interval: float | None = None
    offset: str | None = None
    year: str | None = None
    # Line rates of the interfaces (B/s).
    speeds: dict[str, float] = field(default_factory=dict)


def _read_facts(comments: str) -> _Facts:
    texts = {name: m[1].strip() for name, p in _FACTS.items() if (m := p.search(comments))}
    numbers = {name: float(texts[name]) for name in ("cpus", "hz", "interval") if name in texts}
    # As in "eth0:1000 lo:?? wlan0:-1".
    networks = (entry.rpartition(":") for entry in texts.get("networks", "").split())
    return _Facts(
        host=texts.get("host"),
        offset=texts.get("offset"),
        year=texts.get("date"),
        speeds={
            name: int(megabits) * _MEGABIT_BYTES
            for name, _, megabits in networks
            if name and megabits.isdecimal() and len(megabits) < 10 and int(megabits)
        },
        **{name: number for name, number in numbers.items() if number > 0},
    )


class _Layout:
    """The columns of one stretch of a log, by the line that names them.

    Attributes
    ----------
    names : list of str
        As headed.
    separator : str
    wanted : mapping of position to (Field, device)
    listed_cpus : int
        Number of CPUs that have columns of their own.
    per_interval : bool
        Whether amounts were written as they are (``-on``) and not per second.
    epoch : bool
        Whether time stamps are seconds since 1970 (``-oU``).
    """

    def __init__(self, header: str, options: Options) -> None:
        separator = header[5:6] if header.startswith("#Date") else header[4:5]
        if not (separator.isascii() and separator.isprintable() and separator):
            separator = "\t" if separator == "\t" else " "
        self.separator = separator
        self.names = header[1:].rstrip(f"\r\n{separator}").split(separator)
        self.epoch = self.names[0] == "UTC"
        self.per_interval = any(name.endswith("/int") for name in self.names)
        self.listed_cpus = sum(n.startswith("[CPU:") and n.endswith("]User%") for n in self.names)
        # The CPUs one by one are of use only where they are not there together.
        summed = "[CPU]User%" in self.names
        self.wanted: dict[int, tuple[Field, str]] = {}
        for position, name in enumerate(self.names):
            match = _FIELD.fullmatch(name)
            if match is None:
                continue
            device = match["device"] or ""
            known = (_OF_DEVICE if device else _OF_HOST).get(match["group"], {})
            found = known.get(match["name"].removesuffix("/sec").removesuffix("/int"))
            is_single_cpu = bool(device) and match["group"] == "CPU"
            if found and options.needs(found.column) and not (is_single_cpu and summed):
                self.wanted[position] = (found, device)


class _Reader:
    """Reads a log, stretch by stretch between headers."""

    def __init__(self, name: str, options: Options) -> None:
        self._name, self._options = name, options
        self._facts = _Facts()
        self._layout: _Layout | None = None
        self._comments: list[str] = []
        self._rows = logs.Rows()
        self._restarts: list[int] = []
        self._caveats: set[str] = set()

    def feed(self, lines: bytes) -> None:
        """Read whole lines."""
        start = 0
        while start < len(lines):
            if lines.startswith(b"#", start):
                end = lines.find(b"\n", start) + 1
                self._comment(_decoded(lines[start:end]).rstrip("\r\n"))
            else:
                end = (lines.find(b"\n#", start) + 1) or len(lines)
                # What comes before the first header is collectl's talk to the terminal.
                if self._layout is not None:
                    self._add_rows(lines[start:end], self._layout)
            start = end

    def _comment(self, line: str) -> None:
        if not _is_header(line):
            self._comments.append(line)
            return
        if any(comment.startswith("# Collectl:") for comment in self._comments):
            facts = _read_facts("\n".join(self._comments))
            facts.host = logs.one_host(self._name, [self._facts.host, facts.host], self._options)
            self._facts = facts
            self._restarts.append(self._rows.count)
        self._comments.clear()
        layout = _Layout(line, self._options)
        if self._layout is not None and layout.per_interval != self._layout.per_interval:
            raise MeasurementError(
                f"{self._name}: rates a second and amounts an interval (-on) are in one "
                "log: split it where the header changes"
            )
        self._layout = layout

    def _add_rows(self, data: bytes, layout: _Layout) -> None:
        stamped = (0,) if layout.epoch else (0, 1)
        block = read_block(data, layout.separator, len(layout.names), stamped, [*layout.wanted])
        self._rows.skipped += block.skipped
        if block.rows:
            self._rows.add(self._seconds(block, layout), self._columns(block, layout), block.odd)

    def _seconds(self, block: Block, layout: _Layout) -> Numbers:
        if layout.epoch:
            return np.array(pd.to_numeric(block.texts[0].to_pandas(), errors="coerce"), float)
        dates, times = block.texts[0], block.texts[1]
        if pc.any(pc.match_substring(dates, "/")).as_py():
            if self._facts.year is None:
                raise MeasurementError(
                    f"{self._name}: its dates have no year (-od) and it has no header with one: "
                    "record with -oD, or into a file with -f"
                )
            month_days = pc.replace_substring(dates, "/", "")
            dates = pc.binary_join_element_wise(self._facts.year, month_days, "")
        whole = pc.utf8_slice_codeunits(times, 0, _TIME_DIGITS)
        found = logs.stamps(pc.binary_join_element_wise(dates, whole, " "), "%Y%m%d %H:%M:%S")
        fraction = pc.utf8_slice_codeunits(times, _TIME_DIGITS)
        if pc.any(pc.not_equal(fraction, "")).as_py():
            found = found + pd.to_numeric("0" + fraction.to_pandas(), errors="coerce").to_numpy()
        return logs.to_utc(found, self._zone())

    def _zone(self) -> str | None:
        return self._options.timezone or self._facts.offset

    def _columns(self, block: Block, layout: _Layout) -> dict[str, Numbers]:
        columns: dict[str, Numbers] = {}
        for position, (part, device) in layout.wanted.items():
            numbers = block.numbers.pop(position)
            factor = self._factor(part, device, layout)
            if np.isnan(factor):
                self._caveats.add(series.CPUS_UNKNOWN)
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

    def _factor(self, part: Field, device: str, layout: _Layout) -> float:
        """Factor from a field to its column; NaN for CPU time of an unknown number of CPUs."""
        if part.column not in _CPU_TIMES:
            return part.factor
        if layout.per_interval:
            # Without rates these are ticks.
            return 1 / self._facts.hz if self._facts.hz else np.nan
        if device:
            return part.factor
        cpus = self._cpus() or self._options.cpus
        if cpus and self._cpus() is None:
            self._caveats.add(series.CPUS_TAKEN)
        return part.factor * (cpus or np.nan)

    def _cpus(self) -> float | None:
        """Number of CPUs that the log's shares are of, by the log."""
        listed = self._layout.listed_cpus if self._layout else 0
        return self._facts.cpus or listed or None

    def finish(self) -> Log:
        if self._layout is None:
            raise MeasurementError(
                f"{self._name}: has no header that names its columns (#Date Time …): "
                "record with collectl -P"
            )
        log = self._rows.log(self._name, FORMAT)
        log.host = self._options.host or self._facts.host or ""
        log.cpus = self._cpus()
        log.hz = self._facts.hz
        log.usual_s = self._facts.interval
        log.restarts = self._restarts
        log.per_interval = self._layout.per_interval
        if self._options.needs("network_speed_bytes_s"):
            for interface, speed in self._facts.speeds.items():
                if series.of_device("network_rx_bytes", interface) in log.columns:
                    name = series.of_device("network_speed_bytes_s", interface)
                    log.columns[name] = np.full(len(log.times_s), speed)
        log.caveats = list(self._all_caveats(log, self._layout))
        return log

    def _all_caveats(self, log: Log, layout: _Layout) -> Iterator[str]:
        if series.CPUS_UNKNOWN in self._caveats:
            yield series.CPUS_UNKNOWN
        if series.CPUS_TAKEN in self._caveats:
            yield series.cpus_taken(self._options.cpus)
        if not layout.epoch and not self._zone():
            yield series.LOCAL_TIMES
        cpus = self._facts.cpus
        if cpus and "idle_s" in log.columns and _whole_percents(log.columns["idle_s"], cpus):
            yield (
                "CPU shares are whole percents, so that each CPU time is known to within "
                f"{cpus * 0.005:g} CPUs: record with -o2 for more digits"
            )


def _mean_queues(columns: dict[str, Numbers]) -> None:
    """Make the queue while busy the mean queue of the interval, or leave it out."""
    for name in [name for name in columns if name.startswith("disk_queue[")]:
        share = columns.get(name.replace("disk_queue", "disk_busy_share", 1))
        if share is None:
            del columns[name]
        else:
            columns[name] *= share


def _whole_percents(idle: Numbers, cpus: float) -> bool:
    percents = idle[:1000] * (100 / cpus)
    return bool((np.abs(percents - np.rint(percents)) < 1e-6).all())
