"""Rows that contradict their sweep: slower, at a part of their frequency, or in another unit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from fitting.regression.lines import FloatArray, IntArray
from measurements.table.schema import COLUMNS, IDENTITY
from ppw.results.text import shown
from ppw.runs import groups as gr

# Rows or steps as numpy.recarray, one entry each; types know nothing of columns as attributes.
Records = Any

# Columns of the schema that set how a run was made; others of it are what was measured.
_SETTING_COLUMNS = (*IDENTITY, "load", "sockets")
# A column of the user's own that has no more values than this is a setting, not a measurement.
_SETTINGS = 16


def sweep_codes(runs: pd.DataFrame, groups: gr.Groups) -> IntArray:
    """Number the sweep of each row: its group at one value of every other setting."""
    codes = groups.codes
    steps = pd.factorize(runs["freq_hz"])[0]
    for column in gr.key_columns(runs) if gr.is_cell_table(runs) else runs.columns:
        measured = (column in COLUMNS or column == gr.FLAGS) and column not in _SETTING_COLUMNS
        if column in groups.by or measured:
            continue
        # A note beside a few rows of a group is no setting.
        is_given = runs[column].notna().to_numpy()
        has_some = np.bincount(groups.codes, is_given)[groups.codes] > 0
        if column not in IDENTITY and has_some.any() and is_given[has_some].mean() < 0.5:
            continue
        values, distinct = pd.factorize(runs[column], use_na_sentinel=False)
        if column in IDENTITY or _is_setting(values, len(distinct), steps):
            codes = pd.factorize(codes * len(distinct) + values)[0]
    return codes.astype(np.int64)


def _is_setting(values: IntArray, count: int, steps: IntArray) -> bool:
    """Tell whether a column has few values that do not follow the frequency."""
    if not 1 < count <= _SETTINGS:
        return False
    frequencies = int(steps.max()) + 1
    together = len(pd.unique(steps * count + values))
    # A file a frequency, say, is no setting of its own.
    return together != frequencies or 3 * count <= frequencies


# Steps at which the work goes slower than at a lower frequency.

# A slower step at a faster clock is named when the time rises by more than one of these: where
# both steps were repeated; in a sweep of eight steps or more, which shows its own scatter; in a
# shorter one. Single runs of good measurements rise by up to 18 % (canneal and videoprocessing
# of the Nornir sweeps).
_RISE_REPEATED, _RISE_LONG, _RISE_SHORT = 0.10, 0.20, 0.30
_LONG = 8
# Three second differences at least make a median.
_JUDGED = 5
# … and by more than so many standard deviations of the sweep's scatter, and standard errors of
# the repeats.
_SCATTERS, _ERRORS = 6.0, 5.0
# … and, in a sweep too short to show its own scatter, than so many times what one neighbouring
# pair in ten of the table, of ten or more, breaks the law by.
_HABITS, _ONE_PAIR_IN = 3.0, 10
# Beyond so many steps two of them are not compared; no machine has more between two outliers.
_FARTHEST = 64
# With up to three steps left, one that is nearly as much to blame as the worst is named with it.
_FEW, _NEARLY = 3, 0.7
_TIE = 0.999


def find_inversions(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find the steps that contradict the rest of their sweep.

    A core at a faster clock does the same work in no more time. Where the time rises by more than
    noise, one of the two steps is wrong; which one, the rest of the sweep says: from one step to
    any other the time must fall by nothing to the ratio of the clocks, and the step that breaks
    this most is named, and taken out, until nothing contradicts. With two steps nobody can say,
    and both are named; so are, with three, two that are about equally to blame.

    Noise is what the repeats scatter and what the steps scatter about a smooth sweep (median
    second difference), of the sweep or, below eight steps, of the table, whichever is more; there
    the pairs of the table that break the law count too, so that a noisy table is not named. A
    rise of less than 10 % with repeats, 20 % in a sweep of eight steps or more, 30 % in a
    shorter one, and a last digit of either time more, is never named. Runs that differ in another
    setting are not compared: identity columns that are not in ``by``, ``load``, ``sockets``, and
    columns of the user's own with few values, unless they go with the frequency.
    """
    rows = _recorded_rows(runs, groups)
    steps = _steps_with_noise(rows)
    rise, other = _contradicting_steps(steps)
    rows = rows[rise[rows.step] > 0]
    against = steps[other[rows.step]]
    figures = {
        "time": np.exp(steps.log_time[rows.step]),
        "frequency": steps.frequency[rows.step],
        "other_time": np.exp(against.log_time),
        "other_frequency": against.frequency,
        "rate": rows.rated,
    }
    return pd.DataFrame(figures, index=rows.position).sort_index()


