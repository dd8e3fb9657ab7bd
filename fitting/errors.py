"""Errors of the mathematics.

PpwError
└── FittingError (also a ValueError)
    └── OutOfRangeError a model is asked for a point at which it has no answer
"""

from __future__ import annotations

from ppw_errors import PpwError


class FittingError(PpwError, ValueError):
    """The numbers given cannot be fitted, or the fit cannot answer."""


class OutOfRangeError(FittingError):
    """The model has no answer there: at or below a pole, or past its positive range."""
