"""Execution time from cycles per instruction, path length, clock and cores.

Source: Issa & Figueira (2012), eq. 2, https://doi.org/10.1186/2192-113X-1-10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fitting.errors import FittingError

if TYPE_CHECKING:
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
    """T = D · CPI · PL · efficiency / (f · n), in seconds; NaN where an argument is.

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

    Raises
    ------
    FittingError
        When an argument is zero or negative.
    """
    given = {"data": data, "cpi": cpi, "path_length": path_length, "frequency_hz": frequency_hz}
    for name, value in (given | {"cores": cores, "efficiency": efficiency}).items():
        if np.any(np.asarray(value) <= 0):
            least = np.nanmin(np.asarray(value, dtype=float))
            raise FittingError(f"{name} must be positive, but {least:g} was given: correct it")
    # Divided first: long products of integer arrays would overflow.
    return data / frequency_hz / cores * cpi * path_length * efficiency
