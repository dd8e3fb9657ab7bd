"""Block traces in files: tables with a header, any other format opened by its content, and writing.

Tables are CSV or Parquet: foreign ones, read by their columns, and Parquet as ppw writes it, which
reads back exactly.
"""

from __future__ import annotations

import csv as plain
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from measurements.errors import MeasurementError
from measurements.table import headers as table_headers
from measurements.table.units import Unit, split_unit
from measurements.table.writing import replace_whole
from measurements.traces import (
    blktrace,
    formats,
    requests as base,
    text_lines as text,
)
from measurements.traces.requests import SCHEMA, Array, Op, Trace, TraceReader

# What a column may stand for, and the unit it is in where its header says none.
TARGETS = {
    "time_s": "s",
    "stream": "",
    "device": "",
    "lbn": "block",
    "offset_bytes": "bytes",
    "size_bytes": "bytes",
    "blocks": "block",
    "op": "",
    "latency_s": "s",
    "file": "",
}
_NEEDED = (("time_s",), ("lbn", "offset_bytes"), ("size_bytes", "blocks"), ("op",))
# Other names of columns; those with a unit need one in the header, as "ts_us", "Length (KB)".
_SYNONYMS = {
    **dict.fromkeys(("operation", "rw", "r/w"), "op"),
    **dict.fromkeys(("lba", "sector", "offset_sectors", "offset_blocks"), "lbn"),
    **dict.fromkeys(("size_sectors", "size_blocks"), "blocks"),
}
_BASE_SYNONYMS = {
    **dict.fromkeys(("ts", "timestamp", "at"), "time"),
    **dict.fromkeys(("length", "len", "request size"), "size"),
    **dict.fromkeys(("address", "position"), "offset"),
    "response time": "latency",
}
_IN_SECTORS = re.compile(r".*(^|[\W_])sectors?[\W_]*", re.IGNORECASE)
_OPERATION_WORDS = {
    **dict.fromkeys(("r", "read", "rd", "diskread"), Op.READ),
    **dict.fromkeys(("w", "write", "wr", "diskwrite"), Op.WRITE),
    **dict.fromkeys(("d", "discard", "trim", "unmap"), Op.DISCARD),
    **dict.fromkeys(("f", "flush", "sync"), Op.FLUSH),
}
_ROWS_AT_ONCE = 1 << 20
_BOM = b"\xef\xbb\xbf"
_DELIMITERS = ",;\t"
# What Arrow raises of a damaged file, whose names and sizes may be anything.
_BROKEN = (pa.ArrowException, OSError, UnicodeError, MemoryError, OverflowError)


class TraceColumn(NamedTuple):
    """A column of the file: its header, and the factor to the target's unit."""

    header: str
    target: str
    factor: float

    @property
    def bytes_per_unit(self) -> float:
        """Bytes that a 1 in a column of sizes or offsets stands for."""
        return self.factor * (base.BLOCK_BYTES if TARGETS[self.target] == "block" else 1)


