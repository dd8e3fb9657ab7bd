"""Clocks so coarse that several arrivals share a tick: spread over it, and put back on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fitting.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

# A clock is coarse where so large a share of the arrivals comes in the tick of the one before.
_SHARED = 0.1
# A gap is a whole number of ticks to this part of one.
_WHOLE = 1e-3
# Counts of ticks that vary less than this part of Poisson's are even.
_EVEN = 0.5


def shared_tick(gaps_s: FloatArray, finest_s: float) -> float:
    """Tick of a coarse clock, at least as long as the finest windows, or 0 where there is none."""
    apart = gaps_s[gaps_s > 0]
    if len(apart) == len(gaps_s) or not len(apart):
        return 0.0
    # Times that are sums have errors of rounding: those of the shortest gap add up in long ones.
    tick = apart.min()
    tick = float(np.mean(apart[apart < 1.5 * tick]))
    whole = np.abs(apart / tick - np.rint(apart / tick)) <= _WHOLE * np.maximum(1, apart / tick)
    coarse = tick >= finest_s and 1 - len(apart) / len(gaps_s) >= _SHARED
    return tick if coarse and whole.all() else 0.0


@dataclass(frozen=True)
class Clock:
    """A clock that tells times in whole ticks (s), from 0 on."""

    tick_s: float

    def stretch(self, duration_s: float) -> float:
        """Length of the clock's time, last tick and all, over the duration of a trace."""
        return 1 + self.tick_s / duration_s

    def spread_counts(self, finest: IntArray, duration_s: float) -> IntArray:
        """Spread arrivals of windows that are no longer than a tick over their ticks."""
        width = duration_s / len(finest)
        held = np.flatnonzero(finest)
        # The tick that a window holds: none of them holds two.
        tick = np.ceil(held * width / self.tick_s - _WHOLE).astype(np.int64)
        counts = np.zeros(tick[-1] + 1, dtype=np.int64)
        np.add.at(counts, tick, finest[held])
        spread = np.zeros_like(finest)
        length = self.tick_s / width / self.stretch(duration_s)
        _spread(counts, length, _even(counts), spread, np.random.default_rng(0))
        return spread

    def spread_gaps(self, gaps_s: FloatArray, duration_s: float) -> FloatArray:
        """Gaps between arrivals that are spread over their ticks."""
        tick = np.rint(np.concatenate([[0.0], np.cumsum(gaps_s)]) / self.tick_s).astype(np.int64)
        counts = np.bincount(tick)
        if _even(counts):
            within = np.arange(len(tick)) - np.repeat(np.cumsum(counts) - counts, counts)
            place = tick + (within + 0.5) / np.repeat(counts, counts)
        else:
            place = np.sort(tick + np.random.default_rng(0).random(len(tick)))
        return np.diff(place) * self.tick_s / self.stretch(duration_s)


def _even(counts: IntArray) -> bool:
    """Whether ticks have as many arrivals each, more or less: then they have a pace."""
    return bool(counts.var() < _EVEN * counts.mean())


@compiled
def _spread(
    counts: IntArray, length: float, even: bool, windows: IntArray, rng: np.random.Generator
) -> None:
    """Add each tick's arrivals to the windows that it lasts, at a length in windows."""
    last = len(windows) - 1
    for tick in range(len(counts)):
        for k in range(counts[tick]):
            part = (k + 0.5) / counts[tick] if even else rng.random()
            windows[min(last, int((tick + part) * length))] += 1
