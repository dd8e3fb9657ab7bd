"""Laws of time and CPI in core frequency: Amdahl's law, and a published reciprocal curve.

Amdahl's law: a part of the time falls with the frequency and a part does not. Source: Amdahl
(1967), https://doi.org/10.1145/1465482.1465560, applied to core frequency as by
Issa & Figueira (2012), https://doi.org/10.1186/2192-113X-1-10, and by Hennessy & Patterson,
*Computer Architecture*, ch. 1.

Bounded, the laws are what a core alone can do: never faster than the ratio of the frequencies,
never slower at a higher one. They fail where the memory or bus frequency changes with that of the
core, where turbo or throttling sets another frequency than asked for, and across families.
"""

from dataclasses import dataclass

import numpy as np

from fitting.regression.lines import Asymptote, FloatArray, LineFit, LineModel


@dataclass(frozen=True)
class AmdahlTime(LineModel):
    """T(f) = t_fixed + w/f: elapsed time (s) against core frequency f (Hz)."""

    equation = "T(f) = t_fixed + w/f"
    parameters = ("t_fixed_s", "work_cycles")
    nonnegative: bool = True

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """Return 1/f (s) of core frequencies f (Hz)."""
        return 1 / predictor

    def asymptote(self, line: LineFit) -> Asymptote:
        """t_fixed, which no core frequency shortens, or w/f without it; none if negative."""
        kinds = [line.intercept > 0, line.intercept == 0]
        coefficient = np.select(kinds, [line.intercept, line.slope], np.nan)
        return Asymptote(coefficient, np.where(line.intercept == 0, -1.0, 0.0))


@dataclass(frozen=True)
class AmdahlRate(AmdahlTime):
    """1/X(f) = t_fixed + w/f: throughput X (1/s) through its reciprocal, the time of one unit."""

    equation = "1/X(f) = t_fixed + w/f"
    reciprocal = True

    def asymptote(self, line: LineFit) -> Asymptote:
        """1/t_fixed, the throughput that no core frequency exceeds, or f/w without it."""
        time = super().asymptote(line)
        return Asymptote(1 / time.coefficient, -time.exponent)


@dataclass(frozen=True)
class AmdahlEfficiency(AmdahlRate):
    """1/perf_per_watt(f) = e_fixed + e_clock/f: perf/W (1/J) through the energy of one unit.

    The published regression on performance/power itself. Energy may rise with frequency as well
    as fall, so its parameters are not bounded.
    """

    equation = "1/perf_per_watt(f) = e_fixed + e_clock/f"
    parameters = ("e_fixed_j", "e_clock_j_hz")
    nonnegative: bool = False


@dataclass(frozen=True)
class AmdahlCpi(LineModel):
    """CPI(f) = cpi_core + m·f: cycles per instruction; m is stalled seconds per instruction.

    The same law as `AmdahlTime` for one instruction, CPI(f)/f = m + cpi_core/f. The time of an
    instruction tends to m, CPI itself grows without bound unless m = 0.
    """

    equation = "CPI(f) = cpi_core + m·f"
    parameters = ("cpi_core", "stall_s_per_instruction")
    nonnegative: bool = True


@dataclass(frozen=True)
class ReciprocalCpi(LineModel):
    """1/CPI(f) = c − k/f: the published curve, for reproduction; the limit of CPI is 1/c.

    Source: Issa & Figueira (2012), fig. 13, https://doi.org/10.1186/2192-113X-1-10. With k > 0 the
    CPI falls as the frequency rises, to 1/c, so performance c·f − k grows faster than f. No core
    does that by its frequency alone; a memory frequency or a prefetcher that changes with it,
    another host, or noise between close frequencies does. It has no answer at or below its pole
    f = k/c.
    """

    equation = "1/CPI(f) = c − k/f"
    parameters = ("c", "k_hz")
    reciprocal = True
    slope_sign = -1

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """Return 1/f (s) of core frequencies f (Hz)."""
        return 1 / predictor

    def asymptote(self, line: LineFit) -> Asymptote:
        """1/c, or NaN where c is not positive and the curve ends."""
        c = np.where(line.intercept > 0, line.intercept, np.nan)
        return Asymptote(1 / c, np.zeros_like(c))

    def pole(self, line: LineFit) -> FloatArray:
        """Frequency (Hz) at which 1/CPI is zero: k/c, or 0 where no frequency is that low.

        There is no answer at or below it, or at or above it where c < 0.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.maximum(-line.slope / line.intercept, 0.0)


@dataclass(frozen=True)
class ReciprocalRate(ReciprocalCpi):
    """X(f) = c·f − k: throughput (1/s) by the same curve, X/f = c − k/f."""

    equation = "X(f) = c·f − k"
    parameters = ("c_per_cycle", "k_per_s")
    reciprocal = False

    def ordinate(self, metric: FloatArray, predictor: FloatArray) -> FloatArray:
        """Convert throughput (1/s) at core frequencies (Hz) to work per cycle."""
        return metric / predictor

    def metric(self, ordinate: FloatArray, predictor: FloatArray) -> FloatArray:
        """Convert work per cycle at core frequencies (Hz) to throughput (1/s)."""
        return ordinate * predictor

    def asymptote(self, line: LineFit) -> Asymptote:
        """c·f: performance grows without bound."""
        c = np.where(line.intercept > 0, line.intercept, np.nan)
        return Asymptote(c, np.ones_like(c))


@dataclass(frozen=True)
class ReciprocalTime(ReciprocalRate):
    """1/T(f) = c·f − k: elapsed time (s) by the same curve."""

    equation = "1/T(f) = c·f − k"
    reciprocal = True

    def ordinate(self, metric: FloatArray, predictor: FloatArray) -> FloatArray:
        """Convert elapsed time (s) at core frequencies (Hz) to runs per cycle."""
        return 1 / (metric * predictor)

    def metric(self, ordinate: FloatArray, predictor: FloatArray) -> FloatArray:
        """Convert runs per cycle at core frequencies (Hz) to elapsed time (s)."""
        return 1 / (ordinate * predictor)

    def asymptote(self, line: LineFit) -> Asymptote:
        """1/(c·f): the time falls without bound."""
        rate = super().asymptote(line)
        return Asymptote(1 / rate.coefficient, -rate.exponent)


# Laws by metric. A rate of any kind follows the law of the throughput.
AMDAHL: dict[str, type[AmdahlTime | AmdahlCpi]] = {
    "time": AmdahlTime,
    "cpi": AmdahlCpi,
    "throughput": AmdahlRate,
}
RECIPROCAL: dict[str, type[ReciprocalCpi]] = {
    "time": ReciprocalTime,
    "cpi": ReciprocalCpi,
    "throughput": ReciprocalRate,
}
