"""Files that hold rows: found, told apart by format and columns, and scanned by an engine."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from measurements.errors import MeasurementError
from measurements.table.headers import rename_headers
from measurements.table.reading import WITH_COMMA, read_header
from measurements.table.schema import COLUMNS, FILE_COLUMN, is_number
from ppw.errors import PpwError
from ppw.fleet.canonical import asked_of, canonical, only_where
from ppw.fleet.engine import Fault, UnusableFilesError, connect, first_line, is_spark
from ppw.runs.groups import words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

    import ibis.expr.types as ir
    import pyarrow as pa
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


class Kind(NamedTuple):
    """What files have in common that one scan reads: format and columns, with types or delimiter.

    ``columns`` is None where only the engine can tell, as of a URL.
    """

    format: str
    columns: tuple[tuple[str, str], ...] | None = None
    delimiter: str = ","


def find_files(source: str) -> list[str]:
    """List the files of a source: a file, a folder searched to the bottom, a pattern, or a URL.

    Raises
    ------
    PpwError
        When there is none.
    """
    if "://" in source:
        return [source]
    path = Path(source)
    if path.is_dir():
        found = sorted(str(p) for p in path.rglob("*") if _is_table(p))
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


def _is_table(path: Path) -> bool:
    """Tell whether a file is a runs table; Spark's own begin with _ or a dot."""
    return path.name.lower().endswith(ENDINGS) and path.name[0] not in "._"


def given_names(files: Sequence[str]) -> dict[str, str]:
    """Names of files as they were given, by the paths that engines make of them."""
    absolute = {path: file for file in files for path in _paths(file)}
    return absolute | {file: file for file in files}


def _paths(file: str) -> tuple[str, ...]:
    path = Path(file)
    return () if "://" in file else (str(path.absolute()), str(path.resolve()))


def by_kind(files: Iterable[str]) -> tuple[dict[Kind, list[str]], list[Fault]]:
    """Files that are alike together; and those that cannot be read."""
    kinds: dict[Kind, list[str]] = {}
    faults = []
    for file in files:
        kind = kind_of(file)
        if isinstance(kind, Fault):
            faults.append(kind)
        else:
            kinds.setdefault(kind, []).append(file)
    return kinds, faults


def kind_of(file: str) -> Kind | Fault:
    """Format and columns of a file: from its footer or header, or the keys of all its lines."""
    plain = file.lower().split("?")[0]
    in_lines = plain.endswith((*JSON_LINES, ".json"))
    if "://" in file:
        return Kind("json" if in_lines else "csv" if plain.endswith(CSV) else "parquet")
    if not in_lines and not plain.endswith(CSV):
        return _kind_of_parquet(file)
    try:
        with gzip.open(file) if plain.endswith(".gz") else Path(file).open("rb") as stream:
            return (_kind_of_json_lines if in_lines else _kind_of_csv)(stream, file)
    except MeasurementError as error:
        return Fault(file, str(error).removeprefix(f"{file}: "))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        return Fault(file, f"cannot be read: {first_line(error)}")


def _kind_of_parquet(file: str) -> Kind | Fault:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        return Fault(file, f"broken Parquet: {first_line(error)}: write it again, or leave it out")
    return Kind("parquet", tuple((field.name, str(field.type)) for field in schema))


def _kind_of_csv(stream: IO[bytes] | gzip.GzipFile, file: str) -> Kind | Fault:
    content = stream.read(_HEADER_BYTES).removeprefix(_MARK)
    if not content.strip():
        return Fault(file, "is empty: write it again, or leave it out")
    headers, delimiter = read_header(content, file)
    if delimiter != "," and (cell := _decimal_comma(content, headers, delimiter)):
        return Fault(
            file,
            f"has decimal commas ({cell}), and a fleet takes numbers with a point: write them so, "
            "or ask ppw project, which reads both",
        )
    names = [header or f"unnamed {i}" for i, header in enumerate(headers)]
    return Kind("csv", tuple((name, "string") for name in names), delimiter)


def _decimal_comma(content: bytes, headers: list[str], delimiter: str) -> str | None:
    """First cell such as 1,8 in a column of numbers, of the first rows."""
    known = rename_headers(headers, {}, "")
    numbers = [at for at, h in enumerate(headers) if h in known and is_number(known[h].canonical)]
    rows = csv.reader(content.decode(errors="replace").splitlines()[:_ROWS], delimiter=delimiter)
    cells = (row[at] for row in rows for at in numbers if at < len(row))
    return next((cell for cell in cells if WITH_COMMA.fullmatch(cell)), None)


