"""How warm the processor is, and how often heat slowed it down."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from measurements.host.clocks import clock_state
from measurements.host.cpu_placement import placement_state
from measurements.host.cpu_time import group_state
from measurements.host.files import read_flag, read_lines, read_number, read_text
from measurements.host.processor import (
    container,
    hypervisor,
    is_virtual_machine,
    online_cores,
    processor_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from measurements.host.files import Value


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


# Idle states of the CPUs: which are on, and how long the deepest takes to leave.


def idle_state(sysfs: Path) -> dict[str, Value]:
    """Driver and governor of the idle states, those that are on and off, and the longest exit.

    A state counts as on if it is on for any CPU.
    """
    cpu = sysfs / "devices/system/cpu"
    state: dict[str, Value] = {}
    for column, name in (("idle_driver", "current_driver"), ("idle_governor", "current_governor")):
        text = read_text(cpu / "cpuidle" / name) or read_text(cpu / "cpuidle" / f"{name}_ro")
        if text and text != "none":
            state[column] = text
    on: dict[str, float | None] = {}
    off: dict[str, float | None] = {}
    for folder in sorted(cpu.glob("cpu[0-9]*/cpuidle/state[0-9]*")):
        if label := read_text(folder / "name"):
            here = off if read_flag(folder / "disable") else on
            here.setdefault(label, read_number(folder / "latency", 1e-6))
    if on:
        state["idle_states_on"] = ", ".join(on)
    if disabled := [label for label in off if label not in on]:
        state["idle_states_off"] = ", ".join(disabled)
    if latencies := [latency for latency in on.values() if latency is not None]:
        state["idle_exit_latency_s"] = max(latencies)
    return state


# Power limits of the processor packages.


_COLUMNS = {
    "long_term": "power_cap_long_w",
    "short_term": "power_cap_short_w",
    "peak_power": "power_cap_peak_w",
}


def power_cap_state(sysfs: Path) -> dict[str, Value]:
    """Lowest limit of any package (W), for long, short and peak loads.

    A package may have its limits twice, in its registers and in memory: the lower one holds.
    """
    state: dict[str, Value] = {}
    for zone in (sysfs / "class/powercap").glob("*:*"):
        of_package = (read_text(zone / "name") or "").startswith("package")
        if not of_package or read_flag(zone / "enabled") is False:
            continue
        for name in zone.glob("constraint_*_name"):
            column = _COLUMNS.get(read_text(name) or "")
            number = name.name.split("_")[1]
            watts = read_number(zone / f"constraint_{number}_power_limit_uw", 1e-6)
            # 0 is a limit that is not set.
            if column and watts:
                state[column] = min(watts, float(state.get(column, watts)))
    return state


# The rest that slows a host down or speeds it up: kernel, mitigations, pages, load, power.


_CHOSEN = re.compile(r"\[([^\]]+)\]")


def system_state(sysfs: Path, procfs: Path, root: Path) -> dict[str, Value]:
    """Kernel, virtual machine or container, mitigations, huge pages, clock source, load.

    Parameters
    ----------
    sysfs, procfs : Path
    root : Path
        Root folder, for the marks that containers leave there.
    """
    cpu = sysfs / "devices/system/cpu"
    found: dict[str, Value | None] = {
        "kernel": read_text(procfs / "sys/kernel/osrelease"),
        "virtual_machine": is_virtual_machine(sysfs, procfs),
        "hypervisor": hypervisor(sysfs, procfs),
        "container": container(root, procfs),
        "transparent_hugepages": _chosen(sysfs / "kernel/mm/transparent_hugepage/enabled"),
        "clocksource": read_text(
            sysfs / "devices/system/clocksource/clocksource0/current_clocksource"
        ),
        "platform_profile": read_text(sysfs / "firmware/acpi/platform_profile"),
        "nmi_watchdog": read_flag(procfs / "sys/kernel/nmi_watchdog"),
        "on_battery": _on_battery(sysfs),
        "memory_bytes": _memory_bytes(procfs),
        "load_average_1min": _load(procfs),
    }
    found |= _vulnerabilities(cpu / "vulnerabilities")
    return {column: value for column, value in found.items() if value is not None}


def _chosen(path: Path) -> str | None:
    """Read the setting that stands in brackets among its alternatives."""
    match = _CHOSEN.search(read_text(path) or "")
    return match[1] if match else None


def _load(procfs: Path) -> float | None:
    first = (read_text(procfs / "loadavg") or "").split(" ")[0]
    return float(first) if re.fullmatch(r"\d+(\.\d+)?", first) else None


def _memory_bytes(procfs: Path) -> float | None:
    for line in read_lines(procfs / "meminfo"):
        if match := re.match(r"MemTotal:\s+(\d+) kB", line):
            return int(match[1]) * 1024.0
    return None


def _on_battery(sysfs: Path) -> bool | None:
    mains = [
        online
        for supply in (sysfs / "class/power_supply").glob("*")
        if read_text(supply / "type") == "Mains"
        and (online := read_number(supply / "online")) is not None
    ]
    return not any(mains) if mains else None


def _vulnerabilities(folder: Path) -> dict[str, Value]:
    """Processor faults that the kernel works around, and those left open."""
    said = {path.name: read_text(path) or "" for path in sorted(folder.glob("*"))}
    groups = {"mitigated": "Mitigation", "vulnerable": "Vulnerable"}
    named = {
        column: ", ".join(name for name, text in said.items() if text.startswith(word))
        for column, word in groups.items()
    }
    return {column: names for column, names in named.items() if names}


# The state of a host that bends its time and power without showing in the core clock.
#
# Recorded with every run: turbo, governors and limits, idle states, uncore clock, power caps,
# temperature and throttling, placement, quotas, kernel and mitigations.


# Columns that only grow while something holds the processor or the process back.
_THROTTLING = (
    *("core_throttles", "core_throttled_s"),
    *("package_throttles", "package_throttled_s"),
    "quota_throttled_s",
)


def read_state(
    sysfs: Path = Path("/sys"),
    procfs: Path = Path("/proc"),
    *,
    root: Path = Path("/"),
    pid: int | None = None,
) -> dict[str, Value]:
    """Read everything that this host tells of its state, as columns of the runs table.

    Parameters
    ----------
    sysfs, procfs, root : Path
        Where the kernel's trees and the root folder are; other folders for tests.
    pid : int, optional
        Process whose placement is read; by default this one.

    Returns
    -------
    dict of column to float, str or bool
        Names carry their units. What the host does not tell is not there. The counts of
        throttling are since the host's start: `throttled_between` makes a run's of them.
    """
    return {
        **processor_state(sysfs, procfs),
        **clock_state(sysfs),
        **idle_state(sysfs),
        **power_cap_state(sysfs),
        **heat_state(sysfs),
        **placement_state(sysfs, procfs, pid),
        **group_state(sysfs, procfs, pid),
        **system_state(sysfs, procfs, root),
    }


def throttled_between(
    before: Mapping[str, Value], after: Mapping[str, Value]
) -> dict[str, float | bool]:
    """How much heat, current or a quota held a run back.

    Parameters
    ----------
    before, after : mapping of column to value
        States at both ends of the run, of `read_state`.

    Returns
    -------
    dict of column to float or bool
        The growth of each count, and ``throttled``: whether any grew. Empty where the host keeps
        no such counts.
    """
    grown: dict[str, float | bool] = {}
    for column in _THROTTLING:
        if column in before and column in after:
            growth = float(after[column]) - float(before[column])
            # A CPU that went offline takes its count along.
            if growth >= 0:
                grown[column] = growth
    return {**grown, "throttled": any(grown.values())} if grown else {}


# Waiting until a host is as cool as it was before the first run, where it can tell.


_LONGEST_S = 120.0
_COOLER_C = 5.0


class Cooling:
    """The temperature at which runs begin.

    Parameters
    ----------
    temperature_c : callable
        Reads the temperature, None where no sensor is. The one read now is the one to come back to.
    """

    def __init__(self, temperature_c: Callable[[], float | None]) -> None:
        self._temperature_c = temperature_c
        self._coolest_c = temperature_c()

    def wait(self) -> None:
        """Wait until the host is as cool as it was, for two minutes at most."""
        now_c = self._temperature_c()
        if now_c is None or self._coolest_c is None:
            return
        until = time.monotonic() + _LONGEST_S
        while now_c > self._coolest_c + _COOLER_C and time.monotonic() < until:
            time.sleep(0.5)
            now_c = self._temperature_c() or now_c
        if now_c > self._coolest_c + _COOLER_C:
            # It will not get cooler than this while the runs last.
            self._coolest_c = now_c - _COOLER_C
