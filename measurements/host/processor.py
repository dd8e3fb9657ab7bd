"""Which processor this is, and which of its cores are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from measurements.host.files import read_cpus, read_flag, read_lines, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from measurements.host.value import Value

# Keys of /proc/cpuinfo on x86 and, behind them, on Arm, POWER, RISC-V and s390.
_IDENTITY = {
    "cpu_vendor": ("vendor_id", "CPU implementer"),
    "cpu_model": ("model name", "cpu", "uarch", "Model", "Hardware"),
    "cpu_family": ("cpu family", "CPU architecture"),
    "cpu_model_number": ("model", "CPU part"),
    "cpu_stepping": ("stepping", "CPU revision", "revision"),
    "microcode": ("microcode",),
}


class Core(NamedTuple):
    """A physical core: its package, and the logical CPUs on it that are online."""

    package: str
    cpus: frozenset[int]


def processor_state(sysfs: Path, procfs: Path) -> dict[str, Value]:
    """Model, microcode, and what is online: sockets, physical cores, logical CPUs, SMT."""
    folder = sysfs / "devices/system/cpu"
    online = read_cpus(folder / "online")
    cores = online_cores(sysfs)
    state: dict[str, Value] = dict(_identity(procfs))
    if online:
        state["cpus_online"] = len(online)
    if cores:
        state["cores_online"] = len(cores)
        state["sockets_online"] = len({core.package for core in cores})
    smt = read_flag(folder / "smt/active")
    if smt is None and cores:
        smt = any(len(core.cpus) > 1 for core in cores)
    if smt is not None:
        state["smt"] = smt
    if isolated := read_text(folder / "isolated"):
        state["cpus_isolated"] = isolated
    return state


def online_cores(sysfs: Path) -> frozenset[Core]:
    """Physical cores with a CPU that is online; none where the kernel does not tell."""
    folder = sysfs / "devices/system/cpu"
    cores = set()
    for cpu in read_cpus(folder / "online"):
        topology = folder / f"cpu{cpu}/topology"
        siblings = read_cpus(topology / "thread_siblings_list")
        if siblings:
            package = read_text(topology / "physical_package_id") or "0"
            cores.add(Core(package, siblings))
    return frozenset(cores)


def _identity(procfs: Path) -> dict[str, str]:
    said: dict[str, str] = {}
    for line in read_lines(procfs / "cpuinfo"):
        key, _, value = (part.strip() for part in line.partition(":"))
        said.setdefault(key, value)
    found = {
        column: next((said[key] for key in keys if said.get(key)), None)
        for column, keys in _IDENTITY.items()
    }
    return {column: value for column, value in found.items() if value is not None}
