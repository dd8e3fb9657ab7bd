"""Options of a memcached sweep: its set-ups, and the CPUs of servers and clients."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product, starmap
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import PhysicalCore, Placement, Topology, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
                "threads, partitions, connections, keys and objects are 1 or more"
            )
        if not 0 <= self.get_share <= 1:
            raise MeasurementError(f"a share of gets of {self.get_share:g}: give 0 to 1")
        if bad_loads := [load for load in self.loads if not 0 < load <= 2]:
            raise MeasurementError(f"a load of {bad_loads[0]:g}: give shares: 0.5, or 50%")
        if min(self.rates, default=1.0) <= 0:
            raise MeasurementError("a rate is operations a second, above 0")
        if self.servers and (self.threads != (1,) or self.partitions != (1,)):
            raise MeasurementError(
                "threads and partitions of named servers are what they are: leave them out"
            )


class Setup(NamedTuple):
    """One set-up of servers and requests."""

    freq_hz: float | None
    threads: int
    partitions: int
    object_bytes: int
    keys_per_request: int

    def key(self, **more: Any) -> Mapping[str, Any]:
        """Values that tell a run of this set-up from others."""
        return {**self._asdict(), **more}

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


def mean_operations(get_share: float, keys_per_request: int) -> float:
    """Objects that a request reads or writes, on average."""
    return get_share * keys_per_request + (1 - get_share)


def workload_name(get_share: float, keys_per_request: int, partitions: int) -> str:
    """Name of the workload: what is asked, apart from the size of an object."""
    gets = round(100 * get_share)
    mix = {100: "get", 0: "set"}.get(gets, f"{gets}:{100 - gets}")
    keys = f" {keys_per_request} keys" if keys_per_request > 1 else ""
    servers = f" on {partitions} servers" if partitions > 1 else ""
    return f"memcached {mix}{keys}{servers}"


class Sides(NamedTuple):
    """Cores and logical CPUs of servers and clients on this host."""

    server: tuple[PhysicalCore, ...]
    server_cpus: tuple[int, ...]
    client_cpus: tuple[int, ...]
    shared: bool

    def server_placement(self, threads: int) -> Placement:
        """CPUs for so many server threads, each on a core of its own as far as there are cores."""
        if not self.server:
            return Placement(self.server_cpus, len(self.server_cpus), ())
        return place(Topology(self.server), min(threads, len(self.server)))


def sides(options: MemcachedOptions, topology: Topology) -> Sides:
    """Share the cores. Raises `MeasurementError` when a CPU that was named may not be used."""
    cores = topology.cores
    known = {cpu for core in cores for cpu in core.cpus}
    for cpu in (*options.server_cpus, *options.client_cpus):
        if cpu not in known:
            raise MeasurementError(
                f"CPU {cpu} may not be used here: there are {', '.join(map(str, sorted(known)))}"
            )
    if options.server_cpus:
        server = _cut_to_cpus(cores, options.server_cpus)
    else:
        free = [c for c in cores if not set(c.cpus) & set(options.client_cpus)] or list(cores)
        half = len(free) if options.client_cpus else max(1, len(free) - max(1, len(free) // 2))
        server = tuple(free[:half])
    taken = {cpu for core in server for cpu in core.cpus}
    others = tuple(cpu for core in cores for cpu in core.cpus[:1] if cpu not in taken)
    # A host with one core has to share it.
    client = options.client_cpus or others or tuple(sorted(taken))
    return Sides(server, tuple(sorted(taken)), client, bool(taken & set(client)))


def _cut_to_cpus(cores: Sequence[PhysicalCore], cpus: Sequence[int]) -> tuple[PhysicalCore, ...]:
    """Cut cores down to the CPUs that were named."""
    cut = [core._replace(cpus=tuple(c for c in core.cpus if c in cpus)) for core in cores]
    return tuple(core for core in cut if core.cpus)
