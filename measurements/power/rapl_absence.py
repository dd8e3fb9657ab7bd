"""Why a host shows no RAPL counters, and what to do there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.host.files import read_field

if TYPE_CHECKING:
    from pathlib import Path

    from measurements.power.protocol import SourceSettings

_INSTEAD = "use hwmon, ipmi, redfish or a meter, or measure time alone"
# Intel has RAPL since Sandy Bridge (family 6, model 42). Later numbers without it are Westmere-EP,
# Nehalem-EX and Westmere-EX, and the Atoms of Cedarview.
_INTEL_FIRST_MODEL = 42
_INTEL_WITHOUT = (44, 46, 47, 53, 54)
# AMD has it since Zen.
_AMD_FIRST_FAMILY = 0x17
_LOAD = "load its driver: sudo modprobe intel_rapl_msr (intel_rapl before Linux 5.3)"


def processor(procfs: Path) -> dict[str, str]:
    """Return what ``cpuinfo`` says of the first processor; empty where it cannot be read."""
    first, _, _ = read_field(procfs / "cpuinfo").partition("\n\n")
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def why_absent(settings: SourceSettings) -> str:
    """Explain in a line that there is no powercap zone with an energy counter."""
    root = settings.sysfs / "class" / "powercap"
    return f"{root}: no RAPL counter: {_reason(root, processor(settings.procfs))}"


def _reason(root: Path, cpu: dict[str, str]) -> str:
    name = cpu.get("model name", "this processor")
    if _leads_nowhere(root):
        return (
            "its zones lead nowhere, as container runtimes hide them: measure outside of the "
            f"container, or {_INSTEAD}"
        )
    if "hypervisor" in cpu.get("flags", "").split():
        return (
            "this is a virtual machine, and guests are seldom given one: measure on the physical "
            f"host, or {_INSTEAD}"
        )
    vendor = cpu.get("vendor_id", "")
    if vendor == "GenuineIntel":
        return _of_intel(name, cpu)
    if vendor in ("AuthenticAMD", "HygonGenuine"):
        if _figure(cpu, "cpu family") < _AMD_FIRST_FAMILY:
            return f"{name} has none (AMD has it from family 17h, Zen, on): {_INSTEAD}"
        return f"{name} has it from Linux 5.8 on: {_LOAD}"
    return f"{name} is not of Intel or AMD, which alone have it: {_INSTEAD}"


def _of_intel(name: str, cpu: dict[str, str]) -> str:
    family, model = _figure(cpu, "cpu family"), _figure(cpu, "model")
    if family == 6 and model >= _INTEL_FIRST_MODEL and model not in _INTEL_WITHOUT:
        return f"{name} should have it: {_LOAD}"
    return f"{name} has none (Intel has it from Sandy Bridge on): {_INSTEAD}"


def _figure(cpu: dict[str, str], name: str) -> int:
    text = cpu.get(name, "")
    return int(text) if text.isdigit() else 0


def _leads_nowhere(root: Path) -> bool:
    try:
        return any(entry.is_symlink() and not entry.exists() for entry in root.iterdir())
    except OSError:
        return False
