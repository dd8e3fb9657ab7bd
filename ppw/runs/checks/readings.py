"""Readings of one row that contradict each other: energy, power, idle power, frequency."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ppw.results.text import shown
from ppw.runs import groups as gr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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


def _energy_contradicts(c: Mapping[str, gr.Values]) -> gr.Values:
    """Energy many times power by time, whether or not one has the idle power taken off."""
    energy, power, time = c["energy_j"], c["power_w"], c["time_s"]
    products = [power * time]
    if "idle_power_w" in c:
        idle = gr.first_given(c["idle_power_w"], 0.0)
        products += [(power + idle) * time, (power - idle) * time]
    # Without a product above zero there is no reason to doubt.
    contradicts = (products[0] > 0) & (products[0] < math.inf)
    for product in products:
        more, less = energy > ENERGY_FACTOR * product, energy * ENERGY_FACTOR < product
        contradicts = contradicts & ((product <= 0) | more | less)
    return contradicts


# By flag: the columns that must be there, and what is wrong with a run by itself. Arrays or an
# engine's columns; where one of them is missing, nothing is.
CONTRADICTIONS: dict[int, tuple[set[str], Callable[[Mapping[str, gr.Values]], gr.Values]]] = {
    gr.ENERGY: ({"energy_j", "power_w", "time_s"}, _energy_contradicts),
    gr.ACHIEVED: (
        {"freq_hz", "freq_achieved_hz"},
        lambda c: gr.absolute(c["freq_achieved_hz"] / c["freq_hz"] - 1) > ACHIEVED_SHARE,
    ),
    gr.NO_WATTS: ({"power_w"}, lambda c: c["power_w"] <= 0),
    gr.KNOWN_IDLE: ({"power_w", "idle_power_w"}, lambda c: c["idle_power_w"] > 0),
    gr.BELOW_IDLE: (
        {"power_w", "idle_power_w"},
        lambda c: (
            (c["idle_power_w"] > 0) & (c["power_w"] <= (1 - IDLE_SCATTER) * c["idle_power_w"])
        ),
    ),
}
_READINGS = ("energy_j", "power_w", "time_s", "idle_power_w", "freq_hz", "freq_achieved_hz")


def _having(runs: pd.DataFrame, flag: int) -> gr.Mask:
    """Rows with a contradiction: cells have the flag that each of their runs was given."""
    found: gr.Mask = np.zeros(len(runs), dtype=bool)
    if gr.is_cell_table(runs):
        return (runs[gr.FLAGS].to_numpy() & flag) > 0 if gr.FLAGS in runs.columns else found
    needed, rule = CONTRADICTIONS[flag]
    columns = {c: gr.numbers(runs, c) for c in _READINGS if c in runs.columns}
    return rule(columns) if needed <= columns.keys() else found


def _columns_where(rows: gr.Mask, runs: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Take the rows of a mask and the numbers of some columns, or their means in cells."""
    figures = {column: gr.numbers(runs, column)[rows] for column in columns}
    return pd.DataFrame(figures, index=np.flatnonzero(rows))


def find_energy_off(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find runs whose energy is many times power by time, or such a part of it."""
    return _columns_where(_having(runs, gr.ENERGY), runs, "energy_j", "power_w", "time_s")


def say_energy_off(energy_j: float, power_w: float, time_s: float) -> str:
    """Say how many times power by time the energy is, and the slip that would explain it."""
    product = power_w * time_s
    watts = f"{shown(power_w, 'W')} over {shown(time_s, 's')} is {shown(product, 'J')}"
    if energy_j <= 0:
        return f"energy of {shown(energy_j, 'J')}, but {watts}"
    more, less = energy_j / product, product / energy_j
    times = f"{shown(more)} times" if more > 1 else f"1/{shown(less)} of"
    slip = _slip(max(more, less))
    return f"energy of {shown(energy_j, 'J')} is {times} power·time: {watts}{slip}"


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


def find_below_idle(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find runs without power, or with less than the idle machine draws."""
    wrong = _having(runs, gr.NO_WATTS) | (_having(runs, gr.BELOW_IDLE) & ~_other_scope(runs))
    return _columns_where(wrong, runs, "power_w", "idle_power_w")


def _other_scope(runs: pd.DataFrame) -> gr.Mask:
    """Rows of hosts where work below idle is the habit: net watts, or another sensor's."""
    host = gr.host_codes(runs)
    judged, count = (
        np.bincount(host, _having(runs, flag) * gr.run_counts(runs))
        for flag in (gr.KNOWN_IDLE, gr.BELOW_IDLE)
    )
    habit: gr.Mask = (count > np.maximum(1, _BELOW_IDLE * judged))[host]
    return habit


def scope_caveats(runs: pd.DataFrame) -> list[str]:
    """Say where watts are below the idle power too often to be mistakes of single rows."""
    rows = _having(runs, gr.BELOW_IDLE) & _other_scope(runs)
    if not rows.any():
        return []
    return [
        f"power_w is below idle_power_w in {gr.run_count(runs, rows)} rows, too many of their "
        "host's to be mistakes of single rows, so none of them is named: the idle power seems "
        "taken off, or the two are of different sensors; say which in power_source"
    ]


def say_below_idle(power_w: float, idle_power_w: float) -> str:
    """Say what a row draws, and what the idle machine does."""
    if power_w <= 0:
        return f"power of {shown(power_w, 'W')}, which nothing runs on"
    idle = shown(idle_power_w, "W")
    return f"power of {shown(power_w, 'W')} while the idle machine draws {idle}"


def find_achieved_off(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find runs at another frequency than the one asked for."""
    return _columns_where(_having(runs, gr.ACHIEVED), runs, "freq_hz", "freq_achieved_hz")


def say_achieved_off(freq_hz: float, freq_achieved_hz: float) -> str:
    """Say which frequency was asked for, and which one the counters saw."""
    return (
        f"asked for {shown(freq_hz, 'Hz')}, achieved {shown(freq_achieved_hz, 'Hz')} "
        f"({100 * (freq_achieved_hz / freq_hz - 1):+.1f} %)"
    )
