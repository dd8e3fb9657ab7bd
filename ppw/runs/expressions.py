"""Rules of the runs table are written once, for numpy arrays and for columns of an engine alike.

Both overload the operators, so that a rule is a function of columns: memory evaluates it, and an
engine compiles it to SQL. Here is what the two spell differently.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable


# An array, or an ibis column: no common type has the operators of both.
Values = Any


def choose(condition: Values, yes: Values, no: Values) -> Values:
    """Take one value where a condition holds and another where it does not."""
    in_memory = isinstance(condition, np.ndarray)
    return np.where(condition, yes, no) if in_memory else condition.ifelse(yes, no)


def absolute(values: Values) -> Values:
    """Take the absolute value."""
    return np.abs(values) if isinstance(values, np.ndarray) else values.abs()


def first_given(values: Values, *others: Values) -> Values:
    """Take the first of several values that is not missing."""
    for other in others:
        in_memory = isinstance(values, np.ndarray)
        values = choose(np.isnan(values), other, values) if in_memory else values.coalesce(other)
    return values


def any_of(conditions: Iterable[Values]) -> Values:
    """Tell where one of several conditions holds."""
    return reduce(or_, conditions)
