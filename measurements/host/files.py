"""Small files of sysfs and procfs; what is not there, or says nothing, is None."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from measurements.cpu_lists import parse_cpu_list
from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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
