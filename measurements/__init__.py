"""Reading the world into one tidy table: the runs table, its columns, units and checks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measurements.errors import BadRunsError, MeasurementError
    from measurements.table.checks import check_runs, identity_columns
    from measurements.table.reading import read_runs, tidy_runs
    from measurements.table.units import parse_frequency, parse_quantity
    from measurements.table.writing import write_runs

# Written by hand, as the guard and cleanup processes start without site packages, where no
# lazy_loader is found.
_HOME = {
    "BadRunsError": "measurements.errors",
    "MeasurementError": "measurements.errors",
    "check_runs": "measurements.table.checks",
    "identity_columns": "measurements.table.checks",
    "parse_frequency": "measurements.table.units",
    "parse_quantity": "measurements.table.units",
    "read_runs": "measurements.table.reading",
    "tidy_runs": "measurements.table.reading",
    "write_runs": "measurements.table.writing",
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
        # Kept, so that only the first use of a name comes here.
        globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
