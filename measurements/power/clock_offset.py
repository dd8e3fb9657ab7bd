"""The clock offset of a power log, from runs of known times that are seen in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]

# Offsets are tried in this part of the time from row to row.
STEPS_PER_ROW = 20
# A χ² of one degree of freedom exceeds twice this in one of ten cases.
HALF_CHI2_90 = 1.3528
# The share of the variance of the watts that the runs must explain.
LEAST_SHARE = 0.1
FEWEST_ROWS = 4


class ClockOffset(NamedTuple):
    """What to add to the times of a log.

    Attributes
    ----------
    offset_s : float
        Middle of the offsets that fit.
    uncertainty_s : float
        Half of their range at a level of 0.90, and never less than half the time from row to row.
    share : float
        Of the variance of the watts, how much the runs explain (0 to 1).
    """

    offset_s: float
    uncertainty_s: float
    share: float


def estimate_clock_offset(
    times_s: ArrayLike,
    watts: ArrayLike,
    runs: Sequence[tuple[float, float]],
    *,
    reach_s: float = 60.0,
) -> ClockOffset:
    """Find the offset at which watts in runs and outside of them differ most.

    Every offset cuts the rows of the log into those inside runs and those outside. The share of the
    variance of the watts that this cut explains is largest at the true offset, as far as a run
    takes more than a pause. With normal noise the logarithm of the likelihood is
    ``-n/2 * log(1 - share)`` up to a constant, and offsets within half the 0.90 quantile of χ² of
    the best one fit as well. A row that is the mean since the row before counts for its own time,
    so that it seems late by half a row, which the uncertainty allows for.

    Parameters
    ----------
    times_s : array_like
        Times of the rows by the log's clock (s).
    watts : array_like
        Their figures (W); NaN rows are left out.
    runs : sequence of (float, float)
        Start and end of each run by this host's clock (s), with pauses between them.
    reach_s : float
        Largest offset that is tried, to both sides (s).

    Returns
    -------
    ClockOffset
        Runs that come at regular intervals fit more than one offset: the uncertainty covers them
        all.

    Raises
    ------
    MeasurementError
        When there are too few rows, or no offset makes runs take more than pauses.
    """
    times, power = _rows(times_s, watts)
    starts, ends = np.array(sorted(runs), dtype=np.float64).reshape(-1, 2).T
    if not len(starts):
        raise MeasurementError("clock offset: no runs: give (start, end) of each")
    if not (ends > starts).all() or not (starts[1:] >= ends[:-1]).all():
        raise MeasurementError(
            "clock offset: runs must end after they start and not overlap: give (start, end) of "
            "each"
        )
    steps = np.diff(times)
    period = float(np.median(steps[steps > 0]))
    count = int(np.ceil(STEPS_PER_ROW * reach_s / min(period, reach_s)))
    offsets: FloatArray = np.linspace(-reach_s, reach_s, 2 * count + 1)
    shares = _explained(times, power, starts, ends, offsets)
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
    middle = float(fitting[0] + fitting[-1]) / 2
    half = float(fitting[-1] - fitting[0]) / 2
    return ClockOffset(middle, max(half, period / 2), best)


def _rows(times_s: ArrayLike, watts: ArrayLike) -> tuple[FloatArray, FloatArray]:
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


def _explained(
    times: FloatArray, power: FloatArray, starts: FloatArray, ends: FloatArray, offsets: FloatArray
) -> FloatArray:
    """Share of the variance that the cut explains, by offset; 0 where runs take less."""
    centred = power - power.mean()
    # Rows inside the runs are the differences of running sums at the runs' ends.
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    first = np.searchsorted(times, starts[:, None] - offsets)
    last = np.searchsorted(times, ends[:, None] - offsets)
    rows = len(times)
    inside = (last - first).sum(axis=0).astype(np.float64)
    excess = (sums[last] - sums[first]).sum(axis=0)
    total = float(centred @ centred)
    outside = rows - inside
    cut = (excess > 0) & (outside > 0)
    shares = np.zeros(len(offsets))
    # The sum of squares between two groups of a centred sample.
    shares[cut] = excess[cut] ** 2 * rows / (inside[cut] * outside[cut]) / total
    return shares
