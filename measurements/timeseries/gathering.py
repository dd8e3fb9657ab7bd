"""Columns of a log that are gathered block by block, as each may have columns of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]


# No counter of a host grows by more in a second; a broken one may show 2**64.
_LARGEST = 1e18


def leave_out_absurd(numbers: Numbers) -> NDArray[np.bool_]:
    """Make what no counter can show NaN, in place, and say where it was."""
    absurd: NDArray[np.bool_] = np.abs(numbers) > _LARGEST
    numbers[absurd] = np.nan
    return absurd


class Gathering:
    """Blocks of rows, one below the other; a column that a block does not have is NaN there."""

    def __init__(self) -> None:
        self.rows = 0
        self._blocks: dict[str, list[tuple[int, Numbers]]] = {}

    def add(self, rows: int, columns: Mapping[str, Numbers]) -> None:
        """Add a block of so many rows."""
        for name, numbers in columns.items():
            self._blocks.setdefault(name, []).append((self.rows, numbers))
        self.rows += rows

    def columns(self) -> dict[str, Numbers]:
        """All columns, whole; afterwards nothing is left."""
        whole = {}
        while self._blocks:
            name, blocks = self._blocks.popitem()
            column = np.full(self.rows, np.nan)
            for start, numbers in blocks:
                column[start : start + len(numbers)] = numbers
            whole[name] = column
        return dict(reversed(whole.items()))