def _kind_of_json_lines(stream: IO[bytes] | gzip.GzipFile, file: str) -> Kind | Fault:
    names: dict[str, None] = {}
    for number, line in enumerate(stream, start=1):
        if not (text := line.removeprefix(_MARK).strip()):
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            return Fault(file, f"line {number} is not a JSON object: correct it, or drop it")
        names |= dict.fromkeys(record)
    if not names:
        return Fault(file, "is empty: write it again, or leave it out")
    return Kind("json", tuple((name, "string") for name in names))


def scan(
    connection: BaseBackend, kind: Kind, files: Sequence[str], *, file_column: str | None = None
) -> ir.Table:
    """One scan of files that are alike; all columns of text files are text.

    ``file_column`` names a column to add, of the file that each row is of.
    """
    if kind.columns is not None and file_column in dict(kind.columns):
        file_column = None
    by_engine = _scan_spark if is_spark(connection) else _scan_duckdb
    return by_engine(connection, kind, list(files), file_column)


def _scan_duckdb(
    connection: Any, kind: Kind, files: list[str], file_column: str | None
) -> ir.Table:
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


def _scan_spark(connection: Any, kind: Kind, files: list[str], file_column: str | None) -> ir.Table:
    import ibis
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


# Runs of a fleet as one table of an engine: folders, files, URLs, or a table that is there.


class Part(NamedTuple):
    """Files that are alike, and the canonical columns that they have."""

    files: tuple[str, ...]
    columns: frozenset[str]


@dataclass(frozen=True)
class FleetRuns:
    """Runs of a fleet, opened but not read.

    Attributes
    ----------
    connection : ibis connection
    table : ibis Table
        Canonical columns in SI units; `FILE_COLUMN` where several files are read.
    name : str
        For messages.
    files : tuple of str
        Empty where a table was given.
    faults : tuple of Fault
        Files that cannot be read and are left out.
    columns : mapping of str to str
        The user's own headers.
    parts : tuple of Part
        Files by their columns, which may have changed over time.
    where : mapping of str to list of values
        What all runs of the table hold, by column.
    """

    connection: BaseBackend
    table: ir.Table
    name: str
    files: tuple[str, ...]
    faults: tuple[Fault, ...]
    columns: Mapping[str, str]
    parts: tuple[Part, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)

    def holding(self, where: Mapping[str, Any]) -> FleetRuns:
        """Runs that hold what is asked for, as `ppw.runs.groups.choose_runs`."""
        if not where:
            return self
        asked = asked_of(self.table, where, self.columns, self.name)
        return replace(self, table=only_where(self.table, asked), where=asked)

    def only(self, files: Sequence[str]) -> FleetRuns:
        """Runs of some of the files."""
        opened = _of_files(
            self.connection, files, self.columns, self.name, several=len(self.files) > 1
        )
        return opened.holding(self.where)

    def without(self, faults: Sequence[Fault]) -> FleetRuns:
        """Runs of all files but those at fault, which are added to the faults."""
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
    limits: dict[str, Any] = {
        "memory_limit": memory_limit,
        "temporary": temporary,
        "threads": threads,
    }
    return _opened(source, engine, columns or {}, limits).holding(where or {})


def _opened(
    source: object, engine: str | BaseBackend, columns: Mapping[str, str], limits: dict[str, Any]
) -> FleetRuns:
    import ibis.expr.types as ir

    if isinstance(source, ir.Table):
        connection = source.get_backend() if isinstance(engine, str) else engine
        return _of_table(connection, source, columns)
    connection = connect(engine, **limits)
    if isinstance(source, pd.DataFrame):
        return _of_frame(connection, source, columns)
    if isinstance(source, (str, Path)):
        source = [source]
    if not isinstance(source, Iterable):
        raise PpwError(f"runs is a {type(source).__name__}: give files, folders, URLs or a table")
    named = [str(s) for s in source]
    files = [file for one in named for file in find_files(one)]
    return _of_files(connection, files, columns, " ".join(named), several=len(files) > 1)


def _of_table(connection: BaseBackend, table: ir.Table, columns: Mapping[str, str]) -> FleetRuns:
    name = str(getattr(table.op(), "name", "runs"))
    tidy = canonical(table, columns=columns, source=name)
    return FleetRuns(connection, tidy, name, (), (), columns)


