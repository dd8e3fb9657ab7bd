"""Idle states of the CPUs: which are on, and how long the deepest takes to leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.host.files import read_flag, read_number, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from measurements.host.value import Value


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
