"""`half_drift`: a model of a trace's first half held against its second.

No model of the past can be nearer to what comes than the workload itself stays the same; so the
distance of the model is shown beside that of the two halves, and there is no tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ppw.errors import PpwError
from ppw.names import plot_label
from ppw.tabled_result import TabledResult, rows_of
from ppw.tables import summary_text, text_table
from ppw.traces.devices import DEVICES, reaching
from ppw.traces.features import Space, TraceFeatures, distance, features
from ppw.traces.fit import fit_trace
from ppw.traces.generation import generate_trace
from ppw.traces.source import opened, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    import pyarrow as pa
    from matplotlib.axes import Axes

    from ppw.traces.source import Batches

_LEAST = 100
_CACHES = (0.01, 0.05, 0.20)


@dataclass(frozen=True)
class _Half:
    """Half of the rows of a trace."""

    trace: Batches
    first: int
    end: int

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        return self.trace.names

    @property
    def findings(self) -> tuple[str, ...]:
        return ()

    def batches(self) -> Iterator[pa.RecordBatch]:
        at = 0
        for batch in self.trace.batches():
            low, high = max(self.first - at, 0), min(self.end - at, batch.num_rows)
            if low < high:
                yield batch.slice(low, high - low)
            at += batch.num_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfDrift(TabledResult):
    """Figures of both halves of a trace, and of what a model of the first half makes.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a figure: ``figure``, ``first_half``, ``second_half``, ``model``; ``drift``,
        second half less first, and ``model_off``, model less second half: relative for rates and
        variation, in points for shares. Distances are shares of the requests that would have to
        move; of those there is no value of a half itself.
    """

    kind: ClassVar[str] = "trace_half_drift"

    table: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """One row a figure."""
        return self.table.copy()

    def summary(self) -> str:
        """The figures as text."""
        cells = [
            [row["figure"], *(_number(row[c]) for c in self.table.columns[1:])]
            for row in rows_of(self.table)
        ]
        header = ["figure", "first half", "second half", "model", "drift", "model off"]
        lines = ["A model of the first half against the second, beside the halves' own drift", ""]
        lines.append(text_table(header, cells))
        return summary_text(lines, self.caveats)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how far the model and the first half are from the second."""
        from ppw.plots import MEASURED, PROJECTED, new_axes

        ax, at = new_axes(ax), np.arange(len(self.table))
        ax.barh(at - 0.2, self.table["drift"].abs(), 0.4, color=MEASURED, label="halves")
        ax.barh(at + 0.2, self.table["model_off"].abs(), 0.4, color=PROJECTED, label="model")
        ax.set_yticks(at, [plot_label(name) for name in self.table["figure"]])
        ax.invert_yaxis()
        ax.set_xlabel("distance from the second half")
        ax.set_ylabel("figure")
        ax.legend()
        return ax


def half_drift(trace: Batches | str | PathLike[str], *, seed: int = 0, **options: Any) -> HalfDrift:
    """Fit a model to the first half of a trace's requests and hold it against the second.

    Parameters
    ----------
    trace : Trace or path
    seed : int
        Of the requests generated, as many as the second half has.
    **options
        Of `ppw.fit_trace`.

    Returns
    -------
    HalfDrift
        Figures of both halves of a trace, and of what a model of the first half makes.

    Raises
    ------
    PpwError
        For a trace of fewer than a hundred requests.
    """
    source = opened(trace)
    known = survey(source)
    requests = known.survey.requests + known.flushes
    if requests < _LEAST:
        raise PpwError(f"{requests} requests have no halves to compare: give {_LEAST} or more")
    parts = _Half(source, 0, requests // 2), _Half(source, requests // 2, requests)
    space = Space(known.survey.low_lbn, known.survey.high_lbn)
    device = reaching(DEVICES["ssd"], known.survey.high_lbn)
    model = fit_trace(parts[0], **options)
    made = generate_trace(model, seed=seed, count=requests - requests // 2)
    first, second, synthetic = (features(t, survey(t), space, device) for t in (*parts, made))
    # The fit has warned.
    return HalfDrift(
        table=_table(first, second, synthetic),
        caveats=model.caveats,
        input_digest=known.digest,
    )


def _table(first: TraceFeatures, second: TraceFeatures, model: TraceFeatures) -> pd.DataFrame:
    rows = []
    for figure, of, relative in _figures(second):
        a, b, c = of(first), of(second), of(model)
        scale = b if relative else 1.0
        rows.append((figure, a, b, c, (b - a) / scale, (c - b) / scale))
    for figure, law in _distributions():
        shares, nothing = law(second), (np.nan,) * 3
        drift, off = (distance(law(f), shares) for f in (first, model))
        rows.append((figure, *nothing, drift, off))
    columns = ["figure", "first_half", "second_half", "model", "drift", "model_off"]
    return pd.DataFrame(rows, columns=columns)


def _figures(
    second: TraceFeatures,
) -> Iterator[tuple[str, Callable[[TraceFeatures], float], bool]]:
    """Name each figure, with how to find it and whether it is compared as a ratio."""
    yield "requests a second", lambda f: f.rate, True
    yield "variation of inter-arrival times", lambda f: f.gap_variation, True
    yield "reads", lambda f: f.read_share, False
    yield "random requests", lambda f: f.random_share, False
    for share in _CACHES:
        blocks = max(1, round(share * second.reuse.footprint))
        name = f"LRU hits, cache of {share:.0%} of the footprint"
        yield name, lambda f, b=blocks: float(f.reuse.hit_ratio(b)), False  # type: ignore[misc]


def _distributions() -> Iterator[
    tuple[str, Callable[[TraceFeatures], np.ndarray[Any, np.dtype[np.float64]]]]
]:
    yield "distance in 64ths of the space", lambda f: f.bins
    yield "distance in reuse distances", lambda f: f.reuse.distances()


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4g}"
