"""`fit_trace`: from the requests of a block trace to a `TraceModel`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.storage.cascade import Windows, fit_cascade
from fitting.storage.diagram import Diagram
from fitting.storage.interarrival import fit_gaps
from fitting.storage.reuse_distance import ReuseCounter
from fitting.storage.run_lengths import RunCounter
from fitting.storage.transitions import TransitionCounter, log_likelihood
from ppw.errors import CaveatWarning, PpwError
from ppw.results import caveats as cv
from ppw.results.arguments import as_positive
from ppw.results.result import as_floats, read_document, reads_document, records, write_document
from ppw.results.text import shown, summary_text, text_table
from ppw.storage.fitted_devices import ASSUMED, completed_iops, described, parse_device, reaching
from ppw.storage.generate import generate_trace
from ppw.storage.trace_model import TraceModel
from ppw.storage.trace_source import columns, opened, survey

if TYPE_CHECKING:
    from os import PathLike

    from fitting.storage.cascade import Cascade
    from fitting.storage.run_lengths import Runs
    from fitting.storage.survey import Survey
    from ppw.storage.trace_source import Batches, Columns, Surveyed

    IntArray = np.ndarray[Any, np.dtype[np.int64]]
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from matplotlib.axes import Axes

    from fitting.storage.transitions import TransitionCounts


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


# `choose_level`: how many levels a state diagram needs, by throughput and by held-out likelihood.
#
# The published rule takes the first level at which the IOPS that a device completes change by less
# than 2 % (Delimitrou et al. 2011); the rate of an open-loop trace never moves, so a device has to
# say. Held-out likelihood asks how well the first half of the trace foretells where the second
# goes.


KIND = "trace_levels"
STEADY = 0.02
_MOST_SIMULATED = 200_000


@dataclass(frozen=True)
class LevelChoice:
    """Levels side by side; made by `choose_level`.

    Parameters
    ----------
    table : pandas.DataFrame
        One row a level: possible and occurring transitions, ``iops``, ``iops_change`` from the
        level above, ``log_likelihood`` (nats a request) of the second half under the first.
    by_iops, by_likelihood : int
        Levels chosen.
    flat_iops : float or None
        IOPS of one level of as many states as the deepest hierarchy has; None if not asked for.
    caveats : tuple of str
    input_digest : str
    """

    table: pd.DataFrame
    by_iops: int
    by_likelihood: int
    flat_iops: float | None
    caveats: tuple[str, ...]
    input_digest: str

    def summary(self) -> str:
        """The levels as text."""
        rows = [
            [
                str(int(row["level"])),
                str(int(row["transitions"])),
                str(int(row["occurring"])),
                shown(row["iops"]),
                "–" if np.isnan(row["iops_change"]) else f"{row['iops_change']:+.1%}",
                f"{row['log_likelihood']:.3f}",
            ]
            for row in self.table.to_dict(orient="records")
        ]
        header = ["level", "transitions", "occurring", "IOPS", "change", "held-out ln L"]
        lines = [
            text_table(header, rows),
            "",
            f"level {self.by_iops}: the first that changes IOPS by less than {STEADY:.0%}",
            f"level {self.by_likelihood}: the likeliest for the second half of the trace",
        ]
        if self.flat_iops is not None:
            off = self.flat_iops / self.table["iops"].iloc[-1] - 1
            lines.append(f"one flat level instead: {off:+.1%} IOPS (published: under 5 %)")
        return summary_text(lines, self.caveats)

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()

    def to_json(self) -> str:
        """JSON document; missing values are null."""
        body = {
            "levels": records(self.table),
            "by_iops": self.by_iops,
            "by_likelihood": self.by_likelihood,
            "flat_iops": self.flat_iops,
            "caveats": list(self.caveats),
        }
        return write_document(KIND, self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> LevelChoice:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        document = read_document(text, KIND)
        return cls(
            table=as_floats(pd.DataFrame(document["levels"]), but=()),
            by_iops=document["by_iops"],
            by_likelihood=document["by_likelihood"],
            flat_iops=document["flat_iops"],
            caveats=tuple(document["caveats"]),
            input_digest=document["input_digest"],
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw IOPS and held-out likelihood by level."""
        from ppw.results.axes import CURVE, PROJECTED, new_axes

        ax = new_axes(ax)
        ax.plot(self.table["level"], self.table["iops"], "o-", color=CURVE, label="IOPS")
        ax.set_xlabel("levels")
        ax.set_ylabel("IOPS (1/s)")
        other = ax.twinx()
        other.plot(self.table["level"], self.table["log_likelihood"], "s--", color=PROJECTED)
        other.set_ylabel("held-out log-likelihood (nats a request)", color=PROJECTED)
        return ax


