"""A small process beside ppw that outlives it, and how ppw talks to it.

The process is a module with a ``main`` whose first arguments are the connection's descriptor and
the number of this process; `measurements.parent` has what it needs to hear from here. Messages and
answers are JSON lines; the end of the connection tells it that ppw is gone.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from measurements.errors import MeasurementError

# Without the site packages and the caller's folder: it starts in a third of the time, and nothing
# that lies about is imported by what may run as root.
_START = "import sys; sys.path.append(sys.argv.pop(1)); from {module} import main; main()"


class Companion:
    """A process of its own session, which no signal meant for ppw reaches.

    Parameters
    ----------
    module : str
        Whose ``main`` it runs.
    called : str
        What it is to the user, as an error names it.
    *arguments : str
        What follows the connection and this process's number.

    Attributes
    ----------
    process : subprocess.Popen

    Raises
    ------
    MeasurementError
        When it cannot be started.
    """

    def __init__(self, module: str, called: str, *arguments: str) -> None:
        root = str(Path(__file__).resolve().parents[1])
        self._connection, its = socket.socketpair()
        self._rest = b""
        told = [root, str(its.fileno()), str(os.getpid()), *arguments]
        with its:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _START.format(module=module), *told],
                    # A pipe that ppw's output goes to must not wait for it.
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[its.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                self._connection.close()
                raise MeasurementError(f"{called} cannot be started: {error}") from error

    def ask(self, timeout_s: float, **message: Any) -> dict[str, Any]:
        """Send a message and wait for its answer. Raises OSError where none comes."""
        try:
            self._connection.settimeout(timeout_s)
            self._connection.sendall(json.dumps(message, default=str).encode() + b"\n")
            return self.answer(timeout_s)
        except BaseException:
            # An answer that comes late, as after Ctrl-C, must not be taken for that to the next
            # question; what the process was there for it does at the end of the connection.
            self._connection.close()
            raise

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Wait for an answer. Raises OSError where none comes."""
        self._connection.settimeout(timeout_s)
        while b"\n" not in self._rest:
            data = self._connection.recv(65536)
            if not data:
                raise ConnectionResetError("it ended without an answer")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self, timeout_s: float) -> None:
        """Let go of it, so that it does its work and ends; one that hangs is killed."""
        self._connection.close()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
