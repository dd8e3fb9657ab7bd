"""Core voltage by frequency: recorded in the runs, or given as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ppw.errors import PpwError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from fitting.bayes.steps import Steps
    from fitting.regression.lines import FloatArray, IntArray
    from ppw.grouping import Groups

    Mask = NDArray[np.bool_]

# Rounding of a frequency must not put it outside its own table.
_EDGE = 1e-3


@dataclass(frozen=True)
class VoltageTable:
    """V-f points of each group: those of its host, of all hosts, or none.

    Attributes
    ----------
    tables : tuple of (frequency (Hz), voltage (V)) arrays
        Sorted by frequency.
    of_group : (groups,) int array
        Table of each group; −1 for none.
    """

    tables: tuple[tuple[FloatArray, FloatArray], ...] = ()
    of_group: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(
        cls,
        runs: pd.DataFrame,
        groups: Groups,
        given: Mapping[float, float] | pd.DataFrame | None,
    ) -> VoltageTable:
        """Take the voltages given, else those of the column ``voltage_v``.

        Parameters
        ----------
        given : mapping of Hz to V, DataFrame or None
            A frame has the columns ``freq_hz`` and ``voltage_v``, and ``host`` where the hosts
            differ. An empty mapping means to use none.

        Raises
        ------
        PpwError
            For a frame without these columns, or values that are not positive.
        """
        if isinstance(given, Mapping):
            return cls.of_mapping(given, len(groups))
        if given is not None:
            check_columns(given)
        elif "voltage_v" not in runs.columns:
            return cls()
        source = runs if given is None else given
        known = source[source["voltage_v"].notna() & source["freq_hz"].notna()]
        if not len(known):
            return cls()
        if "host" not in known.columns or "host" not in groups.by:
            means = known.groupby("freq_hz", sort=True)["voltage_v"].mean()
            return cls._one(means.index.to_numpy(float), means.to_numpy(float), len(groups))
        tables: list[tuple[FloatArray, FloatArray]] = []
        number: dict[object, int] = {}
        for host, part in known.groupby("host", sort=True):
            means = part.groupby("freq_hz", sort=True)["voltage_v"].mean()
            number[host] = len(tables)
            tables.append(_checked(means.index.to_numpy(float), means.to_numpy(float)))
        of_group = groups.keys["host"].map(number).fillna(-1).to_numpy(dtype=np.int64)
        return cls(tuple(tables), np.asarray(of_group, dtype=np.int64))

    @classmethod
    def of_mapping(cls, given: Mapping[float, float], groups: int) -> VoltageTable:
        """Take one table of Hz to V for all groups; an empty one is none."""
        table = np.array(sorted(given.items()), dtype=float).reshape(-1, 2)
        return cls._one(table[:, 0], table[:, 1], groups) if len(table) else cls()

    @classmethod
    def _one(cls, frequency: FloatArray, voltage: FloatArray, groups: int) -> VoltageTable:
        return cls((_checked(frequency, voltage),), np.zeros(groups, dtype=np.int64))

    def covers(self, steps: Steps, target: FloatArray) -> Mask:
        """Groups whose table holds their lowest and highest step and the target."""
        covered = np.zeros(len(target), dtype=bool)
        for number, (frequency, _) in enumerate(self.tables):
            mine = np.flatnonzero((self.of_group == number) & (steps.count > 0))
            low, high = frequency[0] * (1 - _EDGE), frequency[-1] * (1 + _EDGE)
            lowest = steps.frequency[steps.first[mine]]
            inside = (lowest >= low) & (steps.highest(mine)[0] <= high)
            covered[mine] = inside & (target[mine] >= low) & (target[mine] <= high)
        return covered

    def at(self, frequency: FloatArray, groups: IntArray) -> FloatArray:
        """Voltage (V) of groups at (groups, k) frequencies, along straight lines."""
        voltage = np.full(frequency.shape, np.nan)
        for number, table in enumerate(self.tables):
            mine = self.of_group[groups] == number
            voltage[mine] = np.interp(frequency[mine], *table)
        return voltage


def check_columns(table: pd.DataFrame) -> None:
    """Raise `PpwError` for a V-f table without its two columns."""
    if not {"freq_hz", "voltage_v"} <= set(table.columns):
        found = ", ".join(map(str, table.columns)) or "none"
        raise PpwError(
            f"the V-f table needs the columns freq_hz and voltage_v; its columns are {found}"
        )


def _checked(frequency: FloatArray, voltage: FloatArray) -> tuple[FloatArray, FloatArray]:
    if not (np.isfinite(voltage).all() and (voltage > 0).all() and (frequency > 0).all()):
        raise PpwError("the V-f table needs positive frequencies (Hz) and voltages (V)")
    return frequency, voltage
