"""`fit_trace`: from the requests of a block trace to a `TraceModel`.

`choose_level`: how many levels a state diagram needs, by throughput and by held-out likelihood. The
published rule takes the first level at which the IOPS that a device completes change by less than
2 % (Delimitrou et al. 2011); the rate of an open-loop trace never moves, so a device has to say.
Held-out likelihood asks how well the first half of the trace foretells where the second goes.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from fitting.storage import cascade, interarrival, reuse_distance, run_lengths, transitions
from fitting.storage.diagram import Diagram
from ppw.errors import CaveatWarning, PpwError
from ppw.results import axes
from ppw.results.arguments import as_positive
from ppw.results.result import Result, Table, warn_caveats
from ppw.storage.fitted_devices import completed_iops, parse_device
from ppw.storage.generate import generate_trace
from ppw.storage.trace_model import TraceModel
from ppw.storage.trace_source import Batches, TraceSurvey, columns, open_trace, survey

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    import pyarrow as pa
    from matplotlib.axes import Axes

    from fitting.storage.survey import Survey

# A trace of so many requests is kept in memory (a third of a gigabyte) and not read again.
_MOST_KEPT = 10_000_000
# Arrivals whose inter-arrival times the cascade's last depth is chosen by.
_ARRIVALS_KEPT = 200_001
# A trace of fewer requests tells little of single transitions.
_FEW = 1000
# Levels whose IOPS differ by less are alike.
STEADY = 0.02
# Requests generated to find the IOPS of a level, or of a time scale.
MOST_SIMULATED = 200_000


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
        Levels of the diagram, from 1; `ppw.choose_level` helps to choose.
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
    """
    source = open_trace(trace)
    found = survey(source, most_kept=_MOST_KEPT)
    known = found.survey
    windows = cascade.Windows.of(
        known.duration_s, known.requests, as_positive("window (s)", window_s)
    )
    diagram = diagram_of(known, levels, fan_out, space_bytes)
    classes = known.size_classes()
    counter = transitions.TransitionCounter(diagram, known, classes)
    runs = run_lengths.RunCounter(len(known.streams))
    ages = reuse_distance.ReuseCounter(known.device_of_stream, known.piece) if reuse else None
    in_windows, arrivals = np.zeros(windows.finest, dtype=np.int32), [np.empty(0)]
    for batch in columns(source) if found.kept is None else found.kept:
        seen = counter.add(*batch[:6])
        windows.counts(batch.time_s - known.first_s, in_windows)
        again = np.zeros(len(seen.row), dtype=np.bool_)
        if ages is not None:
            again = ages.add(seen, batch.lbn, batch.size_bytes)
        runs.add(seen, batch.lbn, again)
        if (missing := _ARRIVALS_KEPT - sum(map(len, arrivals))) > 0:
            arrivals.append(batch.time_s[:missing].copy())
    counts, touched = counter.counts(), counter.rows()
    check_transitions(counts)
    return assemble_model(
        found,
        counts,
        laws,
        cascade=cascade.fit_cascade(windows, in_windows, np.diff(np.concatenate(arrivals))),
        runs=runs.by_state(touched),
        reuse=None if ages is None else ages.by_state(touched),
        names={k: v for k, v in source.names.items() if k in ("stream", "device")},
        findings=source.findings,
    )


def check_transitions(counts: transitions.TransitionCounts) -> None:
    """Refuse a trace in which no stream has two requests."""
    if not len(counts.pair):
        raise PpwError("no stream of the trace has two requests: there is nothing to learn")


def assemble_model(
    found: TraceSurvey,
    counts: transitions.TransitionCounts,
    laws: str,
    *,
    findings: tuple[str, ...] = (),
    **parts: Any,
) -> TraceModel:
    """Build a model of what was counted, and warn of its caveats; ``parts`` are other fields."""
    known, remarks = found.survey, caveats_of(found, findings)
    warn_caveats(remarks)
    return TraceModel(
        survey=known,
        classes=known.size_classes(),
        counts=counts,
        laws=interarrival.fit_interarrivals(counts.sums, counts.histogram, known.tick_s, laws),
        caveats=remarks,
        input_digest=found.digest,
        **parts,
    )


def diagram_of(survey: Survey, levels: int, fan_out: int, space_bytes: float | None) -> Diagram:
    """Make the diagram over the provisioned space (B), or over what was touched if none is given.

    Raises `PpwError` where the space does not hold what was touched.
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


def caveats_of(found: TraceSurvey, findings: tuple[str, ...]) -> tuple[str, ...]:
    """Say what could mislead in a model of a trace, the findings of the trace first."""
    requests, single = found.survey.requests, int((found.survey.stream_counts < 2).sum())
    few = (
        f"{requests} requests are few: rates and shares of single transitions are little more "
        "than guesses"
    )
    texts = {
        f"{found.flushes} flushes have no address and are left out": found.flushes,
        few: requests < _FEW,
        f"{single} streams have a single request, which tells no transition": single,
    }
    return (*findings, *(text for text, applies in texts.items() if applies))


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelChoice(Result):
    """Levels beside each other; made by `choose_level`.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a level.
    by_iops, by_likelihood : int
        Levels chosen.
    flat_iops : float or None
        IOPS of one level of as many states as the deepest hierarchy has; None if not asked for.
    """

    kind: ClassVar[str] = "trace_levels"
    tables: ClassVar[tuple[Table, ...]] = (
        Table(
            "table",
            """
            level          | count  | level         | number of levels
            transitions    | count  | transitions   | possible transitions
            occurring      | count  | occurring     | transitions that occur
            iops           | 1      | IOPS          | requests that a device completes per second
            iops_change    | 1 +.1% | change        | change of IOPS from the level above
            log_likelihood | 1 .3f  | held-out ln L | log-likelihood (nats per request) of the \
