"""Arrivals in bursts: a conservative cascade over dyadic windows of time.

A chain of transitions with a law of gaps for each forgets the load of a minute ago. Here the
number of arrivals in a window is split over its halves, these over theirs, and so on. Coarse
windows keep the counts that they had; below them the share of a half is drawn from the shares
found at that depth, for the number of arrivals at hand. A number of arrivals is only ever divided,
so the total, the mean gap and the rate stay what they were.

The two halves of a window change places at random, so every seed gives another load profile with
the same variation at every scale. Where a window is busy because the one before it was, or empty
because one long gap holds them all, another order is not the same load: windows that do not meet
the halves would vary less, or more, than they did. Halves change places only at the levels where
they may, and not where the counts are asked for in their own order.

The index of dispersion is the variance of the arrivals in windows of one length over their mean: 1
for a Poisson process at every length, and growing with the length where arrivals come in bursts.
A block bootstrap (Künsch 1989) says how far chance alone would move it.

References
----------
R. H. Riedi, M. S. Crouse, V. J. Ribeiro, R. G. Baraniuk: A multifractal wavelet model with
application to network traffic. IEEE Transactions on Information Theory 45(3), 1999.
doi:10.1109/18.761337
H. R. Künsch: The jackknife and the bootstrap for general stationary observations. Annals of
Statistics 17(3), 1989. doi:10.1214/aos/1176347265
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fitting.compiled.loops import ArrayLike, BoolArray, FloatArray, IntArray, ShortArray
from fitting.errors import FittingError
from fitting.storage import interarrival, placement
from fitting.storage.placement import Halves, HalvingRules, Lateness

Rng = np.random.Generator
# Probabilities of the quantiles of gaps: closer together where few gaps make much of the variation.
_PERCENT = (1, *range(5, 100, 5), 98, 99)
GAP_KNOTS = np.array([0, *(k / 100 for k in _PERCENT), 0.995, 0.998, 0.999, 1.0])
_LAGS = (1, 2, 4, 8, 16, 32)
# Lengths of windows, by the arrivals that they have on average: no whole numbers, or arrivals at
# one pace would all be at the edges of windows, on either side.
_WINDOWS = tuple(2**0.5 * 4**k for k in range(6))
# Windows whose counts are kept, and arrivals that such a window has on average at least.
_MOST_KEPT, _LEAST_MEAN = 1024, 4
# Windows that arrivals are counted in, at most, and by arrival.
_MOST_WINDOWS, _WINDOWS_BY_ARRIVAL = 2**22, 4
# Dispersion is compared where windows hold so many arrivals, and there are so many of them, at
# lengths that are round numbers of seconds.
_LEAST_COUNT, _LEAST_WINDOWS = 20, 20
_ROUND = np.multiply.outer(10.0 ** np.arange(-9, 10), [1, 2, 5]).ravel()
_TRIALS, _RESAMPLES = 8, 100
# How far another load profile may be off: this part of the way to the edge of the bootstrap's
# band, and this part of the variation of gaps.
_OF_BAND, _OF_VARIATION = 0.4, 0.03
_EXACT = 1e-3
# Arrivals at one pace are so far from it at most, and this times the root of their number: a
# Poisson process is five times as far.
_ROUNDING, _BEHIND = 2, 0.1
# Windows that another load profile is looked at in, about, and arrivals of a trial.
_MOST_FINE = 4096
_TRIAL = 25_000


@dataclass(frozen=True)
class Windows:
    """Division of time: periods of equal length, each halved over and over."""

    duration_s: float  # of all periods together
    periods: int  # a period never changes its place
    kept: int  # halvings down to the windows whose counts are kept
    depth: int  # halvings down to the finest windows: one more at least

    @classmethod
    def of(cls, duration_s: float, requests: int, period_s: float = 1800.0) -> Windows:
        """Divide a trace into equal periods of about ``period_s``, and each into halves."""
        if not (duration_s > 0 and period_s > 0):
            raise FittingError(
                f"a trace of {duration_s:g} s in windows of {period_s:g} s: give positive lengths"
            )
        # Arrivals that lie far apart would fill the memory with empty periods.
        periods = max(1, round(min(duration_s / period_s, _MOST_WINDOWS)))
        finest = min(_MOST_WINDOWS, _WINDOWS_BY_ARRIVAL * requests) / periods
        kept = min(_MOST_KEPT, requests / _LEAST_MEAN) / periods
        # However few arrivals there are, a law of how they divide is found.
        depth = int(np.log2(max(2.0, finest)))
        return cls(duration_s, periods, int(np.log2(max(1.0, kept))), depth)

    @property
    def finest(self) -> int:
        """Number of windows at the finest level, in all periods."""
        return self.periods << self.depth

    def counts(self, time_s: FloatArray, total: ShortArray) -> None:
        """Add sorted arrival times (s, from 0) to ``total``, the counts of the finest windows."""
        window = (time_s * (self.finest / self.duration_s)).astype(np.int64)
        np.add.at(total, np.minimum(window, len(total) - 1), 1)


@dataclass(frozen=True)
class Cascade:
    """Counts of coarse windows, and the laws by which finer ones divide them."""

    windows: Windows
    counts: IntArray  # arrivals of the coarse windows, in their order
    loose: BoolArray  # by halving of a period, coarsest first, whether halves change places
    halves: Halves  # what finer windows held where most arrivals are
    small: FloatArray  # by depth, n below 8 and k: chance that at most k of n are in the 1st half
    large: FloatArray  # by depth and log2 bin of n: 17 even quantiles of the share of the 1st half
    stop: int  # depth at which arrivals are placed, at or above the finest
    placement: int  # how they are placed in their window, an index into `PLACEMENTS`
    gaps: FloatArray  # quantiles of the gaps between arrivals over their mean, at `GAP_KNOTS`
    chain: FloatArray  # which gaps follow which, as `interarrival.fit_chain` has it
    lateness: Lateness  # of arrivals that keep one pace, in gaps
    tick_s: float  # tick (s) of a clock of which several arrivals share one; 0 where few do

    @cached_property
    def _halving_rules(self) -> HalvingRules:
        rules = self.stop - self.windows.kept, self.placement
        return placement.link_halves(self.halves, self.counts, self.small, self.large, rules)

    def draw_interarrivals(self, number: int, rng: Rng) -> FloatArray:
        """Draw gaps between consecutive arrivals of the trace, as multiples of the mean gap."""
        if self.placement == placement.CHAINED:
            at = interarrival.draw_chained(self.chain, number, rng)
        else:
            at = rng.random(number)
        return np.interp(at, GAP_KNOTS, self.gaps)

    def ordered_interarrivals(self, gaps_s: FloatArray, rng: Rng) -> FloatArray:
        """Draw gaps (in mean gaps), ranked like ``gaps_s`` where placement is by gaps."""
        if self.placement != placement.GAPS:
            return self.draw_interarrivals(len(gaps_s), rng)
        # Equal gaps are in no order.
        order = rng.permutation(len(gaps_s))
        order = order[np.argsort(gaps_s[order], kind="stable")]
        at = np.empty(len(order))
        at[order] = (np.arange(len(order)) + rng.random(len(order))) / len(order)
        return np.interp(at, GAP_KNOTS, self.gaps)

    def load_profile(self, rng: Rng, *, in_order: bool = False) -> IntArray:
        """Return indices of the coarse windows, in order or with loose halves swapped at random."""
        loose = self.loose & (not in_order)
        return swap_halves(self.counts, self.windows.periods, loose, rng)

    def place(
        self, windows: IntArray, start: float, gaps: FloatArray, rng: Rng, *, in_order: bool = False
    ) -> FloatArray:
        """Return sorted arrival times (s), from ``start`` on, in coarse windows given by index.

        ``gaps`` has a gap for each arrival, in whatever unit. Where windows are in their own
        order (``in_order``), one pace does not take arrivals out of them.
        """
        counts, duration_s = self.counts[windows], self.windows.duration_s
        if self.placement == placement.PACED:
            number = int(counts.sum())
            before = round(start / duration_s * int(self.counts.sum()))
            times = self.lateness.times(number, before, rng) * (len(counts) / number)
            if in_order:
                window = np.repeat(np.arange(len(counts)), counts)
                times = np.clip(times, window, window + 1 - 1e-9)
        else:
            rules = self._halving_rules
            kept = rules.coarse[windows]
            times = placement.place_arrivals(counts, kept, rules, gaps, rng)
        times = start + times * (duration_s / len(self.counts))
        if not self.tick_s:
            return times
        stretch = placement.clock_stretch(self.tick_s, duration_s)
        return np.asarray(np.floor(times * stretch / self.tick_s) * self.tick_s)


def fit_cascade(windows: Windows, finest: ArrayLike, gaps_s: ArrayLike) -> Cascade:
    """Fit a cascade to the counts of the finest windows, and to inter-arrival times (s).

    Of these it takes some hundred thousand at least where there are: how deep the halving goes,
    and whether arrivals are even at its end, is chosen by how near the variation and
    autocorrelation of a trial come to theirs.
    """
    count, gaps = np.asarray(finest), np.asarray(gaps_s, dtype=np.float64)
    if count.shape != (windows.finest,):
        raise FittingError(f"{count.shape} counts for {windows.finest} windows")
    tick_s = placement.shared_tick(gaps, windows.duration_s / windows.finest)
    if tick_s:
        count = placement.spread_counts(count, tick_s, windows.duration_s)
        gaps = placement.spread_arrivals(gaps, tick_s, windows.duration_s)
    # Arrivals at one instant tell no gaps: all are alike.
    gaps = gaps if gaps.any() else np.ones(1)
    laws, busy, fine = [], [], count
    for _ in range(windows.depth - windows.kept):
        fine = count if len(count) > _MOST_FINE else fine
        first = count[::2]
        count, *law = placement.split_laws(count)
        laws.append(law)
        many = np.flatnonzero(count >= placement.LEAST_HALVED)
        busy.append((count[many], first[many]))
    small, large = (np.array(of) for of in zip(*laws[::-1], strict=True))
    duration_s, lateness = windows.duration_s, placement.ON_TIME
    if _is_periodic(count):
        lateness = placement.fit_lateness(gaps, duration_s, int(count.sum()))
    full = Cascade(
        windows,
        count.astype(np.int64),
        loose_levels(count, fine, windows.periods, duration_s / len(fine)),
        placement.keep_halves(busy[::-1]),
        *(small, large, windows.depth),
        placement=0,
        gaps=np.quantile(gaps, GAP_KNOTS) / gaps.mean(),
        chain=interarrival.fit_chain(gaps),
        lateness=lateness,
        tick_s=tick_s,
    )
    return _choose_placement(full, gaps)


def _choose_placement(full: Cascade, gaps_s: FloatArray) -> Cascade:
    """Choose the depth and placement whose trial is most like the original arrivals."""
    aim = describe_interarrivals(gaps_s[:_TRIAL])
    depths = range(full.windows.kept, full.windows.depth + 1)
    ways = [way for way in range(len(placement.PLACEMENTS)) if way != placement.PACED]
    trials = [replace(full, stop=d, placement=way) for d in depths for way in ways]
    if _is_periodic(full.counts):
        trials.append(replace(full, stop=full.windows.kept, placement=placement.PACED))
    misses = [np.abs(_trial_character(trial, gaps_s[:_TRIAL]) - aim).sum() for trial in trials]
    return trials[int(np.argmin(misses))]


def _is_periodic(counts: IntArray) -> bool:
    """Tell whether arrivals stay close to a constant rate, from their counts by window."""
    reached = np.cumsum(counts)
    ahead = reached - reached[-1] / len(counts) * np.arange(1, len(counts) + 1)
    return bool(np.abs(ahead).max() <= _ROUNDING + _BEHIND * np.sqrt(reached[-1]))


def _trial_character(cascade: Cascade, gaps_s: FloatArray) -> FloatArray:
    """Place some arrivals by a cascade, as a trial, and return their `describe_interarrivals`."""
    rng = np.random.default_rng(0)
    reached = np.cumsum(cascade.counts)
    most = max(1, int(np.searchsorted(reached, _TRIAL)))
    number = int(reached[most - 1])
    is_chained = cascade.placement == placement.CHAINED
    gaps = cascade.draw_interarrivals(number, rng) if is_chained else rng.choice(gaps_s, number)
    # The gaps that are aimed at are those of arrivals that share no tick.
    trial = replace(cascade, tick_s=0.0)
    return describe_interarrivals(np.diff(trial.place(np.arange(most), 0.0, gaps, rng)))


def describe_interarrivals(gaps_s: FloatArray) -> FloatArray:
    """Describe gaps by numbers to compare: variation, dispersion of counts, autocorrelations."""
    mean, deviation = float(gaps_s.mean()), float(gaps_s.std())
    steady = len(gaps_s) <= 2 * _LAGS[-1] or deviation <= 1e-6 * mean
    centred = (gaps_s - mean) / (1.0 if steady else deviation)
    reached = np.cumsum(gaps_s)
    lagged = [0.0 if steady else (centred[:-k] * centred[k:]).mean() / 2 for k in _LAGS]
    counts = [np.log(0.02 + _dispersion_of_times(reached, w * mean)) / 2 for w in _WINDOWS]
    return np.array([2 * np.log(0.02 + deviation / mean), *counts, *lagged])


def _dispersion_of_times(time_s: FloatArray, window_s: float) -> float:
    """Return variance over mean of arrivals by window; 1 for fewer than eight windows."""
    # The last window is not whole.
    counts = np.bincount((time_s / window_s).astype(np.int64))[:-1]
    windows, arrivals = len(counts), int(counts.sum())
    if windows < 8 or arrivals == 0:
        return 1.0
    return (int(counts @ counts) * windows - arrivals**2) / (windows * arrivals)


def index_of_dispersion(counts: ArrayLike) -> float:
    """Return variance over mean of equal windows' counts; `FittingError` for one, or no arrival."""
    count = np.asarray(counts, dtype=np.float64)
    if len(count) < 2 or not count.sum() > 0:
        raise FittingError(
            "an index of dispersion needs two windows and one arrival or more: use a longer trace"
        )
    return float(count.var(ddof=1) / count.mean())


