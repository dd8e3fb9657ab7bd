"""What may come of an input: a result, or the package's own error in one line. Nothing else."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

from click import ClickException

from fitting.errors import FittingError
from measurements.errors import MeasurementError
from ppw.errors import CaveatWarning, PpwError
from ppw.names import printable

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = (MeasurementError, FittingError, PpwError, ClickException)
# Longer ones bury what they say, unless it is what the user typed.
LONGEST = 4000


class FaultError(AssertionError):
    """An error that is ours, and not as it should be."""


def be_strict() -> None:
    """Let every warning but our own be an error."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", CaveatWarning)


def _as_printed(error: ClickException) -> str:
    said = io.StringIO()
    error.show(said)
    return printable(error.message) or said.getvalue().split("\n")[0]


def judged(read: Callable[[bytes], object], data: bytes, where: str = "") -> str | None:
    """Read an input: what was said of it, or None where there is a result.

    Parameters
    ----------
    read : callable
    data : bytes
    where : str
        What an error must name.

    Raises
    ------
    FaultError
        For a message that has no text, several lines or too many characters, or does not say
        where.
    Exception
        For everything that is not ours, as it was raised.
    """
    try:
        read(data)
    except OURS as error:
        most = 10 * LONGEST if isinstance(error, ClickException) else LONGEST
        said = _as_printed(error) if isinstance(error, ClickException) else str(error)
    else:
        return None
    # What else does not print is spelt where it is shown.
    if not said.strip() or "\n" in said or len(said) > most:
        raise FaultError(f"no single line, or a long one, of {len(said)}: {said[:300]!r}")
    if where not in said:
        raise FaultError(f"names no {where!r}: {said[:300]!r}")
    return said
