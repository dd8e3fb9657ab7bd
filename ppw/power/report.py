"""The report page of a calibration, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw.results.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from ppw.power.calibration import Calibration
    from ppw.power.power_loads import PowerLoads


_MOST_ROWS = 500


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


# The report page of power against load, and its plot.


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
