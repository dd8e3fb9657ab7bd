"""Places in the order of their last use, by state: found again by their age.

One list a state, oldest first, in one stretch of a common array. A place that is used again is
put at the end and stays where it was, too: marks of the space say that it is out of date there.
Lists are rid of such entries when they are twice as long as after the last time, so that all
operations take constant time on average but the search by age, which halves.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled import uncounted
from fitting.marks import Marks, begun_at, last_touch, row_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

_MOST = 2**23
_GONE = -1
_LEAST_LIMIT = 64
WHEN, LBN = 0, 1


class Recency(NamedTuple):
    """Lists of places.

    Parameters
    ----------
    stops : bool
        Whether they are where runs stopped, or else where requests began.
    start, room, used, limit : array
        By state: its stretch, how much of it is in use, and how much may be until it is tidied.
    entry : array
        Entries by `WHEN` and `LBN`: clock of a use, and address, −1 for one that is out of date.
    """

    stops: bool
    start: IntArray
    room: IntArray
    used: IntArray
    limit: IntArray
    entry: IntArray


def new_recency(wanted: FloatArray, *, stops: bool) -> Recency:
    """Make empty lists with room for so many places a state, within limits."""
    share = min(1.0, _MOST / max(1.0, float(wanted.sum())))
    room = (wanted * share).astype(np.int64) + 16
    return Recency(
        stops,
        np.cumsum(room) - room,
        room,
        np.zeros(len(room), dtype=np.int64),
        np.minimum(room, _LEAST_LIMIT),
        np.empty((int(room.sum()), 2), dtype=np.int64),
    )


@uncounted
def _holds(u: Recency, m: Marks, device: int, at: int) -> bool:
    """Whether an entry is the last use of its place, and a run that stopped can go on there."""
    when, lbn = u.entry[at, WHEN], u.entry[at, LBN]
    if lbn == _GONE:
        return False
    piece = lbn >> m.bits
    if not u.stops:
        row = row_of(m, device, piece)
        return m.clock[row, piece & 7] == when and begun_at(m, row, piece) == lbn
    if lbn & ((1 << m.bits) - 1):
        return last_touch(m, device, lbn) == when
    return last_touch(m, device, max(lbn, 1) - 1) == when and last_touch(m, device, lbn) == 0


@uncounted
def put(u: Recency, m: Marks, device: int, v: int, lbn: int, clock: int) -> None:
    """Put a place at the end of the list of a state, of a device."""
    if u.used[v] == u.limit[v]:
        _tidy(u, m, device, v)
    at = u.start[v] + u.used[v]
    u.entry[at, WHEN], u.entry[at, LBN] = clock, lbn
    u.used[v] += 1


@uncounted
def drop(u: Recency, at: int) -> None:
    """Take an entry out."""
    u.entry[at, LBN] = _GONE


@uncounted
def _first_after(u: Recency, low: int, high: int, clock: int) -> int:
    """First entry with a later clock."""
    while low < high:
        middle = (low + high) >> 1
        if u.entry[middle, WHEN] <= clock:
            low = middle + 1
        else:
            high = middle
    return low


@uncounted
def nearest(u: Recency, m: Marks, device: int, v: int, clock: int) -> int:
    """Entry of a state, of a device, whose use was nearest to a clock, or −1.

    Of two as near the earlier, of several with that use the one put there first.
    """
    a = u.start[v]
    b = a + u.used[v]
    after = _first_after(u, a, b, clock)
    before = after - 1
    while before >= a or after < b:
        later = before < a or (
            after < b and u.entry[after, WHEN] - clock < clock - u.entry[before, WHEN]
        )
        at = after if later else before
        if _holds(u, m, device, at):
            return at if later else _first_of_use(u, m, device, a, at)
        drop(u, at)
        if later:
            after += 1
        else:
            before -= 1
    return -1


@uncounted
def _first_of_use(u: Recency, m: Marks, device: int, a: int, found: int) -> int:
    """First entry of the same use, of those from a on."""
    when, before = u.entry[found, WHEN], found - 1
    while before >= a and u.entry[before, WHEN] == when:
        if _holds(u, m, device, before):
            found = before
        before -= 1
    return found


@uncounted
def _tidy(u: Recency, m: Marks, device: int, v: int) -> None:
    """Rid a list of what is out of date; one that stays more than half full of its oldest."""
    a = u.start[v]
    b = a + u.used[v]
    kept = a
    for at in range(a, b):
        if _holds(u, m, device, at):
            u.entry[kept, WHEN], u.entry[kept, LBN] = u.entry[at, WHEN], u.entry[at, LBN]
            kept += 1
    surplus = max(0, kept - a - u.room[v] // 2)
    for at in range(a + surplus, kept):
        u.entry[at - surplus, WHEN] = u.entry[at, WHEN]
        u.entry[at - surplus, LBN] = u.entry[at, LBN]
    u.used[v] = kept - a - surplus
    u.limit[v] = min(u.room[v], 2 * u.used[v] + _LEAST_LIMIT)
