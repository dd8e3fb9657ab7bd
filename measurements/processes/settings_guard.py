"""Everything that is changed on the host is put back on every way out, a killed ppw included.

A small process beside ppw, the guard, knows each setting before it is changed and restores all of
them when it is told to, or when ppw is gone. Before ppw changes anything it says to the guard what
has to be put back, and waits until that is on disk: ``{"learn": [[path, value], …]}`` or
``{"release": true}``, as JSON lines.

The disk keeps the settings in a journal, for the case that the guard is killed too. A journal is a
file of JSON lines that only grows: first whose it is, then a line for each setting. It is deleted
when all is restored. The next start puts back those that are left, whose processes are dead and
whose kernel still runs.

The guard imports this module and must start at once: only small modules of the standard library
here.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from measurements.errors import MeasurementError, on_error
from measurements.processes.helper_process import HelperProcess, begin_helper, messages, send

# The host's own folder of what may be changed: two ppw on one host are one too many.
HOST_LOCK = Path("/sys/devices/system/cpu")
LOWER_LIMIT = "scaling_min_freq"
UPPER_LIMIT = "scaling_max_freq"
GOVERNOR = "scaling_governor"
SPEED = "scaling_setspeed"

_TURBO = ("no_turbo", "boost", "cpb")
_ORDER = {GOVERNOR: 3, LOWER_LIMIT: 4, UPPER_LIMIT: 4, SPEED: 5}
# They show what holds now, which may be less than what was set: reading the right value is no
# proof that it was set.
_ALWAYS_WRITTEN = (LOWER_LIMIT, UPPER_LIMIT, SPEED)
_ATTEMPTS = 3
_PAUSE_S = 0.05
_ANSWER_S = 60.0
_RESTORED_S = 60.0


class HostSetting(NamedTuple):
    """A file and the text that it is to hold."""

    path: Path
    value: str


class RestoreFailure(NamedTuple):
    """A setting that could not be put back, and why."""

    path: Path
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} should be {self.value!r}: {self.reason}"


class Guard:
    """Restores settings of the kernel when left, and when this process dies in any way.

    Use it as a context manager, or call `release`. There is one guard at a time of a folder
    ``lock``. ``state`` is the folder of the journals that the next start reads if the guard is
    killed too; by default `state_folder`. ``restored`` is what a killed ppw had left, and this one
    has put back as it started; ``journal`` is the file with what will be put back, which exists
    until that is done. Raises `MeasurementError` when another ppw is at work here, what a killed
    one has left cannot be put back, or the guard cannot be started.

    Examples
    --------
    >>> with Guard() as guard:  # doctest: +SKIP
    ...     guard.change(Path("/sys/devices/system/cpu/intel_pstate/no_turbo"), "1", was="0")
    """

    def __init__(self, *, lock: Path = HOST_LOCK, state: Path | None = None) -> None:
        self._owner = os.getpid()
        self._settings: dict[Path, HostSetting] = {}
        self._released = False
        folders = str(state or state_folder()), str(lock)
        self._helper = HelperProcess("measurements.processes.settings_guard", "the guard", *folders)
        with on_error(partial(self._helper.end, _ANSWER_S)):
            answer = self._helper.answer(_ANSWER_S)
            _raise_refusal(answer, lock)
        self.journal = Path(answer["journal"])
        self.restored = tuple(HostSetting(Path(path), value) for path, value in answer["restored"])

    @property
    def pid(self) -> int:
        """Number of the guard's process."""
        return self._helper.process.pid

    def learn(self, settings: Iterable[tuple[Path, str]]) -> None:
        """Tell the guard files and their present texts, which are then on disk, before a change."""
        new: dict[Path, HostSetting] = {}
        for path, value in settings:
            if path not in self._settings:
                new.setdefault(path, HostSetting(path, value))
        if not new:
            self.check()
            return
        self._refuse_released()
        try:
            answer = self._helper.ask(_ANSWER_S, learn=list(new.values()))
        except OSError as error:
            raise self._lost_guard_error(str(error)) from error
        if "error" in answer:
            raise MeasurementError(
                "ppw changes nothing, because it cannot save the original "
                f"settings: {answer['error']}: make room there"
            )
        self._settings |= new

    def change(
        self, path: Path, value: str, *, was: str | None = None, goes_with: Path | None = None
    ) -> None:
        """Write a setting whose present text the guard knows, or learns now as ``was``.

        ``goes_with`` is a known setting that undoes this one when it is put back. Raises
        `MeasurementError` when the guard is gone or does not know what to put back, and OSError
        when the kernel refuses.
        """
        if was is not None:
            self.learn([(path, was)])
        self.check()
        if (goes_with or path) not in self._settings:
            raise MeasurementError(f"{path} is not changed, as no process would restore it")
        write_setting(path, value)

    def check(self) -> None:
        """Raise `MeasurementError` when the guard is gone; then all is put back already."""
        self._refuse_released()
        if self._helper.process.poll() is not None:
            raise self._lost_guard_error("it was killed")

    def release(self) -> list[RestoreFailure]:
        """Put everything back, once, and not in a forked copy; return what could not be."""
        if self._released or os.getpid() != self._owner:
            return []
        self._released = True
        try:
            unrestored = _parse_failures(self._helper.ask(_RESTORED_S, release=True)["released"])
        except (OSError, KeyError):
            return self._restore_here()
        self._helper.end(_ANSWER_S)
        return unrestored

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if unrestored := self.release():
            raise MeasurementError(not_restored(unrestored))

    def _lost_guard_error(self, why: str) -> MeasurementError:
        """Put everything back without the guard; returns the error that says so."""
        self._released = True
        unrestored = self._restore_here()
        outcome = not_restored(unrestored) if unrestored else "all settings are put back"
        return MeasurementError(
            f"the process that restores settings ({self.pid}) ended ({why}), so ppw stopped "
            f"measuring; {outcome}"
        )

    def _restore_here(self) -> list[RestoreFailure]:
        self._helper.end(_ANSWER_S)
        unrestored = restore(self._settings.values())
        if not unrestored:
            with suppress(OSError):
                self.journal.unlink(missing_ok=True)
        return unrestored

    def _refuse_released(self) -> None:
        if self._released:
            raise MeasurementError("the settings are already restored: make a new Guard")


