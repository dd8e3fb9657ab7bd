"""The sweep over set-ups of memcached: full load, one step more client, then the rates.

One run has its clients, their counts in the window of steady load, and the columns of these.
"""

from __future__ import annotations

import fcntl
import ipaddress
import math
import random
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product, starmap
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import pandas as pd

from measurements.errors import MeasurementError
from measurements.host import activity, cpu_placement, files
from measurements.processes.cleanup_process import CleanupProcess
from measurements.processes.programs import find_program
from measurements.sweep.session import Session
from measurements.workloads import clients, service
from measurements.workloads.memcached import limits, load_generators as gen, servers as sv

# Share of the free memory that servers may be given.
_MOST_MEMORY = 0.7
_MORE_CLIENT = 2
OBJECT_BYTES = (1, 1 << 20)
KEY_BYTES = (11, 250)


@dataclass(frozen=True, kw_only=True)
class MemcachedOptions:
    """A sweep over set-ups of memcached: the product of its tuples."""

    servers: tuple[str, ...] = ()  # addresses of running servers; empty for private ones
    threads: tuple[int, ...] = (1,)  # worker threads of each private server
    partitions: tuple[int, ...] = (1,)  # private servers that share the load
    object_bytes: tuple[int, ...] = (64,)  # sizes of a value
    connections: tuple[int, ...] = (16,)  # connections of all clients together
    keys_per_request: tuple[int, ...] = (1,)  # objects that one get asks for
    get_share: float = 1.0  # share of the requests that are gets; the others store objects
    key_bytes: int = 30
    objects: int = 10_000  # memcaslap rounds it to a multiple of 1024 per connection
    memory_bytes: float | None = None  # of all private servers; None for what the objects need
    client: str | None = None  # load generator; None for the first of memcaslap and memtier
    client_threads: int | None = None  # None for one on each CPU of the clients
    server_cpus: tuple[int, ...] = ()  # logical CPUs; empty for the first half of the cores
    client_cpus: tuple[int, ...] = ()  # empty for the other cores
    loads: tuple[float, ...] = ()  # shares of the highest throughput to measure at, too
    rates: tuple[float, ...] = ()  # rates (operations per second) to measure at, too
    line_rate_bits_s: float | None = None  # network to the servers; None for what it reports

    def check(self) -> None:
        """Raise `MeasurementError` for what cannot be measured."""
        for name, values, (least, most) in (
            ("object", self.object_bytes, OBJECT_BYTES),
            ("key", (self.key_bytes,), KEY_BYTES),
        ):
            if bad := [v for v in values if not least <= v <= most]:
                raise MeasurementError(f"{name} of {bad[0]} B: there may be {least} to {most} B")
        counts = (*self.threads, *self.partitions, *self.connections, *self.keys_per_request)
        if min(*counts, self.objects, self.client_threads or 1) < 1:
            raise MeasurementError(
                "threads, partitions, connections, keys and objects must be 1 or more"
            )
        if not 0 <= self.get_share <= 1:
            raise MeasurementError(f"a share of gets of {self.get_share:g}: give 0 to 1")
        if bad_loads := [load for load in self.loads if not 0 < load <= 2]:
            raise MeasurementError(f"a load of {bad_loads[0]:g}: give shares: 0.5, or 50%")
        if min(self.rates, default=1.0) <= 0:
            raise MeasurementError("a rate is a number of operations per second, above 0")
        if self.servers and (self.threads != (1,) or self.partitions != (1,)):
            raise MeasurementError(
                "ppw cannot set the threads and partitions of named servers: "
                "leave these options out"
            )


class Setup(NamedTuple):
    """One set-up of servers and requests."""

    freq_hz: float | None
    threads: int
    partitions: int
    object_bytes: int
    keys_per_request: int

    def text(self) -> str:
        """Text of the set-up for messages."""
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        servers = f" on each of {self.partitions} servers" if self.partitions > 1 else ""
        keys = f", {self.keys_per_request} keys a request" if self.keys_per_request > 1 else ""
        return f"{threads}{servers}, objects of {self.object_bytes} B{keys}"


def setups(options: MemcachedOptions, frequencies: Sequence[float]) -> list[Setup]:
    """All set-ups, in the order in which they were asked for."""
    steps: Sequence[float | None] = frequencies or (None,)
    sizes = options.object_bytes, options.keys_per_request
    return list(starmap(Setup, product(steps, options.threads, options.partitions, *sizes)))


