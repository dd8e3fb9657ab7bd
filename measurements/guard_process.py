"""The guard: a small process that puts settings back when the one that changed them is gone.

It is in a session of its own and ignores what a terminal or a service manager sends to ppw. Before
ppw changes anything it says here what has to be put back, and waits until that is on disk.

Messages are JSON lines. ppw says ``{"learn": [[path, value], …]}`` or ``{"release": true}``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measurements.guard_journal import Journal, Owners, Process, boot_id, journals
from measurements.parent import ignore_signals, messages, send
from measurements.restoring import Setting, restore

if TYPE_CHECKING:
    from collections.abc import Callable

# A killed ppw's guard needs so long at most to put things back and let go of the lock.
_LOCK_WAIT_S = 3.0
_LOOK_S = 0.02


class RefusalError(Exception):
    """Why the guard does not start, as the answer that says so."""

    def __init__(self, **answer: Any) -> None:
        super().__init__(answer)
        self.answer = answer


def main(arguments: list[str] | None = None) -> None:
    """Guard the parent: arguments are the connection's descriptor, parent, state folder, lock."""
    descriptor, parent, folder, lock = (sys.argv[1:] if arguments is None else arguments)[:4]
    ignore_signals()
    os.chdir("/")
    _outlive_others()
    connection = socket.socket(fileno=int(descriptor))
    try:
        _guard(connection, int(parent), Path(folder), Path(lock))
    except RefusalError as refusal:
        send(connection, **refusal.answer)
    except OSError as error:
        send(connection, error=f"{error.filename or folder}: {error.strerror}")


def _guard(connection: socket.socket, parent: int, folder: Path, lock: Path) -> None:
    own, watched = Process.of(os.getpid()), Process.of(parent)
    if own is None or watched is None or os.getppid() != parent:
        return
    # Held until this process ends, so that no other ppw starts before all is restored.
    take(lock, folder, watched)
    restored = _restore_left(folder, lock)
    journal = Journal(folder, Owners(boot_id(), own, watched, lock))
    settings: dict[Path, Setting] = {}
    try:
        send(connection, ready=own.pid, journal=journal.path, restored=restored)
        for message in messages(connection, parent):
            if "release" in message:
                break
            _learn(connection, journal, settings, message["learn"])
    finally:
        _finish(connection, journal, settings)


def _learn(
    connection: socket.socket,
    journal: Journal,
    settings: dict[Path, Setting],
    told: list[list[str]],
) -> None:
    new = [Setting(Path(path), value) for path, value in told if Path(path) not in settings]
    try:
        journal.add(new)
    except OSError as error:
        send(connection, error=f"{journal.path}: {error.strerror}")
        return
    settings.update((setting.path, setting) for setting in new)
    send(connection, learned=len(new))


def _finish(connection: socket.socket, journal: Journal, settings: dict[Path, Setting]) -> None:
    unrestored = restore(settings.values())
    if unrestored:
        with contextlib.suppress(OSError):
            journal.fail(map(str, unrestored))
    else:
        journal.delete()
    send(connection, released=unrestored)


def take(
    lock: Path,
    folder: Path,
    parent: Process,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> int:
    """Lock what is guarded, or refuse with the number of the process that has it.

    A parent that has lost a guard before may have a new one.

    Returns
    -------
    int
        The descriptor that holds the lock.
    """
    descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    until = clock() + _LOCK_WAIT_S
    while True:
        user = _user(folder, lock)
        if user and user.parent.lives() and (user.parent != parent or user.guard.lives()):
            raise RefusalError(busy=user.parent.pid)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock() > until:
                raise RefusalError(busy=user and user.guard.pid) from None
            wait(_LOOK_S)
        else:
            return descriptor


def _user(folder: Path, lock: Path) -> Owners | None:
    for found in journals(folder):
        if found.owners.lock == lock and found.user is not None:
            return found.owners
    return None


def _restore_left(folder: Path, lock: Path) -> list[Setting]:
    """Put back what a killed ppw and its killed guard have left."""
    restored: list[Setting] = []
    for found in journals(folder):
        if found.owners.lock != lock:
            continue
        # A file that is gone, of a CPU taken offline or a driver unloaded, holds no setting.
        settings = [setting for setting in found.settings if setting.path.exists()]
        if unrestored := restore(settings):
            raise RefusalError(left=unrestored, journal=found.path)
        restored += settings
        found.path.unlink(missing_ok=True)
    return restored


def _outlive_others() -> None:
    """Ask the kernel to kill anything else first when memory runs out; only root may."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-1000")
