"""Rows of fields between separators, read by position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from measurements.timeseries.log import Flags, Numbers, leave_out_absurd

if TYPE_CHECKING:
    from collections.abc import Collection


class Block(NamedTuple):
    """Some rows of a log.

    Attributes
    ----------
    texts, numbers : mapping of position to column
        NaN for a field that is empty or no number.
    odd : array of bool
        Rows with a field that is no number.
    skipped : int
        Number of rows with more or fewer fields than there are columns.
    """

    texts: dict[int, pa.ChunkedArray]
    numbers: dict[int, Numbers]
    odd: Flags
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
        Number of fields in a row.
    texts, numbers : collections of int
        Positions of the fields to read as text and as numbers; the others are passed over.
    """
    if not data.isascii():
        data = data.decode("utf-8", errors="replace").encode()
    types = {str(position): pa.string() for position in texts}
    floats = {str(position): pa.float64() for position in numbers}
    strings = dict.fromkeys(floats, pa.string())
    try:
        table, skipped = _parse(data, separator, width, types | floats)
    except pa.ArrowException:
        # One field that is no number refuses the whole block; as text all can be read.
        try:
            table, skipped = _parse(data, separator, width, types | strings)
        except pa.ArrowException:
            return Block({}, {}, np.zeros(0, bool), data.count(b"\n"))
    odd = np.zeros(table.num_rows, bool)
    found = {}
    for position in numbers:
        found[position], bad = _numbers(table.column(str(position)))
        odd |= bad
    return Block({p: table.column(str(p)) for p in texts}, found, odd, skipped)


def _parse(
    data: bytes, separator: str, width: int, types: dict[str, pa.DataType]
) -> tuple[pa.Table, int]:
    # pyarrow refuses a table without rows.
    if not data.strip():
        return pa.table({name: pa.array([], type_) for name, type_ in types.items()}), 0
    skipped = []

    def skip(_: Any) -> str:
        skipped.append(1)
        return "skip"

    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(column_names=[str(n) for n in range(width)]),
        parse_options=csv.ParseOptions(
            delimiter=separator, quote_char=False, invalid_row_handler=skip
        ),
        convert_options=csv.ConvertOptions(
            include_columns=list(types), column_types=types, null_values=[""], check_utf8=False
        ),
    )
    return table, len(skipped)


def _numbers(column: pa.ChunkedArray) -> tuple[Numbers, Flags]:
    """Numbers of a column, and where it has something else."""
    if str(column.type) != "string":
        found = np.array(column.to_numpy(), dtype=float)
        # "nan" and "inf" are numbers to the parser.
        odd = ~np.isfinite(found)
        if column.null_count and odd.any():
            odd &= np.asarray(column.is_valid().to_numpy(), dtype=bool)
    else:
        texts = pd.Series(column.fill_null("").to_pylist(), dtype=object)
        found = np.array(pd.to_numeric(texts, errors="coerce"), dtype=float)
        odd = ~np.isfinite(found) & texts.ne("").to_numpy()
    found[odd] = np.nan
    odd |= leave_out_absurd(found)
    return found, odd
