"""Running the measured command: when it began, when it ended, and how."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import nullcontext, suppress
from typing import IO, TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import run_on

if TYPE_CHECKING:
    import resource
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path


class Execution(NamedTuple):
    """One or several equal executions, back to back; start and end by `time.monotonic`.

    ``exit_code`` is that of the first that failed, or 0; negative for the signal that ended it.
    ``user_s`` and ``system_s`` are the CPU time of the command and of all its children.
    """

    start_s: float
    end_s: float
    exit_code: int
    user_s: float
    system_s: float


def execute(
    commands: Sequence[Sequence[str]],
    *,
    output: Path,
    cpus: Collection[int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Execution:
    """Run commands one after the other on some logical CPUs, until one fails.

    Their standard output and error go to ``output``. Raises `MeasurementError` when a command
    cannot be started.
    """
    user_s = system_s = 0.0
    code = 0
    with output.open("wb") as file, nullcontext() if cpus is None else run_on(cpus):
        start_s = time.monotonic()
        for command in commands:
            code, usage = _run(command, file, environment)
            user_s += usage.ru_utime
            system_s += usage.ru_stime
            if code:
                break
        end_s = time.monotonic()
    return Execution(start_s, end_s, code, user_s, system_s)


def _run(
    command: Sequence[str], output: IO[bytes], environment: Mapping[str, str] | None
) -> tuple[int, resource.struct_rusage]:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            # A group of its own, so that all of it can be ended.
            start_new_session=True,
        )
    except OSError as error:
        raise MeasurementError(
            f"{command[0]}: cannot be started: {error.strerror}: give the command after --, with "
            "its path where it is not on PATH"
        ) from error
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        # What the command left running must not run into the next measurement.
        end_group(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage


def end_group(group: int) -> None:
    """Kill what is left of a process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
