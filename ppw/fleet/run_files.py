"""Files of runs: found, told apart by format and columns, scanned by an engine, made canonical."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from glob import glob, has_magic
from operator import and_
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from measurements.errors import MeasurementError
from measurements.table import headers, reading, schema, units
from ppw.errors import PpwError
from ppw.fleet.engine import Fault, UnusableFilesError, connect, first_line, ibis, is_spark
from ppw.runs import groups as gr

if TYPE_CHECKING:
    from ibis.backends import BaseBackend


PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt")
JSON_LINES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
ENDINGS = (*PARQUET, *CSV, *JSON_LINES)
# Spark names files as URLs, in which a plus is no space.
_LOCAL_NAME = "url_decode(replace(regexp_replace(input_file_name(), '^file:/+', '/'), '+', '%2B'))"
# A header is in the first of a file; wider ones are no runs table's.
_HEADER_BYTES = 1 << 20
# Where decimal commas are looked for.
_ROWS = 1000
_MARK = b"\xef\xbb\xbf"


class FileKind(NamedTuple):
    """What files have in common that one scan reads: format, columns with types, delimiter."""

    format: str
    # None where only the engine can tell, as of a URL.
    columns: tuple[tuple[str, str], ...] | None = None
    delimiter: str = ","


def find_files(source: str) -> list[str]:
    """List the files of a file, a folder searched to the bottom, a pattern, or a URL."""
    if "://" in source:
        return [source]
    path = Path(source)
    if path.is_dir():
        # Names that begin with _ or . are what engines and editors leave beside runs.
        named = (p for p in path.rglob("*") if p.name[0] not in "._")
        found = sorted(str(p) for p in named if p.name.lower().endswith(ENDINGS))
    elif has_magic(source) and not path.exists():
        # As the shell has it: a pattern may be absolute, which Path.glob refuses.
        found = sorted(p for p in glob(source, recursive=True) if Path(p).is_file())  # noqa: PTH207
    elif path.exists():
        found = [source]
    else:
        raise PpwError(f"{source}: is not there: name a file, a folder of them or a pattern")
    if not found:
        raise PpwError(
            f"{source}: no file there ends in {', '.join(ENDINGS)}: name a file, a folder of them "
            "or a pattern"
        )
    return found


def given_names(files: Sequence[str]) -> dict[str, str]:
    """Map the absolute paths that engines report to the file names as they were given."""
    local = [(Path(file), file) for file in files if "://" not in file]
    full = [(str(made), file) for path, file in local for made in (path.absolute(), path.resolve())]
    absolute = dict(full)
    return absolute | {file: file for file in files}


def by_kind(files: Iterable[str]) -> tuple[dict[FileKind, list[str]], list[Fault]]:
    """Sort files by their kind; files that cannot be read become faults."""
    kinds: dict[FileKind, list[str]] = {}
    faults = []
    for file in files:
        kind = kind_of(file)
        if isinstance(kind, Fault):
            faults.append(kind)
        else:
            kinds.setdefault(kind, []).append(file)
    return kinds, faults


def kind_of(file: str) -> FileKind | Fault:
    """Read the format and columns of a file, or a fault; of a URL the format alone."""
    plain = file.lower().split("?")[0]
    in_lines = plain.endswith((*JSON_LINES, ".json"))
    if "://" in file:
        return FileKind("json" if in_lines else "csv" if plain.endswith(CSV) else "parquet")
    if not in_lines and not plain.endswith(CSV):
        try:
            parts = pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            what = f"broken Parquet: {first_line(error)}: write it again, or leave it out"
            return Fault(file, what)
        return FileKind("parquet", tuple((part.name, str(part.type)) for part in parts))
    try:
        with gzip.open(file) if plain.endswith(".gz") else Path(file).open("rb") as stream:
            return (_kind_of_json_lines if in_lines else _kind_of_csv)(stream, file)
    except MeasurementError as error:
        return Fault(file, str(error).removeprefix(f"{file}: "))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        return Fault(file, f"cannot be read: {first_line(error)}")


def _kind_of_csv(stream: IO[bytes] | gzip.GzipFile, file: str) -> FileKind | Fault:
    content = stream.read(_HEADER_BYTES).removeprefix(_MARK)
    if not content.strip():
        return Fault(file, "is empty: write it again, or leave it out")
    names, delimiter = reading.read_header(content, file)
    if delimiter != "," and (cell := _decimal_comma(content, names, delimiter)):
        return Fault(
            file,
            f"has decimal commas ({cell}), but ppw fleet reads only decimal points: write points, "
            "or use ppw project, which reads both",
        )
    columns = tuple((name or f"unnamed {i}", "string") for i, name in enumerate(names))
    return FileKind("csv", columns, delimiter)


def _decimal_comma(content: bytes, names: list[str], delimiter: str) -> str | None:
    """Find the first cell with a decimal comma (1,8) in the first rows; None without one."""
    known = headers.rename_headers(names, {}, "")
    numeric = {header for header, named in known.items() if named.canonical in schema.NUMERIC}
    numbers = [at for at, header in enumerate(names) if header in numeric]
    rows = csv.reader(content.decode(errors="replace").splitlines()[:_ROWS], delimiter=delimiter)
    cells = (row[at] for row in rows for at in numbers if at < len(row))
    return next((cell for cell in cells if reading.WITH_COMMA.fullmatch(cell)), None)


def _kind_of_json_lines(stream: IO[bytes] | gzip.GzipFile, file: str) -> FileKind | Fault:
    names: dict[str, None] = {}
    for number, line in enumerate(stream, start=1):
        if not (text := line.removeprefix(_MARK).strip()):
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            return Fault(file, f"line {number} is not a JSON object: correct or delete the line")
        names |= dict.fromkeys(record)
    if not names:
        return Fault(file, "is empty: write it again, or leave it out")
    return FileKind("json", tuple((name, "string") for name in names))


def scan(
    connection: BaseBackend, kind: FileKind, files: Sequence[str], *, file_column: str | None = None
) -> ibis.Table:
    """Read files of one kind as a table; ``file_column`` is a column that holds the file's name."""
    if kind.columns is not None and file_column in dict(kind.columns):
        file_column = None
    by_engine = _scan_spark if is_spark(connection) else _scan_duckdb
    return by_engine(connection, kind, list(files), file_column)


