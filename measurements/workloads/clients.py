"""Client processes that load a service, on CPUs of their own, and the CPU time that they take."""

from __future__ import annotations

import math
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import run_on

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from measurements.processes.cleanup_process import Reaper


@dataclass
class Client:
    """Client processes of a run, on CPUs of their own."""

    commands: Sequence[Sequence[str]]
    cpus: Collection[int]
    reaper: Reaper
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    outputs: list[Path] = field(default_factory=list)

    @property
    def pids(self) -> list[int]:
        """Their numbers."""
        return [process.pid for process in self.processes]

    def start(self, output: Path) -> None:
        """Start them all. Raises `MeasurementError` when one cannot be started."""
        with run_on(self.cpus):
            for number, command in enumerate(self.commands):
                path = output.with_name(f"{output.stem}-{number}{output.suffix}")
                self.outputs.append(path)
                with path.open("wb") as file:
                    try:
                        process = subprocess.Popen(
                            command,
                            stdin=subprocess.DEVNULL,
                            stdout=file,
                            stderr=subprocess.STDOUT,
                            env=self.reaper.environment(),
                            start_new_session=True,
                        )
                    except OSError as error:
                        raise MeasurementError(
                            f"{command[0]}: cannot be started: {error.strerror}"
                        ) from error
                self.processes.append(process)

    def check(self) -> None:
        """Raise `MeasurementError` where one has ended with an error."""
        for number, process in enumerate(self.processes):
            code = process.poll()
            if code:
                how = f"exit code {code}" if code > 0 else f"signal {-code}"
                path = self.outputs[number]
                raise MeasurementError(
                    f"{self.commands[number][0]} ended with {how}: {last_line(path)}; see {path}"
                )

    def ended(self) -> bool:
        """Whether one of them has come to its end."""
        return any(process.poll() is not None for process in self.processes)

    def wait(self, seconds: float) -> None:
        """Wait for their end. Raises `MeasurementError` when one failed or takes too long."""
        until = time.monotonic() + seconds
        for command, process in zip(self.commands, self.processes, strict=True):
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                raise MeasurementError(
                    f"{command[0]} was to end and did not: what it talks to may hang"
                ) from None
        self.check()

    def stop(self) -> None:
        """End those that are still running."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def cpu_times(pids: Sequence[int], procfs: Path) -> tuple[float, float]:
    """CPU seconds of processes so far, in user and system mode; those that ended count as 0."""
    ticks = os.sysconf("SC_CLK_TCK")
    user = system = 0
    for pid in pids:
        with suppress(OSError):
            content = (procfs / str(pid) / "stat").read_text()
            fields = content.rpartition(")")[2].split()
            user, system = user + int(fields[11]), system + int(fields[12])
    return user / ticks, system / ticks


def last_line(path: Path) -> str:
    """Last line with text in a file, for a message."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    return next((line[:160] for line in reversed(lines) if line), "it printed nothing")


# Percentiles of counted latencies: what a histogram's cells can tell, and how exactly.


class Cell(NamedTuple):
    """Requests that took more than ``over_s``, and ``upto_s`` at most (s), and how many."""

    over_s: float
    upto_s: float
    requests: int


class Percentile(NamedTuple):
    """A latency that a share of the requests did not exceed (s).

    Attributes
    ----------
    estimate_s : float
        Read off the cell as if its latencies were spread evenly in their logarithm.
    least_s, most_s : float
        Ends of the cell: the true percentile is between them.
    """

    estimate_s: float
    least_s: float
    most_s: float


class Histogram(NamedTuple):
    """Counts of latencies by size.

    Attributes
    ----------
    cells : tuple of Cell
        Ascending, those without a count left out.
    least_s, most_s : float
        Smallest and largest latency (s); NaN where not known.
    """

    cells: tuple[Cell, ...]
    least_s: float = math.nan
    most_s: float = math.nan

    @property
    def requests(self) -> int:
        """How many latencies were counted."""
        return sum(cell.requests for cell in self.cells)

    def percentile(self, share: float) -> Percentile:
        """Find the smallest latency that at least ``share`` of the requests did not exceed.

        Parameters
        ----------
        share : float
            Above 0, at most 1: 0.99 for the 99th percentile.

        Raises
        ------
        MeasurementError
            When nothing was counted.
        """
        rank, below = math.ceil(share * self.requests - 1e-9), 0
        for cell in self.cells:
            if below + cell.requests >= rank:
                least = max(cell.over_s, self.least_s) if self.least_s == self.least_s else None
                most = min(cell.upto_s, self.most_s) if self.most_s == self.most_s else None
                low = cell.over_s if least is None else least
                high = cell.upto_s if most is None else most
                return Percentile(_within(low, high, (rank - below) / cell.requests), low, high)
            below += cell.requests
        raise MeasurementError("no latency was counted, so there is no percentile of them")


def merged(parts: Sequence[Histogram]) -> Histogram:
    """Counts of several clients together."""
    counts: dict[tuple[float, float], int] = {}
    for part in parts:
        for over_s, upto_s, count in part.cells:
            counts[over_s, upto_s] = counts.get((over_s, upto_s), 0) + count
    cells = tuple(Cell(*ends, count) for ends, count in sorted(counts.items()) if count)
    return Histogram(
        cells,
        min((p.least_s for p in parts), default=math.nan),
        max((p.most_s for p in parts), default=math.nan),
    )


def power_of_two_cells(counts: Iterable[tuple[int, int]], unit_s: float) -> tuple[Cell, ...]:
    """Cells over 2^(i−1) up to 2^i units, by their index i; 0 holds those of at most one unit."""
    return tuple(
        Cell(0.0 if i == 0 else 2.0 ** (i - 1) * unit_s, 2.0**i * unit_s, count)
        for i, count in sorted(counts)
        if count
    )


def _within(low: float, high: float, share: float) -> float:
    if low <= 0 or high <= low:
        return low + (high - low) * share
    return float(low * (high / low) ** share)
