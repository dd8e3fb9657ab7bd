"""The report page of options for a traced load, and its plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.names import plot_label
from ppw.plots import BAND, CURVE, MEASURED, PROJECTED, new_axes
from ppw.report.page import Figure, Page, Table, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.traces.whatif import TraceWhatIf


def trace_whatif_page(result: TraceWhatIf) -> Page:
    """Report of `ppw.trace_what_if`."""
    figures = [
        Figure(
            draw(lambda ax: plot_speed_ups(result, ax), height=1.2 + 0.3 * len(result.table)),
            "Speed-up of each option against the storage as it is; whiskers are the smallest and "
            "largest of the runs.",
        )
    ]
    if (result.table["kind"] == "cache").any():
        caption = "Hits of an LRU cache by its size (line), and of the caches asked for (points)."
        figures.insert(0, Figure(draw(result.plot), caption))
    note = (
        "Speed-up: time of device and cache for a request, one at a time, against the storage as "
        "it is. Latency: at the arrivals of the trace, with queues."
    )
    return Page(
        title="What if: caches and layouts",
        subtitle=f"{result.runs:g} runs · writes {result.writes} · input {result.input_digest}",
        verdict=result.verdict(),
        figures=figures,
        tables=[Table("Options", result.header(), result.cells(), 1, note)],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_curve(result: TraceWhatIf, ax: Axes | None = None) -> Axes:
    """Draw hit ratio over cache size."""
    axes = new_axes(ax)
    axes.plot(
        result.curve["cache_bytes"] / 1e9,
        100 * result.curve["hit_ratio"],
        color=CURVE,
        label="LRU, writes bring blocks in",
    )
    caches = result.table[result.table["kind"] == "cache"]
    for policy, marker in zip(caches["policy"].unique(), "osD^vP", strict=False):
        rows = caches[caches["policy"] == policy]
        axes.plot(
            rows["cache_bytes"] / 1e9,
            100 * rows["hit_ratio"],
            marker,
            color=PROJECTED,
            ms=5,
            mfc="none",
            label=policy.upper(),
        )
    axes.set_xscale("log")
    axes.set_xlabel("cache (GB)")
    axes.set_ylabel("hits (% of blocks)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return axes


def plot_speed_ups(result: TraceWhatIf, ax: Axes | None = None) -> Axes:
    """Draw the speed-up of every option, with its range over the runs."""
    axes, table = new_axes(ax), result.table
    place = np.arange(len(table))[::-1]
    value = table["speed_up"].to_numpy()
    reach = np.stack([value - table["lower"].to_numpy(), table["upper"].to_numpy() - value])
    axes.barh(place, value, color=BAND)
    axes.errorbar(value, place, xerr=np.maximum(reach, 0), fmt="none", color=MEASURED, capsize=3)
    axes.axvline(1, color=MEASURED, lw=0.8)
    axes.set_yticks(place, [_two_lines(name) for name in table["option"]])
    axes.set_xlabel("speed-up (times)")
    return axes


def _two_lines(name: str) -> str:
    return plot_label(name, most=80).replace(", ", ",\n", 1)
