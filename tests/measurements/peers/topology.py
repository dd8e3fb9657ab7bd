"""Topologies of hosts that are not there, as sysfs trees that lscpu reads too."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from peers.powercap import write


class Cpu(NamedTuple):
    """A logical CPU: its number, and those of its core, socket and NUMA node."""

    number: int
    core: int
    socket: int = 0
    node: int = 0


@dataclass
class TopologyTree:
    """The files of a host's topology below ``root``; CPUs that are not online have none."""

    root: Path
    cpus: list[Cpu]
    online: list[int] | None = None

    def __post_init__(self):
        numbers = [cpu.number for cpu in self.cpus]
        self.alive = [c for c in self.cpus if self.online is None or c.number in self.online]
        folder = self.root / "sys/devices/system"
        write(folder / "cpu", online=_listed(c.number for c in self.alive), kernel_max="8191")
        write(folder / "cpu", possible=_listed(numbers), present=_listed(numbers))
        for cpu in self.alive:
            package = [c.number for c in self.alive if c.socket == cpu.socket]
            threads = [c.number for c in self.alive if (c.core, c.socket) == (cpu.core, cpu.socket)]
            ids = {"physical_package_id": cpu.socket, "core_id": cpu.core}
            for name, cpus in (("thread", threads), ("core", package)):
                ids |= {f"{name}_siblings_list": _listed(cpus), f"{name}_siblings": _mask(cpus)}
            write(folder / f"cpu/cpu{cpu.number}/topology", **ids)
        for node in {cpu.node for cpu in self.cpus}:
            there = [c.number for c in self.alive if c.node == node]
            write(folder / f"node/node{node}", cpulist=_listed(there), cpumap=_mask(there))

    def described(self):
        """Core, socket and node of each CPU online; cores are numbered over all sockets."""
        return {c.number: (c.core + 64 * c.socket, c.socket, c.node) for c in self.alive}

    def lscpu(self):
        """Core, socket and node of each CPU online, as lscpu numbers them."""
        (self.root / "proc").mkdir()
        shutil.copy("/proc/cpuinfo", self.root / "proc")
        command = ["lscpu", "--sysroot", self.root, "--parse=CPU,CORE,SOCKET,NODE"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split(",") for line in told.splitlines() if not line.startswith("#")]
        # Nodes are empty where there is but one.
        return {int(c): (int(core), int(s), int(n or 0)) for c, core, s, n in rows}


def _listed(cpus):
    return ",".join(map(str, sorted(cpus)))


def _mask(cpus):
    """Mask of CPUs below 32, as the kernel writes it."""
    return f"{sum(1 << cpu for cpu in cpus):08x}"
