"""Checks of a runs table: what each looks for, and the rows that cannot be right.

Contradictions within a row are found here, those with the sweep in `sweeps`, and copies of other
rows in `repeats`. A function that looks takes runs and their groups and
gives a frame: a row for each row of the table that it names, indexed by position, and the figures
against it as columns, which the function that says so takes as keywords.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fitting.regression.lines import FloatArray, IntArray
from measurements.host.activity import MOST_OTHER_WORK
from measurements.power.source import MOST_HOST_W
from measurements.table import checks, schema
from ppw.results.text import shown
from ppw.runs import groups as gr, metrics as mt
from ppw.runs.checks import repeats, sweeps

ALL_METRICS = frozenset(mt.METRICS)
OF_WATTS = frozenset({"power", "energy", "perf_per_watt"})


@dataclass(frozen=True)
class Check:
    """One way in which a row cannot be right."""

    needs: tuple[tuple[str, ...], ...]  # columns that it looks at: one of each tuple must be there
    spoils: frozenset[str]  # metrics that such a row is no good for
    find: Callable[[pd.DataFrame, gr.Groups], pd.DataFrame]
    say: Callable[..., str]
    # What is wrong, and what to do about it, in one line each.
    meaning: str
    remedy: str
    # Whether other questions leave such a row out; else they use it, with a caveat.
    leaves_out: bool = True

    def lacks(self, runs: pd.DataFrame) -> str:
        """Name the columns that the check needs and the table lacks or has empty; "" for none."""
        absent = [n for n in self.needs if not any(gr.has(runs, c) for c in n)]
        return " and ".join("/".join(columns) for columns in absent)


# Readings of one row that contradict each other: energy, power, idle power, frequency.

# Meters that count 360 J at a time, or whose window is wider than the run, are up to 2.5 times
# off in good measurements (Loghin & Teo 2019); every slip of a unit is further off than this.
ENERGY_FACTOR = 5.0
# Idle figures of one machine scatter by this; below it, work draws less than no work.
IDLE_SCATTER = 0.02
# Where more of a host's rows are below idle, the watts are of another scope than the idle figure.
_BELOW_IDLE = 0.25
ACHIEVED_SHARE = 0.02
# Limits of a package, as `ppw measure` reads them, and how far peaks go beyond.
_CAPS = ("power_cap_long_w", "power_cap_short_w", "power_cap_peak_w")
_OVER_CAP = 2.0
# Ratios that a slip of a unit gives, and how near to them a ratio must be to suggest one.
_SLIPS = {60.0: "s and min", 3600.0: "J and Wh", 3.6e6: "J and kWh"}
_NEAR = 1.25


def _energy_contradicts(c: Mapping[str, gr.Values]) -> gr.Values:
    """Tell where energy is many times, or a small part of, power × time, idle power on or off."""
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
    gr.TOO_MUCH: ({"power_w"}, lambda c: c["power_w"] > MOST_HOST_W),
    gr.OTHER_WORK: ({"other_cpu_share"}, lambda c: c["other_cpu_share"] > MOST_OTHER_WORK),
}
_READINGS = (
    *("energy_j", "power_w", "time_s", "idle_power_w", "freq_hz", "freq_achieved_hz"),
    "other_cpu_share",
)


def _flag_mask(runs: pd.DataFrame, flag: int) -> gr.Mask:
    """Mark rows with a contradiction: by its rule, or by the flag of a cell."""
    found: gr.Mask = np.zeros(len(runs), dtype=bool)
    if gr.is_cell_table(runs):
        return (runs[gr.FLAGS].to_numpy() & flag) > 0 if gr.FLAGS in runs.columns else found
    needed, rule = CONTRADICTIONS[flag]
    if needed <= {*runs.columns}:
        found = rule({c: gr.numbers(runs, c) for c in _READINGS if c in runs.columns})
    return found


def _columns_where(rows: gr.Mask, runs: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Table of some columns at the rows of a mask; of cells, their means."""
    figures = {column: gr.numbers(runs, column)[rows] for column in columns}
    return pd.DataFrame(figures, index=np.flatnonzero(rows))


