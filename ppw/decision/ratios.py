"""Ratios of two matched groups and where their costs are equal, counted over draws of curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from ppw.decision import objectives as obj
from ppw.errors import PpwError
from ppw.projection.answers import POWER, CurveDraws
from ppw.results.text import shown
from ppw.runs.metrics import METRICS
from ppw.runs.prepare import PreparedRuns

# ln(seconds per unit of work) by name of the fit and ln(power in W) as POWER: (draws, …) each.
Draws = dict[str, obj.FloatArray]


# Where two sides tie: the frequency of A, the electricity price and A's own price, in draws.
#
# Cost of a unit of work: C = price·T/L + e·E, with lifetime L (s), electricity e (currency per J),
# and E = P·T. Equal costs give e* = (price_B·T_B − price_A·T_A)/(L·(E_A − E_B)) and price_A* =
# (price_B·T_B + L·e·(E_B − E_A))/T_A; without electricity price_A*/price_B is the speed-up T_B/T_A
# (Issa & Figueira 2012, https://doi.org/10.1186/2192-113X-1-10).
class Tie(NamedTuple):
    """Where A and B tie: median and interval (NaN below half of the draws); share that ties."""

    value: float
    lower: float
    upper: float
    p_tie: float


NO_TIE = Tie(np.nan, np.nan, np.nan, 0.0)


def tie_of(draws: obj.FloatArray, level: float) -> Tie:
    """Median, interval and share of the draws with a tie; NaN values where under half have one."""
    there = draws[~np.isnan(draws)]
    share = len(there) / len(draws)
    if share < 0.5:
        return NO_TIE._replace(p_tie=share)
    value, lower, upper = np.quantile(there, [0.5, 0.5 - level / 2, 0.5 + level / 2])
    return Tie(float(value), float(lower), float(upper), share)


def crossing(frequency: obj.FloatArray, apart: obj.FloatArray, near: float) -> obj.FloatArray:
    """Frequency (Hz) nearest to ``near`` at which each draw changes sign; NaN where none does.

    ``apart`` (draws, k) is a difference of logarithms at ``frequency`` (k,), rising, and is taken
    as straight in ln f between these. Of several crossings the nearest to ``near`` (Hz) counts.
    """
    x = np.log(frequency)
    left, right = apart[:, :-1], apart[:, 1:]
    crosses = (left > 0) != (right > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(crosses, x[:-1] + np.diff(x) * left / (left - right), np.inf)
    nearest = np.argmin(np.abs(at - np.log(near)), axis=1)
    found = np.take_along_axis(at, nearest[:, None], 1)[:, 0]
    return np.where(np.isinf(found), np.nan, np.exp(found))


def electricity_tie(
    time: Sequence[obj.FloatArray],
    energy: Sequence[obj.FloatArray],
    price: Sequence[float],
    lifetime_s: float,
) -> obj.FloatArray:
    """Electricity price (currency per J) at which A and B cost the same, by draw; else NaN."""
    saved = (price[1] * time[1] - price[0] * time[0]) / lifetime_s
    with np.errstate(divide="ignore", invalid="ignore"):
        tie = saved / (energy[0] - energy[1])
    return np.where((tie > 0) & np.isfinite(tie), tie, np.nan)


def price_tie(
    time: Sequence[obj.FloatArray], energy: Sequence[obj.FloatArray], price_b: float, paid: float
) -> obj.FloatArray:
    """Price of A at which A and B cost the same, by draw; NaN where it would not be above 0."""
    budget = price_b * time[1]
    if energy:
        budget = budget + paid * (energy[1] - energy[0])
    tie = budget / time[0]
    return np.where(tie > 0, tie, np.nan)


# Probabilities of A being better between which nothing is decided.
UNDECIDED = (0.05, 0.95)
_GRID = 60
_PER_PRICE = obj.OBJECTIVES["perf_per_dollar"]

# A metric is a product of powers of what was fitted: their exponents.
_EXPONENTS: dict[str, dict[str, int]] = {
    "time": {"time": 1},
    "throughput": {"throughput": -1},
    "power": {POWER: 1},
    "energy": {"time": 1, POWER: 1},
    "perf_per_watt": {"performance": -1, POWER: -1},
}
LESS_IS_BETTER = ("time", "power", "energy")


# Groups of A and B that did the same work.
Pair = tuple[int, int]


class Side(NamedTuple):
    """A or B of a pairwise comparison, at its frequency (Hz); the price is NaN if not known."""

    name: str
    group: int
    frequency: float
    price: float
    draws: Draws
    measured: bool  # whether there are runs at the frequency, or a curve answers alone


class Terms(NamedTuple):
    """What every pair is compared by: costs, lifetime (hours) and level of the intervals."""

    rates: obj.Rates
    lifetime_hours: float | None
    level: float


@dataclass(frozen=True)
class PairwiseComparison:
    """A pair of groups at their frequencies."""

    a: Side
    b: Side
    # Frequencies of A (Hz), (k,), from its lowest to its highest step; empty without a curve.
    grid: obj.FloatArray
    # Draws of A over ``grid``: (draws, k) each.
    over: Draws
    terms: Terms

    def log_metric(self, metric: str, draws: Draws, price: float) -> obj.FloatArray:
        """Logarithm of a metric in each draw, by the host's price where that counts."""
        if metric == "perf_per_dollar":
            time, rates = _log_time(draws), self.terms.rates
            return -obj.log_cost(_PER_PRICE, time, draws.get(POWER), price, rates)
        parts = [exponent * draws[name] for name, exponent in _EXPONENTS[metric].items()]
        return np.asarray(np.sum(parts, axis=0))

    def ratio(self, metric: str) -> dict[str, Any]:
        """Row of the comparison's table for one metric: values, ratio, interval and tie."""
        a, b = (self.log_metric(metric, s.draws, s.price) for s in (self.a, self.b))
        level = self.terms.level
        ratio, lower, upper = np.exp(np.quantile(a - b, [0.5, 0.5 - level / 2, 0.5 + level / 2]))
        wins = float((a < b if metric in LESS_IS_BETTER else a > b).mean())
        tie = NO_TIE
        if self.grid.size:
            apart = self.log_metric(metric, self.over, self.a.price) - b[:, None]
            tie = tie_of(crossing(self.grid, apart, self.a.frequency), level)
        undecided = UNDECIDED[0] < wins < UNDECIDED[1]
        priced = metric == "perf_per_dollar"
        return {
            "metric": metric,
            "unit": obj.unit_of(_PER_PRICE, self.terms.rates) if priced else METRICS[metric].unit,
            "a_hz": self.a.frequency,
            "b_hz": self.b.frequency,
            "a": float(np.exp(np.median(a))),
            "b": float(np.exp(np.median(b))),
            "ratio": ratio,
            "lower": lower,
            "upper": upper,
            "p_a_better": wins,
            "better": "undecided" if undecided else "A" if wins > 0.5 else "B",
            "tie_hz": tie.value,
            "tie_lower_hz": tie.lower,
            "tie_upper_hz": tie.upper,
            "p_tie": tie.p_tie,
            "measure_next": self.measure_next(metric) if undecided else "",
        }

    def measure_next(self, metric: str) -> str:
        """Name the measurement of A or B that causes most of the variance of a metric."""
        parts = []
        for side in (self.a, self.b):
            for which in ("time", POWER) if POWER in side.draws else ("time",):
                # The other quantities are held at their medians.
                held = {name for name in side.draws if (name == POWER) != (which == POWER)}
                medians = {n: np.full_like(d, np.median(d)) for n, d in side.draws.items()}
                only = {n: medians[n] if n in held else d for n, d in side.draws.items()}
                variance = float(np.var(self.log_metric(metric, only, side.price)))
                parts.append((variance, which, side))
        most, which, side = max(parts, key=lambda part: part[0])
        share = most / sum(part[0] for part in parts) if most > 0 else 0.0
        again = " again" if side.measured else ""
        return (
            f"{which} of {side.name} at {shown(side.frequency, 'Hz')}{again} "
            f"({share:.0%} of the variance)"
        )

    def break_even(self) -> list[dict[str, Any]]:
        """Rows of the break-even table: the price of A and of electricity at which costs tie."""
        sides, rates, lifetime = (self.a, self.b), self.terms.rates, self.terms.lifetime_hours
        times = [np.exp(_log_time(side.draws)) for side in sides]
        logs = [_log_time(s.draws) + s.draws[POWER] for s in sides if POWER in s.draws]
        energies, prices = [*map(np.exp, logs)], [side.price for side in sides]
        if np.isnan(prices[1]):
            # The price of A is then told in prices of B.
            rows = [self._tie_row("price of A", "prices of B", price_tie(times, [], 1.0, 0.0))]
        else:
            paid = 3600 * (lifetime or 0.0) * rates.per_joule
            draws = price_tie(times, energies if paid else [], prices[1], paid)
            rows = [self._tie_row("price of A", "currency", draws)]
        if lifetime is not None and energies and not np.isnan(prices).any():
            per_joule = electricity_tie(times, energies, prices, 3600 * lifetime)
            per_kwh = per_joule * obj.JOULES_PER_KWH
            rows.append(self._tie_row("electricity", "currency per kWh", per_kwh))
        return rows

    def _tie_row(self, what: str, unit: str, draws: obj.FloatArray) -> dict[str, Any]:
        tie = tie_of(draws, self.terms.level)
        undecided = UNDECIDED[0] < tie.p_tie < UNDECIDED[1]
        # Whether there is a price that ties is a matter of who does the work for less energy.
        by_energy = ("perf_per_watt", "energy")
        able = [m for m in by_energy if _EXPONENTS[m].keys() <= self.a.draws.keys()]
        following = self.measure_next([*able, "perf_per_dollar"][0]) if undecided else ""
        return {"what": what, "unit": unit, **tie._asdict(), "measure_next": following}


