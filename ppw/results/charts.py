"""Charts of pages: what a plot drew on Matplotlib's axes, as a Vega-Lite specification."""

from __future__ import annotations

import base64
import io
import json
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from matplotlib import category, collections, colors, image, lines, patches, text, ticker
from matplotlib.path import Path

from ppw.results.axes import Axes

# A page lays out a length of a plot, in points, as so many pixels.
_PIXELS = 1.3
_MOST_POINTS = 500
# Outlines of markers in a square from -1 to 1; those of strokes alone have no inside.
_OUTLINES = {
    "o": "M-1,0A1,1,0,1,1,1,0A1,1,0,1,1,-1,0Z",
    ".": "M-.5,0A.5,.5,0,1,1,.5,0A.5,.5,0,1,1,-.5,0Z",
    "s": "M-.9,-.9H.9V.9H-.9Z",
    "D": "M0,-1.3L1.3,0L0,1.3L-1.3,0Z",
    "^": "M0,-1L1,1H-1Z",
    "v": "M0,1L1,-1H-1Z",
    "P": "M-.4,-1H.4V-.4H1V.4H.4V1H-.4V.4H-1V-.4H-.4Z",
}
_OUTLINES |= {"x": "M-1,-1L1,1M-1,1L1,-1", "|": "M0,-1V1", "_": "M-1,0H1"}
_DASHES = {"--": [6, 4], "-.": [6, 3, 1, 3], ":": [2, 3]}
# Formatters whose texts a chart takes over; Vega writes the numbers of all others.
_NAMED_TICKS = ticker.FixedFormatter, ticker.FuncFormatter, category.StrCategoryFormatter
_BASELINE = {"center": "middle", "top": "top", "bottom": "bottom"}

Mark = dict[str, Any]
Rows = list[dict[str, Any]]


class LegendKey(NamedTuple):
    """Entry of a legend: a line, an outline with its fill, or both, and what they stand for."""

    text: str
    stroke: str
    dashes: str = ""
    line: bool = False
    outline: str = ""
    fill: str = "none"


class Chart(NamedTuple):
    """A Vega-Lite specification, and the legend that the page writes beside it."""

    spec: dict[str, Any]
    legend: list[LegendKey]


def chart_of(axes: Axes, height: float) -> Chart:
    """Convert axes, and those that share their x axis, to a chart of a height in pixels.

    Raises `TypeError` for an artist that no plot of ppw draws.
    """
    both: list[Axes] = axes.figure.axes
    titles = axes.get_title(loc="left"), axes.get_title(), axes.get_ylabel()
    title = ": ".join(words for words in titles if words)
    spec = {
        "title": textwrap.wrap(title, 44),
        "height": round(height),
        "layer": [_axes_layer(one, is_first=one is axes) for one in both],
        "resolve": {"scale": {"y": "independent"}} if len(both) > 1 else {},
        # Titles and names of ticks, for the texts that appear under the pointer.
        "usermeta": {"x": _axis_facts(axes.xaxis), "y": _axis_facts(axes.yaxis)},
    }
    return Chart(spec, [key for one in both for key in _legend(one)])


def _axes_layer(axes: Axes, *, is_first: bool) -> dict[str, Any]:
    x, y = _encode(axes.xaxis), _encode(axes.yaxis)
    if is_first:
        # The title of the y axis stands above the chart, where it is read without turning.
        y["axis"]["title"] = None
    else:
        x["axis"], y["axis"]["orient"] = None, "right"
    artists = (*axes.images, *axes.patches, *axes.collections, *axes.lines, *axes.texts)
    layers: dict[str, tuple[Mark, Rows]] = {}
    for number, artist in enumerate(sorted(artists, key=lambda one: one.get_zorder())):
        for mark, rows in _convert_artist(axes, artist):
            _, all_rows = layers.setdefault(json.dumps(mark), (mark, []))
            separate = {"n": number} if mark["type"] in ("line", "area") else {}
            all_rows += [{**row, **separate} for row in rows]
    return {"encoding": {"x": x, "y": y}, "layer": [_layer(*one) for one in layers.values()]}


