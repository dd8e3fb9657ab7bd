"""Updates of a fleet's state that are killed: a process that forks one, and kills it, on demand.

Reads lines ``STATE FILE SECONDS``; for each, a child updates the state with the file and is sent
SIGKILL after so many seconds; answers ``killed`` or ``done``, and after how many seconds it was.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings

warnings.simplefilter("ignore")

from ppw.fleet.state_update import update_state  # noqa: E402


def main() -> None:
    import duckdb  # noqa: F401
    import ibis  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        state, file, seconds = line.split()
        child = os.fork()
        if not child:
            update_state(state, file, threads=1)
            os._exit(0)
        status, took = ended(child, float(seconds))
        print("killed" if os.WIFSIGNALED(status) else "done", took, flush=True)


def ended(child: int, seconds: float) -> tuple[int, float]:
    """Status of a child, killed if it still runs after so many seconds; and how long it ran."""
    start = time.monotonic()
    while (took := time.monotonic() - start) < seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status, took
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1], took


if __name__ == "__main__":
    main()