def _log_time(draws: Draws) -> obj.FloatArray:
    """Logarithm of the time per unit of work (s), by the first fit that is a time."""
    return next(of_one for name, of_one in draws.items() if name != POWER)


def compare_pair(
    curves: CurveDraws, pair: Pair, frequency: Sequence[float], price: Sequence[float], terms: Terms
) -> PairwiseComparison:
    """Draw two groups at a frequency (Hz) each, and A also along its frequencies."""
    # Each group is asked for the same frequencies whichever side it is on, so that B:A is
    # exactly the reciprocal of A:B; and a group against itself is one curve.
    grid, one_curve = _grid(curves, pair[0]), pair[0] == pair[1]
    over = _draw(curves, pair[0], [*grid, *(frequency if one_curve else frequency[:1])])
    other = over if one_curve else _draw(curves, pair[1], [*_grid(curves, pair[1]), frequency[1]])
    ends = _pick_columns(over, len(grid)), _pick_columns(other, -1)

    def is_measured(group: int, hz: float) -> bool:
        return bool((np.abs(_measured_steps(curves, group) / hz - 1) <= SAME_STEP).any())

    measured = map(is_measured, pair, frequency)
    a, b = map(Side, "AB", pair, frequency, price, ends, measured)
    return PairwiseComparison(a, b, grid, _pick_columns(over, slice(len(grid))), terms)


