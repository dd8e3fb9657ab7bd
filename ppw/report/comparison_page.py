"""The page of `ppw.compare`: who is better, by how much, where they tie, what to measure next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw.comparison_words import COSTS_ALIKE
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from ppw.comparison import Comparison

_MOST_ROWS = 500
_DRAWN_ROWS = 30


def comparison_page(result: Comparison) -> Page:
    """Report of `ppw.compare`."""
    keys = len(result.by)
    drawn = min(len(result.table), _DRAWN_ROWS)
    figure = draw(result.plot, width=6.0, height=1.0 + 0.25 * drawn)
    return Page(
        title="A against B",
        subtitle=f"input {result.input_digest}",
        verdict=[*result.verdict(), *(f"Undecided: {text}." for text in result.undecided())],
        figures=[Figure(figure, "Ratio A:B of each group and metric, with its interval.")],
        tables=[
            Table(
                "Ratios",
                result.header(),
                result.cells(_MOST_ROWS),
                keys + 1,
                _cut(len(result.table)),
            ),
            Table(
                COSTS_ALIKE.rstrip(":"),
                result.tie_header(),
                result.tie_cells(_MOST_ROWS),
                keys + 2,
                _cut(len(result.break_even)),
            ),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


def _cut(count: int) -> str:
    more = count - _MOST_ROWS
    return f"{more} more rows are in the JSON of this page." if more > 0 else ""
