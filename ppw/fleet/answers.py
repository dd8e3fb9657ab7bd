"""Answers over a fleet: one pass of the engine over its runs, and this package's fits of the rest.

The engine condenses the runs to one row a cell (`ppw.fleet.moments`); curves, posteriors, pooling
and calibration are those of the answers in memory, which take cells as they take runs.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from measurements import identity_columns
from ppw import caveats as cv
from ppw import schemes
from ppw.arguments import as_frequencies, as_names
from ppw.checks.check import FLAGS, UNUSABLE
from ppw.condensed import run_count
from ppw.curves import FitOptions
from ppw.errors import PpwError
from ppw.fleet.cells import condensed
from ppw.fleet.connection import connect
from ppw.fleet.facts import known_columns
from ppw.fleet.faults import Fault
from ppw.fleet.moments import columns_read
from ppw.fleet.reading import Cells, read_cells, unusable_faults
from ppw.fleet.result import FleetAnswer, Origin
from ppw.fleet.source import open_runs
from ppw.fleet.state import FleetState
from ppw.fleet.state_cells import state_cells
from ppw.parameters import fit_prepared
from ppw.quality import check_prepared
from ppw.runs_projection import project_prepared
from ppw.validation import several, validate_prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from ibis.backends import BaseBackend

    from ppw.fleet.cells import Condensed
    from ppw.parameters import FittedParameters
    from ppw.quality import Quality
    from ppw.runs_projection import RunsProjection
    from ppw.validation import Validation


class Opening(TypedDict, total=False):
    """How a fleet's runs are opened and read; see `open_runs` and `fit`."""

    engine: str | BaseBackend
    columns: Mapping[str, str] | None
    where: Mapping[str, Any] | None
    memory_limit: str | None
    temporary: str | Path | None
    threads: int | None
    progress: Callable[[float], None] | None


def fit(
    source: object,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    form: str = "amdahl",
    power_form: str | None = None,
    exponent: float | None = None,
    voltages: Mapping[float, float] | pd.DataFrame | None = None,
    via: str = "fits",
    **opening: Unpack[Opening],
) -> FleetAnswer[FittedParameters]:
    """Fit the curves of a fleet and give their parameters.

    Parameters
    ----------
    source : path, URL, several of them, ibis Table or pandas.DataFrame
        As for `open_runs`; or the folder of a saved state (`ppw.fleet.update_state`).
    by, metric, form, power_form, exponent, voltages, via
        As for `ppw.fit_runs`.
    **opening
        As for `open_runs`; and ``progress``, which is called with the share of the rows that is
        read, 0 to 1.

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.fit_runs`, and where the engine fails; values that cannot be are no error but
        ``faults`` of the answer.

    Warns
    -----
    CaveatWarning
        For each caveat, and each fault.
    """
    options = FitOptions(
        form=form, power_form=power_form, exponent=exponent, voltages=voltages, via=via
    )
    read = _read(source, opening, by, metric, options, lines_only=True)
    with _telling_faults(read):
        ready = condensed(read.frame, read.layout, keep_all=True)
        fitted = fit_prepared(ready.prepared, options)
    return _answered(fitted, read, ready)


def project(
    source: object,
    *,
    freq: float | str | Iterable[float | str],
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    form: str = "amdahl",
    power_form: str | None = None,
    exponent: float | None = None,
    voltages: Mapping[float, float] | pd.DataFrame | None = None,
    via: str = "fits",
    level: float = 0.90,
    interval: str = "bayes",
    pool: bool = True,
    keep_all: bool = False,
    **opening: Unpack[Opening],
) -> FleetAnswer[RunsProjection]:
    """Project every group of a fleet to frequencies that were not measured.

    Parameters
    ----------
    source, **opening
        As for `fit`.
    freq, by, metric, form, power_form, exponent, voltages, via, level, interval, pool, keep_all
        As for `ppw.project_runs`.

    Raises
    ------
    MeasurementError, PpwError
        As `fit`.

    Warns
    -----
    CaveatWarning
        For each caveat, and each fault.
    """
    frequencies = as_frequencies(freq)
    options = FitOptions(
        form=form,
        power_form=power_form,
        exponent=exponent,
        voltages=voltages,
        via=via,
        interval=interval,
        pool=pool,
    )
    read = _read(source, opening, by, metric, options, checked=not keep_all)
    with _telling_faults(read):
        ready = condensed(read.frame, read.layout, keep_all=keep_all)
        projected = project_prepared(ready.prepared, frequencies, options, level)
    return _answered(projected, read, ready, keep_all=keep_all)


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
    form: str = "amdahl",
    power_form: str | None = None,
    exponent: float | None = None,
    voltages: Mapping[float, float] | pd.DataFrame | None = None,
    via: str = "fits",
    level: float = 0.90,
    interval: str = "bayes",
    pool: bool = True,
    keep_all: bool = False,
    **opening: Unpack[Opening],
) -> FleetAnswer[Validation]:
    """Hold projections of a fleet against measurements that they have not seen.

    Parameters
    ----------
    source, **opening
        As for `fit`.
    train, test, scheme, train_host, test_host
        As for `ppw.validate`, as are all that `project` has too.

    Raises
    ------
    MeasurementError, PpwError
        As `fit`, and when nothing can be tested.

    Warns
    -----
    CaveatWarning
        For each caveat, and each fault.
    """
    at_train, at_test = several(train), several(test)
    schemes.refuse_contradiction(bool(at_train or at_test), scheme, train_host, test_host)
    plan = schemes.Plan(at_train, at_test, scheme or "highest", train_host, test_host)
    options = FitOptions(
        form=form,
        power_form=power_form,
        exponent=exponent,
        voltages=voltages,
        via=via,
        interval=interval,
        pool=pool,
    )
    across = scheme == "host" or train_host is not None
    read = _read(source, opening, by, metric, options, checked=not keep_all, but_host=across)
    with _telling_faults(read):
        ready = condensed(read.frame, read.layout, keep_all=keep_all, drop=False)
        held = validate_prepared(ready.prepared, plan, options, level, keep_all=keep_all)
    return _answered(held, read, ready, keep_all=keep_all)


