"""A moment table in memory, as the prepared runs that the answers of this package take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pandas as pd

from measurements.table.schema import FILE_COLUMN
from ppw.errors import PpwError
from ppw.fleet import engine as eng
from ppw.fleet import moments as mo
from ppw.fleet import run_files as rf
from ppw.results.text import key_texts
from ppw.runs import groups as gr
from ppw.runs import metrics as mt
from ppw.runs import prepare as pr
from ppw.runs import quality
from ppw.runs.checks import FLAGS, NO_WATTS, UNUSABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from ibis.backends import BaseBackend

    from ppw.projection.options import FitOptions
    from ppw.runs.checks import Mask


@dataclass(frozen=True)
class PreparedCells:
    """Cells ready for an answer."""

    prepared: pr.Prepared
    # Number of runs that cannot be used.
    unusable: int
    # What some runs of a group lack and others have.
    missing: tuple[eng.Fault, ...] = ()


def cells_frame(arrow: pa.Table, layout: mo.Layout, source: str) -> pd.DataFrame:
    """Moment table as a frame in one order, whatever the engine's."""
    cells: pd.DataFrame = arrow.to_pandas()
    cells = cells.astype(dict.fromkeys([*layout.counts, FLAGS], np.int64))
    cells = cells.sort_values(list(layout.keys), ignore_index=True)
    cells.attrs["source"] = source
    return cells


def unusable_mask(cells: pd.DataFrame) -> Mask:
    """Tell the cells whose runs cannot be used."""
    mask: Mask = (cells[FLAGS].to_numpy() & UNUSABLE) > 0
    return mask


def prepare_cells(
    cells: pd.DataFrame, layout: mo.Layout, *, keep_all: bool, drop: bool = True
) -> PreparedCells:
    """Prepare cells for an answer, as `ppw.runs.prepare.prepare` does runs.

    Raises `PpwError` when no usable run is left.
    """
    source = str(cells.attrs.get("source", "runs"))
    bad = unusable_mask(cells)
    unusable = gr.run_count(cells, bad)
    usable = cells[~bad].reset_index(drop=True)
    if usable.empty:
        raise PpwError(f"{source}: holds no run that can be used ({unusable} cannot)")
    groups = gr.group_runs(usable, layout.by)
    held, left_out, keepable = 0, pd.DataFrame(), True
    if not keep_all:
        out = pr.below_full_load(usable, groups)
        held = gr.run_count(usable, out)
        if drop:
            left_out = _flagged_cells(usable, groups, layout)
            position = left_out["position"].to_numpy(dtype=np.int64)
            out[position] = True
            keepable = not pr.without_power(usable)[position].any()
        if out.all():
            raise PpwError(
                f"{source}: every run is flagged, so nothing is left to learn from: see ppw fleet "
                "check, or keep them with --keep-all"
            )
        usable = usable[~out].reset_index(drop=True)
        groups = gr.group_runs(usable, layout.by)
    usable = _with_voltage(usable, layout)
    metrics = [mt.METRICS[name] for name in layout.metrics]
    prepared = pr.Prepared(usable, groups, metrics, left_out, held, keepable)
    return PreparedCells(prepared, unusable, tuple(_missing(usable, groups, layout, source)))


def _flagged_cells(cells: pd.DataFrame, groups: gr.Groups, layout: mo.Layout) -> pd.DataFrame:
    """Cells whose runs cannot be right, with the evidence."""
    found = quality.find_flagged_rows(cells, groups, metric=layout.metrics)
    if not found:
        return pd.DataFrame({"position": np.zeros(0, dtype=np.int64)})
    return quality.evidence_table(found, cells, groups)


