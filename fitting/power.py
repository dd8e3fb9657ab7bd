"""Power (W) against core frequency (Hz): the published straight line and the CMOS form.

No single exponent fits all machines: phone cores need 3.6 to 3.8, servers at the wall little
more than 1. A projected power that is not positive is no answer and comes out NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fitting.errors import FittingError, OutOfRangeError
from fitting.models import LineModel, Parameter, limit_of_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fitting.line import FloatArray, LineFit


@dataclass(frozen=True)
class PowerLine(LineModel):
    """P(f) = P0 + s·f, with P0 = (P2·f1 − P1·f2)/(f1 − f2) from two points.

    Source: Issa & Figueira (2012), https://doi.org/10.1186/2192-113X-1-10, reconstructed as the
    only reading with P(f1) = P1 and P(f2) = P2. Real curves bend upwards: a line through low
    frequencies answers too little at high ones.
    """

    equation: ClassVar[str] = "P(f) = P0 + s·f"
    parameters: ClassVar[tuple[Parameter, Parameter]] = (
        Parameter("p0_w", "W"),
        Parameter("slope_w_per_hz", "W/Hz"),
    )

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """Frequency (Hz)."""
        return predictor

    def limit(self, line: LineFit) -> FloatArray:
        """Inf: power grows with the clock."""
        return limit_of_line(line)


@dataclass(frozen=True)
class CmosExponent(PowerLine):
    """P(f) = P0 + c·f^γ with a given exponent γ, 1 to 5 (3 where voltage follows frequency).

    Source: dynamic CMOS power C·V²·f, e.g. Weste & Harris, *CMOS VLSI Design*, ch. 5.
    The abscissa is (f/1 GHz)^γ, so c is in W per GHz^γ.
    """

    exponent: float = 3.0
    equation: ClassVar[str] = "P(f) = P0 + c·(f/GHz)^γ"
    parameters: ClassVar[tuple[Parameter, Parameter]] = (
        Parameter("p0_w", "W"),
        Parameter("c_w_per_ghz_to_gamma", "W"),
    )

    def __post_init__(self) -> None:
        if not 1 <= self.exponent <= 5:
            raise FittingError(f"power exponent {self.exponent!r} is outside 1 to 5")

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """(f/GHz)^γ."""
        scaled: FloatArray = (predictor / 1e9) ** self.exponent
        return scaled


@dataclass(frozen=True)
class CmosVoltage(PowerLine):
    """P(f) = P0 + c·f·V(f)², V from a table of core voltage (V) by frequency (Hz).

    V is read between the table's frequencies along straight lines; outside them there is no
    answer, because nobody measured the voltage there.
    """

    voltages: Mapping[float, float] = field(default_factory=dict)
    equation: ClassVar[str] = "P(f) = P0 + c·(f/GHz)·V(f)²"
    parameters: ClassVar[tuple[Parameter, Parameter]] = (
        Parameter("p0_w", "W"),
        Parameter("c_w_per_ghz_v2", "W/(GHz·V²)"),
    )

    def __post_init__(self) -> None:
        table = np.array([*self.voltages.items()], dtype=float)
        if table.shape[0] < 1 or not (np.isfinite(table).all() and (table > 0).all()):
            raise FittingError("the V-f table needs positive frequencies (Hz) and voltages (V)")

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """(f/GHz)·V²; raises `OutOfRangeError` outside the table."""
        table = np.array(sorted(self.voltages.items()), dtype=float)
        f = np.asarray(predictor, dtype=float)
        low, high = table[0, 0] * (1 - 1e-9), table[-1, 0] * (1 + 1e-9)
        outside = (f < low) | (f > high)
        if outside.any():
            raise OutOfRangeError(
                f"no voltage is known at {f[outside].flat[0] / 1e9:g} GHz: the V-f table covers "
                f"{table[0, 0] / 1e9:g} to {table[-1, 0] / 1e9:g} GHz; add that step to it"
            )
        voltage = np.interp(f, table[:, 0], table[:, 1])
        scaled: FloatArray = f / 1e9 * voltage**2
        return scaled
