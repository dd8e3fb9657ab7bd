"""Reading the world into one tidy table: the runs table, its columns, units and checks."""

import lazy_loader

# A name loads its module when it is first used; the stub beside this file says which.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
