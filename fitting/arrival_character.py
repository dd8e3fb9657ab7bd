"""What a sequence of arrivals is like, in a few numbers by which two are told to be alike."""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fitting.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

_LAGS = (1, 2, 4, 8, 16, 32)
# Lengths of windows, by the arrivals that they have on average: no whole numbers, or arrivals at
# one pace would all be at the edges of windows, on either side.
_WINDOWS = tuple(2**0.5 * 4**k for k in range(6))


def character(gaps_s: FloatArray) -> FloatArray:
    """Logarithms of the variation of gaps and of window counts, and autocorrelations of gaps."""
    mean, deviation = float(gaps_s.mean()), float(gaps_s.std())
    steady = len(gaps_s) <= 2 * _LAGS[-1] or deviation <= 1e-6 * mean
    centred = (gaps_s - mean) / (1.0 if steady else deviation)
    reached = np.cumsum(gaps_s)
    lagged = [0.0 if steady else (centred[:-k] * centred[k:]).mean() for k in _LAGS]
    return np.array(
        [
            2 * np.log(0.02 + deviation / mean),
            *(np.log(0.02 + _dispersion(reached, w * mean)) / 2 for w in _WINDOWS),
            *(value / 2 for value in lagged),
        ]
    )


@compiled
def _dispersion(time_s: FloatArray, window_s: float) -> float:
    """Index of dispersion: variance over mean of the arrivals in windows of a length."""
    windows = int(time_s[-1] / window_s)
    # The last window is not whole.
    arrivals, squares, here, window = 0, 0, 0, 0
    for i in range(len(time_s)):
        at = int(time_s[i] / window_s)
        # By products: no processor foretells where the next window begins.
        ends = 1 if at != window else 0
        arrivals += here * ends
        squares += here * here * ends
        here, window = here * (1 - ends) + 1, at
    if windows < 8 or arrivals == 0:
        return 1.0
    return (squares * windows - arrivals * arrivals) / (windows * arrivals)