def workload_name(get_share: float, keys_per_request: int, partitions: int) -> str:
    """Name of the workload: what is asked, apart from the size of an object."""
    gets = round(100 * get_share)
    mix = {100: "get", 0: "set"}.get(gets, f"{gets}:{100 - gets}")
    keys = f" {keys_per_request} keys" if keys_per_request > 1 else ""
    servers = f" on {partitions} servers" if partitions > 1 else ""
    return f"memcached {mix}{keys}{servers}"


class Sides(NamedTuple):
    """Cores and logical CPUs of servers and clients on this host."""

    server: tuple[cpu_placement.PhysicalCore, ...]
    server_cpus: tuple[int, ...]
    client_cpus: tuple[int, ...]
    shared: bool

    def server_placement(self, threads: int) -> cpu_placement.Placement:
        """CPUs for so many server threads, each on a core of its own as far as there are cores."""
        if not self.server:
            return cpu_placement.Placement(self.server_cpus, len(self.server_cpus), ())
        return cpu_placement.place(
            cpu_placement.Topology(self.server), min(threads, len(self.server))
        )


def sides(options: MemcachedOptions, topology: cpu_placement.Topology) -> Sides:
    """Share the cores. Raises `MeasurementError` when a CPU that was named may not be used."""
    cores = topology.cores
    known = {cpu for core in cores for cpu in core.cpus}
    for cpu in (*options.server_cpus, *options.client_cpus):
        if cpu not in known:
            raise MeasurementError(
                f"CPU {cpu} may not be used here: choose from {', '.join(map(str, sorted(known)))}"
            )
    if options.server_cpus:
        named = set(options.server_cpus)
        cut = (core._replace(cpus=tuple(c for c in core.cpus if c in named)) for core in cores)
        server = tuple(core for core in cut if core.cpus)
    else:
        free = [c for c in cores if not set(c.cpus) & set(options.client_cpus)] or list(cores)
        half = len(free) if options.client_cpus else max(1, len(free) - max(1, len(free) // 2))
        server = tuple(free[:half])
    taken = {cpu for core in server for cpu in core.cpus}
    others = tuple(cpu for core in cores for cpu in core.cpus[:1] if cpu not in taken)
    # A host with one core has to share it.
    client = options.client_cpus or others or tuple(sorted(taken))
    return Sides(server, tuple(sorted(taken)), client, bool(taken & set(client)))


# From the first answers to a steady load.
_LEAD_S = 0.25
# Objects that are stored before the load begins may take a while.
_LONGEST_START_S = 120.0
_FLOWING = 10


class Moment(NamedTuple):
    """Counts of servers, clients and network at one moment."""

    counts: sv.Counts
    client_s: tuple[float, float]  # CPU time in user and system mode
    moved: tuple[int, int] | None  # bytes received and sent


def works(total: gen.Work, partitions: int, loader: gen.Loader) -> list[gen.Work]:
    """Share the clients' work among processes; process i drives server i modulo ``partitions``."""
    one_thread = loader.name == "paced"
    each = max(1, round(total.threads / partitions))
    processes = partitions * each if one_thread else partitions
    # Each process needs a connection.
    processes = max(partitions, min(processes, total.connections // partitions * partitions))
    rate_s = None
    if total.asked_s is not None:
        rate_s = total.asked_s / total.operations_per_request / processes
    most, rest = divmod(total.connections, processes)
    shares = [max(1, most + (number < rest)) for number in range(processes)]
    return [
        total._replace(
            connections=share,
            threads=1 if one_thread else min(each, share),
            rate_s=rate_s,
            seconds=_LEAD_S + total.seconds,
        )
        for share in shares
    ]


@dataclass
class MemcachedLoad(service.Load):
    """Clients on servers, private ones or others."""

    servers: sv.Servers
    placement: cpu_placement.Placement | None  # CPUs of private servers
    link: Link
    loader: gen.Loader
    works: Sequence[gen.Work]  # one a client process
    client_cpus: tuple[int, ...]
    reaper: CleanupProcess
    scratch: Path
    procfs: Path

    def __post_init__(self) -> None:
        addresses = self.servers.addresses
        commands = [
            self.loader.command(addresses[n % len(addresses)], work, self.scratch, n)
            for n, work in enumerate(self.works)
        ]
        self.client = clients.Client(commands, self.client_cpus, self.reaper)
        self.cores = None if self.placement is None else self.placement.cores
        self.is_local = self.link.is_loopback
        self._report: gen.LoadReport | None = None

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
            f"{self.loader.name} sent almost no requests to {self.servers.addresses[0]}",
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
        self.client.finish(self.loader.name, self.works[0].seconds + _LONGEST_START_S)
        self._report = self.loader.report(self.client.outputs, self.scratch, self.works)

    def columns(self, seen: Sequence[Moment]) -> dict[str, Any]:
        """Columns of the run."""
        first, last = seen[0], seen[-1]
        did = {n: getattr(last.counts, n) - getattr(first.counts, n) for n in sv.Counts._fields}
        seconds = did["at_s"]
        rate = (last.counts.operations - first.counts.operations) / seconds
        row: dict[str, Any] = {
            "threads": self.servers.threads,
            "partitions": len(self.servers.addresses),
            "data_bytes": self.works[0].value_bytes,
            "throughput_ops_s": rate if rate > 0 else None,
            "throughput_noise": _throughput_noise(seen),
            "asked_ops_s": self.works[0].asked_s,
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
            "client_cpus": files.cpu_list_text(self.client_cpus),
            "client_cpu_share": (user_s + system_s) / did["at_s"] / clients,
        }
        threads = self.servers.threads
        if self.placement is not None:
            row["server_cpus"] = files.cpu_list_text(self.placement.cpus)
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


# Request for an interface's address (linux/sockios.h).
_SIOCGIFADDR = 0x8915


class Link(NamedTuple):
    """The network by which a server is reached."""

    interface: str | None  # None where not known
    bits_s: float | None  # line rate; None for loopback and where the driver does not tell
    is_loopback: bool  # whether the server is on this host

    def byte_counts(self, procfs: Path = Path("/proc")) -> tuple[int, int] | None:
        """Bytes received and sent so far; None where they cannot be read."""
        return activity.all_interface_bytes(procfs).get(self.interface or "")


def link_to(address: sv.Address, sysfs: Path = Path("/sys")) -> Link:
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
    megabits = files.read_number(sysfs / "class/net" / interface / "speed")
    return megabits * 1e6 if megabits is not None and megabits > 0 else None


def _ipv4_address(interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            return socket.inet_ntoa(fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None


@dataclass
class MemcachedRuns:
    """A sweep under way. Made by `open_runs`."""

    options: MemcachedOptions
    runs: service.ServiceRuns
    loader: gen.Loader  # for full load
    sides: Sides
    link: Link
    scratch: Path

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure all that is not yet measured; yield each row, without the verdicts of `table`."""
        self.runs.begin()
        order = setups(self.options, self.runs.options.frequencies)
        random.Random(self.runs.options.seed).shuffle(order)
        for setup in order:
            yield from self._measure_full_load(setup)
            yield from self._measure_rates(setup)

    @property
    def runs_in_table(self) -> int:
        """Number of rows that the table will have."""
        options, service = self.options, self.runs.options
        loads = len(options.connections) + len(options.loads) + len(options.rates)
        return loads * service.repeats * len(setups(options, service.frequencies))

    def _measure_full_load(self, setup: Setup) -> Iterator[dict[str, Any]]:
        repeats, seed = self.runs.options.repeats, self.runs.options.seed
        threads = self._client_threads
        order = [(c, r) for c in self.options.connections for r in range(repeats)]
        random.Random(f"{seed} {setup}").shuffle(order)
        steps = [
            (self._make_step(setup, repeat, connections=c), self._total_work(setup, c, threads))
            for c, repeat in order
        ]
        # The last step tells whether the client was what limited the runs before it.
        more = _MORE_CLIENT * max(self.options.connections)
        more_threads = min(threads + 1, max(len(self.sides.client_cpus), threads))
        key = {"connections": more, "client_threads": more_threads}
        step = self._make_step(setup, 0, "client-step", **key)
        steps.append((step, self._total_work(setup, more, more_threads)))
        yield from self._measure_steps(setup, self.loader, steps)

    def _measure_rates(self, setup: Setup) -> Iterator[dict[str, Any]]:
        options, repeats = self.options, self.runs.options.repeats
        rates: list[tuple[dict[str, float], float]] = [({"rate": r}, r) for r in options.rates]
        if options.loads:
            full = self._highest_throughput(setup)
            rates += [({"load": load}, load * full) for load in options.loads]
        most, threads = max(options.connections), self._client_threads
        steps = [
            (self._make_step(setup, repeat, **key), self._total_work(setup, most, threads, rate))
            for key, rate in rates
            for repeat in range(repeats)
        ]
        random.Random(f"{self.runs.options.seed} {setup} rates").shuffle(steps)
        if self._steps_to_do(steps):
            yield from self._measure_steps(setup, self._pacing_loader, steps)

    def _highest_throughput(self, setup: Setup) -> float:
        """Highest mean throughput (1/s) of a set-up at full load."""
        found: list[float] = []
        for connections in self.options.connections:
            repeats = range(self.runs.options.repeats)
            steps = (self._make_step(setup, repeat, connections=connections) for repeat in repeats)
            rows = [row for step in steps if (row := self.runs.done(step)) is not None]
            rates = [row["throughput_ops_s"] for row in rows if "throughput_ops_s" in row]
            found += [mean(rates)] if rates else []
        if not found:
            raise MeasurementError(f"{setup.text()}: --load needs a run at full load, which failed")
        return max(found)

    def _make_step(
        self, setup: Setup, repeat: int, kind: str = "run", /, **key: float
    ) -> service.ServiceStep:
        return service.ServiceStep(kind, {**setup._asdict(), **key}, setup.freq_hz, repeat)

    def _steps_to_do(
        self, steps: Sequence[tuple[service.ServiceStep, gen.Work]]
    ) -> list[tuple[service.ServiceStep, gen.Work]]:
        return [(step, total) for step, total in steps if self.runs.done(step) is None]

    def _measure_steps(
        self,
        setup: Setup,
        loader: gen.Loader,
        steps: Sequence[tuple[service.ServiceStep, gen.Work]],
    ) -> Iterator[dict[str, Any]]:
        """Measure steps on servers that have room for the largest of them."""
        todo = self._steps_to_do(steps)
        if not todo:
            return
        connections = max(total.connections for _, total in steps)
        threads = max(total.threads for _, total in steps)
        with self._servers(setup, loader, connections, threads) as servers:
            for step, total in todo:
                row = self._measure_step(servers, setup, loader, step, total)
                if step.kind == "run":
                    yield row

    def _measure_step(
        self,
        servers: sv.Servers,
        setup: Setup,
        loader: gen.Loader,
        step: service.ServiceStep,
        total: gen.Work,
    ) -> dict[str, Any]:
        def make_load(margin_s: float) -> MemcachedLoad:
            longer = total._replace(seconds=total.seconds + margin_s)
            return MemcachedLoad(
                servers=servers,
                placement=self._server_placement(setup) if servers.processes else None,
                link=self.link,
                loader=loader,
                works=works(longer, self._partitions(setup), loader),
                client_cpus=self.sides.client_cpus,
                reaper=self.runs.reaper,
                scratch=self.scratch,
                procfs=self.runs.machine.procfs,
            )

        name = workload_name(
            self.options.get_share, setup.keys_per_request, self._partitions(setup)
        )
        return self.runs.measure(step, make_load, workload=name)

    def _total_work(
        self, setup: Setup, connections: int, threads: int, asked_s: float | None = None
    ) -> gen.Work:
        """Work of all clients together in one run, for the length of its window."""
        return gen.Work(
            get_share=self.options.get_share,
            keys_per_request=setup.keys_per_request,
            keys=max(1, -(-self.options.objects // self._partitions(setup))),
            key_bytes=self.options.key_bytes,
            value_bytes=setup.object_bytes,
            connections=connections,
            threads=threads,
            rate_s=None,
            seconds=self.runs.options.seconds,
            seed=self.runs.options.seed,
            asked_s=asked_s,
        )

    def _partitions(self, setup: Setup) -> int:
        return len(self.options.servers) or setup.partitions

    def _server_placement(self, setup: Setup) -> cpu_placement.Placement:
        return self.sides.server_placement(setup.threads * setup.partitions)

    @property
    def _client_threads(self) -> int:
        return self.options.client_threads or len(self.sides.client_cpus)

    @cached_property
    def _pacing_loader(self) -> gen.Loader:
        return self.loader if self.loader.paces else gen.find_loader("paced").open(self.scratch)

    def _servers(
        self, setup: Setup, loader: gen.Loader, connections: int, threads: int
    ) -> sv.Servers:
        """Start or connect servers, and fill them with what the loader asks for."""
        named = [sv.Address.parse(text) for text in self.options.servers]
        total = self._total_work(setup, connections, threads)
        shared = works(total, self._partitions(setup), loader)
        if named:
            servers = sv.Servers.connect_to(named)
            self.runs.tell_once(
                "objects stay in the servers that were named until these drop or flush them"
            )
        else:
            servers = sv.Servers.start(
                partitions=setup.partitions,
                threads=setup.threads,
                memory_bytes=self._server_memory_bytes(setup, loader, shared),
                connections=connections,
                cpus=self._server_placement(setup).cpus,
                reaper=self.runs.reaper,
                log=self.runs.session.folder / "output" / "memcached.txt",
            )
        if not loader.own_objects:
            work = shared[0]
            servers.fill(lambda n: loader.key(n, work), work.keys, work.value_bytes)
        return servers

    def _server_memory_bytes(
        self, setup: Setup, loader: gen.Loader, shared: Sequence[gen.Work]
    ) -> int:
        """Memory (B) of private servers, as asked for or as the objects need."""
        if self.options.memory_bytes is not None:
            return int(self.options.memory_bytes)
        held = shared[0].keys * setup.partitions
        if loader.own_objects:
            held = sum(loader.object_count(work) for work in shared)
        each = -(-held // setup.partitions)
        needed = setup.partitions * sv.needed_memory(
            each, self.options.key_bytes, setup.object_bytes
        )
        free = activity.available_memory(self.runs.machine.procfs, self.runs.machine.sysfs)
        if needed > _MOST_MEMORY * free:
            hint = " (memcaslap holds 1024 per connection; --client paced does not)"
            raise MeasurementError(
                f"{held} objects of {setup.object_bytes} B need {needed / 1e9:.3g} GB and "
                f"{free / 1e9:.3g} GB are free: ask for fewer connections or objects"
                f"{hint if loader.name == 'memcaslap' else ''}"
            )
        return needed


def find_programs(options: MemcachedOptions) -> gen.Loader:
    """Find the load generator, and memcached unless servers are named."""
    if not options.servers:
        find_program("memcached")
    found = gen.find_loader(options.client)
    if (options.loads or options.rates) and not found.paces:
        # ppw's own takes its place for rates.
        gen.find_loader("paced")
    return found


def open_runs(options: MemcachedOptions, runs: service.ServiceRuns) -> MemcachedRuns:
    """Set up a sweep. Raises `MeasurementError` where something asked for cannot be."""
    options.check()
    found = find_programs(options)
    scratch = runs.reaper.folder()
    loader = found.open(scratch)
    link = link_to(sv.Address.parse(options.servers[0] if options.servers else "127.0.0.1"))
    if options.line_rate_bits_s is not None:
        link = link._replace(bits_s=options.line_rate_bits_s)
    topology = cpu_placement.read_topology(runs.machine.sysfs)
    cpus = sides(options, topology)
    if options.servers:
        every = tuple(core.cpus[0] for core in topology.cores)
        cpus = cpus._replace(client_cpus=options.client_cpus or every)
    elif cpus.shared:
        runs.tell_once(
            "servers and clients share CPUs here, so each slows the other: name CPUs "
            "with --server-cpus and --client-cpus on a host with more of them"
        )
    if link.is_loopback:
        runs.tell_once(
            "the clients run on the host that is measured: its power and CPU times include "
            "theirs (client_user_s and client_system_s tell how much)"
        )
    return MemcachedRuns(options, runs, loader, cpus, link, scratch)


def table(session: Session) -> pd.DataFrame:
    """Runs table of all runs so far, with what limits each."""
    rows = service.service_rows(session)
    return pd.DataFrame(limits.judge_runs(rows, service.service_rows(session, kind="client-step")))
