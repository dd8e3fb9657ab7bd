"""Arrivals of windows: spread over the ticks of coarse clocks, halved, and placed in time.

A clock may be so coarse that several arrivals share a tick: they are spread over it, and put back
on it. How a window's arrivals divide over its halves is counted at each depth of a cascade. Few
arrivals have a law for their number, more of them one a log2 bin: quantiles of the share of the
first half. There is a set of laws for each context: what a window lies between. Where one of its
neighbours is busier, the half towards it is taken for the first, so that load which goes on for
some windows goes on across the edges of those that are divided.

The busiest windows have the halves that they had, down to a number of arrivals that all others are
below; the halves of those are drawn. Arrivals at one pace need no windows: each is a little early
or late, maybe by its place in a cycle, as where two loads of fixed rates come together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fitting.compiled.loops import Array, Columns, FloatArray, IntArray, jit, log2_bin

Rng = np.random.Generator
# Inter-arrival times (gaps) before arrivals, where in them windows begin, and arrival times.
Arrivals = tuple[FloatArray, FloatArray, FloatArray]

# How arrivals are placed in their last window: anywhere, evenly, as drawn gaps have it, or by gaps
# that follow each other as they did; or, by no windows, at one pace, each a little early or late.
PLACEMENTS = ("anywhere", "even", "gaps", "paced", "chained")
ANYWHERE, EVEN, GAPS, PACED, CHAINED = range(5)
# Windows whose halves are kept, and arrivals that such a window has at least.
_MOST_HALVED, LEAST_HALVED = 2048, 16
# Probabilities of the quantiles of lateness.
LATE_KNOTS = np.array([0, 0.01, 0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.99, 1.0])
_LEAST_GAPS = 5
# Arrivals in a cycle at most, cycles that tell it, and arrivals that it is looked for in.
_LONGEST_CYCLE, _LEAST_CYCLES, _MOST_LOOKED_AT = 64, 20, 20_000
# Lateness, in gaps, that is of rounding.
_EXACT = 1e-6
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
    """Return the tick (s) of a coarse clock that many arrivals share; 0 where there is none."""
    apart = gaps_s[gaps_s > 0]
    if len(apart) == len(gaps_s) or not len(apart):
        return 0.0
    # Times that are sums have errors of rounding: those of the shortest gap add up in long ones.
    tick = apart.min()
    tick = float(np.mean(apart[apart < 1.5 * tick]))
    whole = np.abs(apart / tick - np.rint(apart / tick)) <= _WHOLE * np.maximum(1, apart / tick)
    coarse = tick >= finest_s and 1 - len(apart) / len(gaps_s) >= _SHARED
    return tick if coarse and whole.all() else 0.0


def clock_stretch(tick_s: float, duration_s: float) -> float:
    """Return the ratio of a trace's duration with its last tick to that without."""
    return 1 + tick_s / duration_s


def spread_counts(finest: IntArray, tick_s: float, duration_s: float) -> IntArray:
    """Spread the arrivals of each tick over the fine windows it lasts; return new counts."""
    width = duration_s / len(finest)
    held = np.flatnonzero(finest)
    # The tick that a window holds: none of them holds two.
    tick = np.ceil(held * width / tick_s - _WHOLE).astype(np.int64)
    counts = np.bincount(tick, finest[held]).astype(np.int64)
    spread, length = np.zeros_like(finest), tick_s / width / clock_stretch(tick_s, duration_s)
    _add_arrivals(counts, length, _is_even(counts), spread, np.random.default_rng(0))
    return spread


def spread_arrivals(gaps_s: FloatArray, tick_s: float, duration_s: float) -> FloatArray:
    """Spread arrivals of one tick over it; return the new inter-arrival times (s)."""
    tick = np.rint(np.concatenate([[0.0], np.cumsum(gaps_s)]) / tick_s).astype(np.int64)
    counts = np.bincount(tick)
    if _is_even(counts):
        within = np.arange(len(tick)) - np.repeat(np.cumsum(counts) - counts, counts)
        place = tick + (within + 0.5) / np.repeat(counts, counts)
    else:
        place = np.sort(tick + np.random.default_rng(0).random(len(tick)))
    return np.diff(place) * tick_s / clock_stretch(tick_s, duration_s)


