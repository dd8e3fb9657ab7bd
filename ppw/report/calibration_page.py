"""The report page of a calibration, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.names import plot_label
from ppw.plots import BAND, CURVE, MEASURED, PROJECTED, new_axes
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.calibration import Calibration

_MOST_ROWS = 500
_STEPS = 100


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
    at = np.linspace(line.lowest, line.highest, _STEPS)
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
