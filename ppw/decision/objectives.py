"""What a frequency can be chosen for: energy, energy times delay, perf/W, time, work per price.

Each is a cost to be least, in the time T and power P of a unit of work: P·T, P·T², P·T³, T, or
price·T/lifetime + electricity·P·T. With straight lines for T against 1/f and P against f each has a
closed form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measurements.table.units import parse_frequency, parse_quantity
from ppw.catalogue.hosts import find_host, host_steps
from ppw.errors import PpwError, UnknownHostError
from ppw.results.text import as_frequencies, as_frequency, as_number, as_positive, shown
from ppw.runs.prepare import PreparedRuns

FloatArray = NDArray[np.float64]


# Performance per watt and per dollar, and the frequency at which energy, or EDP, is least.
#
# perf/W = work/(T·P), perf/$ = work/(T·cost); two machines compare as speed-up over power ratio and
# speed-up over cost ratio. Source: Issa & Figueira (2012), https://doi.org/10.1186/2192-113X-1-10.
def per_watt_ratio(speedup: float, power_ratio: float) -> float:
    """Ratio of the performance per watt of two machines, A to B: speed-up over power ratio."""
    return speedup / as_positive("power ratio", power_ratio)


def per_dollar_ratio(speedup: float, cost_ratio: float) -> float:
    """Ratio of the performance per dollar of two machines, A to B: speed-up over cost ratio."""
    return speedup / as_positive("cost ratio", cost_ratio)


def break_even_price_ratio(speedup: float) -> float:
    """Price ratio A to B at which both give the same performance per dollar: the speed-up."""
    return as_positive("speed-up", speedup)


def least_product_frequency(
    delays: int,
    *,
    t_fixed_s: float,
    work_cycles: float,
    p0_w: float,
    slope_w_per_hz: float,
    lowest_hz: float,
    highest_hz: float,
) -> float:
    """Frequency (Hz) of least P·T^(1 + n) for T = t_fixed + w/f and P = P0 + s·f.

    With n = 0 ``delays`` that is the least energy and the highest perf/W, with 1 the least
    energy-delay product, with 2 the least ED²P: the larger root of s·t_fixed·f² − n·w·s·f −
    (n + 1)·w·P0, held inside [``lowest_hz``, ``highest_hz``]. For energy that is
    sqrt(w·P0/(t_fixed·s)). With t_fixed = 0 or s ≤ 0 the product falls all the way up; without
    a root, as for energy with P0 ≤ 0, it rises all the way.
    """
    if t_fixed_s <= 0 or slope_w_per_hz <= 0:
        return highest_hz
    linear = delays * work_cycles * slope_w_per_hz
    curved = slope_w_per_hz * t_fixed_s
    under = linear**2 + 4 * (delays + 1) * curved * work_cycles * p0_w
    root = (linear + math.sqrt(under)) / (2 * curved) if under >= 0 else 0.0
    if root <= 0:
        return lowest_hz
    inside = min(max(root, lowest_hz), highest_hz)

    def power_delay_product(f: float) -> float:
        power, time = p0_w + slope_w_per_hz * f, t_fixed_s + work_cycles / f
        return float(power * time ** (1 + delays))

    # Power that vanishes at a frequency gives the product a second minimum, down there.
    return inside if p0_w >= 0 else min((lowest_hz, inside), key=power_delay_product)


JOULES_PER_KWH = 3.6e6
# A power that a draw puts below idle counts as this share of itself: nothing is not logarithmic.
_LEAST_NET = 1e-6


class Objective(NamedTuple):
    """Cost P·T^``times``, or T times a price where ``times`` is 0."""

    words: str
    unit: str
    times: int
    more_is_better: bool


ObjectiveName = Literal["energy", "edp", "ed2p", "perf_per_watt", "time", "perf_per_dollar"]
OBJECTIVES: dict[str, Objective] = {
    "energy": Objective("least energy", "J/", 1, False),
    "edp": Objective("least energy-delay product", "J·s", 2, False),
    "ed2p": Objective("least energy-delay² product", "J·s²", 3, False),
    "perf_per_watt": Objective("most performance per watt", "1/J", 1, True),
    "time": Objective("least time", "s/", 0, False),
    "perf_per_dollar": Objective("most work per price", "1/s per price", 0, True),
}


class Rates(NamedTuple):
    """Prices of energy and time, and the idle power that does not count."""

    electricity: float | None = None  # currency per kWh; None where energy is not part of the cost
    # Hours of work that a host's price is spread over; None where only the price counts.
    lifetime_hours: float | None = None
    idle_w: float = 0.0  # power (W) that is drawn without the job as well

    @classmethod
    def of(
        cls,
        electricity: float | None,
        lifetime_hours: float | None,
        idle_power: float | str | None = None,
    ) -> Rates:
        """Check electricity (currency per kWh) and lifetime, which go together, and idle power."""
        idle_w = 0.0 if idle_power is None else _number_in_si("idle power", idle_power, "w")
        if idle_w < 0:
            raise PpwError(f"idle power {idle_power!r} is negative: give 0 W or more")
        if (electricity is None) != (lifetime_hours is None):
            raise PpwError(
                "--electricity (currency per kWh) and --lifetime must be given together: "
                "--electricity gives the cost of energy, and --lifetime the cost of a host per hour"
            )
        if electricity is None or lifetime_hours is None:
            return cls(idle_w=idle_w)
        if as_number("electricity", electricity) < 0:
            raise PpwError(f"electricity {electricity!r} must be 0 or more (currency per kWh)")
        return cls(float(electricity), as_positive("lifetime (hours)", lifetime_hours), idle_w)

    @property
    def per_joule(self) -> float:
        """Electricity in currency per J."""
        return (self.electricity or 0.0) / JOULES_PER_KWH

    def per_second(self, price: float) -> float:
        """Price of a host per second of its lifetime; the price itself without a lifetime."""
        return price / (3600 * self.lifetime_hours) if self.lifetime_hours else price

    def net(self, log_power: FloatArray) -> FloatArray:
        """Logarithm of the power above idle, at least a small share of the power itself."""
        power = np.exp(log_power)
        return np.asarray(np.log(np.maximum(power - self.idle_w, _LEAST_NET * power)))


def log_cost(
    objective: Objective,
    log_time: FloatArray,
    log_power: FloatArray | None,
    price: float,
    rates: Rates,
) -> FloatArray:
    """Logarithm of the cost per unit of work; a merit is the reciprocal of a cost."""
    # Products of powers are sums of logarithms; only a price adds to energy.
    if objective.times and log_power is not None:
        return rates.net(log_power) + objective.times * log_time
    if log_power is None or rates.electricity is None:
        return log_time + float(np.log(rates.per_second(price)))
    energy = rates.per_joule * np.exp(rates.net(log_power))
    return np.asarray(log_time + np.log(rates.per_second(price) + energy))


def unit_of(objective: Objective, rates: Rates, work: str = "run") -> str:
    """Unit of the objective's value per unit of ``work``: "run" or "op"."""
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
    """Best frequency (Hz) within ``ends`` for T = t_fixed + w/f and P = P0 + s·f."""
    if not objective.times and not rates.per_joule:
        return ends[1]
    if power is None or np.isnan([*time, *power]).any():
        return float("nan")
    static = power[0] - rates.idle_w
    if not objective.times:
        # A price per second is like power that does not change with the frequency.
        static += rates.per_second(price) / rates.per_joule
    return least_product_frequency(
        max(objective.times - 1, 0),
        t_fixed_s=time[0],
        work_cycles=time[1],
        p0_w=static,
        slope_w_per_hz=power[1],
        lowest_hz=ends[0],
        highest_hz=ends[1],
    )