def _scan_duckdb(
    connection: Any, kind: FileKind, files: list[str], file_column: str | None
) -> ibis.Table:
    options: dict[str, Any] = {} if file_column is None else {"filename": file_column}
    if kind.format == "parquet":
        return connection.read_parquet(files, **options)
    if kind.columns is not None:
        options["columns"] = {name: "VARCHAR" for name, _ in kind.columns}
    if kind.format == "json":
        return connection.read_json(files, format="newline_delimited", **options)
    if kind.columns is None:
        return connection.read_csv(files, all_varchar=True, **options)
    written = {"header": True, "sep": kind.delimiter, "quote": '"', "escape": '"'}
    return connection.read_csv(files, auto_detect=False, **written, **options)


def _scan_spark(
    connection: Any, kind: FileKind, files: list[str], file_column: str | None
) -> ibis.Table:
    from pyspark.sql import functions as sql

    reader = connection._session.read
    if kind.format == "parquet":
        frame = reader.parquet(*files)
    else:
        names = ", ".join(f"`{name.replace('`', '``')}` string" for name, _ in kind.columns or ())
        reader = (reader.schema(names) if names else reader).option("mode", "FAILFAST")
        if kind.format == "json":
            frame = reader.option("primitivesAsString", True).json(files)
        else:
            frame = reader.options(header=True, sep=kind.delimiter, escape='"').csv(files)
    if file_column is not None:
        frame = frame.withColumn(file_column, sql.expr(_LOCAL_NAME))
    view = ibis.util.gen_name("ppw_scan")
    frame.createOrReplaceTempView(view)
    return connection.table(view)


# Foreign columns to canonical ones: `measurements.table.headers` as expressions of the engine.

# What is no number becomes one that no rule allows, so that it is named with the rest.
_NO_NUMBER = float("-inf")


