"""Errors and warnings of the answers.

PpwError (Exception)
├── MeasurementError    what was read is missing, unreadable or cannot be
├── FittingError        what was given cannot be fitted
├── UnknownColumnError  a column or metric that the table does not hold
└── UnknownHostError    a machine that the catalogue does not hold

CaveatWarning (UserWarning)   a number that could mislead; also in the result's ``caveats``
"""

from __future__ import annotations

from ppw_errors import PpwError as PpwError


class UnknownColumnError(PpwError):
    """A column or metric that the table does not hold."""


class UnknownHostError(PpwError):
    """A machine that the host catalogue does not hold."""


class CaveatWarning(UserWarning):
    """A physical or statistical reason to read a number with care.

    Every question warns with each entry of its result's ``caveats``.
    """
