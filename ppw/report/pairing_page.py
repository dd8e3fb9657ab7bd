"""The report page of pairs of workloads, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.names import plot_label
from ppw.plots import new_axes
from ppw.report.page import Figure, Page, Table, draw
from ppw.tabled_result import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.provisioning.pairing import Pairing


def pairing_page(result: Pairing) -> Page:
    """Report of `ppw.pair_workloads`."""
    caption = "Share of the capacity of what breaks first, in percent of what may be used."
    return Page(
        title="Which workloads can share a host",
        subtitle=f"{len(result.workloads)} workloads · input {result.input_digest}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[
            Table(
                "Matrix",
                result.matrix_header(),
                result.matrix(),
                1,
                "What breaks first and its share of the capacity; ! above what may be used.",
            ),
            Table("Pairs, best first", result.header(), result.cells(), 5),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_pairing(result: Pairing, ax: Axes | None = None) -> Axes:
    """Draw the matrix: the darker, the fuller."""
    axes = new_axes(ax)
    names = list(result.workloads)
    held = np.full((len(names), len(names)), np.nan)
    for row in rows_of(result.pairs):
        a, b = names.index(row["workload"]), names.index(row["with"])
        held[a, b] = held[b, a] = 100 * row["share"] / row["threshold"]
    axes.imshow(held, cmap="Blues", vmin=0, vmax=150)
    for (a, b), value in np.ndenumerate(held):
        if np.isfinite(value):
            colour = "white" if value > 90 else "black"
            axes.text(b, a, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=8)
    labels = list(map(plot_label, names))
    axes.set_xticks(range(len(names)), labels, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), labels)
    axes.set_ylabel("workload")
    return axes
