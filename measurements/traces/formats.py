"""Published formats of block traces with a fixed layout, and libCacheSim's oracleGeneral."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measurements.errors import MeasurementError
from measurements.traces import requests as base, text_lines as text
from measurements.traces.requests import Array, Op, Requests

# 1601-01-01 to 1970-01-01, in seconds.
_FILETIME_TO_UNIX_S = 11_644_473_600
_MSR_FORM = text.form(
    "Timestamp:whole, Hostname, DiskNumber, Type, Offset:whole, Size:whole, ResponseTime:whole"
)


class Msr(text.HeadedReader):
    """MSR Cambridge: CSV, as published without a header; ticks of 100 ns since 1601; bytes.

    Source: Narayanan, Donnelly, Rowstron, "Write off-loading: practical power management for
    enterprise storage", FAST 2008; the traces' own README.
    """

    name = "msr"
    described = "MSR Cambridge CSV"
    line = r"\d{15,19},[^,]*,\d+,(?:read|write),\d+,\d+,\d+"
    form = _MSR_FORM
    ticks_per_s = 10**7
    epoch_ns = -_FILETIME_TO_UNIX_S * 10**9

    def _make_requests(self, row: Array, table: pa.Table) -> Requests:
        hosts = base.encode(table["Hostname"])
        return Requests.of(
            row,
            table["Timestamp"].to_numpy(),
            self.blocks(table["Offset"].to_numpy()),
            table["Size"].to_numpy(),
            text.read_or_write(table["Type"], row, {"read": Op.READ, "write": Op.WRITE}, "Type"),
            stream=self.names["stream"].codes_at(*hosts),
            device=self._disk_codes(hosts, base.encode(table["DiskNumber"])),
            latency_s=table["ResponseTime"].to_numpy() / self.ticks_per_s,
        )

    def _disk_codes(self, hosts: tuple[Array, list[str]], disks: tuple[Array, list[str]]) -> Array:
        """Name each disk of a host as the traces' files are called: hm_0."""
        (host, host_names), (disk, disk_names) = hosts, disks
        width = len(disk_names)
        if len(host_names) == width == 1:
            return self.names["device"].codes_at(host, [f"{host_names[0]}_{disk_names[0]}"])
        pair = host.astype(np.int64) * width + disk
        # Only pairs that occur have a name.
        present = np.bincount(pair, minlength=len(host_names) * width) > 0
        names = [f"{host_names[k // width]}_{disk_names[k % width]}" for k in present.nonzero()[0]]
        return self.names["device"].codes_at((np.cumsum(present) - 1)[pair], names)


_READ_WRITE: dict[str, int] = {"r": Op.READ, "w": Op.WRITE}


class Alibaba(text.HeadedReader):
    """Alibaba's block traces of 2020: CSV; microseconds; bytes; a device is a virtual disk.

    Source: Li and others, "An In-Depth Analysis of Cloud Block Storage Workloads in Large-Scale
    Production", IISWC 2020; the traces' own README.
    """

    name = "alibaba"
    described = "Alibaba block trace CSV"
    line = r"\d+,[rw],\d+,\d+,\d{14,17}"
    form = text.form("device_id, opcode, offset:whole, length:whole, timestamp:whole")
    ticks_per_s = 10**6
    epoch_ns = 0

    def _make_requests(self, row: Array, table: pa.Table) -> Requests:
        columns = (table[name].to_numpy() for name in ("timestamp", "offset", "length"))
        time, offset, length = columns
        op = text.read_or_write(table["opcode"], row, _READ_WRITE, "opcode")
        device = self.names["device"].codes(table["device_id"])
        return Requests.of(row, time, self.blocks(offset), length, op, device=device)


class Tencent(text.HeadedReader):
    """Tencent's block traces of 2018: CSV; whole seconds; sectors of 512 bytes; 0 is a read.

    Source: Zhang and others, "OSCA: An Online-Model Based Cache Allocation Scheme in Cloud Block
    Storage Systems", USENIX ATC 2020; the traces' own README.
    """

    name = "tencent"
    described = "Tencent block trace CSV (0 is a read)"
    line = r"\d{10},\d+,\d+,[01],\d+"
    form = text.form("Timestamp:whole, Offset:whole, Size:whole, IOType, VolumeID")
    epoch_ns = 0

    def _make_requests(self, row: Array, table: pa.Table) -> Requests:
        time, lbn, sectors = (table[name].to_numpy() for name in ("Timestamp", "Offset", "Size"))
        far = "{} sectors are beyond 2^63 bytes"
        base.refuse_first(sectors >= 2**54, row, lambda at: far.format(sectors[at]))
        op = text.read_or_write(table["IOType"], row, {"0": Op.READ, "1": Op.WRITE}, "IOType")
        device = self.names["device"].codes(table["VolumeID"])
        self.note("{n} requests have arrival times in whole seconds", len(row))
        return Requests.of(row, time, lbn, sectors * base.BLOCK_BYTES, op, device=device)


