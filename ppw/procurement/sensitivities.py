"""How the answer moves with each figure: what changes who is cheapest, and what to learn next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.procurement.scenario import SCALE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray
    from ppw.procurement.inputs import Input, Inputs
    from ppw.procurement.model import Model

    Mask = NDArray[np.bool_]

# How far a figure is moved that has neither draws nor a given range.
SWING = 0.2
YEARS, YEARS_WORDS = "demand.years", "years that servers are kept"


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """Moves one figure after another, with the others at their values.

    Attributes
    ----------
    model : Model
    inputs : Inputs
    fits : (candidates,) bool array
        Which candidates may be the answer.
    level : float
        Of the interval that a drawn figure is moved over.
    """

    model: Model
    inputs: Inputs
    fits: Mask
    level: float

    def rows(self, best: int, rival: int | None) -> list[dict[str, Any]]:
        """One row a figure, the widest swing first.

        Parameters
        ----------
        best, rival : int
            Candidates whose difference is looked at; without a rival, the cost of the best.

        Returns
        -------
        list of dict
            ``key``, ``what``, ``unit``, ``value``, ``low``, ``high``, ``range`` ("drawn", "given"
            or "±20%"), ``cheapest_at_low`` and ``cheapest_at_high`` (names), ``changes``,
            ``apart_at_low`` and ``apart_at_high`` (cost of the rival less that of the best).
        """
        made = [self._row(figure, best, rival) for figure in movable(self.inputs)]
        made.append(self._years(best, rival))
        rows = [row for row in made if row is not None]
        return sorted(rows, key=lambda row: -abs(row["apart_at_high"] - row["apart_at_low"]))

    def _row(self, figure: Input, best: int, rival: int | None) -> dict[str, Any] | None:
        low, high, kind = ends_of(figure, self.level)
        numbers = self.inputs.central().repeated(2).replaced({figure.key: np.array([low, high])})
        costs = self.model.tco(numbers)
        place = figure.key, figure.words, figure.unit, figure.value, low, high, kind
        row = self._said(place, costs, best, rival)
        # What moves nothing is no finding.
        return row if row["changes"] or row["apart_at_low"] != row["apart_at_high"] else None

    def _years(self, best: int, rival: int | None) -> dict[str, Any]:
        years = self.model.scenario.years
        ends = max(years - 1, 1), years + 1
        central = self.inputs.central()
        costs = np.concatenate([self.model.tco(central, end) for end in ends], axis=1)
        place = YEARS, YEARS_WORDS, "1", float(years), float(ends[0]), float(ends[1]), "±1"
        return self._said(place, costs, best, rival)

    def _said(
        self, place: Sequence[Any], costs: FloatArray, best: int, rival: int | None
    ) -> dict[str, Any]:
        names = [server.name for server in self.model.servers]
        allowed = np.where(self.fits[:, None], costs, np.inf)
        cheapest = [names[int(i)] for i in np.argmin(allowed, axis=0)]
        apart = costs[best] if rival is None else costs[rival] - costs[best]
        columns = "key", "what", "unit", "value", "low", "high", "range"
        return {
            **dict(zip(columns, place, strict=True)),
            "cheapest_at_low": cheapest[0],
            "cheapest_at_high": cheapest[1],
            "changes": bool(set(cheapest) != {names[best]}),
            "apart_at_low": float(apart[0]),
            "apart_at_high": float(apart[1]),
        }


def movable(inputs: Inputs) -> list[Input]:
    """Figures that can be moved: those that are not 0, or have a range.

    The demand as a whole is one of them where it is not one figure already; a workload's share in
    it is not, because the others would have to give way.
    """
    rates = [f.key for f in inputs if f.key == "demand.rate" or _is_demand(f.key)]
    left_out = {SCALE.key} if len(rates) == 1 else set()
    return [
        f
        for f in inputs
        if (f.value != 0 or f.uncertain)
        and f.key not in left_out
        and not (f.key.startswith("workload.") and f.key.endswith(".share"))
    ]


def _is_demand(key: str) -> bool:
    return key.startswith("workload.") and key.endswith(".rate")


def ends_of(figure: Input, level: float) -> tuple[float, float, str]:
    """Ends that a figure is moved between, and what they are."""
    if figure.draws is not None:
        low, high = np.quantile(figure.draws, [0.5 - level / 2, 0.5 + level / 2])
        if low < high:
            return float(low), float(high), "drawn"
    if figure.low < figure.high:
        return figure.low, figure.high, "given"
    ends = sorted((figure.value * (1 - SWING), figure.value * (1 + SWING)))
    low, high = (float(np.clip(end, figure.least, figure.most)) for end in ends)
    return low, high, f"±{SWING:.0%}"


def learn_next(
    model: Model, inputs: Inputs, best: int, rival: int, *, draws: int, seed: int
) -> list[tuple[str, float]]:
    """Figures by the share of the variance of the cost difference that is theirs, largest first.

    One figure is drawn at a time, the others at their values; shares are of the sum.
    """
    parts = {}
    for figure in inputs:
        if figure.uncertain:
            costs = model.tco(inputs.drawn(draws, seed, only=figure.key))
            parts[figure.words] = float(np.var(costs[rival] - costs[best]))
    total = sum(parts.values())
    if not total > 0:
        return []
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return [(words, part / total) for words, part in ordered if part > 0]
