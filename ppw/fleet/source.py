"""Runs of a fleet as one table of an engine: folders, files, URLs, or a table that is there."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import dataclass, replace
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from measurements.errors import MeasurementError
from measurements.runs import read_header
from measurements.schema import FILE_COLUMN
from ppw.errors import PpwError
from ppw.fleet.canonical import canonical
from ppw.fleet.connection import connect, is_spark
from ppw.fleet.faults import Fault, first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends import BaseBackend

PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt")
# Spark names files as URLs, in which a plus is no space.
_LOCAL_NAME = "url_decode(replace(regexp_replace(input_file_name(), '^file:/+', '/'), '+', '%2B'))"
# A header is in the first of a file; wider ones are no runs table's.
_HEADER_BYTES = 1 << 20


class Kind(NamedTuple):
    """What files have in common that one scan reads: format and columns, with types or delimiter.

    ``columns`` is None where only the engine can tell, as of a URL.
    """

    format: str
    columns: tuple[tuple[str, str], ...] | None = None
    delimiter: str = ","


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
    """

    connection: BaseBackend
    table: ir.Table
    name: str
    files: tuple[str, ...]
    faults: tuple[Fault, ...]
    columns: Mapping[str, str]
    parts: tuple[Part, ...] = ()

    def only(self, files: Sequence[str]) -> FleetRuns:
        """Runs of some of the files."""
        return _of_files(
            self.connection, files, self.columns, self.name, several=len(self.files) > 1
        )

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
    memory_limit: str | None = None,
    temporary: str | Path | None = None,
    threads: int | None = None,
) -> FleetRuns:
    """Open the runs of a fleet.

    Parameters
    ----------
    source : path, URL, several of them, ibis Table or pandas.DataFrame
        Parquet or CSV files, folders of them (searched to the bottom), patterns such as
        ``runs/*/*.parquet``, or URLs as the engine reads them.
    engine, memory_limit, temporary, threads
        As for `connect`. A table has its own connection.
    columns : mapping of str to str, optional
        Canonical column, in any unit, to the foreign header it stands for.

    Raises
    ------
    PpwError
        When there is no file, or none that can be read.
    MeasurementError
        When the headers of all files contradict each other.
    """
    import ibis.expr.types as ir

    limits: dict[str, Any] = {
        "memory_limit": memory_limit,
        "temporary": temporary,
        "threads": threads,
    }
    if isinstance(source, ir.Table):
        connection = source.get_backend() if isinstance(engine, str) else engine
        return _of_table(connection, source, columns or {})
    connection = connect(engine, **limits)
    if isinstance(source, pd.DataFrame):
        return _of_frame(connection, source, columns or {})
    if isinstance(source, (str, Path)):
        source = [source]
    if not isinstance(source, Iterable):
        raise PpwError(f"runs is a {type(source).__name__}: give files, folders, URLs or a table")
    named = [str(s) for s in source]
    files = [file for one in named for file in _files(one)]
    return _of_files(connection, files, columns or {}, " ".join(named), several=len(files) > 1)


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


def _files(source: str) -> list[str]:
    if "://" in source:
        return [source]
    path = Path(source)
    if path.is_dir():
        found = sorted(str(p) for p in path.rglob("*") if _is_table(p))
    elif has_magic(source) and not path.exists():
        # As the shell has it: a pattern may be absolute, which Path.glob refuses.
        found = sorted(p for p in glob(source, recursive=True) if Path(p).is_file())  # noqa: PTH207
    else:
        found = [source] if path.exists() else []
    if not found:
        raise PpwError(
            f"{source}: no file there ends in {', '.join((*PARQUET, *CSV))}: name a file, a folder "
            "of them or a pattern"
        )
    return found


def _is_table(path: Path) -> bool:
    """Tell whether a file is a runs table; Spark's own begin with _ or a dot."""
    return path.name.lower().endswith((*PARQUET, *CSV)) and path.name[0] not in "._"


