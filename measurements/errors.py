"""Errors of reading the world.

PpwError
└── MeasurementError (also a ValueError)
    └── BadRunsError    values of a runs table that cannot be; carries all of them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw_errors import PpwError

if TYPE_CHECKING:
    import pandas as pd

# What reading a document whose parts are of other kinds, or gone, runs into.
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class MeasurementError(PpwError, ValueError):
    """Something that was read is missing, unreadable or cannot be."""


class BadRunsError(MeasurementError):
    """A runs table with values that cannot be.

    Attributes
    ----------
    problems : pandas.DataFrame
        One line a bad value: ``file``, ``row`` (1 is the first below the header), ``column``,
        ``value`` and ``reason``.
    """

    def __init__(self, message: str, problems: pd.DataFrame) -> None:
        super().__init__(message)
        self.problems = problems

    def __reduce__(self) -> tuple[type[BadRunsError], tuple[str, pd.DataFrame]]:
        return type(self), (str(self), self.problems)


def first_line(error: Exception) -> str:
    """First line of what an error of another library says, shortened."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else "unreadable"
