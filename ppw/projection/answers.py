"""Answers of a table's groups at any frequency, with their intervals: one way for all callers.

What is fitted (time, power, …) has a least-squares curve in each group and, where the interval is a
posterior's, a posterior in each. A metric is a product of them. `FitOptions` chooses the models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import numpy as np
import pandas as pd

from fitting.bayes import draws as bd, pooling, posterior, prediction, priors
from fitting.bayes.machine import borrow_steps
from fitting.laws import frequency as laws
from fitting.laws.power import CmosExponent, CmosVoltage, PowerLine
from fitting.regression import lines
from fitting.regression.lines import FloatArray, IntArray
from ppw.errors import PpwError
from ppw.projection import caveats as cv
from ppw.results.text import as_share, check_choice
from ppw.runs import groups as gr
from ppw.runs.groups import Mask
from ppw.runs.metrics import (
    FORMS,
    METRICS,
    PERFORMANCE,
    POWER_FORMS,
    Form,
    Metric,
    PowerForm,
    values,
)
from ppw.runs.prepare import PreparedRuns

POWER = "power"
# Metrics that both forms answer.
WITH_OTHER_FORM = ("time", "cpi", "throughput")
POOLED_OVER = ("cores", "threads")
FEWEST_DRAWS = 100
# How ln(time-like) follows from ln y: sign of ln y, and the exponent of the frequency taken out
# first. CPI over frequency is seconds per instruction; the reciprocal of a rate is seconds per unit
# of work.
_TIME_LIKE: dict[str, tuple[int, int]] = {
    "time": (1, 0),
    "cpi": (1, 1),
    "throughput": (-1, 0),
    "performance": (-1, 0),
    "perf_per_dollar": (-1, 0),
}
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

# The models, and the V-f tables of the power model.

Interval = Literal["bayes", "conformal", "t", "none"]
INTERVALS = get_args(Interval)
# Rounding of a frequency must not put it outside its own table.
_EDGE = 1e-3
# Answers that differ by less are told as one, however little runs scatter.
_ALIKE = 0.005


class ModelOptions(TypedDict, total=False):
    """Keywords of `ppw.fit` that choose the models; each is an attribute of `FitOptions`."""

    form: Form
    power_form: PowerForm | None
    exponent: float | None
    voltages: Mapping[float, float] | pd.DataFrame | None
    via: Literal["fits", "ratio"]


class FittingOptions(ModelOptions, total=False):
    """Keywords of `ppw.project` and `ppw.validate` that choose models and intervals."""

    interval: Interval
    pool: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """Models of time and power, and the intervals of their projections.

    Every function that fits curves takes these as keywords.

    Attributes
    ----------
    form : {"amdahl", "unbounded", "reciprocal"}
        Model of time and CPI. "amdahl" is CPI = cpi_core + m·f with both terms at least 0,
        "unbounded" is the same without that bound, "reciprocal" is 1/CPI = c − k/f.
    power_form : {None, "linear", "cmos"}
        Model of power: P0 + s·f ("linear"), or P0 + c·f^``exponent``, with ``voltages``
        P0 + c·f·V² ("cmos"). None is the model of the interval: CMOS with unknown voltage for
        "bayes", the published line for "t" and "none".
    exponent : float or None
        Exponent of f in the CMOS model. None is unknown for "bayes", and 3 otherwise.
    voltages : mapping of Hz to V, DataFrame or None
        Core voltage by frequency for the CMOS model; a DataFrame has ``freq_hz``, ``voltage_v``
        and, where hosts differ, ``host``. None takes the column ``voltage_v`` of the runs, where it
        covers the frequency; an empty mapping takes no voltages.
    via : {"fits", "ratio"}
        perf/W as the quotient of a performance and a power fit, or by one regression on
        performance/power, as published.
    interval : {"bayes", "conformal", "t", "none"}
        "bayes" is a posterior of the bounded curves. "conformal" is as wide as the errors of the
        groups that were measured at the frequency. "t" is Student's t about the least-squares
        curve, where there are degrees of freedom. "none" is the least-squares curve alone.
    pool : bool
        Whether the groups of a table inform each other; ``pulled_pct`` says how much they did.

    Raises
    ------
    PpwError
        For a choice that does not exist, and for voltages or an exponent of a linear power model.
    """

    form: str = "amdahl"
    power_form: str | None = None
    exponent: float | None = None
    voltages: Mapping[float, float] | pd.DataFrame | None = None
    via: str = "fits"
    interval: str = "bayes"
    pool: bool = True

    def __post_init__(self) -> None:
        check_choice("form", self.form, FORMS)
        check_choice("via", self.via, ("fits", "ratio"))
        check_choice("interval", self.interval, INTERVALS)
        if self.power_form is not None:
            check_choice("power form", self.power_form, POWER_FORMS)
        if self.voltages is not None and not isinstance(self.voltages, Mapping):
            check_columns(self.voltages)
        if self.voltages is not None and len(self.voltages) and self.power_form == "linear":
            raise PpwError("a V-f table works only with --power-form cmos")
        if self.exponent is not None and self.power_form == "linear":
            raise PpwError("an exponent works only with --power-form cmos")
        a_host_each = not isinstance(self.voltages, Mapping | None) and "host" in self.voltages
        if a_host_each and self.interval in ("t", "none"):
            raise PpwError(
                "least squares need one V-f table for all hosts, but this one differs by host: "
                "use --interval bayes, or give one host"
            )

    def fields_of_results(self) -> dict[str, Any]:
        """Return the options that results store, by the names of their fields."""
        names = ("form", "power_form", "via", "interval", "pool")
        return {name: getattr(self, name) for name in names}

    def for_curves(self) -> FitOptions:
        """Options with the posterior's intervals in place of conformal ones, for whole curves."""
        # Misses to be calibrated with are known at the frequency asked for only.
        return replace(self, interval="bayes") if self.interval == "conformal" else self

    def fit_powers(self, metric: Metric) -> dict[str, int]:
        """Names of the fits that a metric is made of, each with its power in the product."""
        if metric.factors is None or (metric.name == "perf_per_watt" and self.via == "ratio"):
            return {metric.name: 1}
        return dict(metric.factors)

    def has_posterior(self, powers: Mapping[str, int]) -> bool:
        """Tell whether a product of fits is answered from a posterior; not all models have one."""
        if self.interval not in ("bayes", "conformal") or "perf_per_watt" in powers:
            return False
        return self.form == "amdahl" or set(powers) == {"power"}

    def model(self, name: str) -> lines.LineModel:
        """Choose the law of what is fitted: a metric, or "performance".

        Power is the published line unless another form, an exponent or voltages were asked for;
        "perf_per_watt" is the published regression on performance/power itself.
        """
        if name == "power":
            table = self._one_table()
            cmos = table or self.exponent is not None or self.power_form == "cmos"
            if self.power_form == "linear" or not cmos:
                return PowerLine()
            exponent = 3.0 if self.exponent is None else self.exponent
            return CmosVoltage(voltages=table) if table else CmosExponent(exponent=exponent)
        if name == "perf_per_watt":
            return laws.AmdahlEfficiency()
        if self.form == "reciprocal":
            return laws.RECIPROCAL.get(name, laws.ReciprocalRate)()
        return laws.AMDAHL.get(name, laws.AmdahlRate)(nonnegative=self.form == "amdahl")

    def _one_table(self) -> Mapping[float, float] | None:
        """Return the V-f table that holds for all hosts; None without one, or with one a host."""
        if self.voltages is None or isinstance(self.voltages, Mapping):
            return self.voltages
        if "host" in self.voltages:
            return None
        return dict(self.voltages.groupby("freq_hz")["voltage_v"].mean())


