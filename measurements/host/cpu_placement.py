"""CPUs, cores and NUMA nodes that a process may use, and running commands on some of them.

Cores are taken one thread each: a second thread of a core adds a fraction of a core, and a sweep
over cores that counts it as one bends the scaling law. Placements are nested: the cores of a
smaller one are among those of a larger one.
"""

import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from measurements.errors import MeasurementError
from measurements.host import files
from measurements.host.processor import online_cores

# Kinds of cores of hybrid processors, the faster first.
_KINDS = ("cpu_core", "cpu_atom", "cpu_lowpower")


class PhysicalCore(NamedTuple):
    """A physical core, as far as this process may use it."""

    # Its logical CPUs (hardware threads) that are online and allowed, ascending.
    cpus: tuple[int, ...]
    # Its package and NUMA node; 0 where the kernel does not tell.
    socket: int
    node: int
    kind: str = ""  # among the kinds of a hybrid processor, "" where all cores are of one


@dataclass(frozen=True, slots=True)
class Topology:
    """Physical cores that this process may use."""

    cores: tuple[PhysicalCore, ...]  # by socket, kind (the faster first), NUMA node and number
    withheld: tuple[int, ...] = ()  # logical CPUs that are online but not allowed


@dataclass(frozen=True, slots=True)
class Placement:
    """Logical CPUs to run on (ascending), and how many physical cores they are."""

    cpus: tuple[int, ...]
    cores: int
    sockets: tuple[int, ...]


def placement_state(sysfs: Path, procfs: Path, pid: int | None = None) -> dict[str, files.Value]:
    """Read the CPUs, cores and nodes that a process may use, and whether memory is moved."""
    status = dict(files.read_pairs(procfs / ("self" if pid is None else str(pid)) / "status"))
    allowed = status.get("Cpus_allowed_list")
    cpus = files.cpus_in(allowed or "")
    folder = sysfs / "devices/system/node"
    nodes = files.read_cpus(folder / "online")
    near = [node for node in nodes if files.read_cpus(folder / f"node{node}/cpulist") & cpus]
    balancing = files.read_number(procfs / "sys/kernel/numa_balancing")
    state: dict[str, files.Value | None] = {
        "cpus_allowed": allowed or None,
        "mems_allowed": status.get("Mems_allowed_list") or None,
        "cores_allowed": sum(bool(core.cpus & cpus) for core in online_cores(sysfs)) or None,
        "numa_nodes": len(nodes) or None,
        "numa_nodes_of_cpus": files.cpu_list_text(near) or None,
        "numa_balancing": None if balancing is None else balancing != 0,
    }
    return files.without_missing(state)


def read_topology(
    sysfs: Path = Path("/sys"), *, allowed: Collection[int] | None = None
) -> Topology:
    """Read the cores that this process may use.

    ``allowed`` are the logical CPUs that may be used; by default those of the process's affinity,
    which is within its cpuset. Raises `MeasurementError` where none of them is online.
    """
    folder = sysfs / "devices/system/cpu"
    listed = files.read_text(folder / "online")
    if listed is not None:
        online = set(files.parse_cpu_list(listed))
    else:
        online = {int(path.name[3:]) for path in folder.glob("cpu[0-9]*")}
    usable = online & (os.sched_getaffinity(0) if allowed is None else set(allowed))
    if not usable:
        raise MeasurementError(f"{folder}: no CPU that this process may use is online")
    nodes = {
        cpu: int(node.name[4:])
        for node in (sysfs / "devices/system/node").glob("node[0-9]*")
        for cpu in files.parse_cpu_list(files.read_field(node / "cpulist"))
    }
    kinds = _read_core_kinds(sysfs, online)
    cores = {}
    for cpu in sorted(usable):
        topology = folder / f"cpu{cpu}/topology"
        threads = tuple(sorted(_threads(topology, cpu) & usable))
        # The kernel says -1 where it does not know the package.
        socket = max(0, int(files.read_number(topology / "physical_package_id") or 0))
        cores[threads[0]] = PhysicalCore(threads, socket, nodes.get(cpu, 0), kinds.get(cpu, ""))
    return Topology(
        tuple(sorted(cores.values(), key=lambda c: (c.socket, _rank(c.kind), c.node, c.cpus))),
        withheld=tuple(sorted(online - usable)),
    )