def _layer(mark: Mark, rows: Rows) -> dict[str, Any]:
    """One mark with its data; what rows carry besides a position is encoded by its field."""
    ends = ("x2", "y2")
    encoding: dict[str, Any] = {end: {"field": end} for end in ends if end in rows[0]}
    if "colour" in rows[0]:
        encoding["color"] = {"field": "colour", "type": "nominal", "scale": None}
    for channel, field in (("text", "text"), ("url", "url"), ("detail", "n")):
        if field in rows[0]:
            encoding[channel] = {"field": field, "type": "nominal"}
    return {"mark": mark, "data": {"values": rows}, "encoding": encoding}


def _axis_facts(axis: Any) -> dict[str, Any]:
    """Title of an axis, and the places and texts of its ticks where they have names."""
    low, high = sorted(axis.get_view_interval())
    facts: dict[str, Any] = {"title": axis.get_label_text().replace("\n", " ")}
    formatter = axis.get_major_formatter()
    if isinstance(formatter, _NAMED_TICKS):
        places = [float(at) for at in axis.get_majorticklocs()]
        texts = formatter.format_ticks(places)
        inside = [i for i, at in enumerate(places) if low <= at <= high]
        facts |= {"at": [places[i] for i in inside], "texts": [texts[i] for i in inside]}
    return facts


def _encode(axis: Any) -> dict[str, Any]:
    """Position channel of an axis: its limits, scale, ticks and title."""
    facts = _axis_facts(axis)
    guide: dict[str, Any] = {"title": textwrap.wrap(facts["title"], 34) or None}
    low, high = sorted(map(float, axis.get_view_interval()))
    if "at" in facts:
        names = [name.split("\n") if "\n" in name else name for name in facts["texts"]]
        guide["values"] = facts["at"]
        guide["labelExpr"] = f"{json.dumps(names)}[indexof({json.dumps(facts['at'])},datum.value)]"
        guide |= {"grid": False, "ticks": False, "domain": False, "labelOverlap": False}
    else:
        guide |= {"tickCount": 7} | ({"format": "~s"} if high >= 1e4 else {})
        if axis.get_scale() == "log" and high < 20 * low:
            # Ticks at powers of ten would leave most of a short axis without one.
            at = ticker.MaxNLocator(6).tick_values(low, high)
            guide["values"] = [round(x, 12) for x in at if low <= x <= high]
    scale = {"domain": [low, high], "nice": False, "zero": False, "type": axis.get_scale()}
    scale["reverse"] = bool(axis.get_inverted())
    return {"field": axis.axis_name, "type": "quantitative", "scale": scale, "axis": guide}


def _convert_artist(axes: Axes, artist: Any) -> Iterator[tuple[Mark, Rows]]:
    """Yield the marks of an artist with their rows; none where it has no data."""
    converters = {
        lines.Line2D: _convert_line,
        patches.Rectangle: _convert_bar,
        collections.LineCollection: _convert_rules,
        collections.PolyCollection: _convert_band,
        image.AxesImage: _convert_image,
        text.Text: _convert_text,
    }
    for kind, convert in converters.items():
        if isinstance(artist, kind):
            yield from ((mark, rows) for mark, rows in convert(axes, artist) if rows)
            return
    raise TypeError(f"no mark of a page shows a {type(artist).__name__}")


