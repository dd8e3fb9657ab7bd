"""One run of memcached under load: its clients, its counts in the window, and their columns."""

from __future__ import annotations

import fcntl
import ipaddress
import math
import socket
import struct
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.host.files import cpu_list_text, read_lines, read_number
from measurements.workloads.clients import Client
from measurements.workloads.service import Load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from measurements.host.cpu_placement import Placement
    from measurements.processes.cleanup_process import CleanupProcess
    from measurements.workloads.memcached.load_generators import Loader, LoadReport, Work
    from measurements.workloads.memcached.servers import Address, Counts, Servers

# From the first answers to a steady load.
_LEAD_S = 0.25
# Objects that are stored before the load begins may take a while.
_LONGEST_START_S = 120.0
_FLOWING = 10


class Moment(NamedTuple):
    """Counts of servers, clients and network at one moment."""

    counts: Counts
    client_s: tuple[float, float]  # CPU time in user and system mode
    moved: tuple[int, int] | None  # bytes received and sent


class Demand(NamedTuple):
    """What all clients together ask for in one run."""

    connections: int
    client_threads: int
    asked_s: float | None  # operations per second; None for a closed loop
    seconds: float  # the window and what comes after it

    @property
    def client_s(self) -> float:
        """Duration of the clients (s)."""
        return _LEAD_S + self.seconds


