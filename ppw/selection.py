"""Choosing runs, or groups of them, by what their columns say."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements.checks import as_numbers, row_numbers
from measurements.errors import MeasurementError
from measurements.headers import Renaming, column_meant, nearest, shown, unit_in_cells
from measurements.quantities import parse_quantity
from measurements.runs import renamed_headers
from measurements.schema import COLUMNS, ROW_COLUMN
from ppw.errors import PpwError, UnknownColumnError
from ppw.estimate import shown as amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

# A number that is typed is not the last digit of one that was converted.
SAME = 1e-6


def choose_runs(runs: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Choose runs by what columns say of them.

    Parameters
    ----------
    runs : pandas.DataFrame
        As `measurements.read_runs` gives it.
    where : mapping of str to value or list of values
        Column, or header of the file's own, and what it must hold: any one of a list. A number is
        in the unit of the name, or carries its own: ``{"freq": "1.2GHz"}``.

    Returns
    -------
    pandas.DataFrame
        The rows that hold all of it; the column ``source_row`` numbers them as their file does.

    Raises
    ------
    UnknownColumnError
        For a column that is not there, with the nearest.
    PpwError
        Where no run holds it.
    """
    asked = columns_asked(runs, where, "to choose runs by")
    chosen = rows_where(runs, asked)
    table = runs.assign(**{ROW_COLUMN: row_numbers(runs)})[chosen].reset_index(drop=True)
    if "digest" in runs.attrs:
        both = f"{runs.attrs['digest']} {sorted(asked.items())}"
        table.attrs["digest"] = f"sha256:{hashlib.sha256(both.encode()).hexdigest()}"
    return table


def columns_asked(
    runs: pd.DataFrame, where: Mapping[str, Any], what_for: str
) -> dict[str, list[Any]]:
    """Values asked for by column of a runs table, as `values_by_column`."""
    source = str(runs.attrs.get("source", "runs"))
    columns = list(map(str, runs.columns))
    return values_by_column(where, columns, renamed_headers(runs), f"{source}: ", what_for)


def values_by_column(
    where: Mapping[str, Any],
    columns: Sequence[str],
    headers: Mapping[str, Renaming],
    source: str,
    what_for: str,
) -> dict[str, list[Any]]:
    """Give a selection by the columns that its names mean, quantities in their units.

    Raises `UnknownColumnError`, which begins with ``source`` and says ``what_for`` the column is.
    """
    found: dict[str, list[Any]] = {}
    for name, value in where.items():
        meant = column_meant(name, columns, headers)
        if meant is None:
            raise UnknownColumnError(
                f"{source}no column {name!r}{nearest(name, [*columns, *headers])} {what_for}; "
                f"the columns are {shown(columns)}"
            )
        found.setdefault(meant.canonical, []).extend(_read(one, meant) for one in _several(value))
    return found


def rows_where(table: pd.DataFrame, where: Mapping[str, Any]) -> Mask:
    """Rows that hold all of a selection by columns of the table.

    Raises `PpwError` where none does.
    """
    chosen = np.ones(len(table), dtype=bool)
    for column, value in where.items():
        chosen &= np.logical_or.reduce([_holding(table[column], one) for one in _several(value)])
    if not chosen.any():
        raise PpwError(f"no run has all of {words(where)}")
    return chosen


def words(where: Mapping[str, Any]) -> str:
    """Write a selection as it is typed."""
    pairs = [(column, one) for column, value in where.items() for one in _several(value)]
    return ", ".join(f"{column}={_written(column, one)}" for column, one in pairs)


def is_number(column: str) -> bool:
    """Tell whether a column is one of ppw's, of numbers."""
    return column in COLUMNS and COLUMNS[column].kind != "text"


def as_number(value: Any) -> float:
    """Read a value as a number; NaN, which nothing is, for another."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _read(value: Any, meant: Renaming) -> Any:
    """Value in the unit of the column: a plain number is in that of the name it was asked by."""
    if not is_number(meant.canonical):
        return value
    number = as_number(value)
    unit = unit_in_cells(meant.canonical)
    if number == number or not unit:
        return meant.scaled(number) if number == number else value
    try:
        return parse_quantity(str(value), unit)
    except MeasurementError:
        return value


def _holding(column: pd.Series[Any], value: Any) -> Mask:
    """Rows that hold a value. Raises `PpwError` where none does, with those that there are."""
    name = str(column.name)
    if is_number(name) or pd.api.types.is_numeric_dtype(column):
        numbers = as_numbers(column).to_numpy()
        same = np.isclose(numbers, as_number(value), rtol=SAME, atol=0.0)
    else:
        same = np.asarray(column.astype(str) == str(value), dtype=bool)
    if not same.any():
        known = [_written(name, v) for v in dict.fromkeys(column.dropna())]
        again = ""
        if "," in (text := str(value)):
            again = f"; name {name} again for another value: " + ",".join(
                f"{name}={one}" for one in text.split(",")
            )
        raise PpwError(
            f"no run has {name} {_written(name, value)!r}{nearest(str(value), known)}; there are "
            f"{shown(known, 10)}{again}"
        )
    return same


def _written(column: str, value: object) -> str:
    """Value for people, in a unit that reads well."""
    if isinstance(value, (float, np.floating)) and is_number(column):
        return amount(float(value), COLUMNS[column].unit)
    return str(value)
