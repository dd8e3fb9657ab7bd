"""`plan`: which frequency to measure next, and how often, to be as sure as wanted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.next_measurement import (
    Candidate,
    Chances,
    Outlook,
    attainable,
    known_groups,
    look_ahead,
    outlook,
    present,
)
from fitting.bayes.posterior import Target
from fitting.bayes.steps import SAME_STEP
from ppw.catalogue.hosts import find_host, host_steps
from ppw.decision.objectives import as_steps
from ppw.errors import PpwError, UnknownHostError
from ppw.projection.options import FitOptions, VoltageTable
from ppw.projection.posteriors import Posteriors
from ppw.results import caveats as cv
from ppw.results.arguments import as_frequency, as_positive, as_share, as_whole
from ppw.results.axes import new_axes
from ppw.results.result import Result, Row, Table, frame_digest, rows_of
from ppw.results.text import key_texts, plot_label, shown
from ppw.runs.prepare import Prepared, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fitting.bayes.next_measurement import Known
    from fitting.bayes.pooling import Curve
    from fitting.regression.lines import FloatArray

    Mask = NDArray[np.bool_]


# What a plan says of one group: the measurement to make next, where it leads, and in words why.


# Outcomes drawn for a candidate, for each later measurement of a plan, and for all steps together,
# where candidates share no random numbers that would make differences of their noise.
_DRAWS, _DRAWS_AHEAD, _DRAWS_IN_ALL = 32, 12, 128
# A plan that looks further ahead than this many runs says no more than "many".
_MOST_AHEAD = 10
# A goal that fewer of the outcomes reach, with the most repeats at every step, is out of reach.
_HOPE = 0.1


class Asked(NamedTuple):
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
        """Refuse a budget that nothing can be made of. Raises `PpwError`."""
        if not self.repeats:
            raise PpwError("no number of repeats was given; the default is 1, 2, 3, 5")
        if self.budget_minutes is None:
            return
        if self.run_time_minutes is None:
            raise PpwError("a budget needs what a run takes: give it with --run-time")
        if self.run_time_minutes > self.budget_minutes:
            raise PpwError(
                f"a run of {self.run_time_minutes:g} min does not fit into the budget of "
                f"{self.budget_minutes:g} min: give more, or take a shorter run"
            )

    @property
    def goal(self) -> float:
        """Half width wanted, of the logarithm."""
        return math.log1p(self.within_pct / 100)

    @property
    def most_runs(self) -> float:
        """Runs that the budget allows."""
        if self.budget_minutes is None or self.run_time_minutes is None:
            return math.inf
        return math.floor(self.budget_minutes / self.run_time_minutes + 1e-9)

    def is_target(self, frequency: float) -> bool:
        """Tell whether a frequency (Hz) is the one asked for."""
        return abs(frequency / self.freq_hz - 1) < SAME_STEP

    def candidates(self, steps: Sequence[float]) -> list[Candidate]:
        """Measurements to choose from at these steps (Hz), within the budget."""
        allowed = [f for f in steps if self.at_target or not self.is_target(f)]
        if not allowed:
            raise PpwError(
                f"the only step is the frequency asked for, {shown(self.freq_hz, 'Hz')}: name "
                "others in steps (--steps), or allow to measure there"
            )
        return [Candidate(f, r) for f in allowed for r in self.repeats if r <= self.most_runs]

    def minutes(self, runs: float) -> float:
        """What runs take (min); NaN where it is not known."""
        return math.nan if self.run_time_minutes is None else runs * self.run_time_minutes

    def chances(self, draws: int, quantities: int) -> list[Chances]:
        """Random numbers for the outcomes of each quantity."""
        return [Chances.of(draws, (self.seed, i)) for i in range(quantities)]


@dataclass(frozen=True)
class GroupPlan:
    """Plan of one group; half widths are of the logarithm."""

    group: int
    asked: Asked
    now: float
    outlook: Outlook
    best: int
    stages: Sequence[tuple[Candidate, float]]
    floor: tuple[float, float, float]
    status: str

    @classmethod
    def of(
        cls, group: int, known: Sequence[Known], candidates: list[Candidate], asked: Asked
    ) -> GroupPlan:
        """Judge the candidates of one group and look ahead; at least one candidate is given."""
        now = float(present(known, asked.level)[0])
        first = outlook(known, candidates, asked.level, asked.chances(_DRAWS, len(known)))
        fewest, most = (end(c.runs for c in candidates) for end in (min, max))
        in_all = asked.chances(_DRAWS_IN_ALL, len(known))
        everywhere = [c for c in candidates if c.runs == most]
        least, form, noise = attainable(known, everywhere, asked.level, in_all)
        hopeless = (least <= asked.goal).mean() < _HOPE and first.expected.min() > asked.goal
        stages = look_ahead(
            known,
            first,
            [c for c in candidates if c.runs in (fewest, most)],
            asked.goal,
            asked.level,
            asked.chances(_DRAWS_AHEAD, len(known)),
            asked.most_runs,
            # One stage says what to measure next, wherever the goal is.
            1 if hopeless else _MOST_AHEAD,
        )
        best = first.candidates.index(stages[0].candidate) if stages else -1
        # More measurements leave no more than the best of them; what says else is chance.
        floor = (float(min(least.mean(), first.expected.min())), form, noise)
        made = cls(group, asked, now, first, best, stages, floor, "")
        return replace(made, status=made._status(hopeless))

    def _status(self, hopeless: bool) -> str:
        if self.now <= self.asked.goal:
            return "there"
        if self.stages[-1][1] <= self.asked.goal:
            return "reach"
        if hopeless:
            return "cannot"
        return "budget" if len(self.stages) < _MOST_AHEAD else "far"

    def runs(self) -> int:
        """Runs of the whole plan."""
        return sum(candidate.runs for candidate, _ in self.stages)

    def row(self) -> dict[str, Any]:
        """Row of ``Plan.groups``."""
        reached = self.status in ("there", "reach")
        step, after = self.stages[0] if self.stages else (Candidate(math.nan, 0), math.nan)
        runs = float(step.runs) if self.stages else math.nan
        total = float(self.runs()) if reached else math.nan
        values = (
            self.status,
            pct(self.now),
            step.frequency,
            runs,
            self.asked.minutes(runs),
            pct(after),
            total,
            self.asked.minutes(total),
            pct(self.floor[0]),
            *self._parts(),
            self.advice(),
        )
        return dict(zip(Plan.tables[0].names, values, strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """Rows of ``Plan.table``: the recommended first, then by what is expected."""
        expected = self.outlook.expected
        order = np.lexsort((expected, np.arange(len(expected)) != self.best))
        chance = (self.outlook.half_width <= self.asked.goal).mean(axis=1)
        rows = []
        for rank, i in enumerate(order.tolist()):
            candidate = self.outlook.candidates[i]
            values = (
                rank + 1,
                candidate.frequency,
                candidate.runs,
                self.asked.minutes(candidate.runs),
                pct(expected[i]),
                float(chance[i]),
                self.asked.is_target(candidate.frequency),
                i == self.best,
            )
            rows.append(dict(zip(Plan.tables[1].names, values, strict=True)))
        return rows

    def _parts(self) -> tuple[float, float]:
        """What model error and noise alone would leave of the least half width (%)."""
        least, form, noise = self.floor
        return pct(least * math.sqrt(form)), pct(least * math.sqrt(noise))

    def advice(self) -> str:
        """Say what to do, and why."""
        goal = f"±{self.asked.within_pct:g} %"
        if self.status == "there":
            return f"already there: {percent(pct(self.now))} now, {goal} wanted."
        return f"{self._next()}; {getattr(self, f'_{self.status}')(goal)}."

    def _next(self) -> str:
        candidate, after = self.stages[0]
        words = f"measure {times(candidate.runs, candidate.frequency)}"
        if self.asked.is_target(candidate.frequency):
            done = ": measure it and be done" if self.status == "reach" else ""
            words += f", which is what you ask for{done}"
        return f"{words} ({percent(pct(self.now))} now, about {percent(pct(after))} then)"

    def _reach(self, goal: str) -> str:
        minutes = self.asked.minutes(self.runs())
        takes = "" if math.isnan(minutes) else f" ({shown(minutes, 'min')})"
        return f"about {_runs(self.runs())}{takes} in all should reach {goal}"

    def _budget(self, goal: str) -> str:
        left = percent(pct(self.stages[-1][1]))
        return f"the budget ends at about {left} after {_runs(self.runs())}, short of {goal}"

    def _far(self, goal: str) -> str:
        left = percent(pct(self.stages[-1][1]))
        return f"{goal} takes more than {_runs(self.runs())}, which leave about {left}"

    def _cannot(self, goal: str) -> str:
        """Say what stands in the way, and what could be done about it."""
        top = max(c.frequency for c in self.outlook.candidates)
        most = max(c.runs for c in self.outlook.candidates)
        least = percent(pct(self.floor[0]))
        form, noise = self._parts()
        at = shown(self.asked.freq_hz, "Hz")
        words = (
            f"{goal} cannot be reached by steps up to {shown(top, 'Hz')}: {_runs(most)} at each "
            f"leave{'s' * (most == 1)} about {least}; "
        )
        if noise >= form:
            return words + (
                f"noise alone is {percent(noise)}: ask for the mean of more runs there "
                f"(--target-runs), steady the host, or accept {least}"
            )
        far = "beyond" if self.asked.freq_hz > top else "between steps"
        return words + (
            f"the model error {far} is {percent(form)}: measure nearer to {at}, or accept {least}"
        )


def pct(half: float) -> float:
    """Half width of a logarithm as percent of the value."""
    return 100 * math.expm1(half)


def percent(value: float) -> str:
    """Write a half width (%)."""
    return "–" if math.isnan(value) else f"±{value:.3g} %"


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count > 1)}"


def times(runs: float, frequency: float) -> str:
    """Write so many runs at a frequency (Hz)."""
    return "–" if math.isnan(runs) else f"{runs:.0f} × {shown(frequency, 'Hz')}"


_MOST_SENTENCES = 10
_STATUS = {
    "there": "already there",
    "reach": "within reach",
    "budget": "short of the goal when the budget ends",
    "far": "many runs away",
    "cannot": "out of reach of these steps",
}


def _half_width(column: str) -> Callable[[Row], str]:
    return lambda row: percent(row[column])


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan(Result):
    """What to measure next in each group, and what it is expected to bring.

    Half widths are half the interval of the logarithm, given as what it makes in percent.

    Attributes
    ----------
    groups, table : pandas.DataFrame
        One row a group, and one row a group and candidate, best first.
    by : tuple of str
        Columns that tell groups apart.
    metric : str
    freq_hz, within_pct, level : float
        What is asked: the frequency, the half width wanted there, and of which interval.
    target_runs : int
        Runs whose mean is asked for.
    run_time_minutes, budget_minutes : float or None
    seed : int
    caveats : tuple of str
    """

    kind = "plan"
    tables = (
        Table(
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
                "half_width_pct": _half_width("half_width_pct"),
                "next_runs": lambda row: times(row["next_runs"], row["next_freq_hz"]),
                "next_half_width_pct": _half_width("next_half_width_pct"),
                "runs_to_goal": lambda row: (
                    "many" if row["status"] == "far" else shown(row["runs_to_goal"])
                ),
            },
        ),
        Table(
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
                    times(row["runs"], row["freq_hz"]) + (" *" if row["recommended"] else "")
                ),
                "half_width_pct": _half_width("half_width_pct"),
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
        """Say what is asked."""
        runs = "" if self.target_runs == 1 else f", mean of {self.target_runs} runs"
        return (
            f"{self.metric} at {shown(self.freq_hz, 'Hz')} within ±{self.within_pct:g} % "
            f"({self.level:.0%} interval{runs})"
        )

    def verdict(self) -> list[str]:
        """Say how many groups reach the goal, and what to measure next in the first ten."""
        if len(self.groups) == 1:
            advice = str(self.groups["advice"].iloc[0])
            return [advice[:1].upper() + advice[1:]]
        counts = self.groups["status"].value_counts()
        said = [f"{counts[status]} {text}" for status, text in _STATUS.items() if status in counts]
        rows = rows_of(self.groups.head(_MOST_SENTENCES))
        return [f"Of {len(self.groups)} groups, {', '.join(said)}.", *map(self._sentence, rows)]

    def text_parts(self) -> list[str]:
        """Return the question, the groups, their advice, and the candidates of a single group."""
        groups, candidates = self.printed_tables()
        advice = [self._sentence(row) for row in rows_of(self.groups.head(len(groups.rows)))]
        parts = [self.question(), *groups.lines(), *advice]
        if len(self.groups) == 1 and len(self.table):
            parts += ["", candidates.lines()[0]]
        return parts

    def name(self, row: Mapping[Any, Any]) -> str:
        """Name the group of a row by its keys; nothing where there is one group only."""
        return ", ".join(key_texts(self.by, row))

    def _sentence(self, row: Mapping[Any, Any]) -> str:
        name = self.name(row)
        return f"{name}: {row['advice']}" if name else str(row["advice"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the half width to expect against the frequency of the next measurement."""
        return plot_plan(self, ax)


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
        Frequencies that the host offers; by default those of each group's host in the catalogue.
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
        Of the interval, inside (0, 1).
    budget_minutes : float, optional
        Do not go beyond; takes ``run_time_minutes``.
    seed : int
        Of the hypothetical outcomes.
    voltages, pool, keep_all
        As for `ppw.project_runs`.

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

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    asked = Asked(
        as_frequency(freq),
        as_positive("within", within),
        as_share("interval level", level),
        as_whole("target runs", target_runs),
        None if run_time_minutes is None else as_positive("run time (min)", run_time_minutes),
        None if budget_minutes is None else as_positive("budget (min)", budget_minutes),
        as_whole("seed", seed, least=0),
        sorted({as_whole("a number of repeats", r) for r in repeats}),
        at_target,
    )
    asked.check()
    prepared = prepare(runs, by=by, metric=[metric], keep_all=keep_all)
    known, single = _known(prepared, asked, FitOptions(voltages=voltages, pool=pool))
    if not known:
        raise PpwError(_nothing_known(prepared))
    offered = _offered(prepared, steps, list(known))
    made = [GroupPlan.of(g, known[g], asked.candidates(offered[g]), asked) for g in sorted(known)]
    caveats = prepared.caveats() + _left_out(prepared, len(known), single)
    cv.warn(caveats)
    keys = prepared.groups.keys
    return Plan(
        table=_joined(
            keys, [(m.group, row) for m in made for row in m.rows()], Plan.tables[1].names
        ),
        groups=_joined(keys, [(m.group, m.row()) for m in made], Plan.tables[0].names),
        by=tuple(prepared.groups.by),
        metric=prepared.metrics[0].name,
        freq_hz=asked.freq_hz,
        within_pct=asked.within_pct,
        level=asked.level,
        target_runs=asked.target_runs,
        run_time_minutes=asked.run_time_minutes,
        budget_minutes=asked.budget_minutes,
        seed=asked.seed,
        caveats=tuple(caveats),
        input_digest=frame_digest(prepared.runs),
    )