def _recorded_rows(runs: pd.DataFrame, groups: gr.Groups) -> Records:
    """Rows with a time, or a throughput where all of a group have one, by sweep and frequency.

    ``log_time`` is the mean log time of a row's runs, ``squares`` are about it; ``finest`` is the
    decimal step that the values were recorded to, ``inverse`` the mean of their inverse.
    """
    unrated = np.bincount(groups.codes, gr.lacking(runs, "throughput_ops_s"), len(groups))
    # The throughput comes first, because a service may run for a fixed time.
    rated = (unrated == 0)[groups.codes]
    value = np.where(rated, gr.numbers(runs, "throughput_ops_s"), gr.numbers(runs, "time_s"))
    record = [np.log(value), 0 * value, value**0, gr.recorded_step(value), 1 / value]
    if gr.is_cell_table(runs):
        record = _record_of_cells(runs, rated)
    record[0] = np.where(rated, -1.0, 1.0) * record[0]
    frequency, sweep = gr.numbers(runs, "freq_hz"), sweep_codes(runs, groups)
    order = np.lexsort((frequency, sweep))
    order = order[value[order] > 0]
    columns = [order, *(values[order] for values in (rated, sweep, frequency, *record))]
    names = "position,rated,sweep,frequency,log_time,squares,runs,finest,inverse,step"
    sweep, frequency = sweep[order], frequency[order]
    new = (np.diff(sweep) != 0) | (frequency[1:] > (1 + SAME_STEP) * frequency[:-1])
    # numpy's own types take names with formats alone.
    steps = np.cumsum(np.append(0, new))
    return np.rec.fromarrays([*columns, steps], names=names)  # type: ignore[call-overload]


def _record_of_cells(runs: pd.DataFrame, rated: gr.Mask) -> list[FloatArray]:
    """Moments of log and inverse time or rate of each cell, as `_recorded_rows` has them."""
    record = np.full((5, len(runs)), np.nan)
    for column, chosen in (("throughput_ops_s", rated), ("time_s", ~rated)):
        if gr.is_aggregated(runs, column):
            log, inverse = (gr.repeats(runs, column, c) for c in (gr.LOG, gr.INVERSE))
            finest = gr.numbers(runs, gr.finest_column(column))
            parts = np.array([log.mean, log.squares, log.runs, finest, inverse.mean])
            record[:, chosen] = parts[:, chosen]
    return list(record)


