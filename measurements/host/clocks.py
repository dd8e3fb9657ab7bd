"""Clocks of the cores and of the uncore: who sets them, within which limits, and where they are."""

from __future__ import annotations

import math
import os
import re
import statistics
from bisect import bisect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.files import (
    cpu_list_text,
    parse_cpu_list,
    read_field,
    read_flag,
    read_number,
    read_text,
    shared_text,
)
from measurements.processes.settings_guard import UPPER_LIMIT
from measurements.table.units import frequency_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from measurements.host.files import Value


_HZ_PER_KHZ = 1e3
_TEXTS = {
    "scaling_driver": "scaling_driver",
    "scaling_governor": "scaling_governor",
    "energy_performance_preference": "energy_performance_preference",
}
_LIMITS = {
    "scaling_min_freq_hz": "scaling_min_freq",
    "scaling_max_freq_hz": "scaling_max_freq",
}
_UNCORE = {
    "uncore_freq_hz": ("current_freq_khz", max),
    "uncore_min_freq_hz": ("min_freq_khz", min),
    "uncore_max_freq_hz": ("max_freq_khz", max),
}


def current_frequencies(sysfs: Path) -> dict[int, float]:
    """Clock of each CPU at this moment (Hz), as the kernel last heard it; {} without cpufreq."""
    clocks = {}
    for folder in (sysfs / "devices/system/cpu").glob("cpu[0-9]*"):
        khz = read_number(folder / "cpufreq/scaling_cur_freq")
        if khz and (number := re.fullmatch(r"cpu(\d+)", folder.name)):
            clocks[int(number[1])] = khz * _HZ_PER_KHZ
    return dict(sorted(clocks.items()))


def clock_state(sysfs: Path) -> dict[str, Value]:
    """Turbo, driver, governor, limits and preferences of the core and uncore clocks.

    Where CPUs differ, texts are listed one after the other and limits are the widest.
    """
    cpu = sysfs / "devices/system/cpu"
    policies = sorted((cpu / "cpufreq").glob("policy[0-9]*"))
    state: dict[str, Value] = {}
    for column, name in _TEXTS.items():
        if text := shared_text(read_text(policy / name) for policy in policies):
            state[column] = text
    for column, name in _LIMITS.items():
        if limits := _numbers(policy / name for policy in policies):
            widest = min(limits) if name.endswith("min_freq") else max(limits)
            state[column] = widest * _HZ_PER_KHZ
    bias = shared_text(read_text(f) for f in cpu.glob("cpu[0-9]*/power/energy_perf_bias"))
    if bias is not None:
        state["energy_performance_bias"] = bias
    turbo = _turbo(cpu, policies)
    if turbo is not None:
        state["turbo"] = turbo
    return state | _drivers(cpu) | _uncore(cpu)


def _turbo(cpu: Path, policies: Iterable[Path]) -> bool | None:
    no_turbo = read_flag(cpu / "intel_pstate/no_turbo")
    if no_turbo is not None:
        return not no_turbo
    boost = read_flag(cpu / "cpufreq/boost")
    each = [flag for policy in policies if (flag := read_flag(policy / "boost")) is not None]
    # Where it is on for the host, single policies may still be without it.
    if boost is False or not each:
        return boost
    return any(each)


def _drivers(cpu: Path) -> dict[str, Value]:
    """Modes and shares of the drivers that choose the clock themselves."""
    state: dict[str, Value] = {}
    for driver in ("intel_pstate", "amd_pstate"):
        if mode := read_text(cpu / driver / "status"):
            state["pstate_mode"] = mode
    for column, name in (
        ("pstate_min_share", "min_perf_pct"),
        ("pstate_max_share", "max_perf_pct"),
    ):
        share = read_number(cpu / "intel_pstate" / name, 0.01)
        if share is not None:
            state[column] = share
    boost = read_flag(cpu / "intel_pstate/hwp_dynamic_boost")
    if boost is not None:
        state["hwp_dynamic_boost"] = boost
    return state


def _uncore(cpu: Path) -> dict[str, Value]:
    state: dict[str, Value] = {}
    for column, (name, choose) in _UNCORE.items():
        if clocks := _numbers((cpu / "intel_uncore_frequency").glob(f"*/{name}")):
            state[column] = choose(clocks) * _HZ_PER_KHZ
    return state


def _numbers(paths: Iterable[Path]) -> list[float]:
    return [number for path in paths if (number := read_number(path))]


# What the kernel's cpufreq tells of clocks: policies, their steps, and the switch of turbo.
#
# A policy is a set of logical CPUs whose clock is set together. Its files are in kHz; all here is
# in Hz. Old kernels keep a policy's files below each of its CPUs instead of in a folder of their
# own.


_CPU_FOLDER = "devices/system/cpu"
_TURBO_MARK_HZ = 1e6
# Cooling devices that work by cpufreq: of ACPI, and of device trees.
_COOLING = ("Processor", "cpufreq", "thermal-cpufreq")


