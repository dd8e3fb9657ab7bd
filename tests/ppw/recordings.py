"""Made-up recordings of hosts, one second an interval."""

import numpy as np
import pandas as pd

from measurements.timeseries.series import TimeSeries

START_S = 1_763_700_000.0
QUIET = "iowait_s", "swap_in_bytes", "swap_out_bytes", "major_faults", "sectors_written"


def recording(
    *,
    cores=0.0,
    memory=1e9,
    read=0.0,
    received=0.0,
    seconds=60,
    cpus=8,
    start_s=START_S,
    without=(),
    name="made up",
):
    """Record a host whose demands are numbers, or one a second."""

    def each(value):
        return np.broadcast_to(np.asarray(value, dtype=float), (seconds,)).copy()

    frame = pd.DataFrame(
        {
            "time_s": start_s + 1 + np.arange(seconds),
            "interval_s": 1.0,
            "host": "lab",
            "cpus": float(cpus),
            "user_s": 0.8 * each(cores),
            "system_s": 0.2 * each(cores),
            "idle_s": cpus - each(cores),
            **dict.fromkeys(QUIET, 0.0),
            "run_queue": each(cores),
            "memory_total_bytes": 32e9,
            "memory_available_bytes": 32e9 - each(memory),
            "sectors_read": each(read) / 512,
            "ios": each(read) / 65536,
            "network_rx_bytes": each(received),
            "network_tx_bytes": each(received) / 10,
            "network_rx_bytes[eth0]": each(received),
            "network_tx_bytes[eth0]": each(received) / 10,
            "network_speed_bytes_s[eth0]": 1.25e9,
            "marks": "",
        }
    )
    return TimeSeries(frame.drop(columns=list(without)), "ppw", name)
