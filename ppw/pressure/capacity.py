"""What a host can do, each figure with who says so."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

from measurements.timeseries.devices import physical_interfaces
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from measurements.timeseries.series import TimeSeries

NAN = float("nan")
STATED = "stated by the user"
WORDS = {
    "cores": "number of CPUs",
    "process_cores": "number of cores that it can use",
    "memory_bytes": "memory of the host",
    "memory_bandwidth_bytes_s": "peak memory bandwidth",
    "disk_bandwidth_bytes_s": "bandwidth of the disks",
    "disk_iops": "IOPS of the disks",
    "network_bytes_s_each_way": "line rate",
}


@dataclass(frozen=True)
class Capacity:
    """Capacities of one host; NaN is not known.

    Attributes
    ----------
    cores : float
        Logical CPUs that the operating system schedules on.
    process_cores : float
        Most cores that the workload can use at once, such as 1 for a single-threaded service.
    memory_bytes : float
        Memory (B).
    memory_bandwidth_bytes_s : float
        Memory bandwidth, reads and writes together (B/s).
    disk_bandwidth_bytes_s : float
        Bandwidth of all disks, reads and writes together (B/s).
    disk_iops : float
        I/Os of all disks (1/s).
    network_bytes_s_each_way : float
        Line rate of all physical interfaces, each way (B/s). Loopback has none.
    sources : mapping of str to str
        Who says so, for each figure that is known.

    Raises
    ------
    PpwError
        For a figure that is not positive.
    """

    cores: float = NAN
    process_cores: float = NAN
    memory_bytes: float = NAN
    memory_bandwidth_bytes_s: float = NAN
    disk_bandwidth_bytes_s: float = NAN
    disk_iops: float = NAN
    network_bytes_s_each_way: float = NAN
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in FIGURES:
            value = getattr(self, name)
            if not (np.isnan(value) or 0 < value < np.inf):
                raise PpwError(f"capacity {name} is {value!r}: give a positive number")

    def figures(self) -> dict[str, float]:
        """The figures by name, NaN where not known."""
        return {name: float(getattr(self, name)) for name in FIGURES}

    def source(self, name: str) -> str:
        """Who says a figure; "" where it is not known."""
        return "" if np.isnan(getattr(self, name)) else self.sources.get(name, STATED)


FIGURES = tuple(f.name for f in fields(Capacity) if f.name != "sources")


def capacity_of(series: TimeSeries, stated: Mapping[str, float] | None = None) -> Capacity:
    """Take what a log says of its host, and what the user states above that.

    Parameters
    ----------
    series : TimeSeries
    stated : mapping of str to float, optional
        Figures of `Capacity` by name; these win over the log.

    Raises
    ------
    PpwError
        For a name that is no figure, or a figure that is not positive.
    """
    stated = stated or {}
    if unknown := [name for name in stated if name not in FIGURES]:
        raise PpwError(f"no capacity is called {unknown[0]!r}: one of {', '.join(FIGURES)}")
    logged = {
        "cores": _most(series, "cpus"),
        "memory_bytes": _most(series, "memory_total_bytes"),
        "network_bytes_s_each_way": _line_rate(series),
    }
    known = {name: value for name, value in logged.items() if value > 0}
    sources = dict.fromkeys(known, "the log") | dict.fromkeys(stated, STATED)
    return Capacity(**{**known, **stated}, sources=sources)


def _most(series: TimeSeries, column: str) -> float:
    """Largest value of a column; NaN where there is none."""
    if column not in series.frame:
        return NAN
    return float(series.frame[column].max())


def _line_rate(series: TimeSeries) -> float:
    """Line rate of all physical interfaces; NaN where one of those that carry data has none."""
    speeds = series.devices("network_speed_bytes_s")
    carrying = physical_interfaces(series.devices("network_rx_bytes"))
    if not carrying or any(name not in speeds for name in carrying):
        return NAN
    return sum(_most(series, speeds[name]) for name in carrying)
