"""Load generators: what one client process is asked for, and what it reports.

A new one is a subclass of `Loader` and an entry of `LOADERS`.
"""

import abc
import json
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from measurements.errors import DAMAGE, MeasurementError
from measurements.processes import programs
from measurements.workloads import clients
from measurements.workloads.memcached.servers import Address

_NS, _US, _MS = 1e-9, 1e-6, 1e-3


class Work(NamedTuple):
    """What one client process asks of one server."""

    get_share: float  # share of the requests that are gets; the others store objects
    keys_per_request: int  # objects that one get asks for
    keys: int  # number of objects
    key_bytes: int
    value_bytes: int
    connections: int  # connections of this process
    threads: int
    rate_s: float | None  # requests per second of this process; None for a closed loop
    seconds: float  # duration without the preparation
    seed: int
    asked_s: float | None = None  # operations per second of all processes; None for a closed loop

    @property
    def operations_per_request(self) -> float:
        """Objects that a request reads or writes, on average."""
        return self.get_share * self.keys_per_request + (1 - self.get_share)


class LoadReport(NamedTuple):
    """What the clients saw; None for what they did not count."""

    median: clients.Percentile | None
    p99: clients.Percentile | None
    mean_s: float | None
    max_s: float | None
    resolution: str  # how finely latencies are told apart
    failed: int = 0  # requests that were refused or not answered
    # How late the client sent requests that had a time. It is part of the latency.
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


class Loader(abc.ABC):
    """A load generator that is installed."""

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]] = ()  # names of its program; empty for ppw's own
    own_objects: ClassVar[bool] = False  # whether it stores the objects that it asks for
    paces: ClassVar[bool] = True  # whether it can keep to a rate

    def __init__(self, program: str) -> None:
        self._program = program

    def open(self, scratch: Path) -> Self:
        """Make it ready; what it needs on disk goes to ``scratch``."""
        del scratch
        return self

    def key(self, number: int, work: Work) -> str:
        """Key of an object, by its number from 0."""
        raise MeasurementError(f"{self.name} generates its own keys")

    def object_count(self, work: Work) -> int:
        """Objects that a server holds for this work."""
        return work.keys

    @abc.abstractmethod
    def command(self, address: Address, work: Work, scratch: Path, number: int) -> list[str]:
        """Command line of a client process. Raises `MeasurementError` for work it cannot do."""

    @abc.abstractmethod
    def report(self, outputs: Sequence[Path], scratch: Path, works: Sequence[Work]) -> LoadReport:
        """Merge what the processes printed and left in ``scratch``."""


def find_loader(name: str | None) -> Loader:
    """Find a load generator by name; None takes memcaslap, else memtier_benchmark."""
    if name is not None and name not in LOADERS:
        raise MeasurementError(f"unknown load generator {name!r}: give one of {', '.join(LOADERS)}")
    for kind in LOADERS.values() if name is None else (LOADERS[name],):
        if program := programs.find_first(kind.programs):
            return kind(program)
    if name is None:
        raise MeasurementError(
            "no load generator is there: apt install libmemcached-tools (memcaslap), or install "
            "memtier_benchmark, or use the load generator of ppw with --client paced"
        )
    kind = LOADERS[name]
    if kind.programs:
        # Raises with what to install.
        return kind(programs.find_program(kind.programs[0]))
    programs.find_compiler()
    return kind("")


# memcaslap (memaslap) of libmemcached is a closed loop. Its "TPS" counts the objects that it stores
# before it begins, so the server tells the throughput. It counts a latency of t µs in the cell of
# the smallest power of two that is not below t, so a percentile is known to a factor of two. Its
# option for a rate has no effect. Its windows hold a multiple of 1024 objects per connection.


WINDOW = 1024
KEY_BYTES = (16, 250)
_SETS, _GETS = 0, 1
_SECTION = re.compile(r"^Total Statistics \((?P<events>\d+) events\)$", re.MULTILINE)
_FIGURE = re.compile(r"^[^\S\n]+(?P<name>Min|Max|Avg):\s+(?P<value>\d+)$", re.MULTILINE)
_ROW = re.compile(r"^[^\S\n]+(?P<first>\d+):(?P<counts>(?:\s+\d+)+)$", re.MULTILINE)