@dataclass(frozen=True, slots=True)
class Policy:
    """Logical CPUs whose clock is set together, and what it can be.

    Attributes
    ----------
    folder : Path
        Of its files.
    cpus : tuple of int
        Those of its logical CPUs that are online.
    driver : str
        Such as "acpi-cpufreq", "intel_pstate", "intel_cpufreq" (intel_pstate in passive mode) or
        "amd-pstate-epp".
    lowest_hz, highest_hz : float
        What the processor can do; the highest moves with turbo under some drivers.
    steps_hz : tuple of float
        Ascending; empty where the driver takes any frequency of the range.
    governors : tuple of str
        That it can be given to.
    turbo_mark_hz : float or None
        The frequency that stands for turbo in the table of acpi-cpufreq, 1 MHz above the highest
        step; it is not a clock that can be fixed.
    """

    folder: Path
    cpus: tuple[int, ...]
    driver: str
    lowest_hz: float
    highest_hz: float
    steps_hz: tuple[float, ...]
    governors: tuple[str, ...]
    turbo_mark_hz: float | None = None

    @property
    def name(self) -> str:
        """How the kernel names it: "policy0", or "cpu0" by an old kernel."""
        return self.folder.parent.name if self.folder.name == "cpufreq" else self.folder.name

    def refusal(self, freq_hz: float) -> str | None:
        """Why it cannot be fixed at a frequency, or None where it can."""
        khz = in_khz(freq_hz)
        if not self.steps_hz:
            if in_khz(self.lowest_hz) <= khz <= in_khz(self.highest_hz):
                return None
            low, high = map(frequency_text, (self.lowest_hz, self.highest_hz))
            return f"is outside the range from {low} to {high}"
        steps = [in_khz(step) for step in self.steps_hz]
        if khz in steps:
            return None
        if self.turbo_mark_hz is not None and khz == in_khz(self.turbo_mark_hz):
            highest = frequency_text(self.steps_hz[-1])
            return f"stands for turbo, whose clock is not fixed; the highest step is {highest}"
        at = bisect(steps, khz)
        if at == 0:
            return f"is below the lowest step, {frequency_text(self.steps_hz[0])}"
        if at == len(steps):
            return f"is above the highest step, {frequency_text(self.steps_hz[-1])}"
        below, above = map(frequency_text, self.steps_hz[at - 1 : at + 1])
        return f"is no step; those around it are {below} and {above}"


class Clocks(NamedTuple):
    """Frequencies that several policies have in common.

    Attributes
    ----------
    lowest_hz, highest_hz : float
        NaN where they have none in common.
    steps_hz : tuple of float
        Ascending; empty where any frequency of the range can be set, or there is none.
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
    """Folder of the host's CPUs in a sysfs tree."""
    return sysfs / _CPU_FOLDER


def in_khz(freq_hz: float) -> int:
    """Frequency as cpufreq writes it."""
    return round(freq_hz / _HZ_PER_KHZ)


def read_policies(
    sysfs: Path = Path("/sys"),
    cpus: Collection[int] | None = None,
    *,
    procfs: Path = Path("/proc"),
) -> tuple[Policy, ...]:
    """Read the policies of this host.

    Parameters
    ----------
    sysfs, procfs : Path
        Where the kernel's trees are.
    cpus : collection of int, optional
        Logical CPUs whose policies are wanted; by default all that are online.

    Raises
    ------
    MeasurementError
        When there is no frequency control, or none of one of these CPUs.
    """
    policies = sorted(
        (policy for folder in _folders(sysfs) if (policy := _read_policy(folder)).cpus),
        key=lambda policy: policy.cpus,
    )
    if not policies:
        raise MeasurementError(_no_control(sysfs, procfs))
    if cpus is None:
        return tuple(policies)
    if missing := set(cpus).difference(*(policy.cpus for policy in policies)):
        raise MeasurementError(
            f"no frequency control of CPUs {cpu_list_text(missing)} under {cpu_folder(sysfs)}: "
            "they are offline or not there"
        )
    return tuple(policy for policy in policies if not set(cpus).isdisjoint(policy.cpus))


def common_clocks(policies: Sequence[Policy]) -> Clocks:
    """Frequencies that all these policies can be fixed at."""
    lowest = max(policy.lowest_hz for policy in policies)
    highest = min(policy.highest_hz for policy in policies)
    tables = [set(policy.steps_hz) for policy in policies if policy.steps_hz]
    steps: list[float] = []
    if tables:
        steps = sorted(s for s in tables[0].intersection(*tables) if lowest <= s <= highest)
        lowest, highest = (steps[0], steps[-1]) if steps else (math.nan, math.nan)
    if not lowest <= highest:
        lowest = highest = math.nan
    return Clocks(lowest, highest, tuple(steps))


