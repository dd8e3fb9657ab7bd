"""Named storage devices, and how fast they serve a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fitting.compiled.loops import FloatArray, IntArray
from fitting.errors import FittingError
from fitting.storage import devices, survey as sv
from measurements.table.units import parse_quantity
from ppw.errors import PpwError
from ppw.results.result import Row
from ppw.results.text import shown
from ppw.storage.trace_source import RequestColumns

Device = devices.Disk | devices.SolidState
DEVICES: dict[str, Device] = {"disk": devices.Disk(), "ssd": devices.SolidState()}
# Parameters that are numbers without a unit, and what they stay below.
_PLAIN, _MOST = ("units", "cylinders", "revolutions_s"), 1e15
# Devices that a trace is queued on at several loads: a rotating disk, and drives on two buses.
QUEUED: dict[str, Device] = {
    "disk": devices.Disk(),
    "SATA SSD": devices.SolidState(),
    "NVMe": devices.SolidState(read_s=60e-6, write_s=15e-6, unit_bytes_s=500e6, units=32),
}
LOADS = (1.0, 1.5, 2.0)
QUEUE_FIGURES = ("mean latency", "95th percentile", "99th percentile", "requests in the device")
_PARTS_OF_TRACE, _RESAMPLES = 20, 200
# Latencies are counted in classes of a thirty-second of a log2 bin, from a nanosecond on.
_PARTS, _SMALLEST_S, _CLASSES = 32, 1e-9, 32 * 64


class NamedDevice(NamedTuple):
    """Name and model of a device."""

    name: str
    model: Device

    @property
    def parameters(self) -> str:
        """Parameters in a line."""
        names = [one.name for one in fields(self.model)]
        return ", ".join(_parameter_text(name, getattr(self.model, name)) for name in names)

    @property
    def text(self) -> str:
        """Name and parameters in a line."""
        return f"{self.name}: {self.parameters}"

    @property
    def caveat(self) -> str:
        """Warning that times are computed, not measured."""
        return (
            f"times of the {self.name} are computed from a model with assumed parameters "
            f"({self.parameters}), not measured: trust ratios between options more than times; "
            "give the parameters of your device"
        )

    def reaching(self, high_lbn: int) -> NamedDevice:
        """Return the device, a disk made as large as a trace reaches."""
        needed = float(high_lbn * sv.BLOCK)
        if isinstance(self.model, devices.Disk) and self.model.capacity_bytes < needed:
            return self._replace(model=replace(self.model, capacity_bytes=needed))
        return self


def parse_device(text: str) -> NamedDevice:
    """Read a device: ``disk``, or ``ssd,units=16,read=70us``.

    Parameters are those of `fitting.storage.devices.Disk` and ``SolidState``, with or without the
    unit at the end of their names. Raises `PpwError` for an unknown device or parameter, or a value
    that cannot be.
    """
    name, *given = text.split(",")
    if name not in DEVICES:
        raise PpwError(f"no device {name!r}: there are {', '.join(DEVICES)}")
    device = DEVICES[name]
    names = [one.name for one in fields(device)]
    changed: dict[str, Any] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        # With or without the unit: average_seek or average_seek_s.
        full = next((k for k in names if key in (k, _without_unit(k))), None)
        if full is None or not equals:
            options = ", ".join(f"{_without_unit(k)}=…" for k in names)
            raise PpwError(f"{pair!r} is not a parameter of the {name}: give {options}")
        try:
            changed[full] = _parse_value(full, value)
        except ValueError as error:
            raise PpwError(f"{name}, {key}: {error}") from error
    try:
        return NamedDevice(name, replace(device, **changed))
    except FittingError as error:
        raise PpwError(f"{name}: {error}") from error


def time_text(seconds: float) -> str:
    """Write a time with the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return shown(seconds / scale, unit)
    return "0 s" if seconds == 0 else shown(seconds * 1e9, "ns")


def time_cells(*columns: str) -> dict[str, Callable[[Row], str]]:
    """Texts of the times (s) in columns, as `ppw.results.result.Table` takes them."""
    return {name: lambda row, name=name: time_text(row[name]) for name in columns}  # type: ignore[misc]


