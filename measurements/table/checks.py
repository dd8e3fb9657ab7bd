"""What the values of a runs table may be, and the list of all that cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from measurements.errors import BadRunsError, MeasurementError
from measurements.table import schema
from measurements.table.headers import list_names, map_to_paste, nearest
from measurements.table.units import HIGHEST_FREQUENCY_HZ, LOWEST_FREQUENCY_HZ, TOO_FAST, TOO_SLOW

_ABSENT = "missing"
_NOT_A_NUMBER = "is not a number"
_COUNTED = "; rows are counted below the header"
_REMEDY = ": fill in what is missing, delete these rows, or choose others with --where"
_PARTED = "is not a number: it has thousands separators"
_THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}(?:([,' \u00a0\u202f])\d{3}(?:\1\d{3})*)(?:\.\d+)?\s*")
# A message lists so many kinds of bad values, and so many ranges of rows for each; the error's
# ``problems`` have them all.
_MOST_SHOWN = 20
_NO_PROBLEMS = pd.DataFrame({"row": [], "column": [], "value": [], "reason": []}).astype(
    {"row": np.int64, "column": object, "value": object, "reason": object}
)


def check_runs(
    runs: pd.DataFrame,
    *,
    needed: Collection[str] = (),
    by: Sequence[str] | None = None,
    ignore: Mapping[str, NDArray[np.bool_]] | None = None,
    complete: Collection[str] = (),
) -> pd.DataFrame:
    """Check a runs table and return it with its canonical numbers as float64.

    Parameters
    ----------
    runs : pandas.DataFrame
        With canonical columns. Its ``attrs["source"]`` names it in messages.
    needed : collection of str
        Columns that must be there and complete. A group of runs that lacks one of them in all
        its rows is no error, since nobody measured it there; a frequency is always needed.
    by : sequence of str, optional
        What makes a group; by default the identity columns present.
    ignore : mapping of column to (rows,) bool array, optional
        Values that are not judged, because the caller leaves their rows out.
    complete : collection of str
        Columns that must be as complete as needed ones, and are not needed.

    Raises
    ------
    MeasurementError
        When a needed column is not there.
    BadRunsError
        Once, with every bad value.
    """
    runs, bad = find_bad_values(runs, needed=needed, by=by, ignore=ignore, complete=complete)
    if len(bad):
        raise_bad_values(bad, runs)
    return runs


def forgive_missing(
    runs: pd.DataFrame,
    *,
    needed: Collection[str],
    by: Sequence[str] | None,
    ignore: Mapping[str, NDArray[np.bool_]] | None = None,
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Check as `check_runs`, but keep runs that lack a needed value; drop those without frequency.

    Returns the runs, and by column how many lack its value. Raises `BadRunsError` also where no
    run has a frequency.
    """
    runs, bad = find_bad_values(runs, needed=needed, by=by, ignore=ignore)
    absent = (bad["reason"] == _ABSENT).to_numpy()
    if not absent.all():
        raise_bad_values(bad[~absent], runs)
    counts = {str(column): len(rows) for column, rows in bad.groupby("column", sort=False)}
    if not counts.get("freq_hz"):
        return runs, counts
    has_frequency = runs["freq_hz"].notna().to_numpy()
    if not has_frequency.any():
        raise_bad_values(bad, runs)
    numbers = row_numbers(runs)
    kept = runs.assign(**{schema.ROW_COLUMN: numbers})[has_frequency].reset_index(drop=True)
    return kept, counts


