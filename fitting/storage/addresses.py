"""Start addresses of generated requests: where one ended, where its device was accessed, or fresh.

By the law of reuse a request goes on where one stopped some while ago, comes back to where one
began, or is fresh: at an address with room for its run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled.loops import FloatArray, IntArray, jit_inline, jit_uncounted
from fitting.compiled.random import Randomness, uniform
from fitting.storage import last_access
from fitting.storage.diagram import KINDS
from fitting.storage.reuse_distance import AGAIN, CLASSES, FRESH, age_bounds
from fitting.storage.run_lengths import Runs, start_alignments
from fitting.storage.stratified import Batches, draw, new_batches
from fitting.storage.survey import BLOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.storage.transitions import TransitionCounts

_FRESH_TRIES, _STOPPED_TRIES = 16, 4
# Pieces of a run that are looked at, and steps from one untouched stretch to the next.
_LOOKS, _STEPS = 64, 512
# Requests of the device after which a run ahead of a stop is forgotten.
_LATELY = 2048
# Of a request, such as the discard of a whole device.
_MOST_PIECES = 2**20
_LEAST_ROOM = 256


@dataclass(frozen=True)
class Addresses:
    """Where requests may start."""

    alignment: int  # blocks, as `survey.Survey` has it
    offset: int
    end_lbn: int  # block after the last one touched
    reuse: FloatArray | None  # law by touched state and class, see `reuse_law`; None for none
    piece: int = 8  # blocks, a power of two
    devices: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))  # by stream
    # By device, share of the pieces that fresh runs go on to which were touched before.
    met: FloatArray = field(default_factory=lambda: np.zeros(1))


class StateRanges(NamedTuple):
    """Where states lie (blocks), and in which lists of a memory their addresses are kept."""

    first_lbn: int
    end_lbn: int
    state_blocks: int
    levels: int
    alignment: IntArray  # by touched state, runs start at the offset modulo the alignment
    offset: IntArray
    origin_start: IntArray  # first touched state of each origin
    state: IntArray
    device: IntArray  # by stream
    place: IntArray  # by touched state, its list of begins
    stop: IntArray  # by touched state, its list of stops
    low: IntArray  # by touched state, first and last block where runs start
    high: IntArray


class Pending(NamedTuple):
    """By stream, its next request, from ``due`` to ``reuse``, and the last one made."""

    due: FloatArray  # time (s) of the next request, infinite where none is left
    gap: FloatArray
    transition: IntArray
    state: IntArray
    size: IntArray
    sequential: IntArray
    blocks: IntArray  # of its whole run, about
    run: IntArray  # requests of the run to come
    reuse: IntArray  # its class of reuse
    end: IntArray  # block after the last one made
    made: IntArray  # clock of the device at the last one
    fresh: IntArray  # whether the run of the last one began fresh
    kind: IntArray  # of the last one
    first: IntArray  # touched state that the stream began in
    left: IntArray  # requests left
    resumes: FloatArray  # time (s) of the next request where none is left
    order: IntArray  # heap of the streams by ``due``


def state_ranges(
    counts: TransitionCounts, runs: Runs, addresses: Addresses, streams: int
) -> StateRanges:
    """Lay out the touched states of a trace."""
    diagram, devices = counts.diagram, addresses.devices
    group = devices[counts.stream_of_state] * KINDS + counts.state_origin % KINDS
    aligned = addresses.alignment, addresses.offset
    # Where no run started in a state, one may start in all that was touched of it.
    start = diagram.first_lbn + counts.state * diagram.state_blocks
    low = np.maximum(start, counts.lowest.min())
    high = np.minimum(start + diagram.state_blocks - 1, counts.highest.max())
    none = runs.lowest < 0
    return StateRanges(
        *(diagram.first_lbn, addresses.end_lbn, diagram.state_blocks, diagram.levels),
        *start_alignments(runs, group, aligned, addresses.piece),
        np.searchsorted(counts.state_origin, np.arange(streams * KINDS + 1)),
        *(counts.state, devices),
        *(_list_of_state(counts, devices, 1), _list_of_state(counts, devices, KINDS)),
        *(np.where(none, low, runs.lowest), np.where(none, high, runs.highest)),
    )


def _list_of_state(counts: TransitionCounts, devices: IntArray, kinds: int) -> IntArray:
    """Number the stretches of each device, for requests of all kinds or each, by touched state."""
    stream, kind = np.divmod(counts.state_origin, KINDS)
    stretch = (devices[stream] * kinds + kind % kinds) * counts.diagram.states + counts.state
    return np.unique(stretch, return_inverse=True)[1].astype(np.int64)


@jit_uncounted
def state_at(d: StateRanges, origin: int, lbn: int) -> int:
    """Touched state of an address, or the one ahead of it where that was not touched."""
    wanted = (lbn - d.first_lbn) // d.state_blocks
    first, end = d.origin_start[origin], d.origin_start[origin + 1]
    return last_access.first_above(d.state, first + 1, end, wanted) - 1


@jit_uncounted
def _random_address(d: StateRanges, v: int, blocks: int, rng: Randomness) -> int:
    """Aligned address where runs start in a state, ahead of the end by so many blocks if it can."""
    low, high = d.low[v], min(d.high[v], d.end_lbn - blocks)
    if high <= low:
        return low
    alignment = d.alignment[v]
    low += (d.offset[v] - low) % alignment
    # One place, or none where the aligned low is past high: then it is low all the same.
    places = (high - low) // alignment + 1
    return low + alignment * int(uniform(rng) * places)


class Law(NamedTuple):
    """Law of reuse: that of touched state v from ``start[v]`` on."""

    start: IntArray
    chance: FloatArray  # cumulated
    class_: NDArray[np.int16]


class Memory(NamedTuple):
    """Where devices were touched and runs stopped, and the law of reuse."""

    marks: last_access.Marks
    begins: last_access.Recency
    ends: last_access.Recency
    clock: IntArray  # by device, its requests
    pieces_met: IntArray  # by device, pieces that fresh runs went on to, and those touched before
    met: FloatArray  # by device, what their share is to be
    law: Law
    draws: Batches
    ages: IntArray


def new_memory(
    counts: TransitionCounts,
    started: IntArray,
    addresses: Addresses,
    expected: float,
    share: float,
    rng: np.random.Generator,
) -> Memory:
    """Make empty memories of streams, with room for the requests to come."""
    # Classes that have no chance are left out.
    cumulated = np.zeros((0, CLASSES)) if addresses.reuse is None else addresses.reuse
    some = np.diff(cumulated, axis=1, prepend=0.0) > 0
    start = np.cumsum(np.append(0, np.count_nonzero(some, axis=1)))
    law = Law(start, cumulated[some], np.nonzero(some)[1].astype(np.int16))
    # Without a law nothing is remembered.
    least, requests = (_LEAST_ROOM, max(expected, 1.0)) if len(law.chance) else (0, 0.0)
    wanted = counts.occupancy * requests
    lists = [_list_of_state(counts, addresses.devices, kinds) for kinds in (1, KINDS)]
    touched, stopped = (least + 2 * np.bincount(of, wanted).astype(float) for of in lists)
    devices = int(addresses.devices.max()) + 1
    return Memory(
        last_access.new_marks(addresses.piece, devices),
        last_access.new_recency(touched, stops=False),
        last_access.new_recency(stopped, stops=True),
        *(np.zeros(devices, dtype=np.int64), np.zeros((devices, 2), dtype=np.int64)),
        *(addresses.met, law),
        *(new_batches(np.float64(min(share, 1.0)) * started, rng), age_bounds()),
    )


def empty_memory(m: Memory) -> Memory:
    """Forget everything, in place but for the last-access table."""
    for lists in (m.begins, m.ends):
        lists.used[:] = 0
    m.clock[:], m.pieces_met[:] = 0, 0
    return m._replace(marks=last_access.new_marks(1 << m.marks.bits, m.marks.devices))


@jit_uncounted
def has_room_for(m: Memory, g: int, size: int) -> bool:
    """Whether a device may have a request more of such a size (B)."""
    if len(m.law.chance) == 0:
        return True
    blocks = min(size // BLOCK, _MOST_PIECES << m.marks.bits)
    return m.clock[g] < last_access.MOST_CLOCK and last_access.has_room(m.marks, blocks)


@jit_uncounted
def draw_class(m: Memory, v: int, rng: Randomness) -> int:
    """Draw a class of the law of reuse of a touched state; fresh where there is no law."""
    law = m.law
    if len(law.chance) == 0:
        return FRESH
    u = draw(m.draws, v, rng)
    at = last_access.first_above(law.chance, law.start[v], law.start[v + 1] - 1, u)
    return np.int64(law.class_[at])


@jit_uncounted
def _reused_address(
    d: StateRanges, m: Memory, g: int, v: int, class_: int, blocks: int, rng: Randomness
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
        at = last_access.nearest(m.begins, m.marks, g, d.place[v], wanted)
        return m.begins.entry[at, last_access.LBN] if at >= 0 else -1
    return _stop_address(d, m, g, v, wanted, blocks)


@jit_uncounted
def _stop_address(d: StateRanges, m: Memory, g: int, v: int, wanted: int, blocks: int) -> int:
    """Address of a state where a run has stopped, nearest to a clock; or −1."""
    lately, piece = max(0, m.clock[g] - _LATELY), 1 << m.marks.bits
    for _ in range(_STOPPED_TRIES):
        at = last_access.nearest(m.ends, m.marks, g, d.stop[v], wanted)
        if at < 0:
            return -1
        lbn = m.ends.entry[at, last_access.LBN]
        passed = last_access.last_touch(m.marks, g, lbn + piece) > lately
        end = lbn + max(blocks - 1, piece)
        if not passed and last_access.last_touch(m.marks, g, end) <= lately:
            return lbn
        # Another run has passed since: this one has stopped for good.
        last_access.drop(m.ends, at)
    return -1


@jit_uncounted
def _note_request(
    d: StateRanges, m: Memory, p: Pending, s: int, v: int, kind_: int, lbn: int, size: int
) -> None:
    """Note the pieces that a request touches, and where the one before it stopped for now."""
    end, g = p.end[s], d.device[s]
    begins = lbn != end
    if begins and end < d.end_lbn:
        there = state_at(d, s * KINDS + p.kind[s], end)
        if d.state[there] == (end - d.first_lbn) // d.state_blocks:
            last_access.put(m.ends, m.marks, g, d.stop[there], end, p.made[s])
    p.kind[s], p.made[s] = kind_, m.clock[g]
    first = lbn >> m.marks.bits
    last = max(first, (lbn + size // BLOCK - 1) >> m.marks.bits)
    _touch(m, g, d.place[v], lbn, min(last, first + _MOST_PIECES), begins, p.fresh[s])


@jit_uncounted
def _touch(m: Memory, g: int, place: int, lbn: int, last: int, begins: bool, fresh: int) -> None:
    """Touch the pieces up to the last one, and count those that a fresh run goes on to."""
    marks, clock = m.marks, m.clock[g]
    first, row = lbn >> marks.bits, 0
    for piece in range(first, last + 1):
        inside = piece & (last_access.NEIGHBOURS - 1)
        if piece == first or inside == 0:
            row = last_access.touched_row(marks, g, piece)
        if fresh == 1 and (piece > first or (not begins and lbn == piece << marks.bits)):
            m.pieces_met[g, 0] += 1
            m.pieces_met[g, 1] += marks.clock[row, inside] != 0
        marks.clock[row, inside] = clock
        if piece == first and begins:
            last_access.note_begin(marks, row, lbn)
        begun = last_access.begun_at(marks, row, piece)
        # Where a request has begun once, others may, even if this one only passes.
        if begun >= 0:
            last_access.put(m.begins, marks, g, place, begun, clock)


@jit_uncounted
def _untouched_ahead(m: Memory, g: int, lbn: int, blocks: int) -> int:
    """Blocks of a run ahead of the first touched one, of those that are looked at."""
    step = max(1 << m.marks.bits, -(-blocks // _LOOKS))
    ahead = last_access.untouched(m.marks, g, lbn, blocks, step)
    if ahead == blocks and last_access.last_touch(m.marks, g, lbn + blocks - 1) > 0:
        return blocks - 1
    return ahead


@jit_uncounted
def _fresh_address(d: StateRanges, m: Memory, g: int, v: int, blocks: int, rng: Randomness) -> int:
    """Address in a state with room for a run, or with the most of it, of those tried."""
    wanted = blocks
    if m.pieces_met[g, 1] < m.met[g] * m.pieces_met[g, 0]:
        # Runs meet what was touched before, too.
        wanted = 1
    best, most = 0, -1
    for _ in range(_FRESH_TRIES):
        lbn = _random_address(d, v, blocks, rng)
        room = _untouched_ahead(m, g, lbn, wanted)
        if room > most:
            best, most = lbn, room
        if most == wanted:
            return best
    return _address_behind(d, m, g, v, wanted, best, most)


@jit_uncounted
def _address_behind(
    d: StateRanges, m: Memory, g: int, v: int, wanted: int, best: int, most: int
) -> int:
    """Address behind what has been touched, as it is where files fill a disk, if there is more."""
    piece = 1 << m.marks.bits
    step = piece + -piece % d.alignment[v]
    lbn = d.first_lbn + d.state[v] * d.state_blocks
    lbn += (d.offset[v] - lbn) % d.alignment[v]
    for _ in range(_STEPS):
        if lbn + wanted > d.end_lbn or most == wanted:
            break
        room = _untouched_ahead(m, g, lbn, wanted)
        if room > most:
            best, most = lbn, room
        lbn += max(step, room // step * step)
    return best


@jit_inline
def choose_address(
    d: StateRanges, m: Memory, p: Pending, s: int, kind_: int, rng: Randomness
) -> int:
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
        lbn = _reused_address(d, m, g, v, p.reuse[s], p.blocks[s], rng)
    if lbn < 0 or (lbn == stopped and not sequential):
        if remembers:
            lbn = _fresh_address(d, m, g, v, p.blocks[s], rng)
        else:
            lbn = _random_address(d, v, p.blocks[s], rng)
        p.fresh[s] = 1
    elif not sequential:
        p.fresh[s] = 0
    if remembers:
        _note_request(d, m, p, s, v, kind_, lbn, p.size[s])
    p.end[s] = lbn + p.size[s] // BLOCK
    return lbn
