"""Client processes that load a service on CPUs of their own, and percentiles of their latencies."""

import math
import os
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.host import files
from measurements.host.cpu_placement import run_on
from measurements.processes import programs
from measurements.processes.cleanup_process import CleanupProcess

LOOPBACK = "127.0.0.1"
_POLL_S = 0.005
_START_POLL_S = 0.02


class CutShortError(MeasurementError):
    """A client ended while its window was open, or a count of the window was lost."""


def start_process(
    command: Sequence[str], output: IO[bytes] | int, environment: Mapping[str, str], **more: Any
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with its output and errors in one file."""
    # In a session of its own it gets no Ctrl-C of the terminal: ppw ends it in order.
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **more}
    return subprocess.Popen(  # nosec B603  # for callers, whose words are a list
        command, stdout=output, env=environment, start_new_session=True, **options
    )


@dataclass
class Client:
    """Client processes of one run, on CPUs that they share."""

    commands: Sequence[Sequence[str]]
    cpus: Collection[int]
    reaper: CleanupProcess
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)
    outputs: list[Path] = field(default_factory=list, init=False)
    cut_short: bool = field(default=False, init=False)  # one ended inside the window

    @property
    def pids(self) -> list[int]:
        """Process IDs."""
        return [process.pid for process in self.processes]

    def start(self, output: Path) -> None:
        """Start all. Raises `MeasurementError` when one cannot be started."""
        with run_on(self.cpus):
            for number, command in enumerate(self.commands):
                path = output.with_name(f"{output.stem}-{number}{output.suffix}")
                self.outputs.append(path)
                with files.open_for_writing(path, private=True) as file:
                    self.processes.append(self._start_client(command, file))

    def wait_until(self, flows: Callable[[], bool], seconds: float, complaint: str) -> None:
        """Wait until requests flow. Raises `MeasurementError` when they do not or a client ends."""
        until = time.monotonic() + seconds
        while not flows():
            self.check()
            if self.has_ended() or time.monotonic() > until:
                raise MeasurementError(f"{complaint}: see {self.outputs[0]}")
            time.sleep(_START_POLL_S)

    def check(self) -> None:
        """Raise `MeasurementError` when a client has failed."""
        for number, process in enumerate(self.processes):
            if code := self._exit_code(process):
                how = f"exit code {code}" if code > 0 else f"signal {-code}"
                path = self.outputs[number]
                said = programs.last_line(path.read_text(errors="replace"))
                raise MeasurementError(
                    f"{self.commands[number][0]} ended with {how}: {said}; see {path}"
                )

    def has_ended(self) -> bool:
        """Whether a client has ended."""
        return any(self._end_flags())

    def wait(self, seconds: float) -> bool:
        """Whether all clients ended in time. Raises `MeasurementError` when one failed."""
        until = time.monotonic() + seconds
        while not all(self._end_flags()):
            if time.monotonic() >= until:
                return False
            self.check()
            time.sleep(_POLL_S)
        self.check()
        return True

    def finish(self, name: str, seconds: float, *, hang: str | None = None) -> None:
        """Wait for all clients to end after the window; ``hang`` replaces the usual message."""
        self.check()
        if self.cut_short:
            raise CutShortError(
                f"{name} ended before the measurement window: this host is too "
                "busy for a steady load"
            )
        if not self.wait(seconds):
            usual = (
                f"{self.commands[0][0]} does not end: the device or server that it uses may hang"
            )
            raise MeasurementError(hang or usual)

    def observe(self, procfs: Path) -> tuple[float, float]:
        """CPU time so far (s), in user and system mode; a client that has ended is noted."""
        used = cpu_times(self.pids, procfs)
        self.cut_short |= self.has_ended()
        return used

    def stop(self) -> None:
        """Kill the clients that still run."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _start_client(self, command: Sequence[str], file: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return start_process(command, file, self.reaper.environment())
        except OSError as error:
            raise MeasurementError(f"{command[0]}: cannot be started: {error.strerror}") from error

    def _end_flags(self) -> list[bool]:
        # A list, so that every process that ended is waited for.
        return [self._exit_code(process) is not None for process in self.processes]

    def _exit_code(self, process: subprocess.Popen[bytes]) -> int | None:
        return process.poll()


def free_ports(count: int) -> list[int]:
    """Find TCP ports of the loopback address on which nobody listens now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        # All are bound before one is closed, so that no port is found twice.
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]


def cpu_times(pids: Sequence[int], procfs: Path) -> tuple[float, float]:
    """CPU time of processes so far (s), in user and system mode; an ended process counts as 0."""
    ticks = os.sysconf("SC_CLK_TCK")
    user = system = 0
    for pid in pids:
        with suppress(OSError):
            content = (procfs / str(pid) / "stat").read_text()
            # The name in brackets may hold spaces; the times are fields 14 and 15 of the line.
            fields = content.rpartition(")")[2].split()
            user, system = user + int(fields[11]), system + int(fields[12])
    return user / ticks, system / ticks


def io_counts(file: Path) -> dict[str, int]:
    """Read ``/proc/PID/io``. Raises OSError or ValueError when the process has ended."""
    pairs = (line.split(": ") for line in file.read_text().splitlines())
    return {name: int(value) for name, value in pairs}


def has_moved(procfs: Path, pid: int, disk_bytes: int, cache_bytes: int) -> bool:
    """Whether a process has moved so many bytes to or from a disk, or the page cache."""
    with suppress(OSError, ValueError, KeyError):
        counts = io_counts(procfs / str(pid) / "io")
        if counts["read_bytes"] + counts["write_bytes"] >= disk_bytes:
            return True
        # What a program reads as it starts is in rchar.
        return counts["rchar"] + counts["wchar"] >= cache_bytes
    return False


class LatencyCell(NamedTuple):
    """Number of requests that took more than ``over_s`` and at most ``upto_s`` (s)."""

    over_s: float
    upto_s: float
    requests: int


class Percentile(NamedTuple):
    """Latency (s) of a share of the requests, between the ends of its histogram cell."""

    estimate_s: float
    least_s: float
    most_s: float


class Histogram(NamedTuple):
    """Counts of latencies by size."""

    cells: tuple[LatencyCell, ...]  # ascending, without empty cells
    least_s: float = math.nan  # smallest latency, NaN where not known
    most_s: float = math.nan  # largest latency, NaN where not known

    @property
    def requests(self) -> int:
        """Number of latencies."""
        return sum(cell.requests for cell in self.cells)

    def percentile(self, share: float) -> Percentile:
        """Find the smallest latency that at least a share (0 to 1) of requests did not exceed."""
        rank, below = math.ceil(share * self.requests - 1e-9), 0
        for cell in self.cells:
            if below + cell.requests >= rank:
                # A NaN as the second argument leaves the end of the cell.
                low, high = max(cell.over_s, self.least_s), min(cell.upto_s, self.most_s)
                inside, is_linear = (rank - below) / cell.requests, low <= 0 or high <= low
                at = low + (high - low) * inside if is_linear else low * (high / low) ** inside
                return Percentile(float(at), low, high)
            below += cell.requests
        raise MeasurementError("no latency was counted, so there is no percentile")


def merge_histograms(parts: Sequence[Histogram]) -> Histogram:
    """Merge the histograms of several clients."""
    counts: Counter[tuple[float, float]] = Counter()
    for part in parts:
        for over_s, upto_s, requests in part.cells:
            counts[over_s, upto_s] += requests
    return Histogram(
        tuple(LatencyCell(*ends, count) for ends, count in sorted(counts.items()) if count),
        min((p.least_s for p in parts), default=math.nan),
        max((p.most_s for p in parts), default=math.nan),
    )


def power_of_two_cells(counts: Iterable[tuple[int, int]], unit_s: float) -> tuple[LatencyCell, ...]:
    """Make cells by index i: latencies over 2^(i−1) up to 2^i units; at most one unit for 0."""
    return tuple(
        LatencyCell(0.0 if i == 0 else 2.0 ** (i - 1) * unit_s, 2.0**i * unit_s, count)
        for i, count in sorted(counts)
        if count
    )
