"""The header of a collectl plot log: what its comments tell and which columns it has."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from measurements.timeseries.log import Selection

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
