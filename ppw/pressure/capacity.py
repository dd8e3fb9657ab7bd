"""What a host can do, each figure with who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from measurements.errors import MeasurementError
from measurements.table.headers import nearest
from measurements.table.units import parse_quantity
from measurements.timeseries.log import physical_interfaces
from measurements.timeseries.series import TimeSeries
from ppw.errors import PpwError
from ppw.results.result import read_toml

NAN = float("nan")
STATED = "stated by the user"
# What each figure of `Capacity` is for people, and the option that states it.
WORDS = {
    "cores": ("number of CPUs", "--cpus"),
    "process_cores": ("number of cores that it can use", "--process-cores"),
    "memory_bytes": ("memory of the host", "--memory"),
    "memory_bandwidth_bytes_s": ("peak memory bandwidth", "--memory-bandwidth"),
    "disk_bandwidth_bytes_s": ("bandwidth of the disks", "--disk-bandwidth"),
    "disk_iops": ("IOPS of the disks", "--disk-iops"),
    "network_bytes_s_each_way": ("line rate", "--network"),
}


@dataclass(frozen=True)
class Capacity:
    """What one host can do; NaN is not known, and all other figures are above 0."""

    cores: float = NAN  # logical CPUs that the operating system schedules on
    # Most cores that the workload can use at once: 1 for a single-threaded service.
    process_cores: float = NAN
    memory_bytes: float = NAN
    # Bandwidth of the memory and of all disks, reads and writes together (B/s).
    memory_bandwidth_bytes_s: float = NAN
    disk_bandwidth_bytes_s: float = NAN
    disk_iops: float = NAN  # I/Os of all disks (1/s)
    # Line rate of all physical interfaces, each way (B/s). Loopback has none.
    network_bytes_s_each_way: float = NAN
    # Who says so, for each figure that is known.
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in FIGURES:
            value = getattr(self, name)
            if not (np.isnan(value) or 0 < value < np.inf):
                raise PpwError(f"capacity {name} is {value!r}: give a positive number")

    def figures(self) -> dict[str, float]:
        """Return the figures by name, NaN where not known."""
        return {name: float(getattr(self, name)) for name in FIGURES}

    def source(self, name: str) -> str:
        """Return the source of a figure; "" where the figure is not known."""
        return "" if np.isnan(getattr(self, name)) else self.sources.get(name, STATED)

    def with_figures(self, figures: Mapping[str, float], source: str) -> Capacity:
        """Return a copy with some figures replaced, and their source noted."""
        if unknown := [name for name in figures if name not in FIGURES]:
            raise PpwError(f"no capacity is called {unknown[0]!r}: one of {', '.join(FIGURES)}")
        return replace(self, **figures, sources={**self.sources, **dict.fromkeys(figures, source)})


FIGURES = tuple(f.name for f in fields(Capacity) if f.name != "sources")


def capacity_of(series: TimeSeries, stated: Mapping[str, float] | None = None) -> Capacity:
    """Capacity of a host by its log; figures that the user states go first, and are checked."""
    stated = stated or {}
    logged = {name: v for name, v in logged_figures(series).items() if name not in stated}
    return Capacity().with_figures(logged, "the log").with_figures(stated, STATED)


def logged_figures(series: TimeSeries) -> dict[str, float]:
    """Capacity figures that a log tells: cores, memory and network; unknown ones are left out."""

    def largest(column: str) -> float:
        """Highest value of a column; NaN where the log lacks it."""
        return float(series.frame[column].max()) if column in series.frame else NAN

    speeds = series.devices("network_speed_bytes_s")
    carrying = physical_interfaces(series.devices("network_rx_bytes"))
    # The line rate is known where all physical interfaces that carry data have one.
    known = carrying and all(name in speeds for name in carrying)
    logged = {
        "cores": largest("cpus"),
        "memory_bytes": largest("memory_total_bytes"),
        "network_bytes_s_each_way": sum(largest(speeds[n]) for n in carrying) if known else NAN,
    }
    return {name: value for name, value in logged.items() if value > 0}


RESOURCE_WORDS = {
    "cpu": "CPU",
    "memory": "memory",
    "memory_bandwidth": "memory bandwidth",
    "disk": "disk",
    "network": "network",
}
RESOURCES = tuple(RESOURCE_WORDS)


class Measure(NamedTuple):
    """One way to judge a resource; its name is that of its threshold."""

    name: str
    resource: str
    # Of `ppw.pressure.demand.demand_of`: their sum counts, or the ``largest`` of them, as a share
    # of ``capacity``, a figure of `Capacity` ("" for none).
    columns: tuple[str, ...]
    capacity: str = ""
    kind: Literal["utilisation", "saturation", "errors", "artificial load"] = "utilisation"
    largest: bool = False
    # Queues and waits are judged by the median over time: one burst of writing back would make
    # the mean of a disk that is idle otherwise look like a queue.
    statistic: Literal["mean", "median"] = "mean"

    def demand(self, demand: pd.DataFrame) -> NDArray[np.float64]:
        """Demand in each interval: sum of the measure's columns, or the largest of them."""
        parts = demand[list(self.columns)].to_numpy(dtype=float)
        return np.asarray(parts.max(axis=1) if self.largest else parts.sum(axis=1))


