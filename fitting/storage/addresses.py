"""Where a request of a walk starts: where one ended, where its device was touched, or anywhere."""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled.loops import inlined, uncounted
from fitting.compiled.random import uniform
from fitting.storage.diagram import KINDS
from fitting.storage.last_access import (
    LBN,
    MOST_CLOCK,
    NEIGHBOURS,
    Marks,
    Recency,
    begun_at,
    drop,
    has_room,
    last_touch,
    nearest,
    new_marks,
    new_recency,
    note_begin,
    put,
    touched_row,
    untouched,
)
from fitting.storage.reuse_distance import AGAIN, CLASSES, FRESH, age_bounds
from fitting.storage.run_lengths import start_alignments
from fitting.storage.stratified import Batches, draw, new_batches
from fitting.storage.survey import BLOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.compiled.random import Randomness
    from fitting.storage.run_lengths import Runs
    from fitting.storage.transitions import TransitionCounts

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Addresses:
    """Where requests may start.

    Parameters
    ----------
    alignment, offset : int
        In blocks, as `survey.Survey` has them.
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


# What a walk remembers of its devices: where they were touched, and where runs stopped.
#
# By the law of reuse a request goes on where one stopped some while ago, comes back to where one
# began, or is fresh: at a place with room for its run.


_FRESH_TRIES, _STOPPED_TRIES = 16, 4
# Places of a run that are looked at, and steps from one stretch that is untouched to the next.
_LOOKS, _STEPS = 64, 512
_LATELY = 2048
# Of a request, such as the discard of a whole device.
_MOST_PIECES = 2**20
_LEAST_ROOM = 256


class Law(NamedTuple):
    """Law of reuse: classes of touched state v, and their cumulated chances, from start[v] on."""

    start: IntArray
    chance: FloatArray
    class_: NDArray[np.int16]


class Memory(NamedTuple):
    """Where devices were touched and runs stopped, requests of each, and the law of coming back.

    ``pieces_met`` has by device the pieces that runs from fresh places
    went on to, and those of them that were touched before; ``met`` is what their share is to be.
    """

    marks: Marks
    begins: Recency
    ends: Recency
    clock: IntArray
    pieces_met: IntArray
    met: FloatArray
    law: Law
    draws: Batches
    ages: IntArray


def memory_of(
    counts: TransitionCounts,
    started: IntArray,
    addresses: Addresses,
    expected: float,
    share: float,
    rng: np.random.Generator,
) -> Memory:
    """Make empty memories of streams, with room for the requests to come."""
    law = _law(np.zeros((0, CLASSES)) if addresses.reuse is None else addresses.reuse)
    # Without a law nothing is remembered.
    least, requests = (_LEAST_ROOM, max(expected, 1.0)) if len(law.chance) else (0, 0.0)
    wanted = counts.occupancy * requests
    touched, stopped = (
        least + 2 * np.bincount(places_of(counts, addresses.devices, kinds), wanted).astype(float)
        for kinds in (1, KINDS)
    )
    devices = int(addresses.devices.max()) + 1
    return Memory(
        new_marks(addresses.piece, devices),
        new_recency(touched, stops=False),
        new_recency(stopped, stops=True),
        np.zeros(devices, dtype=np.int64),
        np.zeros((devices, 2), dtype=np.int64),
        addresses.met,
        law,
        new_batches(np.float64(min(share, 1.0)) * started, rng),
        age_bounds(),
    )


def _law(cumulated: FloatArray) -> Law:
    """Leave out the classes that have no chance."""
    some = np.diff(cumulated, axis=1, prepend=0.0) > 0
    start = np.cumsum(np.append(0, np.count_nonzero(some, axis=1)))
    return Law(start, cumulated[some], np.nonzero(some)[1].astype(np.int16))


def emptied(m: Memory) -> Memory:
    """Forget everything, in place but for the table of marks."""
    for lists in (m.begins, m.ends):
        lists.used[:] = 0
    m.clock[:], m.pieces_met[:] = 0, 0
    return m._replace(marks=new_marks(1 << m.marks.bits, m.marks.devices))


@uncounted
def holds_more(m: Memory, g: int, size: int) -> bool:
    """Whether a device may have a request more of such a size (B)."""
    if len(m.law.chance) == 0:
        return True
    blocks = min(size // BLOCK, _MOST_PIECES << m.marks.bits)
    return m.clock[g] < MOST_CLOCK and has_room(m.marks, blocks)


@uncounted
def drawn_class(m: Memory, v: int, rng: Randomness) -> int:
    """Draw a class of the law of reuse of a touched state; fresh where there is no law."""
    law = m.law
    if len(law.chance) == 0:
        return FRESH
    u = draw(m.draws, v, rng)
    low, high = law.start[v], law.start[v + 1] - 1
    while low < high:
        middle = (low + high) >> 1
        if law.chance[middle] <= u:
            low = middle + 1
        else:
            high = middle
    return np.int64(law.class_[low])


@uncounted
def known_address(
    d: Stretches,
    m: Memory,
    g: int,
    v: int,
    class_: int,
    blocks: int,
    rng: Randomness,
) -> int:
    """Address to go on from or to come back to by a class of reuse; −1 for a fresh one."""
    if class_ == FRESH:
        return -1
    age = class_ - AGAIN if class_ >= AGAIN else class_
    span = m.ages[age + 1] - m.ages[age]
    wanted = m.clock[g] - m.ages[age] - int(uniform(rng) * span)
    if wanted < 1:
        return -1
    if class_ >= AGAIN:
        at = nearest(m.begins, m.marks, g, d.place[v], wanted)
        return m.begins.entry[at, LBN] if at >= 0 else -1
    return _stopped(d, m, g, v, wanted, blocks)


@uncounted
def _has_stopped(m: Memory, g: int, lbn: int, blocks: int) -> bool:
    """Whether a run that ended at an address can go on there: no other has been ahead lately."""
    lately, piece = max(0, m.clock[g] - _LATELY), 1 << m.marks.bits
    if last_touch(m.marks, g, lbn + piece) > lately:
        return False
    return last_touch(m.marks, g, lbn + max(blocks - 1, piece)) <= lately


@uncounted
def _stopped(d: Stretches, m: Memory, g: int, v: int, wanted: int, blocks: int) -> int:
    """Address of a state where a run has stopped, nearest to a clock; or −1."""
    for _ in range(_STOPPED_TRIES):
        at = nearest(m.ends, m.marks, g, d.stop[v], wanted)
        if at < 0:
            return -1
        lbn = m.ends.entry[at, LBN]
        if _has_stopped(m, g, lbn, blocks):
            return lbn
        # Another run has passed since: this one has stopped for good.
        drop(m.ends, at)
    return -1


@uncounted
def _stop(d: Stretches, m: Memory, p: Pending, s: int) -> None:
    """Note where the last run of a stream stopped for now."""
    lbn = p.end[s]
    there = state_at(d, s * KINDS + p.kind[s], lbn)
    if d.state[there] == (lbn - d.first_lbn) // d.state_blocks:
        put(m.ends, m.marks, d.device[s], d.stop[there], lbn, p.made[s])


@uncounted
def remember(
    d: Stretches, m: Memory, p: Pending, s: int, v: int, kind_: int, lbn: int, size: int
) -> None:
    """Note the pieces that a request touches, and where the one before it stopped for now."""
    begins = lbn != p.end[s]
    if begins and p.end[s] < d.end_lbn:
        _stop(d, m, p, s)
    p.kind[s], p.made[s] = kind_, m.clock[d.device[s]]
    first = lbn >> m.marks.bits
    last = max(first, (lbn + size // BLOCK - 1) >> m.marks.bits)
    _touch(m, d.device[s], d.place[v], lbn, min(last, first + _MOST_PIECES), begins, p.fresh[s])


@uncounted
def _touch(m: Memory, g: int, place: int, lbn: int, last: int, begins: bool, fresh: int) -> None:
    """Touch the pieces up to the last one, and count those that a fresh run goes on to."""
    marks, clock = m.marks, m.clock[g]
    first, row = lbn >> marks.bits, 0
    for piece in range(first, last + 1):
        inside = piece & (NEIGHBOURS - 1)
        if piece == first or inside == 0:
            row = touched_row(marks, g, piece)
        if fresh == 1 and (piece > first or (not begins and lbn == piece << marks.bits)):
            m.pieces_met[g, 0] += 1
            m.pieces_met[g, 1] += marks.clock[row, inside] != 0
        marks.clock[row, inside] = clock
        if piece == first and begins:
            note_begin(marks, row, lbn)
        begun = begun_at(marks, row, piece)
        # Where a request has begun once, others may, even if this one only passes.
        if begun >= 0:
            put(m.begins, marks, g, place, begun, clock)


@uncounted
def _ahead(m: Memory, g: int, lbn: int, blocks: int) -> int:
    """Blocks of a run ahead of the first touched one, of those that are looked at."""
    ahead = untouched(m.marks, g, lbn, blocks, max(1 << m.marks.bits, -(-blocks // _LOOKS)))
    if ahead == blocks and last_touch(m.marks, g, lbn + blocks - 1) > 0:
        return blocks - 1
    return ahead


@uncounted
def fresh(d: Stretches, m: Memory, g: int, v: int, blocks: int, rng: Randomness) -> int:
    """Address in a state with room for a run, or with the most of it, of those tried."""
    wanted = blocks
    if m.pieces_met[g, 1] < m.met[g] * m.pieces_met[g, 0]:
        # Runs meet what was touched before, too.
        wanted = 1
    best, most = 0, -1
    for _ in range(_FRESH_TRIES):
        lbn = anywhere(d, v, blocks, rng)
        room = _ahead(m, g, lbn, wanted)
        if room > most:
            best, most = lbn, room
        if most == wanted:
            return best
    return _behind(d, m, g, v, wanted, best, most)


@uncounted
def _behind(d: Stretches, m: Memory, g: int, v: int, wanted: int, best: int, most: int) -> int:
    """Address behind what has been touched, as it is where files fill a disk, if there is more."""
    piece = 1 << m.marks.bits
    step = piece + -piece % d.alignment[v]
    lbn = d.first_lbn + d.state[v] * d.state_blocks
    lbn += (d.offset[v] - lbn) % d.alignment[v]
    for _ in range(_STEPS):
        if lbn + wanted > d.end_lbn or most == wanted:
            break
        room = _ahead(m, g, lbn, wanted)
        if room > most:
            best, most = lbn, room
        lbn += max(step, room // step * step)
    return best


@inlined
def choose_address(d: Stretches, m: Memory, p: Pending, s: int, kind_: int, rng: Randomness) -> int:
    """Choose where the request that is due starts, with room for its run where that is new."""
    remembers = len(m.law.chance) > 0
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
        lbn = known_address(d, m, g, v, p.reuse[s], p.blocks[s], rng)
    if lbn < 0 or (lbn == stopped and not sequential):
        lbn = fresh(d, m, g, v, p.blocks[s], rng) if remembers else anywhere(d, v, p.blocks[s], rng)
        p.fresh[s] = 1
    elif not sequential:
        p.fresh[s] = 0
    if remembers:
        remember(d, m, p, s, v, kind_, lbn, p.size[s])
    p.end[s] = lbn + p.size[s] // BLOCK
    return lbn
