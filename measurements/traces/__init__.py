"""Block traces of many formats as one stream of requests."""

from measurements import load_late

# The recording process starts without numpy and pyarrow.
__getattr__, __dir__, __all__ = load_late(
    __name__,
    {
        "Trace": "requests",
        **dict.fromkeys(("read_trace", "write_trace"), "trace_files"),
        **{module: module for module in ("record", "trace_files")},
    },
)
