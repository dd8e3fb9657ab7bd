"""The pages of cycles per I/O: the study, the projection, the sizing and the devices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ppw.cpio.compare_devices import plot_devices
from ppw.cpio.cycles import _against_cores, plot_cpio_against_cores
from ppw.cpio.plots import MOST_DRAWN, _logarithmic, _rows
from ppw.cpio.scenarios import GROWTH_HEADER, plot_scenarios
from ppw.cpio.sizing import plot_energy
from ppw.results.axes import CURVE, MEASURED, PROJECTED, new_axes
from ppw.results.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ppw.cpio.compare_devices import DeviceComparison
    from ppw.cpio.cycles import CyclesPerIO
    from ppw.cpio.scenarios import CpioProjection
    from ppw.cpio.sizing import ServerSizing


# The drawings of cycles per I/O: breakdown of time, cpio by application, against cores, energy.


# User, system, idle and waiting, from dark to light.
_TIME = {
    "user_share": ("user", "#1f4e79"),
    "system_share": ("system", "#5b8fc7"),
    "iowait_share": ("iowait", "#e0a030"),
    "idle_share": ("idle", "#d9e0e7"),
}


def plot_breakdown(result: CyclesPerIO, ax: Axes | None = None) -> Axes:
    """Draw how the CPU time of each application is divided, on its most cores."""
    axes, (names, table) = new_axes(ax), most_cores(result)
    place, start = np.arange(len(names)), np.zeros(len(names))
    for column, (label, colour) in _TIME.items():
        share = 100 * table[column].to_numpy()
        axes.barh(place, share, left=start, color=colour, height=0.65, label=label)
        start = start + share
    _rows(axes, names)
    axes.set_xlabel("share of the CPU time (%)")
    axes.legend(frameon=False, ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return axes


def plot_cpio_by_application(result: CyclesPerIO, ax: Axes | None = None) -> Axes:
    """Draw cycles per I/O of each application on its most cores, and their user part."""
    axes, (names, table) = new_axes(ax), most_cores(result)
    place, total = np.arange(len(names)), table["cpio"].to_numpy()
    axes.barh(place, total, color=CURVE, height=0.65, label="cycles per I/O")
    axes.hlines(place, table["lower"], table["upper"], color=MEASURED, lw=1.5)
    axes.plot(table["cpio_with_idle"], place, "D", color=PROJECTED, ms=4, label="with idle, iowait")
    _logarithmic(axes, "x", from_decade=True)
    _rows(axes, names)
    axes.set_xlabel("cycles per 512-byte I/O")
    axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return axes


def plot_utilisation_against_cores(result: CyclesPerIO, ax: Axes | None = None) -> Axes:
    """Draw the utilisation of each application against cores."""
    axes = _against_cores(result, new_axes(ax), "utilisation")
    axes.set_ylabel("utilisation µ")
    axes.set_ylim(0, 1.05)
    return axes


def most_cores(result: CyclesPerIO) -> tuple[list[str], pd.DataFrame]:
    """Point on most cores of each application that did I/O, the first twenty, with its name."""
    import pandas as pd

    names, rows = [], []
    for name, part in result.groups():
        known = part[part["cpio"].notna() & part["cpio_to_one"].notna()]
        if len(known):
            names.append(name)
            rows.append(known.sort_values("cores", kind="stable").iloc[-1])
    return names[:MOST_DRAWN], pd.DataFrame(rows[:MOST_DRAWN])


_MOST_ROWS = 500
# Of the digest, as much as tells inputs apart: all of it is too wide for a telephone.
_DIGEST = len("sha256:") + 12


def cpio_page(result: CyclesPerIO) -> Page:
    """Report of `ppw.cycles_per_io`."""
    count = min(len(result.groups()), MOST_DRAWN)
    figures = [
        Figure(
            draw(partial(plot_breakdown, result), height=_height(count)),
            "Where the CPU time went, on most cores.",
        ),
        Figure(
            draw(partial(plot_cpio_by_application, result), height=_height(count)),
            f"Cycles per I/O on most cores, with the {result.level:.0%} interval of the mean.",
        ),
    ]
    if len(result.points["cores"].drop_duplicates()) > 1:
        figures += [
            Figure(draw(partial(plot_cpio_against_cores, result)), "Cycles per I/O against cores."),
            Figure(
                draw(partial(plot_utilisation_against_cores, result)), "Utilisation against cores."
            ),
        ]
    more = len(result.points) - _MOST_ROWS
    note = f"{more} more rows are in the JSON of this page." if more > 0 else ""
    table = Table("Runs", result.header(), result.cells(_MOST_ROWS), len(result.by), note)
    return Page(
        title="Cycles per I/O",
        subtitle=_subtitle(result.input_digest),
        verdict=result.verdict(),
        figures=figures,
        tables=[table],
        caveats=result.caveats,
        document=result.to_json(),
    )


def cpio_projection_page(result: CpioProjection) -> Page:
    """Report of `ppw.project_cpio`."""
    keys = len(result.by)
    height = 1.6 + 0.9 * min(len(result.applications()), MOST_DRAWN)
    tables = [Table("Scenarios", result.header(), result.cells(), keys + 2)]
    if len(result.laws):
        tables.append(Table("Laws", result.law_header(), result.law_cells(), keys + 1))
    if len(result.growth):
        tables.append(Table("Growth of the market", GROWTH_HEADER, result.growth_cells(), 0))
    return Page(
        title=f"I/O on {result.cores:g} cores",
        subtitle=_subtitle(result.input_digest),
        verdict=result.verdict(),
        figures=[
            Figure(
                draw(partial(plot_scenarios, result), height=height),
                f"I/O rate of a server by scenario, with {result.level:.0%} intervals: colour is "
                "the utilisation, shape the cycles per I/O.",
            )
        ],
        tables=tables,
        caveats=result.caveats,
        document=result.to_json(),
    )


def sizing_page(result: ServerSizing) -> Page:
    """Report of `ppw.size_servers`."""
    keys = len(result.by) + 2
    return Page(
        title="Servers and energy of a sweep",
        subtitle=_subtitle(result.input_digest),
        verdict=result.verdict(),
        figures=[
            Figure(
                draw(partial(plot_energy, result), height=_height(len(result.total))),
                f"Energy by scenario, mean over the applications, with {result.level:.0%} "
                "intervals.",
            )
        ],
        tables=[
            Table("Energy", result.header(), result.cells(), keys),
            Table("What would save", result.lever_header(), result.lever_cells(), 1),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


def devices_page(result: DeviceComparison) -> Page:
    """Report of `ppw.compare_devices`."""
    count = min(len(result.table), MOST_DRAWN)
    return Page(
        title="Devices and hosts",
        subtitle=_subtitle(result.input_digest),
        verdict=result.verdict(),
        figures=[
            Figure(
                draw(partial(plot_devices, result), height=_height(count)),
                "What each run asks of its device, beside what the device gives by itself.",
            )
        ],
        tables=[Table("Runs", result.header(), result.cells(), len(result.by))],
        caveats=result.caveats,
        document=result.to_json(),
    )


def _height(rows: int) -> float:
    return 1.3 + 0.35 * max(rows, 1)


def _subtitle(digest: str | None) -> str:
    return f"512-byte I/Os · input {(digest or '')[:_DIGEST]}"
