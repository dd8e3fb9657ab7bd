"""A host over time, from logs of collectl, sar and others or sampled, as one tidy table."""

from measurements import load_late

__getattr__, __dir__, __all__ = load_late(
    __name__,
    {
        **dict.fromkeys(("Finding", "TimeSeries", "write_time_series"), "series"),
        **dict.fromkeys(("LiveSampler", "sample"), "live"),
        "read_time_series": "reading",
        **{module: module for module in ("live", "log", "pcp_perf", "reading", "series")},
    },
)
