"""``sadf -j`` of sysstat 11 and 12, streamed: any activities, all CPUs together or each."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements.errors import MeasurementError
from measurements.timeseries import sadf as fields
from measurements.timeseries.delimited import Gathering, leave_out_absurd
from measurements.timeseries.log import Log, stamps, to_utc
from measurements.timeseries.sadf import CPU, KIB, Field
from measurements.timeseries.series import (
    CPU_COLUMNS,
    INTERRUPTS_IN_SYSTEM,
    LOCAL_TIMES,
    Finding,
    cpus_taken,
    left_out,
    of_device,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from measurements.timeseries.log import Source

    Numbers = NDArray[np.float64]
    from measurements.timeseries.log import Options, Selection


# The statistics of ``sadf -j`` as JSON lines, piece by piece, however long the document is.


# Every sample begins so; sadf writes nothing else with that name.
_SAMPLE = re.compile(rb'\{[ ]*"timestamp"')
_STATISTICS = re.compile(rb'"statistics"[ ]*:[ ]*\[[ ]*$')
_ALL_CPUS = re.compile(rb'"cpu-load"[ ]*:[ ]*\[[ ]*\{"cpu"[ ]*:[ ]*"all"')
_LAYOUT = b"\n\r\t"
_LONGEST_SAMPLE = 64 << 20


class SampleStream:
    """Samples of one document.

    Attributes
    ----------
    host : dict
        What stands before the samples: ``nodename``, ``number-of-cpus`` and so on.
    after : str
        What stands behind them, such as restarts.
    cut : bool
        Whether the document breaks off.
    """

    def __init__(self, source: Source) -> None:
        self.host: dict[str, Any] = {}
        self.after = ""
        self.cut = False
        self._source = source

    def lines(self) -> Iterator[bytes]:
        """Samples, one a line, some megabytes at a time.

        Raises
        ------
        MeasurementError
            When the document is not that of sadf.
        """
        rest, begun = b"", False
        for piece in self._source.pieces():
            text = rest + piece.translate(None, _LAYOUT)
            starts = [match.start() for match in _SAMPLE.finditer(text)]
            if not starts:
                self._refuse_endless(text)
                rest = text
                continue
            if not begun:
                self.host, begun = self._read_host(text[: starts[0]]), True
            rest = text[starts[-1] :]
            self._refuse_endless(rest)
            if len(starts) > 1:
                yield _joined(text, starts)
        if not begun:
            self.host = self._read_host(rest)
            return
        last = self._last(rest)
        if last:
            yield last

    def _refuse_endless(self, text: bytes) -> None:
        if len(text) > _LONGEST_SAMPLE:
            raise MeasurementError(
                f"{self._source.name}: no end of a sample within {_LONGEST_SAMPLE >> 20} MiB: "
                "not written by sadf -j"
            )

    def _read_host(self, head: bytes) -> dict[str, Any]:
        """Read what stands before the first sample, as if the document ended there."""
        opened = _STATISTICS.search(head)
        text = head + b"]}]}}" if opened else head
        try:
            hosts = json.loads(text)["sysstat"]["hosts"]
            found = hosts[0] if isinstance(hosts, list) and hosts else {}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MeasurementError(
                f"{self._source.name}: does not begin as sadf -j writes it: {error}"
            ) from error
        return found if isinstance(found, dict) else {}

    def _last(self, rest: bytes) -> bytes:
        """Return the last sample; what is behind it is kept aside."""
        text = rest.decode("utf-8", errors="replace")
        try:
            _, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            self.cut = True
            return b""
        self.after = text[end:]
        self.cut = not self.after.rstrip().endswith("}")
        return text[:end].encode()


def _joined(text: bytes, starts: list[int]) -> bytes:
    """All samples of a text but the last, one a line."""
    ends = starts[1:]
    samples = (text[a:b].rstrip(b", ") for a, b in zip(starts, ends, strict=False))
    return b"\n".join(map(_without_single_cpus, samples))


def _without_single_cpus(sample: bytes) -> bytes:
    """Cut the CPUs one by one out, where they are there together: most of a document is theirs."""
    together = _ALL_CPUS.search(sample)
    if together is None:
        return sample
    end = sample.find(b"}", together.end()) + 1
    rest = sample.find(b"]", end)
    return sample[:end] + sample[rest:] if 0 < end < rest else sample


# Columns of a series out of the nested tables that JSON of sadf becomes.


# Rounding of a percentage in a log.
_ROUNDING = 0.006


def plain(table: pa.Table, column: str) -> dict[str, pa.Array]:
    """Fields of a column of structs, each as long as the table."""
    whole = table.column(column).combine_chunks()
    return {field.name: part for field, part in zip(whole.type, whole.flatten(), strict=True)}


def host_cpu(table: pa.Table, cpus: float | None) -> tuple[dict[str, Numbers], bool]:
    """CPU seconds a second of the host, and whether interrupts are counted as system.

    From the row of all CPUs together; where a sample has none, from the CPUs one by one.
    """
    rows, name, shares = _entries(table.column("cpu-load"))
    size = table.num_rows
    together = name["cpu"] == "all"
    has_all = np.zeros(size, bool)
    has_all[rows[together]] = True
    single = ~together & ~has_all[rows]
    found: dict[str, Numbers] = {}
    # A row of all CPUs is a mean share; single CPUs are one each.
    for chosen, weight in ((together, cpus or np.nan), (single, 1.0)):
        if chosen.any():
            for field, numbers in shares.items():
                _add(found, CPU[field], numbers[chosen] * weight, rows[chosen], size)
    _add_guests(found, shares)
    for column in [column for column, numbers in found.items() if np.isnan(numbers).all()]:
        del found[column]
    return found, not np.isnan(shares["system"]).all()


def _add_guests(found: dict[str, Numbers], shares: Mapping[str, Numbers]) -> None:
    """Count guests as user too, as the kernel does, where the log kept them apart."""
    guests = found.get("guest_s")
    if guests is not None and "user_s" in found and not np.isnan(shares["usr"]).all():
        # Guests at low priority belong to nice; together they are what runs tasks.
        found["user_s"] += np.nan_to_num(guests)


def _add(
    found: dict[str, Numbers], field: Field, numbers: Numbers, rows: NDArray[np.int64], size: int
) -> None:
    known = ~np.isnan(numbers)
    if not known.any():
        return
    summed = np.bincount(rows[known], numbers[known], size) * field.factor
    there = np.bincount(rows[known], minlength=size) > 0
    column = found.setdefault(field.column, np.full(size, np.nan))
    column[there] = np.nan_to_num(column[there]) + summed[there]


def device_columns(
    lists: pa.Array | pa.ChunkedArray, key: str, known: Mapping[str, Field]
) -> dict[str, Numbers]:
    """Columns by device of a list of devices in each row."""
    rows, name, numbers = _entries(lists)
    size = len(lists)
    found: dict[str, Numbers] = {}
    labels, codes = np.unique(name[key].astype(str), return_inverse=True)
    for code, device in enumerate(labels):
        chosen = codes == code
        for field, made in known.items():
            part = numbers[field][chosen] * made.factor
            if device in ("", "None") or np.isnan(part).all():
                continue
            column = found.setdefault(of_device(made.column, device), np.full(size, np.nan))
            at = rows[chosen]
            column[at] = np.where(np.isnan(column[at]), part, column[at] + part)
    return found


def memory_total(memory: Mapping[str, pa.Array]) -> dict[str, Numbers]:
    """Memory of the host, which sadf does not write, from the parts that add up to it.

    Used memory is all but the free in sysstat 11, and all but free, buffers, cached and slab in
    sysstat 12; the share that is written beside it tells which.
    """
    part = {name: np.array(column, dtype=float) for name, column in memory.items()}
    used, share = part["memused"], part["memused-percent"] / 100
    before = part["memfree"] + used
    for total in (before, before + part["buffers"] + part["cached"] + part["slab"]):
        known = ~np.isnan(total)
        off = np.abs(used - share * total)
        if known.any() and (off[known] <= _ROUNDING / 100 * total[known] + 1).all():
            return {"memory_total_bytes": total * KIB}
    return {}


def _entries(
    lists: pa.Array | pa.ChunkedArray,
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.object_]], dict[str, Numbers]]:
    """Entries of all lists below each other: their rows, texts and numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    rows = np.asarray(pc.list_parent_indices(whole), dtype=np.int64)
    flat = pc.list_flatten(whole)
    texts, numbers = {}, {}
    for field, part in zip(flat.type, flat.flatten(), strict=True):
        if pa.types.is_string(field.type):
            coded = part.dictionary_encode()
            words = np.array([*coded.dictionary.to_pylist(), ""], dtype=object)
            codes = np.array(coded.indices.fill_null(len(words) - 1), dtype=np.int64)
            texts[field.name] = words[codes]
        else:
            numbers[field.name] = np.array(part.to_numpy(zero_copy_only=False), dtype=float)
    return rows, texts, numbers


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
