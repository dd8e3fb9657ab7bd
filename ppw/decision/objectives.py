"""What a frequency can be chosen for: energy, energy times delay, perf/W, time, work per price.

All are a cost to be least, in the time T and power P of a unit of work: P·T, P·T², P·T³, T, or
price·T/lifetime + electricity·P·T. With straight lines for T against 1/f and P against f each has a
closed form (`ppw.decision.objectives`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.table.units import parse_frequency, parse_quantity
from ppw.catalogue.hosts import find_host, host_steps
from ppw.errors import PpwError, UnknownHostError
from ppw.results.arguments import as_frequencies, as_frequency, as_number, as_positive
from ppw.results.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fitting.regression.lines import FloatArray


# Performance per watt and per dollar, and the frequency at which energy, or EDP, is least.
#
# perf/W = work/(T·P), perf/$ = work/(T·cost); two machines compare as speed-up over power ratio and
# speed-up over cost ratio. Source: Issa & Figueira (2012),
# https://doi.org/10.1186/2192-113X-1-10.


def per_watt_ratio(speedup: float, power_ratio: float) -> float:
    """Ratio of the performance per watt of two machines, A to B: speed-up over power ratio."""
    return speedup / _positive("power ratio", power_ratio)


def per_dollar_ratio(speedup: float, cost_ratio: float) -> float:
    """Ratio of the performance per dollar of two machines, A to B: speed-up over cost ratio."""
    return speedup / _positive("cost ratio", cost_ratio)


def break_even_price_ratio(speedup: float) -> float:
    """Price ratio A to B at which both give the same performance per dollar: the speed-up."""
    return _positive("speed-up", speedup)


def least_energy_frequency(
    *,
    t_fixed_s: float,
    work_cycles: float,
    p0_w: float,
    slope_w_per_hz: float,
    lowest_hz: float,
    highest_hz: float,
) -> float:
    """Frequency (Hz) of least energy for T = t_fixed + w/f and P = P0 + s·f.

    f* = sqrt(w·P0/(t_fixed·s)), held inside [``lowest_hz``, ``highest_hz``]. With t_fixed = 0 or
    s ≤ 0 energy falls all the way up, with P0 ≤ 0 it rises all the way; perf/W is highest where
    energy is least.
    """
    lines = _Lines(t_fixed_s, work_cycles, p0_w, slope_w_per_hz)
    return lines.least(0, lowest_hz, highest_hz)


def least_edp_frequency(
    *,
    t_fixed_s: float,
    work_cycles: float,
    p0_w: float,
    slope_w_per_hz: float,
    lowest_hz: float,
    highest_hz: float,
) -> float:
    """Frequency (Hz) of least energy-delay product, P·T², for T = t_fixed + w/f and P = P0 + s·f.

    f* = (w·s + sqrt(w²s² + 8·s·t_fixed·w·P0))/(2·s·t_fixed), held inside the range; the highest
    frequency with t_fixed = 0 or s ≤ 0. A negative P0 can make the lowest frequency the best.
    """
    lines = _Lines(t_fixed_s, work_cycles, p0_w, slope_w_per_hz)
    return lines.least(1, lowest_hz, highest_hz)


def least_ed2p_frequency(
    *,
    t_fixed_s: float,
    work_cycles: float,
    p0_w: float,
    slope_w_per_hz: float,
    lowest_hz: float,
    highest_hz: float,
) -> float:
    """Frequency (Hz) of least energy-delay² product, P·T³, as `least_edp_frequency`.

    f* = (w·s + sqrt(w²s² + 3·s·t_fixed·w·P0))/(s·t_fixed).
    """
    lines = _Lines(t_fixed_s, work_cycles, p0_w, slope_w_per_hz)
    return lines.least(2, lowest_hz, highest_hz)


class _Lines(NamedTuple):
    """T = t_fixed + w/f (s) and P = P0 + s·f (W)."""

    t_fixed: float
    work: float
    p0: float
    slope: float

    def least(self, delays: int, lowest: float, highest: float) -> float:
        """Frequency of least P·T^(1 + delays) inside a range."""
        if self.t_fixed <= 0 or self.slope <= 0:
            return highest
        stationary = self._stationary(delays)
        if stationary is None:
            return lowest
        inside = min(max(stationary, lowest), highest)
        if self.p0 >= 0:
            return inside
        # Power that vanishes at a frequency gives the product a second minimum, down there.
        return min((lowest, inside), key=lambda f: self._product(delays, f))

    def _stationary(self, delays: int) -> float | None:
        """Larger root of s·t·f² − n·w·s·f − (n + 1)·w·P0, where the product stops falling."""
        linear = delays * self.work * self.slope
        curved = self.slope * self.t_fixed
        under = linear**2 + 4 * (delays + 1) * curved * self.work * self.p0
        root = (linear + math.sqrt(under)) / (2 * curved) if under >= 0 else 0.0
        return root if root > 0 else None

    def _product(self, delays: int, frequency: float) -> float:
        time = self.t_fixed + self.work / frequency
        return (self.p0 + self.slope * frequency) * time ** (1 + delays)


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise PpwError(f"{name} {value!r} is not positive")
    return value


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


# Frequency steps to choose from: as asked for, or those of the runs and of the host catalogue.


# Makers print 2.93 GHz for 22·133.33 MHz: a catalogue step so near to a measured one is that one.
_SAME_AS_MEASURED = 5e-3
_MOST_STEPS = 1000


def as_steps(steps: str | Iterable[float | str], *, fewest: int = 2) -> FloatArray:
    """Read steps: several frequencies, "1.2GHz,1.8GHz", or a range "lowest:highest:step".

    Parameters
    ----------
    steps : str or sequence of float or str
        Numbers are Hz. A range ends at its highest frequency or one step short of passing it.
    fewest : int
        Different frequencies that there must be.

    Returns
    -------
    float array
        Hz, rising, each once.

    Raises
    ------
    PpwError, MeasurementError
        For what is no frequency, a range that is not, or too few steps.
    """
    if isinstance(steps, str):
        made = (
            _range(steps)
            if ":" in steps
            else [parse_frequency(part.strip()) for part in steps.split(",")]
        )
    else:
        made = as_frequencies(steps)
    if len(set(made)) < fewest:
        raise PpwError(f"steps {steps!r} are one frequency: a choice takes two or more")
    return np.unique(made)


def _range(text: str) -> list[float]:
    parts = text.split(":")
    if len(parts) != 3:
        raise PpwError(f"steps {text!r} are not LOWEST:HIGHEST:STEP, such as 1.2GHz:2.4GHz:0.1GHz")
    low, high = (as_frequency(part.strip()) for part in parts[:2])
    step = as_positive("step", parse_quantity(parts[2], "hz"))
    if low > high:
        raise PpwError(f"steps {text!r}: the lowest frequency is above the highest")
    # Rounded, because 0.1 GHz has no exact binary form and the last step counts.
    count = int(np.floor(round((high - low) / step, 6))) + 1
    if count > _MOST_STEPS:
        raise PpwError(f"steps {text!r} are {count} frequencies: ask for {_MOST_STEPS} at most")
    return [low + step * i for i in range(count)]


def known_steps(measured: FloatArray, listed: Sequence[float]) -> FloatArray:
    """Measured steps (Hz) together with those ``listed`` that are none of them."""
    more = np.asarray(listed, dtype=float)
    apart = np.abs(np.log(more[:, None] / measured)) > _SAME_AS_MEASURED
    return np.sort(np.concatenate([measured, more[apart.all(axis=1)]]))


def catalogued_steps(hosts: Iterable[object]) -> dict[object, tuple[float, ...]]:
    """Steps (Hz) of the hosts that the catalogue knows by name; none for the others."""
    return {host: _catalogued(host) if isinstance(host, str) else () for host in hosts}


def _catalogued(host: str) -> tuple[float, ...]:
    try:
        return host_steps(find_host(host))
    except UnknownHostError:
        return ()


# What a frequency step must keep to: a time by which the work is done, and watts to stay under.


_MOST_SAID = 3


class Limits(NamedTuple):
    """Limits of a step; None where there is none.

    Attributes
    ----------
    deadline_s : float or None
        Of one run.
    power_cap_w : float or None
        Of the watts while it runs, idle power included.
    level : float
        Probability with which a step has to keep to both.
    """

    deadline_s: float | None = None
    power_cap_w: float | None = None
    level: float = 0.90

    @classmethod
    def checked(
        cls, deadline: float | str | None, power_cap: float | str | None, level: float
    ) -> Limits:
        """Read quantities: "60s", "120W" or numbers in SI units.

        Raises
        ------
        MeasurementError
            For what is no such quantity.
        PpwError
            For one that is not above 0.
        """
        return cls(_read("deadline", deadline, "s"), _read("power cap", power_cap, "w"), level)

    def __bool__(self) -> bool:
        """Whether there is one."""
        return self.deadline_s is not None or self.power_cap_w is not None

    def refuse_rates(self, work: str) -> None:
        """Raise `PpwError` for a deadline of runs that tell a rate: ``work`` is "op"."""
        if self.deadline_s is not None and work == "op":
            raise PpwError(
                "a deadline is of a run, and these runs have throughput_ops_s, which tells no time"
            )

    def p_kept(self, log_time: FloatArray, log_power: FloatArray | None) -> FloatArray:
        """Share of the draws, rows, in which each step, a column, keeps to the limits."""
        share: FloatArray = (self._excess(log_time, log_power) <= 0).mean(axis=0)
        return share

    def nearest(self, log_time: FloatArray, log_power: FloatArray | None) -> int:
        """Step, by number, that is least beyond a limit."""
        return int(np.argmin(np.median(self._excess(log_time, log_power), axis=0)))

    def _excess(self, log_time: FloatArray, log_power: FloatArray | None) -> FloatArray:
        """Logarithm of what is used of a limit, the larger of the two."""
        excess = np.full(log_time.shape, -np.inf)
        if self.deadline_s is not None:
            excess = log_time - np.log(self.deadline_s)
        if self.power_cap_w is not None and log_power is not None:
            excess = np.maximum(excess, log_power - np.log(self.power_cap_w))
        return excess

    def words(self) -> str:
        """Limits as a sentence goes on: " within 60 s and 120 W"; nothing where there are none."""
        both = [
            shown(limit, unit)
            for limit, unit in ((self.deadline_s, "s"), (self.power_cap_w, "W"))
            if limit is not None
        ]
        return f" within {' and '.join(both)}" if both else ""


NO_LIMITS = Limits()


class Missed(NamedTuple):
    """A group none of whose steps keeps to the limits, and the step that most probably would."""

    label: str
    step_hz: float
    p_kept: float

    def said(self, limits: Limits) -> str:
        """Say so."""
        return (
            f"{self.label}: no step stays{limits.words()} with a probability of "
            f"{limits.level:.0%}: {shown(self.step_hz, 'Hz')} comes nearest, with "
            f"{self.p_kept:.0%}"
        )


def first_said(missed: Sequence[str]) -> str:
    """Say the first three sentences, and how many groups more there are; "" where there is none."""
    more = len(missed) - _MOST_SAID
    rest = [f"and {more} more group{'s' * (more > 1)} likewise"] if more > 0 else []
    return "; ".join([*missed[:_MOST_SAID], *rest])


def _read(name: str, amount: float | str | None, unit: str) -> float | None:
    if amount is None:
        return None
    return as_positive(name, parse_quantity(amount, unit) if isinstance(amount, str) else amount)
