"""The report page of a replayed trace, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.names import plot_label
from ppw.plots import BAND, new_axes
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.traces.replay import TraceReplay


def trace_replay_page(result: TraceReplay) -> Page:
    """Report of `ppw.replay_trace`."""
    return Page(
        title="Replayed trace",
        subtitle=f"{result.fio_version}, {result.engine} · input {result.input_digest}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), "Requests a second, stage by stage.")],
        tables=[Table("Stages", result.header(), result.cells(), 1)],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_stages(result: TraceReplay, ax: Axes | None = None) -> Axes:
    """Draw requests a second by stage."""
    axes, table = new_axes(ax), result.table
    place = np.arange(len(table))[::-1]
    axes.barh(place, table["iops"], color=BAND)
    axes.set_yticks(place, [plot_label(name.partition(",")[0]) for name in table["stage"]])
    axes.set_xlabel("requests a second")
    axes.set_ylabel("stage")
    return axes
