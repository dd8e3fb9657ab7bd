"""The page of `ppw.project_data_size` and `ppw.project_core_count`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from ppw.time_projection import TimeProjection


def time_projection_page(result: TimeProjection) -> Page:
    """Report of a projection to another data size or core count."""
    header, rows = result.cells()
    caption = "Fitted without runs at the target; the bar is the interval, the point their mean."
    return Page(
        title=result.title(),
        subtitle=f"input {result.input_digest[:19]}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[Table("Projected times", header, rows, len(result.telling_keys()))],
        caveats=result.caveats,
        document=result.to_json(),
    )
