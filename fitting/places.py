"""Where a request of a walk starts: where one ended, where its device was touched, or anywhere."""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled import inlined
from fitting.recency import Recency, forget, knows, last_use, nearest, new_recency, use
from fitting.request_kinds import KINDS
from fitting.reuse import AGAIN, CLASSES, FRESH, age_bounds
from fitting.trace_survey import BLOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.transition_counts import TransitionCounts

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

_FRESH_TRIES, _STOPPED_TRIES = 16, 4
# Places of a run that are looked at, and steps from one stretch that is untouched to the next.
_LOOKS, _STEPS = 64, 512
# Part of the space by which a run may be away from the states that its chain is in.
_ASTRAY = 64


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
        Length in blocks of the pieces that reuse is followed by.
    pieces : float
        Pieces that a request touches on average.
    devices : array
        By stream, the index of its device.
    met : array
        By device, the share of what runs go on to, from fresh places, that was touched before.
    """

    alignment: int
    offset: int
    reuse: FloatArray | None
    piece: int = 8
    pieces: float = 1.0
    devices: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    met: FloatArray = field(default_factory=lambda: np.zeros(1))


class Stretches(NamedTuple):
    """Where states lie, and in which lists of a memory their addresses and stops are kept.

    A run may be ``astray`` from its chain by so many states before the chain follows it.
    """

    first_lbn: int
    end_lbn: int
    state_blocks: int
    astray: int
    levels: int
    alignment: int
    offset: int
    origin_start: IntArray
    state: IntArray
    device: IntArray
    place: IntArray
    stop: IntArray
    low: IntArray
    high: IntArray


class Memory(NamedTuple):
    """Where devices were touched and runs stopped, requests of each, and the law of coming back.

    ``pieces_met`` has by device the pieces that runs from fresh places went on to, and those of
    them that were touched before; ``met`` is what their share is to be.
    """

    pieces: Recency
    ends: Recency
    clock: IntArray
    pieces_met: IntArray
    met: FloatArray
    law: FloatArray
    ages: IntArray


class Pending(NamedTuple):
    """When the next request of every stream is due, what it did last, how many it has left.

    ``due`` is infinite where none are left; ``resumes`` is when the next one would be. ``state``
    is that of the last request drawn. ``end``, ``made``, ``fresh`` and ``kind`` are of the last one
    made: the block after it, the clock of its device, whether its run began fresh, its kind.
    """

    due: FloatArray
    state: IntArray
    end: IntArray
    made: IntArray
    fresh: IntArray
    kind: IntArray
    first: IntArray
    left: IntArray
    resumes: FloatArray
    order: IntArray


def stretches_of(counts: TransitionCounts, addresses: Addresses, streams: int) -> Stretches:
    """Lay out the touched states of a trace."""
    diagram = counts.diagram
    return Stretches(
        diagram.first_lbn,
        diagram.first_lbn + diagram.blocks,
        diagram.state_blocks,
        max(1, diagram.states // _ASTRAY),
        diagram.levels,
        addresses.alignment,
        addresses.offset,
        np.searchsorted(counts.state_origin, np.arange(streams * KINDS + 1)),
        counts.state,
        addresses.devices,
        _places(counts, addresses.devices, 1),
        _places(counts, addresses.devices, KINDS),
        *_extents(counts),
    )


def memory_of(counts: TransitionCounts, addresses: Addresses, expected: float) -> Memory:
    """Make empty memories of streams, with room for the requests to come."""
    law = np.zeros((0, CLASSES)) if addresses.reuse is None else addresses.reuse
    wanted = counts.occupancy * (max(expected, 1.0) if len(law) else 0.0)
    touched, stopped = (
        np.bincount(_places(counts, addresses.devices, kinds), weights=wanted).astype(float)
        for kinds in (1, KINDS)
    )
    return Memory(
        new_recency(256 + 2 * touched * addresses.pieces, addresses.piece),
        new_recency(256 + 2 * stopped, 1),
        np.zeros(int(addresses.devices.max()) + 1, dtype=np.int64),
        np.zeros((int(addresses.devices.max()) + 1, 2), dtype=np.int64),
        addresses.met,
        law,
        age_bounds(),
    )


def _extents(counts: TransitionCounts) -> tuple[IntArray, IntArray]:
    """First and last block to start at, by state: all of it that is within what was touched.

    Where exactly a state was touched would bring fresh requests back to the same few blocks.
    """
    diagram = counts.diagram
    start = diagram.first_lbn + counts.state * diagram.state_blocks
    last = start + diagram.state_blocks - 1
    return np.maximum(start, counts.lowest.min()), np.minimum(last, counts.highest.max())


def _places(counts: TransitionCounts, devices: IntArray, kinds: int) -> IntArray:
    """Number the stretches of each device, for requests of all kinds or each, by touched state."""
    stream, kind = np.divmod(counts.state_origin, KINDS)
    stretch = (devices[stream] * kinds + kind % kinds) * counts.diagram.states + counts.state
    return np.unique(stretch, return_inverse=True)[1].astype(np.int64)


@inlined
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


@inlined
def anywhere(d: Stretches, v: int, rng: np.random.Generator) -> int:
    """Aligned address within what was touched of a state."""
    low = d.low[v]
    low += (d.offset - low) % d.alignment
    places = (d.high[v] - low) // d.alignment + 1
    if places <= 1:
        return d.low[v]
    return low + d.alignment * int(rng.random() * places)


@inlined
def _known_address(d: Stretches, m: Memory, g: int, v: int, rng: np.random.Generator) -> int:
    """Address to go on from or to come back to by the law of reuse; −1 for a fresh one."""
    u = rng.random()
    low, high = 0, CLASSES
    while high - low > 1:
        middle = (low + high) >> 1
        if m.law[v, middle - 1] <= u:
            low = middle
        else:
            high = middle
    if low == FRESH:
        return -1
    again = low >= AGAIN
    age = low - AGAIN if again else low
    span = m.ages[age + 1] - m.ages[age]
    wanted = m.clock[g] - m.ages[age] - int(rng.random() * span)
    if wanted < 1:
        return -1
    if again:
        return nearest(m.pieces, d.place[v], wanted)
    for _ in range(_STOPPED_TRIES):
        lbn = nearest(m.ends, d.stop[v], wanted)
        touched = last_use(m.pieces, g, lbn) if lbn >= 0 else -1
        if touched < 0 or touched == last_use(m.ends, g, lbn):
            return lbn
        # Another run has passed since: this one has stopped for good.
        forget(m.ends, g, lbn)
    return -1


@inlined
def _remember(
    d: Stretches, m: Memory, p: Pending, s: int, v: int, kind_: int, lbn: int, size: int
) -> None:
    """Note the pieces that a request touches, and where the one before it stopped for now."""
    g, stopped = d.device[s], p.end[s]
    clock = m.clock[g]
    if lbn != stopped and stopped < d.end_lbn:
        there = state_at(d, s * KINDS + p.kind[s], stopped)
        if d.state[there] == (stopped - d.first_lbn) // d.state_blocks:
            use(m.ends, g, d.stop[there], stopped, p.made[s], True)
    forget(m.ends, g, lbn)
    p.kind[s], p.made[s] = kind_, clock
    end = lbn + size // BLOCK
    first = lbn // m.pieces.piece
    pieces = max(1, (end - 1) // m.pieces.piece - first + 1)
    for k in range(min(pieces, m.pieces.room[d.place[v]] // 4)):
        met = use(
            m.pieces, g, d.place[v], lbn + k * m.pieces.piece, clock, k == 0 and lbn != stopped
        )
        if p.fresh[s] == 1 and (k > 0 or (lbn == stopped and lbn % m.pieces.piece == 0)):
            m.pieces_met[g, 0] += 1
            m.pieces_met[g, 1] += met


@inlined
def _room(m: Memory, g: int, lbn: int, blocks: int) -> int:
    """Blocks of a run ahead of the first touched one, of those that are looked at."""
    step = max(m.pieces.piece, -(-blocks // _LOOKS))
    ahead = 0
    while ahead < blocks and not knows(m.pieces, g, lbn + ahead):
        ahead += step
    if ahead >= blocks and knows(m.pieces, g, lbn + blocks - 1):
        ahead = blocks - 1
    return min(ahead, blocks)


@inlined
def _fresh(d: Stretches, m: Memory, g: int, v: int, blocks: int, rng: np.random.Generator) -> int:
    """Address in a state with room for a run, or with the most of it, of those tried."""
    if m.pieces_met[g, 1] < m.met[g] * m.pieces_met[g, 0]:
        # Runs meet what was touched before, too.
        blocks = 1
    best, most = 0, -1
    for _ in range(_FRESH_TRIES):
        lbn = anywhere(d, v, rng)
        room = _room(m, g, lbn, blocks)
        if room > most:
            best, most = lbn, room
        if most == blocks:
            return best
    # Behind what has been touched, as it is where files fill a disk.
    step = m.pieces.piece + -m.pieces.piece % d.alignment
    lbn = d.low[v] + (d.offset - d.low[v]) % d.alignment
    for _ in range(_STEPS):
        if lbn + blocks > d.end_lbn:
            break
        room = _room(m, g, lbn, blocks)
        if room > most:
            best, most = lbn, room
        if most == blocks:
            break
        lbn += max(step, room // step * step)
    return best


@inlined
def choose_address(
    d: Stretches,
    m: Memory,
    p: Pending,
    s: int,
    v: int,
    size: int,
    run: int,
    sequential: int,
    kind_: int,
    rng: np.random.Generator,
) -> int:
    """Choose where a request starts, with room for a run of so many blocks where that is new."""
    remembers = len(m.law) > 0
    g, stopped = d.device[s], p.end[s]
    m.clock[g] += 1
    lbn = -1
    if sequential and stopped < d.end_lbn:
        lbn = stopped
        if remembers:
            v = state_at(d, s * KINDS + kind_, lbn)
    elif sequential:
        # At the end of the space, a run goes on at its begin.
        v = d.origin_start[s * KINDS + kind_]
    elif remembers:
        lbn = _known_address(d, m, g, v, rng)
    if lbn < 0 or (lbn == stopped and not sequential):
        lbn = _fresh(d, m, g, v, run, rng) if remembers else anywhere(d, v, rng)
        p.fresh[s] = 1
    elif not sequential:
        p.fresh[s] = 0
    if remembers:
        _remember(d, m, p, s, v, kind_, lbn, size)
    p.end[s] = lbn + size // BLOCK
    return lbn
