"""The runs tables that a command names: read, their columns by the files' headers, rows chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.output import say

if TYPE_CHECKING:
    import pandas as pd

# Options that name columns, and those whose values are told by columns.
_NAMING, _SELECTING = ("by", "over", "of"), ("a", "b")


def read(runs: tuple[str, ...], given: dict[str, Any]) -> pd.DataFrame:
    """Read the runs that the options ask for; what is asked of them checks them.

    --map and --where are taken out of the options given. An option that names a header of the
    files' own names the column that it became from here on.
    """
    from measurements import read_runs
    from ppw.selection import choose_runs

    mapping, where = given.pop("mapping"), given.pop("where")
    table = read_runs(runs[0] if len(runs) == 1 else list(runs), columns=mapping, check=False)
    selecting = [*where, *(name for side in _SELECTING for name in given.get(side) or ())]
    columns = {name: _column(table, name) for name in dict.fromkeys(selecting)}
    for option in _NAMING:
        if named := given.get(option):
            names = [named] if isinstance(named, str) else named
            columns |= {name: _column(table, name) for name in names if name not in columns}
            given[option] = (
                columns[named] if isinstance(named, str) else [columns[n] for n in names]
            )
    return choose_runs(table, where) if where else table


def read_io_runs(runs: tuple[str, ...], given: dict[str, Any]) -> pd.DataFrame:
    """Read runs for cycles per I/O as `read` does; of a log, say how to make a table of it."""
    from measurements.timeseries.reading import is_log
    from ppw.errors import PpwError

    for path in runs:
        if path != "-" and is_log(path):
            raise PpwError(
                f"{path}: is a log of a host, no runs table: make one by ppw cpio {path} "
                f"--clock 2.4GHz -o {Path(path).name.partition('.')[0]}-cpio.csv, with its clock"
            )
    return read(runs, given)


def refuse_table_options(given: dict[str, Any], instead: str) -> None:
    """Take --map and --where out of the options, and refuse them where no runs table is read."""
    for option, name in (("mapping", "--map"), ("where", "--where")):
        if given.pop(option):
            raise click.UsageError(f"{name} is for runs tables, and {instead}")


def _column(table: pd.DataFrame, name: str) -> str:
    """Column that a header of the files' own became, which is said; else the name as it is."""
    from measurements.runs import renamed_headers

    became = renamed_headers(table).get(name)
    if became is None or name in table.columns:
        return name
    column = became.canonical
    # A column in another unit is no other column.
    if not name.lower().startswith(column.rpartition("_")[0] or column):
        say(f"{name} is read as the column {column}")
    return column
