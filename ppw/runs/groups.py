"""Groups of runs that one curve goes through: same host, workload, cores … by default."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fitting.regression.lines import FloatArray, IntArray, Repeats
from measurements import identity_columns, tidy_runs
from measurements.errors import MeasurementError
from measurements.table import checks, headers as hd, reading, schema, units
from ppw.errors import PpwError, UnknownColumnError
from ppw.results.text import key_texts, shown as amount

Mask = NDArray[np.bool_]

# Columns of result tables; one of these names as a key would be overwritten.
_ANSWERS = frozenset(
    (
        *("metric", "unit", "projected", "measured", "lower", "upper", "covered", "error_pct"),
        *("limit", "limit_share", "points", "runs", "other_form", "least_squares", "caveats"),
        *("parameter", "value", "standard_error", "posterior", "held", "equation"),
    )
)


@dataclass(frozen=True, slots=True)
class Groups:
    """Which group each row belongs to."""

    by: list[str]
    codes: IntArray  # one number a row, 0 to len(keys) - 1
    keys: pd.DataFrame  # one row a group, sorted, with the columns ``by``

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, group: int) -> str:
        """Write the keys of a group for people: "atlas, sort"."""
        return ", ".join(key_texts(self.by, self.keys.iloc[group].to_dict()))


def group_runs(runs: pd.DataFrame, by: Sequence[str] | None = None) -> Groups:
    """Group the rows of a runs table by columns, by default all identity columns present.

    A missing value is a value of its own. Raises `UnknownColumnError` for a column that is not
    there, or that results have a column of the name of.
    """
    columns = identity_columns(runs) if by is None else list(by)
    for column in columns:
        if column in _ANSWERS:
            raise UnknownColumnError(
                f"cannot group by {column!r}: ppw's results have a column of that name; rename "
                "the column in your table"
            )
        if column not in runs.columns:
            raise UnknownColumnError(
                f"{runs.attrs.get('source', 'runs')}: cannot group by {column!r}"
                f"{hd.nearest(column, list(runs.columns))}; the columns are "
                f"{hd.list_names(list(runs.columns))}"
            )
    if not columns:
        return Groups([], np.zeros(len(runs), dtype=np.int64), pd.DataFrame(index=range(1)))
    parts = [_factorize(runs[column]) for column in columns]
    codes, members = _combine([p[0] for p in parts], [len(p[1]) for p in parts])
    keys = {c: p[1].take(m) for c, p, m in zip(columns, parts, members, strict=True)}
    return Groups(columns, codes, pd.DataFrame(keys))


def number_rows(columns: Sequence[NDArray[Any]]) -> IntArray:
    """Number the rows of some columns by their values, in ascending order; NaN is a value."""
    parts = [np.unique(column, return_inverse=True) for column in columns]
    return _combine([codes for _, codes in parts], [len(values) for values, _ in parts])[0]


def _factorize(column: pd.Series[Any]) -> tuple[IntArray, pd.Index[Any]]:
    """Code of each row and the sorted values that the codes stand for."""
    codes, values = pd.factorize(column, use_na_sentinel=False)
    index = pd.Index(values)
    order = index.argsort() if not index.hasnans else np.argsort(index.astype(str))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[codes], index.take(order)


def _combine(codes: list[IntArray], sizes: list[int]) -> tuple[IntArray, list[IntArray]]:
    """Combine one code per column into one code a row; and each column's code by group."""
    combined, count = codes[0].astype(np.int64), sizes[0]
    members: list[IntArray] = [np.arange(count)]
    for more, size in zip(codes[1:], sizes[1:], strict=True):
        sparse, possible = combined * size + more, count * size
        # Renumbered without holes; counting beats sorting while most possible codes are there.
        if possible > 4 * len(sparse) + 1024:
            present, combined = np.unique(sparse, return_inverse=True)
        else:
            there = np.zeros(possible, dtype=bool)
            there[sparse] = True
            present, combined = np.flatnonzero(there), (np.cumsum(there) - 1)[sparse]
        before, last = np.divmod(present, size)
        members = [*(m[before] for m in members), last]
        count = len(present)
    return combined, members


def varying_identity(runs: pd.DataFrame, groups: Groups) -> list[str]:
    """List the identity columns that are not in ``by`` and yet differ inside some group."""
    left_out = [c for c in schema.IDENTITY if c in runs.columns and c not in groups.by]
    return [c for c in left_out if varies(runs[c], groups).any()]


