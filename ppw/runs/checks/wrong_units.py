"""Watts and joules a thousand or a million times off the others of their sweep: another unit's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppw.runs import checks as ck
from ppw.runs import groups as gr
from ppw.runs.checks.inversions import sweep_codes

if TYPE_CHECKING:
    import pandas as pd

    from fitting.regression.lines import FloatArray, IntArray


_PREFIXES = {3: "milli", 6: "micro", -3: "kilo", -6: "mega"}
# Over the clocks of one sweep the watts change by less than so many times.
_WITHIN = np.log10(8.0)
# Decades between a slip of a thousand and one of a million.
_BETWEEN = 4.5
# Fewer of a sweep than one in so many are the slip, and the others are not.
_ONE_IN = 3
# From a core of a sleeping telephone to a server full of accelerators.
_LEAST_W, _MOST_W = np.log10(1e-3), np.log10(1e4)


class _Slips(NamedTuple):
    """What is wrong with each row."""

    # By how many decades, 0 if by none.
    decades: IntArray
    # Range of the values around.
    least: FloatArray
    most: FloatArray

    @classmethod
    def none(cls, rows: int) -> _Slips:
        """Find nothing wrong."""
        return cls(np.zeros(rows, dtype=np.int64), np.full(rows, np.nan), np.full(rows, np.nan))

    def put_rows(self, rows: IntArray, slips: _Slips) -> None:
        """Enter what was found of some rows."""
        for own, others in zip(self, slips, strict=True):
            own[rows] = others


class _Sides(NamedTuple):
    """Sorted values of sweeps, each parted at its widest gap; one entry a value."""

    sweep: IntArray
    logarithm: FloatArray
    high: ck.Mask
    gap: FloatArray

    @classmethod
    def of(cls, sweep: IntArray, logarithm: FloatArray) -> _Sides:
        """Part sweeps, numbered from 0 without holes."""
        new = np.diff(sweep, prepend=-1) != 0
        gap = np.where(new, 0.0, np.diff(logarithm, prepend=0.0))
        widest = np.maximum.reduceat(gap, np.flatnonzero(new))[sweep]
        parting = np.flatnonzero((gap == widest) & (gap > 0))
        begin = np.full(sweep[-1] + 1, len(sweep))
        np.minimum.at(begin, sweep[parting], parting)
        return cls(sweep, logarithm, np.arange(len(sweep)) >= begin[sweep], widest)

    def sums(self, values: FloatArray) -> FloatArray:
        """Sums over the low side of each value's sweep, and over the high one."""
        sides = [np.where(side, values, 0.0) for side in (~self.high, self.high)]
        sums = np.array([np.bincount(self.sweep, part) for part in sides], dtype=np.float64)
        return sums[:, self.sweep]

    def means(self, values: FloatArray, runs: FloatArray) -> FloatArray:
        """Means over the low side of each value's sweep, and over the high one."""
        return self.sums(values * runs) / self.sums(runs)

    def ranges(self) -> tuple[FloatArray, FloatArray]:
        """Least and most of the side that each value is not on."""
        side = 2 * self.sweep + self.high
        starts = np.flatnonzero(np.diff(side, prepend=-1))
        ends = np.append(starts[1:], len(side)) - 1
        at = np.zeros((2, 2 * (self.sweep[-1] + 1)), dtype=np.int64)
        at[:, side[starts]] = starts, ends
        least, most = (10 ** self.logarithm[rows[side ^ 1]] for rows in at)
        return least, most


def find_slips(runs: pd.DataFrame, groups: gr.Groups) -> ck.Findings:
    """Find watts, and joules, near 1000 or 1,000,000 times those of the other runs of their sweep.

    The values of a sweep (one group, and one setting of all the rest) are parted at their widest
    gap, if that is more than eightfold. The two sides are of two units when their geometric means,
    or the values at the gap, are within a factor of eight of a thousand or a million apart; what
    is left is looked at again. Wrong is the side with fewer than a third of the runs, and the one
    whose watts are no machine's (1 mW to 10 kW) where the other's are. Where this says nothing,
    nobody can know, and both are named. Joules are held against the time too, where it is known,
    since runs may be of any length.
    """
    power, energy = ck.numbers(runs, "power_w"), ck.numbers(runs, "energy_j")
    mean_power = energy / ck.numbers(runs, "time_s")
    sweep, each = sweep_codes(runs, groups), gr.run_counts(runs).astype(np.float64)
    of_power = _slips(power, np.log10(power), sweep, each)
    of_energy = _slips(energy, np.log10(mean_power), sweep, each)
    of_length = _slips(mean_power, np.log10(mean_power), sweep, each).decades
    longer = ~np.isnan(mean_power) & (of_length != of_energy.decades)
    joules = (of_power.decades == 0) & (of_energy.decades != 0) & ~longer
    rows = np.flatnonzero(joules | (of_power.decades != 0))
    decades, least, most = (
        np.where(joules, e, p)[rows] for e, p in zip(of_energy, of_power, strict=True)
    )
    figures = {
        "value": np.where(joules, energy, power)[rows],
        "frequency": ck.numbers(runs, "freq_hz")[rows],
        "least": least,
        "most": most,
        "decades": decades,
        "joules": joules[rows],
    }
    return ck.Findings(rows, figures)


def _slips(values: FloatArray, watts: FloatArray, sweep: IntArray, runs: FloatArray) -> _Slips:
    """Slips of values whose log watts, if known, say which side is no machine's."""
    found = _Slips.none(len(values))
    left = np.flatnonzero(np.isfinite(values) & (values > 0))
    left = left[np.lexsort((values[left], sweep[left]))]
    while left.size:
        slips = _slips_between(values[left], watts[left], sweep[left], runs[left])
        wrong = slips.decades != 0
        if not wrong.any():
            break
        found.put_rows(left[wrong], _Slips._make(part[wrong] for part in slips))
        left = left[~wrong]
    return found


