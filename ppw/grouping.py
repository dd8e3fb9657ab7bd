"""Groups of runs that one curve goes through: same host, workload, cores … by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements import identity_columns
from measurements.headers import nearest, shown
from measurements.schema import IDENTITY
from ppw.errors import UnknownColumnError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.regression.lines import IntArray


# Columns of result tables; one of these names as a key would be overwritten.
_ANSWERS = frozenset(
    [
        "metric",
        "unit",
        "projected",
        "measured",
        "lower",
        "upper",
        "covered",
        "error_pct",
        "limit",
        "limit_share",
        "points",
        "runs",
        "other_form",
        "caveats",
        "parameter",
        "value",
        "standard_error",
        "held",
        "equation",
    ]
)


@dataclass(frozen=True, slots=True)
class Groups:
    """Which group each row belongs to.

    ``codes`` has one number a row, 0 … ``len(keys)`` − 1; ``keys`` one row a group, sorted, with
    the columns ``by``.
    """

    by: list[str]
    codes: IntArray
    keys: pd.DataFrame

    def __len__(self) -> int:
        return len(self.keys)


def group_runs(runs: pd.DataFrame, by: Sequence[str] | None = None) -> Groups:
    """Group the rows of a runs table.

    Parameters
    ----------
    runs : pandas.DataFrame
    by : sequence of str, optional
        Columns that tell groups apart; by default all identity columns present. A missing value
        is a value of its own.

    Raises
    ------
    UnknownColumnError
        When the table lacks a column that ``by`` names.
    """
    columns = identity_columns(runs) if by is None else list(by)
    for column in columns:
        if column in _ANSWERS:
            raise UnknownColumnError(
                f"cannot group by {column!r}: results have a column of that name; rename it"
            )
        if column not in runs.columns:
            raise UnknownColumnError(
                f"{runs.attrs.get('source', 'runs')}: cannot group by {column!r}"
                f"{nearest(column, list(runs.columns))}; the columns are "
                f"{shown(list(runs.columns))}"
            )
    if not columns:
        return Groups([], np.zeros(len(runs), dtype=np.int64), pd.DataFrame(index=range(1)))
    parts = [_factorize(runs[column]) for column in columns]
    codes, members = _combine([p[0] for p in parts], [len(p[1]) for p in parts])
    keys = {c: p[1].take(m) for c, p, m in zip(columns, parts, members, strict=True)}
    return Groups(columns, codes, pd.DataFrame(keys))


def _factorize(column: pd.Series[Any]) -> tuple[IntArray, pd.Index[Any]]:
    """Code of each row and the sorted values that the codes stand for."""
    codes, values = pd.factorize(column, use_na_sentinel=False)
    index = pd.Index(values)
    order = index.argsort() if not index.hasnans else np.argsort(index.astype(str))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[codes], index.take(order)


def _combine(codes: list[IntArray], sizes: list[int]) -> tuple[IntArray, list[IntArray]]:
    """One code a row from one code a column; and for each column the codes of the groups."""
    combined, count = codes[0].astype(np.int64), sizes[0]
    members: list[IntArray] = [np.arange(count)]
    for more, size in zip(codes[1:], sizes[1:], strict=True):
        present, combined = _compact(combined * size + more, count * size)
        before, last = np.divmod(present, size)
        members = [*(m[before] for m in members), last]
        count = len(present)
    return combined, members


def _compact(codes: IntArray, possible: int) -> tuple[IntArray, IntArray]:
    """Renumber sparse codes without holes: the codes present, and the new code of each row."""
    if possible > 4 * len(codes) + 1024:
        present, compact = np.unique(codes, return_inverse=True)
        return present, compact
    # Counting beats sorting while the possible codes are not many more than the rows.
    there = np.zeros(possible, dtype=bool)
    there[codes] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[codes]


def varying_identity(runs: pd.DataFrame, groups: Groups) -> list[str]:
    """List the identity columns that are not in ``by`` and yet differ inside some group."""
    left_out = [c for c in IDENTITY if c in runs.columns and c not in groups.by]
    return [c for c in left_out if varies(runs[c], groups).any()]


def varies(column: pd.Series[Any], groups: Groups) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Tell for each group whether the column takes more than one value in it."""
    codes, _ = pd.factorize(column, use_na_sentinel=False)
    low = np.full(len(groups), np.iinfo(np.int64).max)
    high = np.full(len(groups), -1)
    np.minimum.at(low, groups.codes, codes)
    np.maximum.at(high, groups.codes, codes)
    return high > low
