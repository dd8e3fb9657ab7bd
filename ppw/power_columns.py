"""Which columns of a runs table hold a power source's watts, found by the source's label."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from measurements.checks import as_numbers
from measurements.errors import MeasurementError
from measurements.headers import shown as shown_names
from measurements.power.labels import POWER_SUFFIX, column_stem, power_column
from ppw.errors import UnknownColumnError

if TYPE_CHECKING:
    import pandas as pd

    from fitting.regression.lines import FloatArray

# What a processor draws: its packages and, where it counts them, the memory modules. Cores are
# inside the packages and the platform domain is around them: neither is added.
_PROCESSOR = {"rapl": ("rapl:package", "rapl:dram")}


class SourceWatts(NamedTuple):
    """Watts of one source, or of several added.

    Attributes
    ----------
    label : str
        Labels of the parts, joined by "+".
    columns : tuple of str
        Columns that were added.
    watts : (runs,) float array
        NaN where a part is missing or the sum is not above 0.
    """

    label: str
    columns: tuple[str, ...]
    watts: FloatArray


def source_watts(runs: pd.DataFrame, asked: str) -> SourceWatts:
    """Find the mean power of every run as a source saw it.

    Parameters
    ----------
    runs : pandas.DataFrame
        With canonical columns.
    asked : str
        A label ("rapl:package", "meter:wt310e"), its beginning where only one source begins so
        ("meter"), several joined by "+"; "rapl" is the packages and, where counted, the memory
        modules. Channels that are numbered ("rapl:package-0") are added.

    Raises
    ------
    UnknownColumnError
        When no column holds it, or several may.
    MeasurementError
        For text where watts should be.
    """
    parts = [part.strip() for part in asked.split("+")]
    found = [source for part in parts for source in _part(runs, part)]
    columns = tuple(dict.fromkeys(column for source in found for column in source.columns))
    if len(columns) < sum(len(source.columns) for source in found):
        raise UnknownColumnError(f"{asked!r} adds a column to itself: name each source once")
    total = np.sum([source.watts for source in found], axis=0)
    total[~(np.isfinite(total) & (total > 0))] = np.nan
    return SourceWatts("+".join(source.label for source in found), columns, total)


def _part(runs: pd.DataFrame, label: str) -> list[SourceWatts]:
    if label in _PROCESSOR:
        first, *others = (_known(runs, part) for part in _PROCESSOR[label])
        if first is not None:
            # A domain that this processor does not count may still have its column.
            counted = [o for o in others if o is not None and np.isfinite(o.watts).any()]
            return [first, *counted]
    exact = _known(runs, label)
    if exact is not None:
        return [exact]
    begins = [name for name in _labels(runs) if column_stem(name).startswith(column_stem(label))]
    if len(begins) == 1 and label and (only := _known(runs, begins[0])) is not None:
        return [only]
    source = runs.attrs.get("source", "runs")
    if begins and label:
        raise UnknownColumnError(
            f"{source}: {label!r} may be {shown_names(begins)}: name one, or several joined by +"
        )
    there = shown_names(_labels(runs)) or "none"
    raise UnknownColumnError(
        f"{source}: no watts of {label!r}, which would be in column {power_column(label)}; the "
        f"sources are {there}: measure with both (ppw measure --power …), or rename a column"
    )


def _known(runs: pd.DataFrame, label: str) -> SourceWatts | None:
    """Watts by the label's own column, by its numbered channels, or by ``power_w``."""
    own = power_column(label)
    numbered = re.compile(rf"{re.escape(column_stem(label))}(_(die_)?\d+)+{POWER_SUFFIX}")
    columns = [own] if own in runs else [str(c) for c in runs if numbered.fullmatch(str(c))]
    if columns:
        total = np.sum([_numbers(runs, column) for column in columns], axis=0)
        return SourceWatts(label, tuple(columns), total)
    if {"power_w", "power_source"} <= set(runs.columns):
        of_label = (runs["power_source"].astype(object) == label).to_numpy(dtype=bool)
        if of_label.any():
            watts = np.where(of_label, _numbers(runs, "power_w"), np.nan)
            return SourceWatts(label, ("power_w",), watts)
    return None


def _labels(runs: pd.DataFrame) -> list[str]:
    """Labels of the sources that a table holds, as far as column names tell them."""
    stems = [str(c).removesuffix(POWER_SUFFIX) for c in runs if str(c).endswith(POWER_SUFFIX)]
    # The first underscore of a column stands for the colon after the kind of source.
    columns = [stem.replace("_", ":", 1) for stem in stems if stem != "idle"]
    if "power_source" not in runs:
        return columns
    named = [str(s) for s in runs["power_source"].dropna().unique()]
    stands = {column_stem(name) for name in named}
    return [*named, *(c for c in columns if column_stem(c) not in stands)]


def _numbers(runs: pd.DataFrame, column: str) -> FloatArray:
    numbers = as_numbers(runs[column])
    wrong = (numbers.isna() & runs[column].notna()).to_numpy()
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        cell: Any = runs[column].iloc[row]
        raise MeasurementError(
            f"{runs.attrs.get('source', 'runs')}: row {row + 1}, column {column}: {cell!r} is not "
            "a number of watts: correct it or leave the cell empty"
        )
    return np.asarray(numbers, dtype=np.float64)
