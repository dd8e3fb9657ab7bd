"""`join_power`: watts and joules of every run, from samples that a monitor kept of its host.

Prometheus, a BMC's logger or a meter write a row a reading; a runs table says when each run was.
Both are joined in the engine, by host and time on one clock, with the rules that `ppw measure` has
for a single run (`measurements.power.energy`): what a sensor did not see is missing and said, never
0 and never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fitting.compiled.loops import jit
from measurements.power.energy import AT_ENDS_S, MOST_W, OUTSIDE_SHARE
from measurements.table.writing import replace_whole
from ppw.errors import PpwError
from ppw.fleet.engine import BaseBackend, Fault, engine_errors, first_line, ibis, is_spark
from ppw.fleet.run_files import FileKind, by_kind, find_files, register_table, scan, seconds

# Which pieces of telemetry meet which runs: an interval join that every engine can hash.
#
# Engines join by equality. Time is cut in buckets about as long as a run is on average, and a run
# is paired with what shares a host and a bucket with it: runs fill at most two buckets each on
# average, so the pairs to look at grow with the rows and not with their product.

# Shorter buckets save nothing: sensors seldom say more than once a second.
_LEAST_BUCKET_S = 1.0


def points_in(
    intervals: ibis.Table, points: ibis.Table, low: Any, high: Any, width: float
) -> ibis.Table:
    """Pair each point in time with the intervals of its host that contain it, ends included."""
    spread = _repeat_rows(intervals.mutate(low_s=low, high_s=high), "low_s", "high_s", width)
    points = points.mutate(bucket=_bucket_number(points.at_s, width))
    pairs = spread.join(points, ["host", "bucket"])
    return pairs.filter(pairs.at_s >= pairs.low_s, pairs.at_s <= pairs.high_s)


def segments_in(
    intervals: ibis.Table, segments: ibis.Table, reach_s: float, width: float
) -> ibis.Table:
    """Pair each segment with its host's intervals within ``reach_s``, in their first bucket."""
    near = intervals.mutate(low_s=intervals.start_s - reach_s, high_s=intervals.end_s + reach_s)
    near = near.mutate(first_a=_bucket_number(near.low_s, width))
    a = _repeat_rows(near, "low_s", "high_s", width)
    b = segments.mutate(first_b=_bucket_number(segments.at_s, width))
    pairs = a.join(_repeat_rows(b, "at_s", "next_s", width), ["host", "bucket"])
    first = (pairs.first_a > pairs.first_b).ifelse(pairs.first_a, pairs.first_b)
    near_run = pairs.at_s <= pairs.high_s, pairs.next_s >= pairs.low_s
    return pairs.filter(pairs.bucket == first, *near_run)


def _repeat_rows(table: ibis.Table, low: str, high: str, width: float) -> ibis.Table:
    """Repeat each row for every bucket between the times in two of its columns."""
    first, last = _bucket_number(table[low], width), _bucket_number(table[high], width)
    return table.mutate(bucket=ibis.range(first, last + 1).unnest())


def _bucket_number(seconds: Any, width: float) -> Any:
    return (seconds / width).floor().cast("int64")


# What one channel drew in each interval, as expressions that an engine computes.
#
# The same sums, limits and refusals as `measurements.power.energy` has for one run in memory, for
# all runs at once: readings inside a run make trapezoids with level ends, means over a window count
# once and only inside the run, counters are unwrapped and interpolated at its ends. What cannot be
# known is null, and says why.
#
# Samples have ``host``, ``label``, ``at_s``, ``value`` (W, or J for a counter) and, where the
# sensor has a clock of its own, ``own_s``. Intervals have ``host``, ``start_s``, ``end_s``. Answers
# have a row an interval and label of its host: ``energy_j`` (J), ``power_w`` (W), ``readings``,
# ``gap_s`` (s, the longest time of the run without a reading) and ``reason``.
KEYS = ("host", "start_s", "end_s", "label")
# Of a run: a longer part without a reading is told, and less that windows cover.
_MOST_UNSEEN = _LEAST_COVERED = 0.5