def _is_even(counts: IntArray) -> bool:
    """Tell whether ticks have nearly equal counts of arrivals."""
    return bool(counts.var() < _EVEN * counts.mean())


@jit
def _add_arrivals(counts: IntArray, length: float, even: bool, windows: IntArray, rng: Rng) -> None:
    """Add each tick's arrivals to ``windows``; a tick is ``length`` of them long."""
    last = len(windows) - 1
    for tick in range(len(counts)):
        for k in range(counts[tick]):
            part = (k + 0.5) / counts[tick] if even else rng.random()
            windows[min(last, int((tick + part) * length))] += 1


def split_laws(halves: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Sum up windows in pairs; return the sums, and laws of how many are in the first half."""
    n = halves[::2] + halves[1::2]
    found = np.zeros(SMALL_SHAPE)
    kept = int(np.count_nonzero(n >= _SMALL))
    context, log2, share = np.empty(kept, np.int8), np.empty(kept, np.int8), np.empty(kept)
    _count_halves(halves, n, found, (context, log2, share))
    small, large = np.ones(SMALL_SHAPE), np.empty(LARGE_SHAPE)
    for kind in range(CONTEXTS):
        # Where neighbours are alike each split counts as its mirror image too.
        mirrored, chosen = kind in (_ALONE, _ALIKE), context == kind
        small[kind] = _number_laws(found[kind], found.sum(axis=0), mirrored)
        # A context without splits has the laws of all.
        if not chosen.any():
            mirrored, chosen = True, ~chosen
        large[kind] = _share_laws(log2[chosen], share[chosen], mirrored)
    return n, small, large


def _number_laws(found: FloatArray, of_all: FloatArray, mirrored: bool) -> FloatArray:
    """Return, by number of arrivals, cumulated chances of how many are in the first half."""
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


def _share_laws(log2: Array, share: FloatArray, mirrored: bool) -> FloatArray:
    """Return, by log2 bin of the arrivals, quantiles of the first half's share of them."""
    large = np.full(LARGE_SHAPE[1:], 0.5)
    present = np.unique(log2).astype(np.int64)
    by_bin = {int(k): share[log2 == k] for k in present}
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
    n: int, left: int, right: int, small: FloatArray, large: FloatArray, rng: Rng
) -> int:
    """Draw how many of a window's n arrivals are in its first half, given its neighbours'."""
    kind = _neighbour_context(n, left, right)
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
def _neighbour_context(n: int, left: int, right: int) -> int:
    """Classify a window of n arrivals by its neighbours' arrivals, as one of `CONTEXTS`."""
    both, apart = left + right, 4 * abs(left - right)
    if 4 * both <= n:
        return _ALONE
    return _ALIKE if apart <= both else _BUSIER if apart <= 3 * both else _MUCH_BUSIER


@jit
def _count_halves(halves: IntArray, n: IntArray, found: FloatArray, split: Columns) -> None:
    """Record how each sum splits: few arrivals in ``found``, many as shares in ``split``."""
    context, log2, share = split
    held, last = 0, len(n) - 1
    for i in range(len(n)):
        total = n[i]
        if total == 0:
            continue
        # Beyond its ends a trace goes on as on the other side.
        left = n[i - 1 if i > 0 else min(1, last)]
        right = n[i + 1 if i < last else max(0, last - 1)]
        kind = _neighbour_context(total, left, right)
        first = halves[2 * i]
        if kind >= _BUSIER and right > left:
            first = total - first
        if total >= _SMALL:
            log2[held] = log2_bin(total, 0) - _FIRST_LOG2
            context[held], share[held] = kind, first / total
            held += 1
        else:
            found[kind, total, first] += 1


class Halves(NamedTuple):
    """Arrivals of the first halves of the busiest windows."""

    least: int  # arrivals of a window whose halves are kept, at least
    first: IntArray  # of their first halves: by depth, coarsest first, and in order of time


class HalvingRules(NamedTuple):
    """Rules of halving windows: kept `Halves` by number, and laws by depth for all others."""

    halves: Halves
    coarse: IntArray  # number of the halves of each coarse window, −1 for none
    below: IntArray  # number of those of the first half kept below each
    small: FloatArray  # laws of few and of many arrivals, as `split_laws` has them
    large: FloatArray
    stop: int  # depth at which windows are not halved any more but where their halves are kept
    placement: int  # how arrivals are placed then, an index into `PLACEMENTS`


