"""Runs condensed to moments: one row a cell, and what the fits take from it in place of runs.

A *cell* is all runs of one group at one frequency (and of one host, power source …, where those
matter to a caveat). A condensed table is a runs table of cells: its key columns are those of the
runs, ``runs`` is how many there are in each, and each quantity Q has ``Q__n`` (runs with a value)
and, in up to three co-ordinates, mean and centred second moment Σ(y − mean)²: ``Q__mean`` and
``Q__m2``, ``Q__log_mean`` and ``Q__log_m2`` of ln Q, ``Q__inverse_mean`` and ``Q__inverse_m2`` of
1/Q. Moments of parts merge exactly.

References
----------
T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances", COMPSTAT 1982, https://doi.org/10.1007/978-3-642-51461-6_3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from fitting.regression.lines import Repeats

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray, IntArray

    Mask = NDArray[np.bool_]
    Coordinate = Literal["", "log_", "inverse_"]

RUNS = "runs"
# Marks the cells that are single runs, of which every digit is known.
SINGLE = "single"
VALUE, LOG, INVERSE = "", "log_", "inverse_"


def count_column(quantity: str) -> str:
    """Column of the number of runs that have a quantity."""
    return f"{quantity}__n"


def mean_column(quantity: str, coordinate: str = VALUE) -> str:
    """Column of the mean of a quantity in a co-ordinate."""
    return f"{quantity}__{coordinate}mean"


def squares_column(quantity: str, coordinate: str = VALUE) -> str:
    """Column of the centred second moment of a quantity in a co-ordinate."""
    return f"{quantity}__{coordinate}m2"


def tally_column(property_: str) -> str:
    """Column of the number of runs that have a property."""
    return f"{property_}__runs"


def finest_column(column: str) -> str:
    """Column of the finest decimal step that a cell's values are recorded to."""
    return f"{column}__finest"


def least_column(column: str) -> str:
    """Column of the least value of a column in a cell."""
    return f"{column}__least"


def most_column(column: str) -> str:
    """Column of the greatest value of a column in a cell."""
    return f"{column}__most"


def key_columns(runs: pd.DataFrame) -> list[str]:
    """Key columns of a condensed table: all before the number of runs."""
    return [str(c) for c in runs.columns[: runs.columns.get_loc(RUNS)]]


def run_counts(runs: pd.DataFrame) -> IntArray:
    """How many runs each row stands for: one, or those of its cell."""
    if not is_condensed_table(runs):
        return np.ones(len(runs), dtype=np.int64)
    return runs[RUNS].to_numpy(dtype=np.int64)


def is_condensed(runs: pd.DataFrame, quantity: str) -> bool:
    """Tell whether a table holds moments of a quantity in place of runs."""
    return count_column(quantity) in runs.columns


def repeats(runs: pd.DataFrame, quantity: str, coordinate: str = VALUE) -> Repeats:
    """Moments of a quantity, one element a cell; count 0 and NaN where it was not measured."""
    names = (mean_column(quantity, coordinate), squares_column(quantity, coordinate))
    mean, squares = (runs[name].to_numpy(dtype=np.float64) for name in names)
    return Repeats(counts(runs, quantity), mean, squares)


def counts(runs: pd.DataFrame, quantity: str) -> IntArray:
    """Runs that have a quantity, one element a cell."""
    return runs[count_column(quantity)].to_numpy(dtype=np.int64)


def run_count(runs: pd.DataFrame, rows: Mask | None = None) -> int:
    """How many runs a table stands for, all of it or the chosen rows."""
    if not is_condensed_table(runs):
        return len(runs) if rows is None else int(rows.sum())
    each = runs[RUNS].to_numpy(dtype=np.int64)
    return int(each.sum() if rows is None else each[rows].sum())


def is_condensed_table(runs: pd.DataFrame) -> bool:
    """Tell whether the rows of a table are cells."""
    return RUNS in runs.columns and any(str(c).endswith("__n") for c in runs.columns)


def merged_means(codes: IntArray, repeats: Repeats, groups: int) -> tuple[IntArray, FloatArray]:
    """Number of runs and mean of each group of points; NaN where there is none."""
    count = np.bincount(codes, repeats.runs, groups)
    known = np.nan_to_num(repeats.mean)
    with np.errstate(invalid="ignore"):
        return count.astype(np.int64), np.bincount(codes, repeats.runs * known, groups) / count
