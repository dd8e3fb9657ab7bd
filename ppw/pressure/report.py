"""Pages of `pressure_matrix`, `right_size`, `co_locate`, `pair_workloads` and `find_knees`."""

from typing import Any

from ppw.pressure import co_locate, find_knees, matrix, right_size
from ppw.pressure.matrix import _MOST_DRAWN
from ppw.results import page as pages, result as rs


def _page(result: Any, title: str, subtitle: str, caption: str, **size: float) -> pages.Page:
    tables = result.printed_tables(pages.MOST_ROWS)
    if "capacity_source" in getattr(result, "resources", ()):
        # Who says each capacity is too wide for a table that has the findings as well.
        both = result.resources[["resource", "capacity_source"]]
        rows = [[name, source or "–"] for name, source in both.itertuples(index=False)]
        tables.append(rs.PrintedTable("Capacities", ["resource", "capacity from"], rows, 2))
    return pages.Page.with_plot(result, title, caption, subtitle=subtitle, tables=tables, **size)


def pressure_page(result: matrix.PressureMatrix) -> pages.Page:
    """Report of `ppw.pressure_matrix`."""
    rows = min(len(result.runs), _MOST_DRAWN)
    caption = (
        "Pressure of each application on each resource; grey: not measured, or no capacity known."
    )
    count, source = result.runs["application"].nunique(), result.thresholds_source
    subtitle = f"{count} applications · thresholds: {source}"
    return _page(result, "Pressure points", subtitle, caption, height=1.0 + 0.34 * rows)


def right_sizing_page(result: right_size.RightSizing) -> pages.Page:
    """Report of `ppw.right_size`."""
    caption = (
        "Share of each capacity that was enough for most of the time; red: buy more. Lines: the "
        "medium threshold, and the highest share to plan with."
    )
    return _page(result, "Right-sizing", f"{result.source} · {result.seconds:.6g} s", caption)


def co_location_page(result: co_locate.CoLocation) -> pages.Page:
    """Report of `ppw.co_locate`."""
    caption = (
        "Sum of the demands as a share of each capacity"
        + (", highest of each stretch of time" if len(result.timeline) else "")
        + "; red: breaks. Dotted: the capacity."
    )
    workloads = " + ".join(dict.fromkeys(result.parts["workload"]))
    return _page(result, "Sharing a host", workloads, caption)


def pairing_page(result: co_locate.Pairing) -> pages.Page:
    """Report of `ppw.pair_workloads`."""
    caption = "Use of the resource that breaks first, in percent of the share that may be used."
    count = f"{len(result.workloads)} workloads"
    return _page(result, "Which workloads can share a host", count, caption)


def sweep_page(result: find_knees.SweepKnees) -> pages.Page:
    """Report of `ppw.find_knees`."""
    caption = (
        "Points: mean of the runs of a level. Lines: fitted. Band: interval of the knee. "
        "Ring: where to run. Cross: failed."
    )
    return _page(result, f"{result.of} over {result.over}", "knees and operating points", caption)


PAGES = {
    "pressure_matrix": pressure_page,
    "right_sizing": right_sizing_page,
    "co_location": co_location_page,
    "pairing": pairing_page,
    "sweep_knees": sweep_page,
}
