"""Where a request of a walk starts: where one ended, where its device was touched, or anywhere."""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled import inlined, uncounted
from fitting.recency import Recency, forget, knows, last_use, nearest, new_recency, use
from fitting.request_kinds import KINDS
from fitting.reuse import AGAIN, CLASSES, FRESH, age_bounds
from fitting.runs import start_alignments
from fitting.trace_survey import BLOCK
from fitting.walk_draws import Batches, draw, new_batches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.runs import Runs
    from fitting.transition_counts import TransitionCounts

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

_FRESH_TRIES, _STOPPED_TRIES = 16, 4
# Places of a run that are looked at, and steps from one stretch that is untouched to the next.
_LOOKS, _STEPS = 64, 512
_LATELY = 2048


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
    pieces: float = 1.0
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


class Memory(NamedTuple):
    """Where devices were touched and runs stopped, requests of each, and the law of coming back.

    ``pieces_met`` has by device the pieces that runs from fresh places
    went on to, and those of them that were touched before; ``met`` is what their share is to be.
    """

    pieces: Recency
    ends: Recency
    clock: IntArray
    pieces_met: IntArray
    met: FloatArray
    law: FloatArray
    draws: Batches
    ages: IntArray


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
        _places(counts, addresses.devices, 1),
        _places(counts, addresses.devices, KINDS),
        *_extents(counts, runs),
    )


def memory_of(
    counts: TransitionCounts,
    started: IntArray,
    addresses: Addresses,
    expected: float,
    share: float,
    rng: np.random.Generator,
) -> Memory:
    """Make empty memories of streams, with room for the requests to come."""
    law = np.zeros((0, CLASSES)) if addresses.reuse is None else addresses.reuse
    # Without a law nothing is remembered.
    least, requests = (256, max(expected, 1.0)) if len(law) else (0, 0.0)
    wanted = counts.occupancy * requests
    touched, stopped = (
        np.bincount(_places(counts, addresses.devices, kinds), weights=wanted).astype(float)
        for kinds in (1, KINDS)
    )
    devices = int(addresses.devices.max()) + 1
    return Memory(
        new_recency(least + 2 * touched * addresses.pieces, addresses.piece),
        new_recency(least + 2 * stopped, 1),
        np.zeros(devices, dtype=np.int64),
        np.zeros((devices, 2), dtype=np.int64),
        addresses.met,
        law,
        new_batches(np.float64(min(share, 1.0)) * started, rng),
        age_bounds(),
    )


def _extents(counts: TransitionCounts, runs: Runs) -> tuple[IntArray, IntArray]:
    """First and last block where runs start, by state; where none did, all that was touched."""
    diagram = counts.diagram
    start = diagram.first_lbn + counts.state * diagram.state_blocks
    last = start + diagram.state_blocks - 1
    none = runs.lowest < 0
    low = np.where(none, np.maximum(start, counts.lowest.min()), runs.lowest)
    return low, np.where(none, np.minimum(last, counts.highest.max()), runs.highest)


def _places(counts: TransitionCounts, devices: IntArray, kinds: int) -> IntArray:
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
def anywhere(d: Stretches, v: int, blocks: int, rng: np.random.Generator) -> int:
    """Aligned address where runs start in a state, ahead of the end by so many blocks if it can."""
    low, high = d.low[v], min(d.high[v], d.end_lbn - blocks)
    if high <= low:
        return low
    alignment = d.alignment[v]
    low += (d.offset[v] - low) % alignment
    places = max(0, high - low) // alignment + 1
    return low + alignment * int(rng.random() * places)


@uncounted
def drawn_class(m: Memory, v: int, rng: np.random.Generator) -> int:
    """Draw a class of the law of reuse of a touched state; fresh where there is no law."""
    if len(m.law) == 0:
        return FRESH
    u = draw(m.draws, v, rng)
    low, high = 0, CLASSES
    while high - low > 1:
        middle = (low + high) >> 1
        if m.law[v, middle - 1] <= u:
            low = middle
        else:
            high = middle
    return low


@uncounted
def _known_address(
    d: Stretches,
    m: Memory,
    g: int,
    v: int,
    class_: int,
    blocks: int,
    rng: np.random.Generator,
) -> int:
    """Address to go on from or to come back to by a class of reuse; −1 for a fresh one."""
    if class_ == FRESH:
        return -1
    age = class_ - AGAIN if class_ >= AGAIN else class_
    span = m.ages[age + 1] - m.ages[age]
    wanted = m.clock[g] - m.ages[age] - int(rng.random() * span)
    if wanted < 1:
        return -1
    if class_ >= AGAIN:
        return nearest(m.pieces, d.place[v], wanted)
    return _stopped(d, m, g, v, wanted, blocks)


