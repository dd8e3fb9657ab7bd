"""Bytes that a run moves to and from memory, by the counters of the memory controllers."""

import math
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from measurements.counters.command import PerfCounters, check_perf
from measurements.errors import MeasurementError
from measurements.host import cpu_placement, files
from measurements.table.units import UNITS

# Column-address strobes of servers (one or two sub-channels), and the names that the counters of
# desktop processors and the free-running ones of both go by. Totals and the parts by requester
# are left out: they contain each other.
_EVENT = re.compile(
    r"^(?:cas_count_(?P<cas>read|write)(?:_sch\d+)?|(?:data_)?(?P<other>read|write)s?)$"
)
_CACHE_LINE_BYTES = 64
# Time that perf has to end when its input has.
_END_S = 10.0


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """A perf event that counts bytes read from memory or written to it by one controller."""

    name: str  # for perf stat -a -e: uncore_imc_0/cas_count_read/
    direction: Literal["read", "write"]
    bytes_per_count: float

    def bytes_of(self, value: float, unit: str) -> float:
        """Turn what perf printed into bytes; without a unit it is a bare count."""
        return value * (_bytes_per_unit(unit, self.name) if unit else self.bytes_per_count)


def memory_events(sysfs: Path) -> tuple[MemoryEvent, ...] | None:
    """Find the events of the memory controllers in ``bus/event_source/devices/uncore_imc*``.

    Where a controller has both programmable and free-running counters of the same traffic, the
    programmable ones are taken. None where there are none, as in most virtual machines. Counting
    takes ``perf stat -a`` with CAP_PERFMON, or kernel.perf_event_paranoid at 0 or below.
    """
    folders = (sysfs / "bus/event_source/devices").glob("uncore_imc*")
    # By length first, so that uncore_imc_10 comes after uncore_imc_9.
    devices = sorted(folders, key=lambda device: (len(device.name), device.name))
    found = {device.name: _read_device_events(device) for device in devices}
    # Both kinds count the same bytes.
    programmable = {name: events for name, events in found.items() if "free_running" not in name}
    chosen = programmable if any(programmable.values()) else found
    return tuple(event for events in chosen.values() for event in events) or None


def _read_device_events(device: Path) -> list[MemoryEvent]:
    found = []
    for path in sorted((device / "events").glob("*")):
        match = _EVENT.match(path.name)
        if match is None:
            continue
        reads = "read" in (match["cas"], match["other"])
        direction: Literal["read", "write"] = "read" if reads else "write"
        name = f"{device.name}/{path.name}/"
        scale = files.read_field(path.with_name(f"{path.name}.scale"))
        unit = files.read_field(path.with_name(f"{path.name}.unit"))
        if scale and unit:
            size = _parse_scale(scale, path) * _bytes_per_unit(unit, name)
            found.append(MemoryEvent(name, direction, size))
        elif match["cas"]:
            # Older kernels give no scale; a strobe moves a cache line.
            found.append(MemoryEvent(name, direction, _CACHE_LINE_BYTES))
    return found


def _parse_scale(text: str, path: Path) -> float:
    try:
        return float(text)
    except ValueError:
        raise MeasurementError(
            f"{path}.scale: {text!r} is not a number: leave the memory counters out"
        ) from None


def _bytes_per_unit(unit: str, name: str) -> float:
    known = UNITS.get(unit.lower())
    if known is None or known.si != "bytes":
        raise MeasurementError(
            f"{name}: its unit {unit!r} is not a unit of bytes: leave the memory counters out"
        )
    return known.factor


def llc_misses_per_byte(llc_misses: float, data_bytes: float) -> float:
    """Divide last-level cache misses by the bytes of a run's input; NaN where either is missing."""
    if llc_misses < 0 or data_bytes < 0:
        raise MeasurementError(
            f"{llc_misses:g} misses over {data_bytes:g} bytes of input: neither can be negative"
        )
    return llc_misses / data_bytes if data_bytes else math.nan


@dataclass
class MemoryTraffic:
    """Counts of a host's memory controllers, all CPUs' traffic, between `start` and `stop`."""

    events: tuple[MemoryEvent, ...]
    perf: PerfCounters
    _process: subprocess.Popen[bytes] | None = None
    _into: Path | None = None
    _started_s: float = 0.0

    @classmethod
    def find(cls, sysfs: Path, procfs: Path) -> Self | None:
        """Find the counters that this host has and perf may read; None where there are none."""
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
        self._process = subprocess.Popen(  # nosec B603  # perf, with events of the kernel
            self.perf.wrap(["cat"], into),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._started_s = time.monotonic()

    def stop(self) -> dict[str, float]:
        """End counting; return the known rates (B/s) by their columns of the runs table."""
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
        moved: dict[str, float] = {}
        for event in self.events:
            total = counted.events.get(event.name)
            # A controller that was not counted leaves its direction unknown.
            size = math.nan
            if total is not None and total.value is not None:
                size = event.bytes_of(total.value, total.unit)
            moved[event.direction] = moved.get(event.direction, 0.0) + size
        seconds = counted.elapsed_s or elapsed_s
        return {
            f"memory_{direction}_bytes_s": size / seconds
            for direction, size in sorted(moved.items())
            if not math.isnan(size)
        }

    def close(self) -> None:
        """End perf, whatever it does."""
        if self._process is not None:
            if self._process.poll() is None:
                cpu_placement.end_group(self._process.pid)
            self._process.communicate()
            self._process = None
