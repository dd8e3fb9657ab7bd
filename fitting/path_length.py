"""Path length: retired instructions per unit of data against the number of cores.

PL(n) = a·ln(n) + b. Source: Issa & Figueira (2012), https://doi.org/10.1186/2192-113X-1-10. A
path length is a property of its workload and is shared by families; it is no answer for another
workload. With a < 0 it ends where it reaches zero, at n = exp(−b/a).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fitting.models import Asymptote, LineModel, Parameter, asymptote_of_line

if TYPE_CHECKING:
    from fitting.line import FloatArray, LineFit


@dataclass(frozen=True)
class LogCores(LineModel):
    """PL(n) = a·ln(n) + b."""

    equation: ClassVar[str] = "PL(n) = a·ln(n) + b"
    parameters: ClassVar[tuple[Parameter, Parameter]] = (Parameter("b", "1"), Parameter("a", "1"))

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """ln(n)."""
        logarithm: FloatArray = np.log(predictor)
        return logarithm

    def asymptote(self, line: LineFit) -> Asymptote:
        """Constant b for a = 0, unbounded for a > 0; a falling curve ends at its root."""
        far = asymptote_of_line(line, 0.0)
        return Asymptote(np.where(line.slope > 0, np.inf, far.coefficient), far.exponent)


def positive_up_to(a: float, b: float) -> float:
    """Core count at which a·ln(n) + b reaches zero; inf when it never does going up."""
    with np.errstate(over="ignore"):
        return float(np.exp(-b / a)) if a < 0 else float("inf")
