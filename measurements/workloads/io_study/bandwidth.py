"""Memory bandwidth that a load takes from a workload beside it, and what is left to each core."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from measurements.errors import MeasurementError, on_error
from measurements.host import activity, cpu_placement, files, memory_probe
from measurements.processes import cleanup_process, programs
from measurements.workloads.clients import start_process
from measurements.workloads.io_study.cpu_accounting import process_cpu_s

SOURCE = "bandwidth_load.c"
_FLAGS = (("-O3", "-march=native", "-pthread"), ("-O3", "-pthread"))
# All arrays together: so large that nothing of one pass is still cached at the next.
_TIMES_CACHE, _LEAST_BYTES, _UNKNOWN_CACHE_BYTES = 4, 64 << 20, 32 << 20
_SHARE_OF_MEMORY, _SMALL_BYTES = 0.25, 1 << 20
_READY_S, _LOOK_S = 30.0, 0.02
# How long the full speed of the load, and what it leaves, are measured.
_FULL_S, _PROBE_S = 0.5, 0.5


class LoadReading(NamedTuple):
    """Last report of a load: its time (monotonic clock, s) and the bytes moved by then."""

    at_s: float
    bytes_moved: float


class BandwidthLoad:
    """A running load on memory bandwidth. End it with `stop`."""

    def __init__(
        self, command: Sequence[str], output: Path, reaper: cleanup_process.CleanupProcess
    ) -> None:
        self._output = output
        with files.open_for_writing(output, private=True) as file:
            self._process = start_process(command, file, reaper.environment())
        until = time.monotonic() + _READY_S
        with on_error(self.stop):
            while (reading := self.last_reading()) is None or not reading.bytes_moved:
                self.check()
                if time.monotonic() > until:
                    raise MeasurementError("the memory-bandwidth antagonist does not start")
                time.sleep(_LOOK_S)

    def cpu_s(self) -> float:
        """CPU time so far (s)."""
        return process_cpu_s(self._process.pid)

    def last_reading(self) -> LoadReading | None:
        """Its last report; None before the first."""
        # Behind the last line end there may be half a line.
        lines = self._output.read_text(errors="replace").split("\n")[:-1]
        try:
            at_s, moved = map(float, lines[-1].split())
        except (IndexError, ValueError):
            return None
        return LoadReading(at_s, moved)

    def rate_since(self, before: LoadReading) -> float:
        """Rate at which it read and wrote since then (B/s)."""
        self.check()
        now = self.last_reading()
        if now is None or now.at_s <= before.at_s:
            return float("nan")
        return (now.bytes_moved - before.bytes_moved) / (now.at_s - before.at_s)

    def check(self) -> None:
        """Raise `MeasurementError` where it has ended."""
        if (code := self._process.poll()) is not None:
            said = programs.last_line(self._output.read_text(errors="replace"))
            raise MeasurementError(f"the memory-bandwidth antagonist ended with {code}: {said}")

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True)
class BandwidthAntagonist:
    """Starts loads that take memory bandwidth at some rate. Made by `open`."""

    command: tuple[str, ...]
    reaper: cleanup_process.CleanupProcess
    folder: Path
    how: str  # "C" or "numpy"
    sysfs: Path = Path("/sys")

    @classmethod
    def open(
        cls,
        reaper: cleanup_process.CleanupProcess,
        *,
        compilers: Sequence[str] = programs.COMPILERS,
        sysfs: Path = Path("/sys"),
    ) -> tuple[BandwidthAntagonist, str | None]:
        """Compile the load; where that cannot be, numpy does it, and the second item says why."""
        folder = reaper.folder()
        program = folder / "bandwidth_load"
        package = "measurements.workloads.io_study"
        why: MeasurementError | None = None
        for flags in _FLAGS:
            try:
                programs.compile_c(package, SOURCE, program, flags=flags, compilers=compilers)
            except MeasurementError as error:
                why = error
            else:
                return cls((str(program),), reaper, folder, "C", sysfs), None
        # Without its folder on the path, whose modules it does not need.
        command = (sys.executable, "-P", str(Path(__file__).with_name("numpy_bandwidth.py")))
        said = f"numpy, not C, uses up memory bandwidth, and less of it: {why}"
        return cls(command, reaper, folder, "numpy", sysfs), said

    def start(self, rate_bytes_s: float, cpus: Sequence[int], output: Path) -> BandwidthLoad:
        """Start a load on CPUs; a rate of 0 is the fastest."""
        cache = activity.last_level_cache(self.sysfs, cpus).total_bytes or _UNKNOWN_CACHE_BYTES
        room = _SHARE_OF_MEMORY * activity.available_memory(Path("/proc"), self.sysfs)
        # Of each of the three arrays of each CPU (B).
        size = int(min(max(_TIMES_CACHE * cache, _LEAST_BYTES), room) / 3 / len(cpus))
        listed = ",".join(map(str, cpus))
        command = [*self.command, str(size), f"{rate_bytes_s:.0f}", listed]
        return BandwidthLoad(command, output, self.reaper)

    def full_rate(self, cpus: Sequence[int]) -> float:
        """Measure the rate of a load at full speed (B/s)."""
        load = self.start(0.0, cpus, self.folder / "full.txt")
        try:
            before = load.last_reading()
            time.sleep(_FULL_S)
            return load.rate_since(before) if before else float("nan")
        finally:
            load.stop()

    def left_to_each(
        self, placement: cpu_placement.Placement, start: Callable[[], BandwidthLoad] | None
    ) -> float:
        """Measure the bandwidth (B/s) of STREAM's triad on each core used, beside a load."""
        load = None if start is None else start()
        try:
            # The latencies that the probe measures too are not asked for: a small buffer will do.
            probe = memory_probe.probe_memory(
                cpus=placement.cpus, chase_bytes=_SMALL_BYTES, budget_s=_PROBE_S, sysfs=self.sysfs
            )
            if load is not None:
                load.check()
        finally:
            if load is not None:
                load.stop()
        return probe.bandwidth["triad"].median_bytes_s / placement.cores
