"""``sadf -d``: one block an activity, one line a sample and CPU, disk or interface."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.errors import MeasurementError
from measurements.timeseries.delimited import Block, read_block
from measurements.timeseries.log import Log, refuse_another_host, stamps, to_utc
from measurements.timeseries.series import (
    CPUS_UNKNOWN,
    INTERRUPTS_IN_SYSTEM,
    LOCAL_TIMES,
    Finding,
    cpus_taken,
    left_out,
    of_device,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from measurements.timeseries.log import Options, Source

    Numbers = NDArray[np.float64]


# What the activities of sar become, by their names in ``sadf -j`` and ``sadf -d``.


KIB = 1024.0
MS = 1e-3
PERCENT = 0.01


class Field(NamedTuple):
    """A column, and the factor to its unit; several fields of one column are added up."""

    column: str
    factor: float = 1.0


# Shares of CPU time. `usr` is user without guests (-u ALL), `user` with them; `system` has the
# interrupts in it, `sys` has not.
CPU = {
    "user": Field("user_s", PERCENT),
    "usr": Field("user_s", PERCENT),
    "nice": Field("nice_s", PERCENT),
    "system": Field("system_s", PERCENT),
    "sys": Field("system_s", PERCENT),
    "iowait": Field("iowait_s", PERCENT),
    "steal": Field("steal_s", PERCENT),
    "irq": Field("irq_s", PERCENT),
    "soft": Field("softirq_s", PERCENT),
    "idle": Field("idle_s", PERCENT),
    "guest": Field("guest_s", PERCENT),
    "gnice": Field("guest_s", PERCENT),
}

HOST = {
    "process-and-context-switch": {"cswch": Field("context_switches")},
    "paging": {"majflt": Field("major_faults")},
    "memory": {
        "memfree": Field("memory_free_bytes", KIB),
        "avail": Field("memory_available_bytes", KIB),
        "buffers": Field("memory_buffers_bytes", KIB),
        "cached": Field("memory_cached_bytes", KIB),
        "inactive": Field("memory_inactive_bytes", KIB),
        "swpused": Field("swap_used_bytes", KIB),
    },
    "queue": {"runq-sz": Field("run_queue"), "blocked": Field("blocked")},
}

# Totals of the physical disks (-b); those of -d take their place where they are there.
IO = {
    "io-reads": {"rtps": Field("ios_read"), "bread": Field("sectors_read")},
    "io-writes": {"wtps": Field("ios_written"), "bwrtn": Field("sectors_written")},
}

DISK = {
    "tps": Field("disk_ios"),
    "rkB": Field("disk_read_bytes", KIB),
    "wkB": Field("disk_written_bytes", KIB),
    "aqu-sz": Field("disk_queue"),
    "await": Field("disk_wait_s", MS),
    "util-percent": Field("disk_busy_share", PERCENT),
}
# Older names of the same; used where the newer ones are not there.
DISK_BEFORE = {
    "rd_sec": Field("disk_read_bytes", 512.0),
    "wr_sec": Field("disk_written_bytes", 512.0),
    "avgqu-sz": Field("disk_queue"),
}

INTERFACE = {
    "rxpck": Field("network_rx_packets"),
    "txpck": Field("network_tx_packets"),
    "rxkB": Field("network_rx_bytes", KIB),
    "txkB": Field("network_tx_bytes", KIB),
}
INTERFACE_ERRORS = {
    "rxerr": Field("network_errors"),
    "txerr": Field("network_errors"),
    "rxdrop": Field("network_rx_drops"),
    "txdrop": Field("network_tx_drops"),
}

# Size of a page, where the processor has one only.
PAGE_BYTES = {"x86_64": 4096.0, "i686": 4096.0, "s390x": 4096.0}


FORMAT = "sadf-csv"
_HEADER = re.compile(r"#? ?hostname;interval;timestamp;")
_SEPARATOR = ";"
_HOST, _INTERVAL, _STAMP, _ITEM = range(4)

_CPU = {f"%{name}": field for name, field in CPU.items()}
_DISK = {
    "tps": DISK["tps"],
    "rkB/s": DISK["rkB"],
    "wkB/s": DISK["wkB"],
    "aqu-sz": DISK["aqu-sz"],
    "avgqu-sz": DISK["aqu-sz"],
    "await": DISK["await"],
    "%util": DISK["util-percent"],
}
_SECTORS = {
    "rd_sec/s": DISK_BEFORE["rd_sec"],
    "wr_sec/s": DISK_BEFORE["wr_sec"],
}
_INTERFACE = {f"{name}/s": field for name, field in (INTERFACE | INTERFACE_ERRORS).items()}
_BY_ITEM = {"CPU": _CPU, "DEV": _DISK | _SECTORS, "IFACE": _INTERFACE}
_OF_HOST = {
    "cswch/s": Field("context_switches"),
    "majflt/s": Field("major_faults"),
    "kbmemfree": Field("memory_free_bytes", KIB),
    "kbavail": Field("memory_available_bytes", KIB),
    "kbbuffers": Field("memory_buffers_bytes", KIB),
    "kbcached": Field("memory_cached_bytes", KIB),
    "kbinact": Field("memory_inactive_bytes", KIB),
    "kbswpused": Field("swap_used_bytes", KIB),
    "runq-sz": Field("run_queue"),
    "blocked": Field("blocked"),
}


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is of ``sadf -d``."""
    return _HEADER.match(head[:100].decode("utf-8", errors="replace")) is not None


