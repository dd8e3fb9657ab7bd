"""Read small files of sysfs and procfs; open files for writing where others may plant links.

Of sysfs and procfs, what is missing or says nothing is None.
"""

import errno
import fcntl
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from measurements.errors import MeasurementError

# What a column of the host's state may hold.
Value = float | str | bool

_SPAN = re.compile(r"(\d{1,99})(?:-(\d{1,99}))?")
# The kernel cannot be built for more CPUs.
_MOST_CPUS = 1 << 16
_LONGEST_NUMBER = 64
_MOST_LINKS = 40  # as in the kernel


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parse a list of logical CPUs, such as ``0-3,8`` or ``0 1 2``; ascending, each CPU once.

    Raises `MeasurementError` for any other text.

    >>> parse_cpu_list("0-2,8")
    (0, 1, 2, 8)
    """
    cpus: set[int] = set()
    for part in text.replace(",", " ").split():
        match = _SPAN.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < _MOST_CPUS:
            raise MeasurementError(
                f"{text.strip()!r} is not a list of CPUs: write one like this: 0-3,8"
            )
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def cpu_list_text(cpus: Iterable[int]) -> str:
    """Write logical CPUs as the kernel does.

    >>> cpu_list_text([8, 0, 1, 2])
    '0-2,8'
    """
    spans: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if spans and spans[-1][1] == cpu - 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def read_text(path: Path) -> str | None:
    """Read a file without surrounding white space; None where it is empty or unreadable."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The firmware's strings end with NUL.
    return text.strip("\0 \t\r\n") or None


def read_field(path: Path) -> str:
    """Read a file as `read_text` does; "" where there is no text."""
    return read_text(path) or ""


def read_lines(path: Path) -> list[str]:
    """Read the lines of a file; none where it is unreadable."""
    return read_field(path).splitlines()


def read_number(path: Path, scale: float = 1.0) -> float | None:
    """Read a finite number, times ``scale``; None for "<unknown>" and the like."""
    try:
        value = float(read_field(path))
    except ValueError:
        return None
    return value * scale if math.isfinite(value) else None


def read_numbers(paths: Iterable[Path], scale: float = 1.0) -> list[float]:
    """Read the numbers of those files that hold one."""
    values = (read_number(path, scale) for path in paths)
    return [value for value in values if value is not None]


def read_flag(path: Path) -> bool | None:
    """Read a switch: 1, Y or y is True; 0, N or n is False; anything else None."""
    return {"0": False, "n": False, "1": True, "y": True}.get(read_field(path).lower())


def cpus_in(text: str) -> frozenset[int]:
    """Parse a list of logical CPUs or nodes; empty for any other text."""
    try:
        return frozenset(parse_cpu_list(text))
    except MeasurementError:
        return frozenset()


def read_cpus(path: Path) -> frozenset[int]:
    """Read a list of logical CPUs or nodes; empty where the file has none."""
    return cpus_in(read_field(path))


