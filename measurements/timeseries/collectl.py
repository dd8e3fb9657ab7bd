"""Plot logs of collectl (``collectl -P``): columns by name, whatever ``-s`` and version.

Space or another separator (``--sep``), all forms of date and time (``-o``), details of CPUs, disks
and interfaces in the same file or in files of their own, headers that come again as columns change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.errors import MeasurementError
from measurements.timeseries.delimited import Block, Gathering, read_block
from measurements.timeseries.log import Log, refuse_another_host, stamps, to_utc
from measurements.timeseries.series import (
    CPUS_UNKNOWN,
    LOCAL_TIMES,
    Finding,
    cpus_taken,
    left_out,
    of_device,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from measurements.timeseries.log import Options, Selection, Source

    Numbers = NDArray[np.float64]


# The header of a collectl plot log: what its comments tell and which columns it has.


_KIB = 1024.0
_MS = 1e-3
_PERCENT = 0.01
# collectl writes line rates in Mb/s.
_MEGABIT_BYTES = 1e6 / 8
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


class Field(NamedTuple):
    """What a field of the log becomes: a column, times a factor.

    ``of_cpus`` is "all" for a share of all CPUs and "one" for a share of one of them.
    """

    column: str
    factor: float = 1.0
    of_cpus: str = ""


_CPU = {
    "User%": "user_s",
    "Nice%": "nice_s",
    "Sys%": "system_s",
    "Wait%": "iowait_s",
    "Irq%": "irq_s",
    "Soft%": "softirq_s",
    "Steal%": "steal_s",
    "Idle%": "idle_s",
}
_OF_HOST: dict[str, dict[str, Field]] = {
    "CPU": {
        **{name: Field(column, _PERCENT, "all") for name, column in _CPU.items()},
        "Guest%": Field("guest_s", _PERCENT, "all"),
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
_OF_DEVICE: dict[str, dict[str, Field]] = {
    # What is headed Guest% by CPU holds interrupts (collectl 4.3), so it is not read.
    "CPU": {name: Field(column, _PERCENT, "one") for name, column in _CPU.items()},
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


@dataclass(slots=True)
class Facts:
    """What the comments at the top of a log tell; None for what they do not."""

    host: str | None = None
    cpus: float | None = None
    hz: float | None = None
    interval: float | None = None
    offset: str | None = None
    year: int | None = None
    speeds: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Layout:
    """The columns of one stretch of a log.

    Attributes
    ----------
    names : list of str
        As headed.
    separator : str
    wanted : mapping of position to (Field, device)
    per_interval : bool
        Whether amounts were written as they are (``-on``) and not per second.
    """

    names: list[str]
    separator: str
    wanted: dict[int, tuple[Field, str]]
    per_interval: bool

    @property
    def epoch(self) -> bool:
        """Whether its stamps are seconds since 1970 (``-oU``)."""
        return self.names[0] == "UTC"


def read_facts(comments: str) -> Facts:
    """Read the comments at the top of a log."""
    said = {name: m[1].strip() for name, p in _FACTS.items() if (m := p.search(comments))}
    numbers = {name: float(said[name]) for name in ("cpus", "hz", "interval") if name in said}
    return Facts(
        host=said.get("host"),
        offset=said.get("offset"),
        year=int(said["date"]) if "date" in said else None,
        speeds=_speeds(said.get("networks", "")),
        **{name: number for name, number in numbers.items() if number > 0},
    )


def _speeds(networks: str) -> dict[str, float]:
    """Line rates (B/s) of ``eth0:1000 lo:?? wlan0:-1``."""
    pairs = (entry.rpartition(":") for entry in networks.split())
    return {
        name: int(megabits) * _MEGABIT_BYTES
        for name, _, megabits in pairs
        if name and megabits.isdecimal() and len(megabits) < 10 and int(megabits)
    }


def is_header(line: str) -> bool:
    """Whether a comment line names the columns."""
    return line.startswith(("#Date", "#UTC"))


def read_layout(header: str, selection: Selection) -> Layout:
    """Read the line that names the columns."""
    separator = header[5:6] if header.startswith("#Date") else header[4:5]
    if not (separator.isascii() and separator.isprintable() and separator):
        separator = "\t" if separator == "\t" else " "
    names = header[1:].rstrip(f"\r\n{separator}").split(separator)
    wanted = {}
    summed = _has_sum(names)
    for position, name in enumerate(names):
        found = _field(name)
        if found is None or not selection.needs(found[0].column):
            continue
        # The CPUs one by one are of use only where they are not there together.
        if not (found[0].of_cpus == "one" and summed):
            wanted[position] = found
    per_interval = any(name.endswith("/int") for name in names)
    return Layout(names, separator, wanted, per_interval)


def _has_sum(names: list[str]) -> bool:
    return "[CPU]User%" in names


def cpus_listed(names: list[str]) -> int:
    """Count the CPUs that have columns of their own."""
    return sum(name.startswith("[CPU:") and name.endswith("]User%") for name in names)


def _field(name: str) -> tuple[Field, str] | None:
    match = _FIELD.fullmatch(name)
    if match is None:
        return None
    plain = match["name"].removesuffix("/sec").removesuffix("/int")
    device = match["device"]
    table = _OF_HOST if device is None else _OF_DEVICE
    found = table.get(match["group"], {}).get(plain)
    return None if found is None else (found, device or "")


FORMAT = "collectl"
_TIME_DIGITS = 8


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a plot log."""
    return any(is_header(line) and ("[" in line) for line in _decoded(head).splitlines())