def varies(column: pd.Series[Any], groups: Groups) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Tell for each group whether the column takes more than one value in it."""
    codes, _ = pd.factorize(column, use_na_sentinel=False)
    low = np.full(len(groups), np.iinfo(np.int64).max)
    high = np.full(len(groups), -1)
    np.minimum.at(low, groups.codes, codes)
    np.maximum.at(high, groups.codes, codes)
    return high > low


# Choosing runs, or groups of them, by what their columns say.

# A number that is typed is not the last digit of one that was converted.
SAME = 1e-6


def choose_runs(runs: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Choose the runs that hold what is asked of some columns.

    ``where`` gives by column, or header of the file's own, the value or list of values that it
    must hold any one of. A number is in the unit of the name, or carries its own:
    ``{"freq": "1.2GHz"}``. The column ``source_row`` numbers the rows as their file does. Raises
    `UnknownColumnError` for a column that is not there, and `PpwError` where no run holds it.
    """
    asked = selected_columns(runs, where, "to choose runs by")
    chosen = rows_where(runs, asked)
    table = runs.assign(**{schema.ROW_COLUMN: checks.row_numbers(runs)})[chosen].reset_index(
        drop=True
    )
    if "digest" in runs.attrs:
        both = f"{runs.attrs['digest']} {sorted(asked.items())}"
        table.attrs["digest"] = f"sha256:{hashlib.sha256(both.encode()).hexdigest()}"
    return table


def selected_columns(
    runs: pd.DataFrame, where: Mapping[str, Any], what_for: str
) -> dict[str, list[Any]]:
    """Values asked for, by the column of the runs table that each name means."""
    source = str(runs.attrs.get("source", "runs"))
    columns = list(map(str, runs.columns))
    return values_by_column(where, columns, reading.renamed_headers(runs), f"{source}: ", what_for)


def values_by_column(
    where: Mapping[str, Any],
    columns: Sequence[str],
    headers: Mapping[str, hd.Renaming],
    source: str,
    what_for: str,
) -> dict[str, list[Any]]:
    """Values asked for, by column and in its unit. Raises `UnknownColumnError` from ``source``."""
    found: dict[str, list[Any]] = {}
    for name, value in where.items():
        meant = hd.column_meant(name, columns, headers)
        if meant is None:
            raise UnknownColumnError(
                f"{source}no column {name!r}{hd.nearest(name, [*columns, *headers])} {what_for}; "
                f"the columns are {hd.list_names(columns)}"
            )
        found.setdefault(meant.canonical, []).extend(
            _in_column_unit(one, meant) for one in _as_list(value)
        )
    return found


def rows_where(table: pd.DataFrame, where: Mapping[str, Any]) -> Mask:
    """Rows that hold all of a selection by columns of the table. Raises `PpwError` for none."""
    chosen = np.ones(len(table), dtype=bool)
    for column, value in where.items():
        chosen &= np.logical_or.reduce(
            [_matching_rows(table[column], one) for one in _as_list(value)]
        )
    if not chosen.any():
        raise PpwError(f"no run has all of {words(where)}")
    return chosen


def words(where: Mapping[str, Any]) -> str:
    """Write a selection as it is typed: "host=atom, freq_hz=2 GHz"."""
    pairs = [(column, one) for column, value in where.items() for one in _as_list(value)]
    return ", ".join(f"{column}={_value_text(column, one)}" for column, one in pairs)


def is_same(numbers: Values, value: float) -> Values:
    """Tell which numbers, of an array or engine column, equal a typed value but for rounding."""
    if not np.isfinite(value):
        return numbers == value
    return absolute(numbers - value) <= SAME * abs(value)


