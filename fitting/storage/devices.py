"""Time that storage devices take for requests, without the devices.

A disk with one request at a time (Ruemmler and Wilkes 1994):

    service = overhead + seek(distance) + rotation + size/rate(place)

A request that starts where the last one of its device ended needs neither seek nor rotation. The
seek curve goes through the three times of a data sheet (Lee and Katz 1993): with x cylinders and n
of them in all

    seek(x) = a·√(x − 1) + b·(x − 1) + c
    a = (−10·track + 15·average − 5·full)/(3·√n)
    b = (7·track − 15·average + 8·full)/(3·n)
    c = track

A solid state drive serves as many requests at a time as it has units:

    service = read or write time + size/rate of a unit

Requests of a device wait in one queue, first come first served.

A block trace says which blocks of a file were accessed, not which place in the file they are. Two
orders bound what a defragmentation would do. Files follow one another by the lowest page of each,
from the lowest page of their device.

``address``
    Pages of a file keep their order on the device, and the gaps between them close.
``first_use``
    Pages of a file are laid out as they were first accessed: right for files that are read or
    written from beginning to end, too good for others.

References
----------
C. Ruemmler, J. Wilkes: An introduction to disk drive modeling. IEEE Computer 27(3), 1994.
doi:10.1109/2.268881
E. K. Lee, R. H. Katz: An analytic performance model of disk arrays. ACM SIGMETRICS, 1993.
doi:10.1145/166955.166994
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from fitting.compiled import loops
from fitting.compiled.loops import Array, ArrayLike, BoolArray, FloatArray, IntArray
from fitting.errors import FittingError
from fitting.storage.reuse_distance import accessed_blocks

ORDERS = ("address", "first_use")
PAGE_BLOCKS, _SECTOR, _DEVICE_SHIFT, _READ = 8, 512, 44, 0
Turn = FloatArray | float


@dataclass(frozen=True)
class Disk:
    """A disk drive."""

    capacity_bytes: float = 1e12
    revolutions_s: float = 120.0  # revolutions per second: 120 for 7200 a minute
    track_seek_s: float = 0.8e-3  # to the next cylinder
    average_seek_s: float = 8.5e-3  # over all pairs of places
    full_seek_s: float = 18e-3  # over the whole disk
    outer_bytes_s: float = 200e6  # transfer rate (B/s) at the first block
    inner_bytes_s: float = 100e6  # and at the last one, linear between
    overhead_s: float = 0.1e-3  # of the controller, for each request
    cylinders: int = 200_000

    units = 1

    def __post_init__(self) -> None:
        _check_positive(self)
        if not self.track_seek_s <= self.average_seek_s <= self.full_seek_s:
            raise FittingError(
                f"seek times of {self.track_seek_s:g}, {self.average_seek_s:g} and "
                f"{self.full_seek_s:g} s: give them in ascending order"
            )

    def seek_s(self, cylinders: ArrayLike) -> FloatArray:
        """Return the time (s) to move the head over so many cylinders; 0 for none."""
        x = np.asarray(cylinders, dtype=np.float64)
        low, mean, full = self.track_seek_s, self.average_seek_s, self.full_seek_s
        n = self.cylinders
        a = (-10 * low + 15 * mean - 5 * full) / (3 * np.sqrt(n))
        b = (7 * low - 15 * mean + 8 * full) / (3 * n)
        further = np.maximum(x - 1, 0)
        return np.where(x > 0, a * np.sqrt(further) + b * further + low, 0.0)

    def service_s(
        self, op: Array, lbn: Array, size_bytes: Array, previous_end: Array, turn: Turn = 0.5
    ) -> FloatArray:
        """Return how long (s) each request keeps the disk busy; beyond its capacity is its end.

        ``previous_end`` is the block at which the request before on the same disk ended, negative
        for none. ``turn`` is the share of a revolution until the first block comes by, 0 to 1.
        """
        place = np.clip(lbn * _SECTOR / self.capacity_bytes, 0, 1)
        before = np.clip(previous_end * _SECTOR / self.capacity_bytes, 0, 1)
        across = np.ceil(np.abs(place - before) * self.cylinders)
        moved = lbn != previous_end
        rate = self.outer_bytes_s + place * (self.inner_bytes_s - self.outer_bytes_s)
        positioning = self.seek_s(across) + np.asarray(turn) / self.revolutions_s
        return self.overhead_s + np.where(moved, positioning, 0.0) + size_bytes / rate


@dataclass(frozen=True)
class SolidState:
    """A solid state drive."""

    read_s: float = 80e-6  # time of a read before its transfer
    write_s: float = 30e-6  # time of any other request before its transfer
    unit_bytes_s: float = 250e6  # transfer rate of one unit (B/s)
    units: int = 8  # requests served at the same time

    def __post_init__(self) -> None:
        _check_positive(self)

    def service_s(
        self, op: Array, lbn: Array, size_bytes: Array, previous_end: Array, turn: Turn = 0.5
    ) -> FloatArray:
        """Return how long (s) each request keeps a unit busy, by operation and size alone."""
        fixed = np.where(np.asarray(op) == _READ, self.read_s, self.write_s)
        return np.asarray(fixed + size_bytes / self.unit_bytes_s)


class Queue:
    """Devices that each serve ``units`` requests at once, first come first served."""

    def __init__(self, units: int = 1) -> None:
        if units < 1:
            raise FittingError("units of a queue must be 1 or more")
        self._free = np.zeros((1, units))
        self.busy_s = np.zeros(1)  # time (s) that the units of each device were busy, summed
        self.end_s = 0.0  # completion (s) of the last request

    def latency_s(self, time_s: FloatArray, device: IntArray, service_s: FloatArray) -> FloatArray:
        """Serve requests in order; return the time (s) of each from arrival to completion."""
        latency = np.empty(len(service_s))
        if not len(latency):
            return latency
        missing = int(device.max()) + 1 - len(self._free)
        if missing > 0:
            self._free = np.pad(self._free, ((0, missing), (0, 0)))
            self.busy_s = np.pad(self.busy_s, (0, missing))
        kinds = np.float64, np.int64, np.float64
        columns = map(np.ascontiguousarray, (time_s, device, service_s), kinds)
        last_s = _serve_requests(loops.read_only(*columns), self._free, self.busy_s, latency)
        self.end_s = max(self.end_s, last_s)
        return latency


def previous_ends(
    device: IntArray, lbn: IntArray, size_bytes: IntArray, last_end: IntArray
) -> IntArray:
    """Return the block where the request before on the same device ended; update ``last_end``."""
    found = np.empty(len(lbn), dtype=np.int64)
    columns = map(np.ascontiguousarray, (device, lbn, size_bytes), [np.int64] * 3)
    _fill_previous_ends(loops.read_only(*columns), last_end, found)
    return found


@loops.jit_uncounted
def _fill_previous_ends(columns: loops.Columns, last_end: IntArray, found: IntArray) -> None:
    device, lbn, size_bytes = columns
    for i in range(len(lbn)):
        found[i] = last_end[device[i]]
        last_end[device[i]] = lbn[i] + size_bytes[i] // _SECTOR


def _check_positive(device: Disk | SolidState) -> None:
    """Raise `FittingError` where a property of a device is not finite and above 0."""
    for one in fields(device):
        value = getattr(device, one.name)
        if not (np.isfinite(value) and value > 0):
            raise FittingError(f"{one.name} {value!r} must be greater than 0")


@loops.jit_uncounted
def _serve_requests(
    requests: loops.Columns, free: FloatArray, busy: FloatArray, latency: FloatArray
) -> float:
    """Serve each request at its device's first free unit; return the last completion (s)."""
    time_s, device, service_s = requests
    last = 0.0
    for i in range(len(service_s)):
        d, unit = device[i], 0
        for k in range(1, free.shape[1]):
            if free[d, k] < free[d, unit]:
                unit = k
        begin = free[d, unit] if free[d, unit] > time_s[i] else time_s[i]
        done = begin + service_s[i]
        free[d, unit] = done
        busy[d] += service_s[i]
        latency[i] = done - time_s[i]
        last = done if done > last else last
    return last