def _steps_with_noise(rows: Records) -> Records:
    """Steps of all sweeps with their mean log time, and what it may rise by.

    ``floor`` is the least rise that is named, ``scatter`` and ``deviation`` are the standard
    deviations of a step about the sweep and of a run about its repeats, and ``digit`` is the last
    recorded digit as a share of the value.
    """
    first, runs = np.flatnonzero(np.diff(rows.step, prepend=-1)), np.bincount(rows.step, rows.runs)
    # Sweeps are numbered anew, without holes.
    sweep = np.cumsum(np.diff(rows.sweep[first], prepend=rows.sweep[0]) != 0)
    frequency = rows.frequency[first]
    log_time = np.bincount(rows.step, rows.runs * rows.log_time) / runs
    size, of_row = np.bincount(sweep), sweep[rows.step]
    scatter = np.where(size >= _JUDGED, _scatter_by_sweep(sweep, frequency, log_time), 0.0)
    squares = rows.runs * (rows.log_time - log_time[rows.step]) ** 2 + rows.squares
    freedom = np.bincount(sweep, runs - 1)
    deviation = np.sqrt(np.bincount(of_row, squares) / freedom)
    # The table's typical noise is the least for a sweep too short to show its own.
    known = scatter[size >= _JUDGED], deviation[freedom > 0]
    typical = [float(np.median(values)) if values.size else 0.0 for values in known]
    breaks = np.sort(_excess_rise(frequency, log_time, 1)[np.diff(sweep) == 0])
    habit = breaks[-1 - len(breaks) // _ONE_PAIR_IN] if len(breaks) >= _ONE_PAIR_IN else 0.0
    short = size < _LONG
    floor = np.maximum(np.log1p(np.where(short, _RISE_SHORT, _RISE_LONG)), short * _HABITS * habit)
    scatter = np.where(short, np.maximum(scatter, typical[0]), scatter)
    deviation = np.maximum(np.where(freedom > 0, deviation, 0.0), typical[1])
    finest = np.minimum.reduceat(rows.finest, np.flatnonzero(np.diff(of_row, prepend=-1)))
    digit = finest[sweep] * np.bincount(rows.step, rows.runs * rows.inverse) / runs
    columns = [sweep, frequency, log_time, runs, *(x[sweep] for x in (floor, scatter, deviation))]
    names = "sweep,frequency,log_time,repeats,floor,scatter,deviation,digit"
    return np.rec.fromarrays([*columns, digit], names=names)  # type: ignore[call-overload]


def _scatter_by_sweep(sweep: IntArray, frequency: FloatArray, log_time: FloatArray) -> FloatArray:
    """Standard deviation of steps about a smooth sweep; 0 where it is unknown."""
    x, y = np.log(frequency), log_time
    inside = sweep[2:] == sweep[:-2]
    nearness = (x[1:-1] - x[:-2])[inside] / (x[2:] - x[:-2])[inside]
    between = (1 - nearness) * y[:-2][inside] + nearness * y[2:][inside]
    second = np.abs(y[1:-1][inside] - between)
    gain = np.sqrt(1 + nearness**2 + (1 - nearness) ** 2)
    each, sweeps = np.ones(len(second)), int(sweep[-1]) + 1
    medians = _weighted_medians(second / gain, sweep[1:-1][inside], each, sweeps, upper=True)
    return 1.4826 * np.nan_to_num(medians)


def _excess_rise(frequency: FloatArray, log_time: FloatArray, apart: int) -> FloatArray:
    """Rise of log time, or fall beyond the clocks' ratio, to the step ``apart`` places on, or 0."""
    rise = log_time[apart:] - log_time[:-apart]
    clock = np.log(frequency[apart:] / frequency[:-apart])
    return np.maximum(np.maximum(rise, -rise - clock), 0.0)


def _contradicting_steps(steps: Records) -> tuple[FloatArray, IntArray]:
    """Rise of log time of each contradicting step and the step it contradicts; 0 for others."""
    rise, other = np.zeros(len(steps)), np.zeros(len(steps), dtype=np.int64)
    left = np.arange(len(steps))
    while left.size:
        amount, worst, against = _contradictions(steps)
        contradicting = worst > 0
        most = np.zeros(steps.sweep.max() + 1)
        np.maximum.at(most, steps.sweep[contradicting], amount[contradicting])
        share = np.where(np.bincount(steps.sweep)[steps.sweep] <= _FEW, _NEARLY, _TIE)
        named = contradicting & (amount >= share * most[steps.sweep])
        rise[left[named]] = worst[named]
        other[left[named]] = left[against[named]]
        # Only a sweep that contradicted itself may do so without the steps that were named.
        stay = np.isin(steps.sweep, steps.sweep[named]) & ~named
        steps, left = steps[stay], left[stay]
    return rise, other


def _contradictions(steps: Records) -> tuple[FloatArray, FloatArray, IntArray]:
    """How much each step contradicts its sweep, its largest rise, and against which step."""
    amount, worst = np.zeros(len(steps)), np.zeros(len(steps))
    other = np.zeros(len(steps), dtype=np.int64)
    for apart in range(1, min(np.bincount(steps.sweep).max(), _FARTHEST)):
        slow, fast = steps[:-apart], steps[apart:]
        same, rise = slow.sweep == fast.sweep, fast.log_time - slow.log_time
        excess = np.where(same, _excess_rise(steps.frequency, steps.log_time, apart), 0.0)
        amount[:-apart] += excess
        amount[apart:] += excess
        both = np.minimum(slow.repeats, fast.repeats) > 1
        error = slow.deviation * np.sqrt(1 / slow.repeats + 1 / fast.repeats)
        noise = np.maximum(_SCATTERS * slow.scatter, _ERRORS * error)
        least = np.maximum(np.where(both, np.log1p(_RISE_REPEATED), slow.floor), noise)
        beyond = same & (rise > least + slow.digit + fast.digit)
        for start, away in ((0, apart), (apart, -apart)):
            worse = np.flatnonzero(beyond & (rise > worst[start : start + len(rise)]))
            worst[worse + start] = rise[worse]
            other[worse + start] = worse + start + away
    return amount, worst, other


def say_inversion(
    time: float, frequency: float, other_time: float, other_frequency: float, rate: bool
) -> str:
    """Say how much slower a step is at the faster clock."""
    slower, faster = (time, other_time) if frequency > other_frequency else (other_time, time)
    here, there = (
        f"{shown(1 / t)} operations/s" if rate else shown(t, "s") for t in (time, other_time)
    )
    change = f"{100 * (slower / faster - 1):.0f} % slower at the higher frequency"
    return (
        f"at {shown(frequency, 'Hz')} {here}, at {shown(other_frequency, 'Hz')} {there}: {change}"
    )


# Steps that took the time of a half or a third of their frequency, by the rest of their sweep.

_PARTS = {2: "a half", 3: "a third"}
# Steps of good sweeps are off the law by this share, whatever their repeats say.
_OFF_LAW = 0.01
# Within so many standard errors two times agree; and the time must be so many times nearer to
# the line at the part of the frequency than at the frequency.
_AGREE, _NEARER = 3.0, 4.0


def find_parts(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find the steps whose time is that of a half or a third of their frequency.

    In sweeps of three steps or more each step is compared with the line T = a + w/f, a, w >= 0,
    through the others. It ran at f/k if the line gives its time at f/k, but not at f, where the
    step is slower by 30 % and beyond noise; of several in a sweep the nearest is named. Because
    curves of good programs may have knees, the step must also be slower than the one below it, or
    than the one above it by more than the ratio of the frequencies. Noise is what the others are
    off their line, what is usual for that in the table, what repeats scatter, or 1 %, whichever
    is most; to single runs of short sweeps the least rise of `find_inversions` applies too.
    """
    rows = _recorded_rows(runs, groups)
    steps = _steps_with_noise(rows)
    # In most tables no step is slower than its neighbours allow, by more than the least noise.
    if (_beyond_any_law(steps) <= np.sqrt(2) * _AGREE * _OFF_LAW).all():
        return pd.DataFrame()
    lines = _OtherSteps.of(steps)
    part = _parts_of_frequency(steps, lines)[rows.step]
    rows, part = rows[part > 0], part[part > 0]
    slower, _ = lines.distance(1)
    figures = {
        "time": np.exp(steps.log_time[rows.step]),
        "frequency": steps.frequency[rows.step],
        "expected": np.exp((steps.log_time - slower)[rows.step]),
        "part": part,
        "rate": rows.rated,
    }
    return pd.DataFrame(figures, index=rows.position).sort_index()


class _OtherSteps(NamedTuple):
    """Line T = a + w·x of each step, x the inverse frequency, through the others of its sweep."""

    x: FloatArray
    log_time: FloatArray
    fixed: FloatArray
    work: FloatArray
    misfit: FloatArray  # standard deviation of the others about the line
    inverse: FloatArray  # (a, a), (a, w) and (w, w) of the inverse of the normal equations' matrix

    @classmethod
    def of(cls, steps: Records) -> _OtherSteps:
        """Fit the bounded lines of all steps by relative errors."""
        sweep, size = steps.sweep, np.bincount(steps.sweep)
        # Relative to the middle of their sweep, sums lose no digits.
        log_time, x = steps.log_time, 1 / steps.frequency
        log_time = log_time - (np.bincount(sweep, log_time) / size)[sweep]
        x = x / (np.bincount(sweep, x) / size)[sweep]
        # Divided by T the line is 1 = a·u + w·v.
        u, v = np.exp(-log_time), x * np.exp(-log_time)
        products = (u, v, u * u, u * v, v * v)
        su, sv, uu, uv, vv = (np.bincount(sweep, p)[sweep] - p for p in products)
        inverse = np.array([vv, -uv, uu]) / (uu * vv - uv**2)
        fixed, work = inverse[0] * su + inverse[1] * sv, inverse[1] * su + inverse[2] * sv
        low, flat, others = fixed < 0, work < 0, size[sweep] - 1
        fixed = np.where(low, 0.0, np.where(flat, su / uu, fixed))
        work = np.where(flat, 0.0, np.where(low, sv / vv, work))
        squares = np.maximum(others - fixed * su - work * sv, 0.0)
        misfit = np.sqrt(squares / np.maximum(others - 2, 1))
        return cls(x, log_time, fixed, work, misfit, inverse)

    def distance(self, divisor: int) -> tuple[FloatArray, FloatArray]:
        """Log time above the line at a part of the frequency, and its error in errors of a step."""
        x = divisor * self.x
        line = self.fixed + self.work * x
        variance = self.inverse[0] + 2 * x * self.inverse[1] + x**2 * self.inverse[2]
        return self.log_time - np.log(line), np.sqrt(1 + variance / line**2)


def _parts_of_frequency(steps: Records, lines: _OtherSteps) -> IntArray:
    """Divisor k of each step that ran at f/k; 0 for others."""
    sweep, size = steps.sweep, np.bincount(steps.sweep)
    best = _least_by_sweep(lines.misfit, sweep)
    best = best[(size >= _JUDGED) & np.isfinite(best)]
    usual = max(_OFF_LAW, float(np.median(best)) if best.size else 0.0)
    noise = np.maximum(steps.deviation / np.sqrt(steps.repeats), np.maximum(lines.misfit, usual))
    slower, error = lines.distance(1)
    alone = (size[sweep] < _JUDGED) & (steps.repeats < 2)
    least = np.maximum(
        np.where(alone, steps.floor, np.log1p(_RISE_SHORT)), _SCATTERS * noise * error
    )
    slow = (size[sweep] > 2) & (slower > least + 2 * steps.digit)
    slow &= _beyond_any_law(steps) > np.sqrt(2) * _AGREE * noise + 2 * steps.digit
    part, nearest = np.zeros(len(steps), dtype=np.int64), np.full(len(steps), np.inf)
    for divisor in _PARTS:
        off, error = lines.distance(divisor)
        agrees = np.abs(off) <= np.minimum(_AGREE * noise * error, slower / _NEARER)
        off = np.hypot(off, lines.misfit)
        nearer = slow & agrees & (off < nearest)
        part[nearer], nearest[nearer] = divisor, off[nearer]
    return np.where(nearest <= _least_by_sweep(nearest, sweep)[sweep], part, 0)


def _least_by_sweep(values: FloatArray, sweep: IntArray) -> FloatArray:
    """Least value of each sweep."""
    return np.asarray(np.minimum.reduceat(values, np.flatnonzero(np.diff(sweep, prepend=-1))))


def _beyond_any_law(steps: Records) -> FloatArray:
    """Log time of each step above the most that its neighbours in the sweep allow."""
    rise, same = np.diff(steps.log_time), np.diff(steps.sweep) == 0
    above = np.where(same, rise, -np.inf)
    below = np.where(same, -rise - np.diff(np.log(steps.frequency)), -np.inf)
    return np.asarray(np.maximum(np.append(-np.inf, above), np.append(below, -np.inf)))


def say_part(time: float, frequency: float, expected: float, part: int, rate: bool) -> str:
    """Say the time of a step, that of its sweep, and the frequency that it ran at."""
    here, there = (
        f"{shown(1 / t)} operations/s" if rate else shown(t, "s") for t in (time, expected)
    )
    return (
        f"at {shown(frequency, 'Hz')} {here}, where the other steps give {there}: it probably ran "
        f"at {_PARTS[part]} of its frequency, {shown(frequency / part, 'Hz')}"
    )


# Power and energy a thousand or a million times off the others of their sweep: another unit's.

_PREFIXES = {3: "milli", 6: "micro", -3: "kilo", -6: "mega"}
# Over the clocks of one sweep the watts change by less than so many times.
_WITHIN = np.log10(8.0)
# Decades between a slip of a thousand and one of a million.
_BETWEEN = 4.5
# Fewer of a sweep than one in so many are the slip, and the others are not.
_ONE_IN = 3
# From a core of a sleeping telephone to a server full of accelerators.
_LEAST_W, _MOST_W = np.log10(1e-3), np.log10(1e4)


class _Sides(NamedTuple):
    """Sorted values of sweeps, each parted at its widest gap; one entry a value."""

    sweep: IntArray
    logarithm: FloatArray
    high: gr.Mask
    gap: FloatArray

    @classmethod
    def of(cls, sweep: IntArray, logarithm: FloatArray) -> _Sides:
        """Part each sweep's values, sorted, into two sides at the widest gap."""
        new = np.diff(sweep, prepend=-1) != 0
        gap = np.where(new, 0.0, np.diff(logarithm, prepend=0.0))
        widest = np.maximum.reduceat(gap, np.flatnonzero(new))[sweep]
        parting = np.flatnonzero((gap == widest) & (gap > 0))
        begin = np.full(sweep[-1] + 1, len(sweep))
        np.minimum.at(begin, sweep[parting], parting)
        return cls(sweep, logarithm, np.arange(len(sweep)) >= begin[sweep], widest)

    def sums(self, values: FloatArray) -> FloatArray:
        """Sums over the low and the high side of each value's sweep: (2, values)."""
        sides = [np.where(side, values, 0.0) for side in (~self.high, self.high)]
        sums = np.array([np.bincount(self.sweep, part) for part in sides], dtype=np.float64)
        return sums[:, self.sweep]

    def means(self, values: FloatArray, runs: FloatArray) -> FloatArray:
        """Means over the low and the high side of each value's sweep: (2, values)."""
        return self.sums(values * runs) / self.sums(runs)

    def ranges(self) -> tuple[FloatArray, FloatArray]:
        """Least and largest value of the side that each value is not on."""
        side = 2 * self.sweep + self.high
        starts = np.flatnonzero(np.diff(side, prepend=-1))
        ends = np.append(starts[1:], len(side)) - 1
        at = np.zeros((2, 2 * (self.sweep[-1] + 1)), dtype=np.int64)
        at[:, side[starts]] = starts, ends
        least, most = (10 ** self.logarithm[rows[side ^ 1]] for rows in at)
        return least, most


def find_slips(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find watts, and joules, near 1000 or 1,000,000 times those of the other runs of their sweep.

    The values of a sweep (one group, and one setting of all the rest) are parted at their widest
    gap, if that is more than eightfold. The two sides are of two units when their geometric means,
    or the values at the gap, are within a factor of eight of a thousand or a million apart; what
    is left is looked at again. The side with fewer than a third of the runs is wrong, and so is a
    side with power outside 1 mW to 10 kW if the power of the other side is inside. If neither rule
    decides, both sides are named. Energy is also compared with the time, where the time is known,
    because runs may have any length.
    """
    power, energy = gr.numbers(runs, "power_w"), gr.numbers(runs, "energy_j")
    mean_power = energy / gr.numbers(runs, "time_s")
    sweep, each = sweep_codes(runs, groups), gr.run_counts(runs).astype(np.float64)
    of_power = _slips(power, np.log10(power), sweep, each)
    of_energy = _slips(energy, np.log10(mean_power), sweep, each)
    of_length = _slips(mean_power, np.log10(mean_power), sweep, each)
    longer = ~np.isnan(mean_power) & (of_length[0] != of_energy[0])
    joules = (of_power[0] == 0) & (of_energy[0] != 0) & ~longer
    decades, least, most = np.where(joules, of_energy, of_power)
    figures = {
        "value": np.where(joules, energy, power),
        "frequency": gr.numbers(runs, "freq_hz"),
        "least": least,
        "most": most,
        "decades": decades,
        "joules": joules,
    }
    return pd.DataFrame(figures)[decades != 0]


def _slips(values: FloatArray, watts: FloatArray, sweep: IntArray, runs: FloatArray) -> FloatArray:
    """Decades by which each value is off, 0 for none; least and largest of the values around it."""
    found = np.array([np.zeros(len(values)), *np.full((2, len(values)), np.nan)])
    left = np.flatnonzero(np.isfinite(values) & (values > 0))
    left = left[np.lexsort((values[left], sweep[left]))]
    while left.size:
        slips = _slips_between(values[left], watts[left], sweep[left], runs[left])
        wrong = slips[0] != 0
        if not wrong.any():
            break
        found[:, left[wrong]] = slips[:, wrong]
        left = left[~wrong]
    return found


def _slips_between(
    values: FloatArray, watts: FloatArray, sweep: IntArray, runs: FloatArray
) -> FloatArray:
    """One pass of `_slips` over values sorted by sweep and size."""
    number = np.cumsum(np.diff(sweep, prepend=sweep[0]) != 0)
    sides = _Sides.of(number, np.log10(values))
    low, high = sides.means(sides.logarithm, runs)
    # Where a sweep has slips of several kinds, only the gap shows them one by one.
    apart = (_near_a_slip(high - low) | _near_a_slip(sides.gap)) & (sides.gap > _WITHIN)
    distance = sides.logarithm - np.where(sides.high, low, high)
    decades = np.where(np.abs(distance) < _BETWEEN, 3, 6) * np.sign(distance)
    named = apart & _wrong_side(sides, watts, runs)
    return np.array([np.where(named, decades, 0.0), *sides.ranges()])


def _near_a_slip(distance: FloatArray) -> gr.Mask:
    """Mark distances (decades) near 3 or 6, those of another unit prefix."""
    return np.asarray(np.minimum(np.abs(distance - 3), np.abs(distance - 6)) <= _WITHIN)


def _wrong_side(sides: _Sides, watts: FloatArray, runs: FloatArray) -> gr.Mask:
    """Mark the values on the side of a sweep that is wrong, or on both if undecided."""
    count = sides.sums(runs)
    few = (_ONE_IN - 1) * count < count[::-1]
    means = sides.means(watts, runs)
    odd = (means < _LEAST_W) | (means > _MOST_W)
    low, high = few | (odd & ~odd[::-1] & ~np.isnan(means).any(axis=0))
    return np.asarray(np.where(sides.high, high, low) | ~(low | high))


def say_slip(
    value: float, frequency: float, least: float, most: float, decades: float, joules: bool
) -> str:
    """Say the power or energy of a row, what is around it, and the unit it may be in."""
    unit, name = ("J", "joules") if joules else ("W", "watts")
    ends = dict.fromkeys((_plain(least), _plain(most)))
    return (
        f"{_plain(value)} {unit} at {_plain(frequency / 1e9)} GHz, {' to '.join(ends)} {unit} "
        f"around it: {_PREFIXES[round(decades)]}{name}?"
    )


def _plain(value: float) -> str:
    """Write a number without a prefix or exponent, to four digits."""
    return np.format_float_positional(value, precision=4, fractional=False, trim="-")


# Times as many times off the others of their sweep as two units of time are: another unit's.

# What a time is too large by, its unit and that of the others; turned where it is too small.
_UNITS = {60.0: ("s", "min"), 1e3: ("ms", "s"), 3600.0: ("s", "h"), 1e6: ("µs", "s")}
_FACTORS = np.log10(np.array([*_UNITS]))
# Runs at one clock differ by less than so many times (a tenth of a decade), and those of a sweep
# by its clocks more.
_SCATTER = 0.1
# A run that is held up takes less than so many times as long.
_LEAST = np.log10(8.0)


def find_time_slips(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find times that are near 60, 1000, 3600 or 1,000,000 times their sweep's median, or parts.

    Within a sweep (one group, and one setting of all the rest) times differ by as much as the
    clocks do, and scatter. What is further off by one of these factors, and is a third of the
    sweep's runs at most, is of another unit; where more are, nobody can know.
    """
    time, frequency = gr.numbers(runs, "time_s"), gr.numbers(runs, "freq_hz")
    each = gr.run_counts(runs).astype(np.float64)
    sweep = sweep_codes(runs, groups)
    sweeps = int(sweep.max(initial=-1)) + 1
    known = np.isfinite(time) & (time > 0)
    logarithm = np.where(known, np.log10(time), np.nan)
    middle = _weighted_medians(logarithm, sweep, np.where(known, each, 0.0), sweeps)[sweep]
    off = logarithm - middle
    nearest = np.abs(np.abs(off)[:, None] - _FACTORS).argmin(axis=1)
    apart = np.abs(np.abs(off) - _FACTORS[nearest])
    lowest, highest = np.full(sweeps, np.inf), np.full(sweeps, -np.inf)
    np.minimum.at(lowest, sweep, frequency)
    np.maximum.at(highest, sweep, frequency)
    usual = np.log10(highest / lowest)[sweep] + _SCATTER
    far: gr.Mask = (apart <= usual) & (np.abs(off) > np.maximum(usual, _LEAST))
    count = np.bincount(sweep, each * far, sweeps)
    few = _ONE_IN * count <= np.bincount(sweep, each * known, sweeps)
    figures = {
        "time": time,
        "frequency": frequency,
        "middle": 10**middle,
        "factor": np.where(off > 0, 1.0, -1.0) * 10 ** _FACTORS[nearest],
    }
    return pd.DataFrame(figures)[far & few[sweep]]


def _weighted_medians(
    values: FloatArray, codes: IntArray, weight: FloatArray, count: int, *, upper: bool = False
) -> FloatArray:
    """Lower or upper weighted median of the values of each code; NaN without values."""
    order = np.lexsort((values, codes))
    codes, values, weight = codes[order], values[order], weight[order]
    total = np.bincount(codes, weight, count)
    until = np.cumsum(weight) - (np.cumsum(total) - total)[codes]
    half = total[codes] / 2
    behind = np.flatnonzero(((until > half) if upper else (until >= half)) & (weight > 0))
    found = np.full(count, np.nan)
    found[codes[behind[::-1]]] = values[behind[::-1]]
    return found


def say_time_slip(time: float, frequency: float, middle: float, factor: float) -> str:
    """Say the time of a row, what its sweep takes, and the unit it may be in."""
    own, others = next(u for size, u in _UNITS.items() if np.isclose(size, abs(factor)))
    if factor < 0:
        own, others = others, own
    return (
        f"{time:.4g} s at {frequency / 1e9:.4g} GHz, and {middle:.4g} s in the middle of its "
        f"sweep. Check whether it is in {own}, and the others in {others}"
    )


# Runs far from the repeats of their own setting.

# Repeats of one setting that differ by more than this, and by more than so many times the usual
# difference of the table, are not noise. Interference in the shared sweeps stays below it.
_FAR = np.log(1.5)
_FAR_SCATTERS = 10.0
_FEWEST_REPEATS = 3


def find_far_repeats(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find runs whose time, rate or power is far from the median of three or more repeats.

    At most a third of the repeats of a setting is named: where more are apart, nobody can know
    which are wrong. Cells of a fleet have no single runs, so none of theirs is named.
    """
    if gr.is_cell_table(runs):
        return pd.DataFrame()
    steps, frequencies = pd.factorize(gr.numbers(runs, "freq_hz"), use_na_sentinel=False)
    cell = pd.factorize(sweep_codes(runs, groups) * len(frequencies) + steps)[0]
    cells, found = int(cell.max(initial=-1)) + 1, []
    for column in ("time_s", "throughput_ops_s", "power_w"):
        value = gr.numbers(runs, column)
        is_given = value > 0
        repeats = np.bincount(cell, is_given, cells)
        is_repeat = is_given & (repeats[cell] >= _FEWEST_REPEATS)
        if not is_repeat.any():
            continue
        logarithm = np.log(np.where(is_given, value, np.nan))
        median = _weighted_medians(logarithm, cell, is_given.astype(np.float64), cells)[cell]
        off = np.abs(logarithm - median)
        is_far = is_repeat & (off > max(_FAR, _FAR_SCATTERS * np.median(off[is_repeat])))
        is_few = _ONE_IN * np.bincount(cell, is_far, cells) <= repeats
        named = np.flatnonzero(is_far & is_few[cell])
        figures = {"value": value, "median": np.exp(median), "repeats": repeats[cell]}
        found.append(pd.DataFrame(figures).loc[named].assign(column=column))
    table = pd.concat([pd.DataFrame(), *found])
    return table[~table.index.duplicated()].sort_index()


def say_far_repeat(value: float, median: float, repeats: float, column: str) -> str:
    """Say the value of a run, and the median of the repeats of its setting."""
    unit = COLUMNS[column].unit
    return (
        f"{column}: {shown(value, unit)}, and {shown(median, unit)} is the median of the "
        f"{repeats:.0f} repeats"
    )
