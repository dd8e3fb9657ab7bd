"""From a few measured runs to the time, watts and dollars at a frequency that was not measured."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fitting import FittingError, LogPathLength
    from measurements import MeasurementError, read_runs, write_runs
    from ppw.best import BestFrequency, best_frequency
    from ppw.calibrated_runs import apply_calibration
    from ppw.calibration import Calibration, calibrate
    from ppw.calibration_store import load_calibration, save_calibration
    from ppw.characterisation import Characterisation, characterise
    from ppw.comparison import Comparison, compare
    from ppw.core_count import CoreCountProjection, project_core_count
    from ppw.cpio.comparison import DeviceComparison, compare_devices
    from ppw.cpio.cycles import CyclesPerIO, cycles_per_io
    from ppw.cpio.projection import CpioProjection, project_cpio
    from ppw.cpio.sizing import ServerSizing, size_servers
    from ppw.data_size import DataSizeProjection, project_data_size
    from ppw.datasets.loading import list_datasets, load_dataset
    from ppw.errors import CaveatWarning, PpwError
    from ppw.estimate import Estimate
    from ppw.hosts import find_host, load_hosts
    from ppw.parameters import FittedParameters, fit_runs
    from ppw.path_length import PathLengths, path_lengths
    from ppw.planning import Plan, plan
    from ppw.power_load import PowerLoadCurve
    from ppw.power_load_answer import PowerLoads, power_loads
    from ppw.pressure.matrix import pressure_matrix
    from ppw.pressure.result import PressureMatrix
    from ppw.procurement.procure import procure
    from ppw.procurement.result import Procurement
    from ppw.projection import Projection, project
    from ppw.provisioning.co_location import co_locate
    from ppw.provisioning.co_location_result import CoLocation
    from ppw.provisioning.pairing import Pairing, pair_workloads
    from ppw.provisioning.right_sizing import right_size
    from ppw.provisioning.right_sizing_result import RightSizing
    from ppw.quality import Quality, check_quality
    from ppw.runs_projection import RunsProjection, project_runs
    from ppw.sweeps.knee import find_knees
    from ppw.sweeps.result import SweepKnees
    from ppw.traces.drift import HalfDrift, half_drift
    from ppw.traces.engine import fit_trace_in
    from ppw.traces.fidelity import TraceFidelity, validate_trace
    from ppw.traces.fit import fit_trace
    from ppw.traces.generation import GeneratedTrace, generate_trace
    from ppw.traces.level_choice import LevelChoice, choose_level
    from ppw.traces.model import TraceModel
    from ppw.traces.replay import TraceReplay, replay_trace
    from ppw.traces.time_scales import TimeScales, time_scales
    from ppw.traces.whatif import TraceWhatIf, trace_what_if
    from ppw.validation import Validation, validate

_HOME = {
    "BestFrequency": "ppw.best",
    "Calibration": "ppw.calibration",
    "CaveatWarning": "ppw.errors",
    "Characterisation": "ppw.characterisation",
    "CoLocation": "ppw.provisioning.co_location_result",
    "Comparison": "ppw.comparison",
    "CpioProjection": "ppw.cpio.projection",
    "CyclesPerIO": "ppw.cpio.cycles",
    "CoreCountProjection": "ppw.core_count",
    "DataSizeProjection": "ppw.data_size",
    "DeviceComparison": "ppw.cpio.comparison",
    "Estimate": "ppw.estimate",
    "FittedParameters": "ppw.parameters",
    "FittingError": "fitting",
    "GeneratedTrace": "ppw.traces.generation",
    "HalfDrift": "ppw.traces.drift",
    "LevelChoice": "ppw.traces.level_choice",
    "LogPathLength": "fitting",
    "MeasurementError": "measurements",
    "Pairing": "ppw.provisioning.pairing",
    "PathLengths": "ppw.path_length",
    "Plan": "ppw.planning",
    "PowerLoadCurve": "ppw.power_load",
    "PowerLoads": "ppw.power_load_answer",
    "PpwError": "ppw.errors",
    "PressureMatrix": "ppw.pressure.result",
    "Procurement": "ppw.procurement.result",
    "Projection": "ppw.projection",
    "Quality": "ppw.quality",
    "RightSizing": "ppw.provisioning.right_sizing_result",
    "RunsProjection": "ppw.runs_projection",
    "ServerSizing": "ppw.cpio.sizing",
    "SweepKnees": "ppw.sweeps.result",
    "TimeScales": "ppw.traces.time_scales",
    "TraceFidelity": "ppw.traces.fidelity",
    "TraceModel": "ppw.traces.model",
    "TraceReplay": "ppw.traces.replay",
    "TraceWhatIf": "ppw.traces.whatif",
    "Validation": "ppw.validation",
    "apply_calibration": "ppw.calibrated_runs",
    "best_frequency": "ppw.best",
    "calibrate": "ppw.calibration",
    "characterise": "ppw.characterisation",
    "check_quality": "ppw.quality",
    "choose_level": "ppw.traces.level_choice",
    "co_locate": "ppw.provisioning.co_location",
    "compare": "ppw.comparison",
    "compare_devices": "ppw.cpio.comparison",
    "cycles_per_io": "ppw.cpio.cycles",
    "find_host": "ppw.hosts",
    "find_knees": "ppw.sweeps.knee",
    "fit_runs": "ppw.parameters",
    "fit_trace": "ppw.traces.fit",
    "fit_trace_in": "ppw.traces.engine",
    "generate_trace": "ppw.traces.generation",
    "half_drift": "ppw.traces.drift",
    "list_datasets": "ppw.datasets.loading",
    "load_calibration": "ppw.calibration_store",
    "load_dataset": "ppw.datasets.loading",
    "load_hosts": "ppw.hosts",
    "pair_workloads": "ppw.provisioning.pairing",
    "path_lengths": "ppw.path_length",
    "plan": "ppw.planning",
    "power_loads": "ppw.power_load_answer",
    "pressure_matrix": "ppw.pressure.matrix",
    "procure": "ppw.procurement.procure",
    "project": "ppw.projection",
    "project_cpio": "ppw.cpio.projection",
    "project_core_count": "ppw.core_count",
    "project_data_size": "ppw.data_size",
    "project_runs": "ppw.runs_projection",
    "read_runs": "measurements",
    "replay_trace": "ppw.traces.replay",
    "right_size": "ppw.provisioning.right_sizing",
    "save_calibration": "ppw.calibration_store",
    "size_servers": "ppw.cpio.sizing",
    "time_scales": "ppw.traces.time_scales",
    "trace_what_if": "ppw.traces.whatif",
    "validate": "ppw.validation",
    "validate_trace": "ppw.traces.fidelity",
    "write_runs": "measurements",
}

__all__ = [
    "BestFrequency",
    "Calibration",
    "CaveatWarning",
    "Characterisation",
    "CoLocation",
    "Comparison",
    "CoreCountProjection",
    "CpioProjection",
    "CyclesPerIO",
    "DataSizeProjection",
    "DeviceComparison",
    "Estimate",
    "FittedParameters",
    "FittingError",
    "GeneratedTrace",
    "HalfDrift",
    "LevelChoice",
    "LogPathLength",
    "MeasurementError",
    "Pairing",
    "PathLengths",
    "Plan",
    "PowerLoadCurve",
    "PowerLoads",
    "PpwError",
    "PressureMatrix",
    "Procurement",
    "Projection",
    "Quality",
    "RightSizing",
    "RunsProjection",
    "ServerSizing",
    "SweepKnees",
    "TimeScales",
    "TraceFidelity",
    "TraceModel",
    "TraceReplay",
    "TraceWhatIf",
    "Validation",
    "apply_calibration",
    "best_frequency",
    "calibrate",
    "characterise",
    "check_quality",
    "choose_level",
    "co_locate",
    "compare",
    "compare_devices",
    "cycles_per_io",
    "find_host",
    "find_knees",
    "fit_runs",
    "fit_trace",
    "fit_trace_in",
    "generate_trace",
    "half_drift",
    "list_datasets",
    "load_calibration",
    "load_dataset",
    "load_hosts",
    "pair_workloads",
    "path_lengths",
    "plan",
    "power_loads",
    "pressure_matrix",
    "procure",
    "project",
    "project_core_count",
    "project_cpio",
    "project_data_size",
    "project_runs",
    "read_runs",
    "replay_trace",
    "right_size",
    "save_calibration",
    "size_servers",
    "time_scales",
    "trace_what_if",
    "validate",
    "validate_trace",
    "write_runs",
]


def __getattr__(name: str) -> Any:
    # pandas and the rest load when first used: `import ppw` stays quick.
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
