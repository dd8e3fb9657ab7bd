"""Pages of `cycles_per_io`, `project_cpio`, `size_servers` and `compare_devices`."""

from functools import partial

import numpy as np
import pandas as pd

from ppw.cpio.cycles import CyclesPerIO, DeviceComparison, plot_against_cores
from ppw.cpio.result import MOST_DRAWN, label_rows, logarithmic
from ppw.cpio.scenarios import CpioProjection
from ppw.cpio.sizing import ServerSizing
from ppw.results import axes
from ppw.results.axes import Axes
from ppw.results.page import Figure, Page, draw

_SUBTITLE = "512-byte I/Os"
# User, system, idle and waiting, from dark to light.
_TIME = {
    "user_share": ("user", "#1f4e79"),
    "system_share": ("system", "#5b8fc7"),
    "iowait_share": ("iowait", "#e0a030"),
    "idle_share": ("idle", "#d9e0e7"),
}


def plot_breakdown(result: CyclesPerIO, ax: Axes | None = None) -> Axes:
    """Draw how the CPU time of each application is divided, on its most cores."""
    ax, (names, table) = axes.new_axes(ax), most_cores(result)
    place, start = np.arange(len(names)), np.zeros(len(names))
    for column, (label, colour) in _TIME.items():
        share = 100 * table[column].to_numpy()
        ax.barh(place, share, left=start, color=colour, height=0.65, label=label)
        start = start + share
    label_rows(ax, names)
    ax.set_xlabel("share of the CPU time (%)")
    ax.legend(frameon=False, ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return ax


def plot_cpio_by_application(result: CyclesPerIO, ax: Axes | None = None) -> Axes:
    """Draw cycles per I/O of each application on its most cores, and their user part."""
    ax, (names, table) = axes.new_axes(ax), most_cores(result)
    place, label = np.arange(len(names)), "with idle, iowait"
    ax.barh(place, table["cpio"].to_numpy(), color=axes.CURVE, height=0.65, label="cycles per I/O")
    ax.hlines(place, table["lower"], table["upper"], color=axes.MEASURED, lw=1.5)
    ax.plot(table["cpio_with_idle"], place, "D", color=axes.PROJECTED, ms=4, label=label)
    logarithmic(ax, "x", from_decade=True)
    label_rows(ax, names)
    ax.set_xlabel("cycles per 512-byte I/O")
    ax.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return ax


def plot_utilisation_against_cores(result: CyclesPerIO, ax: Axes | None = None) -> Axes:
    """Draw the utilisation of each application against cores."""
    ax = plot_against_cores(result, "utilisation", ax)
    ax.set(ylabel="utilisation µ", ylim=(0, 1.05))
    return ax


def most_cores(result: CyclesPerIO) -> tuple[list[str], pd.DataFrame]:
    """Take the point on most cores of each application that did I/O, the first twenty."""
    names, rows = [], []
    for name, part in result.groups():
        known = part[part["cpio"].notna() & part["cpio_to_one"].notna()]
        if len(known):
            names.append(name)
            rows.append(known.sort_values("cores", kind="stable").iloc[-1])
    return names[:MOST_DRAWN], pd.DataFrame(rows[:MOST_DRAWN])


def cpio_page(result: CyclesPerIO) -> Page:
    """Make the page of `ppw.cycles_per_io`."""
    height = _bars_height(min(len(result.groups()), MOST_DRAWN))
    caption = f"Cycles per I/O on most cores, with the {result.level:.0%} interval of the mean."
    breakdown = draw(partial(plot_breakdown, result), height=height)
    figures = [
        Figure(breakdown, "Share of the CPU time by state, at the most cores."),
        Figure(draw(partial(plot_cpio_by_application, result), height=height), caption),
    ]
    if len(result.points["cores"].drop_duplicates()) > 1:
        busy = draw(partial(plot_utilisation_against_cores, result))
        figures.append(Figure(draw(result.plot), "Cycles per I/O against cores."))
        figures.append(Figure(busy, "Utilisation against cores."))
    return Page.of(result, title="Cycles per I/O", subtitle=_SUBTITLE, figures=figures)


def cpio_projection_page(result: CpioProjection) -> Page:
    """Make the page of `ppw.project_cpio`."""
    caption = (
        f"I/O rate of a server by scenario, with {result.level:.0%} intervals: colour is the "
        "utilisation, shape the cycles per I/O."
    )
    height = 1.6 + 0.9 * min(len(result.applications()), MOST_DRAWN)
    title = f"I/O on {result.cores:g} cores"
    return Page.with_plot(result, title, caption, height=height, subtitle=_SUBTITLE)


def sizing_page(result: ServerSizing) -> Page:
    """Make the page of `ppw.size_servers`."""
    caption = f"Energy by scenario, mean over the applications, with {result.level:.0%} intervals."
    title, height = "Servers and energy of a sweep", _bars_height(len(result.total))
    return Page.with_plot(result, title, caption, height=height, subtitle=_SUBTITLE)


def devices_page(result: DeviceComparison) -> Page:
    """Make the page of `ppw.compare_devices`."""
    caption = "I/O rate of each run, and the maximum of its device as measured by fio."
    title, height = "Devices and hosts", _bars_height(min(len(result.table), MOST_DRAWN))
    return Page.with_plot(result, title, caption, height=height, subtitle=_SUBTITLE)


def _bars_height(rows: int) -> float:
    return 1.3 + 0.35 * max(rows, 1)


PAGES = {
    "cycles_per_io": cpio_page,
    "cpio_projection": cpio_projection_page,
    "server_sizing": sizing_page,
    "device_comparison": devices_page,
}