second half of the trace under the first
            """,
            "Levels",
            key="levels",
        ),
    )

    table: pd.DataFrame
    by_iops: int
    by_likelihood: int
    flat_iops: float | None

    def verdict(self) -> list[str]:
        """Say which level each rule chooses."""
        said = [
            f"level {self.by_iops}: the first that changes IOPS by less than {STEADY:.0%}",
            f"level {self.by_likelihood}: the likeliest for the second half of the trace",
        ]
        if self.flat_iops is not None:
            off = self.flat_iops / self.table["iops"].iloc[-1] - 1
            said.append(f"one flat level instead: {off:+.1%} IOPS (published: under 5 %)")
        return said

    def text_parts(self) -> list[str]:
        """Sentences and tables of the summary, in their order."""
        (table,) = self.printed_tables()
        return [*table.lines(), "", *self.verdict()]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw IOPS and held-out likelihood by level."""
        ax, level = axes.new_axes(ax), self.table["level"]
        ax.plot(level, self.table["iops"], "o-", color=axes.CURVE, label="IOPS")
        ax.set(xlabel="levels", ylabel="IOPS (1/s)")
        other = ax.twinx()
        other.plot(level, self.table["log_likelihood"], "s--", color=axes.PROJECTED)
        other.set_ylabel("held-out log-likelihood (nats a request)", color=axes.PROJECTED)
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
        Largest number of levels, from 2.
    device : str or callable
        ``disk`` or ``ssd``, with parameters if need be (`ppw.storage.fitted_devices.parse_device`);
        or what gives the IOPS completed of a table of requests, as a replay does.
    flat : bool
        Whether to fit one level of as many states too.
    seed : int
        Random seed of the requests generated.
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
    source = open_trace(trace)
    model = deepest = fit_trace(source, levels=levels, **options)
    assumed: list[str] = []
    if isinstance(device, str):
        drive = parse_device(device).reaching(model.survey.high_lbn)
        device, assumed = partial(completed_iops, device=drive.model), [drive.caveat]
    complete = partial(_generated_iops, device, seed)
    halves = _count_halves(source, model)
    rows = []
    # From the deepest level up: a coarser diagram sums the counts of the finer one.
    for level in range(levels, 0, -1):
        occurring, likelihood = (
            len(np.unique(model.counts.pair)),
            transitions.log_likelihood(*halves),
        )
        rows.append((level, model.diagram.transitions, occurring, complete(model), likelihood))
        if level > 1:
            model = model.coarser()
            halves = halves[0].coarser(), halves[1].coarser()
    names = ["level", "transitions", "occurring", "iops", "log_likelihood"]
    table = pd.DataFrame(rows[::-1], columns=names, dtype=np.float64)
    table.insert(4, "iops_change", table["iops"].pct_change())
    steady = table["level"][table["iops_change"].abs() < STEADY]
    remarks = [] if len(steady) else [f"IOPS still change at level {levels}: try more levels"]
    remarks += assumed
    flat_iops = None
    if flat:
        with warnings.catch_warnings():
            # What it would say, the fit of the tree has said.
            warnings.simplefilter("ignore", CaveatWarning)
            states = deepest.diagram.states
            flat_iops = complete(fit_trace(source, levels=1, fan_out=states, **options))
    # The fit has warned of its own.
    warn_caveats(remarks)
    return LevelChoice(
        table=table,
        by_iops=int(steady.iloc[0]) if len(steady) else levels,
        by_likelihood=int(table["level"].iloc[int(table["log_likelihood"].argmax())]),
        flat_iops=flat_iops,
        caveats=(*deepest.caveats, *remarks),
        input_digest=deepest.input_digest,
    )


def _generated_iops(complete: Callable[[pa.Table], float], seed: int, model: TraceModel) -> float:
    """Measure the requests per second completed of what a model generates."""
    count = min(MOST_SIMULATED, model.survey.requests)
    return complete(generate_trace(model, count=count, seed=seed).to_table())


def _count_halves(
    source: Batches, model: TraceModel
) -> tuple[transitions.TransitionCounts, transitions.TransitionCounts]:
    """Transitions of the first and of the second half of the requests."""
    parts = (model.diagram, model.survey, model.classes)
    counters = [transitions.TransitionCounter(*parts) for _ in range(2)]
    left = model.survey.requests // 2
    for batch in columns(source):
        for counter, rows in zip(counters, (slice(left), slice(left, None)), strict=True):
            counter.add(*batch.pick(rows)[:6])
        left = max(left - len(batch.time_s), 0)
    return counters[0].counts(), counters[1].counts()
