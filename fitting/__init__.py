"""Pure mathematics: arrays in, fitted models out; no files, no clocks, no printing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# At once, not by __getattr__: its module has the same name and would take its place.
from fitting.execution_time import execution_time

if TYPE_CHECKING:
    from fitting.errors import FittingError, OutOfRangeError
    from fitting.estimators import (
        AmdahlRegression,
        CmosPower,
        LinearPower,
        LogPathLength,
        ReciprocalRegression,
    )
    from fitting.scaling import AmdahlScaling, ErnestScaling, UniversalScalability

_HOME = {
    "AmdahlRegression": "estimators",
    "AmdahlScaling": "scaling",
    "CmosPower": "estimators",
    "ErnestScaling": "scaling",
    "FittingError": "errors",
    "LinearPower": "estimators",
    "LogPathLength": "estimators",
    "OutOfRangeError": "errors",
    "ReciprocalRegression": "estimators",
    "UniversalScalability": "scaling",
}

__all__ = [
    "AmdahlRegression",
    "AmdahlScaling",
    "CmosPower",
    "ErnestScaling",
    "FittingError",
    "LinearPower",
    "LogPathLength",
    "OutOfRangeError",
    "ReciprocalRegression",
    "UniversalScalability",
    "execution_time",
]


def __getattr__(name: str) -> Any:
    # Estimators bring in scikit-learn, a second of import that most questions do not need.
    if name in _HOME:
        return getattr(importlib.import_module(f"fitting.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
