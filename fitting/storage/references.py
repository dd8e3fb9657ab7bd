"""Addresses that follow from earlier requests: found in a trace, and chosen by a generator.

A request comes back to a piece of the space (4 KiB, or more where requests are large) that its
device accessed before, goes on where an earlier request ended, starts near the request before it,
or has a fresh address. The last requests of a device are kept in a ring by its clock, the number of
its requests. A hash table has the clock of the last access to a piece, and of the last end at a
block, with a part of the key: the ring tells whether the request of that clock is meant.

A generated request starts at its distance from the request that it refers to. A fresh one starts
where its run finds the most room that was not accessed, of some places tried in its state.
"""

from typing import Any, NamedTuple

import numpy as np

from fitting.compiled import hashing, loops
from fitting.compiled.loops import Array, ByteArray, IntArray
from fitting.storage.survey import BLOCK, Survey
from fitting.storage.transitions import Seen

# Ages of requests with a fresh address, that go on from their stream's last end, and with a fresh
# address near the request before.
FRESH, SEQUENTIAL, NEAR = 0, -1, -2
# Requests of a device that can be referred to, and slots of the table of last accesses.
MOST_AGE, _MOST_SLOTS = 2**22, 2**24
# Slots that a piece may be in, of which the oldest is given up; bits of its hash in a slot.
_PROBES, _TAG = 32, 24
# Arguments of `_last_clock`: numba would compile it again for each constant of Python.
_NO_PIECE: Any = np.int64(0)
_READ: Any = np.bool_(False)
_NOTE: Any = np.bool_(True)
# Pieces of a request that are recorded, such as of the discard of a whole device.
_MOST_PIECES = 2**16
# A fresh address so near (share of the space) to the request before is kept by its distance.
_NEAR = 1 / 1024
# Places that a fresh address tries, steps to the next free one, and marks of what is in use.
_TRIES, _STEPS, _MOST_MARKS = 8, 64, 2**27


class Rings(NamedTuple):
    """Last requests of every device."""

    base: IntArray  # by device, its first row
    mask: IntArray  # its rows less one: a power of two
    clock: IntArray  # its requests so far
    lbn: IntArray  # by row, first block
    end: IntArray  # block after the last


def new_rings(requests: Array) -> Rings:
    """Make rings for devices that will have so many requests."""
    bits = np.ceil(np.log2(np.clip(requests, 2, MOST_AGE))).astype(np.int64)
    rows = 1 << bits
    lbn, end = np.zeros((2, int(rows.sum())), dtype=np.int64)
    return Rings(np.cumsum(rows) - rows, rows - 1, np.zeros_like(rows), lbn, end)


def near_blocks(survey: Survey) -> int:
    """Return how many blocks a fresh address may be from the request before and be near it."""
    return int((survey.high_lbn - survey.low_lbn) * _NEAR)


@loops.jit_inline
def _add_request(r: Rings, device: int, lbn: int, blocks: int) -> None:
    """Put a request into its device's ring."""
    row = r.base[device] + (r.clock[device] & r.mask[device])
    r.lbn[row], r.end[row] = lbn, lbn + blocks
    r.clock[device] += 1