def _parameter_text(name: str, value: float) -> str:
    if name in _PLAIN:
        return f"{_without_unit(name)} {value:g}"
    if "_bytes" not in name:
        return f"{_without_unit(name)} {time_text(value)}"
    return f"{_without_unit(name)} {shown(value, 'B')}{'/s' if name.endswith('_s') else ''}"


def _without_unit(name: str) -> str:
    return name.removesuffix("_bytes_s").removesuffix("_bytes").removesuffix("_s")


def _parse_value(name: str, text: str) -> float:
    if name not in _PLAIN:
        return parse_quantity(text, "bytes" if "_bytes" in name else "s")
    number = float(text)
    if not abs(number) < _MOST:
        raise ValueError(f"{text!r} is not a number below {_MOST:g}")
    return int(number) if name in ("units", "cylinders") else number


def _latency_classes(latency_s: FloatArray) -> IntArray:
    """Return the class of each latency (s)."""
    log2 = np.log2(np.maximum(latency_s, _SMALLEST_S) / _SMALLEST_S)
    return np.asarray(np.minimum(log2 * _PARTS, _CLASSES - 1), dtype=np.int64)


@dataclass
class Latencies:
    """Latencies, counted in classes of a thirty-second of a log2 bin."""

    total_s: float = 0.0
    requests: int = 0
    counts: IntArray = field(default_factory=lambda: np.zeros(_CLASSES, dtype=np.int64))

    def add(self, latency_s: FloatArray) -> None:
        """Count latencies (s); missing ones are passed over."""
        present = latency_s[~np.isnan(latency_s)]
        self.counts += np.bincount(_latency_classes(present), minlength=_CLASSES)
        self.total_s += float(present.sum())
        self.requests += len(present)

    @property
    def mean_s(self) -> float:
        """Mean (s), NaN for none."""
        return self.total_s / self.requests if self.requests else float("nan")

    def quantile_s(self, share: float) -> float:
        """Latency (s) that so large a share stays below, to 2 %."""
        if not self.requests:
            return float("nan")
        # The middle of a class in the logarithm: a class is 2.2 % wide.
        class_ = int(np.searchsorted(np.cumsum(self.counts), share * self.requests))
        return float(_SMALLEST_S * 2 ** ((class_ + 0.5) / _PARTS))


class LastEnds:
    """Block at which the last request of each device ended, from batch to batch."""

    def __init__(self) -> None:
        self._ends = np.full(1, -1, dtype=np.int64)
        # All requests, and those that begin where the last one of their device ended.
        self.requests = self.sequential = 0

    def before(self, device: IntArray, lbn: IntArray, size_bytes: IntArray) -> IntArray:
        """Take the next requests; return where the one before each ended, −1 for none."""
        missing = int(device.max(initial=0)) + 1 - len(self._ends)
        if missing > 0:
            self._ends = np.pad(self._ends, (0, missing), constant_values=-1)
        # Copies: the loop is compiled for one sort of columns.
        of, begin, size = (np.array(c, np.int64) for c in (device, lbn, size_bytes))
        before = devices.previous_ends(of, begin, size, self._ends)
        self.requests += len(before)
        self.sequential += int((before == lbn).sum())
        return before

    @property
    def sequential_share(self) -> float:
        """Share of the requests that are sequential; NaN for none."""
        return self.sequential / self.requests if self.requests else float("nan")