def _convert_line(axes: Axes, line: Any) -> Iterator[tuple[Mark, Rows]]:
    of_data = line.get_transform() is axes.transData
    points = _in_data(axes, line.get_transform(), np.column_stack(line.get_data(orig=False)))
    label = str(line.get_label())
    series = {} if label.startswith("_") else {"series": label}
    alpha = 1.0 if line.get_alpha() is None else float(line.get_alpha())
    key = _line_key(line)
    shared = {"opacity": alpha, "clip": True, **({} if of_data else {"tooltip": None})}
    if key.line and len(points) > 1:
        style = {"stroke": key.stroke, "strokeWidth": round(_PIXELS * line.get_linewidth(), 2)}
        step = {"interpolate": "step-after"} if line.get_drawstyle() == "steps-post" else {}
        dash = {"strokeDash": [*map(int, key.dashes.split())]} if key.dashes else {}
        rows = [{**row, **series} for row in _xy(_thin(axes, points))]
        # In the order of the data; points without ink are what the pointer meets.
        mark = {"type": "line", "order": None, "point": "transparent" if of_data else False}
        yield {**mark, **style, **step, **dash, **shared}, rows
    if key.outline:
        size = round((_PIXELS * line.get_markersize()) ** 2, 1)
        style = {"shape": key.outline, "fill": key.fill, "stroke": key.stroke, "size": size}
        rows = [{**row, **series} for row in _xy(points) if None not in row.values()]
        yield {"type": "point", **style, **shared}, rows


def _convert_bar(axes: Axes, bar: Any) -> Iterator[tuple[Mark, Rows]]:
    ends = np.array([bar.get_xy(), (bar.get_x() + bar.get_width(), bar.get_y() + bar.get_height())])
    of_data = bar.get_data_transform() is axes.transData
    row = _box(axes, _in_data(axes, bar.get_data_transform(), ends))
    row["length"] = float(bar.get_width() if "at" in _axis_facts(axes.yaxis) else bar.get_height())
    fill = bar.get_facecolor()
    mark: Mark = {"type": "rect", "opacity": float(fill[3]), "clip": True}
    mark |= {} if of_data else {"tooltip": None}
    yield mark, [{**row, "colour": colors.to_hex(fill)}]


def _convert_rules(axes: Axes, rules: Any) -> Iterator[tuple[Mark, Rows]]:
    colours = [colors.to_hex(colour) for colour in rules.get_colors()]
    ends = [segment for segment in rules.get_segments() if len(segment) == 2]
    boxes = (_box(axes, np.asarray(segment)) for segment in ends)
    rows = [{**box, "colour": colours[i % len(colours)]} for i, box in enumerate(boxes)]
    width = round(_PIXELS * float(rules.get_linewidths()[0]), 2)
    yield {"type": "rule", "strokeWidth": width, "clip": True}, rows


def _convert_band(axes: Axes, band: Any) -> Iterator[tuple[Mark, Rows]]:
    fill = band.get_facecolor()[0]
    rows: Rows = []
    for path in band.get_paths():
        x, place = np.unique(path.vertices[:, 0], return_inverse=True)
        low, high = np.full(len(x), np.inf), np.full(len(x), -np.inf)
        np.minimum.at(low, place.ravel(), path.vertices[:, 1])
        np.maximum.at(high, place.ravel(), path.vertices[:, 1])
        rows += [{**row, "y2": _number(top)} for row, top in zip(_xy((x, low)), high, strict=True)]
    mark = {"type": "area", "fill": colors.to_hex(fill), "opacity": float(fill[3])}
    yield {**mark, "clip": True}, rows


def _convert_image(_: Axes, picture: Any) -> Iterator[tuple[Mark, Rows]]:
    cells = picture.to_rgba(picture.get_array(), bytes=True)
    sink, unsigned = io.BytesIO(), cast("dict[str, str]", {"Software": None})
    top_first = cells[::-1] if picture.origin == "lower" else cells
    image.imsave(sink, top_first, format="png", metadata=unsigned)
    url = f"data:image/png;base64,{base64.b64encode(sink.getvalue()).decode()}"
    left, right, bottom, top = map(float, picture.get_extent())
    row = {"x": left, "x2": right, "y": bottom, "y2": top, "url": url}
    mark: Mark = {"type": "image", "aspect": False, "smooth": False, "tooltip": None}
    yield mark, [row]


