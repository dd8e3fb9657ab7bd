"""A small process beside ppw that outlives it, and how the two talk.

The process is a module with a ``main`` whose first arguments are the connection's descriptor and
ppw's process number. Messages and answers are JSON lines; the end of the connection tells the
process that ppw is gone.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from measurements.errors import MeasurementError

# Without the site packages and the caller's folder: it starts in a third of the time, and nothing
# that lies about is imported by what may run as root.
_START = "import sys; sys.path.append(sys.argv.pop(1)); from {module} import main; main()"
# Where the kernel has no process descriptors, how often to look whether the parent lives.
_LOOK_MS = 200.0
_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2")


class HelperProcess:
    """A process in a session of its own, which no signal meant for ppw reaches.

    It runs the ``main`` of a module, by the program ``through`` where one is named; ``called`` is
    its name in error messages. Raises `MeasurementError` when it cannot be started.
    """

    def __init__(
        self, module: str, called: str, *arguments: str, through: Sequence[str] = ()
    ) -> None:
        root = str(Path(__file__).resolve().parents[2])
        self._connection, its = socket.socketpair()
        self._rest = b""
        start = [sys.executable, "-I", "-S", "-c", _START.format(module=module)]
        with its:
            try:
                self.process = subprocess.Popen(  # nosec B603  # a module of this package
                    [*through, *start, root, str(its.fileno()), str(os.getpid()), *arguments],
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
            self._connection.sendall(_encode_line(message))
            return self.answer(timeout_s)
        except BaseException:
            # An answer that comes late, as after Ctrl-C, must not be taken for that to the next
            # question. The process finishes its task at the end of the connection.
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
        return json.loads(line)

    def end(self, timeout_s: float) -> None:
        """Close the connection, so that it does its work and ends; kill it after the timeout."""
        self._connection.close()
        end_or_kill(self.process, timeout_s)


def end_or_kill(process: subprocess.Popen[Any], timeout_s: float) -> None:
    """Wait for a process that was told to end; kill it after the timeout."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def begin_helper() -> tuple[socket.socket, int, list[str]]:
    """Begin a helper, deaf to signals to ppw: its connection, ppw's process, its arguments."""
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    # As `HelperProcess` passes them; what follows is for the module itself.
    descriptor, parent, *arguments = sys.argv[1:]
    return socket.socket(fileno=int(descriptor)), int(parent), arguments


def messages(connection: socket.socket, parent: int) -> Iterator[dict[str, Any]]:
    """Yield messages as they come, until the parent has died or closed the connection.

    The parent is watched by its process descriptor too: neither a child of it that lives on nor one
    that holds a copy of the connection can hide that it died.
    """
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    try:
        death = os.pidfd_open(parent)
        poll.register(death, select.POLLIN)
    except OSError:
        death = -1
    rest = b""
    while os.getppid() == parent:
        ready = [descriptor for descriptor, _ in poll.poll(_LOOK_MS if death < 0 else None)]
        if death in ready:
            return
        if ready:
            data = b""
            with suppress(ConnectionResetError):
                data = connection.recv(65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            yield from map(json.loads, lines)


def send(connection: socket.socket, **answer: Any) -> None:
    """Answer; a parent that is gone hears nothing, which `messages` will tell."""
    with suppress(OSError):
        connection.sendall(_encode_line(answer))


def _encode_line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, default=str).encode() + b"\n"
