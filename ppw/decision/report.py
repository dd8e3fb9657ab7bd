"""The page of `ppw.best_frequency`: the best steps, how sure they are, and every step behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw.decision.characterise import _DRAWN, _MOST_DRAWN, _lines
from ppw.decision.compare import COSTS_ALIKE
from ppw.results.page import Figure, Page, Table, draw
from ppw.results.text import shown

if TYPE_CHECKING:
    import pandas as pd

    from ppw.decision.best import BestFrequency
    from ppw.decision.characterise import Characterisation
    from ppw.decision.compare import Comparison
    from ppw.decision.plan import Plan


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
            Table("Groups", result.header(), groups, keys, _cut_steps(len(result.table))),
            Table(
                "Steps",
                result.step_header(),
                result.step_cells(_MOST_ROWS),
                keys,
                _cut_steps(len(result.steps)),
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


def _cut_steps(count: int) -> str:
    more = count - _MOST_ROWS
    return f"{more} more rows are in the JSON of this page." if more > 0 else ""


# The page of `ppw.compare`: who is better, by how much, where they tie, what to measure next.


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
                _cut_steps(len(result.table)),
            ),
            Table(
                COSTS_ALIKE.rstrip(":"),
                result.tie_header(),
                result.tie_cells(_MOST_ROWS),
                keys + 2,
                _cut_steps(len(result.break_even)),
            ),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


# The report page of a plan, and its plot.


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
    return Table(
        "Next measurement", result.header(), cells, len(result.by), _cut_advice(result.groups)
    )


def _candidates_table(result: Plan) -> Table:
    rows = result.table.head(_MOST_ROWS).to_dict(orient="records")
    cells = [result.candidate_cells(row) for row in rows]
    note = " ".join(part for part in ("* is recommended.", _cut_advice(result.table)) if part)
    return Table("Candidates", result.candidate_header(), cells, len(result.by) + 1, note)


def _cut_advice(table: pd.DataFrame) -> str:
    more = len(table) - _MOST_ROWS
    return f"{more} more rows are in the JSON of this page." if more > 0 else ""


# The page of `ppw.characterise`: hosts side by side, table by table, and their ratios drawn.


def characterisation_page(result: Characterisation) -> Page:
    """Report of `ppw.characterise`."""
    figures = []
    if result.table["measure"].isin(_DRAWN).any():
        lines = min(len(_lines(result)), _MOST_DRAWN)
        caption = f"Ratios to {result.reference}: to the right of 1 is better than it."
        figures.append(Figure(draw(result.plot, height=1.4 + 0.3 * lines), caption))
    keys = len(result.by) + 2
    return Page(
        title="Hosts side by side",
        subtitle=f"{' · '.join(result.hosts)} · input {result.input_digest[:19]}",
        verdict=result.verdict(),
        figures=figures,
        tables=[Table(s.title, s.header, s.rows, keys) for s in result.sections()],
        caveats=result.caveats,
        document=result.to_json(),
    )
