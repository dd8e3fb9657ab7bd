"""The laws of a runs table fitted group by group, and what they answer at other frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.bayes.steps import SAME_STEP, step_counts
from fitting.regression.models import (
    Asymptote,
    ModelFit,
    Prediction,
    fit,
    fit_aggregated,
    share_of_limit,
)
from ppw.results.arguments import as_share
from ppw.runs.groups import INVERSE, VALUE, is_condensed, repeats
from ppw.runs.metrics import METRICS, PERFORMANCE, Metric, values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from fitting.regression.lines import FloatArray, IntArray
    from ppw.projection.options import FitOptions
    from ppw.runs.groups import Groups


class Factor(NamedTuple):
    """A fit, what it is a fit of, and its power in a product of fits."""

    name: str
    fit: ModelFit
    power: int


class ClockRange(NamedTuple):
    """Lowest and highest clock (Hz) that each group was measured at; inf and 0 without runs."""

    lowest: FloatArray
    highest: FloatArray

    @classmethod
    def of(cls, codes: IntArray, frequency: FloatArray, groups: int) -> ClockRange:
        """Find the range of each group in rows labelled by group 0 … ``groups`` − 1."""
        lowest, highest = np.full(groups, np.inf), np.zeros(groups)
        np.minimum.at(lowest, codes, frequency)
        np.maximum.at(highest, codes, frequency)
        return cls(lowest, highest)

    def take(self, groups: IntArray) -> ClockRange:
        """Select some groups."""
        return ClockRange(self.lowest[groups], self.highest[groups])


@dataclass(frozen=True, slots=True)
class Curves:
    """Fits by metric name, each with one curve a group, and the clocks they were fitted to."""

    fits: Mapping[str, ModelFit]
    clocks: Mapping[str, ClockRange]
    options: FitOptions

    def factors(self, powers: Mapping[str, int], groups: IntArray) -> list[Factor]:
        """Fits of a product, of some groups."""
        return [Factor(name, self.fits[name].take(groups), n) for name, n in powers.items()]


def fit_curves(
    runs: pd.DataFrame,
    groups: Groups,
    metrics: Sequence[Metric],
    options: FitOptions,
    rows: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None,
) -> Curves:
    """Fit all that ``metrics`` need to the chosen rows; rows without a value take no part."""
    names = dict.fromkeys(name for m in metrics for name in options.fitted(m))
    frequency = runs["freq_hz"].to_numpy(dtype=np.float64)
    fits, clocks = {}, {}
    for name in names:
        model, metric = options.model(name), METRICS.get(name, PERFORMANCE)
        measured = values(metric, runs)
        use = ~np.isnan(measured) if rows is None else rows & ~np.isnan(measured)
        codes, at, value = groups.codes, frequency, measured
        if not use.all():
            codes, at, value = codes[use], at[use], value[use]
        if is_condensed(runs, metric.name):
            cells = repeats(runs, metric.name, INVERSE if model.reciprocal else VALUE).take(use)
            fitted = fit_aggregated(model, codes, at, cells, len(groups))
        else:
            fitted = fit(model, codes, at, value, len(groups))
        fits[name] = _of_two_steps(fitted, codes, at)
        clocks[name] = ClockRange.of(codes, at, len(groups))
    return Curves(fits, clocks, options)


def _of_two_steps(fitted: ModelFit, codes: IntArray, frequency: FloatArray) -> ModelFit:
    """Fits of the groups that have two steps; readings of one step differ without being two."""
    line = fitted.line
    m = line.moments
    # Few spread so little, so that only their rows need a closer look; any exponent is covered.
    near = m.sxx <= m.points * (10 * SAME_STEP * m.mean_x) ** 2
    near &= ~np.isnan(line.slope)
    if not near.any():
        return fitted
    rows = near[codes]
    single = near & (step_counts(codes[rows], frequency[rows], len(near)) < 2)
    return ModelFit(fitted.model, line.without(single)) if single.any() else fitted


def predict(
    factors: Sequence[Factor],
    frequency: FloatArray | float,
    *,
    level: float,
    repeats: float | FloatArray = 1,
    constant: float = 1.0,
    clock_power: int = 0,
) -> Prediction:
    """Predict constant · f^clock_power · Π fitⁱ^power at a frequency (Hz).

    The interval of a single fit is its own, carried over. In a product the errors are taken as
    independent and their relative variances add (first order); Welch and Satterthwaite give the
    degrees of freedom, and the interval is symmetric in the logarithm, so that its lower end
    stays positive.
    """
    as_share("interval level", level)
    known = constant * np.asarray(frequency, dtype=float) ** clock_power
    # A prediction near zero has a relative error without bound, and so have its ends.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if len(factors) == 1:
            value, ends = _single(factors[0], frequency, level, repeats)
        else:
            value, ends = _product(factors, frequency, level, repeats)
        value, lower, upper = value * known, ends[0] * known, ends[1] * known
        far = _asymptote(factors)
        limit = Asymptote(far.coefficient * constant, far.exponent + clock_power).limit()
    share = reached(value, limit, len(factors))
    return Prediction(value, lower, upper, limit, share)


def reached(value: FloatArray, limit: FloatArray, factors: int) -> FloatArray:
    """Share of the limit that a product of so many fits has reached."""
    # A perf/W that falls to nothing has reached no share of it; a time that falls to 0 has.
    aimed_at = np.where((limit == 0) & (factors > 1), np.nan, limit)
    return share_of_limit(value, aimed_at)


def _single(
    factor: Factor,
    frequency: FloatArray | float,
    level: float,
    repeats: float | FloatArray,
) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
    _, fitted, power = factor
    a, b = (end**power for end in fitted.interval(frequency, level=level, repeats=repeats))
    return fitted.predict(frequency) ** power, (np.minimum(a, b), np.maximum(a, b))


def _product(
    factors: Sequence[Factor],
    frequency: FloatArray | float,
    level: float,
    repeats: float | FloatArray,
) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
    from scipy.special import stdtrit

    value: FloatArray = np.asarray(1.0)
    variance: FloatArray = np.asarray(0.0)
    weighted: FloatArray = np.asarray(0.0)
    for _, fitted, power in factors:
        value = value * fitted.predict(frequency) ** power
        share = (power * fitted.relative_error(frequency, repeats=repeats)) ** 2
        variance = variance + share
        weighted = weighted + share**2 / fitted.line.degrees_of_freedom
    freedom = np.where(weighted > 0, variance**2 / weighted, np.inf)
    # 0·inf, the quantile of an exact fit, is no spread at all.
    spread = np.where(variance == 0, 0.0, stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance))
    return value, (value * np.exp(-spread), value * np.exp(spread))


def _asymptote(factors: Sequence[Factor]) -> Asymptote:
    coefficient: FloatArray = np.asarray(1.0)
    exponent: FloatArray = np.asarray(0.0)
    for _, fitted, power in factors:
        far = fitted.asymptote()
        coefficient = coefficient * far.coefficient**power
        exponent = exponent + power * far.exponent
    return Asymptote(coefficient, exponent)
