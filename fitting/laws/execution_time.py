"""Execution time from cycles per instruction, path length, core frequency and cores.

Source: Issa & Figueira (2012), eq. 2, https://doi.org/10.1186/2192-113X-1-10.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitting.errors import FittingError
from fitting.regression.lines import Asymptote, FloatArray, LineFit, LineModel, Number


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


@dataclass(frozen=True)
class LogCores(LineModel):
    """PL(n) = a·ln(n) + b: retired instructions per unit of data against the number of cores.

    Source: Issa & Figueira (2012), https://doi.org/10.1186/2192-113X-1-10. A path length belongs to
    its workload and is shared by families; it is no answer for another workload. With a < 0 it ends
    where it reaches zero, at n = exp(−b/a).
    """

    equation = "PL(n) = a·ln(n) + b"
    parameters = ("b", "a")

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """Return ln(n) of core counts n."""
        return np.log(predictor)

    def asymptote(self, line: LineFit) -> Asymptote:
        """Constant b for a = 0, unbounded for a > 0; a falling curve ends at its root."""
        far = super().asymptote(line)
        coefficient = np.where(line.slope > 0, np.inf, far.coefficient)
        return Asymptote(coefficient, np.zeros_like(coefficient))


def positive_up_to(a: float, b: float) -> float:
    """Core count at which a·ln(n) + b reaches zero; inf when it never does going up."""
    with np.errstate(over="ignore"):
        return float(np.exp(-b / a)) if a < 0 else float("inf")


def path_length_refusal(cores: float, end: float) -> str:
    """Say that a·ln(n) + b has no answer at a core count; the curve reaches zero at ``end``."""
    above = f"it reaches zero at {end:.3f}; predict below that"
    where = above if end < np.inf else "predict at more cores"
    return f"path length a·ln(n) + b is not positive at {cores:g} cores: {where}"
