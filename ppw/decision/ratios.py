"""Two matched groups against each other: ratios of their metrics and where they tie, in draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.steps import SAME_STEP
from ppw.decision.objectives import OBJECTIVES, Rates, log_cost, unit_of
from ppw.errors import PpwError
from ppw.projection.answers import POWER, CurveDraws
from ppw.results.text import shown
from ppw.runs.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ppw.runs.prepare import Prepared

    Mask = NDArray[np.bool_]

    from fitting.regression.lines import FloatArray


# Where two sides tie: the frequency of A, the electricity price and A's own price, in draws.
#
# Cost of a unit of work: C = price·T/L + e·E, with lifetime L (s), electricity e (currency a J),
# and E = P·T. Equal costs give e* = (price_B·T_B − price_A·T_A)/(L·(E_A − E_B)) and price_A* =
# (price_B·T_B + L·e·(E_B − E_A))/T_A; without electricity price_A*/price_B is the speed-up T_B/T_A
# (Issa & Figueira 2012, https://doi.org/10.1186/2192-113X-1-10).


class Tie(NamedTuple):
    """Where the sides tie: median and interval over the draws that tie, and their share.

    ``value`` and its ends are NaN where fewer than half of the draws tie.
    """

    value: float
    lower: float
    upper: float
    p_tie: float


NO_TIE = Tie(np.nan, np.nan, np.nan, 0.0)


def tie_of(draws: FloatArray, level: float) -> Tie:
    """Summarise the ties of the draws; NaN stands for a draw without one."""
    there = draws[~np.isnan(draws)]
    share = len(there) / len(draws)
    if share < 0.5:
        return NO_TIE._replace(p_tie=share)
    value, lower, upper = np.quantile(there, [0.5, 0.5 - level / 2, 0.5 + level / 2])
    return Tie(float(value), float(lower), float(upper), share)


def crossing(frequency: FloatArray, apart: FloatArray, near: float) -> FloatArray:
    """Frequency (Hz) of each draw at which a difference changes its sign.

    Parameters
    ----------
    frequency : (k,) float array
        Hz, rising.
    apart : (draws, k) float array
        Difference of logarithms, taken as straight in ln f between the frequencies.
    near : float
        Hz; of several crossings the nearest to it counts.

    Returns
    -------
    (draws,) float array
        NaN where the sign never changes.
    """
    x = np.log(frequency)
    left, right = apart[:, :-1], apart[:, 1:]
    crosses = (left > 0) != (right > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(crosses, x[:-1] + np.diff(x) * left / (left - right), np.inf)
    nearest = np.argmin(np.abs(at - np.log(near)), axis=1)
    found = np.take_along_axis(at, nearest[:, None], 1)[:, 0]
    made: FloatArray = np.where(np.isinf(found), np.nan, np.exp(found))
    return made


def electricity_tie(
    time: tuple[FloatArray, FloatArray],
    energy: tuple[FloatArray, FloatArray],
    price: tuple[float, float],
    lifetime_s: float,
) -> FloatArray:
    """Electricity price (currency a J) of each draw at which A and B cost the same; NaN for none.

    ``time`` (s), ``energy`` (J) and ``price`` are of A and B; one draw an element.
    """
    saved = (price[1] * time[1] - price[0] * time[0]) / lifetime_s
    with np.errstate(divide="ignore", invalid="ignore"):
        tie = saved / (energy[0] - energy[1])
    made: FloatArray = np.where((tie > 0) & np.isfinite(tie), tie, np.nan)
    return made


def price_tie(
    time: tuple[FloatArray, FloatArray],
    energy: tuple[FloatArray, FloatArray] | None,
    price_b: float,
    paid: float,
) -> FloatArray:
    """Price of A of each draw at which A and B cost the same; NaN where not even for nothing.

    ``paid`` is what a watt costs over the lifetime, L·e (currency a W); ``energy`` may be None
    where it is 0.
    """
    budget = price_b * time[1]
    if energy is not None:
        budget = budget + paid * (energy[1] - energy[0])
    tie = budget / time[0]
    return np.where(tie > 0, tie, np.nan)


# Probabilities of A being better between which nothing is decided.
UNDECIDED = (0.05, 0.95)
_GRID = 60
_PER_PRICE = OBJECTIVES["perf_per_dollar"]

# Logarithm of each metric as a sum: time-like quantity with its power, and the power of the watts.
_SUMS: dict[str, tuple[str, int, int]] = {
    "time": ("time", 1, 0),
    "throughput": ("throughput", -1, 0),
    "power": ("", 0, 1),
    "energy": ("time", 1, 1),
    "perf_per_watt": ("performance", -1, -1),
}
LESS_IS_BETTER = ("time", "power", "energy")


class Drawn(NamedTuple):
    """Draws of one side: ln(time-like) by name, ln(watts) or None; (draws, frequencies) each."""

    times: Mapping[str, FloatArray]
    power: FloatArray | None

    def at(self, column: int) -> Drawn:
        """Draws at one frequency: (draws,)."""
        times = {name: t[..., column] for name, t in self.times.items()}
        return Drawn(times, None if self.power is None else self.power[..., column])

    def work(self) -> FloatArray:
        """ln(seconds a unit of work)."""
        return next(iter(self.times.values()))

    def energy(self) -> FloatArray | None:
        """ln(joules a unit of work); None without watts."""
        return None if self.power is None else self.work() + self.power

    def only(self, which: str) -> Drawn:
        """All but one quantity, "time" or "power", held at its median."""
        times, power = self.times, self.power
        if which == POWER:
            times = {name: np.full_like(t, np.median(t)) for name, t in times.items()}
        elif power is not None:
            power = np.full_like(power, np.median(power))
        return Drawn(times, power)


class Side(NamedTuple):
    """One side of a duel: its group, frequency (Hz), price (NaN if not known), and draws there."""

    name: str
    group: int
    frequency: float
    price: float
    drawn: Drawn


@dataclass(frozen=True)
class Duel:
    """A pair of groups at their frequencies.

    Attributes
    ----------
    a, b : Side
    grid : (k,) float array
        Frequencies of A (Hz) from its lowest to its highest step; empty for one without a curve.
    over : Drawn
        Draws of A over ``grid``.
    rates : Rates
    lifetime_hours : float or None
    level : float
    measured : callable
        Tells whether a side was measured at its frequency.
    """

    a: Side
    b: Side
    grid: FloatArray
    over: Drawn
    rates: Rates
    lifetime_hours: float | None
    level: float
    measured: Mapping[str, bool]

    def log_metric(self, metric: str, drawn: Drawn, price: float) -> FloatArray:
        """Logarithm of a metric in draws."""
        if metric == "perf_per_dollar":
            return -log_cost(_PER_PRICE, drawn.work(), drawn.power, price, self.rates)
        name, times, watts = _SUMS[metric]
        made = np.zeros_like(drawn.work())
        if times:
            made = made + times * drawn.times[name]
        if watts and drawn.power is not None:
            made = made + watts * drawn.power
        return made

    def ratio(self, metric: str) -> dict[str, Any]:
        """Row of the comparison's table for one metric."""
        sides = [self.log_metric(metric, s.drawn, s.price) for s in (self.a, self.b)]
        apart = sides[0] - sides[1]
        ends = [0.5, 0.5 - self.level / 2, 0.5 + self.level / 2]
        ratio, lower, upper = np.exp(np.quantile(apart, ends))
        wins = float((apart < 0 if metric in LESS_IS_BETTER else apart > 0).mean())
        tie = self._crossing(metric, sides[1])
        open_ = UNDECIDED[0] < wins < UNDECIDED[1]
        return {
            "metric": metric,
            "a_hz": self.a.frequency,
            "b_hz": self.b.frequency,
            "a": float(np.exp(np.median(sides[0]))),
            "b": float(np.exp(np.median(sides[1]))),
            "ratio": ratio,
            "lower": lower,
            "upper": upper,
            "p_a_better": wins,
            "better": "undecided" if open_ else "A" if wins > 0.5 else "B",
            "tie_hz": tie.value,
            "tie_lower_hz": tie.lower,
            "tie_upper_hz": tie.upper,
            "p_tie": tie.p_tie,
            "measure_next": self.measure_next(metric) if open_ else "",
        }

    def _crossing(self, metric: str, other: FloatArray) -> Tie:
        if not self.grid.size:
            return NO_TIE
        apart = self.log_metric(metric, self.over, self.a.price) - other[:, None]
        return tie_of(crossing(self.grid, apart, self.a.frequency), self.level)

    def measure_next(self, metric: str) -> str:
        """Name the measurement that would take most of the variance away."""
        parts = [
            (
                float(np.var(self.log_metric(metric, side.drawn.only(which), side.price))),
                which,
                side,
            )
            for side in (self.a, self.b)
            for which in (("time", POWER) if side.drawn.power is not None else ("time",))
        ]
        most, which, side = max(parts, key=lambda part: part[0])
        share = most / sum(part[0] for part in parts) if most > 0 else 0.0
        again = " again" if self.measured[side.name] else ""
        return (
            f"{which} of {side.name} at {shown(side.frequency, 'Hz')}{again} "
            f"({share:.0%} of the variance)"
        )

    def break_even(self) -> list[dict[str, Any]]:
        """Rows of the break-even table: the price of A and of electricity at which costs tie."""
        rows = [self._row("price of A", *self._price())]
        if self._can_pay():
            rows.append(self._row("electricity", *self._electricity()))
        return rows

    def _row(self, what: str, unit: str, draws: FloatArray) -> dict[str, Any]:
        tie = tie_of(draws, self.level)
        open_ = UNDECIDED[0] < tie.p_tie < UNDECIDED[1]
        # Whether there is a price that ties is a matter of who does the work for less energy.
        drawn = self.a.drawn
        by_energy = [m for m in ("perf_per_watt", "energy") if _SUMS[m][0] in drawn.times]
        metric = by_energy[0] if by_energy and drawn.power is not None else "perf_per_dollar"
        following = self.measure_next(metric) if open_ else ""
        return {"what": what, "unit": unit, **tie._asdict(), "measure_next": following}

    def _can_pay(self) -> bool:
        known = not np.isnan([self.a.price, self.b.price]).any()
        watts = self.a.drawn.power is not None and self.b.drawn.power is not None
        return known and watts and self.lifetime_hours is not None

    def _times(self) -> tuple[FloatArray, FloatArray]:
        return np.exp(self.a.drawn.work()), np.exp(self.b.drawn.work())

    def _energies(self) -> tuple[FloatArray, FloatArray] | None:
        a, b = self.a.drawn.energy(), self.b.drawn.energy()
        return None if a is None or b is None else (np.exp(a), np.exp(b))

    def _price(self) -> tuple[str, FloatArray]:
        """Price of A, in prices of B where that one is not known."""
        if np.isnan(self.b.price):
            return "prices of B", price_tie(self._times(), None, 1.0, 0.0)
        paid = 3600 * (self.lifetime_hours or 0.0) * self.rates.per_joule
        energies = self._energies() if paid else None
        return "currency", price_tie(self._times(), energies, self.b.price, paid)

    def _electricity(self) -> tuple[str, FloatArray]:
        energies = self._energies()
        if energies is None or self.lifetime_hours is None:
            raise PpwError("no watts: the electricity price at which costs tie takes power_w")
        prices = (self.a.price, self.b.price)
        a_joule = electricity_tie(self._times(), energies, prices, 3600 * self.lifetime_hours)
        return "currency per kWh", a_joule * 3.6e6