def works(base: Work, demand: Demand, partitions: int, *, one_thread: bool) -> list[Work]:
    """Share a demand between client processes.

    There is one process a partition, or one a thread where a process of this client has
    ``one_thread`` only. Process i drives server i modulo ``partitions``.
    """
    each = max(1, round(demand.client_threads / partitions))
    processes = partitions * each if one_thread else partitions
    # Each process needs a connection.
    processes = max(partitions, min(processes, demand.connections // partitions * partitions))
    requests_s = None
    if demand.asked_s is not None:
        requests_s = demand.asked_s / base.operations_per_request
    shares = [
        demand.connections // processes + (number < demand.connections % processes)
        for number in range(processes)
    ]
    return [
        base._replace(
            connections=max(1, share),
            threads=1 if one_thread else min(each, max(1, share)),
            rate_s=None if requests_s is None else requests_s / processes,
            seconds=demand.client_s,
        )
        for share in shares
    ]


@dataclass
class MemcachedLoad(Load):
    """Clients on servers, private ones or others."""

    servers: Servers
    placement: Placement | None  # CPUs of private servers
    link: Link
    loader: Loader
    works: Sequence[Work]  # one a client process
    client_cpus: tuple[int, ...]
    demand: Demand
    reaper: CleanupProcess
    scratch: Path
    procfs: Path

    def __post_init__(self) -> None:
        addresses = self.servers.addresses
        commands = [
            self.loader.command(addresses[n % len(addresses)], work, self.scratch, n)
            for n, work in enumerate(self.works)
        ]
        self.client = Client(commands, self.client_cpus, self.reaper)
        self.cores = None if self.placement is None else self.placement.cores
        self.is_local = self.link.is_loopback
        self._report: LoadReport | None = None

    @property
    def pids(self) -> Sequence[int]:
        """Process IDs of private servers."""
        return self.servers.pids

    def wait_steady(self) -> None:
        """Return shortly after the first requests that are no preparation."""
        first = self._requests_so_far()
        self.client.wait_until(
            lambda: self._requests_so_far() - first >= _FLOWING,
            _LONGEST_START_S,
            f"{self.loader.name} sent next to nothing to {self.servers.addresses[0]}",
        )
        time.sleep(_LEAD_S)

    def _requests_so_far(self) -> int:
        # Before the load begins, objects are stored and not read.
        counts = self.servers.counts()
        return counts.gets if self.works[0].get_share > 0 else counts.sets

    def observe(self) -> Moment:
        """Counts of this moment."""
        used = self.client.observe(self.procfs)
        return Moment(self.servers.counts(), used, self.link.byte_counts(self.procfs))

    def finish(self) -> None:
        """Wait for the clients and read what they saw."""
        client = self.client
        hang = f"{client.commands[0][0]} was to end and did not: what it talks to may hang"
        client.finish(self.loader.name, self.demand.client_s + _LONGEST_START_S, hang=hang)
        self._report = self.loader.report(client.outputs, self.scratch, self.works)

    def columns(self, seen: Sequence[Moment]) -> dict[str, Any]:
        """Columns of the run."""
        first, last = seen[0], seen[-1]
        did = _growth_of_counts(first.counts, last.counts)
        seconds = did["at_s"]
        rate = did["operations"] / seconds
        row: dict[str, Any] = {
            "threads": self.servers.threads,
            "partitions": len(self.servers.addresses),
            "data_bytes": self.works[0].value_bytes,
            "throughput_ops_s": rate if rate > 0 else None,
            "throughput_noise": _throughput_noise(seen),
            "asked_ops_s": self.demand.asked_s,
            "hit_rate": did["hits"] / did["gets"] if did["gets"] else None,
            "evictions": did["evictions"],
            "server_read_bytes_s": did["read_bytes"] / seconds,
            "server_written_bytes_s": did["written_bytes"] / seconds,
            "server_version": self.servers.version,
        }
        row |= self._cpu_columns(first, last, did)
        row |= self._network_columns(first, last, seconds)
        row |= self._client_columns()
        if self.placement is not None and rate > 0:
            row["throughput_per_core_ops_s"] = rate / self.placement.cores
            if self.placement.sockets:
                row["sockets"] = len(self.placement.sockets)
                row["throughput_per_socket_ops_s"] = rate / len(self.placement.sockets)
        return row | (self._report.columns() if self._report else {})

    def _cpu_columns(self, first: Moment, last: Moment, did: dict[str, float]) -> dict[str, Any]:
        user_s, system_s = (b - a for a, b in zip(first.client_s, last.client_s, strict=True))
        client_threads = sum(work.threads for work in self.works)
        clients = min(len(self.client_cpus), client_threads)
        row: dict[str, Any] = {
            "server_user_s": did["user_s"],
            "server_system_s": did["system_s"],
            "client_user_s": user_s,
            "client_system_s": system_s,
            "client_cpus": cpu_list_text(self.client_cpus),
            "client_cpu_share": (user_s + system_s) / did["at_s"] / clients,
        }
        threads = self.servers.threads
        if self.placement is not None:
            row["server_cpus"] = cpu_list_text(self.placement.cpus)
            threads = min(threads, len(self.placement.cpus))
        if threads:
            row["server_cpu_share"] = (did["user_s"] + did["system_s"]) / did["at_s"] / threads
        return row

    def _network_columns(self, first: Moment, last: Moment, seconds: float) -> dict[str, Any]:
        if self.link.is_loopback or first.moved is None or last.moved is None:
            return {}
        received, sent = (b - a for a, b in zip(first.moved, last.moved, strict=True))
        row: dict[str, Any] = {
            "client_interface": self.link.interface,
            "client_received_bytes_s": received / seconds,
            "client_sent_bytes_s": sent / seconds,
        }
        if self.link.bits_s:
            row["line_rate_bits_s"] = self.link.bits_s
            row["line_share"] = 8 * max(received, sent) / seconds / self.link.bits_s
        return row

    def _client_columns(self) -> dict[str, Any]:
        work, objects = self.works[0], self.works[0].keys * len(self.servers.addresses)
        if self.loader.own_objects:
            objects = sum(self.loader.object_count(w) for w in self.works)
        return {
            "get_share": work.get_share,
            "keys_per_request": work.keys_per_request,
            "key_bytes": work.key_bytes,
            "objects": objects,
            "client": self.loader.name,
            "client_processes": len(self.works),
            "client_threads": sum(w.threads for w in self.works),
            "connections": sum(w.connections for w in self.works),
        }


def _growth_of_counts(first: Counts, last: Counts) -> dict[str, float]:
    grown = {name: getattr(last, name) - getattr(first, name) for name in first._fields}
    return grown | {"operations": last.operations - first.operations}


def _throughput_noise(seen: Sequence[Moment]) -> float | None:
    """Standard error of the throughput, as a share of it, from the slices of the window."""
    rates = [
        (b.counts.operations - a.counts.operations) / (b.counts.at_s - a.counts.at_s)
        for a, b in pairwise(seen)
    ]
    mean = sum(rates) / len(rates)
    if len(rates) < 2 or mean <= 0:
        return None
    return stdev(rates) / math.sqrt(len(rates)) / mean


# Request for an interface's address (linux/sockios.h), and column of the bytes sent in net/dev.
_SIOCGIFADDR = 0x8915
_SENT = 8


class Link(NamedTuple):
    """The network by which a server is reached."""

    interface: str | None  # None where not known
    bits_s: float | None  # line rate; None for loopback and where the driver does not tell
    is_loopback: bool  # whether the server is on this host

    def byte_counts(self, procfs: Path = Path("/proc")) -> tuple[int, int] | None:
        """Bytes received and sent so far; None where they cannot be read."""
        for line in read_lines(procfs / "net/dev")[2:]:
            name, _, figures = line.rpartition(":")
            fields = figures.split()
            if name.strip() == self.interface and len(fields) > _SENT:
                return int(fields[0]), int(fields[_SENT])
        return None


def link_to(address: Address, sysfs: Path = Path("/sys")) -> Link:
    """Find the interface by which an address is reached, without sending anything."""
    try:
        family, _, _, _, where = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
        # Connecting a datagram socket chooses the route and sends nothing.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)
            own = probe.getsockname()[0].partition("%")[0]
    except OSError:
        return Link(None, None, is_loopback=False)
    if ipaddress.ip_address(own).is_loopback or str(where[0]) == own:
        return Link("lo", None, is_loopback=True)
    names = (name for _, name in socket.if_nameindex())
    interface = next((name for name in names if _ipv4_address(name) == own), None)
    return Link(interface, None if interface is None else line_rate(interface, sysfs), False)


def line_rate(interface: str, sysfs: Path) -> float | None:
    """Line rate (bit/s) of an interface; None where its driver does not tell."""
    megabits = read_number(sysfs / "class/net" / interface / "speed")
    return megabits * 1e6 if megabits is not None and megabits > 0 else None


def _ipv4_address(interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            return socket.inet_ntoa(fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None
