"""`plan`: which frequency to measure next, and how often, to be as sure as wanted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes import next_measurement as nm
from fitting.bayes.posterior import SAME_STEP, FrequencyTarget
from ppw.decision.objectives import as_steps, catalogue_steps
from ppw.errors import PpwError
from ppw.projection import answers
from ppw.results import axes, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.runs.prepare import PreparedRuns, prepare

# Outcomes drawn for a candidate, for each later measurement of a plan, and for all steps together,
# where candidates share no random numbers that would make differences of their noise.
_DRAWS, _DRAWS_AHEAD, _DRAWS_IN_ALL = 32, 12, 128
# A plan that looks further ahead than this many runs says no more than "many".
_MOST_AHEAD = 10
# A goal that fewer of the outcomes reach, with the most repeats at every step, is out of reach.
_HOPE = 0.1
_MOST_SENTENCES = 10
# A run of another program is worth a sentence from this share of the half width on.
_HELP = 0.1
_STATUS = {
    "there": "already there",
    "reach": "within reach",
    "budget": "short of the goal when the budget ends",
    "far": "too many runs needed",
    "cannot": "not reachable with these steps",
}


class Question(NamedTuple):
    """Arguments of `plan`, read."""

    freq_hz: float
    within_pct: float
    level: float
    target_runs: int
    run_time_minutes: float | None
    budget_minutes: float | None
    seed: int
    repeats: list[int]
    at_target: bool

    def check(self) -> None:
        """Raise `PpwError` without repeats, or for a budget without a run time or below one run."""
        if not self.repeats:
            raise PpwError("no number of repeats was given; the default is 1, 2, 3, 5")
        if self.budget_minutes is None:
            return
        if self.run_time_minutes is None:
            raise PpwError("a budget needs the time per run: give --run-time")
        if self.run_time_minutes > self.budget_minutes:
            raise PpwError(
                f"a run of {self.run_time_minutes:g} min does not fit into the budget of "
                f"{self.budget_minutes:g} min: give more, or take a shorter run"
            )

    @property
    def goal(self) -> float:
        """Half width of the interval that is wanted, of the logarithm."""
        return math.log1p(self.within_pct / 100)

    @property
    def most_runs(self) -> float:
        """Number of runs that the budget allows; infinite without a budget."""
        if self.budget_minutes is None or self.run_time_minutes is None:
            return math.inf
        return math.floor(self.budget_minutes / self.run_time_minutes + 1e-9)

    def is_target(self, frequency: float) -> bool:
        """Tell whether a frequency (Hz) is the one asked for."""
        return abs(frequency / self.freq_hz - 1) < SAME_STEP

    def candidates(self, steps: Sequence[float]) -> list[nm.Candidate]:
        """Each allowed step (Hz) with each number of repeats that the budget allows."""
        # A machine that stands for another one cannot be measured at the target itself.
        allowed = [f for f in steps if self.at_target or not self.is_target(f)]
        if not allowed:
            raise PpwError(
                f"the only step is the frequency asked for, {tx.shown(self.freq_hz, 'Hz')}, at "
                "which no run is allowed: name other steps (--steps), or leave out --not-at-target"
            )
        return [nm.Candidate(f, r) for f in allowed for r in self.repeats if r <= self.most_runs]

    def minutes(self, runs: float) -> float:
        """Time that a number of runs takes (min); NaN where the time of a run is not known."""
        return math.nan if self.run_time_minutes is None else runs * self.run_time_minutes

    def random_numbers(self, draws: int, quantities: int) -> list[nm.CommonNumbers]:
        """Make common random numbers for the outcomes of each quantity."""
        return [nm.CommonNumbers.of(draws, (self.seed, i)) for i in range(quantities)]


@dataclass(frozen=True)
class GroupPlan:
    """Plan of one group; half widths are of the logarithm."""

    group: int
    question: Question
    now: float
    outlook: nm.Outcomes
    best: int  # number of the candidate to measure next; -1 for none
    stages: Sequence[nm.Stage]
    # Least half width, and the shares of its variance that model error and noise make up.
    floor: tuple[float, float, float]
    hopeless: bool  # whether hardly any outcome of many runs reaches the goal
    # Another program of the host to run at the target in place of this one, and the half width that
    # is to be expected then; "" and NaN without one.
    other: str
    by_other: float

    @classmethod
    def of(
        cls,
        group: int,
        known: Sequence[nm.GroupPosterior],
        candidates: list[nm.Candidate],
        question: Question,
        other: tuple[str, int],
    ) -> GroupPlan:
        """Judge the candidates, one or more, of one group, and look ahead."""
        goal, level, count = question.goal, question.level, len(known)
        now = float(nm.present(known, level)[0])
        drawn = question.random_numbers(_DRAWS, count)
        first = nm.judge_candidates(known, candidates, level, drawn)
        fewest, most = (end(c.runs for c in candidates) for end in (min, max))
        in_all = question.random_numbers(_DRAWS_IN_ALL, count)
        everywhere = [c for c in candidates if c.runs == most]
        least, form, noise = nm.attainable(known, everywhere, level, in_all)
        hopeless = (least <= goal).mean() < _HOPE and first.mean_half_width.min() > goal
        later = [c for c in candidates if c.runs in (fewest, most)]
        ahead = question.random_numbers(_DRAWS_AHEAD, count)
        # One stage says what to measure next, wherever the goal is.
        furthest = 1 if hopeless else _MOST_AHEAD
        most_runs = question.most_runs
        stages = nm.look_ahead(known, first, later, goal, level, ahead, most_runs, furthest)
        best = first.candidates.index(stages[0].candidate) if stages else -1
        # More measurements leave no more than the best of them; what says else is chance.
        floor = (float(min(least.mean(), first.mean_half_width.min())), form, noise)
        name, of_power = other
        by_other = nm.half_width_by_others(known, level, ahead, of_power) if name else math.nan
        outlook = (now, first, best, stages, floor, bool(hopeless))
        return cls(group, question, *outlook, name, by_other)

    @property
    def status(self) -> str:
        """How near the goal is: "there", "reach", "cannot", "budget" or "far"."""
        if self.now <= self.question.goal:
            return "there"
        if self.stages[-1].half_width <= self.question.goal:
            return "reach"
        if self.hopeless:
            return "cannot"
        return "budget" if len(self.stages) < _MOST_AHEAD else "far"

    @property
    def runs(self) -> int:
        """Number of runs of the whole plan."""
        return sum(stage.candidate.runs for stage in self.stages)

    @property
    def parts(self) -> tuple[float, float]:
        """Half widths (%) that the model error alone, and noise alone, would leave at best."""
        least, form, noise = self.floor
        return pct(least * math.sqrt(form)), pct(least * math.sqrt(noise))

    def row(self) -> dict[str, Any]:
        """Row of ``Plan.groups``."""
        step, after = nm.Candidate(math.nan, 0), math.nan
        # Where nothing reaches the goal there is nothing to measure for it.
        if stages := self.stages if self.status != "cannot" else ():
            step, after = stages[0]
        runs = float(step.runs) if stages else math.nan
        total = float(self.runs) if self.status in ("there", "reach") else math.nan
        minutes = self.question.minutes
        values = (
            *(self.status, pct(self.now), step.frequency, runs, minutes(runs), pct(after)),
            *(total, minutes(total), pct(self.floor[0]), *self.parts, self.recommendation()),
        )
        return dict(zip(Plan.tables[0].names, values, strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """Rows of ``Plan.table``: the recommended first, then by what is expected."""
        expected, asked = self.outlook.mean_half_width, self.question
        # The recommended one is first whatever it leaves: it may be the way to a better plan.
        order = np.lexsort((expected, np.arange(len(expected)) != self.best))
        chance = (self.outlook.half_width <= asked.goal).mean(axis=1)
        rows = []
        for rank, i in enumerate(order.tolist(), start=1):
            frequency, runs = self.outlook.candidates[i]
            half = pct(expected[i])
            is_target, is_best = asked.is_target(frequency), i == self.best
            values = (rank, frequency, runs, asked.minutes(runs), half, float(chance[i]))
            names = Plan.tables[1].names
            rows.append(dict(zip(names, (*values, is_target, is_best), strict=True)))
        return rows

    def recommendation(self) -> str:
        """Say what to do, and why."""
        goal, now = f"±{self.question.within_pct:g} %", half_width_text(pct(self.now))
        if self.status == "there":
            return f"already there: {now} now, {goal} wanted."
        candidate, after = self.stages[0]
        words = f"measure {runs_at_text(candidate.runs, candidate.frequency)}"
        if self.question.is_target(candidate.frequency):
            done = ": measure it, and no projection is needed" if self.status == "reach" else ""
            words += f", which is what you ask for{done}"
        if self.status == "cannot":
            words = f"measure nothing more for this: {now} now; {self._obstacle(goal)}"
        else:
            then = half_width_text(pct(after))
            words += f" ({now} now, about {then} then); {self._explain_status(goal)}"
        return f"{words}{self._other_text()}."

    def _other_text(self) -> str:
        """Say what a run of another program of the host at the target would leave, if it helps."""
        if not self.by_other < (1 - _HELP) * self.now:
            return ""
        leaves = half_width_text(pct(self.by_other))
        at = tx.shown(self.question.freq_hz, "Hz")
        enough = ", which is enough" * (self.by_other <= self.question.goal)
        return (
            f"; a run of {self.other} at {at}, in place of its own, leaves about {leaves}{enough}"
        )

    def _explain_status(self, goal: str) -> str:
        """Say how many runs and minutes should reach the goal, or what half width they leave."""
        runs, minutes = _runs_text(self.runs), self.question.minutes(self.runs)
        if self.status == "reach":
            takes = "" if math.isnan(minutes) else f" ({tx.shown(minutes, 'min')})"
            return f"about {runs}{takes} in all should reach {goal}"
        left = half_width_text(pct(self.stages[-1].half_width))
        if self.status == "budget":
            return f"the budget ends at about {left} after {runs}, short of {goal}"
        return f"{goal} takes more than {runs}, which leave about {left}"

    def _obstacle(self, goal: str) -> str:
        """Say why no number of runs reaches the goal, noise or model error, and what to do."""
        top, most = (max(values) for values in zip(*self.outlook.candidates, strict=True))
        least = half_width_text(pct(self.floor[0]))
        form, noise = self.parts
        words = (
            f"{goal} cannot be reached by steps up to {tx.shown(top, 'Hz')}: "
            f"{_runs_text(int(most))} at each leave{'s' * (most == 1)} about {least}; "
        )
        if noise >= form:
            return words + (
                f"noise alone is {half_width_text(noise)}: ask for the mean of more runs there "
                f"(--target-runs), steady the host, or accept {least}"
            )
        far = "beyond" if self.question.freq_hz > top else "between steps"
        return words + (
            f"the model error {far} is {half_width_text(form)}: measure nearer to "
            f"{tx.shown(self.question.freq_hz, 'Hz')}, or accept {least}"
        )


def pct(half: float) -> float:
    """Half width of a logarithm as percent of the value."""
    return 100 * math.expm1(half)


def half_width_text(value: float) -> str:
    """Write a half width in percent with ±; "–" for NaN."""
    return "–" if math.isnan(value) else f"±{value:.3g} %"


def _runs_text(count: int) -> str:
    return f"{count} run{'s' * (count > 1)}"


def runs_at_text(runs: float, frequency: float) -> str:
    """Write a number of runs at a frequency (Hz), as "3 × 2 GHz"; "–" for NaN."""
    return "–" if math.isnan(runs) else f"{runs:.0f} × {tx.shown(frequency, 'Hz')}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan(rs.Result):
    """What to measure next in each group, and what it is expected to bring.

    Half widths are half the interval of the logarithm, given as what it makes in percent.

    Attributes
    ----------
    groups, table : pandas.DataFrame
        One row per group, and one row per group and candidate, best first.
    by : tuple of str
        Columns that tell groups apart.
    metric : str
    freq_hz, within_pct, level : float
        What is asked: the frequency, the half width wanted there, and of which interval.
    target_runs : int
        Runs whose mean is asked for.
    run_time_minutes, budget_minutes : float or None
    seed : int
    """

    kind = "plan"
    tables = (
        rs.Table(
            "groups",
            """
            status         | text  |              | "there", "reach", "cannot", "budget" or "far"
            half_width_pct | %     | now          | half width at present
            next_freq_hz   | Hz    |              | frequency to measure next
            next_runs      | 1     | measure next | runs to measure next
            next_minutes   | min   |              | time that these take
            next_half_width_pct | % | then        | half width expected after them
            runs_to_goal   | 1     | runs to go   | runs until the goal is reached
            minutes_to_goal | min  | time to go   | time until the goal is reached
            attainable_half_width_pct | % |        | half width with the most repeats at every step
            form_pct       | %     |              | half width that model error alone would leave
            noise_pct      | %     |              | half width that noise alone would leave
            advice         | text  |              | what to do, in words
            """,
            title="Next measurement",
            show={
                "half_width_pct": lambda row: half_width_text(row["half_width_pct"]),
                "next_runs": lambda row: runs_at_text(row["next_runs"], row["next_freq_hz"]),
                "next_half_width_pct": lambda row: half_width_text(row["next_half_width_pct"]),
                "runs_to_goal": lambda row: (
                    "many" if row["status"] == "far" else tx.shown(row["runs_to_goal"])
                ),
            },
        ),
        rs.Table(
            "table",
            """
            rank           | count |         | place among the candidates of the group, from 1
            freq_hz        | Hz    |         | frequency
            runs           | count | measure | runs
            minutes        | min   | takes   | time, NaN where a run's is not known
            half_width_pct | %     | then    | half width expected after it
            chance         | share | chance of the goal | probability that it reaches the goal
            at_target      | flag  |         | whether it is at the frequency asked for
            recommended    | flag  |         | whether it is the next measurement
            """,
            title="Candidates",
            key="candidates",
            note="* is recommended.",
            most=8,
            show={
                "runs": lambda row: (
                    runs_at_text(row["runs"], row["freq_hz"]) + (" *" if row["recommended"] else "")
                ),
                "half_width_pct": lambda row: half_width_text(row["half_width_pct"]),
            },
        ),
    )

    table: pd.DataFrame
    groups: pd.DataFrame
    by: tuple[str, ...]
    metric: str
    freq_hz: float
    within_pct: float
    level: float
    target_runs: int
    run_time_minutes: float | None
    budget_minutes: float | None
    seed: int

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of ``table``."""
        return self.table.copy()

    def question(self) -> str:
        """Write the question: metric, frequency, precision wanted and level."""
        runs = "" if self.target_runs == 1 else f", mean of {self.target_runs} runs"
        return (
            f"{self.metric} at {tx.shown(self.freq_hz, 'Hz')} within ±{self.within_pct:g} % "
            f"({self.level:.0%} interval{runs})"
        )

    def verdict(self) -> list[str]:
        """Say how many groups reach the goal, and what to measure next in the first ten."""
        if len(self.groups) == 1:
            text = str(self.groups["advice"].iloc[0])
            return [text[:1].upper() + text[1:]]
        counts = self.groups["status"].value_counts()
        parts = [f"{counts[status]} {text}" for status, text in _STATUS.items() if status in counts]
        rows = rs.rows_of(self.groups.head(_MOST_SENTENCES))
        return [
            f"Of {len(self.groups)} groups, {', '.join(parts)}.",
            *map(self._recommendation_text, rows),
        ]

    def text_parts(self) -> list[str]:
        """Return the question, the groups, what to do, and the candidates of a single group."""
        groups, candidates = self.printed_tables()
        rows = rs.rows_of(self.groups.head(len(groups.rows)))
        parts = [self.question(), *groups.lines(), *map(self._recommendation_text, rows)]
        if len(self.groups) == 1 and len(self.table):
            parts += ["", candidates.lines()[0]]
        return parts

    def name(self, row: Mapping[Any, Any]) -> str:
        """Name the group of a row by its keys; "" without keys."""
        return ", ".join(tx.key_texts(self.by, row))

    def _recommendation_text(self, row: Mapping[Any, Any]) -> str:
        name = self.name(row)
        return f"{name}: {row['advice']}" if name else str(row["advice"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the half width to expect by frequency, of the group furthest from the goal."""
        ax = axes.new_axes(ax)
        group = self.groups.nlargest(1, "half_width_pct")
        rows = group[list(self.by)].merge(self.table) if self.by else self.table
        for runs, part in rows.groupby("runs"):
            line = part.sort_values("freq_hz")
            label = f"{runs} run" + "s" * (int(str(runs)) > 1)
            ax.plot(line["freq_hz"] / 1e9, line["half_width_pct"], marker="o", label=label)
        ax.axhline(float(group["half_width_pct"].iloc[0]), linestyle=":", color="grey")
        ax.axhline(self.within_pct, linestyle="--", color="grey")
        ax.set_xlabel("frequency of the next measurement (GHz)")
        ax.set_ylabel("half width to expect (%)")
        ax.set_ylim(bottom=0)
        name = self.name(group.to_dict(orient="records")[0])
        of = f": {tx.plot_label(name)}" if name else ""
        ax.set_title(f"{self.metric} at {tx.shown(self.freq_hz, 'Hz')}{of}")
        ax.legend()
        return ax


def plan(
    runs: pd.DataFrame,
    *,
    metric: str = "perf_per_watt",
    freq: float | str = "3.0GHz",
    within: float = 3.0,
    steps: str | Iterable[float | str] | None = None,
    at_target: bool = True,
    run_time_minutes: float | None = None,
    by: Sequence[str] | None = None,
    repeats: Sequence[int] = (1, 2, 3, 5),
    target_runs: int = 1,
    level: float = 0.90,
    budget_minutes: float | None = None,
    seed: int = 0,
    voltages: Mapping[float, float] | pd.DataFrame | None = None,
    pool: bool = True,
    keep_all: bool = False,
) -> Plan:
    """Say for every group which frequency to run next, and how many times.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table (`ppw.read_runs`): what was measured so far.
    metric, freq
        What is asked: one metric, at one frequency (Hz, or text with a unit).
    within : float
        Half width of the interval that is wanted, in percent.
    steps : several frequencies, or text "1.2GHz:2.4GHz:0.2GHz", optional
        Frequencies that the host offers; by default those of each group's host in the catalogue,
        or for a host that is not there those of the group's runs.
    at_target : bool
        Whether ``freq`` itself, where it is a step, may be measured; False for a machine that
        stands for one you do not have.
    run_time_minutes : float, optional
        What a run takes, setting up included; without it cost is counted in runs.
    by : sequence of str, optional
        Columns that tell groups apart; by default all identity columns present.
    repeats : sequence of int
        Numbers of runs to choose from.
    target_runs : int
        Runs whose mean is asked for: a single run scatters more than the mean of several.
    level : float
        Probability of the interval, inside (0, 1).
    budget_minutes : float, optional
        Do not go beyond; takes ``run_time_minutes``.
    seed : int
        Random seed of the simulated outcomes.
    voltages, pool, keep_all
        As for `ppw.project`.

    Returns
    -------
    Plan
        What to measure next in each group, and what it is expected to bring.

    Raises
    ------
    MeasurementError
        For values that cannot be, all of them at once.
    PpwError
        For arguments that cannot be, a host whose steps are not known, or when no group has runs.
    """
    asked = Question(
        tx.as_frequency(freq),
        tx.as_positive("within", within),
        tx.as_share("interval level", level),
        tx.as_whole("target runs", target_runs),
        None if run_time_minutes is None else tx.as_positive("run time (min)", run_time_minutes),
        None if budget_minutes is None else tx.as_positive("budget (min)", budget_minutes),
        tx.as_whole("seed", seed, least=0),
        sorted({tx.as_whole("a number of repeats", r) for r in repeats}),
        at_target,
    )
    asked.check()
    prepared = prepare(runs, by=by, metric=[metric], keep_all=keep_all)
    known, single = _posteriors(prepared, asked, answers.FitOptions(voltages=voltages, pool=pool))
    name, keys = prepared.metrics[0].name, prepared.groups.keys
    if not known:
        raise PpwError(
            f"{prepared.runs.attrs.get('source', 'runs')}: no group has a run "
            f"with {name}: measure one, at any frequency"
        )
    offered = _offered_steps(prepared, steps, list(known))
    others = _other_programs(prepared, asked, offered)
    plans = ((g, asked.candidates(offered[g])) for g in sorted(known))
    made = [GroupPlan.of(g, known[g], steps, asked, others[g]) for g, steps in plans]
    caveats = prepared.caveats() + _left_out_caveats(prepared, len(known), single)
    rs.warn_caveats(caveats)
    every = [(one.group, row) for one in made for row in one.rows()]
    given = asked._asdict()
    del given["repeats"], given["at_target"]
    return Plan(
        table=_with_keys(keys, every, Plan.tables[1].names),
        groups=_with_keys(keys, [(one.group, one.row()) for one in made], Plan.tables[0].names),
        by=tuple(prepared.groups.by),
        metric=name,
        **given,
        caveats=tuple(caveats),
        input_digest=rs.frame_digest(prepared.runs),
    )


def _posteriors(
    prepared: PreparedRuns, asked: Question, fitting: answers.FitOptions
) -> tuple[dict[int, list[nm.GroupPosterior]], int]:
    """Posterior of each fitted quantity by group, and the number of groups with one step only."""
    (metric,) = prepared.metrics
    posteriors = answers.Posteriors.of(prepared, fitting)
    names = list(fitting.fit_powers(metric))
    count = np.minimum.reduce([posteriors.steps[name].count for name in names])
    size = len(prepared.groups)
    target = FrequencyTarget(np.full(size, asked.freq_hz), np.full(size, float(asked.target_runs)))
    made: dict[int, list[nm.GroupPosterior]] = {g: [] for g in np.flatnonzero(count > 0).tolist()}
    for name in names:
        steps = posteriors.steps[name]
        for curve, mask in posteriors.laws(name, target.frequency):
            # As in a projection, groups with one step tell the others nothing.
            for some in (np.flatnonzero(mask & (count == 1)), np.flatnonzero(mask & (count > 1))):
                found = nm.group_posteriors(curve, steps, target, posteriors.neighbours, some)
                for group, known in found:
                    made[group].append(known)
    return made, int((count == 1).sum())


def _offered_steps(
    prepared: PreparedRuns, steps: str | Iterable[float | str] | None, groups: list[int]
) -> dict[int, list[float]]:
    """Frequencies (Hz) by group: those given, else the host's of the catalogue or of its runs."""
    if steps is not None:
        return dict.fromkeys(groups, as_steps(steps, fewest=1).tolist())
    runs, codes, offered = prepared.runs, prepared.groups.codes, {}
    for group in groups:
        own = runs[codes == group]
        hosts = own["host"].unique() if "host" in runs.columns else ()
        listed = {f for host in hosts for f in catalogue_steps(host)}
        measured = {*own["freq_hz"], *prepared.projected_steps.get(group, ())}
        offered[group] = sorted(listed or measured)
    return offered


def _other_programs(
    prepared: PreparedRuns, asked: Question, offered: Mapping[int, Sequence[float]]
) -> dict[int, tuple[str, int]]:
    """Name the shortest other program of each group's host that can be run at the target.

    "" where there is none: power is not asked for, a group was not measured at the same steps, or
    the target lies between them or is no step. And the place of power among the fits.
    """
    names = list(answers.FitOptions().fit_powers(prepared.metrics[0]))
    of_power = names.index(answers.POWER) if answers.POWER in names else -1
    found = dict.fromkeys(offered, ("", of_power))
    keys, by = prepared.groups.keys, prepared.groups.by
    if of_power < 0 or not asked.at_target or "workload" not in by:
        return found
    runs, codes = prepared.runs, prepared.groups.codes
    steps = runs.groupby(codes)["freq_hz"].unique().map(np.sort)
    seconds = runs["time_s"].groupby(codes).mean() if "time_s" in runs.columns else None
    alike = [c for c in by if c != "workload"]
    for group, allowed in offered.items():
        own = steps[group]
        outside = asked.freq_hz > own[-1] * (1 + SAME_STEP)
        outside |= asked.freq_hz < own[0] * (1 - SAME_STEP)
        if len(own) < 2 or not outside or not any(map(asked.is_target, allowed)):
            continue
        same = (keys[alike] == keys.loc[group, alike]).all(axis=1)
        same &= keys["workload"] != keys.loc[group, "workload"]
        there = [g for g in np.flatnonzero(same).tolist() if g in offered]
        if able := [g for g in there if np.array_equal(steps[g], own)]:
            best = able[0] if seconds is None else min(able, key=lambda g: float(seconds[g]))
            found[group] = (str(keys.loc[best, "workload"]), of_power)
    return found


def _left_out_caveats(prepared: PreparedRuns, known: int, single: int) -> list[str]:
    total, texts = len(prepared.groups), []
    if known < total:
        texts.append(
            f"{total - known} of {total} groups left out: {prepared.metrics[0].name} was not "
            "measured there"
        )
    if single:
        texts.append(
            f"{single} of {total} groups were measured at one frequency only: their curves come "
            "from the prior alone, and a projection needs two frequencies"
        )
    return texts


def _with_keys(
    keys: pd.DataFrame, rows: list[tuple[int, dict[str, Any]]], columns: Sequence[str]
) -> pd.DataFrame:
    """Put the key columns of each row's group before its answers."""
    answers = pd.DataFrame([row for _, row in rows], columns=list(columns))
    of_groups = keys.iloc[[group for group, _ in rows]].reset_index(drop=True)
    return pd.concat([of_groups, answers], axis=1)
