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
from ppw.results import caveats as cv
from ppw.results.arguments import as_positive
from ppw.results.result import TabledResult, rows_of
from ppw.results.text import plot_label, shown, summary_text, text_table
from ppw.storage.features import Space, TraceFeatures, distance, features
from ppw.storage.fit import fit_trace
from ppw.storage.fitted_devices import ASSUMED, DEVICES, Storage, described, parse_device, reaching
from ppw.storage.generate import generate_trace
from ppw.storage.trace_source import columns, opened, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    import pyarrow as pa
    from matplotlib.axes import Axes

    from ppw.storage.trace_model import TraceModel
    from ppw.storage.trace_source import Batches


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
        from ppw.results.axes import MEASURED, PROJECTED, new_axes

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


# `time_scales`: what a modelled device completes of a load that is made faster and slower.
#
# The model is open loop, so the rate at which requests arrive follows the scale alone; what is
# completed levels off where the device is always busy.


SCALES = (4.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
_MOST_SIMULATED = 200_000
# A device that completes less than this share of what is offered has fallen behind.
_KEEPS_UP = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeScales(TabledResult):
    """Throughput and latency of a device against the time scale of a load.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a scale, slowest first: ``time_scale`` (2 is twice as slow), ``offered`` and
        ``completed`` (requests a second), ``utilisation`` of the busiest device, ``latency_s``
        (mean) and ``latency_p99_s``.
    device : str
        Model that all of it is computed by.
    """

    kind: ClassVar[str] = "trace_time_scales"

    table: pd.DataFrame
    device: str

    def to_frame(self) -> pd.DataFrame:
        """One row a scale."""
        return self.table.copy()

    def verdict(self) -> str:
        """Say where throughput levels off."""
        behind = self.table[self.table["completed"] < _KEEPS_UP * self.table["offered"]]
        most = shown(float(self.table["completed"].max()))
        if behind.empty:
            return f"The device keeps up at every scale, with up to {most} requests a second."
        return (
            f"From a time scale of {behind['time_scale'].max():g} on the device falls behind; "
            f"it completes {most} requests a second at most."
        )

    def summary(self) -> str:
        """The verdict and the scales as text."""
        cells = [
            [
                f"{row['time_scale']:g}",
                shown(row["offered"]),
                shown(row["completed"]),
                f"{row['utilisation']:.1%}",
                shown(row["latency_s"], "s"),
                shown(row["latency_p99_s"], "s"),
            ]
            for row in rows_of(self.table)
        ]
        header = ["time scale", "offered/s", "completed/s", "busy", "mean latency", "99th"]
        lines = [self.verdict(), "", text_table(header, cells), "", f"device: {self.device}"]
        return summary_text(lines, self.caveats)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw requests completed against requests offered."""
        from ppw.results.axes import CURVE, MEASURED, new_axes

        ax = new_axes(ax)
        ax.plot(self.table["offered"], self.table["offered"], ":", color=MEASURED, label="offered")
        ax.plot(
            self.table["offered"], self.table["completed"], "o-", color=CURVE, label="completed"
        )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("requests offered a second")
        ax.set_ylabel("requests a second")
        ax.legend()
        return ax


def time_scales(
    model: TraceModel,
    *,
    scales: Sequence[float] = SCALES,
    device: str = "disk",
    seed: int = 0,
) -> TimeScales:
    """Serve the load of a model at several time scales by a device model.

    Parameters
    ----------
    model : TraceModel
    scales : sequence of float
        Factors of all times: 2 is twice as slow.
    device : str
        ``disk`` or ``ssd``, with parameters if need be (`ppw.storage.fitted_devices.parse_device`).
    seed : int
        Of the requests generated, the same at every scale; two hundred thousand at most.

    Returns
    -------
    TimeScales
        Throughput and latency of a device against the time scale of a load.

    Raises
    ------
    PpwError
        For no scale, one that is not positive, or a device that is not known.
    """
    if not len(scales):
        raise PpwError("no time scale was given")
    name, found = parse_device(device)
    drive = reaching(found, model.survey.high_lbn)
    rows = []
    for scale in sorted((as_positive("time scale", s) for s in scales), reverse=True):
        storage = Storage(drive)
        count = min(_MOST_SIMULATED, model.survey.requests)
        for batch in columns(generate_trace(model, count=count, seed=seed, time_scale=scale)):
            storage.take(batch)
        latency = storage.latencies
        rows.append(
            {
                "time_scale": scale,
                "offered": model.rate / scale,
                "completed": storage.iops,
                "utilisation": storage.utilisation,
                "latency_s": latency.mean_s,
                "latency_p99_s": latency.quantile_s(0.99),
            }
        )
    said = f"{name}: {described(drive)}"
    caveats = (
        ASSUMED.format(name=name, said=described(drive)),
        "open loop: where the device is always busy its queue, and latency, only grow",
    )
    cv.warn(caveats)
    return TimeScales(
        table=pd.DataFrame(rows), device=said, caveats=caveats, input_digest=model.input_digest
    )
