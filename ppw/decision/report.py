"""Pages of the results of this room."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from ppw.decision import best, changes, characterise, compare, plan
from ppw.decision.characterise import plot_lines
from ppw.results.page import Figure, Page, draw
from ppw.results.text import shown, shown_name

_DRAWN_ROWS = 30


def best_page(result: best.BestFrequency) -> Page:
    """Report of `ppw.best`."""
    caption = (
        "Share of the posterior draws in which each frequency is the best (at most ten groups)."
    )
    verdict = [result.verdict(), _efficient_range(result)]
    return Page.with_plot(result, "Best frequency", caption, verdict=verdict)


def _efficient_range(result: best.BestFrequency) -> str:
    """Say up to which frequency perf/W probably rises with every step, over the groups."""
    reached = result.table["rises_to_hz"].dropna()
    if reached.empty:
        return "No power was measured, so perf/W is not known."
    ends = " to ".join(dict.fromkeys(shown(f, "Hz") for f in (reached.min(), reached.max())))
    groups = "" if len(reached) == 1 else f", by group, in {len(reached)} groups"
    return f"Performance per watt probably rises with every step up to {ends}{groups}."


def comparison_page(result: compare.Comparison) -> Page:
    """Report of `ppw.compare`."""
    title = f"{_name_of(result.a)} against {_name_of(result.b)}"
    caption = "Ratio A:B of each group and metric, with its interval."
    verdict = [*result.verdict(), *(f"Undecided: {text}." for text in result.undecided())]
    return Page.with_plot(result, title, caption, height=_height_of(result), verdict=verdict)


def _height_of(result: compare.Comparison | changes.ChangeCheck) -> float:
    """Height of a plot with a row for each of the result, the first thirty."""
    return 1.0 + 0.25 * min(len(result.table), _DRAWN_ROWS)


def _name_of(side: Mapping[str, Any]) -> str:
    """Name a side by its values: ``{"host": ["atom", "xeon"]}`` is "atom, xeon"."""
    values = (value if isinstance(value, list) else [value] for value in side.values())
    return ", ".join(shown_name(value) for value in chain.from_iterable(values))


def plan_page(result: plan.Plan) -> Page:
    """Report of `ppw.plan`."""
    caption = (
        "Expected half width after the next measurement, by its frequency and number of runs; "
        "the dashed line is the goal, the dotted line the present half width."
    )
    return Page.with_plot(result, "What to measure next", caption, subtitle=result.question())


def characterisation_page(result: characterise.Characterisation) -> Page:
    """Report of `ppw.characterise`."""
    figures = []
    if lines := plot_lines(result):
        caption = (
            f"Ratios to {result.reference}: points to the right of 1 are better than that host."
        )
        figures.append(Figure(draw(result.plot, height=1.4 + 0.3 * len(lines)), caption))
    hosts = " · ".join(result.hosts)
    return Page.of(result, title="Hosts side by side", subtitle=hosts, figures=figures)


def changes_page(result: changes.ChangeCheck) -> Page:
    """Report of `ppw.check_changes`."""
    caption = "Change of each row with its interval; the bar is its limit."
    return Page.with_plot(result, "Changes and limits", caption, height=_height_of(result))


PAGES = {
    "change_check": changes_page,
    "best_frequency": best_page,
    "comparison": comparison_page,
    "plan": plan_page,
    "characterisation": characterisation_page,
}
