"""Where the answer turns: the value of one figure at which two candidates cost the same.

Most figures enter the cost as a straight line (a price, the PUE): two evaluations give the
difference d(x) = d₀ + s·x, so that every draw has its own tie x* = −d₀/s. The demand, the years and
what else makes whole servers come and go do not; there the sign of the difference is followed along
a range, with all else at its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.procurement.sensitivities import YEARS, YEARS_WORDS, movable
from ppw.ties import NO_TIE, Tie, tie_of

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray
    from ppw.procurement.inputs import Input, Inputs, Numbers
    from ppw.procurement.model import Model

# How far from its value a figure is looked at.
_FACTOR = 10.0
_STEPS = 121
_ZOOMS = 4
_MOST_YEARS = 15
# Where a line is held against the cost: wide enough for whole servers to come and go.
_PROBES = np.array([0.01, 0.3, 1.0, 30.0])
_STRAIGHT = 1e-9
COST, PER_DOLLAR = "total cost", "performance per price"


@dataclass(frozen=True, eq=False)
class Crossovers:
    """Ties of the cheapest candidate with one rival.

    Attributes
    ----------
    model : Model
        Of these two candidates, the cheapest first.
    inputs : Inputs
    drawn : Numbers
        Joint draws of all figures.
    level : float
    """

    model: Model
    inputs: Inputs
    drawn: Numbers
    level: float

    def rows(self) -> list[dict[str, Any]]:
        """One row a figure that has a tie, the nearest to its value first.

        Returns
        -------
        list of dict
            ``rival``, ``criterion``, ``key``, ``what``, ``unit``, ``now``, ``value`` with ``lower``
            and ``upper`` (NaN where the range was followed at the values alone, or where nothing
            else is uncertain), ``p_tie`` (NaN where it was followed), and
            ``beyond``, who is the better one on the far side of it.
        """
        made = [self._cost_row(figure) for figure in movable(self.inputs)]
        made += [self._years(), self._per_dollar()]
        rows = [row for row in made if row is not None]
        return sorted(rows, key=lambda row: abs(row["value"] / row["now"] - 1))

    def _cost_row(self, figure: Input) -> dict[str, Any] | None:
        line = self._straight(figure)
        if line is None:
            tie = self._followed(figure)
        else:
            tie = tie_of(_near(figure, -line[0] / line[1]), self.level)
        return self._row(COST, figure, tie, self._names()[1])

    def _straight(self, figure: Input) -> tuple[FloatArray, FloatArray] | None:
        """Start and slope of the cost difference in every draw; None for no straight line."""
        at = figure.value * _PROBES
        central = self.inputs.central().repeated(len(at)).replaced({figure.key: at})
        costs = self.model.tco(central)
        apart = costs[1] - costs[0]
        slope = (apart[2] - apart[0]) / (at[2] - at[0]) if at[2] else 0.0
        off = np.abs(apart - apart[0] - slope * (at - at[0])).max()
        if slope == 0 or not off <= _STRAIGHT * np.abs(costs).max():
            return None
        start, end = (self._apart(self.drawn.replaced({figure.key: x})) for x in (at[0], at[2]))
        slopes = (end - start) / (at[2] - at[0])
        slopes = np.where(slopes == 0, np.nan, slopes)
        return start - slopes * at[0], slopes

    def _followed(self, figure: Input) -> Tie:
        """Nearest change of sign along a range of the figure."""
        if figure.value <= 0:
            return NO_TIE
        grid = figure.value * np.geomspace(1 / _FACTOR, _FACTOR, _STEPS)
        grid = grid[(grid >= figure.least) & (grid <= figure.most)]
        near = figure.value
        for _ in range(_ZOOMS):
            sign = self._ahead(figure, grid)
            turns = np.flatnonzero(sign[1:] != sign[:-1])
            if not len(turns):
                return NO_TIE
            nearest = turns[np.argmin(np.abs(np.log(grid[turns] / near)))]
            near = grid[nearest]
            grid = np.geomspace(near, grid[nearest + 1], _STEPS)
        return Tie(float(np.sqrt(grid[0] * grid[-1])), np.nan, np.nan, np.nan)

    def _ahead(self, figure: Input, at: FloatArray) -> FloatArray:
        """Sign of the rival's cost less the cheapest one's, by value of a figure."""
        central = self.inputs.central().repeated(len(at))
        sign: FloatArray = np.sign(self._apart(central.replaced({figure.key: at})))
        return sign

    def _years(self) -> dict[str, Any] | None:
        """Nearest number of whole years at which the rival is the cheaper one."""
        central, now = self.inputs.central(), self.model.scenario.years
        for years in sorted(range(1, _MOST_YEARS + 1), key=lambda y: abs(y - now)):
            costs = self.model.tco(central, years)[:, 0]
            if costs[1] < costs[0]:
                tie = Tie(float(years), np.nan, np.nan, np.nan)
                place = YEARS, YEARS_WORDS, "1", float(now)
                return self._said(COST, place, tie, self._names()[1])
        return None

    def _per_dollar(self) -> dict[str, Any] | None:
        """Price of the cheapest at which both give the same rate for their price."""
        one, other = self.model.outcomes(self.drawn)
        tie = tie_of(other.price * one.rate / other.rate, self.level)
        cheapest, rival = self._names()
        figure = self.inputs[self.model.servers[0].key("price")]
        # Dearer than at the tie, it gives less for its price.
        return self._row(PER_DOLLAR, figure, tie, rival if tie.value > figure.value else cheapest)

    def _apart(self, numbers: Numbers) -> FloatArray:
        costs = self.model.tco(numbers)
        apart: FloatArray = costs[1] - costs[0]
        return apart

    def _names(self) -> tuple[str, str]:
        return self.model.servers[0].name, self.model.servers[1].name

    def _row(self, criterion: str, figure: Input, tie: Tie, beyond: str) -> dict[str, Any] | None:
        if np.isnan(tie.value):
            return None
        if np.isclose(tie.lower, tie.upper, rtol=_STRAIGHT, atol=0):
            # Nothing else in it is uncertain.
            tie = tie._replace(lower=np.nan, upper=np.nan)
        place = figure.key, figure.words, figure.unit, figure.value
        return self._said(criterion, place, tie, beyond)

    def _said(
        self, criterion: str, place: tuple[str, str, str, float], tie: Tie, beyond: str
    ) -> dict[str, Any]:
        key, what, unit, now = place
        return {
            "rival": self._names()[1],
            "criterion": criterion,
            "key": key,
            "what": what,
            "unit": unit,
            "now": now,
            **tie._asdict(),
            "beyond": beyond,
        }


def _near(figure: Input, ties: FloatArray) -> FloatArray:
    """Ties that the figure could be at, not too far from what it is; NaN for the others."""
    with np.errstate(invalid="ignore", divide="ignore"):
        times = ties / figure.value
        possible = (ties >= figure.least) & (ties <= figure.most)
        possible &= (times >= 1 / _FACTOR) & (times <= _FACTOR)
    return np.where(possible, ties, np.nan)
