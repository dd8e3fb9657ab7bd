"""What a guard has promised to put back, on disk, for the case that it is killed too.

A journal is a file of JSON lines that only grows: first whose it is, then one line a setting,
written before the setting is changed. It is deleted when all is restored. One that is left, whose
processes are dead and whose kernel still runs, is what the next start has to put back.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.restoring import Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PREFIX, _SUFFIX = "guard-", ".jsonl"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Process(NamedTuple):
    """A process that no later one with the same number is taken for."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Identify a process by when it started, or None if there is none that lives."""
        try:
            status = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            return None
        # The name in brackets may hold spaces and brackets of its own.
        state, *rest = status.rpartition(b")")[2].split()
        return None if state in (b"Z", b"X") else cls(pid, int(rest[18]))

    def lives(self) -> bool:
        """Whether it is still running."""
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
        _flush_folder(folder)

    def add(self, settings: Iterable[Setting]) -> None:
        """Write settings to the disk. Raises OSError."""
        self._append([setting._asdict() for setting in settings])

    def fail(self, reasons: Iterable[str]) -> None:
        """Note what could not be put back, for whoever looks. Raises OSError."""
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


class Found(NamedTuple):
    """A journal that lies in the folder."""

    path: Path
    owners: Owners
    settings: list[Setting]

    @property
    def user(self) -> int | None:
        """Number of the process that still answers for it, or None where both are dead."""
        for process in (self.owners.parent, self.owners.guard):
            if process.lives():
                return process.pid
        return None


def boot_id() -> str:
    """Identify the running kernel: another boot has all settings at their defaults."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def journals(folder: Path) -> Iterator[Found]:
    """Read the journals of this boot in a folder; those of earlier boots are deleted.

    A file that another user could have written is passed over. One that says not even whose it is
    was begun by a guard that was killed before anything was changed: it is deleted too.
    """
    boot = boot_id()
    for path in sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}")):
        found = _read(path)
        if found and found.owners.boot == boot:
            yield found
        elif found or _begun_by_the_dead(path):
            path.unlink(missing_ok=True)


def _read(path: Path) -> Found | None:
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
    return Found(path, owners, [setting for line in rest[:-1] if (setting := _setting(line))])


def _begun_by_the_dead(path: Path) -> bool:
    """Whether it is our own file without a first line, of a guard that no longer lives."""
    try:
        status = path.lstat()
        pid, started = map(int, path.name[len(_PREFIX) : -len(_SUFFIX)].split("-"))
        first_line = b"\n" in path.read_bytes() if stat.S_ISREG(status.st_mode) else True
    except (OSError, ValueError):
        return False
    return status.st_uid == os.geteuid() and not first_line and not Process(pid, started).lives()


def _setting(line: str) -> Setting | None:
    try:
        said = json.loads(line)
        return Setting(Path(said["path"]), said["value"])
    except (ValueError, KeyError, TypeError):
        return None


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
