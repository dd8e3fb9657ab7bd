"""Lists of logical CPUs as the kernel writes them: ``0-3,8``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterable

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
