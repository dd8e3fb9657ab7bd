"""Frequencies of the cores and of the uncore: who sets them, their limits and present values.

cpufreq's files are in kHz; everything here is in Hz. A policy is a set of logical CPUs whose
frequency is set together. Old kernels keep a policy's files below each of its CPUs.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from measurements.errors import MeasurementError
from measurements.host import files
from measurements.host.processor import cpu_flags
from measurements.processes.settings_guard import UPPER_LIMIT
from measurements.table.units import frequency_text

_HZ_PER_KHZ = 1e3
_UNCORE = {
    "uncore_freq_hz": ("current_freq_khz", max),
    "uncore_min_freq_hz": ("min_freq_khz", min),
    "uncore_max_freq_hz": ("max_freq_khz", max),
}
# acpi-cpufreq lists turbo as a step this much above the highest real one.
_TURBO_MARK_HZ = 1e6
# Cooling devices that work by cpufreq: of ACPI, and of device trees.
_COOLING = ("Processor", "cpufreq", "thermal-cpufreq")


def current_frequencies(sysfs: Path) -> dict[int, float]:
    """Read the last known frequency of each CPU (Hz); {} without cpufreq."""
    found = {}
    for folder in cpu_folder(sysfs).glob("cpu[0-9]*"):
        khz = files.read_number(folder / "cpufreq/scaling_cur_freq")
        if khz and (number := re.fullmatch(r"cpu(\d+)", folder.name)):
            found[int(number[1])] = khz * _HZ_PER_KHZ
    return dict(sorted(found.items()))


def clock_state(sysfs: Path) -> dict[str, files.Value]:
    """Read turbo, driver, governor, limits and preferences of core and uncore frequencies.

    Where CPUs differ, texts are listed one after the other and limits are the widest.
    """
    cpu = cpu_folder(sysfs)
    policies = sorted((cpu / "cpufreq").glob("policy[0-9]*"))
    texts = ("scaling_driver", "scaling_governor", "energy_performance_preference")
    state: dict[str, files.Value | None] = {
        name: files.shared_text(policy / name for policy in policies) for name in texts
    }
    for name, widest in (("scaling_min_freq", min), ("scaling_max_freq", max)):
        state[f"{name}_hz"] = _extreme(widest, (policy / name for policy in policies))
    state["energy_performance_bias"] = files.shared_text(
        cpu.glob("cpu[0-9]*/power/energy_perf_bias")
    )
    state["turbo"] = _turbo(cpu, policies)
    # The drivers that choose the frequency themselves.
    for driver in ("intel_pstate", "amd_pstate"):
        if mode := files.read_text(cpu / driver / "status"):
            state["pstate_mode"] = mode
    intel = cpu / "intel_pstate"
    state["pstate_min_share"] = files.read_number(intel / "min_perf_pct", 0.01)
    state["pstate_max_share"] = files.read_number(intel / "max_perf_pct", 0.01)
    state["hwp_dynamic_boost"] = files.read_flag(intel / "hwp_dynamic_boost")
    for column, (name, widest) in _UNCORE.items():
        state[column] = _extreme(widest, (cpu / "intel_uncore_frequency").glob(f"*/{name}"))
    return files.without_missing(state)


def _extreme(choose: Callable[[list[float]], float], paths: Iterable[Path]) -> float | None:
    khz = [number for number in files.read_numbers(paths) if number]
    return choose(khz) * _HZ_PER_KHZ if khz else None


def _turbo(cpu: Path, policies: Iterable[Path]) -> bool | None:
    if (no_turbo := files.read_flag(cpu / "intel_pstate/no_turbo")) is not None:
        return not no_turbo
    boost = files.read_flag(cpu / "cpufreq/boost")
    each = [flag for p in policies if (flag := files.read_flag(p / "boost")) is not None]
    # Where it is on for the host, single policies may still be without it.
    if boost is False or not each:
        return boost
    return any(each)


@dataclass(frozen=True, slots=True)
class Policy:
    """Logical CPUs whose frequency is set together, and the frequencies that they can run at."""

    folder: Path
    # Those of its logical CPUs that are online.
    cpus: tuple[int, ...]
    # Such as "acpi-cpufreq", "intel_pstate", "intel_cpufreq" (intel_pstate in passive mode) or
    # "amd-pstate-epp".
    driver: str
    # Range of the processor; the highest moves with turbo under some drivers.
    lowest_hz: float
    highest_hz: float
    # Ascending; empty where the driver takes any frequency of the range.
    steps_hz: tuple[float, ...]
    governors: tuple[str, ...]
    # Entry of acpi-cpufreq's table that stands for turbo; no frequency that can be fixed.
    turbo_mark_hz: float | None = None

    @property
    def name(self) -> str:
        """The kernel's name: "policy0", or "cpu0" by an old kernel."""
        return self.folder.parent.name if self.folder.name == "cpufreq" else self.folder.name

    def refusal(self, freq_hz: float) -> str | None:
        """Say why the frequency cannot be fixed, or None where it can."""
        khz = in_khz(freq_hz)
        if not self.steps_hz:
            if in_khz(self.lowest_hz) <= khz <= in_khz(self.highest_hz):
                return None
            low, high = map(frequency_text, (self.lowest_hz, self.highest_hz))
            return f"is outside the range from {low} to {high}"
        steps = [in_khz(step) for step in self.steps_hz]
        if khz in steps:
            return None
        texts = [frequency_text(step) for step in self.steps_hz]
        if self.turbo_mark_hz is not None and khz == in_khz(self.turbo_mark_hz):
            return f"stands for turbo, whose clock is not fixed; the highest step is {texts[-1]}"
        at = bisect(steps, khz)
        if at == 0:
            return f"is below the lowest step, {texts[0]}"
        if at == len(steps):
            return f"is above the highest step, {texts[-1]}"
        return f"is no step; those around it are {texts[at - 1]} and {texts[at]}"


