"""One candidate as the model needs it: a server's rates and its watts against load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ppw.procurement.inputs import figure_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fitting.regression.lines import FloatArray
    from ppw.procurement.inputs import Numbers


class PowerCurve(Protocol):
    """Watts of a server against its load, from 0 to 1."""

    def watts(self, load: FloatArray) -> FloatArray:
        """W at each load."""
        ...


class StraightLine:
    """Power that rises from idle to full load in proportion to the load."""

    def watts(self, load: FloatArray) -> FloatArray:
        """Share of the way from idle to full."""
        return load


@dataclass(frozen=True, eq=False)
class Server:
    """A candidate.

    Attributes
    ----------
    name : str
    height : int
        Rack units.
    ports, cores : int or None
        ``cores`` is None where nothing counts them.
    curve : PowerCurve
        Its shape is used; idle and full watts are figures of their own.
    share_within_limit : mapping of str to float
        By workload, the share of its rate at which its latency is at the limit.
    excluded : str
        Why it cannot serve the demand at all; empty where it can.
    """

    name: str
    height: int
    ports: int
    cores: int | None
    curve: PowerCurve = field(default_factory=StraightLine)
    share_within_limit: Mapping[str, float] = field(default_factory=dict)
    excluded: str = ""

    def key(self, figure: str, workload: str | None = None) -> str:
        """Key of one of its figures."""
        return figure_key(self.name, figure, workload)

    def rate(self, workload: str, numbers: Numbers) -> FloatArray:
        """Rate (1/s) at full load: (n,)."""
        return numbers[self.key("rate", workload)]

    def rate_within_limit(self, workload: str, numbers: Numbers) -> FloatArray:
        """Rate (1/s) that keeps the latency limit: (n,)."""
        return self.share_within_limit.get(workload, 1.0) * self.rate(workload, numbers)

    def watts(self, load: FloatArray, workloads: list[str], numbers: Numbers) -> FloatArray:
        """Watts of one server.

        Parameters
        ----------
        load : (workloads, n, …) float array
            Part of the server's time that each workload takes; together at most 1.
        workloads : list of str
        numbers : Numbers
            Of n cases.

        Returns
        -------
        (n, …) float array
            idle + s(u)·(full − idle) with u the load of all, s the shape of the curve (0 to 1) and
            full the mean of the workloads' full-load watts by their load; and what is drawn beside.
        """
        axes = (...,) + (None,) * (load.ndim - 2)
        full = np.stack([numbers[self.key("power", w)][axes] for w in workloads])
        total = load.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(total > 0, (load * full).sum(axis=0) / total, full.mean(axis=0))
        idle = numbers[self.key("idle_power")][axes]
        made: FloatArray = idle + self._shape(total) * (mean - idle)
        return made + self.beside(numbers)[axes]

    def full_watts(self, workloads: list[str], numbers: Numbers) -> FloatArray:
        """Highest watts at full load, over the workloads: (n,)."""
        full = [numbers[self.key("power", w)] for w in workloads]
        highest: FloatArray = np.max(full, axis=0) + self.beside(numbers)
        return highest

    def beside(self, numbers: Numbers) -> FloatArray:
        """Watts drawn all the time beside what the others are of: (n,)."""
        key = self.key("beside_power")
        return numbers[key] if key in numbers else np.zeros(numbers.n)

    def _shape(self, load: FloatArray) -> FloatArray:
        idle, full = self.curve.watts(np.array([0.0, 1.0]))
        at = self.curve.watts(np.clip(load, 0.0, 1.0).ravel()).reshape(load.shape)
        shape: FloatArray = (at - idle) / (full - idle)
        return shape
