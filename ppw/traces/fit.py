"""`fit_trace`: from the requests of a block trace to a `TraceModel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.storage.cascade import Windows, fit_cascade
from fitting.storage.diagram import Diagram
from fitting.storage.interarrival import fit_gaps
from fitting.storage.reuse_distance import ReuseCounter
from fitting.storage.run_lengths import RunCounter
from fitting.storage.transitions import TransitionCounter
from ppw import caveats as cv
from ppw.arguments import as_positive
from ppw.errors import PpwError
from ppw.traces.model import TraceModel
from ppw.traces.source import columns, opened, survey

if TYPE_CHECKING:
    from os import PathLike

    from fitting.storage.cascade import Cascade
    from fitting.storage.run_lengths import Runs
    from fitting.storage.survey import Survey
    from ppw.traces.source import Batches, Columns, Surveyed

    IntArray = np.ndarray[Any, np.dtype[np.int64]]

# A trace of so many requests is kept in memory (a third of a gigabyte) and not read again.
_MOST_KEPT = 10_000_000
# Arrivals whose gaps the cascade's last depth is chosen by.
_ARRIVALS_KEPT = 200_001
_FEW = 1000


def fit_trace(
    trace: Batches | str | PathLike[str],
    *,
    levels: int = 4,
    fan_out: int = 4,
    space_bytes: float | None = None,
    window_s: float = 1800.0,
    laws: str = "likelihood",
    reuse: bool = True,
) -> TraceModel:
    """Fit a hierarchical state diagram to a block trace.

    The trace is read in bounded memory: once up to ten million requests, else twice.

    Parameters
    ----------
    trace : Trace or path
        What `measurements.traces.read_trace` gives or reads. A stream is a pair of ``stream`` and
        ``device``. Flushes have no address and are left out.
    levels : int
        Of the diagram, from 1; `ppw.choose_level` helps to choose.
    fan_out : int
        States that a state is divided in; published: 4.
    space_bytes : float, optional
        Provisioned space (B) that the states divide evenly, from address 0. Default: from the
        first to the last block touched.
    window_s : float
        Activity windows (s): their load keeps its place in the day.
    laws : str
        Inter-arrival laws to choose among: ``"likelihood"`` all, ``"published"`` those of the
        publication, or one law for all. Each keeps its mean.
    reuse : bool
        Whether to count how soon addresses are used again.

    Returns
    -------
    TraceModel

    Raises
    ------
    MeasurementError
        Where the trace cannot be read.
    FittingError
        Where it holds too few requests, or any ahead of the one before it.
    PpwError
        Where the space does not hold what was touched.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    source = opened(trace)
    known = survey(source, most_kept=_MOST_KEPT)
    windows = Windows.of(
        known.survey.duration_s, known.survey.requests, as_positive("window (s)", window_s)
    )
    diagram = diagram_of(known.survey, levels, fan_out, space_bytes)
    second = _SecondPass(known.survey, diagram, windows, reuse=reuse)
    for batch in columns(source) if known.kept is None else known.kept:
        second.add(batch)
    counts = second.counter.counts()
    if not len(counts.pair):
        raise PpwError("no stream of the trace has two requests: there is nothing to learn")
    caveats = caveats_of(known, source.findings)
    cv.warn(caveats)
    return TraceModel(
        survey=known.survey,
        classes=second.classes,
        counts=counts,
        laws=fit_gaps(counts.sums, counts.histogram, known.survey.tick_s, laws),
        cascade=second.cascade(),
        runs=second.runs_by_state(),
        reuse=second.reuse_by_state(),
        names={k: v for k, v in source.names.items() if k in ("stream", "device")},
        caveats=caveats,
        input_digest=known.digest,
    )


class _SecondPass:
    """Counts all that a model holds."""

    def __init__(self, known: Survey, diagram: Diagram, windows: Windows, *, reuse: bool) -> None:
        self.classes = known.size_classes()
        self.counter = TransitionCounter(diagram, known, self.classes)
        self._runs = RunCounter(len(known.streams))
        self._ages = ReuseCounter(known.device_of_stream, known.piece) if reuse else None
        self._windows, self._first_s = windows, known.first_s
        self._in_windows = np.zeros(windows.finest, dtype=np.int32)
        self._arrivals = [np.empty(0)]

    def add(self, batch: Columns) -> None:
        """Take the next requests."""
        seen = self.counter.add(*batch[:6])
        self._windows.counts(batch.time_s - self._first_s, self._in_windows)
        again = np.zeros(len(seen.row), dtype=np.bool_)
        if self._ages is not None:
            again = self._ages.add(seen, batch.lbn, batch.size_bytes)
        self._runs.add(seen, batch.lbn, again)
        if (missing := _ARRIVALS_KEPT - sum(map(len, self._arrivals))) > 0:
            self._arrivals.append(batch.time_s[:missing].copy())

    def cascade(self) -> Cascade:
        """How arrivals are spread over time."""
        gaps = np.diff(np.concatenate(self._arrivals))
        return fit_cascade(self._windows, self._in_windows, gaps)

    def runs_by_state(self) -> Runs:
        """Runs of sequential requests by the touched state they start in."""
        return self._runs.by_state(self.counter.rows())

    def reuse_by_state(self) -> IntArray | None:
        """Ages of reused addresses by touched state, where they are counted."""
        return None if self._ages is None else self._ages.by_state(self.counter.rows())


def diagram_of(survey: Survey, levels: int, fan_out: int, space_bytes: float | None) -> Diagram:
    """Diagram over the provisioned space (B), or over what was touched where none is given.

    Raises
    ------
    PpwError
        Where the space does not hold what was touched.
    """
    if space_bytes is None:
        return Diagram.over(survey.low_lbn, survey.high_lbn, levels, fan_out)
    blocks = int(as_positive("space (bytes)", space_bytes) // 512)
    if blocks < survey.high_lbn:
        raise PpwError(
            f"a space of {space_bytes:g} bytes ends before block {survey.high_lbn - 1}, which the "
            "trace touches: give the provisioned size, or none"
        )
    return Diagram.over(0, blocks, levels, fan_out)


def caveats_of(known: Surveyed, findings: tuple[str, ...]) -> tuple[str, ...]:
    """What a buyer should know of a trace before its model is used, its findings first."""
    caveats, survey = list(findings), known.survey
    if known.flushes:
        caveats.append(f"{known.flushes} flushes have no address and are left out")
    if survey.requests < _FEW:
        caveats.append(
            f"{survey.requests} requests are few: rates and shares of single transitions are "
            "little more than guesses"
        )
    single = int((survey.stream_counts < 2).sum())
    if single:
        caveats.append(f"{single} streams have a single request, which tells no transition")
    return tuple(caveats)
