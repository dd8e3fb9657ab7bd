"""Made-up time series of a host of 4 CPUs, 100 GB and one disk, by what is asked of it."""

import numpy as np
import pandas as pd

from measurements.timeseries.series import TimeSeries

CPUS = 4.0
MEMORY = 100e9
START_S = 1_750_000_000.0
# What is measured of a host that asks for nothing.
QUIET = (
    *("iowait_s", "run_queue", "memory_buffers_bytes", "swap_in_bytes", "swap_out_bytes"),
    *("major_faults", "sectors_read", "sectors_written", "ios", "disk_busy_share__sda"),
    *("disk_queue__sda", "disk_wait_s__sda", "network_rx_bytes", "network_tx_bytes"),
    *("network_rx_bytes__eth0", "network_rx_drops", "network_tx_drops", "network_errors"),
    "network_tx_bytes__lo",
)


def series(seconds=10, **columns):
    """Series of so many seconds; a column is one value or one a second, amounts a second."""
    times = START_S + 1 + np.arange(seconds)
    frame = pd.DataFrame({"time_s": times, "interval_s": 1.0, "cpus": CPUS})
    for name, value in columns.items():
        column = name.replace("__", "[") + "]" * ("__" in name)
        frame[column] = np.broadcast_to(value, seconds).astype(float)
    return TimeSeries(frame.assign(marks=""), "made up", "made up")


def host(seconds=10, **columns):
    """A host of which everything is measured and nothing is asked, but what is given."""
    known = {
        "user_s": 0.01,
        "system_s": 0.01,
        "idle_s": 3.9,
        "context_switches": 100.0,
        "memory_total_bytes": MEMORY,
        "memory_free_bytes": 0.9 * MEMORY,
        "memory_cached_bytes": 0.05 * MEMORY,
        "disk_ios__sda": 1.0,
        "network_speed_bytes_s__eth0": 1.25e9,
    }
    return series(seconds, **{**dict.fromkeys(QUIET, 0.0), **known, **columns})