class FrequencyRange(NamedTuple):
    """Frequencies that several policies share (Hz); lowest and highest are NaN without any.

    ``steps_hz`` is ascending, and empty where any frequency of the range can be set.
    """

    lowest_hz: float
    highest_hz: float
    steps_hz: tuple[float, ...]


class TurboSwitch(NamedTuple):
    """The files that turn turbo on and off, and what they hold for either."""

    paths: tuple[Path, ...]
    on: str
    off: str


def cpu_folder(sysfs: Path) -> Path:
    """Name the folder of the host's CPUs in a sysfs tree."""
    return sysfs / "devices/system/cpu"


def in_khz(freq_hz: float) -> int:
    """Convert a frequency (Hz) to the integer that cpufreq reads and writes (kHz)."""
    return round(freq_hz / _HZ_PER_KHZ)


def read_hz(path: Path) -> float | None:
    """Read a frequency (Hz); None where the file has no positive number."""
    khz = files.number(path)
    return khz * _HZ_PER_KHZ if khz and khz > 0 else None


def read_policies(
    sysfs: Path = Path("/sys"), *, procfs: Path = Path("/proc")
) -> tuple[Policy, ...]:
    """Read the policies of all logical CPUs that are online.

    Raises `MeasurementError` when there is no frequency control.
    """
    policies = sorted(
        (policy for folder in _policy_folders(sysfs) if (policy := _read_policy(folder)).cpus),
        key=lambda policy: policy.cpus,
    )
    if not policies:
        raise MeasurementError(_no_control(sysfs, procfs))
    return tuple(policies)


def _policy_folders(sysfs: Path) -> list[Path]:
    cpu = cpu_folder(sysfs)
    # Under an old kernel, CPUs of one policy have links to the folder of the first.
    return list((cpu / "cpufreq").glob("policy[0-9]*")) or list(
        {folder.resolve() for folder in cpu.glob("cpu[0-9]*/cpufreq")}
    )


