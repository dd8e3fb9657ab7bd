"""Energy and mean power of a run from raw readings.

Counters are unwrapped and interpolated at the run's ends. A mean over a window counts once, however
often it was read, and only if its window lies inside the run. What cannot be known is NaN, with the
reason. Readings by another host's clock are shifted by an offset that the runs themselves tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measurements.errors import MeasurementError
from measurements.power import source

FloatArray = NDArray[np.float64]

MOST_W = source.MOST_W
# Readings of a counter may be this late at the ends of a run (s).
AT_ENDS_S = 0.25
# Share of a window that may lie before the run.
OUTSIDE_SHARE = 0.05
# Domains of a processor: their total has the same name on hosts with one socket and with several.
_PARTS = ("package", "core", "uncore", "dram", "psys")
POWER_SUFFIX, ENERGY_SUFFIX = "_power_w", "_energy_j"
# Offsets are tried in steps of this part of the time between rows.
STEPS_PER_ROW = 20
# A χ² of one degree of freedom exceeds twice this in one of ten cases.
HALF_CHI2_90 = 1.3528
# Share of the variance of the power that the runs must explain.
LEAST_SHARE = 0.1
FEWEST_ROWS = 4
# A counter that stands still while so many of its steps are due is frozen.
_STILL = 3


class Stream(NamedTuple):
    """Readings of one channel in time order: times (s), figures (J or W), sensor's clock (s)."""

    at_s: FloatArray
    value: FloatArray
    source_at_s: FloatArray


class RunEnergy(NamedTuple):
    """Energy and mean power of a channel or a sum of channels in a run; NaN where unknown."""

    energy_j: float
    power_w: float
    readings: int  # number of different readings behind the figures
    reason: str = ""  # why the figures are unknown, or a caveat; empty otherwise

    @classmethod
    def unknown(cls, reason: str, readings: int = 0) -> RunEnergy:
        """Make a result without figures."""
        return cls(float("nan"), float("nan"), readings, reason)


def streams(readings: Iterable[source.Reading]) -> dict[str, Stream]:
    """Sort readings by channel and time, without those that have no figure."""
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for label, at_s, value, source_at_s in readings:
        part = rows.setdefault(label, [])
        if value == value:
            part.append((at_s, value, np.nan if source_at_s is None else source_at_s))
    return {
        label: Stream(*np.array(sorted(part), dtype=np.float64).reshape(-1, 3).T)
        for label, part in rows.items()
    }


def channel_energy(
    channel: source.Channel, stream: Stream | None, start_s: float, end_s: float
) -> RunEnergy:
    """Compute what one channel drew from ``start_s`` to ``end_s`` (s, the readings' clock)."""
    if stream is None or not len(stream.at_s):
        return RunEnergy.unknown(f"{channel.label}: no reading holds a number")
    if not end_s > start_s:
        return RunEnergy.unknown(f"{channel.label}: the run has no length")
    if channel.quantity == "energy":
        drawn = _by_counter(channel, stream, start_s, end_s)
    elif channel.window_s > 0:
        drawn = _by_windows(channel, stream, start_s, end_s)
    else:
        drawn = _by_moments(channel, stream, start_s, end_s)
    impossible = _why_impossible(channel, [drawn.power_w])
    return RunEnergy.unknown(impossible, drawn.readings) if impossible else drawn


def _why_impossible(channel: source.Channel, power_w: ArrayLike) -> str:
    """Say which power (W) no such channel can draw; empty where all are possible."""
    power = np.asarray(power_w, dtype=np.float64)
    most, never_zero = channel.impossible_w, channel.domain in source.NEVER_STILL
    wrong = power[(power < 0) | (power > most) | (never_zero & (power == 0))]
    if not len(wrong):
        return ""
    worst = float(wrong[np.argmax(np.abs(wrong))])
    return (
        f"{channel.label}: a figure of {worst:.4g} W is impossible (the most is {most:.4g} W): "
        "check the sensor, or use another source"
    )


