"""Arrays whose rows lie side by side in memory: what is used together is in one line of a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_LINE = 64
_Array = NDArray[Any]


def lines(rows: int, width: int) -> NDArray[np.uint8]:
    """Rows of so many bytes, all 0, that begin where lines of a cache do if they are as long."""
    whole = np.zeros(rows * width + _LINE, dtype=np.uint8)
    skipped = -whole.ctypes.data % _LINE
    return whole[skipped : skipped + rows * width].reshape(rows, width)


def side_by_side(*arrays: _Array) -> list[_Array]:
    """Copies of columns, or tables, of as many rows, whose rows lie side by side."""
    widths = [a.itemsize * (a.shape[1] if a.ndim == 2 else 1) for a in arrays]
    half = _LINE // 2
    held = lines(len(arrays[0]), -(-sum(widths) // half) * half)
    found, at = list(arrays), 0
    # Those of the widest elements first, so that each is aligned.
    for k in sorted(range(len(arrays)), key=lambda k: -arrays[k].itemsize):
        part = held[:, at : at + widths[k]].view(arrays[k].dtype)
        found[k] = part if arrays[k].ndim == 2 else part[:, 0]
        found[k][...] = arrays[k]
        at += widths[k]
    return found