def choose_level(
    trace: Batches | str,
    *,
    levels: int = 6,
    device: str | Callable[[pa.Table], float] = "disk",
    flat: bool = False,
    seed: int = 0,
    **options: Any,
) -> LevelChoice:
    """Compare diagrams of 1, 2, … levels of one trace.

    Parameters
    ----------
    trace : Trace or path
        As `ppw.fit_trace` takes it; read three times at most.
    levels : int
        The most, from 2.
    device : str or callable
        ``disk`` or ``ssd``, with parameters if need be (`ppw.storage.fitted_devices.parse_device`);
        or what gives the IOPS completed of a table of requests, as a replay does.
    flat : bool
        Whether to fit one level of as many states too.
    seed : int
        Of the requests generated.
    **options
        Of `ppw.fit_trace`: ``space_bytes``, ``window_s``, ``laws``, ``reuse``.

    Returns
    -------
    LevelChoice

    Raises
    ------
    PpwError
        For fewer than two levels.
    """
    if levels < 2:
        raise PpwError(f"levels {levels}: give 2 or more, or there is nothing to choose")
    source = opened(trace)
    model = fit_trace(source, levels=levels, **options)
    complete, said = _throughput(device, model)
    halves = _halves(source, model)
    rows: list[dict[str, float]] = []
    deepest = model
    for level in range(levels, 0, -1):
        rows.append(
            {
                "level": float(level),
                "transitions": float(model.diagram.transitions),
                "occurring": float(len(np.unique(model.counts.pair))),
                "iops": _completed(model, complete, seed),
                "log_likelihood": log_likelihood(*halves),
            }
        )
        if level > 1:
            model = model.coarser()
            halves = halves[0].coarser(), halves[1].coarser()
    table = pd.DataFrame(rows[::-1])
    table.insert(4, "iops_change", table["iops"].pct_change())
    steady = table.index[table["iops_change"].abs() < STEADY]
    caveats = [] if len(steady) else [f"IOPS still change at level {levels}: try more levels"]
    caveats += said
    flat_iops = _flat(source, deepest, complete, seed, options) if flat else None
    # The fit has warned of its own.
    cv.warn(caveats)
    return LevelChoice(
        table=table,
        by_iops=int(table["level"][steady[0]]) if len(steady) else levels,
        by_likelihood=int(table["level"].iloc[int(table["log_likelihood"].argmax())]),
        flat_iops=flat_iops,
        caveats=(*deepest.caveats, *caveats),
        input_digest=deepest.input_digest,
    )


def _throughput(
    device: str | Callable[[pa.Table], float], model: TraceModel
) -> tuple[Callable[[pa.Table], float], list[str]]:
    """What says how many requests a device completes, and what to say of it."""
    if not isinstance(device, str):
        return device, []
    name, found = parse_device(device)
    drive = reaching(found, model.survey.high_lbn)
    said = ASSUMED.format(name=name, said=described(drive))
    return partial(completed_iops, device=drive), [said]


def _flat(
    source: Batches,
    model: TraceModel,
    complete: Callable[[pa.Table], float],
    seed: int,
    options: Mapping[str, Any],
) -> float:
    with warnings.catch_warnings():
        # What it would say, the fit of the tree has said.
        warnings.simplefilter("ignore", CaveatWarning)
        flat = fit_trace(source, levels=1, fan_out=model.diagram.states, **options)
    return _completed(flat, complete, seed)


def _completed(model: TraceModel, complete: Callable[[pa.Table], float], seed: int) -> float:
    count = min(_MOST_SIMULATED, model.survey.requests)
    return complete(generate_trace(model, count=count, seed=seed).to_table())


def _halves(source: Batches, model: TraceModel) -> tuple[TransitionCounts, TransitionCounts]:
    """Transitions of the first and of the second half of the requests."""
    counters = [TransitionCounter(model.diagram, model.survey, model.classes) for _ in range(2)]
    middle, done = model.survey.requests // 2, 0
    for batch in columns(source):
        here = min(max(middle - done, 0), len(batch.time_s))
        counters[0].add(*(column[:here] for column in batch[:6]))
        counters[1].add(*(column[here:] for column in batch[:6]))
        done += len(batch.time_s)
    return counters[0].counts(), counters[1].counts()