_BANDWIDTH = "memory_bandwidth_bytes_s"
_DISK_BYTES = ("disk_read_bytes_s", "disk_written_bytes_s")
_BOTH_WAYS = ("network_rx_bytes_s", "network_tx_bytes_s")

MEASURES = (
    Measure("cpu_utilisation", "cpu", ("cpu_cores",), "cores"),
    Measure("process_utilisation", "cpu", ("cpu_cores",), "process_cores"),
    Measure("run_queue", "cpu", ("run_queue",), "cores", "saturation", statistic="median"),
    Measure("steal", "cpu", ("steal_share",), kind="saturation"),
    Measure("memory_utilisation", "memory", ("memory_bytes",), "memory_bytes"),
    Measure("swap_rate", "memory", ("swap_bytes_s",), kind="saturation"),
    Measure("major_faults", "memory", ("major_faults_s",), kind="saturation"),
    Measure("memory_bandwidth", "memory_bandwidth", (_BANDWIDTH,), _BANDWIDTH),
    Measure("disk_busy", "disk", ("disk_busy_share",)),
    Measure("disk_bandwidth", "disk", _DISK_BYTES, "disk_bandwidth_bytes_s"),
    Measure("disk_iops", "disk", ("disk_iops",), "disk_iops"),
    Measure("disk_rate", "disk", _DISK_BYTES),
    Measure("disk_queue", "disk", ("disk_queue",), kind="saturation", statistic="median"),
    Measure("disk_wait", "disk", ("disk_wait_s",), kind="saturation", statistic="median"),
    Measure("iowait", "disk", ("iowait_share",), kind="saturation"),
    Measure("network_utilisation", "network", _BOTH_WAYS, "network_bytes_s_each_way", largest=True),
    Measure("network_drops", "network", ("network_drops_s",), kind="saturation"),
    Measure("network_errors", "network", ("network_errors_s",), kind="errors"),
)
# Judges the disk where nothing better is known.
LAST_RESORT = "disk_rate"
# Context switches per operation, where the operations are known.
SWITCHES = Measure("switches_per_operation", "cpu", ("context_switches_s",), kind="artificial load")


class Threshold(NamedTuple):
    """Where medium and high begin; unit "share" is of a capacity, from 0 to 1, "1" is a number."""

    medium: float
    high: float
    unit: str
    meaning: str


