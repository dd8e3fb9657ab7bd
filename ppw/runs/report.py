"""Page of `ppw.check_quality`."""

from __future__ import annotations

from ppw.results.page import Figure, Page, draw
from ppw.runs.checks import CHECKS
from ppw.runs.quality import Quality


def quality_page(result: Quality) -> Page:
    """Report of `ppw.check_quality`."""
    figure = [Figure(draw(result.plot), "Rows that each check names.")] if len(result.table) else []
    return Page.of(
        result,
        title="Rows that cannot be right",
        verdict=[result.verdict(), *_remedy_sentences(result)],
        figures=figure,
    )


def _remedy_sentences(result: Quality) -> list[str]:
    return [
        f"{name.replace('_', ' ')}, {count} row{'s' if count > 1 else ''}: "
        f"{CHECKS[name].meaning}. What to do: {CHECKS[name].remedy}."
        for name, count in result.counts.items()
        if count
    ]


PAGES = {"quality": quality_page}