def energy_of_moments(intervals: ibis.Table, samples: ibis.Table, width: float) -> ibis.Table:
    """Integrate momentary power (W) over each interval by trapezoids: energy (J)."""
    inside = points_in(intervals, samples, intervals.start_s, intervals.end_s, width)
    found = _add_unread(intervals, samples, _trapezoids(inside))
    length = found.end_s - found.start_s
    enough = found.readings >= 2
    gap = enough.ifelse(found.gap, length)
    few = ibis.literal("read ") + found.readings.cast("string") + " times during the run"
    unseen = ibis.literal("no reading for ") + _percent_text(gap / length) + " of the run"
    return _select_energy_columns(
        found,
        energy=enough.ifelse(found.joules, ibis.null("float64")),
        gap=gap,
        reason=ibis.cases((~enough, few), (gap > _MOST_UNSEEN * length, unseen)),
    )


def _trapezoids(inside: ibis.Table) -> ibis.Table:
    """Energy (J) of each interval by trapezoids, level beyond its first and last readings."""
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


def energy_of_windows(
    intervals: ibis.Table, samples: ibis.Table, width: float, window_s: float
) -> ibis.Table:
    """Energy (J) of each interval by the mean of the window means that lie inside it."""
    has_clock = "own_s" in samples.columns
    fresh = _fresh_by_clock(samples) if has_clock else _fresh_by_figure(samples, window_s)
    low = intervals.start_s + (1 - OUTSIDE_SHARE) * window_s
    inside = points_in(intervals, fresh, low, intervals.end_s, width)
    found = _add_unread(intervals, samples, _mean_of_windows(inside, window_s))
    length = found.end_s - found.start_s
    none = found.readings == 0
    covered = ibis.least(found.readings * window_s / length, 1.0)
    no_window = ibis.literal(f"no mean of {window_s:g} s lies in the run")
    share = ibis.literal("readings cover ") + _percent_text(covered) + " of the run"
    return _select_energy_columns(
        found,
        energy=found.watts * length,
        gap=none.ifelse(length, found.gap),
        reason=ibis.cases((none, no_window), (covered < _LEAST_COVERED, share)),
    )


def _mean_of_windows(inside: ibis.Table, window_s: float) -> ibis.Table:
    """Mean power of the windows in each interval, and the longest gap (s) between them."""
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


def energy_of_counters(
    intervals: ibis.Table, samples: ibis.Table, width: float, range_j: float | None, most_w: float
) -> ibis.Table:
    """Energy (J) of each interval by an energy counter that was read at both its ends."""
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
    found = _add_unread(intervals, samples, _sum_counter_steps(near, range_j, most_w))
    found = found.mutate(readings=found.readings + 1)
    length = found.end_s - found.start_s
    seen = ibis.least(found.end_s, found.last_s) - ibis.greatest(found.start_s, found.first_s)
    late = (found.first_s > found.start_s + AT_ENDS_S) | (found.last_s < found.end_s - AT_ENDS_S)
    reason = ibis.cases(
        ((found.readings < 2) | late, "not read at both ends of the run"),
        *_counter_faults(found, range_j),
        (found.joules == 0, "the counter did not move in the run"),
    )
    return _select_energy_columns(
        found,
        energy=reason.isnull().ifelse(found.joules * length / seen, ibis.null("float64")),
        gap=found.gap.fill_null(length),
        reason=reason,
    )


def _sum_counter_steps(near: ibis.Table, range_j: float | None, most_w: float) -> ibis.Table:
    """Sum the counter's steps within each interval, with wraps, resets and gaps."""
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


def _counter_faults(found: ibis.Table, range_j: float | None) -> list[tuple[Any, str]]:
    """Conditions under which a counter is not trusted, each with its message."""
    if range_j is None:
        return [(found.falls > 0, "the counter decreased, and its range is not known")]
    return [
        (found.unseen > 0, "the counter may have wrapped unseen between two readings"),
        (found.set_back > 0, "the counter was reset"),
    ]


def _add_unread(intervals: ibis.Table, samples: ibis.Table, found: ibis.Table) -> ibis.Table:
    """Add the intervals without a reading, one row for each label of their host."""
    labels = samples.select("host", "label").distinct()
    every = intervals.join(labels, "host").select(*KEYS)
    both = every.left_join(found, KEYS)
    kept = both.select(*KEYS, *(c for c in found.columns if c not in KEYS))
    return kept.mutate(readings=kept.readings.fill_null(0))


