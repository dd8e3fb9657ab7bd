"""The memcached servers that are driven: private ones on loopback, or those that are named."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import NamedTuple, Self

from measurements.errors import MeasurementError, on_error
from measurements.host import files
from measurements.host.cpu_placement import run_on
from measurements.processes.cleanup_process import CleanupProcess
from measurements.processes.helper_process import end_or_kill
from measurements.processes.programs import find_program
from measurements.workloads.clients import LOOPBACK, free_ports, start_process

_TIMEOUT_S = 10.0
_START_S = 10.0
_STOP_S = 5.0
_END = b"END\r\n"
# Sets that are sent at once while a server is filled.
_BATCH_BYTES = 1 << 20
_LEAST_MEMORY_BYTES = 64 << 20
# An item's header, its key, and what its slab class wastes.
_ITEM_OVERHEAD_BYTES = 128
_SLAB_WASTE = 1.3


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host:port``, ``[::1]:port`` or ``host``, whose port is 11211."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or text.strip().endswith("]"):
            host, port = text.strip(), "11211"
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise MeasurementError(f"{text!r} is no address of a server: write HOST:PORT")
        return cls(host, int(port))


class Counts(NamedTuple):
    """Counts of a server, or of several together, since their start."""

    at_s: float  # `time.monotonic` in the middle of question and answer
    gets: int  # keys asked for; a request for several keys counts each
    sets: int  # objects stored
    hits: int  # keys found
    user_s: float  # CPU time of the server
    system_s: float
    read_bytes: int  # from clients as the server counts them, without what TCP adds
    written_bytes: int  # to clients
    evictions: int  # objects that had to go for others

    @property
    def operations(self) -> int:
        """Objects read or written."""
        return self.gets + self.sets

    def plus(self, other: Counts) -> Counts:
        """Add another server's counts; the time is the mean of both."""
        both = [one + two for one, two in zip(self[1:], other[1:], strict=True)]
        return Counts((self.at_s + other.at_s) / 2, *both)  # type: ignore[arg-type]