def _finder(flag: int, *columns: str) -> Callable[[pd.DataFrame, gr.Groups], pd.DataFrame]:
    """Make the function that finds the rows with a contradiction, and what its evidence quotes."""
    return lambda runs, groups: _columns_where(_flag_mask(runs, flag), runs, *columns)


def say_energy_off(energy_j: float, power_w: float, time_s: float) -> str:
    """Say how many times power by time the energy is, and the slip that would explain it."""
    product = power_w * time_s
    watts = f"{shown(power_w, 'W')} over {shown(time_s, 's')} is {shown(product, 'J')}"
    if energy_j <= 0:
        return f"energy of {shown(energy_j, 'J')}, but {watts}"
    more, less = energy_j / product, product / energy_j
    times = f"{shown(more)} times" if more > 1 else f"1/{shown(less)} of"
    slip = _slip_text(max(more, less))
    return f"energy of {shown(energy_j, 'J')} is {times} power·time: {watts}{slip}"


def _slip_text(factor: float) -> str:
    """Name the slip of units that a factor suggests; "" for none."""
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
    wrong = _flag_mask(runs, gr.NO_WATTS) | (_flag_mask(runs, gr.BELOW_IDLE) & ~_other_scope(runs))
    return _columns_where(wrong, runs, "power_w", "idle_power_w")


def _other_scope(runs: pd.DataFrame) -> gr.Mask:
    """Mark rows of hosts on which power below idle is too frequent to be single mistakes."""
    host = gr.host_codes(runs)
    judged, count = (
        np.bincount(host, _flag_mask(runs, flag) * gr.run_counts(runs))
        for flag in (gr.KNOWN_IDLE, gr.BELOW_IDLE)
    )
    return np.asarray((count > np.maximum(1, _BELOW_IDLE * judged))[host])


def scope_caveats(runs: pd.DataFrame) -> list[str]:
    """Caveat where power is below idle too often for mistakes of single rows; none otherwise."""
    rows = _flag_mask(runs, gr.BELOW_IDLE) & _other_scope(runs)
    if not rows.any():
        return []
    return [
        f"power_w is below idle_power_w in {gr.run_count(runs, rows)} rows, too many of their "
        "host's rows for single mistakes, so ppw flags none: idle power seems subtracted, or the "
        "two come from different sensors; name the sensor in power_source"
    ]


def say_below_idle(power_w: float, idle_power_w: float) -> str:
    """Say the power of a row and that of the idle machine."""
    if power_w <= 0:
        return f"power of {shown(power_w, 'W')}, which is impossible"
    idle = shown(idle_power_w, "W")
    return f"power of {shown(power_w, 'W')} while the idle machine draws {idle}"