@uncounted
def _has_stopped(m: Memory, g: int, lbn: int, blocks: int) -> bool:
    """Whether a run that ended at an address can go on there: no other has been there lately."""
    stopped, touched = last_use(m.ends, g, lbn), last_use(m.pieces, g, lbn)
    if touched >= 0 and touched != stopped:
        return False
    lately = max(0, m.clock[g] - _LATELY)
    ahead = last_use(m.pieces, g, lbn + m.pieces.piece)
    last = last_use(m.pieces, g, lbn + max(blocks - 1, m.pieces.piece))
    return ahead <= lately and last <= lately


@uncounted
def _stopped(d: Stretches, m: Memory, g: int, v: int, wanted: int, blocks: int) -> int:
    """Address of a state where a run has stopped, nearest to a clock; or −1."""
    for _ in range(_STOPPED_TRIES):
        lbn = nearest(m.ends, d.stop[v], wanted)
        if lbn < 0 or _has_stopped(m, g, lbn, blocks):
            return lbn
        # Another run has passed since: this one has stopped for good.
        forget(m.ends, g, lbn)
    return -1


@uncounted
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


@uncounted
def _room(m: Memory, g: int, lbn: int, blocks: int) -> int:
    """Blocks of a run ahead of the first touched one, of those that are looked at."""
    step = max(m.pieces.piece, -(-blocks // _LOOKS))
    ahead = 0
    while ahead < blocks and not knows(m.pieces, g, lbn + ahead):
        ahead += step
    if ahead >= blocks and knows(m.pieces, g, lbn + blocks - 1):
        ahead = blocks - 1
    return min(ahead, blocks)


@uncounted
def _fresh(d: Stretches, m: Memory, g: int, v: int, blocks: int, rng: np.random.Generator) -> int:
    """Address in a state with room for a run, or with the most of it, of those tried."""
    wanted = blocks
    if m.pieces_met[g, 1] < m.met[g] * m.pieces_met[g, 0]:
        # Runs meet what was touched before, too.
        wanted = 1
    best, most = 0, -1
    for _ in range(_FRESH_TRIES):
        lbn = anywhere(d, v, blocks, rng)
        room = _room(m, g, lbn, wanted)
        if room > most:
            best, most = lbn, room
        if most == wanted:
            return best
    # Behind what has been touched, as it is where files fill a disk.
    step = m.pieces.piece + -m.pieces.piece % d.alignment[v]
    lbn = d.first_lbn + d.state[v] * d.state_blocks
    lbn += (d.offset[v] - lbn) % d.alignment[v]
    for _ in range(_STEPS):
        if lbn + wanted > d.end_lbn:
            break
        room = _room(m, g, lbn, wanted)
        if room > most:
            best, most = lbn, room
        if most == wanted:
            break
        lbn += max(step, room // step * step)
    return best


@inlined
def choose_address(
    d: Stretches, m: Memory, p: Pending, s: int, kind_: int, rng: np.random.Generator
) -> int:
    """Choose where the request that is due starts, with room for its run where that is new."""
    remembers = len(m.law) > 0
    g, v, stopped, sequential = d.device[s], p.state[s], p.end[s], p.sequential[s]
    m.clock[g] += 1
    lbn = -1
    if sequential and stopped < d.end_lbn:
        lbn = stopped
    elif sequential:
        # At the end of the space, a run goes on at its begin.
        v = d.origin_start[s * KINDS + kind_]
        p.state[s] = v
    elif remembers:
        lbn = _known_address(d, m, g, v, p.reuse[s], p.blocks[s], rng)
    if lbn < 0 or (lbn == stopped and not sequential):
        lbn = (
            _fresh(d, m, g, v, p.blocks[s], rng) if remembers else anywhere(d, v, p.blocks[s], rng)
        )
        p.fresh[s] = 1
    elif not sequential:
        p.fresh[s] = 0
    if remembers:
        _remember(d, m, p, s, v, kind_, lbn, p.size[s])
    p.end[s] = lbn + p.size[s] // BLOCK
    return lbn
