"""Runs of sequential requests, counted by an engine: what `fitting.storage.run_lengths` counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.storage.run_lengths import CLASSES, COLUMNS, Runs, class_lows

if TYPE_CHECKING:
    import ibis

    from fitting.storage.transitions import TransitionCounts

    IntArray = np.ndarray[Any, np.dtype[np.int64]]


def runs_of(
    requests: ibis.Table, counts: TransitionCounts, again: ibis.Table | None = None
) -> Runs:
    """Count runs by the touched state they start in, in the order of the counts.

    Parameters
    ----------
    requests : ibis.Table
        As `ppw.traces.engine_counts.located` gives them.
    counts : TransitionCounts
    again : ibis.Table, optional
        By stream ``s`` and ``run``, whether it starts where its device was touched before.
    """
    import ibis

    runs = requests.group_by("s", "run").agg(length=requests.count())
    starts = requests.filter(~requests.goes_on).select("s", "run", "touched", "lbn")
    runs = runs.join(starts, ["s", "run"])
    if again is None:
        runs = runs.mutate(again=ibis.literal(False))
    else:
        runs = runs.join(again, ["s", "run"])
    found = (
        runs.group_by("touched", "length", "again")
        .agg(n=runs.count(), lowest=runs.lbn.min(), highest=runs.lbn.max())
        .to_pyarrow()
    )
    return _counted(counts, {name: found[name].to_numpy() for name in found.column_names})


def _counted(counts: TransitionCounts, found: dict[str, IntArray]) -> Runs:
    """Put runs in their classes."""
    touched = counts.state_origin * counts.diagram.states + counts.state
    row, number = np.searchsorted(touched, found["touched"]), found["n"]
    lows = class_lows()
    # Classes of short runs that hold no length have the shortest length of the next one.
    held = np.append(lows[1:] > lows[:-1], True)
    class_ = np.flatnonzero(held)[np.searchsorted(lows[held], found["length"], side="right") - 1]
    table = np.zeros((len(touched), COLUMNS), dtype=np.int64)
    column = class_ + 2 * CLASSES * found["again"]
    np.add.at(table, (row, column), number)
    np.add.at(table, (row, column + CLASSES), number * (found["length"] - lows[class_]))
    lowest = np.full(len(touched), np.iinfo(np.int64).max)
    highest = np.full(len(touched), -1)
    np.minimum.at(lowest, row, found["lowest"])
    np.maximum.at(highest, row, found["highest"])
    return Runs(table, np.where(highest < 0, -1, lowest), highest)
