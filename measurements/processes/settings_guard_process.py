"""The guard: a small process that puts settings back when the one that changed them is gone.

Before ppw changes anything it says here what has to be put back, and waits until that is on disk:
``{"learn": [[path, value], …]}`` or ``{"release": true}``, as JSON lines.

The disk keeps the settings in a journal, for the case that the guard is killed too. A journal is a
file of JSON lines that only grows: first whose it is, then a line for each setting. It is deleted
when all is restored. The next start puts back those that are left, whose processes are dead and
whose kernel still runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.processes.helper_process import ignore_signals, messages, send
from measurements.processes.settings_guard import HostSetting, restore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PREFIX, _SUFFIX = "guard-", ".jsonl"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A killed ppw's guard needs so long at most to put things back and let go of the lock.
_LOCK_WAIT_S = 3.0
_LOOK_S = 0.02


class Process(NamedTuple):
    """A process; the time of its start tells it from later ones with the same number."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Identify a process; None if none with this number lives."""
        try:
            status = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            return None
        # The name in brackets may hold spaces and brackets of its own.
        state, *rest = status.rpartition(b")")[2].split()
        return None if state in (b"Z", b"X") else cls(pid, int(rest[18]))

    def lives(self) -> bool:
        """Check whether it is still running."""
        return Process.of(self.pid) == self


class Owners(NamedTuple):
    """Whose journal it is: the kernel's boot, the guard, what it watches, and what it locks."""

    boot: str
    guard: Process
    parent: Process
    lock: Path


class Journal:
    """A guard's own journal, open for more settings."""

    def __init__(self, folder: Path, owners: Owners) -> None:
        pid, started = owners.guard
        self.path = folder / f"{_PREFIX}{pid}-{started}{_SUFFIX}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o600)
        self._append([owners._asdict()])
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def add(self, settings: Iterable[HostSetting]) -> None:
        """Write settings to the disk. Raises OSError."""
        self._append([setting._asdict() for setting in settings])

    def fail(self, reasons: Iterable[str]) -> None:
        """Note what could not be put back, for the reader of the file. Raises OSError."""
        self._append([{"unrestored": reason} for reason in reasons])

    def delete(self) -> None:
        """Delete it: all is restored."""
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)

    def _append(self, lines: Iterable[dict[str, Any]]) -> None:
        data = "".join(json.dumps(line, default=str) + "\n" for line in lines).encode()
        length = os.fstat(self._descriptor).st_size
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError:
            # A full disk must not leave half a line for the next one to be glued to.
            os.ftruncate(self._descriptor, length)
            raise


class LeftJournal(NamedTuple):
    """A journal that lies in the folder."""

    path: Path
    owners: Owners
    settings: list[HostSetting]


def boot_id() -> str:
    """Read the identity of the running kernel: another boot has all settings at defaults."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def journals(folder: Path) -> Iterator[LeftJournal]:
    """Read the journals of this boot in a folder; those of earlier boots are deleted.

    A file that another user could have written is passed over. One without owners was begun by a
    guard that was killed before anything was changed: it is deleted too.
    """
    boot = boot_id()
    for path in sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}")):
        found = _read(path)
        if found and found.owners.boot == boot:
            yield found
        elif found or _begun_by_the_dead(path):
            path.unlink(missing_ok=True)


def _read(path: Path) -> LeftJournal | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            return None
        # A last line without its end was never confirmed, so what it names was never changed.
        first, *rest = file.read().split("\n")
    try:
        said = json.loads(first)
        guard, parent = Process(*said["guard"]), Process(*said["parent"])
        owners = Owners(said["boot"], guard, parent, Path(said["lock"]))
    except (ValueError, KeyError, TypeError):
        return None
    return LeftJournal(path, owners, [setting for line in rest[:-1] if (setting := _setting(line))])


def _setting(line: str) -> HostSetting | None:
    try:
        said = json.loads(line)
        return HostSetting(Path(said["path"]), said["value"])
    except (ValueError, KeyError, TypeError):
        return None


def _begun_by_the_dead(path: Path) -> bool:
    """Check whether it is our own file without a first line, of a guard that no longer lives."""
    try:
        status = path.lstat()
        pid, started = map(int, path.name[len(_PREFIX) : -len(_SUFFIX)].split("-"))
        first_line = b"\n" in path.read_bytes() if stat.S_ISREG(status.st_mode) else True
    except (OSError, ValueError):
        return False
    return status.st_uid == os.geteuid() and not first_line and not Process(pid, started).lives()


class RefusalError(Exception):
    """Why the guard does not start, as the answer that says so."""

    def __init__(self, **answer: Any) -> None:
        super().__init__(answer)
        self.answer = answer


def main() -> None:
    """Guard the parent: arguments are the connection's descriptor, parent, state folder, lock."""
    descriptor, parent, folder, lock = sys.argv[1:5]
    ignore_signals()
    os.chdir("/")
    # Ask the kernel to kill anything else first when memory runs out; only root may.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-1000")
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
    settings: dict[Path, HostSetting] = {}
    try:
        send(connection, ready=own.pid, journal=journal.path, restored=restored)
        for message in messages(connection, parent):
            if "release" in message:
                break
            _learn(connection, journal, settings, message["learn"])
    finally:
        unrestored = restore(settings.values())
        if unrestored:
            with contextlib.suppress(OSError):
                journal.fail(map(str, unrestored))
        else:
            journal.delete()
        send(connection, released=unrestored)


def _learn(
    connection: socket.socket,
    journal: Journal,
    settings: dict[Path, HostSetting],
    told: list[list[str]],
) -> None:
    new = [HostSetting(Path(path), value) for path, value in told if Path(path) not in settings]
    try:
        journal.add(new)
    except OSError as error:
        send(connection, error=f"{journal.path}: {error.strerror}")
        return
    settings.update((setting.path, setting) for setting in new)
    send(connection, learned=len(new))


def take(lock: Path, folder: Path, parent: Process) -> int:
    """Lock what is guarded; returns the descriptor that holds the lock.

    Raises `RefusalError` with the number of the process that has it. A parent that has lost a guard
    before may have a new one.
    """
    descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    until = time.monotonic() + _LOCK_WAIT_S
    while True:
        user = _user(folder, lock)
        if user and user.parent.lives() and (user.parent != parent or user.guard.lives()):
            raise RefusalError(busy=user.parent.pid)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise RefusalError(busy=user and user.guard.pid) from None
            time.sleep(_LOOK_S)
        else:
            return descriptor


def _user(folder: Path, lock: Path) -> Owners | None:
    """Find the owners of a journal of this lock, one of whom still lives."""
    for found in journals(folder):
        owners = found.owners
        if owners.lock == lock and (owners.parent.lives() or owners.guard.lives()):
            return owners
    return None


def _restore_left(folder: Path, lock: Path) -> list[HostSetting]:
    """Put back what a killed ppw and its killed guard have left."""
    restored: list[HostSetting] = []
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
