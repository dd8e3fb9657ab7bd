"""Caches that remember blocks which they have evicted: ARC and S3-FIFO.

A ghost is a block of which only the number is kept. ARC has two LRU queues, of blocks used once and
more than once, each with ghosts; a hit of a ghost lets its queue grow. S3-FIFO has a small queue of
a tenth of the cache, from which blocks that were used twice go to the main one, and others become
ghosts; a block that is a ghost comes into the main queue, which works like a clock of two bits.

References
----------
N. Megiddo, D. S. Modha: ARC: a self-tuning, low overhead replacement cache. FAST, 2003.
J. Yang et al.: FIFO queues are all you need for cache eviction. SOSP, 2023.
doi:10.1145/3600006.3613147
"""

from typing import NamedTuple

import numpy as np

from fitting.compiled.hashing import EMPTY, HashTable, find, new_table, remove, resize
from fitting.compiled.loops import Columns, FloatArray, IntArray, jit_uncounted

# Queues: of ARC, blocks used once and more often, then the ghosts of each; of S3-FIFO, the small
# and the main one, then ghosts. Blocks of the first two are in the cache.
_ONCE, _OFTEN, _ONCE_GHOSTS, _OFTEN_GHOSTS = range(4)
_SMALL, _MAIN, _GHOSTS = range(3)
_NOWHERE = -1
# Rows of the slots, of the queues, and numbers: dirty blocks evicted, slots in use, first free
# slot, and whether S3-FIFO has evicted a block.
_BLOCK, _BEFORE, _AFTER, DIRTY, _QUEUE, _USES = range(6)
_HEAD, _TAIL, _LENGTH = range(3)
WRITTEN_BACK, _SLOTS, _FREE, _HAS_EVICTED = range(4)
# S3-FIFO: uses that bring a block of the small queue to the main one, and uses that count there.
_LEAST_USES, _MOST_USES = 2, 3


class GhostTables(NamedTuple):
    """Blocks and ghosts of a cache."""

    held: HashTable  # slot of each
    slots: IntArray
    queues: IntArray
    numbers: IntArray
    aim: FloatArray  # one number: length that ARC aims at for the queue of blocks used once


def new_tables() -> GhostTables:
    """Make the tables of an empty cache."""
    slots, queues = np.zeros((6, 16), dtype=np.int64), np.full((3, 4), EMPTY, dtype=np.int64)
    queues[_LENGTH] = 0
    numbers = np.array([0, 0, EMPTY, 0], dtype=np.int64)
    return GhostTables(new_table(64), slots, queues, numbers, np.zeros(1))


def make_room(t: GhostTables, capacity: int) -> GhostTables:
    """Double the slots where all are used, and fewer than blocks and ghosts can be."""
    room = t.slots.shape[1]
    if _has_slot(t) or room > 2 * capacity:
        return t
    slots = np.pad(t.slots, ((0, 0), (0, room)))
    return t._replace(held=resize(t.held, 8 * room), slots=slots)


@jit_uncounted
def _has_slot(t: GhostTables) -> bool:
    """Tell whether there is a free slot."""
    return bool(t.numbers[_SLOTS] < t.slots.shape[1] or t.numbers[_FREE] != EMPTY)


@jit_uncounted
def access_blocks(
    start: int, columns: Columns, capacity: int, rules: Columns, t: GhostTables
) -> int:
    """Access blocks from ``start`` on, until no slot is free; return where to go on."""
    is_arc, allocates, writes_back = rules
    accessed, written, hits = columns
    for i in range(start, len(accessed)):
        at = find(t.held.keys, accessed[i])
        slot = int(t.held.values[at]) if t.held.keys[at] != EMPTY else EMPTY
        queue = int(t.slots[_QUEUE, slot]) if slot != EMPTY else _NOWHERE
        hits[i] = _ONCE <= queue <= _OFTEN
        if not hits[i] and written[i] and not allocates:
            continue
        if slot == EMPTY and not _has_slot(t):
            return i
        if hits[i] and is_arc:
            _move(t, slot, _OFTEN)
        elif hits[i]:
            t.slots[_USES, slot] += 1
        elif is_arc:
            slot = _bring_in_by_arc(t, int(accessed[i]), slot, queue, capacity)
        else:
            slot = _bring_in_by_fifo(t, int(accessed[i]), slot, capacity)
        if writes_back and written[i]:
            t.slots[DIRTY, slot] = 1
    return len(accessed)


@jit_uncounted
def _bring_in_by_arc(t: GhostTables, block: int, slot: int, queue: int, capacity: int) -> int:
    """Bring a block into ARC, and evict one for it where it is full; return its slot."""
    length, aim = t.queues[_LENGTH], t.aim
    if queue == _ONCE_GHOSTS:
        aim[0] = min(capacity, aim[0] + max(length[_OFTEN_GHOSTS] / length[_ONCE_GHOSTS], 1))
    elif queue == _OFTEN_GHOSTS:
        aim[0] = max(0, aim[0] - max(length[_ONCE_GHOSTS] / length[_OFTEN_GHOSTS], 1))
    if queue != _NOWHERE:
        _replace_by_arc(t, queue == _OFTEN_GHOSTS)
        _move(t, slot, _OFTEN)
        return slot
    if length[_ONCE] + length[_ONCE_GHOSTS] == capacity:
        if length[_ONCE] < capacity:
            _forget(t, t.queues[_TAIL, _ONCE_GHOSTS])
            _replace_by_arc(t, False)
        else:
            _forget(t, t.queues[_TAIL, _ONCE])
    elif length[_ONCE] + length[_OFTEN] == capacity:
        if length.sum() == 2 * capacity:
            _forget(t, t.queues[_TAIL, _OFTEN_GHOSTS])
        _replace_by_arc(t, False)
    return _take_slot(t, block, _ONCE)