def _read_policy(folder: Path) -> Policy:
    """Read one policy; it has no CPUs where they are offline or have no range."""
    highest = read_hz(folder / "cpuinfo_max_freq")
    lowest = read_hz(folder / "cpuinfo_min_freq")
    cpus = files.parse_cpu_list(files.read_field(folder / "affected_cpus"))
    driver = files.read_field(folder / "scaling_driver") or "unknown"
    # Steps of turbo are listed even while it is off.
    listed = {
        float(khz) * _HZ_PER_KHZ
        for name in ("scaling_available_frequencies", "scaling_boost_frequencies")
        for khz in files.read_field(folder / name).split()
        if khz.isdecimal()
    }
    steps = sorted(step for step in listed if step <= (highest or 0.0))
    mark = None
    if driver == "acpi-cpufreq" and len(steps) > 1 and steps[-1] - steps[-2] == _TURBO_MARK_HZ:
        mark = steps.pop()
    return Policy(
        folder,
        () if lowest is None or highest is None else cpus,
        driver,
        lowest_hz=lowest or math.nan,
        highest_hz=highest or math.nan,
        steps_hz=tuple(steps),
        governors=tuple(files.read_field(folder / "scaling_available_governors").split()),
        turbo_mark_hz=mark,
    )


def _no_control(sysfs: Path, procfs: Path) -> str:
    where = f"no frequency control under {cpu_folder(sysfs)}"
    if not os.access(cpu_folder(sysfs), os.R_OK | os.X_OK):
        return f"{where}: there is no such folder, or it cannot be read"
    why = (
        "the processor has none (as Atom D510 and D525), it is off in the firmware, or its "
        "driver is not loaded (modprobe acpi-cpufreq)"
    )
    if "hypervisor" in cpu_flags(procfs):
        why = "this is a virtual machine, whose clock the host controls"
    return f"{where}: {why}; --as-found measures at whatever clock is there"


def common_frequencies(policies: Sequence[Policy]) -> FrequencyRange:
    """Find the frequencies that all these policies can be fixed at."""
    lowest = max(policy.lowest_hz for policy in policies)
    highest = min(policy.highest_hz for policy in policies)
    tables = [set(policy.steps_hz) for policy in policies if policy.steps_hz]
    steps: list[float] = []
    if tables:
        steps = sorted(s for s in tables[0].intersection(*tables) if lowest <= s <= highest)
        lowest, highest = (steps[0], steps[-1]) if steps else (math.nan, math.nan)
    if not lowest <= highest:
        lowest = highest = math.nan
    return FrequencyRange(lowest, highest, tuple(steps))


def find_turbo(sysfs: Path, policies: Iterable[Policy], *, each: bool) -> TurboSwitch | None:
    """Find the switch of turbo, or None where the kernel has none.

    ``each`` prefers the switches of these policies to that of the host, where both exist.
    """
    folders = [policy.folder for policy in policies]
    inverse = cpu_folder(sysfs) / "intel_pstate/no_turbo"
    if inverse.exists():
        return TurboSwitch((inverse,), on="0", off="1")
    of_host = cpu_folder(sysfs) / "cpufreq/boost"
    if each or not of_host.exists():
        for name in ("boost", "cpb"):
            paths = tuple(folder / name for folder in folders)
            if paths and all(path.exists() for path in paths):
                return TurboSwitch(paths, on="1", off="0")
    return TurboSwitch((of_host,), on="1", off="0") if of_host.exists() else None


def held_by_heat(sysfs: Path, policies: Iterable[Policy]) -> list[str]:
    """Name the cooling devices that lower the limits of these policies now, for heat."""
    lowered = any((read_hz(p.folder / UPPER_LIMIT) or 0.0) < p.highest_hz for p in policies)
    devices = (sysfs / "class/thermal").glob("cooling_device*") if lowered else ()
    return sorted(
        device.name
        for device in devices
        if files.read_field(device / "type").startswith(_COOLING)
        and files.read_field(device / "cur_state") not in ("", "0")
    )