class _Table(base.TraceReader):
    """Requests by columns that the user maps, or whose names say what they are."""

    maps = True
    columns: dict[str, TraceColumn]
    operation_codes: dict[str, int]
    # Sizes that are no multiple of a block: many of them suggest another unit.
    _rows = _odd_sizes = 0

    def _make_requests(self, row: Array, table: pa.Table) -> base.Requests:
        column = {name: table[one.header].combine_chunks() for name, one in self.columns.items()}
        sizes = self._bytes_of_column("blocks" if "blocks" in column else "size_bytes", column, row)
        place = "offset_bytes" if "offset_bytes" in column else "lbn"
        latency = None
        if chosen := self.columns.get("latency_s"):
            seconds = _as_numbers(column["latency_s"], row, chosen.header, missing=True)
            latency = seconds * chosen.factor
        clock = self.columns["time_s"]
        time = _as_numbers(column["time_s"], row, clock.header)
        self._rows += len(row)
        self._odd_sizes += int(np.count_nonzero(sizes & (base.BLOCK_BYTES - 1)))
        return base.Requests.of(
            row,
            # In the file's own unit, or in seconds where that is longer.
            time * clock.factor if clock.factor > 1 else time,
            self.blocks(self._bytes_of_column(place, column, row)),
            sizes,
            self._operations_of_words(column["op"], row),
            latency_s=latency,
            **{name: self._name_codes(name, column[name]) for name in base.NAMED if name in column},
        )

    def doubts(self) -> Iterator[str]:
        """Yield a doubt about the unit of the sizes."""
        if 2 * self._odd_sizes > self._rows:
            size = self.columns.get("blocks") or self.columns["size_bytes"]
            each = size.bytes_per_unit
            unit = "bytes" if each == 1 else f"units of {each:.6g} bytes"
            yield (
                f"{self._odd_sizes} of {self._rows} sizes are no multiple of 512 bytes: is column "
                f"{size.header!r} in {unit}? Write its unit, as in --map size_kib={size.header!r}"
            )

    def _choose_columns(self, headers: Sequence[str]) -> None:
        self.columns, self.operation_codes = choose(headers, self.mapping, str(self.path))
        factor = self.columns["time_s"].factor
        self.ticks_per_s = round(1 / factor) if factor < 1 else 1

    def _bytes_of_column(self, target: str, column: Mapping[str, pa.Array], row: Array) -> Array:
        """Read sizes or offsets in bytes; refuse those below 0 or beyond 2^63."""
        chosen = self.columns[target]
        header, factor = chosen.header, chosen.bytes_per_unit
        values = _as_numbers(column[target], row, header)
        if values.dtype.kind == "f" or not float(factor).is_integer():
            # -1 stands for an offset that int64 cannot hold.
            scaled = np.rint(values * factor)
            found = np.where(np.abs(scaled) < 2**63, scaled, -1).astype(np.int64)
        else:
            far = values > (2**63 - 1) // int(factor)
            found = np.where(far, -1, values * np.int64(factor))
        beyond = (found < 0) & (values >= 0)
        base.refuse_first(beyond, row, lambda at: f"{header} {values[at]} is beyond 2^63 bytes")
        base.refuse_first(values < 0, row, lambda at: f"{header} {values[at]} is negative")
        return found

    def _operations_of_words(self, values: pa.Array, row: Array) -> Array:
        header = self.columns["op"].header
        _refuse_missing(values, row, f"{header} is empty")
        words = _cells_as_words(values)

        def reason(at: int) -> str:
            word = words[at].as_py()
            if word.strip().lstrip("-").isdigit():
                hint = f": say which code is a read and which a write, as in --map op={header}:0/1"
            else:
                hint = ", which is no operation: write read, write, discard or flush"
            return f"{header} is {word!r}{hint}"

        op = base.operations(words, self.operation_codes)
        base.refuse_first(op == Op.OTHER, row, reason)
        return op

    def _name_codes(self, name: str, column: pa.Array) -> Array:
        words = _cells_as_words(column)
        return self.names[name].codes(pc.fill_null(words, "") if words.null_count else words)