def unwrap_counter(channel: source.Channel, stream: Stream) -> tuple[FloatArray, str]:
    """Remove a counter's wraps (J); the text says why the result is not trustworthy, if so.

    A wrap is a step down. Nobody can tell it from lost energy if the counter could have wrapped
    unseen between two readings, or if the step takes more power than the channel can draw. A step
    up that takes more is a fault of the counter.
    """
    steps, apart = np.diff(stream.value), np.diff(stream.at_s)
    down, most = steps < 0, channel.bound_w
    # Coarse counters show a whole step of theirs at once.
    over = steps - _counter_step_j(channel, steps) > channel.impossible_w * (apart + AT_ENDS_S)
    if over.any():
        at = int(np.argmax(np.where(over, steps, 0.0)))
        return stream.value, (
            f"{channel.label}: the counter rose by {steps[at]:.4g} J in {apart[at]:.3g} s, which "
            f"is impossible (the most is {channel.impossible_w:.4g} W)"
        )
    if channel.range_j is None:
        reason = f"{channel.label}: the counter fell, and its range is not known"
        return stream.value, reason if down.any() else ""
    steps = np.where(down, steps + channel.range_j, steps)
    reason = ""
    if (apart * most > channel.range_j).any():
        longest = float(apart.max())
        reason = (
            f"{channel.label}: {longest:.3g} s between two readings, in which the counter may have "
            f"wrapped unseen (it wraps every {channel.range_j / most:.3g} s at {most:.4g} W)"
        )
    elif (down & (steps > most * (apart + AT_ENDS_S))).any() or (steps < 0).any():
        reason = f"{channel.label}: the counter was reset, so its energy is lost"
    return np.concatenate([stream.value[:1], stream.value[0] + np.cumsum(steps)]), reason


def _counter_step_j(channel: source.Channel, steps: FloatArray) -> float:
    """Return the smallest step of a counter (J): as its channel tells, or as it was seen."""
    seen = float(np.min(steps, where=steps > 0, initial=np.inf))
    return seen if np.isnan(channel.resolution) else channel.resolution


def _why_frozen(channel: source.Channel, at: FloatArray, joules: FloatArray, power_w: float) -> str:
    """Say how long a counter stood still, if for half of a run in which it had to move."""
    moved = np.flatnonzero(np.diff(joules)) + 1
    if channel.domain not in source.NEVER_STILL or len(moved) < 3:
        return ""
    first, last = np.concatenate([[0], moved]), np.concatenate([moved - 1, [len(at) - 1]])
    still_s, length_s = float((at[last] - at[first]).max()), float(at[-1] - at[0])
    # A sensor that is slow or coarse stands still between two of its figures.
    usual_s, step_j = np.median(np.diff(at[moved])), _counter_step_j(channel, np.diff(joules))
    if still_s < max(length_s / 2, _STILL * float(usual_s), _STILL * step_j / power_w):
        return ""
    return f"{channel.label}: the counter stood still for {still_s:.3g} of {length_s:.3g} s"


def _by_counter(channel: source.Channel, stream: Stream, start_s: float, end_s: float) -> RunEnergy:
    """Compute a run's energy from a counter, interpolated at both ends of the run."""
    at = stream.at_s
    near = (at >= start_s - AT_ENDS_S) & (at <= end_s + AT_ENDS_S)
    # Also the last reading before and the first after the run, however far away.
    first = max(int(np.searchsorted(at, start_s, side="right")) - 1, 0)
    last = min(int(np.searchsorted(at, end_s, side="left")), len(at) - 1)
    near[first : last + 1] = True
    part = Stream(*(column[near] for column in stream))
    count = len(part.at_s)
    if count < 2 or part.at_s[0] > start_s + AT_ENDS_S or part.at_s[-1] < end_s - AT_ENDS_S:
        return RunEnergy.unknown(f"{channel.label}: not read at both ends of the run", count)
    joules, reason = unwrap_counter(channel, part)
    if reason:
        return RunEnergy.unknown(reason, count)
    begin, end = np.interp([start_s, end_s], part.at_s, joules)
    if end == begin:
        still = f"the counter did not move in {end_s - start_s:.3g} s"
        reason = f"{channel.label}: {still}: let a run last longer (--at-least)"
        return RunEnergy.unknown(reason, count)
    # Readings that end inside the run are extrapolated to its whole length.
    seen = min(end_s, part.at_s[-1]) - max(start_s, part.at_s[0])
    energy = float(end - begin) * (end_s - start_s) / seen
    during = np.clip(part.at_s, start_s, end_s)
    if frozen := _why_frozen(channel, during, joules, energy / (end_s - start_s)):
        return RunEnergy.unknown(frozen, count)
    return RunEnergy(energy, energy / (end_s - start_s), count)


def _by_windows(channel: source.Channel, stream: Stream, start_s: float, end_s: float) -> RunEnergy:
    """Compute a run's energy from means over windows that lie inside the run."""
    window, length = channel.window_s, end_s - start_s
    fresh = _is_new(stream, window)
    at, value = stream.at_s[fresh], stream.value[fresh]
    inside = (at - window >= start_s - OUTSIDE_SHARE * window) & (at <= end_s)
    if not inside.any():
        return RunEnergy.unknown(
            f"{channel.label}: a reading is the mean of {window:g} s and the run took {length:.3g} "
            f"s: let a run last {2 * window:g} s or more (--at-least), or use a quicker sensor"
        )
    if impossible := _why_impossible(channel, value[inside]):
        return RunEnergy.unknown(impossible, int(inside.sum()))
    watts = float(value[inside].mean())
    covered = min(1.0, float(inside.sum()) * window / length)
    reason = f"{channel.label}: readings cover {covered:.0%} of the run" if covered < 0.5 else ""
    return RunEnergy(watts * length, watts, int(inside.sum()), reason)


