"""The report page of a pressure matrix, and its plot."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.pressure.capacity import RESOURCE_WORDS, RESOURCES
from ppw.pressure.demand import BREAKS
from ppw.pressure.find_knees import KNEE
from ppw.pressure.right_size import BUY, EVIDENCE
from ppw.results.axes import BAND, BEST, CURVE, MEASURED, PROJECTED, new_axes
from ppw.results.page import Figure, Page, Table, draw
from ppw.results.result import rows_of
from ppw.results.text import plot_label, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.pressure.co_locate import CoLocation
    from ppw.pressure.find_knees import SweepKnees
    from ppw.pressure.matrix import PressureMatrix
    from ppw.pressure.pair_workloads import Pairing
    from ppw.pressure.right_size import RightSizing


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


def plot_right_sizing(result: RightSizing, ax: Axes | None = None) -> Axes:
    """Draw the share of each capacity that is used."""
    axes = new_axes(ax)
    table = result.resources
    place = np.arange(len(table))[::-1]
    colours = [PROJECTED if finding == BUY else CURVE for finding in table["finding"]]
    axes.barh(place, 100 * table["share"].fillna(0.0), color=colours, height=0.6)
    for at, row in zip(place, table.to_dict(orient="records"), strict=True):
        if np.isnan(row["share"]):
            axes.text(1, at, row["finding"], va="center", fontsize=7)
            continue
        for threshold in (row["medium"], row["high"]):
            axes.plot([100 * threshold] * 2, [at - 0.4, at + 0.4], color="0.4", lw=1)
    axes.set_yticks(place, [plot_label(name) for name in table["resource"]])
    axes.set_ylabel("resource")
    axes.set_xlabel("used (% of capacity)")
    axes.set_xlim(0, max(100.0, 105 * float(np.nanmax([1.0, *table["share"]]))))
    return axes


# The report page of workloads that share a host, and its plot.


_LINES = ("-", "--", "-.", ":")


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


def plot_co_location(result: CoLocation, ax: Axes | None = None) -> Axes:
    """Draw the share of each capacity over time, or as bars where no time is common."""
    axes = new_axes(ax)
    known = result.resources[result.resources["share"].notna()]
    broken = set(known.loc[known["finding"] == BREAKS, "resource"])
    if len(result.timeline):
        for number, (name, part) in enumerate(result.timeline.groupby("resource", sort=False)):
            colour = PROJECTED if name in broken else CURVE
            style = _LINES[number % len(_LINES)]
            axes.plot(
                part["time_s"],
                100 * part["share"],
                style,
                color=colour,
                lw=1.2,
                label=plot_label(name),
            )
        axes.set_xlabel("time together (s)")
        axes.set_ylabel("sum of demands (% of capacity)")
        axes.axhline(100, color="0.3", lw=1, ls=":")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return axes
    place = np.arange(len(known))[::-1]
    colours = [PROJECTED if name in broken else CURVE for name in known["resource"]]
    axes.barh(place, 100 * known["share"], color=colours, height=0.6)
    axes.axvline(100, color="0.3", lw=1, ls=":")
    axes.set_yticks(place, [plot_label(name) for name in known["resource"]])
    axes.set_ylabel("resource")
    axes.set_xlabel("sum of demands (% of capacity)")
    return axes


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


def plot_pairing(result: Pairing, ax: Axes | None = None) -> Axes:
    """Draw the matrix: the darker, the fuller."""
    axes = new_axes(ax)
    names = list(result.workloads)
    held = np.full((len(names), len(names)), np.nan)
    for row in rows_of(result.pairs):
        a, b = names.index(row["workload"]), names.index(row["with"])
        held[a, b] = held[b, a] = 100 * row["share"] / row["threshold"]
    axes.imshow(held, cmap="Blues", vmin=0, vmax=150)
    for (a, b), value in np.ndenumerate(held):
        if np.isfinite(value):
            colour = "white" if value > 90 else "black"
            axes.text(b, a, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=8)
    labels = list(map(plot_label, names))
    axes.set_xticks(range(len(names)), labels, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), labels)
    axes.set_ylabel("workload")
    return axes


# The report page of sweeps, and its plot.


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
