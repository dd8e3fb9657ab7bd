"""Transitions of a block trace, with the moments of their gaps.

A transition is what one request of a stream does after the one before it: a pair of states, the
operation, whether it starts where the other ended, and the class of its size. Everything that a
law of its inter-arrival times needs is a sum, so that batches and threads can be added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.request_kinds import KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.state_diagram import Diagram

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

OPERATIONS = 4
# Sums over the gaps g of a transition, in columns.
GAPS, SUM, SQUARES, LOGS, LOG_SQUARES, G_LOGS, SMALLEST, LARGEST = range(8)
SUMS = 8
# Histograms of gaps: classes an octave, and the exponent of the first.
PER_OCTAVE = 4
LOWEST_OCTAVE, _OCTAVES = -30, 50
HISTOGRAM_CLASSES = PER_OCTAVE * _OCTAVES


@dataclass(frozen=True)
class TransitionCounts:
    """Transitions of a trace, one an element, in the order of origin and pair.

    Parameters
    ----------
    diagram : Diagram
    origin, pair, op, sequential, size_class : array
        Stream and kind of the request before (stream · kinds + kind), code of the pair,
        operation, whether it went on where the request before it ended, class of the size.
    sums : array
        Transitions by sums over gaps: number, Σg, Σg², Σln g, Σln² g, Σg·ln g, least, largest.
    histogram : array
        Transitions by classes of ln g; zero where there were too few gaps to keep them.
    state_origin, state : array
        Streams with kinds, and finest states, that were touched, in order.
    occupancy, lowest, highest : array
        By touched state: requests, first and last block at which one started.
    departures, arrivals : array
        Touched states by levels: transitions out of and into the state that part at the level.
    """

    diagram: Diagram
    origin: IntArray
    pair: IntArray
    op: IntArray
    sequential: IntArray
    size_class: IntArray
    sums: FloatArray
    histogram: NDArray[np.uint32]
    state_origin: IntArray
    state: IntArray
    occupancy: IntArray
    lowest: IntArray
    highest: IntArray
    departures: IntArray
    arrivals: IntArray

    @property
    def stream(self) -> IntArray:
        """Index of the stream."""
        return self.origin // KINDS

    @property
    def stream_of_state(self) -> IntArray:
        """Index of the stream of every touched state."""
        return self.state_origin // KINDS

    @property
    def count(self) -> IntArray:
        """Transitions counted."""
        return self.sums[:, GAPS].astype(np.int64)

    def coarser(self) -> TransitionCounts:
        """The same trace counted with one level less: nothing has to be read again."""
        diagram, k = self.diagram.coarser(), self.diagram.fan_out
        pair = self.diagram.coarser_codes(self.pair)
        keys = (self.origin, pair, self.op, self.sequential, self.size_class)
        group, first = _groups(*keys)
        states, first_state = _groups(self.state_origin, self.state // k)
        sums = _summed(self.sums, group)
        sums[:, SMALLEST] = _extreme(np.minimum, self.sums[:, SMALLEST], group)
        sums[:, LARGEST] = _extreme(np.maximum, self.sums[:, LARGEST], group)
        return replace(
            self,
            diagram=diagram,
            **dict(zip(_KEYS, (key[first] for key in keys), strict=True)),
            sums=sums,
            histogram=_summed(self.histogram, group),
            state_origin=self.state_origin[first_state],
            state=self.state[first_state] // k,
            occupancy=_summed(self.occupancy, states),
            lowest=_extreme(np.minimum, self.lowest, states),
            highest=_extreme(np.maximum, self.highest, states),
            departures=_merged_levels(_summed(self.departures, states)),
            arrivals=_merged_levels(_summed(self.arrivals, states)),
        )


_KEYS = ("origin", "pair", "op", "sequential", "size_class")


def gap_classes() -> FloatArray:
    """Bounds (s) of the classes that gaps are counted in."""
    return np.exp2(np.arange(HISTOGRAM_CLASSES + 1) / PER_OCTAVE + LOWEST_OCTAVE)


def _groups(*keys: IntArray) -> tuple[IntArray, IntArray]:
    """Number rows by their keys, in order; and the first row of each group."""
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), dtype=bool)
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(new)
    return group, order[np.flatnonzero(np.r_[True, new[1:]])]


def _summed(rows: NDArray[Any], group: IntArray) -> NDArray[Any]:
    total = np.zeros((int(group.max()) + 1, *rows.shape[1:]), dtype=rows.dtype)
    np.add.at(total, group, rows)
    return total


def _extreme(which: np.ufunc, rows: NDArray[Any], group: IntArray) -> NDArray[Any]:
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) > 0])
    extremes: NDArray[Any] = which.reduceat(rows[order], starts)
    return extremes


def _merged_levels(by_level: IntArray) -> IntArray:
    """Add what parted at the finest level to what parted a level above it."""
    merged = by_level[:, :-1].copy()
    merged[:, -1] += by_level[:, -1]
    return merged
