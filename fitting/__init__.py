"""Pure mathematics: arrays in, fitted models out; no files, no clocks, no printing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fitting.errors import FittingError, OutOfRangeError
    from fitting.laws.cores import AmdahlScaling, ErnestScaling, UniversalScalability
    from fitting.laws.estimators import (
        AmdahlRegression,
        CmosPower,
        LinearPower,
        LogPathLength,
        ReciprocalRegression,
    )
    from fitting.laws.execution_time import execution_time

_HOME = {
    "AmdahlRegression": "laws.estimators",
    "AmdahlScaling": "laws.cores",
    "CmosPower": "laws.estimators",
    "ErnestScaling": "laws.cores",
    "FittingError": "errors",
    "LinearPower": "laws.estimators",
    "LogPathLength": "laws.estimators",
    "OutOfRangeError": "errors",
    "ReciprocalRegression": "laws.estimators",
    "UniversalScalability": "laws.cores",
    "execution_time": "laws.execution_time",
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
