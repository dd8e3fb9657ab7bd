"""The course of load: arrivals of coarse windows, whose halves change places where they may.

Another order of the same windows is another course of load. Where a window is busy because the one
before it was, or empty because one long gap holds them all, an order of its own at that level is
not the same load: windows that do not meet the halves would vary less, or more, than they did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.dispersion import dispersion_band, index_of_dispersion

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]
    Levels = NDArray[np.bool_]

# Lengths are looked at where windows hold so many arrivals, and there are so many of them.
_LEAST_COUNT, _LEAST_WINDOWS = 20, 20
_ROUND = np.multiply.outer(10.0 ** np.arange(-9, 10), [1, 2, 5]).ravel()
_TRIALS, _RESAMPLES = 8, 100
# How far another course may be off: this part of the way to the edge of the bootstrap's band, and
# this part of the variation of gaps.
_OF_BAND, _OF_VARIATION = 0.4, 0.03
_EXACT = 1e-3


def turned(counts: IntArray, periods: int, loose: Levels, rng: np.random.Generator) -> IntArray:
    """Put coarse windows, by number, in another order: halves change places where they are loose.

    Parameters
    ----------
    counts : array
        Arrivals of the coarse windows, a power of two of them in each period.
    periods : int
        A period never changes its place.
    loose : array
        By level, coarsest first, whether halves change places.
    rng : numpy.random.Generator
    """
    course = np.arange(len(counts)).reshape(periods, -1)
    size = course.shape[1]
    for turns in loose:
        if turns:
            halves = course.reshape(-1, 2, size // 2)
            swap = rng.random(len(halves)) < 0.5
            # The trace begins and ends with an arrival.
            begin, end = (counts[halves[k]].any(axis=1) for k in (0, -1))
            swap[0] = (swap[0] and begin[1]) or not begin[0]
            swap[-1] = (swap[-1] and end[0]) or not end[1]
            halves[swap] = halves[swap][:, ::-1]
        size //= 2
    return course.ravel()


def loose_levels(counts: IntArray, fine: IntArray, periods: int, fine_s: float) -> Levels:
    """Levels at which halves may change places, coarsest first, and the load stays alike.

    It is alike where the mean index of dispersion of a few such courses is well inside the band of
    a block bootstrap, at lengths of windows that the halves do not meet, and gaps vary as much.
    These are round numbers of seconds, as much that comes again and again does after so many.

    Parameters
    ----------
    counts, fine : array
        Arrivals of the coarse windows, and of parts of them.
    periods : int
        As `turned` has them.
    fine_s : float
        Length of the parts.
    """
    loose = np.zeros((len(counts) // periods).bit_length() - 1, dtype=np.bool_)
    parts = fine.reshape(len(counts), -1)
    bands, variation = _bands(fine, fine_s), _variation(fine)
    for level in range(len(loose)):
        loose[level] = True
        rng = np.random.default_rng(level)
        orders = [turned(counts, periods, loose, rng) for _ in range(_TRIALS)]
        loose[level] = _alike(parts[np.array(orders)].reshape(_TRIALS, -1), bands, variation)
    return loose


class _Cuts(NamedTuple):
    """Where windows end, in coarse windows: the one that is cut, and the part of it before."""

    window: IntArray
    part: FloatArray

    @classmethod
    def of(cls, windows: int, length: float) -> _Cuts:
        ends = np.arange(int(windows / length) + 1) * length
        window = np.minimum(ends.astype(np.int64), windows - 1)
        return cls(window, np.asarray(ends - window, dtype=np.float64))


class _Band(NamedTuple):
    """What the index of dispersion may be over windows that are cut so."""

    cuts: _Cuts
    lower: float
    upper: float


def _bands(counts: IntArray, width_s: float) -> list[_Band]:
    shortest = max(1.0, _LEAST_COUNT * len(counts) / int(counts.sum())) * width_s
    longest = len(counts) / (_LEAST_WINDOWS + 1) * width_s
    found = []
    begin, end = np.searchsorted(_ROUND, [shortest, longest])
    reached = _reached(counts)
    for length in _ROUND[begin:end] / width_s:
        cuts = _Cuts.of(len(counts), length)
        arrivals = _arrivals(reached, cuts)
        index = index_of_dispersion(arrivals)
        low, high = dispersion_band(arrivals, draws=_RESAMPLES)
        lower = min(index - _EXACT, index + _OF_BAND * (low - index))
        upper = max(index + _EXACT, index + _OF_BAND * (high - index))
        found.append(_Band(cuts, lower, upper))
    return found


def _reached(counts: IntArray) -> IntArray:
    """Arrivals before each coarse window, and in the end; the last axis is time."""
    reached = np.zeros((*counts.shape[:-1], counts.shape[-1] + 1), dtype=np.int64)
    np.cumsum(counts, axis=-1, out=reached[..., 1:])
    return reached


def _arrivals(reached: IntArray, cuts: _Cuts) -> FloatArray:
    """Arrivals of windows, even in those that are cut; the last axis is time."""
    before = reached[..., cuts.window]
    return np.diff(before + cuts.part * (reached[..., cuts.window + 1] - before))


def _variation(counts: IntArray) -> float:
    """Mean square of the gaps, in coarse windows, of arrivals that are even in each."""
    busy = np.flatnonzero(counts)
    width = 1 / counts[busy]
    between = np.diff(busy) - 1 + (width[1:] + width[:-1]) / 2
    inside = (counts[busy] - 1) * width**2
    return float((inside.sum() + (between**2).sum()) / counts.sum())


def _alike(courses: IntArray, bands: list[_Band], variation: float) -> bool:
    found = np.mean([_variation(course) for course in courses])
    # The coefficient of variation goes with the root.
    if abs(found / variation - 1) > 2 * _OF_VARIATION:
        return False
    reached = _reached(courses)
    for cuts, lower, upper in bands:
        index = np.mean([index_of_dispersion(counts) for counts in _arrivals(reached, cuts)])
        if not lower <= index <= upper:
            return False
    return True
