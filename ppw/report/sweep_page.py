"""The report page of sweeps, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.estimate import shown
from ppw.names import plot_label
from ppw.plots import BAND, BEST, CURVE, MEASURED, PROJECTED, new_axes
from ppw.report.page import Figure, Page, Table, draw
from ppw.sweeps.result import KNEE
from ppw.tabled_result import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.sweeps.result import SweepKnees

_STEPS = 100
_MARKERS = "osD^vP"
# More sweeps than this are a cloud without names.
_MOST_NAMED = 6
_MOST_TICKS = 9


def sweep_page(result: SweepKnees) -> Page:
    """Report of `ppw.find_knees`."""
    caption = (
        "Points: mean of the runs of a level. Lines: fitted. Band: interval of the knee. "
        "Ring: where to run. Cross: failed."
    )
    return Page(
        title=f"{result.of} over {result.over}",
        subtitle=f"knees and operating points · input {result.input_digest}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[Table("Levels", result.header(), result.cells(), 1)],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_sweeps(result: SweepKnees, ax: Axes | None = None) -> Axes:
    """Draw the levels of every sweep, its two lines, and where to run."""
    axes = new_axes(ax)
    named = len(result.knees) <= _MOST_NAMED
    for place, row in enumerate(rows_of(result.knees)):
        levels = result.levels[result.levels["sweep"] == row["sweep"]]
        good = levels[levels["value"].notna()]
        marker = _MARKERS[place % len(_MARKERS)]
        label = plot_label(row["sweep"]) if named else None
        axes.plot(good["x"], good["value"], marker, color=MEASURED, ms=4, label=label)
        _draw_lines(axes, row, result.scale)
        _draw_choice(axes, row)
        for x in levels.loc[levels["failed"] > 0, "x"]:
            axes.plot(x, 0.02, "x", color=PROJECTED, ms=7, transform=axes.get_xaxis_transform())
    if result.scale == "log":
        _logarithmic(axes, result)
    axes.set_xlabel(_titled(result.over, result.over_unit))
    axes.set_ylabel(_titled(result.of, result.of_unit))
    if named:
        axes.legend(frameon=False)
    return axes


def _logarithmic(axes: Axes, result: SweepKnees) -> None:
    """Logarithmic axes with the levels, and plain numbers, as their ticks."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    levels = np.unique(result.levels["x"])
    every = -(-len(levels) // _MOST_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(levels[::every].tolist()))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    for axis, unit in ((axes.xaxis, result.over_unit), (axes.yaxis, "")):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda number, _, u=unit: shown(number, u)))


def _draw_lines(axes: Axes, row: dict[str, Any], scale: str) -> None:
    if row["finding"] != KNEE:
        return
    low, high = row["lower"], row["upper"]
    if np.isfinite(high) and low > 0:
        axes.axvspan(low, high, color=BAND, alpha=0.5, lw=0)
    # Outside the measured levels the lines say nothing.
    at = np.linspace(row["linear_from"], row["measured_to"], _STEPS)
    if scale == "log":
        at = np.geomspace(row["linear_from"], row["measured_to"], _STEPS)
    slope = np.where(at < row["knee"], row["slope_before"], row["slope_after"])
    if scale == "log":
        line = row["knee_value"] * (at / row["knee"]) ** slope
    else:
        line = row["knee_value"] + slope * (at - row["knee"])
    axes.plot(at, line, color=CURVE, lw=1)


def _draw_choice(axes: Axes, row: dict[str, Any]) -> None:
    if np.isfinite(row["recommended"]):
        axes.plot(
            row["recommended"], row["recommended_value"], "o", ms=11, mfc="none", mec=BEST, mew=1.5
        )


def _titled(name: str, unit: str) -> str:
    label = plot_label(name)
    return f"{label} ({unit})" if unit else label
