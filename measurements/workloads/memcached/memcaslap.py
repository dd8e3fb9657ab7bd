"""Load by memcaslap (memaslap), of libmemcached: closed loop, latencies in powers of two.

What it prints needs care. Its "TPS" counts the objects that it stores before it begins, so the
throughput is taken from the server. It counts a latency t µs in the cell of the smallest power of
two that is not below t, so a percentile is known to a factor of two. Its option for a rate is
without effect. Its windows hold 1024 objects a connection or a multiple of that.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.workloads.latency import Histogram, merged, power_of_two_cells
from measurements.workloads.memcached.loaders import LoadReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from measurements.workloads.memcached.loaders import Work
    from measurements.workloads.memcached.protocol import Address

WINDOW = 1024
KEY_BYTES = (16, 250)
_SETS, _GETS = 0, 1
_US = 1e-6
_SECTION = re.compile(r"^Total Statistics \((?P<events>\d+) events\)$", re.MULTILINE)
_FIGURE = re.compile(r"^\s+(?P<name>Min|Max|Avg):\s+(?P<value>\d+)$", re.MULTILINE)
_ROW = re.compile(r"^\s+(?P<first>\d+):(?P<counts>(?:\s+\d+)+)$", re.MULTILINE)
_RESOLUTION = "powers of two: the true figure is between the columns least and most"


class Totals(NamedTuple):
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
        parts = [read_totals(path) for path in outputs]
        whole = merged([part.histogram for part in parts])
        counted = [part.histogram.requests for part in parts]
        sums = (part.mean_s * n for part, n in zip(parts, counted, strict=True))
        return LoadReport(
            whole.percentile(0.50),
            whole.percentile(0.99),
            sum(sums) / sum(counted),
            whole.most_s,
            _RESOLUTION,
        )


def open_loader(program: str, scratch: Path) -> Memcaslap:
    """Take the program."""
    return Memcaslap(program)


def read_totals(path: Path) -> Totals:
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
    return Totals(found, figures["Avg"])


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
