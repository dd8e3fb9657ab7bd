"""``sadf -j`` of sysstat 11 and 12, streamed: any activities, all CPUs together or each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements.errors import MeasurementError
from measurements.timeseries import sadf_fields as fields
from measurements.timeseries.clock import stamps, to_utc
from measurements.timeseries.gathering import Gathering, leave_out_absurd
from measurements.timeseries.log import Log
from measurements.timeseries.sadf_stream import SampleStream
from measurements.timeseries.sadf_tables import device_columns, host_cpu, memory_total, plain
from measurements.timeseries.schema import CPU_COLUMNS
from measurements.timeseries.series import Finding
from measurements.timeseries.shortcomings import (
    INTERRUPTS_IN_SYSTEM,
    LOCAL_TIMES,
    cpus_taken,
    left_out,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from measurements.timeseries.log import Selection
    from measurements.timeseries.reading import Options
    from measurements.timeseries.source import Source

    Numbers = NDArray[np.float64]

FORMAT = "sadf-json"
_BEGINS = re.compile(rb'\s*\{\s*"sysstat"\s*:')
_BOOT = re.compile(r'"boot"\s*:\s*\{"date"\s*:\s*"([\d-]{10})"\s*,\s*"time"\s*:\s*"([\d:]{8})"')


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is of ``sadf -j``."""
    return _BEGINS.match(head) is not None


def read(source: Source, options: Options) -> Log:
    """Read the JSON of sadf.

    Raises
    ------
    MeasurementError
        When it is not that, or has no statistics.
    """
    stream = SampleStream(source)
    reader = _Reader(source.name, options)
    for lines in stream.lines():
        reader.feed(lines, stream.host)
    return reader.finish(stream, truncated=source.truncated)


