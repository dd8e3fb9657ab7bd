"""Performance per watt and per dollar, and the frequency at which energy is least.

perf/W = work/(T·P), perf/$ = work/(T·cost); two machines compare as speed-up over power ratio and
speed-up over cost ratio. Source: Issa & Figueira (2012),
https://doi.org/10.1186/2192-113X-1-10.
"""

from __future__ import annotations

import math

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
    if t_fixed_s <= 0 or slope_w_per_hz <= 0:
        return highest_hz
    if p0_w <= 0:
        return lowest_hz
    best = math.sqrt(work_cycles * p0_w / (t_fixed_s * slope_w_per_hz))
    return min(max(best, lowest_hz), highest_hz)


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise PpwError(f"{name} {value!r} is not positive")
    return value
