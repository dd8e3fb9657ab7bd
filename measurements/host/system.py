"""The rest that slows a host down or speeds it up: kernel, mitigations, pages, load, power."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from measurements.host.files import read_flag, read_lines, read_number, read_text
from measurements.host.virtual import container, hypervisor, is_virtual_machine

if TYPE_CHECKING:
    from pathlib import Path

    from measurements.host.value import Value

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