class Systor(text.HeadedReader):
    """Traces of Systor '17: CSV; seconds, exact to a microsecond; bytes; a device is a LUN.

    Source: Lee and others, "Understanding Storage Traffic Characteristics on Enterprise Virtual
    Desktop Infrastructure", SYSTOR 2017; the traces' own README.
    """

    name = "systor17"
    described = "Systor '17 CSV"
    line = r"\d{10}\.\d+,[\d.]*,[rw]?,\d+,\d+,\d+"
    form = text.form("Timestamp:number, Response:number, IOType, LUN, Offset:whole, Size:whole")
    epoch_ns = 0

    def _make_requests(self, row: Array, table: pa.Table) -> Requests:
        offset, size = (table[name].to_numpy() for name in ("Offset", "Size"))
        time, latency_s = (table[name].to_numpy() for name in ("Timestamp", "Response"))
        op = base.operations(table["IOType"], _READ_WRITE)
        self.note("{n} requests without an operation are left out", op == Op.OTHER)
        device = self.names["device"].codes(table["LUN"])
        recorded = {"device": device, "latency_s": latency_s}
        return Requests.of(row, time, self.blocks(offset), size, op, **recorded).drop_others()


class Spc(text.FieldReader):
    """SPC: CSV without a header; seconds; blocks of 512 bytes, size in bytes; a device is an ASU.

    Source: Storage Performance Council, "SPC Trace File Format Specification", revision 1.0.1; as
    the UMass Trace Repository's Financial and WebSearch traces.
    """

    name = "spc"
    described = "SPC (ASU,LBA,Size,Opcode,Timestamp)"
    begins = re.compile(rb"\s*\d+,\s*\d+,\s*\d+,\s*[rw],\s*[\d.]+(?:e[-+]?\d+)?\s*$", re.I | re.M)
    form = text.form("ASU, LBA:whole, Size:whole, Opcode, Timestamp:number")

    def _make_requests(self, row: Array, table: pa.Table) -> Requests:
        time, lbn, size = (table[name].to_numpy() for name in ("Timestamp", "LBA", "Size"))
        op = text.read_or_write(table["Opcode"], row, {"r": Op.READ, "w": Op.WRITE}, "Opcode")
        device = self.names["device"].codes(table["ASU"])
        return Requests.of(row, time, lbn, size, op, device=device)


class MqSim(text.FieldReader):
    """MQSim's ASCII traces: nanoseconds; sectors of 512 bytes; 1 is a read.

    Source: Tavakkol and others, "MQSim: A Framework for Enabling Realistic Studies of Modern
    Multi-Queue SSD Devices", FAST 2018; the columns are those of DiskSim's ASCII format.
    """

    name = "mqsim"
    described = "MQSim ASCII (type 1 is a read)"
    begins = re.compile(rb"\s*\d+[ \t]+\d+[ \t]+\d+[ \t]+\d+[ \t]+[01][ \t]*\r?$", re.M)
    form = text.form("arrival (ns):whole, device, start LBA:whole, sectors:whole, type", " ")
    ticks_per_s = 10**9

    def _make_requests(self, row: Array, table: pa.Table) -> Requests:
        columns = (table[name].to_numpy() for name in ("arrival (ns)", "start LBA", "sectors"))
        time, lbn, sectors = columns
        far = "{} sectors are beyond 2^63 bytes"
        base.refuse_first(sectors >= 2**54, row, lambda at: far.format(sectors[at]))
        op = text.read_or_write(table["type"], row, {"1": Op.READ, "0": Op.WRITE}, "type")
        device = self.names["device"].codes(table["device"])
        return Requests.of(row, time, lbn, sectors * base.BLOCK_BYTES, op, device=device)


