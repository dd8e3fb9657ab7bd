"""Clocks of the cores and of the uncore: who sets them, within which limits, and where they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from measurements.host.files import read_flag, read_number, read_text, shared_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from measurements.host.value import Value

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