def read(source: Source, options: Options) -> Log:
    """Read what ``sadf -d`` wrote.

    Raises
    ------
    MeasurementError
        When it has no header.
    """
    data = b"".join(source.pieces())
    cut = source.truncated or not data.endswith(b"\n")
    data = data[: data.rfind(b"\n") + 1]
    reader = _Reader(source.name, options)
    for header, rows in _stretches(data):
        reader.feed(header, rows)
    return reader.finish(cut=cut)


def _stretches(data: bytes) -> list[tuple[list[str], bytes]]:
    """Headers, each with the lines below it."""
    found = []
    for part in re.split(rb"(?m)^(?=#? ?hostname;)", data):
        line, _, rows = part.partition(b"\n")
        header = line.decode("utf-8", errors="replace").strip()
        if _HEADER.match(header):
            found.append((header.lstrip("# ").split(_SEPARATOR), rows))
    return found


class _Reader:
    def __init__(self, name: str, options: Options) -> None:
        self._name, self._options = name, options
        self._host = ""
        self._listed = 0
        self._skipped = 0
        self._guests_apart = False
        self._findings: dict[str, None] = {}
        self._pieces: list[tuple[str, Numbers, Numbers]] = []
        self._times: list[Numbers] = []
        self._lengths: list[Numbers] = []

    def feed(self, header: list[str], rows: bytes) -> None:
        """Read one activity."""
        item = header[_ITEM] if len(header) > _ITEM and header[_ITEM] in _BY_ITEM else ""
        known = _BY_ITEM[item] if item else _OF_HOST
        wanted = {
            place: known[name]
            for place, name in enumerate(header)
            if name in known and self._options.selection.needs(known[name].column)
        }
        texts = [_HOST, _STAMP, *([_ITEM] if item else [])]
        block = read_block(rows, _SEPARATOR, len(header), texts, [_INTERVAL, *wanted])
        self._skipped += block.skipped
        if block.rows:
            self._name_host(block)
            self._take(block, header, item, wanted)

    def _name_host(self, block: Block) -> None:
        named = [str(host) for host in block.texts[_HOST].unique().to_pylist() if host]
        if not self._options.host:
            refuse_another_host(self._name, [self._host, *named])
        self._host = self._host or (*named, "")[0]

    def _take(
        self, block: Block, header: list[str], item: str, wanted: Mapping[int, Field]
    ) -> None:
        times = self._seconds(block)
        known = np.isfinite(times)
        self._skipped += int((~known).sum())
        self._times.append(times[known])
        self._lengths.append(block.numbers[_INTERVAL][known])
        items = np.array(block.texts[_ITEM].to_pylist(), dtype=object) if item else None
        for place, field in wanted.items():
            numbers = block.numbers[place] * field.factor
            if items is None:
                self._pieces.append((field.column, times[known], numbers[known]))
            elif item == "CPU":
                self._take_cpu(field.column, times, numbers, items, known)
            else:
                for device in dict.fromkeys(items[known]):
                    rows = known & (items == device)
                    name = of_device(field.column, str(device))
                    self._pieces.append((name, times[rows], numbers[rows]))
        self._guests_apart |= "%usr" in header
        if "%system" in header:
            self._findings[INTERRUPTS_IN_SYSTEM] = None
        if bool((np.diff(times[known]) < 0).any()):
            self._findings["the clock went back: rows of the same time are the later ones"] = None

    def _take_cpu(
        self,
        column: str,
        times: Numbers,
        shares: Numbers,
        items: NDArray[np.object_],
        known: NDArray[np.bool_],
    ) -> None:
        together = known & (items == "-1")
        if together.any() and self._options.cpus:
            of_all = shares[together] * self._options.cpus
            self._pieces.append((column, times[together], of_all))
            self._findings[cpus_taken(self._options.cpus)] = None
        elif together.any():
            self._findings[CPUS_UNKNOWN] = None
        else:
            singles = dict.fromkeys(items[known])
            self._listed = max(self._listed, len(singles))
            for cpu in singles:
                rows = known & (items == cpu)
                self._pieces.append((column, times[rows], shares[rows]))

    def _seconds(self, block: Block) -> Numbers:
        import pandas as pd
        import pyarrow.compute as pc

        texts = block.texts[_STAMP]
        epochs = np.array(pd.to_numeric(texts.to_pandas(), errors="coerce"), dtype=float)
        if np.isfinite(epochs).all():
            return epochs
        clock = stamps(pc.utf8_slice_codeunits(texts, 0, 19), "%Y-%m-%d %H:%M:%S")
        if pc.all(pc.match_substring(texts, "UTC")).as_py():
            return clock
        if self._options.timezone:
            return to_utc(clock, self._options.timezone)
        self._findings[LOCAL_TIMES] = None
        return clock

    def finish(self, *, cut: bool) -> Log:
        if not self._times:
            raise MeasurementError(f"{self._name}: holds no interval ({FORMAT})")
        stamped, lengths = np.concatenate(self._times), np.concatenate(self._lengths)
        times, first = np.unique(stamped, return_index=True)
        values: dict[str, Numbers] = {}
        for column, at, numbers in self._pieces:
            rows = np.searchsorted(times, at)
            known = ~np.isnan(numbers)
            into = values.setdefault(column, np.full(len(times), np.nan))
            # Guests come as two fields, errors too.
            into[rows[known]] = np.nan_to_num(into[rows[known]]) + numbers[known]
        if self._guests_apart and {"user_s", "guest_s"} <= values.keys():
            values["user_s"] += np.nan_to_num(values["guest_s"])
        log = Log(
            source=self._name,
            format=FORMAT,
            times_s=times,
            columns=values,
            host=self._options.host or self._host,
            cpus=self._listed or None,
            intervals_s=lengths[first],
        )
        log.findings += [Finding("", 0, text) for text in self._findings]
        log.findings += left_out(self._skipped, cut)
        return log
