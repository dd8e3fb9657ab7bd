"""From a few measured runs to the time, watts and dollars at a frequency that was not measured."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fitting import FittingError, LogPathLength
    from measurements import MeasurementError, read_runs, write_runs
    from ppw.errors import CaveatWarning, PpwError
    from ppw.estimate import Estimate
    from ppw.hosts import find_host, load_hosts
    from ppw.parameters import FittedParameters, fit_runs
    from ppw.projection import Projection, project
    from ppw.runs_projection import RunsProjection, project_runs
    from ppw.validation import Validation, validate

_HOME = {
    "CaveatWarning": "ppw.errors",
    "Estimate": "ppw.estimate",
    "FittedParameters": "ppw.parameters",
    "FittingError": "fitting",
    "LogPathLength": "fitting",
    "MeasurementError": "measurements",
    "PpwError": "ppw.errors",
    "Projection": "ppw.projection",
    "RunsProjection": "ppw.runs_projection",
    "Validation": "ppw.validation",
    "find_host": "ppw.hosts",
    "fit_runs": "ppw.parameters",
    "load_hosts": "ppw.hosts",
    "project": "ppw.projection",
    "project_runs": "ppw.runs_projection",
    "read_runs": "measurements",
    "validate": "ppw.validation",
    "write_runs": "measurements",
}

__all__ = [
    "CaveatWarning",
    "Estimate",
    "FittedParameters",
    "FittingError",
    "LogPathLength",
    "MeasurementError",
    "PpwError",
    "Projection",
    "RunsProjection",
    "Validation",
    "find_host",
    "fit_runs",
    "load_hosts",
    "project",
    "project_runs",
    "read_runs",
    "validate",
    "write_runs",
]


def __getattr__(name: str) -> Any:
    # pandas and the rest load when first used: `import ppw` stays quick.
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
