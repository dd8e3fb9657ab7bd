"""`join_power`: watts and joules of every run, from samples that a monitor kept of its host.

Prometheus, a BMC's logger or a meter write a row a reading; a runs table says when each run was.
Both are joined in the engine, by host and time on one clock, with the rules that `ppw measure` has
for a single run (`measurements.power.energy`): what a sensor did not see is missing and said, never
0 and never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from measurements.power.energy import MOST_W
from ppw.errors import PpwError
from ppw.fleet.source import registered
from ppw.fleet.telemetry_drawn import of_counters, of_moments, of_windows
from ppw.fleet.telemetry_pairs import bucket_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    import ibis

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
            raise PpwError("the most watts and the range (J) must be above 0")


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
        Where a column is missing, or the runs have watts already.
    """
    sensor = sensor or Sensor()
    timed = _with_spans(runs)
    intervals = timed.select("host", start_s=timed[_START], end_s=timed[_END]).distinct()
    intervals = intervals.filter(intervals.host.notnull(), intervals.end_s > intervals.start_s)
    drawn = _totals(_drawn(intervals, readings_of(samples, sensor, offset_s, labels), sensor))
    return _joined(timed, drawn, runs.columns, sensor)


def readings_of(
    samples: ibis.Table,
    sensor: Sensor,
    offset_s: float | Mapping[str, float] = 0.0,
    labels: Sequence[str] | None = None,
) -> ibis.Table:
    """Samples with a figure, on the clock of the runs: host, label, at_s, value, own_s if told.

    As in the measurement layer, watts that are not above 0 are none.
    """
    import ibis

    _check_columns(samples, ("host", "at", "value"), "samples")
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
    return _shifted(kept, offset_s)


def seconds(column: Any) -> Any:
    """Seconds since 1970 (float64) of times, of text in ISO 8601 or of seconds; else null."""
    if column.type().is_numeric():
        return column.cast("float64")
    if column.type().is_string():
        number, moment = (column.try_cast(of) for of in ("float64", "timestamp('UTC')"))
        return number.coalesce(seconds(moment))
    name = "unix_micros" if column.get_backend().name == "pyspark" else "epoch_us"
    return _microseconds(name)(column.cast("timestamp('UTC')")) / 1e6


@cache
def _microseconds(name: str) -> Any:
    """An engine's own function for microseconds since 1970; ibis has whole seconds only."""
    import ibis
    import ibis.expr.datatypes as dt

    def microseconds(moment: Any) -> Any: ...

    signature = (dt.Timestamp("UTC"),), dt.int64
    return ibis.udf.scalar.builtin(name=name, signature=signature)(microseconds)


def clocks_that_disagree(
    runs: ibis.Table,
    samples: ibis.Table,
    sensor: Sensor | None = None,
    offset_s: float | Mapping[str, float] = 0.0,
) -> dict[str, str]:
    """Say, by host, where all runs lie before or after all of its samples.

    The clock of the host and that of the monitor then disagree by more than either is long, or
    the samples are of other days.
    """
    timed = _with_spans(runs)
    ours = timed.group_by("host").agg(start_s=timed[_START].min(), end_s=timed[_END].max())
    read = readings_of(samples, sensor or Sensor(), offset_s)
    theirs = read.group_by("host").agg(first_s=read.at_s.min(), last_s=read.at_s.max())
    both = ours.join(theirs, "host")
    apart = both.filter((both.last_s < both.start_s) | (both.first_s > both.end_s))
    return {
        row.host: f"its runs are from {_moment(row.start_s)} to {_moment(row.end_s)} and its "
        f"samples from {_moment(row.first_s)} to {_moment(row.last_s)}: the clocks disagree, or "
        "the samples are of another time: give their offset, or the samples of the runs"
        for row in apart.order_by("host").to_pyarrow().to_pandas().itertuples()
    }


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _check_columns(table: ibis.Table, wanted: Sequence[str], what: str) -> None:
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise PpwError(
            f"{what}: no column {', '.join(missing)}; the columns are {', '.join(table.columns)}: "
            "rename those that mean it"
        )


def _with_spans(runs: ibis.Table) -> ibis.Table:
    """Add the seconds since 1970 at which each run started and ended."""
    _check_columns(runs, ("host", "started_at", "time_s"), "runs")
    taken = [name for name in ADDED[:2] if name in runs.columns]
    if taken:
        raise PpwError(
            f"runs: {' and '.join(taken)} are there already: leave them out, or rename them, so "
            "that no watts of one sensor are taken for another's"
        )
    count = runs.executions.fill_null(1) if "executions" in runs.columns else 1
    start = seconds(runs.started_at)
    return runs.mutate(**{_START: start, _END: start + runs.time_s * count})


def _shifted(readings: ibis.Table, offset_s: float | Mapping[str, float]) -> ibis.Table:
    import pyarrow as pa

    if not isinstance(offset_s, Mapping):
        return readings.mutate(at_s=readings.at_s + float(offset_s))
    if not offset_s:
        return readings
    names, values = list(offset_s), [float(v) for v in offset_s.values()]
    table = registered(readings.get_backend(), pa.table({"host": names, "offset_s": values}))
    both = readings.left_join(table, "host").drop("host_right")
    return both.mutate(at_s=both.at_s + both.offset_s.fill_null(0.0)).drop("offset_s")


def _drawn(intervals: ibis.Table, readings: ibis.Table, sensor: Sensor) -> ibis.Table:
    width = bucket_width(intervals)
    if sensor.quantity == "energy":
        return of_counters(intervals, readings, width, sensor.range_j, sensor.most_w)
    if sensor.window_s > 0:
        return of_windows(intervals, readings, width, sensor.window_s)
    return of_moments(intervals, readings, width)


def _totals(drawn: ibis.Table) -> ibis.Table:
    """Add the channels of each host; unknown where one of them is."""
    import ibis

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


def _joined(
    timed: ibis.Table, drawn: ibis.Table, columns: Sequence[str], sensor: Sensor
) -> ibis.Table:
    import ibis

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
