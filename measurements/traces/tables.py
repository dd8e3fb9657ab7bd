"""Traces as CSV or Parquet tables with a header: foreign ones, by their columns, and our own."""

from __future__ import annotations

import csv as plain
import json
import re
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from measurements.errors import MeasurementError
from measurements.table.headers import mapped_factor, nearest, shown, unit_in_words
from measurements.table.units import Unit, split_unit
from measurements.traces.requests import (
    BLOCK_BYTES,
    METADATA,
    NAMED,
    OPERATIONS,
    SCHEMA,
    Array,
    BadRequestError,
    Reader,
    Requests,
    has_columns,
    head,
)
from measurements.traces.text_lines import TEXT, Field, FieldReader, Form

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


# Which columns of a foreign table are time, place, size and operation of a request.


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
# What the world calls them; those with a unit need one in the header, as "ts_us", "Length (KB)".
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
_NEEDED = (("time_s",), ("lbn", "offset_bytes"), ("size_bytes", "blocks"), ("op",))
_WORDS = {
    0: ("r", "read", "rd", "diskread"),
    1: ("w", "write", "wr", "diskwrite"),
    2: ("d", "discard", "trim", "unmap"),
    3: ("f", "flush", "sync"),
}
OPERATION_WORDS = {word: code for code, words in _WORDS.items() for word in words}


class Column(NamedTuple):
    """A column of the file: its header, and the factor to the target's unit."""

    header: str
    target: str
    factor: float


class Columns(NamedTuple):
    """The columns that make a trace, by target, and the codes that stand for operations."""

    by_target: dict[str, Column]
    operations: dict[str, int]


def choose(
    headers: Sequence[str], mapping: Mapping[str, str], source: str, *, own: bool = False
) -> Columns:
    """Choose the columns of a trace.

    Parameters
    ----------
    headers : sequence of str
        Of the file.
    mapping : mapping of str to str
        Target (a key of `TARGETS`) to header. ``op`` may say which codes are a read and a write:
        ``Type:1/0``.
    source : str
        File, for messages.
    own : bool
        Whether the file is this project's own, where op is a number as in its columns.

    Raises
    ------
    MeasurementError
    """
    operations = dict(OPERATION_WORDS)
    if own:
        operations |= {str(code): code for code in range(len(OPERATIONS))}
    found: dict[str, Column] = {}
    for named, header in mapping.items():
        target = _target(named, header, source)
        if target in found:
            raise MeasurementError(f"{source}: --map names two columns for {target}: choose one")
        if target == "op":
            header, codes = _codes(header, headers, source)
            operations |= codes
        if header not in headers:
            raise MeasurementError(
                f"{source}: --map names column {header!r}, which is not there"
                f"{nearest(header, headers)}; the columns are {shown(headers)}"
            )
        found[target] = _mapped(named, header, target, source)
    # A column by its own name comes before one that is often called so.
    for header in sorted(headers, key=lambda h: h.strip().lower() not in TARGETS):
        known = _by_name(header)
        if known and not _taken(known, found):
            found[known] = Column(header, known, _factor(header, known) or 1.0)
    _refuse_lacking(found, headers, source)
    return Columns(found, operations)


def _refuse_lacking(found: Mapping[str, Column], headers: Sequence[str], source: str) -> None:
    lacking = [names for names in _NEEDED if not any(target in found for target in names)]
    if lacking:
        wanted = ", ".join(" or ".join(names) for names in lacking)
        named = " ".join(f"--map {names[0]}=COLUMN" for names in lacking)
        raise MeasurementError(
            f"{source}: no column is {wanted}: name {'it' if len(lacking) == 1 else 'them'} with "
            f"{named}; the columns are {shown(headers)}"
        )


def _codes(given: str, headers: Sequence[str], source: str) -> tuple[str, dict[str, int]]:
    header, colon, codes = given.rpartition(":")
    if not colon or given in headers:
        return given, {}
    read, slash, write = codes.partition("/")
    if not slash or not read or not write or read == write:
        raise MeasurementError(
            f"{source}: --map op={given}: give the codes of a read and a write, as in "
            f"op={header}:0/1"
        )
    return header, {read.strip().lower(): 0, write.strip().lower(): 1}


def _taken(target: str, found: Mapping[str, Column]) -> bool:
    return any(target in group and set(group) & set(found) for group in _NEEDED) or target in found


def _by_name(header: str) -> str | None:
    name = header.strip().lower()
    if name in TARGETS or name in _SYNONYMS:
        return _SYNONYMS.get(name, name)
    base, unit = split_unit(header.strip())
    plain = base.strip().lower().replace("_", " ")
    target = f"{_BASE_SYNONYMS.get(plain, plain)}_{unit.si}" if unit else ""
    return target if target in TARGETS else None