def _grid(curves: CurveDraws, group: int) -> obj.FloatArray:
    """Frequencies (Hz) from the lowest to the highest step; none for a group without curves."""
    if not all(curves.is_curve(name, group) for name in curves.known):
        return np.empty(0)
    steps = _measured_steps(curves, group)
    return np.geomspace(steps[0], steps[-1], _GRID)


def _measured_steps(curves: CurveDraws, group: int) -> obj.FloatArray:
    return curves.steps(next(iter(curves.known)), group)


def _draw(curves: CurveDraws, group: int, frequency: Sequence[float]) -> Draws:
    at = np.array(frequency)
    times = [name for name in curves.known if name != POWER]
    draws = {name: curves.log_time(name, group, at) for name in times}
    return draws | ({POWER: curves.log_power(group, at)} if POWER in curves.known else {})


def _pick_columns(draws: Draws, at: int | slice) -> Draws:
    return {name: of_one[:, at] for name, of_one in draws.items()}


def compare_pairs(
    curves: CurveDraws,
    prepared: PreparedRuns,
    pairs: Sequence[Pair],
    frequency: Sequence[float | None],
    prices: Sequence[float],
    terms: Terms,
) -> list[PairwiseComparison]:
    """Compare each pair that has all fits. Raises `PpwError` for none."""
    made, left = [], prepared.projected_steps
    for pair in pairs:
        if not all(curves.has(name, group) for name in curves.known for group in pair):
            continue
        top = {g: max([*_measured_steps(curves, g), *left.get(g, ())]) for g in pair}
        asked = [(g, hz) for g, hz in zip(pair, frequency, strict=True)]
        at = [float(top[g]) if hz is None else hz for g, hz in asked]
        # One frequency does not lead to another one, whose rows are all left out.
        lost = [g for g, hz in asked if hz is None and top[g] > _measured_steps(curves, g)[-1]]
        if not all(curves.is_curve(name, g) for g in lost for name in curves.known):
            continue
        paid = [
            obj.mean_price(prepared, group) if np.isnan(price) else price
            for group, price in zip(pair, prices, strict=True)
        ]
        made.append(compare_pair(curves, pair, at, [p if p > 0 else np.nan for p in paid], terms))
    if not made:
        raise PpwError(
            "no pair of groups has all the metrics that are compared: give fewer with --metric"
        )
    return made


