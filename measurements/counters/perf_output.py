"""The lines that ``perf stat`` prints with ``-j`` (JSON) or ``-x ";"`` (separated fields).

Versions differ: counts are text or numbers, metrics come in lines of their own, units may be
"(null)", the locale may write 0,5 for 0.5 even in JSON. One reader takes all of them, line by
line, and hands back what it did not understand.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Missing = Literal["not counted", "not supported", "empty"]

_ABSENT: dict[str, Missing] = {
    "<not counted>": "not counted",
    "<not supported>": "not supported",
    "": "empty",
}
# Behind which key perf says whose count a line is, but for the CPU, which is a bare number.
_PARTS = ("core", "cluster", "cache", "die", "socket", "node", "thread", "cgroup")
_SEPARATOR = ";"
_DECIMAL_COMMA = re.compile(r'(: "?-?\d+),(\d+)(?="?[,}\s])')
_NO_NUMBER = re.compile(r": (?:-?nan|-?inf)(?=[,}\s])")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?")


class Count(NamedTuple):
    """One line: one event, on one part of the machine, in one interval.

    ``event`` is as perf names it, such as ``cpu_core/cycles/``. The ``value`` is scaled by perf
    where the event shared its counter; ``missing`` says why there is none, and ``unit`` is "" for a
    plain count. The event was on a counter for ``runtime_s``, summed over CPUs, a share ``running``
    (0 to 1) of the time it should have been. ``part`` is "CPU0", "S0-D0-C1", a thread or a cgroup;
    "" for the whole. ``interval_s`` is the end of the interval since the start; None for a whole
    run. ``run`` tells apart several outputs that are read as one.
    """

    event: str
    value: float | None
    missing: Missing | None
    unit: str
    runtime_s: float | None
    running: float | None
    part: str = ""
    interval_s: float | None = None
    run: int = 0


class PerfOutput(NamedTuple):
    """What perf printed: the counts, and the lines that are none."""

    counts: tuple[Count, ...]
    strange: tuple[str, ...]


def parse_output(text: str) -> PerfOutput:
    """Read everything that ``perf stat`` printed, of either form.

    Comments, empty lines and lines of metrics alone are passed over; what is neither those nor a
    count is handed back in ``strange``. With ``-I`` and ``--summary`` only the summary is kept.
    """
    counts: list[Count] = []
    strange: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith("#"):
            try:
                counts += _json_counts(line) if line.startswith("{") else _separated_counts(line)
            except ValueError:
                strange.append(line)
    whole = [count for count in counts if count.interval_s is None]
    summary = [count._replace(part="") for count in whole if count.part == "summary"]
    return PerfOutput(tuple(summary or whole or counts), tuple(strange))


def parse_number(text: str) -> float | None:
    """Read a finite number whose decimal sign is a point or, in some locales, a comma."""
    if not _NUMBER.fullmatch(text.strip()):
        return None
    number = float(text.replace(",", "."))
    return number if math.isfinite(number) else None


def _json_counts(line: str) -> list[Count]:
    """Read the records of one line; some versions print a count and its metrics on one."""
    text = _NO_NUMBER.sub(": null", _DECIMAL_COMMA.sub(r"\1.\2", line))
    counts = []
    while text:
        record, end = json.JSONDecoder().raw_decode(text)
        text = text[end:].lstrip()
        if not isinstance(record, dict):
            raise ValueError(line)
        if "counter-value" in record:
            counts.append(_count(record))
    return counts


def _separated_counts(line: str) -> list[Count]:
    """Read ``[interval;][part;[cpus;]]value;unit;event[;cgroup][;±%];runtime;percent;…``."""
    fields = [field.strip() for field in line.split(_SEPARATOR)]
    at = _value_position(fields)
    if at is None:
        # A further metric of the line above has neither count nor event.
        is_metric = line.startswith(_SEPARATOR) or _SEPARATOR * 4 in line
        if is_metric and len(fields) > 4:
            return []
        raise ValueError(line)
    before, after = fields[:at], fields[at + 3 :]
    record = dict(zip(("counter-value", "unit", "event"), fields[at:], strict=False))
    if before and parse_number(before[0]) is not None:
        record["interval"] = before.pop(0)
    record["thread"] = " ".join(part for part in before if part and parse_number(part) is None)
    if after and not _NUMBER.match(after[0]):
        record["cgroup"] = after.pop(0)
    if after and after[0].endswith("%"):
        after.pop(0)
    record |= dict(zip(("event-runtime", "pcnt-running"), after, strict=False))
    return [_count(record)]


def _value_position(fields: Sequence[str]) -> int | None:
    """Find the first field that is a value with a unit and an event behind it."""

    def is_value(field: str) -> bool:
        return field.startswith("<not ") or parse_number(field) is not None

    for at in range(len(fields) - 2):
        value, unit, event = fields[at : at + 3]
        if is_value(value) and event and not is_value(unit) and not is_value(event):
            return at
    return None


def _count(record: Mapping[str, Any]) -> Count:
    """Make a count of a record with perf's keys; ValueError where it makes no sense."""
    event, value = record.get("event"), record["counter-value"]
    if not isinstance(event, str) or not event:
        raise ValueError(event)
    missing = _ABSENT.get("" if value is None else str(value))
    number = None if missing else parse_number(str(value))
    if not missing and (number is None or number < 0):
        raise ValueError(value)
    runtime_ns, percent, interval_s = (
        parse_number(str(record.get(key, "")))
        for key in ("event-runtime", "pcnt-running", "interval")
    )
    unit = str(record.get("unit") or "")
    named = [f"CPU{record['cpu']}"] if "cpu" in record else []
    named += [str(record[key]) for key in _PARTS if key in record]
    return Count(
        event,
        number,
        missing,
        "" if unit == "(null)" else unit,
        # What never ran is printed as running all the time.
        None if missing or runtime_ns is None else runtime_ns * 1e-9,
        None if missing or percent is None else percent / 100.0,
        " ".join(filter(None, named)),
        interval_s,
    )


