"""The sweep over set-ups of memcached: full load, one step more client, then the rates."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from statistics import mean
from typing import TYPE_CHECKING, Any

from measurements.errors import MeasurementError
from measurements.host.activity import available_memory
from measurements.host.cpu_placement import Placement, read_topology
from measurements.processes.programs import find_program
from measurements.workloads.memcached import options as asked
from measurements.workloads.memcached.limits import judge_runs
from measurements.workloads.memcached.load_generators import Loader, Work, find_loader
from measurements.workloads.memcached.load_run import Demand, Link, MemcachedLoad, link_to, works
from measurements.workloads.memcached.servers import Address, Servers, needed_memory
from measurements.workloads.service import ServiceRuns, ServiceStep, service_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from measurements.sweep.session import Session

# Share of the free memory that servers may be given.
_MOST_MEMORY = 0.7
_MORE_CLIENT = 2


@dataclass
class MemcachedRuns:
    """A sweep under way. Made by `open_runs`."""

    options: asked.MemcachedOptions
    runs: ServiceRuns
    loader: Loader  # for full load
    sides: asked.Sides
    link: Link
    scratch: Path
    _pacing: Loader | None = field(default=None)

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure all that is not yet measured; yields the row of each run as it ends.

        The verdicts are not in these rows, since they need the runs after them: `table` has them.

        Raises `MeasurementError` when servers or clients fail, or a setting is refused.
        """
        self.runs.begin()
        order = asked.setups(self.options, self.runs.options.frequencies)
        random.Random(self.runs.options.seed).shuffle(order)
        for setup in order:
            yield from self._measure_full_load(setup)
            yield from self._measure_rates(setup)

    @property
    def runs_in_table(self) -> int:
        """Number of rows that the table will have."""
        options, service = self.options, self.runs.options
        loads = len(options.connections) + len(options.loads) + len(options.rates)
        return loads * service.repeats * len(asked.setups(options, service.frequencies))

    def _measure_full_load(self, setup: asked.Setup) -> Iterator[dict[str, Any]]:
        repeats, seed = self.runs.options.repeats, self.runs.options.seed
        threads = self._client_threads
        order = [(c, r) for c in self.options.connections for r in range(repeats)]
        random.Random(f"{seed} {setup}").shuffle(order)
        steps = [
            (self._step(setup, repeat, connections=c), self._demand(c, threads))
            for c, repeat in order
        ]
        # The last step tells whether the client was what limited the runs before it.
        more = _MORE_CLIENT * max(self.options.connections)
        more_threads = min(threads + 1, max(len(self.sides.client_cpus), threads))
        key = setup.key(connections=more, client_threads=more_threads)
        step = ServiceStep("client-step", key, setup.freq_hz, 0)
        steps.append((step, self._demand(more, more_threads)))
        yield from self._measure(setup, self.loader, steps)

    def _measure_rates(self, setup: asked.Setup) -> Iterator[dict[str, Any]]:
        options, repeats = self.options, self.runs.options.repeats
        rates: list[tuple[dict[str, float], float]] = [({"rate": r}, r) for r in options.rates]
        if options.loads:
            full = self._highest(setup)
            rates += [({"load": load}, load * full) for load in options.loads]
        most, threads = max(options.connections), self._client_threads
        steps = [
            (self._step(setup, repeat, **key), self._demand(most, threads, rate))
            for key, rate in rates
            for repeat in range(repeats)
        ]
        random.Random(f"{self.runs.options.seed} {setup} rates").shuffle(steps)
        if self._todo(steps):
            yield from self._measure(setup, self._pacer(), steps)

    def _highest(self, setup: asked.Setup) -> float:
        """Highest mean throughput (1/s) of a set-up at full load."""
        found: list[float] = []
        for connections in self.options.connections:
            repeats = range(self.runs.options.repeats)
            steps = (self._step(setup, repeat, connections=connections) for repeat in repeats)
            rows = [row for step in steps if (row := self.runs.done(step)) is not None]
            rates = [row["throughput_ops_s"] for row in rows if "throughput_ops_s" in row]
            found += [mean(rates)] if rates else []
        if not found:
            raise MeasurementError(f"{setup.text()}: no throughput at full load to take a share of")
        return max(found)

    def _step(self, setup: asked.Setup, repeat: int, **key: float) -> ServiceStep:
        return ServiceStep("run", setup.key(**key), setup.freq_hz, repeat)

    def _demand(self, connections: int, threads: int, rate: float | None = None) -> Demand:
        return Demand(connections, threads, rate, self.runs.options.seconds)

    def _todo(
        self, steps: Sequence[tuple[ServiceStep, Demand]]
    ) -> list[tuple[ServiceStep, Demand]]:
        return [(step, demand) for step, demand in steps if self.runs.done(step) is None]

    def _measure(
        self, setup: asked.Setup, loader: Loader, steps: Sequence[tuple[ServiceStep, Demand]]
    ) -> Iterator[dict[str, Any]]:
        """Measure steps on servers that have room for the largest of them."""
        todo = self._todo(steps)
        if not todo:
            return
        connections = max(demand.connections for _, demand in steps)
        threads = max(demand.client_threads for _, demand in steps)
        with self._servers(setup, loader, self._demand(connections, threads)) as servers:
            for step, demand in todo:
                row = self._measure_step(servers, setup, loader, step, demand)
                if step.kind == "run":
                    yield row

    def _measure_step(
        self,
        servers: Servers,
        setup: asked.Setup,
        loader: Loader,
        step: ServiceStep,
        demand: Demand,
    ) -> dict[str, Any]:
        partitions = len(servers.addresses)

        def make(margin_s: float) -> MemcachedLoad:
            longer = demand._replace(seconds=demand.seconds + margin_s)
            return MemcachedLoad(
                servers=servers,
                placement=self._placement(setup) if servers.processes else None,
                link=self.link,
                loader=loader,
                works=self._works(setup, loader, longer, partitions),
                client_cpus=self.sides.client_cpus,
                demand=longer,
                reaper=self.runs.reaper,
                scratch=self.scratch,
                procfs=self.runs.machine.procfs,
            )

        name = asked.workload_name(self.options.get_share, setup.keys_per_request, partitions)
        return self.runs.measure(step, make, workload=name)

    def _works(
        self, setup: asked.Setup, loader: Loader, demand: Demand, partitions: int
    ) -> list[Work]:
        base = Work(
            get_share=self.options.get_share,
            keys_per_request=setup.keys_per_request,
            keys=max(1, -(-self.options.objects // partitions)),
            key_bytes=self.options.key_bytes,
            value_bytes=setup.object_bytes,
            connections=demand.connections,
            threads=demand.client_threads,
            rate_s=None,
            seconds=demand.client_s,
            seed=self.runs.options.seed,
        )
        return works(base, demand, partitions, one_thread=loader.name == "paced")

    def _placement(self, setup: asked.Setup) -> Placement:
        return self.sides.server_placement(setup.threads * setup.partitions)

    @property
    def _client_threads(self) -> int:
        return self.options.client_threads or len(self.sides.client_cpus)

    def _pacer(self) -> Loader:
        if self.loader.paces:
            return self.loader
        if self._pacing is None:
            self._pacing = find_loader("paced").open(self.scratch)
        return self._pacing

    def _servers(self, setup: asked.Setup, loader: Loader, demand: Demand) -> Servers:
        """Start or connect servers, and fill them with what the loader asks for."""
        named = [Address.parse(text) for text in self.options.servers]
        shared = self._works(setup, loader, demand, len(named) or setup.partitions)
        if named:
            servers = Servers.connect_to(named)
            self.runs.tell_once(
                "objects stay in the servers that were named until these drop or flush them"
            )
        else:
            servers = Servers.start(
                partitions=setup.partitions,
                threads=setup.threads,
                memory_bytes=self._memory(setup, loader, shared),
                connections=demand.connections,
                cpus=self._placement(setup).cpus,
                reaper=self.runs.reaper,
                log=self.runs.session.folder / "output" / "memcached.txt",
            )
        if not loader.own_objects:
            work = shared[0]
            servers.fill(lambda n: loader.key(n, work), work.keys, work.value_bytes)
        return servers

    def _memory(self, setup: asked.Setup, loader: Loader, shared: Sequence[Work]) -> int:
        """Memory (B) of private servers, as asked for or as the objects need."""
        if self.options.memory_bytes is not None:
            return int(self.options.memory_bytes)
        held = shared[0].keys * setup.partitions
        if loader.own_objects:
            held = sum(loader.object_count(work) for work in shared)
        each = -(-held // setup.partitions)
        needed = setup.partitions * needed_memory(each, self.options.key_bytes, setup.object_bytes)
        free = available_memory(self.runs.machine.procfs, self.runs.machine.sysfs)
        if needed > _MOST_MEMORY * free:
            hint = " (memcaslap holds 1024 a connection; --client paced does not)"
            raise MeasurementError(
                f"{held} objects of {setup.object_bytes} B need {needed / 1e9:.3g} GB and "
                f"{free / 1e9:.3g} GB are free: ask for fewer connections or objects"
                f"{hint if loader.name == 'memcaslap' else ''}"
            )
        return needed


def find_programs(options: asked.MemcachedOptions) -> Loader:
    """Find the load generator, and memcached unless servers are named.

    Raises `MeasurementError` when one of them is missing, with what to install.
    """
    if not options.servers:
        find_program("memcached")
    found = find_loader(options.client)
    if (options.loads or options.rates) and not found.paces:
        # ppw's own takes its place for rates.
        find_loader("paced")
    return found


def open_runs(options: asked.MemcachedOptions, runs: ServiceRuns) -> MemcachedRuns:
    """Set up a sweep.

    Raises `MeasurementError` when a program is missing, a server cannot be reached or something
    asked for cannot be.
    """
    options.check()
    found = find_programs(options)
    scratch = runs.reaper.folder()
    loader = found.open(scratch)
    link = link_to(Address.parse(options.servers[0] if options.servers else "127.0.0.1"))
    if options.line_rate_bits_s is not None:
        link = link._replace(bits_s=options.line_rate_bits_s)
    topology = read_topology(runs.machine.sysfs)
    sides = asked.sides(options, topology)
    if options.servers:
        every = tuple(core.cpus[0] for core in topology.cores)
        sides = sides._replace(client_cpus=options.client_cpus or every)
    elif sides.shared:
        runs.tell_once(
            "servers and clients share CPUs here, so the throughput is neither's own: name CPUs "
            "with --server-cpus and --client-cpus on a host with more of them"
        )
    if link.is_loopback:
        runs.tell_once(
            "the clients run on the host that is measured: its power and CPU times have theirs in "
            "them (client_user_s and client_system_s tell how much)"
        )
    return MemcachedRuns(options, runs, loader, sides, link, scratch)


def table(session: Session) -> pd.DataFrame:
    """Runs table of all runs so far, with what limits each."""
    import pandas as pd

    rows = service_rows(session)
    return pd.DataFrame(judge_runs(rows, service_rows(session, kind="client-step")))
