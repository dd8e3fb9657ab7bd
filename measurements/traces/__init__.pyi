from . import record as record, trace_files as trace_files
from .requests import Trace as Trace
from .trace_files import read_trace as read_trace, write_trace as write_trace
