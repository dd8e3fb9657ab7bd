"""The same answers over fleets: runs that no memory holds, on DuckDB or Spark.

`fit`, `project`, `validate`, `check` and `path_lengths` answer as `ppw.fit_runs`,
`ppw.project_runs`, `ppw.validate`, `ppw.check_quality` and `ppw.path_lengths` do, over folders of
files, URLs or a table of an engine. The engine condenses the runs to moments, one row a group and
frequency (`ppw.fleet.moments`), and everything else is the same code.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppw.fleet.engine import Fault, connect
    from ppw.fleet.projections import FleetAnswer, check, fit, path_lengths, project, validate
    from ppw.fleet.run_files import open_runs
    from ppw.fleet.state import FleetState, update_state
    from ppw.fleet.telemetry import Sensor, join_power

_HOME = {
    "Fault": "ppw.fleet.engine",
    "FleetAnswer": "ppw.fleet.projections",
    "FleetState": "ppw.fleet.state",
    "Sensor": "ppw.fleet.telemetry",
    "check": "ppw.fleet.projections",
    "connect": "ppw.fleet.engine",
    "fit": "ppw.fleet.projections",
    "join_power": "ppw.fleet.telemetry",
    "open_runs": "ppw.fleet.run_files",
    "path_lengths": "ppw.fleet.projections",
    "project": "ppw.fleet.projections",
    "update_state": "ppw.fleet.state",
    "validate": "ppw.fleet.projections",
}

__all__ = [
    "Fault",
    "FleetAnswer",
    "FleetState",
    "Sensor",
    "check",
    "connect",
    "fit",
    "join_power",
    "open_runs",
    "path_lengths",
    "project",
    "update_state",
    "validate",
]


def __getattr__(name: str) -> Any:
    # Engines and pandas load when first used: `ppw --help` stays quick.
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
