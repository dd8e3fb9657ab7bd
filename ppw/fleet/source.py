"""Runs of a fleet as one table of an engine: folders, files, URLs, or a table that is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from measurements.errors import MeasurementError
from measurements.schema import FILE_COLUMN
from ppw.errors import PpwError
from ppw.fleet.canonical import canonical
from ppw.fleet.connection import connect, is_spark
from ppw.fleet.faults import Fault, UnusableFilesError
from ppw.fleet.files import by_kind, find_files, scan
from ppw.fleet.selection import asked_of, only_where

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends import BaseBackend


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
        """Runs that hold what is asked for, as `ppw.selection.choose_runs`."""
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
        Take only the runs that hold these; names and units as for `ppw.selection.choose_runs`.

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