def _threads(topology: Path, cpu: int) -> set[int]:
    """Read the logical CPUs of the same core, itself included."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        if listed := files.read_text(topology / name):
            return {cpu, *files.parse_cpu_list(listed)}
    return {cpu}


def _read_core_kinds(sysfs: Path, online: Iterable[int]) -> Mapping[int, str]:
    """Read the kind of core of each logical CPU, of hybrid processors only."""
    found = {
        cpu: kind
        for kind in _KINDS
        for cpu in files.parse_cpu_list(files.read_field(sysfs / "devices" / kind / "cpus"))
    }
    if not found:
        folder = sysfs / "devices/system/cpu"
        capacities = {cpu: files.read_field(folder / f"cpu{cpu}/cpu_capacity") for cpu in online}
        found = {cpu: f"capacity {c}" for cpu, c in capacities.items() if c.isdecimal()}
    return found if len(set(found.values())) > 1 else {}


def _rank(kind: str) -> int:
    """Order kinds of cores, the faster first."""
    name, _, capacity = kind.partition(" ")
    if capacity:
        return -int(capacity)
    return _KINDS.index(name) if name in _KINDS else 0


def place(
    topology: Topology, cores: int | None = None, *, threads_per_core: int | None = 1
) -> Placement:
    """Choose logical CPUs that make so many physical cores; by default all, with all threads.

    One socket and NUMA node is taken after the other. ``threads_per_core`` None takes all threads
    that a core has. Raises `MeasurementError` when there are fewer cores, or cores with fewer
    threads, than asked for.
    """
    if cores is None:
        cores, threads_per_core = len(topology.cores), None
    _refuse_unavailable_core_count(topology, cores)
    taken = topology.cores[:cores]
    if threads_per_core is not None:
        fewest = min(len(core.cpus) for core in taken)
        if not 1 <= threads_per_core <= fewest:
            raise MeasurementError(
                f"{threads_per_core} threads per core are not available on "
                f"{cores} cores: give 1 to {fewest}"
            )
    return Placement(
        tuple(sorted(chain.from_iterable(core.cpus[:threads_per_core] for core in taken))),
        cores=cores,
        sockets=tuple(sorted({core.socket for core in taken})),
    )


def _refuse_unavailable_core_count(topology: Topology, cores: int) -> None:
    there, withheld = len(topology.cores), ""
    if 1 <= cores <= there:
        return
    if topology.withheld:
        withheld = (
            f"; CPUs {files.cpu_list_text(topology.withheld)} are online but not allowed to this "
            "process (its affinity or cpuset)"
        )
    raise MeasurementError(f"{cores} physical cores are not available: give 1 to {there}{withheld}")


@contextmanager
def run_on(cpus: Collection[int]) -> Iterator[None]:
    """Let processes that are started inside the block run on these logical CPUs only.

    They inherit the affinity of this thread, which holds as long as the block lasts; other threads
    keep theirs. Raises `MeasurementError` when a CPU is offline or not allowed.

    Examples
    --------
    >>> with run_on(place(read_topology(), 1).cpus):  # doctest: +SKIP
    ...     process = subprocess.Popen(["sysbench", "cpu", "run"])
    """
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except (OSError, ValueError, OverflowError) as error:
        raise MeasurementError(_not_allowed_text(cpus, before)) from error
    try:
        # The kernel leaves out without a word those that a cpuset does not allow.
        if os.sched_getaffinity(0) != set(cpus):
            raise MeasurementError(_not_allowed_text(cpus, before))
        yield
    finally:
        os.sched_setaffinity(0, before)


def _not_allowed_text(cpus: Collection[int], before: Collection[int]) -> str:
    missing = files.cpu_list_text(set(cpus) - set(before))
    why = f": {missing} is offline or not allowed to this process" if missing else ""
    return (
        f"nothing can be run on CPUs {files.cpu_list_text(cpus) or '(none)'}{why}; choose among "
        f"{files.cpu_list_text(before)}"
    )


class Execution(NamedTuple):
    """One or several equal executions, back to back; start and end by `time.monotonic`."""

    start_s: float
    end_s: float
    exit_code: int  # of the first that failed, or 0; negative for a signal
    user_s: float  # CPU times are of the command and all its children
    system_s: float


def execute(
    commands: Sequence[Sequence[str]],
    *,
    output: Path,
    cpus: Collection[int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Execution:
    """Run commands one after the other, with their output in a file, until one fails."""
    user_s = system_s = 0.0
    code = 0
    with (
        files.open_for_writing(output, private=True) as file,
        nullcontext() if cpus is None else run_on(cpus),
    ):
        start_s = time.monotonic()
        for command in commands:
            code, user, system = _run_command(command, file, environment)
            user_s, system_s = user_s + user, system_s + system
            if code:
                break
        end_s = time.monotonic()
    return Execution(start_s, end_s, code, user_s, system_s)


def _run_command(
    command: Sequence[str], output: IO[bytes], environment: Mapping[str, str] | None
) -> tuple[int, float, float]:
    """Run a command to its end; return its exit code and its CPU time, user and system (s)."""
    try:
        process = subprocess.Popen(  # nosec B603  # the user's own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            # A group of its own, so that all of it can be ended.
            start_new_session=True,
        )
    except OSError as error:
        raise MeasurementError(
            f"{command[0]}: cannot be started: {error.strerror}: give the command after --, with "
            "its path where it is not on PATH"
        ) from error
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        # What the command left running must not run into the next measurement.
        end_group(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime, usage.ru_stime


def end_group(group: int) -> None:
    """Kill what is left of a process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