def _select_energy_columns(found: ibis.Table, *, energy: Any, gap: Any, reason: Any) -> ibis.Table:
    return found.select(
        *KEYS,
        "readings",
        energy_j=energy,
        power_w=energy / (found.end_s - found.start_s),
        gap_s=gap,
        reason=found.label + ibis.literal(": ") + reason,
    )


def _percent_text(share: Any) -> Any:
    return (share * 100).round().cast("int64").cast("string") + "%"


def _fresh_by_clock(samples: ibis.Table) -> ibis.Table:
    """Drop readings that repeat the sensor's own time of the reading before."""
    order = ibis.window(group_by=["host", "label"], order_by=["at_s", "value", "own_s"])
    told = samples.mutate(told_s=samples.own_s.lag().over(order))
    return told.filter(told.told_s.isnull() | (told.own_s != told.told_s)).drop("told_s", "own_s")


def _fresh_by_figure(samples: ibis.Table, window_s: float) -> ibis.Table:
    """Drop readings that repeat the value of one kept less than a window before."""

    # Which of equal figures is kept depends on the one kept before it, which no window function
    # knows: what is told a window after its stretch began goes through compiled code.
    def keep_spaced(lists: Any) -> Any:
        return _spaced_times(lists, window_s)

    times = ibis.dtype("array<float64>")
    kept_times = ibis.udf.scalar.pyarrow(signature=((times,), times))(keep_spaced)
    columns = ("host", "label", "value", "at_s")
    told = _number_stretches(samples)
    late = told.filter(~told.new, told.at_s - told.head_s >= window_s)
    lists = late.group_by("host", "label", "stretch", "value").agg(times=late.at_s.collect().sort())
    again = lists.mutate(at_s=kept_times(lists.times).unnest())
    return told.filter(told.new).select(*columns).union(again.select(*columns))


def _number_stretches(samples: ibis.Table) -> ibis.Table:
    """Number the stretches of equal readings, and add the time (s) each began at."""
    streams = {"group_by": ["host", "label"], "order_by": ["at_s", "value"]}
    before = samples.value.lag().over(ibis.window(**streams))
    marked = samples.mutate(new=before.isnull() | (samples.value != before))
    so_far = ibis.window(**streams, following=0)
    return marked.mutate(
        stretch=marked.new.cast("int64").sum().over(so_far),
        head_s=marked.new.ifelse(marked.at_s, ibis.null("float64")).max().over(so_far),
    )


def _spaced_times(lists: Any, window_s: float) -> Any:
    """Keep of each list of times those at least ``window_s`` after the last one kept."""
    # DuckDB gives many lists at once, as an array of Arrow's; Spark one.
    if not isinstance(lists, (pa.Array, pa.ChunkedArray)):
        times = np.asarray(lists, dtype=np.float64)
        return times[_spaced_mask(times, np.array([0, len(times)]), window_s)].tolist()
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    ends = (lists.offsets.to_numpy() - lists.offsets[0].as_py()).astype(np.int64)
    times = lists.flatten().to_numpy(zero_copy_only=False)
    keep = _spaced_mask(times, ends, window_s)
    offsets = np.concatenate([[0], np.cumsum(keep)])[ends]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(times[keep]))


@jit
def _spaced_mask(
    times: NDArray[np.float64], ends: NDArray[np.int64], window_s: float
) -> NDArray[np.bool_]:
    """Mark the times of each list that are at least ``window_s`` after the last one marked."""
    keep = np.zeros(len(times), dtype=np.bool_)
    for i in range(len(ends) - 1):
        last = -np.inf
        for k in range(ends[i], ends[i + 1]):
            if times[k] - last >= window_s:
                keep[k] = True
                last = times[k]
    return keep


# Added to the runs; what the first four mean is in `measurements.schema`.
ADDED = ("power_w", "energy_j", "power_source", "power_label", "power_readings", "power_gap_s")
# Where a run began and ended, beside the columns that users have.
_START, _END = "ppw__start_s", "ppw__end_s"


