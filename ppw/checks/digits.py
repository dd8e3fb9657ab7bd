"""To how many digits a number was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray

MOST_DIGITS = 12
# Reading a decimal and converting its unit costs a few units of the last binary place.
BINARY = 4e-15


def recorded_step(values: FloatArray) -> FloatArray:
    """Step of the last decimal digit that each number is written with, in the number's unit.

    237.788 has a step of 0.001, and 3.4e9 one of 1e8: zeros at the end do not count, since nobody
    can tell whether they were measured. Beyond twelve digits a number counts as having twelve.

    >>> recorded_step(np.array([237.788, 3.4e9])).tolist()
    [0.001, 100000000.0]
    """
    size = np.floor(np.log10(np.where(values == 0, 1.0, np.abs(values))))
    step = 10.0 ** (size - MOST_DIGITS + 1)
    for digits in range(MOST_DIGITS - 1, 0, -1):
        place = 10.0 ** (size - digits + 1)
        scaled = np.abs(values) / place
        whole = np.abs(scaled - np.rint(scaled)) <= BINARY * scaled
        step = np.where(whole, place, step)
    return step


def all_digits(value: float) -> str:
    """Write a number with the digits that it was recorded with, twelve at most.

    >>> all_digits(237.788)
    '237.788'
    """
    return f"{value:.12g}"
