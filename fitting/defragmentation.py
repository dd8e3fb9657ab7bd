"""Files laid out in one piece each, and where requests to their blocks then go.

A block trace says which blocks of a file were touched, not which place in the file they are. Two
orders bound what a defragmentation would do:

``address``
    Pages of a file keep their order on the device, and the gaps between them close.
``first_use``
    Pages of a file are laid out as they were first touched: right for files that are read or
    written from begin to end, too good for others.

Files follow one another by the lowest page of each, from the lowest page of their device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.errors import FittingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]

ORDERS = ("address", "first_use")
PAGE_BLOCKS = 8
_DEVICE_SHIFT = 44


class Moved(NamedTuple):
    """Requests in a new layout.

    Attributes
    ----------
    lbn : array
        Block at which each begins.
    end : array
        Block after its last.
    broken : array
        Whether its pages do not follow one another any more.
    """

    lbn: IntArray
    end: IntArray
    broken: NDArray[np.bool_]


class FilePages:
    """Takes requests batch by batch and learns which pages of which file they touch.

    Holds all distinct pages: 24 bytes for each 4 KiB that the trace touches.
    """

    def __init__(self) -> None:
        self._key: IntArray = np.empty(0, dtype=np.int64)
        self._file: IntArray = np.empty(0, dtype=np.int64)
        self._rank: IntArray = np.empty(0, dtype=np.int64)
        self._seen = 0

    def add(self, device: IntArray, file: IntArray, lbn: IntArray, size_bytes: IntArray) -> None:
        """Take the next requests; ``file`` −1 is a file of its own, of all that have no name.

        Raises
        ------
        FittingError
            For a place beyond 64 PiB.
        """
        page, request = _pages(lbn, size_bytes)
        if len(page) and page.max() >> _DEVICE_SHIFT:
            raise FittingError("a place lies beyond 64 PiB: no layout can be made of it")
        key = device[request].astype(np.int64) << _DEVICE_SHIFT | page
        new, first = np.unique(key, return_index=True)
        unknown = ~np.isin(new, self._key, assume_unique=True)
        new, first = new[unknown], first[unknown]
        order = np.argsort(np.concatenate([self._key, new]), kind="stable")
        files = file[request[first]].astype(np.int64)
        self._key = np.concatenate([self._key, new])[order]
        self._file = np.concatenate([self._file, files])[order]
        self._rank = np.concatenate([self._rank, self._seen + first])[order]
        self._seen += len(key)

    def layout(self, order: str) -> Layout:
        """Lay the files out; ``order`` is one of `ORDERS`."""
        if order not in ORDERS:
            raise FittingError(f"no order {order!r}: give {' or '.join(ORDERS)}")
        device = self._key >> _DEVICE_SHIFT
        # Pages are sorted, so that the first of a file is its lowest.
        _, first, file = np.unique(
            np.stack([device, self._file]), axis=1, return_index=True, return_inverse=True
        )[0:3]
        lowest = first[file.ravel()]
        within = np.arange(len(device)) if order == "address" else self._rank
        placed = np.lexsort((within, lowest, device))
        starts = np.searchsorted(device, np.arange(int(device.max(initial=0)) + 1))
        page = self._key & ((1 << _DEVICE_SHIFT) - 1)
        new = np.empty_like(page)
        at = np.arange(len(page)) - starts[device]
        new[placed] = page[starts[device]] + at
        return Layout(self._key, new)


class Layout:
    """New places of pages."""

    def __init__(self, key: IntArray, page: IntArray) -> None:
        self._key, self._page = key, page

    def move(self, device: IntArray, lbn: IntArray, size_bytes: IntArray) -> Moved:
        """Find the new places of requests that the layout was made from."""
        blocks = np.maximum(size_bytes // 512, 1)
        first, last = lbn // PAGE_BLOCKS, (lbn + blocks - 1) // PAGE_BLOCKS
        start, stop = (self._place(device, page) for page in (first, last))
        end = stop * PAGE_BLOCKS + (lbn + blocks - 1) % PAGE_BLOCKS + 1
        return Moved(start * PAGE_BLOCKS + lbn % PAGE_BLOCKS, end, stop - start != last - first)

    def _place(self, device: IntArray, page: IntArray) -> IntArray:
        key = device.astype(np.int64) << _DEVICE_SHIFT | page
        return np.asarray(self._page[np.searchsorted(self._key, key)])


def _pages(lbn: IntArray, size_bytes: IntArray) -> tuple[IntArray, IntArray]:
    """Pages that requests touch, in order, and the request that touches each."""
    first = lbn // PAGE_BLOCKS
    blocks = np.maximum(size_bytes // 512, 1)
    number = (lbn + blocks - 1) // PAGE_BLOCKS - first + 1
    request = np.repeat(np.arange(len(lbn)), number)
    before = np.cumsum(number) - number
    return first[request] + np.arange(len(request)) - before[request], request
