"""`best_frequency`: at which of its steps a host does the work for the least, and how surely."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.bayes.steps import SAME_STEP
from measurements.quantities import parse_quantity
from ppw import caveats as cv
from ppw.answers import Answers
from ppw.arguments import as_number, as_positive, as_share, known_choice
from ppw.choices import Problem
from ppw.curves import FitOptions
from ppw.errors import PpwError
from ppw.estimate import key_texts, shown, shown_interval
from ppw.metrics import METRICS, columns_for
from ppw.names import plot_label
from ppw.objectives import OBJECTIVES, Rates
from ppw.prepare import Prepared, canonical, prepare
from ppw.result import (
    as_floats,
    frame_digest,
    read_document,
    reads_document,
    records,
    write_document,
)
from ppw.step_choice import as_steps
from ppw.step_limits import Limits, first_said
from ppw.tables import summary_text, text_table
from ppw.unfitted import nothing_to_fit, unfitted_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes

    from fitting.regression.lines import IntArray

# Below this probability another step may as well be the best one.
SURE = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class BestFrequency:
    """Best steps of every group of a runs table.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group: the key columns, ``unit``, ``best_hz`` (the most probable
        step), ``lower_hz`` and ``upper_hz`` (steps between which the best lies at ``level``),
        ``p_best``, ``expected_loss`` (share lost on average by running at ``best_hz``),
        ``least_loss_hz`` (step of the least expected loss), ``value`` with ``lower`` and ``upper``
        of the objective at ``best_hz``, ``rises_to_hz`` (perf/W probably rises with each step up
        to it) and ``linear_hz`` (closed form of the least-squares lines).
    steps : pandas.DataFrame
        One row a group and step: the key columns, ``freq_hz``, ``runs`` measured there, ``value``,
        ``lower``, ``upper``, ``p_best``, ``expected_loss`` and ``p_rises`` (probability that perf/W
        rises from this step to the next; NaN at the highest and without watts).
    by : tuple of str
    objective : str
    level : float
    idle_power_w, electricity, lifetime_hours, deadline_s, power_cap_w : float or None
        As asked for; electricity in currency a kWh.
    draws, seed : int
    caveats : tuple of str
    """

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
    caveats: tuple[str, ...]
    input_digest: str = field(repr=False, compare=False)
    deadline_s: float | None = None
    power_cap_w: float | None = None

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of ``steps`` with ``best_hz`` and ``linear_hz`` of their group."""
        best = self.table[[*self.by, "best_hz", "linear_hz"]]
        return (
            self.steps.merge(best, on=list(self.by))
            if self.by
            else self.steps.merge(best, how="cross")
        )

    def summary(self) -> str:
        """Show the best step of at most 40 groups, all steps of a single one, then the caveats."""
        rows = [self.cells(row) for row in self.table.head(40).to_dict(orient="records")]
        lines = [self.verdict(), text_table(self.header(), rows)]
        if len(self.table) > 40:
            lines.append(f"… {len(self.table) - 40} more groups: use --format csv or to_frame()")
        if len(self.table) == 1:
            lines += ["", text_table(self.step_header(), self.step_cells())]
        return summary_text(lines, self.caveats)

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

    def header(self) -> list[str]:
        """Names of `cells`."""
        interval = f"{self.level:.0%} interval"
        asked = ["best", interval, "P(best)", "expected loss", self.objective, interval]
        return [*self.by, *asked, "perf/W rises to", "straight lines"]

    def cells(self, row: Mapping[Any, Any]) -> list[str]:
        """Row of ``table`` as it is printed."""
        return [
            *key_texts(self.by, row),
            shown(row["best_hz"], "Hz"),
            shown_interval(row["best_hz"], row["lower_hz"], row["upper_hz"], "Hz"),
            f"{row['p_best']:.0%}",
            f"{row['expected_loss']:.1%}",
            shown(row["value"], row["unit"]),
            shown_interval(row["value"], row["lower"], row["upper"], row["unit"]),
            shown(row["rises_to_hz"], "Hz"),
            shown(row["linear_hz"], "Hz"),
        ]

    def step_header(self) -> list[str]:
        """Names of `step_cells`."""
        interval = f"{self.level:.0%} interval"
        asked = [self.objective, interval, "P(best)", "expected loss", "P(perf/W rises to next)"]
        return [*self.by, "step", "runs", *asked]

    def step_cells(self, most: int | None = None) -> list[list[str]]:
        """Rows of ``steps`` as they are printed."""
        unit = self.table["unit"].iloc[0]
        return [
            [
                *key_texts(self.by, row),
                shown(row["freq_hz"], "Hz"),
                str(row["runs"]),
                shown(row["value"], unit),
                shown_interval(row["value"], row["lower"], row["upper"], unit),
                f"{row['p_best']:.0%}",
                f"{row['expected_loss']:.1%}",
                "–" if np.isnan(row["p_rises"]) else f"{row['p_rises']:.0%}",
            ]
            for row in self.steps.head(most or len(self.steps)).to_dict(orient="records")
        ]

    def to_json(self) -> str:
        """JSON document with ``schema_version``; one object a row in ``groups`` and ``steps``."""
        body = {name: getattr(self, name) for name in _PLAIN}
        body |= {"groups": records(self.table), "steps": records(self.steps)}
        return write_document("best_frequency", self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> BestFrequency:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "best_frequency")
        rest = {name: d[name] for name in _PLAIN if name in d or name not in _LIMITS}
        rest |= {"by": tuple(d["by"]), "caveats": tuple(d["caveats"])}
        table, steps = (
            as_floats(pd.DataFrame(d[n]), but=(*d["by"], *_NOT_FLOATS)) for n in ("groups", "steps")
        )
        return cls(table=table, steps=steps, input_digest=d["input_digest"], **rest)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how probably each step is the best, for up to ten groups."""
        from ppw.plots import new_axes

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


_LIMITS = ("deadline_s", "power_cap_w")
_PLAIN = (
    *("by", "objective", "level", "idle_power_w", "electricity", "lifetime_hours"),
    *("draws", "seed", "caveats", *_LIMITS),
)
_NOT_FLOATS = ("unit", "runs")


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
