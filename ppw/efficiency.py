"""Performance per watt and per dollar, and the frequency at which energy, or EDP, is least.

perf/W = work/(T·P), perf/$ = work/(T·cost); two machines compare as speed-up over power ratio and
speed-up over cost ratio. Source: Issa & Figueira (2012),
https://doi.org/10.1186/2192-113X-1-10.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ppw.errors import PpwError


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
