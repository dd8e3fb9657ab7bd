"""Block caches of a fixed size, by what they evict and what they do with writes.

=============  ====================================================================
policy         evicts
=============  ====================================================================
lru            the block used longest ago
fifo           the block that came in first
clock          the first in the queue that was not used since it was last looked at
lfu            the block used least often; of these, the one used longest ago
=============  ====================================================================

=============  =====================  ==========================================================
writes         bring a block in       reach the storage behind the cache
=============  =====================  ==========================================================
back           yes                    when their block is evicted
through        yes                    at once
around         no                     at once; a block that is in the cache is changed there too
=============  =====================  ==========================================================

References
----------
F. J. Corbató: A paging experiment with the Multics system. MIT Project MAC, 1968 (clock).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fitting.compiled.hashing import EMPTY, find, new_keys, rehashed, remove
from fitting.compiled.loops import compiled
from fitting.errors import FittingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    IntArray = NDArray[np.int64]

POLICIES = ("lru", "fifo", "clock", "lfu")
WRITES = ("back", "through", "around")
_LRU, _FIFO, _CLOCK, _LFU = range(4)
_MOST_BLOCKS = 2**27
# Numbers that the compiled passes keep: blocks held, accesses so far, dirty blocks evicted; and
# the ends of the queue.
_HELD, _TIME, _CLEANED, _HEAD, _TAIL = range(5)
# Marks of a slot.
_DIRTY, _USED = 1, 2


class Cache:
    """A cache that starts empty and takes accesses batch by batch.

    Parameters
    ----------
    blocks : int
        Capacity.
    policy : str
        One of `POLICIES`.
    writes : str
        One of `WRITES`.

    Raises
    ------
    FittingError
        For another policy, or a capacity below 1 or above 2²⁷ blocks.
    """

    def __init__(self, blocks: int, policy: str = "lru", writes: str = "through") -> None:
        if policy not in POLICIES or writes not in WRITES:
            raise FittingError(
                f"no cache {policy!r} with writes {writes!r}: give one of {', '.join(POLICIES)} "
                f"and one of {', '.join(WRITES)}"
            )
        if not 1 <= blocks <= _MOST_BLOCKS:
            raise FittingError(
                f"a cache of {blocks} blocks: give 1 to {_MOST_BLOCKS}, or larger blocks"
            )
        self.blocks, self.policy, self.writes = int(blocks), policy, writes
        self._numbers = np.array([0, 0, 0, EMPTY, EMPTY], dtype=np.int64)
        self._keys, self._places = new_keys(64), np.zeros(64, dtype=np.int64)
        # By slot: block; its neighbours in the queue, or, in a heap, uses and time of the last;
        # marks.
        self._slots = np.zeros((4, 16), dtype=np.int64)

    @property
    def cleaned(self) -> int:
        """Dirty blocks that were evicted, and so written to the storage, until now."""
        return int(self._numbers[_CLEANED])

    @property
    def dirty(self) -> int:
        """Blocks that are still to be written to the storage."""
        return int(np.count_nonzero(self._slots[3, : self._numbers[_HELD]] & _DIRTY))

    def access(self, blocks: ArrayLike, is_write: ArrayLike) -> NDArray[np.bool_]:
        """Take accesses in their order; tell which found their block in the cache.

        Raises
        ------
        FittingError
            For a negative block number.
        """
        accessed = np.ascontiguousarray(blocks, dtype=np.int64)
        written = np.ascontiguousarray(is_write, dtype=np.bool_)
        if accessed.shape != written.shape or accessed.min(initial=0) < 0:
            raise FittingError("give as many writes as blocks, and block numbers of 0 or more")
        hits = np.zeros(len(accessed), dtype=np.bool_)
        start = 0
        while start < len(accessed):
            self._grow()
            start = _access(
                start,
                accessed,
                written,
                hits,
                self.blocks,
                POLICIES.index(self.policy),
                self.writes != "around",
                self.writes == "back",
                self._keys,
                self._places,
                self._slots,
                self._numbers,
            )
        return hits

    def _grow(self) -> None:
        """Make room for one more block at least, up to the capacity."""
        held, room = int(self._numbers[_HELD]), self._slots.shape[1]
        if held < room or room >= self.blocks:
            return
        longer = np.zeros((4, 2 * room), dtype=np.int64)
        longer[:, :room] = self._slots
        keys = new_keys(8 * room)
        places = np.zeros(len(keys), dtype=np.int64)
        rehashed(self._keys, self._places, keys, places)
        self._slots, self._keys, self._places = longer, keys, places


@compiled
def _access(
    start: int,
    accessed: IntArray,
    written: NDArray[np.bool_],
    hits: NDArray[np.bool_],
    capacity: int,
    policy: int,
    allocates: bool,
    keeps: bool,
    keys: IntArray,
    places: IntArray,
    slots: IntArray,
    numbers: IntArray,
) -> int:
    """Take accesses until there is no slot for a new block; return where to go on."""
    # One loop for all policies: they differ in whom they evict and in what a use changes.
    block_of, marks = slots[0], slots[3]
    for i in range(start, len(accessed)):
        at = find(keys, accessed[i])
        hits[i] = keys[at] != EMPTY
        if hits[i]:
            slot = places[at]
        elif written[i] and not allocates:
            continue
        else:
            slot = numbers[_HELD]
            if slot == capacity:
                slot = 0 if policy == _LFU else _oldest(slots, numbers)
                numbers[_CLEANED] += marks[slot] & _DIRTY
                remove(keys, places, find(keys, block_of[slot]))
                at = find(keys, accessed[i])
            elif slot == len(block_of):
                return i
            else:
                numbers[_HELD] += 1
            keys[at], places[at] = accessed[i], slot
            block_of[slot], marks[slot] = accessed[i], 0
        if keeps and written[i]:
            marks[slot] |= _DIRTY
        if policy == _LFU:
            _count_use(slot, hits[i], slots, numbers, keys, places)
        elif not hits[i]:
            _to_head(slot, slots, numbers)
        elif policy == _LRU and slot != numbers[_HEAD]:
            _unlink(slot, slots, numbers)
            _to_head(slot, slots, numbers)
        elif policy == _CLOCK:
            marks[slot] |= _USED
    return len(accessed)


@compiled
def _oldest(slots: IntArray, numbers: IntArray) -> int:
    """Take the tail off the queue; what was used since it was last looked at goes to the head."""
    marks, slot = slots[3], numbers[_TAIL]
    while marks[slot] & _USED:
        marks[slot] &= _DIRTY
        _unlink(slot, slots, numbers)
        _to_head(slot, slots, numbers)
        slot = numbers[_TAIL]
    _unlink(slot, slots, numbers)
    return int(slot)


@compiled
def _unlink(slot: int, slots: IntArray, numbers: IntArray) -> None:
    before, after = slots[1], slots[2]
    if before[slot] == EMPTY:
        numbers[_HEAD] = after[slot]
    else:
        after[before[slot]] = after[slot]
    if after[slot] == EMPTY:
        numbers[_TAIL] = before[slot]
    else:
        before[after[slot]] = before[slot]


@compiled
def _to_head(slot: int, slots: IntArray, numbers: IntArray) -> None:
    before, after = slots[1], slots[2]
    before[slot], after[slot] = EMPTY, numbers[_HEAD]
    if numbers[_HEAD] == EMPTY:
        numbers[_TAIL] = slot
    else:
        before[numbers[_HEAD]] = slot
    numbers[_HEAD] = slot


@compiled
def _count_use(
    slot: int, known: bool, slots: IntArray, numbers: IntArray, keys: IntArray, places: IntArray
) -> None:
    """Count a use of a slot, its first where the block is new, and move it to its place."""
    uses, last = slots[1], slots[2]
    uses[slot] = uses[slot] + 1 if known else 1
    numbers[_TIME] += 1
    last[slot] = numbers[_TIME]
    _settle(slot, numbers[_HELD], slots, keys, places)


@compiled
def _settle(slot: int, held: int, slots: IntArray, keys: IntArray, places: IntArray) -> None:
    """Move a slot up or down the heap to where it belongs."""
    while slot > 0 and _sooner(slot, (slot - 1) // 2, slots):
        _swap(slot, (slot - 1) // 2, slots, keys, places)
        slot = (slot - 1) // 2
    while 2 * slot + 1 < held:
        child = 2 * slot + 1
        if child + 1 < held and _sooner(child + 1, child, slots):
            child += 1
        if not _sooner(child, slot, slots):
            return
        _swap(slot, child, slots, keys, places)
        slot = child


@compiled
def _sooner(a: int, b: int, slots: IntArray) -> bool:
    """Whether slot a is evicted before slot b."""
    uses, last = slots[1], slots[2]
    return bool(uses[a] < uses[b] or (uses[a] == uses[b] and last[a] < last[b]))


@compiled
def _swap(a: int, b: int, slots: IntArray, keys: IntArray, places: IntArray) -> None:
    for row in range(4):
        slots[row, a], slots[row, b] = slots[row, b], slots[row, a]
    places[find(keys, slots[0, a])] = a
    places[find(keys, slots[0, b])] = b
