"""The report page of a pressure matrix, and its plot."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ppw.names import plot_label
from ppw.plots import MEASURED, new_axes
from ppw.pressure.measures import RESOURCE_WORDS, RESOURCES
from ppw.report.page import Figure, Page, Table, draw
from ppw.tabled_result import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.pressure.result import PressureMatrix

_FILL = {"high": "#d1495b", "medium": "#f0c987", "low": "#dcebdd"}
_UNKNOWN = "#f3f4f6"
_MOST_DRAWN = 40


def pressure_page(result: PressureMatrix) -> Page:
    """Report of `ppw.pressure_matrix`."""
    rows = len(result.runs)
    figure = Figure(
        draw(partial(plot_matrix, result), width=6.4, height=1.0 + 0.34 * min(rows, _MOST_DRAWN)),
        "Pressure of each application on each resource; grey was not measured, or has no capacity "
        "to be a share of.",
    )
    return Page(
        title="Pressure points",
        subtitle=f"{result.runs['application'].nunique()} applications · input "
        f"{result.input_digest}",
        verdict=result.verdict(),
        figures=[figure],
        tables=[
            Table("Matrix", result.header(), result.matrix(), len(result.header())),
            Table("Evidence", result.evidence_header(), result.evidence_cells(), 5),
            _threshold_table(result),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


def _threshold_table(result: PressureMatrix) -> Table:
    header = ["measure", "of", "medium from", "high from", "unit"]
    rows = [
        [
            row["measure"].replace("_", " "),
            row["meaning"],
            f"{row['medium']:g}",
            f"{row['high']:g}",
            row["unit"],
        ]
        for row in rows_of(result.thresholds)
    ]
    return Table("Thresholds", header, rows, 2, f"Source: {result.thresholds_source}.")


def plot_matrix(result: PressureMatrix, ax: Axes | None = None) -> Axes:
    """Draw levels as coloured words."""
    from matplotlib.patches import Rectangle

    axes = new_axes(ax)
    rows = rows_of(result.to_frame())[:_MOST_DRAWN]
    for y, row in enumerate(rows):
        for x, resource in enumerate(RESOURCES):
            level = row[resource]
            axes.add_patch(
                Rectangle((x, y), 0.96, 0.92, facecolor=_FILL.get(level, _UNKNOWN), lw=0)
            )
            axes.text(x + 0.48, y + 0.46, level, ha="center", va="center", color=MEASURED)
    axes.set_xlim(0, len(RESOURCES))
    axes.set_ylim(len(rows), 0)
    names = [words.replace(" ", "\n") for words in RESOURCE_WORDS.values()]
    axes.set_xticks([x + 0.48 for x in range(len(RESOURCES))], names)
    axes.set_yticks([y + 0.46 for y in range(len(rows))], [_label(row) for row in rows])
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.set_ylabel("application")
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _label(row: dict[str, object]) -> str:
    text = plot_label(row["application"])
    return text if row["phase"] == "all" else f"{text}, {plot_label(row['phase'])}"
