"""Rows of the runs table from a sweep's records and raw readings; nothing is measured here."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from measurements.counters.memory_traffic import llc_misses_per_byte
from measurements.errors import DAMAGE, MeasurementError
from measurements.power.clock_offset import estimate_clock_offset
from measurements.power.energy import Drawn, energy_column, power_column, streams, summed, totals
from measurements.power.sampler import channel_from_json, read_samples
from measurements.sweep.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from measurements.power.energy import Stream
    from measurements.power.source import Channel


# Readings by another clock: brought to this host's, by the runs of a sweep that they show.
#
# The log of another host has times that may be off. Where its offset is to be estimated
# (``log@FILE,offset=auto``), all readings of the sweep are held against all its runs.


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


# What a total is taken from first where a source has several: the widest that is comparable
# between hosts comes first.
_PREFERRED = ("wall", "host", "package", "gpu", "battery", "psys", "dram", "other")


def session_table(session: Session) -> pd.DataFrame:
    """Runs table of all runs of a sweep so far, from its records and raw readings."""
    import pandas as pd

    rows = session_rows(session)
    try:
        return pd.DataFrame(rows)
    except UnicodeEncodeError as error:
        raise MeasurementError(
            f"{session.folder}: runs.jsonl or plan.json holds {error.object[:40]!r}, which is no "
            "text: correct it there"
        ) from error


def session_rows(session: Session) -> list[dict[str, Any]]:
    """Rows of all runs that went well, in the order in which they were measured.

    Raises
    ------
    MeasurementError
        For readings that cannot be read, and a record or plan that ppw did not write so.
    """
    rows: list[dict[str, Any]] = []
    idle: dict[str, Drawn] = {}
    for number, record in enumerate(session.records(), start=1):
        try:
            if record["kind"] == "idle":
                idle = drawn_in(session, record)
            elif record["kind"] == "run" and record["exit_code"] == 0:
                rows.append(row_of(session, record, drawn_in(session, record), idle))
        except MeasurementError:
            raise
        except DAMAGE as error:
            reason = f"{type(error).__name__}: {str(error)[:80]!r}"
            raise MeasurementError(
                f"{session.folder}: line {number} of runs.jsonl, or plan.json, is not as ppw wrote "
                f"it ({reason}): measure again into another folder"
            ) from error
    return rows


def drawn_in(session: Session, record: Mapping[str, Any]) -> dict[str, Drawn]:
    """What every total of the sweep's channels drew in a run, the first source's first."""
    channels = [channel_from_json(c) for c in session.plan["channels"]]
    if not channels:
        return {}
    found = streams(read_samples(session.samples(record["run"])))
    by_label = {c.label: c for c in channels}
    start_s, end_s = record["start_s"], record["end_s"]
    parts = totals(channels)
    ours = on_our_clock(session, channels, found)
    made = {}
    for label in in_order(parts, by_label):
        drawn = summed(parts[label], by_label, ours.found, start_s, end_s)
        said = [ours.said[part] for part in parts[label] if part in ours.said]
        made[label] = drawn._replace(reason="; ".join([*said, *filter(None, [drawn.reason])]))
    return made


def in_order(parts: Mapping[str, Sequence[str]], channels: Mapping[str, Channel]) -> list[str]:
    """Labels of totals: sources as they were asked for, the most telling domain of each first."""
    kinds = list(dict.fromkeys(label.partition(":")[0] for label in channels))

    def rank(label: str) -> tuple[int, int]:
        domain = channels[parts[label][0]].domain
        place = _PREFERRED.index(domain) if domain in _PREFERRED else len(_PREFERRED)
        return kinds.index(label.partition(":")[0]), place

    return sorted(parts, key=rank)


def row_of(
    session: Session,
    record: Mapping[str, Any],
    drawn: Mapping[str, Drawn],
    idle: Mapping[str, Drawn],
) -> dict[str, Any]:
    """One row: of several executions back to back, the mean of one."""
    plan = session.plan
    count = record["executions"]
    row: dict[str, Any] = {
        "host": plan["host"],
        "family": plan["family"],
        "workload": plan["workload"],
        "freq_hz": record["freq_hz"],
        "cores": record["cores"],
        "data_bytes": plan["data_bytes"],
        "repeat": record["repeat"],
        "time_s": (record["end_s"] - record["start_s"]) / count,
        **record["facts"],
        **plan.get("memory", {}),
    }
    if "llc_misses" in row and row["data_bytes"]:
        row["llc_misses_per_byte"] = llc_misses_per_byte(row["llc_misses"], row["data_bytes"])
    for number, (label, total) in enumerate(drawn.items()):
        if number == 0:
            row |= {
                "power_w": _known(total.power_w),
                "energy_j": _known(total.power_w * row["time_s"]),
                "power_source": label,
                "power_label": "measured" if total.power_w == total.power_w else None,
                "idle_power_w": _known(idle[label].power_w) if label in idle else None,
            }
        if len(drawn) > 1:
            row[power_column(label)] = _known(total.power_w)
            row[energy_column(label)] = _known(total.power_w * row["time_s"])
    notes = [total.reason for total in drawn.values() if total.reason]
    notes += [f"{source}: {said}" for source, said in record["failures"].items()]
    row |= {
        "price": plan["price"],
        "executions": count,
        "started_at": record["started_at"],
        "notes": "; ".join(notes) or None,
    }
    return {name: value for name, value in row.items() if value is not None}


def _known(value: float) -> float | None:
    return value if value == value else None
