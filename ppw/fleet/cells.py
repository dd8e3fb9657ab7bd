"""A moment table in memory, as the prepared runs that the answers of this package take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pandas as pd

from measurements.table.schema import FILE_COLUMN
from ppw.errors import PpwError
from ppw.fleet.engine import Fault, UnusableFilesError, first_line, is_spark, watched
from ppw.fleet.moments import FREQUENCY, layout_of, moments, rule, runs_for, with_single_runs
from ppw.fleet.run_files import few_valued, given_names, known_columns
from ppw.results.text import key_texts
from ppw.runs.checks import (
    FLAGS,
    NO_WATTS,
    UNUSABLE,
)
from ppw.runs.groups import (
    RUNS,
    count_column,
    counts,
    group_runs,
    merged_means,
    repeats,
    run_count,
    tally_column,
)
from ppw.runs.metrics import METRICS, known_metrics
from ppw.runs.prepare import Prepared, below_full_load, without_watts
from ppw.runs.quality import find_suspects, suspect_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from ibis.backends import BaseBackend

    from ppw.fleet.moments import Layout
    from ppw.fleet.run_files import FleetRuns
    from ppw.projection.options import FitOptions
    from ppw.runs.groups import Groups


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
    """Prepare cells for an answer, as `ppw.runs.prepare.prepare` does runs.

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


# A fleet's runs read once: its cells, and by name whatever could not be used.


T = TypeVar("T")


@dataclass(frozen=True)
class Cells:
    """Cells of a fleet.

    Attributes
    ----------
    frame : pandas.DataFrame
        The moment table.
    layout : Layout
    runs : FleetRuns
        What was read; its ``faults`` are the files that were not.
    known : pandas.DataFrame
        As `known_columns`.
    """

    frame: pd.DataFrame
    layout: Layout
    runs: FleetRuns
    known: pd.DataFrame