class CsvTable(_Table, text.FieldReader):
    """CSV (comma, semicolon or tab) with a header line."""

    name = "csv"
    described = "CSV with a header"

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether the first of several lines has three names or more, and none is a number."""
        first, _, rest = head.removeprefix(_BOM).partition(b"\n")
        try:
            names, _ = _split_header(first.decode())
        except UnicodeDecodeError:
            return False
        return bool(rest) and len(names) > 2 and not any(_is_number(name) for name in names)

    def __iter__(self) -> Iterator[base.Requests]:
        begin = base.head(self.path).removeprefix(_BOM).decode(errors="replace")
        headers, delimiter = _split_header(begin.partition("\n")[0])
        self._choose_columns(headers)
        self.form = text.Form(
            *(headers, [text.TEXT] * len(headers), delimiter),
            quoted=True,
            header_lines=1,
            wanted=tuple(chosen.header for chosen in self.columns.values()),
        )
        yield from super().__iter__()


class ParquetTable(_Table):
    """Parquet with columns that are mapped, or named as ours are."""

    name = "parquet"
    described = "Parquet"
    begins = re.compile(rb"PAR1")
    unit = "row"

    def __iter__(self) -> Iterator[base.Requests]:
        with _open_parquet(self.path) as file:
            self._choose_columns(file.schema_arrow.names)
            for row, batch in _batches(file, [chosen.header for chosen in self.columns.values()]):
                yield self._make_requests(row, pa.Table.from_batches([batch]))


class OwnParquet(base.TraceReader):
    """Parquet as `write_trace` makes it: read back as it is."""

    name = "ppw"
    described = "ppw's own Parquet"
    # Nothing: the metadata at the end of the file tell, see `is_own`.
    begins = re.compile(rb"(?!)")
    unit = "row"
    rebased = False
    numbered = True

    def __iter__(self) -> Iterator[base.Requests]:
        with _open_parquet(self.path) as file:
            self._take_metadata(file)
            constant = _constant_columns(file.metadata)
            for row, batch in _batches(file, [n for n in SCHEMA.names if n not in constant]):
                column = {name: values[: len(row)] for name, values in constant.items()}
                for name, values in zip(batch.schema.names, batch.columns, strict=True):
                    _refuse_missing(values, row, f"{name} is missing")
                    column[name] = values.to_numpy(zero_copy_only=False)
                yield base.Requests(row, *(column[name] for name in SCHEMA.names))

    def _take_metadata(self, file: pq.ParquetFile) -> None:
        metadata = own_metadata(file)
        if metadata is None or not base.has_columns(file.schema_arrow):
            raise MeasurementError(
                f"{self.path}: is no trace that ppw wrote: read it as format parquet, with --map"
            )
        names = metadata["names"]
        self.names = {name: base.NameCodes(names.get(name, ())) for name in base.NAMED}
        if metadata.get("start_unix_ns") is not None:
            # Times count from the first request, so this is its tick 0.
            self.epoch_ns = int(metadata["start_unix_ns"])


def own_metadata(file: pq.ParquetFile) -> dict[str, Any] | None:
    """Metadata that ppw wrote beside the columns, or None."""
    content = (file.metadata.metadata or {}).get(base.METADATA)
    try:
        found = json.loads(content) if content else None
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("names"), dict) else None


@contextmanager
def _open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except _BROKEN as error:
        first = " ".join(str(error).split())
        raise MeasurementError(f"{path}: is no whole Parquet file: {first[:120]}") from error


def _batches(file: pq.ParquetFile, columns: list[str]) -> Iterator[tuple[Array, pa.RecordBatch]]:
    """Yield row numbers, from 1, and the rows."""
    done = 0
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns):
        yield np.arange(done + 1, done + 1 + batch.num_rows), batch
        done += batch.num_rows


def _constant_columns(metadata: pq.FileMetaData) -> dict[str, Array]:
    """Columns of a single value by the file's statistics, as long as a chunk: need no reading."""
    found = {}
    for at, field in enumerate(SCHEMA):
        columns = (metadata.row_group(k).column(at) for k in range(metadata.num_row_groups))
        values = {_only_value(column, metadata.created_by) for column in columns}
        if len(values) == 1 and (value := values.pop()) is not None:
            rows = min(metadata.num_rows, _ROWS_AT_ONCE)
            found[field.name] = np.full(rows, value, field.type.to_pandas_dtype())
    return found


def _only_value(column: pq.ColumnChunkMetaData, written_by: str) -> float | None:
    """Value of all rows of a column, or None where they differ or the file does not say."""
    known = column.statistics if column.is_stats_set else None
    if known is None or known.null_count != 0 or not known.num_values:
        return None
    if column.physical_type != "DOUBLE":
        return int(known.min) if known.has_min_max and known.min == known.max else None
    # Arrow writes extremes of the numbers, and none where all are NaN.
    is_latency = column.path_in_schema == "latency_s"
    arrow = written_by.startswith("parquet-cpp-arrow")
    return np.nan if is_latency and arrow and not known.has_min_max else None


