"""Bytes that a run moves to and from memory, by the counters of the memory controllers."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from measurements.counters import PerfCounters
from measurements.errors import MeasurementError
from measurements.execution import end_group
from measurements.memory_counters import memory_events
from measurements.perf.check import check_perf

if TYPE_CHECKING:
    from pathlib import Path

    from measurements.memory_counters import MemoryEvent

_END_S = 10.0


@dataclass
class MemoryTraffic:
    """Counts of a host's memory controllers, by a perf of their own: they see all CPUs' traffic.

    Made by `find`. Between `start` and `stop` everything on the host is counted.
    """

    events: tuple[MemoryEvent, ...]
    perf: PerfCounters
    _process: subprocess.Popen[bytes] | None = None
    _into: Path | None = None
    _started_s: float = 0.0

    @classmethod
    def find(cls, sysfs: Path, procfs: Path) -> Self | None:
        """Counters that this host has and perf may read; None where there are none."""
        events = memory_events(sysfs)
        if events is None:
            return None
        wanted = PerfCounters(events=tuple(e.name for e in events), system_wide=True)
        counters = check_perf(wanted, sysfs=sysfs, procfs=procfs).counters
        if counters is None:
            return None
        known = tuple(e for e in events if e.name in counters.events)
        return cls(known, counters) if known else None

    def start(self, into: Path) -> None:
        """Begin to count."""
        self._into = into
        # It counts until its input ends, which it does when this process does, however that ends.
        self._process = subprocess.Popen(
            self.perf.wrap(["cat"], into),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._started_s = time.monotonic()

    def stop(self) -> dict[str, float]:
        """End counting.

        Returns
        -------
        dict of column to float
            ``memory_read_bytes_s`` and ``memory_write_bytes_s``; empty where nothing was counted.
        """
        if self._process is None or self._into is None:
            return {}
        elapsed_s = time.monotonic() - self._started_s
        try:
            self._process.communicate(timeout=_END_S)
            counted = self.perf.read(self._into)
        except (MeasurementError, OSError, subprocess.TimeoutExpired):
            return {}
        finally:
            self.close()
        seconds = counted.elapsed_s or elapsed_s
        moved = {"read": 0.0, "write": 0.0}
        seen = set()
        for event in self.events:
            total = counted.events.get(event.name)
            if total is None or total.value is None:
                # A controller that was not counted leaves its direction unknown.
                moved[event.direction] = float("nan")
                continue
            moved[event.direction] += event.bytes_of(total.value, total.unit)
            seen.add(event.direction)
        return {
            f"memory_{direction}_bytes_s": value / seconds
            for direction, value in moved.items()
            if direction in seen and value == value
        }

    def close(self) -> None:
        """End perf, whatever it does."""
        if self._process is not None:
            if self._process.poll() is None:
                end_group(self._process.pid)
            self._process.communicate()
            self._process = None
