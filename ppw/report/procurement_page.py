"""The page of `ppw.procure`: what to buy, what it costs, and what would change that."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from ppw.names import plot_label
from ppw.plots import BAND, BEST, CURVE, MEASURED, PROJECTED, new_axes
from ppw.procurement.sections import Section, input_section
from ppw.procurement.words import FIGURE_WORDS
from ppw.report.page import Figure, Page, Table, draw
from ppw.report.procurement_sliders import procurement_sliders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

    from ppw.procurement.result import Procurement

# Pixels of a page of paper, and on it of a character in a table and of the gap between columns.
_PAPER, _CHARACTER, _GAP = 718, 6.5, 10
# Names of rows are broken into lines from so many characters on; those of columns never are.
_BROKEN = 22
_MOST_ROWS = 25
_DRAWN_MOVES = 8
_LABEL = 24
# Of the digest, as much as tells inputs apart: all of it is too wide for a telephone.
_DIGEST = len("sha256:") + 12
# Dark for what is bought, light for what is paid by the year.
_COLOURS = {
    "servers": "#1f4e79",
    "racks": "#2563a8",
    "network": "#5b8fc7",
    "licences": "#8a6fb0",
    "support": "#b9a6d3",
    "energy": "#e0a030",
    "carbon": "#6b8e4e",
    "residual_value": "#c9ced4",
}


def procurement_page(result: Procurement) -> Page:
    """Report of `ppw.procure`."""
    count = len(result.candidates)
    figures = [
        Figure(
            draw(lambda ax: plot_costs(result, ax), height=1.6 + 0.45 * count),
            f"Present value of {result.years} years by part; the line is the "
            f"{result.level:.0%} interval of the total.",
        )
    ]
    if count > 1:
        height = 3.0 + 0.2 * count
        figures.append(
            Figure(draw(lambda ax: plot_front(result, ax), height=height), _front_caption(result))
        )
    moves = min(len(result.sensitivities), _DRAWN_MOVES)
    figures.append(
        Figure(
            draw(lambda ax: plot_moves(result, ax), height=1.2 + 0.42 * moves),
            "How far each figure moves the answer, the others at their values; the range of each "
            "is in the table.",
        )
    )
    return Page(
        title=result.title,
        subtitle=f"{result.scope()} · input {result.input_digest[:_DIGEST]}",
        verdict=result.verdict(),
        figures=figures,
        tables=[*_tables(result)],
        caveats=result.caveats,
        document=result.to_json(),
        sliders=procurement_sliders(result),
    )


def plot_costs(result: Procurement, ax: Axes | None = None) -> Axes:
    """Draw what each candidate costs, part by part, with the interval of the total."""
    axes, table = new_axes(ax), result.costs
    place = np.arange(len(table))
    ahead, behind = np.zeros(len(table)), np.zeros(len(table))
    size, unit = _scale(table["tco"].to_numpy())
    for part, colour in _COLOURS.items():
        money = table[part].to_numpy() / size
        if not money.any():
            continue
        start = np.where(money < 0, behind, ahead)
        label = part.replace("_", " ")
        axes.barh(place, money, left=start, color=colour, height=0.6, label=label)
        ahead, behind = ahead + np.maximum(money, 0), behind + np.minimum(money, 0)
    ends = result.figures[result.figures["figure"] == "tco"]
    axes.hlines(place, ends["lower"] / size, ends["upper"] / size, color=MEASURED, lw=1.5)
    axes.plot(table["tco"] / size, place, "|", color=MEASURED, ms=9)
    axes.set_yticks(place, [_wrapped(name) for name in table["candidate"]])
    axes.invert_yaxis()
    axes.set_ylabel("candidate")
    axes.set_xlabel(plot_label(f"total cost ({unit}{result.currency})"))
    axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return axes


def plot_front(result: Procurement, ax: Axes | None = None) -> Axes:
    """Draw cost against carbon, or energy where carbon is not known; the front is joined."""
    axes, second = new_axes(ax), second_figure(result)
    names = result.candidates["candidate"]
    cost, other = (
        result.figures[result.figures["figure"] == figure].set_index("candidate").loc[names]
        for figure in ("tco", second)
    )
    size, unit = _scale(cost["value"].to_numpy())
    other_size, other_unit = _scale(other["value"].to_numpy())
    x, y = cost["value"] / size, other["value"] / other_size
    axes.hlines(y, cost["lower"] / size, cost["upper"] / size, color=BAND, lw=3)
    axes.vlines(x, other["lower"] / other_size, other["upper"] / other_size, color=BAND, lw=3)
    beaten = [((x <= x[n]) & (y <= y[n]) & ((x < x[n]) | (y < y[n]))).any() for n in names]
    front = x[~np.array(beaten)].sort_values(kind="stable").index
    axes.plot(x[front], y[front], color=BEST, lw=1, zorder=1)
    for name in names:
        axes.plot(x[name], y[name], "o", label=_wrapped(name))
    axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    axes.set_xlabel(plot_label(f"total cost ({unit}{result.currency})"))
    axes.set_ylabel(f"{FIGURE_WORDS[second]} ({other_unit}{other['unit'].iloc[0]})")
    return axes


def plot_moves(result: Procurement, ax: Axes | None = None) -> Axes:
    """Draw how far the figures that move the answer most do so, the first eight."""
    axes, rows = new_axes(ax), result.sensitivities.head(_DRAWN_MOVES)
    place = np.arange(len(rows))
    low, high = rows["apart_at_low"].to_numpy(), rows["apart_at_high"].to_numpy()
    size, unit = _scale(np.concatenate([low, high]))
    colours = [PROJECTED if changes else CURVE for changes in rows["changes"]]
    axes.barh(place, (high - low) / size, left=low / size, color=colours, height=0.55)
    if result.runner_up is not None:
        axes.axvline(0.0, color=MEASURED, lw=0.8)
        costs = result.costs.set_index("candidate")["tco"]
        now = (costs[result.runner_up] - costs[result.cheapest]) / size
        axes.axvline(now, color=MEASURED, lw=0.8, ls=":")
    what = f"{result.runner_up} dearer by" if result.runner_up else "total cost"
    axes.set_yticks(place, [_wrapped(text) for text in rows["what"]])
    axes.invert_yaxis()
    axes.set_ylabel("figure moved")
    axes.set_xlabel(
        "\n".join(
            textwrap.wrap(plot_label(f"{what} ({unit}{result.currency})", most=4 * _LABEL), 44)
        )
    )
    return axes


def second_figure(result: Procurement) -> str:
    """What the cost is drawn against: carbon where all of it is known, else energy."""
    known = result.carbon["total_kg"].notna().all()
    return "carbon" if known else "energy"


def _front_caption(result: Procurement) -> str:
    return (
        f"Total cost against {FIGURE_WORDS[second_figure(result)]}, with intervals; to the joined "
        "ones there is no better in both."
    )


def _tables(result: Procurement) -> Iterator[Table]:
    for section in [*result.sections(_MOST_ROWS), input_section(result)]:
        # What has a column a candidate has no other names.
        yield from _side_by_side(section) if section.keys == 1 else [Table(*section)]


def _side_by_side(section: Section) -> Iterator[Table]:
    """Cut a table with a column a candidate into equal parts, none of them wider than paper."""
    widths = [max(map(len, column)) for column in zip(section.header, *section.rows, strict=True)]
    names, *others = (_CHARACTER * width + _GAP for width in (min(widths[0], _BROKEN), *widths[1:]))
    most = max(1, int((_PAPER - names) // max(others)))
    parts = np.array_split(np.arange(1, len(widths)), -(-len(others) // most))
    groups = [part.tolist() for part in parts]
    for number, group in enumerate(groups, start=1):
        columns = [0, *group]
        rows = [[row[i] for i in columns] for row in section.rows]
        more = f" ({number})" if len(groups) > 1 else ""
        yield Table(f"{section.title}{more}", [section.header[i] for i in columns], rows, 1)


def _scale(values: np.ndarray) -> tuple[float, str]:
    """What to divide by so that axes have few digits, and its word."""
    most = float(np.nanmax(np.abs(values), initial=0.0))
    return (1e6, "million ") if most >= 2e6 else (1e3, "thousand ") if most >= 2e3 else (1.0, "")


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(plot_label(text, most=4 * _LABEL), _LABEL))
