"""Two matched groups against each other: ratios of their metrics and where they tie, in draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.bayes.steps import SAME_STEP
from ppw.curve_draws import POWER, CurveDraws
from ppw.errors import PpwError
from ppw.estimate import shown
from ppw.objectives import OBJECTIVES, log_cost, unit_of
from ppw.ties import NO_TIE, Tie, crossing, electricity_tie, price_tie, tie_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from fitting.regression.lines import FloatArray
    from ppw.objectives import Rates
    from ppw.sides import Pair

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
