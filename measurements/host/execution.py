"""Running the measured command: when it began, when it ended, and how."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import nullcontext
from typing import IO, TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import run_on

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path


class Execution(NamedTuple):
    """One or several equal executions, back to back.

    Attributes
    ----------
    start_s, end_s : float
        By `time.monotonic`.
    exit_code : int
        Of the first that failed, or 0; negative for the signal that ended it.
    user_s, system_s : float
        CPU time of the command and of all it waited for.
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
    """Run commands one after the other, their output into a file, and wait for each.

    Parameters
    ----------
    commands : sequence of argument lists
    output : Path
        Standard output and error of all of them.
    cpus : collection of int, optional
        Logical CPUs that they may use.
    environment : mapping, optional
        Of the commands; by default this process's.

    Raises
    ------
    MeasurementError
        When a command cannot be started.
    """
    user_s = system_s = 0.0
    code = 0
    with output.open("wb") as file, nullcontext() if cpus is None else run_on(cpus):
        start_s = time.monotonic()
        for command in commands:
            code, used = _run(command, file, environment)
            user_s += used.user_s
            system_s += used.system_s
            if code:
                break
        end_s = time.monotonic()
    return Execution(start_s, end_s, code, user_s, system_s)


def _run(
    command: Sequence[str], output: IO[bytes], environment: Mapping[str, str] | None
) -> tuple[int, _Used]:
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
        _, status, rusage = os.wait4(process.pid, 0)
    except BaseException:
        end_group(process.pid)
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    # What the command left running must not run into the next measurement.
    end_group(process.pid)
    return process.returncode, _Used(rusage.ru_utime, rusage.ru_stime)


class _Used(NamedTuple):
    user_s: float
    system_s: float


def end_group(group: int) -> None:
    """Kill what is left of a process group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
