"""Pages of `pressure_matrix`, `right_size`, `co_locate`, `pair_workloads` and `find_knees`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw.pressure.matrix import _MOST_DRAWN
from ppw.results.page import MOST_ROWS, Figure, Page, draw
from ppw.results.result import PrintedTable

if TYPE_CHECKING:
    from ppw.pressure import co_locate, find_knees, matrix, pair_workloads, right_size


def pressure_page(result: matrix.PressureMatrix) -> Page:
    """Report of `ppw.pressure_matrix`."""
    rows = min(len(result.runs), _MOST_DRAWN)
    caption = (
        "Pressure of each application on each resource; grey was not measured, or has no capacity "
        "to be a share of."
    )
    return Page.of(
        result,
        title="Pressure points",
        subtitle=f"{result.runs['application'].nunique()} applications · thresholds: "
        f"{result.thresholds_source}",
        figures=[Figure(draw(result.plot, width=6.4, height=1.0 + 0.34 * rows), caption)],
    )


def right_sizing_page(result: right_size.RightSizing) -> Page:
    """Report of `ppw.right_size`."""
    caption = (
        "Share of each capacity that was enough for most of the time; red: buy more. The lines are "
        "the medium threshold and the share to plan for."
    )
    return Page.of(
        result,
        title="Right-sizing",
        subtitle=f"{result.source} · {result.seconds:.6g} s",
        figures=[Figure(draw(result.plot), caption)],
        tables=[*result.printed_tables(MOST_ROWS), _sources(result)],
    )


def co_location_page(result: co_locate.CoLocation) -> Page:
    """Report of `ppw.co_locate`."""
    caption = (
        "Sum of the demands as a share of each capacity"
        + (", highest of each stretch of time" if len(result.timeline) else "")
        + "; red: breaks. Dotted: the capacity."
    )
    return Page.of(
        result,
        title="Sharing a host",
        subtitle=" + ".join(dict.fromkeys(result.parts["workload"])),
        figures=[Figure(draw(result.plot), caption)],
        tables=[*result.printed_tables(MOST_ROWS), _sources(result)],
    )


def _sources(result: right_size.RightSizing | co_locate.CoLocation) -> PrintedTable:
    """Who says the capacity of each resource."""
    both = result.resources[["resource", "capacity_source"]]
    rows = [[name, source or "–"] for name, source in both.itertuples(index=False)]
    return PrintedTable("Capacities", ["resource", "capacity from"], rows, 2)


def pairing_page(result: pair_workloads.Pairing) -> Page:
    """Report of `ppw.pair_workloads`."""
    caption = "Share of the capacity of what breaks first, in percent of what may be used."
    return Page.of(
        result,
        title="Which workloads can share a host",
        subtitle=f"{len(result.workloads)} workloads",
        figures=[Figure(draw(result.plot), caption)],
    )


def sweep_page(result: find_knees.SweepKnees) -> Page:
    """Report of `ppw.find_knees`."""
    caption = (
        "Points: mean of the runs of a level. Lines: fitted. Band: interval of the knee. "
        "Ring: where to run. Cross: failed."
    )
    return Page.of(
        result,
        title=f"{result.of} over {result.over}",
        subtitle="knees and operating points",
        figures=[Figure(draw(result.plot), caption)],
    )


PAGES = {
    "pressure_matrix": pressure_page,
    "right_sizing": right_sizing_page,
    "co_location": co_location_page,
    "pairing": pairing_page,
    "sweep_knees": sweep_page,
}
