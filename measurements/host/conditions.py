"""State of the host that bends time and power of a run without showing in the core frequency.

Recorded with every run: turbo, governors and limits, idle states, uncore frequency, power caps,
temperature and throttling, placement, quotas, kernel and mitigations.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from measurements.host import files, processor
from measurements.host.activity import group_state
from measurements.host.cpu_placement import placement_state
from measurements.host.frequency_control import clock_state, cpu_folder

# Drivers of the processor's own sensors.
_HWMON = frozenset({"coretemp", "k10temp", "k8temp", "zenpower", "cpu_thermal", "via_cputemp"})
_ZONES = re.compile(r"x86_pkg_temp|cpu|soc|cluster|package", re.IGNORECASE)
# Sensors that are asleep or not there say -128, -273 or 255.
_LEAST_C, _MOST_C = -40.0, 130.0
_THROTTLE_COUNTS = {
    "core_throttles": ("core_throttle_count", 1.0),
    "core_throttled_s": ("core_throttle_total_time_ms", 1e-3),
    "package_throttles": ("package_throttle_count", 1.0),
    "package_throttled_s": ("package_throttle_total_time_ms", 1e-3),
}
_POWER_CAPS = {
    "long_term": "power_cap_long_w",
    "short_term": "power_cap_short_w",
    "peak_power": "power_cap_peak_w",
}
_IN_BRACKETS = re.compile(r"\[([^\[\]]+)\]")
_LONGEST_COOLING_S, _COOLER_C = 120.0, 5.0


def read_state(
    sysfs: Path = Path("/sys"),
    procfs: Path = Path("/proc"),
    *,
    root: Path = Path("/"),
    pid: int | None = None,
) -> dict[str, files.Value]:
    """Read everything that this host tells of its state, as columns of the runs table.

    Names carry their units; what the host does not tell is left out. The counts of throttling are
    since the host's start (`throttled_between` makes those of a run). ``pid`` is the process whose
    placement is read, by default this one.
    """
    return {
        **processor.processor_state(sysfs, procfs),
        **clock_state(sysfs),
        **idle_state(sysfs),
        **power_cap_state(sysfs),
        **throttle_counts(sysfs),
        **files.without_missing({"temperature_c": package_temperature_c(sysfs)}),
        **placement_state(sysfs, procfs, pid),
        **group_state(sysfs, procfs, pid),
        **system_state(sysfs, procfs, root),
    }


def throttled_between(
    before: Mapping[str, files.Value], after: Mapping[str, files.Value]
) -> dict[str, float | bool]:
    """Compute how much heat, current or a quota held a run back, from the states at both ends."""
    columns = [c for c in (*_THROTTLE_COUNTS, "quota_throttled_s") if c in before and c in after]
    growth = {column: float(after[column]) - float(before[column]) for column in columns}
    # A CPU that went offline takes its count along.
    grown = {column: value for column, value in growth.items() if value >= 0}
    return {**grown, "throttled": any(grown.values())} if grown else {}


def throttle_counts(sysfs: Path) -> dict[str, float]:
    """Read how often, and how long (s), heat or current slowed cores and packages so far."""
    cores = processor.online_cores(sysfs)
    packages: dict[str, set[int]] = {}
    for core in cores:
        packages.setdefault(core.package, set()).update(core.cpus)
    groups: dict[str, list[Collection[int]]] = {
        "core": [core.cpus for core in cores],
        "package": list(packages.values()),
    }
    counts = {}
    for column, (name, scale) in _THROTTLE_COUNTS.items():
        # Every CPU of a core or package keeps the same count.
        each = [
            files.read_numbers(cpu_folder(sysfs) / f"cpu{n}/thermal_throttle" / name for n in cpus)
            for cpus in groups[column.partition("_")[0]]
        ]
        if known := [max(numbers) for numbers in each if numbers]:
            counts[column] = sum(known) * scale
    return counts


def package_temperature_c(sysfs: Path) -> float | None:
    """Read the temperature of the hottest package (°C); None where no sensor tells."""
    sensors = [
        _hottest(folder)
        for folder in (sysfs / "class/hwmon").glob("hwmon*")
        if files.read_text(folder / "name") in _HWMON
    ]
    if known := [c for c in sensors if c is not None]:
        return max(known)
    zones = (sysfs / "class/thermal").glob("thermal_zone*")
    named = (zone for zone in zones if _ZONES.search(files.read_field(zone / "type")))
    return max(_plausible_c(zone / "temp" for zone in named), default=None)


def _hottest(folder: Path) -> float | None:
    """Read the temperature (°C) of one driver's package: its own sensor if there is one."""
    inputs = sorted(folder.glob("temp*_input"))
    labels = {p: files.read_field(p.with_name(p.name.replace("_input", "_label"))) for p in inputs}
    # Tctl has an offset on some AMD processors, for the fans' sake.
    for wanted in ("Package", "Tdie", "Tccd"):
        if found := _plausible_c(p for p, label in labels.items() if label.startswith(wanted)):
            return max(found)
    return max(_plausible_c(inputs), default=None)


