"""The page of `ppw.procure`: what to buy, what it costs, and what would change that."""

import base64
import json
import math
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ppw.procurement.cost_model import FIGURES, YEARS, Model
from ppw.procurement.inputs import FloatArray, Input
from ppw.procurement.procure import ends_of, years_figure
from ppw.procurement.result import COLOURS, Procurement, axis_scale, decided_ties
from ppw.procurement.scenario import SCALE, Server
from ppw.results.axes import BAND, BEST, CURVE, MEASURED, PROJECTED, Axes, label_lines, new_axes
from ppw.results.page import Figure, KeyFigure, Page, Sliders, draw, nearest, stops
from ppw.results.result import PrintedTable
from ppw.results.text import plot_label, printable, shown_name

# Sliders of a procurement report: every figure that its script needs to cost the candidates anew.
#
# The script is the model of `ppw.procurement.cost_model` again, draw by draw. A figure that is
# moved is taken as known, as `CaseValues.with_values` does; all others keep their draws.
MOST_PRICES = 6
MOST_YEARS = 10
# Drawn numbers that a page carries, of all figures together: about a megabyte.
_MOST_NUMBERS = 100_000
_FEWEST_DRAWS = 200


# How far a figure is moved: shares of its value, and ends that it stays inside.
_WAYS = {
    "site.electricity": (0.0, 3.0, 0.0, np.inf),
    "site.pue": (0.0, 2.0, 1.0, np.inf),
    "demand.max_utilisation": (0.0, np.inf, 0.05, 1.0),
    SCALE.key: (0.25, 4.0, 0.0, np.inf),
}
_PRICE = (0.2, 3.0, 0.0, np.inf)
# How far a slider goes beyond a value at which the answer turns.
_BEFORE, _BEYOND = 0.9, 1.1


