"""Updates of a fleet's state that are killed: a process that forks one, and kills it, on demand.

Reads lines ``STATE FILE SECONDS``; for each, a child updates the state with the file and is sent
SIGKILL after so many seconds; answers ``killed`` or ``done``.
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
        time.sleep(float(seconds))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else "done", flush=True)


if __name__ == "__main__":
    main()
