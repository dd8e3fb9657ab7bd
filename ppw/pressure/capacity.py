"""What a host can do, each figure with who says so."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from measurements.errors import MeasurementError
from measurements.table.headers import nearest
from measurements.table.units import parse_quantity
from measurements.timeseries.log import physical_interfaces
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

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
    """What one host can do; NaN is not known.

    Attributes
    ----------
    cores : float
        Logical CPUs that the operating system schedules on.
    process_cores : float
        Most cores that the workload can use at once: 1 for a single-threaded service.
    memory_bytes : float
        Memory (B).
    memory_bandwidth_bytes_s, disk_bandwidth_bytes_s : float
        Bandwidth of the memory and of all disks, reads and writes together (B/s).
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
        """Return the figures by name, NaN where not known."""
        return {name: float(getattr(self, name)) for name in FIGURES}

    def source(self, name: str) -> str:
        """Return who says a figure; "" where it is not known."""
        return "" if np.isnan(getattr(self, name)) else self.sources.get(name, STATED)

    def replaced(self, figures: Mapping[str, float], source: str) -> Capacity:
        """Replace figures by others, and who says them."""
        if unknown := [name for name in figures if name not in FIGURES]:
            raise PpwError(f"no capacity is called {unknown[0]!r}: one of {', '.join(FIGURES)}")
        return replace(self, **figures, sources={**self.sources, **dict.fromkeys(figures, source)})


FIGURES = tuple(f.name for f in fields(Capacity) if f.name != "sources")


def capacity_of(series: TimeSeries, stated: Mapping[str, float] | None = None) -> Capacity:
    """Take what a log says of its host; figures that the user states win over the log.

    Raises `PpwError` for a name that is no figure, or a figure that is not positive.
    """
    stated = stated or {}
    logged = {name: v for name, v in logged_figures(series).items() if name not in stated}
    return Capacity().replaced(logged, "the log").replaced(stated, STATED)


def logged_figures(series: TimeSeries) -> dict[str, float]:
    """Take the figures of `Capacity` that a log has."""
    logged = {
        "cores": _most(series, "cpus"),
        "memory_bytes": _most(series, "memory_total_bytes"),
        "network_bytes_s_each_way": _line_rate(series),
    }
    return {name: value for name, value in logged.items() if value > 0}


def _most(series: TimeSeries, column: str) -> float:
    """Largest value of a column; NaN where there is none."""
    return float(series.frame[column].max()) if column in series.frame else NAN


def _line_rate(series: TimeSeries) -> float:
    """Line rate of all physical interfaces; NaN where one of those that carry data has none."""
    speeds = series.devices("network_speed_bytes_s")
    carrying = physical_interfaces(series.devices("network_rx_bytes"))
    if not carrying or any(name not in speeds for name in carrying):
        return NAN
    return sum(_most(series, speeds[name]) for name in carrying)


RESOURCE_WORDS = {
    "cpu": "CPU",
    "memory": "memory",
    "memory_bandwidth": "memory bandwidth",
    "disk": "disk",
    "network": "network",
}
RESOURCES = tuple(RESOURCE_WORDS)


