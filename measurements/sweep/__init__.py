"""The sweep of `ppw measure`: one run a setting, on this host or by ssh."""

from measurements import load_late

# A command loads them when it measures, and not to print its help.
__getattr__, __dir__, __all__ = load_late(
    __name__, {module: module for module in ("loop", "measure", "session")}
)
