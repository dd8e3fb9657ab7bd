"""The report page of workloads that share a host, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.names import plot_label
from ppw.plots import CURVE, PROJECTED, new_axes
from ppw.provisioning.co_location_result import BREAKS
from ppw.provisioning.right_sizing_result import EVIDENCE
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.provisioning.co_location_result import CoLocation

_LINES = ("-", "--", "-.", ":")


def co_location_page(result: CoLocation) -> Page:
    """Report of `ppw.co_locate`."""
    names = " + ".join(dict.fromkeys(result.parts["workload"]))
    caption = (
        "Sum of the demands as a share of each capacity"
        + (", highest of each stretch of time" if len(result.timeline) else "")
        + "; red: breaks. Dotted: the capacity."
    )
    return Page(
        title="Sharing a host",
        subtitle=f"{names} · input {result.input_digest}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[
            Table("Together", result.header()[:-2], [row[:-2] for row in result.cells()], 2),
            Table("Evidence", EVIDENCE, result.evidence(), len(EVIDENCE)),
            Table("Who asks for what", result.part_header(), result.part_cells(), 2),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_co_location(result: CoLocation, ax: Axes | None = None) -> Axes:
    """Draw the share of each capacity over time, or as bars where no time is common."""
    axes = new_axes(ax)
    known = result.resources[result.resources["share"].notna()]
    broken = set(known.loc[known["finding"] == BREAKS, "resource"])
    if len(result.timeline):
        for number, (name, part) in enumerate(result.timeline.groupby("resource", sort=False)):
            colour = PROJECTED if name in broken else CURVE
            style = _LINES[number % len(_LINES)]
            axes.plot(
                part["time_s"],
                100 * part["share"],
                style,
                color=colour,
                lw=1.2,
                label=plot_label(name),
            )
        axes.set_xlabel("time together (s)")
        axes.set_ylabel("sum of demands (% of capacity)")
        axes.axhline(100, color="0.3", lw=1, ls=":")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return axes
    place = np.arange(len(known))[::-1]
    colours = [PROJECTED if name in broken else CURVE for name in known["resource"]]
    axes.barh(place, 100 * known["share"], color=colours, height=0.6)
    axes.axvline(100, color="0.3", lw=1, ls=":")
    axes.set_yticks(place, [plot_label(name) for name in known["resource"]])
    axes.set_ylabel("resource")
    axes.set_xlabel("sum of demands (% of capacity)")
    return axes