def canonical(
    table: ibis.Table, *, columns: Mapping[str, str] | None = None, source: str = "runs"
) -> ibis.Table:
    """Bring an engine's table to canonical columns, as `measurements.read_runs` does.

    Numbers become float64 in SI units, missing ones NULL and never NaN; what is no number becomes
    −inf, which no rule of a runs table allows. ``columns`` is the user's mapping, ``source`` a
    name for messages.
    """
    known = headers.rename_headers(list(table.columns), columns or {}, source)
    renamings = {name: known.get(name, headers.Renaming(name)) for name in table.columns}
    made = {one.canonical: _canonical_column(table[name], one) for name, one in renamings.items()}
    return table.select(**made)


def _canonical_column(column: ibis.Value, renaming: headers.Renaming) -> ibis.Value:
    """Column in SI units: NULL if missing, −inf if no number; columns of text stay as they are."""
    if column.type().is_floating():
        column = column.isnan().ifelse(None, column)
    if renaming.canonical not in schema.NUMERIC:
        return column
    if column.type().is_string():
        column = column.strip()
        text = column.isin(schema.MISSING).ifelse(None, column)
        unit = headers.unit_in_cells(renaming.canonical)
        value = _parse_quantities(text, unit) if unit else ibis.null("float64")
        if not renaming.unit_in_cells:
            value = _to_si(text.try_cast("float64"), renaming).coalesce(value)
        value = value.coalesce(_NO_NUMBER).cast("float64")
        return text.isnull().ifelse(None, value)  # noqa: PD003 — no pandas
    if column.type().is_boolean() or not column.type().is_numeric():
        return column.isnull().ifelse(None, _NO_NUMBER).cast("float64")  # noqa: PD003 — no pandas
    return _to_si(column.cast("float64"), renaming)


def _to_si(number: ibis.Value, renaming: headers.Renaming) -> ibis.Value:
    return number if renaming.factor == 1.0 else renaming.scaled(number)


def _parse_quantities(text: ibis.Value, unit: str) -> ibis.Value:
    """Read texts with a unit in SI ("2.10GHz") and "50%" as a share; NULL for others."""
    # Engines have no possessive repeats, and need none to take time in proportion to the text.
    pattern = units.QUANTITY.pattern.replace("*+", "*")
    number = text.re_extract(pattern, 1).try_cast("float64")
    written = text.re_extract(pattern, 2)
    if unit == "share":
        return (written == "%").ifelse(number / 100, None)
    plain = written.lower().replace("µ", "u").replace("μ", "u").replace("°", "")
    factors = {name: u.factor for name, u in units.UNITS.items() if u.si == unit}
    factor = plain.cases(*factors.items(), else_=None)
    mega = {name: u.factor for name, u in units.MEGA.items() if u.si == unit}
    return number * (written.cases(*mega.items(), else_=factor) if mega else factor)


def _holds_one_of(column: ibis.Value, values: list[Any]) -> Any:
    if column.get_name() not in schema.NUMERIC and not column.type().is_numeric():
        return column.cast("string").isin([str(value) for value in values])
    return gr.any_of(gr.is_same(column, gr.to_number(value)) for value in values).fill_null(False)


def seconds(column: Any) -> Any:
    """Seconds since 1970 (float64) of times, ISO 8601 texts or numbers; NULL for other texts."""
    if column.type().is_numeric():
        return column.cast("float64")
    if column.type().is_string():
        number, moment = (column.try_cast(of) for of in ("float64", "timestamp('UTC')"))
        return number.coalesce(seconds(moment))
    name = "unix_micros" if column.get_backend().name == "pyspark" else "epoch_us"
    return _microseconds(name)(column.cast("timestamp('UTC')")) / 1e6


@cache
def _microseconds(name: str) -> Any:
    """Make an engine's function that turns times into whole microseconds since 1970."""

    def microseconds(moment: Any) -> Any: ...

    signature = (ibis.dtype("timestamp('UTC')"),), ibis.dtype("int64")
    return ibis.udf.scalar.builtin(name=name, signature=signature)(microseconds)


