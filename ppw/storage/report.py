"""Pages of results about block traces, and the plots that only pages have."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fitting.storage.interarrival import KNOTS
from ppw.results import axes, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.results.page import Figure, Page, draw
from ppw.storage import fidelity, generate, trace_source as ts, what_if
from ppw.storage.trace_model import TraceModel
from ppw.storage.trace_source import Batches

# Pairs of states of a table.
_MOST_ROWS = 200
# Requests of a heat map.
_MOST_PLOTTED = 100_000
_COLORS = {"pass": axes.BEST, "fail": axes.PROJECTED, "–": axes.MEASURED}


def trace_page(model: TraceModel, original: Batches | None = None) -> Page:
    """Report of `ppw.fit_trace`; with the trace itself, its places are drawn beside."""
    made = generate.generate_trace(model, count=min(_MOST_PLOTTED, model.survey.requests))
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
        subtitle="",
        verdict=model.summary().splitlines()[:3],
        figures=[
            Figure(draw(model.plot), "Share of the requests that go from one state to another."),
            Figure(
                draw(partial(model.plot, conditional=True)),
                "P(next | state): of the requests that leave a state, the share that go to each.",
            ),
            *places,
            Figure(
                draw(partial(plot_inter_arrival_times, model)),
                f"All streams by their inter-arrival laws; empirical laws by {len(KNOTS)} "
                "quantiles.",
            ),
            Figure(draw(partial(plot_windows, model)), "Load as recorded in the trace."),
        ],
        tables=[
            rs.PrintedTable("Pairs of states, the most frequent", list(pairs.columns), rows, 5)
        ],
        caveats=model.caveats,
        document=model.to_json(),
        digest=model.input_digest,
    )


def plot_page(result: Any, title: str, caption: str, **texts: Any) -> Page:
    """Make the page of a result with one plot; ``texts`` as `Page.of` takes them."""
    return Page.of(result, title=title, figures=[Figure(draw(result.plot), caption)], **texts)


def trace_fidelity_page(result: fidelity.TraceFidelity) -> Page:
    """Report of `ppw.validate_trace`."""
    judged = int(result.table["tolerance"].notna().sum())
    offsets = draw(partial(plot_offsets, result), height=1.2 + 0.17 * judged)
    taken = "Difference of each figure as a share of its tolerance; the line is the tolerance."
    hits = "Hit ratio of LRU caches by their share of the footprint."
    return Page.of(
        result,
        title="Synthetic trace against its original",
        subtitle=f"{result.synthetic_traces:g} synthetic · {result.device.partition(':')[0]} model",
        figures=[Figure(draw(result.plot), hits), Figure(offsets, taken)],
    )


def trace_whatif_page(result: what_if.TraceWhatIf) -> Page:
    """Report of `ppw.trace_what_if`."""
    speed_ups = draw(partial(plot_speed_ups, result), height=1.2 + 0.3 * len(result.table))
    caption = (
        "Speed-up of each option compared with the present storage; whiskers are the smallest "
        "and largest of the simulations."
    )
    figures = [Figure(speed_ups, caption)]
    hits = "Hits of an LRU cache by its size (line), and of the simulated caches (points)."
    if (result.table["kind"] == "cache").any():
        figures.insert(0, Figure(draw(result.plot), hits))
    return Page.of(
        result,
        title="What if: caches and layouts",
        subtitle=f"{result.runs:g} runs · writes {result.writes}",
        figures=figures,
    )


def plot_places(model: TraceModel, trace: Batches, ax: Axes | None = None) -> Axes:
    """Draw a heat map of the first requests by time and address, over the space of a model."""
    places, left = [], _MOST_PLOTTED
    for batch in ts.columns(trace):
        places.append((batch.time_s[:left], batch.lbn[:left] * 512 / 1e9))
        left -= len(batch.time_s)
        if left <= 0:
            break
    time_s, at = map(np.concatenate, zip(*places, strict=True))
    span = (float(time_s[0]), float(max(time_s[-1], time_s[0] + 1e-9)))
    space = (model.survey.low_lbn * 512 / 1e9, model.survey.high_lbn * 512 / 1e9)
    counts, *_ = np.histogram2d(time_s, at, bins=(120, 80), range=[span, space])
    shades = np.where(counts > 0, np.log1p(counts), np.nan).T
    ax = axes.new_axes(ax)
    ax.imshow(shades, origin="lower", aspect="auto", cmap="Blues", extent=(*span, *space))
    ax.set(xlabel="time (s)", ylabel="address (GB)")
    return ax


def plot_inter_arrival_times(model: TraceModel, ax: Axes | None = None) -> Axes:
    """Draw the distribution of inter-arrival times within streams."""
    ax, rng = axes.new_axes(ax), np.random.default_rng(0)
    count = model.counts.count
    which = rng.choice(len(count), _MOST_PLOTTED // 4, p=count / count.sum())
    gaps = np.sort(model.laws.draw(which, rng))
    ax.plot(np.maximum(gaps, model.survey.tick_s), np.linspace(0, 1, len(gaps)), color=axes.CURVE)
    ax.set(xscale="log", xlabel="inter-arrival time (s)", ylabel="share of gaps below")
    return ax


def plot_windows(model: TraceModel, ax: Axes | None = None) -> Axes:
    """Draw the rate of requests over time, by spans of equally many requests."""
    ax, passages = axes.new_axes(ax), model.passages
    rate = passages.number / np.maximum(np.diff(passages.begin_s), model.survey.tick_s)
    ax.step(passages.begin_s[:-1], rate, where="post", color=axes.MEASURED, lw=0.8)
    number = int(passages.number[0])
    ax.set(xlabel="time (s)", ylabel=f"requests per second, by {number} requests")
    return ax


def plot_offsets(result: fidelity.TraceFidelity, ax: Axes | None = None) -> Axes:
    """Draw each figure's offset as a share of its tolerance."""
    ax = axes.new_axes(ax)
    rows = result.table[result.table["tolerance"].notna()]
    taken = (rows["off"].abs() / rows["tolerance"]).to_numpy()
    place = np.arange(len(rows))[::-1]
    ax.barh(place, np.minimum(taken, 2), color=[_COLORS[v] for v in rows["verdict"]])
    ax.axvline(1, color=axes.MEASURED, lw=1)
    ax.set_yticks(place, [tx.plot_label(name) for name in rows["figure"]], fontsize=6)
    ax.set(xlim=(0, 2), xlabel="offset over tolerance, cut at 2")
    return ax