def dispersion_band(
    counts: ArrayLike, *, level: float = 0.9, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Return the interval that holds ``level`` of the bootstrapped indices of dispersion.

    A resample joins blocks of neighbouring windows, as long as the cube root of their number, from
    anywhere in the series, which is closed to a ring.
    """
    count = np.asarray(counts, dtype=np.float64)
    index_of_dispersion(count)
    n = len(count)
    length = max(1, round(n ** (1 / 3)))
    # Sums of each block of counts and of their squares, around the ring.
    ring = np.pad(np.stack([count, count**2]), ((0, 0), (0, length - 1)), mode="wrap")
    reached = np.pad(np.cumsum(ring, axis=1), ((0, 0), (1, 0)))
    sums, squares = reached[:, length:] - reached[:, :-length]
    blocks = max(1, n // length)
    chosen = np.random.default_rng(seed).integers(n, size=(draws, blocks))
    mean = sums[chosen].sum(axis=1) / (blocks * length)
    spread = squares[chosen].sum(axis=1) / (blocks * length) - mean**2
    found = np.divide(spread, mean, out=np.full(draws, np.nan), where=mean > 0)
    low, high = np.nanquantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def swap_halves(counts: IntArray, periods: int, loose: BoolArray, rng: Rng) -> IntArray:
    """Return indices of the coarse windows, with halves swapped at random at ``loose`` levels."""
    profile = np.arange(len(counts)).reshape(periods, -1)
    size = profile.shape[1]
    for turns in loose:
        if turns:
            halves = profile.reshape(-1, 2, size // 2)
            swap = rng.random(len(halves)) < 0.5
            # The trace begins and ends with an arrival.
            begin, end = (counts[halves[k]].any(axis=1) for k in (0, -1))
            swap[0] = (swap[0] and begin[1]) or not begin[0]
            swap[-1] = (swap[-1] and end[0]) or not end[1]
            halves[swap] = halves[swap][:, ::-1]
        size //= 2
    return profile.ravel()


def loose_levels(counts: IntArray, fine: IntArray, periods: int, fine_s: float) -> BoolArray:
    """Tell by level, coarsest first, whether halves may change places with the load alike.

    It is alike where the mean index of dispersion of a few such load profiles is well inside the
    band of a block bootstrap, at lengths of windows that the halves do not meet, and gaps vary as
    much. These are round numbers of seconds, as much that comes again and again does after so many.

    ``fine`` are the arrivals of parts of the coarse windows, so long (s) each.
    """
    loose = np.zeros((len(counts) // periods).bit_length() - 1, dtype=np.bool_)
    parts = fine.reshape(len(counts), -1)
    bands, variation = _dispersion_bands(fine, fine_s), _mean_square_interarrival(fine)
    for level in range(len(loose)):
        loose[level] = True
        rng = np.random.default_rng(level)
        orders = [swap_halves(counts, periods, loose, rng) for _ in range(_TRIALS)]
        loose[level] = _is_alike(parts[np.array(orders)].reshape(_TRIALS, -1), bands, variation)
    return loose


class _Band(NamedTuple):
    """Bounds of the index of dispersion over windows that end inside fine ones."""

    window: IntArray  # the fine window that each end is in
    part: FloatArray  # part of it before the end
    lower: float
    upper: float


def _dispersion_bands(counts: IntArray, width_s: float) -> list[_Band]:
    """List bounds of the index of dispersion, one for each window length to compare."""
    shortest = max(1.0, _LEAST_COUNT * len(counts) / int(counts.sum())) * width_s
    longest = len(counts) / (_LEAST_WINDOWS + 1) * width_s
    found = []
    begin, end = np.searchsorted(_ROUND, [shortest, longest])
    reached = np.cumsum(np.r_[0, counts])
    for length in _ROUND[begin:end] / width_s:
        ends = np.arange(int(len(counts) / length) + 1) * length
        window = np.minimum(ends.astype(np.int64), len(counts) - 1)
        arrivals = _count_between(reached, window, ends - window)
        index = index_of_dispersion(arrivals)
        low, high = dispersion_band(arrivals, draws=_RESAMPLES)
        lower = min(index - _EXACT, index + _OF_BAND * (low - index))
        upper = max(index + _EXACT, index + _OF_BAND * (high - index))
        found.append(_Band(window, ends - window, lower, upper))
    return found


def _count_between(reached: IntArray, window: IntArray, part: FloatArray) -> FloatArray:
    """Count arrivals between times inside windows, from cumulated counts, by interpolation."""
    before = reached[..., window]
    return np.diff(before + part * (reached[..., window + 1] - before))


def _mean_square_interarrival(counts: IntArray) -> float:
    """Return the mean square of gaps, in windows, if arrivals are even in each window."""
    busy = np.flatnonzero(counts)
    width = 1 / counts[busy]
    between = np.diff(busy) - 1 + (width[1:] + width[:-1]) / 2
    inside = (counts[busy] - 1) * width**2
    return float((inside.sum() + (between**2).sum()) / counts.sum())


def _is_alike(profiles: IntArray, bands: list[_Band], variation: float) -> bool:
    """Tell whether load profiles' dispersion is within the bands and their gaps vary as given."""
    found = np.mean([_mean_square_interarrival(profile) for profile in profiles])
    # The coefficient of variation goes with the root.
    if abs(found / variation - 1) > 2 * _OF_VARIATION:
        return False
    reached = np.cumsum(np.pad(profiles, ((0, 0), (1, 0))), axis=1)
    for window, part, lower, upper in bands:
        arrivals = _count_between(reached, window, part)
        if not lower <= np.mean([index_of_dispersion(counts) for counts in arrivals]) <= upper:
            return False
    return True
