"""Small files of sysfs and procfs; what is not there, or says nothing, is None."""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


# What a column of a host's state may hold.


Value = float | str | bool


# Lists of logical CPUs as the kernel writes them: ``0-3,8``.


_SPAN = re.compile(r"(\d+)(?:-(\d+))?")
# The kernel's own bound of what it can be built for.
_MOST_CPUS = 1 << 16


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Read a list of logical CPUs, in ascending order and each once.

    Parameters
    ----------
    text : str
        Numbers and spans between commas or spaces, as in ``0-3,8`` and ``0 1 2``; "" for none.

    Raises
    ------
    MeasurementError
        When it is no such list.

    Examples
    --------
    >>> parse_cpu_list("0-2,8")
    (0, 1, 2, 8)
    """
    cpus: set[int] = set()
    for part in text.replace(",", " ").split():
        match = _SPAN.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < _MOST_CPUS:
            raise MeasurementError(f"{text.strip()!r} is no list of CPUs: write one such as 0-3,8")
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
    """Text of a file without white space around it; None where it is empty or unreadable."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The firmware's strings end with NUL.
    return text.strip("\0 \t\r\n") or None


def read_field(path: Path) -> str:
    """Text as `read_text` gives it; empty where there is none."""
    return read_text(path) or ""


def read_lines(path: Path) -> list[str]:
    """Lines of a file; none where it is unreadable."""
    return read_field(path).splitlines()


def read_number(path: Path, scale: float = 1.0) -> float | None:
    """Finite number in a file, times ``scale``; None for "<unknown>" and the like."""
    try:
        number = float(read_field(path))
    except ValueError:
        return None
    return number * scale if math.isfinite(number) else None


def read_flag(path: Path) -> bool | None:
    """Whether a file says 1, Y or y, and not 0, N or n; None where it says neither."""
    return {"0": False, "n": False, "1": True, "y": True}.get(read_field(path).lower())


def read_cpus(path: Path) -> frozenset[int]:
    """Logical CPUs, or nodes, that a file lists; none where it has no list."""
    try:
        return frozenset(parse_cpu_list(read_field(path)))
    except MeasurementError:
        return frozenset()


def shared_text(values: Iterable[str | None]) -> str | None:
    """Text that all CPUs share, or each of several in turn; None where none has one."""
    return ", ".join(sorted({value for value in values if value is not None})) or None


# Numbers in files of sysfs, read once or many times; `measurements.host.files` has texts.


_LONGEST = 64


class NumberFile:
    """One integer in a file that stays open between readings.

    The kernel makes the figure anew for every read at offset 0. A file that fails is opened once
    more, since a driver that was loaded again has new files under the same names.

    Attributes
    ----------
    path : Path
        Where the file is.
    problem : str
        Why the last reading gave no number; empty where it did.
    denied : bool
        Whether it was for lack of permission.
    """

    __slots__ = ("_descriptor", "denied", "path", "problem")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self.denied = False
        self._descriptor = -1

    def read(self) -> int | None:
        """Return the number, or None where there is none to be had now."""
        if self._descriptor >= 0:
            try:
                return int(os.pread(self._descriptor, _LONGEST, 0))
            except (OSError, ValueError):
                self.close()
        return self._read_anew()

    def _read_anew(self) -> int | None:
        self.problem, self.denied = "", False
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY)
            return int(os.pread(self._descriptor, _LONGEST, 0))
        except PermissionError as error:
            self.problem, self.denied = f"{error.strerror}", True
        except OSError as error:
            self.problem = f"{error.strerror}"
        except ValueError:
            self.problem = "it holds no number"
        self.close()
        return None

    @property
    def remedy(self) -> str:
        """What to do where the file may not be read; empty where it may."""
        return f"not readable: sudo chmod a+r {self.path}" if self.denied else ""

    def close(self) -> None:
        """Close the file; the next reading opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def number(path: Path) -> int | None:
    """Integer in a small file; None where there is none or the driver has no figure for it."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
