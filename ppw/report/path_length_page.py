"""The report page of path lengths, and its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.names import plot_label
from ppw.plots import CURVE, MEASURED, new_axes
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.path_length import PathLengths

_STEPS = 100
_MARKERS = "osD^vP"


def path_length_page(result: PathLengths) -> Page:
    """Report of `ppw.path_lengths`."""
    caption = "Instructions per byte as counted, and the curves fitted to them."
    return Page(
        title="Path length",
        subtitle=f"instructions per byte · input {result.input_digest}",
        verdict=[*result.verdict(), *result.flat_sentences()] or ["nothing could be fitted"],
        figures=[Figure(draw(result.plot), caption)],
        tables=[Table("Counts", result.header(), result.cells(), 3)],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_path_lengths(result: PathLengths, ax: Axes | None = None) -> Axes:
    """Draw points and curves against cores, or against data size where no curve is of cores."""
    axes = new_axes(ax)
    against_cores = len(result.cores) > 0
    points = result.points
    column = "cores" if against_cores else "data_bytes"
    for place, (workload, part) in enumerate(points.groupby("workload", sort=True)):
        marker = _MARKERS[place % len(_MARKERS)]
        per_byte = part["instructions_per_byte"]
        axes.plot(
            part[column],
            per_byte,
            marker,
            color=MEASURED,
            ms=4,
            label=f"{plot_label(workload)}, runs",
        )
    if against_cores:
        for row in result.cores.to_dict(orient="records"):
            at = np.geomspace(row["cores_from"], row["cores_to"], _STEPS)
            axes.plot(at, row["a"] * np.log(at) + row["b"], color=CURVE)
        axes.set_xlabel("cores")
    else:
        for row in result.data.to_dict(orient="records"):
            at = np.geomspace(row["data_from_bytes"], row["data_to_bytes"], _STEPS)
            axes.plot(
                at, row["fixed_instructions"] / at + row["instructions_per_byte"], color=CURVE
            )
        axes.set_xscale("log")
        axes.set_xlabel("data size (B)")
    axes.set_ylabel("instructions per byte")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return axes
