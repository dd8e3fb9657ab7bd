"""The page of `ppw.best_frequency`: the best steps, how sure they are, and every step behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw.estimate import shown
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from ppw.best import BestFrequency

_MOST_ROWS = 500


def best_page(result: BestFrequency) -> Page:
    """Report of `ppw.best_frequency`."""
    groups = [result.cells(row) for row in result.table.head(_MOST_ROWS).to_dict(orient="records")]
    keys = len(result.by)
    return Page(
        title="Best frequency",
        subtitle=f"input {result.input_digest}",
        verdict=[result.verdict(), _advice(result)],
        figures=[
            Figure(
                draw(result.plot),
                "How often each step is the best of its draw of the curves (at most ten groups).",
            )
        ],
        tables=[
            Table("Groups", result.header(), groups, keys, _cut(len(result.table))),
            Table(
                "Steps",
                result.step_header(),
                result.step_cells(_MOST_ROWS),
                keys,
                _cut(len(result.steps)),
            ),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


def _advice(result: BestFrequency) -> str:
    """Say up to where perf/W rises with the clock: the range that is worth running in."""
    reached = result.table["rises_to_hz"].dropna()
    if reached.empty:
        return "There are no watts, so perf/W is not known."
    ends = " to ".join(dict.fromkeys(shown(f, "Hz") for f in (reached.min(), reached.max())))
    groups = "" if len(reached) == 1 else f", by group, in {len(reached)} groups"
    return f"Performance per watt probably rises with every step up to {ends}{groups}."


def _cut(count: int) -> str:
    more = count - _MOST_ROWS
    return f"{more} more rows are in the JSON of this page." if more > 0 else ""