def keep_halves(busy: list[tuple[IntArray, IntArray]]) -> Halves:
    """Keep the first halves' arrivals of the busiest windows; ``busy`` has both, by depth."""
    if not busy:
        return Halves(LEAST_HALVED, np.zeros(0, dtype=np.int64))
    whole = np.concatenate([n for n, _ in busy]).astype(np.int64)
    first = np.concatenate([half for _, half in busy]).astype(np.int64)
    least = LEAST_HALVED
    if len(whole) > _MOST_HALVED:
        least = int(np.partition(whole, -_MOST_HALVED - 1)[-_MOST_HALVED - 1]) + 1
    return Halves(least, first[whole >= least])


def link_halves(
    halves: Halves, counts: IntArray, small: FloatArray, large: FloatArray, rules: tuple[int, int]
) -> HalvingRules:
    """Find for each kept half the number of the halves below it, from coarse windows on."""
    below = np.zeros_like(halves.first)
    known, here = 0, counts
    busy = counts >= halves.least
    coarse = np.where(busy & (len(below) > 0), np.cumsum(busy) - 1, -1)
    while known < len(below) and (number := int((here >= halves.least).sum())):
        whole = here[here >= halves.least]
        first = halves.first[known : known + number]
        here = np.column_stack([first, whole - first]).ravel()
        inside = (here >= halves.least).reshape(-1, 2).sum(axis=1)
        below[known : known + number] = known + number + np.cumsum(inside) - inside
        known += number
    return HalvingRules(halves, coarse, below, small, large, *rules)


def place_arrivals(
    counts: IntArray, kept: IntArray, rules: HalvingRules, gaps: FloatArray, rng: Rng
) -> FloatArray:
    """Return sorted arrival times, in windows, for windows of ``counts`` arrivals in order."""
    times = np.empty(int(counts.sum()))
    # Where in the gap before it the window of an arrival begins, if it is the first there.
    edges = rng.random(len(times)) if rules.placement in (GAPS, CHAINED) else times
    at = np.flatnonzero(counts)
    nodes = np.stack([at, counts[at], kept[at], np.cumsum(counts[at]) - counts[at]])
    depth = 0
    while nodes.shape[1]:
        nodes = _halve_windows(nodes, rules, depth, (gaps, edges, times), rng)
        depth += 1
    if rules.placement == ANYWHERE:
        # Windows follow each other: their arrivals are in order where those of all are.
        times.sort()
    return times


@jit
def _halve_windows(
    nodes: IntArray, rules: HalvingRules, depth: int, arrivals: Arrivals, rng: Rng
) -> IntArray:
    """Halve windows, or place the arrivals of those at the last depth; return halves left."""
    # By window: its number, arrivals, number of the halves that are kept, first arrival.
    at, held, pins, offset = nodes[0], nodes[1], nodes[2], nodes[3]
    small = rules.small[min(depth, len(rules.small) - 1)]
    large = rules.large[min(depth, len(rules.large) - 1)]
    n, width = len(at), 1.0 / (1 << depth)
    below = np.empty((4, 2 * n), dtype=np.int64)
    done = 0
    for i in range(n):
        start, whole, pin = offset[i], held[i], pins[i]
        if pin < 0 and depth >= rules.stop:
            if rules.placement in (GAPS, CHAINED):
                _place_by_interarrivals(at[i] * width, width, start, start + whole, arrivals)
            else:
                here = arrivals[2][start : start + whole]
                _place_in_window(at[i] * width, width, rules.placement == EVEN, here, rng)
            continue
        none = child = len(rules.halves.first)
        if pin >= 0:
            first, child = rules.halves.first[pin], rules.below[pin]
        else:
            left = held[i - 1] if i > 0 and at[i - 1] == at[i] - 1 else 0
            right = held[i + 1] if i + 1 < n and at[i + 1] == at[i] + 1 else 0
            left = right if i == 0 else left
            right = left if i + 1 == n else right
            first = draw_split(whole, left, right, small, large, rng)
        for part in range(2):
            number = whole - first if part else first
            if number > 0:
                below[0, done], below[1, done] = 2 * at[i] + part, number
                below[2, done], below[3, done] = -1, start + (first if part else 0)
                # The finest windows have no halves.
                if child < none and number >= rules.halves.least:
                    below[2, done] = child
                    child += 1
                done += 1
    return below[:, :done].copy()