def read(source: Source, options: Options) -> Log:
    """Read a plot log.

    Raises
    ------
    MeasurementError
        When it has no header with columns, or its dates have no year.
    """
    reader = _Reader(source, options)
    for piece in source.lines():
        reader.feed(piece)
    return reader.finish()


class _Reader:
    """Goes through a log, stretch by stretch between headers."""

    def __init__(self, source: Source, options: Options) -> None:
        self._source, self._options = source, options
        self._facts = Facts()
        self._layout: Layout | None = None
        self._comments: list[str] = []
        self._gathered = Gathering()
        self._times: list[Numbers] = []
        self._odd: list[NDArray[np.bool_]] = []
        self._restarts: list[int] = []
        self._skipped = 0
        self._cut = False
        self._unknown_cpus = False
        self._taken = False

    def feed(self, piece: bytes) -> None:
        """Read whole lines; a last line without an end is left out."""
        if not piece.endswith(b"\n"):
            end = piece.rfind(b"\n") + 1
            self._cut = True
            piece = piece[:end]
        start = 0
        while start < len(piece):
            if piece.startswith(b"#", start):
                end = piece.find(b"\n", start) + 1
                self._comment(_decoded(piece[start:end]).rstrip("\r\n"))
            else:
                end = (piece.find(b"\n#", start) + 1) or len(piece)
                self._rows(piece[start:end])
            start = end

    def _comment(self, line: str) -> None:
        if not is_header(line):
            self._comments.append(line)
            return
        if any(comment.startswith("# Collectl:") for comment in self._comments):
            facts = read_facts("\n".join(self._comments))
            self._refuse_another(facts)
            self._facts = facts
            self._restarts.append(self._gathered.rows)
        self._comments.clear()
        layout = read_layout(line, self._options.selection)
        if self._layout is not None and layout.per_interval != self._layout.per_interval:
            raise MeasurementError(
                f"{self._source.name}: rates a second and amounts an interval (-on) are in one "
                "log: split it where the header changes"
            )
        self._layout = layout

    def _refuse_another(self, facts: Facts) -> None:
        # One name for all is the caller's to give.
        if not self._options.host:
            refuse_another_host(self._source.name, [self._facts.host, facts.host])
        facts.host = facts.host or self._facts.host

    def _rows(self, data: bytes) -> None:
        layout = self._layout
        # What comes before the first header is collectl's talk to the terminal.
        if layout is None or not data.strip():
            return
        stamped = (0,) if layout.epoch else (0, 1)
        block = read_block(data, layout.separator, len(layout.names), stamped, [*layout.wanted])
        self._skipped += block.skipped
        if not block.rows:
            return
        times = self._stamps(block, layout)
        known = np.isfinite(times)
        self._skipped += int((~known).sum())
        columns = self._columns(block, layout)
        self._gathered.add(int(known.sum()), {n: column[known] for n, column in columns.items()})
        self._times.append(times[known])
        self._odd.append(block.odd[known])

    def _stamps(self, block: Block, layout: Layout) -> Numbers:
        import pandas as pd
        import pyarrow.compute as pc

        if layout.epoch:
            return np.array(pd.to_numeric(block.texts[0].to_pandas(), errors="coerce"), float)
        dates, times = block.texts[0], block.texts[1]
        if pc.any(pc.match_substring(dates, "/")).as_py():
            dates = pc.binary_join_element_wise(
                self._year(), pc.replace_substring(dates, "/", ""), ""
            )
        whole = pc.utf8_slice_codeunits(times, 0, _TIME_DIGITS)
        found = stamps(pc.binary_join_element_wise(dates, whole, " "), "%Y%m%d %H:%M:%S")
        fraction = pc.utf8_slice_codeunits(times, _TIME_DIGITS)
        if pc.any(pc.not_equal(fraction, "")).as_py():
            found = found + pd.to_numeric("0" + fraction.to_pandas(), errors="coerce").to_numpy()
        return to_utc(found, self._zone() or "+0000")

    def _zone(self) -> str | None:
        return self._options.timezone or self._facts.offset

    def _year(self) -> str:
        if self._facts.year is None:
            raise MeasurementError(
                f"{self._source.name}: its dates have no year (-od) and it has no header with one: "
                "record with -oD, or into a file with -f"
            )
        return str(self._facts.year)

    def _columns(self, block: Block, layout: Layout) -> dict[str, Numbers]:
        cpus = self._cpus() or self._options.cpus
        columns: dict[str, Numbers] = {}
        for position, (part, device) in layout.wanted.items():
            numbers = block.numbers.pop(position)
            factor = part.factor
            if part.of_cpus and layout.per_interval:
                # Without rates these are ticks.
                factor = 1 / self._facts.hz if self._facts.hz else np.nan
            elif part.of_cpus == "all":
                factor *= cpus or np.nan
                self._taken |= cpus is not None and self._cpus() is None
            if np.isnan(factor):
                self._unknown_cpus = True
                continue
            name = of_device(part.column, device) if device and not part.of_cpus else part.column
            if factor != 1.0:
                numbers *= factor
            if name in columns:
                columns[name] += numbers
            else:
                columns[name] = numbers
        _mean_queues(columns)
        return columns

    def _cpus(self) -> float | None:
        """CPUs that the log's shares are of, by the log."""
        listed = cpus_listed(self._layout.names) if self._layout else 0
        return self._facts.cpus or listed or None

    def finish(self) -> Log:
        if self._layout is None:
            raise MeasurementError(
                f"{self._source.name}: has no header that names its columns (#Date Time …): "
                "record with collectl -P"
            )
        rows = self._gathered.rows
        log = Log(
            source=self._source.name,
            format=FORMAT,
            times_s=np.concatenate(self._times) if self._times else np.zeros(0),
            columns=self._gathered.columns(),
            host=self._options.host or self._facts.host or "",
            cpus=self._cpus(),
            hz=self._facts.hz,
            usual_s=self._facts.interval,
            restarts=np.isin(np.arange(rows), self._restarts),
            per_interval=self._layout.per_interval,
        )
        if rows:
            log.marks["not a number"] = np.concatenate(self._odd)
        self._add_facts(log)
        log.findings += self._findings(log)
        return log

    def _add_facts(self, log: Log) -> None:
        if self._options.selection.needs("network_speed_bytes_s"):
            for interface, speed in self._facts.speeds.items():
                if of_device("network_rx_bytes", interface) in log.columns:
                    name = of_device("network_speed_bytes_s", interface)
                    log.columns[name] = np.full(len(log.times_s), speed)

    def _findings(self, log: Log) -> list[Finding]:
        found = []
        if self._unknown_cpus:
            found.append(CPUS_UNKNOWN)
        if self._taken:
            found.append(cpus_taken(self._options.cpus))
        if self._layout and not self._layout.epoch and not self._zone():
            found.append(LOCAL_TIMES)
        idle = log.columns.get("idle_s")
        if idle is not None and self._facts.cpus and _whole_percents(idle, self._facts.cpus):
            found.append(
                "CPU shares are whole percents, so that each CPU time is known to within "
                f"{self._facts.cpus * 0.005:g} CPUs: record with -o2 for more digits"
            )
        return [Finding("", 0, text) for text in found] + left_out(
            self._skipped, self._cut or self._source.truncated
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


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
