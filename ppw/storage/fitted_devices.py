"""Named storage devices, and what they would make of a trace."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from fitting.errors import FittingError
from fitting.storage.devices import Disk, Queue, SolidState, previous_ends
from fitting.storage.survey import BLOCK
from measurements.table.units import parse_quantity
from ppw.errors import PpwError
from ppw.results.text import shown

if TYPE_CHECKING:
    from typing import Any

    import pyarrow as pa

    from ppw.storage.trace_source import Columns

    Device = Disk | SolidState
    FloatArray = np.ndarray[Any, np.dtype[np.float64]]
    IntArray = np.ndarray[Any, np.dtype[np.int64]]

DEVICES: dict[str, Device] = {"disk": Disk(), "ssd": SolidState()}
ASSUMED = (
    "times of the {name} are computed from a model with assumed parameters ({said}), not measured: "
    "ratios between options say more than the times; give your device's own data sheet"
)
_PLAIN, _MOST = ("units", "cylinders", "revolutions_s"), 1e15
# Classes of latency, in parts of an octave; from a nanosecond on.
_PARTS, _SMALLEST_S, _CLASSES = 32, 1e-9, 32 * 64


def parse_device(text: str) -> tuple[str, Device]:
    """Read a device: ``disk``, or ``ssd,units=16,read=70us``.

    Parameters are those of `fitting.storage.devices.Disk` and ``SolidState``, with or without the
    unit at the end of their names.

    Returns
    -------
    (str, Device)
        Its name and model.

    Raises
    ------
    PpwError
        For a device or parameter that is not known, or a value that cannot be.
    """
    name, *given = text.split(",")
    if name not in DEVICES:
        raise PpwError(f"no device {name!r}: there are {', '.join(DEVICES)}")
    device = DEVICES[name]
    known = {one.name: one.type for one in fields(device)}
    changed: dict[str, Any] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        full = next((k for k in known if key in (k, _bare(k))), None)
        if full is None or not equals:
            raise PpwError(
                f"{pair!r} says nothing of the {name}: give "
                f"{', '.join(f'{_bare(k)}=…' for k in known)}"
            )
        try:
            number = _number(full, value)
        except ValueError as error:
            raise PpwError(f"{name}, {key}: {error}") from error
        changed[full] = int(number) if full in ("units", "cylinders") else number
    try:
        return name, replace(device, **changed)
    except FittingError as error:
        raise PpwError(f"{name}: {error}") from error


def reaching(device: Device, high_lbn: int) -> Device:
    """Return the device, a disk made as large as a trace reaches."""
    needed = float(high_lbn * BLOCK)
    if isinstance(device, Disk) and device.capacity_bytes < needed:
        return replace(device, capacity_bytes=needed)
    return device


def described(device: Device) -> str:
    """Parameters of a device in a line."""
    return ", ".join(_parameter(one.name, getattr(device, one.name)) for one in fields(device))


def time_text(seconds: float) -> str:
    """Write a time with the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return shown(seconds / scale, unit)
    return "0 s" if seconds == 0 else shown(seconds * 1e9, "ns")


def _parameter(name: str, value: float) -> str:
    if name in _PLAIN:
        return f"{_bare(name)} {value:g}"
    if "_bytes" not in name:
        return f"{_bare(name)} {time_text(value)}"
    return f"{_bare(name)} {shown(value, 'B')}{'/s' if name.endswith('_s') else ''}"


def _bare(name: str) -> str:
    return name.removesuffix("_bytes_s").removesuffix("_bytes").removesuffix("_s")


def _number(name: str, text: str) -> float:
    if name in _PLAIN:
        number = float(text)
        if not abs(number) < _MOST:
            raise ValueError(f"{text!r} is no number below {_MOST:g}")
        return number
    return parse_quantity(text, "bytes" if "_bytes" in name else "s")


