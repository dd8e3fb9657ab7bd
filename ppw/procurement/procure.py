"""`procure`: which of several candidates to buy for a demand, what it costs, and how surely."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ppw.decision.ratios import NO_TIE, UNDECIDED, Tie, tie_of
from ppw.errors import PpwError
from ppw.procurement import cost_model as cm
from ppw.procurement.candidates import gather
from ppw.procurement.inputs import GIVEN, CaseValues, FloatArray, Input, Inputs
from ppw.procurement.result import Procurement
from ppw.procurement.scenario import SCALE, read_scenario, scenario_of
from ppw.projection.answers import FEWEST_DRAWS
from ppw.results import result as rs, text as tx

Mask = NDArray[np.bool_]


def share_best(values: FloatArray, fits: Mask, more_is_better: bool) -> FloatArray:
    """Share of the draws in which each candidate is the best: (candidates,).

    ``values`` and ``fits`` are (candidates, draws). Who does not fit is never the best, and those
    that tie share their draw. A draw with an unknown value (NaN) of one that fits tells nothing;
    NaN for all where no draw tells.
    """
    cost = -values if more_is_better else values
    known = ~(np.isnan(cost) & fits).any(axis=0) & fits.any(axis=0)
    if not known.any():
        return np.full(len(values), np.nan)
    cost = np.where(fits, cost, np.inf)[:, known]
    best = cost == cost.min(axis=0)
    return np.asarray((best / best.sum(axis=0)).mean(axis=1))


def on_front(costs: FloatArray, fits: Mask) -> Mask:
    """Tell in which draws no candidate that fits beats each: (candidates, draws).

    One beats another that is as good in all ``costs`` (criteria, candidates, draws), of which less
    is better, and better in one. ``fits`` (candidates, draws) tells who may be chosen.
    """
    one, other = costs[:, :, None], costs[:, None]
    as_good = (other <= one).all(axis=0)
    better = (other < one).any(axis=0)
    beaten = (as_good & better & fits[None]).any(axis=1)
    return fits & ~beaten


# How the answer moves with each figure: what changes who is cheapest, and what to learn next.


# How far a figure is moved that has neither draws nor a given range.
SWING = 0.2
# Kind of the range of a figure that the scenario does not give.
USUAL = "usual"
# Mean load of a day as a share of its peak, where no profile is given. Servers run mostly at 10 to
# 50 % of their capacity (Barroso & Hölzle 2007, https://doi.org/10.1109/MC.2007.443).
MEAN_LOADS = (0.3, 1.0)
# Draws over which a figure's effect is averaged.
_FEW_DRAWS = 200


def years_figure(years: int) -> Input:
    """Make the number of years that servers are kept a figure."""
    return Input(cm.YEARS, "years that servers are kept", "1", float(years), GIVEN)


def sensitivity_rows(evaluated: Evaluation, best: int, rival: int | None) -> list[dict[str, Any]]:
    """Move one figure after another, and draw the others: the widest swing comes first.

    A drawn figure is moved over its interval, one without a range by ±20 %, and one that is not
    given over the range that is usual. The difference is of the expected costs of the candidates
    ``best`` and ``rival``; without a rival it is the cost of the best. Rows are as
    `ppw.procurement.result` declares them.
    """
    model, years, rows = evaluated.model, evaluated.model.scenario.years, []
    for figure in movable_figures(evaluated.inputs):
        ends = ends_of(figure, evaluated.level)
        place = figure.key, figure.words, figure.unit, figure.value, *ends
        cases = [evaluated.few.with_values({figure.key: end}) for end in ends[:2]]
        rows.append((place, [evaluated.expected_at(case, model) for case in cases]))
    kept, around = years_figure(years), (max(years - 1, 1), years + 1)
    place = cm.YEARS, kept.words, "1", kept.value, float(around[0]), float(around[1]), "±1"
    rows.append((place, [evaluated.expected_at(evaluated.few, model, end) for end in around]))
    if all((w.profile == 1).all() for w in model.scenario.workloads):
        days = [model.with_mean_load(mean) for mean in MEAN_LOADS]
        place = cm.PROFILE, "mean load of the day", "1", 1.0, *MEAN_LOADS, USUAL
        rows.append((place, [evaluated.expected_at(evaluated.few, day) for day in days]))
    made = [_sensitivity_row(model, best, rival, place, np.array(c).T) for place, c in rows]
    least = _STRAIGHT * float(evaluated.costs[best].mean())
    # What moves nothing is no finding; the years always stand there.
    moves = [r for r in made if r["changes"] or r["key"] == cm.YEARS or _swing(r) > least]
    return sorted(moves, key=lambda row: -_swing(row))


def _swing(row: Mapping[str, Any]) -> float:
    """Width of the move of a row; infinite where a candidate does not fit at an end."""
    return float(np.nan_to_num(abs(row["apart_at_high"] - row["apart_at_low"]), nan=np.inf))


def _sensitivity_row(
    model: cm.Model, best: int, rival: int | None, place: Sequence[Any], costs: FloatArray
) -> dict[str, Any]:
    """Row of one figure: cheapest candidate and cost difference at each end; inf does not fit."""
    names = [server.name for server in model.servers]
    cheapest = [names[int(i)] for i in np.argmin(costs, axis=0)]
    with np.errstate(invalid="ignore"):
        apart = costs[best] if rival is None else costs[rival] - costs[best]
    apart = np.where(np.isfinite(apart), apart, np.nan)
    columns = "key", "what", "unit", "value", "low", "high", "range"
    return {
        **dict(zip(columns, place, strict=True)),
        "cheapest_at_low": cheapest[0],
        "cheapest_at_high": cheapest[1],
        "changes": set(cheapest) != {names[best]},
        **{f"apart_at_{end}": x for end, x in zip(("low", "high"), apart.tolist(), strict=True)},
    }


def movable_figures(inputs: Inputs) -> list[Input]:
    """Figures that sensitivity moves: those that are not 0, or have a range or a usual one.

    The demand as a whole is one of them where it is not one figure already; a workload's share in
    it is not, because the others would have to give way.
    """
    rates = [key for key in inputs if re.fullmatch(r"demand\.rate|workload\..*\.rate", key, re.S)]
    left_out = {SCALE.key} if len(rates) == 1 else set()
    left_out |= {key for key in inputs if re.fullmatch(r"workload\..*\.share", key, re.S)}
    movable = (f for key, f in inputs.items() if key not in left_out)
    return [f for f in movable if f.value != 0 or f.uncertain or f.usual]


def ends_of(figure: Input, level: float) -> tuple[float, float, str]:
    """Ends between which a figure is moved, and their kind: "drawn", "given", "usual", "±20%"."""
    if figure.draws is not None:
        low, high = np.quantile(figure.draws, [0.5 - level / 2, 0.5 + level / 2])
        if low < high:
            return float(low), float(high), "drawn"
    if figure.low < figure.high:
        return figure.low, figure.high, "given"
    if figure.usual:
        return *figure.usual, USUAL
    ends = sorted((figure.value * (1 - SWING), figure.value * (1 + SWING)))
    low, high = (float(np.clip(end, figure.least, figure.most)) for end in ends)
    return low, high, f"±{SWING:.0%}"


def learn_next(
    model: cm.Model, inputs: Inputs, best: int, rival: int, *, draws: int, seed: int
) -> list[tuple[str, float]]:
    """Rank uncertain figures by their share of the variance of the cost difference.

    One figure is drawn at a time, the others at their values; shares are of the sum.
    """
    parts = {}
    for figure in inputs.values():
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
_STEPS = 401
_STEPS_OF_ZOOM, _ZOOMS = 41, 6
_MOST_YEARS = 15
# Where a line is compared with the cost: wide enough for whole servers to come and go.
_PROBES = np.array([0.01, 0.3, 1.0, 30.0])
_STRAIGHT = 1e-9


@dataclass(frozen=True, eq=False)
class Crossovers:
    """Ties of the cheapest candidate with one rival."""

    # Of these two candidates, the cheapest first.
    model: cm.Model
    inputs: Inputs
    # Joint draws of all figures.
    draws: CaseValues
    level: float
    # Whether who does not fit the site loses; where nobody fits, room is assumed.
    bounded: bool

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the ties of all figures that have one, the nearest to its value first.

        ``lower`` and ``upper`` are NaN where the range was followed at the values alone, or where
        nothing else is uncertain; ``p_tie`` is NaN where it was followed.
        """
        first, rival = (server.name for server in self.model.servers)
        ties = [(cm.COST, f, self._cost_tie(f), rival) for f in movable_figures(self.inputs)]
        ties.append((cm.COST, years_figure(self.model.scenario.years), self._years_tie(), rival))
        if price := self.inputs.get(self.model.servers[0].key("price")):
            # Dearer than at the tie, where both give equal rate per price, the cheapest gives less.
            one, other = self.model.outcomes(self.draws)
            tie = tie_of(other.price * one.rate / other.rate, self.level)
            ties.append((cm.PER_DOLLAR, price, tie, rival if tie.value > price.value else first))
        rows = []
        for criterion, figure, tie, beyond in ties:
            if np.isclose(tie.lower, tie.upper, rtol=_STRAIGHT, atol=0):
                # Nothing else in it is uncertain.
                tie = tie._replace(lower=np.nan, upper=np.nan)
            row: dict[str, Any] = {"rival": rival, "criterion": criterion, "key": figure.key}
            row |= {"what": figure.words, "unit": figure.unit, "now": figure.value}
            rows.append({**row, **tie._asdict(), "beyond": beyond})
        found = [row for row in rows if not np.isnan(row["value"])]
        return sorted(found, key=lambda row: abs(row["value"] / row["now"] - 1))

    def _cost_tie(self, figure: Input) -> Tie:
        line = self._straight_line(figure)
        if line is None:
            return self._follow_range(figure)
        tie = tie_of(_reachable_ties(figure, -line[0] / line[1]), self.level)
        # The verdict turns where the expected costs are equal.
        (value,) = _reachable_ties(figure, -np.mean(line[0], keepdims=True) / np.mean(line[1]))
        if np.isnan(value) or np.isnan(tie.value):
            return NO_TIE
        inside = tie.lower <= value <= tie.upper
        ends = (tie.lower, tie.upper) if inside else (np.nan, np.nan)
        return Tie(float(value), *ends, tie.p_tie)

    def _straight_line(self, figure: Input) -> tuple[FloatArray, FloatArray] | None:
        """Intercept and slope of the cost difference by draw; None where it is not linear."""
        at = figure.value * _PROBES
        central = self.inputs.central().repeat(len(at)).with_values({figure.key: at})
        apart = self._apart(central)
        if not np.isfinite(apart).all():
            return None
        slope = (apart[2] - apart[0]) / (at[2] - at[0]) if at[2] else 0.0
        off = np.abs(apart - apart[0] - slope * (at - at[0])).max()
        if slope == 0 or not off <= _STRAIGHT * np.abs(self.model.tco(central)).max():
            return None
        costs = (self.model.tco(self.draws.with_values({figure.key: x})) for x in (at[0], at[2]))
        start, end = (cost[1] - cost[0] for cost in costs)
        slopes = (end - start) / (at[2] - at[0])
        slopes = np.where(slopes == 0, np.nan, slopes)
        return start - slopes * at[0], slopes

    def _follow_range(self, figure: Input) -> Tie:
        """Find the value nearest to the figure's at which the cost difference changes sign.

        None where the choice at the values of all figures is another than that by expectation.
        """
        if figure.value <= 0 or not self._apart(self.inputs.central())[0] >= 0:
            return NO_TIE
        grid = figure.value * np.geomspace(1 / _FACTOR, _FACTOR, _STEPS)
        grid = grid[(grid >= figure.least) & (grid <= figure.most)]
        near = figure.value
        for _ in range(_ZOOMS):
            central = self.inputs.central().repeat(len(grid))
            sign = np.sign(self._apart(central.with_values({figure.key: grid})))
            # Where neither fits there is no sign, and no turn.
            turns = np.flatnonzero((sign[1:] != sign[:-1]) & ~np.isnan(sign[1:] + sign[:-1]))
            if not len(turns):
                return NO_TIE
            nearest = turns[np.argmin(np.abs(np.log(grid[turns] / near)))]
            near = grid[nearest]
            grid = np.geomspace(near, grid[nearest + 1], _STEPS_OF_ZOOM)
        return Tie(float(np.sqrt(grid[0] * grid[-1])), np.nan, np.nan, np.nan)

    def _years_tie(self) -> Tie:
        """Find the nearest whole number of years for which the rival costs less, to a maximum."""
        central, now = self.inputs.central(), self.model.scenario.years
        if self._apart(central)[0] < 0:
            return NO_TIE
        every = sorted(range(1, _MOST_YEARS + 1), key=lambda years: abs(years - now))
        cheaper = (float(years) for years in every if self._apart(central, years)[0] < 0)
        return Tie(next(cheaper, np.nan), np.nan, np.nan, np.nan)

    def _apart(self, numbers: CaseValues, years: int | None = None) -> FloatArray:
        """Cost of the rival minus that of the cheapest; infinite where one does not fit."""
        costs, fits = self.model.tco_and_fits(numbers, years)
        with np.errstate(invalid="ignore"):
            cheapest, rival = np.where(fits | (not self.bounded), costs, np.inf)
            return np.asarray(rival - cheapest)


