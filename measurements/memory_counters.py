"""Memory traffic that counters see: events of the memory controllers, misses a byte of input."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from measurements.errors import MeasurementError
from measurements.host.files import read_field
from measurements.quantities import UNITS

if TYPE_CHECKING:
    from pathlib import Path

# Column-address strobes of servers (one or two sub-channels), and the names that the counters of
# desktop processors and the free-running ones of both go by. Totals and the parts by requester
# are left out: they contain each other.
_EVENT = re.compile(
    r"^(?:cas_count_(?P<cas>read|write)(?:_sch\d+)?|(?:data_)?(?P<other>read|write)s?)$"
)
_FREE_RUNNING = "free_running"
_CACHE_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """A perf event that counts bytes read from memory or written to it by one controller.

    Attributes
    ----------
    name : str
        For ``perf stat -a -e``, such as "uncore_imc_0/cas_count_read/".
    direction : {"read", "write"}
    bytes_per_count : float
        Of a bare count.
    unit : str
        That perf prints the scaled count in, such as "MiB"; "" where it prints bare counts.
    """

    name: str
    direction: Literal["read", "write"]
    bytes_per_count: float
    unit: str

    def bytes_of(self, value: float, unit: str) -> float:
        """Turn what perf printed, with its unit, into bytes.

        Raises
        ------
        MeasurementError
            When the unit is none of memory.
        """
        if not unit:
            return value * self.bytes_per_count
        return value * _bytes_per(unit, self.name)


def memory_events(sysfs: Path) -> tuple[MemoryEvent, ...] | None:
    """Find the events of the memory controllers in ``bus/event_source/devices/uncore_imc*``.

    Where a controller has both programmable and free-running counters of the same traffic, the
    programmable ones are taken.

    Returns
    -------
    tuple of MemoryEvent, or None
        None where there are none, as in most virtual machines. Counting takes ``perf stat -a``
        with CAP_PERFMON, or /proc/sys/kernel/perf_event_paranoid at 0 or below.
    """
    folder = sysfs / "bus/event_source/devices"
    devices = sorted(folder.glob("uncore_imc*"), key=lambda d: _numbers_apart(d.name))
    found = {device.name: _events_of(device) for device in devices}
    programmable = {name: events for name, events in found.items() if _FREE_RUNNING not in name}
    chosen = programmable if any(programmable.values()) else found
    return tuple(event for events in chosen.values() for event in events) or None


def llc_misses_per_byte(llc_misses: float, data_bytes: float) -> float:
    """Last-level cache misses of a run for each byte of its input; NaN where either is missing.

    Raises
    ------
    MeasurementError
        For a negative count.
    """
    if llc_misses < 0 or data_bytes < 0:
        raise MeasurementError(
            f"{llc_misses:g} misses over {data_bytes:g} bytes of input: neither can be negative"
        )
    return llc_misses / data_bytes if data_bytes else math.nan


def _events_of(device: Path) -> list[MemoryEvent]:
    found = []
    for path in sorted((device / "events").glob("*")):
        if match := _EVENT.match(path.name):
            direction: Literal["read", "write"] = (
                "read" if "read" in (match["cas"], match["other"]) else "write"
            )
            name = f"{device.name}/{path.name}/"
            scale, unit = (
                read_field(path.with_name(f"{path.name}.{w}")) for w in ("scale", "unit")
            )
            if scale and unit:
                size = _scale(scale, path) * _bytes_per(unit, name)
                found.append(MemoryEvent(name, direction, size, unit))
            elif match["cas"]:
                # Older kernels give no scale; a strobe moves a cache line.
                found.append(MemoryEvent(name, direction, _CACHE_LINE_BYTES, ""))
    return found


def _scale(text: str, path: Path) -> float:
    try:
        return float(text)
    except ValueError:
        raise MeasurementError(
            f"{path}.scale: {text!r} is not a number: leave the memory counters out"
        ) from None


def _bytes_per(unit: str, name: str) -> float:
    known = UNITS.get(unit.lower())
    if known is None or known.si != "bytes":
        raise MeasurementError(
            f"{name}: its unit {unit!r} is not one of bytes: leave the memory counters out"
        )
    return known.factor


def _numbers_apart(name: str) -> list[tuple[int, str]]:
    """Sort key by which uncore_imc_10 comes after uncore_imc_9."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)]
