"""What Redfish resources say of watts and joules, and how well.

Pure functions of the documents; `measurements.power.redfish` fetches them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from measurements.power.redfish_client import dig, member_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Document = Mapping[str, Any]
    # A resource by its path; None where the service has none there.
    Look = Callable[[str], "Document | None"]

# What BMCs say for "unknown" in 16 and in 32 bits, the latter in W or in mW.
NO_WATTS = {65535.0, 4294967295.0, 4294967.295}

JOULES_PER_KWH = 3.6e6
# A tenth of a watt hour is a second of 360 W: a coarser counter says less than the watts do.
COARSEST_J = 360.0
# More decimals than this come from a division, not from the counter.
FINEST_J = 0.01

# In its slot, but delivering nothing.
IDLE_STATES = ("Absent", "Disabled", "StandbyOffline", "UnavailableOffline")
# Entries of `PowerControl` of such a context are parts of the one that is wanted.
PARTS = ("Accelerator", "CPU", "Fan", "GPU", "Memory", "NetworkingDevice", "StorageDevice")

_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)


class Value(NamedTuple):
    """A figure (W or J; NaN for none), and the sensor's own time of it."""

    value: float
    source_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a chassis: its name, the resources it is computed from, and how.

    ``resolution`` and ``window_s`` are those of `measurements.power.protocol.Channel`.
    """

    name: str
    paths: tuple[str, ...]
    compute: Callable[[Sequence[Document]], Value]
    quantity: Literal["energy", "power"] = "power"
    resolution: float = math.nan
    window_s: float = 0.0
    note: str = ""

    def now(self, look: Look) -> float:
        """Say what it is at the moment, NaN where the service tells none."""
        return self.compute([look(path) or {} for path in self.paths]).value


def best_power(chassis: Document, look: Look) -> Figure | None:
    """Choose the first figure that says something, else the first that there is."""
    silent: Figure | None = None
    for find in (_environment, _supplies, _momentary, _average):
        figure = find(chassis, look)
        if figure and not math.isnan(figure.now(look)):
            return figure
        silent = silent or figure
    return silent


def energy_counter(chassis: Document, look: Look) -> Figure | None:
    """Find a counter of energy that is fine enough to tell one run from another."""
    path, metrics = _linked(chassis, look, "EnvironmentMetrics")
    if number(dig(metrics, "EnergyJoules", "Reading")) > 0:
        return Figure("energy", (path,), _joules_said, "energy", resolution=1.0)
    step = JOULES_PER_KWH * _decimal_step(_kilowatt_hours(metrics))
    if not 0 < step <= COARSEST_J:
        return None
    resolution = step if step >= FINEST_J else math.nan
    return Figure("energy", (path,), _joules_of_kwh, "energy", resolution=resolution)


def number(said: Any) -> float:
    """Take a JSON number that can be one of power or energy; NaN for everything else."""
    if isinstance(said, bool) or not isinstance(said, int | float):
        return math.nan
    try:
        value = float(said)
    except OverflowError:
        return math.nan
    return value if 0 <= value < math.inf and value not in NO_WATTS else math.nan


def watts(said: Any) -> float:
    """Take a JSON number of watts above 0, which is what a BMC says for "unknown"; else NaN.

    >>> watts(240), watts(0), watts("240"), watts(None)
    (240.0, nan, nan, nan)
    """
    return number(said) or math.nan


def seconds(duration: Any) -> float:
    """Read an ISO 8601 duration such as ``PT0.5S``; 0 for none."""
    match = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if match is None:
        return 0.0
    parts = {unit: float(said or 0) for unit, said in match.groupdict().items()}
    total = 86400 * parts["d"] + 3600 * parts["h"] + 60 * parts["m"] + parts["s"]
    return total if math.isfinite(total) else 0.0


def epoch(moment: Any) -> float | None:
    """Read an ISO 8601 time as seconds since 1970; None for none."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _linked(chassis: Document, look: Look, name: str) -> tuple[str, Document]:
    path = dig(chassis, name, "@odata.id")
    return (path, look(path) or {}) if isinstance(path, str) else ("", {})


