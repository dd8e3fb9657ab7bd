"""The page of `ppw.project_data_size`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw.estimate import shown
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from ppw.data_size import DataSizeProjection


def data_size_page(result: DataSizeProjection) -> Page:
    """Report of `ppw.project_data_size`."""
    header, rows = result.cells()
    caption = "Fitted to the smaller sizes; the bar is the interval, the point what was measured."
    return Page(
        title=f"Projected to {shown(result.table['data_bytes'].iloc[0], 'B')} of data",
        subtitle=f"input {result.input_digest[:19]}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[Table("Projected times", header, rows, len(result.telling_keys()))],
        caveats=result.caveats,
        document=result.to_json(),
    )