class AddressFinder:
    """Finds the requests that addresses follow from, batch by batch, in bounded memory."""

    def __init__(self, survey: Survey) -> None:
        self._device = survey.device_of_stream
        self._rings = new_rings(np.bincount(self._device, survey.stream_counts))
        pieces = int((survey.sizes // (BLOCK * survey.piece) + 2) @ survey.size_counts)
        slots = 1 << min(4 * pieces, _MOST_SLOTS).bit_length()
        # One more than the clock of a request, and a part of the hash; 0 for none.
        self._last = np.zeros(slots, dtype=np.int64)
        self._limits = survey.piece.bit_length() - 1, near_blocks(survey)

    def find(
        self, seen: Seen, lbn: Array, size_bytes: Array, age: IntArray, place: IntArray
    ) -> None:
        """Fill in age and place (blocks) of requests that refer to another one."""
        columns = *loops.read_only(lbn, size_bytes), seen.stream, seen.sequential, age, place
        _find_references(columns, self._device, self._limits, self._rings, self._last)


@loops.jit_uncounted
def _find_references(
    columns: loops.Columns, devices: IntArray, limits: tuple[int, int], r: Rings, last: IntArray
) -> None:
    """Fill in the ages and places of requests, and take note of all accesses."""
    lbn, size_bytes, stream, sequential, age, place = columns
    shift, near = limits
    for i in range(len(lbn)):
        g, start, blocks = devices[stream[i]], lbn[i], size_bytes[i] >> 9
        clock, first = r.clock[g], start >> shift
        end = ((start + blocks - 1 if blocks else start) >> shift) + 1
        end = end if end < first + _MOST_PIECES else first + _MOST_PIECES
        ended = _last_clock(r, last, g, start, _NO_PIECE, _READ)
        _add_request(r, g, start, blocks)
        accessed = _last_clock(r, last, g, first, shift, _NOTE)
        for k in range(first + 1, end):
            _last_clock(r, last, g, k, shift, _NOTE)
        _last_clock(r, last, g, start + blocks, _NO_PIECE, _NOTE)
        if sequential[i]:
            continue
        found = ended if ended > accessed else accessed
        row = r.base[g] + ((clock - 1) & r.mask[g])
        if found > 0:
            age[i] = clock + 1 - found
            place[i] = start - r.lbn[r.base[g] + ((found - 1) & r.mask[g])]
        elif clock > 0 and -near <= start - r.end[row] <= near:
            age[i], place[i] = NEAR, start - r.lbn[row]


@loops.jit_inner
def _last_clock(r: Rings, last: IntArray, g: int, what: int, shift: int, note: bool) -> int:
    """Return one more than the clock of the last request of a piece of 2^shift blocks; 0 for none.

    For `_NO_PIECE` it is that of the last request that ended at a block. ``note`` puts the
    device's last request in its place.
    """
    # Eight neighbouring pieces share a cache line: a request accesses several.
    group, within, is_piece = what, 0, 0
    if shift:
        group, within, is_piece = what >> 3, what & 7, 1
    key = hashing.scramble(2 * (group * len(r.base) + g) + is_piece)
    tag = key >> (63 - _TAG)
    if shift:
        tag, key = (tag & ~7) | within, (key << 3) | within
    found, slot, oldest = 0, 0, 0x7FFFFFFFFFFFFFFF
    for probe in range(_PROBES):
        at = (key + probe) & (len(last) - 1)
        clock, held = last[at] >> _TAG, last[at] & ((1 << _TAG) - 1)
        if clock < oldest:
            slot, oldest = at, clock
        if clock == 0:
            break
        if held == tag and r.clock[g] - r.mask[g] <= clock <= r.clock[g]:
            row = r.base[g] + ((clock - 1) & r.mask[g])
            first, end = r.lbn[row], r.end[row]
            is_same = end == what
            if shift:
                final = end - 1 if end > first else first
                is_same = first >> shift <= what <= final >> shift
            if is_same:
                found, slot = clock, at
                break
    if note:
        last[slot] = (r.clock[g] << _TAG) | tag
    return found


def measure_extents(
    columns: loops.Columns, devices: IntArray, passage: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the blocks before and after the start of each fresh request that others lead to.

    Columns are stream, size (bytes), age and place of requests in their order, ``passage`` is the
    number of their passage: what is referred to beyond a passage is not followed.
    """
    stream, size_bytes, age, place = columns
    device, rows = devices[stream], np.arange(len(age))
    # The request before of the same stream, or the one that its device had so many before.
    of_stream, of_device = _before(stream, 1), _before(device, np.maximum(age, 1))
    parent = np.where(age == SEQUENTIAL, of_stream, of_device)
    follows = (age != FRESH) & (parent >= 0) & (passage[parent] == passage)
    origin = np.where(follows, parent, rows)
    moved = np.where(age == SEQUENTIAL, size_bytes[parent] // BLOCK, place)
    offset = np.where(follows, moved, 0)
    # Each round doubles how far back the origin is, until it is a fresh request.
    above = origin[origin]
    while (above != origin).any():
        offset += offset[origin]
        origin, above = above, above[above]
    before, after = np.zeros((2, len(rows)), dtype=np.int64)
    np.maximum.at(before, origin, -offset)
    np.maximum.at(after, origin, offset + np.maximum(size_bytes // BLOCK, 1))
    return before, after


def _before(group: IntArray, back: IntArray | int) -> IntArray:
    """Return for each row the one that its group had so many rows before; −1 for none."""
    order = np.argsort(group, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    wanted = rank - back
    first = np.searchsorted(group[order], group)
    return np.where(wanted >= first, order[np.maximum(wanted, 0)], -1)


class AddressSpace(NamedTuple):
    """Bounds of a space and its states, and what is in use of it."""

    low_lbn: int
    high_lbn: int
    piece: int
    state_low: IntArray  # by state, bounds (blocks) of the addresses in it
    state_high: IntArray
    devices: IntArray  # by stream
    rings: Rings
    stream_end: IntArray  # by stream, block after its last request; −1 for none
    marks: ByteArray  # by device and group of pieces, whether it is in use
    marked: int  # blocks of such a group; 0 where no room is looked for
    filled: IntArray  # by device, block up to which extents are placed


def new_space(
    survey: Survey, bounds: tuple[IntArray, IntArray], expected: float, *, room: bool
) -> AddressSpace:
    """Make a space without accesses; ``expected`` is the number of requests over the trace's."""
    devices, marked = survey.device_of_stream, survey.piece
    requests = np.bincount(devices, survey.stream_counts) * expected
    while len(requests) * (survey.high_lbn // marked + 2) > _MOST_MARKS:
        marked *= 2
    return AddressSpace(
        *(survey.low_lbn, survey.high_lbn, survey.piece, *bounds, devices),
        new_rings(requests + 1),
        np.full(len(survey.streams), -1, dtype=np.int64),
        np.zeros((len(requests), survey.high_lbn // marked + 2 if room else 1), dtype=np.uint8),
        marked if room else 0,
        np.zeros(len(requests), dtype=np.int64),
    )


def pack_extents(
    s: AddressSpace, fresh: IntArray, columns: loops.Columns, rng: np.random.Generator
) -> IntArray:
    """Place all extents of a trace side by side in their states, in random order; −1 elsewhere.

    ``fresh`` are the rows that begin them; columns are stream, state, place, and blocks before and
    after. So there is room for all, however full a state is.
    """
    stream, state, place, before, after = columns
    found, device = np.full(len(stream), -1, dtype=np.int64), s.devices[stream[fresh]]
    # Extents are in order by the states that they begin in, which may be before that of the row.
    begin = (s.state_low + s.state_high)[state] // 2 - before
    state = np.maximum(np.searchsorted(s.state_low, begin, side="right") - 1, 0)
    order = fresh[np.lexsort((rng.random(len(fresh)), state[fresh], device))]
    key = s.devices[stream[order]] * len(s.state_low) + state[order]
    groups = np.split(order, np.flatnonzero(np.diff(key)) + 1)
    for rows, later in zip(groups, [*groups[1:], fresh[:0]], strict=True):
        v, g = state[rows[0]], s.devices[stream[rows[0]]]
        # Whole pieces, and one for the blocks into the first.
        size = (-(-(before + after)[rows] // s.piece) + (place[rows] > 0)) * s.piece
        start = max(s.filled[g], s.state_low[v] - s.state_low[v] % s.piece)
        total, end = int(size.sum()), s.high_lbn - s.high_lbn % s.piece
        start = max(s.low_lbn - s.low_lbn % s.piece, min(start, end - total))
        # As in the trace, extents of a state end before those of the next one begin.
        if len(later) and s.devices[stream[later[0]]] == g:
            end = min(end, int(s.state_low[state[later[0]]]))
        room = s.state_high[v] + s.piece - start
        if total > room:
            # One reaches beyond the state: the longest, which comes last.
            last = np.r_[np.delete(np.arange(len(rows)), size.argmax()), size.argmax()]
            rows, size = rows[last], size[last]
            room += int(size[-1]) - s.piece
        spare = min(room, end - start) - total
        gaps = np.sort(rng.integers(max(0, spare) // s.piece + 1, size=len(rows))) * s.piece
        at = start + np.cumsum(size) - size + gaps + before[rows]
        found[rows] = at + (place[rows] - at) % s.piece
        s.filled[g] = start + total + int(gaps[-1])
    s.filled[:] = 0
    return found


@loops.jit_uncounted
def choose_addresses(
    s: AddressSpace, columns: loops.Columns, lbn: IntArray, rng: np.random.Generator
) -> None:
    """Fill in the start addresses of requests, in their order.

    Columns are stream, size (bytes), state, age and place as passages have them, the blocks before
    and after a fresh start that others lead to, and where it is to be; −1 where there is room.
    """
    stream, size_bytes, state, age, place, before, after, given = columns
    r = s.rings
    for i in range(len(lbn)):
        g, blocks, start = s.devices[stream[i]], size_bytes[i] // BLOCK, -1
        if age[i] == SEQUENTIAL:
            start = s.stream_end[stream[i]]
        elif age[i] == FRESH:
            start = given[i]
        else:
            start = _referred_address(s, g, state[i], max(age[i], 1), place[i])
        if start < s.low_lbn or start + blocks > s.high_lbn:
            within = place[i] if age[i] == FRESH else 0
            extent = before[i], max(blocks, after[i])
            start = _fresh_address(s, g, state[i], within, extent, rng)
        lbn[i] = start
        s.stream_end[stream[i]] = start + blocks
        _add_request(r, g, start, blocks)


@loops.jit_inner
def _referred_address(s: AddressSpace, g: int, v: int, age: int, place: int) -> int:
    """Return the address at a distance from the request of an age, in state v; −1 for none."""
    r = s.rings
    # Where passages are put together anew, another request of about that age may be meant.
    for probe in range(_PROBES):
        back = age + probe * (1 + age // 16)
        if back > min(r.clock[g], r.mask[g]):
            break
        start = r.lbn[r.base[g] + ((r.clock[g] - back) & r.mask[g])] + place
        if s.marked == 0 or s.state_low[v] <= start <= s.state_high[v]:
            return start
    return -1


@loops.jit_inner
def _fresh_address(
    s: AddressSpace, g: int, v: int, within: int, extent: tuple[int, int], rng: np.random.Generator
) -> int:
    """Return an address in state v, so far into a piece, with the most room around it."""
    before, after = extent
    low = max(s.low_lbn, s.state_low[v])
    high = max(low, min(s.state_high[v], s.high_lbn - after))
    first = low + (within - low) % s.piece
    pieces = max(1, (high - first) // s.piece + 1)
    best, most = max(s.low_lbn, min(first, s.high_lbn - after)), -1
    for attempt in range(_TRIES + 2 if s.marked else 1):
        lbn = first + s.piece * int(rng.random() * pieces)
        room = _free_blocks(s, g, lbn - before, before + after)
        # In a state that is nearly full, behind what is in use there.
        for _ in range(_STEPS if attempt >= _TRIES else 0):
            if room >= before + after or lbn > high:
                break
            lbn += (room // s.piece + 1) * s.piece
            room = _free_blocks(s, g, lbn - before, before + after)
        if room > most and low <= lbn <= high:
            best, most = lbn, room
        if most >= before + after:
            break
    for k in range(max(0, best - before) // max(s.marked, 1), s.marks.shape[1] if s.marked else 0):
        if k * s.marked >= best + after:
            break
        s.marks[g, k] = 1
    return best


@loops.jit_inner
def _free_blocks(s: AddressSpace, g: int, lbn: int, blocks: int) -> int:
    """Count the blocks from one on before the first that is in use."""
    if s.marked == 0:
        return blocks
    end = min((lbn + blocks - 1) // s.marked, s.marks.shape[1] - 1)
    for k in range(max(0, lbn) // s.marked, end + 1):
        if s.marks[g, k]:
            return max(0, k * s.marked - lbn)
    return blocks
