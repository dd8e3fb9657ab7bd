"""Latency of the block layer's requests: each arrival (Q) with the completion (C) that ends it.

An arrival is over when the request that holds its last block completes: one completion answers
all arrivals that were merged into it, and of an arrival that was split the last part counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.traces.requests import BLOCK_BYTES, FLUSH, Array, Requests

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator


class Events(NamedTuple):
    """Arrivals and completions in order of time (ns)."""

    row: Array
    time: Array
    is_arrival: Array
    stream: Array
    device: Array
    lbn: Array
    size_bytes: Array
    op: Array

    def take(self, chosen: Array) -> Events:
        """Choose events by a mask or their numbers."""
        return Events(*(column[chosen] for column in self))


def with_latency(chunks: Iterable[Events], notes: Counter[str]) -> Iterator[Requests]:
    """Yield the arrivals; a completion is looked for in the arrival's chunk and the next one."""
    waiting: Requests | None = None
    for events in chunks:
        completions = events.take(~events.is_arrival)
        arrivals = _requests(events.take(events.is_arrival))
        if waiting is not None:
            yield _noted(_completed(waiting, completions), notes)
        waiting = _completed(arrivals, completions)
    if waiting is not None:
        yield _noted(waiting, notes)


def _requests(arrivals: Events) -> Requests:
    return Requests.of(
        arrivals.row,
        arrivals.time,
        arrivals.lbn,
        arrivals.size_bytes,
        arrivals.op,
        stream=arrivals.stream,
        device=arrivals.device,
    )


def _noted(requests: Requests, notes: Counter[str]) -> Requests:
    transfers = requests.op != FLUSH
    if lost := int((np.isnan(requests.latency_s) & transfers).sum()):
        notes["{n} requests have no completion in the trace: their latency is missing"] += lost
    return requests


def _completed(requests: Requests, completions: Events) -> Requests:
    """Fill in the latency of those that the completions end."""
    if not requests.rows() or not len(completions.row):
        return requests
    latency = requests.latency_s.copy()
    open_ = np.isnan(latency) & (requests.op != FLUSH)
    kinds = requests.device.astype(np.int64) * 4 + requests.op
    ended = completions.device.astype(np.int64) * 4 + completions.op
    for kind in np.unique(kinds[open_]):
        chosen = np.flatnonzero(open_ & (kinds == kind))
        latency[chosen] = _first_after(requests.take(chosen), completions.take(ended == kind))
    return requests._replace(latency_s=latency)


def _first_after(requests: Requests, completions: Events) -> Array:
    """Seconds to the first completion, not before the arrival, that holds its last block."""
    last = requests.lbn.astype(np.int64) + _blocks(requests.size_bytes) - 1
    targets, target = np.unique(last, return_inverse=True)
    begin = completions.lbn.astype(np.int64)
    low = np.searchsorted(targets, begin)
    held = np.searchsorted(targets, begin + _blocks(completions.size_bytes)) - low
    # One line for each completion and target that it holds, in order of target, then time.
    which = np.repeat(np.arange(len(begin)), held)
    within = np.arange(len(which)) - np.repeat(np.cumsum(held) - held, held)
    reached = low[which] + within
    order = np.lexsort((completions.time[which], reached))
    reached, at = reached[order], completions.time[which][order]
    found = _search(reached, at, target, requests.time)
    answered = found < len(at)
    index = np.minimum(found, max(len(at) - 1, 0))
    if len(at):
        answered &= reached[index] == target
    seconds = np.full(len(last), np.nan)
    seconds[answered] = (at[index[answered]] - requests.time[answered]) / 1e9
    return seconds


def _search(reached: Array, at: Array, target: Array, time: Array) -> Array:
    """Place of each (target, time) in the pairs (reached, at), which are sorted."""
    # Both together in order; of equal ones the arrival comes first.
    number = np.concatenate([target, reached])
    when = np.concatenate([time, at])
    is_pair = np.repeat([0, 1], [len(target), len(reached)])
    order = np.lexsort((is_pair, when, number))
    before = np.cumsum(is_pair[order])
    place = np.empty(len(order), np.int64)
    place[order] = before
    return place[: len(target)]


def _blocks(size_bytes: Array) -> Array:
    count: Array = -(-size_bytes.astype(np.int64) // BLOCK_BYTES)
    return np.maximum(count, 1)
