"""`choose_level`: how many levels a state diagram needs, by throughput and by held-out likelihood.

The published rule takes the first level at which the IOPS that a device completes change by less
than 2 % (Delimitrou et al. 2011); the rate of an open-loop trace never moves, so a device has to
say. Held-out likelihood asks how well the first half of the trace foretells where the second goes.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.storage.transitions import TransitionCounter, log_likelihood
from ppw import caveats as cv
from ppw.errors import CaveatWarning, PpwError
from ppw.estimate import shown
from ppw.result import as_floats, read_document, reads_document, records, write_document
from ppw.tables import summary_text, text_table
from ppw.traces.devices import ASSUMED, completed_iops, described, parse_device, reaching
from ppw.traces.fit import fit_trace
from ppw.traces.generation import generate_trace
from ppw.traces.source import columns, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from matplotlib.axes import Axes

    from fitting.storage.transitions import TransitionCounts
    from ppw.traces.model import TraceModel
    from ppw.traces.source import Batches

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
        from ppw.plots import CURVE, PROJECTED, new_axes

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
        ``disk`` or ``ssd``, with parameters if need be (`ppw.traces.devices.parse_device`); or
        what gives the IOPS completed of a table of requests, as a replay does.
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
