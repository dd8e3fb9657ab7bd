"""Use of capacities over time: one host's, graded by thresholds, or that of several workloads.

One resource is judged as by B. Gregg's method of utilisation, saturation and errors (Thinking
Methodically about Performance, ACM Queue 10(12), 2012), with levels of low, medium and high.

Demands of several workloads are brought to one clock, summed, and compared with a ceiling. They are
shares of what may be used: 1 is the ceiling. As all workloads grow alike, the resource with the
highest share breaks first, at 1/share of the load that was recorded.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fitting.errors import FittingError
from fitting.regression.lines import BoolArray, FloatArray

LEVELS = ("low", "medium", "high")
# A cell of the common clock with less than this part of it recorded is not known.
_LEAST_COVERED = 0.5
# Resamples of blocks, and the fewest intervals that say anything of another recording.
_RESAMPLES, _FEWEST = 500, 10


class Use(NamedTuple):
    """Use over intervals of different length; NaN where nothing was measured."""

    mean: float  # over time
    median: float
    p95: float  # exceeded in 5 % of the time
    share_high: float  # share of the time at or above the high threshold, in [0, 1]
    measured_s: float  # time in which it was measured (s)


def summarise(values: ArrayLike, seconds: ArrayLike, high: float = np.inf) -> Use:
    """Summarise values over intervals, weighted by length: mean, quantiles, share of high ones.

    ``values`` are NaN where not measured; an interval of NaN or 0 ``seconds`` is left out.

    >>> summarise([0.25, 0.75], [3.0, 1.0], high=0.7)
    Use(mean=0.375, median=0.25, p95=0.75, share_high=0.25, measured_s=4.0)
    """
    at, weight = np.asarray(values, dtype=float), np.asarray(seconds, dtype=float)
    if at.shape != weight.shape or at.ndim != 1:
        raise FittingError(f"{at.shape} values, {weight.shape} lengths of time: give one per value")
    if (weight < 0).any():
        raise FittingError("an interval has a negative length: give lengths of 0 or more")
    known = np.isfinite(at) & (weight > 0) & np.isfinite(weight)
    at, weight = at[known], weight[known]
    total = float(weight.sum())
    if not total > 0:
        return Use(np.nan, np.nan, np.nan, np.nan, 0.0)
    mean = float(at @ (weight / total))
    above = float(weight[at >= high].sum()) / total
    median, p95 = (_weighted_quantile(at, weight, share) for share in (0.5, 0.95))
    return Use(mean, median, p95, above, total)


def _weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    """Return the smallest value that at least ``share`` of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    # Sums of the same weights in another order differ in the last digits.
    place = np.searchsorted(reached, share * reached[-1] * (1 - 1e-12))
    return float(values[order][min(int(place), len(order) - 1)])


def grade(value: float, medium: float, high: float) -> str:
    """Grade a value by two thresholds as "low", "medium" or "high"; "" for NaN.

    >>> grade(0.3, 0.3, 0.7), grade(0.7, 0.3, 0.7), grade(0.1, 0.3, 0.7), grade(np.nan, 0.3, 0.7)
    ('medium', 'high', 'low', '')
    """
    if not medium <= high:
        raise FittingError(f"the medium threshold {medium!r} is above the high one, {high!r}")
    if np.isnan(value):
        return ""
    return LEVELS[int(value >= medium) + int(value >= high)]


def worst(levels: list[str]) -> str:
    """Return the highest of some levels ("low", "medium", "high"); "" where all are "".

    >>> worst(["low", "", "medium"]), worst(["", ""])
    ('medium', '')
    """
    known = [level for level in levels if level]
    return max(known, key=LEVELS.index) if known else ""


def mean_on_clock(
    end_s: ArrayLike, interval_s: ArrayLike, rates: ArrayLike, start_s: float, step_s: float, n: int
) -> FloatArray:
    """Average (intervals, resources) rates over ``n`` cells of a clock; NaN where half is missing.

    Intervals are in order, with the ends and lengths given (s); gaps between them are not known,
    nor are rates of NaN. The clock starts at ``start_s`` with cells of ``step_s``. The (n,
    resources) means are NaN where less than half of a cell is known.
    """
    ends, lengths, values = (np.asarray(a, dtype=np.float64) for a in (end_s, interval_s, rates))
    if values.ndim != 2 or not len(ends) == len(lengths) == len(values):
        raise FittingError(
            f"{len(ends)} ends, {len(lengths)} lengths and rates of shape {values.shape}"
        )
    edges = start_s + step_s * np.arange(n + 1, dtype=np.float64)
    # Starts never before the end of the interval above, so that time is counted once.
    starts = np.maximum(ends - lengths, np.concatenate([[-np.inf], ends[:-1]]))
    corners = np.column_stack([starts, ends]).ravel()
    known = np.isfinite(values)
    length = np.maximum(ends - starts, 0.0)[:, None]
    covered = _cell_integrals(corners, known * length, edges)
    total = _cell_integrals(corners, np.where(known, values, 0.0) * length, edges)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(covered >= _LEAST_COVERED * step_s, total / covered, np.nan)