@dataclass(frozen=True)
class Duels:
    """How pairs of groups become duels.

    Attributes
    ----------
    curves : CurveDraws
    rates : Rates
    lifetime_hours : float or None
    level : float
    """

    curves: CurveDraws
    rates: Rates
    lifetime_hours: float | None
    level: float

    def of(self, pair: Pair, frequency: tuple[float, float], price: tuple[float, float]) -> Duel:
        """Draw a pair at the frequencies of A and B (Hz)."""
        # Each group is asked for the same frequencies whichever side it is on, so that B:A is
        # exactly the reciprocal of A:B; and a group against itself is one curve.
        grid, other = self._grid(pair.a), self._grid(pair.b)
        if pair.a == pair.b:
            over = self._drawn(pair.a, np.array([*grid, *frequency]))
            of_a, of_b = over.at(-2), over.at(-1)
        else:
            over = self._drawn(pair.a, np.array([*grid, frequency[0]]))
            of_a = over.at(-1)
            of_b = self._drawn(pair.b, np.array([*other, frequency[1]])).at(-1)
        cut = slice(0, len(grid))
        return Duel(
            Side("A", pair.a, frequency[0], price[0], of_a),
            Side("B", pair.b, frequency[1], price[1], of_b),
            grid,
            Drawn(
                {name: t[:, cut] for name, t in over.times.items()},
                None if over.power is None else over.power[:, cut],
            ),
            self.rates,
            self.lifetime_hours,
            self.level,
            {
                "A": self._measured(pair.a, frequency[0]),
                "B": self._measured(pair.b, frequency[1]),
            },
        )

    @property
    def times(self) -> Sequence[str]:
        """Names of what stands for time."""
        return [name for name in self.curves.known if name != POWER]

    def able(self, pair: Pair) -> bool:
        """Tell whether both groups were measured in all that is needed."""
        return all(self.curves.has(name, group) for name in self.curves.known for group in pair)

    def highest(self, group: int) -> float:
        """Highest measured frequency (Hz)."""
        return float(self.curves.steps(next(iter(self.curves.known)), group)[-1])

    def _grid(self, group: int) -> FloatArray:
        """Frequencies from the lowest to the highest step."""
        if not all(self.curves.is_curve(name, group) for name in self.curves.known):
            return np.empty(0)
        steps = self.curves.steps(next(iter(self.curves.known)), group)
        return np.geomspace(steps[0], steps[-1], _GRID)

    def _drawn(self, group: int, frequencies: FloatArray) -> Drawn:
        times = {name: self.curves.log_time(name, group, frequencies) for name in self.times}
        power = self.curves.log_power(group, frequencies) if POWER in self.curves.known else None
        return Drawn(times, power)

    def _measured(self, group: int, frequency: float) -> bool:
        steps = self.curves.steps(next(iter(self.curves.known)), group)
        return bool((np.abs(steps / frequency - 1) <= SAME_STEP).any())


