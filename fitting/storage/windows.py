"""Arrivals of windows: spread over the ticks of coarse clocks, and divided over halves.

A clock may be so coarse that several arrivals share a tick: they are spread over it, and put back
on it. How a window's arrivals divide over its halves is counted at each depth of a cascade. Few
arrivals have a law for their number, more of them one a log2 bin: quantiles of the share of the
first half. There is a set of laws for each context: what a window lies between. Where one of its
neighbours is busier, the half towards it is taken for the first, so that load which goes on for
some windows goes on across the edges of those that are divided.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitting.compiled.loops import Array, FloatArray, IntArray, TinyArray, jit, log2_bin

# A clock is coarse where so large a share of the arrivals comes in the tick of the one before.
_SHARED = 0.1
# A gap is a whole number of ticks to this part of one.
_WHOLE = 1e-3
# Counts of ticks that vary less than this part of Poisson's are even.
_EVEN = 0.5
# Splits of fewer arrivals than this have a law for their number, others one a log2 bin.
_SMALL, _BINS = 8, 40
# The log2 bins begin with that of 8 arrivals.
_FIRST_LOG2 = 3
_QUANTILES = 17
# Contexts: alone, neighbours alike, one somewhat busier, one much busier.
CONTEXTS = 4
_ALONE, _ALIKE, _BUSIER, _MUCH_BUSIER = range(CONTEXTS)
# Laws of a depth by context: number by number, and log2 bins by quantiles.
SMALL_SHAPE, LARGE_SHAPE = (CONTEXTS, _SMALL, _SMALL), (CONTEXTS, _BINS, _QUANTILES)
_AT = np.linspace(0, 1, _QUANTILES)
# A law rests on so many splits at least, those of similar numbers at the same depth.
_LEAST_SPLITS = 32
# Splits by which the law of a log2 bin is known well enough.
_MOST_SPLITS = 5_000


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
        _spread(counts, length, _is_even(counts), spread, np.random.default_rng(0))
        return spread

    def spread_arrivals(self, gaps_s: FloatArray, duration_s: float) -> FloatArray:
        """Inter-arrival times of arrivals that are spread over their ticks."""
        tick = np.rint(np.concatenate([[0.0], np.cumsum(gaps_s)]) / self.tick_s).astype(np.int64)
        counts = np.bincount(tick)
        if _is_even(counts):
            within = np.arange(len(tick)) - np.repeat(np.cumsum(counts) - counts, counts)
            place = tick + (within + 0.5) / np.repeat(counts, counts)
        else:
            place = np.sort(tick + np.random.default_rng(0).random(len(tick)))
        return np.diff(place) * self.tick_s / self.stretch(duration_s)


def _is_even(counts: IntArray) -> bool:
    """Whether ticks have as many arrivals each, more or less."""
    return bool(counts.var() < _EVEN * counts.mean())


@jit
def _spread(
    counts: IntArray, length: float, even: bool, windows: IntArray, rng: np.random.Generator
) -> None:
    """Add each tick's arrivals to the windows that it lasts, at a length in windows."""
    last = len(windows) - 1
    for tick in range(len(counts)):
        for k in range(counts[tick]):
            part = (k + 0.5) / counts[tick] if even else rng.random()
            windows[min(last, int((tick + part) * length))] += 1


