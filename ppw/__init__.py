"""From a few measured runs to the time, watts and dollars at a frequency that was not measured."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fitting import FittingError, LogPathLength
    from measurements import MeasurementError, read_runs, write_runs
    from ppw.catalogue.datasets import list_datasets, load_dataset
    from ppw.catalogue.hosts import find_host, load_hosts
    from ppw.cpio.compare_devices import DeviceComparison, compare_devices
    from ppw.cpio.cycles import CyclesPerIO, cycles_per_io
    from ppw.cpio.scenarios import CpioProjection, project_cpio
    from ppw.cpio.sizing import ServerSizing, size_servers
    from ppw.decision.best import BestFrequency, best_frequency
    from ppw.decision.characterise import Characterisation, characterise
    from ppw.decision.compare import Comparison, compare
    from ppw.decision.plan import Plan, plan
    from ppw.errors import CaveatWarning, PpwError
    from ppw.fleet.trace_fit import fit_trace_in
    from ppw.power.calibrated_runs import apply_calibration, load_calibration, save_calibration
    from ppw.power.calibration import Calibration, calibrate
    from ppw.power.load_curve import PowerLoadCurve
    from ppw.power.power_loads import PowerLoads, power_loads
    from ppw.pressure.co_locate import CoLocation, co_locate
    from ppw.pressure.find_knees import SweepKnees, find_knees
    from ppw.pressure.matrix import PressureMatrix, pressure_matrix
    from ppw.pressure.pair_workloads import Pairing, pair_workloads
    from ppw.pressure.right_size import RightSizing, right_size
    from ppw.procurement.procure import procure
    from ppw.procurement.result import Procurement
    from ppw.projection.parameters import FittedParameters, fit_runs
    from ppw.projection.path_length import PathLengths, path_lengths
    from ppw.projection.points import Projection, project
    from ppw.projection.runs import RunsProjection, project_runs
    from ppw.projection.time import (
        CoreCountProjection,
        DataSizeProjection,
        project_core_count,
        project_data_size,
    )
    from ppw.projection.validation import Validation, validate
    from ppw.results.result import Estimate
    from ppw.runs.quality import Quality, check_quality
    from ppw.storage.drift import HalfDrift, TimeScales, half_drift, time_scales
    from ppw.storage.fidelity import TraceFidelity, validate_trace
    from ppw.storage.fit import LevelChoice, choose_level, fit_trace
    from ppw.storage.generate import GeneratedTrace, generate_trace
    from ppw.storage.replay import TraceReplay, replay_trace
    from ppw.storage.trace_model import TraceModel
    from ppw.storage.what_if import TraceWhatIf, trace_what_if

_HOME = {
    "BestFrequency": "ppw.decision.best",
    "Calibration": "ppw.power.calibration",
    "CaveatWarning": "ppw.errors",
    "Characterisation": "ppw.decision.characterise",
    "CoLocation": "ppw.pressure.co_locate",
    "Comparison": "ppw.decision.compare",
    "CpioProjection": "ppw.cpio.scenarios",
    "CyclesPerIO": "ppw.cpio.cycles",
    "CoreCountProjection": "ppw.projection.time",
    "DataSizeProjection": "ppw.projection.time",
    "DeviceComparison": "ppw.cpio.compare_devices",
    "Estimate": "ppw.results.result",
    "FittedParameters": "ppw.projection.parameters",
    "FittingError": "fitting",
    "GeneratedTrace": "ppw.storage.generate",
    "HalfDrift": "ppw.storage.drift",
    "LevelChoice": "ppw.storage.fit",
    "LogPathLength": "fitting",
    "MeasurementError": "measurements",
    "Pairing": "ppw.pressure.pair_workloads",
    "PathLengths": "ppw.projection.path_length",
    "Plan": "ppw.decision.plan",
    "PowerLoadCurve": "ppw.power.load_curve",
    "PowerLoads": "ppw.power.power_loads",
    "PpwError": "ppw.errors",
    "PressureMatrix": "ppw.pressure.matrix",
    "Procurement": "ppw.procurement.result",
    "Projection": "ppw.projection.points",
    "Quality": "ppw.runs.quality",
    "RightSizing": "ppw.pressure.right_size",
    "RunsProjection": "ppw.projection.runs",
    "ServerSizing": "ppw.cpio.sizing",
    "SweepKnees": "ppw.pressure.find_knees",
    "TimeScales": "ppw.storage.drift",
    "TraceFidelity": "ppw.storage.fidelity",
    "TraceModel": "ppw.storage.trace_model",
    "TraceReplay": "ppw.storage.replay",
    "TraceWhatIf": "ppw.storage.what_if",
    "Validation": "ppw.projection.validation",
    "apply_calibration": "ppw.power.calibrated_runs",
    "best_frequency": "ppw.decision.best",
    "calibrate": "ppw.power.calibration",
    "characterise": "ppw.decision.characterise",
    "check_quality": "ppw.runs.quality",
    "choose_level": "ppw.storage.fit",
    "co_locate": "ppw.pressure.co_locate",
    "compare": "ppw.decision.compare",
    "compare_devices": "ppw.cpio.compare_devices",
    "cycles_per_io": "ppw.cpio.cycles",
    "find_host": "ppw.catalogue.hosts",
    "find_knees": "ppw.pressure.find_knees",
    "fit_runs": "ppw.projection.parameters",
    "fit_trace": "ppw.storage.fit",
    "fit_trace_in": "ppw.fleet.trace_fit",
    "generate_trace": "ppw.storage.generate",
    "half_drift": "ppw.storage.drift",
    "list_datasets": "ppw.catalogue.datasets",
    "load_calibration": "ppw.power.calibrated_runs",
    "load_dataset": "ppw.catalogue.datasets",
    "load_hosts": "ppw.catalogue.hosts",
    "pair_workloads": "ppw.pressure.pair_workloads",
    "path_lengths": "ppw.projection.path_length",
    "plan": "ppw.decision.plan",
    "power_loads": "ppw.power.power_loads",
    "pressure_matrix": "ppw.pressure.matrix",
    "procure": "ppw.procurement.procure",
    "project": "ppw.projection.points",
    "project_cpio": "ppw.cpio.scenarios",
    "project_core_count": "ppw.projection.time",
    "project_data_size": "ppw.projection.time",
    "project_runs": "ppw.projection.runs",
    "read_runs": "measurements",
    "replay_trace": "ppw.storage.replay",
    "right_size": "ppw.pressure.right_size",
    "save_calibration": "ppw.power.calibrated_runs",
    "size_servers": "ppw.cpio.sizing",
    "time_scales": "ppw.storage.drift",
    "trace_what_if": "ppw.storage.what_if",
    "validate": "ppw.projection.validation",
    "validate_trace": "ppw.storage.fidelity",
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
        # Kept, so that the next use of the name finds it without this function.
        member = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
        return member
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