def find_turbo(sysfs: Path, policies: Iterable[Policy], *, each: bool) -> TurboSwitch | None:
    """Find how turbo is switched here, or None where the kernel has no switch.

    Parameters
    ----------
    sysfs : Path
    policies : iterable of Policy
    each : bool
        Whether to prefer the switches of these policies to that of the host, where both exist.
    """
    of_policies: tuple[Path, ...] = ()
    for name in ("boost", "cpb"):
        found = [policy.folder / name for policy in policies]
        if not of_policies and all(path.exists() for path in found):
            of_policies = tuple(found)
    of_host = cpu_folder(sysfs) / "cpufreq" / "boost"
    inverse = cpu_folder(sysfs) / "intel_pstate" / "no_turbo"
    if inverse.exists():
        return TurboSwitch((inverse,), on="0", off="1")
    if of_policies and (each or not of_host.exists()):
        return TurboSwitch(of_policies, on="1", off="0")
    return TurboSwitch((of_host,), on="1", off="0") if of_host.exists() else None


def current_hz(policies: Iterable[Policy], cpus: Collection[int] | None = None) -> float | None:
    """Median clock of these CPUs as the kernel tells it now (Hz).

    It is what was asked of the processor, or a short mean, by driver: an indication. What a run
    was really clocked at is cycles over time, by the counters.

    Parameters
    ----------
    policies : iterable of Policy
    cpus : collection of int, optional
        By default all of the policies.

    Returns
    -------
    float or None
        None where the kernel does not tell.
    """
    told: list[float] = []
    for policy in policies:
        used = [cpu for cpu in policy.cpus if cpus is None or cpu in cpus]
        hertz = read_hz(policy.folder / "scaling_cur_freq") if used else None
        if hertz is not None:
            told += [hertz] * len(used)
    return statistics.median(told) if told else None


def held_by_heat(sysfs: Path, policies: Iterable[Policy]) -> list[str]:
    """Names of cooling devices that lower the limits of these policies now, for heat."""
    lowered = any((read_hz(p.folder / UPPER_LIMIT) or 0.0) < p.highest_hz for p in policies)
    devices = (sysfs / "class" / "thermal").glob("cooling_device*") if lowered else ()
    return sorted(
        device.name
        for device in devices
        if read_field(device / "type").startswith(_COOLING)
        and read_field(device / "cur_state") not in ("", "0")
    )


def read_hz(path: Path) -> float | None:
    """Frequency that a file holds (Hz), or None where it is missing, unreadable or no number."""
    try:
        khz = int(read_field(path))
    except ValueError:
        return None
    return khz * _HZ_PER_KHZ if khz > 0 else None


def _folders(sysfs: Path) -> list[Path]:
    found = list((cpu_folder(sysfs) / "cpufreq").glob("policy[0-9]*"))
    # Under an old kernel, CPUs of one policy have links to the folder of the first.
    return found or list(
        {folder.resolve() for folder in cpu_folder(sysfs).glob("cpu[0-9]*/cpufreq")}
    )


def _read_policy(folder: Path) -> Policy:
    """Read one policy; one without CPUs is of CPUs that are offline."""
    highest = read_hz(folder / "cpuinfo_max_freq")
    lowest = read_hz(folder / "cpuinfo_min_freq")
    cpus = parse_cpu_list(read_field(folder / "affected_cpus"))
    if lowest is None or highest is None:
        cpus = ()
    driver = read_field(folder / "scaling_driver") or "unknown"
    steps = _steps(folder, highest or 0.0)
    mark = None
    if driver == "acpi-cpufreq" and len(steps) > 1 and steps[-1] - steps[-2] == _TURBO_MARK_HZ:
        mark = steps.pop()
    return Policy(
        folder,
        cpus,
        driver,
        lowest_hz=lowest or float("nan"),
        highest_hz=highest or float("nan"),
        steps_hz=tuple(steps),
        governors=tuple(read_field(folder / "scaling_available_governors").split()),
        turbo_mark_hz=mark,
    )


def _steps(folder: Path, highest_hz: float) -> list[float]:
    """Steps of a policy in ascending order; those of turbo are listed even while it is off."""
    listed = {
        float(khz) * _HZ_PER_KHZ
        for name in ("scaling_available_frequencies", "scaling_boost_frequencies")
        for khz in read_field(folder / name).split()
        if khz.isdecimal()
    }
    return sorted(step for step in listed if step <= highest_hz)


def _no_control(sysfs: Path, procfs: Path) -> str:
    where = f"no frequency control under {cpu_folder(sysfs)}"
    if not os.access(cpu_folder(sysfs), os.R_OK | os.X_OK):
        return f"{where}: there is no such folder, or it cannot be read"
    flags = read_field(procfs / "cpuinfo").partition("\nflags")[2].partition("\n")[0].split()
    if "hypervisor" in flags:
        why = "this is a virtual machine, whose clock the host controls"
    else:
        why = (
            "the processor has none (as Atom D510 and D525), it is off in the firmware, or its "
            "driver is not loaded (modprobe acpi-cpufreq)"
        )
    return f"{where}: {why}; --as-found measures at whatever clock is there"
