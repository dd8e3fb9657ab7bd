"""The thresholds between low, medium and high, in one place; a TOML file can replace any of them.

They were fixed before any published figure was judged by them. A share of a capacity is medium
from 30 % and high from 70 %, where queues begin to double waiting (1/(1 − 0.7) = 3.3 service times
in M/M/1); those of memory bandwidth are lower, as loaded latency rises well before the peak rate.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from measurements.errors import MeasurementError
from measurements.headers import nearest
from measurements.quantities import parse_quantity
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Threshold(NamedTuple):
    """From where on a measure is medium and high.

    Attributes
    ----------
    medium, high : float
    unit : str
        "share" is of a capacity, from 0 to 1; "1" is a number.
    meaning : str
    """

    medium: float
    high: float
    unit: str
    meaning: str


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
    """Thresholds of every measure.

    Attributes
    ----------
    values : mapping of str to Threshold
    source : str
        "default", or the file that replaces some.
    """

    values: Mapping[str, Threshold] = field(default_factory=lambda: dict(DEFAULTS))
    source: str = "default"

    def __getitem__(self, measure: str) -> Threshold:
        return self.values[measure]

    def replaced(self, others: Mapping[str, Any], source: str) -> Thresholds:
        """Replace some of them.

        Parameters
        ----------
        others : mapping of measure to {"medium": float, "high": float}
            Either may be left out. Shares are from 0 to 1, or texts such as "30%".
        source : str
            Who says so.

        Raises
        ------
        PpwError
            For a measure or key that there is not, a share above 1, or thresholds that are not in
            order.
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
        """One row a measure: ``measure``, ``medium``, ``high``, ``unit``, ``meaning``."""
        rows = [{"measure": name, **t._asdict()} for name, t in self.values.items()]
        return pd.DataFrame(rows)


def read_thresholds(path: str | Path) -> Thresholds:
    """Read thresholds from a TOML file, one table a measure; the others stay as they are.

    Raises
    ------
    PpwError
        When it cannot be read, or has what there is not.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise PpwError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PpwError(f"{path}: is no TOML: {' '.join(str(error).split())}") from error
    return Thresholds().replaced(document, str(path))


def _share(value: Any, name: str, source: str) -> Any:
    """Share as a number; what is none stays as it is."""
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
