"""Where a process may run and have its memory: CPUs, cores and NUMA nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.cpu_lists import cpu_list_text, parse_cpu_list
from measurements.errors import MeasurementError
from measurements.host.files import read_cpus, read_lines, read_number
from measurements.host.processor import online_cores

if TYPE_CHECKING:
    from pathlib import Path

    from measurements.host.value import Value


def placement_state(sysfs: Path, procfs: Path, pid: int | None = None) -> dict[str, Value]:
    """CPUs, cores and nodes that a process may use, and whether its memory is moved to them.

    Parameters
    ----------
    sysfs, procfs : Path
    pid : int, optional
        By default this process.
    """
    process = procfs / ("self" if pid is None else str(pid))
    pairs = (line.partition(":") for line in read_lines(process / "status"))
    status = {key: value.strip() for key, _, value in pairs}
    state: dict[str, Value] = {}
    for column, key in (
        ("cpus_allowed", "Cpus_allowed_list"),
        ("mems_allowed", "Mems_allowed_list"),
    ):
        if text := status.get(key):
            state[column] = text
    cpus = _cpus(status.get("Cpus_allowed_list", ""))
    if cores := [core for core in online_cores(sysfs) if core.cpus & cpus]:
        state["cores_allowed"] = len(cores)
    folder = sysfs / "devices/system/node"
    if nodes := read_cpus(folder / "online"):
        state["numa_nodes"] = len(nodes)
    if near := [node for node in nodes if read_cpus(folder / f"node{node}/cpulist") & cpus]:
        state["numa_nodes_of_cpus"] = cpu_list_text(near)
    balancing = read_number(procfs / "sys/kernel/numa_balancing")
    if balancing is not None:
        state["numa_balancing"] = balancing != 0
    return state


def _cpus(text: str) -> frozenset[int]:
    try:
        return frozenset(parse_cpu_list(text))
    except MeasurementError:
        return frozenset()