def state_folder() -> Path:
    """Make the folder of the guards' journals, open to this user only.

    ``/run/ppw`` for root, else ``ppw`` in ``$XDG_RUNTIME_DIR``, else one in the folder of temporary
    files. Raises `MeasurementError` when it belongs to somebody else.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    user = os.geteuid()
    if user == 0 and os.access("/run", os.W_OK):
        return _make_private_folder(Path("/run/ppw"))
    if runtime and os.access(runtime, os.W_OK):
        return _make_private_folder(Path(runtime, "ppw"))
    return _make_private_folder(Path(tempfile.gettempdir(), f"ppw-{user}"))


def _make_private_folder(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise MeasurementError(f"{folder}: cannot be made: {error.strerror}") from error
    if folder.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise MeasurementError(
            f"{folder} belongs to somebody else or is open to others: remove it, "
            "because ppw saves the original settings there"
        )
    return folder


def _raise_refusal(answer: dict[str, Any], lock: Path) -> None:
    """Raise what the guard said instead of starting."""
    if "busy" in answer:
        whose = f"process {answer['busy']}" if answer["busy"] else "another process"
        raise MeasurementError(
            f"another ppw is already changing settings under {lock} "
            f"({whose}): wait until it has ended, or stop it"
        )
    if "left" in answer:
        left = not_restored(_parse_failures(answer["left"]))
        raise MeasurementError(
            f"a killed ppw has left settings: {left}, then remove {answer['journal']}"
        )
    if "error" in answer:
        raise MeasurementError(f"the guard cannot start: {answer['error']}")


def _parse_failures(answer: list[list[str]]) -> list[RestoreFailure]:
    return [RestoreFailure(Path(path), value, reason) for path, value, reason in answer]


def not_restored(unrestored: Iterable[RestoreFailure]) -> str:
    """Say what is not as it was, and what to do."""
    return "not put back: " + "; ".join(map(str, unrestored)) + ": write these yourself, as root"


def restore(settings: Iterable[HostSetting]) -> list[RestoreFailure]:
    """Put settings back, in three attempts; returns those that are not what they should be.

    A setting whose file is gone, as that of a CPU that was taken offline, is among them. The
    kernel accepts the order at every step: turbo first, since it decides how far the limits reach;
    then the governor; then the limits, the lower one never above the upper; then the speed, which
    only one governor takes and only within the limits.
    """
    ordered = sorted(settings, key=lambda setting: _restore_rank(setting.path))
    left: list[RestoreFailure] = []
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_S)
        errors = _write_all(ordered)
        left = [found for setting in ordered if (found := _compare_with_file(setting, errors))]
        if not left:
            break
    return left


def _restore_rank(path: Path) -> int:
    if path.name in _TURBO:
        # A switch for all CPUs sets those of the policies too, so theirs come after it.
        return 1 if path.parent.name.startswith("policy") else 0
    return _ORDER.get(path.name, 2)


def _write_all(ordered: Sequence[HostSetting]) -> dict[Path, str]:
    """Write all, each pair of limits in its order; returns the errors by path."""
    values = dict(ordered)
    errors: dict[Path, str] = {}
    done: set[Path] = set()
    for setting in ordered:
        due: Sequence[HostSetting] = [setting]
        folder, name = setting.path.parent, setting.path.name
        if name in (LOWER_LIMIT, UPPER_LIMIT):
            lower, upper = values.get(folder / LOWER_LIMIT), values.get(folder / UPPER_LIMIT)
            if lower is not None and upper is not None:
                due = limits_in_order(folder, lower, upper, setting_or_none(folder / UPPER_LIMIT))
        for one in due:
            if one.path not in done:
                done.add(one.path)
                _try_writing(one, errors)
    return errors


def limits_in_order(
    folder: Path, lower: str, upper: str, upper_now: str | None
) -> tuple[HostSetting, HostSetting]:
    """Order the writes of a policy's two limits (kHz) so that they never cross."""
    low, high = HostSetting(folder / LOWER_LIMIT, lower), HostSetting(folder / UPPER_LIMIT, upper)
    try:
        rises = int(lower) > int(upper_now or "")
    except ValueError:
        rises = False
    return (high, low) if rises else (low, high)


