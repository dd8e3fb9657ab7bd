from . import live as live, log as log, pcp_perf as pcp_perf, reading as reading, series as series
from .live import LiveSampler as LiveSampler, sample as sample
from .reading import read_time_series as read_time_series
from .series import (
    Finding as Finding,
    TimeSeries as TimeSeries,
    write_time_series as write_time_series,
)
