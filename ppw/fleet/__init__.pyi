from .engine import Fault as Fault, connect as connect
from .projections import (
    FleetAnswer as FleetAnswer,
    check as check,
    fit as fit,
    path_lengths as path_lengths,
    project as project,
    validate as validate,
)
from .run_files import open_runs as open_runs
from .state import FleetState as FleetState, update_state as update_state
from .telemetry import Sensor as Sensor, join_power as join_power
