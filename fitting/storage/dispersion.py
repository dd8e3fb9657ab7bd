"""Index of dispersion: how much arrivals come in bursts, by the length of windows.

It is the variance of the arrivals in windows of one length over their mean: 1 for a Poisson process
at every length, and growing with the length where arrivals come in bursts. A block bootstrap
(Künsch 1989) says how far chance alone would move it.

References
----------
H. R. Künsch: The jackknife and the bootstrap for general stationary observations. Annals of
Statistics 17(3), 1989. doi:10.1214/aos/1176347265
"""

import numpy as np

from fitting.compiled.loops import ArrayLike
from fitting.errors import FittingError


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