def find_bad_values(
    runs: pd.DataFrame,
    *,
    needed: Collection[str],
    by: Sequence[str] | None,
    ignore: Mapping[str, NDArray[np.bool_]] | None = None,
    complete: Collection[str] = (),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Convert runs as `check_runs` does, and list the bad values by their position from 1."""
    source = str(runs.attrs.get("source", "runs"))
    refuse_absent(runs, needed, source)
    # Deep, because before pandas 3 a shallow one is changed with the caller's.
    runs = runs.copy()
    numbers = [c for c in schema.COLUMNS if c in runs.columns and c in schema.NUMERIC]
    groups = [c for c in by or identity_columns(runs) if c in runs.columns]
    texts = [column for column in numbers if runs[column].dtype != np.float64]
    problems = [_NO_PROBLEMS, *(_convert_and_report(runs, column) for column in texts)]
    for column in numbers:
        values, rules = runs[column].to_numpy(), value_rules(column, needed=column in needed)
        broken = [(rule.broken(values), rule.reason) for rule in rules]
        problems += [_list_problems(column, runs[column], *p) for p in broken if p[0].any()]
    lacking = (c for c in dict.fromkeys((*needed, *complete)) if runs[c].isna().any())
    problems += [_report_missing(runs, column, groups) for column in lacking]
    bad = pd.concat(problems, ignore_index=True)
    for column, rows in (ignore or {}).items():
        bad = bad[~((bad["column"] == column).to_numpy() & rows[bad["row"].to_numpy() - 1])]
    return runs, bad.drop_duplicates(["row", "column"]).sort_values(["row", "column"])


def raise_bad_values(bad: pd.DataFrame, runs: pd.DataFrame) -> NoReturn:
    """Raise `BadRunsError` with values that `find_bad_values` found."""
    rows = bad["row"].to_numpy() - 1
    # Each bad row is named by its own file, and counted from that file's first row.
    files: Any = str(runs.attrs.get("source", "runs"))
    if schema.FILE_COLUMN in runs.columns:
        files = runs[schema.FILE_COLUMN].to_numpy()[rows]
    bad = bad.assign(file=files, row=row_numbers(runs)[rows]).reset_index(drop=True)
    raise BadRunsError(_problems_text(bad, runs.attrs), bad)


def identity_columns(runs: pd.DataFrame) -> list[str]:
    """List the columns that by default tell groups of runs apart: those present and not empty."""
    known = [c for c in schema.IDENTITY if c in runs.columns and runs[c].notna().any()]
    # Runs of several files that name no host are not one machine's.
    if "host" in known or schema.FILE_COLUMN not in runs.columns:
        return known
    return [schema.FILE_COLUMN, *known]


def as_numbers(values: pd.Series[Any]) -> pd.Series[float]:
    """Read a column of anything as float64; NaN where it is no number, as in dates and booleans."""
    if values.dtype.kind in "bcmM":
        return pd.Series(np.nan, index=values.index, name=values.name)
    if values.dtype == object:
        values = values.mask(values.map(lambda v: isinstance(v, (bool, np.bool_))))
    try:
        return pd.to_numeric(values, errors="coerce").astype(np.float64)
    except (OverflowError, TypeError):
        return values.map(_float_or_nan).astype(np.float64)


def _float_or_nan(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):
        return np.nan


def refuse_absent(runs: pd.DataFrame, needed: Collection[str], source: str) -> None:
    """Raise `MeasurementError` for a needed column that is not there."""
    for column in needed:
        if column not in runs.columns:
            # A column that is known by its own name was not meant to be another.
            meant = nearest(column, [c for c in runs.columns if c not in schema.COLUMNS])
            units = " (freq_mhz or freq_ghz, by its unit)" if column == "freq_hz" else ""
            pasted = map_to_paste(column, [*map(str, runs.columns)]) or f"--map {column}=COLUMN"
            raise MeasurementError(
                f"{source}: no column {column}{meant}; the columns are "
                f"{list_names(list(runs.columns))}: rename one to it{units}, or use {pasted}"
            )


def _convert_and_report(runs: pd.DataFrame, column: str) -> pd.DataFrame:
    """Convert a column to numbers in place; report the cells that are none, but for blanks."""
    values = runs[column]
    numbers = as_numbers(values)
    # The text itself is reported here; what is left is checked as numbers.
    runs[column] = numbers
    wrong = (numbers.isna() & values.notna()).to_numpy(copy=True)
    wrong[wrong] = [not (isinstance(v, str) and v.strip() in schema.MISSING) for v in values[wrong]]
    parted = wrong.copy()
    parted[wrong] = [isinstance(v, str) and bool(_THOUSANDS.fullmatch(v)) for v in values[wrong]]
    return pd.concat(
        [
            _list_problems(column, values, wrong & ~parted, _NOT_A_NUMBER),
            _list_problems(column, values, parted, _PARTED),
        ]
    )


def _report_missing(runs: pd.DataFrame, column: str, groups: list[str]) -> pd.DataFrame:
    """Report missing cells, unless a whole group lacks them and others do not."""
    missing = runs[column].isna()
    if column != "freq_hz" and groups and not missing.all():
        keys = [runs[g] for g in groups]
        missing &= ~missing.groupby(keys, dropna=False, observed=True).transform("all")
    return _list_problems(column, runs[column], missing.to_numpy(), _ABSENT)


def _list_problems(
    column: str, values: pd.Series[Any], wrong: np.ndarray[Any, np.dtype[np.bool_]], reason: str
) -> pd.DataFrame:
    rows = np.flatnonzero(wrong)
    if not rows.size:
        return _NO_PROBLEMS
    # Of objects: a number of any length may stand there.
    bad = pd.Series(values.iloc[rows].tolist(), dtype=object)
    found = pd.DataFrame({"row": rows + 1, "column": column, "value": bad, "reason": reason})
    return found.astype(_NO_PROBLEMS.dtypes.to_dict())


class ValueRule(NamedTuple):
    """Numbers that cannot be, and what is wrong with them; a missing one breaks no rule."""

    broken: Callable[[Any], Any]  # takes an array, or a column of an engine
    reason: str


_INFINITE = float("inf")
_FINITE = ValueRule(lambda v: (v >= _INFINITE) | (v <= -_INFINITE), "is not finite")
_POSITIVE = ValueRule(lambda v: v <= 0, "must be greater than 0")
_NOT_NEGATIVE = ValueRule(lambda v: v < 0, "must not be negative")
_FREQUENCIES = (
    ValueRule(lambda v: v < LOWEST_FREQUENCY_HZ, TOO_SLOW),
    ValueRule(lambda v: v > HIGHEST_FREQUENCY_HZ, TOO_FAST),
)
# By unit, the least and the most of a run: what lies beyond is damage, or in another unit.
_BOUNDS = {"s": (1e-12, 1e10), "W": (1e-9, 1e12), "J": (1e-12, 1e22)}
_OTHER_BOUNDS = (1e-30, 1e30)


def value_rules(column: str, *, needed: bool = True) -> list[ValueRule]:
    """List the rules that the numbers of a canonical column obey; a needed one may be stricter."""
    kind = schema.COLUMNS[column].kind
    rules = [_FINITE]
    if kind == "positive" or (kind == "net" and needed):
        rules.append(_POSITIVE)
    elif kind in ("non-negative", "count", "share"):
        rules.append(_NOT_NEGATIVE)
    if kind == "share":
        reason = (
            "is above 1, which is the whole: for percent write 50% in the cells, or name the "
            f"column {column}_pct"
        )
        rules.append(ValueRule(lambda v: v > schema.HIGHEST_SHARE, reason))
    unit = schema.COLUMNS[column].unit
    least, most = _BOUNDS.get(unit, _OTHER_BOUNDS)
    said = (
        f"{{}} than any run has ({{:g}}{f' {unit}' if unit in _BOUNDS else ''}): is its unit right?"
    )
    rules.append(ValueRule(lambda v: (v > most) | (v < -most), said.format("is more", most)))
    if kind == "positive":
        rules.append(ValueRule(lambda v: (v > 0) & (v < least), said.format("is less", least)))
    return [*rules, *(_FREQUENCIES if column in ("freq_hz", "freq_achieved_hz") else ())]


def row_numbers(runs: pd.DataFrame) -> NDArray[np.int64]:
    """Number each row as in its file, where 1 is the first below the header."""
    if schema.ROW_COLUMN in runs.columns:
        return runs[schema.ROW_COLUMN].to_numpy(dtype=np.int64)
    if schema.FILE_COLUMN not in runs.columns:
        return np.arange(1, len(runs) + 1)
    files = runs[schema.FILE_COLUMN].reset_index(drop=True)
    within = files.groupby(files, dropna=False).cumcount()
    return np.asarray(within.to_numpy() + 1, dtype=np.int64)


def _problems_text(bad: pd.DataFrame, attrs: Mapping[Any, Any]) -> str:
    # By the names and in the units of the file.
    own = {
        became: (header, factor)
        for header, (became, factor, _) in attrs.get(schema.HEADERS, {}).items()
    }
    header_lines = attrs.get(schema.HEADER_LINES, {})
    kinds = bad.groupby(["file", "column", "reason"], sort=False)
    parts = []
    for place, cases in islice(kinds, _MOST_SHOWN):
        file, column, reason = map(str, cast("tuple[str, str, str]", place))
        rows = ("line" if file in header_lines else "row") + "s" * (len(cases) > 1)
        numbers = cases["row"].to_numpy() + header_lines.get(file, 0)
        header, factor = own.get(column, (column, 1.0))
        first = cases["value"].iloc[0]
        said = f"{first / factor:g}" if isinstance(first, float) else repr(first)[:60]
        value = "" if reason == _ABSENT else f"{said} "
        if reason == _PARTED:
            reason += ": write " + re.sub(r"[^\d.+-]", "", str(first))
        where = f"{file}: {rows} {_row_ranges_text(numbers)}, column {header}"
        parts.append(f"{where}: {value}{reason}")
    if kinds.ngroups > _MOST_SHOWN:
        parts.append(f"and {kinds.ngroups - _MOST_SHOWN} more")
    count = f"{len(bad)} bad value{'s' if len(bad) > 1 else ''}"
    remedy = _REMEDY if (bad["reason"] == _ABSENT).any() else ""
    counted = "" if header_lines.keys() >= {*bad["file"]} else _COUNTED
    return f"{'; '.join(parts)} ({count}{counted}){remedy}"


def _row_ranges_text(rows: np.ndarray[Any, np.dtype[np.int64]]) -> str:
    """Write 3, 5, 6, 7 as "3, 5-7"."""
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    ranges = [f"{r[0]}" if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs[:_MOST_SHOWN]]
    more = len(runs) - len(ranges)
    return ", ".join(ranges) + (f" and {more} more" if more else "")
