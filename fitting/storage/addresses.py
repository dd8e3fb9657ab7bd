"""Start addresses of generated requests: where one ended, where its device was accessed, or fresh.

By the law of reuse a request goes on where one stopped some while ago, comes back to where one
began, or is fresh: at an address with room for its run. So a memory keeps, by piece of a space, the
last access and the block where a request began.

Eight consecutive pieces have a row of a hash table, which is one line of a cache: a request of
many pieces looks at few lines, one that begins beside another at no new one. The table grows with
the number of pieces accessed. When it has as many rows as memory should hold, it forgets half of
them, those that were accessed longest ago.

Beside it, an LRU list for each state holds addresses in the order of their last use, so that a
search by age halves. An address that is used again is put at the end and stays where it was, too:
the table says that the earlier entry is out of date. A list is rid of such entries when it is
twice as long as after the last time, so that all other operations take constant time on average.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fitting.compiled import hashing, loops, random
from fitting.compiled.loops import Array, FloatArray, IntArray, jit_inner, jit_uncounted
from fitting.compiled.random import DrawBatches, Randomness
from fitting.storage.reuse_distance import AGAIN, AGE_BOUNDS, CLASSES, FRESH, MOST_PIECES
from fitting.storage.run_lengths import Runs, start_alignments
from fitting.storage.survey import BLOCK, KINDS
from fitting.storage.transitions import TransitionCounts

_FRESH_TRIES, _STOPPED_TRIES = 16, 4
# Steps from one stretch that was not accessed to the next.
_STEPS = 512
# Requests of the device after which a run ahead of a stop is forgotten.
_LATELY = 2048
_LEAST_ROOM = 256
# Pieces of a row, as a power of two, and bytes of it.
NEIGHBOURS, _BITS, _LINE = 8, 3, 64
_LEAST_ROWS, _MOST_ROWS = 2**12, 2**23
# Requests of a device that clocks can tell apart, and blocks into a piece that are kept.
MOST_CLOCK, _FURTHEST = 2**32 - 1, 2**16 - 2
# Entries of all lists together, at most; and of a list before it is tidied, at least.
_MOST, _LEAST_LIMIT = 2**23, 64
GONE = -1
# Pieces of a run that are looked at.
_LOOKS = 64
WHEN, LBN = 0, 1


class LastAccess(NamedTuple):
    """Last-access table: rows of eight pieces."""

    bits: int  # a piece has 2^bits blocks
    devices: int
    key: IntArray  # by row, 1 + number of its pieces and device; 0 for an empty row
    clock: Array  # uint32, by piece, clock of the device at the last access, 0 for none
    begin: Array  # uint16, by piece, 1 + blocks into it where a request began, 0 for none
    held: IntArray  # rows in use, and how many may be


class LruLists(NamedTuple):
    """LRU lists of addresses, one for each state, in stretches of a common array."""

    stops: bool  # whether runs stopped at the addresses, or else requests began there
    start: IntArray
    room: IntArray
    used: IntArray
    limit: IntArray  # entries of a list until it is tidied
    entry: IntArray  # by `WHEN` and `LBN`: clock of a use, and address, −1 for one out of date


def new_last_access(piece: int, devices: int, rows: int = _LEAST_ROWS) -> LastAccess:
    """Make an empty table of last accesses to pieces of ``piece`` blocks, a power of two."""
    held = loops.aligned_rows(rows, _LINE)
    return LastAccess(
        piece.bit_length() - 1,
        devices,
        held.view(np.int64)[:, 0],
        held.view(np.uint32)[:, 2 : 2 + NEIGHBOURS],
        held.view(np.uint16)[:, 20 : 20 + NEIGHBOURS],
        np.array([0, rows // 2]),
    )


def make_room_for_rows(m: LastAccess, clock: IntArray) -> LastAccess:
    """Make the table twice as large, or, at its limit, forget the older half of its rows."""
    if len(m.key) < _MOST_ROWS:
        larger = new_last_access(1 << m.bits, m.devices, 2 * len(m.key))
        _copy_rows(m, larger)
        return larger
    age = clock[(m.key - 1) % m.devices] - m.clock.max(axis=1)
    there = m.key > 0
    kept = np.flatnonzero(there & (age < np.median(age[there])))
    few = m._replace(key=m.key[kept], clock=m.clock[kept], begin=m.begin[kept])
    for part in (m.key, m.clock, m.begin, m.held[:1]):
        part[...] = 0
    _copy_rows(few, m)
    return m


@loops.jit
def _copy_rows(m: LastAccess, to: LastAccess) -> None:
    """Insert the rows of a table into an empty one, in place."""
    for row in range(len(m.key)):
        if m.key[row] > 0:
            at = _find_row(to, m.key[row])
            to.key[at] = m.key[row]
            # One by one: to compile an assignment of a row takes a second.
            for inside in range(NEIGHBOURS):
                to.clock[at, inside] = m.clock[row, inside]
                to.begin[at, inside] = m.begin[row, inside]
            to.held[0] += 1


@jit_inner
def _find_row(m: LastAccess, key: int) -> int:
    """Return the row of a key, or the empty row where it belongs."""
    mask = len(m.key) - 1
    row = ((hashing.spread_bits(key >> 1) << 1) | (key & 1)) & mask
    while m.key[row] != key and m.key[row] != 0:
        row = (row + 1) & mask
    return row


@jit_uncounted
def row_of(m: LastAccess, device: int, piece: int) -> int:
    """Return the row of a device's piece, or the empty row where it belongs."""
    return _find_row(m, (piece >> _BITS) * m.devices + device + 1)


