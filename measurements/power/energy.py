"""From raw readings to the joules and watts of a run.

Counters are unwrapped and interpolated at the run's ends. Means over a window count once however
often they were read, and only where their window lies inside the run: a figure that is partly of
what came before says nothing of the run. What cannot be known is NaN, with the reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from measurements.power.source import Channel, Reading

    FloatArray = NDArray[np.float64]


# What a processor or host is taken to draw at most where no limit of it is known (W).
MOST_W = 1000.0
# Readings of a counter at the ends of a run come at most so much late (s).
AT_ENDS_S = 0.25
# Share of a window that may lie before the run.
OUTSIDE_SHARE = 0.05


class Stream(NamedTuple):
    """Readings of one channel in the order of time: seconds, figures, the sensor's own clock."""

    at_s: FloatArray
    value: FloatArray
    source_at_s: FloatArray


class Drawn(NamedTuple):
    """What a channel or a sum of channels drew in a run.

    Attributes
    ----------
    energy_j, power_w : float
        NaN where it cannot be known.
    readings : int
        Different readings that it rests on.
    reason : str
        Why it cannot be known, or what to mind; empty where there is nothing to say.
    """

    energy_j: float
    power_w: float
    readings: int
    reason: str = ""

    @classmethod
    def unknown(cls, reason: str, readings: int = 0) -> Drawn:
        """Nothing that could be said."""
        return cls(float("nan"), float("nan"), readings, reason)


def streams(readings: Iterable[Reading]) -> dict[str, Stream]:
    """Sort readings by channel and time; those without a figure are left out."""
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for label, at_s, value, source_at_s in readings:
        part = rows.setdefault(label, [])
        if value == value:
            part.append((at_s, value, np.nan if source_at_s is None else source_at_s))
    return {
        label: Stream(*np.array(sorted(part), dtype=np.float64).reshape(-1, 3).T)
        for label, part in rows.items()
    }


def drawn_between(channel: Channel, stream: Stream | None, start_s: float, end_s: float) -> Drawn:
    """What one channel drew from ``start_s`` to ``end_s`` (s, by the clock of the readings)."""
    if stream is None or not len(stream.at_s):
        return Drawn.unknown(f"{channel.label}: no reading with a figure")
    if not end_s > start_s:
        return Drawn.unknown(f"{channel.label}: the run has no length")
    if channel.quantity == "energy":
        return _of_counter(channel, stream, start_s, end_s)
    if channel.window_s > 0:
        return _of_windows(channel, stream, start_s, end_s)
    return _of_moments(channel, stream, start_s, end_s)


def unwrapped(channel: Channel, stream: Stream) -> tuple[FloatArray, str]:
    """Counter without its wraps (J), and why it cannot be trusted ("" where it can).

    A wrap is a step down. Two readings so far apart that the channel could have gone all the way
    round between them, or a step down that would take more watts than it can draw, cannot be told
    from energy that was lost.
    """
    steps = np.diff(stream.value)
    apart = np.diff(stream.at_s)
    down = steps < 0
    most = channel.most_w if channel.most_w == channel.most_w else MOST_W
    if channel.range_j is None:
        reason = f"{channel.label}: the counter went back, and it has no range to wrap at"
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
        reason = f"{channel.label}: the counter was set back, which is no wrap"
    return np.concatenate([stream.value[:1], stream.value[0] + np.cumsum(steps)]), reason


def _of_counter(channel: Channel, stream: Stream, start_s: float, end_s: float) -> Drawn:
    at = stream.at_s
    near = (at >= start_s - AT_ENDS_S) & (at <= end_s + AT_ENDS_S)
    # One reading before and one after the run, whenever they were.
    first = max(int(np.searchsorted(at, start_s, side="right")) - 1, 0)
    last = min(int(np.searchsorted(at, end_s, side="left")), len(at) - 1)
    near[first : last + 1] = True
    part = Stream(*(column[near] for column in stream))
    count = len(part.at_s)
    if count < 2 or part.at_s[0] > start_s + AT_ENDS_S or part.at_s[-1] < end_s - AT_ENDS_S:
        return Drawn.unknown(f"{channel.label}: not read at both ends of the run", count)
    joules, reason = unwrapped(channel, part)
    if reason:
        return Drawn.unknown(reason, count)
    begin, end = np.interp([start_s, end_s], part.at_s, joules)
    if end == begin:
        return Drawn.unknown(
            f"{channel.label}: the counter did not move in {end_s - start_s:.3g} s: let a run last "
            "longer (--at-least)",
            count,
        )
    # Ends that were read inside the run stand for the time from there to its end.
    seen = min(end_s, part.at_s[-1]) - max(start_s, part.at_s[0])
    energy = float(end - begin) * (end_s - start_s) / seen
    return Drawn(energy, energy / (end_s - start_s), count)