@dataclass(frozen=True)
class Sensor:
    """What the samples of a fleet mean; the same for all of its hosts.

    Parameters
    ----------
    quantity : {"power", "energy"}
        Watts, or joules of a counter that only grows (but for its wraps).
    window_s : float
        A sample is the mean over so many seconds before it; 0 for momentary watts.
    range_j : float, optional
        Energy after which a counter begins again at 0; None for one that never does.
    most_w : float
        Watts that a channel will hardly exceed: sets how far apart readings of a counter may be
        for no wrap to be lost.
    source : str
        Who said it, for ``power_source``, such as ``ipmi:dcmi``.
    """

    quantity: Literal["power", "energy"] = "power"
    window_s: float = 0.0
    range_j: float | None = None
    most_w: float = MOST_W
    source: str = "telemetry"

    def __post_init__(self) -> None:
        if self.quantity not in ("power", "energy"):
            raise PpwError(f"quantity is {self.quantity!r}: give power or energy")
        if not (math.isfinite(self.window_s) and self.window_s >= 0):
            raise PpwError(f"the window is {self.window_s:g}: give 0 s or more")
        if not self.most_w > 0 or (self.range_j is not None and not self.range_j > 0):
            raise PpwError("the highest power (W) and the range (J) must be above 0")


def join_power(
    runs: ibis.Table,
    samples: ibis.Table,
    sensor: Sensor | None = None,
    *,
    offset_s: float | Mapping[str, float] = 0.0,
    labels: Sequence[str] | None = None,
) -> ibis.Table:
    """Add to each run what its host drew.

    Parameters
    ----------
    runs : ibis.Table
        With ``host``, ``started_at`` (time, or text in ISO 8601; UTC where it names no zone) and
        ``time_s``; where ``executions`` is there, the run took so many times ``time_s``.
    samples : ibis.Table
        Of the same connection, with ``host``, ``at`` (time, text in ISO 8601, or seconds since
        1970) and ``value`` (W, or J for a counter). ``label`` names the channel where a host has
        several, such as sockets, which are added; ``own`` is the sensor's own clock (s), by which
        a reading that is told again is known.
    sensor : Sensor, optional
        What the samples mean. Default: momentary watts.
    offset_s : float or mapping of host to float
        Seconds to add to the samples' times to have the time of the runs.
    labels : sequence of str, optional
        Channels to add up, where the samples hold others too. Never a channel and one inside it,
        such as a package and its cores.

    Returns
    -------
    ibis.Table
        The runs, with ``power_w`` (W, mean over the run), ``energy_j`` (J, of one execution),
        ``power_source``, ``power_label`` ("measured"), ``power_readings`` (different readings
        that it rests on), ``power_gap_s`` (s, the longest part of the run without a reading) and,
        in ``notes``, why watts are missing or what to mind. Nothing is computed before it is
        asked for, but for the mean length of the runs.

    Raises
    ------
    PpwError
        Where a column is missing, or the runs have power already.
    """
    sensor = sensor or Sensor()
    timed = _with_spans(runs)
    intervals = timed.select("host", start_s=timed[_START], end_s=timed[_END]).distinct()
    intervals = intervals.filter(intervals.host.notnull(), intervals.end_s > intervals.start_s)
    readings = readings_of(samples, sensor, offset_s, labels)
    drawn = _sum_channels(_energy_by_channel(intervals, readings, sensor))
    return _join_totals(timed, drawn, runs.columns, sensor)


def readings_of(
    samples: ibis.Table,
    sensor: Sensor,
    offset_s: float | Mapping[str, float] = 0.0,
    labels: Sequence[str] | None = None,
) -> ibis.Table:
    """Usable samples as host, label, at_s (by the runs' clock), value and own_s; power above 0."""
    _require_columns(samples, ("host", "at", "value"), "samples")
    label = samples.label if "label" in samples.columns else ibis.literal(sensor.source)
    value = samples.value.cast("float64")
    at = seconds(samples["at"])
    own = {"own_s": seconds(samples.own)} if "own" in samples.columns else {}
    plain = samples.select(
        host=samples.host.cast("string"), label=label.cast("string"), at_s=at, value=value, **own
    )
    least = plain.value > 0 if sensor.quantity == "power" else plain.value >= 0
    usable = least & (plain.value < math.inf) & (plain.at_s < math.inf) & plain.host.notnull()
    kept = plain.filter(usable, ~plain.value.isnan(), ~plain.at_s.isnan())
    if labels is not None:
        kept = kept.filter(kept.label.isin(list(labels)))
    if not isinstance(offset_s, Mapping):
        return kept.mutate(at_s=kept.at_s + float(offset_s))
    if not offset_s:
        return kept
    names, values = list(offset_s), [float(v) for v in offset_s.values()]
    table = register_table(kept.get_backend(), pa.table({"host": names, "offset_s": values}))
    both = kept.left_join(table, "host").drop("host_right")
    return both.mutate(at_s=both.at_s + both.offset_s.fill_null(0.0)).drop("offset_s")