def _missing(
    cells: pd.DataFrame, groups: gr.Groups, layout: mo.Layout, source: str
) -> Iterator[eng.Fault]:
    """Name the quantities that some runs of a group lack; a group that lacks one has none."""
    # Watts below nothing are not missing, but suspect.
    there = np.where(cells[FLAGS].to_numpy() & NO_WATTS, 0, cells[gr.RUNS])
    runs = np.bincount(groups.codes, there, len(groups))
    for name in layout.metrics:
        known = np.bincount(groups.codes, gr.counts(cells, name), len(groups))
        partly = np.flatnonzero((known > 0) & (known < runs))
        if partly.size:
            lacking = int((runs - known)[partly].sum())
            texts = key_texts(groups.by, groups.keys.iloc[partly[0]].to_dict())
            of = ", ".join(map("=".join, zip(groups.by, texts, strict=True))) or "all runs"
            yield eng.Fault(
                source,
                f"{name} is missing in {lacking} runs of {partly.size} groups that have others "
                f"(the first: {of}): these runs take no part",
            )


def _with_voltage(cells: pd.DataFrame, layout: mo.Layout) -> pd.DataFrame:
    """Cells with their mean voltage by host and frequency, as a V-f table takes it."""
    if not gr.is_aggregated(cells, "voltage_v"):
        return cells
    keys = [*(c for c in ("host",) if c in layout.by), mo.FREQUENCY]
    number = np.asarray(cells.groupby(keys, dropna=False, sort=False).ngroup(), dtype=np.int64)
    _, mean = gr.merge_means(number, gr.repeats(cells, "voltage_v"), int(number.max()) + 1)
    known = gr.counts(cells, "voltage_v") > 0
    return cells.assign(voltage_v=np.where(known, mean[number], np.nan))


# A fleet's runs read once: its cells, and by name whatever could not be used.


T = TypeVar("T")


@dataclass(frozen=True)
class FleetCells:
    """Cells of a fleet: the moment table, its layout, and the runs that it was made of."""

    frame: pd.DataFrame
    layout: mo.Layout
    # The ``faults`` of these are the files that were not read.
    runs: rf.FleetRuns
    # As `ppw.fleet.run_files.filled_columns`.
    known: pd.DataFrame


def read_cells(
    runs: rf.FleetRuns,
    *,
    by: Sequence[str] | None,
    metric: str | Iterable[str] | None,
    options: FitOptions | None = None,
    checked: bool = False,
    lines_only: bool = False,
    progress: Callable[[float], None] | None = None,
) -> FleetCells:
    """Read what a question needs of a fleet, in one pass over its rows.

    With ``lines_only`` the cells have no logarithms, which only posteriors need; with ``checked``
    they are fine enough for the checks of `ppw.runs.quality` too. A file that the engine cannot
    read is looked for, left out and named; so is one whose columns cannot answer. Raises as
    `ppw.project_runs`, and where the engine fails for a reason that is in no file.
    """
    faults = lacking_faults(runs, metric)
    # Where no file has the columns it is no change over time: the question itself is refused.
    runs = runs if len(faults) in (0, len(runs.files)) else runs.without(faults)

    def read(part: rf.FleetRuns) -> FleetCells:
        known = rf.filled_columns(part)
        settings = rf.few_valued(part) if checked else None
        layout = mo.layout_of(
            known, by=by, metric=metric, options=options, settings=settings, lines_only=lines_only
        )
        with eng.report_progress(part.connection, progress):
            table = mo.moments(mo.runs_for(part.table, layout, known), layout)
            arrow = part.connection.to_pyarrow(table)
        cells = cells_frame(arrow, layout, part.name)
        if checked:
            cells = mo.with_single_runs(cells, layout, part, known)
        return FleetCells(cells, layout, part, known)

    return without_broken(runs, read)