def _is_new(stream: Stream, window: float) -> NDArray[np.bool_]:
    """Find the readings that do not repeat the one before."""
    clock = stream.source_at_s
    same_clock = np.concatenate([[False], np.diff(clock) == 0])
    # A sensor without a clock that is asked too early repeats its last figure.
    kept: list[bool] = []
    last_at, last_value = -np.inf, np.nan
    for at, value, own, same in zip(stream.at_s, stream.value, clock, same_clock, strict=True):
        repeated = bool(same) if own == own else value == last_value and at - last_at < window
        kept.append(not repeated)
        if not repeated:
            last_at, last_value = at, value
    return np.array(kept, dtype=bool)


def _by_moments(channel: source.Channel, stream: Stream, start_s: float, end_s: float) -> RunEnergy:
    """Integrate momentary power over a run by the trapezoidal rule."""
    # A reading before the run shows an idle host, so nothing is interpolated to it.
    inside = (stream.at_s >= start_s) & (stream.at_s <= end_s)
    at, watts = stream.at_s[inside], stream.value[inside]
    if len(at) < 2:
        seldom = f"read {len(at)} times during a run of {end_s - start_s:.3g} s"
        reason = f"{channel.label}: {seldom}: let a run last longer (--at-least)"
        return RunEnergy.unknown(reason, len(at))
    if impossible := _why_impossible(channel, watts):
        return RunEnergy.unknown(impossible, len(at))
    ends = watts[0] * (at[0] - start_s) + watts[-1] * (end_s - at[-1])
    energy = float(np.trapezoid(watts, at)) + float(ends)
    return RunEnergy(energy, energy / (end_s - start_s), len(at))


def totals(channels: Sequence[source.Channel]) -> dict[str, tuple[str, ...]]:
    """List the labels to report, each with the channels to sum.

    Channels of one kind and domain add up ("rapl:package" of all sockets), except those inside
    another channel of their domain, and those of domain "other", such as the rails of a board.
    """
    domains = {channel.label: channel.domain for channel in channels}
    found: dict[str, tuple[str, ...]] = {}
    groups: dict[tuple[str, str], list[str]] = {}
    for channel in channels:
        if channel.domain == "other":
            found[channel.label] = (channel.label,)
        elif channel.inside is None or domains.get(channel.inside) != channel.domain:
            kind = channel.label.partition(":")[0]
            groups.setdefault((kind, channel.domain), []).append(channel.label)
    for (kind, domain), labels in groups.items():
        by_domain = domain in _PARTS or len(labels) > 1
        found[f"{kind}:{domain}" if by_domain else labels[0]] = tuple(labels)
    return found


def total_energy(
    labels: Sequence[str],
    channels: Mapping[str, source.Channel],
    found: Mapping[str, Stream],
    start_s: float,
    end_s: float,
) -> RunEnergy:
    """Sum what several channels drew; unknown if one of them is."""
    parts = [channel_energy(channels[c], found.get(c), start_s, end_s) for c in labels]
    return RunEnergy(
        float(sum(part.energy_j for part in parts)),
        float(sum(part.power_w for part in parts)),
        min((part.readings for part in parts), default=0),
        source.join_notes(*(part.reason for part in parts)),
    )


def column_stem(label: str) -> str:
    """Turn a label into the stem of column names: only letters, digits and underscores.

    >>> column_stem("rapl:package-0")
    'rapl_package_0'
    """
    return re.sub(r"[^0-9A-Za-z]", "_", label.strip())


def power_column(label: str) -> str:
    """Name the column of a source's mean power in a run (W).

    >>> power_column("meter:wt310e")
    'meter_wt310e_power_w'
    """
    return column_stem(label) + POWER_SUFFIX


def energy_column(label: str) -> str:
    """Name the column of a source's energy in a run (J).

    >>> energy_column("ipmi:dcmi")
    'ipmi_dcmi_energy_j'
    """
    return column_stem(label) + ENERGY_SUFFIX


class ClockOffset(NamedTuple):
    """Offset to add to the times of a log, its uncertainty, and the share of variance explained."""

    offset_s: float
    # Half of the range of fitting offsets (90 %), at least half the time between rows (s).
    uncertainty_s: float
    share: float


