"""Times as many times off the others of their sweep as two units of time are: another unit's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.checks.check import ALL_METRICS, Check, Found, found_where, numbers
from ppw.checks.inversions import sweep_codes
from ppw.condensed import run_counts

if TYPE_CHECKING:
    import pandas as pd

    from fitting.regression.lines import FloatArray, IntArray
    from ppw.checks.check import Mask
    from ppw.grouping import Groups

# What a time is too large by, and what was written among what.
_UNITS = {60.0: "seconds among minutes", 1e3: "ms among s", 3600.0: "seconds among hours"}
_UNITS |= {1e6: "µs among s"}
_TURNED = {factor: " among ".join(said.split(" among ")[::-1]) for factor, said in _UNITS.items()}
_FACTORS = np.log10(np.array([*_UNITS]))
# Runs at one clock differ by less than so many times (a tenth of a decade), and those of a sweep
# by its clocks more.
_SCATTER = 0.1
# A run that is held up takes less than so many times as long.
_LEAST = np.log10(8.0)
# Of a sweep at most one run in so many is the slip, and the others are not.
_ONE_IN = 3


def find(runs: pd.DataFrame, groups: Groups) -> Found:
    """Find times that are near 60, 1000, 3600 or 1,000,000 times their sweep's median, or parts.

    Within a sweep (one group, and one setting of all the rest) times differ by as much as the
    clocks do, and scatter. What is further off by one of these factors, and is a third of the
    sweep's runs at most, is of another unit; where more are, nobody can know.
    """
    time, frequency = numbers(runs, "time_s"), numbers(runs, "freq_hz")
    each = run_counts(runs).astype(np.float64)
    sweep = sweep_codes(runs, groups)
    known = np.isfinite(time) & (time > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.where(known, np.log10(time), np.nan)
    middle = _medians(logarithm, sweep, np.where(known, each, 0.0))[sweep]
    off = logarithm - middle
    nearest = np.abs(np.abs(off)[:, None] - _FACTORS).argmin(axis=1)
    apart = np.abs(np.abs(off) - _FACTORS[nearest])
    usual = _clocks(frequency, sweep)[sweep] + _SCATTER
    far: Mask = (apart <= usual) & (np.abs(off) > np.maximum(usual, _LEAST))
    sweeps = int(sweep.max(initial=-1)) + 1
    count = np.bincount(sweep, each * far, sweeps)
    few = _ONE_IN * count <= np.bincount(sweep, each * known, sweeps)
    return found_where(
        far & few[sweep],
        time=time,
        frequency=frequency,
        middle=10**middle,
        factor=np.where(off > 0, 1.0, -1.0) * 10 ** _FACTORS[nearest],
    )


def _medians(values: FloatArray, codes: IntArray, weight: FloatArray) -> FloatArray:
    """Lower weighted median of each code's values; NaN where there is none."""
    order = np.lexsort((values, codes))
    codes, values, weight = codes[order], values[order], weight[order]
    sweeps = int(codes.max(initial=-1)) + 1
    total = np.bincount(codes, weight, sweeps)
    before = np.cumsum(weight) - (np.cumsum(total) - total)[codes]
    half = np.flatnonzero((before >= total[codes] / 2) & (weight > 0))
    found = np.full(sweeps, np.nan)
    found[codes[half[::-1]]] = values[half[::-1]]
    return found


def _clocks(frequency: FloatArray, codes: IntArray) -> FloatArray:
    """Decades between the lowest and the highest clock of each code."""
    sweeps = int(codes.max(initial=-1)) + 1
    lowest, highest = np.full(sweeps, np.inf), np.full(sweeps, -np.inf)
    np.minimum.at(lowest, codes, frequency)
    np.maximum.at(highest, codes, frequency)
    decades: FloatArray = np.log10(highest / lowest)
    return decades


def _say(time: float, frequency: float, middle: float, factor: float) -> str:
    size = abs(factor)
    among = next(s for f, s in (_UNITS if factor > 0 else _TURNED).items() if np.isclose(f, size))
    return (
        f"{time:.4g} s at {frequency / 1e9:.4g} GHz, and {middle:.4g} s in the middle of its "
        f"sweep: {among}?"
    )


TIME_OF_ANOTHER_UNIT = Check(
    name="time_of_another_unit",
    meaning="time_s is near 60, 1000, 3600 or 1,000,000 times the other runs' of the sweep, or "
    "such a part of them",
    remedy="look up the unit that these runs were timed in, and convert; or see what held them up",
    needs=(("time_s",),),
    spoils=ALL_METRICS,
    find=find,
    say=_say,
)
