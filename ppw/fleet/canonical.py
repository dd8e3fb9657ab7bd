"""Foreign columns of an engine's table to canonical ones: `measurements.headers` as expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.headers import Renaming, is_share, rename_headers, unit_of
from measurements.quantities import MEGA, UNITS
from measurements.schema import COLUMNS, MISSING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import ibis.expr.types as ir

# What is no number becomes one that no rule allows, so that it is named with the rest.
_NO_NUMBER = float("-inf")
_QUANTITY = r"^\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-zµμ°]*)\s*$"
_PERCENT = r"^\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*%\s*$"


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


def is_number(canonical_name: str) -> bool:
    """Tell whether a column is canonical and a number."""
    return canonical_name in COLUMNS and COLUMNS[canonical_name].kind != "text"


def _column(column: ir.Value, renaming: Renaming) -> ir.Value:
    if not is_number(renaming.canonical):
        return _known(column)
    if column.type().is_string():
        column = column.strip()
        column = column.isin(MISSING).ifelse(None, column)
        if renaming.unit_in_cells:
            return _with_unit(column, unit_of(renaming.canonical))
        return _read(column, renaming, unit_of(renaming.canonical))
    if column.type().is_boolean() or not column.type().is_numeric():
        return column.notnull().ifelse(_NO_NUMBER, None).cast("float64")
    return _scaled(_known(column).cast("float64"), renaming)


def _known(number: ir.Value) -> ir.Value:
    """A number, or NULL for NaN."""
    return number.isnan().ifelse(None, number) if number.type().is_floating() else number


def _scaled(number: ir.Value, renaming: Renaming) -> ir.Value:
    return number if renaming.factor == 1.0 else renaming.scaled(number)


def _read(text: ir.Value, renaming: Renaming, unit: str) -> ir.Value:
    """Read a number in the unit of the header, or in one of its own."""
    value = _scaled(text.try_cast("float64"), renaming)
    if is_share(renaming.canonical):
        value = value.coalesce(text.re_extract(_PERCENT, 1).try_cast("float64") / 100)
    elif unit:
        value = value.coalesce(_quantity(text, unit))
    return text.notnull().ifelse(value.coalesce(_NO_NUMBER), None).cast("float64")


def _with_unit(text: ir.Value, unit: str) -> ir.Value:
    """Read "2.10GHz" in SI; a bare number is no quantity where the header names no unit."""
    value = _quantity(text, unit)
    return text.notnull().ifelse(value.coalesce(_NO_NUMBER), None).cast("float64")


def _quantity(text: ir.Value, unit: str) -> ir.Value:
    number = text.re_extract(_QUANTITY, 1).try_cast("float64")
    written = text.re_extract(_QUANTITY, 2)
    plain = written.lower().replace("µ", "u").replace("μ", "u").replace("°", "")
    factors = {name: u.factor for name, u in UNITS.items() if u.si == unit}
    factor = plain.cases(*factors.items(), else_=None)
    mega = {name: u.factor for name, u in MEGA.items() if u.si == unit}
    return number * (written.cases(*mega.items(), else_=factor) if mega else factor)
