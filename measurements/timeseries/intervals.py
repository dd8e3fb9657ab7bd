"""How long each interval of a log was, and where its clock was not to be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from measurements.timeseries.marking import Marks

    Numbers = NDArray[np.float64]

# An interval that much longer than the usual one has rows missing.
_GAP = 1.5


def find_intervals(
    times_s: Numbers,
    recorded_s: Numbers | None,
    usual_s: float | None,
    restarts: NDArray[np.bool_] | None,
    marks: Marks,
) -> Numbers:
    """Lengths of the intervals, in the order of the log (s); NaN where it is not known.

    Parameters
    ----------
    times_s : array
        Ends of the intervals.
    recorded_s : array or None
        What the log itself says.
    usual_s : float or None
        What the recording was started with; by default the median step.
    restarts : array of bool or None
        Rows before which nothing was recorded: their interval is the usual one.
    marks : Marks
        Gets what is odd.
    """
    steps = np.diff(times_s, prepend=np.nan)
    fresh = np.zeros(len(times_s), bool) if restarts is None else restarts.copy()
    fresh[0] = True
    usual = _usual(steps[~fresh], recorded_s) if usual_s is None else usual_s
    marks.add("restart", fresh & (np.arange(len(fresh)) > 0))
    marks.add("clock back", steps < 0)
    if recorded_s is not None and np.isfinite(recorded_s).any():
        known = np.where(recorded_s > 0, recorded_s, np.nan)
        marks.add("gap", ~fresh & (steps > _GAP * known))
        return known
    # Stamps in whole seconds say nothing about shorter intervals.
    if usual < 1 and bool((steps == 0).any()):
        return np.full(len(times_s), usual)
    marks.add("time repeats", ~fresh & (steps == 0))
    marks.add("gap", ~fresh & (steps > _GAP * usual))
    found = np.where(steps > 0, steps, np.nan)
    found[fresh] = usual
    return found


def _usual(steps: Numbers, recorded_s: Numbers | None) -> float:
    known = steps[steps > 0] if recorded_s is None else recorded_s[recorded_s > 0]
    return float(np.median(known)) if len(known) else np.nan