def _cell_integrals(corners: FloatArray, parts: FloatArray, edges: FloatArray) -> FloatArray:
    """Integrate columns over the cells between edges, from their integrals by interval."""
    columns = []
    for part in parts.T:
        running = np.repeat(np.concatenate([[0.0], np.cumsum(part)]), 2)[1:-1]
        columns.append(np.diff(np.interp(edges, corners, running)))
    return np.column_stack(columns) if columns else np.zeros((len(edges) - 1, 0))


class LoadShares(NamedTuple):
    """Shares of their ceilings that resources use; one element a resource, NaN where not known."""

    high: FloatArray  # quantile of the shares over time
    mean: FloatArray
    peak: FloatArray
    over: FloatArray  # share of time above the ceiling
    longest: FloatArray  # longest stretch of intervals above it

    @property
    def first(self) -> int | None:
        """Index of the resource with the highest share; None where none is known."""
        return None if np.isnan(self.high).all() else int(np.nanargmax(self.high))


def summarise_shares(shares: ArrayLike, quantile: float = 0.95) -> LoadShares:
    """Summarise each resource's shares of its ceiling; ``quantile`` is the time it must suffice."""
    share = np.asarray(shares, dtype=np.float64)
    if share.ndim != 2:
        raise FittingError(f"shares of shape {share.shape}: give one row per interval")
    if not 0 < quantile <= 1:
        raise FittingError(f"quantile {quantile!r} is not above 0 and at most 1; try 0.95")
    known = np.isfinite(share).any(axis=0)
    found = np.full((5, share.shape[1]), np.nan)
    held = share[:, known]
    if held.size:
        # A value that was seen: it is above a threshold just when more than the rest of time is.
        found[0, known] = np.nanquantile(held, quantile, axis=0, method="inverted_cdf")
        found[1, known] = np.nanmean(held, axis=0)
        found[2, known] = np.nanmax(held, axis=0)
        found[3, known] = (held > 1).sum(axis=0) / np.isfinite(held).sum(axis=0)
        found[4, known] = _longest_true_run(held > 1)
    return LoadShares(*found)


def _longest_true_run(above: BoolArray) -> FloatArray:
    """Return the length of the longest run of True in each column."""
    place = np.arange(1, len(above) + 1)[:, None]
    last_below = np.maximum.accumulate(np.where(above, 0, place), axis=0)
    return (place - last_below).max(axis=0).astype(np.float64)