def to_number(value: Any) -> float:
    """Read a value as a number; NaN for what is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _as_list(value: Any) -> Sequence[Any]:
    """Return a list or tuple as it is, and any other value in a list."""
    return value if isinstance(value, (list, tuple)) else [value]


def _in_column_unit(value: Any, meant: hd.Renaming) -> Any:
    """Bring a typed value to the unit of the column; a value that cannot be stays as it is."""
    if meant.canonical not in schema.NUMERIC:
        return value
    number = to_number(value)
    unit = hd.unit_in_cells(meant.canonical)
    if number == number or not unit:
        return meant.scaled(number) if number == number else value
    try:
        return units.parse_quantity(str(value), unit)
    except MeasurementError:
        return value


def _matching_rows(column: pd.Series[Any], value: Any) -> Mask:
    """Mark the rows that hold a value. Raises `PpwError` where none does."""
    name = str(column.name)
    if name in schema.NUMERIC or pd.api.types.is_numeric_dtype(column):
        numbers = checks.as_numbers(column).to_numpy()
        same: Mask = is_same(numbers, to_number(value))
    else:
        same = np.asarray(column.astype(str) == str(value), dtype=bool)
    if not same.any():
        known = [_value_text(name, v) for v in dict.fromkeys(column.dropna())]
        again, text = "", str(value)
        if "," in text:
            each = ",".join(f"{name}={one}" for one in text.split(","))
            again = f"; name {name} again for another value: {each}"
        raise PpwError(
            f"no run has {name} {_value_text(name, value)!r}{hd.nearest(text, known)}; "
            f"there are {hd.list_names(known, 10)}{again}"
        )
    return same


def _value_text(column: str, value: object) -> str:
    """Write a value for people, with the unit of its column."""
    if isinstance(value, (float, np.floating)) and column in schema.NUMERIC:
        return amount(float(value), schema.COLUMNS[column].unit)
    return str(value)


# Runs condensed to moments: one row a cell, and what the fits take from it in place of runs.
#
# A *cell* is all runs of one group at one frequency (and of one host, power source …, where those
# matter to a caveat). A condensed table is a runs table of cells: its key columns are those of the
# runs, ``runs`` is how many there are in each, and each quantity Q has ``Q__n`` (runs with a value)
# and, in up to three co-ordinates, mean and centred second moment Σ(y − mean)²: ``Q__mean`` and
# ``Q__m2``, ``Q__log_mean`` and ``Q__log_m2`` of ln Q, ``Q__inverse_mean`` and ``Q__inverse_m2`` of
# 1/Q. Moments of parts merge exactly.
#
# References ---------- T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating Formulae and a Pairwise
# Algorithm for Computing Sample Variances", COMPSTAT 1982,
# https://doi.org/10.1007/978-3-642-51461-6_3.

RUNS = "runs"
# Marks the cells that are single runs, of which every digit is known.
SINGLE = "single"
VALUE, LOG, INVERSE = "", "log_", "inverse_"

# Columns of a condensed table by quantity: runs that have it; by property: runs that have that.
count_column, tally_column = "{}__n".format, "{}__runs".format
# And by column: the finest decimal step that its values are recorded to, the least and the most.
finest_column, least_column, most_column = (
    "{}__finest".format,
    "{}__least".format,
    "{}__most".format,
)


def mean_column(quantity: str, coordinate: str = VALUE) -> str:
    """Name of the column that holds the mean of a quantity in a co-ordinate."""
    return f"{quantity}__{coordinate}mean"


def squares_column(quantity: str, coordinate: str = VALUE) -> str:
    """Name of the column that holds the centred squares of a quantity in a co-ordinate."""
    return f"{quantity}__{coordinate}m2"


# What an engine found wrong with each run of a cell by itself, as bits of the column `FLAGS`; all
# but the first are `ppw.runs.checks.CONTRADICTIONS`.
FLAGS = "flags"
UNUSABLE, ENERGY, ACHIEVED, NO_WATTS, BELOW_IDLE, KNOWN_IDLE, TOO_MUCH, OTHER_WORK = (
    1 << i for i in range(8)
)


def key_columns(runs: pd.DataFrame) -> list[str]:
    """Key columns of a table of cells: all before the number of runs."""
    return [str(c) for c in runs.columns[: runs.columns.get_loc(RUNS)]]


def run_counts(runs: pd.DataFrame) -> IntArray:
    """Number of runs that each row stands for: 1, or those of its cell."""
    if not is_cell_table(runs):
        return np.ones(len(runs), dtype=np.int64)
    return runs[RUNS].to_numpy(dtype=np.int64)


def is_aggregated(runs: pd.DataFrame, quantity: str) -> bool:
    """Tell whether a table holds the moments of a quantity, not single runs."""
    return count_column(quantity) in runs.columns


def repeats(runs: pd.DataFrame, quantity: str, coordinate: str = VALUE) -> Repeats:
    """Count, mean and squares of a quantity in each cell; count 0 and NaN where unmeasured."""
    names = (mean_column(quantity, coordinate), squares_column(quantity, coordinate))
    mean, squares = (runs[name].to_numpy(dtype=np.float64) for name in names)
    return Repeats(counts(runs, quantity), mean, squares)


def counts(runs: pd.DataFrame, quantity: str) -> IntArray:
    """Number of runs that have a quantity, by cell."""
    return runs[count_column(quantity)].to_numpy(dtype=np.int64)


def run_count(runs: pd.DataFrame, rows: Mask | None = None) -> int:
    """Number of runs that a table, or its chosen rows, stand for."""
    each = run_counts(runs)
    return int(each.sum() if rows is None else each[rows].sum())


def is_cell_table(runs: pd.DataFrame) -> bool:
    """Tell whether the rows of a table are cells, which stand for several runs."""
    return RUNS in runs.columns and any(str(c).endswith("__n") for c in runs.columns)


def merge_means(codes: IntArray, repeats: Repeats, groups: int) -> tuple[IntArray, FloatArray]:
    """Number of runs and mean of each group of cells; NaN where there are no runs."""
    count = np.bincount(codes, repeats.runs, groups)
    known = np.nan_to_num(repeats.mean)
    with np.errstate(invalid="ignore"):
        return count.astype(np.int64), np.bincount(codes, repeats.runs * known, groups) / count


def has(runs: pd.DataFrame, column: str) -> bool:
    """Tell whether a table has a column with at least one value."""
    if is_aggregated(runs, column):
        return bool(counts(runs, column).any())
    return column in runs.columns and bool(runs[column].notna().any())


def numbers(runs: pd.DataFrame, column: str) -> FloatArray:
    """Values of a column, or their means in a table of cells; NaN where there is none."""
    if is_aggregated(runs, column):
        column = mean_column(column)
    if column not in runs.columns:
        return np.full(len(runs), np.nan)
    return runs[column].to_numpy(dtype=np.float64)


def lacking(runs: pd.DataFrame, column: str) -> IntArray:
    """Number of runs of each row that have no value of a column."""
    if is_aggregated(runs, column):
        return run_counts(runs) - counts(runs, column)
    return run_counts(runs) * np.isnan(numbers(runs, column))


def host_codes(runs: pd.DataFrame) -> IntArray:
    """Integer code of each row's host; 0 throughout where no host is named."""
    if "host" not in runs.columns:
        return np.zeros(len(runs), dtype=np.int64)
    return pd.factorize(runs["host"], use_na_sentinel=False)[0].astype(np.int64)