def choose(
    headers: Sequence[str], mapping: Mapping[str, str], source: str
) -> tuple[dict[str, TraceColumn], dict[str, int]]:
    """Choose the columns of a trace, by target, and the codes that stand for operations.

    ``mapping`` is from target (a key of `TARGETS`) to header. ``op`` may say which codes are a
    read and a write: ``Type:1/0``. Raises MeasurementError.
    """
    codes: dict[str, int] = dict(_OPERATION_WORDS)
    found: dict[str, TraceColumn] = {}
    for named, header in mapping.items():
        target = _mapped_target(named, header, source)
        if target in found:
            raise MeasurementError(f"{source}: --map names two columns for {target}: choose one")
        if target == "op":
            header, given = _operation_codes(header, headers, source)
            codes |= given
        if header not in headers:
            raise MeasurementError(
                f"{source}: --map names column {header!r}, which the table does "
                f"not have{table_headers.nearest(header, headers)}; the columns "
                f"are {table_headers.list_names(headers)}"
            )
        found[target] = _map_column(named, header, target, source)
    # A column by its own name comes before one that is often called so.
    for header in sorted(headers, key=lambda h: h.strip().lower() not in TARGETS):
        known = _target_of_header(header)
        same = {known, *(name for group in _NEEDED if known in group for name in group)}
        if known and not same & set(found):
            found[known] = TraceColumn(header, known, _unit_factor(header, known) or 1.0)
    if lacking := [names for names in _NEEDED if not any(target in found for target in names)]:
        wanted = ", ".join(" or ".join(names) for names in lacking)
        options = " ".join(f"--map {names[0]}=COLUMN" for names in lacking)
        raise MeasurementError(
            f"{source}: no column is {wanted}: name {'it' if len(lacking) == 1 else 'them'} with "
            f"{options}; the columns are {table_headers.list_names(headers)}"
        )
    return found, codes


def _mapped_target(named: str, header: str, source: str) -> str:
    """Column that --map names, in whatever unit: time_ms is time_s."""
    target = _target_of_header(named)
    if target is None:
        choices = f": choose among {', '.join(TARGETS)}"
        hint = table_headers.nearest(named, list(TARGETS)) or choices
        raise MeasurementError(f"{source}: --map {named}={header}: no column {named!r}{hint}")
    return target


def _target_of_header(header: str) -> str | None:
    """Column of a trace that a header names, in whatever unit; None for others."""
    name = header.strip().lower()
    if name in TARGETS or name in _SYNONYMS:
        return _SYNONYMS.get(name, name)
    quantity, unit = split_unit(header.strip())
    quantity = quantity.strip().lower().replace("_", " ")
    target = f"{_BASE_SYNONYMS.get(quantity, quantity)}_{unit.si}" if unit else ""
    return target if target in TARGETS else None


def _operation_codes(given: str, headers: Sequence[str], source: str) -> tuple[str, dict[str, int]]:
    """Split ``COLUMN:READ/WRITE`` of --map into the column and its codes."""
    header, colon, codes = given.rpartition(":")
    if not colon or given in headers:
        return given, {}
    read, slash, write = codes.partition("/")
    if not slash or not read or not write or read == write:
        raise MeasurementError(
            f"{source}: --map op={given}: give the codes of a read and a write, as in "
            f"op={header}:0/1"
        )
    return header, {read.strip().lower(): Op.READ, write.strip().lower(): Op.WRITE}


def _map_column(named: str, header: str, target: str, source: str) -> TraceColumn:
    wanted = TARGETS[target]
    own = _unit_factor(header, target, mapped=True)
    in_brackets = header.rstrip().endswith((")", "]")) and split_unit(header.strip())[1]
    if own is None and in_brackets and wanted:
        raise MeasurementError(
            f"{source}: --map {named}={header}: the column is not in {wanted}, by its header"
        )
    asked = _unit_factor(named, target) or 1.0
    factor = table_headers.mapped_factor(named, header, asked, own, target, source)
    return TraceColumn(header, target, factor)