def mean_price(prepared: PreparedRuns, group: int) -> float:
    """Mean of the column ``price`` over a group; NaN where the runs have none."""
    if "price" not in prepared.runs:
        return float("nan")
    prices = prepared.runs["price"].to_numpy(dtype=np.float64)
    return float(prices[prepared.groups.codes == group].mean())


# Frequency steps to choose from: as asked for, or those of the runs and of the host catalogue.


# Makers print 2.93 GHz for 22·133.33 MHz: a catalogue step so near to a measured one is that one.
_SAME_AS_MEASURED = 5e-3
_MOST_STEPS = 1000


def as_steps(steps: str | Iterable[float | str], *, fewest: int = 2) -> FloatArray:
    """Read steps: several frequencies, "1.2GHz,1.8GHz", or a range "lowest:highest:step".

    Numbers are Hz. A range ends at its highest frequency or one step short of passing it.
    Returns Hz, rising, each once. Raises `PpwError` or `MeasurementError` for what is no frequency,
    a range that is not, or fewer than ``fewest`` different frequencies.
    """
    if not isinstance(steps, str):
        made = as_frequencies(steps)
    elif ":" in steps:
        made = _expand_frequency_range(steps)
    else:
        made = [parse_frequency(part.strip()) for part in steps.split(",")]
    if len(set(made)) < fewest:
        raise PpwError(f"steps {steps!r} hold only one frequency: give two or more")
    return np.unique(made)