def estimate_clock_offset(
    times_s: ArrayLike,
    watts: ArrayLike,
    runs: Sequence[tuple[float, float]],
    *,
    reach_s: float = 60.0,
) -> ClockOffset:
    """Find the offset (s) at which power in runs and outside of them differs most.

    An offset splits the rows of the log into those inside and those outside of runs. The share of
    the variance that this split explains is largest at the true offset, if runs draw more than
    pauses. With normal noise the log-likelihood is ``-n/2 * log(1 - share)`` up to a constant;
    offsets within half the 0.90 quantile of χ² of the best one fit as well. Runs at regular
    intervals fit more than one offset; the uncertainty covers them all, and the half row by which
    a mean since the row before seems late.

    ``times_s`` and ``watts`` are times of the rows by the log's clock (s) and their power (W); NaN
    rows are left out. ``runs`` are start and end of each run by this host's clock (s), with pauses
    between them. Offsets up to ``reach_s`` (s) are tried, to both sides. Raises `MeasurementError`
    when there are too few rows, or runs draw more than pauses at no offset.
    """
    times, power = _finite_rows(times_s, watts)
    starts, ends = np.array(sorted(runs), dtype=np.float64).reshape(-1, 2).T
    if not len(starts):
        raise MeasurementError("clock offset: no runs: give (start, end) of each")
    if not (ends > starts).all() or not (starts[1:] >= ends[:-1]).all():
        wrong = "runs must end after they start and not overlap"
        raise MeasurementError(f"clock offset: {wrong}: give (start, end) of each")
    steps = np.diff(times)
    period = float(np.median(steps[steps > 0]))
    count = int(np.ceil(STEPS_PER_ROW * reach_s / min(period, reach_s)))
    offsets: FloatArray = np.linspace(-reach_s, reach_s, 2 * count + 1)
    shares = _explained_shares(times, power, starts, ends, offsets)
    best = float(shares.max())
    if best < LEAST_SHARE:
        raise MeasurementError(
            f"clock offset: at no offset within {reach_s:g} s do the runs take more power than the "
            f"pauses (they explain {best:.0%} of the variance): make the pauses longer, or check "
            "that the log is from this host"
        )
    likelihood = -len(times) / 2 * np.log1p(-np.minimum(shares, 1 - 1e-12))
    fitting = offsets[likelihood >= likelihood.max() - HALF_CHI2_90]
    if fitting[0] == offsets[0] or fitting[-1] == offsets[-1]:
        raise MeasurementError(
            f"clock offset: the best one is at the limit of {reach_s:g} s: give "
            "it with offset=SECONDS"
        )
    middle, half = float(fitting[0] + fitting[-1]) / 2, float(fitting[-1] - fitting[0]) / 2
    return ClockOffset(middle, max(half, period / 2), best)


def _finite_rows(times_s: ArrayLike, watts: ArrayLike) -> tuple[FloatArray, FloatArray]:
    times = np.asarray(times_s, dtype=np.float64)
    power = np.asarray(watts, dtype=np.float64)
    if times.shape != power.shape or times.ndim != 1:
        raise MeasurementError(
            f"clock offset: {times.shape} times for {power.shape} power values: "
            "give one of each per row"
        )
    usable = np.isfinite(times) & np.isfinite(power)
    order = np.argsort(times[usable], kind="stable")
    times, power = times[usable][order], power[usable][order]
    if len(np.unique(times)) < FEWEST_ROWS:
        raise MeasurementError(
            f"clock offset: {len(times)} rows with a figure, {FEWEST_ROWS} at different times are "
            f"needed: log for longer"
        )
    return times, power


def _explained_shares(
    times: FloatArray, power: FloatArray, starts: FloatArray, ends: FloatArray, offsets: FloatArray
) -> FloatArray:
    """Compute the explained share of the variance, by offset; 0 where runs draw less."""
    centred = power - power.mean()
    # Sums inside the runs are differences of cumulative sums at the runs' ends.
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    first = np.searchsorted(times, starts[:, None] - offsets)
    last = np.searchsorted(times, ends[:, None] - offsets)
    inside = (last - first).sum(axis=0).astype(np.float64)
    outside = len(times) - inside
    excess = (sums[last] - sums[first]).sum(axis=0)
    usable = (excess > 0) & (outside > 0)
    shares = np.zeros(len(offsets))
    # Sum of squares between two groups of a centred sample.
    between = excess[usable] ** 2 * len(times) / (inside[usable] * outside[usable])
    shares[usable] = between / float(centred @ centred)
    return shares
