"""The pages of cycles per I/O: the study, the projection, the sizing and the devices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ppw.cpio.projection import GROWTH_HEADER
from ppw.report.cpio_figures import (
    MOST_DRAWN,
    plot_breakdown,
    plot_cpio_against_cores,
    plot_cpio_by_application,
    plot_devices,
    plot_energy,
    plot_scenarios,
    plot_utilisation_against_cores,
)
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from ppw.cpio.comparison import DeviceComparison
    from ppw.cpio.cycles import CyclesPerIO
    from ppw.cpio.projection import CpioProjection
    from ppw.cpio.sizing import ServerSizing

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


def _subtitle(digest: str) -> str:
    return f"512-byte I/Os · input {digest[:_DIGEST]}"
