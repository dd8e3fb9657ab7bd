"""A moment table in memory, as the prepared runs that the answers of this package take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ppw.checks.check import FLAGS, NO_WATTS, UNUSABLE
from ppw.condensed import (
    RUNS,
    count_column,
    counts,
    merged_means,
    repeats,
    run_count,
    tally_column,
)
from ppw.errors import PpwError
from ppw.estimate import key_texts
from ppw.fleet.faults import Fault
from ppw.fleet.layout import FREQUENCY
from ppw.grouping import group_runs
from ppw.metrics import METRICS
from ppw.prepare import Prepared, below_full_load, without_watts
from ppw.quality import find_suspects, suspect_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ppw.fleet.layout import Layout
    from ppw.grouping import Groups


@dataclass(frozen=True)
class Condensed:
    """Cells ready for an answer.

    ``unusable`` is the number of runs that cannot be, ``missing`` names what some runs of a group
    lack and others have.
    """

    prepared: Prepared
    unusable: int
    missing: tuple[Fault, ...] = ()


def cells_frame(arrow: pa.Table, layout: Layout, source: str) -> pd.DataFrame:
    """Moment table as a frame in one order, whatever the engine's."""
    cells: pd.DataFrame = arrow.to_pandas()
    whole = [RUNS, *map(count_column, layout.quantities), *map(tally_column, layout.tallies), FLAGS]
    cells = cells.astype(dict.fromkeys(whole, np.int64))
    cells = cells.sort_values(list(layout.keys), ignore_index=True)
    cells.attrs["source"] = source
    return cells


def condensed(
    cells: pd.DataFrame, layout: Layout, *, keep_all: bool, drop: bool = True
) -> Condensed:
    """Prepare cells for an answer, as `ppw.prepare.prepare` does runs.

    Raises
    ------
    PpwError
        When no usable run is left.
    """
    source = str(cells.attrs.get("source", "runs"))
    bad = (cells[FLAGS].to_numpy() & UNUSABLE) > 0
    unusable = run_count(cells, bad)
    usable = cells[~bad].reset_index(drop=True)
    if usable.empty:
        raise PpwError(f"{source}: holds no run that can be used ({unusable} cannot)")
    groups = group_runs(usable, layout.by)
    out = np.zeros(len(usable), dtype=bool)
    held, left_out, keepable = 0, pd.DataFrame(), True
    if not keep_all:
        out = below_full_load(usable, groups)
        held = run_count(usable, out)
        if drop:
            left_out = _suspects(usable, groups, layout)
            position = left_out["position"].to_numpy(dtype=np.int64)
            out[position] = True
            keepable = not without_watts(usable)[position].any()
        if out.all():
            raise PpwError(
                f"{source}: every run is suspect, so nothing is left to learn from: see ppw fleet "
                "check, or keep them with --keep-all"
            )
        usable = usable[~out].reset_index(drop=True)
        groups = group_runs(usable, layout.by)
    usable = _with_voltage(usable, layout)
    metrics = [METRICS[name] for name in layout.metrics]
    prepared = Prepared(usable, groups, metrics, left_out, held, keepable)
    return Condensed(prepared, unusable, tuple(_missing(usable, groups, layout, source)))


def _suspects(cells: pd.DataFrame, groups: Groups, layout: Layout) -> pd.DataFrame:
    """Cells whose runs cannot be right, with the evidence."""
    found = find_suspects(cells, groups, metric=layout.metrics)
    if not found:
        return pd.DataFrame({"position": np.zeros(0, dtype=np.int64)})
    return suspect_table(found, cells, groups)


def _missing(cells: pd.DataFrame, groups: Groups, layout: Layout, source: str) -> Iterator[Fault]:
    """Name the quantities that some runs of a group lack; a group that lacks one has none."""
    # Watts below nothing are not missing, but suspect.
    there = np.where(cells[FLAGS].to_numpy() & NO_WATTS, 0, cells[RUNS])
    runs = np.bincount(groups.codes, there, len(groups))
    for name in layout.metrics:
        known = np.bincount(groups.codes, counts(cells, name), len(groups))
        partly = np.flatnonzero((known > 0) & (known < runs))
        if partly.size:
            lacking = int((runs - known)[partly].sum())
            group = groups.keys.iloc[partly[0]]
            texts = key_texts(groups.by, group.to_dict())
            of = ", ".join(map("=".join, zip(groups.by, texts, strict=True))) or "all runs"
            yield Fault(
                source,
                f"{name} is missing in {lacking} runs of {partly.size} groups that have others, "
                f"such as {of}: these runs take no part",
            )


def _with_voltage(cells: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """Cells with their mean voltage by host and frequency, as a V-f table takes it."""
    if count_column("voltage_v") not in cells:
        return cells
    known = counts(cells, "voltage_v") > 0
    keys = [c for c in ("host", FREQUENCY) if c in layout.by or c == FREQUENCY]
    number = np.asarray(cells.groupby(keys, dropna=False, sort=False).ngroup(), dtype=np.int64)
    _, mean = merged_means(number, repeats(cells, "voltage_v"), int(number.max()) + 1)
    return cells.assign(voltage_v=np.where(known, mean[number], np.nan))
