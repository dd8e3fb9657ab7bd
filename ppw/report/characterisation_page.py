"""The page of `ppw.characterise`: hosts side by side, table by table, and their ratios drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.estimate import key_texts
from ppw.names import plot_label, shown_name
from ppw.plots import BEST, CURVE, MEASURED, PROJECTED, new_axes
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from ppw.characterisation import Characterisation

_DRAWN = ("speed-up", "perf/W ratio", "perf/$ ratio")
_MOST_DRAWN = 30


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


def plot_ratios(result: Characterisation, ax: Axes | None = None) -> Axes:
    """Draw speed-up, perf/W and perf/$ to the reference by host and workload, the first thirty."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axes, lines = new_axes(ax), _lines(result)[:_MOST_DRAWN]
    place = {line: i for i, line in enumerate(lines)}
    drawn = []
    for measure, colour, mark in zip(_DRAWN, (CURVE, BEST, PROJECTED), "osD", strict=True):
        rows = result.table[result.table["measure"] == measure].to_dict(orient="records")
        points = [(row["value"], place.get(_label(result, row), -1)) for row in rows]
        points = [point for point in points if point[1] >= 0]
        if points:
            drawn += [value for value, _ in points]
            axes.plot(*zip(*points, strict=True), mark, color=colour, ms=5, label=measure)
    axes.axvline(1.0, color=MEASURED, lw=0.8)
    axes.set_yticks(range(len(lines)), [plot_label(line) for line in lines])
    axes.invert_yaxis()
    axes.set_xscale("log")
    ends = np.array([*drawn, 1.0])
    narrow = ends.max() < 10 * ends.min()
    axes.xaxis.set_major_locator(MaxNLocator(6) if narrow else LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"ratio to {plot_label(result.reference)}")
    axes.set_ylabel("host and workload")
    if drawn:
        axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return axes


def _lines(result: Characterisation) -> list[str]:
    rows = result.table[result.table["measure"].isin(_DRAWN)].to_dict(orient="records")
    return list(dict.fromkeys(_label(result, row) for row in rows))


def _label(result: Characterisation, row: Mapping[Any, Any]) -> str:
    return ", ".join([shown_name(row["host"]), *key_texts(result.by, row)])