# Rules of the runs table are written once, for numpy arrays and for columns of an engine alike:
# both overload the operators, so that memory evaluates a rule and an engine compiles it to SQL.
# Here is what the two spell differently.

# An array, or an ibis column: no common type has the operators of both.
Values = Any


def choose(condition: Values, yes: Values, no: Values) -> Values:
    """Take ``yes`` where a condition holds and ``no`` elsewhere, of arrays or engine columns."""
    in_memory = isinstance(condition, np.ndarray)
    return np.where(condition, yes, no) if in_memory else condition.ifelse(yes, no)


def absolute(values: Values) -> Values:
    """Take the absolute value."""
    return np.abs(values) if isinstance(values, np.ndarray) else values.abs()


def first_given(values: Values, *others: Values) -> Values:
    """Take the first of several values that is not missing, element by element."""
    for other in others:
        in_memory = isinstance(values, np.ndarray)
        values = choose(np.isnan(values), other, values) if in_memory else values.coalesce(other)
    return values


def any_of(conditions: Iterable[Values]) -> Values:
    """Tell where one of several conditions holds."""
    first, *others = conditions
    for other in others:
        first = first | other
    return first


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
    return np.asarray(digit_step(size / 10.0**decade, decade))


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


def canonical(runs: pd.DataFrame) -> pd.DataFrame:
    """Bring a runs table to canonical columns. Raises `PpwError` for what is no DataFrame."""
    if not isinstance(runs, pd.DataFrame):
        raise PpwError(
            f"runs is a {type(runs).__name__}, not a DataFrame: read a file with ppw.read_runs"
        )
    return tidy_runs(runs)
