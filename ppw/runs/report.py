"""Page of `ppw.check`."""

from ppw.results.page import Figure, Page, draw
from ppw.runs.checks import CHECKS
from ppw.runs.quality import Quality


def quality_page(result: Quality) -> Page:
    """Report of `ppw.check`."""
    remedies = [
        f"{name.replace('_', ' ')}, {count} row{'s' if count > 1 else ''}: "
        f"{CHECKS[name].meaning}. What to do: {CHECKS[name].remedy}."
        for name, count in result.counts.items()
        if count
    ]
    figure = [Figure(draw(result.plot), "Rows that each check names.")] if len(result.table) else []
    return Page.of(
        result,
        title="Rows that cannot be right",
        verdict=[result.verdict(), *remedies],
        figures=figure,
    )


PAGES = {"quality": quality_page}
