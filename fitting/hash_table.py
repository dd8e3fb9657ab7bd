"""Open addressing over int64 keys, for compiled loops: places of keys that no range bounds."""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fitting.compiled import compiled

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]

EMPTY = -1
_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)


def new_keys(places: int) -> IntArray:
    """Make an empty table of at least so many places, a power of two."""
    return np.full(1 << max(4, int(places - 1).bit_length()), EMPTY, dtype=np.int64)


def doubled(keys: IntArray, values: IntArray) -> tuple[IntArray, IntArray]:
    """Copy a table to one of twice as many places."""
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
    """Place where a key belongs: eight consecutive keys are neighbours, in one line of a cache."""
    return ((mixed(key >> 3) << 3) | (key & 7)) & mask


@compiled
def find(keys: IntArray, key: int) -> int:
    """Return the place of a key of 0 or more, or the empty place where it belongs."""
    mask = len(keys) - 1
    place = home(key, mask)
    while keys[place] != key and keys[place] != EMPTY:
        place = (place + 1) & mask
    return place


@compiled
def places(keys: IntArray, wanted: IntArray) -> IntArray:
    """Return the places of several keys."""
    found = np.empty(len(wanted), dtype=np.int64)
    for i in range(len(wanted)):
        found[i] = find(keys, wanted[i])
    return found


@compiled
def remove(keys: IntArray, values: IntArray | NDArray[np.int32], place: int) -> None:
    """Empty a place, moving back those that had to go past it."""
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