def _unit_factor(header: str, target: str, *, mapped: bool = False) -> float | None:
    """Factor from the unit in a header to the target's own; None where it has none of the kind."""
    wanted = TARGETS[target]
    if not wanted:
        return None
    si = "bytes" if wanted == "block" else wanted
    unit = split_unit(header.strip())[1]
    # The header of a mapped column is anybody's: its unit may be any word of it.
    if mapped and (unit is None or unit.si != si):
        sectors = si == "bytes" and _IN_SECTORS.fullmatch(header)
        unit = Unit(si, base.BLOCK_BYTES) if sectors else table_headers.unit_in_words(header, si)
    if unit is None or unit.si != si:
        return None
    return unit.factor / base.BLOCK_BYTES if wanted == "block" else unit.factor


def _cells_as_words(values: pa.Array) -> pa.Array:
    """Read a column as words; of whole numbers, only the different ones become words."""
    if pa.types.is_integer(values.type):
        values = values.dictionary_encode()
    if not pa.types.is_dictionary(values.type):
        return values.cast(pa.string())
    words = values.dictionary.cast(pa.string())
    return pa.DictionaryArray.from_arrays(values.indices, words)


def _as_numbers(values: pa.Array, row: Array, header: str, *, missing: bool = False) -> Array:
    """Read a column as int64 where all are whole, else as float64."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = pc.utf8_trim_whitespace(values)
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    if not missing:
        _refuse_missing(values, row, f"{header} is empty")
    # Whole numbers stay whole: an old clock in ns has more digits than a double.
    for kind in (pa.float64(),) if missing else (pa.int64(), pa.float64()):
        try:
            return cast("Array", values.cast(kind).to_numpy(zero_copy_only=False))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    odd = np.array([not _is_number(value) for value in values.to_pylist()])
    base.refuse_first(odd, row, lambda at: f"{header} is {values[at].as_py()!r}, no number")
    raise base.BadRequestError(int(row[0]), f"{header} of this row, or one after it, is no number")


def _refuse_missing(values: pa.Array, row: Array, reason: str) -> None:
    if values.null_count:
        base.refuse_first(values.is_null().to_numpy(zero_copy_only=False), row, lambda _: reason)


def _split_header(line: str) -> tuple[list[str], str]:
    """Names of a header line, and what is between them."""
    delimiter = max(_DELIMITERS, key=line.count)
    try:
        names = next(plain.reader([line.rstrip("\r")], delimiter=delimiter), [])
    except plain.Error:
        names = []
    return [name.strip() for name in names], delimiter


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


# The most telling first: a CSV with a header is what is left.
READERS: tuple[type[TraceReader], ...] = (
    blktrace.Blktrace,
    formats.Iolog2,
    formats.Iolog3,
    OwnParquet,
    ParquetTable,
    formats.Etw,
    formats.Msr,
    formats.Alibaba,
    formats.Tencent,
    formats.Systor,
    formats.Spc,
    blktrace.Blkparse,
    formats.MqSim,
    formats.Vscsi1,
    formats.Vscsi2,
    formats.OracleGeneral,
    CsvTable,
)
FORMATS = {reader.name: reader for reader in READERS}


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    batch_requests: int = 1_000_000,
) -> Trace:
    """Open a block trace; nothing but its beginning is read before its batches are asked for.

    Parameters
    ----------
    path : path
        File, .gz or not; of blktrace's files one a CPU: their base name, folder, or any of them.
    format : str, optional
        msr, spc, blkparse, blkparse:FORMAT (as given to ``blkparse -f``), blktrace, iolog-2,
        iolog-3, vscsi-1, vscsi-2, mqsim, etw, alibaba, tencent, systor17, oracle-general, csv,
        parquet or ppw; by default what the file looks like, which `Trace.format` says.
    mapping : mapping of str to str, optional
        For csv and parquet: ``time_s``, ``lbn`` or ``offset_bytes``, ``size_bytes`` or ``blocks``,
        ``op``, ``latency_s``, ``stream``, ``device``, ``file`` to the column's header, whose unit
        suffix counts. Where operations are numbers, ``op`` is ``COLUMN:READ/WRITE`` with the codes.
    batch_requests : int
        Requests a batch at most.

    Raises
    ------
    MeasurementError
        When the file cannot be read, or looks like no trace.
    """
    if batch_requests < 1:
        raise MeasurementError(f"batch_requests is {batch_requests}: at least 1 is needed")
    source, options = Path(path), {}
    if format and format.startswith("blkparse:"):
        format, _, options["layout"] = format.partition(":")
        # Refuses a layout that is none.
        blktrace.pattern(options["layout"])
    kind = _reader_of(source, format, mapping)
    if mapping and not kind.maps:
        raise MeasurementError(
            f"{source}: is read as {kind.described}, which does not use --map: "
            "leave it out, or give --trace-format csv"
        )
    return Trace(lambda: kind(source, mapping, **options), batch_requests)


def _reader_of(
    path: Path, format: str | None, mapping: Mapping[str, str] | None
) -> type[TraceReader]:
    """Choose the reader by the format that is asked for, the mapping, or the content."""
    if format is not None:
        if format not in FORMATS:
            raise MeasurementError(
                f"no trace format {format!r}: choose one of {', '.join(FORMATS)}, or "
                "blkparse:FORMAT with what was given to blkparse -f"
            )
        return FORMATS[format]
    if mapping:
        # A mapping is for a table, whatever its first lines look like.
        return ParquetTable if ParquetTable.recognises(base.head(path, 4)) else CsvTable
    return _recognise(path)


def _recognise(path: Path) -> type[TraceReader]:
    """Choose the reader by the first bytes of a file."""
    files = blktrace.per_cpu_files(path)
    # A CPU that saw nothing leaves an empty file.
    first = next((file for file in files if base.head(file, 1)), files[0])
    begin = base.head(first)
    if not begin.strip():
        raise MeasurementError(f"{first}: is empty")
    for reader in READERS:
        if reader.recognises(begin):
            if reader is ParquetTable:
                with _open_parquet(path) as file:
                    return ParquetTable if own_metadata(file) is None else OwnParquet
            return reader
    raise MeasurementError(
        f"{path}: does not look like a block trace; give its format with "
        f"--trace-format: {', '.join(FORMATS)}"
    )


class NamedRequests(Protocol):
    """Requests and the names of their codes, as `Trace` has them."""

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Names of ``stream``, ``device`` and ``file``."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in order of arrival; every call begins anew."""