def _known(
    prepared: Prepared, asked: Asked, options: FitOptions
) -> tuple[dict[int, list[Known]], int]:
    """What is known of each group's quantities, and how many groups have one step only."""
    (metric,) = prepared.metrics
    runs, groups = prepared.runs, prepared.groups
    voltage = VoltageTable.of(runs, groups, options.voltages)
    posteriors = Posteriors.of(runs, groups, [metric], options, voltage)
    names = list(options.fitted(metric))
    count = np.minimum.reduce([posteriors.steps[name].count for name in names])
    size = len(groups)
    target = Target(np.full(size, asked.freq_hz), np.full(size, float(asked.target_runs)))
    made: dict[int, list[Known]] = {g: [] for g in np.flatnonzero(count > 0).tolist()}
    for name in names:
        for curve, mask in _curves(posteriors, name, target.frequency):
            # As in a projection, groups with one step tell the others nothing.
            for some in (np.flatnonzero(mask & (count == 1)), np.flatnonzero(mask & (count > 1))):
                for group, known in known_groups(
                    curve, posteriors.steps[name], target, posteriors.neighbours, some
                ):
                    made[group].append(known)
    return made, int((count == 1).sum())


def _curves(posteriors: Posteriors, name: str, frequency: FloatArray) -> list[tuple[Curve, Mask]]:
    """Curves of a quantity, each with its groups: a V-f table holds for some only."""
    everyone = np.ones(len(frequency), dtype=bool)
    if name != "power":
        return [(posteriors.time, everyone)]
    covered = posteriors.voltage.covers(posteriors.steps[name], frequency)
    with_table = replace(posteriors.power, voltage=posteriors.voltage.at)
    return [(with_table, covered), (posteriors.power, ~covered)]


