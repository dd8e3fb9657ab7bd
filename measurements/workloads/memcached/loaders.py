"""What load generators are asked and report; a new one is a module and a line here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple, Protocol

from measurements.compiling import find_compiler
from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from measurements.workloads.latency import Percentile
    from measurements.workloads.memcached.protocol import Address


class Work(NamedTuple):
    """What one client process asks of one server.

    Attributes
    ----------
    get_share : float
        Of the requests; the others store objects.
    keys_per_request : int
        Objects that one get asks for.
    keys : int
        Objects that are asked for.
    key_bytes, value_bytes : int
    connections, threads : int
        Of this process.
    rate_s : float or None
        Requests a second of this process; None for as many as are answered.
    seconds : float
        How long, setting up not counted.
    seed : int
    """

    get_share: float
    keys_per_request: int
    keys: int
    key_bytes: int
    value_bytes: int
    connections: int
    threads: int
    rate_s: float | None
    seconds: float
    seed: int


class LoadReport(NamedTuple):
    """What the clients saw.

    Attributes
    ----------
    median, p99 : Percentile or None
        Latency of a request; None where it was not counted.
    mean_s : float or None
        Mean latency.
    max_s : float or None
        Longest latency.
    late_p50_s, late_p99_s : float or None
        How late requests were sent that had a time; the client's fault, and part of the latency.
    resolution : str
        How finely the latencies were told apart.
    failed : int
        Requests that were refused or not answered.
    """

    median: Percentile | None
    p99: Percentile | None
    mean_s: float | None
    max_s: float | None
    resolution: str
    failed: int = 0
    late_p50_s: float | None = None
    late_p99_s: float | None = None

    def columns(self) -> dict[str, float | str | None]:
        """Columns of the runs table; None for what is not known."""
        row: dict[str, float | str | None] = {"latency_mean_s": self.mean_s}
        for name, found in (("p50", self.median), ("p99", self.p99)):
            if found is not None:
                row[f"latency_{name}_s"] = found.estimate_s
                row[f"latency_{name}_least_s"] = found.least_s
                row[f"latency_{name}_most_s"] = found.most_s
        return row | {
            "latency_max_s": self.max_s,
            "latency_resolution": self.resolution,
            "failed_requests": float(self.failed),
            "sent_late_p50_s": self.late_p50_s,
            "sent_late_p99_s": self.late_p99_s,
        }


class Loader(Protocol):
    """A load generator that was found on this host.

    Attributes
    ----------
    name : str
    own_objects : bool
        Whether it stores the objects that it asks for itself.
    paces : bool
        Whether it can keep to a rate.
    """

    name: str
    own_objects: bool
    paces: bool

    def key(self, number: int, work: Work) -> str:
        """Key of an object, by its number from 0; of loaders without objects of their own."""
        ...

    def held(self, work: Work) -> int:
        """Objects that a server will hold for this work."""
        ...

    def command(self, address: Address, work: Work, scratch: Path, number: int) -> list[str]:
        """Command line of one client process; ``scratch`` is its own to write to."""
        ...

    def report(self, outputs: Sequence[Path], scratch: Path, works: Sequence[Work]) -> LoadReport:
        """Read what the processes reported, from what they printed and left in ``scratch``.

        Raises
        ------
        MeasurementError
            When it is not what this program writes.
        """
        ...


# By name: its module, and the programs that it may be called, of which one must be there.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "memcaslap": ("memcaslap", ("memcaslap", "memaslap")),
    "memtier": ("memtier", ("memtier_benchmark",)),
    "paced": ("paced", ()),
}


class Found(NamedTuple):
    """A load generator that is installed: the module that drives it, and its program."""

    module: str
    program: str

    def open(self, scratch: Path) -> Loader:
        """Make it ready; what it needs on disk goes to ``scratch``."""
        home = importlib.import_module(f"measurements.workloads.memcached.{self.module}")
        loader: Loader = home.open_loader(self.program, scratch)
        return loader


def find_loader(name: str | None) -> Found:
    """Find a load generator: the one that is named, else memcaslap, else memtier_benchmark.

    Raises
    ------
    MeasurementError
        When it is not installed, with what to install.
    """
    from measurements.workloads.programs import find_first, find_program

    if name is not None and name not in KINDS:
        raise MeasurementError(f"no load generator {name!r}: there are {', '.join(KINDS)}")
    if name is None:
        there = [kind for kind, (_, programs) in KINDS.items() if find_first(programs)]
        if not there:
            raise MeasurementError(
                "no load generator is there: apt install libmemcached-tools (memcaslap), or "
                "install memtier_benchmark, or take ppw's own with --client paced"
            )
        name = there[0]
    module, programs = KINDS[name]
    if not programs:
        find_compiler()
    program = find_first(programs) if programs else ""
    return Found(module, find_program(programs[0]) if program is None else program)