def _try_writing(setting: HostSetting, errors: dict[Path, str]) -> None:
    """Write a setting unless it is there already; put an error into ``errors``."""
    try:
        always = setting.path.name in _ALWAYS_WRITTEN
        if always or read_setting(setting.path) != setting.value:
            write_setting(setting.path, setting.value)
    except OSError as error:
        errors[setting.path] = error.strerror or str(error)


def _compare_with_file(setting: HostSetting, errors: dict[Path, str]) -> RestoreFailure | None:
    """Return a failure where a file does not hold its setting; None where it does."""
    try:
        now = read_setting(setting.path)
    except OSError as error:
        return RestoreFailure(*setting, f"cannot be read: {error.strerror}")
    if now == setting.value:
        return None
    refusal = f", and refuses: {errors[setting.path]}" if setting.path in errors else ""
    return RestoreFailure(*setting, f"it is {now!r}{refusal}")


def read_setting(path: Path) -> str:
    """Read a setting without the line's end. Raises OSError."""
    return path.read_bytes().decode(errors="replace").strip()


def setting_or_none(path: Path) -> str | None:
    """Read a setting, or None where it cannot be read."""
    try:
        return read_setting(path)
    except OSError:
        return None


def write_setting(path: Path, value: str) -> None:
    """Write a setting, in one write as the kernel wants it. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, f"{value}\n".encode())
    finally:
        os.close(descriptor)


# Here begins what the guard's own process does.


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
        self._append_lines([owners._asdict()])
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def add(self, settings: Iterable[HostSetting]) -> None:
        """Write settings to the disk. Raises OSError."""
        self._append_lines([setting._asdict() for setting in settings])

    def fail(self, reasons: Iterable[str]) -> None:
        """Note what could not be put back, for the reader of the file. Raises OSError."""
        self._append_lines([{"unrestored": reason} for reason in reasons])

    def delete(self) -> None:
        """Delete it: all is restored."""
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)

    def _append_lines(self, lines: Iterable[dict[str, Any]]) -> None:
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
    guard that was killed before anything was changed: it is deleted too, as is that of the dead
    about files that are gone.
    """
    boot = boot_id()
    for path in sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}")):
        found = _read_journal(path)
        if found and found.owners.boot == boot and not _is_moot(found):
            yield found
        elif found or _begun_by_the_dead(path):
            path.unlink(missing_ok=True)


def _is_moot(journal: LeftJournal) -> bool:
    owners = journal.owners
    files = (owners.lock, *(setting.path for setting in journal.settings))
    is_owned = owners.guard.lives() or owners.parent.lives()
    return not is_owned and not any(path.exists() for path in files)


def _read_journal(path: Path) -> LeftJournal | None:
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
    return LeftJournal(
        path, owners, [setting for line in rest[:-1] if (setting := _to_setting(line))]
    )


def _to_setting(line: str) -> HostSetting | None:
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
    """Guard the settings that ppw changes; arguments are the state folder and the lock."""
    connection, parent, (folder, lock) = begin_helper()
    os.chdir("/")
    # Ask the kernel to kill anything else first when memory runs out; only root may.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-1000")
    try:
        _guard_until_released(connection, parent, Path(folder), Path(lock))
    except RefusalError as refusal:
        send(connection, **refusal.answer)
    except OSError as error:
        send(connection, error=f"{error.filename or folder}: {error.strerror}")


def _guard_until_released(connection: socket.socket, parent: int, folder: Path, lock: Path) -> None:
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
            _learn_settings(connection, journal, settings, message["learn"])
    finally:
        unrestored = restore(settings.values())
        if unrestored:
            with suppress(OSError):
                journal.fail(map(str, unrestored))
        else:
            journal.delete()
        send(connection, released=unrestored)


def _learn_settings(
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
    """Lock what is guarded; returns the descriptor that has the lock, or raises `RefusalError`."""
    descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    until = time.monotonic() + _LOCK_WAIT_S
    while True:
        # The owners of a journal of this lock, one of whom still lives.
        owners = (found.owners for found in journals(folder) if found.owners.lock == lock)
        user = next((o for o in owners if o.parent.lives() or o.guard.lives()), None)
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