def _offered(
    prepared: Prepared, steps: str | Iterable[float | str] | None, groups: list[int]
) -> dict[int, list[float]]:
    """Frequencies (Hz) that each group's host offers."""
    if steps is not None:
        return dict.fromkeys(groups, as_steps(steps, fewest=1).tolist())
    if "host" not in prepared.runs.columns:
        raise PpwError("the runs name no host, so its steps are not known: give them with --steps")
    hosts = prepared.runs["host"].astype(str).groupby(prepared.groups.codes).unique()
    known = {name: _catalogue_steps(name) for g in groups for name in hosts[g]}
    return {g: sorted({f for name in hosts[g] for f in known[name]}) for g in groups}


def _catalogue_steps(name: str) -> list[float]:
    try:
        steps = host_steps(find_host(name))
    except UnknownHostError as error:
        raise PpwError(f"give the frequencies it offers with --steps: {error}") from error
    if not steps:
        raise PpwError(f"the catalogue has no frequency steps for host {name!r}: give --steps")
    return list(steps)


def _nothing_known(prepared: Prepared) -> str:
    source = prepared.runs.attrs.get("source", "runs")
    name = prepared.metrics[0].name
    return f"{source}: no group has a run that tells {name}: measure one, at any frequency"


def _left_out(prepared: Prepared, known: int, single: int) -> list[str]:
    total, texts = len(prepared.groups), []
    if known < total:
        texts.append(
            f"{total - known} of {total} groups left out: {prepared.metrics[0].name} was not "
            "measured there"
        )
    if single:
        texts.append(
            f"{single} of {total} groups have one frequency only: what is known of their curves is "
            "the prior's, and a projection takes two frequencies"
        )
    return texts