def read_pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Read lines of the form ``key: value``."""
    for line in read_lines(path):
        key, _, value = line.partition(":")
        yield key.strip(), value.strip()


def first_pairs(path: Path) -> dict[str, str]:
    """Read lines of the form ``key: value`` by key; of a key that comes again, the first holds."""
    return dict(reversed([*read_pairs(path)]))


def memory_bytes(procfs: Path, name: str = "MemTotal") -> float | None:
    """Read a size of /proc/meminfo (B); None where the kernel does not tell."""
    amount, _, unit = first_pairs(procfs / "meminfo").get(name, "").partition(" ")
    return int(amount) * 1024.0 if amount.isdecimal() and unit == "kB" else None


def read_counts(path: Path) -> dict[str, int]:
    """Read lines of the form ``name count``, as control groups have them; others are left out."""
    pairs = (line.split() for line in read_lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def shared_text(paths: Iterable[Path]) -> str | None:
    """Read the text that all files share, or each of several texts; None where none has one."""
    return ", ".join(sorted({text for path in paths if (text := read_text(path))})) or None


def without_missing(columns: Mapping[str, Value | None]) -> dict[str, Value]:
    """Drop the columns that the host does not tell."""
    return {column: value for column, value in columns.items() if value is not None}


class NumberFile:
    """One integer in a file that stays open between readings.

    The kernel makes the figure anew for every read at offset 0. A file that fails is opened once
    more, since a driver that was loaded again has new files under the same names. ``problem`` says
    why the last reading gave no number ("" where it did), ``denied`` whether the permission was
    missing.
    """

    __slots__ = ("_descriptor", "denied", "path", "problem")

    def __init__(self, path: Path) -> None:
        self.path, self.problem, self.denied = path, "", False
        self._descriptor = -1

    def read(self) -> int | None:
        """Read the number; None where the file has none now."""
        if self._descriptor >= 0:
            try:
                return int(os.pread(self._descriptor, _LONGEST_NUMBER, 0))
            except (OSError, ValueError):
                self.close()
        return self._reopen_and_read()

    def _reopen_and_read(self) -> int | None:
        self.problem, self.denied = "", False
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY)
            return int(os.pread(self._descriptor, _LONGEST_NUMBER, 0))
        except OSError as error:
            self.problem, self.denied = f"{error.strerror}", isinstance(error, PermissionError)
        except ValueError:
            self.problem = "it holds no number"
        self.close()
        return None

    @property
    def remedy(self) -> str:
        """How to make the file readable; empty where it is."""
        return f"not readable: sudo chmod a+r {self.path}" if self.denied else ""

    def close(self) -> None:
        """Close the file; the next reading opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def open_for_writing(
    path: Path, mode: str = "wb", *, private: bool = False, pipe: bool = False, **text: Any
) -> IO[Any]:
    """Open a file, new or old, for writing in a folder that other users may write to.

    A link in its place is never followed, one on the way only if root or this user made it. An old
    file must have no second name and belong to this user or to the owner of its folder. A
    ``private`` new file is for this user only; ``pipe`` also allows a named pipe. Raises `OSError`.
    """
    # A pipe without a reader must not hold up whoever expects a file.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    flags |= (0 if pipe else os.O_NONBLOCK) | (os.O_APPEND if "a" in mode else 0)
    try:
        with _open_folder(path.parent) as folder:
            new = os.open(path.name, flags, 0o600 if private else 0o666, dir_fd=folder)
            owners = {os.geteuid(), os.fstat(folder).st_uid}
        with ExitStack() as closing:
            file, status = closing.enter_context(os.fdopen(new, mode, **text)), os.fstat(new)
            regular = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
            ours = regular or (pipe and stat.S_ISFIFO(status.st_mode))
            if not ours or status.st_uid not in owners:
                raise PermissionError(
                    errno.EPERM, "what is in its place is not a file of yours: remove it"
                )
            if regular and "w" in mode:
                os.ftruncate(new, 0)
            closing.pop_all()
        return file
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        reason = "a link is in its place: remove it" if is_link else error.strerror
        raise OSError(error.errno, reason, str(path)) from error


def hold_lock(path: Path) -> IO[bytes]:
    """Lock a file, new or old, until it is closed or this process ends, however it ends.

    Raises `BlockingIOError`, whose ``strerror`` names the process, while another one holds it.
    """
    file: IO[bytes] = open_for_writing(path, "ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise type(error)(error.errno, f"process {read_text(path) or 'unknown'}") from None
    file.truncate(0)
    file.write(str(os.getpid()).encode())
    file.flush()
    return file


def make_folder(path: Path) -> None:
    """Make a folder and those around it; one that is there must be root's or this user's."""
    if not path.parent.exists():
        make_folder(path.parent)
    with _open_folder(path.parent) as parent:
        try:
            os.mkdir(path.name, dir_fd=parent)
        except FileExistsError:
            _check_owner(os.stat(path.name, dir_fd=parent, follow_symlinks=False), path.name)


@contextmanager
def _open_folder(path: Path, links: int = _MOST_LINKS) -> Iterator[int]:
    """Open a folder component by component, so that no link is put there between look and use."""
    here, (root, *parts) = os.open("/", os.O_PATH), path.absolute().parts
    with ExitStack() as closing:
        closing.callback(os.close, here)
        for at, part in enumerate(parts):
            here = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            closing.callback(os.close, here)
            if stat.S_ISLNK((status := os.fstat(here)).st_mode):
                _check_owner(status, part)
                if not links:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                there = Path(root, *parts[:at], os.readlink("", dir_fd=here), *parts[at + 1 :])
                here = closing.enter_context(_open_folder(there, links - 1))
                break
        yield here


def _check_owner(status: os.stat_result, name: str) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise PermissionError(
            errno.EPERM,
            f"{name} is a link or folder of user id {status.st_uid}: remove it, or give another",
        )