def _target(named: str, header: str, source: str) -> str:
    """Column that --map names, in whatever unit: time_ms is time_s."""
    target = _by_name(named)
    if target is None:
        hint = nearest(named, list(TARGETS)) or f": choose among {', '.join(TARGETS)}"
        raise MeasurementError(f"{source}: --map {named}={header}: no column {named!r}{hint}")
    return target


def _mapped(named: str, header: str, target: str, source: str) -> Column:
    wanted, plain = TARGETS[target], split_unit(header.strip())[1]
    own = _factor(header, target, mapped=True)
    if own is None and plain and wanted and header.rstrip().endswith((")", "]")):
        raise MeasurementError(
            f"{source}: --map {named}={header}: the column is not in {wanted}, by its header"
        )
    asked = _factor(named, target) or 1.0
    return Column(header, target, mapped_factor(named, header, asked, own, target, source))


def _factor(header: str, target: str, *, mapped: bool = False) -> float | None:
    """Factor from the unit in a header to the target's own; None where it has none of the kind."""
    wanted = TARGETS[target]
    if not wanted:
        return None
    si = "bytes" if wanted == "block" else wanted
    unit = split_unit(header.strip())[1]
    if mapped and (unit is None or unit.si != si):
        sectors = si == "bytes" and _IN_SECTORS.fullmatch(header)
        unit = Unit(si, BLOCK_BYTES) if sectors else unit_in_words(header, si)
    if unit is None or unit.si != si:
        return None
    return unit.factor / BLOCK_BYTES if wanted == "block" else unit.factor


def ticks_per_s(column: Column) -> int:
    """How finely a time column counts: 1000 a second for milliseconds; 1 where it is in s."""
    return round(1 / column.factor) if column.factor < 1 else 1


