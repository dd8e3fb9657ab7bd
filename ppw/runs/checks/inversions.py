"""Steps of a frequency sweep at which the work goes slower than at a lower frequency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from measurements.table.schema import COLUMNS, IDENTITY
from ppw.results.text import shown
from ppw.runs import checks as ck
from ppw.runs import groups as gr

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray, IntArray

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
_HABITS, _ONE_IN = 3.0, 10
# Beyond so many steps two of them are not compared; no machine has more between two outliers.
_FARTHEST = 64
# With up to three steps left, one that is nearly as much to blame as the worst is named with it.
_FEW, _NEARLY = 3, 0.7
_TIE = 0.999
# A column of the user's own that has no more values than this is a setting, not a measurement.
_SETTINGS = 16


class _Steps(NamedTuple):
    """Steps of all sweeps, sorted by sweep and frequency, one entry a step."""

    sweep: IntArray
    frequency: FloatArray
    # Log of the seconds that the work takes.
    log_time: FloatArray
    # Number of runs.
    repeats: IntArray

    def take(self, chosen: ck.Mask) -> _Steps:
        """Some of the steps."""
        return _Steps._make(values[chosen] for values in self)


class _Record(NamedTuple):
    """What was recorded of each row, one run or all of a cell."""

    # A mean, with the squares about it and the number of runs.
    log_time: FloatArray
    squares: FloatArray
    runs: IntArray
    # Finest decimal step of the record, and its mean inverse.
    finest: FloatArray
    inverse: FloatArray

    def take(self, rows: IntArray) -> _Record:
        """Select some rows."""
        return _Record._make(part[rows] for part in self)


@dataclass
class _Blame:
    """How much each step contradicts the others, and its worst contradiction."""

    amount: FloatArray
    rise: FloatArray
    other: IntArray


def find(runs: pd.DataFrame, groups: gr.Groups) -> ck.Findings:
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
    recorded, rated = _time_or_rate(runs, groups)
    used = np.flatnonzero(recorded > 0)
    sweep = sweep_codes(runs, groups)[used]
    frequency = ck.numbers(runs, "freq_hz")[used]
    order = np.lexsort((frequency, sweep))
    sweep, frequency, used = sweep[order], frequency[order], used[order]
    step_of = _step_of(sweep, frequency)
    record = _record(runs, recorded, rated).take(used)
    steps = _steps(sweep, frequency, record, step_of)
    limit = _Limit.of(steps, record, step_of)
    rise, other = _outliers(steps, limit)
    named = rise[step_of] > 0
    rows, step = used[named], step_of[named]
    against = other[step]
    figures = {
        "time": np.exp(steps.log_time[step]),
        "frequency": steps.frequency[step],
        "other_time": np.exp(steps.log_time[against]),
        "other_frequency": steps.frequency[against],
        "rate": rated[rows],
    }
    return ck.in_order(rows, figures)


def _time_or_rate(runs: pd.DataFrame, groups: gr.Groups) -> tuple[FloatArray, ck.Mask]:
    """Recorded time, or the throughput where all of a group have one; and which of the two.

    The throughput comes first because a service may run for a fixed time.
    """
    time, rate = ck.numbers(runs, "time_s"), ck.numbers(runs, "throughput_ops_s")
    unrated = np.bincount(groups.codes, ck.lacking(runs, "throughput_ops_s"), minlength=len(groups))
    rated: ck.Mask = (unrated == 0)[groups.codes]
    return np.where(rated, rate, time), rated


def _record(runs: pd.DataFrame, recorded: FloatArray, rated: ck.Mask) -> _Record:
    """Time, or the reciprocal of the throughput where ``rated``, as it was recorded."""
    sign = np.where(rated, -1.0, 1.0)
    if not gr.is_cell_table(runs):
        alone = np.ones(len(runs), dtype=np.int64)
        step, none = ck.recorded_step(recorded), np.zeros(len(runs))
        return _Record(sign * np.log(recorded), none, alone, step, 1 / recorded)
    either = [_record_of_cells(runs, column) for column in ("throughput_ops_s", "time_s")]
    chosen = _Record._make(np.where(rated, *pair) for pair in zip(*either, strict=True))
    return chosen._replace(log_time=sign * chosen.log_time)


def _record_of_cells(runs: pd.DataFrame, column: str) -> _Record:
    if not gr.is_aggregated(runs, column):
        unknown = np.full(len(runs), np.nan)
        return _Record(unknown, unknown, np.zeros(len(runs), dtype=np.int64), unknown, unknown)
    log = gr.repeats(runs, column, gr.LOG)
    inverse = gr.repeats(runs, column, gr.INVERSE).mean
    return _Record(
        log.mean, log.squares, log.runs, ck.numbers(runs, gr.finest_column(column)), inverse
    )


def sweep_codes(runs: pd.DataFrame, groups: gr.Groups) -> IntArray:
    """Number of the sweep that each row belongs to: its group, at one setting of all the rest."""
    codes = groups.codes
    steps = pd.factorize(runs["freq_hz"])[0]
    for column in gr.key_columns(runs) if gr.is_cell_table(runs) else runs.columns:
        if column in groups.by or not _may_be_setting(column):
            continue
        values, distinct = pd.factorize(runs[column], use_na_sentinel=False)
        if column in IDENTITY or _is_setting(values, len(distinct), steps):
            codes = pd.factorize(codes * len(distinct) + values)[0]
    return codes.astype(np.int64)


def _may_be_setting(column: str) -> bool:
    known = column in COLUMNS or column == ck.FLAGS
    return column in (*IDENTITY, "load", "sockets") or not known


def _is_setting(values: IntArray, count: int, steps: IntArray) -> bool:
    if not 1 < count <= _SETTINGS:
        return False
    frequencies = int(steps.max()) + 1
    together = len(pd.unique(steps * count + values))
    # A file a frequency, say, is no setting of its own.
    goes_with_frequency = together == frequencies and 3 * count > frequencies
    return not goes_with_frequency


def _step_of(sweep: IntArray, frequency: FloatArray) -> IntArray:
    """Number of the step of each row, sorted by sweep and frequency."""
    new = (np.diff(sweep) != 0) | (frequency[1:] > (1 + SAME_STEP) * frequency[:-1])
    return np.cumsum(np.append(0, new))


def _steps(sweep: IntArray, frequency: FloatArray, record: _Record, step_of: IntArray) -> _Steps:
    runs = np.bincount(step_of, record.runs).astype(np.int64)
    first = np.flatnonzero(np.diff(step_of, prepend=-1))
    log_time = np.bincount(step_of, record.runs * record.log_time) / runs
    # Sweeps are numbered anew, without holes.
    number = np.cumsum(np.diff(sweep[first], prepend=sweep[0]) != 0)
    return _Steps(number, frequency[first], log_time, runs)


class _Limit(NamedTuple):
    """By how much log time may rise from one step to another: what is needed to say so.

    One entry a step: the least rise, the standard deviations of a step about the sweep and of a
    run about its repeats, and the last recorded digit as a share of the value.
    """

    floor: FloatArray
    scatter: FloatArray
    deviation: FloatArray
    digit: FloatArray

    @classmethod
    def of(cls, steps: _Steps, record: _Record, step_of: IntArray) -> _Limit:
        """Judge the noise of sorted rows."""
        size = np.bincount(steps.sweep)
        floor = np.where(size >= _LONG, _RISE_LONG, _RISE_SHORT)
        scatter = np.where(size >= _JUDGED, _scatter(steps, len(size)), 0.0)
        deviation = _deviation(steps, record, step_of, len(size))
        # The table's typical noise is the least for a sweep too short to show its own.
        typical = _typical(scatter[size >= _JUDGED])
        habit = np.where(size < _LONG, _HABITS * _habit(steps), 0.0)
        return cls(
            np.maximum(np.log1p(floor), habit)[steps.sweep],
            np.where(size < _LONG, np.maximum(scatter, typical), scatter)[steps.sweep],
            np.maximum(np.nan_to_num(deviation), _typical(deviation))[steps.sweep],
            _last_digit(steps, record, step_of),
        )

    def between(self, steps: _Steps, a: slice, b: slice) -> FloatArray:
        """Least rise of log time between steps that is beyond noise."""
        both = np.minimum(steps.repeats[a], steps.repeats[b]) > 1
        floor = np.where(both, np.log1p(_RISE_REPEATED), self.floor[a])
        error = self.deviation[a] * np.sqrt(1 / steps.repeats[a] + 1 / steps.repeats[b])
        noise = np.maximum(_SCATTERS * self.scatter[a], _ERRORS * error)
        return np.maximum(floor, noise) + self.digit[a] + self.digit[b]

    def take(self, chosen: ck.Mask) -> _Limit:
        """Limits of some of the steps."""
        return _Limit(*(values[chosen] for values in self))


def _scatter(steps: _Steps, sweeps: int) -> FloatArray:
    """Standard deviation of single steps about a smooth sweep, robustly, by sweep; 0 if unknown."""
    x, y = np.log(steps.frequency), steps.log_time
    inside = steps.sweep[2:] == steps.sweep[:-2]
    nearness = (x[1:-1] - x[:-2])[inside] / (x[2:] - x[:-2])[inside]
    between = (1 - nearness) * y[:-2][inside] + nearness * y[2:][inside]
    second = np.abs(y[1:-1][inside] - between)
    gain = np.sqrt(1 + nearness**2 + (1 - nearness) ** 2)
    return 1.4826 * _medians(second / gain, steps.sweep[1:-1][inside], sweeps)


def _last_digit(steps: _Steps, record: _Record, step_of: IntArray) -> FloatArray:
    """Last digit that the sweep was recorded to, as a share of each step's value."""
    first = np.flatnonzero(np.diff(steps.sweep[step_of], prepend=-1))
    finest = np.minimum.reduceat(record.finest, first)
    return finest[steps.sweep] * np.bincount(step_of, record.runs * record.inverse) / steps.repeats