class Storage:
    """A device of one kind for each device of a trace, taking requests batch by batch."""

    def __init__(self, device: Device, seed: int | None = None) -> None:
        # The seed is that of the angle at which a disk's platter is found; without one it is half
        # a turn off, the mean.
        self.device, self.ends, self.latencies = device, LastEnds(), Latencies()
        self._queue = devices.Queue(device.units)
        self._rng = None if seed is None else np.random.default_rng(seed)
        self._first_s = float("nan")

    def take(self, batch: RequestColumns) -> FloatArray:
        """Serve requests; return their latencies (s)."""
        before = self.ends.before(batch.device, batch.lbn, batch.size_bytes)
        turn = 0.5 if self._rng is None else self._rng.random(len(before))
        service_s = self.device.service_s(batch.op, batch.lbn, batch.size_bytes, before, turn)
        if len(before) and np.isnan(self._first_s):
            self._first_s = float(batch.time_s[0])
        latency_s = self._queue.latency_s(batch.time_s, batch.device, service_s)
        self.latencies.add(latency_s)
        return latency_s

    @property
    def busy_s(self) -> float:
        """Time (s) that all units of all devices were busy, summed."""
        return float(self._queue.busy_s.sum())

    @property
    def _busiest_s(self) -> float:
        """Time (s) that the units of the busiest device were busy, on average."""
        return float(self._queue.busy_s.max()) / self.device.units

    @property
    def _span_s(self) -> float:
        """Time (s) from the first arrival to the last completion."""
        return self._queue.end_s - self._first_s

    @property
    def utilisation(self) -> float:
        """Share of the time, from first arrival to last completion, of the busiest device."""
        return self._busiest_s / self._span_s if self._span_s > 0 else 0.0

    @property
    def iops(self) -> float:
        """Requests completed per second, from the first arrival to the last completion."""
        return self.latencies.requests / self._span_s if self._span_s > 0 else float("nan")

    @property
    def possible_iops(self) -> float:
        """Requests per second at which the busiest device is always busy."""
        return self.latencies.requests / self._busiest_s if self._busiest_s > 0 else float("nan")


class QueuedLatencies:
    """Latencies of a trace on each device of `QUEUED` at each of `LOADS`, by parts of the trace."""

    def __init__(self, known: sv.Survey) -> None:
        self._known, self._done = known, 0
        self.storages, self._counts, self._sums = {}, {}, {}
        for name, model in QUEUED.items():
            device = NamedDevice(name, model).reaching(known.high_lbn).model
            for load in LOADS:
                self.storages[name, load] = Storage(device)
                self._counts[name, load] = np.zeros((_PARTS_OF_TRACE, _CLASSES))
                self._sums[name, load] = np.zeros(_PARTS_OF_TRACE)

    def take(self, batch: RequestColumns) -> None:
        """Serve the next requests."""
        number = self._done + np.arange(len(batch.time_s))
        part = number * _PARTS_OF_TRACE // self._known.requests
        self._done += len(number)
        for key, storage in self.storages.items():
            latency_s = storage.take(batch._replace(time_s=batch.time_s / key[1]))
            place, shape = part * _CLASSES + _latency_classes(latency_s), self._counts[key].shape
            self._counts[key] += np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)
            self._sums[key] += np.bincount(part, latency_s, minlength=shape[0])

    def figures(self, key: tuple[str, float], weights: FloatArray | None = None) -> FloatArray:
        """Return `QUEUE_FIGURES`, or those of resamples that weigh the parts so (a row each)."""
        weights = np.ones((1, _PARTS_OF_TRACE)) if weights is None else weights
        counts, total_s = weights @ self._counts[key], weights @ self._sums[key]
        requests, reached = counts.sum(axis=1), np.cumsum(counts, axis=1)
        mean_s = total_s / requests
        # The middle of a class in the logarithm, as in `Latencies`.
        classes = [(reached < share * requests[:, None]).sum(axis=1) for share in (0.95, 0.99)]
        quantiles = [_SMALLEST_S * 2 ** ((class_ + 0.5) / _PARTS) for class_ in classes]
        # Little's law: requests in the device are their rate times their time in it.
        rate = self._known.requests / self._known.duration_s * key[1]
        return np.stack([mean_s, *quantiles, mean_s * rate], axis=1)

    def bootstrap_variation(self, key: tuple[str, float], seed: int) -> FloatArray:
        """Return how far (relative) chance moves each figure: half the 95 % of resamples.

        A resample has parts of the trace drawn with replacement: a block bootstrap.
        """
        rng, n = np.random.default_rng(seed), _PARTS_OF_TRACE
        weights = rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES).astype(np.float64)
        # A short trace has parts without requests, and resamples of such parts alone.
        weights = weights[weights @ self._counts[key].sum(axis=1) > 0]
        low, high = np.quantile(self.figures(key, weights), [0.025, 0.975], axis=0)
        return np.asarray((high - low) / 2 / np.maximum(self.figures(key)[0], 1e-300))


def completed_iops(requests: pa.Table, device: Device | None = None) -> float:
    """Requests per second that a device, by default a disk, completes when it is always busy."""
    storage = Storage(device or DEVICES["disk"])
    storage.take(RequestColumns(*(requests[name].to_numpy() for name in RequestColumns._fields)))
    return storage.possible_iops
