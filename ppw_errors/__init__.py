"""The root of all errors that `measurements`, `fitting` and `ppw` raise for what they are given."""


class PpwError(Exception):
    """A question that the data given cannot answer."""


# Where users find it, and what tracebacks say.
PpwError.__module__ = "ppw.errors"