# Of the actions, only a wait is no operation.
_IOLOG_OPERATIONS = {
    "read": Op.READ,
    "write": Op.WRITE,
    "trim": Op.DISCARD,
    **dict.fromkeys(("sync", "datasync", "sync_file_range"), Op.FLUSH),
}
_WAITS = "{n} waits are read as fio replays them: milliseconds since the start"
_FILE_ACTION = r"\S+[ \t]+(?:add|open|close|unlink)\s*$"
_IOLOG_LINE = (
    rf"(?P<file>\S+)[ \t]+(?P<action>{'|'.join(_IOLOG_OPERATIONS)}|wait)"
    r"(?:[ \t]+(?P<offset>\d+)(?:[ \t]+(?P<length>\d+))?)?"
)


class Iolog2(base.TraceReader):
    """fio's iolog version 2: file, action, offset, length in bytes; times only from waits.

    fio replays a wait as milliseconds since the start of the job (fio 3.33 does; its manual says
    microseconds since the previous wait).

    Source: fio's manual, "Trace file format", and its iolog.c.
    """

    name = "iolog-2"
    described = "fio iolog version 2"
    begins = re.compile(rb"fio version 2 iolog")
    prefix: ClassVar[str] = ""
    ticks_per_s = 1000
    _waited = 0

    def __iter__(self) -> Iterator[Requests]:
        for lines in text.filled_lines(self.path):
            kept = lines.take((lines.row > 1) & ~lines.matches(self.prefix + _FILE_ACTION))
            matched, parts = kept.extract(self.prefix + _IOLOG_LINE)
            kept.refuse_first(~matched, f"no line of a {self.described}")
            if len(kept.row):
                yield self._make_requests(kept.row, parts)

    def _make_requests(self, row: Array, parts: pa.StructArray) -> Requests:
        op = base.operations(parts.field("action"), _IOLOG_OPERATIONS)
        offset = text.whole(parts.field("offset"), row, "offset")
        length = text.whole(parts.field("length"), row, "length")
        time = self._request_times(parts, row, offset, op)
        name = self.names["file"].codes(parts.field("file"))
        self.names["device"] = self.names["file"]
        found = Requests.of(row, time, self.blocks(offset), length, op, device=name, file=name)
        return found.drop_others()

    def _request_times(self, parts: pa.StructArray, row: Array, offset: Array, op: Array) -> Array:
        """Time of each request: the longest wait before it, since fio waits until then."""
        until = np.where(op == Op.OTHER, offset, 0)
        until[0] = max(until[0], self._waited)
        time = np.maximum.accumulate(until)
        self._waited = int(time[-1])
        self.note(_WAITS, op == Op.OTHER)
        return time


class Iolog3(Iolog2):
    """fio's iolog version 3: each line begins with microseconds since the start."""

    name = "iolog-3"
    described = "fio iolog version 3"
    begins = re.compile(rb"fio version 3 iolog")
    prefix = r"(?P<time>\d+)[ \t]+"
    ticks_per_s = 10**6

    def _request_times(self, parts: pa.StructArray, row: Array, offset: Array, op: Array) -> Array:
        mixed = "version 3 has no wait lines: are two logs mixed?"
        base.refuse_first(op == Op.OTHER, row, lambda _: mixed)
        return text.whole(parts.field("time"), row, "time")


_ETW_FIELDS = {
    "TimeStamp": r"(?P<time>\d+)",
    "Process Name ( PID)": r"(?P<process>[^,]*\(\s*\d+\))",
    "ByteOffset": r"(?P<offset>0x[0-9a-fA-F]+)",
    "IOSize": r"(?P<size>0x[0-9a-fA-F]+)",
    "ElapsedTime": r"(?P<elapsed>\d+)",
    "DiskNum": r"(?P<disk>\d+)",
    "FileName": r"(?P<file>\"[^\"]*\"|[^,]*?)",
}
_ETW_NEEDED = ("TimeStamp", "ByteOffset", "IOSize", "ElapsedTime")
_ETW_FLUSH_HEADER = re.compile(rb"^[^\S\n]*DiskFlush,(.*TimeStamp.*)$", re.MULTILINE)
_ETW_END = re.compile(rb"^[^\S\n]*EndHeader[^\n]*\n?", re.MULTILINE)
_ETW_EVENT = r"\s*[A-Za-z][\w/ .:()-]*,"
_ETW_OPERATIONS = {"read": Op.READ, "write": Op.WRITE, "flush": Op.FLUSH}


