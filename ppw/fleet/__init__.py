"""The same answers over fleets: runs that no memory holds, on DuckDB or Spark.

`fit`, `project`, `validate`, `check` and `path_lengths` answer as `ppw.fit`,
`ppw.project`, `ppw.validate`, `ppw.check` and `ppw.path_lengths` do, over folders of
files, URLs or a table of an engine. The engine condenses the runs to moments, one row a group and
frequency (`ppw.fleet.moments`), and everything else is the same code.
"""

from importlib.util import find_spec

import lazy_loader

from measurements.errors import naming_extra

# A name loads its module when it is first used; the stub beside this file says which.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    with naming_extra("ppw.fleet"):
        # Its extra has all libraries of this room, so it is named before any of theirs.
        if find_spec("ibis") is None:
            raise ModuleNotFoundError(name="ibis")
        return _load(name)
