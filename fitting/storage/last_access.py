"""Keep by piece of a space the last access, and the block where a request began.

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

from fitting.compiled import loops
from fitting.compiled.hashing import spread_bits
from fitting.compiled.loops import Array, FloatArray, IntArray, jit_uncounted

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
            to.key[at], to.clock[at], to.begin[at] = m.key[row], m.clock[row], m.begin[row]
            to.held[0] += 1


@jit_uncounted
def _find_row(m: LastAccess, key: int) -> int:
    """Return the row of a key, or the empty row where it belongs."""
    mask = len(m.key) - 1
    row = ((spread_bits(key >> 1) << 1) | (key & 1)) & mask
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


@jit_uncounted
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


@jit_uncounted
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


def new_lru_lists(wanted: FloatArray, *, stops: bool) -> LruLists:
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


@jit_uncounted
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
    after = first_above(u.entry[:, WHEN], a, b, clock)
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


@jit_uncounted
def first_above(values: Array, low: int, high: int, wanted: float) -> int:
    """Return the first index in [low, high) of a rising array with a greater value; else high."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= wanted:
            low = middle + 1
        else:
            high = middle
    return low


@jit_uncounted
def _first_of_use(u: LruLists, m: LastAccess, device: int, a: int, found: int) -> int:
    """Return the first current entry, from a on, of the same clock as the one found."""
    when, before = u.entry[found, WHEN], found - 1
    while before >= a and u.entry[before, WHEN] == when:
        if _is_current(u, m, device, before):
            found = before
        before -= 1
    return found


@jit_uncounted
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