class Control:
    """A connection to a server for statistics and set-up, beside those of its load."""

    def __init__(self, address: Address) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(address, _TIMEOUT_S)
        except OSError as error:
            raise MeasurementError(
                f"memcached at {address}: no connection: {error.strerror or error}: check that it "
                "runs there and that this host may connect"
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def stats(self) -> dict[str, str]:
        """Answer to ``stats``, by name."""
        self._send(b"stats\r\n")
        lines = self._read_answer().decode(errors="replace").splitlines()
        parts = [line.split(" ", 2) for line in lines if line.startswith("STAT ")]
        if not parts:
            raise MeasurementError(f"{self.address} is no memcached: it does not answer to stats")
        return {part[1]: part[2] if len(part) > 2 else "" for part in parts}

    def counts(self) -> Counts:
        """Read the counts of load and CPU time."""
        # The counts are of some moment between question and answer: its middle errs least.
        asked_s = time.monotonic()
        said = self.stats()
        at_s = (asked_s + time.monotonic()) / 2
        try:
            return Counts(
                at_s,
                *(int(said[name]) for name in ("cmd_get", "cmd_set", "get_hits")),
                *(float(said[name]) for name in ("rusage_user", "rusage_system")),
                *(int(said[name]) for name in ("bytes_read", "bytes_written", "evictions")),
            )
        except (KeyError, ValueError) as error:
            raise MeasurementError(
                f"{self.address}: its stats lack {error}: ppw needs memcached 1.4 or newer"
            ) from error

    def fill(self, key: Callable[[int], str], keys: int, value_bytes: int) -> None:
        """Store so many objects under the keys of their numbers from 0."""
        # With noreply the server sends nothing back, so that a batch goes out without waiting.
        tail = f" 0 0 {value_bytes} noreply\r\n".encode() + b"x" * value_bytes + b"\r\n"
        before = int(self.stats()["cmd_set"])
        batch = bytearray()
        for number in range(keys):
            batch += b"set " + key(number).encode() + tail
            if len(batch) >= _BATCH_BYTES:
                self._send(bytes(batch))
                batch.clear()
        self._send(bytes(batch))
        stats = self.stats()
        stored, evicted = int(stats["cmd_set"]) - before, int(stats["evictions"])
        if stored < keys or evicted:
            raise MeasurementError(
                f"{self.address}: {keys} objects of {value_bytes} B do not fit: {stored} were "
                f"stored and {evicted} evicted: give it more memory, or take fewer objects"
            )

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._connection_error(error) from error

    def _read_answer(self) -> bytes:
        got = b""
        while not got.endswith(_END):
            try:
                part = self._socket.recv(65536)
            except OSError as error:
                raise self._connection_error(error) from error
            if not part:
                raise self._connection_error(
                    ConnectionResetError("the server closed the connection")
                )
            got += part
            if got.startswith((b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")):
                raise MeasurementError(
                    f"{self.address} said {got.decode(errors='replace').strip()}"
                )
        return got

    def _connection_error(self, error: OSError) -> MeasurementError:
        return MeasurementError(
            f"memcached at {self.address} does not answer: {error.strerror or error}"
        )


@dataclass
class Servers:
    """One or several memcached servers that share the load as partitions."""

    addresses: tuple[Address, ...]
    processes: tuple[subprocess.Popen[bytes], ...] = ()  # empty for servers that are named
    version: str = ""  # of the first
    threads: int = 0  # worker threads of all together
    controls: list[Control] = field(default_factory=list)  # a connection for questions to each

    @classmethod
    def start(
        cls,
        *,
        partitions: int,
        threads: int,
        memory_bytes: int,
        connections: int,
        cpus: Collection[int],
        reaper: CleanupProcess,
        log: Path,
    ) -> Self:
        """Start private servers on loopback, which share ``memory_bytes``; wait for answers."""
        program = find_program("memcached")
        processes = []
        ports = free_ports(partitions)
        megabytes = max(memory_bytes // partitions, _LEAST_MEMORY_BYTES) >> 20
        with files.open_for_writing(log, "ab", private=True) as output, run_on(cpus):
            for port in ports:
                command = [
                    *(program, "-l", LOOPBACK, "-p", str(port), "-U", "0"),
                    *("-t", str(threads), "-m", str(megabytes), "-c", str(connections + 64)),
                    # As root it wants to be told who to be; it stays who it is.
                    *("-u", "root"),
                ]
                processes.append(start_process(command, output, reaper.environment()))
        servers = cls(tuple(Address(LOOPBACK, port) for port in ports), tuple(processes))
        with on_error(servers.stop):
            servers._wait_until_listening(log)
            servers._connect_all()
        return servers

    @classmethod
    def connect_to(cls, addresses: Sequence[Address]) -> Self:
        """Connect to servers that are running already, and are left as they are."""
        servers = cls(tuple(addresses))
        with on_error(servers.stop):
            servers._connect_all()
        return servers

    @property
    def pids(self) -> tuple[int, ...]:
        """Process IDs of private servers."""
        return tuple(process.pid for process in self.processes)

    def counts(self) -> Counts:
        """Counts of all together so far."""
        return reduce(Counts.plus, (control.counts() for control in self.controls))

    def fill(self, key: Callable[[int], str], keys: int, value_bytes: int) -> None:
        """Store so many objects in each; a failure stops the servers."""
        with on_error(self.stop):
            for control in self.controls:
                control.fill(key, keys, value_bytes)

    def stop(self) -> None:
        """Close the connections and end private servers."""
        for control in self.controls:
            control.close()
        self.controls = []
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            end_or_kill(process, _STOP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _connect_all(self) -> None:
        for address in self.addresses:
            self.controls.append(Control(address))
        said = [control.stats() for control in self.controls]
        self.version = said[0].get("version", "")
        self.threads = sum(int(one.get("threads", "0")) for one in said)

    def _wait_until_listening(self, log: Path) -> None:
        until = time.monotonic() + _START_S
        for address, process in zip(self.addresses, self.processes, strict=True):
            while not _is_listening(address):
                if process.poll() is not None or time.monotonic() > until:
                    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                    why = said[-1] if said else f"exit code {process.poll()}"
                    raise MeasurementError(f"memcached does not start at {address}: {why}")
                time.sleep(0.01)


def _is_listening(address: Address) -> bool:
    with suppress(OSError):
        socket.create_connection(address, 1.0).close()
        return True
    return False


def needed_memory(keys: int, key_bytes: int, value_bytes: int) -> int:
    """Memory (B) in which so many objects fit with what memcached adds to each."""
    each = key_bytes + value_bytes + _ITEM_OVERHEAD_BYTES
    return max(int(keys * each * _SLAB_WASTE) + _LEAST_MEMORY_BYTES, 2 * _LEAST_MEMORY_BYTES)
