"""Addresses in the order of their last use, by state: found again by their age.

One list a state, oldest first, in one stretch of common arrays; an address that is used again
leaves a gap where it was and moves to the end. Gaps are closed when they outnumber what is there,
so that all operations take constant time on average but the search by age, which halves.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled import inlined, uncounted
from fitting.hash_table import EMPTY, find, hashed, new_keys, remove

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

_MOST = 2**23
_GONE = -1
_GAPS_ALLOWED = 64


class Recency(NamedTuple):
    """Lists of addresses.

    Parameters
    ----------
    piece : int
        Addresses of one piece of so many blocks are the same.
    start, room, used, live : array
        By state: its stretch, how much of it is in use, and how much of that is no gap.
    when, lbn, owner, begins : array
        By entry: clock of its last use, address or −1 for a gap, state, whether requests begin
        there.
    keys, place : array
        Entry of an address.
    """

    piece: int
    start: IntArray
    room: IntArray
    used: IntArray
    live: IntArray
    when: IntArray
    lbn: IntArray
    owner: NDArray[np.int32]
    begins: NDArray[np.bool_]
    keys: IntArray
    place: NDArray[np.int32]


def new_recency(wanted: FloatArray, piece: int) -> Recency:
    """Make empty lists with room for so many addresses a state, within limits."""
    share = min(1.0, _MOST / max(1.0, float(wanted.sum())))
    room = (wanted * share).astype(np.int64) + 16
    total, states = int(room.sum()), len(room)
    keys = new_keys(total + total // 4)
    return Recency(
        piece,
        np.cumsum(room) - room,
        room,
        np.zeros(states, dtype=np.int64),
        np.zeros(states, dtype=np.int64),
        np.zeros(total, dtype=np.int64),
        np.zeros(total, dtype=np.int64),
        np.zeros(total, dtype=np.int32),
        np.zeros(total, dtype=np.bool_),
        keys,
        np.zeros(len(keys), dtype=np.int32),
    )


@uncounted
def piece_key(stream: int, piece: int) -> int:
    """Key of a piece of the space of a stream; streams are told apart by a hash."""
    return (piece ^ (hashed(stream + 1) << 1)) & 0x7FFFFFFFFFFFFFFF if stream else piece


@inlined
def knows(m: Recency, stream: int, lbn: int) -> bool:
    """Whether an address is in a list."""
    return m.keys[find(m.keys, piece_key(stream, lbn // m.piece))] != EMPTY


@inlined
def last_use(m: Recency, stream: int, lbn: int) -> int:
    """Clock of the last use of an address, −1 where it is in no list."""
    place = find(m.keys, piece_key(stream, lbn // m.piece))
    return m.when[m.place[place]] if m.keys[place] != EMPTY else -1


@uncounted
def use(m: Recency, stream: int, v: int, lbn: int, clock: int, begins: bool) -> bool:
    """Put an address at the end of the list of a state; returns whether it was in one.

    Where a request has begun once, others may, even if this one only passes.
    """
    if m.used[v] == m.room[v] or m.used[v] > 2 * m.live[v] + _GAPS_ALLOWED:
        _close_up(m, stream, v)
    key = piece_key(stream, lbn // m.piece)
    place = find(m.keys, key)
    known = m.keys[place] != EMPTY
    if known:
        before = m.place[place]
        if not begins and m.begins[before]:
            lbn, begins = m.lbn[before], True
        m.lbn[before] = _GONE
        m.live[m.owner[before]] -= 1
    else:
        m.keys[place] = key
    at = m.start[v] + m.used[v]
    m.when[at], m.lbn[at], m.owner[at], m.begins[at] = clock, lbn, v, begins
    m.place[place] = at
    m.live[v] += 1
    m.used[v] += 1
    return known


@uncounted
def forget(m: Recency, stream: int, lbn: int) -> None:
    """Take an address out of its list, if it is in one."""
    place = find(m.keys, piece_key(stream, lbn // m.piece))
    if m.keys[place] != EMPTY:
        m.lbn[m.place[place]] = _GONE
        m.live[m.owner[m.place[place]]] -= 1
        remove(m.keys, m.place, place)


@uncounted
def nearest(m: Recency, v: int, clock: int) -> int:
    """Address of a state where requests begin whose last use was nearest to a clock, or −1.

    Of several with that use the one put there first.
    """
    if m.live[v] == 0:
        return -1
    a = m.start[v]
    b = a + m.used[v]
    low, high = a, b
    while high - low > 1:
        middle = (low + high) >> 1
        if m.when[middle] <= clock:
            low = middle
        else:
            high = middle
    before, after = low, low + 1
    while before >= a and (m.lbn[before] == _GONE or not m.begins[before]):
        before -= 1
    while after < b and (m.lbn[after] == _GONE or not m.begins[after]):
        after += 1
    if before < a and after == b:
        return -1
    if before < a or (after < b and m.when[after] - clock < clock - m.when[before]):
        return m.lbn[after]
    found = before
    while before >= a and m.when[before] == m.when[found]:
        if m.lbn[before] != _GONE and m.begins[before]:
            found = before
        before -= 1
    return m.lbn[found]


@uncounted
def _close_up(m: Recency, stream: int, v: int) -> None:
    """Close the gaps; where a list stays more than half full its oldest are forgotten."""
    a = m.start[v]
    surplus = m.live[v] - m.room[v] // 2
    kept = a
    for at in range(a, a + m.used[v]):
        if m.lbn[at] == _GONE:
            continue
        place = find(m.keys, piece_key(stream, m.lbn[at] // m.piece))
        if surplus > 0:
            remove(m.keys, m.place, place)
            surplus -= 1
            m.live[v] -= 1
            continue
        m.when[kept], m.lbn[kept], m.owner[kept] = m.when[at], m.lbn[at], v
        m.begins[kept] = m.begins[at]
        m.place[place] = kept
        kept += 1
    m.used[v] = kept - a