@jit
def _place_in_window(start: float, width: float, even: bool, times: FloatArray, rng: Rng) -> None:
    """Place the arrivals of a window evenly, or at random in any order; fill in ``times``."""
    n = len(times)
    for k in range(n):
        times[k] = start + width * ((k + 0.5) / n if even else rng.random())


@jit
def _place_by_interarrivals(
    start: float, width: float, first: int, end: int, arrivals: Arrivals
) -> None:
    """Place arrivals ``first`` to ``end`` in a window, as far apart as their gaps are long."""
    gaps, edges, times = arrivals
    reached = (1 - edges[first]) * gaps[first]
    total = reached
    for k in range(first + 1, end):
        total += gaps[k]
    total += edges[end] * gaps[end] if end < len(gaps) else edges[first] * gaps[first]
    total = max(total, 1e-300)
    for k in range(first, end):
        reached += gaps[k] if k > first else 0.0
        times[k] = start + width * (reached / total)


@dataclass(frozen=True)
class Lateness:
    """Lateness of arrivals, in gaps, where the first one is at its time."""

    cycle: FloatArray  # mean lateness of the arrivals of a cycle, from the first of the trace on
    quantiles: FloatArray  # of the lateness that is left, at `LATE_KNOTS`
    correlation: float  # of an arrival's lateness with that of the one before it
    # How much slower the pace is than that of the first and the last arrival, which are early or
    # late themselves.
    drift: float

    def times(self, number: int, before: int, rng: Rng) -> FloatArray:
        """Draw times (in mean gaps) of arrivals after ``before`` others; the first of all is 0."""
        from scipy.signal import lfilter
        from scipy.special import ndtr

        normal = rng.standard_normal(number)
        normal[1:] *= np.sqrt(1 - self.correlation**2)
        at = ndtr(lfilter([1.0], [1.0, -self.correlation], normal))
        late = np.interp(at, LATE_KNOTS, self.quantiles)
        late += self.cycle[(before + np.arange(number)) % len(self.cycle)]
        if not before:
            late[:1] = 0.0
        # One at the edge of a window is in that which begins there.
        due = np.arange(number) * (1 + self.drift) + 1e-6
        return np.sort(np.clip(due + late, 0, number))


def fit_lateness(gaps_s: FloatArray, duration_s: float, arrivals: int) -> Lateness:
    """Fit how late arrivals are against a constant rate; `ON_TIME` for too few gaps."""
    if len(gaps_s) < _LEAST_GAPS:
        return ON_TIME
    pace, due = duration_s / arrivals, np.arange(1.0, len(gaps_s) + 1)
    late = np.cumsum(gaps_s) / pace - due
    drift = 0.0
    if len(gaps_s) == arrivals - 1:
        centred = due - due.mean()
        drift = float(centred @ late / (centred @ centred))
        late -= drift * due
    cycle = _fit_cycle(np.concatenate([[0.0], late]))
    late -= cycle[np.arange(1, len(late) + 1) % len(cycle)]
    correlation = np.corrcoef(late[1:], late[:-1])[0, 1] if late.std() > _EXACT else 0.0
    correlation = float(np.clip(correlation, -0.999, 0.999))
    return Lateness(cycle, np.quantile(late, LATE_KNOTS), correlation, drift)


def _fit_cycle(late: FloatArray) -> FloatArray:
    """Return mean lateness by place in a cycle of the best length (Schwarz); [0] for none."""
    late = late[:_MOST_LOOKED_AT]
    n, best, cycle = len(late), np.inf, np.zeros(1)
    for length in range(1, min(_LONGEST_CYCLE, n // _LEAST_CYCLES) + 1):
        place = np.arange(n) % length
        means = np.bincount(place, late) / np.bincount(place)
        score = n * np.log(np.var(late - means[place]) + _EXACT**2) + length * np.log(n)
        if score < best:
            best, cycle = score, means if length > 1 else cycle
    return cycle


ON_TIME = Lateness(np.zeros(1), np.zeros(len(LATE_KNOTS)), 0.0, 0.0)
