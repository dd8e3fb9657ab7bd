"""Nothing that a workload starts or writes outlives it: not after an error, not after a kill -9.

A small process beside ppw ends whatever was started with `CleanupProcess.environment`, and removes
the announced folders, mounts and control groups, when it is told to or when ppw is gone. It finds
what to end by a mark in the environment, which children and their children inherit: a process that
was started in the very moment in which ppw was killed has it too.

Messages are JSON lines: ``{"folder": path}`` before a folder is made, ``{"mount": path}`` before
something is mounted on one, ``{"group": path}`` before a control group is made, ``{"reap": true}``
at the end. Each is answered. What was made last goes first.
"""

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from measurements.errors import MeasurementError
from measurements.processes.helper_process import HelperProcess, begin_helper, messages, send
from measurements.processes.programs import environment_without_secrets

MARK = "PPW_WORKLOAD"
_ANSWER_S = 60.0
# What was being started when ppw died shows up within this time.
_QUIET_S = 0.2
_PATIENCE_S = 10.0
_LOOK_S = 0.02
# MNT_DETACH of umount2(2).
_DETACH = 2


class CleanupProcess:
    """Ends processes, unmounts and removes folders when left, however this process dies.

    Use it as a context manager, or call `close`. Raises `MeasurementError` when its process cannot
    be started.

    Examples
    --------
    >>> with CleanupProcess() as reaper:  # doctest: +SKIP
    ...     scratch = reaper.folder()
    ...     server = subprocess.Popen(["memcached"], env=reaper.environment())
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)
        self._owner = os.getpid()
        self._made: list[tuple[str, str]] = []
        self._closed = False
        self._helper = HelperProcess(
            "measurements.processes.cleanup_process",
            "the process that would clean up",
            f"{MARK}={self._mark}",
        )

    def environment(self) -> dict[str, str]:
        """Return the environment with the mark and no secrets, for what is to be ended."""
        return environment_without_secrets() | {MARK: self._mark}

    def folder(self, inside: Path | None = None) -> Path:
        """Make a folder that will be removed with its content, by default a temporary one."""
        parent = Path(tempfile.gettempdir()) if inside is None else inside.resolve()
        path = self._announce("folder", parent / f"ppw-{self._mark}-{len(self._made)}")
        try:
            path.mkdir(mode=0o700)
        except OSError as error:
            raise MeasurementError(
                f"{parent}: no folder can be made in it: {error.strerror}: name another"
            ) from error
        return path

    def will_mount(self, folder: Path) -> None:
        """Announce a mount on a folder: it will be unmounted, and its loop device freed."""
        self._announce("mount", folder)

    def will_group(self, name: str, parent: Path) -> Path:
        """Announce a control group below ``parent``; returns the folder that is to be made."""
        return self._announce("group", parent / f"ppw-{self._mark}-{name}")

    def close(self) -> None:
        """End all marked processes and remove the folders; a second call does nothing."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        try:
            left = self._ask_helper(reap=True)["left"]
        except MeasurementError:
            self._helper.end(_ANSWER_S)
            left = reap(f"{MARK}={self._mark}".encode(), self._made)
        finally:
            self._helper.end(_ANSWER_S)
        if left:
            raise MeasurementError(
                f"processes {', '.join(map(str, left))} would not end: end them with kill -9"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _announce(self, kind: str, path: Path) -> Path:
        self._ask_helper(**{kind: str(path)})
        self._made.append((kind, str(path)))
        return path

    def _ask_helper(self, **message: Any) -> dict[str, Any]:
        try:
            return self._helper.ask(_ANSWER_S, **message)
        except OSError as error:
            raise MeasurementError(
                f"the cleanup process has ended ({error}): ppw runs nothing without it"
            ) from error


def main() -> None:
    """Clean up after ppw; the argument is the mark."""
    connection, parent, (mark,) = begin_helper()
    os.chdir("/")
    made: list[tuple[str, str]] = []
    for message in messages(connection, parent):
        if "reap" in message:
            break
        made += message.items()
        send(connection, made=len(made))
    send(connection, left=reap(mark.encode(), made))


def reap(mark: bytes, made: list[tuple[str, str]]) -> list[int]:
    """End all processes with the mark and undo what was made; return the pids that remain."""
    quiet_since = time.monotonic()
    until = quiet_since + _PATIENCE_S
    left: list[int] = []
    while time.monotonic() < until:
        left = list(_find_marked_processes(mark))
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if left:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since >= _QUIET_S:
            break
        time.sleep(_LOOK_S)
    for kind, path in reversed(made):
        if kind == "group":
            _remove_control_group(Path(path))
        elif kind == "mount":
            _unmount(path)
        else:
            shutil.rmtree(path, ignore_errors=True)
    return left


def _find_marked_processes(mark: bytes) -> Iterator[int]:
    for entry in os.listdir("/proc"):  # noqa: PTH208  # a Path a process costs as much as reading it
        if entry.isdecimal():
            try:
                content = Path("/proc", entry, "environ").read_bytes()
            except OSError:
                # It has ended, or is another user's.
                continue
            if mark in content.split(b"\0"):
                yield int(entry)


def _remove_control_group(folder: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    while folder.is_dir() and time.monotonic() < until:
        try:
            folder.rmdir()
        except OSError:
            # The kernel has not yet taken its last process off.
            time.sleep(_LOOK_S)


def _unmount(path: str) -> None:
    # Of use to few workloads, and slow to import.
    import ctypes

    # Detached: what still has a file open there, such as a search index, must not keep it.
    ctypes.CDLL(None).umount2(os.fsencode(path), _DETACH)