def _slips_between(
    values: FloatArray, watts: FloatArray, sweep: IntArray, runs: FloatArray
) -> _Slips:
    """Slips between the two sides of each sweep, of values sorted by sweep and size."""
    number = np.cumsum(np.diff(sweep, prepend=sweep[0]) != 0)
    sides = _Sides.of(number, np.log10(values))
    low, high = sides.means(sides.logarithm, runs)
    # Where a sweep has slips of several kinds, only the gap shows them one by one.
    apart = (_near_a_slip(high - low) | _near_a_slip(sides.gap)) & (sides.gap > _WITHIN)
    distance = sides.logarithm - np.where(sides.high, low, high)
    decades = np.where(np.abs(distance) < _BETWEEN, 3, 6) * np.sign(distance).astype(np.int64)
    named = apart & _wrong(sides, watts, runs)
    return _Slips(np.where(named, decades, 0), *sides.ranges())


def _near_a_slip(distance: FloatArray) -> ck.Mask:
    near: ck.Mask = np.minimum(np.abs(distance - 3), np.abs(distance - 6)) <= _WITHIN
    return near


def _wrong(sides: _Sides, watts: FloatArray, runs: FloatArray) -> ck.Mask:
    """Values on the side that is wrong, or on either where nobody can know."""
    count = sides.sums(runs)
    few = (_ONE_IN - 1) * count < count[::-1]
    means = sides.means(watts, runs)
    odd = (means < _LEAST_W) | (means > _MOST_W)
    low, high = few | (odd & ~odd[::-1] & ~np.isnan(means).any(axis=0))
    wrong: ck.Mask = np.where(sides.high, high, low) | ~(low | high)
    return wrong


def _say_slip(
    value: float, frequency: float, least: float, most: float, decades: int, joules: bool
) -> str:
    unit, name = ("J", "joules") if joules else ("W", "watts")
    ends = dict.fromkeys((_plain(least), _plain(most)))
    return (
        f"{_plain(value)} {unit} at {_plain(frequency / 1e9)} GHz, {' to '.join(ends)} {unit} "
        f"around it: {_PREFIXES[decades]}{name}?"
    )


def _plain(value: float) -> str:
    """Write a number without a prefix, so that two are seen to be far apart."""
    return np.format_float_positional(value, precision=4, fractional=False, trim="-")


SLIP_OF_A_UNIT = ck.Check(
    name="slip_of_a_unit",
    meaning="power_w or energy_j is near 1000 or 1,000,000 times the other runs' of the sweep, or "
    "such a part of them",
    remedy="look up the unit that the meter of these runs logs in, and convert; where both sides "
    "are named, only their records tell which one is right",
    needs=(("power_w", "energy_j"),),
    spoils=ck.OF_WATTS,
    find=find_slips,
    say=_say_slip,
)


# Times as many times off the others of their sweep as two units of time are: another unit's.


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


def find_time_slips(runs: pd.DataFrame, groups: gr.Groups) -> ck.Findings:
    """Find times that are near 60, 1000, 3600 or 1,000,000 times their sweep's median, or parts.

    Within a sweep (one group, and one setting of all the rest) times differ by as much as the
    clocks do, and scatter. What is further off by one of these factors, and is a third of the
    sweep's runs at most, is of another unit; where more are, nobody can know.
    """
    time, frequency = ck.numbers(runs, "time_s"), ck.numbers(runs, "freq_hz")
    each = gr.run_counts(runs).astype(np.float64)
    sweep = sweep_codes(runs, groups)
    known = np.isfinite(time) & (time > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.where(known, np.log10(time), np.nan)
    middle = _medians(logarithm, sweep, np.where(known, each, 0.0))[sweep]
    off = logarithm - middle
    nearest = np.abs(np.abs(off)[:, None] - _FACTORS).argmin(axis=1)
    apart = np.abs(np.abs(off) - _FACTORS[nearest])
    usual = _frequency_decades(frequency, sweep)[sweep] + _SCATTER
    far: ck.Mask = (apart <= usual) & (np.abs(off) > np.maximum(usual, _LEAST))
    sweeps = int(sweep.max(initial=-1)) + 1
    count = np.bincount(sweep, each * far, sweeps)
    few = _ONE_IN * count <= np.bincount(sweep, each * known, sweeps)
    return ck.found_where(
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


def _frequency_decades(frequency: FloatArray, codes: IntArray) -> FloatArray:
    """Decades between the lowest and the highest clock of each code."""
    sweeps = int(codes.max(initial=-1)) + 1
    lowest, highest = np.full(sweeps, np.inf), np.full(sweeps, -np.inf)
    np.minimum.at(lowest, codes, frequency)
    np.maximum.at(highest, codes, frequency)
    decades: FloatArray = np.log10(highest / lowest)
    return decades


def _say_time_slip(time: float, frequency: float, middle: float, factor: float) -> str:
    size = abs(factor)
    among = next(s for f, s in (_UNITS if factor > 0 else _TURNED).items() if np.isclose(f, size))
    return (
        f"{time:.4g} s at {frequency / 1e9:.4g} GHz, and {middle:.4g} s in the middle of its "
        f"sweep: {among}?"
    )


TIME_OF_ANOTHER_UNIT = ck.Check(
    name="time_of_another_unit",
    meaning="time_s is near 60, 1000, 3600 or 1,000,000 times the other runs' of the sweep, or "
    "such a part of them",
    remedy="look up the unit that these runs were timed in, and convert; or see what held them up",
    needs=(("time_s",),),
    spoils=ck.ALL_METRICS,
    find=find_time_slips,
    say=_say_time_slip,
)
