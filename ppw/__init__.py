"""From a few measured runs to the time, watts and dollars at a frequency that was not measured."""

import warnings
from importlib import import_module

import lazy_loader

from measurements.errors import naming_extra

# A name loads its module when it is first used; the stub beside this file says which. pandas and
# the rest load then: `import ppw` stays quick.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_FROM_OTHER_PACKAGES = {
    "FittingError": "fitting",
    "LogPathLength": "fitting",
    "MeasurementError": "measurements",
    "import_runs": "measurements",
    "read_runs": "measurements",
    "write_runs": "measurements",
}
__all__ = sorted([*__all__, *_FROM_OTHER_PACKAGES, "__version__"])
# Former names: the new one, and where the function is.
_FORMER = {
    "best_frequency": ("best", "decision.best", "best"),
    "check_quality": ("check", "runs.quality", "check"),
    "fit_runs": ("fit", "projection.runs", "fit"),
    "project_core_count": ("project", "projection.time", "project_core_count"),
    "project_data_size": ("project", "projection.time", "project_data_size"),
    "project_runs": ("project", "projection.runs", "project_runs"),
}


def __getattr__(name):
    if name == "__version__":
        return import_module("ppw.results.text").package_version()
    if name in _FORMER:
        new, module, function = _FORMER[name]
        warnings.warn(f"ppw.{name} is now ppw.{new}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(f"ppw.{module}"), function)
    with naming_extra(f"ppw.{name}"):
        if name in _FROM_OTHER_PACKAGES:
            return getattr(import_module(_FROM_OTHER_PACKAGES[name]), name)
        return _load(name)