def find_too_much(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find runs with more power than any single host draws, or than their power limit allows."""
    cap_w, power_w = _package_cap_w(runs), gr.numbers(runs, "power_w")
    wrong = _flag_mask(runs, gr.TOO_MUCH) | (power_w > _OVER_CAP * cap_w)
    return _columns_where(wrong, runs, "power_w").assign(cap_w=cap_w[wrong])


def _package_cap_w(runs: pd.DataFrame) -> FloatArray:
    """Return the highest power limit (W) of rows whose power is that of all packages, else NaN."""
    caps = [pd.to_numeric(runs[c], errors="coerce") for c in _CAPS if c in runs.columns]
    if not caps or not {"power_source", "sockets"} <= {*runs.columns}:
        return np.full(len(runs), np.nan)
    of_packages = runs["power_source"].astype(str).str.startswith("rapl:package")
    sockets = pd.to_numeric(runs["sockets"], errors="coerce")
    cap_w = (pd.concat(caps, axis=1).max(axis=1) * sockets).where(of_packages)
    return cap_w.to_numpy(np.float64)


def say_too_much(power_w: float, cap_w: float) -> str:
    """Say how much power a row has, and the limit that its packages had."""
    power = f"power of {shown(power_w, 'W')}"
    if power_w > _OVER_CAP * cap_w:
        return f"{power} while the processors are limited to {shown(cap_w, 'W')}"
    return f"{power}, which no single host draws"


def say_achieved_off(freq_hz: float, freq_achieved_hz: float) -> str:
    """Say which frequency was asked for, and which one the counters saw."""
    return (
        f"asked for {shown(freq_hz, 'Hz')}, achieved {shown(freq_achieved_hz, 'Hz')} "
        f"({100 * (freq_achieved_hz / freq_hz - 1):+.1f} %)"
    )


def find_other_work(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find runs beside which other processes, or other virtual machines, worked."""
    return _columns_where(_flag_mask(runs, gr.OTHER_WORK), runs, "other_cpu_share")


# By name, as tables and JSON write it.
CHECKS = {
    "frequency_not_applied": Check(
        (("time_s", "throughput_ops_s"),),
        ALL_METRICS,
        repeats.find_unapplied,
        repeats.say_unapplied,
        meaning=(
            "runs at different frequencies agree in time and power to every digit, so one of "
            "them was not measured at its frequency, or not measured at all"
        ),
        remedy="measure these steps again and record what the counters say (freq_achieved_hz)",
    ),
    "slower_when_faster": Check(
        (("time_s", "throughput_ops_s"),),
        ALL_METRICS,
        sweeps.find_inversions,
        sweeps.say_inversion,
        meaning=(
            "the work takes longer at a higher frequency than at a lower one, by more than "
            "noise, and this frequency fits the rest of the sweep least"
        ),
        remedy=(
            "measure this frequency again; look for throttling, other load on the host, or a row "
            "of another run"
        ),
    ),
    "half_or_third_frequency": Check(
        (("time_s", "throughput_ops_s"),),
        ALL_METRICS,
        sweeps.find_parts,
        sweeps.say_part,
        meaning="the time is, within noise, what the rest of the sweep gives at a half or a third "
        "of the frequency",
        remedy="measure the step again and record what the counters say (freq_achieved_hz); look "
        "for a frequency limit, a divided clock, or other load on the host",
    ),
    "exact_multiple": Check(
        (("workload",), ("time_s", "throughput_ops_s")),
        ALL_METRICS,
        repeats.find_copies,
        repeats.say_copy,
        meaning="the times of a workload are an exact multiple of another's on the same host: one "
        "measurement under two names",
        remedy="leave out one of the two workloads, or measure it again",
    ),
    "energy_is_not_power_times_time": Check(
        (("energy_j",), ("power_w",), ("time_s",)),
        OF_WATTS,
        _finder(gr.ENERGY, "energy_j", "power_w", "time_s"),
        say_energy_off,
        meaning=f"energy_j and power_w·time_s differ by more than {ENERGY_FACTOR:g}-fold, "
        "more than the window of a sensor explains",
        remedy="check the units of energy_j, power_w and time_s and what each meter covers; leave "
        "out the column that is wrong",
    ),
    "slip_of_a_unit": Check(
        (("power_w", "energy_j"),),
        OF_WATTS,
        sweeps.find_slips,
        sweeps.say_slip,
        meaning="power_w or energy_j is near 1000 or 1,000,000 times the other runs' of the "
        "sweep, or such a part of them",
        remedy=(
            "find the unit in which the meter of these runs logs, and convert; if both groups of "
            "runs are flagged, only their logs tell which one is right"
        ),
    ),
    "time_of_another_unit": Check(
        (("time_s",),),
        ALL_METRICS,
        sweeps.find_time_slips,
        sweeps.say_time_slip,
        meaning="time_s is near 60, 1000, 3600 or 1,000,000 times the other runs' of the sweep, "
        "or such a part of them",
        remedy="find the unit of time of these runs, and convert; or find out what delayed them",
    ),
    "repeat_far_off": Check(
        (("time_s", "throughput_ops_s", "power_w"),),
        ALL_METRICS,
        sweeps.find_far_repeats,
        sweeps.say_far_repeat,
        meaning="one of three or more repeats is over 1.5 times their median, or under 1/1.5, "
        "and ten times as far from it as repeats of the table usually are",
        remedy="find out what disturbed the run, and measure it again",
    ),
    "power_at_or_below_idle": Check(
        (("power_w",),),
        OF_WATTS,
        find_below_idle,
        say_below_idle,
        meaning="power_w is not above zero, or is below what the machine draws when idle",
        remedy=(
            "check the sensor, and whether idle power was subtracted; run longer, or use a finer "
            "meter"
        ),
    ),
    "impossible_power": Check(
        (("power_w",),),
        OF_WATTS,
        find_too_much,
        say_too_much,
        meaning=f"power_w is above {MOST_HOST_W / 1e3:g} kW, or more than {_OVER_CAP:g} times the "
        "power limit of the processors that it is measured of",
        remedy="check the unit and the sensor: a counter that jumped, or a meter of several hosts",
    ),
    "achieved_off": Check(
        (("freq_achieved_hz",),),
        ALL_METRICS,
        _finder(gr.ACHIEVED, "freq_hz", "freq_achieved_hz"),
        say_achieved_off,
        meaning=f"freq_achieved_hz is more than {ACHIEVED_SHARE:.0%} off freq_hz",
        remedy="fix the frequency (no turbo, no throttling) and measure again; or map the achieved "
        "frequency to freq_hz",
    ),
    "other_work": Check(
        (("other_cpu_share",),),
        OF_WATTS,
        find_other_work,
        lambda other_cpu_share: f"other work took {other_cpu_share:.1%} of the CPU time",
        meaning=f"more than {MOST_OTHER_WORK:.0%} of the CPU time was not the command's, "
        "so its power and energy are not the command's alone",
        remedy="close other programs, let the command wait for its processes, and measure again",
        leaves_out=False,
    ),
}


UNUSABLE = "unusable_value"
CHECKS[UNUSABLE] = Check(
    (),
    frozenset(),
    lambda runs, groups: pd.DataFrame({"what": []}),
    lambda what: what,
    meaning="a value that no question can use: missing, no number, or not possible in its unit",
    remedy="correct the value, or leave out the run; what does not need the value uses the run",
)


def find_flagged_rows(
    runs: pd.DataFrame,
    groups: gr.Groups,
    metrics: Iterable[mt.Metric],
    *,
    every: bool = False,
) -> dict[str, pd.DataFrame]:
    """Make the checks that columns and metrics allow; by its name what it found, if any.

    Only with ``every`` also those whose rows are not left out.
    """
    names = {metric.name for metric in metrics}
    asked = {n: c for n, c in CHECKS.items() if c.spoils & names and (every or c.leaves_out)}
    made = {n: c for n, c in asked.items() if not c.lacks(runs)}
    with np.errstate(all="ignore"):
        return {name: check.find(runs, groups) for name, check in made.items()}


def evidence_table(
    flagged: Mapping[str, pd.DataFrame], runs: pd.DataFrame, groups: gr.Groups
) -> pd.DataFrame:
    """Make one row for each flagged row and check, in input order, with the evidence."""
    position = np.concatenate([found.index.to_numpy(np.int64) for found in flagged.values()])
    keys = groups.keys.take(groups.codes[position]).reset_index(drop=True)
    evidence = [
        CHECKS[name].say(**{str(k): v for k, v in figures.items()})
        for name, found in flagged.items()
        if len(found)
        for figures in found.to_dict("records")
    ]
    table = keys.assign(
        freq_hz=runs["freq_hz"].to_numpy()[position],
        # Columns of text also where they are empty.
        check=np.repeat(np.array([*flagged], dtype=object), [*map(len, flagged.values())]),
        evidence=np.array(evidence, dtype=object),
        **_row_places(runs, position),
        position=position,
    )
    return table.sort_values("position", kind="stable", ignore_index=True)


def _row_places(runs: pd.DataFrame, position: IntArray) -> Mapping[str, Any]:
    """File and row number of each flagged row, below the header; of cells their runs."""
    if gr.is_cell_table(runs):
        return {"runs": gr.run_counts(runs)[position]}
    numbers = checks.row_numbers(runs)[position]
    one = str(runs.attrs.get("source", "runs"))
    files = np.full(len(position), one, dtype=object)
    if schema.FILE_COLUMN in runs.columns:
        files = runs[schema.FILE_COLUMN].to_numpy()[position]
    header_lines = runs.attrs.get(schema.HEADER_LINES, {})
    if not header_lines.keys() >= {*files} or not header_lines:
        return {"file": files, "row": numbers}
    above = np.array([header_lines[file] for file in files], dtype=np.int64)
    return {"file": files, "row": numbers, "line": numbers + above}
