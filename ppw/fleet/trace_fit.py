"""State diagram of a trace of any size, counted by an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.storage.cascade import Windows, fit_cascade
from fitting.storage.interarrival import fit_gaps
from ppw.errors import PpwError
from ppw.fleet.engine import connect
from ppw.fleet.trace_counts import counts_of, located, reuse_of, runs_of
from ppw.fleet.trace_survey import EngineTrace, held, open_requests, requests_of, survey_of
from ppw.results import caveats as cv
from ppw.results.arguments import as_positive
from ppw.storage.fit import caveats_of, diagram_of
from ppw.storage.trace_model import TraceModel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import ibis
    from ibis.backends import BaseBackend

    from fitting.storage.survey import Survey

# As `ppw.fit_trace` has it: gaps that the cascade's last depth is chosen by.
_GAPS_KEPT = 200_000


def fit_trace_in(
    trace: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    engine: str | BaseBackend = "duckdb",
    memory_limit: str | None = None,
    temporary: str | PathLike[str] | None = None,
    levels: int = 4,
    fan_out: int = 4,
    space_bytes: float | None = None,
    window_s: float = 1800.0,
    laws: str = "likelihood",
    reuse: bool = True,
) -> TraceModel:
    """Fit a hierarchical state diagram to a block trace by DuckDB or Spark.

    The model is that of `ppw.fit_trace`: counts are equal, laws as far as sums of floating-point
    numbers in another order are. Where a trace touches more than eight million different pieces
    of 4 KiB, `ppw.fit_trace` follows a sample of them and this function all. Requests need not be
    sorted; those at one time stay in the order of their file.

    Parameters
    ----------
    trace : path or sequence of paths
        Parquet as `ppw trace convert` writes it; several files, or a folder of them, are one
        trace, whose streams and devices are told apart by their names.
    engine : {"duckdb", "spark"} or ibis connection
    memory_limit, temporary
        As `ppw.fleet.engine.connect` takes them.
    levels, fan_out, space_bytes, window_s, laws, reuse
        As `ppw.fit_trace` takes them.

    Returns
    -------
    TraceModel
        Its ``input_digest`` is of what was counted, and not that of `ppw.fit_trace`.

    Raises
    ------
    MeasurementError
        Where a file is no trace that ppw wrote.
    PpwError
        For requests that cannot be, a trace too short, or a space that does not hold it.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    folder = None if temporary is None else str(temporary)
    connection = connect(engine, memory_limit=memory_limit, temporary=folder)
    source = open_requests(trace, connection)
    known = survey_of(source)
    survey = known.survey
    diagram = diagram_of(survey, levels, fan_out, space_bytes)
    classes = survey.size_classes()
    windows = Windows.of(survey.duration_s, survey.requests, as_positive("window (s)", window_s))
    # Sorting is most of the work: once, for all that is counted of it.
    with held(located(source, survey, classes, diagram), connection) as requests:
        counts = counts_of(requests, survey, classes, diagram)
        if not len(counts.pair):
            raise PpwError("no stream of the trace has two requests: there is nothing to learn")
        arrivals = _arrivals(requests, survey, windows)
        if reuse:
            reused, runs = reuse_of(requests, survey, counts)
        else:
            reused, runs = None, runs_of(requests, counts)
    caveats = caveats_of(known, ())
    cv.warn(caveats)
    return TraceModel(
        survey=survey,
        classes=classes,
        counts=counts,
        laws=fit_gaps(counts.sums, counts.histogram, survey.tick_s, laws),
        cascade=fit_cascade(windows, arrivals, _gaps(source)),
        runs=runs,
        reuse=reused,
        names=source.names,
        caveats=caveats,
        input_digest=known.digest,
    )


def _arrivals(requests: ibis.Table, survey: Survey, windows: Windows) -> Any:
    """Count arrivals in the finest windows."""
    rate = windows.finest / survey.duration_s
    at = ((requests.time_s - survey.first_s) * rate).floor().cast("int64")
    counted = requests.group_by(window=at).agg(count=requests.count()).to_pyarrow()
    finest = np.zeros(windows.finest, dtype=np.int32)
    window = np.minimum(counted["window"].to_numpy(), windows.finest - 1)
    np.add.at(finest, window, counted["count"].to_numpy())
    return finest


def _gaps(source: EngineTrace) -> Any:
    """First gaps between arrivals, of whatever streams."""
    times = requests_of(source).select("time_s").order_by("time_s").limit(_GAPS_KEPT + 1)
    return np.diff(np.sort(times.to_pyarrow()["time_s"].to_numpy()))
