"""Block caches of a fixed size, by what they evict and what they do with writes.

=============  ====================================================================
policy         evicts
=============  ====================================================================
lru            the block used longest ago
fifo           the block that came in first
clock          the first in the queue that was not used since it was last looked at
lfu            the block used least often; of these, the one used longest ago
arc, s3fifo    by what it remembers of evicted blocks: see `fitting.storage.ghost_caches`
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

from typing import NamedTuple

import numpy as np

from fitting.compiled.hashing import EMPTY, HashTable, find, new_table, remove, resize
from fitting.compiled.loops import ArrayLike, BoolArray, Columns, IntArray, jit_uncounted
from fitting.errors import FittingError
from fitting.storage import ghost_caches as ghosts

POLICIES = ("lru", "fifo", "clock", "lfu", "arc", "s3fifo")
WRITES = ("back", "through", "around")
_LRU, _FIFO, _CLOCK, _LFU = range(4)
_MOST_BLOCKS = 2**27
# Numbers that the compiled passes keep: blocks held, accesses so far, dirty blocks evicted; and
# the ends of the queue.
_HELD, _TIME, _WRITTEN_BACK, _HEAD, _TAIL = range(5)
# Flags of a slot.
_DIRTY, _USED = 1, 2


class _Tables(NamedTuple):
    held: HashTable  # slot of each block held
    # Rows, by slot: block; its two neighbours in the queue or, in a heap, number of uses and time
    # of the last; flags.
    slots: IntArray
    numbers: IntArray


class Cache:
    """A cache that starts empty and takes accesses batch by batch.

    ``policy`` is one of `POLICIES`, ``writes`` one of `WRITES`. Raises `FittingError` for another,
    or for a capacity below 1 or above 2²⁷ blocks.
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
        numbers = np.array([0, 0, 0, EMPTY, EMPTY], dtype=np.int64)
        self._tables = _Tables(new_table(64), np.zeros((4, 16), dtype=np.int64), numbers)
        self._ghosts = ghosts.new_tables() if policy in ("arc", "s3fifo") else None

    @property
    def written_back(self) -> int:
        """Number of dirty blocks that were evicted, and so written to the storage, until now."""
        if self._ghosts is not None:
            return int(self._ghosts.numbers[ghosts.WRITTEN_BACK])
        return int(self._tables.numbers[_WRITTEN_BACK])

    @property
    def dirty(self) -> int:
        """Number of blocks in the cache that are still to be written to the storage."""
        if self._ghosts is not None:
            return int(self._ghosts.slots[ghosts.DIRTY].sum())
        tables = self._tables
        return int(np.count_nonzero(tables.slots[3, : tables.numbers[_HELD]] & _DIRTY))

    def access(self, blocks: ArrayLike, is_write: ArrayLike) -> BoolArray:
        """Access blocks in order; return for each whether it was in the cache (a hit)."""
        accessed = np.ascontiguousarray(blocks, dtype=np.int64)
        written = np.ascontiguousarray(is_write, dtype=np.bool_)
        if accessed.shape != written.shape or accessed.min(initial=0) < 0:
            raise FittingError("give as many writes as blocks, and block numbers of 0 or more")
        hits = np.zeros(len(accessed), dtype=np.bool_)
        columns = accessed, written, hits
        rules = POLICIES.index(self.policy), self.writes != "around", self.writes == "back"
        start = 0
        while start < len(accessed) and self._ghosts is not None:
            self._ghosts = ghosts.make_room(self._ghosts, self.blocks)
            of_ghosts = self.policy == "arc", *rules[1:]
            start = ghosts.access_blocks(start, columns, self.blocks, of_ghosts, self._ghosts)
        while start < len(accessed):
            self._make_room()
            start = _access_blocks(start, columns, self.blocks, rules, self._tables)
        return hits

    def _make_room(self) -> None:
        """Double the slots where all are used and there are fewer than the capacity."""
        held, slots, numbers = self._tables
        room = slots.shape[1]
        if numbers[_HELD] < room or room >= self.blocks:
            return
        slots = np.pad(slots, ((0, 0), (0, room)))
        self._tables = _Tables(resize(held, 8 * room), slots, numbers)