def _of_files(
    connection: BaseBackend,
    files: Sequence[str],
    columns: Mapping[str, str],
    name: str,
    *,
    several: bool,
) -> FleetRuns:
    kinds: dict[Kind, list[str]] = {}
    faults = []
    for file in files:
        kind = _kind(file)
        if isinstance(kind, Fault):
            faults.append(kind)
        else:
            kinds.setdefault(kind, []).append(file)
    tables, parts = [], []
    for kind, alike in kinds.items():
        try:
            opened = _scan(connection, kind, alike, several=several)
            tables.append(canonical(opened, columns=columns, source=_shown(alike)))
            parts.append(Part(tuple(alike), frozenset(tables[-1].columns)))
        except MeasurementError as error:
            faults += [Fault(file, str(error).removeprefix(f"{_shown(alike)}: ")) for file in alike]
    if not tables:
        raise PpwError(
            f"{name}: none of {len(files)} files can be read, such as {faults[0]}"
            if faults
            else f"{name}: no file is left"
        )
    left_out = {fault.file for fault in faults}
    read = tuple(f for f in files if f not in left_out)
    table = _united(tables)
    return FleetRuns(connection, table, name, read, tuple(faults), columns, tuple(parts))


def _shown(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more like it"


def _kind(file: str) -> Kind | Fault:
    """Format and columns of a file, from its footer or header."""
    plain = file.lower().split("?")[0]
    if "://" in file:
        return Kind("csv" if plain.endswith(CSV) else "parquet")
    if plain.endswith(CSV):
        return _kind_of_csv(file)
    return _kind_of_parquet(file)


def _kind_of_parquet(file: str) -> Kind | Fault:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        return Fault(file, f"broken Parquet: {first_line(error)}: write it again, or leave it out")
    return Kind("parquet", tuple((field.name, str(field.type)) for field in schema))


def _kind_of_csv(file: str) -> Kind | Fault:
    try:
        with gzip.open(file) if file.lower().endswith(".gz") else Path(file).open("rb") as stream:
            content = stream.read(_HEADER_BYTES).removeprefix(b"\xef\xbb\xbf")
        if not content.strip():
            return Fault(file, "is empty: write it again, or leave it out")
        headers, delimiter = read_header(content, file)
    except MeasurementError as error:
        return Fault(file, str(error).removeprefix(f"{file}: "))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        return Fault(file, f"cannot be read: {first_line(error)}")
    names = [header or f"unnamed {i}" for i, header in enumerate(headers)]
    return Kind("csv", tuple((name, "string") for name in names), delimiter)


def _scan(connection: BaseBackend, kind: Kind, files: Sequence[str], *, several: bool) -> ir.Table:
    """One scan of files that are alike; the file's name is a column where there are several."""
    own = kind.columns is not None and FILE_COLUMN in dict(kind.columns)
    scan = _scan_spark if is_spark(connection) else _scan_duckdb
    return scan(connection, kind, list(files), FILE_COLUMN if several and not own else None)


def _scan_duckdb(
    connection: Any, kind: Kind, files: list[str], file_column: str | None
) -> ir.Table:
    options: dict[str, Any] = {} if file_column is None else {"filename": file_column}
    if kind.format == "parquet":
        return connection.read_parquet(files, **options)
    if kind.columns is None:
        return connection.read_csv(files, all_varchar=True, **options)
    return connection.read_csv(
        files,
        columns={name: "VARCHAR" for name, _ in kind.columns},
        header=True,
        sep=kind.delimiter,
        quote='"',
        escape='"',
        auto_detect=False,
        **options,
    )


def _scan_spark(connection: Any, kind: Kind, files: list[str], file_column: str | None) -> ir.Table:
    import ibis
    from pyspark.sql import functions as sql

    reader = connection._session.read
    if kind.format == "parquet":
        frame = reader.parquet(*files)
    else:
        names = ", ".join(f"`{name.replace('`', '``')}` string" for name, _ in kind.columns or ())
        options = {"header": True, "sep": kind.delimiter, "escape": '"', "mode": "FAILFAST"}
        reader = reader.options(**options)
        frame = (reader.schema(names) if names else reader).csv(files)
    if file_column is not None:
        frame = frame.withColumn(file_column, sql.expr(_LOCAL_NAME))
    view = ibis.util.gen_name("ppw_scan")
    frame.createOrReplaceTempView(view)
    return connection.table(view)


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
