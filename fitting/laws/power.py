"""Power (W) against core frequency (Hz): the published straight line and the CMOS form.

No single exponent fits all machines: phone cores need 3.6 to 3.8, servers at the wall little
more than 1. A projected power that is not positive is no answer and comes out NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fitting.errors import FittingError, OutOfRangeError
from fitting.regression import lines
from fitting.regression.lines import FloatArray, LineFit, student_quantile, variance_of_mean


@dataclass(frozen=True)
class PowerLine(lines.LineModel):
    """P(f) = P0 + s·f, with P0 = (P2·f1 − P1·f2)/(f1 − f2) from two points.

    Source: Issa & Figueira (2012), https://doi.org/10.1186/2192-113X-1-10, reconstructed as the
    only reading with P(f1) = P1 and P(f2) = P2. Real curves bend upwards: a line through low
    frequencies answers too little at high ones.
    """

    equation = "P(f) = P0 + s·f"
    parameters = ("p0_w", "slope_w_per_hz")


@dataclass(frozen=True)
class CmosExponent(PowerLine):
    """P(f) = P0 + c·f^γ with a given exponent γ, 1 to 5 (3 where voltage follows frequency).

    Source: dynamic CMOS power C·V²·f, e.g. Weste & Harris, *CMOS VLSI Design*, ch. 5.
    The abscissa is (f/1 GHz)^γ, so c is in W per GHz^γ.
    """

    exponent: float = 3.0
    equation = "P(f) = P0 + c·(f/GHz)^γ"
    parameters = ("p0_w", "c_w_per_ghz_to_gamma")

    def __post_init__(self) -> None:
        if not 1 <= self.exponent <= 5:
            raise FittingError(f"power exponent {self.exponent!r} is not between 1 and 5")

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """Return (f/GHz)^γ of core frequencies f (Hz)."""
        return (predictor / 1e9) ** self.exponent

    def asymptote(self, line: LineFit) -> lines.Asymptote:
        """Return c·(f/GHz)^γ, to which the power tends."""
        far = super().asymptote(line)
        exponent = np.where(far.exponent > 0, self.exponent, 0.0)
        return lines.Asymptote(far.coefficient * 1e-9**exponent, exponent)


def best_exponent(frequency: FloatArray, power: FloatArray) -> float:
    """Least-squares γ of `CmosExponent`, 1 to 5. Raises `FittingError` below three frequencies."""
    from scipy.optimize import minimize_scalar

    if len(np.unique(frequency)) < 3:
        raise FittingError(
            "fitting the power exponent needs three different frequencies: measure at one more, "
            "or give exponent="
        )
    one_group = np.zeros(len(power), dtype=np.int64)

    def squares(exponent: float) -> float:
        fitted = lines.fit(CmosExponent(exponent=exponent), one_group, frequency, power, 1)
        return float(np.sum((power - fitted.line.value(fitted.model.abscissa(frequency))) ** 2))

    # The sum of squares has one valley for convex data; the ends are compared for the rest.
    inside = minimize_scalar(squares, bounds=(1.0, 5.0), method="bounded", options={"xatol": 1e-10})
    return float(min((1.0, 5.0, float(inside.x)), key=squares))


class FreeExponent(NamedTuple):
    """Inference of P0 + c·(f/GHz)^γ where γ was fitted too: the curve linearised at its optimum."""

    fit: lines.ModelFit  # the line at the fitted γ, one degree of freedom poorer
    root: FloatArray  # (3, points): R·Rᵀ is the covariance of P0, c, γ in one point's variances

    @classmethod
    def of(cls, fitted: lines.ModelFit, frequency: FloatArray) -> FreeExponent:
        """Linearise the fit at its best exponent, for points at these frequencies (Hz)."""
        line = fitted.line
        df = np.maximum(line.degrees_of_freedom - 1, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = np.where(df > 0, line.variance * line.degrees_of_freedom / df, np.nan)
        paid = fitted._replace(line=line._replace(degrees_of_freedom=df, variance=variance))
        # Linearised at the optimum, the curve has the gradient of its three parameters.
        gradient = cls(paid, np.empty((3, 0))).gradient(frequency)
        # Columns differ in size by many digits, which a pseudo-inverse would mistake for rank.
        size = np.linalg.norm(gradient, axis=0)
        size[size == 0] = 1.0
        return cls(paid, np.linalg.pinv(gradient / size) / size[:, None])

    def gradient(self, frequency: FloatArray) -> FloatArray:
        """Return derivatives of the power by P0, c and γ at frequencies (Hz): (points, 3)."""
        scaled = self.fit.model.abscissa(frequency)
        by_exponent = self.fit.line.slope * scaled * np.log(frequency / 1e9)
        return np.column_stack([np.ones_like(scaled), scaled, by_exponent])

    def standard_errors(self) -> list[float]:
        """Standard errors of P0, c and γ; NaN without degrees of freedom."""
        errors = np.sqrt(self.fit.line.variance * np.sum(self.root**2, axis=1))
        return [float(error) for error in errors]

    def interval(
        self, frequency: FloatArray, *, level: float = 0.90, repeats: float = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Return the prediction interval of the mean power (W) of ``repeats`` runs, 0 at least."""
        line, middle = self.fit.line, self.fit.predict(frequency)
        leverage = np.sum((self.gradient(frequency) @ self.root) ** 2, axis=1)
        spread = np.sqrt(line.variance * (leverage + variance_of_mean(repeats)))
        half = student_quantile(line.degrees_of_freedom, level) * spread
        return np.maximum(middle - half, 0.0), middle + half


@dataclass(frozen=True)
class CmosVoltage(PowerLine):
    """P(f) = P0 + c·f·V(f)², V from a table of core voltage (V) by frequency (Hz).

    V is read between the table's frequencies along straight lines; outside them there is no
    answer, because nobody measured the voltage there.
    """

    voltages: Mapping[float, float] = field(default_factory=dict)
    equation = "P(f) = P0 + c·(f/GHz)·V(f)²"
    parameters = ("p0_w", "c_w_per_ghz_v2")

    def __post_init__(self) -> None:
        table = np.array([*self.voltages.items()], dtype=float)
        if table.shape[0] < 1 or not (np.isfinite(table).all() and (table > 0).all()):
            raise FittingError("the V-f table needs positive frequencies (Hz) and voltages (V)")

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """Return (f/GHz)·V(f)² at f in Hz; raises `OutOfRangeError` outside the table."""
        table = np.array(sorted(self.voltages.items()), dtype=float)
        f = np.asarray(predictor, dtype=float)
        low, high = table[0, 0] * (1 - 1e-9), table[-1, 0] * (1 + 1e-9)
        outside = (f < low) | (f > high)
        if outside.any():
            raise OutOfRangeError(
                f"no voltage is known at {f[outside].flat[0] / 1e9:g} GHz: the "
                f"V-f table covers {table[0, 0] / 1e9:g} to "
                f"{table[-1, 0] / 1e9:g} GHz; add that frequency to the table"
            )
        voltage = np.interp(f, table[:, 0], table[:, 1])
        return f / 1e9 * voltage**2

    def asymptote(self, line: LineFit) -> lines.Asymptote:
        """Return NaN: nobody measured the voltage beyond the table."""
        unknown = np.full_like(line.slope, np.nan)
        return lines.Asymptote(unknown, unknown)
