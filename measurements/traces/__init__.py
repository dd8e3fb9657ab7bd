"""Block traces of many formats as one stream of requests."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measurements.traces.requests import Trace
    from measurements.traces.trace_files import read_trace, write_trace

# The recording process starts without numpy and pyarrow.
_HOME = {"Trace": "requests", "read_trace": "trace_files", "write_trace": "trace_files"}

__all__ = ["Trace", "read_trace", "write_trace"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