def _expand_frequency_range(text: str) -> list[float]:
    parts = text.split(":")
    if len(parts) != 3:
        raise PpwError(f"steps {text!r} are not LOWEST:HIGHEST:STEP: 1.2GHz:2.4GHz:0.1GHz")
    low, high = (as_frequency(part.strip()) for part in parts[:2])
    step = as_positive("step", parse_quantity(parts[2], "hz"))
    if low > high:
        raise PpwError(f"steps {text!r}: the lowest frequency is above the highest")
    # Rounded, because 0.1 GHz has no exact binary form and the last step counts.
    # A step of 1e-320 Hz overflows.
    count = int(min(np.floor(round((high - low) / step, 6)), 1e18)) + 1
    if count > _MOST_STEPS:
        raise PpwError(f"steps {text!r} hold {count} frequencies: give {_MOST_STEPS} at most")
    return [low + step * i for i in range(count)]


def add_listed_steps(measured: FloatArray, listed: ArrayLike) -> FloatArray:
    """Measured steps (Hz), with those of ``listed`` that differ from all of them; rising."""
    more = np.asarray(listed, dtype=float)
    apart = np.abs(np.log(more[:, None] / measured)) > _SAME_AS_MEASURED
    return np.sort(np.concatenate([measured, more[apart.all(axis=1)]]))


def catalogue_steps(host: object) -> tuple[float, ...]:
    """Frequency steps (Hz) of a host by its catalogue name; () for a host that is not there."""
    try:
        return host_steps(find_host(host)) if isinstance(host, str) else ()
    except UnknownHostError:
        return ()


class Limits(NamedTuple):
    """A time in which a run must be done and a power to stay below; None where there is none."""

    deadline_s: float | None = None
    power_cap_w: float | None = None  # power (W) while the run lasts, idle power included
    level: float = 0.90  # probability with which a step has to keep to all
    max_slowdown: float | None = None  # share of time by which it may be slower than the fastest

    @classmethod
    def of(
        cls,
        deadline: float | str | None,
        power_cap: float | str | None,
        level: float,
        max_slowdown: float | None = None,
    ) -> Limits:
        """Read a deadline and a power cap, as "60s", "120W" or numbers in SI units above 0."""
        if max_slowdown is not None:
            as_positive("largest slowdown", max_slowdown)
        limits = ("deadline", deadline, "s"), ("power cap", power_cap, "w")
        deadline_s, power_cap_w = (
            None if amount is None else as_positive(name, _number_in_si(name, amount, unit))
            for name, amount, unit in limits
        )
        return cls(deadline_s, power_cap_w, level, max_slowdown)

    def __bool__(self) -> bool:
        """Whether there is one."""
        limits = self.deadline_s, self.power_cap_w, self.max_slowdown
        return any(limit is not None for limit in limits)

    def refuse_rates(self, work: str) -> None:
        """Raise `PpwError` for a deadline where ``work`` is "op": rates tell no time of a run."""
        if self.deadline_s is not None and work == "op":
            raise PpwError(
                "a deadline applies to the time of a run, but these runs have only throughput_ops_s"
            )

    def excess(self, log_time: FloatArray, log_power: FloatArray | None) -> FloatArray:
        """Logarithm of time or power over its limit, the larger; above 0 breaks a limit."""
        # In logarithms time and power exceed their limits on one scale.
        excess = np.full(log_time.shape, -np.inf)
        if self.deadline_s is not None:
            excess = log_time - np.log(self.deadline_s)
        if self.power_cap_w is not None and log_power is not None:
            excess = np.maximum(excess, log_power - np.log(self.power_cap_w))
        if self.max_slowdown is not None:
            slower = log_time - log_time.min(axis=1, keepdims=True)
            excess = np.maximum(excess, slower - np.log1p(self.max_slowdown))
        return excess

    def limits_text(self) -> str:
        """Write the limits to end a sentence: " within 60 s and 120 W"; "" without limits."""
        limits = (self.deadline_s, "s"), (self.power_cap_w, "W")
        both = [shown(limit, unit) for limit, unit in limits if limit is not None]
        within = f" within {' and '.join(both)}" if both else ""
        if self.max_slowdown is None:
            return within
        return f"{within} at most {100 * self.max_slowdown:g}% slower than the fastest"

    def miss(self, label: str, step_hz: float, p_kept: float) -> str:
        """Say that no step of a group keeps to the limits, and which comes nearest."""
        return (
            f"{label}: no step stays{self.limits_text()} with a probability of {self.level:.0%}: "
            f"{shown(step_hz, 'Hz')} comes nearest, with {p_kept:.0%}"
        )


def _number_in_si(name: str, amount: float | str, unit: str) -> float:
    return as_number(name, parse_quantity(amount, unit) if isinstance(amount, str) else amount)