@dataclass(frozen=True)
class VoltageTable:
    """V-f points of each group: those of its host, of all hosts, or none."""

    # Frequencies (Hz), rising, and voltages (V) of each; the table of each group, −1 for none.
    tables: tuple[tuple[FloatArray, FloatArray], ...] = ()
    of_group: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(
        cls,
        runs: pd.DataFrame,
        groups: gr.Groups,
        given: Mapping[float, float] | pd.DataFrame | None,
    ) -> VoltageTable:
        """Make V-f tables of the voltages given, else of the runs' ``voltage_v``; none without.

        An empty mapping means to use none. Raises `PpwError` for values that are not positive.
        """
        if isinstance(given, Mapping):
            table = np.array(sorted(given.items()), dtype=float).reshape(-1, 2).T
            one = np.zeros(len(groups), dtype=np.int64)
            return cls((_require_positive(*table),), one) if table.size else cls()
        if given is not None:
            check_columns(given)
        elif "voltage_v" not in runs.columns:
            return cls()
        source = runs if given is None else given
        known = source[source["voltage_v"].notna() & source["freq_hz"].notna()]
        if not len(known):
            return cls()
        by_host = "host" in known.columns and "host" in groups.by
        tables: list[tuple[FloatArray, FloatArray]] = []
        number: dict[object, int] = {}
        for host, part in known.groupby("host", sort=True) if by_host else [(None, known)]:
            means = part.groupby("freq_hz", sort=True)["voltage_v"].mean()
            number[host] = len(tables)
            tables.append(_require_positive(means.index.to_numpy(float), means.to_numpy(float)))
        of_group = np.zeros(len(groups), dtype=np.int64)
        if by_host:
            numbers = groups.keys["host"].map(number).fillna(-1)
            of_group = numbers.to_numpy().astype(np.int64)
        return cls(tuple(tables), of_group)

    def covers(self, steps: posterior.MeasuredSteps, *asked: FloatArray) -> Mask:
        """Mark groups whose table spans their measured steps and the frequencies asked (Hz)."""
        covered = np.zeros(len(steps.count), dtype=bool)
        for number, (frequency, _) in enumerate(self.tables):
            mine = np.flatnonzero((self.of_group == number) & (steps.count > 0))
            low, high = frequency[0] * (1 - _EDGE), frequency[-1] * (1 + _EDGE)
            lowest = steps.frequency[steps.first[mine]]
            inside = (lowest >= low) & (steps.highest(mine)[0] <= high)
            for target in asked:
                inside &= (target[mine] >= low) & (target[mine] <= high)
            covered[mine] = inside
        return covered

    def at(self, frequency: FloatArray, groups: IntArray) -> FloatArray:
        """Voltage (V) at (groups, k) frequencies (Hz), linear between the table's entries."""
        voltage = np.full(frequency.shape, np.nan)
        for number, table in enumerate(self.tables):
            mine = self.of_group[groups] == number
            voltage[mine] = np.interp(frequency[mine], *table)
        return voltage


