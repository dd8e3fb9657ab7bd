"""What load generators are asked and report; a new one is a module and a line here."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from measurements.errors import DAMAGE, MeasurementError
from measurements.processes.programs import compile_c, find_compiler, find_first, find_program
from measurements.workloads.clients import Cell, Histogram, Percentile, merged, power_of_two_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from measurements.workloads.memcached.servers import Address


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


# Load by memcaslap (memaslap), of libmemcached: closed loop, latencies in powers of two.
#
# What it prints needs care. Its "TPS" counts the objects that it stores before it begins, so the
# throughput is taken from the server. It counts a latency t µs in the cell of the smallest power of
# two that is not below t, so a percentile is known to a factor of two. Its option for a rate is
# without effect. Its windows hold 1024 objects a connection or a multiple of that.


WINDOW = 1024
KEY_BYTES = (16, 250)
_SETS, _GETS = 0, 1
_US = 1e-6
_SECTION = re.compile(r"^Total Statistics \((?P<events>\d+) events\)$", re.MULTILINE)
_FIGURE = re.compile(r"^\s+(?P<name>Min|Max|Avg):\s+(?P<value>\d+)$", re.MULTILINE)
_ROW = re.compile(r"^\s+(?P<first>\d+):(?P<counts>(?:\s+\d+)+)$", re.MULTILINE)
_MEMCASLAP_RESOLUTION = "powers of two: the true figure is between the columns least and most"


class MemcaslapTotals(NamedTuple):
    """Latencies of all requests of one process, and their mean (s)."""

    histogram: Histogram
    mean_s: float


class Memcaslap:
    """The program, found at ``program``."""

    name = "memcaslap"
    own_objects = True
    paces = False

    def __init__(self, program: str) -> None:
        self._program = program

    def key(self, number: int, work: Work) -> str:
        """It makes its own keys."""
        raise MeasurementError("memcaslap makes its own keys")

    def held(self, work: Work) -> int:
        """Objects of its windows, whatever number was asked for."""
        return WINDOW * _windows(work) * _connections(work)

    def command(self, address: Address, work: Work, scratch: Path, number: int) -> list[str]:
        """Command line; its settings go to a file in ``scratch``.

        Raises
        ------
        MeasurementError
            For work that it cannot do.
        """
        least, most = KEY_BYTES
        if not least <= work.key_bytes <= most:
            raise MeasurementError(
                f"keys of {work.key_bytes} B: memcaslap makes keys of {least} to {most} B"
            )
        if work.rate_s is not None:
            raise MeasurementError("memcaslap cannot keep to a rate: take --client paced for it")
        settings = scratch / f"memcaslap-{number}.cnf"
        settings.write_text(_settings(work), encoding="ascii")
        seconds = math.ceil(work.seconds)
        command = [
            *(self._program, "-s", str(address), "-F", str(settings), "-t", f"{seconds}s"),
            *("-T", str(work.threads), "-c", str(_connections(work)), "-w", f"{_windows(work)}k"),
            # Without a period it counts no latencies; a long one prints them once, at the end.
            *("-S", f"{seconds + 3600}s"),
        ]
        several = work.keys_per_request > 1
        return [*command, "-d", str(work.keys_per_request)] if several else command

    def report(self, outputs: Sequence[Path], scratch: Path, works: Sequence[Work]) -> LoadReport:
        """Read what it printed."""
        parts = [read_memcaslap_totals(path) for path in outputs]
        whole = merged([part.histogram for part in parts])
        counted = [part.histogram.requests for part in parts]
        sums = (part.mean_s * n for part, n in zip(parts, counted, strict=True))
        return LoadReport(
            whole.percentile(0.50),
            whole.percentile(0.99),
            sum(sums) / sum(counted),
            whole.most_s,
            _MEMCASLAP_RESOLUTION,
        )


def open_memcaslap(program: str, scratch: Path) -> Memcaslap:
    """Take the program."""
    return Memcaslap(program)


def read_memcaslap_totals(path: Path) -> MemcaslapTotals:
    """Latencies in what memcaslap printed.

    Raises
    ------
    MeasurementError
        When there are none.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    section = _SECTION.search(text)
    if section is None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        said = lines[-1][:160] if lines else "it printed nothing"
        raise MeasurementError(f"{path}: no latencies of memcaslap: {said}")
    rest = text[section.end() :].partition("\n\n")[0]
    figures = {m["name"]: int(m["value"]) * _US for m in _FIGURE.finditer(rest)}
    try:
        cells = power_of_two_cells(_cells(rest), _US)
    except OverflowError as error:
        raise MeasurementError(f"{path}: memcaslap printed a cell that cannot be") from error
    found = Histogram(cells, figures.get("Min", math.nan), figures.get("Max", math.nan))
    if found.requests != int(section["events"]):
        raise MeasurementError(
            f"{path}: memcaslap counted {section['events']} requests and its cells hold "
            f"{found.requests}: its output is cut off"
        )
    if "Avg" not in figures or not found.requests:
        raise MeasurementError(f"{path}: no mean latency of memcaslap: its output is cut off")
    return MemcaslapTotals(found, figures["Avg"])


