"""Pure mathematics: arrays in, fitted models out; no files, no clocks, no printing."""

import lazy_loader

# A name loads its module when it is first used; the stub beside this file says which.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("sklearn"):
            error.msg = f"fitting.{name} needs sklearn: pip install 'perf-per-watt[estimators]'"
        raise
