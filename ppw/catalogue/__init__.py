"""Hosts, public data sets and samples that ppw knows."""

from measurements import load_late

# A command loads them when it needs them, and not to print its help.
__getattr__, __dir__, __all__ = load_late(__name__, {name: name for name in ("datasets", "hosts")})