def read_cells(
    runs: FleetRuns,
    *,
    by: Sequence[str] | None,
    metric: str | Iterable[str] | None,
    options: FitOptions | None = None,
    checked: bool = False,
    lines_only: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Cells:
    """Read what a question needs of a fleet, in one pass over its rows.

    With ``lines_only`` the cells have no logarithms, which only posteriors need; with ``checked``
    they are fine enough for the checks of `ppw.runs.quality` too. A file that the engine cannot
    read is looked for, left out and named; so is one whose columns cannot answer.

    Raises
    ------
    PpwError, MeasurementError
        As `ppw.project_runs` for columns that are not there, and where the engine fails for a
        reason that is in no file.
    """
    runs = that_answer(runs, metric)

    def read(part: FleetRuns) -> Cells:
        known = known_columns(part)
        settings = few_valued(part) if checked else None
        layout = layout_of(
            known, by=by, metric=metric, options=options, settings=settings, lines_only=lines_only
        )
        with watched(part.connection, progress):
            arrow = part.connection.to_pyarrow(moments(runs_for(part.table, layout, known), layout))
        cells = cells_frame(arrow, layout, part.name)
        if checked:
            cells = with_single_runs(cells, layout, part, known)
        return Cells(cells, layout, part, known)

    return without_broken(runs, read)


def without_broken(runs: FleetRuns, read: Callable[[FleetRuns], T]) -> T:
    """Read what can be read; ``read`` is given runs without the files that make it fail.

    Raises
    ------
    PpwError
        When no file by itself explains why the engine fails.
    """
    failures = engine_errors(runs.connection)
    try:
        return read(runs)
    except failures as error:
        if _out_of_memory(error):
            raise PpwError(
                f"{runs.name}: more than the engine's memory limit: raise --memory-limit, or name "
                f"a folder with room by --temporary ({first_line(error)})"
            ) from error
        if not runs.files:
            raise PpwError(f"{runs.name}: the engine failed: {first_line(error)}") from error
        one = [_damaged(file, error) for file in runs.files[:1]]
        faults = _broken(runs, runs.files, read, failures) if len(runs.files) > 1 else one
        if len(faults) == len(runs.files):
            raise UnusableFilesError(runs.name, (*runs.faults, *faults)) from error
        # Without a file to blame it was a worker's failure, which a second attempt may not have.
        again = runs.without(faults) if faults else runs
    try:
        return read(again)
    except failures as error:
        raise PpwError(f"{runs.name}: the engine failed twice: {first_line(error)}") from error


def _broken(
    runs: FleetRuns,
    files: Sequence[str],
    read: Callable[[FleetRuns], object],
    failures: tuple[type[Exception], ...],
) -> list[Fault]:
    """Find the files that cannot be read, by halves."""
    try:
        read(runs.only(files))
    except failures as error:
        if len(files) == 1:
            return [_damaged(files[0], error)]
        middle = len(files) // 2
        halves = (files[:middle], files[middle:])
        return [fault for half in halves for fault in _broken(runs, half, read, failures)]
    except PpwError:
        # Readable, though it has no answer of its own.
        return []
    return []


def _damaged(file: str, error: Exception) -> Fault:
    what = f"cannot be read: {first_line(error)}: write it again, or leave it out"
    return Fault(file, what)


def engine_errors(connection: BaseBackend) -> tuple[type[Exception], ...]:
    """List the exceptions by which an engine says that it cannot read."""
    if is_spark(connection):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        return (PySparkException, Py4JError)
    import duckdb

    return (duckdb.Error,)


def _out_of_memory(error: Exception) -> bool:
    return type(error).__name__ == "OutOfMemoryException" or "OutOfMemoryError" in str(error)


def that_answer(runs: FleetRuns, metric: str | Iterable[str] | None) -> FleetRuns:
    """Runs without the files whose columns changed so much that they answer nothing: faults.

    Where no file has the columns it is no change over time, and the question is told so as a whole.

    Parameters
    ----------
    runs : FleetRuns
    metric : str or several, or None
        What they should answer; None for anything.
    """
    faults = lacking_faults(runs, metric)
    return runs if len(faults) in (0, len(runs.files)) else runs.without(faults)


def lacking_faults(runs: FleetRuns, metric: str | Iterable[str] | None) -> list[Fault]:
    """Name the files whose columns answer nothing; arguments as for `that_answer`."""
    metrics = list(METRICS.values()) if metric is None else known_metrics(metric)
    ways = [set(columns) for m in metrics for columns in m.columns]
    faults = []
    for part in runs.parts:
        lacks = [] if FREQUENCY in part.columns else [FREQUENCY]
        if not any(way <= part.columns for way in ways):
            lacks.append(" and ".join(sorted(ways[0])))
        if lacks:
            what = f"its columns are others: no {', no '.join(lacks)}: name them so, or use --map"
            faults += [Fault(file, what) for file in part.files]
    return faults


def unusable_faults(runs: FleetRuns, columns: Sequence[str]) -> list[Fault]:
    """Say file by file which values of some columns no run can have; a pass over all runs."""
    table = runs.table
    told = {column: rule(table, column).cast("int64").sum() for column in columns}
    if FREQUENCY in table.columns:
        told["missing"] = table[FREQUENCY].isnull().cast("int64").sum()  # noqa: PD003 — no pandas
    by_file = FILE_COLUMN in table.columns and len(runs.files) > 1
    counted = table.group_by(FILE_COLUMN).aggregate(**told) if by_file else table.aggregate(**told)
    faults, given = [], given_names(runs.files)
    for row in runs.connection.to_pyarrow(counted).to_pylist():
        file = str(row.get(FILE_COLUMN, runs.name))
        words = [
            f"{column} that cannot be in {n} runs" for column, n in row.items() if _told(column, n)
        ]
        if row.get("missing"):
            words.append(f"no {FREQUENCY} in {row['missing']} runs")
        if words:
            faults.append(
                Fault(given.get(file, file), f"{', '.join(words)}: left out; correct or drop them")
            )
    return sorted(faults)


def _told(column: str, count: object) -> bool:
    return column not in (FILE_COLUMN, "missing") and bool(count)


# Foreign columns of an engine's table to canonical ones: `measurements.table.headers` as
# expressions.


# Choosing runs of a fleet by what their columns say, as `ppw.runs.groups` does in memory.


# The checks of single runs as expressions: what `ppw.runs.checks` finds row by row.
