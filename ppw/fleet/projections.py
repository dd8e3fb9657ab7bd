"""Answers over a fleet: one pass of the engine over its runs, and this package's fits of the rest.

The engine condenses the runs to one row a cell (`ppw.fleet.moments`); curves, posteriors, pooling
and calibration are those of the answers in memory, which take cells as they take runs.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack, cast

from measurements import identity_columns, write_runs
from measurements.table.schema import NUMERIC
from ppw.errors import PpwError
from ppw.fleet import moments as mo, run_files as rf
from ppw.fleet.engine import BaseBackend, Fault, connect, ibis, report_progress
from ppw.fleet.state import FleetState, state_cells
from ppw.projection import path_length as pl, validation
from ppw.projection.answers import FitOptions, FittingOptions, ModelOptions
from ppw.projection.path_length import PathLengths
from ppw.projection.runs import FittedParameters, RunsProjection, fit_prepared, project_prepared
from ppw.projection.validation import Validation
from ppw.results import result as rs, text as tx
from ppw.results.axes import Axes
from ppw.runs import groups
from ppw.runs.quality import Quality, check_prepared

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pandas as pd


# Answers over a fleet: the answer itself, where it comes from, and what could not be used.
R = TypeVar("R", bound=rs.Result)
_KINDS = (FittedParameters, RunsProjection, validation.Validation, Quality, pl.PathLengths)
_ANSWERS: dict[str, type[Any]] = {kind.kind: kind for kind in _KINDS}
_MOST_FAULTS = 20


@dataclass(frozen=True)
class Origin:
    """What an answer was made of."""

    engine: str  # engine that read it
    files: int
    runs: int
    cells: int  # what the runs were condensed to
    unusable: int  # runs with values that cannot be, which took no part


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetAnswer(Generic[R]):
    """An answer over a fleet.

    Attributes
    ----------
    answer : FittedParameters, RunsProjection, Validation, Quality or PathLengths
        As the same question gives in memory.
    origin : Origin
    faults : tuple of Fault
        What could not be used, by file; the answer is of the rest.
    connection : ibis connection or None
        Engine that read the runs; None when read from JSON.
    """

    answer: R
    origin: Origin
    faults: tuple[Fault, ...] = ()
    connection: BaseBackend | None = field(default=None, repr=False, compare=False)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats of the answer."""
        return self.answer.caveats

    @property
    def input_digest(self) -> str | None:
        """Digest of the cells: the runs themselves are too many to read for it."""
        return self.answer.input_digest

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the answer's table."""
        return self.answer.to_frame()

    def to_table(self) -> ir.Table:
        """Answer as a table of the engine, to join with others there.

        Raises `PpwError` when the answer was read from JSON, and has no engine.
        """
        if self.connection is None:
            raise PpwError("this answer was read from JSON and has no engine: use to_frame()")
        return rf.register_frame(self.connection, self._file_table())

    def write(self, path: str | Path) -> None:
        """Write the answer's table as Parquet, CSV or JSON lines, by the ending; whole or not."""
        write_runs(self._file_table(), path)

    def _file_table(self) -> pd.DataFrame:
        """Table for a file: categories become text, and ``covered`` a nullable boolean."""
        table = self.to_frame()
        text = {c: "str" for c in table if str(table[c].dtype) == "category"}
        flags = {c: "boolean" for c in ("covered",) if c in table}
        return table.astype({**text, **flags})

    def summary(self) -> str:
        """Say the answer, what it was made of, and at most 20 faults."""
        o = self.origin
        files = f" in {o.files:,} files" if o.files else ""
        lines = [
            self.answer.summary(),
            f"From {o.runs:,} runs{files}, condensed to {o.cells:,} cells by {o.engine}.",
            *(f"fault: {fault}" for fault in self.faults[:_MOST_FAULTS]),
        ]
        if len(self.faults) > _MOST_FAULTS:
            lines.append(f"… {len(self.faults) - _MOST_FAULTS} more faults: use --format json")
        return "\n".join(lines)

    def to_html(self) -> str:
        """Write the report of the answer."""
        answer = self.answer
        # What the page draws of single runs, and asks anew of them, cells do not hold.
        if isinstance(answer, RunsProjection):
            answer = replace(answer, prepared=None)
        return answer.to_html()

    def to_json(self) -> str:
        """JSON document with ``schema_version``; the answer's own document is in ``answer``."""
        body = {
            "answer": json.loads(self.answer.to_json()),
            "origin": asdict(self.origin),
            "faults": [fault._asdict() for fault in self.faults],
            "caveats": self.caveats,
        }
        return rs.write_document("fleet", self.input_digest, body)

    @classmethod
    @rs.reads_document
    def from_json(cls, text: str) -> FleetAnswer[Any]:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = rs.read_document(text, "fleet")
        kind = _ANSWERS.get(d["answer"].get("kind"))
        if kind is None:
            raise PpwError(f"this fleet document holds a {d['answer'].get('kind')!r}")
        return cls(
            answer=kind.from_json(json.dumps(d["answer"])),
            origin=Origin(**d["origin"]),
            faults=tuple(Fault(**fault) for fault in d["faults"]),
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the answer."""
        return cast("Any", self.answer).plot(ax)


class Opening(TypedDict, total=False):
    """How a fleet's runs are opened and read; see `open_runs` and `fit`."""

    engine: str | BaseBackend
    columns: Mapping[str, str] | None
    where: Mapping[str, Any] | None
    memory_limit: str | None
    temporary: str | Path | None
    threads: int | None
    progress: Callable[[float], None] | None


class FleetModelOptions(ModelOptions, Opening, total=False):
    """Keywords of `fit`: how the fleet is opened, and the models to fit."""


class FleetOptions(FittingOptions, Opening, total=False):
    """Keywords of `project` and `validate`: how the fleet is opened, and how curves are fitted."""


def _split_keywords(keywords: Mapping[str, Any]) -> tuple[Opening, FitOptions]:
    """Part keywords into those that open the fleet and the options of its fits."""
    opening = {name: value for name, value in keywords.items() if name in Opening.__annotations__}
    fitting = {name: value for name, value in keywords.items() if name not in opening}
    return cast("Opening", opening), FitOptions(**fitting)


def fit(
    source: object,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    keep_all: bool = False,
    **keywords: Unpack[FleetModelOptions],
) -> FleetAnswer[FittedParameters]:
    """Fit the curves of a fleet by least squares and give their parameters.

    The column ``posterior`` is empty: `ppw.fit` of a part of the fleet has it.

    Parameters
    ----------
    source : path, URL, several of them, ibis Table or pandas.DataFrame
        As for `open_runs`; or the folder of a saved state (`ppw.fleet.update_state`).
    by, metric, keep_all
        As for `ppw.fit`.
    **keywords
        Models, as for `ppw.fit`; how the fleet is opened, as for `open_runs`; and
        ``progress``, which is called with the share of the rows that is read, 0 to 1.

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.fit`, and where the engine fails; values that cannot be are no error but
        ``faults`` of the answer.

    Warns
    -----
    CaveatWarning
        For each caveat, and each fault.
    """
    opening, options = _split_keywords(keywords)
    # A posterior of each of many groups would take longer than to read their runs.
    options = replace(options, interval="none")
    read = _read_cells(source, opening, by, metric, options, checked=not keep_all, lines_only=True)
    return _answer_from(read, lambda p: fit_prepared(p, options), keep_all=keep_all)


def project(
    source: object,
    *,
    freq: float | str | Iterable[float | str],
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    level: float = 0.90,
    keep_all: bool = False,
    **keywords: Unpack[FleetOptions],
) -> FleetAnswer[RunsProjection]:
    """Project every group of a fleet to frequencies that were not measured.

    Parameters
    ----------
    source
        As for `fit`.
    freq, by, metric, level, keep_all
        As for `ppw.project`.
    **keywords
        Models and intervals, as for `ppw.project`; the rest as for `fit`.

    Raises
    ------
    MeasurementError, PpwError
        As `fit`.

    Warns
    -----
    CaveatWarning
        For each caveat, and each fault.
    """
    at = tx.as_frequencies(freq)
    opening, options = _split_keywords(keywords)
    read = _read_cells(source, opening, by, metric, options, checked=not keep_all)
    ask = functools.partial(project_prepared, frequencies=at, options=options, level=level)
    return _answer_from(read, ask, keep_all=keep_all)


def validate(
    source: object,
    *,
    train: float | str | Iterable[float | str] = (),
    test: float | str | Iterable[float | str] = (),
    scheme: str | None = None,
    train_host: str | None = None,
    test_host: str | None = None,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    level: float = 0.90,
    keep_all: bool = False,
    **keywords: Unpack[FleetOptions],
) -> FleetAnswer[Validation]:
    """Hold projections of a fleet against measurements that they have not seen.

    Parameters
    ----------
    source, **keywords
        As for `project`.
    train, test, scheme, train_host, test_host, by, metric, level, keep_all
        As for `ppw.validate`.

    Raises
    ------
    MeasurementError, PpwError
        As `fit`, and when nothing can be tested.

    Warns
    -----
    CaveatWarning
        For each caveat, and each fault.
    """
    at_train, at_test = validation.several(train), validation.several(test)
    validation.refuse_contradiction(bool(at_train or at_test), scheme, train_host, test_host)
    plan = validation.HoldOutPlan(at_train, at_test, scheme or "highest", train_host, test_host)
    opening, options = _split_keywords(keywords)
    across = scheme == "host" or train_host is not None
    read = _read_cells(source, opening, by, metric, options, checked=not keep_all, but_host=across)

    def ask(prepared: Any) -> Validation:
        return validation.validate_prepared(prepared, plan, options, level, keep_all=keep_all)

    return _answer_from(read, ask, keep_all=keep_all, drop=False)


def check(
    source: object,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    **opening: Unpack[Opening],
) -> FleetAnswer[Quality]:
    """Name the runs of a fleet that cannot be right, cell by cell, each with the evidence.

    All checks of `ppw.check` are made but one: runs that agree in every digit at several
    frequencies, which no moments show.

    Parameters
    ----------
    source, **opening
        As for `fit`.
    by, metric
        As for `ppw.check`.

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.check`, and where the engine fails.

    Warns
    -----
    CaveatWarning
        For each caveat, and each fault.
    """
    if (state := _open_state(source)) is not None:
        raise PpwError(
            f"{state.folder}: a saved state has no single runs, and checks need "
            "them: name the files of its runs"
        )
    read = _read_cells(source, opening, by, metric, FitOptions(), checked=True, lines_only=True)
    return _answer_from(read, lambda p: check_prepared(p.runs, p.groups, metric))


def _read_cells(
    source: object,
    opening: Opening,
    by: Sequence[str] | None,
    metric: str | Iterable[str] | None,
    options: FitOptions,
    *,
    checked: bool = False,
    lines_only: bool = False,
    but_host: bool = False,
) -> mo.FleetCells:
    """Read the moments of a source: those that a saved state holds, or those of runs."""
    limits: dict[str, Any] = {**opening}
    progress = limits.pop("progress", None)
    if (state := _open_state(source)) is not None:
        return _read_state_cells(state, limits, by, metric, but_host=but_host)
    runs = rf.open_runs(source, **limits)
    if but_host:
        columns = identity_columns(rf.filled_columns(runs)) if by is None else tx.as_names(by)
        by = [c for c in columns if c != "host"]
    how: dict[str, Any] = {"checked": checked, "lines_only": lines_only, "progress": progress}
    return mo.read_cells(runs, by=by, metric=metric, options=options, **how)


def _open_state(source: object) -> FleetState | None:
    """Open the saved state that a source names; None for runs. Raises if it is one of several."""
    if isinstance(source, (list, tuple)):
        if len(source) > 1 and (states := [s for s in source if FleetState.is_at(s)]):
            raise PpwError(
                f"{states[0]}: is a saved state, which cannot be combined with files: add the "
                "files to it with ppw fleet update, or give only one kind"
            )
        source = source[0] if len(source) == 1 else source
    if isinstance(source, FleetState):
        return source
    if isinstance(source, (str, os.PathLike)) and FleetState.is_at(source):
        return FleetState.open(source)
    return None


def _read_state_cells(
    state: FleetState,
    limits: dict[str, Any],
    by: Sequence[str] | None,
    metric: str | Iterable[str] | None,
    *,
    but_host: bool,
) -> mo.FleetCells:
    if limits.pop("columns", None):
        raise PpwError(
            f"{state.folder}: a saved state has its columns: leave the mapping (--map) out"
        )
    if limits.pop("where", None):
        raise PpwError(
            f"{state.folder}: a saved state has no single runs to choose from: leave --where out, "
            "or name the files that it was made of"
        )
    if but_host:
        columns = state.layout_by().by if by is None else tx.as_names(by)
        by = [c for c in columns if c != "host"]
    connection = connect(limits.pop("engine", "duckdb"), **limits)
    return state_cells(state, connection, by=by, metric=metric)


def _unusable_faults(read: mo.FleetCells, runs: int) -> list[Fault]:
    """Report impossible values by file; for a saved state report their number alone."""
    if not runs:
        return []
    if FleetState.is_at(read.runs.name):
        return [Fault(read.runs.name, f"{runs} runs have impossible values and are left out")]
    return mo.unusable_faults(read.runs, mo.columns_read(read.layout, read.known))


def _answer_from(
    read: mo.FleetCells, ask: Callable[[Any], Any], *, keep_all: bool = True, drop: bool = True
) -> FleetAnswer[Any]:
    """Answer from prepared cells; where that fails, add the faults to the error as notes."""
    try:
        how = {"keep_all": keep_all, "drop": drop}
        prepared, unusable, missing = mo.prepare_cells(read.frame, read.layout, **how)
        answer = ask(prepared)
    except PpwError as error:
        unusable = groups.run_count(read.frame, mo.unusable_mask(read.frame))
        for fault in (*read.runs.faults, *_unusable_faults(read, unusable)):
            error.add_note(f"fault: {fault}")
        raise
    if not keep_all and FleetState.is_at(read.runs.name):
        caveat = (
            f"{read.runs.name}: a saved state has no single runs, so ppw could not leave out "
            "wrong runs: find them with ppw fleet check on the files"
        )
        answer = replace(answer, caveats=(*answer.caveats, caveat))
    faults = [*_unusable_faults(read, unusable), *missing]
    rows = (groups.run_count(read.frame), len(read.frame), unusable)
    return _fleet_answer(answer, read.runs, faults, *rows)


def _fleet_answer(
    answer: Any, read: rf.FleetRuns, faults: Sequence[Fault], runs: int, cells: int, unusable: int
) -> FleetAnswer[Any]:
    """Join an answer with its origin and faults, and warn of its caveats."""
    faults = (*read.faults, *faults)
    rs.warn_caveats([*answer.caveats, *map(str, faults)])
    origin = Origin(read.connection.name, len(read.files), runs, cells, unusable)
    return FleetAnswer(answer=answer, origin=origin, faults=faults, connection=read.connection)


# Path lengths of a fleet: `ppw.path_lengths` from moments of each workload, core count and size.
#
# The engine condenses the instructions of the runs to one row a workload, core count, data size and
# way of counting; the lines against cores and data are fitted to these.
_KEYS = ("workload", "cores", "data_bytes")
_HOW = ("instructions_label", "counted_modes")
_TEXTS = ("workload", *_HOW)
_READ = (
    *("cores", "data_bytes", "instructions", "cpi", "freq_hz", "freq_achieved_hz", "task_clock_s"),
    *("command_user_s", "command_system_s", "server_user_s", "server_system_s"),
    *("throughput_ops_s", "window_s", "time_s", "load"),
)


class _PathLengthCells(NamedTuple):
    """Moments of path lengths, mean rates by data size, and how many runs there are in all."""

    cells: pd.DataFrame
    rates: pd.DataFrame
    rows: int
    unusable: int
    runs: rf.FleetRuns
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
    pl.check_options(level, tolerance)
    for one in source if isinstance(source, (list, tuple)) else [source]:
        if FleetState.is_at(one):
            raise PpwError(f"{one}: a saved state keeps no instructions: name the files of runs")
    limits: dict[str, Any] = {**opening}
    progress = limits.pop("progress", None)
    runs = rf.open_runs(source, **limits)
    found = mo.without_broken(runs, lambda part: _read_path_length_cells(part, progress))
    if found.cells.empty:
        raise PpwError(f"{found.runs.name}: {pl.NOTHING_COUNTED}")
    unusable = mo.unusable_faults(found.runs, found.read) if found.unusable else []
    cells, digest = found.cells, rs.frame_digest(found.cells)
    answer = pl.answer_cells(cells, found.rates, found.rows, level, tolerance, digest)
    return _fleet_answer(answer, found.runs, unusable, found.rows, len(cells), found.unusable)


def _read_path_length_cells(
    runs: rf.FleetRuns, progress: Callable[[float], None] | None
) -> _PathLengthCells:
    known = rf.filled_columns(runs)
    present = [str(c) for c in known if known[c].notna().any()]
    read = [c for c in _READ if c in present and c in NUMERIC]
    if "data_bytes" not in read:
        raise PpwError(f"{runs.name}: {pl.NOTHING_COUNTED}")
    bad = groups.any_of(mo.is_impossible(runs.table, c) for c in read).fill_null(False)
    usable = runs.table.filter(~bad)
    with report_progress(runs.connection, progress):
        cells = runs.connection.to_pyarrow(_path_length_moments(usable, present)).to_pandas()
        rates = runs.connection.to_pyarrow(_mean_rates(usable, present, identity_columns(known)))
    counted = runs.table.aggregate(rows=runs.table.count(), bad=bad.cast("int64").sum())
    (row,) = runs.connection.to_pyarrow(counted).to_pylist()
    order = [*_KEYS, *(c for c in _HOW if c in cells)]
    cells = cells.sort_values(order, ignore_index=True)
    unusable = int(row["bad"] or 0)
    return _PathLengthCells(cells, rates.to_pandas(), row["rows"] - unusable, unusable, runs, read)


def _typed_column(table: ir.Table, name: str, present: Sequence[str]) -> Any:
    """Column as text or float64; NULL where a value is missing or the column is not there."""
    text = name in _TEXTS
    if name not in present:
        return ibis.null("string" if text else "float64")
    column = table[name]
    if text:
        return column.cast("string")
    number = column.try_cast("float64") if column.type().is_string() else column.cast("float64")
    return number.isnan().ifelse(None, number)


def _path_length_moments(table: ir.Table, present: Sequence[str]) -> ir.Table:
    """Moments of instructions by workload, cores, data size and way of counting."""

    def typed_column(name: str) -> Any:
        return _typed_column(table, name, present)

    label = typed_column("instructions_label").fill_null(pl.COUNTED)
    told = table.select(
        workload=typed_column("workload").fill_null(pl.WITHOUT_NAME),
        cores=typed_column("cores"),
        data_bytes=typed_column("data_bytes"),
        instructions=pl.executed_instructions(typed_column),
        instructions_label=typed_column("instructions").isnull().ifelse(pl.ESTIMATED, label),  # noqa: PD003
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


def _mean_rates(table: ir.Table, present: Sequence[str], by: Sequence[str]) -> ir.Table:
    """Mean full-load throughput by group and data size; as time where the runs are jobs."""
    rate = _typed_column(table, "throughput_ops_s", present)
    load = _typed_column(table, "load", present)
    size = _typed_column(table, "data_bytes", present)
    service = ~rate.isnull()  # noqa: PD003 — no pandas
    unmarked = load.isnull() & ~service if "load" in present else load.isnull()  # noqa: PD003
    full = unmarked | ((load - 1.0).abs() <= 1e-9).fill_null(False)
    keys = [c for c in dict.fromkeys((*by, mo.FREQUENCY)) if c in present and c != "data_bytes"]
    points = table.select(
        *keys,
        data_bytes=size,
        service=service,
        rate=rate.coalesce(size / _typed_column(table, "time_s", present)),
        full=full,
    )
    points = points.filter(points.full & (points.rate > 0) & (points.data_bytes > 0))
    means = points.group_by([*keys, "data_bytes", "service"]).aggregate(rate=points.rate.mean())
    return means.mutate(
        throughput_ops_s=means.service.ifelse(means.rate, None).cast("float64"),
        time_s=means.service.ifelse(None, means.data_bytes / means.rate).cast("float64"),
    ).drop("service", "rate")