# They were fixed before any published figure was judged by them. A share of a capacity is medium
# from 30 % and high from 70 %, where queues begin to double waiting (1/(1 − 0.7) = 3.3 service
# times in M/M/1); those of memory bandwidth are lower, as loaded latency rises well before the peak
# rate.
_DEFAULTS = """
cpu_utilisation        | 0.3  | 0.7   | share | busy CPUs, share of all CPUs
process_utilisation    | 0.3  | 0.7   | share | busy CPUs, share of those that the workload can use
run_queue              | 1.25 | 2     | 1     | tasks that run or are ready to run, per CPU
steal                  | 0.05 | 0.1   | share | CPU time taken by the hypervisor, share of all
memory_utilisation     | 0.5  | 0.8   | share | memory in use without the page cache
swap_rate              | 1e6  | 10e6  | B/s   | bytes swapped in and out
major_faults           | 100  | 1000  | 1/s   | page faults that needed I/O
memory_bandwidth       | 0.25 | 0.6   | share | memory reads and writes, share of the peak rate
disk_busy              | 0.3  | 0.7   | share | time with an I/O in progress on the busiest disk
disk_bandwidth         | 0.3  | 0.7   | share | bytes read and written, share of the disk bandwidth
disk_iops              | 0.3  | 0.7   | share | I/Os, share of the disk's IOPS
disk_rate              | 50e6 | 150e6 | B/s   | bytes read and written, if neither capacity \
nor busy time is known
disk_queue             | 2    | 8     | 1     | I/Os in progress on the busiest disk
disk_wait              | 0.02 | 0.1   | s     | mean time from request to end of an I/O
iowait                 | 0.1  | 0.3   | share | idle CPU time with an I/O outstanding, share of all
network_utilisation    | 0.3  | 0.7   | share | busier direction, share of the line rate
network_drops          | 1    | 100   | 1/s   | packets dropped
network_errors         | 1    | 100   | 1/s   | packets with errors
loopback_rate          | 10e6 | 10e6  | B/s   | smallest traffic within the host that is reported
cpu_active             | 0.05 | 0.05  | share | CPU time busy or waiting; below it the CPUs are idle
switches_per_operation | 1    | 4     | 1     | context switches per operation
"""
_LINES = (map(str.strip, line.split("|")) for line in _DEFAULTS.strip().splitlines())
DEFAULTS = {
    name: Threshold(float(medium), float(high), unit, meaning)
    for name, medium, high, unit, meaning in _LINES
}


@dataclass(frozen=True)
class Thresholds:
    """Thresholds by measure; ``source`` is "default", or the file that replaces some."""

    values: Mapping[str, Threshold] = field(default_factory=lambda: dict(DEFAULTS))
    source: str = "default"

    def __getitem__(self, measure: str) -> Threshold:
        return self.values[measure]

    def with_others(self, others: Mapping[str, Any], source: str) -> Thresholds:
        """Return the thresholds with some replaced, each by "medium", "high" or both."""
        new = {name: self._replace_threshold(name, given, source) for name, given in others.items()}
        return Thresholds({**self.values, **new}, source)

    def _replace_threshold(self, name: str, given: Any, source: str) -> Threshold:
        if name not in self.values:
            known = list(self.values)
            raise PpwError(f"{source}: no threshold is called {name!r}{nearest(name, known)}")
        if not isinstance(given, dict) or set(given) - {"medium", "high"}:
            raise PpwError(f"{source}: {name}: give medium and high, two numbers")
        old = self.values[name]
        both = given.get("medium", old.medium), given.get("high", old.high)
        if old.unit == "share":
            both = _read_share(both[0], name, source), _read_share(both[1], name, source)
        if not all(_is_finite_number(value) for value in both) or not 0 < both[0] <= both[1]:
            raise PpwError(
                f"{source}: {name}: medium {both[0]!r} and high {both[1]!r} are not two positive "
                "numbers in order"
            )
        return old._replace(medium=float(both[0]), high=float(both[1]))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per measure: ``measure``, ``medium``, ``high``, ``unit``, ``meaning``."""
        rows = [{"measure": name, **t._asdict()} for name, t in self.values.items()]
        return pd.DataFrame(rows)


def read_thresholds(path: str | Path) -> Thresholds:
    """Read thresholds from a TOML file, one table a measure; the others stay as they are."""
    return Thresholds().with_others(read_toml(path, "thresholds", "pressure"), str(path))


def _read_share(value: Any, name: str, source: str) -> Any:
    """Read "30%" as 0.3; other values stay. Raises `PpwError` above 1."""
    if isinstance(value, str) and value.rstrip().endswith("%"):
        try:
            value = parse_quantity(value, "share")
        except MeasurementError as error:
            raise PpwError(f"{source}: {name}: {error}") from error
        if value > 1:
            raise PpwError(f"{source}: {name}: {value:.0%} is more than the whole")
    if _is_finite_number(value) and value > 1:
        raise PpwError(
            f"{source}: {name}: {value:g} must be at most 1: write {value:g}% or {value / 100:g}"
        )
    return value


def _is_finite_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300
