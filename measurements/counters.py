"""Hardware counters of a run, by ``perf stat``: instructions, cycles, cache misses, task clock.

`PerfCounters` says what to count and where; it puts ``perf stat`` before a command and reads what
perf wrote into `Counters`. `check_perf` says beforehand what this host can count, and why not the
rest.
"""

from __future__ import annotations

from measurements.perf.check import PerfSupport, check_perf
from measurements.perf.command import (
    CLOCK_EVENTS,
    EVENTS,
    EVENTS_BY_MODE,
    PerfCounters,
    read_counters,
)
from measurements.perf.figures import Counters
from measurements.perf.totals import Total

__all__ = [
    "CLOCK_EVENTS",
    "EVENTS",
    "EVENTS_BY_MODE",
    "Counters",
    "PerfCounters",
    "PerfSupport",
    "Total",
    "check_perf",
    "read_counters",
]
