"""The servers that are driven: private ones on loopback, or those that are named."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Self

from measurements.errors import MeasurementError
from measurements.placement import run_on
from measurements.workloads.memcached.protocol import Address, Control, Counts
from measurements.workloads.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from measurements.workloads.reaper import Reaper

_LOOPBACK = "127.0.0.1"
_START_S = 10.0
_STOP_S = 5.0
_LEAST_MEMORY_BYTES = 64 << 20
# An item's header, its key, and what its slab class wastes.
_ITEM_OVERHEAD_BYTES = 128
_SLAB_WASTE = 1.3


@dataclass
class Servers:
    """One or several memcached servers that share the load as partitions.

    Attributes
    ----------
    addresses : tuple of Address
    processes : tuple of subprocess.Popen
        Of private ones; empty for those that are named.
    version : str
        Of the first.
    threads : int
        Worker threads of all together.
    """

    addresses: tuple[Address, ...]
    processes: tuple[subprocess.Popen[bytes], ...] = ()
    version: str = ""
    threads: int = 0
    _controls: list[Control] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        *,
        partitions: int,
        threads: int,
        memory_bytes: int,
        connections: int,
        cpus: Collection[int],
        reaper: Reaper,
        log: Path,
    ) -> Self:
        """Start private servers on loopback and wait until they answer.

        Parameters
        ----------
        partitions : int
            Servers; each has an equal part of the memory.
        threads : int
            Worker threads of each.
        memory_bytes : int
            Of all together.
        connections : int
            That each must take.
        cpus : collection of int
            Logical CPUs that they may run on.
        reaper : Reaper
        log : Path
            What they print.

        Raises
        ------
        MeasurementError
            When memcached is not installed or does not start.
        """
        program = find_program("memcached")
        processes = []
        ports = free_ports(partitions)
        megabytes = max(memory_bytes // partitions, _LEAST_MEMORY_BYTES) >> 20
        with log.open("ab") as output, run_on(cpus):
            for port in ports:
                command = [
                    *(program, "-l", _LOOPBACK, "-p", str(port), "-U", "0"),
                    *("-t", str(threads), "-m", str(megabytes), "-c", str(connections + 64)),
                    # As root it wants to be told who to be; it stays who it is.
                    *("-u", "root"),
                ]
                processes.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env=reaper.environment(),
                        start_new_session=True,
                    )
                )
        servers = cls(tuple(Address(_LOOPBACK, port) for port in ports), tuple(processes))
        try:
            servers._wait(log)
            servers._connect()
        except BaseException:
            servers.stop()
            raise
        return servers

    @classmethod
    def named(cls, addresses: Sequence[Address]) -> Self:
        """Servers that are running already; they are driven, and left as they are."""
        servers = cls(tuple(addresses))
        try:
            servers._connect()
        except BaseException:
            servers.stop()
            raise
        return servers

    @property
    def controls(self) -> tuple[Control, ...]:
        """A connection for questions to each."""
        return tuple(self._controls)

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes of private servers."""
        return tuple(process.pid for process in self.processes)

    def counts(self) -> Counts:
        """What all together counted so far."""
        return reduce(Counts.plus, (control.counts() for control in self._controls))

    def stop(self) -> None:
        """Close the connections and end private servers."""
        for control in self._controls:
            control.close()
        self._controls = []
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            if process.poll() is None:
                process.kill()
                process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _connect(self) -> None:
        for address in self.addresses:
            self._controls.append(Control(address))
        said = [control.stats() for control in self._controls]
        self.version = said[0].get("version", "")
        self.threads = sum(int(one.get("threads", "0")) for one in said)

    def _wait(self, log: Path) -> None:
        until = time.monotonic() + _START_S
        for address, process in zip(self.addresses, self.processes, strict=True):
            while not _listens(address):
                if process.poll() is not None or time.monotonic() > until:
                    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                    why = said[-1] if said else f"exit code {process.poll()}"
                    raise MeasurementError(f"memcached does not start at {address}: {why}")
                time.sleep(0.01)


def needed_memory(keys: int, key_bytes: int, value_bytes: int) -> int:
    """Memory (B) in which so many objects fit with what memcached adds to each."""
    each = key_bytes + value_bytes + _ITEM_OVERHEAD_BYTES
    return max(int(keys * each * _SLAB_WASTE) + _LEAST_MEMORY_BYTES, 2 * _LEAST_MEMORY_BYTES)


def free_ports(count: int) -> list[int]:
    """Find TCP ports of loopback that nobody listens on now."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind((_LOOPBACK, 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def _listens(address: Address) -> bool:
    try:
        socket.create_connection(address, 1.0).close()
    except OSError:
        return False
    return True