class Etw(base.TraceReader):
    """Disk events of Windows as ``xperf -a dumper`` writes them of a trace, as DiskSpd's ``-e``.

    A line is written when its request completes: it arrived ElapsedTime microseconds before.
    Offset and size are hexadecimal numbers of bytes.

    Source: the header that the dumper writes; SNIA IOTTA's Microsoft Production Server traces.
    """

    name = "etw"
    described = "ETW CSV (xperf's dumper)"
    # The header line of the events, after those of others.
    begins = re.compile(rb"(?s:.*?)^[^\S\n]*DiskRead,(.*TimeStamp.*ByteOffset.*)$", re.MULTILINE)
    ticks_per_s = 10**6

    def __iter__(self) -> Iterator[Requests]:
        begin = base.head(self.path)
        transfer, flush = self._event_patterns(begin)
        end = _ETW_END.search(begin)
        skipped = begin.count(b"\n", 0, end.end()) if end else 0
        for lines in text.filled_lines(self.path):
            yield self._parse_block(lines.take(lines.row > skipped), transfer, flush)

    def _event_patterns(self, begin: bytes) -> tuple[str, str]:
        """Patterns of a transfer and of a flush, by the header's names of their fields."""
        headers = self.begins.match(begin), _ETW_FLUSH_HEADER.search(begin)
        lines = (
            header[1].decode(errors="replace").split(",") if header else [] for header in headers
        )
        names, flush_names = ([name.strip() for name in line] for line in lines)
        if missing := [name for name in _ETW_NEEDED if name not in names]:
            raise MeasurementError(
                f"{self.path}: its header has no DiskRead line with "
                f"{', '.join(missing)}: export it with xperf -i FILE.etl -a dumper"
            )
        for line in (names, flush_names):
            if twice := [name for name in _ETW_FIELDS if line.count(name) > 1]:
                raise MeasurementError(
                    f"{self.path}: its header names {twice[0]} twice: keep one of "
                    "them, and export the trace again"
                )
        return _etw_pattern("Read|Write", names), _etw_pattern("Flush", flush_names)

    def _parse_block(self, lines: text.TextLines, transfer: str, flush: str) -> Requests:
        """Parse the disk events of a block of lines."""
        lines.refuse_first(~lines.matches(_ETW_EVENT), "no event of a dumper")
        # The header's own lines name their columns.
        events = lines.take(
            lines.matches(r"\s*Disk(Read|Write|Flush),") & ~lines.matches(r"\s*\w+,\s*TimeStamp,")
        )
        self.notes["{n} lines of other events are left out"] += len(lines.row) - len(events.row)
        is_transfer, transfers = events.extract(transfer)
        is_flush, flushes = events.extract(flush)
        events.refuse_first(~(is_transfer | is_flush), "its fields are not those of the header")
        rows = events.row[is_transfer], events.row[is_flush & ~is_transfer]
        both = base.concatenate([*map(self._make_requests, rows, (transfers, flushes))])
        return both.take(np.argsort(both.row, kind="stable"))

    def _make_requests(self, row: Array, parts: pa.StructArray) -> Requests:
        column = {field.name: parts.field(field.name) for field in parts.type}
        # Of a flush, the header may name fewer fields.
        zeros = pa.array(["0"] * len(row), pa.string())
        elapsed = text.whole(column.get("elapsed", zeros), row, "ElapsedTime")
        arrival = text.whole(column.get("time", zeros), row, "TimeStamp") - elapsed
        self.note(
            "{n} requests began before the trace; their time is set to its start", arrival < 0
        )
        offset = _parse_hexadecimal(column.get("offset", zeros), row, "ByteOffset")
        return Requests.of(
            row,
            np.maximum(arrival, 0),
            self.blocks(offset),
            _parse_hexadecimal(column.get("size", zeros), row, "IOSize"),
            base.operations(column["kind"], _ETW_OPERATIONS),
            stream=self._name_codes("stream", column.get("process")),
            device=self._name_codes("device", column.get("disk")),
            latency_s=elapsed / 1e6,
            file=self._name_codes("file", column.get("file")),
        )

    def _name_codes(self, name: str, column: pa.Array | None) -> Array | None:
        if column is None:
            return None
        trimmed = pc.utf8_trim(column, ' "')
        return self.names[name].codes(pc.replace_substring_regex(trimmed, r"\s+\(\s*", " ("))


