"""The choice of a step, group by group: what each draw of the curves says of every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.steps import SAME_STEP
from ppw.curve_draws import POWER, CurveDraws
from ppw.errors import PpwError
from ppw.estimate import key_texts, shown
from ppw.metrics import METRICS, PERFORMANCE, columns_for, values
from ppw.objectives import OBJECTIVES, best_on_lines, log_cost, unit_of
from ppw.step_choice import catalogued_steps, known_steps
from ppw.step_limits import NO_LIMITS, Limits, Missed

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray, IntArray
    from ppw.answers import Answers
    from ppw.objectives import Objective, Rates
    from ppw.prepare import Prepared


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
