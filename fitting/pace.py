"""Arrivals at one pace, each a little early or late, maybe by its place in a cycle of some.

Two loads of fixed rates together are such a cycle, and so are requests that come by twos.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

# Probabilities of the quantiles that are kept.
LATE_KNOTS = np.array([0, 0.01, 0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.99, 1.0])
_LEAST_GAPS = 5
# Arrivals in a cycle at most, cycles that tell it, and arrivals that it is looked for in.
_LONGEST_CYCLE, _LEAST_CYCLES, _MOST_LOOKED_AT = 64, 20, 20_000
# Lateness, in gaps, that is of rounding.
_EXACT = 1e-6


@dataclass(frozen=True)
class Lateness:
    """How late arrivals are, in gaps, where the first one is at its time.

    Parameters
    ----------
    cycle : array
        Mean lateness of the arrivals of a cycle, from the first of the trace on.
    quantiles : array
        Of the lateness that is left, at `LATE_KNOTS`.
    correlation : float
        Of an arrival's lateness with that of the one before it.
    drift : float
        How much slower the pace is than that of the first and the last arrival, which are early
        or late themselves.
    """

    cycle: FloatArray
    quantiles: FloatArray
    correlation: float
    drift: float

    def times(self, number: int, before: int, rng: np.random.Generator) -> FloatArray:
        """Times (gaps) of so many arrivals after so many others; the first of all is at 0."""
        from scipy.signal import lfilter
        from scipy.special import ndtr

        normal = rng.standard_normal(number)
        normal[1:] *= np.sqrt(1 - self.correlation**2)
        late = np.interp(
            ndtr(lfilter([1.0], [1.0, -self.correlation], normal)), LATE_KNOTS, self.quantiles
        )
        late += self.cycle[(before + np.arange(number)) % len(self.cycle)]
        if not before:
            late[0] = 0.0
        # One at the edge of a window is in that which begins there.
        due = np.arange(number) * (1 + self.drift) + 1e-6
        return np.sort(np.clip(due + late, 0, number))


def lateness_of(gaps_s: FloatArray, duration_s: float, arrivals: int) -> Lateness:
    """Find how late arrivals are against one pace.

    Parameters
    ----------
    gaps_s : array
        First gaps between arrivals (s).
    duration_s, arrivals
        Of the whole trace, which say the pace; it is that of the gaps where these are all.
    """
    if len(gaps_s) < _LEAST_GAPS:
        return ON_TIME
    pace, due = duration_s / arrivals, np.arange(1.0, len(gaps_s) + 1)
    late = np.cumsum(gaps_s) / pace - due
    drift = 0.0
    if len(gaps_s) == arrivals - 1:
        centred = due - due.mean()
        drift = float(centred @ late / (centred @ centred))
        late -= drift * due
    cycle = _cycle(np.concatenate([[0.0], late]))
    late -= cycle[np.arange(1, len(late) + 1) % len(cycle)]
    correlation = np.corrcoef(late[1:], late[:-1])[0, 1] if late.std() > _EXACT else 0.0
    correlation = float(np.clip(correlation, -0.999, 0.999))
    return Lateness(cycle, np.quantile(late, LATE_KNOTS), correlation, drift)


def _cycle(late: FloatArray) -> FloatArray:
    """Mean lateness by place in a cycle, as long as Schwarz's criterion has it."""
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