class _Reader:
    def __init__(self, name: str, options: Options) -> None:
        self._name, self._options = name, options
        self._schema = _schema(options.selection)
        self._gathered = Gathering()
        self._times: list[Numbers] = []
        self._intervals: list[Numbers] = []
        self._odd: list[NDArray[np.bool_]] = []
        self._local = False
        self._with_interrupts = False
        self._skipped = 0

    def feed(self, lines: bytes, host: Mapping[str, Any]) -> None:
        """Read samples, one a line."""
        table = self._parse(lines)
        stamp = plain(table, "timestamp")
        times = self._seconds(stamp, host)
        known = np.isfinite(times)
        self._skipped += int((~known).sum())
        # What overflows is left out below.
        with np.errstate(over="ignore", invalid="ignore"):
            columns = self._columns(table, host)
        odd = np.zeros(len(times), bool)
        for numbers in columns.values():
            odd |= leave_out_absurd(numbers)
        self._gathered.add(int(known.sum()), {n: column[known] for n, column in columns.items()})
        self._times.append(times[known])
        intervals = _floats(stamp["interval"])[known]
        leave_out_absurd(intervals)
        self._intervals.append(intervals)
        self._odd.append(odd[known])

    def _parse(self, lines: bytes) -> pa.Table:
        import pyarrow as pa
        from pyarrow import json

        if not lines.isascii():
            lines = lines.decode("utf-8", errors="replace").encode()
        try:
            return json.read_json(
                pa.BufferReader(lines),
                # A sample must lie within two blocks.
                read_options=json.ReadOptions(block_size=max(1 << 20, 2 * _longest(lines))),
                parse_options=json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowException as error:
            raise MeasurementError(
                f"{self._name}: its statistics are not those of sadf -j: "
                f"{' '.join(str(error).split())}"
            ) from error

    def _seconds(self, stamp: dict[str, pa.Array], host: Mapping[str, Any]) -> Numbers:
        import pyarrow.compute as pc

        text = pc.binary_join_element_wise(stamp["date"], stamp["time"], " ")
        clock = stamps(text, "%Y-%m-%d %H:%M:%S")
        local = _floats(stamp["utc"]) == 0
        if not local.any():
            return clock
        zone = self._options.timezone
        self._local |= zone is None and host.get("timezone") != "UTC"
        return np.where(local, to_utc(clock, zone), clock) if zone else clock

    def _columns(self, table: pa.Table, host: Mapping[str, Any]) -> dict[str, Numbers]:
        found: dict[str, Numbers] = {}
        names = set(table.column_names)
        if "cpu-load" in names:
            cpu, plainly = host_cpu(table, self._cpus(host) or self._options.cpus)
            self._with_interrupts |= plainly
            found |= cpu
        for group, known in fields.HOST.items():
            if group in names:
                for name, numbers in plain(table, group).items():
                    if name in known:
                        found[known[name].column] = _floats(numbers) * known[name].factor
        if "memory" in names:
            found |= memory_total(plain(table, "memory"))
        found |= _swapped(table, str(host.get("machine")))
        found |= _transfers(table)
        needs = self._options.selection.needs
        return {
            name: numbers
            for name, numbers in found.items()
            if needs(name.partition("[")[0]) and not np.isnan(numbers).all()
        }

    def _cpus(self, host: Mapping[str, Any]) -> float | None:
        told = host.get("number-of-cpus")
        return float(told) if isinstance(told, int) and told > 0 else None

    def finish(self, stream: SampleStream, *, truncated: bool) -> Log:
        times = np.concatenate(self._times) if self._times else np.zeros(0)
        log = Log(
            source=self._name,
            format=FORMAT,
            times_s=times,
            columns=self._gathered.columns(),
            host=self._options.host or str(stream.host.get("nodename") or ""),
            cpus=self._cpus(stream.host),
            intervals_s=np.concatenate(self._intervals) if self._intervals else None,
            restarts=_after_boots(times, stream.after),
        )
        if self._odd:
            log.marks["not a number"] = np.concatenate(self._odd)
        if log.cpus is None and self._options.cpus and log.columns.keys() & set(CPU_COLUMNS):
            log.findings.append(Finding("", 0, cpus_taken(self._options.cpus)))
        log.findings += self._findings() + left_out(self._skipped, stream.cut or truncated)
        return log

    def _findings(self) -> list[Finding]:
        found = [LOCAL_TIMES] if self._local else []
        found += [INTERRUPTS_IN_SYSTEM] if self._with_interrupts else []
        return [Finding("", 0, text) for text in found]


def _swapped(table: pa.Table, machine: str) -> dict[str, Numbers]:
    page = fields.PAGE_BYTES.get(machine)
    if "swap-pages" not in table.column_names or not page:
        return {}
    swap = plain(table, "swap-pages")
    return {
        "swap_in_bytes": _floats(swap["pswpin"]) * page,
        "swap_out_bytes": _floats(swap["pswpout"]) * page,
    }


def _transfers(table: pa.Table) -> dict[str, Numbers]:
    """What disks and interfaces moved."""
    found: dict[str, Numbers] = {}
    names = set(table.column_names)
    if "io" in names:
        both = plain(table, "io")
        for group, known in fields.IO.items():
            parts = zip(both[group].type, both[group].flatten(), strict=True)
            found |= {known[f.name].column: _floats(part) for f, part in parts}
    if "disk" in names:
        disks = table.column("disk")
        found |= device_columns(disks, "disk-device", fields.DISK_BEFORE)
        found |= device_columns(disks, "disk-device", fields.DISK)
    if "network" in names:
        network = plain(table, "network")
        found |= device_columns(network["net-dev"], "iface", fields.INTERFACE)
        found |= device_columns(network["net-edev"], "iface", fields.INTERFACE_ERRORS)
    return found


def _schema(selection: Selection) -> pa.Schema:
    """What to read of a sample; the rest is passed over."""
    import pyarrow as pa

    number, text = pa.float64(), pa.string()

    def struct(names: Any, *texts: str) -> pa.DataType:
        return pa.struct([(n, text) for n in texts] + [(n, number) for n in names])

    def needed(table: Mapping[str, fields.Field]) -> bool:
        return any(selection.needs(field.column) for field in table.values())

    parts: list[tuple[str, pa.DataType]] = [
        ("timestamp", struct(["utc", "interval"], "date", "time"))
    ]
    if needed(fields.CPU):
        parts.append(("cpu-load", pa.list_(struct(fields.CPU, "cpu"))))
    for group, known in fields.HOST.items():
        more = ("memused", "memused-percent", "slab") if group == "memory" else ()
        if needed(known) or (more and selection.needs("memory_total_bytes")):
            parts.append((group, struct([*known, *more])))
    if selection.needs("swap_in_bytes") or selection.needs("swap_out_bytes"):
        parts.append(("swap-pages", struct(["pswpin", "pswpout"])))
    if any(needed(known) for known in fields.IO.values()):
        groups = [(name, struct(known)) for name, known in fields.IO.items()]
        parts.append(("io", pa.struct(groups)))
    if needed(fields.DISK):
        names = [*fields.DISK, *fields.DISK_BEFORE]
        parts.append(("disk", pa.list_(struct(names, "disk-device"))))
    if needed(fields.INTERFACE | fields.INTERFACE_ERRORS):
        both = {"net-dev": fields.INTERFACE, "net-edev": fields.INTERFACE_ERRORS}
        lists = [(name, pa.list_(struct(known, "iface"))) for name, known in both.items()]
        parts.append(("network", pa.struct(lists)))
    return pa.schema(parts)


def _floats(column: pa.Array | pa.ChunkedArray) -> Numbers:
    return np.array(column.to_numpy(zero_copy_only=False), dtype=float)


def _longest(lines: bytes) -> int:
    return max(map(len, lines.split(b"\n")))


def _after_boots(times_s: Numbers, after: str) -> NDArray[np.bool_]:
    """Rows that are the first after the host started anew."""
    import pyarrow as pa

    boots = [f"{date} {time}" for date, time in _BOOT.findall(after)]
    fresh = np.zeros(len(times_s), bool)
    if boots and len(times_s):
        ats = stamps(pa.array(boots), "%Y-%m-%d %H:%M:%S")
        rows = np.searchsorted(times_s, ats[np.isfinite(ats)])
        fresh[rows[rows < len(times_s)]] = True
    return fresh
