"""Time against cores by Amdahl's law, and how far from it a core count not measured may lie.

    T(n) = t_serial + t_parallel/n,    t_serial ≥ 0, t_parallel ≥ 0

A core's part of the work, 1/n, is the extent of `fitting.extent_line`. Core counts near each other
miss the law alike (a socket that fills up, memory that is shared by more), so that an octave of
them counts as one that was seen.

References
----------
G. M. Amdahl: Validity of the single processor approach to achieving large scale computing
capabilities. AFIPS Spring Joint Computer Conference, 1967. doi:10.1145/1465482.1465560
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fitting.extent_line import ExtentLine, UsualMiss, fit_extents

if TYPE_CHECKING:
    from fitting.line import IntArray
    from fitting.steps import Steps

# Set on programs of four machines of 4 to 48 cores (Loghin & Teo), whose median miss it is.
USUAL_MISS = UsualMiss(0.05, 3)


def fit_cores(steps: Steps, target: float) -> ExtentLine:
    """Fit Amdahl's law of each group to the means of its core counts.

    ``start`` is t_serial, and 1/rate t_parallel.

    Parameters
    ----------
    steps : Steps
        Of ln(time in s), over cores in place of a frequency.
    target : float
        Cores, above 0.
    """
    return fit_extents(steps, 1 / target, USUAL_MISS, _octaves(steps))


def _octaves(steps: Steps) -> IntArray:
    """Core counts of each group that miss for themselves: one an octave, and two at least."""
    here = steps.count > 0
    first = steps.first[here]
    ends = steps.frequency[first], steps.frequency[first + steps.count[here] - 1]
    apart = np.zeros(len(steps.count))
    apart[here] = np.log2(ends[1] / ends[0])
    independent = np.maximum(2, np.rint(1 + apart).astype(np.int64))
    return np.minimum(steps.count, independent)
