"""Steps of a program's power that other programs of its machine stand in for.

What the law of power misses belongs to the machine more than to the program: its voltage steps, its
power cap, its fans. Take a frequency at which a program was not measured, but others were. The law
projects the others there from the same steps, and misses them. In units of their standard
deviations the misses of all programs have one correlation. So they predict the program's own miss,
and the program gets a step there, with the variance that is left. However many the others are, the
program's own part stays open.

Source: the intraclass correlation, e.g. Searle, Casella & McCulloch, *Variance Components* (1992),
ch. 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.bayes.posterior import MANY_RUNS, SAME_STEP, FrequencyTarget, MeasuredSteps
from fitting.bayes.prediction import project_curve
from fitting.regression.lines import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from fitting.bayes.pooling import CmosPowerCurve, Neighbours

# Correlation of what the law misses of two programs of one machine.
SHARED_MISS = 0.8
# Frequencies beyond a group's own steps that others stand in at, the nearest first.
_MOST_BORROWED = 3
# Each range of a machine's programs is projected anew, which large tables have no time for.
_MOST_GROUPS, _MOST_TURNS = 2000, 60


class _Request(NamedTuple):
    """A frequency (Hz) asked of each group's machine, beyond measured ones; NaN for none."""

    lowest: FloatArray
    highest: FloatArray
    frequency: FloatArray


def borrow_steps(
    curve: CmosPowerCurve, steps: MeasuredSteps, neighbours: Neighbours
) -> MeasuredSteps:
    """Add steps where other programs of a machine were measured; large tables stay as they are."""
    if len(steps.count) > _MOST_GROUPS:
        return steps
    ends = _measured_ranges(steps)
    by_machine = _list_requests(steps, neighbours.machine, ends)
    borrowed = []
    # A range and a frequency of each machine at a time, all machines at once.
    turns = max(map(len, by_machine.values()), default=0)
    for turn in range(min(turns, _MOST_TURNS)):
        asked = np.full((len(steps.count), 3), np.nan)
        for machine, each in by_machine.items():
            if turn < len(each):
                asked[neighbours.machine == machine] = each[turn]
        borrowed.append(_borrow_at(curve, steps, neighbours, ends, _Request(*asked.T)))
    return steps.borrow(*map(np.concatenate, zip(*borrowed, strict=True))) if borrowed else steps


def _measured_ranges(steps: MeasuredSteps) -> FloatArray:
    """Lowest and highest frequency (Hz) of each group; NaN for a group without two steps."""
    ends = np.full((len(steps.count), 2), np.nan)
    several = np.flatnonzero(steps.count > 1)
    ends[several, 0] = steps.frequency[steps.first[several]]
    ends[several, 1] = steps.highest(several)[0]
    return ends


def _list_requests(
    steps: MeasuredSteps, machine: IntArray, ends: FloatArray
) -> dict[int, list[tuple[float, ...]]]:
    """List for each machine the ranges of its groups, with each frequency beyond them."""
    of_step = np.repeat(machine, steps.count)
    able = ~np.isnan(ends[:, 0])
    made: dict[int, list[tuple[float, ...]]] = {}
    for number in np.unique(machine[able]):
        every = np.unique(steps.frequency[of_step == number])
        every = every[np.diff(every, prepend=0.0) > SAME_STEP * every]
        for low, high in np.unique(ends[able & (machine == number)], axis=0):
            outside = (every > high * (1 + SAME_STEP)) | (every < low * (1 - SAME_STEP))
            beyond = every[outside]
            near = np.argsort(np.abs(np.log(beyond / np.sqrt(low * high))))[:_MOST_BORROWED]
            made.setdefault(int(number), []).extend((low, high, f) for f in beyond[near])
    return made


def _borrow_at(
    curve: CmosPowerCurve,
    steps: MeasuredSteps,
    neighbours: Neighbours,
    ends: FloatArray,
    asked: _Request,
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Group, frequency (Hz), ln y and its variance, of the steps that others stand in for."""
    group = np.repeat(np.arange(len(steps.count)), steps.count)
    low, high, target = (part[group] for part in asked)
    inside = (steps.frequency > low * (1 - SAME_STEP)) & (steps.frequency < high * (1 + SAME_STEP))
    there = np.abs(steps.frequency / target - 1) <= SAME_STEP
    measured, runs = np.full(len(ends), np.nan), np.full(len(ends), MANY_RUNS)
    measured[group[there]], runs[group[there]] = steps.log_value[there], steps.runs[there]
    known = steps.choose(inside)
    # Only steps of the same ladder tell: the cores of a machine may be of two kinds.
    apart = np.abs(_measured_ranges(known) / np.column_stack(asked[:2]) - 1)
    is_told = ~np.isnan(measured) & (apart <= SAME_STEP).all(axis=1)
    # What lies between a group's own steps is left to them.
    is_asking = (ends == np.column_stack(asked[:2])).all(axis=1) & np.isnan(measured)
    frequency = np.where(is_told | is_asking, asked.frequency, np.nan)
    found = project_curve(curve, known, FrequencyTarget(frequency, runs), neighbours, [0.5])
    mean, variance = found.mixture.moments()
    programs, total = _misses_by_machine((measured - mean) / np.sqrt(variance), is_told, neighbours)
    to = np.flatnonzero(is_asking & (programs > 0))
    n = programs[to]
    share = n * SHARED_MISS**2 / (1 + (n - 1) * SHARED_MISS)
    value = mean[to] + np.sqrt(variance[to]) * total[to] / n / SHARED_MISS
    return to, asked.frequency[to], value, variance[to] * (1 / share - 1)


def _misses_by_machine(
    miss: FloatArray, is_told: BoolArray, neighbours: Neighbours
) -> tuple[IntArray, FloatArray]:
    """Number of measured programs on each group's machine, and sum of their (mean) misses."""
    _, program = np.unique(neighbours.cluster, return_inverse=True)
    _, machine = np.unique(neighbours.machine, return_inverse=True)
    counts = np.bincount(program[is_told], minlength=program.max() + 1)
    totals = np.bincount(program[is_told], miss[is_told], program.max() + 1)
    of_program = np.zeros(len(counts), dtype=np.int64)
    of_program[program] = machine
    found = counts > 0
    programs = np.bincount(of_program[found], minlength=machine.max() + 1).astype(np.int64)
    mean = totals[found] / counts[found]
    total = np.bincount(of_program[found], mean, machine.max() + 1)[machine].astype(np.float64)
    return programs[machine], total
