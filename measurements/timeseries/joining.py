"""Several logs of one recording, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from measurements.timeseries.log import Log


def join(logs: Sequence[Log]) -> Log:
    """Join logs by their times; of a column that several have, the first one's is kept.

    Raises
    ------
    MeasurementError
        When they are of several hosts, or their times cannot be joined.
    """
    first = logs[0]
    for log in logs[1:]:
        _refuse_others(first, log)
        same = np.array_equal(first.times_s, log.times_s)
        times = first.times_s if same else np.union1d(first.times_s, log.times_s)
        if not same:
            _spread(first, times)
            _spread(log, times)
        first.columns = {**log.columns, **first.columns}
        for mark, rows in log.marks.items():
            first.marks[mark] = first.marks.get(mark, False) | rows
        first.cpus = first.cpus or log.cpus
        first.hz = first.hz or log.hz
        known = {finding.text for finding in first.findings}
        first.findings += [finding for finding in log.findings if finding.text not in known]
        first.source = f"{first.source} {log.source}"
    return first


def _refuse_others(first: Log, log: Log) -> None:
    if first.host and log.host and first.host != log.host:
        raise MeasurementError(
            f"{log.source}: is of host {log.host!r} and {first.source} of {first.host!r}: "
            "read one host at a time"
        )
    if first.per_interval != log.per_interval:
        raise MeasurementError(
            f"{log.source}: rates a second and amounts an interval do not go together with "
            f"{first.source}"
        )


def _spread(log: Log, times_s: NDArray[np.float64]) -> None:
    """Lay the rows of a log out over the times of all."""
    rows = np.searchsorted(times_s, log.times_s)
    if len(np.unique(log.times_s)) < len(log.times_s) or bool((np.diff(log.times_s) < 0).any()):
        raise MeasurementError(
            f"{log.source}: its clock went back or stood still, so that it cannot be joined with "
            "others by time: read it alone"
        )

    def laid_out(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        spread = np.full(len(times_s), np.nan)
        spread[rows] = numbers
        return spread

    log.columns = {name: laid_out(numbers) for name, numbers in log.columns.items()}
    if log.intervals_s is not None:
        log.intervals_s = laid_out(log.intervals_s)
    for name, flags in log.marks.items():
        log.marks[name] = laid_out(flags.astype(float)) == 1
    if log.restarts is not None:
        log.restarts = laid_out(log.restarts.astype(float)) == 1
    log.times_s = times_s
