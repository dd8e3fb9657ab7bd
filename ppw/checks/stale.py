"""Runs at different frequencies that agree in every digit: one of them was never made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fitting.bayes.steps import SAME_STEP
from ppw.checks.check import ALL_METRICS, Check, Found, host_codes, lacking, nothing, numbers
from ppw.checks.digits import all_digits, recorded_step
from ppw.condensed import (
    SINGLE,
    is_condensed_table,
    least_column,
    most_column,
    run_counts,
)
from ppw.estimate import shown

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray, IntArray
    from ppw.checks.check import Mask
    from ppw.grouping import Groups

# Within this share the runs of a program that the clock does not touch scatter, on a quiet
# machine; so many recorded values within it, so unlikely is it that two runs give the same one.
_TIME_SCATTER = 0.003
_POWER_SCATTER = 0.01
_MOST_VALUES = 1e6
# Without watts the time must have so many, since a very quiet machine scatters less.
_TIME_ALONE = 1e4
# No coincidence likelier than this is named, and of all that are at most so many are chance.
_CHANCE = 1e-3
_FALSE_DISCOVERIES = 0.01
# A run that was made has its own of these; a copied row has the other's.
MEASURED = (
    *("time_s", "throughput_ops_s", "energy_j", "instructions", "cycles", "cpi"),
    *("latency_p50_s", "latency_p99_s", "user_s", "system_s", "idle_s", "iowait_s"),
    *("sectors_read", "sectors_written", "network_rx_bytes", "network_tx_bytes"),
)


def find(runs: pd.DataFrame, groups: Groups) -> Found:
    """Find rows of one group that agree in time and watts to every digit at several frequencies.

    Coarse records agree by chance, so the digits decide. A program that the clock does not touch
    gives times within 0.3 % and watts within 1 %; the recorded values that fit into that say how
    likely two equal ones are. Named is what is less likely than 1 in 1000 and, by the procedure
    of Benjamini and Hochberg over all rows compared, chance in at most 1 % of the cases named.
    Watts that do not vary, as a nameplate's, say nothing; then the time must have the digits:
    about seven. Rows that differ in another measured quantity, such as cycles, are two runs.

    References
    ----------
    Y. Benjamini and Y. Hochberg, "Controlling the False Discovery Rate", J. R. Statist. Soc. B 57
    (1995), 289-300.
    """
    varying, compared = _varying(runs), _compared(runs)
    if SINGLE in runs.columns:
        # Cells of many runs have no digits; none of theirs are equal, as the engine has found.
        where = np.flatnonzero(runs[SINGLE].to_numpy(dtype=bool))
        single = replace(groups, codes=groups.codes[where])
        found = _find(runs.iloc[where], single, varying[where], compared)
        return Found(where[found.rows], found.figures)
    return nothing() if is_condensed_table(runs) else _find(runs, groups, varying, compared)


def _find(runs: pd.DataFrame, groups: Groups, varying: Mask, compared: int) -> Found:
    rows, run = _equal_rows(runs, groups.codes)
    if not rows.size:
        return nothing()
    first = np.flatnonzero(np.diff(run, prepend=-1))
    chance = _chance(runs, groups, rows[first], varying)
    chance[_differ_elsewhere(runs, rows, first)] = 1.0
    named = _beyond_chance(chance, np.bincount(run) - 1, compared)[run]
    rows, run = rows[named], run[named]
    return _described(runs, rows, run)


def _pace(runs: pd.DataFrame) -> FloatArray:
    """Recorded time, or throughput where no time was."""
    time = numbers(runs, "time_s")
    return np.where(np.isnan(time), numbers(runs, "throughput_ops_s"), time)


def _equal_rows(runs: pd.DataFrame, codes: IntArray) -> tuple[IntArray, IntArray]:
    """Rows that equal another in pace and watts at another frequency; and in which set they are."""
    pace, frequency = _pace(runs), numbers(runs, "freq_hz")
    # Not recorded is equal to not recorded.
    power = np.nan_to_num(numbers(runs, "power_w"), nan=-np.inf)
    order = np.lexsort((frequency, power, pace, codes))
    order = order[pace[order] > 0]
    new = np.logical_or.reduce([np.diff(v[order], prepend=np.nan) != 0 for v in (codes, pace)])
    new |= np.append(True, power[order][1:] != power[order][:-1])
    starts, run = np.flatnonzero(new), np.cumsum(new) - 1
    ends = np.append(starts[1:], len(order)) - 1
    sorted_frequency = frequency[order]
    several = sorted_frequency[ends] > (1 + SAME_STEP) * sorted_frequency[starts]
    chosen = several[run]
    renumbered = np.cumsum(several) - 1
    return order[chosen], renumbered[run[chosen]]


def _compared(runs: pd.DataFrame) -> int:
    """How many runs have a pace."""
    if not is_condensed_table(runs):
        return int(np.count_nonzero(_pace(runs) > 0))
    known = [run_counts(runs) - lacking(runs, c) for c in ("time_s", "throughput_ops_s")]
    return int(np.maximum(*known).sum())


def _varying(runs: pd.DataFrame) -> Mask:
    """Rows of hosts whose watts vary."""
    ends = [numbers(runs, "power_w")] * 2
    if is_condensed_table(runs):
        ends = [numbers(runs, column("power_w")) for column in (least_column, most_column)]
    least, most = (pd.Series(end).groupby(host_codes(runs)) for end in ends)
    varies: Mask = (least.transform("min") < most.transform("max")).to_numpy()
    return varies


def _chance(runs: pd.DataFrame, groups: Groups, rows: IntArray, varying: Mask) -> FloatArray:
    """How likely two runs that the clock does not touch are recorded as equal to these rows."""
    pace, power = _pace(runs), numbers(runs, "power_w")
    times = _values_within(_TIME_SCATTER, pace[rows])
    watts = _values_within(_POWER_SCATTER, power[rows])
    # Watts that were measured vary on the host, and in the group go with one time.
    tells = varying & _alone(power, pace, groups)
    watts = np.where(tells[rows], np.maximum(watts, 1.0), 1.0)
    needed = np.where(watts > 1, 1.0, _TIME_ALONE)
    coarse = (times < needed) | ~_alone(pace, power, groups)[rows]
    return np.where(coarse, 1.0, 1 / (times * watts))


def _values_within(share: float, values: FloatArray) -> FloatArray:
    """Recorded values that fit into a share of a value; 0 where there is no value."""
    known = np.nan_to_num(np.abs(values))
    return np.minimum(share * known / recorded_step(known), _MOST_VALUES)


def _alone(values: FloatArray, others: FloatArray, groups: Groups) -> Mask:
    """Rows whose value goes with one of the others only, in all their group."""
    order = np.lexsort((others, values, groups.codes))
    code, value, other = groups.codes[order], values[order], others[order]
    same = (code[1:] == code[:-1]) & (value[1:] == value[:-1])
    new = np.append(True, ~same)
    # Two that are not known are not two values.
    changes = np.append(False, same & (other[1:] != other[:-1]) & ~np.isnan(other[1:]))
    run = np.cumsum(new) - 1
    alone = np.empty(len(values), dtype=bool)
    alone[order] = (np.bincount(run, changes) == 0)[run]
    return alone


def _differ_elsewhere(runs: pd.DataFrame, rows: IntArray, first: IntArray) -> Mask:
    """Sets of rows that are several runs, because another measured column tells them apart."""
    differ = np.zeros(len(first), dtype=bool)
    for column in MEASURED:
        values = numbers(runs, column)[rows]
        differ |= np.fmax.reduceat(values, first) > np.fmin.reduceat(values, first)
    return differ


def _beyond_chance(chance: FloatArray, coincidences: IntArray, compared: int) -> Mask:
    """Sets of equal rows that chance does not explain; Benjamini and Hochberg's procedure."""
    order = np.argsort(chance, kind="stable")
    allowed = _FALSE_DISCOVERIES * np.cumsum(coincidences[order]) / compared
    passing = np.flatnonzero(chance[order] <= np.minimum(allowed, _CHANCE))
    beyond = np.zeros(len(chance), dtype=bool)
    beyond[order[: passing[-1] + 1 if passing.size else 0]] = True
    return beyond