def _of_frame(
    connection: BaseBackend, frame: pd.DataFrame, columns: Mapping[str, str]
) -> FleetRuns:
    import pyarrow as pa

    name = str(frame.attrs.get("source", "runs"))
    # By way of Arrow, so that NaN becomes NULL and objects their own type.
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    table = registered(connection, arrow)
    return FleetRuns(
        connection, canonical(table, columns=columns, source=name), name, (), (), columns
    )


def registered(connection: Any, arrow: pa.Table) -> ir.Table:
    """Name an Arrow table in an engine, for as long as the connection lasts."""
    import ibis

    name = ibis.util.gen_name("ppw_table")
    if is_spark(connection):
        connection._session.createDataFrame(arrow).createOrReplaceTempView(name)
    else:
        connection.con.register(name, arrow)
    return connection.table(name)


def _of_files(
    connection: BaseBackend,
    files: Sequence[str],
    columns: Mapping[str, str],
    name: str,
    *,
    several: bool,
) -> FleetRuns:
    kinds, faults = by_kind(files)
    tables, parts = [], []
    file_column = FILE_COLUMN if several else None
    for kind, alike in kinds.items():
        try:
            opened = scan(connection, kind, alike, file_column=file_column)
            tables.append(canonical(opened, columns=columns, source=_shown(alike)))
            parts.append(Part(tuple(alike), frozenset(tables[-1].columns)))
        except MeasurementError as error:
            faults += [Fault(file, str(error).removeprefix(f"{_shown(alike)}: ")) for file in alike]
    if not tables:
        raise UnusableFilesError(name, faults)
    left_out = {fault.file for fault in faults}
    read = tuple(f for f in files if f not in left_out)
    table = _united(tables)
    return FleetRuns(connection, table, name, read, tuple(faults), columns, tuple(parts))


def _shown(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more like it"


def _united(tables: Sequence[ir.Table]) -> ir.Table:
    """One table of several; a column that some have not is NULL there."""
    import ibis

    if len(tables) == 1:
        return tables[0]
    types: dict[str, Any] = {}
    for table in tables:
        for name, of in table.schema().items():
            types[name] = of if types.get(name, of) == of else ibis.dtype("string")
    return ibis.union(
        *(
            table.select(
                **{
                    name: table[name].cast(of) if name in table.columns else ibis.null(of)
                    for name, of in types.items()
                }
            )
            for table in tables
        )
    )


# What is known of a table before its runs are read: which columns hold any value at all.


# A setting has few values; the estimate may miss one or two.
_FEW = 20
# A column that has a value anywhere has one among so many rows, or is looked for by itself.
_HEAD = 1000


def known_columns(runs: FleetRuns, columns: Iterable[str] | None = None) -> pd.DataFrame:
    """One row: 1.0 where a column holds a value in any run, NaN where it is empty.

    Parameters
    ----------
    runs : FleetRuns
    columns : iterable of str, optional
        To look at; by default all.
    """
    table = runs.table
    names = list(table.columns if columns is None else columns)
    head = table.select(*names).head(_HEAD).to_pyarrow()
    if runs.where and not len(head):
        raise PpwError(f"{runs.name}: no run has all of {words(runs.where)}")
    empty = [n for n in names if head[n].null_count == len(head)]
    found = dict.fromkeys(names, 1.0)
    for name in empty:
        some = table.filter(table[name].notnull()).select(name).head(1).to_pyarrow()  # noqa: PD004 — no pandas
        found[name] = 1.0 if len(some) else float("nan")
    known = pd.DataFrame([found], columns=names)
    known.attrs["source"] = runs.name
    return known


def few_valued(runs: FleetRuns) -> list[str]:
    """List the columns that may be settings: the user's own, load and sockets, if few-valued."""
    table = runs.table
    asked = [c for c in table.columns if c not in COLUMNS or c in ("load", "sockets")]
    types = {c: table[c].type() for c in asked}
    asked = [c for c, of in types.items() if of.is_string() or of.is_primitive()]
    if not asked:
        return []
    counted = table.aggregate(**{name: table[name].approx_nunique() for name in asked})
    (row,) = runs.connection.to_pyarrow(counted).to_pylist()
    return [name for name, count in row.items() if count <= _FEW]