class MovedRequests(NamedTuple):
    """Requests in a new layout."""

    lbn: IntArray
    end: IntArray  # block after the last
    broken: BoolArray  # whether its pages do not follow one another any more


class FilePages:
    """Takes requests batch by batch and keeps the file of each distinct page, in 24 bytes."""

    def __init__(self) -> None:
        # Rows: device and page in one number, in order; file; number of accesses before the first.
        self._pages = np.empty((3, 0), dtype=np.int64)
        self._accesses = 0

    def add(self, device: IntArray, file: IntArray, lbn: IntArray, size_bytes: IntArray) -> None:
        """Record the pages that requests access; file −1 stands for all files without a name."""
        page, request = accessed_blocks(lbn, _round_to_blocks(size_bytes), PAGE_BLOCKS * _SECTOR)
        if len(page) and page.max() >> _DEVICE_SHIFT:
            raise FittingError(
                "an address lies beyond 64 PiB, so no layout can be computed: remove such requests"
            )
        key = device[request].astype(np.int64) << _DEVICE_SHIFT | page
        new, first = np.unique(key, return_index=True)
        unknown = ~np.isin(new, self._pages[0], assume_unique=True)
        new, first = new[unknown], first[unknown]
        rows = np.stack([new, file[request[first]].astype(np.int64), self._accesses + first])
        pages = np.concatenate([self._pages, rows], axis=1)
        self._pages = np.take(pages, np.argsort(pages[0], kind="stable"), axis=1)
        self._accesses += len(key)

    def layout(self, order: str) -> PageLayout:
        """Place the pages of each file side by side; ``order`` is one of `ORDERS`."""
        if order not in ORDERS:
            raise FittingError(f"no order {order!r}: give {' or '.join(ORDERS)}")
        key, file, rank = self._pages
        device = key >> _DEVICE_SHIFT
        # Pages are sorted, so that the first of a file is its lowest.
        owner = np.stack([device, file])
        _, first, at = np.unique(owner, axis=1, return_index=True, return_inverse=True)
        lowest = first[at.ravel()]
        within = np.arange(len(device)) if order == "address" else rank
        placed = np.lexsort((within, lowest, device))
        starts = np.searchsorted(device, np.arange(int(device.max(initial=0)) + 1))
        page = key & ((1 << _DEVICE_SHIFT) - 1)
        new = np.empty_like(page)
        at = np.arange(len(page)) - starts[device]
        new[placed] = page[starts[device]] + at
        return PageLayout(key, new)


@dataclass(frozen=True)
class PageLayout:
    """New places of pages."""

    key: IntArray  # device and old page, in order
    page: IntArray

    def move(self, device: IntArray, lbn: IntArray, size_bytes: IntArray) -> MovedRequests:
        """Return requests at the new places of their pages, all of which the layout has."""
        last_block = lbn + _round_to_blocks(size_bytes) // _SECTOR - 1
        first, last = lbn // PAGE_BLOCKS, last_block // PAGE_BLOCKS
        keys = (device.astype(np.int64) << _DEVICE_SHIFT | page for page in (first, last))
        start, stop = (self.page[np.searchsorted(self.key, key)] for key in keys)
        moved = start * PAGE_BLOCKS + lbn % PAGE_BLOCKS
        end = stop * PAGE_BLOCKS + last_block % PAGE_BLOCKS + 1
        return MovedRequests(moved, end, stop - start != last - first)


def _round_to_blocks(size_bytes: IntArray) -> IntArray:
    """Round sizes (bytes) down to whole blocks of 512 bytes; one at least."""
    return np.maximum(size_bytes // _SECTOR, 1) * _SECTOR
