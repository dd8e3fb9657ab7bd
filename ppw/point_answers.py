"""Estimates at one frequency from single measured points; `ppw.answers` has those of tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.bayes.posterior import Target
from fitting.errors import OutOfRangeError
from fitting.laws.execution_time import execution_time
from fitting.regression.lines import SLOPE_AT_ZERO
from fitting.regression.models import fit
from ppw.caveats import tally
from ppw.curve_caveats import far_findings, fit_findings, posterior_findings
from ppw.curves import ClockRange, Factor, FitOptions, predict, reached
from ppw.estimate import Estimate, shown
from ppw.posteriors import Posteriors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fitting.regression.lines import FloatArray
    from fitting.regression.models import ModelFit
    from ppw.points import MeasuredPoints
    from ppw.posteriors import Distribution

QUANTITIES = (
    "cpi",
    "instructions_per_s",
    "time_s",
    "performance",
    "power_w",
    "energy_j",
    "perf_per_watt",
    "perf_per_dollar",
)

# What each quantity is made of, with its power; the rest are exact factors.
_MADE_OF: dict[str, dict[str, int]] = {
    "cpi": {"cpi": 1},
    "time_s": {"cpi": 1},
    "power_w": {"power": 1},
    "energy_j": {"cpi": 1, "power": 1},
    "perf_per_watt": {"cpi": -1, "power": -1},
    "perf_per_dollar": {"cpi": -1},
}


@dataclass(frozen=True)
class PointAnswers:
    """Estimates from the fits of CPI and power at one frequency.

    Attributes
    ----------
    cpi, power : ModelFit
        Of one group; no power without watts.
    at : float
        Frequency (Hz).
    cores : float
    level : float
        Of the intervals.
    posteriors : Posteriors or None
        For the intervals; None for Student's t and for none.
    path_length_variance : float
        Variance of ln(path length); 0 where it is taken as exact.
    options : FitOptions
    """

    cpi: ModelFit
    power: ModelFit | None
    at: float
    cores: float
    level: float
    posteriors: Posteriors | None
    path_length_variance: float
    options: FitOptions

    @classmethod
    def of(
        cls,
        table: MeasuredPoints,
        options: FitOptions,
        at: float,
        *,
        cores: float,
        level: float,
        path_length_variance: float = 0.0,
    ) -> PointAnswers:
        """Fit the points; raises `OutOfRangeError` where the curve of CPI has no answer."""
        cpi = fit_points(options, "cpi", table.cpi)
        refuse_unanswered(cpi, at, options.form)
        power = fit_points(options, "power", table.power) if len(table.power) else None
        posteriors = None
        if options.interval == "bayes":
            posteriors = Posteriors.of_points(table.cpi, table.power, options, table.power_source)
        return cls(cpi, power, at, cores, level, posteriors, path_length_variance, options)

    def estimate(
        self,
        unit: str,
        powers: Mapping[str, int],
        *,
        constant: float = 1.0,
        clock: int = 0,
        counted: bool = False,
    ) -> Estimate:
        """Estimate constant · f^clock · Π fit^power; ``counted`` where instructions enter."""
        fits = {"cpi": self.cpi, "power": self.power}
        factors = [Factor(n, f, p) for n, p in powers.items() if (f := fits[n]) is not None]
        straight = predict(factors, self.at, level=self.level, constant=constant, clock_power=clock)
        rest = {name: float(np.ravel(v)[0]) for name, v in straight._asdict().items()}
        if self.options.interval == "none":
            rest |= {"lower": np.nan, "upper": np.nan}
        if self.has_posterior(powers):
            known = self.distribution(powers, counted=counted)
            factor = constant * self.at**clock
            for name in ("value", "lower", "upper"):
                rest[name] = float(getattr(known, name)[0]) * factor
            value, limit = np.array([rest["value"]]), np.array([rest["limit"]])
            rest["limit_share"] = float(reached(value, limit, len(powers))[0])
        return Estimate(rest.pop("value"), unit, **rest)

    def has_posterior(self, powers: Mapping[str, int]) -> bool:
        """Tell whether a product of the fits has a posterior."""
        return self.posteriors is not None and all(n in self.posteriors.steps for n in powers)

    def distribution(self, powers: Mapping[str, int], *, counted: bool) -> Distribution:
        """Posterior of the product, with the error of the path length where instructions enter."""
        assert self.posteriors is not None
        target = Target(np.array([self.at]), np.ones(1))
        made = self.posteriors.product(powers, target, self.level)
        if not (counted and self.path_length_variance):
            return made
        return made.widened("path length", self.path_length_variance, self.level)

    def budget(self, made: Mapping[str, Estimate | None]) -> dict[str, dict[str, float]]:
        """Shares of the variance of the logarithm, by quantity and source of width."""
        if self.posteriors is None:
            return {}
        shares = {}
        for name, powers in _MADE_OF.items():
            if made.get(name) is None or not self.has_posterior(powers):
                continue
            known = self.distribution(powers, counted=name not in ("cpi", "power_w"))
            parts = {k: float(v[0]) for k, v in known.budget.items()}
            total = sum(parts.values())
            shares[name] = {k: v / total for k, v in parts.items()}
        return shares

    def quantities(
        self, instructions: float | None, efficiency: float, price: float | None
    ) -> dict[str, Any]:
        """All that the inputs allow, by name."""
        n = self.cores
        rate = self.estimate("instructions/s", {"cpi": -1}, constant=n, clock=1)
        made: dict[str, Any] = dict.fromkeys(QUANTITIES)
        made |= {"cpi": self.estimate("1", {"cpi": 1}), "instructions_per_s": rate}
        work, speed = "instructions", n
        if instructions is not None:
            # Seconds of one run at CPI 1 and 1 Hz; estimate() brings in both.
            seconds = float(
                execution_time(
                    data=1.0,
                    cpi=1.0,
                    path_length=instructions,
                    frequency_hz=1.0,
                    cores=n,
                    efficiency=efficiency,
                )
            )
            work, speed = "runs", 1 / seconds
            made["time_s"] = self.estimate(
                "s", {"cpi": 1}, constant=seconds, clock=-1, counted=True
            )
        made["performance"] = self.estimate(
            f"{work}/s", {"cpi": -1}, constant=speed, clock=1, counted=True
        )
        if price is not None:
            made["perf_per_dollar"] = made["performance"].scaled(1 / price, f"{work}/s per price")
        if self.power is not None:
            made |= self._with_power(work, speed, instructions is not None)
        return made

    def _with_power(self, work: str, speed: float, timed: bool) -> dict[str, Estimate | None]:
        per_watt = {"cpi": -1, "power": -1}
        ratio = self.estimate(f"{work}/J", per_watt, constant=speed, clock=1, counted=True)
        joules = {"cpi": 1, "power": 1}
        energy = self.estimate("J/run", joules, constant=1 / speed, clock=-1, counted=True)
        watts = self.estimate("W", {"power": 1})
        if np.isnan(watts):
            return {}
        return {"power_w": watts, "perf_per_watt": ratio, "energy_j": energy if timed else None}

    def other_form(self, points: FloatArray) -> Estimate | None:
        """CPI by the other form, where the one asked for hits the clock's speed or passes it."""
        if not (self.cpi.line.slope[0] < 0 or self.cpi.line.bound[0] == SLOPE_AT_ZERO):
            return None
        other = FitOptions(form="amdahl" if self.options.form == "reciprocal" else "reciprocal")
        second = fit_points(other, "cpi", points)
        if np.isnan(second.predict(self.at)[0]):
            return None
        return replace(self, cpi=second, posteriors=None).estimate("1", {"cpi": 1})

    def caveats(self, table: MeasuredPoints) -> list[str]:
        """Say what could mislead in the fits of the points and in their intervals."""
        found = []
        fits = (("cpi", self.cpi, table.cpi), ("power", self.power, table.power))
        for name, fitted, points in fits:
            if fitted is None:
                continue
            factors, powers = [Factor(name, fitted, 1)], {name: 1}
            posterior = self.has_posterior(powers)
            found += fit_findings(factors, self.at, posterior=posterior)
            measured = ClockRange(points[:1, 0], points[-1:, 0])
            found += far_findings(factors[0], measured, self.at)
            if posterior:
                known = self.distribution(powers, counted=False)
                ends = predict(factors, self.at, level=self.level)
                ends = ends._replace(value=known.value, lower=known.lower, upper=known.upper)
                found += posterior_findings(factors, ends)
        return tally(found)


def fit_points(options: FitOptions, name: str, points: FloatArray) -> ModelFit:
    """Fit the law of ``name`` ("cpi", "power") to rows of (Hz, value): one group."""
    codes = np.zeros(len(points), dtype=np.int64)
    return fit(options.model(name), codes, points[:, 0], points[:, 1], 1)


def refuse_unanswered(cpi: ModelFit, at: float, form: str) -> None:
    """Raise `OutOfRangeError` where a curve has no positive answer at a frequency (Hz)."""
    if np.isnan(cpi.predict(at)[0]):
        pole = getattr(cpi.model, "pole", None)
        where = f"; its pole is at {shown(float(pole(cpi.line)[0]), 'Hz')}" if pole else ""
        raise OutOfRangeError(
            f"the {form} form {cpi.model.equation} has no positive answer at {shown(at, 'Hz')}"
            f"{where}: ask for another frequency or form"
        )
