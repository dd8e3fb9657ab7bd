"""`best_frequency`: at which of its steps a host does the work for the least, and how surely."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.steps import SAME_STEP
from measurements.table.units import parse_quantity
from ppw.decision.objectives import (
    NO_LIMITS,
    OBJECTIVES,
    Limits,
    Missed,
    Rates,
    as_steps,
    best_on_lines,
    catalogued_steps,
    first_said,
    known_steps,
    log_cost,
    unit_of,
)
from ppw.errors import PpwError
from ppw.projection.answers import POWER, Answers, CurveDraws
from ppw.projection.options import FitOptions
from ppw.projection.runs import nothing_to_fit, unfitted_groups
from ppw.results import caveats as cv
from ppw.results.arguments import as_number, as_positive, as_share, known_choice
from ppw.results.result import PrintedTable, Result, Table, frame_digest
from ppw.results.text import key_texts, plot_label, shown
from ppw.runs.groups import canonical
from ppw.runs.metrics import METRICS, PERFORMANCE, columns_for, values
from ppw.runs.prepare import Prepared, prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes

    from fitting.regression.lines import FloatArray, IntArray
    from ppw.decision.objectives import Objective


# The choice of a step, group by group: what each draw of the curves says of every step.


class Choice(NamedTuple):
    """Draws of one group at the steps to choose from.

    Attributes
    ----------
    group : int
    frequency : (steps,) float array
        Hz, rising.
    runs : (steps,) int array
        Measured at each step; 0 where none.
    log_cost : (draws, steps) float array
        Of a unit of work.
    log_energy : (draws, steps) float array or None
        Of a unit of work, idle power included; None without watts.
    linear_hz : float
        Closed form of the least-squares lines.
    """

    group: int
    frequency: FloatArray
    runs: IntArray
    log_cost: FloatArray
    log_energy: FloatArray | None
    linear_hz: float

    def p_best(self) -> FloatArray:
        """Share of the draws in which each step is the best."""
        best = np.argmin(self.log_cost, axis=1)
        return np.bincount(best, minlength=len(self.frequency)) / len(best)

    def expected_loss(self, more_is_better: bool) -> FloatArray:
        """Mean share lost at each step against the best of its draw.

        What a cost is more than the least, or what a merit, its reciprocal, is less than the most.
        """
        more = self.log_cost - self.log_cost.min(axis=1, keepdims=True)
        loss: FloatArray = (-np.expm1(-more) if more_is_better else np.expm1(more)).mean(axis=0)
        return loss

    def p_rises(self) -> FloatArray:
        """Probability that perf/W rises from each step to the next; NaN where not known."""
        made = np.full(len(self.frequency), np.nan)
        if self.log_energy is not None:
            made[:-1] = (np.diff(self.log_energy, axis=1) < 0).mean(axis=0)
        return made

    def rises_to(self) -> float:
        """Highest step (Hz) that is reached by steps that each probably raise perf/W."""
        rises = self.p_rises()
        if np.isnan(rises[0]):
            return float("nan")
        # The highest step has no next one and ends every rise.
        return float(self.frequency[np.argmin(np.nan_to_num(rises) >= 0.5)])

    def between(self, level: float) -> FloatArray:
        """Steps (Hz) between which the best one lies at a level."""
        best = self.frequency[np.argmin(self.log_cost, axis=1)]
        ends: FloatArray = np.quantile(
            best, [0.5 - level / 2, 0.5 + level / 2], method="inverted_cdf"
        )
        return ends

    def value(self, level: float, more_is_better: bool) -> FloatArray:
        """Median and interval of the objective at each step: (3, steps)."""
        ends = [0.5, 0.5 - level / 2, 0.5 + level / 2]
        logs = -self.log_cost if more_is_better else self.log_cost
        made: FloatArray = np.exp(np.quantile(logs, ends, axis=0))
        return made


@dataclass(frozen=True)
class Problem:
    """What is chosen for, and from which curves.

    Attributes
    ----------
    prepared : Prepared
    answers : Answers
    objective : Objective
    rates : Rates
    price : float or None
        Of every host; None for the column ``price``.
    limits : Limits
        What steps must keep to, to be chosen from.
    missed : list of Missed
        Groups without such a step, once choices were made.
    """

    prepared: Prepared
    answers: Answers
    objective: Objective
    rates: Rates
    price: float | None
    limits: Limits = NO_LIMITS
    missed: list[Missed] = field(default_factory=list)

    @property
    def needs_watts(self) -> bool:
        """Tell whether power is part of the cost."""
        return self.objective.times > 0 or self.rates.electricity is not None

    @property
    def _needs_power(self) -> bool:
        return self.needs_watts or self.limits.power_cap_w is not None

    @property
    def time(self) -> str:
        """Name of the fit that stands for time."""
        return next(name for name in self.answers.posteriors.steps if name != POWER)

    def _work(self) -> str:
        """Unit of work: an operation where throughput was measured, else a run."""
        by_rate = columns_for(PERFORMANCE, self.prepared.runs) == ("throughput_ops_s",)
        return "op" if by_rate else "run"

    def refuse_idle(self) -> None:
        """Raise `PpwError` where a job draws no more than the idle host."""
        if not self.rates.idle_w:
            return
        power = values(METRICS["power"], self.prepared.runs)
        least = float(np.nanmin(power))
        if least <= self.rates.idle_w:
            raise PpwError(
                f"idle power {shown(self.rates.idle_w, 'W')} is not below the least measured power "
                f"{shown(least, 'W')}: give it for the same scope as power_w"
            )

    def choices(self, asked: FloatArray | None, draws: int, seed: int) -> list[Choice]:
        """Draw every group that has curves at its steps."""
        steps = self._steps(asked)
        ends = np.full((2, len(self.prepared.groups)), np.nan)
        for group, frequency in steps.items():
            ends[:, group] = frequency[0], frequency[-1]
        curves = CurveDraws.of(self.answers, *ends, draws=draws, seed=seed)
        self.limits.refuse_rates(self._work())
        made = (self._choice(curves, group, frequency) for group, frequency in steps.items())
        return [choice for choice in made if choice is not None]

    def _steps(self, asked: FloatArray | None) -> dict[int, FloatArray]:
        """Steps of each group that has curves of all that is needed."""
        known = self.answers.posteriors.steps
        names = [self.time, POWER] if self._needs_power else [self.time]
        able = np.logical_and.reduce([known[name].count > 1 for name in names])
        groups = np.flatnonzero(able)
        if asked is not None:
            return {int(g): asked for g in groups}
        hosts = self._hosts()
        listed = catalogued_steps(dict.fromkeys(hosts[groups]))
        first, count = known[self.time].first, known[self.time].count
        return {
            int(g): known_steps(
                known[self.time].frequency[first[g] : first[g] + count[g]], listed[hosts[g]]
            )
            for g in groups
        }

    def _hosts(self) -> np.ndarray[Any, np.dtype[np.object_]]:
        keys = self.prepared.groups.keys
        if "host" in keys:
            return keys["host"].to_numpy(dtype=object)
        return np.full(len(keys), None, dtype=object)

    def _choice(self, curves: CurveDraws, group: int, frequency: FloatArray) -> Choice | None:
        log_time = curves.log_time(self.time, group, frequency)
        watts = POWER in curves.known and curves.is_curve(POWER, group)
        log_power = curves.log_power(group, frequency) if watts else None
        if self.limits:
            p_kept = self.limits.p_kept(log_time, log_power)
            kept = p_kept >= self.limits.level
            if not kept.any():
                nearest = self.limits.nearest(log_time, log_power)
                missed = Missed(
                    self._label(group), float(frequency[nearest]), float(p_kept[nearest])
                )
                self.missed.append(missed)
                return None
            frequency, log_time = frequency[kept], log_time[:, kept]
            log_power = None if log_power is None else log_power[:, kept]
        price = self._price(group)
        counted = log_power if self.needs_watts else None
        return Choice(
            group,
            frequency,
            self._runs(group, frequency),
            log_cost(self.objective, log_time, counted, price, self.rates),
            None if log_power is None else log_time + log_power,
            self._linear(group, frequency, price),
        )

    def _runs(self, group: int, frequency: FloatArray) -> IntArray:
        known = self.answers.posteriors.steps[self.time]
        at = slice(known.first[group], known.first[group] + known.count[group])
        same = np.abs(known.frequency[at] / frequency[:, None] - 1) <= SAME_STEP
        runs: IntArray = (same @ known.runs[at]).astype(np.int64)
        return runs

    def _price(self, group: int) -> float:
        if self.objective.times or self.objective is OBJECTIVES["time"]:
            return 1.0
        if self.price is not None:
            return self.price
        if "price" not in self.prepared.runs:
            raise PpwError("no price: perf_per_dollar takes a column price, or --price")
        rows = self.prepared.groups.codes == group
        price = float(self.prepared.runs["price"].to_numpy(dtype=np.float64)[rows].mean())
        if not price > 0:
            raise PpwError(
                f"price {price} of {self._label(group)}: every row needs a price above 0, or give "
                "--price"
            )
        return price

    def _label(self, group: int) -> str:
        keys = self.prepared.groups.keys.iloc[group]
        return ", ".join(key_texts(self.prepared.groups.by, keys.to_dict())) or "all runs"

    def _linear(self, group: int, frequency: FloatArray, price: float) -> float:
        fits = self.answers.curves.fits
        lines = [
            (float(line.intercept[group]), float(line.slope[group]))
            for line in (fits[n].line for n in (self.time, POWER) if n in fits)
        ]
        ends = (float(frequency[0]), float(frequency[-1]))
        power = lines[1] if len(lines) > 1 else None
        return best_on_lines(self.objective, lines[0], power, price, self.rates, ends)

    def table(self, choices: list[Choice], level: float) -> pd.DataFrame:
        """One row a group."""
        rows = [self._row(choice, level) for choice in choices]
        return self._keyed([c.group for c in choices], pd.DataFrame(rows))

    def _row(self, choice: Choice, level: float) -> dict[str, Any]:
        p_best = choice.p_best()
        loss = choice.expected_loss(self.objective.more_is_better)
        best, frequency = int(np.argmax(p_best)), choice.frequency
        lower_hz, upper_hz = choice.between(level)
        value, lower, upper = choice.value(level, self.objective.more_is_better)[:, best]
        return {
            "unit": unit_of(self.objective, self.rates, self._work()),
            "best_hz": frequency[best],
            "lower_hz": lower_hz,
            "upper_hz": upper_hz,
            "p_best": p_best[best],
            "expected_loss": loss[best],
            "least_loss_hz": frequency[np.argmin(loss)],
            "value": value,
            "lower": lower,
            "upper": upper,
            "rises_to_hz": choice.rises_to(),
            "linear_hz": choice.linear_hz,
        }

    def steps(self, choices: list[Choice], level: float) -> pd.DataFrame:
        """One row a group and step."""
        parts = [self._step_rows(choice, level) for choice in choices]
        groups = [c.group for c in choices for _ in c.frequency]
        return self._keyed(groups, pd.concat(parts, ignore_index=True))

    def _step_rows(self, choice: Choice, level: float) -> pd.DataFrame:
        value, lower, upper = choice.value(level, self.objective.more_is_better)
        columns = {
            "freq_hz": choice.frequency,
            "runs": choice.runs,
            "value": value,
            "lower": lower,
            "upper": upper,
            "p_best": choice.p_best(),
            "expected_loss": choice.expected_loss(self.objective.more_is_better),
            "p_rises": choice.p_rises(),
        }
        return pd.DataFrame(columns)

    def _keyed(self, groups: list[int], rows: pd.DataFrame) -> pd.DataFrame:
        keys = self.prepared.groups.keys.take(groups).reset_index(drop=True)
        return pd.concat([keys, rows], axis=1)


# Below this probability another step may as well be the best one.
SURE = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class BestFrequency(Result):
    """Best steps of every group of a runs table.

    Attributes
    ----------
    table, steps : pandas.DataFrame
        One row a group, and one row a group and step.
    by : tuple of str
        Columns that tell groups apart.
    objective : str
    level : float
        Probability of the intervals.
    idle_power_w, electricity, lifetime_hours, deadline_s, power_cap_w : float or None
        As asked for; electricity in currency per kWh.
    draws, seed : int
    caveats : tuple of str
    """

    kind = "best_frequency"
    tables = (
        Table(
            "table",
            """
            unit          | text  |                 | unit of the objective
            best_hz       | Hz [lower_hz, upper_hz] | best | most probable step
            lower_hz      | Hz    |                 | lowest step that may be the best at `level`
            upper_hz      | Hz    |                 | highest step that may be the best at `level`
            p_best        | share | P(best)         | probability that `best_hz` is the best step
            expected_loss | share .1% | expected loss | share lost on average at `best_hz`
            least_loss_hz | Hz    |                 | step of the least expected loss
            value         | unit [lower, upper] | {objective} | objective at `best_hz`
            lower         | unit  |                 | lower end of the interval of `value`
            upper         | unit  |                 | upper end of the interval of `value`
            rises_to_hz   | Hz    | perf/W rises to | perf/W probably rises with each step up to it
            linear_hz     | Hz    | straight lines  | optimum of the least-squares lines
            """,
            title="Groups",
            key="groups",
        ),
        Table(
            "steps",
            """
            freq_hz       | Hz    | step    | frequency of the step
            runs          | count | runs    | runs measured at the step
            value         | @unit [lower, upper] | {objective} | objective at the step
            lower         | @unit |         | lower end of the interval of `value`
            upper         | @unit |         | upper end of the interval of `value`
            p_best        | share | P(best) | probability of being the best step
            expected_loss | share .1% | expected loss | share lost on average at the step
            p_rises       | share | P(perf/W rises to next) | NaN at the highest, or without power
            """,
            title="Steps",
        ),
    )

    table: pd.DataFrame
    steps: pd.DataFrame
    by: tuple[str, ...]
    objective: str
    level: float
    idle_power_w: float | None
    electricity: float | None
    lifetime_hours: float | None
    draws: int
    seed: int
    deadline_s: float | None = None
    power_cap_w: float | None = None

    @property
    def unit(self) -> str:
        """Unit of the objective."""
        return str(self.table["unit"].iloc[0])

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of ``steps`` with ``best_hz`` and ``linear_hz`` of their group."""
        best = self.table[[*self.by, "best_hz", "linear_hz"]]
        return (
            self.steps.merge(best, on=list(self.by))
            if self.by
            else self.steps.merge(best, how="cross")
        )

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return groups and steps as they print; a summary has the steps of a single group only."""
        groups, steps = super().printed_tables(most)
        return [groups, steps] if most is not None or len(self.table) == 1 else [groups]

    def _words(self) -> str:
        words = OBJECTIVES[self.objective].words.capitalize()
        return words + Limits(self.deadline_s, self.power_cap_w).words()

    def verdict(self) -> str:
        """Say in a sentence where most groups are best."""
        best = self.table["best_hz"]
        sure = int((self.table["p_best"] > SURE).sum())
        words = self._words()
        if len(best) == 1:
            row = self.table.iloc[0]
            at = shown(row["best_hz"], "Hz")
            return f"{words}: best at {at}, with probability {row['p_best']:.0%}."
        ends = " to ".join(dict.fromkeys(shown(f, "Hz") for f in (best.min(), best.max())))
        return f"{words}: best at {ends}, more likely than not in {sure} of {len(best)} groups."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how probably each step is the best, for up to ten groups."""
        from ppw.results.axes import new_axes

        axes, group = new_axes(ax), group_of_step(self.steps, self.by)
        for number, row in enumerate(self.table.head(10).to_dict(orient="records")):
            steps = self.steps[group == number]
            label = plot_label(", ".join(key_texts(self.by, row)) or "all runs")
            axes.plot(steps["freq_hz"] / 1e9, steps["p_best"], "o-", ms=4, label=label)
        axes.set_xlabel("core frequency (GHz)")
        axes.set_ylabel("probability of being the best step")
        axes.set_ylim(0, 1.02)
        axes.set_title(self._words())
        axes.legend(frameon=False)
        return axes


