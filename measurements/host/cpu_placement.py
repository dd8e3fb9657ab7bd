"""Where a process may run and have its memory: CPUs, cores and NUMA nodes."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.files import (
    cpu_list_text,
    parse_cpu_list,
    read_cpus,
    read_field,
    read_lines,
    read_number,
    read_text,
)
from measurements.host.processor import online_cores

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from measurements.host.files import Value


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


# Which logical CPUs make so many physical cores, and running a command on just those.
#
# Cores are taken one thread each: a second thread of a core adds a fraction of a core, and a sweep
# over cores that takes it for one bends the scaling law. Placements of the same order are nested:
# the cores of a smaller one are among those of a larger one.


Order = Literal["fill", "spread"]

# Kinds of cores of hybrid processors, the faster first.
_KINDS = ("cpu_core", "cpu_atom", "cpu_lowpower")


class Core(NamedTuple):
    """A physical core, as far as this process may use it.

    Attributes
    ----------
    cpus : tuple of int
        Its logical CPUs (hardware threads) that are online and allowed, ascending.
    socket, node : int
        Its package and NUMA node; 0 where the kernel does not tell.
    kind : str
        Among the kinds of a hybrid processor, "" where all cores are of one.
    """

    cpus: tuple[int, ...]
    socket: int
    node: int
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Topology:
    """Physical cores that this process may use.

    Attributes
    ----------
    cores : tuple of Core
        By socket, the faster kind first, by NUMA node, then by number.
    withheld : tuple of int
        Logical CPUs that are online but not allowed, as by a container or taskset.
    """

    cores: tuple[Core, ...]
    withheld: tuple[int, ...] = ()

    @property
    def sockets(self) -> tuple[int, ...]:
        """Sockets with a core that may be used."""
        return tuple(sorted({core.socket for core in self.cores}))


@dataclass(frozen=True, slots=True)
class Placement:
    """Logical CPUs to run on, and what they are.

    Attributes
    ----------
    cpus : tuple of int
        Ascending.
    cores : int
        Physical cores that they are on.
    sockets, nodes : tuple of int
        Packages and NUMA nodes of these cores. Memory comes from the node of the CPU that first
        touches it, unless the command says otherwise.
    caveats : tuple of str
        What makes a sweep over cores bend for another reason than the workload.
    """

    cpus: tuple[int, ...]
    cores: int
    sockets: tuple[int, ...]
    nodes: tuple[int, ...]
    caveats: tuple[str, ...] = ()


def read_topology(
    sysfs: Path = Path("/sys"), *, allowed: Collection[int] | None = None
) -> Topology:
    """Read the cores that this process may use.

    Parameters
    ----------
    sysfs : Path
        Where the kernel's tree is.
    allowed : collection of int, optional
        Logical CPUs that may be used; by default those that the process's affinity names, which
        is within its cpuset.

    Raises
    ------
    MeasurementError
        When the tree has none of these CPUs.
    """
    folder = sysfs / "devices" / "system" / "cpu"
    online = _online(folder)
    usable = online & (os.sched_getaffinity(0) if allowed is None else set(allowed))
    if not usable:
        raise MeasurementError(f"{folder}: none of the CPUs that may be used here is online")
    nodes, kinds = _nodes(sysfs), _kinds(sysfs, online)
    cores = {}
    for cpu in sorted(usable):
        threads = tuple(sorted(_threads(folder / f"cpu{cpu}", cpu) & usable))
        cores[threads[0]] = Core(
            threads,
            socket=_socket(folder / f"cpu{cpu}"),
            node=nodes.get(cpu, 0),
            kind=kinds.get(cpu, ""),
        )
    return Topology(
        tuple(sorted(cores.values(), key=lambda c: (c.socket, _rank(c.kind), c.node, c.cpus))),
        withheld=tuple(sorted(online - usable)),
    )


def place(
    topology: Topology,
    cores: int | None = None,
    *,
    order: Order = "fill",
    threads_per_core: int | None = 1,
) -> Placement:
    """Choose logical CPUs that make so many physical cores.

    Parameters
    ----------
    topology : Topology
    cores : int, optional
        How many; by default all, with all their threads.
    order : {"fill", "spread"}
        One socket and NUMA node after the other, or alternately one core of each.
    threads_per_core : int or None
        How many logical CPUs of each core; None for all it has.

    Raises
    ------
    MeasurementError
        When there are fewer cores, or cores with fewer threads, than asked for.
    """
    if cores is None:
        cores, threads_per_core = len(topology.cores), None
    _refuse_missing(topology, cores)
    taken = _ordered(topology, order)[:cores]
    if threads_per_core is not None:
        short = [core for core in taken if len(core.cpus) < threads_per_core]
        if short or threads_per_core < 1:
            fewest = min(len(core.cpus) for core in taken)
            raise MeasurementError(
                f"{threads_per_core} threads a core are not to be had on {cores} cores: "
                f"there may be 1 to {fewest}"
            )
    return Placement(
        tuple(sorted(chain.from_iterable(core.cpus[:threads_per_core] for core in taken))),
        cores=cores,
        sockets=tuple(sorted({core.socket for core in taken})),
        nodes=tuple(sorted({core.node for core in taken})),
        caveats=tuple(_caveats(taken, threads_per_core)),
    )


@contextmanager
def run_on(cpus: Collection[int]) -> Iterator[None]:
    """Let processes that are started inside the block run on these logical CPUs only.

    They inherit the affinity of the thread that starts them, which is set for as long as the block
    lasts; other threads keep theirs.

    Raises
    ------
    MeasurementError
        When one of them is offline or not allowed.

    Examples
    --------
    >>> with run_on(place(read_topology(), 1).cpus):  # doctest: +SKIP
    ...     process = subprocess.Popen(["sysbench", "cpu", "run"])
    """
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except (OSError, ValueError, OverflowError) as error:
        raise MeasurementError(_not_allowed(cpus, before)) from error
    try:
        # The kernel leaves out without a word those that a cpuset does not allow.
        if os.sched_getaffinity(0) != set(cpus):
            raise MeasurementError(_not_allowed(cpus, before))
        yield
    finally:
        os.sched_setaffinity(0, before)


def _online(folder: Path) -> set[int]:
    listed = read_text(folder / "online")
    if listed is not None:
        return set(parse_cpu_list(listed))
    return {int(path.name[3:]) for path in folder.glob("cpu[0-9]*")}


def _threads(folder: Path, cpu: int) -> set[int]:
    """Logical CPUs of the same core, itself included."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        if listed := read_text(folder / "topology" / name):
            return {cpu, *parse_cpu_list(listed)}
    return {cpu}


