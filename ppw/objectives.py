"""What a frequency can be chosen for: energy, energy times delay, perf/W, time, work per price.

All are a cost to be least, in the time T and power P of a unit of work: P·T, P·T², P·T³, T, or
price·T/lifetime + electricity·P·T. With straight lines for T against 1/f and P against f each has a
closed form (`ppw.efficiency`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppw.arguments import as_number, as_positive
from ppw.efficiency import least_ed2p_frequency, least_edp_frequency, least_energy_frequency
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fitting.regression.lines import FloatArray

JOULES_PER_KWH = 3.6e6
# A power that a draw puts below idle counts as this share of itself: nothing is not logarithmic.
_LEAST_NET = 1e-6


class Objective(NamedTuple):
    """Cost P·T^``times``, or T times a price where ``times`` is 0; and its closed form."""

    words: str
    unit: str
    times: int
    more_is_better: bool
    on_lines: Callable[..., float]


OBJECTIVES: dict[str, Objective] = {
    "energy": Objective("least energy", "J/", 1, False, least_energy_frequency),
    "edp": Objective("least energy-delay product", "J·s", 2, False, least_edp_frequency),
    "ed2p": Objective("least energy-delay² product", "J·s²", 3, False, least_ed2p_frequency),
    "perf_per_watt": Objective("most performance per watt", "1/J", 1, True, least_energy_frequency),
    "time": Objective("least time", "s/", 0, False, least_energy_frequency),
    "perf_per_dollar": Objective(
        "most work per price", "1/s per price", 0, True, least_energy_frequency
    ),
}


class Rates(NamedTuple):
    """What is paid beside the watts of a job.

    Attributes
    ----------
    electricity : float or None
        Currency a kWh; None where energy is not part of the cost.
    lifetime_hours : float or None
        Hours of work that a host's price is spread over; None where only the price counts.
    idle_w : float
        Watts that are drawn without the job as well.
    """

    electricity: float | None = None
    lifetime_hours: float | None = None
    idle_w: float = 0.0

    @classmethod
    def checked(
        cls, electricity: float | None, lifetime_hours: float | None, idle_w: float = 0.0
    ) -> Rates:
        """Check the numbers. Electricity and lifetime come together, or neither."""
        if (electricity is None) != (lifetime_hours is None):
            raise PpwError(
                "--electricity (currency a kWh) and --lifetime go together: the one makes energy "
                "a cost, the other the price of a host"
            )
        if electricity is None or lifetime_hours is None:
            return cls(idle_w=idle_w)
        if as_number("electricity", electricity) < 0:
            raise PpwError(f"electricity {electricity!r} must be 0 or more (currency a kWh)")
        return cls(float(electricity), as_positive("lifetime (hours)", lifetime_hours), idle_w)

    @property
    def per_joule(self) -> float:
        """Electricity in currency a J."""
        return (self.electricity or 0.0) / JOULES_PER_KWH

    def per_second(self, price: float) -> float:
        """Share of a host's price that a second of work uses up, in currency."""
        return price / (3600 * self.lifetime_hours) if self.lifetime_hours else price

    def net(self, log_power: FloatArray) -> FloatArray:
        """Logarithm of the watts that count."""
        power = np.exp(log_power)
        made: FloatArray = np.log(np.maximum(power - self.idle_w, _LEAST_NET * power))
        return made


def log_cost(
    objective: Objective,
    log_time: FloatArray,
    log_power: FloatArray | None,
    price: float,
    rates: Rates,
) -> FloatArray:
    """Logarithm of the cost of a unit of work; that of its reciprocal is minus this.

    ``log_power`` may be None where watts do not count; ``price`` is used where ``times`` is 0.
    """
    if objective.times and log_power is not None:
        return rates.net(log_power) + objective.times * log_time
    if log_power is None or rates.electricity is None:
        return log_time + float(np.log(rates.per_second(price)))
    energy = rates.per_joule * np.exp(rates.net(log_power))
    made: FloatArray = log_time + np.log(rates.per_second(price) + energy)
    return made


def unit_of(objective: Objective, rates: Rates, work: str = "run") -> str:
    """Unit of the objective's value; ``work`` is what it is of: "run" or "op"."""
    if not objective.times and rates.electricity is not None:
        return "1 per price"
    return f"{objective.unit}{work}" if objective.unit.endswith("/") else objective.unit


def best_on_lines(
    objective: Objective,
    time: tuple[float, float],
    power: tuple[float, float] | None,
    price: float,
    rates: Rates,
    ends: tuple[float, float],
) -> float:
    """Frequency (Hz) of the closed form.

    Parameters
    ----------
    objective : Objective
    time : (t_fixed, w)
    power : (P0, s) or None
    price : float
    rates : Rates
    ends : (lowest, highest)
        Hz, where it is held.
    """
    if not objective.times and not rates.per_joule:
        return ends[1]
    if power is None or np.isnan([*time, *power]).any():
        return float("nan")
    static = power[0] - rates.idle_w
    if not objective.times:
        # A price by the second is like watts that the clock does not change.
        static += rates.per_second(price) / rates.per_joule
    return objective.on_lines(
        t_fixed_s=time[0],
        work_cycles=time[1],
        p0_w=static,
        slope_w_per_hz=power[1],
        lowest_hz=ends[0],
        highest_hz=ends[1],
    )
