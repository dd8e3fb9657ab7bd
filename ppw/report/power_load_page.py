"""The report page of power against load, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.names import plot_label
from ppw.plots import CURVE, MEASURED, new_axes
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.power_load_answer import PowerLoads

_STEPS = 101
# More curves than this are a cloud without names.
_MOST_NAMED = 6
_MARKERS = "osD^vP"


def power_load_page(result: PowerLoads) -> Page:
    """Report of `ppw.power_loads`."""
    caption = "Watts at the measured levels, and the curve between them."
    return Page(
        title="Power against load",
        subtitle=f"{len(result.figures)} servers · input {result.input_digest}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[Table("Watts and energy proportionality", result.header(), result.cells(), 1)],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_power_loads(result: PowerLoads, ax: Axes | None = None) -> Axes:
    """Draw watts against load of every server; names where they are few."""
    axes = new_axes(ax)
    named = len(result.figures) <= _MOST_NAMED
    for place, server in enumerate(result.figures["server"]):
        curve = result.curve(server)
        at = np.linspace(curve.load[0], curve.load[-1], _STEPS)
        axes.plot(100 * at, curve.watts(at), color=CURVE, lw=1 if named else 0.3)
        if named:
            label = plot_label(server)
            marker = _MARKERS[place % len(_MARKERS)]
            axes.plot(100 * curve.load, curve.power, marker, color=MEASURED, ms=4, label=label)
    axes.set_xlabel("load (% of full)")
    axes.set_ylabel("power (W)")
    axes.set_xlim(0, 100)
    axes.set_ylim(bottom=0)
    if named:
        axes.legend(frameon=False)
    return axes
