"""From a few measured runs to the time, watts and dollars at a frequency that was not measured."""

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


def __getattr__(name):
    if name == "__version__":
        return import_module("ppw.results.text").package_version()
    with naming_extra(f"ppw.{name}"):
        if name in _FROM_OTHER_PACKAGES:
            return getattr(import_module(_FROM_OTHER_PACKAGES[name]), name)
        return _load(name)