# Runs of a fleet as one table of an engine: folders, files, URLs, or a table that is there.
class FilePart(NamedTuple):
    """Files that are alike, and the canonical columns that they have."""

    files: tuple[str, ...]
    columns: frozenset[str]


@dataclass(frozen=True)
class FleetRuns:
    """Runs of a fleet, opened but not read."""

    connection: BaseBackend
    table: ibis.Table  # canonical columns in SI units; `FILE_COLUMN` where several files are read
    name: str  # for messages
    files: tuple[str, ...]  # empty where a table was given
    faults: tuple[Fault, ...]  # files that cannot be read and are left out
    columns: Mapping[str, str]  # the user's own headers
    parts: tuple[FilePart, ...] = ()  # files by their columns, which may have changed over time
    # Values that all runs of the table hold, by column.
    where: Mapping[str, Any] = field(default_factory=dict)

    def holding(self, where: Mapping[str, Any]) -> FleetRuns:
        """Keep the runs that hold what is asked for, as `ppw.runs.groups.choose_runs`."""
        if not where:
            return self
        table, source = self.table, f"{self.name}: "
        mapped = headers.rename_headers([*self.columns.values()], self.columns, self.name)
        asked = gr.values_by_column(where, table.columns, mapped, source, "to choose runs by")
        chosen = reduce(and_, (_holds_one_of(table[c], values) for c, values in asked.items()))
        return replace(self, table=table.filter(chosen), where=asked)

    def only(self, files: Sequence[str]) -> FleetRuns:
        """Keep the runs of some of the files."""
        several, name = len(self.files) > 1, self.name
        opened = _open_files(self.connection, files, self.columns, name, several=several)
        return opened.holding(self.where)

    def without(self, faults: Sequence[Fault]) -> FleetRuns:
        """Leave out the files at fault, and add the faults to those of the runs."""
        broken = {fault.file for fault in faults}
        left = self.only([file for file in self.files if file not in broken])
        return replace(left, faults=(*self.faults, *faults))


def open_runs(
    source: object,
    *,
    engine: str | BaseBackend = "duckdb",
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, Any] | None = None,
    memory_limit: str | None = None,
    temporary: str | Path | None = None,
    threads: int | None = None,
) -> FleetRuns:
    """Open the runs of a fleet.

    Parameters
    ----------
    source : path, URL, several of them, ibis Table or pandas.DataFrame
        Parquet, CSV or JSON-lines files, folders of them (searched to the bottom), patterns such as
        ``runs/*/*.parquet``, or URLs as the engine reads them.
    engine, memory_limit, temporary, threads
        As for `connect`. A table has its own connection.
    columns : mapping of str to str, optional
        Canonical column, in any unit, to the foreign header it stands for.
    where : mapping of str to value or list of values, optional
        Take only the runs that hold these; names and units as for `ppw.runs.groups.choose_runs`.

    Raises
    ------
    PpwError
        When there is no file, none that can be read, or no column to take runs by.
    MeasurementError
        When the headers of all files contradict each other.
    """
    columns, where = columns or {}, where or {}
    if isinstance(source, ibis.Table):
        connection = source.get_backend() if isinstance(engine, str) else engine
        name = str(getattr(source.op(), "name", "runs"))
        return _open_table(connection, source, columns, name).holding(where)
    connection = connect(engine, memory_limit=memory_limit, temporary=temporary, threads=threads)
    if isinstance(source, pd.DataFrame):
        name = str(source.attrs.get("source", "runs"))
        table = register_frame(connection, source)
        return _open_table(connection, table, columns, name).holding(where)
    if isinstance(source, (str, Path)):
        source = [source]
    if not isinstance(source, Iterable):
        raise PpwError(f"runs is a {type(source).__name__}: give files, folders, URLs or a table")
    named = [str(s) for s in source]
    files = [file for one in named for file in find_files(one)]
    several = len(files) > 1
    return _open_files(connection, files, columns, " ".join(named), several=several).holding(where)


def _open_table(
    connection: BaseBackend, table: ibis.Table, columns: Mapping[str, str], name: str
) -> FleetRuns:
    tidy = canonical(table, columns=columns, source=name)
    return FleetRuns(connection, tidy, name, (), (), columns)