def bytes_of(values: Array, column: Column) -> Array:
    """Values of a column of places or sizes in bytes; refuses nothing."""
    factor = column.factor * (BLOCK_BYTES if TARGETS[column.target] == "block" else 1)
    if values.dtype.kind == "f" or not float(factor).is_integer():
        scaled = np.rint(values * factor)
        return np.where(np.abs(scaled) < 2**63, scaled, -1).astype(np.int64)
    whole = int(factor)
    if values.max(initial=0) <= (most := (2**63 - 1) // whole):
        within: Array = values * np.int64(whole) if whole != 1 else values
        return within
    far = values > most
    result: Array = np.where(far, np.int64(-1), values * np.int64(whole))
    return result


_ROWS_AT_ONCE = 1 << 20
# What Arrow raises of a damaged file, whose names and sizes may be anything.
_BROKEN = (pa.ArrowException, OSError, UnicodeError, MemoryError, OverflowError)
_DELIMITERS = ",;\t"


class _Table(Reader):
    """Requests by columns that the user mapped, or whose names say what they are."""

    unit: ClassVar[str] = "line"
    maps: ClassVar[bool] = True
    columns: Columns
    requests: int = 0
    odd_sizes: int = 0

    def _choose(self, headers: list[str]) -> None:
        self.columns = choose(headers, self.mapping, str(self.path))
        self.ticks_per_s = ticks_per_s(self.columns.by_target["time_s"])

    def _requests(self, row: Array, table: pa.Table) -> Requests:
        column = {
            target: table[chosen.header].combine_chunks()
            for target, chosen in self.columns.by_target.items()
        }
        codes = {name: self._codes(name, column.get(name), len(row)) for name in NAMED}
        sizes = self._bytes("blocks" if "blocks" in column else "size_bytes", column, row)
        self.requests += len(row)
        self.odd_sizes += int(np.count_nonzero(sizes & (BLOCK_BYTES - 1)))
        return Requests.of(
            row,
            self._time(column["time_s"], row),
            self._lbn(column, row),
            sizes,
            self._operations(column["op"], row),
            stream=codes["stream"],
            device=codes["device"],
            latency_s=self._latency(column.get("latency_s"), row),
            file=codes["file"],
        )

    def doubts(self) -> Iterator[str]:
        """What makes the reading of a column doubtful."""
        if 2 * self.odd_sizes > self.requests:
            size = self.columns.by_target.get("blocks") or self.columns.by_target["size_bytes"]
            yield (
                f"{self.odd_sizes} of {self.requests} sizes are no multiple of 512 bytes: is "
                f"column {size.header!r} in {_said_unit(size)}? Write its unit, as in --map "
                f"size_kib={size.header!r}"
            )

    def _time(self, values: pa.Array, row: Array) -> Array:
        time = _numbers(values, row, self.columns.by_target["time_s"].header)
        factor = self.columns.by_target["time_s"].factor
        return time * factor if factor > 1 else time

    def _lbn(self, column: Mapping[str, pa.Array], row: Array) -> Array:
        target = "offset_bytes" if "offset_bytes" in column else "lbn"
        return self.blocks(self._bytes(target, column, row))

    def _bytes(self, target: str, column: Mapping[str, pa.Array], row: Array) -> Array:
        chosen = self.columns.by_target[target]
        values = _numbers(column[target], row, chosen.header)
        found = bytes_of(values, chosen)
        if not len(found) or (found.min() >= 0 and values.min() >= 0):
            return found
        if (far := (found < 0) & (values >= 0)).any():
            at = int(far.argmax())
            raise BadRequestError(
                int(row[at]), f"{chosen.header} {values[at]} is beyond 2^63 bytes"
            )
        if (negative := values < 0).any():
            at = int(negative.argmax())
            raise BadRequestError(int(row[at]), f"{chosen.header} {values[at]} is negative")
        return found

    def _operations(self, values: pa.Array, row: Array) -> Array:
        header = self.columns.by_target["op"].header
        values = _as_words(values)
        if not pa.types.is_dictionary(values.type):
            values = values.dictionary_encode()
        words = [str(word).strip().lower() for word in values.dictionary.to_pylist()]
        known = [self.columns.operations.get(word, 255) for word in words]
        if values.null_count:
            at = int(np.argmin(values.is_valid().to_numpy(zero_copy_only=False)))
            raise BadRequestError(int(row[at]), f"{header} is empty")
        op: Array = np.asarray(known, np.uint8)[values.indices.to_numpy(zero_copy_only=False)]
        if (bad := op == 255).any():
            at = int(bad.argmax())
            word = values[at].as_py()
            hint = (
                f": say which code is a read and which a write, as in --map op={header}:0/1"
                if str(word).strip().lstrip("-").isdigit()
                else ", which is no operation: write read, write, discard or flush"
            )
            raise BadRequestError(int(row[at]), f"{header} is {word!r}{hint}")
        return op

    def _latency(self, values: pa.Array | None, row: Array) -> Array | float:
        if values is None:
            return np.nan
        chosen = self.columns.by_target["latency_s"]
        latency: Array = _numbers(values, row, chosen.header, missing=True) * chosen.factor
        return latency

    def _codes(self, name: str, values: pa.Array | None, count: int) -> Array:
        if values is None:
            return np.full(count, -1 if name == "file" else 0, np.int32)
        values = _as_words(values)
        return self.names[name].codes(pc.fill_null(values, "") if values.null_count else values)


def _said_unit(size: Column) -> str:
    each = size.factor * (BLOCK_BYTES if size.target == "blocks" else 1)
    return "bytes" if each == 1 else f"units of {each:.6g} bytes"


class CsvTable(_Table, FieldReader):
    """CSV (comma, semicolon or tab) with a header line."""

    name: ClassVar[str] = "csv"
    described: ClassVar[str] = "CSV with a header"

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        first, _, rest = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
        try:
            text = first.decode()
        except UnicodeDecodeError:
            return False
        names = _split(text)
        return bool(rest) and len(names) > 2 and not any(_is_number(name) for name in names)

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        begin = head(self.path).removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
        first = begin.partition("\n")[0]
        headers, delimiter = _split(first), _delimiter(first)
        self._choose(headers)
        self.form = Form(
            tuple(Field(header, TEXT) for header in headers),
            delimiter=delimiter,
            quoted=True,
            header_lines=1,
            wanted=tuple(chosen.header for chosen in self.columns.by_target.values()),
        )
        for row, table in self.blocks_of_fields():
            yield self._requests(row, table)


class ParquetTable(_Table):
    """Parquet with columns that are mapped, or named as ours are."""

    name: ClassVar[str] = "parquet"
    described: ClassVar[str] = "Parquet"
    unit: ClassVar[str] = "row"

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        return head.startswith(b"PAR1")

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        with _parquet(self.path) as file:
            self._choose(file.schema_arrow.names)
            wanted = [chosen.header for chosen in self.columns.by_target.values()]
            done = 0
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted):
                row = np.arange(done + 1, done + 1 + batch.num_rows)
                yield self._requests(row, pa.Table.from_batches([batch]))
                done += batch.num_rows


