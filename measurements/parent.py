"""What a small process beside ppw needs: to hear its parent, and to notice that it has died."""

from __future__ import annotations

import json
import os
import select
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

# Where the kernel has no process descriptors, how often to look whether the parent lives.
_LOOK_MS = 200.0
_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2")


def ignore_signals() -> None:
    """Ignore what a terminal or a service manager sends to ppw."""
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)


def messages(connection: socket.socket, parent: int) -> Iterator[dict[str, Any]]:
    """Messages as they come, JSON lines; ends when the parent has died or closed the connection.

    The parent is watched by its process descriptor too: neither a child of it that lives on nor one
    that holds a copy of the connection can hide that it died.
    """
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    try:
        death = os.pidfd_open(parent)
    except OSError:
        death = -1
    else:
        poll.register(death, select.POLLIN)
    rest = b""
    while os.getppid() == parent:
        ready = [descriptor for descriptor, _ in poll.poll(_LOOK_MS if death < 0 else None)]
        if death in ready:
            return
        if ready:
            try:
                data = connection.recv(65536)
            except ConnectionResetError:
                return
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            yield from map(json.loads, lines)


def send(connection: socket.socket, **answer: Any) -> None:
    """Answer; a parent that is gone hears nothing, which `messages` will tell."""
    try:
        connection.sendall(json.dumps(answer, default=str).encode() + b"\n")
    except OSError:
        return