def _etw_pattern(kinds: str, names: list[str]) -> str:
    fields = [_ETW_FIELDS.get(name, r"[^,]*?") for name in names]
    return rf"\s*Disk(?P<kind>{kinds})," + ",".join(rf"\s*{field}\s*" for field in fields)


def _parse_hexadecimal(column: pa.Array, row: Array, name: str) -> Array:
    try:
        # Arrow reads 0x and up to 16 digits.
        numbers = column.cast(pa.uint64()).to_numpy(zero_copy_only=False)
        far = numbers >= 2**63
    except pa.ArrowInvalid:
        digits = pc.utf8_length(column).to_numpy(zero_copy_only=False)
        far = digits == digits.max()
    base.refuse_first(far, row, lambda at: f"{name} {column[at]} is beyond 2^63")
    return cast("Array", numbers.astype(np.int64))


# SCSI operation codes (SBC-3): commands of 6, 10, 12 and 16 bytes have codes of their own. Of an
# UNMAP or WRITE SAME the record does not say which blocks it reaches.
_SCSI_OPERATIONS = np.full(1 << 16, Op.OTHER, np.uint8)
_SCSI_OPERATIONS[[0x08, 0x28, 0xA8, 0x88]] = Op.READ
_SCSI_OPERATIONS[[0x0A, 0x2A, 0xAA, 0x8A, 0x2E, 0xAE, 0x8E]] = Op.WRITE
_SCSI_OPERATIONS[[0x35, 0x91]] = Op.FLUSH
_RECORDS_AT_ONCE = 1 << 19
_RECORDS_TO_RECOGNISE = 16


class Vscsi1(base.TraceReader):
    """CloudPhysics' vscsi, version 1: little-endian records; bytes, lbn of 512 bytes, microseconds.

    Source: the record layouts of libCacheSim's and PyMimircache's readers of these traces,
    published with Waldspurger and others, "Efficient MRC Construction with SHARDS", FAST 2015.
    """

    name = "vscsi-1"
    described = "vscsi version 1, 32-byte records"
    unit = "record"
    ticks_per_s = 10**6
    version: ClassVar[int] = 1
    record: ClassVar[np.dtype[np.void]] = base.record_layout(
        "serial u4, length u4, segments u4, command u2, version u2, lbn u8, time_us u8"
    )

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether all of the first records are of this version and of known commands."""
        count = min(len(head) // cls.record.itemsize, _RECORDS_TO_RECOGNISE)
        records = np.frombuffer(head, cls.record, count)
        known = _SCSI_OPERATIONS[records["command"]] != Op.OTHER
        return count > 0 and bool((known & (records["version"] >> 8 == cls.version)).all())

    def __iter__(self) -> Iterator[Requests]:
        size, done = self.record.itemsize, 0
        with base.open_unpacked(self.path) as file:
            while block := file.read(size * _RECORDS_AT_ONCE):
                if cut := len(block) % size:
                    raise MeasurementError(
                        f"{self.path}: record {done + len(block) // size + 1} is cut short, "
                        f"{cut} of {size} bytes: copy the file again, or cut it to whole records"
                    )
                records = np.frombuffer(block, self.record)
                yield self._make_requests(records, np.arange(done + 1, done + 1 + len(records)))
                done += len(records)

    def _make_requests(self, records: Array, row: Array) -> Requests:
        version, time = records["version"] >> 8, records["time_us"]
        expected = f"not {self.version}: is the file whole, and of one format?"
        mixed = version != self.version
        base.refuse_first(mixed, row, lambda at: f"its version is {version[at]}, {expected}")
        base.refuse_first(time >= 2**63, row, lambda at: f"its time {time[at]} is beyond 2^63")
        op = _SCSI_OPERATIONS[records["command"]]
        other = "{n} SCSI commands that are no read, write or flush are left out"
        self.note(other, op == Op.OTHER)
        latency_s = records["response_us"] / 1e6 if self.version > 1 else None
        numbers = time.astype(np.int64), records["lbn"], records["length"].astype(np.int64)
        return Requests.of(row, *numbers, op, latency_s=latency_s).drop_others()


class Vscsi2(Vscsi1):
    """CloudPhysics' vscsi, version 2, which also has the response time."""

    name = "vscsi-2"
    described = "vscsi version 2, 40-byte records"
    version = 2
    record = base.record_layout(
        "command u2, version u2, serial u4, length u4, segments u4, lbn u8, time_us u8,"
        "response_us u8"
    )