def _described(runs: pd.DataFrame, rows: IntArray, run: IntArray) -> Found:
    frequency = numbers(runs, "freq_hz")[rows]
    steps = pd.Series(frequency).groupby(run)
    figures = {
        "time": numbers(runs, "time_s")[rows],
        "throughput": numbers(runs, "throughput_ops_s")[rows],
        "power": numbers(runs, "power_w")[rows],
        "lowest": steps.transform("min").to_numpy(),
        "highest": steps.transform("max").to_numpy(),
        "steps": steps.transform("nunique").to_numpy(),
    }
    order = np.argsort(rows)
    return Found(rows[order], {name: values[order] for name, values in figures.items()})


def _say(
    time: float, throughput: float, power: float, lowest: float, highest: float, steps: int
) -> str:
    timed = not np.isnan(time)
    same = f"{all_digits(time)} s" if timed else f"{all_digits(throughput)} operations/s"
    same += "" if np.isnan(power) else f" and {all_digits(power)} W"
    ends = f"{shown(lowest, 'Hz')} and {shown(highest, 'Hz')}"
    where = f"at {ends}" if steps == 2 else f"at {steps} frequencies between {ends}"
    return f"the same {same}, to every digit, {where}"


FREQUENCY_NOT_APPLIED = Check(
    name="frequency_not_applied",
    meaning="runs at different frequencies agree in time and watts to every digit, so that one "
    "was not made at its frequency, or not at all; nobody knows which",
    remedy="measure these steps again and record what the counters say (freq_achieved_hz)",
    needs=(("time_s", "throughput_ops_s"),),
    spoils=ALL_METRICS,
    find=find,
    say=_say,
)