@jit_uncounted
def _replace_by_arc(t: GhostTables, is_often_ghost: bool) -> None:
    """Make a ghost of the block that ARC evicts."""
    once, aim = t.queues[_LENGTH, _ONCE], t.aim[0]
    too_many = once > aim or (is_often_ghost and once == aim) or t.queues[_LENGTH, _OFTEN] == 0
    queue = _ONCE if once > 0 and too_many else _OFTEN
    _evict(t, t.queues[_TAIL, queue], queue + 2)


@jit_uncounted
def _bring_in_by_fifo(t: GhostTables, block: int, slot: int, capacity: int) -> int:
    """Bring a block into S3-FIFO, and evict one for it where it is full; return its slot."""
    length, small = t.queues[_LENGTH], max(1, capacity // 10)
    ghosts = max(1, capacity * 9 // 10)
    queue = _MAIN if slot != EMPTY else _SMALL
    if slot != EMPTY:
        _forget(t, slot)
    while length[_SMALL] + length[_MAIN] >= capacity:
        t.numbers[_HAS_EVICTED] = 1
        if length[_MAIN] > capacity - small or length[_SMALL] == 0:
            _evict_from_main(t)
        else:
            _evict_from_small(t, ghosts)
    # Until the cache is full, what the small queue has no room for goes to the main one.
    if not t.numbers[_HAS_EVICTED] and length[_SMALL] >= small:
        queue = _MAIN
    return _take_slot(t, block, queue)


@jit_uncounted
def _evict_from_small(t: GhostTables, ghosts: int) -> None:
    """Make a ghost of the oldest block of the small queue; those used twice go to the main one."""
    while t.queues[_LENGTH, _SMALL] > 0:
        slot = t.queues[_TAIL, _SMALL]
        if t.slots[_USES, slot] < _LEAST_USES:
            if t.queues[_LENGTH, _GHOSTS] == ghosts:
                _forget(t, t.queues[_TAIL, _GHOSTS])
            _evict(t, slot, _GHOSTS)
            return
        _move(t, slot, _MAIN)
        t.slots[_USES, slot] = 0


@jit_uncounted
def _evict_from_main(t: GhostTables) -> None:
    """Evict the oldest block of the main queue that was not used; others move to its head."""
    slot, uses = t.queues[_TAIL, _MAIN], t.slots[_USES]
    while uses[slot] > 0:
        uses[slot] = min(uses[slot], _MOST_USES) - 1
        _move(t, slot, _MAIN)
        slot = t.queues[_TAIL, _MAIN]
    _forget(t, slot)


@jit_uncounted
def _take_slot(t: GhostTables, block: int, queue: int) -> int:
    """Put a new block at the head of a queue; return its slot."""
    slot = t.numbers[_FREE]
    if slot != EMPTY:
        t.numbers[_FREE] = t.slots[_AFTER, slot]
    else:
        slot = t.numbers[_SLOTS]
        t.numbers[_SLOTS] += 1
    at = find(t.held.keys, block)
    t.held.keys[at], t.held.values[at] = block, slot
    t.slots[_BLOCK, slot], t.slots[DIRTY, slot], t.slots[_USES, slot] = block, 0, 0
    _put_at_head(t, slot, queue)
    return int(slot)


@jit_uncounted
def _forget(t: GhostTables, slot: int) -> None:
    """Remove a block or a ghost."""
    _clean(t, slot)
    _unlink(t, slot)
    remove(t.held.keys, t.held.values, find(t.held.keys, t.slots[_BLOCK, slot]))
    t.slots[_AFTER, slot] = t.numbers[_FREE]
    t.numbers[_FREE] = slot


@jit_uncounted
def _evict(t: GhostTables, slot: int, ghosts: int) -> None:
    """Make a ghost of a block."""
    _clean(t, slot)
    _move(t, slot, ghosts)


@jit_uncounted
def _clean(t: GhostTables, slot: int) -> None:
    """Write a block to the storage where it is dirty."""
    t.numbers[WRITTEN_BACK] += t.slots[DIRTY, slot]
    t.slots[DIRTY, slot] = 0


@jit_uncounted
def _move(t: GhostTables, slot: int, queue: int) -> None:
    """Move a slot to the head of a queue."""
    _unlink(t, slot)
    _put_at_head(t, slot, queue)


@jit_uncounted
def _unlink(t: GhostTables, slot: int) -> None:
    """Take a slot out of its queue."""
    before, after, queue = t.slots[_BEFORE, slot], t.slots[_AFTER, slot], t.slots[_QUEUE, slot]
    if before == EMPTY:
        t.queues[_HEAD, queue] = after
    else:
        t.slots[_AFTER, before] = after
    if after == EMPTY:
        t.queues[_TAIL, queue] = before
    else:
        t.slots[_BEFORE, after] = before
    t.queues[_LENGTH, queue] -= 1


@jit_uncounted
def _put_at_head(t: GhostTables, slot: int, queue: int) -> None:
    """Put a slot at the head of a queue."""
    head = t.queues[_HEAD, queue]
    t.slots[_BEFORE, slot], t.slots[_AFTER, slot] = EMPTY, head
    if head == EMPTY:
        t.queues[_TAIL, queue] = slot
    else:
        t.slots[_BEFORE, head] = slot
    t.queues[_HEAD, queue] = slot
    t.queues[_LENGTH, queue] += 1
    t.slots[_QUEUE, slot] = queue