def _cells(text: str) -> Iterator[tuple[int, int]]:
    for row in _ROW.finditer(text):
        for offset, count in enumerate(row["counts"].split()):
            yield int(row["first"]) + offset, int(count)


def _settings(work: Work) -> str:
    gets = round(work.get_share, 3)
    lines = [
        *("key", f"{work.key_bytes} {work.key_bytes} 1"),
        *("value", f"{work.value_bytes} {work.value_bytes} 1"),
        *("cmd", f"{_SETS} {1 - gets:.3f}", f"{_GETS} {gets:.3f}"),
    ]
    return "\n".join(lines) + "\n"


def _connections(work: Work) -> int:
    """It takes multiples of its threads only."""
    return work.threads * max(1, -(-work.connections // work.threads))


def _windows(work: Work) -> int:
    return max(1, round(work.keys / _connections(work) / WINDOW))


# Load by memtier_benchmark: closed loop or at a rate, latencies from its JSON file.


_FIRST_KEY = 10**9
_MS = 1e-3
# Its histogram keeps three digits; the JSON has microseconds.
_MEMTIER_RESOLUTION = "0.1 %, not below 1 µs"


class Memtier:
    """The program, found at ``program``."""

    name = "memtier"
    own_objects = False
    paces = True

    def __init__(self, program: str) -> None:
        self._program = program

    def key(self, number: int, work: Work) -> str:
        """Key of an object, by its number from 0."""
        return f"{_prefix(work)}{_FIRST_KEY + number}"

    def held(self, work: Work) -> int:
        """Objects that a server will hold."""
        return work.keys

    def command(self, address: Address, work: Work, scratch: Path, number: int) -> list[str]:
        """Command line; its report goes to a file in ``scratch``."""
        gets = Fraction(work.get_share).limit_denominator(1000)
        clients = max(1, -(-work.connections // work.threads))
        command = [
            *(self._program, "-s", address.host, "-p", str(address.port)),
            *("--protocol=memcache_text", "-t", str(work.threads), "-c", str(clients)),
            *(f"--test-time={math.ceil(work.seconds)}", "--key-pattern=R:R"),
            f"--ratio={gets.denominator - gets.numerator}:{gets.numerator}",
            *(f"--data-size={work.value_bytes}", f"--key-prefix={_prefix(work)}"),
            f"--key-minimum={_FIRST_KEY}",
            f"--key-maximum={_FIRST_KEY + work.keys - 1}",
            *("--print-percentiles=50,99", "--hide-histogram", "--distinct-client-seed"),
            f"--json-out-file={_json(scratch, number)}",
        ]
        if work.keys_per_request > 1:
            command.append(f"--multi-key-get={work.keys_per_request}")
        if work.rate_s is not None:
            each = max(1, round(work.rate_s / (clients * work.threads)))
            command.append(f"--rate-limiting={each}")
        return command

    def report(self, outputs: Sequence[Path], scratch: Path, works: Sequence[Work]) -> LoadReport:
        """Read its JSON files."""
        totals = [read_memtier_totals(_json(scratch, number)) for number in range(len(works))]
        counts = [total["requests"] for total in totals]
        means = [t["mean_s"] * n for t, n in zip(totals, counts, strict=True)]
        return LoadReport(
            _together([t["p50_s"] for t in totals], counts),
            _together([t["p99_s"] for t in totals], counts),
            sum(means) / sum(counts),
            max(t["max_s"] for t in totals),
            _MEMTIER_RESOLUTION,
        )


def open_memtier(program: str, scratch: Path) -> Memtier:
    """Take the program."""
    return Memtier(program)


def read_memtier_totals(path: Path) -> dict[str, float]:
    """Requests and their latencies (s) in a JSON file of memtier_benchmark.

    Raises
    ------
    MeasurementError
        When it is no such file.
    """
    try:
        stats = json.loads(path.read_text(encoding="utf-8"))["ALL STATS"]
        total, parts = stats["Totals"], [stats["Sets"], stats["Gets"]]
        counted = [float(part["Count"]) for part in parts]
        # The mean of its totals is wrong in some versions; those of its parts are not.
        means = [_mean(part) for part in parts]
        percentiles = total["Percentile Latencies"]
        figures = {
            "requests": sum(counted),
            "mean_s": sum(n * m for n, m in zip(counted, means, strict=True)) / sum(counted),
            "max_s": max(float(part.get("Max Latency", "nan")) for part in [total]) * _MS,
            "p50_s": float(percentiles["p50.00"]) * _MS,
            "p99_s": float(percentiles["p99.00"]) * _MS,
        }
        # Old versions do not tell the longest.
        if not all(math.isfinite(v) for n, v in figures.items() if n != "max_s" or v == v):
            raise ValueError("a figure in it is no finite number")
        return figures
    except (*DAMAGE, OSError) as error:
        raise MeasurementError(
            f"{path}: no report of memtier_benchmark ({type(error).__name__}: {str(error)[:160]}): "
            "it needs version 1.4 or newer"
        ) from error


def _mean(part: dict[str, Any]) -> float:
    """Mean latency (s) of gets or sets, under its name of new or old versions."""
    return float(part["Average Latency"] if "Average Latency" in part else part["Latency"]) * _MS


def _together(values: Sequence[float], weights: Sequence[float]) -> Percentile:
    """A percentile of several processes: between the least and the greatest of theirs."""
    mean = sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
    return Percentile(mean, min(values), max(values))


def _prefix(work: Work) -> str:
    return "k" * max(1, work.key_bytes - len(str(_FIRST_KEY)))


def _json(scratch: Path, number: int) -> Path:
    return scratch / f"memtier-{number}.json"


# Load by ppw's own client, `paced_load.c`, compiled on the spot: at a rate, or closed loop.
#
# At a rate it is an open loop: requests are due at random moments (a Poisson process) whether or
# not the server keeps up, and a latency counts from the moment at which the request was due. It is
# one thread a process. What it cannot do is said: requests that it sent late (``late_p99_s``) and a
# rate that it did not reach.


_NS = 1e-9
_PACED_RESOLUTION = "1.6 %"
_NEEDED = ("failed", "max_ns", "min_ns", "sum_ns", "unanswered")


class PacedTotals(NamedTuple):
    """What one process printed."""

    figures: dict[str, float]
    latency: Histogram
    lateness: Histogram


class Paced:
    """The compiled program."""

    name = "paced"
    own_objects = False
    paces = True

    def __init__(self, program: Path) -> None:
        self._program = program

    def key(self, number: int, work: Work) -> str:
        """Key of an object, by its number from 0."""
        return f"{number:0{work.key_bytes}d}"

    def held(self, work: Work) -> int:
        """Objects that a server will hold."""
        return work.keys

    def command(self, address: Address, work: Work, scratch: Path, number: int) -> list[str]:
        """Command line."""
        return [
            *(str(self._program), address.host, str(address.port), str(work.connections)),
            *(f"{work.rate_s or 0.0:.9g}", f"{work.seconds:g}", f"{work.get_share:.9g}"),
            *(str(work.keys_per_request), str(work.keys), str(work.key_bytes)),
            *(str(work.value_bytes), str(work.seed + number)),
        ]

    def report(self, outputs: Sequence[Path], scratch: Path, works: Sequence[Work]) -> LoadReport:
        """Read what it printed."""
        totals = [read_paced_totals(path) for path in outputs]
        whole, late = merged([t.latency for t in totals]), merged([t.lateness for t in totals])
        failed = sum(t.figures["failed"] + t.figures["unanswered"] for t in totals)
        return LoadReport(
            whole.percentile(0.50),
            whole.percentile(0.99),
            sum(t.figures["sum_ns"] for t in totals) * _NS / whole.requests,
            whole.most_s,
            _PACED_RESOLUTION,
            int(failed),
            late.percentile(0.50).estimate_s if late.requests else None,
            late.percentile(0.99).estimate_s if late.requests else None,
        )


def open_paced(program: str, scratch: Path) -> Paced:
    """Compile the client into ``scratch``. Raises `MeasurementError` without a compiler."""
    package = "measurements.workloads.memcached"
    return Paced(compile_c(package, "paced_load.c", scratch / "paced_load", libraries=("-lm",)))


def read_paced_totals(path: Path) -> PacedTotals:
    """Read what a process printed.

    Raises
    ------
    MeasurementError
        When it is not whole.
    """
    figures: dict[str, float] = {}
    cells: dict[str, list[Cell]] = {"latency": [], "lateness": []}
    text = path.read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        try:
            name, *values = line.split()
            if name in cells:
                over, upto, count = map(int, values)
                if min(over, count) < 0 or upto < over:
                    raise ValueError(line)
                cells[name].append(Cell(over * _NS, upto * _NS, count))
            else:
                (figures[name],) = map(float, values)
        except ValueError:
            raise MeasurementError(f"{path}: the client failed: {line[:160]}") from None
    if not figures.get("requests") or not sum(cell.requests for cell in cells["latency"]):
        raise MeasurementError(f"{path}: the client had no answer to any request")
    if missing := [name for name in _NEEDED if not math.isfinite(figures.get(name, math.nan))]:
        raise MeasurementError(f"{path}: the client said no {', '.join(missing)}: it was killed")
    least, most = figures["min_ns"] * _NS, figures["max_ns"] * _NS
    latency = Histogram(tuple(cells["latency"]), least, most)
    return PacedTotals(figures, latency, Histogram(tuple(cells["lateness"]), math.nan, math.nan))


# Load generators by name.


class Kind(NamedTuple):
    """How a load generator is opened, and the programs of which one must be there."""

    open: Callable[[str, Path], Loader]
    programs: tuple[str, ...]


KINDS = {
    "memcaslap": Kind(open_memcaslap, ("memcaslap", "memaslap")),
    "memtier": Kind(open_memtier, ("memtier_benchmark",)),
    "paced": Kind(open_paced, ()),
}


class Installed(NamedTuple):
    """A load generator that is installed."""

    name: str
    kind: Kind
    program: str

    def open(self, scratch: Path) -> Loader:
        """Make it ready; what it needs on disk goes to ``scratch``."""
        return self.kind.open(self.program, scratch)


def find_loader(name: str | None) -> Installed:
    """Find a load generator: the one that is named, else memcaslap, else memtier_benchmark.

    Raises
    ------
    MeasurementError
        When it is not installed, with what to install.
    """
    if name is not None and name not in KINDS:
        raise MeasurementError(f"no load generator {name!r}: there are {', '.join(KINDS)}")
    if name is None:
        there = [name for name, kind in KINDS.items() if find_first(kind.programs)]
        if not there:
            raise MeasurementError(
                "no load generator is there: apt install libmemcached-tools (memcaslap), or "
                "install memtier_benchmark, or take ppw's own with --client paced"
            )
        name = there[0]
    kind = KINDS[name]
    programs = kind.programs
    if not programs:
        find_compiler()
    program = find_first(programs) if programs else ""
    return Installed(name, kind, find_program(programs[0]) if program is None else program)
