"""Posterior answers of a runs table: from grouped runs to distributions at a frequency."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.bayes.pooling import (
    NO_POOLING,
    POWER_POOLING,
    TIME_POOLING,
    Neighbours,
    PowerCurve,
    TimeCurve,
)
from fitting.bayes.posterior import Target
from fitting.bayes.prediction import Mixture, Projected, project_curve
from fitting.bayes.priors import DynamicSharePrior, StalledSharePrior
from fitting.bayes.steps import Steps
from ppw.results.arguments import as_share
from ppw.runs.groups import LOG, is_condensed, repeats
from ppw.runs.metrics import METRICS, PERFORMANCE, values

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray, IntArray
    from ppw.projection.options import FitOptions, VoltageTable
    from ppw.runs.groups import Groups
    from ppw.runs.metrics import Metric

    Mask = NDArray[np.bool_]


# Core voltage by frequency: recorded in the runs, or given as a table.


# How ln(time-like) follows from ln y: sign of ln y, and the exponent of the clock taken out first.
# CPI over the clock is seconds an instruction; the reciprocal of a rate is seconds a unit of work.
_TIME_LIKE: dict[str, tuple[int, int]] = {
    "time": (1, 0),
    "cpi": (1, 1),
    "throughput": (-1, 0),
    "performance": (-1, 0),
    "perf_per_dollar": (-1, 0),
}
POOLED_OVER = ("cores", "threads")

# Median standard deviation of ln y from run to run by what the figures come from: judgement, from
# the repeats of published sweeps and the makers' accuracies. Other sources have the prior's own.
_TIME_NOISE = {"simulat": 0.002}
_POWER_NOISE = {
    "simulat": 0.003,
    "meter": 0.015,
    "rapl": 0.02,
    "ipmi": 0.03,
    "redfish": 0.03,
    "battery": 0.05,
    "gauge": 0.05,
}


class Distribution(NamedTuple):
    """What is known of a metric at a frequency, one element a group; NaN without an answer.

    Attributes
    ----------
    value, lower, upper : (groups,) float arrays
        Median and interval of the metric.
    mixture : Mixture
        Distribution of its logarithm.
    budget : mapping of str to (groups,) float arrays
        Variance of the logarithm by where it comes from, such as "time fit" or "power form".
    pulled : (groups,) float array
        Factor by which the table's other groups moved the answer.
    """

    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    mixture: Mixture
    budget: Mapping[str, FloatArray]
    pulled: FloatArray

    def take(self, groups: IntArray) -> Distribution:
        """Select some groups."""
        return Distribution(
            self.value[groups],
            self.lower[groups],
            self.upper[groups],
            self.mixture.take(groups),
            {name: part[groups] for name, part in self.budget.items()},
            self.pulled[groups],
        )

    def widened(self, source: str, variance: float, level: float) -> Distribution:
        """Distribution with a further, independent error of the logarithm."""
        mixture = self.mixture._replace(variance=self.mixture.variance + variance)
        ends = (0.5 - level / 2, 0.5, 0.5 + level / 2)
        lower, value, upper = np.exp(mixture.quantiles(ends))
        budget = {**self.budget, source: np.full(len(value), variance)}
        return Distribution(value, lower, upper, mixture, budget, self.pulled)


@dataclass(frozen=True)
class Posteriors:
    """Steps of a table's groups, and the laws that go through them.

    Attributes
    ----------
    steps : mapping of str to Steps
        By the name of what is fitted, of ln(time-like) or ln(power).
    neighbours : Neighbours
    options : FitOptions
    time, power : TimeCurve, PowerCurve
    voltage : VoltageTable
    """

    steps: Mapping[str, Steps]
    neighbours: Neighbours
    options: FitOptions
    time: TimeCurve
    power: PowerCurve
    voltage: VoltageTable = field(repr=False)

    @classmethod
    def of(
        cls,
        runs: pd.DataFrame,
        groups: Groups,
        metrics: list[Metric],
        options: FitOptions,
        voltage: VoltageTable,
        rows: Mask | None = None,
    ) -> Posteriors:
        """Condense what the metrics need of the chosen rows."""
        names = dict.fromkeys(
            n for m in metrics if options.has_posterior(m) for n in options.fitted(m)
        )
        frequency = runs["freq_hz"].to_numpy(dtype=np.float64)
        steps = {}
        for name in names:
            metric = METRICS.get(name, PERFORMANCE)
            measured = values(metric, runs)
            use = measured > 0 if rows is None else rows & (measured > 0)
            codes, at = groups.codes[use], frequency[use]
            if is_condensed(runs, metric.name):
                cells = repeats(runs, metric.name, LOG).take(use)
                logs = cells._replace(mean=_to_law(name, cells.mean, at))
                steps[name] = Steps.of_repeats(codes, at, logs, len(groups))
            else:
                law = _to_law(name, np.log(measured[use]), at)
                steps[name] = Steps.of(codes, at, law, len(groups))
        time, power = _laws(_sources(runs), options)
        return cls(steps, neighbours_of(groups), options, time, power, voltage)

    def at(self, powers: Mapping[str, int], cells: Cells, level: float) -> Distribution:
        """Distribution of a product of fitted quantities at each cell."""
        groups = len(self.neighbours.cluster)
        passes = _nth_of_group(cells.group)
        made = [
            self._one_each(powers, cells.take(passes == n), groups, level)
            for n in range(int(passes.max(initial=-1)) + 1)
        ]
        order = np.argsort(np.concatenate([np.flatnonzero(passes == n) for n in range(len(made))]))
        return _concatenated(made).take(order)

    def _one_each(
        self, powers: Mapping[str, int], cells: Cells, groups: int, level: float
    ) -> Distribution:
        # A group that is not asked still informs its neighbours.
        frequency, runs = np.full(groups, np.median(cells.frequency)), np.ones(groups)
        frequency[cells.group], runs[cells.group] = cells.frequency, cells.runs
        return self.product(powers, Target(frequency, runs), level).take(cells.group)

    def product(self, powers: Mapping[str, int], target: Target, level: float) -> Distribution:
        """Distribution of a product of fitted quantities, each to the power 1 or −1."""
        as_share("interval level", level)
        ends = (0.5 - level / 2, 0.5, 0.5 + level / 2)
        factors = [self._factor(name, power, target, ends) for name, power in powers.items()]
        if len(factors) == 1:
            return factors[0]
        first, second = factors
        mixture = first.mixture.plus(second.mixture)
        with np.errstate(invalid="ignore"):
            lower, value, upper = np.exp(mixture.quantiles(ends))
        budget = {**first.budget, **second.budget}
        joint = mixture.trimmed(first.mixture.mean.shape[1] - 1)
        return Distribution(value, lower, upper, joint, budget, first.pulled * second.pulled)

    def _factor(
        self, name: str, power: int, target: Target, ends: tuple[float, float, float]
    ) -> Distribution:
        """Distribution of one fitted quantity to a power of ±1."""
        made = self._projected(name, target, ends)
        sign, clock = _TIME_LIKE.get(name, (1, 0))
        factor, shift = sign * power, power * clock * np.log(target.frequency)
        quantiles = np.sort(made.quantiles * factor, axis=0) + shift
        lower, value, upper = np.exp(quantiles)
        words = "power" if name == "power" else "time"
        budget = {
            f"{words} fit": made.fit,
            f"{words} form": made.form,
            f"{words} {'sensor and ' if name == 'power' else ''}repeats": made.noise,
        }
        mixture = made.mixture.scaled(factor).shifted(shift)
        return Distribution(value, lower, upper, mixture, budget, np.exp(factor * made.pulled))

    def _projected(self, name: str, target: Target, ends: tuple[float, float, float]) -> Projected:
        steps = self.steps[name]
        if name != "power":
            return project_curve(self.time, steps, target, self.neighbours, ends)
        known = self.voltage.covers(steps, target.frequency)
        if not known.any():
            return project_curve(self.power, steps, target, self.neighbours, ends)
        # Voltages are known for some groups only: the rest has its own voltage slope.
        with_table = replace(self.power, voltage=self.voltage.at)
        both = [
            project_curve(
                curve,
                steps,
                Target(np.where(mask, target.frequency, np.nan), target.runs),
                self.neighbours,
                ends,
            )
            for curve, mask in ((with_table, known), (self.power, ~known))
        ]
        return _where(known, *both)


def _nth_of_group(group: IntArray) -> IntArray:
    """How many cells of the same group come before each cell."""
    order = np.argsort(group, kind="stable")
    new = np.diff(group[order], prepend=-1) != 0
    start = np.flatnonzero(new)
    nth = np.empty(len(group), dtype=np.int64)
    nth[order] = np.arange(len(group)) - np.repeat(start, np.diff(np.append(start, len(group))))
    return nth


def _concatenated(parts: list[Distribution]) -> Distribution:
    first = parts[0]
    if len(parts) == 1:
        return first

    def joined(name: str) -> FloatArray:
        return np.concatenate([getattr(p, name) for p in parts])

    mixture = Mixture(*(np.concatenate(m) for m in zip(*(p.mixture for p in parts), strict=True)))
    budget = {n: np.concatenate([p.budget[n] for p in parts]) for n in first.budget}
    return Distribution(
        joined("value"), joined("lower"), joined("upper"), mixture, budget, joined("pulled")
    )


def neighbours_of(groups: Groups) -> Neighbours:
    """Clusters: groups that differ in their core count alone."""
    keys = groups.keys
    axis = [c for c in POOLED_OVER if c in groups.by]
    rest = [c for c in groups.by if c not in axis]
    position = np.zeros(len(groups))
    for column in axis:
        count = keys[column].to_numpy(dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            position += np.where(count > 0, np.log(count), 0.0)
    if not axis:
        return Neighbours(np.arange(len(groups)), position)
    if not rest:
        return Neighbours(np.zeros(len(groups), dtype=np.int64), position)
    cluster = keys.groupby(rest, sort=False, dropna=False).ngroup()
    return Neighbours(np.asarray(cluster, dtype=np.int64), position)


def _to_law(name: str, log_value: FloatArray, frequency: FloatArray) -> FloatArray:
    sign, clock = _TIME_LIKE.get(name, (1, 0))
    return sign * log_value - (clock * np.log(frequency) if clock else 0.0)


def _sources(runs: pd.DataFrame) -> set[str]:
    if "power_source" not in runs.columns:
        return set()
    return {str(source).lower() for source in runs["power_source"].unique()}


def _laws(sources: set[str], options: FitOptions) -> tuple[TimeCurve, PowerCurve]:
    """Laws with the noise of the figures' source, pooled or not."""
    pool = options.pool
    time, power = StalledSharePrior(), DynamicSharePrior()
    time = replace(time, noise=_noise(_TIME_NOISE, sources, time.noise))
    power = replace(power, noise=_noise(_POWER_NOISE, sources, power.noise))
    return (
        TimeCurve(prior=time, pooling=TIME_POOLING if pool else NO_POOLING),
        PowerCurve(
            prior=power,
            pooling=POWER_POOLING if pool else NO_POOLING,
            exponent=options.known_exponent(),
        ),
    )