@dataclass
class Latencies:
    """Latencies, counted in classes of a thirty-second of an octave."""

    total_s: float = 0.0
    requests: int = 0
    counts: IntArray = field(default_factory=lambda: np.zeros(_CLASSES, dtype=np.int64))

    def add(self, latency_s: FloatArray) -> None:
        """Take some; missing ones are passed over."""
        known = latency_s[~np.isnan(latency_s)]
        place = np.log2(np.maximum(known, _SMALLEST_S) / _SMALLEST_S) * _PARTS
        self.counts += np.bincount(
            np.minimum(place.astype(np.int64), _CLASSES - 1), minlength=_CLASSES
        )
        self.total_s += float(known.sum())
        self.requests += len(known)

    @property
    def mean_s(self) -> float:
        """Mean (s), NaN for none."""
        return self.total_s / self.requests if self.requests else float("nan")

    def quantile_s(self, share: float) -> float:
        """Latency (s) that so large a share stays below, to 2 %."""
        if not self.requests:
            return float("nan")
        place = int(np.searchsorted(np.cumsum(self.counts), share * self.requests))
        return float(_SMALLEST_S * 2 ** ((place + 0.5) / _PARTS))


class Storage:
    """A device of one kind for each device of a trace, taking requests batch by batch.

    Parameters
    ----------
    device : Disk or SolidState
    seed : int, optional
        Of the angle at which a disk's platter is found; by default it is half a turn off, the
        mean.
    outstanding : int, optional
        Closed loop, as `fitting.storage.devices.Queue` has it.
    """

    def __init__(
        self, device: Device, seed: int | None = None, outstanding: int | None = None
    ) -> None:
        self.device = device
        self._queue = Queue(device.units, outstanding)
        self._ends = np.full(1, -1, dtype=np.int64)
        self._rng = None if seed is None else np.random.default_rng(seed)
        self.latencies = Latencies()
        self.first_s = float("nan")

    def service_s(self, batch: Columns) -> FloatArray:
        """Time (s) that each request keeps its device, or one unit of it, busy."""
        missing = int(batch.device.max(initial=0)) + 1 - len(self._ends)
        if missing > 0:
            self._ends = np.pad(self._ends, (0, missing), constant_values=-1)
        before = previous_ends(batch.device, batch.lbn, batch.size_bytes, self._ends)
        turn = 0.5 if self._rng is None else self._rng.random(len(before))
        return self.device.service_s(batch.op, batch.lbn, batch.size_bytes, before, turn)

    def take(self, batch: Columns) -> FloatArray:
        """Serve requests; return their latencies (s)."""
        return self.queue(batch.time_s, batch.device, self.service_s(batch))

    def queue(self, time_s: FloatArray, device: IntArray, service_s: FloatArray) -> FloatArray:
        """Queue requests whose service times are known; return their latencies (s)."""
        if len(time_s) and np.isnan(self.first_s):
            self.first_s = float(time_s[0])
        latency = self._queue.latency_s(time_s, device, service_s)
        self.latencies.add(latency)
        return latency

    @property
    def busy_s(self) -> float:
        """Time (s) that all units of all devices were busy, summed."""
        return float(self._queue.busy_s.sum())

    @property
    def utilisation(self) -> float:
        """Share of the time, from first arrival to last completion, of the busiest device."""
        span = self._queue.end_s - self.first_s
        return float(self._queue.busy_s.max() / self.device.units / span) if span > 0 else 0.0

    @property
    def iops(self) -> float:
        """Requests completed a second, from the first arrival to the last completion."""
        span = self._queue.end_s - self.first_s
        return self.latencies.requests / span if span > 0 else float("nan")

    @property
    def possible_iops(self) -> float:
        """Requests a second at which the busiest device is always busy."""
        busiest = float(self._queue.busy_s.max()) / self.device.units
        return self.latencies.requests / busiest if busiest > 0 else float("nan")


def completed_iops(requests: pa.Table, device: Device | None = None) -> float:
    """Requests a second that a device, by default a disk, completes when it is always busy.

    A measure of throughput for `ppw.storage.fit.choose_level`.
    """
    from ppw.storage.trace_source import Columns

    reads = [requests[name].to_numpy() for name in Columns._fields]
    storage = Storage(device or DEVICES["disk"])
    storage.take(Columns(*reads))
    return storage.possible_iops
