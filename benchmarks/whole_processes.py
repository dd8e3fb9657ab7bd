"""Whole processes: their start, their time, their memory."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent


def best_of(repeats: int, run: Callable[[], object]) -> float:
    """Shortest elapsed time (s) of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def one_core() -> str:
    """Keep this process, and the ones it starts, on one core."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if not hasattr(os, "sched_setaffinity"):
        return "one thread"
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return f"one thread on core {core}"


def resident(field: str) -> int:
    """Bytes of a field of /proc/self/status that is in kB."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(x.split()[1]) for x in status.splitlines() if x.startswith(field))


def environment() -> dict[str, str]:
    # The checkout first, whether ppw is installed or not.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path}


def start_up(*command: str, repeats: int = 7) -> float | None:
    """Shortest elapsed time (s) of a whole process; None where it fails."""

    def run() -> None:
        subprocess.run(command, capture_output=True, check=True, env=environment())

    try:
        return best_of(repeats, run)
    except (OSError, subprocess.CalledProcessError):
        return None


def help_command() -> list[str]:
    script = Path(sysconfig.get_path("scripts")) / "ppw"
    return [str(script)] if script.exists() else [sys.executable, "-m", "ppw"]
