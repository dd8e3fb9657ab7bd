"""Rows of fields between separators, read by position; what is no number is left out and marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    from collections.abc import Collection

    import pyarrow as pa


# Columns of a log that are gathered block by block, as each may have columns of its own.


# No counter of a host grows by more in a second; a broken one may show 2**64.
_LARGEST = 1e18


def leave_out_absurd(numbers: Numbers) -> NDArray[np.bool_]:
    """Make what no counter can show NaN, in place, and say where it was."""
    absurd: NDArray[np.bool_] = np.abs(numbers) > _LARGEST
    numbers[absurd] = np.nan
    return absurd


class Gathering:
    """Blocks of rows, one below the other; a column that a block does not have is NaN there."""

    def __init__(self) -> None:
        self.rows = 0
        self._blocks: dict[str, list[tuple[int, Numbers]]] = {}

    def add(self, rows: int, columns: Mapping[str, Numbers]) -> None:
        """Add a block of so many rows."""
        for name, numbers in columns.items():
            self._blocks.setdefault(name, []).append((self.rows, numbers))
        self.rows += rows

    def columns(self) -> dict[str, Numbers]:
        """All columns, whole; afterwards nothing is left."""
        whole = {}
        while self._blocks:
            name, blocks = self._blocks.popitem()
            column = np.full(self.rows, np.nan)
            for start, numbers in blocks:
                column[start : start + len(numbers)] = numbers
            whole[name] = column
        return dict(reversed(whole.items()))


@dataclass(slots=True)
class Block:
    """Some rows of a log.

    Attributes
    ----------
    texts, numbers : mapping of position to column
        NaN for a field that is empty or no number.
    odd : array of bool
        Rows with a field that is no number.
    skipped : int
        Rows with more or fewer fields than there are columns.
    """

    texts: dict[int, pa.ChunkedArray]
    numbers: dict[int, Numbers]
    odd: NDArray[np.bool_]
    skipped: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.odd)


def read_block(
    data: bytes, separator: str, width: int, texts: Collection[int], numbers: Collection[int]
) -> Block:
    """Read rows.

    Parameters
    ----------
    data : bytes
        Whole lines, without a header.
    separator : str
    width : int
        Fields of a row.
    texts, numbers : collections of int
        Positions of the fields to read as text and as numbers; the others are passed over.
    """
    import pyarrow as pa

    if not data.isascii():
        data = data.decode("utf-8", errors="replace").encode()
    try:
        table, skipped = _parse(data, separator, width, texts, numbers, "float64")
    except pa.ArrowException:
        # One field that is no number refuses the whole block; as text all can be read.
        try:
            table, skipped = _parse(data, separator, width, texts, numbers, "string")
        except pa.ArrowException:
            return Block({}, {}, np.zeros(0, bool), data.count(b"\n"))
    odd = np.zeros(table.num_rows, bool)
    found = {}
    for position in numbers:
        found[position], bad = _numbers(table.column(str(position)))
        odd |= bad
    return Block({p: table.column(str(p)) for p in texts}, found, odd, skipped)


def _parse(
    data: bytes,
    separator: str,
    width: int,
    texts: Collection[int],
    numbers: Collection[int],
    kind: str,
) -> tuple[pa.Table, int]:
    import pyarrow as pa
    from pyarrow import csv

    skipped: list[int] = []

    def skip(row: Any) -> str:
        skipped.append(1)
        return "skip"

    # A table without rows is refused.
    if not data.strip():
        return pa.table({str(p): pa.array([], "float64") for p in (*texts, *numbers)}), 0
    types = {str(p): "string" for p in texts} | {str(p): kind for p in numbers}
    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(column_names=[str(n) for n in range(width)]),
        parse_options=csv.ParseOptions(
            delimiter=separator, quote_char=False, invalid_row_handler=skip
        ),
        convert_options=csv.ConvertOptions(
            include_columns=list(types),
            column_types={name: pa.type_for_alias(type_) for name, type_ in types.items()},
            null_values=[""],
            check_utf8=False,
        ),
    )
    return table, len(skipped)


def _numbers(column: pa.ChunkedArray) -> tuple[Numbers, NDArray[np.bool_]]:
    """Numbers of a column, and where it has something else."""
    if str(column.type) != "string":
        found = np.array(column.to_numpy(), dtype=float)
        # "nan" and "inf" are numbers to the parser.
        odd = ~np.isfinite(found)
        if column.null_count and odd.any():
            odd &= np.asarray(column.is_valid().to_numpy(), dtype=bool)
    else:
        import pandas as pd

        texts = pd.Series(column.fill_null("").to_pylist(), dtype=object)
        found = np.array(pd.to_numeric(texts, errors="coerce"), dtype=float)
        odd = ~np.isfinite(found) & texts.ne("").to_numpy()
    found[odd] = np.nan
    odd |= leave_out_absurd(found)
    return found, odd
