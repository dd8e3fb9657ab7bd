"""Readings of one row that contradict each other: energy, power, idle power, frequency."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppw.results.text import shown
from ppw.runs.checks import (
    ACHIEVED,
    ALL_METRICS,
    BELOW_IDLE,
    ENERGY,
    KNOWN_IDLE,
    NO_WATTS,
    OF_WATTS,
    Check,
    Found,
    flagged,
    found_where,
    host_codes,
    numbers,
)
from ppw.runs.groups import run_count, run_counts

if TYPE_CHECKING:
    import pandas as pd

    from fitting.regression.lines import FloatArray
    from ppw.runs.checks import Mask
    from ppw.runs.groups import Groups

# Meters that count 360 J at a time, or whose window is wider than the run, are up to 2.5 times
# off in good measurements (Loghin & Teo 2019); every slip of a unit is further off than this.
ENERGY_FACTOR = 5.0
# Idle figures of one machine scatter by this; below it, work draws less than no work.
IDLE_SCATTER = 0.02
# Where more of a host's rows are below idle, the watts are of another scope than the idle figure.
_BELOW_IDLE = 0.25
ACHIEVED_SHARE = 0.02
# Ratios that a slip of a unit gives, and how near to them a ratio must be to suggest one.
_SLIPS = {60.0: "s and min", 3600.0: "J and Wh", 3.6e6: "J and kWh"}
_NEAR = 1.25


def _energy_off(runs: pd.DataFrame, groups: Groups) -> Found:
    power, time = numbers(runs, "power_w"), numbers(runs, "time_s")
    energy, idle = numbers(runs, "energy_j"), np.nan_to_num(numbers(runs, "idle_power_w"))
    wrong = flagged(runs, ENERGY)
    if wrong is None:
        product = power * time
        # One of the two may have the idle power taken off and the other not.
        off = [_factor(energy, (power + taken) * time) for taken in (0.0, idle, -idle)]
        wrong = (product > 0) & np.isfinite(product) & (np.fmin.reduce(off) > ENERGY_FACTOR)
    return found_where(wrong, energy=energy, power=power, time=time)


def _factor(energy: FloatArray, product: FloatArray) -> FloatArray:
    """How many times one is the other, 1 or more; inf for no energy, NaN where unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(product > 0, np.maximum(energy, 0.0) / product, np.nan)
        return np.maximum(ratio, 1 / ratio)


def _say_energy(energy: float, power: float, time: float) -> str:
    product = power * time
    watts = f"{shown(power, 'W')} over {shown(time, 's')} is {shown(product, 'J')}"
    if energy <= 0:
        return f"energy of {shown(energy, 'J')}, but {watts}"
    more, less = energy / product, product / energy
    times = f"{shown(more)} times" if more > 1 else f"1/{shown(less)} of"
    slip = _slip(max(more, less))
    return f"energy of {shown(energy, 'J')} is {times} power·time: {watts}{slip}"


def _slip(factor: float) -> str:
    """Name the slip that a factor suggests, or none."""
    if not math.isfinite(factor):
        return ""
    decade = 10.0 ** round(math.log10(factor))
    for size, units in {decade: "", **_SLIPS}.items():
        if 1 / _NEAR < factor / size < _NEAR:
            slip = f"as between {units}" if units else "a power of ten"
            return f"; near {shown(size)}, {slip}"
    return ""


ENERGY_OFF = Check(
    name="energy_is_not_power_times_time",
    meaning=f"energy_j and power_w·time_s differ more than {ENERGY_FACTOR:g}-fold, more than the "
    "window of a sensor explains",
    remedy="check the units of energy_j, power_w and time_s and what each meter covers; leave "
    "out the column that is wrong",
    needs=(("energy_j",), ("power_w",), ("time_s",)),
    spoils=OF_WATTS,
    find=_energy_off,
    say=_say_energy,
)


def _at_or_below_idle(runs: pd.DataFrame, groups: Groups) -> Found:
    power, idle = numbers(runs, "power_w"), numbers(runs, "idle_power_w")
    negative = flagged(runs, NO_WATTS)
    negative = power <= 0 if negative is None else negative
    wrong = negative | (_below_idle(runs) & ~_other_scope(runs))
    return found_where(wrong, power=power, idle=idle)


def _below_idle(runs: pd.DataFrame) -> Mask:
    below = flagged(runs, BELOW_IDLE)
    if below is None:
        power, idle = numbers(runs, "power_w"), numbers(runs, "idle_power_w")
        below = (idle > 0) & (power <= (1 - IDLE_SCATTER) * idle)
    return below


def _other_scope(runs: pd.DataFrame) -> Mask:
    """Rows of hosts where work below idle is the habit: net watts, or another sensor's."""
    host, below = host_codes(runs), _below_idle(runs)
    known = flagged(runs, KNOWN_IDLE)
    known = numbers(runs, "idle_power_w") > 0 if known is None else known
    judged, count = (np.bincount(host, rows * run_counts(runs)) for rows in (known, below))
    habit: Mask = (count > np.maximum(1, _BELOW_IDLE * judged))[host]
    return habit


def scope_caveats(runs: pd.DataFrame) -> list[str]:
    """Say where watts are below the idle power too often to be mistakes of single rows."""
    rows = _below_idle(runs) & _other_scope(runs)
    if not rows.any():
        return []
    return [
        f"power_w is below idle_power_w in {run_count(runs, rows)} rows, too many of their host's "
        "to be mistakes of single rows, so none of them is named: the idle power seems taken off, "
        "or the two are of different sensors; say which in power_source"
    ]


def _say_idle(power: float, idle: float) -> str:
    if power <= 0:
        return f"power of {shown(power, 'W')}, which nothing runs on"
    return f"power of {shown(power, 'W')} while the idle machine draws {shown(idle, 'W')}"


AT_OR_BELOW_IDLE = Check(
    name="power_at_or_below_idle",
    meaning="power_w is not above zero, or is below what the machine draws when idle",
    remedy="look at the sensor and at what was taken off; run longer, or read a meter that sees "
    "the difference",
    needs=(("power_w",),),
    spoils=OF_WATTS,
    find=_at_or_below_idle,
    say=_say_idle,
)


def _achieved_off(runs: pd.DataFrame, groups: Groups) -> Found:
    asked, achieved = numbers(runs, "freq_hz"), numbers(runs, "freq_achieved_hz")
    wrong = flagged(runs, ACHIEVED)
    if wrong is None:
        wrong = np.abs(achieved / asked - 1) > ACHIEVED_SHARE
    return found_where(wrong, asked=asked, achieved=achieved)


def _say_achieved(asked: float, achieved: float) -> str:
    return (
        f"asked for {shown(asked, 'Hz')}, achieved {shown(achieved, 'Hz')} "
        f"({100 * (achieved / asked - 1):+.1f} %)"
    )


ACHIEVED_OFF = Check(
    name="achieved_off",
    meaning=f"freq_achieved_hz is more than {ACHIEVED_SHARE:.0%} off freq_hz",
    remedy="pin the frequency (no boost, no throttling) and measure again; or map the achieved "
    "frequency to freq_hz",
    needs=(("freq_achieved_hz",),),
    spoils=ALL_METRICS,
    find=_achieved_off,
    say=_say_achieved,
)