@jit_uncounted
def add_row(m: LastAccess, device: int, piece: int) -> int:
    """Return the row of a device's piece; add one where there is none."""
    row = row_of(m, device, piece)
    if m.key[row] == 0:
        m.key[row] = (piece >> _BITS) * m.devices + device + 1
        m.held[0] += 1
    return row


@jit_inner
def last_clock(m: LastAccess, device: int, lbn: int) -> int:
    """Return the clock at the last access to the piece of a block; 0 for never."""
    piece = lbn >> m.bits
    return np.int64(m.clock[row_of(m, device, piece), piece & (NEIGHBOURS - 1)])


@jit_uncounted
def note_begin(m: LastAccess, row: int, lbn: int) -> None:
    """Record in a row that a request begins at a block."""
    inside = min(lbn & ((1 << m.bits) - 1), _FURTHEST)
    m.begin[row, (lbn >> m.bits) & (NEIGHBOURS - 1)] = inside + 1


@jit_uncounted
def begun_at(m: LastAccess, row: int, piece: int) -> int:
    """Return the block in a piece where a request last began, as its row has it; −1 for none."""
    inside = np.int64(m.begin[row, piece & (NEIGHBOURS - 1)])
    return (piece << m.bits) + inside - 1 if inside > 0 else -1


@jit_inner
def fresh_blocks(m: LastAccess, device: int, lbn: int, blocks: int) -> int:
    """Count the blocks of a run before the first one found accessed; not all are looked at."""
    ahead, row, of, step = 0, 0, -1, max(1 << m.bits, -(-blocks // _LOOKS))
    while ahead < blocks:
        piece = (lbn + ahead) >> m.bits
        if piece >> _BITS != of:
            row, of = row_of(m, device, piece), piece >> _BITS
        if m.clock[row, piece & (NEIGHBOURS - 1)] != 0:
            return ahead
        ahead += step
    return blocks - 1 if last_clock(m, device, lbn + blocks - 1) > 0 else blocks


def new_lru_lists(wanted: Array, *, stops: bool) -> LruLists:
    """Make empty lists of addresses by last use, with room for ``wanted`` entries a state."""
    share = min(1.0, _MOST / max(1.0, float(wanted.sum())))
    room = (wanted * share).astype(np.int64) + 16
    return LruLists(
        stops,
        np.cumsum(room) - room,
        room,
        np.zeros(len(room), dtype=np.int64),
        np.minimum(room, _LEAST_LIMIT),
        np.empty((int(room.sum()), 2), dtype=np.int64),
    )


@jit_inner
def _is_current(u: LruLists, m: LastAccess, device: int, at: int) -> bool:
    """Tell whether an entry is the last use of its address, and a stopped run can go on there."""
    when, lbn = u.entry[at, WHEN], u.entry[at, LBN]
    if lbn == GONE:
        return False
    piece = lbn >> m.bits
    if not u.stops:
        row = row_of(m, device, piece)
        return m.clock[row, piece & 7] == when and begun_at(m, row, piece) == lbn
    if lbn & ((1 << m.bits) - 1):
        return last_clock(m, device, lbn) == when
    return last_clock(m, device, max(lbn, 1) - 1) == when and last_clock(m, device, lbn) == 0


@jit_uncounted
def append_entry(u: LruLists, m: LastAccess, device: int, v: int, lbn: int, clock: int) -> None:
    """Append an address, used at a clock, to the list of state v; tidy the list if it is full."""
    if u.used[v] == u.limit[v]:
        _tidy_list(u, m, device, v)
    at = u.start[v] + u.used[v]
    u.entry[at, WHEN], u.entry[at, LBN] = clock, lbn
    u.used[v] += 1


@jit_uncounted
def nearest_entry(u: LruLists, m: LastAccess, device: int, v: int, clock: int) -> int:
    """Return the current entry of state v used nearest to a clock, in a tie the earliest; or −1."""
    a = u.start[v]
    b = a + u.used[v]
    after = random.first_above(u.entry[:, WHEN], a, b, clock)
    before = after - 1
    while before >= a or after < b:
        later = before < a or (
            after < b and u.entry[after, WHEN] - clock < clock - u.entry[before, WHEN]
        )
        at = after if later else before
        if _is_current(u, m, device, at):
            return at if later else _first_of_use(u, m, device, a, at)
        u.entry[at, LBN] = GONE
        if later:
            after += 1
        else:
            before -= 1
    return -1


@jit_inner
def _first_of_use(u: LruLists, m: LastAccess, device: int, a: int, found: int) -> int:
    """Return the first current entry, from a on, of the same clock as the one found."""
    when, before = u.entry[found, WHEN], found - 1
    while before >= a and u.entry[before, WHEN] == when:
        if _is_current(u, m, device, before):
            found = before
        before -= 1
    return found


@jit_inner
def _tidy_list(u: LruLists, m: LastAccess, device: int, v: int) -> None:
    """Drop outdated entries of state v's list, and the oldest if it stays over half full."""
    a = u.start[v]
    b = a + u.used[v]
    kept = a
    for at in range(a, b):
        if _is_current(u, m, device, at):
            u.entry[kept, WHEN], u.entry[kept, LBN] = u.entry[at, WHEN], u.entry[at, LBN]
            kept += 1
    surplus = max(0, kept - a - u.room[v] // 2)
    for at in range(a + surplus, kept):
        u.entry[at - surplus, WHEN] = u.entry[at, WHEN]
        u.entry[at - surplus, LBN] = u.entry[at, LBN]
    u.used[v] = kept - a - surplus
    u.limit[v] = min(u.room[v], 2 * u.used[v] + _LEAST_LIMIT)


class Addresses(NamedTuple):
    """Bounds, alignment and law of reuse of start addresses."""

    alignment: int  # blocks, as `survey.Survey` has it
    offset: int
    end_lbn: int  # block after the last one accessed
    reuse: FloatArray | None  # law by accessed state and class, see `reuse_law`; None for none
    piece: int  # blocks, a power of two
    devices: IntArray  # by stream
    met: FloatArray  # by device, share of the pieces, that fresh runs go on to, accessed before


class StateRanges(NamedTuple):
    """Start blocks of states, and the lists of a memory that keep their addresses."""

    first_lbn: int
    end_lbn: int
    state_blocks: int
    levels: int
    alignment: IntArray  # by accessed state, runs start at the offset modulo the alignment
    offset: IntArray
    origin_start: IntArray  # first accessed state of each origin
    state: IntArray
    device: IntArray  # by stream
    place: IntArray  # by accessed state, its list of begins
    stop: IntArray  # by accessed state, its list of stops
    low: IntArray  # by accessed state, first and last block where runs start
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
    first: IntArray  # accessed state that the stream began in
    left: IntArray  # requests left
    resumes: FloatArray  # time (s) of the next request where none is left
    order: IntArray  # heap of the streams by ``due``


def _state_ranges(counts: TransitionCounts, runs: Runs, addresses: Addresses) -> StateRanges:
    """Lay out the address ranges and alignments of a trace's accessed states."""
    diagram, devices = counts.diagram, addresses.devices
    group = devices[counts.stream_of_state] * KINDS + counts.state_origin % KINDS
    aligned = addresses.alignment, addresses.offset
    # Where no run started in a state, one may start in all that was accessed of it.
    start = diagram.first_lbn + counts.state * diagram.state_blocks
    low = np.maximum(start, counts.lowest.min())
    high = np.minimum(start + diagram.state_blocks - 1, counts.highest.max())
    none = runs.lowest < 0
    return StateRanges(
        *(diagram.first_lbn, addresses.end_lbn, diagram.state_blocks, diagram.levels),
        *start_alignments(runs, group, aligned, addresses.piece),
        np.searchsorted(counts.state_origin, np.arange(len(devices) * KINDS + 1)),
        *(counts.state, devices),
        *(_number_lists(counts, devices, 1), _number_lists(counts, devices, KINDS)),
        *(np.where(none, low, runs.lowest), np.where(none, high, runs.highest)),
    )


def _number_lists(counts: TransitionCounts, devices: IntArray, kinds: int) -> IntArray:
    """Number the LRU lists of accessed states: by device, state, and kind if ``kinds`` > 1."""
    stream, kind = np.divmod(counts.state_origin, KINDS)
    stretch = (devices[stream] * kinds + kind % kinds) * counts.diagram.states + counts.state
    return np.unique(stretch, return_inverse=True)[1].astype(np.int64)


@jit_inner
def state_at(d: StateRanges, origin: int, lbn: int) -> int:
    """Return the accessed state that holds an address, or the one before it if none does."""
    wanted = (lbn - d.first_lbn) // d.state_blocks
    first, end = d.origin_start[origin], d.origin_start[origin + 1]
    return random.first_above(d.state, first + 1, end, wanted) - 1


@jit_inner
def _random_address(d: StateRanges, v: int, blocks: int, rng: Randomness) -> int:
    """Draw an aligned start address in state v, so far before the space's end if it can."""
    low, high = d.low[v], min(d.high[v], d.end_lbn - blocks)
    if high <= low:
        return low
    alignment = d.alignment[v]
    low += (d.offset[v] - low) % alignment
    # One place, or none where the aligned low is past high: then it is low all the same.
    places = (high - low) // alignment + 1
    return low + alignment * int(random.uniform(rng) * places)


class AddressMemory(NamedTuple):
    """Addresses that were accessed or where runs stopped, by device, and the law of reuse."""

    space: StateRanges
    accesses: LastAccess
    begins: LruLists
    ends: LruLists
    clock: IntArray  # by device, its requests
    pieces_met: IntArray  # by device, pieces that fresh runs went on to, and those accessed before
    met: FloatArray  # by device, what their share is to be
    reuse: random.DiscreteLaws  # by accessed state, of classes of reuse; empty for none
    draws: DrawBatches


def new_memory(
    counts: TransitionCounts, runs: Runs, addresses: Addresses, expected: float, draws: DrawBatches
) -> AddressMemory:
    """Make an empty memory of addresses, with room for the requests to come."""
    # Classes that have no chance are left out.
    cumulated = np.zeros((0, CLASSES)) if addresses.reuse is None else addresses.reuse
    some = np.diff(cumulated, axis=1, prepend=0.0) > 0
    classes = np.broadcast_to(np.arange(CLASSES, dtype=np.int16), some.shape)
    # Without a law nothing is remembered.
    least, requests = (_LEAST_ROOM, max(expected, 1.0)) if some.any() else (0, 0.0)
    wanted, space = counts.occupancy * requests, _state_ranges(counts, runs, addresses)
    accessed, stopped = (least + 2.0 * np.bincount(of, wanted) for of in (space.place, space.stop))
    devices = int(addresses.devices.max()) + 1
    return AddressMemory(
        space,
        new_last_access(addresses.piece, devices),
        new_lru_lists(accessed, stops=False),
        new_lru_lists(stopped, stops=True),
        *(np.zeros(devices, dtype=np.int64), np.zeros((devices, 2), dtype=np.int64)),
        addresses.met,
        random.pack_laws(cumulated, classes, some),
        draws,
    )


@jit_inner
def has_room_for(m: AddressMemory, g: int, size: int) -> bool:
    """Tell whether the memory of device g has room for a request more, of ``size`` bytes."""
    if len(m.reuse.share) == 0:
        return True
    # Eight pieces have a row, and a request begins and ends inside of one.
    rows = min((size // BLOCK) >> m.accesses.bits, MOST_PIECES) // NEIGHBOURS + 2
    held, most = m.accesses.held[0], m.accesses.held[1]
    return m.clock[g] < MOST_CLOCK and held + rows <= most


@jit_inner
def draw_class(m: AddressMemory, v: int, rng: Randomness) -> int:
    """Draw the reuse class of a run that starts in state v; `FRESH` where there is no law."""
    if len(m.reuse.share) == 0:
        return FRESH
    at = random.row_at_share(m.reuse, v, random.draw(m.draws, v, rng))
    return np.int64(m.reuse.value[at])


@jit_inner
def _reused_address(m: AddressMemory, p: Pending, s: int, rng: Randomness) -> int:
    """Find the address to go on from or come back to by a reuse class; −1 for a fresh one."""
    g, v, class_ = m.space.device[s], p.state[s], p.reuse[s]
    if class_ == FRESH:
        return -1
    age = class_ - AGAIN if class_ >= AGAIN else class_
    span = AGE_BOUNDS[age + 1] - AGE_BOUNDS[age]
    wanted = m.clock[g] - AGE_BOUNDS[age] - int(random.uniform(rng) * span)
    if wanted < 1:
        return -1
    if class_ >= AGAIN:
        at = nearest_entry(m.begins, m.accesses, g, m.space.place[v], wanted)
        return m.begins.entry[at, LBN] if at >= 0 else -1
    return _stop_address(m, g, v, wanted, p.blocks[s])


@jit_inner
def _stop_address(m: AddressMemory, g: int, v: int, wanted: int, blocks: int) -> int:
    """Find the address in state v where a run stopped nearest to a clock; −1 for none."""
    lately, piece = max(0, m.clock[g] - _LATELY), 1 << m.accesses.bits
    for _ in range(_STOPPED_TRIES):
        at = nearest_entry(m.ends, m.accesses, g, m.space.stop[v], wanted)
        if at < 0:
            return -1
        lbn = m.ends.entry[at, LBN]
        passed = last_clock(m.accesses, g, lbn + piece) > lately
        end = lbn + max(blocks - 1, piece)
        if not passed and last_clock(m.accesses, g, end) <= lately:
            return lbn
        # Another run has passed since: this one has stopped for good.
        m.ends.entry[at, LBN] = GONE
    return -1


@jit_inner
def _note_request(m: AddressMemory, p: Pending, s: int, kind_: int, lbn: int) -> None:
    """Record the pieces that a request accesses, and where the one before it stopped."""
    d, v, end, g = m.space, p.state[s], p.end[s], m.space.device[s]
    begins = lbn != end
    if begins and end < d.end_lbn:
        there = state_at(d, s * KINDS + p.kind[s], end)
        if d.state[there] == (end - d.first_lbn) // d.state_blocks:
            append_entry(m.ends, m.accesses, g, d.stop[there], end, p.made[s])
    p.kind[s], p.made[s] = kind_, m.clock[g]
    accesses, clock, fresh = m.accesses, m.clock[g], p.fresh[s]
    first, row = lbn >> accesses.bits, 0
    last = max(first, (lbn + p.size[s] // BLOCK - 1) >> accesses.bits)
    for piece in range(first, min(last, first + MOST_PIECES) + 1):
        inside = piece & (NEIGHBOURS - 1)
        if piece == first or inside == 0:
            row = add_row(accesses, g, piece)
        if fresh == 1 and (piece > first or (not begins and lbn == piece << accesses.bits)):
            m.pieces_met[g, 0] += 1
            m.pieces_met[g, 1] += accesses.clock[row, inside] != 0
        accesses.clock[row, inside] = clock
        if piece == first and begins:
            note_begin(accesses, row, lbn)
        begun = begun_at(accesses, row, piece)
        # Where a request has begun once, others may, even if this one only passes.
        if begun >= 0:
            append_entry(m.begins, accesses, g, d.place[v], begun, clock)


@jit_inner
def _fresh_address(m: AddressMemory, g: int, v: int, blocks: int, rng: Randomness) -> int:
    """Choose, of some tried in a state, the address with the most unaccessed blocks after it."""
    d = m.space
    # Runs come to addresses that were accessed before, too.
    wanted = 1 if m.pieces_met[g, 1] < m.met[g] * m.pieces_met[g, 0] else blocks
    best, most = 0, -1
    for _ in range(_FRESH_TRIES):
        lbn = _random_address(d, v, blocks, rng)
        room = fresh_blocks(m.accesses, g, lbn, wanted)
        if room > most:
            best, most = lbn, room
        if most == wanted:
            return best
    # Else one behind the addresses that were accessed, as where files fill a disk.
    piece = 1 << m.accesses.bits
    step = piece + -piece % d.alignment[v]
    lbn = d.first_lbn + d.state[v] * d.state_blocks
    lbn += (d.offset[v] - lbn) % d.alignment[v]
    for _ in range(_STEPS):
        if lbn + wanted > d.end_lbn or most == wanted:
            break
        room = fresh_blocks(m.accesses, g, lbn, wanted)
        if room > most:
            best, most = lbn, room
        lbn += max(step, room // step * step)
    return best


@loops.jit_inner_inline
def choose_address(m: AddressMemory, p: Pending, s: int, kind_: int, rng: Randomness) -> int:
    """Choose the start address of a stream's due request, and record it in the memory."""
    d, remembers = m.space, len(m.reuse.share) > 0
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
        lbn = _reused_address(m, p, s, rng)
    if lbn < 0 or (lbn == stopped and not sequential):
        if remembers:
            lbn = _fresh_address(m, g, v, p.blocks[s], rng)
        else:
            lbn = _random_address(d, v, p.blocks[s], rng)
        p.fresh[s] = 1
    elif not sequential:
        p.fresh[s] = 0
    if remembers:
        _note_request(m, p, s, kind_, lbn)
    p.end[s] = lbn + p.size[s] // BLOCK
    return lbn
