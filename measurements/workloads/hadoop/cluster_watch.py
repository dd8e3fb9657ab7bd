"""The watch over a user's cluster: what ppw leaves there is ended and removed when ppw is gone.

A process beside ppw. It hears that a job begins (``{"output": path}``, where its client writes) and
that it has ended (``{"output": null}``). When the connection ends, because ppw is done or dead, it
kills the job that is under way and removes ppw's folder from the cluster's file system.
"""

import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from measurements.processes.helper_process import begin_helper, messages, send

_RUNNING = re.compile(r"Running job: (job_\d+_\d+)")
_SUBMITTED = re.compile(r"Submitting tokens for job: (job_\d+_\d+)")
_PATIENCE_S = 60.0


def main() -> None:
    """Tidy up after ppw; arguments are the program hadoop, and ppw's folder on the cluster."""
    connection, parent, (hadoop, folder) = begin_helper()
    output = None
    for message in messages(connection, parent):
        output = message["output"]
        send(connection)
    if output is not None and (job := _find_job(Path(output))):
        _run_ignoring_failure(hadoop, "job", "-kill", job)
    _run_ignoring_failure(hadoop, "fs", "-rm", "-r", "-f", "-skipTrash", folder)


def _find_job(output: Path) -> str | None:
    """Find the name of the job in its client's output, with a short wait for its submission."""
    for _ in range(10):
        text = output.read_text(errors="replace") if output.exists() else ""
        if found := _RUNNING.findall(text) or _SUBMITTED.findall(text):
            return str(found[-1])
        time.sleep(0.2)
    return None


def _run_ignoring_failure(*command: str) -> None:
    # Nobody is left to hear of a failure, and what comes after is done in any case.
    with suppress(subprocess.TimeoutExpired, OSError):
        subprocess.run(command, input=b"", capture_output=True, timeout=_PATIENCE_S, check=False)  # nosec B603  # hadoop, about ppw's own job and folder
