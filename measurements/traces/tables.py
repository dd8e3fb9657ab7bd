"""Traces as CSV or Parquet tables with a header: foreign ones, by their columns, and our own."""

from __future__ import annotations

import csv as plain
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from measurements.errors import MeasurementError
from measurements.table import headers as table_headers
from measurements.table.units import Unit, split_unit
from measurements.traces import requests as base, text_lines as text
from measurements.traces.requests import BLOCK_BYTES, SCHEMA, Array, Op

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
        return self.factor * (BLOCK_BYTES if TARGETS[self.target] == "block" else 1)


class _Table(base.TraceReader):
    """Requests by columns that the user maps, or whose names say what they are."""

    maps = True
    columns: dict[str, TraceColumn]
    operation_codes: dict[str, int]
    # Sizes that are no multiple of a block: many of them suggest another unit.
    _rows = 0
    _odd_sizes = 0

    def _make_requests(self, row: Array, table: pa.Table) -> base.Requests:
        column = {name: table[one.header].combine_chunks() for name, one in self.columns.items()}
        sizes = self._bytes_of_column("blocks" if "blocks" in column else "size_bytes", column, row)
        place = "offset_bytes" if "offset_bytes" in column else "lbn"
        latency = None
        if chosen := self.columns.get("latency_s"):
            latency = _as_numbers(column["latency_s"], row, chosen.header, missing=True)
            latency = latency * chosen.factor
        self._rows += len(row)
        self._odd_sizes += int(np.count_nonzero(sizes & (BLOCK_BYTES - 1)))
        return base.Requests.of(
            row,
            self._times_in_ticks(column["time_s"], row),
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
                f"{self._odd_sizes} of {self._rows} sizes are no multiple of 512 bytes: is "
                f"column {size.header!r} in {unit}? Write its unit, as in --map "
                f"size_kib={size.header!r}"
            )

    def _choose_columns(self, headers: Sequence[str]) -> None:
        self.columns, self.operation_codes = choose(headers, self.mapping, str(self.path))
        factor = self.columns["time_s"].factor
        self.ticks_per_s = round(1 / factor) if factor < 1 else 1

    def _times_in_ticks(self, values: pa.Array, row: Array) -> Array:
        """Read times in the file's own unit, or in seconds where that is longer."""
        chosen = self.columns["time_s"]
        time = _as_numbers(values, row, chosen.header)
        return time * chosen.factor if chosen.factor > 1 else time

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


def is_own(path: Path) -> bool:
    """Whether a Parquet file is one that ppw wrote."""
    with _open_parquet(path) as file:
        return own_metadata(file) is not None


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
        unit = Unit(si, BLOCK_BYTES) if sectors else table_headers.unit_in_words(header, si)
    if unit is None or unit.si != si:
        return None
    return unit.factor / BLOCK_BYTES if wanted == "block" else unit.factor


def _cells_as_words(values: pa.Array) -> pa.Array:
    """Read a column as words; of whole numbers, only the different ones become words."""
    if pa.types.is_integer(values.type):
        values = values.dictionary_encode()
    if not pa.types.is_dictionary(values.type):
        return values.cast(pa.string())
    words = values.dictionary.cast(pa.string())
    return pa.DictionaryArray.from_arrays(values.indices, words)


def _as_numbers(values: pa.Array, row: Array, header: str, *, missing: bool = False) -> Array:
    """Read a column as int64 where all are whole, else as float64.

    Raises BadRequestError for the first that is no number, or is missing where that must not be.
    """
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