def contradicting_hosts(
    runs: ibis.Table,
    samples: ibis.Table,
    sensor: Sensor | None = None,
    offset_s: float | Mapping[str, float] = 0.0,
) -> dict[str, str]:
    """Find hosts whose runs all lie outside the times of their samples: a message for each."""
    timed = _with_spans(runs)
    ours = timed.group_by("host").agg(start_s=timed[_START].min(), end_s=timed[_END].max())
    read = readings_of(samples, sensor or Sensor(), offset_s)
    theirs = read.group_by("host").agg(first_s=read.at_s.min(), last_s=read.at_s.max())
    both = ours.join(theirs, "host")
    apart = both.filter((both.last_s < both.start_s) | (both.first_s > both.end_s))
    found = {}
    for row in apart.order_by("host").to_pyarrow().to_pandas().itertuples():
        start, end, first, last = map(_utc_text, (row.start_s, row.end_s, row.first_s, row.last_s))
        found[row.host] = (
            f"its runs are from {start} to {end} and its samples from {first} to {last}: the "
            "clocks disagree, or the samples are from another time: give --offset, or the "
            "samples of these runs"
        )
    return found


def _utc_text(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _require_columns(table: ibis.Table, wanted: Sequence[str], what: str) -> None:
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise PpwError(
            f"{what}: no column {', '.join(missing)}; the columns are {', '.join(table.columns)}: "
            "rename the columns, or use --map"
        )


def _with_spans(runs: ibis.Table) -> ibis.Table:
    """Add the start and end of each run (s since 1970). Raises where runs have power already."""
    _require_columns(runs, ("host", "started_at", "time_s"), "runs")
    taken = [name for name in ADDED[:2] if name in runs.columns]
    if taken:
        raise PpwError(
            f"runs: {' and '.join(taken)} are there already: leave them out, or "
            "rename them, so that the power of two sensors is not mixed"
        )
    count = runs.executions.fill_null(1) if "executions" in runs.columns else 1
    start = seconds(runs.started_at)
    return runs.mutate(**{_START: start, _END: start + runs.time_s * count})


def _energy_by_channel(intervals: ibis.Table, readings: ibis.Table, sensor: Sensor) -> ibis.Table:
    mean = (intervals.end_s - intervals.start_s).mean().to_pyarrow().as_py()
    width = max(_LEAST_BUCKET_S, mean or 0.0)
    if sensor.quantity == "energy":
        return energy_of_counters(intervals, readings, width, sensor.range_j, sensor.most_w)
    if sensor.window_s > 0:
        return energy_of_windows(intervals, readings, width, sensor.window_s)
    return energy_of_moments(intervals, readings, width)


def _sum_channels(drawn: ibis.Table) -> ibis.Table:
    """Sum the power of each run's channels; NULL where one of them is not known."""
    span = ("host", "start_s", "end_s")
    total = drawn.group_by(span).agg(
        watts=drawn.power_w.sum(),
        known=drawn.energy_j.count(),
        channels=drawn.count(),
        readings=drawn.readings.min(),
        gap=drawn.gap_s.max(),
        reasons=drawn.reason.collect(where=drawn.reason.notnull()).sort(),
    )
    whole = total.known == total.channels
    return total.select(
        *span,
        drawn_w=whole.ifelse(total.watts, ibis.null("float64")),
        drawn_readings=total.readings,
        drawn_gap_s=total.gap,
        drawn_notes=total.reasons.join("; ").nullif(""),
    )


def _join_totals(
    timed: ibis.Table, drawn: ibis.Table, columns: Sequence[str], sensor: Sensor
) -> ibis.Table:
    """Add to each run the power, energy and notes of what its host drew, by host and time."""
    same = [timed.host == drawn.host, timed[_START] == drawn.start_s, timed[_END] == drawn.end_s]
    both = timed.left_join(drawn, same)
    known = both.drawn_w.notnull()
    none = ibis.literal(f"{sensor.source}: no reading with a figure")
    note = ibis.cases(
        (both[_START].isnull(), "started_at is no time"),
        (both.drawn_readings.isnull(), none),
        else_=both.drawn_notes,
    )
    if "notes" in columns:
        before = both.notes.cast("string")
        note = (before + ibis.literal("; ") + note).coalesce(note, before)
    kept = [both[name] for name in columns if name not in ("notes", *ADDED)]
    return both.select(
        *kept,
        power_w=both.drawn_w,
        energy_j=both.drawn_w * both.time_s,
        power_source=ibis.literal(sensor.source),
        power_label=known.ifelse("measured", ibis.null("string")),
        power_readings=both.drawn_readings.fill_null(0),
        power_gap_s=both.drawn_gap_s,
        notes=note,
    )


# Samples from files, and joined runs to one.
_NEEDED = ("host", "at", "value")
_COLUMNS = (*_NEEDED, "label", "own")


def open_samples(
    source: str | Path, connection: BaseBackend, columns: Mapping[str, str] | None = None
) -> tuple[ibis.Table, list[Fault]]:
    """Open samples in Parquet, CSV or JSON-lines files, or a folder of them, and name bad files.

    ``columns`` gives for ``host``, ``at``, ``value``, ``label`` and ``own`` the header of each;
    times become seconds since 1970. Raises `PpwError` where no file is left, or ``columns`` names
    something else.
    """
    names = {name: name for name in _COLUMNS} | dict(columns or {})
    if unknown := sorted(set(names) - set(_COLUMNS)):
        raise PpwError(f"samples have no column {unknown[0]}: map {', '.join(_COLUMNS)}")
    kinds, faults = _usable_files(str(source), names)
    if not kinds:
        raise PpwError(f"{source}: none of its files can be used; the first: {faults[0]}")
    there = {name for kind in kinds for name, _ in kind.columns or ()}
    wanted = [*_NEEDED, *(name for name in ("label", "own") if names[name] in there)]
    scans = (scan(connection, kind, files) for kind, files in kinds.items())
    parts = [_plain_columns(table, wanted, names) for table in scans]
    return reduce(lambda table, part: table.union(part), parts), faults


def _usable_files(
    source: str, names: Mapping[str, str]
) -> tuple[dict[FileKind, list[str]], list[Fault]]:
    """Sort sample files by format and columns; files without the needed columns are faults."""
    kinds, faults = by_kind(find_files(source))
    for kind in [kind for kind in kinds if kind.columns]:
        there = list(dict(kind.columns or ()))
        if missing := [names[name] for name in _NEEDED if names[name] not in there]:
            what = f"no column {', '.join(missing)}; the columns are {', '.join(there)}"
            what += ": map columns to these names with --map"
            faults += [Fault(file, what) for file in kinds.pop(kind)]
    return kinds, sorted(faults)


def _plain_columns(
    table: ibis.Table, wanted: Sequence[str], names: Mapping[str, str]
) -> ibis.Table:
    """Select the wanted columns as text, seconds or float64; NULL where there is none."""

    def typed_column(name: str) -> Any:
        if names[name] not in table.columns:
            return ibis.null("string" if name == "label" else "float64")
        found = table[names[name]]
        if name in ("at", "own"):
            return seconds(found)
        return found.cast("string") if name in ("host", "label") else found.try_cast("float64")

    return table.select(**{n: typed_column(n) for n in wanted})


def write_runs(runs: ibis.Table, path: Path) -> str:
    """Write runs as one Parquet file, by Spark as a folder; say how many have power."""
    if path.suffix != ".parquet":
        raise PpwError(f"{path}: is written as Parquet: give a name that ends in .parquet")
    engine = runs.get_backend()
    if is_spark(engine) and path.exists():
        raise PpwError(
            f"{path}: exists already, and Spark writes a folder there: give another name"
        )
    try:
        # Spark's own folder is where it was started, which need not be that of a relative path.
        with replace_whole(path.absolute()) as beside:
            runs.to_parquet(beside)
            watts = pq.read_table(beside, columns=["power_w"])["power_w"]
    except engine_errors(engine) as error:
        raise PpwError(f"{path}: the engine failed: {first_line(error)}") from error
    return f"{path}: {len(watts) - watts.null_count} of {len(watts)} runs have power"