def _plausible_c(paths: Iterable[Path]) -> list[float]:
    return [c for c in files.read_numbers(paths, 1e-3) if _LEAST_C < c < _MOST_C]


def idle_state(sysfs: Path) -> dict[str, files.Value]:
    """Read idle driver and governor, states on (for any CPU) and off, and longest exit (s)."""
    cpu = cpu_folder(sysfs)
    state: dict[str, files.Value] = {}
    for column, name in (("idle_driver", "current_driver"), ("idle_governor", "current_governor")):
        folder = cpu / "cpuidle"
        text = files.read_text(folder / name) or files.read_text(folder / f"{name}_ro")
        if text and text != "none":
            state[column] = text
    on: dict[str, float | None] = {}
    off: dict[str, float | None] = {}
    for folder in sorted(cpu.glob("cpu[0-9]*/cpuidle/state[0-9]*")):
        if label := files.read_text(folder / "name"):
            here = off if files.read_flag(folder / "disable") else on
            here.setdefault(label, files.read_number(folder / "latency", 1e-6))
    if on:
        state["idle_states_on"] = ", ".join(on)
    if disabled := [label for label in off if label not in on]:
        state["idle_states_off"] = ", ".join(disabled)
    if latencies := [latency for latency in on.values() if latency is not None]:
        state["idle_exit_latency_s"] = max(latencies)
    return state


def power_cap_state(sysfs: Path) -> dict[str, files.Value]:
    """Read the lowest power limit of any package (W), for long, short and peak loads."""
    state: dict[str, files.Value] = {}
    for zone in (sysfs / "class/powercap").glob("*:*"):
        of_package = files.read_field(zone / "name").startswith("package")
        if not of_package or files.read_flag(zone / "enabled") is False:
            continue
        for name in zone.glob("constraint_*_name"):
            column = _POWER_CAPS.get(files.read_field(name))
            limit = zone / name.name.replace("_name", "_power_limit_uw")
            power_w = files.read_number(limit, 1e-6)
            # 0 is a limit that is not set; of registers and memory, the lower one holds.
            if column and power_w:
                state[column] = min(power_w, float(state.get(column, power_w)))
    return state


def system_state(sysfs: Path, procfs: Path, root: Path) -> dict[str, files.Value]:
    """Read kernel, virtual machine or container, mitigations, huge pages, clock source, load."""
    load = files.read_field(procfs / "loadavg").split(" ")[0]
    clocksource = sysfs / "devices/system/clocksource/clocksource0/current_clocksource"
    hugepages = files.read_field(sysfs / "kernel/mm/transparent_hugepage/enabled")
    # The setting in force stands in brackets among its alternatives.
    chosen = _IN_BRACKETS.search(hugepages)
    supplies = (sysfs / "class/power_supply").glob("*")
    mains = files.read_numbers(
        supply / "online" for supply in supplies if files.read_text(supply / "type") == "Mains"
    )
    found: dict[str, files.Value | None] = {
        "kernel": files.read_text(procfs / "sys/kernel/osrelease"),
        "virtual_machine": processor.is_virtual_machine(sysfs, procfs),
        "hypervisor": processor.hypervisor(sysfs, procfs),
        "container": processor.container(root, procfs),
        "transparent_hugepages": chosen[1] if chosen else None,
        "clocksource": files.read_text(clocksource),
        "platform_profile": files.read_text(sysfs / "firmware/acpi/platform_profile"),
        "nmi_watchdog": files.read_flag(procfs / "sys/kernel/nmi_watchdog"),
        "on_battery": not any(mains) if mains else None,
        "memory_bytes": files.memory_bytes(procfs),
        "load_average_1min": float(load) if re.fullmatch(r"\d+(\.\d+)?", load) else None,
    }
    # Processor faults that the kernel works around, and those left open.
    faults = sorted((cpu_folder(sysfs) / "vulnerabilities").glob("*"))
    for column, word in (("mitigated", "Mitigation"), ("vulnerable", "Vulnerable")):
        names = [path.name for path in faults if files.read_field(path).startswith(word)]
        found[column] = ", ".join(names) or None
    return files.without_missing(found)


class Cooling:
    """Wait between runs until the host is as cool (°C) as it was before the first."""

    def __init__(self, temperature_c: Callable[[], float | None]) -> None:
        self._temperature_c = temperature_c
        self._coolest_c = temperature_c()

    def wait(self) -> None:
        """Wait until the host is as cool as it was, for two minutes at most."""
        now_c = self._temperature_c()
        if now_c is None or self._coolest_c is None:
            return
        until = time.monotonic() + _LONGEST_COOLING_S
        while now_c > self._coolest_c + _COOLER_C and time.monotonic() < until:
            time.sleep(0.5)
            now_c = self._temperature_c() or now_c
        if now_c > self._coolest_c + _COOLER_C:
            # It will not get cooler than this while the runs last.
            self._coolest_c = now_c - _COOLER_C
