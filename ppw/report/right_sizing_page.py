"""The report page of right-sizing, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.names import plot_label
from ppw.plots import CURVE, PROJECTED, new_axes
from ppw.provisioning.right_sizing_result import BUY, EVIDENCE
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.provisioning.right_sizing_result import RightSizing


def right_sizing_page(result: RightSizing) -> Page:
    """Report of `ppw.right_size`."""
    caption = (
        "Share of each capacity that was enough for most of the time; red: buy more. The lines are "
        "the medium threshold and the share to plan for."
    )
    return Page(
        title="Right-sizing",
        subtitle=f"{result.source} · {result.seconds:.6g} s · input {result.input_digest}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[
            Table("Resources", result.header()[:-2], [row[:-2] for row in result.cells()], 2),
            Table("Evidence", EVIDENCE, result.evidence(), len(EVIDENCE)),
            Table(
                "Hosts of the catalogue",
                result.candidate_header(),
                result.candidate_cells(),
                2,
                "Cores are physical and taken to be as fast as those of the recording.",
            ),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_right_sizing(result: RightSizing, ax: Axes | None = None) -> Axes:
    """Draw the share of each capacity that is used."""
    axes = new_axes(ax)
    table = result.resources
    place = np.arange(len(table))[::-1]
    colours = [PROJECTED if finding == BUY else CURVE for finding in table["finding"]]
    axes.barh(place, 100 * table["share"].fillna(0.0), color=colours, height=0.6)
    for at, row in zip(place, table.to_dict(orient="records"), strict=True):
        if np.isnan(row["share"]):
            axes.text(1, at, row["finding"], va="center", fontsize=7)
            continue
        for threshold in (row["medium"], row["high"]):
            axes.plot([100 * threshold] * 2, [at - 0.4, at + 0.4], color="0.4", lw=1)
    axes.set_yticks(place, [plot_label(name) for name in table["resource"]])
    axes.set_ylabel("resource")
    axes.set_xlabel("used (% of capacity)")
    axes.set_xlim(0, max(100.0, 105 * float(np.nanmax([1.0, *table["share"]]))))
    return axes