def plot_speed_ups(result: what_if.TraceWhatIf, ax: Axes | None = None) -> Axes:
    """Draw the speed-up of every option, with its range over the runs."""
    ax, table = axes.new_axes(ax), result.table
    place, value = np.arange(len(table))[::-1], table["speed_up"]
    reach = np.maximum([value - table["lower"], table["upper"] - value], 0)
    labels = [tx.plot_label(name, most=80).replace(", ", ",\n", 1) for name in table["option"]]
    ax.barh(place, value, color=axes.BAND)
    ax.errorbar(value, place, xerr=reach, fmt="none", color=axes.MEASURED, capsize=3)
    ax.axvline(1, color=axes.MEASURED, lw=0.8)
    ax.set_yticks(place, labels)
    ax.set_xlabel("speed-up (times)")
    return ax


PAGES: dict[str, Callable[..., Page]] = {
    "trace_model": trace_page,
    "trace_levels": lambda result: plot_page(
        result,
        "Levels of a storage workload model",
        "IOPS that a device completes; likelihood of the second half of the trace.",
    ),
    "trace_miss_ratios": lambda result: plot_page(
        result, "Miss ratios of caches", "By request (lines) and by byte (dashed)."
    ),
    "trace_drift": lambda result: plot_page(
        result, "Parts of a load", "Requests per second of each part."
    ),
    "trace_half_drift": lambda result: plot_page(
        result,
        "A workload's halves",
        "Computed, not measured.",
        verdict=[result.text_parts()[0], *result.verdict()],
    ),
    "trace_time_scales": lambda result: plot_page(
        result, "Throughput against time scale", "Computed, not measured."
    ),
    "trace_fidelity": trace_fidelity_page,
    "trace_replay": lambda result: plot_page(
        result,
        "Replayed trace",
        "Requests per second of each stage.",
        subtitle=f"{result.fio_version}, {result.engine}",
    ),
    "trace_what_if": trace_whatif_page,
}