def split_laws(halves: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Windows twice as long, and laws of the first half's arrivals by context."""
    n = halves[::2] + halves[1::2]
    found = np.zeros(SMALL_SHAPE)
    kept = int(np.count_nonzero(n >= _SMALL))
    context, log2, share = np.empty(kept, np.int8), np.empty(kept, np.int8), np.empty(kept)
    _count_halves(halves, n, found, (context, log2, share))
    small, large = np.ones(SMALL_SHAPE), np.empty(LARGE_SHAPE)
    everywhere: dict[int, FloatArray] = {}
    for kind in range(CONTEXTS):
        # Where neighbours are alike each split counts as its mirror image too.
        mirrored, chosen = kind in (_ALONE, _ALIKE), context == kind
        here = _group_shares(log2[chosen], share[chosen])
        # A context without splits has the laws of all.
        if not here:
            everywhere = everywhere or _group_shares(log2, share)
        large[kind] = _share_laws(here or everywhere, mirrored or not here)
        small[kind] = _number_laws(found[kind], found.sum(axis=0), mirrored)
    return n, small, large


def _group_shares(log2: Array, share: FloatArray) -> dict[int, FloatArray]:
    """Shares of each log2 bin that there is, in their order."""
    ordered = share[np.argsort(log2, kind="stable")]
    parts = np.split(ordered, np.cumsum(np.bincount(log2))[:-1])
    return {k: part for k, part in enumerate(parts) if len(part)}


def _number_laws(found: FloatArray, of_all: FloatArray, mirrored: bool) -> FloatArray:
    """Probability, by number, that at most so many are in the first half."""
    small = np.ones((_SMALL, _SMALL))
    small[0] = 0.0
    for number in range(1, _SMALL):
        chance = found[number, : number + 1]
        if mirrored or not chance.any():
            chance = chance if chance.any() else of_all[number, : number + 1]
            chance = chance + chance[::-1]
        chance = chance if chance.any() else np.ones_like(chance)
        small[number, : number + 1] = np.cumsum(chance) / chance.sum()
    return small


def _share_laws(by_bin: dict[int, FloatArray], mirrored: bool) -> FloatArray:
    """Quantiles of the share of the first half, by log2 bin of the arrivals that are divided."""
    large = np.full(LARGE_SHAPE[1:], 0.5)
    present = np.array(sorted(by_bin), dtype=np.int64)
    for k in present:
        pooled: list[FloatArray] = []
        for near in present[np.argsort(np.abs(present - k), kind="stable")]:
            pooled.append(by_bin[near])
            if sum(map(len, pooled)) >= _LEAST_SPLITS:
                break
        chosen = np.concatenate(pooled)
        found = chosen[:: -(-len(chosen) // _MOST_SPLITS)]
        large[k] = np.quantile(np.concatenate([found, 1 - found]) if mirrored else found, _AT)
    if len(present):
        nearest = np.abs(np.arange(len(large))[:, None] - present).argmin(axis=1)
        large = large[present[nearest]]
    return large


@jit
def draw_split(
    n: int, left: int, right: int, small: FloatArray, large: FloatArray, rng: np.random.Generator
) -> int:
    """Draw how many of n arrivals are in the first half of a window between two others."""
    kind = _context(n, left, right)
    u = rng.random()
    if n < _SMALL:
        first = 0
        while first < n and u >= small[kind, n, first]:
            first += 1
    else:
        log2 = log2_bin(n, 0) - _FIRST_LOG2
        at = int(u * (_QUANTILES - 1))
        low, high = large[kind, log2, at], large[kind, log2, at + 1]
        share = low + (u * (_QUANTILES - 1) - at) * (high - low)
        first = min(n, int(n * share + rng.random()))
    return n - first if kind >= _BUSIER and right > left else first


@jit
def _context(n: int, left: int, right: int) -> int:
    """What a window of n arrivals lies between."""
    both, apart = left + right, abs(left - right)
    if 4 * both <= n:
        return _ALONE
    if 4 * apart <= both:
        return _ALIKE
    return _BUSIER if 4 * apart <= 3 * both else _MUCH_BUSIER


@jit
def _count_halves(
    halves: IntArray, n: IntArray, found: FloatArray, split: tuple[TinyArray, TinyArray, FloatArray]
) -> None:
    """Note how each sum splits, the half towards the busier neighbour first."""
    context, log2, share = split
    held, last = 0, len(n) - 1
    for i in range(len(n)):
        total = n[i]
        if total == 0:
            continue
        # Beyond its ends a trace goes on as on the other side.
        left = n[i - 1 if i > 0 else min(1, last)]
        right = n[i + 1 if i < last else max(0, last - 1)]
        kind = _context(total, left, right)
        first = halves[2 * i]
        if kind >= _BUSIER and right > left:
            first = total - first
        if total >= _SMALL:
            log2[held] = log2_bin(total, 0) - _FIRST_LOG2
            context[held], share[held] = kind, first / total
            held += 1
        else:
            found[kind, total, first] += 1
