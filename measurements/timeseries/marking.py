"""What is odd about the rows of a series: marked, never mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from measurements.timeseries.schema import COLUMNS, CPU_COLUMNS, MARKS, of_device, split_device
from measurements.timeseries.series import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

# Percentages are rounded, and stamps are; ticks come in whole ones.
_ROUNDING = 1.05
_TICKS_S = 0.02


class Marks:
    """The marks of the rows of a series that is being made."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._marked: dict[str, NDArray[np.bool_]] = {}
        self._where: dict[str, list[str]] = {}

    def add(self, mark: str, rows: NDArray[np.bool_], column: str = "") -> None:
        """Mark rows; ``column`` says of what."""
        if not rows.any():
            return
        self._marked[mark] = self._marked.get(mark, False) | rows
        if column:
            self._where.setdefault(mark, []).append(column)

    def text(self) -> NDArray[np.object_]:
        """Marks of each row, "" for none."""
        said = np.full(self._rows, "", object)
        for mark in MARKS:
            if mark in self._marked:
                for row in np.flatnonzero(self._marked[mark]):
                    said[row] = f"{said[row]}; {mark}" if said[row] else mark
        return said

    def findings(self) -> list[Finding]:
        """One a mark, with the columns that it is about."""
        return [
            Finding(mark, int(rows.sum()), f"{mark}: {MARKS[mark]}{self._about(mark)}")
            for mark, rows in self._marked.items()
        ]

    def _about(self, mark: str) -> str:
        columns = list(dict.fromkeys(self._where.get(mark, ())))
        more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
        return f" [{', '.join(columns[:3])}{more}]" if columns else ""


def mark_values(
    values: dict[str, Numbers], intervals_s: Numbers, cpus: float | None, marks: Marks
) -> None:
    """Leave out values below 0; mark those above capacity and devices that come and go.

    Parameters
    ----------
    values : mapping of column to array
        Amounts over the interval; changed in place.
    intervals_s : array
    cpus : float or None
    marks : Marks
    """
    for column, numbers in values.items():
        negative = numbers < 0
        if negative.any():
            marks.add("negative", negative, column)
            numbers[negative] = np.nan
    _mark_cpu(values, intervals_s, cpus, marks)
    for column, numbers in values.items():
        most = _most(column, values, intervals_s)
        if most is not None:
            marks.add("over capacity", numbers > most * _ROUNDING, column)
    for device, there in _presence(values).items():
        _mark_coming_and_going(device, there, marks)


def _mark_cpu(
    values: Mapping[str, Numbers], intervals_s: Numbers, cpus: float | None, marks: Marks
) -> None:
    parts = [values[name] for name in CPU_COLUMNS if name in values]
    if parts and cpus:
        total = np.nansum(parts, axis=0)
        most = cpus * (_ROUNDING * intervals_s + _TICKS_S)
        marks.add("over capacity", total > most, "CPU time")


def _most(column: str, values: Mapping[str, Numbers], intervals_s: Numbers) -> Numbers | None:
    """What a column cannot exceed; None where that is not known."""
    base, device = split_device(column)
    described = COLUMNS[base]
    if described.kind == "share":
        return np.ones(len(intervals_s))
    capacity = of_device(described.capacity, device) if device else described.capacity
    if not described.capacity or capacity not in values:
        return None
    return values[capacity] * intervals_s if described.kind == "amount" else values[capacity]


def _presence(values: Mapping[str, Numbers]) -> dict[str, NDArray[np.bool_]]:
    """Rows in which anything is known of a device, by its name."""
    found: dict[str, NDArray[np.bool_]] = {}
    for column, numbers in values.items():
        base, device = split_device(column)
        if device and COLUMNS[base].kind != "fact":
            found[device] = found.get(device, False) | ~np.isnan(numbers)
    return found


def _mark_coming_and_going(device: str, there: NDArray[np.bool_], marks: Marks) -> None:
    if there.all() or not there.any():
        return
    first = int(there.argmax())
    last = len(there) - 1 - int(there[::-1].argmax())
    rows = np.arange(len(there))
    marks.add("device new", (rows == first) & (first > 0), device)
    marks.add("device gone", (rows == last + 1) & (last + 1 < len(there)), device)
