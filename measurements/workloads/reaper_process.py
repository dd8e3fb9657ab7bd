"""The reaper: ends processes, unmounts and removes folders when the one that made them is gone.

A small process in a session of its own, so that no signal meant for ppw reaches it. What it ends is
known by a mark in the environment, which children and their children inherit: a process that was
started in the very moment in which ppw was killed has it too.

Messages are JSON lines: ``{"folder": path}`` before a folder is made, ``{"mount": path}`` before
something is mounted on one, ``{"group": path}`` before a control group is made, ``{"reap": true}``
at the end. Each is answered. What was made last goes first.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from measurements.parent import ignore_signals, messages, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What was being started when ppw died shows up within this time.
_QUIET_S = 0.2
_PATIENCE_S = 10.0
_LOOK_S = 0.02
# MNT_DETACH of umount2(2).
_DETACH = 2


def main() -> None:
    """Arguments: the connection's descriptor, the parent's number, and the mark."""
    descriptor, parent, mark = sys.argv[1:4]
    ignore_signals()
    os.chdir("/")
    connection = socket.socket(fileno=int(descriptor))
    made: list[tuple[str, str]] = []
    for message in messages(connection, int(parent)):
        if "reap" in message:
            break
        made += message.items()
        send(connection, made=len(made))
    left = reap(mark.encode(), made)
    send(connection, left=left)


def reap(
    mark: bytes,
    made: list[tuple[str, str]],
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> list[int]:
    """End all processes with the mark and remove what was made; returns who would not end.

    Parameters
    ----------
    mark : bytes
    made : list of (kind, path)
        Folders, mounts and control groups, in the order in which they were made.
    clock, wait : callable
        Time (s) that has passed, and a pause of so many seconds.
    """
    quiet_since = clock()
    until = quiet_since + _PATIENCE_S
    left: list[int] = []
    while clock() < until:
        left = list(_marked(mark))
        for pid in left:
            _kill(pid)
        if left:
            quiet_since = clock()
        elif clock() - quiet_since >= _QUIET_S:
            break
        wait(_LOOK_S)
    for kind, path in reversed(made):
        if kind == "group":
            _remove_group(Path(path), clock, wait)
        else:
            _REMOVE[kind](path)
    return left


def _remove_folder(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _unmount(path: str) -> None:
    # Of use to few workloads, and slow to import.
    import ctypes

    # Detached: what still has a file open there, such as a search index, must not keep it.
    ctypes.CDLL(None).umount2(os.fsencode(path), _DETACH)


_REMOVE = {"folder": _remove_folder, "mount": _unmount}


def _remove_group(folder: Path, clock: Callable[[], float], wait: Callable[[float], None]) -> None:
    until = clock() + _PATIENCE_S
    while folder.is_dir() and clock() < until:
        try:
            folder.rmdir()
        except OSError:
            # The kernel has not yet taken its last process off.
            wait(_LOOK_S)


def _marked(mark: bytes) -> Iterator[int]:
    for entry in os.listdir("/proc"):  # noqa: PTH208  # a Path a process costs as much as reading it
        if entry.isdecimal():
            try:
                content = Path("/proc", entry, "environ").read_bytes()
            except OSError:
                # It has ended, or is another user's.
                continue
            if mark in content.split(b"\0"):
                yield int(entry)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return