def without_broken(runs: rf.FleetRuns, read: Callable[[rf.FleetRuns], T]) -> T:
    """Read what can be read; ``read`` is given runs without the files that make it fail.

    Raises `PpwError` when no file by itself explains why the engine fails.
    """
    failures = engine_errors(runs.connection)
    try:
        return read(runs)
    except failures as error:
        why = eng.first_line(error)
        if type(error).__name__ == "OutOfMemoryException" or "OutOfMemoryError" in str(error):
            raise PpwError(
                f"{runs.name}: more than the engine's memory limit: raise --memory-limit, or name "
                f"a folder with room by --temporary ({why})"
            ) from error
        if not runs.files:
            raise PpwError(f"{runs.name}: the engine failed: {why}") from error
        one = [_read_fault(file, error) for file in runs.files[:1]]
        faults = _broken(runs, runs.files, read, failures) if len(runs.files) > 1 else one
        if len(faults) == len(runs.files):
            raise eng.UnusableFilesError(runs.name, (*runs.faults, *faults)) from error
        # Without a file to blame it was a worker's failure, which a second attempt may not have.
        again = runs.without(faults) if faults else runs
    try:
        return read(again)
    except failures as error:
        why = eng.first_line(error)
        raise PpwError(f"{runs.name}: the engine failed twice: {why}") from error


def _broken(
    runs: rf.FleetRuns,
    files: Sequence[str],
    read: Callable[[rf.FleetRuns], object],
    failures: tuple[type[Exception], ...],
) -> list[eng.Fault]:
    """Find the files that cannot be read, by halves."""
    try:
        read(runs.only(files))
    except failures as error:
        if len(files) == 1:
            return [_read_fault(files[0], error)]
        middle = len(files) // 2
        halves = (files[:middle], files[middle:])
        return [fault for half in halves for fault in _broken(runs, half, read, failures)]
    except PpwError:
        # Readable, though it has no answer of its own.
        return []
    return []


def _read_fault(file: str, error: Exception) -> eng.Fault:
    why = eng.first_line(error)
    return eng.Fault(file, f"cannot be read: {why}: write it again, or leave it out")


def engine_errors(connection: BaseBackend) -> tuple[type[Exception], ...]:
    """List the exceptions by which an engine says that it cannot read."""
    if eng.is_spark(connection):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        return (PySparkException, Py4JError)
    import duckdb

    return (duckdb.Error,)


def lacking_faults(runs: rf.FleetRuns, metric: str | Iterable[str] | None) -> list[eng.Fault]:
    """Name the files whose columns answer no metric that is asked for; None for any metric."""
    metrics = list(mt.METRICS.values()) if metric is None else mt.parse_metrics(metric)
    ways = [set(columns) for m in metrics for columns in m.columns]
    faults = []
    for part in runs.parts:
        lacks = [] if mo.FREQUENCY in part.columns else [mo.FREQUENCY]
        if not any(way <= part.columns for way in ways):
            lacks.append(" and ".join(sorted(ways[0])))
        if lacks:
            what = f"its columns are others: no {', no '.join(lacks)}: name them so, or use --map"
            faults += [eng.Fault(file, what) for file in part.files]
    return faults


def unusable_faults(runs: rf.FleetRuns, columns: Sequence[str]) -> list[eng.Fault]:
    """Say file by file which values of some columns no run can have; a pass over all runs."""
    table = runs.table
    bad = {column: mo.is_impossible(table, column) for column in columns}
    if mo.FREQUENCY in table.columns:
        bad["missing"] = table[mo.FREQUENCY].isnull()  # noqa: PD003 — no pandas
    counts = {name: rows.cast("int64").sum() for name, rows in bad.items()}
    by_file = FILE_COLUMN in table.columns and len(runs.files) > 1
    counted = (table.group_by(FILE_COLUMN) if by_file else table).aggregate(**counts)
    faults, given = [], rf.given_names(runs.files)
    for row in runs.connection.to_pyarrow(counted).to_pylist():
        file, missing = str(row.pop(FILE_COLUMN, runs.name)), row.pop("missing", 0)
        texts = [f"{column} that cannot be in {n} runs" for column, n in row.items() if n]
        if missing:
            texts.append(f"no {mo.FREQUENCY} in {missing} runs")
        if texts:
            what = f"{', '.join(texts)}: left out; correct or drop them"
            faults.append(eng.Fault(given.get(file, file), what))
    return sorted(faults)