def unit_of_price(rates: Rates) -> str:
    """Unit of perf_per_dollar."""
    return unit_of(_PER_PRICE, rates)


def duel_caveats(table: pd.DataFrame, duels: Sequence[Duel]) -> list[str]:
    """Say which sides a curve answers for, and how many comparisons are undecided."""
    caveats = []
    for side in "AB":
        count = sum(not duel.measured[side] for duel in duels)
        if count:
            caveats.append(
                f"{count} of {len(duels)} groups of {side} were not measured at the frequency "
                "compared: their curve answers"
            )
    undecided = int((table["better"] == "undecided").sum())
    if undecided:
        caveats.append(
            f"{undecided} of {len(table)} comparisons are undecided: neither side is better with "
            "95 % probability; under undecided is what to measure next"
        )
    return caveats


# The tables of a comparison: every pair drawn, its ratios and its ties by row.


def asked_range(prepared: Prepared, asked: Sequence[float | None]) -> tuple[Any, Any]:
    """Lowest and highest frequency (Hz) that each group may be asked for."""
    measured = prepared.runs["freq_hz"].groupby(prepared.groups.codes)
    low, high = measured.min().to_numpy(), measured.max().to_numpy()
    for frequency in asked:
        if frequency is not None:
            low, high = np.minimum(low, frequency), np.maximum(high, frequency)
    return low, high