class MemcaslapTotals(NamedTuple):
    """Latencies of all requests of one process, and their mean (s)."""

    histogram: clients.Histogram
    mean_s: float


class Memcaslap(Loader):
    """Closed loop with latencies in powers of two."""

    name = "memcaslap"
    programs = ("memcaslap", "memaslap")
    own_objects = True
    paces = False

    def object_count(self, work: Work) -> int:
        """Objects of its windows, whatever number was asked for."""
        return WINDOW * _windows_per_connection(work) * _connections_used(work)

    def command(self, address: Address, work: Work, scratch: Path, number: int) -> list[str]:
        """Command line; its settings go to a file in ``scratch``."""
        least, most = KEY_BYTES
        if not least <= work.key_bytes <= most:
            raise MeasurementError(
                f"keys of {work.key_bytes} B: memcaslap makes keys of {least} to {most} B"
            )
        if work.rate_s is not None:
            raise MeasurementError("memcaslap cannot hold a fixed rate: use --client paced")
        settings = scratch / f"memcaslap-{number}.cnf"
        gets = round(work.get_share, 3)
        lines = [
            *("key", f"{work.key_bytes} {work.key_bytes} 1"),
            *("value", f"{work.value_bytes} {work.value_bytes} 1"),
            *("cmd", f"{_SETS} {1 - gets:.3f}", f"{_GETS} {gets:.3f}"),
        ]
        settings.write_text("\n".join(lines) + "\n", encoding="ascii")
        seconds = math.ceil(work.seconds)
        command = [
            *(self._program, "-s", str(address), "-F", str(settings), "-t", f"{seconds}s"),
            *("-T", str(work.threads), "-c", str(_connections_used(work))),
            *("-w", f"{_windows_per_connection(work)}k"),
            # Without a period it counts no latencies; a long one prints them once, at the end.
            *("-S", f"{seconds + 3600}s"),
        ]
        several = work.keys_per_request > 1
        return [*command, "-d", str(work.keys_per_request)] if several else command

    def report(self, outputs: Sequence[Path], scratch: Path, works: Sequence[Work]) -> LoadReport:
        """Merge what the processes printed."""
        parts = [read_memcaslap_totals(path) for path in outputs]
        whole = clients.merge_histograms([part.histogram for part in parts])
        total_s = sum(part.mean_s * part.histogram.requests for part in parts)
        return LoadReport(
            median=whole.percentile(0.50),
            p99=whole.percentile(0.99),
            mean_s=total_s / sum(part.histogram.requests for part in parts),
            max_s=whole.most_s,
            resolution="powers of two: the true value is between the columns least and most",
        )


def read_memcaslap_totals(path: Path) -> MemcaslapTotals:
    """Read the latencies that memcaslap printed. Raises `MeasurementError` when there are none."""
    text = path.read_text(encoding="utf-8", errors="replace")
    section = _SECTION.search(text)
    if section is None:
        said = programs.last_line(text)
        raise MeasurementError(f"{path}: no latencies of memcaslap: {said}")
    rest = text[section.end() :].partition("\n\n")[0]
    try:
        figures = {m["name"]: int(m["value"]) * _US for m in _FIGURE.finditer(rest)}
        counts = [
            (int(row["first"]) + offset, int(count))
            for row in _ROW.finditer(rest)
            for offset, count in enumerate(row["counts"].split())
        ]
        cells, events = clients.power_of_two_cells(counts, _US), int(section["events"])
    except (OverflowError, ValueError) as error:
        raise MeasurementError(f"{path}: memcaslap printed an impossible value") from error
    found = clients.Histogram(cells, figures.get("Min", math.nan), figures.get("Max", math.nan))
    if found.requests != events:
        raise MeasurementError(
            f"{path}: memcaslap counted {events} requests and its cells hold "
            f"{found.requests}: its output is cut off"
        )
    if "Avg" not in figures or not found.requests:
        raise MeasurementError(f"{path}: no mean latency of memcaslap: its output is cut off")
    return MemcaslapTotals(found, figures["Avg"])