@jit_uncounted
def _access_blocks(start: int, columns: Columns, capacity: int, rules: Columns, t: _Tables) -> int:
    """Access blocks from ``start`` on, until no slot is free; return where to go on."""
    # One loop for all policies: they differ in whom they evict and in what a use changes.
    policy, allocates, writes_back = rules
    accessed, written, hits = columns
    keys, places = t.held.keys, t.held.values
    block_of, flags, numbers = t.slots[0], t.slots[3], t.numbers
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
                slot = 0 if policy == _LFU else _take_oldest(t)
                numbers[_WRITTEN_BACK] += flags[slot] & _DIRTY
                remove(keys, places, find(keys, block_of[slot]))
                at = find(keys, accessed[i])
            elif slot == len(block_of):
                return i
            else:
                numbers[_HELD] += 1
            keys[at], places[at] = accessed[i], slot
            block_of[slot], flags[slot] = accessed[i], 0
        if writes_back and written[i]:
            flags[slot] |= _DIRTY
        if policy == _LFU:
            _count_use(t, slot, hits[i])
        elif not hits[i]:
            _put_at_head(t, slot)
        elif policy == _LRU and slot != numbers[_HEAD]:
            _unlink(t, slot)
            _put_at_head(t, slot)
        elif policy == _CLOCK:
            flags[slot] |= _USED
    return len(accessed)


@jit_uncounted
def _take_oldest(t: _Tables) -> int:
    """Unlink the queue's last slot and return it; slots that were used move to the head."""
    flags, slot = t.slots[3], t.numbers[_TAIL]
    while flags[slot] & _USED:
        flags[slot] &= _DIRTY
        _unlink(t, slot)
        _put_at_head(t, slot)
        slot = t.numbers[_TAIL]
    _unlink(t, slot)
    return int(slot)


@jit_uncounted
def _unlink(t: _Tables, slot: int) -> None:
    """Take a slot out of the queue."""
    before, after = t.slots[1], t.slots[2]
    if before[slot] == EMPTY:
        t.numbers[_HEAD] = after[slot]
    else:
        after[before[slot]] = after[slot]
    if after[slot] == EMPTY:
        t.numbers[_TAIL] = before[slot]
    else:
        before[after[slot]] = before[slot]


@jit_uncounted
def _put_at_head(t: _Tables, slot: int) -> None:
    """Put a slot at the head of the queue."""
    before, after = t.slots[1], t.slots[2]
    before[slot], after[slot] = EMPTY, t.numbers[_HEAD]
    if t.numbers[_HEAD] == EMPTY:
        t.numbers[_TAIL] = slot
    else:
        before[t.numbers[_HEAD]] = slot
    t.numbers[_HEAD] = slot


@jit_uncounted
def _count_use(t: _Tables, slot: int, is_held: bool) -> None:
    """Count a use of a slot (1 for a new block), and move it to its place in the heap."""
    uses, last, held = t.slots[1], t.slots[2], t.numbers[_HELD]
    uses[slot] = uses[slot] + 1 if is_held else 1
    t.numbers[_TIME] += 1
    last[slot] = t.numbers[_TIME]
    while slot > 0 and _is_evicted_before(t.slots, slot, (slot - 1) // 2):
        _swap_slots(t, slot, (slot - 1) // 2)
        slot = (slot - 1) // 2
    while 2 * slot + 1 < held:
        child = 2 * slot + 1
        if child + 1 < held and _is_evicted_before(t.slots, child + 1, child):
            child += 1
        if not _is_evicted_before(t.slots, child, slot):
            return
        _swap_slots(t, slot, child)
        slot = child


@jit_uncounted
def _is_evicted_before(slots: IntArray, a: int, b: int) -> bool:
    """Tell whether slot a is evicted before slot b: fewer uses, or an older last use."""
    uses, last = slots[1], slots[2]
    return bool(uses[a] < uses[b] or (uses[a] == uses[b] and last[a] < last[b]))


@jit_uncounted
def _swap_slots(t: _Tables, a: int, b: int) -> None:
    """Exchange two slots of the heap, and tell the hash table."""
    for row in range(4):
        t.slots[row, a], t.slots[row, b] = t.slots[row, b], t.slots[row, a]
    t.held.values[find(t.held.keys, t.slots[0, a])] = a
    t.held.values[find(t.held.keys, t.slots[0, b])] = b
