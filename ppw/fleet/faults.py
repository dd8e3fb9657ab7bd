"""What could not be used of a fleet's files: named, while the rest is done."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """One thing that could not be used: the file it is in, and what is wrong with it."""

    file: str
    what: str

    def __str__(self) -> str:
        """Line for people."""
        return f"{self.file}: {self.what}"


def first_line(error: Exception) -> str:
    """First line of an engine's message, without the trace that follows."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
