"""The report page of a synthetic trace beside its original, and its plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.names import plot_label
from ppw.plots import BEST, CURVE, MEASURED, PROJECTED, new_axes
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.traces.fidelity import TraceFidelity

_COLORS = {"pass": BEST, "fail": PROJECTED, "–": MEASURED}


def trace_fidelity_page(result: TraceFidelity) -> Page:
    """Report of `ppw.validate_trace`."""
    judged = int(result.table["tolerance"].notna().sum())
    figures = [
        Figure(draw(result.plot), "Hit ratio of LRU caches by their share of the footprint."),
        Figure(
            draw(lambda ax: plot_offsets(result, ax), height=1.2 + 0.17 * judged),
            "How much of its tolerance each figure takes; the line is the tolerance.",
        ),
    ]
    return Page(
        title="Synthetic trace against its original",
        subtitle=f"{result.synthetic_traces:g} synthetic · {result.device.partition(':')[0]} model "
        f"· input {result.input_digest}",
        verdict=result.verdict(),
        figures=figures,
        tables=[
            Table("Figures", result.header(), result.cells(), 1),
            Table("Threads", result.stream_header(), result.stream_cells(), 1),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_hit_ratios(result: TraceFidelity, ax: Axes | None = None) -> Axes:
    """Draw hit ratio over cache size."""
    axes, curve = new_axes(ax), result.curve
    percent = 100 * curve["cache_share"]
    axes.plot(percent, 100 * curve["original"], color=MEASURED, label="original")
    axes.plot(percent, 100 * curve["synthetic"], "--", color=CURVE, label="synthetic")
    if curve["ablation"].notna().any():
        axes.plot(percent, 100 * curve["ablation"], ":", color=PROJECTED, label="no locality")
    axes.set_xscale("log")
    axes.set_xlabel("cache (% of the original's footprint)")
    axes.set_ylabel("hits (%)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return axes


def plot_offsets(result: TraceFidelity, ax: Axes | None = None) -> Axes:
    """Draw each figure's offset as a share of its tolerance."""
    axes = new_axes(ax)
    rows = result.table[result.table["tolerance"].notna()]
    taken = (rows["off"].abs() / rows["tolerance"]).to_numpy()
    place = np.arange(len(rows))[::-1]
    axes.barh(place, np.minimum(taken, 2), color=[_COLORS[v] for v in rows["verdict"]])
    axes.axvline(1, color=MEASURED, lw=1)
    axes.set_yticks(place, [plot_label(name) for name in rows["figure"]], fontsize=6)
    axes.set_xlim(0, 2)
    axes.set_xlabel("offset over tolerance, cut at 2")
    return axes
