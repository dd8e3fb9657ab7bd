import fitting
import measurements

from .catalogue.datasets import list_datasets as list_datasets, load_dataset as load_dataset
from .catalogue.hosts import find_host as find_host, load_hosts as load_hosts
from .cpio.cycles import (
    CyclesPerIO as CyclesPerIO,
    DeviceComparison as DeviceComparison,
    compare_devices as compare_devices,
    cycles_per_io as cycles_per_io,
)
from .cpio.scenarios import CpioProjection as CpioProjection, project_cpio as project_cpio
from .cpio.sizing import ServerSizing as ServerSizing, size_servers as size_servers
from .decision.best import BestFrequency as BestFrequency, best as best
from .decision.changes import ChangeCheck as ChangeCheck, check_changes as check_changes
from .decision.characterise import (
    Characterisation as Characterisation,
    characterise as characterise,
)
from .decision.compare import Comparison as Comparison, compare as compare
from .decision.plan import Plan as Plan, plan as plan
from .errors import CaveatWarning as CaveatWarning, PpwError as PpwError
from .fleet.trace_fit import fit_trace_in as fit_trace_in
from .power.calibrated_runs import (
    apply_calibration as apply_calibration,
    load_calibration as load_calibration,
    save_calibration as save_calibration,
)
from .power.calibration import Calibration as Calibration, calibrate as calibrate
from .power.load_curve import (
    PowerLoadCurve as PowerLoadCurve,
    PowerLoads as PowerLoads,
    power_loads as power_loads,
)
from .pressure.co_locate import (
    CoLocation as CoLocation,
    Pairing as Pairing,
    co_locate as co_locate,
    pair_workloads as pair_workloads,
)
from .pressure.find_knees import SweepKnees as SweepKnees, find_knees as find_knees
from .pressure.matrix import PressureMatrix as PressureMatrix, pressure_matrix as pressure_matrix
from .pressure.right_size import RightSizing as RightSizing, right_size as right_size
from .procurement.procure import procure as procure
from .procurement.result import Procurement as Procurement
from .projection.path_length import PathLengths as PathLengths, path_lengths as path_lengths
from .projection.points import Projection as Projection, project_points as project_points
from .projection.project import project as project
from .projection.runs import (
    FittedParameters as FittedParameters,
    RunsProjection as RunsProjection,
    fit as fit,
)
from .projection.time import (
    CoreCountProjection as CoreCountProjection,
    DataSizeProjection as DataSizeProjection,
)
from .projection.validation import Validation as Validation, validate as validate
from .results.result import Estimate as Estimate
from .runs.quality import Quality as Quality, check as check
from .storage.drift import (
    HalfDrift as HalfDrift,
    TraceDrift as TraceDrift,
    half_drift as half_drift,
    trace_drift as trace_drift,
)
from .storage.fidelity import TraceFidelity as TraceFidelity, validate_trace as validate_trace
from .storage.generate import GeneratedTrace as GeneratedTrace, generate_trace as generate_trace
from .storage.miss_ratios import (
    MissRatioCurves as MissRatioCurves,
    miss_ratio_curves as miss_ratio_curves,
)
from .storage.replay import TraceReplay as TraceReplay, replay_trace as replay_trace
from .storage.trace_model import (
    LevelChoice as LevelChoice,
    TraceModel as TraceModel,
    choose_level as choose_level,
    fit_trace as fit_trace,
)
from .storage.what_if import (
    TimeScales as TimeScales,
    TraceWhatIf as TraceWhatIf,
    time_scales as time_scales,
    trace_what_if as trace_what_if,
)

FittingError = fitting.FittingError
LogPathLength = fitting.LogPathLength
MeasurementError = measurements.MeasurementError
import_runs = measurements.import_runs
read_runs = measurements.read_runs
write_runs = measurements.write_runs
__version__: str