# Names of events as perf writes them, and which of them measure the same thing.
Mode = Literal["both", "user", "kernel"]

INSTRUCTIONS = frozenset({"instructions", "inst_retired", "inst_retired.any"})
CYCLES = frozenset({"cycles", "cpu-cycles", "cpu_cycles", "cpu_clk_unhalted.thread"})
# A core that ran at all retired instructions in cycles.
NEVER_ZERO = INSTRUCTIONS | CYCLES
TASK_CLOCK = ("task-clock", "cpu-clock")
DURATION = ("duration_time",)
# Last-level cache misses, best first. The generic event means another level on other vendors.
LLC_LOAD_MISSES = frozenset({"llc-load-misses", "ll_cache_miss_rd"})
LLC_STORE_MISSES = frozenset({"llc-store-misses"})
LLC_MISSES = frozenset({"llc-misses"})
GENERIC_MISSES = frozenset({"cache-misses"})
# Kept by perf itself, once and not on every CPU.
TOOL_EVENTS = frozenset({"duration_time", "user_time", "system_time"})

_ON_PMU = re.compile(r"^(?P<pmu>[^/:]+)/(?P<term>[^/]*)/:?(?P<modifiers>[a-zA-Z]*)$")
_PLAIN = re.compile(r"^(?P<term>.+?)(?::(?P<modifiers>[a-zA-Z]+))?$")


class EventName(NamedTuple):
    """``cpu_core/cycles/u`` taken apart; ``pmu`` is "" where perf chooses the unit that counts."""

    pmu: str
    term: str
    mode: Mode


def parse_event(name: str) -> EventName:
    """Take an event's name apart."""
    match = _ON_PMU.match(name) or _PLAIN.match(name)
    if match is None:
        return EventName("", name.lower(), "both")
    parts = match.groupdict()
    modifiers = parts["modifiers"] or ""
    user, kernel = "u" in modifiers, "k" in modifiers
    mode: Mode = "both" if user == kernel else "user" if user else "kernel"
    return EventName(parts.get("pmu") or "", parts["term"].lower(), mode)
