"""Looks for rows of a runs table that cannot be right: one file a way of being wrong.

`ppw.runs.quality` runs them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ppw.runs import groups as gr
from ppw.runs.expressions import Values, absolute, choose
from ppw.runs.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray, IntArray

    Mask = NDArray[np.bool_]


# What every check is: its name, what it needs, what it finds and how it says so.


ALL_METRICS = frozenset(METRICS)
OF_WATTS = frozenset({"power", "energy", "perf_per_watt"})


# What an engine found wrong with each run of a cell by itself, as bits of the column `FLAGS`; all
# but the first are `ppw.runs.checks.readings.CONTRADICTIONS`.
FLAGS = "flags"
UNUSABLE, ENERGY, ACHIEVED, NO_WATTS, BELOW_IDLE, KNOWN_IDLE = (1 << i for i in range(6))


class Findings(NamedTuple):
    """Rows by position, and by name the figures against them, one a row."""

    rows: IntArray
    figures: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One way in which a row cannot be right."""

    # As tables and JSON write it.
    name: str
    # What is wrong, and what to do about it, in one line each.
    meaning: str
    remedy: str
    # Columns that it looks at: one of each tuple must be there.
    needs: tuple[tuple[str, ...], ...]
    # Metrics that such a row is no good for.
    spoils: frozenset[str]
    find: Callable[[pd.DataFrame, gr.Groups], Findings]
    # From the figures of one row, as keywords, to the evidence in words.
    say: Callable[..., str]

    def lacks(self, runs: pd.DataFrame) -> str:
        """Columns that the check would need and the table has not, or an empty one; else ""."""
        absent = [n for n in self.needs if not any(has(runs, c) for c in n)]
        return " and ".join("/".join(columns) for columns in absent)


def has(runs: pd.DataFrame, column: str) -> bool:
    """Tell whether a column is there and not empty."""
    if gr.is_aggregated(runs, column):
        return bool(gr.counts(runs, column).any())
    return column in runs.columns and bool(runs[column].notna().any())


def numbers(runs: pd.DataFrame, column: str) -> FloatArray:
    """Values of a column, or its means in a condensed table; NaN where it is not there."""
    if gr.is_aggregated(runs, column):
        column = gr.mean_column(column)
    if column not in runs.columns:
        return np.full(len(runs), np.nan)
    return runs[column].to_numpy(dtype=np.float64)


def lacking(runs: pd.DataFrame, column: str) -> IntArray:
    """How many runs of each row have no value of a column."""
    if gr.is_aggregated(runs, column):
        return gr.run_counts(runs) - gr.counts(runs, column)
    return gr.run_counts(runs) * np.isnan(numbers(runs, column))


def host_codes(runs: pd.DataFrame) -> IntArray:
    """Number of each row's host; one host where none is named."""
    if "host" not in runs.columns:
        return np.zeros(len(runs), dtype=np.int64)
    return pd.factorize(runs["host"], use_na_sentinel=False)[0].astype(np.int64)


def found_where(rows: Mask, **figures: FloatArray) -> Findings:
    """Find the rows of a mask; ``figures`` have a value for every row of the table."""
    return Findings(np.flatnonzero(rows), {name: values[rows] for name, values in figures.items()})


def in_order(rows: IntArray, figures: Mapping[str, NDArray[Any]]) -> Findings:
    """Find rows in any order, with their figures."""
    order = np.argsort(rows)
    return Findings(rows[order], {name: values[order] for name, values in figures.items()})


def nothing() -> Findings:
    """Find no row."""
    return Findings(np.zeros(0, dtype=np.int64), {})


# To how many digits a number was recorded.


MOST_DIGITS = 12
# Reading a decimal and converting its unit costs a few units of the last binary place.
BINARY = 4e-15


def recorded_step(values: FloatArray) -> FloatArray:
    """Step of the last decimal digit that each number is written with, in the number's unit.

    237.788 has a step of 0.001, and 3.4e9 one of 1e8: zeros at the end do not count, since nobody
    can tell whether they were measured. Beyond twelve digits a number counts as having twelve.

    >>> recorded_step(np.array([237.788, 3.4e9])).tolist()
    [0.001, 100000000.0]
    """
    size = np.where(values == 0, 1.0, np.abs(values))
    decade = np.floor(np.log10(size))
    step: FloatArray = digit_step(size / 10.0**decade, decade)
    return step


def digit_step(mantissa: Values, decade: Values) -> Values:
    """Step of the last decimal digit of mantissa times 10 to the decade, of arrays or columns.

    The powers, which cost most, are computed twice a number and not for each of its digits.
    """
    digits: Values = MOST_DIGITS
    for fewer in range(MOST_DIGITS - 1, 0, -1):
        scaled = mantissa * 10.0 ** (fewer - 1)
        whole = absolute(scaled - scaled.round()) <= BINARY * scaled
        digits = choose(whole, fewer, digits)
    return 10.0 ** (decade - (digits - 1))


def all_digits(value: float) -> str:
    """Write a number with the digits that it was recorded with, twelve at most.

    >>> all_digits(237.788)
    '237.788'
    """
    return f"{value:.12g}"
