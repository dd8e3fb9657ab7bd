"""Which candidate is the best, counted over joint draws, and which ones no other beats in all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.decision.ratios import NO_TIE, Tie, tie_of
from ppw.procurement.inputs import GIVEN, Input
from ppw.procurement.scenario import SCALE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray

    Mask = NDArray[np.bool_]
    from collections.abc import Sequence

    from ppw.procurement.cost_model import Model
    from ppw.procurement.inputs import CaseValues, Inputs


def share_best(values: FloatArray, fits: Mask, more_is_better: bool) -> FloatArray:
    """Count the share of the draws in which each candidate is the best.

    Parameters
    ----------
    values : (candidates, draws) float array
        NaN where it is not known; a draw with an unknown value of a candidate that fits is no draw.
    fits : (candidates, draws) bool array
        A candidate that does not fit is never the best.
    more_is_better : bool

    Returns
    -------
    (candidates,) float array
        Candidates that tie share their draw. NaN for all where no draw tells.
    """
    cost = -values if more_is_better else values
    known = ~(np.isnan(cost) & fits).any(axis=0) & fits.any(axis=0)
    if not known.any():
        return np.full(len(values), np.nan)
    cost = np.where(fits, cost, np.inf)[:, known]
    best = cost == cost.min(axis=0)
    made: FloatArray = (best / best.sum(axis=0)).mean(axis=1)
    return made


def on_front(costs: FloatArray, fits: Mask) -> Mask:
    """Tell which candidates no other one beats: none is as good in all costs and better in one.

    Parameters
    ----------
    costs : (criteria, candidates, draws) float array
        Less is better.
    fits : (candidates, draws) bool array

    Returns
    -------
    (candidates, draws) bool array
    """
    one, other = costs[:, :, None], costs[:, None]
    as_good = (other <= one).all(axis=0)
    better = (other < one).any(axis=0)
    beaten = (as_good & better & fits[None]).any(axis=1)
    return fits & ~beaten


# How the answer moves with each figure: what changes who is cheapest, and what to learn next.


# How far a figure is moved that has neither draws nor a given range.
SWING = 0.2
YEARS, YEARS_WORDS = "demand.years", "years that servers are kept"


def sensitivity_rows(
    model: Model, inputs: Inputs, fits: Mask, level: float, best: int, rival: int | None
) -> list[dict[str, Any]]:
    """Move one figure after another, with the others at their values.

    Parameters
    ----------
    model : Model
    inputs : Inputs
    fits : (candidates,) bool array
        Candidates that may be the answer.
    level : float
        Level of the interval that a drawn figure is moved over.
    best, rival : int
        Candidates whose difference is looked at; without a rival, the cost of the best.

    Returns
    -------
    list of dict
        One row a figure, the widest swing first, as `ppw.procurement.result` declares it.
    """
    central, years, rows = inputs.central(), model.scenario.years, []
    for figure in movable(inputs):
        low, high, kind = ends_of(figure, level)
        cases = central.repeat(2).with_values({figure.key: np.array([low, high])})
        place = figure.key, figure.words, figure.unit, figure.value, low, high, kind
        rows.append((place, model.tco(cases)))
    ends = max(years - 1, 1), years + 1
    place = YEARS, YEARS_WORDS, "1", float(years), float(ends[0]), float(ends[1]), "±1"
    rows.append((place, np.concatenate([model.tco(central, end) for end in ends], axis=1)))
    made = [_sensitivity(model, fits, best, rival, *row) for row in rows]
    # What moves nothing is no finding; the years always stand there.
    moves = [
        row
        for row in made
        if row["changes"] or row["apart_at_low"] != row["apart_at_high"] or row["key"] == YEARS
    ]
    return sorted(moves, key=lambda row: -abs(row["apart_at_high"] - row["apart_at_low"]))


def _sensitivity(
    model: Model, fits: Mask, best: int, rival: int | None, place: Sequence[Any], costs: FloatArray
) -> dict[str, Any]:
    """Say who is cheapest at the two ends of one figure, and how far apart the two are."""
    names = [server.name for server in model.servers]
    cheapest = [names[int(i)] for i in np.argmin(np.where(fits[:, None], costs, np.inf), axis=0)]
    apart = costs[best] if rival is None else costs[rival] - costs[best]
    columns = "key", "what", "unit", "value", "low", "high", "range"
    return {
        **dict(zip(columns, place, strict=True)),
        "cheapest_at_low": cheapest[0],
        "cheapest_at_high": cheapest[1],
        "changes": set(cheapest) != {names[best]},
        "apart_at_low": float(apart[0]),
        "apart_at_high": float(apart[1]),
    }


def movable(inputs: Inputs) -> list[Input]:
    """Choose the figures that can be moved: those that are not 0, or have a range.

    The demand as a whole is one of them where it is not one figure already; a workload's share in
    it is not, because the others would have to give way.
    """
    rates = [f.key for f in inputs if re.fullmatch(r"demand\.rate|workload\..*\.rate", f.key, re.S)]
    left_out = {SCALE.key} if len(rates) == 1 else set()
    return [
        f
        for f in inputs
        if (f.value != 0 or f.uncertain)
        and f.key not in left_out
        and not re.fullmatch(r"workload\..*\.share", f.key, re.S)
    ]


def ends_of(figure: Input, level: float) -> tuple[float, float, str]:
    """Choose the ends that a figure is moved between, and say what they are."""
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
    """Rank figures by their share of the variance of the cost difference.

    One figure is drawn at a time, the others at their values; shares are of the sum.
    """
    parts = {}
    for figure in inputs:
        if figure.uncertain:
            costs = model.tco(inputs.draw(draws, seed, only=figure.key))
            parts[figure.words] = float(np.var(costs[rival] - costs[best]))
    total = sum(parts.values())
    if not total > 0:
        return []
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return [(words, part / total) for words, part in ordered if part > 0]


# Where the answer turns: the value of one figure at which two candidates cost the same.
#
# Most figures enter the cost as a straight line (a price, the PUE): two evaluations give the
# difference d(x) = d₀ + s·x, so that every draw has its own tie x* = −d₀/s. The demand, the years
# and what else makes whole servers come and go do not; there the sign of the difference is followed
# along a range, with all else at its value.


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
    """Ties of the cheapest candidate with one rival."""

    # Of these two candidates, the cheapest first.
    model: Model
    inputs: Inputs
    # Joint draws of all figures.
    draws: CaseValues
    level: float

    def rows(self) -> list[dict[str, Any]]:
        """Find the tie of each figure that has one, the nearest to its value first.

        Returns
        -------
        list of dict
            As `ppw.procurement.result` declares it. ``lower`` and ``upper`` are NaN where the
            range was followed at the values alone, or where nothing else is uncertain; ``p_tie``
            is NaN where it was followed.
        """
        _, rival = self._names()
        ties = [(COST, f, self._cost_tie(f), rival) for f in movable(self.inputs)]
        ties += [self._years(), self._per_dollar()]
        rows = [self._row(*tie) for tie in ties if not np.isnan(tie[2].value)]
        return sorted(rows, key=lambda row: abs(row["value"] / row["now"] - 1))

    def _cost_tie(self, figure: Input) -> Tie:
        line = self._straight(figure)
        if line is None:
            return self._follow(figure)
        return tie_of(_near(figure, -line[0] / line[1]), self.level)

    def _straight(self, figure: Input) -> tuple[FloatArray, FloatArray] | None:
        """Find start and slope of the cost difference in every draw; None for no straight line."""
        at = figure.value * _PROBES
        central = self.inputs.central().repeat(len(at)).with_values({figure.key: at})
        costs = self.model.tco(central)
        apart = costs[1] - costs[0]
        slope = (apart[2] - apart[0]) / (at[2] - at[0]) if at[2] else 0.0
        off = np.abs(apart - apart[0] - slope * (at - at[0])).max()
        if slope == 0 or not off <= _STRAIGHT * np.abs(costs).max():
            return None
        start, end = (self._apart(self.draws.with_values({figure.key: x})) for x in (at[0], at[2]))
        slopes = (end - start) / (at[2] - at[0])
        slopes = np.where(slopes == 0, np.nan, slopes)
        return start - slopes * at[0], slopes

    def _follow(self, figure: Input) -> Tie:
        """Find the nearest change of sign along a range of the figure."""
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
        """Find the sign of the rival's cost less the cheapest one's, by value of a figure."""
        central = self.inputs.central().repeat(len(at))
        return np.sign(self._apart(central.with_values({figure.key: at})))

    def _years(self) -> tuple[str, Input, Tie, str]:
        """Find the nearest number of whole years at which the rival is the cheaper one."""
        central, now, tie = self.inputs.central(), self.model.scenario.years, NO_TIE
        for years in sorted(range(1, _MOST_YEARS + 1), key=lambda y: abs(y - now)):
            costs = self.model.tco(central, years)[:, 0]
            if costs[1] < costs[0]:
                tie = Tie(float(years), np.nan, np.nan, np.nan)
                break
        return COST, Input(YEARS, YEARS_WORDS, "1", float(now), GIVEN), tie, self._names()[1]

    def _per_dollar(self) -> tuple[str, Input, Tie, str]:
        """Find the price of the cheapest at which both give the same rate for their price."""
        one, other = self.model.outcomes(self.draws)
        tie = tie_of(other.price * one.rate / other.rate, self.level)
        cheapest, rival = self._names()
        figure = self.inputs[self.model.servers[0].key("price")]
        # Dearer than at the tie, it gives less for its price.
        return PER_DOLLAR, figure, tie, rival if tie.value > figure.value else cheapest

    def _apart(self, numbers: CaseValues) -> FloatArray:
        costs = self.model.tco(numbers)
        made: FloatArray = costs[1] - costs[0]
        return made

    def _names(self) -> tuple[str, str]:
        return self.model.servers[0].name, self.model.servers[1].name

    def _row(self, criterion: str, figure: Input, tie: Tie, beyond: str) -> dict[str, Any]:
        if np.isclose(tie.lower, tie.upper, rtol=_STRAIGHT, atol=0):
            # Nothing else in it is uncertain.
            tie = tie._replace(lower=np.nan, upper=np.nan)
        place = {"key": figure.key, "what": figure.words, "unit": figure.unit, "now": figure.value}
        rival = {"rival": self._names()[1], "criterion": criterion}
        return {**rival, **place, **tie._asdict(), "beyond": beyond}


def _near(figure: Input, ties: FloatArray) -> FloatArray:
    """Keep the ties that the figure could be at, not too far from its value; NaN for the others."""
    with np.errstate(invalid="ignore", divide="ignore"):
        times = ties / figure.value
        possible = (ties >= figure.least) & (ties <= figure.most)
        possible &= (times >= 1 / _FACTOR) & (times <= _FACTOR)
    return np.where(possible, ties, np.nan)
