"""Errors of reading the world.

PpwError
└── MeasurementError (also a ValueError)
    └── BadRunsError    values of a runs table that cannot be; carries all of them
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ppw_errors import PpwError

if TYPE_CHECKING:
    import pandas as pd

# What reading a document whose parts are of other kinds, or gone, runs into.
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


# Optional libraries, as they are imported, by the extra of the distribution that installs them.
EXTRAS = {
    "measure": ("pyghmi", "pynvml", "pyRAPL", "pyvisa", "pyvisa_py", "requests", "rich", "urllib3"),
    "traces": ("numba", "pyarrow", "skchange"),
    "plots": ("matplotlib", "vl_convert"),
    "procure": ("jsonschema",),
    "estimators": ("sklearn", "statsmodels"),
    "fleet": ("duckdb", "ibis"),
    "spark": ("pyspark",),
    "data": ("pooch",),
    "simulate": ("rvsim",),
    "xlsx": ("openpyxl",),
}


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


def install_command(library: str) -> str:
    """Return the command that installs an optional library; "" for any other library.

    >>> install_command("numba")
    "pip install 'perf-per-watt[traces]'"
    """
    found = (extra for extra, libraries in EXTRAS.items() if library in libraries)
    return next((f"pip install 'perf-per-watt[{extra}]'" for extra in found), "")


@contextmanager
def naming_extra(who: str) -> Iterator[None]:
    """Say in the error of a missing optional library who needs it and how to install it.

    ``who`` is a phrase for people ("a plot"), or a dotted name of Python, which gives way to the
    command that used it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name_extra(error, who)
        raise


def name_extra(error: ModuleNotFoundError, who: str) -> None:
    """Write into an error who needs the missing optional library, as `naming_extra` does."""
    library = (error.name or "").partition(".")[0]
    command = install_command(library)
    subject, _, rest = (error.msg or "").partition(" needs ")
    if command and not (rest.endswith(command) and " " in subject):
        error.msg = f"{who} needs {library}: {command}"


class LateModule:
    """A module of an optional library that is imported when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        """Import the module, and get an attribute of it."""
        return getattr(importlib.import_module(self._name), attribute)


def require_pyarrow() -> None:
    """Raise `ModuleNotFoundError` with how to install pyarrow, which pandas' own does not name."""
    with naming_extra("a Parquet file"):
        importlib.import_module("pyarrow")


@contextmanager
def on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Undo what was begun if the block raises, in whatever way."""
    try:
        yield
    except BaseException:
        undo()
        raise


def first_line(error: Exception) -> str:
    """First line of what an error of another library says, shortened."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else "unreadable"
