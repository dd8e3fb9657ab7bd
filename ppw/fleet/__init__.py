"""The same answers over fleets: runs that no memory holds, on DuckDB or Spark.

`fit`, `project`, `validate`, `check` and `path_lengths` answer as `ppw.fit_runs`,
`ppw.project_runs`, `ppw.validate`, `ppw.check_quality` and `ppw.path_lengths` do, over folders of
files, URLs or a table of an engine. The engine condenses the runs to moments, one row a group and
frequency (`ppw.fleet.moments`), and everything else is the same code.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Fault": "ppw.fleet.faults",
    "FleetAnswer": "ppw.fleet.result",
    "FleetState": "ppw.fleet.state",
    "Sensor": "ppw.fleet.telemetry",
    "check": "ppw.fleet.answers",
    "connect": "ppw.fleet.connection",
    "fit": "ppw.fleet.answers",
    "join_power": "ppw.fleet.telemetry",
    "open_runs": "ppw.fleet.source",
    "path_lengths": "ppw.fleet.path_length",
    "project": "ppw.fleet.answers",
    "update_state": "ppw.fleet.state_update",
    "validate": "ppw.fleet.answers",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    # Engines and pandas load when first used: `ppw --help` stays quick.
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
