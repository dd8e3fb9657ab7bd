import fitting
import measurements

from .catalogue.datasets import list_datasets as list_datasets
from .catalogue.datasets import load_dataset as load_dataset
from .catalogue.hosts import find_host as find_host
from .catalogue.hosts import load_hosts as load_hosts
from .cpio.cycles import CyclesPerIO as CyclesPerIO
from .cpio.cycles import DeviceComparison as DeviceComparison
from .cpio.cycles import compare_devices as compare_devices
from .cpio.cycles import cycles_per_io as cycles_per_io
from .cpio.scenarios import CpioProjection as CpioProjection
from .cpio.scenarios import project_cpio as project_cpio
from .cpio.sizing import ServerSizing as ServerSizing
from .cpio.sizing import size_servers as size_servers
from .decision.best import BestFrequency as BestFrequency
from .decision.best import best_frequency as best_frequency
from .decision.characterise import Characterisation as Characterisation
from .decision.characterise import characterise as characterise
from .decision.compare import Comparison as Comparison
from .decision.compare import compare as compare
from .decision.plan import Plan as Plan
from .decision.plan import plan as plan
from .errors import CaveatWarning as CaveatWarning
from .errors import PpwError as PpwError
from .fleet.trace_fit import fit_trace_in as fit_trace_in
from .power.calibrated_runs import apply_calibration as apply_calibration
from .power.calibrated_runs import load_calibration as load_calibration
from .power.calibrated_runs import save_calibration as save_calibration
from .power.calibration import Calibration as Calibration
from .power.calibration import calibrate as calibrate
from .power.load_curve import PowerLoadCurve as PowerLoadCurve
from .power.power_loads import PowerLoads as PowerLoads
from .power.power_loads import power_loads as power_loads
from .pressure.co_locate import CoLocation as CoLocation
from .pressure.co_locate import Pairing as Pairing
from .pressure.co_locate import co_locate as co_locate
from .pressure.co_locate import pair_workloads as pair_workloads
from .pressure.find_knees import SweepKnees as SweepKnees
from .pressure.find_knees import find_knees as find_knees
from .pressure.matrix import PressureMatrix as PressureMatrix
from .pressure.matrix import pressure_matrix as pressure_matrix
from .pressure.right_size import RightSizing as RightSizing
from .pressure.right_size import right_size as right_size
from .procurement.procure import procure as procure
from .procurement.result import Procurement as Procurement
from .projection.path_length import PathLengths as PathLengths
from .projection.path_length import path_lengths as path_lengths
from .projection.points import Projection as Projection
from .projection.points import project as project
from .projection.runs import FittedParameters as FittedParameters
from .projection.runs import RunsProjection as RunsProjection
from .projection.runs import fit_runs as fit_runs
from .projection.runs import project_runs as project_runs
from .projection.time import CoreCountProjection as CoreCountProjection
from .projection.time import DataSizeProjection as DataSizeProjection
from .projection.time import project_core_count as project_core_count
from .projection.time import project_data_size as project_data_size
from .projection.validation import Validation as Validation
from .projection.validation import validate as validate
from .results.result import Estimate as Estimate
from .runs.quality import Quality as Quality
from .runs.quality import check_quality as check_quality
from .storage.fidelity import HalfDrift as HalfDrift
from .storage.fidelity import TraceFidelity as TraceFidelity
from .storage.fidelity import half_drift as half_drift
from .storage.fidelity import validate_trace as validate_trace
from .storage.fit import LevelChoice as LevelChoice
from .storage.fit import choose_level as choose_level
from .storage.fit import fit_trace as fit_trace
from .storage.generate import GeneratedTrace as GeneratedTrace
from .storage.generate import generate_trace as generate_trace
from .storage.replay import TraceReplay as TraceReplay
from .storage.replay import replay_trace as replay_trace
from .storage.trace_model import TraceModel as TraceModel
from .storage.what_if import TimeScales as TimeScales
from .storage.what_if import TraceWhatIf as TraceWhatIf
from .storage.what_if import time_scales as time_scales
from .storage.what_if import trace_what_if as trace_what_if

FittingError = fitting.FittingError
LogPathLength = fitting.LogPathLength
MeasurementError = measurements.MeasurementError
read_runs = measurements.read_runs
write_runs = measurements.write_runs
