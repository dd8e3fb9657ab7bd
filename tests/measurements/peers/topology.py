"""Topologies of hosts that are not there, as sysfs trees that lscpu reads too."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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

    def __post_init__(self) -> None:
        online = {cpu.number for cpu in self.cpus}.intersection(
            self.online if self.online is not None else (cpu.number for cpu in self.cpus)
        )
        folder = self.root / "sys/devices/system/cpu"
        everything = ",".join(str(cpu.number) for cpu in self.cpus)
        _write(folder / "online", ",".join(map(str, sorted(online))))
        _write(folder / "possible", everything)
        _write(folder / "present", everything)
        _write(folder / "kernel_max", "8191")
        alive = [cpu for cpu in self.cpus if cpu.number in online]
        for cpu in alive:
            topology = folder / f"cpu{cpu.number}/topology"
            threads = [o.number for o in alive if (o.core, o.socket) == (cpu.core, cpu.socket)]
            package = [o.number for o in alive if o.socket == cpu.socket]
            _write(topology / "physical_package_id", str(cpu.socket))
            _write(topology / "core_id", str(cpu.core))
            _write(topology / "thread_siblings_list", ",".join(map(str, threads)))
            _write(topology / "thread_siblings", _mask(threads))
            _write(topology / "core_siblings_list", ",".join(map(str, package)))
            _write(topology / "core_siblings", _mask(package))
        nodes = self.root / "sys/devices/system/node"
        for node in {cpu.node for cpu in self.cpus}:
            there = [cpu.number for cpu in alive if cpu.node == node]
            _write(nodes / f"node{node}/cpulist", ",".join(map(str, there)))
            _write(nodes / f"node{node}/cpumap", _mask(there))
        (self.root / "proc").mkdir()
        shutil.copy("/proc/cpuinfo", self.root / "proc")

    def lscpu(self) -> dict[int, tuple[int, int, int]]:
        """Core, socket and node of each CPU online, as lscpu numbers them."""
        told = subprocess.run(
            ["lscpu", "--sysroot", self.root, "--parse=CPU,CORE,SOCKET,NODE"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        rows = [line.split(",") for line in told.splitlines() if not line.startswith("#")]
        # Nodes are empty where there is but one.
        return {int(c): (int(core), int(s), int(n or 0)) for c, core, s, n in rows}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def _mask(cpus: Iterable[int]) -> str:
    """Mask of CPUs in words of 32 bits, as the kernel writes it."""
    digits = f"{sum(1 << cpu for cpu in cpus):x}"
    digits = digits.rjust(-(-len(digits) // 8) * 8, "0")
    return ",".join(digits[at : at + 8] for at in range(0, len(digits), 8))
