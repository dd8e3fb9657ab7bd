"""Readings by another clock: brought to this host's, by the runs of a sweep that they show.

The log of another host has times that may be off. Where its offset is to be estimated
(``log@FILE,offset=auto``), all readings of the sweep are held against all its runs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.errors import MeasurementError
from measurements.power.clock_offset import estimate_clock_offset
from measurements.power.energy import streams
from measurements.sampling import read_samples
from measurements.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from measurements.power.energy import Stream
    from measurements.power.protocol import Channel


class OnOurClock(NamedTuple):
    """Readings by this host's clock, and by label what is to be said of those by another."""

    found: dict[str, Stream]
    said: dict[str, str]


def on_our_clock(
    session: Session, channels: Iterable[Channel], found: dict[str, Stream]
) -> OnOurClock:
    """Bring readings by clocks that are to be estimated to this host's.

    Parameters
    ----------
    session : Session
        The sweep, whose runs so far tell the offset.
    channels : iterable of Channel
    found : dict
        Readings by label, by the clocks of their sources.

    Returns
    -------
    OnOurClock
        Without the readings of a channel whose offset is not known yet.
    """
    ours, said = dict(found), {}
    for channel in channels:
        if not channel.other_clock or channel.label not in found:
            continue
        try:
            offset_s, said[channel.label] = _offset(session, channel)
        except MeasurementError as error:
            said[channel.label] = f"{channel.label}: {error}"
            del ours[channel.label]
            continue
        stream = found[channel.label]
        ours[channel.label] = stream._replace(at_s=stream.at_s + offset_s)
    return OnOurClock(ours, said)


def _offset(session: Session, channel: Channel) -> tuple[float, str]:
    known = (session.folder / "runs.jsonl").stat().st_size
    return _estimated(session.folder, known, channel.label, channel.quantity)


@lru_cache(maxsize=8)
def _estimated(folder: Path, known: int, label: str, quantity: str) -> tuple[float, str]:
    """Offset (s) by ``known`` bytes of records, and how it is said."""
    session = Session.open(folder)
    records = session.records()
    readings = [
        reading
        for number in dict.fromkeys(record["run"] for record in records)
        if session.samples(number).exists()
        for reading in read_samples(session.samples(number))
        if reading.label == label
    ]
    whole = streams(readings)[label]
    runs = [(r["start_s"], r["end_s"]) for r in records if r["kind"] != "idle"]
    watts, times = whole.value, whole.at_s
    if quantity == "energy":
        # A counter shows the joules of the time since the row before.
        steps = np.diff(times)
        apart = steps > 0
        watts, times = np.diff(watts)[apart] / steps[apart], times[1:][apart]
    found = estimate_clock_offset(times, watts, runs)
    said = f"clock offset {found.offset_s:+.3g} s (± {found.uncertainty_s:.2g} s) by its runs"
    return found.offset_s, f"{label}: {said}"
