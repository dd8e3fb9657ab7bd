"""Client processes that load a service, on CPUs of their own, and the CPU time that they take."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.placement import run_on

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from measurements.workloads.reaper import Reaper


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
