"""Path lengths of a fleet: `ppw.path_lengths` from moments of each workload, core count and size.

The engine condenses the instructions of the runs to one row a workload, core count, data size and
way of counting; the lines against cores and data are fitted to these.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from fitting.laws.execution_time import positive_up_to
from fitting.regression.lines import Repeats, fit_repeats
from measurements import identity_columns
from ppw import caveats as cv
from ppw.arguments import as_share
from ppw.errors import PpwError
from ppw.flat_range import flat_ranges
from ppw.fleet.canonical import is_number
from ppw.fleet.facts import known_columns
from ppw.fleet.layout import FREQUENCY
from ppw.fleet.moments import rule
from ppw.fleet.progress import watched
from ppw.fleet.reading import unusable_faults, without_broken
from ppw.fleet.result import FleetAnswer, Origin
from ppw.fleet.source import open_runs
from ppw.fleet.state import FleetState
from ppw.path_length import PathLengths, caveats_of_fits, caveats_of_runs
from ppw.path_length_fits import (
    CORES_COLUMNS,
    COUNTED,
    DATA_COLUMNS,
    ESTIMATED,
    POINT_COLUMNS,
    WITHOUT_NAME,
)
from ppw.result import frame_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import ibis.expr.types as ir
    import pandas as pd

    from fitting.regression.lines import FloatArray, LineFit
    from ppw.fleet.answers import Opening
    from ppw.fleet.source import FleetRuns

_KEYS = ("workload", "cores", "data_bytes")
_HOW = ("instructions_label", "counted_modes")
_NOTHING = (
    "no run has both instructions and data_bytes: measure with perf, or count with ppw run count "
    "--data SIZE"
)
_TEXTS = ("workload", *_HOW)
_READ = (
    *("cores", "data_bytes", "instructions", "cpi", "freq_hz", "freq_achieved_hz", "task_clock_s"),
    *("command_user_s", "command_system_s", "server_user_s", "server_system_s"),
    *("throughput_ops_s", "window_s", "time_s", "load"),
)


class _Cells(NamedTuple):
    """Moments of path lengths, mean rates by data size, and how many runs there are in all."""

    cells: pd.DataFrame
    rates: pd.DataFrame
    rows: int
    unusable: int
    runs: FleetRuns
    read: list[str]


def path_lengths(
    source: object, *, level: float = 0.90, tolerance: float = 0.05, **opening: Unpack[Opening]
) -> FleetAnswer[PathLengths]:
    """Fit path lengths to the runs of a fleet.

    Parameters
    ----------
    source, **opening
        As for `ppw.fleet.fit`; files or a table, since a saved state keeps no instructions.
    level, tolerance
        As for `ppw.path_lengths`.

    Returns
    -------
    FleetAnswer of PathLengths

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.path_lengths`, and where the engine fails; values that cannot be are no error but
        ``faults`` of the answer.

    Warns
    -----
    CaveatWarning
        For each caveat, and each fault.
    """
    as_share("level", level)
    if not tolerance > 0:
        raise PpwError(f"tolerance {tolerance!r} must be above 0; try 0.05")
    for one in source if isinstance(source, (list, tuple)) else [source]:
        if FleetState.is_at(one):
            raise PpwError(f"{one}: a saved state keeps no instructions: name the files of runs")
    limits: dict[str, Any] = {**opening}
    progress = limits.pop("progress", None)
    found = without_broken(open_runs(source, **limits), lambda part: _read(part, progress))
    if found.cells.empty:
        raise PpwError(f"{found.runs.name}: {_NOTHING}")
    answer = _answer(found, level, tolerance)
    faults = list(found.runs.faults)
    if found.unusable:
        faults += unusable_faults(found.runs, found.read)
    cv.warn([*answer.caveats, *map(str, faults)])
    engine = found.runs.connection
    origin = Origin(
        engine.name, len(found.runs.files), found.rows, len(found.cells), found.unusable
    )
    return FleetAnswer(answer=answer, origin=origin, faults=tuple(faults), connection=engine)


def _read(runs: FleetRuns, progress: Callable[[float], None] | None) -> _Cells:
    known = known_columns(runs)
    present = [str(c) for c in known if known[c].notna().any()]
    read = [c for c in _READ if c in present and is_number(c)]
    if "data_bytes" not in read:
        raise PpwError(f"{runs.name}: {_NOTHING}")
    bad = reduce(lambda a, b: a | b, (rule(runs.table, c) for c in read)).fill_null(False)
    usable = runs.table.filter(~bad)
    with watched(runs.connection, progress):
        cells = runs.connection.to_pyarrow(_moments(usable, present)).to_pandas()
        rates = runs.connection.to_pyarrow(_rates(usable, present, identity_columns(known)))
    counted = runs.table.aggregate(rows=runs.table.count(), bad=bad.cast("int64").sum())
    (row,) = runs.connection.to_pyarrow(counted).to_pylist()
    order = [*_KEYS, *(c for c in _HOW if c in cells)]
    cells = cells.sort_values(order, ignore_index=True)
    unusable = int(row["bad"] or 0)
    return _Cells(cells, rates.to_pandas(), row["rows"] - unusable, unusable, runs, read)


def _column(table: ir.Table, name: str, present: Sequence[str]) -> Any:
    """A column as text or as float64, NULL where it is missing or not there."""
    import ibis

    text = name in _TEXTS
    if name not in present:
        return ibis.null("string" if text else "float64")
    column = table[name]
    if text:
        return column.cast("string")
    number = column.try_cast("float64") if column.type().is_string() else column.cast("float64")
    return number.isnan().ifelse(None, number)


def _moments(table: ir.Table, present: Sequence[str]) -> ir.Table:
    """One row a workload, core count, data size and way of counting."""
    counted, label = _instructions(table, present)
    told = table.select(
        workload=_column(table, "workload", present).fill_null(WITHOUT_NAME),
        cores=_column(table, "cores", present),
        data_bytes=_column(table, "data_bytes", present),
        instructions=counted,
        instructions_label=label,
        **({"counted_modes": table.counted_modes} if "counted_modes" in present else {}),
    )
    told = told.filter((told.instructions > 0) & (told.data_bytes > 0))
    told = told.mutate(per_byte=told.instructions / told.data_bytes)
    keys = [*_KEYS, *(c for c in _HOW if c in told.columns)]
    made: dict[str, Any] = {"runs": told.count()}
    for name in ("per_byte", "instructions"):
        made[f"{name}__mean"] = told[name].mean()
        made[f"{name}__m2"] = told[name].var(how="pop") * told.count()
    return told.group_by(keys).aggregate(**made)


def _instructions(table: ir.Table, present: Sequence[str]) -> tuple[ir.NumericValue, ir.Value]:
    """Instructions of each run, or of each operation of a service, and how they are known.

    As `ppw.path_length_fits.with_instructions`.
    """

    def column(name: str) -> Any:
        return _column(table, name, present)

    seconds = (column("command_user_s") + column("command_system_s")).coalesce(
        column("task_clock_s"), column("server_user_s") + column("server_system_s")
    )
    clock = column("freq_achieved_hz").coalesce(column("freq_hz"))
    counted = column("instructions")
    operations = (column("throughput_ops_s") * column("window_s")).fill_null(1.0)
    label = column("instructions_label").fill_null(COUNTED)
    known = counted.coalesce(seconds * clock / column("cpi"))
    return known / operations, counted.isnull().ifelse(ESTIMATED, label)  # noqa: PD003


def _rates(table: ir.Table, present: Sequence[str], by: Sequence[str]) -> ir.Table:
    """Mean throughput of each group and data size at full load, as `ppw.flat_range` takes runs."""
    rate = _column(table, "throughput_ops_s", present)
    load = _column(table, "load", present)
    size = _column(table, "data_bytes", present)
    service = ~rate.isnull()  # noqa: PD003 — no pandas
    unmarked = load.isnull() & ~service if "load" in present else load.isnull()  # noqa: PD003
    full = unmarked | ((load - 1.0).abs() <= 1e-9).fill_null(False)
    keys = [c for c in dict.fromkeys((*by, FREQUENCY)) if c in present and c != "data_bytes"]
    points = table.select(
        *keys,
        data_bytes=size,
        service=service,
        rate=rate.coalesce(size / _column(table, "time_s", present)),
        full=full,
    )
    points = points.filter(points.full & (points.rate > 0) & (points.data_bytes > 0))
    means = points.group_by([*keys, "data_bytes", "service"]).aggregate(rate=points.rate.mean())
    return means.mutate(
        throughput_ops_s=means.service.ifelse(means.rate, None).cast("float64"),
        time_s=means.service.ifelse(None, means.data_bytes / means.rate).cast("float64"),
    ).drop("service", "rate")


def _answer(found: _Cells, level: float, tolerance: float) -> PathLengths:
    cells = found.cells
    by_label = cells.groupby("instructions_label")["runs"].sum()
    labels = {str(k): int(v) for k, v in by_label.items()}
    modes = cells["counted_modes"].dropna().unique() if "counted_modes" in cells else ()
    said = list(caveats_of_runs(labels, sorted(map(str, modes)), found.rows))
    result = PathLengths(
        points=_points(cells),
        cores=_against_cores(cells),
        data=_against_data(cells),
        flat=flat_ranges(found.rates, tolerance=tolerance),
        level=float(level),
        tolerance=float(tolerance),
        caveats=(),
        input_digest=frame_digest(cells),
    )
    return PathLengths(**{**vars(result), "caveats": (*said, *caveats_of_fits(result))})


def _points(cells: pd.DataFrame) -> pd.DataFrame:
    weighted = cells.assign(sum=cells["runs"] * cells["per_byte__mean"])
    points = weighted.groupby([*_KEYS], dropna=False, sort=True).agg(
        runs=("runs", "sum"),
        sum=("sum", "sum"),
        label=("instructions_label", lambda labels: "/".join(sorted(set(map(str, labels))))),
    )
    points["instructions_per_byte"] = points["sum"] / points["runs"]
    return points.reset_index()[list(POINT_COLUMNS)]


def _against_cores(cells: pd.DataFrame) -> pd.DataFrame:
    """Fit a·ln(n) + b to each workload and data size with two core counts or more."""
    known = cells[cells["cores"].notna()]
    logarithm = np.log(known["cores"].to_numpy(dtype=np.float64))
    table, line, ends = _fitted(known, ["workload", "data_bytes"], "cores", logarithm, "per_byte")
    a_error, b_error = reversed(line.standard_errors())
    found = table.assign(
        a=line.slope,
        b=line.intercept,
        a_error=a_error,
        b_error=b_error,
        cores_from=ends[0],
        cores_to=ends[1],
    )
    zero = [positive_up_to(a, b) for a, b in zip(found["a"], found["b"], strict=True)]
    return found.assign(positive_up_to=zero)[found["several"]][[*CORES_COLUMNS]]


def _against_data(cells: pd.DataFrame) -> pd.DataFrame:
    """Fit instructions = fixed + per byte·D to each workload and core count with two sizes."""
    size = cells["data_bytes"].to_numpy(dtype=np.float64)
    table, line, ends = _fitted(cells, ["workload", "cores"], "data_bytes", size, "instructions")
    fixed_error, per_byte_error = line.standard_errors()
    found = table.assign(
        fixed_instructions=line.intercept,
        instructions_per_byte=line.slope,
        fixed_error=fixed_error,
        per_byte_error=per_byte_error,
        data_from_bytes=ends[0],
        data_to_bytes=ends[1],
    )
    return found[found["several"]][[*DATA_COLUMNS]]


def _fitted(
    cells: pd.DataFrame, keys: list[str], against: str, x: FloatArray, name: str
) -> tuple[pd.DataFrame, LineFit, tuple[FloatArray, FloatArray]]:
    """Lines of all groups: their keys, runs and scatter; the lines; and the range of each."""
    groups = cells.groupby(keys, dropna=False, sort=True)
    codes = np.asarray(groups.ngroup(), dtype=np.int64)
    each = Repeats(
        cells["runs"].to_numpy(dtype=np.int64),
        cells[f"{name}__mean"].to_numpy(dtype=np.float64),
        cells[f"{name}__m2"].to_numpy(dtype=np.float64),
    )
    line = fit_repeats(codes, x, each, int(codes.max()) + 1 if len(codes) else 0)
    table = groups.agg(runs=("runs", "sum"), different=(against, "nunique")).reset_index()
    ends = groups[against].agg(["min", "max"]).to_numpy(dtype=np.float64)
    with np.errstate(invalid="ignore"):
        scatter = np.sqrt(line.variance) / line.moments.mean_y
    table = table.assign(scatter=scatter, several=table["different"] > 1)
    return table, line, (ends[:, 0], ends[:, 1])
