"""Arguments as callers give them: frequencies with units, numbers that must be positive, names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from measurements.table.units import implausible_frequency, parse_frequency
from ppw.errors import PpwError


def as_frequency(freq: float | str) -> float:
    """Read a frequency given as a number (Hz) or as text with a unit ("3.0GHz")."""
    if isinstance(freq, str):
        return parse_frequency(freq)
    value = as_number("frequency", freq)
    if reason := implausible_frequency(value):
        raise PpwError(f"frequency {freq!r}: {reason}")
    return value


def as_frequencies(freq: float | str | Iterable[float | str]) -> list[float]:
    """Read one frequency or several, also as one text ("1.2GHz,1.6GHz"); each is kept once."""
    if isinstance(freq, str):
        freq = freq.split(",")
    given = list(freq) if isinstance(freq, Iterable) else [freq]
    if not given:
        raise PpwError("no frequency was given")
    return list(dict.fromkeys(map(as_frequency, given)))


def as_number(name: str, value: Any) -> float:
    """Read a finite number."""
    # A numpy number is a Real too; a text with digits is none, as its unit is not known.
    if not isinstance(value, Real) or not np.isfinite(float(value)):
        raise PpwError(f"{name} {value!r} is not a finite number")
    return float(value)


def as_positive(name: str, value: Any) -> float:
    """Read a finite number greater than zero."""
    number = as_number(name, value)
    if number <= 0:
        raise PpwError(f"{name} {value!r} must be greater than 0")
    return number


def as_share(name: str, value: float) -> float:
    """Check a share inside (0, 1), such as a level. Raises `PpwError`."""
    if not 0 < value < 1:
        raise PpwError(f"{name} {value!r} is not a share between 0 and 1; try 0.90")
    return float(value)


def as_whole(name: str, value: Any, least: int = 1) -> int:
    """Check a whole number of at least ``least``. Raises `PpwError`."""
    # True is an int to Python, and never a count to a caller.
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise PpwError(f"{name} {value!r} is not a whole number of at least {least}")
    return int(value)


def as_names(names: str | Iterable[str]) -> list[str]:
    """Read one name or several; each is kept once."""
    return list(dict.fromkeys([names] if isinstance(names, str) else names))


def check_choice(what: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        raise PpwError(f"{what} {value!r} is not one of {', '.join(choices)}")
