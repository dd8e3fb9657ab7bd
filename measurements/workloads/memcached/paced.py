"""Load by ppw's own client, `paced_load.c`, compiled on the spot: at a rate, or closed loop.

At a rate it is an open loop: requests are due at random moments (a Poisson process) whether or not
the server keeps up, and a latency counts from the moment at which the request was due. It is one
thread a process. What it cannot do is said: requests that it sent late (``late_p99_s``) and a rate
that it did not reach.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from measurements.compiling import compile_c
from measurements.errors import MeasurementError
from measurements.workloads.latency import Cell, Histogram, merged
from measurements.workloads.memcached.loaders import LoadReport

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from measurements.workloads.memcached.loaders import Work
    from measurements.workloads.memcached.protocol import Address

_NS = 1e-9
_RESOLUTION = "1.6 %"
_NEEDED = ("failed", "max_ns", "min_ns", "sum_ns", "unanswered")


class Totals(NamedTuple):
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
        totals = [read_totals(path) for path in outputs]
        whole, late = merged([t.latency for t in totals]), merged([t.lateness for t in totals])
        failed = sum(t.figures["failed"] + t.figures["unanswered"] for t in totals)
        return LoadReport(
            whole.percentile(0.50),
            whole.percentile(0.99),
            sum(t.figures["sum_ns"] for t in totals) * _NS / whole.requests,
            whole.most_s,
            _RESOLUTION,
            int(failed),
            late.percentile(0.50).estimate_s if late.requests else None,
            late.percentile(0.99).estimate_s if late.requests else None,
        )


def open_loader(program: str, scratch: Path) -> Paced:
    """Compile the client into ``scratch``. Raises `MeasurementError` without a compiler."""
    package = "measurements.workloads.memcached"
    return Paced(compile_c(package, "paced_load.c", scratch / "paced_load", libraries=("-lm",)))


def read_totals(path: Path) -> Totals:
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
    return Totals(figures, latency, Histogram(tuple(cells["lateness"]), math.nan, math.nan))
