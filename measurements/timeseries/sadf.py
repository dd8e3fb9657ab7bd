"""Logs of sysstat: JSON of ``sadf -j``, and the fields of all its forms, of sysstat 11 and 12.

JSON is streamed: any activities, all CPUs together or each.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements.errors import LateModule, MeasurementError
from measurements.timeseries import log as logs, series

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import json as arrow_json
else:  # ppw's own series need no Arrow.
    pa, pc, arrow_json = map(LateModule, ("pyarrow", "pyarrow.compute", "pyarrow.json"))

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

_BOOT = re.compile(r'"boot"\s*:\s*\{"date"\s*:\s*"([\d-]{10})"\s*,\s*"time"\s*:\s*"([\d:]{8})"')
# Size of a page, where the processor has one only.
_PAGE_BYTES = {"x86_64": 4096.0, "i686": 4096.0, "s390x": 4096.0}
# sadf rounds a percentage to two digits.
_ROUNDING = 0.006

# Every sample begins so; sadf writes nothing else with that name.
_SAMPLE = re.compile(rb'\{[ ]*"timestamp"')
_STATISTICS = re.compile(rb'"statistics"[ ]*:[ ]*\[[ ]*$')
_ALL_CPUS = re.compile(rb'"cpu-load"[ ]*:[ ]*\[[ ]*\{"cpu"[ ]*:[ ]*"all"')
_LAYOUT = b"\n\r\t"
_LONGEST_SAMPLE = 64 << 20


class SadfJson(logs.LogReader):
    """Reads the samples of one document of ``sadf -j`` piece by piece, however long it is."""

    format = "sadf-json"
    begins = re.compile(rb'\s*\{\s*"sysstat"\s*:')

    def __init__(self, source: logs.Source, options: logs.Options) -> None:
        super().__init__(source, options)
        self._schema = _wanted_schema(options)
        # What stands before the samples, such as ``nodename``, and behind them, such as restarts.
        self._host: dict[str, Any] = {}
        self._after = ""
        self._is_local = False
        self._with_interrupts = False

    def read(self) -> logs.Log:
        """Read the log; refuse a document of another shape."""
        for lines in self._sample_blocks():
            self._add_samples(lines)
        log = self._log.finish(self._source)
        log.host = log.host or str(self._host.get("nodename") or "")
        log.cpus = self._cpu_count()
        boots = [f"{date} {time}" for date, time in _BOOT.findall(self._after)]
        ends_s = logs.stamps(pa.array(boots, pa.string()), "%Y-%m-%d %H:%M:%S")
        log.restarts = [
            int(row) for row in np.searchsorted(log.times_s, ends_s[np.isfinite(ends_s)])
        ]
        cpus = self._options.cpus
        if log.cpus is None and cpus and log.columns.keys() & set(series.CPU_COLUMNS):
            log.caveats.append(series.cpus_taken(cpus))
        log.caveats += [series.LOCAL_TIMES] if self._is_local else []
        log.caveats += [INTERRUPTS_IN_SYSTEM] if self._with_interrupts else []
        return log

    def _cpu_count(self) -> float | None:
        number = self._host.get("number-of-cpus")
        return float(number) if isinstance(number, int) and number > 0 else None

    def _sample_blocks(self) -> Iterator[bytes]:
        """Yield samples, one a line, some megabytes at a time."""
        rest, begun = b"", False
        for piece in self._source.pieces():
            rest += piece.translate(None, _LAYOUT)
            starts = [match.start() for match in _SAMPLE.finditer(rest)]
            if starts and not begun:
                self._host, begun = self._read_host(rest[: starts[0]]), True
            if len(starts) > 1:
                yield b"\n".join(
                    _without_single_cpus(rest[start:end].rstrip(b" ,"))
                    for start, end in itertools.pairwise(starts)
                )
            rest = rest[starts[-1] :] if starts else rest
            if len(rest) > _LONGEST_SAMPLE:
                raise MeasurementError(
                    f"{self._source.name}: no end of a sample within {_LONGEST_SAMPLE >> 20} MiB: "
                    "not written by sadf -j"
                )
        if not begun:
            self._host = self._read_host(rest)
        elif last := self._split_last_sample(rest):
            yield last

    def _read_host(self, head: bytes) -> dict[str, Any]:
        """Read what stands before the first sample, as if the document ended there."""
        text = head + b"]}]}}" if _STATISTICS.search(head) else head
        try:
            hosts = json.loads(text)["sysstat"]["hosts"]
            found = hosts[0] if isinstance(hosts, list) and hosts else {}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MeasurementError(
                f"{self._source.name}: does not begin as sadf -j writes it: {error}"
            ) from error
        return found if isinstance(found, dict) else {}

    def _split_last_sample(self, rest: bytes) -> bytes:
        """Return the last sample, and keep what is behind it aside."""
        text = rest.decode("utf-8", errors="replace")
        try:
            _, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            self._source.truncated = True
            return b""
        self._after = text[end:]
        self._source.truncated |= not self._after.rstrip().endswith("}")
        return text[:end].encode()

    def _add_samples(self, lines: bytes) -> None:
        table = self._parse_samples(lines)
        stamp = _struct_fields(table.column("timestamp"))
        times_s = self._utc_seconds(stamp)
        # What overflows is left out below.
        with np.errstate(over="ignore", invalid="ignore"):
            columns = self._make_columns(table)
        odd = np.zeros(len(times_s), bool)
        for numbers in columns.values():
            odd |= logs.drop_absurd(numbers)
        intervals_s = _to_floats(stamp["interval"])
        logs.drop_absurd(intervals_s)
        self._log.add(times_s, columns, odd, intervals_s)

    def _parse_samples(self, lines: bytes) -> pa.Table:
        if not lines.isascii():
            lines = lines.decode("utf-8", errors="replace").encode()
        # A sample must lie within two blocks.
        block_size = max(1 << 20, 2 * max(map(len, lines.split(b"\n"))))
        reading = arrow_json.ReadOptions(block_size=block_size)
        parsing = arrow_json.ParseOptions(self._schema, unexpected_field_behavior="ignore")
        try:
            return arrow_json.read_json(pa.BufferReader(lines), reading, parsing)
        except pa.ArrowException as error:
            raise MeasurementError(
                f"{self._log.source}: its statistics are not those of sadf -j: "
                f"{' '.join(str(error).split())}"
            ) from error

    def _utc_seconds(self, stamp: dict[str, pa.Array]) -> logs.Numbers:
        text = pc.binary_join_element_wise(stamp["date"], stamp["time"], " ")
        clock = logs.stamps(text, "%Y-%m-%d %H:%M:%S")
        local = _to_floats(stamp["utc"]) == 0
        if not local.any():
            return clock
        zone = self._options.timezone
        self._is_local |= zone is None and self._host.get("timezone") != "UTC"
        return np.where(local, logs.to_utc(clock, zone), clock)

    def _make_columns(self, table: pa.Table) -> logs.Columns:
        found: logs.Columns = {}
        parts = {name: table.column(name) for name in table.column_names}
        if "cpu-load" in parts:
            cpus = self._cpu_count() or self._options.cpus
            self._with_interrupts |= _add_cpu_times(found, parts["cpu-load"], cpus)
        for group, known in HOST.items():
            if group in parts:
                found |= _scale_fields(parts[group], known)
        if "memory" in parts:
            found |= _memory_total(_struct_fields(parts["memory"]))
        page_bytes = _PAGE_BYTES.get(str(self._host.get("machine")))
        if "swap-pages" in parts and page_bytes:
            columns = {"pswpin": "swap_in_bytes", "pswpout": "swap_out_bytes"}
            pages = {name: logs.Field(column, page_bytes) for name, column in columns.items()}
            found |= _scale_fields(parts["swap-pages"], pages)
        if "io" in parts:
            for group, part in _struct_fields(parts["io"]).items():
                found |= _scale_fields(part, IO[group])
        if "disk" in parts:
            found |= self._device_columns(parts["disk"], "disk-device", DISK_BEFORE)
            found |= self._device_columns(parts["disk"], "disk-device", DISK)
        if "network" in parts:
            lists = _struct_fields(parts["network"])
            found |= self._device_columns(lists["net-dev"], "iface", INTERFACE)
            found |= self._device_columns(lists["net-edev"], "iface", INTERFACE_ERRORS)
        return {
            name: numbers
            for name, numbers in found.items()
            if self._options.needs(series.split_device(name)[0]) and not np.isnan(numbers).all()
        }

    def _device_columns(
        self, lists: pa.Array | pa.ChunkedArray, key: str, known: Mapping[str, logs.Field]
    ) -> logs.Columns:
        """Make the columns of each device of a list of devices in each row."""
        rows, names, numbers = _flatten_entries(lists, key)
        found: logs.Columns = {}
        labels, codes = np.unique(names.astype(str), return_inverse=True)
        self._source.check_table(max(len(lists), len(names)), len(labels))
        for code, device in enumerate(labels):
            chosen = codes == code
            for name, (column, factor) in known.items():
                part = numbers[name][chosen] * factor
                if device in ("", "None") or np.isnan(part).all():
                    continue
                total = found.setdefault(
                    series.of_device(column, device), np.full(len(lists), np.nan)
                )
                at = rows[chosen]
                total[at] = np.where(np.isnan(total[at]), part, total[at] + part)
        return found


def _without_single_cpus(sample: bytes) -> bytes:
    """Cut the single CPUs out of a sample where their sum stands before them."""
    together = _ALL_CPUS.search(sample)
    if together is None:
        return sample
    end = sample.find(b"}", together.end()) + 1
    rest = sample.find(b"]", end)
    return sample[:end] + sample[rest:] if 0 < end < rest else sample


def _wanted_schema(options: logs.Options) -> pa.Schema:
    """Fields of a sample to read; the rest is passed over."""
    number, text = pa.float64(), pa.string()

    def struct(names: Any, *texts: str) -> pa.DataType:
        return pa.struct([(n, text) for n in texts] + [(n, number) for n in names])

    def needs_any(*tables: Mapping[str, logs.Field]) -> bool:
        return any(options.needs(field.column) for table in tables for field in table.values())

    parts = {"timestamp": struct(["utc", "interval"], "date", "time")}
    if needs_any(CPU):
        parts["cpu-load"] = pa.list_(struct(CPU, "cpu"))
    for group, known in HOST.items():
        more = ("memused", "memused-percent", "slab") if group == "memory" else ()
        if needs_any(known) or (more and options.needs("memory_total_bytes")):
            parts[group] = struct([*known, *more])
    if options.needs("swap_in_bytes") or options.needs("swap_out_bytes"):
        parts["swap-pages"] = struct(["pswpin", "pswpout"])
    if needs_any(*IO.values()):
        parts["io"] = pa.struct([(name, struct(known)) for name, known in IO.items()])
    if needs_any(DISK):
        parts["disk"] = pa.list_(struct([*DISK, *DISK_BEFORE], "disk-device"))
    if needs_any(INTERFACE, INTERFACE_ERRORS):
        both = {"net-dev": INTERFACE, "net-edev": INTERFACE_ERRORS}
        lists = [(name, pa.list_(struct(known, "iface"))) for name, known in both.items()]
        parts["network"] = pa.struct(lists)
    return pa.schema(list(parts.items()))


def _to_floats(column: pa.Array | pa.ChunkedArray) -> logs.Numbers:
    return np.array(column.to_numpy(zero_copy_only=False), dtype=float)


def _struct_fields(structs: pa.Array | pa.ChunkedArray) -> dict[str, pa.Array]:
    """Fields of structs, each as long as these."""
    whole = structs.combine_chunks() if isinstance(structs, pa.ChunkedArray) else structs
    return {field.name: part for field, part in zip(whole.type, whole.flatten(), strict=True)}


def _scale_fields(structs: pa.Array, known: Mapping[str, logs.Field]) -> logs.Columns:
    fields = {name: part for name, part in _struct_fields(structs).items() if name in known}
    return {known[n].column: _to_floats(part) * known[n].factor for n, part in fields.items()}


def _flatten_entries(lists: pa.Array | pa.ChunkedArray, key: str) -> tuple[Any, Any, logs.Columns]:
    """Entries of all lists below each other: their rows, their texts of ``key``, their numbers."""
    whole = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    rows = np.asarray(pc.list_parent_indices(whole), dtype=np.int64)
    numbers = _struct_fields(pc.list_flatten(whole))
    coded = numbers.pop(key).dictionary_encode()
    words = np.array([*coded.dictionary.to_pylist(), ""], dtype=object)
    codes = np.array(coded.indices.fill_null(len(words) - 1), dtype=np.int64)
    return rows, words[codes], {name: _to_floats(part) for name, part in numbers.items()}


def _add_cpu_times(found: logs.Columns, lists: pa.ChunkedArray, cpus: float | None) -> bool:
    """Add CPU seconds per second; True where interrupts are counted as system."""
    rows, names, shares = _flatten_entries(lists, "cpu")
    size = len(lists)
    together = names == "all"
    single = ~together & ~np.isin(rows, rows[together])
    # A row of all CPUs is a mean share; single CPUs are one each.
    for chosen, weight in ((together, cpus or np.nan), (single, 1.0)):
        for name, share in shares.items():
            known = chosen & ~np.isnan(share * weight)
            if not known.any():
                continue
            column, factor = CPU[name]
            summed = np.bincount(rows[known], share[known] * weight, size) * factor
            total = found.setdefault(column, np.full(size, np.nan))
            there = np.unique(rows[known])
            total[there] = np.nan_to_num(total[there]) + summed[there]
    if {"user_s", "guest_s"} <= found.keys() and not np.isnan(shares["usr"]).all():
        # Here guests are apart; the kernel counts them as user too. Guests at low priority belong
        # to nice, but together they are what runs tasks.
        found["user_s"] += np.nan_to_num(found["guest_s"])
    return not np.isnan(shares["system"]).all()


def _memory_total(memory: Mapping[str, pa.Array]) -> logs.Columns:
    """Memory of the host, which sadf does not write, from the parts that add up to it.

    Used memory is all but the free in sysstat 11, and all but free, buffers, cached and slab in
    sysstat 12; the share that is written beside it tells which.
    """
    part = {name: _to_floats(column) for name, column in memory.items()}
    used, share = part["memused"], part["memused-percent"] / 100
    before = part["memfree"] + used
    for total in (before, before + part["buffers"] + part["cached"] + part["slab"]):
        known = ~np.isnan(total)
        off = np.abs(used - share * total)
        if known.any() and (off[known] <= _ROUNDING / 100 * total[known] + 1).all():
            return {"memory_total_bytes": total * 1024.0}
    return {}
