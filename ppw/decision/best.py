"""`best_frequency`: at which of its steps a host does the work for the least, and how surely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from fitting.regression.lines import FloatArray, IntArray
from ppw.decision import objectives as obj
from ppw.errors import PpwError
from ppw.projection.answers import POWER, Answers, CurveDraws, FitOptions
from ppw.projection.runs import nothing_to_fit, unfitted_groups
from ppw.results.axes import Axes, new_axes
from ppw.results.result import PrintedTable, Result, Table, frame_digest, rows_of, warn_caveats
from ppw.results.text import as_positive, as_share, check_choice, key_texts, plot_label, shown
from ppw.runs import groups as gr, metrics as mt, prepare as pr


class Choice(NamedTuple):
    """Draws of one group at the steps to choose from."""

    group: int
    frequency: FloatArray  # Hz, rising
    runs: IntArray  # number of runs measured at each step
    log_cost: FloatArray  # cost of a unit of work: (draws, steps)
    # Energy of a unit of work, idle power included: (draws, steps); None without power.
    log_energy: FloatArray | None
    linear_hz: float  # closed form of the least-squares lines (Hz)

    def p_best(self) -> FloatArray:
        """Share of the draws in which each step is the best."""
        best = np.argmin(self.log_cost, axis=1)
        return np.bincount(best, minlength=len(self.frequency)) / len(best)

    def expected_loss(self, more_is_better: bool) -> FloatArray:
        """Mean share lost at each step against the best of its draw.

        What a cost is more than the least, or what a merit, its reciprocal, is less than the most.
        """
        more = self.log_cost - self.log_cost.min(axis=1, keepdims=True)
        return np.asarray((-np.expm1(-more) if more_is_better else np.expm1(more)).mean(axis=0))

    def p_rises(self) -> FloatArray:
        """Probability that perf/W rises from each step to the next; NaN where not known."""
        made = np.full(len(self.frequency), np.nan)
        if self.log_energy is not None:
            made[:-1] = (np.diff(self.log_energy, axis=1) < 0).mean(axis=0)
        return made

    def tables(self, more_is_better: bool, level: float) -> tuple[dict[str, Any], pd.DataFrame]:
        """Row of `BestFrequency.table`, and rows of `BestFrequency.steps`."""
        p_best, loss, rises = self.p_best(), self.expected_loss(more_is_better), self.p_rises()
        # The most probable step may be one of many that are little so: the loss is what counts.
        best, frequency = int(np.argmin(loss)), self.frequency
        p_worse = (self.log_cost > self.log_cost[:, [best]]).mean(axis=0)
        alike = frequency[(p_worse < level) & (frequency != frequency[best])]
        tails = [0.5 - level / 2, 0.5 + level / 2]
        best_of_draw = frequency[np.argmin(self.log_cost, axis=1)]
        # Ends that are steps of the host, not values between two of them.
        lower_hz, upper_hz = np.quantile(best_of_draw, tails, method="inverted_cdf")
        logs = -self.log_cost if more_is_better else self.log_cost
        value, lower, upper = np.exp(np.quantile(logs, [0.5, *tails], axis=0))
        steps = {
            "freq_hz": frequency,
            "runs": self.runs,
            "value": value,
            "lower": lower,
            "upper": upper,
            "p_best": p_best,
            "expected_loss": loss,
            "p_worse": p_worse,
            "p_rises": rises,
        }
        # The highest step has no next one and ends every rise that is probable.
        rises_to = frequency[np.argmin(np.nan_to_num(rises) >= 0.5)]
        row = {
            "best_hz": frequency[best],
            "lower_hz": lower_hz,
            "upper_hz": upper_hz,
            **{name: steps[name][best] for name in ("p_best", "expected_loss")},
            "alike": _frequencies_text(alike),
            "least_loss_hz": frequency[best],
            "most_probable_hz": frequency[np.argmax(p_best)],
            **{name: steps[name][best] for name in ("value", "lower", "upper")},
            "rises_to_hz": np.nan if np.isnan(rises[0]) else rises_to,
            "linear_hz": self.linear_hz,
        }
        return row, pd.DataFrame(steps)


def _frequencies_text(frequencies: FloatArray) -> str:
    """List a few frequencies (Hz), or how many there are between the lowest and the highest."""
    texts = [shown(f, "Hz") for f in frequencies]
    if len(texts) <= _MOST_LISTED:
        return ", ".join(texts)
    return f"{len(texts)} steps from {texts[0]} to {texts[-1]}"


@dataclass(frozen=True)
class Problem:
    """What is chosen for, and from which curves."""

    prepared: pr.PreparedRuns
    answers: Answers
    objective: obj.Objective
    rates: obj.Rates
    price: float | None  # price of every host; None for the column ``price``
    limits: obj.Limits  # what steps must keep to, to be chosen from
    # Sentences on groups without such a step, once choices were made.
    missed: list[str] = field(default_factory=list)

    @property
    def power_is_paid(self) -> bool:
        """Tell whether power is part of the cost."""
        return self.objective.times > 0 or self.rates.electricity is not None

    @property
    def time(self) -> str:
        """Name of the fitted quantity that time is taken from: time or performance."""
        return next(name for name in self.answers.posteriors.steps if name != POWER)

    @property
    def work(self) -> str:
        """Unit of work: an operation where throughput was measured, else a run."""
        by_rate = mt.columns_for(mt.PERFORMANCE, self.prepared.runs) == ("throughput_ops_s",)
        return "op" if by_rate else "run"

    def refuse_idle(self) -> None:
        """Raise `PpwError` where a job draws no more than the idle host."""
        if not self.rates.idle_w:
            return
        least = float(np.nanmin(mt.values(mt.METRICS["power"], self.prepared.runs)))
        if least <= self.rates.idle_w:
            raise PpwError(
                f"idle power {shown(self.rates.idle_w, 'W')} is not below the least measured power "
                f"{shown(least, 'W')}: give it for the same scope as power_w"
            )

    def choose(self, asked: FloatArray | None, draws: int, seed: int) -> list[Choice]:
        """Draw each group that has curves at its steps; leave out groups with no step in limits."""
        steps = self._steps(asked)
        ends = np.full((2, len(self.prepared.groups)), np.nan)
        for group, frequency in steps.items():
            ends[:, group] = frequency[0], frequency[-1]
        curves = CurveDraws.of(self.answers, *ends, draws=draws, seed=seed)
        self.limits.refuse_rates(self.work)
        made = (self._draw_choice(curves, group, frequency) for group, frequency in steps.items())
        return [choice for choice in made if choice is not None]

    def _steps(self, asked: FloatArray | None) -> dict[int, FloatArray]:
        """Steps (Hz) to choose from, by group: those asked for, else measured and catalogued."""
        fitted, names = self.answers.posteriors.steps, [self.time]
        if self.power_is_paid or self.limits.power_cap_w is not None:
            names.append(POWER)
        able = np.logical_and.reduce([fitted[name].count > 1 for name in names])
        groups = np.flatnonzero(able).tolist()
        if asked is not None:
            return dict.fromkeys(groups, asked)
        keys = self.prepared.groups.keys
        # A host that the catalogue knows offers its own steps beside those that were measured.
        hosts = dict(zip(groups, keys["host"].iloc[groups], strict=True)) if "host" in keys else {}
        listed = {host: obj.catalogue_steps(host) for host in dict.fromkeys(hosts.values())}
        # A frequency whose rows are all left out stays one to choose from.
        steps = {g: self._measured_steps(g)[0] for g in groups}
        for group, projected in self.prepared.projected_steps.items():
            if group in steps:
                steps[group] = obj.add_listed_steps(steps[group], projected)
        return {g: obj.add_listed_steps(steps[g], listed.get(hosts.get(g), ())) for g in groups}

    def _measured_steps(self, group: int) -> tuple[FloatArray, FloatArray]:
        """Measured frequencies (Hz) of a group, and the number of runs at each."""
        fitted = self.answers.posteriors.steps[self.time]
        at = slice(fitted.first[group], fitted.first[group] + fitted.count[group])
        return fitted.frequency[at], fitted.runs[at]

    def _draw_choice(self, curves: CurveDraws, group: int, frequency: FloatArray) -> Choice | None:
        """Draw a group's objective at the steps that keep to the limits; None where none does."""
        log_time = curves.log_time(self.time, group, frequency)
        has_power = POWER in curves.known and curves.is_curve(POWER, group)
        log_power = curves.log_power(group, frequency) if has_power else None
        if self.limits:
            # A step is chosen from where enough of its draws keep to the limits.
            excess = self.limits.excess(log_time, log_power)
            p_kept = (excess <= 0).mean(axis=0)
            kept = p_kept >= self.limits.level
            if not kept.any():
                nearest = np.argmin(np.median(excess, axis=0))
                text = self.limits.miss(self._label(group), frequency[nearest], p_kept[nearest])
                self.missed.append(text)
                return None
            frequency, log_time = frequency[kept], log_time[:, kept]
            log_power = None if log_power is None else log_power[:, kept]
        # Where power is not paid for, its draws still tell how far perf/W rises.
        price, paid = self._price_of_group(group), log_power if self.power_is_paid else None
        rates = self.rates._replace(idle_w=self.idle_of_group(group))
        cost = obj.log_cost(self.objective, log_time, paid, price, rates)
        if self.races_to_idle and rates.idle_w:
            # The host idles from the end of the run to the deadline.
            cost = np.logaddexp(cost, np.log(rates.idle_w * (self.limits.deadline_s or 0.0)))
        steps, runs = self._measured_steps(group)
        same = np.abs(steps / frequency[:, None] - 1) <= SAME_STEP
        return Choice(
            group,
            frequency,
            (same @ runs).astype(np.int64),
            cost,
            None if log_power is None else log_time + log_power,
            self._closed_form_best_hz(group, frequency, price, rates),
        )

    @property
    def races_to_idle(self) -> bool:
        """Tell whether energy is counted to the deadline, with idle power after the run."""
        energy = self.objective is obj.OBJECTIVES["energy"]
        return energy and self.limits.deadline_s is not None

    def idle_of_group(self, group: int) -> float:
        """Idle power (W) of a group: as given, else of its runs where it counts to a deadline."""
        if self.rates.idle_w or not self.races_to_idle or "idle_power_w" not in self.prepared.runs:
            return self.rates.idle_w
        idle = self.prepared.runs["idle_power_w"][self.prepared.groups.codes == group].mean()
        return 0.0 if np.isnan(idle) else float(idle)

    def _price_of_group(self, group: int) -> float:
        """Price of a group's host, by option or column; 1 where the objective counts no price."""
        if self.objective.times or self.objective is obj.OBJECTIVES["time"]:
            return 1.0
        if self.price is not None:
            return self.price
        if "price" not in self.prepared.runs:
            raise PpwError("no price: perf_per_dollar takes a column price, or --price")
        price = obj.mean_price(self.prepared, group)
        if not price > 0:
            raise PpwError(
                f"price {price} of {self._label(group)}: every row needs a price above 0, or give "
                "--price"
            )
        return price

    def _label(self, group: int) -> str:
        keys = self.prepared.groups.keys.iloc[group]
        return ", ".join(key_texts(self.prepared.groups.by, keys.to_dict())) or "all runs"

    def _closed_form_best_hz(
        self, group: int, frequency: FloatArray, price: float, rates: obj.Rates
    ) -> float:
        curves = self.answers.curves
        lines = [curves[name].fit.line for name in (self.time, POWER) if name in curves]
        time, *power = [(float(one.intercept[group]), float(one.slope[group])) for one in lines]
        ends = float(frequency[0]), float(frequency[-1])
        paid = power[0] if power else None
        return obj.best_on_lines(self.objective, time, paid, price, rates, ends)

    def tables(self, chosen: list[Choice], level: float) -> tuple[pd.DataFrame, pd.DataFrame]:
        """One row per group, and one row per group and step."""
        unit = obj.unit_of(self.objective, self.rates, self.work)
        parts = [choice.tables(self.objective.more_is_better, level) for choice in chosen]
        rows = pd.DataFrame([{"unit": unit, **row} for row, _ in parts])
        steps = pd.concat([steps for _, steps in parts], ignore_index=True)
        groups = [choice.group for choice in chosen]
        of_steps = [choice.group for choice in chosen for _ in choice.frequency]
        return self._add_key_columns(groups, rows), self._add_key_columns(of_steps, steps)

    def _add_key_columns(self, groups: list[int], rows: pd.DataFrame) -> pd.DataFrame:
        keys = self.prepared.groups.keys.take(groups).reset_index(drop=True)
        return pd.concat([keys, rows], axis=1)