class OwnParquet(Reader):
    """Parquet as `write_trace` makes it: read back as it is."""

    name: ClassVar[str] = "ppw"
    described: ClassVar[str] = "ppw's own Parquet"
    unit: ClassVar[str] = "row"
    rebased: ClassVar[bool] = False
    numbered: ClassVar[bool] = True

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        # The metadata are at the end of the file; see `is_own`.
        return False

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        with _parquet(self.path) as file:
            self._take_metadata(file)
            alike = _all_alike(file.metadata)
            wanted = [name for name in SCHEMA.names if name not in alike]
            done = 0
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted):
                row = np.arange(done + 1, done + 1 + batch.num_rows)
                yield self._requests(batch, row, alike)
                done += batch.num_rows

    def _take_metadata(self, file: pq.ParquetFile) -> None:
        from measurements.traces.requests import Names

        said = own_metadata(file)
        if said is None or not has_columns(file.schema_arrow):
            raise MeasurementError(
                f"{self.path}: is no trace that ppw wrote: read it as format parquet, with --map"
            )
        self.names = {name: Names(said["names"].get(name, ())) for name in NAMED}
        if said.get("start_unix_ns") is not None:
            # Times count from the first request, so tick 0 is its.
            self.epoch_ns = int(said["start_unix_ns"])

    def _requests(self, batch: pa.RecordBatch, row: Array, alike: Mapping[str, Array]) -> Requests:
        column = {name: values[: len(row)] for name, values in alike.items()}
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            if values.null_count:
                at = int(np.argmin(values.is_valid().to_numpy(zero_copy_only=False)))
                raise BadRequestError(int(row[at]), f"{name} is missing")
            column[name] = values.to_numpy(zero_copy_only=False)
        return Requests(
            row, column["time_s"], *(column[name] for name in SCHEMA.names if name != "time_s")
        )


def _all_alike(said: pq.FileMetaData) -> dict[str, Array]:
    """Columns of a single value, as a file's statistics say: as long as a chunk, and never read."""
    found = {}
    for at, field in enumerate(SCHEMA):
        columns = (said.row_group(k).column(at) for k in range(said.num_row_groups))
        values = {_only_value(column, said.created_by) for column in columns}
        if len(values) == 1 and (value := values.pop()) is not None:
            rows = min(said.num_rows, _ROWS_AT_ONCE)
            found[field.name] = np.full(rows, value, field.type.to_pandas_dtype())
    return found


def _only_value(column: pq.ColumnChunkMetaData, written_by: str) -> float | None:
    """Value of all rows of a column, or None where they differ or nothing is said."""
    known = column.statistics if column.is_stats_set else None
    if known is None or known.null_count != 0 or not known.num_values:
        return None
    if column.physical_type != "DOUBLE":
        return int(known.min) if known.has_min_max and known.min == known.max else None
    # Extremes are those of numbers; Arrow leaves them out where there are none at all.
    is_latency = column.path_in_schema == "latency_s"
    arrow = written_by.startswith("parquet-cpp-arrow")
    return np.nan if is_latency and arrow and not known.has_min_max else None


def is_own(path: Path) -> bool:
    """Whether a Parquet file is one that ppw wrote."""
    with _parquet(path) as file:
        return own_metadata(file) is not None


def own_metadata(file: pq.ParquetFile) -> dict[str, Any] | None:
    """What ppw wrote beside the columns, or None."""
    said = (file.metadata.metadata or {}).get(METADATA)
    try:
        found = json.loads(said) if said else None
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("names"), dict) else None


class _parquet:  # noqa: N801
    """Open a Parquet file; what the world does wrong is a MeasurementError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> pq.ParquetFile:
        try:
            self._file = pq.ParquetFile(self._path)
        except _BROKEN as error:
            raise self._broken(error) from error
        return self._file

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._file.close()
        if isinstance(error, _BROKEN):
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> MeasurementError:
        first = " ".join(str(error).split())
        return MeasurementError(f"{self._path}: is no whole Parquet file: {first[:120]}")


def _as_words(values: pa.Array) -> pa.Array:
    """Read a column as words; of whole numbers, only the different ones become words."""
    if pa.types.is_dictionary(values.type):
        return values
    if not pa.types.is_integer(values.type):
        return values.cast(pa.string())
    found = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(found.indices, found.dictionary.cast(pa.string()))


def _numbers(values: pa.Array, row: Array, header: str, *, missing: bool = False) -> Array:
    """Read a column as int64 where all are whole, else as float64.

    Raises
    ------
    BadRequestError
        For the first that is no number, or is missing where that must not be.
    """
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = pc.utf8_trim_whitespace(values)
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    if values.null_count and not missing:
        at = int(np.argmin(values.is_valid().to_numpy(zero_copy_only=False)))
        raise BadRequestError(int(row[at]), f"{header} is empty")
    for kind in (pa.float64(),) if missing else (pa.int64(), pa.float64()):
        try:
            numbers: Array = values.cast(kind).to_numpy(zero_copy_only=False)
            return numbers
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    for at, value in enumerate(values.to_pylist()):
        try:
            float(value)
        except (TypeError, ValueError):
            raise BadRequestError(int(row[at]), f"{header} is {value!r}, no number") from None
    raise BadRequestError(int(row[0]), f"{header} of this row, or one after it, is no number")


def _split(line: str) -> list[str]:
    try:
        names = next(plain.reader([line.rstrip("\r")], delimiter=_delimiter(line)), [])
    except plain.Error:
        return []
    return [name.strip() for name in names]


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
