"""What one channel drew in each interval, as expressions that an engine computes.

The same sums, limits and refusals as `measurements.power.energy.drawn_between` has for one run in
memory, for all runs at once: readings inside a run make trapezoids with level ends, means over a
window count once and only inside the run, counters are unwrapped and interpolated at its ends.
What cannot be known is null, and says why.

Samples have ``host``, ``label``, ``at_s``, ``value`` (W, or J for a counter) and, where the sensor
has a clock of its own, ``own_s``. Intervals have ``host``, ``start_s``, ``end_s``. Answers have a
row an interval and label of its host: ``energy_j`` (J), ``power_w`` (W), ``readings``, ``gap_s``
(s, the longest time of the run without a reading) and ``reason``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.compiled.loops import compiled
from measurements.power.energy import AT_ENDS_S, OUTSIDE_SHARE
from ppw.fleet.telemetry_pairs import points_in, segments_in

if TYPE_CHECKING:
    import ibis
    from numpy.typing import NDArray

KEYS = ("host", "start_s", "end_s", "label")
# Of a run: a longer part without a reading is told, and less that windows cover.
_MOST_UNSEEN = _LEAST_COVERED = 0.5


def of_moments(intervals: ibis.Table, samples: ibis.Table, width: float) -> ibis.Table:
    """Integrate momentary watts over each interval."""
    import ibis

    inside = points_in(intervals, samples, intervals.start_s, intervals.end_s, width)
    found = _everywhere(intervals, samples, _trapezoids(inside))
    length = found.end_s - found.start_s
    enough = found.readings >= 2
    gap = enough.ifelse(found.gap, length)
    few = ibis.literal("read ") + found.readings.cast("string") + " times during the run"
    unseen = ibis.literal("no reading for ") + _percent(gap / length) + " of the run"
    return _answer(
        found,
        energy=enough.ifelse(found.joules, ibis.null("float64")),
        gap=gap,
        reason=ibis.cases((~enough, few), (gap > _MOST_UNSEEN * length, unseen)),
    )


def _trapezoids(inside: ibis.Table) -> ibis.Table:
    """Joules between the readings of an interval, and as level as the nearest one to its ends."""
    import ibis

    order = ibis.window(group_by=KEYS, order_by=["at_s", "value"])
    inside = inside.mutate(
        before_s=inside.at_s.lag().over(order),
        before_w=inside.value.lag().over(order),
        after_s=inside.at_s.lead().over(order),
    )
    apart = inside.at_s - inside.before_s
    to_first, from_last = inside.at_s - inside.start_s, inside.end_s - inside.at_s
    return inside.group_by(KEYS).agg(
        readings=inside.count(),
        joules=(apart * (inside.value + inside.before_w) / 2).sum()
        + (inside.value * to_first).sum(where=inside.before_s.isnull())
        + (inside.value * from_last).sum(where=inside.after_s.isnull()),
        gap=ibis.greatest(apart.max(), to_first.min(), from_last.min()),
    )


def of_windows(
    intervals: ibis.Table, samples: ibis.Table, width: float, window_s: float
) -> ibis.Table:
    """Average means over a window, each once, that lie inside the interval."""
    import ibis

    fresh = _fresh_by_clock(samples) if "own_s" in samples.columns else _fresh(samples, window_s)
    low = intervals.start_s + (1 - OUTSIDE_SHARE) * window_s
    inside = points_in(intervals, fresh, low, intervals.end_s, width)
    found = _everywhere(intervals, samples, _means(inside, window_s))
    length = found.end_s - found.start_s
    none = found.readings == 0
    covered = ibis.least(found.readings * window_s / length, 1.0)
    no_window = ibis.literal(f"no mean of {window_s:g} s lies in the run")
    share = ibis.literal("readings cover ") + _percent(covered) + " of the run"
    return _answer(
        found,
        energy=found.watts * length,
        gap=none.ifelse(length, found.gap),
        reason=ibis.cases((none, no_window), (covered < _LEAST_COVERED, share)),
    )


def _means(inside: ibis.Table, window_s: float) -> ibis.Table:
    """Mean of the windows of an interval, and the longest part of it that none covers."""
    import ibis

    order = ibis.window(group_by=KEYS, order_by=["at_s", "value"])
    inside = inside.mutate(apart=inside.at_s - inside.at_s.lag().over(order))
    return inside.group_by(KEYS).agg(
        readings=inside.count(),
        watts=inside.value.mean(),
        gap=ibis.greatest(
            inside.apart.max().fill_null(0.0) - window_s,
            (inside.at_s - inside.start_s).min() - window_s,
            (inside.end_s - inside.at_s).min(),
            0.0,
        ),
    )


def of_counters(
    intervals: ibis.Table,
    samples: ibis.Table,
    width: float,
    range_j: float | None,
    most_w: float,
) -> ibis.Table:
    """Energy between the ends of each interval, by a counter read around them."""
    import ibis

    order = ibis.window(group_by=["host", "label"], order_by=["at_s", "value"])
    steps = samples.mutate(
        next_s=samples.at_s.lead().over(order),
        raw_step=samples.value.lead().over(order) - samples.value,
    )
    near = segments_in(intervals, steps.filter(steps.next_s.notnull()), AT_ENDS_S, width)
    # As many readings as lie near the run, and one before and one after it, whenever they were.
    near = near.filter(
        (near.at_s >= near.start_s - AT_ENDS_S) | (near.next_s > near.start_s),
        (near.next_s <= near.end_s + AT_ENDS_S) | (near.at_s < near.end_s),
    )
    found = _everywhere(intervals, samples, _of_steps(near, range_j, most_w))
    found = found.mutate(readings=found.readings + 1)
    length = found.end_s - found.start_s
    seen = ibis.least(found.end_s, found.last_s) - ibis.greatest(found.start_s, found.first_s)
    late = (found.first_s > found.start_s + AT_ENDS_S) | (found.last_s < found.end_s - AT_ENDS_S)
    reason = ibis.cases(
        ((found.readings < 2) | late, "not read at both ends of the run"),
        *_untrusted(found, range_j),
        (found.joules == 0, "the counter did not move in the run"),
    )
    return _answer(
        found,
        energy=reason.isnull().ifelse(found.joules * length / seen, ibis.null("float64")),
        gap=found.gap.fill_null(length),
        reason=reason,
    )


def _of_steps(near: ibis.Table, range_j: float | None, most_w: float) -> ibis.Table:
    """Sums over the steps of a counter near each interval."""
    import ibis

    apart = near.next_s - near.at_s
    down = near.raw_step < 0
    step = near.raw_step if range_j is None else near.raw_step + down.ifelse(range_j, 0.0)
    # A step without length, two readings at one time, is taken at that time.
    inside = ibis.least(near.next_s, near.end_s) - ibis.greatest(near.at_s, near.start_s)
    at_once = (near.at_s > near.start_s) & (near.at_s <= near.end_s)
    share = (apart > 0).ifelse(
        ibis.greatest(inside, 0.0) / (apart > 0).ifelse(apart, 1.0), at_once.ifelse(1.0, 0.0)
    )
    set_back = (down & (step > most_w * (apart + AT_ENDS_S))) | (step < 0)
    return near.group_by(KEYS).agg(
        readings=near.count(),
        joules=(step * share).sum(),
        first_s=near.at_s.min(),
        last_s=near.next_s.max(),
        gap=ibis.greatest(inside, 0.0).max(),
        falls=down.cast("int64").sum(),
        unseen=(apart * most_w > (np.inf if range_j is None else range_j)).cast("int64").sum(),
        set_back=set_back.cast("int64").sum(),
    )


def _untrusted(found: ibis.Table, range_j: float | None) -> list[tuple[Any, str]]:
    if range_j is None:
        return [(found.falls > 0, "the counter went back, and it has no range to wrap at")]
    return [
        (found.unseen > 0, "the counter may have wrapped unseen between two readings"),
        (found.set_back > 0, "the counter was set back, which is no wrap"),
    ]


def _everywhere(intervals: ibis.Table, samples: ibis.Table, found: ibis.Table) -> ibis.Table:
    """Add the intervals without a reading, for every label that their host has."""
    labels = samples.select("host", "label").distinct()
    every = intervals.join(labels, "host").select(*KEYS)
    both = every.left_join(found, KEYS)
    kept = both.select(*KEYS, *(c for c in found.columns if c not in KEYS))
    return kept.mutate(readings=kept.readings.fill_null(0))


def _answer(found: ibis.Table, *, energy: Any, gap: Any, reason: Any) -> ibis.Table:
    import ibis

    return found.select(
        *KEYS,
        "readings",
        energy_j=energy,
        power_w=energy / (found.end_s - found.start_s),
        gap_s=gap,
        reason=found.label + ibis.literal(": ") + reason,
    )


def _percent(share: Any) -> Any:
    return (share * 100).round().cast("int64").cast("string") + "%"


def _fresh_by_clock(samples: ibis.Table) -> ibis.Table:
    """Readings whose own time is not that of the one before."""
    import ibis

    order = ibis.window(group_by=["host", "label"], order_by=["at_s", "value", "own_s"])
    told = samples.mutate(told_s=samples.own_s.lag().over(order))
    return told.filter(told.told_s.isnull() | (told.own_s != told.told_s)).drop("told_s", "own_s")


def _fresh(samples: ibis.Table, window_s: float) -> ibis.Table:
    """Readings that are no repetition: another figure, or a window later than the one kept last.

    Which of equal figures is kept depends on the one kept before it, which no window function
    knows: what is told a window after its stretch began goes through compiled code, a list of
    times a stretch.
    """
    import ibis
    import ibis.expr.datatypes as dt

    def kept(lists: Any) -> Any:
        return _kept(lists, window_s)

    times = dt.Array(dt.float64)
    kept_times = ibis.udf.scalar.pyarrow(signature=((times,), times))(kept)
    columns = ("host", "label", "value", "at_s")
    told = _stretches(samples)
    late = told.filter(~told.new, told.at_s - told.head_s >= window_s)
    lists = late.group_by("host", "label", "stretch", "value").agg(times=late.at_s.collect().sort())
    again = lists.mutate(at_s=kept_times(lists.times).unnest())
    return told.filter(told.new).select(*columns).union(again.select(*columns))


def _stretches(samples: ibis.Table) -> ibis.Table:
    """Number stretches of equal figures; and when each began, which is a reading of its own."""
    import ibis

    streams = {"group_by": ["host", "label"], "order_by": ["at_s", "value"]}
    before = samples.value.lag().over(ibis.window(**streams))
    marked = samples.mutate(new=before.isnull() | (samples.value != before))
    so_far = ibis.window(**streams, following=0)
    return marked.mutate(
        stretch=marked.new.cast("int64").sum().over(so_far),
        head_s=marked.new.ifelse(marked.at_s, ibis.null("float64")).max().over(so_far),
    )


def _kept(lists: Any, window_s: float) -> Any:
    """Of each list of times, in order, those a window or more after the last one kept.

    DuckDB gives many lists at once, as an array of Arrow's; Spark one.
    """
    import pyarrow as pa

    if not isinstance(lists, (pa.Array, pa.ChunkedArray)):
        times = np.asarray(lists, dtype=np.float64)
        return times[_keep(times, np.array([0, len(times)]), window_s)].tolist()
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    ends = (lists.offsets.to_numpy() - lists.offsets[0].as_py()).astype(np.int64)
    times = lists.flatten().to_numpy(zero_copy_only=False)
    keep = _keep(times, ends, window_s)
    offsets = np.concatenate([[0], np.cumsum(keep)])[ends]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(times[keep]))


@compiled
def _keep(
    times: NDArray[np.float64], ends: NDArray[np.int64], window_s: float
) -> NDArray[np.bool_]:
    keep = np.zeros(len(times), dtype=np.bool_)
    for i in range(len(ends) - 1):
        last = -np.inf
        for k in range(ends[i], ends[i + 1]):
            if times[k] - last >= window_s:
                keep[k] = True
                last = times[k]
    return keep
