"""Reading the world into one tidy table: the runs table, its columns, units and checks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measurements.checks import check_runs, identity_columns
    from measurements.errors import BadRunsError, MeasurementError
    from measurements.quantities import parse_frequency, parse_quantity
    from measurements.runs import read_runs, tidy_runs
    from measurements.writing_runs import write_runs

_HOME = {
    "BadRunsError": "errors",
    "MeasurementError": "errors",
    "check_runs": "checks",
    "identity_columns": "checks",
    "parse_frequency": "quantities",
    "parse_quantity": "quantities",
    "read_runs": "runs",
    "tidy_runs": "runs",
    "write_runs": "writing_runs",
}

__all__ = [
    "BadRunsError",
    "MeasurementError",
    "check_runs",
    "identity_columns",
    "parse_frequency",
    "parse_quantity",
    "read_runs",
    "tidy_runs",
    "write_runs",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"measurements.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
