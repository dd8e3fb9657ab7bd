"""The page of `ppw.fit_trace`: the state diagram, where and when requests went, their gaps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fitting.storage.interarrival import KNOTS
from ppw.results.axes import BAND, BEST, CURVE, MEASURED, PROJECTED, new_axes
from ppw.results.page import Figure, Page, Table, draw
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
_DRAWN = 100_000


def trace_page(model: TraceModel, original: Batches | None = None) -> Page:
    """Report of `ppw.fit_trace`; with the trace itself, its places are drawn beside."""
    places = [Figure(draw(partial(plot_places, model)), "Regenerated, not measured.")]
    if original is not None:
        found = partial(plot_trace_places, original, model)
        places.insert(0, Figure(draw(found), "The original, as it was recorded."))
    pairs = model.state_pairs().sort_values("count", ascending=False).head(_MOST_ROWS)
    rows = [[_cell(value) for value in row] for row in pairs.itertuples(index=False)]
    return Page(
        title="Storage workload model",
        subtitle=f"input {model.input_digest[:19]}",
        verdict=model.summary().splitlines()[:3],
        figures=[
            Figure(draw(model.plot), "Share of requests from state to state."),
            *places,
            Figure(
                draw(partial(plot_gaps, model)),
                f"All streams, by their laws; empirical ones by {len(KNOTS)} quantiles.",
            ),
            Figure(draw(partial(plot_windows, model)), "As it was in the trace."),
        ],
        tables=[Table("Pairs of states, the most frequent", list(pairs.columns), rows, 5)],
        caveats=model.caveats,
        document=model.to_json(),
    )


def levels_page(choice: LevelChoice) -> Page:
    """Report of `ppw.choose_level`."""
    rows = [[_cell(value) for value in row] for row in choice.table.itertuples(index=False)]
    return Page(
        title="Levels of a storage workload model",
        subtitle=f"input {choice.input_digest[:19]}",
        verdict=[line for line in choice.summary().splitlines() if line.startswith("level ")][1:],
        figures=[
            Figure(draw(choice.plot), "IOPS as a device completes them; held-out likelihood.")
        ],
        tables=[Table("Levels", list(choice.table.columns), rows, 1)],
        caveats=choice.caveats,
        document=choice.to_json(),
    )


def drift_page(drift: HalfDrift) -> Page:
    """Report of `ppw.half_drift`."""
    return _table_page(drift, "A workload's halves", drift.summary().splitlines()[:1], 1)


def scales_page(scales: TimeScales) -> Page:
    """Report of `ppw.time_scales`."""
    return _table_page(scales, "Throughput against time scale", [scales.verdict()], 0)


def _table_page(
    result: HalfDrift | TimeScales, title: str, verdict: list[str], text_columns: int
) -> Page:
    rows = [[_cell(value) for value in row] for row in result.table.itertuples(index=False)]
    return Page(
        title=title,
        subtitle=f"input {(result.input_digest or '')[:19]}",
        verdict=verdict,
        figures=[Figure(draw(result.plot), "Computed, not measured.")],
        tables=[Table("Figures", list(result.table.columns), rows, text_columns)],
        caveats=result.caveats,
        document=result.to_json(),
    )


def plot_places(model: TraceModel, ax: Axes | None = None) -> Axes:
    """Draw a heat map of logical block number by time, of requests generated."""
    count = min(_DRAWN, model.survey.requests)
    return _heat_map(generate_trace(model, count=count), model, new_axes(ax))


def plot_trace_places(trace: Batches, model: TraceModel, ax: Axes | None = None) -> Axes:
    """Draw the same of a trace, of as long a part of it."""
    return _heat_map(trace, model, new_axes(ax))


def _heat_map(trace: Batches, model: TraceModel, ax: Axes) -> Axes:
    """Count the first requests by time and address, over the space of the model."""
    time, lbn, taken = [], [], 0
    for batch in columns(trace):
        time.append(batch.time_s[: _DRAWN - taken])
        lbn.append(batch.lbn[: _DRAWN - taken])
        taken += len(time[-1])
        if taken >= _DRAWN:
            break
    space = (model.survey.low_lbn * 512 / 1e9, model.survey.high_lbn * 512 / 1e9)
    at = np.concatenate(time)
    extent = [(float(at[0]), float(max(at[-1], at[0] + 1e-9))), space]
    places = np.concatenate(lbn) * 512 / 1e9
    counts = np.histogram2d(at, places, bins=(120, 80), range=extent)[0]
    shown = np.where(counts > 0, np.log1p(counts), np.nan).T
    ax.imshow(shown, origin="lower", aspect="auto", cmap="Blues", extent=(*extent[0], *extent[1]))
    ax.set_xlabel("time (s)")
    ax.set_ylabel("address (GB)")
    return ax


def plot_gaps(model: TraceModel, ax: Axes | None = None) -> Axes:
    """Draw the distribution of inter-arrival times within streams."""
    ax, rng = new_axes(ax), np.random.default_rng(0)
    count = model.counts.count
    which = rng.choice(len(count), _DRAWN // 4, p=count / count.sum())
    gaps = np.sort(model.laws.draw(which, rng))
    ax.plot(np.maximum(gaps, model.survey.tick_s), np.linspace(0, 1, len(gaps)), color=CURVE)
    ax.set_xscale("log")
    ax.set_xlabel("inter-arrival time (s)")
    ax.set_ylabel("share of gaps below")
    return ax


def plot_windows(model: TraceModel, ax: Axes | None = None) -> Axes:
    """Draw the rate of requests over time, by the windows whose counts are kept."""
    ax, cascade = new_axes(ax), model.cascade
    width = cascade.windows.duration_s / len(cascade.counts)
    at = np.arange(len(cascade.counts)) * width
    ax.step(at, cascade.counts / width, where="post", color=MEASURED, lw=0.8)
    ax.set_xlabel("time (s)")
    ax.set_ylabel(f"requests a second, by {width:.3g} s")
    return ax


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# The report page of a synthetic trace beside its original, and its plots.


_COLORS = {"pass": BEST, "fail": PROJECTED, "–": MEASURED}


def trace_fidelity_page(result: TraceFidelity) -> Page:
    """Report of `ppw.validate_trace`."""
    judged = int(result.table["tolerance"].notna().sum())
    figures = [
        Figure(draw(result.plot), "Hit ratio of LRU caches by their share of the footprint."),
        Figure(
            draw(lambda ax: plot_offsets(result, ax), height=1.2 + 0.17 * judged),
            "How much of its tolerance each figure takes; the line is the tolerance.",
        ),
    ]
    return Page(
        title="Synthetic trace against its original",
        subtitle=f"{result.synthetic_traces:g} synthetic · {result.device.partition(':')[0]} model "
        f"· input {result.input_digest}",
        verdict=result.verdict(),
        figures=figures,
        tables=[
            Table("Figures", result.header(), result.cells(), 1),
            Table("Threads", result.stream_header(), result.stream_cells(), 1),
        ],
        caveats=result.caveats,
        document=result.to_json(),
    )


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


# The report page of a replayed trace, and its plot.


def trace_replay_page(result: TraceReplay) -> Page:
    """Report of `ppw.replay_trace`."""
    return Page(
        title="Replayed trace",
        subtitle=f"{result.fio_version}, {result.engine} · input {result.input_digest}",
        verdict=result.verdict(),
        figures=[Figure(draw(result.plot), "Requests a second, stage by stage.")],
        tables=[Table("Stages", result.header(), result.cells(), 1)],
        caveats=result.caveats,
        document=result.to_json(),
    )


# The report page of options for a traced load, and its plots.


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