def all_duels(
    duels: Duels,
    prepared: Prepared,
    pairs: Sequence[Pair],
    asked: Sequence[float | None],
    prices: Sequence[float],
) -> list[Duel]:
    """Draw every pair that was measured in all that is compared; NaN prices are the column's."""
    made = []
    for pair in pairs:
        if not duels.able(pair):
            continue
        at = [duels.highest(g) if f is None else f for g, f in zip(pair, asked, strict=True)]
        paid = [
            _price(prepared, g) if np.isnan(p) else p for g, p in zip(pair, prices, strict=True)
        ]
        made.append(duels.of(pair, (at[0], at[1]), (paid[0], paid[1])))
    if not made:
        raise PpwError("no pair of groups was measured in all that is compared: ask for fewer")
    return made


def _price(prepared: Prepared, group: int) -> float:
    """Mean of the column ``price`` over a group; NaN where not known."""
    if "price" not in prepared.runs:
        return float("nan")
    rows = prepared.groups.codes == group
    price = float(prepared.runs["price"].to_numpy(dtype=np.float64)[rows].mean())
    return price if price > 0 else float("nan")


def refuse_no_price(duels: Sequence[Duel]) -> None:
    """Raise `PpwError` where a side has no price."""
    for duel in duels:
        for side in (duel.a, duel.b):
            if np.isnan(side.price):
                raise PpwError(
                    f"no price of {side.name}: perf_per_dollar takes a column price above 0, or "
                    f"--price-{side.name.lower()}"
                )


def ratio_table(
    duels: Sequence[Duel],
    metrics: Sequence[str],
    prepared: Prepared,
    by: Sequence[str],
    rates: Rates,
) -> pd.DataFrame:
    """One row a pair and metric, as `ppw.decision.compare.Comparison.table`."""
    rows = [
        {**_named(prepared, by, duel), **duel.ratio(metric)} for duel in duels for metric in metrics
    ]
    units = {m: METRICS[m].unit for m in metrics} | {"perf_per_dollar": unit_of_price(rates)}
    table = pd.DataFrame(rows)
    table.insert(len(by) + 1, "unit", table["metric"].map(units))
    return table


def break_even_table(duels: Sequence[Duel], prepared: Prepared, by: Sequence[str]) -> pd.DataFrame:
    """One row a pair and kind of tie, as `ppw.decision.compare.Comparison.break_even`."""
    rows = [{**_named(prepared, by, duel), **row} for duel in duels for row in duel.break_even()]
    return pd.DataFrame(rows)


def _named(prepared: Prepared, by: Sequence[str], duel: Duel) -> dict[str, Any]:
    keys = prepared.groups.keys.iloc[duel.a.group]
    return {column: keys[column] for column in by}


class Pair(NamedTuple):
    """Groups of A and B that are each other's like."""

    a: int
    b: int
