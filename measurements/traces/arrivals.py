"""Arrivals in order of time, in bounded memory."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from measurements.traces.requests import Array, BadRequestError, Requests, concatenate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# As many requests may be late as traces merged from a few sources ever are; 90 MB.
WINDOW = 1 << 20


class InOrder:
    """Puts late arrivals in their places, up to ``window`` requests back.

    Attributes
    ----------
    late : int
        Requests that came after a later one.
    latest : int or float
        By how much at most (ticks).
    first : int or float, optional
        Time of the first request (ticks), once it is known.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._given: float | None = None
        self.late = 0
        self.latest: float = 0
        self.first: float | None = None

    def sort(self, chunks: Iterable[Requests]) -> Iterator[Requests]:
        """Yield the requests in order.

        Raises
        ------
        BadRequestError
            For one that belongs further back than the window reaches.
        """
        held: deque[Requests] = deque()
        count = 0
        for chunk in chunks:
            if not chunk.rows():
                continue
            count += chunk.rows()
            late = self._note_late(chunk.time, held[-1].time[-1] if held else None)
            held.append(chunk)
            if late:
                both = concatenate(list(held))
                held = deque([both.take(np.argsort(both.time, kind="stable"))])
            while count - held[0].rows() >= self._window:
                count -= held[0].rows()
                yield self._give(held.popleft())
            if count >= 2 * self._window:
                # One chunk, from sorting, that is longer than the window.
                ready = count - self._window
                yield self._give(held[0].take(slice(0, ready)))
                held[0] = held[0].take(slice(ready, None))
                count = self._window
        yield from map(self._give, held)

    def _note_late(self, time: Array, last: float | None) -> int:
        """Count the requests that are earlier than one before them."""
        if (last is None or last <= time[0]) and bool(np.all(time[1:] >= time[:-1])):
            return 0
        highest = np.maximum.accumulate(time)
        if last is not None:
            highest = np.maximum(highest, last)
        late = time < highest
        self.late += int(late.sum())
        self.latest = max(self.latest, (highest - time).max())
        return int(late.sum())

    def _give(self, ready: Requests) -> Requests:
        start = ready.time[0]
        if self._given is not None and start < self._given:
            raise BadRequestError(
                int(ready.row[0]),
                f"arrives before a request that is more than {self._window} requests earlier in "
                "the file: sort the trace by arrival first",
            )
        if self.first is None:
            self.first = start
        self._given = ready.time[-1]
        return ready
