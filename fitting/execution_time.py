"""Execution time from cycles per instruction, path length, clock and cores.

Source: Issa & Figueira (2012), eq. 2, https://doi.org/10.1186/2192-113X-1-10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Number = float | NDArray[np.float64]


def execution_time(
    *,
    data: Number,
    cpi: Number,
    path_length: Number,
    frequency_hz: Number,
    cores: Number = 1,
    efficiency: Number = 1.0,
) -> Number:
    """T = D · CPI · PL · efficiency / (f · n), in seconds.

    Parameters
    ----------
    data : float or array
        Input size D, in the unit that the path length is given per (1 for a whole run).
    cpi : float or array
        Cycles per instruction.
    path_length : float or array
        Retired instructions per unit of data.
    frequency_hz : float or array
        Core frequency (Hz).
    cores : float or array
        Cores that share the work.
    efficiency : float or array
        As published it multiplies time: an overhead factor, 1 for none, above 1 for overhead.
    """
    return data * cpi * path_length * efficiency / (frequency_hz * cores)
