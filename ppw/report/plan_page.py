"""The report page of a plan, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw.estimate import shown
from ppw.names import plot_label
from ppw.plots import new_axes
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ppw.planning import Plan

_MOST_ROWS = 500
_MOST_SENTENCES = 10


def plan_page(result: Plan) -> Page:
    """Report of `ppw.plan`."""
    caption = (
        "What is expected to be left of the half width after the next measurement, by its "
        "frequency and number of runs; the dashed line is the goal, the dotted one the present."
    )
    return Page(
        title="What to measure next",
        subtitle=f"{result.question()} · input {result.input_digest}",
        verdict=_verdict(result),
        figures=[Figure(draw(result.plot), caption)],
        tables=[_groups_table(result), _candidates_table(result)],
        caveats=result.caveats,
        document=result.to_json(),
    )


def _verdict(result: Plan) -> list[str]:
    if len(result.groups) == 1:
        return [_sentence(str(result.groups["advice"].iloc[0]))]
    counts = result.groups["status"].value_counts()
    words = {
        "there": "already there",
        "reach": "within reach",
        "budget": "short of the goal when the budget ends",
        "far": "many runs away",
        "cannot": "out of reach of these steps",
    }
    said = [f"{counts[status]} {text}" for status, text in words.items() if status in counts]
    rows = result.groups.head(_MOST_SENTENCES).to_dict(orient="records")
    advice = [f"{result.name(row)}: {row['advice']}" for row in rows]
    return [f"Of {len(result.groups)} groups, {', '.join(said)}.", *advice]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _groups_table(result: Plan) -> Table:
    rows = result.groups.head(_MOST_ROWS).to_dict(orient="records")
    cells = [result.cells(row) for row in rows]
    return Table("Next measurement", result.header(), cells, len(result.by), _cut(result.groups))


def _candidates_table(result: Plan) -> Table:
    rows = result.table.head(_MOST_ROWS).to_dict(orient="records")
    cells = [result.candidate_cells(row) for row in rows]
    note = " ".join(part for part in ("* is recommended.", _cut(result.table)) if part)
    return Table("Candidates", result.candidate_header(), cells, len(result.by) + 1, note)


def _cut(table: pd.DataFrame) -> str:
    more = len(table) - _MOST_ROWS
    return f"{more} more rows are in the JSON of this page." if more > 0 else ""


def plot_plan(result: Plan, ax: Axes | None = None) -> Axes:
    """Draw the half width to expect against frequency: of the group furthest from the goal."""
    ax = new_axes(ax)
    group = result.groups.nlargest(1, "half_width_pct")
    rows = group[list(result.by)].merge(result.table) if result.by else result.table
    for runs, part in rows.groupby("runs"):
        line = part.sort_values("freq_hz")
        label = f"{runs} run" + "s" * (int(str(runs)) > 1)
        ax.plot(line["freq_hz"] / 1e9, line["half_width_pct"], marker="o", label=label)
    ax.axhline(float(group["half_width_pct"].iloc[0]), linestyle=":", color="grey")
    ax.axhline(result.within_pct, linestyle="--", color="grey")
    ax.set_xlabel("frequency of the next measurement (GHz)")
    ax.set_ylabel("half width to expect (%)")
    ax.set_ylim(bottom=0)
    name = result.name(group.to_dict(orient="records")[0])
    ax.set_title(
        f"{result.metric} at {shown(result.freq_hz, 'Hz')}" + f": {plot_label(name)}" * bool(name)
    )
    ax.legend()
    return ax