def _habit(steps: _Steps) -> float:
    """By how much one neighbouring pair in ten is outside what the clock allows; 0 for a few."""
    outside = _outside(steps, slice(None, -1), slice(1, None))
    outside = np.sort(outside[np.diff(steps.sweep) == 0])
    return float(outside[-1 - len(outside) // _ONE_IN]) if len(outside) >= _ONE_IN else 0.0


def _outside(steps: _Steps, slow: slice, fast: slice) -> FloatArray:
    """By how much log time does not fall by nothing to the ratio of the clocks, or 0."""
    rise = steps.log_time[fast] - steps.log_time[slow]
    clock = np.log(steps.frequency[fast] / steps.frequency[slow])
    return np.maximum(np.maximum(rise, -rise - clock), 0.0)


def _medians(values: FloatArray, codes: IntArray, count: int) -> FloatArray:
    """Upper median of the values of each code; 0 for a code without any."""
    order = np.lexsort((values, codes))
    size = np.bincount(codes, minlength=count)
    middle = np.cumsum(size) - size + size // 2
    medians = np.zeros(count)
    medians[size > 0] = values[order][middle[size > 0]]
    return medians


def _deviation(steps: _Steps, record: _Record, step_of: IntArray, sweeps: int) -> FloatArray:
    """Standard deviation of a run about the mean of its repeats, by sweep; NaN without any."""
    residual = record.log_time - steps.log_time[step_of]
    each = record.runs * residual**2 + record.squares
    squares = np.bincount(steps.sweep[step_of], each, minlength=sweeps)
    freedom = np.bincount(steps.sweep, steps.repeats - 1, minlength=sweeps)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(freedom > 0, np.sqrt(squares / freedom), np.nan)


def _typical(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else 0.0


def _outliers(steps: _Steps, limit: _Limit) -> tuple[FloatArray, IntArray]:
    """Rise of log time against another step, 0 for a step that is not named; and which other."""
    rise, other = np.zeros(len(steps.log_time)), np.zeros(len(steps.log_time), dtype=np.int64)
    left = np.arange(len(steps.log_time))
    while left.size:
        blame = _blame(steps, limit)
        named = _most_to_blame(steps.sweep, blame)
        rise[left[named]] = blame.rise[named]
        other[left[named]] = left[blame.other[named]]
        contradicting = np.zeros(steps.sweep.max() + 1, dtype=bool)
        contradicting[steps.sweep[named]] = True
        stay = contradicting[steps.sweep] & ~named
        steps, limit = steps.take(stay), limit.take(stay)
        left = left[stay]
    return rise, other


def _blame(steps: _Steps, limit: _Limit) -> _Blame:
    count = len(steps.log_time)
    found = _Blame(np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.int64))
    longest = int(np.bincount(steps.sweep).max())
    for apart in range(1, min(longest, _FARTHEST)):
        slow, fast = slice(None, -apart), slice(apart, None)
        same = steps.sweep[slow] == steps.sweep[fast]
        rise = steps.log_time[fast] - steps.log_time[slow]
        outside = np.where(same, _outside(steps, slow, fast), 0.0)
        found.amount[slow] += outside
        found.amount[fast] += outside
        beyond = same & (rise > limit.between(steps, slow, fast))
        for end, away in ((slow, apart), (fast, -apart)):
            worse = np.flatnonzero(beyond & (rise > found.rise[end])) + (end.start or 0)
            found.rise[worse] = rise[worse - (end.start or 0)]
            found.other[worse] = worse + away
    return found


def _most_to_blame(sweep: IntArray, blame: _Blame) -> ck.Mask:
    """In each sweep with a contradiction the step that contradicts most, or those that do."""
    contradicting = blame.rise > 0
    worst = np.zeros(sweep.max() + 1)
    np.maximum.at(worst, sweep[contradicting], blame.amount[contradicting])
    few = np.bincount(sweep)[sweep] <= _FEW
    share = np.where(few, _NEARLY, _TIE)
    named: ck.Mask = contradicting & (blame.amount >= share * worst[sweep])
    return named


def _say(
    time: float, frequency: float, other_time: float, other_frequency: float, rate: bool
) -> str:
    slower, faster = (time, other_time) if frequency > other_frequency else (other_time, time)
    here, there = (
        f"{shown(1 / t)} operations/s" if rate else shown(t, "s") for t in (time, other_time)
    )
    change = f"{100 * (slower / faster - 1):.0f} % slower at the faster clock"
    return (
        f"at {shown(frequency, 'Hz')} {here}, at {shown(other_frequency, 'Hz')} {there}: {change}"
    )


SLOWER_WHEN_FASTER = ck.Check(
    name="slower_when_faster",
    meaning="the work takes longer at a higher frequency than at a lower one, beyond noise, and "
    "this step fits the rest of the sweep least",
    remedy="repeat the step; look for throttling, other load on the host, or a row of another run",
    needs=(("time_s", "throughput_ops_s"),),
    spoils=ck.ALL_METRICS,
    find=find,
    say=_say,
)
