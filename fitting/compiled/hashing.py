"""Hash tables over int64 keys for compiled loops: open addressing, maps, and integer codes.

An array indexed by the key itself takes one access, and is used where no key is large; hash tables
take a search.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns machine numbers, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.compiled.loops import compiled, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    ShortArray = NDArray[np.int32]


EMPTY = -1
_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)
# Keys below the first have their value, those below the second their code, in a plain array.
_SMALL, _NUMBERED = 2**16, 2**22
_FIRST_PLACES = 4096
_NONE = -1


def new_keys(places: int) -> IntArray:
    """Make an empty table of at least so many slots, a power of two."""
    return np.full(1 << max(4, int(places - 1).bit_length()), EMPTY, dtype=np.int64)


def doubled(keys: IntArray, values: IntArray) -> tuple[IntArray, IntArray]:
    """Copy a table to one of twice as many slots."""
    more = new_keys(2 * len(keys))
    moved = np.zeros(len(more), dtype=np.int64)
    rehashed(keys, values, more, moved)
    return more, moved


def roomy(keys: IntArray, values: IntArray) -> tuple[IntArray, IntArray]:
    """Double a table until three quarters of it are free."""
    while 4 * np.count_nonzero(keys != EMPTY) > len(keys):
        keys, values = doubled(keys, values)
    return keys, values


@compiled
def hashed(key: int) -> int:
    """Spread the bits of a key."""
    spread = np.uint64(key) * _FIBONACCI
    spread ^= spread >> np.uint64(29)
    return np.int64((spread * _FIBONACCI) >> np.uint64(1))


@compiled
def mixed(key: int) -> int:
    """Spread the bits of a key by one multiplication."""
    return np.int64((np.uint64(key) * _FIBONACCI) >> np.uint64(30))


@compiled
def home(key: int, mask: int) -> int:
    """Slot where a key belongs: eight consecutive keys are neighbours, in one line of a cache."""
    return ((mixed(key >> 3) << 3) | (key & 7)) & mask


@compiled
def find(keys: IntArray, key: int) -> int:
    """Return the slot of a key of 0 or more, or the empty slot where it belongs."""
    mask = len(keys) - 1
    place = home(key, mask)
    while keys[place] != key and keys[place] != EMPTY:
        place = (place + 1) & mask
    return place


@compiled
def remove(keys: IntArray, values: IntArray | NDArray[np.int32], place: int) -> None:
    """Empty a slot, moving back the keys that had to go past it."""
    mask = len(keys) - 1
    hole = place
    probe = (hole + 1) & mask
    while keys[probe] != EMPTY:
        if ((probe - home(keys[probe], mask)) & mask) >= ((probe - hole) & mask):
            keys[hole] = keys[probe]
            values[hole] = values[probe]
            hole = probe
        probe = (probe + 1) & mask
    keys[hole] = EMPTY


@compiled
def rehashed(keys: IntArray, values: NDArray[Any], larger: IntArray, moved: NDArray[Any]) -> None:
    """Copy all keys and their values to a larger, empty table."""
    for place in range(len(keys)):
        if keys[place] != EMPTY:
            at = find(larger, keys[place])
            larger[at] = keys[place]
            moved[at] = values[place]


class Lookup(NamedTuple):
    """A value by key; without ``keys``, the key is the index of its value."""

    keys: IntArray
    values: ShortArray


def lookup_of(keys: IntArray, values: IntArray) -> Lookup:
    """Map all keys that will be looked up to their values."""
    if keys.max(initial=0) < _SMALL:
        direct = np.zeros(int(keys.max(initial=0)) + 1, dtype=np.int32)
        direct[keys] = values
        return Lookup(np.empty(0, dtype=np.int64), direct)
    held = new_keys(4 * len(keys))
    places = np.zeros(len(held), dtype=np.int32)
    for key, value in zip(keys, values, strict=True):
        place = find(held, key)
        held[place], places[place] = key, value
    return Lookup(held, places)


@inlined
def looked_up(lookup: Lookup, key: int) -> int:
    """Value of a key that the lookup has."""
    # What the lookup does not have, as of a file that grows, must stay inside the array.
    small = min(max(key, 0), len(lookup.values) - 1)
    return lookup.values[np.uint64(find(lookup.keys, key) if len(lookup.keys) else small)]


class Numbering(NamedTuple):
    """Integer code by key, −1 for none, as `Lookup` has values; and how many there are."""

    keys: IntArray
    numbers: ShortArray
    used: IntArray


class Numbers:
    """Integer codes, from 0 up as keys appear, of keys from 0 to below a bound."""

    def __init__(self, bound: int) -> None:
        self._direct = bound <= _NUMBERED
        places = bound if self._direct else _FIRST_PLACES
        self.numbering = Numbering(
            np.empty(0, dtype=np.int64) if self._direct else new_keys(places),
            np.full(places, _NONE, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
        )

    def __len__(self) -> int:
        return int(self.numbering.used[0])

    def make_room(self, more: int) -> None:
        """Make room for so many new keys."""
        if self._direct:
            return
        keys, numbers, used = self.numbering
        if 2 * (len(self) + more) > len(keys):
            larger = new_keys(4 * (len(self) + more))
            moved = np.full(len(larger), _NONE, dtype=np.int32)
            rehashed(keys, numbers, larger, moved)
            self.numbering = Numbering(larger, moved, used)

    def in_order(self) -> tuple[IntArray, IntArray]:
        """All keys, sorted, and their codes."""
        keys, numbers, _ = self.numbering
        held = np.flatnonzero(numbers != _NONE)
        if self._direct:
            return held, numbers[held].astype(np.int64)
        held = held[np.argsort(keys[held])]
        return keys[held], numbers[held].astype(np.int64)


@inlined
def numbered(numbering: Numbering, key: int) -> int:
    """Code of a key; a new one gets the next."""
    # Unsigned: numba counts other indices from the end where they are negative, and looks.
    place = np.uint64(find(numbering.keys, key) if len(numbering.keys) else key)
    number = numbering.numbers[place]
    if number == _NONE:
        number = numbering.used[0]
        numbering.used[0] += 1
        numbering.numbers[place] = number
        if len(numbering.keys):
            numbering.keys[place] = key
    return number


def longer(rows: NDArray[Any], used: int, more: int) -> NDArray[Any]:
    """Rows with zeros for so many more behind those used."""
    if used + more <= len(rows):
        return rows
    # The system allocates memory of zeros only when it is written to.
    longer = np.zeros((2 * (used + more), *rows.shape[1:]), dtype=rows.dtype)
    longer[:used] = rows[:used]
    return longer
