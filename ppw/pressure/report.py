"""The report page of a pressure matrix, and its plot."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ppw.pressure.matrix import _MOST_DRAWN, plot_matrix
from ppw.pressure.right_size import EVIDENCE
from ppw.results.page import Figure, Page, Table, draw
from ppw.results.result import rows_of

if TYPE_CHECKING:
    from ppw.pressure.co_locate import CoLocation
    from ppw.pressure.find_knees import SweepKnees
    from ppw.pressure.matrix import PressureMatrix
    from ppw.pressure.pair_workloads import Pairing
    from ppw.pressure.right_size import RightSizing


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


# The report page of right-sizing, and its plot.


def right_sizing_page(result: RightSizing) -> Page:
    """Report of `ppw.right_size`."""
    caption = (
        "Share of each capacity that was enough for most of the time; red: buy more. The lines are "
        "the medium threshold and the share to plan for."
    )
    return Page(
        title="Right-sizing",
        subtitle=f"{result.source} · {result.seconds:.6g} s · input {result.input_digest}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[
            Table("Resources", result.header()[:-2], [row[:-2] for row in result.cells()], 2),
            Table("Evidence", EVIDENCE, result.evidence(), len(EVIDENCE)),
            Table(
                "Hosts of the catalogue",
                result.candidate_header(),
                result.candidate_cells(),
                2,
                "Cores are physical and taken to be as fast as those of the recording.",
            ),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


# The report page of workloads that share a host, and its plot.


def co_location_page(result: CoLocation) -> Page:
    """Report of `ppw.co_locate`."""
    names = " + ".join(dict.fromkeys(result.parts["workload"]))
    caption = (
        "Sum of the demands as a share of each capacity"
        + (", highest of each stretch of time" if len(result.timeline) else "")
        + "; red: breaks. Dotted: the capacity."
    )
    return Page(
        title="Sharing a host",
        subtitle=f"{names} · input {result.input_digest}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[
            Table("Together", result.header()[:-2], [row[:-2] for row in result.cells()], 2),
            Table("Evidence", EVIDENCE, result.evidence(), len(EVIDENCE)),
            Table("Who asks for what", result.part_header(), result.part_cells(), 2),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


# The report page of pairs of workloads, and its plot.


def pairing_page(result: Pairing) -> Page:
    """Report of `ppw.pair_workloads`."""
    caption = "Share of the capacity of what breaks first, in percent of what may be used."
    return Page(
        title="Which workloads can share a host",
        subtitle=f"{len(result.workloads)} workloads · input {result.input_digest}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), caption)],
        tables=[
            Table(
                "Matrix",
                result.matrix_header(),
                result.matrix(),
                1,
                "What breaks first and its share of the capacity; ! above what may be used.",
            ),
            Table("Pairs, best first", result.header(), result.cells(), 5),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


# The report page of sweeps, and its plot.


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
