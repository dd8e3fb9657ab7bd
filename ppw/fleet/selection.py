"""Choosing runs of a fleet by what their columns say, as `ppw.selection` does in memory."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from measurements.headers import rename_headers
from ppw.selection import SAME, as_number, is_number, values_by_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    import ibis.expr.types as ir


def asked_of(
    table: ir.Table, where: Mapping[str, Any], columns: Mapping[str, str], source: str
) -> dict[str, list[Any]]:
    """Values asked for by canonical column.

    Parameters
    ----------
    table : ibis Table
        With canonical columns.
    where : mapping of str to value or list of values
        As for `ppw.selection.choose_runs`.
    columns : mapping of str to str
        The user's own headers.
    source : str
        Name for messages.

    Raises
    ------
    UnknownColumnError
        For a column that is not there, with the nearest.
    """
    mapped = rename_headers([*columns.values()], columns, source)
    return values_by_column(where, table.columns, mapped, f"{source}: ", "to choose runs by")


def only_where(table: ir.Table, asked: Mapping[str, list[Any]]) -> ir.Table:
    """Runs that hold one of the values asked for in each column."""
    return table.filter(reduce(and_, (_holding(table[c], v) for c, v in asked.items())))


def _holding(column: ir.Value, values: list[Any]) -> Any:
    """Rows in which a column is one of several values."""
    if not is_number(column.get_name()) and not column.type().is_numeric():
        return column.cast("string").isin([str(value) for value in values])
    near = [(column - n).abs() <= SAME * abs(n) for n in map(as_number, values)]
    return reduce(or_, near).fill_null(False)