def _connections_used(work: Work) -> int:
    # It takes multiples of its threads only.
    return work.threads * max(1, -(-work.connections // work.threads))


def _windows_per_connection(work: Work) -> int:
    """Number of windows of `WINDOW` keys that each connection uses."""
    return max(1, round(work.keys / _connections_used(work) / WINDOW))


_FIRST_KEY = 10**9


class Memtier(Loader):
    """memtier_benchmark: closed loop or at a rate, with latencies in a JSON file."""

    name = "memtier"
    programs = ("memtier_benchmark",)

    def key(self, number: int, work: Work) -> str:
        """Key of an object, by its number from 0."""
        return f"{_key_prefix(work)}{_FIRST_KEY + number}"

    def command(self, address: Address, work: Work, scratch: Path, number: int) -> list[str]:
        """Command line; its report goes to a file in ``scratch``."""
        gets = Fraction(work.get_share).limit_denominator(1000)
        clients = max(1, -(-work.connections // work.threads))
        command = [
            *(self._program, "-s", address.host, "-p", str(address.port)),
            *("--protocol=memcache_text", "-t", str(work.threads), "-c", str(clients)),
            *(f"--test-time={math.ceil(work.seconds)}", "--key-pattern=R:R"),
            f"--ratio={gets.denominator - gets.numerator}:{gets.numerator}",
            *(f"--data-size={work.value_bytes}", f"--key-prefix={_key_prefix(work)}"),
            f"--key-minimum={_FIRST_KEY}",
            f"--key-maximum={_FIRST_KEY + work.keys - 1}",
            *("--print-percentiles=50,99", "--hide-histogram", "--distinct-client-seed"),
            f"--json-out-file={_json_path(scratch, number)}",
        ]
        if work.keys_per_request > 1:
            command.append(f"--multi-key-get={work.keys_per_request}")
        if work.rate_s is not None:
            each = max(1, round(work.rate_s / (clients * work.threads)))
            command.append(f"--rate-limiting={each}")
        return command

    def report(self, outputs: Sequence[Path], scratch: Path, works: Sequence[Work]) -> LoadReport:
        """Merge its JSON files."""
        totals = [read_memtier_totals(_json_path(scratch, number)) for number in range(len(works))]
        counts = [total["requests"] for total in totals]
        means = [t["mean_s"] * n for t, n in zip(totals, counts, strict=True)]
        return LoadReport(
            median=_weighted_percentile([t["p50_s"] for t in totals], counts),
            p99=_weighted_percentile([t["p99_s"] for t in totals], counts),
            mean_s=sum(means) / sum(counts),
            max_s=max(t["max_s"] for t in totals),
            # Its histogram keeps three digits; the JSON has microseconds.
            resolution="0.1 %, not below 1 µs",
        )


def read_memtier_totals(path: Path) -> dict[str, float]:
    """Read the number of requests and their latencies (s) from a JSON file of memtier_benchmark."""
    try:
        stats = json.loads(path.read_text(encoding="utf-8"))["ALL STATS"]
        total, parts = stats["Totals"], [stats["Sets"], stats["Gets"]]
        counted = [float(part["Count"]) for part in parts]
        # The mean of its totals is wrong in some versions; those of its parts are not.
        # Old versions call it "Latency".
        names = ["Average Latency" if "Average Latency" in part else "Latency" for part in parts]
        means = [float(part[name]) * _MS for part, name in zip(parts, names, strict=True)]
        percentiles = total["Percentile Latencies"]
        figures = {
            "requests": sum(counted),
            "mean_s": sum(n * m for n, m in zip(counted, means, strict=True)) / sum(counted),
            "max_s": float(total.get("Max Latency", "nan")) * _MS,
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


def _weighted_percentile(values: Sequence[float], weights: Sequence[float]) -> clients.Percentile:
    """Merge a percentile of several processes: weighted mean, smallest and largest."""
    # The true one of all processes is between the smallest and the largest of theirs.
    mean = sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
    return clients.Percentile(mean, min(values), max(values))


def _key_prefix(work: Work) -> str:
    return "k" * max(1, work.key_bytes - len(str(_FIRST_KEY)))


def _json_path(scratch: Path, number: int) -> Path:
    return scratch / f"memtier-{number}.json"


_NEEDED = ("failed", "max_ns", "min_ns", "sum_ns", "unanswered")


class PacedTotals(NamedTuple):
    """What one process printed."""

    figures: dict[str, float]
    latency: clients.Histogram
    lateness: clients.Histogram


class PacedClient(Loader):
    """ppw's own client, `paced_load.c`, compiled on the spot: at a rate, or a closed loop.

    At a rate it is an open loop: requests are due at random times (a Poisson process) whether or
    not the server keeps up, and a latency counts from the time at which the request was due. Each
    process has one thread. It reports requests that it sent late.
    """

    name = "paced"

    def open(self, scratch: Path) -> Self:
        """Compile the client into ``scratch``. Raises `MeasurementError` without a compiler."""
        package, into = "measurements.workloads.memcached", scratch / "paced_load"
        program = programs.compile_c(package, "paced_load.c", into, libraries=("-lm",))
        return type(self)(str(program))

    def key(self, number: int, work: Work) -> str:
        """Key of an object, by its number from 0."""
        return f"{number:0{work.key_bytes}d}"

    def command(self, address: Address, work: Work, scratch: Path, number: int) -> list[str]:
        """Command line; each process has another seed."""
        return [
            *(self._program, address.host, str(address.port), str(work.connections)),
            *(f"{work.rate_s or 0.0:.9g}", f"{work.seconds:g}", f"{work.get_share:.9g}"),
            *(str(work.keys_per_request), str(work.keys), str(work.key_bytes)),
            *(str(work.value_bytes), str(work.seed + number)),
        ]

    def report(self, outputs: Sequence[Path], scratch: Path, works: Sequence[Work]) -> LoadReport:
        """Merge what the processes printed."""
        totals = [read_paced_totals(path) for path in outputs]
        whole = clients.merge_histograms([t.latency for t in totals])
        late = clients.merge_histograms([t.lateness for t in totals])
        failed = sum(t.figures["failed"] + t.figures["unanswered"] for t in totals)
        return LoadReport(
            median=whole.percentile(0.50),
            p99=whole.percentile(0.99),
            mean_s=sum(t.figures["sum_ns"] for t in totals) * _NS / whole.requests,
            max_s=whole.most_s,
            resolution="1.6 %",
            failed=int(failed),
            late_p50_s=late.percentile(0.50).estimate_s if late.requests else None,
            late_p99_s=late.percentile(0.99).estimate_s if late.requests else None,
        )


def read_paced_totals(path: Path) -> PacedTotals:
    """Read what a process printed. Raises `MeasurementError` when it is not whole."""
    figures: dict[str, float] = {}
    cells: dict[str, list[clients.LatencyCell]] = {"latency": [], "lateness": []}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            name, *values = line.split()
            if name in cells:
                over, upto, count = map(int, values)
                if min(over, count) < 0 or upto < over:
                    raise ValueError(line)
                cells[name].append(clients.LatencyCell(over * _NS, upto * _NS, count))
            else:
                (figures[name],) = map(float, values)
        except ValueError:
            raise MeasurementError(f"{path}: the client failed: {line[:160]}") from None
    if not figures.get("requests") or not sum(cell.requests for cell in cells["latency"]):
        raise MeasurementError(f"{path}: the client had no answer to any request")
    if missing := [name for name in _NEEDED if not math.isfinite(figures.get(name, math.nan))]:
        raise MeasurementError(f"{path}: the client printed no {', '.join(missing)}: it was killed")
    least, most = figures["min_ns"] * _NS, figures["max_ns"] * _NS
    latency = clients.Histogram(tuple(cells["latency"]), least, most)
    return PacedTotals(figures, latency, clients.Histogram(tuple(cells["lateness"])))


# The order in which they are looked for.
LOADERS: dict[str, type[Loader]] = {kind.name: kind for kind in (Memcaslap, Memtier, PacedClient)}
