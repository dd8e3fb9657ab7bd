"""When each piece of a space was touched last, and where in it requests began.

Eight consecutive pieces have a row of a hash table, which is one line of a cache: a request of
many pieces looks at few lines, one that begins beside another at no new one. The table grows with
what is touched; when it has as many rows as memory should hold, half of them are forgotten, those
that were touched longest ago.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled import compiled, uncounted
from fitting.hash_table import mixed
from fitting.side_by_side import lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]

# Pieces of a row, and bytes of it.
NEIGHBOURS, _LINE = 8, 64
_BITS = 3
_LEAST_ROWS, _MOST_ROWS = 2**12, 2**23
# Requests of a device that clocks can tell apart, and blocks into a piece that are kept.
MOST_CLOCK, _FURTHEST = 2**32 - 1, 2**16 - 2


class Marks(NamedTuple):
    """Rows of eight pieces.

    Parameters
    ----------
    bits : int
        A piece has 2^bits blocks.
    devices : int
    key : array
        By row, one more than the number of its pieces and device; 0 for an empty row.
    clock : array
        Rows by pieces: clock of the device at the last touch, 0 for none.
    begin : array
        Rows by pieces: one more than the blocks into it where a request began, 0 for none.
    held : array
        Rows in use, and how many may be.
    """

    bits: int
    devices: int
    key: IntArray
    clock: NDArray[np.uint32]
    begin: NDArray[np.uint16]
    held: IntArray


def new_marks(piece: int, devices: int, rows: int = _LEAST_ROWS) -> Marks:
    """Make an empty table of pieces of so many blocks, a power of two."""
    held = lines(rows, _LINE)
    return Marks(
        piece.bit_length() - 1,
        devices,
        held.view(np.int64)[:, 0],
        held.view(np.uint32)[:, 2 : 2 + NEIGHBOURS],
        held.view(np.uint16)[:, 20 : 20 + NEIGHBOURS],
        np.array([0, rows // 2]),
    )


def roomier(m: Marks, clock: IntArray) -> Marks:
    """Have room for more rows, by a larger table or by forgetting what is old.

    Parameters
    ----------
    m : Marks
    clock : array
        Now, by device.
    """
    if len(m.key) < _MOST_ROWS:
        larger = new_marks(1 << m.bits, m.devices, 2 * len(m.key))
        _copy(m, larger)
        return larger
    age = clock[(m.key - 1) % m.devices] - m.clock.max(axis=1)
    there = m.key > 0
    kept = np.flatnonzero(there & (age < np.median(age[there])))
    few = m._replace(key=m.key[kept], clock=m.clock[kept], begin=m.begin[kept])
    for part in (m.key, m.clock, m.begin, m.held[:1]):
        part[...] = 0
    _copy(few, m)
    return m


@compiled
def _copy(m: Marks, to: Marks) -> None:
    """Copy rows to an empty table."""
    for row in range(len(m.key)):
        if m.key[row] > 0:
            at = _row(to, m.key[row])
            to.key[at], to.clock[at], to.begin[at] = m.key[row], m.clock[row], m.begin[row]
            to.held[0] += 1


@uncounted
def _row(m: Marks, key: int) -> int:
    """Row of a key, or the empty one where it belongs; rows of a pair share two lines."""
    mask = len(m.key) - 1
    row = ((mixed(key >> 1) << 1) | (key & 1)) & mask
    while m.key[row] != key and m.key[row] != 0:
        row = (row + 1) & mask
    return row


@uncounted
def row_of(m: Marks, device: int, piece: int) -> int:
    """Row that has a piece of a device, or the empty one where it belongs."""
    return _row(m, (piece >> _BITS) * m.devices + device + 1)


@uncounted
def touched_row(m: Marks, device: int, piece: int) -> int:
    """Row that has a piece of a device from now on."""
    key = (piece >> _BITS) * m.devices + device + 1
    row = _row(m, key)
    if m.key[row] == 0:
        m.key[row] = key
        m.held[0] += 1
    return row


@uncounted
def last_touch(m: Marks, device: int, lbn: int) -> int:
    """Clock of the last touch of the piece that a block is in, 0 where there was none."""
    piece = lbn >> m.bits
    return np.int64(m.clock[row_of(m, device, piece), piece & (NEIGHBOURS - 1)])


@uncounted
def has_room(m: Marks, blocks: int) -> bool:
    """Whether rows are left for a request."""
    return m.held[0] + (blocks >> (m.bits + _BITS)) + 2 <= m.held[1]


@uncounted
def note_begin(m: Marks, row: int, lbn: int) -> None:
    """Note that a request begins at a block, which the row has."""
    inside = min(lbn & ((1 << m.bits) - 1), _FURTHEST)
    m.begin[row, (lbn >> m.bits) & (NEIGHBOURS - 1)] = inside + 1


@uncounted
def begun_at(m: Marks, row: int, piece: int) -> int:
    """Block of a piece, which the row has, where a request began; −1 for none."""
    inside = np.int64(m.begin[row, piece & (NEIGHBOURS - 1)])
    return (piece << m.bits) + inside - 1 if inside > 0 else -1


@uncounted
def untouched(m: Marks, device: int, lbn: int, blocks: int, step: int) -> int:
    """Blocks ahead of the first touched one, of those that are looked at: every so many."""
    ahead, row, of = 0, 0, -1
    while ahead < blocks:
        piece = (lbn + ahead) >> m.bits
        if piece >> _BITS != of:
            row, of = row_of(m, device, piece), piece >> _BITS
        if m.clock[row, piece & (NEIGHBOURS - 1)] != 0:
            return ahead
        ahead += step
    return blocks
