"""Clock offset of a power log, estimated from runs of known times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]

# Offsets are tried in steps of this part of the time between rows.
STEPS_PER_ROW = 20
# A χ² of one degree of freedom exceeds twice this in one of ten cases.
HALF_CHI2_90 = 1.3528
# Share of the variance of the power that the runs must explain.
LEAST_SHARE = 0.1
FEWEST_ROWS = 4


class ClockOffset(NamedTuple):
    """Offset to add to the times of a log, its uncertainty, and the share of variance explained."""

    offset_s: float
    # Half of the range of fitting offsets (90 %), at least half the time between rows (s).
    uncertainty_s: float
    share: float


def estimate_clock_offset(
    times_s: ArrayLike,
    watts: ArrayLike,
    runs: Sequence[tuple[float, float]],
    *,
    reach_s: float = 60.0,
) -> ClockOffset:
    """Find the offset (s) at which power in runs and outside of them differs most.

    An offset splits the rows of the log into those inside and those outside of runs. The share of
    the variance that this split explains is largest at the true offset, if runs draw more than
    pauses. With normal noise the log-likelihood is ``-n/2 * log(1 - share)`` up to a constant;
    offsets within half the 0.90 quantile of χ² of the best one fit as well. Runs at regular
    intervals fit more than one offset; the uncertainty covers them all, and the half row by which
    a mean since the row before seems late.

    ``times_s`` and ``watts`` are times of the rows by the log's clock (s) and their power (W); NaN
    rows are left out. ``runs`` are start and end of each run by this host's clock (s), with pauses
    between them. Offsets up to ``reach_s`` (s) are tried, to both sides. Raises `MeasurementError`
    when there are too few rows, or runs draw more than pauses at no offset.
    """
    times, power = _usable_rows(times_s, watts)
    starts, ends = np.array(sorted(runs), dtype=np.float64).reshape(-1, 2).T
    if not len(starts):
        raise MeasurementError("clock offset: no runs: give (start, end) of each")
    if not (ends > starts).all() or not (starts[1:] >= ends[:-1]).all():
        wrong = "runs must end after they start and not overlap"
        raise MeasurementError(f"clock offset: {wrong}: give (start, end) of each")
    steps = np.diff(times)
    period = float(np.median(steps[steps > 0]))
    count = int(np.ceil(STEPS_PER_ROW * reach_s / min(period, reach_s)))
    offsets: FloatArray = np.linspace(-reach_s, reach_s, 2 * count + 1)
    shares = _explained_shares(times, power, starts, ends, offsets)
    best = float(shares.max())
    if best < LEAST_SHARE:
        raise MeasurementError(
            f"clock offset: at no offset within {reach_s:g} s do the runs take more watts than the "
            f"pauses (they explain {best:.0%} of the variance): let pauses be longer, or check "
            f"that the log is of this host"
        )
    likelihood = -len(times) / 2 * np.log1p(-np.minimum(shares, 1 - 1e-12))
    fitting = offsets[likelihood >= likelihood.max() - HALF_CHI2_90]
    if fitting[0] == offsets[0] or fitting[-1] == offsets[-1]:
        raise MeasurementError(
            f"clock offset: the best one is at the limit of {reach_s:g} s: tell it, offset=SECONDS"
        )
    middle, half = float(fitting[0] + fitting[-1]) / 2, float(fitting[-1] - fitting[0]) / 2
    return ClockOffset(middle, max(half, period / 2), best)


def _usable_rows(times_s: ArrayLike, watts: ArrayLike) -> tuple[FloatArray, FloatArray]:
    times = np.asarray(times_s, dtype=np.float64)
    power = np.asarray(watts, dtype=np.float64)
    if times.shape != power.shape or times.ndim != 1:
        raise MeasurementError(
            f"clock offset: {times.shape} times for {power.shape} watts: give one of each a row"
        )
    usable = np.isfinite(times) & np.isfinite(power)
    order = np.argsort(times[usable], kind="stable")
    times, power = times[usable][order], power[usable][order]
    if len(np.unique(times)) < FEWEST_ROWS:
        raise MeasurementError(
            f"clock offset: {len(times)} rows with a figure, {FEWEST_ROWS} at different times are "
            f"needed: log for longer"
        )
    return times, power


def _explained_shares(
    times: FloatArray, power: FloatArray, starts: FloatArray, ends: FloatArray, offsets: FloatArray
) -> FloatArray:
    """Compute the explained share of the variance, by offset; 0 where runs draw less."""
    centred = power - power.mean()
    # Sums inside the runs are differences of cumulative sums at the runs' ends.
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    first = np.searchsorted(times, starts[:, None] - offsets)
    last = np.searchsorted(times, ends[:, None] - offsets)
    inside = (last - first).sum(axis=0).astype(np.float64)
    outside = len(times) - inside
    excess = (sums[last] - sums[first]).sum(axis=0)
    usable = (excess > 0) & (outside > 0)
    shares = np.zeros(len(offsets))
    # Sum of squares between two groups of a centred sample.
    between = excess[usable] ** 2 * len(times) / (inside[usable] * outside[usable])
    shares[usable] = between / float(centred @ centred)
    return shares
