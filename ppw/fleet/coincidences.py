"""Groups in which runs at different frequencies agree in every digit: kept run by run.

Moments do not show such runs. Cells whose ranges do not overlap cannot hold them, which leaves few
groups to look through; of those that do hold some, the runs take the place of the cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.bayes.steps import SAME_STEP
from ppw.checks.check import FLAGS, UNUSABLE
from ppw.checks.stale import MEASURED
from ppw.condensed import (
    LOG,
    RUNS,
    SINGLE,
    VALUE,
    count_column,
    finest_column,
    least_column,
    mean_column,
    most_column,
    squares_column,
)
from ppw.errors import PpwError
from ppw.fleet.layout import FREQUENCY
from ppw.fleet.moments import runs_for
from ppw.fleet.source import registered
from ppw.grouping import group_runs

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from ppw.fleet.layout import Layout
    from ppw.fleet.source import FleetRuns

# Runs kept one by one; a record so coarse that more coincide tells nothing of them.
_MOST_RUNS = 5_000_000
_MARK = "agrees__"


def with_single_runs(
    cells: pd.DataFrame, layout: Layout, runs: FleetRuns, known: pd.DataFrame
) -> pd.DataFrame:
    """Cells, those of groups with runs that agree in every digit replaced by their single runs.

    Raises
    ------
    PpwError
        When more runs agree than can be looked at.
    """
    overlapping = _overlapping(cells, layout)
    if overlapping is None:
        return cells
    rows = runs_for(runs.table, layout, known, keep=_columns(layout, known))
    rows = rows.filter(rows[FLAGS] % 2 == 0).mutate(**{_MARK: _pace(rows)})
    groups = _of_groups(rows, overlapping, runs) if len(overlapping) else rows
    agreeing = _agreeing(groups, layout)
    found = runs.connection.to_pyarrow(agreeing)
    if not found.num_rows:
        return cells
    single = _of_groups(rows, found.to_pandas(), runs)
    count = runs.connection.to_pyarrow(single.aggregate(n=single.count())).to_pylist()[0]["n"]
    if count > _MOST_RUNS:
        raise PpwError(
            f"{runs.name}: {count} runs are of groups in which runs at different frequencies agree "
            "in every digit: record times to more digits, or use the runs as they are by --keep-all"
        )
    alone = _as_cells(runs.connection.to_pyarrow(single).to_pandas(), layout)
    return _replaced(cells, alone, layout)


def _columns(layout: Layout, known: pd.DataFrame) -> list[str]:
    names = dict.fromkeys((*layout.finest, *MEASURED))
    return [c for c in names if c in known and known[c].notna().any()]


def _pace(rows: ir.Table) -> ir.NumericValue:
    time, rate = (rows[c] if c in rows.columns else None for c in ("time_s", "throughput_ops_s"))
    if time is None or rate is None:
        return rate if time is None else time
    return time.coalesce(rate)


def _overlapping(cells: pd.DataFrame, layout: Layout) -> pd.DataFrame | None:
    """Keys of the groups whose cells overlap in time; all of them is an empty frame, none None."""
    timed = [c for c in ("time_s", "throughput_ops_s") if c in layout.finest]
    if not timed:
        return None
    usable = cells[(cells[FLAGS].to_numpy() & UNUSABLE) == 0]
    groups = group_runs(usable, layout.by)
    both = np.zeros(len(groups), dtype=bool)
    for column in timed:
        least, most = (usable[of(column)].to_numpy() for of in (least_column, most_column))
        known = ~np.isnan(least)
        order = np.lexsort((least[known], groups.codes[known]))
        code, low, high = groups.codes[known][order], least[known][order], most[known][order]
        highest = pd.Series(high).groupby(code).cummax().to_numpy()
        touching = (code[1:] == code[:-1]) & (low[1:] <= highest[:-1])
        both[code[1:][touching]] = True
    if not both.any():
        return None
    return groups.keys.iloc[:0] if both.all() else groups.keys[both]


def _of_groups(rows: ir.Table, keys: pd.DataFrame, runs: FleetRuns) -> ir.Table:
    """Rows of the groups with these keys."""
    import pyarrow as pa

    if not len(keys.columns):
        return rows
    wanted = registered(runs.connection, pa.Table.from_pandas(keys, preserve_index=False))
    return rows.semi_join(wanted, [rows[c].identical_to(wanted[c]) for c in keys.columns])


def _agreeing(rows: ir.Table, layout: Layout) -> ir.Table:
    """Keys of the groups in which runs of two frequencies agree in pace and watts."""
    by = [*layout.by, _MARK]
    by += ["power_w"] if "power_w" in rows.columns else []
    frequency = rows[FREQUENCY]
    sets = rows.group_by(by).aggregate(slowest=frequency.min(), fastest=frequency.max())
    sets = sets.filter(sets.fastest > (1 + SAME_STEP) * sets.slowest)
    return sets.select(*layout.by).distinct() if layout.by else sets.select(_MARK).limit(1)


def _as_cells(rows: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """One cell a run."""
    made: dict[str, Any] = {RUNS: 1, SINGLE: True}
    for name, coordinates in layout.quantities.items():
        value = rows[name].to_numpy(dtype=np.float64)
        missing = np.isnan(value)
        made[count_column(name)] = (~missing).astype(np.int64)
        for coordinate in coordinates:
            y = value if coordinate == VALUE else np.log(value) if coordinate == LOG else 1 / value
            made[mean_column(name, coordinate)] = y
            made[squares_column(name, coordinate)] = np.where(missing, np.nan, 0.0)
    for name in layout.finest:
        made[most_column(name)] = rows[least_column(name)]
    kept = [finest_column(name) for name in layout.finest]
    return rows.assign(**made).astype(dict.fromkeys(kept, np.float64))


def _replaced(cells: pd.DataFrame, alone: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    together = pd.concat([cells, alone], ignore_index=True)
    of_run = together[SINGLE].eq(True).to_numpy()
    groups = group_runs(together, layout.by)
    kept = np.zeros(len(groups), dtype=bool)
    kept[groups.codes[of_run]] = True
    bad = (together[FLAGS].to_numpy() & UNUSABLE) > 0
    made = together[of_run | bad | ~kept[groups.codes]]
    columns = [*layout.columns, SINGLE, *(c for c in MEASURED if c in alone and c not in cells)]
    made = made[columns].assign(**{SINGLE: of_run[made.index]})
    made = made.sort_values(list(layout.keys), kind="stable", ignore_index=True)
    made.attrs = cells.attrs
    return made