def _convert_text(axes: Axes, label: Any) -> Iterator[tuple[Mark, Rows]]:
    (point,) = _in_data(axes, label.get_transform(), np.array([label.get_position()], dtype=float))
    colour = colors.to_hex(label.get_color())
    # What stands inside a cell keeps its colour in the dark: style.css knows small letters only.
    inside = label.get_ha() == label.get_va() == "center"
    mark: Mark = {"type": "text", "fill": colour.upper() if inside else colour, "tooltip": None}
    mark |= {"align": label.get_ha(), "baseline": _BASELINE.get(label.get_va(), "alphabetic")}
    mark["fontSize"] = round(_PIXELS * label.get_fontsize(), 1)
    (row,) = _xy(point[None, :])
    yield mark, [{**row, "text": label.get_text()}] if label.get_text() else []


def _legend(axes: Axes) -> Iterator[LegendKey]:
    if (legend := axes.get_legend()) is None:
        return
    for handle, words in zip(legend.legend_handles, legend.get_texts(), strict=True):
        if isinstance(handle, lines.Line2D):
            yield _line_key(handle)._replace(text=words.get_text())
        elif isinstance(handle, patches.Patch):
            colour = colors.to_hex(handle.get_facecolor())
            yield LegendKey(words.get_text(), colour, outline=_OUTLINES["s"], fill=colour)


def _line_key(line: Any) -> LegendKey:
    style, marker = line.get_linestyle(), str(line.get_marker())
    fill = line.get_markerfacecolor()
    has_inside = colors.to_rgba(fill)[3] > 0 and line.get_fillstyle() != "none"
    return LegendKey(
        str(line.get_label()),
        colors.to_hex(line.get_color() if style != "None" else line.get_markeredgecolor()),
        dashes=" ".join(map(str, _DASHES.get(style, []))),
        line=style not in ("None", " ", ""),
        outline=_OUTLINES.get(marker, ""),
        # Vega meets the pointer inside what is transparent, not what is "none".
        fill=colors.to_hex(fill) if has_inside else "transparent",
    )


# Coordinates.
def _in_data(axes: Axes, transform: Any, points: np.ndarray) -> np.ndarray:
    """Points of an artist in data coordinates, whatever its own are."""
    if transform is axes.transData:
        return np.asarray(points, dtype=np.float64)
    return np.asarray(axes.transData.inverted().transform(transform.transform(points)))


def _thin(axes: Axes, points: np.ndarray) -> np.ndarray:
    """Leave out the points of a long line that move it by less than half a pixel."""
    if len(points) <= _MOST_POINTS or not np.isfinite(points).all():
        return points
    path = Path(axes.transData.transform(points))
    path.should_simplify, path.simplify_threshold = True, 0.5
    # The last vertex is the end of the path.
    kept = np.asarray(path.cleaned(simplify=True).vertices)[:-1]
    return np.asarray(axes.transData.inverted().transform(kept))


def _box(axes: Axes, ends: np.ndarray) -> dict[str, Any]:
    """Two corners, inside the limits of the axes: a bar on a logarithmic axis begins at 0."""
    limits = np.sort([axes.get_xlim(), axes.get_ylim()])
    (x, y), (x2, y2) = np.clip(ends, limits[:, 0], limits[:, 1])
    return dict(zip(("x", "y", "x2", "y2"), map(_number, (x, y, x2, y2)), strict=True))


def _xy(points: Any) -> Rows:
    x, y = points if isinstance(points, tuple) else points.T
    return [{"x": _number(a), "y": _number(b)} for a, b in zip(x, y, strict=True)]


def _number(value: float) -> float | None:
    """Ten digits of a number; None for one that is not finite, which JSON lacks."""
    return float(f"{value:.10g}") if np.isfinite(value) else None
