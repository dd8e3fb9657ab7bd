"""Columns and runs of a fleet's table as engine expressions: units, choice of runs, checks."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from measurements.table.headers import Renaming, rename_headers, unit_in_cells
from measurements.table.schema import MISSING, is_number
from measurements.table.units import MEGA, QUANTITY, UNITS
from ppw.runs.checks import digit_step
from ppw.runs.expressions import any_of
from ppw.runs.groups import as_number, is_same, values_by_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import ibis.expr.types as ir


# What is no number becomes one that no rule allows, so that it is named with the rest.
_NO_NUMBER = float("-inf")


def canonical(
    table: ir.Table, *, columns: Mapping[str, str] | None = None, source: str = "runs"
) -> ir.Table:
    """Bring an engine's table to canonical columns, as `measurements.read_runs` does.

    Canonical numbers become float64 in SI units, missing ones NULL and never NaN; what is no
    number becomes −inf, which no rule of a runs table allows. Other columns stay untouched.

    Parameters
    ----------
    table : ibis Table
    columns : mapping of str to str, optional
        Canonical column to the foreign header it stands for.
    source : str
        Name for messages.

    Raises
    ------
    MeasurementError
        As `measurements.read_runs`, for headers that contradict each other.
    """
    renamings = rename_headers(list(table.columns), columns or {}, source)
    return table.select(
        **{
            renamings[name].canonical if name in renamings else name: _column(
                table[name], renamings.get(name, Renaming(name))
            )
            for name in table.columns
        }
    )


def _column(column: ir.Value, renaming: Renaming) -> ir.Value:
    if not is_number(renaming.canonical):
        return _known(column)
    if column.type().is_string():
        column = column.strip()
        return _read(column.isin(MISSING).ifelse(None, column), renaming)
    if column.type().is_boolean() or not column.type().is_numeric():
        return column.notnull().ifelse(_NO_NUMBER, None).cast("float64")
    return _scaled(_known(column).cast("float64"), renaming)


def _known(number: ir.Value) -> ir.Value:
    """A number, or NULL for NaN."""
    return number.isnan().ifelse(None, number) if number.type().is_floating() else number


def _scaled(number: ir.Value, renaming: Renaming) -> ir.Value:
    return number if renaming.factor == 1.0 else renaming.scaled(number)


def _read(text: ir.Value, renaming: Renaming) -> ir.Value:
    """Read a number in the unit of the header, where it has one, or in one of its own."""
    import ibis

    unit = unit_in_cells(renaming.canonical)
    value = _quantity(text, unit) if unit else ibis.null("float64")
    if not renaming.unit_in_cells:
        value = _scaled(text.try_cast("float64"), renaming).coalesce(value)
    return text.notnull().ifelse(value.coalesce(_NO_NUMBER), None).cast("float64")


def _quantity(text: ir.Value, unit: str) -> ir.Value:
    """Read "2.10GHz" in SI, and "50%" as a share."""
    number = text.re_extract(QUANTITY.pattern, 1).try_cast("float64")
    written = text.re_extract(QUANTITY.pattern, 2)
    if unit == "share":
        return (written == "%").ifelse(number / 100, None)
    plain = written.lower().replace("µ", "u").replace("μ", "u").replace("°", "")
    factors = {name: u.factor for name, u in UNITS.items() if u.si == unit}
    factor = plain.cases(*factors.items(), else_=None)
    mega = {name: u.factor for name, u in MEGA.items() if u.si == unit}
    return number * (written.cases(*mega.items(), else_=factor) if mega else factor)


def asked_of(
    table: ir.Table, where: Mapping[str, Any], columns: Mapping[str, str], source: str
) -> dict[str, list[Any]]:
    """Values asked for by canonical column.

    Parameters
    ----------
    table : ibis Table
        With canonical columns.
    where : mapping of str to value or list of values
        As for `ppw.runs.groups.choose_runs`.
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
    return any_of(is_same(column, as_number(value)) for value in values).fill_null(False)


def with_decades(table: ir.Table, columns: Sequence[str]) -> ir.Table:
    """Add what `recorded_step` takes of each column: its power of ten, and the value over that."""
    sizes = {name: table[name].abs() for name in columns}
    # 0 has no digits, nor has what could not be read.
    sizes = {n: ((s > 0) & (s < float("inf"))).ifelse(s, None) for n, s in sizes.items()}
    table = table.mutate(**{f"{name}__decade": s.log10().floor() for name, s in sizes.items()})
    return table.mutate(
        **{f"{name}__mantissa": s / 10.0 ** table[f"{name}__decade"] for name, s in sizes.items()}
    )


def recorded_step(table: ir.Table, column: str) -> ir.NumericValue:
    """Step of the last decimal digit of a number, in a table of `with_decades`."""
    return digit_step(table[f"{column}__mantissa"], table[f"{column}__decade"])