def _of_windows(channel: Channel, stream: Stream, start_s: float, end_s: float) -> Drawn:
    window, length = channel.window_s, end_s - start_s
    fresh = _fresh(stream, window)
    at, value = stream.at_s[fresh], stream.value[fresh]
    inside = (at - window >= start_s - OUTSIDE_SHARE * window) & (at <= end_s)
    if not inside.any():
        return Drawn.unknown(
            f"{channel.label}: a reading is the mean of {window:g} s and the run took "
            f"{length:.3g} s: let a run last {2 * window:g} s or more (--at-least), or use a "
            "quicker sensor"
        )
    watts = float(value[inside].mean())
    covered = min(1.0, float(inside.sum()) * window / length)
    reason = ""
    if covered < 0.5:
        reason = f"{channel.label}: readings cover {covered:.0%} of the run"
    return Drawn(watts * length, watts, int(inside.sum()), reason)


def _fresh(stream: Stream, window: float) -> NDArray[np.bool_]:
    """Readings that are not one that came before, asked for again."""
    clock = stream.source_at_s
    same_clock = np.concatenate([[False], np.diff(clock) == 0])
    # Without a clock of its own a sensor that is asked too early says what it said before.
    kept: list[bool] = []
    last_at, last_value = -np.inf, np.nan
    for at, value, own, same in zip(stream.at_s, stream.value, clock, same_clock, strict=True):
        repeated = bool(same) if own == own else value == last_value and at - last_at < window
        kept.append(not repeated)
        if not repeated:
            last_at, last_value = at, value
    return np.array(kept, dtype=bool)


def _of_moments(channel: Channel, stream: Stream, start_s: float, end_s: float) -> Drawn:
    # A reading before the run is of an idle host: nothing is interpolated to it.
    inside = (stream.at_s >= start_s) & (stream.at_s <= end_s)
    at, watts = stream.at_s[inside], stream.value[inside]
    if len(at) < 2:
        return Drawn.unknown(
            f"{channel.label}: read {len(at)} times during a run of {end_s - start_s:.3g} s: let a "
            "run last longer (--at-least)",
            len(at),
        )
    energy = float(np.trapezoid(watts, at)) + float(
        watts[0] * (at[0] - start_s) + watts[-1] * (end_s - at[-1])
    )
    return Drawn(energy, energy / (end_s - start_s), len(at))


def totals(channels: Sequence[Channel]) -> dict[str, tuple[str, ...]]:
    """Labels of what can be reported, each with the channels that it sums.

    Channels of one kind and domain add up ("rapl:package" of all sockets), but for those that
    another one of the same domain contains, and those of no known domain, such as the rails of a
    board. No domain is added to another.
    """
    found: dict[str, tuple[str, ...]] = {}
    groups: dict[tuple[str, str], list[Channel]] = {}
    for channel in channels:
        kind = channel.label.partition(":")[0]
        if channel.domain == "other":
            found[channel.label] = (channel.label,)
        elif channel.inside is None or not _same_domain(channels, channel):
            groups.setdefault((kind, channel.domain), []).append(channel)
    for (kind, domain), members in groups.items():
        named_by_domain = domain in _PARTS or len(members) > 1
        label = f"{kind}:{domain}" if named_by_domain else members[0].label
        found[label] = tuple(c.label for c in members)
    return found


# Domains of a processor: their total is named alike on hosts with one socket and with several.
_PARTS = ("package", "core", "uncore", "dram", "psys")


def _same_domain(channels: Sequence[Channel], channel: Channel) -> bool:
    return any(c.label == channel.inside and c.domain == channel.domain for c in channels)


def summed(
    labels: Sequence[str],
    channels: Mapping[str, Channel],
    found: Mapping[str, Stream],
    start_s: float,
    end_s: float,
) -> Drawn:
    """What several channels drew together; unknown where one of them is."""
    parts = [drawn_between(channels[c], found.get(c), start_s, end_s) for c in labels]
    return Drawn(
        float(sum(part.energy_j for part in parts)),
        float(sum(part.power_w for part in parts)),
        min((part.readings for part in parts), default=0),
        "; ".join(part.reason for part in parts if part.reason),
    )


# Columns of a runs table that hold what one labelled source said of each run.


POWER_SUFFIX, ENERGY_SUFFIX = "_power_w", "_energy_j"


def column_stem(label: str) -> str:
    """Label as it stands in column names: all but letters and digits become underscores.

    >>> column_stem("rapl:package-0")
    'rapl_package_0'
    """
    return re.sub(r"[^0-9A-Za-z]", "_", label.strip())


def power_column(label: str) -> str:
    """Column of a source's mean power of a run (W).

    >>> power_column("meter:wt310e")
    'meter_wt310e_power_w'
    """
    return column_stem(label) + POWER_SUFFIX


def energy_column(label: str) -> str:
    """Column of the energy that a source saw in a run (J).

    >>> energy_column("ipmi:dcmi")
    'ipmi_dcmi_energy_j'
    """
    return column_stem(label) + ENERGY_SUFFIX
