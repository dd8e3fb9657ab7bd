"""How well the transitions of one part of a trace foretell those of another.

The likelihood of a request's address is that of its transition, of the finest state entered, and
of one address in that state alike; counts are raised by a half (Jeffreys) so that what was never
seen stays possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.transition_counts import TransitionCounts

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

_PRIOR = 0.5


def log_likelihood(fitted: TransitionCounts, seen: TransitionCounts) -> float:
    """Mean log-likelihood (nats a request, per block) of transitions under another's counts.

    Parameters
    ----------
    fitted : TransitionCounts
        Of the part that is learnt from.
    seen : TransitionCounts
        Of the part that is foretold, over the same diagram and streams.
    """
    diagram, k = fitted.diagram, fitted.diagram.fan_out
    pairs, total = _pair_counts(seen)
    level, source, _ = diagram.pairs(pairs % diagram.pair_codes)
    stream = pairs // diagram.pair_codes
    known = _look_up(*_pair_counts(fitted), pairs)
    made = _made_in(fitted, stream, level, source)
    # A state can go to its siblings at every level, and at the finest to itself.
    ways = (k - 1) * diagram.levels + 1
    found = total @ np.log((known + _PRIOR) / (made + _PRIOR * ways))
    entered = _entries(fitted, seen)
    return float((found + entered) / total.sum() - np.log(diagram.state_blocks))


def _pair_counts(counts: TransitionCounts) -> tuple[IntArray, FloatArray]:
    keys = counts.stream * counts.diagram.pair_codes + counts.pair
    unique, place = np.unique(keys, return_inverse=True)
    return unique, _tally(place, counts.count)


def _tally(place: IntArray, weight: IntArray) -> FloatArray:
    return np.bincount(place, weight).astype(np.float64)


def _look_up(keys: IntArray, values: FloatArray, wanted: IntArray) -> FloatArray:
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0.0)


def _states(counts: TransitionCounts, level: int) -> IntArray:
    """Key of the state at a level of every touched state."""
    diagram = counts.diagram
    coarse = counts.state // diagram.fan_out ** (diagram.levels - level)
    return np.asarray(counts.stream_of_state * diagram.states + coarse)


def _made_in(
    counts: TransitionCounts, stream: IntArray, level: IntArray, source: IntArray
) -> FloatArray:
    """Transitions made from each of some states, at whatever level they part."""
    made = np.zeros(len(stream))
    left = counts.departures.sum(axis=1)
    for i in range(1, counts.diagram.levels + 1):
        keys, place = np.unique(_states(counts, i), return_inverse=True)
        here = level == i
        wanted = stream[here] * counts.diagram.states + source[here]
        made[here] = _look_up(keys, _tally(place, left), wanted)
    return made


def _entries(fitted: TransitionCounts, seen: TransitionCounts) -> float:
    """Log-likelihood of the finest states entered, given the coarse ones."""
    diagram, found = fitted.diagram, 0.0
    finest = diagram.levels
    keys, place = np.unique(_states(fitted, finest), return_inverse=True)
    occupied = _tally(place, fitted.occupancy)
    inside = _look_up(keys, occupied, _states(seen, finest)) + _PRIOR
    for i in range(1, finest):
        keys, place = np.unique(_states(fitted, i), return_inverse=True)
        whole = _tally(place, fitted.occupancy)
        ways = diagram.fan_out ** (finest - i)
        total = _look_up(keys, whole, _states(seen, i)) + _PRIOR * ways
        found += float(seen.arrivals[:, i - 1] @ np.log(inside / total))
    return found
