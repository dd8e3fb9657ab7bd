"""Where a request of a walk starts: where one ended, where its device was touched, or anywhere."""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled import uncounted
from fitting.random_numbers import uniform
from fitting.request_kinds import KINDS
from fitting.runs import start_alignments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.random_numbers import Randomness
    from fitting.runs import Runs
    from fitting.transition_counts import TransitionCounts

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Addresses:
    """Where requests may start.

    Parameters
    ----------
    alignment, offset : int
        In blocks, as `trace_survey.Survey` has them.
    reuse : array or None
        Touched states by classes, as `reuse.reuse_law` makes it; None for uniform addresses.
    piece : int
        Length in blocks, a power of two, of the pieces that reuse is followed by.
    end_lbn : int
        Block after the last one touched.
    devices : array
        By stream, the index of its device.
    met : array
        By device, the share of what runs go on to, from fresh places, that was touched before.
    """

    alignment: int
    offset: int
    end_lbn: int
    reuse: FloatArray | None
    piece: int = 8
    devices: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    met: FloatArray = field(default_factory=lambda: np.zeros(1))


class Stretches(NamedTuple):
    """Where states lie, and in which lists of a memory their addresses and stops are kept.

    Runs start at the ``offset`` of a state modulo its ``alignment``, both in blocks, and from
    ``low`` to ``high`` of it, or else from its first block on.
    """

    first_lbn: int
    end_lbn: int
    state_blocks: int
    levels: int
    alignment: IntArray
    offset: IntArray
    origin_start: IntArray
    state: IntArray
    device: IntArray
    place: IntArray
    stop: IntArray
    low: IntArray
    high: IntArray


class Pending(NamedTuple):
    """When the next request of every stream is due, what it did last, how many it has left.

    ``due`` is infinite where none are left; ``resumes`` is when the next one would be.
    ``transition``, ``state``, ``size``, ``gap`` and whether it is ``sequential`` are of the request
    that is due, ``blocks`` of its whole run, about, ``run`` the requests of it to come, and
    ``reuse`` its class of reuse.
    ``end``, ``made``, ``fresh`` and ``kind`` are of the last one made: the block after it, the
    clock of its device, whether its run began fresh, its kind.
    """

    due: FloatArray
    gap: FloatArray
    transition: IntArray
    state: IntArray
    size: IntArray
    sequential: IntArray
    blocks: IntArray
    run: IntArray
    reuse: IntArray
    end: IntArray
    made: IntArray
    fresh: IntArray
    kind: IntArray
    first: IntArray
    left: IntArray
    resumes: FloatArray
    order: IntArray


def stretches_of(
    counts: TransitionCounts, runs: Runs, addresses: Addresses, streams: int
) -> Stretches:
    """Lay out the touched states of a trace."""
    diagram = counts.diagram
    return Stretches(
        diagram.first_lbn,
        addresses.end_lbn,
        diagram.state_blocks,
        diagram.levels,
        *start_alignments(
            runs,
            addresses.devices[counts.stream_of_state] * KINDS + counts.state_origin % KINDS,
            (addresses.alignment, addresses.offset),
            addresses.piece,
        ),
        np.searchsorted(counts.state_origin, np.arange(streams * KINDS + 1)),
        counts.state,
        addresses.devices,
        places_of(counts, addresses.devices, 1),
        places_of(counts, addresses.devices, KINDS),
        *_extents(counts, runs),
    )


def _extents(counts: TransitionCounts, runs: Runs) -> tuple[IntArray, IntArray]:
    """First and last block where runs start, by state; where none did, all that was touched."""
    diagram = counts.diagram
    start = diagram.first_lbn + counts.state * diagram.state_blocks
    last = start + diagram.state_blocks - 1
    none = runs.lowest < 0
    low = np.where(none, np.maximum(start, counts.lowest.min()), runs.lowest)
    return low, np.where(none, np.minimum(last, counts.highest.max()), runs.highest)


def places_of(counts: TransitionCounts, devices: IntArray, kinds: int) -> IntArray:
    """Number the stretches of each device, for requests of all kinds or each, by touched state."""
    stream, kind = np.divmod(counts.state_origin, KINDS)
    stretch = (devices[stream] * kinds + kind % kinds) * counts.diagram.states + counts.state
    return np.unique(stretch, return_inverse=True)[1].astype(np.int64)


@uncounted
def state_at(d: Stretches, origin: int, lbn: int) -> int:
    """Touched state of an address, or the one ahead of it where that was not touched."""
    wanted = (lbn - d.first_lbn) // d.state_blocks
    low, high = d.origin_start[origin], d.origin_start[origin + 1]
    while high - low > 1:
        middle = (low + high) >> 1
        if d.state[middle] <= wanted:
            low = middle
        else:
            high = middle
    return low


@uncounted
def anywhere(d: Stretches, v: int, blocks: int, rng: Randomness) -> int:
    """Aligned address where runs start in a state, ahead of the end by so many blocks if it can."""
    low, high = d.low[v], min(d.high[v], d.end_lbn - blocks)
    if high <= low:
        return low
    alignment = d.alignment[v]
    low += (d.offset[v] - low) % alignment
    # One place, or none where the aligned low is past high: then it is low all the same.
    places = (high - low) // alignment + 1
    return low + alignment * int(uniform(rng) * places)