def _reachable_ties(figure: Input, ties: FloatArray) -> FloatArray:
    """Replace by NaN the ties outside a figure's bounds or too far from its value."""
    with np.errstate(invalid="ignore", divide="ignore"):
        times = ties / figure.value
        possible = (ties >= figure.least) & (ties <= figure.most)
        possible &= (times >= 1 / _FACTOR) & (times <= _FACTOR)
    return np.where(possible, ties, np.nan)


# The tables of the answer: parts that add up, and figures with their interval and probability.
#
# Money is rounded to the cent, energy and carbon to a tenth of a kWh and of a kg, part by part; a
# total is the sum of the rounded parts, so that every printed column adds up.
_TOTALS = {"tco": "tco", "energy": "total_kwh", "carbon": "total_kg"}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All candidates at the values of all figures, and in joint draws of them."""

    model: cm.Model
    inputs: Inputs
    drawn: CaseValues
    level: float

    @cached_property
    def central(self) -> list[cm.CandidateOutcome]:
        """Outcome of each candidate at the values of all figures."""
        return self.model.outcomes(self.inputs.central())

    @cached_property
    def few(self) -> CaseValues:
        """First draws, or the values alone where nothing is uncertain."""
        if not any(figure.uncertain for figure in self.inputs.values()):
            return self.inputs.central()
        few = min(_FEW_DRAWS, self.drawn.n)
        return CaseValues({k: v[:few] for k, v in self.drawn.items()}, few)

    @cached_property
    def costs(self) -> FloatArray:
        """Total cost in the joint draws: (candidates, draws)."""
        return np.stack([outcome.tco() for outcome in self.draws])

    @cached_property
    def _few_off(self) -> FloatArray:
        """Mean cost of all draws less that of the few: (candidates,)."""
        return np.asarray(self.costs.mean(axis=1) - self.model.tco(self.few).mean(axis=1))

    def expected_at(self, cases: CaseValues, model: cm.Model, years: int = 0) -> FloatArray:
        """Expected cost of each candidate in few draws; infinite where most of them do not fit."""
        costs, fits = model.tco_and_fits(cases, years)
        room = fits.mean(axis=1) >= 0.5
        return np.where(room | ~room.any(), costs.mean(axis=1) + self._few_off, np.inf)

    def expectation(self, first: int, rival: int | None) -> dict[str, float]:
        """Expected cost of the first, and what it saves against the rival, with its interval."""
        cost = self.costs.mean(axis=1)
        made = {"cost": float(cost[first])}
        if rival is not None:
            saving = self.costs[rival] - self.costs[first]
            made |= {"saving": float(saving.mean()), "share": float(1 - cost[first] / cost[rival])}
            if np.ptp(saving) > _STRAIGHT * abs(cost[first]):
                ends = self._interval_ends(saving)
                made |= dict(zip(("saving_lower", "saving_upper"), ends, strict=True))
        return made

    @cached_property
    def draws(self) -> list[cm.CandidateOutcome]:
        """Outcome of each candidate in the joint draws of the figures."""
        return self.model.outcomes(self.drawn)

    @property
    def names(self) -> list[str]:
        """Names of the candidates."""
        return [server.name for server in self.model.servers]

    def fits(self) -> Mask:
        """Mark the candidates that fit the site, at the values: (candidates,)."""
        return np.array([outcome.racks.fits[0] > 0 for outcome in self.central])

    def cheapest(self) -> list[int]:
        """Indices of candidates by expected cost; those that fit at the values come first."""
        costs = self.costs.mean(axis=1)
        fits = self.fits()
        return sorted(range(len(costs)), key=lambda i: (not fits[i], costs[i]))

    @cached_property
    def parts(self) -> dict[str, pd.DataFrame]:
        """Tables of cost, energy and carbon: a row a candidate, a column a part, and the total."""
        rows = {
            "tco": [{name: part[0] for name, part in o.money.items()} for o in self.central],
            "energy": [
                {f"{name}_kwh": part.sum() for name, part in o.energy._asdict().items()}
                for o in self.central
            ],
            "carbon": [
                {"use_kg": o.carbon.use.sum(), "embodied_kg": o.carbon.embodied[0]}
                for o in self.central
            ],
        }
        return {figure: self._table_with_total(of_one, figure) for figure, of_one in rows.items()}

    def _table_with_total(self, rows: Sequence[Mapping[str, float]], figure: str) -> pd.DataFrame:
        decimals = cm.FIGURES[figure].decimals or 0
        # What is 0 less a share of nothing is 0.
        parts = pd.DataFrame(rows).astype(float).round(decimals) + 0.0
        sums = parts.sum(axis=1, skipna=False).round(decimals)
        table = parts.assign(**{_TOTALS[figure]: sums})
        table.insert(0, "candidate", self.names)
        return table

    def figures(self, units: Mapping[str, str]) -> pd.DataFrame:
        """Tabulate one row a candidate and figure, as `ppw.procurement.result` declares it."""
        totals = {f: self.parts[f][column].to_numpy() for f, column in _TOTALS.items()}
        fits = self._fits_mask_by_draw()
        central, drawn = ([o.figures() for o in some] for some in (self.central, self.draws))
        rows = []
        for figure, compared in cm.FIGURES.items():
            draws = np.stack([d[figure] for d in drawn])
            if np.isnan(draws).all():
                continue
            shares = share_best(draws, fits, compared.more_is_better)
            for i, name in enumerate(self.names):
                value = totals[figure][i] if figure in totals else central[i][figure][0]
                # Draws that are all equal have no interval.
                differ = np.ptp(draws[i]) > 0
                ends = self._interval_ends(draws[i]) if differ else (np.nan, np.nan)
                rows.append((name, figure, units[figure], value, *ends, shares[i]))
        return pd.DataFrame(rows, columns=Procurement.tables[0].names)

    def candidates(self) -> pd.DataFrame:
        """Tabulate servers, racks and power: one row a candidate."""
        # Energy stands in for carbon where some candidate's carbon is not known.
        second = "carbon" if self.parts["carbon"]["total_kg"].notna().all() else "energy"
        drawn = [o.figures() for o in self.draws]
        # A figure that is not known is no merit.
        costs = np.stack([[d[figure] for d in drawn] for figure in ("tco", second)])
        costs = np.nan_to_num(costs, nan=np.inf)
        front = on_front(costs, self._fits_mask_by_draw()).mean(axis=1)
        rows = [self._candidate_row(i) | {"p_on_front": share} for i, share in enumerate(front)]
        return pd.DataFrame(rows)

    def _candidate_row(self, i: int) -> dict[str, Any]:
        one, many = self.central[i], self.draws[i]
        servers, racks = self._interval_ends(many.servers), self._interval_ends(many.racks.racks)
        of_pools = ("by_rate", "by_memory", "spare")
        return {
            "candidate": self.names[i],
            "servers": one.servers[0],
            "servers_lower": servers[0],
            "servers_upper": servers[1],
            **{name: sum(getattr(pool, name)[0] for pool in one.pools) for name in of_pools},
            "racks": one.racks.racks[0],
            "racks_lower": racks[0],
            "racks_upper": racks[1],
            "per_rack": one.racks.per_rack[0],
            "peak_power_w": one.racks.peak_power[0],
            "mean_load": one.mean_load()[0],
            "at_start": round(float(one.at_start[0]), 2),
            "fits": bool(one.racks.fits[0]),
            "p_fits": float(many.racks.fits.mean()),
            "why_not": one.racks.reason,
        }

    def _fits_mask_by_draw(self) -> Mask:
        return np.stack([o.racks.fits for o in self.draws]) > 0

    def _interval_ends(self, draws: FloatArray) -> tuple[float, float]:
        lower, upper = np.quantile(draws, [0.5 - self.level / 2, 0.5 + self.level / 2])
        return float(lower), float(upper)


def inputs_table(inputs: Inputs, level: float) -> pd.DataFrame:
    """Tabulate every figure: value, range or interval, who states it, and source."""
    rows = []
    for figure in inputs.values():
        *ends, kind = ends_of(figure, level)
        ends = ends if kind in ("drawn", "given") else [np.nan, np.nan]
        place = figure.key, figure.words, figure.unit, figure.value
        rows.append((*place, *ends, figure.label, figure.source))
    columns = ["key", "what", "unit", "value", "low", "high", "label", "source"]
    return pd.DataFrame(rows, columns=columns)


_NAMED = 2


def procure(
    scenario: str | Path | Mapping[str, Any],
    *,
    level: float = 0.90,
    draws: int = 2000,
    seed: int = 0,
) -> Procurement:
    """Answer a procurement scenario.

    All that is uncertain is drawn together: rates and watts of measured and projected candidates
    from the posteriors of their curves, given ranges as triangular distributions. Every candidate
    meets the same draw, so that what is common to them (electricity, the demand) makes none better.

    Parameters
    ----------
    scenario : path or mapping
        TOML file (docs/procurement.md), or a table with the same keys, whose files are looked for
        in the working directory.
    level : float
        Of the intervals.
    draws, seed : int
        Joint draws, 100 or more, and where chance starts.

    Returns
    -------
    Procurement
        The answer to a procurement scenario.

    Raises
    ------
    MeasurementError
        For runs that cannot be read.
    PpwError
        For a scenario that says what the schema does not allow, figures that are missing, or watts
        of different scope.
    """
    tx.as_share("interval level", level)
    if draws < FEWEST_DRAWS:
        raise PpwError(f"{draws} draws are too few: give {FEWEST_DRAWS} or more")
    if isinstance(scenario, Mapping):
        asked = scenario_of(scenario, source="scenario", folder=Path())
    else:
        asked = read_scenario(scenario)
    servers, inputs, remarks, digests = gather(asked, draws=draws, seed=seed)
    model = cm.Model(asked, servers)
    evaluated = Evaluation(model, inputs, inputs.draw(draws, seed), level)
    figures = evaluated.figures(_units(model))
    first, *others = evaluated.cheapest()
    fits = evaluated.fits()
    allowed = fits if fits.any() else np.ones_like(fits)
    rivals = [i for i in others if allowed[i]]
    runner_up = rivals[0] if rivals else None
    moves = sensitivity_rows(evaluated, first, runner_up)
    of_first = figures[figures["candidate"] == evaluated.names[first]].set_index("figure")
    undecided = bool(of_first["p_best"].to_dict()["tco"] < UNDECIDED[1])
    # What to learn next is asked where two candidates may each be the cheapest.
    variances = []
    if undecided and rivals:
        variances = learn_next(model, inputs, first, rivals[0], draws=draws, seed=seed)
    learn = [f"{words} ({share:.0%} of the variance)" for words, share in variances[:_NAMED]]
    caveats = [*remarks, *_answer_caveats(evaluated, undecided)]
    if not any(figure.uncertain for figure in inputs.values()):
        caveats.append(
            "every figure is one number without a range, so the probabilities mean nothing; give "
            "ranges as { value = …, low = …, high = … }, or runs"
        )
    rs.warn_caveats(caveats)
    return Procurement(
        title=asked.title,
        currency=asked.currency,
        years=asked.years,
        cheapest=evaluated.names[first],
        runner_up=None if runner_up is None else evaluated.names[runner_up],
        any_fits=bool(fits.any()),
        expected=evaluated.expectation(first, runner_up),
        figures=figures,
        candidates=evaluated.candidates(),
        costs=evaluated.parts["tco"],
        energy=evaluated.parts["energy"],
        carbon=evaluated.parts["carbon"],
        sensitivities=pd.DataFrame(moves),
        crossovers=_crossover_table(evaluated, first, rivals),
        inputs=inputs_table(inputs, level),
        learn_next=tuple(learn),
        level=level,
        draws=draws,
        seed=seed,
        caveats=tuple(caveats),
        input_digest=rs.numbers_digest(asked.raw, digests),
        basis=cm.Basis(model, inputs),
    )


def _units(model: cm.Model) -> dict[str, str]:
    """Name the unit of each figure."""
    money, unit = model.scenario.currency, model.one_unit
    rate, work = (f"{unit}/s", unit) if unit else ("of the demand", "years of the demand")
    return {
        "tco": money,
        "energy": "kWh",
        "carbon": "kg CO2e",
        "perf_per_watt": f"{unit}/J" if unit else "of the demand per W",
        "perf_per_dollar": f"{rate} per {money}",
        "work_per_cost": f"{work} per {money}",
    }


def _crossover_table(evaluated: Evaluation, first: int, rivals: list[int]) -> pd.DataFrame:
    rows, model, bounded = [], evaluated.model, bool(evaluated.fits().any())
    for rival in rivals:
        pair = cm.Model(model.scenario, [model.servers[first], model.servers[rival]])
        ties = Crossovers(pair, evaluated.inputs, evaluated.drawn, evaluated.level, bounded)
        rows += ties.rows()
    columns = ["rival", "criterion", "key", "what", "unit", "now"]
    columns += ["value", "lower", "upper", "p_tie", "beyond"]
    return pd.DataFrame(rows, columns=columns)


def _answer_caveats(evaluated: Evaluation, undecided: bool) -> list[str]:
    said = []
    for name, outcome in zip(evaluated.names, evaluated.central, strict=True):
        if outcome.racks.reason:
            said.append(f"{name} does not fit the site: {outcome.racks.reason}")
    if undecided and len(evaluated.names) > 1:
        said.append(
            "undecided: no candidate costs least with 95 % probability; the summary names the "
            "figures to find out next"
        )
    totals = evaluated.parts["carbon"]
    if totals["use_kg"].notna().any() and totals["total_kg"].isna().any():
        unknown = ", ".join(totals.loc[totals["embodied_kg"].isna(), "candidate"])
        said.append(
            f"the embodied carbon of {unknown} is not known, so its total carbon is not known, "
            "and ppw names no best candidate by carbon"
        )
    return said
