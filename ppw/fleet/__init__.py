"""The same answers over fleets: runs that no memory holds, on DuckDB or Spark.

`fit`, `project`, `validate`, `check` and `path_lengths` answer as `ppw.fit_runs`,
`ppw.project_runs`, `ppw.validate`, `ppw.check_quality` and `ppw.path_lengths` do, over folders of
files, URLs or a table of an engine. The engine condenses the runs to moments, one row a group and
frequency (`ppw.fleet.moments`), and everything else is the same code.
"""

import lazy_loader

# A name loads its module when it is first used; the stub beside this file says which.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
