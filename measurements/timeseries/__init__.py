"""A host over time, from logs of collectl, sar and others or sampled, as one tidy table."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measurements.timeseries.live import LiveSampler, sample
    from measurements.timeseries.own import write_time_series
    from measurements.timeseries.reading import read_time_series
    from measurements.timeseries.series import Finding, TimeSeries

_HOME = {
    "Finding": "series",
    "LiveSampler": "live",
    "TimeSeries": "series",
    "read_time_series": "reading",
    "sample": "live",
    "write_time_series": "own",
}

__all__ = [
    "Finding",
    "LiveSampler",
    "TimeSeries",
    "read_time_series",
    "sample",
    "write_time_series",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
