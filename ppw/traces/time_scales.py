"""`time_scales`: what a modelled device completes of a load that is made faster and slower.

The model is open loop, so the rate at which requests arrive follows the scale alone; what is
completed levels off where the device is always busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from ppw import caveats as cv
from ppw.arguments import as_positive
from ppw.errors import PpwError
from ppw.estimate import shown
from ppw.tabled_result import TabledResult, rows_of
from ppw.tables import summary_text, text_table
from ppw.traces.devices import ASSUMED, Storage, described, parse_device, reaching
from ppw.traces.generation import generate_trace
from ppw.traces.source import columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from ppw.traces.model import TraceModel

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
        from ppw.plots import CURVE, MEASURED, new_axes

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
        ``disk`` or ``ssd``, with parameters if need be (`ppw.traces.devices.parse_device`).
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
