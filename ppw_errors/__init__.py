"""The root of all errors that `measurements`, `fitting` and `ppw` raise for what they are given."""

_LONGEST = 3900


class PpwError(Exception):
    """A question that the data given cannot answer."""

    def __str__(self) -> str:
        # A message quotes its input, which may be a name of megabytes.
        text = super().__str__()
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1000]} … {text[-900:]}"


# Where users find it, and what tracebacks say.
PpwError.__module__ = "ppw.errors"