class Measure(NamedTuple):
    """One way to judge a resource; its name is that of its threshold.

    ``columns`` are of `ppw.pressure.demand.demand_of`: their sum counts, or the ``largest`` of
    them, as a share of ``capacity``, a figure of `Capacity` ("" for none).
    """

    name: str
    resource: str
    columns: tuple[str, ...]
    capacity: str = ""
    kind: Literal["utilisation", "saturation", "errors", "artificial load"] = "utilisation"
    largest: bool = False
    # Queues and waits are judged by the median over time: one burst of writing back would make
    # the mean of a disk that is idle otherwise look like a queue.
    statistic: Literal["mean", "median"] = "mean"

    def demand(self, demand: pd.DataFrame) -> NDArray[np.float64]:
        """Add up what was asked for in each interval, in the columns' unit."""
        parts = demand[list(self.columns)].to_numpy(dtype=float)
        combined: NDArray[np.float64] = parts.max(axis=1) if self.largest else parts.sum(axis=1)
        return combined


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
DEFAULTS = {
    "cpu_utilisation": Threshold(0.30, 0.70, "share", "busy CPUs of all"),
    "process_utilisation": Threshold(
        0.30, 0.70, "share", "busy CPUs of those that the workload can use"
    ),
    "run_queue": Threshold(1.25, 2.0, "1", "tasks that run or are ready to, for each CPU"),
    "steal": Threshold(0.05, 0.10, "share", "CPU time taken by the hypervisor, of all"),
    "memory_utilisation": Threshold(0.50, 0.80, "share", "memory in use without the page cache"),
    "swap_rate": Threshold(1e6, 10e6, "B/s", "swapped in and out"),
    "major_faults": Threshold(100, 1000, "1/s", "page faults that needed I/O"),
    "memory_bandwidth": Threshold(0.25, 0.60, "share", "memory reads and writes of the peak rate"),
    "disk_busy": Threshold(0.30, 0.70, "share", "time with an I/O in progress, busiest disk"),
    "disk_bandwidth": Threshold(0.30, 0.70, "share", "bytes read and written of the most"),
    "disk_iops": Threshold(0.30, 0.70, "share", "I/Os of the most"),
    "disk_rate": Threshold(
        50e6, 150e6, "B/s", "read and written, where no capacity and no busy time is known"
    ),
    "disk_queue": Threshold(2, 8, "1", "I/Os in progress, busiest disk"),
    "disk_wait": Threshold(0.02, 0.10, "s", "mean time from request to end of an I/O"),
    "iowait": Threshold(0.10, 0.30, "share", "CPU time idle while an I/O was outstanding, of all"),
    "network_utilisation": Threshold(0.30, 0.70, "share", "busier way of the line rate"),
    "network_drops": Threshold(1, 100, "1/s", "packets dropped"),
    "network_errors": Threshold(1, 100, "1/s", "packets with errors"),
    "loopback_rate": Threshold(10e6, 10e6, "B/s", "traffic within the host that is worth saying"),
    "cpu_active": Threshold(0.05, 0.05, "share", "CPU time busy or waiting; idle below"),
    "switches_per_operation": Threshold(1, 4, "1", "context switches for each operation"),
}


@dataclass(frozen=True)
class Thresholds:
    """Thresholds by measure; ``source`` is "default", or the file that replaces some."""

    values: Mapping[str, Threshold] = field(default_factory=lambda: dict(DEFAULTS))
    source: str = "default"

    def __getitem__(self, measure: str) -> Threshold:
        return self.values[measure]

    def replaced(self, others: Mapping[str, Any], source: str) -> Thresholds:
        """Replace some thresholds, each by "medium", "high" or both.

        Shares are from 0 to 1, or texts such as "30%". Raises `PpwError` for an unknown measure
        or key, a share above 1, or thresholds that are not in order.
        """
        changed = {name: self._changed(name, given, source) for name, given in others.items()}
        return Thresholds({**self.values, **changed}, source)

    def _changed(self, name: str, given: Any, source: str) -> Threshold:
        if name not in self.values:
            known = list(self.values)
            raise PpwError(f"{source}: no threshold is called {name!r}{nearest(name, known)}")
        if not isinstance(given, dict) or set(given) - {"medium", "high"}:
            raise PpwError(f"{source}: {name}: give medium and high, two numbers")
        old = self.values[name]
        both = given.get("medium", old.medium), given.get("high", old.high)
        if old.unit == "share":
            both = _share(both[0], name, source), _share(both[1], name, source)
        if not all(_is_number(value) for value in both) or not 0 < both[0] <= both[1]:
            raise PpwError(
                f"{source}: {name}: medium {both[0]!r} and high {both[1]!r} are not two positive "
                "numbers in order"
            )
        return old._replace(medium=float(both[0]), high=float(both[1]))

    def to_frame(self) -> pd.DataFrame:
        """Return one row a measure: ``measure``, ``medium``, ``high``, ``unit``, ``meaning``."""
        rows = [{"measure": name, **t._asdict()} for name, t in self.values.items()]
        return pd.DataFrame(rows)


def read_thresholds(path: str | Path) -> Thresholds:
    """Read thresholds from a TOML file, one table a measure; the others stay as they are."""
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PpwError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PpwError(f"{path}: is no TOML: {' '.join(str(error).split())}") from error
    return Thresholds().replaced(document, str(path))


def _share(value: Any, name: str, source: str) -> Any:
    """Read a share given as a text ("30%"); a value that is no text stays as it is."""
    if isinstance(value, str) and value.rstrip().endswith("%"):
        try:
            value = parse_quantity(value, "share")
        except MeasurementError as error:
            raise PpwError(f"{source}: {name}: {error}") from error
        if value > 1:
            raise PpwError(f"{source}: {name}: {value:.0%} is more than the whole")
    if _is_number(value) and value > 1:
        raise PpwError(
            f"{source}: {name}: {value:g} must be at most 1: write {value:g}% or {value / 100:g}"
        )
    return value


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
