"""Readings of one row that contradict each other: energy, power, idle power, frequency."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppw.results.text import shown
from ppw.runs import checks as ck
from ppw.runs import groups as gr
from ppw.runs.expressions import Values, absolute, first_given

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd


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


def _energy_contradicts(c: Mapping[str, Values]) -> Values:
    """Energy many times power by time, whether or not one has the idle power taken off."""
    energy, power, time = c["energy_j"], c["power_w"], c["time_s"]
    products = [power * time]
    if "idle_power_w" in c:
        idle = first_given(c["idle_power_w"], 0.0)
        products += [(power + idle) * time, (power - idle) * time]
    # Without a product above zero there is no reason to doubt.
    contradicts = (products[0] > 0) & (products[0] < math.inf)
    for product in products:
        more, less = energy > ENERGY_FACTOR * product, energy * ENERGY_FACTOR < product
        contradicts = contradicts & ((product <= 0) | more | less)
    return contradicts


# By flag: the columns that must be there, and what is wrong with a run by itself. Arrays or an
# engine's columns; where one of them is missing, nothing is.
CONTRADICTIONS: dict[int, tuple[set[str], Callable[[Mapping[str, Values]], Values]]] = {
    ck.ENERGY: ({"energy_j", "power_w", "time_s"}, _energy_contradicts),
    ck.ACHIEVED: (
        {"freq_hz", "freq_achieved_hz"},
        lambda c: absolute(c["freq_achieved_hz"] / c["freq_hz"] - 1) > ACHIEVED_SHARE,
    ),
    ck.NO_WATTS: ({"power_w"}, lambda c: c["power_w"] <= 0),
    ck.KNOWN_IDLE: ({"power_w", "idle_power_w"}, lambda c: c["idle_power_w"] > 0),
    ck.BELOW_IDLE: (
        {"power_w", "idle_power_w"},
        lambda c: (
            (c["idle_power_w"] > 0) & (c["power_w"] <= (1 - IDLE_SCATTER) * c["idle_power_w"])
        ),
    ),
}
_READINGS = ("energy_j", "power_w", "time_s", "idle_power_w", "freq_hz", "freq_achieved_hz")


def _having(runs: pd.DataFrame, flag: int) -> ck.Mask:
    """Rows with a contradiction: cells have the flag that each of their runs was given."""
    found: ck.Mask = np.zeros(len(runs), dtype=bool)
    if gr.is_cell_table(runs):
        return (runs[ck.FLAGS].to_numpy() & flag) > 0 if ck.FLAGS in runs.columns else found
    needed, rule = CONTRADICTIONS[flag]
    columns = {c: ck.numbers(runs, c) for c in _READINGS if c in runs.columns}
    return rule(columns) if needed <= columns.keys() else found


def _energy_off(runs: pd.DataFrame, groups: gr.Groups) -> ck.Findings:
    energy, power, time = (ck.numbers(runs, c) for c in ("energy_j", "power_w", "time_s"))
    return ck.found_where(_having(runs, ck.ENERGY), energy=energy, power=power, time=time)


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


ENERGY_OFF = ck.Check(
    name="energy_is_not_power_times_time",
    meaning=f"energy_j and power_w·time_s differ more than {ENERGY_FACTOR:g}-fold, more than the "
    "window of a sensor explains",
    remedy="check the units of energy_j, power_w and time_s and what each meter covers; leave "
    "out the column that is wrong",
    needs=(("energy_j",), ("power_w",), ("time_s",)),
    spoils=ck.OF_WATTS,
    find=_energy_off,
    say=_say_energy,
)


def _at_or_below_idle(runs: pd.DataFrame, groups: gr.Groups) -> ck.Findings:
    power, idle = ck.numbers(runs, "power_w"), ck.numbers(runs, "idle_power_w")
    wrong = _having(runs, ck.NO_WATTS) | (_having(runs, ck.BELOW_IDLE) & ~_other_scope(runs))
    return ck.found_where(wrong, power=power, idle=idle)


def _other_scope(runs: pd.DataFrame) -> ck.Mask:
    """Rows of hosts where work below idle is the habit: net watts, or another sensor's."""
    host = ck.host_codes(runs)
    judged, count = (
        np.bincount(host, _having(runs, flag) * gr.run_counts(runs))
        for flag in (ck.KNOWN_IDLE, ck.BELOW_IDLE)
    )
    habit: ck.Mask = (count > np.maximum(1, _BELOW_IDLE * judged))[host]
    return habit


def scope_caveats(runs: pd.DataFrame) -> list[str]:
    """Say where watts are below the idle power too often to be mistakes of single rows."""
    rows = _having(runs, ck.BELOW_IDLE) & _other_scope(runs)
    if not rows.any():
        return []
    return [
        f"power_w is below idle_power_w in {gr.run_count(runs, rows)} rows, too many of their "
        "host's to be mistakes of single rows, so none of them is named: the idle power seems "
        "taken off, or the two are of different sensors; say which in power_source"
    ]


def _say_idle(power: float, idle: float) -> str:
    if power <= 0:
        return f"power of {shown(power, 'W')}, which nothing runs on"
    return f"power of {shown(power, 'W')} while the idle machine draws {shown(idle, 'W')}"


AT_OR_BELOW_IDLE = ck.Check(
    name="power_at_or_below_idle",
    meaning="power_w is not above zero, or is below what the machine draws when idle",
    remedy="look at the sensor and at what was taken off; run longer, or read a meter that sees "
    "the difference",
    needs=(("power_w",),),
    spoils=ck.OF_WATTS,
    find=_at_or_below_idle,
    say=_say_idle,
)


def _achieved_off(runs: pd.DataFrame, groups: gr.Groups) -> ck.Findings:
    asked, achieved = ck.numbers(runs, "freq_hz"), ck.numbers(runs, "freq_achieved_hz")
    return ck.found_where(_having(runs, ck.ACHIEVED), asked=asked, achieved=achieved)


def _say_achieved(asked: float, achieved: float) -> str:
    return (
        f"asked for {shown(asked, 'Hz')}, achieved {shown(achieved, 'Hz')} "
        f"({100 * (achieved / asked - 1):+.1f} %)"
    )


ACHIEVED_OFF = ck.Check(
    name="achieved_off",
    meaning=f"freq_achieved_hz is more than {ACHIEVED_SHARE:.0%} off freq_hz",
    remedy="pin the frequency (no boost, no throttling) and measure again; or map the achieved "
    "frequency to freq_hz",
    needs=(("freq_achieved_hz",),),
    spoils=ck.ALL_METRICS,
    find=_achieved_off,
    say=_say_achieved,
)
