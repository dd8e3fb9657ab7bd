"""Cells of a runs table that hold more than a plain number: units, and decimal commas.

A spreadsheet in a locale with decimal commas writes ``;`` or tabs between its columns and ``1,8``
for 1.8. Where one cell of a table is written so, all its numbers are: a point in another of them
may be a decimal one or part thousands, a factor of 1000 apart, and is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements.checks import as_numbers
from measurements.errors import MeasurementError
from measurements.headers import unit_in_cells
from measurements.quantities import has_unit, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from measurements.headers import Renaming

WITH_COMMA = re.compile(r"\s*[+-]?\d+,\d+(?:[eE][+-]?\d+)?\s*[^\d,;\s]*\s*")
_PARTED = re.compile(r"[1-9]\d{0,2}\.\d{3}")
_WITH_POINT = re.compile(r"\s*[+-]?\d*\.\d.*")
_LEAST_MHZ, _LEAST_KHZ, _LEAST_HZ = 50.0, 3e4, 3e7


def has_decimal_commas(table: pd.DataFrame, columns: Iterable[str]) -> bool:
    """Tell whether one of the columns has a cell such as ``1,8`` or ``1,8GHz``."""
    texts = (table[c] for c in columns if table[c].dtype.kind not in "iufbmMc")
    return any(WITH_COMMA.fullmatch(cell) for text in texts for cell in text if _is(cell))


def may_be_thousands(table: pd.DataFrame, columns: Iterable[str]) -> list[str]:
    """Say of which columns, still text, every point may part thousands: 1.100 beside 770."""
    found = []
    for name in columns:
        cells = [cell.strip() for cell in table[name] if _is(cell)]
        pointed = [cell for cell in cells if "." in cell]
        if pointed and len(pointed) < len(cells) and all(map(_PARTED.fullmatch, pointed)):
            cell = pointed[0]
            found.append(
                f"column {name!r}: {cell} is read as {float(cell):g}, and may be "
                f"{cell.replace('.', '')}: where it has a point, all numbers have three digits "
                "after it; write thousands without points"
            )
    return found


def with_points(table: pd.DataFrame, columns: Iterable[str], source: str) -> pd.DataFrame:
    """Write decimal points for the decimal commas of columns that are text, in place.

    Raises
    ------
    MeasurementError
        Where a cell has a decimal point already.
    """
    for name in columns:
        if mixed := next((c for c in table[name] if _is(c) and _WITH_POINT.fullmatch(c)), None):
            raise MeasurementError(
                f"{source}: column {name!r} has {mixed!r}, and other numbers of the file have a "
                "decimal comma: write all with a comma and without thousands separators, or all "
                "with a point"
            )
        table[name] = table[name].map(_pointed, na_action="ignore")
    return table


def _is(cell: object) -> bool:
    return isinstance(cell, str)


def _pointed(cell: object) -> object:
    if isinstance(cell, str) and WITH_COMMA.fullmatch(cell):
        return cell.replace(",", ".", 1)
    return cell


def converted(column: pd.Series[Any], renaming: Renaming) -> pd.Series[Any]:
    """Numbers in the canonical unit; a cell with a unit of its own, such as ``2.10GHz``, by that.

    A cell that is neither is left, for the check that names its row.
    """
    if renaming.factor == 1.0 and column.dtype.kind in "iuf":
        return column
    numbers = as_numbers(column)
    scaled: pd.Series[Any] = renaming.scaled(numbers)
    wrong = numbers.isna() & column.notna()
    if not wrong.any():
        return scaled
    unit = unit_in_cells(renaming.canonical)
    known = {c: _quantity(c, unit) for c in {c for c in column[wrong] if isinstance(c, str)}}
    cells = column[wrong].map(lambda cell: known.get(cell, cell) if _is(cell) else cell)
    return scaled.astype(object).where(~wrong, cells.reindex(column.index))


def _quantity(cell: str, unit: str) -> float | str:
    if not unit or not has_unit(cell):
        return cell
    try:
        return parse_quantity(cell, unit)
    except MeasurementError:
        return cell


def refuse_unitless(table: pd.DataFrame, renamings: Mapping[str, Renaming], source: str) -> None:
    """Raise `MeasurementError` for the columns whose unit neither header nor cells tell."""
    bare = {h: r.canonical for h, r in renamings.items() if r.unit_in_cells and _is_bare(table[h])}
    if not bare:
        return
    first = next(iter(bare))
    row = int(np.flatnonzero(as_numbers(table[first]).notna())[0]) + 1
    named = {header: _guess(canonical, table[header]) for header, canonical in bare.items()}
    several = len(bare) > 1
    maps = " ".join(f"--map {name}={_quoted(header)}" for header, name in named.items())
    raise MeasurementError(
        f"{source}: column{'s' if several else ''} {', '.join(map(repr, bare))} "
        f"{'have' if several else 'has'} no unit (row {row}): "
        f"name {'them' if several else 'it'} with one, such as {', '.join(named.values())}, or "
        f"{maps}"
    )


def _is_bare(column: pd.Series[Any]) -> bool:
    return bool(as_numbers(column).notna().any())


def _guess(canonical: str, column: pd.Series[Any]) -> str:
    """Name of the column with a unit that its numbers may be in."""
    base, _, unit = canonical.rpartition("_")
    if unit != "hz":
        return canonical
    typical = float(as_numbers(column).median())
    ends = {_LEAST_HZ: "hz", _LEAST_KHZ: "khz", _LEAST_MHZ: "mhz"}
    return f"{base}_{next((u for least, u in ends.items() if typical >= least), 'ghz')}"


def _quoted(header: str) -> str:
    return f"'{header}'" if not header.isalnum() else header
