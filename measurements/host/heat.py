"""How warm the processor is, and how often heat slowed it down."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from measurements.host.files import read_number, read_text
from measurements.host.processor import online_cores

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from measurements.host.value import Value

# Drivers of the processor's own sensors.
_HWMON = frozenset({"coretemp", "k10temp", "k8temp", "zenpower", "cpu_thermal", "via_cputemp"})
_ZONES = re.compile(r"x86_pkg_temp|cpu|soc|cluster|package", re.IGNORECASE)
# Sensors that are asleep or not there say -128, -273 or 255.
_LEAST_C, _MOST_C = -40.0, 130.0
_COUNTS = {
    "core_throttles": ("core_throttle_count", 1.0),
    "core_throttled_s": ("core_throttle_total_time_ms", 1e-3),
    "package_throttles": ("package_throttle_count", 1.0),
    "package_throttled_s": ("package_throttle_total_time_ms", 1e-3),
}


def heat_state(sysfs: Path) -> dict[str, Value]:
    """Temperature of the hottest package now (°C), and throttling since the host's start."""
    state: dict[str, Value] = dict(throttle_counts(sysfs))
    temperature_c = package_temperature_c(sysfs)
    if temperature_c is not None:
        state["temperature_c"] = temperature_c
    return state


def package_temperature_c(sysfs: Path) -> float | None:
    """Temperature of the hottest package now (°C); None where no sensor tells."""
    sensors = [
        _hottest(folder)
        for folder in (sysfs / "class/hwmon").glob("hwmon*")
        if read_text(folder / "name") in _HWMON
    ]
    known = [c for c in sensors if c is not None]
    if known:
        return max(known)
    zones = (sysfs / "class/thermal").glob("thermal_zone*")
    named = (zone for zone in zones if _ZONES.search(read_text(zone / "type") or ""))
    return max(_temperatures(zone / "temp" for zone in named), default=None)


def throttle_counts(sysfs: Path) -> dict[str, float]:
    """How often, and for how long (s), heat or current slowed cores and packages down.

    Since the host's start, summed over physical cores and over packages.
    """
    cores = online_cores(sysfs)
    packages: dict[str, set[int]] = {}
    for core in cores:
        packages.setdefault(core.package, set()).update(core.cpus)
    groups: dict[str, list[Collection[int]]] = {
        "core": [core.cpus for core in cores],
        "package": list(packages.values()),
    }
    counts = {}
    for column, (name, scale) in _COUNTS.items():
        # Every CPU of a core or package keeps the same count.
        most = [_most(sysfs, cpus, name) for cpus in groups[column.split("_")[0]]]
        known = [number for number in most if number is not None]
        if known:
            counts[column] = sum(known) * scale
    return counts


def _hottest(folder: Path) -> float | None:
    """Temperature of one driver's package: the package's own sensor if there is one."""
    inputs = sorted(folder.glob("temp*_input"))
    labels = {p: read_text(p.with_name(p.name.replace("_input", "_label"))) or "" for p in inputs}
    for wanted in ("Package", "Tdie", "Tccd"):
        # Tctl has an offset on some AMD processors, for the fans' sake.
        chosen = [path for path, label in labels.items() if label.startswith(wanted)]
        if found := _temperatures(chosen):
            return max(found)
    return max(_temperatures(inputs), default=None)


def _temperatures(paths: Iterable[Path]) -> list[float]:
    found = (read_number(path, 1e-3) for path in paths)
    return [c for c in found if c is not None and _LEAST_C < c < _MOST_C]


def _most(sysfs: Path, cpus: Iterable[int], name: str) -> float | None:
    folder = sysfs / "devices/system/cpu"
    found = (read_number(folder / f"cpu{cpu}/thermal_throttle" / name) for cpu in cpus)
    return max((number for number in found if number is not None), default=None)
