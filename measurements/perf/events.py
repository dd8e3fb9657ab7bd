"""Names of events as perf writes them, and which of them measure the same thing."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

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
    """``cpu_core/cycles/u`` taken apart.

    Attributes
    ----------
    pmu : str
        Unit that counts, such as one kind of core; "" where perf chooses it.
    term : str
        What is counted, in lower case.
    mode : {"both", "user", "kernel"}
        In which mode of the processor.
    """

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
