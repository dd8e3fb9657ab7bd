"""Axes, colours and labels of the plots."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from measurements.errors import naming_extra
from ppw.results.text import plot_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
else:  # Who imports it for a type does not load Matplotlib.
    Axes = Any

MEASURED, CURVE, BAND, PROJECTED, BEST = "#1f2933", "#2563a8", "#bcd4ec", "#d1495b", "#2e7d32"


def new_axes(ax: Axes | None) -> Axes:
    """Return the axes given, or new ones that belong to no window."""
    if ax is not None:
        return ax
    with naming_extra("a plot"):
        from matplotlib.figure import Figure

    return Figure(figsize=(6.0, 4.0), layout="constrained").add_subplot()


def label_lines(name: str, width: int = 24) -> str:
    """Break a label of a plot into at most four lines or so of ``width`` characters."""
    return "\n".join(textwrap.wrap(plot_label(name, most=4 * width), width))


def label_ends(ax: Axes, ends: Iterable[tuple[float, str, Any]]) -> None:
    """Write names (height, name, colour) beside the axes, at the right ends of lines, apart."""
    low, high = ax.get_ylim()
    at, gap = low - high, 0.055 * (high - low)
    for y, name, color in sorted(ends, key=lambda end: end[0]):
        at = max(y, at + gap)
        beside = ax.get_yaxis_transform()
        ax.text(1.015, at, name, color=color, fontsize="small", transform=beside, va="center")
