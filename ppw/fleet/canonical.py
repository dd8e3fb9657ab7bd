"""Columns and runs of a fleet's table as engine expressions: units, choice of runs, checks."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from measurements.table.headers import Renaming, is_share, rename_headers, unit_of
from measurements.table.schema import COLUMNS, MISSING
from measurements.table.units import MEGA, UNITS
from ppw.runs.checks import (
    ACHIEVED,
    BELOW_IDLE,
    BINARY,
    ENERGY,
    KNOWN_IDLE,
    MOST_DIGITS,
    NO_WATTS,
)
from ppw.runs.checks.readings import ACHIEVED_SHARE, ENERGY_FACTOR, IDLE_SCATTER
from ppw.runs.groups import (
    SAME,
    as_number,
    is_number,
    values_by_column,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def is_canonical_number(canonical_name: str) -> bool:
    """Tell whether a column is canonical and a number."""
    return canonical_name in COLUMNS and COLUMNS[canonical_name].kind != "text"


def _column(column: ir.Value, renaming: Renaming) -> ir.Value:
    if not is_canonical_number(renaming.canonical):
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
    near = [(column - n).abs() <= SAME * abs(n) for n in map(as_number, values)]
    return reduce(or_, near).fill_null(False)


def wrong_alone(columns: Mapping[str, ir.NumericValue]) -> dict[int, ir.BooleanValue]:
    """Tell by bit what is wrong with a run by itself, where the columns are there."""
    found = {}
    if {"energy_j", "power_w", "time_s"} <= columns.keys():
        found[ENERGY] = _energy_off(columns)
    if "freq_achieved_hz" in columns:
        share = columns["freq_achieved_hz"] / columns["freq_hz"] - 1
        found[ACHIEVED] = share.abs() > ACHIEVED_SHARE
    if "power_w" in columns:
        found[NO_WATTS] = columns["power_w"] <= 0
    if {"power_w", "idle_power_w"} <= columns.keys():
        power, idle = columns["power_w"], columns["idle_power_w"]
        found[KNOWN_IDLE] = idle > 0
        found[BELOW_IDLE] = (idle > 0) & (power <= (1 - IDLE_SCATTER) * idle)
    return found


def _energy_off(columns: Mapping[str, ir.NumericValue]) -> ir.BooleanValue:
    """Energy many times power by time, whether or not one has the idle power taken off."""
    energy, power, time = (columns[c] for c in ("energy_j", "power_w", "time_s"))
    products = [power * time]
    if "idle_power_w" in columns:
        idle = columns["idle_power_w"].fill_null(0)
        products += [(power + idle) * time, (power - idle) * time]
    # Unknown where a product is not above zero, and then no reason to doubt.
    off = [
        (product <= 0) | (energy > ENERGY_FACTOR * product) | (energy * ENERGY_FACTOR < product)
        for product in products
    ]
    return (products[0] > 0) & reduce(lambda a, b: a & b, off)


def with_decades(table: ir.Table, columns: Sequence[str]) -> ir.Table:
    """Add what `recorded_step` takes of each column: its power of ten, and the value over that."""
    sized = table.mutate(
        **{_decade(name): _measurable(table[name]).log10().floor() for name in columns}
    )
    return sized.mutate(
        **{
            _mantissa(name): _measurable(sized[name]) / _power(sized[_decade(name)])
            for name in columns
        }
    )


def _measurable(value: ir.NumericValue) -> ir.NumericValue:
    """Size of a number that has digits: 0 has none, nor has what could not be read."""
    size = value.abs()
    return ((size > 0) & (size < float("inf"))).ifelse(size, None)


def recorded_step(table: ir.Table, column: str) -> ir.NumericValue:
    """Step of the last decimal digit of a number: `ppw.runs.checks.recorded_step`.

    ``table`` is of `with_decades`, so that powers, which cost most, are computed twice a number and
    not for each of its digits.
    """
    digits: Any = MOST_DIGITS
    for fewer in range(MOST_DIGITS - 1, 0, -1):
        scaled = table[_mantissa(column)] * 10.0 ** (fewer - 1)
        whole = (scaled - scaled.round()).abs() <= BINARY * scaled
        digits = whole.ifelse(fewer, digits)
    return _power(table[_decade(column)] - (digits - 1))


def _decade(column: str) -> str:
    return f"{column}__decade"


def _mantissa(column: str) -> str:
    return f"{column}__mantissa"


def _power(exponent: ir.NumericValue) -> ir.NumericValue:
    import ibis

    return ibis.literal(10.0) ** exponent
