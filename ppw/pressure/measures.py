"""What each resource is judged by: which demand, against which capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ppw.pressure.capacity import Capacity

Kind = Literal["utilisation", "saturation", "errors"]

RESOURCES = ("cpu", "memory", "memory_bandwidth", "disk", "network")
RESOURCE_WORDS = {
    "cpu": "CPU",
    "memory": "memory",
    "memory_bandwidth": "memory bandwidth",
    "disk": "disk",
    "network": "network",
}


class Measure(NamedTuple):
    """One way to judge a resource; its name is that of its threshold.

    Attributes
    ----------
    name, resource : str
    kind : {"utilisation", "saturation", "errors"}
    columns : tuple of str
        Columns of `ppw.pressure.demand.demand_of`.
    capacity : str
        Figure of `Capacity` that it is a share of; "" for none.
    largest : bool
        Whether the largest of several columns counts instead of their sum.
    statistic : {"mean", "median"}
        What is judged. Queues and waits are judged by the median over time: one burst of writing
        back would make the mean of a disk that is idle otherwise look like a queue.
    """

    name: str
    resource: str
    kind: Kind
    columns: tuple[str, ...]
    capacity: str = ""
    largest: bool = False
    statistic: Literal["mean", "median"] = "mean"

    def demand(self, demand: pd.DataFrame) -> NDArray[np.float64]:
        """What was asked for in each interval, in the columns' unit."""
        parts = demand[list(self.columns)].to_numpy(dtype=float)
        combined: NDArray[np.float64] = parts.max(axis=1) if self.largest else parts.sum(axis=1)
        return combined

    def of(self, demand: pd.DataFrame, capacity: Capacity) -> NDArray[np.float64]:
        """What is judged: the demand, or its share of the capacity."""
        limit = capacity.figures()[self.capacity] if self.capacity else 1.0
        return self.demand(demand) / limit


_DISK_BYTES = ("disk_read_bytes_s", "disk_written_bytes_s")
_BOTH_WAYS = ("network_rx_bytes_s", "network_tx_bytes_s")

MEASURES = (
    Measure("cpu_utilisation", "cpu", "utilisation", ("cpu_cores",), "cores"),
    Measure("process_utilisation", "cpu", "utilisation", ("cpu_cores",), "process_cores"),
    Measure("run_queue", "cpu", "saturation", ("run_queue",), "cores", statistic="median"),
    Measure("steal", "cpu", "saturation", ("steal_share",)),
    Measure("memory_utilisation", "memory", "utilisation", ("memory_bytes",), "memory_bytes"),
    Measure("swap_rate", "memory", "saturation", ("swap_bytes_s",)),
    Measure("major_faults", "memory", "saturation", ("major_faults_s",)),
    Measure(
        "memory_bandwidth",
        "memory_bandwidth",
        "utilisation",
        ("memory_bandwidth_bytes_s",),
        "memory_bandwidth_bytes_s",
    ),
    Measure("disk_busy", "disk", "utilisation", ("disk_busy_share",)),
    Measure("disk_bandwidth", "disk", "utilisation", _DISK_BYTES, "disk_bandwidth_bytes_s"),
    Measure("disk_iops", "disk", "utilisation", ("disk_iops",), "disk_iops"),
    Measure("disk_rate", "disk", "utilisation", _DISK_BYTES),
    Measure("disk_queue", "disk", "saturation", ("disk_queue",), statistic="median"),
    Measure("disk_wait", "disk", "saturation", ("disk_wait_s",), statistic="median"),
    Measure("iowait", "disk", "saturation", ("iowait_share",)),
    Measure(
        "network_utilisation",
        "network",
        "utilisation",
        _BOTH_WAYS,
        "network_bytes_s_each_way",
        largest=True,
    ),
    Measure("network_drops", "network", "saturation", ("network_drops_s",)),
    Measure("network_errors", "network", "errors", ("network_errors_s",)),
)
# Judges the disk where nothing better is known.
LAST_RESORT = "disk_rate"
# Context switches for each operation, where the operations are known.
ARTIFICIAL = "switches_per_operation"
