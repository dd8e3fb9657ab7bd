"""Reading the world into one tidy table: the runs table, its columns, units and checks."""

import importlib
import sys

from measurements.errors import naming_extra


def load_late(package, homes):
    """Make `__getattr__`, `__dir__` and `__all__` of a package whose names load when first used.

    ``homes`` has the module of each name, inside the package; a module is its own home, and not
    in `__all__`. The stub beside the package's file tells the types.
    """

    # Written by hand, as the guard and cleanup processes start without site packages, where no
    # lazy_loader is found.
    def load(name):
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with naming_extra(f"{package}.{name}"):
            module = importlib.import_module(f"{package}.{homes[name]}")
        found = module if homes[name].rpartition(".")[2] == name else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    public = sorted(name for name, home in homes.items() if home.rpartition(".")[2] != name)
    return load, lambda: public, public


__getattr__, __dir__, __all__ = load_late(
    __name__,
    {
        **dict.fromkeys(("BadRunsError", "MeasurementError"), "errors"),
        **dict.fromkeys(("check_runs", "identity_columns"), "table.checks"),
        **dict.fromkeys(("parse_frequency", "parse_quantity"), "table.units"),
        **dict.fromkeys(("read_runs", "tidy_runs"), "table.reading"),
        "import_runs": "imports.importing",
        "write_runs": "table.writing",
    },
)