class WrittenTrace(NamedTuple):
    """Number of requests written, and arrival (s) of the last, NaN where it has none."""

    requests: int
    last_s: float


def write_trace(trace: NamedRequests | Iterable[pa.RecordBatch], path: str | Path) -> WrittenTrace:
    """Write a trace: Parquet, CSV or libCacheSim's oracleGeneral, by the file's ending.

    The file appears whole or not at all.

    Parameters
    ----------
    trace : Trace, other requests with names, or iterable of pyarrow.RecordBatch
        Batches have the columns of `Trace`; by themselves, what they number has no names.
    path : path
        Ends in .parquet, .csv, .csv.gz or .oracleGeneral (reads and writes, in whole seconds).

    Returns
    -------
    WrittenTrace

    Raises
    ------
    MeasurementError
        When it cannot be written, or the trace not be read.
    """
    target = Path(path)
    name = target.name.lower()
    writers = {
        ".parquet": _write_parquet,
        ".csv": _write_csv,
        ".csv.gz": _write_csv,
        ".oraclegeneral": _write_oracle_general,
    }
    write = next((write for ending, write in writers.items() if name.endswith(ending)), None)
    if write is None:
        raise MeasurementError(
            f"{target}: a trace is written as .parquet, .csv, .csv.gz or .oracleGeneral"
        )
    with replace_whole(target) as scratch:
        written = write(trace, scratch)
    # To type checkers, a with statement may swallow errors.
    return written  # noqa: RET504