def _noise(known: Mapping[str, float], sources: set[str], other: float) -> float:
    """Noise of the least accurate source; the prior's own where one is not known."""
    found = [[n for word, n in known.items() if word in source] for source in sources]
    if not found or not all(found):
        return other
    return max(max(part) for part in found)


def _where(mask: Mask, one: Projected, other: Projected) -> Projected:
    def pick(a: Any, b: Any) -> Any:
        return np.where(mask.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)

    mixture = Mixture(*(pick(a, b) for a, b in zip(one.mixture, other.mixture, strict=True)))
    quantiles = np.where(mask, one.quantiles, other.quantiles)
    rest = (pick(a, b) for a, b in zip(one[2:], other[2:], strict=True))
    return Projected(mixture, quantiles, *rest)


class Cells(NamedTuple):
    """Where answers are asked: group, frequency (Hz) and runs averaged, one element a cell."""

    group: IntArray
    frequency: FloatArray
    runs: FloatArray

    @classmethod
    def all_groups(cls, groups: int, frequency: float) -> Cells:
        """Every group once, at one frequency."""
        return cls(np.arange(groups), np.full(groups, float(frequency)), np.ones(groups))

    def take(self, cells: Mask) -> Cells:
        """Select some cells."""
        return Cells(self.group[cells], self.frequency[cells], self.runs[cells])
