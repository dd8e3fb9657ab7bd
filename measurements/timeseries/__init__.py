"""A host over time: logs of collectl and sar, and a sampler, as one tidy table."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measurements.timeseries.live import LiveSampler, sample
    from measurements.timeseries.own import write_time_series
    from measurements.timeseries.reading import read_time_series
    from measurements.timeseries.series import Finding, TimeSeries

_HOME = {
    "Finding": "measurements.timeseries.series",
    "LiveSampler": "measurements.timeseries.live",
    "TimeSeries": "measurements.timeseries.series",
    "read_time_series": "measurements.timeseries.reading",
    "sample": "measurements.timeseries.live",
    "write_time_series": "measurements.timeseries.own",
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
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