# A device stands above so many bits of the block in an object id.
_DEVICE_SHIFT, _MOST_DEVICES = 44, 512
_NEVER = -1, 2**63 - 1
_WRITTEN = ("time_s", "device", "lbn", "size_bytes")
_LEAST_RECORDS, _RECORDS_AT_ONCE = 2, 1 << 19


class OracleGeneral(base.TraceReader):
    """libCacheSim's oracleGeneral: binary records of an object and when it is accessed again.

    An object is a request's block of 512 bytes, with its device above 44 bits. There are whole
    seconds and no operations: all requests are read as reads. Next accesses are indices of
    requests from 0; -1 for none.

    Source: libCacheSim's reader of this format, and its documentation.
    """

    name = "oracle-general"
    described = "libCacheSim's oracleGeneral, 24-byte records"
    unit = "record"
    record: ClassVar[np.dtype[np.void]] = base.record_layout("time u4, object u8, size u4, next i8")

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether times rise and next accesses come later, in all of the first records."""
        count = len(head) // cls.record.itemsize
        records = np.frombuffer(head, cls.record, count)
        later, time = records["next"], records["time"].astype(np.int64)
        is_next = np.isin(later, _NEVER) | ((later > np.arange(count)) & (later < 2**40))
        return count >= _LEAST_RECORDS and bool(is_next.all() and (np.diff(time) >= 0).all())

    def __iter__(self) -> Iterator[Requests]:
        size, done = self.record.itemsize, 0
        with base.open_unpacked(self.path) as file:
            while block := file.read(size * _RECORDS_AT_ONCE):
                if len(block) % size:
                    raise MeasurementError(
                        f"{self.path}: record {done + len(block) // size + 1} is cut short: copy "
                        "the file again, or cut it to whole records"
                    )
                records = np.frombuffer(block, self.record)
                yield self._make_requests(records, np.arange(done + 1, done + 1 + len(records)))
                done += len(records)

    def _make_requests(self, records: Array, row: Array) -> Requests:
        hashed = "object {} is no address of a block: its trace has names, not addresses"
        far = records["object"] >= _MOST_DEVICES << _DEVICE_SHIFT
        base.refuse_first(far, row, lambda at: hashed.format(records["object"][at]))
        self.note(
            "{n} requests have whole seconds and no operation: all are reads", np.ones(len(row))
        )
        objects, size = (records[name].astype(np.int64) for name in ("object", "size"))
        lbn, device = objects & ((1 << _DEVICE_SHIFT) - 1), objects >> _DEVICE_SHIFT
        op = np.full(len(row), Op.READ, np.uint8)
        return Requests.of(row, records["time"].astype(np.int64), lbn, size, op, device=device)


def write_oracle_general(batches: Iterable[pa.RecordBatch], path: Path) -> tuple[int, float]:
    """Write requests that move data; return their number, and the arrival (s) of the last.

    Raises `MeasurementError` for what the records cannot hold.
    """
    columns = []
    for batch in batches:
        kept = batch.filter(pc.less(batch["op"], int(Op.DISCARD)))
        columns.append(
            [kept[name].to_numpy() for name in ("time_s", "device", "lbn", "size_bytes")]
        )
    time_s, device, lbn, size = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    limits = (
        (np.isnan(time_s), "a request without an arrival time"),
        (device >= _MOST_DEVICES, f"more than {_MOST_DEVICES} devices"),
        ((lbn >= 1 << _DEVICE_SHIFT) | (size >= 2**32), "an address or size beyond its limits"),
    )
    for bad, reason in limits:
        if bad.any():
            raise MeasurementError(f"{path}: oracleGeneral cannot hold {reason}")
    records = np.zeros(len(lbn), OracleGeneral.record)
    records["time"], records["size"] = time_s, size
    records["object"] = device.astype(np.int64) << _DEVICE_SHIFT | lbn
    # Accesses to one object are neighbours in this order, and stay in order of time.
    order = np.argsort(records["object"], kind="stable")
    again = records["object"][order][1:] == records["object"][order][:-1]
    records["next"] = -1
    records["next"][order[:-1][again]] = order[1:][again]
    path.write_bytes(records.tobytes())
    return len(records), float(time_s[-1]) if len(time_s) else float("nan")