def best_frequency(
    runs: pd.DataFrame,
    *,
    objective: str = "energy",
    steps: str | Iterable[float | str] | None = None,
    deadline: float | str | None = None,
    power_cap: float | str | None = None,
    by: Sequence[str] | None = None,
    level: float = 0.90,
    idle_power: float | str | None = None,
    price: float | None = None,
    electricity: float | None = None,
    lifetime_hours: float | None = None,
    voltages: Mapping[float, float] | pd.DataFrame | None = None,
    pool: bool = True,
    keep_all: bool = False,
    draws: int = 2000,
    seed: int = 0,
) -> BestFrequency:
    """Find the best frequency step of every group of a runs table.

    Curves of time and power are drawn from their posteriors; how often a step is the best of its
    draw is its probability. New runs' noise is left out: it does not make a step better.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table (`ppw.read_runs`), or a frame with columns such as ``freq_ghz``, ``time_ms``.
    objective : {"energy", "edp", "ed2p", "perf_per_watt", "time", "perf_per_dollar"}
        Least energy P·T, energy-delay product P·T² or P·T³ of a unit of work (an operation where
        the throughput was measured, else a run); least time, which is the highest step but for a
        power cap; most performance per watt or per price. The last is performance over price, so
        that the highest step is best, unless ``electricity`` and ``lifetime_hours`` are given: then
        one run costs price·T/lifetime + energy·electricity.
    steps : str or sequence of float or str, optional
        Steps to choose from, "1.2GHz,1.8GHz" or "1.2GHz:2.4GHz:0.1GHz" or numbers in Hz; by
        default those measured in the group and, where the catalogue knows the host
        (`ppw.find_host`), its own.
    deadline : float or str, optional
        Time ("60s") by which a run has to be done: only steps that keep to it with a probability
        of ``level`` are chosen from.
    power_cap : float or str, optional
        Watts ("120W") that a run must not draw more than, in the same way.
    by : sequence of str, optional
        Columns that tell groups apart; by default all identity columns present.
    level : float
        Of the intervals.
    idle_power : float or str, optional
        Watts ("40W") drawn between jobs by a host that stays on: only what a job adds to them
        counts. By default 0: the host is off, or put to other work.
    price : float, optional
        Of one host, for perf_per_dollar; by default the column ``price``.
    electricity : float, optional
        Currency a kWh.
    lifetime_hours : float, optional
        Hours of work over which the price is spread.
    voltages, pool, keep_all
        As for `ppw.project_runs`.
    draws, seed : int
        Curves drawn a group, and where chance starts. A probability has a standard error of up to
        0.5/sqrt(draws).

    Returns
    -------
    BestFrequency
        Best steps of every group of a runs table.

    Raises
    ------
    MeasurementError
        For values that cannot be, all of them at once.
    PpwError
        For an objective, step or price that is not there, an idle power above a measured one, or
        when no group has two frequencies.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    known_choice("objective", objective, tuple(OBJECTIVES))
    as_share("interval level", level)
    _check_price(objective, price, electricity)
    rates = Rates.checked(electricity, lifetime_hours, _watts(idle_power))
    limits = Limits.checked(deadline, power_cap, level)
    asked = None if steps is None else as_steps(steps)
    prepared = prepare(
        runs, by=by, metric=_metric(runs, objective, rates, limits), keep_all=keep_all
    )
    answers = Answers.of(prepared, FitOptions(voltages=voltages, pool=pool))
    problem = Problem(prepared, answers, OBJECTIVES[objective], rates, price, limits)
    problem.refuse_idle()
    choices = problem.choices(asked, draws, seed)
    missed = [group.said(limits) for group in problem.missed]
    if not choices:
        raise PpwError(first_said(missed) or nothing_to_fit(prepared))
    table, by_step = problem.table(choices, level), problem.steps(choices, level)
    caveats = [*prepared.caveats(), *unfitted_groups(answers.curves, prepared)]
    caveats += [
        *(f"left out: {group}" for group in missed),
        *_undecided(table),
        *_beyond(table, prepared),
    ]
    cv.warn(caveats)
    return BestFrequency(
        table=table,
        steps=by_step,
        by=tuple(prepared.groups.by),
        objective=objective,
        level=level,
        idle_power_w=rates.idle_w or None,
        electricity=electricity,
        lifetime_hours=lifetime_hours,
        draws=draws,
        seed=seed,
        caveats=tuple(caveats),
        input_digest=frame_digest(prepared.runs),
        deadline_s=limits.deadline_s,
        power_cap_w=limits.power_cap_w,
    )


def _watts(power: float | str | None) -> float:
    if power is None:
        return 0.0
    watts = as_number("idle power", parse_quantity(power, "w") if isinstance(power, str) else power)
    if watts < 0:
        raise PpwError(f"idle power {power!r} is negative: give watts, 0 or more")
    return watts


def _check_price(objective: str, price: float | None, electricity: float | None) -> None:
    if price is not None:
        as_positive("price", price)
    if objective != "perf_per_dollar" and (price is not None or electricity is not None):
        raise PpwError(
            f"a price or electricity does not change {objective}: ask for "
            "--objective perf_per_dollar"
        )


def _metric(runs: pd.DataFrame, objective: str, rates: Rates, limits: Limits) -> str:
    """Metric whose fits the objective is made of."""
    tidy = canonical(runs)
    if columns_for(METRICS["power"], tidy) is not None:
        return "perf_per_watt"
    if limits.power_cap_w is not None:
        raise PpwError("a power cap needs power_w (or energy_j) of the runs")
    if objective == "perf_per_watt":
        return objective
    if objective not in ("time", "perf_per_dollar") or rates.electricity is not None:
        return "energy"
    return "throughput" if columns_for(METRICS["throughput"], tidy) else "time"


def _undecided(table: pd.DataFrame) -> list[str]:
    unsure = int((table["p_best"] <= SURE).sum())
    if not unsure:
        return []
    worst = float(table["expected_loss"].max())
    return [
        f"{unsure} of {len(table)} groups: no step is more likely than not the best one; to run at "
        f"the most probable one loses {worst:.1%} at most on average, and more runs near it would "
        "tell"
    ]


def _beyond(table: pd.DataFrame, prepared: Prepared) -> list[str]:
    """Say where the best step lies outside the measured ones, whether or not they are steps."""
    by = list(prepared.groups.by)
    ends = prepared.runs["freq_hz"].groupby(prepared.groups.codes).agg(["min", "max"])
    ends.index = pd.RangeIndex(len(ends))
    keyed = prepared.groups.keys.reset_index(drop=True).join(ends)
    ranges = table[by].merge(keyed, on=by, how="left") if by else keyed
    best = table["best_hz"].to_numpy()
    low, high = ranges["min"].to_numpy(), ranges["max"].to_numpy()
    outside = ~((best >= low * (1 - SAME_STEP)) & (best <= high * (1 + SAME_STEP)))
    if not outside.any():
        return []
    return [
        f"{int(outside.sum())} of {len(table)} groups: the best step is outside the measured ones; "
        "measure there before relying on it"
    ]


def group_of_step(steps: pd.DataFrame, by: Sequence[str]) -> IntArray:
    """Row of `BestFrequency.table` that each row of ``steps`` belongs to."""
    if not by:
        return np.zeros(len(steps), dtype=np.int64)
    number = steps.groupby(list(by), sort=False, dropna=False).ngroup()
    return np.asarray(number, dtype=np.int64)
