"""Arrivals in bursts: a conservative cascade over dyadic windows of time.

A chain of transitions with a law of gaps for each forgets the load of a minute ago. Here the
number of arrivals in a window is split over its halves, these over theirs, and so on. Coarse
windows keep the counts that they had; below them the share of a half is drawn from the shares
found at that depth, for the number of arrivals at hand. A number of arrivals is only ever divided,
so the total, the mean gap and the rate stay what they were.

The two halves of a window change places at random, so every seed gives another course of load
with the same variation at every scale, unless the counts are asked for in their own order.

References
----------
R. H. Riedi, M. S. Crouse, V. J. Ribeiro, R. G. Baraniuk: A multifractal wavelet model with
application to network traffic. IEEE Transactions on Information Theory 45(3), 1999.
doi:10.1109/18.761337
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fitting.arrival_character import character
from fitting.compiled import compiled
from fitting.errors import FittingError
from fitting.splits import LARGE_SHAPE, SMALL_SHAPE, drawn_split, split_laws

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

# Windows whose counts are kept, and arrivals that such a window has on average at least.
_MOST_KEPT, _LEAST_MEAN = 1024, 4
# Windows that arrivals are counted in, at most, and by arrival.
_MOST_WINDOWS, _WINDOWS_BY_ARRIVAL = 2**22, 4
# Probabilities of the quantiles of gaps: closer together where few gaps make much of the variation.
GAP_KNOTS = np.array(
    [0, *(k / 100 for k in (1, *range(5, 100, 5), 98, 99)), 0.995, 0.998, 0.999, 1.0]
)
# Knots are whole thousandths: the one below each of these.
_KNOT_BELOW = np.searchsorted(GAP_KNOTS, np.arange(1000) / 1000, side="right") - 1
# Coarse windows that differ by no more have as many arrivals as whole numbers allow.
_ROUNDING = 2
_TRIAL = 25_000
# How arrivals are placed in their last window: anywhere, evenly, or as drawn gaps have it; or, by
# no windows, at one pace, each a little early or late.
PLACEMENTS = ("anywhere", "even", "gaps", "paced")
_EVEN, _GAPS, _PACED = 1, 2, 3


@dataclass(frozen=True)
class Windows:
    """How time is cut: periods of equal length, each halved over and over.

    Parameters
    ----------
    duration_s : float
        Of all periods together.
    periods : int
        Their number; a period never changes its place.
    kept, depth : int
        Halvings down to the windows whose counts are kept, and to the finest windows.
    """

    duration_s: float
    periods: int
    kept: int
    depth: int

    @classmethod
    def of(cls, duration_s: float, requests: int, period_s: float = 1800.0) -> Windows:
        """Cut a trace so that its periods are as near a length as divides it evenly."""
        if not (duration_s > 0 and period_s > 0):
            raise FittingError(
                f"a trace of {duration_s:g} s in windows of {period_s:g} s: give positive lengths"
            )
        periods = max(1, round(duration_s / period_s))
        finest = min(_MOST_WINDOWS, _WINDOWS_BY_ARRIVAL * requests) / periods
        kept = min(_MOST_KEPT, requests / _LEAST_MEAN) / periods
        depth = max(0, int(np.log2(max(1.0, finest))))
        return cls(duration_s, periods, min(depth, max(0, int(np.log2(max(1.0, kept))))), depth)

    @property
    def finest(self) -> int:
        """Number of the finest windows."""
        return self.periods << self.depth

    def counts(self, time_s: FloatArray, total: NDArray[np.int32]) -> None:
        """Add arrivals, sorted and from 0, to the counts of the finest windows."""
        _add_counts(time_s, self.finest / self.duration_s, total)


@dataclass(frozen=True)
class Cascade:
    """Counts of coarse windows, and the laws by which finer ones divide them.

    Parameters
    ----------
    windows : Windows
    counts : array
        Arrivals of the coarse windows, in their order.
    small : array
        Depths by number n below 8 by k: probability that at most k of n are in the first half.
    large : array
        Depths by octaves of n by 17 evenly spaced quantiles of the share of the first half.
    stop : int
        Depth at which arrivals are placed, at or above the finest.
    placement : int
        How they are placed in their window, an index into `PLACEMENTS`.
    gaps : array
        Quantiles of the gaps between all arrivals over their mean, at `GAP_KNOTS`.
    """

    windows: Windows
    counts: IntArray
    small: FloatArray
    large: FloatArray
    stop: int
    placement: int
    gaps: FloatArray

    def draw_gaps(self, number: int, rng: np.random.Generator) -> FloatArray:
        """Draw gaps between arrivals, over their mean, of whatever streams."""
        gaps = rng.random(number)
        _interpolate(gaps, GAP_KNOTS, _KNOT_BELOW, self.gaps)
        return gaps

    def course(self, rng: np.random.Generator, *, in_order: bool = False) -> IntArray:
        """Counts of the coarse windows: in their order, or their halves in random order."""
        counts = self.counts.reshape(self.windows.periods, -1).copy()
        size = counts.shape[1]
        while not in_order and size > 1:
            halves = counts.reshape(-1, 2, size // 2)
            turned = rng.random(len(halves)) < 0.5
            # The trace begins and ends with an arrival.
            turned[0] = (turned[0] and halves[0, 1].any()) or not halves[0, 0].any()
            turned[-1] = (turned[-1] and halves[-1, 0].any()) or not halves[-1, 1].any()
            halves[turned] = halves[turned][:, ::-1]
            size //= 2
        return counts.ravel()

    def place(
        self,
        counts: IntArray,
        start_s: float,
        gaps_s: FloatArray,
        rng: np.random.Generator,
        *,
        in_order: bool = False,
    ) -> FloatArray:
        """Arrival times (s) in order, of coarse windows from a start on.

        Parameters
        ----------
        counts : array
            Arrivals of consecutive coarse windows.
        start_s : float
            Where the first of them starts.
        gaps_s : array
            A gap for each arrival, as the laws of the transitions draw them.
        in_order : bool
            The windows are in their own order: one pace does not take arrivals out of them.
        """
        times = np.empty(int(counts.sum()))
        width = self.windows.duration_s / len(self.counts)
        if self.placement == _PACED:
            paced = width * len(counts) * self._paced(len(times), rng)
            return start_s + (_within(counts, width, paced) if in_order else paced)
        stop = max(0, self.stop - self.windows.kept)
        _place(counts, width, stop, self.placement, self.small, self.large, gaps_s, times, rng)
        return times + start_s

    def _paced(self, number: int, rng: np.random.Generator) -> FloatArray:
        """Places of so many arrivals in the unit interval, whose gaps vary as they did."""
        spread = np.diff(GAP_KNOTS) @ (self.gaps[1:] + self.gaps[:-1] - 2) ** 2 / 4
        late = rng.normal(0, np.sqrt(spread / 2), number)
        # The first is at the begin; one at the edge of a window is in that which begins there.
        return np.asarray(np.sort(np.clip(np.arange(number) + 1e-6 + late, 0, number)) / number)


def _within(counts: IntArray, width: float, times: FloatArray) -> FloatArray:
    """Move times, in order, into the windows that they are counted in."""
    window = np.repeat(np.arange(len(counts)), counts)
    return np.clip(times, window * width, (window + 1 - 1e-9) * width)


def fit_cascade(windows: Windows, finest: ArrayLike, gaps_s: ArrayLike) -> Cascade:
    """Fit a cascade to the counts of the finest windows.

    Parameters
    ----------
    windows : Windows
    finest : array
        Arrivals of each finest window.
    gaps_s : array
        Inter-arrival times (s), some hundred thousand at least where there are: how deep the
        halving goes, and whether arrivals are even at its end, is chosen by how near the
        variation and autocorrelation of a trial come to theirs.
    """
    count, gaps = np.asarray(finest), np.asarray(gaps_s, dtype=np.float64)
    if count.shape != (windows.finest,):
        raise FittingError(f"{count.shape} counts for {windows.finest} windows")
    small, large = [], []
    for _ in range(windows.depth - windows.kept):
        count, *laws = split_laws(count)
        small.append(laws[0])
        large.append(laws[1])
    nothing = np.zeros((0, *SMALL_SHAPE)), np.zeros((0, *LARGE_SHAPE))
    full = Cascade(
        windows,
        count.astype(np.int64),
        np.array(small[::-1]) if small else nothing[0],
        np.array(large[::-1]) if large else nothing[1],
        windows.depth,
        placement=0,
        gaps=_gap_quantiles(gaps),
    )
    return _nearest(full, gaps)


def _gap_quantiles(gaps_s: FloatArray) -> FloatArray:
    if not len(gaps_s) or gaps_s.mean() <= 0:
        return np.ones(len(GAP_KNOTS))
    return np.asarray(np.quantile(gaps_s, GAP_KNOTS) / gaps_s.mean())


def _nearest(full: Cascade, gaps_s: FloatArray) -> Cascade:
    """Choose where to stop halving, and what then, by trials."""
    aim = character(gaps_s[:_TRIAL])
    depths = range(full.windows.kept, full.windows.depth + 1)
    ways = range(_PACED)
    trials = [replace(full, stop=d, placement=way) for d in depths for way in ways]
    if np.ptp(full.counts) <= _ROUNDING:
        trials.append(replace(full, stop=full.windows.kept, placement=_PACED))
    misses = [np.abs(_trial(trial, gaps_s[:_TRIAL]) - aim).sum() for trial in trials]
    return trials[int(np.argmin(misses))]


def _trial(cascade: Cascade, gaps_s: FloatArray) -> FloatArray:
    rng = np.random.default_rng(0)
    course = cascade.counts
    most = max(1, int(np.searchsorted(np.cumsum(course), _TRIAL)))
    gaps = rng.choice(gaps_s, int(course[:most].sum()))
    return character(np.diff(cascade.place(course[:most], 0.0, gaps, rng)))


@compiled
def _interpolate(at: FloatArray, knots: FloatArray, below: IntArray, quantiles: FloatArray) -> None:
    """Put quantiles in the place of their probabilities, linear between knots."""
    for i in range(len(at)):
        k = below[int(at[i] * 1000)]
        slope = (quantiles[k + 1] - quantiles[k]) / (knots[k + 1] - knots[k])
        at[i] = slope * (at[i] - knots[k]) + quantiles[k]


@compiled
def _add_counts(time_s: FloatArray, rate: float, total: NDArray[np.int32]) -> None:
    """Count arrivals in windows, so many of which pass in a second."""
    for i in range(len(time_s)):
        total[min(int(time_s[i] * rate), len(total) - 1)] += 1


@compiled
def _place(
    counts: IntArray,
    width: float,
    stop: int,
    placement: int,
    small: FloatArray,
    large: FloatArray,
    gaps: FloatArray,
    times: FloatArray,
    rng: np.random.Generator,
) -> None:
    """Divide each window's arrivals down to single ones or the last depth; times in order."""
    waiting_n = np.empty(128, dtype=np.int64)
    waiting_depth = np.empty(128, dtype=np.int64)
    waiting_start = np.empty(128)
    done = 0
    for window in range(len(counts)):
        waiting_n[0], waiting_depth[0], waiting_start[0] = counts[window], 0, window * width
        waiting = 1
        while waiting:
            waiting -= 1
            n, depth, start = waiting_n[waiting], waiting_depth[waiting], waiting_start[waiting]
            here = width / (1 << depth)
            if n == 0:
                continue
            if depth >= stop or (n == 1 and placement == 0):
                _place_last(
                    start, here, placement, gaps[done : done + n], times[done : done + n], rng
                )
                done += n
                continue
            first = drawn_split(n, depth, small, large, rng)
            waiting_n[waiting], waiting_depth[waiting] = n - first, depth + 1
            waiting_start[waiting] = start + here / 2
            waiting_n[waiting + 1], waiting_depth[waiting + 1] = first, depth + 1
            waiting_start[waiting + 1] = start
            waiting += 2


@compiled
def _place_last(
    start: float,
    width: float,
    placement: int,
    gaps: FloatArray,
    times: FloatArray,
    rng: np.random.Generator,
) -> None:
    """Place the arrivals of a window that is not divided any more."""
    n = len(times)
    if placement == _GAPS:
        total = max(gaps.sum(), 1e-300)
        reached = -rng.random() * gaps[0]
        for k in range(n):
            reached += gaps[k]
            times[k] = start + width * min(1.0, max(0.0, reached / total))
        return
    for k in range(n):
        times[k] = start + width * ((k + 0.5) / n if placement == _EVEN else rng.random())
    if placement != _EVEN and n > 1:
        times.sort()
