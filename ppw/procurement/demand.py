"""What must be served: the rate of every workload over the years and the day."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.regression.lines import FloatArray
    from ppw.procurement.inputs import Numbers
    from ppw.procurement.scenario import Workload

HOURS_PER_YEAR = 8760.0
SECONDS_PER_YEAR = 3600 * HOURS_PER_YEAR


class Demand(NamedTuple):
    """Demand of n cases.

    Attributes
    ----------
    rate : (workloads, n, years, parts) float array
        1/s, in equal parts of the day.
    memory : (workloads, n) float array
        B, in the last year; 0 where none is asked for.
    """

    rate: FloatArray
    memory: FloatArray

    def work(self) -> FloatArray:
        """Units of work of each workload over all years: (workloads, n)."""
        total: FloatArray = self.rate.mean(axis=3).sum(axis=2) * SECONDS_PER_YEAR
        return total


def demand_of(workloads: Sequence[Workload], years: int, numbers: Numbers) -> Demand:
    """Lay the demand out over ``years`` and the day; it grows once a year."""
    growth = 1 + numbers["demand.growth_per_year"]
    grown = growth[:, None] ** np.arange(years)
    parts = max(len(w.profile) for w in workloads)
    rate = np.stack(
        [
            (peak_rate(w.name, numbers)[:, None] * grown)[..., None]
            * np.broadcast_to(w.profile, parts)
            for w in workloads
        ]
    )
    memory = np.stack([_memory(w.name, numbers) * grown[:, -1] for w in workloads])
    return Demand(rate, memory)


def peak_rate(name: str, numbers: Numbers) -> FloatArray:
    """Rate (1/s) of a workload at the peak of the first year: (n,)."""
    own = f"workload.{name}.rate"
    if own in numbers:
        return numbers["demand.scale"] * numbers[own]
    shared = numbers["demand.rate"] * numbers[f"workload.{name}.share"]
    made: FloatArray = numbers["demand.scale"] * shared
    return made


def _memory(name: str, numbers: Numbers) -> FloatArray:
    needed = f"workload.{name}.memory"
    if needed not in numbers:
        return np.zeros(numbers.n)
    made: FloatArray = numbers["demand.scale"] * numbers[needed]
    return made
