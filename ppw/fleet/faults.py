"""What could not be used of a fleet's files: named, while the rest is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Fault(NamedTuple):
    """One thing that could not be used: the file it is in, and what is wrong with it."""

    file: str
    what: str

    def __str__(self) -> str:
        """Line for people."""
        return f"{self.file}: {self.what}"


class UnusableFilesError(PpwError):
    """No file of a fleet can be used; ``faults`` say why, file by file."""

    def __init__(self, name: str, faults: Sequence[Fault]) -> None:
        super().__init__(
            f"{name}: none of {len(faults)} files can be used, such as {faults[0]}"
            if len(faults) > 1
            else str(faults[0])
        )
        self.faults = tuple(faults)


def first_line(error: Exception) -> str:
    """First line of an engine's message, without the trace that follows and its full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = "".join(c if c.isprintable() else "?" for c in lines[0]) if lines else ""
    return text[:300].rstrip(".: ") or type(error).__name__
