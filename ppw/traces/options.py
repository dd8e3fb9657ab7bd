"""Changes to a storage system, each taking a trace batch by batch to see what it is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fitting.storage.devices import SolidState
from fitting.storage.reuse_distance import touched_blocks
from fitting.storage.survey import BLOCK
from ppw.traces.devices import Latencies, Storage
from ppw.traces.source import Columns

if TYPE_CHECKING:
    from fitting.storage.caches import Cache
    from fitting.storage.devices import Layout
    from ppw.traces.devices import Device

    FloatArray = np.ndarray[Any, np.dtype[np.float64]]
    Mask = np.ndarray[Any, np.dtype[np.bool_]]

_WRITE = 1


class Outcome(NamedTuple):
    """What an option makes of a trace.

    Attributes
    ----------
    device_s : float
        Time (s) of device and cache for a request, one at a time: no queue.
    latency_s : float
        Mean time from arrival to completion, with queues.
    latency_p99_s : float
    utilisation : float
        Of the busiest device, as a share of the time.
    hit_ratio : float
        Blocks found in the cache; NaN without one.
    sequential_share : float
        Of the requests that reach the device, those that begin where its last one ended.
    broken_share : float
        Requests that a layout takes apart.
    """

    device_s: float
    latency_s: float
    latency_p99_s: float
    utilisation: float
    hit_ratio: float
    sequential_share: float
    broken_share: float


class Option(Protocol):
    """Takes the batches of a trace in order, then says what came of it."""

    def take(self, batch: Columns) -> None: ...  # noqa: D102
    def outcome(self) -> Outcome: ...  # noqa: D102


class _Sequence:
    """How many requests of a device begin where its last one ended."""

    def __init__(self) -> None:
        self._ends = np.full(1, -1, dtype=np.int64)
        self.follows = self.requests = 0

    def take(self, device: Any, lbn: Any, end: Any) -> None:
        missing = int(device.max(initial=0)) + 1 - len(self._ends)
        if missing > 0:
            self._ends = np.pad(self._ends, (0, missing), constant_values=-1)
        order = np.argsort(device, kind="stable")
        d, start, stop = device[order], lbn[order], end[order]
        if not len(d):
            return
        first = np.concatenate([[True], d[1:] != d[:-1]])
        before = np.where(first, self._ends[d], np.concatenate([[-1], stop[:-1]]))
        last = np.concatenate([first[1:], [True]])
        self._ends[d[last]] = stop[last]
        self.follows += int((start == before).sum())
        self.requests += len(d)

    def share(self) -> float:
        return self.follows / self.requests if self.requests else float("nan")


class AsItIs:
    """The storage without a change."""

    def __init__(self, device: Device, seed: int) -> None:
        self._storage, self._sequence = Storage(device, seed), _Sequence()

    def take(self, batch: Columns) -> None:
        """Take the next requests."""
        self._sequence.take(batch.device, batch.lbn, batch.lbn + batch.size_bytes // BLOCK)
        self._storage.take(batch)

    def outcome(self) -> Outcome:
        """Say what came of it."""
        return _outcome(self._storage, self._storage.latencies, self._sequence.share())


class Cached:
    """A cache of several drives before the storage.

    Reads that find all of their blocks, and with write-back all writes, take the cache's time.
    Others take the storage's. Filling the cache takes none; blocks that write-back evicts cost the
    storage a write each, beside its other work.
    """

    def __init__(
        self, device: Device, cache: Cache, drive: SolidState, drives: int, block: int, seed: int
    ) -> None:
        self._storage, self._sequence = Storage(device, seed), _Sequence()
        striped = SolidState(drive.read_s, drive.write_s, drive.unit_bytes_s, drives * drive.units)
        self._front = Storage(striped)
        self._cache, self._block, self._device = cache, block, device
        self._latencies = Latencies()
        self._hits = self._accesses = 0

    def take(self, batch: Columns) -> None:
        """Take the next requests."""
        served = self._served(batch)
        behind = Columns(*(column[~served] for column in batch))
        front = Columns(*(column[served] for column in batch))
        self._sequence.take(behind.device, behind.lbn, behind.lbn + behind.size_bytes // BLOCK)
        self._latencies.add(self._storage.take(behind))
        # One cache serves all devices.
        self._latencies.add(self._front.take(front._replace(device=np.zeros_like(front.device))))

    def _served(self, batch: Columns) -> Mask:
        """Which requests the cache answers."""
        kept = np.flatnonzero(batch.op <= _WRITE)
        blocks, request = touched_blocks(batch.lbn[kept], batch.size_bytes[kept], self._block)
        writes = batch.op[kept] == _WRITE
        device = batch.device[kept].astype(np.int64)[request]
        hits = self._cache.access(device << 44 | blocks, writes[request])
        self._hits += int(hits.sum())
        self._accesses += len(hits)
        missed = np.bincount(request, ~hits, minlength=len(kept))
        served = np.zeros(len(batch.op), dtype=np.bool_)
        absorbs = self._cache.writes == "back"
        served[kept] = np.where(writes, absorbs, missed == 0)
        return served

    def outcome(self) -> Outcome:
        """Say what came of it."""
        mean = _outcome(self._storage, self._latencies, self._sequence.share())
        total = self._storage.busy_s + self._front.busy_s + self._cleaning_s()
        return mean._replace(
            device_s=total / self._latencies.requests,
            hit_ratio=self._hits / self._accesses if self._accesses else float("nan"),
        )

    def _cleaning_s(self) -> float:
        """Time of the storage for the dirty blocks: each a write elsewhere."""
        number = self._cache.cleaned + self._cache.dirty
        return number * random_write_s(self._device, self._block)


class Defragmented:
    """The storage with every file in one piece."""

    def __init__(self, device: Device, layout: Layout, seed: int) -> None:
        self._storage, self._sequence = Storage(device, seed), _Sequence()
        self._layout = layout
        self._broken = 0

    def take(self, batch: Columns) -> None:
        """Take the next requests."""
        moved = self._layout.move(batch.device, batch.lbn, batch.size_bytes)
        self._broken += int(moved.broken.sum())
        self._sequence.take(batch.device, moved.lbn, moved.end)
        # A request that is taken apart ends elsewhere; its next one then has to move.
        self._storage.take(batch._replace(lbn=moved.lbn))

    def outcome(self) -> Outcome:
        """Say what came of it."""
        latencies = self._storage.latencies
        found = _outcome(self._storage, latencies, self._sequence.share())
        return found._replace(broken_share=self._broken / latencies.requests)


def random_write_s(device: Device, size_bytes: int) -> float:
    """Time (s) of a write a third of the space away, the mean distance of two places."""
    span = int(getattr(device, "capacity_bytes", BLOCK) / BLOCK)
    one = (np.array([value]) for value in (_WRITE, span // 3, size_bytes, 0))
    return float(device.service_s(*one)[0])


def _outcome(storage: Storage, latencies: Latencies, sequential: float) -> Outcome:
    return Outcome(
        storage.busy_s / max(1, latencies.requests),
        latencies.mean_s,
        latencies.quantile_s(0.99),
        storage.utilisation,
        float("nan"),
        sequential,
        0.0,
    )
