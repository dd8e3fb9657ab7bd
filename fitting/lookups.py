"""Values by key and numbers of keys, for compiled loops: arrays where keys are small, else hashed.

An array indexed by the key itself takes one access, and is used where no key is large; tables by
`fitting.hash_table` take a search.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.compiled import inlined
from fitting.hash_table import find, new_keys, rehashed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    ShortArray = NDArray[np.int32]

# Keys below this are looked up in an array, and numbered in one.
_SMALL, _NUMBERED = 2**16, 2**22
_FIRST_PLACES = 4096
_NONE = -1


class Lookup(NamedTuple):
    """A value by key; without keys, the values are in the places that the keys name."""

    keys: IntArray
    values: ShortArray


def lookup_of(keys: IntArray, values: IntArray) -> Lookup:
    """Make a lookup of the values of all keys that will be asked for."""
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
    """Number by key, −1 for none, as `Lookup` has values; and how many there are."""

    keys: IntArray
    numbers: ShortArray
    used: IntArray


class Numbers:
    """Numbers keys from 0 to below a bound from 0 up, as they appear."""

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
        """Have room for so many new keys."""
        if self._direct:
            return
        keys, numbers, used = self.numbering
        if 2 * (len(self) + more) > len(keys):
            larger = new_keys(4 * (len(self) + more))
            moved = np.full(len(larger), _NONE, dtype=np.int32)
            rehashed(keys, numbers, larger, moved)
            self.numbering = Numbering(larger, moved, used)

    def in_order(self) -> tuple[IntArray, IntArray]:
        """All keys, sorted, and their numbers."""
        keys, numbers, _ = self.numbering
        held = np.flatnonzero(numbers != _NONE)
        if self._direct:
            return held, numbers[held].astype(np.int64)
        held = held[np.argsort(keys[held])]
        return keys[held], numbers[held].astype(np.int64)


@inlined
def numbered(numbering: Numbering, key: int) -> int:
    """Number of a key; a new one gets the next."""
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
    # Memory of zeros takes no place before it is written to.
    longer = np.zeros((2 * (used + more), *rows.shape[1:]), dtype=rows.dtype)
    longer[:used] = rows[:used]
    return longer
