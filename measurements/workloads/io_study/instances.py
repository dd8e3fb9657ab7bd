"""Equal programs at once: started behind a gate, in a control group of their own, each waited for.

What they cost is told twice, by the control group and by what `os.wait4` says of each.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.execution import end_group
from measurements.placement import run_on
from measurements.workloads.client_processes import last_line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from measurements.workloads.io_study.cpu_clocks import ControlGroup
    from measurements.workloads.reaper import Reaper

# Enters the control group, waits at the gate for a line, and becomes the program.
_GATE = (
    'if [ -n "$1" ]; then echo $$ > "$1" || exit 126; fi; shift; read -r _ && exec "$@" < /dev/null'
)
_LOOK_S = 0.005
_END_S = 10.0


@dataclass
class Instances:
    """Programs of one run, as `measurements.workloads.client_processes.Client` is.

    Attributes
    ----------
    commands : sequence of argument lists
    cpus : collection of int
        Logical CPUs that all of them share.
    reaper : Reaper
    group : ControlGroup or None
    environment : mapping
        Added to this process's.
    """

    commands: Sequence[Sequence[str]]
    cpus: Collection[int]
    reaper: Reaper
    group: ControlGroup | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    outputs: list[Path] = field(default_factory=list)
    rusage_s: float = 0.0
    """CPU time of those that ended, with what they waited for (s)."""

    @property
    def pids(self) -> list[int]:
        """Their numbers."""
        return [process.pid for process in self.processes]

    def start(self, output: Path) -> None:
        """Start them all, up to the gate. Raises `MeasurementError` when one cannot be started."""
        tasks = "" if self.group is None else str(self.group.folder / "cgroup.procs")
        with run_on(self.cpus):
            for number, command in enumerate(self.commands):
                path = output.with_name(f"{output.stem}-{number}{output.suffix}")
                self.outputs.append(path)
                self.processes.append(self._start(["sh", "-c", _GATE, "sh", tasks, *command], path))

    def release(self) -> None:
        """Open the gate."""
        for process in self.processes:
            assert process.stdin is not None
            try:
                process.stdin.write(b"\n")
                process.stdin.close()
            except BrokenPipeError:
                # It has failed already, which `check` tells.
                continue

    def ended(self) -> bool:
        """Whether one of them has come to its end."""
        return any(self._ended())

    def check(self) -> None:
        """Raise `MeasurementError` where one has ended with an error."""
        for number, process in enumerate(self.processes):
            if self._reap(process) and process.returncode:
                code = process.returncode
                how = f"exit code {code}" if code > 0 else f"signal {-code}"
                raise MeasurementError(
                    f"{self.commands[number][0]} ended with {how}: "
                    f"{last_line(self.outputs[number])}; see {self.outputs[number]}"
                )

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; whether all have ended.

        Raises
        ------
        MeasurementError
            When one failed.
        """
        until = time.monotonic() + seconds
        while not all(self._ended()):
            if time.monotonic() >= until:
                return False
            self.check()
            time.sleep(_LOOK_S)
        self.check()
        return True

    def stop(self) -> None:
        """End those that are still running, with all that they started."""
        for process in self.processes:
            end_group(process.pid)
            until = time.monotonic() + _END_S
            while not self._reap(process) and time.monotonic() < until:
                time.sleep(_LOOK_S)
            if process.stdin is not None:
                process.stdin.close()

    def _start(self, command: Sequence[str], path: Path) -> subprocess.Popen[bytes]:
        with path.open("wb") as file:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                # Unbuffered, so that closing it has nothing left to write.
                bufsize=0,
                env={**self.reaper.environment(), **self.environment},
                start_new_session=True,
            )

    def _ended(self) -> list[bool]:
        """Of each, so that all are waited for as they end."""
        return [self._reap(process) for process in self.processes]

    def _reap(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether one has ended; its CPU time is added up when it has."""
        if process.returncode is None:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                self.rusage_s += usage.ru_utime + usage.ru_stime
                # What it left running must not run into the next measurement.
                end_group(pid)
        return process.returncode is not None
