"""`half_drift`: a model of a trace's first half compared with its second.

No model of the past can be nearer to what comes than the workload itself stays the same; so the
distance of the model is shown beside that of the two halves, and there is no tolerance.

`time_scales`: what a modelled device completes of a load that is made faster and slower. The model
is open loop, so the rate at which requests arrive follows the scale alone; what is completed levels
off where the device is always busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ppw.errors import PpwError
from ppw.results import axes
from ppw.results.arguments import as_positive
from ppw.results.result import Result, Table, warn_caveats
from ppw.results.text import plot_label, shown
from ppw.storage.features import CACHES, Space, TraceFeatures, distance, features
from ppw.storage.fit import MOST_SIMULATED, fit_trace
from ppw.storage.fitted_devices import Storage, parse_device
from ppw.storage.generate import generate_trace
from ppw.storage.trace_source import columns, open_trace, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    import pyarrow as pa
    from matplotlib.axes import Axes

    from fitting.compiled.loops import FloatArray
    from ppw.storage.trace_model import TraceModel
    from ppw.storage.trace_source import Batches

_LEAST = 100
SCALES = (4.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
# A device that completes less than this share of what is offered has fallen behind.
_KEEPS_UP = 0.95


@dataclass(frozen=True)
class _Half:
    """Half of the rows of a trace."""

    trace: Batches
    first: int
    end: int
    findings: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        return self.trace.names

    def batches(self) -> Iterator[pa.RecordBatch]:
        at = 0
        for batch in self.trace.batches():
            low, high = max(self.first - at, 0), min(self.end - at, batch.num_rows)
            if low < high:
                yield batch.slice(low, high - low)
            at += batch.num_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfDrift(Result):
    """Figures of both halves of a trace, and of what a model of the first half makes.

    Differences are relative for rates and variation, and in points for shares. Distances are
    shares of the requests that would have to move; of those there is no value of a half itself.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a figure.
    """

    kind: ClassVar[str] = "trace_half_drift"
    tables: ClassVar[tuple[Table, ...]] = (
        Table(
            "table",
            """
            figure      | text  | figure      | figure that is compared
            first_half  | 1 .4g | first half  | value of the first half
            second_half | 1 .4g | second half | value of the second half
            model       | 1 .4g | model       | value of the model of the first half
            drift       | 1 .4g | drift       | second half less first
            model_off   | 1 .4g | model off   | model less second half
            """,
            "Figures",
        ),
    )

    table: pd.DataFrame

    def text_parts(self) -> list[str]:
        """Sentences and tables of the summary, in their order."""
        lead = "A model of the first half against the second, beside the halves' own drift"
        return [lead, "", *super().text_parts()]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how far the model and the first half are from the second."""
        ax, at = axes.new_axes(ax), np.arange(len(self.table))
        ax.barh(at - 0.2, self.table["drift"].abs(), 0.4, color=axes.MEASURED, label="halves")
        ax.barh(at + 0.2, self.table["model_off"].abs(), 0.4, color=axes.PROJECTED, label="model")
        ax.set_yticks(at, [plot_label(name) for name in self.table["figure"]])
        ax.invert_yaxis()
        ax.set_xlabel("distance from the second half")
        ax.set_ylabel("figure")
        ax.legend()
        return ax


