"""Block traces of many formats as one stream of requests."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measurements.traces.reading import read_trace
    from measurements.traces.trace import Trace
    from measurements.traces.writing import write_trace

# The recording process starts without numpy and pyarrow.
_HOME = {"Trace": "trace", "read_trace": "reading", "write_trace": "writing"}

__all__ = ["Trace", "read_trace", "write_trace"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"measurements.traces.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