def check_columns(table: pd.DataFrame) -> None:
    """Raise `PpwError` for a V-f table without its two columns."""
    if not {"freq_hz", "voltage_v"} <= set(table.columns):
        found = ", ".join(map(str, table.columns)) or "none"
        raise PpwError(
            f"the V-f table needs the columns freq_hz and voltage_v; its columns are {found}"
        )


# A voltage of 0 or less, or none at all, would silently make power of nothing.
def _require_positive(frequency: FloatArray, voltage: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the frequencies (Hz) and voltages (V). Raises `PpwError` unless all are positive."""
    if not (np.isfinite(voltage).all() and (voltage > 0).all() and (frequency > 0).all()):
        raise PpwError("the V-f table needs positive frequencies (Hz) and voltages (V)")
    return frequency, voltage


# What is fitted, and what is answered.


class TargetCells(NamedTuple):
    """Where answers are asked: group, frequency (Hz) and runs averaged, one element a cell."""

    group: IntArray
    frequency: FloatArray
    runs: FloatArray

    @classmethod
    def of_table(cls, cells: pd.DataFrame) -> TargetCells:
        """Make target cells of a table of `ppw.runs.prepare.measured_cells`."""
        return cls(*(cells[c].to_numpy() for c in ("group", "freq_hz", "runs")))


class Factor(NamedTuple):
    """One fit in a product of fits, at the cells asked for."""

    name: str
    fit: lines.ModelFit
    power: int
    # Range of the frequencies measured (Hz); inf and 0 without runs.
    lowest: FloatArray
    highest: FloatArray


class CurveFit(NamedTuple):
    """Least-squares curves of all groups, and the range of the frequencies behind each (Hz)."""

    fit: lines.ModelFit
    lowest: FloatArray
    highest: FloatArray


class Distribution(NamedTuple):
    """Posterior of a metric at a frequency, one element a group; NaN without an answer."""

    # Median and interval of the metric.
    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    mixture: prediction.Mixture  # distribution of its logarithm
    budget: Mapping[str, FloatArray]  # variance of the logarithm by source, as "time fit"
    pulled: FloatArray  # factor by which the table's other groups moved the answer

    @classmethod
    def of(
        cls,
        mixture: prediction.Mixture,
        ends: Sequence[float],
        budget: Mapping[str, FloatArray],
        pulled: FloatArray,
    ) -> Distribution:
        """Make a distribution of that of a logarithm: lower end, median and upper end."""
        with np.errstate(invalid="ignore"):
            lower, value, upper = np.exp(mixture.quantiles(ends))
        return cls(value, lower, upper, mixture, budget, pulled)

    def budget_shares(self) -> dict[str, FloatArray]:
        """Share of the log-variance that each source of uncertainty causes."""
        total = sum(self.budget.values())
        with np.errstate(invalid="ignore"):
            return {source: part / total for source, part in self.budget.items()}

    def take(self, groups: IntArray) -> Distribution:
        """Select the groups at some positions."""
        value, lower, upper = (part[groups] for part in self[:3])
        budget = {name: part[groups] for name, part in self.budget.items()}
        mixture = self.mixture.take(groups)
        return Distribution(value, lower, upper, mixture, budget, self.pulled[groups])


class CellAnswers(NamedTuple):
    """Answers for a metric at some cells; one element a cell."""

    cells: TargetCells
    factors: list[Factor]
    prediction: lines.Prediction
    distribution: Distribution | None  # None where the interval is no posterior's

    def has_curves(self) -> Mask:
        """Mark the cells whose groups have all their curves."""
        slopes = np.array([f.fit.line.slope for f in self.factors])
        return ~np.isnan(slopes).any(axis=0)

    def compare_least_squares(self) -> tuple[FloatArray, list[tuple[str, cv.Caveat]]]:
        """Least-squares answer over the posterior's, NaN within noise; a single fit's caveat."""
        if self.distribution is None:
            return np.full(len(self.cells.group), np.nan), []
        law, *_ = least_squares(self.factors, self.cells, 0.5, "none")
        budget = self.distribution.budget
        noise = sum(part for source, part in budget.items() if source.endswith("repeats"))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: FloatArray = law / self.distribution.value
            apart = np.log(ratio) ** 2 > np.maximum(noise, _ALIKE**2)
        ratio, names = np.where(apart, ratio, np.nan), [f.name for f in self.factors]
        return ratio, [(n, cv.least_squares_apart(n, ratio)) for n in names if len(names) == 1]

    def calibrate_interval(
        self, measured: FloatArray, at: CellAnswers, cluster: IntArray, level: float
    ) -> CellAnswers:
        """Make the interval conformal, by the misses of groups in other clusters.

        ``measured`` are measurements at the cells of ``at``, which are projections that have not
        seen them. ``cluster`` is that of each group.
        """
        if self.distribution is None or at.distribution is None:
            return self
        deviation = np.sqrt(at.distribution.mixture.moments()[1])
        score = np.abs(np.log(measured / at.prediction.value)) / deviation
        asked = cluster[self.cells.group]
        factor = prediction.conformal_factor(score, cluster[at.cells.group], asked, level)
        reach = np.exp(factor * np.sqrt(self.distribution.mixture.moments()[1]))
        value = self.prediction.value
        ends = self.prediction._replace(lower=value / reach, upper=value * reach)
        return self._replace(prediction=ends)


def fit_curves(
    prepared: PreparedRuns, options: FitOptions, rows: Mask | None = None
) -> dict[str, CurveFit]:
    """Fit each metric's curves to the chosen rows, by fit name; skip rows without a value."""
    runs, groups = prepared.runs, prepared.groups
    frequency = runs["freq_hz"].to_numpy(dtype=np.float64)
    found = {}
    for name in dict.fromkeys(name for m in prepared.metrics for name in options.fit_powers(m)):
        model, metric = options.model(name), METRICS.get(name, PERFORMANCE)
        measured = values(metric, runs)
        use = ~np.isnan(measured) if rows is None else rows & ~np.isnan(measured)
        codes, at = groups.codes[use], frequency[use]
        fitted: FloatArray | lines.Repeats = measured[use]
        if gr.is_aggregated(runs, metric.name):
            coordinate = gr.INVERSE if model.reciprocal else gr.VALUE
            fitted = gr.repeats(runs, metric.name, coordinate).take(use)
        fit = lines.fit(model, codes, at, fitted, len(groups))
        m = fit.line.moments
        # Readings of one step differ without being two. Few groups spread so little, so that only
        # their rows need a closer look; any exponent is covered.
        near = m.sxx <= m.points * (10 * posterior.SAME_STEP * m.mean_x) ** 2
        near &= ~np.isnan(fit.line.slope)
        if near.any():
            few = near[codes]
            single = near & (posterior.step_counts(codes[few], at[few], len(near)) < 2)
            fit = fit._replace(line=fit.line.without(single))
        lowest, highest = np.full(len(groups), np.inf), np.zeros(len(groups))
        np.minimum.at(lowest, codes, at)
        np.maximum.at(highest, codes, at)
        found[name] = CurveFit(fit, lowest, highest)
    return found


# Projected groups that are kept, some 500 bytes each.
_MOST_KEPT = 20_000


@dataclass(frozen=True)
class Posteriors:
    """Steps of a table's groups, by what is fitted, and the laws that go through them."""

    steps: Mapping[str, posterior.MeasuredSteps]  # of ln(time-like) or ln(power)
    neighbours: pooling.Neighbours
    time: pooling.TimeCurve
    power: pooling.CmosPowerCurve
    voltage: VoltageTable = field(repr=False)
    # What was projected already: metrics made of the same quantities ask for the same targets.
    made: dict[tuple[Any, ...], prediction.CurveProjection] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(
        cls, prepared: PreparedRuns, options: FitOptions, rows: Mask | None = None
    ) -> Posteriors:
        """Aggregate the chosen rows' values above 0 by frequency step, for each fit's posterior."""
        runs, groups = prepared.runs, prepared.groups
        powers = map(options.fit_powers, prepared.metrics)
        names = dict.fromkeys(name for p in powers if options.has_posterior(p) for name in p)
        frequency = runs["freq_hz"].to_numpy(dtype=np.float64)
        steps = {}
        for name in names:
            metric = METRICS.get(name, PERFORMANCE)
            measured = values(metric, runs)
            use = measured > 0 if rows is None else rows & (measured > 0)
            codes, at = groups.codes[use], frequency[use]
            sign, clock = _TIME_LIKE.get(name, (1, 0))
            taken_out = clock * np.log(at) if clock else 0.0
            if gr.is_aggregated(runs, metric.name):
                cells = gr.repeats(runs, metric.name, gr.LOG).take(use)
                logs: Any = cells._replace(mean=sign * cells.mean - taken_out)
            else:
                logs = sign * np.log(measured[use]) - taken_out
            steps[name] = posterior.MeasuredSteps.of(codes, at, logs, len(groups))
        voltage = VoltageTable()
        if POWER in steps or options.voltages is not None:
            voltage = VoltageTable.of(runs, groups, options.voltages)
        near, (time, power) = neighbours_of(groups), _time_and_power_laws(runs, options)
        if POWER in steps and options.pool and not voltage.tables:
            steps[POWER] = borrow_steps(power, steps[POWER], near)
        return cls(steps, near, time, power, voltage)

    def laws(self, name: str, *asked: FloatArray) -> list[tuple[pooling.Curve, Mask]]:
        """Laws of a quantity, each with a mask of the groups it holds for where ``asked`` (Hz)."""
        everyone = np.ones(len(self.neighbours.cluster), dtype=bool)
        if name != POWER:
            return [(self.time, everyone)]
        if not self.voltage.tables:
            return [(self.power, everyone)]
        covered = self.voltage.covers(self.steps[name], *asked)
        with_table = replace(self.power, voltage=self.voltage.at)
        both = [(with_table, covered), (self.power, ~covered)]
        return [(curve, mask) for curve, mask in both if mask.any()]

    def at(self, powers: Mapping[str, int], cells: TargetCells, level: float) -> Distribution:
        """Distribution of a product of fitted quantities at each cell."""
        if np.bincount(cells.group).max(initial=0) > 1:
            return self._in_passes(powers, cells, level)
        ends = (0.5 - level / 2, 0.5, 0.5 + level / 2)
        # Groups that are not asked for inform their neighbours.
        groups = len(self.neighbours.cluster)
        frequency, runs = np.full(groups, np.median(cells.frequency)), np.ones(groups)
        frequency[cells.group], runs[cells.group] = cells.frequency, cells.runs
        target = posterior.FrequencyTarget(frequency, runs)
        made = [self._factor(name, n, target, ends) for name, n in powers.items()]
        product = made[0]
        if len(made) > 1:
            first, second = made
            signs = [n * _TIME_LIKE.get(name, (1, 0))[0] for name, n in powers.items()]
            correlation = prediction.TIME_AND_POWER * float(np.prod(signs))
            mixture = first.mixture.plus(second.mixture, correlation)
            budget = {**first.budget, **second.budget}
            product = Distribution.of(mixture, ends, budget, first.pulled * second.pulled)
            kept = first.mixture.mean.shape[1] - 1
            product = product._replace(mixture=mixture.trim(kept))
        every_group = np.array_equal(cells.group, np.arange(groups))
        return product if every_group else product.take(cells.group)

    def _in_passes(
        self, powers: Mapping[str, int], cells: TargetCells, level: float
    ) -> Distribution:
        """Answer cells where groups have several, one cell a group and pass, in their order."""
        nth = pd.Series(cells.group).groupby(cells.group).cumcount().to_numpy()
        passes = [np.flatnonzero(nth == n) for n in range(int(nth.max()) + 1)]
        parts = (TargetCells._make(part[chosen] for part in cells) for chosen in passes)
        made = [self.at(powers, part, level) for part in parts]
        *ends, mixtures, budgets, pulled = zip(*made, strict=True)
        mixture = prediction.Mixture(*map(np.concatenate, zip(*mixtures, strict=True)))
        budget = {name: np.concatenate([b[name] for b in budgets]) for name in budgets[0]}
        value, lower, upper = map(np.concatenate, ends)
        whole = Distribution(value, lower, upper, mixture, budget, np.concatenate(pulled))
        return whole.take(np.argsort(np.concatenate(passes)))

    def _factor(
        self, name: str, power: int, target: posterior.FrequencyTarget, ends: Sequence[float]
    ) -> Distribution:
        """Distribution of one fitted quantity to a power of ±1."""
        made = self._project(name, target, ends)
        sign, clock = _TIME_LIKE.get(name, (1, 0))
        # A factor of 1 or −1 leaves the variance as it is.
        factor, shift = sign * power, power * clock * np.log(target.frequency)
        lower, value, upper = np.exp(np.sort(made.quantiles * factor, axis=0) + shift)
        words, of_runs = (POWER, "sensor and repeats") if name == POWER else ("time", "repeats")
        budget = {
            f"{words} fit": made.fit,
            f"{words} form": made.form,
            f"{words} {of_runs}": made.noise,
        }
        mixture = made.mixture._replace(mean=made.mixture.mean * factor + shift[:, None])
        return Distribution(value, lower, upper, mixture, budget, np.exp(factor * made.pulled))

    def _project(
        self, name: str, target: posterior.FrequencyTarget, ends: Sequence[float]
    ) -> prediction.CurveProjection:
        """Project one fitted quantity; of a small table what was asked before is kept."""
        key = (name, *ends, *(part.tobytes() for part in target))
        if key in self.made:
            return self.made[key]
        parts, laws = [], self.laws(name, target.frequency)
        for curve, mask in laws:
            asked = target._replace(frequency=np.where(mask, target.frequency, np.nan))
            table = (self.steps[name], asked, self.neighbours)
            parts.append(prediction.project_curve(curve, *table, ends))
        made = parts[0] if len(parts) == 1 else _merge_projections(laws[0][1], *parts)
        if (len(self.made) + 1) * len(target.runs) <= _MOST_KEPT:
            self.made[key] = made
        return made


def _merge_projections(
    mask: Mask, one: prediction.CurveProjection, other: prediction.CurveProjection
) -> prediction.CurveProjection:
    """Take the first projection for groups in the mask, and the other for the rest."""
    parts = zip(one.mixture, other.mixture, strict=True)
    mixture = prediction.Mixture(*(np.where(mask[:, None], a, b) for a, b in parts))
    rest = (np.where(mask, a, b) for a, b in zip(one[1:], other[1:], strict=True))
    return prediction.CurveProjection(mixture, *rest)


def neighbours_of(groups: gr.Groups) -> pooling.Neighbours:
    """Find the clusters of groups that differ in core count alone, and their log core counts."""
    keys = groups.keys
    axis = [c for c in POOLED_OVER if c in groups.by]
    rest = [c for c in groups.by if c not in axis]
    position = np.zeros(len(groups))
    for column in axis:
        count = keys[column].to_numpy(dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            position += np.where(count > 0, np.log(count), 0.0)
    one = np.zeros(len(groups), dtype=np.int64)
    host = np.asarray(keys["host"].factorize()[0]) if "host" in groups.by else one
    if not axis:
        return pooling.Neighbours(np.arange(len(groups)), position, host)
    if not rest:
        return pooling.Neighbours(one, position, host)
    cluster = keys.groupby(rest, sort=False, dropna=False).ngroup()
    return pooling.Neighbours(np.asarray(cluster, dtype=np.int64), position, host)


def _time_and_power_laws(
    runs: pd.DataFrame, options: FitOptions
) -> tuple[pooling.TimeCurve, pooling.CmosPowerCurve]:
    """Laws of time and power, with the noise of the power source, pooled or not."""
    time, power = priors.StalledSharePrior(), priors.DynamicSharePrior()
    if "power_source" in runs.columns:
        sources = {str(source).lower() for source in runs["power_source"].unique()}
        time = replace(time, noise=_largest_noise(_TIME_NOISE, sources, time.noise))
        power = replace(power, noise=_largest_noise(_POWER_NOISE, sources, power.noise))
    of_time, of_power = pooling.TIME_POOLING, pooling.POWER_POOLING
    if not options.pool:
        of_time = of_power = pooling.NO_POOLING
    exponent = 1.0 if options.power_form == "linear" else options.exponent
    return (
        pooling.TimeCurve(prior=time, pooling=of_time),
        pooling.CmosPowerCurve(prior=power, pooling=of_power, exponent=exponent),
    )


def _largest_noise(by_word: Mapping[str, float], sources: Iterable[str], other: float) -> float:
    """Largest noise of the known power sources; ``other`` where one is not known."""
    found = [[n for word, n in by_word.items() if word in source] for source in sources]
    return max(map(max, found)) if found and all(found) else other


@dataclass(frozen=True)
class Answers:
    """Curves and posteriors through the chosen rows of a table."""

    prepared: PreparedRuns
    options: FitOptions
    curves: Mapping[str, CurveFit]
    posteriors: Posteriors

    @classmethod
    def of(cls, prepared: PreparedRuns, options: FitOptions, rows: Mask | None = None) -> Answers:
        """Fit all that the table's metrics need to the chosen rows (all of them by default)."""
        posteriors = Posteriors.of(prepared, options, rows)
        return cls(prepared, options, fit_curves(prepared, options, rows), posteriors)

    def at(self, metric: Metric, cells: TargetCells, level: float) -> CellAnswers:
        """Answer a metric at each cell; a group may have several cells."""
        return self.product(self.options.fit_powers(metric), cells, level)

    def product(
        self,
        powers: Mapping[str, int],
        cells: TargetCells,
        level: float,
        constant: float = 1.0,
        clock_power: int = 0,
        *,
        errors: Mapping[str, float] | None = None,
    ) -> CellAnswers:
        """Answer constant · f^clock_power · Π fit^power; ``errors`` are log-variances beside it."""
        as_share("interval level", level)
        factors = []
        coefficient, exponent = np.asarray(1.0), np.asarray(0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for name, power in powers.items():
                fit, *measured = self.curves[name]
                lowest, highest = (end[cells.group] for end in measured)
                factors.append(Factor(name, fit.take(cells.group), power, lowest, highest))
                if name == POWER:
                    # A V-f table that was given refuses what it does not reach.
                    fit.model.abscissa(cells.frequency)
                far = fit.model.asymptote(factors[-1].fit.line)
                coefficient = coefficient * far.coefficient**power
                exponent = exponent + power * far.exponent
            limit = lines.Asymptote(coefficient * constant, exponent + clock_power).limit()
        known = None
        if self.options.has_posterior(powers):
            known = self.posteriors.at(powers, cells, level)
            known = _widen(known, errors, level) if errors else known
        ends = known[:3] if known else least_squares(factors, cells, level, self.options.interval)
        scale = constant * cells.frequency**clock_power
        value, lower, upper = (end * scale for end in ends)
        # A perf/W that falls to nothing has reached no share of it; a time that falls to 0 has.
        reached = np.isfinite(limit) & ((limit != 0) | (len(factors) == 1))
        if known and len(factors) == 1:
            # Least squares give the limit: an answer on its other side has none, nor a constant.
            line = scale * factors[0].fit.predict(cells.frequency) ** factors[0].power
            beyond = np.isfinite(limit) & ~((value - limit) * (line - limit) > 0)
            limit, reached = np.where(beyond, np.nan, limit), reached & ~beyond
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(reached, np.minimum(value / limit, limit / value), np.nan)
        return CellAnswers(
            cells, factors, lines.Prediction(value, lower, upper, limit, share), known
        )

    def law_through(
        self, name: str, one: TargetCells, other: TargetCells
    ) -> dict[str, FloatArray] | None:
        """Parameters of a fit's law through its posterior's medians at two frequencies a group."""
        if not (len(one.group) and self.options.has_posterior({name: 1})):
            return None
        fit, *_ = self.curves[name]
        answers = [self.product({name: 1}, cells, 0.5).prediction.value for cells in (one, other)]
        frequency = np.stack([one.frequency, other.frequency])
        x = fit.model.abscissa(frequency)
        y = fit.model.ordinate(np.stack(answers), frequency)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (y[1] - y[0]) / (x[1] - x[0])
        return dict(zip(fit.parameters(), (y[0] - slope * x[0], slope), strict=True))

    def other_form(self, metric: Metric) -> Answers | None:
        """Fit the other form, reciprocal or bounded, where curves gain more than the frequency."""
        if metric.name not in WITH_OTHER_FORM:
            return None
        line, form = self.curves[metric.name].fit.line, self.options.form
        coefficient = line.slope if metric.name == "cpi" else line.intercept
        faster = coefficient <= 0 if form == "amdahl" else coefficient < 0
        if form == "reciprocal":
            faster = line.slope < 0
        if not faster.any():
            return None
        options = FitOptions(
            form="amdahl" if form == "reciprocal" else "reciprocal",
            interval="none" if self.options.interval == "none" else "t",
        )
        prepared = replace(self.prepared, metrics=[metric])
        curves = fit_curves(prepared, options, faster[prepared.groups.codes])
        return replace(self, options=options, curves=curves)

    def findings(self, answer: CellAnswers) -> list[tuple[str, cv.Caveat]]:
        """Find the caveats of an answer's fits and intervals, each with the name of its fit."""
        factors, frequency = answer.factors, answer.cells.frequency
        has_posterior = answer.distribution is not None
        found: list[tuple[str, cv.Caveat]] = []
        for f in factors:
            found += [(f.name, x) for x in cv.fit_findings(f.name, f.fit, frequency, has_posterior)]
        for f in factors:
            far = cv.far_findings(f.fit, f.lowest, f.highest, frequency)
            found += [(f.name, finding) for finding in far]
        if has_posterior:
            found.append(
                (" and ".join(f.name for f in factors), cv.wide_interval(answer.prediction))
            )
            usual = self.posteriors.time.prior.noise
            for name in (f.name for f in factors if f.name != POWER):
                test = posterior.lack_of_fit(self.posteriors.steps[name], usual=usual)
                found += [(name, x) for x in cv.bend_findings(test, answer.cells.group)]
        return found


def _widen(known: Distribution, errors: Mapping[str, float], level: float) -> Distribution:
    """Add the variances of independent log errors, by source, to a distribution."""
    ends = (0.5 - level / 2, 0.5, 0.5 + level / 2)
    for source, variance in errors.items():
        mixture = known.mixture._replace(variance=known.mixture.variance + variance)
        budget = {**known.budget, source: np.full(len(known.value), variance)}
        known = Distribution.of(mixture, ends, budget, known.pulled)
    return known


def least_squares(
    factors: Sequence[Factor], cells: TargetCells, level: float, interval: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Predict Π fit^power from the curves alone: value, lower and upper end.

    The interval of a single fit is its own, carried over. In a product the errors are taken as
    independent and their relative variances add (first order); Welch and Satterthwaite give the
    degrees of freedom, and the interval is symmetric in the logarithm, so that its lower end
    stays positive.
    """
    from scipy.special import stdtrit

    at, repeats = cells.frequency, cells.runs
    # A prediction near zero has a relative error without bound, and so have its ends.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value, variance, weighted = (np.asarray(start) for start in (1.0, 0.0, 0.0))
        for factor in factors:
            value = value * factor.fit.predict(at) ** factor.power
        if interval == "none":
            nothing = np.full(len(at), np.nan)
            return value, nothing, nothing
        if len(factors) == 1:
            ends = factors[0].fit.interval(at, level=level, repeats=repeats)
            a, b = (end ** factors[0].power for end in ends)
            return value, np.minimum(a, b), np.maximum(a, b)
        for factor in factors:
            share = (factor.power * factor.fit.relative_error(at, repeats=repeats)) ** 2
            variance = variance + share
            weighted = weighted + share**2 / factor.fit.line.degrees_of_freedom
        freedom = np.where(weighted > 0, variance**2 / weighted, np.inf)
        # 0·inf, the quantile of an exact fit, is no spread at all.
        half = np.where(variance == 0, 0.0, stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance))
        return value, value * np.exp(-half), value * np.exp(half)


# Draws of the curves: what depends on several frequencies at once is counted.


@dataclass(frozen=True)
class CurveDraws:
    """Posterior curves of all groups, ready to be drawn."""

    # By what is fitted ("time", "throughput", "performance", "power") and group.
    known: Mapping[str, Mapping[int, bd.CurvePosterior]]
    draws: int
    seed: int  # the same group has the same draws for the same frequencies

    @classmethod
    def of(
        cls, answers: Answers, lowest: FloatArray, highest: FloatArray, *, draws: int, seed: int
    ) -> CurveDraws:
        """Prepare every curve's posterior for drawing, in each group's range (Hz; NaN for none)."""
        if draws < FEWEST_DRAWS:
            raise PpwError(f"{draws} draws are too few: give {FEWEST_DRAWS} or more")
        known = answers.posteriors
        made: dict[str, dict[int, bd.CurvePosterior]] = {}
        for name, steps in known.steps.items():
            several = steps.count > 1
            laws = known.laws(name, lowest, highest)
            chosen = [(curve, np.flatnonzero(mask & several)) for curve, mask in laws]
            # A host without frequency scaling has one step: nothing of it informs the others.
            alone = known.power if name == POWER else known.time
            chosen += [(alone, np.array([g])) for g in np.flatnonzero(steps.count == 1)]
            made[name] = {}
            for curve, groups in chosen:
                made[name] |= bd.curve_posteriors(curve, steps, known.neighbours, groups)
        return cls(made, draws, seed)

    def has(self, name: str, group: int) -> bool:
        """Tell whether a group has a posterior of a quantity, and can be drawn."""
        return group in self.known[name]

    def is_curve(self, name: str, group: int) -> bool:
        """Tell whether a group was measured at two steps or more, so that it has a curve."""
        return self.has(name, group) and self.steps(name, group).size > 1

    def steps(self, name: str, group: int) -> FloatArray:
        """Measured frequencies (Hz) of a group, rising."""
        sweep = self.known[name][group].sweep
        return sweep.frequency[0, sweep.borrowed[0] == 0]

    def log_time(self, name: str, group: int, frequencies: FloatArray) -> FloatArray:
        """Draw ln(seconds per unit of work), the reciprocal of a rate: (draws, frequencies)."""
        return self._draw_log(name, group, frequencies, 0)

    def log_power(self, group: int, frequencies: FloatArray) -> FloatArray:
        """Draw ln(power in W), paired with the draws of a time: (draws, frequencies)."""
        drawn = self._draw_log(POWER, group, frequencies, 1)
        timed = [name for name in self.known if name != POWER and self.is_curve(name, group)]
        if not timed:
            return drawn
        random = np.random.default_rng((self.seed, group, 2))
        beside = self.log_time(timed[0], group, frequencies)
        return bd.pair_draws(drawn, beside, prediction.TIME_AND_POWER, random)

    def _draw_log(self, name: str, group: int, frequencies: FloatArray, stream: int) -> FloatArray:
        """Draw the logarithm of a fit; a group with one step takes only that frequency."""
        known = self.known[name][group]
        asked = np.asarray(frequencies, dtype=float)
        if len(measured := known.sweep.frequency[0]) == 1:
            far = np.abs(asked / measured - 1)
            if (far > posterior.SAME_STEP).any():
                raise PpwError(
                    f"measured at {measured[0] / 1e9:.4g} GHz only: one frequency does not "
                    f"determine a curve to {asked[np.argmax(far)] / 1e9:.4g} GHz; measure at a "
                    "second frequency"
                )
            asked = np.full_like(asked, measured[0])
        # One stream for all that is a time, so that a rate and its reciprocal are one curve.
        return known.draw(asked, self.draws, np.random.default_rng((self.seed, group, stream)))
