"""Hash tables over int64 keys for compiled loops, by open addressing.

Where no key is large, a table has no keys: the key is the slot of its value, which takes one access
in place of a search.
"""

from typing import Any, NamedTuple

import numpy as np

from fitting.compiled.loops import Array, IntArray, jit_inline, jit_uncounted, read_only

EMPTY = -1
_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)
# Direct tables have keys up to here: of values that are looked up, and of integer codes.
_DIRECT_VALUES, _DIRECT_CODES = 2**16, 2**22
_FIRST_SLOTS = 4096


class HashTable(NamedTuple):
    """A value by key of 0 or more; a direct table has no keys, and a 0 for each that it lacks."""

    keys: IntArray  # by slot, `EMPTY` for a free one
    values: Array
    used: IntArray  # one number: how many keys there are


def new_table(slots: int, kind: type = np.int64) -> HashTable:
    """Make an empty hash table of at least ``slots`` slots, rounded up to a power of two."""
    size = 1 << max(4, int(slots - 1).bit_length())
    keys = np.full(size, EMPTY, dtype=np.int64)
    return HashTable(keys, np.zeros(size, kind), np.zeros(1, np.int64))


def new_codes(bound: int) -> HashTable:
    """Make an empty table of integer codes for keys below a bound; see `code_of`."""
    if bound > _DIRECT_CODES:
        return new_table(_FIRST_SLOTS, np.int32)
    return HashTable(np.empty(0, np.int64), np.zeros(bound, np.int32), np.zeros(1, np.int64))


def build_table(keys: IntArray, values: IntArray) -> HashTable:
    """Make a hash table of all these keys with their values."""
    if keys.max(initial=0) < _DIRECT_VALUES:
        table = new_codes(int(keys.max(initial=0)) + 1)
        table.values[keys] = values
        return table
    table = new_table(4 * len(keys), np.int32)
    _copy_entries(keys, values.astype(np.int32), *table[:2])
    return table


def ensure_room(table: HashTable, more: int) -> HashTable:
    """Return the table, or a larger copy where ``more`` new keys would fill over half of it."""
    wanted = 2 * (int(table.used[0]) + more)
    return resize(table, wanted) if 0 < len(table.keys) < wanted else table


def count_keys(table: HashTable, keys: IntArray) -> HashTable:
    """Add the number of times that each key appears to its value; return the table, or a larger."""
    start, (keys,) = 0, read_only(keys)
    while start < len(keys):
        table = ensure_room(table, 1)
        start = _count_keys(start, keys, table)
    return table


def resize(table: HashTable, slots: int) -> HashTable:
    """Copy a table to a new one of at least ``slots`` slots."""
    larger = new_table(slots, table.values.dtype.type)
    _copy_entries(table.keys, table.values, larger.keys, larger.values)
    larger.used[:] = table.used
    return larger


def sorted_items(table: HashTable) -> tuple[IntArray, IntArray]:
    """Return all keys of a table in ascending order, and their values."""
    held = np.flatnonzero(table.keys != EMPTY if len(table.keys) else table.values)
    keys = table.keys[held] if len(table.keys) else held
    order = np.argsort(keys)
    return keys[order], table.values[held[order]].astype(np.int64)


def scramble_keys(key: Any) -> Any:
    """Hash a key, or each of an array, to 63 bits, each of which depends on all of the key."""
    spread = np.uint64(key) * _FIBONACCI
    spread ^= spread >> np.uint64(29)
    return np.int64((spread * _FIBONACCI) >> np.uint64(1))


scramble = jit_inline(scramble_keys)


@jit_inline
def home_slot(key: int, mask: int) -> int:
    """Return the slot where the search for a key starts; eight adjacent keys share a cache line."""
    spread = np.int64((np.uint64(key >> 3) * _FIBONACCI) >> np.uint64(30))
    return ((spread << 3) | (key & 7)) & mask


@jit_uncounted
def find(keys: IntArray, key: int) -> int:
    """Return the slot of a key of 0 or more, or the empty slot where it belongs."""
    mask = len(keys) - 1
    slot = home_slot(key, mask)
    while keys[slot] != key and keys[slot] != EMPTY:
        slot = (slot + 1) & mask
    return slot


@jit_uncounted
def _count_keys(start: int, keys: IntArray, table: HashTable) -> int:
    """Count keys from ``start`` on, until the table is half full; return where to go on."""
    most = len(table.keys) // 2
    for i in range(start, len(keys)):
        if table.used[0] >= most:
            return i
        slot = find(table.keys, keys[i])
        if table.keys[slot] == EMPTY:
            table.keys[slot] = keys[i]
            table.used[0] += 1
        table.values[slot] += 1
    return len(keys)


@jit_uncounted
def remove(keys: IntArray, values: Array, slot: int) -> None:
    """Delete the key in a slot, and move back the keys that were displaced past it."""
    mask = len(keys) - 1
    hole = slot
    probe = (hole + 1) & mask
    while keys[probe] != EMPTY:
        if ((probe - home_slot(keys[probe], mask)) & mask) >= ((probe - hole) & mask):
            keys[hole], values[hole] = keys[probe], values[probe]
            hole = probe
        probe = (probe + 1) & mask
    keys[hole] = EMPTY


@jit_uncounted
def _copy_entries(keys: IntArray, values: Array, larger: IntArray, moved: Array) -> None:
    """Insert keys and their values into the arrays of a larger table, in place."""
    for slot in range(len(keys)):
        if keys[slot] != EMPTY:
            at = find(larger, keys[slot])
            larger[at], moved[at] = keys[slot], values[slot]


@jit_uncounted
def value_of(table: HashTable, key: int) -> int:
    """Look up the value of a key that the table has."""
    # What the table does not have, as of a file that grows, must stay inside the array.
    slot = key
    if len(table.keys):
        slot = find(table.keys, key)
    elif key < 0:
        slot = 0
    elif key >= len(table.values):
        slot = len(table.values) - 1
    return table.values[np.uint64(slot)]


@jit_uncounted
def code_of(table: HashTable, key: int) -> int:
    """Return the integer code of a key; a new key is added with the next code (0, 1, 2 …)."""
    # Unsigned: numba counts other indices from the end where they are negative, and looks.
    slot = np.uint64(find(table.keys, key) if len(table.keys) else key)
    code = np.int64(table.values[slot]) - 1
    if code < 0:
        code = table.used[0]
        table.used[0] += 1
        table.values[slot] = code + 1
        if len(table.keys):
            table.keys[slot] = key
    return code


def grow_rows(rows: Array, used: int, more: int) -> Array:
    """Return the rows, or a copy with rows of zeros where ``more`` after ``used`` do not fit."""
    if used + more <= len(rows):
        return rows
    # The system allocates memory of zeros only when it is written to.
    longer = np.zeros((2 * (used + more), *rows.shape[1:]), dtype=rows.dtype)
    longer[:used] = rows[:used]
    return longer