def _environment(chassis: Document, look: Look) -> Figure | None:
    path, metrics = _linked(chassis, look, "EnvironmentMetrics")
    if dig(metrics, "PowerWatts") is None:
        return None
    behind = dig(metrics, "PowerWatts", "DataSourceUri")
    sensor = look(behind) if isinstance(behind, str) else None
    # Only the sensor itself tells when it was read.
    if sensor and "Reading" in sensor and sensor.get("ReadingUnits", "W") == "W":
        averaging = seconds(sensor.get("AveragingInterval"))
        window_s = averaging or seconds(sensor.get("SensingInterval"))
        return Figure("environment", (behind,), _sensor_said, window_s=window_s)
    return Figure("environment", (path,), _environment_said)


def _environment_said(documents: Sequence[Document]) -> Value:
    return Value(watts(dig(documents[0], "PowerWatts", "Reading")))


def _sensor_said(documents: Sequence[Document]) -> Value:
    return Value(watts(documents[0].get("Reading")), epoch(documents[0].get("ReadingTime")))


def _supplies(chassis: Document, look: Look) -> Figure | None:
    """Sum all supplies, or nothing: a sum that lacks one would look like a frugal host."""
    _, subsystem = _linked(chassis, look, "PowerSubsystem")
    _, supplies = _linked(subsystem, look, "PowerSupplies")
    paths = []
    for member in member_paths(supplies):
        supply = look(member) or {}
        if dig(supply, "Status", "State") == "Absent":
            continue
        path, metrics = _linked(supply, look, "Metrics")
        if "InputPowerWatts" not in metrics:
            return None
        paths.append(path)
    return Figure("supplies", tuple(paths), _supplies_said) if paths else None


def _supplies_said(documents: Sequence[Document]) -> Value:
    delivering = (d for d in documents if dig(d, "Status", "State") not in IDLE_STATES)
    # One that rests in cold redundancy takes 0 W; all of them together do not.
    return Value(watts(sum(number(dig(d, "InputPowerWatts", "Reading")) for d in delivering)))


def _momentary(chassis: Document, look: Look) -> Figure | None:
    path, power = _linked(chassis, look, "Power")
    index, note = _whole(power)
    if dig(power, "PowerControl", index, "PowerConsumedWatts") is None:
        return None
    return Figure(
        "power",
        (path,),
        lambda said: Value(watts(dig(said[0], "PowerControl", index, "PowerConsumedWatts"))),
        note=note,
    )


def _average(chassis: Document, look: Look) -> Figure | None:
    path, power = _linked(chassis, look, "Power")
    index, note = _whole(power)
    metrics = ("PowerControl", index, "PowerMetrics")
    window_s = 60 * number(dig(power, *metrics, "IntervalInMin"))
    if not window_s > 0 or dig(power, *metrics, "AverageConsumedWatts") is None:
        return None
    return Figure(
        "average",
        (path,),
        lambda said: Value(watts(dig(said[0], *metrics, "AverageConsumedWatts"))),
        window_s=window_s,
        note=note,
    )


def _whole(power: Document) -> tuple[int, str]:
    """Index of the entry that covers the whole chassis, and what to know of the choice."""
    entries = dig(power, "PowerControl")
    if not isinstance(entries, list):
        return 0, ""
    whole = [i for i, entry in enumerate(entries) if dig(entry, "PhysicalContext") not in PARTS]
    if len(whole) < 2:
        return (whole or [0])[0], ""
    name = dig(entries, whole[0], "Name")
    return whole[0], f"first of {len(whole)} figures of its resource, named {name}"


def _joules_said(documents: Sequence[Document]) -> Value:
    return Value(number(dig(documents[0], "EnergyJoules", "Reading")))


def _joules_of_kwh(documents: Sequence[Document]) -> Value:
    return Value(JOULES_PER_KWH * number(_kilowatt_hours(documents[0])))


def _kilowatt_hours(metrics: Document) -> Any:
    """Prefer the count since the BMC was made, which no user can set to 0."""
    lifetime = dig(metrics, "EnergykWh", "LifetimeReading")
    return dig(metrics, "EnergykWh", "Reading") if lifetime is None else lifetime


def _decimal_step(said: Any) -> float:
    """Place value of the last decimal written; 0 where there is no number above 0."""
    if not number(said) > 0:
        return 0.0
    exponent = Decimal(repr(said)).as_tuple().exponent
    return 10.0 ** int(exponent)
