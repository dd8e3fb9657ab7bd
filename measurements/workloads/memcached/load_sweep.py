"""The sweep over set-ups of memcached: full load, one step more client, then the rates."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from statistics import mean
from typing import TYPE_CHECKING, Any

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import read_topology
from measurements.host.memory import available_memory
from measurements.processes.programs import find_program
from measurements.workloads.memcached.limits import judged
from measurements.workloads.memcached.load_generators import Work, find_loader
from measurements.workloads.memcached.load_run import Demand, MemcachedLoad, link_to, works
from measurements.workloads.memcached.options import setups, sides, workload_name
from measurements.workloads.memcached.servers import Address, Servers, needed_memory
from measurements.workloads.service import ServiceStep, service_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from measurements.host.cpu_placement import Placement
    from measurements.sweep.session import Session
    from measurements.workloads.memcached.load_generators import Installed, Loader
    from measurements.workloads.memcached.load_run import Link
    from measurements.workloads.memcached.options import MemcachedOptions, Setup, Sides
    from measurements.workloads.service import ServiceRuns

# Of the free memory that servers may be given.
_MOST_MEMORY = 0.7
_MORE_CLIENT = 2


@dataclass
class MemcachedRuns:
    """Runs of memcached under way. Made by `open_runs`.

    Attributes
    ----------
    options : MemcachedOptions
    runs : ServiceRuns
    loader : Loader
        For full load.
    sides : Sides
    link : Link
    """

    options: MemcachedOptions
    runs: ServiceRuns
    loader: Loader
    sides: Sides
    link: Link
    scratch: Path
    _pacing: Loader | None = field(default=None)

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure all that is not yet measured; yields the row of each run as it ends.

        The verdicts are not in these rows, since they need the runs after them: `table` has them.

        Raises
        ------
        MeasurementError
            When servers or clients fail, or a setting is refused.
        """
        self.runs.begin()
        order = setups(self.options, self.runs.options.frequencies)
        random.Random(self.runs.options.seed).shuffle(order)
        for setup in order:
            yield from self._full_load(setup)
            yield from self._rates(setup)

    @property
    def runs_in_table(self) -> int:
        """How many rows the table will have."""
        asked = len(self.options.connections) + len(self.options.loads) + len(self.options.rates)
        service = self.runs.options
        return asked * service.repeats * len(setups(self.options, service.frequencies))

    def _full_load(self, setup: Setup) -> Iterator[dict[str, Any]]:
        repeats, seed = self.runs.options.repeats, self.runs.options.seed
        threads = self._client_threads()
        demands = [(c, r) for c in self.options.connections for r in range(repeats)]
        random.Random(f"{seed} {setup}").shuffle(demands)
        steps = [
            (ServiceStep("run", setup.key(connections=c), setup.freq_hz, repeat), c, threads)
            for c, repeat in demands
        ]
        # Last, since it is asked whether the client was what limited the runs before it.
        more = _MORE_CLIENT * max(self.options.connections)
        more_threads = min(threads + 1, max(len(self.sides.client_cpus), threads))
        key = setup.key(connections=more, client_threads=more_threads)
        steps.append((ServiceStep("client-step", key, setup.freq_hz, 0), more, more_threads))
        todo = [step for step in steps if self.runs.done(step[0]) is None]
        if not todo:
            return
        most = max(connections for _, connections, _ in steps)
        with self._servers(setup, self.loader, most, more_threads) as servers:
            for step, connections, clients in todo:
                row = self._measure(servers, setup, self.loader, step, connections, clients, None)
                if step.kind == "run":
                    yield row

    def _rates(self, setup: Setup) -> Iterator[dict[str, Any]]:
        options, repeats = self.options, self.runs.options.repeats
        asked: list[tuple[dict[str, float], float]] = [({"rate": r}, r) for r in options.rates]
        if options.loads:
            full = self._highest(setup)
            asked += [({"load": load}, load * full) for load in options.loads]
        steps = [
            (ServiceStep("run", setup.key(**key), setup.freq_hz, repeat), rate)
            for key, rate in asked
            for repeat in range(repeats)
        ]
        random.Random(f"{self.runs.options.seed} {setup} rates").shuffle(steps)
        todo = [step for step in steps if self.runs.done(step[0]) is None]
        if not todo:
            return
        loader, most = self._pacer(), max(options.connections)
        with self._servers(setup, loader, most, self._client_threads()) as servers:
            for step, rate in todo:
                clients = self._client_threads()
                yield self._measure(servers, setup, loader, step, most, clients, rate)

    def _highest(self, setup: Setup) -> float:
        """Highest mean throughput (1/s) of a set-up at full load."""
        found: list[float] = []
        for connections in self.options.connections:
            steps = (
                ServiceStep("run", setup.key(connections=connections), setup.freq_hz, repeat)
                for repeat in range(self.runs.options.repeats)
            )
            rows = [row for step in steps if (row := self.runs.done(step)) is not None]
            rates = [row["throughput_ops_s"] for row in rows if "throughput_ops_s" in row]
            found += [mean(rates)] if rates else []
        if not found:
            raise MeasurementError(f"{setup.text()}: no throughput at full load to take a share of")
        return max(found)

    def _measure(
        self,
        servers: Servers,
        setup: Setup,
        loader: Loader,
        step: ServiceStep,
        connections: int,
        client_threads: int,
        asked_s: float | None,
    ) -> dict[str, Any]:
        def make(margin_s: float) -> MemcachedLoad:
            seconds = self.runs.options.seconds + margin_s
            demand = Demand(connections, client_threads, asked_s, seconds)
            return MemcachedLoad(
                servers=servers,
                placement=self._placement(setup) if servers.processes else None,
                link=self.link,
                loader=loader,
                works=self._works(setup, loader, demand, len(servers.addresses)),
                client_cpus=self.sides.client_cpus,
                demand=demand,
                reaper=self.runs.reaper,
                scratch=self.scratch,
                procfs=self.runs.machine.procfs,
            )

        name = workload_name(self.options.get_share, setup.keys_per_request, len(servers.addresses))
        return self.runs.measure(step, make, workload=name)

    def _works(self, setup: Setup, loader: Loader, demand: Demand, partitions: int) -> list[Work]:
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

    def _placement(self, setup: Setup) -> Placement:
        return self.sides.server_placement(setup.threads * setup.partitions)

    def _client_threads(self) -> int:
        return self.options.client_threads or len(self.sides.client_cpus)

    def _pacer(self) -> Loader:
        if self.loader.paces:
            return self.loader
        if self._pacing is None:
            self._pacing = find_loader("paced").open(self.scratch)
        return self._pacing

    def _servers(self, setup: Setup, loader: Loader, connections: int, threads: int) -> Servers:
        """Servers that hold what the loader will ask for."""
        options = self.options
        demand = Demand(connections, threads, None, self.runs.options.seconds)
        partitions = len(options.servers) or setup.partitions
        asked = self._works(setup, loader, demand, partitions)
        if options.servers:
            servers = Servers.named([Address.parse(text) for text in options.servers])
            self.runs.tell_once(
                "objects stay in the servers that were named until these drop or flush them"
            )
        else:
            memory = self._memory(setup, loader, asked)
            placement = self._placement(setup)
            servers = Servers.start(
                partitions=setup.partitions,
                threads=setup.threads,
                memory_bytes=memory,
                connections=connections,
                cpus=placement.cpus,
                reaper=self.runs.reaper,
                log=self.runs.session.folder / "output" / "memcached.txt",
            )
        if not loader.own_objects:
            try:
                for control in servers.controls:
                    work = asked[0]
                    control.fill(lambda n: loader.key(n, work), work.keys, work.value_bytes)  # noqa: B023
            except BaseException:
                servers.stop()
                raise
        return servers

    def _memory(self, setup: Setup, loader: Loader, asked: Sequence[Work]) -> int:
        """Memory of private servers, as asked for or as the objects need."""
        if self.options.memory_bytes is not None:
            return int(self.options.memory_bytes)
        held = sum(loader.held(work) for work in asked)
        if not loader.own_objects:
            held = asked[0].keys * setup.partitions
        each = -(-held // setup.partitions)
        needed = setup.partitions * needed_memory(each, self.options.key_bytes, setup.object_bytes)
        free = available_memory(self.runs.machine.procfs, self.runs.machine.sysfs)
        if needed > _MOST_MEMORY * free:
            raise MeasurementError(
                f"{held} objects of {setup.object_bytes} B need {needed / 1e9:.3g} GB and "
                f"{free / 1e9:.3g} GB are free: ask for fewer connections or objects"
                + (" (memcaslap holds 1024 a connection; --client paced does not)")
                * (loader.name == "memcaslap")
            )
        return needed


def find_programs(options: MemcachedOptions) -> Installed:
    """Find the load generator, and memcached unless servers are named.

    Raises
    ------
    MeasurementError
        When one of them is missing, with what to install.
    """
    if not options.servers:
        find_program("memcached")
    found = find_loader(options.client)
    if (options.loads or options.rates) and found.name == "memcaslap":
        # It keeps no rate: ppw's own takes its place then.
        find_loader("paced")
    return found


def open_runs(options: MemcachedOptions, runs: ServiceRuns) -> MemcachedRuns:
    """Find all that a sweep needs.

    Raises
    ------
    MeasurementError
        When a program is missing, a server cannot be reached or something asked for cannot be.
    """
    options.check()
    found = find_programs(options)
    scratch = runs.reaper.folder()
    loader = found.open(scratch)
    link = link_to(Address.parse(options.servers[0] if options.servers else "127.0.0.1"))
    if options.line_rate_bits_s is not None:
        link = link._replace(bits_s=options.line_rate_bits_s)
    topology = read_topology(runs.machine.sysfs)
    split = sides(options, topology)
    if options.servers:
        split = split._replace(
            client_cpus=options.client_cpus or tuple(c.cpus[0] for c in topology.cores)
        )
    elif split.shared:
        runs.tell_once(
            "servers and clients share CPUs here, so the throughput is neither's own: name CPUs "
            "with --server-cpus and --client-cpus on a host with more of them"
        )
    if link.is_loopback:
        runs.tell_once(
            "the clients run on the host that is measured: its watts and CPU times have theirs in "
            "them (client_user_s and client_system_s tell how much)"
        )
    return MemcachedRuns(options, runs, loader, split, link, scratch)


def table(session: Session) -> pd.DataFrame:
    """Runs table of all runs so far, with what limits each."""
    import pandas as pd

    rows = service_rows(session)
    return pd.DataFrame(judged(rows, service_rows(session, kind="client-step")))
