"""Made-up time series of a host of 4 CPUs, 100 GB and one disk, by what is asked of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from measurements.timeseries.series import TimeSeries

CPUS = 4.0
MEMORY = 100e9
START_S = 1_750_000_000.0


def series(seconds=10, **columns):
    """Series of so many seconds; a column is one value or one a second, amounts a second."""
    frame = pd.DataFrame(
        {
            "time_s": START_S + 1 + np.arange(seconds),
            "interval_s": np.ones(seconds),
            "cpus": np.full(seconds, CPUS),
        }
    )
    for name, value in columns.items():
        frame[name.replace("__", "[") + ("]" if "__" in name else "")] = np.broadcast_to(
            value, seconds
        ).astype(float)
    return TimeSeries(frame.assign(marks=""), "made up", "made up")


def host(seconds=10, **columns):
    """A host of which everything is measured and nothing is asked, but what is given."""
    quiet = {
        "user_s": 0.01,
        "system_s": 0.01,
        "idle_s": 3.9,
        "iowait_s": 0.0,
        "context_switches": 100.0,
        "run_queue": 0.0,
        "memory_total_bytes": MEMORY,
        "memory_free_bytes": 0.9 * MEMORY,
        "memory_cached_bytes": 0.05 * MEMORY,
        "memory_buffers_bytes": 0.0,
        "swap_in_bytes": 0.0,
        "swap_out_bytes": 0.0,
        "major_faults": 0.0,
        "sectors_read": 0.0,
        "sectors_written": 0.0,
        "ios": 0.0,
        "disk_ios__sda": 1.0,
        "disk_busy_share__sda": 0.0,
        "disk_queue__sda": 0.0,
        "disk_wait_s__sda": 0.0,
        "network_rx_bytes": 0.0,
        "network_tx_bytes": 0.0,
        "network_rx_bytes__eth0": 0.0,
        "network_rx_drops": 0.0,
        "network_tx_drops": 0.0,
        "network_errors": 0.0,
        "network_speed_bytes_s__eth0": 1.25e9,
        "network_tx_bytes__lo": 0.0,
    }
    return series(seconds, **{**quiet, **columns})