def refuse_no_price(compared: Sequence[PairwiseComparison]) -> None:
    """Raise `PpwError` where A or B has no price."""
    for side in (side for one in compared for side in (one.a, one.b)):
        if np.isnan(side.price):
            raise PpwError(
                f"no price of {side.name}: perf_per_dollar takes a column price above 0, or "
                f"--price-{side.name.lower()}"
            )


def comparison_caveats(
    table: pd.DataFrame, compared: Sequence[PairwiseComparison], pairs: int
) -> list[str]:
    """Say which sides a curve answers for, how many ratios are undecided, which price lacks."""
    counts = {s: sum(not getattr(one, s.lower()).measured for one in compared) for s in "AB"}
    caveats = [
        f"{count} of {len(compared)} groups of {side} were not measured at the compared "
        "frequency: their values are read from the fitted curves"
        for side, count in counts.items()
        if count
    ]
    if alone := pairs - len(compared):
        caveats.append(
            f"{alone} of {pairs} pairs left out: the runs of a side do not determine the curves of "
            "all metrics to the compared frequency"
        )
    if undecided := int((table["better"] == "undecided").sum()):
        caveats.append(
            f"{undecided} of {len(table)} comparisons are undecided: neither side is better with "
            "95 % probability; the result lists under undecided what to measure next"
        )
    known = ~np.isnan([(one.a.price, one.b.price) for one in compared])
    caveats += [
        f"no price of {side}: performance per price is not compared; give --price-{side.lower()}"
        for side, own, other in (("A", *known.T), ("B", *known.T[::-1]))
        if (other & ~own).any()
    ]
    return caveats


def comparison_tables(
    compared: Sequence[PairwiseComparison],
    metrics: Sequence[str],
    prepared: PreparedRuns,
    by: Sequence[str],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ratios and break-evens, as the tables of `ppw.decision.compare.Comparison`."""
    ratios, break_evens = [], []
    for one in compared:
        of_group = prepared.groups.keys.iloc[one.a.group]
        keys = {column: of_group[column] for column in by}
        ratios += [{**keys, **one.ratio(metric)} for metric in metrics]
        break_evens += [{**keys, **row} for row in one.break_even()]
    return pd.DataFrame(ratios), pd.DataFrame(break_evens)