def procurement_sliders(result: Procurement) -> Sliders | None:
    """Make the sliders of a page; None for an answer read from JSON, which has no model.

    The script buys all servers at the start, so there are none either for rented or owned servers.
    """
    if result.basis is None:
        return None
    model, inputs = result.basis
    if any(s.rented or s.owned or s.yearly for s in model.servers):
        return None
    uncertain = sum(figure.uncertain for figure in inputs.values())
    kept = min(result.draws, max(_FEWEST_DRAWS, _MOST_NUMBERS // max(uncertain, 1)))
    workloads = model.scenario.workloads
    of_scenario = ("separate_pools", "spare_servers", "rack_units", "max_racks")
    data = {
        "level": result.level,
        "currency": result.currency,
        "years": result.years,
        "draws": kept,
        "workloads": [{"name": w.name, "profile": w.profile.tolist()} for w in workloads],
        **{name: getattr(model.scenario, name) for name in of_scenario},
        "servers": [_server_json(server, model) for server in model.servers],
        # Key, value and draws of every figure: draws as base64 of little-endian doubles.
        "figures": [
            [f.key, f.value, _encode_draws(f.draw(result.draws, result.seed)[:kept], f.uncertain)]
            for f in inputs.values()
        ],
        "sliders": [*_slider_entries(result)],
        # The script has no one-off costs: those are of rented and owned servers.
        "colours": {k.replace("_", " "): c for k, c in COLOURS.items() if k != "one_off"},
        "second": second_figure(result),
        "charts": _chart_captions(result),
    }
    return Sliders(
        title="Other prices and sites",
        note=_slider_note(result, kept),
        header=[
            *("candidate", "servers", "racks", "energy (kWh)", f"total cost ({result.currency})"),
            *(f"{result.level:.0%} interval", "P(least cost)"),
        ],
        script="procurement.js",
        data=json.dumps(data, separators=(",", ":"), allow_nan=False),
    )


def _encode_draws(draws: FloatArray, uncertain: bool) -> str | None:
    """Draws as base64 of little-endian doubles; None for a figure that is not uncertain."""
    return base64.b64encode(draws.astype("<f8").tobytes()).decode() if uncertain else None


def _slider_note(result: Procurement, kept: int) -> str:
    said = (
        "A figure that is moved is taken as known; the others keep their draws. Headline, charts "
        "and table here follow; the tables below stay as the scenario has it. Until a figure is "
        "moved, the headline is the expectation over all ranges, and the sentence here holds at "
        "the values alone: close candidates may change places between the two."
    )
    if kept < result.draws:
        said += f" Intervals are here of the first {kept} draws of {result.draws}."
    prices = len(result.candidates)
    if prices > MOST_PRICES:
        said += f" The prices of {MOST_PRICES} of {prices} candidates have sliders."
    return said


def _server_json(server: Server, model: Model) -> dict[str, Any]:
    within = server.share_within_limit
    return {
        "key": server.name,
        "name": shown_name(server.name),
        "height": server.height,
        "ports": server.ports,
        "cores": server.cores or 0,
        "curve": _cubic_pieces(server),
        "share_within_limit": [within.get(w.name, 1.0) for w in model.scenario.workloads],
    }


def _cubic_pieces(server: Server) -> list[list[float]]:
    """Power-load shape in cubic pieces: start and four coefficients each."""
    from scipy.interpolate import PchipInterpolator

    curve = server.curve
    if curve is None:
        return [[0.0, 0.0, 0.0, 1.0, 0.0]]
    idle, full = curve.watts(np.array([0.0, 1.0]))
    # The curve's own interpolation, of its shape in place of its watts.
    pieces = PchipInterpolator(curve.load, (curve.power - idle) / (full - idle))
    starts = zip(pieces.x[:-1], pieces.c.T, strict=True)
    return [[float(start), *map(float, powers)] for start, powers in starts]


def _slider_entries(result: Procurement) -> Iterator[dict[str, Any]]:
    """Yield the slider of each figure that can be moved, then that of the years.

    A slider reaches beyond the values at which the answer turns, as the page says; every figure
    that has such a value has a slider.
    """
    assert result.basis is not None
    model, inputs = result.basis
    rows = decided_ties(result)
    ties = {str(key): part["value"].tolist() for key, part in rows.groupby("key", sort=False)}
    # Those prices first at which the answer turns.
    priced = sorted((s.key("price") for s in model.servers), key=lambda key: key not in ties)
    others = (key for key in ties if key in inputs and not key.endswith(".price"))
    ways = dict.fromkeys([*_WAYS, *priced[:MOST_PRICES], *others], _PRICE) | _WAYS
    for key, (lowest, highest, least, most) in ways.items():
        figure, turns = inputs[key], ties.get(key, [])
        low = min(figure.value * lowest, *(_BEFORE * at for at in turns), np.inf)
        high = figure.value * highest if figure.value else 1.0
        high = max(high, *(_BEYOND * at for at in turns), -np.inf)
        # A slider holds the value of its figure whatever it is.
        low = min(max(low, least, figure.least), figure.value)
        high = max(min(high, most, figure.most), figure.value)
        given = ends_of(figure, result.level)[:2] if figure.uncertain else None
        yield _slider_json(figure, stops(low, high, [figure.value]), given)
    years = model.scenario.years
    longest = max([MOST_YEARS, years, *map(math.ceil, ties.get(YEARS, []))])
    at = [float(year) for year in range(1, longest + 1)]
    yield _slider_json(years_figure(years), at, None)


def _slider_json(figure: Input, at: list[float], given: Any) -> dict[str, Any]:
    label = figure.words if figure.unit == "1" else f"{figure.words} ({figure.unit})"
    start = nearest(at, figure.value)
    place = {"key": figure.key, "label": printable(label)}
    return {**place, "stops": at, "start": start, "range": given}


# Pixels of a page of paper, and on it of a character in a table and of the gap between columns.
_PAPER, _CHARACTER, _GAP = 718, 6.5, 10
# Names of rows are broken into lines from so many characters on; those of columns never are.
_BROKEN = 22
_MOST_ROWS = 25
_DRAWN_MOVES = 8


def procurement_page(result: Procurement) -> Page:
    """Make the page of `ppw.procure`."""
    moves = min(len(result.sensitivities), _DRAWN_MOVES)
    moved = (
        "Effect of each figure on the answer, while the others keep their values; the table has "
        "the ranges."
    )
    sliders, captions = procurement_sliders(result), _chart_captions(result)
    heights = 1.6 + 0.45 * len(result.candidates), 3.0 + 0.2 * len(result.candidates)
    plots: list[Callable[[Axes], object]] = [result.plot, partial(plot_front, result)]
    figures = [
        Figure(draw(plot, height=height), caption)
        for plot, height, caption in zip(plots, heights, captions.values(), strict=False)
        # With sliders the page draws these anew wherever they go.
        if sliders is None
    ]
    drawn = draw(partial(plot_moves, result), height=1.2 + 0.56 * moves)
    return Page.of(
        result,
        title=result.title,
        subtitle=result.scope(),
        figures=[*figures, Figure(drawn, moved)],
        tables=[*_page_tables(result)],
        key_figures=_key_figures(result),
        sliders=sliders,
    )


def _chart_captions(result: Procurement) -> dict[str, str]:
    """Captions of the charts of cost and, with several candidates, of cost against another."""
    costs = f"Present value by part; the line is the {result.level:.0%} interval of the total."
    front = f"Total cost and {FIGURES[second_figure(result)].words} of each candidate."
    return {"costs": costs} | ({"front": front} if len(result.candidates) > 1 else {})


def _key_figures(result: Procurement) -> list[KeyFigure]:
    """Total cost, servers and energy of the cheapest candidate."""
    name = printable(result.cheapest)
    cost, energy = (result.figure(result.cheapest, figure) for figure in ("tco", "energy"))
    servers = result.candidates.set_index("candidate")["servers"][result.cheapest]
    label = f"total cost ({result.currency}) of {name}"
    # Where figures have ranges, the cost is that of the sentence: the mean over its draws.
    paid = result.expected.get("cost", cost["value"])
    return [
        KeyFigure.of(label, paid, cost["lower"], cost["upper"], "1"),
        KeyFigure("servers", f"{servers:,.0f}"),
        KeyFigure("energy (kWh)", f"{energy['value']:,.0f}"),
    ]


def plot_front(result: Procurement, ax: Axes | None = None) -> Axes:
    """Draw cost against carbon, or energy where carbon is not known; the front is joined."""
    axes, second = new_axes(ax), second_figure(result)
    names = result.candidates["candidate"]
    cost, other = (
        result.figures[result.figures["figure"] == figure].set_index("candidate").loc[names]
        for figure in ("tco", second)
    )
    size, unit = axis_scale(cost["value"].to_numpy())
    other_size, other_unit = axis_scale(other["value"].to_numpy())
    x, y = cost["value"] / size, other["value"] / other_size
    axes.hlines(y, cost["lower"] / size, cost["upper"] / size, color=BAND, lw=3)
    axes.vlines(x, other["lower"] / other_size, other["upper"] / other_size, color=BAND, lw=3)
    beaten = [((x <= x[n]) & (y <= y[n]) & ((x < x[n]) | (y < y[n]))).any() for n in names]
    front = x[~np.array(beaten)].sort_values(kind="stable").index
    axes.plot(x[front], y[front], color=BEST, lw=1, zorder=1)
    for name in names:
        axes.plot(x[name], y[name], "o", label=label_lines(name))
    axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    axes.set_xlabel(plot_label(f"total cost ({unit}{result.currency})"))
    axes.set_ylabel(f"{FIGURES[second].words} ({other_unit}{other['unit'].iloc[0]})")
    return axes


def plot_moves(result: Procurement, ax: Axes | None = None) -> Axes:
    """Draw how far the figures that move the answer most do so, the first eight."""
    axes, rows = new_axes(ax), result.sensitivities.head(_DRAWN_MOVES)
    place = np.arange(len(rows))
    low, high = rows["apart_at_low"].to_numpy(), rows["apart_at_high"].to_numpy()
    size, unit = axis_scale(np.concatenate([low, high]))
    colours = [PROJECTED if changes else CURVE for changes in rows["changes"]]
    axes.barh(place, (high - low) / size, left=low / size, color=colours, height=0.55)
    if result.runner_up is not None:
        axes.axvline(0.0, color=MEASURED, lw=0.8)
        now = result.expected.get("saving", np.nan) / size
        axes.axvline(now, color=MEASURED, lw=0.8, ls=":")
    what = f"{result.runner_up} dearer by" if result.runner_up else "total cost"
    axes.set_yticks(place, [label_lines(text) for text in rows["what"]])
    axes.invert_yaxis()
    axes.set_ylabel("figure moved")
    label = plot_label(f"{what} ({unit}{result.currency})", most=96)
    axes.set_xlabel("\n".join(textwrap.wrap(label, 44)))
    return axes


def second_figure(result: Procurement) -> str:
    """Choose what the cost is drawn against: carbon where all of it is known, else energy."""
    known = result.carbon["total_kg"].notna().all()
    return "carbon" if known else "energy"


def _page_tables(result: Procurement) -> Iterator[PrintedTable]:
    for table in result.printed_tables(_MOST_ROWS):
        # What has a column a candidate has no other names.
        yield from _split_wide_table(table) if table.keys == 1 else [table]


def _split_wide_table(table: PrintedTable) -> Iterator[PrintedTable]:
    """Split a table into parts that fit a page, by columns; the first column repeats."""
    widths = [max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]
    names, *others = (_CHARACTER * width + _GAP for width in (min(widths[0], _BROKEN), *widths[1:]))
    most = max(1, int((_PAPER - names) // max(others)))
    parts = np.array_split(np.arange(1, len(widths)), -(-len(others) // most))
    for number, part in enumerate(parts, start=1):
        columns = [0, *part.tolist()]
        more = f" ({number})" if len(parts) > 1 else ""
        rows = [[row[i] for i in columns] for row in table.rows]
        yield PrintedTable(f"{table.title}{more}", [table.header[i] for i in columns], rows, 1)


PAGES = {"procurement": procurement_page}