def _write_parquet(trace: NamedRequests | Iterable[pa.RecordBatch], path: Path) -> WrittenTrace:
    # Arrivals hardly get shorter: zstd takes a tenth off them and three times as long to read.
    # They are in order: equal ones are neighbours, which a dictionary would take apart.
    others = [name for name in SCHEMA.names if name != "time_s"]
    compression = {"time_s": "snappy", **dict.fromkeys(others, "zstd")}
    with pq.ParquetWriter(
        path, base.STORED, compression=compression, use_dictionary=others
    ) as writer:
        written = _write_batches(trace, lambda batch: writer.write_table(_check_and_store(batch)))
        # All names are known after the last request.
        metadata = json.dumps({"schema_version": 1, "names": dict(_names_if_any(trace))}).encode()
        if isinstance(trace, Trace):
            metadata = trace.metadata()
        writer.add_key_value_metadata({base.METADATA: metadata})
    return written


def _write_csv(trace: NamedRequests | Iterable[pa.RecordBatch], path: Path) -> WrittenTrace:
    # A first pass finds the names.
    names = _names_if_any(trace)
    schema = _replace_all_codes(SCHEMA.empty_table(), names).schema
    packed = path.name.lower().endswith(".gz")
    options = csv.WriteOptions(quoting_style="needed")
    with (
        gzip.open(path, "wb") if packed else path.open("wb") as file,
        csv.CSVWriter(file, schema, write_options=options) as writer,
    ):
        return _write_batches(trace, lambda b: writer.write_table(_replace_all_codes(b, names)))


def _write_oracle_general(
    trace: NamedRequests | Iterable[pa.RecordBatch], path: Path
) -> WrittenTrace:
    batches = trace if isinstance(trace, Iterable) else trace.batches()
    return WrittenTrace(*formats.write_oracle_general(batches, path))


def _names_if_any(trace: NamedRequests | Iterable[pa.RecordBatch]) -> Mapping[str, tuple[str, ...]]:
    return {} if isinstance(trace, Iterable) else trace.names


def _write_batches(
    trace: NamedRequests | Iterable[pa.RecordBatch], write: Callable[[pa.RecordBatch], None]
) -> WrittenTrace:
    requests, last_s = 0, float("nan")
    for batch in trace if isinstance(trace, Iterable) else trace.batches():
        write(batch)
        requests += batch.num_rows
        if batch.num_rows:
            last_s = batch["time_s"][-1].as_py()
    return WrittenTrace(requests, last_s)


def _check_and_store(batch: pa.RecordBatch) -> pa.Table:
    """Refuse requests that lack something: missing latencies are NaN, missing files -1."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count:
            raise MeasurementError(
                f"{name} is missing in {column.null_count} requests: leave these requests out, or "
                "fill the value in"
            )
    return pa.Table.from_batches([batch], SCHEMA).cast(base.STORED)


def _replace_all_codes(
    batch: pa.RecordBatch | pa.Table, names: Mapping[str, tuple[str, ...]]
) -> pa.Table:
    """Replace numbers by words, and a missing latency or file by nothing."""
    columns = {name: batch[name] for name in SCHEMA.names}
    columns["op"] = pa.array(base.OPERATIONS).take(columns["op"].cast(pa.int32()))
    for name in base.NAMED:
        columns[name] = _replace_codes(columns[name], pa.array(names.get(name, ()), pa.string()))
    latency = columns["latency_s"]
    columns["latency_s"] = pc.if_else(pc.is_nan(latency), pa.scalar(None, pa.float64()), latency)
    return pa.table(columns)


def _replace_codes(numbers: pa.Array, words: pa.StringArray) -> pa.Array:
    """Replace numbers by their words; a number without one stays, and -1 becomes nothing."""
    nothing = pa.scalar(None, pa.int32())
    there = pc.if_else(pc.greater_equal(numbers, 0), numbers, nothing)
    named = words.take(pc.if_else(pc.less(there, len(words)), there, nothing))
    if named.null_count == there.null_count:
        return named
    return pc.coalesce(named, there.cast(pa.string()))