def _socket(folder: Path) -> int:
    try:
        # -1 where the kernel does not know.
        return max(0, int(read_text(folder / "topology" / "physical_package_id") or 0))
    except ValueError:
        return 0


def _nodes(sysfs: Path) -> Mapping[int, int]:
    """NUMA node by logical CPU."""
    found = {}
    for folder in (sysfs / "devices" / "system" / "node").glob("node[0-9]*"):
        for cpu in parse_cpu_list(read_field(folder / "cpulist")):
            found[cpu] = int(folder.name[4:])
    return found


def _kinds(sysfs: Path, online: Iterable[int]) -> Mapping[int, str]:
    """Kind of core by logical CPU, of hybrid processors only."""
    found = {
        cpu: kind
        for kind in _KINDS
        for cpu in parse_cpu_list(read_field(sysfs / "devices" / kind / "cpus"))
    }
    if not found:
        folder = sysfs / "devices" / "system" / "cpu"
        capacities = {cpu: read_text(folder / f"cpu{cpu}" / "cpu_capacity") for cpu in online}
        found = {cpu: f"capacity {c}" for cpu, c in capacities.items() if c and c.isdecimal()}
    return found if len(set(found.values())) > 1 else {}


def _rank(kind: str) -> int:
    """Order kinds of cores, the faster first."""
    name, _, capacity = kind.partition(" ")
    if capacity:
        return -int(capacity)
    return _KINDS.index(name) if name in _KINDS else 0


def _ordered(topology: Topology, order: Order) -> Sequence[Core]:
    if order == "fill":
        return topology.cores
    # The first nodes of all sockets, then their second ones.
    nodes = [
        sorted({core.node for core in topology.cores if core.socket == socket})
        for socket in topology.sockets
    ]
    alternating = [node for row in zip_longest(*nodes) for node in row if node is not None]
    by_node = [[core for core in topology.cores if core.node == node] for node in alternating]
    return [core for row in zip_longest(*by_node) for core in row if core is not None]


def _refuse_missing(topology: Topology, cores: int) -> None:
    there = len(topology.cores)
    if 1 <= cores <= there:
        return
    withheld = (
        f"; CPUs {cpu_list_text(topology.withheld)} are online but not allowed to this process "
        "(its affinity or cpuset)"
        if topology.withheld
        else ""
    )
    raise MeasurementError(
        f"{cores} physical cores are not to be had: there may be 1 to {there}{withheld}"
    )


def _caveats(taken: Sequence[Core], threads_per_core: int | None) -> Iterator[str]:
    kinds = sorted({core.kind for core in taken}, key=_rank)
    if len(kinds) > 1:
        yield f"the {len(taken)} cores are of several kinds: {', '.join(kinds)}"
    elif len({len(core.cpus[:threads_per_core]) for core in taken}) > 1:
        yield f"of the {len(taken)} cores some run more threads than others"


def _not_allowed(cpus: Collection[int], before: Collection[int]) -> str:
    missing = cpu_list_text(set(cpus) - set(before))
    why = f": {missing} is offline or not allowed to this process" if missing else ""
    return (
        f"nothing can be run on CPUs {cpu_list_text(cpus) or '(none)'}{why}; choose among "
        f"{cpu_list_text(before)}"
    )