def register_frame(connection: BaseBackend, frame: pd.DataFrame) -> ibis.Table:
    """Register a data frame as a table of the engine, until the connection ends."""
    # By way of Arrow, so that NaN becomes NULL and objects their own type.
    return register_table(connection, pa.Table.from_pandas(frame, preserve_index=False))


def register_table(connection: Any, arrow: pa.Table) -> ibis.Table:
    """Register an Arrow table as a table of the engine, until the connection ends."""
    name = ibis.util.gen_name("ppw_table")
    if is_spark(connection):
        connection._session.createDataFrame(arrow).createOrReplaceTempView(name)
    else:
        connection.con.register(name, arrow)
    return connection.table(name)


def _open_files(
    connection: BaseBackend,
    files: Sequence[str],
    columns: Mapping[str, str],
    name: str,
    *,
    several: bool,
) -> FleetRuns:
    kinds, faults = by_kind(files)
    tables, parts = [], []
    file_column = schema.FILE_COLUMN if several else None
    for kind, alike in kinds.items():
        try:
            opened = scan(connection, kind, alike, file_column=file_column)
            tables.append(canonical(opened, columns=columns, source=_files_text(alike)))
            parts.append(FilePart(tuple(alike), frozenset(tables[-1].columns)))
        except MeasurementError as error:
            what = str(error).removeprefix(f"{_files_text(alike)}: ")
            faults += [Fault(file, what) for file in alike]
    if not tables:
        raise UnusableFilesError(name, faults)
    left_out = {fault.file for fault in faults}
    read = tuple(f for f in files if f not in left_out)
    table = _union_tables(tables)
    return FleetRuns(connection, table, name, read, tuple(faults), columns, tuple(parts))


def _files_text(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more like it"


def _union_tables(tables: Sequence[ibis.Table]) -> ibis.Table:
    """Stack tables into one; a column that a table lacks is NULL for its rows."""
    if len(tables) == 1:
        return tables[0]
    types: dict[str, Any] = {}
    for name, of in (item for table in tables for item in table.schema().items()):
        types[name] = of if types.get(name, of) == of else ibis.dtype("string")

    def add_missing_columns(table: ibis.Table) -> ibis.Table:
        there = table.columns
        columns = {n: table[n].cast(t) if n in there else ibis.null(t) for n, t in types.items()}
        return table.select(**columns)

    return ibis.union(*map(add_missing_columns, tables))


# What is known of a table before its runs are read: which columns hold any value at all.

# A setting has few values; the estimate may miss one or two.
_FEW = 20
# A column that has a value anywhere has one among so many rows, or is looked for by itself.
_HEAD = 1000


def filled_columns(runs: FleetRuns) -> pd.DataFrame:
    """Make one row: 1.0 for each column that any run has a value of, NaN for empty columns."""
    table = runs.table
    names = list(table.columns)
    head = table.select(*names).head(_HEAD).to_pyarrow()
    if runs.where and not len(head):
        raise PpwError(f"{runs.name}: no run has all of {gr.words(runs.where)}")
    empty = [n for n in names if head[n].null_count == len(head)]
    found = dict.fromkeys(names, 1.0)
    for name in empty:
        some = table.filter(table[name].notnull()).select(name).head(1).to_pyarrow()  # noqa: PD004 — no pandas
        found[name] = 1.0 if len(some) else float("nan")
    known = pd.DataFrame([found], columns=names)
    known.attrs["source"] = runs.name
    return known


def setting_candidates(runs: FleetRuns) -> list[str]:
    """List the user's own columns, load and sockets that have few distinct values."""
    table = runs.table
    asked = [c for c in table.columns if c not in schema.COLUMNS or c in ("load", "sockets")]
    types = {c: table[c].type() for c in asked}
    asked = [c for c, of in types.items() if of.is_string() or of.is_primitive()]
    if not asked:
        return []
    counted = table.aggregate(**{name: table[name].approx_nunique() for name in asked})
    (row,) = runs.connection.to_pyarrow(counted).to_pylist()
    return [name for name, count in row.items() if count <= _FEW]