def half_drift(trace: Batches | str | PathLike[str], *, seed: int = 0, **options: Any) -> HalfDrift:
    """Fit a model to the first half of a trace's requests and compare it with the second.

    Parameters
    ----------
    trace : Trace or path
    seed : int
        Random seed of the requests generated, as many as the second half has.
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
    source = open_trace(trace)
    known = survey(source)
    requests = known.survey.requests + known.flushes
    if requests < _LEAST:
        raise PpwError(f"{requests} requests have no halves to compare: give {_LEAST} or more")
    parts = _Half(source, 0, requests // 2), _Half(source, requests // 2, requests)
    # One space for all three, or their places could not be compared.
    space = Space(known.survey.low_lbn, known.survey.high_lbn)
    device = parse_device("ssd").model
    model = fit_trace(parts[0], **options)
    made = generate_trace(model, seed=seed, count=requests - requests // 2)
    figures = [features(t, survey(t), space, device) for t in (*parts, made)]
    # The fit has warned.
    return HalfDrift(
        table=_compare_halves(*figures), caveats=model.caveats, input_digest=known.digest
    )


def _compare_halves(
    first: TraceFeatures, second: TraceFeatures, model: TraceFeatures
) -> pd.DataFrame:
    rows = []
    for figure, measure, relative in _measures(second):
        a, b, c = (measure(f) for f in (first, second, model))
        scale = b if relative else 1.0
        rows.append((figure, a, b, c, (b - a) / scale, (c - b) / scale))
    laws: dict[str, Callable[[TraceFeatures], FloatArray]] = {
        "distance in 64ths of the space": lambda f: f.bins,
        "distance in reuse distances": lambda f: f.reuse.distances(),
    }
    for figure, law in laws.items():
        drift, off = (distance(law(f), law(second)) for f in (first, model))
        rows.append((figure, np.nan, np.nan, np.nan, drift, off))
    return pd.DataFrame(rows, columns=HalfDrift.tables[0].names)


def _measures(
    second: TraceFeatures,
) -> Iterator[tuple[str, Callable[[TraceFeatures], float], bool]]:
    """Name each figure, with how to find it and whether it is compared as a ratio."""
    yield "requests a second", lambda f: f.rate, True
    yield "variation of inter-arrival times", lambda f: f.gap_variation, True
    yield "reads", lambda f: f.read_share, False
    yield "random requests", lambda f: f.random_share, False
    for share in CACHES:
        name = f"LRU hits, cache of {share:.0%} of the footprint"
        yield name, lambda f, c=share: f.hit_ratio(c, second), False  # type: ignore[misc]


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeScales(Result):
    """Throughput and latency of a device against the time scale of a load.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a scale, slowest first.
    device : str
        Model that all of it is computed by.
    """

    kind: ClassVar[str] = "trace_time_scales"
    tables: ClassVar[tuple[Table, ...]] = (
        Table(
            "table",
            """
            time_scale    | 1 .6g     | time scale   | factor of all times: 2 is twice as slow
            offered       | 1         | offered/s    | requests that arrive per second
            completed     | 1         | completed/s  | requests completed per second
            utilisation   | share .1% | busy         | busy share of the busiest device
            latency_s     | s         | mean latency | mean latency
            latency_p99_s | s         | 99th         | 99th percentile of the latency
            """,
            "Figures",
        ),
    )

    table: pd.DataFrame
    device: str

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

    def text_parts(self) -> list[str]:
        """Sentences and tables of the summary, in their order."""
        verdict, *lines = super().text_parts()
        return [verdict, "", *lines, "", f"device: {self.device}"]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw requests completed against requests offered."""
        ax, offered = axes.new_axes(ax), self.table["offered"]
        ax.plot(offered, offered, ":", color=axes.MEASURED, label="offered")
        ax.plot(offered, self.table["completed"], "o-", color=axes.CURVE, label="completed")
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
        Random seed of the requests generated, the same at every scale; two hundred thousand at
        most.

    Returns
    -------
    TimeScales
        Throughput and latency of a device against the time scale of a load.

    Raises
    ------
    PpwError
        For no scale, one that is not positive, or an unknown device.
    """
    if not len(scales):
        raise PpwError("no time scale was given")
    drive = parse_device(device).reaching(model.survey.high_lbn)
    count = min(MOST_SIMULATED, model.survey.requests)
    rows = []
    # The same requests at every scale, so that the scale alone makes the difference.
    for scale in sorted((as_positive("time scale", s) for s in scales), reverse=True):
        storage = Storage(drive.model)
        for batch in columns(generate_trace(model, count=count, seed=seed, time_scale=scale)):
            storage.take(batch)
        rows.append(
            {
                "time_scale": scale,
                "offered": model.rate / scale,
                "completed": storage.iops,
                "utilisation": storage.utilisation,
                "latency_s": storage.latencies.mean_s,
                "latency_p99_s": storage.latencies.quantile_s(0.99),
            }
        )
    remarks = (
        drive.caveat,
        "open loop: where the device is always busy its queue, and latency, only grow",
    )
    warn_caveats(remarks)
    return TimeScales(
        table=pd.DataFrame(rows),
        device=drive.text,
        caveats=remarks,
        input_digest=model.input_digest,
    )