def _joined(
    keys: pd.DataFrame, rows: list[tuple[int, dict[str, Any]]], columns: Sequence[str]
) -> pd.DataFrame:
    """Key columns of each row's group beside its answers."""
    answers = pd.DataFrame([row for _, row in rows], columns=list(columns))
    named = keys.iloc[[group for group, _ in rows]].reset_index(drop=True)
    return pd.concat([named, answers], axis=1)


def plot_plan(result: Plan, ax: Axes | None = None) -> Axes:
    """Draw the half width to expect against frequency: of the group furthest from the goal."""
    ax = new_axes(ax)
    group = result.groups.nlargest(1, "half_width_pct")
    rows = group[list(result.by)].merge(result.table) if result.by else result.table
    for runs, part in rows.groupby("runs"):
        line = part.sort_values("freq_hz")
        label = f"{runs} run" + "s" * (int(str(runs)) > 1)
        ax.plot(line["freq_hz"] / 1e9, line["half_width_pct"], marker="o", label=label)
    ax.axhline(float(group["half_width_pct"].iloc[0]), linestyle=":", color="grey")
    ax.axhline(result.within_pct, linestyle="--", color="grey")
    ax.set_xlabel("frequency of the next measurement (GHz)")
    ax.set_ylabel("half width to expect (%)")
    ax.set_ylim(bottom=0)
    name = result.name(group.to_dict(orient="records")[0])
    ax.set_title(
        f"{result.metric} at {shown(result.freq_hz, 'Hz')}" + f": {plot_label(name)}" * bool(name)
    )
    ax.legend()
    return ax