def agreement(shares: ArrayLike, threshold: float, quantile: float = 0.95, seed: int = 0) -> float:
    """Return the share of resampled recordings that agree if the quantile is above the threshold.

    Blocks of neighbouring intervals are drawn with replacement (circular blocks, of the cube root
    of the recording's intervals), because intervals that follow each other are alike. It says how
    much the finding depends on when was recorded, not how well another day is like this one.

    The finding is whether the quantile is above the threshold. Shares of NaN are left out; the
    agreement, from 0 to 1, is NaN below ten intervals. Source: D. N. Politis, J. P. Romano: A
    circular block-resampling procedure for stationary data. In Exploring the Limits of Bootstrap,
    Wiley, 1992.
    """
    share = np.asarray(shares, dtype=np.float64)
    share = share[np.isfinite(share)]
    if len(share) < _FEWEST:
        return float("nan")
    above = share > threshold
    n, length = len(above), max(1, round(len(above) ** (1 / 3)))
    running = np.concatenate([[0], np.cumsum(np.concatenate([above, above[: length - 1]]))])
    in_block = running[length:] - running[:-length]
    drawn = np.random.default_rng(seed).integers(0, n, (_RESAMPLES, max(1, n // length)))
    resampled = in_block[drawn].mean(axis=1) / length
    return float(np.mean((resampled > 1 - quantile) == (above.mean() > 1 - quantile)))


# Phases of a run: stretches between changes of the mean of several series at once.
#
# Change points minimise the squared deviation from each stretch's mean plus a penalty for each
# change (R. Killick, P. Fearnhead, I. Eckley: Optimal Detection of Changepoints With a Linear
# Computational Cost, JASA 107, 2012: PELT, which finds the exact optimum), searched by skchange.
# The penalty is the bound of B. Laurent and P. Massart (Annals of Statistics 28, 2000, lemma 1) on
# the gain that noise alone gives, at a chance of 1/n² for one split.

# A change smaller than this share of a series' scale is never one on its own.
NOISE_FLOOR = 0.1
# The search costs up to the square of the number of points: longer series are averaged first.
_MOST_POINTS = 1000
_MAD_TO_SIGMA = 1.4826


def change_points(signals: ArrayLike, *, shortest: int = 2) -> list[int]:
    """Find where the joint mean of some series changes: the first points of new phases.

    ``signals`` is a (points, series) table, each series in shares of what counts as much for it, so
    that 1 is a great change; NaN is taken as no change from the value before. ``shortest`` is the
    number of points of the shortest phase, at least 2.

    >>> change_points([[0.0]] * 5 + [[1.0]] * 5)
    [5]
    """
    table = np.asarray(signals, dtype=float)
    if table.ndim != 2:
        raise FittingError(f"signals of shape {table.shape}: give one row per point")
    if shortest < 2:
        raise FittingError(f"the shortest phase is {shortest} points: give at least 2")
    if len(table) < 2 * shortest or not (table := _fill_missing(table)).shape[1]:
        return []
    width = -(-len(table) // _MOST_POINTS)
    # The last block may be shorter.
    starts = np.arange(0, len(table), width)
    counts = np.diff(np.append(starts, len(table)))
    averages = np.add.reduceat(table, starts, axis=0) / counts[:, None]
    noise = _noise_level(averages)
    coarse = _search_changes(averages / noise, max(2, -(-shortest // width)))
    if width == 1:
        return coarse
    return _refine_points(table / noise, [width * point for point in coarse], width, shortest)


def _search_changes(scaled: FloatArray, shortest: int) -> list[int]:
    """Find change points by an exact search (PELT); none in fewer than two shortest phases."""
    from skchange.detectors import PELT
    from skchange.interval_scorers import L2Cost

    if len(scaled) < 2 * shortest:
        return []
    pelt = PELT(L2Cost(), penalty=penalty(*scaled.shape), min_segment_length=shortest)
    return [int(point) for point in pelt.fit(scaled).predict(scaled)]


def penalty(points: int, series: int) -> float:
    """Return the cost of a change point: the gain that noise alone reaches by a chance of 1/n²."""
    tail = 2 * np.log(points)
    return float(series + 2 * np.sqrt(series * tail) + 2 * tail)


def _noise_level(table: FloatArray) -> FloatArray:
    """Estimate each series' noise from its steps from point to point; at least `NOISE_FLOOR`."""
    steps = np.diff(table, axis=0)
    spread = np.median(np.abs(steps - np.median(steps, axis=0)), axis=0)
    # Of few points it is uncertain: two standard errors, of about 1/√n each, are added.
    sigma = _MAD_TO_SIGMA * spread / np.sqrt(2) * (1 + 2 / np.sqrt(len(table)))
    return np.maximum(sigma, NOISE_FLOOR)


def _fill_missing(table: FloatArray) -> FloatArray:
    """Replace NaN by the value before it (at the start, after it); drop series of NaN alone."""
    table = table[:, np.isfinite(table).any(axis=0)]
    known, series = np.isfinite(table), np.arange(table.shape[1])
    place = np.where(known, np.arange(len(table))[:, None], 0)
    last = np.maximum.accumulate(place, axis=0)
    # Before the first known value of a series that one holds.
    return np.where(known.cumsum(axis=0) > 0, table[last, series], table[known.argmax(0), series])


def _refine_points(table: FloatArray, points: list[int], width: int, shortest: int) -> list[int]:
    """Move change points of averaged rows to the best split of all rows; drop short phases."""
    moved: list[int] = []
    for place, point in enumerate(points):
        before = moved[-1] if moved else 0
        after = points[place + 1] if place + 1 < len(points) else len(table)
        start, end = max(before, point - 2 * width), min(after + width, point + 2 * width)
        found = start + _best_split(table[start:end])
        # An average across a change may be a phase of its own: its two ends become one.
        if min(found, len(table) - found) >= shortest and found - before >= max(shortest, width):
            moved.append(found)
    return moved


def _best_split(part: FloatArray) -> int:
    """Length of the first part of a split in two with the least squared deviation."""
    counts = np.arange(1, len(part))
    sums = np.cumsum(part, axis=0)
    left = (sums[:-1] ** 2).sum(axis=1) / counts
    right = ((sums[-1] - sums[:-1]) ** 2).sum(axis=1) / (len(part) - counts)
    return 1 + int(np.argmax(left + right))