def check(
    source: object,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    **opening: Unpack[Opening],
) -> FleetAnswer[Quality]:
    """Name the runs of a fleet that cannot be right, cell by cell, each with the evidence.

    All checks of `ppw.check_quality` are made but one: runs that agree in every digit at several
    frequencies, which no moments show.

    Parameters
    ----------
    source, **opening
        As for `fit`.
    by, metric
        As for `ppw.check_quality`.

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.check_quality`, and where the engine fails.

    Warns
    -----
    CaveatWarning
        For each caveat, and each fault.
    """
    if (state := _state(source)) is not None:
        raise PpwError(
            f"{state.folder}: a saved state has no single runs, and the checks look at these: name "
            "the files that it was made of"
        )
    read = _read(source, opening, by, metric, FitOptions(), checked=True, lines_only=True)
    ready = condensed(read.frame, read.layout, keep_all=True)
    prepared = ready.prepared
    return _answered(check_prepared(prepared.runs, prepared.groups, metric), read, ready)


def _read(
    source: object,
    opening: Opening,
    by: Sequence[str] | None,
    metric: str | Iterable[str] | None,
    options: FitOptions,
    *,
    checked: bool = False,
    lines_only: bool = False,
    but_host: bool = False,
) -> Cells:
    limits: dict[str, Any] = {**opening}
    progress = limits.pop("progress", None)
    if (state := _state(source)) is not None:
        return _read_state(state, limits, by, metric, but_host=but_host)
    runs = open_runs(source, **limits)
    if but_host:
        columns = identity_columns(known_columns(runs)) if by is None else as_names(by)
        by = [c for c in columns if c != "host"]
    return read_cells(
        runs,
        by=by,
        metric=metric,
        options=options,
        checked=checked,
        lines_only=lines_only,
        progress=progress,
    )


def _state(source: object) -> FleetState | None:
    """The saved state that a source is, alone; None for runs."""
    if isinstance(source, (list, tuple)):
        if len(source) > 1 and (states := [s for s in source if FleetState.is_at(s)]):
            raise PpwError(
                f"{states[0]}: is a saved state, which answers alone: take the files into it by "
                "ppw fleet update, or ask each by itself"
            )
        source = source[0] if len(source) == 1 else source
    if isinstance(source, FleetState):
        return source
    if isinstance(source, (str, os.PathLike)) and FleetState.is_at(source):
        return FleetState.open(source)
    return None


def _read_state(
    state: FleetState,
    limits: dict[str, Any],
    by: Sequence[str] | None,
    metric: str | Iterable[str] | None,
    *,
    but_host: bool,
) -> Cells:
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
        columns = state.layout_by().by if by is None else as_names(by)
        by = [c for c in columns if c != "host"]
    connection = connect(limits.pop("engine", "duckdb"), **limits)
    return state_cells(state, connection, by=by, metric=metric)


def _unusable(read: Cells, runs: int) -> list[Fault]:
    """Name the runs with values that cannot be; of a saved state, which has no runs, how many."""
    if not runs:
        return []
    if FleetState.is_at(read.runs.name):
        return [Fault(read.runs.name, f"{runs} runs have values that cannot be: left out")]
    return unusable_faults(read.runs, columns_read(read.layout, read.known))


@contextmanager
def _telling_faults(read: Cells) -> Iterator[None]:
    """Note the faults on the refusal of a question, which they may be the reason of."""
    try:
        yield
    except PpwError as error:
        unusable = run_count(read.frame, (read.frame[FLAGS].to_numpy() & UNUSABLE) > 0)
        for fault in (*read.runs.faults, *_unusable(read, unusable)):
            error.add_note(f"fault: {fault}")
        raise


def _answered(
    answer: Any, read: Cells, ready: Condensed, *, keep_all: bool = True
) -> FleetAnswer[Any]:
    if not keep_all and FleetState.is_at(read.runs.name):
        said = (
            f"{read.runs.name}: a saved state has no single runs, so those that cannot be right "
            "were not left out: ppw fleet check of the files names them"
        )
        answer = replace(answer, caveats=(*answer.caveats, said))
    faults = [*read.runs.faults, *_unusable(read, ready.unusable)]
    origin = Origin(
        engine=read.runs.connection.name,
        files=len(read.runs.files),
        runs=run_count(read.frame),
        cells=len(read.frame),
        unusable=ready.unusable,
    )
    cv.warn([*answer.caveats, *map(str, (*faults, *ready.missing))])
    return FleetAnswer(
        answer=answer,
        origin=origin,
        faults=(*faults, *ready.missing),
        connection=read.runs.connection,
    )
