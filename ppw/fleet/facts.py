"""What is known of a table before its runs are read: which columns hold any value at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from measurements.schema import COLUMNS
from ppw.errors import PpwError
from ppw.selection import words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppw.fleet.source import FleetRuns

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
