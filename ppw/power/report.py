"""The report page of a calibration, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.results.axes import BAND, CURVE, MEASURED, PROJECTED, new_axes
from ppw.results.page import Figure, Page, Table, draw
from ppw.results.text import plot_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.power.calibration import Calibration
    from ppw.power.power_loads import PowerLoads


_MOST_ROWS = 500
_CURVE_STEPS = 100


def calibration_page(result: Calibration) -> Page:
    """Report of `ppw.calibrate`."""
    caption = (
        "Means of each level as both sensors saw it, the line, and the band in which the "
        f"reference of a new run lies ({result.level:.0%})."
    )
    cells = result.cells(_MOST_ROWS)
    more = len(result.table) - len(cells)
    note = f"{more} more rows are in the JSON of this page." if more > 0 else ""
    parameters = Table("Line", result.parameter_header(), result.parameter_cells(), 1)
    return Page(
        title="One power sensor against another",
        subtitle=f"{result.source} · input {result.input_digest}",
        verdict=[result.verdict(), result.range_sentence()],
        figures=[Figure(draw(result.plot), caption)],
        tables=[parameters, Table("Levels", result.header(), cells, len(result.by), note)],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_calibration(result: Calibration, ax: Axes | None = None) -> Axes:
    """Draw levels, line and prediction band over the range of the calibration."""
    axes, line, table = new_axes(ax), result.line, result.table
    at = np.linspace(line.lowest, line.highest, _CURVE_STEPS)
    made = line.predict(at, level=result.level)
    axes.fill_between(at, made.lower, made.upper, color=BAND, label=f"{result.level:.0%} of runs")
    axes.plot(at, made.value, color=CURVE, label="calibration")
    for rows, color, label in (
        (table[~table["outlier"]], MEASURED, "levels"),
        (table[table["outlier"]], PROJECTED, "far off"),
    ):
        if len(rows):
            axes.plot(rows["sensor_w"], rows["reference_w"], "o", color=color, ms=4, label=label)
    axes.set_xlabel(f"{plot_label(result.sensor)} (W)")
    axes.set_ylabel(f"{plot_label(result.reference)} (W)")
    axes.legend(frameon=False)
    return axes


# The report page of power against load, and its plot.


_LOAD_STEPS = 101
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
        at = np.linspace(curve.load[0], curve.load[-1], _LOAD_STEPS)
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