# Below this probability another step may as well be the best one.
SURE = 0.5
_MOST_MISSED, _MOST_LISTED = 3, 3


@dataclass(frozen=True, kw_only=True, eq=False)
class BestFrequency(Result):
    """Best steps of every group of a runs table.

    Attributes
    ----------
    table, steps : pandas.DataFrame
        One row per group, and one row per group and step.
    by : tuple of str
        Columns that tell groups apart.
    objective : str
    level : float
        Probability of the intervals.
    idle_power_w, electricity, lifetime_hours, deadline_s, power_cap_w, max_slowdown : float or None
        As asked for; electricity in currency per kWh.
    draws, seed : int
    """

    kind = "best_frequency"
    tables = (
        Table(
            "table",
            """
            unit          | text  |                 | unit of the objective
            best_hz       | Hz [lower_hz, upper_hz] | best | step of the least expected loss
            lower_hz      | Hz    |                 | lowest step that may be the best at `level`
            upper_hz      | Hz    |                 | highest step that may be the best at `level`
            p_best        | share | P(best)         | probability that `best_hz` is the best step
            expected_loss | share .1% | expected loss | share lost on average at `best_hz`
            alike         | text  | cannot be told from | steps not worse with probability `level`
            least_loss_hz | Hz    |                 | `best_hz`
            most_probable_hz | Hz |                 | step that is the best most often
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
            p_worse       | share |         | probability of being worse than the chosen step
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
    max_slowdown: float | None = None

    @property
    def unit(self) -> str:
        """Unit of the objective."""
        return str(self.table["unit"].iloc[0])

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of ``steps`` with ``best_hz`` and ``linear_hz`` of their group."""
        best = self.table[[*self.by, "best_hz", "linear_hz"]]
        on = {"on": list(self.by)} if self.by else {"how": "cross"}
        return self.steps.merge(best, **on)

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return groups and steps as they print; a summary has the steps of a single group only."""
        groups, steps = super().printed_tables(most)
        return [groups, steps] if most is not None or len(self.table) == 1 else [groups]

    def _objective_and_limits_text(self) -> str:
        words = obj.OBJECTIVES[self.objective].words.capitalize()
        if self.objective == "energy" and self.deadline_s and self.idle_power_w:
            words += " of run and idle time"
        limits = obj.Limits(self.deadline_s, self.power_cap_w, max_slowdown=self.max_slowdown)
        return words + limits.limits_text()

    def verdict(self) -> str:
        """Say in a sentence where most groups are best."""
        # Documents of earlier versions do not name the other steps.
        best, alike = self.table["best_hz"], self.table.get("alike", pd.Series("")) != ""
        sure = int((self.table["p_best"] > SURE).sum())
        loss = f"expected loss {self.table['expected_loss'].max():.1%}"
        words = self._objective_and_limits_text()
        if len(best) == 1:
            row = self.table.iloc[0]
            at = shown(row["best_hz"], "Hz")
            others = self.steps[self.steps["freq_hz"] != row["best_hz"]].sort_values("p_best")
            rival = shown(others["freq_hz"].iloc[-1], "Hz") if len(others) else ""
            rest = (
                f", but {row.get('alike')} cannot be told apart from it at {self.level:.0%}: more "
                f"runs at {at} and {rival} would decide it"
            )
            return (
                f"{words}: best at {at}, with probability {row['p_best']:.0%} and {loss}"
                f"{rest * any(alike)}."
            )
        ends = " to ".join(dict.fromkeys(shown(f, "Hz") for f in (best.min(), best.max())))
        also = f"in {alike.sum()} of {len(best)} groups another step may be as good"
        several = f"; {also} ({self.level:.0%})"
        return (
            f"{words}: best at {ends}, more likely than not in {sure} of {len(best)} groups; "
            f"{loss} at most{several * any(alike)}."
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how probably each step is the best, for up to ten groups."""
        axes, steps = new_axes(ax), self.steps
        group = steps.groupby([*self.by] or (lambda _: 0), sort=False, dropna=False).ngroup()
        for number, row in enumerate(rows_of(self.table.head(10))):
            own = steps[group == number]
            label = plot_label(", ".join(key_texts(self.by, row)) or "all runs")
            axes.plot(own["freq_hz"] / 1e9, own["p_best"], "o-", ms=4, label=label)
        axes.set_xlabel("core frequency (GHz)")
        axes.set_ylabel("probability of being the best step")
        axes.set_ylim(0, 1.02)
        axes.set_title(self._objective_and_limits_text())
        axes.legend(frameon=False)
        return axes


def best(
    runs: pd.DataFrame,
    *,
    objective: obj.ObjectiveName = "energy",
    steps: str | Iterable[float | str] | None = None,
    deadline: float | str | None = None,
    power_cap: float | str | None = None,
    max_slowdown: float | None = None,
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
    draw is its probability, and what it loses against that one on average is its expected loss. The
    step of the least expected loss is chosen. New runs' noise is left out: it does not make a step
    better.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table (`ppw.read_runs`), or a frame with columns like ``freq_ghz``, ``time_ms``.
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
    max_slowdown : float, optional
        Share (0.05) by which a run may take longer than at the fastest step, in the same way.
    by : sequence of str, optional
        Columns that tell groups apart; by default all identity columns present.
    level : float
        Probability of the intervals.
    idle_power : float or str, optional
        Watts ("40W") drawn between jobs by a host that stays on: only what a job adds to them
        counts. By default 0: the host is off, or put to other work. With a ``deadline``, energy is
        that of the run and of idling to the deadline; by default of the column ``idle_power_w``.
    price : float, optional
        Price of one host, for perf_per_dollar; by default the column ``price``.
    electricity : float, optional
        Currency per kWh.
    lifetime_hours : float, optional
        Hours of work over which the price is spread.
    voltages, pool, keep_all
        As for `ppw.project`.
    draws, seed : int
        Number of curves drawn per group, and random seed. The standard error of a probability is up
        to 0.5/sqrt(draws).

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
    """
    check_choice("objective", objective, tuple(obj.OBJECTIVES))
    as_share("interval level", level)
    if price is not None:
        as_positive("price", price)
    if objective != "perf_per_dollar" and (price is not None or electricity is not None):
        raise PpwError(
            f"a price or electricity does not change {objective}: ask for "
            "--objective perf_per_dollar"
        )
    rates = obj.Rates.of(electricity, lifetime_hours, idle_power)
    limits = obj.Limits.of(deadline, power_cap, level, max_slowdown)
    asked = None if steps is None else obj.as_steps(steps)
    metric = _choose_metric(runs, objective, rates, limits)
    prepared = pr.prepare(runs, by=by, metric=metric, keep_all=keep_all)
    answers = Answers.of(prepared, FitOptions(voltages=voltages, pool=pool))
    problem = Problem(prepared, answers, obj.OBJECTIVES[objective], rates, price, limits)
    problem.refuse_idle()
    chosen = problem.choose(asked, draws, seed)
    if not chosen:
        raise PpwError(_missed_groups_text(problem.missed) or nothing_to_fit(prepared))
    table, by_step = problem.tables(chosen, level)
    caveats = [
        *prepared.caveats(),
        *unfitted_groups(answers.curves, prepared),
        *(f"left out: {group}" for group in problem.missed),
        *_undecided_groups_caveat(table),
        *_beyond_caveat(table, prepared, [choice.group for choice in chosen]),
    ]
    warn_caveats(caveats)
    return BestFrequency(
        table=table,
        steps=by_step,
        by=tuple(prepared.groups.by),
        objective=objective,
        level=level,
        idle_power_w=float(np.mean([problem.idle_of_group(c.group) for c in chosen])) or None,
        electricity=electricity,
        lifetime_hours=lifetime_hours,
        draws=draws,
        seed=seed,
        caveats=tuple(caveats),
        input_digest=frame_digest(prepared.runs),
        deadline_s=limits.deadline_s,
        power_cap_w=limits.power_cap_w,
        max_slowdown=max_slowdown,
    )


def _missed_groups_text(missed: Sequence[str]) -> str:
    """Join texts on groups that keep to no limit: three, and how many more; "" for none."""
    more = len(missed) - _MOST_MISSED
    rest = [f"and {more} more group{'s' * (more > 1)} with the same problem"] if more > 0 else []
    return "; ".join([*missed[:_MOST_MISSED], *rest])


def _choose_metric(runs: pd.DataFrame, objective: str, rates: obj.Rates, limits: obj.Limits) -> str:
    """Choose the metric whose fits make up the objective: perf_per_watt where there is power."""
    tidy = gr.canonical(runs)
    if mt.columns_for(mt.METRICS["power"], tidy) is not None:
        return "perf_per_watt"
    if limits.power_cap_w is not None:
        raise PpwError("a power cap needs power_w (or energy_j) of the runs")
    if objective == "perf_per_watt":
        return objective
    if objective not in ("time", "perf_per_dollar") or rates.electricity is not None:
        return "energy"
    return "throughput" if mt.columns_for(mt.METRICS["throughput"], tidy) else "time"


def _undecided_groups_caveat(table: pd.DataFrame) -> list[str]:
    unsure = int((table["p_best"] <= SURE).sum())
    if not unsure:
        return []
    worst = float(table["expected_loss"].max())
    return [
        f"{unsure} of {len(table)} groups: no step has a probability above 50 % of being the best; "
        f"the chosen one loses {worst:.1%} on average at most. Measure more runs near it"
    ]


def _beyond_caveat(table: pd.DataFrame, prepared: pr.PreparedRuns, groups: list[int]) -> list[str]:
    """Say how many groups have their best step outside the measured frequencies."""
    measured = prepared.runs["freq_hz"].groupby(prepared.groups.codes)
    low, high = measured.min().to_numpy()[groups], measured.max().to_numpy()[groups]
    best = table["best_hz"].to_numpy()
    outside = ~((best >= low * (1 - SAME_STEP)) & (best <= high * (1 + SAME_STEP)))
    if not outside.any():
        return []
    return [
        f"{int(outside.sum())} of {len(table)} groups: the best step is outside the measured "
        "frequencies; measure there before you rely on it"
    ]
