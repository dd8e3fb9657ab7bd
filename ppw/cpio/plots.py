"""Parts of the plots of cycles per I/O."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from ppw.results.axes import BEST, CURVE, PROJECTED
from ppw.results.text import plot_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_DRAWN = 20


def _logarithmic(axes: Axes, which: str, *, from_decade: bool = False) -> None:
    """Scale an axis by decades, with ticks that are plain text: 10k, 1M.

    Bars have no foot on such an axis: ``from_decade`` stands them on the decade below the least.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    getattr(axes, f"set_{which}scale")("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    if from_decade:
        low = 10.0 ** np.floor(np.log10(low))
        axes.set_xlim(left=low)
    narrow = high < 30 * low
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,), numticks=8))
    axis.set_major_formatter(EngFormatter(sep=""))
    axis.set_minor_formatter(NullFormatter())


def _rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), [_wrapped(name) for name in names])
    axes.invert_yaxis()
    axes.set_ylabel("application")


_COLOURS = {"measured": CURVE, "projected": PROJECTED, "full": BEST}


_FEW = 6


_MARKS = "osD^vP*X"


def _wrapped(name: str) -> str:
    return "\n".join(textwrap.wrap(plot_label(name, most=4 * _LABEL), _LABEL))


_LABEL = 26
