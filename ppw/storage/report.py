"""Pages of results about block traces, and the plots that only pages have."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fitting.storage.interarrival import KNOTS
from ppw.results.axes import BAND, BEST, CURVE, MEASURED, PROJECTED, new_axes
from ppw.results.page import Figure, Page, draw
from ppw.results.result import PrintedTable
from ppw.results.text import plot_label
from ppw.storage.generate import generate_trace
from ppw.storage.trace_source import columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.storage.drift import HalfDrift, TimeScales
    from ppw.storage.fidelity import TraceFidelity
    from ppw.storage.fit import LevelChoice
    from ppw.storage.replay import TraceReplay
    from ppw.storage.trace_model import TraceModel
    from ppw.storage.trace_source import Batches
    from ppw.storage.what_if import TraceWhatIf

_MOST_ROWS = 200
# Requests of a heat map.
_MOST_PLOTTED = 100_000
_COLORS = {"pass": BEST, "fail": PROJECTED, "–": MEASURED}


def trace_page(model: TraceModel, original: Batches | None = None) -> Page:
    """Report of `ppw.fit_trace`; with the trace itself, its places are drawn beside."""
    made = generate_trace(model, count=min(_MOST_PLOTTED, model.survey.requests))
    places = [Figure(draw(partial(plot_places, model, made)), "Regenerated, not measured.")]
    if original is not None:
        found = partial(plot_places, model, original)
        places.insert(0, Figure(draw(found), "The original, as it was recorded."))
    pairs = model.state_pairs().sort_values("count", ascending=False).head(_MOST_ROWS)
    rows = [
        [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row]
        for row in pairs.itertuples(index=False)
    ]
    return Page(
        title="Storage workload model",
        subtitle=f"input {model.input_digest[:19]}",
        verdict=model.summary().splitlines()[:3],
        figures=[
            Figure(draw(model.plot), "Share of requests from state to state."),
            *places,
            Figure(
                draw(partial(plot_inter_arrival_times, model)),
                f"All streams, by their laws; empirical ones by {len(KNOTS)} quantiles.",
            ),
            Figure(draw(partial(plot_windows, model)), "As it was in the trace."),
        ],
        tables=[PrintedTable("Pairs of states, the most frequent", list(pairs.columns), rows, 5)],
        caveats=model.caveats,
        document=model.to_json(),
    )


def levels_page(result: LevelChoice) -> Page:
    """Report of `ppw.choose_level`."""
    caption = "IOPS as a device completes them; held-out likelihood."
    return Page.of(
        result,
        title="Levels of a storage workload model",
        figures=[Figure(draw(result.plot), caption)],
    )


def drift_page(result: HalfDrift) -> Page:
    """Report of `ppw.half_drift`."""
    return Page.of(
        result,
        title="A workload's halves",
        verdict=result.text_parts()[:1],
        figures=[Figure(draw(result.plot), "Computed, not measured.")],
    )


def scales_page(result: TimeScales) -> Page:
    """Report of `ppw.time_scales`."""
    return Page.of(
        result,
        title="Throughput against time scale",
        figures=[Figure(draw(result.plot), "Computed, not measured.")],
    )


def trace_fidelity_page(result: TraceFidelity) -> Page:
    """Report of `ppw.validate_trace`."""
    judged = int(result.table["tolerance"].notna().sum())
    offsets = draw(partial(plot_offsets, result), height=1.2 + 0.17 * judged)
    return Page.of(
        result,
        title="Synthetic trace against its original",
        subtitle=f"{result.synthetic_traces:g} synthetic · {result.device.partition(':')[0]} model",
        figures=[
            Figure(draw(result.plot), "Hit ratio of LRU caches by their share of the footprint."),
            Figure(
                offsets, "How much of its tolerance each figure takes; the line is the tolerance."
            ),
        ],
    )


def trace_replay_page(result: TraceReplay) -> Page:
    """Report of `ppw.replay_trace`."""
    return Page.of(
        result,
        title="Replayed trace",
        subtitle=f"{result.fio_version}, {result.engine}",
        figures=[Figure(draw(result.plot), "Requests a second, stage by stage.")],
    )


def trace_whatif_page(result: TraceWhatIf) -> Page:
    """Report of `ppw.trace_what_if`."""
    speed_ups = draw(partial(plot_speed_ups, result), height=1.2 + 0.3 * len(result.table))
    figures = [
        Figure(
            speed_ups,
            "Speed-up of each option against the storage as it is; whiskers are the smallest and "
            "largest of the runs.",
        )
    ]
    if (result.table["kind"] == "cache").any():
        caption = "Hits of an LRU cache by its size (line), and of the caches asked for (points)."
        figures.insert(0, Figure(draw(result.plot), caption))
    return Page.of(
        result,
        title="What if: caches and layouts",
        subtitle=f"{result.runs:g} runs · writes {result.writes}",
        figures=figures,
    )


PAGES = {
    "trace_model": trace_page,
    "trace_levels": levels_page,
    "trace_half_drift": drift_page,
    "trace_time_scales": scales_page,
    "trace_fidelity": trace_fidelity_page,
    "trace_replay": trace_replay_page,
    "trace_what_if": trace_whatif_page,
}


def plot_places(model: TraceModel, trace: Batches, ax: Axes | None = None) -> Axes:
    """Draw a heat map of the first requests by time and address, over the space of a model."""
    times, addresses, left = [], [], _MOST_PLOTTED
    for batch in columns(trace):
        times.append(batch.time_s[:left])
        addresses.append(batch.lbn[:left] * 512 / 1e9)
        left -= len(times[-1])
        if left <= 0:
            break
    time_s = np.concatenate(times)
    span = (float(time_s[0]), float(max(time_s[-1], time_s[0] + 1e-9)))
    space = (model.survey.low_lbn * 512 / 1e9, model.survey.high_lbn * 512 / 1e9)
    counts = np.histogram2d(time_s, np.concatenate(addresses), bins=(120, 80), range=[span, space])[
        0
    ]
    shades = np.where(counts > 0, np.log1p(counts), np.nan).T
    ax = new_axes(ax)
    ax.imshow(shades, origin="lower", aspect="auto", cmap="Blues", extent=(*span, *space))
    ax.set_xlabel("time (s)")
    ax.set_ylabel("address (GB)")
    return ax


def plot_inter_arrival_times(model: TraceModel, ax: Axes | None = None) -> Axes:
    """Draw the distribution of inter-arrival times within streams."""
    ax, rng = new_axes(ax), np.random.default_rng(0)
    count = model.counts.count
    which = rng.choice(len(count), _MOST_PLOTTED // 4, p=count / count.sum())
    gaps = np.sort(model.laws.draw(which, rng))
    ax.plot(np.maximum(gaps, model.survey.tick_s), np.linspace(0, 1, len(gaps)), color=CURVE)
    ax.set_xscale("log")
    ax.set_xlabel("inter-arrival time (s)")
    ax.set_ylabel("share of gaps below")
    return ax


def plot_windows(model: TraceModel, ax: Axes | None = None) -> Axes:
    """Draw the rate of requests over time, by the windows whose counts are kept."""
    ax, counts = new_axes(ax), model.cascade.counts
    width = model.cascade.windows.duration_s / len(counts)
    ax.step(np.arange(len(counts)) * width, counts / width, where="post", color=MEASURED, lw=0.8)
    ax.set_xlabel("time (s)")
    ax.set_ylabel(f"requests a second, by {width:.3g} s")
    return ax


def plot_offsets(result: TraceFidelity, ax: Axes | None = None) -> Axes:
    """Draw each figure's offset as a share of its tolerance."""
    axes = new_axes(ax)
    rows = result.table[result.table["tolerance"].notna()]
    taken = (rows["off"].abs() / rows["tolerance"]).to_numpy()
    place = np.arange(len(rows))[::-1]
    axes.barh(place, np.minimum(taken, 2), color=[_COLORS[v] for v in rows["verdict"]])
    axes.axvline(1, color=MEASURED, lw=1)
    axes.set_yticks(place, [plot_label(name) for name in rows["figure"]], fontsize=6)
    axes.set_xlim(0, 2)
    axes.set_xlabel("offset over tolerance, cut at 2")
    return axes


def plot_speed_ups(result: TraceWhatIf, ax: Axes | None = None) -> Axes:
    """Draw the speed-up of every option, with its range over the runs."""
    axes, table = new_axes(ax), result.table
    place, value = np.arange(len(table))[::-1], table["speed_up"]
    reach = np.maximum([value - table["lower"], table["upper"] - value], 0)
    labels = [plot_label(name, most=80).replace(", ", ",\n", 1) for name in table["option"]]
    axes.barh(place, value, color=BAND)
    axes.errorbar(value, place, xerr=reach, fmt="none", color=MEASURED, capsize=3)
    axes.axvline(1, color=MEASURED, lw=0.8)
    axes.set_yticks(place, labels)
    axes.set_xlabel("speed-up (times)")
    return axes
