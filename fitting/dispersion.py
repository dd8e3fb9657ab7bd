"""Index of dispersion of counts, and how far chance alone would move it.

The index is the variance of the arrivals in windows of one length over their mean: 1 for a Poisson
process at every length, and growing with the length where arrivals come in bursts.

References
----------
H. R. Künsch: The jackknife and the bootstrap for general stationary observations. Annals of
Statistics 17(3), 1989. doi:10.1214/aos/1176347265
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fitting.errors import FittingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]


def index_of_dispersion(counts: ArrayLike) -> float:
    """Variance over mean of counts of equal windows.

    Raises
    ------
    FittingError
        For fewer than two counts or none above 0.
    """
    count = np.asarray(counts, dtype=np.float64)
    if len(count) < 2 or not count.sum() > 0:
        raise FittingError("an index of dispersion takes two windows and one arrival at least")
    return float(count.var(ddof=1) / count.mean())


def dispersion_band(
    counts: ArrayLike, *, level: float = 0.9, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Interval of the index over resamples of blocks of neighbouring windows.

    Blocks are as long as the cube root of the number of windows, from anywhere in the series,
    which is closed to a ring.

    Parameters
    ----------
    counts : array
        Arrivals of consecutive windows.
    level : float
        Share of the resamples inside.
    draws : int
        Resamples.
    seed : int
    """
    count = np.asarray(counts, dtype=np.float64)
    index_of_dispersion(count)
    n = len(count)
    length = max(1, round(n ** (1 / 3)))
    sums = _block_sums(count, length)
    squares = _block_sums(count**2, length)
    rng = np.random.default_rng(seed)
    blocks = max(1, n // length)
    found = np.empty(draws)
    for i in range(draws):
        chosen = rng.integers(n, size=blocks)
        mean = sums[chosen].sum() / (blocks * length)
        spread = squares[chosen].sum() / (blocks * length) - mean**2
        found[i] = spread / mean if mean > 0 else np.nan
    low, high = np.nanquantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _block_sums(values: FloatArray, length: int) -> FloatArray:
    """Sum of each run of so many values, around the ring."""
    reached = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[: length - 1]]))])
    return np.asarray(reached[length:] - reached[:-length])
