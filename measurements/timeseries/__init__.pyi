from . import live as live, log as log, own as own, reading as reading
from .live import LiveSampler as LiveSampler, sample as sample
from .own import write_time_series as write_time_series
from .reading import read_time_series as read_time_series
from .series import Finding as Finding, TimeSeries as TimeSeries
